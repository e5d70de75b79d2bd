/* sort_test.c - rows in order, topk of any length, argmax and argmin along axes. On the reference
 * functions against plain loops that are written here; on every device against the reference
 * functions, for all types. */
#include "forms.h"
#include "typed.h"

#include "graph/reference.h"

#include <math.h>
#include <stdio.h>
#include <string.h>

enum { ROWS = 19, FEWER = 3 };

/* ---- what they are --------------------------------------------------------------------------- */

static bool larger(float x, float y, bool nan_is_least) {
    if (nan_is_least) return (isnan(x) ? -INFINITY : x) > (isnan(y) ? -INFINITY : y);
    return isnan(x) ? !isnan(y) : x > y;
}

static float number_at(uint32_t i) {
    static const float special[] = {0, -0.0f, NAN, INFINITY, -INFINITY, 3, 3, -7};
    const uint32_t n = i * 2654435761u >> 8;
    return n % 3 ? (float)(n % 11) - 5 : special[n / 3 % 8];
}

/* x [3, 41, 5] along an axis: each place is looked for by counting what comes before it. */
static void orders(test *t, base_heap *heap, uint32_t axis, uint32_t order) {
    const graph_dim dims[] = {{3, 0}, {41, 0}, {5, 0}};
    uint32_t stride = 1;
    for (uint32_t i = axis + 1; i < 3; i++) stride *= dims[i].size;
    const uint32_t n = dims[axis].size, all = 3 * 41 * 5;
    graph *g = graph_open(heap);
    graph_store store;
    graph_reference *r = NULL;
    beryl_error error = {0};
    store_init(&store, heap, NULL, NULL, 0, NULL);
    const graph_value x = graph_input(g, "x", TYPE_F32, 3, dims);
    graph_value places, values = graph_sort(g, x, axis, order, &places);
    values = graph_copy(g, values);
    places = graph_copy(g, places);
    graph_output(g, values, "values");
    graph_output(g, places, "places");
    const graph_value best[] = {graph_arg(g, x, axis, true), graph_arg(g, x, axis, false)};
    graph_output(g, best[0], "most");
    graph_output(g, best[1], "least");
    beryl_status status = graph_status(g, &error);
    if (status == BERYL_OK) status = graph_reference_open(g, &store, &r, &error);
    float *from = status == BERYL_OK ? graph_reference_input(r, x) : NULL;
    for (uint32_t i = 0; from && i < all; i++) from[i] = number_at(i);
    if (from) status = graph_reference_run(r, NULL, &error);
    if (status != BERYL_OK) test_fail(t, __FILE__, __LINE__, "%s", error.message);
    const float *got = status == BERYL_OK ? graph_reference_value(r, values) : NULL;
    const int32_t *index = got ? graph_reference_value(r, places) : NULL;
    for (uint32_t i = 0; index && i < all && !test_failed(t); i++) {
        const uint32_t own = i / stride % n, first = i - own * stride;
        uint32_t before = 0;
        for (uint32_t k = 0; k < n; k++) {
            const float mine = from[i], other = from[first + k * stride];
            const bool least = order == GRAPH_SORT_LARGEST, up = larger(other, mine, least),
                       down = larger(mine, other, least);
            before += (order ? up : down) || (!up && !down && k < own);
        }
        CHECK_INT(t, index[first + before * stride], own);
        CHECK(t, !memcmp(&got[first + before * stride], &from[i], sizeof *from));
    }
    const int32_t *most = index ? graph_reference_value(r, best[0]) : NULL,
                  *least = index ? graph_reference_value(r, best[1]) : NULL;
    for (uint32_t i = 0; least && i < all / n && !test_failed(t); i++) {
        const uint32_t first = i / stride * stride * n + i % stride;
        uint32_t up = 0, down = 0;
        for (uint32_t k = 1; k < n; k++) {
            if (larger(from[first + k * stride], from[first + up * stride], false)) up = k;
            if (larger(-from[first + k * stride], -from[first + down * stride], false)) down = k;
        }
        CHECK_INT(t, most[i], up);
        CHECK_INT(t, least[i], down);
    }
    graph_reference_close(r);
    graph_close(g);
    store_fini(&store);
}

/* ---- on devices ------------------------------------------------------------------------------ */

typedef enum kind { PLAIN, TIES, EQUAL, SORTED, REVERSED, TOPK, BELOW, RISEN, ARGMAX, ARGMIN } kind;

typedef struct problem {
    const char *name;
    uint32_t rank, dims[4], axis; /* 0: the extent */
    kind kind;
    uint32_t k;
    bool brief, small, wide; /* wide: of F32 and I8 alone */
} problem;

