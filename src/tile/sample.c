/* sample.c - the kernel of sampling: a token from logits, by the rule of
 * base/sample.h.
 *
 * The best of each of up to 1,024 parts of a row; the k-th best of these bounds the k best
 * elements from below, so few elements are listed; of a short list the lanes count for each
 * element how many are better, from a long one the best are taken one by one; and one lane adds
 * up and draws as the rule says. Four small kernels, none of which depends on
 * how many lanes it has. NaN counts as minus infinity. */
#include "tile/kernel.h"
#include "base/build.h"
#include "base/error.h"
#include "base/sample.h"
#include "tile/random.h"

enum { PARTS_MAX = 1024, REGIONS_MAX = 64, REGION_MIN = 4096, SHORT_MAX = 512 };
enum { VECTOR_LANES = 16 /* where a barrier costs more than the turns of a lane */ };
enum { SCRATCH_BEST, SCRATCH_BOUND, SCRATCH_LIST, SCRATCH_COUNTS };
/* words of the settings */
enum { SET_TEMPERATURE, SET_TOP_P, SET_MIN_P, SET_TOP_K, SET_SEED, SET_COUNTER = SET_SEED + 2 };

typedef struct sampling {
    const graph_tensor *x, *settings;
    tile_parts parts, regions;
} sampling;

static ir_id setting(ir_builder *b, ir_memory settings, ir_id row, ir_id offset, const sampling *s,
                     uint32_t word) {
    ir_id at = tile_add(b, ir_add(b, offset, tile_mul(b, row, s->settings->stride[0])), word);
    return ir_load(b, settings, at, 1);
}

/* How many candidates the row's settings ask for, at most d. */
static ir_id wanted_of(ir_builder *b, ir_memory settings, ir_id row, ir_id offset,
                       const sampling *s) {
    ir_id top_k = setting(b, settings, row, offset, s, SET_TOP_K),
          most = ir_u32(b, BASE_CANDIDATE_MAX);
    ir_id all = ir_eq(b, top_k, ir_u32(b, 0)),
          hot = ir_bitcast(b, IR_F32, 1, setting(b, settings, row, offset, s, SET_TEMPERATURE));
    ir_id n = ir_select(b, ir_gt(b, hot, ir_f32(b, 0)),
                        ir_select(b, all, most, ir_min(b, top_k, most)), ir_u32(b, 1));
    return ir_min(b, n, ir_u32(b, s->x->dim[1].size));
}

static ir_id first_lane(tile_kernel *k) {
    return k->lanes == 1 ? ir_u32(k->b, 0) : ir_local(k->b, 0);
}

/* Where a workgroup's lanes become vectors: one subgroup, without a barrier or memory. */
static bool is_one_subgroup(const lowering *l) {
    return device_makes_vectors(l->caps) && l->caps->subgroups && l->caps->subgroup_size > 1;
}

/* Lanes of a subgroup that counts are added over by shuffles; 0: by a tree. */
static uint32_t span_of(const lowering *l) {
    const device_caps *caps = l->caps;
    if (is_one_subgroup(l)) return caps->subgroup_size;
    if (tile_serial(l) || !caps->subgroups || caps->subgroup_size < 8) return 0;
    return tile_span(caps);
}

/* x of all lanes added up, in turn `turn` of a loop. With shuffles one barrier a turn is enough:
 * turns write two halves of the memory in turn, and who writes one again has passed the barrier
 * of the turn between. */
static ir_id count_all(tile_kernel *k, ir_id x, ir_memory joined, ir_id turn, uint32_t span) {
    ir_builder *b = k->b;
    if (!span) return tile_reduce(k, IR_ADD, x, joined);
    const uint32_t runs = k->lanes / span;
    if (runs == 1) return ir_subgroup_add(b, x);
    ir_id first = tile_mul(b, tile_and(b, turn, 1), runs), sum = ir_subgroup_add(b, x);
    ir_if(b, ir_eq(b, ir_subgroup_lane(b), ir_u32(b, 0)));
    ir_store(b, joined, ir_add(b, first, tile_div(b, ir_local(b, 0), span)), sum);
    ir_end(b);
    ir_barrier(b);
    sum = ir_load(b, joined, first, 1);
    for (uint32_t i = 1; i < runs; i++)
        sum = ir_add(b, sum, ir_load(b, joined, tile_add(b, first, i), 1));
    return sum;
}

