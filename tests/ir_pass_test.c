/* ir_pass_test.c - passes change how a kernel computes, never what.
 *
 * The judge is the interpreter: the kernel as its lowering wrote it, run as one workgroup, gives
 * the values; after any passes in any order under any schedule, run by any number of workgroups,
 * they are the same bit for bit. Numbers are small integers, so that sums are exact in every order.
 * The verifier runs after each pass, and the interpreter looks for races and undefined memory. */
#include "ir_draw.h"
#include "ir_lab.h"
#include "rig.h"
#include "codegen/codegen.h"
#include "ir/pass/pass.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { BUFFERS = 4, ELEMENTS = 2048, PARAMS = 8 };

static void seeded_open(lab *l, uint64_t seed) {
    lab_open(l, -1);
    l->seed = seed * 0x9e3779b97f4a7c15u + 1;
}

static uint32_t draw(lab *l, uint32_t n) { /* below n */
    return ir_draw(&l->seed, n);
}

static uint32_t pick(lab *l, const uint32_t *from, uint32_t n) {
    return from[draw(l, n)];
}

/* ---- kernels --------------------------------------------------------------------------------- */

/* Extents of a case: params 0 1 2, or constants where a kernel says so. */
typedef struct sizes {
    uint32_t m, n, k;
} sizes;

typedef const ir_kernel *maker(lab *l, sizes s);

typedef struct make {
    ir_builder *b;
    ir_memory x, w, y, z; /* f32; x, w read, y, z written */
    ir_id m, n, k, zero, one;
} make;

static make make_begin(lab *l, sizes s, bool constant) {
    make a = {.b = ir_begin(&l->arena, "case", 1, 1, 1)};
    a.x = ir_buffer(a.b, IR_F32, IR_READ, "x");
    a.w = ir_buffer(a.b, IR_F32, IR_READ, "w");
    a.y = ir_buffer(a.b, IR_F32, IR_READ_WRITE, "y");
    a.z = ir_buffer(a.b, IR_U32, IR_READ_WRITE, "z");
    ir_id m = ir_param(a.b, IR_U32, "m"), n = ir_param(a.b, IR_U32, "n"),
          k = ir_param(a.b, IR_U32, "k");
    a.zero = ir_u32(a.b, 0);
    a.one = ir_u32(a.b, 1);
    a.m = constant ? ir_u32(a.b, s.m) : m;
    a.n = constant ? ir_u32(a.b, s.n) : n;
    a.k = constant ? ir_u32(a.b, s.k) : k;
    return a;
}

static const ir_kernel *make_end(make *a) {
    const ir_kernel *k = NULL;
    beryl_error error = {0};
    if (ir_finish(a->b, &k, &error)) fprintf(stderr, "a kernel of the tests: %s\n", error.message);
    return k;
}

static ir_id loop(make *a, ir_id n, ir_mark_kind kind, uint32_t dim) {
    return ir_loop_marked(a->b, a->zero, n, a->one, kind, dim);
}

/* row * width + column */
static ir_id at(make *a, ir_id row, ir_id width, ir_id column) {
    return ir_add(a->b, ir_mul(a->b, row, width), column);
}

/* y[i] = max(2 x[i] + w[i], -3) */
static const ir_kernel *pointwise(lab *l, sizes s) {
    make a = make_begin(l, s, false);
    ir_builder *b = a.b;
    ir_id i = loop(&a, a.n, IR_PARALLEL, 0);
    ir_id v = ir_fma(b, ir_load(b, a.x, i, 1), ir_f32(b, 2), ir_load(b, a.w, i, 1));
    ir_store(b, a.y, i, ir_max(b, v, ir_f32(b, -3)));
    ir_end(b);
    return make_end(&a);
}

static const ir_kernel *pointwise_constant(lab *l, sizes s) {
    make a = make_begin(l, s, true);
    ir_builder *b = a.b;
    ir_id total = ir_u32(b, s.m * s.n);
    ir_id i = loop(&a, total, IR_PARALLEL, 0);
    /* x is a row of n, broadcast over the rows */
    ir_id column = ir_mod(b, i, a.n);
    ir_store(b, a.y, i, ir_sub(b, ir_load(b, a.w, i, 1), ir_load(b, a.x, column, 1)));
    ir_end(b);
    return make_end(&a);
}

/* y[j, i] = x[i, j] */
static const ir_kernel *transpose(lab *l, sizes s) {
    make a = make_begin(l, s, true);
    ir_builder *b = a.b;
    ir_id i = loop(&a, a.m, IR_PARALLEL, 0), j = loop(&a, a.n, IR_PARALLEL, 1);
    ir_store(b, a.y, at(&a, j, a.m, i), ir_load(b, a.x, at(&a, i, a.n, j), 1));
    ir_end(b), ir_end(b);
    return make_end(&a);
}

/* turned: w is [k, n], else [n, k] */
static const ir_kernel *product(lab *l, sizes s, bool constant, bool bias, bool turned) {
    make a = make_begin(l, s, constant);
    ir_builder *b = a.b;
    ir_memory sum = ir_register(b, IR_F32, 1);
    ir_id i = loop(&a, a.m, IR_PARALLEL, 0), j = loop(&a, a.n, IR_PARALLEL, 1);
    ir_id start = bias ? ir_load(b, a.x, j, 1) : ir_f32(b, 0);
    ir_set(b, sum, start);
    ir_id k = loop(&a, a.k, IR_REDUCE, 2);
    ir_id x = ir_load(b, a.x, at(&a, i, a.k, k), 1),
          w = ir_load(b, a.w, turned ? at(&a, k, a.n, j) : at(&a, j, a.k, k), 1);
    if (bias) w = ir_max(b, w, ir_f32(b, -1)); /* computed where it is read */
    ir_set(b, sum, ir_fma(b, x, w, ir_get(b, sum)));
    ir_end(b);
    ir_id v = ir_get(b, sum);
    if (bias) v = ir_add(b, v, start);
    ir_store(b, a.y, at(&a, i, a.n, j), v);
    ir_end(b), ir_end(b);
    return make_end(&a);
}
static const ir_kernel *matmul(lab *l, sizes s) {
    return product(l, s, false, false, false);
}
static const ir_kernel *matmul_constant(lab *l, sizes s) {
    return product(l, s, true, false, false);
}
static const ir_kernel *matmul_bias(lab *l, sizes s) {
    return product(l, s, true, true, false);
}
static const ir_kernel *matmul_turned(lab *l, sizes s) {
    return product(l, s, true, false, true);
}

/* Of factors of any types, whose kernel says its sizes itself. */
static make make_product(lab *l, const char *name, ir_type x, ir_type w) {
    make a = {.b = ir_begin(&l->arena, name, 1, 1, 1)};
    a.x = ir_buffer(a.b, x, IR_READ, "x");
    a.w = ir_buffer(a.b, w, IR_READ, "w");
    a.y = ir_buffer(a.b, IR_F32, IR_READ_WRITE, "y");
    a.zero = ir_u32(a.b, 0);
    a.one = ir_u32(a.b, 1);
    return a;
}

/* y = 2 x * w + bias of halves; both factors' rows are read in odd ways */
static const ir_kernel *halves(lab *l, sizes s, ir_type type, bool constant, bool x_across,
                               bool w_across) {
    make a = make_product(l, "halves", type, type);
    ir_builder *b = a.b;
    ir_id m = ir_param(b, IR_U32, "m"), n = ir_param(b, IR_U32, "n"), k = ir_param(b, IR_U32, "k");
    ir_memory sum = ir_register(b, IR_F32, 1);
    a.m = constant ? ir_u32(b, s.m) : m, a.n = constant ? ir_u32(b, s.n) : n,
    a.k = constant ? ir_u32(b, s.k) : k;
    ir_id i = loop(&a, a.m, IR_PARALLEL, 0), row = ir_mul(b, i, a.k),
          j = loop(&a, a.n, IR_PARALLEL, 1);
    ir_set(b, sum, ir_cast(b, IR_F32, ir_load(b, a.w, j, 1)));
    ir_id p = loop(&a, a.k, IR_REDUCE, 2);
    ir_id x = ir_load(b, a.x, x_across ? at(&a, p, a.m, i) : ir_add(b, row, p), 1),
          w = ir_load(b, a.w, w_across ? at(&a, p, a.n, j) : at(&a, j, a.k, p), 1);
    ir_set(b, sum, ir_fma(b, ir_cast(b, IR_F32, x), ir_cast(b, IR_F32, w), ir_get(b, sum)));
    ir_end(b);
    ir_store(b, a.y, at(&a, i, a.n, j), ir_mul(b, ir_get(b, sum), ir_f32(b, 2)));
    ir_end(b), ir_end(b);
    return make_end(&a);
}
static const ir_kernel *halves_f16(lab *l, sizes s) {
    return halves(l, s, IR_F16, false, false, true);
}
/* k a multiple of 16: copied in pieces */
static const ir_kernel *halves_copied(lab *l, sizes s) {
    return halves(l, (sizes){s.m, s.n, s.k > 8 ? 64 : 32}, IR_F16, true, false, false);
}
/* neighbours of both differ in the row; n a multiple of 8, m perhaps */
static const ir_kernel *halves_across(lab *l, sizes s) {
    return halves(l, (sizes){s.m > 8 ? 40 : s.m, s.n > 8 ? 48 : 24, s.k}, IR_F16, true, true, true);
}
static const ir_kernel *halves_bf16(lab *l, sizes s) {
    return halves(l, s, IR_BF16, true, false, true);
}

/* y = x * w, whose last terms lie elsewhere. last: of the first terms, what those behind it repeat
 */
