/* index_test.c - operations by index. On the reference functions against numbers written here; on
 * every device against the reference functions, for all types. */
#include "forms.h"
#include "typed.h"

#include "beryl_graph.h"
#include "graph/reference.h"

#include <stdio.h>
#include <string.h>

enum { ROWS = 45, FEWER = 7 };

/* ---- what they are --------------------------------------------------------------------------- */

enum { MAX = 12 };

typedef struct meaning {
    const char *name;
    base_op op; /* OP_COUNT: index_select, OP_FUSED: index_add, OP_WHERE: masked_fill */
    uint32_t axis;
    uint32_t rank, x_dim[3], ids_rank, ids_dim[3], n_out;
    float x[MAX], updates[MAX], want[MAX];
    int32_t ids[MAX];
} meaning;

/* clang-format off */
static const meaning meanings[] = {
    {"gather", OP_GATHER, 1, 2, {2, 2}, 2, {2, 2}, 4, {1, 2, 3, 4}, {0}, {1, 1, 4, 3}, {0, 0, 1, 0}},
    {"gather-first", OP_GATHER, 0, 2, {3, 2}, 2, {1, 2}, 2, {1, 2, 3, 4, 5, 6}, {0}, {5, 2}, {2, 0}},
    {"gather-shorter", OP_GATHER, 1, 2, {2, 2}, 2, {1, 3}, 3, {1, 2, 3, 4}, {0}, {2, 1, 2}, {1, 0, 1}},
    {"gather-outside", OP_GATHER, 0, 1, {3}, 1, {4}, 4, {7, 8, 9}, {0}, {0, 9, 0, 0}, {-1, 2, 3, INT32_MIN}},
    {"select", OP_COUNT, 1, 2, {2, 3}, 1, {2}, 4, {1, 2, 3, 4, 5, 6}, {0}, {3, 1, 6, 4}, {2, 0}},
    {"select-matrix", OP_COUNT, 0, 2, {3, 2}, 2, {2, 2}, 8, {1, 2, 3, 4, 5, 6}, {0},
     {5, 6, 1, 2, 3, 4, 0, 0}, {2, 0, 1, 3}},
    {"select-one", OP_COUNT, 1, 2, {2, 3}, 0, {0}, 2, {1, 2, 3, 4, 5, 6}, {0}, {2, 5}, {1}},
    {"scatter", OP_SCATTER, 0, 1, {4}, 1, {5}, 4, {1, 2, 3, 4}, {10, 20, 30, 40, 50}, {1, 50, 3, 30},
     {1, 1, 3, -1, 1}},
    {"scatter-axis", OP_SCATTER, 1, 2, {2, 3}, 2, {2, 2}, 6, {0}, {1, 2, 3, 4}, {0, 1, 2, 4, 0, 0},
     {1, 2, 0, 0}},
    {"add", OP_SCATTER_ADD, 0, 1, {4}, 1, {6}, 4, {1, 2, 3, 4}, {10, 20, 30, 40, 50, 60}, {1, 82, 3, 34},
     {1, 1, 3, -1, 1, 4}},
    {"add-shorter", OP_SCATTER_ADD, 0, 2, {2, 3}, 2, {2, 2}, 6, {1, 1, 1, 1, 1, 1}, {1, 2, 3, 4},
     {5, 1, 1, 1, 7, 1}, {0, 1, 0, 1}},
    {"add-rows", OP_FUSED, 0, 2, {3, 2}, 1, {3}, 6, {1, 1, 1, 1, 1, 1}, {1, 2, 3, 4, 5, 6},
     {1, 1, 7, 9, 1, 1}, {1, 7, 1}},
    {"one-hot", OP_ONE_HOT, 3, 0, {0}, 1, {3}, 9, {0}, {0}, {0, 0, 1, 0, 0, 0, 1, 0, 0}, {2, -1, 0}},
    {"fill", OP_WHERE, 0, 2, {2, 2}, 1, {2}, 4, {1, 2, 3, 4}, {0}, {1, -7.5f, 3, -7.5f}, {0, 1}},
    {"nonzero", OP_NONZERO, 0, 2, {2, 3}, 0, {0}, 12, {0, 5, 0, -1, 0, 2}, {0},
     {0, 1, 1, 0, 1, 2, -1, -1, -1, -1, -1, -1}, {0}},
};
/* clang-format on */

