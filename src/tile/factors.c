/* factors.c - see tile/factors.h. */
#include "tile/factors.h"
#include "tile/vectors.h"

uint32_t tile_factors_bytes(uint32_t rows, uint32_t wg, uint32_t span) {
    return 4 * rows * (wg / span + 1);
}

void tile_factors_open(tile_factors *f) {
    ir_builder *b = f->m->k.b;
    f->parts = ir_workgroup(b, IR_F32, f->rows * (f->m->c.wg / f->m->c.span));
    if (!f->stored) f->made = ir_workgroup(b, IR_F32, f->rows);
}

/* Of n sums in each lane of a subgroup: each of its lanes is left with n / min(n, span) of them,
 * from the number on that is given. */
static ir_id joined(tile_factors *f, ir_id *sums, uint32_t *n) {
    tile_kernel *k = &f->m->k;
    ir_builder *b = k->b;
    ir_id lane = tile_rem(k, ir_local(b, 0), f->m->c.span), first = ir_u32(b, 0);
    uint32_t mask = f->m->c.span / 2;
    for (; mask && mask * 2 > *n; mask /= 2)
        for (uint32_t i = 0; i < *n; i++)
            sums[i] = ir_add(b, sums[i], ir_subgroup_shuffle_xor(b, sums[i], mask));
    for (; mask; mask /= 2) { /* the upper half goes to lanes with this bit, the lower to others */
        ir_id bit = tile_and(k, lane, mask), upper = ir_ne(b, bit, ir_u32(b, 0));
        *n /= 2;
        for (uint32_t i = 0; i < *n; i++) {
            ir_id keep = ir_select(b, upper, sums[i + *n], sums[i]),
                  give = ir_select(b, upper, sums[i], sums[i + *n]);
            sums[i] = ir_add(b, keep, ir_subgroup_shuffle_xor(b, give, mask));
        }
        first = ir_add(b, first, tile_mul(k, tile_div(k, bit, mask), *n));
    }
    return first;
}

/* The lane's e-th four of the row. */
static ir_id load(tile_factors *f, ir_id row, uint32_t e) {
    tile_kernel *k = &f->m->k;
    ir_builder *b = k->b;
    const uint32_t fours = f->m->length / 4;
    ir_id u = tile_matvec_own(f->m, e);
    if ((e + 1) * f->m->c.wg > fours) u = ir_min(b, u, ir_u32(b, fours - 1));
    return ir_load(b, f->a.from, ir_add(b, ir_fma(b, row, f->a.row, f->a.start), tile_mul(k, u, 4)),
                   4);
}

void tile_factors_fetch(tile_factors *f, uint32_t least) {
    const uint32_t each = tile_matvec_each(f->m);
    while (f->ahead + f->step <= least && (f->ahead + f->step) * each <= FACTORS_AHEAD_MAX)
        f->ahead += f->step;
    for (uint32_t i = 0; i < f->ahead; i++)
        for (uint32_t e = 0; e < each; e++)
            f->loaded[i * each + e] = load(f, tile_add(&f->m->k, f->begin, i), e);
}

/* Rows [row, row + step), loaded before: at `loaded`; NULL: now. */
static void add_step(tile_factors *f, ir_id row, const ir_id *loaded, const ir_id *x) {
    tile_kernel *k = &f->m->k;
    ir_builder *b = k->b;
    const uint32_t each = tile_matvec_each(f->m), span = f->m->c.span;
    ir_id sums[FACTORS_STEP], local = ir_local(b, 0);
    for (uint32_t i = 0; i < f->step; i++) {
        ir_id sum = IR_NO_ID;
        for (uint32_t e = 0; e < each; e++) {
            ir_id a = loaded ? loaded[i * each + e] : load(f, tile_add(k, row, i), e);
            a = ir_cast(b, IR_F32, a);
            sum = e ? ir_fma(b, a, x[e], sum) : ir_mul(b, a, x[e]);
        }
        sums[i] = tile_sum_vector(k, sum);
    }
    uint32_t n = f->step;
    ir_id first = joined(f, sums, &n);
    if (span > f->step) /* others have the same */
        ir_if(b, ir_lt(b, tile_rem(k, local, span), ir_u32(b, f->step)));
    first = ir_add(b, first, ir_add(b, row, tile_mul(k, tile_div(k, local, span), f->rows)));
    for (uint32_t i = 0; i < n; i++) ir_store(b, f->parts, tile_add(k, first, i), sums[i]);
    if (span > f->step) ir_end(b);
}

void tile_factors_add(tile_factors *f, const ir_id *x) {
    tile_kernel *k = &f->m->k;
    ir_builder *b = k->b;
    const uint32_t fours = f->m->length / 4, each = tile_matvec_each(f->m);
    ir_id own[VECTORS_OWN_MAX], row = f->begin;
    for (uint32_t e = 0; e < each; e++) {
        own[e] = x[e];
        if ((e + 1) * f->m->c.wg <= fours) continue;
        ir_id holds = ir_lt(b, tile_matvec_own(f->m, e), ir_u32(b, fours));
        own[e] = ir_select(b, ir_splat(b, holds, 4), x[e], ir_number(b, IR_F32, 4, 0));
    }
    for (uint32_t i = 0; i < f->ahead; i += f->step) {
        add_step(f, row, &f->loaded[i * each], own);
        row = tile_add(k, row, f->step);
    }
    if (f->ahead == f->rows) return;
    add_step(f, ir_loop(b, row, f->end, ir_u32(b, f->step)), NULL, own);
    ir_end(b);
}

void tile_factors_end(tile_factors *f) {
    tile_kernel *k = &f->m->k;
    ir_builder *b = k->b;
    const uint32_t wg = f->m->c.wg, runs = wg / f->m->c.span;
    for (uint32_t begin = 0; begin < f->rows; begin += wg) {
        ir_id row = tile_add(k, ir_local(b, 0), begin);
        ir_if(b, ir_and(b, ir_ge(b, row, f->begin), ir_lt(b, row, f->end)));
        ir_id sum = ir_load(b, f->parts, row, 1);
        for (uint32_t i = 1; i < runs; i++)
            sum = ir_add(b, sum, ir_load(b, f->parts, tile_add(k, row, i * f->rows), 1));
        ir_store(b, f->made, row, ir_mul(b, sum, ir_load(b, f->scales, row, 1)));
        ir_end(b);
    }
    if (!f->stored) ir_barrier(b);
}
