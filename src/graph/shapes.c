/* shapes.c - see graph/shapes.h. */
#include "graph/shapes.h"
#include "beryl_graph.h"

#include <stdio.h>
#include <string.h>

static bool is(base_op op, uint32_t fact) {
    return base_ops[op].facts & fact;
}

static bool wrong(graph *g, const graph_call *c) {
    char shapes[160] = "", text[GRAPH_SHAPE_TEXT];
    for (uint32_t i = 0, n = 0; i < c->n_in && n < sizeof shapes; i++)
        n += (uint32_t)snprintf(shapes + n, sizeof shapes - n, "%s%s", i ? ", " : "",
                                graph_shape_text(g, c->in[i]->rank, c->in[i]->dim, text));
    return graph_refuse(g, BERYL_MISUSE, "%s: shapes do not fit: %s", graph_op_name(c->op), shapes);
}

/* Broadcast against each other, from the right: sizes are the same or 1. */
static bool pointwise(graph *g, const graph_call *c, graph_tensor *out) {
    for (uint32_t k = 1; k < c->n_in; k++)
        if (c->in[k]->rank > out->rank) out->rank = c->in[k]->rank;
    for (uint32_t i = 0; i < out->rank; i++) { /* from the right */
        graph_dim *to = &out->dim[out->rank - 1 - i];
        *to = (graph_dim){1, 0};
        for (uint32_t k = 0; k < c->n_in; k++) {
            const graph_tensor *x = c->in[k];
            const graph_dim d = i < x->rank ? x->dim[x->rank - 1 - i] : (graph_dim){1, 0};
            const bool one = d.size == 1 && !d.extent;
            if (!one && (to->size != 1 || to->extent) && !graph_same_dim(*to, d))
                return wrong(g, c);
            if (!one) *to = d;
        }
    }
    return true;
}

/* The inputs after the first are numbers [n]. */
static bool are_vectors(graph *g, const graph_call *c, graph_dim n) {
    for (uint32_t k = 1; k < c->n_in; k++)
        if (c->in[k]->rank != 1 || !graph_same_dim(c->in[k]->dim[0], n))
            return graph_refuse(g, BERYL_MISUSE, "%s: weight or bias of another size than %u",
                                graph_op_name(c->op), n.size);
        else if ((c->in[k]->type == TYPE_F64) != (c->in[0]->type == TYPE_F64))
            return graph_refuse(g, BERYL_UNSUPPORTED, "%s of %s with a weight of %s",
                                graph_op_name(c->op), base_type_name(c->in[0]->type),
                                base_type_name(c->in[k]->type));
    return true;
}

static bool over_rows(graph *g, const graph_call *c, graph_tensor *out) {
    if (out->rank == 0)
        return graph_refuse(g, BERYL_MISUSE, "%s of a single number", graph_op_name(c->op));
    return are_vectors(g, c, out->dim[out->rank - 1]);
}

static bool group_norm(graph *g, const graph_call *c, graph_tensor *out) {
    const uint32_t groups = c->attr.group_norm.groups;
    if (out->rank < 2 || out->rank == GRAPH_RANK_MAX)
        return graph_refuse(g, BERYL_UNSUPPORTED, "group_norm of rank %u, not 2 to 7", out->rank);
    if (out->dim[1].extent || !groups || out->dim[1].size % groups)
        return graph_refuse(g, BERYL_MISUSE, "group_norm: %u channels in %u groups%s",
                            out->dim[1].size, groups,
                            out->dim[1].extent ? ", where a run says how many" : "");
    return are_vectors(g, c, out->dim[1]);
}

static bool has_axis(graph *g, const graph_call *c, uint32_t axis) {
    char text[GRAPH_SHAPE_TEXT];
    return axis < c->in[0]->rank ||
           graph_refuse(g, BERYL_MISUSE, "%s of %s: there is no axis %u", graph_op_name(c->op),
                        graph_shape_text(g, c->in[0]->rank, c->in[0]->dim, text), axis);
}

/* *to becomes as much longer as `by` says. */
static bool lengthen(graph *g, graph_dim *to, graph_dim by) {
    if (by.size) *to = graph_dim_sum(g, *to, by);
    return g->error.code == BERYL_OK;
}

static bool pad(graph *g, const graph_call *c, graph_tensor *out) {
    const uint32_t axis = c->attr.pad.axis;
    return has_axis(g, c, axis) &&
           lengthen(g, &out->dim[axis], (graph_dim){c->attr.pad.before, 0}) &&
           lengthen(g, &out->dim[axis], (graph_dim){c->attr.pad.after, 0});
}

