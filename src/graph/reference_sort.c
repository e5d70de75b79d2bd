/* reference_sort.c - rows in order, by a merge sort of indices; which element is the largest. */
#include "base/error.h"
#include "graph/reference.h"

#include <math.h>

typedef struct rows {
    base_type type;
    uint32_t order;
    const char *row;
    int64_t step; /* bytes */
} rows;

/* Comes element i before k, whichever of them is first in x? */
static bool is_before(const rows *r, uint32_t i, uint32_t k) {
    reference_number x = reference_number_at(r->type, r->row + i * r->step),
                     y = reference_number_at(r->type, r->row + k * r->step);
    if (r->order == GRAPH_SORT_LARGEST) {
        if (isnan(x.real)) x.real = -INFINITY;
        if (isnan(y.real)) y.real = -INFINITY;
    }
    if (r->order != GRAPH_SORT_RISING) {
        const reference_number swapped = x;
        x = y;
        y = swapped;
    }
    if (base_type_is_integer(r->type)) return x.whole < y.whole;
    return x.real < y.real || (isnan(y.real) && !isnan(x.real));
}

/* Indices [n] in order, with as much room behind them. */
static void order(const rows *r, uint32_t *index, uint32_t n) {
    uint32_t *from = index, *to = index + n;
    for (uint32_t i = 0; i < n; i++) index[i] = i;
    for (uint64_t length = 1; length < n; length *= 2) {
        for (uint64_t first = 0; first < n; first += 2 * length) {
            const uint64_t middle = first + length < n ? first + length : n,
                           end = middle + length < n ? middle + length : n;
            uint64_t x = first, y = middle;
            for (uint64_t i = first; i < end; i++) {
                const bool second = y < end && (x == middle || is_before(r, from[y], from[x]));
                to[i] = from[second ? y++ : x++];
            }
        }
        uint32_t *const swapped = from;
        from = to;
        to = swapped;
    }
    for (uint32_t i = 0; from != index && i < n; i++) index[i] = from[i];
}

beryl_status reference_sort(reference_call *c) {
    const reference_tensor *x = &c->in[0];
    const uint32_t rank = x->t->rank, n = x->dim[rank - 1],
                   size = base_type_block_bytes(x->t->type), kept = c->out[0].dim[rank - 1];
    const size_t bytes = (size_t)n * 2 * sizeof(uint32_t);
    uint32_t *index = base_heap_take(c->heap, bytes);
    if (!index) return base_no_memory(c->error);
    reference_tensor at[3] = {*x, c->out[0], c->out[1]};
    uint64_t count = 1;
    for (uint32_t i = 0; i + 1 < rank; i++) count *= x->dim[i];
    for (uint32_t i = 0; i < 3; i++) at[i].dim[rank - 1] = 1;
    for (uint64_t i = 0; i < count; i++) {
        const int64_t first[3] = {reference_offset(&at[0], &at[0], i),
                                  reference_offset(&at[1], &at[1], i),
                                  reference_offset(&at[2], &at[2], i)};
        const rows r = {x->t->type, c->node->attr.sort.order,
                        (const char *)x->data + first[0] * size,
                        graph_stride(x->t, rank - 1) * size};
        order(&r, index, n);
        for (uint32_t k = 0; k < kept; k++) {
            const char *from = r.row + index[k] * r.step;
            char *to = (char *)c->out[0].data + (first[1] + k) * size;
            for (uint32_t byte = 0; byte < size; byte++) to[byte] = from[byte];
            ((int32_t *)c->out[1].data)[first[2] + k] = (int32_t)index[k];
        }
    }
    base_heap_give(c->heap, index, bytes);
    return BERYL_OK;
}

beryl_status reference_arg_largest(reference_call *c) {
    const reference_tensor *x = &c->in[0], *out = &c->out[0];
    const uint32_t size = base_type_block_bytes(x->t->type);
    uint32_t axis = 0;
    uint64_t n = 1;
    while (!(c->node->attr.at[0].u >> axis & 1)) axis++;
    for (uint32_t i = 0; i < x->t->rank; i++) n *= i == axis ? 1 : x->dim[i];
    reference_tensor first = *x;
    first.dim[axis] = 1;
    for (uint64_t i = 0; i < n; i++) {
        const rows r = {x->t->type, GRAPH_SORT_FALLING,
                        (const char *)x->data + reference_offset(&first, &first, i) * size,
                        graph_stride(x->t, axis) * size};
        uint32_t best = 0;
        for (uint32_t k = 1; k < x->dim[axis]; k++)
            if (is_before(&r, k, best)) best = k;
        ((int32_t *)out->data)[reference_offset(out, out, i)] = x->dim[axis] ? (int32_t)best : -1;
    }
    return BERYL_OK;
}
