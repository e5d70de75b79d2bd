/* affine_test.c - weights of whole numbers with scales and zero points, and of floats of 8 bits,
 * through the public calls: products against plain loops in double, gradients towards the vectors,
 * and what is refused. */
#include "test.h"

#include "base/types.h"
#include "beryl_nn.h"

#include <math.h>
#include <string.h>

enum { M = 3, K = 96, N = 2 };

static const struct affine_case {
    const char *name;
    uint32_t bits, group;
    bool is_signed, zeros;
} cases[] = {
    {"int8-of-rows", 8, 0, true, false},      {"int8-of-groups", 8, 32, true, true},
    {"uint8-with-zeros", 8, 96, false, true}, {"int4-of-groups", 4, 32, true, false},
    {"uint4-with-zeros", 4, 32, false, true}, {"uint4-of-rows", 4, 0, false, true},
};

/* Code i as a number, and where it lies in bytes. */
static int code_at(const struct affine_case *c, uint32_t i, uint8_t *bytes) {
    const uint32_t mask = c->bits == 8 ? 255 : 15, code = (i * 37 + i / 7 * 11 + 5) & mask;
    if (c->bits == 8) bytes[i] = (uint8_t)code;
    else bytes[i / 2] |= (uint8_t)(code << i % 2 * 4);
    return c->is_signed && code > mask / 2 ? (int)code - (int)mask - 1 : (int)code;
}

static float x_at(uint32_t i) {
    return (float)((int)(i * 29 % 31) - 15) / 16;
}

/* y, and the gradient of the sum of squares of y towards x. */
static void run(test *t, beryl_graph *g, beryl_value x, beryl_value w, float y[N * M],
                float d[N * K]) {
    beryl_error error = {0};
    beryl_status status;
    float numbers[N * K];
    const beryl_value out = beryl_graph_linear(g, x, w);
    beryl_value slope;
    beryl_graph_gradient(g, beryl_graph_sum(g, beryl_graph_square(g, out), NULL, 0, false), 1, &x,
                         &slope);
    beryl_graph_output(g, out, "y");
    beryl_graph_output(g, slope, "d");
    while ((status = beryl_graph_compile(g, &error)) == BERYL_PENDING) {}
    for (uint32_t i = 0; i < N * K; i++) numbers[i] = x_at(i);
    if (status == BERYL_OK) status = beryl_graph_set(g, x, numbers, sizeof numbers, &error);
    if (status == BERYL_OK) status = beryl_graph_run(g, NULL, 0, &error);
    if (status == BERYL_OK) status = beryl_graph_wait(g, &error);
    if (status == BERYL_OK) status = beryl_graph_read(g, out, y, N * M * sizeof *y, &error);
    if (status == BERYL_OK) status = beryl_graph_read(g, slope, d, N * K * sizeof *d, &error);
    if (status != BERYL_OK) test_fail(t, __FILE__, __LINE__, "%s", error.message);
}

/* w in double; sums of 96 products below 8, and of 3. */
static void compare(test *t, const double w[M * K], const float y[N * M], const float d[N * K]) {
    for (uint32_t n = 0; n < N && !test_failed(t); n++) {
        double want[M], slope;
        for (uint32_t m = 0; m < M; m++) {
            want[m] = 0;
            for (uint32_t k = 0; k < K; k++) want[m] += (double)x_at(n * K + k) * w[m * K + k];
            CHECK_NEAR(t, (double)y[n * M + m], want[m], 2e-5 * (1 + fabs(want[m])));
        }
        for (uint32_t k = 0; k < K && !test_failed(t); k++) {
            slope = 0;
            for (uint32_t m = 0; m < M; m++) slope += 2 * want[m] * w[m * K + k];
            CHECK_NEAR(t, (double)d[n * K + k], slope, 1e-4 * (1 + fabs(slope)));
        }
    }
}

static beryl_graph *opened(test *t, const char *device, beryl_value *x) {
    const beryl_graph_options options = {.size = sizeof options, .device = device};
    const beryl_dim dims[] = {{N, 0}, {K, 0}};
    beryl_graph *g = NULL;
    beryl_error error = {0};
    const beryl_status status = beryl_graph_open(&options, &g, &error);
    if (status == BERYL_NO_DEVICE) test_skip(t, "%s", error.message);
    else if (status != BERYL_OK) test_fail(t, __FILE__, __LINE__, "%s", error.message);
    else *x = beryl_graph_input(g, "x", BERYL_TYPE_F32, 2, dims);
    return g;
}

