/* contract_test.c - sums of products: matmul with factors in any order, einsum, convolutions and
 * pooling. On the reference functions against plain loops that are written here; on every device
 * against the reference functions, for all types. */
#include "forms.h"
#include "typed.h"

#include "graph/reference.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { ROWS = 37, FEWER = 5, SHORT_ROWS = 131 };

/* ---- what they are --------------------------------------------------------------------------- */

/* Numbers of inputs: whole and small, so that sums of products are exact. */
static float number_at(uint32_t input, uint32_t i) {
    return (float)((i * 7 + input * 3 + i / 5) % 9) - 4;
}

typedef struct lab {
    graph *g;
    graph_reference *r;
    graph_store store;
    graph_value in[2], out;
} lab;

static graph_value lab_input(lab *l, uint32_t number, uint32_t rank, const uint32_t *dims) {
    graph_dim d[GRAPH_RANK_MAX] = {{0}};
    for (uint32_t i = 0; i < rank; i++) d[i].size = dims[i];
    return l->in[number] = graph_input(l->g, number ? "b" : "a", TYPE_F32, rank, d);
}

static const float *lab_run(test *t, lab *l, uint32_t n_in) {
    beryl_error error = {0};
    graph_output(l->g, l->out, "y");
    beryl_status status = graph_status(l->g, &error);
    if (status == BERYL_OK) status = graph_reference_open(l->g, &l->store, &l->r, &error);
    for (uint32_t i = 0; status == BERYL_OK && i < n_in; i++) {
        float *to = graph_reference_input(l->r, l->in[i]);
        const uint64_t n = graph_element_bound(graph_tensor_at(l->g, l->in[i]));
        for (uint32_t k = 0; k < n; k++) to[k] = number_at(i, k);
    }
    if (status == BERYL_OK) status = graph_reference_run(l->r, NULL, &error);
    if (status != BERYL_OK) test_fail(t, __FILE__, __LINE__, "%s", error.message);
    return status == BERYL_OK ? graph_reference_value(l->r, graph_base_of(l->g, l->out)) : NULL;
}

static void lab_open(lab *l, base_heap *heap) {
    *l = (lab){.g = graph_open(heap)};
    store_init(&l->store, heap, NULL, NULL, 0, NULL);
}

static void lab_close(lab *l) {
    graph_reference_close(l->r);
    graph_close(l->g);
    store_fini(&l->store);
}

static bool has_shape(test *t, const lab *l, uint32_t rank, const uint32_t *dims) {
    const graph_tensor *x = graph_tensor_at(l->g, l->out);
    bool same = x->rank == rank;
    for (uint32_t i = 0; same && i < rank; i++) same = x->dim[i].size == dims[i];
    CHECK(t, same);
    return same;
}

static void matrices(test *t, base_heap *heap) {
    enum { BATCH = 3, M = 4, N = 5, K = 6 };
    for (uint32_t form = 0; form < 4; form++) {
        const bool ta = form & 1, tb = form & 2;
        lab l;
        lab_open(&l, heap);
        const graph_value a = lab_input(&l, 0, 3,
                                        ta ? (uint32_t[]){BATCH, K, M} : (uint32_t[]){BATCH, M, K}),
                          b = lab_input(&l, 1, 2, tb ? (uint32_t[]){N, K} : (uint32_t[]){K, N});
        l.out = graph_copy(l.g, graph_matmul(l.g, a, b, ta, tb));
        const float *got = lab_run(t, &l, 2);
        for (uint32_t i = 0; got && has_shape(t, &l, 3, (uint32_t[]){BATCH, M, N}) &&
                             i < BATCH * M * N && !test_failed(t);
             i++) {
            const uint32_t batch = i / (M * N), m = i / N % M, n = i % N;
            float sum = 0;
            for (uint32_t k = 0; k < K; k++)
                sum += number_at(0, batch * M * K + (ta ? k * M + m : m * K + k)) *
                       number_at(1, tb ? n * K + k : k * N + n);
            CHECK_NEAR(t, (double)got[i], (double)sum, 0);
        }
        lab_close(&l);
    }
}

/* Vectors on either side. */
static void vectors(test *t, base_heap *heap) {
    enum { N = 5, K = 6 };
    for (uint32_t form = 0; form < 3; form++) {
        lab l;
        lab_open(&l, heap);
        const bool row = form != 1, column = form != 0;
        const graph_value a = lab_input(&l, 0, row ? 1 : 2,
                                        row ? (uint32_t[]){K} : (uint32_t[]){N, K}),
                          b = lab_input(&l, 1, column ? 1 : 2,
                                        column ? (uint32_t[]){K} : (uint32_t[]){K, N});
        l.out = graph_copy(l.g, graph_matmul(l.g, a, b, false, false));
        const float *got = lab_run(t, &l, 2);
        const bool fits = got && has_shape(t, &l, form < 2, (uint32_t[]){N});
        for (uint32_t i = 0; fits && i < (form < 2 ? N : 1); i++) {
            float sum = 0;
            for (uint32_t k = 0; k < K; k++)
                sum += number_at(0, row ? k : i * K + k) * number_at(1, column ? k : k * N + i);
            CHECK_NEAR(t, (double)got[i], (double)sum, 0);
        }
        lab_close(&l);
    }
}

/* Element `out` of what letters say, by a loop over all letters. */
static double by_letters(const char *text, const uint32_t *size, const uint32_t *at_out) {
    char names[27] = {0};
    uint32_t n = 0, at[26] = {0}, n_out = 0;
    const char *result = strstr(text, "->") + 2;
    for (const char *c = text; *c; c++)
        if (*c >= 'a' && *c <= 'z' && !strchr(names, *c)) names[n++] = *c;
    double sum = 0;
    for (n_out = 0; result[n_out]; n_out++)
        at[strchr(names, result[n_out]) - names] = at_out[n_out];
    for (;;) {
        double product = 1;
        uint32_t index = 0, input = 0;
        for (const char *c = text;; c++) {
            if (*c >= 'a' && *c <= 'z') {
                index = index * size[*c - 'a'] + at[strchr(names, *c) - names];
                continue;
            }
            product *= (double)number_at(input++, index);
            index = 0;
            if (*c == '-') break;
        }
        sum += product;
        uint32_t i = 0; /* the next place of the letters that the result has not */
        for (; i < n; i++) {
            if (strchr(result, names[i])) continue;
            if (++at[i] < size[names[i] - 'a']) break;
            at[i] = 0;
        }
        if (i == n) return sum;
    }
}

