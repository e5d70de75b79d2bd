/* gradient_pointwise.c - derivatives of the pointwise operations: a row each.
 *
 * The one idea: a row says what the gradient d of the result makes of each input, with the inputs
 * x and y and the result r, as graph operations: so it has derivatives too. Kinks and ties are
 * PyTorch's: 0 for relu and abs at 0, half each where max and min are equal, clamp passes its ends.
 * What is chosen by a condition is finite on the side that is not taken, so that nothing becomes
 * NaN there. Halves are computed as F32. */
#include "graph/gradient.h"

#include <math.h>

typedef struct point {
    graph *g;
    graph_value d, x, y, r, one; /* one: the gradient's number 1 */
    float a;                     /* the first attribute */
} point;

#define D p->d
#define R p->r
#define ADD(x, y) graph_add(p->g, x, y)
#define SUB(x, y) graph_sub(p->g, x, y)
#define MUL(x, y) graph_mul(p->g, x, y)
#define DIV(x, y) graph_div(p->g, x, y)
#define NEG(x) graph_neg(p->g, x)
#define TIMES(x, number) graph_scale(p->g, x, (float)(number))
#define PLUS(x, number) graph_add_scalar(p->g, x, (float)(number))
#define SQUARE(x) graph_square(p->g, x)
#define EXP(x) graph_exp(p->g, x)
#define SIGMOID(x) graph_sigmoid(p->g, x)
#define TANH(x) graph_tanh(p->g, x)
#define WHERE(condition, x, y) graph_where(p->g, condition, x, y)
#define GATE(condition, x) gradient_where(p->g, condition, x)
#define EQ(x, y) graph_eq(p->g, x, y)
#define NOT(x) graph_logical_not(p->g, x) /* x is 0 */
#define AND(x, y) graph_bit_and(p->g, x, y)
#define ABOVE_0(x) truth(p, graph_relu(p->g, x))
#define ONE_LESS(x) PLUS(NEG(x), 1) /* 1 - x */

#define LN_2 0.69314718055994530942
#define SQRT_PI 1.77245385090551602730
#define GELU_SLOPE 0.79788456080286535588 /* sqrt(2 / pi) */
#define GELU_CUBE 0.044715

static graph_value truth(const point *p, graph_value x) {
    return graph_cast(p->g, x, TYPE_BOOL, false);
}

/* 1 or 0, of d's type */
static graph_value number(const point *p, graph_value truth) {
    return graph_cast(p->g, truth, graph_tensor_at(p->g, p->d)->type, false);
}

/* s (1 - s) of s = sigmoid */
static graph_value sigmoid_slope(const point *p, graph_value s) {
    return MUL(s, ONE_LESS(s));
}

/* of x sigmoid(factor x) */
static graph_value swish_slope(const point *p, graph_value x, double factor) {
    const graph_value s = SIGMOID(factor == 1 ? x : TIMES(x, factor));
    const graph_value bent = MUL(x, sigmoid_slope(p, s));
    return ADD(s, factor == 1 ? bent : TIMES(bent, factor));
}

/* of x s, s = sigmoid(v), v = 2 GELU_SLOPE (x + GELU_CUBE x^3): s (1 + x (1 - s) v') */
static graph_value gelu_tanh_slope(const point *p, graph_value x) {
    const graph_value square = SQUARE(x);
    const graph_value s =
        SIGMOID(MUL(x, PLUS(TIMES(square, 2 * GELU_SLOPE * GELU_CUBE), 2 * GELU_SLOPE)));
    const graph_value inner = PLUS(TIMES(square, 6 * GELU_SLOPE * GELU_CUBE), 2 * GELU_SLOPE);
    return MUL(s, PLUS(MUL(MUL(x, ONE_LESS(s)), inner), 1));
}

static graph_value gelu_erf_slope(const point *p, graph_value x) {
    const graph_value bell = TIMES(EXP(TIMES(SQUARE(x), -0.5)), GELU_SLOPE);
    return TIMES(ADD(PLUS(graph_erf(p->g, TIMES(x, sqrt(0.5))), 1), MUL(x, bell)), 0.5);
}

static graph_value mish_slope(const point *p, graph_value x) {
    const graph_value t = TANH(graph_softplus(p->g, x));
    return ADD(t, MUL(MUL(x, SIGMOID(x)), ONE_LESS(SQUARE(t))));
}

