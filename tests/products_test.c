/* products_test.c - products with weights of every type, with experts, and rows by
 * index, on every device there is, against the reference functions. One graph has all three, or
 * the rows alone; it runs with as many vectors as it was made for, then with fewer. */
#define _POSIX_C_SOURCE 200809L
#include "blocks.h"
#include "forms.h"
#include "interpreter.h"
#include "rig.h"

#include "plan/exec.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

typedef struct problem {
    const char *name;
    /* k: blocks of the type (plain: of 32) and rest more elements of plain types */
    uint32_t rows, blocks, rest;
    uint32_t n, fewer; /* vectors */
    /* bytes of the largest binding while weights are placed, 0: the device's */
    uint32_t limit;
} problem;

static const problem problems[] = {
    {"one", 11, 2, 0, 1, 1, 0},       {"few", 6, 1, 0, 5, 2, 0},
    {"odd", 7, 1, 7, 3, 1, 0},        {"pieces", 200, 1, 0, 2, 1, 12000},
    {"many", 37, 2, 0, 45, 18, 0}, /* tiles, on what passes for a GPU */
    {"many-odd", 70, 1, 7, 66, 1, 0}, {"many-pieces", 200, 1, 0, 33, 17, 12000},
};

enum { EXPERTS = 3, USED = 2, TAKEN = 9, GATHERED = 0, HALVES = 3, OUTS };

/* From RARE on: types that are read by rules of their own, never as tiles of bytes. */
static const base_type weight_types[] = {
    TYPE_F32,   TYPE_F16,     TYPE_BF16,    TYPE_Q4_0,    TYPE_Q4_1,    TYPE_Q5_0,
    TYPE_Q5_1,  TYPE_Q8_0,    TYPE_Q2_K,    TYPE_Q3_K,    TYPE_Q4_K,    TYPE_Q5_K,
    TYPE_Q6_K,  TYPE_IQ4_NL,  TYPE_IQ4_XS,  TYPE_MXFP4,   TYPE_NVFP4,   TYPE_IQ1_S,
    TYPE_IQ1_M, TYPE_IQ2_XXS, TYPE_IQ2_XS,  TYPE_IQ2_S,   TYPE_IQ3_XXS, TYPE_IQ3_S,
    TYPE_TQ1_0, TYPE_TQ2_0,   TYPE_F8_E4M3, TYPE_F8_E5M2, TYPE_AFFINE8, TYPE_AFFINE4};
enum { RARE = 17 };

static beryl_status source_read(void *user, uint64_t offset, void *to, size_t size) {
    memcpy(to, (const char *)user + offset, size);
    return BERYL_OK;
}

/* ---- both sides ------------------------------------------------------------------------------ */

/* f32 sums, matrix units, 8-bit dot products (with a tree at their end) of vectors that are round
 * or, on processors, nearly; the rows by index alone */
typedef enum way { EXACT, UNITS, DOTS, DOTS_ENDED, ROUNDED, ROWS } way;

typedef struct side {
    graph *g;
    graph_store store;
    graph_exec *exec;
    graph_value x, ids, experts, out[OUTS];
    uint32_t n_out;
    bool open;
} side;

static uint32_t row_of(const problem *p, base_type type) {
    const bool plain = !base_type_is_quantised(type);
    return p->blocks * (plain ? 32 : base_type_block(type)) + (plain ? p->rest : 0);
}