/* (order, ~index) of a part's best. */
static void load_best(ir_builder *b, const sampling *s, ir_memory best, ir_id row, ir_id part,
                      ir_id *order, ir_id *index) {
    const ir_id at = tile_mul(b, ir_add(b, tile_mul(b, row, s->parts.n), part), 2);
    *order = ir_load(b, best, at, 1);
    *index = ir_not(b, ir_load(b, best, tile_add(b, at, 1), 1));
}

/* bound [n, 2]: (order, ~index), found bit by bit from above: the largest that k parts reach, which
 * is the k-th best part; or the first that no more than k reach, seen every TURNS bits
 * (modules have no room for it). Where lanes have few parts each, they hold them. */
static beryl_status lower_bound(lowering *l, const graph_node *node, const sampling *s) {
    enum { HELD = 4, TURNS = 8 };
    uint32_t bits = 0; /* of an index; the others of ~index are ones */
    while (bits < 32 && (s->x->dim[1].size - 1) >> bits) bits++;
    tile_kernel k;
    uint32_t lanes = is_one_subgroup(l) ? l->caps->subgroup_size : tile_lanes(l, s->parts.n * 64);
    if (device_makes_vectors(l->caps) && lanes > VECTOR_LANES) lanes = VECTOR_LANES;
    ir_builder *b = tile_begin(&k, l, "sample_bound", lanes);
    const uint32_t shuffles = span_of(l), span = shuffles && lanes % shuffles == 0 ? shuffles : 0,
                   each = (s->parts.n + k.lanes - 1) / k.lanes;
    if (span) ir_subgroup(b, span);
    ir_memory best = tile_scratch(&k, "best", SCRATCH_BEST, 0, IR_U32, IR_READ),
              settings = tile_read(&k, "settings", node->in[1]);
    ir_memory out = tile_scratch(&k, "bound", SCRATCH_BOUND, (uint64_t)s->x->dim[0].size * 8,
                                 IR_U32, IR_READ_WRITE);
    ir_id n = tile_count(&k, "n", lower_count_of(s->x->dim[0])),
          offset = tile_u32(&k, "settings_offset", s->settings->offset);
    ir_memory high = ir_register(b, IR_U32, 1), low = ir_register(b, IR_U32, 1),
              count = ir_register(b, IR_U32, 1);
    const bool alone = k.lanes == 1 || span == lanes, ends = !BUILD_IS_MODULE && !alone;
    ir_memory joined = alone ? count : ir_workgroup(b, IR_U32, k.lanes),
              end = ends ? ir_workgroup(b, IR_U32, 1) : count,
              found = ends ? ir_register(b, IR_U32, 1) : count;
    ir_id row = tile_group(b), orders[HELD], indices[HELD], there[HELD];
    ir_if(b, ir_lt(b, row, n));
    ir_id wanted = wanted_of(b, settings, row, offset, s), zero = ir_u32(b, 0), one = ir_u32(b, 1);
    ir_set(b, high, zero);
    ir_set(b, low, ir_u32(b, ~(uint32_t)((UINT64_C(1) << bits) - 1)));
    ir_if(b, ir_lt(b, wanted, ir_u32(b, s->parts.n)));
    for (uint32_t e = 0; each <= HELD && e < each; e++) {
        ir_id i = tile_add(b, first_lane(&k), e * k.lanes);
        there[e] = ir_lt(b, i, ir_u32(b, s->parts.n));
        load_best(b, s, best, row, ir_min(b, i, ir_u32(b, s->parts.n - 1)), &orders[e],
                  &indices[e]);
    }
    const ir_id all_turns = ir_u32(b, 32 + bits);
    ir_id turn = IR_NO_ID;
    if (!ends) {
        turn = ir_loop(b, zero, all_turns, one);
    } else {
        ir_set(b, found, zero);
        ir_id begin = ir_loop(b, zero, all_turns, ir_u32(b, TURNS));
        ir_if(b, ir_eq(b, ir_local(b, 0), zero));
        ir_store(b, end, zero,
                 ir_select(b, ir_eq(b, ir_get(b, found), wanted), begin,
                           ir_min(b, tile_add(b, begin, TURNS), all_turns)));
        ir_end(b);
        turn = ir_loop(b, begin, ir_uniform_load(b, end, zero), one);
    }
    ir_id upper = ir_lt(b, turn, ir_u32(b, 32));
    ir_id bit = ir_sub(b, ir_select(b, upper, ir_u32(b, 31), ir_u32(b, 31 + bits)), turn),
          mask = ir_shl(b, one, bit);
    ir_id try_high = ir_or(b, ir_get(b, high), ir_select(b, upper, mask, zero));
    ir_id try_low = ir_or(b, ir_get(b, low), ir_select(b, upper, zero, mask));
    ir_set(b, count, zero);
    const bool held = each <= HELD;
    for (uint32_t e = 0; e < (held ? each : 1); e++) {
        ir_id i = held ? IR_NO_ID
                       : ir_loop(b, first_lane(&k), ir_u32(b, s->parts.n), ir_u32(b, k.lanes)),
              order, index;
        if (held) order = orders[e], index = indices[e];
        else load_best(b, s, best, row, i, &order, &index);
        ir_id reaches = ir_or(b, ir_gt(b, order, try_high),
                              ir_and(b, ir_eq(b, order, try_high), ir_ge(b, index, try_low)));
        if (held) reaches = ir_and(b, reaches, there[e]);
        ir_set(b, count, ir_add(b, ir_get(b, count), ir_cast(b, IR_U32, reaches)));
        if (!held) ir_end(b);
    }
    ir_id n_reach = count_all(&k, ir_get(b, count), joined, turn, span),
          many = ir_ge(b, n_reach, wanted);
    if (ends) ir_set(b, found, ir_select(b, many, n_reach, ir_get(b, found)));
    ir_set(b, high, ir_select(b, many, try_high, ir_get(b, high)));
    ir_set(b, low, ir_select(b, many, try_low, ir_get(b, low)));
    ir_end(b);
    if (ends) ir_end(b);
    ir_end(b);
    if (k.lanes > 1) ir_if(b, ir_eq(b, ir_local(b, 0), zero));
    ir_id to = tile_mul(b, row, 2);
    ir_store(b, out, to, ir_get(b, high));
    ir_store(b, out, tile_add(b, to, 1), ir_get(b, low));
    if (k.lanes > 1) ir_end(b);
    ir_end(b);
    return tile_end(&k, lower_count_of(s->x->dim[0]), 1);
}

