/* graph_judge.c - see graph_judge.h.
 *
 * u is half a unit in the last place of f32: what rounding once may do. The reference rounds as
 * the device does, and where what went in differs, one may round up and the other down: 2 u a
 * rounding. Sums of n products are off by (8 + 4 sqrt(n)) u times the sum of their sizes:
 * roundings are as good as random, so they add up like a walk; 4 steps of its deviation and what
 * trees and splits add. The other numbers are those of ops_test.c, for the same reasons. */
#include "graph_judge.h"

#include "graph/reference.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

#define U 0x1p-24
#define ROUNDED (2 * U)
#define TINY 1e-36 /* numbers below the normal ones may be zero on a device */

typedef struct cell { /* of a base tensor */
    size_t n;
    void *data;    // [n] 4 bytes each; NULL: a stored tensor of another type than F32 and I32
    float *value;  // [n], of stored tensors of other types: what they mean
    double *bound; // [n]
    bool owned;
} cell;

struct graph_judge {
    graph *g;
    graph_store *store;
    cell *cells; // [tensors]
    size_t n;
};

typedef struct operand { /* at the view's offset */
    reference_tensor ref;
    float *value;
    int32_t *whole;
    double *bound;
} operand;

typedef struct work {
    graph_judge *j;
    const graph_node *node;
    operand in[GRAPH_IN_MAX], out[GRAPH_OUT_MAX];
} work;

static double sum_error(double n) {
    return (8 + 4 * sqrt(n)) * U;
}

/* The larger of two bounds. What is not a number bounds nothing, where fmax would pass it over. */
static double wider(double a, double b) {
    return b != b ? INFINITY : a > b ? a : b;
}

/* ---- memory ---------------------------------------------------------------------------------- */

/* What a stored tensor of a rounded type means, and for weights how exact a kernel reads it. */
static bool read_stored(graph_judge *j, cell *c, const store_tensor *s) {
    const uint32_t row = s->dim[s->rank - 1];
    const uint64_t bytes = base_type_row_bytes(s->type, row);
    for (uint64_t r = 0; r < c->n / row; r++) {
        if (s->is_state) {
            base_dequantise(s->type, (const char *)s->host + r * bytes, c->value + r * row, row);
            continue;
        }
        if (store_read_elements(j->store, (uint32_t)(s - j->store->tensors.data), r * row, row,
                                c->value + r * row, NULL) != BERYL_OK)
            return false;
        double most = 0;
        for (uint32_t i = 0; i < row; i++) most = fmax(most, fabs((double)c->value[r * row + i]));
        /* scale * q - least */
        for (uint32_t i = 0; i < row && base_type_is_quantised(s->type); i++)
            c->bound[r * row + i] = 8 * U * most;
    }
    return true;
}

static bool cell_open(graph_judge *j, graph_value v) {
    const graph_tensor *t = graph_tensor_at(j->g, v);
    cell *c = &j->cells[v];
    if (t->base) return true;
    c->n = (size_t)graph_element_bound(t);
    c->bound = calloc(c->n, sizeof *c->bound);
    if (!c->bound) return false;
    const store_tensor *s = t->role == ROLE_STORED ? &j->store->tensors.data[t->stored] : NULL;
    const bool plain = t->type == TYPE_F32 || t->type == TYPE_I32 || t->type == TYPE_U32;
    if (s && plain) {
        const void *data = s->host;
        if (!s->is_state && store_host_weight(j->store, t->stored, &data, NULL) != BERYL_OK)
            return false;
        c->value = c->data = (void *)(uintptr_t)data;
        return c->data != NULL;
    }
    c->value = calloc(c->n, sizeof *c->value);
    c->owned = true;
    if (!s) c->data = c->value;
    return c->value && (!s || read_stored(j, c, s));
}

graph_judge *graph_judge_open(graph *g, graph_store *store) {
    graph_judge *j = calloc(1, sizeof *j);
    if (!j) return NULL;
    *j = (graph_judge){.g = g, .store = store, .n = g->tensors.count};
    j->cells = calloc(j->n, sizeof *j->cells);
    bool ok = j->cells != NULL;
    for (graph_value v = 1; ok && v < j->n; v++) ok = cell_open(j, v);
    if (ok) return j;
    graph_judge_close(j);
    return NULL;
}

