/* train_out.c - what is trained on its way out: files to sinks, and an adapter that sessions have
 * while the training goes on.
 *
 * One idea: values are fetched as a task, a piece at a time, since a device is never waited for
 * here; what they are for happens at once, in the task's last step, so that nobody sees half of
 * them. */
#include "base/error.h"
#include "engine/trace_events.h"
#include "engine/train.h"
#include "format/lora_write.h"

#include <string.h>

typedef struct leaving {
    beryl_train *train;
    base_arena arena;
    float **values;  // [n]: of the matrices
    uint32_t matrix; /* the next piece: which, and its first byte */
    uint64_t at;
    device_ticket ticket; /* of the piece under way, */
    size_t size;          /* its bytes; 0: none is */
    bool shows;           /* else saves: */
    format_lora_form form;
    bool has_config, given; /* given: the sinks are no longer ours */
    beryl_sink file, config;
} leaving;

static size_t bytes_of(const train_matrix *m) {
    return (size_t)m->dim[0] * m->dim[1] * sizeof(float);
}

/* ---- values ---------------------------------------------------------------------------------- */

static beryl_status fetch(leaving *l, beryl_error *error) {
    beryl_train *t = l->train;
    graph_store *store = &t->engine->store;
    while (l->matrix < t->adapter.n) {
        const train_matrix *m = &t->adapter.matrices[l->matrix];
        const uint64_t left = bytes_of(m) - l->at;
        const size_t size = left < STORE_READ_MAX ? (size_t)left : STORE_READ_MAX;
        const void *from;
        beryl_status status = BERYL_OK;
        if (!l->size) status = store_state_read(store, m->value, l->at, size, &l->ticket, error);
        if (status != BERYL_OK) return status; /* PENDING: nothing was begun */
        l->size = size;
        status = store_state_read_step(store, m->value, l->at, l->ticket, &from, error);
        if (status != BERYL_OK) return status;
        memcpy((char *)l->values[l->matrix] + l->at, from, size);
        if (store->device) device_fetch_drop(store->device, l->ticket);
        l->size = 0;
        l->at += size;
        if (l->at < bytes_of(m)) continue;
        l->matrix++;
        l->at = 0;
    }
    return BERYL_OK;
}

/* The training's matrices as an adapter, with room for parts in the arena. */
static bool describe(const beryl_train *t, base_arena *arena, float *const *values,
                     format_lora *lora) {
    lora->n_part = t->adapter.n / 2;
    lora->parts = base_arena_take(arena, lora->n_part, sizeof *lora->parts);
    for (uint32_t i = 0; lora->parts && i < t->adapter.n; i++) {
        const train_matrix *m = &t->adapter.matrices[i];
        train_part_set(&lora->parts[i / 2], m, values[i]);
        if (m->rank > lora->rank) lora->rank = m->rank;
    }
    return lora->parts != NULL;
}

static float **values_make(const beryl_train *t, base_arena *arena) {
    float **values = base_arena_take(arena, t->adapter.n, sizeof *values);
    for (uint32_t i = 0; values && i < t->adapter.n; i++) {
        values[i] = base_arena_take(arena, bytes_of(&t->adapter.matrices[i]), 1);
        if (!values[i]) return NULL;
    }
    return values;
}

/* ---- for sessions ---------------------------------------------------------------------------- */

beryl_status train_live_make(beryl_train *t, beryl_error *error) {
    format_lora lora = {0};
    base_arena_init(&lora.arena, &t->engine->heap);
    float **values = values_make(t, &lora.arena);
    if (values && describe(t, &lora.arena, values, &lora))
        return engine_adapter_make(t->engine, &lora, &t->live, error);
    format_lora_fini(&lora);
    return base_no_memory(error);
}

beryl_adapter *beryl_train_adapter(const beryl_train *t) {
    return t ? t->live : NULL;
}

/* The parts stand in the order of the matrices; their values are the adapter's own memory. */
static beryl_status show(leaving *l, beryl_error *error) {
    beryl_train *t = l->train;
    const beryl_status status = engine_adapter_changed(t->live, error);
    if (status != BERYL_OK) return status;
    const format_lora *lora = engine_adapter_lora(t->live);
    for (uint32_t i = 0; i < t->adapter.n; i++) {
        const format_lora_part *p = &lora->parts[i / 2];
        memcpy((void *)(uintptr_t)(i % 2 ? p->b.data : p->a.data), l->values[i],
               bytes_of(&t->adapter.matrices[i]));
    }
    return engine_adapter_upload(t->live, error);
}

