/* window_test.c - transposed convolutions, pooling with all its options, axes at another size, what
 * is in windows. On the reference functions against plain loops that are written here; on every
 * device against the reference functions. */
#include "forms.h"
#include "typed.h"

#include "beryl_graph.h"
#include "graph/reference.h"

#include <math.h>
#include <stdio.h>
#include <string.h>

enum { ROWS = 7, FEWER = 3, AXES = 3 };

typedef enum kind { TRANSPOSE, POOL, ADAPTIVE, RESIZE, IN_WINDOWS } kind;

typedef struct shape {
    const char *name;
    kind kind;
    uint32_t n_axis, n, c, out, groups, in[AXES];
    graph_window w[AXES];
    uint32_t more[AXES]; /* or new sizes */
    graph_pool_how how;
    uint32_t resize;
    bool brief;
} shape;

/* clang-format off */
#define W(...) {__VA_ARGS__}
static const shape shapes[] = {
    {"transpose-1d", TRANSPOSE, 1, 2, 3, 4, 1, {9}, {W(3, 1, 1, 0, 0)}, {0}, {0}, 0, false},
    {"transpose-1d-strided", TRANSPOSE, 1, 1, 2, 3, 1, {5}, {W(4, 2, 1, 1, 1)}, {1}, {0}, 0, true},
    {"transpose-1d-far", TRANSPOSE, 1, 1, 1, 1, 1, {4}, {W(2, 5, 1, 0, 0)}, {2}, {0}, 0, false},
    {"transpose-1d-cut", TRANSPOSE, 1, 1, 2, 1, 1, {6}, {W(2, 3, 1, 4, 3)}, {0}, {0}, 0, false},
    {"transpose-2d", TRANSPOSE, 2, 2, 3, 2, 1, {4, 5}, {W(3, 2, 1, 1, 1), W(3, 2, 1, 1, 1)}, {1, 1}, {0}, 0, true},
    {"transpose-2d-dilated", TRANSPOSE, 2, 1, 2, 3, 1, {3, 4}, {W(3, 1, 2, 2, 1), W(2, 3, 4, 0, 2)}, {0, 2}, {0}, 0, false},
    {"transpose-2d-groups", TRANSPOSE, 2, 2, 6, 4, 2, {3, 3}, {W(2, 2, 1, 0, 0), W(3, 1, 1, 1, 1)}, {0}, {0}, 0, true},
    {"transpose-2d-depthwise", TRANSPOSE, 2, 1, 5, 5, 5, {4, 3}, {W(4, 2, 1, 1, 1), W(4, 2, 1, 1, 1)}, {0}, {0}, 0, false},
    {"transpose-3d", TRANSPOSE, 3, 1, 2, 2, 1, {2, 3, 2}, {W(2, 2, 1, 0, 0), W(3, 1, 1, 1, 1), W(2, 1, 1, 0, 1)}, {0}, {0}, 0, false},
    {"transpose-of-one", TRANSPOSE, 2, 1, 1, 1, 1, {1, 1}, {W(1, 1, 1, 0, 0), W(1, 3, 1, 0, 0)}, {0}, {0}, 0, false},
    {"largest-partial", POOL, 2, 2, 3, 3, 1, {6, 7}, {W(3, 2, 1, 0, 0), W(3, 3, 1, 1, 1)}, {0}, {false, true, false}, 0, true},
    {"mean-partial", POOL, 2, 1, 3, 3, 1, {6, 7}, {W(3, 2, 1, 1, 1), W(3, 3, 1, 1, 1)}, {0}, {true, true, false}, 0, true},
    {"mean-inside", POOL, 2, 2, 2, 2, 1, {5, 6}, {W(3, 1, 1, 1, 1), W(2, 2, 1, 1, 0)}, {0}, {true, false, true}, 0, true},
    {"mean-inside-partial", POOL, 1, 2, 2, 2, 1, {10}, {W(4, 3, 1, 2, 2)}, {0}, {true, true, true}, 0, false},
    {"mean-inside-dilated", POOL, 1, 1, 2, 2, 1, {11}, {W(3, 2, 3, 3, 4)}, {0}, {true, false, true}, 0, false},
    {"mean-3d-inside", POOL, 3, 1, 2, 2, 1, {3, 4, 5}, {W(2, 1, 1, 1, 0), W(3, 2, 1, 1, 1), W(2, 2, 1, 0, 1)}, {0}, {true, false, true}, 0, false},
    {"adaptive-even", ADAPTIVE, 2, 2, 3, 3, 1, {6, 8}, {W(1, 1, 1, 0, 0), W(1, 1, 1, 0, 0)}, {3, 2}, {0}, 0, false},
    {"adaptive", ADAPTIVE, 2, 2, 2, 2, 1, {7, 10}, {W(1, 1, 1, 0, 0), W(1, 1, 1, 0, 0)}, {3, 4}, {0}, 0, true},
    {"adaptive-1d", ADAPTIVE, 1, 2, 2, 2, 1, {5}, {W(1, 1, 1, 0, 0)}, {8}, {0}, 0, false},
    {"adaptive-to-one", ADAPTIVE, 2, 2, 2, 2, 1, {7, 3}, {W(1, 1, 1, 0, 0), W(1, 1, 1, 0, 0)}, {1, 1}, {0}, 0, false},
    {"nearest", RESIZE, 2, 1, 2, 2, 1, {5, 7}, {W(1, 1, 1, 0, 0), W(1, 1, 1, 0, 0)}, {8, 3}, {0}, BERYL_RESIZE_NEAREST, false},
    {"nearest-middle", RESIZE, 2, 1, 2, 2, 1, {5, 7}, {W(1, 1, 1, 0, 0), W(1, 1, 1, 0, 0)}, {8, 3}, {0}, BERYL_RESIZE_NEAREST_MIDDLE, false},
    {"bilinear", RESIZE, 2, 1, 2, 2, 1, {5, 7}, {W(1, 1, 1, 0, 0), W(1, 1, 1, 0, 0)}, {9, 4}, {0}, BERYL_RESIZE_LINEAR, true},
    {"bilinear-corners", RESIZE, 2, 1, 2, 2, 1, {5, 7}, {W(1, 1, 1, 0, 0), W(1, 1, 1, 0, 0)}, {9, 4}, {0}, BERYL_RESIZE_LINEAR_CORNERS, false},
    {"in-windows", IN_WINDOWS, 2, 2, 3, 3, 1, {5, 6}, {W(3, 2, 1, 1, 1), W(2, 1, 2, 0, 1)}, {0}, {0}, 0, true},
};
#undef W
/* clang-format on */
enum { SHAPES = sizeof shapes / sizeof *shapes };

