/* training_test.c - a perceptron of two layers trained by each optimiser: its loss, step by step,
 * against plain loops in double that are written here; the same bits in every run; states set and
 * got; clipping and dropout. */
#include "rig.h"

#include "beryl_nn.h"

#include "base/thread.h"

#include <math.h>
#include <string.h>

/* Rows, inputs, hidden numbers, classes; steps of a run. */
enum { N = 8, D = 5, H = 6, C = 3, STEPS = 25, PARAMETERS = 4, SIZE_MAX_ = H * D };

static const uint32_t sizes[PARAMETERS] = {H * D, H, C *H, C};
static const uint32_t shapes[PARAMETERS][2] = {{H, D}, {H, 0}, {C, H}, {C, 0}};
static const char *const names[PARAMETERS] = {"w1", "b1", "w2", "b2"};

struct how {
    const char *name;
    beryl_optimiser how;
    float rate, clip;
    float scale; /* of the loss; 0: none */
    bool halves; /* what is multiplied is F16 */
    bool coded;  /* moments in 8 bits */
};

static const struct how hows[] = {
    {"sgd", {.kind = BERYL_SGD}, .rate = 0.5f},
    {"sgd-nesterov",
     {.kind = BERYL_SGD, .momentum = 0.9f, .nesterov = true, .weight_decay = 0.01f},
     .rate = 0.1f},
    {"sgd-clipped", {.kind = BERYL_SGD, .momentum = 0.5f}, .rate = 0.5f, .clip = 0.125f},
    {"adam", {.kind = BERYL_ADAM, .weight_decay = 0.01f}, .rate = 0.02f},
    {"adamw", {.kind = BERYL_ADAMW, .weight_decay = 0.1f, .beta2 = 0.98f}, .rate = 0.02f},
    {"rmsprop", {.kind = BERYL_RMSPROP, .momentum = 0.5f}, .rate = 0.01f},
    {"lion", {.kind = BERYL_LION, .weight_decay = 0.1f, .beta2 = 0.95f}, .rate = 0.01f},
    {"sgd-scaled", {.kind = BERYL_SGD, .momentum = 0.5f}, .rate = 0.25f, .scale = 1024},
    {"adamw-coded",
     {.kind = BERYL_ADAMW, .weight_decay = 0.1f, .beta2 = 0.98f},
     .rate = 0.02f,
     .clip = 1,
     .coded = true},
    {"adagrad", {.kind = BERYL_ADAGRAD, .weight_decay = 0.01f}, .rate = 0.1f},
};

static float first_number(uint32_t parameter, uint32_t i) {
    return (float)((i * 7 + parameter * 5 + i / 3) % 13) / 16 - 0.375f;
}

static float input_number(uint32_t i) {
    return (float)((i * 5 + i / D * 3) % 11) / 5 - 1;
}

static int32_t target_of(uint32_t row) {
    return row == 5 ? -1 : (int32_t)(row * 2 % C);
}

/* ---- plain loops ----------------------------------------------------------------------------- */

typedef struct net {
    double p[PARAMETERS][SIZE_MAX_], d[PARAMETERS][SIZE_MAX_], m[PARAMETERS][SIZE_MAX_],
        v[PARAMETERS][SIZE_MAX_];
} net;

/* The loss of the net and its gradients. */
static double pass(net *w) {
    double loss = 0;
    memset(w->d, 0, sizeof w->d);
    for (uint32_t n = 0; n < N; n++) {
        double h[H], z[C], sum = 0, dh[H] = {0};
        if (target_of(n) < 0) continue;
        for (uint32_t j = 0; j < H; j++) {
            double a = w->p[1][j];
            for (uint32_t i = 0; i < D; i++)
                a += (double)input_number(n * D + i) * w->p[0][j * D + i];
            h[j] = tanh(a);
        }
        for (uint32_t c = 0; c < C; c++) {
            z[c] = w->p[3][c];
            for (uint32_t j = 0; j < H; j++) z[c] += h[j] * w->p[2][c * H + j];
            sum += exp(z[c]);
        }
        loss += (log(sum) - z[target_of(n)]) / N;
        for (uint32_t c = 0; c < C; c++) {
            const double dz = (exp(z[c]) / sum - ((int32_t)c == target_of(n))) / N;
            w->d[3][c] += dz;
            for (uint32_t j = 0; j < H; j++) {
                w->d[2][c * H + j] += dz * h[j];
                dh[j] += dz * w->p[2][c * H + j];
            }
        }
        for (uint32_t j = 0; j < H; j++) {
            const double da = dh[j] * (1 - h[j] * h[j]);
            w->d[1][j] += da;
            for (uint32_t i = 0; i < D; i++)
                w->d[0][j * D + i] += da * (double)input_number(n * D + i);
        }
    }
    return loss;
}

