/* lower_ir_attention_lanes.c - attention of few rows where lanes share a key: a plain node's, or a whole decode step from the
 * products before norms and rotations, to the store of the row's own key and value.
 *
 * A workgroup has a piece of the keys, some query heads of one kv head, and a row. LANES neighbours have a key's elements between
 * them, as eights; such a group keeps queries, sums and an online softmax of its own in registers, so that the groups meet only
 * once, at the end. Several keys a group are under way at a time, and those of the next round are asked for as soon as the
 * registers are free. Keys beyond the last repeat it with weight 0. The row's own key and value, where they come along, are
 * taken from workgroup memory by the first piece, never from the cache: no workgroup reads what its dispatch stores. */
#include "graph/lower_ir_attention.h"
#include "base/error.h"

#define LEAST (-3e38f)

enum {
    KEYS = 4,                   /* of a group, under way */
    LANES_MAX = 32,
    LANES_TREE = 8,             /* without subgroups */
    EIGHTS_MAX = 4,             /* of a head, a lane: registers */
    LANES_TREE_MAX = 32,
    GROUPS_MAX = 32,
    GROUPS_NEAR = 8,
    GROUPS_FAR = 4,
    HEADS_NEAR = 4,
    HEADS_FAR = 2,
    PIECE_LEAST = 32,           /* keys */
    MERGED_LEAST = 4,           /* pieces that the next product merges */
    MERGED_BYTES = 32 << 10,    /* of partial sums for it; twice as many of whole windows */
    NEAR_BYTES = 256 << 10,     /* of halves of keys and values, a piece: more takes longer than a merge of its own */
    PIECES_MAX = 128,
    JOIN_BYTES = 24 << 10,
    RAW_MAX = 8
};

typedef struct form {
    uint32_t lanes, groups, heads, eights, n_split, join, piece; /* eights: of a head, a lane; join: heads at a time; piece: least keys */
    bool subgroups;
} form;

static uint32_t at_least(uint32_t a, uint32_t b) {
    return a > b ? a : b;
}

static uint32_t at_most(uint32_t a, uint32_t b) {
    return a < b ? a : b;
}

static uint32_t round_up(uint32_t n, uint32_t by) {
    return (n + by - 1) / by;
}

static uint32_t divisor_of(uint32_t n, uint32_t most) {
    uint32_t d = at_most(n, most);
    while (n % d) d--;
    return d;
}

static uint32_t floats_of(uint32_t d, const form *f) { /* lines, then what groups join */
    return at_least((f->heads + 2) * d, f->groups * f->join * d);
}

static uint32_t bytes_of(uint32_t d, const form *f) {
    return floats_of(d, f) * 4 + f->groups * f->heads * 8 + (f->subgroups ? 0 : f->groups * f->lanes * KEYS * 4);
}

