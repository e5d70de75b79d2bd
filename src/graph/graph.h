/* graph.h - tensor graphs: what a model builds and everything below consumes.
 *
 * A graph is a list of nodes in the order they were added (so every input comes before its use)
 * over tensors with ids. Shapes are row-major: dim[rank - 1] is contiguous. A dimension is a
 * constant or an extent with an upper bound, which is given for each run or computed from others;
 * strides come from the bounds, loop counts and grids from the values of a run. The first error
 * sticks (graph_status); later calls do nothing and give 0, so builders need no checks between
 * calls.
 */
#ifndef GRAPH_GRAPH_H
#define GRAPH_GRAPH_H

#include "base/build.h"
#include "base/ops.h"
#include "base/types.h"
#include "base/memory.h"

enum {
    GRAPH_RANK_MAX = 10,
    GRAPH_IN_MAX = 24,
    GRAPH_OUT_MAX = 4,
    GRAPH_EXTENT_MAX = 32, /* given and derived: a bit each */
    GRAPH_TERM_MAX = 6,
    GRAPH_FACTOR_MAX = 4,
    GRAPH_VIEW_MAX = 4 /* numbers that a view is told */
};

/* Of a view at most: sums of products read more elements of it than memory has. */
#define GRAPH_VIEW_ELEMENTS (UINT64_C(1) << 40)

typedef uint32_t graph_value; /* id of a tensor, from 1; 0: none */
/* size: constant or bound; extent: from 1, 0: constant */
typedef struct graph_dim {
    uint32_t size;
    uint8_t extent;
} graph_dim;

/* STORED: weight or state of a store */
typedef enum graph_role { ROLE_INTERMEDIATE, ROLE_INPUT, ROLE_STORED, ROLE_OUTPUT } graph_role;

typedef struct graph_tensor {
    base_type type;
    graph_role role;
    uint8_t rank;
    graph_dim dim[GRAPH_RANK_MAX];
    /* in elements, modulo 2^32: graph_stride; of quantised types: elements of the row, as
     * unpacked */
    uint32_t stride[GRAPH_RANK_MAX];
    uint32_t offset; /* elements from the start of `base` */
    /* of a view, or of an in-place result: the tensor whose memory it is; else 0 */
    graph_value base;
    base_view_kind view; /* of a view: the call that made it, */
    /* with these numbers; of permute the axes, 4 bits each, 8 a number */
    uint32_t told[GRAPH_VIEW_MAX];
    uint32_t stored;   /* ROLE_STORED: index in the store */
    uint32_t node;     /* that makes it; UINT32_MAX: none */
    const char *name;  /* for people; never NULL */
    graph_value again; /* it is this value, computed again for a backward pass; 0: it is not */
    bool narrow;       /* F16 that was F32: what is stored stays finite (plan/pass_narrow.c) */
} graph_tensor;

/* By op: node->attr.rms_norm.eps. Of attention: window 0: all; most, apart:
 * graph_attention_distinct_slots. Of fused: inner nodes [first, first + count) of graph.inner. */
typedef union graph_attrs {
    union {
        uint32_t u;
        int32_t i;
        float f;
    } at[BASE_OP_ATTRS_MAX]; /* those of the call, in their order */
#define X(NAME, name, group, least, most, in, letters, out, attrs, names, ...) \
    struct {                                                                   \
        OP_FIELDS_##attrs names                                                \
    } name;
    BASE_OP_LIST(X)
#undef X
} graph_attrs;

typedef struct graph_node {
    base_op op;
    uint8_t n_in, n_out;
    graph_value in[GRAPH_IN_MAX], out[GRAPH_OUT_MAX];
    graph_attrs attr;
    bool dead; /* joined into a fused node or without use: not run */
} graph_node;

/* times * the product of the extents `of`, 0: no more */
typedef struct graph_term {
    uint32_t times;
    uint8_t of[GRAPH_FACTOR_MAX];
} graph_term;
typedef struct graph_sum { /* in the one form of graph/extent.h */
    uint32_t n;
    graph_term term[GRAPH_TERM_MAX];
} graph_sum;

