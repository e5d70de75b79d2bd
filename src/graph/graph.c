/* graph.c - building graphs: tensors, shape rules, printing; views are in views.c. Refuses shapes
 * that do not fit, by name. */
#include "graph/graph.h"
#include "base/error.h"
#include "graph/build.h"
#include "graph/store.h"

#include <stdarg.h>
#include <stdio.h>
#include <string.h>

const char *graph_op_name(base_op op) {
    return (unsigned)op < OP_COUNT ? base_ops[op].name : "?";
}

static bool is(base_op op, uint32_t fact) {
    return base_ops[op].facts & fact;
}

bool graph_op_is_pointwise(base_op op) {
    return is(op, OP_IS_POINTWISE);
}

bool graph_op_is_expensive(base_op op) {
    return is(op, OP_IS_EXPENSIVE);
}

bool graph_op_is_over_rows(base_op op) {
    return is(op, OP_IS_OVER_ROWS);
}

bool graph_op_is_over_axes(base_op op) {
    return is(op, OP_IS_OVER_AXES);
}

bool graph_op_is_mapped(base_op op) {
    return is(op, OP_IS_MAPPED);
}

bool graph_op_is_from_memory(base_op op) {
    return op == OP_PAD || op == OP_CONCAT;
}

bool graph_op_reduces(base_op op) {
    return is(op, OP_REDUCES);
}

bool graph_op_is_in_trees(base_op op) {
    return is(op, OP_IS_POINTWISE | OP_IS_OVER_ROWS | OP_IS_OVER_AXES | OP_IS_MAPPED);
}

graph *graph_open(base_heap *heap) {
    graph *g = base_heap_take(heap, sizeof *g);
    if (!g) return NULL;
    g->heap = heap;
    base_arena_init(&g->arena, heap);
    if (!base_vec_add(heap, &g->tensors)) {
        graph_close(g);
        return NULL;
    }
    return g;
}

void graph_close(graph *g) {
    if (!g) return;
    base_heap *heap = g->heap;
    base_vec_fini(heap, &g->tensors);
    base_vec_fini(heap, &g->nodes);
    base_vec_fini(heap, &g->inner);
    base_arena_fini(&g->arena);
    base_heap_give(heap, g, sizeof *g);
}

beryl_status graph_status(const graph *g, beryl_error *error) {
    if (g->error.code != BERYL_OK && error) *error = g->error;
    return g->error.code;
}

/* ---- errors, tensors, nodes ------------------------------------------------------------------ */

graph_value graph_refuse(graph *g, beryl_status code, const char *format, ...) {
    if (g->error.code == BERYL_OK) {
        char text[200];
        va_list args;
        va_start(args, format);
        vsnprintf(text, sizeof text, format, args);
        va_end(args);
        base_fail(&g->error, code, "graph: %s", text);
    }
    return 0;
}

const graph_tensor *graph_tensor_at(const graph *g, graph_value v) {
    return &g->tensors.data[v < g->tensors.count ? v : 0];
}

bool graph_has(graph *g, graph_value v, const char *what) {
    if (g->error.code != BERYL_OK) return false;
    if (v != 0 && v < g->tensors.count) return true;
    graph_refuse(g, BERYL_MISUSE, "%s: an input is missing", what);
    return false;
}

graph_value graph_tensor_add(graph *g, base_type type, graph_role role, uint32_t rank,
                             const graph_dim *dims) {
    if (g->error.code != BERYL_OK) return 0;
    if (rank > GRAPH_RANK_MAX) return graph_refuse(g, BERYL_UNSUPPORTED, "rank %u", rank);
    graph_tensor *t = base_vec_add(g->heap, &g->tensors);
    if (!t) return graph_refuse(g, BERYL_NO_MEMORY, "out of memory");
    t->type = type;
    t->role = role;
    t->rank = (uint8_t)rank;
    t->node = UINT32_MAX;
    t->name = "";
    uint64_t stride = 1;
    for (uint32_t i = rank; i-- > 0;) {
        t->dim[i] = dims[i];
        t->stride[i] = (uint32_t)stride;
        stride *= dims[i].size;
        if (dims[i].size == 0 || stride > UINT32_MAX) {
            g->tensors.count--;
            return graph_refuse(g, BERYL_UNSUPPORTED,
                                "a tensor of more than 2^32 - 1 elements, or of none");
        }
    }
    return (graph_value)(g->tensors.count - 1);
}

