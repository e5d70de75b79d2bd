/* attention_cache.c - what the forms of attention share: see tile/attention.h. */
#include "tile/attention.h"

#include <string.h>

enum {
    BLOCK = 32,
    MERGE_LANES = 64,   /* at least, */
    MERGE_COLUMNS = 16, /* and fours of a head, of a workgroup */
    MERGE_PARTS = 16,
    MERGE_AHEAD = 4,     /* pieces of a lane, so that parts pay; */
    MERGE_AHEAD_MAX = 6, /* that it asks for at a time */
    HALVES_LANES = 128
};

/* An axis of 1 as if there were no gaps. */
static void strides_of(const graph_tensor *cache, uint32_t stride[2]) {
    stride[1] = cache->dim[2].size == 1 ? cache->dim[3].size : cache->stride[2];
    stride[0] = cache->dim[1].size == 1 ? cache->dim[2].size * stride[1] : cache->stride[1];
}

static void shapes_of(const graph *g, attention_task *a) {
    const graph_tensor *q = graph_tensor_at(g, a->q), *cache = graph_tensor_at(g, a->k_cache);
    a->n = q->dim[0].size;
    a->rows = lower_count_of(q->dim[0]);
    a->n_slot = cache->dim[0].size;
    a->n_row = cache->dim[1].size;
    a->n_kv = cache->dim[2].size;
    a->d = cache->dim[3].size;
    a->cache = cache->type;
    a->keys = a->window && a->window < a->n_row ? a->window : a->n_row;
    a->q_offset = q->offset;
    a->plain = graph_tensor_at(g, graph_base_of(g, a->k_cache))->role != ROLE_STORED;
    a->held = lower_count_of(cache->dim[1]);
    a->k_offset = cache->offset;
    a->v_offset = graph_tensor_at(g, a->v_cache)->offset;
    strides_of(cache, a->k_stride);
    strides_of(graph_tensor_at(g, a->v_cache), a->v_stride);
    a->dense = a->k_stride[0] == a->n_kv * a->d && a->v_stride[0] == a->n_kv * a->d &&
               a->k_stride[1] == a->d && a->v_stride[1] == a->d;
}

void attention_task_of(const graph *g, const graph_node *node, attention_task *a) {
    const graph_tensor *q = graph_tensor_at(g, node->in[0]);
    const bool sums = node->op == OP_ATTENTION_SUMS, back = node->op == OP_ATTENTION_BACK;
    *a = (attention_task){.q = node->in[0],
                          .k_cache = node->in[1],
                          .v_cache = node->in[sums ? 1 : 2],
                          .slot = back ? 0 : node->in[3],
                          .pos = back ? 0 : node->in[4],
                          .first = node->n_in > 5u + sums ? node->in[5 + sums] : 0,
                          .out = node->out[0],
                          .scale = node->attr.attention.scale,
                          .window = back ? 0 : node->attr.attention.window,
                          .n_head = q->dim[1].size,
                          .n_split = 1,
                          .q_stride = {q->stride[0], q->stride[1]}};
    shapes_of(g, a);
}

void attention_task_of_fused(const graph *g, const fused_attention *f, attention_task *a) {
    *a = (attention_task){.q = f->q,
                          .k_cache = f->k_cache,
                          .v_cache = f->v_cache,
                          .slot = f->slot,
                          .pos = f->pos,
                          .out = f->out,
                          .raw = true,
                          .w_q = f->w_q,
                          .w_k = f->w_k,
                          .angles = f->angles,
                          .k = f->k,
                          .v = f->v,
                          .partial = f->partial,
                          .stats = f->stats,
                          .eps = f->eps,
                          .scale = f->scale,
                          .window = f->window,
                          .n_head = f->n_head,
                          .n_split = f->n_split,
                          .q_stride = {f->n_head * f->head_dim, f->head_dim}};
    shapes_of(g, a);
    if (f->most && f->most < a->keys) a->keys = f->most;
    a->whole = a->window && a->keys == a->window && !f->most;
}

/* ---- caches ---------------------------------------------------------------------------------- */

bool attention_cache_known(const attention_task *a) {
    return a->cache == TYPE_F32 || a->cache == TYPE_F16 ||
           (a->cache == TYPE_Q8_0 && a->d % BLOCK == 0);
}

