/* matvec_inside.h - what the choice of a product's form and its body share. For
 * tile/matvec.c and tile/matvec_choose.c alone. */
#ifndef TILE_MATVEC_INSIDE_H
#define TILE_MATVEC_INSIDE_H

#include "tile/matvec.h"

enum {
    MATVEC_DEPTH_MAX = 8,
    MATVEC_EACH_MAX = 16 /* fours of a vector that a lane makes */
};

static inline uint32_t matvec_over(uint32_t n, uint32_t by) {
    return (n + by - 1) / by;
}

uint32_t matvec_chunk(base_type type);     /* elements that a lane takes at once */
uint32_t matvec_raw_words(base_type type); /* of a chunk; 0: of types that are not packed */
/* Where the parts of a vector of k elements lie in workgroup memory, in 16 bytes. */
void matvec_layout(matvec_x x, uint32_t k, uint32_t *unit, uint32_t *half, uint32_t *second,
                   uint32_t *vector);
/* Tables that weights of these types are looked up in. */
uint32_t matvec_tables(const base_type *types, uint32_t n, tile_pairs pairs[TILE_TABLES_MAX]);

#endif