typedef struct graph_extent {
    const char *name; /* of a derived one: its expression */
    uint32_t bound;
    uint32_t divisor; /* 0: given for each run; else it is ceil(sum / divisor) */
    graph_sum sum;    /* of extents before it */
} graph_extent;

/* A result whose gradient is not that of the operations that make it (graph/gradient.h). */
typedef enum graph_own_kind {
    OWN_CONSTANT,
    OWN_ROOT,
    OWN_LOGSUMEXP,
    OWN_LOG_SOFTMAX,
    OWN_CROSS_ENTROPY,
    OWN_LINEAR_CROSS_ENTROPY,
    OWN_CONV
} graph_own_kind;
/* Windows along an axis, of `size` elements `dilation` from each other, each `stride` after the
 * one before; so many elements are put before and after the axis. */
typedef struct graph_window {
    uint32_t size, stride, dilation, pad_before, pad_after;
} graph_window;
typedef struct graph_own {
    graph_own_kind kind;
    graph_value out, in[3];
    uint32_t axes; /* a bit each */
    /* of OWN_LINEAR_CROSS_ENTROPY: log of the sum of exp, [n, 1]; of OWN_CONV: x [n, c, windows..,
     * in each..] */
    graph_value all;
    float cap;               /* 0: none */
    uint32_t n_axis, groups; /* of OWN_CONV, with: */
    graph_window windows[3];
} graph_own;

/* Nodes and values [.., end) that a backward pass computes again. */
typedef struct graph_segment {
    struct graph_segment *before;
    uint32_t node, node_end;
    graph_value value, value_end; /* value_end 0: it is being built */
} graph_segment;

typedef struct graph {
    base_arena arena;
    base_heap *heap;
    base_vec(graph_tensor) tensors; /* [0] is none */
    base_vec(graph_node) nodes;
    base_vec(graph_node) inner; /* nodes inside fused ones, in order */
    base_vec(graph_own) owns;
    graph_segment *segments;                    /* the last one, in the arena; NULL: none */
    graph_extent extents[GRAPH_EXTENT_MAX + 1]; /* from 1 */
    uint32_t n_extent;
    struct { /* where numbers that operations need come from; NULL: from nowhere */
        uint32_t (*fn)(void *context, uint32_t n, const float *numbers);
        void *context;
    } constants;
    /* Products with weights that are no F32 take halves: those of a backward pass BF16, those of
     * linear_cross_entropy's logits F16. Sums are F32, results of the former BF16. What rules of
     * trees read of the forward pass is BF16 too. */
    bool halves;
    beryl_error error; /* code OK: none */
    const char *file;  /* where the caller makes the next nodes, for messages; NULL: not told */
    uint32_t line;
    /* [tensors]: the last node that reads it or a view of it, 0: perhaps none; NULL but while
     * passes keep it */
    uint32_t *last_reader;
    const struct graph_call *call; /* whose shapes its rule looks at, for messages; NULL: none */
} graph;

graph *graph_open(base_heap *heap); /* NULL: no memory */
void graph_close(graph *g);
beryl_status graph_status(const graph *g, beryl_error *error);

/* A size that is given for each run, 0 .. bound. */
uint8_t graph_extent_add(graph *g, const char *name, uint32_t bound);
/* Dimensions computed from others: a + b, a * b, a / divisor rounded up. Constants give a constant;
 * equal expressions give the same extent. MISUSE: an unknown extent, a divisor of 0, a result of 0;
 * UNSUPPORTED: a bound above 2^32 - 1 (before dividing too), more extents, terms or factors than
 * there may be. */
graph_dim graph_dim_sum(graph *g, graph_dim a, graph_dim b);
graph_dim graph_dim_product(graph *g, graph_dim a, graph_dim b);
graph_dim graph_dim_quotient(graph *g, graph_dim a, uint32_t divisor);
graph_value graph_input(graph *g, const char *name, base_type type, uint32_t rank,
                        const graph_dim *dims);
