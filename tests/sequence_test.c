/* sequence_test.c - attention without a cache, along sequences and near by, and rotation by
 * position. On the reference functions against plain loops that are written here; on every device
 * against the reference functions, for all types. */
#include "forms.h"
#include "typed.h"

#include "beryl_graph.h"
#include "graph/reference.h"

#include <math.h>
#include <stdio.h>
#include <string.h>

enum { ROWS = 37, FEWER = 5, IN_MAX = 6 };

typedef enum kind { SDPA, LOCAL, ROTATE } kind;
typedef enum mask_kind { NO_MASK, SEEN, ADDED } mask_kind;

typedef struct problem {
    const char *name;
    kind kind;
    uint32_t batch, heads, of, n, m, d, e; /* n, m: 0: the extent */
    graph_sdpa how;                        /* of LOCAL: window, scale and cap */
    mask_kind mask;
    bool turned; /* SDPA: [batch, sequence, head, dim]; LOCAL: with relative positions */
    bool pairs;
    uint32_t parts; /* ROTATE: of `e` angles each */
    bool brief;
} problem;

#define NONE \
    { 0, 0, false, 0, 0 }

static const problem problems[] = {
    {"sdpa", SDPA, 2, 3, 3, 0, 0, 8, 8, NONE, NO_MASK, false, false, 0, true},
    {"sdpa-causal", SDPA, 1, 2, 2, 0, 0, 5, 7, {.causal = true}, NO_MASK, false, false, 0, false},
    {"sdpa-grouped",
     SDPA,
     2,
     6,
     2,
     0,
     19,
     8,
     8,
     {.scale = 1, .causal = true, .first = 3},
     NO_MASK,
     false,
     false,
     0,
     true},
    {"sdpa-window",
     SDPA,
     1,
     4,
     1,
     23,
     0,
     16,
     4,
     {.causal = true, .window = 4, .first = -2, .cap = 2},
     NO_MASK,
     true,
     false,
     0,
     false},
    {"sdpa-window-of-what-follows",
     SDPA,
     1,
     2,
     2,
     9,
     12,
     3,
     3,
     {.window = 3},
     NO_MASK,
     false,
     false,
     0,
     false},
    {"sdpa-seen", SDPA, 2, 4, 2, 0, 21, 72, 72, {.causal = true}, SEEN, true, false, 0, true},
    {"sdpa-added", SDPA, 3, 2, 2, 11, 0, 9, 10, {.cap = 1.5f}, ADDED, false, false, 0, false},
    {"sdpa-one", SDPA, 1, 1, 1, 1, 1, 1, 1, {.scale = 0.5f}, ADDED, false, false, 0, false},
    {"sdpa-window-of-rows",
     SDPA,
     2,
     4,
     2,
     0,
     41,
     16,
     16,
     {.scale = 0.5f, .causal = true, .window = 5, .first = -2},
     NO_MASK,
     true,
     false,
     0,
     true},
    {"sdpa-all-from-a-place",
     SDPA,
     1,
     2,
     2,
     40,
     0,
     24,
     24,
     {.window = 6, .first = 3},
     NO_MASK,
     false,
     false,
     0,
     true},
    {"sdpa-wide", SDPA, 1, 2, 1, 0, 0, 512, 512, {.causal = true}, NO_MASK, true, false, 0, false},
    {"local",
     LOCAL,
     2,
     3,
     3,
     0,
     0,
     8,
     8,
     {.scale = 0.5f, .cap = 50, .window = 12},
     NO_MASK,
     true,
     false,
     0,
     true},
    {"local-of-one",
     LOCAL,
     1,
     2,
     2,
     0,
     0,
     5,
     3,
     {.scale = 1, .window = 1},
     NO_MASK,
     false,
     false,
     0,
     false},
    {"local-longer-than-all",
     LOCAL,
     1,
     1,
     1,
     7,
     7,
     4,
     6,
     {.scale = 0.25f, .window = 11},
     NO_MASK,
     true,
     false,
     0,
     false},
    {"rotate-halves", ROTATE, 2, 3, 0, 0, 0, 16, 8, NONE, NO_MASK, false, false, 1, true},
    {"rotate-pairs", ROTATE, 1, 2, 0, 0, 0, 10, 5, NONE, NO_MASK, false, true, 1, true},
    {"rotate-part", ROTATE, 1, 3, 0, 0, 0, 17, 3, NONE, NO_MASK, false, false, 1, false},
    {"rotate-pairs-part", ROTATE, 2, 1, 0, 0, 0, 13, 4, NONE, NO_MASK, true, true, 1, false},
    {"rotate-axial", ROTATE, 1, 2, 0, 0, 0, 72, 18, NONE, NO_MASK, false, false, 2, true},
    {"rotate-axial-pairs", ROTATE, 1, 2, 0, 21, 0, 26, 3, NONE, NO_MASK, true, true, 4, false},
};
enum { PROBLEMS = sizeof problems / sizeof *problems };

