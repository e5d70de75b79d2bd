/* random_test.c - random numbers: the published answers of Threefry, what the reference functions
 * make of them (moments, ranges, choices), and every device against these: bits alike, normal
 * numbers within 1e-6. */
#include "beryl_graph.h"
#include "forms.h"
#include "typed.h"

#include "base/thread.h"
#include "graph/reference.h"

#include <math.h>
#include <stdio.h>
#include <string.h>

enum { ROWS = 37, FEWER = 5 };

/* Random123's kat_vectors. */
static void known_answers(test *t) {
    static const struct {
        uint32_t counter[2], key[2], want[2];
    } known[] = {
        {{0, 0}, {0, 0}, {0x6b200159, 0x99ba4efe}},
        {{~0u, ~0u}, {~0u, ~0u}, {0x1cb996fc, 0xbb002be7}},
        {{0x243f6a88, 0x85a308d3}, {0x13198a2e, 0x03707344}, {0xc4923a9c, 0x483df7a0}},
    };
    for (size_t i = 0; i < sizeof known / sizeof *known; i++) {
        uint32_t got[2];
        base_threefry(known[i].key, known[i].counter, got);
        CHECK_INT(t, got[0], known[i].want[0]);
        CHECK_INT(t, got[1], known[i].want[1]);
    }
}

/* ---- on the reference functions -------------------------------------------------------------- */

typedef struct lab {
    graph *g;
    graph_store store;
    graph_reference *r;
    graph_value key, x, out;
} lab;

static void lab_open(lab *l, base_heap *heap) {
    *l = (lab){.g = graph_open(heap)};
    store_init(&l->store, heap, NULL, NULL, 0, NULL);
    l->key = graph_input(l->g, "key", TYPE_U32, 1, (const graph_dim[]){{2, 0}});
}

static const void *lab_run(test *t, lab *l, uint32_t low, uint32_t high, const float *x) {
    beryl_error error = {0};
    graph_output(l->g, l->out, "y");
    beryl_status status = graph_status(l->g, &error);
    if (status == BERYL_OK) status = graph_reference_open(l->g, &l->store, &l->r, &error);
    if (status == BERYL_OK) {
        memcpy(graph_reference_input(l->r, l->key), (uint32_t[]){low, high}, 8);
        if (x)
            memcpy(graph_reference_input(l->r, l->x), x,
                   graph_element_bound(graph_tensor_at(l->g, l->x)) * sizeof *x);
        status = graph_reference_run(l->r, NULL, &error);
    }
    if (status != BERYL_OK) test_fail(t, __FILE__, __LINE__, "%s", error.message);
    return status == BERYL_OK ? graph_reference_value(l->r, l->out) : NULL;
}

static void lab_close(lab *l) {
    graph_reference_close(l->r);
    graph_close(l->g);
    store_fini(&l->store);
}

/* Element i of a draw is the word of counter (i, stream). */
static void bits(test *t, base_heap *heap) {
    enum { STREAM = 5, N = 300 };
    lab l;
    lab_open(&l, heap);
    l.out = graph_random_bits(l.g, (graph_draw){l.key, STREAM}, 2,
                              (const graph_dim[]){{3, 0}, {N / 3, 0}});
    const uint32_t *got = lab_run(t, &l, 7, 9, NULL);
    for (uint32_t i = 0; got && i < N; i++) {
        uint32_t want[2];
        base_threefry((const uint32_t[]){7, 9}, (const uint32_t[]){i, STREAM}, want);
        CHECK_INT(t, got[i], want[0]);
    }
    lab_close(&l);
}

typedef struct moments {
    double mean, deviation, third, least, most;
} moments;

static moments moments_of(const float *x, uint32_t n) {
    moments m = {.least = INFINITY, .most = -INFINITY};
    double squares = 0;
    for (uint32_t i = 0; i < n; i++) {
        const double y = (double)x[i];
        m.mean += y / n;
        m.least = fmin(m.least, y);
        m.most = fmax(m.most, y);
    }
    for (uint32_t i = 0; i < n; i++) {
        const double y = (double)x[i] - m.mean;
        squares += y * y / n;
        m.third += y * y * y / n;
    }
    m.deviation = sqrt(squares);
    return m;
}