/* n numbers, F32 [n], which the graph's owner keeps (a copy: in its store); UNSUPPORTED: it keeps
 * none. */
graph_value graph_constant(graph *g, uint32_t n, const float *numbers);
struct graph_store;
graph_value graph_stored(graph *g, const struct graph_store *store, uint32_t index);
void graph_output(graph *g, graph_value value, const char *name); /* kept readable after a run */

/* Views: no work, no memory, of inputs, results, stored tensors and other views (quantised types:
 * as long as rows stay whole). What reads a view finds its elements by strides; an operation whose
 * kernels cannot is given a copy (graph/layout.c). */
/* the same elements in every run: dimensions are split and joined where all but the outermost of
 * them are constants. What strides cannot say of x is said of a copy. */
graph_value graph_reshape(graph *g, graph_value x, uint32_t rank, const graph_dim *dims);
/* axes [rank]: axis i of the result is axis axes[i] of x */
graph_value graph_permute(graph *g, graph_value x, uint32_t rank, const uint32_t *axes);
/* dimensions of 1, and those that x has not, at any size or extent; x's are the last of dims */
graph_value graph_expand(graph *g, graph_value x, uint32_t rank, const graph_dim *dims);
/* elements start, start + step, ... of a constant axis: `size` of them */
graph_value graph_narrow(graph *g, graph_value x, uint32_t axis, uint32_t start, uint32_t size,
                         uint32_t step);
/* n parts of equal size of a constant axis */
void graph_split(graph *g, graph_value x, uint32_t axis, uint32_t n, graph_value *parts /* [n] */);
graph_value graph_flip(graph *g, graph_value x, uint32_t axis); /* a constant one */
/* The elements with one index along both axes, as the last axis: constants, of which the smaller
 * counts, or one extent. */
graph_value graph_diagonal(graph *g, graph_value x, uint32_t axis, uint32_t other);
/* Windows of `size` elements of an axis, one every `step` elements, as far as they are whole: the
 * axis becomes their number, and what is in each the last axis. An axis that a run sizes has to be
 * padded by size - 1 at least: n + 2 elements are ceil(n / 2) windows of size 3 and step 2. */
graph_value graph_windows(graph *g, graph_value x, uint32_t axis, uint32_t size, uint32_t step);
graph_value graph_squeeze(graph *g, graph_value x, uint32_t axis);   /* drops an axis of size 1 */
graph_value graph_unsqueeze(graph *g, graph_value x, uint32_t axis); /* of the result: of size 1 */
/* Any of them: told as its call, of permute the axes [rank]. */
graph_value graph_view(graph *g, base_view_kind view, graph_value x, const uint32_t *told,
                       uint32_t rank, const graph_dim *dims);

/* Operations. graph_NAME(g, inputs, attributes): as in BASE_OP_LIST, with the shapes and the
 * meaning of beryl_graph_NAME in beryl_graph.h. graph_sample: logits
 * [n, m], settings U32 [n, 8] (rows of base_sample_settings) -> I32 [n]. */
#define GRAPH_CALL_USUAL(name, most, in, attrs, names) \
    graph_value graph_##name(graph *g OP_INPUTS_##most in OP_PARAMS_##attrs names);
#define GRAPH_CALL_INNER GRAPH_CALL_USUAL
#define GRAPH_CALL_OWN(...)
#define GRAPH_CALL_NONE(...)
#define X(NAME, name, group, least, most, in, letters, out, attrs, names, values, call, ...) \
    GRAPH_CALL_##call(name, most, in, attrs, names)
BASE_OP_LIST(X)
#undef X
graph_value graph_attention(graph *g, graph_value q, graph_value k, graph_value v, graph_value slot,
                            graph_value pos, float scale, uint32_t window);
/* As a node: last in the place of pos, then first. */
graph_value graph_attention_range(graph *g, graph_value q, graph_value k, graph_value v,
                                  graph_value slot, graph_value first, graph_value last,
                                  float scale);
