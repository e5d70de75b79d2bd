/* matvec.c - see tile/matvec.h: the body. */
#include "tile/matvec_inside.h"

enum { EACH_UNROLLED = 4 /* fours of a lane that are written out */ };

static void raw_load(const tile_weight *w, ir_id row, ir_id chunk, ir_id raw[TILE_RAW_MAX]) {
    ir_builder *b = w->k->b;
    if (tile_packed_known(w->type)) {
        tile_packed_load(w, row, chunk, raw);
        return;
    }
    ir_id at = ir_fma(b, row, ir_u32(b, w->n / 2), w->start);
    at = ir_add(b, at, tile_mul(b, chunk, TILE_RUN / 2));
    raw[0] = ir_load(b, w->from, at, 4);
    raw[1] = ir_load(b, w->from, tile_add(b, at, 4), 4);
}

/* Do products with int8 vectors want the sums of each 16 numbers? */
static bool needs_halves(base_type type) {
    return tile_packed_zero(type) || type == TYPE_Q2_K;
}

/* ---- memory ---------------------------------------------------------------------------------- */

void tile_matvec_begin(tile_matvec *m, lowering *l, const char *name, const matvec_choice *c,
                       uint32_t k) {
    *m = (tile_matvec){.c = *c, .length = k};
    lower_form_chosen(l, c);
    ir_builder *b = tile_begin(&m->k, l, name, c->wg);
    if (c->subgroups) ir_subgroup(b, c->span);
    matvec_layout(c->x, matvec_held(c, k), &m->unit, &m->half, &m->second, &m->vector);
    if (tile_matvec_copies(c)) {
        matvec_copy_begin(m);
        return;
    }
    m->lane = tile_rem(b, ir_local(b, 0), c->lanes);
    m->slot = tile_div(b, ir_local(b, 0), c->lanes);
}

tile_weight tile_matvec_weight(tile_matvec *m, base_type type, ir_memory from) {
    tile_weight w;
    tile_weight_made(&w, &m->k, type, m->length, from);
    return w;
}

void tile_matvec_open_sums(tile_matvec *m) {
    m->parts = ir_workgroup(m->k.b, IR_F32, m->c.subgroups ? 2 * m->c.wg / m->c.span : m->c.wg);
}

void tile_matvec_open(tile_matvec *m, const base_type *types, uint32_t n, uint32_t rows) {
    ir_builder *b = m->k.b;
    const matvec_choice *c = &m->c;
    for (uint32_t i = 0; i < n; i++)
        if (matvec_raw_words(types[i]) * rows * c->depth > m->n_ahead)
            m->n_ahead = matvec_raw_words(types[i]) * rows * c->depth;
    m->n_ahead = (m->n_ahead + 3) / 4 * 4;
    m->sums = ir_register(b, IR_F32, rows * c->n_x);
    if (m->n_ahead) m->ahead = ir_register(b, IR_U32, m->n_ahead);
    const bool int8 = c->x == MATVEC_INT8 || tile_matvec_copies(c);
    const uint32_t fours = whole_over(matvec_held(c, m->length), 64);
    if (int8 || c->x == MATVEC_SHARED)
        m->x = ir_workgroup(b, int8 ? IR_U32 : IR_F32, m->vector * 4 * c->n_x);
    if (int8) m->scales = ir_workgroup(b, IR_F32, fours * 4 * c->n_x);
    for (uint32_t i = 0; i < n && c->x == MATVEC_INT8; i++) {
        const uint32_t apart = tile_weight_interleave(types[i]);
        if (apart) m->interleave = apart; /* the same of all that have one */
    }
    for (uint32_t i = 0; i < n; i++)
        m->with_halves = m->with_halves || (tile_matvec_copies(c) ? matvec_copied_halves(types[i])
                                                                  : int8 && needs_halves(types[i]));
    if (m->with_halves) m->halves = ir_workgroup(b, IR_I32, fours * 4 * c->n_x);
    if (tile_matvec_copies(c)) matvec_copy_open(m, rows);
    if (!c->subgroups) m->joined = ir_workgroup(b, IR_F32, c->wg * rows * c->n_x);
    tile_matvec_open_sums(m);
    const uint32_t tables = matvec_tables(types, n, m->pairs);
    if (m->interleave) m->interleaved = ir_workgroup(b, IR_U32, m->vector * 4 * c->n_x);
    m->n_pairs = c->copies ? tables : 0;
    for (uint32_t i = 0; i < m->n_pairs; i++) {
        m->pairs[i].copies = c->copies;
        m->pairs[i].memory = ir_workgroup(b, IR_U32, TILE_PAIRS_BYTES / 4 * c->copies);
        tile_pairs_fill(&m->k, &m->pairs[i]);
    }
    if (m->n_pairs) ir_barrier(b);
}

/* ---- the vectors ----------------------------------------------------------------------------- */

ir_id tile_matvec_sum(tile_matvec *m, ir_id x) {
    tile_kernel *k = &m->k;
    ir_builder *b = k->b;
    if (!m->c.subgroups) return tile_reduce(k, IR_ADD, x, m->parts);
    /* Calls take turns with two halves: who writes one again has passed the barrier of the call
     * between. */
    const uint32_t runs = m->c.wg / m->c.span, first = m->sum_turn++ % 2 * runs;
    ir_id sum = ir_subgroup_add(b, x);
    ir_if(b, ir_eq(b, ir_subgroup_lane(b), ir_u32(b, 0)));
    ir_store(b, m->parts, tile_add(b, tile_div(b, ir_local(b, 0), m->c.span), first), sum);
    ir_end(b);
    ir_barrier(b);
    const uint32_t wide = runs % 4 ? 1 : 4;
    sum = ir_load(b, m->parts, ir_u32(b, first), wide);
    for (uint32_t i = wide; i < runs; i += wide)
        sum = ir_add(b, sum, ir_load(b, m->parts, ir_u32(b, first + i), wide));
    return tile_sum_vector(b, sum);
}

