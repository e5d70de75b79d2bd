/* signal.c - spectra of parts of a signal, and the signal of them.
 *
 * The one idea: parts are windows, a view, and where parts overlap their sum is a diagonal of
 * windows of parts; nothing is gathered or scattered. */
#include "graph/build.h"

#include <float.h>
#include <math.h>

static const graph_tensor *tensor(const graph *g, graph_value x) {
    return graph_tensor_at(g, x);
}

/* false: refused. axis: the last one that counts, of constant size. */
static bool has_parts(graph *g, const char *what, graph_value x, graph_value window, uint32_t size,
                      uint32_t step) {
    char text[GRAPH_SHAPE_TEXT];
    if (!graph_has(g, x, what)) return false;
    if (window && (tensor(g, window)->rank != 1 || tensor(g, window)->dim[0].extent ||
                   tensor(g, window)->dim[0].size != size))
        return graph_refuse(
            g, BERYL_MISUSE, "%s: a window of %s for parts of %u", what,
            graph_shape_text(g, tensor(g, window)->rank, tensor(g, window)->dim, text), size);
    return (size && step) ||
           graph_refuse(g, BERYL_MISUSE, "%s in parts of %u, %u apart", what, size, step);
}

graph_value graph_hann(graph *g, uint32_t size) {
    if (g->error.code != BERYL_OK || !size)
        return graph_refuse(g, BERYL_MISUSE, "a window of no elements");
    float *w = base_heap_take(g->heap, size * sizeof *w);
    if (!w) return graph_no_memory(g);
    for (uint32_t i = 0; i < size; i++)
        w[i] = (float)(0.5 - 0.5 * cos(6.28318530717958647693 * i / size));
    const graph_value v = graph_constant(g, size, w);
    base_heap_give(g->heap, w, size * sizeof *w);
    return v;
}

graph_value graph_stft(graph *g, graph_value x, graph_value window, uint32_t size, uint32_t step) {
    if (!has_parts(g, "stft", x, window, size, step)) return 0;
    const uint32_t rank = tensor(g, x)->rank;
    if (!rank) return graph_refuse(g, BERYL_MISUSE, "stft of a single number");
    x = graph_windows(g, x, rank - 1, size, step);
    if (x && window) x = graph_mul(g, x, window);
    return x ? graph_rfft(g, x, rank, FFT_BACKWARD) : 0;
}

/* x [.., n, size], each part `step` behind the one before it -> [.., (n - 1) * step + size]. */
static graph_value overlapped(graph *g, graph_value x, uint32_t step) {
    graph_dim dims[GRAPH_RANK_MAX];
    const graph_tensor t = *tensor(g, x);
    const uint32_t at = t.rank - 2u, n = t.dim[at].size, size = t.dim[at + 1].size,
                   pieces = (size + step - 1) / step;
    if (size % step) x = graph_pad(g, x, at + 1, 0, pieces * step - size, 0);
    for (uint32_t i = 0; i < t.rank; i++) dims[i] = t.dim[i];
    dims[at + 1] = (graph_dim){pieces, 0};
    dims[at + 2] = (graph_dim){step, 0};
    x = x ? graph_reshape(g, x, t.rank + 1u, dims) : 0;
    if (!x) return 0;
    if (pieces > 1) {
        /* [.., n + pieces - 1, piece, step, window]: piece i of the part i places before */
        x = graph_pad(g, x, at, pieces - 1, pieces - 1, 0);
        x = x ? graph_windows(g, x, at, pieces, 1) : 0;
        x = x ? graph_flip(g, x, at + 1) : 0;
        x = x ? graph_diagonal(g, x, at + 1, at + 3) : 0;
        x = x ? graph_reduce(g, OP_SUM, x, 1u << (at + 2), 0) : 0;
        x = x ? graph_squeeze(g, x, at + 2) : 0;
    } else {
        x = graph_squeeze(g, x, at + 1);
    }
    dims[at] = (graph_dim){(n + pieces - 1) * step, 0};
    x = x ? graph_reshape(g, x, at + 1, dims) : 0;
    return x ? graph_narrow(g, x, at, 0, (n - 1) * step + size, 1) : 0;
}