static void distributions(test *t, base_heap *heap) {
    enum { OUT = 400, IN = 90, EACH = 3, N = OUT * IN * EACH };
    static const graph_dim dims[] = {{OUT, 0}, {IN, 0}, {EACH, 0}};
    const double in = IN * EACH, out = OUT * EACH;
    const struct {
        double mean, deviation, least, most;
    } want[] = {
        {0.5, sqrt(1 / 12.0), 0, 1},
        {1, 3 / sqrt(12), -0.5, 2.5},
        {0, 1, -6, 6},
        {2, 3, -16, 20},
        {0, sqrt(2 / (in + out)), -sqrt(6 / (in + out)), sqrt(6 / (in + out))},
        {0, sqrt(2 / in), -6 * sqrt(2 / in), 6 * sqrt(2 / in)},
    };
    for (uint32_t i = 0; i < sizeof want / sizeof *want; i++) {
        lab l;
        lab_open(&l, heap);
        graph *g = l.g;
        const graph_draw d = {l.key, i};
        l.out = i == 0   ? graph_random_uniform(g, d, TYPE_F32, 0, 1, 3, dims)
                : i == 1 ? graph_random_uniform(g, d, TYPE_F32, -0.5f, 2.5f, 3, dims)
                : i == 2 ? graph_random_normal(g, d, TYPE_F32, 0, 1, 3, dims)
                : i == 3 ? graph_random_normal(g, d, TYPE_F32, 2, 3, 3, dims)
                : i == 4
                    ? graph_random_weights(g, d, TYPE_F32, true, false, 1, 3, dims)
                    : graph_random_weights(g, d, TYPE_F32, false, true, (float)sqrt(2), 3, dims);
        const float *got = lab_run(t, &l, 1, 2, NULL);
        if (got) {
            const moments m = moments_of(got, N);
            const double off = 4 * want[i].deviation / sqrt(N);
            CHECK_NEAR(t, m.mean, want[i].mean, off);
            CHECK_NEAR(t, m.deviation, want[i].deviation, off);
            CHECK_NEAR(t, m.third, 0, 4 * 4 * pow(want[i].deviation, 3) / sqrt(N));
            CHECK(t, m.least >= want[i].least && m.most <= want[i].most);
        }
        lab_close(&l);
    }
}

static void choices(test *t, base_heap *heap) {
    enum { N = 20000, M = 4 };
    static const double p[M] = {0.1, 0.4, 0, 0.5};
    float *logits = base_heap_take(heap, N * M * sizeof *logits);
    uint32_t count[M] = {0}, ones = 0;
    lab l;
    for (uint32_t i = 0; i < N * M; i++) logits[i] = (float)log(p[i % M]);
    lab_open(&l, heap);
    l.x = graph_input(l.g, "logits", TYPE_F32, 2, (const graph_dim[]){{N, 0}, {M, 0}});
    l.out = graph_categorical(l.g, (graph_draw){l.key, 0}, l.x);
    const int32_t *got = lab_run(t, &l, 3, 4, logits);
    for (uint32_t i = 0; got && i < N; i++) count[got[i] % M]++;
    for (uint32_t i = 0; got && i < M; i++)
        CHECK_NEAR(t, count[i], N * p[i], 4 * sqrt(N * p[i] * (1 - p[i])));
    lab_close(&l);
    base_heap_give(heap, logits, N * M * sizeof *logits);
    lab_open(&l, heap);
    l.out = graph_bernoulli(l.g, (graph_draw){l.key, 0}, 0.3f, 1, (const graph_dim[]){{N, 0}});
    const uint8_t *bools = lab_run(t, &l, 3, 4, NULL);
    for (uint32_t i = 0; bools && i < N; i++) ones += bools[i];
    if (bools) CHECK_NEAR(t, ones, N * 0.3, 4 * sqrt(N * 0.21));
    lab_close(&l);
}

