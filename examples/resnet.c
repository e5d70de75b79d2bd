/* resnet.c - a small residual network learns shapes that the program draws itself: rings, squares,
 * triangles and crosses, anywhere, of any size, under noise; then it is asked about new ones.
 *   cc resnet.c $(pkg-config --cflags --libs beryl) -lm -o resnet */
#include "beryl_nn.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>

enum {
    SIDE = 16,
    SHAPES = 4,
    BATCH = 32,
    STEPS = 80,
    ASKED = 4,
    PARAMETERS = 24,
    WEIGHT_MAX = 4608
};

typedef struct net {
    beryl_graph *g;
    beryl_value p[PARAMETERS];
    uint32_t n, count[PARAMETERS], fan_in[PARAMETERS]; /* fan_in 0: it begins as zeros */
} net;

static void check(beryl_status status, const beryl_error *error) {
    if (status == BERYL_OK) return;
    fprintf(stderr, "resnet: %s\n", error->message);
    exit(1);
}

static float chance(uint32_t *state) { /* from 0 to 1 */
    *state ^= *state << 13;
    *state ^= *state >> 17;
    *state ^= *state << 5;
    return (float)(*state >> 8) / (1 << 24);
}

/* How far a point is from the outline, both from the middle and in units of the shape's size. */
static float off(int shape, float x, float y) {
    switch (shape) {
    case 0: return fabsf(sqrtf(x * x + y * y) - 1);
    case 1: return fabsf(fmaxf(fabsf(x), fabsf(y)) - 1);
    case 2: return fabsf(fmaxf(y, fabsf(x) * 1.7f - y) - 0.8f);
    default: return fmaxf(fabsf(x), fabsf(y)) > 1 ? 9 : fminf(fabsf(x), fabsf(y));
    }
}

static void draw_batch(uint32_t *state, float pictures[BATCH][SIDE * SIDE], int32_t *shapes) {
    for (int i = 0; i < BATCH; i++) {
        const float size = 3 + 2.5f * chance(state), left = 6 + 4 * chance(state),
                    top = 6 + 4 * chance(state);
        shapes[i] = (int32_t)(SHAPES * chance(state)) % SHAPES;
        for (int k = 0; k < SIDE * SIDE; k++) {
            const float x = ((float)(k % SIDE) - left) / size, y = ((float)(k / SIDE) - top) / size;
            pictures[i][k] = (off(shapes[i], x, y) * size < 0.8f) + chance(state) - 0.5f;
        }
    }
}

static beryl_value parameter(net *m, uint32_t rank, const uint32_t *dims, uint32_t fan_in) {
    m->fan_in[m->n] = fan_in;
    m->count[m->n] = 1;
    for (uint32_t i = 0; i < rank; i++) m->count[m->n] *= dims[i];
    return m->p[m->n++] = beryl_graph_state(m->g, "w", BERYL_TYPE_F32, rank, dims);
}

/* A convolution of size x size, and a norm of its channels over the batch. */
static beryl_value conv(net *m, beryl_value x, uint32_t in, uint32_t out, uint32_t size,
                        uint32_t stride) {
    const beryl_window side = {size, stride, 1, size / 2, size / 2}, window[] = {side, side};
    const beryl_value w = parameter(m, 4, (const uint32_t[]){out, in, size, size},
                                    in * size * size),
                      bias = parameter(m, 1, &out, 0);
    return beryl_graph_batch_norm_training(m->g, beryl_graph_conv(m->g, x, w, 2, window, 1), 0,
                                           bias, 1e-5f, NULL, NULL);
}

static beryl_value block(net *m, beryl_value x, uint32_t in, uint32_t out, uint32_t stride) {
    const beryl_value first = beryl_graph_relu(m->g, conv(m, x, in, out, 3, stride)),
                      second = conv(m, first, out, out, 3, 1),
                      past = in == out ? x : conv(m, x, in, out, 1, stride);
    return beryl_graph_relu(m->g, beryl_graph_add(m->g, second, past));
}

