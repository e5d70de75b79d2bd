/* norm.c - norms: the graph's own where it has them, else made of means and squares. */
#include "onnx/operators.h"

#include <math.h>

/* (x - mean) / sqrt(variance + eps) over axes; x is wide. */
static graph_value standardised(onnx_call *c, graph_value x, uint32_t bits, float eps,
                                graph_value *mean, graph_value *inverse) {
    graph *g = c->g;
    *mean = graph_reduce(g, OP_MEAN, x, bits, 0);
    const graph_value d = onnx_op2(c, OP_SUB, x, *mean);
    *inverse = graph_rsqrt(
        g, graph_add_scalar(g, graph_reduce(g, OP_MEAN, graph_square(g, d), bits, 0), eps));
    return onnx_op2(c, OP_MUL, d, *inverse);
}

static uint32_t bits_from(uint32_t axis, uint32_t rank) {
    return ((1u << rank) - 1) & ~((1u << axis) - 1);
}

void onnx_layer_norm(onnx_call *c) {
    graph_value x = onnx_in(c, 0), scale = onnx_in(c, 1), bias = onnx_or_none(c, 2), mean, inverse;
    if (!x || !scale || c->g->error.code != BERYL_OK) return;
    const graph_tensor t = *onnx_tensor_of(c, x);
    const uint32_t axis = onnx_axis(c, onnx_whole(c, "axis", -1), t.rank);
    const float eps = onnx_real(c, "epsilon", 1e-5f);
    if (axis == UINT32_MAX) return;
    if (axis + 1u == t.rank && c->n_out == 1 && onnx_tensor_of(c, scale)->rank == 1 &&
        (!bias || onnx_tensor_of(c, bias)->rank == 1)) {
        onnx_give(c, 0, graph_layer_norm(c->g, x, scale, bias, eps));
        return;
    }
    base_type type;
    x = onnx_wide(c, x, &type);
    graph_value v = standardised(c, x, bits_from(axis, t.rank), eps, &mean, &inverse);
    v = onnx_op2(c, OP_MUL, onnx_as(c, v, type), onnx_as(c, scale, type));
    onnx_give(c, 0, bias ? onnx_op2(c, OP_ADD, v, onnx_as(c, bias, type)) : v);
    if (c->n_out > 1) onnx_give(c, 1, mean);
    if (c->n_out > 2) onnx_give(c, 2, inverse);
}

void onnx_rms_norm(onnx_call *c) {
    graph *g = c->g;
    graph_value x = onnx_in(c, 0), scale = onnx_in(c, 1);
    if (!x || !scale) return;
    const graph_tensor t = *onnx_tensor_of(c, x);
    const uint32_t axis = onnx_axis(c, onnx_whole(c, "axis", -1), t.rank);
    const float eps = onnx_real(c, "epsilon", 1e-5f);
    if (axis == UINT32_MAX) return;
    if (axis + 1u == t.rank && onnx_tensor_of(c, scale)->rank == 1) {
        onnx_give(c, 0, graph_rms_norm(g, x, scale, eps));
        return;
    }
    base_type type;
    x = onnx_wide(c, x, &type);
    const graph_value mean =
        graph_reduce(g, OP_MEAN, graph_square(g, x), bits_from(axis, t.rank), 0);
    const graph_value v = onnx_op2(c, OP_MUL, x, graph_rsqrt(g, graph_add_scalar(g, mean, eps)));
    onnx_give(c, 0, onnx_op2(c, OP_MUL, onnx_as(c, v, type), onnx_as(c, scale, type)));
}

/* variant 0: a group a channel (InstanceNormalization). Before opset 21 scale and bias of a
 * GroupNormalization are a number a group. */
void onnx_group_norm(onnx_call *c) {
    graph_value x = onnx_in(c, 0), part[2] = {onnx_in(c, 1), onnx_in(c, 2)};
    if (!x || !part[0] || !part[1]) return;
    const graph_tensor t = *onnx_tensor_of(c, x);
    if (t.rank < 2) {
        onnx_refuse(c, "a tensor of %u axes", t.rank);
        return;
    }
    const int64_t groups = c->variant ? onnx_whole(c, "num_groups", 1) : t.dim[1].size;
    if (groups < 1 || groups > t.dim[1].size || t.dim[1].size % groups) {
        onnx_refuse(c, "%lld groups of %u channels", (long long)groups, t.dim[1].size);
        return;
    }
    for (int i = 0; i < 2; i++)
        if (c->variant && onnx_tensor_of(c, part[i])->dim[0].size == groups)
            part[i] = graph_repeat(c->g, part[i], 0, t.dim[1].size / (uint32_t)groups);
    onnx_give(c, 0,
              graph_group_norm(c->g, x, part[0], part[1], (uint32_t)groups,
                               onnx_real(c, "epsilon", 1e-5f)));
}