/* ---- what they are --------------------------------------------------------------------------- */

static float number_at(uint32_t input, uint32_t i) {
    return (float)((i * 7 + input * 3 + i / 5) % 9) - 4;
}

static uint32_t in_of(const shape *p, uint32_t i) {
    return i < p->n_axis ? p->in[i] : 1;
}

static graph_window window_of(const shape *p, uint32_t i) {
    return i < p->n_axis ? p->w[i] : (graph_window){1, 1, 1, 0, 0};
}

static uint32_t out_of(const shape *p, uint32_t i) {
    const graph_window w = window_of(p, i);
    const uint32_t in = in_of(p, i), span = (w.size - 1) * w.dilation + 1;
    if (p->kind == TRANSPOSE)
        return (in - 1) * w.stride + span + (i < p->n_axis ? p->more[i] : 0) - w.pad_before -
               w.pad_after;
    if (p->kind == ADAPTIVE || p->kind == RESIZE) return i < p->n_axis ? p->more[i] : 1;
    uint32_t n = (in + w.pad_before + w.pad_after - span) / w.stride + 1;
    while (p->how.partial && n * w.stride < in + w.pad_before &&
           (n - 1) * w.stride + span < in + w.pad_before + w.pad_after)
        n++;
    return n;
}

static uint32_t index_of(const shape *p, uint32_t n, uint32_t channel, const uint32_t *i) {
    uint32_t at = n * p->c + channel;
    for (uint32_t k = 0; k < AXES; k++) at = at * in_of(p, k) + i[k];
    return at;
}