void graph_judge_close(graph_judge *j) {
    for (size_t v = 0; j && j->cells && v < j->n; v++) {
        free(j->cells[v].bound);
        if (j->cells[v].owned) free(j->cells[v].value);
    }
    if (j) free(j->cells);
    free(j);
}

void *graph_judge_input(graph_judge *j, graph_value input) {
    return j->cells[input].data;
}

const void *graph_judge_value(const graph_judge *j, graph_value v) {
    return j->cells[v].data;
}

const double *graph_judge_bound(const graph_judge *j, graph_value v) {
    return j->cells[v].bound;
}

/* ---- access ---------------------------------------------------------------------------------- */

static uint64_t count_of(const operand *x) {
    uint64_t n = 1;
    for (uint32_t i = 0; i < x->ref.t->rank; i++) n *= x->ref.dim[i];
    return n;
}

static uint32_t row_of(const operand *x) {
    return x->ref.t->rank ? x->ref.dim[x->ref.t->rank - 1] : 1;
}

/* Offset of element `index` of `shape` in x, broadcast from the right. */
static int64_t at(const operand *x, const operand *shape, uint64_t index) {
    int64_t offset = 0;
    const uint32_t missing = (uint32_t)(shape->ref.t->rank - x->ref.t->rank);
    for (uint32_t i = shape->ref.t->rank; i-- > 0;) {
        const uint64_t n = shape->ref.dim[i] ? shape->ref.dim[i] : 1;
        const int64_t along = (int64_t)(index % n);
        index /= n;
        if (i >= missing && x->ref.t->dim[i - missing].size != 1)
            offset += along * graph_stride(x->ref.t, i - missing);
    }
    return offset;
}

static uint64_t rows_of(const operand *x) {
    uint64_t n = 1;
    for (uint32_t i = 0; i + 1 < x->ref.t->rank; i++) n *= x->ref.dim[i];
    return n;
}

static int64_t row_at(const operand *x, uint64_t row) {
    return at(x, x, row * (row_of(x) ? row_of(x) : 1));
}

/* From one element of a row to the next. */
static int64_t step_of(const operand *x) {
    return x->ref.t->rank ? graph_stride(x->ref.t, x->ref.t->rank - 1u) : 1;
}

static double size(float x) {
    return fabs((double)x);
}

/* ---- what each operation does to bounds ------------------------------------------------------ */

static double gelu_bound(double y, double e) {
    return 1.13 * e + 2e-6 + 4e-6 * size((float)y);
}

static double gelu(double x) {
    return 0.5 * x * (1 + tanh(0.79788456080286535588 * (x + 0.044715 * x * x * x)));
}

static void bound_pointwise(work *w) {
    const operand *a = &w->in[0], *b = &w->in[1], *out = &w->out[0];
    const double attr = (double)w->node->attr.scale.factor;
    for (uint64_t i = 0, n = count_of(out); i < n; i++) {
        const int64_t to = at(out, out, i), from = at(a, out, i),
                      other = w->node->n_in > 1 ? at(b, out, i) : 0;
        const double z = size(out->value[to]), x = size(a->value[from]), ex = a->bound[from];
        const double y = w->node->n_in > 1 ? size(b->value[other]) : 0,
                     ey = w->node->n_in > 1 ? b->bound[other] : 0;
        double e = ex;
        if (w->node->op == OP_ADD) e = ex + ey + ROUNDED * z + U * (ex + ey);
        if (w->node->op == OP_MUL) e = (x * ey + y * ex + ex * ey) * (1 + U) + ROUNDED * z;
        if (w->node->op == OP_SCALE) e = fabs(attr) * ex * (1 + U) + ROUNDED * z;
        if (w->node->op == OP_GELU_TANH) e = gelu_bound(z, ex);
        if (w->node->op == OP_SOFTCAP) e = ex + 4e-7 * fabs(attr) + 4e-6 * z;
        if (w->node->op == OP_GEGLU) {
            const double gate = gelu((double)a->value[from]), eg = gelu_bound(gate, ex);
            e = fabs(gate) * ey + y * eg + eg * ey + ROUNDED * z;
        }
        out->bound[to] = w->node->op == OP_COPY ? ex : e + TINY;
    }
}