/* ---- building -------------------------------------------------------------------------------- */

typedef graph_value give_input(void *user, base_type type, uint32_t rank, const graph_dim *dims);

/* [batch, heads, rows, d], in memory with heads behind rows where that is said. */
static graph_value matrix(graph *g, give_input *give, void *user, base_type type, uint32_t batch,
                          uint32_t heads, graph_dim rows, uint32_t d, bool turned) {
    const graph_dim b = {batch, 0}, h = {heads, 0}, last = {d, 0};
    const graph_value v = give(
        user, type, 4, turned ? (graph_dim[]){b, rows, h, last} : (graph_dim[]){b, h, rows, last});
    return turned ? graph_permute(g, v, 4, (uint32_t[]){0, 2, 1, 3}) : v;
}

static graph_value make(graph *g, give_input *give, void *user, const problem *p, base_type type,
                        graph_dim extent) {
    const graph_dim n = p->n ? (graph_dim){p->n, 0} : extent,
                    m = p->m ? (graph_dim){p->m, 0} : extent;
    if (p->kind == ROTATE) {
        graph_value c[GRAPH_ROTATE_MAX], s[GRAPH_ROTATE_MAX];
        const graph_value x = matrix(g, give, user, type, p->batch, p->heads, n, p->d, p->turned);
        const graph_dim dims[] = {n, {p->e, 0}};
        for (uint32_t i = 0; i < p->parts; i++) { /* of two pairs at most: the rest again */
            c[i] = i < 2 ? give(user, TYPE_F32, 2, dims) : c[i - 2];
            s[i] = i < 2 ? give(user, TYPE_F32, 2, dims) : s[i - 2];
        }
        return graph_rotate(g, x, p->parts, c, s, p->pairs);
    }
    const bool turned = p->kind == SDPA && p->turned;
    const graph_value q = matrix(g, give, user, type, p->batch, p->heads, n, p->d, turned),
                      k = matrix(g, give, user, type, p->batch, p->of, m, p->d, turned),
                      v = matrix(g, give, user, type, p->batch, p->of, m, p->e, turned);
    if (p->kind == LOCAL) {
        const graph_dim dims[] = {{p->heads, 0}, {p->how.window, 0}, {p->d, 0}};
        return graph_local_attention(g, q, k, v, p->turned ? give(user, type, 3, dims) : 0,
                                     p->how.window, p->how.scale, p->how.cap);
    }
    /* SEEN: columns of each batch; ADDED: places of each head */
    const graph_dim seen[] = {{p->batch, 0}, {1, 0}, {1, 0}, m}, added[] = {{p->heads, 0}, n, m};
    const graph_value mask = p->mask == SEEN    ? give(user, TYPE_BOOL, 4, seen)
                             : p->mask == ADDED ? give(user, type, 3, added)
                                                : 0;
    return graph_attend(g, q, k, v, mask, &p->how);
}

/* ---- what they are --------------------------------------------------------------------------- */

static double number_at(uint32_t input, uint32_t i) {
    return (double)((i * 7 + input * 3 + i / 5) % 9) / 4 - 1;
}

typedef struct lab {
    graph *g;
    graph_value in[IN_MAX];
    uint32_t n_in;
} lab;

static graph_value lab_input(void *user, base_type type, uint32_t rank, const graph_dim *dims) {
    lab *l = user;
    return l->in[l->n_in++] = graph_input(l->g, "x", type, rank, dims);
}

static uint32_t index_of(const problem *p, uint32_t b, uint32_t h, uint32_t i, uint32_t c,
                         uint32_t heads, uint32_t rows, uint32_t d) {
    const bool turned = p->kind != LOCAL && p->turned;
    return turned ? ((b * rows + i) * heads + h) * d + c : ((b * heads + h) * rows + i) * d + c;
}

