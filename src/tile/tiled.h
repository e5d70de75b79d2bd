/* tiled.h - products of a weight with many vectors, or of experts with theirs: a plain
 * kernel with marks, and a schedule that tiles it. */
#ifndef TILE_TILED_H
#define TILE_TILED_H

#include "tile/grouped.h"
#include "tile/tree.h"

typedef struct tile_tiled_product {
    graph_value x, weight, out;
    /* not 0: row r of weight x has so many more terms, the elements of row r of low_w times those
     * of low, as far as tile_tiled_adds says. [1]: of `other`, whose low is in the same memory */
    graph_value low[2], low_w[2];
    graph_value other; /* not 0: out = gelu(weight x) * (other x), both whole and in one binding */
    bool rounded;      /* the node's scratch has the vectors as the product wants them */
    const tree *end;   /* what becomes of the result; NULL: it is stored */
    /* the weight is a shard of a stored tensor; else dense in other memory */
    bool stored;
    uint32_t shard, first; /* first: row of the shard */
    uint32_t to, m, k;     /* rows [to, to + m) of the result */
    lower_count n;         /* vectors */
    uint32_t bound;        /* n is at most this */
    uint32_t x_stride, x_offset;
    /* m rows an expert, of all shards: shard, first and to are 0. NULL: one matrix for all
     * vectors */
    const tile_grouped *by;
} tile_tiled_product;

/* Of an expert's rows those that the shard has: where they begin in it, how many there are; what
 * lies before them is added to `column`. */
ir_id tile_tiled_expert_rows(tile_kernel *k, const tile_tiled_product *p, ir_id expert, ir_id *rows,
                             ir_id *column);
/* Are `n` vectors of k elements enough for tiles on this device? */
bool tile_tiled_wants(const lowering *l, uint32_t n, uint32_t k);
/* Does this product, an OP_LINEAR, round its vectors to halves, and take them as halves too? */
bool tile_takes_halves(const graph *g, const graph_store *store, const lower_settings *settings,
                       const graph_node *linear);
/* Does this product of four inputs add the second, of low rank, to the first? */
bool tile_tiled_adds(const lowering *l, const graph_node *linear);
/* Would matrix units wait for the tree at the end of the product, which makes n sums? */
bool tile_tiled_waits(const lowering *l, const tree *t, uint64_t n);
/* The vectors may get a dispatch before, and the weight's pieces. by: its list is there. */
beryl_status tile_tiled(lowering *l, const tile_tiled_product *p);

#endif