static void place_of(const operand *out, uint64_t index, int64_t *i) {
    for (uint32_t axis = out->ref.t->rank; axis-- > 0; index /= out->ref.dim[axis])
        i[axis] = (int64_t)(index % out->ref.dim[axis]);
}

static int64_t offset_at(const operand *x, const int64_t *i) {
    int64_t offset = 0;
    for (uint32_t axis = 0; axis < x->ref.t->rank; axis++)
        offset += i[axis] * graph_stride(x->ref.t, axis);
    return offset;
}

/* Elements that are moved have the bound that they had; constants have none. */
static void bound_mapped(work *w) {
    const operand *out = &w->out[0];
    const bool triangle = w->node->op == OP_TRIL || w->node->op == OP_TRIU,
               is_pad = w->node->op == OP_PAD;
    const uint32_t axis = triangle ? 0 : w->node->attr.concat.axis, rank = out->ref.t->rank;
    int64_t i[GRAPH_RANK_MAX] = {0};
    for (uint64_t k = 0, n = count_of(out); k < n; k++) {
        place_of(out, k, i);
        double *to = &out->bound[offset_at(out, i)];
        *to = 0;
        if (triangle) {
            const int64_t right = i[rank - 1] - i[rank - 2], by = w->node->attr.tril.diagonal;
            if (w->node->op == OP_TRIL ? right <= by : right >= by)
                *to = w->in[0].bound[offset_at(&w->in[0], i)];
            continue;
        }
        if (is_pad) i[axis] -= w->node->attr.pad.before;
        for (uint32_t part = 0; part < w->node->n_in; part++) {
            const operand *x = &w->in[part];
            if (i[axis] >= 0 && i[axis] < x->ref.dim[axis]) *to = x->bound[offset_at(x, i)];
            i[axis] -= x->ref.dim[axis];
        }
    }
}

/* Uniform numbers, which are the same everywhere. */
static void bound_random(work *w) {
    const operand *out = &w->out[0];
    int64_t i[GRAPH_RANK_MAX] = {0};
    for (uint64_t k = 0, n = count_of(out); k < n; k++) {
        place_of(out, k, i);
        out->bound[offset_at(out, i)] = 0;
    }
}

/* Root mean squares differ by no more than that of the errors. */
static void bound_rms_norm(work *w) {
    const operand *x = &w->in[0], *out = &w->out[0];
    const uint32_t n = row_of(x);
    const double eps = (double)w->node->attr.rms_norm.eps;
    for (uint64_t r = 0, rows = count_of(x) / n; r < rows; r++) {
        const int64_t from = row_at(x, r), to = row_at(out, r), step = step_of(x);
        double sum = 0, errors = 0;
        for (uint32_t i = 0; i < n; i++) {
            const int64_t here = from + i * step;
            sum += (double)x->value[here] * (double)x->value[here];
            errors += x->bound[here] * x->bound[here];
        }
        const double root = sqrt(sum / n + eps), off = sqrt(errors / n),
                     least = fmax(root - off, sqrt(eps));
        for (uint32_t i = 0; i < n; i++) {
            const int64_t k = w->node->n_in > 1 ? i * step_of(&w->in[1]) : 0;
            const double weight = w->node->n_in > 1 ? size(w->in[1].value[k]) : 1,
                         ew = w->node->n_in > 1 ? w->in[1].bound[k] : 0;
            const double here = size(x->value[from + i * step]), e = x->bound[from + i * step];
            out->bound[to + i] = weight * (e / least + here * off / (root * least)) +
                                 ew * (here + e) / least +
                                 (4e-6 + sum_error(n)) * weight * here / root + TINY;
        }
    }
}

/* As of root mean squares, of what is left without the mean, whose error comes to each. Where in
 * x and the result each element of a row lies, and in the weights. */
