/* order.c - rows in order along any axis, the largest of them, and where these are: by `sort`,
 * `topk` and `arg_largest`. */
#include "graph/build.h"

enum {
    /* what one workgroup a row finds in turns, sooner than it would be selected */
    TURNS_MAX = 256,
    TURNS_READ = 1 << 21 /* elements of a row, in all turns */
};

/* The axis last, or back at its place. */
static graph_value moved(graph *g, graph_value x, uint32_t axis, bool back) {
    uint32_t axes[GRAPH_RANK_MAX];
    const uint32_t rank = graph_tensor_at(g, x)->rank, last = rank - 1;
    if (axis == last) return x;
    for (uint32_t i = 0; i < rank; i++)
        axes[i] = back ? (i < axis ? i : i == axis ? last : i - 1) : i + (i >= axis);
    if (!back) axes[last] = axis;
    return graph_permute(g, x, rank, axes);
}

static bool has_axis(graph *g, graph_value x, uint32_t axis, const char *what) {
    return graph_has(g, x, what) && (axis < graph_tensor_at(g, x)->rank ||
                                     graph_refuse(g, BERYL_MISUSE, "%s along axis %u of %u", what,
                                                  axis, graph_tensor_at(g, x)->rank));
}

/* The first k, 0: all. */
static graph_value sorted(graph *g, graph_value x, uint32_t axis, uint32_t order, uint32_t k,
                          graph_value *indices) {
    x = moved(g, x, axis, false);
    if (!x) return 0;
    const graph_value values = graph_op(g, OP_SORT, &x, (graph_attrs){.sort = {order, k}});
    if (!values) return 0;
    *indices = g->nodes.data[graph_tensor_at(g, values)->node].out[1];
    *indices = moved(g, *indices, axis, true);
    return *indices ? moved(g, values, axis, true) : 0;
}

graph_value graph_sort(graph *g, graph_value x, uint32_t axis, uint32_t order,
                       graph_value *indices) {
    *indices = 0;
    return has_axis(g, x, axis, "sort") ? sorted(g, x, axis, order, 0, indices) : 0;
}

graph_value graph_arg(graph *g, graph_value x, uint32_t axis, bool largest) {
    if (!has_axis(g, x, axis, largest ? "argmax" : "argmin")) return 0;
    const base_type type = graph_tensor_at(g, x)->type;
    /* what is turned round so is never out of range, and NaN stays NaN */
    if (!largest) x = base_type_is_float(type) ? graph_neg(g, x) : graph_bit_not(g, x);
    if (!x) return 0;
    if (base_type_block_bytes(type) <= 4) return graph_reduce(g, OP_ARG_LARGEST, x, 1u << axis, 0);
    /* of 64 bits: the first that is the largest, which is equal to nothing where it is NaN */
    graph_value is = graph_eq(g, x, graph_reduce(g, OP_AMAX, x, 1u << axis, 0));
    if (base_type_is_float(type)) is = graph_bit_or(g, is, graph_is_nan(g, x));
    return graph_reduce(g, OP_ARG_LARGEST, graph_cast(g, is, TYPE_U8, false), 1u << axis, 0);
}

graph_value graph_topk_along(graph *g, graph_value x, uint32_t k, uint32_t axis,
                             graph_value *indices) {
    *indices = 0;
    if (!has_axis(g, x, axis, "topk")) return 0;
    const graph_tensor *t = graph_tensor_at(g, x);
    const graph_dim d = t->dim[axis];
    if (t->type == TYPE_F32 && t->rank == 2 && axis == 1 &&
        (d.extent || (k <= TURNS_MAX && (uint64_t)k * d.size <= TURNS_READ)))
        return graph_topk(g, x, k, indices);
    if (!k || k > d.size) return graph_refuse(g, BERYL_MISUSE, "topk of %u", k);
    return sorted(g, x, axis, GRAPH_SORT_LARGEST, k, indices);
}
