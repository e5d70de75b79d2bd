/* quantise.h - numbers to blocks: round to nearest, the same bits on every machine. For F32, F16,
 * BF16, Q8_0, Q4_0, Q4_1, Q5_0, Q5_1, Q4_K, Q5_K and Q6_K. */
#ifndef BASE_QUANTISE_H
#define BASE_QUANTISE_H

#include "base/types.h"

bool base_can_quantise(base_type type);
/* n numbers (a multiple of the block), finite and at most 65504 in size; of a type that can be. */
void base_quantise(base_type type, const float *x, void *blocks, size_t n);

#endif
