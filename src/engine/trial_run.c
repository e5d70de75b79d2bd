/* trial_run.c - a trial's numbers, its two runs and what they differ by. Elements that the
 * reference makes no finite number of (a file may hold anything) are passed over. */
#include "base/error.h"
#include "base/file.h"
#include "engine/trial_inside.h"

#include <math.h>
#include <string.h>

enum { LEFT, RIGHT };                  /* sides: device, reference */
static const double WORST_FACTOR = 16; /* one element may be this much further off than the mean */

/* ---- weights --------------------------------------------------------------------------------- */

static uint64_t row_count(const trial_used *u) {
    uint64_t rows = 1;
    for (uint32_t k = 0; k + 1 < u->rank; k++) rows *= u->dim[k];
    return rows;
}

/* Whole numbers, or what has not F32's size. */
static void make_typed(trial *t, base_type type, float amplitude, uint64_t n, char *to) {
    const uint32_t size = base_type_block_bytes(type);
    for (uint64_t i = 0; i < n; i++) {
        float f;
        trial_fill_floats(&t->random, &f, 1, amplitude);
        const double wide = (double)f;
        const uint16_t half = type == TYPE_BF16 ? base_f32_to_bf16(f) : base_f32_to_f16(f);
        uint64_t whole = base_random_next(&t->random) % (type == TYPE_BOOL ? 2 : 100);
        if (type == TYPE_F64) memcpy(&whole, &wide, sizeof wide);
        if (type == TYPE_F16 || type == TYPE_BF16) whole = half;
        memcpy(to + i * size, &whole, size);
    }
}

/* A weight is as large as a layer's largest: of a drawn one there are a few blocks alone, and which
 * of them stands where is a hash of the place. */
static beryl_status drawn_read(void *user, uint64_t offset, void *to, size_t size) {
    const trial *t = user;
    const trial_used *u = &t->used[offset >> DRAWN_BITS];
    const uint64_t bytes = base_type_block_bytes(u->type),
                   start = offset & ((UINT64_C(1) << DRAWN_BITS) - 1);
    for (uint64_t at = start, n; at < start + size; at += n) {
        base_random place = {(offset - start) + at / bytes};
        n = bytes - at % bytes < start + size - at ? bytes - at % bytes : start + size - at;
        memcpy((char *)to + (at - start),
               u->drawn + base_random_next(&place) % TRIAL_DRAWN * bytes + at % bytes, (size_t)n);
    }
    return BERYL_OK;
}

/* Numbers of a weight's usual size. Vectors scale what they stand beside. */
static bool draw(trial *t, trial_used *u) {
    const uint32_t block = base_type_block(u->type), bytes = base_type_block_bytes(u->type);
    unsigned char **known = block > 1 ? &t->blocks->of[u->type] : NULL;
    u->drawn = known && *known
                   ? *known
                   : base_arena_take(known ? &t->blocks->arena : &t->sides[RIGHT].store.arena,
                                     TRIAL_DRAWN, bytes);
    if (!u->drawn || (known && *known)) return u->drawn != NULL;
    float *f = (float *)(void *)u->drawn;
    if (u->type == TYPE_F32) {
        trial_fill_floats(&t->random, f, TRIAL_DRAWN, u->rank < 2 ? 0.5f : 1.0f / 16);
        for (uint32_t i = 0; u->rank < 2 && i < TRIAL_DRAWN; i++) f[i] += 1;
    } else if (block == 1) {
        make_typed(t, u->type, 1.0f / 16, TRIAL_DRAWN, (char *)u->drawn);
    }
    for (uint32_t i = 0; known && i < TRIAL_DRAWN; i++)
        trial_fill_block(&t->random, u->type, u->drawn + i * bytes, 1.0f / 32, 1.0f / 4);
    if (known) *known = u->drawn;
    return true;
}

