/* rows.h - trees with what is asked of whole rows: norms and softmax anywhere in them,
 * the largest at their end. */
#ifndef TILE_ROWS_H
#define TILE_ROWS_H

#include "tile/tree.h"

/* `t` has stats or a choice. `node` is what the plan has: an operation, or a joined one. */
beryl_status tile_tree_rows(lowering *l, const tree *t, const char *name);
/* Can rows of the tree be done with no work done twice? Pure. */
bool tile_tree_rows_fit(const device_caps *caps, const tree *t);

#endif