static beryl_status side_open(side *s, base_heap *heap, device *d, const problem *p, base_type type,
                              way how, const beryl_source *source, beryl_error *error) {
    const uint32_t k = row_of(p, type), dim[3] = {EXPERTS, p->rows, k};
    beryl_status status = store_init(&s->store, heap, d, source, 1, error);
    s->open = status == BERYL_OK;
    if (status != BERYL_OK) return status;
    const uint32_t w = store_add_weight(&s->store, "w", type, 2, dim + 1, 0, 0, 0, false);
    const uint32_t e = store_add_weight(&s->store, "e", type, 3, dim, 0, 0, 0, false);
    const uint64_t most = d ? d->caps.binding_max : 0;
    if (d && p->limit) d->caps.binding_max = p->limit;
    status = store_layout(&s->store, 0, error);
    if (d) d->caps.binding_max = most;
    if (status == BERYL_OK) status = store_make(&s->store, error);
    while (status == BERYL_OK && (status = store_upload_step(&s->store, error)) != BERYL_OK)
        if (status == BERYL_EVENT || status == BERYL_PENDING) status = BERYL_OK;
    graph *g = s->g = graph_open(heap);
    const graph_dim n = {p->n, graph_extent_add(g, "n", p->n)};
    s->x = graph_input(g, "x", TYPE_F32, 2, (graph_dim[]){n, {k, 0}});
    s->ids = graph_input(g, "ids", TYPE_I32, 1, (graph_dim[]){{TAKEN, 0}});
    s->experts = graph_input(g, "experts", TYPE_I32, 2, (graph_dim[]){n, {USED, 0}});
    graph_value weight = graph_stored(g, &s->store, w),
                x = graph_reshape(g, s->x, 3, (graph_dim[]){n, {1, 0}, {k, 0}});
    s->out[s->n_out++] = graph_gather_rows(g, weight, s->ids, 1.5f);
    if (how != ROWS) {
        s->out[s->n_out++] = graph_linear(g, s->x, weight);
        s->out[s->n_out++] = graph_linear_id(g, x, graph_stored(g, &s->store, e), s->experts);
    }
    for (uint32_t i = 1; how == DOTS_ENDED && i < s->n_out; i++)
        s->out[i] = graph_softcap(g, graph_scale(g, s->out[i], 0.5f), 30);
    if (p->rest) { /* as F16 or BF16, which only the cast reads */
        const base_type half = how == ROWS ? TYPE_BF16 : TYPE_F16;
        const graph_value rows = graph_gather_rows(g, weight, s->ids, 0.5f);
        s->out[s->n_out++] = graph_cast(g, graph_cast(g, rows, half, false), TYPE_F32, false);
    }
    for (uint32_t i = 0; i < s->n_out; i++) graph_output(g, s->out[i], "out");
    if (status == BERYL_OK)
        status = graph_exec_open(g, &s->store,
                                 &(graph_exec_options){.exact = !d || how == EXACT || how == ROWS,
                                                       .draws = interpreter_drawn(d)},
                                 &s->exec, error);
    return status == BERYL_OK ? rig_exec_compiled(s->exec, error) : status;
}

static void side_close(side *s) {
    graph_exec_close(s->exec);
    graph_close(s->g);
    if (s->open) store_fini(&s->store);
}

/* What rounding to int8 in blocks of 32 keeps as it is. */
static void make_round(float *x, uint32_t n) {
    for (uint32_t i = 0; i < n; i++) x[i] = i % 32 ? rintf(x[i] * 127) / 127 : 1;
}

static beryl_status side_run(side *s, const problem *p, uint32_t k, uint32_t n, way how,
                             const float **data, beryl_error *error) {
    uint32_t seed = n;
    float *x = graph_exec_input(s->exec, s->x);
    int32_t *ids = graph_exec_input(s->exec, s->ids),
            *experts = graph_exec_input(s->exec, s->experts);
    for (uint32_t i = 0; x && i < p->n * k; i++) x[i] = blocks_unit(&seed);
    if (how >= DOTS && how != ROWS) make_round(x, p->n * k);
    /* outside too */
    for (uint32_t i = 0; i < TAKEN; i++) ids[i] = (int32_t)(blocks_next(&seed) % (p->rows + 2)) - 1;
    /* fewer: one for all */
    for (uint32_t i = 0; experts && i < p->n * USED; i++)
        experts[i] = n < p->n ? 1 : (int32_t)(blocks_next(&seed) % (EXPERTS + 1));
    device_ticket ticket;
    beryl_status status =
        graph_exec_submit(s->exec, (uint32_t[]){0, n}, s->out, s->n_out, &ticket, error);
    if (status == BERYL_OK && s->store.device) status = device_wait(s->store.device, ticket, error);
    for (uint32_t i = 0; status == BERYL_OK && i < s->n_out; i++)
        status = graph_exec_fetched(s->exec, ticket, i, (const void **)(uintptr_t)&data[i], error);
    return status;
}

/* tolerance 0: equal bits */
static void compare(test *t, const char *what, const float *got, const float *want, uint32_t n,
                    double tolerance) {
    double difference = 0, size = 1e-30;
    for (uint32_t i = 0; i < n; i++) {
        difference += ((double)got[i] - want[i]) * ((double)got[i] - want[i]);
        size += (double)want[i] * want[i];
    }
    const bool equal = tolerance > 0 ? difference <= tolerance * tolerance * size
                                     : !memcmp(got, want, n * sizeof *got);
    if (!equal)
        test_fail(t, __FILE__, __LINE__, "%s is off by %g of its size", what,
                  sqrt(difference / size));
}

