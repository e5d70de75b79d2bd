/* lower_ir_grouped.h - pairs of a vector and an expert in the order of their experts, made on the device: so that a product takes
 * an expert's rows for all its vectors at once. */
#ifndef GRAPH_LOWER_IR_GROUPED_H
#define GRAPH_LOWER_IR_GROUPED_H

#include "graph/lower_ir.h"

typedef struct lower_ir_grouped {
    const graph_tensor *ids;     /* [n, n_used] */
    graph_value ids_value;
    uint32_t n_expert, n_used;
    uint32_t share;              /* pairs that meet one vector: pair p has vector p / share */
    lower_count n;               /* pairs; pair p is ids[p / n_used, p % n_used] */
    uint32_t bound;              /* n is at most this */
} lower_ir_grouped;

/* False: too few pairs, or ids with gaps between them. */
bool lower_ir_grouped_of(const lowering *l, const graph_node *node, lower_ir_grouped *g);
/* How many pairs an expert may be expected to have, at the bound. */
uint32_t lower_ir_grouped_each(const lower_ir_grouped *g);
/* The step that leaves the list in scratch memory of the node. Ids that name no expert count as 0. */
beryl_status lower_ir_group_pairs(lowering *l, const graph_node *node, const lower_ir_grouped *g, beryl_error *error);

/* The list in a kernel: of each expert where its pairs begin and how many there are, then the pairs. */
ir_memory lower_ir_grouped_list(lower_ir *k, const lower_ir_grouped *g);
void lower_ir_grouped_range(lower_ir *k, ir_memory list, ir_id expert, ir_id *first, ir_id *n);
/* Pair `i` of those that begin at `first`. */
ir_id lower_ir_grouped_pair(lower_ir *k, const lower_ir_grouped *g, ir_memory list, ir_id first, ir_id i);

#endif
