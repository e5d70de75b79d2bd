/* fft.c - Fourier transforms of any length along any axis, forward and back, of complex and real
 * numbers.
 *
 * The one idea: a length that is a product of small factors is as many products with small
 * matrices. With `done` of them behind it, a transform is [done, rest]: for each of `done`
 * frequencies the sums over elements that lie `rest` apart. The next factor f takes f of the rest,
 * each turned by its root of unity, and makes f times as many frequencies, in their order: nothing
 * is ever sorted. Between factors real and imaginary parts lie apart, so that rows are dense.
 * Other lengths are a convolution with a chirp, by transforms of a power of two. Roots are
 * constants, computed in double. */
#include "graph/build.h"

#include <math.h>
#include <string.h>

enum {
    PRIME_MAX = 61,  /* factor of a product */
    WHOLE_MAX = 256, /* length that is one product, whatever its factors are */
    FACTOR_MAX = 64, /* of several primes */
    BATCH_MAX = 4,   /* axes beside the transformed one; more are joined */
    FEW = 16,        /* rows for which matrices that hold the turns too are read once and again */
    TURNED_MAX = 1 << 18 /* numbers of such matrices */
};

typedef struct transform {
    graph *g;
    base_type type;
    uint32_t n, n_out, n_batch; /* n_out: the first results that are asked for */
    int sign;                   /* of the exponent */
    double scale;
    bool real_in, real_out; /* real_out: the real part alone */
} transform;

typedef struct factors {
    uint32_t n, f[32];
} factors;

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
    if (!x) graph_refuse(g, BERYL_NO_MEMORY, "out of host memory");
    return x;
}

