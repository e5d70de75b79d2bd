/* attention_lanes.c - attention of few rows where lanes share a key: a plain node's, or
 * a whole decode step from the products before norms and rotations, to the store of the row's
 * own key and value.
 *
 * A workgroup has a piece of the keys, some query heads of one kv head, and a row. LANES
 * neighbours have a key's elements between them, as eights; such a group keeps queries, sums and
 * an online softmax of its own in registers, so that the groups meet only once, at the end.
 * Several keys a group are under way at a time, and those of the next round are asked for as
 * soon as the registers are free. Keys beyond the last repeat it with weight 0. The row's own
 * key and value, where they come along, are taken from workgroup memory by the first piece,
 * never from the cache: no workgroup reads what its dispatch stores. */
#include "tile/attention.h"
#include "base/error.h"

enum {
    KEYS = 4, /* of a group, under way */
    LANES_MAX = 32,
    LANES_TREE = 8, /* without subgroups */
    LANES_TREE_MAX = 32,
    GROUPS_MAX = 32,
    GROUPS = 8, /* twice as many for whole windows: fewer rounds of loads, one after another */
    HEADS = 4,
    PIECE_MIN = 32,          /* keys */
    MERGED_MIN = 4,          /* pieces that the next product merges */
    MERGED_BYTES = 32 << 10, /* of partial sums for it; twice as many of whole windows */
    /* of halves of keys and values, a piece: more takes longer than a merge of its own */
    NEAR_BYTES = 256 << 10,
    PIECES_MAX = 128,
    JOIN_BYTES = 24 << 10
};

typedef struct form {
    /* eights: of a head, a lane; join: heads at a time; piece: least keys */
    uint32_t lanes, groups, heads, eights, n_split, join, piece;
    bool subgroups, near;
} form;

static uint32_t floats_of(uint32_t d, const form *f) { /* lines, then what groups join */
    return whole_most((f->heads + 2) * d, f->groups * f->join * d);
}

static uint32_t bytes_of(uint32_t d, const form *f) {
    return floats_of(d, f) * 4 + f->groups * f->heads * 8 +
           (f->subgroups ? 0 : f->groups * f->lanes * KEYS * 4);
}

static void choose_join(const device_caps *caps, uint32_t d, form *f) {
    f->join = f->heads;
    while (f->join > 1 && bytes_of(d, f) > whole_least(caps->workgroup_bytes, JOIN_BYTES))
        f->join = whole_divisor(f->heads, f->join - 1);
}

/* What a workgroup takes; the numbers are measured on an H200. */
static bool form_of(const device_caps *caps, const attention_task *a, form *f) {
    const uint32_t group = a->n_head / a->n_kv, units = caps->compute_units ? caps->compute_units
                                                        : caps->kind == DEVICE_DISCRETE ? 128
                                                                                        : 16;
    const uint32_t memory = caps->workgroup_bytes, invocations = caps->workgroup_invocations;
    if (a->d % ATTENTION_EIGHT || a->n_head % a->n_kv) return false;
    *f = (form){.subgroups = caps->subgroups && caps->subgroup_size > 1, .join = 1};
    uint32_t lanes = f->subgroups ? whole_least(caps->subgroup_size, LANES_MAX) : LANES_TREE;
    /* too narrow */
    if (f->subgroups && a->d > ATTENTION_EIGHT * ATTENTION_EIGHTS_MAX * lanes) f->subgroups = false;
    while (!f->subgroups && lanes < LANES_TREE_MAX &&
           a->d > ATTENTION_EIGHT * ATTENTION_EIGHTS_MAX * lanes)
        lanes *= 2;
    while (a->d % (ATTENTION_EIGHT * lanes)) lanes /= 2;
    if (lanes == 1) f->subgroups = false;
    f->lanes = lanes;
    f->eights = a->d / (ATTENTION_EIGHT * lanes);
    const uint32_t merged =
        whole_most(MERGED_MIN, MERGED_BYTES * (a->whole ? 2u : 1u) / (a->n_head * a->d * 4));
    const bool near = f->near = (uint64_t)whole_over(a->keys, merged) * a->d * 4 <= NEAR_BYTES;
    const bool twice = a->whole && (near || !tile_is_wgsl(caps));
    f->groups =
        whole_least(whole_least(GROUPS * (twice ? 2u : 1u) * whole_most(1, 16 / lanes), GROUPS_MAX),
                    invocations / lanes);
    f->piece = whole_most(PIECE_MIN, f->groups * KEYS);
    f->n_split = whole_least(whole_over(a->keys, f->piece), merged);
    f->heads = whole_divisor(group, HEADS);
    while (f->heads > 1 &&
           (bytes_of(a->d, f) > memory || f->heads * f->eights > ATTENTION_EIGHTS_MAX ||
            (near && (uint64_t)a->n_head / f->heads * a->n * f->n_split < units)))
        f->heads = whole_divisor(group, f->heads - 1);
    const uint32_t beside = a->n_head / f->heads * a->n; /* workgroups without a split */
    if (!near)
        f->n_split = whole_least(PIECES_MAX, whole_least(whole_over(a->keys, f->piece),
                                                         whole_most(1, 2 * units / beside)));
    while (f->groups > 1 && bytes_of(a->d, f) > memory) f->groups /= 2;
    choose_join(caps, a->d, f);
    return f->eights <= ATTENTION_EIGHTS_MAX && bytes_of(a->d, f) <= memory;
}