static const problem problems[] = {
    {"one", 2, {0, 1}, 1, PLAIN, 0, true, true, false},
    {"vector", 1, {0}, 0, PLAIN, 0, true, true, false},
    {"primes", 3, {3, 0, 37}, 2, PLAIN, 0, true, true, false},
    {"middle", 4, {2, 13, 0, 3}, 1, PLAIN, 0, true, true, false},
    {"middle-of-the-run", 3, {5, 0, 7}, 1, PLAIN, 0, true, true, false},
    {"rows-of-the-run", 3, {2, 5, 0}, 2, TIES, 0, false, true, false},
    {"power", 2, {0, 256}, 1, TIES, 0, false, false, false},
    {"ties", 2, {0, 1500}, 1, TIES, 0, true, true, false},
    {"equal", 2, {0, 1100}, 1, EQUAL, 0, false, false, false},
    {"sorted", 2, {0, 1025}, 1, SORTED, 0, false, false, false},
    {"reversed", 2, {0, 2047}, 1, REVERSED, 0, false, false, false},
    {"blocks", 2, {2, 10007}, 1, PLAIN, 0, false, true, true},
    {"large", 2, {2, 70001}, 1, PLAIN, 0, true, false, true},
    {"large-ties", 1, {70001}, 0, TIES, 0, false, false, true},
    {"many", 2, {70001, 3}, 1, PLAIN, 0, true, false, true},
    {"many-columns", 3, {3, 5, 30011}, 1, PLAIN, 0, false, false, true},
    {"topk", 2, {0, 300}, 1, TOPK, 270, true, false, false},
    {"topk-middle", 3, {3, 29, 0}, 1, TOPK, 5, true, true, false},
    {"topk-all", 2, {0, 31}, 1, TOPK, 31, false, true, false},
    {"topk-of-many", 1, {70001}, 0, TOPK, 1000, false, false, true},
    {"topk-of-long", 3, {2, 0, 8209}, 2, TOPK, 7, true, true, true},
    {"topk-of-few", 3, {0, 1, 8192}, 2, TOPK, 9, false, true, false},
    {"topk-of-blocks", 3, {3, 1, 9001}, 2, TOPK, 100, false, true, false},
    {"topk-of-rows", 2, {0, 1003}, 1, TOPK, 5, false, true, false},
    {"topk-of-short-rows", 2, {0, 257}, 1, TOPK, 3, false, true, false},
    {"topk-of-negatives", 3, {2, 1, 8200}, 2, BELOW, 20, false, true, true},
    {"topk-of-rising", 1, {9001}, 0, RISEN, 30, false, true, true},
    {"topk-of-ties", 2, {3, 8197}, 1, TOPK, 2000, true, true, false},
    {"topk-of-large", 1, {300007}, 0, TOPK, 9, false, false, true},
    {"topk-of-very-many", 1, {600011}, 0, TOPK, 5000, false, false, true},
    {"argmax", 2, {0, 61}, 1, ARGMAX, 0, true, true, false},
    {"argmin-middle", 3, {5, 29, 0}, 1, ARGMIN, 0, true, true, false},
    {"argmax-first", 2, {0, 67}, 0, ARGMAX, 0, true, true, false},
    {"argmin-ties", 3, {0, 3, 300}, 2, ARGMIN, 1, false, false, false},
    {"argmax-wide", 2, {0, 4096}, 1, ARGMAX, 1, true, false, false},
    {"argmax-of-many", 2, {2, 70001}, 1, ARGMAX, 0, true, false, true},
    {"argmin-of-one", 1, {70001}, 0, ARGMIN, 0, false, false, true},
    {"argmax-of-many-rows", 3, {70001, 3, 2}, 1, ARGMAX, 0, true, false, true},
};
enum { PROBLEMS = sizeof problems / sizeof *problems };

static const base_type types[] = {TYPE_F32, TYPE_F16, TYPE_BF16, TYPE_F64, TYPE_I32, TYPE_U8,
                                  TYPE_I8,  TYPE_I16, TYPE_U16,  TYPE_U32, TYPE_I64};
enum { TYPES = sizeof types / sizeof *types };

typedef struct what {
    const problem *p;
    base_type type;
    uint32_t order;
} what;

static void give(typed_side *s, graph_value v) {
    typed_output(s, graph_tensor_at(s->g, v)->base ? graph_copy(s->g, v) : v);
}

