/* pointwise.c - see tile/pointwise.h: the `code` of base/pointwise.h. */
#include "base/pointwise.h"
#include "tile/pointwise.h"

#include <math.h>

typedef struct point {
    tile_kernel *k;
    ir_builder *b;
    const graph_attrs *attr;
    ir_type type; /* of x */
    uint32_t width;
} point;

static ir_id number(const point *p, double value) {
    return ir_number(p->b, p->type, p->width, value);
}

#define C(value) number(p, value)
#define ATTR(i) ((double)p->attr->at[i].f)
#define NEG(x) ir_neg(p->b, x)
#define ABS(x) ir_abs(p->b, x)
#define NOT(x) ir_not(p->b, x)
#define ROUND(x) ir_round(p->b, x)
#define FLOOR(x) ir_floor(p->b, x)
#define CEIL(x) ir_ceil(p->b, x)
#define TRUNC(x) ir_trunc(p->b, x)
#define SQRT(x) ir_sqrt(p->b, x)
#define RSQRT(x) ir_rsqrt(p->b, x)
#define EXP(x) ir_exp(p->b, x)
#define EXP2(x) ir_exp2(p->b, x)
#define LOG(x) ir_log(p->b, x)
#define LOG2(x) ir_log2(p->b, x)
#define SIN(x) ir_sin(p->b, x)
#define COS(x) ir_cos(p->b, x)
#define TAN(x) ir_tan(p->b, x)
#define ASIN(x) ir_asin(p->b, x)
#define ACOS(x) ir_acos(p->b, x)
#define ATAN(x) ir_atan(p->b, x)
#define SINH(x) ir_sinh(p->b, x)
#define COSH(x) ir_cosh(p->b, x)
#define TANH(x) ir_tanh(p->b, x)
#define ERF(x) ir_erf(p->b, x)
#define NAN_OF(x) ir_is_nan(p->b, x)
#define ADD(x, y) ir_add(p->b, x, y)
#define SUB(x, y) ir_sub(p->b, x, y)
#define MUL(x, y) ir_mul(p->b, x, y)
#define DIV(x, y) ir_div(p->b, x, y)
#define MOD(x, y) ir_mod(p->b, x, y)
#define MIN(x, y) ir_min(p->b, x, y)
#define MAX(x, y) ir_max(p->b, x, y)
#define POW(x, y) ir_pow(p->b, x, y)
#define ATAN2(x, y) ir_atan2(p->b, x, y)
#define AND(x, y) ir_and(p->b, x, y)
#define OR(x, y) ir_or(p->b, x, y)
#define XOR(x, y) ir_xor(p->b, x, y)
#define SHL(x, y) ir_shl(p->b, x, y)
#define SHR(x, y) ir_shr(p->b, x, y)
#define EQ(x, y) ir_eq(p->b, x, y)
#define NE(x, y) ir_ne(p->b, x, y)
#define LT(x, y) ir_lt(p->b, x, y)
#define LE(x, y) ir_le(p->b, x, y)
#define GT(x, y) ir_gt(p->b, x, y)
#define GE(x, y) ir_ge(p->b, x, y)
#define SELECT(condition, x, y) ir_select(p->b, condition, x, y)

/* y, but x where that is NaN, which shaders take for a number where they compare. */
static ir_id unless_nan(const point *p, ir_id x, ir_id y) {
    return 1u << p->type & IR_FLOATS ? SELECT(NAN_OF(x), x, y) : y;
}

/* c[0] + x (c[1] + x (..)) */
static ir_id polynomial(const point *p, const double *c, uint32_t n, ir_id x) {
    ir_id sum = C(c[n - 1]);
    for (uint32_t i = n - 1; i-- > 0;) sum = ir_fma(p->b, sum, x, C(c[i]));
    return sum;
}

static ir_id floored(const point *p, ir_id x, ir_id y) {
    const ir_id rest = MOD(x, y);
    const ir_id other = XOR(LT(rest, C(0)), LT(y, C(0)));
    return SELECT(AND(other, NE(rest, C(0))), ADD(rest, y), rest);
}

static ir_id clamped(const point *p, ir_id x) {
    const ir_id low = C(ATTR(0)), high = C(ATTR(1));
    return SELECT(LT(x, low), low, SELECT(GT(x, high), high, x));
}

/* Nothing overflows, and what is far below 0 keeps its digits. */
static ir_id sigmoid(const point *p, ir_id x) {
    const ir_id e = EXP(NEG(ABS(x)));
    return ir_div_normal(p->b, SELECT(LT(x, C(0)), e, C(1)), ADD(C(1), e));
}

static ir_id gelu_tanh(const point *p, ir_id x) {
    return tile_gelu(p->k->b, x);
}

/* exp(x) - 1 */
static ir_id exp_less_one(const point *p, ir_id x) {
    static const double c[] = {1, 1.0 / 2, 1.0 / 6, 1.0 / 24, 1.0 / 120, 1.0 / 720, 1.0 / 5040};
    const ir_id near = MUL(x, polynomial(p, c, sizeof c / sizeof *c, x));
    return SELECT(LT(ABS(x), C(0.4)), near, SUB(EXP(x), C(1)));
}

/* tanh(log(1 + e)) = e (e + 2) / (e (e + 2) + 2), e = exp(x) */
static ir_id mish(const point *p, ir_id x) {
    const ir_id e = EXP(MIN(x, C(20))), part = MUL(e, ADD(e, C(2)));
    return SELECT(GT(x, C(20)), x, MUL(x, DIV(part, ADD(part, C(2)))));
}