static graph_tensor *at(graph *g, graph_value v) {
    return &g->tensors.data[v];
}

static void print_dims(const graph *g, uint32_t rank, const graph_dim *dims, base_text *out) {
    base_text_add(out, "[", 1);
    for (uint32_t i = 0; i < rank; i++) {
        if (i) base_text_add(out, ", ", 2);
        if (dims[i].extent && dims[i].extent <= g->n_extent)
            base_text_print(out, "%s<=", g->extents[dims[i].extent].name);
        base_text_print(out, "%u", dims[i].size);
    }
    base_text_add(out, "]", 1);
}

const char *graph_shape_text(const graph *g, uint32_t rank, const graph_dim *dims,
                             char text[GRAPH_SHAPE_TEXT]) {
    base_text words;
    base_text_init(&words, g->heap);
    print_dims(g, rank, dims, &words);
    snprintf(text, GRAPH_SHAPE_TEXT, "%s", words.failed ? "[..]" : words.data);
    base_text_fini(&words);
    return text;
}

bool graph_same_dim(graph_dim a, graph_dim b) {
    return a.size == b.size && a.extent == b.extent;
}

bool graph_same_shape(const graph_tensor *a, const graph_tensor *b) {
    bool same = a->rank == b->rank;
    for (uint32_t i = 0; same && i < a->rank; i++) same = graph_same_dim(a->dim[i], b->dim[i]);
    return same;
}

/* ---- inputs, stored tensors, views ----------------------------------------------------------- */

graph_value graph_input(graph *g, const char *name, base_type type, uint32_t rank,
                        const graph_dim *dims) {
    graph_value v = graph_tensor_add(g, type, ROLE_INPUT, rank, dims);
    if (v) at(g, v)->name = name;
    return v;
}

graph_value graph_stored(graph *g, const graph_store *store, uint32_t index) {
    if (g->error.code != BERYL_OK) return 0;
    if (index >= store->tensors.count)
        return graph_refuse(g, BERYL_MISUSE, "stored tensor %u of %zu", index,
                            store->tensors.count);
    const store_tensor *s = &store->tensors.data[index];
    for (graph_value v = 1; v < g->tensors.count; v++)
        if (at(g, v)->role == ROLE_STORED && !at(g, v)->base && at(g, v)->stored == index) return v;
    graph_tensor *t = base_vec_add(g->heap, &g->tensors);
    if (!t) return graph_refuse(g, BERYL_NO_MEMORY, "out of memory");
    /* Larger than 2^32 elements is fine here: rows are addressed apart from their elements. */
    *t = (graph_tensor){.type = s->type,
                        .role = ROLE_STORED,
                        .rank = s->rank,
                        .stored = index,
                        .node = UINT32_MAX,
                        .name = s->name};
    uint64_t stride = 1;
    for (uint32_t i = s->rank; i-- > 0;) {
        t->dim[i] = (graph_dim){s->dim[i], 0};
        t->stride[i] = stride > UINT32_MAX ? 0 : (uint32_t)stride;
        stride *= s->dim[i];
    }
    return (graph_value)(g->tensors.count - 1);
}

void graph_output(graph *g, graph_value value, const char *name) {
    if (g->error.code != BERYL_OK) return;
    if (!value || value >= g->tensors.count) {
        graph_refuse(g, BERYL_MISUSE, "output '%s' is missing", name);
        return;
    }
    graph_tensor *t = at(g, value);
    if (t->base || t->role != ROLE_INTERMEDIATE) {
        graph_refuse(g, BERYL_MISUSE, "output '%s' is a view, an input or stored", name);
        return;
    }
    t->role = ROLE_OUTPUT;
    t->name = name;
}

bool graph_is_contiguous(const graph_tensor *t) {
    uint64_t stride = 1;
    for (uint32_t i = t->rank; i-- > 0;) {
        if (t->dim[i].size != 1 && t->stride[i] != stride) return false;
        stride *= t->dim[i].size;
    }
    return true;
}