static void bound_normalised(work *w, const int64_t *from, const int64_t *to, const int64_t *column,
                             uint32_t n, double eps) {
    const operand *x = &w->in[0], *out = &w->out[0];
    const uint32_t n_in = w->node->n_in;
    double sum = 0, sizes = 0, errors = 0, squares = 0, error_squares = 0;
    for (uint32_t i = 0; i < n; i++) {
        sum += (double)x->value[from[i]];
        sizes += size(x->value[from[i]]);
        errors += x->bound[from[i]];
    }
    const double mean = sum / n, off_mean = errors / n + (sum_error(n) + U) * sizes / n;
    for (uint32_t i = 0; i < n; i++) {
        const double here = (double)x->value[from[i]] - mean,
                     e = x->bound[from[i]] + off_mean + U * fabs(here);
        squares += here * here;
        error_squares += e * e;
    }
    const double root = sqrt(squares / n + eps), off = sqrt(error_squares / n),
                 least = fmax(root - off, sqrt(eps));
    for (uint32_t i = 0; i < n; i++) {
        const int64_t k = column[i] * (n_in > 1 ? step_of(&w->in[1]) : 0),
                      l = column[i] * (n_in > 2 ? step_of(&w->in[2]) : 0);
        const double weight = n_in > 1 ? size(w->in[1].value[k]) : 1,
                     ew = n_in > 1 ? w->in[1].bound[k] : 0;
        const double here = fabs((double)x->value[from[i]] - mean),
                     e = x->bound[from[i]] + off_mean + U * here;
        out->bound[to[i]] = weight * (e / least + here * off / (root * least)) +
                            ew * (here + e) / least + (4e-6 + sum_error(n)) * weight * here / root +
                            (n_in > 2 ? w->in[2].bound[l] + U * size(w->in[2].value[l]) : 0) +
                            ROUNDED * size(out->value[to[i]]) + TINY;
    }
}

/* Rows of x seen as [groups, rows of n], an element `inner` to a weight; layer_norm: each its
 * own. */
static void bound_norm(work *w, uint64_t n, uint64_t inner, uint32_t groups, double eps) {
    const operand *x = &w->in[0], *out = &w->out[0];
    int64_t *at_each = malloc(3 * n * sizeof *at_each), *from = at_each, *to = from + n,
            *column = to + n;
    for (uint64_t r = 0, rows = count_of(x) / n; r < rows; r++) {
        for (uint64_t i = 0; i < n; i++) {
            from[i] = at(x, x, r * n + i);
            to[i] = at(out, out, r * n + i);
            column[i] = (int64_t)((r % groups * n + i) / inner);
        }
        bound_normalised(w, from, to, column, (uint32_t)n, eps);
    }
    free(at_each);
}

static void bound_layer_norm(work *w) {
    bound_norm(w, row_of(&w->in[0]), 1, 1, (double)w->node->attr.layer_norm.eps);
}

static void bound_group_norm(work *w) {
    const operand *x = &w->in[0];
    const uint32_t groups = w->node->attr.group_norm.groups;
    const uint64_t one = count_of(x) / x->ref.dim[0];
    bound_norm(w, one / groups, one / x->ref.dim[1], groups, (double)w->node->attr.group_norm.eps);
}

static void bound_cumsum(work *w) {
    const operand *x = &w->in[0], *out = &w->out[0];
    const uint32_t axis = w->node->attr.cumsum.axis, n = x->ref.dim[axis];
    operand begins = *out; /* of each row the first element */
    begins.ref.dim[axis] = 1;
    for (uint64_t r = 0, rows = count_of(&begins); r < rows; r++) {
        int64_t from = at(x, &begins, r), to = at(out, &begins, r);
        double errors = 0, sizes = 0;
        for (uint32_t i = 0; i < n; i++) {
            errors += x->bound[from];
            sizes += size(x->value[from]);
            out->bound[to] = errors + sum_error(i + 1.0) * (sizes + errors) + TINY;
            from += graph_stride(x->ref.t, axis);
            to += graph_stride(out->ref.t, axis);
        }
    }
}

static void bound_softmax(work *w) {
    const operand *x = &w->in[0], *out = &w->out[0];
    const uint32_t n = row_of(x);
    for (uint64_t r = 0, rows = count_of(x) / n; r < rows; r++) {
        const int64_t from = row_at(x, r), to = row_at(out, r);
        double most = 0;
        for (uint32_t i = 0; i < n; i++) most = wider(most, x->bound[from + i * step_of(x)]);
        for (uint32_t i = 0; i < n; i++)
            out->bound[to + i] =
                size(out->value[to + i]) * (expm1(2 * most) + 8e-6 + sum_error(n)) + 1e-7;
    }
}