/* On both sides. */
static beryl_status make_weights(trial *t, beryl_error *error) {
    graph_store *right = &t->sides[RIGHT].store;
    beryl_status status = BERYL_OK;
    t->made = true;
    t->drawn = (beryl_source){.user = t, .read = drawn_read};
    right->sources = &t->drawn;
    for (uint32_t i = 0; status == BERYL_OK && i < t->n_used; i++) {
        trial_used *u = &t->used[i];
        if (u->is_state) continue;
        if (!draw(t, u)) return base_no_memory(error);
        const uint64_t at = (uint64_t)i << DRAWN_BITS;
        right->tensors.data[u->at].file = 0;
        right->tensors.data[u->at].file_offset = at;
        status = store_write_rows(&t->sides[LEFT].store, u->at, &t->drawn, at, row_count(u), error);
    }
    return status;
}

/* From here to the submit nobody else has a turn if weights are drawn: none is uploaded in between.
 * Others are read as the reference comes to them. */
static beryl_status weights_step(trial *t, beryl_error *error) {
    if (!store_is_uploading(t->desc.store)) return BERYL_OK;
    return trial_is_ready(&t->desc) ? make_weights(t, error) : BERYL_PENDING;
}

/* ---- numbers --------------------------------------------------------------------------------- */

/* Elements of `x` that a run has: the leading axis may be shorter than its bound. */
static uint64_t count_of(const trial *t, const graph_tensor *x) {
    if (!x->rank || !x->dim[0].extent) return graph_element_bound(x);
    return (uint64_t)t->extents[x->dim[0].extent] * x->stride[0];
}

static void make_settings(trial *t, uint32_t *to, uint64_t rows) {
    static const base_sample_settings kinds[] = {
        {.temperature = 0, .top_k = 1},
        {.temperature = 1, .top_p = 0.95f, .top_k = 64},
        {.temperature = 0.7f, .min_p = 0.05f, .top_k = BASE_CANDIDATE_MAX},
        {.temperature = 1.5f, .top_p = 0.5f, .top_k = 40},
    };
    for (uint64_t i = 0; i < rows; i++) {
        base_sample_settings s = kinds[i % 4];
        s.seed[0] = (uint32_t)base_random_next(&t->random);
        s.seed[1] = (uint32_t)base_random_next(&t->random);
        s.counter = (uint32_t)i + 7;
        memcpy(to + i * 8, &s, sizeof s);
    }
}

static void make_numbers(trial *t, const trial_input *in, const graph_tensor *x, void *to) {
    const uint64_t n = count_of(t, x);
    float *f = to;
    int32_t *index = to;
    if (in->kind <= NUMBER_UNIT && x->type != TYPE_F32) {
        make_typed(t, x->type, 1, n, to);
        return;
    }
    switch (in->kind) {
    case NUMBER_PLAIN: trial_fill_floats(&t->random, f, n, 1); break;
    case NUMBER_WIDE: /* with a few that saturate */
        trial_fill_floats(&t->random, f, n, 4);
        for (uint64_t i = 5; i < n; i += 61) f[i] *= 20;
        break;
    case NUMBER_UNIT:
        trial_fill_floats(&t->random, f, n, 0.45f);
        for (uint64_t i = 0; i < n; i++) f[i] += 0.5f;
        break;
    /* every other row below 0, where a buffer that nobody wrote would look best */
    case NUMBER_LOGIT:
        trial_fill_floats(&t->random, f, n, 12);
        for (uint64_t i = 0; x->rank && i < n; i++)
            f[i] -= (i / x->stride[0] % 2 ? 0.0f : 15.0f) +
                    (i % x->stride[0] < in->limit ? 0.0f : 100.0f);
        break;
    /* neighbours differ, so that rows are not set twice where there are enough */
    case NUMBER_INDEX: {
        const uint64_t start = base_random_next(&t->random) % in->limit;
        for (uint64_t i = 0; i < n; i++)
            index[i] = (int32_t)((start + i * (in->limit > 7 ? 5 : 1)) % in->limit);
        break;
    }
    case NUMBER_SLOT:
        for (uint64_t i = 0; i < n; i++) index[i] = t->desc.decode ? (int32_t)i : (int32_t)t->slot;
        break;
    case NUMBER_POS:
        for (uint64_t i = 0; i < n; i++)
            index[i] = (int32_t)(t->first + (t->desc.decode ? 0 : (uint32_t)i));
        break;
    case NUMBER_SETTINGS: make_settings(t, to, n / 8); break;
    }
}

