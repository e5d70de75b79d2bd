/* gradient_attention.c - the rule of attention over keys and values of the run. Refuses caches. */
#include "graph/gradient.h"

#include <string.h>

static graph_value einsum(graph *g, const char *text, graph_value a, graph_value b) {
    return graph_einsum(g, text, 2, (graph_value[]){a, b});
}

/* Which of m keys each row sees, BOOL [n, m]. */
static graph_value visible_of(gradient *s, const graph_node *node, graph_dim m) {
    graph *g = s->g;
    const graph_value slot = node->in[3], last = node->in[4];
    const uint32_t window = node->attr.attention.window;
    const graph_dim dims[2] = {graph_tensor_at(g, last)->dim[0], m};
    const graph_value row = graph_unsqueeze(g, last, 1),
                      key = graph_iota(g, graph_expand(g, row, 2, dims), 1);
    graph_value first = 0, sees = graph_le(g, key, row);
    if (node->n_in > 5) first = node->in[5];
    else if (window) first = graph_add(g, last, gradient_number(s, 1 - (double)window, TYPE_I32));
    if (first) sees = graph_bit_and(g, sees, graph_ge(g, key, graph_unsqueeze(g, first, 1)));
    const graph_value is = graph_eq(g, slot, graph_bit_xor(g, slot, slot));
    return graph_bit_and(g, sees, graph_unsqueeze(g, is, 1));
}

/* With weights p: towards the values p' d; towards the scores p (d v' - what of it each row has in
 * sum). Letters: rows n, keys m, heads r of a group g, elements d. */
void gradient_attention(gradient *s, const graph_node *node, graph_value d) {
    graph *g = s->g;
    const graph_tensor q = *graph_tensor_at(g, node->in[0]), k = *graph_tensor_at(g, node->in[1]);
    if (graph_tensor_at(g, graph_base_of(g, node->in[1]))->role == ROLE_STORED) {
        graph_refuse(g, BERYL_UNSUPPORTED, "attention over caches has no gradient");
        return;
    }
    const graph_dim heads[4] = {q.dim[0], k.dim[2], {q.dim[1].size / k.dim[2].size, 0}, q.dim[2]};
    const graph_value rows = graph_reshape(g, node->in[0], 4, heads),
                      keys = gradient_wide(s, graph_squeeze(g, node->in[1], 0)),
                      values = gradient_wide(s, graph_squeeze(g, node->in[2], 0));
    const graph_value scaled = graph_scale(g, rows, node->attr.attention.scale),
                      sees = graph_cast(g, visible_of(s, node, k.dim[1]), TYPE_F32, false);
    const graph_value p = graph_attend_weights(g, einsum(g, "ngrd,mgd->grnm", scaled, keys), sees);
    d = graph_reshape(g, d, 4, heads);
    if (gradient_wants(s, node->in[2]))
        gradient_add(s, node->in[2], graph_unsqueeze(g, einsum(g, "grnm,ngrd->mgd", p, d), 0));
    graph_value ds = graph_mul(g, p, einsum(g, "ngrd,mgd->grnm", d, values));
    ds = graph_sub(g, ds, graph_mul(g, p, graph_reduce(g, OP_SUM, ds, 1u << 3, 0)));
    ds = graph_scale(g, ds, node->attr.attention.scale);
    if (gradient_wants(s, node->in[0]))
        gradient_add(s, node->in[0],
                     graph_reshape(g, einsum(g, "grnm,mgd->ngrd", ds, keys), 3, q.dim));
    if (gradient_wants(s, node->in[1]))
        gradient_add(s, node->in[1], graph_unsqueeze(g, einsum(g, "grnm,ngrd->mgd", ds, rows), 0));
}
