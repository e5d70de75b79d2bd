/* matvec_copied.c - see tile/matvec.h: batches of vectors that came rounded, a window of k at
 * a time in workgroup memory; and sums that meet there.
 *
 * What bounds a batch is instructions. So a weight is unpacked once for all vectors of the
 * workgroup, what is read of a vector serves all rows of a lane, and an ending is computed once
 * a result, by lanes in turn. Words of the next window are under way while one is worked on. */
#include "tile/matvec_inside.h"

/* ---- windows --------------------------------------------------------------------------------- */

static uint32_t words_of(const tile_matvec *m) { /* 16 bytes each, of all vectors */
    return m->c.n_x * m->c.window / 16;
}

static uint32_t factors_of(const tile_matvec *m) { /* the same: of two blocks */
    return m->c.n_x * m->c.window / 64;
}

void matvec_copy_begin(tile_matvec *m) {
    ir_builder *b = m->k.b;
    const uint32_t share = m->c.share, near = m->c.near, run = m->c.wg / m->c.lanes * share;
    ir_id own = run < m->c.wg ? tile_rem(b, ir_local(b, 0), run) : ir_local(b, 0);
    m->lane = m->share_lane = tile_rem(b, tile_div(b, own, near), share);
    m->slot = ir_add(b, tile_mul(b, tile_div(b, own, near * share), near), tile_rem(b, own, near));
    if (run == m->c.wg) return;
    m->run = tile_div(b, ir_local(b, 0), run);
    m->lane = ir_add(b, tile_mul(b, m->run, share), m->lane);
}

void matvec_copy_open(tile_matvec *m, uint32_t rows) {
    ir_builder *b = m->k.b;
    m->x_ahead = ir_register(b, IR_U32, 4 * whole_over(words_of(m), m->c.wg));
    m->factors_ahead = ir_register(b, IR_U32, 4 * whole_over(factors_of(m), m->c.wg));
    m->joined = ir_workgroup(b, IR_F32, m->c.wg / m->c.share * rows * m->c.n_x);
}

/* The lane's e-th of `n` things; beyond them the last. */
static ir_id own_of(tile_matvec *m, uint32_t e, uint32_t n) {
    ir_id i = tile_add(m->k.b, ir_local(m->k.b, 0), e * m->c.wg);
    return (e + 1) * m->c.wg <= n ? i : ir_min(m->k.b, i, ir_u32(m->k.b, n - 1));
}

/* Of window `window`: two blocks, number `pair` there, of the workgroup's vector v. */
static ir_id pair_of(tile_matvec *m, ir_id window, ir_id pair, ir_id v) {
    ir_builder *b = m->k.b;
    ir_id at = ir_add(b, tile_mul(b, window, m->c.window / 64), pair),
          vector = ir_min(b, ir_add(b, m->x_first, v), ir_sub(b, m->x_n, ir_u32(b, 1)));
    if (m->length % m->c.window) at = ir_min(b, at, ir_u32(b, whole_over(m->length, 64) - 1));
    return ir_fma(b, at, m->int8_from.bound, vector);
}

static void ask(tile_matvec *m, ir_id window) {
    ir_builder *b = m->k.b;
    const uint32_t words = words_of(m), factors = factors_of(m);
    for (uint32_t e = 0; e < whole_over(words, m->c.wg); e++) {
        ir_id i = own_of(m, e, words), four = tile_div(b, i, 4),
              pair = pair_of(m, window, tile_div(b, four, m->c.n_x), tile_rem(b, four, m->c.n_x));
        ir_id at = ir_add(b, tile_mul(b, pair, 16), tile_mul(b, tile_rem(b, i, 4), 4));
        ir_store(b, m->x_ahead, ir_u32(b, 4 * e), ir_load(b, m->int8_from.bytes, at, 4));
    }
    for (uint32_t e = 0; e < whole_over(factors, m->c.wg); e++) {
        ir_id i = own_of(m, e, factors),
              pair = pair_of(m, window, tile_div(b, i, m->c.n_x), tile_rem(b, i, m->c.n_x));
        ir_id at = ir_add(b, tile_mul(b, pair, 4), m->int8_from.factors_at);
        ir_store(b, m->factors_ahead, ir_u32(b, 4 * e), ir_load(b, m->int8_from.factors, at, 4));
    }
}

/* Scale and sums of two blocks, as they were asked for: where both blocks' lie. */
static void keep_factors(tile_matvec *m, ir_id raw, ir_id at) {
    ir_builder *b = m->k.b;
    ir_id both[4], halves[4], sixteen = ir_i32(b, 16);
    for (uint32_t i = 0; i < 2; i++) {
        ir_id sums = ir_bitcast(b, IR_I32, 1, ir_extract(b, raw, 2 * i + 1));
        halves[2 * i] = ir_shr(b, ir_shl(b, sums, sixteen), sixteen);
        halves[2 * i + 1] = ir_shr(b, sums, sixteen);
        ir_id sum = ir_add(b, halves[2 * i], halves[2 * i + 1]);
        both[2 * i] = ir_bitcast(b, IR_F32, 1, ir_extract(b, raw, 2 * i));
        both[2 * i + 1] = ir_mul(b, both[2 * i], ir_cast(b, IR_F32, sum));
    }
    ir_store(b, m->scales, at, ir_compose(b, both, 4));
    if (m->with_halves) ir_store(b, m->halves, at, ir_compose(b, halves, 4));
}