static const ir_kernel *joined(lab *l, sizes s, uint32_t last) {
    enum { FIRST = 64, REST = 16 };
    make a = make_product(l, "halves_joined", IR_F16, IR_F16);
    ir_builder *b = a.b;
    ir_memory sum = ir_register(b, IR_F32, 1);
    a.m = ir_u32(b, s.m), a.n = ir_u32(b, s.n), a.k = ir_u32(b, FIRST);
    const ir_id all = ir_u32(b, FIRST + REST), end = ir_u32(b, last), others = ir_u32(b, REST),
                i = loop(&a, a.m, IR_PARALLEL, 0), j = loop(&a, a.n, IR_PARALLEL, 1);
    ir_set(b, sum, ir_f32(b, 0));
    const ir_id p = loop(&a, all, IR_REDUCE, 2), is_first = ir_lt(b, p, a.k),
                first = ir_min(b, p, end), rest = ir_sub(b, ir_max(b, p, a.k), a.k),
                x = ir_select(b, is_first, ir_load(b, a.x, at(&a, i, a.k, first), 1),
                              ir_load(b, a.w, at(&a, i, others, rest), 1)),
                w = ir_select(b, is_first, ir_load(b, a.w, at(&a, j, a.k, first), 1),
                              ir_load(b, a.x, at(&a, j, others, rest), 1));
    ir_set(b, sum, ir_fma(b, ir_cast(b, IR_F32, x), ir_cast(b, IR_F32, w), ir_get(b, sum)));
    ir_end(b);
    ir_store(b, a.y, at(&a, i, a.n, j), ir_get(b, sum));
    ir_end(b), ir_end(b);
    return make_end(&a);
}
static const ir_kernel *halves_joined(lab *l, sizes s) {
    return joined(l, s, 63);
}
static const ir_kernel *halves_repeated(lab *l, sizes s) {
    return joined(l, s, 62);
}

/* y[image] = x * w[image]: the columns are places in images, and lie in pieces there; k is short */
static const ir_kernel *halves_images(lab *l, sizes s) {
    enum { PLACES = 24, DEPTH = 32 };
    make a = make_product(l, "halves_images", IR_F16, IR_F16);
    ir_builder *b = a.b;
    ir_memory sum = ir_register(b, IR_F32, 1);
    a.m = ir_u32(b, s.m), a.n = ir_u32(b, s.n > 8 ? 4 * PLACES : PLACES), a.k = ir_u32(b, DEPTH);
    const ir_id places = ir_u32(b, PLACES), i = loop(&a, a.m, IR_PARALLEL, 0),
                j = loop(&a, a.n, IR_PARALLEL, 1), image = ir_div(b, j, places),
                place = ir_mod(b, j, places);
    ir_set(b, sum, ir_f32(b, 0));
    const ir_id p = loop(&a, a.k, IR_REDUCE, 2), x = ir_load(b, a.x, at(&a, i, a.k, p), 1),
                w = ir_load(b, a.w, at(&a, at(&a, image, a.k, p), places, place), 1);
    ir_set(b, sum, ir_fma(b, ir_cast(b, IR_F32, x), ir_cast(b, IR_F32, w), ir_get(b, sum)));
    ir_end(b);
    ir_store(b, a.y, at(&a, at(&a, image, a.m, i), places, place), ir_get(b, sum));
    ir_end(b), ir_end(b);
    return make_end(&a);
}

/* y = x * w: m and n are multiples of 8, along which neighbours lie side by side; any k. Copied in
 * pieces */
static const ir_kernel *halves_turned(lab *l, sizes s) {
    make a = make_product(l, "halves_turned", IR_BF16, IR_BF16);
    ir_builder *b = a.b;
    a.k = ir_param(b, IR_U32, "k");
    ir_memory sum = ir_register(b, IR_F32, 1);
    a.m = ir_u32(b, s.m > 8 ? 40 : 8), a.n = ir_u32(b, s.n > 8 ? 24 : 16);
    ir_id i = loop(&a, a.m, IR_PARALLEL, 0), j = loop(&a, a.n, IR_PARALLEL, 1);
    ir_set(b, sum, ir_f32(b, 0));
    ir_id p = loop(&a, a.k, IR_REDUCE, 2),
          x = ir_load(b, a.x, ir_add(b, ir_add(b, i, ir_mul(b, p, a.m)), ir_u32(b, 16)), 1),
          w = ir_load(b, a.w, at(&a, p, a.n, j), 1);
    ir_set(b, sum, ir_fma(b, ir_cast(b, IR_F32, x), ir_cast(b, IR_F32, w), ir_get(b, sum)));
    ir_end(b);
    ir_store(b, a.y, at(&a, i, a.n, j), ir_get(b, sum));
    ir_end(b), ir_end(b);
    return make_end(&a);
}

/* y[g] = x * w[g] for three matrices, each with a number of rows of its own: 0, up to 4, up to
 * 8; w is computed where it is read */
static const ir_kernel *halves_grouped(lab *l, sizes s) {
    make a = make_product(l, "halves_grouped", IR_F16, IR_F32);
    ir_builder *b = a.b;
    ir_memory sum = ir_register(b, IR_F32, 1);
    a.m = ir_param(b, IR_U32, "m"), a.n = ir_param(b, IR_U32, "n"), a.k = ir_param(b, IR_U32, "k");
    if (s.k == 16) a.k = ir_u32(b, s.k); /* whole tiles */
    ir_id g = loop(&a, ir_u32(b, 3), IR_PARALLEL, 3),
          rows = ir_min(b, a.m, ir_mul(b, g, ir_u32(b, 4))), first = ir_mul(b, g, a.n);
    ir_id i = loop(&a, rows, IR_PARALLEL, 0), j = loop(&a, a.n, IR_PARALLEL, 1);
    ir_set(b, sum, ir_f32(b, 0));
    ir_id p = loop(&a, a.k, IR_REDUCE, 2);
    ir_id x = ir_load(b, a.x, at(&a, i, a.k, p), 1),
          w = ir_load(b, a.w, at(&a, ir_add(b, first, j), a.k, p), 1);
    w = ir_cast(b, IR_F32, ir_cast(b, IR_F16, ir_min(b, w, ir_f32(b, 5))));
    ir_set(b, sum, ir_fma(b, ir_cast(b, IR_F32, x), w, ir_get(b, sum)));
    ir_end(b);
    ir_store(b, a.y, at(&a, at(&a, g, a.m, i), a.n, j), ir_get(b, sum));
    ir_end(b), ir_end(b), ir_end(b);
    return make_end(&a);
}

/* y[i] = sum of x[i, k] * w[k] with w in packed 4-bit numbers, a scale for each 8 */
static const ir_kernel *quantised(lab *l, sizes s) {
    make a = make_begin(l, s, false);
    ir_builder *b = a.b;
    ir_memory sum = ir_register(b, IR_F32, 1);
    ir_id i = loop(&a, a.m, IR_PARALLEL, 0);
    ir_set(b, sum, ir_f32(b, 0));
    ir_id block = loop(&a, ir_u32(b, (s.k + 7) / 8), IR_REDUCE, 2);
    ir_id row = ir_mul(b, ir_add(b, ir_mul(b, i, ir_u32(b, (s.k + 7) / 8)), block), ir_u32(b, 8));
    ir_id word = ir_bitcast(b, IR_U32, 1, ir_load(b, a.w, block, 1));
    ir_id place = ir_loop(b, a.zero, ir_u32(b, 8), a.one);
    ir_id four = ir_and(b, ir_shr(b, word, ir_mul(b, place, ir_u32(b, 4))), ir_u32(b, 15));
    ir_id weight = ir_sub(b, ir_cast(b, IR_F32, four), ir_f32(b, 8));
    ir_set(b, sum, ir_fma(b, ir_load(b, a.x, ir_add(b, row, place), 1), weight, ir_get(b, sum)));
    ir_end(b), ir_end(b);
    ir_store(b, a.y, i, ir_get(b, sum));
    ir_end(b);
    return make_end(&a);
}

/* rows: largest, sum of what lies below it, results of both; the shape of a softmax */
static const ir_kernel *rows(lab *l, sizes s) {
    make a = make_begin(l, s, false);
    ir_builder *b = a.b;
    ir_memory most = ir_register(b, IR_F32, 1), sum = ir_register(b, IR_F32, 1);
    ir_id i = loop(&a, a.m, IR_PARALLEL, 0);
    ir_set(b, most, ir_f32(b, -1000));
    ir_id j = loop(&a, a.n, IR_REDUCE, 1);
    ir_set(b, most, ir_max(b, ir_get(b, most), ir_load(b, a.x, at(&a, i, a.n, j), 1)));
    ir_end(b);
    ir_set(b, sum, ir_f32(b, 0));
    j = loop(&a, a.n, IR_REDUCE, 1);
    ir_set(b, sum,
           ir_add(b, ir_get(b, sum),
                  ir_sub(b, ir_get(b, most), ir_load(b, a.x, at(&a, i, a.n, j), 1))));
    ir_end(b);
    j = loop(&a, a.n, IR_PARALLEL, 1);
    ir_id v = ir_fma(b, ir_load(b, a.x, at(&a, i, a.n, j), 1), ir_f32(b, 3), ir_get(b, sum));
    ir_store(b, a.y, at(&a, i, a.n, j), v);
    ir_end(b);
    ir_store(b, a.z, i, ir_cast(b, IR_U32, ir_get(b, sum)));
    ir_end(b);
    return make_end(&a);
}

/* rows: sum and sum of squares, in two loops that may be one; results of both */
static const ir_kernel *moments(lab *l, sizes s) {
    make a = make_begin(l, s, true);
    ir_builder *b = a.b;
    ir_memory sum = ir_register(b, IR_F32, 1), squares = ir_register(b, IR_F32, 1);
    ir_id i = loop(&a, a.m, IR_PARALLEL, 0);
    ir_set(b, sum, ir_f32(b, 0));
    ir_id j = loop(&a, a.n, IR_REDUCE, 1);
    ir_set(b, sum, ir_add(b, ir_load(b, a.x, at(&a, i, a.n, j), 1), ir_get(b, sum)));
    ir_end(b);
    ir_set(b, squares, ir_f32(b, 0));
    j = loop(&a, a.n, IR_REDUCE, 1);
    ir_id v = ir_load(b, a.x, at(&a, i, a.n, j), 1);
    ir_set(b, squares, ir_fma(b, v, v, ir_get(b, squares)));
    ir_end(b);
    j = loop(&a, a.n, IR_PARALLEL, 1);
    ir_store(b, a.y, at(&a, i, a.n, j),
             ir_add(b, ir_get(b, squares), ir_mul(b, ir_get(b, sum), ir_load(b, a.w, j, 1))));
    ir_end(b);
    ir_end(b);
    return make_end(&a);
}

