/* pieces_test.c - gradients whose passes are in pieces: attention in pieces of rows, cross-entropy
 * of hidden rows in pieces of classes. Against plain loops in double that are written here, and
 * what memory their plans take. */
#include "rig.h"

#include "beryl_nn.h"

#include "base/types.h"
#include "base/thread.h"
#include "device/device.h"
#include "graph/graph.h"
#include "graph/store.h"
#include "plan/exec.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

static const char *const devices[] = {"reference", "host", "software"};
enum { DEVICES = sizeof devices / sizeof *devices };

/* -1 .. 1 */
static double number(uint32_t which, uint64_t i) {
    base_random r = {i * 8 + which + 1};
    return 2 * base_random_unit(&r) - 1;
}

static float *numbers(uint32_t which, uint64_t n) {
    float *x = malloc(n * sizeof *x);
    for (uint64_t i = 0; x && i < n; i++) x[i] = (float)number(which, i);
    return x;
}

static beryl_graph *opened(test *t, const char *on) {
    const beryl_graph_options options = {
        .size = sizeof options, .device = on, .precision = BERYL_PRECISION_EXACT};
    beryl_error error = {0};
    beryl_graph *g = NULL;
    const beryl_status status = beryl_graph_open(&options, &g, &error);
    if (status == BERYL_NO_DEVICE) test_skip(t, "%s", error.message);
    else if (status != BERYL_OK) test_fail(t, __FILE__, __LINE__, "%s", error.message);
    return g;
}

static beryl_status compile(beryl_graph *g, beryl_error *error) {
    beryl_status status;
    while ((status = beryl_graph_compile(g, error)) == BERYL_PENDING) base_sleep(2e-4);
    return status;
}

/* ---- attention ------------------------------------------------------------------------------- */

/* Rows, heads of queries and of keys, elements; so many scores are two pieces. */
enum { N = 130, HEADS = 4, GROUPS = 2, D = 8, FEWER = 123 };
enum { Q = N * HEADS * D };

/* Numbers of an array: q and what is like it have so many rows, keys and values all. */
static uint32_t size_of(uint32_t which, uint32_t rows) {
    return which % 3 ? N * GROUPS * D : rows * HEADS * D;
}

/* Every fifth row sees nothing, others 50 keys up to their own. */
static int32_t first_of(uint32_t row) {
    return row % 5 == 4 ? (int32_t)row + 1 : (int32_t)row - 49;
}

/* The gradient of the sum of the result times w, by loops. */
static void attend(uint32_t rows, const float *const x[4], double *const d[3]) {
    const float *q = x[0], *k = x[1], *v = x[2], *w = x[3];
    for (uint32_t n = 0; n < rows; n++)
        for (uint32_t h = 0; h < HEADS; h++) {
            const uint32_t at = (n * HEADS + h) * D, of = h * GROUPS / HEADS;
            double p[N], dp[N], most = -INFINITY, total = 0, mean = 0;
            const uint32_t from = first_of(n) < 0 ? 0 : (uint32_t)first_of(n);
            for (uint32_t m = from; m <= n; m++) {
                p[m] = dp[m] = 0;
                for (uint32_t i = 0; i < D; i++) {
                    const uint32_t key = (m * GROUPS + of) * D + i;
                    p[m] += (double)q[at + i] * (double)k[key] * 0.5;
                    dp[m] += (double)w[at + i] * (double)v[key];
                }
                if (p[m] > most) most = p[m];
            }
            for (uint32_t m = from; m <= n; m++) total += p[m] = exp(p[m] - most);
            for (uint32_t m = from; m <= n; m++) mean += (p[m] /= total) * dp[m];
            for (uint32_t m = from; m <= n; m++)
                for (uint32_t i = 0; i < D; i++) {
                    const uint32_t key = (m * GROUPS + of) * D + i;
                    const double ds = p[m] * (dp[m] - mean) * 0.5;
                    d[0][at + i] += ds * (double)k[key];
                    d[1][key] += ds * (double)q[at + i];
                    d[2][key] += p[m] * (double)w[at + i];
                }
        }
}

