/* fft.c - Fourier transforms of lengths whose primes are small (graph_fourier).
 *
 * The one idea: with `done` frequencies behind it, a step takes `length` elements that lie n /
 * length apart, turns element u of frequency k by root k u of done length, transforms them, and
 * puts what it has `done` apart: after the last step all are in their order (Stockham). A pass is
 * such a step over memory. Inside it a workgroup makes the same steps, of up to 16 numbers in a
 * lane's registers, and exchanges them through workgroup memory. One pass suffices for what fits
 * there; a processor's lane makes passes of one step, in vectors of lines side by side, where it
 * does not make whole lines (fft_lines.c). Roots are computed where they are used, from angles that
 * are reduced as whole numbers. */
#include "tile/fft.h"
#include "base/build.h"

#include <math.h>

enum {
    LANES = 256, /* of a workgroup of several lines */
    LANES_MAX = 1024,
    LINES_WIDE = 4,        /* lines side by side that are read together */
    BANKS = 32,            /* after so many numbers of workgroup memory one is left out */
    BYTES_BOTH = 40 << 10, /* of workgroup memory for both parts; above: one after the other */
    BYTES_MOST = 96 << 10,
    LANES_SERIAL = 16
};

typedef struct place { /* of a lane: its line's row, what is before it in the row, its butterfly */
    ir_id row, column, inside, at;
} place;

/* ---- numbers --------------------------------------------------------------------------------- */

ir_id fft_number(fft *s, double x) {
    return ir_number(s->k.b, s->real, s->p.wide, x);
}

static fft_complex plus(fft *s, fft_complex x, fft_complex y) {
    return (fft_complex){ir_add(s->k.b, x.re, y.re), ir_add(s->k.b, x.im, y.im)};
}

static fft_complex minus(fft *s, fft_complex x, fft_complex y) {
    return (fft_complex){ir_sub(s->k.b, x.re, y.re), ir_sub(s->k.b, x.im, y.im)};
}

fft_complex fft_times(fft *s, fft_complex x, fft_complex y) {
    ir_builder *b = s->k.b;
    return (fft_complex){ir_fma(b, x.re, y.re, ir_neg(b, ir_mul(b, x.im, y.im))),
                         ir_fma(b, x.re, y.im, ir_mul(b, x.im, y.re))};
}

static double angle_of(const fft *s, uint32_t k, uint32_t n) {
    return s->sign * 6.28318530717958647693 * k / n;
}

/* x times root k of n. */
static fft_complex turned(fft *s, fft_complex x, uint32_t k, uint32_t n) {
    ir_builder *b = s->k.b;
    k %= n;
    if (k * 4 % n) {
        const double c = cos(angle_of(s, k, n)), d = sin(angle_of(s, k, n));
        return (fft_complex){ir_fma(b, x.re, fft_number(s, c), ir_mul(b, x.im, fft_number(s, -d))),
                             ir_fma(b, x.re, fft_number(s, d), ir_mul(b, x.im, fft_number(s, c)))};
    }
    uint32_t quarters = k * 4 / n;
    if (s->sign < 0) quarters = (4 - quarters) % 4;
    switch (quarters) {
    case 1: return (fft_complex){ir_neg(b, x.im), x.re};
    case 2: return (fft_complex){ir_neg(b, x.re), ir_neg(b, x.im)};
    case 3: return (fft_complex){x.im, ir_neg(b, x.re)};
    default: return x;
    }
}

