/* graph_api_test.c - tensor graphs through beryl_graph.h alone: values, misuse, memory. */
#include "beryl_graph.h"
#include "test.h"

#include "base/thread.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

static beryl_graph *open_on(test *t, const char *device) {
    beryl_graph *g = NULL;
    beryl_error error = {0};
    const beryl_graph_options options = {
        .size = sizeof options, .device = device, .precision = BERYL_PRECISION_EXACT};
    if (beryl_graph_open(&options, &g, &error) != BERYL_OK)
        test_fail(t, __FILE__, __LINE__, "%s", error.message);
    return g;
}

static beryl_status compile(beryl_graph *g, beryl_error *error) {
    beryl_status status;
    while ((status = beryl_graph_compile(g, error)) == BERYL_PENDING) base_sleep(2e-4);
    return status;
}

/* Compiles, runs with one extent (n_extent 0: none) and waits. */
static bool run(test *t, beryl_graph *g, uint32_t n, uint32_t n_extent) {
    beryl_error error = {0};
    beryl_status status = compile(g, &error);
    if (status == BERYL_OK) status = beryl_graph_run(g, &n, n_extent, &error);
    if (status == BERYL_OK) status = beryl_graph_wait(g, &error);
    if (status != BERYL_OK) test_fail(t, __FILE__, __LINE__, "%s", error.message);
    return status == BERYL_OK;
}

static const float weight[4][3] = {{1, 0, 0}, {0, 1, 0}, {0, 0, 1}, {1, 1, 1}};

typedef struct softmax_graph {
    beryl_graph *g;
    beryl_value x, y;
} softmax_graph;

static softmax_graph make_softmax(beryl_graph *g, uint32_t bound) {
    softmax_graph s = {.g = g};
    const uint32_t n = beryl_graph_extent(g, "n", bound);
    s.x = beryl_graph_input(g, "x", BERYL_TYPE_F32, 2, (beryl_dim[]){{bound, n}, {3, 0}});
    const beryl_value w =
        beryl_graph_weight(g, "w", BERYL_TYPE_F32, 2, (uint32_t[]){4, 3}, weight, sizeof weight);
    s.y = beryl_graph_softmax(g, beryl_graph_linear(g, s.x, w));
    beryl_graph_output(g, s.y, "y");
    return s;
}

static void check_softmax(test *t, const float *x, const float *y, int rows) {
    for (int r = 0; r < rows; r++) {
        double e[4], sum = 0;
        for (int m = 0; m < 4; m++) {
            double dot = 0;
            for (int k = 0; k < 3; k++) dot += (double)x[r * 3 + k] * (double)weight[m][k];
            sum += e[m] = exp(dot);
        }
        for (int m = 0; m < 4; m++) CHECK_NEAR(t, y[r * 4 + m], e[m] / sum, 1e-6);
    }
}

/* Every second row twice over, by sizes that a run computes: [T, 4] to [half of half of T, 4]. */
static void check_computed_sizes(test *t, const char *device) {
    enum { BOUND = 13 };
    beryl_graph *g = open_on(t, device);
    const beryl_dim rows = {BOUND, beryl_graph_extent(g, "T", BOUND)},
                    half = beryl_graph_dim_quotient(g, rows, 2),
                    quarter = beryl_graph_dim_quotient(g, half, 2),
                    other = {2, beryl_graph_extent(g, "b", 2)},
                    both = beryl_graph_dim_sum(
                        g, beryl_graph_dim_product(g, other, (beryl_dim){3, 0}), rows);
    CHECK_INT(t, half.size, 7);
    CHECK_INT(t, quarter.size, 4);
    CHECK_INT(t, quarter.extent, beryl_graph_dim_quotient(g, rows, 4).extent);
    CHECK_INT(t, both.size, 19);
    CHECK_INT(t, beryl_graph_dim_sum(g, (beryl_dim){2, 0}, (beryl_dim){3, 0}).size, 5);
    const beryl_value x = beryl_graph_input(g, "x", BERYL_TYPE_F32, 2, (beryl_dim[]){rows, {4, 0}}),
                      all = beryl_graph_input(g, "all", BERYL_TYPE_F32, 2,
                                              (beryl_dim[]){{2, 0}, {0, both.extent}}),
                      ids = beryl_graph_input(g, "ids", BERYL_TYPE_I32, 1, &half),
                      again = beryl_graph_input(g, "again", BERYL_TYPE_I32, 1, &quarter),
                      y = beryl_graph_gather_rows(g, beryl_graph_gather_rows(g, x, ids, 1), again,
                                                  1),
                      most = beryl_graph_argmax(g, all, 1, false);
    beryl_dim dims[10];
    uint32_t rank;
    CHECK(t, beryl_graph_shape(g, y, NULL, &rank, dims) && rank == 2);
    CHECK(t, dims[0].size == quarter.size && dims[0].extent == quarter.extent);
    beryl_graph_output(g, y, "y");
    beryl_graph_output(g, most, "most");
    float numbers[BOUND][4], to[4][4], line[2][19];
    int32_t twos[7], best[2];
    for (int i = 0; i < BOUND * 4; i++) (&numbers[0][0])[i] = (float)i;
    for (int i = 0; i < 7; i++) twos[i] = 2 * i;
    for (int i = 0; i < 2 * 19; i++) (&line[0][0])[i] = (float)(i % 19);
    CHECK_INT(t, compile(g, NULL), BERYL_OK);
    beryl_graph_set(g, x, numbers, sizeof numbers, NULL);
    beryl_graph_set(g, ids, twos, sizeof twos, NULL);
    beryl_graph_set(g, again, twos, 16, NULL);
    beryl_graph_set(g, all, line, sizeof line, NULL);
    static const uint32_t runs[][2] = {{13, 2}, {0, 0}, {6, 1}, {0, 2}, {1, 0}, {12, 0}};
    for (size_t i = 0; i < sizeof runs / sizeof *runs && !test_failed(t); i++) {
        const uint32_t n = (runs[i][0] + 3) / 4, length = runs[i][0] + 3 * runs[i][1];
        CHECK_INT(t, beryl_graph_run(g, runs[i], 2, NULL), BERYL_OK);
        CHECK_INT(t, beryl_graph_extent_value(g, quarter.extent), n);
        CHECK_INT(t, beryl_graph_extent_value(g, both.extent), length);
        CHECK_INT(t, beryl_graph_extent_value(g, 0) + beryl_graph_extent_value(g, 99), 0);
        CHECK_INT(t, beryl_graph_wait(g, NULL), BERYL_OK);
        CHECK_INT(t, beryl_graph_read(g, y, to, n * 16, NULL), BERYL_OK);
        CHECK_INT(t, beryl_graph_read(g, y, to, n * 16 + 4, NULL), BERYL_MISUSE);
        CHECK_INT(t, beryl_graph_read(g, most, best, sizeof best, NULL), BERYL_OK);
        for (uint32_t r = 0; r < n; r++) CHECK_NEAR(t, to[r][3], 16 * r + 3, 0);
        CHECK_INT(t, best[1], length ? (int32_t)length - 1 : -1);
    }
    beryl_graph_close(g);
}

