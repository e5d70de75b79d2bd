/* dots_tile.c - see tile/dots_tile.h.
 *
 * In workgroup memory a tile is planes of 16 bytes: of block b the first halves of all rows, then
 * the second ones. So lanes that bring or read neighbouring rows use different banks. */
#include "tile/dots_tile.h"
#include "base/build.h"
#include "tile/whole.h"

#include <assert.h>

enum { BLOCK = DOTS_BLOCK };

/* Bits of 1.5 * 2^23: sums up to 2^22 beside it are floats without conversion. A scale without its
 * last two bits times that number is exact, so one multiply-add scales a sum and takes it off. */
static const uint32_t START = 0x4b400000u, SCALE_BITS = ~3u;
static const float START_FLOAT = 12582912.0f;

uint32_t dots_row_factors(const dots_kind *w) {
    return (w->least ? 2u : 1u) * (w->halves ? 2u : 1u);
}

uint32_t dots_vector_factors(const dots_kind *w) {
    return !w->least ? 1 : w->halves ? 4 : 2;
}

uint32_t dots_pitch(const dots_form *f) {
    return f->vectors + 2;
}

/* ---- from memory ----------------------------------------------------------------------------- */

/* Begins a condition for turn `turn` of what `count` lanes do, each once, from lane 0 on as `lane`
 * counts them; false: all lanes do. */
static bool turn_begin(dots *d, ir_id lane, uint32_t turn, uint32_t count) {
    const uint32_t lanes = d->k.lanes;
    if ((turn + 1) * lanes <= count) return false;
    ir_if(d->k.b, ir_lt(d->k.b, lane, ir_u32(d->k.b, count - turn * lanes)));
    return true;
}

static ir_id slot_of(dots *d, uint32_t turn) {
    return tile_add(d->k.b, ir_local(d->k.b, 0), turn * d->k.lanes);
}

/* Rows are brought by other lanes than vectors, as far as there are: the second half is first. */
static ir_id row_lane(dots *d) {
    return ir_xor(d->k.b, ir_local(d->k.b, 0), ir_u32(d->k.b, d->k.lanes / 2));
}

static ir_id row_slot(dots *d, uint32_t turn) {
    return tile_add(d->k.b, row_lane(d), turn * d->k.lanes);
}

/* Turn `turn`'s unit of a row. */
static ir_id unit_of(dots *d, uint32_t turn) {
    return tile_div(d->k.b, row_slot(d, turn), d->rows);
}

/* Its chunk in tile `step`. */
static ir_id chunk_of(dots *d, uint32_t turn, ir_id step) {
    ir_builder *b = d->k.b;
    ir_id chunk = ir_add(b, tile_mul(b, tile_div(b, step, d->share), d->units), unit_of(d, turn));
    return d->p->k % d->f.depth ? ir_min(b, chunk, ir_u32(b, d->p->k / d->w.chunk - 1)) : chunk;
}

/* Of turn `turn`: the vector's place in the tile, the piece's among those side by side, and the
 * number of such runs before it. */
static ir_id vector_slot(dots *d, uint32_t turn) {
    return tile_rem(d->k.b, tile_div(d->k.b, slot_of(d, turn), d->pieces), d->f.vectors);
}

static ir_id piece_slot(dots *d, uint32_t turn) {
    return tile_rem(d->k.b, slot_of(d, turn), d->pieces);
}

static ir_id run_slot(dots *d, uint32_t turn) {
    return tile_div(d->k.b, slot_of(d, turn), d->pieces * d->f.vectors);
}

/* Two blocks of a vector in memory: run `run` of tile `step`, in units of both. */
static ir_id pair_at(dots *d, ir_id step, ir_id run, ir_id vector) {
    ir_builder *b = d->k.b;
    const uint32_t all = whole_over(d->p->k, 2 * BLOCK);
    ir_id pair =
        d->blocks < 2 ? tile_div(b, step, 2) : ir_add(b, tile_mul(b, step, d->pairs_of), run);
    if (d->blocks > 1 && all % d->pairs_of) pair = ir_min(b, pair, ir_u32(b, all - 1));
    return ir_fma(b, pair, d->bound, vector);
}

