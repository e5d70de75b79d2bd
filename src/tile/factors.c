/* factors.c - see tile/factors.h. */
#include "tile/factors.h"
#include "tile/vectors.h"

uint32_t tile_factors_bytes(uint32_t rows, uint32_t k) {
    return 4 * (rows + k);
}

static uint32_t subgroups(const tile_factors *f) {
    return f->m->c.wg / f->m->c.span;
}

void tile_factors_open(tile_factors *f) {
    ir_builder *b = f->m->k.b;
    if (f->stored) {
        f->parts = ir_workgroup(b, IR_F32, FACTORS_APART * subgroups(f));
        return;
    }
    f->x = ir_workgroup(b, IR_F32, f->m->length);
    f->made = ir_workgroup(b, IR_F32, f->rows);
}

/* Four u of the row, as it is. */
static ir_id load(tile_factors *f, ir_id row, ir_id u) {
    tile_kernel *k = &f->m->k;
    ir_builder *b = k->b;
    return ir_load(b, f->a.from, ir_add(b, ir_fma(b, row, f->a.row, f->a.start), tile_mul(k, u, 4)),
                   4);
}

/* ---- each workgroup for itself --------------------------------------------------------------- */

/* Fours of a row that a lane has. */
static uint32_t each_of(const tile_factors *f) {
    return (f->m->length / 4 + f->m->c.span - 1) / f->m->c.span;
}

/* The subgroup's place among the rows, another one in the next workgroup: all of them read the same
 * rows, and who begins where the others do waits for the same part of the cache. */
static ir_id place_of(tile_factors *f) {
    tile_kernel *k = &f->m->k;
    ir_id own = tile_div(k, ir_local(k->b, 0), f->m->c.span);
    return tile_rem(k, ir_add(k->b, own, ir_group(k->b, 0)), subgroups(f));
}

/* The lane's e-th four; beyond the vector: its last one. */
static ir_id own_of(tile_factors *f, uint32_t e) {
    tile_kernel *k = &f->m->k;
    ir_builder *b = k->b;
    const uint32_t span = f->m->c.span, fours = f->m->length / 4;
    ir_id u = tile_add(k, tile_rem(k, ir_local(b, 0), span), e * span);
    return (e + 1) * span > fours ? ir_min(b, u, ir_u32(b, fours - 1)) : u;
}

/* The subgroup's j-th row from `first` on; beyond all: the last one. */
static ir_id row_of(tile_factors *f, ir_id first, uint32_t j) {
    tile_kernel *k = &f->m->k;
    ir_builder *b = k->b;
    ir_id row = tile_add(k, place_of(f), j * subgroups(f));
    return ir_min(b, ir_add(b, first, row), ir_u32(b, f->rows - 1));
}

void tile_factors_fetch(tile_factors *f, uint32_t least) {
    ir_builder *b = f->m->k.b;
    const uint32_t each = each_of(f), n = subgroups(f);
    f->ahead = f->ahead_rows = 0;
    for (uint32_t j = 0; j * n < least && f->ahead < FACTORS_AHEAD_MAX; j++) {
        ir_id row = row_of(f, f->begin, j);
        for (uint32_t e = 0; e < each && f->ahead < FACTORS_AHEAD_MAX; e++)
            f->loaded[f->ahead++] = load(f, row, own_of(f, e));
        f->scale[j] = ir_load(b, f->scales, row, 1);
        f->ahead_rows++;
    }
}

void tile_factors_keep(tile_factors *f, const ir_id *x) {
    tile_kernel *k = &f->m->k;
    ir_builder *b = k->b;
    const uint32_t fours = f->m->length / 4, each = tile_matvec_each(f->m), wg = f->m->c.wg;
    for (uint32_t e = 0; e < each; e++) {
        ir_id u = tile_matvec_own(f->m, e);
        if ((e + 1) * wg > fours) ir_if(b, ir_lt(b, u, ir_u32(b, fours)));
        ir_store(b, f->x, tile_mul(k, u, 4), x[e]);
        if ((e + 1) * wg > fours) ir_end(b);
    }
}

/* The row times the vector, times its scale; loaded [n]: what there is of it. */
static void add_row(tile_factors *f, ir_id row, ir_id there, const ir_id *loaded, uint32_t n,
                    ir_id scale) {
    tile_kernel *k = &f->m->k;
    ir_builder *b = k->b;
    const uint32_t each = each_of(f), span = f->m->c.span, fours = f->m->length / 4;
    ir_id sum = IR_NO_ID;
    for (uint32_t e = 0; e < each; e++) {
        ir_id u = own_of(f, e), a = e < n ? loaded[e] : load(f, row, u),
              x = ir_load(b, f->x, tile_mul(k, u, 4), 4);
        if ((e + 1) * span > fours) {
            ir_id lane = tile_rem(k, ir_local(b, 0), span),
                  holds = ir_lt(b, lane, ir_u32(b, fours - e * span));
            x = ir_select(b, ir_splat(b, holds, 4), x, ir_number(b, IR_F32, 4, 0));
        }
        a = ir_cast(b, IR_F32, a);
        sum = e ? ir_fma(b, a, x, sum) : ir_mul(b, a, x);
    }
    sum = ir_subgroup_add(b, tile_sum_vector(k, sum));
    ir_if(b, ir_and(b, there, ir_eq(b, ir_subgroup_lane(b), ir_u32(b, 0))));
    ir_store(b, f->made, row, ir_mul(b, sum, scale));
    ir_end(b);
}