static bool concat(graph *g, const graph_call *c, graph_tensor *out) {
    const uint32_t axis = c->attr.concat.axis;
    if (!has_axis(g, c, axis)) return false;
    for (uint32_t k = 1; k < c->n_in; k++) {
        graph_tensor as = *c->in[k];
        if (as.rank == out->rank) as.dim[axis] = c->in[0]->dim[axis];
        if (!graph_same_shape(&as, c->in[0])) return wrong(g, c);
        if (!lengthen(g, &out->dim[axis], c->in[k]->dim[axis])) return false;
    }
    return true;
}

/* tril, triu */
static bool triangle(graph *g, const graph_call *c, graph_tensor *out) {
    enum { SIZE_MAX_HERE = 1 << 30 }; /* places are compared by their difference */
    const uint32_t rank = out->rank;
    return (rank > 1 && out->dim[rank - 1].size <= SIZE_MAX_HERE &&
            out->dim[rank - 2].size <= SIZE_MAX_HERE) ||
           graph_refuse(g, rank > 1 ? BERYL_UNSUPPORTED : BERYL_MISUSE,
                        "%s takes two axes, of 2^30 at most", graph_op_name(c->op));
}

/* The places of elements are computed in 32 bits. */
static bool resize(graph *g, const graph_call *c, graph_tensor *out) {
    const uint32_t axis = c->attr.resize.axis, size = c->attr.resize.size, how = c->attr.resize.how;
    if (!has_axis(g, c, axis)) return false;
    const graph_dim from = out->dim[axis];
    if (!size || how >= BERYL_RESIZE_COUNT)
        return graph_refuse(g, BERYL_MISUSE, "resize to a size of %u, by %u", size, how);
    if (from.extent || (2 * (uint64_t)size + 1) * from.size > UINT32_MAX)
        return graph_refuse(g, BERYL_UNSUPPORTED, "resize of %u to %u%s", from.size, size,
                            from.extent ? ", where a run says of how many" : ": too large");
    if (how >= BERYL_RESIZE_LINEAR && !base_type_is_float(out->type))
        return graph_refuse(g, BERYL_UNSUPPORTED, "resize of %s other than to the nearest",
                            base_type_name(out->type));
    out->dim[axis].size = size;
    return true;
}

static bool iota(graph *g, const graph_call *c, graph_tensor *out) {
    out->type = TYPE_I32;
    return has_axis(g, c, c->attr.iota.axis);
}

/* Keys of the result's shape; a type for each kind. */
static bool random_numbers(graph *g, const graph_call *c, graph_tensor *out) {
    const uint32_t kind = c->attr.random.kind;
    const base_type type = (base_type)c->attr.random.type;
    const bool whole = kind == RANDOM_BITS || kind == RANDOM_BITS_HIGH,
               fits = kind > RANDOM_TRUE       ? false
                      : whole                  ? type == TYPE_U32
                      : kind == RANDOM_TRUE    ? type == TYPE_BOOL
                      : kind == RANDOM_UNIFORM ? base_random_bits(type) > 0
                                               : type == TYPE_F32;
    if (!fits)
        return graph_refuse(g, BERYL_UNSUPPORTED, "random numbers of kind %u as %s", kind,
                            c->attr.random.type < TYPE_COUNT ? base_type_name(type) : "no type");
    out->type = type;
    return graph_same_shape(c->in[0], c->in[1]) || wrong(g, c);
}

static bool reduction(graph *g, const graph_call *c, graph_tensor *out) {
    const uint32_t axes = c->attr.at[0].u;
    if (!axes || axes >> out->rank)
        return graph_refuse(g, BERYL_MISUSE, "%s over axes %#x of %u", graph_op_name(c->op), axes,
                            out->rank);
    if (is(c->op, OP_GIVES_INDEX) &&
        (axes & (axes - 1) || base_type_block_bytes(c->in[0]->type) > 4))
        return graph_refuse(g, BERYL_UNSUPPORTED, "%s over axes %#x of %s", graph_op_name(c->op),
                            axes, base_type_name(c->in[0]->type));
    for (uint32_t i = 0; i < out->rank; i++)
        if (axes >> i & 1) out->dim[i] = (graph_dim){1, 0};
    return true;
}

static bool contraction(graph *g, const graph_call *c, graph_tensor *out) {
    return pointwise(g, c, out) && reduction(g, c, out);
}

