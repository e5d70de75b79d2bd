/* composite_test.c - operations that are several others: norms of channels, gates, scans with
 * options, sums of squares. By the public calls against plain loops; on every device against the
 * reference functions, in as few dispatches as are said here. */
#include "forms.h"
#include "typed.h"

#include "beryl_graph.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { ROWS = 7, FEWER = 3 };

/* ---- what they are --------------------------------------------------------------------------- */

enum { N = 3, C = 4, S = 5, ALL = N * C * S, OUTS = 4 };

static float number_at(uint32_t input, uint32_t i) {
    return (float)((i * 7 + input * 5 + i / 4) % 11) / 4 - 1;
}

typedef struct lab {
    beryl_graph *g;
    beryl_value x, y, mean, variance, weight, bias, outs[OUTS];
    uint32_t n_out, n_in;
} lab;

static beryl_value input(lab *l, uint32_t rank, const beryl_dim *dims) {
    l->n_in++;
    return beryl_graph_input(l->g, "x", BERYL_TYPE_F32, rank, dims);
}

static void output(lab *l, beryl_value v) {
    beryl_graph_output(l->g, v, "y");
    l->outs[l->n_out++] = v;
}

static bool lab_run(test *t, lab *l) {
    beryl_error error = {0};
    beryl_status status = BERYL_PENDING;
    while (status == BERYL_PENDING) status = beryl_graph_compile(l->g, &error);
    const beryl_value in[] = {l->x, l->y, l->mean, l->variance, l->weight, l->bias};
    for (uint32_t k = 0; status == BERYL_OK && k < 6; k++) {
        float data[ALL];
        for (uint32_t i = 0; i < ALL; i++)
            data[i] = k == 3 ? fabsf(number_at(k, i)) + 0.5f : number_at(k, i);
        status = beryl_graph_set(l->g, in[k], data, (k < 2 ? ALL : C) * sizeof *data, &error);
    }
    if (status == BERYL_OK) status = beryl_graph_run(l->g, NULL, 0, &error);
    if (status == BERYL_OK) status = beryl_graph_wait(l->g, &error);
    if (status != BERYL_OK) test_fail(t, __FILE__, __LINE__, "%s", error.message);
    return status == BERYL_OK;
}

static const float *result(test *t, const lab *l, uint32_t number, float *to, uint32_t n) {
    beryl_error error = {0};
    if (beryl_graph_read(l->g, l->outs[number], to, n * sizeof *to, &error) != BERYL_OK)
        test_fail(t, __FILE__, __LINE__, "%s", error.message);
    return to;
}

static double normed(uint32_t i, double mean, double variance) {
    const uint32_t c = i / S % C;
    return ((double)number_at(0, i) - mean) / sqrt(variance + 1e-3) * (double)number_at(4, c) +
           (double)number_at(5, c);
}

static void channel_of(uint32_t c, double *mean, double *variance) {
    *mean = *variance = 0;
    for (uint32_t i = 0; i < ALL; i++)
        if (i / S % C == c) *mean += (double)number_at(0, i) / (N * S);
    for (uint32_t i = 0; i < ALL; i++)
        if (i / S % C == c) *variance += pow((double)number_at(0, i) - *mean, 2) / (N * S);
}

static void check_norms(test *t, const lab *l) {
    float y[ALL], m[C], v[C];
    result(t, l, 0, y, ALL);
    for (uint32_t i = 0; i < ALL && !test_failed(t); i++) {
        const uint32_t c = i / S % C;
        CHECK_NEAR(t, (double)y[i],
                   normed(i, (double)number_at(2, c), fabs((double)number_at(3, c)) + 0.5), 3e-6);
    }
    result(t, l, 1, y, ALL);
    result(t, l, 2, m, C);
    result(t, l, 3, v, C);
    for (uint32_t i = 0; i < ALL && !test_failed(t); i++) {
        double mean, variance;
        channel_of(i / S % C, &mean, &variance);
        CHECK_NEAR(t, (double)y[i], normed(i, mean, variance), 3e-6);
        CHECK_NEAR(t, (double)m[i / S % C], mean, 1e-6);
        CHECK_NEAR(t, (double)v[i / S % C], variance, 1e-6);
    }
}

