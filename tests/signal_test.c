/* signal_test.c - spectra of parts of a signal, peaks, distances and nearest points: through
 * beryl_graph.h against loops that are written here, and in all forms against the reference
 * functions. */
#include "beryl_graph.h"
#include "forms.h"
#include "typed.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { MOST = 1 << 16 };

/* A graph, its one or two inputs and what came out. */
typedef struct lab {
    beryl_graph *g;
    beryl_value in[2], out[2];
    float x[2][MOST], y[MOST];
    int32_t at[MOST];
    uint32_t n[2];
} lab;

static lab *lab_open(test *t, const char *on) {
    lab *l = calloc(1, sizeof *l);
    beryl_error error = {0};
    const beryl_graph_options options = {
        .size = sizeof options, .device = on, .precision = BERYL_PRECISION_EXACT};
    const beryl_status status = beryl_graph_open(&options, &l->g, &error);
    if (status == BERYL_NO_DEVICE) test_skip(t, "%s", error.message);
    else if (status != BERYL_OK) test_fail(t, __FILE__, __LINE__, "%s", error.message);
    if (status == BERYL_OK) return l;
    free(l);
    return NULL;
}

static void lab_close(lab *l) {
    beryl_graph_close(l->g);
    free(l);
}

static beryl_value lab_input(lab *l, uint32_t i, uint32_t rank, const beryl_dim *dims) {
    l->n[i] = 1;
    for (uint32_t k = 0; k < rank; k++) l->n[i] *= dims[k].size;
    for (uint32_t k = 0; k < l->n[i]; k++)
        l->x[i][k] = (float)((k * 7919 + i * 31 + k / 3) % 257) / 128 - 1;
    return l->in[i] = beryl_graph_input(l->g, "x", BERYL_TYPE_F32, rank, dims);
}

/* n numbers of out[0], and as many indices of out[1] if there is one. */
static bool lab_run(test *t, lab *l, uint32_t n) {
    beryl_error error = {0};
    beryl_status status;
    for (uint32_t i = 0; i < 2; i++) {
        if (i && !l->out[i]) continue;
        beryl_graph_output(l->g, l->out[i], "y");
    }
    do status = beryl_graph_compile(l->g, &error);
    while (status == BERYL_PENDING);
    for (uint32_t i = 0; status == BERYL_OK && i < 2; i++)
        if (l->in[i])
            status = beryl_graph_set(l->g, l->in[i], l->x[i], l->n[i] * sizeof(float), &error);
    if (status == BERYL_OK) status = beryl_graph_run(l->g, NULL, 0, &error);
    if (status == BERYL_OK) status = beryl_graph_wait(l->g, &error);
    if (status == BERYL_OK)
        status = beryl_graph_read(l->g, l->out[0], l->y, n * sizeof(float), &error);
    if (status == BERYL_OK && l->out[1])
        status = beryl_graph_read(l->g, l->out[1], l->at, n * sizeof(int32_t), &error);
    if (status != BERYL_OK) test_fail(t, __FILE__, __LINE__, "%s", error.message);
    return status == BERYL_OK;
}

static const double turn = 6.28318530717958647693;

typedef struct parts {
    uint32_t n, size, step;
    bool window;
} parts;

static const parts shapes[] = {{100, 16, 4, true}, {100, 16, 5, true},   {77, 13, 13, false},
                               {64, 64, 1, true},  {90, 10, 7, false},   {600, 263, 50, true},
                               {31, 4, 9, false},  {1000, 128, 64, true}};
enum { SHAPES = sizeof shapes / sizeof *shapes };

static double window_at(const parts *p, uint32_t i) {
    return p->window ? 0.5 - 0.5 * cos(turn * i / p->size) : 1;
}

/* Frequency k of part `part` of x; less: is taken from each element. */
static void spectrum(const parts *p, const float *x, uint32_t part, uint32_t k, double less,
                     double y[2]) {
    y[0] = y[1] = 0;
    for (uint32_t i = 0; i < p->size; i++) {
        const double v = ((double)x[part * p->step + i] - less) * window_at(p, i),
                     angle = -turn * (double)((uint64_t)i * k % p->size) / p->size;
        y[0] += v * cos(angle);
        y[1] += v * sin(angle);
    }
}

