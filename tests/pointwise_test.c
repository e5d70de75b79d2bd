/* pointwise_test.c - every pointwise operation on every type that it takes: a graph of one node a
 * type on the device against the same on the reference functions, on special numbers and on others
 * of all sizes, broadcast in several ways. */
#include "forms.h"
#include "typed.h"

#include <string.h>

enum { BOUND = 5, FEWER = 3, TYPES_MAX = TYPED_OUT_MAX, ARITY_MAX = 3 };

static const base_type types[] = {TYPE_F32, TYPE_F16, TYPE_BF16, TYPE_F64, TYPE_I32, TYPE_U8,
                                  TYPE_I8,  TYPE_I16, TYPE_U16,  TYPE_U32, TYPE_I64, TYPE_BOOL};
enum { TYPES = sizeof types / sizeof *types };

/* ---- how close ------------------------------------------------------------------------------- */

/* |difference| <= within + relative * |value|, beside the rounding of the type. */
typedef struct bound {
    base_op op;
    double within, relative;
    const char *why;
    bool finite; /* of infinities, and what is near them, it is infinity times 0 */
} bound;

static const bound bounds[] = {
    {OP_EXP, 0, 3e-5, "shaders: 3 + 2 |x| of the last place, |x| below 88", false},
    {OP_EXP2, 0, 3e-5, "the same", false},
    {OP_SINH, 0, 3e-5, "by exp", false},
    {OP_COSH, 0, 3e-5, "by exp", false},
    {OP_POW, 0, 2e-4, "shaders: exp2(y log2(x)), an exponent of up to 128 in 24 bits", false},
    {OP_TAN, 2e-6, 2e-5, "near a pole the angle's last place is more", false},
    {OP_ERF, 4e-7, 2e-6, "a fit of 1.5e-7", false},
    {OP_GELU_ERF, 6e-5, 2e-6, "erf's fit times |x|, where 1 + erf is nearly 0", true},
    {OP_GEGLU, 1e-5, 2e-4, "exp of up to 80", true},
    {OP_GELU_TANH, 1e-5, 2e-4, "exp of up to 80", true},
    {OP_ERFINV, 2e-6, 4e-4, "1 - |x| has few digits near the ends", false},
    {OP_MISH, 1e-6, 2e-5, "exp", true},
    {OP_SILU, 1e-6, 1e-5, "exp", true},
    {OP_QUICK_GELU, 1e-6, 1e-5, "exp", true},
    {OP_QUICK_GEGLU, 1e-6, 1e-5, "exp", true},
    {OP_SWIGLU, 1e-6, 1e-5, "exp", true},
    {OP_GLU, 1e-6, 1e-5, "exp", true},
    {OP_HARDSWISH, 1e-6, 3e-7, "a rounding or two", true},
};

static bound bound_of(base_op op) {
    for (size_t i = 0; i < sizeof bounds / sizeof *bounds; i++)
        if (bounds[i].op == op) return bounds[i];
    switch ((int)base_ops[op].closeness) {
    case CLOSE_EQUAL: return (bound){op, 0, 0, "exact", false};
    case CLOSE_ROUNDED: return (bound){op, 0, 3e-7, "a rounding or two", false};
    default: return (bound){op, 1e-6, 1e-5, "functions of devices", false};
    }
}

/* ---- graphs ---------------------------------------------------------------------------------- */

static bool takes(base_op op, base_type type) {
    const char *kinds = base_ops[op].inputs;
    const char kind = kinds[strlen(kinds) - 1]; /* where's first is its condition */
    const bool whole = !base_type_is_float(type) && type != TYPE_BOOL;
    return kind == 'a' || (kind == 'n' && type != TYPE_BOOL) ||
           (kind == 'f' && base_type_is_float(type)) ||
           (kind == 'z' && !base_type_is_float(type)) || (kind == 'i' && whole);
}