int64_t graph_stride(const graph_tensor *t, uint32_t axis) {
    return t->base ? (int32_t)t->stride[axis] : (int64_t)t->stride[axis];
}

uint64_t graph_element_bound(const graph_tensor *t) {
    uint64_t n = 1;
    for (uint32_t i = 0; i < t->rank; i++) n *= t->dim[i].size;
    return n;
}

uint32_t graph_dim_value(graph_dim dim, const uint32_t *values) {
    return dim.extent ? values[dim.extent] : dim.size;
}

graph_value graph_base_of(const graph *g, graph_value v) {
    while (g->tensors.data[v].base) v = g->tensors.data[v].base;
    return v;
}

const graph_node *graph_reader_of(const graph *g, graph_value v) {
    const graph_tensor *t = graph_tensor_at(g, v);
    const graph_node *reader = NULL;
    if (t->role != ROLE_INTERMEDIATE || t->base || t->node == UINT32_MAX) return NULL;
    for (size_t i = t->node + 1; i < g->nodes.count; i++) {
        const graph_node *node = &g->nodes.data[i];
        for (uint32_t k = 0; !node->dead && k < node->n_in; k++) {
            if (!node->in[k] || graph_base_of(g, node->in[k]) != v) continue;
            if (reader || node->in[k] != v) return NULL;
            reader = node;
        }
    }
    return reader;
}

graph_value graph_view_of(graph *g, graph_value x, uint32_t rank, const graph_dim *dims) {
    graph_value v = graph_tensor_add(g, at(g, x)->type, at(g, x)->role, rank, dims);
    if (!v) return 0;
    graph_tensor *t = at(g, v);
    const graph_tensor *from = at(g, x);
    t->base = x;
    t->offset = from->offset;
    t->stored = from->stored;
    t->node = from->node;
    t->name = from->name;
    if (t->role == ROLE_OUTPUT) t->role = ROLE_INTERMEDIATE;
    return v;
}

/* ---- operations ------------------------------------------------------------------------------ */

/* A shape rule looks at a call whose inputs have been given, with good types, and says what it
 * makes: *out is at first the first input, with the result's type. */
typedef struct call {
    base_op op;
    uint32_t n_in;
    graph_attrs attr;
    const graph_tensor *in[GRAPH_IN_MAX];
} call;

typedef bool shape_rule(graph *g, const call *c, graph_tensor *out);

static bool wrong(graph *g, const call *c) {
    char shapes[160] = "", text[GRAPH_SHAPE_TEXT];
    for (uint32_t i = 0, n = 0; i < c->n_in && n < sizeof shapes; i++)
        n += (uint32_t)snprintf(shapes + n, sizeof shapes - n, "%s%s", i ? ", " : "",
                                graph_shape_text(g, c->in[i]->rank, c->in[i]->dim, text));
    return graph_refuse(g, BERYL_MISUSE, "%s: shapes do not fit: %s", graph_op_name(c->op), shapes);
}

