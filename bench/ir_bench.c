/* ir_bench.c - how fast kernels of the IR run, beside what the machine has: cuBLAS, OpenBLAS,
 * its own copies.
 *
 *   ir_bench [--device D] [--op NAME] [--type f32|f16|bf16] [--size M,N,K] [--schedule S]...
 *   [--tune] [--text]
 *     --op        a row of `cases` below; default: all that fit the device
 *     --schedule  instead of the rule of thumb; again: further ones, each a line. See read_schedule
 *     --tune      also what ir_tune finds, without a cache
 *     --text      prints the generated text of each and runs nothing
 *
 * Kernels are written plainly, with marks, as lowerings write them; a schedule does the rest.
 * Each result is checked at places drawn at random against sums in f64 before it is timed. Times
 * are the device's own, the best of a few rounds. The last column: of what cuBLAS or OpenBLAS do
 * for the same product in the same run (they are opened where they are found; BERYL_CUBLAS and
 * BERYL_OPENBLAS name files), or of the device's own copy, bytes read and written. */
#include "base/error.h"
#include "base/thread.h"
#include "codegen/codegen.h"
#include "device/device.h"
#include "ir/tune.h"

#include "rivals.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { BUFFERS = 3, SCHEDULES = 64, ROUNDS = 5, SAMPLES = 400 };
#define WARM_SECONDS 0.05

/* what the letters mean, each case says; type: of the factors, or of everything */
typedef struct shape {
    uint32_t m, n, k;
    ir_type type;
} shape;

typedef struct bench {
    base_heap heap;
    device *d;
    const device_caps *caps;
    const char *op, *schedules[SCHEDULES];
    uint32_t n_schedule;
    shape only; /* zero: the case's own */
    bool tune, text;
    double copy; /* bytes a second */
    beryl_error error;
} bench;

static int fail(const char *what, const beryl_error *error) {
    fprintf(stderr, "ir_bench: %s: %s\n", what, error->message);
    return 1;
}

/* ---- kernels: x, w read, y written ----------------------------------------------------------- */

typedef struct plain {
    ir_builder *b;
    ir_memory x, w, y;
} plain;

static plain plain_begin(base_arena *arena, const char *name, ir_type in, ir_type out) {
    plain p = {.b = ir_begin(arena, name, 1, 1, 1)};
    p.x = ir_buffer(p.b, in, IR_READ, "x");
    p.w = ir_buffer(p.b, in, IR_READ, "w");
    p.y = ir_buffer(p.b, out, IR_READ_WRITE, "y");
    return p;
}

static ir_id loop(plain *p, uint32_t n, ir_mark_kind kind, uint32_t dim) {
    return ir_loop_marked(p->b, ir_u32(p->b, 0), ir_u32(p->b, n), ir_u32(p->b, 1), kind, dim);
}

static ir_id at(plain *p, ir_id row, uint32_t width, ir_id column) {
    return ir_add(p->b, ir_mul(p->b, row, ir_u32(p->b, width)), column);
}

/* y[m, n] = sum over k of x[m, k] * w[n, k] */
static beryl_status make_matmul(base_arena *arena, const shape *s, const ir_kernel **out,
                                beryl_error *error) {
    plain p = plain_begin(arena, "matmul", s->type, IR_F32);
    ir_builder *b = p.b;
    ir_memory sum = ir_register(b, IR_F32, 1);
    ir_id m = loop(&p, s->m, IR_PARALLEL, 0), n = loop(&p, s->n, IR_PARALLEL, 1);
    ir_set(b, sum, ir_f32(b, 0));
    ir_id k = loop(&p, s->k, IR_REDUCE, 2);
    ir_id x = ir_cast(b, IR_F32, ir_load(b, p.x, at(&p, m, s->k, k), 1));
    ir_id w = ir_cast(b, IR_F32, ir_load(b, p.w, at(&p, n, s->k, k), 1));
    ir_set(b, sum, ir_fma(b, x, w, ir_get(b, sum)));
    ir_end(b);
    ir_store(b, p.y, at(&p, m, s->n, n), ir_get(b, sum));
    ir_end(b), ir_end(b);
    return ir_finish(b, out, error);
}

static double expect_matmul(const shape *s, const float *x, const float *w, uint64_t i) {
    const uint64_t m = i / s->n, n = i % s->n;
    double sum = 0;
    for (uint32_t k = 0; k < s->k; k++) sum += (double)x[m * s->k + k] * (double)w[n * s->k + k];
    return sum;
}

