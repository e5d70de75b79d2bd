/* train_checkpoint.c - a training to a file and on from it (train/checkpoint.h): the settings that
 * both must share, and the states of the store that are kept.
 *
 * One idea: a step is a function of what was learned, the moments and the step's number, so that
 * is all there is to keep; the order of the data follows from the settings. */
#include "base/error.h"
#include "base/file.h"
#include "engine/train.h"
#include "format/out.h"

#include <stdarg.h>
#include <stdio.h>
#include <string.h>

enum { HEAD_MAX = 16 << 20 /* what a file may have besides the values */ };

typedef struct description { /* what a checkpoint's texts and tensors point to */
    train_checkpoint checkpoint;
    char texts[TRAIN_SETTING_MAX][64];
    base_arena arena;
    uint64_t bytes; /* of the tensors */
} description;

static void set(description *d, const char *name, const char *text, ...)
    __attribute__((format(printf, 3, 4)));
static void set(description *d, const char *name, const char *text, ...) {
    const uint32_t i = d->checkpoint.n_setting++;
    va_list args;
    va_start(args, text);
    vsnprintf(d->texts[i], sizeof d->texts[i], text, args);
    va_end(args);
    d->checkpoint.settings[i][0] = base_view_of(name);
    d->checkpoint.settings[i][1] = base_view_of(d->texts[i]);
}

static void set_digest(description *d, const char *name, uint64_t digest) {
    set(d, name, "%016llx", (unsigned long long)digest);
}

static uint64_t digest_of(const beryl_train *t, const train_data *data) {
    uint64_t hash = data->n;
    for (uint32_t i = 0; i < data->n; i++) {
        const train_row *row = &data->rows[i];
        hash = base_hash(row->tokens, row->n * sizeof *row->tokens, hash);
        hash = base_hash(row->mask, row->n, hash);
        hash = train_media_digest(t, row, hash);
    }
    return hash;
}

/* All that steps depend on. An adapter that was gone on from has ranks of its own, which are in the
 * shapes, and factors. */
static void set_all(description *d, const beryl_train *t) {
    const beryl_engine *e = t->engine;
    const beryl_train_options *o = &t->options;
    uint64_t factors = 0;
    for (uint32_t i = 0; !o->rank && i < t->adapter.n; i++)
        factors = base_hash(&t->adapter.matrices[i].factor, sizeof(float), factors);
    set_digest(d, "model", e->model_hash);
    set(d, "precision", e->options.precision == BERYL_PRECISION_EXACT ? "exact" : "fast");
    set_digest(d, "data", digest_of(t, &t->data));
    set_digest(d, "validation data", digest_of(t, &t->valid));
    set(d, "rank", "%u", o->rank);
    set(d, "alpha", "%.9g", (double)o->alpha);
    set_digest(d, "scale of the first adapter", factors);
    set(d, "epochs", "%u", o->epochs);
    set(d, "batch", "%u", o->batch);
    set(d, "accumulate", "%u", o->accumulate);
    set(d, "seed", "%llu", (unsigned long long)o->seed);
    set_digest(d, "order of rows",
               base_hash(t->order, (size_t)o->epochs * t->data.n * sizeof *t->order, 0));
    set(d, "learning rate", "%.17g", o->rate);
    set(d, "schedule", "%s", train_schedule_name(t->schedule.kind));
    set(d, "warmup", "%u", o->warmup);
    set(d, "cycles", "%u", o->cycles);
    set(d, "betas", "%.9g,%.9g", (double)o->beta1, (double)o->beta2);
    set(d, "eps", "%.9g", (double)o->eps);
    set(d, "weight decay", "%.9g", (double)o->weight_decay);
    set(d, "dropout", "%.9g", (double)o->dropout);
    set(d, "clip", "%.9g", (double)o->clip);
    if (t->coded) set(d, "moments", "q8");
}

/* Of a matrix: its value, then its moments. */
static uint32_t n_kept(const beryl_train *t) {
    return t->coded ? 2 : 3;
}

/* The state that tensor i of the file is of. */
static uint32_t state_of(const beryl_train *t, uint32_t i) {
    const train_matrix *m = &t->adapter.matrices[i / n_kept(t)];
    const uint32_t which = i % n_kept(t);
    return which ? m->moments[which - 1] : m->value;
}

