/* attention_far.c - attention of few rows over many keys on GPUs with subgroups: made for few
 * instructions a key.
 *
 * A workgroup (a piece of the keys, HEADS query heads of one kv head, a row) reads and converts
 * what it needs of the caches once for all its heads. It takes a tile of keys in three steps.
 *   Scores: `lanes` neighbours have a key between them and KEYS keys at a time. They share the sums
 *   out: a step of the reduction halves what a lane has left, until it has one head's scores. Which
 *   half a lane sends differs with the lane, so queries lie in workgroup memory in the order in
 *   which each lane wants them (attention_lines.turned): no lane ever chooses.
 *   Weights: a lane a key.
 *   Values: a lane has an eight of d, for all heads and every `parts`-th VALUES keys; the parts
 *   meet at the end.
 * Scores, weights and maxima have memory of their own, so two barriers a tile are enough. A tile
 * ends where the ring does. Keys beyond a tile's last repeat it; their weights are 0. The row's own
 * key and value, where they come along, are taken from workgroup memory by the first piece. */
#include "tile/attention.h"
#include "base/build.h"
#include "base/error.h"

enum {
    HEADS = 4, /* a power of two; of 8 a lane has too few registers for two workgroups a unit */
    THREADS = 256,
    LANES = 16, /* of a key, with subgroups of 32 on large GPUs; */
    LANES_SMALL = 8,
    LINE_LANES_MAX = 32,
    KEYS = 4,   /* of such lanes at a time, */
    AHEAD = 1,  /* and eights of each that a lane has asked for */
    VALUES = 4, /* keys whose values a lane has asked for */
    TILE = 256, /* at most THREADS */
    TILE_MIN = 32,
    PIECE_MIN = 32,
    PIECES_MAX = 192,
    KEYS_FAR = 512 /* more keys than these */
};

typedef struct form {
    /* eights: of a key, a lane; ahead: of them; parts: lanes that have the same eight of d */
    uint32_t lanes, line_lanes, eights, ahead, parts, tile, n_split;
} form;

static uint32_t lines_of(const form *f) {
    return THREADS / f->line_lanes;
}

static uint32_t floats_of(uint32_t d, const form *f) { /* lines, then parts' sums */
    const uint32_t lines = (HEADS + 2) * d, sums = f->parts * d;
    return lines > sums ? lines : sums;
}

static uint32_t bytes_of(uint32_t d, const form *f) {
    return (floats_of(d, f) + 2 * HEADS * f->tile + (2 * lines_of(f) + 2) * HEADS) * 4;
}

static bool form_of(const device_caps *caps, const attention_task *a, form *f) {
    const uint32_t columns = a->d / ATTENTION_EIGHT, units = caps->compute_units
                                                                 ? caps->compute_units
                                                             : caps->kind == DEVICE_DISCRETE ? 128
                                                                                             : 16;
    const uint32_t memory = caps->workgroup_bytes, invocations = caps->workgroup_invocations;
    if (!caps->subgroups || caps->subgroup_size < LANES_SMALL || invocations < THREADS ||
        device_is_processor(caps))
        return false;
    if (!a->dense || a->keys <= KEYS_FAR || a->n_head % (a->n_kv * HEADS) ||
        a->d % (ATTENTION_EIGHT * LANES_SMALL) || THREADS % columns)
        return false;
    *f =
        (form){.lanes = caps->kind == DEVICE_DISCRETE && caps->subgroup_size >= 2 * LANES
                            ? whole_least(LANES, columns)
                            : LANES_SMALL,
               .line_lanes = whole_least(whole_least(caps->subgroup_size, LINE_LANES_MAX), columns),
               .parts = THREADS / columns,
               .tile = TILE};
    f->eights = columns / f->lanes;
    f->ahead = f->eights % AHEAD ? 1 : AHEAD;
    while (f->tile > TILE_MIN && bytes_of(a->d, f) > memory) f->tile /= 2;
    if (bytes_of(a->d, f) > memory || columns > f->line_lanes * ATTENTION_LINE_EIGHTS_MAX)
        return false;
    const uint32_t beside = a->n_head / HEADS * a->n; /* workgroups without a split */
    f->n_split = whole_least(PIECES_MAX, (a->keys + PIECE_MIN - 1) / PIECE_MIN);
    /* two for each unit; where that makes few pieces, a merge is not worth it */
    f->n_split = whole_least(f->n_split, units >= 2 * beside ? 2 * units / beside : 1);
    return true;
}

