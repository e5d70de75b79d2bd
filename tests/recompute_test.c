/* recompute_test.c - segments that backward passes compute again. Gradients are the same bits as
 * without them on the reference functions, and of second order the same but for the order of sums;
 * devices agree with the reference; plans are smaller, and the two ways of planning a graph are
 * those of graphs with and without segments; what is refused. */
#include "forms.h"
#include "rig.h"
#include "typed.h"

#include "beryl_graph.h"

#include "base/thread.h"
#include "graph/reference.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

enum { ROWS = 5, IN_MAX = 6, LAYERS = 3 };

/* ---- nets ------------------------------------------------------------------------------------ */

typedef struct net { /* what a net is made of; marked: in segments */
    graph *g;
    const graph_value *x;
    graph_value state, key;
    bool marked;
} net;
typedef graph_value build_fn(const net *n);

static void begin(const net *n) {
    if (n->marked) graph_recompute_begin(n->g);
}

static void end(const net *n) {
    if (n->marked) graph_recompute_end(n->g);
}

/* Every layer has the same weights: what all give them is added up. */
static graph_value mlp(const net *n) {
    graph *g = n->g;
    graph_value h = n->x[0];
    for (uint32_t l = 0; l < LAYERS; l++) {
        begin(n);
        graph_value y = graph_rms_norm(g, h, n->x[3], 1e-3f);
        y = graph_gelu_tanh(g, graph_linear(g, y, n->x[1]));
        y = graph_linear(g, y, n->x[2]);
        if (n->key) y = graph_dropout(g, (graph_draw){n->key, l}, y, 0.3f);
        h = graph_add(g, h, y);
        end(n);
    }
    return h;
}

/* Keys and values of the first layer are seen by all, as where layers share a cache. */
static graph_value attention(const net *n) {
    graph *g = n->g;
    graph_value h = n->x[0], k = 0, v = 0;
    for (uint32_t l = 0; l < LAYERS; l++) {
        begin(n);
        const graph_dim heads[] = {graph_tensor_at(g, h)->dim[0], {2, 0}, {8, 0}};
        graph_value y = graph_rms_norm(g, h, 0, 1e-3f);
        const graph_value q = graph_permute(
            g, graph_reshape(g, graph_linear(g, y, n->x[1]), 3, heads), 3, (uint32_t[]){1, 0, 2});
        if (!l) {
            k = graph_permute(g, graph_reshape(g, graph_linear(g, y, n->x[2]), 3, heads), 3,
                              (uint32_t[]){1, 0, 2});
            v = graph_permute(g, graph_reshape(g, y, 3, heads), 3, (uint32_t[]){1, 0, 2});
        }
        y = graph_attend(g, q, k, v, 0, &(graph_sdpa){.causal = true});
        y = graph_permute(g, y, 3, (uint32_t[]){1, 0, 2});
        h = graph_add(g, h, graph_reshape(g, y, 2, (graph_dim[]){heads[0], {16, 0}}));
        end(n);
    }
    return h;
}

/* Results with rules of their own, inside and as what leaves a segment. */
static graph_value own_rules(const net *n) {
    graph *g = n->g;
    begin(n);
    graph_value y = graph_linear(g, n->x[0], n->x[1]);
    graph_value z = graph_add(g, graph_detach(g, graph_square(g, y)), graph_log_softmax(g, y, 1));
    const graph_dim rows = graph_tensor_at(g, y)->dim[0];
    const graph_value place = graph_iota(g, graph_narrow(g, y, 1, 0, 1, 1), 0),
                      targets = graph_reshape(g, place, 1, &rows);
    z = graph_add(g, z, graph_unsqueeze(g, graph_cross_entropy(g, z, targets), 1));
    z = graph_mul(g, z, graph_logsumexp(g, y, 2));
    end(n);
    begin(n);
    y = graph_linear_cross_entropy(g, graph_tanh(g, z), n->x[2], targets, 3);
    end(n);
    return graph_mul(g, y, y);
}

/* Views that are made inside of what is outside, and outside of what is inside; a value that is
 * used inside, outside and in the next segment; one that nothing needs; an output. */