/* bounds that depend on the row; a condition in a reduction */
static const ir_kernel *causal(lab *l, sizes s) {
    make a = make_begin(l, s, false);
    ir_builder *b = a.b;
    ir_memory sum = ir_register(b, IR_F32, 1), least = ir_register(b, IR_I32, 1);
    ir_id i = loop(&a, a.m, IR_PARALLEL, 0);
    ir_set(b, sum, ir_f32(b, 5));
    ir_set(b, least, ir_i32(b, 77));
    ir_id j = ir_loop_marked(b, a.zero, ir_min(b, ir_add(b, i, a.one), a.n), a.one, IR_REDUCE, 1);
    ir_id v = ir_load(b, a.x, at(&a, i, a.n, j), 1);
    ir_if(b, ir_gt(b, v, ir_f32(b, 0)));
    ir_set(b, sum, ir_add(b, ir_get(b, sum), v));
    ir_end(b);
    ir_set(b, least, ir_min(b, ir_cast(b, IR_I32, v), ir_get(b, least)));
    ir_end(b);
    ir_store(b, a.y, i, ir_add(b, ir_get(b, sum), ir_cast(b, IR_F32, ir_get(b, least))));
    ir_end(b);
    return make_end(&a);
}

/* a scan along each row: its order stays; a register array of the iteration; both branches store */
static const ir_kernel *scan(lab *l, sizes s) {
    make a = make_begin(l, s, false);
    ir_builder *b = a.b;
    ir_memory sum = ir_register(b, IR_F32, 2);
    ir_id i = loop(&a, a.m, IR_PARALLEL, 0);
    ir_store(b, sum, a.zero, ir_f32(b, 1));
    ir_store(b, sum, a.one, ir_f32(b, 0));
    ir_id j = ir_loop(b, a.zero, a.n, a.one);
    ir_id v = ir_load(b, a.x, at(&a, i, a.n, j), 1);
    ir_id odd = ir_and(b, j, a.one);
    ir_store(b, sum, odd, ir_sub(b, v, ir_load(b, sum, odd, 1)));
    ir_if(b, ir_eq(b, odd, a.zero));
    ir_store(b, a.y, at(&a, i, a.n, j), ir_load(b, sum, a.zero, 1));
    ir_else(b);
    ir_store(b, a.y, at(&a, i, a.n, j), ir_neg(b, ir_load(b, sum, a.one, 1)));
    ir_end(b);
    ir_end(b);
    ir_end(b);
    return make_end(&a);
}

/* counts by value: results that meet only in atomics; in place: reads what it writes */
static const ir_kernel *histogram(lab *l, sizes s) {
    make a = make_begin(l, s, false);
    ir_builder *b = a.b;
    ir_id i = loop(&a, a.n, IR_PARALLEL, 0);
    ir_id v = ir_load(b, a.x, i, 1);
    ir_atomic(b, IR_ATOMIC_ADD, a.z, ir_cast(b, IR_U32, ir_abs(b, v)), a.one);
    ir_store(b, a.y, i, ir_add(b, ir_load(b, a.y, i, 1), v));
    ir_end(b);
    return make_end(&a);
}

/* the whole buffer to one number, and things that stand outside every loop */
static const ir_kernel *total(lab *l, sizes s) {
    make a = make_begin(l, s, false);
    ir_builder *b = a.b;
    ir_memory sum = ir_register(b, IR_I32, 2);
    ir_store(b, sum, a.zero, ir_i32(b, 3));
    ir_store(b, sum, a.one, ir_i32(b, -1));
    ir_id i = loop(&a, a.n, IR_REDUCE, 1);
    ir_id v = ir_cast(b, IR_I32, ir_load(b, a.x, i, 1));
    ir_store(b, sum, a.zero, ir_add(b, v, ir_load(b, sum, a.zero, 1)));
    ir_store(b, sum, a.one, ir_and(b, ir_load(b, sum, a.one, 1), v));
    ir_end(b);
    ir_store(b, a.y, a.zero, ir_cast(b, IR_F32, ir_load(b, sum, a.zero, 1)));
    ir_store(b, a.y, a.one, ir_cast(b, IR_F32, ir_load(b, sum, a.one, 1)));
    i = loop(&a, a.m, IR_PARALLEL, 0);
    ir_store(b, a.z, i, ir_div(b, ir_mul(b, i, ir_u32(b, 6)), ir_u32(b, 3)));
    ir_end(b);
    return make_end(&a);
}

/* ---- random kernels -------------------------------------------------------------------------- */

typedef struct nest {
    make a;
    lab *l;
    ir_id indices[8]; /* of the loops around, outermost first */
    ir_id bounds[8];  /* what they stay below */
    uint32_t n,
        parallel; /* how many; how many of them are parallel and count for addresses of stores */
    ir_id values[16]; /* f32, usable here */
    uint32_t n_value, stores, budget;
} nest;

/* Any place of a buffer. */
static ir_id some_place(nest *g) {
    ir_builder *b = g->a.b;
    ir_id place = ir_u32(b, draw(g->l, 9));
    for (uint32_t i = 0; i < g->n; i++) {
        uint32_t kind = draw(g->l, 5);
        if (kind == 0) continue;
        ir_id by = kind == 1   ? g->bounds[draw(g->l, g->n)]
                   : kind == 2 ? ir_u32(b, 1 + draw(g->l, 8))
                               : g->a.one;
        place = ir_add(b, kind == 1 ? ir_mul(b, place, by) : place,
                       kind == 2 ? ir_mul(b, g->indices[i], by) : g->indices[i]);
    }
    uint32_t kind = draw(g->l, 4);
    if (kind == 0) place = ir_div(b, place, ir_u32(b, 1 + draw(g->l, 5)));
    if (kind == 1) place = ir_mod(b, place, ir_u32(b, 1 + draw(g->l, 40)));
    return ir_and(b, place, ir_u32(b, ELEMENTS - 1));
}

static ir_id expression(nest *g, uint32_t depth) {
    ir_builder *b = g->a.b;
    uint32_t kind = draw(g->l, depth ? 9 : 3);
    if (kind == 0 && g->n_value) return g->values[draw(g->l, g->n_value)];
    if (kind == 1) return ir_f32(b, (float)draw(g->l, 7) - 3);
    if (kind <= 3) return ir_load(b, draw(g->l, 2) ? g->a.x : g->a.w, some_place(g), 1);
    ir_id x = expression(g, depth - 1);
    if (kind == 4)
        return ir_cast(b, IR_F32, ir_and(b, g->n ? g->indices[g->n - 1] : g->a.one, ir_u32(b, 7)));
    if (kind == 5) return ir_mul(b, x, ir_f32(b, (float)draw(g->l, 3) - 1));
    ir_id y = expression(g, depth - 1);
    if (kind == 6) return ir_add(b, x, y);
    if (kind == 7) return ir_select(b, ir_lt(b, x, y), y, ir_neg(b, x));
    return ir_min(b, ir_abs(b, x), y);
}

static void enter(nest *g, ir_mark_kind kind, uint32_t dim) {
    ir_builder *b = g->a.b;
    ir_id sizes_of[3] = {g->a.m, g->a.n, g->a.k}, to = sizes_of[dim];
    if (g->n && draw(g->l, 6) == 0)
        to = ir_min(b, to, ir_add(b, g->indices[g->n - 1], g->a.one)); /* a triangle */
    g->bounds[g->n] = sizes_of[dim];
    g->indices[g->n++] = ir_loop_marked(b, g->a.zero, to, g->a.one, kind, dim);
}

static void leave(nest *g, uint32_t n_value) {
    ir_end(g->a.b);
    g->n--;
    g->n_value = n_value;
}

static void reduction(nest *g) {
    ir_builder *b = g->a.b;
    uint32_t before = g->n_value, kind = draw(g->l, 4), twice = draw(g->l, 3) == 0,
             dim = 1 + draw(g->l, 2);
    ir_memory sum = ir_register(b, IR_F32, 2);
    ir_store(b, sum, g->a.zero, expression(g, 1));
    if (twice) ir_store(b, sum, g->a.one, expression(g, 1));
    enter(g, IR_REDUCE, dim);
    for (uint32_t c = 0; c <= twice; c++) {
        bool sure = draw(g->l, 3) > 0;
        ir_id v = expression(g, 2), place = c ? g->a.one : g->a.zero;
        if (!sure) ir_if(b, ir_gt(b, v, expression(g, 0)));
        ir_id old = ir_load(b, sum, place, 1);
        ir_store(b, sum, place,
                 kind == 0   ? ir_max(b, old, v)
                 : kind == 1 ? ir_fma(b, v, ir_f32(b, 2), old)
                 : kind == 2 ? ir_min(b, v, old)
                             : ir_add(b, v, old));
        if (!sure) ir_end(b);
    }
    leave(g, before);
    g->values[g->n_value++] = ir_load(b, sum, g->a.zero, 1);
    if (twice) g->values[g->n_value++] = ir_load(b, sum, g->a.one, 1);
}

/* Order matters: a register carried from turn to turn. */
static void recurrence(nest *g) {
    ir_builder *b = g->a.b;
    uint32_t before = g->n_value;
    ir_memory state = ir_register(b, IR_F32, 1);
    ir_set(b, state, expression(g, 1));
    enter(g, IR_SERIAL, 2);
    ir_id old = ir_get(b, state);
    g->values[g->n_value++] = old;
    ir_id v = expression(g, 2);
    ir_set(b, state, ir_select(b, ir_lt(b, old, ir_f32(b, 40)), ir_sub(b, v, old), ir_f32(b, 1)));
    leave(g, before);
    g->values[g->n_value++] = ir_get(b, state);
}