static bool cumsum(graph *g, const graph_call *c, graph_tensor *out) {
    return c->attr.cumsum.axis < out->rank ||
           graph_refuse(g, BERYL_MISUSE, "%s along axis %u of %u", graph_op_name(c->op),
                        c->attr.cumsum.axis, out->rank);
}

static bool gather_rows(graph *g, const graph_call *c, graph_tensor *out) {
    const graph_tensor *t = c->in[0], *i = c->in[1];
    if (t->rank < 1 || t->rank > 2 || i->rank > 2)
        return graph_refuse(g, BERYL_MISUSE, "gather_rows: ranks %u and %u", t->rank, i->rank);
    if (t->type == TYPE_I32) out->type = TYPE_I32;
    out->rank = i->rank;
    memcpy(out->dim, i->dim, sizeof out->dim);
    if (t->rank == 2) out->dim[out->rank++] = t->dim[1];
    return true;
}

static bool topk(graph *g, const graph_call *c, graph_tensor *out) {
    const uint32_t k = c->attr.topk.k;
    if (out->rank != 2 || k == 0 || k > out->dim[1].size)
        return graph_refuse(g, BERYL_MISUSE, "topk of %u", k);
    out->dim[1] = (graph_dim){k, 0};
    return true;
}

static bool sort(graph *g, const graph_call *c, graph_tensor *out) {
    if (!out->rank || c->attr.sort.order > GRAPH_SORT_LARGEST)
        return graph_refuse(g, BERYL_MISUSE, "sort of rank %u in order %u", out->rank,
                            c->attr.sort.order);
    const uint32_t k = c->attr.sort.k;
    graph_dim *d = &out->dim[out->rank - 1];
    if (k && (k > d->size || d->extent))
        return graph_refuse(g, BERYL_MISUSE, "the first %u of %u%s", k, d->size,
                            d->extent ? " of a run" : "");
    if (k) d->size = k;
    return true;
}

static bool weighted_sum(graph *g, const graph_call *c, graph_tensor *out) {
    const graph_tensor *w = c->in[1];
    if (out->rank != 3 || w->rank != 2 || !graph_same_dim(out->dim[0], w->dim[0]) ||
        !graph_same_dim(out->dim[1], w->dim[1]))
        return wrong(g, c);
    out->rank = 2;
    out->dim[1] = out->dim[2];
    return true;
}

static bool is_matrix(graph *g, const graph_call *c, const graph_tensor *m) {
    if (m->type == TYPE_F32 || m->type == TYPE_F16 || m->type == TYPE_BF16 ||
        base_type_is_quantised(m->type))
        return true;
    return graph_refuse(g, BERYL_UNSUPPORTED, "%s with a weight of %s", graph_op_name(c->op),
                        base_type_name(m->type));
}

static bool linear(graph *g, const graph_call *c, graph_tensor *out) {
    const graph_tensor *m = c->in[1];
    if (!is_matrix(g, c, m)) return false;
    if (out->rank < 1 || m->rank != 2 || !graph_same_dim(out->dim[out->rank - 1], m->dim[1]))
        return graph_refuse(g, BERYL_MISUSE, "linear: rows of %u with '%s' of rows of %u",
                            out->rank ? out->dim[out->rank - 1].size : 0, m->name, m->dim[1].size);
    out->dim[out->rank - 1] = m->dim[0];
    return true;
}

static bool linear_id(graph *g, const graph_call *c, graph_tensor *out) {
    const graph_tensor *m = c->in[1], *i = c->in[2];
    if (!is_matrix(g, c, m)) return false;
    const bool fits =
        out->rank == 3 && m->rank == 3 && i->rank == 2 && graph_same_dim(out->dim[0], i->dim[0]) &&
        graph_same_dim(out->dim[2], m->dim[2]) &&
        ((out->dim[1].size == 1 && !out->dim[1].extent) || graph_same_dim(out->dim[1], i->dim[1]));
    if (!fits)
        return graph_refuse(g, BERYL_MISUSE, "linear_id with '%s': shapes do not fit", m->name);
    out->dim[1] = i->dim[1];
    out->dim[2] = m->dim[1];
    return true;
}

static bool rope(graph *g, const graph_call *c, graph_tensor *out) {
    const graph_tensor *a = c->in[1];
    return (out->rank == 3 && a->rank == 3 && graph_same_dim(out->dim[0], a->dim[0]) &&
            !out->dim[2].extent && out->dim[2].size % 2 == 0 &&
            graph_same_dim(a->dim[1], (graph_dim){2, 0}) &&
            graph_same_dim(a->dim[2], (graph_dim){out->dim[2].size / 2, 0})) ||
           wrong(g, c);
}