/* fewer: rows are an extent, fewer than its bound, and then none. */
static void check_attention(test *t, const char *on, bool fewer) {
    beryl_graph *g = opened(t, on);
    if (!g) return;
    const uint32_t rows = fewer ? FEWER : N, n = fewer ? beryl_graph_extent(g, "n", N) : 0;
    const beryl_dim q[] = {{N, n}, {HEADS, 0}, {D, 0}}, k[] = {{1, 0}, {N, 0}, {GROUPS, 0}, {D, 0}};
    beryl_value x[4], d[3], place[3];
    beryl_error error = {0};
    for (uint32_t i = 0; i < 4; i++)
        x[i] = beryl_graph_input(g, "x", BERYL_TYPE_F32, i % 3 ? 4 : 3, i % 3 ? k : q);
    for (uint32_t i = 0; i < 3; i++) place[i] = beryl_graph_input(g, "at", BERYL_TYPE_I32, 1, q);
    const beryl_value y =
        beryl_graph_attention_range(g, x[0], x[1], x[2], place[0], place[1], place[2], 0.5f);
    beryl_graph_gradient(g, beryl_graph_sum(g, beryl_graph_mul(g, y, x[3]), NULL, 0, false), 3, x,
                         d);
    for (uint32_t i = 0; i < 3; i++) beryl_graph_output(g, d[i], "d");
    beryl_status status = compile(g, &error);
    float *in[4], *got = malloc(Q * sizeof *got);
    double *want[3];
    int32_t at[3][N];
    for (uint32_t i = 0; i < 4; i++) {
        in[i] = numbers(i, size_of(i, N));
        if (status == BERYL_OK)
            status = beryl_graph_set(g, x[i], in[i], size_of(i, rows) * sizeof(float), &error);
    }
    for (uint32_t i = 0; i < N; i++) at[0][i] = 0, at[1][i] = first_of(i), at[2][i] = (int32_t)i;
    for (uint32_t i = 0; status == BERYL_OK && i < 3; i++)
        status = beryl_graph_set(g, place[i], at[i], rows * sizeof **at, &error);
    for (uint32_t i = 0; i < 3; i++) want[i] = calloc(Q, sizeof **want);
    attend(rows, (const float *const *)in, want);
    if (status == BERYL_OK) status = beryl_graph_run(g, &rows, fewer, &error);
    if (status == BERYL_OK) status = beryl_graph_wait(g, &error);
    for (uint32_t i = 0; i < 3 && status == BERYL_OK; i++) {
        const uint32_t size = size_of(i, rows);
        status = beryl_graph_read(g, d[i], got, size * sizeof *got, &error);
        /* sums of up to 130 products in F32 */
        for (uint32_t e = 0; status == BERYL_OK && e < size && !test_failed(t); e++)
            CHECK_NEAR(t, (double)got[e], want[i][e], 1e-5 * (1 + fabs(want[i][e])));
    }
    if (status == BERYL_OK && fewer) {
        status = beryl_graph_run(g, &(uint32_t){0}, 1, &error);
        if (status == BERYL_OK) status = beryl_graph_wait(g, &error);
        if (status == BERYL_OK)
            status = beryl_graph_read(g, d[1], got, size_of(1, 0) * sizeof *got, &error);
        for (uint32_t e = 0; status == BERYL_OK && e < size_of(1, 0); e++) CHECK(t, got[e] == 0);
    }
    if (status != BERYL_OK) test_fail(t, __FILE__, __LINE__, "%s", error.message);
    for (uint32_t i = 0; i < 4; i++) free(in[i]);
    for (uint32_t i = 0; i < 3; i++) free(want[i]);
    free(got);
    beryl_graph_close(g);
}

/* ---- cross-entropy --------------------------------------------------------------------------- */

/* More than two pieces; the last targets are no classes. */
enum { TOKENS = 7, WIDTH = 8, CLASSES = 16500 };
static const int32_t targets[TOKENS] = {0, 5499, 5500, CLASSES - 1, 8192, -1, CLASSES};

static const struct head {
    const char *name;
    beryl_type type; /* of the weight */
    float cap;
} heads[] = {
    {"f32", BERYL_TYPE_F32, 0}, {"capped", BERYL_TYPE_F32, 2}, {"f16", BERYL_TYPE_F16, 1.5f}};
enum { KINDS = sizeof heads / sizeof *heads };

/* Losses, and the gradients of their sum, each times its row's number + 1. */
static void losses_of(const struct head *h, const float *x, const float *w, double *loss,
                      double *dx, double *dw) {
    double *z = malloc(CLASSES * sizeof *z);
    for (uint32_t n = 0; z && n < TOKENS; n++) {
        double total = 0;
        loss[n] = 0;
        if (targets[n] < 0 || targets[n] >= CLASSES) continue;
        for (uint32_t c = 0; c < CLASSES; c++) {
            z[c] = 0;
            for (uint32_t i = 0; i < WIDTH; i++)
                z[c] += (double)x[n * WIDTH + i] * (double)w[c * WIDTH + i];
            if (h->cap > 0) z[c] = (double)h->cap * tanh(z[c] / (double)h->cap);
            total += exp(z[c]);
        }
        loss[n] = log(total) - z[targets[n]];
        for (uint32_t c = 0; c < CLASSES; c++) {
            const double part = h->cap > 0 ? z[c] / (double)h->cap : 0;
            const double dz =
                (exp(z[c]) / total - ((int32_t)c == targets[n])) * (n + 1) * (1 - part * part);
            for (uint32_t i = 0; i < WIDTH; i++) {
                dx[n * WIDTH + i] += dz * (double)w[c * WIDTH + i];
                dw[c * WIDTH + i] += dz * (double)x[n * WIDTH + i];
            }
        }
    }
    free(z);
}

