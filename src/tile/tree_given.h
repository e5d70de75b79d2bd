/* tree_given.h - products at a tree's start, whose results the kernel gives. For tile/tree.c. */
#ifndef TILE_TREE_GIVEN_H
#define TILE_TREE_GIVEN_H

#include "tile/tree.h"

bool tree_is_product(const graph_node *node);
/* Is v a result of the node, or a view of sums of products? */
bool tree_makes(const graph *g, const graph_node *node, graph_value v);
/* The values of t->product. */
void tree_add_given(tree *t, const graph_region *r);

#endif
