/* value.c - the meaning of pure ops: bits of operands to bits of the result, one vector lane.
 *
 * Owns what the rules of ir_ops.h (its last column) mean: the functions that they call, and the
 * switches made of them. The interpreter and constant folding both call ir_evaluate, so they cannot
 * differ. The idea: f32, f16 and bf16 are computed in double and rounded to
 * f32 once (double has more than twice f32's digits, so + - * / sqrt are rounded as if at once),
 * then to the type. NaN results are one NaN.
 */
#include "ir/ir.h"
#include "base/types.h"

#include <math.h>
#include <string.h>

static uint64_t mask_of(ir_type type) {
    uint32_t bits = type == IR_BOOL ? 1 : 8 * ir_type_bytes(type);
    return bits < 64 ? (UINT64_C(1) << bits) - 1 : UINT64_MAX;
}

static bool is_float(ir_type type) {
    return ir_type_in(type, IR_FLOATS);
}

static bool is_signed(ir_type type) {
    return ir_type_in(type, IR_SIGNED);
}

/* ---- floats -----------------------------------------------------------------------------------
 */

static double float_of(ir_type type, uint64_t bits) {
    uint32_t word = (uint32_t)bits;
    float f;
    double d;
    if (type == IR_F64) {
        memcpy(&d, &bits, sizeof d);
        return d;
    }
    if (type == IR_F16) return base_f16_to_f32((uint16_t)bits);
    if (type == IR_BF16) word <<= 16;
    memcpy(&f, &word, sizeof f);
    return f;
}

static uint64_t bits_of(ir_type type, double value) {
    uint64_t bits;
    uint32_t word;
    float f = (float)value; /* to f16 and bf16 by f32 too */
    if (type == IR_F64) {
        if (isnan(value)) return UINT64_C(0x7ff8000000000000);
        memcpy(&bits, &value, sizeof bits);
        return bits;
    }
    if (type == IR_F16) return isnan(f) ? 0x7e00 : base_f32_to_f16(f);
    if (type == IR_BF16) return isnan(f) ? 0x7fc0 : base_f32_to_bf16(f);
    if (isnan(f)) return 0x7fc00000;
    memcpy(&word, &f, sizeof word);
    return word;
}

static uint64_t sign_bit(ir_type type) {
    return (mask_of(type) >> 1) + 1;
}

/* To the nearest, ties to even, whatever rounding the caller has set. */
static double round_even(double x) {
    if (!isfinite(x)) return x;
    double whole = floor(x), rest = x - whole;
    if (rest > 0.5 || (rest == 0.5 && fmod(whole, 2) != 0)) whole += 1;
    return copysign(whole, x);
}

static double fused(ir_type type, double x, double y, double z) {
    return type == IR_F64 ? fma(x, y, z) : (double)fmaf((float)x, (float)y, (float)z);
}

/* ---- any number, by its bits ------------------------------------------------------------------
 */

static int64_t signed_of(ir_type type, uint64_t bits) {
    uint64_t sign = sign_bit(type);
    uint64_t wide = (bits ^ sign) - sign;
    int64_t value;
    memcpy(&value, &wide, sizeof value);
    return value;
}

static bool is_nan(ir_type type, uint64_t x) {
    return is_float(type) && isnan(float_of(type, x));
}

static bool less(ir_type type, uint64_t x, uint64_t y) {
    if (is_float(type)) return float_of(type, x) < float_of(type, y);
    return is_signed(type) ? signed_of(type, x) < signed_of(type, y) : x < y;
}

static bool equal(ir_type type, uint64_t x, uint64_t y) {
    return is_float(type) ? float_of(type, x) == float_of(type, y) : x == y;
}

static bool is_negative(ir_type type, uint64_t x) {
    return ir_type_in(type, IR_SIGNED | IR_FLOATS) && x & sign_bit(type);
}

static uint64_t negate(ir_type type, uint64_t x) {
    return is_float(type) ? x ^ sign_bit(type) : 0 - x;
}

/* Of the smallest integer as it fits without a sign. */
static uint64_t magnitude(ir_type type, uint64_t x) {
    return is_negative(type, x) ? negate(type, x) & mask_of(type) : x;
}

/* ---- integers ---------------------------------------------------------------------------------
 */

static uint64_t popcount(uint64_t x) {
    uint64_t n = 0;
    for (; x; x &= x - 1) n++;
    return n;
}

/* On magnitudes, so that the smallest / -1 is no overflow. */
static uint64_t quotient(ir_type type, uint64_t x, uint64_t y) {
    if (!y) return 0;
    uint64_t whole = magnitude(type, x) / magnitude(type, y);
    return is_negative(type, x) != is_negative(type, y) ? 0 - whole : whole;
}

static uint32_t shift_count(ir_type type, uint64_t y) {
    return (uint32_t)y & (8 * ir_type_bytes(type) - 1);
}

