/* recurrent_test.c - layers with a state, and losses. On the reference functions against the plain
 * recurrences and formulas that are written here, in double; on every device against the reference
 * functions, for all types. */
#include "forms.h"
#include "typed.h"

#include "beryl_nn.h"
#include "graph/reference.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { BATCH = 3, FEWER = 2, IN_MAX = 7 };

typedef enum kind { SCAN, DELTA, LOSS, NLL, TRIPLET } kind;

typedef struct problem {
    const char *name;
    kind kind;
    uint32_t t, e, n; /* of DELTA: steps, keys, values; of losses: rows, classes, a loss's kind */
    bool first, d, steps; /* steps: they are the extent, not the batch */
    bool brief;
} problem;

static const problem problems[] = {
    {"scan", SCAN, 13, 5, 4, false, false, false, false},
    {"scan-all", SCAN, 8, 3, 2, true, true, false, false},
    {"scan-of-one", SCAN, 1, 1, 1, true, true, false, false},
    {"scan-two", SCAN, 2, 7, 3, true, false, false, false},
    {"scan-long", SCAN, 517, 2, 3, true, true, false, false},
    {"scan-of-a-run", SCAN, 11, 3, 2, true, true, true, true},
    {"delta", DELTA, 21, 4, 6, false, false, false, false},
    {"delta-short", DELTA, 3, 4, 6, false, false, false, true},
    {"delta-all", DELTA, 64, 8, 5, true, false, false, false},
    {"delta-of-one", DELTA, 1, 1, 1, true, false, false, false},
    {"delta-chunks", DELTA, 150, 6, 3, true, false, false, false},
    {"delta-five-chunks", DELTA, 257, 3, 4, false, false, false, false},
    {"mse", LOSS, 5, 7, LOSS_MSE, false, false, false, false},
    {"l1", LOSS, 5, 7, LOSS_L1, false, false, false, false},
    {"huber", LOSS, 5, 7, LOSS_HUBER, false, false, false, false},
    {"bce", LOSS, 5, 7, LOSS_BCE, false, false, false, false},
    {"kl", LOSS, 5, 7, LOSS_KL, false, false, false, false},
    {"cosine", LOSS, 5, 7, LOSS_COSINE, false, false, false, true},
    {"nll", NLL, 5, 7, 0, false, false, false, false},
    {"triplet", TRIPLET, 5, 7, 0, false, false, false, false},
};
enum { PROBLEMS = sizeof problems / sizeof *problems };

/* ---- building -------------------------------------------------------------------------------- */

typedef graph_value give_input(void *user, base_type type, uint32_t rank, const graph_dim *dims);

/* Of numbers in -1 .. 1 rates below 0, steps above 0: decays. */
static graph_value below(graph *g, graph_value x) {
    return graph_neg(g, graph_square(g, x));
}

static graph_value make(graph *g, give_input *give, void *user, const problem *p, base_type type,
                        graph_value *last) {
    const graph_dim b = {BATCH, p->steps ? 0 : 1}, t = {p->t, p->steps ? 1 : 0}, e = {p->e, 0},
                    n = {p->n, 0}, rows = {p->t, 0};
    const graph_dim x[] = {b, t, e}, rates[] = {e, n}, states[] = {b, t, n}, first[] = {b, e, n},
                    loss[] = {b, rows, e}, classes[] = {b, e};
    *last = 0;
    switch (p->kind) {
    case SCAN: {
        graph_selective s = {.x = give(user, type, 3, x), .dt = give(user, type, 3, x)};
        s.dt = graph_square(g, s.dt);
        s.a = below(g, give(user, type, 2, rates));
        s.b = give(user, type, 3, states);
        s.c = give(user, type, 3, states);
        if (p->d) s.d = give(user, type, 1, &e);
        if (p->first) s.first = give(user, type, 3, first);
        return graph_selective_scan(g, &s, p->steps ? NULL : last);
    }
    case DELTA: {
        graph_delta d = {.q = give(user, type, 3, x), .k = give(user, type, 3, x)};
        d.k = graph_l2_norm(g, d.k, 2, 1e-6f);
        d.v = give(user, type, 3, states);
        d.decay = below(g, give(user, type, 2, x));
        d.beta = graph_sigmoid(g, give(user, type, 2, x));
        if (p->first) d.first = give(user, type, 3, first);
        return graph_gated_delta(g, &d, last);
    }
    case LOSS: {
        graph_value v = give(user, type, 3, loss), target = give(user, type, 3, loss);
        if (p->n == LOSS_KL) target = graph_relu(g, target);
        return graph_loss(g, (graph_loss_kind)p->n, v, target, 0.5f);
    }
    case NLL: {
        const graph_value v = give(user, type, 2, classes),
                          order = graph_iota(g, give(user, TYPE_F32, 1, &b), 0);
        /* the last of them is no class */
        return graph_nll(g, v, graph_sub(g, graph_clamp(g, order, 1, 1), order));
    }
    case TRIPLET: {
        const graph_value a = give(user, type, 3, loss), same = give(user, type, 3, loss);
        return graph_triplet(g, a, same, give(user, type, 3, loss), 0.25f);
    }
    }
    return 0;
}

