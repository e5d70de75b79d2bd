/* fft.c - Fourier transforms of any length along any axis, forward and back, of complex and real
 * numbers.
 *
 * The one idea: lengths with small primes are one operation. Others are a convolution with a chirp,
 * by transforms of a power of two; chirps are constants, computed in double. */
#include "graph/build.h"

#include <math.h>
#include <string.h>

typedef struct transform {
    graph *g;
    base_type type;
    uint32_t n, n_out;      /* n_out: the first results that are asked for */
    int sign;               /* of the exponent */
    uint32_t over;          /* what FOURIER_.. says of the scale */
    bool real_in, real_out; /* real_out: the real part alone */
} transform;

bool graph_fourier_fits(uint32_t n) {
    if (!n || n > FOURIER_SIZE_MAX) return false;
    for (uint32_t p = 2; p <= FOURIER_PRIME_MAX; p++)
        while (n % p == 0) n /= p;
    return n == 1;
}

double graph_fourier_scale(uint32_t n, uint32_t how) {
    return how & FOURIER_OVER ? 1.0 / n : how & FOURIER_OVER_ROOT ? 1 / sqrt(n) : 1;
}

/* ---- constants ------------------------------------------------------------------------------- */

typedef struct complex_number {
    double re, im;
} complex_number;

/* exp(sign 2 pi i k / n) */
static complex_number root(const transform *t, uint64_t n, uint64_t k) {
    const double angle = 6.28318530717958647693 * (double)(k % n) / (double)n;
    return (complex_number){cos(angle), t->sign * sin(angle)};
}

static double *take(graph *g, uint64_t n) {
    double *x = base_heap_take(g->heap, (size_t)n * sizeof *x);
    if (!x) graph_no_memory(g);
    return x;
}

/* Gives x back. F64: what F32 has of it, and the rest. */
static graph_value constant(const transform *t, uint32_t n, double *x, uint32_t rank,
                            const uint32_t *sizes) {
    graph *g = t->g;
    graph_value part[2] = {0};
    graph_dim dims[GRAPH_RANK_MAX] = {{0}};
    float *f = base_heap_take(g->heap, n * sizeof *f);
    if (!f) graph_no_memory(g);
    for (uint32_t k = 0; f && k < (t->type == TYPE_F64 ? 2u : 1u); k++) {
        for (uint32_t i = 0; i < n; i++) {
            f[i] = (float)x[i];
            x[i] -= (double)f[i];
        }
        part[k] = graph_constant(g, n, f);
        if (part[k] && t->type == TYPE_F64) part[k] = graph_cast(g, part[k], TYPE_F64, false);
    }
    base_heap_give(g->heap, f, n * sizeof *f);
    base_heap_give(g->heap, x, n * sizeof *x);
    if (part[0] && part[1]) part[0] = graph_add(g, part[0], part[1]);
    for (uint32_t i = 0; i < rank; i++) dims[i].size = sizes[i];
    return part[0] ? graph_reshape(g, part[0], rank, dims) : 0;
}

/* ---- other lengths --------------------------------------------------------------------------- */

/* In place, of a power of two; sign of the exponent -1. */
static void host_fft(complex_number *x, uint32_t n) {
    const transform forward = {.sign = -1};
    for (uint32_t i = 1, k = 0; i < n; i++) {
        uint32_t bit = n >> 1;
        for (; k & bit; bit >>= 1) k ^= bit;
        k ^= bit;
        if (i >= k) continue;
        const complex_number held = x[i];
        x[i] = x[k];
        x[k] = held;
    }
    for (uint32_t half = 1; half < n; half *= 2)
        for (uint32_t k = 0; k < half; k++) {
            const complex_number w = root(&forward, UINT64_C(2) * half, k);
            for (uint32_t i = k; i < n; i += 2 * half) {
                complex_number *a = &x[i], *b = &x[i + half];
                const complex_number y = {b->re * w.re - b->im * w.im, b->re * w.im + b->im * w.re};
                *b = (complex_number){a->re - y.re, a->im - y.im};
                *a = (complex_number){a->re + y.re, a->im + y.im};
            }
        }
}

/* Root k^2 of 2 n. */
static complex_number chirp(const transform *t, uint32_t k) {
    return root(t, UINT64_C(2) * t->n, (uint64_t)k * k);
}

