/* reference_pointwise.c - numbers of all plain types, and the pointwise operations in C: floats as
 * doubles, integers as int64_t. */
#include "base/pointwise.h"
#include "graph/reference.h"

#include <math.h>
#include <string.h>

/* ---- numbers --------------------------------------------------------------------------------- */

static uint32_t bits_of(base_type type) {
    return type == TYPE_BOOL ? 1 : 8 * base_type_block_bytes(type);
}

static bool has_sign(base_type type) {
    return type == TYPE_I8 || type == TYPE_I16 || type == TYPE_I32 || type == TYPE_I64;
}

static double real_at(base_type type, const void *at) {
    uint16_t half;
    uint32_t bits;
    float single;
    double value;
    if (type == TYPE_F64) return memcpy(&value, at, sizeof value), value;
    if (type == TYPE_F32) return memcpy(&single, at, sizeof single), (double)single;
    memcpy(&half, at, sizeof half);
    if (type == TYPE_F16) return (double)base_f16_to_f32(half);
    bits = (uint32_t)half << 16;
    memcpy(&single, &bits, sizeof single);
    return (double)single;
}

reference_number reference_number_at(base_type type, const void *at) {
    uint64_t bits = 0;
    if (base_type_is_float(type)) return (reference_number){.real = real_at(type, at)};
    memcpy(&bits, at, base_type_block_bytes(type)); /* little-endian, as every device */
    const uint32_t n = bits_of(type);
    if (type == TYPE_BOOL) bits = bits != 0;
    if (has_sign(type) && n < 64 && bits >> (n - 1)) bits |= ~UINT64_C(0) << n;
    return (reference_number){.real = (double)(int64_t)bits, .whole = (int64_t)bits};
}

int64_t reference_within(base_type type, double x) {
    const uint32_t n = bits_of(type);
    const double high = ldexp(1, (int)(n - has_sign(type))), low = has_sign(type) ? -high : 0;
    if (isnan(x)) return 0;
    if (x >= high) return n == 64 ? INT64_MAX : (int64_t)(high - 1);
    return x <= low ? (int64_t)low : (int64_t)x;
}

static int64_t within_whole(base_type type, int64_t x) {
    const uint32_t n = bits_of(type);
    if (n == 64) return x;
    const int64_t high = (INT64_C(1) << (n - has_sign(type))) - 1,
                  low = has_sign(type) ? -high - 1 : 0;
    return x > high ? high : x < low ? low : x;
}

static void put_real(base_type type, void *at, double x) {
    const float single = (float)x;
    const uint16_t half = type == TYPE_BF16 ? base_f32_to_bf16(single) : base_f32_to_f16(single);
    if (type == TYPE_F64) memcpy(at, &x, sizeof x);
    else if (type == TYPE_F32) memcpy(at, &single, sizeof single);
    else memcpy(at, &half, sizeof half);
}

static void put_whole(base_type type, void *at, int64_t x) {
    const uint64_t bits = type == TYPE_BOOL ? x != 0 : (uint64_t)x;
    memcpy(at, &bits, base_type_block_bytes(type));
}

void reference_put(base_type type, void *at, reference_number x) {
    if (base_type_is_float(type)) put_real(type, at, x.real);
    else put_whole(type, at, x.whole);
}

/* ---- functions ------------------------------------------------------------------------------- */

static double gelu_tanh(double x) {
    return 0.5 * x * (1 + tanh(0.79788456080286535588 * (x + 0.044715 * x * x * x)));
}

static double floored(double x, double y) {
    const double r = fmod(x, y);
    return r != 0 && (r < 0) != (y < 0) ? r + y : r;
}

/* By bisection, then Newton's steps. */
static double inverse_erf(double x) {
    if (!(fabs(x) <= 1)) return NAN;
    if (fabs(x) == 1) return x * INFINITY;
    double low = -6.5, high = 6.5;
    for (int i = 0; i < 40; i++) {
        const double y = (low + high) / 2;
        if (erf(y) < x) low = y;
        else high = y;
    }
    double y = x == 0 ? 0 : (low + high) / 2;
    for (int i = 0; i < 2; i++) {
        /* of what is left to 1, which keeps its digits */
        const double error = x > 0.5    ? (1 - x) - erfc(y)
                             : x < -0.5 ? erfc(-y) - (1 + x)
                                        : erf(y) - x;
        y -= error * 0.88622692545275801365 * exp(y * y);
    }
    return y;
}

static int64_t wrap_add(int64_t x, int64_t y) {
    return (int64_t)((uint64_t)x + (uint64_t)y);
}

