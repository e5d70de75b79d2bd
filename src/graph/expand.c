/* expand.c - operations that are several others: passes join them again. */
#include "graph/graph.h"

#include <float.h>

/* Halves are computed in F32 from end to end: a sum of them is soon above the largest F16. */
static graph_value widened(graph *g, graph_value x, base_type *type) {
    *type = graph_tensor_at(g, x)->type;
    return *type == TYPE_F16 || *type == TYPE_BF16 ? graph_cast(g, x, TYPE_F32, false) : x;
}

static graph_value as(graph *g, graph_value x, base_type type) {
    return graph_tensor_at(g, x)->type == type ? x : graph_cast(g, x, type, false);
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

graph_value graph_var(graph *g, graph_value x, uint32_t axes, uint32_t correction) {
    base_type type;
    x = widened(g, x, &type);
    return as(g, variance(g, x, axes, correction), type);
}

graph_value graph_std(graph *g, graph_value x, uint32_t axes, uint32_t correction) {
    base_type type;
    x = widened(g, x, &type);
    return as(g, graph_sqrt(g, variance(g, x, axes, correction)), type);
}

graph_value graph_norm(graph *g, graph_value x, uint32_t axes) {
    base_type type;
    x = widened(g, x, &type);
    return as(g, graph_sqrt(g, squares(g, x, axes)), type);
}

graph_value graph_logsumexp(graph *g, graph_value x, uint32_t axes) {
    base_type type;
    x = widened(g, x, &type);
    return as(g, log_of_sum(g, x, axes), type);
}

graph_value graph_log_softmax(graph *g, graph_value x, uint32_t axis) {
    base_type type;
    x = widened(g, x, &type);
    return as(g, graph_sub(g, x, log_of_sum(g, x, 1u << axis)), type);
}

graph_value graph_l2_norm(graph *g, graph_value x, uint32_t axis, float eps) {
    base_type type;
    x = widened(g, x, &type);
    const graph_value factor = graph_rsqrt(g, graph_add_scalar(g, squares(g, x, 1u << axis), eps));
    return as(g, graph_mul(g, x, factor), type);
}