static graph_value number_input(graph *g, const char *name, base_type type, uint32_t rank,
                                const uint32_t *dims) {
    graph_dim d[3] = {{0, 0}};
    for (uint32_t i = 0; i < rank; i++) d[i].size = dims[i];
    return graph_input(g, name, type, rank, d);
}

static void fill_input(graph_reference *r, graph_value v, const void *from, const graph *g) {
    void *to = v ? graph_reference_input(r, v) : NULL;
    if (to) memcpy(to, from, graph_element_bound(graph_tensor_at(g, v)) * 4);
}

static void means(test *t, base_heap *heap, const meaning *m) {
    graph_store store;
    graph *g = graph_open(heap);
    graph_reference *r = NULL;
    beryl_error error = {0};
    store_init(&store, heap, NULL, NULL, 0, NULL);
    const bool updates = m->op == OP_SCATTER || m->op == OP_SCATTER_ADD || m->op == OP_FUSED;
    uint32_t rows[3] = {m->ids_dim[0], m->x_dim[1]};
    const graph_value x = m->op != OP_ONE_HOT ? number_input(g, "x", TYPE_F32, m->rank, m->x_dim)
                                              : 0,
                      ids = m->op != OP_NONZERO
                                ? number_input(g, "ids", TYPE_I32, m->ids_rank, m->ids_dim)
                                : 0,
                      u = !updates ? 0
                                   : number_input(g, "u", TYPE_F32, m->rank,
                                                  m->op == OP_FUSED ? rows : m->ids_dim);
    graph_value y = 0, count = 0;
    if (m->op == OP_GATHER) y = graph_gather(g, x, ids, m->axis);
    if (m->op == OP_COUNT) y = graph_index_select(g, x, ids, m->axis);
    if (m->op == OP_SCATTER) y = graph_scatter(g, x, ids, u, m->axis);
    if (m->op == OP_SCATTER_ADD) y = graph_scatter_add(g, x, ids, u, m->axis);
    if (m->op == OP_FUSED) y = graph_index_add(g, x, ids, u, m->axis);
    if (m->op == OP_ONE_HOT) y = graph_one_hot(g, ids, m->axis);
    if (m->op == OP_WHERE) y = graph_masked_fill(g, x, graph_cast(g, ids, TYPE_BOOL, false), -7.5f);
    if (m->op == OP_NONZERO) y = graph_nonzero(g, x, &count);
    if (y && graph_tensor_at(g, y)->type != TYPE_F32) y = graph_cast(g, y, TYPE_F32, false);
    if (y && graph_tensor_at(g, y)->base) y = graph_copy(g, y);
    graph_output(g, y, "y");
    if (count) graph_output(g, count = graph_copy(g, count), "count");
    beryl_status status = graph_status(g, &error);
    if (status == BERYL_OK) status = graph_reference_open(g, &store, &r, &error);
    if (status == BERYL_OK) {
        fill_input(r, x, m->x, g);
        fill_input(r, ids, m->ids, g);
        fill_input(r, u, m->updates, g);
        status = graph_reference_run(r, NULL, &error);
    }
    if (status != BERYL_OK) test_fail(t, __FILE__, __LINE__, "%s", error.message);
    const float *got = status == BERYL_OK ? graph_reference_value(r, y) : NULL;
    if (got) CHECK_INT(t, graph_element_bound(graph_tensor_at(g, y)), m->n_out);
    for (uint32_t i = 0; got && i < m->n_out && !test_failed(t); i++)
        CHECK_NEAR(t, (double)got[i], (double)m->want[i], 0);
    if (got && count) CHECK_INT(t, *(const int32_t *)graph_reference_value(r, count), 3);
    graph_reference_close(r);
    graph_close(g);
    store_fini(&store);
}