/* scale, but below 0 scale * alpha * exp(x) */
static graph_value elu_slope(const point *p, graph_value x, double alpha, double scale) {
    const graph_value d = scale == 1 ? D : TIMES(D, scale);
    const graph_value below = EXP(NEG(graph_relu(p->g, NEG(x))));
    return WHERE(ABOVE_0(x), d, MUL(d, TIMES(below, alpha)));
}

static graph_value hardswish_slope(const point *p, graph_value x) {
    const graph_value bent = MUL(D, PLUS(TIMES(x, 1.0 / 3), 0.5));
    return WHERE(EQ(x, graph_clamp(p->g, x, -3, 3)), bent, GATE(ABOVE_0(x), D));
}

/* y x^(y - 1), 0 where y is 0 */
static graph_value power_slope(const point *p, graph_value x, graph_value y) {
    return MUL(y, graph_pow(p->g, x, SUB(y, number(p, truth(p, y)))));
}

/* r log(x), 0 where x is 0 and y is not below it */
static graph_value exponent_slope(const point *p, graph_value x, graph_value y) {
    const graph_value none = AND(NOT(x), NOT(graph_relu(p->g, NEG(y))));
    return MUL(R, graph_log(p->g, ADD(x, number(p, none))));
}

/* d v; of a sum, whose d is 1, v itself. */
static graph_value times_d(const point *p, graph_value v) {
    const graph_tensor *d = graph_tensor_at(p->g, D), *t = graph_tensor_at(p->g, v);
    const bool is_one = graph_base_of(p->g, D) == p->one && d->type == t->type;
    return is_one && graph_same_shape(d, t) ? v : MUL(D, v);
}

/* over x^2 + y^2 */
static graph_value over_squares(const point *p, graph_value v) {
    return DIV(v, ADD(SQUARE(p->x), SQUARE(p->y)));
}

static graph_value larger(const point *p, graph_value x, graph_value y) {
    return WHERE(EQ(x, y), TIMES(D, 0.5), GATE(NOT(graph_lt(p->g, x, y)), D));
}

