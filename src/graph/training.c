/* training.c - what training needs beside gradients: losses, states that become values, dropout,
 * clipping, steps of optimisers. Made of operations that there are. */
#include "graph/build.h"

#include <math.h>
#include <string.h>

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
    const graph_value x = graph_wide(g, logits),
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

/* ---- moments in 8 bits ----------------------------------------------------------------------- */

/* What 8 bits stand for. Of the square the code q is a logarithm, unit * (2^(q * octaves) - 1),
 * from 0 through the square of eps, below which it does not matter, to that of the largest
 * gradient. It needs no scale that neighbours share, so no large gradient makes small ones 0. Of
 * the mean, as a part of the root of the decoded square, which is bounded by what the betas are,
 * the code is the root with its sign: a step is made of that part, so its error is one of the
 * rate. */
typedef struct moment_code {
    double unit, octaves, part;
} moment_code;

enum { CODES = 255, HALF_CODES = 127, BYTE = 256 };

/* Of 2^0 - 1 too the root is a number, and none below 0. */
static const float nearly_one = 1 - 0x1p-20f;

static graph_value square_of(graph *g, const moment_code *c, graph_value q, double each) {
    const graph_value power = graph_exp2(g, graph_scale(g, q, (float)(each * c->octaves)));
    return graph_scale(g, graph_add_scalar(g, power, -nearly_one), (float)c->unit);
}

/* The code below the square, or the next one: in proportion, so that on average it is the square. A
 * thousandth of it, which is what a step changes, is much less than the way to the next one. */
static graph_value code_of_square(graph *g, const moment_code *c, graph_value square,
                                  graph_value chance) {
    const double next = exp2(c->octaves);
    const graph_value x =
        graph_add_scalar(g, graph_scale(g, square, (float)(next / c->unit)), (float)next);
    const graph_value less = graph_add_scalar(g, graph_scale(g, chance, (float)(next - 1)), 1);
    const graph_value q =
        graph_scale(g, graph_log2(g, graph_div(g, x, less)), (float)(1 / c->octaves));
    return graph_clamp(g, graph_floor(g, q), 0, CODES);
}

static graph_value code_of_mean(graph *g, const moment_code *c, graph_value mean, graph_value root,
                                graph_value chance) {
    const graph_value part =
        graph_scale(g, graph_div(g, graph_abs(g, mean), root), (float)(1 / c->part));
    const float most = (HALF_CODES - 0.01f) * (HALF_CODES - 0.01f);
    const graph_value z = graph_sqrt(g, graph_clamp(g, part, 0, most)),
                      k = graph_floor(g, graph_add(g, z, chance));
    return graph_mul(g, graph_sign(g, mean), k);
}

/* |mean| is at most this many times the root of the square: Cauchy and Schwarz. */
static double largest_part(double beta1, double beta2) {
    return (1 - beta1) / sqrt((1 - beta2) * (1 - beta1 * beta1 / beta2));
}

graph_value graph_adam_coded(graph *g, const graph_adam *how, graph_draw draw, float most,
                             graph_value p, graph_value gradient, graph_value *codes) {
    if (!graph_has(g, *codes, "adam") || !graph_has(g, p, "adam")) return 0;
    const double beta1 = (double)how->beta1, beta2 = (double)how->beta2;
    if (!(beta1 * beta1 < beta2) || !(most > 0) || graph_tensor_at(g, *codes)->type != TYPE_I16)
        return graph_refuse(g, BERYL_MISUSE,
                            "moments in 8 bits: I16, beta1^2 below beta2, "
                            "and a largest gradient");
    const graph_tensor t = *graph_tensor_at(g, p);
    const double least = fmax((double)how->eps, (double)most * 0x1p-40),
                 ratio = (double)most / least;
    const moment_code c = {.unit = least * least,
                           .octaves = log2(ratio * ratio + 1) / CODES,
                           .part = 1.1 * largest_part(beta1, beta2) / (HALF_CODES * HALF_CODES)};
    const graph_value chance = graph_random_uniform(g, draw, TYPE_F32, 0, 1, t.rank, t.dim),
                      twelve = graph_scale(g, chance, 4096),
                      other = graph_sub(g, twelve, graph_floor(g, twelve));
    const graph_value both = graph_scale(g, graph_cast(g, *codes, TYPE_F32, false), 1.0f / BYTE),
                      z = graph_floor(g, both);
    graph_value square = square_of(g, &c, graph_sub(g, both, z), BYTE),
                root = graph_sqrt(g, square),
                mean = graph_mul(g, graph_mul(g, z, graph_abs(g, z)), root);
    mean = graph_scale(g, mean, (float)c.part);
    p = graph_adam_step(g, how, p, gradient, &mean, &square);
    const graph_value q = code_of_square(g, &c, square, chance);
    root = graph_sqrt(g, square_of(g, &c, q, 1));
    const graph_value k = code_of_mean(g, &c, mean, root, other);
    *codes = graph_cast(g, graph_add(g, graph_scale(g, k, BYTE), q), TYPE_I16, false);
    return p;
}
