/* random.h - random numbers in kernels: Threefry-2x32-20 (Salmon et al. 2011), as base_threefry,
 * and what is made of its words. For tile/ alone. */
#ifndef TILE_RANDOM_H
#define TILE_RANDOM_H

#include "tile/kernel.h"

/* out: both words of counters under keys, U32 of one width. */
void tile_threefry(ir_builder *b, ir_id key0, ir_id key1, ir_id counter0, ir_id counter1,
                   ir_id out[2]);
/* A number as OP_RANDOM's attributes say, of keys and indices of one width. */
ir_id tile_random(ir_builder *b, const graph_attrs *attr, ir_id key0, ir_id key1, ir_id index);

#endif