/* y[m, n] = x[m, n] */
static beryl_status make_copy(base_arena *arena, const shape *s, const ir_kernel **out,
                              beryl_error *error) {
    plain p = plain_begin(arena, "copy", s->type, s->type);
    ir_id i = loop(&p, s->m * s->n, IR_PARALLEL, 0);
    ir_store(p.b, p.y, i, ir_load(p.b, p.x, i, 1));
    ir_end(p.b);
    return ir_finish(p.b, out, error);
}

static double expect_copy(const shape *s, const float *x, const float *w, uint64_t i) {
    (void)s, (void)w;
    return (double)x[i];
}

/* ---- the table ------------------------------------------------------------------------------- */

typedef struct kase {
    const char *name;
    shape shape, small; /* small: for processors */
    beryl_status (*make)(base_arena *arena, const shape *s, const ir_kernel **out,
                         beryl_error *error);
    double (*expect)(const shape *s, const float *x, const float *w, uint64_t i); /* y[i] */
    /* of |y - expected|, times sqrt(k): sums of k products of numbers below 1 in f32; matrix
     * units cut off, so that the errors of a sum do not average out */
    double tolerance;
    /* x [m, k], w [n, k], y [m, n]: counted in products; else x [m, n], w [n], y [m, n]: in
     * bytes */
    bool is_product;
    bool writes_type; /* y has the case's type, else f32 */
} kase;

static const kase cases[] = {
    {"copy",
     {16384, 16384, 1, IR_F32},
     {4096, 4096, 1, IR_F32},
     make_copy,
     expect_copy,
     0,
     false,
     true},
    {"matmul",
     {4096, 4096, 4096, IR_F32},
     {1024, 1024, 1024, IR_F32},
     make_matmul,
     expect_matmul,
     2e-6,
     true,
     false},
    {"matmul",
     {4096, 4096, 4096, IR_F16},
     {512, 512, 512, IR_F16},
     make_matmul,
     expect_matmul,
     1e-5,
     true,
     false},
    {"matmul",
     {4096, 4096, 4096, IR_BF16},
     {512, 512, 512, IR_BF16},
     make_matmul,
     expect_matmul,
     1e-5,
     true,
     false},
};
enum { N_CASE = sizeof cases / sizeof *cases };

/* ---- schedules as text ----------------------------------------------------------------------- */

static bool read_number(const char **at, uint32_t *value) {
    char *end;
    *value = (uint32_t)strtoul(*at, &end, 10);
    if (end == *at) return false;
    *at = end;
    return true;
}

/* "0:g2l2x16b8/1:g1l1x16b8/2:s16u4a/v4/f": dimensions with group, lane (1 + axis), lanes (x),
 * block, unroll, stage, wide, p (split) and a (ahead); for the whole v (vector), w (workgroup
 * bytes), h (subgroup, 0: none), f (fragments). */
static bool read_schedule(const char *text, const device_caps *caps, ir_schedule *s) {
    *s = (ir_schedule){.vector = 4,
                       .subgroup = caps->subgroups ? caps->subgroup_size : 0,
                       .workgroup_bytes = caps->workgroup_bytes};
    while (*text) {
        uint32_t value, d;
        if (*text == '/') text++;
        if (*text >= '0' && *text <= '9') {
            if (!read_number(&text, &d) || d >= IR_DIM_MAX || *text++ != ':') return false;
            while (*text && *text != '/') {
                ir_schedule_dim *dim = &s->dims[d];
                const char what = *text++;
                if (what == 'p') dim->split = true;
                else if (what == 'a') dim->ahead = true;
                else if (!read_number(&text, &value) || value > 4096) return false;
                else if (what == 'g') dim->group = (uint8_t)value;
                else if (what == 'l') dim->lane = (uint8_t)value;
                else if (what == 'x') dim->lanes = (uint16_t)value;
                else if (what == 'b') dim->block = (uint16_t)value;
                else if (what == 'u') dim->unroll = (uint16_t)value;
                else if (what == 's') dim->stage = (uint16_t)value;
                else if (what == 'w') dim->wide = (uint8_t)value;
                else return false;
            }
            continue;
        }
        const char what = *text++;
        if (what == 'f') s->fragments = true;
        else if (!read_number(&text, &value)) return false;
        else if (what == 'v') s->vector = value;
        else if (what == 'w') s->workgroup_bytes = value;
        else if (what == 'h') s->subgroup = value;
        else return false;
    }
    return true;
}

