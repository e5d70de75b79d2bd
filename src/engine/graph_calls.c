/* graph_calls.c - the operations of beryl_graph.h: each is the graph's own, where building is
 * allowed. */
#include "engine/graph_api.h"

#include <string.h>

/* As the graph has it, where building is allowed. */
#define CALL(name, params, ...)                                        \
    beryl_value beryl_graph_##name params {                            \
        return graph_api_may_build(g) ? graph_##name(__VA_ARGS__) : 0; \
    }

beryl_value beryl_graph_reshape(beryl_graph *g, beryl_value x, uint32_t rank,
                                const beryl_dim *dims) {
    graph_dim d[GRAPH_RANK_MAX];
    return graph_api_may_build(g) && graph_api_dims(g, "reshape", rank, dims, d)
               ? graph_reshape(g->g, x, rank, d)
               : 0;
}

beryl_value beryl_graph_cast(beryl_graph *g, beryl_value x, beryl_type type, bool wrap) {
    if (!graph_api_may_build(g)) return 0;
    if ((unsigned)type >= TYPE_KNOWN)
        return graph_api_refuse(g, BERYL_UNSUPPORTED, "no such type", "cast");
    return graph_cast(g->g, x, graph_api_types[type], wrap);
}

/* ---- reductions ------------------------------------------------------------------------------ */

/* Bits of the axes, of all where none are given; 0: refused. */
static uint32_t axes_of(beryl_graph *g, beryl_value x, const char *name, const uint32_t *axes,
                        uint32_t n) {
    const uint32_t rank = graph_tensor_at(g->g, x)->rank;
    uint32_t bits = n ? 0 : (1u << rank) - 1;
    for (uint32_t i = 0; i < n; i++) {
        if (!axes || axes[i] >= rank || bits >> axes[i] & 1)
            return graph_api_refuse(g, BERYL_MISUSE, "an axis that x has not, or twice the same",
                                    name);
        bits |= 1u << axes[i];
    }
    return bits ? bits : graph_api_refuse(g, BERYL_MISUSE, "x is a single number", name);
}

/* Without the axes, which have size 1, if they are not to be kept. */
static beryl_value reduced(beryl_graph *g, graph_value v, uint32_t bits, bool keep) {
    for (uint32_t i = GRAPH_RANK_MAX; v && !keep && i-- > 0;)
        if (bits >> i & 1) v = graph_squeeze(g->g, v, i);
    return v;
}