static void check_others(test *t, const lab *l) {
    float y[ALL], squares;
    double sum = 0;
    result(t, l, 0, y, ALL / 2); /* axis 1 in halves: a * sigmoid(b) */
    for (uint32_t i = 0; i < ALL / 2 && !test_failed(t); i++) {
        const uint32_t first = i / (C / 2 * S) * C * S + i % (C / 2 * S);
        const double b = (double)number_at(0, first + C / 2 * S);
        CHECK_NEAR(t, (double)y[i], (double)number_at(0, first) / (1 + exp(-b)), 1e-6);
    }
    result(t, l, 1, y, ALL / 2); /* gate first: silu(gate) * up */
    for (uint32_t i = 0; i < ALL / 2 && !test_failed(t); i++) {
        const uint32_t first = i / (C / 2 * S) * C * S + i % (C / 2 * S);
        const double a = (double)number_at(0, first), b = (double)number_at(0, first + C / 2 * S);
        CHECK_NEAR(t, (double)y[i], a / (1 + exp(-a)) * b, 1e-6);
    }
    result(t, l, 2, &squares, 1);
    for (uint32_t k = 0; k < 2; k++)
        for (uint32_t i = 0; i < ALL; i++) sum += pow((double)number_at(k, i), 2);
    CHECK_NEAR(t, (double)squares, sum, 1e-4);
    result(t, l, 3, y, ALL); /* softmax along axis 1 */
    for (uint32_t i = 0; i < ALL && !test_failed(t); i++) {
        double all = 0;
        for (uint32_t c = 0; c < C; c++)
            all += exp((double)number_at(0, i / (C * S) * C * S + c * S + i % S));
        CHECK_NEAR(t, (double)y[i], exp((double)number_at(0, i)) / all, 1e-6);
    }
}

/* Along axis 1, by how in bits: exclusive, backwards. */
static void check_scans(test *t, const lab *l) {
    for (uint32_t how = 0; how < 4; how++) {
        float y[ALL];
        result(t, l, how, y, ALL);
        for (uint32_t i = 0; i < ALL && !test_failed(t); i++) {
            const bool exclusive = how & 1, backwards = how & 2;
            double want = how == 3 ? -INFINITY : how == 1 ? 1 : 0;
            for (uint32_t c = 0; c < C; c++) {
                const uint32_t own = i / S % C;
                const double x = (double)number_at(0, i + (c - own) * S);
                const bool in = backwards ? c > own : c < own;
                if (!in && (exclusive || c != own)) continue;
                if (how == 3) want = x > want ? x : want;
                else if (how == 1) want *= x;
                else want += x;
            }
            if (isinf(want)) CHECK(t, (double)y[i] == want);
            else CHECK_NEAR(t, (double)y[i], want, 1e-6);
        }
    }
}

static void check_meaning(test *t, const char *name, uint32_t part) {
    const beryl_dim dims[] = {{N, 0}, {C, 0}, {S, 0}}, c[] = {{C, 0}};
    beryl_error error = {0};
    lab made = {0}, *l = &made;
    const beryl_graph_options options = {.size = sizeof options, .device = name};
    if (beryl_graph_open(&options, &l->g, &error) != BERYL_OK) {
        test_fail(t, __FILE__, __LINE__, "%s", error.message);
        return;
    }
    l->x = input(l, 3, dims);
    l->y = input(l, 3, dims);
    l->mean = input(l, 1, c);
    l->variance = input(l, 1, c);
    l->weight = input(l, 1, c);
    l->bias = input(l, 1, c);
    if (part == 0) {
        beryl_value mean, variance;
        output(l,
               beryl_graph_batch_norm(l->g, l->x, l->mean, l->variance, l->weight, l->bias, 1e-3f));
        output(l, beryl_graph_batch_norm_training(l->g, l->x, l->weight, l->bias, 1e-3f, &mean,
                                                  &variance));
        output(l, beryl_graph_copy(l->g, mean));
        output(l, beryl_graph_copy(l->g, variance));
    } else if (part == 1) {
        const beryl_value both[] = {l->x, l->y};
        output(l, beryl_graph_gated(l->g, l->x, 1, BERYL_GATE_GLU));
        output(l, beryl_graph_gated(l->g, l->x, 1, BERYL_GATE_SWIGLU));
        output(l, beryl_graph_copy(l->g, beryl_graph_sum_of_squares(l->g, 2, both)));
        output(l, beryl_graph_copy(l->g, beryl_graph_softmax_along(l->g, l->x, 1)));
    }
    for (uint32_t how = 0; part == 2 && how < 4; how++)
        output(l, beryl_graph_copy(l->g, beryl_graph_scan(l->g, l->x, 1,
                                                          how == 3   ? BERYL_SCAN_MAX
                                                          : how == 1 ? BERYL_SCAN_PROD
                                                                     : BERYL_SCAN_SUM,
                                                          how & 1, how & 2)));
    if (lab_run(t, l)) (part == 0 ? check_norms : part == 1 ? check_others : check_scans)(t, l);
    beryl_graph_close(l->g);
}