/* A plan's bound may be a hundred times as many rows as the run has, so only the reference's
 * inputs have memory here. */
static beryl_status set_inputs(trial *t, beryl_error *error) {
    beryl_status status = BERYL_OK;
    for (uint32_t i = 0; status == BERYL_OK && i < t->n_input; i++) {
        const trial_input *in = &t->inputs[i];
        const graph_tensor *x = graph_tensor_at(t->desc.g, in->v);
        void *right = graph_exec_input(t->sides[RIGHT].exec, in->v);
        device_buffer left;
        uint64_t at;
        if (!right) continue;
        make_numbers(t, in, x, right);
        const size_t bytes = (size_t)count_of(t, x) * base_type_block_bytes(x->type);
        if (graph_exec_place(t->sides[LEFT].exec, in->v, &left, &at))
            status = device_write(t->e->device, left, at, right, (bytes + 3) / 4 * 4, error);
    }
    return status;
}

/* States other than caches; caches begin empty or are filled. */
static beryl_status set_states(trial *t, beryl_error *error) {
    beryl_status status = BERYL_OK;
    for (uint32_t i = 0; status == BERYL_OK && i < t->n_used; i++) {
        const trial_used *u = &t->used[i];
        if (!u->is_state || u->is_cache || (u->type != TYPE_F32 && u->type != TYPE_I32)) continue;
        uint64_t bytes = store_state_bytes(&t->sides[RIGHT].store, u->at);
        uint32_t *words = t->sides[RIGHT].store.tensors.data[u->at].host;
        for (uint64_t k = 0; k < bytes / 4; k++)
            words[k] = (uint32_t)(base_random_next(&t->random) % 997);
        if (u->type == TYPE_F32)
            trial_fill_floats(&t->random, (float *)(void *)words, bytes / 4, 1);
        for (uint64_t at = 0; status == BERYL_OK && at < bytes; at += STORE_READ_MAX) {
            const size_t size = bytes - at < STORE_READ_MAX ? (size_t)(bytes - at) : STORE_READ_MAX;
            status = store_state_write(&t->sides[LEFT].store, u->at, at, (char *)words + at, size,
                                       error);
        }
    }
    return status;
}

/* One more run of the fill graph. */
static beryl_status fill_step(trial *t, beryl_error *error) {
    const uint32_t left = t->fill_total - t->fill_at, n = left < FILL_ROWS ? left : FILL_ROWS;
    const uint32_t each = t->desc.decode ? t->n : 1; /* slots side by side */
    int32_t *slot = graph_exec_input(t->fill_exec, t->fill_slot),
            *pos = graph_exec_input(t->fill_exec, t->fill_pos);
    for (uint32_t i = 0; i < n; i++) {
        slot[i] = (int32_t)(t->desc.decode ? (t->fill_at + i) % each : t->slot);
        pos[i] = (int32_t)(t->fill_from + (t->fill_at + i) / each);
    }
    for (int i = 0; i < 2 && t->fill_x[i]; i++)
        trial_fill_floats(&t->random, graph_exec_input(t->fill_exec, t->fill_x[i]),
                          (uint64_t)n * graph_tensor_at(t->fill, t->fill_x[i])->stride[0], 1);
    const uint32_t extents[2] = {0, n};
    device_ticket ticket;
    t->fill_at += n;
    return graph_exec_submit(t->fill_exec, extents, NULL, 0, &ticket, error);
}

/* ---- comparing ------------------------------------------------------------------------------- */

typedef struct sums {
    double difference, size, worst;
    uint64_t n;
} sums;

static void sums_add(sums *s, double got, double want) {
    if (!isfinite(want)) return;
    const double d = fabs(got - want);
    s->difference += d * d;
    s->size += want * want;
    s->n++;
    if (!(d <= s->worst)) s->worst = d; /* NaN stays: nothing is greater */
}

static double sums_error(const sums *s) {
    if (!s->n || s->worst == 0) return 0;
    const double size = sqrt(s->size / (double)s->n);
    if (!(size > 0)) return INFINITY;
    const double mean = sqrt(s->difference / (double)s->n) / size,
                 worst = s->worst / size / WORST_FACTOR;
    if (isnan(mean) || isnan(worst)) return INFINITY;
    return mean > worst ? mean : worst;
}

