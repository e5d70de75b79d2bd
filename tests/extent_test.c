/* extent_test.c - sizes of a run: expressions and their one form, what is refused, which reshapes
 * are the same elements in every run, and plans of runs with nothing in them. Numbers on devices
 * are compared in graph_fuzz/kept. */
#include "rig.h"
#include "test.h"

#include "base/thread.h"
#include "device/dummy/dummy.h"
#include "graph/extent.h"
#include "graph/text.h"
#include "plan/exec.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define GIVEN "extent n 6\nextent m 6\nextent k 4\n"

typedef struct lab {
    base_heap heap;
    graph_store store;
    graph *g;
    beryl_error error;
} lab;

static beryl_status lab_open(lab *l, device *d, const char *text) {
    uint64_t file_bytes;
    *l = (lab){0};
    base_heap_init(&l->heap, NULL);
    store_init(&l->store, &l->heap, d, NULL, 0, NULL);
    l->g = graph_open(&l->heap);
    return graph_text_parse(text, strlen(text), l->g, &l->store, &file_bytes, &l->error);
}

static void lab_close(test *t, lab *l) {
    graph_close(l->g);
    store_fini(&l->store);
    CHECK_INT(t, l->heap.bytes, 0);
}

/* ---- one form -------------------------------------------------------------------------------- */

static const struct {
    const char *said, *printed; /* NULL: as it was said */
    uint32_t bound;
} forms[] = {
    {"n", NULL, 6},
    {"7", NULL, 7},
    {"n+m", NULL, 12},
    {"m+n", "n+m", 12},
    {"n+n", "2*n", 12},
    {"1*n+0*m", "n", 6},
    {"(n+m)+k", "n+m+k", 16},
    {"k+(m+n)", "n+m+k", 16},
    {"3+n+4", "n+7", 13},
    {"2*(n+1)", "2*n+2", 14},
    {"n*(m+k)*2", "2*n*m+2*n*k", 120},
    {"m*n*n", "n*n*m", 216},
    {"ceil(n/2)", NULL, 3},
    {"ceil(n/1)", "n", 6},
    {"ceil(5/2)", "3", 3},
    {"ceil(6*n/3)", "2*n", 12},
    {"ceil(2*n/4)", "ceil(n/2)", 3},
    {"ceil(5*n/2)", "2*n+ceil(n/2)", 15},
    {"ceil((2*n+1)/2)", "n+1", 7},
    {"ceil((n+2)/2)", "ceil(n/2)+1", 4},
    {"ceil((n+1)/2)", NULL, 4},
    {"ceil(ceil(n/2)/2)", "ceil(n/4)", 2},
    {"ceil(ceil(ceil(n/2)/3)/4)", "ceil(n/24)", 1},
    {"ceil((ceil(n/2)+1)/2)", "ceil((n+2)/4)", 2},
    {"ceil((ceil(n/2)+m)/3)", "ceil((n+2*m)/6)", 3},
    {"ceil((2*ceil(n/2)+1)/3)", NULL, 3},
    {"ceil(n/3)+ceil(m/2)", "ceil(m/2)+ceil(n/3)", 5},
    {"ceil(ceil(n/65536)/65537)", NULL, 1}, /* no product of 32 bits */
};

/* The printer's text is read as the same again, whatever was made before. */
static void check_form(test *t, size_t i) {
    static const char *const before[] = {"", "%1 = input F32 [ceil(m/2) ceil(n/2) k+m] \"x\"\n"};
    const char *want = forms[i].printed ? forms[i].printed : forms[i].said;
    char text[400], printed[400];
    for (int b = 0; b < 2; b++) {
        lab l;
        base_text out;
        snprintf(text, sizeof text, GIVEN "%s%%2 = input F32 [%s] \"x\"\n", before[b],
                 forms[i].said);
        snprintf(printed, sizeof printed, "[%s]", want);
        CHECK_INT(t, lab_open(&l, NULL, text), BERYL_OK);
        base_text_init(&out, &l.heap);
        CHECK_INT(t, graph_text_print(l.g, &l.store, &out, &l.error), BERYL_OK);
        CHECK(t, out.data && strstr(out.data, printed));
        const graph_tensor *x = graph_tensor_at(l.g, (graph_value)b + 1);
        CHECK_INT(t, x->dim[0].size, forms[i].bound);
        if (x->dim[0].extent) CHECK_TEXT(t, l.g->extents[x->dim[0].extent].name, want);
        lab again;
        base_text second;
        CHECK_INT(t, lab_open(&again, NULL, out.data ? out.data : ""), BERYL_OK);
        base_text_init(&second, &again.heap);
        CHECK_INT(t, graph_text_print(again.g, &again.store, &second, NULL), BERYL_OK);
        CHECK_TEXT(t, second.data, out.data);
        base_text_fini(&second);
        lab_close(t, &again);
        base_text_fini(&out);
        lab_close(t, &l);
        if (!test_failed(t)) continue;
        test_fail(t, __FILE__, __LINE__, "%s", forms[i].said);
        return;
    }
}

