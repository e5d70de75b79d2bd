/* mlp.c - a perceptron of two layers that knows exclusive or: the forward pass, with biases of F16
 * as files have them.
 *   cc mlp.c $(pkg-config --cflags --libs beryl) -o mlp */
#include "beryl_graph.h"

#include <stdio.h>
#include <stdlib.h>

enum { ROWS = 8, IN = 2, HIDDEN = 2, OUT = 2 };

static void check(beryl_status status, const beryl_error *error) {
    if (status == BERYL_OK) return;
    fprintf(stderr, "mlp: %s\n", error->message);
    exit(1);
}

/* x times transposed w, plus the bias. */
static beryl_value layer(beryl_graph *g, beryl_value x, const char *name, uint32_t rows,
                         uint32_t columns, const float *w, const uint16_t *bias) {
    const beryl_value matrix =
        beryl_graph_weight(g, name, BERYL_TYPE_F32, 2, (const uint32_t[]){rows, columns}, w,
                           rows * columns * sizeof *w);
    const beryl_value b =
        beryl_graph_weight(g, name, BERYL_TYPE_F16, 1, &rows, bias, rows * sizeof *bias);
    return beryl_graph_add(g, beryl_graph_linear(g, x, matrix),
                           beryl_graph_cast(g, b, BERYL_TYPE_F32, false));
}

int main(void) {
    static const float first[HIDDEN][IN] = {{1, 1}, {1, 1}},
                       second[OUT][HIDDEN] = {{-4, 8}, {4, -8}};
    static const uint16_t none[HIDDEN] = {0, 0xbc00}, /* 0, -1 */
        bias[OUT] = {0x4000, 0xc000};                 /* 2, -2 */
    static const float x[4][IN] = {{0, 0}, {0, 1}, {1, 0}, {1, 1}};
    float chances[4][OUT];
    beryl_graph *g;
    beryl_status status;
    beryl_error error;

    check(beryl_graph_open(NULL, &g, &error), &error);
    const uint32_t n = beryl_graph_extent(g, "n", ROWS);
    const beryl_value in =
        beryl_graph_input(g, "x", BERYL_TYPE_F32, 2, (const beryl_dim[]){{ROWS, n}, {IN, 0}});
    const beryl_value hidden =
        beryl_graph_relu(g, layer(g, in, "first", HIDDEN, IN, &first[0][0], none));
    const beryl_value scores = layer(g, hidden, "second", OUT, HIDDEN, &second[0][0], bias),
                      logs = beryl_graph_log_softmax(g, scores, 1), out = beryl_graph_exp(g, logs);
    beryl_graph_output(g, out, "chances");

    while ((status = beryl_graph_compile(g, &error)) == BERYL_PENDING) {}
    check(status, &error);
    check(beryl_graph_set(g, in, x, sizeof x, &error), &error);
    check(beryl_graph_run(g, (const uint32_t[]){4}, 1, &error), &error);
    check(beryl_graph_wait(g, &error), &error);
    check(beryl_graph_read(g, out, chances, sizeof chances, &error), &error);
    int right = 0;
    for (int i = 0; i < 4; i++) {
        const int other = x[i][0] != x[i][1];
        printf("%.0f %.0f: %.3f\n", (double)x[i][0], (double)x[i][1], (double)chances[i][1]);
        right += (chances[i][1] > 0.5f) == other;
    }
    beryl_graph_close(g);
    return right == 4 ? 0 : 1;
}