#define REDUCTION(name, made)                                                                  \
    beryl_value beryl_graph_##name(beryl_graph *g, beryl_value x, const uint32_t *axes,        \
                                   uint32_t n_axes, bool keep) {                               \
        const uint32_t bits = graph_api_may_build(g) ? axes_of(g, x, #name, axes, n_axes) : 0; \
        return bits ? reduced(g, made, bits, keep) : 0;                                        \
    }
REDUCTION(sum, graph_reduce(g->g, OP_SUM, x, bits, 0))
REDUCTION(mean, graph_reduce(g->g, OP_MEAN, x, bits, 0))
REDUCTION(prod, graph_reduce(g->g, OP_PROD, x, bits, 0))
REDUCTION(amax, graph_reduce(g->g, OP_AMAX, x, bits, 0))
REDUCTION(amin, graph_reduce(g->g, OP_AMIN, x, bits, 0))
REDUCTION(any, graph_reduce(g->g, OP_ANY, x, bits, 0))
REDUCTION(all, graph_reduce(g->g, OP_ALL, x, bits, 0))
REDUCTION(norm, graph_norm(g->g, x, bits))
REDUCTION(logsumexp, graph_logsumexp(g->g, x, bits))

#define DEVIATION(name)                                                                        \
    beryl_value beryl_graph_##name(beryl_graph *g, beryl_value x, const uint32_t *axes,        \
                                   uint32_t n_axes, uint32_t correction, bool keep) {          \
        const uint32_t bits = graph_api_may_build(g) ? axes_of(g, x, #name, axes, n_axes) : 0; \
        return bits ? reduced(g, graph_##name(g->g, x, bits, correction), bits, keep) : 0;     \
    }
DEVIATION(var)
DEVIATION(std)

beryl_value beryl_graph_log_softmax(beryl_graph *g, beryl_value x, uint32_t axis) {
    if (!graph_api_may_build(g) || !axes_of(g, x, "log_softmax", &axis, 1)) return 0;
    return graph_log_softmax(g->g, x, axis);
}

beryl_value beryl_graph_l2_norm(beryl_graph *g, beryl_value x, uint32_t axis, float eps) {
    if (!graph_api_may_build(g) || !axes_of(g, x, "l2_norm", &axis, 1)) return 0;
    return graph_l2_norm(g->g, x, axis, eps);
}

beryl_value beryl_graph_argmax(beryl_graph *g, beryl_value x, uint32_t axis, bool keep) {
    if (!graph_api_may_build(g)) return 0;
    return reduced(g, graph_arg(g->g, x, axis, true), 1u << axis % 32, keep);
}

beryl_value beryl_graph_argmin(beryl_graph *g, beryl_value x, uint32_t axis, bool keep) {
    if (!graph_api_may_build(g)) return 0;
    return reduced(g, graph_arg(g->g, x, axis, false), 1u << axis % 32, keep);
}

/* ---- rows in order --------------------------------------------------------------------------- */

beryl_value beryl_graph_sort(beryl_graph *g, beryl_value x, uint32_t axis, bool descending,
                             beryl_value *indices) {
    graph_value other = 0;
    const beryl_value values =
        graph_api_may_build(g) ? graph_sort(g->g, x, axis, descending, &other) : 0;
    if (indices) *indices = other;
    return values;
}

beryl_value beryl_graph_argsort(beryl_graph *g, beryl_value x, uint32_t axis, bool descending) {
    beryl_value indices;
    beryl_graph_sort(g, x, axis, descending, &indices);
    return indices;
}

beryl_value beryl_graph_topk(beryl_graph *g, beryl_value x, uint32_t k, uint32_t axis,
                             beryl_value *indices) {
    graph_value other = 0;
    const beryl_value values =
        graph_api_may_build(g) ? graph_topk_along(g->g, x, k, axis, &other) : 0;
    if (indices) *indices = other;
    return values;
}

beryl_value beryl_graph_permute(beryl_graph *g, beryl_value x, uint32_t rank,
                                const uint32_t *axes) {
    if (graph_api_may_build(g) && rank && !axes)
        return graph_api_refuse(g, BERYL_MISUSE, "no axes are given", "permute");
    return graph_api_may_build(g) ? graph_permute(g->g, x, rank, axes) : 0;
}

beryl_value beryl_graph_expand(beryl_graph *g, beryl_value x, uint32_t rank,
                               const beryl_dim *dims) {
    graph_dim d[GRAPH_RANK_MAX];
    return graph_api_may_build(g) && graph_api_dims(g, "expand", rank, dims, d)
               ? graph_expand(g->g, x, rank, d)
               : 0;
}

CALL(narrow,
     (beryl_graph * g, beryl_value x, uint32_t axis, uint32_t start, uint32_t size, uint32_t step),
     g->g, x, axis, start, size, step)

void beryl_graph_split(beryl_graph *g, beryl_value x, uint32_t axis, uint32_t n,
                       beryl_value *parts) {
    for (uint32_t i = 0; parts && i < n; i++) parts[i] = 0;
    if (!graph_api_may_build(g)) return;
    if (parts) graph_split(g->g, x, axis, n, parts);
    else graph_api_refuse(g, BERYL_MISUSE, "no place for the parts", "split");
}

CALL(flip, (beryl_graph * g, beryl_value x, uint32_t axis), g->g, x, axis)
CALL(diagonal, (beryl_graph * g, beryl_value x, uint32_t axis, uint32_t other), g->g, x, axis,
     other)

beryl_value beryl_graph_attention(beryl_graph *g, beryl_value q, beryl_value k, beryl_value v,
                                  beryl_value slot, beryl_value pos, float scale, uint32_t window) {
    return graph_api_may_build(g) ? graph_attention(g->g, q, k, v, slot, pos, scale, window) : 0;
}

beryl_value beryl_graph_attention_range(beryl_graph *g, beryl_value q, beryl_value k, beryl_value v,
                                        beryl_value slot, beryl_value first, beryl_value last,
                                        float scale) {
    return graph_api_may_build(g) ? graph_attention_range(g->g, q, k, v, slot, first, last, scale)
                                  : 0;
}

CALL(windows, (beryl_graph * g, beryl_value x, uint32_t axis, uint32_t size, uint32_t step), g->g,
     x, axis, size, step)
CALL(squeeze, (beryl_graph * g, beryl_value x, uint32_t axis), g->g, x, axis)
CALL(unsqueeze, (beryl_graph * g, beryl_value x, uint32_t axis), g->g, x, axis)

static bool are_given(beryl_graph *g, const char *what, uint32_t n, const beryl_value *x) {
    return graph_api_may_build(g) &&
           (x || graph_api_refuse(g, BERYL_MISUSE, n ? "no values" : "of nothing", what));
}

beryl_value beryl_graph_concat(beryl_graph *g, uint32_t n, const beryl_value *x, uint32_t axis) {
    return are_given(g, "concat", n, x) ? graph_concat(g->g, n, x, axis) : 0;
}

beryl_value beryl_graph_stack(beryl_graph *g, uint32_t n, const beryl_value *x, uint32_t axis) {
    return are_given(g, "stack", n, x) ? graph_stack(g->g, n, x, axis) : 0;
}

CALL(roll, (beryl_graph * g, beryl_value x, uint32_t axis, uint32_t by), g->g, x, axis, by)
CALL(tile, (beryl_graph * g, beryl_value x, uint32_t axis, uint32_t times), g->g, x, axis, times)
CALL(repeat, (beryl_graph * g, beryl_value x, uint32_t axis, uint32_t times), g->g, x, axis, times)

/* ---- Fourier transforms ---------------------------------------------------------------------- */

CALL(fft, (beryl_graph * g, beryl_value x, uint32_t axis, bool inverse, beryl_fft_norm norm), g->g,
     x, axis, inverse, (graph_fft_norm)norm)
CALL(rfft, (beryl_graph * g, beryl_value x, uint32_t axis, beryl_fft_norm norm), g->g, x, axis,
     (graph_fft_norm)norm)
CALL(irfft, (beryl_graph * g, beryl_value x, uint32_t axis, uint32_t n, beryl_fft_norm norm), g->g,
     x, axis, n, (graph_fft_norm)norm)
CALL(hann, (beryl_graph * g, uint32_t size), g->g, size)
CALL(stft, (beryl_graph * g, beryl_value x, beryl_value window, uint32_t size, uint32_t step), g->g,
     x, window, size, step)
CALL(istft, (beryl_graph * g, beryl_value x, beryl_value window, uint32_t size, uint32_t step),
     g->g, x, window, size, step)
CALL(welch,
     (beryl_graph * g, beryl_value x, beryl_value window, uint32_t size, uint32_t step, float rate),
     g->g, x, window, size, step, rate)

beryl_value beryl_graph_peaks(beryl_graph *g, beryl_value x, uint32_t k, beryl_value *indices) {
    graph_value places = 0;
    const graph_value v = graph_api_may_build(g) ? graph_peaks(g->g, x, k, &places) : 0;
    if (indices) *indices = places;
    return v;
}

/* ---- neighbours ------------------------------------------------------------------------------ */

CALL(pairwise_distance, (beryl_graph * g, beryl_value a, beryl_value b, beryl_distance kind), g->g,
     a, b, (graph_distance)kind)

beryl_value beryl_graph_knn(beryl_graph *g, beryl_value x, beryl_value queries, uint32_t k,
                            beryl_distance kind, beryl_value *indices) {
    graph_value places = 0;
    const graph_value v =
        graph_api_may_build(g) ? graph_knn(g->g, x, queries, k, (graph_distance)kind, &places) : 0;
    if (indices) *indices = places;
    return v;
}

CALL(umap_weights, (beryl_graph * g, beryl_value distances, beryl_value indices), g->g, distances,
     indices)

/* ---- random numbers -------------------------------------------------------------------------- */

CALL(key, (beryl_graph * g, uint64_t seed), g->g, seed)

/* false: refused. */
static bool may_draw(beryl_graph *g, const char *name, beryl_type type, uint32_t rank,
                     const beryl_dim *dims, graph_dim *to) {
    if (!graph_api_may_build(g)) return false;
    if ((unsigned)type >= TYPE_KNOWN)
        return graph_api_refuse(g, BERYL_UNSUPPORTED, "no such type", name);
    return graph_api_dims(g, name, rank, dims, to);
}

/* The call `made` of the graph, whose shape is d. */
#define RANDOM(name, type, made)           \
    graph_dim d[GRAPH_RANK_MAX];           \
    const graph_draw draw = {key, stream}; \
    return may_draw(g, name, type, rank, dims, d) ? made : 0;

beryl_value beryl_graph_random_bits(beryl_graph *g, beryl_value key, uint32_t stream, uint32_t rank,
                                    const beryl_dim *dims){
    RANDOM("random_bits", BERYL_TYPE_U32, graph_random_bits(g->g, draw, rank, d))}

beryl_value
    beryl_graph_random_uniform(beryl_graph *g, beryl_value key, uint32_t stream, beryl_type type,
                               float low, float high, uint32_t rank, const beryl_dim *dims){
        RANDOM("random_uniform", type,
               graph_random_uniform(g->g, draw, graph_api_types[type], low, high, rank, d))}

beryl_value
    beryl_graph_random_normal(beryl_graph *g, beryl_value key, uint32_t stream, beryl_type type,
                              float mean, float deviation, uint32_t rank, const beryl_dim *dims){
        RANDOM("random_normal", type,
               graph_random_normal(g->g, draw, graph_api_types[type], mean, deviation, rank, d))}

beryl_value beryl_graph_bernoulli(beryl_graph *g, beryl_value key, uint32_t stream, float chance,
                                  uint32_t rank, const beryl_dim *dims){
    RANDOM("bernoulli", BERYL_TYPE_BOOL, graph_bernoulli(g->g, draw, chance, rank, d))}

beryl_value
    beryl_graph_categorical(beryl_graph *g, beryl_value key, uint32_t stream, beryl_value logits) {
    return graph_api_may_build(g) ? graph_categorical(g->g, (graph_draw){key, stream}, logits) : 0;
}

#define FIRST_WEIGHTS(name, xavier, normal)                                                        \
    beryl_value beryl_graph_##name(beryl_graph *g, beryl_value key, uint32_t stream,               \
                                   beryl_type type, float gain, uint32_t rank,                     \
                                   const beryl_dim *dims) {                                        \
        RANDOM(#name, type,                                                                        \
               graph_random_weights(g->g, draw, graph_api_types[type], xavier, normal, gain, rank, \
                                    d))                                                            \
    }
FIRST_WEIGHTS(xavier_uniform, true, false)
FIRST_WEIGHTS(xavier_normal, true, true)
FIRST_WEIGHTS(kaiming_uniform, false, false)
FIRST_WEIGHTS(kaiming_normal, false, true)
/* ---- by index -------------------------------------------------------------------------------- */

beryl_value beryl_graph_index_select(beryl_graph *g, beryl_value x, beryl_value ids,
                                     uint32_t axis) {
    return graph_api_may_build(g) ? graph_index_select(g->g, x, ids, axis) : 0;
}

beryl_value beryl_graph_index_add(beryl_graph *g, beryl_value x, beryl_value ids,
                                  beryl_value updates, uint32_t axis) {
    return graph_api_may_build(g) ? graph_index_add(g->g, x, ids, updates, axis) : 0;
}

beryl_value beryl_graph_masked_fill(beryl_graph *g, beryl_value x, beryl_value mask, float value) {
    return graph_api_may_build(g) ? graph_masked_fill(g->g, x, mask, value) : 0;
}

beryl_value beryl_graph_nonzero(beryl_graph *g, beryl_value x, beryl_value *count) {
    graph_value n = 0;
    const beryl_value list = graph_api_may_build(g) ? graph_nonzero(g->g, x, &n) : 0;
    if (count) *count = n;
    return list;
}

/* ---- products -------------------------------------------------------------------------------- */

beryl_value beryl_graph_matmul(beryl_graph *g, beryl_value a, beryl_value b, bool transpose_a,
                               bool transpose_b) {
    return graph_api_may_build(g) ? graph_matmul(g->g, a, b, transpose_a, transpose_b) : 0;
}

beryl_value beryl_graph_einsum(beryl_graph *g, const char *letters, uint32_t n,
                               const beryl_value *x) {
    if (!are_given(g, "einsum", n, x)) return 0;
    return letters ? graph_einsum(g->g, letters, n, x)
                   : graph_api_refuse(g, BERYL_MISUSE, "no letters", "einsum");
}

/* false: refused. */
static bool windows_of(beryl_graph *g, const char *what, uint32_t n_axis, const beryl_window *from,
                       graph_window to[3]) {
    if (!graph_api_may_build(g)) return false;
    if (!n_axis || n_axis > 3 || !from)
        return graph_api_refuse(g, BERYL_MISUSE, "windows along 1 to 3 axes", what);
    for (uint32_t i = 0; i < n_axis; i++)
        to[i] = (graph_window){from[i].size, from[i].stride, from[i].dilation, from[i].pad_before,
                               from[i].pad_after};
    return true;
}

beryl_value beryl_graph_conv(beryl_graph *g, beryl_value x, beryl_value weight, uint32_t n_axis,
                             const beryl_window *windows, uint32_t groups) {
    graph_window w[3];
    return windows_of(g, "conv", n_axis, windows, w)
               ? graph_conv(g->g, x, weight, n_axis, w, groups)
               : 0;
}

beryl_value beryl_graph_max_pool(beryl_graph *g, beryl_value x, uint32_t n_axis,
                                 const beryl_window *windows) {
    graph_window w[3];
    return windows_of(g, "max_pool", n_axis, windows, w) ? graph_max_pool(g->g, x, n_axis, w) : 0;
}

beryl_value beryl_graph_avg_pool(beryl_graph *g, beryl_value x, uint32_t n_axis,
                                 const beryl_window *windows) {
    graph_window w[3];
    return windows_of(g, "avg_pool", n_axis, windows, w) ? graph_avg_pool(g->g, x, n_axis, w) : 0;
}

beryl_value beryl_graph_conv_transpose(beryl_graph *g, beryl_value x, beryl_value weight,
                                       uint32_t n_axis, const beryl_window *windows,
                                       const uint32_t *more, uint32_t groups) {
    graph_window w[3];
    return windows_of(g, "conv_transpose", n_axis, windows, w)
               ? graph_conv_transpose(g->g, x, weight, n_axis, w, more, groups)
               : 0;
}

beryl_value beryl_graph_im2col(beryl_graph *g, beryl_value x, uint32_t n_axis,
                               const beryl_window *windows) {
    graph_window w[3];
    return windows_of(g, "im2col", n_axis, windows, w) ? graph_im2col(g->g, x, n_axis, w) : 0;
}

beryl_value beryl_graph_pool(beryl_graph *g, beryl_value x, uint32_t n_axis,
                             const beryl_window *windows, const beryl_pool *how) {
    graph_window w[3];
    return windows_of(g, "pool", n_axis, windows, w)
               ? graph_pool(g->g, x, n_axis, w,
                            how ? (graph_pool_how){how->mean, how->partial, how->inside}
                                : (graph_pool_how){0})
               : 0;
}

beryl_value beryl_graph_adaptive_avg_pool(beryl_graph *g, beryl_value x, uint32_t n_axis,
                                          const uint32_t *sizes) {
    if (!graph_api_may_build(g)) return 0;
    return sizes ? graph_adaptive_avg_pool(g->g, x, n_axis, sizes)
                 : graph_api_refuse(g, BERYL_MISUSE, "no sizes", "adaptive_avg_pool");
}

/* ---- norms, gates, scans --------------------------------------------------------------------- */

beryl_value beryl_graph_batch_norm(beryl_graph *g, beryl_value x, beryl_value mean,
                                   beryl_value variance, beryl_value weight, beryl_value bias,
                                   float eps) {
    return graph_api_may_build(g) ? graph_batch_norm(g->g, x, mean, variance, weight, bias, eps)
                                  : 0;
}

beryl_value beryl_graph_batch_norm_training(beryl_graph *g, beryl_value x, beryl_value weight,
                                            beryl_value bias, float eps, beryl_value *mean,
                                            beryl_value *variance) {
    beryl_value made[2];
    return graph_api_may_build(g)
               ? graph_batch_norm_training(g->g, x, weight, bias, eps, mean ? mean : &made[0],
                                           variance ? variance : &made[1])
               : 0;
}

beryl_value beryl_graph_gated(beryl_graph *g, beryl_value x, uint32_t axis, beryl_gate gate) {
    static const base_op ops[] = {OP_GLU, OP_SWIGLU, OP_GEGLU, OP_QUICK_GEGLU};
    if (!graph_api_may_build(g)) return 0;
    return (uint32_t)gate < sizeof ops / sizeof *ops
               ? graph_gated(g->g, x, axis, ops[gate])
               : graph_api_refuse(g, BERYL_MISUSE, "no gate", "gated");
}

beryl_value beryl_graph_sum_of_squares(beryl_graph *g, uint32_t n, const beryl_value *x) {
    return are_given(g, "sum_of_squares", n, x) ? graph_sum_of_squares(g->g, n, x) : 0;
}

beryl_value beryl_graph_softmax_along(beryl_graph *g, beryl_value x, uint32_t axis) {
    return graph_api_may_build(g) ? graph_softmax_along(g->g, x, axis) : 0;
}

beryl_value beryl_graph_scan(beryl_graph *g, beryl_value x, uint32_t axis, beryl_scan scan,
                             bool exclusive, bool backwards) {
    static const base_op ops[] = {OP_CUMSUM, OP_CUMPROD, OP_CUMMAX, OP_CUMMIN};
    if (!graph_api_may_build(g)) return 0;
    return (uint32_t)scan < sizeof ops / sizeof *ops
               ? graph_scan(g->g, x, axis, ops[scan], exclusive, backwards)
               : graph_api_refuse(g, BERYL_MISUSE, "no scan", "scan");
}

/* ---- products -------------------------------------------------------------------------------- */

/* Halves times halves that lie in memory as they are: a matmul; other factors by way of F32. */
beryl_value beryl_graph_linear(beryl_graph *g, beryl_value x, beryl_value w) {
    if (!graph_api_may_build(g)) return 0;
    const bool given = x && w && graph_has(g->g, x, "linear") && graph_has(g->g, w, "linear");
    const base_type type = given ? graph_tensor_at(g->g, x)->type : TYPE_F32;
    if (type != TYPE_F16 && type != TYPE_BF16) return graph_linear(g->g, x, w);
    const graph_tensor *b = graph_tensor_at(g->g, w);
    if (b->type == type && b->rank == 2 &&
        graph_tensor_at(g->g, graph_base_of(g->g, w))->role != ROLE_STORED)
        return graph_matmul(g->g, x, w, false, true);
    x = graph_linear(g->g, graph_cast(g->g, x, TYPE_F32, false), w);
    return graph_cast(g->g, x, type, false);
}

/* ---- sequences ------------------------------------------------------------------------------- */

beryl_value beryl_graph_sdpa(beryl_graph *g, beryl_value q, beryl_value k, beryl_value v,
                             beryl_value mask, const beryl_sdpa *how) {
    if (!graph_api_may_build(g)) return 0;
    const beryl_sdpa h = how ? *how : (beryl_sdpa){0};
    return graph_attend(g->g, q, k, v, mask,
                        &(graph_sdpa){h.scale, h.cap, h.causal, h.window, h.first});
}

beryl_value beryl_graph_local_attention(beryl_graph *g, beryl_value q, beryl_value k, beryl_value v,
                                        beryl_value far, uint32_t window, float scale, float cap) {
    return graph_api_may_build(g) ? graph_local_attention(g->g, q, k, v, far, window, scale, cap)
                                  : 0;
}

beryl_value beryl_graph_rotate(beryl_graph *g, beryl_value x, uint32_t n,
                               const beryl_value *cosines, const beryl_value *sines, bool pairs) {
    return are_given(g, "rotate", n, cosines) && are_given(g, "rotate", n, sines)
               ? graph_rotate(g->g, x, n, cosines, sines, pairs)
               : 0;
}

#define DEFINE_USUAL(NAME, name, most, in, attrs, names)                                          \
    beryl_value beryl_graph_##name(beryl_graph *g OP_INPUTS_##most in OP_PARAMS_##attrs names) {  \
        return graph_api_may_build(g) ? graph_op(g->g, OP_##NAME, (graph_value[]){OP_LIST in},    \
                                                 (graph_attrs){.name = {OP_NAMES_##attrs names}}) \
                                      : 0;                                                        \
    }
#define DEFINE_INNER(...)
#define DEFINE_OWN(...)
#define DEFINE_NONE(...)
#define X(NAME, name, group, least, most, in, letters, out, attrs, names, values, call, ...) \
    DEFINE_##call(NAME, name, most, in, attrs, names)
BASE_OP_LIST(X)
#undef X
