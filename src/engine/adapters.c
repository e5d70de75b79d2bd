/* adapters.c - adapters of an engine, and which of them each session takes.
 *
 * One idea: the matrices of all open adapters lie side by side, rank by rank, in one pool of
 * weights, and a state says for each slot what its session takes of each rank: 0 where the adapter
 * is off. So sessions of one run may have different adapters, their scales change with one small
 * write, and an adapter that fits where another was needs no new plan. The pool's bytes come from
 * the open adapters through a source, like any weight's.
 *
 * The pool grows, and its plans are made anew, when an adapter wants more ranks, other matrices or
 * another type than it has. It never shrinks. */
#include "base/build.h"
#include "base/error.h"
#include "base/file.h"
#include "base/quantise.h"
#include "base/thread.h"
#include "engine/engine.h"

#include <math.h>
#include <stdio.h>
#include <string.h>

enum {
    GROUP_LORA = 1 << 22, /* of the store, beside those of gemma4/weights.c */
    RANK_STEP = 16,       /* the pool has a multiple of it: whole tiles of matrix units */
    RANK_TOTAL_MAX = 8192,
    CONFIG_MAX = 16 << 20,
    THREADS = 8,           /* that bring an adapter into its forms */
    ALONE_BYTES = 1 << 20, /* less is not worth a thread */
};

struct beryl_adapter {
    beryl_engine *engine;
    uint32_t users; /* who opened it, and sessions */
    char *data;     // [size]: the file; owned
    size_t size;
    uint16_t *halves; // [n_half]: the file's F32 from `first` on, for the pool; owned. NULL: none
    const char *first;
    size_t n_half;
    /* [n_rounded]: rows of A of parts that the pool has as blocks of bytes; owned. NULL: they are
     * rounded as they are asked for */
    uint8_t *rounded;
    size_t n_rounded;
    uint64_t *rounded_at; // [lora.n_part]: where those of the part begin; UINT64_MAX: it has none
    format_lora lora;
    uint32_t *parts; // [n_pair]: 1 + number of the part; 0: none. In the arena of `lora`
    base_type type;  /* of the pool, if it were alone */
    float factor;    /* of its first part; what others have more or less is in the pool */
    uint32_t rank;   /* its first rank in the pool */
    uint64_t hash;   /* of the file; 0: not asked for yet */
};

/* ---- the pool's bytes ------------------------------------------------------------------------ */

static const format_lora_part *part_at(const beryl_adapter *a, uint32_t pair) {
    return a->parts[pair] ? &a->lora.parts[a->parts[pair] - 1] : NULL;
}

/* As the pool has it. */
static format_lora_half in_pool(const beryl_adapter *a, const format_lora_half *half) {
    format_lora_half to = *half;
    if (a->halves) {
        to.type = TYPE_F16;
        to.data = (const uint8_t *)(a->halves + ((const char *)half->data - a->first) /
                                                    (ptrdiff_t)sizeof(float));
    }
    return to;
}

static void convert(base_type to, const format_lora_half *half, uint64_t at, uint64_t step,
                    uint32_t n, float by, char *out) {
    const uint32_t size = base_type_block_bytes(half->type);
    if (step == 1 && half->type == to && by == 1.0f) { // NOLINT: exactly that
        memcpy(out, half->data + at * size, (size_t)n * size);
        return;
    }
    for (uint32_t i = 0; i < n; i++) {
        if (to == TYPE_F32) {
            const float value = format_lora_value(half, at + i * step) * by;
            memcpy(out + (size_t)i * 4, &value, 4);
        } else { /* all adapters are of this type, and nothing is multiplied */
            memcpy(out + (size_t)i * 2, half->data + (at + i * step) * 2, 2);
        }
    }
}

/* n numbers as blocks of bytes. */
static void round_row(const format_lora_half *half, uint64_t at, uint64_t step, uint32_t n,
                      uint8_t *out) {
    enum { BLOCK = 32 };
    for (uint32_t i = 0; i < n; i += BLOCK, out += base_type_block_bytes(TYPE_Q8_0)) {
        float x[BLOCK];
        const uint64_t first = at + i * step;
        if (step == 1)
            base_dequantise(half->type, half->data + first * base_type_block_bytes(half->type), x,
                            BLOCK);
        for (uint32_t j = 0; step != 1 && j < BLOCK; j++)
            x[j] = format_lora_value(half, first + j * step);
        base_quantise(TYPE_Q8_0, x, out, BLOCK);
    }
}

/* The pair whose ranks stand at place `at` of the A that `pair` shares. */
static uint32_t sharer(const engine_lora *l, uint32_t pair, uint64_t at) {
    while (l->graph.pairs[pair].a == GEMMA4_NONE || l->graph.pairs[pair].at != at) pair++;
    return pair;
}