static void print_schedule(const ir_schedule *s, char *text, size_t size) {
    size_t n = 0;
    for (uint32_t d = 0; d < IR_DIM_MAX; d++) {
        const ir_schedule_dim *dim = &s->dims[d];
        const struct {
            char name;
            uint32_t value;
        } fields[] = {{'g', dim->group}, {'l', dim->lane},   {'x', dim->lanes}, {'b', dim->block},
                      {'s', dim->stage}, {'u', dim->unroll}, {'w', dim->wide}};
        bool any = false;
        for (uint32_t f = 0; f < 7 && n < size; f++) {
            if (!fields[f].value) continue;
            if (!any) n += (size_t)snprintf(text + n, size - n, "%s%u:", n ? "/" : "", d);
            any = true;
            if (n < size)
                n += (size_t)snprintf(text + n, size - n, "%c%u", fields[f].name, fields[f].value);
        }
        if (any && n < size)
            n += (size_t)snprintf(text + n, size - n, "%s%s", dim->split ? "p" : "",
                                  dim->ahead ? "a" : "");
    }
    if (n < size) snprintf(text + n, size - n, "/v%u%s", s->vector, s->fragments ? "/f" : "");
}

/* ---- running --------------------------------------------------------------------------------- */

typedef struct run {
    bench *b;
    const kase *kase;
    shape shape;
    uint64_t count[BUFFERS]; /* elements */
    ir_type types[BUFFERS];
    float *x, *w;          /* as the device has them, rounded to the type */
    void *packed[BUFFERS]; /* the same as bytes of the type */
    device_buffer buffers[BUFFERS];
    double rival; /* seconds of cuBLAS or OpenBLAS; 0: there is none */
    const char *rival_name;
} run;

static beryl_status submit(bench *b, const device_command *list, size_t n, device_ticket *ticket) {
    beryl_status status;
    device_ticket done;
    const uint32_t none[64] = {0};
    while ((status = device_submit(b->d, &(device_submit_desc){list, n, none, sizeof none}, ticket,
                                   &b->error)) == BERYL_PENDING)
        if (device_poll(b->d, &done, &b->error)) break;
    if (!status) status = device_wait(b->d, *ticket, &b->error);
    return status;
}

/* Seconds of one of n commands, without the first. */
static beryl_status time_commands(bench *b, device_command command, uint32_t n, double *seconds) {
    device_command list[64];
    uint32_t length = 0;
    if (n > 60) n = 60;
    list[length++] = command;
    list[length++] = (device_command){.kind = DEVICE_STAMP};
    for (uint32_t i = 0; i < n; i++) list[length++] = command;
    list[length++] = (device_command){.kind = DEVICE_STAMP};
    device_ticket ticket;
    uint64_t ns[2] = {0};
    uint32_t n_stamp = 2;
    beryl_status status = submit(b, list, length, &ticket);
    if (!b->caps->timestamps && !status) { /* the clock of this side, with the way there and back */
        device_fetch_drop(b->d, ticket);
        const double begin = base_time();
        status = submit(b, &command, 1, &ticket);
        *seconds = base_time() - begin;
    } else if (!status) {
        status = device_stamps(b->d, ticket, ns, &n_stamp, &b->error);
        *seconds = (double)ns[1] * 1e-9 / n;
    }
    device_fetch_drop(b->d, ticket);
    return status;
}

static beryl_status time_best(bench *b, device_command command, double *best) {
    double first, seconds;
    beryl_status status = time_commands(b, command, 1, &first);
    const double begin = base_time();
    while (!status && base_time() - begin < WARM_SECONDS)
        status = time_commands(b, command, 1, &first);
    *best = first;
    const uint32_t n = first > 0.01 ? 1 : first > 0.001 ? 5 : 20;
    for (uint32_t r = 0; r < ROUNDS && !status; r++) {
        status = time_commands(b, command, n, &seconds);
        if (seconds < *best) *best = seconds;
    }
    return status;
}

