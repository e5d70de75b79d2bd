/* bytes.h - the body of products on processors that multiply bytes (caps->dot_words):
 * vectors rounded to 8 bits in blocks of 32, as GPUs have them, against weights unpacked to
 * unsigned bytes.
 *
 * One lane is the workgroup. It rounds its vectors first, into memory of its own, in the order in
 * which 64 bytes of a weight give their elements: so a group has many rows (tile_bytes_groups).
 *
 *     if (tile_bytes_fits(l, types, n_type, k, vectors)) ...
 *     tile_bytes_begin(&y, k, types, n_type, length, rows, vectors);
 *     tile_bytes_fill(&y, x, aligned, x_at);
 *     ... for each tile of rows
 *     tile_bytes_walk(&y, w, row, sums);  // sums[row * vectors + vector] */
#ifndef TILE_BYTES_H
#define TILE_BYTES_H

#include "tile/block.h"

enum { TILE_BYTES_LAYOUTS = 3, TILE_BYTES_ROWS = 2, TILE_BYTES_VECTORS = 8 };

/* How a weight's row is walked: `size` elements at a time, in chunks of 64 bytes of the lowest
 * bits, each `runs` times 64 elements; `subs` scales. */
typedef struct tile_unit {
    const tile_block_form *form;
    uint32_t size, block, group, runs, chunks, sub, subs;
} tile_unit;

typedef struct tile_rounded { /* vectors, as weights of such units want them */
    tile_unit unit;
    ir_memory x;     // u32 [vectors, length / 4]
    ir_memory about; // f32 [vectors, units, 2, subs]: scales; sums of the numbers times those
} tile_rounded;

typedef struct tile_bytes {
    tile_kernel *k;
    uint32_t length, rows, vectors;
    tile_rounded rounded[TILE_BYTES_LAYOUTS];
    uint32_t n_rounded;
    ir_memory sums; // f32 [rows, vectors, 2, 16]: products; what zeros and least values add
} tile_bytes;

bool tile_bytes_fits(const lowering *l, const base_type *types, uint32_t n_type, uint32_t k,
                     uint32_t vectors);
/* Workgroups for `rows` rows of a product. */
uint32_t tile_bytes_groups(const lowering *l, uint32_t rows);
void tile_bytes_begin(tile_bytes *y, tile_kernel *k, const base_type *types, uint32_t n_type,
                      uint32_t length, uint32_t rows, uint32_t vectors);
/* From f32; vector v begins at x_at[v]. */
void tile_bytes_fill(tile_bytes *y, ir_memory x, bool aligned, const ir_id *x_at);
/* w: [rows], all of one type. */
void tile_bytes_walk(tile_bytes *y, const tile_weight *const *w, const ir_id *row, ir_id *sums);

#endif