static void fetch_vectors(dots *d, ir_id step) {
    ir_builder *b = d->k.b;
    for (uint32_t t = 0; t < d->piece_turns; t++) {
        const bool some = turn_begin(d, ir_local(b, 0), t, d->f.vectors * d->pieces * d->pairs_of);
        ir_id piece = piece_slot(d, t);
        if (d->blocks < 2) piece = ir_add(b, piece, tile_mul(b, tile_rem(b, step, 2), 2));
        ir_id pair = pair_at(d, step, run_slot(d, t), d->vector_of[t]),
              at = tile_mul(b, ir_add(b, tile_mul(b, pair, 4), piece), 4),
              four = ir_load(b, d->x, at, 4);
        for (uint32_t e = 0; e < 4; e++)
            ir_store(b, d->x_ahead, ir_u32(b, 4 * t + e), ir_extract(b, four, e));
        if (some) ir_end(b);
    }
    for (uint32_t t = 0; t < d->pair_turns; t++) {
        const bool some = turn_begin(d, ir_local(b, 0), t, d->f.vectors * d->pairs_of);
        ir_id run = tile_div(b, slot_of(d, t), d->f.vectors),
              both = ir_load(b, d->scales,
                             tile_mul(b, pair_at(d, step, run, d->pair_vector_of[t]), 4), 4);
        for (uint32_t e = 0; e < 4; e++)
            ir_store(b, d->scale_ahead, ir_u32(b, 4 * t + e), ir_extract(b, both, e));
        if (some) ir_end(b);
    }
}

/* What the tile of step `step` is made of, asked for. */
static void fetch(dots *d, ir_id step) {
    ir_builder *b = d->k.b;
    const uint32_t words = matvec_raw_words(d->w.type);
    fetch_vectors(d, step);
    for (uint32_t t = 0; t < d->row_turns; t++) {
        uint8_t widths[TILE_RAW_MAX];
        const uint32_t n = tile_packed_widths(d->w.type, widths);
        const bool some = turn_begin(d, row_lane(d), t, d->rows * d->units);
        ir_id raw[TILE_RAW_MAX];
        tile_weight w = d->weight[0];
        for (uint32_t i = 0; d->per > 1 && i < PACK_PLANE_MAX; i++)
            if (w.plane[i] != d->weight[1].plane[i])
                w.plane[i] = ir_select(b, d->other[t], d->weight[1].plane[i], w.plane[i]);
        tile_packed_load(&w, d->row_of[t], chunk_of(d, t, step), raw);
        for (uint32_t i = 0, at = t * words; i < n; at += widths[i++])
            for (uint32_t e = 0; e < widths[i]; e++)
                ir_store(b, d->w_ahead, ir_u32(b, at + e),
                         widths[i] == 1 ? raw[i] : ir_extract(b, raw[i], e));
        if (some) ir_end(b);
    }
}

/* ---- to workgroup memory --------------------------------------------------------------------- */

/* Where 16 bytes of a tile of `rows` rows lie: half h of block `block`. */
static ir_id place_of(dots *d, uint32_t rows, ir_id block, ir_id half, ir_id row) {
    ir_builder *b = d->k.b;
    ir_id plane = ir_add(b, tile_mul(b, block, 2), half);
    return tile_mul(b, ir_add(b, tile_mul(b, plane, rows), row), 4);
}

static ir_id signed_half(dots *d, ir_id word, uint32_t up) {
    ir_builder *b = d->k.b;
    ir_id top = ir_bitcast(b, IR_I32, 1, tile_shl(b, word, up));
    return ir_cast(b, IR_F32, tile_shr(b, top, 16));
}

/* The factors of block `block` of the tile, from a scale and its sums. */
static void put_vector_factors(dots *d, ir_id step, ir_id block, ir_id vector, ir_id scale,
                               ir_id sums) {
    ir_builder *b = d->k.b;
    const uint32_t blocks = d->p->k / BLOCK, wide = dots_vector_factors(&d->w);
    ir_id factors[4] = {ir_bitcast(b, IR_F32, 1, tile_and(b, scale, SCALE_BITS))};
    if (blocks % d->blocks) { /* nothing behind the end of k */
        ir_id number = ir_add(b, tile_mul(b, step, d->blocks), block);
        factors[0] = ir_select(b, ir_lt(b, number, ir_u32(b, blocks)), factors[0], ir_f32(b, 0));
        sums = ir_select(b, ir_lt(b, number, ir_u32(b, blocks)), sums, ir_u32(b, 0));
    }
    if (d->w.least) {
        ir_id low = signed_half(d, sums, 16), high = signed_half(d, sums, 0);
        factors[1] = ir_mul(b, factors[0], d->w.halves ? low : ir_add(b, low, high));
        factors[2] = ir_mul(b, factors[0], high);
        factors[3] = ir_f32(b, 0);
    }
    ir_id at = tile_mul(b, ir_add(b, tile_mul(b, block, d->f.vectors), vector), wide);
    ir_store(b, d->x_factors, at, wide == 1 ? factors[0] : ir_compose(b, factors, wide));
}