/* Random numbers in [-1, 1) as the type has them, in memory of this side and of the device. */
static beryl_status upload(run *r, uint32_t i, float **kept) {
    bench *b = r->b;
    const ir_type type = r->types[i];
    const uint32_t bytes = ir_type_bytes(type);
    base_random random = {i + 1};
    *kept = malloc(r->count[i] * sizeof **kept);
    unsigned char *packed = r->packed[i] = malloc(r->count[i] * bytes);
    if (!*kept || !packed) return base_fail(&b->error, BERYL_NO_MEMORY, "out of memory");
    uint32_t pool[4096];
    for (uint32_t n = 0; n < 4096; n++) {
        pool[n] = (uint32_t)ir_from_double(type, base_random_unit(&random) * 2 - 1);
    }
    for (uint64_t n = 0; n < r->count[i]; n++) {
        const uint32_t drawn = pool[base_random_next(&random) >> 52];
        memcpy(packed + n * bytes, &drawn, bytes); /* little-endian */
        (*kept)[n] = (float)ir_to_double(type, drawn);
    }
    beryl_status status = BERYL_OK;
    for (uint64_t done = 0, all = r->count[i] * bytes; done < all && !status; done += 1 << 24)
        status = device_write(b->d, r->buffers[i], done, packed + done,
                              all - done < 1 << 24 ? (size_t)(all - done) : 1 << 24, &b->error);
    return status;
}

static beryl_status check(run *r) {
    bench *b = r->b;
    device_command list[] = {{.kind = DEVICE_FETCH}};
    device_ticket ticket;
    const void *data;
    size_t size;
    double worst = 0;
    uint64_t where = 0;
    list[0].fetch.buffer = r->buffers[2];
    list[0].fetch.size = r->count[2] * ir_type_bytes(r->types[2]);
    beryl_status status = submit(b, list, 1, &ticket);
    if (!status) status = device_fetched(b->d, ticket, 0, &data, &size, &b->error);
    base_random random = {77};
    for (uint32_t s = 0; s < SAMPLES && !status; s++) {
        const uint64_t i = s < 8 ? r->count[2] - 1 - s : base_random_next(&random) % r->count[2];
        uint64_t bits = 0;
        memcpy(&bits, (const char *)data + i * ir_type_bytes(r->types[2]),
               ir_type_bytes(r->types[2]));
        const double off =
            fabs(ir_to_double(r->types[2], bits) - r->kase->expect(&r->shape, r->x, r->w, i));
        if (!(off <= worst)) worst = off, where = i;
    }
    device_fetch_drop(b->d, ticket);
    if (!status && !(worst <= r->kase->tolerance * sqrt((double)r->shape.k))) {
        snprintf(b->error.message, sizeof b->error.message, "wrong: element %llu is off by %g",
                 (unsigned long long)where, worst);
        status = BERYL_DEVICE;
    }
    return status;
}

static beryl_status time_kernel(void *user, const ir_kernel *k, const ir_schedule *schedule,
                                double *seconds, beryl_error *error) {
    run *r = user;
    bench *b = r->b;
    base_arena arena;
    device_program_desc desc;
    device_program program = {0};
    device_bindings bindings = {0};
    (void)schedule;
    base_arena_init(&arena, &b->heap);
    uint32_t language = 0;
    while (!(b->caps->languages & DEVICE_LANGUAGE_BIT(language))) language++;
    beryl_status status =
        codegen_make(&arena, k, (device_language)language, b->caps, &desc, &b->error);
    desc.trusted = true;
    if (!status && b->text) printf("%.*s\n", (int)desc.source_size, desc.source);
    if (!status && b->text) status = BERYL_CANCELLED;
    if (!status) status = device_program_make(b->d, &desc, &program, &b->error);
    while (!status && (status = device_program_status(b->d, program, &b->error)) == BERYL_PENDING)
        base_sleep(2e-4), status = BERYL_OK;
    while (!status && device_program_status(b->d, program, &b->error) == BERYL_PENDING)
        base_sleep(2e-4);
    device_binding ranges[BUFFERS];
    for (uint32_t i = 0; i < BUFFERS; i++) ranges[i] = (device_binding){.buffer = r->buffers[i]};
    if (!status)
        status = device_bindings_make(b->d, program, ranges, BUFFERS, &bindings, &b->error);
    device_command command = {.kind = DEVICE_DISPATCH};
    command.dispatch.program = program;
    command.dispatch.bindings = bindings;
    ir_grid grid;
    ir_grid_of(k, &grid);
    ir_grid_run(&grid, NULL, b->caps->groups_max, command.dispatch.groups);
    device_command zero = {.kind = DEVICE_FILL};
    zero.fill.buffer = r->buffers[2];
    zero.fill.size = r->count[2] * ir_type_bytes(r->types[2]);
    device_ticket ticket;
    if (!status) status = submit(b, (device_command[]){zero, command}, 2, &ticket);
    if (!status) device_fetch_drop(b->d, ticket);
    if (!status) status = check(r);
    if (!status) status = time_best(b, command, seconds);
    if (bindings.id) device_bindings_drop(b->d, bindings);
    if (program.id) device_program_drop(b->d, program);
    base_arena_fini(&arena);
    if (status && error) *error = b->error;
    return status;
}