/* One row of the pool's A or B of a pair. */
static void fill_row(const beryl_engine *e, uint32_t pair, bool is_b, const store_tensor *t,
                     uint64_t row, char *out) {
    const engine_lora *l = &e->lora;
    const uint32_t width = t->dim[t->rank - 1];
    const size_t row_bytes = (size_t)base_type_row_bytes(t->type, width);
    const bool by_rank = !is_b && pair % LORA_COUNT != LORA_EMBED; /* a row is a rank's */
    const uint64_t rows = t->dim[t->rank - 2], expert = row / rows;
    row %= rows;
    if (by_rank) {
        pair = sharer(l, pair, row / l->rank);
        row %= l->rank;
    }
    memset(out, 0, row_bytes);
    for (size_t i = 0; i < l->open.count; i++) {
        const beryl_adapter *a = l->open.data[i];
        const format_lora_part *p = part_at(a, pair);
        if (!p || (by_rank && (row < a->rank || row - a->rank >= p->rank))) continue;
        const format_lora_half of = in_pool(a, is_b ? &p->b : &p->a), *half = &of;
        const uint64_t at = expert * half->stride[0];
        const uint64_t own = at + (row - a->rank) * half->stride[1];
        if (t->type == TYPE_Q8_0 && a->rounded)
            memcpy(out, a->rounded + a->rounded_at[p - a->lora.parts] + (row - a->rank) * row_bytes,
                   row_bytes);
        else if (t->type == TYPE_Q8_0)
            round_row(&p->a, own, half->stride[2], width, (uint8_t *)out);
        else if (by_rank) convert(t->type, half, own, half->stride[2], width, 1, out);
        else
            convert(t->type, half, at + row * half->stride[2], half->stride[1], p->rank,
                    is_b ? p->factor / a->factor : 1,
                    out + (size_t)a->rank * base_type_block_bytes(t->type));
    }
}

/* Rows of the pool's B of a pair as a file has them, where all are of one adapter; NULL: they are
 * not. */
static const char *rows_as_read(const engine_lora *l, uint32_t pair, const store_tensor *t) {
    const char *only = NULL;
    for (size_t i = 0; i < l->open.count; i++) {
        const beryl_adapter *a = l->open.data[i];
        const format_lora_part *p = part_at(a, pair);
        if (!p) continue;
        const format_lora_half b = in_pool(a, &p->b);
        if (only || p->n_expert > 1 || p->rank != t->dim[t->rank - 1] || b.type != t->type ||
            b.stride[1] != 1 || b.stride[2] != p->rank || p->factor > a->factor ||
            p->factor < a->factor)
            return NULL;
        only = (const char *)b.data;
    }
    return only;
}

/* Of the source: whichever rows of whichever tensor the bytes are. */
static beryl_status pool_read(void *user, uint64_t offset, void *to, size_t size) {
    beryl_engine *e = user;
    const engine_lora *l = &e->lora;
    char *out = to;
    for (size_t i = 0; size && i < l->places.count; i++) {
        const store_tensor *t = &e->store.tensors.data[l->mark.tensor + 1 + i];
        const uint64_t row_bytes = base_type_row_bytes(t->type, t->dim[t->rank - 1]);
        const bool is_b = l->places.data[i] & 1;
        const char *rows = is_b ? rows_as_read(l, l->places.data[i] >> 1, t) : NULL;
        while (size && offset >= t->file_offset && offset < t->file_offset + t->file_bytes) {
            const uint64_t at = offset - t->file_offset, left = t->file_bytes - at;
            if (rows) {
                const size_t some = left < size ? (size_t)left : size;
                memcpy(out, rows + at, some);
                out += some;
                offset += some;
                size -= some;
                continue;
            }
            const uint64_t row = at / row_bytes, skip = at % row_bytes;
            const size_t n = row_bytes - skip < size ? (size_t)(row_bytes - skip) : size;
            char *whole = n == row_bytes ? out : l->row;
            fill_row(e, l->places.data[i] >> 1, is_b, t, row, whole);
            if (n != row_bytes) memcpy(out, l->row + skip, n);
            out += n;
            offset += n;
            size -= n;
        }
    }
    return size ? BERYL_IO : BERYL_OK;
}

beryl_source engine_lora_source(beryl_engine *e) {
    return (beryl_source){.size = INT64_MAX, .user = e, .read = pool_read};
}

/* ---- the pool -------------------------------------------------------------------------------- */

static uint32_t pair_count(const beryl_engine *e) {
    return (e->model.config.n_layer + 1) * LORA_COUNT;
}

