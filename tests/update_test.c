/* update_test.c - states that trees of operations change in place, several to a dispatch
 * (plan/pass_update.c): in every form of forms.c the bits of the reference functions, and no fewer
 * dispatches than order allows. All numbers are small and whole: sums are exact. Codes of moments
 * are logarithms, and may be the next ones. */
#include "forms.h"
#include "interpreter.h"
#include "rig.h"

#include "graph/graph.h"
#include "plan/exec.h"
#include "tile/fused.h"

#include <math.h>
#include <string.h>

/* What updates of states are made for, and what they must not take in. */
typedef enum update_form {
    EXCHANGED, /* two states, of each other, by one tree */
    CROSSED,   /* by two: the second one cannot wait for the first */
    BROADCAST, /* one reads what another one changes */
    TURNED,    /* of the state's own transpose */
    LATER,     /* the new state is read, a second one after that becomes that */
    KEPT,      /* the result is wanted too, and the state is read before and after */
    TWICE,     /* of one state */
    CODED,     /* with moments in 8 bits, rounded by chance */
    MANY,      /* more than share a dispatch, of many shapes, by a counter */
    STATES = 20
} update_form;

enum { IN_MAX = STATES + 1, OUT_MAX = 4 };

typedef struct side { /* one of the two executions */
    update_form form;
    uint32_t d, states[STATES];
    graph_store store;
    graph *g;
    graph_exec *exec;
    graph_value inputs[IN_MAX], outputs[OUT_MAX];
    uint32_t n_input, n_output;
    bool open;
} side;

static graph_value add_input(side *s, base_type type, uint32_t rank, const graph_dim *dims) {
    return s->inputs[s->n_input++] = graph_input(s->g, "x", type, rank, dims);
}

static void add_output(side *s, graph_value v) {
    graph_output(s->g, v, "y");
    s->outputs[s->n_output++] = v;
}

static void add_states(side *s) {
    const bool many = s->form == MANY;
    for (uint32_t i = 0; i < (many ? STATES : 2); i++) {
        const uint32_t d = many ? s->d + i / 5 : s->d, dims[2] = {many && i % 3 == 2 ? 3 : d, d};
        const bool row = many ? i % 3 == 1 : i && s->form == BROADCAST;
        s->states[i] = store_add_state(&s->store, "s", i && s->form == CODED ? TYPE_I16 : TYPE_F32,
                                       row ? 1 : 2, dims + row, 1);
    }
}

static void build_many(side *s) {
    graph *g = s->g;
    graph_value all = 0, state[STATES];
    const graph_value rate = add_input(s, TYPE_F32, 1, (graph_dim[]){{1, 0}});
    for (uint32_t i = 0; i < STATES; i++) {
        state[i] = graph_stored(g, &s->store, s->states[i]);
        const graph_tensor t = *graph_tensor_at(g, state[i]);
        graph_value x = add_input(s, i % 4 ? TYPE_F32 : TYPE_I32, t.rank, t.dim);
        if (i % 4 == 0) x = graph_cast(g, x, TYPE_F32, false);
        graph_assign(g, state[i], graph_sub(g, state[i], graph_mul(g, x, rate)));
    }
    for (uint32_t i = 0; i < STATES; i++) {
        const graph_value sum =
            graph_reduce(g, OP_SUM, state[i], (1u << graph_tensor_at(g, state[i])->rank) - 1, 0);
        const graph_value one = graph_reshape(g, sum, 1, (graph_dim[]){{1, 0}});
        all = all ? graph_add(g, graph_scale(g, all, 0.5f), one) : one;
    }
    add_output(s, all);
    for (uint32_t i = 0; i < 3; i++) add_output(s, graph_copy(g, state[i + 8]));
}

static void build_coded(side *s) {
    graph *g = s->g;
    const graph_dim one = {1, 0}, two = {2, 0};
    const graph_value p = graph_stored(g, &s->store, s->states[0]),
                      codes = graph_stored(g, &s->store, s->states[1]);
    const graph_tensor t = *graph_tensor_at(g, p);
    const graph_value x = add_input(s, TYPE_F32, t.rank, t.dim),
                      key = add_input(s, TYPE_U32, 1, &two);
    graph_adam how = {.beta1 = 0.9f, .beta2 = 0.999f, .eps = 1e-8f};
    how.over_first = add_input(s, TYPE_F32, 1, &one);
    how.root = add_input(s, TYPE_F32, 1, &one);
    graph_value made = codes;
    const graph_value next = graph_adam_coded(g, &how, (graph_draw){key, 3}, 8, p, x, &made);
    graph_assign(g, codes, made);
    graph_assign(g, p, next);
    add_output(s, graph_copy(g, p));
    add_output(s, graph_cast(g, codes, TYPE_F32, false));
}

