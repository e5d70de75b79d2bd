/* extent.c - see graph/extent.h; and the extents of a run.
 *
 * Refuses what exceeds 32 bits at the bounds, so that the values of a run need no checks: each is
 * computed from those before it. Sizes are never below 0, which is what makes the rules for
 * quotients sound: whole multiples leave them, ceil((ceil(a / m) + b) / n) is ceil((a + m * b) / (m
 * * n)), and divisor and factors are divided by what they share. */
#include "graph/extent.h"
#include "base/error.h"

#include <string.h>

enum { NAME_MAX = 1000 /* extents within extents may have long ones */ };

static const graph_sum one = {1, {{1, {0}}}};

/* Gives 0. */
static uint32_t refuse(graph *g, beryl_status code, const char *what) {
    if (g->error.code == BERYL_OK) base_fail(&g->error, code, "graph: %s", what);
    return 0;
}

/* ---- order ----------------------------------------------------------------------------------- */

static int compare_numbers(uint64_t a, uint64_t b) {
    return (a > b) - (a < b);
}

static int compare_sums(const graph *g, const graph_sum *a, const graph_sum *b);

/* By what they are: given ones in their order, then quotients. No two are alike, so that of each
 * level only the first difference is looked into. */
static int compare_extents(const graph *g, uint32_t a, uint32_t b) {
    const graph_extent *x = &g->extents[a], *y = &g->extents[b];
    if (a == b) return 0;
    if (!x->divisor || !y->divisor)
        return x->divisor || y->divisor ? compare_numbers(x->divisor, y->divisor)
                                        : compare_numbers(a, b);
    const int order = compare_numbers(x->divisor, y->divisor);
    return order ? order : compare_sums(g, &x->sum, &y->sum);
}

/* Of their extents alone; a constant is behind all others. */
static int compare_terms(const graph *g, const graph_term *a, const graph_term *b) {
    int order = 0;
    for (uint32_t i = 0; !order && i < GRAPH_FACTOR_MAX; i++)
        order = a->of[i] && b->of[i] ? compare_extents(g, a->of[i], b->of[i])
                                     : compare_numbers(!a->of[i], !b->of[i]);
    return order;
}

static int compare_sums(const graph *g, const graph_sum *a, const graph_sum *b) {
    int order = 0;
    for (uint32_t i = 0; !order && i < a->n && i < b->n; i++) {
        order = compare_terms(g, &a->term[i], &b->term[i]);
        if (!order) order = compare_numbers(a->term[i].times, b->term[i].times);
    }
    return order ? order : compare_numbers(a->n, b->n);
}

/* ---- sums ------------------------------------------------------------------------------------ */

bool graph_sum_equal(const graph_sum *a, const graph_sum *b) {
    return a->n == b->n && memcmp(a->term, b->term, a->n * sizeof *a->term) == 0;
}

static bool is_constant(const graph_term *t) {
    return !t->of[0];
}

/* The extent that a term is, 0: it is not just one. */
static uint32_t extent_of(const graph_term *t) {
    return t->times == 1 && !t->of[1] ? t->of[0] : 0;
}

bool graph_sum_of(const graph *g, graph_dim d, graph_sum *out) {
    if (d.extent > g->n_extent) return false;
    *out = (graph_sum){0};
    if (d.extent && g->extents[d.extent].divisor == 1) *out = g->extents[d.extent].sum;
    else if (d.extent) *out = (graph_sum){1, {{1, {d.extent}}}};
    else if (d.size) *out = (graph_sum){1, {{d.size, {0}}}};
    return true;
}

bool graph_sum_subtract(graph_sum *a, uint32_t size) {
    if (!size) return true;
    for (uint32_t i = 0; i < a->n; i++) {
        graph_term *term = &a->term[i];
        if (!is_constant(term)) continue;
        if (term->times < size) return false;
        term->times -= size;
        if (!term->times) {
            a->n--;
            memmove(term, term + 1, (a->n - i) * sizeof *term);
        }
        return true;
    }
    return false;
}