static double score_of(const problem *p, uint32_t n, uint32_t m, uint32_t b, uint32_t h, uint32_t i,
                       uint32_t j, bool *seen) {
    const uint32_t of = h * p->of / p->heads;
    const int32_t place = (p->kind == SDPA ? p->how.first : 0) + (int32_t)i;
    const bool causal = p->kind == LOCAL || p->how.causal;
    double sum = 0, scale = (double)p->how.scale;
    if (scale == 0) scale = 1 / sqrt((double)p->d);
    *seen = (!causal || (int32_t)j <= place) &&
            (!p->how.window || (int32_t)j > place - (int32_t)p->how.window);
    if (p->mask == SEEN) *seen = *seen && number_at(3, b * m + j) != 0;
    for (uint32_t c = 0; *seen && c < p->d; c++) {
        double key = number_at(1, index_of(p, b, of, j, c, p->of, m, p->d));
        if (p->kind == LOCAL && p->turned)
            key += number_at(3, (h * p->how.window + i - j) * p->d + c);
        sum += number_at(0, index_of(p, b, h, i, c, p->heads, n, p->d)) * key;
    }
    sum *= scale;
    if (p->how.cap != 0) sum = (double)p->how.cap * tanh(sum / (double)p->how.cap);
    return p->mask == ADDED ? sum + number_at(3, (h * n + i) * m + j) : sum;
}

static double attended(const problem *p, uint32_t n, uint32_t m, uint32_t b, uint32_t h, uint32_t i,
                       uint32_t c) {
    double most = -1e30, sum = 0, all = 0;
    bool seen;
    for (uint32_t j = 0; j < m; j++) {
        const double s = score_of(p, n, m, b, h, i, j, &seen);
        if (seen && s > most) most = s;
    }
    for (uint32_t j = 0; j < m; j++) {
        const double s = score_of(p, n, m, b, h, i, j, &seen);
        if (!seen) continue;
        const uint32_t of = h * p->of / p->heads;
        all += exp(s - most);
        sum += exp(s - most) * number_at(2, index_of(p, b, of, j, c, p->of, m, p->e));
    }
    return all == 0 ? 0 : sum / all;
}

static double rotated(const problem *p, uint32_t n, uint32_t b, uint32_t h, uint32_t i,
                      uint32_t c) {
    const uint32_t part = c / (2 * p->e), o = c % (2 * p->e);
    const double x = number_at(0, index_of(p, b, h, i, c, p->heads, n, p->d));
    if (part >= p->parts) return x;
    const bool second = p->pairs ? o % 2 : o >= p->e;
    const uint32_t apart = p->pairs ? 1 : p->e, angle = p->pairs ? o / 2 : o % p->e,
                   other = second ? c - apart : c + apart;
    const double y = number_at(0, index_of(p, b, h, i, other, p->heads, n, p->d)),
                 cosine = number_at(1 + part % 2 * 2, i * p->e + angle),
                 sine = number_at(2 + part % 2 * 2, i * p->e + angle);
    return second ? x * cosine + y * sine : x * cosine - y * sine;
}

