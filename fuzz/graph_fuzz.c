/* graph_fuzz.c - graphs as text: what is read prints to text that is the same graph. */
#include "graph/text.h"

#include <stdlib.h>
#include <string.h>

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

static beryl_status read_and_print(const char *text, size_t size, base_heap *heap, base_text *out) {
    graph_store store;
    uint64_t file_bytes;
    beryl_error error = {0};
    store_init(&store, heap, NULL, NULL, 0, NULL);
    graph *g = graph_open(heap);
    if (!g) abort();
    beryl_status status = graph_text_parse(text, size, g, &store, &file_bytes, &error);
    if (status == BERYL_OK && graph_text_print(g, &store, out, &error) != BERYL_OK) abort();
    if (status != BERYL_OK && (status != BERYL_BAD_INPUT || !error.message[0] || error.at > size))
        abort();
    graph_close(g);
    store_fini(&store);
    return status;
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size) {
    base_heap heap;
    base_text text, again;
    base_heap_init(&heap, NULL);
    base_text_init(&text, &heap);
    base_text_init(&again, &heap);
    if (read_and_print((const char *)data, size, &heap, &text) == BERYL_OK) {
        if (read_and_print(text.data ? text.data : "", text.size, &heap, &again) != BERYL_OK)
            abort();
        if (text.size != again.size || (text.size && memcmp(text.data, again.data, text.size) != 0))
            abort();
    }
    base_text_fini(&text);
    base_text_fini(&again);
    if (heap.bytes) abort();
    return 0;
}
