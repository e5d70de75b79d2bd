/* index.h - what operations by index share (tile/index.c, scatter.c). */
#ifndef TILE_INDEX_H
#define TILE_INDEX_H

#include "tile/kernel.h"

/* Names of a dispatch's sizes that a run gives, by axis. */
extern const char *const tile_sizes_of_run[GRAPH_RANK_MAX];

/* An index as a place below `size`; *inside: it is one. */
ir_id tile_index_at(ir_builder *b, ir_memory ids, ir_id at, ir_id size, ir_id *inside);
/* A dispatch that copies the node's first input to its first output. */
beryl_status tile_copy_input(lowering *l, const graph_node *node, const char *name);

#endif
