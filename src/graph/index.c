/* index.c - operations by index: their shape rules, and those made of others and of views. */
#include "graph/shapes.h"

#include <string.h>

/* ---- shapes ---------------------------------------------------------------------------------- */

static bool has_indices(graph *g, const graph_call *c, const graph_tensor *ids) {
    return ids->type == TYPE_I32 || ids->type == TYPE_I64 ||
           graph_refuse(g, BERYL_UNSUPPORTED, "%s: indices of %s", graph_op_name(c->op),
                        base_type_name(ids->type));
}

bool graph_shape_by_index(graph *g, const graph_call *c, graph_tensor *out) {
    const graph_tensor *x = c->in[0], *ids = c->in[1];
    const uint32_t axis = c->attr.gather.axis;
    char text[3][GRAPH_SHAPE_TEXT] = {"", "", ""};
    if (!has_indices(g, c, ids)) return false;
    bool fits = x->rank == ids->rank && axis < x->rank;
    for (uint32_t i = 0; fits && i < x->rank; i++)
        fits = i == axis || graph_same_dim(x->dim[i], ids->dim[i]) ||
               (!x->dim[i].extent && ids->dim[i].size <= x->dim[i].size);
    if (c->n_in > 2) fits = fits && graph_same_shape(ids, c->in[2]);
    if (!fits) {
        for (uint32_t i = 0; i < c->n_in; i++)
            graph_shape_text(g, c->in[i]->rank, c->in[i]->dim, text[i]);
        return graph_refuse(g, BERYL_MISUSE, "%s along axis %u: shapes do not fit: %s, %s%s%s",
                            graph_op_name(c->op), axis, text[0], text[1], c->n_in > 2 ? ", " : "",
                            text[2]);
    }
    if (c->op == OP_GATHER) memcpy(out->dim, ids->dim, sizeof out->dim);
    return true;
}

bool graph_shape_one_hot(graph *g, const graph_call *c, graph_tensor *out) {
    if (!has_indices(g, c, c->in[0])) return false;
    if (out->rank == GRAPH_RANK_MAX || !c->attr.one_hot.depth)
        return graph_refuse(g, out->rank == GRAPH_RANK_MAX ? BERYL_UNSUPPORTED : BERYL_MISUSE,
                            "one_hot of rank %u and depth %u", out->rank, c->attr.one_hot.depth);
    out->type = TYPE_BOOL;
    out->dim[out->rank++] = (graph_dim){c->attr.one_hot.depth, 0};
    return true;
}

bool graph_shape_nonzero(graph *g, const graph_call *c, graph_tensor *out) {
    const uint32_t rank = c->in[0]->rank;
    const uint64_t n = graph_element_bound(c->in[0]);
    if (!rank || n > INT32_MAX)
        return graph_refuse(g, rank ? BERYL_UNSUPPORTED : BERYL_MISUSE, "nonzero of %s",
                            rank ? "more than 2^31 elements" : "a single number");
    *out = (graph_tensor){.type = TYPE_I32, .rank = 2, .dim = {{(uint32_t)n, 0}, {rank, 0}}};
    return true;
}

/* ---- made of others -------------------------------------------------------------------------- */