/* What an expression is, by its parts alone. */
typedef struct made {
    graph_dim dim;
    int kind; /* 0: an extent, 1: a constant, 2: sum, 3: product, 4: quotient */
    uint32_t a, b;
} made;

static uint64_t value_of(const made *all, uint32_t i, const uint32_t *given) {
    const made *x = &all[i];
    if (x->kind == 0) return given[x->a];
    if (x->kind == 1) return x->a;
    const uint64_t a = value_of(all, x->a, given);
    if (x->kind == 4) return (a + x->b - 1) / x->b;
    const uint64_t b = value_of(all, x->b, given);
    return x->kind == 2 ? a + b : a * b;
}

enum { EXPRESSIONS = 14, BOUND = 4 };

/* Random expressions over three extents, at every value they may have. */
static void check_values(test *t, uint64_t seed) {
    base_random random = {seed};
    made all[EXPRESSIONS];
    lab l;
    uint32_t values[GRAPH_EXTENT_MAX + 1];
    lab_open(&l, NULL, "extent a 4\nextent b 4\nextent c 4\n");
    for (uint32_t i = 0; i < EXPRESSIONS; i++) {
        made *x = &all[i];
        *x = (made){.kind = i < 3 ? 0 : i == 3 ? 1 : 2 + (int)(base_random_next(&random) % 3)};
        x->a = i < 3    ? i + 1
               : i == 3 ? 1 + (uint32_t)(base_random_next(&random) % 5)
                        : (uint32_t)(base_random_next(&random) % i);
        x->b = x->kind == 4 ? 1 + (uint32_t)(base_random_next(&random) % 6)
                            : (uint32_t)(base_random_next(&random) % (i ? i : 1));
        if (i < 3) x->dim = (graph_dim){BOUND, (uint8_t)(i + 1)};
        else if (i == 3) x->dim = (graph_dim){x->a, 0};
        else if (x->kind == 2) x->dim = graph_dim_sum(l.g, all[x->a].dim, all[x->b].dim);
        else if (x->kind == 3) x->dim = graph_dim_product(l.g, all[x->a].dim, all[x->b].dim);
        else x->dim = graph_dim_quotient(l.g, all[x->a].dim, x->b);
        if (graph_status(l.g, NULL) != BERYL_OK) { /* too long: another one */
            l.g->error = (beryl_error){0};
            *x = all[0];
        }
    }
    for (uint32_t at = 0; at < (BOUND + 1) * (BOUND + 1) * (BOUND + 1); at++) {
        const uint32_t given[] = {0, at % (BOUND + 1), at / (BOUND + 1) % (BOUND + 1),
                                  at / (BOUND + 1) / (BOUND + 1)};
        CHECK_INT(t, graph_extent_values(l.g, given, values, NULL), BERYL_OK);
        for (uint32_t i = 0; i < EXPRESSIONS; i++) {
            const uint64_t want = value_of(all, i, given);
            if (graph_dim_value(all[i].dim, values) != want || want > all[i].dim.size)
                test_fail(t, __FILE__, __LINE__, "seed %llu: %s at %u %u %u is %u of %u, not %llu",
                          (unsigned long long)seed, l.g->extents[all[i].dim.extent].name, given[1],
                          given[2], given[3], graph_dim_value(all[i].dim, values), all[i].dim.size,
                          (unsigned long long)want);
        }
        if (test_failed(t)) break;
    }
    lab_close(t, &l);
}

/* ---- what is refused ------------------------------------------------------------------------- */

