/* codegen_test.c - what generated texts compute, on every device that compiles one of the
 * languages, against the interpreter; CUDA C and HIP C are compiled where NVRTC or hipcc is,
 * subgroups in OpenCL C, which few drivers have, by clang, and run on a driver that is given
 * them (tests/stand_in/opencl.c).
 *
 * Two tables: every op over every type (one kernel for each type: inputs with all awkward
 * numbers, one output a result type), and kernels for what is not an op alone: barriers, loops,
 * masks, vectors, atomics, staging. */
#include "test.h"
#include "hip_compile.h"
#include "rig.h"

#include "base/thread.h"
#include "codegen/codegen.h"
#include "device/cuda/cuda.h"
#include "ir/pass/pass.h"

#include <limits.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* ---- one kernel on one device ---------------------------------------------------------------- */

typedef struct job {
    const ir_kernel *k;
    ir_run run;                  /* buffers: what the interpreter leaves there */
    void *before[IR_BUFFER_MAX]; /* what was there, [run.buffers[n].size] */
} job;

typedef struct bench {
    base_heap heap;
    base_arena arena;
    base_random random;
    beryl_error error;
} bench;

static void bench_init(bench *b) {
    *b = (bench){.random = {7}};
    base_heap_init(&b->heap, NULL);
    base_arena_init(&b->arena, &b->heap);
}

static void *bytes_of(bench *b, uint64_t size) {
    return base_arena_take(&b->arena, (size_t)size + 16, 1);
}

/* data NULL: zeros. */
static void give(bench *b, job *j, uint32_t n, const void *data, uint64_t size) {
    const uint64_t room = (size + 15) / 16 * 16;
    j->run.buffers[n].data = bytes_of(b, room);
    j->run.buffers[n].size = room;
    j->before[n] = bytes_of(b, room);
    if (data) memcpy(j->before[n], data, (size_t)size);
    memcpy(j->run.buffers[n].data, j->before[n], (size_t)room);
}

static bool judge(test *t, bench *b, job *j) {
    if (!ir_interpret(&b->heap, j->k, &j->run, &b->error)) return true;
    test_fail(t, __FILE__, __LINE__, "interpreter: %s (at %llu)", b->error.message,
              (unsigned long long)b->error.at);
    return false;
}

/* For people: with BERYL_TEST_CODE every text lands in that folder. */
static void show(const device_program_desc *desc) {
    const char *folder = getenv("BERYL_TEST_CODE");
    if (!folder) return;
    char path[512];
    static const char *const ends[] = {"wgsl", "cu", "hip", "cl", "c", "ir"};
    snprintf(path, sizeof path, "%s/%s.%s", folder, desc->label, ends[desc->language]);
    FILE *file = fopen(path, "w");
    if (!file) return;
    fwrite(desc->source, 1, desc->source_size, file);
    fclose(file);
}

/* got[n]: the buffers after the run, of the arena. */
static beryl_status run_on(test *t, bench *b, rig *r, const job *j, void **got) {
    const device_caps *caps = device_caps_of(r->d);
    device_language language = DEVICE_WGSL;
    while (!(caps->languages & DEVICE_LANGUAGE_BIT(language))) language++;
    device_program_desc desc;
    beryl_status status = codegen_make(&b->arena, j->k, language, caps, &desc, &r->error);
    if (status) return status;
    show(&desc);
    device_program program = {0};
    device_bindings bindings = {0};
    device_binding ranges[IR_BUFFER_MAX] = {0};
    device_command list[1 + IR_BUFFER_MAX] = {{0}};
    const uint32_t n = j->k->n_buffer;
    status = device_program_make(r->d, &desc, &program, &r->error);
    if (!status) status = rig_compiled(r, program);
    if (status)
        printf("%.*s\n", (int)(desc.source_size > 6000 ? 6000 : desc.source_size), desc.source);
    list[0].kind = DEVICE_DISPATCH;
    for (uint32_t i = 0; i < n; i++) {
        ranges[i].buffer = rig_buffer(t, r, j->run.buffers[i].size, j->before[i]);
        list[1 + i] = rig_range(DEVICE_FETCH, ranges[i].buffer, 0, j->run.buffers[i].size);
    }
    if (!status) status = device_bindings_make(r->d, program, ranges, n, &bindings, &r->error);
    device_ticket ticket = 0;
    if (!status) {
        list[0].dispatch.program = program;
        list[0].dispatch.bindings = bindings;
        memcpy(list[0].dispatch.groups, j->run.groups, sizeof j->run.groups);
        status = rig_submit(r, list, 1 + n, j->run.params, 4 * j->k->n_param, &ticket);
    }
    if (!status) status = device_wait(r->d, ticket, &r->error);
    for (uint32_t i = 0; !status && i < n; i++) {
        const void *data;
        size_t size;
        got[i] = bytes_of(b, j->run.buffers[i].size);
        status = device_fetched(r->d, ticket, i, &data, &size, &r->error);
        if (!status) memcpy(got[i], data, size);
    }
    if (ticket) device_fetch_drop(r->d, ticket);
    device_bindings_drop(r->d, bindings);
    device_program_drop(r->d, program);
    for (uint32_t i = 0; i < n; i++) device_buffer_drop(r->d, ranges[i].buffer);
    return status;
}

/* ---- near enough ----------------------------------------------------------------------------- */

static uint64_t element(const void *data, ir_type type, size_t at) {
    uint64_t bits = 0;
    const uint32_t bytes = type == IR_BOOL ? 1 : ir_type_bytes(type);
    memcpy(&bits, (const char *)data + at * bytes, bytes); /* little-endian, as every device here */
    return bits;
}

static double smallest(ir_type type) { /* normal number */
    return type == IR_F16 ? 6.104e-5 : type == IR_F64 ? 2.3e-308 : 1.18e-38;
}

static double largest(ir_type type) {
    return type == IR_F16 ? 65504 : type == IR_F64 ? 1e300 : 3e38;
}

static double unit(ir_type type) { /* of the last place, relative */
    return type == IR_F16 ? 9.8e-4 : type == IR_BF16 ? 7.9e-3 : type == IR_F64 ? 2.3e-16 : 1.2e-7;
}

static bool near_enough(ir_type type, ir_exact exact, uint64_t got, uint64_t want) {
    if (got == want) return true;
    if (!ir_type_in(type, IR_FLOATS)) return false;
    const double x = ir_to_double(type, got), y = ir_to_double(type, want);
    if (isnan(y)) return isnan(x);
    if (fabs(y) < smallest(type) && fabs(x) <= smallest(type) * 1.01)
        return true; /* subnormal ones may be zero */
    if (x == y) return exact != IR_EXACT || y == 0;
    if (exact == IR_EXACT) return false;
    if (fabs(y) > largest(type) * 0.999 && fabs(x) > largest(type) * 0.999 && x * y > 0)
        return true; /* on the edge of infinity */
    const double slack = exact == IR_NEAR ? 8 * unit(type) : 1e-3 + 2 * unit(type);
    return fabs(x - y) <= slack * fabs(y) + (exact == IR_LOOSE ? 1e-3 : 1e-35);
}

/* ---- every op over every type ---------------------------------------------------------------- */

enum { N = 192, LANES = 64, OP_ROOM = IR_OP_COUNT };

/* clang-format off */
static const double awkward[] = {
    0, -0.0, 1, -1, 0.5, -0.5, 1.5, 2.5, -2.5, 3.7, -7.3, 100.25, 0.001, 127, 128, -128, -129,
    255, 256, 32767, 32768, -32769, 65535, 65536, 65504, 2147483647, 2147483648.0,
    -2147483649.0, 4294967295.0, 4294967296.0, 9.3e18, -9.3e18, 1.9e19, 1e-30, 1e30, 3.1415927,
    16777217, 1e-7, -1e-7, INFINITY, -INFINITY, NAN
};
/* clang-format on */

static uint64_t pick(bench *b, ir_type type, uint32_t at) {
    const uint64_t random = base_random_next(&b->random);
    if (ir_type_in(type, IR_FLOATS)) {
        const size_t count = sizeof awkward / sizeof *awkward;
        if (at < count) return ir_from_double(type, awkward[at]);
        if (random & 1) return ir_from_double(type, awkward[(random >> 8) % count]);
        return ir_from_double(type,
                              (double)(int64_t)(random >> 40) / 4194304.0 * (random & 2 ? 4 : -4));
    }
    const uint64_t mask =
        ir_type_bytes(type) == 8 ? ~UINT64_C(0) : (UINT64_C(1) << 8 * ir_type_bytes(type)) - 1;
    static const uint64_t edges[] = {0,
                                     1,
                                     2,
                                     3,
                                     31,
                                     32,
                                     64,
                                     127,
                                     128,
                                     255,
                                     256,
                                     ~UINT64_C(0),
                                     ~UINT64_C(1),
                                     0x7fff,
                                     0x8000,
                                     0x7fffffff,
                                     0x80000000,
                                     0x7fffffffffffffff,
                                     0x8000000000000000};
    return (random & 3 ? edges[(random >> 8) % (sizeof edges / sizeof *edges)] : random >> 3) &
           mask;
}

static void *inputs(bench *b, ir_type type) {
    const uint32_t bytes = ir_type_bytes(type);
    char *data = bytes_of(b, (uint64_t)N * bytes);
    for (uint32_t i = 0; i < N; i++) {
        const uint64_t bits = pick(b, type, i);
        memcpy(data + i * bytes, &bits, bytes);
    }
    return data;
}

typedef struct section { /* N results at `at` of an output */
    ir_op op;
    ir_type in, out;
    uint32_t buffer, at;
} section;

typedef struct plan {
    section sections[OP_ROOM + IR_TYPE_COUNT];
    uint32_t n, buffers;
    uint32_t filled[IR_BUFFER_MAX]; /* elements */
    ir_type types[IR_BUFFER_MAX];
} plan;

static void emit(ir_builder *b, plan *p, const ir_memory *outs, uint32_t buffer, ir_op op,
                 ir_type in, ir_type out, ir_id i, ir_id value) {
    const uint32_t at = p->filled[buffer];
    p->sections[p->n++] = (section){op, in, out, buffer, at};
    p->filled[buffer] += N;
    ir_store(b, outs[buffer], ir_add(b, i, ir_u32(b, at)),
             out == IR_BOOL ? ir_cast(b, IR_U8, value) : value);
}

