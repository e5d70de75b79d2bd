/* reference_places.c - elements at places that are computed: axes at another size, and the places
 * themselves. */
#include "graph/reference.h"
#include "beryl_graph.h"

#include <string.h>

static void place_of(const reference_tensor *out, uint64_t index, uint32_t *at) {
    for (uint32_t axis = out->t->rank; axis-- > 0; index /= out->dim[axis])
        at[axis] = (uint32_t)(index % out->dim[axis]);
}

/* Element `at`, but number i of an axis. */
static const char *element(const reference_tensor *x, const uint32_t *at, uint32_t axis,
                           uint64_t i) {
    int64_t offset = 0;
    for (uint32_t k = 0; k < x->t->rank; k++)
        offset += (int64_t)(k == axis ? i : at[k]) * graph_stride(x->t, k);
    return (const char *)x->data + offset * (int64_t)base_type_block_bytes(x->t->type);
}

/* Element `at` as a number. */
static double number(const reference_tensor *x, const uint32_t *at, uint32_t axis, uint64_t i) {
    return reference_number_at(x->t->type, element(x, at, axis, i)).real;
}

static double between(const reference_tensor *x, const uint32_t *at, uint32_t axis,
                      uint64_t numerator, uint64_t divisor) {
    const uint64_t first = numerator / divisor, last = x->dim[axis] - 1u,
                   next = first < last ? first + 1 : last;
    const double part = (double)(numerator % divisor) / (double)divisor;
    return number(x, at, axis, first) * (1 - part) + number(x, at, axis, next) * part;
}

/* Of places first .. end - 1. */
static double mean(const reference_tensor *x, const uint32_t *at, uint32_t axis, uint64_t first,
                   uint64_t end) {
    double sum = 0;
    for (uint64_t i = first; i < end; i++) sum += number(x, at, axis, i);
    return sum / (double)(end - first);
}

beryl_status reference_resize(reference_call *c) {
    const reference_tensor *x = &c->in[0], *out = &c->out[0];
    const uint32_t axis = c->node->attr.resize.axis, how = c->node->attr.resize.how;
    const uint64_t size = x->dim[axis], to = out->dim[axis];
    for (uint64_t k = 0, n = reference_count(out); k < n; k++) {
        uint32_t at[GRAPH_RANK_MAX];
        place_of(out, k, at);
        const uint64_t i = at[axis], middle = (2 * i + 1) * size;
        char *place = (char *)(uintptr_t)element(out, at, axis, i);
        double y;
        if (how == BERYL_RESIZE_NEAREST || how == BERYL_RESIZE_NEAREST_MIDDLE) {
            const uint64_t from = how == BERYL_RESIZE_NEAREST ? i * size / to : middle / (2 * to);
            memcpy(place, element(x, at, axis, from), base_type_block_bytes(out->t->type));
            continue;
        }
        if (how == BERYL_RESIZE_MEAN)
            y = mean(x, at, axis, i * size / to, ((i + 1) * size + to - 1) / to);
        else if (how == BERYL_RESIZE_LINEAR)
            y = between(x, at, axis, middle > to ? middle - to : 0, 2 * to);
        else y = between(x, at, axis, i * (size - 1), to > 1 ? to - 1 : 1);
        reference_put(out->t->type, place, (reference_number){.real = y});
    }
    return BERYL_OK;
}

beryl_status reference_iota(reference_call *c) {
    const reference_tensor *out = &c->out[0];
    for (uint64_t k = 0, n = reference_count(out); k < n; k++) {
        uint32_t at[GRAPH_RANK_MAX];
        place_of(out, k, at);
        const uint32_t axis = c->node->attr.iota.axis, i = at[axis];
        reference_put(TYPE_I32, (char *)(uintptr_t)element(out, at, axis, i),
                      (reference_number){.whole = i});
    }
    return BERYL_OK;
}