uint32_t tile_matvec_each(const tile_matvec *m) {
    return whole_over(m->length / 4, m->c.wg);
}

ir_id tile_matvec_own(tile_matvec *m, uint32_t e) {
    return tile_add(m->k.b, ir_local(m->k.b, 0), e * m->c.wg);
}

ir_id matvec_place(tile_matvec *m, uint32_t v, ir_id four, ir_id second, ir_id half) {
    ir_builder *b = m->k.b;
    ir_id at = ir_add(b, tile_mul(b, half, m->half), tile_mul(b, second, m->second));
    return tile_add(b, ir_add(b, four, at), v * m->vector);
}

/* The word that is interleaved of this lane's and that of the lane `interleave` elements on or
 * back; where it goes. */
static ir_id interleaved_of(tile_matvec *m, uint32_t v, ir_id u, ir_id word, ir_id *at) {
    ir_builder *b = m->k.b;
    const uint32_t span = m->interleave / 4;
    ir_id later = tile_rem(b, tile_div(b, u, span), 2), up = tile_mul(b, later, 16),
          is_later = ir_ne(b, later, ir_u32(b, 0));
    ir_id other = ir_subgroup_shuffle_xor(b, word, span);
    ir_id first = ir_shr(b, ir_select(b, is_later, other, word), up),
          second = ir_shr(b, ir_select(b, is_later, word, other), up);
    ir_id low = ir_or(b, tile_and(b, first, 255), tile_shl(b, tile_and(b, second, 255), 8));
    ir_id high = ir_or(b, tile_shl(b, tile_and(b, first, 0xff00), 8),
                       tile_shl(b, tile_and(b, second, 0xff00), 16));
    ir_id place = ir_add(b, tile_mul(b, tile_rem(b, u, span), 2), later); /* of 2 span */
    ir_id half = span == 2 ? tile_rem(b, tile_div(b, u, 4), 2) : tile_div(b, place, 4);
    *at = matvec_place(m, v, tile_div(b, u, 16), tile_rem(b, tile_div(b, u, 8), 2), half);
    *at = ir_add(b, tile_mul(b, *at, 4), tile_rem(b, place, 4));
    return ir_or(b, low, high);
}

typedef struct rounded {
    ir_id word, scale;
    ir_id half, other, sum; /* sums of numbers: of this lane's 16, of the other 16, of all 32 */
} rounded;

/* Four numbers, rounded with the 28 that seven neighbouring lanes have: executed once, so in few
 * instructions. Magnitudes are compared as bits, where NaN is largest; a sum with 1.5 * 2^23 has
 * the whole number in its lowest byte, to nearest even. */
static rounded round_four(tile_matvec *m, ir_id x) {
    ir_builder *b = m->k.b;
    ir_id bits = tile_max_vector(b, tile_and(b, ir_bitcast(b, IR_U32, 4, x), 0x7fffffff));
    for (uint32_t mask = 1; mask < 8; mask *= 2)
        bits = ir_max(b, bits, ir_subgroup_shuffle_xor(b, bits, mask));
    ir_id most = ir_bitcast(b, IR_F32, 1, bits), scale = ir_mul(b, most, ir_f32(b, 1.0f / 127));
    /* smaller ones would overflow */
    ir_id factor = ir_select(b, ir_gt(b, most, ir_f32(b, 1e-30f)), ir_div(b, ir_f32(b, 127), most),
                             ir_f32(b, 0));
    ir_id moved = ir_fma(b, x, ir_splat(b, factor, 4), ir_number(b, IR_F32, 4, 12582912)),
          bytes = tile_and(b, ir_bitcast(b, IR_U32, 4, moved), 255), word = ir_extract(b, bytes, 0);
    for (uint32_t i = 1; i < 4; i++)
        word = ir_or(b, word, tile_shl(b, ir_extract(b, bytes, i), 8 * i));
    ir_id sum = ir_dot4_i8(b, word, ir_bits(b, IR_U32, 1, 0x01010101u), ir_i32(b, 0));
    for (uint32_t mask = 1; mask < 4; mask *= 2)
        sum = ir_add(b, sum, ir_subgroup_shuffle_xor(b, sum, mask));
    ir_id other = ir_subgroup_shuffle_xor(b, sum, 4);
    return (rounded){word, scale, sum, other, ir_add(b, sum, other)};
}

/* Four u of vector v. */
static void keep_int8(tile_matvec *m, uint32_t v, ir_id u, ir_id holds, ir_id x) {
    ir_builder *b = m->k.b;
    const rounded r = round_four(m, x);
    ir_id group = tile_div(b, u, 4);
    ir_id at = matvec_place(m, v, tile_div(b, u, 16), tile_rem(b, tile_div(b, group, 2), 2),
                            tile_rem(b, group, 2));
    at = ir_add(b, tile_mul(b, at, 4), tile_rem(b, u, 4));
    ir_id interleaved_at = IR_NO_ID,
          interleaved = m->interleave ? interleaved_of(m, v, u, r.word, &interleaved_at) : IR_NO_ID;
    if (holds != IR_NO_ID) ir_if(b, holds);
    ir_store(b, m->x, at, r.word);
    if (m->interleave) ir_store(b, m->interleaved, interleaved_at, interleaved);
    if (m->with_halves) {
        ir_if(b, ir_eq(b, tile_rem(b, ir_local(b, 0), 4), ir_u32(b, 0)));
        ir_store(b, m->halves, tile_add(b, group, v * whole_over(m->length, 64) * 4), r.half);
        ir_end(b);
    }
    ir_if(b, ir_eq(b, tile_rem(b, ir_local(b, 0), 8), ir_u32(b, 0)));
    ir_id both =
        ir_compose(b, (ir_id[]){r.scale, ir_mul(b, r.scale, ir_cast(b, IR_F32, r.sum))}, 2);
    ir_store(b, m->scales,
             tile_add(b, tile_mul(b, tile_div(b, u, 8), 2), v * whole_over(m->length, 64) * 4),
             both);
    ir_end(b);
    if (holds != IR_NO_ID) ir_end(b);
}