/* What a workgroup takes: as attention_lanes.wgsl, whose numbers are measured (lower_attention.c). */
static bool form_of(const device_caps *caps, const attention_task *a, form *f) {
    const uint32_t group = a->n_head / a->n_kv, units = caps->compute_units ? caps->compute_units : caps->kind == DEVICE_DISCRETE ? 128 : 16;
    const uint32_t memory = caps->workgroup_bytes ? caps->workgroup_bytes : 16384, invocations = caps->workgroup_invocations ? caps->workgroup_invocations : 256;
    if (a->d % ATTENTION_EIGHT || a->n_head % a->n_kv) return false;
    *f = (form){.subgroups = caps->subgroups && caps->subgroup_size > 1, .join = 1};
    uint32_t lanes = f->subgroups ? at_most(caps->subgroup_size, LANES_MAX) : LANES_TREE;
    if (f->subgroups && a->d > ATTENTION_EIGHT * EIGHTS_MAX * lanes) f->subgroups = false; /* too narrow */
    while (!f->subgroups && lanes < LANES_TREE_MAX && a->d > ATTENTION_EIGHT * EIGHTS_MAX * lanes) lanes *= 2;
    while (a->d % (ATTENTION_EIGHT * lanes)) lanes /= 2;
    if (lanes == 1) f->subgroups = false;
    f->lanes = lanes;
    f->eights = a->d / (ATTENTION_EIGHT * lanes);
    const uint32_t merged = at_least(MERGED_LEAST, MERGED_BYTES * (a->whole ? 2u : 1u) / (a->n_head * a->d * 4));
    const bool near = (uint64_t)round_up(a->keys, merged) * a->d * 4 <= NEAR_BYTES;
    f->groups = near ? GROUPS_NEAR : GROUPS_FAR;
    f->groups = at_most(at_most(f->groups * at_least(1, 16 / lanes), GROUPS_MAX), invocations / lanes);
    f->piece = at_least(PIECE_LEAST, f->groups * KEYS);
    f->n_split = at_most(round_up(a->keys, f->piece), merged);
    f->heads = divisor_of(group, near ? HEADS_NEAR : HEADS_FAR);
    while (f->heads > 1 && (bytes_of(a->d, f) > memory || f->heads * f->eights > EIGHTS_MAX ||
                            (near && (uint64_t)a->n_head / f->heads * a->n * f->n_split < units)))
        f->heads = divisor_of(group, f->heads - 1);
    const uint32_t beside = a->n_head / f->heads * a->n; /* workgroups without a split */
    if (!near) f->n_split = at_most(PIECES_MAX, at_most(round_up(a->keys, f->piece), at_least(1, 2 * units / beside)));
    while (f->groups > 1 && bytes_of(a->d, f) > memory) f->groups /= 2;
    f->join = f->heads;
    while (f->join > 1 && bytes_of(a->d, f) > at_most(memory, JOIN_BYTES)) f->join = divisor_of(f->heads, f->join - 1);
    return f->eights <= EIGHTS_MAX && bytes_of(a->d, f) <= memory;
}

bool attention_lanes_fit(const device_caps *caps, const attention_task *a) {
    form f;
    return attention_cache_known(a) && form_of(caps, a, &f);
}

uint32_t attention_lanes_splits(const device_caps *caps, const attention_task *a) {
    form f;
    return form_of(caps, a, &f) ? f.n_split : 0;
}

/* ---- the kernel ------------------------------------------------------------------------------------------------- */

typedef struct shared {
    lower_ir k;
    const attention_task *a;
    form f;
    attention_cache keys, values;
    attention_places places;
    attention_result result;
    attention_keys of;
    ir_memory q, key, value, norms, angles;
    ir_memory memory, stats, tree;                 /* of the workgroup; tree: for sums without subgroups */
    ir_memory lines, raw_keys, raw_values, sums, most, total; /* registers */
    ir_id q_offset, angles_offset, w_q, w_k, scale, eps;
    ir_id local, lane, member, row, piece, first_head, kv, fresh; /* fresh: this workgroup has the row's own key */
    ir_id begin, end, ring;
    ir_id queries[HEADS_NEAR * EIGHTS_MAX]; /* [head, eight] */
} shared;

/* Sums over the lanes that share a key; every lane of the workgroup calls it. */
static ir_id lanes_sum(shared *s, ir_id x) {
    lower_ir *k = &s->k;
    ir_builder *b = k->b;
    if (s->f.lanes == 1) return x;
    if (s->f.subgroups) return ir_subgroup_add(b, x);
    const ir_instruction *i = ir_at(b, x);
    const uint32_t width = i ? i->width : 1;
    ir_barrier(b);
    ir_store(b, s->tree, lower_ir_times(k, s->local, width), x);
    ir_barrier(b);
    ir_id first = lower_ir_times(k, ir_sub(b, s->local, s->lane), width), sum = ir_load(b, s->tree, first, width);
    for (uint32_t l = 1; l < s->f.lanes; l++) sum = ir_add(b, sum, ir_load(b, s->tree, lower_ir_plus(k, first, l * width), width));
    return sum;
}

/* Where element 4 * four of a line lies: first fours that begin an eight, then those that end one, so that neighbours that read
 * their eights read neighbours. */
static ir_id place_of(shared *s, uint32_t line, ir_id four) {
    lower_ir *k = &s->k;
    ir_id half = lower_ir_times(k, lower_ir_and(k, four, 1), s->a->d / 8);
    return lower_ir_plus(k, lower_ir_times(k, ir_add(k->b, lower_ir_shr(k, four, 1), half), 4), line * s->a->d);
}

