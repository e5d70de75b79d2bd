/* gradient_random.c - see gradient_random.h.
 *
 * A step is drawn from the seed and its own number alone, so that steps can be left out without the
 * others changing: that makes a graph small. All values are matrices of constant sizes; what grows
 * is brought back by smooth bounded functions, so that differences of the loss tell slopes. */
#include "gradient_random.h"

#include "base/memory.h"
#include "base/thread.h"
#include "graph/reference.h"

#include <math.h>
#include <stdio.h>
#include <string.h>

enum { INPUTS = 2, SIDE_MAX = 6, ALL = (1 << GRADIENT_STEPS) - 1 };

typedef struct maker {
    graph *g;
    base_random r;
    graph_value made[INPUTS + GRADIENT_STEPS];
    uint32_t n;
    char names[GRADIENT_STEPS * 24];
} maker;

static uint32_t draw(maker *m, uint32_t n) {
    return (uint32_t)(base_random_unit(&m->r) * n) % n;
}

static graph_dim dim(maker *m, graph_value v, uint32_t axis) {
    return graph_tensor_at(m->g, v)->dim[axis];
}

/* v in the shape of x: itself, or the mean of all of it. */
static graph_value like(maker *m, graph_value v, graph_value x) {
    return graph_same_shape(graph_tensor_at(m->g, v), graph_tensor_at(m->g, x))
               ? v
               : graph_reduce(m->g, OP_MEAN, v, 3, 0);
}

/* Rows of x by whole numbers: 2 i modulo so many. */
static graph_value places(maker *m, graph_value x, uint32_t n) {
    const graph_value i = graph_iota(m->g, x, 0), twice = graph_add(m->g, i, i);
    return graph_mod(m->g, twice, graph_clamp(m->g, twice, (float)n, (float)n));
}

typedef graph_value step_fn(maker *m, graph_value x, graph_value y);

#define STEP(name, what)                                              \
    static graph_value name(maker *m, graph_value x, graph_value y) { \
        graph *g = m->g;                                              \
        (void)y;                                                      \
        return what;                                                  \
    }
STEP(tanh_of, graph_tanh(g, graph_scale(g, x, 1.5f)))
STEP(sin_of, graph_sin(g, x))
STEP(gelu_of, graph_gelu_erf(g, x))
STEP(exp_of, graph_exp(g, graph_neg(g, graph_square(g, x))))
STEP(softplus_of, graph_softplus(g, x))
STEP(added, graph_add(g, x, like(m, y, x)))
STEP(less, graph_sub(g, like(m, y, x), x))
STEP(times, graph_mul(g, x, graph_sin(g, like(m, y, x))))
STEP(over, graph_div(g, x, graph_add_scalar(g, graph_square(g, like(m, y, x)), 1)))
STEP(gated, graph_swiglu(g, x, like(m, y, x)))
STEP(raised, graph_pow(g, graph_add_scalar(g, graph_sigmoid(g, x), 0.5f), like(m, y, x)))
STEP(turned, graph_permute(g, x, 2, (uint32_t[]){1, 0}))
STEP(flat, graph_reshape(g, graph_sin(g, x), 2, (graph_dim[]){dim(m, x, 1), dim(m, x, 0)}))
STEP(flipped, graph_flip(g, x, draw(m, 2)))
STEP(part, graph_narrow(g, x, 0, dim(m, x, 0).size > 1, (dim(m, x, 0).size + 1) / 2, 1))
STEP(every, graph_narrow(g, x, 1, 0, (dim(m, x, 1).size + 1) / 2, 2))
STEP(padded, graph_pad(g, x, draw(m, 2), draw(m, 2), 1, 0.5f))
STEP(rolled, graph_roll(g, x, 1, dim(m, x, 1).size / 2))
STEP(lower, graph_tril(g, x, (int32_t)draw(m, 3) - 1))
STEP(joined, graph_concat(g, 2, (graph_value[]){x, graph_neg(g, x)}, draw(m, 2)))
STEP(summed, graph_mul(g, x, graph_reduce(g, OP_MEAN, x, 1u << draw(m, 2), 0)))
STEP(multiplied, graph_add(g, x, graph_reduce(g, OP_PROD, graph_sin(g, x), 2, 0)))
STEP(so_far, graph_tanh(g, graph_cumsum(g, x, draw(m, 2))))
STEP(products_so_far, graph_cumprod(g, graph_sin(g, x), draw(m, 2)))
STEP(soft, graph_softmax(g, x))
STEP(logs, graph_sub(g, x, graph_logsumexp(g, x, 1u << draw(m, 2))))
STEP(normed, graph_layer_norm(g, x, 0, 0, 0.5f))
STEP(by_size, graph_l2_norm(g, x, draw(m, 2), 0.5f))
STEP(product, graph_tanh(g, graph_matmul(g, x, x, false, true)))
STEP(product_turned, graph_tanh(g, graph_matmul(g, x, x, true, false)))
STEP(taken, graph_gather(g, x, places(m, x, dim(m, x, 0).size), 0))
STEP(scattered, graph_scatter_add(g, x, places(m, x, dim(m, x, 0).size), graph_sin(g, x), 0))

