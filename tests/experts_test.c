/* experts_test.c - a layer's mixture of experts as the model builds it, joined into few
 * dispatches, against the reference functions: the choice, the products with the chosen experts,
 * their sum, and the branches added to the stream. */
#include "forms.h"
#include "sides.h"

#include <stdlib.h>
#include <string.h>

enum { NEXT = 24 /* rows of the product that follows */ };

typedef struct problem {
    const char *name;
    uint32_t n_bound, n, d, n_ff, n_expert, n_used;
    base_type gate_up, down;
    bool apart;     /* gate and up are two tensors */
    uint32_t nodes; /* that are left on a GPU */
} problem;

static const problem problems[] = {
    {"one", 1, 1, 256, 96, 20, 8, TYPE_Q4_K, TYPE_Q8_0, false, 4},
    {"one-wide", 1, 1, 512, 256, 7, 2, TYPE_Q4_K, TYPE_Q6_K, false, 4},
    {"apart", 1, 1, 256, 64, 9, 3, TYPE_Q4_0, TYPE_Q5_0, true, 4},
    {"few", 5, 3, 128, 64, 33, 4, TYPE_Q8_0, TYPE_Q4_0, false, 4},
    {"floats", 2, 2, 64, 32, 5, 5, TYPE_F16, TYPE_F32, false, 4},
    {"odd-widths", 1, 1, 80, 24, 6, 2, TYPE_F32, TYPE_BF16, false, 5},
    {"too-many-pairs", 20, 17, 64, 32, 9, 8, TYPE_Q8_0, TYPE_Q4_0, false, 8},
};

/* ---- the graph ------------------------------------------------------------------------------- */

enum {
    T_ROUTER_SCALE,
    T_PRE,
    T_POST_1,
    T_POST_2,
    T_POST,
    T_SCALES,
    T_LAYER_SCALE,
    T_NEXT_NORM,
    T_NEXT,
    T_ROUTER,
    T_DOWN,
    T_GATE_UP,
    T_UP
};

static void weights_make(sides_weights *w, const problem *p) {
    for (uint32_t i = T_ROUTER_SCALE; i <= T_POST; i++)
        sides_weight_add(w, TYPE_F32, 0, 1, p->d, 0, 0);
    sides_weight_add(w, TYPE_F32, 0, 1, p->n_expert, 0, 0);
    sides_weight_add(w, TYPE_F32, 0, 1, 1, 0, 0);
    sides_weight_add(w, TYPE_F32, 0, 1, p->d, 0, 0);
    sides_weight_add(w, TYPE_F16, 0, 2, NEXT, p->d, 0);
    sides_weight_add(w, TYPE_F32, 0, 2, p->n_expert, p->d, 0);
    sides_weight_add(w, p->down, 0, 3, p->n_expert, p->d, p->n_ff);
    sides_weight_add(w, p->gate_up, 0, 3, p->n_expert, p->apart ? p->n_ff : 2 * p->n_ff, p->d);
    if (p->apart) sides_weight_add(w, p->gate_up, 0, 3, p->n_expert, p->n_ff, p->d);
}