graph_value graph_istft(graph *g, graph_value x, graph_value window, uint32_t size, uint32_t step) {
    char text[GRAPH_SHAPE_TEXT];
    if (!has_parts(g, "istft", x, window, size, step)) return 0;
    const graph_tensor t = *tensor(g, x);
    if (t.rank < 3 || t.dim[t.rank - 3u].extent || t.rank > GRAPH_RANK_MAX - 1u)
        return graph_refuse(g, BERYL_MISUSE, "istft of %s",
                            graph_shape_text(g, t.rank, t.dim, text));
    const graph_dim frames[] = {t.dim[t.rank - 3u], {size, 0}};
    x = graph_irfft(g, x, t.rank - 2u, size, FFT_BACKWARD);
    if (x && window) x = graph_mul(g, x, window);
    if (x) x = overlapped(g, x, step);
    if (!x || (!window && step >= size)) return x;
    /* how often, by the windows' squares, each element is there */
    float one = 1;
    graph_value w = window ? graph_square(g, window) : graph_constant(g, 1, &one);
    w = w ? graph_expand(g, w, 2, frames) : 0;
    w = w ? overlapped(g, w, step) : 0;
    return w ? graph_div(g, x, graph_clamp(g, w, 1e-11f, FLT_MAX)) : 0;
}

graph_value graph_welch(graph *g, graph_value x, graph_value window, uint32_t size, uint32_t step,
                        float rate) {
    if (!has_parts(g, "welch", x, window, size, step)) return 0;
    const uint32_t rank = tensor(g, x)->rank, half = size / 2 + 1;
    if (!rank || rank >= GRAPH_RANK_MAX)
        return graph_refuse(g, BERYL_MISUSE, "welch of rank %u", rank);
    x = graph_windows(g, x, rank - 1, size, step); /* [.., parts, size] */
    x = x ? graph_sub(g, x, graph_reduce(g, OP_MEAN, x, 1u << rank, 0)) : 0;
    if (x && window) x = graph_mul(g, x, window);
    x = x ? graph_rfft(g, x, rank, FFT_BACKWARD) : 0; /* [.., parts, half, 2] */
    x = x ? graph_reduce(g, OP_SUM, graph_square(g, x), 1u << (rank + 1), 0) : 0;
    x = x ? graph_squeeze(g, x, rank + 1) : 0;
    x = x ? graph_reduce(g, OP_MEAN, x, 1u << (rank - 1), 0) : 0;
    x = x ? graph_squeeze(g, x, rank - 1) : 0;
    /* frequencies below 0 are in those above */
    float *twice = x ? base_heap_take(g->heap, half * sizeof *twice) : NULL;
    if (!twice) return x ? graph_no_memory(g) : 0;
    for (uint32_t i = 0; i < half; i++)
        twice[i] = (i && 2 * i != size ? 2 : 1) / (rate * (window ? 1 : (float)size));
    const graph_value by = graph_constant(g, half, twice);
    base_heap_give(g->heap, twice, half * sizeof *twice);
    x = by ? graph_mul(g, x, by) : 0;
    return x && window ? graph_div(g, x, graph_reduce(g, OP_SUM, graph_square(g, window), 1, 0))
                       : x;
}

graph_value graph_peaks(graph *g, graph_value x, uint32_t k, graph_value *indices) {
    char text[GRAPH_SHAPE_TEXT];
    *indices = 0;
    if (!graph_has(g, x, "peaks")) return 0;
    const graph_tensor t = *tensor(g, x);
    if (t.rank != 2 || t.dim[1].extent)
        return graph_refuse(g, BERYL_MISUSE, "peaks of %s",
                            graph_shape_text(g, t.rank, t.dim, text));
    const uint32_t n = t.dim[1].size;
    const graph_value around = graph_pad(g, x, 1, 1, 1, FLT_MAX);
    if (!around) return 0;
    const graph_value above = graph_gt(g, x, graph_narrow(g, around, 1, 0, n, 1)),
                      below = graph_ge(g, x, graph_narrow(g, around, 1, 2, n, 1));
    if (!above || !below) return 0;
    const graph_value is = graph_cast(g, graph_bit_and(g, above, below), TYPE_F32, false);
    return is ? graph_topk(g, graph_mul(g, x, is), k, indices) : 0;
}