/* wrap: integers keep their low bits; else what is out of range saturates. */
graph_value graph_cast(graph *g, graph_value x, base_type type, bool wrap);
/* A reduction: axes become 1, a bit each. correction: of the mean, else 0. */
graph_value graph_reduce(graph *g, base_op op, graph_value x, uint32_t axes, uint32_t correction);
/* Made of other operations, over axes as above. norm: the root of the sum of squares; l2_norm: x
 * over that along an axis, log_softmax along an axis. */
graph_value graph_var(graph *g, graph_value x, uint32_t axes, uint32_t correction);
graph_value graph_std(graph *g, graph_value x, uint32_t axes, uint32_t correction);
graph_value graph_norm(graph *g, graph_value x, uint32_t axes);
graph_value graph_logsumexp(graph *g, graph_value x, uint32_t axes);
graph_value graph_log_softmax(graph *g, graph_value x, uint32_t axis);
graph_value graph_l2_norm(graph *g, graph_value x, uint32_t axis, float eps);
/* Of channels, axis 1 of x [n, c, ..]: vectors [c]; weight and bias may be 0. training: the mean
 * and variance of x itself, which it gives. */
graph_value graph_batch_norm(graph *g, graph_value x, graph_value mean, graph_value variance,
                             graph_value weight, graph_value bias, float eps);
graph_value graph_batch_norm_training(graph *g, graph_value x, graph_value weight, graph_value bias,
                                      float eps, graph_value *mean, graph_value *variance);
/* A pointwise operation of the two halves of a constant axis. */
graph_value graph_gated(graph *g, graph_value x, uint32_t axis, base_op op);
graph_value graph_sum_of_squares(graph *g, uint32_t n, const graph_value *x); /* [] */
graph_value graph_softmax_along(graph *g, graph_value x, uint32_t axis);
/* One of the scans, of a constant axis where it is exclusive (without the element itself) or
 * backwards (from the end). */
graph_value graph_scan(graph *g, graph_value x, uint32_t axis, base_op op, bool exclusive,
                       bool backwards);
/* Products, made of views and `contract`. matmul: a [.., m, k] times b [.., k, n] -> [.., m, n],
 * either with its last two axes exchanged; axes in front are broadcast; a or b may be one vector,
 * whose axis is then none of the result. */
graph_value graph_matmul(graph *g, graph_value a, graph_value b, bool transpose_a,
                         bool transpose_b);
/* "bij,bjk->bik": a letter for each axis of n values and of the result. */
enum { GRAPH_EINSUM_MAX = 8 };
graph_value graph_einsum(graph *g, const char *text, uint32_t n, const graph_value *x);
/* x [n, c, in..] of 1 to 3 axes, weight [out, c / groups, sizes..] -> [n, out, ..]. size of a
 * window: the weight's. */
graph_value graph_conv(graph *g, graph_value x, graph_value weight, uint32_t n_axis,
                       const graph_window *windows, uint32_t groups);
/* The transpose: weight [c, out / groups, sizes..]; of the whole result so many elements are cut
 * off before and after an axis, and more [n_axis] (NULL: none) are after it. */
graph_value graph_conv_transpose(graph *g, graph_value x, graph_value weight, uint32_t n_axis,
                                 const graph_window *windows, const uint32_t *more,
                                 uint32_t groups);
/* What is in each window, as [n, c * sizes.., windows..]: a copy. */
graph_value graph_im2col(graph *g, graph_value x, uint32_t n_axis, const graph_window *windows);
/* As in beryl_pool. */
typedef struct graph_pool_how {
    bool mean, partial, inside;
} graph_pool_how;
graph_value graph_pool(graph *g, graph_value x, uint32_t n_axis, const graph_window *windows,
                       graph_pool_how how);
graph_value graph_adaptive_avg_pool(graph *g, graph_value x, uint32_t n_axis,
                                    const uint32_t *sizes);
