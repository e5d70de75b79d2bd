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
    return a && kind == DISTANCE_EUCLID ? graph_root(g, a) : a;
}

graph_value graph_knn(graph *g, graph_value x, graph_value queries, uint32_t k, graph_distance kind,
                      graph_value *indices) {
    *indices = 0;
    const graph_value far = graph_pairwise_distance(g, queries, x, kind);
    const graph_value near = far ? graph_topk(g, graph_neg(g, far), k, indices) : 0;
    return near ? graph_neg(g, near) : 0;
}

/* ---- UMAP's weights -------------------------------------------------------------------------- */

static graph_value number(graph *g, float x) {
    return graph_constant(g, 1, &x);
}

/* x [n, k], how far beyond the nearest point -> sigma [n, 1], where exp(-x / sigma)
 * of all but the first sum to log2(k). Its logarithm goes by ever smaller steps up or down: the
 * last one is smaller than F32 has digits for. */
static graph_value sigma_of(graph *g, graph_value x, uint32_t k) {
    enum { ROUNDS = 27 };
    const graph_value others = graph_neg(g, graph_narrow(g, x, 1, 1, k - 1, 1)),
                      wanted = number(g, log2f((float)k));
    graph_value power = number(g, 0); /* 1 / sigma is 2 to it */
    float step[ROUNDS] = {16};
    for (uint32_t i = 1; i < ROUNDS; i++) step[i] = step[i - 1] / 2;
    const graph_value steps = graph_constant(g, ROUNDS, step); /* one program for all rounds */
    for (uint32_t i = 0; i < ROUNDS && others && wanted && power; i++) {
        const graph_value near = graph_exp(g, graph_mul(g, others, graph_exp2(g, power))),
                          sum = near ? graph_reduce(g, OP_SUM, near, 2, 0) : 0,
                          up = sum ? graph_sign(g, graph_sub(g, sum, wanted)) : 0;
        power = up ? graph_add(g, power, graph_mul(g, up, graph_narrow(g, steps, 0, i, 1, 1))) : 0;
    }
    return power ? graph_exp2(g, graph_neg(g, power)) : 0;
}

graph_value graph_umap_weights(graph *g, graph_value distances, graph_value indices) {
    enum { POINTS_MAX = 1 << 24 };
    char text[2][GRAPH_SHAPE_TEXT];
    if (!graph_has(g, distances, "umap_weights") || !graph_has(g, indices, "umap_weights"))
        return 0;
    const graph_tensor d = *tensor(g, distances), *at = tensor(g, indices);
    if (d.rank != 2 || !graph_same_shape(&d, at) || d.dim[0].extent || d.dim[1].extent ||
        d.dim[1].size < 2 || d.dim[0].size > POINTS_MAX || d.type != TYPE_F32 ||
        at->type != TYPE_I32)
        return graph_refuse(g, BERYL_MISUSE, "umap_weights of %s and %s",
                            graph_shape_text(g, d.rank, d.dim, text[0]),
                            graph_shape_text(g, at->rank, at->dim, text[1]));
    const uint32_t n = d.dim[0].size, k = d.dim[1].size;
    const graph_value zero = number(g, 0), far = number(g, FLT_MAX);
    /* the nearest point that is not in the same place; 0: there is none */
    const graph_value apart = graph_reduce(
        g, OP_AMIN, graph_where(g, graph_cast(g, distances, TYPE_BOOL, false), distances, far), 2,
        0);
    const graph_value any = graph_lt(g, apart, far),
                      x = graph_relu(g, graph_sub(g, distances, graph_where(g, any, apart, zero)));
    const graph_value mean = graph_reduce(g, OP_MEAN, distances, 2, 0),
                      all = graph_reduce(g, OP_MEAN, distances, 3, 0),
                      least = graph_scale(g, graph_where(g, any, mean, all), 1e-3f);
    const graph_value sigma = x ? graph_max(g, sigma_of(g, x, k), least) : 0;
    const graph_value near =
        graph_exp(g, graph_neg(g, graph_div(g, x, graph_max(g, sigma, number(g, FLT_MIN)))));
    /* [n, k] as [n, n]: at each place the weight with its index, 0 of a point and itself */
    float *counted =
        g->error.code == BERYL_OK ? base_heap_take(g->heap, n * sizeof *counted) : NULL;
    if (!counted) return graph_no_memory(g);
    for (uint32_t i = 0; i < n; i++) counted[i] = (float)i;
    const graph_value places = graph_cast(g, graph_constant(g, n, counted), TYPE_I32, false);
    base_heap_give(g->heap, counted, n * sizeof *counted);
    const graph_value is = graph_eq(g, graph_unsqueeze(g, indices, 2), places),
                      here = graph_mul(g, graph_unsqueeze(g, near, 2),
                                       graph_cast(g, is, TYPE_F32, false));
    graph_value one = here ? graph_squeeze(g, graph_reduce(g, OP_SUM, here, 2, 0), 1) : 0;
    const graph_value other = graph_ne(g, graph_unsqueeze(g, places, 1), places);
    one = one ? graph_mul(g, one, graph_cast(g, other, TYPE_F32, false)) : 0;
    const graph_value back = one ? graph_permute(g, one, 2, (uint32_t[]){1, 0}) : 0;
    return back ? graph_sub(g, graph_add(g, one, back), graph_mul(g, one, back)) : 0;
}