static void put_vectors(dots *d, ir_id step) {
    ir_builder *b = d->k.b;
    for (uint32_t t = 0; t < d->piece_turns; t++) {
        const bool some = turn_begin(d, ir_local(b, 0), t, d->f.vectors * d->pieces * d->pairs_of);
        ir_id words[4], piece = piece_slot(d, t),
                        block = ir_add(b, tile_mul(b, run_slot(d, t), 2), tile_div(b, piece, 2));
        for (uint32_t e = 0; e < 4; e++) words[e] = ir_load(b, d->x_ahead, ir_u32(b, 4 * t + e), 1);
        ir_store(b, d->x_tile,
                 place_of(d, dots_pitch(&d->f), block, tile_rem(b, piece, 2), vector_slot(d, t)),
                 ir_compose(b, words, 4));
        if (some) ir_end(b);
    }
    for (uint32_t t = 0; t < d->pair_turns; t++) {
        const bool some = turn_begin(d, ir_local(b, 0), t, d->f.vectors * d->pairs_of);
        ir_id vector = tile_rem(b, slot_of(d, t), d->f.vectors),
              run = tile_div(b, slot_of(d, t), d->f.vectors), words[4];
        for (uint32_t e = 0; e < 4; e++)
            words[e] = ir_load(b, d->scale_ahead, ir_u32(b, 4 * t + e), 1);
        if (d->blocks > 1) {
            for (uint32_t i = 0; i < 2; i++)
                put_vector_factors(d, step, tile_add(b, tile_mul(b, run, 2), i), vector,
                                   words[2 * i], words[2 * i + 1]);
        } else {
            ir_id odd = ir_ne(b, tile_rem(b, step, 2), ir_u32(b, 0));
            put_vector_factors(d, step, ir_u32(b, 0), vector, ir_select(b, odd, words[2], words[0]),
                               ir_select(b, odd, words[3], words[1]));
        }
        if (some) ir_end(b);
    }
}

/* Bytes less `zero`: below 128 before, signed afterwards. */
static ir_id centred(dots *d, ir_id bytes, uint32_t zero) {
    ir_builder *b = d->k.b;
    if (!zero) return bytes;
    ir_id tops = ir_bits(b, IR_U32, 4, 0x80808080u);
    return ir_xor(b, ir_sub(b, ir_or(b, bytes, tops), ir_bits(b, IR_U32, 4, zero * 0x01010101u)),
                  tops);
}

/* Every second byte of two words, from the first one on. */
static ir_id evens(ir_builder *b, ir_id x, ir_id y) {
    ir_id low = ir_or(b, tile_and(b, x, 255), tile_and(b, tile_shr(b, x, 8), 0xff00)),
          high = ir_or(b, tile_shl(b, tile_and(b, y, 255), 16),
                       tile_and(b, tile_shl(b, y, 8), 0xff000000u));
    return ir_or(b, low, high);
}

/* Runs whose bytes come from two places in turn (tile/packed.h), put in order. */
static void in_order(dots *d, ir_id run[2]) {
    ir_builder *b = d->k.b;
    const bool apart = tile_weight_interleave(d->w.type) == TILE_RUN;
    ir_id words[2][4];
    for (uint32_t r = 0; r < 2; r++)
        for (uint32_t i = 0; i < 2; i++) {
            ir_id x = ir_extract(b, run[r], 2 * i), y = ir_extract(b, run[r], 2 * i + 1),
                  first = evens(b, x, y), second = evens(b, tile_shr(b, x, 8), tile_shr(b, y, 8));
            if (apart) words[0][2 * r + i] = first, words[1][2 * r + i] = second;
            else words[r][i] = first, words[r][2 + i] = second;
        }
    for (uint32_t r = 0; r < 2; r++) run[r] = ir_compose(b, words[r], 4);
}

