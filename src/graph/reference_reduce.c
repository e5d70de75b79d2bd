/* reference_reduce.c - reductions over axes and sums of products: floats in double, integers in
 * int64_t. */
#include "graph/reference.h"

#include <math.h>

/* Of an element, and of what was reduced before it. */
static reference_number joined(base_op op, reference_number x, reference_number y) {
    switch ((int)op) {
    case OP_PROD:
        return (reference_number){x.real * y.real,
                                  (int64_t)((uint64_t)x.whole * (uint64_t)y.whole)};
    case OP_AMAX:
        return (reference_number){x.real > y.real || isnan(x.real) ? x.real : y.real,
                                  x.whole > y.whole ? x.whole : y.whole};
    case OP_AMIN:
        return (reference_number){x.real < y.real || isnan(x.real) ? x.real : y.real,
                                  x.whole < y.whole ? x.whole : y.whole};
    case OP_ANY: return (reference_number){0, x.whole | y.whole};
    case OP_ALL: return (reference_number){0, x.whole & y.whole};
    default:
        return (reference_number){x.real + y.real,
                                  (int64_t)((uint64_t)x.whole + (uint64_t)y.whole)};
    }
}

static reference_number of_nothing(base_op op, base_type type) {
    switch ((int)op) {
    case OP_PROD: return (reference_number){1, 1};
    case OP_ALL: return (reference_number){1, 1};
    case OP_AMAX: return (reference_number){-INFINITY, reference_within(type, -INFINITY)};
    case OP_AMIN: return (reference_number){INFINITY, reference_within(type, INFINITY)};
    default: return (reference_number){0, 0};
    }
}

beryl_status reference_reduce(reference_call *c) {
    const graph_node *node = c->node;
    const reference_tensor *x = &c->in[0], *out = &c->out[0];
    const uint32_t axes = node->attr.at[0].u, size = base_type_block_bytes(x->t->type);
    reference_tensor part = *x; /* what becomes one number: the first such */
    uint64_t n = 1, n_part = 1;
    for (uint32_t i = 0; i < x->t->rank; i++) {
        if (axes >> i & 1) n_part *= x->dim[i];
        else n *= x->dim[i], part.dim[i] = 1;
    }
    for (uint64_t i = 0; i < n; i++) {
        const int64_t at = reference_offset(out, out, i);
        int64_t first = 0;
        uint64_t left = i;
        for (uint32_t k = x->t->rank; k-- > 0;) {
            if (axes >> k & 1) continue;
            first += (int64_t)(left % x->dim[k]) * graph_stride(x->t, k);
            left /= x->dim[k];
        }
        reference_number sum = of_nothing(node->op, x->t->type);
        for (uint64_t k = 0; k < n_part; k++)
            sum = joined(node->op, sum,
                         reference_number_at(x->t->type,
                                             (const char *)x->data +
                                                 (first + reference_offset(x, &part, k)) * size));
        if (node->op == OP_MEAN) {
            const double count = (double)n_part - node->attr.mean.correction;
            sum.real /= count > 0 ? count : 0;
        }
        reference_put(out->t->type, (char *)out->data + at * size, sum);
    }
    return BERYL_OK;
}

/* A shape with strides that nothing has: what both factors are broadcast to. */
typedef struct whole {
    graph_tensor t;
    reference_tensor shape;
} whole;

static void broadcast(const reference_call *c, whole *w) {
    const uint32_t rank = c->out[0].t->rank;
    w->t = *c->out[0].t;
    w->shape = (reference_tensor){.t = &w->t};
    for (uint32_t i = 0; i < rank; i++) {
        w->shape.dim[i] = 1;
        w->t.dim[i] = (graph_dim){1, 0};
    }
    for (uint32_t k = 0; k < 2; k++)
        for (uint32_t i = 0; i < c->in[k].t->rank; i++) {
            const uint32_t to = i + rank - c->in[k].t->rank;
            const graph_dim d = c->in[k].t->dim[i];
            if (d.size == 1 && !d.extent) continue;
            w->t.dim[to] = d;
            w->shape.dim[to] = c->in[k].dim[i];
        }
}

beryl_status reference_contract(reference_call *c) {
    const reference_tensor *a = &c->in[0], *b = &c->in[1], *out = &c->out[0];
    const uint32_t axes = c->node->attr.contract.axes, size = base_type_block_bytes(out->t->type);
    whole w;
    broadcast(c, &w);
    reference_tensor kept = w.shape, summed = w.shape;
    uint64_t n = 1, n_sum = 1;
    for (uint32_t i = 0; i < out->t->rank; i++) {
        if (axes >> i & 1) n_sum *= w.shape.dim[i], kept.dim[i] = 1;
        else n *= w.shape.dim[i], summed.dim[i] = 1;
    }
    for (uint64_t i = 0; i < n; i++) {
        const int64_t from_a = reference_offset(a, &kept, i),
                      from_b = reference_offset(b, &kept, i);
        reference_number sum = {0, 0};
        for (uint64_t k = 0; k < n_sum; k++) {
            const reference_number x = reference_number_at(
                                       a->t->type,
                                       (const char *)a->data +
                                           (from_a + reference_offset(a, &summed, k)) * size),
                                   y = reference_number_at(
                                       b->t->type,
                                       (const char *)b->data +
                                           (from_b + reference_offset(b, &summed, k)) * size);
            sum.real += x.real * y.real;
            sum.whole = (int64_t)((uint64_t)sum.whole + (uint64_t)x.whole * (uint64_t)y.whole);
        }
        reference_put(out->t->type, (char *)out->data + reference_offset(out, out, i) * size, sum);
    }
    return BERYL_OK;
}