static void keep_f32(tile_matvec *m, uint32_t v, ir_id u, ir_id holds, ir_id x) {
    ir_builder *b = m->k.b;
    ir_id group = tile_div(b, u, 4);
    ir_id at = matvec_place(m, v, tile_div(b, u, 16), tile_rem(b, tile_div(b, group, 2), 2),
                            tile_rem(b, group, 2));
    at = ir_add(b, at, tile_mul(b, tile_rem(b, u, 4), m->unit));
    if (holds != IR_NO_ID) ir_if(b, holds);
    ir_store(b, m->x, tile_mul(b, at, 4), x);
    if (holds != IR_NO_ID) ir_end(b);
}

tile_int8_vectors tile_int8_in(tile_matvec *m, ir_memory memory, uint32_t bound, uint32_t k) {
    const uint32_t bytes = whole_over(k, 64) * 64 * bound;
    return (tile_int8_vectors){.bytes = memory,
                               .factors = memory,
                               .factors_at = ir_u32(m->k.b, bytes / 4),
                               .bound = ir_u32(m->k.b, bound)};
}

/* Four u of vector `vector`, where it holds. */
static void store_int8(tile_matvec *m, ir_id vector, ir_id u, ir_id holds, ir_id x) {
    ir_builder *b = m->k.b;
    const tile_int8_vectors *to = &m->int8_to;
    const rounded r = round_four(m, x);
    ir_id pair = ir_fma(b, tile_div(b, u, 16), to->bound, vector);
    ir_if(b, holds);
    ir_store(b, to->bytes, ir_add(b, tile_mul(b, pair, 16), tile_rem(b, u, 16)), r.word);
    ir_if(b, ir_eq(b, tile_rem(b, ir_local(b, 0), 8), ir_u32(b, 0)));
    ir_id low = tile_and(b, ir_bitcast(b, IR_U32, 1, r.half), 0xffff),
          high = tile_shl(b, ir_bitcast(b, IR_U32, 1, r.other), 16);
    ir_id both[2] = {ir_bitcast(b, IR_U32, 1, r.scale), ir_or(b, low, high)},
          odd = tile_rem(b, tile_div(b, u, 8), 2);
    ir_id at = ir_add(b, tile_mul(b, pair, 4), tile_mul(b, odd, 2));
    ir_store(b, to->factors, ir_add(b, at, to->factors_at), ir_compose(b, both, 2));
    ir_end(b);
    ir_end(b);
}

static void keep_apart(tile_matvec *m, uint32_t v, ir_id u, ir_id holds, ir_id x) {
    ir_builder *b = m->k.b;
    (void)v;
    holds = holds == IR_NO_ID ? m->to_holds : ir_and(b, holds, m->to_holds);
    if (m->x_round) {
        store_int8(m, m->to_at, u, holds, x);
        return;
    }
    ir_if(b, holds);
    ir_store(b, m->x_to, ir_add(b, m->to_at, tile_mul(b, u, 4)), x);
    ir_end(b);
}

void tile_matvec_hand_on(tile_matvec *m, ir_memory from, uint32_t fours, ir_id first,
                         uint32_t length, ir_id vector, ir_id vectors) {
    ir_builder *b = m->k.b;
    const uint32_t all = fours * m->c.n_x;
    for (uint32_t begin = 0; begin < all; begin += m->c.wg) {
        ir_id i = tile_add(b, ir_local(b, 0), begin), holds = ir_lt(b, i, ir_u32(b, all));
        i = ir_min(b, i, ir_u32(b, all - 1));
        ir_id u = ir_add(b, first, tile_rem(b, i, fours)),
              to = ir_add(b, vector, tile_div(b, i, fours));
        holds = ir_and(b, holds, ir_and(b, ir_lt(b, u, ir_u32(b, length)), ir_lt(b, to, vectors)));
        store_int8(m, to, u, holds, ir_load(b, from, tile_mul(b, i, 4), 4));
    }
}

/* n fours from the e-th on, all asked for before the first is used. */
static void fill_some(tile_matvec *m, uint32_t v, uint32_t e, ir_id first, uint32_t n,
                      tile_four *four, void *user) {
    ir_builder *b = m->k.b;
    const uint32_t fours = m->length / 4;
    ir_id u[MATVEC_EACH_MAX], x[MATVEC_EACH_MAX], holds[MATVEC_EACH_MAX];
    for (uint32_t i = 0; i < n; i++) {
        const bool whole = first == IR_NO_ID && (e + i + 1) * m->c.wg <= fours;
        u[i] = first == IR_NO_ID ? tile_matvec_own(m, e + i) : tile_add(b, first, i * m->c.wg);
        holds[i] = whole ? IR_NO_ID : ir_lt(b, u[i], ir_u32(b, fours));
        x[i] = four(user, v, e + i, whole ? u[i] : ir_min(b, u[i], ir_u32(b, fours - 1)));
    }
    for (uint32_t i = 0; i < n; i++)
        (m->x_keep               ? keep_apart
         : m->c.x == MATVEC_INT8 ? keep_int8
                                 : keep_f32)(m, v, u[i], holds[i], x[i]);
}