static void clip(net *w, double most) {
    double sum = 0;
    for (uint32_t k = 0; k < PARAMETERS; k++)
        for (uint32_t i = 0; i < sizes[k]; i++) sum += w->d[k][i] * w->d[k][i];
    const double factor = most / (sqrt(sum) + 1e-6);
    for (uint32_t k = 0; k < PARAMETERS && factor < 1; k++)
        for (uint32_t i = 0; i < sizes[k]; i++) w->d[k][i] *= factor;
}

static void step_one(const struct how *how, uint32_t t, double *p, double d, double *m, double *v) {
    const beryl_optimiser *o = &how->how;
    const double rate = (double)how->rate, decay = (double)o->weight_decay,
                 momentum = (double)o->momentum, eps = 1e-8, beta1 = 0.9,
                 beta2 = o->beta2 > 0               ? (double)o->beta2
                         : o->kind == BERYL_RMSPROP ? 0.99
                                                    : 0.999;
    if (o->kind == BERYL_LION) {
        const double c = beta1 * *m + (1 - beta1) * d;
        *p -= rate * ((c > 0) - (c < 0) + decay * *p);
        *m = beta2 * *m + (1 - beta2) * d;
        return;
    }
    if (o->kind == BERYL_ADAMW) *p -= rate * decay * *p;
    else d += decay * *p;
    if (o->kind == BERYL_SGD) {
        *m = momentum * *m + d;
        *p -= rate * (o->nesterov ? d + momentum * *m : *m);
        return;
    }
    if (o->kind == BERYL_ADAGRAD) {
        *v += d * d;
        *p -= rate * d / (sqrt(*v) + 1e-10);
        return;
    }
    *v = beta2 * *v + (1 - beta2) * d * d;
    if (o->kind == BERYL_RMSPROP) {
        *m = momentum * *m + d / (sqrt(*v) + eps);
        *p -= rate * *m;
        return;
    }
    *m = beta1 * *m + (1 - beta1) * d;
    *p -= rate / (1 - pow(beta1, t)) * *m / (sqrt(*v / (1 - pow(beta2, t))) + eps);
}

/* ---- the graph ------------------------------------------------------------------------------- */

typedef struct trained {
    beryl_graph *g;
    beryl_value x, targets, rate, key, p[PARAMETERS], loss, norm;
} trained;

static void build(trained *r, const struct how *how) {
    beryl_graph *g = r->g;
    const beryl_dim x[] = {{N, 0}, {D, 0}};
    beryl_value d[PARAMETERS];
    r->x = beryl_graph_input(g, "x", BERYL_TYPE_F32, 2, x);
    r->targets = beryl_graph_input(g, "targets", BERYL_TYPE_I32, 1, x);
    r->rate = beryl_graph_input(g, "rate", BERYL_TYPE_F32, 0, NULL);
    for (uint32_t k = 0; k < PARAMETERS; k++)
        r->p[k] = beryl_graph_state(g, names[k], BERYL_TYPE_F32, shapes[k][1] ? 2 : 1, shapes[k]);
    const beryl_value h =
        beryl_graph_tanh(g, beryl_graph_add(g, beryl_graph_linear(g, r->x, r->p[0]), r->p[1]));
    beryl_value z = beryl_graph_add(g, beryl_graph_linear(g, h, r->p[2]), r->p[3]);
    if (how->halves) z = beryl_graph_cast(g, z, BERYL_TYPE_F16, false);
    r->loss = beryl_graph_mean(g, beryl_graph_cross_entropy(g, z, r->targets), NULL, 0, false);
    beryl_optimiser o = how->how;
    if (how->scale > 0)
        o.when = beryl_graph_gradient_scaled(g, r->loss, how->scale, PARAMETERS, r->p, d);
    else beryl_graph_gradient(g, r->loss, PARAMETERS, r->p, d);
    if (how->clip > 0) {
        r->norm = beryl_graph_clip(g, PARAMETERS, d, how->clip, d);
        beryl_graph_output(g, r->norm, "norm");
    }
    if (how->coded) {
        r->key = beryl_graph_input(g, "key", BERYL_TYPE_U32, 1, &(beryl_dim){2, 0});
        beryl_graph_optimise_q8(g, PARAMETERS, r->p, d, r->rate, &o, how->clip, r->key, 0, NULL);
    } else {
        beryl_graph_optimise(g, PARAMETERS, r->p, d, r->rate, &o, NULL);
    }
    beryl_graph_output(g, r->loss, "loss");
}