static int falling(const void *a, const void *b) {
    const float x = *(const float *)a, y = *(const float *)b;
    return x < y ? 1 : x > y ? -1 : 0;
}

/* Whether the order of the first k of a row is sure, one by one: each is ahead of the next by
 * more than both may be off. */
static void sure_order(const operand *x, int64_t from, uint32_t n, uint32_t k, double *bounds,
                       double *unsure) {
    float *sorted = malloc((n + 1) * sizeof *sorted);
    double most = 0;
    bool known = true; /* what is known to the last bit is in the same order everywhere */
    for (uint32_t i = 0; i < n; i++) {
        const int64_t here = from + i * step_of(x);
        sorted[i] = x->value[here];
        most = wider(most, x->bound[here]);
        known = known && x->bound[here] == 0; /* false for NaN */
    }
    qsort(sorted, n, sizeof *sorted, falling);
    for (uint32_t i = n; i < k; i++) { /* -infinity and -1 */
        if (bounds) bounds[i] = 0;
        unsure[i] = 0;
    }
    for (uint32_t i = 0; i < k && i < n; i++) {
        const bool before = i == 0 || (double)sorted[i - 1] - (double)sorted[i] > 2 * most;
        const bool after = i + 1 == n || (double)sorted[i] - (double)sorted[i + 1] > 2 * most;
        if (bounds) bounds[i] = most;
        unsure[i] = known || (before && after) ? 0 : INFINITY;
    }
    free(sorted);
}

static void bound_topk(work *w) {
    const uint32_t n = row_of(&w->in[0]), k = w->node->attr.topk.k;
    for (uint32_t r = 0; r < w->in[0].ref.dim[0]; r++)
        sure_order(&w->in[0], row_at(&w->in[0], r), n, k, w->out[0].bound + r * k,
                   w->out[1].bound + r * k);
}

static void bound_sort(work *w) {
    const uint32_t n = row_of(&w->in[0]), all = w->out[0].ref.t->dim[1].size,
                   kept = row_of(&w->out[0]);
    for (uint32_t r = 0; r < w->in[0].ref.dim[0]; r++)
        sure_order(&w->in[0], row_at(&w->in[0], r), n, kept, w->out[0].bound + r * all,
                   w->out[1].bound + r * all);
}

static void bound_argmax(work *w) {
    for (uint32_t r = 0; r < w->in[0].ref.dim[0]; r++)
        sure_order(&w->in[0], row_at(&w->in[0], r), row_of(&w->in[0]), 1, NULL,
                   &w->out[0].bound[r]);
}

/* A draw is known where its logits are, to the last bit. */
static void bound_sample(work *w) {
    for (uint32_t r = 0; r < w->in[0].ref.dim[0]; r++) {
        w->out[0].bound[r] = 0;
        for (uint32_t i = 0; i < row_of(&w->in[0]); i++)
            if (!(w->in[0].bound[row_at(&w->in[0], r) + i] == 0)) w->out[0].bound[r] = INFINITY;
    }
}

typedef struct total {
    double sizes, errors;
    uint32_t n;
} total; /* of a sum of products */

static void total_add(total *t, double x, double ex, double y, double ey) {
    t->sizes += fabs(x * y);
    t->errors += fabs(x) * ey + fabs(y) * ex + ex * ey;
    t->n++;
}

static double total_bound(const total *t) {
    return t->errors + sum_error(t->n) * (t->sizes + t->errors) + TINY;
}

static void bound_weighted_sum(work *w) {
    const operand *x = &w->in[0], *g = &w->in[1], *out = &w->out[0];
    const uint32_t u = x->ref.dim[1], d = x->ref.dim[2];
    for (uint32_t n = 0; n < x->ref.dim[0]; n++)
        for (uint32_t i = 0; i < d; i++) {
            total t = {0};
            for (uint32_t k = 0; k < u; k++) {
                const int64_t a = row_at(x, (uint64_t)n * u + k) + i * step_of(x),
                              b = row_at(g, n) + k * step_of(g);
                total_add(&t, (double)x->value[a], x->bound[a], (double)g->value[b], g->bound[b]);
            }
            out->bound[row_at(out, n) + i] = total_bound(&t);
        }
}