/* Eight c of a line in workgroup memory, of this lane: f32x8. */
static ir_id line_eight(shared *s, uint32_t line, uint32_t c) {
    lower_ir *k = &s->k;
    ir_id at = lower_ir_plus(k, lower_ir_times(k, s->lane, 4), line * s->a->d + c * s->f.lanes * 4);
    ir_id halves[2] = {ir_load(k->b, s->memory, at, 4), ir_load(k->b, s->memory, lower_ir_plus(k, at, s->a->d / 2), 4)};
    return ir_compose(k->b, halves, 2);
}

static void bind(shared *s) {
    lower_ir *k = &s->k;
    const attention_task *a = s->a;
    const graph *g = k->l->g;
    uint32_t word[2] = {0, 0};
    s->q = lower_ir_read(k, "q", a->q);
    attention_cache_bind(&s->keys, k, "k_cache", a, a->k_cache, false);
    attention_cache_bind(&s->values, k, "v_cache", a, a->v_cache, false);
    attention_places_bind(&s->places, k, a);
    attention_result_bind(&s->result, k, a);
    s->q_offset = lower_ir_u32(k, "q_offset", a->q_offset);
    s->scale = lower_ir_f32(k, "scale", a->scale);
    if (a->raw) {
        s->norms = lower_ir_weights(k, "norms", (const graph_value[]){a->w_q, a->k ? a->w_k : a->w_q}, 2, IR_F32, word);
        s->angles = lower_ir_read(k, "angles", a->angles);
        s->angles_offset = lower_ir_u32(k, "angles_offset", graph_tensor_at(g, a->angles)->offset);
        s->w_q = lower_ir_u32(k, "w_q", word[0]);
        s->w_k = lower_ir_u32(k, "w_k", word[1]);
        s->eps = lower_ir_f32(k, "eps", a->eps);
    }
    if (a->k) {
        s->key = lower_ir_read(k, "key", a->k);
        s->value = a->v == a->k ? s->key : lower_ir_read(k, "value", a->v);
    }
}

static void declare(shared *s) {
    ir_builder *b = s->k.b;
    const form *f = &s->f;
    const uint32_t raw = KEYS * f->eights * s->keys.raw, rounds = round_up(f->heads + 2, f->groups);
    const ir_type type = s->a->cache == TYPE_F32 ? IR_F32 : IR_U32;
    s->memory = ir_workgroup(b, IR_F32, floats_of(s->a->d, f));
    s->stats = ir_workgroup(b, IR_F32, f->groups * f->heads * 2);
    if (!f->subgroups && f->lanes > 1) s->tree = ir_workgroup(b, IR_F32, f->groups * f->lanes * KEYS);
    s->lines = ir_register(b, IR_F32, rounds * f->eights * 8);
    s->raw_keys = ir_register(b, type, raw);
    s->raw_values = ir_register(b, type, raw);
    s->sums = ir_register(b, IR_F32, f->heads * f->eights * 8);
    s->most = ir_register(b, IR_F32, f->heads);
    s->total = ir_register(b, IR_F32, f->heads);
    s->local = ir_local(b, 0);
    s->lane = lower_ir_rest(&s->k, s->local, f->lanes);
    s->member = lower_ir_over(&s->k, s->local, f->lanes);
    s->piece = ir_group(b, 0);
    s->first_head = lower_ir_times(&s->k, ir_group(b, 1), f->heads);
    s->row = ir_group(b, 2);
    s->kv = lower_ir_over(&s->k, s->first_head, s->a->n_head / s->a->n_kv);
    s->fresh = ir_eq(b, s->piece, ir_u32(b, 0));
}

/* ---- lines: query heads, then the row's own key and value --------------------------------------------------------- */

static ir_id line_of(shared *s, uint32_t round) {
    return lower_ir_plus(&s->k, s->member, round * s->f.groups);
}

/* Of eight c of a line as this lane works on it: fours in the first half of the head, and as many in the second. */
static ir_id four_of(shared *s, uint32_t c) {
    return lower_ir_plus(&s->k, s->lane, c * s->f.lanes);
}