void onnx_batch_norm(onnx_call *c) {
    graph *g = c->g;
    graph_value in[5];
    if (c->in[0].normed) {
        onnx_give(c, 0, c->in[0].v);
        return;
    }
    for (size_t k = 0; k < 5; k++)
        if (!(in[k] = onnx_in(c, k))) return;
    const float eps = onnx_real(c, "epsilon", 1e-5f), old = onnx_real(c, "momentum", 0.9f);
    const base_type type = onnx_tensor_of(c, in[0])->type;
    for (size_t k = 1; k < 5; k++) in[k] = onnx_as(c, in[k], type == TYPE_F64 ? type : TYPE_F32);
    if (!onnx_whole(c, "training_mode", 0)) {
        onnx_give(c, 0, graph_batch_norm(g, in[0], in[3], in[4], in[1], in[2], eps));
        return;
    }
    graph_value now[2];
    onnx_give(c, 0, graph_batch_norm_training(g, in[0], in[1], in[2], eps, &now[0], &now[1]));
    for (size_t k = 0; k < 2 && k + 1 < c->n_out; k++)
        onnx_give(c, k + 1,
                  onnx_op2(c, OP_ADD, graph_scale(g, in[3 + k], old),
                           graph_scale(g, onnx_as(c, now[k], onnx_tensor_of(c, in[3 + k])->type),
                                       1 - old)));
}

void onnx_lp_norm(onnx_call *c) {
    graph *g = c->g;
    const graph_value x = onnx_in(c, 0);
    if (!x) return;
    const graph_tensor t = *onnx_tensor_of(c, x);
    const uint32_t axis = onnx_axis(c, onnx_whole(c, "axis", -1), t.rank);
    if (axis == UINT32_MAX) return;
    const graph_value norm = onnx_whole(c, "p", 2) == 1
                                 ? graph_reduce(g, OP_SUM, graph_abs(g, x), 1u << axis, 0)
                                 : graph_norm(g, x, 1u << axis);
    const graph_value zero = onnx_number(c, 0, t.type), is_zero = onnx_op2(c, OP_EQ, norm, zero);
    if (norm) onnx_give(c, 0, graph_where(g, is_zero, zero, onnx_op2(c, OP_DIV, x, norm)));
}

void onnx_mean_variance_norm(onnx_call *c) {
    graph_value x = onnx_in(c, 0), mean, inverse;
    onnx_wholes axes;
    base_type type;
    uint32_t bits = 0;
    if (!x) return;
    const uint32_t rank = onnx_tensor_of(c, x)->rank;
    if (!onnx_wholes_at(c, "axes", 0, &axes)) axes = (onnx_wholes){{0, 2, 3}, 3};
    for (size_t i = 0; i < axes.n; i++) {
        const uint32_t axis = onnx_axis(c, axes.at[i], rank);
        if (axis == UINT32_MAX) return;
        bits |= 1u << axis;
    }
    x = onnx_wide(c, x, &type);
    onnx_give(c, 0, onnx_as(c, standardised(c, x, bits, 1e-9f, &mean, &inverse), type));
}

/* x / (bias + alpha / size * sum of squares of `size` channels around)^beta */
void onnx_lrn(onnx_call *c) {
    graph *g = c->g;
    const graph_value x = onnx_in(c, 0);
    const int64_t size = onnx_whole(c, "size", 1);
    if (!x) return;
    const graph_tensor t = *onnx_tensor_of(c, x);
    if (size < 1 || size > 1 << 15 || t.rank < 2) {
        onnx_refuse(c, "over %lld channels", (long long)size);
        return;
    }
    graph_value sum =
        graph_pad(g, graph_square(g, x), 1, (uint32_t)(size - 1) / 2, (uint32_t)size / 2, 0);
    sum = graph_windows(g, sum, 1, (uint32_t)size, 1);
    if (!sum) return;
    sum = onnx_without(c, graph_reduce(g, OP_SUM, sum, 1u << t.rank, 0), 1u << t.rank);
    sum = graph_add_scalar(g, graph_scale(g, sum, onnx_real(c, "alpha", 1e-4f) / (float)size),
                           onnx_real(c, "bias", 1));
    onnx_give(c, 0,
              onnx_op2(c, OP_DIV, x,
                       onnx_op2(c, OP_POW, sum,
                                onnx_number(c, (double)onnx_real(c, "beta", 0.75f), t.type))));
}