void tile_matvec_fill_vector(tile_matvec *m, uint32_t v, bool one_by_one, tile_four *four,
                             void *user) {
    ir_builder *b = m->k.b;
    const uint32_t each = tile_matvec_each(m);
    if (one_by_one || each <= EACH_UNROLLED) {
        fill_some(m, v, 0, IR_NO_ID, each, four, user);
        return;
    }
    const uint32_t wg = m->c.wg, step = EACH_UNROLLED * wg;
    ir_id base = ir_loop(b, ir_u32(b, 0), ir_u32(b, whole_over(each, EACH_UNROLLED) * step),
                         ir_u32(b, step));
    fill_some(m, v, 0, ir_add(b, base, ir_local(b, 0)), EACH_UNROLLED, four, user);
    ir_end(b);
}

static void x_floats(tile_matvec *m, uint32_t v, const tile_part *p, uint32_t run, ir_id x[4]) {
    ir_builder *b = m->k.b;
    ir_id half = run ? ir_u32(b, 1) : p->half;
    if (m->c.x == MATVEC_DIRECT) {
        ir_id at = ir_add(b, tile_mul(b, p->four, 64),
                          ir_add(b, tile_mul(b, p->second, 32), tile_mul(b, half, 16)));
        at = ir_add(b, at, m->x_at[v]);
        for (uint32_t i = 0; i < 4; i++) x[i] = ir_load(b, m->x_from, tile_add(b, at, 4 * i), 4);
        return;
    }
    ir_id at = tile_mul(b, matvec_place(m, v, p->four, p->second, half), 4);
    for (uint32_t i = 0; i < 4; i++) x[i] = ir_load(b, m->x, tile_add(b, at, 4 * i * m->unit), 4);
}

/* ---- a chunk --------------------------------------------------------------------------------- */

static void add_to(tile_matvec *m, uint32_t row, uint32_t v, ir_id x) {
    ir_builder *b = m->k.b;
    ir_id at = ir_u32(b, row * m->c.n_x + v);
    ir_store(b, m->sums, at, ir_add(b, ir_load(b, m->sums, at, 1), x));
}

static ir_id plus(ir_builder *b, ir_id x, ir_id sum) { /* sum IR_NO_ID: 0 */
    return sum == IR_NO_ID ? x : ir_add(b, x, sum);
}

static ir_id plus_times(ir_builder *b, ir_id x, ir_id y, ir_id sum) { /* y IR_NO_ID: 1 */
    return y == IR_NO_ID     ? plus(b, x, sum)
           : sum == IR_NO_ID ? ir_mul(b, x, y)
                             : ir_fma(b, x, y, sum);
}

uint32_t matvec_alike(const tile_part *p, uint32_t first) {
    return first + 1 < p->n_run && p->scale[0] == p->scale[1] && p->least[0] == p->least[1] ? 2 : 1;
}

/* What a part is multiplied with: 16 numbers for each of its runs, what they are multiples of, and
 * where asked for the sums of the runs' numbers. */
typedef struct rounded_part {
    ir_id run[2], scale, sums[2];
    ir_id scaled; /* the scale times the sum of the block's numbers */
} rounded_part;

static void part_inside(tile_matvec *m, base_type type, const tile_part *p, uint32_t v,
                        rounded_part *x) {
    ir_builder *b = m->k.b;
    const uint32_t before = v * whole_over(m->length, 64) * 4;
    ir_id at = tile_add(b, tile_mul(b, ir_add(b, tile_mul(b, p->four, 2), p->second), 2), before);
    ir_id own = ir_load(b, m->scales, at, 2);
    x->scale = ir_extract(b, own, 0);
    x->scaled = ir_extract(b, own, 1);
    for (uint32_t r = 0; r < p->n_run; r++)
        x->run[r] = ir_load(
            b, tile_weight_table(type) ? m->interleaved : m->x,
            tile_mul(b, matvec_place(m, v, p->four, p->second, r ? ir_u32(b, 1) : p->half), 4), 4);
    if (!needs_halves(type)) return;
    ir_id sums = p->n_run == 2 ? ir_load(b, m->halves, at, 2)
                               : ir_load(b, m->halves, ir_add(b, at, p->half), 1);
    for (uint32_t r = 0; r < p->n_run; r++)
        x->sums[r] = p->n_run == 2 ? ir_extract(b, sums, r) : sums;
}

void matvec_sums_of(ir_builder *b, ir_id word, ir_id sums[2]) {
    ir_id both = ir_bitcast(b, IR_I32, 1, word), sixteen = ir_i32(b, 16);
    sums[0] = ir_shr(b, ir_shl(b, both, sixteen), sixteen);
    sums[1] = ir_shr(b, both, sixteen);
}

static void part_handed(tile_matvec *m, const tile_part *p, uint32_t v, rounded_part *x) {
    ir_builder *b = m->k.b;
    const tile_int8_vectors *from = &m->int8_from;
    const ir_instruction *second = ir_at(b, p->second);
    const bool known = second && second->op == IR_CONST; /* then one load is both blocks' */
    ir_id pair = ir_fma(b, p->four, from->bound, m->x_at[v]);
    ir_id first = ir_add(b, tile_mul(b, pair, 16), tile_mul(b, p->second, 8)),
          at = ir_add(b, tile_mul(b, pair, 4), from->factors_at);
    if (!known) at = ir_add(b, at, tile_mul(b, p->second, 2));
    ir_id own = ir_load(b, from->factors, at, known ? 4 : 2);
    if (known && second->imm) own = ir_swizzle(b, own, 2, 0x32);
    ir_id sums[2];
    matvec_sums_of(b, ir_extract(b, own, 1), sums);
    x->scale = ir_bitcast(b, IR_F32, 1, ir_extract(b, own, 0));
    x->scaled = ir_mul(b, x->scale, ir_cast(b, IR_F32, ir_add(b, sums[0], sums[1])));
    for (uint32_t r = 0; r < p->n_run; r++) {
        ir_id half = r ? ir_u32(b, 1) : p->half;
        x->run[r] = ir_load(b, from->bytes, ir_add(b, first, tile_mul(b, half, 4)), 4);
        x->sums[r] = p->n_run == 2
                         ? sums[r]
                         : ir_select(b, ir_eq(b, p->half, ir_u32(b, 0)), sums[0], sums[1]);
    }
}