static void pool_drop(beryl_engine *e) {
    engine_lora *l = &e->lora;
    engine_adapted_plans_close(e);
    if (!l->made) return;
    store_cut(&e->store, &l->mark);
    base_heap_give(&e->heap, l->row, l->row_size);
    base_heap_give(&e->heap, l->graph.pairs, pair_count(e) * sizeof *l->graph.pairs);
    l->places.count = 0;
    l->uploading = false;
    l->row = NULL;
    l->graph.pairs = NULL;
    l->made = false;
}

/* A GPU that may be fast? */
static bool may_round(const beryl_engine *e) {
    return e->device && !device_is_processor(device_caps_of(e->device)) &&
           e->options.precision != BERYL_PRECISION_EXACT;
}

/* Is A of the pair kept as blocks of bytes? Each workgroup of a product reads all of A: where a GPU
 * that may be fast rounds the vector to bytes for the matrix, it multiplies A with them too. */
static bool is_rounded(const beryl_engine *e, uint32_t pair, const format_lora_part *p) {
    const format_lora_target first = (format_lora_target)(pair % LORA_COUNT);
    format_lora_target own;
    const uint32_t n = gemma4_lora_share(first, &own), layer = pair / LORA_COUNT;
    bool rounded = may_round(e) && first < LORA_FIRST_OF_MODEL && p->n_expert == 1 &&
                   p->in % base_type_block(TYPE_Q8_0) == 0;
    for (uint32_t i = 0; rounded && i < n; i++) {
        gemma4_lora_place places[2];
        const uint32_t k =
            gemma4_lora_places(&e->model, (format_lora_target)(own + i), layer, places);
        for (uint32_t j = 0; j < k; j++)
            rounded &= base_type_is_quantised(e->store.tensors.data[places[j].weight].type);
    }
    return rounded;
}

/* Index in the store, UINT32_MAX: no memory. */
static uint32_t add_tensor(beryl_engine *e, uint32_t pair, bool is_b, const format_lora_part *p,
                           uint64_t *offset) {
    engine_lora *l = &e->lora;
    const bool turned = !is_b && p->target == LORA_EMBED,
               each = p->target == LORA_GATE_UP_EXPS || p->target == LORA_DOWN_EXPS;
    const uint32_t rows = is_b     ? p->out
                          : turned ? p->in
                                   : l->graph.pairs[pair].n * l->rank,
                   width = is_b || turned ? l->rank : p->in,
                   dim[3] = {each ? p->n_expert : rows, each ? rows : width, width};
    char name[64];
    snprintf(name, sizeof name, "lora.%u.%s.%s", pair / LORA_COUNT,
             format_lora_target_name(p->target), is_b ? "b" : "a");
    uint32_t *place = base_vec_add(&e->heap, &l->places);
    if (!place) return UINT32_MAX;
    *place = pair << 1 | is_b;
    const base_type type = !is_b && is_rounded(e, pair, p) ? TYPE_Q8_0 : l->type;
    const uint32_t index =
        store_add_weight(&e->store, name, type, each ? 3 : 2, dim,
                         GROUP_LORA + 1 + pair / LORA_COUNT, e->store.n_source - 1, *offset, false);
    if (index == UINT32_MAX) return index;
    const size_t row = (size_t)base_type_row_bytes(type, width);
    *offset += e->store.tensors.data[index].file_bytes;
    if (row > l->row_size) l->row_size = row;
    return index;
}

/* A part of an open adapter that goes with a pair; NULL: none does. */
static const format_lora_part *any_part(const engine_lora *l, uint32_t pair) {
    const format_lora_part *p = NULL;
    for (size_t i = 0; !p && i < l->open.count; i++) p = part_at(l->open.data[i], pair);
    return p;
}

/* Weights of the targets that share a vector, from pair `first` on. false: no memory. */
static bool add_shared(beryl_engine *e, uint32_t first, uint32_t n, uint64_t *offset) {
    gemma4_lora_pair *pairs = &e->lora.graph.pairs[first];
    uint32_t n_here = 0, a = GEMMA4_NONE;
    for (uint32_t i = 0; i < n; i++) n_here += any_part(&e->lora, first + i) != NULL;
    for (uint32_t i = 0, at = 0; i < n; i++) {
        const format_lora_part *p = any_part(&e->lora, first + i);
        pairs[i] = (gemma4_lora_pair){.a = GEMMA4_NONE, .b = GEMMA4_NONE, .n = n_here, .at = at};
        if (!p) continue;
        at++;
        if (a == GEMMA4_NONE) a = add_tensor(e, first + i, false, p, offset);
        pairs[i].a = a;
        pairs[i].b = add_tensor(e, first + i, true, p, offset);
        if (a == UINT32_MAX || pairs[i].b == UINT32_MAX) return false;
    }
    return true;
}