/* Each statement writes a part of y of its own, each iteration a place of its own. */
static void store(nest *g) {
    ir_builder *b = g->a.b;
    if (g->stores == 4) return;
    ir_id place = g->a.zero;
    for (uint32_t i = 0; i < g->parallel; i++)
        place = ir_add(b, ir_mul(b, place, g->bounds[i]), g->indices[i]);
    place = ir_add(b, place, ir_u32(b, 512 * g->stores++));
    bool sure = draw(g->l, 4) > 0;
    if (!sure) ir_if(b, ir_ne(b, expression(g, 1), ir_f32(b, 0)));
    ir_store(b, g->a.y, place, expression(g, 2));
    if (!sure) ir_end(b);
}

static void statements(nest *g) {
    uint32_t n = 1 + draw(g->l, 3);
    for (uint32_t i = 0; i < n; i++) {
        uint32_t kind = draw(g->l, 5);
        uint32_t before = g->n_value;
        if (g->n_value > 10 || !g->budget) kind = 2;
        if (g->budget) g->budget--;
        if (kind == 0) reduction(g);
        if (kind == 1) recurrence(g);
        if (kind == 2) store(g);
        if (kind >= 3 && g->parallel < 3 && g->n == g->parallel) {
            enter(g, IR_PARALLEL, g->parallel);
            g->parallel++;
            statements(g);
            g->parallel--;
            leave(g, before);
        }
    }
    store(g);
}

static const ir_kernel *random_kernel(lab *l, sizes s) {
    nest g = {.a = make_begin(l, s, draw(l, 2)), .l = l, .budget = 7};
    statements(&g);
    return make_end(&g.a);
}

static const struct {
    const char *name;
    maker *make;
} kernels[] = {
    {"pointwise", pointwise},
    {"pointwise-constant", pointwise_constant},
    {"transpose", transpose},
    {"matmul", matmul},
    {"matmul-constant", matmul_constant},
    {"matmul-bias", matmul_bias},
    {"matmul-turned", matmul_turned},
    {"quantised", quantised},
    {"rows", rows},
    {"moments", moments},
    {"causal", causal},
    {"scan", scan},
    {"histogram", histogram},
    {"total", total},
    {"halves-f16", halves_f16},
    {"halves-bf16", halves_bf16},
    {"halves-copied", halves_copied},
    {"halves-across", halves_across},
    {"halves-turned", halves_turned},
    {"halves-joined", halves_joined},
    {"halves-repeated", halves_repeated},
    {"halves-images", halves_images},
    {"halves-grouped", halves_grouped},
    {"random", random_kernel},
};
enum { KERNELS = sizeof kernels / sizeof *kernels };

/* ---- running --------------------------------------------------------------------------------- */

typedef struct memory {
    alignas(16) uint32_t words[BUFFERS][ELEMENTS];
} memory;

static void fill(memory *m) {
    uint32_t state = 12345;
    for (uint32_t b = 0; b < BUFFERS; b++)
        for (uint32_t i = 0; i < ELEMENTS; i++) {
            state = state * 1664525 + 1013904223;
            float value = (float)((int)(state >> 24 & 15) - 7);
            if (b == 3) m->words[b][i] = 0;
            else memcpy(&m->words[b][i], &value, 4);
        }
}

static beryl_status interpret(lab *l, const ir_kernel *k, sizes s, const uint32_t groups[3],
                              memory *m, beryl_error *error) {
    ir_run run = {
        .params = {s.m, s.n, s.k}, .groups = {groups[0], groups[1], groups[2]}, .limit = 1u << 28};
    fill(m);
    for (uint32_t b = 0; b < k->n_buffer; b++) {
        run.buffers[b].data = m->words[b];
        run.buffers[b].size = sizeof m->words[b];
    }
    return ir_interpret(&l->heap, k, &run, error);
}

/* Bit for bit, but zeros of both signs are one: which of them a minimum gives depends on the order.
 */
static bool is_same(const memory *a, const memory *b) {
    const uint32_t minus_zero = 0x80000000;
    for (uint32_t i = 0; i < BUFFERS; i++)
        for (uint32_t w = 0; w < ELEMENTS; w++)
            if (a->words[i][w] != b->words[i][w] &&
                ((a->words[i][w] | b->words[i][w]) != minus_zero ||
                 (a->words[i][w] & b->words[i][w])))
                return false;
    return true;
}

static void show(lab *l, const char *what, const ir_kernel *k) {
    base_text text;
    base_text_init(&text, &l->heap);
    ir_print(&text, k);
    fprintf(stderr, "%s:\n%s\n", what, text.data ? text.data : "");
    base_text_fini(&text);
}

/* Runs the passes and compares with `want`. One pass at a time, so that the first that errs is
 * named. */
static bool check(test *t, lab *l, const char *name, const ir_kernel *plain, sizes s,
                  const ir_schedule *schedule, const ir_pass *order, size_t n, const memory *want,
                  memory *got) {
    const ir_kernel *k = NULL;
    beryl_error error = {0};
    if (ir_passes_run(&l->arena, plain, schedule, order, n, true, &k, &error)) {
        test_fail(t, __FILE__, __LINE__, "%s: %s", name, error.message);
        show(l, "from", plain);
        return false;
    }
    ir_grid grid;
    uint32_t groups[3], params[PARAMS] = {s.m, s.n, s.k};
    ir_grid_of(k, &grid);
    ir_grid_run(&grid, params, 20, groups);
    for (uint32_t round = 0; round < 2; round++) {
        beryl_status status = interpret(l, k, s, groups, got, &error);
        if (status || !is_same(want, got)) {
            char text[400] = "";
            for (size_t p = 0; p < n; p++)
                snprintf(text + strlen(text), sizeof text - strlen(text), " %s",
                         ir_pass_of(order[p])->name);
            test_fail(t, __FILE__, __LINE__, "%s (%u %u %u), groups %u %u %u, passes%s: %s at %llu",
                      name, s.m, s.n, s.k, groups[0], groups[1], groups[2], text,
                      status ? error.message : "other values", (unsigned long long)error.at);
            if (getenv("BERYL_TEST_SHOW")) {
                show(l, "from", plain);
                const ir_kernel *step = plain;
                for (size_t p = 0; p < n; p++) {
                    const ir_kernel *before = step;
                    if (ir_passes_run(&l->arena, step, schedule, &order[p], 1, true, &step, &error))
                        break;
                    if (step != before) show(l, ir_pass_of(order[p])->name, step);
                }
            }
            return false;
        }
        /* Any other number of groups is right too, on the axes that are in use. */
        for (uint32_t a = 0; a < 3; a++)
            if (grid.axes[a] != 255) groups[a] = 1 + draw(l, 3);
    }
    return true;
}

/* The rule of thumb, for devices of all sorts. */
static ir_schedule default_schedule(lab *l, const ir_kernel *k, sizes s) {
    const uint64_t extents[IR_DIM_MAX] = {draw(l, 2) ? s.m : 0, draw(l, 2) ? s.n : 0,
                                          draw(l, 2) ? s.k : 0};
    device_caps caps = {.kind = draw(l, 2) ? DEVICE_DISCRETE : DEVICE_HOST,
                        .subgroups = draw(l, 2),
                        .subgroup_size = 8};
    caps.workgroup_invocations = draw(l, 2) ? 256 : 64;
    ir_schedule schedule;
    ir_schedule_default(k, &caps, extents, &schedule);
    return schedule;
}

static sizes draw_sizes(lab *l) {
    static const uint32_t some[] = {1, 2, 3, 4, 5, 7, 8, 12, 13, 16, 17};
    return (sizes){pick(l, some, 11), pick(l, some, 11), pick(l, some, 11)};
}

static void run_kernel(test *t, uint64_t seed, uint32_t which, uint32_t rounds) {
    memory *want = malloc(2 * sizeof *want), *got = want + 1;
    static const uint32_t one[3] = {1, 1, 1};
    for (uint32_t round = 0; want && round < rounds && !test_failed(t); round++) {
        lab l;
        beryl_error error = {0};
        seeded_open(&l, seed + round);
        draw(&l, 2);
        sizes s = draw_sizes(&l);
        if (kernels[which].make == random_kernel)
            s = (sizes){1 + s.m % 8, 1 + s.n % 8, 1 + s.k % 8};
        ir_schedule schedule = ir_draw_schedule(&l.seed);
        const ir_kernel *plain = kernels[which].make(&l, s);
        if (plain && draw(&l, 4) == 0) schedule = default_schedule(&l, plain, s);
        char name[80];
        snprintf(name, sizeof name, "%s seed %llu", kernels[which].name,
                 (unsigned long long)(seed + round));
        if (!plain || interpret(&l, plain, s, one, want, &error))
            test_fail(t, __FILE__, __LINE__, "%s: %s", name, error.message);
        else {
            ir_pass order[IR_DRAW_PASSES];
            size_t n = ir_draw_order(&l.seed, order);
            check(t, &l, name, plain, s, &schedule, order, n, want, got);
        }
        lab_close(t, &l);
    }
    free(want);
}

/* Every op of a type with constants that algebra knows, on both sides, alone and in pairs. */
enum { ALGEBRA = 8192 };

static bool is_of(ir_op op, ir_type type) {
    return ir_type_in(type, ir_op_of(op)->types);
}