static void letters(test *t, base_heap *heap) {
    static const char *const texts[] = {"ij,jk->ik", "ij,jk->ki", "bij,bjk->bik", "bij,bkj->ikb",
                                        "i,j->ij",   "ij,ij->",   "ii->i",        "ii->",
                                        "ij->ji",    "ijk->k",    "ij,kl->ik",    "bij,j->ib",
                                        "iji,jk->k", "i,i->",     "ij,jk->jk",    "bijk,bkd->bdi"};
    uint32_t size[26];
    for (uint32_t i = 0; i < 26; i++) size[i] = 2 + i % 4;
    for (uint32_t n = 0; n < sizeof texts / sizeof *texts && !test_failed(t); n++) {
        lab l;
        lab_open(&l, heap);
        const char *c = texts[n], *result = strstr(c, "->") + 2;
        uint32_t n_in = 0, dims[GRAPH_RANK_MAX], rank = 0, at[GRAPH_RANK_MAX] = {0};
        for (;; c++) {
            if (*c >= 'a' && *c <= 'z') {
                dims[rank++] = size[*c - 'a'];
                continue;
            }
            lab_input(&l, n_in++, rank, dims);
            rank = 0;
            if (*c == '-') break;
        }
        l.out = graph_copy(l.g, graph_einsum(l.g, texts[n], n_in, l.in));
        uint64_t all = 1;
        for (rank = 0; result[rank]; rank++) all *= dims[rank] = size[result[rank] - 'a'];
        const float *got = lab_run(t, &l, n_in);
        const bool fits = got && has_shape(t, &l, rank, dims);
        for (uint32_t i = 0; fits && i < all; i++) {
            uint32_t left = i;
            for (uint32_t k = rank; k-- > 0; left /= dims[k]) at[k] = left % dims[k];
            CHECK_NEAR(t, (double)got[i], by_letters(texts[n], size, at), 0);
        }
        if (test_failed(t)) printf("    %s\n", texts[n]);
        lab_close(&l);
    }
}

typedef struct conv_shape {
    const char *name;
    uint32_t n_axis, n, c, out, groups, in[3]; /* in: 0: the run says, and n does not vary */
    graph_window w[3];
} conv_shape;

static const conv_shape convs[] = {
    {"1d", 1, 2, 3, 4, 1, {9}, {{3, 1, 1, 0, 0}}},
    {"1d-causal-dilated", 1, 1, 2, 3, 1, {11}, {{3, 1, 2, 4, 0}}},
    {"2d-3x3", 2, 2, 3, 5, 1, {6, 7}, {{3, 1, 1, 1, 1}, {3, 1, 1, 1, 1}}},
    {"2d-1x1", 2, 2, 64, 16, 1, {6, 8}, {{1, 1, 1, 0, 0}, {1, 1, 1, 0, 0}}},
    {"2d-strided-dilated", 2, 1, 2, 3, 1, {9, 12}, {{3, 2, 1, 1, 0}, {2, 3, 3, 0, 2}}},
    {"2d-groups", 2, 2, 6, 4, 2, {5, 6}, {{3, 1, 1, 1, 1}, {2, 2, 1, 0, 0}}},
    {"2d-depthwise", 2, 1, 5, 10, 5, {6, 5}, {{3, 1, 1, 1, 1}, {3, 1, 1, 1, 1}}},
    {"3d", 3, 1, 2, 3, 1, {4, 5, 4}, {{2, 1, 1, 0, 1}, {3, 2, 1, 1, 1}, {2, 1, 1, 0, 0}}},
    {"2d-of-the-run", 2, 2, 3, 4, 1, {0, 8}, {{3, 2, 1, 1, 1}, {3, 2, 1, 1, 1}}},
    {"1d-causal-of-the-run", 1, 2, 6, 6, 6, {0}, {{5, 1, 1, 4, 0}}},
    {"3d-groups", 3, 1, 4, 2, 2, {3, 4, 4}, {{2, 1, 1, 0, 0}, {2, 1, 1, 1, 0}, {2, 2, 1, 0, 0}}},
};
enum { CONVS = sizeof convs / sizeof *convs };

static uint32_t windows_along(const conv_shape *p, uint32_t i) {
    const graph_window *w = &p->w[i];
    return (p->in[i] + w->pad_before + w->pad_after - (w->size - 1) * w->dilation - 1) / w->stride +
           1;
}

/* Where place `o` of window `at` along axis i is; false: beside x. */
static bool is_inside(const conv_shape *p, uint32_t i, uint32_t at, uint32_t o, uint32_t *index) {
    const int64_t place =
        (int64_t)at * p->w[i].stride + (int64_t)o * p->w[i].dilation - p->w[i].pad_before;
    *index = *index * p->in[i] + (uint32_t)place;
    return place >= 0 && place < p->in[i];
}