/* Weights for every matrix that an open adapter goes with. */
static beryl_status pool_add(beryl_engine *e, beryl_error *error) {
    engine_lora *l = &e->lora;
    const uint32_t n_pair = pair_count(e);
    uint64_t offset = 0;
    l->mark = store_mark_of(&e->store);
    l->made = true; /* so that it is dropped */
    l->row_size = 0;
    l->graph.pairs = base_heap_take(&e->heap, n_pair * sizeof *l->graph.pairs);
    bool room = l->graph.pairs;
    const uint32_t dim[2] = {e->options.sessions, LORA_SHARE_MAX * l->rank};
    l->graph.scales = store_add_state(&e->store, "lora.scales", TYPE_F32, 2, dim, GROUP_LORA);
    room = room && l->graph.scales != UINT32_MAX;
    for (uint32_t k = 0, n; room && k < n_pair; k += n) {
        format_lora_target first;
        n = gemma4_lora_share((format_lora_target)(k % LORA_COUNT), &first);
        room = add_shared(e, k, n, &offset);
    }
    l->row = room ? base_heap_take(&e->heap, l->row_size) : NULL;
    if (!l->row) l->row_size = 0;
    if (!room || (l->row_size == 0 && l->places.count)) return base_no_memory(error);
    return store_extend(&e->store, &l->mark, e->options.memory, error);
}

beryl_status engine_lora_upload(beryl_engine *e, beryl_error *error) {
    beryl_status status;
    while ((status = store_upload_step(&e->store, error)) == BERYL_EVENT) {}
    e->lora.uploading = status == BERYL_PENDING;
    return status;
}

/* In the module what the device has no room for yet goes before the next run. */
static beryl_status pool_upload(beryl_engine *e, beryl_error *error) {
    beryl_status status;
    while ((status = engine_lora_upload(e, error)) == BERYL_PENDING && !BUILD_IS_MODULE) {
        device_ticket done;
        status = e->device ? device_poll(e->device, &done, error) : BERYL_OK;
        if (status != BERYL_OK) return status;
        base_sleep(1e-4);
    }
    return status == BERYL_PENDING ? BERYL_OK : status;
}

static beryl_status pool_make(beryl_engine *e, beryl_error *error) {
    pool_drop(e);
    beryl_status status = pool_add(e, error);
    if (status == BERYL_OK) status = pool_upload(e, error);
    for (uint32_t i = 0; status == BERYL_OK && i < e->options.sessions; i++)
        status = engine_lora_scales(e, i, error);
    if (status != BERYL_OK) pool_drop(e);
    return status;
}

/* What the open adapters, the newest among them, want of the pool beyond what it has. */
static bool pool_fits(const beryl_engine *e, const beryl_adapter *a, uint32_t rank,
                      base_type type) {
    const engine_lora *l = &e->lora;
    if (!l->made || rank > l->rank || type != l->type) return false;
    for (uint32_t k = 0; k < pair_count(e); k++)
        if (a->parts[k] && l->graph.pairs[k].a == GEMMA4_NONE) return false;
    return true;
}

/* The first ranks that no open adapter has. */
static uint32_t place_of(const engine_lora *l, uint32_t n) {
    uint32_t at = 0;
    for (bool moved = true; moved;) {
        moved = false;
        for (size_t i = 0; i < l->open.count; i++) {
            const beryl_adapter *a = l->open.data[i];
            if (at >= a->rank + a->lora.rank || a->rank >= at + n) continue;
            at = a->rank + a->lora.rank;
            moved = true;
        }
    }
    return at;
}

/* F16 or BF16 where all is of it, and nothing has a factor of its own; else F32. */
static base_type type_of(const beryl_adapter *a) {
    const base_type type = a->lora.parts[0].a.type;
    for (size_t i = 0; i < a->lora.n_part; i++) {
        const format_lora_part *p = &a->lora.parts[i];
        if (p->a.type != type || p->b.type != type || p->factor < a->factor ||
            p->factor > a->factor)
            return TYPE_F32;
    }
    return type;
}