/* All pure ops whose operands are of the type; sources 0 1 2, results 3, bool results 4. */
static const ir_kernel *ops_kernel(bench *w, ir_type type, plan *p) {
    char name[32];
    snprintf(name, sizeof name, "ops_%s", ir_type_name(type));
    const ir_kernel *k = NULL;
    const bool is_bool = type == IR_BOOL;
    const ir_type memory = is_bool ? IR_U8 : type;
    ir_builder *b = ir_begin(&w->arena, name, LANES, 1, 1);
    ir_memory in[3], outs[IR_BUFFER_MAX] = {{0}};
    for (int n = 0; n < 3; n++)
        in[n] = ir_buffer(b, memory, IR_READ, n == 0 ? "x" : n == 1 ? "y" : "z");
    outs[3] = ir_buffer(b, memory, IR_READ_WRITE, "out");
    outs[4] = ir_buffer(b, IR_U8, IR_READ_WRITE, "truth");
    p->buffers = 5;
    p->types[3] = memory, p->types[4] = IR_U8;
    const ir_id count = ir_param(b, IR_U32, "n");
    const ir_id i = ir_fma(b, ir_group(b, 0), ir_u32(b, LANES), ir_local(b, 0));
    ir_if(b, ir_lt(b, i, count));
    ir_id v[3];
    for (int n = 0; n < 3; n++) {
        v[n] = ir_load(b, in[n], i, 1);
        if (is_bool)
            v[n] = ir_ne(b, ir_and(b, v[n], ir_bits(b, IR_U8, 1, 1)), ir_bits(b, IR_U8, 1, 0));
    }
    for (int o = 0; o < IR_OP_COUNT; o++) {
        const ir_op op = (ir_op)o;
        const ir_op_info *info = ir_op_of(op);
        if (!(info->flags & IR_PURE) || !ir_type_in(type, info->types)) continue;
        if (info->form == IR_FORM_SAME) {
            ir_instruction made = {.op = (uint8_t)op,
                                   .type = (uint8_t)type,
                                   .width = 1,
                                   .n_in = info->n_in,
                                   .in = {v[0], v[1], v[2], IR_NO_ID}};
            for (uint32_t n = info->n_in; n < 4; n++) made.in[n] = IR_NO_ID;
            emit(b, p, outs, is_bool ? 4 : 3, op, type, type, i, ir_emit(b, made));
        } else if (info->form == IR_FORM_COMPARE) {
            emit(b, p, outs, 4, op, type, IR_BOOL, i,
                 info->n_in == 1 ? ir_is_nan(b, v[0]) : ir_binary(b, op, v[0], v[1]));
        } else if (info->form == IR_FORM_SELECT) {
            const ir_id c = is_bool ? v[2] : ir_lt(b, v[0], v[1]);
            emit(b, p, outs, is_bool ? 4 : 3, op, type, type, i, ir_select(b, c, v[0], v[1]));
        }
    }
    ir_end(b);
    if (ir_finish(b, &k, &w->error)) return NULL;
    return k;
}

static bool device_has(const rig *r, ir_type type) {
    const device_caps *c = device_caps_of(r->d);
    return type != IR_F64 || (c->f64 && !(c->languages & DEVICE_LANGUAGE_BIT(DEVICE_WGSL)));
}

/* Casts of one type to all others. */
static const ir_kernel *casts_kernel(bench *w, const rig *r, ir_type type, plan *p) {
    char name[32];
    snprintf(name, sizeof name, "casts_%s", ir_type_name(type));
    const ir_kernel *k = NULL;
    ir_builder *b = ir_begin(&w->arena, name, LANES, 1, 1);
    ir_memory outs[IR_BUFFER_MAX] = {{0}};
    const ir_memory in = ir_buffer(b, type, IR_READ, "x");
    p->buffers = 1;
    for (int to = IR_F32; to <= IR_U64; to++) {
        if (to == (int)type || !device_has(r, (ir_type)to)) continue;
        p->types[p->buffers] = (ir_type)to;
        outs[p->buffers++] = ir_buffer(b, (ir_type)to, IR_READ_WRITE, ir_type_name((ir_type)to));
    }
    const ir_id count = ir_param(b, IR_U32, "n");
    const ir_id i = ir_fma(b, ir_group(b, 0), ir_u32(b, LANES), ir_local(b, 0));
    ir_if(b, ir_lt(b, i, count));
    const ir_id x = ir_load(b, in, i, 1);
    for (uint32_t n = 1; n < p->buffers; n++) {
        emit(b, p, outs, n, IR_CAST, type, p->types[n], i, ir_cast(b, p->types[n], x));
        /* by way of bool: 0 or 1 */
        emit(b, p, outs, n, IR_CAST, type, p->types[n], i,
             ir_cast(b, p->types[n], ir_cast(b, IR_BOOL, x)));
    }
    ir_end(b);
    if (ir_finish(b, &k, &w->error)) return NULL;
    return k;
}

/* Where an op or WGSL leaves a result open: divisors, infinities, no numbers, large numbers. */
static bool left_open(device_language language, const section *s, double x, double y, double want) {
    const ir_exact exact = ir_op_of(s->op)->exact;
    const double least = smallest(s->in);
    const bool sums = s->op == IR_FMA || s->op == IR_MUL || s->op == IR_ADD || s->op == IR_SUB;
    if (sums && fabs(want) < least * 4) return true; /* subnormal on the way */
    if (s->op == IR_DIV_NORMAL && !(fabs(y) >= least && fabs(y) * least <= 1)) return true;
    if (exact == IR_EXACT || (language != DEVICE_WGSL && language != DEVICE_OPENCL_C)) return false;
    if (!isfinite(x) || !isfinite(y) || !isfinite(want)) return true;
    if (exact == IR_LOOSE && s->op != IR_POW && fabs(x) > 50) return true;
    if (s->op == IR_POW && (fabs(want) > 1e6 || fabs(x) > 1e6 || fabs(y) > 1e3)) return true;
    if (s->op == IR_MOD && fabs(x) > fabs(y) * 1e6) return true;
    if (s->op == IR_TAN && fabs(want) > 100) return true;
    return (exact == IR_NEAR && (fabs(want) < 1e-37 || fabs(x) < 1e-37 || fabs(y) < 1e-37 ||
                                 fabs(y) > 1e37 || fabs(x) > 1e37));
}

static void compare(test *t, const rig *r, const job *j, const plan *p, void **got) {
    const device_caps *caps = device_caps_of(r->d);
    const device_language language =
        caps->languages & DEVICE_LANGUAGE_BIT(DEVICE_WGSL)       ? DEVICE_WGSL
        : caps->languages & DEVICE_LANGUAGE_BIT(DEVICE_OPENCL_C) ? DEVICE_OPENCL_C
                                                                 : DEVICE_C;
    uint32_t told = 0;
    for (uint32_t n = 0; n < p->n && told < 12; n++) {
        const section *s = &p->sections[n];
        const ir_type memory = s->out == IR_BOOL ? IR_U8 : s->out,
                      from = s->in == IR_BOOL ? IR_U8 : s->in;
        const ir_exact exact =
            s->op == IR_CAST || (!ir_type_in(s->in, IR_FLOATS)) ? IR_EXACT : ir_op_of(s->op)->exact;
        for (uint32_t i = 0; i < N; i++) {
            const uint64_t mine = element(got[s->buffer], memory, s->at + i),
                           want = element(j->run.buffers[s->buffer].data, memory, s->at + i);
            const uint64_t x = element(j->before[0], from, i),
                           y = s->op == IR_CAST ? 0 : element(j->before[1], from, i);
            if (near_enough(memory, exact, mine, want)) continue;
            if (ir_type_in(s->in, IR_FLOATS) &&
                left_open(language, s, ir_to_double(from, x),
                          s->op == IR_CAST || ir_op_of(s->op)->n_in == 1 ? 1
                                                                         : ir_to_double(from, y),
                          ir_to_double(memory, want)))
                continue;
            test_fail(t, __FILE__, __LINE__,
                      "%s %s -> %s of %g (%llx), %g: %g (%llx), not %g (%llx)",
                      ir_op_of(s->op)->name, ir_type_name(s->in), ir_type_name(s->out),
                      ir_to_double(from, x), (unsigned long long)x, ir_to_double(from, y),
                      ir_to_double(memory, mine), (unsigned long long)mine,
                      ir_to_double(memory, want), (unsigned long long)want);
            told++;
            break;
        }
    }
}

static void test_ops(test *t, rig *r, ir_type type, bool casts) {
    bench b;
    bench_init(&b);
    plan *p = base_arena_take(&b.arena, 1, sizeof *p);
    job j = {0};
    void *got[IR_BUFFER_MAX];
    j.k = casts ? casts_kernel(&b, r, type, p) : ops_kernel(&b, type, p);
    if (!j.k) {
        test_fail(t, __FILE__, __LINE__, "builder: %s", b.error.message);
        base_arena_fini(&b.arena);
        return;
    }
    const ir_type memory = type == IR_BOOL ? IR_U8 : type;
    for (uint32_t n = 0; n < p->buffers; n++) {
        const bool is_input = j.k->buffers[n].access == IR_READ;
        if (is_input) give(&b, &j, n, inputs(&b, memory), (uint64_t)N * ir_type_bytes(memory));
        else give(&b, &j, n, NULL, (uint64_t)(p->filled[n] + 1) * ir_type_bytes(p->types[n]));
    }
    j.run.params[0] = N;
    j.run.groups[0] = (N + LANES - 1) / LANES, j.run.groups[1] = j.run.groups[2] = 1;
    if (judge(t, &b, &j)) {
        beryl_status status = run_on(t, &b, r, &j, got);
        if (status == BERYL_UNSUPPORTED) test_skip(t, "%s", r->error.message);
        else if (status) test_fail(t, __FILE__, __LINE__, "%s", r->error.message);
        else compare(t, r, &j, p, got);
    }
    base_arena_fini(&b.arena);
}

/* ---- kernels that are more than an op -------------------------------------------------------- */

/* y[group] = the sum of 64 elements, by a tree in workgroup memory: barriers in a loop. */
static const ir_kernel *make_tree(bench *w, job *j) {
    ir_builder *b = ir_begin(&w->arena, "tree", 64, 1, 1);
    const ir_memory x = ir_buffer(b, IR_F32, IR_READ, "x"),
                    y = ir_buffer(b, IR_F32, IR_READ_WRITE, "y");
    const ir_memory part = ir_workgroup(b, IR_F32, 64);
    const ir_id l = ir_local(b, 0), g = ir_group(b, 0), zero = ir_u32(b, 0);
    ir_store(b, part, l, ir_load(b, x, ir_fma(b, g, ir_u32(b, 64), l), 1));
    ir_barrier(b);
    const ir_id turn = ir_loop(b, zero, ir_u32(b, 6), ir_u32(b, 1));
    const ir_id half = ir_shr(b, ir_u32(b, 32), turn);
    ir_if(b, ir_lt(b, l, half));
    ir_store(b, part, l,
             ir_add(b, ir_load(b, part, l, 1), ir_load(b, part, ir_add(b, l, half), 1)));
    ir_end(b);
    ir_barrier(b);
    ir_end(b);
    ir_if(b, ir_eq(b, l, zero));
    ir_store(b, y, g, ir_load(b, part, zero, 1));
    ir_end(b);
    float data[192];
    for (int i = 0; i < 192; i++) data[i] = (float)(i % 17) - 3;
    const ir_kernel *k = NULL;
    if (ir_finish(b, &k, &w->error)) return NULL;
    give(w, j, 0, data, sizeof data);
    give(w, j, 1, NULL, 3 * 4);
    j->run.groups[0] = 3;
    return k;
}