/* x [n], an odd prime: pairs of conjugate roots share their products. */
static void transform_prime(fft *s, fft_complex *x, uint32_t n) {
    ir_builder *b = s->k.b;
    fft_complex sum[FFT_RADIX_MAX], less[FFT_RADIX_MAX], all = x[0];
    const fft_complex first = x[0];
    for (uint32_t i = 1; i <= n / 2; i++) {
        sum[i] = plus(s, x[i], x[n - i]);
        less[i] = minus(s, x[i], x[n - i]);
        all = plus(s, all, sum[i]);
    }
    x[0] = all;
    for (uint32_t k = 1; k <= n / 2; k++) {
        fft_complex even = first, odd = {fft_number(s, 0), fft_number(s, 0)};
        for (uint32_t i = 1; i <= n / 2; i++) {
            const double angle = angle_of(s, i * k % n, n);
            const ir_id c = fft_number(s, cos(angle)), d = fft_number(s, sin(angle));
            even =
                (fft_complex){ir_fma(b, sum[i].re, c, even.re), ir_fma(b, sum[i].im, c, even.im)};
            odd = i == 1 ? (fft_complex){ir_mul(b, less[i].re, d), ir_mul(b, less[i].im, d)}
                         : (fft_complex){ir_fma(b, less[i].re, d, odd.re),
                                         ir_fma(b, less[i].im, d, odd.im)};
        }
        x[k] = (fft_complex){ir_sub(b, even.re, odd.im), ir_add(b, even.im, odd.re)};
        x[n - k] = (fft_complex){ir_add(b, even.re, odd.im), ir_sub(b, even.im, odd.re)};
    }
}

/* x [n] in registers. */
void fft_transform(fft *s, fft_complex *x, uint32_t n) {
    if (n < 2) return;
    if (n == 2) {
        const fft_complex a = x[0];
        x[0] = plus(s, a, x[1]);
        x[1] = minus(s, a, x[1]);
        return;
    }
    uint32_t f = n % 4 == 0 && n > 4 ? 4 : 2;
    while (n % f) f++;
    if (n == f) {
        transform_prime(s, x, n);
        return;
    }
    const uint32_t rest = n / f;
    fft_complex y[FFT_RADIX_MAX], part[FFT_RADIX_MAX];
    for (uint32_t c = 0; c < rest; c++) {
        for (uint32_t i = 0; i < f; i++) part[i] = x[i * rest + c];
        fft_transform(s, part, f);
        for (uint32_t i = 0; i < f; i++) y[i * rest + c] = turned(s, part[i], i * c, n);
    }
    for (uint32_t i = 0; i < f; i++) {
        fft_transform(s, y + i * rest, rest);
        for (uint32_t c = 0; c < rest; c++) x[i + f * c] = y[i * rest + c];
    }
}

/* ---- roots ----------------------------------------------------------------------------------- */

static ir_id whole(fft *s, ir_id like, uint32_t x) {
    const ir_instruction *i = ir_at(s->k.b, like);
    return ir_number(s->k.b, IR_U32, i ? i->width : 1, x);
}

/* 1 + t (c1 + t (c2 + ..)), the i-th of them 1 / (first + 2 i)! with changing signs. */
static ir_id series(fft *s, ir_id square, uint32_t first, uint32_t n) {
    double c[12], factorial = 1;
    for (uint32_t i = 2; i <= first; i++) factorial *= i;
    for (uint32_t i = 0; i < n; i++) {
        c[i] = (i % 2 ? -1 : 1) / factorial;
        factorial *= (first + 2.0 * i + 1) * (first + 2.0 * i + 2);
    }
    ir_id x = fft_number(s, c[n - 1]);
    for (uint32_t i = n - 1; i-- > 0;) x = ir_fma(s->k.b, x, square, fft_number(s, c[i]));
    return x;
}

/* By an angle of at most an eighth of the circle. */
fft_complex fft_root(fft *s, ir_id e, uint32_t n) {
    ir_builder *b = s->k.b;
    const uint32_t terms = s->real == IR_F64 ? 9 : 6;
    const ir_id eighths = ir_shl(b, e, whole(s, e, 3)), eighth = ir_div(b, eighths, whole(s, e, n)),
                rest = ir_sub(b, eighths, ir_mul(b, eighth, whole(s, e, n))),
                odd = ir_ne(b, ir_and(b, eighth, whole(s, e, 1)), whole(s, e, 0)),
                near = ir_select(b, odd, ir_sub(b, whole(s, e, n), rest), rest),
                angle = ir_mul(b, ir_cast(b, s->real, near),
                               fft_number(s, 0.785398163397448309616 / n)),
                square = ir_mul(b, angle, angle), c = series(s, square, 0, terms),
                d = ir_mul(b, angle, series(s, square, 1, terms - 1));
    const ir_id none = whole(s, e, 0),
                swaps =
                    ir_ne(b, ir_and(b, ir_add(b, eighth, whole(s, e, 1)), whole(s, e, 2)), none),
                left = ir_ne(b, ir_and(b, ir_add(b, eighth, whole(s, e, 2)), whole(s, e, 4)), none),
                low = s->sign < 0 ? ir_lt(b, eighth, whole(s, e, 4))
                                  : ir_ge(b, eighth, whole(s, e, 4));
    const ir_id re = ir_select(b, swaps, d, c), im = ir_select(b, swaps, c, d);
    return (fft_complex){ir_select(b, left, ir_neg(b, re), re),
                         ir_select(b, low, ir_neg(b, im), im)};
}

