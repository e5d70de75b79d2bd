/* fft_test.c - Fourier transforms: on the reference functions against sums written here, in double,
 * of every length that is made in its own way; on every device against the reference functions. */
#include "forms.h"
#include "typed.h"

#include "graph/reference.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { ROWS = 19, FEWER = 3, CONSTANTS = 48 };

typedef enum direction { FORTH, BACK, FROM_REAL, TO_REAL } direction;

typedef struct problem {
    const char *name;
    uint32_t n, axis, rank; /* of the numbers' shape; axis has n, the others below */
    uint32_t dims[8];       /* 0: the extent */
    bool brief;
} problem;

static const problem problems[] = {
    {"1", 1, 1, 2, {0, 1}, true},
    {"2", 2, 0, 1, {2}, false},
    {"3", 3, 1, 2, {0, 3}, false},
    {"8-columns", 8, 0, 2, {8, 5}, true},
    {"30", 30, 1, 2, {0, 30}, false},
    {"31", 31, 1, 3, {2, 31, 3}, false},
    {"36-of-rank-6", 36, 3, 6, {2, 1, 3, 36, 2, 2}, false},
    {"60-of-rank-4", 60, 1, 4, {0, 60, 2, 3}, false},
    {"16", 16, 1, 2, {0, 16}, true},
    {"64-few", 64, 0, 1, {64}, true},
    {"64", 64, 1, 2, {0, 64}, false},
    {"48", 48, 1, 2, {0, 48}, true},
    {"64-of-16-columns", 64, 1, 3, {0, 64, 16}, true},
    {"60-of-8-columns", 60, 0, 2, {60, 8}, true},
    {"67", 67, 1, 2, {0, 67}, false},
    {"122", 122, 1, 2, {3, 122}, false},
    {"263", 263, 1, 2, {0, 263}, true},
    {"384", 384, 1, 2, {0, 384}, false},
    {"512", 512, 1, 2, {0, 512}, false},
    {"1024", 1024, 1, 2, {0, 1024}, true},
    {"1009-few", 1009, 0, 1, {1009}, false},
    {"1200", 1200, 1, 2, {2, 1200}, true},
    {"39-before-a-run's", 39, 0, 2, {39, 0}, true},
    {"40-behind-a-run's", 40, 2, 3, {2, 0, 40}, false},
    {"240-columns", 240, 1, 3, {2, 240, 6}, true},
    {"4096", 4096, 0, 2, {4096, 1}, false},
    {"4096-rows", 4096, 1, 2, {20, 4096}, false},
    {"5005", 5005, 0, 1, {5005}, false},
    {"9216-columns", 9216, 0, 2, {9216, 2}, true},
    {"65536", 65536, 1, 2, {2, 65536}, false},
};
enum { PROBLEMS = sizeof problems / sizeof *problems };

/* The shape of what is transformed: complex numbers, but for FROM_REAL. */
static uint32_t shape_of(const problem *p, direction way, graph_dim *d) {
    for (uint32_t i = 0; i < p->rank; i++)
        d[i] = p->dims[i] ? (graph_dim){p->dims[i], 0} : (graph_dim){ROWS, 1};
    if (way == TO_REAL) d[p->axis].size = p->n / 2 + 1;
    d[p->rank] = (graph_dim){2, 0};
    return p->rank + (way != FROM_REAL);
}

static graph_value transform(graph *g, const problem *p, direction way, graph_fft_norm norm,
                             graph_value x) {
    return way == FROM_REAL ? graph_rfft(g, x, p->axis, norm)
           : way == TO_REAL ? graph_irfft(g, x, p->axis, p->n, norm)
                            : graph_fft(g, x, p->axis, way == BACK, norm);
}

/* ---- what they are --------------------------------------------------------------------------- */

typedef struct lab {
    graph *g;
    graph_store store;
    graph_reference *r;
    graph_value x, y, constants[CONSTANTS];
    float *numbers[CONSTANTS];
    uint32_t n;
} lab;

static graph_value keep(void *user, uint32_t n, const float *numbers) {
    lab *l = user;
    if (l->n == CONSTANTS || !(l->numbers[l->n] = malloc(n * sizeof *numbers))) return 0;
    memcpy(l->numbers[l->n], numbers, n * sizeof *numbers);
    return l->constants[l->n++] = graph_input(l->g, "c", TYPE_F32, 1, (graph_dim[]){{n, 0}});
}

static void lab_open(lab *l, base_heap *heap) {
    *l = (lab){.g = graph_open(heap)};
    store_init(&l->store, heap, NULL, NULL, 0, NULL);
    l->g->constants.fn = keep;
    l->g->constants.context = l;
    graph_extent_add(l->g, "rows", ROWS);
}