static void check_affine(test *t, const char *device, const struct affine_case *c) {
    static const uint32_t dims[] = {M, K};
    uint8_t codes[M * K] = {0};
    float scales[M * K / 32], zeros[M * K / 32], y[N * M], d[N * K];
    double w[M * K];
    const uint32_t group = c->group ? c->group : K;
    for (uint32_t i = 0; i < M * K / group; i++) {
        scales[i] = 0.0123f * (float)(1 + i % 4) / (c->bits == 8 ? 16 : 1);
        zeros[i] = (float)(c->bits == 8 ? 100 + 7 * i : 3 + i % 9);
    }
    for (uint32_t i = 0; i < M * K; i++) {
        const int code = code_at(c, i, codes);
        w[i] = (double)scales[i / group] * (code - (c->zeros ? (double)zeros[i / group] : 0));
    }
    beryl_value x = 0;
    beryl_graph *g = opened(t, device, &x);
    if (!g) return;
    const beryl_affine how = {c->bits, c->is_signed, c->group, scales, c->zeros ? zeros : NULL};
    const beryl_value weight =
        beryl_graph_weight_affine(g, "w", 2, dims, codes, M * K * c->bits / 8, &how);
    memset(codes, 0, sizeof codes); /* they are copied */
    run(t, g, x, weight, y, d);
    if (!test_failed(t)) compare(t, w, y, d);
    beryl_graph_close(g);
}

static void check_floats(test *t, const char *device, bool long_one) {
    static const uint32_t dims[] = {M, K};
    uint8_t codes[M * K];
    float y[N * M], d[N * K];
    double w[M * K];
    for (uint32_t i = 0; i < M * K; i++) {
        /* all exponents up to 1, and what is below the smallest of them */
        codes[i] = (uint8_t)(i * 83 % 256 & 0xbf);
        const int bits = long_one ? 3 : 2, bias = long_one ? 7 : 15, code = codes[i] & 127,
                  exponent = code >> bits, fraction = code & ((1 << bits) - 1);
        w[i] =
            ldexp(fraction + (exponent ? 1 << bits : 0), (exponent ? exponent : 1) - bias - bits);
        if (codes[i] & 128) w[i] = -w[i];
    }
    beryl_value x = 0;
    beryl_graph *g = opened(t, device, &x);
    if (!g) return;
    const beryl_value weight = beryl_graph_weight(
        g, "w", long_one ? BERYL_TYPE_F8_E4M3 : BERYL_TYPE_F8_E5M2, 2, dims, codes, sizeof codes);
    run(t, g, x, weight, y, d);
    if (!test_failed(t)) compare(t, w, y, d);
    beryl_graph_close(g);
}

static void check_refused(test *t) {
    static const float scales[16] = {1};
    static const uint8_t codes[M * K];
    static const struct {
        beryl_affine how;
        uint32_t rank, rows, k;
        size_t size;
        beryl_status status;
        const char *message;
    } refused[] = {
        {{5, true, 0, scales, NULL}, 2, M, K, M * K, BERYL_MISUSE, "codes of 8 or 4 bits"},
        {{8, true, 0, NULL, NULL}, 2, M, K, M * K, BERYL_MISUSE, "scales"},
        {{8, true, 0, scales, NULL}, 2, M, 48, M * 48, BERYL_UNSUPPORTED, "a multiple of 32"},
        {{8, true, 48, scales, NULL}, 2, M, K, M * K, BERYL_MISUSE, "groups"},
        {{8, true, 64, scales, NULL}, 2, M, K, M * K, BERYL_MISUSE, "groups"},
        {{4, true, 0, scales, NULL}, 2, M, K, M * K, BERYL_MISUSE, "codes of another size"},
        {{8, true, 0, scales, NULL}, 2, 0, K, 0, BERYL_MISUSE, "a dimension of 0"},
        {{8, true, 0, scales, NULL}, 2, UINT32_MAX, UINT32_MAX - 31, 0, BERYL_MISUSE, "too many"},
        {{8, true, 0, scales, NULL}, 0, M, K, M * K, BERYL_MISUSE, "1 to 4 dimensions"},
        {{8, true, 0, scales, NULL}, 5, M, K, M * K, BERYL_MISUSE, "1 to 4 dimensions"},
    };
    for (size_t i = 0; i < sizeof refused / sizeof *refused; i++) {
        beryl_error error = {0};
        beryl_value x = 0;
        beryl_graph *g = opened(t, "reference", &x);
        const uint32_t dims[] = {refused[i].rows, refused[i].k, 1, 1, 1};
        if (!g) return;
        CHECK_INT(t,
                  beryl_graph_weight_affine(g, "w", refused[i].rank, dims, codes, refused[i].size,
                                            &refused[i].how),
                  0);
        CHECK_INT(t, beryl_graph_compile(g, &error), refused[i].status);
        if (!strstr(error.message, refused[i].message))
            test_fail(t, __FILE__, __LINE__, "'%s', not '%s'", error.message, refused[i].message);
        beryl_graph_close(g);
    }
}

void test_affine(test *t);
void test_affine(test *t) {
    static const char *const devices[] = {"reference", "host", "webgpu:software"};
    for (size_t i = 0; i < sizeof devices / sizeof *devices; i++) {
        for (size_t k = 0; k < sizeof cases / sizeof *cases; k++)
            if (test_case(t, "affine/%s/%s", devices[i], cases[k].name))
                check_affine(t, devices[i], &cases[k]);
        for (int k = 0; k < 2; k++)
            if (test_case(t, "affine/%s/%s", devices[i], k ? "e4m3" : "e5m2"))
                check_floats(t, devices[i], k);
    }
    if (test_case(t, "affine/refuses")) check_refused(t);
}