static void note(trial *t, double error) {
    if (!(error <= t->error)) t->error = error;
}

/* Where element `index` of `x` lies in `whole`, which may have longer rows. */
static uint64_t place_in(const graph_tensor *whole, const graph_tensor *x, uint64_t index) {
    uint64_t at = 0;
    for (uint32_t i = x->rank; i-- > 1;) {
        at += index % x->dim[i].size * whole->stride[i];
        index /= x->dim[i].size;
    }
    return x->rank ? at + index * whole->stride[0] : 0;
}

static beryl_status compare_outputs(trial *t, beryl_error *error) {
    for (uint32_t k = 0; k < t->n_output; k++) {
        const graph_tensor *whole = graph_tensor_at(t->sides[LEFT].g, t->outputs[k]),
                           *x = graph_tensor_at(t->sides[RIGHT].g, t->outputs[k]);
        const void *got, *want;
        beryl_status status =
            graph_exec_fetched(t->sides[LEFT].exec, t->sides[LEFT].ticket, k, &got, error);
        if (status == BERYL_OK)
            status =
                graph_exec_fetched(t->sides[RIGHT].exec, t->sides[RIGHT].ticket, k, &want, error);
        if (status != BERYL_OK) return status;
        const uint64_t count = count_of(t, x);
        const bool is_float = x->type == TYPE_F32 || x->type == TYPE_F16 || x->type == TYPE_BF16;
        sums s = {0};
        uint64_t wrong = 0;
        for (uint64_t i = 0; i < count; i++) {
            const uint64_t at = place_in(whole, x, i);
            const uint32_t size = base_type_block_bytes(x->type);
            const char *a = (const char *)got + at * size, *b = (const char *)want + i * size;
            float numbers[2] = {0};
            if (is_float) {
                base_dequantise(x->type, a, &numbers[0], 1);
                base_dequantise(x->type, b, &numbers[1], 1);
                sums_add(&s, (double)numbers[0], (double)numbers[1]);
            } else {
                wrong += memcmp(a, b, size) != 0;
            }
        }
        note(t, is_float ? sums_error(&s) : (double)wrong / (double)count);
    }
    return BERYL_OK;
}

/* ---- states ---------------------------------------------------------------------------------- */

static void piece_add(trial *t, trial_piece piece) {
    if (t->n_piece < PIECE_MAX && piece.size) t->pieces[t->n_piece++] = piece;
}

/* Rows of a slot of a cache from position `at` on, as they lie on a device. */
static void cache_pieces(trial *t, uint32_t index, uint64_t slot, uint32_t at, uint32_t n_row) {
    const trial_used *u = &t->used[index];
    at %= u->dim[1];
    const uint32_t left = u->dim[1] - at, whole = n_row < left ? n_row : left;
    if (n_row > whole) cache_pieces(t, index, slot, 0, n_row - whole);
    const uint64_t heads = u->dim[2], d = u->dim[3], all = (uint64_t)u->dim[0] * u->dim[1] * heads,
                   there = (slot * u->dim[1] + at) * heads, here = (slot * u->rows + at) * heads,
                   n = whole * heads;
    if (u->type != TYPE_Q8_0) {
        const uint64_t bytes = base_type_row_bytes(u->type, d);
        piece_add(t, (trial_piece){index, false, there * bytes, n * bytes, here, n});
        return;
    }
    piece_add(t, (trial_piece){index, false, there * d, n * d, here, n});
    piece_add(t, (trial_piece){index, true, all * d + there * d / 16, n * d / 16, here, n});
}

/* Where the reference side has the bytes of a piece, if it has them as they are. */
static const unsigned char *piece_host(const trial *t, const trial_piece *p) {
    const trial_used *u = &t->used[p->used];
    const unsigned char *host = t->sides[RIGHT].store.tensors.data[u->at].host;
    return host + (u->is_cache ? p->first * base_type_row_bytes(u->type, u->dim[3]) : 0);
}

