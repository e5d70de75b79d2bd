/* pointwise.c - operators that are pointwise, with ONNX's broadcasting (which is the graph's). */
#include "onnx/operators.h"

#include <float.h>
#include <math.h>
#include <string.h>

/* Of no elements: neither has the result any. */
static bool nothing(onnx_call *c, base_type type) {
    bool none = false;
    uint32_t rank = 0, dim[GRAPH_RANK_MAX];
    for (uint32_t i = 0; i < GRAPH_RANK_MAX; i++) dim[i] = 1;
    for (size_t k = 0; k < c->n_in; k++) {
        onnx_shape s;
        if (!onnx_is_given(c, k)) continue;
        none = none || (c->in[k].array && !onnx_array_count(c->in[k].array));
        if (!onnx_shape_of(c, k, &s)) return false;
        if (s.rank > rank) rank = s.rank;
        for (uint32_t i = 0; i < s.rank; i++) /* from the right */
            if (s.dim[s.rank - 1 - i].size != 1) dim[i] = s.dim[s.rank - 1 - i].size;
    }
    if (!none) return false;
    for (uint32_t i = 0; i < rank / 2; i++) {
        const uint32_t other = dim[i];
        dim[i] = dim[rank - 1 - i];
        dim[rank - 1 - i] = other;
    }
    onnx_give_array(c, 0, onnx_array_make(c, type, rank, dim));
    return true;
}

static base_type type_of_result(const onnx_call *c) {
    if (base_ops[c->variant].facts & OP_GIVES_BOOL) return TYPE_BOOL;
    return c->in[0].array ? c->in[0].array->type : TYPE_F32;
}

void onnx_unary(onnx_call *c) {
    if (nothing(c, type_of_result(c))) return;
    const graph_value in[GRAPH_IN_MAX] = {onnx_in(c, 0)};
    if (in[0]) onnx_give(c, 0, graph_op(c->g, (base_op)c->variant, in, (graph_attrs){0}));
}

void onnx_binary(onnx_call *c) {
    if (nothing(c, type_of_result(c))) return;
    graph_value a = onnx_in(c, 0), b = onnx_in(c, 1);
    if (!a || !b) return;
    onnx_give(c, 0, onnx_op2(c, (base_op)c->variant, a, onnx_as(c, b, onnx_tensor_of(c, a)->type)));
}

void onnx_variadic(onnx_call *c) {
    graph_value sum = onnx_in(c, 0);
    for (size_t k = 1; sum && k < c->n_in; k++)
        sum = onnx_op2(c, (base_op)c->variant, sum, onnx_in(c, k));
    onnx_give(c, 0, sum);
}

void onnx_mean(onnx_call *c) {
    c->variant = OP_ADD;
    onnx_variadic(c);
    if (c->out[0].v && c->n_in) c->out[0].v = graph_scale(c->g, c->out[0].v, 1.0f / (float)c->n_in);
}

void onnx_identity(onnx_call *c) {
    if (onnx_is_given(c, 0)) c->out[0] = c->in[0];
    else onnx_in(c, 0);
}

void onnx_pow(onnx_call *c) {
    const graph_value a = onnx_in(c, 0), b = onnx_in(c, 1);
    if (!a || !b) return;
    const base_type type = onnx_tensor_of(c, a)->type,
                    work = base_type_is_float(type) ? type : TYPE_F32;
    graph_value v = onnx_op2(c, OP_POW, onnx_as(c, a, work), onnx_as(c, b, work));
    if (work != type) v = onnx_as(c, graph_round(c->g, v), type);
    onnx_give(c, 0, v);
}

void onnx_mod(onnx_call *c) {
    c->variant = onnx_whole(c, "fmod", 0) ? OP_FMOD : OP_MOD;
    onnx_binary(c);
}

void onnx_bit_shift(onnx_call *c) {
    const bool left = onnx_text_is(c, "direction", "", "LEFT");
    const graph_value a = onnx_in(c, 0), b = onnx_in(c, 1);
    if (!a || !b) return;
    /* by less than 0, or by all bits and more: what is left is the sign, or nothing */
    const base_type type = onnx_tensor_of(c, a)->type;
    const uint32_t size = base_type_block_bytes(type) * 8;
    const graph_value v = onnx_op2(c, left ? OP_SHL : OP_SHR, a, b), zero = onnx_number(c, 0, type),
                      fits = onnx_op2(c, OP_BIT_AND, onnx_op2(c, OP_GE, b, zero),
                                      onnx_op2(c, OP_LT, b, onnx_number(c, size, type))),
                      rest = left ? zero : onnx_op2(c, OP_SHR, a, onnx_number(c, size - 1, type));
    const bool has_sign =
        type == TYPE_I8 || type == TYPE_I16 || type == TYPE_I32 || type == TYPE_I64;
    if (fits) onnx_give(c, 0, graph_where(c->g, fits, v, has_sign ? rest : zero));
}