static const ir_kernel *algebra(lab *l, ir_type type, uint32_t width, uint32_t *n) {
    static const ir_op binary[] = {IR_ADD, IR_SUB, IR_MUL, IR_DIV, IR_MOD, IR_MIN,
                                   IR_MAX, IR_AND, IR_OR,  IR_XOR, IR_SHL, IR_SHR};
    static const ir_op compare[] = {IR_EQ, IR_NE, IR_LT, IR_LE, IR_GT, IR_GE};
    static const double some[] = {0, -0.0, 1, -1, 2, 3, 8, -0.5};
    ir_builder *b = ir_begin(&l->arena, "algebra", 1, 1, 1);
    ir_memory x = ir_buffer(b, type, IR_READ, "x"), y = ir_buffer(b, type, IR_READ_WRITE, "y");
    ir_id i = ir_loop_marked(b, ir_u32(b, 0), ir_u32(b, 4), ir_u32(b, 1), IR_PARALLEL, 0);
    ir_id v = ir_load(b, x, ir_mul(b, i, ir_u32(b, width)), width), last = v;
    *n = 0;
#define KEEP(value) \
    ir_store(b, y, ir_mul(b, ir_add(b, i, ir_u32(b, 4 * (*n)++)), ir_u32(b, width)), (value))
    for (uint32_t c = 0; c < 8; c++) {
        ir_id constant = ir_number(b, type, width, some[c]),
              other = ir_number(b, type, width, some[draw(l, 8)]);
        for (uint32_t o = 0; o < sizeof binary / sizeof *binary; o++) {
            if (!is_of(binary[o], type)) continue;
            ir_id right = ir_binary(b, binary[o], v, constant),
                  left = ir_binary(b, binary[o], constant, v);
            KEEP(right);
            KEEP(left);
            KEEP(ir_binary(b, binary[o], right, other));
            KEEP(ir_binary(b, binary[o], ir_binary(b, IR_ADD, last, constant), other));
            KEEP(ir_binary(b, binary[o], constant, other));
            if (c == 0) KEEP(ir_binary(b, binary[o], v, v));
        }
        for (uint32_t o = 0; o < 6; o++) {
            KEEP(ir_select(b, ir_binary(b, compare[o], v, constant), v, other));
            if (c == 0) KEEP(ir_select(b, ir_binary(b, compare[o], v, v), v, constant));
        }
        KEEP(ir_fma(b, v, constant, other));
        KEEP(ir_fma(b, constant, v, other));
        KEEP(ir_fma(b, v, last, constant));
        KEEP(ir_fma(b, constant, other, v));
        if (is_of(IR_NOT, type)) KEEP(ir_not(b, ir_not(b, v)));
        KEEP(ir_neg(b, ir_neg(b, v)));
        KEEP(ir_neg(b, constant));
        KEEP(ir_cast(b, type, ir_cast(b, IR_F64, constant)));
        ir_id lane = ir_extract(b, v, width - 1);
        KEEP(ir_splat(b, ir_extract(b, ir_splat(b, lane, width), 0), width));
        KEEP(ir_splat(b, ir_extract(b, constant, 0), width));
        KEEP(ir_bitcast(b, type, width, v));
        if (width == 2)
            KEEP(ir_compose(
                b,
                (ir_id[]){lane,
                          ir_extract(b, ir_compose(b, (ir_id[]){ir_extract(b, v, 0), lane}, 2), 1)},
                2));
        if (width == 2) KEEP(ir_swizzle(b, v, 2, 0x01));
        KEEP(ir_swizzle(b, constant, width, 0));
        last = ir_add(b, v, constant);
    }
#undef KEEP
    ir_end(b);
    const ir_kernel *k = NULL;
    beryl_error error = {0};
    if (ir_finish(b, &k, &error)) fprintf(stderr, "algebra: %s\n", error.message);
    return k;
}

static void run_algebra(test *t, ir_type type, uint32_t width) {
    static const double inputs[] = {0, -0.0, 1, -1, 5, -7, 100, 0.25};
    uint64_t *words = calloc(3 * ALGEBRA + 8, sizeof *words),
             *got[2] = {words + 8, words + 8 + ALGEBRA};
    lab l;
    uint32_t n, bytes = ir_type_bytes(type);
    beryl_error error = {0};
    seeded_open(&l, 7 + (uint64_t)type);
    const ir_kernel *k[2] = {algebra(&l, type, width, &n), NULL};
    ir_pass order[] = {IR_PASS_FOLD,     IR_PASS_CSE,  IR_PASS_UNROLL, IR_PASS_FOLD, IR_PASS_CSE,
                       IR_PASS_STRENGTH, IR_PASS_FOLD, IR_PASS_VECTOR, IR_PASS_DCE};
    ir_schedule schedule = {.vector = 4, .dims[0] = {.block = 4}};
    for (uint32_t i = 0; i < 8; i++) {
        uint64_t bits = ir_from_double(type, inputs[i]);
        memcpy((uint8_t *)words + i * bytes, &bits, bytes);
    }
    CHECK(t, (uint64_t)n * 4 * width * bytes <= ALGEBRA * sizeof *words);
    if (k[0] && ir_passes_run(&l.arena, k[0], &schedule, order, sizeof order / sizeof *order, true,
                              &k[1], &error))
        test_fail(t, __FILE__, __LINE__, "%s", error.message);
    for (uint32_t r = 0; r < 2 && k[r]; r++) {
        ir_run run = {.groups = {1, 1, 1}};
        run.buffers[0].data = words, run.buffers[0].size = 64;
        run.buffers[1].data = got[r], run.buffers[1].size = ALGEBRA * sizeof *words;
        if (ir_interpret(&l.heap, k[r], &run, &error))
            test_fail(t, __FILE__, __LINE__, "%s", error.message);
    }
    for (uint32_t i = 0; k[1] && i < n * 4 * width; i++)
        if (memcmp((uint8_t *)got[0] + i * bytes, (uint8_t *)got[1] + i * bytes, bytes)) {
            test_fail(t, __FILE__, __LINE__, "%s x %u: result %u of input %u", ir_type_name(type),
                      width, i / width / 4, i / width % 4);
            break;
        }
    if (k[1]) CHECK(t, k[1]->n_code != k[0]->n_code);
    lab_close(t, &l);
    free(words);
}

/* (4 i + from .. from + 3) / c and its rest, of neighbours in a place of four: one division. */
static void neighbours(test *t, uint32_t from, uint32_t c) {
    enum { TURNS = 60 };
    static const ir_pass order[] = {IR_PASS_FOLD, IR_PASS_CSE, IR_PASS_STRENGTH,
                                    IR_PASS_FOLD, IR_PASS_CSE, IR_PASS_DCE};
    static uint32_t got[TURNS * 8];
    lab l;
    beryl_error error = {0};
    uint32_t n_division = 0;
    seeded_open(&l, from);
    ir_builder *b = ir_begin(&l.arena, "neighbours", 1, 1, 1);
    const ir_memory y = ir_buffer(b, IR_U32, IR_READ_WRITE, "y");
    const ir_id i = ir_loop(b, ir_u32(b, 0), ir_u32(b, TURNS), ir_u32(b, 1)),
                at = ir_mul(b, i, ir_u32(b, 4));
    for (uint32_t k = 0; k < 4; k++) {
        const ir_id x = ir_add(b, at, ir_u32(b, from + k)),
                    to = ir_add(b, ir_mul(b, i, ir_u32(b, 8)), ir_u32(b, 2 * k));
        ir_store(b, y, to, ir_div(b, x, ir_u32(b, c)));
        ir_store(b, y, ir_add(b, to, ir_u32(b, 1)), ir_mod(b, x, ir_u32(b, c)));
    }
    ir_end(b);
    const ir_kernel *plain = NULL, *k = NULL;
    const ir_schedule schedule = {.vector = 4};
    beryl_status status = ir_finish(b, &plain, &error);
    if (!status)
        status = ir_passes_run(&l.arena, plain, &schedule, order, sizeof order / sizeof *order,
                               true, &k, &error);
    ir_run run = {.groups = {1, 1, 1}};
    run.buffers[0].data = got, run.buffers[0].size = sizeof got;
    if (!status) status = ir_interpret(&l.heap, k, &run, &error);
    if (status) test_fail(t, __FILE__, __LINE__, "%s", error.message);
    for (uint32_t n = 0; !status && n < TURNS * 4; n++) {
        CHECK_INT(t, got[2 * n], (n + from) / c);
        CHECK_INT(t, got[2 * n + 1], (n + from) % c);
    }
    for (uint32_t n = 0; !status && n < k->n_code; n++)
        n_division += k->code[n].op == IR_DIV || k->code[n].op == IR_MOD || k->code[n].op == IR_SHR;
    if (!status) CHECK_INT(t, n_division, 1);
    lab_close(t, &l);
}

/* ---- on devices ------------------------------------------------------------------------------ */

/* The scheduled kernel as the device runs it, where the device can. */
static beryl_status run_on(test *t, lab *l, rig *r, const ir_kernel *k, sizes s, memory *m) {
    const device_caps *caps = device_caps_of(r->d);
    device_language language = DEVICE_WGSL;
    while (!(caps->languages & DEVICE_LANGUAGE_BIT(language))) language++;
    device_program_desc desc;
    beryl_status status = codegen_make(&l->arena, k, language, caps, &desc, &r->error);
    if (status) return status;
    device_program program = {0};
    device_bindings bindings = {0};
    device_binding ranges[IR_BUFFER_MAX] = {0};
    device_command list[1 + IR_BUFFER_MAX] = {{0}};
    device_ticket ticket = 0;
    ir_grid grid;
    uint32_t params[PARAMS] = {s.m, s.n, s.k}, n = k->n_buffer;
    ir_grid_of(k, &grid);
    ir_grid_run(&grid, params, caps->groups_max, list[0].dispatch.groups);
    fill(m);
    list[0].kind = DEVICE_DISPATCH;
    for (uint32_t i = 0; i < n; i++) {
        ranges[i].buffer = rig_buffer(t, r, sizeof m->words[i], m->words[i]);
        list[1 + i] = rig_range(DEVICE_FETCH, ranges[i].buffer, 0, sizeof m->words[i]);
    }
    status = device_program_make(r->d, &desc, &program, &r->error);
    if (!status) status = rig_compiled(r, program);
    if (!status) status = device_bindings_make(r->d, program, ranges, n, &bindings, &r->error);
    if (!status) {
        list[0].dispatch.program = program;
        list[0].dispatch.bindings = bindings;
        status = rig_submit(r, list, 1 + n, params, 4 * k->n_param, &ticket);
    }
    if (!status) status = device_wait(r->d, ticket, &r->error);
    for (uint32_t i = 0; !status && i < n; i++) {
        const void *data;
        size_t size;
        status = device_fetched(r->d, ticket, i, &data, &size, &r->error);
        if (!status && size == sizeof m->words[i]) memcpy(m->words[i], data, size);
    }
    if (ticket) device_fetch_drop(r->d, ticket);
    device_bindings_drop(r->d, bindings);
    device_program_drop(r->d, program);
    for (uint32_t i = 0; i < n; i++) device_buffer_drop(r->d, ranges[i].buffer);
    return status;
}

