/* values.c - what operators make of values again and again: numbers, casts, shapes, indices. */
#include "graph/reference.h"
#include "onnx/call.h"

#include <math.h>

graph_value onnx_number(onnx_call *c, double number, base_type type) {
    const bool exact = fabs(number) <= 1 << 24 || (base_type_is_float(type) && type != TYPE_F64);
    if (exact && (float)number == number) {
        const float real = (float)number;
        const graph_value v = graph_constant(c->g, 1, &real);
        return onnx_as(c, v ? graph_squeeze(c->g, v, 0) : 0, type);
    }
    onnx_array *a = onnx_array_make(c, type, 0, NULL);
    if (!a) return 0;
    reference_put(type, (void *)(uintptr_t)a->data,
                  (reference_number){number, reference_within(type, number)});
    onnx_value x = {.array = a};
    return onnx_value_in_graph(c, &x);
}

graph_value onnx_as(onnx_call *c, graph_value v, base_type type) {
    return !v || graph_tensor_at(c->g, v)->type == type ? v : graph_cast(c->g, v, type, false);
}

graph_value onnx_wide(onnx_call *c, graph_value v, base_type *was) {
    *was = graph_tensor_at(c->g, v)->type;
    return *was == TYPE_F16 || *was == TYPE_BF16 ? onnx_as(c, v, TYPE_F32) : v;
}

graph_value onnx_op2(onnx_call *c, base_op op, graph_value a, graph_value b) {
    const graph_value in[GRAPH_IN_MAX] = {a, b};
    return a && b ? graph_op(c->g, op, in, (graph_attrs){0}) : 0;
}

graph_value onnx_without(onnx_call *c, graph_value v, uint32_t axes) {
    for (uint32_t i = GRAPH_RANK_MAX; v && i-- > 0;)
        if (axes >> i & 1) v = graph_squeeze(c->g, v, i);
    return v;
}

graph_value onnx_reshape(onnx_call *c, graph_value v, uint32_t rank, const uint32_t *dim) {
    graph_dim d[GRAPH_RANK_MAX];
    if (rank > GRAPH_RANK_MAX) return onnx_refuse(c, "more than 10 dimensions");
    for (uint32_t i = 0; i < rank; i++) d[i] = (graph_dim){dim[i], 0};
    return v ? graph_reshape(c->g, v, rank, d) : 0;
}

graph_value onnx_expand(onnx_call *c, graph_value v, uint32_t rank, const graph_dim *dim) {
    if (!v) return 0;
    const graph_tensor t = *graph_tensor_at(c->g, v);
    bool same = t.rank == rank;
    for (uint32_t i = 0; same && i < rank; i++) same = graph_same_dim(t.dim[i], dim[i]);
    return same ? v : graph_expand(c->g, v, rank, dim);
}

bool onnx_is_sized(onnx_call *c, const graph_tensor *t) {
    for (uint32_t i = 0; i < t->rank; i++)
        if (t->dim[i].extent) return onnx_refuse(c, "a tensor that each run sizes"), false;
    return true;
}

graph_value onnx_indices(onnx_call *c, size_t k, uint32_t n) {
    if (onnx_is_given(c, k) && c->in[k].array && !c->in[k].given) {
        const onnx_array *a = onnx_known(c, k);
        if (!a || base_type_is_float(a->type)) return a ? onnx_refuse(c, "indices are floats") : 0;
        onnx_array *to = onnx_array_make(c, TYPE_I32, a->rank, a->dim);
        const uint32_t bytes = base_type_block_bytes(a->type);
        for (uint64_t i = 0; to && i < onnx_array_count(a); i++) {
            const int64_t at =
                reference_number_at(a->type, (const char *)a->data + i * bytes).whole;
            ((int32_t *)(uintptr_t)to->data)[i] =
                at < -(int64_t)n || at >= n ? -1 : (int32_t)(at < 0 ? at + n : at);
        }
        onnx_value x = {.array = to};
        return to ? onnx_value_in_graph(c, &x) : 0;
    }
    const graph_value v = onnx_in(c, k);
    if (!v) return 0;
    const graph_value at = onnx_as(c, v, TYPE_I32), zero = onnx_number(c, 0, TYPE_I32),
                      end = onnx_number(c, n, TYPE_I32);
    return graph_where(c->g, onnx_op2(c, OP_LT, at, zero), onnx_op2(c, OP_ADD, at, end), at);
}