static bool is_index_of(graph *g, const graph_call *c, const graph_tensor *index, graph_dim n) {
    if (index->rank != 1 || !graph_same_dim(index->dim[0], n))
        return graph_refuse(g, BERYL_MISUSE, "%s: an index for each row is needed",
                            graph_op_name(c->op));
    return graph_is_contiguous(index) ||
           graph_refuse(g, BERYL_UNSUPPORTED, "%s: indices with gaps", graph_op_name(c->op));
}

/* All of what it is a view of. */
static bool is_whole(graph *g, const graph_tensor *t) {
    return !t->base || (graph_is_contiguous(t) && !t->offset &&
                        graph_element_bound(t) ==
                            graph_element_bound(graph_tensor_at(g, graph_base_of(g, t->base))));
}

static bool no_part(graph *g, const graph_call *c) {
    return is_whole(g, c->in[0]) ||
           graph_refuse(g, BERYL_UNSUPPORTED, "%s into a part of a state", graph_op_name(c->op));
}

static bool kv_write(graph *g, const graph_call *c, graph_tensor *out) {
    const graph_tensor *cache = c->in[0], *x = c->in[1];
    (void)out;
    if (!is_index_of(g, c, c->in[2], x->dim[0]) || !is_index_of(g, c, c->in[3], x->dim[0]))
        return false;
    if (cache->type != TYPE_F32 && cache->type != TYPE_F16 && cache->type != TYPE_Q8_0)
        return graph_refuse(g, BERYL_UNSUPPORTED, "kv_write into %s", base_type_name(cache->type));
    if (cache->role != ROLE_STORED || cache->rank != 4 || x->rank != 3 ||
        !graph_same_dim(cache->dim[2], x->dim[1]) || !graph_same_dim(cache->dim[3], x->dim[2]))
        return wrong(g, c);
    return no_part(g, c);
}

/* A cache as it is; of values of the run any rows, if they are one slot's. */
static bool are_keys(graph *g, const graph_tensor *t) {
    const bool stored =
        (t->base ? graph_tensor_at(g, graph_base_of(g, t->base)) : t)->role == ROLE_STORED;
    if (stored || !base_type_is_float(t->type))
        return graph_is_contiguous(t) && (t->type == TYPE_F32 || is_whole(g, t));
    return graph_is_contiguous(t) || (t->dim[0].size == 1 && t->stride[3] == 1);
}

static bool attention(graph *g, const graph_call *c, graph_tensor *out) {
    const graph_tensor *a = c->in[1], *b = c->in[2];
    const uint32_t window = c->attr.attention.window;
    for (uint32_t i = 3; i < c->n_in; i++)
        if (!is_index_of(g, c, c->in[i], out->dim[0])) return false;
    bool fits = out->rank == 3 && a->rank == 4 && b->rank == 4 && a->type == b->type &&
                graph_same_dim(out->dim[2], a->dim[3]) && !out->dim[1].extent &&
                !a->dim[0].extent && !a->dim[2].extent && !a->dim[3].extent &&
                (!a->dim[1].extent || a->dim[0].size == 1);
    for (uint32_t i = 0; fits && i < 4; i++) fits = graph_same_dim(a->dim[i], b->dim[i]);
    if (!fits || out->dim[1].size % a->dim[2].size || window > a->dim[1].size ||
        (window && c->n_in > 5))
        return wrong(g, c);
    if (a->type != TYPE_F32 && a->type != TYPE_F16 && a->type != TYPE_Q8_0)
        return graph_refuse(g, BERYL_UNSUPPORTED, "attention over %s", base_type_name(a->type));
    return (are_keys(g, a) && are_keys(g, b)) ||
           graph_refuse(g, BERYL_UNSUPPORTED,
                        "attention over keys and values with gaps, or cut out");
}

/* [n, heads, 4]: see OP_ATTENTION_SUMS */
static bool attention_sums(graph *g, const graph_call *c, graph_tensor *out) {
    graph_call like = *c;
    like.in[2] = c->in[1];
    like.in[5] = c->in[6];
    like.n_in = c->n_in > 6 ? 6 : 5;
    if (!attention(g, &like, out)) return false;
    if (!graph_same_shape(c->in[2], out) || !graph_same_shape(c->in[5], out)) return wrong(g, c);
    out->dim[2] = (graph_dim){4, 0};
    return true;
}