graph_value graph_max_pool(graph *g, graph_value x, uint32_t n_axis, const graph_window *windows);
graph_value graph_avg_pool(graph *g, graph_value x, uint32_t n_axis, const graph_window *windows);
/* Fourier transforms along a constant axis. fft: x [.., 2], real and imaginary parts; rfft: of real
 * x the first n / 2 + 1 frequencies [.., 2]; irfft: of these n real numbers. Their sums are divided
 * by n on the way back, forward, or by its root both ways. graph_fourier_fits: OP_FOURIER does the
 * size; graph_fourier_scale: what it multiplies by. */
bool graph_fourier_fits(uint32_t n);
double graph_fourier_scale(uint32_t n, uint32_t how);
typedef enum graph_fft_norm { FFT_BACKWARD, FFT_FORWARD, FFT_ORTHO } graph_fft_norm;
graph_value graph_fft(graph *g, graph_value x, uint32_t axis, bool inverse, graph_fft_norm norm);
graph_value graph_rfft(graph *g, graph_value x, uint32_t axis, graph_fft_norm norm);
graph_value graph_irfft(graph *g, graph_value x, uint32_t axis, uint32_t n, graph_fft_norm norm);
/* Parts of so many elements of the last axis, each `step` after the one before, times a window
 * (0: none), and their rfft: [.., part, size / 2 + 1, 2]; and the signal of them. welch: power at
 * each frequency, the mean over the parts, each less its mean. peaks of [n, m]: what is above the
 * element before it and not below the one after it; 0 and any index where there are fewer than
 * k. */
graph_value graph_hann(graph *g, uint32_t size);
graph_value graph_stft(graph *g, graph_value x, graph_value window, uint32_t size, uint32_t step);
graph_value graph_istft(graph *g, graph_value x, graph_value window, uint32_t size, uint32_t step);
graph_value graph_welch(graph *g, graph_value x, graph_value window, uint32_t size, uint32_t step,
                        float rate);
graph_value graph_peaks(graph *g, graph_value x, uint32_t k, graph_value *indices);
/* Points are rows: a [n, d], b [m, d] -> [n, m]; of each query [n, d] the k nearest of x [m, d],
 * distances [n, k], rising, and their indices. */
typedef enum graph_distance { DISTANCE_EUCLID, DISTANCE_SQUARED, DISTANCE_COSINE } graph_distance;
graph_value graph_pairwise_distance(graph *g, graph_value a, graph_value b, graph_distance kind);
graph_value graph_knn(graph *g, graph_value x, graph_value queries, uint32_t k, graph_distance kind,
                      graph_value *indices);
/* Of what knn gives of points and themselves, [n, k]: how near each is to each, [n, n], as UMAP has
 * it. */
graph_value graph_umap_weights(graph *g, graph_value distances, graph_value indices);
/* Random numbers, as base_random_kind says, of a key U32 [2] and a stream; from 0 to 1 of a type
 * with base_random_bits, else made as F32. categorical: an index of each row of logits [n, m].
 * First weights of a layer [out, in, ..]: by both sizes (xavier), or by the inputs alone. key: of a
 * seed, by a constant. */
typedef struct graph_draw {
    graph_value key;
    uint32_t stream;
} graph_draw;
graph_value graph_key(graph *g, uint64_t seed);
graph_value graph_random_bits(graph *g, graph_draw draw, uint32_t rank, const graph_dim *dims);
graph_value graph_random_uniform(graph *g, graph_draw draw, base_type type, float low, float high,
                                 uint32_t rank, const graph_dim *dims);
graph_value graph_random_normal(graph *g, graph_draw draw, base_type type, float mean,
                                float deviation, uint32_t rank, const graph_dim *dims);
graph_value graph_bernoulli(graph *g, graph_draw draw, float chance, uint32_t rank,
                            const graph_dim *dims);
graph_value graph_categorical(graph *g, graph_draw draw, graph_value logits);
graph_value graph_random_weights(graph *g, graph_draw draw, base_type type, bool xavier,
                                 bool normal, float gain, uint32_t rank, const graph_dim *dims);
