/* value.c - the meaning of pure ops: bits of operands to bits of the result, one vector lane.
 *
 * Owns the value rules that ir_ops.h states in words; the interpreter and constant folding both
 * call it, so they cannot differ. The idea: f32, f16 and bf16 are computed in double and rounded to
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
    double whole = floor(x), rest = x - whole;
    if (rest > 0.5 || (rest == 0.5 && fmod(whole, 2) != 0)) whole += 1;
    return copysign(whole, x);
}

/* Ops by their lists: so the switches below are complete, or do not compile. */
typedef enum same_op {
#define X(NAME, ...) SAME_##NAME = IR_##NAME,
    IR_UNARY_LIST(X) IR_BINARY_LIST(X) SAME_FMA = IR_FMA, SAME_PERMUTE_BYTES = IR_PERMUTE_BYTES
#undef X
} same_op;
typedef enum compare_op {
#define X(NAME, ...) COMPARE_##NAME = IR_##NAME,
    IR_COMPARE_LIST(X)
#undef X
} compare_op;
typedef enum value_op {
#define X(NAME, ...) VALUE_##NAME = IR_##NAME,
    IR_VALUE_LIST(X)
#undef X
} value_op;

static double float_value(same_op op, ir_type type, double x, double y, double z) {
    switch (op) {
    case SAME_FLOOR: return floor(x);
    case SAME_CEIL: return ceil(x);
    case SAME_TRUNC: return trunc(x);
    case SAME_ROUND: return isfinite(x) ? round_even(x) : x;
    case SAME_SQRT: return sqrt(x);
    case SAME_RSQRT: return 1 / sqrt(x);
    case SAME_RECIP: return 1 / x;
    case SAME_EXP: return exp(x);
    case SAME_EXP2: return exp2(x);
    case SAME_LOG: return log(x);
    case SAME_LOG2: return log2(x);
    case SAME_SIN: return sin(x);
    case SAME_COS: return cos(x);
    case SAME_TAN: return tan(x);
    case SAME_ASIN: return asin(x);
    case SAME_ACOS: return acos(x);
    case SAME_ATAN: return atan(x);
    case SAME_SINH: return sinh(x);
    case SAME_COSH: return cosh(x);
    case SAME_TANH: return tanh(x);
    case SAME_ERF: return erf(x);
    case SAME_ADD: return x + y;
    case SAME_SUB: return x - y;
    case SAME_MUL: return x * y;
    case SAME_DIV: return x / y;
    case SAME_MOD: return fmod(x, y);
    case SAME_POW: return pow(x, y);
    case SAME_ATAN2: return atan2(x, y);
    case SAME_FMA: return type == IR_F64 ? fma(x, y, z) : (double)fmaf((float)x, (float)y, (float)z);
    case SAME_NEG: /* by their bits */
    case SAME_ABS:
    case SAME_MIN:
    case SAME_MAX:
    case SAME_NOT: /* of integers alone */
    case SAME_POPCOUNT:
    case SAME_AND:
    case SAME_OR:
    case SAME_XOR:
    case SAME_SHL:
    case SAME_SHR:
    case SAME_PERMUTE_BYTES: break;
    }
    return NAN;
}

static uint64_t float_op(ir_op op, ir_type type, const uint64_t *in) {
    const uint32_t n = ir_op_of(op)->n_in;
    const double x = float_of(type, in[0]), y = n > 1 ? float_of(type, in[1]) : 0, z = n > 2 ? float_of(type, in[2]) : 0;
    if (op == IR_NEG) return in[0] ^ sign_bit(type);
    if (op == IR_ABS) return in[0] & ~sign_bit(type);
    if (op == IR_MIN) return y < x || isnan(x) ? in[1] : in[0];
    if (op == IR_MAX) return y > x || isnan(x) ? in[1] : in[0];
    return bits_of(type, float_value((same_op)op, type, x, y, z));
}

/* ---- integers ---------------------------------------------------------------------------------
 */

static int64_t signed_of(ir_type type, uint64_t bits) {
    uint64_t sign = sign_bit(type);
    uint64_t wide = (bits ^ sign) - sign;
    int64_t value;
    memcpy(&value, &wide, sizeof value);
    return value;
}

static uint64_t popcount(uint64_t x) {
    uint64_t n = 0;
    for (; x; x &= x - 1) n++;
    return n;
}

/* |x| as it fits into 64 bits without a sign. */
static uint64_t magnitude(int64_t x) {
    return x < 0 ? 0 - (uint64_t)x : (uint64_t)x;
}

/* On magnitudes, so that the least / -1 is no overflow. */
static uint64_t integer_divide(ir_op op, ir_type type, uint64_t x, uint64_t y) {
    if (!y) return 0;
    if (!is_signed(type)) return op == IR_DIV ? x / y : x % y;
    int64_t a = signed_of(type, x), b = signed_of(type, y);
    uint64_t r = op == IR_DIV ? magnitude(a) / magnitude(b) : magnitude(a) % magnitude(b);
    bool negative = op == IR_DIV ? (a < 0) != (b < 0) : a < 0;
    return negative ? 0 - r : r;
}