/* Does element i, with element k of the weight, reach element `at` of the transpose? */
static bool reaches(const shape *p, const uint32_t *i, const uint32_t *k, const uint32_t *at) {
    bool all = true;
    for (uint32_t a = 0; a < AXES; a++) {
        const graph_window w = window_of(p, a);
        all = all && i[a] * w.stride + k[a] * w.dilation == at[a] + w.pad_before;
    }
    return all;
}

#define EACH(i, sizes)                            \
    for (i[0] = 0; i[0] < (sizes)[0]; i[0]++)     \
        for (i[1] = 0; i[1] < (sizes)[1]; i[1]++) \
            for (i[2] = 0; i[2] < (sizes)[2]; i[2]++)

static double transposed(const shape *p, uint32_t n, uint32_t channel, const uint32_t *at) {
    const uint32_t of = p->out / p->groups, each = p->c / p->groups, group = channel / of;
    uint32_t in[AXES], size[AXES], i[AXES], k[AXES];
    double sum = 0;
    for (uint32_t a = 0; a < AXES; a++) in[a] = in_of(p, a), size[a] = window_of(p, a).size;
    for (uint32_t c = group * each; c < (group + 1) * each; c++) EACH(i, in)
    EACH(k, size) {
        const uint32_t w =
            (((c * of + channel % of) * size[0] + k[0]) * size[1] + k[1]) * size[2] + k[2];
        if (reaches(p, i, k, at))
            sum += (double)number_at(0, index_of(p, n, c, i)) * (double)number_at(1, w);
    }
    return sum;
}

static double pooled(const shape *p, uint32_t n, uint32_t channel, const uint32_t *at) {
    uint32_t size[AXES], k[AXES], i[AXES], count = 0;
    double sum = 0, most = -1e30;
    for (uint32_t a = 0; a < AXES; a++) size[a] = window_of(p, a).size;
    EACH(k, size) {
        bool inside = true, counts = true;
        for (uint32_t a = 0; a < AXES; a++) {
            const graph_window w = window_of(p, a);
            const int64_t place = (int64_t)at[a] * w.stride + k[a] * w.dilation - w.pad_before,
                          in = in_of(p, a);
            i[a] = (uint32_t)place;
            inside = inside && place >= 0 && place < in;
            counts =
                counts && (p->how.inside ? place >= 0 && place < in : place < in + w.pad_after);
        }
        count += counts;
        if (!inside) continue;
        const double x = (double)number_at(0, index_of(p, n, channel, i));
        sum += x;
        if (x > most) most = x;
    }
    return p->how.mean ? sum / count : most;
}

/* Means of what lies between two borders. */
static double adapted(const shape *p, uint32_t n, uint32_t channel, const uint32_t *at) {
    uint32_t i[AXES], in[AXES], count = 0;
    double sum = 0;
    for (uint32_t a = 0; a < AXES; a++) in[a] = in_of(p, a);
    EACH(i, in) {
        bool inside = true;
        for (uint32_t a = 0; a < AXES; a++) {
            const double each = (double)in[a] / out_of(p, a);
            inside = inside && i[a] >= floor(at[a] * each + 1e-9) &&
                     i[a] < ceil((at[a] + 1) * each - 1e-9);
        }
        if (inside) sum += (double)number_at(0, index_of(p, n, channel, i)), count++;
    }
    return sum / count;
}

