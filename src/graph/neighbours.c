/* neighbours.c - distances between points, the nearest ones, and the graph of a UMAP made of them.
 *
 * Distances are sums over broadcast differences where points have few coordinates, else of a
 * product of matrices, which loses digits where points are near each other. */
#include "graph/build.h"

#include <float.h>
#include <math.h>

enum { FEW = 32 /* coordinates */ };

static const graph_tensor *tensor(const graph *g, graph_value x) {
    return graph_tensor_at(g, x);
}

static graph_value squared(graph *g, graph_value a, graph_value b) {
    if (tensor(g, a)->dim[1].size <= FEW) {
        a = graph_unsqueeze(g, a, 1);
        b = graph_unsqueeze(g, b, 0);
        if (!a || !b) return 0;
        a = graph_reduce(g, OP_SUM, graph_square(g, graph_sub(g, a, b)), 4, 0);
        return a ? graph_squeeze(g, a, 2) : 0;
    }
    const graph_value of_a = graph_reduce(g, OP_SUM, graph_square(g, a), 2, 0),
                      of_b = graph_reduce(g, OP_SUM, graph_square(g, b), 2, 0),
                      both = graph_matmul(g, a, b, false, true);
    if (!of_a || !of_b || !both) return 0;
    const graph_value sum = graph_add(g, of_a, graph_permute(g, of_b, 2, (uint32_t[]){1, 0}));
    return graph_relu(g, graph_sub(g, sum, graph_scale(g, both, 2)));
}

graph_value graph_pairwise_distance(graph *g, graph_value a, graph_value b, graph_distance kind) {
    char text[2][GRAPH_SHAPE_TEXT];
    if (!graph_has(g, a, "pairwise_distance") || !graph_has(g, b, "pairwise_distance")) return 0;
    const graph_tensor *x = tensor(g, a), *y = tensor(g, b);
    if (x->rank != 2 || y->rank != 2 || !graph_same_dim(x->dim[1], y->dim[1]) ||
        (unsigned)kind > DISTANCE_COSINE)
        return graph_refuse(g, BERYL_MISUSE, "pairwise_distance of %s and %s",
                            graph_shape_text(g, x->rank, x->dim, text[0]),
                            graph_shape_text(g, y->rank, y->dim, text[1]));
    const base_type type = x->type;
    if (type != y->type || !base_type_is_float(type))
        return graph_refuse(g, BERYL_UNSUPPORTED, "pairwise_distance of %s and %s",
                            base_type_name(type), base_type_name(y->type));
    if (type == TYPE_F16 || type == TYPE_BF16) { /* squares are soon above the largest F16 */
        a = graph_cast(g, a, TYPE_F32, false);
        b = graph_cast(g, b, TYPE_F32, false);
        a = a && b ? graph_pairwise_distance(g, a, b, kind) : 0;
        return a ? graph_cast(g, a, type, false) : 0;
    }
    if (kind == DISTANCE_COSINE) {
        a = graph_l2_norm(g, a, 1, FLT_MIN);
        b = graph_l2_norm(g, b, 1, FLT_MIN);
        a = a && b ? graph_matmul(g, a, b, false, true) : 0;
        return a ? graph_add_scalar(g, graph_neg(g, a), 1) : 0;
    }
    a = squared(g, a, b);
    return a && kind == DISTANCE_EUCLID ? graph_sqrt(g, a) : a;
}

graph_value graph_knn(graph *g, graph_value x, graph_value queries, uint32_t k, graph_distance kind,
                      graph_value *indices) {
    *indices = 0;
    const graph_value far = graph_pairwise_distance(g, queries, x, kind);
    const graph_value near = far ? graph_topk(g, graph_neg(g, far), k, indices) : 0;
    return near ? graph_neg(g, near) : 0;
}