static void run_device(test *t, rig *r, uint32_t which, uint32_t rounds) {
    static const uint32_t one[3] = {1, 1, 1};
    memory *want = malloc(2 * sizeof *want), *got = want + 1;
    uint32_t ran = 0;
    for (uint32_t round = 0; want && round < rounds && !test_failed(t); round++) {
        lab l;
        beryl_error error = {0};
        seeded_open(&l, 1000 + round);
        sizes s = draw_sizes(&l);
        if (kernels[which].make == random_kernel)
            s = (sizes){1 + s.m % 8, 1 + s.n % 8, 1 + s.k % 8};
        ir_schedule schedule = ir_draw_schedule(&l.seed);
        const device_caps *caps = device_caps_of(r->d);
        schedule.subgroup = caps->subgroups ? caps->subgroup_size : 0;
        schedule.fragments = false;
        const ir_kernel *plain = kernels[which].make(&l, s), *k = NULL;
        if (round % 2) ir_schedule_default(plain, caps, NULL, &schedule);
        beryl_status status = interpret(&l, plain, s, one, want, &error);
        if (!status) status = ir_optimise(&l.arena, plain, &schedule, &k, &error);
        if (!status) status = run_on(t, &l, r, k, s, got);
        if (status != BERYL_UNSUPPORTED) ran++;
        if (status != BERYL_UNSUPPORTED && (status || !is_same(want, got)))
            test_fail(t, __FILE__, __LINE__, "round %u (%u %u %u): %s", round, s.m, s.n, s.k,
                      !status      ? "other values"
                      : error.code ? error.message
                                   : r->error.message);
        lab_close(t, &l);
    }
    if (!ran) test_skip(t, "the language cannot write it");
    free(want);
}

static uint32_t count_op(const ir_kernel *k, ir_op op, uint32_t space, uint32_t width) {
    uint32_t n = 0;
    for (uint32_t i = 0; i < k->n_code; i++)
        if (k->code[i].op == op && k->code[i].space == space && k->code[i].width == width) n++;
    return n;
}

static const ir_kernel *optimised(test *t, lab *l, maker *m, sizes s, const ir_schedule *schedule) {
    const ir_kernel *k = NULL;
    beryl_error error = {0};
    if (ir_optimise(&l->arena, m(l, s), schedule, &k, &error))
        test_fail(t, __FILE__, __LINE__, "%s", error.message);
    return k;
}

/* y[image, 0, place] = 4 i .. 4 i + 3, which lie side by side in one image: any number of i. */
static void images(test *t) {
    enum { TURNS = 25, PLACES = 20, LINE = 24, FOUR = 4 };
    static const ir_pass order[] = {IR_PASS_FOLD, IR_PASS_CSE, IR_PASS_STRENGTH,
                                    IR_PASS_FOLD, IR_PASS_CSE, IR_PASS_VECTOR};
    static uint32_t got[TURNS * FOUR / PLACES * LINE];
    lab l;
    beryl_error error = {0};
    seeded_open(&l, 1);
    ir_builder *b = ir_begin(&l.arena, "images", 1, 1, 1);
    const ir_memory y = ir_buffer(b, IR_U32, IR_READ_WRITE, "y");
    const ir_id i = ir_loop(b, ir_u32(b, 0), ir_param(b, IR_U32, "n"), ir_u32(b, 1)),
                places = ir_u32(b, PLACES);
    for (uint32_t k = 0; k < FOUR; k++) {
        const ir_id x = ir_add(b, ir_mul(b, i, ir_u32(b, FOUR)), ir_u32(b, k)),
                    image = ir_mul(b, ir_div(b, x, places), ir_u32(b, LINE));
        ir_store(b, y, ir_add(b, image, ir_mod(b, x, places)), x);
    }
    ir_end(b);
    const ir_kernel *plain = NULL, *k = NULL;
    const ir_schedule schedule = {.vector = FOUR};
    beryl_status status = ir_finish(b, &plain, &error);
    if (!status)
        status = ir_passes_run(&l.arena, plain, &schedule, order, sizeof order / sizeof *order,
                               true, &k, &error);
    ir_run run = {.groups = {1, 1, 1}, .params = {TURNS}};
    run.buffers[0].data = got, run.buffers[0].size = sizeof got;
    if (!status) status = ir_interpret(&l.heap, k, &run, &error);
    if (status) test_fail(t, __FILE__, __LINE__, "%s", error.message);
    for (uint32_t n = 0; !status && n < TURNS * FOUR; n++)
        CHECK_INT(t, got[n / PLACES * LINE + n % PLACES], n);
    if (!status) CHECK_INT(t, count_op(k, IR_STORE, IR_BUFFER, FOUR), 1);
    lab_close(t, &l);
}

/* All of k lies in one tile of each factor, of which several workgroups fit a unit. */
static void short_sums(test *t) {
    lab l;
    seeded_open(&l, 1);
    ir_schedule s = {.vector = 8,
                     .subgroup = 8,
                     .fragments = true,
                     .dims = {{.lanes = 2, .block = 2}, {.block = 4}, {.stage = 32, .unroll = 3}}};
    const ir_kernel *k = optimised(t, &l, halves_images, (sizes){64, 64, 64}, &s);
    CHECK_INT(t, count_op(k, IR_COPY_COMMIT, 0, 0), 1);
    CHECK_INT(t, k->workgroups[0].count, 64 * (32 + 8));
    const uint64_t wide[IR_DIM_MAX] = {256, 1 << 17, 64}, deep[IR_DIM_MAX] = {256, 1 << 17, 128};
    const device_caps caps = {.kind = DEVICE_DISCRETE,
                              .subgroups = true,
                              .subgroup_size = 32,
                              .workgroup_bytes = 227 << 10,
                              .fragments = DEVICE_FRAGMENT_BIT(DEVICE_FRAGMENT_BF16_F32)};
    k = halves_bf16(&l, (sizes){64, 64, 64});
    ir_schedule_default(k, &caps, deep, &s);
    CHECK_INT(t, ir_schedule_tile(&s, 0) * ir_schedule_tile(&s, 1), 256 * 128);
    ir_schedule_default(k, &caps, wide, &s);
    CHECK_INT(t, ir_schedule_tile(&s, 0) * ir_schedule_tile(&s, 1), 128 * 128);
    lab_close(t, &l);
}

/* Factors of two loads are copied in two loops, from one memory and from the other. */
static void two_loads(test *t) {
    lab l;
    seeded_open(&l, 1);
    const ir_schedule s = {
        .vector = 8,
        .subgroup = 8,
        .fragments = true,
        .dims = {{.lanes = 2, .block = 2}, {.block = 4}, {.stage = 16, .unroll = 3}}};
    const ir_kernel *k = optimised(t, &l, halves_joined, (sizes){64, 64, 64}, &s);
    CHECK_INT(t, count_op(k, IR_COPY_COMMIT, 0, 0), 4);
    CHECK_INT(t, count_op(k, IR_STORE, IR_WORKGROUP, 1), 0);
    k = optimised(t, &l, halves_repeated, (sizes){64, 64, 64}, &s);
    CHECK_INT(t, count_op(k, IR_COPY_ASYNC, IR_WORKGROUP, 0), 0);
    CHECK(t, count_op(k, IR_FRAGMENT_MMA, 0, 0) > 0);
    lab_close(t, &l);
}