/* NAME, towards x, towards y; 0: nothing goes there. X and Y are p->x and p->y. */
#define X p->x
#define Y p->y
/* clang-format off */
#define SLOPES(S)                                                                                  \
    S(COPY, D, 0)                                                                                  \
    S(ADD, D, D)                                                                                   \
    S(SUB, D, NEG(D))                                                                              \
    S(MUL, times_d(p, Y), times_d(p, X))                                                           \
    S(DIV, DIV(D, Y), NEG(MUL(D, DIV(R, Y))))                                                      \
    S(MOD, D, NEG(MUL(D, graph_floor(p->g, DIV(X, Y)))))                                           \
    S(FMOD, D, NEG(MUL(D, graph_trunc(p->g, DIV(X, Y)))))                                          \
    S(POW, MUL(D, power_slope(p, X, Y)), MUL(D, exponent_slope(p, X, Y)))                          \
    S(ATAN2, MUL(D, over_squares(p, Y)), NEG(MUL(D, over_squares(p, X))))                                \
    S(MAX, larger(p, X, Y), larger(p, Y, X))                                                       \
    S(MIN, larger(p, Y, X), larger(p, X, Y))                                                       \
    S(CLAMP, GATE(EQ(X, R), D), 0)                                                                 \
    S(SCALE, TIMES(D, p->a), 0)                                                                    \
    S(ADD_SCALAR, D, 0)                                                                            \
    S(NEG, NEG(D), 0)                                                                              \
    S(ABS, MUL(D, graph_sign(p->g, X)), 0)                                                         \
    S(SIGN, 0, 0)                                                                                  \
    S(SQUARE, MUL(D, TIMES(X, 2)), 0)                                                              \
    S(ROUND, 0, 0)                                                                                 \
    S(FLOOR, 0, 0)                                                                                 \
    S(CEIL, 0, 0)                                                                                  \
    S(TRUNC, 0, 0)                                                                                 \
    S(RECIPROCAL, NEG(MUL(D, SQUARE(R))), 0)                                                       \
    S(SQRT, DIV(D, TIMES(R, 2)), 0)                                                                \
    S(RSQRT, MUL(D, TIMES(MUL(R, SQUARE(R)), -0.5)), 0)                                            \
    S(EXP, MUL(D, R), 0)                                                                           \
    S(EXP2, MUL(D, TIMES(R, LN_2)), 0)                                                             \
    S(LOG, DIV(D, X), 0)                                                                           \
    S(LOG2, DIV(D, TIMES(X, LN_2)), 0)                                                             \
    S(SIN, MUL(D, graph_cos(p->g, X)), 0)                                                          \
    S(COS, NEG(MUL(D, graph_sin(p->g, X))), 0)                                                     \
    S(TAN, MUL(D, PLUS(SQUARE(R), 1)), 0)                                                          \
    S(ASIN, MUL(D, graph_rsqrt(p->g, ONE_LESS(SQUARE(X)))), 0)                                     \
    S(ACOS, NEG(MUL(D, graph_rsqrt(p->g, ONE_LESS(SQUARE(X))))), 0)                                \
    S(ATAN, DIV(D, PLUS(SQUARE(X), 1)), 0)                                                         \
    S(SINH, MUL(D, graph_cosh(p->g, X)), 0)                                                        \
    S(COSH, MUL(D, graph_sinh(p->g, X)), 0)                                                        \
    S(TANH, MUL(D, ONE_LESS(SQUARE(R))), 0)                                                        \
    S(ERF, MUL(D, TIMES(EXP(NEG(SQUARE(X))), 2 / SQRT_PI)), 0)                                     \
    S(ERFINV, MUL(D, TIMES(EXP(SQUARE(R)), SQRT_PI / 2)), 0)                                       \
    S(RELU, GATE(truth(p, R), D), 0)                                                               \
    S(SIGMOID, MUL(D, sigmoid_slope(p, R)), 0)                                                     \
    S(SILU, MUL(D, swish_slope(p, X, 1)), 0)                                                       \
    S(GELU_ERF, MUL(D, gelu_erf_slope(p, X)), 0)                                                   \
    S(GELU_TANH, MUL(D, gelu_tanh_slope(p, X)), 0)                                                 \
    S(QUICK_GELU, MUL(D, swish_slope(p, X, 1.702)), 0)                                             \
    S(SOFTPLUS, MUL(D, SIGMOID(X)), 0)                                                             \
    S(MISH, MUL(D, mish_slope(p, X)), 0)                                                           \
    S(ELU, elu_slope(p, X, (double)p->a, 1), 0)                                                    \
    S(SELU, elu_slope(p, X, SELU_ALPHA, SELU_SCALE), 0)                                            \
    S(LEAKY_RELU, WHERE(ABOVE_0(X), D, TIMES(D, p->a)), 0)                                         \
    S(HARDSWISH, hardswish_slope(p, X), 0)                                                         \
    S(SOFTCAP, MUL(D, ONE_LESS(SQUARE(TIMES(R, 1 / p->a)))), 0)                                    \
    S(GEGLU, MUL(MUL(D, Y), gelu_tanh_slope(p, X)), MUL(D, graph_gelu_tanh(p->g, X)))              \
    S(QUICK_GEGLU, MUL(MUL(D, Y), swish_slope(p, X, 1.702)), MUL(D, graph_quick_gelu(p->g, X)))    \
    S(SWIGLU, MUL(MUL(D, Y), swish_slope(p, X, 1)), MUL(D, graph_silu(p->g, X)))                   \
    S(GLU, MUL(D, SIGMOID(Y)), MUL(MUL(D, X), sigmoid_slope(p, SIGMOID(Y))))
/* clang-format on */

#define S(NAME, towards_x, towards_y)                            \
    static graph_value slope_##NAME(const point *p, bool of_y) { \
        (void)p;                                                 \
        return of_y ? (towards_y) : (towards_x);                 \
    }
SLOPES(S)
#undef S

typedef graph_value slope(const point *p, bool of_y);

static slope *slope_of(base_op op) {
    static slope *const slopes[OP_COUNT] = {
#define S(NAME, ...) [OP_##NAME] = slope_##NAME,
        SLOPES(S)
#undef S
    };
    return slopes[op];
}

bool gradient_is_pointwise(base_op op) {
    return slope_of(op) != NULL;
}

void gradient_pointwise(gradient *s, const graph_node *node, graph_value d) {
    point p = {.g = s->g, .one = s->one, .a = node->attr.at[0].f};
    p.d = graph_wide(s->g, d);
    p.x = graph_wide(s->g, node->in[0]);
    p.y = node->n_in > 1 ? graph_wide(s->g, node->in[1]) : 0;
    p.r = graph_wide(s->g, node->out[0]);
    for (uint32_t k = 0; k < node->n_in; k++)
        if (gradient_wants(s, node->in[k]))
            gradient_add(s, node->in[k], slope_of(node->op)(&p, k > 0));
}
