/* graph_eval_test.c - constants, many outputs, beryl_graph_eval, and where messages say they come
 * from. */
#include "beryl_graph.h"
#include "test.h"

#include "base/thread.h"

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

static const float weight[4][3] = {{1, 0, 0}, {0, 1, 0}, {0, 0, 1}, {1, 1, 1}};

static void check_constants(test *t, const char *device) {
    beryl_graph *g = open_on(t, device);
    float got[720] = {0}, numbers[720];
    uint8_t truth[3] = {1, 0, 1}, all[3] = {0};
    int32_t ids[3] = {2, 0, 1};
    for (int i = 0; i < 720; i++) numbers[i] = (float)i;
    const uint32_t ten[10] = {1, 2, 1, 3, 1, 4, 5, 1, 6, 1}, three = 3;
    const beryl_value x = beryl_graph_constant(g, BERYL_TYPE_F32, 10, ten, numbers),
                      two = beryl_graph_constant(g, BERYL_TYPE_F32, 0, NULL, &(float){2}),
                      w = beryl_graph_weight(g, "w", BERYL_TYPE_F32, 10, ten, numbers,
                                             sizeof numbers),
                      state = beryl_graph_state(g, "s", BERYL_TYPE_F32, 10, ten),
                      sum = beryl_graph_add(g, beryl_graph_add(g, beryl_graph_mul(g, x, two), w),
                                            state);
    numbers[1] = 50; /* of the constant a copy counts; the weight is borrowed */
    const beryl_value mask = beryl_graph_constant(g, BERYL_TYPE_BOOL, 1, &three, truth),
                      table =
                          beryl_graph_constant(g, BERYL_TYPE_F32, 2, (uint32_t[]){4, 3}, weight),
                      at = beryl_graph_constant(g, BERYL_TYPE_I32, 1, &three, ids),
                      rows = beryl_graph_gather_rows(g, table, at, 1),
                      halves = beryl_graph_cast(g, table, BERYL_TYPE_F16, false),
                      turned = beryl_graph_permute(g, beryl_graph_scale(g, table, 1), 2,
                                                   (uint32_t[]){1, 0}),
                      flipped = beryl_graph_flip(g, rows, 0);
    const beryl_value others[] = {mask, rows, halves, turned, flipped, table};
    for (size_t i = 0; i < sizeof others / sizeof *others; i++) {
        CHECK(t, others[i] != 0);
        if (i && i < 5) beryl_graph_output(g, others[i], "other");
    }
    beryl_graph_output(g, beryl_graph_logical_not(g, mask), "not");
    beryl_error error = {0};
    CHECK_INT(t, beryl_graph_eval(g, sum, got, sizeof got, &error), BERYL_OK);
    if (error.code) test_fail(t, __FILE__, __LINE__, "%s", error.message);
    for (int i = 2; i < 720 && !test_failed(t); i++) CHECK_NEAR(t, got[i], 3 * i, 0);
    CHECK_NEAR(t, got[1], 2 + 50, 0);
    CHECK_INT(t, beryl_graph_eval(g, rows, got, 9 * 4, NULL), BERYL_OK); /* once more */
    CHECK(t, got[2] == 1 && got[3] == 1 && got[7] == 1);
    CHECK_INT(t, beryl_graph_eval(g, turned, got, 12 * 4, NULL), BERYL_OK);
    CHECK(t, got[0] == 1 && got[3] == 1 && got[5] == 1 && got[1] == 0 && got[11] == 1);
    CHECK_INT(t, beryl_graph_eval(g, flipped, got, 9 * 4, NULL), BERYL_OK);
    CHECK(t, got[1] == 1 && got[3] == 1 && got[8] == 1);
    CHECK_INT(t, beryl_graph_eval(g, x, got, 4, NULL), BERYL_MISUSE); /* no output */
    beryl_graph_close(g);
    g = open_on(t, device); /* a constant itself */
    const beryl_value itself = beryl_graph_constant(g, BERYL_TYPE_BOOL, 1, &three, truth);
    CHECK_INT(t, beryl_graph_eval(g, itself, all, 3, &error), BERYL_OK);
    CHECK(t, !memcmp(all, truth, 3));
    beryl_graph_close(g);
}

