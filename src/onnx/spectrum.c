/* spectrum.c - Fourier transforms, of whole axes and of parts of a signal, and the matrix that
 * makes bands of them. Lengths, steps and axes are known while the graph is built. */
#include "graph/reference.h"
#include "onnx/operators.h"

#include <math.h>

enum { LENGTH_MAX = 1 << 24, BANDS_MAX = 1 << 10, BANDED_MAX = 1 << 16 };

/* An axis cut or filled with zeros to a length. */
static graph_value at_length(onnx_call *c, graph_value x, uint32_t axis, uint32_t length) {
    const uint32_t size = x ? onnx_tensor_of(c, x)->dim[axis].size : 0;
    if (!x || size == length) return x;
    return size > length ? graph_narrow(c->g, x, axis, 0, length, 1)
                         : graph_pad(c->g, x, axis, 0, length - size, 0);
}

/* x [.., n, .., 1 or 2]; one_sided: the first n / 2 + 1 frequencies alone; of those, backwards, the
 * real signal [.., 1]. */
static graph_value transformed(onnx_call *c, graph_value x, uint32_t axis, bool inverse,
                               bool one_sided) {
    graph *g = c->g;
    if (!x) return 0;
    const graph_tensor t = *onnx_tensor_of(c, x);
    const uint32_t last = t.rank - 1u;
    const bool real = t.dim[last].size == 1;
    if (real && one_sided && !inverse)
        return graph_rfft(g, graph_squeeze(g, x, last), axis, FFT_BACKWARD);
    if (real) x = graph_pad(g, x, last, 0, 1, 0);
    x = x ? graph_fft(g, x, axis, inverse, FFT_BACKWARD) : 0;
    return x && one_sided ? graph_narrow(g, x, axis, 0, t.dim[axis].size / 2 + 1, 1) : x;
}

static bool is_spectrum(onnx_call *c, const graph_tensor *t, uint32_t least) {
    if (!onnx_is_sized(c, t)) return false;
    const uint32_t parts = t->rank ? t->dim[t->rank - 1].size : 0;
    return (t->rank >= least && (parts == 1 || parts == 2)) ||
           onnx_refuse(c, "%u axes, the last of %u", t->rank, parts);
}

void onnx_dft(onnx_call *c) {
    graph_value x = onnx_in(c, 0);
    onnx_wholes length = {.n = 0}, axis = {.n = 0};
    base_type type;
    if (!x) return;
    const graph_tensor t = *onnx_tensor_of(c, x);
    if (!is_spectrum(c, &t, 2)) return;
    const bool inverse = onnx_whole(c, "inverse", 0), one_sided = onnx_whole(c, "onesided", 0);
    if (onnx_is_given(c, 1) && !onnx_wholes_of(c, 1, &length)) return;
    if (c->opset >= 20 && onnx_is_given(c, 2) && !onnx_wholes_of(c, 2, &axis)) return;
    const int64_t said = axis.n ? axis.at[0] : c->opset >= 20 ? -2 : onnx_whole(c, "axis", 1);
    const uint32_t at = onnx_axis(c, said, t.rank);
    if (at == UINT32_MAX) return;
    const int64_t usual = inverse && one_sided ? 2 * ((int64_t)t.dim[at].size - 1) : t.dim[at].size,
                  n = length.n ? length.at[0] : usual;
    if (at + 1u == t.rank || n < 1 || n > LENGTH_MAX) {
        onnx_refuse(c, "a transform of %lld along axis %u", (long long)n, at);
        return;
    }
    x = onnx_wide(c, x, &type);
    if (inverse && one_sided) {
        if (t.dim[t.rank - 1].size == 1) x = graph_pad(c->g, x, t.rank - 1u, 0, 1, 0);
        x = at_length(c, x, at, (uint32_t)n / 2 + 1);
        x = x ? graph_irfft(c->g, x, at, (uint32_t)n, FFT_BACKWARD) : 0;
        if (x) x = graph_unsqueeze(c->g, x, t.rank - 1u);
    } else {
        x = transformed(c, at_length(c, x, at, (uint32_t)n), at, inverse, one_sided);
    }
    onnx_give(c, 0, onnx_as(c, x, type));
}

