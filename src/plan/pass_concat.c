/* pass_concat.c - tensors put together from what products make: each product stores its part where
 * it belongs, and the concat is gone.
 *
 * The part becomes a view of the whole: its lines lie there as they would alone, so the axes before
 * that of the concat have one turn. Refuses parts that somebody else reads, sizes of the run, and
 * makers that are no contract (others may not store at an offset). */
#include "plan/pass.h"

/* Is v read there, and nowhere else? */
static bool is_read_once(const graph *g, graph_value v, const graph_node *reader) {
    uint32_t n = 0;
    for (size_t i = g->tensors.data[v].node + 1; i < g->nodes.count; i++) {
        const graph_node *node = &g->nodes.data[i];
        for (uint32_t k = 0; !node->dead && k < node->n_in; k++) {
            if (!node->in[k] || graph_base_of(g, node->in[k]) != v) continue;
            if (node != reader) return false;
            n++;
        }
    }
    return n == 1;
}

static bool has_run_sizes(const graph_tensor *t) {
    for (uint32_t i = 0; i < t->rank; i++)
        if (t->dim[i].extent) return true;
    return false;
}

/* Can all parts be made in place? */
static bool is_placed(const graph *g, const graph_node *node) {
    const graph_tensor *whole = graph_tensor_at(g, node->out[0]);
    if (node->op != OP_CONCAT || has_run_sizes(whole)) return false;
    for (uint32_t i = 0; i < node->attr.concat.axis; i++)
        if (whole->dim[i].size > 1) return false;
    for (uint32_t i = 0; i < node->n_in; i++) {
        const graph_value part = graph_base_of(g, node->in[i]);
        const graph_tensor *view = graph_tensor_at(g, node->in[i]), *t = graph_tensor_at(g, part);
        if (t->role != ROLE_INTERMEDIATE || t->node == UINT32_MAX || view->offset ||
            !graph_is_contiguous(view) || graph_element_bound(view) != graph_element_bound(t) ||
            !is_read_once(g, part, node))
            return false;
        const graph_node *maker = &g->nodes.data[t->node];
        if (maker->dead || (maker->op != OP_CONTRACT && !is_placed(g, maker))) return false;
    }
    return true;
}

/* Gives the last of the nodes that make it then. */
static uint32_t place(graph *g, graph_node *node) {
    graph_tensor *tensors = g->tensors.data;
    const graph_value whole = node->out[0];
    const uint32_t before = tensors[whole].node;
    uint32_t start = tensors[whole].offset, last = 0;
    for (uint32_t i = 0; i < node->n_in; i++) {
        const graph_value part = graph_base_of(g, node->in[i]);
        graph_node *maker = &g->nodes.data[tensors[part].node];
        for (graph_value v = 1; v < g->tensors.count; v++)
            if (graph_base_of(g, v) == part) tensors[v].offset += start;
        tensors[part].base = whole;
        start += (uint32_t)graph_element_bound(&tensors[part]);
        const uint32_t by = maker->op == OP_CONCAT ? place(g, maker) : tensors[part].node;
        if (by > last) last = by;
    }
    node->dead = true;
    for (graph_value v = 1; v < g->tensors.count; v++)
        if (tensors[v].node == before) tensors[v].node = last;
    return last;
}

void graph_pass_concats(graph *g) {
    for (size_t i = g->nodes.count; i-- > 0;) {
        graph_node *node = &g->nodes.data[i];
        if (!node->dead && is_placed(g, node)) place(g, node);
    }
}
