/* pointwise.h - the pointwise operations: what each takes, what it means in C and how a kernel
 * computes it, in one row. base/ops.h has them in the table of all operations. */
#ifndef BASE_POINTWISE_H
#define BASE_POINTWISE_H

/* A row, P(X, ...):
 *   NAME, name, how many inputs, (their names), kinds: as in base/ops.h
 *   attributes  as in base/ops.h: kinds, (names), (usual values)
 *   facts       OP_IS_..., OP_WANTS_UNIT
 *   closeness   CLOSE_...
 *   what it does
 *   real        C of doubles x, y, z (the inputs), ATTR(i) and ATTR_U(i)
 *   whole       C of int64_t x, y, z, whose low bits count; 0: not for integers
 *   code        as tile/pointwise.c writes it: of the values x, y, z with C(number), a constant of
 *               x's type
 * Of bools true is 1. Functions that math.h has not are in graph/reference_pointwise.c.
 *
 * Where libraries differ: max, min, clamp and relu keep NaN, as pow and mod do; sign of NaN is 0.
 * mod has the divisor's sign, fmod the dividend's. Integers wrap; divided by 0 they are 0. round
 * takes ties to even. */
/* clang-format off */
#define BASE_POINTWISE_LIST(P, X)                                                                  \
    P(X, COPY, copy, 1, (x), "a", NONE, (), (0), 0, CLOSE_EQUAL,                                   \
      "a view made contiguous", x, x, x)                                                           \
    P(X, ADD, add, 2, (a, b), "nn", NONE, (), (0), 0, CLOSE_ROUNDED,                               \
      "a + b, b broadcast", x + y, wrap_add(x, y), ADD(x, y))                                      \
    P(X, SUB, sub, 2, (a, b), "nn", NONE, (), (0), 0, CLOSE_ROUNDED,                               \
      "a - b, b broadcast", x - y, wrap_sub(x, y), SUB(x, y))                                      \
    P(X, MUL, mul, 2, (a, b), "nn", NONE, (), (0), 0, CLOSE_ROUNDED,                               \
      "a * b, b broadcast", x * y, wrap_mul(x, y), MUL(x, y))                                      \
    P(X, DIV, div, 2, (a, b), "nn", NONE, (), (0), OP_WANTS_UNIT, CLOSE_FUNCTION,                  \
      "a / b; integers: toward zero, by zero 0", x / y, quotient(x, y), DIV(x, y))                 \
    P(X, MOD, mod, 2, (a, b), "nn", NONE, (), (0), OP_WANTS_UNIT, CLOSE_FUNCTION,                  \
      "the rest of a / b, with b's sign; integers by zero: 0",                                     \
      floored(x, y), floored_whole(x, y), floored(p, x, y))                                        \
    P(X, FMOD, fmod, 2, (a, b), "nn", NONE, (), (0), OP_WANTS_UNIT, CLOSE_FUNCTION,                \
      "the rest of a / b, with a's sign; integers by zero: 0",                                     \
      fmod(x, y), rest(x, y), MOD(x, y))                                                           \
    P(X, POW, pow, 2, (a, b), "ff", NONE, (), (0), OP_IS_EXPENSIVE | OP_WANTS_UNIT,                \
      CLOSE_FUNCTION, "a to the power of b, as C's pow", pow(x, y), 0, POW(x, y))                  \
    P(X, ATAN2, atan2, 2, (a, b), "ff", NONE, (), (0), OP_IS_EXPENSIVE, CLOSE_FUNCTION,            \
      "the angle of the point (b, a)", atan2(x, y), 0, ATAN2(x, y))                                \
    P(X, MAX, max, 2, (a, b), "nn", NONE, (), (0), 0, CLOSE_EQUAL,                                 \
      "the larger; NaN where one is", x > y || x != x ? x : y, x > y ? x : y,                      \
      unless_nan(p, x, unless_nan(p, y, SELECT(GT(x, y), x, y))))                                  \
    P(X, MIN, min, 2, (a, b), "nn", NONE, (), (0), 0, CLOSE_EQUAL,                                 \
      "the smaller; NaN where one is", x < y || x != x ? x : y, x < y ? x : y,                     \
      unless_nan(p, x, unless_nan(p, y, SELECT(LT(x, y), x, y))))                                  \
    P(X, EQ, eq, 2, (a, b), "aa", NONE, (), (0), OP_GIVES_BOOL, CLOSE_EQUAL,                       \
      "a == b; NaN equals nothing", x == y, x == y, EQ(x, y))                                      \
    P(X, NE, ne, 2, (a, b), "aa", NONE, (), (0), OP_GIVES_BOOL, CLOSE_EQUAL,                       \
      "a != b; true where one is NaN", x != y, x != y, NE(x, y))                                   \
    P(X, LT, lt, 2, (a, b), "nn", NONE, (), (0), OP_GIVES_BOOL, CLOSE_EQUAL,                       \
      "a < b", x < y, x < y, LT(x, y))                                                             \
    P(X, LE, le, 2, (a, b), "nn", NONE, (), (0), OP_GIVES_BOOL, CLOSE_EQUAL,                       \
      "a <= b", x <= y, x <= y, LE(x, y))                                                          \
    P(X, GT, gt, 2, (a, b), "nn", NONE, (), (0), OP_GIVES_BOOL, CLOSE_EQUAL,                       \
      "a > b", x > y, x > y, GT(x, y))                                                             \
    P(X, GE, ge, 2, (a, b), "nn", NONE, (), (0), OP_GIVES_BOOL, CLOSE_EQUAL,                       \
      "a >= b", x >= y, x >= y, GE(x, y))                                                          \
    P(X, BIT_AND, bit_and, 2, (a, b), "zz", NONE, (), (0), 0, CLOSE_EQUAL,                         \
      "bitwise; of bools: logical", 0, x & y, AND(x, y))                                           \
    P(X, BIT_OR, bit_or, 2, (a, b), "zz", NONE, (), (0), 0, CLOSE_EQUAL,                           \
      "bitwise; of bools: logical", 0, x | y, OR(x, y))                                            \
    P(X, BIT_XOR, bit_xor, 2, (a, b), "zz", NONE, (), (0), 0, CLOSE_EQUAL,                         \
      "bitwise; of bools: logical", 0, x ^ y, XOR(x, y))                                           \
    P(X, SHL, shl, 2, (a, b), "ii", NONE, (), (0), 0, CLOSE_EQUAL,                                 \
      "a shifted left by b modulo its bits", 0, shifted_left(x, y, bits), SHL(x, y))               \
    P(X, SHR, shr, 2, (a, b), "ii", NONE, (), (0), 0, CLOSE_EQUAL,                                 \
      "a shifted right by b modulo its bits; signed: copies the sign",                             \
      0, shifted_right(x, y, bits), SHR(x, y))                                                     \
    P(X, WHERE, where, 3, (condition, a, b), "baa", NONE, (), (0), 0, CLOSE_EQUAL,                 \
      "a where the condition is true, b elsewhere",                                                \
      x != 0 ? y : z, x ? y : z, SELECT(x, y, z))                                                  \
    P(X, CLAMP, clamp, 1, (x), "n", FF, (low, high), (-0.5f, 0.5f), 0, CLOSE_EQUAL,                \
      "x, but at least `low` and at most `high`",                                                  \
      x < ATTR(0) ? ATTR(0) : x > ATTR(1) ? ATTR(1) : x,                                           \
      clamped_whole(x, ATTR(0), ATTR(1)),                                                          \
      unless_nan(p, x, clamped(p, x)))                                                             \
    P(X, SCALE, scale, 1, (x), "f", F, (factor), (0.5f), 0, CLOSE_ROUNDED,                         \
      "x times a constant", x * ATTR(0), 0, MUL(x, C(ATTR(0))))                                    \
    P(X, ADD_SCALAR, add_scalar, 1, (x), "f", F, (number), (0.5f), 0, CLOSE_ROUNDED,               \
      "x plus a constant", x + ATTR(0), 0, ADD(x, C(ATTR(0))))                                     \
    P(X, NEG, neg, 1, (x), "n", NONE, (), (0), 0, CLOSE_EQUAL, "-x", -x, wrap_sub(0, x), NEG(x))   \
    P(X, ABS, abs, 1, (x), "n", NONE, (), (0), 0, CLOSE_EQUAL,                                     \
      "magnitude", fabs(x), x < 0 ? wrap_sub(0, x) : x, ABS(x))                                    \
    P(X, SIGN, sign, 1, (x), "n", NONE, (), (0), 0, CLOSE_EQUAL,                                   \
      "-1, 0 or 1; of NaN 0", (x > 0) - (x < 0), (x > 0) - (x < 0),                                \
      SELECT(GT(x, C(0)), C(1), SELECT(LT(x, C(0)), C(-1), C(0))))                                 \
    P(X, SQUARE, square, 1, (x), "n", NONE, (), (0), 0, CLOSE_ROUNDED,                             \
      "x * x", x * x, wrap_mul(x, x), MUL(x, x))                                                   \
    P(X, BIT_NOT, bit_not, 1, (x), "z", NONE, (), (0), 0, CLOSE_EQUAL,                             \
      "every bit flipped; of bools: logical", 0, bits == 1 ? !x : ~x, NOT(x))                      \
    P(X, LOGICAL_NOT, logical_not, 1, (x), "a", NONE, (), (0), OP_GIVES_BOOL, CLOSE_EQUAL,         \
      "true where x is 0", x == 0, x == 0, EQ(x, C(0)))                                            \
    P(X, IS_NAN, is_nan, 1, (x), "f", NONE, (), (0), OP_GIVES_BOOL, CLOSE_EQUAL,                   \
      "true where x is not a number", x != x, 0, NAN_OF(x))                                        \
    P(X, ROUND, round, 1, (x), "f", NONE, (), (0), 0, CLOSE_EQUAL,                                 \
      "to the nearest whole number, ties to even", rint(x), 0, ROUND(x))                           \
    P(X, FLOOR, floor, 1, (x), "f", NONE, (), (0), 0, CLOSE_EQUAL,                                 \
      "the next lower whole number", floor(x), 0, FLOOR(x))                                        \
    P(X, CEIL, ceil, 1, (x), "f", NONE, (), (0), 0, CLOSE_EQUAL,                                   \
      "the next higher whole number", ceil(x), 0, CEIL(x))                                         \
    P(X, TRUNC, trunc, 1, (x), "f", NONE, (), (0), 0, CLOSE_EQUAL,                                 \
      "the whole number toward zero", trunc(x), 0, TRUNC(x))                                       \
    P(X, RECIPROCAL, reciprocal, 1, (x), "f", NONE, (), (0), OP_WANTS_UNIT, CLOSE_FUNCTION,        \
      "1 / x", 1 / x, 0, DIV(C(1), x))                                                             \
    P(X, SQRT, sqrt, 1, (x), "f", NONE, (), (0), OP_WANTS_UNIT, CLOSE_FUNCTION,                    \
      "square root", sqrt(x), 0, SQRT(x))                                                          \
    P(X, RSQRT, rsqrt, 1, (x), "f", NONE, (), (0), OP_WANTS_UNIT, CLOSE_FUNCTION,                  \
      "1 / sqrt(x)", 1 / sqrt(x), 0, RSQRT(x))                                                     \
    P(X, EXP, exp, 1, (x), "f", NONE, (), (0), OP_IS_EXPENSIVE, CLOSE_FUNCTION,                    \
      "e to the power of x", exp(x), 0, EXP(x))                                                    \
    P(X, EXP2, exp2, 1, (x), "f", NONE, (), (0), OP_IS_EXPENSIVE, CLOSE_FUNCTION,                  \
      "2 to the power of x", exp2(x), 0, EXP2(x))                                                  \
    P(X, LOG, log, 1, (x), "f", NONE, (), (0), OP_IS_EXPENSIVE | OP_WANTS_UNIT, CLOSE_FUNCTION,    \
      "natural logarithm", log(x), 0, LOG(x))                                                      \
    P(X, LOG2, log2, 1, (x), "f", NONE, (), (0), OP_IS_EXPENSIVE | OP_WANTS_UNIT, CLOSE_FUNCTION,  \
      "logarithm to the base 2", log2(x), 0, LOG2(x))                                              \
    P(X, SIN, sin, 1, (x), "f", NONE, (), (0), OP_IS_EXPENSIVE, CLOSE_FUNCTION,                    \
      "sine", sin(x), 0, SIN(x))                                                                   \
    P(X, COS, cos, 1, (x), "f", NONE, (), (0), OP_IS_EXPENSIVE, CLOSE_FUNCTION,                    \
      "cosine", cos(x), 0, COS(x))                                                                 \
    P(X, TAN, tan, 1, (x), "f", NONE, (), (0), OP_IS_EXPENSIVE, CLOSE_FUNCTION,                    \
      "tangent", tan(x), 0, TAN(x))                                                                \
    P(X, ASIN, asin, 1, (x), "f", NONE, (), (0), OP_IS_EXPENSIVE | OP_WANTS_UNIT, CLOSE_FUNCTION,  \
      "arc sine; outside [-1, 1]: NaN", asin(x), 0, ASIN(x))                                       \
    P(X, ACOS, acos, 1, (x), "f", NONE, (), (0), OP_IS_EXPENSIVE | OP_WANTS_UNIT, CLOSE_FUNCTION,  \
      "arc cosine; outside [-1, 1]: NaN", acos(x), 0, ACOS(x))                                     \
    P(X, ATAN, atan, 1, (x), "f", NONE, (), (0), OP_IS_EXPENSIVE, CLOSE_FUNCTION,                  \
      "arc tangent", atan(x), 0, ATAN(x))                                                          \
    P(X, SINH, sinh, 1, (x), "f", NONE, (), (0), OP_IS_EXPENSIVE, CLOSE_FUNCTION,                  \
      "hyperbolic sine", sinh(x), 0, SINH(x))                                                      \
    P(X, COSH, cosh, 1, (x), "f", NONE, (), (0), OP_IS_EXPENSIVE, CLOSE_FUNCTION,                  \
      "hyperbolic cosine", cosh(x), 0, COSH(x))                                                    \
    P(X, TANH, tanh, 1, (x), "f", NONE, (), (0), OP_IS_EXPENSIVE, CLOSE_FUNCTION,                  \
      "hyperbolic tangent", tanh(x), 0, unless_nan(p, x, TANH(x)))                                 \
    P(X, ERF, erf, 1, (x), "f", NONE, (), (0), OP_IS_EXPENSIVE, CLOSE_FUNCTION,                    \
      "error function", erf(x), 0, ERF(x))                                                         \
    P(X, ERFINV, erfinv, 1, (x), "f", NONE, (), (0), OP_IS_EXPENSIVE | OP_WANTS_UNIT,              \
      CLOSE_FUNCTION, "whose error function is x; outside [-1, 1]: NaN",                           \
      inverse_erf(x), 0, inverse_erf(p, x))                                                        \
    P(X, RELU, relu, 1, (x), "n", NONE, (), (0), 0, CLOSE_EQUAL,                                   \
      "x, but at least 0", x < 0 ? 0 : x, x < 0 ? 0 : x,                                           \
      unless_nan(p, x, SELECT(LT(x, C(0)), C(0), x)))                                              \
    P(X, SIGMOID, sigmoid, 1, (x), "f", NONE, (), (0), OP_IS_EXPENSIVE, CLOSE_FUNCTION,            \
      "1 / (1 + exp(-x))", 1 / (1 + exp(-x)), 0, sigmoid(p, x))                                    \
    P(X, SILU, silu, 1, (x), "f", NONE, (), (0), OP_IS_EXPENSIVE, CLOSE_FUNCTION,                  \
      "x * sigmoid(x)", x / (1 + exp(-x)), 0, MUL(x, sigmoid(p, x)))                               \
    P(X, GELU_ERF, gelu_erf, 1, (x), "f", NONE, (), (0), OP_IS_EXPENSIVE, CLOSE_FUNCTION,          \
      "gelu, exact form", 0.5 * x * (1 + erf(x * SQRT_HALF)), 0,                                   \
      MUL(MUL(C(0.5), x), ADD(C(1), ERF(MUL(x, C(SQRT_HALF))))))                                   \
    P(X, GELU_TANH, gelu_tanh, 1, (x), "f", NONE, (), (0), OP_IS_EXPENSIVE, CLOSE_FUNCTION,        \
      "gelu, tanh form", gelu_tanh(x), 0, gelu_tanh(p, x))                                         \
    P(X, QUICK_GELU, quick_gelu, 1, (x), "f", NONE, (), (0), OP_IS_EXPENSIVE, CLOSE_FUNCTION,      \
      "x * sigmoid(1.702 x)", x / (1 + exp(-1.702 * x)), 0,                                        \
      MUL(x, sigmoid(p, MUL(x, C(1.702)))))                                                        \
    P(X, SOFTPLUS, softplus, 1, (x), "f", NONE, (), (0), OP_IS_EXPENSIVE, CLOSE_FUNCTION,          \
      "log(1 + exp(x))", x > 0 ? x + log1p(exp(-x)) : log1p(exp(x)), 0,                            \
      ADD(MAX(x, C(0)), LOG(ADD(C(1), EXP(NEG(ABS(x)))))))                                         \
    P(X, MISH, mish, 1, (x), "f", NONE, (), (0), OP_IS_EXPENSIVE, CLOSE_FUNCTION,                  \
      "x * tanh(softplus(x))", x * tanh(x > 0 ? x + log1p(exp(-x)) : log1p(exp(x))), 0,            \
      mish(p, x))                                                                                  \
    P(X, ELU, elu, 1, (x), "f", F, (alpha), (1), OP_IS_EXPENSIVE, CLOSE_FUNCTION,                  \
      "x, but below 0 alpha * (exp(x) - 1)", x > 0 ? x : ATTR(0) * expm1(x), 0,                    \
      SELECT(GT(x, C(0)), x, MUL(C(ATTR(0)), exp_less_one(p, x))))                                 \
    P(X, SELU, selu, 1, (x), "f", NONE, (), (0), OP_IS_EXPENSIVE, CLOSE_FUNCTION,                  \
      "elu that keeps mean and variance: 1.0507 * elu(x, 1.6733)",                                 \
      SELU_SCALE * (x > 0 ? x : SELU_ALPHA * expm1(x)), 0,                                         \
      MUL(C(SELU_SCALE), SELECT(GT(x, C(0)), x, MUL(C(SELU_ALPHA), exp_less_one(p, x)))))          \
    P(X, LEAKY_RELU, leaky_relu, 1, (x), "f", F, (slope), (0.01f), 0, CLOSE_ROUNDED,               \
      "x, but below 0 slope * x", x < 0 ? ATTR(0) * x : x, 0,                                      \
      SELECT(LT(x, C(0)), MUL(C(ATTR(0)), x), x))                                                  \
    P(X, HARDSWISH, hardswish, 1, (x), "f", NONE, (), (0), 0, CLOSE_ROUNDED,                       \
      "x * clamp(x + 3, 0, 6) / 6", x * (x < -3 ? 0 : x > 3 ? 6 : x + 3) / 6, 0,                   \
      MUL(x, MUL(C(1.0 / 6), MIN(MAX(ADD(x, C(3)), C(0)), C(6)))))                                 \
    P(X, SOFTCAP, softcap, 1, (x), "f", F, (cap), (30), OP_IS_EXPENSIVE, CLOSE_FUNCTION,           \
      "cap * tanh(x / cap)", ATTR(0) * tanh(x / ATTR(0)), 0,                                       \
      unless_nan(p, x, MUL(TANH(MUL(x, C(1 / ATTR(0)))), C(ATTR(0)))))                             \
    P(X, GEGLU, geglu, 2, (gate, up), "ff", NONE, (), (0), OP_IS_EXPENSIVE, CLOSE_FUNCTION,        \
      "gelu_tanh(gate) * up", gelu_tanh(x) * y, 0, MUL(gelu_tanh(p, x), y))                        \
    P(X, QUICK_GEGLU, quick_geglu, 2, (gate, up), "ff", NONE, (), (0), OP_IS_EXPENSIVE,            \
      CLOSE_FUNCTION, "quick_gelu(gate) * up", x / (1 + exp(-1.702 * x)) * y, 0,                   \
      MUL(MUL(x, sigmoid(p, MUL(x, C(1.702)))), y))                                                \
    P(X, SWIGLU, swiglu, 2, (gate, up), "ff", NONE, (), (0), OP_IS_EXPENSIVE, CLOSE_FUNCTION,      \
      "silu(gate) * up", x / (1 + exp(-x)) * y, 0, MUL(MUL(x, sigmoid(p, x)), y))                  \
    P(X, GLU, glu, 2, (a, b), "ff", NONE, (), (0), OP_IS_EXPENSIVE, CLOSE_FUNCTION,                \
      "a * sigmoid(b)", x / (1 + exp(-y)), 0, MUL(x, sigmoid(p, y)))
/* clang-format on */

#define SQRT_HALF 0.70710678118654752440
#define SELU_SCALE 1.0507009873554804934193349852946
#define SELU_ALPHA 1.6732632423543772848170429916717

#endif