static double bound_dot(const operand *x, int64_t from, const operand *w, int64_t row, uint32_t k) {
    total t = {0};
    for (uint32_t i = 0; i < k; i++)
        total_add(&t, (double)x->value[from + i], x->bound[from + i], (double)w->value[row + i],
                  w->bound[row + i]);
    return total_bound(&t);
}

static void bound_linear(work *w) {
    const operand *x = &w->in[0], *m = &w->in[1];
    const uint32_t k = row_of(x), n = m->ref.dim[0];
    for (uint64_t r = 0, rows = rows_of(x); r < rows; r++)
        for (uint32_t o = 0; o < n; o++)
            w->out[0].bound[row_at(&w->out[0], r) + o] =
                bound_dot(x, row_at(x, r), m, row_at(m, o), k);
}

static void bound_linear_id(work *w) {
    const operand *x = &w->in[0], *m = &w->in[1], *ids = &w->in[2];
    const uint32_t k = x->ref.dim[2], rows = m->ref.dim[1], u = ids->ref.dim[1];
    for (uint32_t n = 0; n < ids->ref.dim[0]; n++)
        for (uint32_t j = 0; j < u; j++) {
            const int64_t which = row_at(ids, n) + j,
                          from = row_at(x, x->ref.dim[1] == 1 ? n : (uint64_t)n * u + j);
            const uint32_t id =
                (uint32_t)ids->whole[which] < m->ref.dim[0] ? (uint32_t)ids->whole[which] : 0;
            for (uint32_t o = 0; o < rows; o++)
                w->out[0].bound[row_at(&w->out[0], (uint64_t)n * u + j) + o] =
                    ids->bound[which] == 0
                        ? bound_dot(x, from, m, row_at(m, (uint64_t)id * rows + o), k)
                        : INFINITY;
        }
}

static void bound_gather_rows(work *w) {
    const operand *table = &w->in[0], *ids = &w->in[1], *out = &w->out[0];
    const uint32_t n = table->ref.t->rank == 2 ? table->ref.dim[1] : 1;
    const double factor =
        out->ref.t->type == TYPE_I32 ? 1 : fabs((double)w->node->attr.gather_rows.factor);
    for (uint64_t i = 0, count = count_of(ids); i < count; i++) {
        const int64_t which = at(ids, ids, i),
                      to = table->ref.t->rank == 2 ? row_at(out, i) : at(out, out, i);
        const uint32_t n_row = table->ref.dim[0],
                       id = (uint32_t)ids->whole[which] < n_row ? (uint32_t)ids->whole[which] : 0;
        for (uint32_t k = 0; k < n; k++) {
            const double e = n_row ? table->bound[id * graph_stride(table->ref.t, 0) + k] : 0;
            const double round =
                out->ref.t->type == TYPE_I32 ? 0 : ROUNDED * size(out->value[to + k]);
            out->bound[to + k] = ids->bound[which] == 0 ? factor * e * (1 + U) + round : INFINITY;
        }
    }
}

static void bound_set_rows(work *w) {
    const operand *state = &w->in[0], *x = &w->in[1], *index = &w->in[2];
    const uint32_t n = x->ref.t->rank == 2 ? x->ref.dim[1] : 1;
    for (uint32_t i = 0; i < x->ref.dim[0]; i++) {
        const int32_t to = index->whole[i];
        for (uint32_t k = 0; to >= 0 && (uint32_t)to < state->ref.dim[0] && k < n; k++)
            state->bound[(uint64_t)to * n + k] = x->bound[i * graph_stride(x->ref.t, 0) + k];
    }
}

static void bound_rope(work *w) {
    const operand *x = &w->in[0], *a = &w->in[1], *out = &w->out[0];
    const uint32_t heads = x->ref.dim[1], half = x->ref.dim[2] / 2;
    for (uint32_t n = 0; n < x->ref.dim[0]; n++)
        for (uint32_t i = 0; i < heads * half; i++) {
            const int64_t from = row_at(x, (uint64_t)n * heads + i / half) + i % half,
                          to = row_at(out, (uint64_t)n * heads + i / half) + i % half;
            const int64_t cosine = row_at(a, (uint64_t)n * 2) + i % half,
                          sine = row_at(a, (uint64_t)n * 2 + 1) + i % half;
            for (uint32_t part = 0; part < 2; part++) {
                total t = {0};
                total_add(&t, (double)x->value[from], x->bound[from],
                          (double)a->value[part ? sine : cosine], a->bound[part ? sine : cosine]);
                total_add(&t, (double)x->value[from + half], x->bound[from + half],
                          (double)a->value[part ? cosine : sine], a->bound[part ? cosine : sine]);
                out->bound[to + part * half] = total_bound(&t);
            }
        }
}