/* The newest adapter into the pool. Nothing runs that has adapters. */
static beryl_status pool_take(beryl_engine *e, beryl_adapter *a, beryl_error *error) {
    engine_lora *l = &e->lora;
    const uint32_t rank = place_of(l, a->lora.rank),
                   most = (rank + a->lora.rank + RANK_STEP - 1) / RANK_STEP * RANK_STEP;
    const engine_lora old = *l;
    if (most > RANK_TOTAL_MAX)
        return base_fail(error, BERYL_UNSUPPORTED, "adapters of %u ranks in all: %d at most", most,
                         RANK_TOTAL_MAX);
    base_type type = l->open.count ? l->type : a->type;
    if (type != a->type) type = TYPE_F32;
    beryl_adapter **to = base_vec_add(&e->heap, &l->open);
    if (!to) return base_no_memory(error);
    *to = a;
    a->rank = rank;
    if (pool_fits(e, a, most, type)) {
        store_upload_again(&e->store, l->mark.tensor);
        return pool_upload(e, error);
    }
    l->rank = most > l->rank ? most : l->rank;
    l->type = type;
    beryl_status status = pool_make(e, error);
    if (status == BERYL_OK) return status;
    l->open.count--;
    l->rank = old.rank;
    l->type = old.type;
    /* the others go on as they were */
    if (l->open.count && pool_make(e, &e->failure) != BERYL_OK && !e->failure.code)
        e->failure.code = BERYL_NO_MEMORY;
    return status;
}

/* ---- opening and closing --------------------------------------------------------------------- */

static void adapter_free(beryl_adapter *a) {
    base_heap *heap = &a->engine->heap;
    format_lora_fini(&a->lora);
    base_heap_give(heap, a->data, a->size + 1);
    base_heap_give(heap, a->halves, a->n_half * sizeof *a->halves);
    base_heap_give(heap, a->rounded, a->n_rounded);
    base_heap_give(heap, a, sizeof *a);
}

static void adapter_drop(beryl_adapter *a) {
    engine_lora *l = &a->engine->lora;
    if (--a->users) return;
    for (size_t i = 0; i < l->open.count; i++)
        if (l->open.data[i] == a) l->open.data[i] = l->open.data[--l->open.count];
    adapter_free(a);
}

/* Its parts against the model, and where each is found. */
static beryl_status adapter_check(beryl_adapter *a, beryl_error *error) {
    const gemma4_model *m = &a->engine->model;
    a->parts = base_arena_take(&a->lora.arena, pair_count(a->engine), sizeof *a->parts);
    if (!a->parts) return base_no_memory(error);
    const float first = a->lora.parts[0].factor;
    a->factor = fabsf(first) > 0 ? first : 1;
    for (size_t i = 0; i < a->lora.n_part; i++) {
        const format_lora_part *p = &a->lora.parts[i];
        bool acts;
        beryl_status status = gemma4_lora_check(m, p, &acts, error);
        if (status != BERYL_OK) return status;
        if (!(fabsf(p->factor / a->factor) <= 65504))
            return base_fail(error, BERYL_BAD_FILE, "factors of parts that are too far apart");
        if (acts) a->parts[gemma4_lora_at(m, p->target, p->layer)] = (uint32_t)i + 1;
    }
    a->type = type_of(a);
    return BERYL_OK;
}

beryl_status engine_adapter_files(base_heap *heap, base_arena *arena, const char *path, char **data,
                                  size_t *size, char **config, size_t *config_size,
                                  beryl_error *error) {
    const char *slash = strrchr(path, '/');
    const char *within = base_arena_print(arena, "%s/adapter_config.json", path),
               *beside = base_arena_print(arena, "%.*sadapter_config.json",
                                          slash ? (int)(slash - path + 1) : 0, path);
    const char *file = base_arena_print(arena, "%s/adapter_model.safetensors", path);
    if (!within || !beside || !file) return base_no_memory(error);
    const bool folder = base_file_exists(within);
    if (!folder) file = path;
    beryl_status status = base_file_read(heap, file, SIZE_MAX / 2, data, size, error);
    if (!folder && (!base_file_exists(beside) ||
                    (status == BERYL_OK && *size >= 4 && !memcmp(*data, "GGUF", 4))))
        return status;
    return status == BERYL_OK ? base_file_read(heap, folder ? within : beside, CONFIG_MAX, config,
                                               config_size, error)
                              : status;
}

/* A share of what several threads do. */
typedef struct sharing {
    const beryl_adapter *a;
    const char *from; /* copied to a->data */
    uint32_t number;
} sharing;

static void share_out(const beryl_adapter *a, const char *from, void (*run)(void *sharing)) {
    sharing each[THREADS];
    base_thread *threads[THREADS] = {NULL};
    for (uint32_t i = 0; i < THREADS; i++) {
        each[i] = (sharing){a, from, i};
        if (i && a->size > ALONE_BYTES)
            threads[i] = base_thread_open(&a->engine->heap, run, &each[i]);
    }
    for (uint32_t i = 0; i < THREADS; i++)
        if (!threads[i]) run(&each[i]);
    for (uint32_t i = 0; i < THREADS; i++) base_thread_close(threads[i]);
}

