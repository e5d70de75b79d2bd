/* typed.c - see typed.h. */
#include "typed.h"
#include "interpreter.h"
#include "rig.h"

#include "base/error.h"
#include "base/thread.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

enum { SPECIAL = 28 };

/* ---- numbers --------------------------------------------------------------------------------- */

static double draw_real(base_random *r, uint64_t i) {
    static const double special[SPECIAL] = {
        0,         -0.0, 1,     -1,      0.5,  -0.5,  1.5,        -1.5, 2.5,    -2.5,
        3,         -3,   6,     -6,      100,  -100,  1e-3,       1e4,  -30000, INFINITY,
        -INFINITY, NAN,  65504, 0.99999, 1e30, -1e20, 123456.789, 4097};
    if (i % 3 == 0 && i / 3 < SPECIAL) return special[i / 3];
    const double size = ldexp(1 + base_random_unit(r), (int)(base_random_next(r) % 20) - 12);
    return base_random_next(r) % 2 ? size : -size;
}

static uint64_t draw_whole(base_random *r, uint64_t i) {
    static const uint64_t special[] = {0,    1,      UINT64_MAX, 0x7f,       0x80,
                                       0xff, 0x7fff, 0x8000,     0x7fffffff, 0x80000000,
                                       2,    7,      31,         32,         UINT64_C(1) << 63};
    if (i % 3 == 0 && i / 3 < sizeof special / sizeof *special) return special[i / 3];
    return base_random_next(r) >> (base_random_next(r) % 64);
}

/* Of which sums and products neither overflow nor vanish. */
static double draw_tame(base_random *r, typed_fill how) {
    const double unit = base_random_unit(r);
    return how == TYPED_NEAR_ONE ? 0.9 + 0.2 * unit : how == TYPED_UNIT ? 2 * unit - 1 : 7;
}

static void fill(void *to, const graph_tensor *x, uint64_t seed, typed_fill how) {
    base_random r = {seed * 91};
    const uint64_t n = graph_element_bound(x);
    const uint32_t size = base_type_block_bytes(x->type);
    for (uint64_t i = 0; i < n; i++) {
        /* inputs meet each other's special numbers in other places */
        const uint64_t at = (i + seed * 5) % n;
        double real = how <= TYPED_FINITE ? draw_real(&r, at) : draw_tame(&r, how);
        if (how == TYPED_FINITE && !(fabs(real) < 6e4) && !isnan(real)) real = 7;
        const float single = (float)real;
        uint64_t bits = draw_whole(&r, at);
        if (x->type == TYPE_BOOL) bits = how <= TYPED_FINITE ? bits % 2 : bits % 16 == 0;
        if (x->type == TYPE_F64) memcpy(&bits, &real, sizeof real);
        if (x->type == TYPE_F32) memcpy(&bits, &single, sizeof single);
        if (x->type == TYPE_F16) bits = base_f32_to_f16(single);
        if (x->type == TYPE_BF16) bits = base_f32_to_bf16(single);
        memcpy((char *)to + i * size, &bits, size);
    }
}

static double real_at(base_type type, const void *from) {
    float x;
    double wide;
    if (type != TYPE_F64) return base_dequantise(type, from, &x, 1), (double)x;
    return memcpy(&wide, from, sizeof wide), wide;
}

/* What storing a number of the type may add. */
static double rounding_of(base_type type) {
    return type == TYPE_F16 ? 1.0 / 1024 : type == TYPE_BF16 ? 1.0 / 128 : 0;
}

/* ---- sides ----------------------------------------------------------------------------------- */

graph_value typed_input(typed_side *s, base_type type, uint32_t rank, const graph_dim *dims) {
    return s->in[s->n_in++] = graph_input(s->g, "x", type, rank, dims);
}

void typed_output(typed_side *s, graph_value v) {
    graph_output(s->g, v, "y");
    s->out[s->n_out++] = v;
}

/* Of graph_constant. */
static graph_value give(void *side, uint32_t n, const float *numbers) {
    typed_side *s = side;
    float *kept = s->n_in < TYPED_IN_MAX ? malloc(n * sizeof *kept) : NULL;
    if (!kept) return 0;
    s->given[s->n_in] = memcpy(kept, numbers, n * sizeof *kept);
    return typed_input(s, TYPE_F32, 1, (const graph_dim[]){{n, 0}});
}

static beryl_status side_open(typed_side *s, base_heap *heap, device *d, const typed_problem *p,
                              beryl_error *error) {
    beryl_status status = store_init(&s->store, heap, d, NULL, 0, error);
    if (status == BERYL_OK) status = store_layout(&s->store, 0, error);
    if (status == BERYL_OK) status = store_make(&s->store, error);
    s->g = graph_open(heap);
    graph_extent_add(s->g, "rows", p->rows);
    s->g->constants.fn = give;
    s->g->constants.context = s;
    p->build(s, p->what);
    if (status == BERYL_OK) status = graph_status(s->g, error);
    const graph_exec_options options = {.exact = true, .draws = interpreter_drawn(d)};
    if (status == BERYL_OK) status = graph_exec_open(s->g, &s->store, &options, &s->exec, error);
    return status == BERYL_OK ? rig_exec_compiled(s->exec, error) : status;
}