typedef struct graph_sdpa {
    float scale, cap;
    bool causal;
    uint32_t window;
    int32_t first;
} graph_sdpa;
/* Attention without a cache, q [.., h, n, d], k and v [.., g, m, d] (v's d may be its own); mask
 * (0: none) broadcast against [.., h, n, m]: BOOL, or added. scale 0: 1 / sqrt(d); cap 0: none;
 * row i is at place first + i: causal: it sees columns up to there; window: from so many - 1
 * before it on, 0: all. */
graph_value graph_attend(graph *g, graph_value q, graph_value k, graph_value v, graph_value mask,
                         const graph_sdpa *how);
/* Softmax of the scores where `visible` is 1; rows that see nothing are 0. visible 0: all are. */
graph_value graph_attend_weights(graph *g, graph_value scores, graph_value visible);
/* Over each row of [.., n, d] itself and the window - 1 before it; far (0: none) [.., window, d]:
 * q times row i of it is added to the scores of what is i rows before. */
graph_value graph_local_attention(graph *g, graph_value q, graph_value k, graph_value v,
                                  graph_value far, uint32_t window, float scale, float cap);
/* As beryl_graph_selective_scan and beryl_graph_gated_delta; first, d: 0: none; last: NULL: not
 * wanted. */
typedef struct graph_selective {
    graph_value x, dt, a, b, c, d, first;
} graph_selective;
graph_value graph_selective_scan(graph *g, const graph_selective *s, graph_value *last);
typedef struct graph_delta {
    graph_value q, k, v, decay, beta, first;
} graph_delta;
graph_value graph_gated_delta(graph *g, const graph_delta *d, graph_value *last);
/* n parts of x's last axis, one after another, each twice as long as its angles' last axis. */
enum { GRAPH_ROTATE_MAX = 4 };
graph_value graph_rotate(graph *g, graph_value x, uint32_t n, const graph_value *cosines,
                         const graph_value *sines, bool pairs);
/* indices: the second result */
/* n from 1 on, joined along an axis; their other dimensions are the same */
graph_value graph_concat(graph *g, uint32_t n, const graph_value *x, uint32_t axis);
/* Made of operations and views that there are. Of n tensors of one shape, joined along
 * a new axis; an axis turned: element i comes from i - by, modulo a constant size; all of an axis,
 * or each of its elements, so many times. */
graph_value graph_stack(graph *g, uint32_t n, const graph_value *x, uint32_t axis);
graph_value graph_roll(graph *g, graph_value x, uint32_t axis, uint32_t by);
graph_value graph_tile(graph *g, graph_value x, uint32_t axis, uint32_t times);
graph_value graph_repeat(graph *g, graph_value x, uint32_t axis, uint32_t times);
graph_value graph_topk(graph *g, graph_value x, uint32_t k, graph_value *indices);
/* Along an axis. LARGEST: falling, NaN as -infinity; else NaN counts as the largest. Ties keep
 * their order, both zeros are alike. */
enum { GRAPH_SORT_RISING, GRAPH_SORT_FALLING, GRAPH_SORT_LARGEST };
graph_value graph_sort(graph *g, graph_value x, uint32_t axis, uint32_t order,
                       graph_value *indices);
/* Index of the first of the largest or smallest along an axis, which becomes 1, or of the first
 * NaN; of nothing: -1. */
graph_value graph_arg(graph *g, graph_value x, uint32_t axis, bool largest);
/* Of any type, k and length: `topk` where there is no faster way, else by `sort`. */
graph_value graph_topk_along(graph *g, graph_value x, uint32_t k, uint32_t axis,
                             graph_value *indices);
/* By index. ids of any rank in the place of an axis: a gather of views. Of ids [n] updates
 * [.., n, ..], added to parts of x: a scatter_add with a view of ids. The value where the mask is
 * true. */
graph_value graph_index_select(graph *g, graph_value x, graph_value ids, uint32_t axis);
graph_value graph_index_add(graph *g, graph_value x, graph_value ids, graph_value updates,
                            uint32_t axis);