/* y[m, n] = x[m, k] w[n, k]^T in tiles of 8 x 8 with runtime sizes that are no multiples: staging,
 * guards, 2-D groups, register arrays with constant and running indices. Two rows a lane. */
static const ir_kernel *make_matmul(bench *w, job *j) {
    enum { M = 13, NN = 10, K = 19 };
    ir_builder *b = ir_begin(&w->arena, "matmul", 8, 4, 1);
    const ir_memory x = ir_buffer(b, IR_F32, IR_READ, "x"), v = ir_buffer(b, IR_F32, IR_READ, "w");
    const ir_memory y = ir_buffer(b, IR_F32, IR_READ_WRITE, "y");
    const ir_id m = ir_param(b, IR_U32, "m"), n = ir_param(b, IR_U32, "n"),
                k = ir_param(b, IR_U32, "k"), scale = ir_param(b, IR_F32, "scale");
    const ir_memory xs = ir_workgroup(b, IR_F32, 64), ws = ir_workgroup(b, IR_F32, 64),
                    sum = ir_register(b, IR_F32, 2);
    const ir_id lx = ir_local(b, 0), ly = ir_local(b, 1), c8 = ir_u32(b, 8), c4 = ir_u32(b, 4),
                zero = ir_u32(b, 0), one = ir_u32(b, 1);
    const ir_id col = ir_fma(b, ir_group(b, 0), c8, lx), row = ir_fma(b, ir_group(b, 1), c8, ly);
    ir_store(b, sum, zero, ir_f32(b, 0));
    ir_store(b, sum, one, ir_f32(b, 0));
    const ir_id at = ir_loop(b, zero, k, c8);
    const ir_id h = ir_loop_unrolled(b, zero, ir_u32(b, 2), one, 2);
    const ir_id r = ir_fma(b, h, c4, ly), kx = ir_add(b, at, lx);
    const ir_id xr = ir_fma(b, ir_group(b, 1), c8, r), wr = ir_fma(b, ir_group(b, 0), c8, r);
    const ir_memory both[2] = {x, v}, stages[2] = {xs, ws};
    for (int s = 0; s < 2; s++) {
        const ir_id mine = s ? wr : xr;
        ir_store(b, stages[s], ir_fma(b, r, c8, lx), ir_f32(b, 0));
        ir_if(b, ir_and(b, ir_lt(b, mine, s ? n : m), ir_lt(b, kx, k)));
        ir_store(b, stages[s], ir_fma(b, r, c8, lx),
                 ir_load(b, both[s], ir_fma(b, mine, k, kx), 1));
        ir_end(b);
    }
    ir_end(b);
    ir_barrier(b);
    const ir_id i = ir_loop(b, zero, c8, one);
    const ir_id right = ir_load(b, ws, ir_fma(b, lx, c8, i), 1);
    const ir_id top = ir_loop(b, zero, ir_u32(b, 2), one);
    const ir_id left = ir_load(b, xs, ir_fma(b, ir_fma(b, top, c4, ly), c8, i), 1);
    ir_store(b, sum, top, ir_fma(b, left, right, ir_load(b, sum, top, 1)));
    ir_end(b);
    ir_end(b);
    ir_barrier(b);
    ir_end(b);
    for (uint32_t s = 0; s < 2; s++) {
        const ir_id to = ir_add(b, row, ir_u32(b, s * 4));
        ir_if(b, ir_and(b, ir_lt(b, to, m), ir_lt(b, col, n)));
        ir_store(b, y, ir_fma(b, to, n, col), ir_mul(b, ir_load(b, sum, ir_u32(b, s), 1), scale));
        ir_end(b);
    }
    const ir_kernel *made = NULL;
    if (ir_finish(b, &made, &w->error)) return NULL;
    float data[M * K];
    for (int e = 0; e < M * K; e++) data[e] = (float)(e % 11) - 5;
    give(w, j, 0, data, sizeof data);
    give(w, j, 1, data, NN * K * 4);
    give(w, j, 2, NULL, M * NN * 4);
    const float half = 0.5f;
    j->run.params[0] = M, j->run.params[1] = NN, j->run.params[2] = K;
    memcpy(&j->run.params[3], &half, 4);
    j->run.groups[0] = 2, j->run.groups[1] = 2;
    return made;
}

/* Rows by lanes that take every 32nd element, an inner loop over a table, then a tree: blocks whose
 * bounds depend on the lane around loops that do not. */
static const ir_kernel *make_stride(bench *w, job *j) {
    ir_builder *b = ir_begin(&w->arena, "stride", 32, 1, 1);
    const ir_memory x = ir_buffer(b, IR_F32, IR_READ, "x"),
                    table = ir_buffer(b, IR_F32, IR_READ, "table");
    const ir_memory y = ir_buffer(b, IR_F32, IR_READ_WRITE, "y");
    const ir_id n = ir_param(b, IR_U32, "n");
    const ir_memory acc = ir_register(b, IR_F32, 1), best = ir_register(b, IR_F32, 1),
                    part = ir_workgroup(b, IR_F32, 32);
    const ir_id l = ir_local(b, 0), g = ir_group(b, 0), zero = ir_u32(b, 0), one = ir_u32(b, 1),
                c32 = ir_u32(b, 32);
    ir_set(b, acc, ir_f32(b, 0));
    ir_set(b, best, ir_f32(b, -100));
    const ir_id i = ir_loop(b, l, n, c32);
    const ir_id v = ir_load(b, x, ir_fma(b, g, n, i), 1);
    ir_set(b, best, ir_max(b, ir_get(b, best), v));
    const ir_id u = ir_loop(b, zero, ir_u32(b, 3), one);
    ir_set(b, acc, ir_fma(b, v, ir_load(b, table, u, 1), ir_get(b, acc)));
    ir_end(b);
    ir_end(b);
    ir_if(b, ir_lt(b, l, ir_u32(b, 7))); /* a mask around a loop, with an else */
    const ir_id t = ir_loop(b, zero, ir_u32(b, 2), one);
    ir_set(b, acc, ir_add(b, ir_get(b, acc), ir_cast(b, IR_F32, ir_add(b, t, l))));
    ir_end(b);
    ir_else(b);
    ir_set(b, acc, ir_add(b, ir_get(b, acc), ir_get(b, best)));
    ir_end(b);
    ir_store(b, part, l, ir_get(b, acc));
    ir_barrier(b);
    const ir_id m = ir_fma(b, g, c32, l);
    ir_store(b, y, m, ir_add(b, ir_get(b, best), ir_load(b, part, ir_sub(b, ir_u32(b, 31), l), 1)));
    const ir_kernel *k = NULL;
    if (ir_finish(b, &k, &w->error)) return NULL;
    float data[3 * 77], few[3] = {1, -2, 4};
    for (int e = 0; e < 3 * 77; e++) data[e] = (float)(e * 7 % 23) - 9;
    give(w, j, 0, data, sizeof data);
    give(w, j, 1, few, sizeof few);
    give(w, j, 2, NULL, 3 * 32 * 4);
    j->run.params[0] = 77;
    j->run.groups[0] = 3;
    return k;
}

/* How many steps from x to 1 (Collatz), at most 120: blocks that depend on data; narrow results. */
static const ir_kernel *make_collatz(bench *w, job *j) {
    ir_builder *b = ir_begin(&w->arena, "collatz", 16, 1, 1);
    const ir_memory x = ir_buffer(b, IR_U16, IR_READ, "x"),
                    y = ir_buffer(b, IR_U8, IR_READ_WRITE, "y");
    const ir_memory now = ir_register(b, IR_U32, 1), steps = ir_register(b, IR_U32, 1);
    const ir_id i = ir_fma(b, ir_group(b, 0), ir_u32(b, 16), ir_local(b, 0)), one = ir_u32(b, 1);
    ir_set(b, now, ir_cast(b, IR_U32, ir_load(b, x, i, 1)));
    ir_set(b, steps, ir_u32(b, 0));
    ir_loop(b, ir_u32(b, 0), ir_u32(b, 120), one);
    const ir_id v = ir_get(b, now);
    ir_if(b, ir_gt(b, v, one));
    ir_if(b, ir_eq(b, ir_and(b, v, one), one));
    ir_set(b, now, ir_fma(b, v, ir_u32(b, 3), one));
    ir_else(b);
    ir_set(b, now, ir_shr(b, v, one));
    ir_end(b);
    ir_set(b, steps, ir_add(b, ir_get(b, steps), one));
    ir_end(b);
    ir_end(b);
    ir_store(b, y, i, ir_cast(b, IR_U8, ir_get(b, steps)));
    const ir_kernel *k = NULL;
    if (ir_finish(b, &k, &w->error)) return NULL;
    uint16_t data[48];
    for (int e = 0; e < 48; e++) data[e] = (uint16_t)(1 + e * 3);
    give(w, j, 0, data, sizeof data);
    give(w, j, 1, NULL, 48);
    j->run.groups[0] = 3;
    return k;
}

/* y = x backwards inside vectors, through a workgroup array and a register array, added to itself.
 */
static const ir_kernel *make_vectors_of(bench *w, job *j, ir_type type, uint32_t width,
                                        uint32_t lanes) {
    char name[40];
    snprintf(name, sizeof name, lanes == 1 ? "vectors_%s_%u_1" : "vectors_%s_%u",
             ir_type_name(type), (unsigned)width);
    ir_builder *b = ir_begin(&w->arena, name, lanes, 1, 1);
    const ir_memory x = ir_buffer(b, type, IR_READ, "x"),
                    y = ir_buffer(b, type, IR_READ_WRITE, "y");
    const ir_memory stage = ir_workgroup(b, type, lanes * width),
                    own = ir_register(b, type, 2 * width);
    const ir_id l = ir_local(b, 0), wide = ir_u32(b, width);
    const ir_id at = ir_mul(b, l, wide),
                i = ir_fma(b, ir_group(b, 0), ir_u32(b, lanes * width), at);
    const ir_id v = ir_load(b, x, i, width);
    uint64_t order = 0;
    for (uint32_t n = 0; n < width; n++) order |= (uint64_t)(width - 1 - n) << (4 * n);
    ir_store(b, stage, at, ir_swizzle(b, v, width, order));
    ir_barrier(b);
    const ir_id other =
        ir_load(b, stage, ir_mul(b, ir_xor(b, l, ir_u32(b, lanes == 1 ? 0 : 5)), wide), width);
    ir_store(b, own, ir_mul(b, ir_and(b, l, ir_u32(b, 1)), wide), other);
    const ir_id back = ir_load(b, own, ir_mul(b, ir_and(b, l, ir_u32(b, 1)), wide), width);
    const ir_id c = ir_lt(b, back, ir_splat(b, ir_extract(b, v, width - 1), width));
    ir_store(b, y, i, ir_select(b, c, ir_add(b, back, v), ir_number(b, type, width, 3)));
    const ir_kernel *k = NULL;
    if (ir_finish(b, &k, &w->error)) return NULL;
    const uint32_t n = 2 * lanes * width;
    char *data = bytes_of(w, n * ir_type_bytes(type));
    for (uint32_t e = 0; e < n; e++) {
        const uint64_t bits =
            ir_from_double(type, (double)(e * 5 % 37) - (ir_type_in(type, IR_UNSIGNED) ? 0 : 9));
        memcpy(data + e * ir_type_bytes(type), &bits, ir_type_bytes(type));
    }
    give(w, j, 0, data, n * ir_type_bytes(type));
    give(w, j, 1, NULL, n * ir_type_bytes(type));
    j->run.groups[0] = 2;
    return k;
}