static void line_fetch(shared *s, uint32_t round, ir_memory from, ir_id start) {
    lower_ir *k = &s->k;
    ir_builder *b = k->b;
    for (uint32_t c = 0; c < s->f.eights; c++) {
        ir_id at = ir_add(b, start, lower_ir_times(k, four_of(s, c), 4)), to = ir_u32(b, (round * s->f.eights + c) * 8);
        ir_store(b, s->lines, to, ir_load(b, from, at, 4));
        ir_store(b, s->lines, lower_ir_plus(k, to, 4), ir_load(b, from, lower_ir_plus(k, at, s->a->d / 2), 4));
    }
}

static void lines_load(shared *s, uint32_t rounds) {
    lower_ir *k = &s->k;
    ir_builder *b = k->b;
    const attention_task *a = s->a;
    for (uint32_t i = 0; i < rounds * s->f.eights * 8; i += 4) ir_store(b, s->lines, ir_u32(b, i), ir_number(b, IR_F32, 4, 0));
    ir_id q = ir_add(b, s->q_offset, lower_ir_times(k, s->row, a->q_stride[0])), heads = ir_u32(b, s->f.heads);
    ir_id own = lower_ir_times(k, ir_add(b, lower_ir_times(k, s->row, a->n_kv), s->kv), a->d);
    for (uint32_t r = 0; r < rounds; r++) {
        ir_id line = line_of(s, r);
        ir_if(b, ir_lt(b, line, heads));
        line_fetch(s, r, s->q, ir_add(b, q, lower_ir_times(k, ir_add(b, s->first_head, line), a->q_stride[1])));
        ir_end(b);
        if (!a->k) continue;
        ir_if(b, ir_and(b, s->fresh, ir_eq(b, line, heads)));
        line_fetch(s, r, s->key, own);
        ir_end(b);
        ir_if(b, ir_and(b, s->fresh, ir_eq(b, line, ir_u32(b, s->f.heads + 1))));
        line_fetch(s, r, s->value, own);
        ir_end(b);
    }
}

static ir_id many(shared *s, ir_id x) {
    return ir_splat(s->k.b, x, 4);
}

/* Norm and rotation of a round's lines; scale of the queries. To workgroup memory. */
static void lines_make(shared *s, uint32_t round) {
    lower_ir *k = &s->k;
    ir_builder *b = k->b;
    const attention_task *a = s->a;
    const uint32_t eights = s->f.eights;
    ir_id line = line_of(s, round), is_query = ir_lt(b, line, ir_u32(b, s->f.heads)), is_value = ir_gt(b, line, ir_u32(b, s->f.heads));
    ir_id low[EIGHTS_MAX], high[EIGHTS_MAX], squares = IR_NO_ID;
    for (uint32_t c = 0; c < eights; c++) {
        low[c] = ir_load(b, s->lines, ir_u32(b, (round * eights + c) * 8), 4);
        high[c] = ir_load(b, s->lines, ir_u32(b, (round * eights + c) * 8 + 4), 4);
        ir_id square = ir_fma(b, low[c], low[c], ir_mul(b, high[c], high[c]));
        squares = c ? ir_add(b, squares, square) : square;
    }
    ir_id scale = many(s, ir_select(b, is_query, s->scale, ir_f32(b, 1)));
    if (a->raw) {
        ir_id mean = ir_mul(b, lanes_sum(s, lower_ir_sum_vector(k, squares)), ir_f32(b, 1.0f / (float)a->d));
        ir_id factor = many(s, ir_rsqrt(b, ir_add(b, mean, s->eps)));
        ir_id weight = ir_select(b, is_query, s->w_q, s->w_k), turn = ir_add(b, s->angles_offset, lower_ir_times(k, s->row, a->d));
        ir_id straight = ir_splat(b, is_value, 4);
        for (uint32_t c = 0; c < eights; c++) {
            ir_id at = lower_ir_times(k, four_of(s, c), 4), w = ir_add(b, weight, at), angle = ir_add(b, turn, at);
            ir_id cosine = ir_load(b, s->angles, angle, 4), sine = ir_load(b, s->angles, lower_ir_plus(k, angle, a->d / 2), 4);
            ir_id u = ir_mul(b, low[c], factor), v = ir_mul(b, high[c], factor);
            ir_id x = ir_mul(b, u, ir_load(b, s->norms, w, 4)), y = ir_mul(b, v, ir_load(b, s->norms, lower_ir_plus(k, w, a->d / 2), 4));
            ir_id first = ir_sub(b, ir_mul(b, x, cosine), ir_mul(b, y, sine)), second = ir_add(b, ir_mul(b, x, sine), ir_mul(b, y, cosine));
            low[c] = a->k ? ir_select(b, straight, u, first) : first;
            high[c] = a->k ? ir_select(b, straight, v, second) : second;
        }
    }
    ir_if(b, ir_lt(b, line, ir_u32(b, s->f.heads + (a->k ? 2 : 0))));
    for (uint32_t c = 0; c < eights; c++) {
        ir_id own = lower_ir_times(k, line, a->d), four = four_of(s, c);
        ir_store(b, s->memory, ir_add(b, own, place_of(s, 0, four)), ir_mul(b, low[c], scale));
        ir_store(b, s->memory, ir_add(b, own, place_of(s, 0, lower_ir_plus(k, four, a->d / 8))), ir_mul(b, high[c], scale));
    }
    ir_end(b);
}