/* ---- on devices ------------------------------------------------------------------------------ */

typedef enum what_kind {
    NORM,
    NORM_ALONE,
    TRAINING,
    GATED,
    SQUARES,
    SOFTMAX,
    SCAN,
    SCAN_OF_ONE,
    LONG_ROWS,
    LONG_SCANS,
    RESIDUAL,
    LOG_SOFTMAX,
    LOG_OF_SUM,
    INNER,
    INNER_TWO,
    OUTER,
    BACK,
    SOFTMAX_BACK,
    GROUPS_BACK
} what_kind;

static const struct problem {
    const char *name;
    what_kind kind;
    uint32_t dispatches;
    bool brief;
} problems[] = {
    {"batch-norm", NORM, 1, true},
    {"batch-norm-alone", NORM_ALONE, 1, false},
    {"batch-norm-training", TRAINING, 0, true},
    {"gates", GATED, 0, true},
    {"sum-of-squares", SQUARES, 0, true},
    {"softmax-along", SOFTMAX, 0, true},
    {"scans", SCAN, 0, true},
    {"scans-of-one", SCAN_OF_ONE, 0, false},
    {"long-rows", LONG_ROWS, 0, false},
    {"long-scans", LONG_SCANS, 0, false},
    {"residual-bias-norm", RESIDUAL, 1, true},
    {"log-softmax", LOG_SOFTMAX, 1, false},
    {"logsumexp", LOG_OF_SUM, 1, false},
    {"numbers-of-rows", INNER, 1, true},
    {"numbers-of-two-axes", INNER_TWO, 1, false},
    {"number-of-rows-alone", OUTER, 2, true},
    {"norm-backward", BACK, 0, true},
    {"softmax-backward", SOFTMAX_BACK, 0, false},
    {"group-norm-backward", GROUPS_BACK, 0, false},
};
enum { PROBLEMS = sizeof problems / sizeof *problems };

typedef struct what {
    const struct problem *p;
    base_type type, vectors;
} what;

static void add(typed_side *s, graph_value v) {
    typed_output(s, v && graph_tensor_at(s->g, v)->base ? graph_copy(s->g, v) : v);
}

/* A few elements of each row decide, and are numbers of the row in one tree with what they make. */
static void add_inner(typed_side *s, graph_value x, uint32_t axes) {
    graph *g = s->g;
    const graph_value most = graph_reduce(g, OP_AMAX, x, axes, 0),
                      least = graph_reduce(g, OP_AMIN, x, axes, 0),
                      mean = graph_reduce(g, OP_MEAN, x, axes, 1),
                      span = graph_add_scalar(g, graph_sub(g, most, least), 1),
                      v = graph_div(g, graph_sub(g, x, mean), span);
    const graph_value all = graph_reduce(g, OP_SUM, graph_square(g, v), axes, 0);
    add(s, span);
    add(s, graph_sqrt(g, all));
    add(s, graph_mul(g, v, graph_add(g, all, mean)));
}

/* Towards each of x, where d is the gradient of y. */
static void add_back(typed_side *s, graph_value y, graph_value d, uint32_t n,
                     const graph_value *x) {
    graph *g = s->g;
    graph_value gradients[3];
    y = graph_mul(g, y, d);
    y = graph_reduce(g, OP_SUM, y, (1u << graph_tensor_at(g, y)->rank) - 1, 0);
    graph_gradient(g, y, n, x, gradients);
    for (uint32_t i = 0; i < n; i++) add(s, gradients[i]);
}