graph_value graph_index_select(graph *g, graph_value x, graph_value ids, uint32_t axis) {
    if (!graph_has(g, x, "index_select") || !graph_has(g, ids, "index_select")) return 0;
    char text[GRAPH_SHAPE_TEXT];
    const graph_tensor t = *graph_tensor_at(g, x), i = *graph_tensor_at(g, ids);
    const uint32_t n = i.rank ? i.rank : 1, rank = t.rank + n - 1;
    if (axis >= t.rank || rank > GRAPH_RANK_MAX)
        return graph_refuse(g, axis < t.rank ? BERYL_UNSUPPORTED : BERYL_MISUSE,
                            "index_select of %s along axis %u, by ids of rank %u",
                            graph_shape_text(g, t.rank, t.dim, text), axis, i.rank);
    /* both with the axes of the result, but x with its own in the place of the first of ids */
    graph_dim as[GRAPH_RANK_MAX], from[GRAPH_RANK_MAX];
    memcpy(as, t.dim, axis * sizeof *as);
    memcpy(as + axis, i.dim, i.rank * sizeof *as);
    if (!i.rank) as[axis] = (graph_dim){1, 0};
    memcpy(as + axis + n, t.dim + axis + 1, (t.rank - axis - 1) * sizeof *as);
    memcpy(from, as, sizeof from);
    from[axis] = t.dim[axis];
    for (uint32_t k = 1; x && k < n; k++) x = graph_unsqueeze(g, x, axis + k);
    if (x && n > 1) x = graph_expand(g, x, rank, from);
    for (uint32_t k = i.rank + axis; ids && k < rank; k++)
        ids = graph_unsqueeze(g, ids, graph_tensor_at(g, ids)->rank);
    if (ids) ids = graph_expand(g, ids, rank, as);
    const graph_value y = x && ids ? graph_gather(g, x, ids, axis) : 0;
    return y && !i.rank ? graph_squeeze(g, y, axis) : y;
}

graph_value graph_index_add(graph *g, graph_value x, graph_value ids, graph_value updates,
                            uint32_t axis) {
    if (!graph_has(g, x, "index_add") || !graph_has(g, ids, "index_add") ||
        !graph_has(g, updates, "index_add"))
        return 0;
    char text[2][GRAPH_SHAPE_TEXT];
    const graph_tensor u = *graph_tensor_at(g, updates), i = *graph_tensor_at(g, ids);
    if (axis >= u.rank || i.rank != 1 || !graph_same_dim(u.dim[axis], i.dim[0]))
        return graph_refuse(g, BERYL_MISUSE, "index_add of %s by ids %s along axis %u",
                            graph_shape_text(g, u.rank, u.dim, text[0]),
                            graph_shape_text(g, i.rank, i.dim, text[1]), axis);
    for (uint32_t k = axis + 1; ids && k < u.rank; k++) ids = graph_unsqueeze(g, ids, k - axis);
    if (ids) ids = graph_expand(g, ids, u.rank, u.dim);
    return ids ? graph_scatter_add(g, x, ids, updates, axis) : 0;
}

graph_value graph_masked_fill(graph *g, graph_value x, graph_value mask, float value) {
    if (!graph_has(g, x, "masked_fill") || !graph_has(g, mask, "masked_fill")) return 0;
    const graph_tensor *m = graph_tensor_at(g, mask), *t = graph_tensor_at(g, x);
    const base_type type = t->type;
    if (m->type != TYPE_BOOL || m->rank > t->rank)
        return graph_refuse(g, BERYL_MISUSE, "masked_fill: a mask of %s and rank %u",
                            base_type_name(m->type), m->rank);
    /* no operation makes a number of nothing */
    graph_value fill = graph_scale(g, graph_cast(g, mask, TYPE_F32, false), 0);
    fill = graph_add_scalar(g, fill, value);
    if (type != TYPE_F32) fill = graph_cast(g, fill, type, false);
    return graph_where(g, mask, fill, x);
}

graph_value graph_nonzero(graph *g, graph_value x, graph_value *count) {
    *count = 0;
    const graph_value list = graph_op(g, OP_NONZERO, &x, (graph_attrs){0});
    if (!list) return 0;
    const uint32_t rank = graph_tensor_at(g, x)->rank;
    graph_value n = graph_cast(g, graph_cast(g, x, TYPE_BOOL, false), TYPE_I32, false);
    n = graph_reduce(g, OP_SUM, n, (1u << rank) - 1, 0);
    for (uint32_t i = 1; n && i < rank; i++) n = graph_squeeze(g, n, 0);
    *count = n;
    return n ? list : 0;
}
