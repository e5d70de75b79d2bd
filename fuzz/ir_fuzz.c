/* ir_fuzz.c - the kernel IR's text, its passes and its generators.
 *
 * Text that is a kernel prints to text that is the same kernel, and runs (a few workgroups,
 * small buffers, a bounded number of steps) to an end or to a refusal that names its
 * instruction. Passes in an order and under a schedule that the text's hash draws give a kernel
 * that the verifier takes, and, where nothing in it is promised or scheduled, one that computes
 * the same bits. Every generator writes either of the two or refuses it. */
#include "../tests/ir_draw.h"
#include "codegen/codegen.h"

#include <stdlib.h>
#include <string.h>

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

enum { HEAP_MAX = 64 << 20, BUFFER_BYTES = 256, STEPS_MAX = 20000 };

typedef uint64_t buffers_of_a_run[IR_BUFFER_MAX][BUFFER_BYTES / 8];

/* A kernel may ask for more memory than a fuzzer has. */
static void *small_resize(void *user, void *memory, size_t old_size, size_t new_size) {
    size_t *used = user;
    if (new_size > old_size && new_size - old_size > HEAP_MAX - *used) return NULL;
    *used += new_size - old_size; /* wraps when it shrinks, and so does the sum */
    if (!new_size) return free(memory), NULL;
    return realloc(memory, new_size);
}

static beryl_status run(base_heap *heap, const ir_kernel *k, uint64_t limit,
                        buffers_of_a_run buffers) {
    beryl_error error = {0};
    ir_run r = {.params = {3, 1, 2}, .groups = {2, 1, 2}, .limit = limit};
    memset(buffers, 1, sizeof(buffers_of_a_run));
    for (uint32_t n = 0; n < k->n_buffer; n++) {
        r.buffers[n].data = buffers[n];
        r.buffers[n].size = BUFFER_BYTES;
    }
    beryl_status status = ir_interpret(heap, k, &r, &error);
    if (status == BERYL_BAD_INPUT && (error.at >= k->n_code || !error.message[0])) abort();
    if (status && status != BERYL_BAD_INPUT && status != BERYL_UNSUPPORTED &&
        status != BERYL_NO_MEMORY)
        abort();
    return status;
}

static void generate(base_arena *arena, const ir_kernel *k) {
    for (int language = DEVICE_WGSL; language <= DEVICE_C; language++) {
        device_program_desc desc = {0};
        beryl_error error = {0};
        beryl_status status =
            codegen_make(arena, k, (device_language)language, NULL, &desc, &error);
        if (status && status != BERYL_UNSUPPORTED && status != BERYL_NO_MEMORY) abort();
        if (status == BERYL_UNSUPPORTED && !error.message[0]) abort();
    }
}

/* A mark promises what the text need not keep. */
static bool has_marks(const ir_kernel *k) {
    for (uint32_t i = 0; i < k->n_code; i++)
        if (k->code[i].op == IR_LOOP && ir_mark_of(&k->code[i]).kind != IR_SERIAL) return true;
    return false;
}

static void pass(base_heap *heap, base_arena *arena, const ir_kernel *k, uint64_t draws) {
    const bool scheduled = ir_draw(&draws, 2);
    ir_schedule schedule = ir_draw_schedule(&draws);
    if (!scheduled) schedule = (ir_schedule){.vector = schedule.vector};
    ir_pass order[IR_DRAW_PASSES];
    const size_t n = ir_draw_order(&draws, order);
    const ir_kernel *out;
    beryl_error error = {0};
    buffers_of_a_run before, after;
    const beryl_status status = ir_passes_run(arena, k, &schedule, order, n, true, &out, &error);
    if (status && status != BERYL_NO_MEMORY) abort();
    if (status) return;
    generate(arena, out);
    if (scheduled || has_marks(k) || run(heap, k, STEPS_MAX, before)) return;
    /* no limit: it ends where the other does */
    const beryl_status again = run(heap, out, 0, after);
    if (again != BERYL_NO_MEMORY && (again || memcmp(before, after, sizeof before))) abort();
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size) {
    size_t used = 0;
    base_heap heap;
    base_arena arena;
    base_text text, again;
    beryl_error error = {0};
    const ir_kernel *k, *back;
    buffers_of_a_run buffers;
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
        run(&heap, back, STEPS_MAX, buffers);
        generate(&arena, back);
        pass(&heap, &arena, back, base_hash(data, size, 0) | 1);
    }
    base_text_fini(&text);
    base_text_fini(&again);
    base_arena_fini(&arena);
    if (heap.bytes) abort();
    return 0;
}