uint32_t attention_far_splits(const device_caps *caps, const attention_task *a) {
    form f;
    return attention_cache_known(a) && form_of(caps, a, &f) ? f.n_split : 0;
}

/* ---- the kernel ------------------------------------------------------------------------------ */

typedef struct shared {
    tile_kernel k;
    const attention_task *a;
    form f;
    attention_lines x;
    /* workgroup: x.memory; [HEADS, tile]; [tile, HEADS]; [lines, HEADS]; the same and one more,
     * the maxima */
    ir_memory scores, weights, tops, totals;
    /* registers: [KEYS, ahead, raw], [VALUES, raw], [HEADS, KEYS], [HEADS, 8], [HEADS] */
    ir_memory raw_keys, raw_values, score, sums, most, total, top, weight;
    ir_id lane, group, column, part;        /* of scores; of values */
    ir_id count, ring, before, turns, zero; /* keys: of the piece, before the ring's end */
} shared;

typedef struct tile {
    ir_id count, base; /* keys; eight of the first one */
} tile;

/* Without care for what is no number: such a score is a weight that is none. */
static ir_id larger(ir_builder *b, ir_id x, ir_id y) {
    return ir_select(b, ir_gt(b, y, x), y, x);
}

static ir_id tiles(shared *s, ir_id keys) {
    return tile_div(s->k.b, tile_add(s->k.b, keys, s->f.tile - 1), s->f.tile);
}

static tile tile_at(shared *s, ir_id turn) {
    ir_builder *b = s->k.b;
    ir_id first = tiles(s, s->before), behind = ir_ge(b, turn, first);
    ir_id start = tile_mul(b, ir_sub(b, turn, ir_select(b, behind, first, s->zero)), s->f.tile);
    ir_id keys = ir_select(b, behind, ir_sub(b, s->count, s->before), s->before);
    ir_id place = ir_add(b, start, ir_select(b, behind, s->zero, s->ring));
    ir_id row = ir_add(b, tile_mul(b, ir_add(b, s->x.of.base, place), s->a->n_kv), s->x.kv);
    return (tile){ir_min(b, ir_sub(b, keys, start), ir_u32(b, s->f.tile)),
                  tile_mul(b, row, s->a->d / ATTENTION_EIGHT)};
}

/* Asks for an eight of a key of the tile. */
static void fetch(shared *s, const tile *t, const attention_cache *from, ir_id key, ir_id eight,
                  ir_memory to, uint32_t place) {
    ir_builder *b = s->k.b;
    ir_id row = ir_min(b, key, tile_add(b, t->count, UINT32_MAX));
    row = tile_mul(b, row, s->a->n_kv * (s->a->d / ATTENTION_EIGHT));
    attention_cache_fetch(from, ir_add(b, row, ir_add(b, t->base, eight)), to, place);
}

/* Eight a of those that begin with `begun`, of this lane's keys `first` and on. */
static void fetch_keys(shared *s, const tile *t, ir_id first, ir_id begun, uint32_t a) {
    ir_builder *b = s->k.b;
    ir_id eight = ir_add(b, tile_mul(b, tile_add(b, begun, a), s->f.lanes), s->lane);
    for (uint32_t i = 0; i < KEYS; i++)
        fetch(s, t, &s->x.keys, tile_add(b, first, i), eight, s->raw_keys, a * KEYS + i);
}

static void fetch_first(shared *s, const tile *t, ir_id first) {
    for (uint32_t a = 0; a < s->f.ahead; a++) fetch_keys(s, t, first, s->zero, a);
}

static void fetch_value(shared *s, const tile *t, ir_id first, uint32_t i) {
    fetch(s, t, &s->x.values, tile_add(s->k.b, first, i), s->column, s->raw_values, i);
}

/* An eight of a line in workgroup memory: f32x8. */
static ir_id line_eight(shared *s, ir_id line, ir_id eight) {
    ir_builder *b = s->k.b;
    return attention_line_eight(&s->x,
                                ir_add(b, tile_mul(b, line, s->a->d), tile_mul(b, eight, 4)));
}