/* ---- what they are --------------------------------------------------------------------------- */

static double number_at(uint32_t input, uint32_t i) {
    return (double)(float)(sin(1 + i * 1.7 + input * 5.3 + i / 11 * 0.3) * 0.95);
}

static double decay_at(uint32_t input, uint32_t i) {
    return -number_at(input, i) * number_at(input, i);
}

/* out [t, e] and the state [e, n] after it, of batch b. */
static void scan_plainly(const problem *p, uint32_t b, uint32_t steps, double *out, double *h) {
    for (uint32_t e = 0; e < p->e; e++)
        for (uint32_t n = 0; n < p->n; n++)
            h[e * p->n + n] = p->first ? number_at(p->d ? 6 : 5, (b * p->e + e) * p->n + n) : 0;
    for (uint32_t t = 0; t < steps; t++)
        for (uint32_t e = 0; e < p->e; e++) {
            const uint32_t at = (b * p->t + t) * p->e + e;
            const double x = number_at(0, at), dt = number_at(1, at) * number_at(1, at);
            double sum = p->d ? number_at(5, e) * x : 0;
            for (uint32_t n = 0; n < p->n; n++) {
                const uint32_t to = e * p->n + n, of = (b * p->t + t) * p->n + n;
                h[to] = exp(dt * decay_at(2, to)) * h[to] + dt * number_at(3, of) * x;
                sum += number_at(4, of) * h[to];
            }
            out[t * p->e + e] = sum;
        }
}

static void delta_plainly(const problem *p, uint32_t b, double *out, double *s) {
    const uint32_t d = p->e, f = p->n;
    double *k = calloc(d, sizeof *k);
    for (uint32_t i = 0; i < d * f; i++) s[i] = p->first ? number_at(5, b * d * f + i) : 0;
    for (uint32_t t = 0; k && t < p->t; t++) {
        const uint32_t row = b * p->t + t;
        const double keep = exp(decay_at(3, row)), beta = 1 / (1 + exp(-number_at(4, row)));
        double squares = 1e-6;
        for (uint32_t i = 0; i < d; i++)
            squares += number_at(1, row * d + i) * number_at(1, row * d + i);
        for (uint32_t i = 0; i < d; i++) k[i] = number_at(1, row * d + i) / sqrt(squares);
        for (uint32_t j = 0; j < f; j++) {
            double held = 0, sum = 0;
            for (uint32_t i = 0; i < d; i++) held += (s[i * f + j] *= keep) * k[i];
            for (uint32_t i = 0; i < d; i++) {
                s[i * f + j] += beta * k[i] * (number_at(2, row * f + j) - held);
                sum += s[i * f + j] * number_at(0, row * d + i);
            }
            out[t * f + j] = sum;
        }
    }
    free(k);
}

static double loss_of(uint32_t of, double x, double y) {
    const double a = fabs(x - y);
    switch (of) {
    case LOSS_MSE: return a * a;
    case LOSS_L1: return a;
    case LOSS_HUBER: return a < 0.5 ? a * a / 2 : 0.5 * (a - 0.25);
    case LOSS_BCE: return -y * log(1 / (1 + exp(-x))) - (1 - y) * log(1 - 1 / (1 + exp(-x)));
    default: return y > 0 ? y * (log(y) - x) : 0;
    }
}

