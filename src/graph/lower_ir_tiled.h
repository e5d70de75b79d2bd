/* lower_ir_tiled.h - products of a weight with many vectors, or of experts with theirs: a plain kernel with marks, and a
 * schedule that tiles it. */
#ifndef GRAPH_LOWER_IR_TILED_H
#define GRAPH_LOWER_IR_TILED_H

#include "graph/lower_ir_grouped.h"
#include "graph/lower_ir_tree.h"

typedef struct lower_ir_tiled_product {
    graph_value x, weight, out;
    const tree *end;         /* what becomes of the result; NULL: it is stored */
    bool stored;             /* the weight is a shard of a stored tensor; else dense in other memory */
    uint32_t shard, first;   /* first: row of the shard */
    uint32_t to, m, k;       /* rows [to, to + m) of the result */
    lower_count n;           /* vectors */
    uint32_t bound;          /* n is at most this */
    uint32_t x_stride, x_offset;
    const lower_ir_grouped *by; /* m rows an expert, of all shards: shard, first and to are 0. NULL: one matrix for all vectors */
} lower_ir_tiled_product;

/* Are `n` vectors of k elements enough for tiles on this device? */
bool lower_ir_tiled_wants(const lowering *l, uint32_t n, uint32_t k);
/* The vectors may get a dispatch before, and the weight's pieces. by: its list is there. */
beryl_status lower_ir_tiled(lowering *l, const graph_node *node, const lower_ir_tiled_product *p, beryl_error *error);

#endif