void onnx_where(onnx_call *c) {
    const graph_value a = onnx_in(c, 0), b = onnx_in(c, 1), d = onnx_in(c, 2);
    if (a && b && d) onnx_give(c, 0, graph_where(c->g, a, b, d));
}

static void cast_to(onnx_call *c, base_type type) {
    c->n_in = 1;
    if (nothing(c, type)) return;
    const graph_value x = onnx_in(c, 0);
    if (!x) return;
    const base_type was = onnx_tensor_of(c, x)->type;
    const bool wrap = !base_type_is_float(was) && base_type_is_integer(type);
    onnx_give(c, 0, was == type ? x : graph_cast(c->g, x, type, wrap));
}

void onnx_cast(onnx_call *c) {
    base_type type;
    const uint32_t kind = (uint32_t)onnx_whole(c, "to", 0);
    if (onnx_type_of(kind, &type)) cast_to(c, type);
    else onnx_refuse(c, "a cast to %s", onnx_kind_name(kind));
}

void onnx_cast_like(onnx_call *c) {
    onnx_shape like;
    if (c->variant) cast_to(c, (base_type)(c->variant - 1));
    else if (onnx_shape_of(c, 1, &like)) cast_to(c, like.type);
}

void onnx_clip(onnx_call *c) {
    graph_value x = onnx_in(c, 0);
    if (!x) return;
    const base_type type = onnx_tensor_of(c, x)->type;
    if (c->opset < 11) {
        x = graph_clamp(c->g, x, onnx_real(c, "min", -FLT_MAX), onnx_real(c, "max", FLT_MAX));
    } else {
        if (onnx_is_given(c, 1)) x = onnx_op2(c, OP_MAX, x, onnx_as(c, onnx_in(c, 1), type));
        if (onnx_is_given(c, 2)) x = onnx_op2(c, OP_MIN, x, onnx_as(c, onnx_in(c, 2), type));
    }
    onnx_give(c, 0, x);
}

void onnx_prelu(onnx_call *c) {
    const graph_value x = onnx_in(c, 0), slope = onnx_in(c, 1);
    if (!x || !slope) return;
    const graph_value zero = onnx_number(c, 0, onnx_tensor_of(c, x)->type);
    onnx_give(c, 0,
              graph_where(c->g, onnx_op2(c, OP_LT, x, zero), onnx_op2(c, OP_MUL, x, slope), x));
}

void onnx_is_inf(onnx_call *c) {
    const graph_value x = onnx_in(c, 0);
    if (!x) return;
    const base_type type = onnx_tensor_of(c, x)->type;
    const graph_value most = onnx_number(c, type == TYPE_F16 ? 65504 : FLT_MAX, type),
                      least = onnx_number(c, type == TYPE_F16 ? -65504 : -FLT_MAX, type),
                      up = onnx_op2(c, OP_GT, x, most), down = onnx_op2(c, OP_LT, x, least);
    const bool above = onnx_whole(c, "detect_positive", 1),
               below = onnx_whole(c, "detect_negative", 1);
    onnx_give(c, 0,
              above && below ? onnx_op2(c, OP_BIT_OR, up, down)
              : above        ? up
              : below        ? down
                             : onnx_op2(c, OP_NE, least, least));
    if (!above && !below) {
        const graph_tensor t = *onnx_tensor_of(c, x);
        onnx_give(c, 0, onnx_expand(c, c->out[0].v, t.rank, t.dim));
    }
}

void onnx_dropout(onnx_call *c) {
    const graph_value x = onnx_in(c, 0);
    if (!x) return;
    onnx_wholes training = {.n = 0};
    if (onnx_is_given(c, 2) && !onnx_wholes_of(c, 2, &training)) return;
    double ratio = 0.5;
    size_t n = 1;
    if (training.n && training.at[0]) {
        if (onnx_is_given(c, 1) && !onnx_reals_of(c, 1, &ratio, 1, &n)) return;
        if (ratio != 0) {
            onnx_refuse(c, "training with a ratio that is not 0");
            return;
        }
    }
    c->out[0] = c->in[0];
    c->out[0].v = x;
    if (c->n_out > 1) {
        const graph_tensor t = *onnx_tensor_of(c, x);
        onnx_give(c, 1, onnx_expand(c, onnx_number(c, 1, TYPE_BOOL), t.rank, t.dim));
    }
}

/* The same bits as another type of the size: of known numbers alone. */
void onnx_bit_cast(onnx_call *c) {
    base_type type;
    const uint32_t kind = (uint32_t)onnx_whole(c, "to", 0);
    const onnx_array *a = onnx_known(c, 0);
    if (!a) return;
    onnx_array *to = base_arena_take(c->arena, 1, sizeof *to);
    if (!onnx_type_of(kind, &type) || base_type_block_bytes(type) != base_type_block_bytes(a->type))
        onnx_refuse(c, "to %s", onnx_kind_name(kind));
    else if (!to) graph_no_memory(c->g);
    else {
        *to = *a;
        to->type = type;
        onnx_give_array(c, 0, to);
    }
}

/* ---- activations ----------------------------------------------------------------------------- */

