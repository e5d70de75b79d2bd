/* gradient_attention.c - the rule of attention over keys and values of the run, and the rule of
 * that. Refuses caches.
 *
 * OP_ATTENTION_SUMS keeps of each row what makes a weight of a score again, and
 * OP_ATTENTION_BACK adds up what pairs of a row and a key give, without scores in memory. Builds
 * without these, and second derivatives, take ordinary nodes: scores of a few rows at a time, as
 * many as give about as many scores as there are numbers in q, k and v; what pieces give to keys
 * and values is added in the order of rows. */
#include "graph/gradient.h"
#include "base/build.h"

#include <string.h>

enum { SCORES_MIN = 1 << 16 /* of a piece, and: */, SCORES_EACH = 2 /* for each number */ };

typedef struct attention {
    gradient *s;
    const graph_node *node;
    graph_value keys, values; /* F32 [m, groups, d] */
    graph_dim n, m;
    uint32_t groups, heads, d; /* heads: of a group */
    uint32_t each;             /* rows of a piece */
    bool wants[3];             /* towards q, keys, values; */
    graph_value sums[2];       /* of these two so far */
} attention;

static graph_value einsum(graph *g, const char *text, graph_value a, graph_value b) {
    return graph_einsum(g, text, 2, (graph_value[]){a, b});
}

/* Rows [start, start + size) of x [n, ..]; of an extent's those that are none are 0. */
static graph_value rows_of(attention *a, graph_value x, uint32_t start, uint32_t size) {
    graph *g = a->s->g;
    if (size == a->n.size) return x;
    if (!a->n.extent) return graph_narrow(g, x, 0, start, size, 1);
    const graph_value first = gradient_number(a->s, start, TYPE_I32),
                      all = graph_expand(g, first, 1, &(graph_dim){size, 0});
    return graph_index_select(g, x, graph_add(g, all, graph_iota(g, all, 0)), 0);
}

/* Which keys each of these rows sees, F32 [n, m]. */
static graph_value visible_of(attention *a, uint32_t start, uint32_t size) {
    graph *g = a->s->g;
    const graph_node *node = a->node;
    const uint32_t window = node->attr.attention.window;
    const graph_value slot = rows_of(a, node->in[3], start, size),
                      last = rows_of(a, node->in[4], start, size);
    if (!slot || !last) return 0;
    const graph_dim dims[2] = {graph_tensor_at(g, last)->dim[0], a->m};
    const graph_value row = graph_unsqueeze(g, last, 1),
                      key = graph_iota(g, graph_expand(g, row, 2, dims), 1);
    graph_value first = 0, sees = graph_le(g, key, row);
    if (node->n_in > 5) first = rows_of(a, node->in[5], start, size);
    else if (window)
        first = graph_add(g, last, gradient_number(a->s, 1 - (double)window, TYPE_I32));
    if (first) sees = graph_bit_and(g, sees, graph_ge(g, key, graph_unsqueeze(g, first, 1)));
    const graph_value is = graph_eq(g, slot, graph_bit_xor(g, slot, slot));
    return graph_cast(g, graph_bit_and(g, sees, graph_unsqueeze(g, is, 1)), TYPE_F32, false);
}

/* With weights p: towards the values p' d; towards the scores p (d v' - what of it each row has in
 * sum). Gives what goes to the rows of q. Letters: rows n, keys m, heads r of a group g, elements
 * d. */
static graph_value piece(attention *a, graph_value d, uint32_t start, uint32_t size) {
    graph *g = a->s->g;
    const graph_value *in = a->node->in;
    const float scale = a->node->attr.attention.scale;
    graph_value q = rows_of(a, in[0], start, size), parts[2] = {0};
    d = rows_of(a, d, start, size);
    if (!q || !d) return 0;
    const graph_dim heads[4] = {
        graph_tensor_at(g, q)->dim[0], {a->groups, 0}, {a->heads, 0}, {a->d, 0}};
    q = graph_reshape(g, q, 4, heads);
    d = graph_reshape(g, d, 4, heads);
    const graph_value p =
        graph_attend_weights(g, einsum(g, "ngrd,mgd->grnm", graph_scale(g, q, scale), a->keys),
                             visible_of(a, start, size));
    graph_value ds = graph_mul(g, p, einsum(g, "ngrd,mgd->grnm", d, a->values));
    ds = graph_sub(g, ds, graph_mul(g, p, graph_reduce(g, OP_SUM, ds, 1u << 3, 0)));
    ds = graph_scale(g, ds, scale);
    if (a->wants[1]) parts[0] = einsum(g, "grnm,ngrd->mgd", ds, q);
    if (a->wants[2]) parts[1] = einsum(g, "grnm,ngrd->mgd", p, d);
    for (uint32_t i = 0; i < 2; i++)
        if (parts[i]) a->sums[i] = a->sums[i] ? graph_add(g, a->sums[i], parts[i]) : parts[i];
    if (!a->wants[0]) return 0;
    return graph_reshape(g, einsum(g, "grnm,mgd->ngrd", ds, a->keys), 3,
                         (graph_dim[]){heads[0], {a->groups * a->heads, 0}, {a->d, 0}});
}