static const char *const refused[] = {
    "q",
    "n+",
    "+n",
    "n+*m",
    "n m+",
    "2*",
    "n-1",
    "n/2",
    "(n",
    "n)",
    "()",
    "ceil",
    "ceil(n)",
    "ceil(n/)",
    "ceil(n/0)",
    "ceil(n/m)",
    "ceil(/2)",
    "ceil(n/2",
    "ceil(n/2)3",
    "0",
    "0*n",
    "ceil(0/2)",
    "4294967296",
    "4294967295*n",
    "4294967295+n",
    "65536*65536",
    "715827883*n", /* 2^32 + 2 at the bound */
    "ceil(4294967294*n/4294967295)",
    "ceil(1000000007*n*m*k/1000000009)",
    "65536*n*65536*m",
    "n*n*n*n*n",
    "n+m+k+n*m+n*k+m*k+n*m*k",
};

static void check_refused(test *t) {
    char text[500];
    for (size_t i = 0; i < sizeof refused / sizeof *refused; i++) {
        lab l;
        snprintf(text, sizeof text, GIVEN "%%1 = input F32 [%s] \"x\"\n", refused[i]);
        const beryl_status status = lab_open(&l, NULL, text);
        if (status != BERYL_BAD_INPUT || !l.error.message[0] || l.error.at > strlen(text))
            test_fail(t, __FILE__, __LINE__, "\"%s\": %d %s", refused[i], (int)status,
                      l.error.message);
        lab_close(t, &l);
    }
    char *deep = calloc(1, 1 << 20); /* brackets without an end, and with one */
    for (int i = 0; deep && i < 2; i++) {
        lab l;
        size_t n = (size_t)sprintf(deep, GIVEN "%%1 = input F32 [");
        memset(deep + n, '(', 400000), n += 400000;
        if (i) deep[n++] = 'n', memset(deep + n, ')', 400000), n += 400000;
        sprintf(deep + n, "] \"x\"");
        CHECK_INT(t, lab_open(&l, NULL, deep), BERYL_BAD_INPUT);
        lab_close(t, &l);
    }
    free(deep);
}

static void check_misuse(test *t) {
    lab l;
    const graph_dim n = {6, 1}, m = {6, 2}, unknown = {6, 9}, big = {UINT32_MAX, 0};
    const struct {
        graph_dim got;
        beryl_status status;
    } none = {{0, 0}, BERYL_OK};
    for (int i = 0; i < 7; i++) {
        lab_open(&l, NULL, GIVEN);
        graph_dim d = none.got;
        if (i == 0) d = graph_dim_sum(l.g, n, unknown);
        if (i == 1) d = graph_dim_product(l.g, unknown, n);
        if (i == 2) d = graph_dim_quotient(l.g, unknown, 2);
        if (i == 3) d = graph_dim_quotient(l.g, n, 0);
        if (i == 4) d = graph_dim_product(l.g, n, (graph_dim){0, 0});
        if (i == 5) d = graph_dim_sum(l.g, n, big);
        if (i == 6) d = graph_dim_product(l.g, big, big);
        CHECK(t, !d.size && !d.extent);
        CHECK_INT(t, graph_status(l.g, &l.error), i < 5 ? BERYL_MISUSE : BERYL_UNSUPPORTED);
        CHECK(t, !graph_dim_sum(l.g, n, m).size); /* the error sticks */
        lab_close(t, &l);
    }
    lab_open(&l, NULL, "extent n 2"); /* as many as there may be, and one more */
    graph_dim d = {2, 1};
    for (uint32_t i = 1; i < GRAPH_EXTENT_MAX; i++) d = graph_dim_sum(l.g, d, (graph_dim){1, 0});
    CHECK_INT(t, graph_status(l.g, NULL), BERYL_OK);
    CHECK_INT(t, d.size, 1 + GRAPH_EXTENT_MAX);
    CHECK_INT(t, graph_dim_sum(l.g, (graph_dim){2, 1}, (graph_dim){3, 0}).extent, 4); /* is there */
    CHECK(t, !graph_dim_sum(l.g, d, (graph_dim){1, 0}).size);
    CHECK_INT(t, graph_status(l.g, NULL), BERYL_UNSUPPORTED);
    lab_close(t, &l);
    lab_open(&l, NULL, "extent n 2"); /* quotients of quotients, each twice in the next */
    d = (graph_dim){2, 1};
    for (uint32_t i = 0; i < 25 && d.size; i++) {
        const graph_dim some = graph_dim_product(l.g, d, (graph_dim){2, 0});
        d = graph_dim_quotient(l.g, graph_dim_sum(l.g, graph_dim_product(l.g, d, d), some), 7);
    }
    CHECK_INT(t, graph_status(l.g, NULL), BERYL_UNSUPPORTED);
    CHECK(t, l.heap.bytes < 1 << 20);
    lab_close(t, &l);
}

