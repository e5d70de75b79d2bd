/* random.c - see tile/random.h.
 *
 * Integers, and floats that are rounded nowhere, are the same bits on every device. Devices' own
 * log, sin and cos differ by more than normal numbers may: they are made here, of additions and
 * products, one division and one root. */
#include "tile/random.h"

#include <math.h>

static ir_id whole(ir_builder *b, ir_id like, uint32_t x) {
    const ir_instruction *of = ir_at(b, like);
    return ir_number(b, IR_U32, of ? of->width : 1, x);
}

static ir_id real(ir_builder *b, ir_id like, double x) {
    const ir_instruction *of = ir_at(b, like);
    return ir_number(b, IR_F32, of ? of->width : 1, x);
}

static ir_id turned(ir_builder *b, ir_id x, uint32_t by) {
    return ir_or(b, ir_shl(b, x, whole(b, x, by)), ir_shr(b, x, whole(b, x, 32 - by)));
}

void tile_threefry(ir_builder *b, ir_id key0, ir_id key1, ir_id counter0, ir_id counter1,
                   ir_id out[2]) {
    static const uint8_t turns[8] = {13, 15, 26, 6, 17, 29, 16, 24};
    const ir_id keys[3] = {key0, key1,
                           ir_xor(b, ir_xor(b, whole(b, key0, 0x1bd11bda), key0), key1)};
    ir_id x = ir_add(b, counter0, key0), y = ir_add(b, counter1, key1);
    for (uint32_t i = 0; i < 20; i++) {
        x = ir_add(b, x, y);
        y = ir_xor(b, turned(b, y, turns[i % 8]), x);
        if (i % 4 != 3) continue;
        const uint32_t turn = i / 4 + 1;
        x = ir_add(b, x, keys[turn % 3]);
        y = ir_add(b, ir_add(b, y, keys[(turn + 1) % 3]), whole(b, y, turn));
    }
    out[0] = x;
    out[1] = y;
}

/* The upper bits of a word as a number in [0, 1). */
static ir_id unit(ir_builder *b, ir_id word, uint32_t bits) {
    const ir_id x = ir_cast(b, IR_F32, ir_shr(b, word, whole(b, word, 32 - bits)));
    return ir_mul(b, x, real(b, x, ldexp(1, -(int)bits)));
}

/* In (0, 1): an odd number of 2^-24. */
static ir_id inner(ir_builder *b, ir_id word) {
    const ir_id odd = ir_or(b, ir_shr(b, word, whole(b, word, 8)), whole(b, word, 1)),
                x = ir_cast(b, IR_F32, odd);
    return ir_mul(b, x, real(b, x, 0x1p-24));
}

/* c[0] + x (c[1] + x (..)) */
static ir_id series(ir_builder *b, const double *c, uint32_t n, ir_id x) {
    ir_id sum = real(b, x, c[n - 1]);
    for (uint32_t i = n - 1; i-- > 0;) sum = ir_fma(b, sum, x, real(b, x, c[i]));
    return sum;
}

/* -log(x), x > 0 and no subnormal number: 2^e m, m in [sqrt(1/2), sqrt(2)); log(m) = 2 artanh(s),
 * s = (m - 1) / (m + 1). */
static ir_id minus_log(ir_builder *b, ir_id x) {
    static const double artanh[] = {2, 2.0 / 3, 2.0 / 5, 2.0 / 7, 2.0 / 9, 2.0 / 11};
    enum { ROOT_HALF = 0x3f3504f3 };
    const ir_instruction *of = ir_at(b, x);
    const uint32_t width = of ? of->width : 1;
    const ir_id bits = ir_bitcast(b, IR_U32, width, x),
                up = ir_sub(b, bits, whole(b, bits, ROOT_HALF)), mantissa = whole(b, up, 0x7fffff);
    const ir_id e = ir_shr(b, ir_bitcast(b, IR_I32, width, up), ir_number(b, IR_I32, width, 23)),
                m = ir_bitcast(b, IR_F32, width,
                               ir_add(b, ir_and(b, up, mantissa), whole(b, up, ROOT_HALF)));
    const ir_id s = ir_div(b, ir_sub(b, m, real(b, m, 1)), ir_add(b, m, real(b, m, 1)));
    const ir_id near =
        ir_mul(b, s, series(b, artanh, sizeof artanh / sizeof *artanh, ir_mul(b, s, s)));
    return ir_neg(b, ir_fma(b, ir_cast(b, IR_F32, e), real(b, m, 0.69314718055994530942), near));
}

/* cos(2 pi x), x the upper 24 bits of a word over 2^24: a quarter, and what is left of it. */
static ir_id cosine(ir_builder *b, ir_id word) {
    static const double cosines[] = {1,          -1.0 / 2,    1.0 / 24,
                                     -1.0 / 720, 1.0 / 40320, -1.0 / 3628800},
                        sines[] = {1, -1.0 / 6, 1.0 / 120, -1.0 / 5040, 1.0 / 362880};
    const ir_instruction *of = ir_at(b, word);
    const uint32_t width = of ? of->width : 1;
    const ir_id k = ir_shr(b, word, whole(b, word, 8)),
                shifted = ir_add(b, k, whole(b, k, 1 << 21)),
                quarter = ir_and(b, ir_shr(b, shifted, whole(b, k, 22)), whole(b, k, 3));
    const ir_id rest =
        ir_sub(b, ir_bitcast(b, IR_I32, width, ir_and(b, shifted, whole(b, k, (1 << 22) - 1))),
               ir_number(b, IR_I32, width, 1 << 21));
    const ir_id x = ir_mul(b, ir_cast(b, IR_F32, rest),
                           real(b, k, 0x1p-23 * 3.14159265358979323846)),
                z = ir_mul(b, x, x);
    const ir_id even = series(b, cosines, sizeof cosines / sizeof *cosines, z),
                odd = ir_mul(b, x, series(b, sines, sizeof sines / sizeof *sines, z));
    const ir_id y =
        ir_select(b, ir_eq(b, ir_and(b, quarter, whole(b, k, 1)), whole(b, k, 0)), even, odd);
    /* cos, -sin, -cos, sin */
    const ir_id turn = ir_add(b, quarter, whole(b, k, 1));
    return ir_select(b, ir_ne(b, ir_and(b, turn, whole(b, k, 2)), whole(b, k, 0)), ir_neg(b, y), y);
}

ir_id tile_random(ir_builder *b, const graph_attrs *attr, ir_id key0, ir_id key1, ir_id index) {
    const base_type type = (base_type)attr->random.type;
    ir_id words[2];
    tile_threefry(b, key0, key1, index, whole(b, index, attr->random.stream), words);
    switch ((base_random_kind)attr->random.kind) {
    case RANDOM_BITS: return words[0];
    case RANDOM_BITS_HIGH: return words[1];
    case RANDOM_TRUE: {
        const ir_id x = unit(b, words[0], 24);
        return ir_lt(b, x, real(b, x, (double)attr->random.chance));
    }
    case RANDOM_NORMAL: {
        const ir_id x = minus_log(b, inner(b, words[0]));
        return ir_mul(b, ir_sqrt(b, ir_add(b, x, x)), cosine(b, words[1]));
    }
    case RANDOM_GUMBEL: return minus_log(b, minus_log(b, inner(b, words[0])));
    case RANDOM_UNIFORM: break;
    }
    return unit(b, words[0], base_random_bits(type));
}
