/* fft_lines.c - see fft.h: Fourier transforms on a processor, whose lane makes whole lines.
 *
 * The one idea: what lies between the steps (fft.c) stays in the lane's own memory, which a cache
 * holds, its parts apart, and roots are computed once for all lines of the lane. Lines side by side
 * are one vector. A line alone makes vectors of neighbouring butterflies: results of the first
 * step, which lie behind one another, are turned by interleaving vectors; those of all others
 * already lie side by side. Refuses lines that its memory does not hold, and those alone whose
 * first step is of no power of two. */
#include "tile/fft.h"

#include <string.h>

enum { GROUPS_A_UNIT = 4, LINES_MAX = 256 /* of a group */ };

typedef struct lines {
    fft *s;
    bool alone;
    uint32_t apart;                  /* numbers from an element to the next */
    uint32_t table[FFT_FACTORS_MAX]; /* where the roots of a step begin */
    ir_memory held[2][2], roots[2];  /* by part: after even, after odd steps */
} lines;

/* ---- the form -------------------------------------------------------------------------------- */

static uint32_t steps_into(fft_pass *p, uint32_t n, uint32_t first) {
    for (p->n_step = first;
         !fft_split(n, p->n_step - first + 1, p->radix + first) || p->radix[first] > FFT_RADIX_MAX;
         p->n_step++) {}
    return ++p->n_step;
}

/* Of a line alone: its first step makes whole vectors of butterflies, and each of them whole
 * vectors of results. */
static bool shape_alone(const fft *s, fft_pass *best) {
    const uint32_t widest = s->real == IR_F64 ? FFT_WIDE / 2 : FFT_WIDE;
    bool found = false;
    for (uint32_t wide = widest; wide >= FFT_WIDE / 2 && !found; wide /= 2)
        for (uint32_t first = wide; first <= FFT_RADIX_MAX; first *= 2) {
            fft_pass p = *best;
            if (s->n % first || s->n / first % wide || s->n == first) continue;
            p.wide = wide;
            p.radix[0] = first;
            if (found && steps_into(&p, s->n / first, 1) >= best->n_step) continue;
            if (!found) steps_into(&p, s->n / first, 1);
            *best = p;
            found = true;
        }
    return found;
}

static uint32_t roots_of(const fft_pass *p, uint32_t *table) {
    uint32_t n = 0;
    for (uint32_t i = 1, done = p->radix[0]; i < p->n_step; done *= p->radix[i++]) {
        if (table) table[i] = n;
        n += (p->radix[i] - 1) * done;
    }
    return n;
}

bool fft_lines_fit(fft *s) {
    fft_pass p = {.length = s->n, .done = 1, .lanes = 1, .first = true, .last = true};
    const uint32_t wide = s->real == IR_F64 ? FFT_WIDE / 2 : FFT_WIDE;
    if (s->n < 2) return false;
    if (s->inner % wide == 0) {
        p.wide = wide;
        steps_into(&p, s->n, 0);
    } else if (s->inner > 1 || !shape_alone(s, &p)) {
        return false;
    }
    const uint32_t apart = s->inner > 1 ? p.wide : 1, held = p.n_step < 3 ? p.n_step - 1 : 2,
                   units = s->l->caps->compute_units ? s->l->caps->compute_units : 1;
    const uint64_t n = 2 * ((uint64_t)held * s->n * apart + roots_of(&p, NULL)),
                   all = (uint64_t)s->row_bound * s->inner / apart;
    p.lines = (uint32_t)(all / (GROUPS_A_UNIT * units) < LINES_MAX ? all / (GROUPS_A_UNIT * units)
                                                                   : LINES_MAX);
    if (!p.lines) p.lines = 1;
    s->p = p;
    return n * s->bytes <= s->l->caps->workgroup_bytes;
}

/* ---- the kernel ------------------------------------------------------------------------------ */