bool graph_sum_add(const graph *g, graph_sum *a, const graph_sum *b) {
    graph_sum sum = {0};
    for (uint32_t i = 0, k = 0; i < a->n || k < b->n;) {
        const int order = i == a->n   ? 1
                          : k == b->n ? -1
                                      : compare_terms(g, &a->term[i], &b->term[k]);
        if (sum.n == GRAPH_TERM_MAX) return false;
        graph_term *to = &sum.term[sum.n++];
        *to = order > 0 ? b->term[k] : a->term[i];
        if (!order && to->times > UINT32_MAX - b->term[k].times) return false;
        if (!order) to->times += b->term[k].times;
        i += order <= 0;
        k += order >= 0;
    }
    *a = sum;
    return true;
}

static bool times_term(const graph *g, const graph_term *a, const graph_term *b, graph_term *out) {
    uint32_t n = 0, i = 0, k = 0;
    const uint64_t times = (uint64_t)a->times * b->times;
    *out = (graph_term){(uint32_t)times, {0}};
    for (;;) {
        const uint32_t x = i < GRAPH_FACTOR_MAX ? a->of[i] : 0,
                       y = k < GRAPH_FACTOR_MAX ? b->of[k] : 0;
        if (!x && !y) return times <= UINT32_MAX;
        if (n == GRAPH_FACTOR_MAX) return false;
        const bool first = x && (!y || compare_extents(g, x, y) <= 0);
        out->of[n++] = (uint8_t)(first ? x : y);
        i += first;
        k += !first;
    }
}

bool graph_sum_times(const graph *g, graph_sum *a, const graph_sum *b) {
    graph_sum sum = {0};
    for (uint32_t i = 0; i < a->n; i++)
        for (uint32_t k = 0; k < b->n; k++) {
            graph_sum more = {.n = 1};
            if (!times_term(g, &a->term[i], &b->term[k], &more.term[0]) ||
                !graph_sum_add(g, &sum, &more))
                return false;
        }
    *a = sum;
    return true;
}

/* values NULL: at the bounds. false: more than 32 bits, which no run has where the bounds have
 * not. */
static bool value_of(const graph *g, const graph_sum *a, const uint32_t *values, uint32_t *out) {
    uint64_t sum = 0;
    for (uint32_t i = 0; i < a->n; i++) {
        uint64_t n = a->term[i].times;
        for (uint32_t k = 0; k < GRAPH_FACTOR_MAX && a->term[i].of[k] && n <= UINT32_MAX; k++)
            n *= values ? values[a->term[i].of[k]] : g->extents[a->term[i].of[k]].bound;
        sum += n;
        if (n > UINT32_MAX || sum > UINT32_MAX) return false;
    }
    *out = (uint32_t)sum;
    return true;
}

static uint32_t quotient(uint32_t a, uint32_t divisor) {
    return a / divisor + (a % divisor != 0);
}

/* ---- extents --------------------------------------------------------------------------------- */

void graph_sum_refuse(graph *g) {
    if (g->error.code == BERYL_OK)
        base_fail(&g->error, BERYL_UNSUPPORTED,
                  "graph: an extent that may be above 2^32 - 1, or an expression too long: more "
                  "than %d terms or %d factors",
                  GRAPH_TERM_MAX, GRAPH_FACTOR_MAX);
}

static uint32_t refuse_more(graph *g) {
    if (g->error.code == BERYL_OK)
        base_fail(&g->error, BERYL_UNSUPPORTED, "graph: more than %d extents", GRAPH_EXTENT_MAX);
    return 0;
}

uint8_t graph_extent_add(graph *g, const char *name, uint32_t bound) {
    if (!bound) return (uint8_t)refuse(g, BERYL_MISUSE, "an extent with a bound of 0");
    if (g->n_extent == GRAPH_EXTENT_MAX) return (uint8_t)refuse_more(g);
    g->extents[++g->n_extent] = (graph_extent){.name = name, .bound = bound};
    return (uint8_t)g->n_extent;
}

/* That is ceil(a / divisor); 0: the graph has an error. */
static uint32_t derived(graph *g, const graph_sum *a, uint32_t divisor) {
    uint32_t bound;
    for (uint32_t i = 1; i <= g->n_extent; i++)
        if (g->extents[i].divisor == divisor && graph_sum_equal(&g->extents[i].sum, a)) return i;
    if (!value_of(g, a, NULL, &bound)) return graph_sum_refuse(g), 0;
    if (g->n_extent == GRAPH_EXTENT_MAX) return refuse_more(g);
    graph_extent *e = &g->extents[g->n_extent + 1];
    *e = (graph_extent){
        .name = "", .bound = quotient(bound, divisor), .divisor = divisor, .sum = *a};
    base_text text;
    base_text_init(&text, g->heap);
    graph_extent_print(g, g->n_extent + 1, &text);
    const bool fits = text.size <= NAME_MAX;
    e->name = text.failed || !fits ? NULL : base_arena_text(&g->arena, text.data, text.size);
    base_text_fini(&text);
    if (!fits) return graph_sum_refuse(g), 0;
    return e->name ? ++g->n_extent : refuse(g, BERYL_NO_MEMORY, "out of memory");
}

