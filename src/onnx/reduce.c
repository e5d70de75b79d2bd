/* reduce.c - operators over axes: reductions, softmax, scans, losses. */
#include "graph/reference.h"
#include "onnx/operators.h"

#include <math.h>
#include <string.h>

/* What a reduction over no elements gives. */
static double of_nothing(onnx_reduction kind) {
    switch (kind) {
    case RED_MAX: return -INFINITY;
    case RED_MIN: return INFINITY;
    case RED_PROD: return 1;
    case RED_MEAN: return NAN;
    case RED_LOG_SUM:
    case RED_LOG_SUM_EXP: return -INFINITY;
    case RED_SUM:
    case RED_L1:
    case RED_L2:
    case RED_SUM_SQUARE: return 0;
    }
    return 0;
}

static void reduce_nothing(onnx_call *c, const onnx_shape *s, uint32_t bits, bool keep) {
    uint32_t dim[GRAPH_RANK_MAX], rank = 0;
    for (uint32_t i = 0; i < s->rank; i++)
        if (!(bits >> i & 1)) dim[rank++] = s->dim[i].size;
        else if (keep) dim[rank++] = 1;
    onnx_array *a = onnx_array_make(c, s->type, rank, dim);
    const double x = of_nothing((onnx_reduction)c->variant);
    const bool truth = s->type == TYPE_BOOL;
    const int64_t whole = truth ? x > 0 : reference_within(s->type, x);
    for (uint64_t i = 0; a && i < onnx_array_count(a); i++)
        reference_put(s->type, (char *)(uintptr_t)a->data + i * base_type_block_bytes(s->type),
                      (reference_number){x, whole});
    onnx_give_array(c, 0, a);
}

static graph_value reduced(onnx_call *c, graph_value x, uint32_t bits) {
    graph *g = c->g;
    const base_type type = onnx_tensor_of(c, x)->type;
    const bool real = base_type_is_float(type), truth = type == TYPE_BOOL;
    switch ((onnx_reduction)c->variant) {
    case RED_SUM: return graph_reduce(g, OP_SUM, x, bits, 0);
    case RED_MEAN:
        return onnx_as(c, graph_reduce(g, OP_MEAN, real ? x : onnx_as(c, x, TYPE_F32), bits, 0),
                       type);
    case RED_MAX: return graph_reduce(g, truth ? OP_ANY : OP_AMAX, x, bits, 0);
    case RED_MIN: return graph_reduce(g, truth ? OP_ALL : OP_AMIN, x, bits, 0);
    case RED_PROD: return graph_reduce(g, OP_PROD, x, bits, 0);
    case RED_L1: return graph_reduce(g, OP_SUM, graph_abs(g, x), bits, 0);
    case RED_L2: return graph_norm(g, x, bits);
    case RED_LOG_SUM: return graph_log(g, graph_reduce(g, OP_SUM, x, bits, 0));
    case RED_LOG_SUM_EXP: return graph_logsumexp(g, x, bits);
    case RED_SUM_SQUARE: return graph_reduce(g, OP_SUM, graph_square(g, x), bits, 0);
    }
    return 0;
}

void onnx_reduce(onnx_call *c) {
    onnx_shape s;
    onnx_wholes axes;
    uint32_t bits = 0;
    if (!onnx_shape_of(c, 0, &s)) return;
    onnx_wholes_at(c, "axes", 1, &axes);
    if (c->g->error.code != BERYL_OK) return;
    for (size_t i = 0; i < axes.n; i++) {
        const uint32_t axis = onnx_axis(c, axes.at[i], s.rank);
        if (axis == UINT32_MAX) return;
        bits |= 1u << axis;
    }
    const bool keep = onnx_whole(c, "keepdims", 1), none = !axes.n;
    if (none && onnx_whole(c, "noop_with_empty_axes", 0)) bits = 0;
    else if (none) bits = (1u << s.rank) - 1;
    if (c->in[0].array && !onnx_array_count(c->in[0].array)) {
        reduce_nothing(c, &s, bits, keep);
        return;
    }
    graph_value x = onnx_in(c, 0);
    if (!x) return;
    /* over no axes: each element by itself */
    graph_value v;
    if (bits) {
        v = reduced(c, x, bits);
    } else {
        x = graph_unsqueeze(c->g, x, 0);
        v = x ? reduced(c, x, 1) : 0;
        if (v) v = graph_squeeze(c->g, v, 0);
    }
    onnx_give(c, 0, v && !keep ? onnx_without(c, v, bits) : v);
}

/* Before opset 13 all axes from `axis` on are one row. */
static graph_value in_rows(onnx_call *c, graph_value *x, uint32_t *axis) {
    *x = onnx_in(c, 0);
    if (!*x) return 0;
    const graph_tensor t = *onnx_tensor_of(c, *x);
    *axis = onnx_axis(c, onnx_whole(c, "axis", c->opset < 13 ? 1 : -1), t.rank);
    if (*axis == UINT32_MAX) return 0;
    if (c->opset >= 13 || *axis + 1u == t.rank) return *x;
    graph_dim d[2] = {{1, 0}, {1, 0}};
    for (uint32_t i = 0; i < t.rank; i++)
        d[i >= *axis] = graph_dim_product(c->g, d[i >= *axis], t.dim[i]);
    *axis = 1;
    return graph_reshape(c->g, *x, 2, d);
}