/* Two signals; and back again. */
static void stft(test *t, const char *on, const parts *p) {
    enum { BATCH = 2 };
    lab *l = lab_open(t, on);
    if (!l) return;
    const uint32_t count = (p->n - p->size) / p->step + 1, half = p->size / 2 + 1,
                   length = (count - 1) * p->step + p->size;
    const beryl_value x = lab_input(l, 0, 2, (beryl_dim[]){{BATCH, 0}, {p->n, 0}}),
                      w = p->window ? beryl_graph_hann(l->g, p->size) : 0;
    beryl_graph *g = l->g;
    l->out[0] = beryl_graph_stft(g, x, w, p->size, p->step);
    const beryl_value again = beryl_graph_istft(g, l->out[0], w, p->size, p->step);
    beryl_graph_output(g, again, "again");
    if (lab_run(t, l, BATCH * count * half * 2)) {
        for (uint32_t i = 0; i < BATCH * count * half; i++) {
            double want[2];
            spectrum(p, l->x[0] + i / half / count * p->n, i / half % count, i % half, 0, want);
            CHECK_NEAR(t, l->y[2 * i], want[0], 2e-5);
            CHECK_NEAR(t, l->y[2 * i + 1], want[1], 2e-5);
        }
        beryl_error error = {0};
        CHECK_INT(t, beryl_graph_read(g, again, l->y, BATCH * length * sizeof(float), &error),
                  BERYL_OK);
        for (uint32_t i = 0; i < BATCH * length; i++) {
            double weight = 0; /* where the windows are next to nothing, so is what is left */
            const uint32_t at = i % length;
            for (uint32_t k = 0; k < count; k++)
                if (at >= k * p->step && at - k * p->step < p->size)
                    weight += pow(window_at(p, at - k * p->step), 2);
            if (weight > 0.01)
                CHECK_NEAR(t, l->y[i], l->x[0][i / length * p->n + at], 2e-6 / sqrt(weight) + 2e-6);
            else if (weight < 1e-12) CHECK_NEAR(t, l->y[i], 0, 1e-3);
        }
    }
    lab_close(l);
}

static void welch(test *t, const char *on, const parts *p) {
    enum { K = 3 };
    lab *l = lab_open(t, on);
    if (!l) return;
    const uint32_t count = (p->n - p->size) / p->step + 1, half = p->size / 2 + 1;
    const double rate = 50;
    const beryl_value x = lab_input(l, 0, 2, (beryl_dim[]){{1, 0}, {p->n, 0}}),
                      w = p->window ? beryl_graph_hann(l->g, p->size) : 0;
    beryl_value at = 0;
    l->out[0] = beryl_graph_welch(l->g, x, w, p->size, p->step, (float)rate);
    const beryl_value peaks = beryl_graph_peaks(l->g, l->out[0], K, &at);
    beryl_graph_output(l->g, peaks, "peaks");
    beryl_graph_output(l->g, at, "at");
    if (lab_run(t, l, half)) {
        beryl_error error = {0};
        float highest[K];
        int32_t places[K];
        double squares = 0;
        for (uint32_t i = 0; i < p->size; i++) squares += pow(window_at(p, i), 2);
        for (uint32_t k = 0; k < half; k++) {
            double want = 0, y[2];
            for (uint32_t part = 0; part < count; part++) {
                double mean = 0;
                for (uint32_t i = 0; i < p->size; i++)
                    mean += (double)l->x[0][part * p->step + i] / p->size;
                spectrum(p, l->x[0], part, k, mean, y);
                want += (y[0] * y[0] + y[1] * y[1]) / count;
            }
            want *= (k && 2 * k != p->size ? 2 : 1) / (rate * squares);
            CHECK_NEAR(t, l->y[k], want, 2e-7 + 1e-5 * want);
        }
        CHECK_INT(t, beryl_graph_read(l->g, peaks, highest, sizeof highest, &error), BERYL_OK);
        CHECK_INT(t, beryl_graph_read(l->g, at, places, sizeof places, &error), BERYL_OK);
        uint32_t n_peak = 0;
        for (uint32_t k = 1; k + 1 < half; k++)
            n_peak += l->y[k] > l->y[k - 1] && l->y[k] >= l->y[k + 1];
        for (uint32_t i = 0; i < K; i++) {
            const int32_t k = places[i];
            if (i >= n_peak) {
                CHECK_NEAR(t, highest[i], 0, 0);
                continue;
            }
            CHECK(t, k > 0 && k + 1 < (int32_t)half && l->y[k] > l->y[k - 1] &&
                         l->y[k] >= l->y[k + 1] && highest[i] == l->y[k] &&
                         (!i || highest[i] <= highest[i - 1]));
        }
    }
    lab_close(l);
}