/* What the passes are for, seen in the kernel that comes out. */
static void check_shapes(test *t) {
    lab l;
    seeded_open(&l, 3);
    if (test_case(t, "ir-pass/pointwise-loads-vectors")) {
        ir_schedule s = {
            .vector = 4,
            .dims[0] = {.group = 1, .lane = 1, .lanes = 64, .block = 4, .split = true}};
        const ir_kernel *k = optimised(t, &l, pointwise, (sizes){1, 1, 1}, &s);
        CHECK_INT(t, k->workgroup[0], 64);
        CHECK_INT(t, count_op(k, IR_LOAD, IR_BUFFER, 4), 2);
        CHECK_INT(t, count_op(k, IR_STORE, IR_BUFFER, 4), 1);
        CHECK_INT(t, count_op(k, IR_STORE, IR_BUFFER, 1), 1); /* the rest */
        ir_grid grid;
        uint32_t groups[3];
        ir_grid_of(k, &grid);
        ir_grid_run(&grid, (uint32_t[]){1, 1025, 1}, 0, groups);
        CHECK_INT(t, groups[0], 4); /* of 256; the last element is in the rest's first tile */
        ir_grid_run(&grid, (uint32_t[]){1, 1 << 20, 1}, 1000, groups);
        CHECK_INT(t, groups[0], 1000);
        ir_grid_run(&grid, (uint32_t[]){1, 0, 1}, 0, groups);
        CHECK_INT(t, groups[0], 1);
    }
    if (test_case(t, "ir-pass/matmul-is-staged-and-blocked")) {
        ir_schedule s = {.vector = 4,
                         .dims = {{.group = 2, .lane = 2, .lanes = 8, .block = 4},
                                  {.group = 1, .lane = 1, .lanes = 8, .block = 4},
                                  {.stage = 8, .unroll = 4}}};
        const ir_kernel *k = optimised(t, &l, matmul_constant, (sizes){128, 128, 64}, &s);
        CHECK_INT(t, count_op(k, IR_BARRIER, 0, 0), 2);
        CHECK_INT(t, k->n_workgroup, 2);
        CHECK_INT(t, count_op(k, IR_LOAD, IR_WORKGROUP, 4), 8); /* two a k */
        CHECK_INT(t, count_op(k, IR_LOAD, IR_WORKGROUP, 1), 0);
        CHECK_INT(t, count_op(k, IR_FMA, 0, 1), 64);
        CHECK_INT(t, count_op(k, IR_IF, 0, 0), 0); /* all tiles are whole */
        CHECK_INT(t, count_op(k, IR_STORE, IR_BUFFER, 4), 4);
        ir_grid grid;
        uint32_t groups[3];
        ir_grid_of(k, &grid);
        ir_grid_run(&grid, (uint32_t[]){0, 0, 0}, 0, groups);
        CHECK_INT(t, groups[0], 4);
        CHECK_INT(t, groups[1], 4);
        s.dims[2].ahead = true; /* two places of each tile: a barrier a turn, one behind them all */
        const ir_kernel *ahead = optimised(t, &l, matmul_constant, (sizes){128, 128, 64}, &s);
        CHECK_INT(t, count_op(ahead, IR_BARRIER, 0, 0), 2);
        CHECK_INT(t, ahead->workgroups[0].count, 2 * k->workgroups[0].count);
        s.workgroup_bytes = 4 * k->workgroups[0].count * 3;
        ahead = optimised(t, &l, matmul_constant, (sizes){128, 128, 64}, &s);
        CHECK_INT(t, ahead->workgroups[0].count, k->workgroups[0].count);
    }
    if (test_case(t, "ir-pass/sums-become-vectors")) {
        ir_schedule s = {
            .dims = {{.group = 2, .lanes = 2, .block = 4}, {.group = 1, .block = 2}, {.wide = 16}}};
        const ir_kernel *k = optimised(t, &l, matmul_constant, (sizes){64, 64, 64}, &s);
        CHECK_INT(t, count_op(k, IR_FMA, 0, 16), 8);
        CHECK_INT(t, count_op(k, IR_FMA, 0, 1), 0);
        CHECK_INT(t, count_op(k, IR_LOAD, IR_BUFFER, 16), 6);
        CHECK_INT(t, ir_lanes(k), 1);
        /* no whole number of vectors */
        k = optimised(t, &l, matmul_constant, (sizes){64, 64, 60}, &s);
        CHECK_INT(t, count_op(k, IR_FMA, 0, 16), 0);
    }
    if (test_case(t, "ir-pass/rows-become-vectors")) { /* w lies along n */
        ir_schedule s = {.dims = {{.group = 2, .block = 2}, {.group = 1, .wide = 16}}};
        const ir_kernel *k = optimised(t, &l, matmul_turned, (sizes){64, 64, 60}, &s);
        CHECK_INT(t, count_op(k, IR_FMA, 0, 16), 2);
        CHECK_INT(t, count_op(k, IR_FMA, 0, 1), 0);
        CHECK_INT(t, count_op(k, IR_LOAD, IR_BUFFER, 16), 1);
        CHECK_INT(t, count_op(k, IR_STORE, IR_BUFFER, 16), 2);
        s = (ir_schedule){.dims = {{.group = 2}, {.group = 1, .wide = 16}}};
        k = optimised(t, &l, transpose, (sizes){64, 64, 60}, &s); /* stored one by one */
        CHECK_INT(t, count_op(k, IR_LOAD, IR_BUFFER, 16), 1);
        CHECK_INT(t, count_op(k, IR_STORE, IR_BUFFER, 1), 1);
        s = (ir_schedule){.dims = {{.group = 2, .wide = 16}, {.group = 1}}};
        k = optimised(t, &l, matmul_turned, (sizes){64, 64, 60}, &s); /* x lies along k */
        CHECK_INT(t, count_op(k, IR_FMA, 0, 16), 0);
    }
    if (test_case(t, "ir-pass/halves-use-matrix-units")) {
        ir_schedule s = {.vector = 8,
                         .subgroup = 8,
                         .fragments = true,
                         .dims = {{.lanes = 2, .block = 2}, {.block = 4}, {.stage = 16}}};
        const ir_kernel *k = optimised(t, &l, halves_bf16, (sizes){64, 64, 64}, &s);
        CHECK_INT(t, count_op(k, IR_FRAGMENT_MMA, 0, 0), 8);
        CHECK_INT(t, count_op(k, IR_FRAGMENT_LOAD, IR_WORKGROUP, 0), 6);
        CHECK_INT(t, count_op(k, IR_FRAGMENT_STORE, IR_WORKGROUP, 0), 8);
        CHECK(t, count_op(k, IR_LOAD, IR_BUFFER, 8) > 0);
        CHECK_INT(t, ir_lanes(k), 16);
        for (uint32_t i = 0; i < k->n_code; i++) /* places in fragments are constants */
            if (k->code[i].op == IR_FRAGMENT_MMA)
                for (uint32_t o = 0; o < 3; o++)
                    CHECK_INT(t, k->code[k->code[i].in[o]].op, IR_CONST);
        s.dims[2].unroll = 3;
        k = optimised(t, &l, halves_copied, (sizes){64, 64, 64}, &s);
        CHECK(t, count_op(k, IR_COPY_ASYNC, IR_WORKGROUP, 0) > 0);
        CHECK_INT(t, count_op(k, IR_COPY_COMMIT, 0, 0), 3);
        CHECK_INT(t, count_op(k, IR_STORE, IR_WORKGROUP, 1), 0);
        k = optimised(t, &l, halves_across, (sizes){64, 64, 61}, &s);
        CHECK(t, count_op(k, IR_COPY_ASYNC, IR_WORKGROUP, 0) > 0);
        k = optimised(t, &l, halves_turned, (sizes){64, 64, 64}, &s);
        CHECK_INT(t, count_op(k, IR_COPY_COMMIT, 0, 0), 3);
        CHECK_INT(t, count_op(k, IR_STORE, IR_WORKGROUP, 1), 0);
        ir_schedule direct = {.vector = 8,
                              .subgroup = 8,
                              .workgroup_bytes = 1 << 17,
                              .fragments = true,
                              .direct = true,
                              .dims = {{.lanes = 4, .block = 1},
                                       {.lanes = 1, .block = 8},
                                       {.stage = 64, .unroll = 3}}};
        k = optimised(t, &l, halves_across, (sizes){64, 64, 61}, &direct);
        CHECK_INT(t, count_op(k, IR_FRAGMENT_MULTIPLY, IR_WORKGROUP, 0), 1);
        CHECK_INT(t, count_op(k, IR_FRAGMENT_MMA, 0, 0), 0);
        /* computed: the same tile otherwise */
        k = optimised(t, &l, halves_f16, (sizes){64, 64, 61}, &direct);
        CHECK_INT(t, count_op(k, IR_FRAGMENT_MULTIPLY, IR_WORKGROUP, 0), 0);
        CHECK(t, count_op(k, IR_FRAGMENT_MMA, 0, 0) > 0);
        CHECK_INT(t, ir_lanes(k), 32);
        /* a product for each turn of a loop around; one factor copied, one computed: two places,
         * a barrier a turn */
        s.dims[3].group = 3;
        k = optimised(t, &l, halves_grouped, (sizes){16, 16, 16}, &s);
        CHECK_INT(t, count_op(k, IR_FRAGMENT_MMA, 0, 0), 8);
        CHECK_INT(t, count_op(k, IR_COPY_COMMIT, 0, 0), 2);
        CHECK(t, count_op(k, IR_STORE, IR_WORKGROUP, 8) > 0);
        ir_grid grid;
        uint32_t groups[3];
        ir_grid_of(k, &grid);
        ir_grid_run(&grid, (uint32_t[]){16, 64, 16}, 0, groups);
        CHECK_INT(t, groups[0], 2);
        CHECK_INT(t, groups[2], 3);
        s.fragments = false;
        k = optimised(t, &l, halves_bf16, (sizes){64, 64, 64}, &s);
        CHECK_INT(t, k->n_fragment, 0);
    }
    if (test_case(t, "ir-pass/matrix-units-are-asked-for-their-types")) {
        const uint64_t extents[IR_DIM_MAX] = {64, 64, 64};
        device_caps caps = {.kind = DEVICE_DISCRETE,
                            .subgroups = true,
                            .subgroup_size = 32,
                            .workgroup_bytes = 65536,
                            .fragments = DEVICE_FRAGMENT_BIT(DEVICE_FRAGMENT_BF16_F32) |
                                         DEVICE_FRAGMENT_BIT(DEVICE_FRAGMENT_F16_F16)};
        ir_schedule s;
        ir_schedule_default(halves_bf16(&l, (sizes){64, 64, 64}), &caps, extents, &s);
        CHECK(t, s.fragments);
        /* its sums are of f32 */
        ir_schedule_default(halves_f16(&l, (sizes){64, 64, 64}), &caps, extents, &s);
        CHECK(t, !s.fragments);
    }
    if (test_case(t, "ir-pass/rows-are-joined-by-subgroups")) {
        ir_schedule s = {
            .subgroup = 8,
            .vector = 4,
            .dims = {{.group = 1}, {.lane = 1, .lanes = 8, .unroll = 4, .split = true}}};
        const ir_kernel *k = optimised(t, &l, rows, (sizes){4, 64, 1}, &s);
        CHECK_INT(t, count_op(k, IR_SUBGROUP_MAX, 0, 1) > 0, 1);
        CHECK_INT(t, count_op(k, IR_SUBGROUP_ADD, 0, 1) > 0, 1);
        CHECK_INT(t, count_op(k, IR_BARRIER, 0, 0), 0);
        s.subgroup = 0;
        k = optimised(t, &l, rows, (sizes){4, 64, 1}, &s);
        CHECK_INT(t, count_op(k, IR_SUBGROUP_ADD, 0, 1), 0);
        CHECK(t, count_op(k, IR_BARRIER, 0, 0) > 0);
    }
    lab_close(t, &l);
}

