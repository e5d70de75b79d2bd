/* expand.c - operations that are several others: passes join them again. */
#include "graph/build.h"

#include <float.h>
#include <math.h>

/* Halves are computed in F32 from end to end: a sum of them is soon above the largest F16. */
graph_value graph_wide(graph *g, graph_value v) {
    const base_type type = graph_tensor_at(g, v)->type;
    return type == TYPE_F16 || type == TYPE_BF16 ? graph_cast(g, v, TYPE_F32, false) : v;
}

static graph_value widened(graph *g, graph_value x, base_type *type) {
    *type = graph_tensor_at(g, x)->type;
    return graph_wide(g, x);
}

graph_value graph_as(graph *g, graph_value v, base_type type) {
    return !v || graph_tensor_at(g, v)->type == type ? v : graph_cast(g, v, type, false);
}

static graph_value variance(graph *g, graph_value x, uint32_t axes, uint32_t correction) {
    const graph_value mean = graph_reduce(g, OP_MEAN, x, axes, 0);
    return graph_reduce(g, OP_MEAN, graph_square(g, graph_sub(g, x, mean)), axes, correction);
}

static graph_value squares(graph *g, graph_value x, uint32_t axes) {
    return graph_reduce(g, OP_SUM, graph_square(g, x), axes, 0);
}

static graph_value log_of_sum(graph *g, graph_value x, uint32_t axes) {
    /* an infinity less itself would be NaN */
    const graph_value most =
        graph_clamp(g, graph_reduce(g, OP_AMAX, x, axes, 0), -FLT_MAX, FLT_MAX);
    const graph_value sum = graph_reduce(g, OP_SUM, graph_exp(g, graph_sub(g, x, most)), axes, 0);
    return graph_add(g, graph_log(g, sum), most);
}

graph_value graph_root(graph *g, graph_value x) {
    return graph_own_rule(g, (graph_own){.kind = OWN_ROOT, .out = graph_sqrt(g, x), .in = {x}});
}

graph_value graph_var(graph *g, graph_value x, uint32_t axes, uint32_t correction) {
    base_type type;
    x = widened(g, x, &type);
    return graph_as(g, variance(g, x, axes, correction), type);
}

graph_value graph_std(graph *g, graph_value x, uint32_t axes, uint32_t correction) {
    base_type type;
    x = widened(g, x, &type);
    return graph_as(g, graph_root(g, variance(g, x, axes, correction)), type);
}

graph_value graph_norm(graph *g, graph_value x, uint32_t axes) {
    base_type type;
    x = widened(g, x, &type);
    return graph_as(g, graph_root(g, squares(g, x, axes)), type);
}

graph_value graph_logsumexp(graph *g, graph_value x, uint32_t axes) {
    base_type type;
    const graph_value wide = widened(g, x, &type),
                      sum = graph_as(g, log_of_sum(g, wide, axes), type);
    return graph_own_rule(g,
                          (graph_own){.kind = OWN_LOGSUMEXP, .out = sum, .in = {x}, .axes = axes});
}

graph_value graph_log_softmax(graph *g, graph_value x, uint32_t axis) {
    base_type type;
    const graph_value wide = widened(g, x, &type),
                      v = graph_sub(g, wide, log_of_sum(g, wide, 1u << axis));
    return graph_own_rule(g, (graph_own){.kind = OWN_LOG_SOFTMAX,
                                         .out = graph_as(g, v, type),
                                         .in = {x},
                                         .axes = 1u << axis});
}

graph_value graph_l2_norm(graph *g, graph_value x, uint32_t axis, float eps) {
    base_type type;
    x = widened(g, x, &type);
    const graph_value factor = graph_rsqrt(g, graph_add_scalar(g, squares(g, x, 1u << axis), eps));
    return graph_as(g, graph_mul(g, x, factor), type);
}

/* ---- norms of channels ----------------------------------------------------------------------- */

/* v [c] in the shape of x [n, c, ..]: a number for each channel. */
static graph_value of_channels(graph *g, graph_value v, graph_value x, base_type type,
                               const char *what) {
    if (!graph_has(g, v, what) || !graph_has(g, x, what)) return 0;
    const graph_tensor t = *graph_tensor_at(g, x), *of = graph_tensor_at(g, v);
    if (t.rank < 2 || of->rank != 1 || !graph_same_dim(of->dim[0], t.dim[1]))
        return graph_refuse(g, BERYL_MISUSE, "%s: not a number for each of %u channels", what,
                            t.rank < 2 ? 0 : t.dim[1].size);
    v = graph_as(g, v, type);
    for (uint32_t i = 2; v && i < t.rank; i++) v = graph_unsqueeze(g, v, i - 1);
    return v ? graph_expand(g, v, t.rank, t.dim) : 0;
}

/* (x - mean) / sqrt(variance + eps), of one shape, times a weight, plus a bias. */
static graph_value scaled(graph *g, graph_value x, graph_value mean, graph_value variance,
                          graph_value weight, graph_value bias, float eps, base_type type) {
    const char *what = "batch_norm";
    const base_type own = graph_tensor_at(g, x)->type;
    graph_value v =
        graph_mul(g, graph_sub(g, x, mean), graph_rsqrt(g, graph_add_scalar(g, variance, eps)));
    if (v && weight) v = graph_mul(g, v, of_channels(g, weight, x, own, what));
    if (v && bias) v = graph_add(g, v, of_channels(g, bias, x, own, what));
    return v ? graph_as(g, v, type) : 0;
}