static int64_t wrap_sub(int64_t x, int64_t y) {
    return (int64_t)((uint64_t)x - (uint64_t)y);
}

static int64_t wrap_mul(int64_t x, int64_t y) {
    return (int64_t)((uint64_t)x * (uint64_t)y);
}

static int64_t quotient(int64_t x, int64_t y) {
    return y == 0 ? 0 : y == -1 ? wrap_sub(0, x) : x / y;
}

static int64_t rest(int64_t x, int64_t y) {
    return y == 0 || y == -1 ? 0 : x % y;
}

static int64_t floored_whole(int64_t x, int64_t y) {
    const int64_t r = rest(x, y);
    return r != 0 && (r < 0) != (y < 0) ? r + y : r;
}

static int64_t clamped_whole(int64_t x, double low, double high) {
    return (double)x < low    ? reference_within(TYPE_I64, low)
           : (double)x > high ? reference_within(TYPE_I64, high)
                              : x;
}

static int64_t shifted_left(int64_t x, int64_t y, uint32_t bits) {
    return (int64_t)((uint64_t)x << ((uint64_t)y % bits));
}

/* x has its sign in all upper bits. */
static int64_t shifted_right(int64_t x, int64_t y, uint32_t bits) {
    const uint32_t n = (uint32_t)((uint64_t)y % bits);
    return x < 0 ? ~(int64_t)(~(uint64_t)x >> n) : (int64_t)((uint64_t)x >> n);
}

/* ---- the operations -------------------------------------------------------------------------- */

typedef double real_fn(const graph_attrs *a, double x, double y, double z);
typedef int64_t whole_fn(const graph_attrs *a, int64_t x, int64_t y, int64_t z, uint32_t bits);

#define ATTR(i) ((double)a->at[i].f)
#define VALUES(X, NAME, name, n, inputs, kinds, attrs, names, usual, facts, close, what, real, \
               whole, code)                                                                    \
    static double real_##name(const graph_attrs *a, double x, double y, double z) {            \
        (void)a, (void)x, (void)y, (void)z;                                                    \
        return real;                                                                           \
    }                                                                                          \
    static int64_t whole_##name(const graph_attrs *a, int64_t x, int64_t y, int64_t z,         \
                                uint32_t bits) {                                               \
        (void)a, (void)x, (void)y, (void)z, (void)bits;                                        \
        return whole;                                                                          \
    }
BASE_POINTWISE_LIST(VALUES, )
#undef VALUES
#undef ATTR

static const struct {
    real_fn *real;
    whole_fn *whole;
} values[OP_COUNT] = {
#define VALUES(X, NAME, name, ...) [OP_##NAME] = {real_##name, whole_##name},
    BASE_POINTWISE_LIST(VALUES, )
#undef VALUES
        [OP_CAST] = {real_copy, whole_copy},
};

static const void *element(const reference_tensor *x, const reference_tensor *shape, uint64_t i) {
    return (const char *)x->data +
           reference_offset(x, shape, i) * base_type_block_bytes(x->t->type);
}

beryl_status reference_pointwise(reference_call *c) {
    const graph_node *node = c->node;
    const reference_tensor *out = &c->out[0];
    /* the condition of `where` says nothing of the type */
    const base_type of = c->in[node->n_in > 2].t->type, to = out->t->type;
    const bool wrap = node->op != OP_CAST || node->attr.cast.wrap;
    uint64_t n = 1;
    for (uint32_t i = 0; i < out->t->rank; i++) n *= out->dim[i];
    for (uint64_t i = 0; i < n; i++) {
        reference_number in[3] = {{0}};
        for (uint32_t k = 0; k < node->n_in; k++)
            in[k] = reference_number_at(c->in[k].t->type, element(&c->in[k], out, i));
        void *at = (char *)out->data + reference_offset(out, out, i) * base_type_block_bytes(to);
        if (base_type_is_float(of)) {
            const double r = values[node->op].real(&node->attr, in[0].real, in[1].real, in[2].real);
            if (base_type_is_float(to)) put_real(to, at, r);
            else put_whole(to, at, to == TYPE_BOOL ? r != 0 : reference_within(to, r));
        } else {
            const int64_t r = values[node->op].whole(&node->attr, in[0].whole, in[1].whole,
                                                     in[2].whole, bits_of(of));
            if (base_type_is_float(to)) put_real(to, at, (double)r);
            else put_whole(to, at, wrap || to == TYPE_BOOL ? r : within_whole(to, r));
        }
    }
    return BERYL_OK;
}
