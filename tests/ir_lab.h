/* ir_lab.h - what tests of the kernel IR work in: a heap whose allocations may be made to fail,
 * an arena, numbers. */
#ifndef TESTS_IR_LAB_H
#define TESTS_IR_LAB_H

#include "test.h"

#include "base/memory.h"

typedef struct lab {
    base_heap heap;
    base_arena arena;
    beryl_error error;
    uint64_t seed;
    long left; /* allocations that still succeed; < 0: all */
} lab;

void lab_open(lab *l, long left);
void lab_close(test *t, lab *l); /* also checks that all memory came back */

#endif