static void give_as(onnx_call *c, graph_value v, graph_value like) {
    if (!v) return;
    const graph_tensor t = *onnx_tensor_of(c, like);
    onnx_give(c, 0,
              onnx_tensor_of(c, v)->rank == t.rank ? v : graph_reshape(c->g, v, t.rank, t.dim));
}

void onnx_softmax(onnx_call *c) {
    graph_value x;
    uint32_t axis;
    const graph_value rows = in_rows(c, &x, &axis);
    if (rows) give_as(c, graph_softmax_along(c->g, rows, axis), x);
}

void onnx_log_softmax(onnx_call *c) {
    graph_value x;
    uint32_t axis;
    const graph_value rows = in_rows(c, &x, &axis);
    if (rows) give_as(c, graph_log_softmax(c->g, rows, axis), x);
}

void onnx_hardmax(onnx_call *c) {
    graph_value x;
    uint32_t axis;
    const graph_value rows = in_rows(c, &x, &axis);
    if (!rows) return;
    const base_type type = onnx_tensor_of(c, rows)->type;
    const graph_value at = graph_arg(c->g, rows, axis, true);
    if (at) give_as(c, onnx_as(c, onnx_op2(c, OP_EQ, graph_iota(c->g, rows, axis), at), type), x);
}

/* Of integers, which wrap: each element's window reaches back to the first. */
static graph_value whole_scan(onnx_call *c, graph_value x, uint32_t axis, base_op op,
                              bool exclusive, bool back) {
    graph *g = c->g;
    const graph_tensor t = *onnx_tensor_of(c, x);
    if (!onnx_is_sized(c, &t)) return 0;
    const uint32_t n = t.dim[axis].size;
    if (back) x = graph_flip(g, x, axis);
    x = graph_pad(g, x, axis, n - !exclusive, 0, op == OP_CUMPROD);
    if (x && exclusive) x = graph_narrow(g, x, axis, 0, 2 * n - 1, 1);
    x = x ? graph_windows(g, x, axis, n, 1) : 0;
    x = x ? graph_reduce(g, op == OP_CUMPROD ? OP_PROD : OP_SUM, x, 1u << t.rank, 0) : 0;
    x = x ? graph_squeeze(g, x, t.rank) : 0;
    return x && back ? graph_flip(g, x, axis) : x;
}

void onnx_scan_op(onnx_call *c) {
    const graph_value x = onnx_in(c, 0);
    onnx_wholes axis;
    if (!x || !onnx_wholes_of(c, 1, &axis)) return;
    const graph_tensor t = *onnx_tensor_of(c, x);
    const uint32_t along = onnx_axis(c, axis.n ? axis.at[0] : 0, t.rank);
    if (along == UINT32_MAX) return;
    const base_op op = (base_op)c->variant;
    const bool exclusive = onnx_whole(c, "exclusive", 0), back = onnx_whole(c, "reverse", 0);
    onnx_give(c, 0,
              base_type_is_float(t.type) ? graph_scan(c->g, x, along, op, exclusive, back)
                                         : whole_scan(c, x, along, op, exclusive, back));
}

/* x [n, c, ..] of logarithms, or of logits (variant 1), targets [n, ..]: minus the one of the
 * target, times its weight. */
void onnx_loss(onnx_call *c) {
    graph *g = c->g;
    graph_value x = onnx_in(c, 0);
    const graph_value target = onnx_in(c, 1);
    if (!x || !target) return;
    const graph_tensor t = *onnx_tensor_of(c, x);
    if (t.rank < 2) {
        onnx_refuse(c, "scores of less than 2 axes");
        return;
    }
    if (c->variant) x = graph_log_softmax(g, x, 1);
    const graph_value at = graph_unsqueeze(g, onnx_as(c, target, TYPE_I32), 1);
    if (!at) return;
    graph_value loss = graph_scale(g, graph_squeeze(g, graph_gather(g, x, at, 1), 1), -1),
                weight = 0;
    const onnx_attribute *ignored = onnx_attribute_find(c, "ignore_index");
    if (onnx_is_given(c, 2)) {
        const graph_value ids = onnx_as(c, target, TYPE_I32);
        weight = graph_index_select(g, onnx_in(c, 2), ids, 0);
    }
    if (ignored) {
        const graph_value ids = onnx_as(c, target, TYPE_I32),
                          counts =
                              onnx_as(c,
                                      onnx_op2(c, OP_NE, ids,
                                               onnx_number(c, (double)ignored->whole, TYPE_I32)),
                                      t.type);
        weight = weight ? onnx_op2(c, OP_MUL, weight, counts) : counts;
    }
    if (weight) loss = onnx_op2(c, OP_MUL, loss, weight);
    if (!loss) return;
    const uint32_t all = (1u << onnx_tensor_of(c, loss)->rank) - 1;
    if (onnx_text_is(c, "reduction", "mean", "mean")) {
        loss = weight ? onnx_op2(c, OP_DIV, graph_reduce(g, OP_SUM, loss, all, 0),
                                 graph_reduce(g, OP_SUM, weight, all, 0))
                      : graph_reduce(g, OP_MEAN, loss, all, 0);
        loss = onnx_without(c, loss, all);
    } else if (onnx_text_is(c, "reduction", "mean", "sum")) {
        loss = onnx_without(c, graph_reduce(g, OP_SUM, loss, all, 0), all);
    }
    onnx_give(c, 0, loss);
    if (c->n_out > 1) onnx_give(c, 1, x);
}