static void report(run *r, const char *how, double seconds) {
    const shape *s = &r->shape;
    const kase *c = r->kase;
    double bytes = 0;
    for (uint32_t i = 0; i < BUFFERS; i++)
        if (i != 1 || c->is_product || r->count[1] > 1)
            bytes += (double)r->count[i] * ir_type_bytes(r->types[i]);
    printf("%-10s %-4s %5u %5u %5u  %-52s %10.1f us", c->name, ir_type_name(s->type), s->m, s->n,
           s->k, how, seconds * 1e6);
    if (c->is_product) printf(" %9.3f TFLOP/s", 2e-12 * s->m * s->n * s->k / seconds);
    else printf(" %9.1f GB/s   ", bytes / seconds * 1e-9);
    if (r->rival > 0) printf("  %5.1f %% of %s", r->rival / seconds * 100, r->rival_name);
    else if (!c->is_product && r->b->copy > 0)
        printf("  %5.1f %% of copy", bytes / seconds / r->b->copy * 100);
    printf("\n");
    fflush(stdout);
}

static void one(run *r, const ir_kernel *plain_kernel, const ir_schedule *s, const char *name) {
    bench *b = r->b;
    base_arena arena;
    const ir_kernel *k;
    char how[256], shown[288];
    double seconds = 0;
    base_arena_init(&arena, &b->heap);
    print_schedule(s, how, sizeof how);
    snprintf(shown, sizeof shown, "%s%s", name, how);
    beryl_status status = ir_optimise(&arena, plain_kernel, s, &k, &b->error);
    if (!status && s->fragments && !k->n_fragment)
        printf("%-10s %s: no fragments fit\n", r->kase->name, shown);
    else if (!status) status = time_kernel(r, k, s, &seconds, NULL);
    if (status && status != BERYL_CANCELLED)
        printf("%-10s %s: %s\n", r->kase->name, shown, b->error.message);
    else if (seconds > 0) {
        const double copied = 2 * (double)r->count[0] * ir_type_bytes(r->types[0]) / seconds;
        report(r, shown, seconds);
        /* some drivers copy slowly */
        if (!strcmp(r->kase->name, "copy") && copied > b->copy) b->copy = copied;
    }
    fflush(stdout);
    base_arena_fini(&arena);
}

/* What the machine's own library takes. */
static void measure_rival(run *r) {
    const shape *s = &r->shape;
    char why[160] = "";
    double seconds = 0;
    if (!r->kase->is_product || r->b->text) return;
    if (r->b->caps->kind == DEVICE_DISCRETE) {
        seconds =
            rival_cublas(s->type, s->m, s->n, s->k, r->packed[0], r->packed[1], why, sizeof why);
        r->rival_name = "cuBLAS";
    } else if (r->b->caps->kind == DEVICE_HOST && s->type == IR_F32) {
        seconds = rival_openblas(s->m, s->n, s->k, r->x, r->w, why, sizeof why);
        r->rival_name = "OpenBLAS";
    }
    if (seconds > 0) {
        r->rival = seconds;
        report(r, r->rival_name, seconds);
    } else if (why[0]) printf("%-10s no %s: %s\n", r->kase->name, r->rival_name, why);
}

static beryl_status run_schedules(run *r, const ir_kernel *k) {
    bench *b = r->b;
    ir_schedule s;
    for (uint32_t i = 0; i < b->n_schedule; i++)
        if (read_schedule(b->schedules[i], b->caps, &s)) one(r, k, &s, "");
        else printf("not a schedule: %s\n", b->schedules[i]);
    if (!b->n_schedule) {
        ir_schedule_default(k, b->caps, NULL, &s);
        one(r, k, &s, "rule: ");
    }
    if (!b->tune) return BERYL_OK;
    base_arena arena;
    base_arena_init(&arena, &b->heap);
    const bool nvidia = !strcmp(b->caps->backend, "cuda");
    ir_tuning t = {.plain = k,
                   .caps = b->caps,
                   .time = time_kernel,
                   .user = r,
                   .fragments = nvidia && r->shape.type != IR_F32};
    const double begin = base_time();
    beryl_status status = ir_tune(&arena, &t, &s, &b->error);
    printf("%-10s tuned in %.1f s\n", r->kase->name, base_time() - begin);
    if (!status) one(r, k, &s, "tuned: ");
    base_arena_fini(&arena);
    return status;
}