/* The form's heads and groups, as tuning chose. */
static void choose(lowering *l, const attention_task *a, form *f) {
    const uint32_t group = a->n_head / a->n_kv, memory = l->caps->workgroup_bytes;
    form one = *f;
    one.groups = one.join = 1;
    uint32_t most = f->heads;
    for (; group % (2 * most) == 0 && 2 * most <= HEADS &&
           2 * most * f->eights <= ATTENTION_EIGHTS_MAX;
         most *= 2) {
        one.heads = 2 * most;
        if (bytes_of(a->d, &one) > memory) break;
    }
    f->heads = one.heads = tile_choose(l, "heads", f->heads, 1, most);
    most = whole_least(GROUPS_MAX, l->caps->workgroup_invocations / f->lanes);
    for (one.groups = most; one.groups > 1 && bytes_of(a->d, &one) > memory; one.groups = most)
        most = one.groups / 2;
    f->groups = tile_choose(l, "groups", whole_least(f->groups, most), 1, most);
    choose_join(l->caps, a->d, f);
}

bool attention_lanes_near(const device_caps *caps, const attention_task *a) {
    form f;
    return form_of(caps, a, &f) && f.near;
}

uint32_t attention_lanes_splits(const device_caps *caps, const attention_task *a) {
    form f;
    return attention_cache_known(a) && form_of(caps, a, &f) ? f.n_split : 0;
}

/* ---- the kernel ------------------------------------------------------------------------------ */

typedef struct shared {
    tile_kernel k;
    const attention_task *a;
    form f;
    attention_lines x;
    ir_memory stats;                                   /* of the workgroup */
    ir_memory raw_keys, raw_values, sums, most, total; /* registers */
    ir_id begin, end, ring;
    bool one_round;                              /* a piece has no more keys than a round */
    ir_id queries[HEADS * ATTENTION_EIGHTS_MAX]; /* [head, eight] */
} shared;

/* Eight c of a line in workgroup memory, of this lane: f32x8. */
static ir_id line_eight(shared *s, uint32_t line, uint32_t c) {
    ir_builder *b = s->k.b;
    return attention_line_eight(
        &s->x, tile_add(b, tile_mul(b, s->x.lane, 4), line * s->a->d + c * s->f.lanes * 4));
}

static void declare(shared *s) {
    ir_builder *b = s->k.b;
    const form *f = &s->f;
    const uint32_t raw = KEYS * f->eights * s->x.keys.raw;
    const ir_type type = s->a->cache == TYPE_F32 ? IR_F32 : IR_U32;
    s->x.memory = ir_workgroup(b, IR_F32, floats_of(s->a->d, f));
    s->stats = ir_workgroup(b, IR_F32, f->groups * f->heads * 2);
    attention_lines_declare(&s->x);
    s->raw_keys = ir_register(b, type, raw);
    s->raw_values = ir_register(b, type, raw);
    s->sums = ir_register(b, IR_F32, f->heads * f->eights * 8);
    s->most = ir_register(b, IR_F32, f->heads);
    s->total = ir_register(b, IR_F32, f->heads);
}