/* As float: nearest points are chosen by what was computed. */
static double distance(beryl_distance kind, const float *a, const float *b, uint32_t d) {
    double squares = 0, dot = 0, of_a = 0, of_b = 0;
    for (uint32_t i = 0; i < d; i++) {
        squares += pow((double)a[i] - (double)b[i], 2);
        dot += (double)a[i] * (double)b[i];
        of_a += (double)a[i] * (double)a[i];
        of_b += (double)b[i] * (double)b[i];
    }
    return kind == BERYL_DISTANCE_EUCLID    ? sqrt(squares)
           : kind == BERYL_DISTANCE_SQUARED ? squares
                                            : 1 - dot / sqrt(of_a * of_b);
}

static void nearest(test *t, const char *on, uint32_t d, beryl_distance kind) {
    enum { N = 23, M = 101, K = 7 };
    for (uint32_t chosen = 0; chosen < 2; chosen++) {
        lab *l = lab_open(t, on);
        if (!l) return;
        const beryl_value q = lab_input(l, 0, 2, (beryl_dim[]){{N, 0}, {d, 0}}),
                          x = lab_input(l, 1, 2, (beryl_dim[]){{M, 0}, {d, 0}});
        const uint32_t per = chosen ? K : M;
        l->out[0] = chosen ? beryl_graph_knn(l->g, x, q, K, kind, &l->out[1])
                           : beryl_graph_pairwise_distance(l->g, q, x, kind);
        const bool ran = lab_run(t, l, N * per);
        /* of a product the root of what is left of two squares */
        const double within = kind == BERYL_DISTANCE_EUCLID && d > 32 ? 2e-3 : 4e-5;
        for (uint32_t i = 0; ran && i < N * per && !test_failed(t); i++) {
            const uint32_t row = i / per, at = chosen ? (uint32_t)l->at[i] : i % per;
            CHECK(t, at < M);
            const double want =
                distance(kind, l->x[0] + row * d, l->x[1] + (at < M ? at : 0) * d, d);
            CHECK_NEAR(t, l->y[i], want, within);
            if (!chosen) continue;
            uint32_t nearer = 0;
            for (uint32_t k = 0; k < M; k++)
                nearer += distance(kind, l->x[0] + row * d, l->x[1] + k * d, d) < want - within;
            CHECK(t, nearer <= i % per);
            for (uint32_t k = row * per; k < i; k++)
                CHECK(t, l->at[k] != l->at[i] && l->y[k] <= l->y[i]);
        }
        lab_close(l);
    }
}

/* Weights of points, by UMAP's own bisection. */
static void umap(test *t, const char *on) {
    enum { N = 61, D = 3, K = 9 };
    lab *l = lab_open(t, on);
    if (!l) return;
    const beryl_value x = lab_input(l, 0, 2, (beryl_dim[]){{N, 0}, {D, 0}});
    for (uint32_t i = 0; i < D; i++) l->x[0][i] = l->x[0][D + i]; /* two in one place */
    beryl_value at = 0;
    const beryl_value far = beryl_graph_knn(l->g, x, x, K, BERYL_DISTANCE_EUCLID, &at);
    l->out[0] = beryl_graph_umap_weights(l->g, far, at);
    beryl_graph_output(l->g, at, "at");
    if (lab_run(t, l, N * N)) {
        beryl_error error = {0};
        static double one[N][N];
        static int32_t places[N * K];
        memset(one, 0, sizeof one);
        CHECK_INT(t, beryl_graph_read(l->g, at, places, sizeof places, &error), BERYL_OK);
        for (uint32_t i = 0; i < N; i++) {
            double d[K], rho = 0, low = 0, high = INFINITY, sigma = 1, mean = 0;
            for (uint32_t k = 0; k < K; k++) {
                d[k] = distance(BERYL_DISTANCE_EUCLID, l->x[0] + i * D,
                                l->x[0] + (uint32_t)places[i * K + k] % N * D, D);
                if (d[k] > 0 && (rho <= 0 || d[k] < rho)) rho = d[k];
                mean += d[k] / K;
            }
            for (uint32_t round = 0; round < 200; round++) {
                double sum = 0;
                for (uint32_t k = 1; k < K; k++) sum += d[k] > rho ? exp(-(d[k] - rho) / sigma) : 1;
                if (sum > log2(K)) high = sigma;
                else low = sigma;
                sigma = isinf(high) ? 2 * sigma : (low + high) / 2;
            }
            if (sigma < 1e-3 * mean) sigma = 1e-3 * mean;
            for (uint32_t k = 0; k < K; k++)
                if ((uint32_t)places[i * K + k] % N != i)
                    one[i][places[i * K + k] % N] = d[k] > rho ? exp(-(d[k] - rho) / sigma) : 1;
        }
        for (uint32_t i = 0; i < N * N; i++) {
            const double a = one[i / N][i % N], b = one[i % N][i / N];
            CHECK_NEAR(t, l->y[i], a + b - a * b, 1e-4);
        }
    }
    lab_close(l);
}