/* Broadcast against each other, from the right: sizes are the same or 1. */
static bool pointwise(graph *g, const call *c, graph_tensor *out) {
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
static bool are_vectors(graph *g, const call *c, graph_dim n) {
    for (uint32_t k = 1; k < c->n_in; k++)
        if (c->in[k]->rank != 1 || !graph_same_dim(c->in[k]->dim[0], n))
            return graph_refuse(g, BERYL_MISUSE, "%s: weight or bias of another size than %u",
                                graph_op_name(c->op), n.size);
    return true;
}

static bool over_rows(graph *g, const call *c, graph_tensor *out) {
    if (out->rank == 0)
        return graph_refuse(g, BERYL_MISUSE, "%s of a single number", graph_op_name(c->op));
    return are_vectors(g, c, out->dim[out->rank - 1]);
}

static bool group_norm(graph *g, const call *c, graph_tensor *out) {
    const uint32_t groups = c->attr.group_norm.groups;
    if (out->rank < 2 || out->rank == GRAPH_RANK_MAX)
        return graph_refuse(g, BERYL_UNSUPPORTED, "group_norm of rank %u, not 2 to 7", out->rank);
    if (out->dim[1].extent || !groups || out->dim[1].size % groups)
        return graph_refuse(g, BERYL_MISUSE, "group_norm: %u channels in %u groups%s",
                            out->dim[1].size, groups,
                            out->dim[1].extent ? ", where a run says how many" : "");
    return are_vectors(g, c, out->dim[1]);
}

static bool has_axis(graph *g, const call *c, uint32_t axis) {
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

static bool pad(graph *g, const call *c, graph_tensor *out) {
    const uint32_t axis = c->attr.pad.axis;
    return has_axis(g, c, axis) &&
           lengthen(g, &out->dim[axis], (graph_dim){c->attr.pad.before, 0}) &&
           lengthen(g, &out->dim[axis], (graph_dim){c->attr.pad.after, 0});
}

static bool concat(graph *g, const call *c, graph_tensor *out) {
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
static bool triangle(graph *g, const call *c, graph_tensor *out) {
    enum { SIZE_MAX_HERE = 1 << 30 }; /* places are compared by their difference */
    const uint32_t rank = out->rank;
    return (rank > 1 && out->dim[rank - 1].size <= SIZE_MAX_HERE &&
            out->dim[rank - 2].size <= SIZE_MAX_HERE) ||
           graph_refuse(g, rank > 1 ? BERYL_UNSUPPORTED : BERYL_MISUSE,
                        "%s takes two axes, of 2^30 at most", graph_op_name(c->op));
}

static bool reduction(graph *g, const call *c, graph_tensor *out) {
    const uint32_t axes = c->attr.at[0].u;
    if (!axes || axes >> out->rank)
        return graph_refuse(g, BERYL_MISUSE, "%s over axes %#x of %u", graph_op_name(c->op), axes,
                            out->rank);
    for (uint32_t i = 0; i < out->rank; i++)
        if (axes >> i & 1) out->dim[i] = (graph_dim){1, 0};
    return true;
}

static bool cumsum(graph *g, const call *c, graph_tensor *out) {
    return c->attr.cumsum.axis < out->rank ||
           graph_refuse(g, BERYL_MISUSE, "%s along axis %u of %u", graph_op_name(c->op),
                        c->attr.cumsum.axis, out->rank);
}

static bool gather_rows(graph *g, const call *c, graph_tensor *out) {
    const graph_tensor *t = c->in[0], *i = c->in[1];
    if (t->rank < 1 || t->rank > 2 || i->rank > 2)
        return graph_refuse(g, BERYL_MISUSE, "gather_rows: ranks %u and %u", t->rank, i->rank);
    if (t->type == TYPE_I32) out->type = TYPE_I32;
    out->rank = i->rank;
    memcpy(out->dim, i->dim, sizeof out->dim);
    if (t->rank == 2) out->dim[out->rank++] = t->dim[1];
    return true;
}

static bool topk(graph *g, const call *c, graph_tensor *out) {
    const uint32_t k = c->attr.topk.k;
    if (out->rank != 2 || k == 0 || k > out->dim[1].size)
        return graph_refuse(g, BERYL_MISUSE, "topk of %u", k);
    out->dim[1] = (graph_dim){k, 0};
    return true;
}

static bool weighted_sum(graph *g, const call *c, graph_tensor *out) {
    const graph_tensor *w = c->in[1];
    if (out->rank != 3 || w->rank != 2 || !graph_same_dim(out->dim[0], w->dim[0]) ||
        !graph_same_dim(out->dim[1], w->dim[1]))
        return wrong(g, c);
    out->rank = 2;
    out->dim[1] = out->dim[2];
    return true;
}

static bool is_matrix(graph *g, const call *c, const graph_tensor *m) {
    if (m->type == TYPE_F32 || m->type == TYPE_F16 || m->type == TYPE_BF16 ||
        base_type_is_quantised(m->type))
        return true;
    return graph_refuse(g, BERYL_UNSUPPORTED, "%s with a weight of %s", graph_op_name(c->op),
                        base_type_name(m->type));
}

static bool matmul(graph *g, const call *c, graph_tensor *out) {
    const graph_tensor *m = c->in[1];
    if (!is_matrix(g, c, m)) return false;
    if (out->rank < 1 || m->rank != 2 || !graph_same_dim(out->dim[out->rank - 1], m->dim[1]))
        return graph_refuse(g, BERYL_MISUSE, "matmul: rows of %u with '%s' of rows of %u",
                            out->rank ? out->dim[out->rank - 1].size : 0, m->name, m->dim[1].size);
    out->dim[out->rank - 1] = m->dim[0];
    return true;
}

static bool matmul_id(graph *g, const call *c, graph_tensor *out) {
    const graph_tensor *m = c->in[1], *i = c->in[2];
    if (!is_matrix(g, c, m)) return false;
    const bool fits =
        out->rank == 3 && m->rank == 3 && i->rank == 2 && graph_same_dim(out->dim[0], i->dim[0]) &&
        graph_same_dim(out->dim[2], m->dim[2]) &&
        ((out->dim[1].size == 1 && !out->dim[1].extent) || graph_same_dim(out->dim[1], i->dim[1]));
    if (!fits)
        return graph_refuse(g, BERYL_MISUSE, "matmul_id with '%s': shapes do not fit", m->name);
    out->dim[1] = i->dim[1];
    out->dim[2] = m->dim[1];
    return true;
}

static bool rope(graph *g, const call *c, graph_tensor *out) {
    const graph_tensor *a = c->in[1];
    return (out->rank == 3 && a->rank == 3 && graph_same_dim(out->dim[0], a->dim[0]) &&
            !out->dim[2].extent && out->dim[2].size % 2 == 0 &&
            graph_same_dim(a->dim[1], (graph_dim){2, 0}) &&
            graph_same_dim(a->dim[2], (graph_dim){out->dim[2].size / 2, 0})) ||
           wrong(g, c);
}

static bool is_index_of(graph *g, const call *c, const graph_tensor *index, graph_dim n) {
    if (index->rank != 1 || !graph_same_dim(index->dim[0], n))
        return graph_refuse(g, BERYL_MISUSE, "%s: an index for each row is needed",
                            graph_op_name(c->op));
    return graph_is_contiguous(index) ||
           graph_refuse(g, BERYL_UNSUPPORTED, "%s: indices with gaps", graph_op_name(c->op));
}

/* All of what it is a view of. */
static bool is_whole(graph *g, const graph_tensor *t) {
    return !t->base ||
           (graph_is_contiguous(t) && !t->offset &&
            graph_element_bound(t) == graph_element_bound(at(g, graph_base_of(g, t->base))));
}

static bool no_part(graph *g, const call *c) {
    return is_whole(g, c->in[0]) ||
           graph_refuse(g, BERYL_UNSUPPORTED, "%s into a part of a state", graph_op_name(c->op));
}

static bool kv_write(graph *g, const call *c, graph_tensor *out) {
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

static bool attention(graph *g, const call *c, graph_tensor *out) {
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
    return (graph_is_contiguous(a) && graph_is_contiguous(b) &&
            (a->type == TYPE_F32 || (is_whole(g, a) && is_whole(g, b)))) ||
           graph_refuse(g, BERYL_UNSUPPORTED,
                        "attention over keys and values with gaps, or cut out");
}

/* [n, m] -> I32 [n] */
static bool choice(graph *g, const call *c, graph_tensor *out) {
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

static bool set_rows(graph *g, const call *c, graph_tensor *out) {
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

static shape_rule *rule_of(base_op op) {
    static shape_rule *const rules[OP_COUNT] = {
        [OP_GATHER_ROWS] = gather_rows,
        [OP_GROUP_NORM] = group_norm,
        [OP_CUMSUM] = cumsum,
        [OP_CUMPROD] = cumsum,
        [OP_CUMMAX] = cumsum,
        [OP_CUMMIN] = cumsum,
        [OP_PAD] = pad,
        [OP_CONCAT] = concat,
        [OP_TRIL] = triangle,
        [OP_TRIU] = triangle,
        [OP_TOPK] = topk,
        [OP_WEIGHTED_SUM] = weighted_sum,
        [OP_MATMUL] = matmul,
        [OP_MATMUL_ID] = matmul_id,
        [OP_ROPE] = rope,
        [OP_KV_WRITE] = kv_write,
        [OP_ATTENTION] = attention,
        [OP_ARGMAX] = choice,
        [OP_SAMPLE] = choice,
        [OP_SET_ROWS] = set_rows,
    };
    return is(op, OP_IS_POINTWISE)   ? pointwise
           : is(op, OP_IS_OVER_ROWS) ? over_rows
           : is(op, OP_REDUCES)      ? reduction
                                     : rules[op];
}

static bool is_float(base_type type) {
    return type == TYPE_F32 || type == TYPE_F16 || type == TYPE_BF16 || type == TYPE_F64;
}

static bool is_integer(base_type type) {
    return type == TYPE_I8 || type == TYPE_I16 || type == TYPE_I32 || type == TYPE_I64 ||
           type == TYPE_U8 || type == TYPE_U16 || type == TYPE_U32;
}

bool graph_type_is_plain(base_type type) {
    return is_float(type) || is_integer(type) || type == TYPE_BOOL;
}

/* Of an input of that kind (base/ops.h). */
static bool is_type(char kind, base_type type) {
    switch (kind) {
    case 'm': return true;
    case 'a': return graph_type_is_plain(type);
    case 'n': return is_float(type) || is_integer(type);
    case 'f': return is_float(type);
    case 'h':
    case 'w': return is_float(type) && type != TYPE_F64;
    case 'z': return is_integer(type) || type == TYPE_BOOL;
    case 'i': return is_integer(type);
    case 'b': return type == TYPE_BOOL;
    case 'c': return type == TYPE_U32;
    case 'I':
    case 's':
    case 'p': return type == TYPE_I32;
    default: return type == TYPE_F32;
    }
}

/* The type of the result, where the inputs' kinds or the operation say it. */
static bool find_type(graph *g, const call *c, graph_tensor *out) {
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
    if (!is(c->op, OP_IS_CAST)) return true;
    out->type = (base_type)c->attr.cast.type;
    return graph_type_is_plain(out->type) ||
           graph_refuse(g, BERYL_UNSUPPORTED, "cast to %s",
                        c->attr.cast.type < TYPE_COUNT ? base_type_name(out->type) : "no type");
}

graph_value graph_op(graph *g, base_op op, const graph_value *in, graph_attrs attr) {
    const base_op_info *info = &base_ops[op];
    shape_rule *rule = rule_of(op);
    graph_value from[GRAPH_IN_MAX];
    call c = {.op = op, .n_in = info->n_in_min, .attr = attr};
    for (uint32_t i = 0; i < info->n_in_max; i++)
        if (in[i]) c.n_in = i + 1 > c.n_in ? i + 1 : c.n_in;
    for (uint32_t i = 0; i < c.n_in; i++) {
        if (!graph_has(g, in[i], graph_op_name(op))) return 0;
        if (!is_type(info->inputs[i], at(g, in[i])->type))
            return graph_refuse(g, BERYL_UNSUPPORTED, "%s of %s", info->name,
                                base_type_name(at(g, in[i])->type));
        from[i] = graph_layout(g, op, &attr, i, in[i]);
        if (!from[i]) return 0;
    }
    for (uint32_t i = 0; i < c.n_in; i++) c.in[i] = at(g, from[i]);
    graph_tensor out = *c.in[0];
    if (!find_type(g, &c, &out) || !rule(g, &c, &out)) return 0;
    graph_node *node = base_vec_add(g->heap, &g->nodes);
    if (!node) return graph_refuse(g, BERYL_NO_MEMORY, "out of host memory");
    *node = (graph_node){.op = op, .n_in = (uint8_t)c.n_in, .attr = attr};
    memcpy(node->in, from, c.n_in * sizeof *from);
    for (uint32_t i = 0; i < info->n_out; i++) { /* in place: another id for the same memory */
        const graph_value v = is(op, OP_IS_IN_PLACE)
                                  ? graph_view_of(g, from[0], out.rank, out.dim)
                                  : graph_tensor_add(g, i ? TYPE_I32 : out.type, ROLE_INTERMEDIATE,
                                                     out.rank, out.dim);
        if (!v) return 0;
        at(g, v)->node = (uint32_t)(node - g->nodes.data);
        node->out[node->n_out++] = v;
    }
    return node->out[0];
}

#define DEFINE_USUAL(NAME, name, most, in, attrs, names)                             \
    graph_value graph_##name(graph *g OP_INPUTS_##most in OP_PARAMS_##attrs names) { \
        return graph_op(g, OP_##NAME, (graph_value[]){OP_LIST in},                   \
                        (graph_attrs){.name = {OP_NAMES_##attrs names}});            \
    }
#define DEFINE_INNER DEFINE_USUAL
#define DEFINE_OWN(...)
#define DEFINE_NONE(...)
#define X(NAME, name, group, least, most, in, letters, out, attrs, names, values, call, ...) \
    DEFINE_##call(NAME, name, most, in, attrs, names)
BASE_OP_LIST(X)
#undef X

graph_value graph_attention(graph *g, graph_value q, graph_value k, graph_value v, graph_value slot,
                            graph_value pos, float scale, uint32_t window) {
    return graph_op(g, OP_ATTENTION, (graph_value[]){q, k, v, slot, pos, 0},
                    (graph_attrs){.attention = {.scale = scale, .window = window}});
}

graph_value graph_attention_range(graph *g, graph_value q, graph_value k, graph_value v,
                                  graph_value slot, graph_value first, graph_value last,
                                  float scale) {
    if (!graph_has(g, first, graph_op_name(OP_ATTENTION))) return 0;
    return graph_op(g, OP_ATTENTION, (graph_value[]){q, k, v, slot, last, first},
                    (graph_attrs){.attention = {.scale = scale}});
}

graph_value graph_cast(graph *g, graph_value x, base_type type, bool wrap) {
    return graph_op(g, OP_CAST, &x, (graph_attrs){.cast = {(uint32_t)type, wrap}});
}

graph_value graph_reduce(graph *g, base_op op, graph_value x, uint32_t axes, uint32_t correction) {
    return graph_op(g, op, &x, (graph_attrs){.mean = {axes, correction}});
}

graph_value graph_topk(graph *g, graph_value x, uint32_t k, graph_value *indices) {
    const graph_value values = graph_op(g, OP_TOPK, &x, (graph_attrs){.topk = {k}});
    *indices = values ? g->nodes.data[at(g, values)->node].out[1] : 0;
    return values;
}

void graph_attention_distinct_slots(graph *g, graph_value attention, uint32_t most) {
    if (!graph_has(g, attention, graph_op_name(OP_ATTENTION))) return;
    graph_node *node =
        at(g, attention)->node == UINT32_MAX ? NULL : &g->nodes.data[at(g, attention)->node];
    if (!node || node->op != OP_ATTENTION) {
        graph_refuse(g, BERYL_MISUSE, "not the result of an attention");
        return;
    }
    node->attr.attention.apart = true;
    node->attr.attention.most = most;
}

graph_value graph_intermediate(graph *g, base_type type, uint32_t rank, const graph_dim *dims) {
    return graph_tensor_add(g, type, ROLE_INTERMEDIATE, rank, dims);
}

/* ---- printing -------------------------------------------------------------------------------- */

static void print_tensor(const graph *g, graph_value v, base_text *out) {
    const graph_tensor *t = graph_tensor_at(g, v);
    base_text_print(out, "%%%u:%s", v, base_type_name(t->type));
    print_dims(g, t->rank, t->dim, out);
    if (t->role == ROLE_STORED || t->role == ROLE_INPUT || t->role == ROLE_OUTPUT)
        base_text_print(out, "'%s'", t->name);
}

void graph_print_node(const graph *g, const graph_node *node, base_text *out) {
    for (uint32_t k = 0; k < node->n_out; k++) {
        if (k) base_text_add(out, ", ", 2);
        print_tensor(g, node->out[k], out);
    }
    base_text_print(out, " = %s(", graph_op_name(node->op));
    for (uint32_t k = 0; k < node->n_in; k++) {
        if (k) base_text_add(out, ", ", 2);
        print_tensor(g, node->in[k], out);
    }
    base_text_add(out, ")\n", 2);
}