static void list_pieces(trial *t) {
    for (uint32_t i = 0; i < t->n_used; i++) {
        const trial_used *u = &t->used[i];
        if (!u->written) continue;
        if (!u->is_cache) {
            const uint64_t bytes = store_state_bytes(&t->sides[RIGHT].store, u->at);
            piece_add(t, (trial_piece){i, false, 0, bytes, 0, 0});
            continue;
        }
        if (!t->desc.decode) cache_pieces(t, i, t->slot, t->first, t->n);
        for (uint32_t k = 0; t->desc.decode && k < t->n; k++) cache_pieces(t, i, k, t->first, 1);
    }
}

/* Writes a piece of the reference side's cache to the device, with whole words around it. */
static beryl_status piece_write(trial *t, const trial_piece *p, beryl_error *error) {
    const unsigned char *host = piece_host(t, p);
    const bool q8 = t->used[p->used].type == TYPE_Q8_0;
    const uint64_t end = (p->offset + p->size + 3) / 4 * 4;
    unsigned char room[16 << 10];
    beryl_status status = BERYL_OK;
    for (uint64_t at = p->offset / 4 * 4; status == BERYL_OK && at < end;) {
        const size_t n = end - at < sizeof room ? (size_t)(end - at) : sizeof room;
        for (size_t i = 0; i < n; i++) {
            const uint64_t byte = at + i - p->offset;
            room[i] = byte >= p->size ? 0
                      : !q8           ? host[byte]
                      : p->scales     ? host[byte / 2 * 34 + byte % 2]
                                      : host[byte / 32 * 34 + 2 + byte % 32];
        }
        status = store_state_write(&t->sides[LEFT].store, t->used[p->used].at, at, room, n, error);
        at += n;
    }
    return status;
}

/* Cache rows that attention will see, as the reference side has them. */
static beryl_status fill_write(trial *t, beryl_error *error) {
    beryl_status status = BERYL_OK;
    for (uint32_t i = 0; i < t->n_used && t->fill_total; i++) {
        const trial_used *u = &t->used[i];
        if (!u->is_cache) continue;
        const uint32_t slots = t->desc.decode ? t->n : 1, all = t->fill_total / slots,
                       n = all < u->dim[1] ? all : u->dim[1];
        for (uint32_t k = 0; k < slots; k++)
            cache_pieces(t, i, t->desc.decode ? k : t->slot, t->fill_from, n);
    }
    for (uint32_t i = 0; status == BERYL_OK && i < t->n_piece; i++)
        status = piece_write(t, &t->pieces[i], error);
    t->n_piece = 0;
    return status;
}

static void compare_q8(const trial_used *u, const trial_piece *p, const unsigned char *host,
                       const unsigned char *got, sums *s) {
    const uint64_t blocks = p->n * u->dim[3] / 32;
    for (uint64_t b = 0; b < blocks; b++) {
        uint16_t bits, other;
        memcpy(&bits, host + b * 34, 2);
        const double d = (double)base_f16_to_f32(bits);
        if (p->scales) {
            memcpy(&other, got + b * 2, 2);
            sums_add(s, (double)base_f16_to_f32(other), d);
        }
        for (uint32_t i = 0; !p->scales && i < 32; i++)
            sums_add(s, (double)(signed char)got[b * 32 + i] * d,
                     (double)(signed char)host[b * 34 + 2 + i] * d);
    }
}

static void compare_piece(trial *t, const trial_piece *p, const unsigned char *got) {
    const trial_used *u = &t->used[p->used];
    const unsigned char *host = piece_host(t, p);
    sums s = {0};
    if (u->type == TYPE_Q8_0) {
        compare_q8(u, p, host, got, &s);
        note(t, sums_error(&s));
        return;
    }
    uint64_t wrong = 0;
    const uint32_t size = base_type_block_bytes(u->type);
    const bool is_float = u->type == TYPE_F32 || u->type == TYPE_F16;
    for (uint64_t at = 0; at + size <= p->size; at += size) {
        float x, y;
        wrong += memcmp(got + at, host + at, size) != 0;
        if (!is_float) continue;
        base_dequantise(u->type, got + at, &x, 1);
        base_dequantise(u->type, host + at, &y, 1);
        sums_add(&s, (double)x, (double)y);
    }
    note(t, is_float ? sums_error(&s) : (double)wrong * size / (double)p->size);
}

