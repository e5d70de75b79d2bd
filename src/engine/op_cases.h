/* op_cases.h - one table of single operations: how a graph of each is built over tensors of some
 * shape and type, what bench-ops times, and what the self-test compares with the reference
 * functions: on any device, and in the tests by the interpreter.
 *
 * A case is built twice in the same order: first its tensors are added to a store, then, when
 * that is made, its node to a graph. */
#ifndef ENGINE_OP_CASES_H
#define ENGINE_OP_CASES_H

#include "graph/store.h"
#include "graph/graph.h"

enum { OP_SHAPE_MAX = 4, OP_COMPARED_MAX = 3 };

typedef enum op_types {
    OP_F32_ALONE,
    OP_WEIGHT_TYPES,
    OP_WEIGHT_TYPES_ONCE, /* in the first shape; in others the usual ones alone */
    OP_CACHE_TYPES,
    OP_HALF_TYPES, /* F32 and F16 */
    OP_FLOAT_TYPES
} op_types;

typedef struct op_maker {
    base_heap *heap;
    base_op op;
    base_type type;
    graph *g;
    graph_store *store;
    bool adding; /* tensors to the store; else the graph over them */
    /* activations are inputs of a run and each weight has bytes of its own; else they are states
     * and weights share theirs, so that a run sends nothing but indices */
    bool compared;
    uint32_t next;    /* stored tensor */
    size_t blob_size; /* of the file of the weights */
    base_vec(struct op_index {
        graph_value v;
        uint32_t limit, from;
        bool rising;
    }) indices;
    double read, written, operations; /* of one case */
    beryl_error error;
} op_maker;

typedef graph_value op_make(op_maker *m, const uint32_t *shape);

/* letters of a shape; usual shapes to time on a processor and on a GPU (0: not timed); shapes to
 * compare, up to the first of 0 */
typedef struct op_case {
    const char *letters;
    uint32_t n_shape, small[OP_SHAPE_MAX], large[OP_SHAPE_MAX];
    op_make *make;
    op_types types;
    uint32_t compared[OP_COMPARED_MAX][OP_SHAPE_MAX];
} op_case;

/* Of every operation: one of its own, or what follows from its row of BASE_OP_LIST. */
const op_case *op_case_of(base_op op);

/* How many types there are to compare in the n-th shape: what weights of a graph may have, or
 * caches, the usual ones first. */
uint32_t op_case_types(const op_case *c, uint32_t shape, const base_type **types);
void op_maker_fini(op_maker *m); /* its own memory, neither graph nor store */

#endif