/* signal [b, n, 1 or 2] -> [b, frames, frequencies, 2]. */
void onnx_stft(onnx_call *c) {
    graph *g = c->g;
    graph_value x = onnx_in(c, 0), window = onnx_or_none(c, 2);
    onnx_wholes step, length = {.n = 0};
    base_type type, was;
    if (!x || g->error.code != BERYL_OK || !onnx_wholes_of(c, 1, &step)) return;
    const graph_tensor t = *onnx_tensor_of(c, x);
    if (!is_spectrum(c, &t, 3)) return;
    if (onnx_is_given(c, 3) && !onnx_wholes_of(c, 3, &length)) return;
    const uint32_t in_window = window ? onnx_tensor_of(c, window)->dim[0].size : 0;
    const int64_t n = length.n ? length.at[0] : window ? in_window : t.dim[1].size;
    if (t.rank != 3 || step.n != 1 || step.at[0] < 1 || step.at[0] > LENGTH_MAX || n < 1 ||
        n > t.dim[1].size || (window && in_window != n)) {
        onnx_refuse(c, "frames of %lld of a signal of %u, and a window of %u", (long long)n,
                    t.dim[1].size, in_window);
        return;
    }
    x = onnx_wide(c, x, &type);
    x = graph_windows(g, x, 1, (uint32_t)n, (uint32_t)step.at[0]); /* [b, frame, 1 or 2, n] */
    if (x && window)
        x = onnx_op2(c, OP_MUL, x,
                     onnx_as(c, onnx_wide(c, window, &was), onnx_tensor_of(c, x)->type));
    x = x ? graph_permute(g, x, 4, (uint32_t[]){0, 1, 3, 2}) : 0;
    onnx_give(c, 0, onnx_as(c, transformed(c, x, 2, false, onnx_whole(c, "onesided", 1)), type));
}

/* Triangles over frequencies, a column each: from one of the bands' borders to the next but one. */
static void triangle(double *column, size_t step, uint32_t n, const int64_t *at) {
    for (int64_t j = at[0]; j <= at[1] && j < n; j++)
        column[(size_t)j * step] =
            at[1] > at[0] ? (double)(j - at[0]) / (double)(at[1] - at[0]) : 1;
    for (int64_t j = at[1]; j < at[2] && j < n; j++)
        column[(size_t)j * step] = (double)(at[2] - j) / (double)(at[2] - at[1]);
}

void onnx_mel_weights(onnx_call *c) {
    double in[5]; /* bands, length of the transform, rate, lowest and highest frequency */
    size_t count;
    base_type type;
    for (size_t k = 0; k < 5; k++)
        if (!onnx_reals_of(c, k, &in[k], 1, &count) || count != 1) {
            onnx_refuse(c, "input %zu is to be a number", k + 1);
            return;
        }
    if (!(in[0] >= 1 && in[0] <= BANDS_MAX && in[1] >= 1 && in[1] <= BANDED_MAX && in[2] >= 1 &&
          in[2] <= 1e9 && in[3] >= 0 && in[4] > in[3] && in[4] <= in[2]) ||
        !onnx_type_of((uint32_t)onnx_whole(c, "output_datatype", 1), &type) ||
        !base_type_is_float(type)) {
        onnx_refuse(c, "bands that cannot be");
        return;
    }
    const uint32_t bands = (uint32_t)in[0], n = (uint32_t)in[1] / 2 + 1;
    const double low = 2595 * log10(1 + in[3] / 700), high = 2595 * log10(1 + in[4] / 700),
                 step = (high - low) / (bands + 2.0);
    onnx_array *a = onnx_array_make(c, type, 2, (uint32_t[]){n, bands});
    int64_t *at = a ? base_arena_take(c->arena, bands + 2, sizeof *at) : NULL;
    double *weights = at ? base_arena_take(c->arena, (size_t)n * bands, sizeof *weights) : NULL;
    if (!weights) {
        if (a) graph_no_memory(c->g);
        return;
    }
    for (size_t i = 0; i < (size_t)n * bands; i++) weights[i] = 0;
    for (uint32_t i = 0; i < bands + 2; i++) {
        const double hertz = 700 * (pow(10, (low + i * step) / 2595) - 1);
        at[i] = (int64_t)floor((in[1] + 1) * hertz / in[2]);
    }
    for (uint32_t i = 0; i < bands; i++) triangle(weights + i, bands, n, at + i);
    const uint32_t bytes = base_type_block_bytes(type);
    for (size_t i = 0; i < (size_t)n * bands; i++)
        reference_put(type, (char *)(uintptr_t)a->data + i * bytes,
                      (reference_number){weights[i], 0});
    onnx_give_array(c, 0, a);
}
