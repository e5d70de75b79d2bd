/* adapter_fuzz.c - adapters of any form: two bytes say how long the text of adapter_config.json is
 * (0: there is none), then that text, then the file. What is taken has values everywhere that its
 * shapes promise. */
#include "format/lora.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

/* The last element of a half, [n_expert, rank, n] by its strides. */
static void touch(const format_lora_half *h, uint32_t n_expert, uint32_t rank, uint32_t n) {
    const uint64_t at =
        (n_expert - 1) * h->stride[0] + (rank - 1) * h->stride[1] + (n - 1) * h->stride[2];
    if (!isfinite(format_lora_value(h, at))) abort();
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size) {
    if (size < 2) return 0;
    size_t n = (size_t)data[0] | (size_t)data[1] << 8;
    if (n > size - 2) n = size - 2;
    base_heap heap;
    format_lora lora;
    beryl_error error = {0};
    base_heap_init(&heap, NULL);
    char *file = malloc(size - 2 - n ? size - 2 - n : 1); /* what is read beyond it is found */
    if (!file) return 0;
    memcpy(file, data + 2 + n, size - 2 - n);
    if (!format_lora_read(&heap, file, size - 2 - n, n ? (const char *)data + 2 : NULL, n, &lora,
                          &error)) {
        for (size_t i = 0; i < lora.n_part; i++) {
            const format_lora_part *p = &lora.parts[i];
            touch(&p->a, p->n_expert, p->rank, p->in);
            touch(&p->b, p->n_expert, p->rank, p->out);
        }
        format_lora_fini(&lora);
    } else if (!error.message[0]) {
        abort();
    }
    free(file);
    if (heap.bytes) abort();
    return 0;
}