/* Shapes of inputs: alike, one against the other's rows, both against each other, a number. */
static uint32_t shape_of(uint32_t pattern, uint32_t input, graph_dim *d) {
    static const uint32_t ranks[4][ARITY_MAX] = {{3, 3, 3}, {3, 1, 3}, {2, 3, 1}, {3, 0, 2}};
    const uint32_t rank = ranks[pattern][input];
    const graph_dim whole[3] = {{BOUND, 1}, {7, 0}, {13, 0}};
    for (uint32_t i = 0; i < rank; i++) d[i] = whole[3 - rank + i];
    if (pattern == 2 && input == 0) d[1].size = 1;
    if (pattern == 2 && input == 1) d[1].size = 1;
    return rank;
}

static void add(typed_side *s, base_op op, base_type type, uint32_t pattern, base_type to,
                bool wrap) {
    const base_op_info *info = &base_ops[op];
    graph_value in[ARITY_MAX] = {0};
    graph_attrs attr = {0};
    for (uint32_t i = 0; i < info->n_in_max; i++) {
        graph_dim d[3];
        const uint32_t rank = shape_of(info->n_in_max > 1 ? pattern : 0, i, d);
        in[i] = typed_input(s, info->inputs[i] == 'b' ? TYPE_BOOL : type, rank, d);
    }
    for (uint32_t i = 0; info->attributes[i]; i++) attr.at[i].f = info->usual[i];
    if (op == OP_CAST) attr.cast.type = (uint32_t)to, attr.cast.wrap = wrap;
    typed_output(s, graph_op(s->g, op, in, attr));
}

typedef struct problem {
    base_op op;
    base_type types[TYPES_MAX]; /* of inputs */
    base_type to[TYPES_MAX];    /* casts, */
    bool wrap[TYPES_MAX];
    uint32_t n;
    uint64_t seed;
} problem;

static void build(typed_side *s, const void *what) {
    const problem *p = what;
    for (uint32_t i = 0; i < p->n; i++)
        add(s, p->op, p->types[i], (uint32_t)(p->seed + i) % 4, p->to[i], p->wrap[i]);
}

static void run(test *t, base_heap *heap, device *d, const problem *p) {
    const bound b = bound_of(p->op);
    typed_run(t, heap, d,
              &(typed_problem){.name = base_ops[p->op].name,
                               .build = build,
                               .what = p,
                               .rows = BOUND,
                               .fewer = FEWER,
                               .fill = b.finite ? TYPED_FINITE : TYPED_ODD,
                               .seed = p->seed,
                               .within = b.within,
                               .relative = b.relative});
}

/* ---- cases ----------------------------------------------------------------------------------- */

static bool has_type(const device *d, base_type type) {
    return type != TYPE_F64 || device_caps_of(d)->f64;
}

/* Runs what is full, or at the end what is there. */
static void flush(test *t, base_heap *heap, device *d, problem *p, bool end) {
    if (p->n < (end ? 1 : TYPES_MAX)) return;
    run(t, heap, d, p);
    p->n = 0;
}

/* Half of the types, or few where a driver compiles each kernel for a while. */
static void run_types(test *t, base_heap *heap, device *d, const test_form *form, base_op op,
                      size_t number) {
    problem p = {.op = op, .seed = (uint64_t)op + number};
    for (uint32_t i = 0; i < TYPES; i++) {
        if (!takes(op, types[i]) || !has_type(d, types[i]) ||
            !test_drawn(i + (size_t)op, number, form->brief ? 9 : 2))
            continue;
        p.to[p.n] = TYPE_F32;
        p.types[p.n++] = types[i];
        flush(t, heap, d, &p, false);
    }
    flush(t, heap, d, &p, true);
}

static void run_casts(test *t, base_heap *heap, device *d, base_type from, size_t number) {
    problem p = {.op = OP_CAST, .seed = number};
    for (uint32_t i = 0; i < 2 * TYPES; i++) { /* saturating and wrapping */
        if (!has_type(d, types[i % TYPES])) continue;
        p.types[p.n] = from;
        p.wrap[p.n] = i >= TYPES;
        p.to[p.n++] = types[i % TYPES];
        flush(t, heap, d, &p, false);
    }
    flush(t, heap, d, &p, true);
}