static ir_id factor_of(dots *d, ir_id x, ir_id whole, bool fractions) {
    ir_builder *b = d->k.b;
    if (whole == IR_NO_ID) return x;
    return ir_mul(b, x, fractions ? whole : ir_cast(b, IR_F32, whole));
}

typedef struct ready { /* a part of a chunk as it goes to workgroup memory */
    ir_id run[2], scale[2], least[2];
} ready;

static ready ready_of(dots *d, const tile_opened *o, const tile_part *part) {
    ir_builder *b = d->k.b;
    const uint32_t zero = tile_packed_zero(d->w.type) << part->up;
    ready r = {{IR_NO_ID, IR_NO_ID}, {IR_NO_ID, IR_NO_ID}, {IR_NO_ID, IR_NO_ID}};
    ir_id scale = part->up ? ir_mul(b, o->d, ir_f32(b, 1.0f / (float)(1u << part->up))) : o->d;
    assert((o->m != IR_NO_ID) == d->w.least);
    for (uint32_t i = 0; i < part->n_run; i++) {
        r.run[i] = part->less[i] == IR_NO_ID ? part->run[i]
                                             : tile_bytes_less(b, part->run[i], part->less[i]);
        r.run[i] = centred(d, r.run[i], zero);
        r.scale[i] = factor_of(d, scale, part->scale[i], o->fractions);
        if (d->w.least) r.least[i] = factor_of(d, o->m, part->least[i], false);
    }
    if (tile_weight_interleave(d->w.type)) in_order(d, r.run);
    return r;
}

/* Of parts [n] that lie `apart` in memory of k the one of this tile. */
static ir_id pick(dots *d, ir_id which, const ir_id *x, uint32_t n) {
    ir_builder *b = d->k.b;
    ir_id picked = x[0];
    for (uint32_t i = 1; i < n; i++) {
        if (x[i] == IR_NO_ID) continue;
        ir_id is = ir_eq(b, which, ir_u32(b, i));
        picked = ir_select(b, ir_splat(b, is, ir_at(b, x[i])->width), x[i], picked);
    }
    return picked;
}

static void put_ready(dots *d, const ready *r, uint32_t n_run, ir_id block, ir_id half, ir_id row) {
    ir_builder *b = d->k.b;
    const uint32_t wide = dots_row_factors(&d->w), own = d->w.least ? 2 : 1;
    for (uint32_t i = 0; i < n_run; i++)
        ir_store(b, d->w_tile, place_of(d, d->rows, block, n_run == 2 ? ir_u32(b, i) : half, row),
                 r->run[i]);
    ir_id at = tile_mul(b, ir_add(b, tile_mul(b, block, d->rows), row), wide);
    for (uint32_t i = 0; i < (d->w.halves ? n_run : 1); i++) {
        ir_id both[2] = {r->scale[i], r->least[i]}, to = at;
        if (d->w.halves)
            to = n_run == 2 ? tile_add(b, at, i * own) : ir_add(b, at, tile_mul(b, half, own));
        ir_store(b, d->w_factors, to, own == 1 ? both[0] : ir_compose(b, both, 2));
    }
}