static beryl_status run_case(bench *b, const kase *c) {
    run r = {.b = b, .kase = c, .shape = device_is_processor(b->caps) ? c->small : c->shape};
    if (b->only.m) r.shape = (shape){b->only.m, b->only.n, b->only.k, r.shape.type};
    const shape *s = &r.shape;
    r.count[0] = (uint64_t)s->m * (c->is_product ? s->k : s->n);
    r.count[1] = c->is_product ? (uint64_t)s->n * s->k : s->n;
    r.count[2] = (uint64_t)s->m * s->n;
    r.types[0] = r.types[1] = s->type;
    r.types[2] = c->writes_type ? s->type : IR_F32;
    base_arena arena;
    base_arena_init(&arena, &b->heap);
    const ir_kernel *k = NULL;
    beryl_status status = c->make(&arena, s, &k, &b->error);
    for (uint32_t i = 0; i < BUFFERS && !status; i++)
        status = device_buffer_make(b->d, r.count[i] * ir_type_bytes(r.types[i]), "bench",
                                    &r.buffers[i], &b->error);
    if (!status) status = upload(&r, 0, &r.x);
    if (!status) status = upload(&r, 1, &r.w);
    if (!status) measure_rival(&r);
    if (!status && !strcmp(c->name, "copy") && !b->text) {
        device_command copy = {.kind = DEVICE_COPY};
        double seconds;
        copy.copy.from = r.buffers[0], copy.copy.to = r.buffers[2],
        copy.copy.size = r.count[0] * ir_type_bytes(s->type);
        status = time_best(b, copy, &seconds);
        if (!status) b->copy = 2 * (double)copy.copy.size / seconds;
        if (!status) report(&r, "the device's copy", seconds);
    }
    if (!status) status = run_schedules(&r, k);
    for (uint32_t i = 0; i < BUFFERS; i++)
        if (r.buffers[i].id) device_buffer_drop(b->d, r.buffers[i]);
    free(r.x), free(r.w), free(r.packed[0]), free(r.packed[1]);
    base_arena_fini(&arena);
    return status;
}

static bool read_arguments(bench *b, int argc, char **argv, const char **choice) {
    for (int i = 1; i < argc; i++) {
        const char *word = argv[i], *value = i + 1 < argc ? argv[i + 1] : NULL;
        if (!strcmp(word, "--text")) b->text = true;
        else if (!strcmp(word, "--tune")) b->tune = true;
        else if (!value) return false;
        else if (!strcmp(word, "--device")) *choice = value, i++;
        else if (!strcmp(word, "--op")) b->op = value, i++;
        else if (!strcmp(word, "--schedule") && b->n_schedule < SCHEDULES)
            b->schedules[b->n_schedule++] = value, i++;
        else if (!strcmp(word, "--size") &&
                 sscanf(value, "%u,%u,%u", &b->only.m, &b->only.n, &b->only.k) == 3)
            i++;
        else if (!strcmp(word, "--type")) {
            for (uint32_t t = 0; t < IR_TYPE_COUNT; t++)
                if (!strcmp(value, ir_type_name((ir_type)t))) b->only.type = (ir_type)t;
            if (b->only.type == IR_NONE) return false;
            i++;
        } else return false;
    }
    return true;
}

int main(int argc, char **argv) {
    bench b = {0};
    const char *choice = NULL;
    base_heap_init(&b.heap, NULL);
    b.only.type = IR_NONE;
    if (!read_arguments(&b, argc, argv, &choice)) {
        fprintf(stderr, "ir_bench [--device D] [--op NAME] [--type T] [--size M,N,K] [--schedule "
                        "S]... [--tune] [--text]\n");
        return 2;
    }
    if (device_open(&b.heap, NULL, choice, &b.d, &b.error)) return fail("open", &b.error);
    b.caps = device_caps_of(b.d);
    device_cache_forgo(b.d);
    if (!b.text)
        printf("%s:%u %s, %s\n", b.caps->backend, b.caps->index, b.caps->name, b.caps->driver);
    for (uint32_t i = 0; i < N_CASE; i++) {
        if (b.op && strcmp(b.op, cases[i].name)) continue;
        if (b.only.type != IR_NONE && b.only.type != cases[i].shape.type) continue;
        if (run_case(&b, &cases[i]))
            printf("%-10s %s: %s\n", cases[i].name, ir_type_name(cases[i].shape.type),
                   b.error.message);
    }
    device_close(b.d);
    return 0;
}