static void run_form(test *t, const test_form *form, size_t number) {
    base_heap heap;
    device *d = NULL;
    beryl_error error = {0};
    base_heap_init(&heap, NULL);
    const beryl_status status = test_form_open(form, &heap, &d, &error);
    for (uint32_t i = 0; i < OP_COUNT + TYPES; i++) {
        const bool casts = i >= OP_COUNT;
        const base_type from = types[casts ? i - OP_COUNT : 0];
        const base_op op = casts ? OP_CAST : (base_op)i;
        if (!graph_op_is_pointwise(op) || (form->stand_in && !test_drawn(i, number, 16)) ||
            (casts && form->brief && !test_drawn(i, number, 6)))
            continue;
        if (!(casts ? test_case(t, "pointwise/%s/cast-from-%s", form->name, base_type_name(from))
                    : test_case(t, "pointwise/%s/%s", form->name, base_ops[op].name)))
            continue;
        if (status == BERYL_NO_DEVICE) test_skip(t, "%s", error.message);
        else if (status != BERYL_OK) test_fail(t, __FILE__, __LINE__, "%s", error.message);
        else if (!has_type(d, from)) test_skip(t, "no F64 there");
        else
            for (uint64_t round = 0; test_form_round(t, form, d, &round);) {
                if (casts) run_casts(t, &heap, d, from, number + (size_t)round);
                else run_types(t, &heap, d, form, op, number + (size_t)round);
            }
    }
    test_form_close(d);
    if (status == BERYL_OK && test_case(t, "pointwise/%s/gives-everything-back", form->name))
        CHECK_INT(t, heap.bytes, 0);
}

/* ---- what is refused ------------------------------------------------------------------------- */

static void refused(test *t, base_op op, base_type a, base_type b, graph_attrs attr,
                    const char *why) {
    base_heap heap;
    beryl_error error = {0};
    base_heap_init(&heap, NULL);
    graph *g = graph_open(&heap);
    const graph_dim d[] = {{4, 0}};
    const graph_value in[ARITY_MAX] = {graph_input(g, "a", a, 1, d), graph_input(g, "b", b, 1, d)};
    graph_op(g, op, in, attr);
    CHECK(t, graph_status(g, &error) != BERYL_OK);
    CHECK_TEXT(t, error.message, why);
    graph_close(g);
}

static void test_refusals(test *t) {
    const graph_attrs none = {0};
    if (test_case(t, "pointwise/refuses-types")) {
        refused(t, OP_ADD, TYPE_F32, TYPE_F16, none,
                "graph: add of F32 and F16, inputs F32[4], F16[4]");
        refused(t, OP_EXP, TYPE_I32, TYPE_I32, none, "graph: exp of I32");
        refused(t, OP_ADD, TYPE_BOOL, TYPE_BOOL, none, "graph: add of BOOL");
        refused(t, OP_BIT_AND, TYPE_F32, TYPE_F32, none, "graph: bit_and of F32");
        refused(t, OP_SHL, TYPE_BOOL, TYPE_BOOL, none, "graph: shl of BOOL");
        refused(t, OP_CAST, TYPE_F32, TYPE_F32, (graph_attrs){.cast = {TYPE_Q4_K, 0}},
                "graph: cast to Q4_K, inputs F32[4]");
        refused(t, OP_CAST, TYPE_F32, TYPE_F32, (graph_attrs){.cast = {9999, 0}},
                "graph: cast to no type, inputs F32[4]");
    }
}

void test_pointwise(test *t);
void test_pointwise(test *t) {
    test_refusals(t);
    for (size_t i = 0; i < test_form_count(); i++) run_form(t, &test_forms[i], i);
}