static void check_head(test *t, const char *on, const struct head *h) {
    beryl_graph *g = opened(t, on);
    if (!g) return;
    enum { X = TOKENS * WIDTH, W = CLASSES * WIDTH };
    static const uint32_t shape[] = {CLASSES, WIDTH};
    const beryl_dim rows[] = {{TOKENS, 0}, {WIDTH, 0}};
    const bool halves = h->type == BERYL_TYPE_F16;
    float *in[2] = {numbers(1, X), numbers(2, W)}, *got = malloc(W * sizeof *got);
    uint16_t *half = malloc(W * sizeof *half);
    double loss[TOKENS], *want[2] = {calloc(X, sizeof(double)), calloc(W, sizeof(double))};
    beryl_error error = {0};
    for (uint32_t i = 0; halves && i < W; i++) {
        half[i] = base_f32_to_f16(in[1][i]);
        in[1][i] = base_f16_to_f32(half[i]);
    }
    losses_of(h, in[0], in[1], loss, want[0], want[1]);
    beryl_value x[2] = {beryl_graph_input(g, "x", BERYL_TYPE_F32, 2, rows)}, d[2];
    const beryl_value of = beryl_graph_input(g, "targets", BERYL_TYPE_I32, 1, rows);
    /* a weight of halves is cut in no view */
    x[1] = halves ? beryl_graph_weight(g, "w", h->type, 2, shape, half, W * sizeof *half)
                  : beryl_graph_weight(g, "w", h->type, 2, shape, in[1], W * sizeof(float));
    const beryl_value y = beryl_graph_linear_cross_entropy(g, x[0], x[1], of, h->cap),
                      place = beryl_graph_cast(g, beryl_graph_iota(g, y, 0), BERYL_TYPE_F32, false),
                      weighed = beryl_graph_mul(g, y, beryl_graph_add_scalar(g, place, 1));
    beryl_graph_gradient(g, beryl_graph_sum(g, weighed, NULL, 0, false), halves ? 1 : 2, x, d);
    beryl_graph_output(g, y, "losses");
    for (uint32_t i = 0; i < (halves ? 1 : 2); i++) beryl_graph_output(g, d[i], "d");
    beryl_status status = compile(g, &error);
    if (status == BERYL_OK) status = beryl_graph_set(g, x[0], in[0], X * sizeof(float), &error);
    if (status == BERYL_OK) status = beryl_graph_set(g, of, targets, sizeof targets, &error);
    if (status == BERYL_OK) status = beryl_graph_run(g, NULL, 0, &error);
    if (status == BERYL_OK) status = beryl_graph_wait(g, &error);
    if (status == BERYL_OK) status = beryl_graph_read(g, y, got, TOKENS * sizeof *got, &error);
    /* sums over 16,500 classes in F32 */
    for (uint32_t i = 0; status == BERYL_OK && i < TOKENS; i++)
        CHECK_NEAR(t, (double)got[i], loss[i], 1e-5);
    for (uint32_t k = 0; status == BERYL_OK && k < (halves ? 1 : 2); k++) {
        const uint32_t size = k ? W : X;
        status = beryl_graph_read(g, d[k], got, size * sizeof *got, &error);
        for (uint32_t i = 0; status == BERYL_OK && i < size && !test_failed(t); i++)
            CHECK_NEAR(t, (double)got[i], want[k][i], 2e-5 * (1 + fabs(want[k][i])));
    }
    if (status != BERYL_OK) test_fail(t, __FILE__, __LINE__, "%s", error.message);
    for (uint32_t i = 0; i < 2; i++) free(in[i]), free(want[i]);
    free(got);
    free(half);
    beryl_graph_close(g);
}

/* ---- memory ---------------------------------------------------------------------------------- */

typedef void plan_fn(graph *g, uint32_t n);

static void plan_attention(graph *g, uint32_t n) {
    const graph_dim dims[] = {{4, 0}, {n, 0}, {32, 0}};
    graph_value x[3], d[3];
    for (uint32_t i = 0; i < 3; i++) x[i] = graph_input(g, "x", TYPE_F32, 3, dims);
    const graph_value y = graph_attend(g, x[0], x[1], x[2], 0, &(graph_sdpa){.causal = true});
    graph_gradient(g, graph_reshape(g, graph_reduce(g, OP_SUM, y, 7, 0), 0, NULL), 3, x, d);
    for (uint32_t i = 0; i < 3; i++) graph_output(g, graph_copy(g, d[i]), "d");
}