static void check_many_outputs(test *t, const char *device) {
    beryl_graph *g = open_on(t, device);
    beryl_value out[65];
    beryl_error error = {0};
    const beryl_value x = beryl_graph_input(g, "x", BERYL_TYPE_F32, 1, &(beryl_dim){3, 0});
    for (int i = 0; i < 64; i++)
        beryl_graph_output(g, out[i] = beryl_graph_scale(g, x, (float)i), "out");
    CHECK_INT(t, compile(g, &error), BERYL_OK);
    for (int r = 0; r < 3; r++) {
        const float in[3] = {1, (float)r, 3};
        float got[3];
        CHECK_INT(t, beryl_graph_set(g, x, in, sizeof in, NULL), BERYL_OK);
        CHECK_INT(t, beryl_graph_run(g, NULL, 0, NULL), BERYL_OK);
        CHECK_INT(t, beryl_graph_wait(g, NULL), BERYL_OK);
        for (int i = 0; i < 64; i++) {
            CHECK_INT(t, beryl_graph_read(g, out[i], got, sizeof got, NULL), BERYL_OK);
            CHECK(t, got[0] == (float)i && got[1] == (float)(i * r) && got[2] == (float)(3 * i));
        }
    }
    beryl_graph_close(g);
    g = open_on(t, device);
    const beryl_value y = beryl_graph_input(g, "x", BERYL_TYPE_F32, 1, &(beryl_dim){3, 0});
    for (int i = 0; i < 65; i++) beryl_graph_output(g, beryl_graph_scale(g, y, (float)i), "out");
    CHECK_INT(t, compile(g, &error), BERYL_UNSUPPORTED);
    beryl_graph_close(g);
}

void test_graph_eval(test *t) {
    static const char *const devices[] = {"reference", "host", "software"};
    for (int d = 0; d < 3; d++) {
        beryl_graph *g = NULL;
        beryl_error error = {0};
        const beryl_graph_options options = {.size = sizeof options, .device = devices[d]};
        const bool there = beryl_graph_open(&options, &g, &error) == BERYL_OK;
        beryl_graph_close(g);
        if (test_case(t, "graph_eval/constants-in-one-call-on-%s", devices[d])) {
            if (there) check_constants(t, devices[d]);
            else test_skip(t, "%s", error.message);
        }
        if (test_case(t, "graph_eval/sixty-four-outputs-on-%s", devices[d])) {
            if (there) check_many_outputs(t, devices[d]);
            else test_skip(t, "%s", error.message);
        }
    }
    if (test_case(t, "graph_eval/errors-name-shapes-and-place")) {
        beryl_error error = {0};
        float number;
        beryl_graph *g = open_on(t, "reference");
        const beryl_value x =
            beryl_graph_input(g, "x", BERYL_TYPE_F32, 2, (beryl_dim[]){{4, 0}, {5, 0}});
        beryl_graph_at(g, "some/folder/model.c", 12);
        CHECK_INT(t, beryl_graph_cumsum(g, x, 2), 0);
        beryl_graph_at(g, BERYL_HERE);
        CHECK_INT(t, beryl_graph_eval(g, x, &number, 4, &error), BERYL_MISUSE);
        CHECK_TEXT(t, error.message,
                   "graph: cumsum along axis 2 of 2, inputs F32[4, 5] (model.c:12)");
        beryl_graph_close(g);
        g = open_on(t, "reference");
        CHECK_INT(t, beryl_graph_constant(g, BERYL_TYPE_Q8_0, 1, &(uint32_t){32}, &number), 0);
        CHECK_INT(t, beryl_graph_compile(g, &error), BERYL_UNSUPPORTED);
        beryl_graph_close(g);
        CHECK_INT(t, beryl_graph_eval(NULL, 1, &number, 4, &error), BERYL_MISUSE);
    }
}