/* w [n]: roots 0, k, 2 k .. of `of`; all below it. The first and every fourth power are computed,
 * the others are products. */
static void powers(fft *s, fft_complex *w, uint32_t n, ir_id k, uint32_t of) {
    for (uint32_t i = 1; i < n; i++) {
        uint32_t four = 1;
        while (four * 4 <= i) four *= 4;
        if (i == four) w[i] = fft_root(s, ir_mul(s->k.b, k, whole(s, k, i)), of);
        else w[i] = fft_times(s, w[four], w[i - four]);
    }
}

/* ---- memory ---------------------------------------------------------------------------------- */

static ir_id local_number(fft *s, bool down, bool of_line) {
    const fft_pass *p = &s->p;
    const ir_id local = ir_local(s->k.b, 0), zero = ir_u32(s->k.b, 0);
    if ((of_line ? p->lines : p->lanes) == 1) return zero;
    if ((of_line ? p->lanes : p->lines) == 1) return local;
    if (of_line)
        return down ? tile_rem(s->k.b, local, p->lines) : tile_div(s->k.b, local, p->lanes);
    return down ? tile_div(s->k.b, local, p->lines) : tile_rem(s->k.b, local, p->lanes);
}

/* Lines in a row of a pass. */
static uint32_t columns(const fft *s) {
    return s->n / s->p.length * s->inner;
}

static place place_of(fft *s, bool down) {
    ir_builder *b = s->k.b;
    const ir_id block =
                    ir_fma(b, tile_group(b), ir_u32(b, s->p.lines), local_number(s, down, true)),
                near = ir_min(b, block, ir_sub(b, s->count, ir_u32(b, 1))),
                line = tile_mul(b, near, s->p.wide);
    return (place){.row = tile_div(b, line, columns(s)),
                   .column = tile_rem(b, line, columns(s)),
                   .inside = ir_lt(b, block, s->count),
                   .at = local_number(s, down, false)};
}

fft_complex fft_load(fft *s, ir_id at, bool real, bool side_by_side, ir_id end) {
    ir_builder *b = s->k.b;
    const uint32_t wide = s->p.wide;
    const bool pairs = !s->p.first || s->x->offset % 2 == 0;
    ir_id re[FFT_WIDE], im[FFT_WIDE];
    if (side_by_side && wide > 1) {
        const uint32_t width = real ? wide : 2 * wide;
        const ir_id x =
            ir_load(b, s->from, ir_add(b, tile_mul(b, at, real ? 1 : 2), s->offset), width);
        uint64_t even = 0;
        for (uint64_t i = 0; i < wide; i++) even |= 2 * i << (4 * i);
        if (real) return (fft_complex){x, fft_number(s, 0)};
        uint64_t odd = even;
        for (uint64_t i = 0; i < wide; i++) odd += UINT64_C(1) << (4 * i);
        return (fft_complex){ir_swizzle(b, x, wide, even), ir_swizzle(b, x, wide, odd)};
    }
    for (uint32_t i = 0; i < wide; i++) {
        const ir_id here = tile_add(b, at, i),
                    near = end == IR_NO_ID ? here : ir_min(b, here, ir_sub(b, end, ir_u32(b, 1))),
                    from = ir_add(b, tile_mul(b, near, real ? 1 : 2), s->offset),
                    zero = ir_number(b, s->real, 1, 0);
        if (!real && pairs) {
            const ir_id both = ir_load(b, s->from, from, 2);
            re[i] = ir_extract(b, both, 0), im[i] = ir_extract(b, both, 1);
        } else {
            re[i] = ir_load(b, s->from, from, 1);
            im[i] = real ? zero : ir_load(b, s->from, tile_add(b, from, 1), 1);
        }
        if (end == IR_NO_ID) continue;
        const ir_id is = ir_lt(b, here, end);
        re[i] = ir_select(b, is, re[i], zero);
        im[i] = ir_select(b, is, im[i], zero);
    }
    return wide == 1 ? (fft_complex){re[0], im[0]}
                     : (fft_complex){ir_compose(b, re, wide), ir_compose(b, im, wide)};
}

