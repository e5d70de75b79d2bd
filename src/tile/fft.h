/* fft.h - what both forms of a Fourier transform share: complex numbers in a lane, their
 * butterflies and roots, and how they lie in memory. */
#ifndef TILE_FFT_H
#define TILE_FFT_H

#include "tile/kernel.h"

enum { FFT_RADIX_MAX = 16, FFT_FACTORS_MAX = 28, FFT_WIDE = 8 /* numbers of a vector */ };

typedef struct fft_complex {
    ir_id re, im;
} fft_complex;

/* Of a pass: lines [rows, n / length, inner], one behind another. */
typedef struct fft_pass {
    uint32_t length, done; /* of its transforms, of all before it together */
    uint32_t n_step, radix[FFT_FACTORS_MAX];
    uint32_t lanes, lines;  /* of a line, of a workgroup */
    uint32_t wide;          /* lines of a lane, as a vector */
    bool down_in, down_out; /* neighbouring lanes have neighbouring lines, when they read, write */
    bool halves, gaps;      /* one part after the other; a gap after every so many numbers */
    bool first, last;
} fft_pass;

typedef struct fft {
    tile_kernel k;
    lowering *l;
    const graph_node *node;
    const graph_tensor *x;
    ir_type real;
    uint32_t n, n_in, n_out, inner, bytes;
    bool real_in, real_out;
    double sign, scale;
    lower_count rows;
    uint32_t row_bound;
    fft_pass p;
    ir_memory from, to, part[2];
    ir_id offset, count;
    uint32_t exchanged;
} fft;

/* As wide as the pass is. */
ir_id fft_number(fft *s, double x);
fft_complex fft_times(fft *s, fft_complex x, fft_complex y);
/* x [n], n at most FFT_RADIX_MAX, in registers. */
void fft_transform(fft *s, fft_complex *x, uint32_t n);
/* Root e of n, e below n. */
fft_complex fft_root(fft *s, ir_id e, uint32_t n);
/* Both parts from complex number (real: number) `at` on; what is not below `end` is 0. */
fft_complex fft_load(fft *s, ir_id at, bool real, bool side_by_side, ir_id end);
/* Elements of a vector `step` apart; what is not below `end` is left out. */
void fft_store(fft *s, ir_id at, fft_complex x, bool real, bool side_by_side, ir_id end,
               uint32_t step);
/* n as `count` factors of like size, the largest first; false: it has fewer primes. */
bool fft_split(uint32_t n, uint32_t count, uint32_t *f);

/* Whole lines by a processor's lane (fft_lines.c): s->p becomes how; false: not so. */
bool fft_lines_fit(fft *s);
beryl_status fft_lines(fft *s);

#endif
