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
    const beryl_graph_options options = {.size = sizeof options, .device = device, .precision = BERYL_PRECISION_EXACT};
    if (beryl_graph_open(&options, &g, &error) != BERYL_OK) test_fail(t, __FILE__, __LINE__, "%s", error.message);
    return g;
}

static beryl_status compile(beryl_graph *g, beryl_error *error) {
    beryl_status status;
    while ((status = beryl_graph_compile(g, error)) == BERYL_PENDING) base_sleep(2e-4);
    return status;
}

/* Compiles, runs with one extent (0: none) and waits. */
static bool run(test *t, beryl_graph *g, uint32_t n) {
    beryl_error error = {0};
    beryl_status status = compile(g, &error);
    if (status == BERYL_OK) status = beryl_graph_run(g, &n, n ? 1 : 0, &error);
    if (status == BERYL_OK) status = beryl_graph_wait(g, &error);
    if (status != BERYL_OK) test_fail(t, __FILE__, __LINE__, "%s", error.message);
    return status == BERYL_OK;
}

static const float weight[4][3] = {{1, 0, 0}, {0, 1, 0}, {0, 0, 1}, {1, 1, 1}};

typedef struct softmax_graph { beryl_graph *g; beryl_value x, y; } softmax_graph;

static softmax_graph make_softmax(beryl_graph *g, uint32_t bound) {
    softmax_graph s = {.g = g};
    const uint32_t n = beryl_graph_extent(g, "n", bound);
    s.x = beryl_graph_input(g, "x", BERYL_TYPE_F32, 2, (beryl_dim[]){{bound, n}, {3, 0}});
    const beryl_value w = beryl_graph_weight(g, "w", BERYL_TYPE_F32, 2, (uint32_t[]){4, 3}, weight, sizeof weight);
    s.y = beryl_softmax(g, beryl_matmul(g, s.x, w));
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

static void test_values(test *t) {
    if (test_case(t, "graph_api/softmax-of-a-product")) {
        beryl_graph *g = open_on(t, "reference");
        const float x[2][3] = {{1, 2, 3}, {3, 1, 0}};
        float y[2][4];
        softmax_graph s = make_softmax(g, 8);
        CHECK_INT(t, compile(g, NULL), BERYL_OK);
        CHECK_INT(t, beryl_graph_set(g, s.x, x, sizeof x, NULL), BERYL_OK);
        if (run(t, g, 2)) {
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
            if (!run(t, g, n)) break;
            CHECK_INT(t, beryl_graph_read(g, s.y, y, n * 16, NULL), BERYL_OK);
            check_softmax(t, &x[0][0], &y[0][0], (int)n);
            CHECK_INT(t, beryl_graph_read(g, s.y, y, n * 16 + 4, NULL), BERYL_MISUSE);
        }
        beryl_graph_close(g);
    }
    if (test_case(t, "graph_api/state-stays-between-runs")) {
        beryl_graph *g = open_on(t, "reference");
        const beryl_value state = beryl_graph_state(g, "state", BERYL_TYPE_F32, 2, (uint32_t[]){3, 2});
        const beryl_value x = beryl_graph_input(g, "x", BERYL_TYPE_F32, 2, (beryl_dim[]){{1, 0}, {2, 0}});
        const beryl_value at = beryl_graph_input(g, "at", BERYL_TYPE_I32, 1, (beryl_dim[]){{1, 0}});
        const beryl_value all = beryl_graph_input(g, "all", BERYL_TYPE_I32, 1, (beryl_dim[]){{3, 0}});
        const beryl_value now = beryl_gather_rows(g, beryl_set_rows(g, state, x, at), all, 2);
        beryl_graph_output(g, now, "now");
        CHECK_INT(t, compile(g, NULL), BERYL_OK);
        float got[6] = {0};
        beryl_graph_set(g, all, (int32_t[]){0, 1, 2}, 12, NULL);
        for (int32_t i = 0; i < 3; i++) {
            beryl_graph_set(g, x, (float[]){(float)i + 1, (float)i + 10}, 8, NULL);
            beryl_graph_set(g, at, &i, 4, NULL);
            run(t, g, 0);
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
            for (int i = 0; i < 32; i++) blocks[r][2 + i] = (unsigned char)(signed char)(r ? -i : i);
        }
        const beryl_value w = beryl_graph_weight(g, "w", BERYL_TYPE_Q8_0, 2, (uint32_t[]){2, 32}, blocks, sizeof blocks);
        const beryl_value x = beryl_graph_input(g, "x", BERYL_TYPE_F32, 2, (beryl_dim[]){{1, 0}, {64, 0}});
        const beryl_value y = beryl_matmul(g, beryl_narrow(g, x, 1, 32, 32), w);
        beryl_graph_output(g, y, "y");
        beryl_value indices;
        const beryl_value best = beryl_topk(g, y, 1, &indices);
        beryl_graph_output(g, best, "best");
        beryl_graph_output(g, indices, "indices");
        uint32_t rank = 0;
        beryl_type type;
        beryl_dim dims[8];
        CHECK(t, beryl_graph_shape(g, y, &type, &rank, dims) && rank == 2 && dims[0].size == 1 && dims[1].size == 2 && type == BERYL_TYPE_F32);
        CHECK_INT(t, compile(g, NULL), BERYL_OK);
        float numbers[64], got[2] = {0}, most = 0;
        int32_t index = -1;
        for (int i = 0; i < 64; i++) numbers[i] = i < 32 ? 1000.0f : 1.0f;
        beryl_graph_set(g, x, numbers, sizeof numbers, NULL);
        if (run(t, g, 0)) {
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
            for (int i = 0; i < 8; i++) run(t, g, 2); /* more runs than results are kept for */
            beryl_status status;
            while ((status = beryl_graph_read(g, s.y, y, sizeof y, &error)) == BERYL_PENDING) base_sleep(2e-4);
            CHECK_INT(t, status, BERYL_OK);
            check_softmax(t, &x[0][0], &y[0][0], 2);
            beryl_device_info info;
            CHECK_INT(t, beryl_graph_device(g, &info), BERYL_OK);
            CHECK_TEXT(t, info.kind, "software");
            beryl_graph_close(g);
        }
    }
}

static void test_misuse(test *t) {
    beryl_error error = {0};
    if (test_case(t, "graph_api/misuse-is-a-status")) {
        beryl_graph *g = NULL;
        CHECK_INT(t, beryl_graph_open(NULL, NULL, &error), BERYL_MISUSE);
        CHECK_INT(t, beryl_graph_open(&(beryl_graph_options){.size = 1}, &g, &error), BERYL_MISUSE);
        CHECK(t, !g);
        CHECK_INT(t, beryl_graph_compile(NULL, &error), BERYL_MISUSE);
        CHECK_INT(t, beryl_graph_run(NULL, NULL, 0, &error), BERYL_MISUSE);
        CHECK_INT(t, beryl_add(NULL, 1, 2), 0);
        beryl_graph_close(NULL);
        g = open_on(t, "reference");
        CHECK_INT(t, beryl_graph_run(g, NULL, 0, &error), BERYL_MISUSE);
        CHECK_INT(t, beryl_graph_compile(g, &error), BERYL_MISUSE); /* no output */
        beryl_graph_close(g);
        CHECK_INT(t, beryl_graph_open(&(beryl_graph_options){.size = sizeof(beryl_graph_options), .device = "no such"}, &g, &error), BERYL_NO_DEVICE);
        CHECK_INT(t, beryl_graph_open(&(beryl_graph_options){.size = sizeof(beryl_graph_options), .device = "disk"}, &g, &error), BERYL_UNSUPPORTED);
        CHECK(t, !g && strstr(error.message, "disk:0 keeps memory but runs no programs"));
    }
    if (test_case(t, "graph_api/first-building-error-sticks")) {
        beryl_graph *g = open_on(t, "reference");
        const beryl_value x = beryl_graph_input(g, "x", BERYL_TYPE_F32, 2, (beryl_dim[]){{1, 0}, {5, 0}});
        const beryl_value w = beryl_graph_weight(g, "w", BERYL_TYPE_F32, 2, (uint32_t[]){4, 3}, weight, sizeof weight);
        CHECK_INT(t, beryl_matmul(g, x, w), 0);
        CHECK_INT(t, beryl_softmax(g, x), 0);
        beryl_graph_output(g, x, "x");
        CHECK_INT(t, beryl_graph_compile(g, &error), BERYL_MISUSE);
        CHECK(t, strstr(error.message, "matmul") != NULL);
        CHECK_INT(t, beryl_graph_compile(g, &error), BERYL_MISUSE);
        beryl_graph_close(g);
    }
    if (test_case(t, "graph_api/wrong-tensors-are-refused")) {
        static const struct { beryl_type type; uint32_t rank, dim[4]; size_t size; } wrong[] = {
            {BERYL_TYPE_F32, 2, {4, 3, 0, 0}, 44},   {BERYL_TYPE_F32, 2, {4, 0, 0, 0}, 0},           {BERYL_TYPE_Q8_0, 1, {33, 0, 0, 0}, 34},
            {BERYL_TYPE_F32, 5, {1, 1, 1, 1}, 4},    {BERYL_TYPE_F32, 0, {0, 0, 0, 0}, 4},           {(beryl_type)99, 1, {4, 0, 0, 0}, 16},
            {BERYL_TYPE_F32, 2, {0xffffffffu, 0xffffffffu, 0, 0}, 4}, {BERYL_TYPE_F32, 4, {65536, 65536, 65536, 65536}, 0},
        };
        for (size_t i = 0; i < sizeof wrong / sizeof *wrong; i++) {
            beryl_graph *g = open_on(t, "reference");
            CHECK_INT(t, beryl_graph_weight(g, "wrong", wrong[i].type, wrong[i].rank, wrong[i].dim, weight, wrong[i].size), 0);
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
        CHECK_INT(t, beryl_add(g, s.y, s.y), 0); /* too late */
        CHECK_INT(t, beryl_graph_set(g, s.y, numbers, 4, &error), BERYL_MISUSE);
        CHECK_INT(t, beryl_graph_set(g, 1000, numbers, 4, &error), BERYL_MISUSE);
        CHECK_INT(t, beryl_graph_set(g, s.x, numbers, 52, &error), BERYL_MISUSE);
        CHECK_INT(t, beryl_graph_set(g, s.x, NULL, 4, &error), BERYL_MISUSE);
        CHECK_INT(t, beryl_graph_read(g, s.y, numbers, 4, &error), BERYL_MISUSE); /* nothing ran */
        CHECK_INT(t, beryl_graph_run(g, NULL, 0, &error), BERYL_MISUSE);
        CHECK_INT(t, beryl_graph_run(g, (uint32_t[]){0}, 1, &error), BERYL_MISUSE);
        CHECK_INT(t, beryl_graph_run(g, (uint32_t[]){5}, 1, &error), BERYL_MISUSE);
        CHECK_INT(t, beryl_graph_run(g, (uint32_t[]){4}, 1, &error), BERYL_OK);
        CHECK_INT(t, beryl_graph_read(g, s.x, numbers, 4, &error), BERYL_MISUSE);
        CHECK_INT(t, beryl_graph_read(g, s.y, NULL, 4, &error), BERYL_MISUSE);
        CHECK_INT(t, beryl_graph_read(g, s.y, numbers, 64, &error), BERYL_OK);
        beryl_graph_close(g);
    }
}

/* ---- memory ---- */

typedef struct limit { long left; size_t out; } limit;

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
    const beryl_graph_options options = {.size = sizeof options, .device = device, .allocator = {limited, l}};
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
    test_misuse(t);
    static const char *const devices[] = {"reference", "dummy"};
    for (int d = 0; d < 2; d++) {
        if (!test_case(t, "graph_api/no-memory-at-any-call-on-%s", devices[d])) continue;
        beryl_status status = BERYL_NO_MEMORY;
        for (long n = 0; n < 5000 && status == BERYL_NO_MEMORY; n++) {
            limit l = {.left = n};
            status = whole_life(devices[d], &l);
            if (status != BERYL_OK && status != BERYL_NO_MEMORY) test_fail(t, __FILE__, __LINE__, "call %ld: %s", n, beryl_status_name(status));
            CHECK_INT(t, l.out, 0);
            if (test_failed(t)) break;
        }
        CHECK_INT(t, status, BERYL_OK);
    }
}
