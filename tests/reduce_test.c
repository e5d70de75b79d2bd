/* reduce_test.c - reductions over axes on every type: rows and what lies across them, long and
 * short, few and many, with operations before them in the same kernel; and norms, softmax and sums
 * so far of halves. */
#include "forms.h"
#include "typed.h"

#include <stdio.h>
#include <string.h>

enum { ROWS = 37, FEWER = 5 };

typedef struct problem {
    const char *name;
    uint32_t rank, dims[8], axes; /* dims: 0: the extent */
    bool brief;                   /* where kernels are compiled or run slowly too */
    bool small;                   /* not on the interpreter else */
} problem;

static const problem problems[] = {
    {"rows", 2, {0, 129}, 2, true, true},
    {"rows-of-vectors", 2, {0, 128}, 2, false, true},
    {"columns", 2, {0, 96}, 1, true, true},
    {"columns-odd", 2, {0, 7}, 1, false, true},
    {"middle", 3, {5, 0, 12}, 2, true, true},
    {"outer-and-inner", 3, {6, 0, 10}, 5, false, true},
    {"all", 3, {3, 0, 5}, 7, false, true},
    {"one", 1, {1}, 1, false, true},
    {"alternate", 4, {2, 3, 0, 5}, 10, true, true},
    {"of-eight", 8, {2, 1, 3, 2, 0, 1, 2, 3}, 0xa6, false, true},
    {"one-long-row", 2, {1, 70001}, 2, true, false},
    {"few-long-rows", 2, {3, 40000}, 2, false, false},
    {"columns-in-parts", 2, {300, 40}, 1, true, true},
    {"deep-columns", 2, {5000, 8}, 1, true, false},
    {"lines-of-columns", 3, {0, 8, 2560}, 2, false, false}, /* several a row */
    {"many-rows", 2, {70001, 3}, 2, false, false},
    {"windows", 3, {0, 62, 64}, 24, false, false}, /* of 3 by 3, 65,536 and more */
};

static const base_type types[] = {TYPE_F32, TYPE_F16, TYPE_BF16, TYPE_F64, TYPE_I32, TYPE_U8,
                                  TYPE_I8,  TYPE_I16, TYPE_U16,  TYPE_U32, TYPE_I64, TYPE_BOOL};
enum { TYPES = sizeof types / sizeof *types, PROBLEMS = sizeof problems / sizeof *problems };

static const struct {
    base_op op;
    double within, relative;
    const char *why;
    typed_fill fill;
} ops[] = {
    {OP_SUM, 2e-4, 4e-6, "rounding of up to 70,001 terms in another order", TYPED_UNIT},
    {OP_MEAN, 2e-6, 4e-6, "the same, by how many there are", TYPED_UNIT},
    {OP_PROD, 0, 2e-4, "a rounding for each of some hundred factors", TYPED_NEAR_ONE},
    {OP_AMAX, 0, 0, "exact", TYPED_ODD},
    {OP_AMIN, 0, 0, "exact", TYPED_FINITE},
    {OP_ANY, 0, 0, "exact", TYPED_UNIT},
    {OP_ALL, 0, 0, "exact", TYPED_ODD},
};
enum { OPS = sizeof ops / sizeof *ops };

static bool takes(base_op op, base_type type) {
    const char kind = *base_ops[op].inputs;
    return kind == 'b' ? type == TYPE_BOOL
                       : type != TYPE_BOOL && (kind == 'n' || base_type_is_float(type));
}

typedef struct what {
    const problem *p;
    base_op op;
    base_type type;
    bool joined; /* with an operation before it */
} what;

static void build(typed_side *s, const void *user) {
    const what *w = user;
    graph_dim d[8];
    for (uint32_t i = 0; i < w->p->rank; i++)
        d[i] = w->p->dims[i] ? (graph_dim){w->p->dims[i], 0} : (graph_dim){ROWS, 1};
    graph_value x = typed_input(s, w->type, w->p->rank, d);
    for (uint32_t i = 1; w->p->axes == 24 && i < 3; i++) x = graph_windows(s->g, x, i, 3, 1);
    if (w->joined) /* the same numbers, another kernel */
        x = w->type == TYPE_BOOL ? graph_bit_not(s->g, x) : graph_neg(s->g, x);
    typed_output(s, graph_reduce(s->g, w->op, x, w->p->axes, w->joined && w->op == OP_MEAN));
}

