/* picture_none.c - a program without a library for pictures. */
#include "picture.h"

#include "base/error.h"

beryl_status picture_read(base_heap *heap, const void *data, size_t size, picture *out,
                          beryl_error *error) {
    (void)heap, (void)data, (void)size;
    *out = (picture){0};
    return base_fail(error, BERYL_UNSUPPORTED,
                     "pictures: this program was built without libpng (Debian: libpng-dev)");
}

void picture_free(base_heap *heap, picture *p) {
    (void)heap, (void)p;
}
