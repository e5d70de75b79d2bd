/* dots.h - the layout of a product with many vectors for devices with 8-bit dot products
 * and without matrix units: a workgroup's tiles of both factors lie as bytes in workgroup memory.
 * Under `fast` alone, since the vectors are rounded: to int8 in blocks of 32, by a dispatch
 * before the product. */
#ifndef TILE_DOTS_H
#define TILE_DOTS_H

#include "tile/fused.h"
#include "tile/tiled.h"

/* Keys of scratch memory, where rounded vectors lie: two blocks of 32 of all vectors, then the
 * next two; so those of a tile lie side by side. BYTES: [k / 64 up, bound, 64] bytes. SCALES:
 * [k / 64 up, bound, 2, 2] words, of each block its scale (f32) and the sums of its halves (i16,
 * twice). */
enum { TILE_SCRATCH_BYTES = 4, TILE_SCRATCH_SCALES = 5 };

enum { DOTS_ROWS = 64 /* of all weights: fewer are not worth a dispatch before them */ };

/* Is a product of `n` vectors of k elements with many rows of such a weight made so? Pure. */
bool tile_dots_wants(const lowering *l, base_type type, uint32_t n, uint32_t k);
/* How many bytes the scratch memories have. */
uint64_t tile_dots_bytes(uint32_t bound, uint32_t k);
uint64_t tile_dots_scale_bytes(uint32_t bound, uint32_t k);
/* Vectors that are there as f32 (p->x 0: in the node's scratch TILE_SCRATCH_X, dense) are
 * rounded unless p->rounded; then the product. */
beryl_status tile_dots(lowering *l, const tile_tiled_product *p);

/* A region with products of many vectors. Pure. */
bool tile_dots_joined_fits(const graph *g, const graph_store *store, const lower_settings *settings,
                           const graph_region *r);
beryl_status tile_dots_joined(lowering *l, const graph_region *r);

#endif