static double resized(const shape *p, uint32_t n, uint32_t channel, const uint32_t *at) {
    uint32_t k[AXES], i[AXES];
    const uint32_t two[AXES] = {2, 2, 2};
    double sum = 0;
    EACH(k, two) {
        double weight = 1;
        for (uint32_t a = 0; a < AXES; a++) {
            const double in = in_of(p, a), out = out_of(p, a);
            double place = p->resize == BERYL_RESIZE_NEAREST ? floor(at[a] * in / out)
                           : p->resize == BERYL_RESIZE_NEAREST_MIDDLE
                               ? floor((at[a] + 0.5) * in / out)
                           : p->resize == BERYL_RESIZE_LINEAR ? (at[a] + 0.5) * in / out - 0.5
                           : out > 1                          ? at[a] * (in - 1) / (out - 1)
                                                              : 0;
            place = place < 0 ? 0 : place > in - 1 ? in - 1 : place;
            const double part = place - floor(place);
            i[a] = (uint32_t)floor(place) + k[a];
            if (i[a] >= (uint32_t)in) i[a] = (uint32_t)in - 1;
            weight *= k[a] ? part : 1 - part;
        }
        sum += weight * (double)number_at(0, index_of(p, n, channel, i));
    }
    return sum;
}

/* [n, c * sizes, windows] */
static double in_windows(const shape *p, uint32_t n, uint32_t row, uint32_t column) {
    uint32_t i[AXES];
    bool inside = true;
    for (uint32_t a = AXES; a-- > 0;) {
        const graph_window w = window_of(p, a);
        const uint32_t at = column % out_of(p, a), k = row % w.size;
        column /= out_of(p, a);
        row /= w.size;
        i[a] = at * w.stride + k * w.dilation - w.pad_before;
        inside = inside && i[a] < in_of(p, a);
    }
    return inside ? (double)number_at(0, index_of(p, n, row, i)) : 0;
}

static graph_value make(graph *g, const shape *p, graph_value x, graph_value w) {
    switch (p->kind) {
    case TRANSPOSE: return graph_conv_transpose(g, x, w, p->n_axis, p->w, p->more, p->groups);
    case POOL: return graph_pool(g, x, p->n_axis, p->w, p->how);
    case ADAPTIVE: return graph_adaptive_avg_pool(g, x, p->n_axis, p->more);
    case IN_WINDOWS: return graph_im2col(g, x, p->n_axis, p->w);
    case RESIZE: break;
    }
    for (uint32_t i = 0; i < p->n_axis; i++) x = graph_resize(g, x, i + 2, p->more[i], p->resize);
    return x;
}

static void dims_of(const shape *p, graph_dim *x, graph_dim *w) {
    x[1].size = p->c;
    w[0].size = p->c;
    w[1].size = p->out / p->groups;
    for (uint32_t i = 0; i < p->n_axis; i++) {
        x[i + 2].size = p->in[i];
        w[i + 2].size = p->w[i].size;
    }
}

static void check_numbers(test *t, const shape *p, const graph_tensor *y, const float *got) {
    uint32_t size[AXES], columns = 1, at[AXES];
    for (uint32_t a = 0; a < AXES; a++) columns *= size[a] = out_of(p, a);
    const uint32_t rows = y->dim[1].size;
    if (graph_element_bound(y) != (uint64_t)p->n * rows * columns ||
        (p->kind == TRANSPOSE && rows != p->out))
        test_fail(t, __FILE__, __LINE__, "%u elements", (unsigned)graph_element_bound(y));
    for (uint32_t i = 0; i < p->n * rows && !test_failed(t); i++) {
        const uint32_t n = i / rows, row = i % rows;
        uint32_t column = 0;
        EACH(at, size) {
            const double want = p->kind == TRANSPOSE    ? transposed(p, n, row, at)
                                : p->kind == POOL       ? pooled(p, n, row, at)
                                : p->kind == ADAPTIVE   ? adapted(p, n, row, at)
                                : p->kind == IN_WINDOWS ? in_windows(p, n, row, column)
                                                        : resized(p, n, row, at);
            CHECK_NEAR(t, (double)got[i * columns + column], want, 2e-6);
            column++;
        }
    }
}