/* Roots of step i, [radix - 1, done]: what element u of frequency k is turned by. */
static void make_roots(lines *l, uint32_t i, uint32_t done) {
    fft *s = l->s;
    ir_builder *b = s->k.b;
    fft_pass *p = &s->p;
    const uint32_t wide = p->wide, radix = p->radix[i];
    while (done % p->wide) p->wide /= 2;
    const ir_id at = ir_loop(b, ir_u32(b, 0), ir_u32(b, (radix - 1) * done), ir_u32(b, p->wide)),
                u = tile_add(b, tile_div(b, at, done), 1);
    ir_id k = tile_rem(b, at, done);
    if (p->wide > 1) k = ir_add(b, ir_splat(b, k, p->wide), tile_ramp(b, p->wide, 0, 1));
    const fft_complex w = fft_root(s, ir_mul(b, k, ir_splat(b, u, p->wide)), done * radix);
    ir_store(b, l->roots[0], tile_add(b, at, l->table[i]), w.re);
    ir_store(b, l->roots[1], tile_add(b, at, l->table[i]), w.im);
    ir_end(b);
    p->wide = wide;
}

/* Elements `from` to `from + count` of the line, of which a vector begins at number `at`: are they
 * all below `size`, and where does the line end, if not? */
static ir_id end_of(lines *l, uint32_t from, uint32_t count, uint32_t size, ir_id base) {
    const ir_id end = tile_add(l->s->k.b, base, size * l->s->inner);
    return from + count <= size ? IR_NO_ID : end;
}

static fft_complex element(lines *l, uint32_t step, uint32_t u, ir_id own, ir_id base) {
    fft *s = l->s;
    ir_builder *b = s->k.b;
    const uint32_t count = s->n / s->p.radix[step], from = u * count, size = s->n_in;
    const ir_id at = tile_add(b, own, from);
    if (step) {
        ir_memory *held = l->held[(step - 1) % 2];
        const ir_id place = tile_mul(b, at, l->apart);
        return (fft_complex){ir_load(b, held[0], place, s->p.wide),
                             ir_load(b, held[1], place, s->p.wide)};
    }
    if (from >= size) return (fft_complex){fft_number(s, 0), fft_number(s, 0)};
    const ir_id end = end_of(l, from, count, size, base);
    return fft_load(s, ir_add(b, base, tile_mul(b, at, s->inner)), s->real_in, end == IR_NO_ID,
                    end);
}

static void keep(lines *l, uint32_t step, uint32_t u, ir_id to, uint32_t done, fft_complex x,
                 ir_id base) {
    fft *s = l->s;
    ir_builder *b = s->k.b;
    const uint32_t from = u * done, size = s->n_out;
    const ir_id at = tile_add(b, to, from);
    if (step + 1 < s->p.n_step) {
        ir_memory *held = l->held[step % 2];
        ir_store(b, held[0], tile_mul(b, at, l->apart), x.re);
        ir_store(b, held[1], tile_mul(b, at, l->apart), x.im);
        return;
    }
    if (from >= size) return;
    if (s->scale != 1) x.re = ir_mul(b, x.re, fft_number(s, s->scale));
    if (s->scale != 1 && !s->real_out) x.im = ir_mul(b, x.im, fft_number(s, s->scale));
    const ir_id end = end_of(l, from, done, size, base);
    fft_store(s, ir_add(b, base, tile_mul(b, at, s->inner)), x, s->real_out, end == IR_NO_ID, end,
              1);
}

static void turn(lines *l, uint32_t step, uint32_t done, ir_id k, fft_complex *x) {
    fft *s = l->s;
    ir_builder *b = s->k.b;
    const uint32_t wide = l->alone ? s->p.wide : 1;
    for (uint32_t u = 1; u < s->p.radix[step]; u++) {
        const ir_id at = tile_add(b, k, l->table[step] + (u - 1) * done),
                    re = ir_load(b, l->roots[0], at, wide), im = ir_load(b, l->roots[1], at, wide);
        x[u] = fft_times(s, x[u],
                         (fft_complex){ir_splat(b, re, s->p.wide), ir_splat(b, im, s->p.wide)});
    }
}