static void run(test *t, base_heap *heap, device *d, const problem *p, base_type type, way how) {
    static const char *const names[OUTS] = {"gather_rows", "linear", "linear_id", "halves"};
    /* f32 sums in another order; both factors rounded to 11 bits, half a unit at most: 2^-12
     * each on the whole; the vectors for dot products are rounded without loss; those of ROUNDED
     * to 8 bits of their largest, whose error is sqrt(3) / 127 / sqrt(12) of their size, and
     * minima and zeros make sums smaller than it */
    const double tolerance = how == ROUNDED ? 1e-2 : how == UNITS ? 4e-4 : 4e-6;
    const uint32_t k = row_of(p, type);
    const uint64_t bytes = base_type_row_bytes(type, k) * p->rows * EXPERTS;
    unsigned char *file = malloc(bytes);
    blocks_fill(type, bytes, file, 7);
    const beryl_source source = {.size = bytes, .user = file, .read = source_read};
    side a = {0}, b = {0};
    beryl_error error = {0};
    beryl_status status = side_open(&a, heap, NULL, p, type, how, &source, &error);
    if (status == BERYL_OK) status = side_open(&b, heap, d, p, type, how, &source, &error);
    for (uint32_t turn = 0; status == BERYL_OK && turn < 2; turn++) {
        const uint32_t n = turn ? p->fewer : p->n,
                       counts[OUTS] = {TAKEN * k, n * p->rows, n * USED * p->rows, TAKEN * k};
        const float *want[OUTS], *got[OUTS];
        status = side_run(&a, p, k, n, how, want, &error);
        if (status == BERYL_OK) status = side_run(&b, p, k, n, how, got, &error);
        for (uint32_t i = 0; status == BERYL_OK && i < a.n_out; i++) {
            const uint32_t what = p->rest && i + 1 == a.n_out ? HALVES : i;
            compare(t, names[what], got[i], want[i], counts[what],
                    what == GATHERED || what == HALVES ? 0 : tolerance);
        }
    }
    if (status != BERYL_OK) test_fail(t, __FILE__, __LINE__, "%s", error.message);
    side_close(&a);
    side_close(&b);
    free(file);
}

/* What CUDA does with halves, as the interpreter sees it: fragments of 32 lanes, copies, weights
 * unpacked before; then by chance. */
static void check_units(test *t) {
    static const test_form drawn = {.drawn = true};
    static const problem some[] = {{"tiles", 37, 2, 0, 45, 18, 0},
                                   {"unpacked", 40, 1, 0, 194, 33, 0},
                                   {"unpacked-odd", 23, 1, 7, 194, 1, 0}};
    static const base_type types[] = {TYPE_F16, TYPE_BF16, TYPE_Q8_0, TYPE_Q4_K, TYPE_Q6_K};
    for (size_t i = 0; i < sizeof some / sizeof *some; i++)
        for (size_t k = 0; k < sizeof types / sizeof *types; k++) {
            if ((some[i].rest || (i == 0)) && types[k] > TYPE_BF16 && types[k] != TYPE_Q4_K)
                continue;
            if (some[i].rest && base_type_is_quantised(types[k])) continue;
            if (!test_case(t, "products/units/%s-%s", some[i].name, base_type_name(types[k])))
                continue;
            base_heap heap;
            base_heap_init(&heap, NULL);
            device *d = interpreter_units_open(&heap);
            if (!d) {
                test_fail(t, __FILE__, __LINE__, "no memory");
                continue;
            }
            run(t, &heap, d, &some[i], types[k], UNITS);
            for (uint64_t round = 0; i == 0 && test_form_round(t, &drawn, d, &round);)
                run(t, &heap, d, &some[i], types[k], UNITS);
            device_close(d);
            CHECK_INT(t, heap.bytes, 0);
        }
}

enum { LOW = 16, LOW_FROM = 40 };

/* The graph: as `narrowed` says; on a device whose units multiply from workgroup memory; without
 * units, by dot products of vectors that are round. */
enum { ADDS = 1, PLAIN = 2, PAIR = 4, DIRECT = 8, BYTES = 16 };

typedef struct halves_case {
    const char *name;
    base_type type;       /* of w [ROWS_OF_W, k]; a [3 LOW, k] is Q8_0, b [ROWS_OF_W, LOW] F16 */
    uint32_t k, n, fewer; /* vectors */
    uint32_t how;
    const char *plan[3]; /* is said there */
} halves_case;

enum { ROWS_OF_W = 96 };

