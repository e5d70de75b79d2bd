/* tree_low.h - a product of low rank as a value of a tree: of each column of its rows, the sum of
 * as many products as the matrix has columns (TREE_LOW). For tile/tree.c. */
#ifndef TILE_TREE_LOW_H
#define TILE_TREE_LOW_H

#include "tile/tree.h"

/* The linear as a value; the tree is unfit where it has another one, or the matrix is no stored
 * one of numbers with a multiple of 16 columns, TREE_LOW_MAX at most. */
uint8_t tree_low_read(tree *t, const graph_node *node);
/* A lane's own columns. */
ir_id tree_low_value(tree_walk *c, const tree_spot *s, const tree_value *v);

#endif