/* Names that are no words, or not the first of their kind. */
static void check_names(test *t) {
    lab l, again;
    base_text out;
    lab_open(&l, NULL, "");
    const graph_dim a = {3, graph_extent_add(l.g, "a b", 3)},
                    b = {3, graph_extent_add(l.g, "n", 3)}, c = {3, graph_extent_add(l.g, "n", 3)};
    const graph_dim sum = graph_dim_sum(l.g, a, graph_dim_product(l.g, b, c));
    graph_input(l.g, "x", TYPE_F32, 1, &sum);
    CHECK_TEXT(t, l.g->extents[sum.extent].name, "extent_1+n*extent_3");
    base_text_init(&out, &l.heap);
    CHECK_INT(t, graph_text_print(l.g, &l.store, &out, NULL), BERYL_OK);
    CHECK_INT(t, lab_open(&again, NULL, out.data), BERYL_OK);
    lab_close(t, &again);
    base_text_fini(&out);
    lab_close(t, &l);
}

static void check_bounds(test *t) {
    lab l;
    uint32_t values[GRAPH_EXTENT_MAX + 1];
    lab_open(&l, NULL, GIVEN "%1 = input F32 [n+m] \"x\"\n");
    CHECK_INT(t, graph_extent_values(l.g, (uint32_t[]){0, 6, 7, 0}, values, &l.error),
              BERYL_MISUSE);
    CHECK(t, strstr(l.error.message, "'m' is 7, its bound 6") != NULL);
    /* a value given for a computed one is not read */
    CHECK_INT(t, graph_extent_values(l.g, (uint32_t[]){0, 6, 5, 4, 99}, values, NULL), BERYL_OK);
    CHECK_INT(t, values[4], 11);
    lab_close(t, &l);
}

/* ---- reshape --------------------------------------------------------------------------------- */

static const struct {
    const char *from, *to;
    bool good;
} reshapes[] = {
    {"n 3 8", "3*n 8", true},
    {"3*n 8", "n 3 8", true},
    {"n 24", "n 3 8", true},
    {"n 3 8", "24*n", true},
    {"2 n 4", "2 4*n", true},
    {"n 1 8", "n 8", true},
    {"1 n", "n 1", true},
    {"n m", "n m 1", true},
    {"n m", "1 n m", true},
    {"n m 4", "n 4*m", true},
    {"2*ceil(n/2) 4", "ceil(n/2) 8", true},
    {"n*m 4", "4*n*m", true},
    {"one 3", "3*one", true},
    {"3*one", "one 3", true},
    {"2 one 3", "2 one 3", true},
    {"one", "1 one 1", true},
    {"one 1 one", "one one", true},
    {"one n", "one 1 n", true},
    {"n m", "n*m", false},
    {"n*m", "n m", false},
    {"n m", "m n", false}, /* of one bound */
    {"n 3", "3 n", false},
    {"n 8", "48", false},
    {"48", "n 8", false},
    {"n", "m", false},
    {"one", "1", false},
    {"n+m", "12", false},
    {"2*n", "n+m", false},
};

static void check_reshapes(test *t) {
    char text[300];
    for (size_t i = 0; i < sizeof reshapes / sizeof *reshapes; i++) {
        lab l;
        snprintf(text, sizeof text,
                 GIVEN "extent one 1\n%%1 = input F32 [%s] \"x\"\n%%2 = reshape %%1 [%s]\n",
                 reshapes[i].from, reshapes[i].to);
        if (lab_open(&l, NULL, text) != (reshapes[i].good ? BERYL_OK : BERYL_BAD_INPUT))
            test_fail(t, __FILE__, __LINE__, "[%s] to [%s]: %s", reshapes[i].from, reshapes[i].to,
                      l.error.message);
        lab_close(t, &l);
    }
    lab l; /* what may be nothing is no axis of 1 */
    CHECK_INT(t, lab_open(&l, NULL, "extent n 1\n%1 = input F32 [n 3] \"x\"\n%2 = squeeze %1 0\n"),
              BERYL_BAD_INPUT);
    lab_close(t, &l);
}

/* ---- plans ----------------------------------------------------------------------------------- */