static void declare(shared *s) {
    ir_builder *b = s->k.b;
    const form *f = &s->f;
    const ir_type type = s->a->cache == TYPE_F32 ? IR_F32 : IR_U32;
    const uint32_t columns = THREADS / f->parts;
    s->x.memory = ir_workgroup(b, IR_F32, floats_of(s->a->d, f));
    s->scores = ir_workgroup(b, IR_F32, HEADS * f->tile);
    s->weights = ir_workgroup(b, IR_F32, HEADS * f->tile);
    s->tops = ir_workgroup(b, IR_F32, lines_of(f) * HEADS);
    s->totals = ir_workgroup(b, IR_F32, (lines_of(f) + 1) * HEADS);
    attention_lines_declare(&s->x);
    s->raw_keys = ir_register(b, type, KEYS * f->ahead * s->x.keys.raw);
    s->raw_values = ir_register(b, type, VALUES * s->x.values.raw);
    s->score = ir_register(b, IR_F32, HEADS * KEYS);
    s->sums = ir_register(b, IR_F32, HEADS * ATTENTION_EIGHT);
    s->most = ir_register(b, IR_F32, HEADS);
    s->total = ir_register(b, IR_F32, HEADS);
    s->weight = ir_register(b, IR_F32, HEADS);
    s->top = ir_register(b, IR_F32, 1);
    s->zero = ir_u32(b, 0);
    s->lane = tile_rem(b, s->x.local, f->lanes);
    s->group = tile_div(b, s->x.local, f->lanes);
    s->column = tile_rem(b, s->x.local, columns);
    s->part = tile_div(b, s->x.local, columns);
}

/* ---- before the first key -------------------------------------------------------------------- */

/* Nothing, or the row's own key: its score is the highest so far, so its weight is 1. */
static void softmax_begin(shared *s) {
    ir_builder *b = s->k.b;
    const attention_lines *x = &s->x;
    ir_store(b, s->most, s->zero, ir_number(b, IR_F32, HEADS, ATTENTION_LEAST));
    ir_store(b, s->total, s->zero, ir_number(b, IR_F32, HEADS, 0));
    for (uint32_t h = 0; h < HEADS; h++)
        ir_store(b, s->sums, ir_u32(b, h * 8), ir_number(b, IR_F32, 8, 0));
    if (!s->a->k) return;
    ir_memory own_scores = ir_workgroup(b, IR_F32, HEADS);
    ir_if(b, x->fresh);
    ir_id head = ir_min(b, x->member, ir_u32(b, HEADS - 1)), sum = IR_NO_ID;
    ir_id line = ir_xor(b, head, tile_rem(b, x->lane, HEADS));
    for (uint32_t c = 0; c < x->eights; c++) {
        ir_id eight = tile_add(b, x->lane, c * x->lanes),
              own = line_eight(s, ir_u32(b, HEADS), eight), query = line_eight(s, line, eight);
        sum = c ? ir_fma(b, own, query, sum) : ir_mul(b, own, query);
    }
    ir_id score = attention_lanes_sum(&s->x, tile_sum_vector(b, sum));
    ir_if(b, ir_and(b, ir_eq(b, x->lane, s->zero), ir_lt(b, x->member, ir_u32(b, HEADS))));
    ir_store(b, own_scores, x->member, score);
    ir_end(b);
    ir_barrier(b);
    ir_store(b, s->most, s->zero, ir_load(b, own_scores, s->zero, HEADS));
    ir_if(b, ir_eq(b, x->local, s->zero));
    ir_store(b, s->total, s->zero, ir_number(b, IR_F32, HEADS, 1));
    ir_end(b);
    ir_if(b, ir_eq(b, s->part, s->zero));
    ir_id value = line_eight(s, ir_u32(b, HEADS + 1), s->column);
    for (uint32_t h = 0; h < HEADS; h++) ir_store(b, s->sums, ir_u32(b, h * 8), value);
    ir_end(b);
    ir_end(b);
}

/* ---- a tile ---------------------------------------------------------------------------------- */

