/* training.c - what training needs beside gradients: losses, states that become values, dropout,
 * clipping, steps of optimisers. Made of operations that there are. */
#include "graph/build.h"

#include <string.h>

static graph_value wide(graph *g, graph_value x) {
    const base_type type = graph_tensor_at(g, x)->type;
    return type == TYPE_F16 || type == TYPE_BF16 ? graph_cast(g, x, TYPE_F32, false) : x;
}

graph_value graph_cross_entropy(graph *g, graph_value logits, graph_value targets) {
    enum { CLASSES_MAX = 1 << 24 /* whole numbers of F32 */ };
    if (!graph_has(g, logits, "cross_entropy") || !graph_has(g, targets, "cross_entropy")) return 0;
    char text[2][GRAPH_SHAPE_TEXT];
    const graph_tensor t = *graph_tensor_at(g, logits), of = *graph_tensor_at(g, targets);
    if (t.rank != 2 || of.rank != 1 || !graph_same_dim(t.dim[0], of.dim[0]) ||
        of.type != TYPE_I32 || !base_type_is_float(t.type) || t.dim[1].extent ||
        t.dim[1].size > CLASSES_MAX)
        return graph_refuse(g, BERYL_MISUSE,
                            "cross_entropy of %s and targets %s: floats [n, classes] and I32 [n]",
                            graph_shape_text(g, t.rank, t.dim, text[0]),
                            graph_shape_text(g, of.rank, of.dim, text[1]));
    const graph_value x = wide(g, logits),
                      is = graph_eq(g, targets,
                                    graph_clamp(g, targets, 0, (float)(t.dim[1].size - 1)));
    const graph_value at = graph_unsqueeze(g, targets, 1), all = graph_logsumexp(g, x, 2);
    const graph_value loss = graph_squeeze(g, graph_sub(g, all, graph_gather(g, x, at, 1)), 1);
    const graph_value none =
        graph_cast(g, graph_bit_xor(g, is, is), graph_tensor_at(g, x)->type, false);
    return graph_own_rule(g, (graph_own){.kind = OWN_CROSS_ENTROPY,
                                         .out = graph_where(g, is, loss, none),
                                         .in = {logits, targets}});
}

graph_value graph_assign(graph *g, graph_value state, graph_value x) {
    if (!graph_has(g, state, "assign") || !graph_has(g, x, "assign")) return 0;
    /* states may lie in one buffer, which no dispatch reads and writes */
    if (graph_tensor_at(g, x)->role == ROLE_STORED) x = graph_copy(g, x);
    return graph_op(g, OP_ASSIGN, (graph_value[GRAPH_IN_MAX]){state, x}, (graph_attrs){0});
}

graph_value graph_dropout(graph *g, graph_draw draw, graph_value x, float chance) {
    if (!graph_has(g, x, "dropout")) return 0;
    const graph_tensor t = *graph_tensor_at(g, x);
    if (!(chance >= 0 && chance < 1))
        return graph_refuse(g, BERYL_MISUSE, "dropout: a chance from 0 to below 1");
    const graph_value drop = graph_bernoulli(g, draw, chance, t.rank, t.dim),
                      none = graph_cast(g, graph_bit_xor(g, drop, drop), t.type, false);
    return graph_where(g, drop, none, graph_scale(g, x, 1 / (1 - chance)));
}

graph_value graph_clip(graph *g, uint32_t n, const graph_value *x, float most,
                       graph_value *clipped) {
    if (!(most > 0)) graph_refuse(g, BERYL_MISUSE, "clip: a norm above 0");
    graph_value norm = graph_sum_of_squares(g, n, x);
    norm = graph_sqrt(g, norm);
    /* at least most / most: as it is */
    const graph_value over = graph_scale(g, graph_add_scalar(g, norm, 1e-6f), 1 / most),
                      factor = graph_clamp(g, graph_reciprocal(g, over), 0, 1);
    for (uint32_t i = 0; factor && i < n; i++) {
        const base_type type = graph_tensor_at(g, x[i])->type,
                        computed = graph_tensor_at(g, factor)->type;
        graph_value v = type == computed ? x[i] : graph_cast(g, x[i], computed, false);
        v = graph_mul(g, v, factor);
        clipped[i] = type == computed ? v : graph_cast(g, v, type, false);
    }
    for (uint32_t i = 0; g->error.code != BERYL_OK && i < n; i++) clipped[i] = 0;
    return g->error.code == BERYL_OK ? norm : 0;
}

graph_value graph_averaged(graph *g, graph_value before, graph_value x, float keep) {
    return graph_add(g, graph_scale(g, before, keep), graph_scale(g, x, (float)(1 - (double)keep)));
}

graph_value graph_adam_step(graph *g, const graph_adam *how, graph_value p, graph_value gradient,
                            graph_value *mean, graph_value *square) {
    *mean = graph_averaged(g, *mean, gradient, how->beta1);
    *square = graph_averaged(g, *square, graph_square(g, gradient), how->beta2);
    const graph_value root = graph_div(g, graph_sqrt(g, *square), how->root),
                      step = graph_div(g, *mean, graph_add_scalar(g, root, how->eps));
    if (how->decay != 0)
        p = graph_sub(g, p, graph_mul(g, graph_scale(g, p, how->decay), how->rate));
    return graph_sub(g, p, graph_mul(g, step, how->over_first));
}