/* Part i of every row's chunk with vector v, which is int8: added to what stands by d and by m. */
static void multiply_int8(tile_matvec *m, base_type type, uint32_t rows, tile_opened *opened,
                          uint32_t i, uint32_t v, ir_id *by_d, ir_id *by_m) {
    ir_builder *b = m->k.b;
    const tile_part *p = &opened[0].parts[i];
    const uint32_t zero = tile_packed_zero(type) << p->up;
    const bool least = opened[0].m != IR_NO_ID, apart = matvec_alike(p, 0) < p->n_run;
    rounded_part x;
    if (m->c.x == MATVEC_QUANTISED) part_handed(m, p, v, &x);
    else part_inside(m, type, p, v, &x);
    ir_id moved = p->up ? ir_mul(b, x.scale, ir_f32(b, 1.0f / (float)(1u << p->up))) : x.scale;
    for (uint32_t row = 0; row < rows; row++) {
        const tile_part *w = &opened[row].parts[i];
        ir_id total = IR_NO_ID, below = IR_NO_ID;
        for (uint32_t r = 0, n; r < w->n_run; r += n) {
            ir_id sum = ir_i32(b, 0);
            n = matvec_alike(w, r);
            for (uint32_t j = r; zero && j < r + n; j++)
                sum = ir_sub(b, sum, ir_mul(b, x.sums[j], ir_i32(b, (int32_t)zero)));
            for (uint32_t j = r; j < r + n; j++) sum = tile_packed_dot(b, w->run[j], x.run[j], sum);
            ir_id less = ir_i32(b, 0);
            for (uint32_t j = r; j < r + n && w->less[j] != IR_NO_ID; j++)
                less = tile_packed_dot(b, w->less[j], x.run[j], less);
            if (w->less[r] != IR_NO_ID) sum = ir_sub(b, sum, less);
            total = plus_times(b, opened[row].fractions ? ir_cast(b, IR_F32, sum) : sum,
                               w->scale[r], total);
            if (least && apart) below = plus_times(b, x.sums[r], w->least[r], below);
        }
        by_d[row] = plus_times(b, ir_cast(b, IR_F32, total), moved, by_d[row]);
        if (!least) continue;
        ir_id factor = apart                     ? ir_cast(b, IR_F32, below)
                       : w->least[0] == IR_NO_ID ? IR_NO_ID
                                                 : ir_cast(b, IR_F32, w->least[0]);
        by_m[row] = plus_times(b, apart ? x.scale : x.scaled, factor, by_m[row]);
    }
}

static void add_int8(tile_matvec *m, base_type type, uint32_t rows, tile_opened *opened) {
    ir_builder *b = m->k.b;
    for (uint32_t v = 0; v < m->c.n_x; v++) {
        ir_id by_d[TILE_ROWS_MAX], by_m[TILE_ROWS_MAX];
        for (uint32_t row = 0; row < rows; row++) by_d[row] = by_m[row] = IR_NO_ID;
        for (uint32_t i = 0; i < opened[0].n; i++)
            multiply_int8(m, type, rows, opened, i, v, by_d, by_m);
        for (uint32_t row = 0; row < rows; row++) {
            ir_id at = ir_u32(b, row * m->c.n_x + v),
                  sum = ir_fma(b, opened[row].d, by_d[row], ir_load(b, m->sums, at, 1));
            ir_store(b, m->sums, at,
                     by_m[row] == IR_NO_ID ? sum : ir_fma(b, opened[row].m, by_m[row], sum));
        }
    }
}

/* 16 bytes less `zero` as f32, without conversions: 2^23 + byte is a float whose lower bits are
 * the byte's. */
static void floats_of(tile_kernel *k, ir_id bytes, bool is_signed, uint32_t zero, ir_id x[4]) {
    ir_builder *b = k->b;
    if (is_signed) bytes = ir_xor(b, bytes, ir_bits(b, IR_U32, 4, 0x80808080u)), zero = 128;
    ir_id shifts = tile_ramp(b, 4, 0, 8), places = tile_ramp(b, 4, 0x7440, 1),
          bias = ir_number(b, IR_F32, 4, 8388608 + zero);
    ir_id above = ir_bits(b, IR_U32, 4, 0x4b000000u);
    for (uint32_t i = 0; i < 4; i++) {
        ir_id word = ir_splat(b, ir_extract(b, bytes, i), 4);
        ir_id whole = k->l->caps->permutes_bytes
                          ? ir_permute_bytes(b, word, above, places)
                          : ir_or(b, tile_and(b, ir_shr(b, word, shifts), 255), above);
        x[i] = ir_sub(b, ir_bitcast(b, IR_F32, 4, whole), bias);
    }
}

static ir_id dot_floats(ir_builder *b, const ir_id x[4], const ir_id y[4], ir_id sum) { /* f32x4 */
    for (uint32_t i = 0; i < 4; i++)
        sum = sum == IR_NO_ID ? ir_mul(b, x[i], y[i]) : ir_fma(b, x[i], y[i], sum);
    return sum;
}