static graph_value views(const net *n) {
    graph *g = n->g;
    begin(n);
    const graph_value turned = graph_permute(g, n->x[0], 2, (uint32_t[]){1, 0});
    graph_value y = graph_softmax(g, graph_mul(g, turned, turned));
    const graph_value part = graph_flip(g, graph_narrow(g, y, 0, 1, 4, 1), 0);
    graph_value z = graph_exp(g, graph_mul(g, part, part));
    graph_tanh(g, z);
    end(n);
    graph_value more = graph_square(g, graph_narrow(g, y, 0, 2, 4, 1));
    begin(n);
    z = graph_mul(g, graph_add(g, z, more), part);
    z = graph_mul(g, graph_sigmoid(g, z), graph_copy(g, graph_flip(g, z, 0)));
    end(n);
    return graph_mul(g, z, graph_square(g, part));
}

/* What a state is while the segment is built. */
static graph_value with_state(const net *n) {
    graph *g = n->g;
    begin(n);
    graph_value y = graph_mul(g, graph_exp(g, n->state), n->x[0]);
    y = graph_mul(g, graph_sigmoid(g, y), y);
    end(n);
    return y;
}

/* Of doubles. */
static graph_value smooth(const net *n) {
    graph *g = n->g;
    graph_value h = n->x[0];
    for (uint32_t l = 0; l < LAYERS; l++) {
        begin(n);
        graph_value y = graph_layer_norm(g, h, n->x[2], 0, 1e-3f);
        y = graph_matmul(g, graph_softmax(g, y), n->x[1], false, true);
        y = graph_add(g, graph_tanh(g, y), graph_detach(g, graph_square(g, y)));
        h = graph_mul(g, h, y);
        end(n);
    }
    return h;
}

static const struct net_case {
    const char *name;
    build_fn *build;
    const char *shapes; /* of x; n: the rows of a run */
    bool key, state;
} nets[] = {
    {"mlp", mlp, "n,12 20,12 12,20 12", false, false},
    {"dropout", mlp, "n,12 20,12 12,20 12", true, false},
    {"shared-values", attention, "n,16 16,16 16,16", false, false},
    {"own-rules", own_rules, "n,16 9,16 7,9", false, false},
    {"views", views, "n,6", false, false},
    {"state", with_state, "n,6", false, true},
};
enum { NETS = sizeof nets / sizeof *nets };

static uint32_t shape_at(const char **text, graph_dim *dims) {
    uint32_t rank = 0;
    for (; **text && **text != ' '; *text += **text == ',') {
        if (**text == 'n') dims[rank++] = (graph_dim){ROWS, 1}, ++*text;
        else dims[rank++] = (graph_dim){(uint32_t)strtoul(*text, (char **)(uintptr_t)text, 10), 0};
    }
    *text += **text == ' ';
    return rank;
}

/* The sum of v times numbers that are not all alike. */
static graph_value weighed(graph *g, graph_value v) {
    const graph_tensor t = *graph_tensor_at(g, v);
    if (!v) return 0;
    const graph_value last = graph_cast(g, graph_iota(g, v, t.rank - 1u), t.type, false);
    v = graph_mul(g, v, graph_cos(g, last));
    return graph_reshape(g, graph_reduce(g, OP_SUM, v, (1u << t.rank) - 1, 0), 0, NULL);
}

/* ---- the same gradients ---------------------------------------------------------------------- */

typedef struct lab {
    base_heap heap;
    graph_store store;
    graph *g;
    graph_reference *run;
    beryl_error error;
    graph_value x[IN_MAX], d[IN_MAX];
    uint32_t n_x;
} lab;