/* The next piece: read with whole words around it. */
static beryl_status states_step(trial *t, beryl_error *error) {
    while (t->at_piece < t->n_piece) {
        const trial_piece *p = &t->pieces[t->at_piece];
        graph_store *store = &t->sides[LEFT].store;
        const uint64_t from = p->offset / 4 * 4, to = (p->offset + p->size + 3) / 4 * 4;
        beryl_status status = BERYL_OK;
        if (!t->piece_ticket)
            status = store_state_read(store, t->used[p->used].at, from, (size_t)(to - from),
                                      &t->piece_ticket, error);
        if (status != BERYL_OK) return status;
        t->sides[LEFT].ticket = t->piece_ticket;
        const void *data;
        status =
            store_state_read_step(store, t->used[p->used].at, from, t->piece_ticket, &data, error);
        if (status != BERYL_OK) return status;
        compare_piece(t, p, (const unsigned char *)data + (p->offset - from));
        device_fetch_drop(t->e->device, t->piece_ticket);
        t->piece_ticket = 0;
        t->at_piece++;
    }
    return BERYL_OK;
}

/* ---- steps ----------------------------------------------------------------------------------- */

static beryl_status submit(trial *t, trial_side *s, beryl_error *error) {
    return graph_exec_submit(s->exec, t->extents, t->outputs, t->n_output, &s->ticket, error);
}

static beryl_status stage_run(trial *t, beryl_error *error) {
    trial_side *l = &t->sides[LEFT];
    beryl_status status = BERYL_OK;
    device_ticket done;
    switch (t->stage) {
    case TRIAL_READ:
        status = weights_step(t, error);
        return status == BERYL_OK ? set_states(t, error) : status;
    case TRIAL_COMPILE: return graph_exec_ready(l->exec, error);
    case TRIAL_FILL:
        while (status == BERYL_OK && t->fill_at < t->fill_total) status = fill_step(t, error);
        if (status == BERYL_OK) status = fill_write(t, error);
        return status == BERYL_OK ? set_inputs(t, error) : status;
    case TRIAL_REFERENCE: return submit(t, &t->sides[RIGHT], error);
    case TRIAL_SUBMIT: return submit(t, l, error);
    case TRIAL_WAIT:
        status = device_poll(t->e->device, &done, error);
        if (status != BERYL_OK) return status;
        if (done < l->ticket) return BERYL_PENDING;
        status = compare_outputs(t, error);
        device_fetch_drop(t->e->device, l->ticket);
        list_pieces(t);
        return status;
    case TRIAL_STATES: return states_step(t, error);
    case TRIAL_DONE: return BERYL_OK;
    }
    return BERYL_OK;
}

beryl_status trial_step(trial *t, trial_result *result, beryl_error *error) {
    device_ticket done;
    while (t->stage != TRIAL_DONE) {
        beryl_status status = stage_run(t, error);
        if (status == BERYL_PENDING && device_poll(t->e->device, &done, error) == BERYL_DEVICE_LOST)
            return BERYL_DEVICE_LOST;
        if (status != BERYL_OK) return status;
        t->stage++;
    }
    base_type cache = TYPE_F32;
    for (uint32_t i = 0; i < t->n_used; i++)
        if (t->used[i].is_cache) cache = t->used[i].type;
    const base_op op = t->desc.g->nodes.data[t->desc.node].op;
    double tolerance = trial_tolerance(op, t->e->options.precision == BERYL_PRECISION_EXACT, cache);
    if (op == OP_FUSED && cache != TYPE_F32) tolerance += trial_tolerance(OP_KV_WRITE, true, cache);
    for (uint32_t i = 0; i < t->n_output; i++) /* another rounding of a tie in a result */
        if (graph_tensor_at(t->desc.g, t->outputs[i])->narrow)
            tolerance += trial_tolerance(OP_KV_WRITE, true, TYPE_F16);
    *result = (trial_result){t->error <= tolerance, t->error, t->made};
    return BERYL_OK;
}