static void refuses(test *t, base_heap *heap) {
    static const char *const why[] = {"graph: random: a key is two numbers of U32",
                                      "graph: random numbers of F64",
                                      "graph: random: a single number: ask for one of [1]",
                                      "graph: first weights of rank 1, not [out, in, ..]",
                                      "graph: a constant, where nobody keeps any"};
    for (uint32_t i = 0; i < sizeof why / sizeof *why; i++) {
        static const graph_dim dims[] = {{5, 0}};
        lab l;
        beryl_error error = {0};
        lab_open(&l, heap);
        const graph_draw d = {i ? l.key : graph_input(l.g, "x", TYPE_F32, 1, dims), 0};
        if (i == 1) graph_random_normal(l.g, d, TYPE_F64, 0, 1, 1, dims);
        else if (i == 3) graph_random_weights(l.g, d, TYPE_F32, true, true, 1, 1, dims);
        else if (i == 4) graph_key(l.g, 1);
        else graph_random_bits(l.g, d, i != 2, dims);
        graph_status(l.g, &error);
        CHECK_TEXT(t, error.message, why[i]);
        lab_close(&l);
    }
}

/* Through beryl_graph.h: the same numbers in every run, of a seed's bits. */
static void seeds(test *t, const char *on) {
    enum { OUT = 5, IN = 3 };
    static const beryl_dim dims[] = {{OUT, 0}, {IN, 0}};
    static const struct {
        uint64_t seed;
        uint32_t first;
    } known[] = {{0, 0x6b200159}, {0x123456789abcdef0, 0}};
    for (uint32_t i = 0; i < 2; i++) {
        beryl_graph *g = NULL;
        beryl_error error = {0};
        uint32_t got[OUT * IN], want[2];
        float weights[OUT * IN];
        const beryl_graph_options options = {.size = sizeof options, .device = on};
        beryl_status status = beryl_graph_open(&options, &g, &error);
        const beryl_value key = beryl_graph_key(g, known[i].seed),
                          bits = beryl_graph_random_bits(g, key, 0, 2, dims),
                          unit =
                              beryl_graph_random_uniform(g, key, 1, BERYL_TYPE_F32, -2, 2, 2, dims),
                          x = beryl_graph_random_normal(g, key, 2, BERYL_TYPE_F32, 0, 1, 2, dims),
                          mask = beryl_graph_bernoulli(g, key, 3, 0.5f, 2, dims);
        const beryl_value sum = beryl_graph_add(
            g,
            beryl_graph_add(g, beryl_graph_xavier_uniform(g, key, 4, BERYL_TYPE_F32, 1, 2, dims),
                            beryl_graph_xavier_normal(g, key, 5, BERYL_TYPE_F32, 1, 2, dims)),
            beryl_graph_add(g, beryl_graph_kaiming_uniform(g, key, 6, BERYL_TYPE_F32, 1, 2, dims),
                            beryl_graph_kaiming_normal(g, key, 7, BERYL_TYPE_F32, 1, 2, dims)));
        const beryl_value all = beryl_graph_where(g, mask, beryl_graph_add(g, sum, x), unit),
                          chosen = beryl_graph_categorical(g, key, 8, all);
        beryl_graph_output(g, bits, "bits");
        beryl_graph_output(g, all, "weights");
        beryl_graph_output(g, chosen, "chosen");
        while (status == BERYL_OK || status == BERYL_PENDING) {
            status = beryl_graph_compile(g, &error);
            if (status == BERYL_OK) break;
        }
        for (uint32_t run = 0; run < 2 && status == BERYL_OK; run++) {
            status = beryl_graph_run(g, NULL, 0, &error);
            if (status == BERYL_OK) status = beryl_graph_wait(g, &error);
            if (status == BERYL_OK) status = beryl_graph_read(g, bits, got, sizeof got, &error);
            if (status == BERYL_OK)
                status = beryl_graph_read(g, all, weights, sizeof weights, &error);
            const uint32_t words[] = {(uint32_t)known[i].seed, (uint32_t)(known[i].seed >> 32)};
            for (uint32_t k = 0; status == BERYL_OK && k < OUT * IN; k++) {
                base_threefry(words, (const uint32_t[]){k, 0}, want);
                CHECK_INT(t, got[k], want[0]);
                CHECK(t, fabsf(weights[k]) < 20);
            }
            if (!i && status == BERYL_OK) CHECK_INT(t, got[0], known[i].first);
        }
        if (status != BERYL_OK) test_fail(t, __FILE__, __LINE__, "%s", error.message);
        beryl_graph_close(g);
    }
}