static const ir_kernel *make_vectors(bench *w, job *j, ir_type type, uint32_t width) {
    return make_vectors_of(w, j, type, width, 8);
}
static const ir_kernel *make_single(bench *w, job *j, ir_type type, uint32_t width) {
    return make_vectors_of(w, j, type, width, 1);
}

/* Functions that C has for whole vectors, where a workgroup is one lane: of the awkward numbers
 * and of a ramp, short since shaders lose digits of exp at large x. */
static const ir_kernel *make_functions(bench *w, job *j, ir_type type, uint32_t width) {
    ir_builder *b = ir_begin(&w->arena, width == 4 ? "functions_4" : "functions_16", 1, 1, 1);
    const ir_memory x = ir_buffer(b, type, IR_READ, "x"),
                    y = ir_buffer(b, type, IR_READ_WRITE, "y");
    const uint32_t n_awkward = sizeof awkward / sizeof *awkward, n = (n_awkward + 95) / 32 * 32;
    const ir_id i = ir_loop(b, ir_u32(b, 0), ir_u32(b, n), ir_u32(b, width)),
                v = ir_load(b, x, i, width);
    uint64_t order = 0;
    for (uint32_t e = 0; e < width; e++) order |= (uint64_t)(width - 1 - e) << (4 * e);
    const ir_id other = ir_swizzle(b, v, width, order),
                tame = ir_max(b, ir_min(b, v, ir_number(b, type, width, 8)),
                              ir_number(b, type, width, -8));
    const ir_id made[] = {ir_min(b, v, other),
                          ir_max(b, v, other),
                          ir_exp(b, v),
                          ir_tanh(b, v),
                          ir_exp(b, tame),
                          ir_min(b, v, ir_number(b, type, width, 0)),
                          ir_max(b, ir_number(b, type, width, -0.0), v)};
    for (uint32_t e = 0; e < sizeof made / sizeof *made; e++)
        ir_store(b, y, ir_add(b, i, ir_u32(b, e * n)), made[e]);
    ir_end(b);
    const ir_kernel *k = NULL;
    if (ir_finish(b, &k, &w->error)) return NULL;
    float *data = bytes_of(w, n * sizeof *data);
    for (uint32_t e = 0; e < n; e++)
        data[e] = e < n_awkward ? (float)awkward[e] : ((float)e - (float)n_awkward - 32) * 0.11f;
    give(w, j, 0, data, n * sizeof *data);
    give(w, j, 1, NULL, n * sizeof *data * (sizeof made / sizeof *made));
    j->run.groups[0] = 1;
    return k;
}

/* Vectors of bool: what makes them, what they become, and what chooses by them, where a
 * workgroup is one lane. */
static const ir_kernel *make_choices(bench *w, job *j, ir_type type, uint32_t width) {
    ir_builder *b = ir_begin(&w->arena, "choices", 1, 1, 1);
    const ir_memory x = ir_buffer(b, type, IR_READ, "x"),
                    y = ir_buffer(b, IR_U32, IR_READ_WRITE, "y");
    const uint32_t n = 64;
    const ir_id i = ir_loop(b, ir_u32(b, 0), ir_u32(b, n), ir_u32(b, width)),
                v = ir_load(b, x, i, width);
    uint64_t order = 0;
    for (uint32_t e = 0; e < width; e++) order |= (uint64_t)(width - 1 - e) << (4 * e);
    const ir_id u = ir_swizzle(b, v, width, order), a = ir_lt(b, v, u),
                c = ir_gt(b, v, ir_number(b, type, width, 0));
    const ir_id same = ir_splat(b, ir_extract(b, c, 1), width),
                signs = ir_bitcast(b, IR_I32, width, v), others = ir_bitcast(b, IR_I32, width, u);
    const ir_id masks[] = {a,
                           ir_le(b, v, u),
                           c,
                           ir_ge(b, v, u),
                           ir_eq(b, v, u),
                           ir_ne(b, v, u),
                           ir_is_nan(b, v),
                           ir_cast(b, IR_BOOL, v),
                           ir_and(b, a, c),
                           ir_or(b, a, c),
                           ir_xor(b, a, c),
                           ir_not(b, a),
                           ir_eq(b, a, c),
                           ir_ne(b, a, same),
                           same,
                           ir_swizzle(b, a, width, order),
                           ir_select(b, a, c, same),
                           ir_lt(b, signs, others)};
    enum { N_MASK = sizeof masks / sizeof *masks, N_VALUE = 7 };
    const ir_id values[N_VALUE] = {
        ir_bitcast(b, IR_U32, width, ir_select(b, ir_and(b, a, c), v, u)),
        ir_bitcast(b, IR_U32, width, ir_cast(b, type, a)),
        ir_cast(b, IR_U32, ir_cast(b, IR_U8, c)),
        ir_cast(b, IR_U32, ir_cast(b, IR_I64, c)),
        ir_cast(b, IR_U32,
                ir_select(b, c, ir_number(b, IR_I64, width, -5), ir_number(b, IR_I64, width, 7))),
        ir_cast(b, IR_U32, ir_min(b, signs, others)),
        ir_cast(b, IR_U32, ir_max(b, signs, others))};
    for (uint32_t e = 0; e < N_MASK; e++)
        ir_store(b, y, ir_add(b, i, ir_u32(b, e * n)), ir_cast(b, IR_U32, masks[e]));
    for (uint32_t e = 0; e < N_VALUE; e++)
        ir_store(b, y, ir_add(b, i, ir_u32(b, (N_MASK + e) * n)), values[e]);
    ir_end(b);
    const ir_kernel *k = NULL;
    if (ir_finish(b, &k, &w->error)) return NULL;
    float *data = bytes_of(w, n * sizeof *data);
    for (uint32_t e = 0; e < n; e++) data[e] = e % 11 == 5 ? NAN : (float)(e * 7 % 13) - 6;
    give(w, j, 0, data, n * sizeof *data);
    give(w, j, 1, NULL, n * (N_MASK + N_VALUE) * 4);
    j->run.groups[0] = 1;
    return k;
}

/* Every subgroup op, of f32 and of i64, results side by side. */
static const ir_kernel *make_subgroups(bench *w, job *j, uint32_t size) {
    const char *name = size == 8 ? "subgroups_8" : size == 4 ? "subgroups_4" : "subgroups_32";
    ir_builder *b = ir_begin(&w->arena, name, 32, 1, 1);
    ir_subgroup(b, size);
    const ir_memory x = ir_buffer(b, IR_F32, IR_READ, "x"),
                    y = ir_buffer(b, IR_F32, IR_READ_WRITE, "y");
    const ir_memory z = ir_buffer(b, IR_I32, IR_READ_WRITE, "z");
    const ir_id i = ir_fma(b, ir_group(b, 0), ir_u32(b, 32), ir_local(b, 0));
    const ir_id v = ir_load(b, x, i, 1), n = ir_cast(b, IR_I32, v), at = ir_mul(b, i, ir_u32(b, 8));
    const ir_id floats[] = {ir_subgroup_add(b, v), ir_subgroup_min(b, v), ir_subgroup_max(b, v),
                            ir_subgroup_broadcast(b, v, 2), ir_subgroup_shuffle_xor(b, v, 3)};
    const ir_id numbers[] = {ir_subgroup_add(b, n),
                             ir_subgroup_min(b, n),
                             ir_subgroup_max(b, n),
                             ir_subgroup_broadcast(b, n, 1),
                             ir_subgroup_shuffle_xor(b, n, 1),
                             ir_cast(b, IR_I32, ir_subgroup_lane(b)),
                             ir_cast(b, IR_I32, ir_subgroup_size(b))};
    for (uint32_t s = 0; s < 5; s++) ir_store(b, y, ir_add(b, at, ir_u32(b, s)), floats[s]);
    for (uint32_t s = 0; s < 7; s++) ir_store(b, z, ir_add(b, at, ir_u32(b, s)), numbers[s]);
    const ir_kernel *k = NULL;
    if (ir_finish(b, &k, &w->error)) return NULL;
    float data[64];
    for (int e = 0; e < 64; e++) data[e] = (float)(e * 13 % 29) - 11;
    give(w, j, 0, data, sizeof data);
    give(w, j, 1, NULL, 64 * 8 * 4);
    give(w, j, 2, NULL, 64 * 8 * 4);
    j->run.groups[0] = 2;
    return k;
}

/* A histogram in workgroup memory, added to a buffer; least and largest of all. */
static const ir_kernel *make_atomics(bench *w, job *j) {
    ir_builder *b = ir_begin(&w->arena, "atomics", 32, 1, 1);
    const ir_memory x = ir_buffer(b, IR_I32, IR_READ, "x"),
                    bins = ir_buffer(b, IR_U32, IR_READ_WRITE, "bins");
    const ir_memory ends = ir_buffer(b, IR_I32, IR_READ_WRITE, "ends"),
                    local = ir_workgroup(b, IR_U32, 8);
    const ir_id l = ir_local(b, 0), zero = ir_u32(b, 0), one = ir_u32(b, 1),
                few = ir_lt(b, l, ir_u32(b, 8));
    ir_if(b, few);
    ir_store(b, local, l, zero);
    ir_end(b);
    ir_barrier(b);
    const ir_id v = ir_load(b, x, ir_fma(b, ir_group(b, 0), ir_u32(b, 32), l), 1);
    ir_atomic(b, IR_ATOMIC_ADD, local, ir_and(b, ir_cast(b, IR_U32, v), ir_u32(b, 7)), one);
    ir_atomic(b, IR_ATOMIC_MIN, ends, zero, v);
    ir_atomic(b, IR_ATOMIC_MAX, ends, one, v);
    ir_barrier(b);
    ir_if(b, few);
    ir_atomic(b, IR_ATOMIC_ADD, bins, l, ir_load(b, local, l, 1));
    ir_end(b);
    const ir_kernel *k = NULL;
    if (ir_finish(b, &k, &w->error)) return NULL;
    int32_t data[96];
    for (int e = 0; e < 96; e++) data[e] = e * 31 % 101 - 40;
    give(w, j, 0, data, sizeof data);
    give(w, j, 1, NULL, 32);
    give(w, j, 2, NULL, 8);
    j->run.groups[0] = 3;
    return k;
}

