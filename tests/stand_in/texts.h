/* texts.h - between the stand-in's compiler and its driver. */
#ifndef TESTS_STAND_IN_TEXTS_H
#define TESTS_STAND_IN_TEXTS_H

#include <stddef.h>
#include <stdint.h>

/* The shared object inside a compiled image; NULL: it is none. */
const void *stand_in_image(const void *image, size_t *size);

#endif