static graph_value times(onnx_call *c, graph_value x, float factor) {
    return graph_scale(c->g, x, factor);
}

static graph_value plus(onnx_call *c, graph_value x, float number) {
    return graph_add_scalar(c->g, x, number);
}

static graph_value hard_sigmoid(onnx_call *c, graph_value x, float alpha, float beta) {
    return graph_clamp(c->g, plus(c, times(c, x, alpha), beta), 0, 1);
}

/* alpha * (exp(x) - 1) below 0; else x. */
static graph_value elu(onnx_call *c, graph_value x, float alpha) {
    return graph_elu(c->g, x, alpha);
}

static graph_value gelu(onnx_call *c, graph_value x) {
    return onnx_text_is(c, "approximate", "none", "tanh") ? graph_gelu_tanh(c->g, x)
                                                          : graph_gelu_erf(c->g, x);
}

static graph_value thresholded(onnx_call *c, graph_value x) {
    const base_type type = onnx_tensor_of(c, x)->type;
    return graph_where(c->g, onnx_op2(c, OP_GT, x, onnx_number(c, onnx_real(c, "alpha", 1), type)),
                       x, onnx_number(c, 0, type));
}

static graph_value shrink(onnx_call *c, graph_value x) {
    const base_type type = onnx_tensor_of(c, x)->type;
    const double lambd = onnx_real(c, "lambd", 0.5f), bias = onnx_real(c, "bias", 0);
    const graph_value b = onnx_number(c, bias, type), zero = onnx_number(c, 0, type),
                      low = onnx_op2(c, OP_LT, x, onnx_number(c, -lambd, type)),
                      high = onnx_op2(c, OP_GT, x, onnx_number(c, lambd, type));
    return graph_where(c->g, low, onnx_op2(c, OP_ADD, x, b),
                       graph_where(c->g, high, onnx_op2(c, OP_SUB, x, b), zero));
}

/* log(x + sqrt(x * x + sign)) */
static graph_value area(onnx_call *c, graph_value x, float sign) {
    graph *g = c->g;
    if (sign < 0)
        return graph_log(g, graph_add(g, x, graph_sqrt(g, plus(c, graph_square(g, x), sign))));
    const graph_value most = graph_abs(g, x),
                      v = graph_log(
                          g, graph_add(g, most, graph_sqrt(g, plus(c, graph_square(g, x), sign))));
    return graph_mul(g, graph_sign(g, x), v);
}

static graph_value atanh_of(onnx_call *c, graph_value x) {
    graph *g = c->g;
    return times(c, graph_log(g, graph_div(g, plus(c, x, 1), plus(c, times(c, x, -1), 1))), 0.5f);
}

static graph_value activated(onnx_call *c, onnx_activation kind, graph_value x) {
    graph *g = c->g;
    const base_type type = onnx_tensor_of(c, x)->type;
    switch (kind) {
    case ACT_ELU: return elu(c, x, onnx_real(c, "alpha", 1));
    case ACT_CELU: {
        const float a = onnx_real(c, "alpha", 1);
        return times(c, elu(c, times(c, x, 1 / a), 1), a);
    }
    case ACT_SELU: {
        const float alpha = onnx_real(c, "alpha", 1.67326319217681884765625f);
        return times(c, elu(c, x, alpha), onnx_real(c, "gamma", 1.05070102214813232421875f));
    }
    case ACT_LEAKY: return graph_leaky_relu(g, x, onnx_real(c, "alpha", 0.01f));
    case ACT_HARD_SIGMOID:
        return hard_sigmoid(c, x, onnx_real(c, "alpha", 0.2f), onnx_real(c, "beta", 0.5f));
    case ACT_SOFTSIGN: return graph_div(g, x, plus(c, graph_abs(g, x), 1));
    case ACT_SWISH: return graph_mul(g, x, graph_sigmoid(g, times(c, x, onnx_real(c, "alpha", 1))));
    case ACT_GELU: return gelu(c, x);
    case ACT_THRESHOLDED: return thresholded(c, x);
    case ACT_SHRINK: return shrink(c, x);
    case ACT_ACOSH: return area(c, x, -1);
    case ACT_ASINH: return area(c, x, 1);
    case ACT_ATANH: return atanh_of(c, x);
    case ACT_ROUND: return base_type_is_float(type) ? graph_round(g, x) : x;
    case ACT_BINARIZE:
        return onnx_as(c, onnx_op2(c, OP_GT, x, onnx_number(c, onnx_real(c, "threshold", 0), type)),
                       type);
    }
    return 0;
}

void onnx_activate(onnx_call *c) {
    const graph_value x = onnx_in(c, 0);
    if (x) onnx_give(c, 0, activated(c, (onnx_activation)c->variant, x));
}

void onnx_swiglu(onnx_call *c) {
    const graph_value a = onnx_in(c, 0), b = onnx_in(c, 1);
    if (a && b) onnx_give(c, 0, onnx_op2(c, OP_MUL, activated(c, ACT_SWISH, a), b));
}
