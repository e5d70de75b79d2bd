/* graph.c - softmax(x times transposed w) on whatever device there is, with beryl_graph.h alone.
 * Build it with
 *   cc graph.c $(pkg-config --cflags --libs beryl) -o graph */
#include "beryl_graph.h"

#include <stdio.h>
#include <stdlib.h>

static void check(beryl_status status, const beryl_error *error) {
    if (status == BERYL_OK) return;
    fprintf(stderr, "graph: %s\n", error->message);
    exit(1);
}

int main(void) {
    static const float w[4][3] = {{1, 0, 0}, {0, 1, 0}, {0, 0, 1}, {1, 1, 1}}; // [m, k]
    static const float x[2][3] = {{1, 2, 3}, {3, 1, 0}};                       // [n, k]
    float y[2][4];                                                             // [n, m]
    beryl_graph *g;
    beryl_status status;
    beryl_error error;

    check(beryl_graph_open(NULL, &g, &error), &error);
    const uint32_t n = beryl_graph_extent(g, "n", 8); /* up to 8 rows in a run */
    const beryl_dim shape[] = {{8, n}, {3, 0}};
    const beryl_value in = beryl_graph_input(g, "x", BERYL_TYPE_F32, 2, shape);
    const beryl_value weight =
        beryl_graph_weight(g, "w", BERYL_TYPE_F32, 2, (const uint32_t[]){4, 3}, w, sizeof w);
    const beryl_value out = beryl_graph_softmax(g, beryl_graph_linear(g, in, weight));
    beryl_graph_output(g, out, "y");

    while ((status = beryl_graph_compile(g, &error)) == BERYL_PENDING) {}
    check(status, &error);
    check(beryl_graph_set(g, in, x, sizeof x, &error), &error);
    check(beryl_graph_run(g, (const uint32_t[]){2}, 1, &error), &error);
    check(beryl_graph_wait(g, &error), &error);
    check(beryl_graph_read(g, out, y, sizeof y, &error), &error);
    for (int i = 0; i < 2; i++)
        printf("%.4f %.4f %.4f %.4f\n", (double)y[i][0], (double)y[i][1], (double)y[i][2],
               (double)y[i][3]);
    beryl_graph_close(g);
    return 0;
}