/* h = rms(x); plain: x, which is rounded once. Products read h, what stands at the end of the
 * first, and columns of z, which are stored as halves: (silu(h w) * factors) w + h w + z[:16] b +
 * z[40:56] b, z = h w * factors; adds: silu(h w + z[:16] b) + (h w + z[32:48] b), z = h a *
 * factors, of which b's products are terms of w's; pair: geglu of those. */
static graph_value narrowed(side *s, const halves_case *of) {
    graph *g = s->g = graph_open(s->store.heap);
    const graph_dim n = {of->n, graph_extent_add(g, "n", of->n)};
    s->x = graph_input(g, "x", TYPE_F32, 2, (graph_dim[]){n, {of->k, 0}});
    s->ids = graph_input(g, "factors", TYPE_F32, 2, (graph_dim[]){n, {1, 0}});
    const graph_value w = graph_stored(g, &s->store, 0), b = graph_stored(g, &s->store, 1),
                      h = (of->how & PLAIN) ? s->x : graph_rms_norm(g, s->x, 0, 1e-6f),
                      by = (of->how & ADDS) ? graph_stored(g, &s->store, 2) : w,
                      z = graph_mul(g, graph_linear(g, h, by), s->ids);
    const uint32_t from = (of->how & ADDS) ? 2 * LOW : LOW_FROM;
    graph_value low[2], y;
    for (uint32_t i = 0; i < 2; i++)
        low[i] = graph_linear(g, graph_narrow(g, z, 1, i * from, LOW, 1), b);
    if (of->how & ADDS) {
        const graph_value sum[] = {graph_add(g, graph_linear(g, h, w), low[0]),
                                   graph_add(g, low[1], graph_linear(g, h, w))};
        y = (of->how & PAIR) ? graph_geglu(g, sum[0], sum[1])
                             : graph_add(g, graph_silu(g, sum[0]), sum[1]);
    } else {
        y = graph_mul(g, graph_silu(g, graph_linear(g, h, w)), s->ids);
        y = graph_add(g, graph_linear(g, y, w), graph_linear(g, h, w));
        y = graph_add(g, graph_add(g, y, low[0]), low[1]);
    }
    graph_output(g, y, "out");
    return y;
}

static void add_weights(side *s, const halves_case *of, const uint32_t at[3]) {
    store_add_weight(&s->store, "w", of->type, 2, (uint32_t[]){ROWS_OF_W, of->k}, 0, 0, at[0],
                     false);
    store_add_weight(&s->store, "b", TYPE_F16, 2, (uint32_t[]){ROWS_OF_W, LOW}, 0, 0, at[1], false);
    store_add_weight(&s->store, "a", TYPE_Q8_0, 2, (uint32_t[]){3 * LOW, of->k}, 0, 0, at[2],
                     false);
}