static double loss_plainly(const problem *p, uint32_t i) {
    const uint32_t e = p->e;
    double xy = 0, xx = 0, yy = 0, near = 0, far = 0;
    if (p->kind == NLL) return i < 2 ? -number_at(0, i * e + 1 - i) : 0;
    for (uint32_t k = i * e; k < (i + 1) * e; k++) {
        const double x = number_at(0, k), y = number_at(1, k), z = number_at(2, k);
        xy += x * y, xx += x * x, yy += y * y;
        near += (x - y + 1e-6) * (x - y + 1e-6), far += (x - z + 1e-6) * (x - z + 1e-6);
    }
    if (p->kind == TRIPLET) return fmax(0, sqrt(near) - sqrt(far) + 0.25);
    if (p->n == LOSS_COSINE) return 1 - xy / sqrt(xx * yy);
    const double y = number_at(1, i);
    return loss_of(p->n, number_at(0, i), p->n == LOSS_KL ? fmax(y, 0) : y);
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

/* In double too, so that what is left is the form's own error. */
static void compare(test *t, const problem *p, uint32_t steps, const double *got,
                    const double *last) {
    const uint32_t width = p->kind == SCAN ? p->e : p->n;
    double *want = calloc((size_t)p->t * 16, sizeof *want), *state = calloc(256, sizeof *state);
    for (uint32_t b = 0; want && state && b < BATCH && p->kind <= DELTA; b++) {
        if (p->kind == SCAN) scan_plainly(p, b, steps, want, state);
        else delta_plainly(p, b, want, state);
        for (uint32_t i = 0; !test_failed(t) && i < steps * width; i++)
            CHECK_NEAR(t, got[b * p->t * width + i], want[i], 1e-7 * (1 + fabs(want[i])));
        for (uint32_t i = 0; last && !test_failed(t) && i < p->e * p->n; i++)
            CHECK_NEAR(t, last[b * p->e * p->n + i], state[i], 1e-7 * (1 + fabs(state[i])));
    }
    const uint32_t rows = p->kind == NLL ? BATCH : BATCH * p->t,
                   n = p->kind == LOSS && p->n != LOSS_COSINE ? rows * p->e : rows;
    for (uint32_t i = 0; p->kind > DELTA && !test_failed(t) && i < n; i++)
        CHECK_NEAR(t, got[i], loss_plainly(p, i), 1e-7);
    free(want);
    free(state);
}

static void means(test *t, base_heap *heap, const problem *p, uint32_t run) {
    lab l = {.g = graph_open(heap)};
    graph_store store;
    graph_reference *r = NULL;
    graph_value last;
    beryl_error error = {0};
    store_init(&store, heap, NULL, NULL, 0, NULL);
    graph_extent_add(l.g, "n", p->steps ? p->t : BATCH);
    const graph_value y = graph_copy(l.g, make(l.g, lab_input, &l, p, TYPE_F64, &last)),
                      state = last ? graph_copy(l.g, last) : 0;
    graph_output(l.g, y, "y");
    if (state) graph_output(l.g, state, "last");
    beryl_status status = graph_status(l.g, &error);
    if (status == BERYL_OK) status = graph_reference_open(l.g, &store, &r, &error);
    for (uint32_t i = 0; status == BERYL_OK && i < l.n_in; i++) {
        const graph_tensor *x = graph_tensor_at(l.g, l.in[i]);
        void *to = graph_reference_input(r, l.in[i]);
        for (uint32_t k = 0; k < graph_element_bound(x); k++) {
            if (x->type == TYPE_F32) ((float *)to)[k] = (float)number_at(i, k);
            else ((double *)to)[k] = number_at(i, k);
        }
    }
    if (status == BERYL_OK)
        status = graph_reference_run(r, (uint32_t[GRAPH_EXTENT_MAX + 1]){0, run}, &error);
    if (status != BERYL_OK) test_fail(t, __FILE__, __LINE__, "%s", error.message);
    else
        compare(t, p, p->steps ? run : p->t, graph_reference_value(r, y),
                state ? graph_reference_value(r, state) : NULL);
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
    graph_value last;
    const graph_value y = make(s->g, side_give, s, w->p, w->type, &last);
    typed_output(s, graph_tensor_at(s->g, y)->base ? graph_copy(s->g, y) : y);
    if (last) typed_output(s, graph_copy(s->g, last));
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
        if ((form->brief && !p->brief) || (form->stand_in && i) ||
            p->t > (interprets ? 100 : 160) ||
            !test_case(t, "recurrent/%s/%s", form->name, p->name))
            continue;
        if (status == BERYL_NO_DEVICE) test_skip(t, "%s", error.message);
        else if (status != BERYL_OK) test_fail(t, __FILE__, __LINE__, "%s", error.message);
        for (uint64_t round = 0; status == BERYL_OK && test_form_round(t, form, d, &round);)
            for (size_t k = 0; k < 3 && !test_failed(t); k++) {
                char name[80];
                if (k != (i + number + (size_t)round) % 3) continue;
                const what w = {p, types[k]};
                snprintf(name, sizeof name, "%s of %s", p->name, base_type_name(types[k]));
                typed_run(t, &heap, d,
                          &(typed_problem){.name = name,
                                           .build = build,
                                           .what = &w,
                                           .rows = p->steps ? p->t : BATCH,
                                           .fewer = p->steps ? p->t / 2 : FEWER,
                                           .fill = TYPED_UNIT,
                                           .seed = i + number + (size_t)round,
                                           /* sums of some hundred terms; of halves also what the
                                            * inputs are made of is rounded on the way */
                                           .within = types[k] == TYPE_BF16  ? 2e-2
                                                     : types[k] == TYPE_F16 ? 3e-3
                                                                            : 5e-5,
                                           .relative = 1e-5});
            }
    }
    test_form_close(d);
    if (status == BERYL_OK && test_case(t, "recurrent/%s/gives-everything-back", form->name))
        CHECK_INT(t, heap.bytes, 0);
}