static void check_told(test *t) {
    lab l;
    seeded_open(&l, 4);
    if (test_case(t, "ir-pass/lanes-tell-each-other")) {
        ir_schedule s = {.subgroup = 8,
                         .dims = {{.group = 2, .lane = 1, .lanes = 8, .block = 2},
                                  {.group = 1, .lanes = 1, .block = 8},
                                  {.unroll = 2}}};
        const ir_kernel *k = optimised(t, &l, matmul_constant, (sizes){128, 128, 64}, &s);
        CHECK_INT(t, count_op(k, IR_LOAD, IR_BUFFER, 1), 20); /* two of x and eight of w a k */
        s.tells = true;
        k = optimised(t, &l, matmul_constant, (sizes){128, 128, 64}, &s);
        CHECK_INT(t, count_op(k, IR_LOAD, IR_BUFFER, 1), 6); /* one of w */
        CHECK_INT(t, count_op(k, IR_SUBGROUP_BROADCAST, 0, 1), 16);
        CHECK_INT(t, k->subgroup_size, 8);
    }
    lab_close(t, &l);
}

static void check_algebra_shapes(test *t) {
    lab l;
    seeded_open(&l, 4);
    if (test_case(t, "ir-pass/loops-merge")) {
        const ir_kernel *plain = moments(&l, (sizes){4, 64, 1}), *k = NULL;
        ir_schedule s = {0};
        CHECK_INT(t, ir_pass_merge(&l.arena, plain, &s, &k, NULL), BERYL_OK);
        CHECK_INT(t, count_op(plain, IR_LOOP, 0, 1), 4);
        CHECK_INT(t, count_op(k, IR_LOOP, 0, 1), 3);
    }
    if (test_case(t, "ir-pass/index-arithmetic-goes")) {
        /* (i * 16 + j) / 16 and % 16 of two loops */
        make a = make_begin(&l, (sizes){1, 1, 1}, true);
        ir_builder *b = a.b;
        ir_id i = loop(&a, ir_u32(b, 10), IR_PARALLEL, 0),
              j = loop(&a, ir_u32(b, 12), IR_PARALLEL, 1), c = ir_u32(b, 12);
        ir_id flat = at(&a, i, c, j);
        ir_store(
            b, a.y, flat,
            ir_load(b, a.x,
                    ir_add(b, ir_mul(b, ir_mod(b, flat, c), ir_u32(b, 10)), ir_div(b, flat, c)),
                    1));
        ir_end(b), ir_end(b);
        const ir_kernel *plain = make_end(&a), *k = NULL;
        ir_schedule s = {0};
        CHECK_INT(t, ir_optimise(&l.arena, plain, &s, &k, NULL), BERYL_OK);
        CHECK_INT(t,
                  count_op(k, IR_DIV, 0, 1) + count_op(k, IR_MOD, 0, 1) + count_op(k, IR_SHR, 0, 1),
                  0);
    }
    if (test_case(t, "ir-pass/loops-count-in-steps-of-addresses")) {
        make a = make_begin(&l, (sizes){1, 1, 1}, true);
        ir_builder *b = a.b;
        ir_id i = ir_loop(b, a.zero, ir_u32(b, 9), a.one), place = ir_mul(b, i, ir_u32(b, 20));
        ir_store(b, a.y, place, ir_load(b, a.x, ir_add(b, place, a.one), 1));
        ir_end(b);
        const ir_kernel *plain = make_end(&a), *k = NULL;
        ir_schedule s = {0};
        CHECK_INT(t, ir_optimise(&l.arena, plain, &s, &k, NULL), BERYL_OK);
        CHECK_INT(t, count_op(k, IR_MUL, 0, 1), 0);
        CHECK_INT(t, count_op(k, IR_LOOP, 0, 1), 1);
    }
    if (test_case(t, "ir-pass/a-place-outside-its-array-stays")) {
        /* At the end and at 2^32 - 1, to which a width may not be added. */
        static const uint32_t places[] = {4, UINT32_MAX};
        for (uint32_t n = 0; n < 4; n++) {
            make a = make_begin(&l, (sizes){1, 1, 1}, true);
            ir_builder *b = a.b;
            ir_memory r = ir_register(b, IR_F32, 4);
            ir_id place = ir_u32(b, places[n / 2]);
            if (n % 2) ir_store(b, r, place, ir_f32(b, 1));
            else ir_store(b, a.y, a.zero, ir_load(b, r, place, 1));
            const ir_kernel *plain = make_end(&a), *k = NULL;
            CHECK_INT(t, ir_pass_cse(&l.arena, plain, &(ir_schedule){0}, &k, NULL), BERYL_OK);
            CHECK_INT(t, count_op(k, n % 2 ? IR_STORE : IR_LOAD, IR_REGISTER, 1), 1);
        }
    }
    if (test_case(t, "ir-pass/steps-of-all-lanes-fit")) {
        /* 8 lanes step 2^32 together: one walks alone */
        for (uint32_t wide = 0; wide < 2; wide++) {
            make a = make_begin(&l, (sizes){1, 1, 1}, true);
            ir_builder *b = a.b;
            ir_id i = ir_loop_marked(b, a.zero, ir_u32(b, 8), ir_u32(b, wide ? 0x20000000u : 1),
                                     IR_PARALLEL, 0);
            ir_store(b, a.y, i, ir_f32(b, 1));
            ir_end(b);
            const ir_kernel *plain = make_end(&a), *k = NULL;
            const ir_schedule s = {.dims[0] = {.lane = 1, .lanes = 8}};
            CHECK_INT(t, ir_pass_lanes(&l.arena, plain, &s, &k, NULL), BERYL_OK);
            CHECK_INT(t, k->workgroup[0], wide ? 1 : 8);
        }
    }
    if (test_case(t, "ir-pass/scheduled-by-hand-is-left-alone")) {
        ir_builder *b = ir_begin(&l.arena, "hand", 8, 1, 1);
        ir_memory x = ir_buffer(b, IR_F32, IR_READ, "x"),
                  y = ir_buffer(b, IR_F32, IR_READ_WRITE, "y"), w = ir_workgroup(b, IR_F32, 8);
        ir_id lane = ir_local(b, 0), place = ir_fma(b, ir_group(b, 0), ir_u32(b, 8), lane);
        ir_store(b, w, lane, ir_load(b, x, place, 1));
        ir_barrier(b);
        ir_store(b, y, place, ir_load(b, w, ir_sub(b, ir_u32(b, 7), lane), 1));
        const ir_kernel *plain = NULL, *k = NULL;
        CHECK_INT(t, ir_finish(b, &plain, NULL), BERYL_OK);
        ir_schedule s = {.vector = 4, .subgroup = 8};
        for (uint32_t d = 0; d < IR_DIM_MAX; d++)
            s.dims[d] = (ir_schedule_dim){
                .group = 1, .lane = 1, .lanes = 8, .block = 4, .stage = 8, .unroll = 2};
        CHECK_INT(t, ir_optimise(&l.arena, plain, &s, &k, NULL), BERYL_OK);
        CHECK_INT(t, k->n_code <= plain->n_code, 1);
        CHECK_INT(t, k->workgroup[0], 8);
        CHECK_INT(t, count_op(k, IR_BARRIER, 0, 0), 1);
    }
    lab_close(t, &l);
}

/* Each allocation fails once: a status, no leak. */
static void check_memory(test *t) {
    ir_schedule s = {.vector = 4,
                     .subgroup = 0,
                     .dims = {{.group = 2, .lane = 2, .lanes = 4, .block = 2},
                              {.group = 1, .lane = 1, .lanes = 4, .block = 2},
                              {.stage = 4, .unroll = 2, .lane = 1, .lanes = 4}}};
    bool done = false;
    for (long left = 0; left < 2000 && !done && !test_failed(t); left++) {
        lab l;
        seeded_open(&l, 1);
        const ir_kernel *plain = matmul(&l, (sizes){5, 6, 7}), *k = NULL;
        l.left = left;
        beryl_status status = ir_optimise(&l.arena, plain, &s, &k, NULL);
        CHECK(t, status == BERYL_OK || status == BERYL_NO_MEMORY);
        done = !status;
        l.left = -1;
        lab_close(t, &l);
    }
    CHECK(t, done);
}

void test_ir_pass(test *t) {
    const char *more = getenv("BERYL_TEST_ROUNDS");
    uint32_t rounds = more ? (uint32_t)strtoul(more, NULL, 10) : 100;
    for (uint32_t k = 0; k < KERNELS; k++)
        if (test_case(t, "ir-pass/any-order/%s", kernels[k].name)) run_kernel(t, 1, k, rounds);
    static const ir_type types[] = {IR_F32, IR_F16, IR_BF16, IR_F64, IR_I8,  IR_I16,
                                    IR_I32, IR_I64, IR_U8,   IR_U16, IR_U32, IR_U64};
    if (test_case(t, "ir-pass/short-sums-have-one-tile")) short_sums(t);
    if (test_case(t, "ir-pass/factors-of-two-loads")) two_loads(t);
    if (test_case(t, "ir-pass/images-are-stored-in-vectors")) images(t);
    if (test_case(t, "ir-pass/neighbours-share-divisions")) {
        neighbours(t, 36, 28);
        neighbours(t, 24, 196);
        neighbours(t, 224, 12);
    }
    for (uint32_t i = 0; i < 12; i++)
        if (test_case(t, "ir-pass/algebra/%s", ir_type_name(types[i]))) {
            run_algebra(t, types[i], 1);
            run_algebra(t, types[i], 2);
        }
    check_shapes(t);
    check_told(t);
    check_algebra_shapes(t);
    if (test_case(t, "ir-pass/allocation-fails")) check_memory(t);
    static const char *const devices[] = {"host", "software", "opencl"};
    for (uint32_t d = 0; d < sizeof devices / sizeof *devices; d++)
        for (uint32_t k = 0; k < KERNELS; k++) {
            /* Compilers take long: of all kernels on the host alone, and there of what
             * products_test.c has not. */
            bool some = kernels[k].make == rows || kernels[k].make == matmul_bias ||
                        kernels[k].make == random_kernel;
            if ((d && !some) || kernels[k].make == halves_grouped ||
                !test_case(t, "ir-pass/%s/%s", devices[d], kernels[k].name))
                continue;
            rig r;
            if (!rig_open(t, &r, devices[d])) continue;
            run_device(t, &r, k, more ? rounds / 20 + 1 : d == 2 ? 1 : 2);
            rig_close(t, &r);
        }
}