bool attention_reads(const attention_task *a, uint32_t q_wide, uint32_t wide) {
    return (a->q_offset | a->q_stride[0] | a->q_stride[1]) % q_wide == 0 &&
           (a->k_offset | a->k_stride[0] | a->k_stride[1]) % wide == 0 &&
           (a->v_offset | a->v_stride[0] | a->v_stride[1]) % wide == 0;
}

static bool is_one_binding(const lowering *l, const attention_task *a, uint32_t bindings) {
    return bindings > l->caps->storage_max && !a->plain &&
           lower_states_fit(l, (const graph_value[]){a->k_cache, a->v_cache}, 2);
}

/* Queries, two caches, slots, positions, results and their stats; norms, angles; key, value. */
uint32_t attention_bindings_most(const attention_task *a) {
    return 7u + (a->first != 0) + 2u * a->raw + (a->k != 0) + (a->k && a->v != a->k);
}

uint32_t attention_bindings(const lowering *l, const attention_task *a) {
    const uint32_t n = attention_bindings_most(a);
    return n - is_one_binding(l, a, n);
}

void attention_caches_bind(attention_cache *keys, attention_cache *values, tile_kernel *k,
                           const attention_task *a, bool halves) {
    const bool as_halves = halves && a->cache == TYPE_F16;
    const ir_type type = a->cache == TYPE_F32 ? IR_F32 : as_halves ? IR_F16 : IR_U32;
    const ir_access access = a->k ? IR_READ_WRITE : IR_READ;
    const uint32_t raw = a->cache == TYPE_F32 ? 8 : a->cache == TYPE_F16 ? 4 : 3;
    const graph_value caches[2] = {a->k_cache, a->v_cache};
    const bool one = is_one_binding(k->l, a, attention_bindings_most(a));
    uint32_t word[2];
    ir_memory both = {0};
    if (one) both = tile_stored(k, "caches", caches, 2, type, access, word);
    for (uint32_t i = 0; i < 2; i++) {
        attention_cache *c = i ? values : keys;
        *c = (attention_cache){.k = k,
                               .type = a->cache,
                               .halves = as_halves,
                               .raw = raw,
                               .start = IR_NO_ID,
                               .n_kv = a->n_kv,
                               .d = a->d};
        memcpy(c->stride, i ? a->v_stride : a->k_stride, sizeof c->stride);
        c->at = one ? both : tile_bind(k, i ? "v_cache" : "k_cache", caches[i], type, access);
        if (one) c->start = tile_u32(k, i ? "v_start" : "k_start", word[i] * (as_halves ? 2 : 1));
        const uint32_t offset = graph_tensor_at(k->l->g, caches[i])->offset;
        c->offset = offset ? tile_u32(k, i ? "v_offset" : "k_offset", offset) : IR_NO_ID;
        c->plane = (uint32_t)((uint64_t)a->n_slot * a->n_row * a->n_kv * a->d / 4);
    }
}

/* Index i of a cache in its binding. */
static ir_id bound_at(const attention_cache *c, ir_id i) {
    return c->start == IR_NO_ID ? i : ir_add(c->k->b, i, c->start);
}

ir_id attention_cache_at(const attention_cache *c, ir_id base, ir_id place, ir_id kv,
                         uint32_t unit) {
    ir_builder *b = c->k->b;
    ir_id row = ir_add(b, base, place);
    if (c->stride[1] == c->d && c->stride[0] == c->n_kv * c->d)
        return tile_mul(b, ir_add(b, tile_mul(b, row, c->n_kv), kv), c->d / unit);
    return ir_add(b, tile_mul(b, row, c->stride[0] / unit), tile_mul(b, kv, c->stride[1] / unit));
}

static void take_apart(ir_builder *b, ir_id vector, uint32_t n, ir_id *parts) {
    for (uint32_t i = 0; i < n; i++) parts[i] = ir_extract(b, vector, i);
}