static const char plan[] =
    "extent n 4\nextent m 3\n"
    "%1 = input F32 [n 64] \"x\"\n%2 = rms_norm %1 0\n%3 = gelu_tanh %2\n"
    "%4 = input F32 [n+m 40] \"y\"\n%5 = softmax %4\n%6 = input F32 [5 n*m] \"z\"\n"
    "%7 = argmax %6\n%8 = softmax %6\n"
    "output %3 \"a\"\noutput %5 \"b\"\noutput %7 \"c\"\noutput %8 \"d\"\n";

/* One run in so many parts; gives its dispatches. */
static uint32_t run_parts(test *t, device *d, graph_exec *e, const uint32_t *extents,
                          uint32_t parts, const graph_value *fetch) {
    graph_part part = {0};
    device_ticket ticket = 0;
    uint32_t n = 0, steps = 0;
    CHECK_INT(t, graph_exec_begin(e, extents, fetch, 4, NULL), BERYL_OK);
    for (int i = 0; i < 20 && !part.last && !test_failed(t); i++) {
        size_t n_command;
        CHECK_INT(t, graph_exec_continue(e, parts, &part, &ticket, NULL), BERYL_OK);
        const device_command *c = device_dummy_commands(d, &n_command);
        CHECK(t, n_command > 0);
        for (size_t k = 0; k < n_command; k++) {
            const uint32_t *groups = c[k].dispatch.groups;
            n += c[k].kind == DEVICE_DISPATCH;
            CHECK(t, c[k].kind != DEVICE_DISPATCH || (groups[0] && groups[1] && groups[2]));
        }
        steps += part.steps;
    }
    CHECK(t, part.last);
    graph_exec_info info;
    graph_exec_describe(e, &info);
    CHECK_INT(t, steps, info.dispatches);
    const void *data;
    for (uint32_t i = 0; i < 4; i++)
        CHECK_INT(t, graph_exec_fetched(e, ticket, i, &data, NULL), BERYL_OK);
    return n;
}

static void check_plan(test *t) {
    static const struct {
        uint32_t extents[3], dispatches;
    } runs[] = {{{0, 4, 3}, 5}, {{0, 0, 3}, 2}, {{0, 2, 0}, 4}, {{0, 0, 0}, 1}, {{0, 1, 1}, 5}};
    base_heap heap;
    device *d = NULL;
    lab l;
    graph_exec *e = NULL;
    base_heap_init(&heap, NULL);
    CHECK_INT(t, device_open(&heap, NULL, "dummy", &d, NULL), BERYL_OK);
    CHECK_INT(t, lab_open(&l, d, plan), BERYL_OK);
    CHECK_INT(t, store_layout(&l.store, 0, &l.error), BERYL_OK);
    CHECK_INT(t, store_make(&l.store, &l.error), BERYL_OK);
    CHECK_INT(t,
              graph_exec_open(l.g, &l.store, &(graph_exec_options){.unfused = true}, &e, &l.error),
              BERYL_OK);
    const graph_value fetch[] = {3, 5, 7, 8};
    for (size_t i = 0; e && i < sizeof runs / sizeof *runs; i++)
        for (uint32_t parts = 1; parts <= 16; parts *= 2)
            CHECK_INT(t, run_parts(t, d, e, runs[i].extents, parts, fetch), runs[i].dispatches);
    CHECK_INT(t, graph_exec_begin(e, (uint32_t[]){0, 5, 0}, fetch, 4, NULL), BERYL_MISUSE);
    graph_exec_close(e);
    lab_close(t, &l);
    device_close(d);
    CHECK_INT(t, heap.bytes, 0);
}

void test_extent(test *t) {
    if (test_case(t, "extent/one-form"))
        for (size_t i = 0; i < sizeof forms / sizeof *forms; i++) check_form(t, i);
    if (test_case(t, "extent/values"))
        for (uint64_t seed = 1; seed <= 200 && !test_failed(t); seed++) check_values(t, seed);
    if (test_case(t, "extent/refused")) check_refused(t);
    if (test_case(t, "extent/misuse")) check_misuse(t);
    if (test_case(t, "extent/names")) check_names(t);
    if (test_case(t, "extent/bounds")) check_bounds(t);
    if (test_case(t, "extent/reshape")) check_reshapes(t);
    if (test_case(t, "extent/nothing-is-not-dispatched")) check_plan(t);
}