graph_value graph_masked_fill(graph *g, graph_value x, graph_value mask, float value);
/* *count: I32 [1] */
graph_value graph_nonzero(graph *g, graph_value x, graph_value *count);
/* Gradients of a loss, a float of one element: the backward pass as ordinary nodes, and a value for
 * each of `values` (floats), of its type and shape: zeros where the loss does not depend on it. */
void graph_gradient(graph *g, graph_value loss, uint32_t n, const graph_value *values,
                    graph_value *gradients /* [n] */);
bool graph_has_gradient(base_op op);
/* Builds without training make the backward pass of attention of other operations. */
static inline bool graph_op_is_built(base_op op) {
    return BUILD_HAS_TRAINING || (op != OP_ATTENTION_SUMS && op != OP_ATTENTION_BACK);
}
/* What is built between is a segment: graph_gradient computes its values again, from what was made
 * before it, where its rules read them, so that they need not live until then. MISUSE: an end
 * without a beginning; UNSUPPORTED: a segment inside a segment, a state that is changed inside. */
void graph_recompute_begin(graph *g);
void graph_recompute_end(graph *g);
bool graph_recompute_is_open(const graph *g);
/* How many segments does a gradient compute again? graph_recompute_first: from here on the first n
 * of them, and all else is kept; before passes. */
uint32_t graph_recomputes(const graph *g);
void graph_recompute_first(graph *g, uint32_t n);
/* x, towards which no gradient goes. */
graph_value graph_detach(graph *g, graph_value x);
/* The result has another rule than its operations; gives out. */
graph_value graph_own_rule(graph *g, graph_own own);
/* -log(softmax(logits)[target]) of each row; of a target that is no class 0. logits [n, classes]
 * floats, targets I32 [n] -> [n] of F32, or F64 where the logits are. */
graph_value graph_cross_entropy(graph *g, graph_value logits, graph_value targets);
/* Losses, beryl_graph_loss: of each element, of COSINE of each row. nll: of logarithms [n, classes]
 * by targets, as cross_entropy; triplet: of rows. */
typedef enum graph_loss_kind {
    LOSS_MSE,
    LOSS_L1,
    LOSS_HUBER,
    LOSS_BCE,
    LOSS_KL,
    LOSS_COSINE,
    LOSS_COUNT
} graph_loss_kind;
graph_value graph_loss(graph *g, graph_loss_kind kind, graph_value x, graph_value target,
                       float delta);
graph_value graph_nll(graph *g, graph_value logs, graph_value targets);
graph_value graph_triplet(graph *g, graph_value anchor, graph_value same, graph_value other,
                          float margin);
/* The same of logits x [n, d] times w [classes, d], a matrix of any type, cap * tanh(logits / cap)
 * where there is a cap: made again in the backward pass, in pieces of classes. */
graph_value graph_linear_cross_entropy(graph *g, graph_value x, graph_value w, graph_value targets,
                                       float cap);
/* A state becomes x, of its type and shape; gives the state as it then is. */
graph_value graph_assign(graph *g, graph_value state, graph_value x);
/* Each element 0 with this chance, else x / (1 - chance). */
graph_value graph_dropout(graph *g, graph_draw draw, graph_value x, float chance);
/* n values, all times min(1, most / (norm + 1e-6)), norm: of all together, which it gives, []. */
graph_value graph_clip(graph *g, uint32_t n, const graph_value *x, float most,
                       graph_value *clipped);
/* before * keep + x * (1 - keep) */
graph_value graph_averaged(graph *g, graph_value before, graph_value x, float keep);
/* A step of Adam, decoupled weight decay: the parameter less over_first * mean / (sqrt(square) /
 * root + eps), less rate * decay of itself. mean, square: as they are, then as they become. */
typedef struct graph_adam {
    float beta1, beta2, eps, decay;
    graph_value rate, over_first, root; /* F32 [1]: rate / (1 - beta1^t), sqrt(1 - beta2^t) */
} graph_adam;
graph_value graph_adam_step(graph *g, const graph_adam *how, graph_value p, graph_value gradient,
                            graph_value *mean, graph_value *square);
