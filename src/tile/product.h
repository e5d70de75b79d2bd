/* product.h - products with a tree of pointwise operations at their end. */
#ifndef TILE_PRODUCT_H
#define TILE_PRODUCT_H

#include "tile/tree.h"

/* `node`: what the plan has; the product is the tree's. */
beryl_status tile_product(lowering *l, const graph_node *node, const tree *t, beryl_error *error);
/* Is there a kernel of the product that takes the tree, and is that not slower than two? Pure. */
bool tile_product_fits(const graph *g, const graph_store *store, const tree *t);

#endif