/* Lane 3 says how often all go round, with a barrier in the loop. What all share lies in a register
 * array that changes after lanes have read it. */
static const ir_kernel *make_uniform(bench *w, job *j) {
    ir_builder *b = ir_begin(&w->arena, "uniform", 16, 1, 1);
    const ir_memory x = ir_buffer(b, IR_U32, IR_READ, "x"),
                    y = ir_buffer(b, IR_U32, IR_READ_WRITE, "y");
    const ir_memory said = ir_workgroup(b, IR_U32, 1), ring = ir_workgroup(b, IR_U32, 16),
                    shared = ir_register(b, IR_U32, 3);
    const ir_memory mine = ir_register(b, IR_U32, 1);
    const ir_id l = ir_local(b, 0), g = ir_group(b, 0), zero = ir_u32(b, 0), one = ir_u32(b, 1),
                c16 = ir_u32(b, 16);
    const ir_id v = ir_load(b, x, ir_fma(b, g, c16, l), 1);
    ir_if(b, ir_eq(b, l, ir_u32(b, 3)));
    ir_store(b, said, zero, ir_and(b, v, ir_u32(b, 7)));
    ir_end(b);
    const ir_id times = ir_uniform_load(b, said, zero);
    ir_store(b, ring, l, v);
    ir_store(b, shared, zero, ir_add(b, g, one));
    ir_set(b, mine, v);
    ir_barrier(b);
    const ir_id turn = ir_loop(b, zero, times, one);
    const ir_id next = ir_load(b, ring, ir_and(b, ir_add(b, l, one), ir_u32(b, 15)), 1);
    ir_set(b, mine, ir_fma(b, ir_load(b, shared, zero, 1), next, ir_get(b, mine)));
    ir_store(b, shared, zero, ir_add(b, ir_load(b, shared, zero, 1), turn));
    ir_barrier(b);
    ir_store(b, ring, l, next);
    ir_barrier(b);
    ir_end(b);
    ir_store(b, y, ir_fma(b, g, c16, l), ir_add(b, ir_get(b, mine), ir_load(b, shared, zero, 1)));
    const ir_kernel *k = NULL;
    if (ir_finish(b, &k, &w->error)) return NULL;
    uint32_t data[48];
    for (uint32_t e = 0; e < 48; e++) data[e] = e * 77 + 5;
    give(w, j, 0, data, sizeof data);
    give(w, j, 1, NULL, sizeof data);
    j->run.groups[0] = 3;
    return k;
}

/* Copies to a swizzled workgroup array in two groups, the last ones invalid, read back in another
 * order. */
static const ir_kernel *make_staging(bench *w, job *j, ir_type type) {
    ir_builder *b = ir_begin(&w->arena, type == IR_F16 ? "staging_f16" : "staging_f32", 16, 1, 1);
    const uint32_t each = 16 / ir_type_bytes(type), n = 16 * each * 2;
    const ir_memory x = ir_buffer(b, type, IR_READ, "x"),
                    y = ir_buffer(b, type, IR_READ_WRITE, "y");
    const ir_memory stage = ir_workgroup_swizzled(b, type, n, 2, type == IR_F16 ? 3 : 2, 3);
    const ir_id l = ir_local(b, 0), step = ir_u32(b, each), half = ir_u32(b, n / 2);
    const ir_id at = ir_mul(b, l, step), from = ir_fma(b, ir_group(b, 0), ir_u32(b, n), at);
    ir_copy_async(b, stage, at, x, from, 16, IR_NO_ID);
    ir_copy_commit(b);
    ir_copy_async(b, stage, ir_add(b, at, half), x, ir_add(b, from, half), 16,
                  ir_lt(b, l, ir_u32(b, 13)));
    ir_copy_commit(b);
    ir_copy_wait(b, 0);
    ir_barrier(b);
    const ir_id turn = ir_loop(b, ir_u32(b, 0), ir_u32(b, each * 2), ir_u32(b, 1));
    const ir_id to = ir_fma(b, turn, ir_u32(b, 16), l);
    ir_store(b, y, ir_fma(b, ir_group(b, 0), ir_u32(b, n), to),
             ir_load(b, stage, ir_sub(b, ir_u32(b, n - 1), to), 1));
    ir_end(b);
    const ir_kernel *k = NULL;
    if (ir_finish(b, &k, &w->error)) return NULL;
    char *data = bytes_of(w, 2 * n * ir_type_bytes(type));
    for (uint32_t e = 0; e < 2 * n; e++) {
        const uint64_t bits = ir_from_double(type, e);
        memcpy(data + e * ir_type_bytes(type), &bits, ir_type_bytes(type));
    }
    give(w, j, 0, data, 2 * n * ir_type_bytes(type));
    give(w, j, 1, NULL, 2 * n * ir_type_bytes(type));
    j->run.groups[0] = 2;
    return k;
}

/* Places on three axes, of lanes, groups and numbers of groups. */
static const ir_kernel *make_places(bench *w, job *j) {
    ir_builder *b = ir_begin(&w->arena, "places", 2, 3, 2);
    const ir_memory y = ir_buffer(b, IR_U32, IR_READ_WRITE, "y"),
                    ring = ir_workgroup(b, IR_U32, 12);
    ir_id lane = ir_u32(b, 0), group = lane, all = lane;
    const uint32_t sizes[3] = {2, 3, 2};
    for (uint32_t axis = 3; axis-- > 0;) {
        lane = ir_fma(b, lane, ir_u32(b, sizes[axis]), ir_local(b, axis));
        group = ir_fma(b, group, ir_groups(b, axis), ir_group(b, axis));
    }
    ir_store(b, ring, lane, ir_fma(b, group, ir_u32(b, 100), lane));
    ir_barrier(b);
    all = ir_fma(b, group, ir_u32(b, 12), lane);
    ir_store(b, y, all, ir_load(b, ring, ir_sub(b, ir_u32(b, 11), lane), 1));
    const ir_kernel *k = NULL;
    if (ir_finish(b, &k, &w->error)) return NULL;
    give(w, j, 0, NULL, 12 * 2 * 3 * 2 * 4);
    j->run.groups[0] = 2, j->run.groups[1] = 3, j->run.groups[2] = 2;
    return k;
}

/* The same bits as other types and widths; dot products of bytes. */
static const ir_kernel *make_bits_of(bench *w, job *j, uint32_t lanes) {
    ir_builder *b = ir_begin(&w->arena, lanes == 1 ? "bits_1" : "bits", lanes, 1, 1);
    const ir_memory x = ir_buffer(b, IR_U32, IR_READ, "x"),
                    y = ir_buffer(b, IR_U32, IR_READ_WRITE, "y");
    const ir_id l = ir_fma(b, ir_group(b, 0), ir_u32(b, lanes), ir_local(b, 0)),
                v = ir_load(b, x, ir_mul(b, l, ir_u32(b, 4)), 4);
    const ir_id bytes = ir_bitcast(b, IR_I8, 16, v),
                more = ir_add(b, bytes, ir_number(b, IR_I8, 16, 100));
    const ir_id words = ir_bitcast(b, IR_U16, 8, more),
                wide = ir_bitcast(b, IR_U64, 2, ir_mul(b, words, ir_number(b, IR_U16, 8, 3)));
    const ir_id sum = ir_add(b, wide, ir_bits(b, IR_U64, 2, UINT64_C(0x1234567890abcdef)));
    const ir_id out = ir_bitcast(b, IR_U32, 4, ir_bitcast(b, IR_I64, 2, sum));
    const ir_id dot = ir_dot4_i8(b, v, out, ir_bitcast(b, IR_I32, 4, v)),
                fewer = ir_swizzle(b, dot, 2, 0x13);
    const ir_id parts[2] = {
        ir_bitcast(b, IR_U32, 2, fewer),
        ir_bitcast(b, IR_U32, 2, ir_bitcast(b, IR_F32, 2, ir_swizzle(b, out, 2, 0x20)))};
    ir_store(b, y, ir_mul(b, l, ir_u32(b, 8)), out);
    ir_store(b, y, ir_fma(b, l, ir_u32(b, 8), ir_u32(b, 4)), ir_compose(b, parts, 2));
    const ir_kernel *k = NULL;
    if (ir_finish(b, &k, &w->error)) return NULL;
    uint32_t data[64];
    for (uint32_t e = 0; e < 64; e++) data[e] = e * UINT32_C(0x9e3779b9) ^ e << 7;
    give(w, j, 0, data, sizeof data);
    give(w, j, 1, NULL, 16 * 8 * 4);
    j->run.groups[0] = 16 / lanes;
    return k;
}

/* Unsigned bytes by signed ones; lanes in another order, vectors side by side; halves of words. */
static const ir_kernel *make_byte_dots(bench *w, job *j) {
    ir_builder *b = ir_begin(&w->arena, "byte_dots", 1, 1, 1);
    ir_memory x = ir_buffer(b, IR_U32, IR_READ, "x"), y = ir_buffer(b, IR_F32, IR_READ_WRITE, "y");
    ir_id zero = ir_u32(b, 0), sum = ir_number(b, IR_F32, 16, 0);
    for (uint32_t width = 4; width <= 16; width *= 2) {
        ir_id u = ir_load(b, x, zero, width), less = ir_bits(b, IR_I32, width, 3),
              s = ir_swizzle(b, u, width, UINT64_C(0x0123321010233201) >> (64 - 4 * width)),
              dot = ir_dot4_u8(b, u, s, ir_dot4_u8(b, s, u, less));
        sum = ir_add(b, sum, ir_swizzle(b, ir_cast(b, IR_F32, dot), 16, 0x0123321010233201));
    }
    ir_id four = ir_load(b, x, zero, 4), both = ir_compose(b, (ir_id[]){four, four}, 2),
          finite = ir_and(b, both, ir_bits(b, IR_U32, 8, 0xbfffbfff));
    ir_store(b, y, zero, ir_add(b, sum, ir_cast(b, IR_F32, ir_bitcast(b, IR_F16, 16, finite))));
    give(w, j, 0, inputs(w, IR_U32), 64);
    give(w, j, 1, NULL, 64);
    const ir_kernel *k = NULL;
    return ir_finish(b, &k, &w->error) ? NULL : k;
}

