/* pass_low.c - x W + z B, where B has few columns (an adapter's), as one product.
 *
 * The sum becomes a linear of four inputs, x, W, z and B, in the place of the addition: kernels
 * add that row of B times z to the sums of a row of W, which costs no dispatch. Other passes
 * join it like any product. Refuses what no kernel adds: then the three stay as they were. */
#include "plan/pass.h"
#include "tile/matvec_fused.h"
#include "tile/tiled.h"

enum { LESS = 4 /* columns of B, at most a part of those of W */ };

/* The product whose result is v, which nobody else reads; NULL: none. */
static graph_node *product_of(const graph *g, graph_value v) {
    const graph_tensor *t = graph_tensor_at(g, v);
    graph_node *node = t->node == UINT32_MAX ? NULL : &g->nodes.data[t->node];
    return node && !node->dead && node->op == OP_LINEAR && node->n_in == 2 && graph_reader_of(g, v)
               ? node
               : NULL;
}

static uint32_t columns_of(const graph *g, const graph_node *product) {
    return graph_tensor_at(g, product->in[1])->dim[1].size;
}

/* The addition at `index` as such a product. */
static void join(const lowering *l, graph *g, uint32_t index) {
    graph_node *add = &g->nodes.data[index];
    graph_node *full = product_of(g, add->in[0]), *low = product_of(g, add->in[1]);
    if (!full || !low || full == low) return;
    if (columns_of(g, low) > columns_of(g, full)) {
        graph_node *other = full;
        full = low;
        low = other;
    }
    const uint32_t a = (uint32_t)(full - g->nodes.data), b = (uint32_t)(low - g->nodes.data),
                   members[] = {a < b ? a : b, a < b ? b : a, index};
    graph_node sum = {.op = OP_LINEAR,
                      .n_in = 4,
                      .in = {full->in[0], full->in[1], low->in[0], low->in[1]},
                      .n_out = 1,
                      .out = {add->out[0]}};
    if (columns_of(g, low) * LESS > columns_of(g, full) ||
        !graph_same_shape(graph_tensor_at(g, full->out[0]), graph_tensor_at(g, low->out[0])) ||
        graph_pass_changes_between(g, members, 3) ||
        (!tile_matvec_adds(l, &sum, NULL) && !tile_tiled_adds(l, &sum)))
        return;
    full->dead = low->dead = true;
    *add = sum;
}

void graph_pass_low(graph *g, graph_store *store, const graph_exec_options *options) {
    if (!store->device) return;
    const lower_settings settings = lower_settings_of(options);
    const lowering l = lower_asked(g, store, &settings);
    for (uint32_t i = 0; i < g->nodes.count; i++)
        if (!g->nodes.data[i].dead && g->nodes.data[i].op == OP_ADD) join(&l, g, i);
}