static void store_one(fft *s, ir_id at, ir_id re, ir_id im, bool real, ir_id end) {
    ir_builder *b = s->k.b;
    if (end != IR_NO_ID) ir_if(b, ir_lt(b, at, end));
    if (real) ir_store(b, s->to, at, re);
    else ir_store(b, s->to, tile_mul(b, at, 2), ir_compose(b, (ir_id[]){re, im}, 2));
    if (end != IR_NO_ID) ir_end(b);
}

void fft_store(fft *s, ir_id at, fft_complex x, bool real, bool side_by_side, ir_id end,
               uint32_t step) {
    ir_builder *b = s->k.b;
    const uint32_t wide = s->p.wide;
    if (wide == 1) {
        store_one(s, at, x.re, x.im, real, end);
        return;
    }
    if (side_by_side) {
        uint64_t order = 0;
        for (uint64_t i = 0; i < wide; i++) order |= (i | (wide + i) << 4) << (8 * i);
        if (real) ir_store(b, s->to, at, x.re);
        else
            ir_store(b, s->to, tile_mul(b, at, 2),
                     ir_swizzle(b, ir_compose(b, (ir_id[]){x.re, x.im}, 2), 2 * wide, order));
        return;
    }
    for (uint32_t i = 0; i < wide; i++)
        store_one(s, tile_add(b, at, i * step), ir_extract(b, x.re, i), ir_extract(b, x.im, i),
                  real, end);
}

/* ---- a pass ---------------------------------------------------------------------------------- */

/* x [turns, radix] of the lane: butterfly i of it is number at + i * lanes of `count`. */
static ir_id butterfly(fft *s, const place *at, uint32_t i, uint32_t count, ir_id *inside) {
    ir_builder *b = s->k.b;
    const ir_id own = tile_add(b, at->at, i * s->p.lanes);
    *inside = IR_NO_ID;
    if ((i + 1) * s->p.lanes <= count) return own;
    *inside = ir_lt(b, own, ir_u32(b, count));
    return ir_min(b, own, ir_u32(b, count - 1));
}

static uint32_t turns_of(const fft_pass *p, uint32_t step) {
    const uint32_t count = p->length / p->radix[step];
    return (count + p->lanes - 1) / p->lanes;
}

/* The first step's numbers, from memory. */
static void load_all(fft *s, const place *at, fft_complex *x) {
    ir_builder *b = s->k.b;
    const fft_pass *p = &s->p;
    const uint32_t radix = p->radix[0], count = p->length / radix, step = columns(s),
                   size = (p->first ? s->n_in : s->n) * s->inner;
    const uint64_t part = (uint64_t)count * step;
    const ir_id row = tile_mul(b, at->row, size),
                end = size < s->n * s->inner ? tile_add(b, row, size) : IR_NO_ID;
    const bool real = p->first && s->real_in,
               vectors = size % p->wide == 0 && (!p->first || s->x->offset % (2 * p->wide) == 0);
    for (uint32_t i = 0; i < turns_of(p, 0); i++) {
        ir_id inside;
        const ir_id from = ir_add(b, ir_add(b, row, at->column),
                                  tile_mul(b, butterfly(s, at, i, count, &inside), step));
        for (uint32_t u = 0; u < radix; u++) {
            const bool all = (u + 1) * part <= size;
            x[i * radix + u] = u * part >= size
                                   ? (fft_complex){fft_number(s, 0), fft_number(s, 0)}
                                   : fft_load(s, tile_add(b, from, (uint32_t)(u * part)), real,
                                              vectors && all, all ? IR_NO_ID : end);
        }
    }
}