/* list [n, d]: region r of a row, [r * size, ...), holds the indices from the bound on that were
 * found there; counts [n, regions]. */
static beryl_status lower_list(lowering *l, const graph_node *node, const sampling *s) {
    const uint32_t d = s->x->dim[1].size;
    tile_kernel k;
    ir_builder *b = tile_begin(&k, l, "sample_list", tile_lanes(l, s->regions.size));
    ir_memory x = tile_read(&k, "x", node->in[0]),
              bound = tile_scratch(&k, "bound", SCRATCH_BOUND, 0, IR_U32, IR_READ);
    ir_memory list = tile_scratch(&k, "list", SCRATCH_LIST, (uint64_t)s->x->dim[0].size * d * 4,
                                  IR_U32, IR_READ_WRITE);
    ir_memory counts =
        tile_scratch(&k, "counts", SCRATCH_COUNTS, (uint64_t)s->x->dim[0].size * s->regions.n * 4,
                     IR_U32, IR_READ_WRITE);
    ir_id n = tile_count(&k, "n", lower_count_of(s->x->dim[0])),
          x_offset = tile_u32(&k, "x_offset", s->x->offset);
    ir_memory listed = ir_workgroup(b, IR_U32, 1);
    ir_id group = tile_group(b), row = tile_div(b, group, s->regions.n),
          region = tile_rem(b, group, s->regions.n);
    ir_if(b, ir_lt(b, row, n));
    ir_id zero = ir_u32(b, 0), start = tile_mul(b, region, s->regions.size);
    ir_id end = ir_min(b, tile_add(b, start, s->regions.size), ir_u32(b, d));
    ir_id high = ir_load(b, bound, tile_mul(b, row, 2), 1),
          low = ir_load(b, bound, tile_add(b, tile_mul(b, row, 2), 1), 1);
    if (k.lanes > 1) ir_if(b, ir_eq(b, ir_local(b, 0), zero));
    ir_store(b, listed, zero, zero);
    if (k.lanes > 1) ir_end(b);
    ir_barrier(b);
    ir_id base = ir_add(b, x_offset, tile_mul(b, row, s->x->stride[0])),
          to = ir_add(b, tile_mul(b, row, d), start);
    ir_id i = ir_loop(b, k.lanes == 1 ? start : ir_add(b, start, ir_local(b, 0)), end,
                      ir_u32(b, k.lanes));
    ir_id order = tile_order(b, ir_load(b, x, ir_add(b, base, i), 1), TILE_LOWEST);
    ir_if(b, ir_or(b, ir_gt(b, order, high),
                   ir_and(b, ir_eq(b, order, high), ir_ge(b, ir_not(b, i), low))));
    ir_store(b, list, ir_add(b, to, ir_atomic(b, IR_ATOMIC_ADD, listed, zero, ir_u32(b, 1))), i);
    ir_end(b);
    ir_end(b);
    ir_barrier(b);
    if (k.lanes > 1) ir_if(b, ir_eq(b, ir_local(b, 0), zero));
    ir_store(b, counts, group, ir_load(b, listed, zero, 1));
    if (k.lanes > 1) ir_end(b);
    ir_end(b);
    return tile_end(&k, lower_count_times(lower_count_of(s->x->dim[0]), s->regions.n), 1);
}

