/* ir_pass_test.c - passes change how a kernel computes, never what.
 *
 * The judge is the interpreter: the kernel as its lowering wrote it, run as one workgroup, gives
 * the values; after any passes in any order under any schedule, run by any number of workgroups,
 * they are the same bit for bit. Numbers are small integers, so that sums are exact in every order.
 * The verifier runs after each pass, and the interpreter looks for races and undefined memory. */
#include "test.h"
#include "ir/pass/pass.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { BUFFERS = 4, ELEMENTS = 2048, PARAMS = 8, ORDER_MAX = 32 };

typedef struct lab {
    base_heap heap;
    base_arena arena;
    uint64_t seed;
    long left; /* allocations that still succeed; < 0: all */
} lab;

static void *lab_resize(void *user, void *memory, size_t old_size, size_t new_size) {
    lab *l = user;
    (void)old_size;
    if (!new_size) return free(memory), NULL;
    if (l->left == 0) return NULL;
    if (l->left > 0) l->left--;
    return realloc(memory, new_size);
}

static void lab_open(lab *l, uint64_t seed) {
    *l = (lab){.left = -1, .seed = seed * 0x9e3779b97f4a7c15u + 1};
    base_heap_init(&l->heap, &(beryl_allocator){lab_resize, l});
    base_arena_init(&l->arena, &l->heap);
}

static void lab_close(test *t, lab *l) {
    base_arena_fini(&l->arena);
    CHECK_INT(t, l->heap.bytes, 0);
}

static uint32_t draw(lab *l, uint32_t n) { /* below n */
    l->seed ^= l->seed << 13, l->seed ^= l->seed >> 7, l->seed ^= l->seed << 17;
    return (uint32_t)((l->seed >> 16) % n);
}

static uint32_t pick(lab *l, const uint32_t *from, uint32_t n) {
    return from[draw(l, n)];
}

/* ---- kernels -------------------------------------------------------------------------------- */

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

static const ir_kernel *product(lab *l, sizes s, bool constant, bool bias) {
    make a = make_begin(l, s, constant);
    ir_builder *b = a.b;
    ir_memory sum = ir_register(b, IR_F32, 1);
    ir_id i = loop(&a, a.m, IR_PARALLEL, 0), j = loop(&a, a.n, IR_PARALLEL, 1);
    ir_id start = bias ? ir_load(b, a.x, j, 1) : ir_f32(b, 0);
    ir_set(b, sum, start);
    ir_id k = loop(&a, a.k, IR_REDUCE, 2);
    ir_id x = ir_load(b, a.x, at(&a, i, a.k, k), 1), w = ir_load(b, a.w, at(&a, j, a.k, k), 1);
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
    return product(l, s, false, false);
}
static const ir_kernel *matmul_constant(lab *l, sizes s) {
    return product(l, s, true, false);
}
static const ir_kernel *matmul_bias(lab *l, sizes s) {
    return product(l, s, true, true);
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
    {"quantised", quantised},
    {"rows", rows},
    {"moments", moments},
    {"causal", causal},
    {"scan", scan},
    {"histogram", histogram},
    {"total", total},
};
enum { KERNELS = sizeof kernels / sizeof *kernels };

/* ---- running -------------------------------------------------------------------------------- */

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
    ir_grid_run(&grid, params, 0, groups);
    for (uint32_t round = 0; round < 2; round++) {
        beryl_status status = interpret(l, k, s, groups, got, &error);
        if (status || memcmp(want, got, sizeof *want)) {
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

static ir_schedule draw_schedule(lab *l) {
    static const uint32_t lanes[] = {0, 1, 2, 3, 4, 5, 8, 16}, blocks[] = {0, 0, 2, 3, 4, 8},
                          unrolls[] = {0, 0, 2, 3, 4}, stages[] = {0, 0, 2, 4, 5, 8},
                          subgroups[] = {0, 2, 4, 8}, vectors[] = {0, 2, 4};
    ir_schedule s = {.subgroup = pick(l, subgroups, 4), .vector = pick(l, vectors, 3)};
    for (uint32_t d = 0; d < 3; d++)
        s.dims[d] = (ir_schedule_dim){
            .group = d < 2 ? (uint8_t)draw(l, 4) : 0,
            .lane = (uint8_t)draw(l, 4),
            .lanes = (uint16_t)pick(l, lanes, 8),
            .block = (uint16_t)pick(l, blocks, 6),
            .unroll = (uint16_t)pick(l, unrolls, 5),
            .stage = (uint16_t)pick(l, stages, 6),
            .split = draw(l, 2),
        };
    return s;
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

static size_t draw_order(lab *l, ir_pass *order) {
    size_t n;
    const ir_pass *usual = ir_passes_usual(&n);
    uint32_t kind = draw(l, 4);
    if (kind == 0) { /* the usual order */
        for (size_t i = 0; i < n && i < ORDER_MAX; i++) order[i] = usual[i];
        return n < ORDER_MAX ? n : ORDER_MAX;
    }
    size_t count = 0;
    for (size_t i = 0; kind == 1 && i < n && count < ORDER_MAX; i++) /* some of it */
        if (draw(l, 3)) order[count++] = usual[i];
    if (kind == 1) return count;
    n = 1 + draw(l, kind == 2 ? 6 : 14);
    for (; count < n; count++) order[count] = (ir_pass)draw(l, IR_PASS_COUNT);
    return count;
}

static void run_kernel(test *t, uint64_t seed, uint32_t which, uint32_t rounds) {
    memory *want = malloc(2 * sizeof *want), *got = want + 1;
    static const uint32_t one[3] = {1, 1, 1};
    for (uint32_t round = 0; want && round < rounds && !test_failed(t); round++) {
        lab l;
        beryl_error error = {0};
        lab_open(&l, seed + round);
        draw(&l, 2);
        sizes s = draw_sizes(&l);
        ir_schedule schedule = draw_schedule(&l);
        const ir_kernel *plain = kernels[which].make(&l, s);
        if (plain && draw(&l, 4) == 0) schedule = default_schedule(&l, plain, s);
        char name[80];
        snprintf(name, sizeof name, "%s seed %llu", kernels[which].name,
                 (unsigned long long)(seed + round));
        if (!plain || interpret(&l, plain, s, one, want, &error))
            test_fail(t, __FILE__, __LINE__, "%s: %s", name, error.message);
        else {
            ir_pass order[ORDER_MAX];
            size_t n = draw_order(&l, order);
            check(t, &l, name, plain, s, &schedule, order, n, want, got);
        }
        lab_close(t, &l);
    }
    free(want);
}

void test_ir_pass(test *t) {
    const char *more = getenv("BERYL_TEST_ROUNDS");
    uint32_t rounds = more ? (uint32_t)strtoul(more, NULL, 10) : 150;
    for (uint32_t k = 0; k < KERNELS; k++)
        if (test_case(t, "ir-pass/any-order/%s", kernels[k].name)) run_kernel(t, 1, k, rounds);
}