/* ---- keys ------------------------------------------------------------------------------------ */

/* Asks for the keys of the round that begins at `tile`. */
static void fetch(shared *s, ir_id tile, const attention_cache *cache, ir_memory to) {
    ir_builder *b = s->k.b;
    const attention_task *a = s->a;
    for (uint32_t i = 0; i < KEYS; i++) {
        ir_id key = ir_min(b, ir_add(b, tile_add(b, tile, i * s->f.groups), s->x.member),
                           tile_add(b, s->end, UINT32_MAX));
        ir_id place = ir_add(b, s->ring, ir_sub(b, key, s->begin)), rows = ir_u32(b, a->n_row);
        place = ir_select(b, ir_ge(b, place, rows), ir_sub(b, place, rows), place);
        ir_id at = attention_cache_at(cache, s->x.of.base, place, s->x.kv, ATTENTION_EIGHT);
        at = ir_add(b, at, s->x.lane);
        for (uint32_t c = 0; c < s->f.eights; c++) {
            attention_cache_fetch(cache, tile_add(b, at, c * s->f.lanes), to, i * s->f.eights + c);
        }
    }
}

/* x . y, four partial sums. */
static ir_id dot(shared *s, ir_id x, ir_id y, ir_id sum) {
    ir_builder *b = s->k.b;
    ir_id low[2] = {ir_swizzle(b, x, 4, 0x3210), ir_swizzle(b, y, 4, 0x3210)},
          high[2] = {ir_swizzle(b, x, 4, 0x7654), ir_swizzle(b, y, 4, 0x7654)};
    ir_id first = sum == IR_NO_ID ? ir_mul(b, low[0], low[1]) : ir_fma(b, low[0], low[1], sum);
    return ir_fma(b, high[0], high[1], first);
}

static ir_id sums_at(shared *s, uint32_t head, uint32_t c) {
    return ir_u32(s->k.b, (head * s->f.eights + c) * 8);
}

/* Registers before the first key: nothing, or the row's own key, whose score is the first
 * group's maximum so far. Every piece computes the score (those that have no such line, of
 * zeros): without subgroups its sum has barriers, which PoCL 3.1 gets wrong in conditions. */
static void softmax_begin(shared *s) {
    ir_builder *b = s->k.b;
    const form *f = &s->f;
    for (uint32_t h = 0; h < f->heads; h++) {
        ir_store(b, s->most, ir_u32(b, h), ir_f32(b, ATTENTION_LEAST));
        ir_store(b, s->total, ir_u32(b, h), ir_f32(b, 0));
        for (uint32_t c = 0; c < f->eights; c++) {
            s->queries[h * f->eights + c] = line_eight(s, h, c);
            ir_store(b, s->sums, sums_at(s, h, c), ir_number(b, IR_F32, 8, 0));
        }
    }
    if (!s->a->k) return;
    const ir_id owns = ir_and(b, s->x.fresh, ir_eq(b, s->x.member, ir_u32(b, 0)));
    for (uint32_t h = 0; h < f->heads; h++) {
        ir_id sum = IR_NO_ID;
        for (uint32_t c = 0; c < f->eights; c++)
            sum = dot(s, s->queries[h * f->eights + c], line_eight(s, f->heads, c), sum);
        ir_id score = attention_lanes_sum(&s->x, tile_sum_vector(b, sum));
        ir_if(b, owns);
        ir_store(b, s->most, ir_u32(b, h), score);
        ir_store(b, s->total, ir_u32(b, h), ir_f32(b, 1));
        for (uint32_t c = 0; c < f->eights; c++)
            ir_store(b, s->sums, sums_at(s, h, c), line_eight(s, f->heads + 1, c));
        ir_end(b);
    }
}

