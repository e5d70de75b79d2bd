/* index.c - operators that find elements by index, and those that find indices. Indices of ONNX may
 * count from the end; those of the graph do not. */
#include "graph/reference.h"
#include "onnx/operators.h"

#include <string.h>

void onnx_gather(onnx_call *c) {
    const graph_value x = onnx_in(c, 0);
    if (!x) return;
    const graph_tensor t = *onnx_tensor_of(c, x);
    const uint32_t axis = onnx_axis(c, onnx_whole(c, "axis", 0), t.rank);
    if (axis == UINT32_MAX) return;
    onnx_shape ids;
    if (!onnx_shape_of(c, 1, &ids)) return;
    /* one index that is known: a view */
    if (ids.rank == 0 && c->in[1].array && !c->in[1].given) {
        onnx_wholes one;
        if (!onnx_wholes_of(c, 1, &one)) return;
        const uint32_t at = onnx_axis(c, one.at[0], t.dim[axis].size);
        if (at != UINT32_MAX && !t.dim[axis].extent)
            onnx_give(c, 0, graph_squeeze(c->g, graph_narrow(c->g, x, axis, at, 1, 1), axis));
        return;
    }
    const graph_value at = onnx_indices(c, 1, t.dim[axis].size);
    if (at) onnx_give(c, 0, graph_index_select(c->g, x, at, axis));
}

void onnx_gather_elements(onnx_call *c) {
    const graph_value x = onnx_in(c, 0);
    if (!x) return;
    const graph_tensor t = *onnx_tensor_of(c, x);
    const uint32_t axis = onnx_axis(c, onnx_whole(c, "axis", 0), t.rank);
    const graph_value at = axis == UINT32_MAX ? 0 : onnx_indices(c, 1, t.dim[axis].size);
    if (at) onnx_give(c, 0, graph_gather(c->g, x, at, axis));
}

/* Tuples of indices, the last axis of input 1 [.., k], as one index [..] each into the product of k
 * dimensions; -1 where one is outside. */
static graph_value joined_indices(onnx_call *c, const uint32_t *sizes, uint32_t k) {
    const graph_value all = onnx_in(c, 1);
    if (!all) return 0;
    graph *g = c->g;
    const uint32_t axis = onnx_tensor_of(c, all)->rank - 1u;
    const graph_value zero = onnx_number(c, 0, TYPE_I32);
    graph_value joined = 0;
    for (uint32_t i = 0; i < k; i++) {
        graph_value at = onnx_as(c, graph_narrow(g, all, axis, i, 1, 1), TYPE_I32);
        if (!at) return 0;
        at = graph_squeeze(g, at, axis);
        const graph_value size = onnx_number(c, sizes[i], TYPE_I32);
        at = graph_where(g, onnx_op2(c, OP_LT, at, zero), onnx_op2(c, OP_ADD, at, size), at);
        joined = joined ? onnx_op2(c, OP_ADD, onnx_op2(c, OP_MUL, joined, size), at) : at;
    }
    return joined;
}

/* The shape [before.., count, rest..] of t with axes [first, first + k) joined. */
static graph_value with_joined(onnx_call *c, graph_value x, uint32_t first, uint32_t k) {
    const graph_tensor t = *onnx_tensor_of(c, x);
    uint32_t dim[GRAPH_RANK_MAX], n = 0;
    uint64_t size = 1;
    for (uint32_t i = 0; i < first; i++) dim[n++] = t.dim[i].size;
    for (uint32_t i = first; i < first + k; i++) size *= t.dim[i].size;
    if (size > INT32_MAX) return onnx_refuse(c, "more than 2^31 places");
    dim[n++] = (uint32_t)size;
    for (uint32_t i = first + k; i < t.rank; i++) dim[n++] = t.dim[i].size;
    return onnx_reshape(c, x, n, dim);
}