/* What they are turned by: element u of the line, of frequency k, by root k u of done length. */
static void turn_loaded(fft *s, const place *at, fft_complex *x) {
    ir_builder *b = s->k.b;
    const fft_pass *p = &s->p;
    const uint32_t radix = p->radix[0], count = p->length / radix, cycle = p->done * s->inner;
    fft_complex w[FFT_RADIX_MAX];
    ir_id column = at->column;
    if (p->done == 1) return;
    column = tile_rem(b, column, cycle);
    if (p->wide > 1) column = ir_add(b, ir_splat(b, column, p->wide), tile_ramp(b, p->wide, 0, 1));
    const ir_id k = s->inner > 1 ? ir_div(b, column, whole(s, column, s->inner)) : column;
    powers(s, w, radix, k, p->done * radix);
    for (uint32_t i = 0; i < turns_of(p, 0); i++) {
        ir_id inside;
        const ir_id own = butterfly(s, at, i, count, &inside);
        fft_complex first = {0};
        if (count > 1) first = fft_root(s, ir_mul(b, k, own), p->done * p->length);
        for (uint32_t u = 0; u < radix; u++) {
            fft_complex *y = &x[i * radix + u];
            if (count > 1) *y = fft_times(s, *y, u ? fft_times(s, first, w[u]) : first);
            else if (u) *y = fft_times(s, *y, w[u]);
        }
    }
}

static ir_id with_gaps(fft *s, ir_id at) {
    return s->p.gaps ? ir_add(s->k.b, at, tile_div(s->k.b, at, BANKS)) : at;
}

/* Places of numbers first, first + apart .. of a line; `under`: first is a multiple of it. */
static void places(fft *s, ir_id line, ir_id first, uint32_t apart, uint32_t under, uint32_t n,
                   ir_id *out) {
    const fft_pass *p = &s->p;
    const bool down = p->down_in || p->down_out;
    const uint32_t step = down ? p->lines : 1;
    const ir_id base = down ? ir_fma(s->k.b, first, ir_u32(s->k.b, p->lines), line)
                            : ir_fma(s->k.b, line, ir_u32(s->k.b, p->length), first);
    apart *= step;
    const bool jumps = apart % BANKS == 0, stays = !down && p->length % BANKS == 0 &&
                                                   BANKS % under == 0 &&
                                                   (uint64_t)(n - 1) * apart < under;
    const ir_id begin = with_gaps(s, base);
    for (uint32_t i = 0; i < n; i++)
        out[i] = !p->gaps || stays ? tile_add(s->k.b, begin, i * apart)
                 : jumps           ? tile_add(s->k.b, begin, i * (apart + apart / BANKS))
                                   : with_gaps(s, tile_add(s->k.b, base, i * apart));
}

static void put_part(fft *s, ir_memory to, const ir_id *where, const fft_complex *x, uint32_t n,
                     bool im) {
    for (uint32_t i = 0; i < n; i++) ir_store(s->k.b, to, where[i], im ? x[i].im : x[i].re);
}

/* x of step `step`, with `done` behind it, becomes x of the next one. `next`: as there. */
static void exchange(fft *s, const place *at, const place *next, fft_complex *x, uint32_t step,
                     uint32_t done) {
    ir_builder *b = s->k.b;
    const fft_pass *p = &s->p;
    const uint32_t radix = p->radix[step], count = p->length / radix, turns = turns_of(p, step),
                   radix_next = p->radix[step + 1], count_next = p->length / radix_next;
    const ir_id line = local_number(s, at == next ? p->down_out : p->down_in, true),
                line_next = local_number(s, p->down_out, true);
    ir_id to[FFT_RADIX_MAX], from[FFT_RADIX_MAX], inside[FFT_RADIX_MAX];
    fft_complex y[FFT_RADIX_MAX];
    for (uint32_t i = 0; i < turns; i++) {
        const ir_id own = butterfly(s, at, i, count, &inside[i]),
                    k = done > 1 ? tile_rem(b, own, done) : ir_u32(b, 0),
                    first = done > 1 ? ir_fma(b, ir_sub(b, own, k), ir_u32(b, radix), k)
                                     : tile_mul(b, own, radix);
        places(s, line, first, done, done > 1 ? 1 : radix, radix, to + i * radix);
    }
    for (uint32_t i = 0; i < turns_of(p, step + 1); i++) {
        ir_id unused;
        places(s, line_next, butterfly(s, next, i, count_next, &unused), count_next, 1, radix_next,
               from + i * radix_next);
    }
    for (uint32_t round = 0; round < (p->halves ? 2u : 1u); round++) {
        if (s->exchanged++) ir_barrier(b);
        for (uint32_t i = 0; i < turns; i++) {
            if (inside[i] != IR_NO_ID) ir_if(b, inside[i]);
            for (uint32_t part = round; part < (p->halves ? round + 1 : 2u); part++)
                put_part(s, s->part[part], to + i * radix, x + i * radix, radix, part);
            if (inside[i] != IR_NO_ID) ir_end(b);
        }
        ir_barrier(b);
        for (uint32_t i = 0; i < turns_of(p, step + 1) * radix_next; i++) {
            if (!p->halves || !round) y[i].re = ir_load(b, s->part[0], from[i], 1);
            if (!p->halves || round) y[i].im = ir_load(b, s->part[1], from[i], 1);
        }
    }
    for (uint32_t i = 0; i < turns_of(p, step + 1) * radix_next; i++) x[i] = y[i];
}

