/* ir_lab.c - see ir_lab.h. */
#include "ir_lab.h"

#include <stdlib.h>

static void *lab_resize(void *user, void *memory, size_t old_size, size_t new_size) {
    lab *l = user;
    (void)old_size;
    if (!new_size) return free(memory), NULL;
    if (l->left == 0) return NULL;
    if (l->left > 0) l->left--;
    return realloc(memory, new_size);
}

void lab_open(lab *l, long left) {
    *l = (lab){.left = left};
    base_heap_init(&l->heap, &(beryl_allocator){lab_resize, l});
    base_arena_init(&l->arena, &l->heap);
}

void lab_close(test *t, lab *l) {
    base_arena_fini(&l->arena);
    CHECK_INT(t, l->heap.bytes, 0);
}