/* Half a step of the cache's type either way, since a joined attention takes this run's rows
 * before they are rounded, and since what is off by little may round to the other side. */
static double cache_error(base_type type, float value, double most) {
    if (type == TYPE_F16) return size(value) * 0x1p-10 + 0x1p-24;
    return type == TYPE_Q8_0 ? most / 127 * 1.1 : 0;
}

static void bound_kv_write(work *w) {
    const operand *cache = &w->in[0], *x = &w->in[1];
    const uint32_t heads = x->ref.dim[1], d = x->ref.dim[2], rows = cache->ref.dim[1];
    for (uint32_t n = 0; n < x->ref.dim[0]; n++)
        for (uint32_t h = 0; h < heads; h++) {
            const int32_t slot = w->in[2].whole[n], pos = w->in[3].whole[n];
            if (slot < 0 || (uint32_t)slot >= cache->ref.dim[0] || pos < 0) continue;
            const int64_t from = row_at(x, (uint64_t)n * heads + h),
                          to = (((int64_t)slot * rows + (uint32_t)pos % rows) * heads + h) * d;
            for (uint32_t b = 0; b < d; b += 32) {
                double most = 0, off = 0;
                for (uint32_t i = b; i < d && i < b + 32; i++) {
                    most = wider(most, size(x->value[from + i]) + x->bound[from + i]);
                    off = wider(off, x->bound[from + i]);
                }
                for (uint32_t i = b; i < d && i < b + 32; i++)
                    cache->bound[to + i] =
                        (cache->ref.t->type == TYPE_Q8_0 ? off : x->bound[from + i]) +
                        cache_error(cache->ref.t->type, x->value[from + i], most);
            }
        }
    cell *c = &w->j->cells[graph_base_of(w->j->g, w->node->in[0])];
    if (c->owned) read_stored(w->j, c, &w->j->store->tensors.data[cache->ref.t->stored]);
}

static void bound_attend(work *w, reference_keys keys, uint32_t n, uint32_t head) {
    const operand *q = &w->in[0], *k = &w->in[1], *v = &w->in[2], *out = &w->out[0];
    const uint32_t d = q->ref.dim[2], heads = q->ref.dim[1], kv = head * k->ref.dim[2] / heads,
                   rows = k->ref.dim[1];
    const uint32_t first = keys.first, count = keys.end - keys.first;
    const int64_t from = row_at(q, (uint64_t)n * heads + head);
    const double scale = fabs((double)w->node->attr.attention.scale);
    double *scores = malloc((count + 1) * sizeof *scores), most = -INFINITY, off = 0, sum = 0;
    for (uint32_t p = first; p < keys.end; p++) {
        const int64_t row = (((int64_t)keys.slot * rows + p % rows) * k->ref.dim[2] + kv) * d;
        double dot = 0;
        for (uint32_t i = 0; i < d; i++)
            dot += (double)q->value[from + i] * (double)k->value[row + i];
        scores[p - first] = dot * (double)w->node->attr.attention.scale;
        most = fmax(most, scores[p - first]);
        off = wider(off, scale * bound_dot(q, from, k, row, d) + 4 * U * fabs(scores[p - first]));
    }
    const double relative = expm1(2 * off) + 1e-5 + sum_error(count);
    for (uint32_t p = first; p < keys.end; p++)
        sum += scores[p - first] = exp(scores[p - first] - most);
    for (uint32_t i = 0; i < d; i++) {
        double e = 0;
        for (uint32_t p = first; p < keys.end; p++) {
            const uint64_t row =
                (((uint64_t)keys.slot * rows + p % rows) * v->ref.dim[2] + kv) * d + i;
            e += scores[p - first] / sum *
                 ((1 + relative) * v->bound[row] + relative * size(v->value[row]));
        }
        out->bound[((uint64_t)n * heads + head) * d + i] = e + TINY;
    }
    free(scores);
}