static void build(side *s) {
    graph *g = s->g;
    if (s->form == MANY || s->form == CODED) {
        if (s->form == MANY) build_many(s);
        else build_coded(s);
        return;
    }
    const graph_value a = graph_stored(g, &s->store, s->states[0]),
                      b = graph_stored(g, &s->store, s->states[1]);
    const graph_tensor t = *graph_tensor_at(g, a);
    const graph_value x = add_input(s, TYPE_F32, t.rank, t.dim);
    graph_value v = 0, w = 0;
    switch (s->form) {
    case EXCHANGED:
        v = graph_add(g, a, b), w = graph_sub(g, graph_scale(g, v, 2), a), v = graph_add(g, v, x);
        graph_assign(g, a, v), graph_assign(g, b, w);
        break;
    case CROSSED:
        v = graph_add(g, graph_add(g, a, b), x), w = graph_sub(g, a, b);
        graph_assign(g, a, v), graph_assign(g, b, w);
        break;
    case BROADCAST:
        v = graph_add(g, graph_add(g, a, b), x), w = graph_add_scalar(g, graph_scale(g, b, 2), 1);
        graph_assign(g, a, v), graph_assign(g, b, w);
        break;
    case TURNED:
        v = graph_add(g, graph_permute(g, a, 2, (const uint32_t[]){1, 0}), x);
        graph_assign(g, a, graph_scale(g, v, 0.5f)), graph_assign(g, b, x);
        break;
    case LATER:
        v = graph_assign(g, a, graph_add_scalar(g, graph_add(g, a, x), 1));
        graph_assign(g, b, graph_add(g, graph_scale(g, b, 0.5f), v));
        break;
    case KEPT:
        v = graph_scale(g, graph_add(g, a, x), 2);
        add_output(s, graph_scale(g, a, 3));
        add_output(s, v);
        graph_assign(g, a, v), graph_assign(g, b, graph_add(g, b, a));
        break;
    case TWICE:
    case CODED:
    case MANY:
    case STATES:
        graph_assign(g, a, graph_add_scalar(g, graph_add(g, a, x), 1));
        graph_assign(g, b, graph_add_scalar(g, graph_add(g, b, x), 2));
        graph_assign(g, a, graph_scale(g, graph_add(g, a, b), 0.5f));
        break;
    }
    add_output(s, graph_copy(g, a));
    add_output(s, graph_copy(g, b));
}

static beryl_status side_open(side *s, base_heap *heap, device *d, beryl_error *error) {
    beryl_status status = store_init(&s->store, heap, d, NULL, 0, error);
    if (status != BERYL_OK) return status;
    s->open = true;
    add_states(s);
    status = store_layout(&s->store, 0, error);
    if (status == BERYL_OK) status = store_make(&s->store, error);
    while (status == BERYL_OK && ((status = store_upload_step(&s->store, error)) == BERYL_PENDING ||
                                  status == BERYL_EVENT))
        status = BERYL_OK;
    if (status != BERYL_OK) return status;
    s->g = graph_open(heap);
    build(s);
    const graph_exec_options options = {.exact = true, .draws = interpreter_drawn(d)};
    status = graph_exec_open(s->g, &s->store, &options, &s->exec, error);
    return status == BERYL_OK ? rig_exec_compiled(s->exec, error) : status;
}

static beryl_status side_run(side *s, device *d, uint32_t run, device_ticket *ticket,
                             beryl_error *error) {
    for (uint32_t i = 0; i < s->n_input; i++) {
        const graph_tensor *t = graph_tensor_at(s->g, s->inputs[i]);
        void *to = graph_exec_input(s->exec, s->inputs[i]);
        for (uint32_t k = 0; to && k < graph_element_bound(t); k++) {
            const uint32_t n = (k * 7 + i * 3 + run * 5) % 11;
            if (t->type == TYPE_I32) ((int32_t *)to)[k] = (int32_t)n;
            else if (t->type == TYPE_U32) ((uint32_t *)to)[k] = n;
            else if (s->form != CODED) ((float *)to)[k] = (float)n;
            else ((float *)to)[k] = i ? 0.5f : ((float)n - 5) * powf(10, -(float)(k % 7));
        }
    }
    static const uint32_t none[GRAPH_EXTENT_MAX + 1];
    beryl_status status = graph_exec_submit(s->exec, none, s->outputs, s->n_output, ticket, error);
    return status == BERYL_OK && d ? device_wait(d, *ticket, error) : status;
}

static void side_close(side *s) {
    graph_exec_close(s->exec);
    graph_close(s->g);
    if (s->open) store_fini(&s->store);
}