static beryl_status describe(description *d, const beryl_train *t, const char *path,
                             beryl_error *error) {
    const train_adapter *a = &t->adapter;
    const graph_store *store = &t->engine->store;
    *d = (description){
        .checkpoint = {.path = path, .steps = t->report.steps, .n = (size_t)a->n * n_kept(t)}};
    base_arena_init(&d->arena, &t->engine->heap);
    set_all(d, t);
    train_checkpoint *c = &d->checkpoint;
    c->tensors = base_arena_take(&d->arena, c->n, sizeof *c->tensors);
    if (!c->tensors) return base_no_memory(error);
    for (uint32_t i = 0; i < c->n; i++) {
        const store_tensor *state = &store->tensors.data[state_of(t, i)];
        const size_t n = (size_t)state->dim[0] * state->dim[1];
        c->tensors[i] = (format_safetensor){.name = base_view_of(state->name),
                                            .type = state->type,
                                            .n_dim = 2,
                                            .dim = {state->dim[0], state->dim[1]},
                                            .size = n * base_type_block_bytes(state->type)};
        d->bytes += c->tensors[i].size;
    }
    return BERYL_OK;
}

/* ---- saving ---------------------------------------------------------------------------------- */

static beryl_status write_values(beryl_train *t, const train_checkpoint *c, format_out *out,
                                 beryl_error *error) {
    base_heap *heap = &t->engine->heap;
    uint64_t hash = train_checkpoint_hash(c);
    beryl_status status = BERYL_OK;
    for (uint32_t i = 0; status == BERYL_OK && i < c->n; i++) {
        const uint32_t state = state_of(t, i);
        const size_t size = c->tensors[i].size,
                     room = (size_t)store_state_bytes(&t->engine->store, state);
        void *values = base_heap_resize(heap, NULL, 0, room);
        if (!values) return base_no_memory(error);
        status = train_state_get(t, state, values, error);
        hash = status == BERYL_OK ? base_hash(values, size, hash) : 0;
        if (status == BERYL_OK) format_out_add(out, values, size);
        base_heap_give(heap, values, room);
    }
    format_out_add(out, &hash, sizeof hash);
    return status;
}

static beryl_status write_file(beryl_train *t, const description *d, beryl_error *error) {
    const train_checkpoint *c = &d->checkpoint;
    format_out out;
    base_text head;
    beryl_status status = format_out_open(&out, &t->engine->heap, c->path, error);
    if (status != BERYL_OK) return status;
    base_text_init(&head, &t->engine->heap);
    train_checkpoint_head(c, &head);
    if (head.failed) status = base_no_memory(error);
    if (status == BERYL_OK) format_out_add(&out, head.data, head.size);
    if (status == BERYL_OK) status = write_values(t, c, &out, error);
    base_text_fini(&head);
    return format_out_close(&out, status, error);
}

beryl_status beryl_train_checkpoint(beryl_train *t, const char *path, beryl_error *error) {
    description d;
    if (!t || !path)
        return base_fail(error, BERYL_MISUSE, "a checkpoint needs a training and a path");
    if (t->task) return base_fail(error, BERYL_MISUSE, "a task of this training is running");
    beryl_status status = describe(&d, t, path, error);
    const beryl_train_report *r = &t->report;
    d.checkpoint.progress =
        (train_progress){r->step, r->valid_step, r->best_step, r->n_worse, r->best_loss};
    if (status == BERYL_OK) status = write_file(t, &d, error);
    base_arena_fini(&d.arena);
    return status;
}

/* ---- going on -------------------------------------------------------------------------------- */

static beryl_status take(beryl_train *t, const train_checkpoint *c, beryl_error *error) {
    base_heap *heap = &t->engine->heap;
    beryl_status status = BERYL_OK;
    for (uint32_t i = 0; status == BERYL_OK && i < c->n; i++) {
        const format_safetensor *from = &c->tensors[i];
        const uint32_t state = state_of(t, i);
        const size_t room = (size_t)store_state_bytes(&t->engine->store, state);
        void *values = base_heap_take(heap, room); /* the file's are unaligned */
        if (!values) return base_no_memory(error);
        memcpy(values, from->data, from->size);
        status = train_state_put(t, state, values, error);
        base_heap_give(heap, values, room);
    }
    const train_progress *p = &c->progress;
    t->report.step = p->step;
    t->report.valid_step = p->valid_step;
    t->report.best_step = p->best_step;
    t->report.best_loss = p->best_loss;
    t->report.n_worse = p->n_worse;
    return status;
}

beryl_status train_resume(beryl_train *t, const char *path, beryl_error *error) {
    base_heap *heap = &t->engine->heap;
    description d;
    char *file = NULL;
    size_t size = 0;
    beryl_status status = describe(&d, t, path, error);
    if (status == BERYL_OK)
        status = base_file_read(heap, path, (size_t)d.bytes + HEAD_MAX, &file, &size, error);
    if (status == BERYL_OK)
        status = train_checkpoint_read(&d.arena, file, size, &d.checkpoint, error);
    if (status == BERYL_OK) status = take(t, &d.checkpoint, error);
    base_heap_give(heap, file, file ? size + 1 : 0);
    base_arena_fini(&d.arena);
    return status;
}