static beryl_status compile(beryl_graph *g, beryl_error *error) {
    beryl_status status;
    while ((status = beryl_graph_compile(g, error)) == BERYL_PENDING) base_sleep(2e-4);
    return status;
}

/* Trains from the first numbers; gives the losses and what was learned. */
static bool train(test *t, const char *on, const struct how *how, float *losses,
                  float learned[PARAMETERS][SIZE_MAX_]) {
    const beryl_graph_options options = {
        .size = sizeof options, .device = on, .precision = BERYL_PRECISION_EXACT};
    trained made = {0}, *r = &made;
    beryl_error error = {0};
    float x[N * D], first[PARAMETERS][SIZE_MAX_];
    int32_t targets[N];
    beryl_status status = beryl_graph_open(&options, &r->g, &error);
    if (status == BERYL_NO_DEVICE) {
        test_skip(t, "%s", error.message);
        return false;
    }
    if (status == BERYL_OK) build(r, how);
    if (status == BERYL_OK) status = compile(r->g, &error);
    for (uint32_t i = 0; i < N * D; i++) x[i] = input_number(i);
    for (uint32_t i = 0; i < N; i++) targets[i] = target_of(i);
    if (status == BERYL_OK) status = beryl_graph_set(r->g, r->x, x, sizeof x, &error);
    if (status == BERYL_OK)
        status = beryl_graph_set(r->g, r->targets, targets, sizeof targets, &error);
    if (status == BERYL_OK)
        status = beryl_graph_set(r->g, r->rate, &how->rate, sizeof how->rate, &error);
    for (uint32_t k = 0; status == BERYL_OK && k < PARAMETERS; k++) {
        for (uint32_t i = 0; i < sizes[k]; i++) first[k][i] = first_number(k, i);
        status = beryl_graph_state_set(r->g, r->p[k], first[k], sizes[k] * sizeof(float), &error);
    }
    for (uint32_t i = 0; status == BERYL_OK && i < STEPS; i++) {
        const uint32_t key[2] = {3, i};
        if (how->coded) status = beryl_graph_set(r->g, r->key, key, sizeof key, &error);
        if (status == BERYL_OK) status = beryl_graph_run(r->g, NULL, 0, &error);
        if (status == BERYL_OK) status = beryl_graph_wait(r->g, &error);
        if (status == BERYL_OK)
            status = beryl_graph_read(r->g, r->loss, &losses[i], sizeof *losses, &error);
    }
    for (uint32_t k = 0; status == BERYL_OK && k < PARAMETERS; k++)
        status = beryl_graph_state_get(r->g, r->p[k], learned[k], sizes[k] * sizeof(float), &error);
    if (status == BERYL_OK) {
        CHECK_INT(t, beryl_graph_state_get(r->g, r->x, x, sizeof x, &error), BERYL_MISUSE);
        CHECK_INT(t, beryl_graph_state_set(r->g, r->p[1], x, 4, &error), BERYL_MISUSE);
    } else {
        test_fail(t, __FILE__, __LINE__, "%s", error.message);
    }
    beryl_graph_close(r->g);
    return status == BERYL_OK;
}

/* What was learned lies where moments in double lead, but for a part of the way there. Of a mean 8
 * bits keep the root: one of 127, so a step is off by at most a hundredth of the largest one, by
 * chance this way or that; 25 such steps are off by a twentieth of one. A square that is small
 * beside its code adds as much. */
