/* pass_narrow.c - values that products and attention on matrix units alone read are kept as the
 * halves to which those would round them: what makes such a value stores it so, once for all. */
#include "plan/pass.h"
#include "tile/attention.h"
#include "tile/fused.h"
#include "tile/tiled.h"

/* v itself, or all of it in another shape? */
static bool is_whole(const graph *g, graph_value view, graph_value v) {
    const graph_tensor *t = graph_tensor_at(g, view);
    return view == v || (graph_base_of(g, view) == v && !t->offset && graph_is_contiguous(t) &&
                         graph_element_bound(t) == graph_element_bound(graph_tensor_at(g, v)));
}

/* The same, or some columns of its rows. */
static bool is_rows(const graph *g, graph_value view, graph_value v) {
    const graph_tensor *t = graph_tensor_at(g, view);
    return is_whole(g, view, v) || (graph_base_of(g, view) == v && t->rank == 2 &&
                                    t->stride[1] == 1 && graph_tensor_at(g, v)->rank == 2);
}

/* Does the product read v as vectors alone? */
static bool reads_vectors(const graph *g, const graph_node *product, graph_value v) {
    if (product->op != OP_LINEAR) return false;
    for (uint32_t k = 0; k < product->n_in; k++) /* vectors, weight; perhaps others of low rank */
        if (graph_base_of(g, product->in[k]) == v && (k % 2 || !is_rows(g, product->in[k], v)))
            return false;
    return true;
}

/* The node's product, if that and nothing else in it reads v; NULL: not so. */
static const graph_node *product_of(const graph *g, const graph_node *node, graph_value v) {
    const graph_node *product = NULL;
    if (node->op == OP_LINEAR) return reads_vectors(g, node, v) ? node : NULL;
    if (node->op != OP_FUSED || node->attr.fused.kind != FUSED_CHAIN) return NULL;
    const graph_region r = graph_region_of(g, node);
    for (uint32_t i = 0; i < r.n; i++)
        for (uint32_t k = 0; k < r.node[i]->n_in; k++) {
            if (!r.node[i]->in[k] || graph_base_of(g, r.node[i]->in[k]) != v) continue;
            if ((product && product != r.node[i]) || !reads_vectors(g, r.node[i], v)) return NULL;
            product = r.node[i];
        }
    return product;
}

static bool is_made_by_a_tree(const graph *g, const graph_node *node, graph_value v) {
    bool stored = false;
    for (uint32_t i = 0; i < node->n_out; i++) stored |= node->out[i] == v;
    if (!stored || node->op != OP_FUSED) return stored && graph_is_stored_by_trees(node);
    if (node->attr.fused.kind != FUSED_CHAIN) return false;
    const graph_region r = graph_region_of(g, node);
    for (uint32_t i = 0; i < r.n; i++)
        if (r.node[i]->out[0] == v) return graph_is_stored_by_trees(r.node[i]);
    return false;
}

/* By what makes it. */
static bool can_be_halves(const graph *g, graph_value v) {
    const graph_tensor *t = graph_tensor_at(g, v);
    return t->type == TYPE_F32 && t->role == ROLE_INTERMEDIATE && !t->base &&
           t->node != UINT32_MAX && !g->nodes.data[t->node].dead &&
           is_made_by_a_tree(g, &g->nodes.data[t->node], v);
}

/* Does the node take all of v, its input k, as halves? */
static bool takes_halves(const graph *g, const graph_store *store, const lower_settings *settings,
                         const graph_node *node, uint32_t k, graph_value v) {
    if (node->op == OP_ATTENTION)
        return (k == 1 || k == 2) && is_whole(g, node->in[k], v) &&
               graph_base_of(g, node->in[0]) != v && tile_attention_halves(g, store, node);
    const graph_node *product = product_of(g, node, v);
    return product && tile_takes_halves(g, store, settings, product);
}

/* Keys are halves where values are; whether that took anything back. */
static bool match_values(graph *g) {
    bool changed = false;
    for (size_t i = 0; i < g->nodes.count; i++) {
        const graph_node *node = &g->nodes.data[i];
        if (node->dead || node->op != OP_ATTENTION) continue;
        bool *k = &g->tensors.data[graph_base_of(g, node->in[1])].narrow,
             *v = &g->tensors.data[graph_base_of(g, node->in[2])].narrow;
        changed |= *k != *v;
        *k = *v = *k && *v;
    }
    return changed;
}

void graph_pass_narrow(graph *g, const graph_store *store, const graph_exec_options *options) {
    const lower_settings settings = lower_settings_of(options);
    graph_tensor *tensors = g->tensors.data;
    if (settings.exact || !store->device || !device_caps_of(store->device)->fragments) return;
    for (graph_value v = 1; v < g->tensors.count; v++) tensors[v].narrow = can_be_halves(g, v);
    for (size_t i = 0; i < g->nodes.count; i++) {
        const graph_node *node = &g->nodes.data[i];
        for (uint32_t k = 0; !node->dead && k < node->n_in; k++) {
            const graph_value v = node->in[k] ? graph_base_of(g, node->in[k]) : 0;
            if (!v || !tensors[v].narrow) continue;
            tensors[v].narrow = takes_halves(g, store, &settings, node, k, v);
        }
    }
    while (match_values(g)) {}
    for (graph_value v = 1; v < g->tensors.count; v++) { /* views come after what they show */
        if (tensors[v].base) tensors[v].narrow = tensors[tensors[v].base].narrow;
        if (tensors[v].narrow) tensors[v].type = TYPE_F16;
    }
}
