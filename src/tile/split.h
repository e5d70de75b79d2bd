/* split.h - long sums of products with few results, in parts.
 *
 * A product with few results has too few tiles to keep a GPU busy, while its sums are long:
 * groups share each sum, and a dispatch after them adds what they have. For tile/ alone. */
#ifndef TILE_SPLIT_H
#define TILE_SPLIT_H

#include "tile/kernel.h"

typedef struct tile_split {
    uint32_t n, each;  /* parts, at most; 1: the sum is whole. Terms of each but the last */
    uint64_t bytes;    /* of what they leave: F32 [n, rows, columns] */
    lower_count terms; /* of the whole sum */
} tile_split;

/* Has the product few rows or columns? */
bool tile_split_is_thin(uint64_t rows, uint64_t columns);
/* bound: of the terms */
tile_split tile_split_of(const lowering *l, uint64_t rows, uint64_t columns, lower_count terms,
                         uint64_t bound);
/* Two parts where tiles of whole sums leave units idle in their last round, and those of halves a
 * sixth of the time less. */
tile_split tile_split_halves(const lowering *l, uint64_t rows, uint64_t columns, uint32_t terms);
/* Of a product with few columns on matrix units. */
tile_split tile_split_units(const lowering *l, uint64_t rows, uint64_t columns, uint32_t terms);
/* The loop over parts, of dimension `dim`, to be opened around all others; a turn has *length of
 * `terms`, from *first on. Gives the part. */
ir_id tile_split_open(ir_builder *b, const tile_split *s, ir_id terms, uint32_t dim, ir_id *first,
                      ir_id *length);
/* The sum of element `at` of all parts, which lie `size` apart. */
ir_id tile_split_sum(ir_builder *b, const tile_split *s, ir_id terms, ir_memory parts, ir_id at,
                     ir_id size);

#endif
