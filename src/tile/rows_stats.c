/* rows_stats.c - see tile/rows_inside.h: what a row is reduced to, from elements to lanes to the
 * number. The largest of softmax may be any where one is NaN, which the sum has too; amax and amin
 * are NaN then, so their lanes exchange what they have instead of asking for a maximum. */
#include "base/build.h"
#include "tile/pointwise.h"
#include "tile/rows_inside.h"

#include <math.h>

#define LEAST(type) ((type) == IR_F64 ? -1.7976931348623157e308 : -3.4028234663852886e38)

static bool is_extreme(tree_stat_kind kind) {
    return kind == TREE_AMAX || kind == TREE_AMIN;
}

ir_id rows_neutral(rows *r, tree_stat_kind kind, uint32_t width) {
    const double x = kind == TREE_LARGEST ? LEAST(r->walk.t.real)
                     : is_extreme(kind)   ? (double)(kind == TREE_AMAX ? -INFINITY : INFINITY)
                                          : 0;
    return ir_number(r->walk.k->b, r->walk.t.real, width, x);
}

ir_id rows_join(rows *r, tree_stat_kind kind, ir_id x, ir_id y) {
    ir_builder *b = r->walk.k->b;
    if (!BUILD_IS_SMALL && is_extreme(kind))
        return tile_pointwise(r->walk.k, kind == TREE_AMAX ? OP_MAX : OP_MIN, NULL,
                              (ir_id[]){x, y});
    return kind == TREE_LARGEST ? ir_max(b, x, y) : ir_add(b, x, y);
}

ir_id rows_gather(rows *r, tree_stat_kind kind, ir_id sum, ir_id x) {
    return kind == TREE_RMS_OVER ? ir_fma(r->walk.k->b, x, x, sum) : rows_join(r, kind, sum, x);
}

ir_id rows_swapped(rows *r, ir_id x, uint32_t step) {
    ir_builder *b = r->walk.k->b;
    if (step < r->f.subgroup) return ir_subgroup_shuffle_xor(b, x, step);
    const ir_memory at = ir_workgroup(b, r->walk.t.real, r->f.lanes * r->f.rows);
    const ir_id local = ir_local(b, 0);
    ir_store(b, at, local, x);
    ir_barrier(b);
    return ir_load(b, at, ir_xor(b, local, ir_u32(b, step)), 1);
}

/* x of the row's lanes, joined, in all of them. Each call has memory of its own, so no two meet. */
static ir_id join_lanes(rows *r, ir_op op, ir_id x) {
    ir_builder *b = r->walk.k->b;
    const form *f = &r->f;
    if (f->lanes == 1) return x;
    const ir_id local = ir_local(b, 0);
    if (!f->subgroup) {
        const ir_memory at = ir_workgroup(b, r->walk.t.real, f->lanes * f->rows);
        ir_store(b, at, local, x);
        for (uint32_t half = f->lanes / 2; half > 0; half /= 2) {
            ir_barrier(b);
            ir_if(b, ir_lt(b, r->lane, ir_u32(b, half)));
            ir_store(b, at, local,
                     ir_binary(b, op, ir_load(b, at, local, 1),
                               ir_load(b, at, tile_add(b, local, half), 1)));
            ir_end(b);
        }
        ir_barrier(b);
        return ir_load(b, at, ir_sub(b, local, r->lane), 1);
    }
    x = op == IR_MAX ? ir_subgroup_max(b, x) : ir_subgroup_add(b, x);
    if (f->lanes == f->subgroup) return x;
    const uint32_t n = f->lanes / f->subgroup, wide = n < 4 ? n : 4;
    const ir_memory at = ir_workgroup(b, r->walk.t.real, n * f->rows);
    ir_if(b, ir_eq(b, ir_subgroup_lane(b), ir_u32(b, 0)));
    ir_store(b, at, tile_div(b, local, f->subgroup), x);
    ir_end(b);
    ir_barrier(b);
    const ir_id first = tile_div(b, ir_sub(b, local, r->lane), f->subgroup);
    ir_id all = ir_load(b, at, first, wide);
    for (uint32_t i = wide; i < n; i += wide)
        all = ir_binary(b, op, all, ir_load(b, at, tile_add(b, first, i), wide));
    return op == IR_MAX ? tile_max_vector(b, all) : tile_sum_vector(b, all);
}

/* The largest or smallest of a vector, then of all lanes. */
static ir_id extreme(rows *r, tree_stat_kind kind, ir_id vector) {
    ir_id x = ir_extract(r->walk.k->b, vector, 0);
    for (uint32_t i = 1; i < r->f.wide; i++)
        x = rows_join(r, kind, x, ir_extract(r->walk.k->b, vector, i));
    for (uint32_t step = 1; step < r->f.lanes; step *= 2)
        x = rows_join(r, kind, x, rows_swapped(r, x, step));
    return x;
}

/* How many a mean is over. */
static ir_id divisor(const rows *r, const tree_stat *s) {
    ir_builder *b = r->walk.k->b;
    const ir_type real = r->walk.t.real;
    if (!s->correction) return r->count;
    return ir_max(b, ir_sub(b, r->count, ir_number(b, real, 1, s->correction)),
                  ir_number(b, real, 1, 0));
}

void rows_finish_stat(rows *r, tree_stat *s, ir_id vector) {
    ir_builder *b = r->walk.k->b;
    if (!BUILD_IS_SMALL && is_extreme(s->kind)) {
        s->result = extreme(r, s->kind, vector);
        return;
    }
    const bool largest = s->kind == TREE_LARGEST;
    const ir_id one = largest ? tile_max_vector(b, vector) : tile_sum_vector(b, vector);
    const ir_id all = join_lanes(r, largest ? IR_MAX : IR_ADD, one);
    s->result = s->kind == TREE_MEAN ? ir_div(b, all, divisor(r, s)) : all;
    if (s->kind == TREE_SUM_OVER) s->result = ir_div(b, ir_number(b, r->walk.t.real, 1, 1), all);
    if (s->kind != TREE_RMS_OVER) return;
    const ir_id eps = ir_number(b, r->walk.t.real, 1, (double)s->eps),
                squares = tree_variance(&r->walk, s, ir_div(b, all, r->count)),
                mean = ir_add(b, squares, eps);
    s->result = ir_div(b, ir_number(b, r->walk.t.real, 1, 1), ir_sqrt(b, mean));
}