/* kind 0: convolution, 1: largest, 2: mean. */
static double over_window(const conv_shape *p, int kind, uint32_t n, uint32_t channel,
                          const uint32_t *at) {
    const uint32_t each = p->c / p->groups, of = p->out / p->groups;
    uint32_t size = 1;
    double sum = kind == 1 ? -1e30 : 0;
    for (uint32_t i = 0; i < p->n_axis; i++) size *= p->w[i].size;
    for (uint32_t c = 0; c < (kind ? 1 : each); c++)
        for (uint32_t k = 0; k < size; k++) {
            uint32_t left = k, o[3] = {0},
                     index = n * p->c + (kind ? channel : channel / of * each + c);
            bool inside = true;
            for (uint32_t i = p->n_axis; i-- > 0; left /= p->w[i].size) o[i] = left % p->w[i].size;
            for (uint32_t i = 0; i < p->n_axis; i++)
                inside = is_inside(p, i, at[i], o[i], &index) && inside;
            const double x = inside ? (double)number_at(0, index) : 0;
            if (!kind) sum += x * (double)number_at(1, (channel * each + c) * size + k);
            else if (kind == 2) sum += x / size;
            else if (inside && x > sum) sum = x;
        }
    return sum;
}

static graph_value make_windows(graph *g, const conv_shape *p, int kind, graph_value x,
                                graph_value w) {
    return kind == 0   ? graph_conv(g, x, w, p->n_axis, p->w, p->groups)
           : kind == 1 ? graph_max_pool(g, x, p->n_axis, p->w)
                       : graph_avg_pool(g, x, p->n_axis, p->w);
}

static void windows(test *t, base_heap *heap, const conv_shape *p, int kind) {
    uint32_t dims[5] = {p->n, p->c}, sizes[5] = {p->out, p->c / p->groups}, left,
             out[5] = {p->n, kind ? p->c : p->out};
    uint64_t all = out[0] * out[1];
    lab l;
    lab_open(&l, heap);
    for (uint32_t i = 0; i < p->n_axis; i++) {
        dims[i + 2] = p->in[i];
        sizes[i + 2] = p->w[i].size;
        all *= out[i + 2] = windows_along(p, i);
    }
    const graph_value x = lab_input(&l, 0, p->n_axis + 2, dims),
                      w = kind ? 0 : lab_input(&l, 1, p->n_axis + 2, sizes);
    l.out = graph_copy(l.g, make_windows(l.g, p, kind, x, w));
    const float *got = lab_run(t, &l, kind ? 1 : 2);
    const bool fits = got && has_shape(t, &l, p->n_axis + 2, out);
    for (uint32_t i = 0; fits && i < all && !test_failed(t); i++) {
        uint32_t at[5] = {0};
        left = i;
        for (uint32_t k = p->n_axis + 2; k-- > 0; left /= out[k]) at[k] = left % out[k];
        CHECK_NEAR(t, (double)got[i], over_window(p, kind, at[0], at[1], at + 2),
                   kind == 2 ? 1e-6 : 0);
    }
    lab_close(&l);
}

/* ---- on devices ------------------------------------------------------------------------------ */

typedef enum problem_kind {
    USUAL,
    DEEP, /* up to 70,001 terms, each rounded in F32 to a sum of up to 30 */
    PARTS /* of some rows, then of all, one behind another */
} problem_kind;

typedef struct problem {
    const char *name;
    const char *text;             /* of einsum; NULL: a convolution */
    uint32_t rank[2], dims[2][5]; /* 0: the extent */
    bool brief, small;
    problem_kind kind;
} problem;

static const problem problems[] = {
    {"rows-by-columns", "mk,kn->mn", {2, 2}, {{0, 48}, {48, 40}}, true, true, USUAL},
    {"rows-by-rows", "mk,nk->mn", {2, 2}, {{0, 33}, {29, 33}}, false, true, USUAL},
    {"columns-by-columns", "km,kn->mn", {2, 2}, {{40, 0}, {40, 24}}, true, true, USUAL},
    {"columns-by-rows", "km,nk->mn", {2, 2}, {{17, 0}, {31, 17}}, false, true, USUAL},
    {"depth-of-the-run", "mk,kn->mn", {2, 2}, {{19, 0}, {0, 21}}, true, true, USUAL},
    {"batches", "bmk,bkn->bmn", {3, 3}, {{3, 20, 16}, {3, 16, 18}}, true, true, USUAL},
    {"batches-of-the-run", "bmk,bkn->bmn", {3, 3}, {{0, 9, 8}, {0, 8, 12}}, false, true, USUAL},
    {"a-batch-and-one", "bmk,kn->bmn", {3, 2}, {{3, 0, 10}, {10, 11}}, false, true, USUAL},
    {"heads", "bqhd,bkhd->bhqk", {4, 4}, {{2, 9, 3, 8}, {2, 0, 3, 8}}, false, true, USUAL},
    {"outer", "i,j->ij", {1, 1}, {{0}, {45}}, false, true, USUAL},
    {"dot", "i,i->", {1, 1}, {{0}, {0}}, false, true, USUAL},
    {"row-by-matrix", "k,kn->n", {1, 2}, {{0}, {0, 70}}, true, true, USUAL},
    {"matrix-by-column", "mk,k->m", {2, 1}, {{90, 0}, {0}}, false, true, USUAL},
    {"two-axes-of-depth", "mij,nij->mn", {3, 3}, {{0, 5, 6}, {14, 5, 6}}, false, true, USUAL},
    {"depth-turned", "mij,jin->mn", {3, 3}, {{0, 5, 6}, {6, 5, 14}}, true, true, USUAL},
    {"thin", "mk,nk->mn", {2, 2}, {{0, 600}, {9, 600}}, true, true, USUAL},
    {"thin-by-columns", "mk,kn->mn", {2, 2}, {{0, 640}, {640, 16}}, false, false, USUAL},
    {"thin-turned", "km,kn->mn", {2, 2}, {{300, 16}, {300, 0}}, false, true, USUAL},
    {"thin-depth-of-the-run", "mij,ijn->mn", {3, 3}, {{19, 0, 9}, {0, 9, 21}}, true, true, USUAL},
    {"long-sums", "km,kn->mn", {2, 2}, {{1100, 33}, {1100, 0}}, true, false, DEEP},
    {"long-sums-of-the-run", "mij,ijn->mn", {3, 3}, {{34, 0, 30}, {0, 30, 33}}, false, true, DEEP},
    {"parts", "mk,nk->mn", {2, 2}, {{40, 21}, {18, 21}}, true, true, PARTS},
    {"large", "mk,kn->mn", {2, 2}, {{0, 200}, {200, 301}}, false, false, USUAL},
    {"large-turned", "km,nk->mn", {2, 2}, {{129, 0}, {257, 129}}, true, false, USUAL},
    {"many-batches", "bmk,bkn->bmn", {3, 3}, {{70001, 1, 2}, {70001, 2, 1}}, true, false, USUAL},
    {"deep", "mk,nk->mn", {2, 2}, {{3, 70001}, {2, 70001}}, false, false, DEEP},
};
enum { PROBLEMS = sizeof problems / sizeof *problems };

