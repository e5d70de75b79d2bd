/* losses.c - losses beside cross-entropy: each is operations that there are, with gradients from
 * their rules. Halves are computed in F32, and give F32. */
#include "graph/build.h"

/* Floats of one shape and type, n of them, made wide. */
static bool fit(graph *g, const char *what, graph_value *x, uint32_t n, bool rows) {
    char text[2][GRAPH_SHAPE_TEXT];
    for (uint32_t i = 0; i < n; i++)
        if (!graph_has(g, x[i], what)) return false;
    const graph_tensor a = *graph_tensor_at(g, x[0]);
    for (uint32_t i = 0; i < n; i++) {
        const graph_tensor b = *graph_tensor_at(g, x[i]);
        if (!base_type_is_float(b.type) || b.type != a.type || !graph_same_shape(&a, &b) ||
            a.rank < rows)
            return graph_refuse(g, BERYL_MISUSE, "%s of %s and %s: floats of one %s", what,
                                graph_shape_text(g, a.rank, a.dim, text[0]),
                                graph_shape_text(g, b.rank, b.dim, text[1]),
                                rows ? "type and shape, with rows" : "type and shape");
    }
    for (uint32_t i = 0; i < n; i++) x[i] = graph_wide(g, x[i]);
    return true;
}

/* Summed over the last axis, which is then none. */
static graph_value over_rows(graph *g, graph_value v) {
    if (!v) return 0;
    const uint32_t last = graph_tensor_at(g, v)->rank - 1u;
    return graph_squeeze(g, graph_reduce(g, OP_SUM, v, 1u << last, 0), last);
}

/* c (a - c / 2) with c the part of a up to delta: a^2 / 2, then straight on. */
static graph_value huber(graph *g, graph_value apart, float delta) {
    const graph_value a = graph_abs(g, apart), c = graph_clamp(g, a, 0, delta);
    return graph_mul(g, c, graph_sub(g, a, graph_scale(g, c, 0.5f)));
}

/* target (log(target) - x), 0 where the target is; the logarithm is never that of 0. */
static graph_value divergence(graph *g, graph_value x, graph_value target) {
    const graph_value none = graph_clamp(g, target, 0, 0), is = graph_gt(g, target, none),
                      some = graph_where(g, is, target, graph_clamp(g, target, 1, 1));
    return graph_where(g, is, graph_mul(g, target, graph_sub(g, graph_log(g, some), x)), none);
}

graph_value graph_loss(graph *g, graph_loss_kind kind, graph_value x, graph_value target,
                       float delta) {
    static const char *const names[LOSS_COUNT] = {"mse", "l1", "huber", "bce", "kl", "cosine"};
    if ((unsigned)kind >= LOSS_COUNT) return graph_refuse(g, BERYL_MISUSE, "loss: no such kind");
    graph_value in[2] = {x, target};
    if (!fit(g, names[kind], in, 2, kind == LOSS_COSINE)) return 0;
    if (kind == LOSS_HUBER && !(delta > 0 && delta < 1e30f))
        return graph_refuse(g, BERYL_MISUSE, "huber: delta is above 0");
    x = in[0], target = in[1];
    switch (kind) {
    case LOSS_MSE: return graph_square(g, graph_sub(g, x, target));
    case LOSS_L1: return graph_abs(g, graph_sub(g, x, target));
    case LOSS_HUBER: return huber(g, graph_sub(g, x, target), delta);
    case LOSS_BCE: return graph_sub(g, graph_softplus(g, x), graph_mul(g, x, target));
    case LOSS_KL: return divergence(g, x, target);
    case LOSS_COSINE: {
        const uint32_t last = graph_tensor_at(g, x)->rank - 1u;
        const graph_value a = graph_l2_norm(g, x, last, 1e-16f),
                          b = graph_l2_norm(g, target, last, 1e-16f);
        const graph_value cosine = over_rows(g, graph_mul(g, a, b));
        return cosine ? graph_add_scalar(g, graph_neg(g, cosine), 1) : 0;
    }
    case LOSS_COUNT: break;
    }
    return 0;
}

graph_value graph_nll(graph *g, graph_value logs, graph_value targets) {
    enum { CLASSES_MAX = 1 << 24 /* whole numbers of F32 */ };
    if (!graph_has(g, logs, "nll") || !graph_has(g, targets, "nll")) return 0;
    char text[2][GRAPH_SHAPE_TEXT];
    const graph_tensor t = *graph_tensor_at(g, logs), of = *graph_tensor_at(g, targets);
    if (t.rank != 2 || of.rank != 1 || !graph_same_dim(t.dim[0], of.dim[0]) ||
        of.type != TYPE_I32 || !base_type_is_float(t.type) || t.dim[1].extent ||
        t.dim[1].size > CLASSES_MAX)
        return graph_refuse(g, BERYL_MISUSE,
                            "nll of %s and targets %s: floats [n, classes] and I32 [n]",
                            graph_shape_text(g, t.rank, t.dim, text[0]),
                            graph_shape_text(g, of.rank, of.dim, text[1]));
    /* what is gathered out of range is 0 */
    const graph_value at = graph_unsqueeze(g, targets, 1), x = graph_wide(g, logs);
    return graph_squeeze(g, graph_neg(g, graph_gather(g, x, at, 1)), 1);
}

/* The distance of rows, a millionth added to each difference: no root of 0. */
static graph_value distance(graph *g, graph_value a, graph_value b) {
    const graph_value apart = graph_add_scalar(g, graph_sub(g, a, b), 1e-6f);
    return graph_sqrt(g, over_rows(g, graph_square(g, apart)));
}

graph_value graph_triplet(graph *g, graph_value anchor, graph_value same, graph_value other,
                          float margin) {
    graph_value in[3] = {anchor, same, other};
    if (!fit(g, "triplet", in, 3, true)) return 0;
    const graph_value apart = graph_sub(g, distance(g, in[0], in[1]), distance(g, in[0], in[2]));
    return graph_relu(g, graph_add_scalar(g, apart, margin));
}