/* ---- in all forms ---------------------------------------------------------------------------- */

typedef enum what { PARTS, AGAIN, POWER, FAR, NEAREST, WHATS } what;

static void build(typed_side *s, const void *user) {
    enum { ROWS = 7 };
    const what w = *(const what *)user;
    graph *g = s->g;
    graph_value places = 0;
    const graph_value hann = w < FAR ? graph_hann(g, 16) : 0;
    if (w == PARTS)
        typed_output(
            s, graph_copy(
                   g, graph_stft(g, typed_input(s, TYPE_F32, 2, (graph_dim[]){{ROWS, 1}, {61, 0}}),
                                 hann, 16, 5)));
    if (w == AGAIN)
        typed_output(
            s,
            graph_copy(g, graph_istft(g,
                                      typed_input(s, TYPE_F32, 4,
                                                  (graph_dim[]){{ROWS, 1}, {6, 0}, {9, 0}, {2, 0}}),
                                      hann, 16, 5)));
    if (w == POWER)
        typed_output(
            s, graph_copy(
                   g, graph_welch(g, typed_input(s, TYPE_F32, 2, (graph_dim[]){{ROWS, 1}, {61, 0}}),
                                  hann, 16, 5, 2)));
    if (w == FAR)
        typed_output(
            s, graph_copy(g, graph_pairwise_distance(
                                 g, typed_input(s, TYPE_F16, 2, (graph_dim[]){{ROWS, 1}, {40, 0}}),
                                 typed_input(s, TYPE_F16, 2, (graph_dim[]){{31, 0}, {40, 0}}),
                                 DISTANCE_SQUARED)));
    if (w == NEAREST)
        typed_output(s, graph_knn(g, typed_input(s, TYPE_F32, 2, (graph_dim[]){{31, 0}, {5, 0}}),
                                  typed_input(s, TYPE_F32, 2, (graph_dim[]){{ROWS, 1}, {5, 0}}), 4,
                                  DISTANCE_EUCLID, &places));
}

static void run_form(test *t, const test_form *form) {
    static const char *const names[WHATS] = {"stft", "istft", "welch", "far", "nearest"};
    base_heap heap;
    device *d = NULL;
    beryl_error error = {0};
    base_heap_init(&heap, NULL);
    const beryl_status status = test_form_open(form, &heap, &d, &error);
    for (uint32_t i = 0; i < WHATS; i++) {
        const what w = (what)i;
        if ((form->stand_in && i) || !test_case(t, "signal/%s/%s", form->name, names[i])) continue;
        if (status == BERYL_NO_DEVICE) test_skip(t, "%s", error.message);
        else if (status != BERYL_OK) test_fail(t, __FILE__, __LINE__, "%s", error.message);
        for (uint64_t round = 0; status == BERYL_OK && test_form_round(t, form, d, &round);)
            typed_run(t, &heap, d,
                      &(typed_problem){.name = names[i],
                                       .build = build,
                                       .what = &w,
                                       .rows = 7,
                                       .fewer = 3,
                                       .fill = TYPED_UNIT,
                                       .seed = round + 3,
                                       .within = 2e-5,
                                       .relative = 1e-5});
    }
    test_form_close(d);
    if (status == BERYL_OK && test_case(t, "signal/%s/gives-everything-back", form->name))
        CHECK_INT(t, heap.bytes, 0);
}

void test_signal(test *t);
void test_signal(test *t) {
    static const char *const on[] = {"reference", "host", "software"}, *const kinds[] = {"euclid",
                                                                                         "squared",
                                                                                         "cosine"};
    for (uint32_t i = 0; i < 3; i++) {
        for (uint32_t k = 0; k < SHAPES; k++) {
            const parts *p = &shapes[k];
            if (i && (i + k) % 4) continue; /* few meet all devices: the forms below do */
            if (test_case(t, "signal/stft-%u-%u-%s", p->size, p->step, on[i])) stft(t, on[i], p);
            if (p->size > 4 && test_case(t, "signal/welch-%u-%u-%s", p->size, p->step, on[i]))
                welch(t, on[i], p);
        }
        if (test_case(t, "signal/umap-%s", on[i])) umap(t, on[i]);
        for (uint32_t k = 0; k < 3; k++) {
            if (test_case(t, "signal/nearest-3-%s-%s", kinds[k], on[i]))
                nearest(t, on[i], 3, (beryl_distance)k);
            if (test_case(t, "signal/nearest-50-%s-%s", kinds[k], on[i]))
                nearest(t, on[i], 50, (beryl_distance)k);
        }
    }
    for (size_t i = 0; i < test_form_count(); i++) run_form(t, &test_forms[i]);
}