/* What stays on the device is neither written nor read; on the host it is there to be seen. */
static void check_places(test *t, const char *device) {
    beryl_graph *g = open_on(t, device);
    const beryl_dim n = {5, 0};
    const beryl_value x = beryl_graph_input(g, "x", BERYL_TYPE_F32, 1, &n),
                      y = beryl_graph_scale(g, x, 2), z = beryl_graph_add_scalar(g, y, 1);
    beryl_graph_output(g, y, "y");
    beryl_graph_output(g, z, "z");
    float numbers[5] = {1, 2, 3, 4, 5}, to[5];
    uint64_t buffer, offset;
    CHECK(t, !beryl_graph_place(g, x, &buffer, &offset));
    CHECK_INT(t, compile(g, NULL), BERYL_OK);
    beryl_graph_set(g, x, numbers, sizeof numbers, NULL);
    CHECK_INT(t, beryl_graph_run(g, NULL, 0, NULL), BERYL_OK);
    const bool has = beryl_graph_place(g, x, &buffer, &offset);
    CHECK_INT(t, has, strcmp(device, "reference") != 0);
    CHECK_INT(t, beryl_graph_place(g, y, &buffer, &offset), has);
    for (int i = 0; i < 5; i++) numbers[i] = 7;
    beryl_graph_set(g, x, numbers, sizeof numbers, NULL);
    CHECK_INT(t, beryl_graph_run(g, NULL, 0, NULL), BERYL_OK);
    CHECK_INT(t, beryl_graph_wait(g, NULL), BERYL_OK);
    CHECK_INT(t, beryl_graph_read(g, y, to, sizeof to, NULL), has ? BERYL_MISUSE : BERYL_OK);
    CHECK_INT(t, beryl_graph_read(g, z, to, sizeof to, NULL), BERYL_OK);
    for (int i = 0; i < 5; i++) CHECK_NEAR(t, to[i], has ? 2 * i + 3 : 15, 0);
    if (!strcmp(device, "host"))
        CHECK_NEAR(t, ((const float *)(uintptr_t)(buffer + offset))[4], 10, 0);
    beryl_graph_close(g);
}

static void check_nothing_keeps_states(test *t, const char *device) {
    beryl_graph *g = open_on(t, device);
    const beryl_dim n = {3, beryl_graph_extent(g, "n", 3)};
    const beryl_value state = beryl_graph_state(g, "s", BERYL_TYPE_F32, 1, (uint32_t[]){3}),
                      x = beryl_graph_input(g, "x", BERYL_TYPE_F32, 1, &n),
                      at = beryl_graph_input(g, "at", BERYL_TYPE_I32, 1, &n),
                      now = beryl_graph_scale(g, beryl_graph_set_rows(g, state, x, at), 2);
    float got[3];
    beryl_graph_output(g, now, "now");
    CHECK_INT(t, compile(g, NULL), BERYL_OK);
    beryl_graph_set(g, x, (float[]){5, 6, 7}, 12, NULL);
    beryl_graph_set(g, at, (int32_t[]){2, 1, 0}, 12, NULL);
    for (uint32_t i = 0; i < 3; i++) { /* of 2 rows, of none, of 1 */
        run(t, g, (uint32_t[]){2, 0, 1}[i], 1);
        CHECK_INT(t, beryl_graph_read(g, now, got, sizeof got, NULL), BERYL_OK);
        CHECK(t, got[0] == 0 && got[1] == 12 && got[2] == 10);
    }
    beryl_graph_close(g);
}

/* Weights that processors pack in the first run are there in all that follow, also where that had
 * no rows: relu(a 1 x 1 convolution of h, plus h), h a 3 x 3 one of x [n, IN, SIDE, SIDE]. All
 * numbers are whole, so sums are exact. */
static void check_packed_weights(test *t, const char *device) {
    enum { N = 2, IN = 18, OUT = 128, SIDE = 7, PIXELS = SIDE * SIDE, DEPTH = IN * 9 };
    static float x[N][IN][SIDE][SIDE], near[OUT][IN][3][3], across[OUT][OUT], y[N][OUT][PIXELS];
    static int h[N][OUT][PIXELS];
    beryl_graph *g = open_on(t, device);
    const uint32_t n = beryl_graph_extent(g, "n", N);
    const beryl_window by_3 = {3, 1, 1, 1, 1}, by_1 = {1, 1, 1, 0, 0};
    for (int i = 0; i < OUT * DEPTH; i++) (&near[0][0][0][0])[i] = (float)(i * 7 % 11 % 3 - 1);
    for (int i = 0; i < OUT * OUT; i++) (&across[0][0])[i] = (float)(i * 5 % 13 % 3 - 1);
    const beryl_value in = beryl_graph_input(g, "x", BERYL_TYPE_F32, 4,
                                             (beryl_dim[]){{N, n}, {IN, 0}, {SIDE, 0}, {SIDE, 0}}),
                      w = beryl_graph_weight(g, "w", BERYL_TYPE_F32, 4, (uint32_t[]){OUT, IN, 3, 3},
                                             near, sizeof near),
                      v = beryl_graph_weight(g, "v", BERYL_TYPE_F32, 4,
                                             (uint32_t[]){OUT, OUT, 1, 1}, across, sizeof across),
                      first = beryl_graph_conv(g, in, w, 2, (beryl_window[]){by_3, by_3}, 1),
                      second = beryl_graph_conv(g, first, v, 2, (beryl_window[]){by_1, by_1}, 1),
                      out = beryl_graph_relu(g, beryl_graph_add(g, second, first));
    beryl_graph_output(g, out, "y");
    beryl_graph_output(g, beryl_graph_softmax(g, out), "z"); /* whose memory was another's before */
    CHECK_INT(t, compile(g, NULL), BERYL_OK);
    static const uint32_t runs[] = {0, 2, 1, 2};
    for (uint32_t r = 0; r < 4 && !test_failed(t); r++) {
        for (int i = 0; i < N * IN * PIXELS; i++)
            (&x[0][0][0][0])[i] = (float)((i * 3 + (int)r) % 17 % 5 - 2);
        beryl_graph_set(g, in, x, sizeof x, NULL);
        run(t, g, runs[r], 1);
        if (!runs[r]) continue;
        CHECK_INT(t, beryl_graph_read(g, out, y, runs[r] * sizeof *y, NULL), BERYL_OK);
        int wrong = 0;
        for (uint32_t b = 0; b < runs[r]; b++) {
            for (int o = 0; o < OUT; o++)
                for (int p = 0; p < PIXELS; p++) {
                    h[b][o][p] = 0;
                    for (int k = 0; k < DEPTH; k++) {
                        const int row = p / SIDE + k % 9 / 3 - 1, column = p % SIDE + k % 3 - 1;
                        if (row >= 0 && row < SIDE && column >= 0 && column < SIDE)
                            h[b][o][p] +=
                                (int)(x[b][k / 9][row][column] * near[o][k / 9][k % 9 / 3][k % 3]);
                    }
                }
            for (int o = 0; o < OUT; o++)
                for (int p = 0; p < PIXELS; p++) {
                    int sum = h[b][o][p];
                    for (int k = 0; k < OUT; k++) sum += h[b][k][p] * (int)across[o][k];
                    wrong += (int)y[b][o][p] != (sum > 0 ? sum : 0);
                }
        }
        CHECK_INT(t, wrong, 0);
    }
    beryl_graph_close(g);
}