/* As runs of types with tables are. */
static void deinterleave(ir_builder *b, uint32_t apart, ir_id x[2][4]) {
    ir_id interleaved[8];
    for (uint32_t i = 0; i < 8; i++) {
        ir_id four[4];
        for (uint32_t j = 0; j < 4; j++) {
            const uint32_t place = (4 * i + j) % (2 * apart),
                           from = 4 * i + j - place + place / 2 + place % 2 * apart;
            four[j] = ir_extract(b, x[from / 16][from % 16 / 4], from % 4);
        }
        interleaved[i] = ir_compose(b, four, 4);
    }
    for (uint32_t i = 0; i < 8; i++) x[i / 4][i % 4] = interleaved[i];
}

static ir_id times_whole(ir_builder *b, ir_id x, ir_id whole) {
    return whole == IR_NO_ID ? x : ir_mul(b, x, ir_cast(b, IR_F32, whole));
}

static void multiply_f32(tile_matvec *m, base_type type, uint32_t rows, const tile_opened *opened,
                         uint32_t i) {
    tile_kernel *k = &m->k;
    ir_builder *b = k->b;
    const tile_part *p = &opened[0].parts[i];
    const bool is_signed = tile_packed_signed(type), least = opened[0].m != IR_NO_ID;
    ir_id w[TILE_ROWS_MAX][2][4];
    for (uint32_t row = 0; row < rows; row++)
        for (uint32_t r = 0; r < p->n_run; r++) {
            ir_id run = opened[row].parts[i].run[r], less = opened[row].parts[i].less[r];
            if (less != IR_NO_ID) run = tile_bytes_less(b, run, less);
            floats_of(k, run, is_signed, tile_packed_zero(type) << p->up, w[row][r]);
        }
    for (uint32_t v = 0; v < m->c.n_x; v++) {
        ir_id x[2][4], all[2] = {IR_NO_ID, IR_NO_ID};
        for (uint32_t r = 0; r < p->n_run; r++) x_floats(m, v, p, r, x[r]);
        if (tile_weight_table(type)) deinterleave(b, tile_weight_interleave(type), x);
        for (uint32_t r = 0, n; least && r < p->n_run; r += n) {
            n = matvec_alike(p, r);
            for (uint32_t j = 0; j < 4 * n; j++) all[r] = plus(b, x[r + j / 4][j % 4], all[r]);
            all[r] = tile_sum_vector(b, all[r]);
        }
        for (uint32_t row = 0; row < rows; row++) {
            const tile_part *own = &opened[row].parts[i];
            ir_id d = p->up ? ir_mul(b, opened[row].d, ir_f32(b, 1.0f / (float)(1u << p->up)))
                            : opened[row].d;
            for (uint32_t r = 0, n; r < p->n_run; r += n) {
                ir_id sum = IR_NO_ID;
                n = matvec_alike(own, r);
                for (uint32_t j = r; j < r + n; j++) sum = dot_floats(b, w[row][j], x[j], sum);
                ir_id y = ir_mul(b, times_whole(b, d, own->scale[r]), tile_sum_vector(b, sum));
                add_to(m, row, v,
                       least ? ir_fma(b, times_whole(b, opened[row].m, own->least[r]), all[r], y)
                             : y);
            }
        }
    }
}

static void add_packed(tile_matvec *m, const tile_rows *rows, ir_id raw[][TILE_RAW_MAX],
                       ir_id chunk) {
    tile_opened opened[TILE_ROWS_MAX];
    ir_id turn = m->c.lanes % 8 == 0 ? m->lane : chunk; /* then the same in all steps of a lane */
    const tile_pairs *pairs = NULL;
    for (uint32_t i = 0; i < m->n_pairs; i++)
        if (m->pairs[i].table == tile_weight_table(rows->w[0]->type)) pairs = &m->pairs[i];
    for (uint32_t row = 0; row < rows->n; row++)
        tile_packed_open(rows->w[row], raw[row], chunk, turn, pairs, &opened[row]);
    const bool int8 = m->c.x != MATVEC_DIRECT && m->c.x != MATVEC_SHARED;
    if (tile_matvec_copies(&m->c)) matvec_copied_add(m, rows->w[0]->type, rows->n, opened);
    else if (int8) add_int8(m, rows->w[0]->type, rows->n, opened);
    for (uint32_t i = 0; !int8 && i < opened[0].n; i++)
        multiply_f32(m, rows->w[0]->type, rows->n, opened, i);
}

/* The chunk in its own matrix; `from`: what to add to the row. */
static ir_id chunk_in_stretch(tile_matvec *m, base_type type, ir_id chunk, ir_id *from) {
    ir_builder *b = m->k.b;
    const uint32_t each = m->stretch / matvec_chunk(type);
    *from = ir_load(b, m->matrices, tile_div(b, chunk, each), 1);
    return tile_rem(b, chunk, each);
}

/* Of every row 16 numbers, as f32x4, times those of the vectors from number 16 `group` on. */
static void add_run(tile_matvec *m, uint32_t rows, ir_id values[][4], ir_id group) {
    ir_builder *b = m->k.b;
    const tile_part p = {.four = tile_div(b, group, 4),
                         .second = tile_rem(b, tile_div(b, group, 2), 2),
                         .half = tile_rem(b, group, 2)};
    for (uint32_t v = 0; v < m->c.n_x; v++) {
        ir_id x[4];
        x_floats(m, v, &p, 0, x);
        for (uint32_t r = 0; r < rows; r++)
            add_to(m, r, v, tile_sum_vector(b, dot_floats(b, values[r], x, IR_NO_ID)));
    }
}

