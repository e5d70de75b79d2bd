/* pack.h - how a tensor's rows lie on a device: the file's bits, split into planes of wide, aligned
 * elements so that neighbouring lanes load neighbouring words. The readers
 * (tile/block.c) are the other half of this contract. Packing is exact and reversible
 * (but for a byte of NVFP4 that means 0 as 0 does); the size is that of the file plus padding to 16
 * bytes a plane.
 *
 *   type            planes (each [row, ...] over all rows of the shard, 16-byte aligned)
 *   F32 F16 BF16    values
 *   Q8_0            quants i8[k] | d f16[k / 32]
 *   Q4_0 Q5_0 ...   see pack.c, beside the code
 */
#ifndef GRAPH_PACK_H
#define GRAPH_PACK_H

#include "base/types.h"

enum { PACK_PLANE_MAX = BASE_FIELD_MAX }; /* a table takes one too */

typedef struct graph_pack_layout {
    uint32_t n_plane;
    /* bytes of one row in each plane; rows lie back to back, no padding between */
    uint32_t row_bytes[PACK_PLANE_MAX];
    /* bytes from the tensor's (shard's) start, multiple of 16 */
    uint64_t offset[PACK_PLANE_MAX];
    uint64_t bytes; /* of the whole, multiple of 16 */
    /* 0: none; else the last plane is base_type_table's, of no bytes a row */
    uint32_t table_bytes;
} graph_pack_layout;

/* Rows of k elements. false: the type is not packed here or k does not fit its block (and the
 * planes' 4-byte units). */
bool graph_pack_layout_of(base_type type, uint64_t n_row, uint64_t k, graph_pack_layout *out);
/* Packs n_row rows as the file has them into plane `plane`: n_row * row_bytes[plane] bytes at
 * `to`. */
void graph_pack_rows(base_type type, uint64_t k, uint64_t n_row, const void *from, uint32_t plane,
                     void *to);
/* The way back, for tests: planes are given as pointers to the first of n_row rows. */
void graph_unpack_rows(base_type type, uint64_t k, uint64_t n_row, const void *const *planes,
                       void *to);

#endif
