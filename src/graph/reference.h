/* reference.h - what each operation means: one function a row of BASE_OP_LIST, in C with double
 * accumulation. They judge every kernel, and run whole models as `--device reference`. */
#ifndef GRAPH_REFERENCE_H
#define GRAPH_REFERENCE_H

#include "graph/graph.h"
#include "graph/store.h"

/* A tensor of a run: its data at offset 0 of the view, dims as they are in this run, strides
 * from the bounds. Weights that lie in the file have stored set and data NULL. A function is called
 * where its results have elements; what it reads may have none (graph_node_needs). */
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
    uint32_t *done; /* rows of its weights that a product was through with when it was PENDING */
    beryl_error *error;
} reference_call;

typedef beryl_status reference_fn(reference_call *c);

/* The keys [first, end) that row n of an attention sees in its slot; none: first == end. */
typedef struct reference_keys {
    uint32_t slot, first, end;
} reference_keys;
reference_keys reference_keys_of(const reference_call *c, uint32_t n);
uint64_t reference_count(const reference_tensor *x); /* elements of the run */
/* Where element `index` is along each axis. */
void reference_place(const reference_tensor *x, uint64_t index, int64_t *at);
/* Offset of element i, in the order of shape's dims, of x broadcast against it from the right. */
int64_t reference_offset(const reference_tensor *x, const reference_tensor *shape, uint64_t i);
/* Of floats `real`, of integers and BOOL `whole`. */
typedef struct reference_number {
    double real;
    int64_t whole;
} reference_number;
reference_number reference_number_at(base_type type, const void *at);
void reference_put(base_type type, void *at, reference_number x); /* integers: their low bits */
int64_t reference_within(base_type type, double x);               /* saturates; NaN: 0 */
reference_fn reference_pointwise, reference_reduce, reference_contract, reference_resize,
    reference_iota, reference_random, reference_sort, reference_arg_largest;
beryl_status reference_doubles(reference_call *c); /* norms, softmax, scans of F64 */
reference_fn reference_gather, reference_scatter, reference_one_hot, reference_nonzero,
    reference_fourier;
reference_fn reference_attention_sums, reference_attention_back;
/* Runs what is written for F32 where inputs or results are F16 or BF16. */
beryl_status reference_through_floats(reference_call *c, reference_fn *run);
extern reference_fn *const reference_table[OP_COUNT];

/* A whole graph, node by node: run computes at once, from the given extents by index from [1], with
 * the inputs as they lie in graph_reference_input's memory. PENDING, where a weight's source is:
 * the same call goes on. A value is that of the last run, NULL where it is not kept. */
typedef struct graph_reference graph_reference;
beryl_status graph_reference_open(graph *g, graph_store *store, graph_reference **out,
                                  beryl_error *error);
void graph_reference_close(graph_reference *r); /* NULL is fine */
void *graph_reference_input(graph_reference *r, graph_value input);
beryl_status graph_reference_run(graph_reference *r, const uint32_t *extents, beryl_error *error);
const void *graph_reference_value(const graph_reference *r, graph_value v);

#endif