/* Where a term is a quotient itself: both as one. false: none is, or it does not fit. */
static bool joins(const graph *g, graph_sum *a, uint32_t *divisor) {
    for (uint32_t i = 0; i < a->n; i++) {
        const graph_extent *inner = &g->extents[extent_of(&a->term[i])];
        if (inner->divisor < 2 || *divisor > UINT32_MAX / inner->divisor) continue;
        graph_sum sum = {0};
        for (uint32_t k = 0; k < a->n; k++)
            if (k != i) sum.term[sum.n++] = a->term[k];
        if (!graph_sum_times(g, &sum, &(graph_sum){1, {{inner->divisor, {0}}}}) ||
            !graph_sum_add(g, &sum, &inner->sum))
            continue;
        *a = sum;
        *divisor *= inner->divisor;
        return true;
    }
    return false;
}

static uint32_t common(uint32_t a, uint32_t b) {
    while (b) {
        const uint32_t rest = a % b;
        a = b;
        b = rest;
    }
    return a;
}

bool graph_sum_quotient(graph *g, graph_sum *a, uint32_t divisor) {
    graph_sum whole = {0}, rest;
    if (!divisor) return refuse(g, BERYL_MISUSE, "an extent divided by 0");
    do {
        graph_sum more = {0};
        uint32_t shared = divisor;
        rest = (graph_sum){0};
        for (uint32_t i = 0; i < a->n; i++) {
            graph_term t = a->term[i];
            t.times = a->term[i].times / divisor;
            if (t.times) more.term[more.n++] = t;
            t.times = a->term[i].times % divisor;
            if (t.times) rest.term[rest.n++] = t;
            shared = common(shared, t.times);
        }
        for (uint32_t i = 0; i < rest.n; i++) rest.term[i].times /= shared;
        divisor /= shared;
        if (!graph_sum_add(g, &whole, &more)) return graph_sum_refuse(g), false;
        *a = rest;
    } while (joins(g, a, &divisor));
    graph_sum last = {0};
    if (a->n && is_constant(&a->term[0])) last = one;
    else if (a->n) {
        const uint32_t extent = derived(g, a, divisor);
        if (!extent) return false;
        last = (graph_sum){1, {{1, {(uint8_t)extent}}}};
    }
    *a = whole;
    if (!graph_sum_add(g, a, &last)) return graph_sum_refuse(g), false;
    return true;
}

graph_dim graph_sum_dim(graph *g, const graph_sum *a) {
    uint32_t extent = a->n == 1 ? extent_of(&a->term[0]) : 0;
    if (!a->n) refuse(g, BERYL_MISUSE, "a dimension of 0");
    else if (is_constant(&a->term[0])) return (graph_dim){a->term[0].times, 0};
    else if (!extent) extent = derived(g, a, 1);
    return extent ? (graph_dim){g->extents[extent].bound, (uint8_t)extent} : (graph_dim){0, 0};
}

/* ---- dimensions ------------------------------------------------------------------------------ */

static bool given(graph *g, graph_dim a, graph_sum *out) {
    if (g->error.code != BERYL_OK) return false;
    if (graph_sum_of(g, a, out)) return true;
    return refuse(g, BERYL_MISUSE, "a dimension with an extent of another graph");
}

static graph_dim joined(graph *g, graph_dim a, graph_dim b,
                        bool join(const graph *, graph_sum *, const graph_sum *)) {
    graph_sum x, y;
    if (!given(g, a, &x) || !given(g, b, &y)) return (graph_dim){0, 0};
    if (join(g, &x, &y)) return graph_sum_dim(g, &x);
    graph_sum_refuse(g);
    return (graph_dim){0, 0};
}

graph_dim graph_dim_sum(graph *g, graph_dim a, graph_dim b) {
    return joined(g, a, b, graph_sum_add);
}