void onnx_gather_nd(onnx_call *c) {
    const graph_value x = onnx_in(c, 0), ids = onnx_in(c, 1);
    if (!x || !ids) return;
    const graph_tensor t = *onnx_tensor_of(c, x), u = *onnx_tensor_of(c, ids);
    const int64_t batch = onnx_whole(c, "batch_dims", 0);
    if (!onnx_is_sized(c, &t) || !onnx_is_sized(c, &u)) return;
    const uint32_t k = u.rank ? u.dim[u.rank - 1].size : 0;
    if (!u.rank || batch < 0 || batch >= u.rank || (uint64_t)batch + k > t.rank || !k) {
        onnx_refuse(c, "tuples of %u indices into %u axes", k, t.rank);
        return;
    }
    uint32_t sizes[GRAPH_RANK_MAX], b = (uint32_t)batch, parts = 1, dim[GRAPH_RANK_MAX], n = 0;
    for (uint32_t i = 0; i < k; i++) sizes[i] = t.dim[b + i].size;
    for (uint32_t i = 0; i < b; i++) parts *= t.dim[i].size;
    const graph_value at = joined_indices(c, sizes, k);
    if (!at) return;
    graph_value table = with_joined(c, x, b, k);
    if (!b) {
        onnx_give(c, 0, graph_index_select(c->g, table, at, 0));
        return;
    }
    /* batches: one table of all, and ids that count its rows */
    uint32_t rows = 1;
    for (uint32_t i = 0; i < k; i++) rows *= sizes[i];
    onnx_array *offsets = onnx_array_make(c, TYPE_I32, b, (uint32_t[GRAPH_RANK_MAX]){0});
    if (!offsets) return;
    offsets->rank = u.rank - 1u;
    for (uint32_t i = 0; i < offsets->rank; i++) offsets->dim[i] = i < b ? t.dim[i].size : 1;
    int32_t *to = base_arena_take(c->arena, parts, sizeof *to);
    for (uint32_t i = 0; to && i < parts; i++) to[i] = (int32_t)(i * rows);
    offsets->data = to;
    onnx_value o = {.array = offsets};
    if (!to) return;
    const graph_value ids_all = onnx_op2(c, OP_ADD, at, onnx_value_in_graph(c, &o));
    dim[n++] = parts * rows;
    for (uint32_t i = b + k; i < t.rank; i++) dim[n++] = t.dim[i].size;
    table = onnx_reshape(c, x, n, dim);
    if (table && ids_all) onnx_give(c, 0, graph_index_select(c->g, table, ids_all, 0));
}

/* How updates of one place come together. */
static graph_value scattered(onnx_call *c, graph_value x, graph_value at, graph_value updates,
                             uint32_t axis) {
    const base_view how = onnx_text(c, "reduction", "none");
    if (!updates || !at || !x) return 0;
    if (base_view_equal(how, BASE_VIEW("none"))) return graph_scatter(c->g, x, at, updates, axis);
    if (base_view_equal(how, BASE_VIEW("add")))
        return graph_scatter_add(c->g, x, at, updates, axis);
    /* one after another: an update for each index along the axis */
    const base_op op = base_view_equal(how, BASE_VIEW("mul"))   ? OP_MUL
                       : base_view_equal(how, BASE_VIEW("max")) ? OP_MAX
                                                                : OP_MIN;
    const uint32_t n = onnx_tensor_of(c, at)->dim[axis].size;
    if (n > 64)
        return onnx_refuse(c, "a reduction by %.*s of more than 64 updates along an axis",
                           (int)(how.size < 10 ? how.size : 10), how.data);
    for (uint32_t i = 0; x && i < n; i++) {
        const graph_value one = graph_narrow(c->g, at, axis, i, 1, 1),
                          u = graph_narrow(c->g, updates, axis, i, 1, 1),
                          old = graph_gather(c->g, x, one, axis);
        x = graph_scatter(c->g, x, one, onnx_op2(c, op, old, u), axis);
    }
    return x;
}

