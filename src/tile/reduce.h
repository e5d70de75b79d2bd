/* reduce.h - sums, products, largest and smallest over axes, of trees. */
#ifndef TILE_REDUCE_H
#define TILE_REDUCE_H

#include "tile/tree.h"

/* `t` ends in a reduction. `node` is what the plan has: an operation, or a joined one. */
beryl_status tile_tree_reduce(lowering *l, const tree *t, const char *name);

#endif