/* x with its parts (a real one: without) times numbers [n] along the axis; real_out: the real part
 * of it. */
static graph_value times(const transform *t, graph_value x, uint32_t axis, uint32_t n,
                         const complex_number *w, bool real_in, bool real_out) {
    graph *g = t->g;
    if (x && real_in) x = graph_unsqueeze(g, x, graph_tensor_at(g, x)->rank);
    if (!x) return 0;
    const uint32_t parts = graph_tensor_at(g, x)->rank - 1u;
    uint32_t sizes[GRAPH_RANK_MAX];
    for (uint32_t i = axis; i <= parts; i++) sizes[i - axis] = i == axis ? n : 1;
    double *same = take(g, n), *other = take(g, UINT64_C(2) * n);
    for (uint32_t i = 0; same && other && i < n; i++) {
        same[i] = w[i].re;
        other[2 * i] = real_in || real_out ? w[i].re : -w[i].im;
        other[2 * i + 1] = real_out ? -w[i].im : w[i].im;
    }
    graph_value a = 0, b = 0;
    if (same && other && !real_in && !real_out) {
        a = constant(t, n, same, parts + 1 - axis, sizes);
        same = NULL;
    }
    sizes[parts - axis] = 2;
    if (other && (a || real_in || real_out)) {
        b = constant(t, 2 * n, other, parts + 1 - axis, sizes);
        other = NULL;
    }
    if (same) base_heap_give(g->heap, same, n * sizeof *same);
    if (other) base_heap_give(g->heap, other, 2 * n * sizeof *other);
    if (!b) return 0;
    if (real_in) return graph_mul(g, x, b);
    if (real_out) {
        x = graph_reduce(g, OP_SUM, graph_mul(g, x, b), 1u << parts, 0);
        return x ? graph_squeeze(g, x, parts) : 0;
    }
    return graph_add(g, graph_mul(g, x, a), graph_mul(g, graph_flip(g, x, parts), b));
}

static graph_value by_chirp(const transform *t, graph_value x, uint32_t axis) {
    graph *g = t->g;
    const uint32_t n_in = graph_tensor_at(g, x)->dim[axis].size;
    uint32_t m = 1;
    while (m < 2 * (uint64_t)t->n - 1) m *= 2;
    complex_number *w = base_heap_take(g->heap, m * sizeof *w);
    if (!w) return graph_no_memory(g);
    for (uint32_t i = 0; i < n_in; i++) w[i] = chirp(t, i);
    x = times(t, x, axis, n_in, w, t->real_in, false);
    if (x) x = graph_fourier(g, x, axis, m, 0);
    memset(w, 0, m * sizeof *w);
    for (uint32_t i = 0; i < t->n; i++) {
        const complex_number c = chirp(t, i);
        w[i] = w[i ? m - i : 0] = (complex_number){c.re / m, -c.im / m};
    }
    host_fft(w, m);
    x = times(t, x, axis, m, w, false, false);
    if (x) x = graph_fourier(g, x, axis, m, FOURIER_BACK);
    if (x) x = graph_narrow(g, x, axis, 0, t->n_out, 1);
    const double scale = graph_fourier_scale(t->n, t->over);
    for (uint32_t i = 0; i < t->n_out; i++) {
        w[i] = chirp(t, i);
        w[i].re *= scale;
        w[i].im *= scale;
    }
    x = times(t, x, axis, t->n_out, w, false, t->real_out);
    base_heap_give(g->heap, w, m * sizeof *w);
    return x;
}

static graph_value transformed(const transform *t, graph_value x, uint32_t axis) {
    const uint32_t how = (t->sign > 0 ? FOURIER_BACK : 0) | (t->n_out < t->n ? FOURIER_HALF : 0) |
                         (t->real_in ? FOURIER_REAL_IN : 0) | (t->real_out ? FOURIER_REAL_OUT : 0) |
                         t->over;
    return graph_fourier_fits(t->n) ? graph_fourier(t->g, x, axis, t->n, how)
                                    : by_chirp(t, x, axis);
}

