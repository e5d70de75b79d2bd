/* grouped.h - pairs of a vector and an expert in the order of their experts, made on
 * the device: so that a product takes an expert's rows for all its vectors at once. */
#ifndef TILE_GROUPED_H
#define TILE_GROUPED_H

#include "tile/kernel.h"

typedef struct tile_grouped {
    const graph_tensor *ids; /* [n, n_used] */
    graph_value ids_value;
    uint32_t n_expert, n_used;
    uint32_t share; /* pairs that meet one vector: pair p has vector p / share */
    lower_count n;  /* pairs; pair p is ids[p / n_used, p % n_used] */
    uint32_t bound; /* n is at most this */
} tile_grouped;

/* False: too few pairs, or ids with gaps between them. */
bool tile_grouped_of(const lowering *l, const graph_node *node, tile_grouped *g);
/* How many pairs an expert may be expected to have, at the bound. */
uint32_t tile_grouped_each(const tile_grouped *g);
/* The step that leaves the list in scratch memory of the node. Ids that name no expert count as
 * 0. */
beryl_status tile_group_pairs(lowering *l, const tile_grouped *g);

/* The list in a kernel: of each expert where its pairs begin and how many there are, then the
 * pairs. */
ir_memory tile_grouped_list(tile_kernel *k, const tile_grouped *g);
void tile_grouped_range(ir_builder *b, ir_memory list, ir_id expert, ir_id *first, ir_id *n);
/* Pair `i` of those that begin at `first`. */
ir_id tile_grouped_pair(ir_builder *b, const tile_grouped *g, ir_memory list, ir_id first, ir_id i);

#endif
