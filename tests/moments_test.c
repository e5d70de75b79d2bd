/* moments_test.c - Adam with moments in 8 bits (graph_adam_coded) beside Adam in doubles: steps are
 * right on average, also after gradients have become small, and nothing moves where there are none.
 */
#include "rig.h"

#include "graph/graph.h"

#include <math.h>
#include <stdio.h>
#include <string.h>

enum { ROWS = 4, COLUMNS = 512, STEPS = 160, LATER = 80 };
static const float beta1 = 0.9f, beta2 = 0.97f, eps = 1e-8f;
static const double scales[ROWS] = {0.5, 1e-3, 1e-6, 0}; /* of gradients */

/* From one code of the square to the next it is 15 %: its logarithm walks by chance, in each step
 * by 0.15 * (1 - beta2) in the mean of squares. Where gradients fade for all LATER steps that is
 * 0.36: 0.6 of the square, 0.3 of a step. A step goes as 1 / root: with that spread its mean is
 * 3 / 8 * 0.36 higher; the farthest column of a row is at 3.5 times the spread. */
#define AVERAGE_TOLERANCE (3 / 8.0 * 0.36)
#define COLUMN_TOLERANCE (2.86 - 1) /* exp(3.5 * 0.3) */

typedef struct moments {
    rig rig;
    graph_store store;
    graph *g;
    graph_exec *exec;
    graph_value gradient, key, over_first, root, p;
} moments;

static beryl_status moments_open(moments *m) {
    const uint32_t dims[2] = {ROWS, COLUMNS};
    const graph_dim one = {1, 0}, two = {2, 0}, of[2] = {{ROWS, 0}, {COLUMNS, 0}};
    beryl_error *error = &m->rig.error;
    beryl_status status = store_init(&m->store, &m->rig.heap, NULL, NULL, 0, error);
    if (status) return status;
    const uint32_t value = store_add_state(&m->store, "p", TYPE_F32, 2, dims, 1),
                   codes = store_add_state(&m->store, "m", TYPE_I16, 2, dims, 1);
    status = store_layout(&m->store, 0, error);
    if (!status) status = store_make(&m->store, error);
    graph *g = m->g = graph_open(&m->rig.heap);
    if (status || !g) return status;
    m->gradient = graph_input(g, "d", TYPE_F32, 2, of);
    m->key = graph_input(g, "key", TYPE_U32, 1, &two);
    m->over_first = graph_input(g, "over_first", TYPE_F32, 1, &one);
    m->root = graph_input(g, "root", TYPE_F32, 1, &one);
    const graph_adam how = {
        .beta1 = beta1, .beta2 = beta2, .eps = eps, .over_first = m->over_first, .root = m->root};
    const graph_value p = graph_stored(g, &m->store, value),
                      before = graph_stored(g, &m->store, codes);
    graph_value after = before;
    const graph_value next =
        graph_adam_coded(g, &how, (graph_draw){m->key, 0}, 1, p, m->gradient, &after);
    m->p = graph_copy(g, next);
    graph_output(g, m->p, "p");
    graph_assign(g, before, after);
    graph_assign(g, p, next);
    return graph_exec_open(g, &m->store, &(graph_exec_options){.exact = true}, &m->exec, error);
}

static double gradient_at(uint32_t step, uint32_t row) {
    const double size = scales[row] * (step < LATER ? 1 : 0.1);
    return size * (0.5 + 0.25 * (double)(step * 7 % 5));
}

/* One step with a rate of 1: what was taken off each. */
static beryl_status run(moments *m, uint32_t step, float *p) {
    float *d = graph_exec_input(m->exec, m->gradient);
    uint32_t *key = graph_exec_input(m->exec, m->key);
    for (uint32_t i = 0; i < ROWS * COLUMNS; i++) d[i] = (float)gradient_at(step, i / COLUMNS);
    key[0] = step;
    *(float *)graph_exec_input(m->exec, m->over_first) =
        (float)(1 / (1 - pow((double)beta1, step + 1)));
    *(float *)graph_exec_input(m->exec, m->root) = (float)sqrt(1 - pow((double)beta2, step + 1));
    static const uint32_t none[GRAPH_EXTENT_MAX + 1];
    device_ticket ticket = 0;
    const void *data;
    beryl_status status = graph_exec_submit(m->exec, none, &m->p, 1, &ticket, &m->rig.error);
    if (!status) status = graph_exec_fetched(m->exec, ticket, 0, &data, &m->rig.error);
    if (!status) memcpy(p, data, ROWS * COLUMNS * sizeof *p);
    return status;
}

static void check_steps(test *t, moments *m) {
    static float p[2][ROWS * COLUMNS];
    double mean[ROWS] = {0}, square[ROWS] = {0}, farthest = 0;
    for (uint32_t k = 0; k < STEPS && !test_failed(t); k++) {
        float *now = p[k % 2], *before = p[(k + 1) % 2];
        CHECK_INT(t, run(m, k, now), BERYL_OK);
        for (uint32_t row = 0; row < ROWS; row++) {
            const double d = gradient_at(k, row), b1 = (double)beta1, b2 = (double)beta2;
            mean[row] = b1 * mean[row] + (1 - b1) * d;
            square[row] = b2 * square[row] + (1 - b2) * d * d;
            const double want = mean[row] / (1 - pow(b1, k + 1)) /
                                (sqrt(square[row] / (1 - pow(b2, k + 1))) + (double)eps);
            double sum = 0;
            for (uint32_t i = row * COLUMNS; i < (row + 1) * COLUMNS; i++) {
                const double step = (double)before[i] - (double)now[i];
                sum += step;
                CHECK_NEAR(t, step, want, COLUMN_TOLERANCE * want);
            }
            const double far = fabs(sum / COLUMNS - want);
            if (want > 0 && far / want > farthest) farthest = far / want;
            CHECK_NEAR(t, sum / COLUMNS, want, AVERAGE_TOLERANCE * want);
        }
    }
    printf("  farthest average: %g\n", farthest);
}

void test_moments(test *t);
void test_moments(test *t) {
    if (!test_case(t, "moments/steps-right-on-average")) return;
    static moments m;
    base_heap_init(&m.rig.heap, NULL);
    CHECK_INT(t, moments_open(&m), BERYL_OK);
    if (!test_failed(t)) check_steps(t, &m);
    graph_exec_close(m.exec);
    graph_close(m.g);
    store_fini(&m.store);
    CHECK_INT(t, m.rig.heap.bytes, 0);
}
