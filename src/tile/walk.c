/* walk.c - see tile/walk.h. */
#include "tile/walk.h"

#include <string.h>

uint32_t lower_walk_stride(const graph_tensor *t, uint32_t rank, uint32_t i) {
    if (i + t->rank < rank) return 0;
    uint32_t k = i + t->rank - rank;
    return t->dim[k].size == 1 && !t->dim[k].extent ? 0 : t->stride[k];
}

/* Dimensions of 1 are left out and neighbours are joined where the inner one is a constant and
 * no tensor has a gap between them. */
static lower_walk walk_between(const graph_tensor *shape, const graph_tensor *const *tensors,
                               uint32_t n_tensor, uint32_t first, uint32_t end) {
    lower_walk w = {.n_tensor = n_tensor};
    for (uint32_t i = first; i < end; i++) {
        const graph_dim dim = shape->dim[i];
        if (dim.size == 1 && !dim.extent) continue;
        bool joins = w.n > 0 && !dim.extent;
        for (uint32_t t = 0; joins && t < n_tensor; t++)
            joins = w.stride[t][w.n - 1] ==
                    lower_walk_stride(tensors[t], shape->rank, i) * dim.size; /* modulo 2^32 */
        if (joins) {
            w.size[w.n - 1] = lower_count_times(w.size[w.n - 1], dim.size);
        } else {
            w.size[w.n++] = lower_count_of(dim);
        }
        for (uint32_t t = 0; t < n_tensor; t++)
            w.stride[t][w.n - 1] = lower_walk_stride(tensors[t], shape->rank, i);
    }
    return w;
}

lower_walk lower_walk_of(const graph_tensor *const *tensors, uint32_t n_tensor, uint32_t left) {
    const uint32_t rank = tensors[0]->rank;
    return walk_between(tensors[0], tensors, n_tensor, 0, rank > left ? rank - left : 0);
}

lower_walk lower_walk_from(const graph_tensor *shape, const graph_tensor *const *tensors,
                           uint32_t n_tensor, uint32_t first) {
    return walk_between(shape, tensors, n_tensor, first, shape->rank);
}

bool lower_walk_in_order(const lower_walk *w, uint32_t t, uint32_t each) {
    for (uint32_t i = 1; i < w->n; i++)
        if (w->size[i].extent || w->stride[t][i - 1] != w->stride[t][i] *
                                                            (uint32_t)w->size[i].factor *
                                                            (i + 1 == w->n ? each : 1))
            return false;
    return w->n > 1;
}

void lower_walk_pad(lower_walk *w, uint32_t rank) {
    if (w->n >= rank) return;
    uint32_t more = rank - w->n;
    memmove(w->size + more, w->size, w->n * sizeof w->size[0]);
    for (uint32_t i = 0; i < more; i++) w->size[i] = (lower_count){1, 0};
    for (uint32_t t = 0; t < w->n_tensor; t++) {
        memmove(w->stride[t] + more, w->stride[t], w->n * sizeof w->stride[t][0]);
        memset(w->stride[t], 0, more * sizeof w->stride[t][0]);
    }
    w->n = rank;
}

lower_count lower_walk_count(const lowering *l, const lower_walk *w) {
    lower_count count = {1, 0};
    for (uint32_t i = 0; i < w->n; i++) {
        count.factor *= w->size[i].factor;
        if (!w->size[i].extent) continue;
        if (count.extent) {
            count.factor *= l->g->extents[w->size[i].extent].bound;
        } else {
            count.extent = w->size[i].extent;
        }
    }
    return count;
}

bool lower_matrix_of(const graph_tensor *t, lower_matrix *out) {
    const uint32_t last = t->rank - 1u;
    uint64_t bound = 1;
    *out = (lower_matrix){.n = lower_rows(t),
                          .k = t->dim[last].size,
                          .stride = t->rank > 1 ? t->stride[last - 1] : t->dim[last].size,
                          .offset = t->offset};
    for (uint32_t i = 0; i < last; i++) {
        bound *= t->dim[i].size;
        const bool inner = i + 1 < last;
        if (inner && t->stride[i] != (uint64_t)t->stride[i + 1] * t->dim[i + 1].size) return false;
        if (i > 0 && t->dim[i].extent) return false;
    }
    out->bound = bound > UINT32_MAX ? UINT32_MAX : (uint32_t)bound;
    return out->n.factor != 0 && !t->dim[last].extent && (t->stride[last] == 1 || out->k == 1);
}

bool lower_vectors_of(const lowering *l, graph_value v, lower_matrix *out) {
    const graph_tensor *t = graph_tensor_at(l->g, v);
    lower_walk w = lower_walk_of((const graph_tensor *const[]){t}, 1, 1);
    const uint32_t last = t->rank - 1u;
    if (t->rank == 0 || t->dim[last].extent || t->stride[last] != 1 || w.n > 1) return false;
    *out = (lower_matrix){.n = w.n ? w.size[0] : (lower_count){1, 0},
                          .k = t->dim[last].size,
                          .stride = w.n ? w.stride[0][0] : 0,
                          .offset = t->offset};
    out->bound =
        (uint32_t)(out->n.factor * (out->n.extent ? l->g->extents[out->n.extent].bound : 1));
    return true;
}