graph_value graph_batch_norm(graph *g, graph_value x, graph_value mean, graph_value variance,
                             graph_value weight, graph_value bias, float eps) {
    const char *what = "batch_norm";
    base_type type;
    if (!graph_has(g, x, what)) return 0;
    x = widened(g, x, &type);
    if (!x) return 0;
    const base_type own = graph_tensor_at(g, x)->type;
    mean = of_channels(g, mean, x, own, what);
    variance = of_channels(g, variance, x, own, what);
    return mean && variance ? scaled(g, x, mean, variance, weight, bias, eps, type) : 0;
}

graph_value graph_batch_norm_training(graph *g, graph_value x, graph_value weight, graph_value bias,
                                      float eps, graph_value *mean, graph_value *variance) {
    base_type type;
    *mean = *variance = 0;
    if (!graph_has(g, x, "batch_norm")) return 0;
    x = widened(g, x, &type);
    if (!x) return 0;
    const uint32_t rank = graph_tensor_at(g, x)->rank, axes = ((1u << rank) - 1) & ~2u;
    if (rank < 2) return graph_refuse(g, BERYL_MISUSE, "batch_norm of rank %u", rank);
    const graph_value m = graph_reduce(g, OP_MEAN, x, axes, 0), apart = graph_sub(g, x, m),
                      var = graph_reduce(g, OP_MEAN, graph_square(g, apart), axes, 0);
    if (!var) return 0;
    *mean = graph_as(g, graph_without(g, m, axes), type);
    *variance = graph_as(g, graph_without(g, var, axes), type);
    const graph_tensor *t = graph_tensor_at(g, x); /* the same number again, in the same kernel */
    return scaled(g, x, m, graph_expand(g, var, t->rank, t->dim), weight, bias, eps, type);
}

/* ---- others ---------------------------------------------------------------------------------- */

graph_value graph_gated(graph *g, graph_value x, uint32_t axis, base_op op) {
    graph_value parts[GRAPH_IN_MAX] = {0};
    graph_split(g, x, axis, 2, parts);
    return parts[1] ? graph_op(g, op, parts, (graph_attrs){0}) : 0;
}

graph_value graph_sum_of_squares(graph *g, uint32_t n, const graph_value *x) {
    graph_value sum = 0;
    if (!n) return graph_refuse(g, BERYL_MISUSE, "sum_of_squares of nothing");
    for (uint32_t i = 0; i < n; i++) {
        base_type type;
        if (!graph_has(g, x[i], "sum_of_squares")) return 0;
        graph_value v = widened(g, x[i], &type);
        const uint32_t axes = v ? (1u << graph_tensor_at(g, v)->rank) - 1 : 0;
        if (!base_type_is_float(type))
            return graph_refuse(g, BERYL_UNSUPPORTED, "sum_of_squares of %s", base_type_name(type));
        if (v) v = axes ? graph_without(g, squares(g, v, axes), axes) : graph_square(g, v);
        sum = sum && v ? graph_add(g, sum, v) : v;
        if (!sum) return 0;
    }
    return sum;
}

graph_value graph_softmax_along(graph *g, graph_value x, uint32_t axis) {
    uint32_t axes[GRAPH_RANK_MAX];
    if (!graph_has(g, x, "softmax")) return 0;
    const uint32_t rank = graph_tensor_at(g, x)->rank;
    if (axis >= rank)
        return graph_refuse(g, BERYL_MISUSE, "softmax along axis %u of %u", axis, rank);
    if (axis + 1 == rank) return graph_softmax(g, x);
    for (uint32_t i = 0; i < rank; i++) axes[i] = i;
    axes[axis] = rank - 1; /* the two exchanged, there and back */
    axes[rank - 1] = axis;
    const graph_value v = graph_softmax(g, graph_permute(g, x, rank, axes));
    return v ? graph_permute(g, v, rank, axes) : 0;
}

/* What a scan has before its first element. */
static float first_of(base_op op) {
    return op == OP_CUMPROD ? 1 : op == OP_CUMMAX ? -INFINITY : op == OP_CUMMIN ? INFINITY : 0;
}

graph_value graph_scan(graph *g, graph_value x, uint32_t axis, base_op op, bool exclusive,
                       bool backwards) {
    if (!graph_has(g, x, "scan")) return 0;
    const graph_tensor *t = graph_tensor_at(g, x);
    if (axis >= t->rank)
        return graph_refuse(g, BERYL_MISUSE, "scan along axis %u of %u", axis, t->rank);
    const uint32_t size = t->dim[axis].size;
    if (backwards) x = graph_flip(g, x, axis);
    if (x && exclusive && (size > 1 || t->dim[axis].extent)) {
        x = graph_narrow(g, x, axis, 0, size - 1, 1);
    } else if (x && exclusive) { /* the one element is none's */
        x = graph_pad(g, x, axis, 1, 0, first_of(op));
        return x ? graph_narrow(g, x, axis, 0, 1, 1) : 0;
    }
    if (x && exclusive) x = graph_pad(g, x, axis, 1, 0, first_of(op));
    if (!x) return 0;
    x = graph_op(g, op, (graph_value[GRAPH_IN_MAX]){x}, (graph_attrs){.cumsum = {axis}});
    return x && backwards ? graph_flip(g, x, axis) : x;
}