void onnx_scatter_elements(onnx_call *c) {
    const graph_value x = onnx_in(c, 0), updates = onnx_in(c, 2);
    if (!x || !updates) return;
    const graph_tensor t = *onnx_tensor_of(c, x);
    const uint32_t axis = onnx_axis(c, onnx_whole(c, "axis", 0), t.rank);
    if (axis == UINT32_MAX) return;
    const graph_value at = onnx_indices(c, 1, t.dim[axis].size);
    onnx_give(c, 0, scattered(c, x, at, updates, axis));
}

/* Rows [m, rest] of x by one index each: indices are broadcast along the rows. */
void onnx_scatter_nd(onnx_call *c) {
    const graph_value x = onnx_in(c, 0), ids = onnx_in(c, 1), updates = onnx_in(c, 2);
    if (!x || !ids || !updates) return;
    const graph_tensor t = *onnx_tensor_of(c, x), u = *onnx_tensor_of(c, ids);
    if (!onnx_is_sized(c, &t) || !onnx_is_sized(c, &u)) return;
    const uint32_t k = u.rank ? u.dim[u.rank - 1].size : 0;
    if (!k || k > t.rank) {
        onnx_refuse(c, "tuples of %u indices into %u axes", k, t.rank);
        return;
    }
    uint32_t sizes[GRAPH_RANK_MAX], rows = 1, rest = 1, n = 1;
    for (uint32_t i = 0; i < t.rank; i++)
        if (i < k) rows *= sizes[i] = t.dim[i].size;
        else rest *= t.dim[i].size;
    for (uint32_t i = 0; i + 1u < u.rank; i++) n *= u.dim[i].size;
    graph_value at = onnx_reshape(c, joined_indices(c, sizes, k), 2, (uint32_t[]){n, 1});
    at = onnx_expand(c, at, 2, (graph_dim[]){{n, 0}, {rest, 0}});
    const graph_value table = onnx_reshape(c, x, 2, (uint32_t[]){rows, rest}),
                      parts = onnx_reshape(c, updates, 2, (uint32_t[]){n, rest}),
                      v = scattered(c, table, at, parts, 0);
    if (v) onnx_give(c, 0, graph_reshape(c->g, v, t.rank, t.dim));
}

/* Updates into a cache along an axis, from a place that each batch has. */
void onnx_tensor_scatter(onnx_call *c) {
    const graph_value x = onnx_in(c, 0), updates = onnx_in(c, 1);
    if (!x || !updates) return;
    const graph_tensor t = *onnx_tensor_of(c, x), u = *onnx_tensor_of(c, updates);
    const uint32_t axis = onnx_axis(c, onnx_whole(c, "axis", -2), t.rank);
    if (axis == UINT32_MAX || !onnx_is_sized(c, &t) || !onnx_is_sized(c, &u)) return;
    graph *g = c->g;
    graph_value at = graph_iota(g, updates, axis);
    if (onnx_is_given(c, 2)) {
        uint32_t dim[GRAPH_RANK_MAX];
        for (uint32_t i = 0; i < t.rank; i++) dim[i] = i ? 1 : t.dim[0].size;
        at = onnx_op2(c, OP_ADD, at,
                      onnx_reshape(c, onnx_as(c, onnx_in(c, 2), TYPE_I32), t.rank, dim));
    }
    if (onnx_text_is(c, "mode", "linear", "circular"))
        at = onnx_op2(c, OP_MOD, at, onnx_number(c, t.dim[axis].size, TYPE_I32));
    if (at) onnx_give(c, 0, graph_scatter(g, x, at, updates, axis));
}