static const base_type types[] = {TYPE_F32, TYPE_F16, TYPE_BF16, TYPE_F64, TYPE_I32, TYPE_U8,
                                  TYPE_I8,  TYPE_I16, TYPE_U16,  TYPE_U32, TYPE_I64};
enum { TYPES = sizeof types / sizeof *types };

typedef struct what {
    const problem *p;
    const conv_shape *conv;
    int kind;
    base_type type;
} what;

static void build(typed_side *s, const void *user) {
    const what *w = user;
    graph_value in[2];
    for (uint32_t k = 0; k < 2; k++) {
        graph_dim d[5];
        for (uint32_t i = 0; i < w->p->rank[k]; i++)
            d[i] = w->p->dims[k][i] ? (graph_dim){w->p->dims[k][i], 0} : (graph_dim){ROWS, 1};
        in[k] = typed_input(s, w->type, w->p->rank[k], d);
    }
    graph_value y = graph_einsum(s->g, w->p->text, 2, in);
    if (w->p->kind == PARTS) {
        const graph_value some[2] = {graph_narrow(s->g, in[0], 0, 3, 16, 1), in[1]},
                          first = graph_einsum(s->g, w->p->text, 2, some);
        y = graph_concat(s->g, 2, (graph_value[]){first, y}, 0);
    }
    typed_output(s, graph_tensor_at(s->g, y)->base ? graph_copy(s->g, y) : y);
}

static void build_windows(typed_side *s, const void *user) {
    const what *w = user;
    const conv_shape *p = w->conv;
    graph_dim d[5] = {{ROWS, 1}, {p->c, 0}}, k[5] = {{p->out, 0}, {p->c / p->groups, 0}};
    for (uint32_t i = 0; i < p->n_axis; i++) {
        d[i + 2] = p->in[i] ? (graph_dim){p->in[i], 0} : (graph_dim){ROWS, 1};
        if (!p->in[i]) d[0] = (graph_dim){p->n, 0};
        k[i + 2] = (graph_dim){p->w[i].size, 0};
    }
    const graph_value x = typed_input(s, w->type, p->n_axis + 2, d),
                      weight = w->kind ? 0 : typed_input(s, w->type, p->n_axis + 2, k);
    graph_value y = make_windows(s->g, p, w->kind, x, weight);
    typed_output(s, graph_tensor_at(s->g, y)->base ? graph_copy(s->g, y) : y);
}

static void run_on(test *t, base_heap *heap, device *d, const what *w, size_t number) {
    char name[80];
    if (w->type == TYPE_F64 && !device_caps_of(d)->f64) return;
    snprintf(name, sizeof name, "%s of %s", w->p ? w->p->name : w->conv->name,
             base_type_name(w->type));
    typed_run(t, heap, d,
              &(typed_problem){.name = name,
                               .build = w->p ? build : build_windows,
                               .what = w,
                               .rows = ROWS,
                               .fewer = number % 3 ? FEWER : 0,
                               .fill = TYPED_UNIT,
                               .seed = number,
                               /* up to 300 terms below 1, in another order, in F32 */
                               .within = w->p && w->p->kind == DEEP ? 1e-3 : 3e-5,
                               .relative = 4e-6});
}

static void run_form(test *t, const test_form *form, size_t number) {
    base_heap heap;
    device *d = NULL;
    beryl_error error = {0};
    base_heap_init(&heap, NULL);
    const beryl_status status = test_form_open(form, &heap, &d, &error);
    const bool interprets = !strcmp(form->device, "interpreter");
    for (size_t i = 0; i < PROBLEMS + 3 * CONVS; i++) {
        const problem *p = i < PROBLEMS ? &problems[i] : NULL;
        const size_t of = i - PROBLEMS;
        const conv_shape *conv = p ? NULL : &convs[of / 3];
        const bool brief = p ? p->brief : of % 4 == 0;
        if (!test_form_draws(form, i, number, brief) || (form->brief && !brief && !interprets) ||
            (interprets && p && !p->small) || (form->stand_in && i) ||
            !test_case(t, "contract/%s/%s%s", form->name, p ? p->name : conv->name,
                       p             ? ""
                       : of % 3 == 0 ? "-conv"
                       : of % 3 == 1 ? "-largest"
                                     : "-mean"))
            continue;
        if (status == BERYL_NO_DEVICE) test_skip(t, "%s", error.message);
        else if (status != BERYL_OK) test_fail(t, __FILE__, __LINE__, "%s", error.message);
        for (uint64_t round = 0; status == BERYL_OK && test_form_round(t, form, d, &round);)
            for (size_t k = 0; k < (p ? TYPES : 1) && !test_failed(t); k++)
                if (!p || test_drawn(k + i, number + (size_t)round, form->brief ? 6 : 3))
                    run_on(t, &heap, d, &(what){p, conv, (int)(of % 3), types[p ? k : 0]},
                           i + k + number + (size_t)round);
    }
    test_form_close(d);
    if (status == BERYL_OK && test_case(t, "contract/%s/gives-everything-back", form->name))
        CHECK_INT(t, heap.bytes, 0);
}

/* Rows of no whole pieces of 16 bytes, copied to such, and long sums in parts: on the processor,
 * which has no units, and straight from workgroup memory; of F32 there alone. */
