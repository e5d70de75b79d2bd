/* resize.h - pictures at another size: what a model's soft tokens are made of. */
#ifndef MEDIA_RESIZE_H
#define MEDIA_RESIZE_H

#include "base/memory.h"

/* rgb [height, width, 3] as [to_height, to_width, 3]: cubic convolution (a = -1/2), whose kernel is
 * as wide as a result's pixel where the picture becomes smaller; across first, rounded to 8 bits
 * between. Weights are fixed-point numbers of 22 bits, as in Pillow, whose results these are. No
 * size is 0. NO_MEMORY. */
beryl_status media_resize(base_heap *heap, const uint8_t *rgb, uint32_t width, uint32_t height,
                          uint8_t *out, uint32_t to_width, uint32_t to_height);

/* The size that a picture takes in a model: sides are multiples of `unit`, as large as `budget`
 * units allow, in the picture's proportions as far as whole units go. */
void media_fit(uint32_t width, uint32_t height, uint32_t unit, uint32_t budget, uint32_t *to_width,
               uint32_t *to_height);

#endif
