/* kmeans.c - k-means by a graph of the library: squared distances, the nearest centre of each
 * point, and the means of what is nearest.
 *   cc kmeans.c $(pkg-config --cflags --libs beryl) -o kmeans */
#include "beryl_graph.h"

#include <stdio.h>
#include <stdlib.h>

enum { POINTS = 600, CENTRES = 3, SIZE = 2, ROUNDS = 12 };

static void check(beryl_status status, const beryl_error *error) {
    if (status == BERYL_OK) return;
    fprintf(stderr, "kmeans: %s\n", error->message);
    exit(1);
}

/* Numbers in 0 .. 1, the same each time. */
static float draw(void) {
    static unsigned state = 1;
    state = state * 1664525u + 1013904223u;
    return (float)(state >> 8) / 16777216.0f;
}

typedef struct kmeans {
    beryl_graph *g;
    beryl_value points, centres, numbers; /* numbers: 0 1 2 .. */
    beryl_value means, spread;
} kmeans;

static kmeans build(void) {
    kmeans m = {0};
    beryl_error error;
    check(beryl_graph_open(NULL, &m.g, &error), &error);
    beryl_graph *g = m.g;
    const beryl_dim points[] = {{POINTS, 0}, {1, 0}, {SIZE, 0}},
                    centres[] = {{1, 0}, {CENTRES, 0}, {SIZE, 0}}, numbers[] = {{CENTRES, 0}},
                    nearest[] = {{POINTS, 0}, {1, 0}}, mask[] = {{POINTS, 0}, {CENTRES, 0}, {1, 0}};
    m.points = beryl_graph_input(g, "points", BERYL_TYPE_F32, 3, points);
    m.centres = beryl_graph_input(g, "centres", BERYL_TYPE_F32, 3, centres);
    m.numbers = beryl_graph_input(g, "numbers", BERYL_TYPE_I32, 1, numbers);
    /* [points, centres]: broadcast against each other, never written as [points, centres, size] */
    const beryl_value apart = beryl_graph_square(g, beryl_graph_sub(g, m.points, m.centres)),
                      far = beryl_graph_sum(g, apart, (const uint32_t[]){2}, 1, false),
                      best = beryl_graph_argmin(g, far, 1, false);
    /* 1 where the centre is the nearest */
    const beryl_value same = beryl_graph_eq(g, beryl_graph_reshape(g, best, 2, nearest), m.numbers);
    const beryl_value is =
        beryl_graph_reshape(g, beryl_graph_cast(g, same, BERYL_TYPE_F32, false), 3, mask);
    const beryl_value sums = beryl_graph_sum(g, beryl_graph_mul(g, is, m.points),
                                             (const uint32_t[]){0}, 1, true),
                      counts = beryl_graph_sum(g, is, (const uint32_t[]){0}, 1, true);
    m.means = beryl_graph_div(g, sums, counts);
    m.spread = beryl_graph_mean(g, beryl_graph_amin(g, far, (const uint32_t[]){1}, 1, false), NULL,
                                0, false);
    beryl_graph_output(g, m.means, "means");
    beryl_graph_output(g, m.spread, "spread");
    beryl_status status;
    while ((status = beryl_graph_compile(g, &error)) == BERYL_PENDING) {}
    check(status, &error);
    return m;
}

int main(void) {
    static const float middles[CENTRES][SIZE] = {{0, 0}, {4, 1}, {1, 5}};
    static float points[POINTS][SIZE];
    static const int32_t numbers[CENTRES] = {0, 1, 2};
    float centres[CENTRES][SIZE], spread = 0;
    beryl_error error;
    for (int i = 0; i < POINTS; i++)
        for (int k = 0; k < SIZE; k++) points[i][k] = middles[i % CENTRES][k] + draw() - 0.5f;
    for (int i = 0; i < CENTRES; i++)
        for (int k = 0; k < SIZE; k++) centres[i][k] = points[i][k];

    kmeans m = build();
    check(beryl_graph_set(m.g, m.points, points, sizeof points, &error), &error);
    check(beryl_graph_set(m.g, m.numbers, numbers, sizeof numbers, &error), &error);
    for (int round = 0; round < ROUNDS; round++) {
        check(beryl_graph_set(m.g, m.centres, centres, sizeof centres, &error), &error);
        check(beryl_graph_run(m.g, NULL, 0, &error), &error);
        check(beryl_graph_wait(m.g, &error), &error);
        check(beryl_graph_read(m.g, m.means, centres, sizeof centres, &error), &error);
        check(beryl_graph_read(m.g, m.spread, &spread, sizeof spread, &error), &error);
    }
    for (int i = 0; i < CENTRES; i++)
        printf("%.2f %.2f\n", (double)centres[i][0], (double)centres[i][1]);
    printf("mean square distance %.4f\n", (double)spread);
    beryl_graph_close(m.g);
    return spread < 0.2f ? 0 : 1;
}