static void load_raw(const attention_cache *c, ir_id eight, ir_id *raw) {
    ir_builder *b = c->k->b;
    if (c->type == TYPE_F32) {
        ir_id element = tile_mul(b, eight, ATTENTION_EIGHT);
        if (c->offset != IR_NO_ID) element = ir_add(b, element, c->offset);
        take_apart(b, ir_load(b, c->at, bound_at(c, element), 4), 4, raw);
        take_apart(b, ir_load(b, c->at, bound_at(c, tile_add(b, element, 4)), 4), 4, raw + 4);
    } else if (c->type == TYPE_F16) {
        ir_id word = tile_mul(b, eight, 4);
        if (c->offset != IR_NO_ID) word = ir_add(b, word, tile_shr(b, c->offset, 1));
        take_apart(b, ir_load(b, c->at, bound_at(c, word), 4), 4, raw);
    } else {
        take_apart(b, ir_load(b, c->at, bound_at(c, tile_mul(b, eight, 2)), 2), 2, raw);
        ir_id scales =
            ir_load(b, c->at, bound_at(c, tile_add(b, tile_shr(b, eight, 3), c->plane)), 1);
        raw[2] = ir_shr(b, scales, tile_and(b, tile_shl(b, eight, 2), 16));
    }
}

static ir_id values_of(const attention_cache *c, const ir_id *raw) {
    ir_builder *b = c->k->b;
    if (c->type == TYPE_F32) return ir_compose(b, raw, 8);
    if (c->type == TYPE_F16)
        return ir_cast(b, IR_F32, ir_bitcast(b, IR_F16, 8, ir_compose(b, raw, 4)));
    ir_id scale = ir_cast(b, IR_F32, ir_bitcast(b, IR_F16, 1, ir_cast(b, IR_U16, raw[2])));
    ir_id q =
        ir_cast(b, IR_F32, ir_cast(b, IR_I32, ir_bitcast(b, IR_I8, 8, ir_compose(b, raw, 2))));
    return ir_mul(b, q, ir_splat(b, scale, 8));
}

void attention_cache_fetch(const attention_cache *c, ir_id eight, ir_memory to, uint32_t place) {
    ir_id raw[ATTENTION_RAW_MAX];
    load_raw(c, eight, raw);
    for (uint32_t w = 0; w < c->raw; w++)
        ir_store(c->k->b, to, ir_u32(c->k->b, place * c->raw + w), raw[w]);
}

ir_id attention_cache_fetched(const attention_cache *c, ir_memory from, uint32_t place) {
    ir_id raw[ATTENTION_RAW_MAX];
    for (uint32_t w = 0; w < c->raw; w++)
        raw[w] = ir_load(c->k->b, from, ir_u32(c->k->b, place * c->raw + w), 1);
    return values_of(c, raw);
}

ir_id attention_cache_bound(const attention_cache *c, ir_id element) {
    if (c->offset != IR_NO_ID) element = ir_add(c->k->b, element, c->offset);
    return bound_at(c, element);
}

ir_id attention_cache_read(const attention_cache *c, ir_id element, uint32_t width) {
    ir_builder *b = c->k->b;
    if (c->offset != IR_NO_ID) element = ir_add(b, element, c->offset);
    if (c->type != TYPE_Q8_0)
        return ir_cast(b, IR_F32, ir_load(b, c->at, bound_at(c, element), width));
    ir_id scales =
        ir_load(b, c->at, bound_at(c, tile_add(b, tile_shr(b, element, 6), c->plane)), 1);
    ir_id bits = ir_cast(b, IR_U16, ir_shr(b, scales, tile_and(b, tile_shr(b, element, 1), 16)));
    ir_id q = ir_bitcast(b, IR_I8, width,
                         ir_load(b, c->at, bound_at(c, tile_shr(b, element, 2)), width / 4));
    return ir_mul(b, ir_cast(b, IR_F32, ir_cast(b, IR_I32, q)),
                  ir_splat(b, ir_cast(b, IR_F32, ir_bitcast(b, IR_F16, 1, bits)), width));
}

uint32_t attention_cache_unit(const attention_cache *c, uint32_t wanted) {
    /* two scales are a word */
    if (c->type != TYPE_F16) return c->type == TYPE_F32 ? 4 : 2 * BLOCK;
    return wanted < 4 ? 2 : wanted < 8 ? 4 : 8;
}

typedef struct quantum {         /* of a block of Q8_0 */
    ir_id bits, divisor, factor; /* bits of f16 */
} quantum;

static quantum quantum_of(ir_builder *b, ir_id most) {
    ir_id d = ir_cast(b, IR_F16, ir_div(b, most, ir_f32(b, 127))), scale = ir_cast(b, IR_F32, d),
          some = ir_gt(b, scale, ir_f32(b, 0));
    return (quantum){ir_cast(b, IR_U32, ir_bitcast(b, IR_U16, 1, d)),
                     ir_select(b, some, scale, ir_f32(b, 1)),
                     ir_select(b, some, ir_f32(b, 1), ir_f32(b, 0))};
}