static void pads(test *t) {
    static const problem some[] = {
        {"rows-by-columns", "mk,kn->mn", {2, 2}, {{130, 131}, {131, 129}}, false, false, USUAL},
        {"columns-by-rows", "km,nk->mn", {2, 2}, {{129, 131}, {133, 129}}, false, false, USUAL},
        {"batches", "bmk,bkn->bnm", {3, 3}, {{2, 130, 136}, {2, 136, 129}}, false, false, USUAL},
        {"long-sums", "km,kn->mn", {2, 2}, {{1104, 40}, {1104, 72}}, false, false, DEEP},
        {"wide", "mk,kn->mn", {2, 2}, {{513, 9}, {9, 514}}, false, false, USUAL},
    };
    static const test_form forms[] = {
        {.name = "host", .device = "host"},
        {.name = "interpreter", .device = "interpreter", .as_gpu = true},
    };
    enum { SOME = sizeof some / sizeof *some, WIDE = SOME - 1 };
    for (size_t i = 0; i < 2 * SOME; i++) {
        const test_form *form = &forms[i / SOME];
        const bool wide = i % SOME == WIDE;
        if (wide && !form->as_gpu) continue;
        if (!test_case(t, "contract/pads/%s-%s", form->name, some[i % SOME].name)) continue;
        base_heap heap;
        device *d = NULL;
        beryl_error error = {0};
        base_heap_init(&heap, NULL);
        const beryl_status status = test_form_open(form, &heap, &d, &error);
        if (status == BERYL_NO_DEVICE) test_skip(t, "%s", error.message);
        else if (status != BERYL_OK) test_fail(t, __FILE__, __LINE__, "%s", error.message);
        if (status == BERYL_OK) {
            d->caps.multiplies_memory = true;
            if (form->as_gpu) {
                d->caps.workgroup_bytes = 1 << 18, d->caps.subgroup_size = 32;
                d->caps.compute_units = 1; /* large tiles */
                d->caps.fragments = DEVICE_FRAGMENT_BIT(DEVICE_FRAGMENT_F16_F32);
            }
            run_on(t, &heap, d, &(what){&some[i % SOME], NULL, 0, wide ? TYPE_F32 : TYPE_F16}, i);
        }
        test_form_close(d);
    }
}

/* F32 by units for BF16, in limbs, straight from workgroup memory; on a device that has such also
 * sums long enough to be shared, of one sign, and numbers whose limbs are none or few: near the
 * largest, some above it, and near the smallest. */
typedef struct limbs_shape {
    const char *name;
    problem p;
    typed_fill fill;
    float scale[3]; /* of a, b, the result */
    double within, relative;
    uint32_t dispatches; /* of limbs, products, their parts, what mends, a copy; 0: and others */
    bool twice;          /* a linear with an end before it, whose limbs are the product's too */
} limbs_shape;

static void build_scaled(typed_side *s, const void *user) {
    const limbs_shape *w = user;
    graph_value in[2];
    for (uint32_t k = 0; k < 2; k++) {
        const graph_dim d[2] = {{w->p.dims[k][0], 0}, {w->p.dims[k][1], 0}};
        const uint32_t skip = k && w->twice; /* rows before */
        in[k] = typed_input(s, TYPE_F32, 2, (graph_dim[]){{d[0].size + skip, 0}, d[1]});
        if (skip) in[k] = graph_narrow(s->g, in[k], 0, skip, d[0].size, 1);
        if (w->scale[k] != 1) in[k] = graph_scale(s->g, in[k], w->scale[k]);
    }
    if (w->twice) typed_output(s, graph_silu(s->g, graph_linear(s->g, in[0], in[1])));
    graph_value y = graph_einsum(s->g, w->p.text, 2, in);
    if (w->scale[2] != 1) y = graph_scale(s->g, y, w->scale[2]);
    typed_output(s, graph_tensor_at(s->g, y)->base ? graph_copy(s->g, y) : y);
}

/* What a processor packs: a linear layer whose lines are too short for vectors along them, as those
 * of adapters; a matrix whose lines are far apart (rows 0); panels of both factors, of which the
 * last is not whole, or crosses from picture to picture; halves as F32. */
typedef struct packed_shape {
    const char *name;
    uint32_t rows, depth, dispatches;
    const char *text; /* the other ones, of `type` */
    base_type type;
    uint32_t dims[2][4]; /* SHORT_ROWS: the extent */
} packed_shape;

static void build_panels(typed_side *s, const void *user) {
    const packed_shape *w = user;
    graph_value in[2];
    for (uint32_t k = 0; k < 2; k++) {
        graph_dim d[4];
        uint32_t rank = 0;
        for (; rank < 4 && w->dims[k][rank]; rank++)
            d[rank] = (graph_dim){w->dims[k][rank], w->dims[k][rank] == SHORT_ROWS};
        in[k] = typed_input(s, w->type, rank, d);
    }
    typed_output(s, graph_relu(s->g, graph_einsum(s->g, w->text, 2, in)));
}

static void build_packed(typed_side *s, const void *user) {
    enum { ROWS_FAR = 520, COLUMNS = 64, APART = 512 };
    const packed_shape *w = user;
    const graph_dim x[] = {{w->rows ? SHORT_ROWS : ROWS_FAR, w->rows ? 1 : 0}, {w->depth, 0}},
                    lines[] = {{w->rows, 0}, {w->depth, 0}}, far[] = {{w->depth, 0}, {APART, 0}};
    const graph_value in = typed_input(s, TYPE_F32, 2, x),
                      by = typed_input(s, TYPE_F32, 2, w->rows ? lines : far);
    if (w->rows) typed_output(s, graph_linear(s->g, in, by));
    else
        typed_output(
            s, graph_relu(s->g, graph_matmul(s->g, in, graph_narrow(s->g, by, 1, 0, COLUMNS, 1),
                                             false, false)));
}

