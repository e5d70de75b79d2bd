/* picture.h - files of pictures as pixels. The one of picture_*.c that is built decodes them. */
#ifndef CLI_PICTURE_H
#define CLI_PICTURE_H

#include "base/memory.h"

enum { PICTURE_PIXELS_MAX = 100000000 };

typedef struct picture {
    uint8_t *rgb; /* [height, width, 3], over white where it lets something through */
    uint32_t width, height;
} picture;

/* BAD_FILE, UNSUPPORTED with what it is instead, BAD_INPUT: more than PICTURE_PIXELS_MAX, told
 * before memory is taken. */
beryl_status picture_read(base_heap *heap, const void *data, size_t size, picture *out,
                          beryl_error *error);
void picture_free(base_heap *heap, picture *p);

#endif
