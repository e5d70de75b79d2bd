/* region.h - what runs as one dispatch, or a fixed few: ordinary operations in their order, and
 * which of their values are stored. */
#ifndef GRAPH_REGION_H
#define GRAPH_REGION_H

#include "graph/graph.h"

enum { GRAPH_REGION_NODES = 64 };

typedef struct graph_region {
    const graph_node *node[GRAPH_REGION_NODES]; /* [n], borrowed */
    graph_value out[GRAPH_OUT_MAX];             /* [n_out] */
    uint32_t n, n_out;
} graph_region;

/* Of a joined node. */
graph_region graph_region_of(const graph *g, const graph_node *joined);
/* The part of it that v is made from, with the results that this part makes. Empty: v comes from
 * elsewhere. */
graph_region graph_region_before(const graph *g, const graph_region *r, graph_value v);
/* The region without a part of it, and without that part's results. */
graph_region graph_region_without(const graph_region *r, const graph_region *part);
/* The same region, which stores v too. */
graph_region graph_region_with(const graph_region *r, graph_value v);

#endif