/* workgroup arrays [256]: logits, p, indices */
typedef struct drawing {
    ir_memory values, weights, indices;
    ir_id n;
} drawing;

/* Of all candidates, by all lanes. */
static void weigh(tile_kernel *k, const drawing *w, ir_id temperature) {
    ir_builder *b = k->b;
    ir_id zero = ir_u32(b, 0), first = ir_load(b, w->values, zero, 1),
          i = ir_loop(b, first_lane(k), w->n, ir_u32(b, k->lanes)),
          value = ir_load(b, w->values, i, 1);
    ir_id lowest = ir_le(b, value, ir_f32(b, -3.4028234663852886e38f));
    ir_id p = ir_exp(b, ir_div(b, ir_sub(b, value, first), temperature));
    ir_store(b, w->weights, i, ir_select(b, lowest, ir_f32(b, 0), p));
    ir_end(b);
    ir_barrier(b);
}

/* As base_sample does it, in the same order. */
static ir_id draw(ir_builder *b, const drawing *w, ir_id top_p, ir_id min_p, ir_id random) {
    ir_memory total = ir_register(b, IR_F32, 1), sum = ir_register(b, IR_F32, 1),
              keep = ir_register(b, IR_U32, 1);
    ir_memory closed = ir_register(b, IR_U32, 1), chosen = ir_register(b, IR_U32, 1);
    ir_id zero = ir_u32(b, 0), one = ir_u32(b, 1), nothing = ir_f32(b, 0);
    ir_set(b, total, nothing);
    ir_id i = ir_loop(b, zero, w->n, one), p = ir_load(b, w->weights, i, 1);
    ir_set(b, total, ir_add(b, ir_get(b, total), p));
    ir_end(b);
    ir_set(b, sum, nothing);
    ir_set(b, keep, zero);
    ir_set(b, closed, zero);
    ir_id cuts = ir_and(b, ir_gt(b, top_p, nothing), ir_lt(b, top_p, ir_f32(b, 1))),
          limit = ir_mul(b, top_p, ir_get(b, total));
    ir_id least = ir_mul(b, min_p, ir_load(b, w->weights, zero, 1)), any = ir_le(b, min_p, nothing);
    i = ir_loop(b, zero, w->n, one);
    p = ir_load(b, w->weights, i, 1);
    ir_id below = ir_or(b, ir_not(b, cuts), ir_lt(b, ir_get(b, sum), limit));
    ir_id good = ir_or(b, ir_eq(b, i, zero), ir_and(b, below, ir_or(b, any, ir_ge(b, p, least))));
    ir_if(b, ir_and(b, good, ir_eq(b, ir_get(b, closed), zero)));
    ir_set(b, sum, ir_add(b, ir_get(b, sum), p));
    ir_set(b, keep, tile_add(b, i, 1));
    ir_else(b);
    ir_set(b, closed, one);
    ir_end(b);
    ir_end(b);
    ir_id unit =
        ir_mul(b, ir_cast(b, IR_F32, tile_shr(b, random, 8)), ir_f32(b, 1.0f / 16777216.0f));
    ir_id aim = ir_mul(b, unit, ir_get(b, sum)), n_kept = ir_get(b, keep);
    ir_set(b, sum, nothing);
    ir_set(b, chosen, ir_sub(b, n_kept, one));
    ir_set(b, closed, zero);
    i = ir_loop(b, zero, n_kept, one);
    ir_id so_far = ir_add(b, ir_get(b, sum), ir_load(b, w->weights, i, 1));
    ir_set(b, sum, so_far);
    ir_if(b, ir_and(b, ir_gt(b, so_far, aim), ir_eq(b, ir_get(b, closed), zero)));
    ir_set(b, chosen, i);
    ir_set(b, closed, one);
    ir_end(b);
    ir_end(b);
    return ir_load(b, w->indices, ir_get(b, chosen), 1);
}