static void add_halves(tile_matvec *m, const tile_rows *rows, ir_id raw[][TILE_RAW_MAX],
                       ir_id chunk) {
    ir_builder *b = m->k.b;
    const ir_type type = tile_weight_element(rows->w[0]->type);
    ir_id values[TILE_ROWS_MAX][4];
    for (uint32_t r = 0; r < rows->n; r++)
        for (uint32_t i = 0; i < 4; i++) {
            ir_id two = ir_swizzle(b, raw[r][i / 2], 2, i % 2 ? 0x32 : 0x10);
            values[r][i] = ir_cast(b, IR_F32, ir_bitcast(b, type, 4, two));
        }
    add_run(m, rows->n, values, chunk);
}

/* 16 plain numbers, or a block of a type with a table. */
static void add_values(tile_matvec *m, const tile_rows *rows, ir_id chunk) {
    ir_builder *b = m->k.b;
    const tile_weight *w = rows->w[0];
    tile_chunk chunks[TILE_ROWS_MAX];
    ir_id from = IR_NO_ID, own = m->stretch ? chunk_in_stretch(m, w->type, chunk, &from) : chunk;
    ir_id block = tile_div(b, own, w->chunks), part = tile_rem(b, own, w->chunks);
    ir_id before = m->stretch ? tile_mul(b, ir_sub(b, chunk, own), matvec_chunk(w->type) / TILE_RUN)
                              : IR_NO_ID;
    for (uint32_t r = 0; r < rows->n; r++) {
        ir_id row = m->stretch ? ir_add(b, rows->row[r], from) : rows->row[r];
        tile_chunk_load(rows->w[r], row, block, part, &chunks[r]);
    }
    for (uint32_t run = 0; run < w->runs; run++) {
        ir_id values[TILE_ROWS_MAX][4],
            group = tile_div(b, tile_run_at(w, block, part, run), TILE_RUN);
        if (m->stretch) group = ir_add(b, group, before);
        for (uint32_t r = 0; r < rows->n; r++)
            tile_run_load(rows->w[r], &chunks[r], run, values[r]);
        add_run(m, rows->n, values, group);
    }
}

/* ---- rows ------------------------------------------------------------------------------------ */

static uint32_t chunks_of(const tile_matvec *m, base_type type) {
    return m->length / matvec_chunk(type);
}

/* Steps of a row; some lanes may have no chunk in the last ones. */
static uint32_t steps_of(const tile_matvec *m, base_type type) {
    const uint32_t each = m->c.depth * m->c.lanes;
    if (!tile_matvec_copies(&m->c)) return whole_over(chunks_of(m, type), each);
    return whole_over(m->length, m->c.window) * (m->c.window / matvec_chunk(type) / each);
}

/* Chunk of step `step`, turn d. */
static ir_id chunk_at(tile_matvec *m, ir_id step, uint32_t d) {
    ir_builder *b = m->k.b;
    ir_id first = tile_add(b, tile_mul(b, step, m->c.depth * m->c.lanes), d * m->c.lanes);
    return ir_add(b, m->lane, first);
}

void tile_matvec_fetch(tile_matvec *m, const tile_rows *rows, ir_id step) {
    ir_builder *b = m->k.b;
    const base_type type = rows->w[0]->type;
    uint8_t widths[TILE_RAW_MAX];
    const uint32_t n = matvec_raw_widths(type, widths), words = matvec_raw_words(type),
                   all = chunks_of(m, type);
    if (!n) return;
    for (uint32_t d = 0; d < m->c.depth; d++)
        for (uint32_t r = 0; r < rows->n; r++) {
            ir_id raw[TILE_RAW_MAX], chunk = chunk_at(m, step, d);
            if (all != steps_of(m, type) * m->c.depth * m->c.lanes)
                chunk = ir_min(b, chunk, ir_u32(b, all - 1));
            ir_id from = IR_NO_ID,
                  own = m->stretch ? chunk_in_stretch(m, type, chunk, &from) : chunk;
            raw_load(rows->w[r], m->stretch ? ir_add(b, rows->row[r], from) : rows->row[r], own,
                     raw);
            for (uint32_t i = 0, at = (d * rows->n + r) * words; i < n; at += widths[i++])
                for (uint32_t e = 0; e < widths[i]; e++)
                    ir_store(b, m->ahead, ir_u32(b, at + e),
                             widths[i] == 1 ? raw[i] : ir_extract(b, raw[i], e));
        }
}

/* What was fetched, out of the registers. */
static void take_ahead(tile_matvec *m, const tile_rows *rows, uint32_t d,
                       ir_id raw[][TILE_RAW_MAX]) {
    ir_builder *b = m->k.b;
    uint8_t widths[TILE_RAW_MAX];
    const uint32_t n = matvec_raw_widths(rows->w[0]->type, widths),
                   words = matvec_raw_words(rows->w[0]->type);
    for (uint32_t r = 0; r < rows->n; r++)
        for (uint32_t i = 0, at = (d * rows->n + r) * words; i < n; at += widths[i++]) {
            ir_id parts[4];
            for (uint32_t e = 0; e < widths[i]; e++)
                parts[e] = ir_load(b, m->ahead, ir_u32(b, at + e), 1);
            raw[r][i] = widths[i] == 1 ? parts[0] : ir_compose(b, parts, widths[i]);
        }
}