static void turn_and_transform(fft *s, const place *at, fft_complex *x, uint32_t step,
                               uint32_t done) {
    const uint32_t radix = s->p.radix[step];
    fft_complex w[FFT_RADIX_MAX];
    for (uint32_t i = 0; i < turns_of(&s->p, step); i++) {
        fft_complex *y = x + i * radix;
        ir_id inside;
        if (done > 1) {
            const ir_id own = butterfly(s, at, i, s->p.length / radix, &inside);
            powers(s, w, radix, tile_rem(s->k.b, own, done), done * radix);
            for (uint32_t u = 1; u < radix; u++) y[u] = fft_times(s, y[u], w[u]);
        }
        fft_transform(s, y, radix);
    }
}

/* The last step's frequencies, to memory. */
static void store_all(fft *s, const place *at, const fft_complex *x) {
    ir_builder *b = s->k.b;
    const fft_pass *p = &s->p;
    const uint32_t last = p->n_step - 1, radix = p->radix[last], count = p->length / radix,
                   cycle = p->done * s->inner, size = (p->last ? s->n_out : s->n) * s->inner;
    const uint64_t part = (uint64_t)count * cycle;
    const bool real = p->last && s->real_out, scales = p->last && s->scale != 1,
               vectors = cycle % p->wide == 0 && size % p->wide == 0;
    const ir_id row = tile_mul(b, at->row, size),
                end = size < s->n * s->inner ? tile_add(b, row, size) : IR_NO_ID,
                within = tile_rem(b, at->column, cycle), before = ir_sub(b, at->column, within);
    const uint32_t step = cycle == 1 ? p->length : 1; /* from a vector's line to the next */
    ir_if(b, at->inside);
    const ir_id first = ir_add(b, ir_add(b, row, within), tile_mul(b, before, p->length));
    for (uint32_t i = 0; i < turns_of(p, last); i++) {
        ir_id inside;
        const ir_id to = ir_add(b, first, tile_mul(b, butterfly(s, at, i, count, &inside), cycle));
        if (inside != IR_NO_ID) ir_if(b, inside);
        for (uint32_t u = 0; u < radix; u++) {
            fft_complex y = x[i * radix + u];
            const bool all = (u + 1) * part <= size;
            if (u * part >= size) break;
            if (scales) {
                y.re = ir_mul(b, y.re, fft_number(s, s->scale));
                if (!real) y.im = ir_mul(b, y.im, fft_number(s, s->scale));
            }
            fft_store(s, tile_add(b, to, (uint32_t)(u * part)), y, real, vectors && all,
                      all ? IR_NO_ID : end, step);
        }
        if (inside != IR_NO_ID) ir_end(b);
    }
    ir_end(b);
}

static uint32_t numbers_with_gaps(const fft_pass *p, uint32_t lines, bool gaps) {
    const uint32_t n = p->length * lines;
    return gaps ? n + n / BANKS : n;
}