/* New memory is slow to touch first. */
static void copy_share(void *user) {
    const sharing *s = user;
    const size_t each = s->a->size / THREADS + 1, at = s->number * each,
                 end = at + each < s->a->size ? at + each : s->a->size;
    if (at < end) memcpy(s->a->data + at, s->from + at, end - at);
}

static void halve(const beryl_adapter *a, const format_lora_half *half, size_t n) {
    uint16_t *to = a->halves + ((const char *)half->data - a->first) / (ptrdiff_t)sizeof(float);
    for (size_t i = 0; i < n; i++) {
        float value;
        memcpy(&value, half->data + i * sizeof value, sizeof value);
        to[i] = base_f32_to_f16(value);
    }
}

/* Every THREADS-th part. */
static void shorten_share(void *user) {
    const sharing *s = user;
    const beryl_adapter *a = s->a;
    for (size_t i = s->number; i < a->lora.n_part; i += THREADS) {
        const format_lora_part *p = &a->lora.parts[i];
        const bool rounds = a->rounded && a->rounded_at[i] != UINT64_MAX;
        const size_t ranks = (size_t)p->n_expert * p->rank;
        if (a->halves) halve(a, &p->b, ranks * p->out);
        if (a->halves && !rounds) halve(a, &p->a, ranks * p->in);
        for (uint32_t r = 0; rounds && r < p->rank; r++)
            round_row(&p->a, r * p->a.stride[1], p->a.stride[2], p->in,
                      a->rounded + a->rounded_at[i] + r * base_type_row_bytes(TYPE_Q8_0, p->in));
    }
}

/* Where F32 of a file begins and, of how many numbers, ends; false: it has other types, or factors
 * of its own, or gaps that are no numbers. */
static bool floats_of(const beryl_adapter *a, const char **begin, size_t *n) {
    uintptr_t from = UINTPTR_MAX, to = 0, rest = 0;
    for (size_t i = 0; i < a->lora.n_part; i++) {
        const format_lora_part *p = &a->lora.parts[i];
        if (p->factor < a->factor || p->factor > a->factor) return false;
        for (int k = 0; k < 2; k++) {
            const format_lora_half *half = k ? &p->b : &p->a;
            const uintptr_t at = (uintptr_t)half->data;
            const size_t size = (size_t)p->n_expert * p->rank * (k ? p->out : p->in);
            if (half->type != TYPE_F32) return false;
            if (at < from) from = at;
            if (at + size * sizeof(float) > to) to = at + size * sizeof(float);
            rest |= at ^ (uintptr_t)a->lora.parts[0].a.data;
        }
    }
    *begin = (const char *)from;
    *n = (to - from) / sizeof(float);
    return rest % sizeof(float) == 0;
}

/* A GPU that may be fast has halves of F32, which has no value that is too large for them, and
 * rounded rows: each workgroup of a product reads all of A, and matrix units multiply halves. */
static beryl_status shorten(beryl_adapter *a, beryl_error *error) {
    beryl_engine *e = a->engine;
    size_t n;
    if (!may_round(e)) return BERYL_OK;
    a->rounded_at = base_arena_take(&a->lora.arena, a->lora.n_part, sizeof *a->rounded_at);
    if (!a->rounded_at) return base_no_memory(error);
    for (size_t i = 0; i < a->lora.n_part; i++) {
        const format_lora_part *p = &a->lora.parts[i];
        const bool rounds = is_rounded(e, gemma4_lora_at(&e->model, p->target, p->layer), p);
        a->rounded_at[i] = rounds ? a->n_rounded : UINT64_MAX;
        if (rounds) a->n_rounded += (size_t)(p->rank * base_type_row_bytes(TYPE_Q8_0, p->in));
    }
    if (a->n_rounded) a->rounded = base_heap_resize(&e->heap, NULL, 0, a->n_rounded);
    if (floats_of(a, &a->first, &n)) {
        a->halves = base_heap_resize(&e->heap, NULL, 0, n * sizeof *a->halves);
        a->n_half = n;
        a->type = TYPE_F16;
    }
    if ((a->n_rounded && !a->rounded) || (a->n_half && !a->halves)) return base_no_memory(error);
    share_out(a, NULL, shorten_share);
    return BERYL_OK;
}

