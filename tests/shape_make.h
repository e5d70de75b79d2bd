/* shape_make.h - models of the real shapes without their bytes: a file's head, behind it zeros.
 * For tests and benchmarks. */
#ifndef TESTS_SHAPE_MAKE_H
#define TESTS_SHAPE_MAKE_H

#include "beryl.h"

/* as published; feed-forward width doubled from the first layer with a shared cache on where
 * `wide` */
typedef struct shape {
    const char *name;
    uint32_t n_layer, d, n_head, n_kv, n_kv_global, n_ff, window, period, shared, n_per_layer;
    bool wide, k_eq_v;
    uint32_t n_expert, n_expert_used, n_ff_expert;
} shape;

enum { SHAPE_COUNT = 5, SHAPE_VOCAB = 1024 /* the vocabulary is none of the shape's business */ };
extern const shape shapes[SHAPE_COUNT];

typedef struct shape_file { /* owned; free(head) */
    uint8_t *head;
    size_t size;    /* of the head */
    uint64_t bytes; /* of the file */
} shape_file;

/* Out of memory aborts. The source borrows the file. */
beryl_source shape_make(const shape *s, shape_file *file);

#endif