static beryl_status run_pass(fft *s, uint32_t number) {
    static const char *const names[] = {"even", "odd"};
    tile_kernel *k = &s->k;
    fft_pass *p = &s->p;
    const uint64_t bytes = (uint64_t)s->row_bound * s->n * s->inner * 2 * s->bytes;
    ir_builder *b = tile_begin(k, s->l, "fft", p->lanes * p->lines);
    s->from = p->first ? tile_read(k, "x", s->node->in[0])
                       : tile_scratch(k, names[(number + 1) % 2], (number + 1) % 2, bytes, s->real,
                                      IR_READ);
    s->to = p->last ? tile_write(k, "y", s->node->out[0])
                    : tile_scratch(k, names[number % 2], number % 2, bytes, s->real, IR_READ_WRITE);
    s->offset = p->first && s->x->offset ? tile_u32(k, "x_offset", s->x->offset) : ir_u32(b, 0);
    const lower_count count = lower_count_times(s->rows, columns(s) / p->wide);
    s->count = tile_count(k, "n", count);
    s->exchanged = 0;
    for (uint32_t i = 0; p->n_step > 1 && i < (p->halves ? 1u : 2u); i++)
        s->part[i] = ir_workgroup(b, s->real, numbers_with_gaps(p, p->lines, p->gaps));
    if (p->halves) s->part[1] = s->part[0];
    fft_complex x[FFT_RADIX_MAX];
    place at = place_of(s, p->down_in), other = at;
    if (p->down_in != p->down_out) other = place_of(s, p->down_out);
    const place *now = &at;
    load_all(s, now, x);
    turn_loaded(s, now, x);
    for (uint32_t i = 0, done = 1; i < p->n_step; i++) {
        turn_and_transform(s, now, x, i, done);
        if (i + 1 == p->n_step) break;
        exchange(s, now, &other, x, i, done);
        now = &other;
        done *= p->radix[i];
    }
    store_all(s, now, x);
    return tile_end(k, count, p->lines);
}

/* ---- plans ----------------------------------------------------------------------------------- */

bool fft_split(uint32_t n, uint32_t count, uint32_t *f) {
    uint32_t primes[FFT_FACTORS_MAX], n_prime = 0;
    for (uint32_t p = 2; n > 1; p++)
        for (; n % p == 0; n /= p) primes[n_prime++] = p;
    if (count > n_prime && count > 1) return false;
    for (uint32_t i = 0; i < count; i++) f[i] = 1;
    while (n_prime-- > 0) {
        uint32_t least = 0;
        for (uint32_t i = 1; i < count; i++)
            if (f[i] < f[least]) least = i;
        f[least] *= primes[n_prime];
    }
    for (uint32_t i = 1; i < count; i++)
        for (uint32_t k = i; k > 0 && f[k] > f[k - 1]; k--) {
            const uint32_t held = f[k];
            f[k] = f[k - 1];
            f[k - 1] = held;
        }
    return true;
}