static void means(test *t, base_heap *heap, const problem *p) {
    const uint32_t n = p->n ? p->n : ROWS, m = p->m ? p->m : ROWS,
                   last = p->kind == ROTATE ? p->d : p->e;
    lab l = {.g = graph_open(heap)};
    graph_store store;
    graph_reference *r = NULL;
    beryl_error error = {0};
    store_init(&store, heap, NULL, NULL, 0, NULL);
    const graph_value y =
        graph_copy(l.g, make(l.g, lab_input, &l, p, TYPE_F32, (graph_dim){ROWS, 0}));
    graph_output(l.g, y, "y");
    beryl_status status = graph_status(l.g, &error);
    if (status == BERYL_OK) status = graph_reference_open(l.g, &store, &r, &error);
    for (uint32_t i = 0; status == BERYL_OK && i < l.n_in; i++) {
        const graph_tensor *x = graph_tensor_at(l.g, l.in[i]);
        void *to = graph_reference_input(r, l.in[i]);
        for (uint32_t k = 0; k < graph_element_bound(x); k++) {
            if (x->type == TYPE_BOOL) ((uint8_t *)to)[k] = number_at(i, k) != 0;
            else ((float *)to)[k] = (float)number_at(i, k);
        }
    }
    if (status == BERYL_OK) status = graph_reference_run(r, NULL, &error);
    if (status != BERYL_OK) test_fail(t, __FILE__, __LINE__, "%s", error.message);
    const float *got = status == BERYL_OK ? graph_reference_value(r, y) : NULL;
    if (got) {
        const graph_tensor *x = graph_tensor_at(l.g, y);
        CHECK(t, x->rank == 4 && x->dim[0].size == p->batch && x->dim[1].size == p->heads &&
                     x->dim[2].size == n && x->dim[3].size == last);
    }
    for (uint32_t i = 0; got && !test_failed(t) && i < p->batch * p->heads * n * last; i++) {
        const uint32_t c = i % last, row = i / last % n, h = i / last / n % p->heads,
                       b = i / last / n / p->heads;
        CHECK_NEAR(t, (double)got[i],
                   p->kind == ROTATE ? rotated(p, n, b, h, row, c)
                                     : attended(p, n, m, b, h, row, c),
                   3e-6);
    }
    graph_reference_close(r);
    graph_close(l.g);
    store_fini(&store);
}

/* ---- on devices ------------------------------------------------------------------------------ */

typedef struct what {
    const problem *p;
    base_type type;
} what;

static graph_value side_give(void *user, base_type type, uint32_t rank, const graph_dim *dims) {
    return typed_input(user, type, rank, dims);
}

static void build(typed_side *s, const void *user) {
    const what *w = user;
    const graph_value y = make(s->g, side_give, s, w->p, w->type, (graph_dim){ROWS, 1});
    typed_output(s, graph_tensor_at(s->g, y)->base ? graph_copy(s->g, y) : y);
}

static void run_form(test *t, const test_form *form, size_t number) {
    static const base_type types[] = {TYPE_F32, TYPE_F16, TYPE_BF16};
    base_heap heap;
    device *d = NULL;
    beryl_error error = {0};
    base_heap_init(&heap, NULL);
    const beryl_status status = test_form_open(form, &heap, &d, &error);
    for (size_t i = 0; i < PROBLEMS; i++) {
        const problem *p = &problems[i];
        const bool interprets = !strcmp(form->device, "interpreter");
        if (!test_form_draws(form, i, number, p->brief) ||
            (form->brief && !p->brief && !interprets) || (form->stand_in && i) ||
            (interprets && p->d > 100) || !test_case(t, "sequence/%s/%s", form->name, p->name))
            continue;
        if (status == BERYL_NO_DEVICE) test_skip(t, "%s", error.message);
        else if (status != BERYL_OK) test_fail(t, __FILE__, __LINE__, "%s", error.message);
        for (uint64_t round = 0; status == BERYL_OK && test_form_round(t, form, d, &round);)
            for (size_t k = 0; k < 3 && !test_failed(t); k++) {
                char name[80];
                if (!test_drawn(k + i, number + (size_t)round, form->brief ? 3 : 2)) continue;
                const what w = {p, types[k]};
                snprintf(name, sizeof name, "%s of %s", p->name, base_type_name(types[k]));
                typed_run(t, &heap, d,
                          &(typed_problem){.name = name,
                                           .build = build,
                                           .what = &w,
                                           .rows = ROWS,
                                           .fewer = (number + i) % 3 ? FEWER : 0,
                                           .fill = TYPED_UNIT,
                                           .seed = i + number + (size_t)round,
                                           /* sums of up to 512 terms below 1, exp of them */
                                           .within = 3e-5,
                                           .relative = 4e-6});
            }
    }
    test_form_close(d);
    if (status == BERYL_OK && test_case(t, "sequence/%s/gives-everything-back", form->name))
        CHECK_INT(t, heap.bytes, 0);
}