/* ---- tasks ----------------------------------------------------------------------------------- */

static beryl_status save(leaving *l, beryl_error *error) {
    format_lora lora = {0};
    if (!describe(l->train, &l->arena, l->values, &lora)) return base_no_memory(error);
    const format_lora_write_desc desc = {.lora = &lora, .form = l->form, .type = TYPE_F32};
    l->given = true;
    return format_lora_write_to(&l->train->engine->heap, &desc, &l->file,
                                l->has_config ? &l->config : NULL, error);
}

static beryl_status step(beryl_task *task) {
    leaving *l = task->state;
    if (task_is_cancelled(task)) return base_fail(&task->error, BERYL_CANCELLED, "cancelled");
    beryl_status status = fetch(l, &task->error);
    if (status == BERYL_OK && l->shows) status = engine_drain(task->engine, &task->error);
    if (status == BERYL_OK) status = task_settle(task);
    if (status != BERYL_OK) return status;
    return l->shows ? show(l, &task->error) : save(l, &task->error);
}

static void sink_leave(const beryl_sink *sink) {
    if (sink->close) sink->close(sink->user, false);
}

static void leaving_close(beryl_task *task) {
    leaving *l = task->state;
    base_heap *heap = &task->engine->heap;
    if (l->size && task->engine->device) device_fetch_drop(task->engine->device, l->ticket);
    if (!l->given) sink_leave(&l->file);
    if (!l->given) sink_leave(&l->config);
    l->train->task = NULL;
    base_arena_fini(&l->arena);
    base_heap_give(heap, l, sizeof *l);
}

/* `as` with its sinks becomes the task's; where that fails they are still the caller's. */
static beryl_status leaving_open(beryl_train *t, const leaving *as, beryl_task **out,
                                 beryl_error *error) {
    base_heap *heap = &t->engine->heap;
    if (t->task) return base_fail(error, BERYL_MISUSE, "a task of this training is running");
    leaving *l = base_heap_take(heap, sizeof *l);
    if (!l) return base_no_memory(error);
    *l = *as;
    l->train = t;
    base_arena_init(&l->arena, heap);
    l->values = values_make(t, &l->arena);
    beryl_status status =
        l->values ? task_open(t->engine, NULL, step, out, error) : base_no_memory(error);
    if (status != BERYL_OK) {
        base_arena_fini(&l->arena);
        base_heap_give(heap, l, sizeof *l);
        return status;
    }
    (*out)->state = l;
    (*out)->close = leaving_close;
    t->task = *out;
    return BERYL_OK;
}

beryl_status beryl_train_show(beryl_train *t, beryl_task **out, beryl_error *error) {
    if (out) *out = NULL;
    if (!t || !out || !t->live)
        return base_fail(error, BERYL_MISUSE,
                         "beryl_train_show needs a live training and a place for the task");
    return leaving_open(t, &(leaving){.shows = true}, out, error);
}

beryl_status beryl_train_save_to(beryl_train *t, const char *form, const beryl_sink *file,
                                 const beryl_sink *config, beryl_task **out, beryl_error *error) {
    leaving l = {.has_config = config != NULL};
    if (out) *out = NULL;
    if (file) l.file = *file;
    if (config) l.config = *config;
    beryl_status status = BERYL_MISUSE;
    if (!t || !out || !file || !engine_adapter_form(form ? form : "peft", &l.form) ||
        (l.form == LORA_FORM_PEFT) != l.has_config)
        base_fail(error, status,
                  "saving needs a training, peft with two sinks, gguf or rullama with one, and a "
                  "place for the task");
    else status = leaving_open(t, &l, out, error);
    if (status != BERYL_OK) {
        sink_leave(&l.file);
        sink_leave(&l.config);
    }
    return status;
}

/* ---- where its time goes --------------------------------------------------------------------- */

beryl_status beryl_train_trace(const beryl_train *t,
                               void (*write)(void *user, const char *text, size_t size), void *user,
                               beryl_error *error) {
    if (!t || !write || !t->options.timed)
        return base_fail(error, BERYL_MISUSE,
                         "beryl_train_trace needs a training whose steps are timed");
    beryl_engine *e = t->engine;
    trace_events events = {0};
    base_text_init(&events.text, &e->heap);
    trace_head(&events, e, "train", t->report.step_tokens, 0);
    trace_dispatches(&events, t->update_exec, trace_dispatches(&events, t->learn.exec, 0));
    const beryl_status status = trace_write(&events, write, user, error);
    base_text_fini(&events.text);
    return status;
}