static void test_sizes(test *t) {
    static const char *const devices[] = {"reference", "host", "webgpu", "opencl", "cuda"};
    for (int d = 0; d < 5; d++) {
        beryl_graph *g = NULL;
        beryl_error error = {0};
        const beryl_graph_options options = {.size = sizeof options, .device = devices[d]};
        const bool there = beryl_graph_open(&options, &g, &error) == BERYL_OK;
        beryl_graph_close(g);
        if (test_case(t, "graph_api/inputs-and-outputs-stay-on-%s", devices[d])) {
            if (there) check_places(t, devices[d]);
            else test_skip(t, "%s", error.message);
        }
        if (d > 1) continue;
        if (test_case(t, "graph_api/sizes-made-of-others-on-%s", devices[d])) {
            if (there) check_computed_sizes(t, devices[d]);
            else test_skip(t, "%s", error.message);
        }
        if (test_case(t, "graph_api/runs-of-nothing-keep-states-on-%s", devices[d])) {
            if (there) check_nothing_keeps_states(t, devices[d]);
            else test_skip(t, "%s", error.message);
        }
    }
    if (test_case(t, "graph_api/packed-weights-stay-between-runs")) check_packed_weights(t, "host");
    if (!test_case(t, "graph_api/wrong-sizes-are-refused")) return;
    for (int i = 0; i < 6; i++) {
        beryl_graph *g = open_on(t, "reference");
        beryl_error error;
        const beryl_dim n = {4, beryl_graph_extent(g, "n", 4)}, unknown = {4, 257};
        beryl_dim d = n;
        if (i == 0) d = beryl_graph_dim_sum(g, unknown, n);
        if (i == 1) d = beryl_graph_dim_product(g, (beryl_dim){5, n.extent}, n);
        if (i == 2) d = beryl_graph_dim_quotient(g, n, 0);
        if (i == 3) d = beryl_graph_dim_product(g, n, (beryl_dim){0, 0});
        if (i == 4) d = beryl_graph_dim_product(g, n, (beryl_dim){0xffffffffu, 0});
        if (i == 5) d = beryl_graph_dim_sum(g, n, (beryl_dim){0xffffffffu, 0});
        CHECK(t, !d.size && !d.extent);
        CHECK_INT(t, beryl_graph_input(g, "x", BERYL_TYPE_F32, 1, &n), 0);
        CHECK_INT(t, beryl_graph_compile(g, &error), i < 4 ? BERYL_MISUSE : BERYL_UNSUPPORTED);
        CHECK_INT(t, beryl_graph_dim_sum(g, n, n).size, 0);
        beryl_graph_close(g);
    }
    CHECK_INT(t, beryl_graph_dim_sum(NULL, (beryl_dim){1, 0}, (beryl_dim){1, 0}).size, 0);
}

/* Channels of 5000 and 5002 by turns, two a group. */
static void check_sums_and_groups(test *t, beryl_graph *g) {
    static const float scale[4] = {1, 2, 3, 4};
    if (!g) return;
    const beryl_dim shape[] = {{3, 0}, {4, 0}, {2, 0}};
    const beryl_value x = beryl_graph_input(g, "x", BERYL_TYPE_F32, 3, shape),
                      w = beryl_graph_weight(g, "w", BERYL_TYPE_F32, 1, (uint32_t[]){4}, scale,
                                             sizeof scale);
    const beryl_value sums = beryl_graph_cumsum(g, x, 0),
                      norm = beryl_graph_group_norm(g, x, w, w, 2, 0);
    float in[24], out[24];
    beryl_graph_output(g, sums, "sums");
    beryl_graph_output(g, norm, "norm");
    CHECK_INT(t, compile(g, NULL), BERYL_OK);
    for (int i = 0; i < 24; i++) in[i] = i % 4 < 2 ? 5000 : 5002;
    CHECK_INT(t, beryl_graph_set(g, x, in, sizeof in, NULL), BERYL_OK);
    run(t, g, 0, 0);
    CHECK_INT(t, beryl_graph_read(g, sums, out, sizeof out, NULL), BERYL_OK);
    for (int i = 0; i < 24; i++) CHECK_NEAR(t, out[i], (float)(i / 8 + 1) * in[i], 0);
    CHECK_INT(t, beryl_graph_read(g, norm, out, sizeof out, NULL), BERYL_OK);
    for (int i = 0; i < 24; i++) CHECK_NEAR(t, out[i], i % 4 < 2 ? 0 : 2 * scale[i / 2 % 4], 1e-5);
    beryl_graph_close(g);
}

/* Of columns 1 2 4 and 3 5 9: everything that a mean or a sum is a part of. */
static void check_reductions(test *t, beryl_graph *g) {
    static const float in[3][2] = {{1, 3}, {2, 5}, {4, 9}};
    const uint32_t first = 0;
    const double e = 2.718281828459045,
                 logs[2] = {log(e + exp(2) + exp(4)), log(exp(3) + exp(5) + exp(9))};
    float columns[4][2], one, all[3][2];
    if (!g) return;
    const beryl_value x =
        beryl_graph_input(g, "x", BERYL_TYPE_F32, 2, (beryl_dim[]){{3, 0}, {2, 0}});
    const beryl_value of_columns[] = {
        beryl_graph_mean(g, x, &first, 1, false), beryl_graph_var(g, x, &first, 1, 1, false),
        beryl_graph_norm(g, x, &first, 1, true), beryl_graph_logsumexp(g, x, &first, 1, false)};
    for (int i = 0; i < 4; i++) beryl_graph_output(g, of_columns[i], "y");
    CHECK_INT(t, compile(g, NULL), BERYL_OK);
    CHECK_INT(t, beryl_graph_set(g, x, in, sizeof in, NULL), BERYL_OK);
    run(t, g, 0, 0);
    for (int i = 0; i < 4; i++)
        CHECK_INT(t, beryl_graph_read(g, of_columns[i], columns[i], sizeof *columns, NULL), 0);
    CHECK_NEAR(t, columns[0][0], 7.0 / 3, 1e-6);
    CHECK_NEAR(t, columns[1][1], 28.0 / 3, 1e-5);
    CHECK_NEAR(t, columns[2][0], sqrt(21), 1e-5);
    for (int i = 0; i < 2; i++) CHECK_NEAR(t, columns[3][i], logs[i], 1e-5);
    beryl_graph_close(g);
    g = open_on(t, "host");
    if (!g) return;
    const beryl_value y =
        beryl_graph_input(g, "y", BERYL_TYPE_F32, 2, (beryl_dim[]){{3, 0}, {2, 0}});
    const beryl_value sum = beryl_graph_sum(g, y, NULL, 0, false),
                      parts = beryl_graph_log_softmax(g, y, 0);
    beryl_graph_output(g, sum, "sum");
    beryl_graph_output(g, parts, "parts");
    CHECK_INT(t, compile(g, NULL), BERYL_OK);
    CHECK_INT(t, beryl_graph_set(g, y, in, sizeof in, NULL), BERYL_OK);
    run(t, g, 0, 0);
    CHECK_INT(t, beryl_graph_read(g, sum, &one, sizeof one, NULL), BERYL_OK);
    CHECK_INT(t, beryl_graph_read(g, parts, all, sizeof all, NULL), BERYL_OK);
    CHECK_NEAR(t, one, 24, 0);
    for (int i = 0; i < 6; i++)
        CHECK_NEAR(t, all[i / 2][i % 2], (double)in[i / 2][i % 2] - logs[i % 2], 2e-5);
    beryl_graph_close(g);
}