/* The best of the listed ones that come after (last, last_index); leaves it in both registers of
 * every lane. */
static void take_next(tile_kernel *k, const sampling *s, ir_memory x, ir_memory list,
                      ir_memory counts, ir_id row, ir_id base, ir_memory last, ir_memory last_index,
                      ir_memory joined) {
    ir_builder *b = k->b;
    ir_memory order = ir_register(b, IR_U32, 1), index = ir_register(b, IR_U32, 1);
    ir_id zero = ir_u32(b, 0), none = ir_u32(b, UINT32_MAX), before = ir_get(b, last),
          before_index = ir_get(b, last_index);
    ir_set(b, order, zero);
    ir_set(b, index, none);
    ir_id region = ir_loop(b, zero, ir_u32(b, s->regions.n), ir_u32(b, 1));
    ir_id n = ir_load(b, counts, ir_add(b, tile_mul(b, row, s->regions.n), region), 1);
    ir_id from =
        ir_add(b, tile_mul(b, row, s->x->dim[1].size), tile_mul(b, region, s->regions.size));
    ir_id i = ir_loop(b, first_lane(k), n, ir_u32(b, k->lanes)),
          one = ir_load(b, list, ir_add(b, from, i), 1);
    ir_id key = tile_order(b, ir_load(b, x, ir_add(b, base, one), 1), TILE_LOWEST);
    ir_id after = ir_or(b, ir_lt(b, key, before),
                        ir_and(b, ir_eq(b, key, before), ir_gt(b, one, before_index)));
    ir_id better =
        ir_or(b, ir_gt(b, key, ir_get(b, order)),
              ir_and(b, ir_eq(b, key, ir_get(b, order)), ir_lt(b, one, ir_get(b, index))));
    ir_if(b, ir_and(b, after, better));
    ir_set(b, order, key);
    ir_set(b, index, one);
    ir_end(b);
    ir_end(b);
    ir_end(b);
    ir_id own = ir_get(b, order), top = tile_reduce(k, IR_MAX, own, joined);
    ir_set(
        b, last_index,
        tile_reduce(k, IR_MIN, ir_select(b, ir_eq(b, own, top), ir_get(b, index), none), joined));
    ir_set(b, last, top);
}

/* Candidate `rank`. */
static void keep(tile_kernel *k, const drawing *w, ir_memory x, ir_id base, ir_id rank, ir_id order,
                 ir_id index) {
    ir_builder *b = k->b;
    ir_id lowest = ir_eq(b, order, ir_u32(b, TILE_LOWEST));
    ir_store(b, w->values, rank,
             ir_select(b, lowest, ir_bits(b, IR_F32, 1, 0xff800000u),
                       ir_load(b, x, ir_add(b, base, index), 1)));
    ir_store(b, w->indices, rank, index);
}