static void check_halves(test *t, const halves_case *of) {
    enum { K_MAX = 2080, FILE_SIZE = (2 * ROWS_OF_W + 3 * LOW) * K_MAX * 2 };
    static unsigned char file[FILE_SIZE];
    static float x[256 * K_MAX];
    if (!test_case(t, "products/units/%s", of->name)) return;
    const uint32_t w = (uint32_t)base_type_row_bytes(of->type, of->k) * ROWS_OF_W,
                   at[] = {0, w, w + ROWS_OF_W * LOW * 2},
                   a = (uint32_t)base_type_row_bytes(TYPE_Q8_0, of->k) * 3 * LOW;
    blocks_fill(of->type, w, file, 7);
    blocks_fill(TYPE_F16, at[2] - w, file + w, 7);
    blocks_fill(TYPE_Q8_0, a, file + at[2], 7);
    const beryl_source source = {.size = sizeof file, .user = file, .read = source_read};
    base_heap heap;
    beryl_error error = {0};
    side sides[3] = {{0}};
    const int n_side = (of->how & BYTES) ? 2 : 3;
    graph_value out[3];
    const float *got[3] = {NULL};
    base_text plan;
    base_heap_init(&heap, NULL);
    base_text_init(&plan, &heap);
    device *d = interpreter_units_open(&heap);
    beryl_status status = d ? BERYL_OK : BERYL_NO_MEMORY;
    if (d && (of->how & DIRECT)) {
        d->caps.multiplies_memory = true;
        d->caps.workgroup_bytes = 227 << 10;
        d->caps.compute_units = 1; /* large tiles */
    }
    if (d && (of->how & BYTES)) {
        d->caps.dot_i8 = true;
        d->caps.fragments = 0;
        d->caps.compute_units = 64;
    }
    for (int i = 0; i < n_side && status == BERYL_OK; i++) {
        side *s = &sides[i];
        status = store_init(&s->store, &heap, i == 1 ? d : NULL, &source, 1, &error);
        s->open = status == BERYL_OK;
        if (s->open) add_weights(s, of, at);
        if (status == BERYL_OK) status = store_layout(&s->store, 0, &error);
        if (status == BERYL_OK) status = store_make(&s->store, &error);
        while (status == BERYL_OK && (status = store_upload_step(&s->store, &error)) != BERYL_OK)
            if (status == BERYL_EVENT || status == BERYL_PENDING) status = BERYL_OK;
        if (status == BERYL_OK) out[i] = narrowed(s, of);
        /* as a trial's reference has it */
        for (size_t n = 0; status == BERYL_OK && i == 2 && n < s->g->nodes.count; n++) {
            const graph_value in = s->g->nodes.data[n].in[0];
            graph_tensor *both[] = {&s->g->tensors.data[in],
                                    &s->g->tensors.data[graph_base_of(s->g, in)]};
            for (int k = 0; s->g->nodes.data[n].op == OP_LINEAR && in != s->x && k < 2; k++)
                both[k]->type = TYPE_F16, both[k]->narrow = true;
        }
        const graph_exec_options options = {.exact = i != 1};
        if (status == BERYL_OK)
            status = graph_exec_open(s->g, &s->store, &options, &s->exec, &error);
        if (status == BERYL_OK) status = rig_exec_compiled(s->exec, &error);
    }
    for (uint32_t n = of->n; status == BERYL_OK && n; n = n == of->n ? of->fewer : 0) {
        uint32_t seed = n;
        for (uint32_t k = 0; k < of->n * of->k; k++) x[k] = blocks_unit(&seed);
        if (of->how & BYTES) make_round(x, of->n * of->k);
        for (int i = 0; i < n_side && status == BERYL_OK; i++) {
            float *factors = graph_exec_input(sides[i].exec, sides[i].ids);
            memcpy(graph_exec_input(sides[i].exec, sides[i].x), x, sizeof *x * of->n * of->k);
            for (uint32_t k = 0; k < of->n; k++) factors[k] = k ? 1 : 1e9f;
            device_ticket ticket;
            status =
                graph_exec_submit(sides[i].exec, (uint32_t[]){0, n}, &out[i], 1, &ticket, &error);
            if (status == BERYL_OK && i == 1) status = device_wait(d, ticket, &error);
            if (status == BERYL_OK)
                status = graph_exec_fetched(sides[i].exec, ticket, 0,
                                            (const void **)(uintptr_t)&got[i], &error);
        }
        if (status != BERYL_OK) break;
        /* each of two products in a row rounds both factors; bytes: as in run() */
        const uint32_t rest = (n - 1) * ROWS_OF_W;
        compare(t, "the sum", got[1] + ROWS_OF_W, got[0] + ROWS_OF_W, rest,
                (of->how & BYTES) ? 4e-6 : 8e-4);
        if (!(of->how & BYTES))
            compare(t, "the reference of halves", got[2] + ROWS_OF_W, got[1] + ROWS_OF_W, rest,
                    8e-4);
        for (uint32_t i = 0; i < ROWS_OF_W; i++) CHECK(t, isfinite(got[1][i]));
    }
    if (status == BERYL_OK) {
        CHECK(t, graph_exec_explain_plan(sides[1].exec, NULL, &plan));
        base_text_add(&plan, "", 1);
        const char *rounds = strstr(plan.data, "linear_halves");
        CHECK_INT(t, rounds != NULL, (of->how & PLAIN) && !(of->how & BYTES));
        CHECK(t, !rounds || !strstr(rounds + 1, "linear_halves"));
        for (size_t i = 0; i < sizeof of->plan / sizeof *of->plan && of->plan[i]; i++)
            if (!strstr(plan.data, of->plan[i]))
                test_fail(t, __FILE__, __LINE__, "no %s in the plan", of->plan[i]);
    } else {
        test_fail(t, __FILE__, __LINE__, "%s", error.message);
    }
    for (int i = 0; i < 3; i++) side_close(&sides[i]);
    base_text_fini(&plan);
    device_close(d);
    CHECK_INT(t, heap.bytes, 0);
}