/* A bias of halves, as files have them. */
static void check_bias(test *t, beryl_graph *g) {
    static const uint16_t halves[5] = {0x3c00, 0x4000, 0xb800, 0x7bff, 0}; /* 1 2 -0.5 65504 0 */
    static const float in[5] = {1, 2, 3, 4, 5};
    float out[5];
    if (!g) return;
    const beryl_value x = beryl_graph_input(g, "x", BERYL_TYPE_F32, 1, (beryl_dim[]){{5, 0}}),
                      bias = beryl_graph_weight(g, "bias", BERYL_TYPE_F16, 1, (uint32_t[]){5},
                                                halves, sizeof halves);
    const beryl_value y = beryl_graph_add(g, x, beryl_graph_cast(g, bias, BERYL_TYPE_F32, false));
    beryl_graph_output(g, y, "y");
    CHECK_INT(t, compile(g, NULL), BERYL_OK);
    CHECK_INT(t, beryl_graph_set(g, x, in, sizeof in, NULL), BERYL_OK);
    run(t, g, 0, 0);
    CHECK_INT(t, beryl_graph_read(g, y, out, sizeof out, NULL), BERYL_OK);
    CHECK_NEAR(t, out[0], 2, 0);
    CHECK_NEAR(t, out[2], 2.5, 0);
    CHECK_NEAR(t, out[3], 65508, 0);
    CHECK_NEAR(t, out[4], 5, 0);
    beryl_graph_close(g);
}

/* Rows of halves times a matrix of values and times a weight, of halves and of F32: halves. */
static void check_linear(test *t, beryl_graph *g) {
    /* 1 2, -0.5 4; 1 0, 0 1, 2 0.5 */
    static const uint16_t rows[4] = {0x3c00, 0x4000, 0xb800, 0x4400},
                          matrix[6] = {0x3c00, 0, 0, 0x3c00, 0x4000, 0x3800},
                          want[6] = {0x3c00, 0x4000, 0x4200, 0xb800, 0x4400, 0x3c00};
    static const float floats[6] = {1, 0, 0, 1, 2, 0.5f};
    const uint32_t sizes[] = {3, 2};
    uint16_t out[6];
    beryl_value y[3];
    if (!g) return;
    const beryl_value
        x = beryl_graph_input(g, "x", BERYL_TYPE_F16, 2, (beryl_dim[]){{2, 0}, {2, 0}}),
        m = beryl_graph_input(g, "m", BERYL_TYPE_F16, 2, (beryl_dim[]){{3, 0}, {2, 0}}),
        all[3] = {m, beryl_graph_weight(g, "w", BERYL_TYPE_F16, 2, sizes, matrix, sizeof matrix),
                  beryl_graph_weight(g, "f", BERYL_TYPE_F32, 2, sizes, floats, sizeof floats)};
    for (uint32_t i = 0; i < 3; i++) {
        y[i] = beryl_graph_copy(g, beryl_graph_linear(g, x, all[i]));
        beryl_graph_output(g, y[i], "y");
    }
    CHECK_INT(t, compile(g, NULL), BERYL_OK);
    CHECK_INT(t, beryl_graph_set(g, x, rows, sizeof rows, NULL), BERYL_OK);
    CHECK_INT(t, beryl_graph_set(g, m, matrix, sizeof matrix, NULL), BERYL_OK);
    run(t, g, 0, 0);
    for (uint32_t i = 0; i < 3; i++) {
        CHECK_INT(t, beryl_graph_read(g, y[i], out, sizeof out, NULL), BERYL_OK);
        CHECK(t, !memcmp(out, want, sizeof out));
    }
    beryl_graph_close(g);
}