/* Words of fours or eights. */
static ir_id quantised(ir_builder *b, const quantum *by, ir_id x, uint8_t width) {
    x = ir_mul(b, ir_round(b, ir_div(b, x, ir_splat(b, by->divisor, width))),
               ir_splat(b, by->factor, width));
    x = ir_max(b, ir_min(b, x, ir_number(b, IR_F32, width, 127)),
               ir_number(b, IR_F32, width, -127));
    return ir_bitcast(b, IR_U32, width / 4, ir_cast(b, IR_I8, ir_cast(b, IR_I32, x)));
}

void attention_cache_round(ir_builder *b, ir_id x, ir_id out[2]) {
    ir_id most = tile_max_vector(b, ir_abs(b, x));
    for (uint32_t mask = 1; mask < BLOCK / ATTENTION_EIGHT; mask *= 2)
        most = ir_max(b, most, ir_subgroup_shuffle_xor(b, most, mask));
    const quantum by = quantum_of(b, most);
    ir_id other = ir_subgroup_shuffle_xor(b, by.bits, BLOCK / ATTENTION_EIGHT);
    out[0] = quantised(b, &by, x, ATTENTION_EIGHT);
    out[1] = ir_or(b, by.bits, tile_shl(b, other, 16));
}

void attention_cache_put(const attention_cache *c, ir_id to, const ir_id x[2]) {
    ir_builder *b = c->k->b;
    ir_store(b, c->at, bound_at(c, tile_shr(b, to, 2)), x[0]);
    ir_if(b, ir_eq(b, tile_and(b, to, 2 * BLOCK - 1), ir_u32(b, 0)));
    ir_store(b, c->at, bound_at(c, tile_add(b, tile_shr(b, to, 6), c->plane)), x[1]);
    ir_end(b);
}

/* A block's scale, as bits of f16; its words. */
static ir_id store_block(const attention_cache *c, ir_memory line, ir_id from, ir_id to) {
    ir_builder *b = c->k->b;
    ir_id most = IR_NO_ID, fours[BLOCK / 4];
    for (uint32_t i = 0; i < BLOCK / 4; i++) {
        fours[i] = ir_load(b, line, tile_add(b, from, i * 4), 4);
        most = i ? ir_max(b, most, ir_abs(b, fours[i])) : ir_abs(b, fours[i]);
    }
    const quantum by = quantum_of(b, tile_max_vector(b, most));
    ir_id words[4];
    for (uint32_t i = 0; i < BLOCK / 4; i++) {
        words[i % 4] = quantised(b, &by, fours[i], 4);
        if (i % 4 == 3)
            ir_store(b, c->at, bound_at(c, tile_add(b, tile_shr(b, to, 2), i - 3)),
                     ir_compose(b, words, 4));
    }
    return by.bits;
}

void attention_cache_store(const attention_cache *c, ir_memory line, ir_id from, ir_id to,
                           uint32_t unit) {
    ir_builder *b = c->k->b;
    if (c->type == TYPE_F32) {
        ir_store(b, c->at, bound_at(c, to), ir_load(b, line, from, 4));
    } else if (c->type == TYPE_F16) {
        ir_id x = ir_load(b, line, from, unit < 4 ? unit : 4);
        if (unit == 8)
            x = ir_compose(b, (ir_id[]){x, ir_load(b, line, tile_add(b, from, 4), 4)}, 2);
        x = ir_cast(b, IR_F16, x);
        ir_store(b, c->at, bound_at(c, c->halves ? to : tile_shr(b, to, 1)),
                 c->halves ? x : ir_bitcast(b, IR_U32, (uint8_t)(unit / 2), x));
    } else {
        ir_id low = store_block(c, line, from, to),
              high = store_block(c, line, tile_add(b, from, BLOCK), tile_add(b, to, BLOCK));
        ir_store(b, c->at, bound_at(c, tile_add(b, tile_shr(b, to, 6), c->plane)),
                 ir_or(b, low, tile_shl(b, high, 16)));
    }
}

/* ---- keys and values of the run, as halves --------------------------------------------------- */

uint64_t attention_halves(const attention_task *a) {
    return (uint64_t)a->n_slot * a->n_row * a->n_kv * a->d;
}