/* Adds this lane's part of KEYS keys' scores. */
static void products(shared *s, const tile *t, ir_id first) {
    ir_builder *b = s->k.b;
    const form *f = &s->f;
    /* keys are below 2^31; only no compiler may know and repeat the text */
    ir_id begun = ir_loop(b, s->zero, tile_add(b, tile_shr(b, s->x.places.most, 31), f->eights),
                          ir_u32(b, f->ahead));
    for (uint32_t a = 0; a < f->ahead; a++) {
        ir_id keys[KEYS], turned[ATTENTION_EIGHT], eight = tile_add(b, begun, a);
        for (uint32_t i = 0; i < KEYS; i++)
            keys[i] = attention_cache_fetched(&s->x.keys, s->raw_keys, a * KEYS + i);
        for (uint32_t e = 0; e < ATTENTION_EIGHT; e++) {
            ir_id column[KEYS];
            for (uint32_t i = 0; i < KEYS; i++) column[i] = ir_extract(b, keys[i], e);
            turned[e] = ir_compose(b, column, KEYS);
        }
        if (f->eights > f->ahead) {
            ir_if(b, ir_lt(b, tile_add(b, begun, f->ahead), ir_u32(b, f->eights)));
            fetch_keys(s, t, first, tile_add(b, begun, f->ahead), a);
            ir_end(b);
        }
        for (uint32_t h = 0; h < HEADS; h++) {
            ir_id query =
                line_eight(s, ir_u32(b, h), ir_add(b, tile_mul(b, eight, f->lanes), s->lane));
            ir_id sum = ir_load(b, s->score, ir_u32(b, h * KEYS), KEYS);
            for (uint32_t e = 0; e < ATTENTION_EIGHT; e++)
                sum = ir_fma(b, turned[e], ir_splat(b, ir_extract(b, query, e), KEYS), sum);
            ir_store(b, s->score, ir_u32(b, h * KEYS), sum);
        }
    }
    ir_end(b);
}

static void scores(shared *s, const tile *t) {
    ir_builder *b = s->k.b;
    const form *f = &s->f;
    const uint32_t step = THREADS / f->lanes * KEYS;
    ir_set(b, s->top, ir_f32(b, ATTENTION_LEAST));
    ir_id round = ir_loop(b, s->zero, t->count, ir_u32(b, step)),
          first = ir_add(b, round, tile_mul(b, s->group, KEYS)), some = ir_lt(b, first, t->count);
    for (uint32_t h = 0; h < HEADS; h++)
        ir_store(b, s->score, ir_u32(b, h * KEYS), ir_number(b, IR_F32, KEYS, 0));
    ir_if(b, some);
    products(s, t, first);
    ir_id next = tile_add(b, first, step);
    ir_if(b, ir_lt(b, next, t->count));
    fetch_first(s, t, next);
    ir_end(b);
    ir_end(b);
    ir_id sums[HEADS];
    for (uint32_t h = 0; h < HEADS; h++) sums[h] = ir_load(b, s->score, ir_u32(b, h * KEYS), KEYS);
    for (uint32_t m = HEADS / 2; m; m /= 2)
        for (uint32_t h = 0; h < m; h++)
            sums[h] = ir_add(b, sums[h], ir_subgroup_shuffle_xor(b, sums[h + m], m));
    for (uint32_t m = HEADS; m < f->lanes; m *= 2)
        sums[0] = ir_add(b, sums[0], ir_subgroup_shuffle_xor(b, sums[0], m));
    ir_if(b, some);
    for (uint32_t i = 0; i < KEYS; i++)
        ir_set(b, s->top, larger(b, ir_get(b, s->top), ir_extract(b, sums[0], i)));
    ir_if(b, ir_lt(b, s->lane, ir_u32(b, HEADS)));
    ir_store(b, s->scores, ir_add(b, tile_mul(b, s->lane, f->tile), first), sums[0]);
    ir_end(b);
    ir_end(b);
    ir_end(b);
    ir_id top = ir_get(b, s->top);
    for (uint32_t m = f->lanes; m < f->line_lanes; m *= 2)
        top = larger(b, top, ir_subgroup_shuffle_xor(b, top, m));
    ir_if(b, ir_lt(b, s->x.lane, ir_u32(b, HEADS)));
    ir_store(b, s->tops, ir_add(b, tile_mul(b, s->x.member, HEADS), s->x.lane), top);
    ir_end(b);
}

/* The highest scores so far; `before` and the tile's. */
static ir_id highest(shared *s, ir_id before) {
    ir_builder *b = s->k.b;
    const uint32_t lanes = s->f.line_lanes, n = lines_of(&s->f) * HEADS;
    ir_id top = IR_NO_ID, heads[HEADS]; /* of head x.lane % HEADS */
    for (uint32_t i = 0; i < n; i += lanes) {
        ir_id one = ir_load(b, s->tops, tile_add(b, tile_rem(b, s->x.lane, n), i), 1);
        top = i ? larger(b, top, one) : one;
    }
    for (uint32_t m = HEADS; m < lanes; m *= 2)
        top = larger(b, top, ir_subgroup_shuffle_xor(b, top, m));
    for (uint32_t h = 0; h < HEADS; h++) heads[h] = ir_subgroup_broadcast(b, top, h);
    return larger(b, before, ir_compose(b, heads, HEADS));
}