static void check_narrow(test *t) {
    static const halves_case cases[] = {
        {"stored-as-halves", TYPE_F16, 96, 45, 21, 0, {"linear_tiled"}},
        /* k is no multiple of a tile's depth: a tile has terms of both */
        {"low-rank", TYPE_F16, 1568, 45, 21, ADDS, {"linear_parts", "5 dispatches"}},
        {"low-rank-direct", TYPE_F16, 544, 66, 21, ADDS | DIRECT, {"4 dispatches"}},
        {"low-rank-unpacked", TYPE_Q8_0, 1536, 194, 33, ADDS, {"linear_unpack", "7 dispatches"}},
        {"rounded-once", TYPE_Q8_0, 1536, 194, 33, ADDS | PLAIN, {"linear_unpack", "7 dispatches"}},
        {"low-rank-bytes", TYPE_Q4_0, 512, 45, 21, ADDS | PLAIN | BYTES, {"linear_dots"}},
        {"low-rank-bytes-parts", TYPE_Q4_0, 2080, 40, 19, ADDS | PLAIN | BYTES, {"linear_merge"}},
        {"low-rank-pair", TYPE_Q4_0, 512, 45, 21, ADDS | PLAIN | PAIR | BYTES, {"3 dispatches"}}};
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) check_halves(t, &cases[i]);
}

/* Tiles of bytes on the interpreter: as the smallest device has them, as a larger one that permutes
 * bytes, and with numbers drawn at random; some types on the software device and in CUDA C; all on
 * the device that BERYL_TEST_DEVICE names. */
static void check_dots(test *t) {
    static const problem some[] = {{"tiles", 37, 1, 0, 45, 18, 0},
                                   {"odd", 70, 3, 0, 150, 1, 0},
                                   {"pieces", 200, 2, 0, 33, 17, 12000},
                                   {"parts", 37, 65, 0, 40, 19, 0},
                                   /* more tiles than units: lanes with many vectors */
                                   {"narrow", 70, 3, 0, 140, 20, 0},
                                   {"wide", 128, 1, 0, 192, 70, 0}};
    static const struct {
        const char *name, *device;
        bool permutes, drawn;
    } on[] = {{"smallest", "interpreter", false, false},
              {"permutes", "interpreter", true, false},
              {"drawn", "interpreter", false, true},
              {"software", "webgpu:software", false, false},
              {"cuda", "cuda", false, false},
              {"chosen", "", false, false}};
    const size_t n = sizeof on / sizeof *on - !getenv("BERYL_TEST_DEVICE");
    for (size_t f = 0; f < n; f++)
        for (size_t i = 0; i < sizeof some / sizeof *some; i++)
            for (base_type type = 0; type < TYPE_COUNT; type++) {
                const bool software = on[f].device[0] == 'w', drawn = on[f].drawn,
                           cuda = on[f].device[0] == 'c';
                const bool table = type == TYPE_IQ4_NL || type == TYPE_IQ4_XS ||
                                   type == TYPE_MXFP4 || type == TYPE_NVFP4;
                bool known = false;
                for (size_t k = 3; k < RARE; k++) known = known || weight_types[k] == type;
                if (!known || (on[f].permutes && !table) ||
                    (i > 0 && type != TYPE_Q4_0 && type != TYPE_Q4_K && type != TYPE_Q6_K) ||
                    (i > 1 && i < 5 && type != TYPE_Q4_0) ||
                    (drawn && (i > 3 || (i > 0 && type != TYPE_Q4_0))) ||
                    ((software || cuda) && (i != 0 || (type != TYPE_Q4_0 && type != TYPE_Q4_K))))
                    continue;
                if (!test_case(t, "products/dots/%s-%s-%s", on[f].name, some[i].name,
                               base_type_name(type)))
                    continue;
                const test_form form = {.device = on[f].device,
                                        .as_gpu = on[f].device[0] != 0,
                                        .drawn = drawn,
                                        .stand_in = cuda};
                base_heap heap;
                device *d = NULL;
                beryl_error error = {0};
                base_heap_init(&heap, NULL);
                const beryl_status status = test_form_open(&form, &heap, &d, &error);
                if (status != BERYL_OK) {
                    if (status == BERYL_NO_DEVICE) test_skip(t, "%s", error.message);
                    else test_fail(t, __FILE__, __LINE__, "%s", error.message);
                    test_form_close(d);
                    continue;
                }
                d->caps.dot_i8 = true;
                d->caps.fragments = 0;
                d->caps.compute_units = type % 2 || i > 3 ? 1 : 64;
                d->caps.permutes_bytes = on[f].permutes;
                if (f == 0) d->caps.workgroup_bytes = 16384;
                for (uint64_t round = 0; test_form_round(t, &form, d, &round);)
                    run(t, &heap, d, &some[i], type,
                        i == 3 || (i == 0 && type == TYPE_Q4_K) ? DOTS_ENDED : DOTS);
                test_form_close(d);
                CHECK_INT(t, heap.bytes, 0);
            }
}