static const struct update_case {
    const char *name;
    update_form form;
    uint32_t d, updates; /* updates: dispatches; of MANY as the device's bindings allow */
} cases[] = {
    {"exchanged", EXCHANGED, 12, 1},
    {"exchanged-odd", EXCHANGED, 7, 1},
    {"crossed", CROSSED, 8, 1},
    {"broadcast", BROADCAST, 12, 2},
    {"turned", TURNED, 12, 0},
    {"later", LATER, 9, 2},
    {"kept", KEPT, 12, 1},
    {"twice", TWICE, 5, 2},
    {"coded", CODED, 12, 1},
    {"coded-odd", CODED, 5, 1},
    {"many", MANY, 8, 0},
    {"many-odd", MANY, 5, 0},
};

/* Assignments that stay have a step of their own. */
static void check_nodes(test *t, const struct update_case *c, const side *s) {
    const graph *g = s->g;
    device_program program;
    uint32_t n = 0, copies = 0;
    for (size_t i = 0; i < g->nodes.count; i++) {
        const graph_node *node = &g->nodes.data[i];
        n += !node->dead && node->op == OP_FUSED && node->attr.fused.kind == FUSED_UPDATE;
        if (node->dead || node->op != OP_ASSIGN) continue;
        copies++;
        CHECK(t, graph_exec_node_program(s->exec, (uint32_t)i, 0, &program));
    }
    if (c->form != MANY) CHECK_INT(t, n, c->updates);
    else CHECK(t, n >= 2 && n <= STATES && !copies);
}

/* Bits; codes beside a border, where logarithms differ in their last bits, may be the next ones. */
static bool is_close(const side *s, const float *a, const float *b, uint64_t n) {
    uint64_t n_other = 0;
    if (s->form != CODED) return !memcmp(a, b, n * sizeof *a);
    for (uint64_t i = 0; i < n; i++) n_other += !(fabsf(a[i] - b[i]) <= 1e-5f * fabsf(b[i]));
    return n_other <= n / 25;
}

static void run_case(test *t, base_heap *heap, device *d, const struct update_case *c) {
    enum { RUNS = 3 };
    side sides[2] = {{.form = c->form, .d = c->d}, {.form = c->form, .d = c->d}};
    beryl_error error = {0};
    beryl_status status = side_open(&sides[0], heap, d, &error);
    if (status == BERYL_OK) status = side_open(&sides[1], heap, NULL, &error);
    if (status == BERYL_OK) check_nodes(t, c, &sides[0]);
    for (uint32_t run = 0; status == BERYL_OK && run < RUNS && !test_failed(t); run++) {
        device_ticket tickets[2] = {0};
        for (int i = 0; status == BERYL_OK && i < 2; i++)
            status = side_run(&sides[i], i ? NULL : d, run, &tickets[i], &error);
        for (uint32_t n = 0; status == BERYL_OK && n < sides[0].n_output; n++) {
            const void *data[2];
            for (int i = 0; status == BERYL_OK && i < 2; i++)
                status = graph_exec_fetched(sides[i].exec, tickets[i], n, &data[i], &error);
            const graph_tensor *y = graph_tensor_at(sides[0].g, sides[0].outputs[n]);
            CHECK(t, status != BERYL_OK ||
                         is_close(&sides[0], data[0], data[1], graph_element_bound(y)));
        }
        if (status == BERYL_OK) device_fetch_drop(d, tickets[0]);
    }
    if (status != BERYL_OK) test_fail(t, __FILE__, __LINE__, "%s", error.message);
    for (int i = 0; i < 2; i++) side_close(&sides[i]);
}

static void check_form(test *t, const test_form *form, size_t number) {
    base_heap heap;
    device *d = NULL;
    beryl_error error = {0};
    base_heap_init(&heap, NULL);
    const beryl_status status = test_form_open(form, &heap, &d, &error);
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        /* where kernels compile for long, half of the cases; on stand-ins one */
        if ((form->brief && strcmp(form->device, "interpreter") &&
             !test_drawn(i, number, cases[i].form == MANY ? 8 : 2)) ||
            (form->stand_in && i) || !test_case(t, "update/%s/%s", form->name, cases[i].name))
            continue;
        if (status == BERYL_NO_DEVICE) test_skip(t, "%s", error.message);
        else if (status != BERYL_OK) test_fail(t, __FILE__, __LINE__, "%s", error.message);
        else
            for (uint64_t round = 0; test_form_round(t, form, d, &round);)
                run_case(t, &heap, d, &cases[i]);
    }
    test_form_close(d);
    if (status == BERYL_OK && test_case(t, "update/%s/gives-everything-back", form->name))
        CHECK_INT(t, heap.bytes, 0);
}

void test_update(test *t);
void test_update(test *t) {
    for (size_t i = 0; i < test_form_count(); i++) check_form(t, &test_forms[i], i);
}