static void lab_build(lab *l, const struct net_case *c, base_type type, bool marked, bool second) {
    *l = (lab){0};
    base_heap_init(&l->heap, NULL);
    store_init(&l->store, &l->heap, NULL, NULL, 0, &l->error);
    const uint32_t state = store_add_state(&l->store, "s", TYPE_F32, 1, (const uint32_t[]){6}, 1);
    store_layout(&l->store, 0, &l->error);
    store_make(&l->store, &l->error);
    l->g = graph_open(&l->heap);
    graph_extent_add(l->g, "n", ROWS);
    graph_dim dims[GRAPH_RANK_MAX];
    for (const char *s = c->shapes; *s;) {
        const uint32_t rank = shape_at(&s, dims);
        l->x[l->n_x++] = graph_input(l->g, "x", type, rank, dims);
    }
    const net n = {.g = l->g,
                   .x = l->x,
                   .state = c->state ? graph_stored(l->g, &l->store, state) : 0,
                   .key = c->key ? graph_input(l->g, "key", TYPE_U32, 1, &(graph_dim){2, 0}) : 0,
                   .marked = marked};
    graph_value loss = weighed(l->g, c->build(&n));
    graph_gradient(l->g, loss, l->n_x, l->x, l->d);
    if (second) {
        loss = 0;
        for (uint32_t k = 0; k < l->n_x; k++) {
            const graph_value v = weighed(l->g, l->d[k]);
            loss = loss ? graph_add(l->g, loss, v) : v;
        }
        graph_gradient(l->g, loss, l->n_x, l->x, l->d);
    }
    if (c->state) graph_assign(l->g, n.state, graph_square(l->g, n.state)); /* later: no matter */
    for (uint32_t i = 0; i < l->n_x; i++)
        graph_output(l->g, l->d[i] = graph_copy(l->g, l->d[i]), "d");
}

static bool lab_run(test *t, lab *l) {
    beryl_status status = graph_status(l->g, &l->error);
    if (status == BERYL_OK) status = graph_reference_open(l->g, &l->store, &l->run, &l->error);
    base_random r = {3};
    for (uint32_t i = 0; status == BERYL_OK && i < l->n_x; i++) {
        const graph_tensor *x = graph_tensor_at(l->g, l->x[i]);
        void *to = graph_reference_input(l->run, l->x[i]);
        for (uint64_t k = 0; k < graph_element_bound(x); k++) {
            const double value = 2 * base_random_unit(&r) - 1;
            if (x->type == TYPE_F64) ((double *)to)[k] = value;
            else ((float *)to)[k] = (float)value;
        }
    }
    if (status == BERYL_OK)
        status = graph_reference_run(l->run, (const uint32_t[]){0, ROWS}, &l->error);
    if (status != BERYL_OK) test_fail(t, __FILE__, __LINE__, "%s", l->error.message);
    return status == BERYL_OK;
}

static void lab_close(test *t, lab *l) {
    graph_reference_close(l->run);
    graph_close(l->g);
    store_fini(&l->store);
    CHECK_INT(t, l->heap.bytes, 0);
}

/* Nodes that run. */
static uint32_t live(const graph *g) {
    uint32_t n = 0;
    for (size_t i = 0; i < g->nodes.count; i++) n += !g->nodes.data[i].dead;
    return n;
}

static void check_same(test *t, const struct net_case *c) {
    lab l[4];
    bool ran = true;
    for (int i = 0; i < 4; i++) lab_build(&l[i], c, TYPE_F32, i > 0, false);
    CHECK(t, !graph_recomputes(l[0].g) && graph_recomputes(l[1].g) > 0);
    CHECK(t, live(l[1].g) > live(l[0].g));
    graph_recompute_first(l[2].g, 0);
    CHECK_INT(t, live(l[2].g), live(l[0].g));
    graph_recompute_first(l[3].g, 1);
    CHECK_INT(t, graph_recomputes(l[1].g) == 1, live(l[3].g) == live(l[1].g));
    CHECK(t, live(l[3].g) > live(l[0].g));
    for (int i = 0; i < 4; i++) ran = ran && lab_run(t, &l[i]);
    for (uint32_t k = 0; ran && k < l[0].n_x; k++) {
        const graph_tensor *x = graph_tensor_at(l[0].g, l[0].d[k]);
        const float *want = graph_reference_value(l[0].run, l[0].d[k]);
        double most = 0;
        for (uint64_t i = 0; i < graph_element_bound(x); i++)
            most = fmax(most, fabs((double)want[i]));
        CHECK(t, most > 1e-3 && most < 1e6); /* not nothing against nothing */
        for (int i = 1; i < 4; i++)
            CHECK(t, !memcmp(want, graph_reference_value(l[i].run, l[i].d[k]),
                             graph_element_bound(x) * sizeof *want));
    }
    for (int i = 0; i < 4; i++) lab_close(t, &l[i]);
}