static uint64_t shift_right(ir_type type, uint64_t x, uint32_t count) {
    uint64_t fill = is_signed(type) && x & sign_bit(type) && count ? ~(mask_of(type) >> count) : 0;
    return x >> count | fill;
}

static bool integer_less(ir_type type, uint64_t x, uint64_t y) {
    return is_signed(type) ? signed_of(type, x) < signed_of(type, y) : x < y;
}

static uint64_t permute_bytes(const uint64_t *in) {
    const uint64_t both = in[1] << 32 | in[0];
    uint64_t out = 0;
    for (uint32_t i = 0; i < 4; i++) {
        uint64_t byte = both >> 8 * (in[2] >> 4 * i & 7) & 255;
        if (in[2] >> 4 * i & 8) byte = byte & 128 ? 255 : 0;
        out |= byte << 8 * i;
    }
    return out;
}

/* Integers and bools; upper bits of the result are cut off by the caller. */
static uint64_t integer_op(ir_op op, ir_type type, const uint64_t *in) {
    uint64_t x = in[0], y = ir_op_of(op)->n_in > 1 ? in[1] : 0;
    uint32_t count = (uint32_t)y & (8 * ir_type_bytes(type) - 1);
    switch ((same_op)op) {
    case SAME_NEG: return 0 - x;
    case SAME_ABS: return is_signed(type) ? magnitude(signed_of(type, x)) : x;
    case SAME_NOT: return ~x;
    case SAME_POPCOUNT: return popcount(x);
    case SAME_ADD: return x + y;
    case SAME_SUB: return x - y;
    case SAME_MUL: return x * y;
    case SAME_DIV:
    case SAME_MOD: return integer_divide(op, type, x, y);
    case SAME_MIN: return integer_less(type, y, x) ? y : x;
    case SAME_MAX: return integer_less(type, x, y) ? y : x;
    case SAME_AND: return x & y;
    case SAME_OR: return x | y;
    case SAME_XOR: return x ^ y;
    case SAME_SHL: return x << count;
    case SAME_SHR: return shift_right(type, x, count);
    case SAME_FMA: return x * y + in[2];
    case SAME_PERMUTE_BYTES: return permute_bytes(in);
    case SAME_FLOOR: /* of floats alone */
    case SAME_CEIL:
    case SAME_TRUNC:
    case SAME_ROUND:
    case SAME_SQRT:
    case SAME_RSQRT:
    case SAME_RECIP:
    case SAME_EXP:
    case SAME_EXP2:
    case SAME_LOG:
    case SAME_LOG2:
    case SAME_SIN:
    case SAME_COS:
    case SAME_TAN:
    case SAME_ASIN:
    case SAME_ACOS:
    case SAME_ATAN:
    case SAME_SINH:
    case SAME_COSH:
    case SAME_TANH:
    case SAME_ERF:
    case SAME_POW:
    case SAME_ATAN2: break;
    }
    return 0;
}

/* ---- the rest ---------------------------------------------------------------------------------
 */

static bool compare(ir_op op, ir_type type, const uint64_t *in) {
    bool less, equal;
    if (is_float(type)) {
        double x = float_of(type, in[0]), y = float_of(type, in[1]);
        if (isnan(x) || isnan(y)) return op == IR_NE;
        less = x < y;
        equal = x == y;
    } else {
        less = type == IR_BOOL ? in[0] < in[1] : integer_less(type, in[0], in[1]);
        equal = in[0] == in[1];
    }
    switch ((compare_op)op) {
    case COMPARE_EQ: return equal;
    case COMPARE_NE: return !equal;
    case COMPARE_LT: return less;
    case COMPARE_LE: return less || equal;
    case COMPARE_GT: return !less && !equal;
    case COMPARE_GE: return !less;
    }
    return false;
}

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

static uint64_t dot4_i8(const uint64_t *in) {
    uint64_t sum = in[2];
    for (uint32_t byte = 0; byte < 32; byte += 8) {
        int64_t x = signed_of(IR_I8, in[0] >> byte & 255),
                y = signed_of(IR_I8, in[1] >> byte & 255);
        sum += (uint64_t)(x * y);
    }
    return sum & mask_of(IR_I32);
}

uint64_t ir_evaluate(ir_op op, ir_type type, ir_type in_type, const uint64_t *in) {
    switch ((value_op)op) { /* ops of other lists have no case */
    case VALUE_SELECT: return in[0] ? in[1] : in[2];
    case VALUE_DOT4_I8: return dot4_i8(in);
    case VALUE_CAST: return cast(type, in_type, in[0]);
    case VALUE_CONST: /* not lane by lane from operands */
    case VALUE_PARAM:
    case VALUE_BITCAST: return 0;
    case VALUE_IS_NAN: return (bool)isnan(float_of(in_type, in[0]));
    case VALUE_FMA:
    case VALUE_PERMUTE_BYTES: break;
    }
    if (ir_op_of(op)->form == IR_FORM_COMPARE) return compare(op, in_type, in);
    return is_float(type) ? float_op(op, type, in) : integer_op(op, type, in) & mask_of(type);
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