static void put_rows(dots *d, ir_id step) {
    ir_builder *b = d->k.b;
    const uint32_t words = matvec_raw_words(d->w.type);
    uint8_t widths[TILE_RAW_MAX];
    const uint32_t n = tile_packed_widths(d->w.type, widths);
    for (uint32_t t = 0; t < d->row_turns; t++) {
        const bool some = turn_begin(d, row_lane(d), t, d->rows * d->units);
        ir_id raw[TILE_RAW_MAX], row = tile_rem(b, row_slot(d, t), d->rows);
        for (uint32_t i = 0, at = t * words; i < n; at += widths[i++]) {
            ir_id parts[4];
            for (uint32_t e = 0; e < widths[i]; e++)
                parts[e] = ir_load(b, d->w_ahead, ir_u32(b, at + e), 1);
            raw[i] = widths[i] == 1 ? parts[0] : ir_compose(b, parts, widths[i]);
        }
        tile_opened o;
        tile_packed_open(&d->weight[0], raw, unit_of(d, t), chunk_of(d, t, step),
                         d->pairs.table ? &d->pairs : NULL, &o);
        const uint32_t each = o.n / d->share; /* parts of this tile */
        ir_id which = d->share > 1 ? tile_rem(b, step, d->share) : IR_NO_ID;
        for (uint32_t i = 0; i < each; i++) {
            ready all[TILE_PART_MAX] = {0}, own;
            for (uint32_t s = 0; s < d->share; s++)
                all[s] = ready_of(d, &o, &o.parts[s * each + i]);
            own = all[0];
            for (uint32_t r = 0; d->share > 1 && r < o.parts[0].n_run; r++) {
                ir_id of[3][TILE_PART_MAX];
                for (uint32_t s = 0; s < d->share; s++) {
                    of[0][s] = all[s].run[r];
                    of[1][s] = all[s].scale[r];
                    of[2][s] = all[s].least[r];
                }
                own.run[r] = pick(d, which, of[0], d->share);
                own.scale[r] = pick(d, which, of[1], d->share);
                own.least[r] = pick(d, which, of[2], d->share);
            }
            const tile_part *p = &o.parts[i];
            ir_id block = ir_add(b, tile_mul(b, p->four, 2), p->second);
            put_ready(d, &own, p->n_run, block, p->half, row);
        }
        if (some) ir_end(b);
    }
}

/* ---- multiplying ----------------------------------------------------------------------------- */

typedef struct block { /* of a row or a vector */
    ir_id half[2], factor[4];
    ir_id start; /* of a vector: its scale times what sums begin with, below zero */
} block;

/* Of a tile of `rows` rows, whose planes have `pitch`. */
static block block_at(dots *d, ir_memory bytes, ir_memory factors, uint32_t rows, uint32_t pitch,
                      uint32_t wide, ir_id number, ir_id row) {
    ir_builder *b = d->k.b;
    block x = {.start = IR_NO_ID};
    for (uint32_t h = 0; h < 2; h++)
        x.half[h] = ir_load(b, bytes, place_of(d, pitch, number, ir_u32(b, h), row), 4);
    ir_id at = tile_mul(b, ir_add(b, tile_mul(b, number, rows), row), wide),
          all = ir_load(b, factors, at, wide);
    for (uint32_t i = 0; i < wide; i++) x.factor[i] = wide == 1 ? all : ir_extract(b, all, i);
    return x;
}

/* A sum of bytes' products that began with START, times the vector's scale. */
static ir_id scaled(ir_builder *b, const block *x, ir_id sum) {
    return ir_fma(b, x->factor[0], ir_bitcast(b, IR_F32, 1, sum), x->start);
}

/* sum + the product of two blocks. */
static ir_id plus_product(dots *d, const block *w, const block *x, ir_id sum) {
    ir_builder *b = d->k.b;
    const uint32_t own = d->w.least ? 2 : 1;
    ir_id start = ir_i32(b, (int32_t)START);
    if (!d->w.halves) {
        ir_id whole = tile_packed_dot(b, w->half[1], x->half[1],
                                      tile_packed_dot(b, w->half[0], x->half[0], start));
        sum = ir_fma(b, w->factor[0], scaled(b, x, whole), sum);
        return d->w.least ? ir_fma(b, w->factor[1], x->factor[1], sum) : sum;
    }
    for (uint32_t h = 0; h < 2; h++) {
        ir_id part = tile_packed_dot(b, w->half[h], x->half[h], start);
        sum = ir_fma(b, w->factor[own * h], scaled(b, x, part), sum);
    }
    for (uint32_t h = 0; d->w.least && h < 2; h++)
        sum = ir_fma(b, w->factor[own * h + 1], x->factor[1 + h], sum);
    return sum;
}

static uint32_t sum_at(const dots *d, uint32_t row, uint32_t vector) {
    return row * d->f.each + vector;
}

/* The lane's place among those that divide rows, and vectors: eight by four neighbours. */
static ir_id lane_row(dots *d) {
    ir_builder *b = d->k.b;
    ir_id lane = ir_local(b, 0);
    return ir_add(b, tile_and(b, lane, 7), tile_mul(b, tile_and(b, tile_div(b, lane, 32), 1), 8));
}

static ir_id lane_vector(dots *d) {
    ir_builder *b = d->k.b;
    ir_id lane = ir_local(b, 0);
    return ir_add(b, tile_and(b, tile_div(b, lane, 8), 3), tile_mul(b, tile_div(b, lane, 64), 4));
}