static void test_values(test *t) {
    if (test_case(t, "graph_api/softmax-of-a-product")) {
        beryl_graph *g = open_on(t, "reference");
        const float x[2][3] = {{1, 2, 3}, {3, 1, 0}};
        float y[2][4];
        softmax_graph s = make_softmax(g, 8);
        CHECK_INT(t, compile(g, NULL), BERYL_OK);
        CHECK_INT(t, beryl_graph_set(g, s.x, x, sizeof x, NULL), BERYL_OK);
        if (run(t, g, 2, 1)) {
            CHECK_INT(t, beryl_graph_read(g, s.y, y, sizeof y, NULL), BERYL_OK);
            check_softmax(t, &x[0][0], &y[0][0], 2);
        }
        beryl_graph_close(g);
    }
    if (test_case(t, "graph_api/another-extent-each-run")) {
        beryl_graph *g = open_on(t, "reference");
        float x[5][3], y[5][4];
        for (int i = 0; i < 15; i++) (&x[0][0])[i] = (float)(i % 7) * 0.5f - 1;
        softmax_graph s = make_softmax(g, 5);
        CHECK_INT(t, compile(g, NULL), BERYL_OK);
        beryl_graph_set(g, s.x, x, sizeof x, NULL);
        for (uint32_t n = 1; n <= 5; n++) {
            memset(y, 0, sizeof y);
            if (!run(t, g, n, 1)) break;
            CHECK_INT(t, beryl_graph_read(g, s.y, y, n * 16, NULL), BERYL_OK);
            check_softmax(t, &x[0][0], &y[0][0], (int)n);
            CHECK_INT(t, beryl_graph_read(g, s.y, y, n * 16 + 4, NULL), BERYL_MISUSE);
        }
        beryl_graph_close(g);
    }
    if (test_case(t, "graph_api/state-stays-between-runs")) {
        beryl_graph *g = open_on(t, "reference");
        const beryl_value state =
            beryl_graph_state(g, "state", BERYL_TYPE_F32, 2, (uint32_t[]){3, 2});
        const beryl_value x =
            beryl_graph_input(g, "x", BERYL_TYPE_F32, 2, (beryl_dim[]){{1, 0}, {2, 0}});
        const beryl_value at = beryl_graph_input(g, "at", BERYL_TYPE_I32, 1, (beryl_dim[]){{1, 0}});
        const beryl_value all =
            beryl_graph_input(g, "all", BERYL_TYPE_I32, 1, (beryl_dim[]){{3, 0}});
        const beryl_value now =
            beryl_graph_gather_rows(g, beryl_graph_set_rows(g, state, x, at), all, 2);
        beryl_graph_output(g, now, "now");
        CHECK_INT(t, compile(g, NULL), BERYL_OK);
        float got[6] = {0};
        beryl_graph_set(g, all, (int32_t[]){0, 1, 2}, 12, NULL);
        for (int32_t i = 0; i < 3; i++) {
            beryl_graph_set(g, x, (float[]){(float)i + 1, (float)i + 10}, 8, NULL);
            beryl_graph_set(g, at, &i, 4, NULL);
            run(t, g, 0, 0);
        }
        CHECK_INT(t, beryl_graph_read(g, now, got, sizeof got, NULL), BERYL_OK);
        const float want[6] = {2, 20, 4, 22, 6, 24};
        for (int i = 0; i < 6; i++) CHECK_NEAR(t, got[i], want[i], 0);
        beryl_graph_close(g);
    }
    if (test_case(t, "graph_api/quantised-weight-and-views")) {
        beryl_graph *g = open_on(t, "reference");
        unsigned char blocks[2][34]; /* Q8_0 [2, 32]: d = 0.5, quants 0 .. 31 and their negatives */
        for (int r = 0; r < 2; r++) {
            memcpy(blocks[r], (uint16_t[]){0x3800}, 2);
            for (int i = 0; i < 32; i++)
                blocks[r][2 + i] = (unsigned char)(signed char)(r ? -i : i);
        }
        const beryl_value w = beryl_graph_weight(g, "w", BERYL_TYPE_Q8_0, 2, (uint32_t[]){2, 32},
                                                 blocks, sizeof blocks);
        const beryl_value x =
            beryl_graph_input(g, "x", BERYL_TYPE_F32, 2, (beryl_dim[]){{1, 0}, {64, 0}});
        const beryl_value y = beryl_graph_linear(g, beryl_graph_narrow(g, x, 1, 32, 32, 1), w);
        beryl_graph_output(g, y, "y");
        beryl_value indices;
        const beryl_value best = beryl_graph_topk(g, y, 1, 1, &indices);
        beryl_graph_output(g, best, "best");
        beryl_graph_output(g, indices, "indices");
        uint32_t rank = 0;
        beryl_type type;
        beryl_dim dims[10];
        CHECK(t, beryl_graph_shape(g, y, &type, &rank, dims) && rank == 2 && dims[0].size == 1 &&
                     dims[1].size == 2 && type == BERYL_TYPE_F32);
        CHECK_INT(t, compile(g, NULL), BERYL_OK);
        float numbers[64], got[2] = {0}, most = 0;
        int32_t index = -1;
        for (int i = 0; i < 64; i++) numbers[i] = i < 32 ? 1000.0f : 1.0f;
        beryl_graph_set(g, x, numbers, sizeof numbers, NULL);
        if (run(t, g, 0, 0)) {
            beryl_graph_read(g, y, got, sizeof got, NULL);
            beryl_graph_read(g, best, &most, sizeof most, NULL);
            beryl_graph_read(g, indices, &index, sizeof index, NULL);
            CHECK_NEAR(t, got[0], 248, 0);
            CHECK_NEAR(t, got[1], -248, 0);
            CHECK_NEAR(t, most, 248, 0);
            CHECK_INT(t, index, 0);
        }
        beryl_graph_close(g);
    }
    if (test_case(t, "graph_api/sums-and-groups-along-any-axis"))
        check_sums_and_groups(t, open_on(t, "reference"));
    if (test_case(t, "graph_api/sums-and-groups-on-software-device"))
        check_sums_and_groups(t, open_on(t, "webgpu:software"));
    static const char *const devices[] = {"reference", "host", "webgpu:software"};
    for (size_t i = 0; i < sizeof devices / sizeof *devices; i++)
        if (test_case(t, "graph_api/bias-of-halves-on-%s", devices[i]))
            check_bias(t, open_on(t, devices[i]));
    for (size_t i = 0; i < sizeof devices / sizeof *devices; i++)
        if (test_case(t, "graph_api/linear-of-halves-on-%s", devices[i]))
            check_linear(t, open_on(t, devices[i]));
    if (test_case(t, "graph_api/reductions-over-axes"))
        check_reductions(t, open_on(t, "reference"));
    if (test_case(t, "graph_api/reductions-over-axes-on-software-device"))
        check_reductions(t, open_on(t, "webgpu:software"));
    if (test_case(t, "graph_api/runs-on-software-device")) {
        beryl_graph *g = NULL;
        beryl_error error;
        const beryl_graph_options options = {.size = sizeof options, .device = "software"};
        if (beryl_graph_open(&options, &g, &error) != BERYL_OK) {
            test_skip(t, "%s", error.message);
        } else {
            const float x[2][3] = {{1, 2, 3}, {3, 1, 0}};
            float y[2][4];
            softmax_graph s = make_softmax(g, 8);
            CHECK_INT(t, compile(g, &error), BERYL_OK);
            beryl_graph_set(g, s.x, x, sizeof x, NULL);
            for (int i = 0; i < 8; i++) run(t, g, 2, 1); /* more runs than results are kept for */
            beryl_status status;
            while ((status = beryl_graph_read(g, s.y, y, sizeof y, &error)) == BERYL_PENDING)
                base_sleep(2e-4);
            CHECK_INT(t, status, BERYL_OK);
            check_softmax(t, &x[0][0], &y[0][0], 2);
            beryl_device_info info;
            CHECK_INT(t, beryl_graph_device(g, &info), BERYL_OK);
            CHECK_TEXT(t, info.kind, "software");
            beryl_graph_close(g);
        }
    }
}

/* Keys and values are values of the run. Queries of zeros weigh all keys alike, so a row is the
 * mean of the values in its range. */
static void test_range(test *t, const char *device) {
    if (!test_case(t, "graph_api/mean-over-a-range-of-keys-on-%s", device)) return;
    enum { BOUND = 9, N = 7, D = 3 };
    static const int32_t first[N] = {0, 2, -4, 5, 0, INT32_MIN, 2000000000},
                         last[N] = {6, 4, 1, 4, 2000000000, -1, INT32_MAX};
    beryl_graph *g = open_on(t, device);
    const uint32_t n = beryl_graph_extent(g, "n", BOUND);
    const beryl_dim rows[3] = {{BOUND, n}, {1, 0}, {D, 0}},
                    cache[4] = {{1, 0}, {BOUND, n}, {1, 0}, {D, 0}};
    const beryl_value q = beryl_graph_input(g, "q", BERYL_TYPE_F32, 3, rows),
                      v = beryl_graph_input(g, "v", BERYL_TYPE_F32, 3, rows);
    beryl_value at[3];
    for (int i = 0; i < 3; i++) at[i] = beryl_graph_input(g, "at", BERYL_TYPE_I32, 1, rows);
    const beryl_value keys = beryl_graph_reshape(g, beryl_graph_scale(g, v, 2), 4, cache);
    const beryl_value y = beryl_graph_attention_range(g, q, keys, keys, at[0], at[1], at[2], 1);
    beryl_graph_output(g, y, "y");
    float values[N][D], zeros[N][D] = {{0}}, got[N][D] = {{0}};
    for (int i = 0; i < N * D; i++) (&values[0][0])[i] = (float)(i * i % 11) - 4;
    CHECK_INT(t, compile(g, NULL), BERYL_OK);
    beryl_graph_set(g, q, zeros, sizeof zeros, NULL);
    beryl_graph_set(g, v, values, sizeof values, NULL);
    beryl_graph_set(g, at[0], zeros, N * 4, NULL);
    beryl_graph_set(g, at[1], first, sizeof first, NULL);
    beryl_graph_set(g, at[2], last, sizeof last, NULL);
    if (run(t, g, N, 1)) CHECK_INT(t, beryl_graph_read(g, y, got, sizeof got, NULL), BERYL_OK);
    for (int i = 0; i < N; i++)
        for (int e = 0; e < D; e++) {
            double sum = 0, count = 0;
            for (int j = 0; j < N; j++)
                if (j >= first[i] && j <= last[i]) sum += 2 * (double)values[j][e], count++;
            CHECK_NEAR(t, got[i][e], count > 0 ? sum / count : 0, 1e-6);
        }
    beryl_graph_close(g);
}

static void test_wrong_reductions(test *t) {
    beryl_error error;
    if (!test_case(t, "graph_api/wrong-reductions-are-refused")) return;
    static const uint32_t twice[] = {1, 1}, beyond = 2;
    for (int i = 0; i < 3; i++) {
        beryl_graph *g = open_on(t, "reference");
        const beryl_value x = beryl_graph_input(g, "x", BERYL_TYPE_F32, i == 2 ? 0 : 2,
                                                (beryl_dim[]){{2, 0}, {6, 0}});
        CHECK_INT(t, beryl_graph_sum(g, x, i ? &beyond : twice, i == 2 ? 0 : 2 - (uint32_t)i, true),
                  0);
        CHECK_INT(t, beryl_graph_compile(g, &error), BERYL_MISUSE);
        beryl_graph_close(g);
    }
}