/* one_of: of operations and types, as compiling takes its time. */
static void run(test *t, base_heap *heap, device *d, const problem *p, size_t number,
                uint32_t one_of) {
    for (size_t o = 0; o < OPS; o++) {
        for (size_t i = 0; i < TYPES; i++) {
            const what w = {p, ops[o].op, types[i], (o + i + number) % 3 == 0};
            const bool alike =
                ops[o].op == OP_PROD && w.joined; /* signs and zeros change nothing */
            if (!takes(w.op, w.type) || (w.type == TYPE_F64 && !device_caps_of(d)->f64) || alike ||
                !test_drawn(o * TYPES + i, number, one_of) || test_failed(t))
                continue;
            char name[64];
            snprintf(name, sizeof name, "%s of %s%s", base_ops[w.op].name, base_type_name(w.type),
                     w.joined ? ", joined" : "");
            typed_run(t, heap, d,
                      &(typed_problem){.name = name,
                                       .build = build,
                                       .what = &w,
                                       .rows = ROWS,
                                       .fewer = number % 3 ? FEWER : 0,
                                       .fill = ops[o].fill,
                                       .seed = number + i,
                                       .within = ops[o].within,
                                       .relative = ops[o].relative});
        }
    }
}

/* ---- rows of halves -------------------------------------------------------------------------- */

typedef struct halves {
    base_op op;
    base_type type, weights;
    float within;    /* beside the rounding of the result */
    uint32_t length; /* of two rows; 0: 10, of many */
} halves;

/* And scans that are no sums, of F32 too; all of F64. */
static const halves of_halves[] = {
    {OP_CUMPROD, TYPE_F32, TYPE_F32, 1e-6f, 0},     {OP_CUMMAX, TYPE_F32, TYPE_F32, 0, 0},
    {OP_CUMMIN, TYPE_BF16, TYPE_F32, 0, 0},         {OP_RMS_NORM, TYPE_F16, TYPE_F16, 4e-6f, 0},
    {OP_RMS_NORM, TYPE_BF16, TYPE_F32, 4e-6f, 0},   {OP_LAYER_NORM, TYPE_F16, TYPE_BF16, 4e-6f, 0},
    {OP_LAYER_NORM, TYPE_F32, TYPE_F16, 4e-6f, 0},  {OP_GROUP_NORM, TYPE_BF16, TYPE_F16, 4e-6f, 0},
    {OP_SOFTMAX, TYPE_F16, TYPE_F32, 1e-6f, 0},     {OP_SOFTMAX, TYPE_BF16, TYPE_F32, 1e-6f, 0},
    {OP_CUMSUM, TYPE_F16, TYPE_F32, 2e-5f, 0},      {OP_CUMSUM, TYPE_F64, TYPE_F64, 1e-13f, 0},
    {OP_CUMPROD, TYPE_F64, TYPE_F64, 1e-13f, 0},    {OP_CUMMIN, TYPE_F64, TYPE_F64, 0, 0},
    {OP_RMS_NORM, TYPE_F64, TYPE_F64, 1e-12f, 0},   {OP_LAYER_NORM, TYPE_F64, TYPE_F64, 1e-12f, 0},
    {OP_GROUP_NORM, TYPE_F64, TYPE_F64, 1e-12f, 0}, {OP_SOFTMAX, TYPE_F64, TYPE_F64, 1e-12f, 0},
    {OP_CUMMAX, TYPE_F16, TYPE_F32, 0, 16396},      {OP_CUMMIN, TYPE_F64, TYPE_F64, 0, 16391},
    {OP_CUMPROD, TYPE_F32, TYPE_F32, 1e-6f, 16390},
};

static void build_halves(typed_side *s, const void *user) {
    const halves *h = user;
    const bool groups = h->op == OP_GROUP_NORM;
    const graph_dim some[] = {{ROWS, 1}, {6, 0}, {10, 0}}, two[] = {{1, 0}, {2, 0}, {h->length, 0}},
                    *d = h->length ? two : some;
    const uint32_t n = base_ops[h->op].n_in_max;
    graph_value in[3] = {typed_input(s, h->type, 3, d)};
    for (uint32_t i = 1; i < n; i++) in[i] = typed_input(s, h->weights, 1, &d[groups ? 1 : 2]);
    graph_attrs attr = {0};
    if (groups) attr.group_norm.groups = 2, attr.group_norm.eps = 1e-5f;
    else if (graph_op_is_over_axes(h->op))
        attr.cumsum.axis = h->length || h->type == TYPE_F32 || h->type == TYPE_F64 ? 2 : 1;
    else attr.rms_norm.eps = 1e-5f; /* where layer_norm's is too */
    typed_output(s, graph_op(s->g, h->op, in, attr));
}

static void run_halves(test *t, base_heap *heap, device *d, size_t number) {
    for (size_t i = 0; i < sizeof of_halves / sizeof *of_halves; i++) {
        const bool wide = of_halves[i].type == TYPE_F64;
        if (wide && !device_caps_of(d)->f64) continue;
        typed_run(t, heap, d,
                  &(typed_problem){.name = base_ops[of_halves[i].op].name,
                                   .build = build_halves,
                                   .what = &of_halves[i],
                                   .rows = ROWS,
                                   .fewer = FEWER,
                                   .fill = of_halves[i].within > 0 ? TYPED_UNIT : TYPED_FINITE,
                                   .seed = number + i,
                                   .within = (double)of_halves[i].within,
                                   .relative = of_halves[i].within <= 0 ? 0
                                               : wide                   ? 1e-12
                                                                        : 4e-6});
    }
}