/* The listed ones in workgroup memory, as far as there is room: [SHORT_MAX], in any order. How many
 * there are; the same in all lanes. */
static ir_id gather(tile_kernel *k, const sampling *s, ir_memory x, ir_memory list,
                    ir_memory counts, ir_id row, ir_id base, ir_memory orders, ir_memory indices,
                    ir_memory joined) {
    ir_builder *b = k->b;
    const uint32_t each = k->lanes > s->regions.n ? k->lanes / s->regions.n : 1;
    ir_memory filled = ir_workgroup(b, IR_U32, 1);
    ir_id zero = ir_u32(b, 0), local = ir_local(b, 0), is_first = ir_eq(b, local, zero);
    ir_if(b, is_first);
    ir_store(b, filled, zero, zero);
    ir_end(b);
    ir_barrier(b);
    ir_id region = ir_loop(b, tile_div(b, local, each), ir_u32(b, s->regions.n),
                           ir_u32(b, (k->lanes + each - 1) / each));
    ir_id n = ir_load(b, counts, ir_add(b, tile_mul(b, row, s->regions.n), region), 1);
    ir_id from =
        ir_add(b, tile_mul(b, row, s->x->dim[1].size), tile_mul(b, region, s->regions.size));
    ir_id i = ir_loop(b, tile_rem(b, local, each), n, ir_u32(b, each)),
          index = ir_load(b, list, ir_add(b, from, i), 1);
    ir_id order = tile_order(b, ir_load(b, x, ir_add(b, base, index), 1), TILE_LOWEST);
    ir_id place = ir_atomic(b, IR_ATOMIC_ADD, filled, zero, ir_u32(b, 1));
    ir_if(b, ir_lt(b, place, ir_u32(b, SHORT_MAX)));
    ir_store(b, orders, place, order);
    ir_store(b, indices, place, index);
    ir_end(b);
    ir_end(b);
    ir_end(b);
    ir_barrier(b);
    ir_if(b, is_first);
    ir_store(b, joined, zero, ir_load(b, filled, zero, 1));
    ir_end(b);
    return ir_uniform_load(b, joined, zero);
}

/* Each of the n gathered ones to its rank, if it is a candidate. */
static void rank(tile_kernel *k, const drawing *w, ir_memory x, ir_id base, ir_memory orders,
                 ir_memory indices, ir_id n) {
    ir_builder *b = k->b;
    ir_memory better = ir_register(b, IR_U32, 1);
    ir_id zero = ir_u32(b, 0), i = ir_loop(b, ir_local(b, 0), n, ir_u32(b, k->lanes)),
          order = ir_load(b, orders, i, 1), index = ir_load(b, indices, i, 1);
    ir_set(b, better, zero);
    ir_id other = ir_loop(b, zero, n, ir_u32(b, 1)), its = ir_load(b, orders, other, 1);
    ir_id before = ir_and(b, ir_eq(b, its, order), ir_lt(b, ir_load(b, indices, other, 1), index));
    before = ir_cast(b, IR_U32, ir_or(b, ir_gt(b, its, order), before));
    ir_set(b, better, ir_add(b, ir_get(b, better), before));
    ir_end(b);
    ir_if(b, ir_lt(b, ir_get(b, better), w->n));
    keep(k, w, x, base, ir_get(b, better), order, index);
    ir_end(b);
    ir_end(b);
}