/* The following loads, then this step's arithmetic. inner: the step's number in its window. */
static void walk_step(tile_matvec *m, const tile_rows *rows, const tile_rows *next, ir_id there,
                      ir_id step, uint32_t steps, ir_id inner) {
    ir_builder *b = m->k.b;
    const uint32_t depth = m->c.depth, lanes = m->c.lanes, all = chunks_of(m, rows->w[0]->type);
    ir_id raw[MATVEC_DEPTH_MAX][TILE_ROWS_MAX][TILE_RAW_MAX];
    for (uint32_t d = 0; d < depth; d++) take_ahead(m, rows, d, raw[d]);
    if (steps > 1) {
        ir_id after = tile_add(b, step, 1), more = ir_lt(b, after, ir_u32(b, steps));
        tile_weight weights[TILE_ROWS_MAX];
        tile_rows then = *rows;
        if (next) {
            for (uint32_t r = 0; r < rows->n; r++) {
                then.row[r] = ir_select(b, more, rows->row[r], next->row[r]);
                weights[r] = *rows->w[r];
                for (uint32_t i = 0; i < PACK_PLANE_MAX; i++)
                    if (next->w[r]->plane[i] != weights[r].plane[i])
                        weights[r].plane[i] =
                            ir_select(b, more, weights[r].plane[i], next->w[r]->plane[i]);
                if (next->w[r]->start != weights[r].start)
                    weights[r].start = ir_select(b, more, weights[r].start, next->w[r]->start);
                then.w[r] = &weights[r];
            }
            after = ir_select(b, more, after, ir_u32(b, 0));
        }
        ir_if(b, next ? ir_or(b, more, there) : more);
        tile_matvec_fetch(m, &then, after);
        ir_end(b);
    } else if (next) {
        ir_if(b, there);
        tile_matvec_fetch(m, next, ir_u32(b, 0));
        ir_end(b);
    }
    for (uint32_t d = 0; d < depth; d++) {
        const bool ragged = ((steps - 1) * depth + d + 1) * lanes > all;
        if (ragged) ir_if(b, ir_lt(b, chunk_at(m, step, d), ir_u32(b, all)));
        (matvec_halves(rows->w[0]->type) ? add_halves : add_packed)(m, rows, raw[d],
                                                                    chunk_at(m, inner, d));
        if (ragged) ir_end(b);
    }
}

/* Window by window; the last one asks for the first again, of a tile that may follow. */
static void walk_windows(tile_matvec *m, const tile_rows *rows, const tile_rows *next,
                         ir_id there) {
    ir_builder *b = m->k.b;
    const uint32_t windows = whole_over(m->length, m->c.window),
                   steps = steps_of(m, rows->w[0]->type), turns = steps / windows;
    ir_id zero = ir_u32(b, 0), one = ir_u32(b, 1);
    ir_id window = ir_loop(b, zero, ir_u32(b, windows), one), after = tile_add(b, window, 1),
          more = ir_lt(b, after, ir_u32(b, windows));
    matvec_copy_window(m, ir_select(b, more, after, zero));
    ir_id turn = turns > 1 ? ir_loop(b, zero, ir_u32(b, turns), one) : zero;
    walk_step(m, rows, next, there, ir_add(b, tile_mul(b, window, turns), turn), steps, turn);
    if (turns > 1) ir_end(b);
    ir_end(b);
}

void tile_matvec_join(tile_matvec *m, uint32_t rows, ir_id *sums) {
    ir_builder *b = m->k.b;
    const uint32_t n = rows * m->c.n_x;
    const uint32_t lanes = m->c.lanes, wg = m->c.wg;
    if (m->c.subgroups || lanes == 1) {
        for (uint32_t i = 0; i < n; i++) {
            sums[i] = ir_load(b, m->sums, ir_u32(b, i), 1);
            for (uint32_t mask = lanes / 2; mask; mask /= 2)
                sums[i] = ir_add(b, sums[i], ir_subgroup_shuffle_xor(b, sums[i], mask));
        }
        return;
    }
    ir_id local = ir_local(b, 0);
    for (uint32_t i = 0; i < n; i++)
        ir_store(b, m->joined, tile_add(b, local, i * wg), ir_load(b, m->sums, ir_u32(b, i), 1));
    ir_barrier(b);
    ir_id first = ir_sub(b, local, m->lane);
    for (uint32_t i = 0; i < n; i++) {
        sums[i] = ir_load(b, m->joined, tile_add(b, first, i * wg), 1);
        for (uint32_t j = 1; j < lanes; j++)
            sums[i] = ir_add(b, sums[i], ir_load(b, m->joined, tile_add(b, first, i * wg + j), 1));
    }
    ir_barrier(b);
}

void tile_matvec_walk(tile_matvec *m, const tile_rows *rows, const tile_rows *next, ir_id there,
                      ir_id *sums) {
    tile_matvec_add(m, rows, next, there);
    tile_matvec_join(m, rows->n, sums);
}

void tile_matvec_clear(tile_matvec *m, uint32_t rows) {
    ir_builder *b = m->k.b;
    for (uint32_t i = 0; i < rows * m->c.n_x; i++) ir_store(b, m->sums, ir_u32(b, i), ir_f32(b, 0));
}

void tile_matvec_add(tile_matvec *m, const tile_rows *rows, const tile_rows *next, ir_id there) {
    ir_builder *b = m->k.b;
    const uint32_t all = chunks_of(m, rows->w[0]->type);
    if (!m->has_sums) tile_matvec_clear(m, rows->n);
    if (!matvec_raw_words(rows->w[0]->type)) {
        ir_id chunk =
            ir_loop_unrolled(b, m->lane, ir_u32(b, all), ir_u32(b, m->c.lanes), m->c.depth);
        add_values(m, rows, chunk);
        ir_end(b);
    } else if (tile_matvec_copies(&m->c) && m->c.window < m->length) {
        walk_windows(m, rows, next, there);
    } else {
        const uint32_t steps = steps_of(m, rows->w[0]->type);
        if (steps == 1) walk_step(m, rows, next, there, ir_u32(b, 0), 1, ir_u32(b, 0));
        else {
            ir_id step = ir_loop(b, ir_u32(b, 0), ir_u32(b, steps), ir_u32(b, 1));
            walk_step(m, rows, next, there, step, steps, step);
            ir_end(b);
        }
    }
}
