/* blocks.h - weights of every type: random bits whose scales are such that products stay of a
 * size. */
#ifndef TESTS_BLOCKS_H
#define TESTS_BLOCKS_H

#include "base/types.h"

uint32_t blocks_next(uint32_t *state); /* 24 bits */
float blocks_unit(uint32_t *state);    /* -1 to 1 */
/* bytes: whole blocks. */
void blocks_fill(base_type type, uint64_t bytes, unsigned char *to, uint32_t seed);
/* The same, scales times `by`. */
void blocks_fill_by(base_type type, uint64_t bytes, unsigned char *to, uint32_t seed, float by);

#endif