/* Element [i, j] of two results is known from where x's elements go. */
static void check_views(test *t, const char *device) {
    enum { ROWS = 5, HALF = 3 };
    beryl_graph *g = open_on(t, device);
    const beryl_dim n = {ROWS, beryl_graph_extent(g, "n", ROWS)};
    const beryl_value x = beryl_graph_input(g, "x", BERYL_TYPE_F32, 2, (beryl_dim[]){n, {6, 0}}),
                      turned = beryl_graph_permute(g, x, 2, (uint32_t[]){1, 0}),
                      odd = beryl_graph_narrow(g, turned, 0, 1, HALF, 2),
                      back = beryl_graph_flip(g, odd, 0),
                      all = beryl_graph_expand(g, beryl_graph_unsqueeze(g, back, 0), 3,
                                               (beryl_dim[]){{2, 0}, {HALF, 0}, n}),
                      same = beryl_graph_squeeze(
                          g, beryl_graph_diagonal(g, beryl_graph_unsqueeze(g, all, 0), 0, 1), 2);
    beryl_value parts[2], none[2] = {7, 7};
    beryl_dim dims[10];
    uint32_t rank;
    beryl_graph_split(g, x, 1, 2, parts);
    const beryl_value sum = beryl_graph_add(g, all, beryl_graph_scale(g, odd, 100)),
                      both = beryl_graph_add(g, parts[0], beryl_graph_scale(g, parts[1], 100));
    CHECK(t, beryl_graph_shape(g, same, NULL, &rank, dims) && rank == 2);
    CHECK(t, dims[0].size == HALF && dims[1].extent == n.extent);
    beryl_graph_output(g, sum, "sum");
    beryl_graph_output(g, both, "both");
    const beryl_value padded = beryl_graph_pad(g, beryl_graph_flip(g, x, 1), 1, 1, 2, 0.5f),
                      total = beryl_graph_sum(g, padded, (uint32_t[]){1}, 1, false);
    beryl_graph_output(g, total, "total");
    float numbers[ROWS][6], got[2][HALF][ROWS], other[ROWS][HALF], sums[ROWS];
    for (int i = 0; i < ROWS * 6; i++) (&numbers[0][0])[i] = (float)i;
    CHECK_INT(t, compile(g, NULL), BERYL_OK);
    beryl_graph_set(g, x, numbers, sizeof numbers, NULL);
    for (uint32_t rows = ROWS; rows > 0 && run(t, g, rows, 1); rows -= 2) {
        CHECK_INT(t, beryl_graph_read(g, sum, got, sizeof got, NULL), BERYL_OK);
        CHECK_INT(t, beryl_graph_read(g, both, other, rows * HALF * sizeof(float), NULL), BERYL_OK);
        CHECK_INT(t, beryl_graph_read(g, total, sums, rows * sizeof(float), NULL), BERYL_OK);
        for (uint32_t i = 0; i < rows; i++) CHECK_NEAR(t, sums[i], 36 * i + 15 + 1.5, 0);
        for (uint32_t i = 0; i < rows; i++)
            for (uint32_t k = 0; k < HALF; k++) {
                const float here = numbers[i][1 + 2 * k], there = numbers[i][1 + 2 * (2 - k)];
                CHECK_NEAR(t, got[0][k][i], there + 100 * here, 0);
                CHECK_NEAR(t, got[1][k][i], there + 100 * here, 0);
                CHECK_NEAR(t, other[i][k], numbers[i][k] + 100 * numbers[i][HALF + k], 0);
            }
        if (rows < 2) break;
    }
    beryl_graph_close(g);
    g = open_on(t, device);
    beryl_graph_split(g, beryl_graph_input(g, "x", BERYL_TYPE_F32, 1, (beryl_dim[]){{5, 0}}), 0, 2,
                      none);
    CHECK(t, !none[0] && !none[1]);
    CHECK_INT(t, compile(g, NULL), BERYL_MISUSE);
    beryl_graph_close(g);
}

/* Made of each other: [5, 3] rolled, tiled, repeated, stacked; seven behind another. */
static void check_maps(test *t, const char *device) {
    enum { ROWS = 5, WIDTH = 3, MANY = 7 };
    beryl_graph *g = open_on(t, device);
    const beryl_dim n = {ROWS, beryl_graph_extent(g, "n", ROWS)};
    const beryl_value x = beryl_graph_input(g, "x", BERYL_TYPE_F32, 2,
                                            (beryl_dim[]){n, {WIDTH, 0}}),
                      rolled = beryl_graph_roll(g, x, 1, WIDTH + 1),
                      other = beryl_graph_scale(g, x, -1);
    beryl_value many[MANY];
    for (int i = 0; i < MANY; i++) many[i] = i % 2 ? other : rolled;
    const beryl_value all = beryl_graph_concat(g, MANY, many, 1),
                      tiled = beryl_graph_copy(g, beryl_graph_tile(g, x, 1, 2)),
                      twice = beryl_graph_copy(g, beryl_graph_repeat(g, x, 0, 2)),
                      stacked = beryl_graph_stack(g, 2, (beryl_value[]){x, rolled}, 1);
    beryl_graph_output(g, all, "all");
    beryl_graph_output(g, tiled, "tiled");
    beryl_graph_output(g, twice, "twice");
    beryl_graph_output(g, stacked, "stacked");
    float numbers[ROWS][WIDTH], a[ROWS][MANY][WIDTH], b[ROWS][2][WIDTH], c[ROWS][2][WIDTH],
        d[ROWS][2][WIDTH];
    for (int i = 0; i < ROWS * WIDTH; i++) (&numbers[0][0])[i] = (float)i;
    CHECK_INT(t, compile(g, NULL), BERYL_OK);
    beryl_graph_set(g, x, numbers, sizeof numbers, NULL);
    if (run(t, g, ROWS, 1)) {
        CHECK_INT(t, beryl_graph_read(g, all, a, sizeof a, NULL), BERYL_OK);
        CHECK_INT(t, beryl_graph_read(g, tiled, b, sizeof b, NULL), BERYL_OK);
        CHECK_INT(t, beryl_graph_read(g, twice, c, sizeof c, NULL), BERYL_OK);
        CHECK_INT(t, beryl_graph_read(g, stacked, d, sizeof d, NULL), BERYL_OK);
    }
    for (int i = 0; i < ROWS && !test_failed(t); i++)
        for (int k = 0; k < WIDTH; k++) {
            const float here = numbers[i][k], turned = numbers[i][(k + WIDTH - 1) % WIDTH];
            for (int l = 0; l < MANY; l++) CHECK_NEAR(t, a[i][l][k], l % 2 ? -here : turned, 0);
            for (int l = 0; l < 2; l++) {
                CHECK_NEAR(t, b[i][l][k], here, 0);
                CHECK_NEAR(t, c[i][l][k], here, 0);
                CHECK_NEAR(t, d[i][l][k], l ? turned : here, 0);
            }
        }
    beryl_graph_close(g);
    for (int i = 0; i < 5; i++) {
        g = open_on(t, device);
        const beryl_value y = beryl_graph_input(g, "y", BERYL_TYPE_F32, 1, (beryl_dim[]){{5, 0}});
        const beryl_value wrong[] = {y, 0};
        CHECK_INT(t,
                  i == 0   ? beryl_graph_concat(g, 0, NULL, 0)
                  : i == 1 ? beryl_graph_concat(g, 2, wrong, 0)
                  : i == 2 ? beryl_graph_stack(g, 2, wrong, 0)
                  : i == 3 ? beryl_graph_tile(g, y, 0, 0)
                           : beryl_graph_roll(g, y, 1, 1),
                  0);
        CHECK_INT(t, compile(g, NULL), BERYL_MISUSE);
        beryl_graph_close(g);
    }
}