/* Batches whose vectors a dispatch rounds first: all of k in workgroup memory, windows of it, and
 * with numbers of a small or a large device. */
static void check_batches(test *t) {
    static const problem some[] = {{"five", 37, 5, 0, 5, 1, 0},
                                   {"few", 70, 9, 0, 9, 3, 0},
                                   {"long", 11, 41, 0, 16, 13, 0},
                                   {"two", 40, 3, 0, 32, 20, 0}};
    static const struct {
        const char *name;
        uint32_t workgroup_bytes, units;
    } on[] = {{"resident", 96 << 10, 1}, {"windows", 16 << 10, 1}, {"large", 32 << 10, 3}};
    for (size_t f = 0; f < sizeof on / sizeof *on; f++)
        for (size_t i = 0; i < sizeof some / sizeof *some; i++)
            for (size_t k = 3; k < RARE; k++) {
                const base_type type = weight_types[k];
                const bool super = base_type_block(type) == 256;
                if (!test_drawn(i + k, f, 3) || (super && i == 2 && type != TYPE_Q6_K)) continue;
                if (!test_case(t, "products/batches/%s-%s-%s", on[f].name, some[i].name,
                               base_type_name(type)))
                    continue;
                base_heap heap;
                base_heap_init(&heap, NULL);
                device *d = interpreter_open(&heap);
                if (!d) {
                    test_fail(t, __FILE__, __LINE__, "no memory");
                    continue;
                }
                d->caps.kind = DEVICE_DISCRETE;
                d->caps.subgroups = d->caps.dot_i8 = true;
                d->caps.subgroup_size = 32;
                d->caps.workgroup_bytes = on[f].workgroup_bytes;
                d->caps.compute_units = on[f].units;
                run(t, &heap, d, &some[i], type, i % 2 ? DOTS_ENDED : DOTS);
                device_close(d);
                CHECK_INT(t, heap.bytes, 0);
            }
}

/* One long vector on two units, whose rows are spread more evenly by workgroups of 12 subgroups. */
static void check_even(test *t) {
    static const problem even[] = {{"halves", 24, 256, 0, 1, 1, 0}, {"bytes", 24, 32, 0, 1, 1, 0}};
    static const base_type types[] = {TYPE_F16, TYPE_Q4_K};
    for (size_t i = 0; i < sizeof even / sizeof *even; i++) {
        if (!test_case(t, "products/even/%s", even[i].name)) continue;
        base_heap heap;
        base_heap_init(&heap, NULL);
        device *d = interpreter_units_open(&heap);
        if (!d) {
            test_fail(t, __FILE__, __LINE__, "no memory");
            continue;
        }
        d->caps.dot_i8 = true;
        d->caps.compute_units = 2;
        run(t, &heap, d, &even[i], types[i], i ? DOTS : EXACT);
        device_close(d);
        CHECK_INT(t, heap.bytes, 0);
    }
}

/* On processors that multiply bytes: blocks of 32 by fours and by eights, and some that fit
 * neither; in vectors one, few and more than a tile. */
static void check_rounded(test *t) {
    static const problem some[] = {
        {"one", 11, 2, 0, 1, 1, 0},    {"fours", 7, 12, 0, 3, 1, 0},
        {"eights", 70, 8, 0, 5, 2, 0}, {"neither", 6, 3, 0, 2, 1, 0},
        {"batch", 9, 8, 0, 16, 9, 0},  {"pieces", 200, 1, 0, 2, 1, 12000}};
    for (size_t f = 0; f < test_form_count(); f++) {
        base_heap heap;
        device *d = NULL;
        beryl_error error = {0};
        const test_form *form = &test_forms[f];
        base_heap_init(&heap, NULL);
        if (strcmp(form->name, "host") != 0 && strcmp(form->name, "interpreter") != 0) continue;
        const beryl_status status = test_form_open(form, &heap, &d, &error);
        for (size_t i = 0; i < sizeof some / sizeof *some; i++)
            for (size_t k = 0; k < sizeof weight_types / sizeof *weight_types; k++) {
                const base_type type = weight_types[k];
                const bool super = base_type_block(type) == 256;
                if (!base_type_is_quantised(type) || (super && (i == 2 || i == 3))) continue;
                if (k >= RARE && type != TYPE_TQ2_0) continue; /* not multiplied as bytes */
                if (some[i].limit && type != TYPE_Q6_K) continue;
                if (!strcmp(form->name, "host") && !test_drawn(i, k, 4)) continue;
                if (!test_case(t, "products/rounded-%s/%s-%s", form->name, some[i].name,
                               base_type_name(type)))
                    continue;
                if (status == BERYL_NO_DEVICE) test_skip(t, "%s", error.message);
                else if (status != BERYL_OK) test_fail(t, __FILE__, __LINE__, "%s", error.message);
                else run(t, &heap, d, &some[i], type, ROUNDED);
            }
        test_form_close(d);
    }
}