static const ir_kernel *make_bits(bench *w, job *j) {
    return make_bits_of(w, j, 16);
}
static const ir_kernel *make_bits_single(bench *w, job *j) {
    return make_bits_of(w, j, 1);
}

/* Two subgroups multiply 16 x 2 k by 2 k x 8 each, from buffers and by way of workgroup memory,
 * with all orders in memory. */
static const ir_kernel *make_fragments(bench *w, job *j, ir_type type) {
    char name[40];
    snprintf(name, sizeof name, "fragments_%s", ir_type_name(type));
    const uint16_t k = type == IR_I8 ? 32 : 16;
    const ir_type sum = type == IR_I8 ? IR_I32 : IR_F32;
    ir_builder *b = ir_begin(&w->arena, name, 64, 1, 1);
    ir_subgroup(b, 32);
    const ir_memory x = ir_buffer(b, type, IR_READ, "x"), y = ir_buffer(b, sum, IR_READ_WRITE, "y");
    const ir_memory stage = ir_workgroup(b, type, 16u * k * 2);
    const ir_fragments fa = ir_fragment(b, IR_ROLE_A, type, 16, 8, k, 2),
                       fb = ir_fragment(b, IR_ROLE_B, type, 16, 8, k, 2);
    const ir_fragments fc = ir_fragment(b, IR_ROLE_C, sum, 16, 8, k, 1);
    const ir_id l = ir_local(b, 0), s = ir_shr(b, l, ir_u32(b, 5)), zero = ir_u32(b, 0),
                one = ir_u32(b, 1), size = ir_u32(b, 16u * k);
    const ir_id ck = ir_u32(b, k), c8 = ir_u32(b, 8), c16 = ir_u32(b, 16);
    const ir_id i = ir_loop(b, ir_mul(b, l, c8), ir_u32(b, 16u * k * 2), ir_u32(b, 64 * 8));
    ir_store(b, stage, i, ir_load(b, x, i, 8));
    ir_end(b);
    ir_barrier(b);
    ir_fragment_fill(b, fc, zero, ir_number(b, sum, 1, 2));
    ir_fragment_load(b, fa, zero, stage, ir_mul(b, s, size), ck, false);
    ir_fragment_load(b, fa, one, stage, ir_mul(b, s, size), c16, true);
    ir_fragment_load(b, fb, zero, stage, ir_mul(b, s, size), c8, false);
    ir_fragment_load(b, fb, one, x, ir_fma(b, s, size, ir_u32(b, 3)), ck, true);
    if (k == 16) ir_fragment_set(b, fa, zero, 1, ir_fragment_get(b, fa, one, 2));
    if (k == 16) ir_fragment_set(b, fb, zero, 1, ir_fragment_get(b, fb, one, 0));
    const ir_id turn = ir_loop_unrolled(b, zero, ir_u32(b, 2), one, 2);
    ir_fragment_mma(b, fc, zero, fa, turn, fb, turn);
    ir_end(b);
    ir_fragment_store(b, fc, zero, y, ir_mul(b, s, ir_u32(b, 128)), c8, false);
    ir_fragment_store(b, fc, zero, y, ir_fma(b, s, ir_u32(b, 128), ir_u32(b, 256)), c16, true);
    const ir_kernel *made = NULL;
    if (ir_finish(b, &made, &w->error)) return NULL;
    const uint32_t n = 16u * k * 2;
    char *data = bytes_of(w, n * ir_type_bytes(type));
    for (uint32_t e = 0; e < n; e++) {
        const uint64_t bits = ir_from_double(type, (double)(e * 7 % 19) - 9);
        memcpy(data + e * ir_type_bytes(type), &bits, ir_type_bytes(type));
    }
    give(w, j, 0, data, n * ir_type_bytes(type));
    give(w, j, 1, NULL, 512 * 4);
    return made;
}

/* Constants of a type, to the bit. */
static const ir_kernel *make_constants(bench *w, job *j, ir_type type) {
    char name[40];
    snprintf(name, sizeof name, "constants_%s", ir_type_name(type));
    ir_builder *b = ir_begin(&w->arena, name, 1, 1, 1);
    const ir_memory y = ir_buffer(b, type, IR_READ_WRITE, "y");
    uint32_t n = 0;
    for (size_t e = 0; e < sizeof awkward / sizeof *awkward; e++)
        ir_store(b, y, ir_u32(b, n++), ir_bits(b, type, 1, ir_from_double(type, awkward[e])));
    const double more[] = {1.0 / 3, -2e-5, 6.1e-5, 1.18e-38, 3.4028234663852886e38, 123456789, 0.1};
    for (size_t e = 0; e < sizeof more / sizeof *more; e++)
        ir_store(b, y, ir_u32(b, n++), ir_bits(b, type, 1, ir_from_double(type, more[e])));
    const ir_kernel *k = NULL;
    if (ir_finish(b, &k, &w->error)) return NULL;
    give(w, j, 0, NULL, (uint64_t)n * ir_type_bytes(type));
    j->run.groups[0] = 1;
    return k;
}

/* How many of a list are before each: comparisons of whole vectors that become numbers, by one
 * lane. */
static const ir_kernel *make_ranks(bench *w, job *j) {
    enum { KEYS = 36, REAL = 33 };
    ir_builder *b = ir_begin(&w->arena, "ranks", 1, 1, 1);
    const ir_memory x = ir_buffer(b, IR_U32, IR_READ, "x"),
                    y = ir_buffer(b, IR_U32, IR_READ_WRITE, "y");
    const ir_memory keys = ir_workgroup(b, IR_U32, KEYS), rank = ir_register(b, IR_U32, 4);
    const ir_id zero = ir_u32(b, 0), one = ir_u32(b, 1), n = ir_u32(b, KEYS),
                copied = ir_loop(b, zero, n, one);
    const ir_id inside = ir_lt(b, copied, ir_u32(b, REAL));
    ir_store(b, keys, copied, ir_select(b, inside, ir_load(b, x, copied, 1), zero));
    ir_end(b);
    const ir_id i = ir_loop(b, zero, ir_u32(b, REAL), one),
                own = ir_splat(b, ir_load(b, keys, i, 1), 4);
    ir_store(b, rank, zero, ir_bits(b, IR_U32, 4, 0));
    const ir_id at = ir_loop(b, zero, n, ir_u32(b, 4)), other = ir_load(b, keys, at, 4);
    const ir_id places[] = {at, ir_add(b, at, one), ir_add(b, at, ir_u32(b, 2)),
                            ir_add(b, at, ir_u32(b, 3))};
    const ir_id earlier = ir_lt(b, ir_compose(b, places, 4), ir_splat(b, i, 4));
    const ir_id before = ir_or(b, ir_gt(b, other, own), ir_and(b, ir_eq(b, other, own), earlier));
    ir_store(b, rank, zero, ir_add(b, ir_load(b, rank, zero, 4), ir_cast(b, IR_U32, before)));
    ir_end(b);
    const ir_id all = ir_load(b, rank, zero, 4);
    const ir_id two = ir_add(b, ir_swizzle(b, all, 2, 0x10), ir_swizzle(b, all, 2, 0x32));
    ir_store(b, y, i, ir_add(b, ir_extract(b, two, 0), ir_extract(b, two, 1)));
    ir_end(b);
    const ir_kernel *k = NULL;
    if (ir_finish(b, &k, &w->error)) return NULL;
    uint32_t data[KEYS];
    for (uint32_t e = 0; e < KEYS; e++) data[e] = 0x80000000u + e * 7919 % 31;
    give(w, j, 0, data, sizeof data);
    give(w, j, 1, NULL, sizeof data);
    j->run.groups[0] = 1;
    return k;
}

/* Every f16 there is, in vectors of 16. */
static const ir_kernel *make_halves(bench *w, job *j) {
    enum { HALVES = 65536 };
    ir_builder *b = ir_begin(&w->arena, "halves", 1, 1, 1);
    const ir_memory x = ir_buffer(b, IR_F16, IR_READ, "x"),
                    y = ir_buffer(b, IR_F32, IR_READ_WRITE, "y");
    const ir_id i = ir_loop(b, ir_u32(b, 0), ir_u32(b, HALVES), ir_u32(b, 16));
    ir_store(b, y, i, ir_cast(b, IR_F32, ir_load(b, x, i, 16)));
    ir_end(b);
    const ir_kernel *k = NULL;
    if (ir_finish(b, &k, &w->error)) return NULL;
    uint16_t *data = bytes_of(w, HALVES * sizeof *data);
    for (uint32_t e = 0; e < HALVES; e++) data[e] = (uint16_t)e;
    give(w, j, 0, data, HALVES * sizeof *data);
    give(w, j, 1, NULL, HALVES * 4);
    j->run.groups[0] = 1;
    return k;
}

typedef struct kernel_case {
    const char *name;
    const ir_kernel *(*make)(bench *w, job *j);
    const ir_kernel *(*make_typed)(bench *w, job *j, ir_type type);
    const ir_kernel *(*make_vector)(bench *w, job *j, ir_type type, uint32_t width);
    ir_type type;
    uint32_t width;
} kernel_case;

static const ir_kernel *make_subgroups_8(bench *w, job *j) {
    return make_subgroups(w, j, 8);
}
static const ir_kernel *make_subgroups_4(bench *w, job *j) {
    return make_subgroups(w, j, 4);
}
static const ir_kernel *make_subgroups_32(bench *w, job *j) {
    return make_subgroups(w, j, 32);
}