static ir_memory halves_bind(tile_kernel *k, const attention_task *a, ir_access access) {
    return tile_scratch(k, "halves", ATTENTION_WORK, attention_halves(a) * 4, IR_F16, access);
}

/* Scratch [2, slot, row, kv head, d]: an eight a lane. */
beryl_status attention_halve(lowering *l, const attention_task *a) {
    tile_kernel kernel, *k = &kernel;
    attention_cache caches[2];
    const uint32_t eights = a->d / ATTENTION_EIGHT, line = a->n_kv * eights;
    const lower_count rows = a->n_slot == 1 ? a->held : (lower_count){a->n_slot * a->n_row, 0};
    ir_builder *b = tile_begin(k, l, "attention_halves", HALVES_LANES);
    attention_caches_bind(&caches[0], &caches[1], k, a, true);
    ir_memory out = halves_bind(k, a, IR_READ_WRITE);
    ir_id n = tile_count(k, "rows", rows), lane = tile_lane(k), row = tile_div(b, lane, line),
          rest = tile_rem(b, lane, line), kv = tile_div(b, rest, eights),
          eight = tile_rem(b, rest, eights);
    ir_if(b, ir_lt(b, row, n));
    for (uint32_t i = 0; i < 2; i++) {
        ir_id raw[ATTENTION_RAW_MAX];
        ir_id from = attention_cache_at(&caches[i], ir_u32(b, 0), row, kv, ATTENTION_EIGHT);
        load_raw(&caches[i], ir_add(b, from, eight), raw);
        ir_store(b, out,
                 tile_add(b, tile_mul(b, lane, ATTENTION_EIGHT), i * (uint32_t)attention_halves(a)),
                 ir_cast(b, IR_F16, values_of(&caches[i], raw)));
    }
    ir_end(b);
    return tile_end(k, lower_count_times(rows, line), HALVES_LANES);
}

void attention_halves_bind(attention_cache *keys, attention_cache *values, tile_kernel *k,
                           const attention_task *a) {
    *keys = (attention_cache){.k = k,
                              .type = TYPE_F16,
                              .at = halves_bind(k, a, IR_READ),
                              .halves = true,
                              .offset = IR_NO_ID,
                              .start = IR_NO_ID,
                              .stride = {a->n_kv * a->d, a->d},
                              .n_kv = a->n_kv,
                              .d = a->d};
    *values = *keys;
    values->start = tile_u32(k, "v_start", (uint32_t)attention_halves(a));
}

/* ---- the keys of a row ----------------------------------------------------------------------- */

void attention_places_bind(attention_places *p, tile_kernel *k, const attention_task *a) {
    p->slot = tile_read(k, "slot", a->slot);
    p->pos = tile_read(k, "pos", a->pos);
    tile_expect(k, a->n > 1 ? 0 : a->keys / 2, a->n > 1);
    p->slot_offset = tile_u32(k, "slot_offset", graph_tensor_at(k->l->g, a->slot)->offset);
    p->pos_offset = tile_u32(k, "pos_offset", graph_tensor_at(k->l->g, a->pos)->offset);
    p->most = tile_u32(k, "keys", a->keys);
    if (a->plain) p->held = tile_count(k, "held", a->held);
    if (!a->first) return;
    p->first = tile_read(k, "first", a->first);
    p->first_offset = tile_u32(k, "first_offset", graph_tensor_at(k->l->g, a->first)->offset);
}

void attention_keys_of(const attention_places *p, ir_builder *b, const attention_task *a, ir_id row,
                       attention_keys *keys) {
    ir_id slot = ir_cast(b, IR_U32, ir_load(b, p->slot, ir_add(b, p->slot_offset, row), 1)),
          none = ir_u32(b, 0);
    keys->last = ir_cast(b, IR_U32, ir_load(b, p->pos, ir_add(b, p->pos_offset, row), 1));
    keys->is =
        ir_and(b, ir_lt(b, slot, ir_u32(b, a->n_slot)), ir_le(b, keys->last, ir_u32(b, INT32_MAX)));
    ir_id seen = ir_select(b, keys->is, tile_add(b, keys->last, 1), none);
    keys->first = ir_sub(b, seen, ir_min(b, seen, p->most));
    keys->end = a->k ? ir_select(b, keys->is, keys->last, none) : seen;
    keys->base = tile_mul(b, ir_min(b, slot, ir_u32(b, a->n_slot - 1)), a->n_row);
    if (a->plain) {
        if (!a->window) keys->first = none;
        keys->end = ir_min(b, seen, p->held);
    }
    if (a->first) {
        ir_id first = ir_load(b, p->first, ir_add(b, p->first_offset, row), 1);
        first = ir_cast(b, IR_U32, ir_max(b, first, ir_i32(b, 0)));
        keys->first = ir_max(b, keys->first, first);
    }
    if (a->plain || a->first) keys->first = ir_min(b, keys->first, keys->end);
}