/* Blocks of every type alone, and several in a row; plain rows that begin inside a word. */
static void check_gather(test *t) {
    static const problem some[] = {{"block", 5, 1, 0, 1, 1, 0}, {"blocks", 5, 3, 13, 1, 1, 0}};
    for (size_t k = 0; k < sizeof weight_types / sizeof *weight_types; k++) {
        base_heap heap;
        device *d = NULL;
        beryl_error error = {0};
        if (!test_case(t, "gather/%s-equal-to-the-bit", base_type_name(weight_types[k]))) continue;
        base_heap_init(&heap, NULL);
        const beryl_status status = device_open(&heap, NULL, "webgpu:software", &d, &error);
        if (status == BERYL_NO_DEVICE) test_skip(t, "%s", error.message);
        else if (status != BERYL_OK) test_fail(t, __FILE__, __LINE__, "%s", error.message);
        for (size_t i = 0; status == BERYL_OK && i < sizeof some / sizeof *some; i++)
            run(t, &heap, d, &some[i], weight_types[k], ROWS);
        device_close(d);
        CHECK_INT(t, heap.bytes, 0);
    }
}

void test_products(test *t) {
    check_gather(t);
    check_units(t);
    check_narrow(t);
    check_dots(t);
    check_batches(t);
    check_even(t);
    check_rounded(t);
    for (size_t f = 0; f < test_form_count(); f++) {
        base_heap heap;
        device *d = NULL;
        beryl_error error = {0};
        base_heap_init(&heap, NULL);
        const beryl_status status = test_form_open(&test_forms[f], &heap, &d, &error);
        for (size_t i = 0; i < sizeof problems / sizeof *problems; i++)
            for (size_t k = 0; k < sizeof weight_types / sizeof *weight_types; k++) {
                const base_type type = weight_types[k];
                /* the software device compiles for seconds */
                if (test_forms[f].stand_in &&
                    (type != TYPE_Q4_K || i != (strcmp(test_forms[f].device, "hip") ? 4 : 1)))
                    continue;
                if (test_forms[f].drawn && type != TYPE_F16 && type != TYPE_F32 &&
                    type != TYPE_Q4_K)
                    continue;
                if (!strcmp(test_forms[f].device, "webgpu:software") && i != 1 &&
                    !(test_forms[f].as_gpu && i == 4 && (type == TYPE_F32 || type == TYPE_Q4_K)))
                    continue;
                if ((problems[i].rest && base_type_is_quantised(type)) ||
                    (problems[i].limit && type != TYPE_F16 &&
                     (type != TYPE_Q6_K || problems[i].n > 2)))
                    continue;
                /* each is compiled for a while: every type with some problems, every problem with
                 * some types; all of them by make test-all */
                if ((k >= RARE && !test_drawn(i + k, f, 8)) ||
                    (!strcmp(test_forms[f].name, "opencl") && !test_drawn(i, k, 8)) ||
                    (!strcmp(test_forms[f].name, "host") && !test_drawn(i + 1, k, 2)))
                    continue;
                if (!test_case(t, "products/%s/%s-%s", test_forms[f].name, problems[i].name,
                               base_type_name(type)))
                    continue;
                if (status == BERYL_NO_DEVICE) test_skip(t, "%s", error.message);
                else if (status != BERYL_OK) test_fail(t, __FILE__, __LINE__, "%s", error.message);
                else
                    for (uint64_t round = 0; test_form_round(t, &test_forms[f], d, &round);)
                        run(t, &heap, d, &problems[i], type, EXACT);
            }
        test_form_close(d);
        if (status == BERYL_OK &&
            test_case(t, "products/%s/gives-everything-back", test_forms[f].name))
            CHECK_INT(t, heap.bytes, 0);
    }
}
