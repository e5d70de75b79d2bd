/* media_files.h - pictures and clips of tests/data, as libpng and a head of 44 bytes have them. */
#ifndef TESTS_MEDIA_FILES_H
#define TESTS_MEDIA_FILES_H

#include "test.h"

/* [height, width, 3]; NULL: failed. Freed by the caller. */
uint8_t *media_picture(test *t, const char *file, uint32_t *width, uint32_t *height);
/* [n] in -1 .. 1, of 16 bits and one channel; NULL: failed. Freed by the caller. */
float *media_clip(test *t, const char *file, uint32_t *n);

#endif