/* The same with both moments in 8 bits each, I16 of the parameter's shape, at first 0: square +
 * 256 * mean, rounded down or up by chance, another one in each step as `draw` says. most: what no
 * gradient exceeds. MISUSE: beta1^2 not below beta2. */
graph_value graph_adam_coded(graph *g, const graph_adam *how, graph_draw draw, float most,
                             graph_value p, graph_value gradient, graph_value *codes);
/* Any of them: in [inputs at most], 0 where one is left out. The first result; the node has them
 * all. */
graph_value graph_op(graph *g, base_op op, const graph_value *in, graph_attrs attr);
/* Says of an attention that every row of a run belongs to another slot (decode): it may then be
 * joined with its cache writes. most: every position of a run is below (0: no such promise; at
 * others the last `most` keys may be all that is seen), so that it need not be split for long
 * contexts. */
void graph_attention_distinct_slots(graph *g, graph_value attention, uint32_t most);

/* For passes: a tensor that some node will make. */
graph_value graph_intermediate(graph *g, base_type type, uint32_t rank, const graph_dim *dims);

/* ---- facts ----------------------------------------------------------------------------------- */
const char *graph_op_name(base_op op);
/* A tensor of a run may have it: a number or a truth value an element. */
bool graph_type_is_plain(base_type type);
/* Each element of its result from those in its place. Expensive: many instructions. */
bool graph_op_is_pointwise(base_op op);
bool graph_op_is_expensive(base_op op);
/* Rows of its result from the same rows, whole: along the last axis, or along axes that its
 * attributes say. */
bool graph_op_is_over_rows(base_op op);
bool graph_op_is_over_axes(base_op op);
/* Its result has size 1 along axes that its first attribute says, a bit each. */
bool graph_op_reduces(base_op op);
/* Elements of inputs at other places, and constants. */
bool graph_op_is_mapped(base_op op);
/* The same, from places that a tree finds in memory alone: not of values that it makes. */
bool graph_op_is_from_memory(base_op op);
/* Any but those that reduce: it may be in a tree (tile/tree.h). */
bool graph_op_is_in_trees(base_op op);
/* Do trees store what the node makes? */
bool graph_is_stored_by_trees(const graph_node *node);
const graph_tensor *graph_tensor_at(const graph *g, graph_value v);
uint64_t graph_element_bound(const graph_tensor *t);
bool graph_is_contiguous(const graph_tensor *t);
/* From an element to the next one along the axis: of views below 0 too, and 0 where that is the
 * same one. Kernels add `stride` modulo 2^32 instead. */
int64_t graph_stride(const graph_tensor *t, uint32_t axis);
/* nothing is broadcast */
bool graph_same_shape(const graph_tensor *a, const graph_tensor *b);
/* through views and in-place results */
graph_value graph_base_of(const graph *g, graph_value v);
/* No node from there on reads v or a view of it. */
size_t graph_readers_end(const graph *g, graph_value v);
/* The one node that reads intermediate v, and reads it whole; NULL: none, or several. */
const graph_node *graph_reader_of(const graph *g, graph_value v);

/* ---- runs ------------------------------------------------------------------------------------ */

/* All extents of a run, by index from [1], from the given ones: `extents` is read where they are,
 * and may be `values`. MISUSE: one is above its bound. */
beryl_status graph_extent_values(const graph *g, const uint32_t *extents, uint32_t *values,
                                 beryl_error *error);
uint32_t graph_dim_value(graph_dim dim, const uint32_t *values);
/* As bits, 1 << (extent - 1): those that are 0 in a run; those without which a node makes nothing.
 * A node that needs one that is 0 is not run. */
uint32_t graph_extents_empty(const graph *g, const uint32_t *values);
uint32_t graph_node_needs(const graph *g, const graph_node *node);

/* ---- text ------------------------------------------------------------------------------------ */

/* A line, for people and tests. */
void graph_print_node(const graph *g, const graph_node *node, base_text *out);

#endif