/* Windows of two columns, their means. */
static graph_value windowed(maker *m, graph_value x, graph_value y) {
    (void)y;
    const graph_value v = graph_windows(m->g, graph_pad(m->g, x, 1, 0, 1, 0), 1, 2, 1);
    return v ? graph_squeeze(m->g, graph_reduce(m->g, OP_MEAN, v, 4, 0), 2) : 0;
}

static graph_value diagonal_of(maker *m, graph_value x, graph_value y) {
    (void)y;
    return graph_mul(m->g, graph_unsqueeze(m->g, graph_diagonal(m->g, x, 0, 1), 0), x);
}

static const struct {
    const char *name;
    step_fn *make;
    bool square; /* of as many rows as columns */
} steps[] = {
#define X(name) \
    { #name, name, false }
    X(tanh_of),     X(sin_of),
    X(gelu_of),     X(exp_of),
    X(softplus_of), X(added),
    X(less),        X(times),
    X(over),        X(gated),
    X(raised),      X(turned),
    X(flat),        X(flipped),
    X(part),        X(every),
    X(padded),      X(rolled),
    X(lower),       X(joined),
    X(summed),      X(multiplied),
    X(so_far),      X(products_so_far),
    X(soft),        X(logs),
    X(normed),      X(by_size),
    X(product),     X(product_turned),
    X(taken),       X(scattered),
    X(windowed),    {"diagonal_of", diagonal_of, true},
#undef X
};

/* Of inputs in m->made; `kept`: steps, a bit each. The loss, one number. */
static graph_value make(maker *m, uint64_t seed, uint32_t kept) {
    graph *g = m->g;
    for (uint32_t i = 0; i < GRADIENT_STEPS && g->error.code == BERYL_OK; i++) {
        if (!(kept >> i & 1)) continue;
        m->r = (base_random){seed * 1000003 + i};
        for (int k = 0; k < 4; k++) base_random_unit(&m->r);
        /* what was made last more often than others */
        const uint32_t which = draw(m, sizeof steps / sizeof *steps),
                       from = draw(m, 3) ? m->n - 1 : draw(m, m->n), other = draw(m, m->n);
        const graph_value x = m->made[from];
        if (steps[which].square && dim(m, x, 0).size != dim(m, x, 1).size) continue;
        const graph_value v = steps[which].make(m, x, m->made[other]);
        if (!v) break;
        const graph_tensor *t = graph_tensor_at(g, v);
        if (t->dim[0].size > SIDE_MAX || t->dim[1].size > SIDE_MAX) continue; /* it is left dead */
        m->made[m->n++] = v;
        const size_t at = strlen(m->names);
        snprintf(m->names + at, sizeof m->names - at, " %s(%u %u)", steps[which].name, from, other);
    }
    graph_value loss = 0;
    for (uint32_t i = 0; i < m->n && g->error.code == BERYL_OK; i++) {
        /* other weights for each element */
        const graph_tensor *t = graph_tensor_at(g, m->made[i]);
        const graph_value a = graph_cast(g, graph_iota(g, m->made[i], 0), t->type, false),
                          b = graph_cast(g, graph_iota(g, m->made[i], 1), t->type, false),
                          w = graph_cos(
                              g, graph_add(g, graph_scale(g, a, 0.5f), graph_scale(g, b, 0.25f)));
        const graph_value v = graph_reduce(g, OP_MEAN, graph_mul(g, m->made[i], w), 3, 0);
        loss = loss ? graph_add(g, loss, v) : v;
    }
    return loss;
}

static void inputs(maker *m, base_type type) {
    static const graph_dim dims[INPUTS][2] = {{{3, 0}, {4, 0}}, {{4, 0}, {4, 0}}};
    for (; m->n < INPUTS; m->n++)
        m->made[m->n] = graph_input(m->g, m->n ? "y" : "x", type, 2, dims[m->n]);
}

/* ---- central differences --------------------------------------------------------------------- */

typedef struct lab {
    graph_reference *run;
    graph_value loss;
    beryl_status status;
    beryl_error error;
} lab;

static double loss_at(lab *l, double *x, double value) {
    const double was = *x;
    *x = value;
    if (l->status == BERYL_OK)
        l->status = graph_reference_run(l->run, (uint32_t[GRAPH_EXTENT_MAX + 1]){0}, &l->error);
    *x = was;
    return l->status == BERYL_OK ? *(const double *)graph_reference_value(l->run, l->loss) : 0;
}

/* From steps of h and 2 h; *error: of the slope, which is a third of their difference and what
 * rounding of the loss makes of it. */
static double slope(lab *l, double *x, double *error) {
    const double h = 1e-4, at = *x;
    const double a = loss_at(l, x, at + h), b = loss_at(l, x, at - h),
                 c = loss_at(l, x, at + 2 * h), d = loss_at(l, x, at - 2 * h);
    const double one = (a - b) / (2 * h), two = (c - d) / (4 * h);
    /* sums of some hundred terms, of a size near 1 */
    *error = fabs(two - one) + 1e-13 * (1 + fabs(a)) / h + 1e-7 * fabs(one);
    return one;
}

/* "": right. Else what is wrong; `names`: of the steps. */
static void try_steps(uint64_t seed, uint32_t kept, char wrong[300], char *names, size_t size) {
    base_heap heap;
    graph_store store;
    base_heap_init(&heap, NULL);
    maker m = {.g = graph_open(&heap)};
    lab l = {0};
    graph_value d[INPUTS];
    double got[INPUTS][16];
    base_random r = {seed + 77};
    wrong[0] = 0;
    store_init(&store, &heap, NULL, NULL, 0, NULL);
    inputs(&m, TYPE_F64);
    const graph_value loss = make(&m, seed, kept);
    graph_gradient(m.g, loss, INPUTS, m.made, d);
    l.loss = graph_copy(m.g, loss);
    graph_output(m.g, l.loss, "loss");
    for (uint32_t i = 0; i < INPUTS; i++) graph_output(m.g, d[i] = graph_copy(m.g, d[i]), "d");
    l.status = graph_status(m.g, &l.error);
    if (l.status == BERYL_OK) l.status = graph_reference_open(m.g, &store, &l.run, &l.error);
    for (uint32_t i = 0; l.status == BERYL_OK && i < INPUTS; i++)
        for (uint32_t k = 0; k < (i ? 16 : 12); k++)
            ((double *)graph_reference_input(l.run, m.made[i]))[k] = 2 * base_random_unit(&r) - 1;
    if (l.status == BERYL_OK)
        l.status = graph_reference_run(l.run, (uint32_t[GRAPH_EXTENT_MAX + 1]){0}, &l.error);
    for (uint32_t i = 0; l.status == BERYL_OK && i < INPUTS; i++)
        memcpy(got[i], graph_reference_value(l.run, d[i]), (i ? 16 : 12) * sizeof(double));
    for (uint32_t i = 0; l.status == BERYL_OK && !wrong[0] && i < INPUTS; i++)
        for (uint32_t k = 0; k < (i ? 16 : 12) && !wrong[0]; k++) {
            double *x = graph_reference_input(l.run, m.made[i]), error;
            const double want = slope(&l, x + k, &error);
            if (l.status == BERYL_OK && !(fabs(got[i][k] - want) <= error))
                snprintf(wrong, 300, "towards input %u, element %u: %.12g, not %.12g within %.2g",
                         i, k, got[i][k], want, error);
        }
    if (l.status != BERYL_OK) snprintf(wrong, 300, "%.290s", l.error.message);
    snprintf(names, size, "%s", m.names);
    graph_reference_close(l.run);
    graph_close(m.g);
    store_fini(&store);
}

void gradient_random_check(test *t, uint64_t seed) {
    char wrong[300], least[300], names[GRADIENT_STEPS * 24];
    uint32_t kept = ALL;
    try_steps(seed, kept, wrong, names, sizeof names);
    if (!wrong[0]) return;
    for (uint32_t i = GRADIENT_STEPS; i-- > 0;) {
        try_steps(seed, kept & ~(1u << i), least, names, sizeof names);
        if (least[0]) kept &= ~(1u << i);
    }
    try_steps(seed, kept, least, names, sizeof names);
    test_fail(t, __FILE__, __LINE__, "seed %llu: %s; made small: %s of%s", (unsigned long long)seed,
              wrong, least, names);
}
