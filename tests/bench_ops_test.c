/* bench_ops_test.c - operations on their own: every usual case runs, counts are right, what
 * cannot be is refused by name. */
#include "beryl.h"
#include "test.h"

#include <string.h>

static beryl_bench *opened(test *t, const char *device) {
    beryl_bench *bench = NULL;
    beryl_error error = {0};
    const beryl_bench_options options = {
        .size = sizeof options, .device = device, .no_cache = true};
    const beryl_status status = beryl_bench_open(&options, &bench, &error);
    if (status == BERYL_NO_DEVICE) test_skip(t, "%s", error.message);
    else if (status != BERYL_OK) test_fail(t, __FILE__, __LINE__, "%s", error.message);
    return bench;
}

/* Shapes small enough that a whole table takes no time. */
static void small_shape(beryl_bench_case *what) {
    const bool attends = !strcmp(what->op, "attention"),
               heads = !strcmp(what->letters, "ROWS,HEADS,DIM"),
               product = !strcmp(what->letters, "M,N,K");
    const uint32_t shape[4] = {attends   ? 2
                               : product ? 64
                                         : 4,
                               product   ? 2
                               : attends ? 32
                               : heads   ? 2
                                         : 256,
                               product   ? 256
                               : attends ? 2
                                         : 32,
                               32};
    what->n_shape = attends ? 4 : product || heads ? 3 : 2;
    memcpy(what->shape, shape, sizeof shape);
    if (!strncmp(what->op, "attention_", 10)) { /* its backward pass */
        what->n_shape = strcmp(what->op, "attention_sums") ? 4 : 3;
        memcpy(what->shape, (const uint32_t[]){24, 2, 32, 1}, sizeof what->shape);
    }
    if (strcmp(what->op, "contract")) return;
    what->n_shape = 4;
    memcpy(what->shape, (const uint32_t[]){24, 16, 64, 3}, sizeof what->shape);
}

/* BERYL_OK for every usual case. */
static void check_all(test *t, beryl_bench *bench) {
    beryl_bench_case what;
    beryl_bench_result result;
    beryl_error error = {0};
    uint32_t n = 0;
    for (uint32_t i = 0; beryl_bench_usual(i, &what); i++, n++) {
        small_shape(&what);
        if (beryl_bench_op(bench, &what, &result, &error) != BERYL_OK)
            test_fail(t, __FILE__, __LINE__, "%s %s: %s", what.op, what.type, error.message);
        else
            CHECK(t, result.seconds > 0 && result.bytes > 0 && result.dispatches > 0 &&
                         !strcmp(result.what.op, what.op));
    }
    CHECK(t, n > 30);
    CHECK(t, beryl_bench_usual(0, NULL) && !beryl_bench_usual(n, NULL)); /* to be counted alone */
}

static void check_counts(test *t, beryl_bench *bench) {
    beryl_bench_result r;
    const beryl_bench_case product = {
        .op = "linear", .type = "Q4_K", .n_shape = 3, .shape = {64, 2, 512}};
    CHECK_INT(t, beryl_bench_op(bench, &product, &r, NULL), BERYL_OK);
    CHECK_INT(t, r.operations, 2 * 64 * 2 * 512);
    CHECK_INT(t, r.bytes, 64 * 2 * 144 + 2 * 512 * 4 + 64 * 2 * 4);
    const beryl_bench_case attention = {
        .op = "attention", .type = "F16", .n_shape = 4, .shape = {2, 8, 2, 32}};
    CHECK_INT(t, beryl_bench_op(bench, &attention, &r, NULL), BERYL_OK);
    CHECK_INT(t, r.operations, 4 * (7 + 8) * 2 * 32);
    const beryl_bench_case row = {.op = "add", .n_shape = 2, .shape = {3, 128}};
    CHECK_INT(t, beryl_bench_op(bench, &row, &r, NULL), BERYL_OK);
    CHECK_INT(t, r.bytes, 3 * 3 * 128 * 4);
    CHECK_TEXT(t, r.what.type, "F32");
    CHECK_TEXT(t, r.what.letters, "ROWS,WIDTH");
}

static bool alike(double x, double y) {
    return x * 3 > y && y * 3 > x;
}

/* One processor, so one memory and one arithmetic: what is far apart is a probe that measures
 * something else. Others take their share of the machine at times, so the best of a few counts. */