static void check_way(test *t, const net *w, float learned[PARAMETERS][SIZE_MAX_]) {
    double off = 0, way = 0;
    for (uint32_t k = 0; k < PARAMETERS; k++)
        for (uint32_t i = 0; i < sizes[k]; i++) {
            const double from = (double)first_number(k, i),
                         miss = (double)learned[k][i] - w->p[k][i];
            off += miss * miss;
            way += (w->p[k][i] - from) * (w->p[k][i] - from);
        }
    CHECK(t, sqrt(off) < 0.1 * sqrt(way));
    CHECK(t, off > 0);
}

/* F32 against double: 1e-5 of the loss, after all steps. */
static void check_optimiser(test *t, const char *on, const struct how *how) {
    float losses[2][STEPS], learned[2][PARAMETERS][SIZE_MAX_] = {{{0}}};
    static const net empty;
    net w = empty;
    for (uint32_t i = 0; i < 2; i++)
        if (!train(t, on, how, losses[i], learned[i])) return;
    CHECK(t, !memcmp(losses[0], losses[1], sizeof losses[0]));
    CHECK(t, !memcmp(learned[0], learned[1], sizeof learned[0]));
    for (uint32_t k = 0; k < PARAMETERS; k++)
        for (uint32_t i = 0; i < sizes[k]; i++) w.p[k][i] = (double)first_number(k, i);
    for (uint32_t s = 0; s < STEPS && !test_failed(t); s++) {
        const double loss = pass(&w);
        if (!how->coded) CHECK_NEAR(t, (double)losses[0][s], loss, 1e-5);
        if (how->clip > 0) clip(&w, (double)how->clip);
        for (uint32_t k = 0; k < PARAMETERS; k++)
            for (uint32_t i = 0; i < sizes[k]; i++)
                step_one(how, s + 1, &w.p[k][i], w.d[k][i], &w.m[k][i], &w.v[k][i]);
    }
    if (how->coded) check_way(t, &w, learned[0]);
    for (uint32_t k = 0; k < PARAMETERS && !how->coded; k++)
        for (uint32_t i = 0; i < sizes[k] && !test_failed(t); i++)
            CHECK_NEAR(t, (double)learned[0][k][i], w.p[k][i], 1e-4);
    CHECK(t, losses[0][STEPS - 1] < losses[0][0] - 0.05f); /* it learns */
}

/* Gradients of halves that overflow until the scale is small enough: such steps change nothing. */
static void check_scale(test *t, const char *on) {
    enum { SKIPPED = 4 }; /* 2^24 / 8 rows times probabilities is above 65,504 so often at least */
    static const struct how how = {
        "halves", {.kind = BERYL_ADAM}, .rate = 0.05f, .scale = 1 << 24, .halves = true};
    float losses[STEPS], learned[PARAMETERS][SIZE_MAX_];
    if (!train(t, on, &how, losses, learned)) return;
    for (uint32_t i = 1; i <= SKIPPED; i++) CHECK(t, !memcmp(&losses[i], losses, sizeof *losses));
    CHECK(t, losses[STEPS - 1] < losses[0] - 0.05f);
}

/* ---- dropout, assign ------------------------------------------------------------------------- */

static void check_dropout(test *t, const char *on) {
    const beryl_graph_options options = {.size = sizeof options, .device = on};
    enum { ALL = 4000 };
    beryl_graph *g = NULL;
    beryl_error error = {0};
    float got[ALL], kept = 0;
    if (beryl_graph_open(&options, &g, &error) != BERYL_OK) {
        test_fail(t, __FILE__, __LINE__, "%s", error.message);
        return;
    }
    const beryl_value two = beryl_graph_constant(g, BERYL_TYPE_F32, 0, NULL, &(float){2}),
                      x = beryl_graph_expand(g, two, 1, &(beryl_dim){ALL, 0}),
                      y = beryl_graph_dropout(g, beryl_graph_key(g, 3), 0, x, 0.25f);
    beryl_value d;
    beryl_graph_gradient(g, beryl_graph_sum(g, y, NULL, 0, false), 1, &x, &d);
    CHECK_INT(t, beryl_graph_eval(g, d, got, sizeof got, &error), BERYL_OK);
    for (uint32_t i = 0; i < ALL; i++) {
        CHECK(t, got[i] == 0 || fabsf(got[i] - 1 / 0.75f) < 1e-6f);
        kept += got[i] > 0;
    }
    CHECK_NEAR(t, (double)kept / ALL, 0.75, 0.03);
    beryl_graph_close(g);
}

