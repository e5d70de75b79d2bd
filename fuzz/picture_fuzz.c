/* picture_fuzz.c - files of pictures of every format that is built in. */
#include "media/file.h"

#include <stdlib.h>

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size) {
    base_heap heap;
    beryl_error error = {0};
    media_picture p;
    base_heap_init(&heap, NULL);
    const beryl_status status = media_picture_read(&heap, data, size, &p, &error);
    if (status == BERYL_OK ? !p.rgb || !p.width || !p.height : p.rgb || !error.message[0]) abort();
    media_picture_fini(&heap, &p);
    if (heap.bytes) abort();
    return 0;
}
