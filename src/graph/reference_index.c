/* reference_index.c - operations by index, see graph/reference.h. */
#include "base/error.h"
#include "graph/reference.h"

#include <string.h>

static char *at(const reference_tensor *x, const int64_t *i) {
    int64_t offset = 0;
    for (uint32_t axis = 0; axis < x->t->rank; axis++) offset += i[axis] * graph_stride(x->t, axis);
    return (char *)x->data + offset * (int64_t)base_type_block_bytes(x->t->type);
}

static int64_t index_at(const reference_tensor *ids, const int64_t *i) {
    return reference_number_at(ids->t->type, at(ids, i)).whole;
}

beryl_status reference_gather(reference_call *c) {
    const reference_tensor *x = &c->in[0], *ids = &c->in[1], *out = &c->out[0];
    const uint32_t axis = c->node->attr.gather.axis, size = base_type_block_bytes(x->t->type);
    int64_t i[GRAPH_RANK_MAX];
    for (uint64_t k = 0, n = reference_count(out); k < n; k++) {
        reference_place(out, k, i);
        char *to = at(out, i);
        i[axis] = index_at(ids, i);
        if (i[axis] >= 0 && i[axis] < (int64_t)x->dim[axis]) memcpy(to, at(x, i), size);
        else memset(to, 0, size);
    }
    return BERYL_OK;
}

/* Sums in double, or of whole numbers, over all updates of a place before it is stored. */
beryl_status reference_scatter(reference_call *c) {
    const reference_tensor *x = &c->in[0], *ids = &c->in[1], *updates = &c->in[2],
                           *out = &c->out[0];
    const base_type type = x->t->type;
    const uint32_t axis = c->node->attr.scatter.axis, size = base_type_block_bytes(type);
    const bool adds = c->node->op == OP_SCATTER_ADD;
    const uint64_t n = reference_count(out);
    const size_t bytes = (size_t)n * sizeof(reference_number);
    reference_number *sums = adds ? base_heap_resize(c->heap, NULL, 0, bytes) : NULL;
    if (adds && !sums) return base_no_memory(c->error);
    int64_t i[GRAPH_RANK_MAX];
    for (uint64_t k = 0; k < n; k++) {
        reference_place(out, k, i);
        if (adds) sums[k] = reference_number_at(type, at(x, i));
        else memcpy(at(out, i), at(x, i), size);
    }
    for (uint64_t k = 0, all = reference_count(ids); k < all; k++) {
        reference_place(ids, k, i);
        const char *from = at(updates, i);
        i[axis] = index_at(ids, i);
        if (i[axis] < 0 || i[axis] >= (int64_t)x->dim[axis]) continue;
        if (!adds) {
            memcpy(at(out, i), from, size);
            continue;
        }
        uint64_t to = 0;
        for (uint32_t a = 0; a < out->t->rank; a++) to = to * out->dim[a] + (uint64_t)i[a];
        const reference_number y = reference_number_at(type, from);
        sums[to].real += y.real;
        sums[to].whole = (int64_t)((uint64_t)sums[to].whole + (uint64_t)y.whole);
    }
    for (uint64_t k = 0; adds && k < n; k++) {
        reference_place(out, k, i);
        reference_put(type, at(out, i), sums[k]);
    }
    base_heap_give(c->heap, sums, adds ? bytes : 0);
    return BERYL_OK;
}

beryl_status reference_one_hot(reference_call *c) {
    const reference_tensor *ids = &c->in[0], *out = &c->out[0];
    int64_t i[GRAPH_RANK_MAX];
    for (uint64_t k = 0, n = reference_count(out); k < n; k++) {
        reference_place(out, k, i);
        *at(out, i) = index_at(ids, i) == i[out->t->rank - 1];
    }
    return BERYL_OK;
}

beryl_status reference_nonzero(reference_call *c) {
    const reference_tensor *x = &c->in[0];
    const base_type type = x->t->type;
    const uint32_t rank = x->t->rank;
    int32_t *list = c->out[0].data;
    int64_t i[GRAPH_RANK_MAX];
    memset(list, 0xff, (size_t)reference_count(&c->out[0]) * sizeof *list); /* -1 */
    for (uint64_t k = 0, n = reference_count(x); k < n; k++) {
        reference_place(x, k, i);
        const reference_number v = reference_number_at(type, at(x, i));
        if (base_type_is_float(type) ? v.real == 0 : v.whole == 0) continue;
        for (uint32_t a = 0; a < rank; a++) *list++ = (int32_t)i[a];
    }
    return BERYL_OK;
}