static void check_meaning(test *t, base_heap *heap, const shape *p) {
    graph *g = graph_open(heap);
    graph_store store;
    graph_reference *r = NULL;
    beryl_error error = {0};
    store_init(&store, heap, NULL, NULL, 0, NULL);
    graph_dim dims[2][5] = {{{p->n, 0}}};
    dims_of(p, dims[0], dims[1]);
    const uint32_t n_in = p->kind == TRANSPOSE ? 2 : 1;
    graph_value in[2] = {0};
    for (uint32_t k = 0; k < n_in; k++)
        in[k] = graph_input(g, k ? "w" : "x", TYPE_F32, p->n_axis + 2, dims[k]);
    const graph_value y = graph_copy(g, make(g, p, in[0], in[1]));
    graph_output(g, y, "y");
    beryl_status status = graph_status(g, &error);
    if (status == BERYL_OK) status = graph_reference_open(g, &store, &r, &error);
    for (uint32_t k = 0; status == BERYL_OK && k < n_in; k++) {
        float *to = graph_reference_input(r, in[k]);
        const uint64_t n = graph_element_bound(graph_tensor_at(g, in[k]));
        for (uint32_t i = 0; i < n; i++) to[i] = number_at(k, i);
    }
    if (status == BERYL_OK) status = graph_reference_run(r, NULL, &error);
    if (status == BERYL_OK) check_numbers(t, p, graph_tensor_at(g, y), graph_reference_value(r, y));
    else test_fail(t, __FILE__, __LINE__, "%s", error.message);
    graph_reference_close(r);
    graph_close(g);
    store_fini(&store);
}

/* ---- on devices ------------------------------------------------------------------------------ */

typedef struct what {
    const shape *p;
    base_type type;
} what;

static void build(typed_side *s, const void *user) {
    const what *w = user;
    graph_dim dims[2][5] = {{{ROWS, 1}}};
    dims_of(w->p, dims[0], dims[1]);
    const uint32_t rank = w->p->n_axis + 2;
    const graph_value x = typed_input(s, w->type, rank, dims[0]),
                      k = w->p->kind == TRANSPOSE ? typed_input(s, w->type, rank, dims[1]) : 0,
                      y = make(s->g, w->p, x, k);
    typed_output(s, graph_tensor_at(s->g, y)->base ? graph_copy(s->g, y) : y);
}

static bool takes(const shape *p, base_type type) {
    const bool means = p->kind == ADAPTIVE || (p->kind == POOL && p->how.mean) ||
                       (p->kind == RESIZE && p->resize >= BERYL_RESIZE_LINEAR);
    return base_type_is_float(type) || !means;
}

static void run_form(test *t, const test_form *form, size_t number) {
    static const base_type types[] = {TYPE_F32, TYPE_F16, TYPE_BF16, TYPE_F64, TYPE_I32, TYPE_U8};
    base_heap heap;
    device *d = NULL;
    beryl_error error = {0};
    base_heap_init(&heap, NULL);
    const beryl_status status = test_form_open(form, &heap, &d, &error);
    for (size_t i = 0; i < SHAPES; i++) {
        const shape *p = &shapes[i];
        if (!test_form_draws(form, i, number, p->brief) || (form->brief && !p->brief) ||
            (form->stand_in && i) || !test_case(t, "window/%s/%s", form->name, p->name))
            continue;
        if (status == BERYL_NO_DEVICE) test_skip(t, "%s", error.message);
        else if (status != BERYL_OK) test_fail(t, __FILE__, __LINE__, "%s", error.message);
        for (uint64_t round = 0; status == BERYL_OK && test_form_round(t, form, d, &round);)
            for (size_t k = 0; k < sizeof types / sizeof *types && !test_failed(t); k++) {
                char name[64];
                const what w = {p, types[k]};
                if (!takes(p, w.type) || (w.type == TYPE_F64 && !device_caps_of(d)->f64) ||
                    (k && !test_drawn(k + i, number + (size_t)round, form->brief ? 6 : 3)))
                    continue;
                snprintf(name, sizeof name, "%s of %s", p->name, base_type_name(w.type));
                typed_run(t, &heap, d,
                          &(typed_problem){.name = name,
                                           .build = build,
                                           .what = &w,
                                           .rows = ROWS,
                                           .fewer = i % 3 ? FEWER : 0,
                                           .fill = TYPED_UNIT,
                                           .seed = number + i,
                                           /* some ten terms below 1; halves are rounded twice */
                                           .within = w.type == TYPE_BF16  ? 4e-3
                                                     : w.type == TYPE_F16 ? 5e-4
                                                                          : 3e-6,
                                           .relative = 4e-6});
            }
    }
    test_form_close(d);
    if (status == BERYL_OK && test_case(t, "window/%s/gives-everything-back", form->name))
        CHECK_INT(t, heap.bytes, 0);
}