static void refuses(test *t, base_heap *heap) {
    for (uint32_t i = 0; i < 8; i++) {
        static const char *const why[] = {
            "gather: indices of F32",
            "gather along axis 1: shapes do not fit: [4, 5], [5, 5]",
            "gather along axis 2: shapes do not fit",
            "scatter_add of BOOL",
            "scatter along axis 0: shapes do not fit: [4, 5], [5, 5], [4, 5]",
            "nonzero of a single number",
            "index_add of [4, 5] by ids [5, 5]",
            "a mask of F32"};
        graph *g = graph_open(heap);
        beryl_error error = {0};
        graph_value n = 0;
        const graph_value x = number_input(g, "x", TYPE_F32, 2, (uint32_t[]){4, 5}),
                          ids = number_input(g, "i", TYPE_I32, 2, (uint32_t[]){5, 5}),
                          truth = number_input(g, "b", TYPE_BOOL, 2, (uint32_t[]){4, 5}),
                          one = number_input(g, "o", TYPE_F32, 0, NULL);
        if (i == 0) graph_gather(g, x, x, 0);
        if (i == 1) graph_gather(g, x, ids, 1);
        if (i == 2) graph_gather(g, x, ids, 2);
        if (i == 3) graph_scatter_add(g, truth, ids, truth, 0);
        if (i == 4) graph_scatter(g, x, ids, x, 0);
        if (i == 5) graph_nonzero(g, one, &n);
        if (i == 6) graph_index_add(g, x, ids, x, 0);
        if (i == 7) graph_masked_fill(g, x, x, 1);
        CHECK(t, graph_status(g, &error) != BERYL_OK);
        if (!strstr(error.message, why[i]))
            test_fail(t, __FILE__, __LINE__, "%s, not %s", error.message, why[i]);
        graph_close(g);
    }
}

/* The calls of users. */
static void calls(test *t) {
    beryl_graph *g = NULL;
    beryl_error error = {0};
    if (beryl_graph_open(
            &(beryl_graph_options){.size = sizeof(beryl_graph_options), .device = "reference"}, &g,
            &error) != BERYL_OK) {
        test_fail(t, __FILE__, __LINE__, "%s", error.message);
        return;
    }
    const beryl_dim rows[] = {{3, 0}, {2, 0}};
    const beryl_value x = beryl_graph_input(g, "x", BERYL_TYPE_F32, 2, rows),
                      ids = beryl_graph_input(g, "ids", BERYL_TYPE_I32, 1, rows);
    const beryl_value two = beryl_graph_index_select(g, x, ids, 0);
    beryl_value y = beryl_graph_index_add(g, x, ids, two, 0), count = 0;
    const beryl_value hot = beryl_graph_one_hot(g, ids, 2),
                      wide = beryl_graph_cast(g, hot, BERYL_TYPE_I32, false);
    y = beryl_graph_scatter_add(g, y, wide, beryl_graph_gather(g, y, wide, 0), 0);
    y = beryl_graph_scatter(g, y, wide, two, 1);
    y = beryl_graph_masked_fill(g, y, hot, 9);
    const beryl_value list = beryl_graph_nonzero(g, hot, &count);
    beryl_graph_output(g, y, "y");
    beryl_graph_output(g, list, "list");
    beryl_graph_output(g, count, "count");
    beryl_status status;
    while ((status = beryl_graph_compile(g, &error)) == BERYL_PENDING) continue;
    const float numbers[] = {1, 2, 3, 4, 5, 6}, want[] = {3, 9, 0, 16, 9, 1};
    const int32_t indices[] = {1, -1, 0};
    float got[6] = {0};
    int32_t places[12] = {0}, n = 0;
    if (status == BERYL_OK) status = beryl_graph_set(g, x, numbers, sizeof numbers, &error);
    if (status == BERYL_OK) status = beryl_graph_set(g, ids, indices, sizeof indices, &error);
    if (status == BERYL_OK) status = beryl_graph_run(g, NULL, 0, &error);
    if (status == BERYL_OK) status = beryl_graph_read(g, y, got, sizeof got, &error);
    if (status == BERYL_OK) status = beryl_graph_read(g, list, places, sizeof places, &error);
    if (status == BERYL_OK) status = beryl_graph_read(g, count, &n, sizeof n, &error);
    if (status != BERYL_OK) test_fail(t, __FILE__, __LINE__, "%s", error.message);
    for (uint32_t i = 0; i < 6; i++) CHECK_NEAR(t, (double)got[i], (double)want[i], 0);
    CHECK_INT(t, n, 2);
    CHECK(t, !memcmp(places, (int32_t[]){0, 1, 2, 0, -1, -1}, 6 * sizeof *places));
    beryl_graph_close(g);
}