void tile_factors_add(tile_factors *f) {
    tile_kernel *k = &f->m->k;
    ir_builder *b = k->b;
    const uint32_t n = subgroups(f), each = each_of(f);
    ir_id own = place_of(f);
    for (uint32_t j = 0; j < f->ahead_rows; j++) {
        ir_id place = ir_add(b, tile_add(k, own, j * n), f->begin);
        add_row(f, row_of(f, f->begin, j), ir_lt(b, place, f->end), &f->loaded[j * each],
                f->ahead - j * each, f->scale[j]);
    }
    if (f->ahead_rows * n >= f->rows) return;
    ir_id first = ir_loop(b, tile_add(k, f->begin, f->ahead_rows * n), f->end, ir_u32(b, n));
    ir_id row = row_of(f, first, 0);
    add_row(f, row, ir_lt(b, ir_add(b, first, own), f->end), NULL, 0,
            ir_load(b, f->scales, row, 1));
    ir_end(b);
}

/* ---- workgroups of their own ----------------------------------------------------------------- */

/* Four u of a vector that came rounded. */
static ir_id four_handed(tile_factors *f, ir_id u) {
    tile_kernel *k = &f->m->k;
    ir_builder *b = k->b;
    const tile_int8_vectors *from = &f->m->int8_from;
    ir_id word = ir_bitcast(b, IR_I32, 1, ir_load(b, from->bytes, u, 1)), own[4],
          at = ir_add(b, tile_mul(k, tile_div(k, u, 8), 2), from->factors_at);
    for (uint32_t i = 0; i < 4; i++)
        own[i] = ir_cast(b, IR_F32,
                         ir_shr(b, ir_shl(b, word, ir_i32(b, 24 - 8 * (int32_t)i)), ir_i32(b, 24)));
    ir_id scale = ir_bitcast(b, IR_F32, 1, ir_load(b, from->factors, at, 1));
    return ir_mul(b, ir_compose(b, own, 4), ir_splat(b, scale, 4));
}

void tile_factors_part(tile_factors *f, const ir_id *x) {
    tile_kernel *k = &f->m->k;
    ir_builder *b = k->b;
    const uint32_t fours = f->m->length / 4, each = tile_matvec_each(f->m), wg = f->m->c.wg;
    ir_id first = ir_loop(b, f->begin, f->end, ir_u32(b, FACTORS_APART)), sums[FACTORS_APART];
    for (uint32_t e = 0; e < each; e++) {
        ir_id u = tile_matvec_own(f->m, e), holds = IR_NO_ID;
        if ((e + 1) * wg > fours) {
            holds = ir_lt(b, u, ir_u32(b, fours));
            u = ir_min(b, u, ir_u32(b, fours - 1));
        }
        ir_id own = x ? x[e] : four_handed(f, u);
        if (holds != IR_NO_ID)
            own = ir_select(b, ir_splat(b, holds, 4), own, ir_number(b, IR_F32, 4, 0));
        for (uint32_t i = 0; i < FACTORS_APART; i++) {
            ir_id a = ir_cast(b, IR_F32, load(f, tile_add(k, first, i), u));
            sums[i] = e ? ir_fma(b, a, own, sums[i]) : ir_mul(b, a, own);
        }
    }
    for (uint32_t i = 0; i < FACTORS_APART; i++)
        sums[i] = ir_subgroup_add(b, tile_sum_vector(k, sums[i]));
    ir_if(b, ir_eq(b, ir_subgroup_lane(b), ir_u32(b, 0)));
    ir_id run = tile_mul(k, tile_div(k, ir_local(b, 0), f->m->c.span), FACTORS_APART);
    for (uint32_t i = 0; i < FACTORS_APART; i++)
        ir_store(b, f->parts, tile_add(k, run, i), sums[i]);
    ir_end(b);
    ir_end(b);
}

void tile_factors_end(tile_factors *f) {
    tile_kernel *k = &f->m->k;
    ir_builder *b = k->b;
    ir_id own = ir_local(b, 0), row = ir_add(b, f->begin, own);
    ir_if(b, ir_and(b, ir_lt(b, own, ir_u32(b, FACTORS_APART)), ir_lt(b, row, f->end)));
    ir_id sum = ir_load(b, f->parts, own, 1);
    for (uint32_t i = 1; i < subgroups(f); i++)
        sum = ir_add(b, sum, ir_load(b, f->parts, tile_add(k, own, i * FACTORS_APART), 1));
    ir_store(b, f->made, row, ir_mul(b, sum, ir_load(b, f->scales, row, 1)));
    ir_end(b);
}