/* ---- sums that end in a cast, and windows of which a lane has several ------------------------ */

typedef struct sums {
    const char *name;
    uint32_t x[4], w[4]; /* of a depthwise convolution; x[2] = 0: rows of x[1] times a vector */
    base_type type;
    uint32_t dispatches, stride; /* stride 0: 1 */
} sums;

static const sums of_products[] = {
    {"vector-of-halves", {35, 264, 0, 0}, {0}, TYPE_F16, 2, 0},
    {"rows-that-share-a-vector", {36, 272, 0, 0}, {0}, TYPE_F16, 2, 0},
    {"vector-of-bf16", {35, 4100, 0, 0}, {0}, TYPE_BF16, 3, 0}, /* in parts */
    /* 65,536 results and more: a border, the weights' cast, the sums */
    {"windows-below-one-another", {2, 16, 48, 44}, {16, 1, 3, 3}, TYPE_F32, 2, 0},
    {"windows-of-halves", {2, 16, 46, 48}, {16, 1, 3, 3}, TYPE_F16, 3, 0},
    {"windows-two-apart", {2, 32, 64, 72}, {32, 1, 3, 3}, TYPE_F32, 2, 2},
};

static void build_sums(typed_side *s, const void *user) {
    const sums *of = user;
    graph_dim x[4], w[4];
    for (uint32_t i = 0; i < 4; i++)
        x[i] = (graph_dim){of->x[i], 0}, w[i] = (graph_dim){of->w[i], 0};
    const graph_window one = {3, of->stride ? of->stride : 1, 1, 1, 1}, all[2] = {one, one};
    const graph_value a = typed_input(s, of->type, of->x[2] ? 4 : 2, x),
                      b = typed_input(s, of->type, of->x[2] ? 4 : 1, of->x[2] ? w : &x[1]),
                      y = of->x[2] ? graph_conv(s->g, a, b, 2, all, of->x[1])
                                   : graph_matmul(s->g, a, b, false, false);
    typed_output(s, graph_base_of(s->g, y)); /* what it is a view of */
}

static void run_sums(test *t, const test_form *form, base_heap *heap, device *d) {
    for (size_t i = 0; i < sizeof of_products / sizeof *of_products; i++) {
        const sums *of = &of_products[i];
        if (!test_case(t, "reduce/%s/%s", form->name, of->name)) continue;
        const uint32_t units = d->caps.compute_units;
        if (of->x[2]) d->caps.compute_units = 1; /* few groups are enough */
        typed_run(t, heap, d,
                  &(typed_problem){.name = of->name,
                                   .build = build_sums,
                                   .what = of,
                                   .rows = 1,
                                   .fill = TYPED_UNIT,
                                   .seed = i,
                                   /* up to 4,100 terms below 1 in another order, in F32; in
                                    * halves sums below 64, of BF16 below 256, are rounded */
                                   .within = of->type == TYPE_F16    ? 1.0 / 32
                                             : of->type == TYPE_BF16 ? 1
                                                                     : 3e-4,
                                   .dispatches = form->as_gpu ? of->dispatches : 0});
        d->caps.compute_units = units;
    }
}

static void run_form(test *t, const test_form *form, size_t number) {
    base_heap heap;
    device *d = NULL;
    beryl_error error = {0};
    base_heap_init(&heap, NULL);
    const beryl_status status = test_form_open(form, &heap, &d, &error);
    const bool interprets = !strcmp(form->device, "interpreter");
    for (size_t i = 0; i < PROBLEMS; i++) {
        if ((form->brief && !problems[i].brief && !interprets) ||
            (interprets && !problems[i].small) || (form->stand_in && i) ||
            !test_case(t, "reduce/%s/%s", form->name, problems[i].name))
            continue;
        if (status == BERYL_NO_DEVICE) test_skip(t, "%s", error.message);
        else if (status != BERYL_OK) test_fail(t, __FILE__, __LINE__, "%s", error.message);
        for (uint64_t round = 0; status == BERYL_OK && test_form_round(t, form, d, &round);)
            run(t, &heap, d, &problems[i], i + number + (size_t)round, form->brief ? 24 : 4);
    }
    if (status == BERYL_OK && !form->stand_in &&
        test_case(t, "reduce/%s/rows-of-halves", form->name))
        run_halves(t, &heap, d, number);
    if (status == BERYL_OK && !form->stand_in && !form->drawn) run_sums(t, form, &heap, d);
    test_form_close(d);
    if (status == BERYL_OK && test_case(t, "reduce/%s/gives-everything-back", form->name))
        CHECK_INT(t, heap.bytes, 0);
}

void test_reduce(test *t);
void test_reduce(test *t) {
    for (size_t i = 0; i < test_form_count(); i++) run_form(t, &test_forms[i], i);
}