static void test_misuse(test *t) {
    beryl_error error = {0};
    if (test_case(t, "graph_api/views-are-read-where-they-lie")) {
        check_views(t, "reference");
        check_views(t, "host");
        check_maps(t, "reference");
        check_maps(t, "host");
    }
    if (test_case(t, "graph_api/parts-of-caches-and-lists-are-refused")) {
        for (int i = 0; i < 5; i++) {
            beryl_graph *g = open_on(t, "reference");
            const uint32_t dims[4] = {2, 6, 1, 32};
            const beryl_value cache =
                beryl_graph_state(g, "cache", i == 3 ? BERYL_TYPE_Q8_0 : BERYL_TYPE_F32, 4, dims);
            const beryl_value x = beryl_graph_input(g, "x", BERYL_TYPE_F32, 3,
                                                    (beryl_dim[]){{1, 0}, {1, 0}, {32, 0}}),
                              at = beryl_graph_input(g, "at", BERYL_TYPE_I32, 1,
                                                     (beryl_dim[]){{1, 0}});
            const beryl_value slot = beryl_graph_narrow(g, cache, 0, 1, 1, 1),
                              gaps = beryl_graph_narrow(g, cache, 1, 0, 3, 1);
            CHECK(t, slot && gaps);
            if (i == 0) CHECK_INT(t, beryl_graph_kv_write(g, slot, x, at, at), 0);
            if (i == 1) CHECK(t, beryl_graph_attention(g, x, slot, slot, at, at, 1, 0) != 0);
            if (i == 2) CHECK_INT(t, beryl_graph_attention(g, x, gaps, gaps, at, at, 1, 0), 0);
            if (i == 3) CHECK_INT(t, beryl_graph_attention(g, x, slot, slot, at, at, 1, 0), 0);
            if (i == 4) { /* a column of numbers is no list of positions */
                const beryl_value two =
                    beryl_graph_input(g, "two", BERYL_TYPE_I32, 2, (beryl_dim[]){{3, 0}, {2, 0}});
                const beryl_value column = beryl_graph_squeeze(
                                      g, beryl_graph_narrow(g, two, 1, 1, 1, 1), 1),
                                  rows = beryl_graph_input(g, "rows", BERYL_TYPE_F32, 3,
                                                           (beryl_dim[]){{3, 0}, {1, 0}, {32, 0}});
                CHECK(t, column && rows);
                CHECK_INT(t, beryl_graph_kv_write(g, cache, rows, column, column), 0);
            }
            if (i != 1) CHECK_INT(t, beryl_graph_compile(g, &error), BERYL_UNSUPPORTED);
            beryl_graph_close(g);
        }
    }
    if (test_case(t, "graph_api/misuse-is-a-status")) {
        beryl_graph *g = NULL;
        CHECK_INT(t, beryl_graph_open(NULL, NULL, &error), BERYL_MISUSE);
        CHECK_INT(t, beryl_graph_open(&(beryl_graph_options){.size = 1}, &g, &error), BERYL_MISUSE);
        CHECK(t, !g);
        CHECK_INT(t, beryl_graph_compile(NULL, &error), BERYL_MISUSE);
        CHECK_INT(t, beryl_graph_run(NULL, NULL, 0, &error), BERYL_MISUSE);
        CHECK_INT(t, beryl_graph_add(NULL, 1, 2), 0);
        beryl_graph_close(NULL);
        g = open_on(t, "reference");
        CHECK_INT(t, beryl_graph_run(g, NULL, 0, &error), BERYL_MISUSE);
        CHECK_INT(t, beryl_graph_compile(g, &error), BERYL_MISUSE); /* no output */
        beryl_graph_close(g);
        CHECK_INT(t,
                  beryl_graph_open(&(beryl_graph_options){.size = sizeof(beryl_graph_options),
                                                          .device = "no such"},
                                   &g, &error),
                  BERYL_NO_DEVICE);
        CHECK_INT(t,
                  beryl_graph_open(
                      &(beryl_graph_options){.size = sizeof(beryl_graph_options), .device = "disk"},
                      &g, &error),
                  BERYL_UNSUPPORTED);
        CHECK(t, !g && strstr(error.message, "disk:0 keeps memory but runs no programs"));
    }
    if (test_case(t, "graph_api/first-building-error-sticks")) {
        beryl_graph *g = open_on(t, "reference");
        const beryl_value x =
            beryl_graph_input(g, "x", BERYL_TYPE_F32, 2, (beryl_dim[]){{1, 0}, {5, 0}});
        const beryl_value w = beryl_graph_weight(g, "w", BERYL_TYPE_F32, 2, (uint32_t[]){4, 3},
                                                 weight, sizeof weight);
        CHECK_INT(t, beryl_graph_linear(g, x, w), 0);
        CHECK_INT(t, beryl_graph_softmax(g, x), 0);
        beryl_graph_output(g, x, "x");
        CHECK_INT(t, beryl_graph_compile(g, &error), BERYL_MISUSE);
        CHECK(t, strstr(error.message, "linear") != NULL);
        CHECK_INT(t, beryl_graph_compile(g, &error), BERYL_MISUSE);
        beryl_graph_close(g);
    }
    if (test_case(t, "graph_api/wrong-axes-and-groups-are-refused")) {
        static const struct {
            uint32_t rank, axis, groups; /* groups 0: cumsum */
            const char *what;
        } wrong[] = {{2, 2, 0, "cumsum along axis 2 of 2"},
                     {0, 0, 0, "cumsum along axis 0 of 0"},
                     {2, 0, 4, "group_norm: 6 channels in 4 groups"},
                     {3, 0, 7, "group_norm: 6 channels in 7 groups"},
                     {1, 0, 1, "group_norm of rank 1"},
                     {10, 0, 1, "group_norm of rank 10"}};
        static const beryl_dim shape[10] = {{2, 0}, {6, 0}, {1, 0}, {1, 0}, {1, 0},
                                            {1, 0}, {1, 0}, {1, 0}, {1, 0}, {1, 0}};
        for (size_t i = 0; i < sizeof wrong / sizeof *wrong; i++) {
            beryl_graph *g = open_on(t, "reference");
            const beryl_value x = beryl_graph_input(g, "x", BERYL_TYPE_F32, wrong[i].rank, shape);
            CHECK_INT(t,
                      wrong[i].groups ? beryl_graph_group_norm(g, x, 0, 0, wrong[i].groups, 1)
                                      : beryl_graph_cumsum(g, x, wrong[i].axis),
                      0);
            CHECK(t, beryl_graph_compile(g, &error) != BERYL_OK);
            CHECK(t, strstr(error.message, wrong[i].what) != NULL);
            beryl_graph_close(g);
        }
        beryl_graph *g = open_on(t, "reference");
        const beryl_value x = beryl_graph_input(g, "x", BERYL_TYPE_F32, 2, shape),
                          w = beryl_graph_input(g, "w", BERYL_TYPE_F32, 1, shape);
        CHECK_INT(t, beryl_graph_group_norm(g, x, w, 0, 2, 1), 0);
        CHECK_INT(t, beryl_graph_compile(g, &error), BERYL_MISUSE);
        CHECK(t, strstr(error.message, "group_norm: weight or bias of another size than 6"));
        beryl_graph_close(g);
    }
    if (test_case(t, "graph_api/wrong-tensors-are-refused")) {
        static const struct {
            beryl_type type;
            uint32_t rank, dim[4];
            size_t size;
        } wrong[] = {
            {BERYL_TYPE_F32, 2, {4, 3, 0, 0}, 44},
            {BERYL_TYPE_F32, 2, {4, 0, 0, 0}, 0},
            {BERYL_TYPE_Q8_0, 1, {33, 0, 0, 0}, 34},
            {BERYL_TYPE_F32, 5, {1, 1, 1, 1}, 4},
            {BERYL_TYPE_F32, 0, {0, 0, 0, 0}, 4},
            {(beryl_type)99, 1, {4, 0, 0, 0}, 16},
            {BERYL_TYPE_F32, 2, {0xffffffffu, 0xffffffffu, 0, 0}, 4},
            {BERYL_TYPE_F32, 4, {65536, 65536, 65536, 65536}, 0},
        };
        for (size_t i = 0; i < sizeof wrong / sizeof *wrong; i++) {
            beryl_graph *g = open_on(t, "reference");
            CHECK_INT(t,
                      beryl_graph_weight(g, "wrong", wrong[i].type, wrong[i].rank, wrong[i].dim,
                                         weight, wrong[i].size),
                      0);
            CHECK(t, beryl_graph_compile(g, &error) != BERYL_OK);
            CHECK(t, strstr(error.message, "wrong") != NULL);
            beryl_graph_close(g);
        }
        beryl_graph *g = open_on(t, "reference");
        CHECK_INT(t, beryl_graph_input(g, "x", BERYL_TYPE_Q4_K, 1, (beryl_dim[]){{256, 0}}), 0);
        CHECK_INT(t, beryl_graph_compile(g, &error), BERYL_UNSUPPORTED);
        beryl_graph_close(g);
        g = open_on(t, "reference");
        CHECK_INT(t, beryl_graph_input(g, "x", BERYL_TYPE_F32, 1, (beryl_dim[]){{3, 7}}), 0);
        CHECK_INT(t, beryl_graph_compile(g, &error), BERYL_MISUSE);
        beryl_graph_close(g);
    }
    if (test_case(t, "graph_api/wrong-runs-are-refused")) {
        beryl_graph *g = open_on(t, "reference");
        softmax_graph s = make_softmax(g, 4);
        float numbers[16] = {0};
        CHECK_INT(t, compile(g, &error), BERYL_OK);
        CHECK_INT(t, beryl_graph_add(g, s.y, s.y), 0); /* too late */
        CHECK_INT(t, beryl_graph_set(g, s.y, numbers, 4, &error), BERYL_MISUSE);
        CHECK_INT(t, beryl_graph_set(g, 1000, numbers, 4, &error), BERYL_MISUSE);
        CHECK_INT(t, beryl_graph_set(g, s.x, numbers, 52, &error), BERYL_MISUSE);
        CHECK_INT(t, beryl_graph_set(g, s.x, NULL, 4, &error), BERYL_MISUSE);
        CHECK_INT(t, beryl_graph_read(g, s.y, numbers, 4, &error), BERYL_MISUSE); /* nothing ran */
        CHECK_INT(t, beryl_graph_run(g, NULL, 0, &error), BERYL_MISUSE);
        CHECK_INT(t, beryl_graph_run(g, NULL, 1, &error), BERYL_MISUSE);
        CHECK_INT(t, beryl_graph_run(g, (uint32_t[]){1, 1}, 2, &error), BERYL_MISUSE);
        CHECK_INT(t, beryl_graph_run(g, (uint32_t[]){5}, 1, &error), BERYL_MISUSE);
        CHECK_INT(t, beryl_graph_run(g, (uint32_t[]){0}, 1, &error), BERYL_OK);
        CHECK_INT(t, beryl_graph_read(g, s.y, NULL, 0, &error), BERYL_OK);
        CHECK_INT(t, beryl_graph_read(g, s.y, numbers, 4, &error), BERYL_MISUSE);
        CHECK_INT(t, beryl_graph_run(g, (uint32_t[]){4}, 1, &error), BERYL_OK);
        CHECK_INT(t, beryl_graph_read(g, s.x, numbers, 4, &error), BERYL_MISUSE);
        CHECK_INT(t, beryl_graph_read(g, s.y, NULL, 4, &error), BERYL_MISUSE);
        CHECK_INT(t, beryl_graph_read(g, s.y, numbers, 64, &error), BERYL_OK);
        beryl_graph_close(g);
    }
}

