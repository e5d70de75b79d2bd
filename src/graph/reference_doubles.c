/* reference_doubles.c - norms, softmax and scans of F64: what reference_ops.c says of F32. */
#include "graph/reference.h"

#include <math.h>
#include <string.h>

/* A tensor with axis 1 as two, where there are groups. */
typedef struct seen {
    graph_tensor t;
    reference_tensor of;
} seen;

static void see(const reference_tensor *x, uint32_t groups, seen *s) {
    const uint32_t rest = x->t->rank - 1u, each = groups ? x->dim[1] / groups : 0;
    s->t = *x->t;
    s->of = *x;
    s->of.t = &s->t;
    if (!groups) return;
    memmove(s->t.dim + 2, s->t.dim + 1, rest * sizeof *s->t.dim);
    memmove(s->t.stride + 2, s->t.stride + 1, rest * sizeof *s->t.stride);
    memmove(s->of.dim + 2, s->of.dim + 1, rest * sizeof *s->of.dim);
    s->t.stride[1] *= each;
    s->t.dim[1].size = s->of.dim[1] = groups;
    s->t.dim[2].size = s->of.dim[2] = each;
    s->t.rank++;
}

static double number(const reference_tensor *x, int64_t at) {
    const int64_t size = base_type_block_bytes(x->t->type);
    return reference_number_at(x->t->type, (const char *)x->data + at * size).real;
}

typedef struct row {
    const reference_call *c;
    const reference_tensor *x, *y, *shape; /* shape: of a row */
    int64_t from, to;
    uint64_t n, number; /* number: of the row */
} row;

static double element(const row *r, uint64_t i) {
    return number(r->x, r->from + reference_offset(r->x, r->shape, i));
}

static void put(const row *r, uint64_t i, double y) {
    ((double *)r->y->data)[r->to + reference_offset(r->y, r->shape, i)] = y;
}

/* Input k at a place of its one axis, or what stands for it where it is left out. */
static double weight(const row *r, uint32_t k, uint64_t i, double none) {
    const reference_tensor *w = &r->c->in[k];
    return k < r->c->node->n_in ? number(w, (int64_t)i * graph_stride(w->t, 0)) : none;
}

static void norm(const row *r, bool centred, double eps, uint32_t groups) {
    double mean = 0, squares = 0;
    for (uint64_t i = 0; centred && i < r->n; i++) mean += element(r, i) / (double)r->n;
    for (uint64_t i = 0; i < r->n; i++) squares += pow(element(r, i) - mean, 2);
    const double over = 1 / sqrt(squares / (double)r->n + eps);
    const uint64_t each = groups ? r->shape->dim[2] : 1;
    for (uint64_t i = 0; i < r->n; i++) {
        const uint64_t at = groups ? r->number % groups * each + i / (r->n / each) : i;
        put(r, i, (element(r, i) - mean) * over * weight(r, 1, at, 1) + weight(r, 2, at, 0));
    }
}

static void softmax(const row *r) {
    double most = -INFINITY, sum = 0;
    for (uint64_t i = 0; i < r->n; i++) most = fmax(most, element(r, i));
    for (uint64_t i = 0; i < r->n; i++) sum += exp(element(r, i) - most);
    for (uint64_t i = 0; i < r->n; i++) put(r, i, exp(element(r, i) - most) / sum);
}

static void scan(const row *r, base_op op) {
    double so_far = 0;
    for (uint64_t i = 0; i < r->n; i++) {
        const double x = element(r, i);
        if (!i) so_far = x;
        else if (op == OP_CUMSUM) so_far += x;
        else if (op == OP_CUMPROD) so_far *= x;
        else if (isnan(x) || (op == OP_CUMMAX ? x > so_far : x < so_far)) so_far = x;
        put(r, i, so_far);
    }
}

beryl_status reference_doubles(reference_call *c) {
    const base_op op = c->node->op;
    const graph_attrs *attr = &c->node->attr;
    const uint32_t groups = op == OP_GROUP_NORM ? attr->group_norm.groups : 0;
    seen x, y;
    see(&c->in[0], groups, &x);
    see(&c->out[0], groups, &y);
    reference_tensor outer = y.of, inner = y.of;
    row r = {.c = c, .x = &x.of, .y = &y.of, .shape = &inner, .n = 1};
    uint64_t rows = 1;
    for (uint32_t i = 0; i < y.t.rank; i++) {
        const bool within = groups                      ? i > 1
                            : graph_op_is_over_rows(op) ? i + 1u == y.t.rank
                                                        : i == attr->cumsum.axis;
        *(within ? &r.n : &rows) *= y.of.dim[i];
        (within ? &outer : &inner)->dim[i] = 1;
    }
    for (r.number = 0; r.number < rows; r.number++) {
        r.from = reference_offset(&x.of, &outer, r.number);
        r.to = reference_offset(&y.of, &outer, r.number);
        if (op == OP_SOFTMAX) softmax(&r);
        else if (op == OP_RMS_NORM) norm(&r, false, (double)attr->rms_norm.eps, 0);
        else if (op == OP_LAYER_NORM) norm(&r, true, (double)attr->layer_norm.eps, 0);
        else if (groups) norm(&r, true, (double)attr->group_norm.eps, groups);
        else scan(&r, op);
    }
    return BERYL_OK;
}
