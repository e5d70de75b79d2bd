/* ops.h - the list of graph operations that everyone shares. Shapes, references and lowering live in graph/. */
#ifndef BASE_OPS_H
#define BASE_OPS_H

#include "beryl.h"

/* name, text, group, inputs (least, most), outputs, what it does */
#define BASE_OP_LIST(X)                                                                                                     \
    X(GATHER_ROWS, "gather_rows", "movement", 2, 2, 1, "rows of a table by index, times a constant")                         \
    X(COPY, "copy", "movement", 1, 1, 1, "a view made contiguous")                                                          \
    X(ADD, "add", "pointwise", 2, 2, 1, "a + b, b broadcast")                                                               \
    X(MUL, "mul", "pointwise", 2, 2, 1, "a * b, b broadcast")                                                               \
    X(SCALE, "scale", "pointwise", 1, 1, 1, "x times a constant")                                                           \
    X(GELU_TANH, "gelu_tanh", "pointwise", 1, 1, 1, "gelu, tanh form")                                                      \
    X(GEGLU, "geglu", "pointwise", 2, 2, 1, "gelu_tanh(gate) * up")                                                         \
    X(SOFTCAP, "softcap", "pointwise", 1, 1, 1, "cap * tanh(x / cap)")                                                      \
    X(RMS_NORM, "rms_norm", "norm", 1, 2, 1, "x / rms(x) over the last axis, times a weight if given")                       \
    X(LAYER_NORM, "layer_norm", "norm", 1, 3, 1, "(x - mean) / deviation over the last axis, times a weight, plus a bias if given") \
    X(SOFTMAX, "softmax", "reduction", 1, 1, 1, "over the last axis")                                                       \
    X(TOPK, "topk", "reduction", 1, 1, 2, "the k largest of the last axis, falling, and their indices; ties: lower index")   \
    X(WEIGHTED_SUM, "weighted_sum", "reduction", 2, 2, 1, "sum over axis 1 of x[n, u, d] times g[n, u]")                     \
    X(MATMUL, "matmul", "linear", 2, 2, 1, "x[.., n, k] times transposed w[m, k], w plain or quantised")                      \
    X(MATMUL_ID, "matmul_id", "linear", 3, 3, 1, "experts: x[n, u or 1, k] with matrix ids[n, u] of w[e, m, k]")             \
    X(ROPE, "rope", "attention", 2, 2, 1, "split-half rotation by rows of cos and sin")                                     \
    X(KV_WRITE, "kv_write", "attention", 4, 4, 1, "rows into a cache at slot and position modulo its length")                \
    X(ATTENTION, "attention", "attention", 5, 5, 1, "causal, grouped, optionally windowed, over caches")                     \
    X(ARGMAX, "argmax", "sampling", 1, 1, 1, "index of the largest of the last axis; ties: lower index")                     \
    X(SAMPLE, "sample", "sampling", 2, 2, 1, "a token by temperature, top-k, top-p, min-p and a counter-based draw")         \
    X(SET_ROWS, "set_rows", "movement", 3, 3, 1, "rows of x into a state at given indices")                                  \
    X(FUSED, "fused", "fused", 1, 24, 4, "a group of operations that runs as one dispatch")

typedef enum base_op {
#define X(name, text, group, n_in_min, n_in_max, n_out, what) OP_##name,
    BASE_OP_LIST(X)
#undef X
    OP_COUNT
} base_op;

#endif
