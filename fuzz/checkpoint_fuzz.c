/* checkpoint_fuzz.c - checkpoints of a training with two matrices' worth of tensors. What is taken
 * has numbers everywhere that its shapes promise, and a progress that can be. */
#include "train/checkpoint.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size) {
    base_heap heap;
    base_arena arena;
    beryl_error error = {0};
    base_heap_init(&heap, NULL);
    base_arena_init(&arena, &heap);
    format_safetensor tensors[2] = {
        {.name = BASE_VIEW("a.value"), .type = TYPE_F32, .n_dim = 2, .dim = {2, 3}},
        {.name = BASE_VIEW("a.mean"), .type = TYPE_F32, .n_dim = 2, .dim = {3, 2}}};
    train_checkpoint c = {.path = "f", .steps = 9, .n_setting = 1, .n = 2, .tensors = tensors};
    c.settings[0][0] = BASE_VIEW("rank");
    c.settings[0][1] = BASE_VIEW("4");
    char *file = malloc(size ? size : 1); /* what is read beyond it is found */
    if (!file) return 0;
    if (size) memcpy(file, data, size);
    if (!train_checkpoint_read(&arena, file, size, &c, &error)) {
        const train_progress *p = &c.progress;
        if (p->step > c.steps || p->valid_step > c.steps || p->best_step > c.steps) abort();
        for (int i = 0; i < 2; i++) {
            float values[6];
            if (tensors[i].size != sizeof values) abort();
            memcpy(values, tensors[i].data, sizeof values);
            for (int k = 0; k < 6; k++)
                if (!isfinite(values[k])) abort();
        }
    } else if (!error.message[0]) {
        abort();
    }
    free(file);
    base_arena_fini(&arena);
    if (heap.bytes) abort();
    return 0;
}