/* Originals and copies are differentiated apart, so that sums have another order: of doubles. */
static void check_second(test *t) {
    static const struct net_case c = {"smooth", smooth, "n,8 8,8 8", false, false};
    lab l[2];
    bool ran = true;
    for (int i = 0; i < 2; i++) lab_build(&l[i], &c, TYPE_F64, i > 0, true);
    for (int i = 0; i < 2; i++) ran = ran && lab_run(t, &l[i]);
    for (uint32_t k = 0; ran && k < l[0].n_x; k++) {
        const double *want = graph_reference_value(l[0].run, l[0].d[k]),
                     *got = graph_reference_value(l[1].run, l[1].d[k]);
        double most = 0;
        const uint64_t n = graph_element_bound(graph_tensor_at(l[0].g, l[0].d[k]));
        for (uint64_t i = 0; i < n; i++) most = fmax(most, fabs(want[i]));
        CHECK(t, most > 1e-3);
        for (uint64_t i = 0; i < n; i++) CHECK_NEAR(t, got[i], want[i], 1e-12 * most);
    }
    for (int i = 0; i < 2; i++) lab_close(t, &l[i]);
}

/* ---- on devices ------------------------------------------------------------------------------ */

static void build_typed(typed_side *s, const void *what) {
    const struct net_case *c = what;
    graph_value x[IN_MAX], d[IN_MAX];
    graph_dim dims[GRAPH_RANK_MAX];
    uint32_t n_x = 0;
    for (const char *shapes = c->shapes; *shapes;) {
        const uint32_t rank = shape_at(&shapes, dims);
        x[n_x++] = typed_input(s, TYPE_F32, rank, dims);
    }
    const net n = {.g = s->g, .x = x, .marked = true};
    graph_gradient(s->g, weighed(s->g, c->build(&n)), n_x, x, d);
    for (uint32_t i = 0; i < n_x; i++) typed_output(s, graph_copy(s->g, d[i]));
}

static void check_form(test *t, const test_form *form, size_t number) {
    base_heap heap;
    device *d = NULL;
    beryl_error error = {0};
    base_heap_init(&heap, NULL);
    const beryl_status status = test_form_open(form, &heap, &d, &error);
    for (size_t i = 0; i < NETS; i++) {
        if (nets[i].key || nets[i].state || form->stand_in || !test_drawn(i, number, 5) ||
            !test_case(t, "recompute/%s/%s", form->name, nets[i].name))
            continue;
        if (status == BERYL_NO_DEVICE) test_skip(t, "%s", error.message);
        else if (status != BERYL_OK) test_fail(t, __FILE__, __LINE__, "%s", error.message);
        for (uint64_t round = 0; status == BERYL_OK && test_form_round(t, form, d, &round);)
            typed_run(t, &heap, d,
                      &(typed_problem){.name = nets[i].name,
                                       .build = build_typed,
                                       .what = &nets[i],
                                       .rows = ROWS,
                                       .fewer = 3,
                                       .fill = TYPED_UNIT,
                                       .seed = number + i,
                                       /* as of gradients without segments */
                                       .within = 5e-5,
                                       .relative = 1e-4});
    }
    test_form_close(d);
}

/* ---- memory ---------------------------------------------------------------------------------- */

enum { TOKENS = 256, WIDTH = 64, WIDE = 256, WEIGHTS = 2 };