static void lab_close(lab *l) {
    graph_reference_close(l->r);
    graph_close(l->g);
    store_fini(&l->store);
    for (uint32_t i = 0; i < l->n; i++) free(l->numbers[i]);
}

static float number_at(uint64_t i) {
    return (float)((i * 7919 + i / 3) % 257) / 128 - 1;
}

static const float *lab_run(test *t, lab *l) {
    beryl_error error = {0};
    graph_output(l->g, l->y, "y");
    beryl_status status = graph_status(l->g, &error);
    if (status == BERYL_OK) status = graph_reference_open(l->g, &l->store, &l->r, &error);
    if (status == BERYL_OK) {
        float *x = graph_reference_input(l->r, l->x);
        for (uint64_t i = 0, n = graph_element_bound(graph_tensor_at(l->g, l->x)); i < n; i++)
            x[i] = number_at(i);
        for (uint32_t i = 0; i < l->n; i++)
            memcpy(graph_reference_input(l->r, l->constants[i]), l->numbers[i],
                   graph_element_bound(graph_tensor_at(l->g, l->constants[i])) * sizeof(float));
        status = graph_reference_run(l->r, (const uint32_t[]){0, ROWS}, &error);
    }
    if (status != BERYL_OK) test_fail(t, __FILE__, __LINE__, "%s", error.message);
    return status == BERYL_OK ? graph_reference_value(l->r, l->y) : NULL;
}

/* One frequency, or one number on the way back, of the line of x that begins at `from`: its
 * elements lie `step` numbers apart. */
static void by_sum(const problem *p, direction way, graph_fft_norm norm, uint64_t from,
                   uint64_t step, uint32_t k, double y[2]) {
    const uint32_t n = p->n;
    const bool back = way == BACK || way == TO_REAL;
    y[0] = y[1] = 0;
    for (uint32_t i = 0; i < n; i++) {
        const bool other = way == TO_REAL && i > n / 2; /* the conjugate of its mirror */
        const uint64_t at = from + step * (other ? n - i : i);
        double re = (double)number_at(way == FROM_REAL ? at : 2 * at),
               im = way == FROM_REAL ? 0 : (double)number_at(2 * at + 1);
        if (other) im = -im;
        if (way == TO_REAL && (i == 0 || 2 * i == n)) im = 0;
        const double angle =
            6.28318530717958647693 * (double)((uint64_t)i * k % n) / n * (back ? 1 : -1);
        y[0] += re * cos(angle) - im * sin(angle);
        y[1] += re * sin(angle) + im * cos(angle);
    }
    const double by = norm == FFT_ORTHO                             ? sqrt(n)
                      : norm == (back ? FFT_BACKWARD : FFT_FORWARD) ? n
                                                                    : 1;
    y[0] /= by;
    y[1] /= by;
}

static void meaning(test *t, base_heap *heap, const problem *p) {
    for (uint32_t form = 0; form < 12; form++) {
        const direction way = (direction)(form / 3);
        const graph_fft_norm norm = (graph_fft_norm)(form % 3);
        if (p->n > 3000 && form % 4 != p->n % 4) continue;
        lab l;
        graph_dim d[9];
        lab_open(&l, heap);
        l.x = graph_input(l.g, "x", TYPE_F32, shape_of(p, way, d), d);
        l.y = graph_copy(l.g, transform(l.g, p, way, norm, l.x));
        const float *got = lab_run(t, &l);
        uint64_t outer = 1, inner = 1;
        for (uint32_t i = 0; i < p->rank; i++) {
            if (i < p->axis) outer *= d[i].size;
            if (i > p->axis) inner *= d[i].size;
        }
        const uint32_t out = way == FROM_REAL ? p->n / 2 + 1 : p->n, parts = way == TO_REAL ? 1 : 2;
        if (got)
            CHECK_INT(t, graph_element_bound(graph_tensor_at(l.g, l.y)),
                      outer * inner * out * parts);
        /* of a long one some */
        const uint64_t all = outer * inner * out,
                       step = (uint64_t)p->n * all > 3000000 ? all / 41 : 1;
        const double within = 3e-6 * sqrt(p->n) / (norm == FFT_ORTHO ? sqrt(p->n) : 1);
        for (uint64_t i = 0; got && i < all && !test_failed(t); i += step) {
            double want[2];
            const uint64_t row = i / inner / out, column = i % inner;
            by_sum(p, way, norm, row * d[p->axis].size * inner + column, inner,
                   (uint32_t)(i / inner % out), want);
            for (uint32_t k = 0; k < parts; k++)
                CHECK_NEAR(t, (double)got[i * parts + k], want[k], within);
        }
        lab_close(&l);
        if (test_failed(t)) return;
    }
}