/* ---- keys ---------------------------------------------------------------------------------------------------------- */

/* Asks for the keys of the round that begins at `tile`. */
static void fetch(shared *s, ir_id tile, const attention_cache *cache, ir_memory to) {
    lower_ir *k = &s->k;
    ir_builder *b = k->b;
    const attention_task *a = s->a;
    for (uint32_t i = 0; i < KEYS; i++) {
        ir_id key = ir_min(b, ir_add(b, lower_ir_plus(k, tile, i * s->f.groups), s->member), lower_ir_plus(k, s->end, UINT32_MAX));
        ir_id place = ir_add(b, s->ring, ir_sub(b, key, s->begin)), rows = ir_u32(b, a->n_row);
        place = ir_select(b, ir_ge(b, place, rows), ir_sub(b, place, rows), place);
        ir_id at = lower_ir_times(k, ir_add(b, lower_ir_times(k, ir_add(b, s->of.base, place), a->n_kv), s->kv), a->d);
        at = ir_add(b, at, lower_ir_times(k, s->lane, ATTENTION_EIGHT));
        for (uint32_t c = 0; c < s->f.eights; c++) {
            ir_id raw[RAW_MAX];
            attention_cache_load(cache, lower_ir_plus(k, at, c * s->f.lanes * ATTENTION_EIGHT), raw);
            for (uint32_t w = 0; w < cache->raw; w++) ir_store(b, to, ir_u32(b, (i * s->f.eights + c) * cache->raw + w), raw[w]);
        }
    }
}

static ir_id fetched(shared *s, const attention_cache *cache, ir_memory from, uint32_t key, uint32_t c) {
    ir_id raw[RAW_MAX];
    for (uint32_t w = 0; w < cache->raw; w++) raw[w] = ir_load(s->k.b, from, ir_u32(s->k.b, (key * s->f.eights + c) * cache->raw + w), 1);
    return attention_cache_values(cache, raw);
}

/* x . y, four partial sums. */
static ir_id dot(shared *s, ir_id x, ir_id y, ir_id sum) {
    ir_builder *b = s->k.b;
    ir_id low[2] = {ir_swizzle(b, x, 4, 0x3210), ir_swizzle(b, y, 4, 0x3210)}, high[2] = {ir_swizzle(b, x, 4, 0x7654), ir_swizzle(b, y, 4, 0x7654)};
    ir_id first = sum == IR_NO_ID ? ir_mul(b, low[0], low[1]) : ir_fma(b, low[0], low[1], sum);
    return ir_fma(b, high[0], high[1], first);
}

static ir_id sums_at(shared *s, uint32_t head, uint32_t c) {
    return ir_u32(s->k.b, (head * s->f.eights + c) * 8);
}