static void build(side *s, const graph_value *w, const void *problem_) {
    const problem *p = problem_;
    graph *g = s->g;
    graph_value ids, gate, up;
    const graph_dim n = {p->n_bound, graph_extent_add(g, "n", p->n_bound)},
                    dims[2] = {n, {p->d, 0}};
    const graph_value h = side_input(s, "h", 2, dims), dense = side_input(s, "dense", 2, dims);
    graph_value a = graph_rms_norm(g, dense, w[T_POST_1], 1e-6f);
    graph_value logits =
        graph_linear(g, graph_rms_norm(g, h, w[T_ROUTER_SCALE], 1e-6f), w[T_ROUTER]);
    graph_value gates = graph_topk(g, logits, p->n_used, &ids);
    gates = graph_softmax(g, graph_scale(g, gates, 0.1f));
    gates = graph_mul(g, gates, graph_gather_rows(g, w[T_SCALES], ids, 1));
    graph_value x = graph_reshape(g, graph_rms_norm(g, h, w[T_PRE], 1e-6f), 3,
                                  (graph_dim[]){n, {1, 0}, {p->d, 0}});
    gate = graph_linear_id(g, x, w[T_GATE_UP], ids);
    if (p->apart) {
        up = graph_linear_id(g, x, w[T_UP], ids);
    } else {
        up = graph_narrow(g, gate, 2, p->n_ff, p->n_ff, 1);
        gate = graph_narrow(g, gate, 2, 0, p->n_ff, 1);
    }
    graph_value each = graph_linear_id(g, graph_geglu(g, gate, up), w[T_DOWN], ids);
    graph_value b = graph_rms_norm(g, graph_weighted_sum(g, each, gates), w[T_POST_2], 1e-6f);
    graph_value both = graph_rms_norm(g, graph_add(g, a, b), w[T_POST], 1e-6f);
    const graph_value out = graph_mul(g, graph_add(g, h, both), w[T_LAYER_SCALE]);
    side_output(s, out);
    side_output(s, graph_linear(g, graph_rms_norm(g, out, w[T_NEXT_NORM], 1e-6f), w[T_NEXT]));
}

static void check_nodes(test *t, side *joined, const void *problem_) {
    CHECK_INT(t, side_live_nodes(joined, OP_COUNT), ((const problem *)problem_)->nodes);
}

static void run(test *t, base_heap *heap, device *d, const problem *p, bool exact, bool counted) {
    sides_weights w = {0};
    weights_make(&w, p);
    /* f32 sums in another order; int8 activations, twice */
    sides_run(t, heap, d,
              &(sides){.weights = &w,
                       .build = build,
                       .check = counted ? check_nodes : NULL,
                       .problem = p,
                       .n = p->n,
                       .exact = exact,
                       .within = exact ? 4e-6 : 2e-2});
    free(w.bytes);
}

/* ---- the forms ------------------------------------------------------------------------------- */

/* Beside those of forms.c: with subgroups and dot products. */
static const test_form gpu = {
    .name = "gpu", .device = "webgpu:software", .caps = "hard", .as_gpu = true};

/* exact: 32-bit activations; number: of the form, which other problems are drawn for than for
 * its neighbours. */
static void check_form(test *t, const test_form *form, size_t number, bool exact) {
    base_heap heap;
    device *d = NULL;
    beryl_error error = {0};
    base_heap_init(&heap, NULL);
    const beryl_status status = test_form_open(form, &heap, &d, &error);
    const char *name = exact ? "exact" : "fast";
    /* elsewhere a driver compiles each kernel for a while */
    const bool quick = !strcmp(form->device, "interpreter");
    for (size_t j = 0; j < sizeof problems / sizeof *problems; j++) {
        if ((strcmp(form->name, "host") && !test_drawn(j, number + exact, quick ? 2 : 3)) ||
            !test_case(t, "experts/%s-%s/%s", form->name, name, problems[j].name))
            continue;
        if (status == BERYL_NO_DEVICE) test_skip(t, "%s", error.message);
        else if (status != BERYL_OK) test_fail(t, __FILE__, __LINE__, "%s", error.message);
        else
            for (uint64_t round = 0; test_form_round(t, form, d, &round);)
                run(t, &heap, d, &problems[j], exact, form->as_gpu);
    }
    test_form_close(d);
    if (status == BERYL_OK && test_case(t, "experts/%s-%s/gives-everything-back", form->name, name))
        CHECK_INT(t, heap.bytes, 0);
}

void test_experts(test *t);
void test_experts(test *t) {
    for (size_t i = 0; i < test_form_count(); i++) {
        if (test_forms[i].stand_in) continue; /* compiles each for a second */
        check_form(t, &test_forms[i], i, true);
        if (test_forms[i].as_gpu) check_form(t, &test_forms[i], i, false);
    }
    check_form(t, &gpu, TEST_FORMS, true);
    check_form(t, &gpu, TEST_FORMS, false);
}