/* How a pass of this length is made; false: it is too long for the device. */
static bool shape_pass(const fft *s, fft_pass *p) {
    const device_caps *caps = s->l->caps;
    const uint32_t own = caps->workgroup_bytes, most = own < BYTES_MOST ? own : BYTES_MOST,
                   invocations = caps->workgroup_invocations,
                   lanes_max = invocations < LANES_MAX ? invocations : LANES_MAX,
                   in = s->n / p->length * s->inner, out = p->done * s->inner;
    p->lanes = p->lines = p->wide = 1;
    for (p->n_step = 1;; p->n_step++)
        if (fft_split(p->length, p->n_step, p->radix) && p->radix[0] <= FFT_RADIX_MAX) break;
    if (tile_serial(s->l)) {
        p->lines = device_makes_vectors(caps) ? LANES_SERIAL : 1;
        p->wide = !device_is_compiled(caps) ? 1 : s->real == IR_F64 ? FFT_WIDE / 2 : FFT_WIDE;
        while (in % p->wide || (out > 1 && out % p->wide)) p->wide /= 2;
        return p->n_step == 1;
    }
    p->down_in = in >= LINES_WIDE;
    /* several lanes a line, whose numbers they read side by side */
    if (p->n_step == 1 && !p->down_in && p->length >= 8 && fft_split(p->length, 2, p->radix))
        p->n_step = 2;
    for (uint32_t i = 0; i < p->n_step; i++) {
        const uint32_t turns = p->radix[0] / p->radix[i], count = p->length / p->radix[i],
                       lanes = (count + turns - 1) / turns;
        if (lanes > p->lanes) p->lanes = lanes;
    }
    p->down_out = p->n_step > 1 ? out >= LINES_WIDE : p->down_in;
    const uint32_t least = p->down_in || p->down_out ? LINES_WIDE : 1;
    const uint64_t all = (uint64_t)s->row_bound * in;
    while (2 * p->lines * p->lanes <= LANES && p->lines < all) p->lines *= 2;
    if (p->lines < least) p->lines = least;
    if (p->n_step == 1) return p->lines * p->lanes <= lanes_max;
    while (p->lines > least &&
           (p->lines * p->lanes > lanes_max || p->length * p->lines * s->bytes > most))
        p->lines /= 2;
    p->gaps = numbers_with_gaps(p, p->lines, true) * s->bytes <= most;
    const uint32_t part = numbers_with_gaps(p, p->lines, p->gaps) * s->bytes;
    p->halves = 2 * part > (most < BYTES_BOTH ? most : BYTES_BOTH);
    return p->lines * p->lanes <= lanes_max && part <= most;
}

/* All dimensions before or behind the axis. */
static uint32_t joined(const graph_tensor *t, uint32_t from, uint32_t to) {
    uint32_t n = 1;
    for (uint32_t i = from; i < to; i++) n *= t->dim[i].size;
    return n;
}

/* Those before the axis; an extent that is not the first of them counts with its bound. */
static lower_count rows_of(const graph_tensor *t, uint32_t axis) {
    uint32_t first = 0;
    while (first < axis && t->dim[first].size == 1 && !t->dim[first].extent) first++;
    lower_count rows = {1, 0};
    if (first < axis) rows = lower_count_of(t->dim[first]);
    return first < axis ? lower_count_times(rows, joined(t, first + 1, axis)) : rows;
}

beryl_status tile_fourier(lowering *l, const graph_node *node) {
    const graph_tensor *x = graph_tensor_at(l->g, node->in[0]),
                       *out = graph_tensor_at(l->g, node->out[0]);
    const uint32_t axis = node->attr.fourier.axis, how = node->attr.fourier.how;
    fft s = {.l = l,
             .node = node,
             .x = x,
             .real = x->type == TYPE_F64 ? IR_F64 : IR_F32,
             .bytes = x->type == TYPE_F64 ? 8 : 4,
             .n_in = x->dim[axis].size,
             .n_out = out->dim[axis].size,
             .real_in = how & FOURIER_REAL_IN,
             .real_out = how & FOURIER_REAL_OUT,
             .sign = how & FOURIER_BACK ? 1 : -1,
             .rows = rows_of(x, axis),
             .row_bound = joined(x, 0, axis)};
    s.n = node->attr.fourier.size ? node->attr.fourier.size : s.n_in;
    s.scale = graph_fourier_scale(s.n, how);
    s.inner = joined(x, axis + 1, x->rank - !s.real_in);
    if (2 * (double)s.row_bound * s.n * s.inner > UINT32_MAX)
        return lower_refuse(l, node, "more than 2^32 numbers");
    if (BUILD_HAS_C_TEXTS && tile_is_host(l) && fft_lines_fit(&s)) return fft_lines(&s);
    fft_pass passes[FFT_FACTORS_MAX];
    uint32_t f[FFT_FACTORS_MAX], n = 0;
    for (bool fits = false; !fits;) {
        fits = fft_split(s.n, ++n, f);
        for (uint32_t i = 0, done = 1; fits && i < n; done *= f[i++]) {
            passes[i] = (fft_pass){.length = f[i], .done = done, .first = !i, .last = i + 1 == n};
            fits = shape_pass(&s, &passes[i]);
        }
    }
    beryl_status status = BERYL_OK;
    for (uint32_t i = 0; status == BERYL_OK && i < n; i++) {
        s.p = passes[i];
        status = run_pass(&s, i);
    }
    return status;
}
