/* checkpoint.c - see checkpoint.h. */
#include "train/checkpoint.h"
#include "base/error.h"

#include <math.h>
#include <stdio.h>
#include <string.h>

/* Keys of the metadata beside settings: the format, counts, a number. */
enum { FORMAT, STEP, VALID_STEP, BEST_STEP, N_WORSE, BEST_LOSS, N_OWN, N_COUNT = BEST_LOSS - STEP };
static const char *const own[N_OWN] = {"format",    "step",           "measured_step",
                                       "best_step", "measured_since", "best_loss"};
static const char format[] = "beryl-training-1", hash_name[] = "hash";

typedef struct texts { /* of the progress */
    char of[N_OWN][40];
} texts;

static texts texts_of(const train_progress *p) {
    texts t;
    const uint32_t counts[N_COUNT] = {p->step, p->valid_step, p->best_step, p->n_worse};
    snprintf(t.of[FORMAT], sizeof t.of[FORMAT], "%s", format);
    for (int i = 0; i < N_COUNT; i++)
        snprintf(t.of[STEP + i], sizeof t.of[STEP + i], "%u", counts[i]);
    char *loss = t.of[BEST_LOSS];
    if (isfinite(p->best_loss)) snprintf(loss, sizeof t.of[BEST_LOSS], "%.17g", p->best_loss);
    else memcpy(loss, "null", 5);
    return t;
}

void train_checkpoint_head(const train_checkpoint *c, base_text *out) {
    const texts t = texts_of(&c->progress);
    base_view metadata[N_OWN + TRAIN_SETTING_MAX][2];
    for (int i = 0; i < N_OWN; i++) {
        metadata[i][0] = base_view_of(own[i]);
        metadata[i][1] = base_view_of(t.of[i]);
    }
    memcpy(metadata + N_OWN, c->settings, c->n_setting * sizeof *c->settings);
    base_arena arena;
    base_arena_init(&arena, out->heap);
    format_safetensor *tensors = base_arena_take(&arena, c->n + 1, sizeof *tensors);
    if (tensors) {
        memcpy(tensors, c->tensors, c->n * sizeof *tensors);
        tensors[c->n] = (format_safetensor){
            .name = base_view_of(hash_name), .type = TYPE_F32, .n_dim = 1, .dim = {2}};
        format_safetensors_write(tensors, c->n + 1, (const base_view(*)[2])metadata,
                                 N_OWN + c->n_setting, out);
    }
    out->failed |= !tensors;
    base_arena_fini(&arena);
}

uint64_t train_checkpoint_hash(const train_checkpoint *c) {
    const texts t = texts_of(&c->progress);
    uint64_t hash = 0;
    for (int i = 0; i < N_OWN; i++) hash = base_hash(t.of[i], strlen(t.of[i]), hash);
    for (uint32_t i = 0; i < c->n_setting; i++)
        hash = base_hash(c->settings[i][1].data, c->settings[i][1].size, hash);
    return hash;
}

/* ---- reading --------------------------------------------------------------------------------- */

typedef struct reading {
    base_arena *arena;
    format_safetensors file;
    train_checkpoint *to;
    beryl_error *error;
} reading;

static int shown(base_view text) {
    return text.size < 60 ? (int)text.size : 60;
}

static beryl_status broken(const reading *r, const char *what) {
    return base_fail(r->error, BERYL_BAD_FILE, "'%.300s': %s", r->to->path, what);
}

static beryl_status check_settings(const reading *r) {
    for (uint32_t i = 0; i < r->to->n_setting; i++) {
        const base_view name = r->to->settings[i][0], mine = r->to->settings[i][1],
                        its = format_safetensors_text(&r->file, name.data);
        if (!base_view_equal(its, mine))
            return base_fail(r->error, BERYL_BAD_INPUT,
                             "'%.300s' is of another training: its %s is %.*s, and here it is %.*s",
                             r->to->path, name.data, its.size ? shown(its) : 7,
                             its.size ? its.data : "missing", shown(mine), mine.data);
    }
    return BERYL_OK;
}

