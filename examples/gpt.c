/* gpt.c - a transformer of two layers learns a text, character by character, and goes on with it:
 * forward pass, gradients, adamw and sampling in one graph of some 100,000 parameters.
 *   cc gpt.c $(pkg-config --cflags --libs beryl) -lm -o gpt && ./gpt [TEXT [STEPS]] */
#include "beryl_nn.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { BATCH = 8, TIME = 32, WIDTH = 64, HEADS = 4 };
enum { LAYERS = 2, CHARS = 128, MOST = 2 + 8 * LAYERS /* parameters */ };

static void check(beryl_status status, const beryl_error *error) {
    if (status == BERYL_OK) return;
    fprintf(stderr, "gpt: %s\n", error->message);
    exit(1);
}

typedef struct model {
    beryl_graph *g;
    beryl_value p[MOST]; /* parameters: states */
    uint32_t sizes[MOST][2], n;
} model;

/* A matrix; of one row a vector, which begins as ones. */
static beryl_value parameter(model *m, uint32_t rows, uint32_t columns) {
    uint32_t *sizes = m->sizes[m->n];
    sizes[0] = rows, sizes[1] = columns;
    return m->p[m->n++] =
               beryl_graph_state(m->g, "p", BERYL_TYPE_F32, 2 - (rows == 1), sizes + (rows == 1));
}

static const uint32_t turned[] = {0, 2, 1, 3};

/* x [BATCH, TIME, WIDTH] times a parameter -> [BATCH, HEADS, TIME, WIDTH / HEADS] */
static beryl_value in_heads(model *m, beryl_value x) {
    const beryl_dim dims[] = {{BATCH, 0}, {TIME, 0}, {HEADS, 0}, {WIDTH / HEADS, 0}};
    x = beryl_graph_linear(m->g, x, parameter(m, WIDTH, WIDTH));
    return beryl_graph_permute(m->g, beryl_graph_reshape(m->g, x, 4, dims), 4, turned);
}

static beryl_value layer(model *m, beryl_value x) {
    const beryl_dim dims[] = {{BATCH, 0}, {TIME, 0}, {WIDTH, 0}};
    const beryl_value h = beryl_graph_rms_norm(m->g, x, parameter(m, 1, WIDTH), 1e-5f),
                      q = in_heads(m, h), k = in_heads(m, h), v = in_heads(m, h);
    beryl_value y = beryl_graph_sdpa(m->g, q, k, v, 0, &(beryl_sdpa){.causal = true});
    y = beryl_graph_permute(m->g, y, 4, turned);
    y = beryl_graph_linear(m->g, beryl_graph_reshape(m->g, y, 3, dims), parameter(m, WIDTH, WIDTH));
    x = beryl_graph_add(m->g, x, y);
    y = beryl_graph_rms_norm(m->g, x, parameter(m, 1, WIDTH), 1e-5f);
    y = beryl_graph_gelu_tanh(m->g, beryl_graph_linear(m->g, y, parameter(m, 4 * WIDTH, WIDTH)));
    return beryl_graph_add(m->g, x, beryl_graph_linear(m->g, y, parameter(m, WIDTH, 4 * WIDTH)));
}

static float chance(uint32_t *state) { /* from 0 to 1 */
    *state ^= *state << 13;
    *state ^= *state >> 17;
    *state ^= *state << 5;
    return (float)(*state >> 8) / (1 << 24);
}

static void first_numbers(model *m, uint32_t *state) {
    static float numbers[4 * WIDTH * WIDTH];
    beryl_error error;
    for (uint32_t k = 0; k < m->n; k++) {
        const uint32_t n = m->sizes[k][0] * m->sizes[k][1];
        for (uint32_t i = 0; i < n; i++)
            numbers[i] = m->sizes[k][0] == 1 ? 1 : 0.2f * (chance(state) - 0.5f);
        check(beryl_graph_state_set(m->g, m->p[k], numbers, n * sizeof *numbers, &error), &error);
    }
}

/* A character by softmax at temperature 1/2. */
static int choose(const float *row, float left) {
    float sum = 0;
    int c = 0;
    for (int i = 0; i < CHARS; i++) sum += expf(2 * row[i]);
    while (c < CHARS - 1 && (left -= expf(2 * row[c]) / sum) > 0) c++;
    return c < ' ' ? ' ' : c;
}

