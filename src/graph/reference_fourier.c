/* reference_fourier.c - Fourier transforms in double: by the first prime of the length, of whose
 * parts each is a transform. */
#include "base/error.h"
#include "graph/reference.h"

#include <math.h>

typedef struct work {
    double *roots; /* [n, 2] */
    uint32_t n;
} work;

/* y [n, 2] of x, whose elements lie `step` apart; room [n, 2]. */
static void transform(const work *w, const double *x, uint32_t step, uint32_t n, double *y,
                      double *room) {
    uint32_t f = 2;
    while (n % f && f < n) f++;
    if (n == 1) f = 1;
    const uint32_t rest = n / f, turn = w->n / n;
    for (uint32_t i = 0; i < f && rest > 1; i++)
        transform(w, x + 2 * (uint64_t)step * i, step * f, rest, room + 2 * rest * i,
                  y + 2 * rest * i);
    for (uint32_t k = 0; k < n; k++) {
        double re = 0, im = 0;
        for (uint32_t i = 0; i < f; i++) {
            const double *from =
                rest > 1 ? room + 2 * (rest * i + k % rest) : x + 2 * (uint64_t)step * i;
            const double *root = w->roots + 2 * ((uint64_t)i * k % n * turn);
            re += from[0] * root[0] - from[1] * root[1];
            im += from[0] * root[1] + from[1] * root[0];
        }
        y[2 * k] = re;
        y[2 * k + 1] = im;
    }
}

static double get(const reference_tensor *x, int64_t at) {
    return x->t->type == TYPE_F64 ? ((const double *)x->data)[at]
                                  : (double)((const float *)x->data)[at];
}

static void put(const reference_tensor *x, int64_t at, double value) {
    if (x->t->type == TYPE_F64) ((double *)x->data)[at] = value;
    else ((float *)x->data)[at] = (float)value;
}

beryl_status reference_fourier(reference_call *c) {
    const reference_tensor *x = &c->in[0], *y = &c->out[0];
    const uint32_t axis = c->node->attr.fourier.axis, how = c->node->attr.fourier.how,
                   from = x->dim[axis], to = y->dim[axis],
                   n = c->node->attr.fourier.size ? c->node->attr.fourier.size : from;
    const bool real_in = how & FOURIER_REAL_IN, real_out = how & FOURIER_REAL_OUT;
    const double scale = graph_fourier_scale(n, how), sign = how & FOURIER_BACK ? 1 : -1;
    const size_t bytes = (size_t)n * 8 * sizeof(double);
    double *memory = base_heap_take(c->heap, bytes);
    if (!memory) return base_no_memory(c->error);
    double *in = memory + 2 * (size_t)n, *out = in + 2 * (size_t)n, *room = out + 2 * (size_t)n;
    for (uint32_t i = 0; i < n; i++) {
        const double angle = sign * 6.28318530717958647693 * i / n;
        memory[2 * i] = cos(angle);
        memory[2 * i + 1] = sin(angle);
    }
    const uint32_t rank = x->t->rank - !real_in; /* without the parts */
    uint64_t lines = 1;
    for (uint32_t i = 0; i < rank; i++) lines *= i == axis ? 1 : x->dim[i];
    for (uint64_t line = 0; line < lines; line++) {
        int64_t read = 0, write = 0;
        uint64_t left = line;
        for (uint32_t i = rank; i-- > 0;) {
            if (i == axis) continue;
            read += (int64_t)(left % x->dim[i]) * graph_stride(x->t, i);
            write += (int64_t)(left % x->dim[i]) * graph_stride(y->t, i);
            left /= x->dim[i];
        }
        for (uint32_t i = 0; i < n; i++) {
            const int64_t at = read + (int64_t)i * graph_stride(x->t, axis);
            in[2 * i] = i < from ? get(x, at) : 0;
            in[2 * i + 1] = i < from && !real_in ? get(x, at + graph_stride(x->t, rank)) : 0;
        }
        transform(&(work){memory, n}, in, 1, n, out, room);
        for (uint32_t i = 0; i < to; i++) {
            const int64_t at = write + (int64_t)i * graph_stride(y->t, axis);
            put(y, at, out[2 * i] * scale);
            if (!real_out) put(y, at + graph_stride(y->t, rank), out[2 * i + 1] * scale);
        }
    }
    base_heap_give(c->heap, memory, bytes);
    return BERYL_OK;
}