/* One round: KEYS keys a group. */
static void turn(shared *s, ir_id tile) {
    ir_builder *b = s->k.b;
    const form *f = &s->f;
    ir_id scores[HEADS], seen[KEYS], next = tile_add(b, tile, f->groups * KEYS),
                                     more = ir_lt(b, next, s->end);
    ir_id parts[HEADS][KEYS];
    for (uint32_t i = 0; i < KEYS; i++) {
        seen[i] = ir_lt(b, ir_add(b, tile_add(b, tile, i * f->groups), s->x.member), s->end);
        for (uint32_t h = 0; h < f->heads; h++) parts[h][i] = IR_NO_ID;
        for (uint32_t c = 0; c < f->eights; c++) {
            ir_id key = attention_cache_fetched(&s->x.keys, s->raw_keys, i * s->f.eights + c);
            for (uint32_t h = 0; h < f->heads; h++)
                parts[h][i] = dot(s, s->queries[h * f->eights + c], key, parts[h][i]);
        }
        for (uint32_t h = 0; h < f->heads; h++) parts[h][i] = tile_sum_vector(b, parts[h][i]);
    }
    if (!s->one_round) {
        ir_if(b, more);
        fetch(s, next, &s->x.keys, s->raw_keys);
        ir_end(b);
    }
    ir_id visible = ir_compose(b, seen, KEYS);
    for (uint32_t h = 0; h < f->heads; h++) {
        ir_id at = ir_u32(b, h), before = ir_load(b, s->most, at, 1);
        ir_id score =
            ir_select(b, visible, attention_lanes_sum(&s->x, ir_compose(b, parts[h], KEYS)),
                      ir_number(b, IR_F32, KEYS, ATTENTION_LEAST));
        ir_id now = ir_max(b, before, tile_max_vector(b, score)),
              keep = ir_exp(b, ir_sub(b, before, now));
        scores[h] = ir_select(b, visible, ir_exp(b, ir_sub(b, score, ir_splat(b, now, KEYS))),
                              ir_number(b, IR_F32, KEYS, 0));
        ir_store(b, s->most, at, now);
        ir_store(b, s->total, at,
                 ir_fma(b, ir_load(b, s->total, at, 1), keep, tile_sum_vector(b, scores[h])));
        for (uint32_t c = 0; c < f->eights; c++)
            ir_store(b, s->sums, sums_at(s, h, c),
                     ir_mul(b, ir_load(b, s->sums, sums_at(s, h, c), 8), ir_splat(b, keep, 8)));
    }
    for (uint32_t i = 0; i < KEYS; i++)
        for (uint32_t c = 0; c < f->eights; c++) {
            ir_id value = attention_cache_fetched(&s->x.values, s->raw_values, i * s->f.eights + c);
            for (uint32_t h = 0; h < f->heads; h++) {
                ir_id at = sums_at(s, h, c);
                ir_store(b, s->sums, at,
                         ir_fma(b, value, ir_splat(b, ir_extract(b, scores[h], i), 8),
                                ir_load(b, s->sums, at, 8)));
            }
        }
    if (s->one_round) return;
    ir_if(b, more);
    fetch(s, next, &s->x.values, s->raw_values);
    ir_end(b);
}

static ir_id many(shared *s, ir_id x) {
    return ir_splat(s->k.b, x, 4);
}

/* ---- the end: groups join -------------------------------------------------------------------- */

static void join_some(shared *s, uint32_t from) {
    ir_builder *b = s->k.b;
    const attention_task *a = s->a;
    const form *f = &s->f;
    const uint32_t d4 = a->d / 4, lanes = f->lanes * f->groups;
    ir_id i = ir_loop(b, s->x.local, ir_u32(b, f->join * d4), ir_u32(b, lanes)),
          head = tile_add(b, tile_div(b, i, d4), from);
    ir_id four = tile_rem(b, i, d4), at = ir_add(b, tile_mul(b, tile_div(b, i, d4), a->d),
                                                 attention_line_place(&s->x, 0, four));
    ir_id tops[GROUPS_MAX], totals[GROUPS_MAX],
        highest = ir_f32(b, ATTENTION_LEAST), all = ir_f32(b, 0), sum = ir_number(b, IR_F32, 4, 0);
    for (uint32_t g = 0; g < f->groups; g++) {
        ir_id one = ir_load(b, s->stats, tile_mul(b, tile_add(b, head, g * f->heads), 2), 2);
        tops[g] = ir_extract(b, one, 0);
        totals[g] = ir_extract(b, one, 1);
        highest = ir_max(b, highest, tops[g]);
    }
    for (uint32_t g = 0; g < f->groups; g++) {
        ir_id weight = ir_exp(b, ir_sub(b, tops[g], highest));
        all = ir_fma(b, totals[g], weight, all);
        sum = ir_fma(b, ir_load(b, s->x.memory, tile_add(b, at, g * f->join * a->d), 4),
                     many(s, weight), sum);
    }
    attention_lines_result(&s->x, head, four, sum, highest, all);
    ir_end(b);
}