int main(int argc, char **argv) {
    static char text[1 << 20] =
        "the fox sees the dog. the dog sees the cat. the cat sees the bird. "
        "the bird sees the fox. a fox runs. a dog runs. a cat sleeps. ";
    static float logits[BATCH][TIME][CHARS];
    static int32_t ids[BATCH][TIME], next[BATCH][TIME];
    uint32_t state = 2463534242u;
    const int steps = argc > 2 ? atoi(argv[2]) : 60;
    FILE *file = argc > 1 ? fopen(argv[1], "rb") : NULL;
    if (file) text[fread(text, 1, sizeof text - 1, file)] = 0;
    for (char *c = text; *c; c++) *c &= 127;
    const float length = (float)strlen(text) - TIME - 1;
    if (length <= 0) return 1;
    model made = {0}, *m = &made;
    beryl_status status;
    beryl_error error;
    beryl_value d[MOST];
    float loss = 0;
    check(beryl_graph_open(NULL, &m->g, &error), &error);
    beryl_graph *g = m->g;
    const beryl_dim rows[] = {{BATCH, 0}, {TIME, 0}}, all[] = {{BATCH * TIME, 0}, {CHARS, 0}};
    const beryl_value in = beryl_graph_input(g, "ids", BERYL_TYPE_I32, 2, rows),
                      targets = beryl_graph_input(g, "next", BERYL_TYPE_I32, 2, rows),
                      rate = beryl_graph_input(g, "rate", BERYL_TYPE_F32, 0, NULL),
                      table = parameter(m, CHARS, WIDTH), places = parameter(m, TIME, WIDTH);
    beryl_value x = beryl_graph_add(g, beryl_graph_gather_rows(g, table, in, 1), places);
    for (int i = 0; i < LAYERS; i++) x = layer(m, x);
    x = beryl_graph_linear(g, beryl_graph_rms_norm(g, x, 0, 1e-5f), table);
    const beryl_value scores = beryl_graph_reshape(g, x, 2, all),
                      right = beryl_graph_reshape(g, targets, 1, all),
                      losses = beryl_graph_cross_entropy(g, scores, right),
                      mean = beryl_graph_mean(g, losses, NULL, 0, false);
    beryl_graph_gradient(g, mean, m->n, m->p, d);
    beryl_graph_optimise(g, m->n, m->p, d, rate,
                         &(beryl_optimiser){.kind = BERYL_ADAMW, .weight_decay = 0.01f}, NULL);
    beryl_graph_output(g, mean, "loss");
    beryl_graph_output(g, x, "scores");
    while ((status = beryl_graph_compile(g, &error)) == BERYL_PENDING) {}
    check(status, &error);
    first_numbers(m, &state);
    for (int step = 0; step < steps + TIME; step++) {
        const bool learns = step < steps; /* then it goes on with what it read last */
        const float speed = learns ? 1e-2f : 0;
        for (int b = 0; learns && b < BATCH; b++) {
            const char *from = text + (int)(chance(&state) * length);
            for (int i = 0; i < TIME; i++) ids[b][i] = from[i], next[b][i] = from[i + 1];
        }
        check(beryl_graph_set(g, in, ids, sizeof ids, &error), &error);
        check(beryl_graph_set(g, targets, next, sizeof next, &error), &error);
        check(beryl_graph_set(g, rate, &speed, sizeof speed, &error), &error);
        while ((status = beryl_graph_run(g, NULL, 0, &error)) == BERYL_PENDING) {}
        check(status, &error);
        check(beryl_graph_wait(g, &error), &error);
        if (learns) {
            check(beryl_graph_read(g, mean, &loss, sizeof loss, &error), &error);
            if (step % 20 == 0) printf("step %d: loss %.3f\n", step, (double)loss);
            continue;
        }
        check(beryl_graph_read(g, x, logits, sizeof logits, &error), &error);
        const int c = choose(logits[0][TIME - 1], chance(&state));
        putchar(c);
        memmove(ids[0], ids[0] + 1, (TIME - 1) * sizeof ids[0][0]);
        ids[0][TIME - 1] = c;
    }
    printf("\nloss %.3f\n", (double)loss);
    beryl_graph_close(g);
    return loss < 2 ? 0 : 1;
}