static beryl_status adapter_read(beryl_adapter *a, const beryl_adapter_options *o,
                                 beryl_error *error) {
    base_heap *heap = &a->engine->heap;
    base_arena arena;
    char *config = NULL;
    size_t config_size = 0;
    beryl_status status = BERYL_OK;
    base_arena_init(&arena, heap);
    if (o->data) {
        a->data =
            o->data_size < SIZE_MAX ? base_heap_resize(heap, NULL, 0, o->data_size + 1) : NULL;
        if (!a->data) status = base_no_memory(error);
        if (a->data) a->size = o->data_size;
        if (a->data) share_out(a, o->data, copy_share);
    } else {
        status = engine_adapter_files(heap, &arena, o->path, &a->data, &a->size, &config,
                                      &config_size, error);
    }
    beryl_error why = {0};
    if (status == BERYL_OK) {
        status = format_lora_read(heap, a->data, a->size, config ? config : o->config,
                                  config ? config_size : o->config_size, &a->lora, &why);
        if (status == BERYL_OK) status = adapter_check(a, &why);
        if (status == BERYL_OK) status = shorten(a, &why);
        if (status != BERYL_OK)
            base_fail_at(error, status, why.at, "'%.120s': %.340s", o->data ? "adapter" : o->path,
                         why.message);
    }
    base_heap_give(heap, config, config_size + 1);
    base_arena_fini(&arena);
    return status;
}

beryl_status beryl_adapter_open(beryl_engine *e, const beryl_adapter_options *options,
                                beryl_adapter **out, beryl_error *error) {
    beryl_adapter_options o = {0};
    if (out) *out = NULL;
    if (!e || !out || !options || options->size < sizeof options->size || options->size > 1 << 16)
        return base_fail(error, BERYL_MISUSE,
                         "beryl_adapter_open needs an engine, options and a place for the adapter");
    memcpy(&o, options, options->size < sizeof o ? options->size : sizeof o);
    if (!e->loaded || e->options.vocabulary_only || !o.path == !o.data)
        return base_fail(error, BERYL_MISUSE,
                         "beryl_adapter_open needs a loaded model, and a path or data");
    if (BUILD_HAS_TRAINING && e->train)
        return base_fail(error, BERYL_MISUSE, "no adapter is opened while the engine trains one");
    beryl_adapter *a = base_heap_take(&e->heap, sizeof *a);
    if (!a) return base_no_memory(error);
    a->engine = e;
    a->users = 1;
    beryl_status status = engine_drain(e, error);
    if (status == BERYL_OK) status = adapter_read(a, &o, error);
    if (status == BERYL_OK) status = pool_take(e, a, error);
    if (status == BERYL_OK) *out = a;
    else adapter_free(a);
    return status;
}

/* What the caches hold was computed under others. */
static void forget(beryl_session *s) {
    s->n_fed = s->highest = s->saved_at = 0;
}

beryl_status engine_adapter_make(beryl_engine *e, format_lora *lora, beryl_adapter **out,
                                 beryl_error *error) {
    beryl_adapter *a = base_heap_take(&e->heap, sizeof *a);
    *out = NULL;
    if (!a) {
        format_lora_fini(lora);
        return base_no_memory(error);
    }
    a->engine = e;
    a->users = 1;
    a->lora = *lora;
    beryl_status status = adapter_check(a, error);
    if (status == BERYL_OK) status = pool_take(e, a, error);
    if (status == BERYL_OK) *out = a;
    else adapter_free(a);
    return status;
}

const format_lora *engine_adapter_lora(const beryl_adapter *a) {
    return &a->lora;
}

static bool has_adapter(const beryl_session *s, const beryl_adapter *a) {
    bool has = false;
    for (size_t i = 0; s && i < s->adapters.count; i++) has |= s->adapters.data[i].adapter == a;
    return has;
}

beryl_status engine_adapter_changed(beryl_adapter *a, beryl_error *error) {
    beryl_engine *e = a->engine;
    for (uint32_t i = 0; i < e->options.sessions; i++)
        if (has_adapter(e->sessions[i], a) && e->sessions[i]->task)
            return base_fail(error, BERYL_MISUSE, "a session that has the adapter has a task");
    for (uint32_t i = 0; i < e->options.sessions; i++)
        if (has_adapter(e->sessions[i], a)) forget(e->sessions[i]);
    a->hash = 0;
    return BERYL_OK;
}

beryl_status engine_adapter_upload(beryl_adapter *a, beryl_error *error) {
    store_upload_again(&a->engine->store, a->engine->lora.mark.tensor);
    return pool_upload(a->engine, error);
}

void beryl_adapter_close(beryl_adapter *a) {
    if (a) adapter_drop(a);
}

void engine_lora_close(beryl_engine *e) {
    if (!BUILD_HAS_ADAPTERS) return;
    pool_drop(e);
    for (size_t i = 0; i < e->lora.open.count; i++) adapter_free(e->lora.open.data[i]);
    base_vec_fini(&e->heap, &e->lora.open);
    base_vec_fini(&e->heap, &e->lora.places);
}