static void keep(tile_matvec *m) {
    ir_builder *b = m->k.b;
    const uint32_t words = words_of(m), factors = factors_of(m), fours = m->c.window / 64;
    for (uint32_t e = 0; e < whole_over(words, m->c.wg); e++) {
        const bool whole = (e + 1) * m->c.wg <= words;
        ir_id i = own_of(m, e, words), four = tile_div(b, i, 4), part = tile_rem(b, i, 4);
        ir_id at = matvec_place(m, 0, tile_div(b, four, m->c.n_x), tile_div(b, part, 2),
                                tile_rem(b, part, 2));
        at = ir_add(b, at, tile_mul(b, tile_rem(b, four, m->c.n_x), m->vector));
        if (!whole) ir_if(b, ir_lt(b, tile_add(b, ir_local(b, 0), e * m->c.wg), ir_u32(b, words)));
        ir_store(b, m->x, tile_mul(b, at, 4), ir_load(b, m->x_ahead, ir_u32(b, 4 * e), 4));
        if (!whole) ir_end(b);
    }
    for (uint32_t e = 0; e < whole_over(factors, m->c.wg); e++) {
        const bool whole = (e + 1) * m->c.wg <= factors;
        ir_id i = own_of(m, e, factors), pair = tile_div(b, i, m->c.n_x);
        ir_id at = tile_mul(b, ir_add(b, tile_mul(b, tile_rem(b, i, m->c.n_x), fours), pair), 4);
        if (!whole)
            ir_if(b, ir_lt(b, tile_add(b, ir_local(b, 0), e * m->c.wg), ir_u32(b, factors)));
        keep_factors(m, ir_load(b, m->factors_ahead, ir_u32(b, 4 * e), 4), at);
        if (!whole) ir_end(b);
    }
}

void tile_matvec_copy_first(tile_matvec *m) {
    ask(m, ir_u32(m->k.b, 0));
    if (m->c.window < m->length) return;
    keep(m);
    ir_barrier(m->k.b);
}

void matvec_copy_window(tile_matvec *m, ir_id next) {
    ir_barrier(m->k.b); /* the window before is done with */
    keep(m);
    ir_barrier(m->k.b);
    ask(m, next);
}

/* ---- products -------------------------------------------------------------------------------- */

enum {
    /* the bits of 1.5 * 2^23: whole numbers up to 2^22 above it are floats without conversion */
    ROUND = 0x4b400000
};

bool matvec_copied_halves(base_type type) {
    return type == TYPE_Q2_K;
}

/* A part of the rows' chunks, as it is multiplied with every vector. */
typedef struct batch_part {
    uint32_t n; /* runs; each its own factors: */
    bool alone[2];
    ir_id run[TILE_ROWS_MAX][2], by[TILE_ROWS_MAX][2], least[TILE_ROWS_MAX][2];
} batch_part;

/* Bytes with a zero become signed ones, moved as far up as there is room: what is left of the
 * zero is its place in the factor. */
static void open_part(tile_matvec *m, base_type type, uint32_t rows, const tile_opened *opened,
                      uint32_t i, batch_part *p) {
    ir_builder *b = m->k.b;
    const uint32_t zero = tile_packed_zero(type);
    uint32_t up = opened[0].parts[i].up, more = 0;
    while (zero && zero << (up + more) < 128) more++;
    for (uint32_t row = 0; row < rows; row++) {
        const tile_part *w = &opened[row].parts[i];
        ir_id d = ir_mul(b, opened[row].d, ir_f32(b, 1.0f / (float)(1u << (up + more))));
        p->n = w->n_run;
        for (uint32_t r = 0; r < w->n_run; r++) {
            p->alone[r] = matvec_alike(w, 0) < w->n_run;
            p->run[row][r] =
                zero ? ir_xor(b, tile_shl(b, w->run[r], more), ir_bits(b, IR_U32, 4, 0x80808080u))
                     : w->run[r];
            p->by[row][r] =
                w->scale[r] == IR_NO_ID ? d : ir_mul(b, d, ir_cast(b, IR_F32, w->scale[r]));
            p->least[row][r] = opened[row].m == IR_NO_ID || w->least[r] == IR_NO_ID
                                   ? opened[row].m
                                   : ir_mul(b, opened[row].m, ir_cast(b, IR_F32, w->least[r]));
        }
    }
}

/* One row's part with one vector: x its runs, {scale, scale times the block's sum}; sums: of the
 * runs, where they are apart. */