static void build(typed_side *s, const void *user) {
    static const base_op gates[] = {OP_GLU, OP_SWIGLU, OP_GEGLU, OP_QUICK_GEGLU},
                         scans[] = {OP_CUMSUM, OP_CUMPROD, OP_CUMMAX, OP_CUMMIN};
    const what *w = user;
    graph *g = s->g;
    const graph_dim dims[] = {{ROWS, 1}, {w->p->kind == SCAN_OF_ONE ? 1 : 6, 0}, {11, 0}};
    const graph_value x = typed_input(s, w->type, 3, dims);
    graph_value v[4];
    switch (w->p->kind) {
    case NORM:
    case NORM_ALONE:
    case TRAINING:
        for (uint32_t i = 0; i < 4; i++) v[i] = typed_input(s, w->vectors, 1, &dims[1]);
        if (w->p->kind == NORM) add(s, graph_batch_norm(g, x, v[0], v[1], v[2], v[3], 1e-3f));
        else if (w->p->kind == NORM_ALONE) add(s, graph_batch_norm(g, x, v[0], v[1], 0, 0, 1e-3f));
        if (w->p->kind != TRAINING) break;
        add(s, graph_batch_norm_training(g, x, v[2], v[3], 1e-3f, &v[0], &v[1]));
        add(s, v[0]);
        add(s, v[1]);
        break;
    case GATED:
        for (uint32_t i = 0; i < 4; i++) add(s, graph_gated(g, x, 1, gates[i]));
        break;
    case SQUARES: {
        const graph_value all[] = {x, typed_input(s, w->type, 1, &dims[2]),
                                   typed_input(s, w->type, 0, NULL)};
        add(s, graph_sum_of_squares(g, 3, all));
        break;
    }
    case SOFTMAX:
        for (uint32_t i = 0; i < 3; i++) add(s, graph_softmax_along(g, x, i));
        break;
    case SCAN:
    case SCAN_OF_ONE:
        for (uint32_t i = 0; i < 4; i++)
            add(s, graph_scan(g, x, 1 + i % 2, scans[i], i != 1, i > 0));
        break;
    case LONG_ROWS: {
        const graph_dim row[] = {{ROWS, 1}, {5003, 0}};
        const graph_value y = typed_input(s, w->type, 2, row);
        add(s, graph_layer_norm(g, y, 0, 0, 1e-5f));
        add(s, graph_softmax(g, y));
        add(s, graph_cumsum(g, y, 1));
        break;
    }
    case LONG_SCANS: { /* in chunks, of vectors and of elements */
        const graph_dim rows[] = {{2, 0}, {16388, 0}}, odd[] = {{2, 0}, {16387, 0}};
        add(s, graph_cumsum(g, typed_input(s, w->type, 2, rows), 1));
        add(s, graph_scan(g, typed_input(s, w->type, 2, odd), 1, OP_CUMMAX, false, false));
        break;
    }
    case LOG_SOFTMAX: add(s, graph_log_softmax(g, x, 2)); break;
    case LOG_OF_SUM: add(s, graph_logsumexp(g, x, 6)); break;
    case INNER:
    case INNER_TWO: add_inner(s, x, w->p->kind == INNER ? 4 : 6); break;
    case OUTER: { /* no row is reduced: a number of a row is not made for each of its elements */
        const graph_value rows =
                              typed_input(s, w->type, 3, (graph_dim[]){dims[0], dims[1], {1, 0}}),
                          squares = graph_square(g, x), roots = graph_sqrt(g, graph_abs(g, rows));
        add(s, graph_mul(g, squares, roots));
        break;
    }
    case BACK:
    case SOFTMAX_BACK:
    case GROUPS_BACK: {
        const bool grouped = w->p->kind == GROUPS_BACK;
        const graph_value d = typed_input(s, w->type, 3, dims);
        v[0] = x;
        for (uint32_t i = 1; i < 3; i++) v[i] = typed_input(s, w->vectors, 1, &dims[2 - grouped]);
        add_back(s,
                 w->p->kind == BACK ? graph_layer_norm(g, x, v[1], v[2], 1e-3f)
                 : grouped          ? graph_group_norm(g, x, v[1], v[2], 2, 1e-3f)
                                    : graph_softmax(g, x),
                 d, w->p->kind == SOFTMAX_BACK ? 1 : 3, v);
        break;
    }
    case RESIDUAL: {
        const graph_value more = typed_input(s, w->type, 3, dims),
                          bias = typed_input(s, w->type, 1, &dims[2]),
                          weight = typed_input(s, TYPE_F32, 1, &dims[2]),
                          sum = graph_add(g, graph_add(g, x, more), bias);
        add(s, sum);
        add(s, graph_layer_norm(g, sum, weight, 0, 1e-5f));
        break;
    }
    }
}