/* Registers before the first key: nothing, or the row's own key, whose score is the first group's maximum so far. */
static void softmax_begin(shared *s) {
    lower_ir *k = &s->k;
    ir_builder *b = k->b;
    const form *f = &s->f;
    for (uint32_t h = 0; h < f->heads; h++) {
        ir_store(b, s->most, ir_u32(b, h), ir_f32(b, LEAST));
        ir_store(b, s->total, ir_u32(b, h), ir_f32(b, 0));
        for (uint32_t c = 0; c < f->eights; c++) {
            s->queries[h * f->eights + c] = line_eight(s, h, c);
            ir_store(b, s->sums, sums_at(s, h, c), ir_number(b, IR_F32, 8, 0));
        }
    }
    if (!s->a->k) return;
    ir_if(b, s->fresh);
    for (uint32_t h = 0; h < f->heads; h++) {
        ir_id sum = IR_NO_ID;
        for (uint32_t c = 0; c < f->eights; c++) sum = dot(s, s->queries[h * f->eights + c], line_eight(s, f->heads, c), sum);
        ir_id score = lanes_sum(s, lower_ir_sum_vector(k, sum));
        ir_if(b, ir_eq(b, s->member, ir_u32(b, 0)));
        ir_store(b, s->most, ir_u32(b, h), score);
        ir_store(b, s->total, ir_u32(b, h), ir_f32(b, 1));
        for (uint32_t c = 0; c < f->eights; c++) ir_store(b, s->sums, sums_at(s, h, c), line_eight(s, f->heads + 1, c));
        ir_end(b);
    }
    ir_end(b);
}

/* The first workgroup of a kv head stores the row's own key and value, if its slot exists. */
static void store_own(shared *s) {
    lower_ir *k = &s->k;
    ir_builder *b = k->b;
    const attention_task *a = s->a;
    const uint32_t unit = attention_cache_unit(&s->keys), units = a->d / unit, lanes = s->f.lanes * s->f.groups;
    if (!a->k) return;
    ir_memory line = ir_register(b, IR_F32, unit);
    ir_id own = ir_eq(b, lower_ir_rest(k, s->first_head, a->n_head / a->n_kv), ir_u32(b, 0)), zero = ir_u32(b, 0);
    ir_if(b, ir_and(b, ir_and(b, s->fresh, own), ir_lt(b, s->of.slot, ir_u32(b, a->n_slot))));
    ir_id row = ir_add(b, s->of.base, lower_ir_rest(k, s->of.last, a->n_row));
    ir_id start = lower_ir_times(k, ir_add(b, lower_ir_times(k, row, a->n_kv), s->kv), a->d);
    for (uint32_t which = 0; which < 2; which++) {
        ir_id i = ir_loop(b, s->local, ir_u32(b, units), ir_u32(b, lanes)), four = lower_ir_times(k, i, unit / 4);
        for (uint32_t e = 0; e < unit; e += 4)
            ir_store(b, line, ir_u32(b, e), ir_load(b, s->memory, place_of(s, s->f.heads + which, lower_ir_plus(k, four, e / 4)), 4));
        attention_cache_store(which ? &s->values : &s->keys, line, zero, ir_add(b, start, lower_ir_times(k, i, unit)));
        ir_end(b);
    }
    ir_end(b);
}