static ir_id product_of(tile_matvec *m, const batch_part *p, uint32_t row, const ir_id x[2],
                        ir_id own, const ir_id sums[2], ir_id sum) {
    ir_builder *b = m->k.b;
    ir_id scale = ir_extract(b, own, 0), dot = ir_i32(b, ROUND);
    for (uint32_t r = 0; r < p->n; r++) {
        for (uint32_t i = 0; i < 4; i++)
            dot = ir_dot4_i8(b, ir_extract(b, p->run[row][r], i), ir_extract(b, x[r], i), dot);
        if (!p->alone[r] && r + 1 < p->n) continue;
        ir_id whole = ir_sub(b, ir_bitcast(b, IR_F32, 1, dot), ir_f32(b, 12582912));
        sum = ir_fma(b, whole, ir_mul(b, p->by[row][r], scale), sum);
        dot = ir_i32(b, ROUND);
        if (p->alone[r] && p->least[row][r] != IR_NO_ID)
            sum = ir_fma(b, ir_mul(b, ir_cast(b, IR_F32, sums[r]), scale), p->least[row][r], sum);
    }
    if (p->alone[0] || p->least[row][0] == IR_NO_ID) return sum;
    return ir_fma(b, ir_extract(b, own, 1), p->least[row][0], sum);
}

void matvec_copied_add(tile_matvec *m, base_type type, uint32_t rows, const tile_opened *opened) {
    ir_builder *b = m->k.b;
    const uint32_t each = m->c.window / 64 * 4; /* factors of a vector */
    for (uint32_t i = 0; i < opened[0].n; i++) {
        const tile_part *w = &opened[0].parts[i];
        batch_part p = {.n = 0};
        open_part(m, type, rows, opened, i, &p);
        ir_id place[2], factors = tile_mul(b, ir_add(b, tile_mul(b, w->four, 2), w->second), 2);
        for (uint32_t r = 0; r < p.n; r++) {
            ir_id half = r ? ir_u32(b, 1) : w->half;
            place[r] = tile_mul(b, matvec_place(m, 0, w->four, w->second, half), 4);
        }
        for (uint32_t v = 0; v < m->c.n_x; v++) {
            ir_id x[2], sums[2] = {IR_NO_ID, IR_NO_ID},
                        own = ir_load(b, m->scales, tile_add(b, factors, v * each), 2);
            for (uint32_t r = 0; r < p.n; r++)
                x[r] = ir_load(b, m->x, tile_add(b, place[r], v * m->vector * 4), 4);
            if (matvec_copied_halves(type)) {
                ir_id both = ir_load(b, m->halves, tile_add(b, factors, v * each), 2);
                for (uint32_t r = 0; r < 2; r++) sums[r] = ir_extract(b, both, r);
            }
            for (uint32_t row = 0; row < rows; row++) {
                ir_id at = ir_u32(b, row * m->c.n_x + v);
                ir_store(b, m->sums, at,
                         product_of(m, &p, row, x, own, sums, ir_load(b, m->sums, at, 1)));
            }
        }
    }
}

/* ---- sums ------------------------------------------------------------------------------------ */

/* [run][row, vector][slot] */
static ir_id place_left(tile_matvec *m, uint32_t all, ir_id run, ir_id sum, ir_id slot) {
    ir_builder *b = m->k.b;
    const uint32_t slots = m->c.wg / m->c.lanes;
    ir_id at = tile_mul(b, sum, slots);
    if (run != IR_NO_ID) at = ir_add(b, at, tile_mul(b, run, all * slots));
    return ir_add(b, at, slot);
}

void tile_matvec_leave(tile_matvec *m, uint32_t rows) {
    ir_builder *b = m->k.b;
    const uint32_t n = rows * m->c.n_x, share = m->c.share;
    const bool apart = m->c.lanes > share;
    if (m->c.window >= m->length) ir_barrier(b); /* those of the tile before are done with */
    for (uint32_t i = 0; i < n; i++) {
        ir_id sum = ir_load(b, m->sums, ir_u32(b, i), 1);
        for (uint32_t mask = share / 2; mask; mask /= 2)
            sum = ir_add(b, sum, ir_subgroup_shuffle_xor(b, sum, mask * m->c.near));
        ir_if(b, ir_eq(b, m->share_lane, ir_u32(b, i % share)));
        ir_store(b, m->joined, place_left(m, n, apart ? m->run : IR_NO_ID, ir_u32(b, i), m->slot),
                 sum);
        ir_end(b);
    }
    ir_barrier(b);
}

ir_id tile_matvec_left(tile_matvec *m, uint32_t rows, ir_id row, ir_id vector, ir_id slot) {
    ir_builder *b = m->k.b;
    const uint32_t runs = m->c.lanes / m->c.share, all = rows * m->c.n_x,
                   slots = m->c.wg / m->c.lanes;
    ir_id at = place_left(m, all, IR_NO_ID, ir_add(b, tile_mul(b, row, m->c.n_x), vector), slot),
          sum = ir_load(b, m->joined, at, 1);
    for (uint32_t run = 1; run < runs; run++)
        sum = ir_add(b, sum, ir_load(b, m->joined, tile_add(b, at, run * all * slots), 1));
    return sum;
}