static bool attention_back(graph *g, const graph_call *c, graph_tensor *out) {
    const graph_tensor *q = c->in[0], *k = c->in[1], *v = c->in[2], *sums = c->in[4];
    if (q->rank != 3 || k->rank != 4 || !graph_same_shape(k, v) || k->type != v->type ||
        !graph_same_shape(q, c->in[3]) || sums->rank != 3 || q->dim[1].extent || q->dim[2].extent ||
        !graph_same_dim(q->dim[2], k->dim[3]) || k->dim[2].extent ||
        !graph_same_dim(k->dim[0], (graph_dim){1, 0}) || q->dim[1].size % k->dim[2].size ||
        !graph_same_dim(q->dim[0], sums->dim[0]) || !graph_same_dim(q->dim[1], sums->dim[1]) ||
        !graph_same_dim(sums->dim[2], (graph_dim){4, 0}))
        return wrong(g, c);
    if (k->type != TYPE_F32 && k->type != TYPE_F16)
        return graph_refuse(g, BERYL_UNSUPPORTED, "attention over %s", base_type_name(k->type));
    *out = c->attr.attention_back.towards ? *k : *q;
    out->type = TYPE_F32;
    return true;
}

static bool fourier(graph *g, const graph_call *c, graph_tensor *out) {
    const uint32_t axis = c->attr.fourier.axis, how = c->attr.fourier.how, rank = out->rank,
                   parts = !(how & FOURIER_REAL_IN);
    if (!rank || axis + parts >= rank || out->dim[axis].extent || how >= 2 * FOURIER_OVER_ROOT ||
        (parts && !graph_same_dim(out->dim[rank - 1], (graph_dim){2, 0})))
        return wrong(g, c);
    const uint32_t from = out->dim[axis].size,
                   n = c->attr.fourier.size ? c->attr.fourier.size : from;
    if (!from || from > n) return wrong(g, c);
    if (!graph_fourier_fits(n) || (out->type != TYPE_F32 && out->type != TYPE_F64))
        return graph_refuse(g, BERYL_UNSUPPORTED, "fourier of %u %s", n, base_type_name(out->type));
    out->dim[axis].size = how & FOURIER_HALF ? n / 2 + 1 : n;
    out->rank = (uint8_t)(rank - parts);
    if (how & FOURIER_REAL_OUT) return true;
    if (out->rank == GRAPH_RANK_MAX)
        return graph_refuse(g, BERYL_UNSUPPORTED, "fourier of rank %u", out->rank);
    out->dim[out->rank++] = (graph_dim){2, 0};
    return true;
}

/* [n, m] -> I32 [n] */
static bool choice(graph *g, const graph_call *c, graph_tensor *out) {
    const graph_tensor *s = c->in[c->n_in - 1];
    if (out->rank != 2)
        return graph_refuse(g, BERYL_MISUSE, "%s of rank %u", graph_op_name(c->op), out->rank);
    if (c->op == OP_SAMPLE && (s->rank != 2 || !graph_same_dim(out->dim[0], s->dim[0]) ||
                               !graph_same_dim(s->dim[1], (graph_dim){8, 0})))
        return wrong(g, c);
    out->type = TYPE_I32;
    out->rank = 1;
    return true;
}

static bool set_rows(graph *g, const graph_call *c, graph_tensor *out) {
    const graph_tensor *s = c->in[0], *x = c->in[1];
    (void)out;
    if (!is_index_of(g, c, c->in[2], x->dim[0])) return false;
    if (s->type != x->type || (s->type != TYPE_I32 && s->type != TYPE_F32))
        return graph_refuse(g, BERYL_UNSUPPORTED, "set_rows of %s into %s", base_type_name(x->type),
                            base_type_name(s->type));
    if (s->role != ROLE_STORED || s->rank != x->rank || s->rank < 1 || s->rank > 2 ||
        (s->rank == 2 && !graph_same_dim(s->dim[1], x->dim[1])))
        return wrong(g, c);
    return no_part(g, c);
}

static bool assign(graph *g, const graph_call *c, graph_tensor *out) {
    const graph_tensor *s = c->in[0], *x = c->in[1];
    (void)out;
    if (s->type != x->type || !graph_type_is_plain(s->type))
        return graph_refuse(g, BERYL_UNSUPPORTED, "assign of %s to %s", base_type_name(x->type),
                            base_type_name(s->type));
    if (s->role != ROLE_STORED || !graph_same_shape(s, x)) return wrong(g, c);
    if (x->role == ROLE_STORED && x->stored == s->stored)
        return graph_refuse(g, BERYL_UNSUPPORTED, "assign of a state to itself");
    return no_part(g, c);
}