static uint64_t shift_right(ir_type type, uint64_t x, uint32_t count) {
    return x >> count | (is_negative(type, x) ? ~(mask_of(type) >> count) : 0);
}

static uint64_t permute_bytes(uint64_t x, uint64_t y, uint64_t z) {
    const uint64_t both = y << 32 | x;
    uint64_t out = 0;
    for (uint32_t i = 0; i < 4; i++) {
        uint64_t byte = both >> 8 * (z >> 4 * i & 7) & 255;
        if (z >> 4 * i & 8) byte = byte & 128 ? 255 : 0;
        out |= byte << 8 * i;
    }
    return out;
}

static uint64_t dot4_i8(uint64_t x, uint64_t y, uint64_t sum) {
    for (uint32_t byte = 0; byte < 32; byte += 8)
        sum += (uint64_t)(signed_of(IR_I8, x >> byte & 255) * signed_of(IR_I8, y >> byte & 255));
    return sum;
}

static uint64_t dot4_u8(uint64_t x, uint64_t y, uint64_t sum) {
    for (uint32_t byte = 0; byte < 32; byte += 8)
        sum += (x >> byte & 255) * (uint64_t)signed_of(IR_I8, y >> byte & 255);
    return sum;
}

/* ---- casts ------------------------------------------------------------------------------------
 */

/* Toward zero, to the nearest end of the range outside it, NaN to 0. */
static uint64_t saturate(ir_type type, double x) {
    if (isnan(x)) return 0;
    uint64_t sign = sign_bit(type), most = is_signed(type) ? sign - 1 : mask_of(type);
    x = trunc(x);
    if (x <= 0) {
        if (!is_signed(type)) return 0;
        return -x >= (double)sign ? sign : (0 - (uint64_t)-x) & mask_of(type);
    }
    /* (double)most may be one too many: then every double below it fits */
    return x >= (double)most ? most : (uint64_t)x;
}

static uint64_t cast(ir_type to, ir_type from, uint64_t bits) {
    if (is_float(from)) {
        double x = float_of(from, bits);
        if (to == IR_BOOL) return x != 0;
        return is_float(to) ? bits_of(to, x) : saturate(to, x);
    }
    if (to == IR_BOOL) return bits != 0;
    if (is_float(to)) {
        int64_t x = is_signed(from) ? signed_of(from, bits) : 0;
        if (to == IR_F64) return bits_of(to, is_signed(from) ? (double)x : (double)bits);
        return bits_of(to, is_signed(from) ? (float)x : (float)bits); /* rounded to f32 once */
    }
    if (is_signed(from)) bits = (uint64_t)signed_of(from, bits);
    return bits & mask_of(to);
}

/* ---- the rules --------------------------------------------------------------------------------
 */

static uint64_t rounded(ir_op op, ir_type type, const uint64_t *in) {
    const uint32_t n = ir_op_of(op)->n_in;
    const double x = float_of(type, in[0]), y = n > 1 ? float_of(type, in[1]) : 0,
                 z = n > 2 ? float_of(type, in[2]) : 0;
    switch (op) {
#define DOUBLES_FLOAT(f) f
#define DOUBLES_FLOAT_OR_BITS(f, i) f
#define DOUBLES_BITS(i) NAN
#define DOUBLES_NO_VALUE NAN
#define X(NAME, name, form, n_in, types, flags, exact, meaning, text, value) \
    case IR_##NAME: return bits_of(type, DOUBLES_##value);
        IR_OP_LIST(X)
#undef X
    case IR_OP_COUNT: break;
    }
    return 0;
}

uint64_t ir_evaluate(ir_op op, ir_type type, ir_type in_type, const uint64_t *in) {
    const uint32_t n = ir_op_of(op)->n_in;
    const uint64_t x = in[0], y = n > 1 ? in[1] : 0, z = n > 2 ? in[2] : 0;
    switch (op) {
#define BITS_FLOAT(f) rounded(op, type, in)
#define BITS_FLOAT_OR_BITS(f, i) is_float(type) ? rounded(op, type, in) : BITS_BITS(i)
#define BITS_BITS(i) (i) & mask_of(type)
#define BITS_NO_VALUE 0
#define X(NAME, name, form, n_in, types, flags, exact, meaning, text, value) \
    case IR_##NAME: return BITS_##value;
        IR_OP_LIST(X)
#undef X
    case IR_OP_COUNT: break;
    }
    return 0;
}

double ir_to_double(ir_type type, uint64_t bits) {
    if (is_float(type)) return float_of(type, bits);
    return is_signed(type) ? (double)signed_of(type, bits) : (double)bits;
}

uint64_t ir_from_double(ir_type type, double value) {
    uint64_t bits;
    memcpy(&bits, &value, sizeof bits);
    return cast(type, IR_F64, bits);
}