static uint32_t over_of(bool inverse, graph_fft_norm norm) {
    const bool divides = norm == (inverse ? FFT_BACKWARD : FFT_FORWARD);
    return norm == FFT_ORTHO ? FOURIER_OVER_ROOT : divides ? FOURIER_OVER : 0;
}

/* false: refused. parts: x's last axis are real and imaginary parts. */
static bool may_transform(graph *g, const char *what, graph_value x, uint32_t axis, bool parts,
                          graph_fft_norm norm) {
    char text[GRAPH_SHAPE_TEXT];
    if (!graph_has(g, x, what)) return false;
    const graph_tensor *t = graph_tensor_at(g, x);
    if (!base_type_is_float(t->type))
        return graph_refuse(g, BERYL_UNSUPPORTED, "%s of %s", what, base_type_name(t->type));
    const bool fits = (unsigned)norm <= FFT_ORTHO && t->rank >= 1u + parts &&
                      axis < t->rank - (unsigned)parts && !t->dim[axis].extent &&
                      (!parts || (t->dim[t->rank - 1].size == 2 && !t->dim[t->rank - 1].extent));
    return fits || graph_refuse(g, BERYL_MISUSE, "%s of %s along axis %u%s", what,
                                graph_shape_text(g, t->rank, t->dim, text), axis,
                                parts ? ": complex numbers have a last axis of 2" : "");
}

/* Halves are computed in F32. */
static graph_value run(transform t, graph_value x, uint32_t axis) {
    const base_type type = graph_tensor_at(t.g, x)->type;
    t.type = type == TYPE_F64 ? TYPE_F64 : TYPE_F32;
    if (type != t.type) x = graph_cast(t.g, x, TYPE_F32, false);
    if (x) x = transformed(&t, x, axis);
    return x && type != t.type ? graph_cast(t.g, x, type, false) : x;
}

graph_value graph_fft(graph *g, graph_value x, uint32_t axis, bool inverse, graph_fft_norm norm) {
    if (!may_transform(g, "fft", x, axis, true, norm)) return 0;
    const uint32_t n = graph_tensor_at(g, x)->dim[axis].size;
    return run(
        (transform){
            .g = g, .n = n, .n_out = n, .sign = inverse ? 1 : -1, .over = over_of(inverse, norm)},
        x, axis);
}

graph_value graph_rfft(graph *g, graph_value x, uint32_t axis, graph_fft_norm norm) {
    if (!may_transform(g, "rfft", x, axis, false, norm)) return 0;
    const uint32_t n = graph_tensor_at(g, x)->dim[axis].size;
    return run((transform){.g = g,
                           .n = n,
                           .n_out = n / 2 + 1,
                           .sign = -1,
                           .over = over_of(false, norm),
                           .real_in = true},
               x, axis);
}

/* The other half are the conjugates of this one: it counts twice, but for what is its own. */
graph_value graph_irfft(graph *g, graph_value x, uint32_t axis, uint32_t n, graph_fft_norm norm) {
    if (!may_transform(g, "irfft", x, axis, true, norm)) return 0;
    const graph_tensor from = *graph_tensor_at(g, x);
    const uint32_t half = n / 2 + 1;
    if (!n || from.dim[axis].size != half)
        return graph_refuse(g, BERYL_MISUSE, "irfft of %u numbers to %u, not of %u",
                            from.dim[axis].size, n, half);
    const transform t = {.g = g,
                         .type = from.type == TYPE_F64 ? TYPE_F64 : TYPE_F32,
                         .n = n,
                         .n_out = n,
                         .sign = 1,
                         .over = over_of(true, norm),
                         .real_out = true};
    if (from.type != t.type) x = graph_cast(g, x, TYPE_F32, false);
    double *w = take(g, half);
    if (!x || !w) return 0;
    for (uint32_t i = 0; i < half; i++) w[i] = i && 2 * (uint64_t)i != n ? 2 : 1;
    uint32_t sizes[GRAPH_RANK_MAX];
    for (uint32_t i = 0; i < from.rank; i++) sizes[i] = i == axis ? half : 1;
    x = graph_mul(g, x, constant(&t, half, w, from.rank, sizes));
    x = x ? run(t, x, axis) : 0;
    return x && from.type != t.type ? graph_cast(g, x, from.type, false) : x;
}