/* The plan of so many layers, its gradients and all. */
static beryl_status make_plan(rig *r, uint32_t layers, bool marked, const graph_exec_options *how,
                              graph_exec_info *info) {
    graph_store store;
    graph_exec *exec = NULL;
    beryl_status status = store_init(&store, &r->heap, r->d, NULL, 0, &r->error);
    if (status == BERYL_OK) status = store_layout(&store, 0, &r->error);
    if (status == BERYL_OK) status = store_make(&store, &r->error);
    graph *g = graph_open(&r->heap);
    if (!g) status = BERYL_NO_MEMORY;
    if (status == BERYL_OK) {
        const graph_dim of[3][2] = {
            {{TOKENS, 0}, {WIDTH, 0}}, {{WIDE, 0}, {WIDTH, 0}}, {{WIDTH, 0}, {WIDE, 0}}};
        graph_value h = graph_input(g, "x", TYPE_F32, 2, of[0]), w[WEIGHTS], d[WEIGHTS];
        for (uint32_t i = 0; i < WEIGHTS; i++) w[i] = graph_input(g, "w", TYPE_F32, 2, of[1 + i]);
        const net n = {.g = g, .marked = marked};
        for (uint32_t l = 0; l < layers; l++) {
            begin(&n);
            graph_value y = graph_linear(g, graph_rms_norm(g, h, 0, 1e-3f), w[0]);
            h = graph_add(g, h, graph_linear(g, graph_gelu_tanh(g, y), w[1]));
            end(&n);
        }
        graph_gradient(g, weighed(g, h), WEIGHTS, w, d);
        for (uint32_t i = 0; i < WEIGHTS; i++) graph_output(g, graph_copy(g, d[i]), "d");
        status = graph_exec_open(g, &store, how, &exec, &r->error);
    }
    if (status == BERYL_OK) graph_exec_describe(exec, info);
    graph_exec_close(exec);
    graph_close(g);
    store_fini(&store);
    return status;
}

static graph_exec_info plan_of(test *t, rig *r, uint32_t layers, bool marked,
                               graph_recompute_choice choice, uint64_t room) {
    const graph_exec_options how = {.exact = true, .recompute = choice, .room = room};
    graph_exec_info info = {0};
    if (make_plan(r, layers, marked, &how, &info) != BERYL_OK)
        test_fail(t, __FILE__, __LINE__, "%s", r->error.message);
    return info;
}

/* Segments, their copies and two plans, while the allocator fails from the n-th call on: refused,
 * and nothing is left. */
static void check_no_memory(test *t) {
    enum { FAILS = 40 };
    const graph_exec_options how = {.exact = true};
    uint64_t all = 0, refused = 0;
    for (uint64_t n = 0; n <= FAILS && !test_failed(t); n++) {
        rig_failing f = {UINT64_MAX};
        rig r = {0};
        base_heap_init(&r.heap, &(beryl_allocator){.resize = rig_failing_resize, .user = &f});
        CHECK_INT(t, device_open(&r.heap, NULL, "dummy", &r.d, &r.error), BERYL_OK);
        const uint64_t may = n ? (n - 1) * all / FAILS : UINT64_MAX;
        f.left = may;
        graph_exec_info info;
        const beryl_status status = make_plan(&r, 2, true, &how, &info);
        if (!n) all = may - f.left;
        f.left = UINT64_MAX;
        if (status != (n ? BERYL_NO_MEMORY : BERYL_OK))
            test_fail(t, __FILE__, __LINE__, "call %llu of %llu failed: %s: %s",
                      (unsigned long long)may, (unsigned long long)all, beryl_status_name(status),
                      r.error.message);
        refused += status == BERYL_NO_MEMORY;
        device_close(r.d);
        CHECK_INT(t, r.heap.bytes, 0);
    }
    CHECK(t, all > 10 * FAILS && refused == FAILS);
}

static void check_memory(test *t) {
    /* Of a layer its input alone lives until the backward pass; else also what its norm makes, its
     * wide product, and the operation behind that. */
    const uint64_t row = TOKENS * WIDTH * 4, wide = TOKENS * WIDE * 4;
    rig r;
    if (rig_open(t, &r, "dummy")) {
        const graph_exec_info plain = plan_of(t, &r, 4, false, GRAPH_RECOMPUTE, 0),
                              more = plan_of(t, &r, 12, false, GRAPH_RECOMPUTE, 0),
                              less = plan_of(t, &r, 4, true, GRAPH_RECOMPUTE, 0),
                              much = plan_of(t, &r, 12, true, GRAPH_RECOMPUTE, 0);
        CHECK_INT(t, plain.kept_bytes, 0);
        CHECK_INT(t, plain.recomputed_bytes, 0);
        CHECK_INT(t, less.arena_bytes, less.recomputed_bytes);
        CHECK_INT(t, less.kept_bytes, plain.arena_bytes);
        CHECK_INT(t, much.kept_bytes, more.arena_bytes);
        CHECK(t, less.dispatches > plain.dispatches);
        CHECK(t, more.arena_bytes - plain.arena_bytes >= 8 * (2 * row + 2 * wide));
        CHECK(t, much.arena_bytes - less.arena_bytes <= (8 + 2) * row); /* 2: gaps */
        CHECK(t, much.arena_bytes < more.arena_bytes / 2);
    }
    rig_close(t, &r);
}