static beryl_status lower_draw(lowering *l, const graph_node *node, const sampling *s) {
    tile_kernel k;
    ir_builder *b = tile_begin(&k, l, "sample_draw", tile_lanes(l, 512 * BASE_CANDIDATE_MAX));
    ir_memory x = tile_read(&k, "x", node->in[0]),
              settings = tile_read(&k, "settings", node->in[1]);
    ir_memory list = tile_scratch(&k, "list", SCRATCH_LIST, 0, IR_U32, IR_READ);
    ir_memory counts = tile_scratch(&k, "counts", SCRATCH_COUNTS, 0, IR_U32, IR_READ),
              out = tile_write(&k, "out", node->out[0]);
    ir_id rows = tile_count(&k, "n", lower_count_of(s->x->dim[0])),
          x_offset = tile_u32(&k, "x_offset", s->x->offset);
    ir_id offset = tile_u32(&k, "settings_offset", s->settings->offset);
    drawing w = {ir_workgroup(b, IR_F32, BASE_CANDIDATE_MAX),
                 ir_workgroup(b, IR_F32, BASE_CANDIDATE_MAX),
                 ir_workgroup(b, IR_U32, BASE_CANDIDATE_MAX), 0};
    ir_memory last = ir_register(b, IR_U32, 1), last_index = ir_register(b, IR_U32, 1);
    ir_memory joined = k.lanes > 1 ? ir_workgroup(b, IR_U32, k.lanes) : last;
    ir_id row = tile_group(b);
    ir_if(b, ir_lt(b, row, rows));
    ir_id zero = ir_u32(b, 0), base = ir_add(b, x_offset, tile_mul(b, row, s->x->stride[0]));
    w.n = wanted_of(b, settings, row, offset, s);
    if (k.lanes > 1) {
        ir_memory orders = ir_workgroup(b, IR_U32, SHORT_MAX),
                  indices = ir_workgroup(b, IR_U32, SHORT_MAX);
        ir_id found = gather(&k, s, x, list, counts, row, base, orders, indices, joined);
        ir_if(b, ir_le(b, found, ir_u32(b, SHORT_MAX)));
        rank(&k, &w, x, base, orders, indices, found);
        ir_else(b);
    }
    ir_set(b, last, ir_u32(b, UINT32_MAX));
    ir_set(b, last_index, zero);
    ir_id turn = ir_loop(b, zero, w.n, ir_u32(b, 1));
    take_next(&k, s, x, list, counts, row, base, last, last_index, joined);
    if (k.lanes > 1) ir_if(b, ir_eq(b, ir_local(b, 0), zero));
    keep(&k, &w, x, base, turn, ir_get(b, last), ir_get(b, last_index));
    if (k.lanes > 1) ir_end(b);
    ir_end(b);
    if (k.lanes > 1) ir_end(b);
    ir_barrier(b);
    ir_id words[SET_COUNTER + 1];
    for (uint32_t i = 0; i <= SET_COUNTER; i++) words[i] = setting(b, settings, row, offset, s, i);
    ir_id hot = ir_bitcast(b, IR_F32, 1, words[SET_TEMPERATURE]);
    weigh(&k, &w, ir_select(b, ir_gt(b, hot, ir_f32(b, 0)), hot, ir_f32(b, 1)));
    if (k.lanes > 1) ir_if(b, ir_eq(b, ir_local(b, 0), zero));
    ir_id drawn[2];
    tile_threefry(b, words[SET_SEED], words[SET_SEED + 1], words[SET_COUNTER], ir_u32(b, 0), drawn);
    const ir_id random = drawn[0];
    ir_id chosen = draw(b, &w, ir_bitcast(b, IR_F32, 1, words[SET_TOP_P]),
                        ir_bitcast(b, IR_F32, 1, words[SET_MIN_P]), random);
    ir_store(b, out, row, ir_cast(b, IR_I32, chosen));
    if (k.lanes > 1) ir_end(b);
    ir_end(b);
    return tile_end(&k, lower_count_of(s->x->dim[0]), 1);
}

beryl_status tile_sample(lowering *l, const graph_node *node) {
    sampling s = {.x = graph_tensor_at(l->g, node->in[0]),
                  .settings = graph_tensor_at(l->g, node->in[1])};
    const uint32_t d = s.x->dim[1].size;
    s.parts = tile_parts_of(d, PARTS_MAX, 1);
    s.regions = tile_parts_of(d, REGIONS_MAX, REGION_MIN);
    /* checks the rows */
    beryl_status status = tile_best(l, node, s.parts, SCRATCH_BEST, TILE_LOWEST);
    if (status == BERYL_OK) status = lower_bound(l, node, &s);
    if (status == BERYL_OK) status = lower_list(l, node, &s);
    if (status == BERYL_OK) status = lower_draw(l, node, &s);
    return status;
}