static void run_packed(test *t, base_heap *heap, device *d, const packed_shape *w,
                       uint32_t dispatches) {
    typed_run(t, heap, d,
              &(typed_problem){.name = w->name,
                               .build = w->text ? build_panels : build_packed,
                               .what = w,
                               .rows = SHORT_ROWS,
                               .fewer = FEWER,
                               .fill = TYPED_UNIT,
                               /* up to 300 terms below 1, in another order, in F32 */
                               .within = 3e-5,
                               .relative = 4e-6,
                               .dispatches = dispatches});
}

/* Products of BF16 on tiles: of factors in any order, whose rows and terms end with a tile, a line
 * of it, a word, and within one. The interpreter has tiles; the host where its processor does. */
static void tiles(test *t) {
    enum { IN_PLACE = 4 };
    static const packed_shape some[] = {
        {.name = "rows-by-columns", .text = "mk,kn->mn", .dims = {{64, 96}, {96, 64}}},
        {.name = "batches", .text = "bmk,bkn->bmn", .dims = {{2, 96, 64}, {2, 64, 80}}},
        {.name = "batches-of-rows", .text = "mbk,bkn->bmn", .dims = {{64, 2, 64}, {2, 64, 64}}},
        {.name = "many-columns", .text = "mk,kn->mn", .dims = {{96, 32}, {32, 299}}},
        {.name = "rows-by-rows", .text = "mk,nk->mn", .dims = {{67, 70}, {75, 70}}},
        {.name = "odd-terms", .text = "mk,kn->mn", .dims = {{80, 71}, {71, 80}}},
        {.name = "columns-by-columns", .text = "km,kn->mn", .dims = {{80, 48}, {80, 112}}},
        {.name = "a-batch-and-one", .text = "bmk,nk->bmn", .dims = {{3, 33, 64}, {48, 64}}},
        {.name = "turned-results", .text = "mk,kn->nm", .dims = {{64, 66}, {66, 79}}},
    };
    static const test_form forms[] = {{.name = "interpreter", .device = "interpreter"},
                                      {.name = "host", .device = "host"}};
    for (size_t i = 0; i < 2 * (sizeof some / sizeof *some); i++) {
        const test_form *form = &forms[i % 2];
        packed_shape w = some[i / 2];
        if (!test_case(t, "contract/tiles/%s-%s", form->name, w.name)) continue;
        base_heap heap;
        device *d = NULL;
        beryl_error error = {0};
        base_heap_init(&heap, NULL);
        w.type = TYPE_BF16;
        if (test_form_open(form, &heap, &d, &error) != BERYL_OK) {
            test_skip(t, "%s", error.message);
        } else {
            if (i % 2 == 0) d->caps.tiles = true;
            /* whole tiles of rows are read where they lie */
            const bool in_place = i / 2 < IN_PLACE;
            run_packed(t, &heap, d, &w, !d->caps.tiles ? 0 : in_place ? 2 : 3);
        }
        test_form_close(d);
    }
}

static void packs(test *t) {
    static const packed_shape some[] = {
        {.name = "short-lines", .rows = 200, .depth = 16, .dispatches = 2},
        {.name = "shorter-lines", .rows = 300, .depth = 9, .dispatches = 2},
        {.name = "lines-far-apart", .depth = 260, .dispatches = 2},
        {.name = "columns-by-columns",
         .dispatches = 3,
         .text = "km,kn->mn",
         .type = TYPE_F32,
         .dims = {{40, SHORT_ROWS}, {40, 130}}},
        /* in squares, to lines and to panels */
        {.name = "lines-turned",
         .dispatches = 3,
         .text = "km,kn->mn",
         .type = TYPE_F16,
         .dims = {{80, 128}, {80, 130}}},
        {.name = "panels-turned",
         .dispatches = 2,
         .text = "bmk,bnk->bmn",
         .type = TYPE_F32,
         .dims = {{2, 66, 80}, {2, 128, 80}}},
        {.name = "halves-turned",
         .dispatches = 3,
         .text = "mk,nk->mn",
         .type = TYPE_F16,
         .dims = {{70, 96}, {128, 96}}},
        {.name = "pictures",
         .dispatches = 2,
         .text = "oc,bcp->bop",
         .type = TYPE_F32,
         .dims = {{70, 80}, {3, 80, 52}}},
        /* stretches of 10, in chunks of 320 and one of 180; of 6 of each batch */
        {.name = "stretches",
         .dispatches = 2,
         .text = "oc,bcp->bop",
         .type = TYPE_F32,
         .dims = {{70, 80}, {50, 80, 10}}},
        {.name = "stretches-of-halves",
         .dispatches = 3,
         .text = "aoc,acbp->aobp",
         .type = TYPE_F16,
         .dims = {{2, 64, 64}, {2, 64, 24, 6}}},
        {.name = "halves-in-batches",
         .dispatches = 3,
         .text = "bmk,bkn->bmn",
         .type = TYPE_F16,
         .dims = {{2, 64, 64}, {2, 64, 80}}},
        {.name = "halves-along-depth",
         .dispatches = 3,
         .text = "mk,nk->mn",
         .type = TYPE_F16,
         .dims = {{64, 80}, {60, 80}}},
        {.name = "odd-halves",
         .dispatches = 3,
         .text = "mk,kn->mn",
         .type = TYPE_BF16,
         .dims = {{67, 70}, {70, 67}}}};
    static const test_form host = {.name = "host", .device = "host"};
    for (size_t i = 0; i < sizeof some / sizeof *some; i++) {
        if (!test_case(t, "contract/packs/host-%s", some[i].name)) continue;
        base_heap heap;
        device *d = NULL;
        beryl_error error = {0};
        base_heap_init(&heap, NULL);
        if (test_form_open(&host, &heap, &d, &error) != BERYL_OK) test_skip(t, "%s", error.message);
        else {
            d->caps.tiles = false;
            run_packed(t, &heap, d, &some[i], some[i].dispatches);
        }
        test_form_close(d);
    }
}