static void refuses(test *t, base_heap *heap) {
    for (uint32_t i = 0; i < 6; i++) {
        beryl_error error = {0};
        graph *g = graph_open(heap);
        const graph_value q = graph_input(g, "q", TYPE_F32, 3,
                                          (graph_dim[]){{4, 0}, {5, 0}, {6, 0}}),
                          k = graph_input(g, "k", TYPE_F32, 3,
                                          (graph_dim[]){{3, 0}, {5, 0}, {6, 0}}),
                          m = graph_input(g, "m", TYPE_F32, 3,
                                          (graph_dim[]){{4, 0}, {5, 0}, {7, 0}}),
                          w = graph_input(g, "w", TYPE_I32, 2, (graph_dim[]){{5, 0}, {5, 0}});
        const graph_sdpa usual = {0};
        CHECK_INT(t,
                  i == 0   ? graph_attend(g, q, k, k, 0, &usual)
                  : i == 1 ? graph_attend(g, q, q, q, m, &usual)
                  : i == 2 ? graph_attend(g, q, q, q, w, &usual)
                  : i == 3 ? graph_local_attention(g, q, q, q, m, 5, 1, 0)
                  : i == 4 ? graph_rotate(g, q, 1, &m, &m, false)
                           : graph_rotate(g, w, 1, &w, &w, false),
                  0);
        CHECK_INT(t, graph_status(g, &error), BERYL_MISUSE);
        graph_close(g);
    }
}

/* Through the public calls: two rows, the first sees itself alone; turned by a quarter. */
static void public(test *t) {
    static const float in[4] = {1, 2, 3, 4}, cosine[2] = {0, 0}, sine[2] = {1, 1};
    float out[3][4];
    beryl_graph_options options = {.size = sizeof options, .device = "host"};
    beryl_graph *g = NULL;
    beryl_status status = beryl_graph_open(&options, &g, NULL);
    CHECK_INT(t, status, BERYL_OK);
    if (status != BERYL_OK) return;
    const beryl_dim rows[] = {{1, 0}, {2, 0}, {2, 0}}, angles[] = {{2, 0}, {1, 0}};
    const beryl_value x = beryl_graph_input(g, "x", BERYL_TYPE_F32, 3, rows),
                      c = beryl_graph_input(g, "c", BERYL_TYPE_F32, 2, angles),
                      s = beryl_graph_input(g, "s", BERYL_TYPE_F32, 2, angles);
    const beryl_value y[] = {
        beryl_graph_sdpa(g, x, x, x, 0, &(beryl_sdpa){.causal = true}),
        beryl_graph_local_attention(g, x, x, x, 0, 1, 1, 0),
        beryl_graph_rotate(g, x, 1, &c, &s, false),
    };
    for (int i = 0; i < 3; i++) beryl_graph_output(g, y[i], "y");
    while ((status = beryl_graph_compile(g, NULL)) == BERYL_PENDING) {}
    CHECK_INT(t, status, BERYL_OK);
    CHECK_INT(t, beryl_graph_set(g, x, in, sizeof in, NULL), BERYL_OK);
    CHECK_INT(t, beryl_graph_set(g, c, cosine, sizeof cosine, NULL), BERYL_OK);
    CHECK_INT(t, beryl_graph_set(g, s, sine, sizeof sine, NULL), BERYL_OK);
    CHECK_INT(t, beryl_graph_run(g, NULL, 0, NULL), BERYL_OK);
    CHECK_INT(t, beryl_graph_wait(g, NULL), BERYL_OK);
    for (int i = 0; i < 3; i++)
        CHECK_INT(t, beryl_graph_read(g, y[i], out[i], sizeof *out, NULL), BERYL_OK);
    for (int i = 0; i < 2; i++) {
        CHECK_NEAR(t, out[0][i], in[i], 1e-6);
        CHECK_NEAR(t, out[2][2 * i], -in[2 * i + 1], 0);
        CHECK_NEAR(t, out[2][2 * i + 1], in[2 * i], 0);
    }
    for (int i = 0; i < 4; i++) CHECK_NEAR(t, out[1][i], in[i], 1e-6);
    beryl_graph_close(g);
}

void test_sequence(test *t);
void test_sequence(test *t) {
    base_heap heap;
    base_heap_init(&heap, NULL);
    for (size_t i = 0; i < PROBLEMS; i++)
        if (test_case(t, "sequence/%s", problems[i].name)) means(t, &heap, &problems[i]);
    if (test_case(t, "sequence/refuses")) refuses(t, &heap);
    if (test_case(t, "sequence/public")) public(t);
    if (test_case(t, "sequence/labs-give-everything-back")) CHECK_INT(t, heap.bytes, 0);
    for (size_t i = 0; i < test_form_count(); i++) run_form(t, &test_forms[i], i);
}