static void bound_attention(work *w) {
    reference_call call = {.node = w->node};
    for (uint32_t k = 0; k < w->node->n_in; k++) call.in[k] = w->in[k].ref;
    for (uint32_t n = 0; n < w->in[0].ref.dim[0]; n++)
        for (uint32_t h = 0; h < w->in[0].ref.dim[1]; h++)
            bound_attend(w, reference_keys_of(&call, n), n, h);
}

static void (*const bounds[OP_COUNT])(work *) = {
    [OP_GATHER_ROWS] = bound_gather_rows,
    [OP_COPY] = bound_pointwise,
    [OP_PAD] = bound_mapped,
    [OP_CONCAT] = bound_mapped,
    [OP_RANDOM] = bound_random,
    [OP_TRIL] = bound_mapped,
    [OP_TRIU] = bound_mapped,
    [OP_ADD] = bound_pointwise,
    [OP_MUL] = bound_pointwise,
    [OP_SCALE] = bound_pointwise,
    [OP_GELU_TANH] = bound_pointwise,
    [OP_GEGLU] = bound_pointwise,
    [OP_SOFTCAP] = bound_pointwise,
    [OP_RMS_NORM] = bound_rms_norm,
    [OP_LAYER_NORM] = bound_layer_norm,
    [OP_GROUP_NORM] = bound_group_norm,
    [OP_SOFTMAX] = bound_softmax,
    [OP_CUMSUM] = bound_cumsum,
    [OP_TOPK] = bound_topk,
    [OP_SORT] = bound_sort,
    [OP_WEIGHTED_SUM] = bound_weighted_sum,
    [OP_LINEAR] = bound_linear,
    [OP_LINEAR_ID] = bound_linear_id,
    [OP_ROPE] = bound_rope,
    [OP_KV_WRITE] = bound_kv_write,
    [OP_ATTENTION] = bound_attention,
    [OP_ARGMAX] = bound_argmax,
    [OP_SAMPLE] = bound_sample,
    [OP_SET_ROWS] = bound_set_rows,
};

/* ---- a run ----------------------------------------------------------------------------------- */

static operand operand_of(const graph_judge *j, graph_value v, const uint32_t *extents) {
    const graph_tensor *t = graph_tensor_at(j->g, v);
    const cell *c = &j->cells[graph_base_of(j->g, v)];
    operand o = {.ref = {.t = t, .stored = t->role == ROLE_STORED ? t->stored : UINT32_MAX}};
    for (uint32_t i = 0; i < t->rank; i++) o.ref.dim[i] = graph_dim_value(t->dim[i], extents);
    o.value = c->value + t->offset;
    o.whole = (int32_t *)(void *)o.value;
    o.bound = c->bound + t->offset;
    o.ref.data = c->data ? (float *)c->data + t->offset : NULL;
    const store_tensor *stored = t->role == ROLE_STORED ? &j->store->tensors.data[t->stored] : NULL;
    if (!c->data && stored && stored->is_state) o.ref.data = stored->host; /* caches, never cut */
    return o;
}

beryl_status graph_judge_run(graph_judge *j, const uint32_t *extents, beryl_error *error) {
    const uint32_t empty = graph_extents_empty(j->g, extents);
    for (size_t i = 0; i < j->g->nodes.count; i++) {
        const graph_node *node = &j->g->nodes.data[i];
        if (node->dead || (graph_node_needs(j->g, node) & empty)) continue;
        work w = {.j = j, .node = node};
        uint32_t done = 0;
        reference_call call = {
            .node = node, .store = j->store, .heap = j->g->heap, .error = error, .done = &done};
        for (uint32_t k = 0; k < node->n_in; k++)
            call.in[k] = (w.in[k] = operand_of(j, node->in[k], extents)).ref;
        for (uint32_t k = 0; k < node->n_out; k++)
            call.out[k] = (w.out[k] = operand_of(j, node->out[k], extents)).ref;
        const beryl_status status = reference_table[node->op](&call);
        if (status != BERYL_OK) return status;
        bounds[node->op](&w);
    }
    return BERYL_OK;
}