/* A state that takes another's place, twice a run, and counts. */
static void check_assign(test *t, const char *on) {
    const beryl_graph_options options = {.size = sizeof options, .device = on};
    static const uint32_t dims[] = {2, 3};
    beryl_graph *g = NULL;
    beryl_error error = {0};
    float got[6] = {0}, want[6];
    if (beryl_graph_open(&options, &g, &error) != BERYL_OK) {
        test_fail(t, __FILE__, __LINE__, "%s", error.message);
        return;
    }
    const beryl_value a = beryl_graph_state(g, "a", BERYL_TYPE_F32, 2, dims),
                      b = beryl_graph_state(g, "b", BERYL_TYPE_F32, 2, (const uint32_t[]){3, 2}),
                      before = beryl_graph_scale(g, a, 10),
                      counted = beryl_graph_assign(g, a, beryl_graph_add_scalar(g, a, 1)),
                      turned = beryl_graph_assign(
                          g, b, beryl_graph_permute(g, counted, 2, (const uint32_t[]){1, 0})),
                      again = beryl_graph_assign(
                          g, a,
                          beryl_graph_reshape(g, turned, 2, (const beryl_dim[]){{2, 0}, {3, 0}})),
                      y = beryl_graph_add(g, before, again);
    beryl_graph_output(g, y, "y");
    beryl_status status = compile(g, &error);
    const float first[6] = {0, 1, 2, 3, 4, 5};
    if (status == BERYL_OK) status = beryl_graph_state_set(g, a, first, sizeof first, &error);
    memcpy(want, first, sizeof want);
    for (int run = 0; status == BERYL_OK && run < 3; run++) {
        float next[6];
        for (int i = 0; i < 6; i++) next[i] = want[i % 2 * 3 + i / 2] + 1;
        status = beryl_graph_run(g, NULL, 0, &error);
        if (status == BERYL_OK) status = beryl_graph_wait(g, &error);
        if (status == BERYL_OK) status = beryl_graph_read(g, y, got, sizeof got, &error);
        for (int i = 0; i < 6; i++) CHECK_NEAR(t, got[i], 10 * want[i] + next[i], 0);
        memcpy(want, next, sizeof want);
    }
    if (status == BERYL_OK) status = beryl_graph_state_get(g, a, got, sizeof got, &error);
    CHECK(t, !memcmp(got, want, sizeof got));
    if (status != BERYL_OK) test_fail(t, __FILE__, __LINE__, "%s", error.message);
    beryl_graph_close(g);
}

/* Wherever memory ends while the graph is built and compiled: an error, and all is given back. */
static void check_no_memory(test *t) {
    beryl_status status = BERYL_NO_MEMORY;
    for (uint64_t n = 0; status == BERYL_NO_MEMORY && n < 5000 && !test_failed(t); n++) {
        rig_failing failing = {n};
        const beryl_graph_options options = {
            .size = sizeof options,
            .device = "reference",
            .allocator = {.resize = rig_failing_resize, .user = &failing}};
        trained r = {0};
        beryl_error error = {0};
        status = beryl_graph_open(&options, &r.g, &error);
        if (status == BERYL_OK) build(&r, &hows[(const size_t[]){2, 4, 7}[n % 3]]);
        if (status == BERYL_OK) status = compile(r.g, &error);
        beryl_graph_close(r.g);
        if (status != BERYL_OK) CHECK_INT(t, status, BERYL_NO_MEMORY);
    }
    CHECK_INT(t, status, BERYL_OK);
}

void test_training(test *t) {
    static const char *const devices[] = {"reference", "host", "software"};
    if (test_case(t, "training/no-memory")) check_no_memory(t);
    for (size_t d = 0; d < sizeof devices / sizeof *devices; d++) {
        for (size_t i = 0; i < sizeof hows / sizeof *hows; i++)
            if ((!d || test_drawn(i, d, 6)) &&
                test_case(t, "training/%s/%s", devices[d], hows[i].name))
                check_optimiser(t, devices[d], &hows[i]);
        if (test_case(t, "training/%s/loss-scale", devices[d])) check_scale(t, devices[d]);
        if (test_case(t, "training/%s/assign", devices[d])) check_assign(t, devices[d]);
        if (d < 2 && test_case(t, "training/%s/dropout", devices[d])) check_dropout(t, devices[d]);
    }
}