static void weights(shared *s, const tile *t) {
    ir_builder *b = s->k.b;
    const form *f = &s->f;
    ir_id before = ir_load(b, s->most, s->zero, HEADS), now = highest(s, before),
          keep = ir_exp(b, ir_sub(b, before, now)), local = s->x.local;
    ir_store(b, s->weight, s->zero, ir_number(b, IR_F32, HEADS, 0));
    ir_if(b, ir_lt(b, local, t->count));
    ir_id own[HEADS];
    for (uint32_t h = 0; h < HEADS; h++)
        own[h] = ir_load(b, s->scores, tile_add(b, local, h * f->tile), 1);
    ir_store(b, s->weight, s->zero, ir_exp(b, ir_sub(b, ir_compose(b, own, HEADS), now)));
    ir_end(b);
    ir_id weight = ir_load(b, s->weight, s->zero, HEADS);
    if (f->tile < THREADS) ir_if(b, ir_lt(b, local, ir_u32(b, f->tile)));
    ir_store(b, s->weights, tile_mul(b, local, HEADS), weight);
    if (f->tile < THREADS) ir_end(b);
    ir_store(b, s->most, s->zero, now);
    ir_store(b, s->total, s->zero, ir_fma(b, ir_load(b, s->total, s->zero, HEADS), keep, weight));
    for (uint32_t h = 0; h < HEADS; h++)
        ir_store(b, s->sums, ir_u32(b, h * 8),
                 ir_mul(b, ir_load(b, s->sums, ir_u32(b, h * 8), 8),
                        ir_splat(b, ir_extract(b, keep, h), 8)));
}

static void values(shared *s, const tile *t) {
    ir_builder *b = s->k.b;
    const uint32_t step = s->f.parts * VALUES;
    ir_id first = ir_loop(b, tile_mul(b, s->part, VALUES), t->count, ir_u32(b, step));
    for (uint32_t i = 0; i < VALUES; i++) {
        ir_id value = attention_cache_fetched(&s->x.values, s->raw_values, i);
        fetch_value(s, t, tile_add(b, first, step), i);
        ir_id weight = ir_load(b, s->weights, tile_mul(b, tile_add(b, first, i), HEADS), HEADS);
        for (uint32_t h = 0; h < HEADS; h++) {
            ir_id at = ir_u32(b, h * 8), by = ir_splat(b, ir_extract(b, weight, h), 8);
            ir_store(b, s->sums, at, ir_fma(b, value, by, ir_load(b, s->sums, at, 8)));
        }
    }
    ir_end(b);
}

static void turn(shared *s, ir_id i) {
    ir_builder *b = s->k.b;
    const tile t = tile_at(s, i);
    ir_id next = tile_add(b, i, 1);
    scores(s, &t);
    for (uint32_t v = 0; v < VALUES; v++) fetch_value(s, &t, tile_mul(b, s->part, VALUES), v);
    ir_barrier(b);
    weights(s, &t);
    ir_barrier(b);
    ir_if(b, ir_lt(b, next, s->turns));
    const tile after = tile_at(s, next);
    fetch_first(s, &after, tile_mul(b, s->group, KEYS));
    ir_end(b);
    values(s, &t);
}

/* ---- the end --------------------------------------------------------------------------------- */

