/* upload_test.c - weights that become others where they lie: what a plan has made of them in its
 * first run, for all that follow, is made anew. */
#include "rig.h"
#include "sides.h"

#include "plan/plan.h"

#include <stdlib.h>

enum { N = 64, DEPTH = 256, OUT = 512 };

/* Processors pack the first matrix, whose lines lie far apart. */
static void build(side *s, const graph_value *weights, const void *problem) {
    (void)problem;
    const uint8_t n = graph_extent_add(s->g, "n", N);
    const graph_value x = side_input(s, "x", 2, (graph_dim[]){{N, n}, {DEPTH, 0}});
    side_output(s, graph_relu(s->g, graph_matmul(s->g, x, weights[0], false, false)));
    side_output(s, graph_relu(s->g, graph_matmul(s->g, x, weights[1], false, true)));
}

static void check(test *t, side *joined, const void *problem) {
    uint32_t once = 0;
    for (size_t i = 0; i < joined->exec->record.steps.count; i++)
        once += joined->exec->record.steps.data[i].once;
    (void)problem;
    CHECK(t, once > 0);
}

void test_upload(test *t);
void test_upload(test *t) {
    static const char *const devices[] = {"host", "opencl"};
    for (size_t i = 0; i < sizeof devices / sizeof *devices; i++) {
        rig r;
        if (!test_case(t, "upload/what-weights-were-made-into-follows-them-%s", devices[i]) ||
            !rig_open(t, &r, devices[i]))
            continue;
        sides_weights w = {0};
        sides_weight_add(&w, TYPE_F32, 0, 2, DEPTH, OUT, 0);
        sides_weight_add(&w, TYPE_F32, 0, 2, OUT, DEPTH, 0);
        sides_run(t, &r.heap, r.d,
                  &(sides){.weights = &w,
                           .build = build,
                           .check = check,
                           .n = N,
                           .exact = true,
                           .within = 1e-6, /* sums of 256 products, in another order */
                           .again = true});
        free(w.bytes);
        rig_close(t, &r);
    }
}