/* ---- on devices ------------------------------------------------------------------------------ */

typedef enum kind { GATHER, SELECT, SCATTER, ADD, ADD_ROWS, HOT, PLACES, FILL, KINDS } kind;

/* Of dimensions 0 is the extent, 1000 + n is n elements that are every other one of 2 n. */
typedef struct problem {
    const char *name;
    kind kind;
    uint32_t axis, x_rank, x_dim[4], ids_rank, ids_dim[4];
    enum { ALL, SMALL = 1, WIDE = 2, LARGE = 4 } facts; /* WIDE: ids are I64 */
} problem;

/* clang-format off */
static const problem problems[] = {
    {"last-axis", GATHER, 1, 2, {0, 37}, 2, {0, 50}, SMALL},
    {"first-axis", GATHER, 0, 2, {0, 9}, 2, {61, 9}, SMALL},
    {"one", GATHER, 0, 1, {1}, 1, {1}, SMALL},
    {"middle", GATHER, 1, 3, {5, 23, 7}, 3, {5, 0, 7}, SMALL | WIDE},
    {"shorter", GATHER, 0, 3, {6, 10, 9}, 3, {0, 3, 8}, SMALL},
    {"every-other", GATHER, 1, 2, {11, 1013}, 2, {11, 1030}, SMALL},
    {"rows", SELECT, 0, 2, {53, 64}, 1, {0}, SMALL},
    {"rows-of-a-run", SELECT, 0, 2, {0, 6}, 2, {3, 5}, SMALL},
    {"columns", SELECT, 2, 3, {0, 4, 31}, 2, {3, 17}, SMALL},
    {"near", GATHER, 1, 2, {257, 260}, 2, {257, 270}, SMALL},
    {"strips", GATHER, 0, 2, {16400, 128}, 2, {513, 128}, LARGE},
    {"several-a-lane", GATHER, 1, 2, {131, 500}, 2, {131, 503}, SMALL},
    {"several-vectors-a-lane", SELECT, 0, 2, {9, 1028}, 1, {259}, SMALL},
    {"many", SELECT, 1, 2, {7, 2200}, 1, {620000}, LARGE},
    {"put", SCATTER, 0, 1, {300}, 1, {2003}, SMALL},
    {"put-columns", SCATTER, 1, 2, {0, 41}, 2, {0, 83}, SMALL},
    {"put-few", SCATTER, 0, 2, {0, 5}, 2, {3, 5}, SMALL | WIDE},
    {"put-every-other", SCATTER, 0, 2, {1013, 1006}, 2, {1040, 1006}, SMALL},
    {"add", ADD, 0, 1, {300}, 1, {5003}, SMALL},
    {"add-to-one", ADD, 0, 1, {1}, 1, {1500}, SMALL},
    {"add-columns", ADD, 1, 2, {0, 41}, 2, {0, 83}, SMALL},
    {"add-middle", ADD, 1, 3, {4, 0, 6}, 3, {4, 90, 5}, SMALL | WIDE},
    {"add-every-other", ADD, 1, 2, {1013, 1026}, 2, {1013, 1040}, SMALL},
    {"add-rows", ADD_ROWS, 0, 2, {57, 24}, 1, {0}, SMALL},
    {"add-rows-of-a-run", ADD_ROWS, 0, 3, {0, 3, 5}, 1, {200}, SMALL},
    {"add-axis", ADD_ROWS, 1, 3, {0, 29, 6}, 1, {301}, SMALL},
    {"add-large", ADD, 0, 1, {70001}, 1, {1300003}, LARGE},
    {"hot", HOT, 0, 1, {33}, 2, {0, 3}, SMALL},
    {"places", PLACES, 0, 3, {0, 7, 5}, 0, {0}, SMALL},
    {"places-of-one", PLACES, 0, 1, {1}, 0, {0}, SMALL},
    {"places-every-other", PLACES, 0, 2, {1019, 1050}, 0, {0}, SMALL},
    {"fill", FILL, 0, 2, {0, 37}, 2, {0, 37}, SMALL},
};
/* clang-format on */
enum { PROBLEMS = sizeof problems / sizeof *problems };