/* A number of the metadata; NAN: null. */
static beryl_status number(const reading *r, int key, double *out) {
    const base_view text = format_safetensors_text(&r->file, own[key]);
    base_json *json;
    beryl_error why = {0};
    const beryl_status status = base_json_parse(r->arena, text.data, text.size, &json, &why);
    if (status == BERYL_NO_MEMORY) return base_fail(r->error, status, "%s", why.message);
    const bool is_null = !status && json->kind == JSON_NULL && key == BEST_LOSS;
    if (status || (!is_null && json->kind != JSON_NUMBER))
        return base_fail(r->error, BERYL_BAD_FILE, "'%.300s': its %s is no number", r->to->path,
                         own[key]);
    *out = is_null ? (double)NAN : json->number;
    return BERYL_OK;
}

static beryl_status read_progress(const reading *r) {
    train_progress *p = &r->to->progress;
    uint32_t *const to[N_COUNT] = {&p->step, &p->valid_step, &p->best_step, &p->n_worse};
    for (int i = 0; i < N_COUNT; i++) {
        double x;
        const beryl_status status = number(r, STEP + i, &x);
        const double most = STEP + i == N_WORSE ? UINT32_MAX : r->to->steps;
        if (status) return status;
        if (!(x >= 0 && x <= most && x == floor(x)))
            return base_fail(r->error, BERYL_BAD_FILE, "'%.300s': its %s cannot be", r->to->path,
                             own[STEP + i]);
        *to[i] = (uint32_t)x;
    }
    return number(r, BEST_LOSS, &p->best_loss);
}

static beryl_status check_tensor(const reading *r, const format_safetensor *mine,
                                 const format_safetensor *its) {
    if (!its || !base_view_equal(its->name, mine->name))
        return base_fail(r->error, BERYL_BAD_INPUT,
                         "'%.300s' is of another training: it has '%.*s' where '%.*s' is due",
                         r->to->path, its ? shown(its->name) : 4, its ? its->name.data : "none",
                         shown(mine->name), mine->name.data);
    bool same = its->type == mine->type && its->n_dim == mine->n_dim;
    for (uint32_t i = 0; same && i < mine->n_dim; i++) same = its->dim[i] == mine->dim[i];
    if (!same)
        return base_fail(r->error, BERYL_BAD_INPUT,
                         "'%.300s' is of another training: '%.*s' has another shape", r->to->path,
                         shown(its->name), its->name.data);
    return BERYL_OK;
}

static beryl_status check_values(const reading *r, const format_safetensor *t) {
    for (size_t i = 0; t->type == TYPE_F32 && i < t->size; i += sizeof(float)) {
        float x;
        memcpy(&x, t->data + i, sizeof x);
        if (!isfinite(x))
            return base_fail(r->error, BERYL_BAD_FILE, "'%.300s': a value of '%.*s' is no number",
                             r->to->path, shown(t->name), t->name.data);
    }
    return BERYL_OK;
}

static beryl_status read_tensors(const reading *r) {
    const format_safetensors *s = &r->file;
    train_checkpoint *c = r->to;
    uint64_t hash = train_checkpoint_hash(c), kept;
    beryl_status status = BERYL_OK;
    for (size_t i = 0; !status && i < c->n; i++)
        status = check_tensor(r, &c->tensors[i], i < s->n ? &s->tensors[i] : NULL);
    const format_safetensor last = {
        .name = base_view_of(hash_name), .type = TYPE_F32, .n_dim = 1, .dim = {2}};
    if (!status) status = check_tensor(r, &last, c->n < s->n ? &s->tensors[c->n] : NULL);
    for (size_t i = 0; !status && i < c->n; i++) {
        c->tensors[i].data = s->tensors[i].data;
        c->tensors[i].size = s->tensors[i].size;
        hash = base_hash(s->tensors[i].data, s->tensors[i].size, hash);
        status = check_values(r, &s->tensors[i]);
    }
    if (status) return status;
    memcpy(&kept, s->tensors[c->n].data, sizeof kept);
    return kept == hash ? BERYL_OK : broken(r, "its bytes are damaged: they have another hash");
}

beryl_status train_checkpoint_read(base_arena *arena, const void *file, size_t size,
                                   train_checkpoint *c, beryl_error *error) {
    reading r = {.arena = arena, .to = c, .error = error};
    beryl_error why = {0};
    beryl_status status = format_safetensors_read(arena, file, size, &r.file, &why);
    if (status) return base_fail(error, status, "'%.300s': %.300s", c->path, why.message);
    if (!base_view_equal(format_safetensors_text(&r.file, own[FORMAT]), base_view_of(format)))
        return broken(&r, "no checkpoint of a training, or one of another version");
    status = check_settings(&r);
    if (!status) status = read_progress(&r);
    return status ? status : read_tensors(&r);
}
