/* graph.h - tensor graphs: what a model builds and everything below consumes.
 *
 * A graph is a list of nodes in the order they were added (so every input comes before its use) over tensors with ids.
 * Shapes are row-major: dim[rank - 1] is contiguous. A dimension is a constant or a named extent with an upper bound;
 * strides come from the bounds, loop counts and grids from the values of a run.
 * The first error sticks (graph_error); later calls do nothing and give 0, so builders need no checks between calls.
 */
#ifndef GRAPH_GRAPH_H
#define GRAPH_GRAPH_H

#include "base/ops.h"
#include "base/types.h"
#include "base/memory.h"

enum { GRAPH_RANK_MAX = 8, GRAPH_IN_MAX = 24, GRAPH_OUT_MAX = 4, GRAPH_EXTENT_MAX = 8 };

typedef uint32_t graph_value; /* id of a tensor, from 1; 0: none */
typedef struct graph_dim { uint32_t size; uint8_t extent; } graph_dim; /* size: constant or bound; extent: from 1, 0: constant */

typedef enum graph_role { ROLE_INTERMEDIATE, ROLE_INPUT, ROLE_STORED, ROLE_OUTPUT } graph_role; /* STORED: weight or state of a store */

typedef struct graph_tensor {
    base_type type;
    graph_role role;
    uint8_t rank;
    graph_dim dim[GRAPH_RANK_MAX];
    uint32_t stride[GRAPH_RANK_MAX]; /* in elements; of quantised types: elements of the row, as unpacked */
    uint32_t offset;                 /* elements from the start of `base` */
    graph_value base;                /* of a view, or of an in-place result: the tensor whose memory it is; else 0 */
    uint32_t stored;                 /* ROLE_STORED: index in the store */
    uint32_t node;                   /* that makes it; UINT32_MAX: none */
    const char *name;                /* for people; never NULL */
} graph_tensor;

typedef union graph_attrs { /* by op; all-zero for the others */
    struct { float factor; } scale, gather_rows;
    struct { float cap; } softcap;
    struct { float eps; } rms_norm, layer_norm;
    struct { uint32_t k; } topk;
    struct { float scale; uint32_t window, most; bool apart; } attention; /* window 0: all; most, apart: graph_attention_apart */
    struct { uint32_t kind, first, count; const void *detail; } fused; /* inner nodes [first, first + count) of graph.inner */
} graph_attrs;

typedef struct graph_node {
    base_op op;
    uint8_t n_in, n_out;
    graph_value in[GRAPH_IN_MAX], out[GRAPH_OUT_MAX];
    graph_attrs attr;
    bool dead; /* joined into a fused node or without use: not run */
} graph_node;

typedef struct graph_extent { const char *name; uint32_t bound; } graph_extent;

typedef struct graph {
    base_arena arena;
    base_heap *heap;
    base_vec(graph_tensor) tensors; /* [0] is none */
    base_vec(graph_node) nodes;
    base_vec(graph_node) inner;     /* nodes inside fused ones, in order */
    graph_extent extents[GRAPH_EXTENT_MAX + 1]; /* from 1 */
    uint32_t n_extent;
    beryl_error error;              /* code OK: none */
} graph;

graph *graph_open(base_heap *heap); /* NULL: no memory */
void graph_close(graph *g);
beryl_status graph_status(const graph *g, beryl_error *error);

uint8_t graph_extent_add(graph *g, const char *name, uint32_t bound);
graph_value graph_input(graph *g, const char *name, base_type type, uint32_t rank, const graph_dim *dims);
struct graph_store;
graph_value graph_stored(graph *g, const struct graph_store *store, uint32_t index);
void graph_output(graph *g, graph_value value, const char *name); /* kept readable after a run */

/* Views: no work, no memory. */
graph_value graph_reshape(graph *g, graph_value x, uint32_t rank, const graph_dim *dims); /* contiguous x, same element bound */
graph_value graph_narrow(graph *g, graph_value x, uint32_t axis, uint32_t start, uint32_t size);
graph_value graph_squeeze(graph *g, graph_value x, uint32_t axis); /* drops an axis of size 1 */