graph_dim graph_dim_product(graph *g, graph_dim a, graph_dim b) {
    return joined(g, a, b, graph_sum_times);
}

graph_dim graph_dim_quotient(graph *g, graph_dim a, uint32_t divisor) {
    graph_sum x;
    return given(g, a, &x) && graph_sum_quotient(g, &x, divisor) ? graph_sum_dim(g, &x)
                                                                 : (graph_dim){0, 0};
}

/* ---- runs ------------------------------------------------------------------------------------ */

beryl_status graph_extent_values(const graph *g, const uint32_t *extents, uint32_t *values,
                                 beryl_error *error) {
    for (uint32_t i = 1; i <= g->n_extent; i++) {
        const graph_extent *e = &g->extents[i];
        if (!e->divisor) values[i] = extents[i];
        else if (value_of(g, &e->sum, values, &values[i]))
            values[i] = quotient(values[i], e->divisor);
        if (values[i] > e->bound)
            return base_fail(error, BERYL_MISUSE, "extent '%s' is %u, its bound %u", e->name,
                             values[i], e->bound);
    }
    return BERYL_OK;
}

uint32_t graph_extents_empty(const graph *g, const uint32_t *values) {
    uint32_t mask = 0;
    for (uint32_t i = 1; i <= g->n_extent; i++) mask |= (uint32_t)!values[i] << (i - 1);
    return mask;
}

static uint32_t extents_in(const graph_tensor *t) {
    uint32_t mask = 0;
    for (uint32_t i = 0; i < t->rank; i++)
        if (t->dim[i].extent) mask |= UINT32_C(1) << (t->dim[i].extent - 1);
    return mask;
}

uint32_t graph_node_needs(const graph *g, const graph_node *node) {
    const graph_node *inner = node->op == OP_FUSED ? &g->inner.data[node->attr.fused.first] : node;
    const uint32_t n = node->op == OP_FUSED ? node->attr.fused.count : 1;
    uint32_t mask = UINT32_MAX;
    for (uint32_t i = 0; i < node->n_out; i++) {
        const graph_tensor *t = graph_tensor_at(g, node->out[i]);
        if (t->role != ROLE_STORED) mask &= extents_in(t);
    }
    for (uint32_t i = 0; i < n; i++)
        if (base_ops[inner[i].op].facts & OP_IS_IN_PLACE)
            mask &= extents_in(graph_tensor_at(g, inner[i].in[1]));
    return mask;
}

/* ---- text ------------------------------------------------------------------------------------ */

static bool is_word_char(char c, bool first) {
    return (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || c == '_' ||
           (!first && c >= '0' && c <= '9');
}

bool graph_extent_is_word(base_view name) {
    bool good = name.size > 0;
    for (size_t i = 0; i < name.size; i++) good = good && is_word_char(name.data[i], i == 0);
    return good;
}

/* A word that no extent before has. */
static bool can_name(const graph *g, uint32_t extent) {
    const char *name = g->extents[extent].name;
    bool good = name && graph_extent_is_word(base_view_of(name));
    for (uint32_t i = 1; good && i < extent; i++)
        good = !g->extents[i].name || strcmp(g->extents[i].name, name) != 0;
    return good;
}

static void print_term(const graph *g, const graph_term *t, base_text *out) {
    if (t->times != 1 || is_constant(t)) base_text_print(out, "%u", t->times);
    for (uint32_t i = 0; i < GRAPH_FACTOR_MAX && t->of[i]; i++) {
        if (i || t->times != 1) base_text_add(out, "*", 1);
        graph_extent_print(g, t->of[i], out);
    }
}

void graph_extent_print(const graph *g, uint32_t extent, base_text *out) {
    const graph_extent *e = &g->extents[extent];
    if (e->divisor > 1) base_text_print(out, e->sum.n > 1 ? "ceil((" : "ceil(");
    for (uint32_t i = 0; i < e->sum.n; i++) {
        if (i) base_text_add(out, "+", 1);
        print_term(g, &e->sum.term[i], out);
    }
    if (e->divisor > 1) base_text_print(out, e->sum.n > 1 ? ")/%u)" : "/%u)", e->divisor);
    if (e->divisor) return;
    if (can_name(g, extent)) base_text_print(out, "%s", e->name);
    else base_text_print(out, "extent_%u", extent);
}