static void run_form(test *t, const test_form *form, size_t number) {
    static const base_type types[] = {TYPE_F32, TYPE_F16, TYPE_BF16, TYPE_F64};
    base_heap heap;
    device *d = NULL;
    beryl_error error = {0};
    base_heap_init(&heap, NULL);
    const beryl_status status = test_form_open(form, &heap, &d, &error);
    for (size_t i = 0; i < PROBLEMS; i++) {
        const struct problem *p = &problems[i];
        if (!test_form_draws(form, i, number, p->brief) || (form->brief && !p->brief) ||
            (form->stand_in && i) || !test_case(t, "composite/%s/%s", form->name, p->name))
            continue;
        if (status == BERYL_NO_DEVICE) test_skip(t, "%s", error.message);
        else if (status != BERYL_OK) test_fail(t, __FILE__, __LINE__, "%s", error.message);
        for (uint64_t round = 0; status == BERYL_OK && test_form_round(t, form, d, &round);)
            for (size_t k = 0; k < sizeof types / sizeof *types && !test_failed(t); k++) {
                char name[64];
                const base_type type = types[k];
                const bool half = type == TYPE_F16 || type == TYPE_BF16;
                const what w = {p, type, half && i % 2 ? TYPE_F32 : type};
                /* a sum of halves is rounded before it is normed, or not */
                if ((p->kind == RESIDUAL && type != TYPE_F32) ||
                    (type == TYPE_F64 && !device_caps_of(d)->f64) ||
                    (k && !test_drawn(k + i, number + (size_t)round, form->brief ? 4 : 2)))
                    continue;
                snprintf(name, sizeof name, "%s of %s", p->name, base_type_name(type));
                typed_run(t, &heap, d,
                          &(typed_problem){.name = name,
                                           .build = build,
                                           .what = &w,
                                           .rows = ROWS,
                                           .fewer = i % 3 ? FEWER : 0,
                                           /* a slope is as steep as a row is narrow */
                                           .fill = p->kind == BACK || p->kind == GROUPS_BACK
                                                       ? TYPED_UNIT
                                                       : TYPED_NEAR_ONE,
                                           .seed = number + i,
                                           /* halves are rounded on the way */
                                           .within = type == TYPE_BF16  ? 0.1
                                                     : type == TYPE_F16 ? 1e-2
                                                     : type == TYPE_F64 ? 1e-9
                                                                        : 2e-5,
                                           .relative = type == TYPE_F64 ? 1e-9 : 1e-5,
                                           .dispatches = half ? 0 : p->dispatches});
            }
    }
    test_form_close(d);
    if (status == BERYL_OK && test_case(t, "composite/%s/gives-everything-back", form->name))
        CHECK_INT(t, heap.bytes, 0);
}

/* ---- how many dispatches --------------------------------------------------------------------- */

/* Gradients alone, of the sum of y times a number for each of its elements, on a large GPU. */
static const struct backward {
    const char *name;
    uint32_t n, dispatches;
} backwards[] = {
    /* softmax again in the tree of its gradient */
    {"softmax", 1, 1},
    {"log-softmax", 1, 1},
    /* towards x; sums of columns in parts, and the parts */
    {"rms-norm", 2, 3},
    {"layer-norm", 3, 3},
    {"group-norm", 3, 3},
    /* padding and a product each, and the sum of the batch's */
    {"conv", 2, 5},
};