static const base_type types[] = {TYPE_F32, TYPE_F16, TYPE_BF16, TYPE_F64, TYPE_I32, TYPE_U8,
                                  TYPE_I8,  TYPE_I16, TYPE_U16,  TYPE_U32, TYPE_I64, TYPE_BOOL};
enum { TYPES = sizeof types / sizeof *types };

typedef struct what {
    const problem *p;
    base_type type;
} what;

static graph_value input_of(typed_side *s, base_type type, uint32_t rank, const uint32_t *dims) {
    graph_dim d[4] = {{0, 0}};
    for (uint32_t i = 0; i < rank; i++)
        d[i] = !dims[i]                           ? (graph_dim){ROWS, 1}
               : dims[i] > 1000 && dims[i] < 1100 ? (graph_dim){2 * (dims[i] - 1000), 0}
                                                  : (graph_dim){dims[i], 0};
    graph_value v = typed_input(s, type, rank, d);
    for (uint32_t i = 0; i < rank; i++)
        if (dims[i] > 1000 && dims[i] < 1100)
            v = graph_narrow(s->g, graph_flip(s->g, v, i), i, 1, dims[i] - 1000, 2);
    return v;
}

/* From -1 to size, of any bytes. */
static graph_value indices(typed_side *s, const problem *p, uint32_t size) {
    graph *g = s->g;
    graph_value v = input_of(s, size > 250 ? TYPE_U16 : TYPE_U8, p->ids_rank, p->ids_dim);
    v = graph_scale(g, graph_cast(g, v, TYPE_F32, false),
                    (float)(size + 2) / (size > 250 ? 65536 : 256));
    v = graph_add_scalar(g, graph_floor(g, v), -1);
    return graph_cast(g, v, p->facts & WIDE ? TYPE_I64 : TYPE_I32, false);
}