static void plan_head(graph *g, uint32_t n) {
    enum { ROWS = 256, DEEP = 16 };
    graph_value x[2] = {graph_input(g, "x", TYPE_F32, 2, (graph_dim[]){{ROWS, 0}, {DEEP, 0}}),
                        graph_input(g, "w", TYPE_F32, 2, (graph_dim[]){{n, 0}, {DEEP, 0}})},
                d;
    const graph_value of = graph_input(g, "of", TYPE_I32, 1, &(graph_dim){ROWS, 0}),
                      y = graph_linear_cross_entropy(g, x[0], x[1], of, 30);
    graph_gradient(g, graph_reshape(g, graph_reduce(g, OP_SUM, y, 1, 0), 0, NULL), 1, x, &d);
    graph_output(g, graph_copy(g, d), "d");
}

/* Bytes of intermediates on a device that is like a GPU. */
static uint64_t bytes_of(test *t, plan_fn *build, uint32_t n) {
    base_heap heap;
    graph_store store;
    device *d = NULL;
    graph_exec *exec = NULL;
    graph_exec_info info = {0};
    beryl_error error = {0};
    base_heap_init(&heap, NULL);
    beryl_status status = device_open(&heap, NULL, "dummy", &d, &error);
    if (status != BERYL_OK) {
        test_fail(t, __FILE__, __LINE__, "%s", error.message);
        return 0;
    }
    d->caps.kind = DEVICE_DISCRETE;
    d->caps.languages = DEVICE_LANGUAGE_BIT(DEVICE_WGSL);
    d->caps.subgroups = d->caps.f16 = true;
    d->caps.subgroup_size = 32;
    graph *g = graph_open(&heap);
    status = store_init(&store, &heap, d, NULL, 0, &error);
    if (status == BERYL_OK) status = store_layout(&store, 0, &error);
    if (status == BERYL_OK) status = store_make(&store, &error);
    if (status == BERYL_OK) {
        build(g, n);
        status = graph_exec_open(g, &store, &(graph_exec_options){0}, &exec, &error);
    }
    if (status == BERYL_OK) graph_exec_describe(exec, &info);
    else test_fail(t, __FILE__, __LINE__, "%s", error.message);
    graph_exec_close(exec);
    graph_close(g);
    store_fini(&store);
    device_close(d);
    return info.arena_bytes;
}

static void check_memory(test *t, plan_fn *build, uint32_t n, uint64_t most, double grows) {
    const uint64_t some = bytes_of(t, build, n), more = bytes_of(t, build, 2 * n);
    if (more > most || (double)more > grows * (double)some)
        test_fail(t, __FILE__, __LINE__, "%llu bytes, then %llu", (unsigned long long)some,
                  (unsigned long long)more);
}

/* Wherever memory ends while the graph is built: an error, and all is given back. */
static void check_no_memory(test *t, plan_fn *build, uint32_t n) {
    beryl_status status = BERYL_NO_MEMORY;
    for (uint64_t i = 0; status == BERYL_NO_MEMORY && i < 500 && !test_failed(t); i++) {
        rig_failing failing = {i};
        const beryl_allocator allocator = {.resize = rig_failing_resize, .user = &failing};
        base_heap heap;
        beryl_error error = {0};
        base_heap_init(&heap, &allocator);
        graph *g = graph_open(&heap);
        if (!g) continue;
        build(g, n);
        status = graph_status(g, &error);
        graph_close(g);
    }
    CHECK_INT(t, status, BERYL_OK);
}

void test_pieces(test *t) {
    if (test_case(t, "pieces/no-memory/attention")) check_no_memory(t, plan_attention, 512);
    if (test_case(t, "pieces/no-memory/cross-entropy")) check_no_memory(t, plan_head, 16500);
    /* twice the rows: twice the memory; scores alone would be 256 MiB */
    if (test_case(t, "pieces/memory/attention"))
        check_memory(t, plan_attention, 2048, 80 << 20, 2.1);
    /* as much for twice the classes, but for numbers a piece; logits would be 256 MiB */
    if (test_case(t, "pieces/memory/cross-entropy"))
        check_memory(t, plan_head, 262144, 26 << 20, 1.05);
    for (size_t d = 0; d < DEVICES; d++) {
        for (uint32_t i = 0; i < 2; i++)
            if ((!d || test_drawn(i, d, 2)) &&
                test_case(t, "pieces/%s/attention%s", devices[d], i ? "-fewer-rows" : ""))
                check_attention(t, devices[d], i);
        for (size_t i = 0; i < KINDS; i++)
            if ((!d || test_drawn(i, d, 3)) &&
                test_case(t, "pieces/%s/cross-entropy-%s", devices[d], heads[i].name))
                check_head(t, devices[d], &heads[i]);
    }
}