static void keep_text(void *user, const char *text, size_t size) {
    base_text_add(user, text, size);
}

static beryl_value forward(beryl_graph *g, uint32_t number, beryl_value *v) {
    enum { ROW = 1024, CHANNELS = 64, SIDE = 32 };
    const bool flat = number < 4;
    const beryl_dim rows[] = {{2048, 0}, {ROW, 0}},
                    images[] = {{32, 0}, {CHANNELS, 0}, {SIDE, 0}, {SIDE, 0}},
                    weight[] = {{CHANNELS, 0}, {CHANNELS, 0}, {3, 0}, {3, 0}},
                    each = {flat ? ROW : CHANNELS, 0};
    v[0] = beryl_graph_input(g, "x", BERYL_TYPE_F32, flat ? 2 : 4, flat ? rows : images);
    v[1] = number == 5 ? beryl_graph_input(g, "w", BERYL_TYPE_F32, 4, weight)
                       : beryl_graph_input(g, "w", BERYL_TYPE_F32, 1, &each);
    v[2] = beryl_graph_input(g, "b", BERYL_TYPE_F32, 1, &each);
    const beryl_window same[] = {{3, 1, 1, 1, 1}, {3, 1, 1, 1, 1}};
    switch (number) {
    case 0: return beryl_graph_softmax(g, v[0]);
    case 1: return beryl_graph_log_softmax(g, v[0], 1);
    case 2: return beryl_graph_rms_norm(g, v[0], v[1], 1e-6f);
    case 3: return beryl_graph_layer_norm(g, v[0], v[1], v[2], 1e-6f);
    case 4: return beryl_graph_group_norm(g, v[0], v[1], v[2], 8, 1e-6f);
    default: return beryl_graph_conv(g, v[0], v[1], 2, same, 1);
    }
}

static void check_dispatches(test *t, uint32_t number) {
    const struct backward *c = &backwards[number];
    const beryl_graph_options options = {.size = sizeof options, .device = "dummy"};
    const beryl_explain_options plan = {.size = sizeof plan, .stage = BERYL_STAGE_PLAN};
    beryl_graph *g = NULL;
    beryl_error error = {0};
    base_heap heap;
    base_text text;
    base_heap_init(&heap, NULL);
    base_text_init(&text, &heap);
    CHECK_INT(t, beryl_graph_open(&options, &g, &error), BERYL_OK);
    beryl_value v[3], gradients[3];
    const beryl_value y = forward(g, number, v);
    beryl_type type;
    uint32_t rank = 0;
    beryl_dim dims[10];
    CHECK(t, beryl_graph_shape(g, y, &type, &rank, dims));
    const beryl_value d = beryl_graph_input(g, "d", type, rank, dims);
    beryl_graph_gradient(g, beryl_graph_sum(g, beryl_graph_mul(g, y, d), NULL, 0, false), c->n, v,
                         gradients);
    for (uint32_t i = 0; i < c->n; i++) beryl_graph_output(g, gradients[i], "d");
    if (beryl_graph_explain(g, &plan, keep_text, &text, &error) != BERYL_OK)
        test_fail(t, __FILE__, __LINE__, "%s", error.message);
    const char *end = text.data ? strstr(text.data, " dispatch") : NULL;
    while (end && end > text.data && end[-1] >= '0' && end[-1] <= '9') end--;
    CHECK_INT(t, end ? strtol(end, NULL, 10) : 0, c->dispatches);
    beryl_graph_close(g);
    base_text_fini(&text);
}

void test_composite(test *t);
void test_composite(test *t) {
    for (uint32_t i = 0; i < sizeof backwards / sizeof *backwards; i++)
        if (test_case(t, "composite/backward/%s", backwards[i].name)) check_dispatches(t, i);
    static const char *const parts[] = {"norms", "others", "scans"};
    for (uint32_t i = 0; i < 3; i++) {
        if (test_case(t, "composite/reference/%s", parts[i])) check_meaning(t, "reference", i);
        if (test_case(t, "composite/host/%s-by-calls", parts[i])) check_meaning(t, "host", i);
    }
    for (size_t i = 0; i < test_form_count(); i++) run_form(t, &test_forms[i], i);
}