static void limbs(test *t) {
    static const limbs_shape some[] = {
        /* up to 300 terms below 1, in another order, in F32 */
        {"interpreter-columns-by-columns",
         {.text = "km,kn->mn", .dims = {{64, 505}, {64, 509}}},
         TYPED_UNIT,
         {1, 1, 1},
         3e-5,
         4e-6,
         5,
         false},
        {"interpreter-twice",
         {.text = "mk,nk->mn", .dims = {{505, 64}, {508, 64}}},
         TYPED_UNIT,
         {1, 1, 1},
         3e-5,
         4e-6,
         8,
         true},
        {"chosen-twice",
         {.text = "mk,nk->mn", .dims = {{1536, 64}, {1541, 64}}},
         TYPED_UNIT,
         {1, 1, 1},
         3e-5,
         4e-6,
         8,
         true},
        {"chosen-rows-by-rows",
         {.text = "mk,nk->mn", .dims = {{1536, 65}, {1541, 65}}},
         TYPED_UNIT,
         {1, 1, 1},
         3e-5,
         4e-6,
         5,
         false},
        /* the root of as many roundings of a whole sum */
        {"chosen-long-sums",
         {.text = "mk,kn->mn", .dims = {{600, 2048}, {2048, 599}}},
         TYPED_NEAR_ONE,
         {1, 1, 1},
         0,
         46 * 0x1p-24,
         6,
         false},
        /* some round to limbs that are infinite; */
        {"chosen-largest",
         {.text = "mk,kn->mn", .dims = {{1030, 64}, {64, 1025}}},
         TYPED_UNIT,
         {3.4e38f, 1e-30f, 1e-9f},
         3e-5,
         4e-6,
         0,
         false},
        /* some are themselves */
        {"chosen-infinite",
         {.text = "mk,kn->mn", .dims = {{1032, 64}, {64, 1028}}},
         TYPED_NEAR_ONE,
         {3.2e38f, -1, 1},
         3e-5,
         4e-6,
         0,
         false},
        /* of each term, what is below 2^-126 may be lost: shaders flush it */
        {"chosen-smallest",
         {.text = "mk,kn->mn", .dims = {{1030, 64}, {64, 1025}}},
         TYPED_UNIT,
         {0x1p-104f, 1, 0x1p104f},
         3e-5 + 64 * 0x1p-22,
         4e-6,
         0,
         false},
    };
    static const test_form forms[] = {
        {.name = "interpreter", .device = "interpreter", .as_gpu = true},
        {.name = "chosen", .device = ""},
    };
    for (size_t i = 0; i < sizeof some / sizeof *some; i++) {
        const bool chosen = !strncmp(some[i].name, "chosen", 6);
        if (chosen && !getenv("BERYL_TEST_DEVICE")) continue;
        if (!test_case(t, "contract/limbs/%s", some[i].name)) continue;
        base_heap heap;
        device *d = NULL;
        beryl_error error = {0};
        base_heap_init(&heap, NULL);
        const beryl_status status = test_form_open(&forms[chosen], &heap, &d, &error);
        if (status != BERYL_OK) test_fail(t, __FILE__, __LINE__, "%s", error.message);
        else {
            if (!chosen) {
                d->caps.multiplies_memory = true, d->caps.limbs_from = 1;
                d->caps.workgroup_bytes = 1 << 18, d->caps.subgroup_size = 32;
                d->caps.compute_units = 1;
                d->caps.fragments = DEVICE_FRAGMENT_BIT(DEVICE_FRAGMENT_BF16_F32);
            }
            if (d->caps.limbs_from) d->caps.limbs_from = 64;
            typed_run(t, &heap, d,
                      &(typed_problem){.name = some[i].name,
                                       .build = build_scaled,
                                       .what = &some[i],
                                       .rows = 1,
                                       .fill = some[i].fill,
                                       .seed = i,
                                       .within = some[i].within,
                                       .relative = some[i].relative,
                                       .dispatches = d->caps.limbs_from ? some[i].dispatches : 0,
                                       .planned = some[i].twice && !chosen});
        }
        test_form_close(d);
    }
}

/* Windows as large GPUs have them: channels are copied to lie last, for units that take pieces of
 * 16 bytes, and where there are none to sum, neighbours share what they read. `back`: as
 * the gradient of the weight has them, pictures in the place of channels. */
typedef struct turned_shape {
    const char *name;
    uint32_t x[4], weight[4], stride, pad;
    bool back, transposed;
    uint32_t units; /* of the device: few have large tiles, many share long sums */
    uint32_t groups;
} turned_shape;

static void build_turned(typed_side *s, const void *user) {
    const turned_shape *p = user;
    const uint32_t turn[] = {1, 0, 2, 3};
    graph_dim x[4] = {{0}}, k[4] = {{0}};
    for (uint32_t i = 0; i < 4; i++) x[i].size = p->x[i], k[i].size = p->weight[i];
    const graph_window w = {
        .stride = p->stride, .dilation = 1, .pad_before = p->pad, .pad_after = p->pad};
    graph_value in = typed_input(s, TYPE_F16, 4, x), weight = typed_input(s, TYPE_F16, 4, k);
    if (p->back) {
        in = graph_permute(s->g, in, 4, turn);
        weight = graph_permute(s->g, weight, 4, turn);
    }
    const graph_window both[] = {w, w};
    const graph_value y = p->transposed ? graph_conv_transpose(s->g, in, weight, 2, both, NULL, 1)
                                        : graph_conv(s->g, in, weight, 2, both, p->groups);
    typed_output(s, graph_tensor_at(s->g, y)->base ? graph_copy(s->g, y) : y);
}