static void side_close(typed_side *s) {
    graph_exec_close(s->exec);
    graph_close(s->g);
    store_fini(&s->store);
    for (uint32_t i = 0; i < TYPED_IN_MAX; i++) free(s->given[i]);
}

static beryl_status side_run(typed_side *s, const typed_problem *p, uint32_t round,
                             const void **data, beryl_error *error) {
    device_ticket ticket;
    for (uint32_t i = 0; i < s->n_in; i++) {
        const graph_tensor *x = graph_tensor_at(s->g, s->in[i]);
        void *to = graph_exec_input(s->exec, s->in[i]);
        if (s->given[i]) memcpy(to, s->given[i], graph_element_bound(x) * sizeof(float));
        else fill(to, x, p->seed + round + i, p->fill);
    }
    const uint32_t extents[] = {0, round ? p->fewer : p->rows};
    beryl_status status = graph_exec_submit(s->exec, extents, s->out, s->n_out, &ticket, error);
    if (status == BERYL_OK && s->store.device) status = device_wait(s->store.device, ticket, error);
    for (uint32_t i = 0; status == BERYL_OK && i < s->n_out; i++)
        status = graph_exec_fetched(s->exec, ticket, i, &data[i], error);
    return status;
}

/* ---- comparing ------------------------------------------------------------------------------- */

typedef struct walk {
    test *t;
    const typed_problem *p;
    const graph_tensor *x;
    const uint32_t *extents; /* of the run, by index */
    uint32_t output;
    const char *got, *want;
    bool failed;
} walk;

static bool is_close(const walk *w, double got, double want) {
    const typed_problem *p = w->p;
    if (isnan(want)) return isnan(got);
    if (isinf(want)) return got == want;
    /* a step before the largest number may already be above it */
    if (p->relative > 0 && fabs(want) > 1.6e38 && isinf(got)) return (got > 0) == (want > 0);
    const double rounding = p->relative > 0 || p->within > 0 ? rounding_of(w->x->type) : 0;
    /* shaders may take what is below the smallest normal number for 0 */
    return fabs(got - want) <= p->within + (p->relative + rounding) * fabs(want) + 1.2e-38;
}

static void compare_one(walk *w, uint64_t at) {
    const base_type type = w->x->type;
    const uint32_t size = base_type_block_bytes(type);
    const char *a = w->got + at * size, *b = w->want + at * size;
    const bool is_float = base_type_is_float(type);
    if (w->failed || !memcmp(a, b, size)) return;
    if (is_float && is_close(w, real_at(type, a), real_at(type, b))) return;
    uint64_t bits[2] = {0};
    memcpy(&bits[0], a, size);
    memcpy(&bits[1], b, size);
    test_fail(w->t, __FILE__, __LINE__, "%s, output %u, element %llu: %.9g (%llx), not %.9g (%llx)",
              w->p->name, w->output, (unsigned long long)at, is_float ? real_at(type, a) : 0,
              (unsigned long long)bits[0], is_float ? real_at(type, b) : 0,
              (unsigned long long)bits[1]);
    w->failed = true;
}

/* The run's elements, at the strides of the bounds. */
static void compare(walk *w, uint32_t axis, uint64_t at) {
    if (axis == w->x->rank) {
        compare_one(w, at);
        return;
    }
    const graph_dim d = w->x->dim[axis];
    for (uint32_t i = 0; i < graph_dim_value(d, w->extents); i++)
        compare(w, axis + 1, at + (uint64_t)i * w->x->stride[axis]);
}

void typed_run(test *t, base_heap *heap, device *d, const typed_problem *p) {
    typed_side sides[2] = {{0}};
    beryl_error error = {0};
    beryl_status status = side_open(&sides[0], heap, d, p, &error);
    if (status == BERYL_OK) status = side_open(&sides[1], heap, NULL, p, &error);
    if (status == BERYL_OK && p->dispatches) {
        graph_exec_info info;
        graph_exec_describe(sides[0].exec, &info);
        CHECK_INT(t, info.dispatches, p->dispatches);
    }
    for (uint32_t round = 0; status == BERYL_OK && !p->planned && round < 2; round++) {
        const void *data[2][TYPED_OUT_MAX] = {{0}};
        uint32_t extents[GRAPH_EXTENT_MAX + 1] = {0, round ? p->fewer : p->rows};
        status = graph_extent_values(sides[0].g, extents, extents, &error);
        for (int i = 0; status == BERYL_OK && i < 2; i++)
            status = side_run(&sides[i], p, round, data[i], &error);
        for (uint32_t i = 0; status == BERYL_OK && i < sides[0].n_out; i++) {
            walk w = {.t = t,
                      .p = p,
                      .x = graph_tensor_at(sides[0].g, sides[0].out[i]),
                      .extents = extents,
                      .output = i,
                      .got = data[0][i],
                      .want = data[1][i]};
            compare(&w, 0, 0);
        }
    }
    if (status != BERYL_OK) test_fail(t, __FILE__, __LINE__, "%s: %s", p->name, error.message);
    for (int i = 0; i < 2; i++) side_close(&sides[i]);
}