/* One round: KEYS keys a group. */
static void turn(shared *s, ir_id tile) {
    lower_ir *k = &s->k;
    ir_builder *b = k->b;
    const form *f = &s->f;
    ir_id scores[HEADS_NEAR], seen[KEYS], next = lower_ir_plus(k, tile, f->groups * KEYS), more = ir_lt(b, next, s->end);
    ir_id parts[HEADS_NEAR][KEYS];
    for (uint32_t i = 0; i < KEYS; i++) {
        seen[i] = ir_lt(b, ir_add(b, lower_ir_plus(k, tile, i * f->groups), s->member), s->end);
        for (uint32_t h = 0; h < f->heads; h++) parts[h][i] = IR_NO_ID;
        for (uint32_t c = 0; c < f->eights; c++) {
            ir_id key = fetched(s, &s->keys, s->raw_keys, i, c);
            for (uint32_t h = 0; h < f->heads; h++) parts[h][i] = dot(s, s->queries[h * f->eights + c], key, parts[h][i]);
        }
        for (uint32_t h = 0; h < f->heads; h++) parts[h][i] = lower_ir_sum_vector(k, parts[h][i]);
    }
    ir_if(b, more);
    fetch(s, next, &s->keys, s->raw_keys);
    ir_end(b);
    ir_id visible = ir_compose(b, seen, KEYS);
    for (uint32_t h = 0; h < f->heads; h++) {
        ir_id at = ir_u32(b, h), before = ir_load(b, s->most, at, 1);
        ir_id score = ir_select(b, visible, lanes_sum(s, ir_compose(b, parts[h], KEYS)), ir_number(b, IR_F32, KEYS, LEAST));
        ir_id now = ir_max(b, before, lower_ir_max_vector(k, score)), keep = ir_exp(b, ir_sub(b, before, now));
        scores[h] = ir_select(b, visible, ir_exp(b, ir_sub(b, score, ir_splat(b, now, KEYS))), ir_number(b, IR_F32, KEYS, 0));
        ir_store(b, s->most, at, now);
        ir_store(b, s->total, at, ir_fma(b, ir_load(b, s->total, at, 1), keep, lower_ir_sum_vector(k, scores[h])));
        for (uint32_t c = 0; c < f->eights; c++)
            ir_store(b, s->sums, sums_at(s, h, c), ir_mul(b, ir_load(b, s->sums, sums_at(s, h, c), 8), ir_splat(b, keep, 8)));
    }
    for (uint32_t i = 0; i < KEYS; i++)
        for (uint32_t c = 0; c < f->eights; c++) {
            ir_id value = fetched(s, &s->values, s->raw_values, i, c);
            for (uint32_t h = 0; h < f->heads; h++) {
                ir_id at = sums_at(s, h, c);
                ir_store(b, s->sums, at, ir_fma(b, value, ir_splat(b, ir_extract(b, scores[h], i), 8), ir_load(b, s->sums, at, 8)));
            }
        }
    ir_if(b, more);
    fetch(s, next, &s->values, s->raw_values);
    ir_end(b);
}

/* ---- the end: groups join ------------------------------------------------------------------------------------------- */

static void join_some(shared *s, uint32_t from) {
    lower_ir *k = &s->k;
    ir_builder *b = k->b;
    const attention_task *a = s->a;
    const form *f = &s->f;
    const uint32_t d4 = a->d / 4, lanes = f->lanes * f->groups;
    ir_id i = ir_loop(b, s->local, ir_u32(b, f->join * d4), ir_u32(b, lanes)), head = lower_ir_plus(k, lower_ir_over(k, i, d4), from);
    ir_id four = lower_ir_rest(k, i, d4), at = ir_add(b, lower_ir_times(k, lower_ir_over(k, i, d4), a->d), place_of(s, 0, four));
    ir_id tops[GROUPS_MAX], totals[GROUPS_MAX], highest = ir_f32(b, LEAST), all = ir_f32(b, 0), sum = ir_number(b, IR_F32, 4, 0);
    for (uint32_t g = 0; g < f->groups; g++) {
        ir_id one = ir_load(b, s->stats, lower_ir_times(k, lower_ir_plus(k, head, g * f->heads), 2), 2);
        tops[g] = ir_extract(b, one, 0);
        totals[g] = ir_extract(b, one, 1);
        highest = ir_max(b, highest, tops[g]);
    }
    for (uint32_t g = 0; g < f->groups; g++) {
        ir_id weight = ir_exp(b, ir_sub(b, tops[g], highest));
        all = ir_fma(b, totals[g], weight, all);
        sum = ir_fma(b, ir_load(b, s->memory, lower_ir_plus(k, at, g * f->join * a->d), 4), many(s, weight), sum);
    }
    ir_id place = ir_add(b, lower_ir_times(k, s->row, a->n_head), ir_add(b, s->first_head, head)), four_at = lower_ir_times(k, four, 4);
    if (a->n_split > 1) {
        ir_id piece = ir_add(b, lower_ir_times(k, place, a->n_split), s->piece), both[2] = {highest, all};
        ir_store(b, s->result.out, ir_fma(b, piece, ir_u32(b, a->d), four_at), sum);
        ir_if(b, ir_eq(b, four, ir_u32(b, 0)));
        ir_store(b, s->result.stats, lower_ir_times(k, piece, 2), ir_compose(b, both, 2));
        ir_end(b);
    } else {
        ir_store(b, s->result.out, ir_fma(b, place, ir_u32(b, a->d), four_at), ir_mul(b, sum, many(s, ir_div(b, ir_f32(b, 1), all))));
    }
    ir_end(b);
}

