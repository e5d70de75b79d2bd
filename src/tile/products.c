/* products.c - see tile/products.h. */
#include "tile/products.h"
#include "base/build.h"

/* Does an operation after the products read what those before them make? Workgroups that make the
 * vectors for themselves do not wait for the one that stores it. */
static bool reads(const graph *g, const graph_region *after, const graph_region *before) {
    for (uint32_t i = 0; i < after->n; i++)
        for (uint32_t k = 0; after->node[i]->op != OP_LINEAR && k < after->node[i]->n_in; k++)
            if (graph_region_before(g, before, after->node[i]->in[k]).n) return true;
    return false;
}

bool graph_products_of(const graph *g, const graph_region *r, graph_products *out) {
    *out = (graph_products){.n = 0};
    for (uint32_t i = 0; i < r->n; i++) {
        const graph_node *node = r->node[i];
        if (node->op != OP_LINEAR) continue;
        if (out->n == FUSED_SEGMENT_MAX || (out->n && node->in[0] != out->x)) return false;
        out->x = node->in[0];
        out->w[out->n] = node->in[1];
        if (BUILD_HAS_ADAPTERS && node->n_in > 2) {
            if (graph_region_before(g, r, node->in[2]).n) return false;
            out->low[out->n] = node->in[2];
            out->low_w[out->n] = node->in[3];
            out->has_low = true;
        }
        out->out[out->n++] = node->out[0];
    }
    if (!out->n) return false;
    out->before = graph_region_before(g, r, out->x);
    out->after = graph_region_without(r, &out->before);
    out->ends = out->after.n > out->n;
    if (reads(g, &out->after, &out->before)) return false;
    return !out->ends || (tree_read(&out->end, g, &out->after, 0) && tree_is_end(&out->end));
}