static void join(shared *s) {
    ir_builder *b = s->k.b;
    const form *f = &s->f;
    ir_if(b, ir_eq(b, s->x.lane, ir_u32(b, 0)));
    for (uint32_t h = 0; h < f->heads; h++) {
        ir_id both[2] = {ir_load(b, s->most, ir_u32(b, h), 1),
                         ir_load(b, s->total, ir_u32(b, h), 1)};
        ir_store(b, s->stats, tile_mul(b, tile_add(b, tile_mul(b, s->x.member, f->heads), h), 2),
                 ir_compose(b, both, 2));
    }
    ir_end(b);
    for (uint32_t from = 0; from < f->heads; from += f->join) {
        ir_barrier(b);
        for (uint32_t j = 0; j < f->join; j++)
            for (uint32_t c = 0; c < f->eights; c++) {
                ir_id x = ir_load(b, s->sums, sums_at(s, from + j, c), 8);
                ir_id at = tile_mul(b, tile_add(b, tile_mul(b, s->x.member, f->join), j), s->a->d);
                at = tile_add(b, ir_add(b, at, tile_mul(b, s->x.lane, 4)), c * f->lanes * 4);
                ir_store(b, s->x.memory, at, ir_swizzle(b, x, 4, 0x3210));
                ir_store(b, s->x.memory, tile_add(b, at, s->a->d / 2), ir_swizzle(b, x, 4, 0x7654));
            }
        ir_barrier(b);
        join_some(s, from);
    }
}

beryl_status attention_lanes(lowering *l, const attention_task *a) {
    shared s = {.a = a};
    if (!form_of(l->caps, a, &s.f)) return lower_refuse(l, l->node, "heads of this shape");
    choose(l, a, &s.f);
    const form *f = &s.f;
    tile_kernel *k = &s.k;
    ir_builder *b =
        tile_begin(k, l, a->raw ? "attention_step" : "attention_lanes", f->lanes * f->groups);
    if (f->subgroups) ir_subgroup(b, f->lanes);
    s.x = (attention_lines){.k = k,
                            .a = a,
                            .lanes = f->lanes,
                            .groups = f->groups,
                            .heads = f->heads,
                            .eights = f->eights,
                            .sums = KEYS,
                            .subgroups = f->subgroups};
    attention_lines_bind(&s.x, false);
    declare(&s);
    attention_lines_load(&s.x);
    attention_lines_see(&s.x);
    ir_id count = ir_sub(b, s.x.of.end, s.x.of.first),
          span = tile_div(b, tile_add(b, count, a->n_split - 1), a->n_split);
    span = ir_max(b, span, ir_u32(b, f->piece));
    s.begin = ir_add(b, s.x.of.first, ir_mul(b, s.x.piece, span));
    s.end = ir_min(b, ir_add(b, s.begin, span), s.x.of.end);
    s.ring = tile_rem(b, s.begin, a->n_row);
    ir_if(b, ir_lt(b, s.begin, s.end));
    fetch(&s, s.begin, &s.x.keys, s.raw_keys);
    fetch(&s, s.begin, &s.x.values, s.raw_values);
    ir_end(b);
    attention_lines_make(&s.x);
    ir_barrier(b);
    softmax_begin(&s);
    attention_lines_store_own(&s.x);
    s.one_round = tile_is_wgsl(l->caps) &&
                  whole_most(whole_over(a->keys, a->n_split), f->piece) <= f->groups * KEYS;
    ir_id tile = ir_loop(b, s.begin, s.end, ir_u32(b, f->groups * KEYS));
    turn(&s, tile);
    ir_end(b);
    join(&s);
    return tile_end_3d(k, (lower_count){a->n_split, 0}, 1, (lower_count){a->n_head / f->heads, 0},
                       1, a->rows);
}