static void refuses(test *t, base_heap *heap) {
    static const char *const why[] = {
        "graph: fft of [4, 3] along axis 0: complex numbers have a last axis of 2",
        "graph: rfft of [4, 3] along axis 2", "graph: irfft of 4 numbers to 8, not of 5"};
    for (uint32_t i = 0; i < 3; i++) {
        lab l;
        beryl_error error = {0};
        lab_open(&l, heap);
        l.x = graph_input(l.g, "x", TYPE_F32, 2, (graph_dim[]){{4, 0}, {i == 2 ? 2 : 3, 0}});
        if (i == 0) graph_fft(l.g, l.x, 0, false, FFT_BACKWARD);
        if (i == 1) graph_rfft(l.g, l.x, 2, FFT_BACKWARD);
        if (i == 2) graph_irfft(l.g, l.x, 0, 8, FFT_BACKWARD);
        graph_status(l.g, &error);
        CHECK_TEXT(t, error.message, why[i]);
        lab_close(&l);
    }
}

/* ---- on every device ------------------------------------------------------------------------- */

typedef struct what {
    const problem *p;
    direction way;
    base_type type;
    bool flipped; /* a view */
} what;

static void build(typed_side *s, const void *user) {
    const what *w = user;
    graph_dim d[9];
    const uint32_t rank = shape_of(w->p, w->way, d);
    graph_value x = typed_input(s, w->type, rank, d);
    if (w->flipped) x = graph_flip(s->g, x, w->p->axis);
    typed_output(s, graph_copy(s->g, transform(s->g, w->p, w->way, FFT_ORTHO, x)));
}

static void run_on(test *t, base_heap *heap, device *d, const what *w, size_t number) {
    static const char *const ways[] = {"forth", "back", "from real", "to real"};
    char name[64];
    const bool wide = w->type == TYPE_F64;
    if (wide && !device_caps_of(d)->f64) return;
    snprintf(name, sizeof name, "%s of %s", ways[w->way], base_type_name(w->type));
    typed_run(t, heap, d,
              &(typed_problem){.name = name,
                               .build = build,
                               .what = w,
                               .rows = ROWS,
                               .fewer = number % 3 ? FEWER : 0,
                               .fill = TYPED_UNIT,
                               .seed = number,
                               .within = wide ? 1e-14 : 3e-6,
                               .relative = wide ? 1e-14 : 3e-6});
}

static void run_form(test *t, const test_form *form, size_t number) {
    static const base_type types[] = {TYPE_F32, TYPE_F32, TYPE_F16, TYPE_F64};
    base_heap heap;
    device *d = NULL;
    beryl_error error = {0};
    base_heap_init(&heap, NULL);
    const beryl_status status = test_form_open(form, &heap, &d, &error);
    const bool interprets = !strcmp(form->device, "interpreter");
    for (size_t i = 0; i < PROBLEMS; i++) {
        const problem *p = &problems[i];
        if (!test_form_draws(form, i, number, p->brief) || (form->brief && !p->brief) ||
            (interprets && p->n > 64) || (form->stand_in && i) ||
            !test_case(t, "fft/%s/%s", form->name, p->name))
            continue;
        if (status == BERYL_NO_DEVICE) test_skip(t, "%s", error.message);
        else if (status != BERYL_OK) test_fail(t, __FILE__, __LINE__, "%s", error.message);
        for (uint64_t round = 0; status == BERYL_OK && test_form_round(t, form, d, &round);)
            for (size_t k = 0; k < 4 && !test_failed(t); k++)
                if (test_drawn(k + i, number + (size_t)round, 2))
                    run_on(t, &heap, d,
                           &(what){p, (direction)k, types[(k + i + number) % 4], (k + i) % 3 == 0},
                           i + k + number + (size_t)round);
    }
    test_form_close(d);
    if (status == BERYL_OK && test_case(t, "fft/%s/gives-everything-back", form->name))
        CHECK_INT(t, heap.bytes, 0);
}

void test_fft(test *t);
void test_fft(test *t) {
    base_heap heap;
    base_heap_init(&heap, NULL);
    for (size_t i = 0; i < PROBLEMS; i++)
        if (test_case(t, "fft/meaning/%s", problems[i].name)) meaning(t, &heap, &problems[i]);
    if (test_case(t, "fft/refuses")) refuses(t, &heap);
    if (test_case(t, "fft/labs-give-everything-back")) CHECK_INT(t, heap.bytes, 0);
    for (size_t i = 0; i < test_form_count(); i++) run_form(t, &test_forms[i], i);
}
