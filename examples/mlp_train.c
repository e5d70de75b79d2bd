/* mlp_train.c - a perceptron learns digits that the program draws itself, seven segments each,
 * moved, scaled and under noise; then it is asked about digits that it has not seen.
 *   cc mlp_train.c $(pkg-config --cflags --libs beryl) -lm -o mlp_train */
#include "beryl_nn.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { SIDE = 12, IN = SIDE * SIDE, HIDDEN = 64, OUT = 10, BATCH = 64, STEPS = 300 };

static void check(beryl_status status, const beryl_error *error) {
    if (status == BERYL_OK) return;
    fprintf(stderr, "mlp_train: %s\n", error->message);
    exit(1);
}

static float chance(uint32_t *state) { /* from 0 to 1 */
    *state ^= *state << 13;
    *state ^= *state >> 17;
    *state ^= *state << 5;
    return (float)(*state >> 8) / (1 << 24);
}

/* Segments of each digit: top, upper left, upper right, middle, lower left, lower right, bottom. */
static void draw(uint32_t *state, int digit, float *picture) {
    static const uint8_t segments[OUT] = {0x77, 0x24, 0x5d, 0x6d, 0x2e,
                                          0x6b, 0x7b, 0x25, 0x7f, 0x6f};
    const int left = 1 + (int)(4 * chance(state)), top = (int)(3 * chance(state)),
              width = 4 + (int)(2 * chance(state)), half = 3 + (int)(2 * chance(state));
    for (int i = 0; i < IN; i++) picture[i] = 0.6f * chance(state) - 0.3f;
    for (int s = 0; s < 7; s++) {
        const int level = s / 3 * half, across = s % 3 == 0; /* 0, 3, 6 lie across */
        const float ink = 0.7f + 0.3f * chance(state);
        for (int i = 0; segments[digit] >> s & 1 && i <= (across ? width : half); i++) {
            const int x = left + (across       ? i
                                  : s % 3 == 2 ? width
                                               : 0),
                      y = top + level + (across ? 0 : i);
            if (x < SIDE && y < SIDE) picture[y * SIDE + x] += ink;
        }
    }
}

static void draw_batch(uint32_t *state, float pictures[BATCH][IN], int32_t *digits) {
    for (int i = 0; i < BATCH; i++) {
        digits[i] = (int32_t)(OUT * chance(state)) % OUT;
        draw(state, digits[i], pictures[i]);
    }
}

/* x times transposed w, plus b: states whose first numbers are set when all is compiled. */
static beryl_value layer(beryl_graph *g, beryl_value x, uint32_t out, uint32_t in, beryl_value *w,
                         beryl_value *b) {
    *w = beryl_graph_state(g, "w", BERYL_TYPE_F32, 2, (const uint32_t[]){out, in});
    *b = beryl_graph_state(g, "b", BERYL_TYPE_F32, 1, &out);
    return beryl_graph_add(g, beryl_graph_linear(g, x, *w), *b);
}

static void first_weights(beryl_graph *g, beryl_value w, uint32_t out, uint32_t in,
                          uint32_t *state) {
    static float numbers[HIDDEN * IN];
    beryl_error error;
    for (uint32_t i = 0; i < out * in; i++)
        numbers[i] = (2 * chance(state) - 1) * sqrtf(6 / (float)in);
    check(beryl_graph_state_set(g, w, numbers, out * in * sizeof *numbers, &error), &error);
}

int main(void) {
    static float pictures[BATCH][IN], logits[BATCH][OUT];
    int32_t digits[BATCH];
    uint32_t state = 2463534242u, right = 0, asked = 0;
    beryl_graph *g;
    beryl_status status;
    beryl_error error;
    beryl_value p[4], d[4];
    float loss;

    check(beryl_graph_open(NULL, &g, &error), &error);
    const beryl_dim rows[] = {{BATCH, 0}, {IN, 0}};
    const beryl_value x = beryl_graph_input(g, "x", BERYL_TYPE_F32, 2, rows),
                      targets = beryl_graph_input(g, "digits", BERYL_TYPE_I32, 1, rows),
                      rate = beryl_graph_input(g, "rate", BERYL_TYPE_F32, 0, NULL);
    const beryl_value hidden = beryl_graph_relu(g, layer(g, x, HIDDEN, IN, &p[0], &p[1])),
                      scores = layer(g, hidden, OUT, HIDDEN, &p[2], &p[3]),
                      losses = beryl_graph_cross_entropy(g, scores, targets),
                      mean = beryl_graph_mean(g, losses, NULL, 0, false);
    beryl_graph_gradient(g, mean, 4, p, d);
    beryl_graph_optimise(g, 4, p, d, rate, &(beryl_optimiser){.kind = BERYL_ADAM}, NULL);
    beryl_graph_output(g, mean, "loss");
    beryl_graph_output(g, scores, "scores");

    while ((status = beryl_graph_compile(g, &error)) == BERYL_PENDING) {}
    check(status, &error);
    first_weights(g, p[0], HIDDEN, IN, &state);
    first_weights(g, p[2], OUT, HIDDEN, &state);
    for (int step = 0; step < STEPS + 4; step++) { /* in the last ones it does not learn */
        const float speed = step < STEPS ? 0.01f * (1 - (float)step / STEPS) : 0;
        draw_batch(&state, pictures, digits);
        check(beryl_graph_set(g, x, pictures, sizeof pictures, &error), &error);
        check(beryl_graph_set(g, targets, digits, sizeof digits, &error), &error);
        check(beryl_graph_set(g, rate, &speed, sizeof speed, &error), &error);
        while ((status = beryl_graph_run(g, NULL, 0, &error)) == BERYL_PENDING) {}
        check(status, &error);
        check(beryl_graph_wait(g, &error), &error);
        check(beryl_graph_read(g, mean, &loss, sizeof loss, &error), &error);
        if (step % 30 == 0) printf("step %3d: loss %.4f\n", step, (double)loss);
        if (step < STEPS) continue;
        check(beryl_graph_read(g, scores, logits, sizeof logits, &error), &error);
        for (int i = 0; i < BATCH; i++, asked++) {
            int best = 0;
            for (int k = 1; k < OUT; k++)
                if (logits[i][k] > logits[i][best]) best = k;
            right += best == digits[i];
        }
    }
    printf("%u of %u new digits are read right\n", right, asked);
    beryl_graph_close(g);
    return right * 10 >= asked * 9 ? 0 : 1;
}
