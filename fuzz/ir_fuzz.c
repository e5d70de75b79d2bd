/* ir_fuzz.c - the kernel IR's text.
 *
 * Text that is a kernel prints to text that is the same kernel, and runs (a few workgroups, small
 * buffers, a bounded number of steps) to an end or to a refusal that names its instruction. */
#include "ir/ir.h"

#include <stdlib.h>
#include <string.h>

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

enum { HEAP_MAX = 64 << 20, BUFFER_BYTES = 256 };

/* A kernel may ask for more memory than a fuzzer has. */
static void *small_resize(void *user, void *memory, size_t old_size, size_t new_size) {
    size_t *used = user;
    if (new_size > old_size && new_size - old_size > HEAP_MAX - *used) return NULL;
    *used += new_size - old_size; /* wraps when it shrinks, and so does the sum */
    if (!new_size) return free(memory), NULL;
    return realloc(memory, new_size);
}

static void run(base_heap *heap, const ir_kernel *k) {
    uint64_t buffers[IR_BUFFER_MAX][BUFFER_BYTES / 8];
    beryl_error error = {0};
    ir_run r = {.params = {3, 1, 2}, .groups = {2, 1, 2}, .limit = 20000};
    memset(buffers, 1, sizeof buffers);
    for (uint32_t n = 0; n < k->n_buffer; n++) {
        r.buffers[n].data = buffers[n];
        r.buffers[n].size = BUFFER_BYTES;
    }
    beryl_status status = ir_interpret(heap, k, &r, &error);
    if (status == BERYL_BAD_INPUT && (error.at >= k->n_code || !error.message[0])) abort();
    if (status && status != BERYL_BAD_INPUT && status != BERYL_UNSUPPORTED &&
        status != BERYL_NO_MEMORY)
        abort();
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size) {
    size_t used = 0;
    base_heap heap;
    base_arena arena;
    base_text text, again;
    beryl_error error = {0};
    const ir_kernel *k, *back;
    base_heap_init(&heap, &(beryl_allocator){small_resize, &used});
    base_arena_init(&arena, &heap);
    base_text_init(&text, &heap);
    base_text_init(&again, &heap);
    beryl_status status = ir_parse(&arena, (const char *)data, size, &k, &error);
    if (status && (k || error.at > size || !error.message[0])) abort();
    if (!status) {
        ir_print(&text, k);
        if (text.failed || ir_parse(&arena, text.data, text.size, &back, &error)) abort();
        ir_print(&again, back);
        if (again.failed || again.size != text.size || memcmp(again.data, text.data, text.size))
            abort();
        run(&heap, back);
    }
    base_text_fini(&text);
    base_text_fini(&again);
    base_arena_fini(&arena);
    if (heap.bytes) abort();
    return 0;
}
