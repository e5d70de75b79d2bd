/* expand.c - operations that are several others: passes join them again. */
#include "graph/graph.h"

#include <float.h>

graph_value graph_var(graph *g, graph_value x, uint32_t axes, uint32_t correction) {
    const graph_value mean = graph_reduce(g, OP_MEAN, x, axes, 0);
    return graph_reduce(g, OP_MEAN, graph_square(g, graph_sub(g, x, mean)), axes, correction);
}

graph_value graph_std(graph *g, graph_value x, uint32_t axes, uint32_t correction) {
    return graph_sqrt(g, graph_var(g, x, axes, correction));
}

graph_value graph_norm(graph *g, graph_value x, uint32_t axes) {
    return graph_sqrt(g, graph_reduce(g, OP_SUM, graph_square(g, x), axes, 0));
}

graph_value graph_logsumexp(graph *g, graph_value x, uint32_t axes) {
    /* an infinity less itself would be NaN */
    const graph_value most =
        graph_clamp(g, graph_reduce(g, OP_AMAX, x, axes, 0), -FLT_MAX, FLT_MAX);
    const graph_value sum = graph_reduce(g, OP_SUM, graph_exp(g, graph_sub(g, x, most)), axes, 0);
    return graph_add(g, graph_log(g, sum), most);
}

graph_value graph_log_softmax(graph *g, graph_value x, uint32_t axis) {
    return graph_sub(g, x, graph_logsumexp(g, x, 1u << axis));
}

graph_value graph_l2_norm(graph *g, graph_value x, uint32_t axis, float eps) {
    const graph_value squares = graph_reduce(g, OP_SUM, graph_square(g, x), 1u << axis, 0);
    return graph_mul(g, x, graph_rsqrt(g, graph_add_scalar(g, squares, eps)));
}