static void check_rates(test *t) {
    static const char *const devices[2] = {"host", "opencl"};
    double best[2][3] = {{0}};
    bool all = false;
    for (int turn = 0; turn < 6 && !all; turn++) {
        for (int d = 0; d < 2; d++) {
            beryl_bench_info info = {0};
            beryl_bench *bench = opened(t, devices[d]);
            if (!bench) return;
            beryl_bench_info_get(bench, &info);
            const bool processor =
                !strcmp(info.device.kind, "software") || !strcmp(info.device.kind, "host");
            const double rates[3] = {info.read, info.copy, info.f32};
            beryl_bench_close(bench);
            if (!processor) {
                test_skip(t, "OpenCL's first device is a GPU");
                return;
            }
            for (int r = 0; r < 3; r++)
                if (rates[r] > best[d][r]) best[d][r] = rates[r];
        }
        all = alike(best[0][0], best[1][0]) && alike(best[0][1], best[1][1]) &&
              alike(best[0][2], best[1][2]);
    }
    if (!all)
        test_fail(t, __FILE__, __LINE__,
                  "G/s of reading, copying, arithmetic: host %.0f %.0f %.0f, opencl %.0f %.0f %.0f",
                  best[0][0] / 1e9, best[0][1] / 1e9, best[0][2] / 1e9, best[1][0] / 1e9,
                  best[1][1] / 1e9, best[1][2] / 1e9);
}

static void check_refused(test *t, beryl_bench *bench) {
    static const struct {
        beryl_bench_case what;
        beryl_status status;
    } cases[] = {
        {{.op = "frobnicate"}, BERYL_NOT_FOUND},
        {{.op = NULL}, BERYL_NOT_FOUND},
        {{.op = "linear", .type = "Q9_Z"}, BERYL_NOT_FOUND},
        {{.op = "add", .type = "Q4_K"}, BERYL_UNSUPPORTED},
        {{.op = "add", .n_shape = 3, .shape = {1, 2, 3}}, BERYL_BAD_INPUT},
        {{.op = "add", .n_shape = 2, .shape = {0, 2}}, BERYL_BAD_INPUT},
        {{.op = "add", .n_shape = 2, .shape = {1u << 24, 1u << 24}}, BERYL_BAD_INPUT},
        {{.op = "linear", .type = "Q4_K", .n_shape = 3, .shape = {8, 1, 100}}, BERYL_BAD_INPUT},
        {{.op = "attention", .n_shape = 4, .shape = {9, 8, 2, 32}}, BERYL_BAD_INPUT},
    };
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        beryl_bench_result r;
        beryl_error error = {0};
        CHECK_INT(t, beryl_bench_op(bench, &cases[i].what, &r, &error), cases[i].status);
        CHECK_INT(t, error.code, cases[i].status);
        CHECK(t, error.message[0] != 0);
    }
}

void test_bench_ops(test *t) {
    static const char *const devices[] = {"reference", "host", "software"};
    for (size_t i = 0; i < sizeof devices / sizeof *devices; i++) {
        if (!test_case(t, "bench_ops/usual-cases-on-%s", devices[i])) continue;
        beryl_bench *bench = opened(t, devices[i]);
        if (bench) check_all(t, bench);
        beryl_bench_close(bench);
    }
    if (test_case(t, "bench_ops/rates-of-the-device")) {
        beryl_bench *bench = opened(t, "host");
        beryl_bench_info info = {0};
        if (bench) beryl_bench_info_get(bench, &info);
        if (bench)
            CHECK(t, info.read > 1e7 && info.copy > 1e7 && info.f32 > 1e7 &&
                         !strcmp(info.device.backend, "host"));
        beryl_bench_close(bench);
    }
    if (test_case(t, "bench_ops/opencl-on-a-processor-measures-what-host-does")) check_rates(t);
    if (test_case(t, "bench_ops/counts")) {
        beryl_bench *bench = opened(t, "reference");
        if (bench) check_counts(t, bench);
        beryl_bench_close(bench);
    }
    if (test_case(t, "bench_ops/refused")) {
        beryl_bench *bench = opened(t, "reference");
        if (bench) check_refused(t, bench);
        beryl_bench_close(bench);
        const beryl_bench_options dummy = {.size = sizeof dummy, .device = "dummy"},
                                  wrong = {.size = 3};
        CHECK_INT(t, beryl_bench_open(&dummy, &bench, NULL), BERYL_UNSUPPORTED);
        CHECK_INT(t, beryl_bench_open(&wrong, &bench, NULL), BERYL_MISUSE);
        beryl_bench_close(NULL);
    }
}