graph_shape_rule *graph_shape_rule_of(base_op op) {
    static graph_shape_rule *const rules[OP_COUNT] = {
        [OP_GATHER_ROWS] = gather_rows,
        [OP_GATHER] = graph_shape_by_index,
        [OP_SCATTER] = graph_shape_by_index,
        [OP_SCATTER_ADD] = graph_shape_by_index,
        [OP_ONE_HOT] = graph_shape_one_hot,
        [OP_NONZERO] = graph_shape_nonzero,
        [OP_GROUP_NORM] = group_norm,
        [OP_CUMSUM] = cumsum,
        [OP_CUMPROD] = cumsum,
        [OP_CUMMAX] = cumsum,
        [OP_CUMMIN] = cumsum,
        [OP_PAD] = pad,
        [OP_CONCAT] = concat,
        [OP_RESIZE] = resize,
        [OP_IOTA] = iota,
        [OP_RANDOM] = random_numbers,
        [OP_TRIL] = triangle,
        [OP_TRIU] = triangle,
        [OP_TOPK] = topk,
        [OP_SORT] = sort,
        [OP_WEIGHTED_SUM] = weighted_sum,
        [OP_CONTRACT] = contraction,
        [OP_FOURIER] = BUILD_HAS_GRAPHS ? fourier : NULL,
        [OP_LINEAR] = linear,
        [OP_LINEAR_ID] = linear_id,
        [OP_ROPE] = rope,
        [OP_KV_WRITE] = kv_write,
        [OP_ATTENTION] = attention,
        [OP_ATTENTION_SUMS] = BUILD_HAS_TRAINING ? attention_sums : NULL,
        [OP_ATTENTION_BACK] = BUILD_HAS_TRAINING ? attention_back : NULL,
        [OP_ARGMAX] = choice,
        [OP_SAMPLE] = choice,
        [OP_SET_ROWS] = set_rows,
        [OP_ASSIGN] = assign,
    };
    return is(op, OP_IS_POINTWISE)   ? pointwise
           : is(op, OP_IS_OVER_ROWS) ? over_rows
           : is(op, OP_REDUCES)      ? reduction
                                     : rules[op];
}

bool graph_type_is_plain(base_type type) {
    return base_type_is_float(type) || base_type_is_integer(type) || type == TYPE_BOOL;
}

bool graph_is_type(char kind, base_type type) {
    switch (kind) {
    case 'm': return true;
    case 'a': return graph_type_is_plain(type);
    case 'n': return base_type_is_float(type) || base_type_is_integer(type);
    case 'f': return base_type_is_float(type);
    case 'h':
    case 'w': return base_type_is_float(type);
    case 'z': return base_type_is_integer(type) || type == TYPE_BOOL;
    case 'i': return base_type_is_integer(type);
    case 'b': return type == TYPE_BOOL;
    case 'u':
    case 'c': return type == TYPE_U32;
    case 'I':
    case 's':
    case 'p': return type == TYPE_I32;
    default: return type == TYPE_F32;
    }
}

bool graph_find_type(graph *g, const graph_call *c, graph_tensor *out) {
    const base_op_info *info = &base_ops[c->op];
    bool known = false;
    out->type = TYPE_F32;
    for (uint32_t i = 0; i < c->n_in; i++) {
        if (!strchr("anfhzi", info->inputs[i])) continue;
        if (known && c->in[i]->type != out->type)
            return graph_refuse(g, BERYL_UNSUPPORTED, "%s of %s and %s", info->name,
                                base_type_name(out->type), base_type_name(c->in[i]->type));
        out->type = c->in[i]->type;
        known = true;
    }
    if (is(c->op, OP_GIVES_BOOL)) out->type = TYPE_BOOL;
    if (is(c->op, OP_GIVES_INDEX)) out->type = TYPE_I32;
    if (!is(c->op, OP_IS_CAST)) return true;
    out->type = (base_type)c->attr.cast.type;
    return graph_type_is_plain(out->type) ||
           graph_refuse(g, BERYL_UNSUPPORTED, "cast to %s",
                        c->attr.cast.type < TYPE_COUNT ? base_type_name(out->type) : "no type");
}