void onnx_one_hot(onnx_call *c) {
    const onnx_array *a = onnx_known(c, 1);
    const graph_value values = a ? onnx_in(c, 2) : 0;
    if (!values) return;
    double number;
    size_t n;
    if (!onnx_reals_of(c, 1, &number, 1, &n)) return;
    if (n != 1 || !(number >= 1 && number <= INT32_MAX)) {
        onnx_refuse(c, "a depth that cannot be");
        return;
    }
    const uint32_t depth = (uint32_t)number;
    onnx_shape ids;
    if (!onnx_shape_of(c, 0, &ids)) return;
    const uint32_t axis = onnx_axis(c, onnx_whole(c, "axis", -1), ids.rank + 1);
    if (axis == UINT32_MAX) return;
    graph *g = c->g;
    graph_value at = onnx_indices(c, 0, depth);
    at = onnx_as(c, at, TYPE_I32);
    if (!at) return;
    graph_value hot = graph_one_hot(g, at, depth);
    uint32_t axes[GRAPH_RANK_MAX];
    for (uint32_t i = 0; i <= ids.rank; i++) axes[i] = i < axis ? i : i == axis ? ids.rank : i - 1;
    hot = hot ? graph_permute(g, hot, ids.rank + 1, axes) : 0;
    const graph_value off = graph_squeeze(g, graph_narrow(g, values, 0, 0, 1, 1), 0),
                      on = graph_squeeze(g, graph_narrow(g, values, 0, 1, 1, 1), 0);
    if (hot) onnx_give(c, 0, graph_where(g, hot, on, off));
}

void onnx_topk(onnx_call *c) {
    graph_value x = onnx_in(c, 0), at = 0;
    onnx_wholes k;
    if (!x) return;
    if (!onnx_wholes_at(c, "k", 1, &k)) return;
    const onnx_attribute *a = onnx_attribute_find(c, "k");
    const int64_t most = a ? a->whole : k.n ? k.at[0] : 0;
    const graph_tensor t = *onnx_tensor_of(c, x);
    const uint32_t axis = onnx_axis(c, onnx_whole(c, "axis", -1), t.rank);
    if (axis == UINT32_MAX) return;
    if (most < 1 || most > t.dim[axis].size) {
        onnx_refuse(c, "the %lld largest of %u", (long long)most, t.dim[axis].size);
        return;
    }
    graph_value v;
    if (onnx_whole(c, "largest", 1)) {
        v = graph_topk_along(c->g, x, (uint32_t)most, axis, &at);
    } else {
        v = graph_sort(c->g, x, axis, GRAPH_SORT_RISING, &at);
        if (v) v = graph_narrow(c->g, v, axis, 0, (uint32_t)most, 1);
        if (at) at = graph_narrow(c->g, at, axis, 0, (uint32_t)most, 1);
    }
    onnx_give(c, 0, v);
    if (c->n_out > 1) onnx_give(c, 1, onnx_as(c, at, TYPE_I64));
}

void onnx_arg(onnx_call *c) {
    graph_value x = onnx_in(c, 0);
    if (!x) return;
    const graph_tensor t = *onnx_tensor_of(c, x);
    const uint32_t axis = onnx_axis(c, onnx_whole(c, "axis", 0), t.rank);
    if (axis == UINT32_MAX) return;
    const bool last = onnx_whole(c, "select_last_index", 0);
    graph_value at = graph_arg(c->g, last ? graph_flip(c->g, x, axis) : x, axis, c->variant);
    if (last && at) at = onnx_op2(c, OP_SUB, onnx_number(c, t.dim[axis].size - 1.0, TYPE_I32), at);
    if (at && !onnx_whole(c, "keepdims", 1)) at = onnx_without(c, at, 1u << axis);
    onnx_give(c, 0, onnx_as(c, at, TYPE_I64));
}

