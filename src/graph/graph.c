/* graph.c - building graphs: tensors, shape rules, views, printing. Refuses shapes that do not fit, by name. */
#include "graph/graph.h"
#include "base/error.h"
#include "graph/store.h"

#include <stdarg.h>
#include <stdio.h>
#include <string.h>

static const char *const op_names[] = {
#define X(name, text, group, least, most, out, what) text,
    BASE_OP_LIST(X)
#undef X
};

const char *graph_op_name(base_op op) {
    return (unsigned)op < OP_COUNT ? op_names[op] : "?";
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

/* ---- errors, tensors, nodes ---------------------------------------------------------------------- */

static graph_value refuse(graph *g, beryl_status code, const char *format, ...)
    __attribute__((format(printf, 3, 4)));
static graph_value refuse(graph *g, beryl_status code, const char *format, ...) {
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

static bool given(graph *g, graph_value v, base_op op) {
    if (g->error.code != BERYL_OK) return false;
    if (v != 0 && v < g->tensors.count) return true;
    refuse(g, BERYL_MISUSE, "%s: an input is missing", graph_op_name(op));
    return false;
}

static graph_value tensor_add(graph *g, base_type type, graph_role role, uint32_t rank, const graph_dim *dims) {
    if (g->error.code != BERYL_OK) return 0;
    if (rank > GRAPH_RANK_MAX) return refuse(g, BERYL_UNSUPPORTED, "rank %u", rank);
    graph_tensor *t = base_vec_add(g->heap, &g->tensors);
    if (!t) return refuse(g, BERYL_NO_MEMORY, "out of memory");
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
            return refuse(g, BERYL_UNSUPPORTED, "a tensor of more than 2^32 - 1 elements, or of none");
        }
    }
    return (graph_value)(g->tensors.count - 1);
}

static graph_tensor *at(graph *g, graph_value v) {
    return &g->tensors.data[v];
}

static graph_node *node_add(graph *g, base_op op, const graph_value *in, uint32_t n_in) {
    if (g->error.code != BERYL_OK) return NULL;
    graph_node *node = base_vec_add(g->heap, &g->nodes);
    if (!node) {
        refuse(g, BERYL_NO_MEMORY, "out of memory");
        return NULL;
    }
    node->op = op;
    node->n_in = (uint8_t)n_in;
    for (uint32_t i = 0; i < n_in; i++) node->in[i] = in[i];
    return node;
}

static graph_value node_out(graph *g, graph_node *node, base_type type, uint32_t rank, const graph_dim *dims) {
    if (!node) return 0;
    graph_value v = tensor_add(g, type, ROLE_INTERMEDIATE, rank, dims);
    if (!v) return 0;
    at(g, v)->node = (uint32_t)(node - g->nodes.data);
    node->out[node->n_out++] = v;
    return v;
}

static bool same_dim(graph_dim a, graph_dim b) {
    return a.size == b.size && a.extent == b.extent;
}

bool graph_same_shape(const graph_tensor *a, const graph_tensor *b) {
    bool same = a->rank == b->rank;
    for (uint32_t i = 0; same && i < a->rank; i++) same = same_dim(a->dim[i], b->dim[i]);
    return same;
}

/* ---- inputs, stored tensors, views ------------------------------------------------------------------ */

uint8_t graph_extent_add(graph *g, const char *name, uint32_t bound) {
    if (g->n_extent == GRAPH_EXTENT_MAX || bound == 0) {
        refuse(g, BERYL_MISUSE, "extent '%s'", name);
        return 0;
    }
    g->extents[++g->n_extent] = (graph_extent){name, bound};
    return (uint8_t)g->n_extent;
}

graph_value graph_input(graph *g, const char *name, base_type type, uint32_t rank, const graph_dim *dims) {
    graph_value v = tensor_add(g, type, ROLE_INPUT, rank, dims);
    if (v) at(g, v)->name = name;
    return v;
}