/* ---- of a session ---------------------------------------------------------------------------- */

beryl_status engine_lora_scales(beryl_engine *e, uint32_t slot, beryl_error *error) {
    const engine_lora *l = &e->lora;
    const beryl_session *s = e->sessions[slot];
    if (!BUILD_HAS_ADAPTERS || !l->made) return BERYL_OK;
    const size_t size = l->rank * sizeof(float);
    float *row = base_heap_take(&e->heap, size);
    if (!row) return base_no_memory(error);
    for (size_t i = 0; s && i < s->adapters.count; i++) {
        const beryl_adapter *a = s->adapters.data[i].adapter;
        for (uint32_t k = 0; k < a->lora.rank; k++)
            row[a->rank + k] += s->adapters.data[i].scale * a->factor;
    }
    beryl_status status = BERYL_OK;
    for (uint32_t i = 0; status == BERYL_OK && i < LORA_SHARE_MAX; i++)
        status = store_state_write(&e->store, l->graph.scales, (slot * LORA_SHARE_MAX + i) * size,
                                   row, size, error);
    base_heap_give(&e->heap, row, size);
    return status;
}

static bool same_adapters(const beryl_session *s, beryl_adapter *const *adapters,
                          const float *scales, size_t n) {
    bool same = n == s->adapters.count;
    for (size_t i = 0; same && i < n; i++) {
        const float scale = scales ? scales[i] : 1;
        same = s->adapters.data[i].adapter == adapters[i] &&
               !memcmp(&s->adapters.data[i].scale, &scale, sizeof scale);
    }
    return same;
}

beryl_status beryl_session_adapters(beryl_session *s, beryl_adapter *const *adapters,
                                    const float *scales, size_t n, beryl_error *error) {
    if (!s || (n && !adapters))
        return base_fail(error, BERYL_MISUSE,
                         "beryl_session_adapters needs a session and adapters");
    if (s->task) return base_fail(error, BERYL_MISUSE, "a task is running on this session");
    beryl_engine *e = s->engine;
    for (size_t i = 0; i < n; i++) {
        if (!adapters[i] || adapters[i]->engine != e)
            return base_fail(error, BERYL_MISUSE, "adapter %zu is none, or another engine's", i);
        if (scales && !(fabsf(scales[i]) <= 65504))
            return base_fail(error, BERYL_BAD_INPUT, "adapter %zu: a scale of %g", i,
                             (double)scales[i]);
    }
    if (same_adapters(s, adapters, scales, n)) return BERYL_OK;
    const engine_adapters old = s->adapters;
    engine_adapters new = {0};
    if (!base_vec_reserve(&e->heap, &new, n)) return base_no_memory(error);
    for (size_t i = 0; i < n; i++)
        new.data[new.count++] = (engine_adapted){adapters[i], scales ? scales[i] : 1};
    s->adapters = new;
    beryl_status status = engine_lora_scales(e, s->slot, error);
    if (status != BERYL_OK) {
        s->adapters = old;
        base_vec_fini(&e->heap, &new);
        return status;
    }
    for (size_t i = 0; i < n; i++) adapters[i]->users++;
    s->adapters = old;
    session_adapters_clear(s);
    s->adapters = new;
    forget(s);
    return BERYL_OK;
}

void session_adapters_clear(beryl_session *s) {
    if (!BUILD_HAS_ADAPTERS) return;
    for (size_t i = 0; i < s->adapters.count; i++) adapter_drop(s->adapters.data[i].adapter);
    base_vec_fini(&s->engine->heap, &s->adapters);
}

/* Of the file; of one that has none, of its values. */
static uint64_t hash_of(const beryl_adapter *a) {
    uint64_t hash = base_hash(a->data, a->size, a->lora.n_part);
    for (size_t i = 0; !a->data && i < a->lora.n_part; i++) {
        const format_lora_part *p = &a->lora.parts[i];
        hash = base_hash(p->a.data, (size_t)p->rank * p->in * sizeof(float), hash);
        hash = base_hash(p->b.data, (size_t)p->rank * p->out * sizeof(float), hash);
    }
    return hash;
}

uint64_t session_adapters_hash(const beryl_session *s) {
    uint64_t hash = 0;
    for (size_t i = 0; BUILD_HAS_ADAPTERS && i < s->adapters.count; i++) {
        beryl_adapter *a = s->adapters.data[i].adapter;
        if (!a->hash) a->hash = hash_of(a) | 1;
        const float scale = s->adapters.data[i].scale * a->factor;
        hash = base_hash(&scale, sizeof scale, hash ^ a->hash);
    }
    return hash;
}
