/* region.c - see region.h. */
#include "graph/region.h"

#include <assert.h>

graph_region graph_region_of(const graph *g, const graph_node *joined) {
    graph_region r = {.n = 0};
    for (; r.n < joined->attr.fused.count && r.n < GRAPH_REGION_NODES; r.n++)
        r.node[r.n] = &g->inner.data[joined->attr.fused.first + r.n];
    for (; r.n_out < joined->n_out; r.n_out++) r.out[r.n_out] = joined->out[r.n_out];
    return r;
}

static bool makes(const graph *g, const graph_node *node, graph_value v) {
    for (uint32_t o = 0; v && o < node->n_out; o++)
        if (node->out[o] == v || node->out[o] == graph_base_of(g, v)) return true;
    return false;
}

graph_region graph_region_before(const graph *g, const graph_region *r, graph_value v) {
    bool in[GRAPH_REGION_NODES];
    graph_region part = {.n = 0};
    for (uint32_t i = r->n; i-- > 0;) { /* those who need it come after it */
        in[i] = makes(g, r->node[i], v);
        for (uint32_t later = i + 1; later < r->n; later++)
            for (uint32_t k = 0; in[later] && k < r->node[later]->n_in; k++)
                in[i] |= makes(g, r->node[i], r->node[later]->in[k]);
    }
    for (uint32_t i = 0; i < r->n; i++) {
        if (!in[i]) continue;
        part.node[part.n++] = r->node[i];
        for (uint32_t o = 0; o < r->n_out; o++)
            if (makes(g, r->node[i], r->out[o])) part.out[part.n_out++] = r->out[o];
    }
    return part;
}

graph_region graph_region_without(const graph_region *r, const graph_region *part) {
    graph_region rest = {.n = 0};
    for (uint32_t i = 0; i < r->n; i++) {
        bool among = false;
        for (uint32_t k = 0; k < part->n; k++) among |= part->node[k] == r->node[i];
        if (!among) rest.node[rest.n++] = r->node[i];
    }
    for (uint32_t o = 0; o < r->n_out; o++) {
        bool among = false;
        for (uint32_t k = 0; k < part->n_out; k++) among |= part->out[k] == r->out[o];
        if (!among) rest.out[rest.n_out++] = r->out[o];
    }
    return rest;
}

graph_region graph_region_with(const graph_region *r, graph_value v) {
    graph_region more = *r;
    for (uint32_t o = 0; o < r->n_out; o++)
        if (r->out[o] == v) return more;
    assert(more.n_out < GRAPH_OUT_MAX); /* products after it have results of their own */
    more.out[more.n_out++] = v;
    return more;
}