graph_value graph_stored(graph *g, const graph_store *store, uint32_t index) {
    if (g->error.code != BERYL_OK) return 0;
    if (index >= store->tensors.count) return refuse(g, BERYL_MISUSE, "stored tensor %u of %zu", index, store->tensors.count);
    const store_tensor *s = &store->tensors.data[index];
    for (graph_value v = 1; v < g->tensors.count; v++)
        if (at(g, v)->role == ROLE_STORED && !at(g, v)->base && at(g, v)->stored == index) return v;
    graph_tensor *t = base_vec_add(g->heap, &g->tensors);
    if (!t) return refuse(g, BERYL_NO_MEMORY, "out of memory");
    /* Larger than 2^32 elements is fine here: rows are addressed apart from their elements. */
    *t = (graph_tensor){.type = s->type, .role = ROLE_STORED, .rank = s->rank, .stored = index, .node = UINT32_MAX, .name = s->name};
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
        refuse(g, BERYL_MISUSE, "output '%s' is missing", name);
        return;
    }
    graph_tensor *t = at(g, value);
    if (t->base || t->role != ROLE_INTERMEDIATE) {
        refuse(g, BERYL_MISUSE, "output '%s' is a view, an input or stored", name);
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

uint64_t graph_element_bound(const graph_tensor *t) {
    uint64_t n = 1;
    for (uint32_t i = 0; i < t->rank; i++) n *= t->dim[i].size;
    return n;
}

uint32_t graph_dim_value(graph_dim dim, const uint32_t *extents) {
    return dim.extent ? extents[dim.extent] : dim.size;
}

graph_value graph_base_of(const graph *g, graph_value v) {
    while (g->tensors.data[v].base) v = g->tensors.data[v].base;
    return v;
}

static graph_value view_of(graph *g, graph_value x, uint32_t rank, const graph_dim *dims) {
    graph_value v = tensor_add(g, at(g, x)->type, at(g, x)->role, rank, dims);
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

graph_value graph_reshape(graph *g, graph_value x, uint32_t rank, const graph_dim *dims) {
    if (!given(g, x, OP_COPY)) return 0;
    const graph_tensor *from = at(g, x);
    uint64_t n = 1;
    for (uint32_t i = 0; i < rank; i++) n *= dims[i].size;
    if (!graph_is_contiguous(from) || n != graph_element_bound(from))
        return refuse(g, BERYL_MISUSE, "reshape of a strided tensor or to another size");
    if (base_type_is_quantised(from->type) && (rank == 0 || dims[rank - 1].size != from->dim[from->rank - 1u].size))
        return refuse(g, BERYL_UNSUPPORTED, "a view of %s that cuts its rows", base_type_name(from->type));
    return view_of(g, x, rank, dims);
}

graph_value graph_narrow(graph *g, graph_value x, uint32_t axis, uint32_t start, uint32_t size) {
    if (!given(g, x, OP_COPY)) return 0;
    graph_tensor from = *at(g, x);
    if (axis >= from.rank || from.dim[axis].extent || size == 0 || start > from.dim[axis].size || size > from.dim[axis].size - start)
        return refuse(g, BERYL_MISUSE, "narrow outside its axis");
    if (base_type_is_quantised(from.type) && axis == from.rank - 1u && size != from.dim[axis].size)
        return refuse(g, BERYL_UNSUPPORTED, "a view of %s that cuts its rows", base_type_name(from.type));
    graph_dim dims[GRAPH_RANK_MAX];
    memcpy(dims, from.dim, sizeof dims);
    dims[axis].size = size;
    graph_value v = view_of(g, x, from.rank, dims);
    if (!v) return 0;
    memcpy(at(g, v)->stride, from.stride, sizeof from.stride);
    at(g, v)->offset = from.offset + start * from.stride[axis];
    return v;
}

graph_value graph_squeeze(graph *g, graph_value x, uint32_t axis) {
    if (!given(g, x, OP_COPY)) return 0;
    graph_tensor from = *at(g, x);
    if (axis >= from.rank || from.dim[axis].size != 1) return refuse(g, BERYL_MISUSE, "squeeze of an axis that is not 1");
    graph_dim dims[GRAPH_RANK_MAX];
    uint32_t strides[GRAPH_RANK_MAX], rank = 0;
    for (uint32_t i = 0; i < from.rank; i++) {
        if (i == axis) continue;
        dims[rank] = from.dim[i];
        strides[rank++] = from.stride[i];
    }
    graph_value v = view_of(g, x, rank, dims);
    if (v) memcpy(at(g, v)->stride, strides, rank * sizeof *strides);
    return v;
}

/* ---- operations ---------------------------------------------------------------------------------------- */

static bool is(graph *g, graph_value v, base_type type, base_op op) {
    if (!given(g, v, op)) return false;
    if (at(g, v)->type == type) return true;
    refuse(g, BERYL_UNSUPPORTED, "%s of %s", graph_op_name(op), base_type_name(at(g, v)->type));
    return false;
}

graph_value graph_gather_rows(graph *g, graph_value table, graph_value ids, float factor) {
    if (!given(g, table, OP_GATHER_ROWS) || !is(g, ids, TYPE_I32, OP_GATHER_ROWS)) return 0;
    const graph_tensor *t = at(g, table), *i = at(g, ids);
    if (t->rank < 1 || t->rank > 2 || i->rank > 2) return refuse(g, BERYL_MISUSE, "gather_rows: ranks %u and %u", t->rank, i->rank);
    graph_dim dims[3];
    uint32_t rank = 0;
    for (uint32_t k = 0; k < i->rank; k++) dims[rank++] = i->dim[k];
    if (t->rank == 2) dims[rank++] = t->dim[1];
    base_type type = t->type == TYPE_I32 ? TYPE_I32 : TYPE_F32;
    graph_node *node = node_add(g, OP_GATHER_ROWS, (graph_value[]){table, ids}, 2);
    if (node) node->attr.gather_rows.factor = factor;
    return node_out(g, node, type, rank, dims);
}

static graph_value unary(graph *g, base_op op, graph_value x, graph_attrs attr) {
    if (!is(g, x, TYPE_F32, op)) return 0;
    graph_tensor t = *at(g, x);
    graph_node *node = node_add(g, op, &x, 1);
    if (node) node->attr = attr;
    return node_out(g, node, TYPE_F32, t.rank, t.dim);
}

static graph_value binary(graph *g, base_op op, graph_value a, graph_value b) {
    if (!is(g, a, TYPE_F32, op) || !is(g, b, TYPE_F32, op)) return 0;
    graph_tensor x = *at(g, a), y = *at(g, b);
    bool fits = y.rank <= x.rank;
    for (uint32_t i = 0; fits && i < y.rank; i++) {
        graph_dim d = y.dim[y.rank - 1 - i];
        fits = same_dim(d, x.dim[x.rank - 1 - i]) || (d.size == 1 && !d.extent);
    }
    if (!fits) return refuse(g, BERYL_MISUSE, "%s: shapes do not fit", graph_op_name(op));
    return node_out(g, node_add(g, op, (graph_value[]){a, b}, 2), TYPE_F32, x.rank, x.dim);
}

graph_value graph_copy(graph *g, graph_value x) {
    return unary(g, OP_COPY, x, (graph_attrs){0});
}
graph_value graph_add(graph *g, graph_value a, graph_value b) {
    return binary(g, OP_ADD, a, b);
}
graph_value graph_mul(graph *g, graph_value a, graph_value b) {
    return binary(g, OP_MUL, a, b);
}
graph_value graph_geglu(graph *g, graph_value gate, graph_value up) {
    return binary(g, OP_GEGLU, gate, up);
}
graph_value graph_scale(graph *g, graph_value x, float factor) {
    return unary(g, OP_SCALE, x, (graph_attrs){.scale = {factor}});
}
graph_value graph_gelu_tanh(graph *g, graph_value x) {
    return unary(g, OP_GELU_TANH, x, (graph_attrs){0});
}
graph_value graph_softcap(graph *g, graph_value x, float cap) {
    return unary(g, OP_SOFTCAP, x, (graph_attrs){.softcap = {cap}});
}
graph_value graph_softmax(graph *g, graph_value x) {
    if (is(g, x, TYPE_F32, OP_SOFTMAX) && at(g, x)->rank == 0) return refuse(g, BERYL_MISUSE, "softmax of a single number");
    return unary(g, OP_SOFTMAX, x, (graph_attrs){0});
}

graph_value graph_rms_norm(graph *g, graph_value x, graph_value weight, float eps) {
    if (!is(g, x, TYPE_F32, OP_RMS_NORM) || (weight && !is(g, weight, TYPE_F32, OP_RMS_NORM))) return 0;
    graph_tensor t = *at(g, x);
    if (t.rank == 0 || (weight && (at(g, weight)->rank != 1 || at(g, weight)->dim[0].size != t.dim[t.rank - 1].size)))
        return refuse(g, BERYL_MISUSE, "rms_norm: weight of another size than the row");
    graph_node *node = node_add(g, OP_RMS_NORM, (graph_value[]){x, weight}, weight ? 2 : 1);
    if (node) node->attr.rms_norm.eps = eps;
    return node_out(g, node, TYPE_F32, t.rank, t.dim);
}

graph_value graph_layer_norm(graph *g, graph_value x, graph_value weight, graph_value bias, float eps) {
    const graph_value parts[2] = {weight, bias};
    if (!is(g, x, TYPE_F32, OP_LAYER_NORM)) return 0;
    graph_tensor t = *at(g, x);
    for (uint32_t i = 0; i < 2; i++) {
        if (!parts[i]) continue;
        if (!is(g, parts[i], TYPE_F32, OP_LAYER_NORM)) return 0;
        if (t.rank == 0 || !weight || at(g, parts[i])->rank != 1 || at(g, parts[i])->dim[0].size != t.dim[t.rank - 1].size)
            return refuse(g, BERYL_MISUSE, "layer_norm: weight or bias of another size than the row, or a bias alone");
    }
    if (t.rank == 0) return refuse(g, BERYL_MISUSE, "layer_norm of a single number");
    graph_node *node = node_add(g, OP_LAYER_NORM, (graph_value[]){x, weight, bias}, bias ? 3 : weight ? 2 : 1);
    if (node) node->attr.layer_norm.eps = eps;
    return node_out(g, node, TYPE_F32, t.rank, t.dim);
}

graph_value graph_topk(graph *g, graph_value x, uint32_t k, graph_value *indices) {
    *indices = 0;
    if (!is(g, x, TYPE_F32, OP_TOPK)) return 0;
    graph_tensor t = *at(g, x);
    if (t.rank != 2 || k == 0 || k > t.dim[1].size) return refuse(g, BERYL_MISUSE, "topk of %u", k);
    graph_dim dims[2] = {t.dim[0], {k, 0}};
    graph_node *node = node_add(g, OP_TOPK, &x, 1);
    if (node) node->attr.topk.k = k;
    graph_value values = node_out(g, node, TYPE_F32, 2, dims);
    *indices = node_out(g, node, TYPE_I32, 2, dims);
    return values;
}

graph_value graph_weighted_sum(graph *g, graph_value x, graph_value weights) {
    if (!is(g, x, TYPE_F32, OP_WEIGHTED_SUM) || !is(g, weights, TYPE_F32, OP_WEIGHTED_SUM)) return 0;
    graph_tensor t = *at(g, x), w = *at(g, weights);
    if (t.rank != 3 || w.rank != 2 || !same_dim(t.dim[0], w.dim[0]) || !same_dim(t.dim[1], w.dim[1]))
        return refuse(g, BERYL_MISUSE, "weighted_sum: shapes do not fit");
    graph_dim dims[2] = {t.dim[0], t.dim[2]};
    return node_out(g, node_add(g, OP_WEIGHTED_SUM, (graph_value[]){x, weights}, 2), TYPE_F32, 2, dims);
}

static bool is_matrix_type(base_type type) {
    return type == TYPE_F32 || type == TYPE_F16 || type == TYPE_BF16 || base_type_is_quantised(type);
}

graph_value graph_matmul(graph *g, graph_value x, graph_value w) {
    if (!is(g, x, TYPE_F32, OP_MATMUL) || !given(g, w, OP_MATMUL)) return 0;
    graph_tensor a = *at(g, x), m = *at(g, w);
    if (!is_matrix_type(m.type)) return refuse(g, BERYL_UNSUPPORTED, "matmul with a weight of %s", base_type_name(m.type));
    if (a.rank < 1 || m.rank != 2 || a.dim[a.rank - 1].size != m.dim[1].size)
        return refuse(g, BERYL_MISUSE, "matmul: rows of %u with '%s' of rows of %u", a.rank ? a.dim[a.rank - 1].size : 0, m.name,
                      m.dim[1].size);
    a.dim[a.rank - 1] = m.dim[0];
    return node_out(g, node_add(g, OP_MATMUL, (graph_value[]){x, w}, 2), TYPE_F32, a.rank, a.dim);
}

graph_value graph_matmul_id(graph *g, graph_value x, graph_value w, graph_value ids) {
    if (!is(g, x, TYPE_F32, OP_MATMUL_ID) || !given(g, w, OP_MATMUL_ID) || !is(g, ids, TYPE_I32, OP_MATMUL_ID)) return 0;
    graph_tensor a = *at(g, x), m = *at(g, w), i = *at(g, ids);
    if (!is_matrix_type(m.type)) return refuse(g, BERYL_UNSUPPORTED, "matmul_id with a weight of %s", base_type_name(m.type));
    bool fits = a.rank == 3 && m.rank == 3 && i.rank == 2 && same_dim(a.dim[0], i.dim[0]) && a.dim[2].size == m.dim[2].size &&
                (a.dim[1].size == 1 || same_dim(a.dim[1], i.dim[1]));
    if (!fits) return refuse(g, BERYL_MISUSE, "matmul_id with '%s': shapes do not fit", m.name);
    graph_dim dims[3] = {i.dim[0], i.dim[1], m.dim[1]};
    return node_out(g, node_add(g, OP_MATMUL_ID, (graph_value[]){x, w, ids}, 3), TYPE_F32, 3, dims);
}

graph_value graph_rope(graph *g, graph_value x, graph_value angles) {
    if (!is(g, x, TYPE_F32, OP_ROPE) || !is(g, angles, TYPE_F32, OP_ROPE)) return 0;
    graph_tensor t = *at(g, x), a = *at(g, angles);
    if (t.rank != 3 || a.rank != 3 || !same_dim(t.dim[0], a.dim[0]) || a.dim[1].size != 2 || t.dim[2].size % 2 ||
        a.dim[2].size != t.dim[2].size / 2)
        return refuse(g, BERYL_MISUSE, "rope: shapes do not fit");
    return node_out(g, node_add(g, OP_ROPE, (graph_value[]){x, angles}, 2), TYPE_F32, 3, t.dim);
}

static bool is_index_of(graph *g, graph_value index, graph_dim n, base_op op) {
    if (!is(g, index, TYPE_I32, op)) return false;
    if (at(g, index)->rank == 1 && same_dim(at(g, index)->dim[0], n)) return true;
    refuse(g, BERYL_MISUSE, "%s: an index for each row is needed", graph_op_name(op));
    return false;
}

/* The state after a write in place: another id for the same memory. */
static graph_value in_place(graph *g, graph_node *node, graph_value state) {
    if (!node) return 0;
    uint32_t index = (uint32_t)(node - g->nodes.data);
    graph_tensor t = *at(g, state);
    graph_value v = view_of(g, state, t.rank, t.dim);
    if (!v) return 0;
    at(g, v)->node = index;
    g->nodes.data[index].out[g->nodes.data[index].n_out++] = v;
    return v;
}

graph_value graph_kv_write(graph *g, graph_value cache, graph_value x, graph_value slot, graph_value pos) {
    if (!given(g, cache, OP_KV_WRITE) || !is(g, x, TYPE_F32, OP_KV_WRITE)) return 0;
    graph_tensor c = *at(g, cache), t = *at(g, x);
    if (!is_index_of(g, slot, t.dim[0], OP_KV_WRITE) || !is_index_of(g, pos, t.dim[0], OP_KV_WRITE)) return 0;
    bool type = c.type == TYPE_F32 || c.type == TYPE_F16 || c.type == TYPE_Q8_0;
    if (!type) return refuse(g, BERYL_UNSUPPORTED, "kv_write into %s", base_type_name(c.type));
    if (c.role != ROLE_STORED || c.rank != 4 || t.rank != 3 || c.dim[2].size != t.dim[1].size || c.dim[3].size != t.dim[2].size)
        return refuse(g, BERYL_MISUSE, "kv_write: shapes do not fit");
    return in_place(g, node_add(g, OP_KV_WRITE, (graph_value[]){cache, x, slot, pos}, 4), cache);
}

graph_value graph_attention(graph *g, graph_value q, graph_value k, graph_value v, graph_value slot, graph_value pos, float scale,
                            uint32_t window) {
    if (!is(g, q, TYPE_F32, OP_ATTENTION) || !given(g, k, OP_ATTENTION) || !given(g, v, OP_ATTENTION)) return 0;
    graph_tensor t = *at(g, q), a = *at(g, k), b = *at(g, v);
    if (!is_index_of(g, slot, t.dim[0], OP_ATTENTION) || !is_index_of(g, pos, t.dim[0], OP_ATTENTION)) return 0;
    bool fits = t.rank == 3 && a.rank == 4 && b.rank == 4 && a.type == b.type && t.dim[2].size == a.dim[3].size;
    for (uint32_t i = 0; fits && i < 4; i++) fits = a.dim[i].size == b.dim[i].size;
    if (!fits || t.dim[1].size % a.dim[2].size || (window && window > a.dim[1].size))
        return refuse(g, BERYL_MISUSE, "attention: shapes do not fit");
    graph_node *node = node_add(g, OP_ATTENTION, (graph_value[]){q, k, v, slot, pos}, 5);
    if (node) node->attr.attention.scale = scale, node->attr.attention.window = window;
    return node_out(g, node, TYPE_F32, 3, t.dim);
}

void graph_attention_apart(graph *g, graph_value attention, uint32_t most) {
    if (!given(g, attention, OP_ATTENTION)) return;
    graph_node *node = at(g, attention)->node == UINT32_MAX ? NULL : &g->nodes.data[at(g, attention)->node];
    if (!node || node->op != OP_ATTENTION) {
        refuse(g, BERYL_MISUSE, "not the result of an attention");
        return;
    }
    node->attr.attention.apart = true;
    node->attr.attention.most = most;
}

graph_value graph_intermediate(graph *g, base_type type, uint32_t rank, const graph_dim *dims) {
    return tensor_add(g, type, ROLE_INTERMEDIATE, rank, dims);
}

graph_value graph_argmax(graph *g, graph_value x) {
    if (!is(g, x, TYPE_F32, OP_ARGMAX)) return 0;
    graph_tensor t = *at(g, x);
    if (t.rank != 2) return refuse(g, BERYL_MISUSE, "argmax of rank %u", t.rank);
    return node_out(g, node_add(g, OP_ARGMAX, &x, 1), TYPE_I32, 1, t.dim);
}

graph_value graph_sample(graph *g, graph_value logits, graph_value settings) {
    if (!is(g, logits, TYPE_F32, OP_SAMPLE) || !is(g, settings, TYPE_U32, OP_SAMPLE)) return 0;
    graph_tensor t = *at(g, logits), s = *at(g, settings);
    if (t.rank != 2 || s.rank != 2 || !same_dim(t.dim[0], s.dim[0]) || s.dim[1].size != 8)
        return refuse(g, BERYL_MISUSE, "sample: shapes do not fit");
    return node_out(g, node_add(g, OP_SAMPLE, (graph_value[]){logits, settings}, 2), TYPE_I32, 1, t.dim);
}

graph_value graph_set_rows(graph *g, graph_value state, graph_value x, graph_value index) {
    if (!given(g, state, OP_SET_ROWS) || !given(g, x, OP_SET_ROWS)) return 0;
    graph_tensor s = *at(g, state), t = *at(g, x);
    if (!is_index_of(g, index, t.dim[0], OP_SET_ROWS)) return 0;
    if (s.type != t.type || (s.type != TYPE_I32 && s.type != TYPE_F32))
        return refuse(g, BERYL_UNSUPPORTED, "set_rows of %s into %s", base_type_name(t.type), base_type_name(s.type));
    if (s.role != ROLE_STORED || s.rank != t.rank || s.rank < 1 || s.rank > 2 || (s.rank == 2 && s.dim[1].size != t.dim[1].size))
        return refuse(g, BERYL_MISUSE, "set_rows: shapes do not fit");
    return in_place(g, node_add(g, OP_SET_ROWS, (graph_value[]){state, x, index}, 3), state);
}

/* ---- printing -------------------------------------------------------------------------------------------- */

static void print_tensor(const graph *g, graph_value v, base_text *out) {
    const graph_tensor *t = graph_tensor_at(g, v);
    base_text_print(out, "%%%u:%s[", v, base_type_name(t->type));
    for (uint32_t i = 0; i < t->rank; i++) {
        if (i) base_text_add(out, ", ", 2);
        if (t->dim[i].extent) {
            base_text_print(out, "%s<=%u", g->extents[t->dim[i].extent].name, t->dim[i].size);
        } else {
            base_text_print(out, "%u", t->dim[i].size);
        }
    }
    base_text_add(out, "]", 1);
    if (t->role == ROLE_STORED || t->role == ROLE_INPUT || t->role == ROLE_OUTPUT) base_text_print(out, "'%s'", t->name);
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

void graph_print(const graph *g, base_text *out) {
    for (size_t i = 0; i < g->nodes.count; i++)
        if (!g->nodes.data[i].dead) graph_print_node(g, &g->nodes.data[i], out);
}