static void multiply(dots *d) {
    ir_builder *b = d->k.b;
    const uint32_t vectors = d->f.each, lanes = d->f.vectors / vectors;
    ir_id row = lane_row(d), vector = lane_vector(d),
          number = d->blocks > 1 ? ir_loop(b, ir_u32(b, 0), ir_u32(b, d->blocks), ir_u32(b, 1))
                                 : ir_u32(b, 0);
    block w[DOTS_ROWS_MAX];
    for (uint32_t r = 0; r < d->f.rows; r++)
        w[r] = block_at(d, d->w_tile, d->w_factors, d->rows, d->rows, dots_row_factors(&d->w),
                        number, tile_add(b, row, r * DOTS_LANES));
    for (uint32_t v = 0; v < vectors; v++) {
        block x = block_at(d, d->x_tile, d->x_factors, d->f.vectors, dots_pitch(&d->f),
                           dots_vector_factors(&d->w), number, tile_add(b, vector, v * lanes));
        x.start = ir_mul(b, x.factor[0], ir_f32(b, -START_FLOAT));
        for (uint32_t r = 0; r < d->f.rows; r++) {
            ir_id at = ir_u32(b, sum_at(d, r, v));
            ir_store(b, d->sums, at, plus_product(d, &w[r], &x, ir_load(b, d->sums, at, 1)));
        }
    }
    if (d->blocks > 1) ir_end(b);
}

/* ---- results --------------------------------------------------------------------------------- */

static ir_id pair_of(dots *d, ir_id i) { /* of vector i of the tile's matrix: its number in x's */
    return d->p->by ? tile_grouped_pair(d->k.b, d->p->by, d->list, d->pairs_at, i) : i;
}

static void store_tile(dots *d) {
    ir_builder *b = d->k.b;
    const uint32_t vectors = d->f.each, lanes = d->f.vectors / vectors;
    ir_id column = ir_add(b, d->column, lane_row(d)), vector = ir_add(b, d->first, lane_vector(d));
    for (uint32_t v = 0; v < vectors; v++) {
        ir_id i = tile_add(b, vector, v * lanes);
        ir_if(b, ir_lt(b, i, d->n));
        ir_id result = pair_of(d, i), at = ir_fma(b, result, d->out_stride, d->out_offset);
        if (d->f.parts > 1) /* [part, n, rows] */
            at = ir_fma(b, ir_fma(b, ir_group(b, 2), d->n, i), d->count, ir_u32(b, 0));
        for (uint32_t r = 0; r < d->f.rows / d->per; r++) {
            ir_id row = tile_add(b, column, r * DOTS_LANES),
                  y = ir_load(b, d->sums, ir_u32(b, sum_at(d, r, v)), 1);
            ir_if(b, ir_lt(b, row, d->count));
            if (d->per > 1)
                y = ir_mul(b, tile_gelu(b, y),
                           ir_load(b, d->sums, ir_u32(b, sum_at(d, r + d->f.rows / 2, v)), 1));
            if (d->p->end && d->f.parts == 1)
                tree_end_store(&d->end, result, ir_add(b, row, d->out_offset),
                               (ir_id[]){y, IR_NO_ID});
            else ir_store(b, d->out, ir_add(b, at, row), y);
            ir_end(b);
        }
        ir_end(b);
    }
}

/* The vector that stands at place `own` of the tile; beyond the last: the last. */
static ir_id vector_at(dots *d, ir_id own, ir_id last) {
    ir_id vector = pair_of(d, ir_min(d->k.b, ir_add(d->k.b, d->first, own), last));
    return d->p->by ? tile_div(d->k.b, vector, d->p->by->share) : vector;
}

/* What a lane brings in each step: the rows, and where the vectors begin. */
static void places(dots *d) {
    ir_builder *b = d->k.b;
    ir_id last = ir_sub(b, d->n, ir_u32(b, 1)), last_row = ir_sub(b, d->count, ir_u32(b, 1));
    for (uint32_t t = 0; t < d->piece_turns; t++)
        d->vector_of[t] = vector_at(d, vector_slot(d, t), last);
    for (uint32_t t = 0; t < d->pair_turns; t++)
        d->pair_vector_of[t] = vector_at(d, tile_rem(b, slot_of(d, t), d->f.vectors), last);
    for (uint32_t t = 0; t < d->row_turns; t++) {
        ir_id row = tile_rem(b, row_slot(d, t), d->rows);
        d->other[t] = ir_ge(b, row, ir_u32(b, d->columns));
        row = ir_add(b, d->column, tile_rem(b, row, d->columns));
        d->row_of[t] = ir_add(b, ir_min(b, row, last_row), d->start);
    }
}