/* Operations, see BASE_OP_LIST. Activations are F32, indices I32. A weight may have any type that matmul reads. */
graph_value graph_gather_rows(graph *g, graph_value table, graph_value ids, float factor); /* [r, d], [n] -> [n, d] */
graph_value graph_copy(graph *g, graph_value x);
graph_value graph_add(graph *g, graph_value a, graph_value b); /* b: same shape, or sizes 1 or missing leading axes */
graph_value graph_mul(graph *g, graph_value a, graph_value b);
graph_value graph_scale(graph *g, graph_value x, float factor);
graph_value graph_gelu_tanh(graph *g, graph_value x);
graph_value graph_geglu(graph *g, graph_value gate, graph_value up);
graph_value graph_softcap(graph *g, graph_value x, float cap);
graph_value graph_rms_norm(graph *g, graph_value x, graph_value weight, float eps); /* weight 0: none */
/* (x - mean) / sqrt(variance + eps) * weight + bias; weight, or both: 0: none */
graph_value graph_layer_norm(graph *g, graph_value x, graph_value weight, graph_value bias, float eps);
graph_value graph_softmax(graph *g, graph_value x);
graph_value graph_topk(graph *g, graph_value x, uint32_t k, graph_value *indices); /* [n, m] -> [n, k] and I32 [n, k] */
graph_value graph_weighted_sum(graph *g, graph_value x, graph_value weights);      /* [n, u, d], [n, u] -> [n, d] */
graph_value graph_matmul(graph *g, graph_value x, graph_value w);                  /* [n, k], [m, k] -> [n, m] */
graph_value graph_matmul_id(graph *g, graph_value x, graph_value w, graph_value ids); /* [n, u|1, k], [e, m, k], [n, u] -> [n, u, m] */
graph_value graph_rope(graph *g, graph_value x, graph_value angles); /* [n, h, d], [n, 2, d / 2] (cos, sin) -> [n, h, d] */
/* cache [n_slot, n_row, h, d] F32, F16 or Q8_0; x [n, h, d]; slot, pos I32 [n]: cache[slot, pos % n_row] = x. In place. */
graph_value graph_kv_write(graph *g, graph_value cache, graph_value x, graph_value slot, graph_value pos);
/* q [n, H, d], k and v caches as left by kv_write, slot, pos [n]: keys with max(0, pos - window + 1) <= j <= pos, grouped heads:
 * query head i reads kv head i * h / H. -> [n, H, d] */
graph_value graph_attention(graph *g, graph_value q, graph_value k, graph_value v, graph_value slot, graph_value pos,
                            float scale, uint32_t window);
/* Says of an attention that every row of a run belongs to another slot (decode): it may then be joined with its cache writes.
 * most: every position of a run is below (0: no such promise), so that it need not be split for long contexts. */
void graph_attention_apart(graph *g, graph_value attention, uint32_t most);
graph_value graph_argmax(graph *g, graph_value x); /* [n, m] -> I32 [n] */
/* logits [n, m], settings U32 [n, 8] (rows of base_sample_settings) -> I32 [n]. */
graph_value graph_sample(graph *g, graph_value logits, graph_value settings);
/* state I32 or F32 [r] or [r, d]; x [n] or [n, d]; index I32 [n]: state[index] = x. In place. */
graph_value graph_set_rows(graph *g, graph_value state, graph_value x, graph_value index);

/* For passes: a tensor that some node will make. */
graph_value graph_intermediate(graph *g, base_type type, uint32_t rank, const graph_dim *dims);

/* ---- facts ---- */
const char *graph_op_name(base_op op);
const graph_tensor *graph_tensor_at(const graph *g, graph_value v);
uint32_t graph_dim_value(graph_dim dim, const uint32_t *extents);                /* extents: values of a run, from [1] */
uint64_t graph_element_bound(const graph_tensor *t);
bool graph_is_contiguous(const graph_tensor *t);
bool graph_same_shape(const graph_tensor *a, const graph_tensor *b);             /* nothing is broadcast */
graph_value graph_base_of(const graph *g, graph_value v);                        /* through views and in-place results */
/* Text of the whole graph, one line a node, for people and tests. */
void graph_print(const graph *g, base_text *out);
void graph_print_node(const graph *g, const graph_node *node, base_text *out);

#endif