/* Gives x back. F64: what F32 has of it, and the rest. */
static graph_value constant(const transform *t, uint32_t n, double *x, uint32_t rank,
                            const uint32_t *sizes) {
    graph *g = t->g;
    graph_value part[2] = {0};
    graph_dim dims[GRAPH_RANK_MAX] = {{0}};
    float *f = base_heap_take(g->heap, n * sizeof *f);
    if (!f) graph_refuse(g, BERYL_NO_MEMORY, "out of host memory");
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

/* ---- views ----------------------------------------------------------------------------------- */

/* Axes behind the batch of these sizes. */
static graph_value shaped(const transform *t, graph_value x, uint32_t n, const uint32_t *sizes) {
    if (!x) return 0;
    graph_dim dims[GRAPH_RANK_MAX];
    memcpy(dims, graph_tensor_at(t->g, x)->dim, t->n_batch * sizeof *dims);
    for (uint32_t i = 0; i < n; i++) dims[t->n_batch + i] = (graph_dim){sizes[i], 0};
    return graph_reshape(t->g, x, t->n_batch + n, dims);
}

/* Axes behind the batch in another order. */
static graph_value ordered(const transform *t, graph_value x, uint32_t n, const uint32_t *order) {
    uint32_t axes[GRAPH_RANK_MAX];
    for (uint32_t i = 0; i < t->n_batch + n; i++)
        axes[i] = i < t->n_batch ? i : t->n_batch + order[i - t->n_batch];
    return x ? graph_permute(t->g, x, t->n_batch + n, axes) : 0;
}

static graph_value with_ones(const transform *t, graph_value x, uint32_t n, const uint32_t *at) {
    for (uint32_t i = 0; x && i < n; i++) x = graph_unsqueeze(t->g, x, t->n_batch + at[i]);
    return x;
}

/* ---- lengths that are products --------------------------------------------------------------- */

/* x times complex numbers, whose parts are `axis` of x: both times `same`, plus the other one times
 * `other`. */
static graph_value turned(const transform *t, graph_value x, uint32_t axis, graph_value same,
                          graph_value other) {
    if (!x || !same || !other) return 0;
    const graph_value swapped = graph_flip(t->g, x, axis);
    return graph_add(t->g, graph_mul(t->g, x, same), graph_mul(t->g, swapped, other));
}

/* x [.., 2, done, f, rest], element u of frequency k by root u k of done f. */
static graph_value turn_all(const transform *t, graph_value x, uint32_t done, uint32_t f) {
    const uint32_t n = done * f;
    double *same = take(t->g, n), *other = take(t->g, UINT64_C(2) * n);
    for (uint32_t i = 0; same && other && i < n; i++) {
        const complex_number w = root(t, n, (uint64_t)(i / f) * (i % f));
        same[i] = w.re;
        other[i] = -w.im;
        other[n + i] = w.im;
    }
    if (!same || !other) {
        base_heap_give(t->g->heap, same, n * sizeof *same);
        base_heap_give(t->g->heap, other, 2 * n * sizeof *other);
        return 0;
    }
    const graph_value by = constant(t, n, same, 3, (uint32_t[]){done, f, 1}),
                      with = constant(t, 2 * n, other, 4, (uint32_t[]){2, done, f, 1});
    return turned(t, x, t->n_batch, by, with);
}

typedef struct stage {
    uint32_t f, done, kept; /* kept: of the f frequencies */
    bool last, inside;      /* inside: the matrices hold the turns too, one for each of `done` */
    uint32_t in, out;       /* parts: 1 real, 2 complex */
} stage;

/* [out, kept, done or 1, 1, f, in]; of the last stage [kept, done or 1, out, f, in] */
static graph_value matrix(const transform *t, const stage *s) {
    const uint32_t done = s->inside ? s->done : 1, rows = done * s->kept,
                   n = rows * s->f * s->in * s->out;
    const double scale = s->last ? t->scale : 1;
    double *x = take(t->g, n);
    for (uint32_t r = 0; x && r < rows; r++)
        for (uint32_t u = 0; u < s->f; u++) {
            const uint32_t freq = r / done, k = r % done;
            const complex_number w =
                root(t, (uint64_t)done * s->f, u * (k + (uint64_t)done * freq));
            for (uint32_t o = 0; o < s->out; o++)
                for (uint32_t i = 0; i < s->in; i++) {
                    const uint32_t row = s->last ? r * s->out + o : o * rows + r;
                    x[(row * s->f + u) * s->in + i] = scale * (o == i ? w.re : o ? w.im : -w.im);
                }
        }
    if (!x) return 0;
    return s->last ? constant(t, n, x, 5, (uint32_t[]){s->kept, done, s->out, s->f, s->in})
                   : constant(t, n, x, 6, (uint32_t[]){s->out, s->kept, done, 1, s->f, s->in});
}

/* The last two axes of a and b are summed. */
static graph_value product(const transform *t, graph_value a, graph_value b) {
    if (!a || !b) return 0;
    const uint32_t rank = graph_tensor_at(t->g, a)->rank;
    a = graph_op(t->g, OP_CONTRACT, (graph_value[GRAPH_IN_MAX]){a, b},
                 (graph_attrs){.contract = {3u << (rank - 2)}});
    for (uint32_t i = rank; a && i-- > rank - 2;) a = graph_squeeze(t->g, a, i);
    return a;
}

static uint64_t rows_of(const transform *t, graph_value x) {
    uint64_t n = 1;
    for (uint32_t i = 0; i < t->n_batch; i++) n *= graph_tensor_at(t->g, x)->dim[i].size;
    return n;
}

/* x [batch.., n, 1 or 2] */
static graph_value by_factors(const transform *t, graph_value x, const factors *all) {
    const uint64_t rows = rows_of(t, x);
    uint32_t done = 1, rest = t->n;
    for (uint32_t i = 0; x && i < all->n; i++) {
        const uint32_t f = all->f[i];
        stage s = {.f = f,
                   .done = done,
                   .kept = f,
                   .last = i + 1 == all->n,
                   .in = i || !t->real_in ? 2 : 1,
                   .out = 2};
        if (s.last && t->real_out) s.out = 1;
        if (s.last) s.kept = (t->n_out - 1) / done + 1;
        s.inside =
            done > 1 && rows >= FEW && (uint64_t)done * f * s.kept * s.in * s.out <= TURNED_MAX;
        rest /= f;
        if (i) x = shaped(t, x, 4, (uint32_t[]){2, done, f, rest});
        else x = shaped(t, x, 4, (uint32_t[]){f, rest, 1, s.in});
        if (x && i && !s.inside) x = turn_all(t, x, done, f);
        /* [done, rest, f, parts] */
        x = ordered(t, x, 4, i ? (uint32_t[]){1, 3, 2, 0} : (uint32_t[]){2, 1, 0, 3});
        if (s.last) {
            if (x) x = graph_squeeze(t->g, x, t->n_batch + 1);
            x = product(t, with_ones(t, x, 2, (uint32_t[]){0, 2}), matrix(t, &s));
            x = shaped(t, x, 2, (uint32_t[]){s.kept * done, s.out});
        } else {
            x = product(t, with_ones(t, x, 2, (uint32_t[]){0, 0}), matrix(t, &s));
            x = shaped(t, x, 3, (uint32_t[]){2, f * done, rest});
        }
        done *= f;
    }
    const bool cut = x && graph_tensor_at(t->g, x)->dim[t->n_batch].size != t->n_out;
    return cut ? graph_narrow(t->g, x, t->n_batch, 0, t->n_out, 1) : x;
}

/* The primes of n, the largest first, in few factors; false: one is too large. */
static bool find_factors(uint32_t n, factors *out) {
    uint32_t primes[32], n_prime = 0, left = n, bits = 0;
    for (uint32_t p = 2; left > 1 && p <= PRIME_MAX; p++)
        for (; left % p == 0; left /= p) primes[n_prime++] = p;
    *out = (factors){.n = 1, .f = {n}};
    if (n <= 32 || (left > 1 && n <= WHOLE_MAX)) return true;
    if (left > 1) return false;
    while (n >> bits > 1) bits++;
    for (uint32_t count = (bits + 3) / 4;; count++) {
        uint32_t most = 1;
        out->n = count < n_prime ? count : n_prime;
        for (uint32_t i = 0; i < out->n; i++) out->f[i] = 1;
        for (uint32_t i = n_prime; i-- > 0;) {
            uint32_t least = 0;
            for (uint32_t k = 1; k < out->n; k++)
                if (out->f[k] < out->f[least]) least = k;
            out->f[least] *= primes[i];
            if (out->f[least] > most) most = out->f[least];
        }
        if (most <= FACTOR_MAX || count >= n_prime) return true;
    }
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

/* x [.., n, 2 or 1] times numbers [n]; real_out: the real part of it. Gives numbers back. */
static graph_value times(const transform *t, graph_value x, uint32_t n, complex_number *w,
                         bool real_in, bool real_out) {
    graph *g = t->g;
    double *same = take(g, n), *other = take(g, UINT64_C(2) * n);
    for (uint32_t i = 0; same && other && i < n; i++) {
        same[i] = w[i].re;
        other[2 * i] = real_in ? w[i].re : real_out ? w[i].re : -w[i].im;
        other[2 * i + 1] = real_out ? -w[i].im : w[i].im;
    }
    if (!same || !other) {
        base_heap_give(g->heap, same, n * sizeof *same);
        base_heap_give(g->heap, other, 2 * n * sizeof *other);
        return 0;
    }
    const graph_value b = constant(t, 2 * n, other, 2, (uint32_t[]){n, 2}),
                      a = real_in || real_out ? 0 : constant(t, n, same, 2, (uint32_t[]){n, 1});
    if (real_in || real_out) base_heap_give(g->heap, same, n * sizeof *same);
    if (!x || !b) return 0;
    const uint32_t axis = t->n_batch + 1;
    if (real_out) return graph_reduce(g, OP_SUM, graph_mul(g, x, b), 1u << axis, 0);
    return real_in ? graph_mul(g, x, b) : turned(t, x, axis, a, b);
}

static graph_value by_chirp(const transform *t, graph_value x) {
    graph *g = t->g;
    uint32_t m = 1;
    factors all;
    while (m < 2 * (uint64_t)t->n - 1) m *= 2;
    complex_number *w = base_heap_take(g->heap, m * sizeof *w);
    if (!w) return graph_refuse(g, BERYL_NO_MEMORY, "out of host memory");
    transform there = *t;
    there.n = there.n_out = m;
    there.sign = -1;
    there.scale = 1;
    there.real_in = there.real_out = false;
    transform back = there;
    back.sign = 1;
    back.n_out = t->n_out;
    find_factors(m, &all);
    for (uint32_t i = 0; i < t->n; i++) w[i] = chirp(t, i);
    x = times(t, x, t->n, w, t->real_in, false);
    if (x) x = graph_pad(g, x, t->n_batch, 0, m - t->n, 0);
    if (x) x = by_factors(&there, x, &all);
    memset(w, 0, m * sizeof *w);
    for (uint32_t i = 0; i < t->n; i++) {
        const complex_number c = chirp(t, i);
        w[i] = w[i ? m - i : 0] = (complex_number){c.re / m, -c.im / m};
    }
    host_fft(w, m);
    if (x) x = times(t, x, m, w, false, false);
    if (x) x = by_factors(&back, x, &all);
    for (uint32_t i = 0; i < t->n_out; i++) {
        w[i] = chirp(t, i);
        w[i].re *= t->scale;
        w[i].im *= t->scale;
    }
    if (x) x = times(t, x, t->n_out, w, false, t->real_out);
    base_heap_give(g->heap, w, m * sizeof *w);
    return x;
}

/* ---- along any axis -------------------------------------------------------------------------- */

static graph_value transformed(transform *t, graph_value x, uint32_t axis) {
    graph *g = t->g;
    graph_dim batch[GRAPH_RANK_MAX];
    uint32_t axes[GRAPH_RANK_MAX], n = 0, back[GRAPH_RANK_MAX];
    const graph_tensor from = *graph_tensor_at(g, x);
    const uint32_t n_axis = from.rank - !t->real_in;
    factors all;
    for (uint32_t i = 0; i < n_axis; i++) {
        if (i == axis) continue;
        batch[n] = from.dim[i];
        back[i] = n;
        axes[n++] = i;
    }
    back[axis] = n;
    back[n_axis] = axes[n + 1] = n_axis; /* of the parts */
    axes[n] = axis;
    x = graph_permute(g, x, from.rank, axes);
    if (t->real_in) x = x ? graph_unsqueeze(g, x, n_axis) : 0;
    t->n_batch = n;
    if (x && n > BATCH_MAX) {
        graph_dim dims[3] = {{1, 0}, {from.dim[axis].size, 0}, {t->real_in ? 1 : 2, 0}};
        for (uint32_t i = 0; i < n; i++) dims[0] = graph_dim_product(g, dims[0], batch[i]);
        if (t->type == TYPE_F64) x = graph_copy(g, x); /* reshape copies F32 alone */
        x = x ? graph_reshape(g, x, 3, dims) : 0;
        t->n_batch = 1;
    }
    if (!x) return 0;
    x = find_factors(t->n, &all) ? by_factors(t, x, &all) : by_chirp(t, x);
    if (x && n > BATCH_MAX) {
        batch[n] = (graph_dim){t->n_out, 0};
        batch[n + 1] = (graph_dim){t->real_out ? 1 : 2, 0};
        x = graph_reshape(g, x, n + 2, batch);
    }
    if (x && t->real_out) x = graph_squeeze(g, x, n + 1);
    return x ? graph_permute(g, x, n + 2 - t->real_out, back) : 0;
}

static double scale_of(uint32_t n, bool inverse, graph_fft_norm norm) {
    const bool divides = norm == (inverse ? FFT_BACKWARD : FFT_FORWARD);
    return norm == FFT_ORTHO ? 1 / sqrt(n) : divides ? 1.0 / n : 1;
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
    return run((transform){.g = g,
                           .n = n,
                           .n_out = n,
                           .sign = inverse ? 1 : -1,
                           .scale = scale_of(n, inverse, norm)},
               x, axis);
}

graph_value graph_rfft(graph *g, graph_value x, uint32_t axis, graph_fft_norm norm) {
    if (!may_transform(g, "rfft", x, axis, false, norm)) return 0;
    const uint32_t n = graph_tensor_at(g, x)->dim[axis].size;
    return run((transform){.g = g,
                           .n = n,
                           .n_out = n / 2 + 1,
                           .sign = -1,
                           .scale = scale_of(n, false, norm),
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
                         .scale = scale_of(n, true, norm),
                         .real_out = true};
    if (from.type != t.type) x = graph_cast(g, x, TYPE_F32, false);
    double *w = take(g, half);
    if (!x || !w) return 0;
    for (uint32_t i = 0; i < half; i++) w[i] = i && 2 * (uint64_t)i != n ? 2 : 1;
    uint32_t sizes[GRAPH_RANK_MAX];
    for (uint32_t i = 0; i < from.rank; i++) sizes[i] = i == axis ? half : 1;
    x = graph_mul(g, x, constant(&t, half, w, from.rank, sizes));
    if (x && n > half) x = graph_pad(g, x, axis, 0, n - half, 0);
    x = x ? run(t, x, axis) : 0;
    return x && from.type != t.type ? graph_cast(g, x, from.type, false) : x;
}