/* The planner keeps what there is room for, and computes as few segments again as that asks for; a
 * plan that keeps all is that of a graph without segments. */
static void check_choice(test *t) {
    rig r;
    if (rig_open(t, &r, "dummy")) {
        const graph_exec_info plain = plan_of(t, &r, 4, false, GRAPH_RECOMPUTE, 0);
        const struct {
            graph_recompute_choice choice;
            uint64_t room;
            uint32_t again;
        } cases[] = {{GRAPH_KEEP, 1, 0},
                     {GRAPH_KEEP_OR_RECOMPUTE, 0, 0},
                     {GRAPH_KEEP_OR_RECOMPUTE, plain.arena_bytes, 0},
                     {GRAPH_KEEP_OR_RECOMPUTE, plain.arena_bytes - 1, 1},
                     {GRAPH_KEEP_OR_RECOMPUTE, 1, 4},
                     {GRAPH_RECOMPUTE, plain.arena_bytes, 4}};
        for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
            const graph_exec_info info = plan_of(t, &r, 4, true, cases[i].choice, cases[i].room);
            CHECK_INT(t, info.kept_bytes, plain.arena_bytes);
            CHECK(t, info.recomputed_bytes < plain.arena_bytes);
            CHECK_INT(t, info.recomputes, cases[i].again);
            if (!cases[i].again) CHECK_INT(t, info.arena_bytes, info.kept_bytes);
            else if (cases[i].again == 4) CHECK_INT(t, info.arena_bytes, info.recomputed_bytes);
            else CHECK(t, info.arena_bytes <= cases[i].room);
            CHECK(t, (info.dispatches == plain.dispatches) == !cases[i].again);
        }
    }
    rig_close(t, &r);
}

/* ---- graphs of users ------------------------------------------------------------------------- */

typedef void refused_fn(beryl_graph *g, beryl_value x, beryl_value state);

static beryl_value total(beryl_graph *g, beryl_value x) {
    return beryl_graph_sum(g, x, NULL, 0, false);
}

static void inside_another(beryl_graph *g, beryl_value x, beryl_value state) {
    (void)state;
    beryl_graph_recompute_begin(g);
    beryl_graph_exp(g, x);
    beryl_graph_recompute_begin(g);
}

static void without_begin(beryl_graph *g, beryl_value x, beryl_value state) {
    (void)x, (void)state;
    beryl_graph_recompute_begin(g);
    beryl_graph_recompute_end(g);
    beryl_graph_recompute_end(g);
}

static void gradient_inside(beryl_graph *g, beryl_value x, beryl_value state) {
    (void)state;
    beryl_graph_recompute_begin(g);
    beryl_graph_gradient(g, total(g, x), 1, &x, (beryl_value[1]){0});
}

static void changed_inside(beryl_graph *g, beryl_value x, beryl_value state) {
    beryl_graph_recompute_begin(g);
    beryl_graph_assign(g, state, beryl_graph_exp(g, x));
    beryl_graph_recompute_end(g);
}

/* The state is read where no gradient goes, but is needed again. */
static void changed_after(beryl_graph *g, beryl_value x, beryl_value state) {
    beryl_graph_recompute_begin(g);
    const beryl_value factor = beryl_graph_gt(g, state, x),
                      y = beryl_graph_mul(g, x, beryl_graph_cast(g, factor, BERYL_TYPE_F32, false));
    beryl_graph_recompute_end(g);
    const beryl_value loss = total(g, y);
    beryl_graph_assign(g, state, x);
    beryl_graph_gradient(g, loss, 1, &x, (beryl_value[1]){0});
}