ir_id attention_inverse(ir_builder *b, ir_id total) {
    return ir_div(b, ir_f32(b, 1), ir_max(b, total, ir_f32(b, FUSED_TOTAL_MIN)));
}

/* ---- results --------------------------------------------------------------------------------- */

static ir_memory pieces_bind(tile_kernel *k, const attention_task *a, bool stats, const char *name,
                             ir_access access) {
    const graph_value v = stats ? a->stats : a->partial;
    const uint64_t bytes = (uint64_t)a->n * a->n_head * a->n_split * (stats ? 2 : a->d) * 4;
    if (v) return tile_bind(k, name, v, IR_F32, access);
    return tile_scratch(k, name, stats ? ATTENTION_STATS : ATTENTION_PARTIAL, bytes, IR_F32,
                        access);
}

void attention_result_bind(attention_result *r, tile_kernel *k, const attention_task *a) {
    if (a->n_split == 1) {
        r->out = tile_write(k, "out", a->out);
        return;
    }
    r->out = pieces_bind(k, a, false, "out", IR_READ_WRITE);
    r->stats = pieces_bind(k, a, true, "stats", IR_READ_WRITE);
}

/* ---- the merge ------------------------------------------------------------------------------- */

typedef struct merging { /* a softmax under way: of one four of a head */
    tile_kernel *k;
    uint32_t wide;
    ir_memory most, total, sum;
} merging;

/* Joins n pieces: their (max, sum), their values; both asked for. */
static void merge_some(merging *m, uint32_t n, const ir_id *stats, const ir_id *values) {
    ir_builder *b = m->k->b;
    ir_id zero = ir_u32(b, 0), before = ir_get(b, m->most), now = before;
    for (uint32_t i = 0; i < n; i++) now = ir_max(b, now, ir_extract(b, stats[i], 0));
    ir_id keep = ir_exp(b, ir_sub(b, before, now)), all = ir_mul(b, ir_get(b, m->total), keep);
    ir_id x = ir_mul(b, ir_load(b, m->sum, zero, m->wide), ir_splat(b, keep, m->wide));
    for (uint32_t i = 0; i < n; i++) {
        /* else a piece without keys, and nobody wrote its values */
        ir_id own = ir_extract(b, stats[i], 1), some = ir_gt(b, own, ir_f32(b, 0));
        ir_id weight =
            ir_select(b, some, ir_exp(b, ir_sub(b, ir_extract(b, stats[i], 0), now)), ir_f32(b, 0));
        all = ir_fma(b, own, weight, all);
        ir_id value =
            ir_select(b, ir_splat(b, some, m->wide), values[i], ir_number(b, IR_F32, m->wide, 0));
        x = ir_fma(b, value, ir_splat(b, weight, m->wide), x);
    }
    ir_set(b, m->most, now);
    ir_set(b, m->total, all);
    ir_store(b, m->sum, zero, x);
}

static void merge_nothing(merging *m) {
    ir_builder *b = m->k->b;
    ir_set(b, m->most, ir_f32(b, ATTENTION_LEAST));
    ir_set(b, m->total, ir_f32(b, 0));
    ir_store(b, m->sum, ir_u32(b, 0), ir_number(b, IR_F32, m->wide, 0));
}

/* A workgroup has some fours of a head. `parts` lanes share the pieces of each, and ask for all
 * of theirs that registers hold before they work on one; then the first of them joins the parts
 * in their order. */
