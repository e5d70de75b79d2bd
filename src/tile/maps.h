/* maps.h - values of a tree that come from other places, or are constants where there is none:
 * pad, concat, resize, tril, triu; or that are made of the place: iota, random. For tree.c alone.
 *
 * The one idea: where the axes of a result are those of an input, shifted, the input is a tensor of
 * the result's shape whose offset is moved back. Whether a place is inside it is asked of a
 * tensor without memory, whose stride along an axis is 1 and 0 along all others: where the walk is
 * in it is the index itself. So a walk needs to know nothing of maps, and maps of maps are sums.
 * Where an axis has another size its input is a tensor that does not move along it: from where the
 * walk is in it, what is read lies as far as the index says. */
#ifndef TILE_MAPS_H
#define TILE_MAPS_H

#include "tile/tree.h"

/* The node's value; what it reads of other maps in the region is part of it. Sets t->unfit where it
 * cannot be. */
uint8_t tree_read_map(tree *t, const graph_region *r, const graph_node *node);
/* Where tensor i lies for the walk, from where its memory begins: sizes of the run count. */
ir_id tree_map_offset(tree_walk *c, uint32_t i, ir_id offset);
/* Of a value that is TREE_WITHIN, TREE_KEPT, TREE_RESIZED or TREE_PLACE; that is TREE_RANDOM. */
ir_id tree_map_value(tree_walk *c, tree_spot *s, uint32_t v);
ir_id tree_map_random(tree_walk *c, tree_spot *s, uint32_t v);

/* ---- of tree.c ------------------------------------------------------------------------------- */
uint8_t tree_add_value(tree *t, tree_value v);
uint8_t tree_add_stat(tree *t, tree_stat_kind kind, uint8_t of, float eps);
uint8_t tree_add_tensor(tree *t, graph_value id, graph_tensor seen, uint32_t ahead);
uint8_t tree_value_of(tree *t, graph_value id, uint8_t inside);
/* type: the result's */
uint8_t tree_add_node(tree *t, base_op op, const graph_node *node, ir_type type,
                      const uint8_t in[3]);
/* What is broadcast against tensors of `rank`, as one of them; of channels: [c] as [1, c, 1 ..]. */
graph_tensor tree_with_rank(const graph_tensor *x, uint32_t rank, bool channels);
graph_tensor tree_seen_as(const tree_axes *axes, graph_tensor x, uint32_t rank, bool channels);

#endif