static uint32_t rows_of_a_piece(const attention *a) {
    const uint64_t heads = (uint64_t)a->groups * a->heads, n = a->n.size, m = a->m.size,
                   numbers = (heads * n + 2 * m * a->groups) * a->d * SCORES_EACH,
                   most = numbers > SCORES_MIN ? numbers : SCORES_MIN;
    const uint64_t row = m ? heads * m : heads, rows = most / row, fits = rows ? rows : 1;
    const uint64_t pieces = (n + fits - 1) / fits;
    return pieces > 1 ? (uint32_t)((n + pieces - 1) / pieces) : (uint32_t)n;
}

/* What is wanted, towards q, k and v. Errors are the graph's. */
static void expand(gradient *s, const graph_node *node, graph_value d, const bool wants[3],
                   graph_value out[3]) {
    graph *g = s->g;
    const graph_tensor q = *graph_tensor_at(g, node->in[0]), k = *graph_tensor_at(g, node->in[1]);
    attention a = {.s = s,
                   .node = node,
                   .n = q.dim[0],
                   .m = k.dim[1],
                   .groups = k.dim[2].size,
                   .heads = q.dim[1].size / k.dim[2].size,
                   .d = q.dim[2].size,
                   .wants = {wants[0], wants[1], wants[2]}};
    a.each = rows_of_a_piece(&a);
    a.keys = graph_wide(s->g, graph_squeeze(g, node->in[1], 0));
    a.values = graph_wide(s->g, graph_squeeze(g, node->in[2], 0));
    const uint32_t n = a.each ? (a.n.size + a.each - 1) / a.each : 0;
    graph_value *parts = base_arena_take(&g->arena, n ? n : 1, sizeof *parts);
    if (!parts) graph_no_memory(g);
    for (uint32_t i = 0; g->error.code == BERYL_OK && i < n; i++) {
        const uint32_t start = i * a.each, left = a.n.size - start;
        parts[i] = piece(&a, d, start, left < a.each ? left : a.each);
    }
    for (uint32_t i = 0; i < 3; i++) out[i] = 0;
    if (g->error.code != BERYL_OK || !n) return;
    if (wants[0]) {
        const graph_value all = graph_concat(g, n, parts, 0);
        out[0] = gradient_part(s, all, 0, 0, 0, node->in[0]);
    }
    for (uint32_t i = 0; i < 2; i++)
        if (a.sums[i]) out[1 + i] = graph_unsqueeze(g, a.sums[i], 0);
}

/* By the operations of the backward pass. */
static void joined(gradient *s, const graph_node *node, graph_value d) {
    graph *g = s->g;
    const graph_value *in = node->in;
    const float scale = node->attr.attention.scale;
    const graph_value sums = graph_op(
        g, OP_ATTENTION_SUMS,
        (graph_value[]){in[0], in[1], node->out[0], in[3], in[4], d, node->n_in > 5 ? in[5] : 0},
        (graph_attrs){.attention_sums = {scale, node->attr.attention.window}});
    for (uint32_t i = 0; sums && i < 3; i++)
        if (gradient_wants(s, in[i]))
            gradient_add(s, in[i],
                         graph_op(g, OP_ATTENTION_BACK,
                                  (graph_value[]){in[0], in[1], in[2], d, sums},
                                  (graph_attrs){.attention_back = {scale, i}}));
}

void gradient_attention(gradient *s, const graph_node *node, graph_value d) {
    graph *g = s->g;
    if (graph_tensor_at(g, graph_base_of(g, node->in[1]))->role == ROLE_STORED) {
        graph_refuse(g, BERYL_UNSUPPORTED, "attention over caches has no gradient");
        return;
    }
    if (BUILD_HAS_TRAINING) {
        joined(s, node, d);
        return;
    }
    bool wants[3];
    graph_value out[3];
    for (uint32_t i = 0; i < 3; i++) wants[i] = gradient_wants(s, node->in[i]);
    expand(s, node, d, wants, out);
    for (uint32_t i = 0; i < 3; i++)
        if (out[i]) gradient_add(s, node->in[i], out[i]);
}

/* Of the ordinary nodes that make the same from q, k, v and d; sums are theirs. */
void gradient_attention_back(gradient *s, const graph_node *node, graph_value d) {
    graph *g = s->g;
    const graph_node *sums = &g->nodes.data[graph_tensor_at(g, node->in[4])->node];
    const uint32_t towards = node->attr.attention_back.towards;
    graph_node of = {.op = OP_ATTENTION,
                     .n_in = (uint8_t)(sums->n_in - 1),
                     .in = {0, 0, 0, sums->in[3], sums->in[4], sums->n_in > 6 ? sums->in[6] : 0},
                     .attr.attention = {.scale = sums->attr.attention_sums.scale,
                                        .window = sums->attr.attention_sums.window}};
    const bool wants[3] = {towards == 0, towards == 1, towards == 2};
    graph_value x[4], out[3], gradients[4];
    for (uint32_t i = 0; i < 4; i++) x[i] = graph_copy(g, node->in[i]);
    memcpy(of.in, x, 3 * sizeof *x);
    expand(s, &of, x[3], wants, out);
    if (g->error.code != BERYL_OK) return;
    const uint32_t rank = graph_tensor_at(g, d)->rank;
    const graph_value loss =
        graph_reduce(g, OP_SUM, graph_mul(g, out[towards], d), (1u << rank) - 1, 0);
    /* what is computed again is this pass's matter */
    graph_segment *segments = g->segments;
    g->segments = NULL;
    graph_gradient(g, loss, 4, x, gradients);
    g->segments = segments;
    for (uint32_t i = 0; i < 4; i++) gradient_add(s, node->in[i], gradients[i]);
}