/* What the condition, known now, keeps. */
void onnx_compress(onnx_call *c) {
    graph_value x = onnx_in(c, 0);
    const onnx_array *keep = x ? onnx_known(c, 1) : NULL;
    if (!keep) return;
    const onnx_attribute *a = onnx_attribute_find(c, "axis");
    graph_tensor t = *onnx_tensor_of(c, x);
    if (!onnx_is_sized(c, &t)) return;
    uint32_t axis = 0, n = 0;
    if (!a) {
        const uint32_t all = (uint32_t)graph_element_bound(&t);
        x = onnx_reshape(c, x, 1, &all);
        if (!x) return;
        t = *onnx_tensor_of(c, x);
    } else if ((axis = onnx_axis(c, a->whole, t.rank)) == UINT32_MAX) {
        return;
    }
    const uint8_t *bools = keep->data;
    const uint32_t size = t.dim[axis].size,
                   count =
                       (uint32_t)(onnx_array_count(keep) < size ? onnx_array_count(keep) : size);
    for (uint32_t i = 0; i < count; i++) n += bools[i] != 0;
    uint32_t dim[GRAPH_RANK_MAX];
    for (uint32_t i = 0; i < t.rank; i++) dim[i] = i == axis ? n : t.dim[i].size;
    if (!n) {
        onnx_give_array(c, 0, onnx_array_make(c, t.type, t.rank, dim));
        return;
    }
    onnx_array *ids = onnx_array_make(c, TYPE_I32, 1, &n);
    n = 0;
    for (uint32_t i = 0; ids && i < count; i++)
        if (bools[i]) ((int32_t *)(uintptr_t)ids->data)[n++] = (int32_t)i;
    onnx_value v = {.array = ids};
    if (ids) onnx_give(c, 0, graph_index_select(c->g, x, onnx_value_in_graph(c, &v), axis));
}

/* Of known numbers alone: how many there are says the shape. */
void onnx_nonzero(onnx_call *c) {
    const onnx_array *a = onnx_known(c, 0);
    if (!a) return;
    const uint64_t all = onnx_array_count(a);
    const uint32_t bytes = base_type_block_bytes(a->type);
    uint32_t n = 0;
    for (uint64_t i = 0; i < all; i++) {
        const reference_number x = reference_number_at(a->type, (const char *)a->data + i * bytes);
        n += base_type_is_float(a->type) ? x.real != 0 : x.whole != 0;
    }
    onnx_array *to = onnx_array_make(c, TYPE_I64, 2, (uint32_t[]){a->rank, n});
    if (!to) return;
    uint32_t at = 0;
    for (uint64_t i = 0; i < all; i++) {
        const reference_number x = reference_number_at(a->type, (const char *)a->data + i * bytes);
        if (base_type_is_float(a->type) ? x.real == 0 : x.whole == 0) continue;
        uint64_t rest = i;
        for (uint32_t d = a->rank; d-- > 0; rest /= a->dim[d])
            ((int64_t *)(uintptr_t)to->data)[d * n + at] = (int64_t)(rest % a->dim[d]);
        at++;
    }
    onnx_give_array(c, 0, to);
}

/* Along the time axis the first lengths[batch] elements backwards. */
void onnx_reverse_sequence(onnx_call *c) {
    const graph_value x = onnx_in(c, 0), lengths = onnx_in(c, 1);
    if (!x || !lengths) return;
    const graph_tensor t = *onnx_tensor_of(c, x);
    const uint32_t batch = onnx_axis(c, onnx_whole(c, "batch_axis", 1), t.rank),
                   time = onnx_axis(c, onnx_whole(c, "time_axis", 0), t.rank);
    if (batch == UINT32_MAX || time == UINT32_MAX || !onnx_is_sized(c, &t)) return;
    uint32_t dim[GRAPH_RANK_MAX];
    for (uint32_t i = 0; i < t.rank; i++) dim[i] = i == batch ? t.dim[i].size : 1;
    const graph_value at = graph_iota(c->g, x, time),
                      n = onnx_reshape(c, onnx_as(c, lengths, TYPE_I32), t.rank, dim);
    if (!n) return;
    const graph_value back =
        onnx_op2(c, OP_SUB, onnx_op2(c, OP_SUB, n, onnx_number(c, 1, TYPE_I32)), at);
    const graph_value from = graph_where(c->g, onnx_op2(c, OP_LT, at, n), back, at);
    if (from) onnx_give(c, 0, graph_gather(c->g, x, from, time));
}