static void turns(test *t) {
    static const turned_shape some[] = {
        {"forward", {2, 16, 9, 9}, {64, 16, 3, 3}, 1, 1, false, false, 1, 1},
        {"strided", {2, 72, 17, 17}, {64, 72, 1, 1}, 2, 0, false, false, 1, 1},
        {"weight", {2, 16, 9, 9}, {2, 64, 7, 7}, 1, 0, true, false, 1, 1},
        {"weight-in-parts", {16, 8, 10, 10}, {16, 64, 8, 8}, 1, 0, true, false, 4, 1},
        {"transposed", {2, 64, 6, 6}, {64, 16, 3, 3}, 2, 1, false, true, 1, 1},
        /* so many results that a lane has several neighbours */
        {"depthwise", {2, 8, 64, 64}, {8, 1, 3, 3}, 1, 1, false, false, 1, 8},
    };
    static const test_form form = {.name = "interpreter", .device = "interpreter", .as_gpu = true};
    for (size_t i = 0; i < sizeof some / sizeof *some; i++) {
        if (!test_case(t, "contract/turns/%s", some[i].name)) continue;
        base_heap heap;
        device *d = NULL;
        beryl_error error = {0};
        base_heap_init(&heap, NULL);
        const beryl_status status = test_form_open(&form, &heap, &d, &error);
        if (status != BERYL_OK) test_fail(t, __FILE__, __LINE__, "%s", error.message);
        else {
            d->caps.multiplies_memory = true;
            d->caps.workgroup_bytes = 1 << 18, d->caps.subgroup_size = 32;
            d->caps.compute_units = some[i].units;
            d->caps.fragments = DEVICE_FRAGMENT_BIT(DEVICE_FRAGMENT_F16_F32);
            typed_run(t, &heap, d,
                      &(typed_problem){.name = some[i].name,
                                       .build = build_turned,
                                       .what = &some[i],
                                       .rows = 1,
                                       .fill = TYPED_UNIT,
                                       .seed = i,
                                       /* up to 1,024 terms below 1, in another order, in F32 */
                                       .within = 3e-4});
        }
        test_form_close(d);
    }
}

static void refuses(test *t, base_heap *heap) {
    static const struct {
        const char *text, *why;
    } bad[] = {
        {"ij,jk", "a letter for each axis"},     {"ijk,jk->ik", "a letter for each axis"},
        {"ij,jk->iz", "a letter for each axis"}, {"ij,jk->ii", "a letter for each axis"},
        {"ij,jk,kl->il", "a letter for each"},   {"i1,1k->ik", "a letter for each axis"},
        {"ij,ij->ij", "shapes do not fit"},
    };
    for (uint32_t i = 0; i < sizeof bad / sizeof *bad; i++) {
        lab l;
        beryl_error error = {0};
        lab_open(&l, heap);
        lab_input(&l, 0, 2, (uint32_t[]){4, 5});
        lab_input(&l, 1, 2, (uint32_t[]){5, 6});
        CHECK_INT(t, graph_einsum(l.g, bad[i].text, 2, l.in), 0);
        CHECK(t, graph_status(l.g, &error) == BERYL_MISUSE && strstr(error.message, bad[i].why));
        lab_close(&l);
    }
    lab l;
    beryl_error error = {0};
    lab_open(&l, heap);
    lab_input(&l, 0, 2, (uint32_t[]){4, 5});
    lab_input(&l, 1, 2, (uint32_t[]){4, 6});
    CHECK_INT(t, graph_matmul(l.g, l.in[0], l.in[1], false, false), 0);
    graph_status(l.g, &error);
    CHECK_TEXT(t, error.message, "graph: matmul of [4, 5] and [4, 6]");
    lab_close(&l);
}

/* Windows of more elements than memory has: a convolution has them, nothing else. */
static void many_windows(test *t, base_heap *heap) {
    const graph_window w = {.stride = 1, .dilation = 1, .pad_before = 3, .pad_after = 3},
                       both[] = {w, w};
    const graph_dim x[] = {{32, 0}, {64, 0}, {224, 0}, {224, 0}},
                    k[] = {{2, 0}, {64, 0}, {7, 0}, {7, 0}};
    beryl_error error = {0};
    graph *g = graph_open(heap);
    const graph_value in = graph_input(g, "x", TYPE_F32, 4, x),
                      y = graph_conv(g, in, graph_input(g, "w", TYPE_F32, 4, k), 2, both, 1);
    CHECK(t, graph_status(g, &error) == BERYL_OK);
    CHECK_INT(t, graph_element_bound(graph_tensor_at(g, y)), 32 * 2 * 224 * 224);
    const graph_value rows = graph_windows(g, graph_pad(g, in, 2, 3, 3, 0), 2, 7, 1),
                      windows = graph_windows(g, graph_pad(g, rows, 3, 3, 3, 0), 3, 7, 1);
    CHECK(t, windows && graph_element_bound(graph_tensor_at(g, windows)) > UINT32_MAX);
    CHECK_INT(t, graph_relu(g, windows), 0);
    graph_status(g, &error);
    CHECK_TEXT(t, error.message, "graph: relu of a view of more than 2^32 - 1 elements");
    graph_close(g);
}

void test_contract(test *t);
void test_contract(test *t) {
    base_heap heap;
    base_heap_init(&heap, NULL);
    if (test_case(t, "contract/matrices")) matrices(t, &heap);
    if (test_case(t, "contract/vectors")) vectors(t, &heap);
    if (test_case(t, "contract/letters")) letters(t, &heap);
    if (test_case(t, "contract/refuses")) refuses(t, &heap);
    if (test_case(t, "contract/many-windows")) many_windows(t, &heap);
    pads(t);
    packs(t);
    tiles(t);
    limbs(t);
    turns(t);
    for (size_t i = 0; i < CONVS; i++) {
        if (!convs[i].in[0]) continue; /* judged on devices, by the same functions */
        if (test_case(t, "contract/conv-%s", convs[i].name)) windows(t, &heap, &convs[i], 0);
        if (test_case(t, "contract/max-pool-%s", convs[i].name)) windows(t, &heap, &convs[i], 1);
        if (test_case(t, "contract/avg-pool-%s", convs[i].name)) windows(t, &heap, &convs[i], 2);
    }
    if (test_case(t, "contract/labs-give-everything-back")) CHECK_INT(t, heap.bytes, 0);
    for (size_t i = 0; i < test_form_count(); i++) run_form(t, &test_forms[i], i);
}