static void join(shared *s) {
    lower_ir *k = &s->k;
    ir_builder *b = k->b;
    const form *f = &s->f;
    ir_if(b, ir_eq(b, s->lane, ir_u32(b, 0)));
    for (uint32_t h = 0; h < f->heads; h++) {
        ir_id both[2] = {ir_load(b, s->most, ir_u32(b, h), 1), ir_load(b, s->total, ir_u32(b, h), 1)};
        ir_store(b, s->stats, lower_ir_times(k, lower_ir_plus(k, lower_ir_times(k, s->member, f->heads), h), 2), ir_compose(b, both, 2));
    }
    ir_end(b);
    for (uint32_t from = 0; from < f->heads; from += f->join) {
        ir_barrier(b);
        for (uint32_t j = 0; j < f->join; j++)
            for (uint32_t c = 0; c < f->eights; c++) {
                ir_id x = ir_load(b, s->sums, sums_at(s, from + j, c), 8);
                ir_id at = lower_ir_times(k, lower_ir_plus(k, lower_ir_times(k, s->member, f->join), j), s->a->d);
                at = lower_ir_plus(k, ir_add(b, at, lower_ir_times(k, s->lane, 4)), c * f->lanes * 4);
                ir_store(b, s->memory, at, ir_swizzle(b, x, 4, 0x3210));
                ir_store(b, s->memory, lower_ir_plus(k, at, s->a->d / 2), ir_swizzle(b, x, 4, 0x7654));
            }
        ir_barrier(b);
        join_some(s, from);
    }
}

beryl_status attention_lanes(lowering *l, const graph_node *node, const attention_task *a, beryl_error *error) {
    shared s = {.a = a};
    if (!form_of(l->caps, a, &s.f)) return lower_ir_refuse(node, "heads of this shape", error);
    const form *f = &s.f;
    lower_ir *k = &s.k;
    lower_ir_begin(k, l, node, a->raw ? "attention_step" : "attention_lanes", f->lanes * f->groups);
    ir_builder *b = k->b;
    if (f->subgroups) ir_subgroup(b, f->lanes);
    bind(&s);
    declare(&s);
    const uint32_t lines = f->heads + (a->k ? 2 : 0), rounds = round_up(lines, f->groups);
    lines_load(&s, rounds);
    attention_keys_of(&s.places, k, a, s.row, &s.of);
    ir_id count = ir_sub(b, s.of.end, s.of.first), span = lower_ir_over(k, lower_ir_plus(k, count, a->n_split - 1), a->n_split);
    span = ir_max(b, span, ir_u32(b, f->piece));
    s.begin = ir_add(b, s.of.first, ir_mul(b, s.piece, span));
    s.end = ir_min(b, ir_add(b, s.begin, span), s.of.end);
    s.ring = lower_ir_rest(k, s.begin, a->n_row);
    ir_if(b, ir_lt(b, s.begin, s.end));
    fetch(&s, s.begin, &s.keys, s.raw_keys);
    fetch(&s, s.begin, &s.values, s.raw_values);
    ir_end(b);
    for (uint32_t r = 0; r < rounds; r++) lines_make(&s, r);
    ir_barrier(b);
    softmax_begin(&s);
    store_own(&s);
    ir_id tile = ir_loop(b, s.begin, s.end, ir_u32(b, f->groups * KEYS));
    turn(&s, tile);
    ir_end(b);
    join(&s);
    return lower_ir_end_3d(k, (lower_count){a->n_split, 0}, 1, (lower_count){a->n_head / f->heads, 0}, 1, a->rows, 1, error);
}
