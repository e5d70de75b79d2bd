/* lower_ir_rows.h - trees with what is asked of whole rows: norms and softmax anywhere in them, the largest at their end. */
#ifndef GRAPH_LOWER_IR_ROWS_H
#define GRAPH_LOWER_IR_ROWS_H

#include "graph/lower_ir_tree.h"

/* `t` has stats or a choice. `node` is what the plan has: an operation, or a joined one. */
beryl_status lower_ir_tree_rows(lowering *l, const graph_node *node, const tree *t, const char *name, beryl_error *error);
/* Can rows of the tree be done with no work done twice? Pure. */
bool lower_ir_tree_rows_fit(const device_caps *caps, const tree *t);

#endif