/* `done`: frequencies behind it. in, out: where the line begins in memory. */
static void make_step(lines *l, uint32_t step, uint32_t done, ir_id in, ir_id out) {
    fft *s = l->s;
    ir_builder *b = s->k.b;
    const uint32_t radix = s->p.radix[step], count = s->n / radix, blocks = count / done;
    const ir_id zero = ir_u32(b, 0), unit = ir_u32(b, l->alone ? s->p.wide : 1);
    fft_complex x[FFT_RADIX_MAX];
    ir_id own, to, at = zero;
    if (done == 1) {
        own = ir_loop(b, zero, ir_u32(b, count), unit);
        to = tile_mul(b, own, radix);
    } else {
        const ir_id block = ir_loop(b, zero, ir_u32(b, blocks), ir_u32(b, 1));
        at = ir_loop(b, zero, ir_u32(b, done), unit);
        own = ir_add(b, tile_mul(b, block, done), at);
        to = ir_add(b, tile_mul(b, block, done * radix), at);
    }
    for (uint32_t u = 0; u < radix; u++) x[u] = element(l, step, u, own, in);
    if (done > 1) turn(l, step, done, at, x);
    fft_transform(s, x, radix);
    if (l->alone && done == 1) {
        ir_id re[FFT_RADIX_MAX], im[FFT_RADIX_MAX];
        for (uint32_t u = 0; u < radix; u++) re[u] = x[u].re, im[u] = x[u].im;
        tile_turn(b, re, radix);
        tile_turn(b, im, radix);
        for (uint32_t u = 0; u < radix; u++) x[u] = (fft_complex){re[u], im[u]};
        done = s->p.wide;
    }
    for (uint32_t u = 0; u < radix; u++) keep(l, step, u, to, done, x[u], out);
    ir_end(b);
    if (step) ir_end(b);
}

/* Where the line begins, of `size` elements. */
static ir_id begin_of(const lines *l, ir_id line, uint32_t size) {
    fft *s = l->s;
    ir_builder *b = s->k.b;
    const ir_id first = tile_mul(b, line, l->apart);
    return ir_add(b, tile_mul(b, tile_div(b, first, s->inner), size * s->inner),
                  tile_rem(b, first, s->inner));
}

beryl_status fft_lines(fft *s) {
    tile_kernel *k = &s->k;
    const fft_pass *p = &s->p;
    lines all = {.s = s, .alone = s->inner == 1, .apart = s->inner == 1 ? 1 : p->wide}, *l = &all;
    ir_builder *b = tile_begin(k, s->l, "fft", 1);
    s->from = tile_read(k, "x", s->node->in[0]);
    s->to = tile_write(k, "y", s->node->out[0]);
    s->from.anywhere = s->to.anywhere = true;
    s->offset = s->x->offset ? tile_u32(k, "x_offset", s->x->offset) : ir_u32(b, 0);
    const lower_count count = lower_count_times(s->rows, s->inner / l->apart);
    s->count = tile_count(k, "n", count);
    const uint32_t n_root = roots_of(p, l->table);
    for (uint32_t part = 0; part < 2; part++) {
        for (uint32_t i = 0; i < 2 && i + 1 < p->n_step; i++)
            l->held[i][part] = ir_workgroup(b, s->real, s->n * l->apart);
        if (n_root) l->roots[part] = ir_workgroup(b, s->real, n_root);
    }
    for (uint32_t i = 1, done = p->radix[0]; i < p->n_step; done *= p->radix[i++])
        make_roots(l, i, done);
    const ir_id from = tile_mul(b, tile_group(b), p->lines),
                end = ir_min(b, tile_add(b, from, p->lines), s->count),
                line = ir_loop(b, from, end, ir_u32(b, 1)), in = begin_of(l, line, s->n_in),
                out = begin_of(l, line, s->n_out);
    for (uint32_t i = 0, done = 1; i < p->n_step; done *= p->radix[i++])
        make_step(l, i, done, in, out);
    ir_end(b);
    return tile_end(k, count, p->lines);
}