beryl_status attention_merge(lowering *l, const attention_task *a) {
    const uint32_t wide = a->d % 4 == 0 ? 4 : 1, units = a->d / wide;
    uint32_t parts = 1;
    while (!tile_serial(l) && parts < MERGE_PARTS && parts * MERGE_AHEAD < a->n_split) parts *= 2;
    const uint32_t columns =
                       parts * MERGE_COLUMNS < MERGE_LANES ? MERGE_LANES / parts : MERGE_COLUMNS,
                   blocks = (units + columns - 1) / columns;
    const uint32_t each = (a->n_split + parts - 1) / parts,
                   rounds = (each + MERGE_AHEAD_MAX - 1) / MERGE_AHEAD_MAX,
                   ahead = (each + rounds - 1) / rounds;
    const lower_count heads = lower_count_times(a->rows, a->n_head),
                      groups = lower_count_times(heads, blocks);
    tile_kernel k;
    ir_builder *b = tile_begin(&k, l, "attention_merge", columns * parts);
    merging m = {.k = &k, .wide = wide};
    ir_memory partial = pieces_bind(&k, a, false, "partial", IR_READ),
              stats = pieces_bind(&k, a, true, "stats", IR_READ);
    ir_memory out = tile_write(&k, "out", a->out), part_sums = {0}, part_stats = {0};
    if (parts > 1) {
        part_sums = ir_workgroup(b, IR_F32, parts * columns * wide);
        part_stats = ir_workgroup(b, IR_F32, parts * 2);
    }
    m.most = ir_register(b, IR_F32, 1), m.total = ir_register(b, IR_F32, 1),
    m.sum = ir_register(b, IR_F32, wide);
    ir_id n = tile_count(&k, "n", heads), group = tile_group(b), local = ir_local(b, 0),
          zero = ir_u32(b, 0);
    ir_id head = tile_div(b, group, blocks), part = tile_div(b, local, columns),
          across = tile_rem(b, local, columns);
    ir_id unit = ir_add(b, tile_mul(b, tile_rem(b, group, blocks), columns), across);
    ir_if(b, ir_lt(b, head, n));
    ir_id column = tile_mul(b, ir_min(b, unit, ir_u32(b, units - 1)), wide),
          first = tile_mul(b, head, a->n_split);
    merge_nothing(&m);
    ir_id ones[MERGE_AHEAD_MAX > MERGE_PARTS ? MERGE_AHEAD_MAX : MERGE_PARTS],
        values[sizeof ones / sizeof *ones];
    ir_id begin = ir_loop(b, part, ir_u32(b, a->n_split), ir_u32(b, ahead * parts));
    for (uint32_t i = 0; i < ahead; i++) { /* beyond the last: that once more, with nothing in it */
        ir_id at = tile_add(b, begin, i * parts), inside = ir_lt(b, at, ir_u32(b, a->n_split));
        ir_id piece = ir_add(b, first, ir_min(b, at, ir_u32(b, a->n_split - 1)));
        ir_id one = ir_load(b, stats, tile_mul(b, piece, 2), 2);
        ones[i] = ir_compose(b,
                             (ir_id[]){ir_extract(b, one, 0),
                                       ir_select(b, inside, ir_extract(b, one, 1), ir_f32(b, 0))},
                             2);
        values[i] = ir_load(b, partial, ir_fma(b, piece, ir_u32(b, a->d), column), wide);
    }
    merge_some(&m, ahead, ones, values);
    ir_end(b);
    ir_id factor, result = IR_NO_ID;
    if (parts > 1) {
        ir_id both[2] = {ir_get(b, m.most), ir_get(b, m.total)};
        ir_store(b, part_sums, tile_mul(b, local, wide), ir_load(b, m.sum, zero, wide));
        ir_if(b, ir_eq(b, across, zero));
        ir_store(b, part_stats, tile_mul(b, part, 2), ir_compose(b, both, 2));
        ir_end(b);
        ir_barrier(b);
    }
    ir_if(b, ir_and(b, ir_eq(b, part, zero), ir_lt(b, unit, ir_u32(b, units))));
    if (parts > 1) {
        merge_nothing(&m);
        for (uint32_t i = 0; i < parts; i++) {
            ones[i] = ir_load(b, part_stats, ir_u32(b, i * 2), 2);
            values[i] =
                ir_load(b, part_sums, tile_mul(b, tile_add(b, across, i * columns), wide), wide);
        }
        merge_some(&m, parts, ones, values);
    }
    factor = ir_splat(b, attention_inverse(b, ir_get(b, m.total)), wide);
    result = ir_mul(b, ir_load(b, m.sum, zero, wide), factor);
    ir_store(b, out, ir_fma(b, head, ir_u32(b, a->d), column), result);
    ir_end(b);
    ir_end(b);
    return tile_end(&k, groups, 1);
}
