/* onnx_fuzz.c - ONNX files of any form, read and built into a graph. What is taken compiles, has an
 * output's shape, and what is refused says why; nothing is kept. */
#include "beryl_onnx.h"

#include <stdlib.h>
#include <string.h>

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

static void *resize(void *user, void *memory, size_t old_size, size_t new_size) {
    long long *held = user;
    *held += (long long)new_size - (long long)old_size;
    if (new_size) return realloc(memory, new_size);
    free(memory);
    return NULL;
}

static void describe(void *user, const char *text, size_t size) {
    (void)user;
    if (!size || text[0] != '{') abort();
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size) {
    long long held = 0; /* bytes, by the library */
    const beryl_graph_options options = {
        .size = sizeof options, .device = "reference", .allocator = {resize, &held}};
    beryl_graph *g = NULL;
    beryl_error error = {0};
    beryl_port port;
    char *file = malloc(size ? size : 1); /* what is read beyond it is found */
    if (!file || beryl_graph_open(&options, &g, NULL) != BERYL_OK) abort();
    memcpy(file, data, size);
    beryl_onnx_describe(file, size, describe, NULL, NULL);
    /* extents for what the file leaves open */
    const beryl_onnx_options how = {.size = sizeof how, .extent_bound = 5};
    if (beryl_graph_from_onnx(g, file, size, &how, &error) != BERYL_OK) {
        if (!error.message[0]) abort();
    } else {
        for (size_t i = 0; beryl_graph_port(g, true, i, &port); i++)
            if (!port.name || port.rank > 10) abort();
    }
    beryl_graph_close(g);
    free(file);
    if (held) abort();
    return 0;
}