/* ---- what is refused ------------------------------------------------------------------------- */

static void check_refused(test *t, base_heap *heap) {
    static const struct {
        kind kind;
        uint32_t more;
        graph_window w;
        graph_pool_how how;
        bool varies;
        const char *why;
    } bad[] = {
        {TRANSPOSE, 0, {2, 1, 1, 5, 4}, {0}, false, "conv_transpose: 9 elements of axis 2, less 9"},
        {TRANSPOSE, 0, {2, 0, 1, 0, 0}, {0}, false, "conv_transpose: "},
        {TRANSPOSE, 0, {2, 1, 1, 0, 0}, {0}, true, "a run says how long axis 2 is"},
        {POOL, 0, {9, 1, 1, 0, 0}, {0}, false, "max_pool of [1, 2, 8]: its windows do not fit"},
        {POOL, 0, {2, 1, 1, 1, 1}, {true, false, true}, true, "avg_pool of axis 2: a run says"},
        {ADAPTIVE, 0, {1, 1, 1, 0, 0}, {0}, false, "resize to a size of 0"},
        {RESIZE, 1u << 30, {1, 1, 1, 0, 0}, {0}, false, "resize of 8 to 1073741824: too large"},
        {RESIZE, 4, {1, 1, 1, 0, 0}, {0}, true, "resize of 8 to 4, where a run says of how many"},
    };
    for (uint32_t i = 0; i < sizeof bad / sizeof *bad; i++) {
        const shape p = {"bad",      bad[i].kind,   1,          1, 2,    2, 1, {8},
                         {bad[i].w}, {bad[i].more}, bad[i].how, 0, false};
        beryl_error error = {0};
        graph *g = graph_open(heap);
        graph_dim dims[2][5] = {{{1, 0}}};
        dims_of(&p, dims[0], dims[1]);
        if (bad[i].varies) dims[0][2].extent = graph_extent_add(g, "n", 8);
        const graph_value x = graph_input(g, "x", TYPE_F32, 3, dims[0]),
                          w = graph_input(g, "w", TYPE_F32, 3, dims[1]);
        CHECK_INT(t, make(g, &p, x, w), 0);
        CHECK(t, graph_status(g, &error) != BERYL_OK && strstr(error.message, bad[i].why));
        if (test_failed(t)) printf("    %u: %s\n", i, error.message);
        graph_close(g);
    }
}

/* ---- by the public calls --------------------------------------------------------------------- */

static void check_outputs(test *t, beryl_graph *g, beryl_value x, const beryl_value *y, uint32_t n,
                          const float *want /* [n, 8] */) {
    static const float numbers[] = {0, 1, 2, 3};
    beryl_error error = {0};
    beryl_status status = BERYL_PENDING;
    for (uint32_t i = 0; i < n; i++) beryl_graph_output(g, y[i], "y");
    while (status == BERYL_PENDING) status = beryl_graph_compile(g, &error);
    if (status == BERYL_OK) status = beryl_graph_set(g, x, numbers, sizeof numbers, &error);
    if (status == BERYL_OK) status = beryl_graph_run(g, NULL, 0, &error);
    if (status == BERYL_OK) status = beryl_graph_wait(g, &error);
    for (uint32_t i = 0; status == BERYL_OK && i < n; i++) {
        float got[8];
        uint32_t size = 0;
        while (size < 8 && !isnan(want[i * 8 + size])) size++;
        status = beryl_graph_read(g, y[i], got, size * sizeof *got, &error);
        for (uint32_t k = 0; status == BERYL_OK && k < size; k++)
            CHECK_NEAR(t, (double)got[k], (double)want[i * 8 + k], 1e-6);
    }
    if (status != BERYL_OK) test_fail(t, __FILE__, __LINE__, "%s", error.message);
    beryl_graph_close(g);
}

