/* reference.h - what each operation means: one function a row of BASE_OP_LIST, in C with double accumulation. They judge
 * every kernel, and run whole models as `--device reference`. */
#ifndef GRAPH_REFERENCE_H
#define GRAPH_REFERENCE_H

#include "graph/graph.h"
#include "graph/store.h"

/* A tensor of a run: its data at offset 0 of the view, dims as they are in this run, strides from the bounds. Weights that lie
 * in the file have stored set and data NULL. */
typedef struct reference_tensor {
    const graph_tensor *t;
    void *data;
    uint32_t dim[GRAPH_RANK_MAX];
    uint32_t stored; /* index in the store, UINT32_MAX: none */
} reference_tensor;

typedef struct reference_call {
    const graph_node *node;
    graph_store *store;
    base_heap *heap;
    reference_tensor in[GRAPH_IN_MAX], out[GRAPH_OUT_MAX];
    beryl_error *error;
} reference_call;

typedef beryl_status reference_fn(reference_call *c);
extern reference_fn *const reference_table[OP_COUNT];

#endif