/* ---- on every device ------------------------------------------------------------------------- */

typedef struct problem {
    const char *name;
    uint32_t rank, dims[8]; /* 0: the extent */
    bool brief;
} problem;

static const problem problems[] = {
    {"one", 1, {1}, true},        {"prime", 1, {1021}, true},
    {"rows", 2, {0, 96}, true},   {"odd-rows", 2, {0, 61}, false},
    {"extent", 1, {0}, false},    {"rank-8", 8, {2, 1, 3, 0, 2, 1, 2, 3}, false},
    {"behind", 2, {7, 0}, false}, {"many", 2, {0, 70001}, false},
};

typedef enum draw_kind {
    BITS,
    UNIFORM,
    UNIFORM_F16,
    UNIFORM_BF16,
    NORMAL,
    NORMAL_F16,
    TRUE_OR_NOT,
    DROPPED, /* x where a draw says so, over its chance: one dispatch */
    NORMED,  /* inside rows */
    SUMMED,
    CHOSEN,
    OWN_KEYS, /* a key for each element */
    SEEDED,
    KINDS
} draw_kind;

typedef struct what {
    const problem *p;
    draw_kind kind;
} what;

static graph_value draw(typed_side *s, const what *w, const graph_dim *d, graph_value key) {
    graph *g = s->g;
    const graph_draw draw = {key, 11}, other = {key, 12};
    const uint32_t n = w->p->rank;
    graph_value x;
    switch (w->kind) {
    case BITS: return graph_random_bits(g, draw, n, d);
    case UNIFORM: return graph_random_uniform(g, draw, TYPE_F32, 0, 1, n, d);
    case UNIFORM_F16: return graph_random_uniform(g, draw, TYPE_F16, 0, 1, n, d);
    case UNIFORM_BF16: return graph_random_uniform(g, draw, TYPE_BF16, 0, 1, n, d);
    case NORMAL: return graph_random_normal(g, draw, TYPE_F32, 0, 1, n, d);
    case NORMAL_F16: return graph_random_normal(g, draw, TYPE_F16, 1, 0.5f, n, d);
    case TRUE_OR_NOT: return graph_bernoulli(g, draw, 0.3f, n, d);
    case DROPPED:
        x = typed_input(s, TYPE_F32, n, d);
        return graph_mul(g, graph_scale(g, x, 2),
                         graph_cast(g, graph_bernoulli(g, draw, 0.5f, n, d), TYPE_F32, false));
    case NORMED:
        x = graph_add(g, typed_input(s, TYPE_F32, n, d),
                      graph_random_uniform(g, draw, TYPE_F32, 0, 1, n, d));
        return graph_add(g, graph_rms_norm(g, x, 0, 1e-6f),
                         graph_random_uniform(g, other, TYPE_F32, 0, 1, n, d));
    case SUMMED:
        return graph_reduce(g, OP_MEAN, graph_random_uniform(g, draw, TYPE_F32, 0, 1, n, d), 1, 0);
    case CHOSEN: return graph_argmax(g, graph_random_uniform(g, draw, TYPE_F32, 0, 1, n, d));
    case OWN_KEYS:
        return graph_op(g, OP_RANDOM,
                        (graph_value[]){typed_input(s, TYPE_U32, n, d),
                                        graph_flip(g, typed_input(s, TYPE_U32, n, d), n - 1)},
                        (graph_attrs){.random = {RANDOM_BITS_HIGH, 3, TYPE_U32, 0}});
    case SEEDED:
        return graph_random_bits(g, (graph_draw){graph_key(g, 0x123456789abcdef0), 0}, n, d);
    case KINDS: break;
    }
    return 0;
}