#define VECTORS(TYPE)                                          \
    {"vectors", NULL, NULL, make_vectors, IR_##TYPE, 2},       \
        {"vectors", NULL, NULL, make_vectors, IR_##TYPE, 4},   \
        {"vectors", NULL, NULL, make_vectors, IR_##TYPE, 8}, { \
        "vectors", NULL, NULL, make_vectors, IR_##TYPE, 16     \
    }

static const kernel_case kernels[] = {
    {"tree", make_tree, NULL, NULL, 0, 0},
    {"matmul", make_matmul, NULL, NULL, 0, 0},
    {"stride", make_stride, NULL, NULL, 0, 0},
    {"collatz", make_collatz, NULL, NULL, 0, 0},
    {"subgroups-8", make_subgroups_8, NULL, NULL, 0, 0},
    {"subgroups-4", make_subgroups_4, NULL, NULL, 0, 0},
    {"subgroups-32", make_subgroups_32, NULL, NULL, 0, 0},
    {"atomics", make_atomics, NULL, NULL, 0, 0},
    {"ranks", make_ranks, NULL, NULL, 0, 0},
    {"all-halves", make_halves, NULL, NULL, 0, 0},
    {"uniform", make_uniform, NULL, NULL, 0, 0},
    {"staging", NULL, make_staging, NULL, IR_F32, 0},
    {"staging", NULL, make_staging, NULL, IR_F16, 0},
    {"fragments", NULL, make_fragments, NULL, IR_F16, 0},
    {"fragments", NULL, make_fragments, NULL, IR_BF16, 0},
    {"fragments", NULL, make_fragments, NULL, IR_I8, 0},
    {"places", make_places, NULL, NULL, 0, 0},
    {"bits", make_bits, NULL, NULL, 0, 0},
    {"bits-single", make_bits_single, NULL, NULL, 0, 0},
    {"byte-dots", make_byte_dots, NULL, NULL, 0, 0},
    {"constants", NULL, make_constants, NULL, IR_F32, 0},
    {"constants", NULL, make_constants, NULL, IR_F16, 0},
    {"constants", NULL, make_constants, NULL, IR_BF16, 0},
    {"constants", NULL, make_constants, NULL, IR_F64, 0},
    {"constants", NULL, make_constants, NULL, IR_I8, 0},
    {"constants", NULL, make_constants, NULL, IR_I32, 0},
    {"constants", NULL, make_constants, NULL, IR_U64, 0},
    {"constants", NULL, make_constants, NULL, IR_I64, 0},
    VECTORS(F32),
    VECTORS(F16),
    VECTORS(I8),
    VECTORS(U16),
    {"single", NULL, NULL, make_single, IR_F32, 16},
    {"single", NULL, NULL, make_single, IR_F16, 8},
    {"single", NULL, NULL, make_single, IR_U8, 16},
    {"single", NULL, NULL, make_single, IR_I64, 4},
    {"choices", NULL, NULL, make_choices, IR_F32, 4},
    {"functions", NULL, NULL, make_functions, IR_F32, 4},
    {"functions", NULL, NULL, make_functions, IR_F32, 16},
    {"vectors", NULL, NULL, make_vectors, IR_BF16, 4},
    {"vectors", NULL, NULL, make_vectors, IR_F64, 4},
    {"vectors", NULL, NULL, make_vectors, IR_I16, 2},
    {"vectors", NULL, NULL, make_vectors, IR_U8, 2},
    {"vectors", NULL, NULL, make_vectors, IR_I32, 4},
    {"vectors", NULL, NULL, make_vectors, IR_U64, 2},
    {"vectors", NULL, NULL, make_vectors, IR_I64, 4},
};

static const ir_kernel *made(bench *w, job *j, const kernel_case *c) {
    j->run.groups[0] = j->run.groups[1] = j->run.groups[2] = 1;
    return c->make         ? c->make(w, j)
           : c->make_typed ? c->make_typed(w, j, c->type)
                           : c->make_vector(w, j, c->type, c->width);
}

static void case_name(char *out, size_t size, const kernel_case *c) {
    int n = snprintf(out, size, "%s", c->name);
    if (!c->make) n += snprintf(out + n, size - (size_t)n, "-%s", ir_type_name(c->type));
    if (c->width) snprintf(out + n, size - (size_t)n, "x%u", (unsigned)c->width);
}

static void test_kernel(test *t, rig *r, const kernel_case *c) {
    bench b;
    bench_init(&b);
    job j = {0};
    void *got[IR_BUFFER_MAX] = {NULL};
    j.k = made(&b, &j, c);
    if (!j.k) {
        test_fail(t, __FILE__, __LINE__, "builder: %s", b.error.message);
    } else if (judge(t, &b, &j)) {
        const beryl_status status = run_on(t, &b, r, &j, got);
        if (status == BERYL_UNSUPPORTED) test_skip(t, "%s", r->error.message);
        else if (status) test_fail(t, __FILE__, __LINE__, "%s", r->error.message);
        uint32_t told = 0;
        for (uint32_t n = 0; !status && n < j.k->n_buffer; n++) {
            const ir_type type = j.k->buffers[n].type;
            for (uint64_t e = 0; e < j.run.buffers[n].size / ir_type_bytes(type) && told < 6; e++) {
                const uint64_t mine = element(got[n], type, e),
                               want = element(j.run.buffers[n].data, type, e);
                if (near_enough(type, IR_NEAR, mine, want)) continue;
                test_fail(t, __FILE__, __LINE__, "%s[%llu] is %g (%llx), not %g (%llx)",
                          j.k->buffers[n].name, (unsigned long long)e, ir_to_double(type, mine),
                          (unsigned long long)mine, ir_to_double(type, want),
                          (unsigned long long)want);
                told++;
            }
        }
    }
    base_arena_fini(&b.arena);
}

/* ---- compilers without devices --------------------------------------------------------------- */

/* Calls `each` with the text of every kernel of both tables. */
static void all_texts(test *t, device_language language, void *user,
                      void (*each)(test *t, void *user, const device_program_desc *desc)) {
    const size_t n_ops = 2 * IR_TYPE_COUNT, n_kernels = sizeof kernels / sizeof *kernels;
    rig none = {0};
    device everything = {
        .caps = {.f64 = true, .f16 = true, .languages = DEVICE_LANGUAGE_BIT(language)}};
    none.d = &everything;
    for (size_t n = 0; n < n_ops + n_kernels; n++) {
        bench b;
        bench_init(&b);
        plan *p = base_arena_take(&b.arena, 1, sizeof *p);
        job j = {0};
        const ir_type type = (ir_type)(n % IR_TYPE_COUNT);
        if (n >= n_ops) j.k = made(&b, &j, &kernels[n - n_ops]);
        else if (type == IR_NONE) j.k = NULL;
        else if (n < IR_TYPE_COUNT) j.k = ops_kernel(&b, type, p);
        else if (type != IR_BOOL) j.k = casts_kernel(&b, &none, type, p);
        device_program_desc desc;
        if (j.k) {
            const beryl_status status =
                codegen_make(&b.arena, j.k, language, NULL, &desc, &b.error);
            const bool refused = status == BERYL_UNSUPPORTED && !strncmp(j.k->name, "fragments", 9);
            if (status && (language == DEVICE_CUDA_C || !refused))
                test_fail(t, __FILE__, __LINE__, "%s", b.error.message);
            else if (!status) show(&desc), each(t, user, &desc);
        }
        base_arena_fini(&b.arena);
    }
}

static void compile_cuda(test *t, void *user, const device_program_desc *desc) {
    const cuda_driver *driver = user;
    const char *options[CUDA_OPTION_MAX];
    char room[512], log[4096] = "?";
    bool ptx;
    cuda_text text = NULL;
    const uint32_t n = driver->flavour->options(driver, "80", room, options, &ptx);
    CHECK_INT(t, driver->c.make(&text, desc->source, desc->label, 0, NULL, NULL), 0);
    if (driver->c.compile(text, (int)n, options)) {
        size_t size = 0;
        if (!driver->c.log_size(text, &size) && size <= sizeof log) driver->c.log(text, log);
        test_fail(t, __FILE__, __LINE__, "%s: %.600s", desc->label, log);
    }
    driver->c.drop(&text);
}

/* A product of halves as a schedule makes it for matrix units: more workgroup memory than a text
 * may declare, pairs of fragments. */
static void tiled_halves(test *t, bench *b, device_program_desc *desc) {
    const ir_schedule s = {.fragments = true,
                           .vector = 8,
                           .subgroup = 32,
                           .workgroup_bytes = 227 << 10,
                           .dims = {{.group = 2, .lanes = 4, .block = 4},
                                    {.group = 1, .lanes = 2, .block = 8},
                                    {.stage = 64, .unroll = 3}}};
    ir_builder *i = ir_begin(&b->arena, "tiled_halves", 1, 1, 1);
    ir_memory x = ir_buffer(i, IR_F16, IR_READ, "x"), w = ir_buffer(i, IR_F16, IR_READ, "w"),
              y = ir_buffer(i, IR_F32, IR_READ_WRITE, "y");
    ir_memory sum = ir_register(i, IR_F32, 1);
    ir_id rows = ir_param(i, IR_U32, "n"), zero = ir_u32(i, 0), one = ir_u32(i, 1),
          size = ir_u32(i, 512);
    ir_id m = ir_loop_marked(i, zero, rows, one, IR_PARALLEL, 0),
          n = ir_loop_marked(i, zero, size, one, IR_PARALLEL, 1);
    ir_set(i, sum, ir_f32(i, 0));
    ir_id k = ir_loop_marked(i, zero, size, one, IR_REDUCE, 2);
    ir_id left = ir_cast(i, IR_F32, ir_load(i, x, ir_add(i, ir_mul(i, m, size), k), 1));
    ir_id right = ir_cast(i, IR_F32, ir_load(i, w, ir_add(i, ir_mul(i, n, size), k), 1));
    ir_set(i, sum, ir_fma(i, left, right, ir_get(i, sum)));
    ir_end(i);
    ir_store(i, y, ir_add(i, ir_mul(i, m, size), n), ir_get(i, sum));
    ir_end(i), ir_end(i);
    const ir_kernel *kernel;
    CHECK_INT(t, ir_finish(i, &kernel, &b->error), BERYL_OK);
    CHECK_INT(t, ir_optimise(&b->arena, kernel, &s, &kernel, &b->error), BERYL_OK);
    CHECK_INT(t, codegen_make(&b->arena, kernel, DEVICE_CUDA_C, NULL, desc, &b->error), BERYL_OK);
    CHECK_INT(t, kernel->n_fragment, 3);
}

static void test_cuda_tiles(test *t) {
    bench b;
    device_program_desc desc;
    bench_init(&b);
    tiled_halves(t, &b, &desc);
    CHECK(t, desc.launch_bytes > 160 << 10 && desc.launch_bytes < 227 << 10);
    /* b in pairs */
    CHECK(t, strstr(desc.source, "load_matrix_4(&f2[0u * 2u]") &&
                 !strstr(desc.source, "load_matrix_2(&"));
    CHECK(t, strstr(desc.source, "copy_wait(1)") != NULL);
    base_arena_fini(&b.arena);
    CHECK_INT(t, b.heap.bytes, 0);
}

static void test_cuda(test *t) {
    /* none that a compiler is too new for */
    cuda_driver driver = {.flavour = &cuda_nvidia, .version = INT_MAX};
    cuda_compiler_find(&driver, NULL);
    if (!driver.has_compiler) {
        test_skip(t, "%s", driver.no_compiler);
        return;
    }
    all_texts(t, DEVICE_CUDA_C, &driver, compile_cuda);
    bench b;
    device_program_desc desc;
    bench_init(&b);
    tiled_halves(t, &b, &desc);
    compile_cuda(t, &driver, &desc);
    base_arena_fini(&b.arena);
}

typedef struct files {
    char path[512];
    FILE *file;
} files;

static void gather_hip(test *t, void *user, const device_program_desc *desc) {
    hip_texts_add(t, user, desc->source);
}

static void test_hip(test *t, const char *architecture) {
    hip_texts h;
    if (!hip_texts_open(t, &h, architecture)) return;
    all_texts(t, DEVICE_HIP_C, &h, gather_hip);
    hip_texts_compile(t, &h);
}

/* By clang's own header, whose target has every extension; a driver may have one way of
 * shuffling alone. */
static void compile_subgroups(test *t, void *user, const device_program_desc *desc) {
    static const char *const lacks[] = {"cl_intel_subgroups", "cl_khr_subgroup_shuffle"};
    files *f = user;
    if (strncmp(desc->label, "subgroups", 9) != 0) return;
    CHECK(t, strstr(desc->source, " lanes(") != NULL);
    for (int i = 0; i < 2; i++) {
        f->file = fopen(f->path, "w");
        if (!f->file) return;
        fprintf(f->file, "#undef %s\n%s", lacks[i], desc->source);
        fclose(f->file);
        char line[1400];
        snprintf(line, sizeof line,
                 "clang -target spir64 -cl-no-stdinc -include opencl-c.h -x cl -cl-std=CL2.0 -w "
                 "-Dcl_intel_required_subgroup_size -S -emit-llvm -o /dev/null %s 2>&1",
                 f->path);
        hip_run_compiler(t, line);
    }
}

static void test_opencl_subgroups(test *t) {
    files f = {0};
    if (system("command -v clang > /dev/null 2>&1")) {
        test_skip(t, "there is no clang");
        return;
    }
    snprintf(f.path, sizeof f.path, "%s/subgroups.cl", test_scratch(t));
    all_texts(t, DEVICE_OPENCL_C, &f, compile_subgroups);
}

/* ---- what goes wrong ------------------------------------------------------------------------- */

static void test_refusals(test *t) {
    static const struct {
        const char *text, *says;
        device_language language;
        device_caps caps;
    } wrongs[] = {
        {"kernel \"a\" workgroup 1 1 1\n  buffer 0 read_write f64 \"x\"\n  %0 = const u32 0\n  %1 "
         "= load f64 buffer 0 %0\n",
         "f64",
         DEVICE_WGSL,
         {.f16 = false}},
        {"kernel \"a\" workgroup 1 1 1\n  buffer 0 read_write f32 \"x\"\n  %0 = const u32 0\n  %1 "
         "= cast f64 %0\n",
         "cast of f64",
         DEVICE_WGSL,
         {.subgroups = true}},
        {"kernel \"a\" workgroup 1 1 1\n  buffer 0 read_write f32 \"x\"\n  %0 = const u32 0\n  %1 "
         "= cast f64 %0\n",
         "device has no such type",
         DEVICE_OPENCL_C,
         {.f16 = false}},
        {"kernel \"a\" workgroup 8 1 1 subgroup 8\n  buffer 0 read_write f32 \"x\"\n  %0 = const "
         "f32 0x0p+0\n  %1 = subgroup_add f32 %0\n",
         "subgroup_add of f32 in OpenCL C",
         DEVICE_OPENCL_C,
         {.f16 = false}},
        {"kernel \"a\" workgroup 8 1 1 subgroup 8\n  buffer 0 read_write f32 \"x\"\n  %0 = const "
         "f32 0x0p+0\n  %1 = subgroup_add f32 %0\n",
         "fewer lanes",
         DEVICE_WGSL,
         {.subgroups = true, .subgroup_size = 4}},
        {"kernel \"a\" workgroup 32 1 1 subgroup 32\n  buffer 0 read_write f32 \"x\"\n  fragment 0 "
         "c f32 16 8 16 count 1\n  %0 = const u32 0\n  %1 = const f32 0x0p+0\n  fragment_fill 0 %0 "
         "%1\n",
         "fragment",
         DEVICE_WGSL,
         {.f16 = false}},
        {"kernel \"a\" workgroup 32 1 1 subgroup 32\n  buffer 0 read_write f32 \"x\"\n  fragment 0 "
         "c i32 16 8 32 count 1\n  fragment 1 a i8 16 8 32 count 1\n  fragment 2 b i8 16 8 32 "
         "count 1\n  %0 = const u32 0\n  fragment_mma 0 1 2 %0 %0 %0\n",
         "no matrix units for i8, 16 x 8 x 32",
         DEVICE_CUDA_C,
         {.subgroups = true,
          .subgroup_size = 32,
          .fragments = DEVICE_FRAGMENT_BIT(DEVICE_FRAGMENT_F16_F32)}},
    };
    for (size_t n = 0; n < sizeof wrongs / sizeof *wrongs; n++) {
        bench b;
        bench_init(&b);
        const ir_kernel *k = NULL;
        device_program_desc desc;
        const bool all = wrongs[n].language == DEVICE_WGSL && !wrongs[n].caps.subgroups;
        beryl_status status =
            ir_parse(&b.arena, wrongs[n].text, strlen(wrongs[n].text), &k, &b.error);
        if (status) {
            test_fail(t, __FILE__, __LINE__, "%u: %s", (unsigned)n, b.error.message);
        } else {
            status = codegen_make(&b.arena, k, wrongs[n].language, all ? NULL : &wrongs[n].caps,
                                  &desc, &b.error);
            CHECK_INT(t, status, BERYL_UNSUPPORTED);
            if (!strstr(b.error.message, wrongs[n].says))
                test_fail(t, __FILE__, __LINE__, "%u: %s", (unsigned)n, b.error.message);
            CHECK(t, desc.source == NULL);
        }
        base_arena_fini(&b.arena);
    }
}

/* Every allocation fails once: NO_MEMORY, and nothing is lost. */
static void test_memory(test *t) {
    static const char *const names[] = {"matmul", "bits", "bits-single", "stride"};
    bench b;
    bench_init(&b);
    for (size_t n = 0; n < sizeof kernels / sizeof *kernels; n++) {
        bool wanted = false;
        for (int m = 0; m < 4; m++) wanted |= !strcmp(kernels[n].name, names[m]);
        job j = {0};
        if (!wanted || !(j.k = made(&b, &j, &kernels[n]))) continue;
        for (int language = DEVICE_WGSL; language <= DEVICE_IR; language++) {
            beryl_status status = BERYL_NO_MEMORY;
            for (uint64_t fails = 0; status == BERYL_NO_MEMORY && fails < 4000; fails++) {
                rig_failing failing = {fails};
                base_heap heap;
                base_heap_init(&heap,
                               &(beryl_allocator){.user = &failing, .resize = rig_failing_resize});
                base_arena arena;
                base_arena_init(&arena, &heap);
                device_program_desc desc;
                status = codegen_make(&arena, j.k, (device_language)language, NULL, &desc, NULL);
                base_arena_fini(&arena);
                CHECK_INT(t, heap.bytes, 0);
            }
            CHECK_INT(t, status, BERYL_OK);
        }
    }
    base_arena_fini(&b.arena);
}

static const char *const devices[] = {"host", "software", "opencl", "cuda", "hip"};

/* OpenCL on a processor takes seconds a kernel, the stand-in for CUDA and HIP little less: there
 * one of each kind will do, for C's languages share most. */
static bool too_slow(bool slow, ir_type type, uint32_t width, bool casts) {
    if (!slow) return false;
    const uint32_t types =
        casts ? 1 << IR_F32 | 1 << IR_F64 | 1 << IR_I16 | 1 << IR_U64
              : 1 << IR_NONE | 1 << IR_F32 | 1 << IR_F16 | 1 << IR_I8 | 1 << IR_I64 | 1 << IR_U32;
    return !ir_type_in(type, types) || (width && width != (type == IR_F16  ? 8
                                                           : type == IR_I8 ? 16
                                                                           : 4));
}

static void test_on(test *t, const char *choice, const kernel_case *c, bool stand_in) {
    rig r;
    if (!rig_open(t, &r, choice)) return;
    /* it is an old GPU, but its compiler knows the words */
    if (stand_in) r.d->caps.fragments = DEVICE_FRAGMENT_ALL;
    if (c->make || device_has(&r, c->type)) test_kernel(t, &r, c);
    else test_skip(t, "the device has no %s", ir_type_name(c->type));
    rig_close(t, &r);
}

/* A part of the device's subgroups with AMD's, whole ones with Intel's. */
static void test_subgroups_of(test *t, const char *vendor) {
    const bool stand_in = rig_opencl_subgroups(vendor);
    for (size_t n = 0; n < sizeof kernels / sizeof *kernels; n++) {
        if (strncmp(kernels[n].name, "subgroups", 9) ||
            !test_case(t, "codegen/%s-opencl-%s", kernels[n].name, vendor))
            continue;
        if (stand_in) test_on(t, "opencl", &kernels[n], false);
        else test_skip(t, "there is no OpenCL, or it has its own subgroups");
    }
    if (stand_in) rig_stand_in_end("opencl");
}

void test_codegen(test *t) {
    if (test_case(t, "codegen/refusals-name-op-type-and-language")) test_refusals(t);
    if (test_case(t, "codegen/memory-fails-at-every-call")) test_memory(t);
    if (test_case(t, "codegen/cuda-tiles-of-halves")) test_cuda_tiles(t);
    if (test_case(t, "codegen/cuda-compiles")) test_cuda(t);
    if (test_case(t, "codegen/hip-compiles-gfx90a")) test_hip(t, "gfx90a");
    if (test_case(t, "codegen/hip-compiles-gfx1100")) test_hip(t, "gfx1100");
    if (test_case(t, "codegen/opencl-subgroups-compile")) test_opencl_subgroups(t);
    for (size_t d = 0; d < sizeof devices / sizeof *devices; d++) {
        bool stand_in = rig_stand_in(devices[d]), slow = stand_in || !strcmp(devices[d], "opencl");
        for (int casts = 0; casts < 2; casts++)
            for (int type = IR_F32; type < IR_TYPE_COUNT - casts; type++) {
                if (too_slow(slow, (ir_type)type, 0, casts)) continue;
                if (!test_case(t, "codegen/%s-%s-%s", casts ? "casts" : "ops", devices[d],
                               ir_type_name((ir_type)type)))
                    continue;
                rig r;
                if (!rig_open(t, &r, devices[d])) continue;
                if (device_has(&r, (ir_type)type)) test_ops(t, &r, (ir_type)type, casts);
                else test_skip(t, "the device has no %s", ir_type_name((ir_type)type));
                rig_close(t, &r);
            }
        for (size_t n = 0; n < sizeof kernels / sizeof *kernels; n++) {
            char name[64];
            if (too_slow(slow, kernels[n].type, kernels[n].width, false)) continue;
            case_name(name, sizeof name, &kernels[n]);
            if (!test_case(t, "codegen/%s-%s", name, devices[d])) continue;
            test_on(t, devices[d], &kernels[n], stand_in);
        }
        if (stand_in) rig_stand_in_end(devices[d]);
    }
    test_subgroups_of(t, "amd");
    test_subgroups_of(t, "intel");
}