/* ---- memory ---------------------------------------------------------------------------------- */

typedef struct limit {
    long left;
    size_t out;
} limit;

static void *limited(void *user, void *memory, size_t old_size, size_t new_size) {
    limit *l = user;
    if (new_size && l->left-- <= 0) return NULL;
    void *p = new_size ? realloc(memory, new_size) : (free(memory), NULL);
    if (new_size && !p) abort();
    l->out += new_size - (memory ? old_size : 0);
    return p;
}

static beryl_status whole_life(const char *device, limit *l) {
    beryl_graph *g;
    const beryl_graph_options options = {
        .size = sizeof options, .device = device, .allocator = {limited, l}};
    beryl_status status = beryl_graph_open(&options, &g, NULL);
    if (status != BERYL_OK) return status;
    softmax_graph s = make_softmax(g, 4);
    status = compile(g, NULL);
    const float x[3] = {1, 2, 3};
    float y[4];
    if (status == BERYL_OK) status = beryl_graph_set(g, s.x, x, sizeof x, NULL);
    if (status == BERYL_OK) status = beryl_graph_run(g, (uint32_t[]){1}, 1, NULL);
    if (status == BERYL_OK) status = beryl_graph_wait(g, NULL);
    if (status == BERYL_OK) status = beryl_graph_read(g, s.y, y, sizeof y, NULL);
    beryl_graph_close(g);
    return status;
}

void test_graph_api(test *t) {
    test_values(t);
    test_sizes(t);
    test_range(t, "reference");
    test_range(t, "host");
    test_wrong_reductions(t);
    test_misuse(t);
    static const char *const devices[] = {"reference", "dummy"};
    for (int d = 0; d < 2; d++) {
        if (!test_case(t, "graph_api/no-memory-at-any-call-on-%s", devices[d])) continue;
        beryl_status status = BERYL_NO_MEMORY;
        for (long n = 0; n < 5000 && status == BERYL_NO_MEMORY; n++) {
            limit l = {.left = n};
            status = whole_life(devices[d], &l);
            if (status != BERYL_OK && status != BERYL_NO_MEMORY)
                test_fail(t, __FILE__, __LINE__, "call %ld: %s", n, beryl_status_name(status));
            CHECK_INT(t, l.out, 0);
            if (test_failed(t)) break;
        }
        CHECK_INT(t, status, BERYL_OK);
    }
}