static void build(typed_side *s, const void *user) {
    const what *w = user;
    const problem *p = w->p;
    graph_dim d[4];
    for (uint32_t i = 0; i < p->rank; i++)
        d[i] = p->dims[i] ? (graph_dim){p->dims[i], 0} : (graph_dim){ROWS, 1};
    graph_value x = typed_input(s, w->type, p->rank, d), places;
    if (p->kind == TIES && base_type_is_float(w->type)) x = graph_clamp(s->g, x, -1, 1);
    if (p->kind == BELOW && base_type_is_float(w->type)) x = graph_neg(s->g, graph_abs(s->g, x));
    if (p->kind == RISEN) x = graph_sort(s->g, x, p->axis, GRAPH_SORT_RISING, &places);
    if (p->kind == EQUAL) x = graph_sub(s->g, x, x);
    if (p->kind == SORTED || p->kind == REVERSED)
        x = graph_sort(s->g, x, p->axis,
                       p->kind == SORTED ? w->order : w->order == GRAPH_SORT_RISING, &places);
    if (p->kind == ARGMAX || p->kind == ARGMIN) {
        /* k: of what is made in the same dispatch */
        if (p->k && base_type_is_float(w->type)) x = graph_clamp(s->g, x, -1, 1);
        typed_output(s, graph_copy(s->g, graph_arg(s->g, x, p->axis, p->kind == ARGMAX)));
        return;
    }
    const graph_value values = p->k ? graph_topk_along(s->g, x, p->k, p->axis, &places)
                                    : graph_sort(s->g, x, p->axis, w->order, &places);
    give(s, values);
    give(s, places);
}

static void run_on(test *t, base_heap *heap, device *d, const what *w, size_t number) {
    char name[80];
    if (w->type == TYPE_F64 && !device_caps_of(d)->f64) return;
    snprintf(name, sizeof name, "%s of %s, order %u", w->p->name, base_type_name(w->type),
             w->order);
    typed_run(t, heap, d,
              &(typed_problem){.name = name,
                               .build = build,
                               .what = w,
                               .rows = ROWS,
                               .fewer = number % 3 ? FEWER : 0,
                               .fill = number % 2 ? TYPED_ODD : TYPED_UNIT,
                               .seed = number});
}

static void run_form(test *t, const test_form *form, size_t number) {
    base_heap heap;
    device *d = NULL;
    beryl_error error = {0};
    base_heap_init(&heap, NULL);
    const beryl_status status = test_form_open(form, &heap, &d, &error);
    const bool interprets = !strcmp(form->device, "interpreter");
    for (size_t i = 0; i < PROBLEMS; i++) {
        const problem *p = &problems[i];
        if (!test_form_draws(form, i, number, p->brief) ||
            (form->brief && !p->brief && !interprets) || (interprets && !p->small) ||
            (form->stand_in && i) || !test_case(t, "sort/%s/%s", form->name, p->name))
            continue;
        if (status == BERYL_NO_DEVICE) test_skip(t, "%s", error.message);
        else if (status != BERYL_OK) test_fail(t, __FILE__, __LINE__, "%s", error.message);
        for (uint64_t round = 0; status == BERYL_OK && test_form_round(t, form, d, &round);)
            for (size_t k = 0; k < TYPES && !test_failed(t); k++)
                if (p->wide ? types[k] == TYPE_F32 || types[k] == TYPE_I8
                            : test_drawn(k + i, number + (size_t)round, form->brief ? 6 : 3))
                    run_on(t, &heap, d, &(what){p, types[k], (uint32_t)(i + k + round) % 3},
                           i + k + number + (size_t)round);
    }
    test_form_close(d);
    if (status == BERYL_OK && test_case(t, "sort/%s/gives-everything-back", form->name))
        CHECK_INT(t, heap.bytes, 0);
}

static void refuses(test *t, base_heap *heap) {
    for (uint32_t i = 0; i < 4; i++) {
        graph *g = graph_open(heap);
        beryl_error error = {0};
        graph_value places = 1;
        const graph_value x = graph_input(g, "x", TYPE_F32, 2, (graph_dim[]){{4, 0}, {5, 0}});
        const graph_value got = i == 0   ? graph_sort(g, x, 2, 0, &places)
                                : i == 1 ? graph_sort(g, x, 0, 3, &places)
                                : i == 2 ? graph_topk_along(g, x, 5, 0, &places)
                                         : graph_topk_along(g, x, 0, 1, &places);
        CHECK_INT(t, got, 0);
        CHECK_INT(t, places, 0);
        CHECK_INT(t, graph_status(g, &error), BERYL_MISUSE);
        graph_close(g);
    }
}

void test_sort(test *t);
void test_sort(test *t) {
    base_heap heap;
    base_heap_init(&heap, NULL);
    for (uint32_t axis = 0; axis < 3; axis++)
        for (uint32_t order = 0; order < 3; order++)
            if (test_case(t, "sort/axis-%u-order-%u", axis, order)) orders(t, &heap, axis, order);
    if (test_case(t, "sort/refuses")) refuses(t, &heap);
    if (test_case(t, "sort/labs-give-everything-back")) CHECK_INT(t, heap.bytes, 0);
    for (size_t i = 0; i < test_form_count(); i++) run_form(t, &test_forms[i], i);
}