static void build(typed_side *s, const void *user) {
    const what *w = user;
    graph_dim d[8];
    for (uint32_t i = 0; i < w->p->rank; i++)
        d[i] = w->p->dims[i] ? (graph_dim){w->p->dims[i], 0} : (graph_dim){ROWS, 1};
    typed_output(s, draw(s, w, d, typed_input(s, TYPE_U32, 1, (const graph_dim[]){{2, 0}})));
}

static void run_on(test *t, base_heap *heap, device *d, const what *w, size_t number) {
    static const char *const names[KINDS] = {
        "bits",          "uniform",     "uniform of F16", "uniform of BF16", "normal",
        "normal of F16", "true or not", "dropped",        "normed",          "summed",
        "chosen",        "keys",        "seeded"};
    const uint32_t last = w->p->dims[w->p->rank - 1];
    if ((w->kind == CHOSEN && w->p->rank != 2) || (w->kind == OWN_KEYS && !last)) return;
    const bool loose =
        w->kind == NORMAL || w->kind == NORMAL_F16 || w->kind == NORMED || w->kind == SUMMED;
    typed_run(t, heap, d,
              &(typed_problem){.name = names[w->kind],
                               .build = build,
                               .what = w,
                               .rows = ROWS,
                               .fewer = number % 3 ? FEWER : 0,
                               .fill = TYPED_UNIT,
                               .seed = number,
                               .within = loose ? 1e-6 : 0,
                               .relative = w->kind == NORMED ? 4e-6
                                           : loose           ? 1e-6
                                                             : 0,
                               .dispatches = w->kind == DROPPED || w->kind == NORMED});
}

static void run_form(test *t, const test_form *form, size_t number) {
    base_heap heap;
    device *d = NULL;
    beryl_error error = {0};
    base_heap_init(&heap, NULL);
    const beryl_status status = test_form_open(form, &heap, &d, &error);
    const bool interprets = !strcmp(form->device, "interpreter");
    for (size_t i = 0; i < sizeof problems / sizeof *problems; i++) {
        const problem *p = &problems[i];
        if (!test_form_draws(form, i, number, p->brief) || (form->brief && !p->brief) ||
            (interprets && !strcmp(p->name, "many")) || (form->stand_in && i) ||
            !test_case(t, "random/%s/%s", form->name, p->name))
            continue;
        if (status == BERYL_NO_DEVICE) test_skip(t, "%s", error.message);
        else if (status != BERYL_OK) test_fail(t, __FILE__, __LINE__, "%s", error.message);
        for (uint64_t round = 0; status == BERYL_OK && test_form_round(t, form, d, &round);)
            for (size_t k = 0; k < KINDS && !test_failed(t); k++)
                if (test_drawn(k + i, number + (size_t)round, form->brief ? 3 : 2))
                    run_on(t, &heap, d, &(what){p, (draw_kind)k}, i + k + number + (size_t)round);
    }
    test_form_close(d);
    if (status == BERYL_OK && test_case(t, "random/%s/gives-everything-back", form->name))
        CHECK_INT(t, heap.bytes, 0);
}

void test_random(test *t);
void test_random(test *t) {
    base_heap heap;
    base_heap_init(&heap, NULL);
    if (test_case(t, "random/known-answers")) known_answers(t);
    if (test_case(t, "random/bits")) bits(t, &heap);
    if (test_case(t, "random/distributions")) distributions(t, &heap);
    if (test_case(t, "random/choices")) choices(t, &heap);
    if (test_case(t, "random/refuses")) refuses(t, &heap);
    if (test_case(t, "random/seeds-reference")) seeds(t, "reference");
    if (test_case(t, "random/seeds-software")) seeds(t, "software");
    if (test_case(t, "random/labs-give-everything-back")) CHECK_INT(t, heap.bytes, 0);
    for (size_t i = 0; i < test_form_count(); i++) run_form(t, &test_forms[i], i);
}