/* The first terms of all sums: of low rank, a run of each row and vector at a time. */
static void add_low(dots *d) {
    tile_kernel *k = &d->k;
    ir_builder *b = k->b;
    const uint32_t vectors = d->f.each, lanes = d->f.vectors / vectors, n = TILE_RUN / k->wide,
                   rows = d->f.rows / d->per;
    const ir_id last = ir_sub(b, d->n, ir_u32(b, 1)), last_row = ir_sub(b, d->count, ir_u32(b, 1)),
                column = ir_add(b, d->column, lane_row(d)),
                vector = ir_add(b, d->first, lane_vector(d));
    if (d->f.parts > 1) ir_if(b, ir_eq(b, ir_group(b, 2), ir_u32(b, 0)));
    const ir_id run = ir_loop(b, ir_u32(b, 0), ir_u32(b, d->rank / TILE_RUN), ir_u32(b, 1)),
                start = tile_mul(b, run, TILE_RUN);
    ir_id w[DOTS_ROWS_MAX][4], x[4];
    for (uint32_t r = 0; r < d->f.rows; r++) {
        const uint32_t of = r / rows;
        const ir_id row = ir_min(b, tile_add(b, column, r % rows * DOTS_LANES), last_row);
        tile_chunk c;
        tile_chunk_load(&d->low_w[of], ir_add(b, row, d->low_first[of]), run, IR_NO_ID, &c);
        tile_run_load(&d->low_w[of], &c, 0, w[r]);
    }
    for (uint32_t v = 0; v < vectors; v++) {
        const ir_id i = ir_min(b, tile_add(b, vector, v * lanes), last),
                    at = ir_fma(b, i, d->low_stride, start);
        for (uint32_t r = 0; r < d->f.rows; r++) {
            const ir_id place = ir_u32(b, sum_at(d, r, v));
            ir_id sum = ir_load(b, d->sums, place, 1);
            if (r % rows == 0)
                tile_load_run(k, d->low, ir_add(b, at, d->low_offset[r / rows]), true, x);
            for (uint32_t e = 0; e < n; e++)
                for (uint32_t j = 0; j < k->wide; j++)
                    sum = ir_fma(b, ir_extract(b, w[r][e], j), ir_extract(b, x[e], j), sum);
            ir_store(b, d->sums, place, sum);
        }
    }
    ir_end(b);
    if (d->f.parts > 1) ir_end(b);
}

/* The tile that begins at vector d->first and row d->column, over this part of k. */
void dots_tile(dots *d) {
    ir_builder *b = d->k.b;
    const uint32_t each = whole_over(d->steps, d->f.parts);
    ir_id from = ir_u32(b, 0), to = ir_u32(b, d->steps), one = ir_u32(b, 1);
    if (d->f.parts > 1) {
        from = tile_mul(b, ir_group(b, 2), each);
        to = tile_add(b, from, each);
        if (each * d->f.parts > d->steps) to = ir_min(b, to, ir_u32(b, d->steps));
    }
    places(d);
    for (uint32_t i = 0; i < d->f.rows * d->f.each; i++)
        ir_store(b, d->sums, ir_u32(b, i), ir_f32(b, 0));
    if (BUILD_HAS_JOINED_ADAPTERS && d->rank) add_low(d);
    /* a part may be empty */
    fetch(d, each * d->f.parts > d->steps ? ir_min(b, from, ir_u32(b, d->steps - 1)) : from);
    ir_id step = ir_loop(b, from, to, one);
    put_vectors(d, step);
    put_rows(d, step);
    ir_barrier(b);
    ir_id next = ir_add(b, step, one);
    ir_if(b, ir_lt(b, next, to));
    fetch(d, next);
    ir_end(b);
    multiply(d);
    ir_barrier(b);
    ir_end(b);
    store_tile(d);
}