static beryl_value open_with(beryl_graph **g) {
    const beryl_graph_options options = {.size = sizeof options, .device = "reference"};
    beryl_error error;
    return beryl_graph_open(&options, g, &error) == BERYL_OK
               ? beryl_graph_input(*g, "x", BERYL_TYPE_F32, 3,
                                   (beryl_dim[]){{1, 0}, {1, 0}, {4, 0}})
               : 0;
}

static void check_calls(test *t) {
    static const float ones[2] = {1, 1},
                       moved[4][8] = {{0, 0, 1, 1, 2, 2, 3, 3},
                                      {0.5f, 1, 2, 2.5f, NAN},
                                      {0.5f, 1.5f, 2.5f, NAN},
                                      {0.5f, 2.5f, NAN}},
                       placed[4][8] = {{0, 1, 2, 1, 2, 3, NAN},
                                       {1, 3, NAN},
                                       {0, 1, 2, 3, NAN},
                                       {0, 1, 2, 3, NAN}};
    const beryl_window two = {.size = 2, .stride = 2, .dilation = 1},
                       near = {.size = 2, .stride = 1, .dilation = 1},
                       three = {
                           .size = 3, .stride = 1, .dilation = 1, .pad_before = 1, .pad_after = 1};
    const uint32_t parts = 3;
    beryl_graph *g;
    beryl_value x = open_with(&g);
    const beryl_value w =
        beryl_graph_weight(g, "w", BERYL_TYPE_F32, 3, (uint32_t[]){1, 1, 2}, ones, sizeof ones);
    const beryl_value y[] = {
        beryl_graph_conv_transpose(g, x, w, 1, &two, NULL, 1),
        beryl_graph_pool(g, x, 1, &three, &(beryl_pool){.mean = true, .inside = true}),
        beryl_graph_adaptive_avg_pool(g, x, 1, &parts),
        beryl_graph_resize(g, x, 2, 2, BERYL_RESIZE_LINEAR)};
    check_outputs(t, g, x, y, 4, &moved[0][0]);
    x = open_with(&g);
    const beryl_value z[] = {beryl_graph_im2col(g, x, 1, &near),
                             beryl_graph_pool(g, x, 1, &two, NULL),
                             beryl_graph_cast(g, beryl_graph_iota(g, x, 2), BERYL_TYPE_F32, false),
                             beryl_graph_resize(g, x, 2, 4, BERYL_RESIZE_LINEAR_CORNERS)};
    check_outputs(t, g, x, z, 4, &placed[0][0]);
    x = open_with(&g);
    CHECK_INT(t, beryl_graph_conv_transpose(g, x, x, 1, NULL, NULL, 1), 0);
    beryl_graph_close(g);
    x = open_with(&g);
    CHECK_INT(t, beryl_graph_adaptive_avg_pool(g, x, 1, NULL), 0);
    beryl_graph_close(g);
}

void test_window(test *t);
void test_window(test *t) {
    base_heap heap;
    base_heap_init(&heap, NULL);
    for (size_t i = 0; i < SHAPES; i++)
        if (test_case(t, "window/%s", shapes[i].name)) check_meaning(t, &heap, &shapes[i]);
    if (test_case(t, "window/calls")) check_calls(t);
    if (test_case(t, "window/refuses")) check_refused(t, &heap);
    if (test_case(t, "window/labs-give-everything-back")) CHECK_INT(t, heap.bytes, 0);
    for (size_t i = 0; i < test_form_count(); i++) run_form(t, &test_forms[i], i);
}