static void first_weights(net *m, uint32_t *state) {
    static float numbers[WEIGHT_MAX];
    beryl_error error;
    for (uint32_t i = 0; i < m->n; i++) {
        const float most = m->fan_in[i] ? sqrtf(6 / (float)m->fan_in[i]) : 0;
        for (uint32_t k = 0; k < m->count[i]; k++) numbers[k] = (2 * chance(state) - 1) * most;
        check(beryl_graph_state_set(m->g, m->p[i], numbers, m->count[i] * sizeof *numbers, &error),
              &error);
    }
}

int main(void) {
    static float pictures[BATCH][SIDE * SIDE];
    int32_t shapes[BATCH], seen[BATCH];
    uint32_t state = 88172645u, right = 0;
    float loss, first = 0, last = 0;
    beryl_status status;
    beryl_error error;
    net m = {0};
    beryl_value d[PARAMETERS];

    check(beryl_graph_open(NULL, &m.g, &error), &error);
    beryl_graph *g = m.g;
    const beryl_dim dims[] = {{BATCH, 0}, {1, 0}, {SIDE, 0}, {SIDE, 0}};
    const beryl_value x = beryl_graph_input(g, "pictures", BERYL_TYPE_F32, 4, dims),
                      targets = beryl_graph_input(g, "shapes", BERYL_TYPE_I32, 1, dims),
                      rate = beryl_graph_input(g, "rate", BERYL_TYPE_F32, 0, NULL);
    beryl_value y = beryl_graph_relu(g, conv(&m, x, 1, 8, 3, 1));
    y = block(&m, block(&m, y, 8, 8, 1), 8, 16, 2);
    y = beryl_graph_mean(g, y, (const uint32_t[]){2, 3}, 2, false); /* a number for each channel */
    const beryl_value scores =
        beryl_graph_linear(g, y, parameter(&m, 2, (const uint32_t[]){SHAPES, 16}, 16));
    const beryl_value losses = beryl_graph_cross_entropy(g, scores, targets),
                      mean = beryl_graph_mean(g, losses, NULL, 0, false),
                      best = beryl_graph_argmax(g, scores, 1, false);
    beryl_graph_gradient(g, mean, m.n, m.p, d);
    beryl_graph_optimise(g, m.n, m.p, d, rate,
                         &(beryl_optimiser){.kind = BERYL_SGD, .momentum = 0.9f}, NULL);
    beryl_graph_output(g, mean, "loss");
    beryl_graph_output(g, best, "best");
    while ((status = beryl_graph_compile(g, &error)) == BERYL_PENDING) {}
    check(status, &error);
    first_weights(&m, &state);
    for (int step = 0; step < STEPS + ASKED; step++) { /* in the last ones it does not learn */
        const float speed = step < STEPS ? 0.1f * (1 - (float)step / STEPS) : 0;
        draw_batch(&state, pictures, shapes);
        check(beryl_graph_set(g, x, pictures, sizeof pictures, &error), &error);
        check(beryl_graph_set(g, targets, shapes, sizeof shapes, &error), &error);
        check(beryl_graph_set(g, rate, &speed, sizeof speed, &error), &error);
        while ((status = beryl_graph_run(g, NULL, 0, &error)) == BERYL_PENDING) {}
        check(status, &error);
        check(beryl_graph_wait(g, &error), &error);
        check(beryl_graph_read(g, mean, &loss, sizeof loss, &error), &error);
        if (step == 0) first = loss;
        if (step % 10 == 0) printf("step %2d: loss %.4f\n", step, (double)loss);
        if (step < STEPS) continue;
        last += loss / ASKED;
        check(beryl_graph_read(g, best, seen, sizeof seen, &error), &error);
        for (int i = 0; i < BATCH; i++) right += seen[i] == shapes[i];
    }
    printf("%u of %d new shapes are seen right; loss %.4f, not %.4f\n", right, ASKED * BATCH,
           (double)last, (double)first);
    beryl_graph_close(g);
    return last < first / 3 && right * 10 >= ASKED * BATCH * 9 ? 0 : 1;
}