static void build(typed_side *s, const void *user) {
    const what *w = user;
    const problem *p = w->p;
    graph *g = s->g;
    const graph_value x = p->kind == HOT ? 0 : input_of(s, w->type, p->x_rank, p->x_dim);
    graph_value y = 0, ids = 0, u = 0, count = 0;
    const uint32_t size = p->kind == HOT ? p->x_dim[0] : graph_tensor_at(g, x)->dim[p->axis].size;
    uint32_t dims[4];
    memcpy(dims, p->kind == ADD_ROWS ? p->x_dim : p->ids_dim, sizeof dims);
    if (p->kind == ADD_ROWS) dims[p->axis] = p->ids_dim[0];
    if (p->kind != PLACES && p->kind != FILL) ids = indices(s, p, size);
    if (p->kind >= SCATTER && p->kind <= ADD_ROWS) u = input_of(s, w->type, p->x_rank, dims);
    if (p->kind == GATHER) y = graph_gather(g, x, ids, p->axis);
    if (p->kind == SELECT) y = graph_index_select(g, x, ids, p->axis);
    if (p->kind == SCATTER) y = graph_scatter(g, x, ids, u, p->axis);
    if (p->kind == ADD) y = graph_scatter_add(g, x, ids, u, p->axis);
    if (p->kind == ADD_ROWS) y = graph_index_add(g, x, ids, u, p->axis);
    if (p->kind == HOT) y = graph_one_hot(g, ids, p->x_dim[0]);
    if (p->kind == PLACES) y = graph_nonzero(g, x, &count);
    if (p->kind == FILL)
        y = graph_masked_fill(g, x, input_of(s, TYPE_BOOL, p->ids_rank, p->ids_dim), 3);
    typed_output(s, y && graph_tensor_at(g, y)->base ? graph_copy(g, y) : y);
    if (count) typed_output(s, graph_copy(g, count));
}

static void run_on(test *t, base_heap *heap, device *d, const what *w, size_t number) {
    char name[80];
    const bool adds = w->p->kind == ADD || w->p->kind == ADD_ROWS;
    if ((w->type == TYPE_F64 && !device_caps_of(d)->f64) || (w->type == TYPE_BOOL && adds)) return;
    snprintf(name, sizeof name, "%s of %s", w->p->name, base_type_name(w->type));
    typed_run(t, heap, d,
              &(typed_problem){.name = name,
                               .build = build,
                               .what = w,
                               .rows = ROWS,
                               .fewer = number % 3 ? FEWER : 0,
                               .fill = adds ? TYPED_UNIT : TYPED_ODD,
                               .seed = number,
                               /* up to 5,000 terms below 1, in F32, in another order */
                               .within = adds ? 3e-4 : 0,
                               .relative = adds ? 4e-6 : 0});
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
        const bool large = p->facts & LARGE;
        if (!test_form_draws(form, i, number, !large) || (large && (interprets || form->brief)) ||
            (form->stand_in && i) || !test_case(t, "index/%s/%s", form->name, p->name))
            continue;
        if (status == BERYL_NO_DEVICE) test_skip(t, "%s", error.message);
        else if (status != BERYL_OK) test_fail(t, __FILE__, __LINE__, "%s", error.message);
        for (uint64_t round = 0; status == BERYL_OK && test_form_round(t, form, d, &round);)
            for (size_t k = 0; k < (large ? 1 : TYPES) && !test_failed(t); k++)
                if (large || test_drawn(k + i, number + (size_t)round, form->brief ? 6 : 3))
                    run_on(t, &heap, d, &(what){p, types[k]}, i + k + number + (size_t)round);
    }
    test_form_close(d);
    if (status == BERYL_OK && test_case(t, "index/%s/gives-everything-back", form->name))
        CHECK_INT(t, heap.bytes, 0);
}

void test_index(test *t);
void test_index(test *t) {
    base_heap heap;
    base_heap_init(&heap, NULL);
    for (size_t i = 0; i < sizeof meanings / sizeof *meanings; i++)
        if (test_case(t, "index/%s", meanings[i].name)) means(t, &heap, &meanings[i]);
    if (test_case(t, "index/refuses")) refuses(t, &heap);
    if (test_case(t, "index/calls")) calls(t);
    if (test_case(t, "index/gives-everything-back")) CHECK_INT(t, heap.bytes, 0);
    for (size_t i = 0; i < test_form_count(); i++) run_form(t, &test_forms[i], i);
}