/* One after another: less memory, so that two workgroups find room on a unit. */
static void join_head(shared *s, uint32_t head) {
    ir_builder *b = s->k.b;
    const form *f = &s->f;
    const uint32_t d = s->a->d;
    ir_id x = ir_load(b, s->sums, ir_u32(b, head * 8), 8),
          to = ir_add(b, tile_mul(b, s->part, d), tile_mul(b, s->column, 4));
    ir_store(b, s->x.memory, to, ir_swizzle(b, x, 4, 0x3210));
    ir_store(b, s->x.memory, tile_add(b, to, d / 2), ir_swizzle(b, x, 4, 0x7654));
    ir_barrier(b);
    ir_id four = ir_loop(b, s->x.local, ir_u32(b, d / 4), ir_u32(b, THREADS)),
          at = attention_line_place(&s->x, 0, four);
    ir_id sum = ir_load(b, s->x.memory, at, 4), all = ir_load(b, s->totals, ir_u32(b, head), 1);
    for (uint32_t p = 1; p < f->parts; p++)
        sum = ir_add(b, sum, ir_load(b, s->x.memory, tile_add(b, at, p * d), 4));
    for (uint32_t g = 1; g < lines_of(f); g++)
        all = ir_add(b, all, ir_load(b, s->totals, ir_u32(b, head + g * HEADS), 1));
    ir_id most = ir_load(b, s->totals, ir_u32(b, head + lines_of(f) * HEADS), 1);
    attention_lines_result(&s->x, ir_u32(b, head), four, sum, most, all);
    ir_end(b);
}

static void join(shared *s) {
    ir_builder *b = s->k.b;
    ir_id total = ir_subgroup_add(b, ir_load(b, s->total, s->zero, HEADS));
    ir_if(b, ir_eq(b, s->x.lane, s->zero));
    ir_store(b, s->totals, tile_mul(b, s->x.member, HEADS), total);
    ir_end(b);
    ir_if(b, ir_eq(b, s->x.local, s->zero));
    ir_store(b, s->totals, ir_u32(b, lines_of(&s->f) * HEADS), ir_load(b, s->most, s->zero, HEADS));
    ir_end(b);
    for (uint32_t head = 0; head < HEADS; head++) {
        ir_barrier(b);
        join_head(s, head);
    }
}

static void bind(shared *s) {
    tile_kernel *k = &s->k;
    const attention_task *a = s->a;
    s->x = (attention_lines){.k = k,
                             .a = a,
                             .lanes = s->f.line_lanes,
                             .groups = lines_of(&s->f),
                             .heads = HEADS,
                             .turned = HEADS,
                             .eights = a->d / ATTENTION_EIGHT / s->f.line_lanes,
                             .sums = 1,
                             .subgroups = true,
                             .by_eights = true};
    attention_lines_bind(&s->x, false);
}

beryl_status attention_far(lowering *l, const attention_task *a) {
    shared s = {.a = a};
    if (!form_of(l->caps, a, &s.f)) return lower_refuse(l, l->node, "heads of this shape");
    tile_kernel *k = &s.k;
    ir_builder *b = tile_begin(k, l, a->raw ? "attention_step_far" : "attention_far", THREADS);
    ir_subgroup(b, s.f.line_lanes);
    bind(&s);
    declare(&s);
    attention_lines_load(&s.x);
    attention_lines_see(&s.x);
    ir_id all = ir_sub(b, s.x.of.end, s.x.of.first),
          span = tile_div(b, tile_add(b, all, a->n_split - 1), a->n_split);
    span = ir_max(b, span, ir_u32(b, PIECE_MIN));
    ir_id begin = ir_min(b, ir_mul(b, s.x.piece, span), all);
    s.count = ir_min(b, span, ir_sub(b, all, begin));
    s.ring = tile_rem(b, ir_add(b, s.x.of.first, begin), a->n_row);
    s.before = ir_min(b, s.count, ir_sub(b, ir_u32(b, a->n_row), s.ring));
    s.turns = ir_add(b, tiles(&s, s.before), tiles(&s, ir_sub(b, s.count, s.before)));
    ir_id some = ir_gt(b, s.count, s.zero);
    if (a->n_split > 1) ir_if(b, ir_or(b, some, s.x.fresh));
    ir_if(b, some);
    const tile first = tile_at(&s, s.zero);
    fetch_first(&s, &first, tile_mul(b, s.group, KEYS));
    ir_end(b);
    attention_lines_make(&s.x);
    ir_barrier(b);
    softmax_begin(&s);
    attention_lines_store_own(&s.x);
    ir_id i = ir_loop(b, s.zero, s.turns, ir_u32(b, 1));
    turn(&s, i);
    ir_end(b);
    join(&s);
    if (a->n_split > 1) {
        ir_else(b);
        attention_lines_nothing(&s.x);
        ir_end(b);
    }
    return tile_end_3d(k, (lower_count){a->n_split, 0}, 1, (lower_count){a->n_head / HEADS, 0}, 1,
                       a->rows);
}
