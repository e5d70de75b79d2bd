/* tree_inner.h - reductions inside a tree: stats whose numbers pointwise operations of the region
 * go on with, one for each row or broadcast along it. For tile/tree.c. */
#ifndef TILE_TREE_INNER_H
#define TILE_TREE_INNER_H

#include "tile/tree.h"

/* Are there any? Sets t->has_inner and the value whose shape the tree has. */
void tree_inner_find(tree *t, const graph_region *r);
/* The cast of the reduction's F32 to halves that is the region's one result, or NULL. */
const graph_node *tree_ending(const graph *g, const graph_region *r, const graph_node *reduction);
/* t->axes are known: do rows lie along the last axes, and is each node in the tree's shape or a
 * number for each row? */
bool tree_inner_fits(const tree *t, const graph_region *r);
/* Has it a number for each row? */
bool tree_inner_is_number(const tree *t, const graph_tensor *x);
/* The reduction of value x. */
uint8_t tree_inner_read(tree *t, const graph_node *node, uint8_t x);

#endif