static void check_refused(test *t) {
    static const struct {
        const char *name;
        refused_fn *build;
        beryl_status status;
        const char *message;
    } refused[] = {
        {"nested", inside_another, BERYL_UNSUPPORTED, "recompute: a segment inside a segment"},
        {"an-end-alone", without_begin, BERYL_MISUSE, "recompute: no segment has begun"},
        {"a-gradient-inside", gradient_inside, BERYL_MISUSE, "gradient inside a segment"},
        {"a-state-changed-inside", changed_inside, BERYL_UNSUPPORTED,
         "recompute: assign changes a state inside a segment"},
        {"a-state-changed-after", changed_after, BERYL_MISUSE, "a state that it reads is changed"},
    };
    for (size_t i = 0; i < sizeof refused / sizeof *refused; i++) {
        if (!test_case(t, "recompute/refused/%s", refused[i].name)) continue;
        const beryl_graph_options options = {.size = sizeof options, .device = "reference"};
        beryl_graph *g = NULL;
        beryl_error error = {0};
        CHECK_INT(t, beryl_graph_open(&options, &g, &error), BERYL_OK);
        const beryl_value x = beryl_graph_input(g, "x", BERYL_TYPE_F32, 1, &(beryl_dim){6, 0}),
                          state =
                              beryl_graph_state(g, "s", BERYL_TYPE_F32, 1, (const uint32_t[]){6});
        refused[i].build(g, x, state);
        beryl_graph_output(g, beryl_graph_exp(g, x), "y");
        CHECK_INT(t, beryl_graph_compile(g, &error), refused[i].status);
        if (!strstr(error.message, refused[i].message))
            test_fail(t, __FILE__, __LINE__, "'%s', not '%s'", error.message, refused[i].message);
        beryl_graph_close(g);
    }
}

/* What the planner tells of a user's graph. */
static void check_told(test *t) {
    const beryl_graph_options options = {.size = sizeof options, .device = "dummy"};
    uint64_t bytes[2] = {0}, kept[2] = {0};
    for (int marked = 0; marked < 2; marked++) {
        beryl_graph *g = NULL;
        beryl_error error = {0};
        CHECK_INT(t, beryl_graph_open(&options, &g, &error), BERYL_OK);
        const beryl_value x =
            beryl_graph_input(g, "x", BERYL_TYPE_F32, 2, (const beryl_dim[]){{64, 0}, {64, 0}});
        beryl_value y = x, d;
        for (int l = 0; l < 6; l++) {
            if (marked) beryl_graph_recompute_begin(g);
            for (int i = 0; i < 3; i++)
                y = beryl_graph_tanh(g, beryl_graph_matmul(g, y, x, false, false));
            if (marked) beryl_graph_recompute_end(g);
        }
        beryl_graph_gradient(g, total(g, y), 1, &x, &d);
        beryl_graph_output(g, d, "d");
        CHECK_INT(t, beryl_graph_memory(g, &bytes[marked], NULL, &error), BERYL_MISUSE);
        beryl_status status;
        while ((status = beryl_graph_compile(g, &error)) == BERYL_PENDING) {}
        CHECK_INT(t, status, BERYL_OK);
        CHECK_INT(t, beryl_graph_memory(g, &bytes[marked], &kept[marked], &error), BERYL_OK);
        beryl_graph_close(g);
    }
    CHECK(t, bytes[0] > 0);
    CHECK_INT(t, kept[0], bytes[0]);
    CHECK_INT(t, kept[1], bytes[0]);
    CHECK(t, bytes[1] < bytes[0]);
}

void test_recompute(test *t) {
    for (size_t i = 0; i < NETS; i++)
        if (test_case(t, "recompute/same-bits/%s", nets[i].name)) check_same(t, &nets[i]);
    if (test_case(t, "recompute/second-derivatives")) check_second(t);
    if (test_case(t, "recompute/less-memory")) check_memory(t);
    if (test_case(t, "recompute/kept-where-there-is-room")) check_choice(t);
    if (test_case(t, "recompute/memory-of-both-ways")) check_told(t);
    if (test_case(t, "recompute/memory-runs-out")) check_no_memory(t);
    check_refused(t);
    for (size_t i = 0; i < test_form_count(); i++) check_form(t, &test_forms[i], i);
}