/* ---- what is refused ------------------------------------------------------------------------- */

static void refuses(test *t) {
    static const struct {
        const char *message;
        beryl_status status;
    } refused[] = {
        {"selective_scan: input 1 is F32[3, 4], not floats [4, 3]", BERYL_MISUSE},
        {"selective_scan: the last state of steps that a run sizes", BERYL_UNSUPPORTED},
        {"gated_delta: input 3 is F32[4, 3], not floats [4]", BERYL_MISUSE},
        {"gated_delta: steps or sizes of keys that a run says", BERYL_UNSUPPORTED},
        {"mse of [4, 3] and [3, 4]", BERYL_MISUSE},
        {"huber: delta is above 0", BERYL_MISUSE},
        {"nll of [4, 3] and targets [4, 3]", BERYL_MISUSE},
        {"triplet of [4, 3] and [3, 4]", BERYL_MISUSE},
        {"loss: no such kind", BERYL_MISUSE},
    };
    for (size_t i = 0; i < sizeof refused / sizeof *refused; i++) {
        const beryl_graph_options options = {.size = sizeof options, .device = "reference"};
        beryl_graph *g = NULL;
        beryl_error error = {0};
        beryl_value last;
        CHECK_INT(t, beryl_graph_open(&options, &g, &error), BERYL_OK);
        const beryl_dim four[] = {{4, 0}, {3, 0}}, three[] = {{3, 0}, {4, 0}},
                        some[] = {{4, beryl_graph_extent(g, "n", 4)}, {3, 0}};
        const beryl_value x = beryl_graph_input(g, "x", BERYL_TYPE_F32, 2, four),
                          y = beryl_graph_input(g, "y", BERYL_TYPE_F32, 2, three),
                          a = beryl_graph_input(g, "a", BERYL_TYPE_F32, 2,
                                                (const beryl_dim[]){{3, 0}, {3, 0}}),
                          n = beryl_graph_input(g, "n", BERYL_TYPE_F32, 2, some),
                          r = beryl_graph_input(g, "r", BERYL_TYPE_F32, 1, some);
        switch (i) {
        case 0:
            last =
                beryl_graph_selective_scan(g, &(beryl_selective_scan){x, y, a, x, x, 0, 0}, NULL);
            break;
        case 1:
            beryl_graph_selective_scan(g, &(beryl_selective_scan){n, n, a, n, n, 0, 0}, &last);
            break;
        case 2:
            last = beryl_graph_gated_delta(g, &(beryl_gated_delta){x, x, x, x, x, 0}, NULL);
            break;
        case 3: beryl_graph_gated_delta(g, &(beryl_gated_delta){n, n, n, r, r, 0}, &last); break;
        case 4: last = beryl_graph_loss(g, BERYL_LOSS_MSE, x, y, 0); break;
        case 5: last = beryl_graph_loss(g, BERYL_LOSS_HUBER, x, x, 0); break;
        case 6: last = beryl_graph_nll(g, x, x); break;
        case 7: last = beryl_graph_triplet(g, x, y, x, 1); break;
        default: last = beryl_graph_loss(g, (beryl_loss)77, x, x, 0); break;
        }
        CHECK_INT(t, last, 0);
        CHECK_INT(t, beryl_graph_compile(g, &error), refused[i].status);
        if (!strstr(error.message, refused[i].message))
            test_fail(t, __FILE__, __LINE__, "'%s', not '%s'", error.message, refused[i].message);
        beryl_graph_close(g);
    }
}

void test_recurrent(test *t);
void test_recurrent(test *t) {
    base_heap heap;
    base_heap_init(&heap, NULL);
    for (size_t i = 0; i < PROBLEMS; i++) {
        const problem *p = &problems[i];
        if (!test_case(t, "recurrent/%s", p->name)) continue;
        means(t, &heap, p, p->steps ? p->t : BATCH);
        if (p->steps && !test_failed(t)) means(t, &heap, p, p->t / 3);
    }
    if (test_case(t, "recurrent/refuses")) refuses(t);
    if (test_case(t, "recurrent/labs-give-everything-back")) CHECK_INT(t, heap.bytes, 0);
    for (size_t i = 0; i < test_form_count(); i++) run_form(t, &test_forms[i], i);
}