/* x times polynomials in w = -log(1 - x^2), fitted for f32; of f64 with Newton's steps. */
static ir_id inverse_erf(const point *p, ir_id x) {
    static const double middle[] = {1.501409351,     0.2466407663,    -0.004177346517,
                                    -0.001253758885, 0.0002183129798, -4.380346714e-6,
                                    -3.454779514e-6, 3.42224709e-7,   2.260597774e-8},
                        ends[] = {2.832977062,     1.001675585,    0.009432913901,
                                  -0.007643271109, 0.005781242834, -0.003603283683,
                                  0.001248650914,  3.45694232e-5,  -0.0001196603303};
    const uint32_t n = sizeof middle / sizeof *middle;
    const ir_id w = NEG(LOG(MUL(SUB(C(1), x), ADD(C(1), x))));
    const ir_id at_end = SUB(SQRT(SELECT(LT(w, C(5)), C(5), w)), C(3));
    ir_id y = MUL(x, SELECT(LT(w, C(5)), polynomial(p, middle, n, SUB(w, C(2.5))),
                            polynomial(p, ends, n, at_end)));
    for (uint32_t i = 0; p->type == IR_F64 && i < 3; i++) {
        const ir_id error = SUB(ERF(y), x), slope = MUL(C(0.88622692545275801365), EXP(MUL(y, y)));
        y = SUB(y, MUL(error, slope));
    }
    y = SELECT(EQ(ABS(x), C(1)), SELECT(GT(x, C(0)), C(INFINITY), C(-INFINITY)), y);
    return SELECT(LE(ABS(x), C(1)), y, C(NAN));
}

typedef ir_id code_fn(const point *p, ir_id x, ir_id y, ir_id z);

#define CODE(X, NAME, name, n, inputs, kinds, attrs, names, usual, facts, close, what, real, \
             whole, code)                                                                    \
    static ir_id code_##name(const point *p, ir_id x, ir_id y, ir_id z) {                    \
        (void)p, (void)x, (void)y, (void)z;                                                  \
        return code;                                                                         \
    }
BASE_POINTWISE_LIST(CODE, )
#undef CODE

static code_fn *const codes[OP_COUNT] = {
#define CODE(X, NAME, name, ...) [OP_##NAME] = code_##name,
    BASE_POINTWISE_LIST(CODE, )
#undef CODE
};

ir_type tile_number_type(base_type type) {
    const ir_type element = tile_element(type);
    return type == TYPE_BOOL ? IR_BOOL : element == IR_F16 || element == IR_BF16 ? IR_F32 : element;
}

ir_id tile_number(ir_builder *b, base_type type, ir_id x) {
    const ir_instruction *i = ir_at(b, x);
    if (type == TYPE_BOOL) return ir_ne(b, x, ir_number(b, IR_U8, i ? i->width : 1, 0));
    return ir_cast(b, tile_number_type(type), x);
}

/* Which whole numbers a type has, of those that a double holds. */
static void range_of(ir_type type, double *low, double *high) {
    const int bits = (type == IR_I8 || type == IR_U8)     ? 8
                     : (type == IR_I16 || type == IR_U16) ? 16
                     : type == IR_I64                     ? 64
                                                          : 32;
    const bool is_signed = 1u << type & IR_SIGNED;
    *high = 1;
    for (int i = 0; i < bits - is_signed; i++) *high *= 2;
    *low = is_signed ? -*high : 0;
    *high -= 1;
}

/* Integers to integers with fewer numbers saturate before they lose their upper bits. */
static ir_id saturated(const point *p, ir_type to, ir_id x) {
    double low, high, own_low, own_high;
    range_of(p->type, &own_low, &own_high);
    range_of(to, &low, &high);
    if (low > own_low) x = MAX(x, C(low));
    if (high < own_high) x = MIN(x, C(high));
    return x;
}

static ir_id cast(const point *p, ir_id x) {
    const base_type to = (base_type)p->attr->cast.type;
    const ir_type type = tile_number_type(to);
    const bool whole = (1u << type & IR_INTEGERS) && (1u << p->type & IR_INTEGERS);
    if (whole && !p->attr->cast.wrap) x = saturated(p, type, x);
    if (type == IR_BOOL && p->type != IR_BOOL) return NE(x, C(0));
    x = ir_cast(p->b, type, x);
    /* rounded here too where nothing is stored */
    if (to == TYPE_F16) x = ir_cast(p->b, type, ir_cast(p->b, IR_F16, x));
    if (to == TYPE_BF16) x = ir_cast(p->b, type, ir_cast(p->b, IR_BF16, x));
    return x;
}

ir_id tile_pointwise(tile_kernel *k, base_op op, const graph_attrs *attr, const ir_id *in) {
    const ir_instruction *x = ir_at(k->b, in[0]);
    const uint32_t n = base_ops[op].n_in_max;
    const point p = {
        .k = k, .b = k->b, .attr = attr, .type = x ? x->type : IR_F32, .width = x ? x->width : 1};
    if (op == OP_CAST) return cast(&p, in[0]);
    return codes[op](&p, in[0], n > 1 ? in[1] : IR_NO_ID, n > 2 ? in[2] : IR_NO_ID);
}
