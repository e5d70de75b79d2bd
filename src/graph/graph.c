/* graph.c - building graphs: tensors, nodes, printing; views are in views.c, shape rules in
 * shapes.c. */
#include "graph/graph.h"
#include "base/build.h"
#include "base/error.h"
#include "graph/shapes.h"
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
    return op == OP_PAD || op == OP_CONCAT || op == OP_RESIZE;
}

bool graph_op_reduces(base_op op) {
    return is(op, OP_REDUCES);
}

bool graph_op_is_in_trees(base_op op) {
    return is(op, OP_IS_POINTWISE | OP_IS_OVER_ROWS | OP_IS_OVER_AXES | OP_IS_MAPPED);
}

bool graph_is_stored_by_trees(const graph_node *node) {
    return graph_op_is_pointwise(node->op) ||
           (graph_op_is_over_rows(node->op) && !graph_op_reduces(node->op) && node->n_out == 1);
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
    base_vec_fini(heap, &g->owns);
    base_arena_fini(&g->arena);
    base_heap_give(heap, g, sizeof *g);
}

beryl_status graph_status(const graph *g, beryl_error *error) {
    if (g->error.code != BERYL_OK && error) *error = g->error;
    return g->error.code;
}

/* ---- errors, tensors, nodes ------------------------------------------------------------------ */

/* Behind a message about a call: its inputs. */
static void tell_shapes(const graph *g, char *text, size_t size) {
    for (uint32_t i = 0; i < g->call->n_in; i++) {
        char shape[GRAPH_SHAPE_TEXT];
        const graph_tensor *t = g->call->in[i];
        const size_t n = strlen(text);
        snprintf(text + n, size - n, "%s%s%s", i ? ", " : ", inputs ", base_type_name(t->type),
                 graph_shape_text(g, t->rank, t->dim, shape));
    }
}

graph_value graph_refuse(graph *g, beryl_status code, const char *format, ...) {
    if (g->error.code == BERYL_OK) {
        char text[400];
        va_list args;
        va_start(args, format);
        vsnprintf(text, sizeof text, format, args);
        va_end(args);
        if (g->call && !strchr(text, '[')) tell_shapes(g, text, sizeof text);
        if (g->file) base_fail(&g->error, code, "graph: %s (%s:%u)", text, g->file, g->line);
        else base_fail(&g->error, code, "graph: %s", text);
    }
    return 0;
}

graph_value graph_no_memory(graph *g) {
    return graph_refuse(g, BERYL_NO_MEMORY, "out of host memory");
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

/* `most`: elements that it may have */
static graph_value add_tensor(graph *g, base_type type, graph_role role, uint32_t rank,
                              const graph_dim *dims, uint64_t most) {
    if (g->error.code != BERYL_OK) return 0;
    if (rank > GRAPH_RANK_MAX) return graph_refuse(g, BERYL_UNSUPPORTED, "rank %u", rank);
    graph_tensor *t = base_vec_add(g->heap, &g->tensors);
    if (!t) return graph_no_memory(g);
    t->type = type;
    t->role = role;
    t->rank = (uint8_t)rank;
    t->node = UINT32_MAX;
    t->name = "";
    uint64_t stride = 1;
    for (uint32_t i = rank; i-- > 0;) {
        t->dim[i] = dims[i];
        t->stride[i] = (uint32_t)stride;
        if (dims[i].size == 0 || stride > most / dims[i].size) {
            g->tensors.count--;
            return graph_refuse(g, BERYL_UNSUPPORTED, "a %s elements, or of none",
                                most == UINT32_MAX ? "tensor of more than 2^32 - 1"
                                                   : "view of more than 2^40");
        }
        stride *= dims[i].size;
    }
    return (graph_value)(g->tensors.count - 1);
}

graph_value graph_tensor_add(graph *g, base_type type, graph_role role, uint32_t rank,
                             const graph_dim *dims) {
    return add_tensor(g, type, role, rank, dims, UINT32_MAX);
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
    if (!t) return graph_no_memory(g);
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

graph_value graph_constant(graph *g, uint32_t n, const float *numbers) {
    if (g->error.code != BERYL_OK) return 0;
    if (!g->constants.fn)
        return graph_refuse(g, BERYL_UNSUPPORTED, "a constant, where nobody keeps any");
    return g->constants.fn(g->constants.context, n, numbers);
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

size_t graph_readers_end(const graph *g, graph_value v) {
    return BUILD_HAS_TRAINING && g->last_reader ? g->last_reader[v] + 1 : g->nodes.count;
}

const graph_node *graph_reader_of(const graph *g, graph_value v) {
    const graph_tensor *t = graph_tensor_at(g, v);
    const graph_node *reader = NULL;
    if (t->role != ROLE_INTERMEDIATE || t->base || t->node == UINT32_MAX) return NULL;
    for (size_t i = t->node + 1, end = graph_readers_end(g, v); i < end; i++) {
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
    graph_value v = add_tensor(g, at(g, x)->type, at(g, x)->role, rank, dims, GRAPH_VIEW_ELEMENTS);
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

graph_value graph_op(graph *g, base_op op, const graph_value *in, graph_attrs attr) {
    const base_op_info *info = &base_ops[op];
    graph_shape_rule *rule = graph_shape_rule_of(op);
    graph_value from[GRAPH_IN_MAX];
    graph_call c = {.op = op, .n_in = info->n_in_min, .attr = attr};
    for (uint32_t i = 0; i < info->n_in_max; i++)
        if (in[i]) c.n_in = i + 1 > c.n_in ? i + 1 : c.n_in;
    for (uint32_t i = 0; i < c.n_in; i++) {
        if (!graph_has(g, in[i], graph_op_name(op))) return 0;
        if (!graph_is_type(info->inputs[i], at(g, in[i])->type))
            return graph_refuse(g, BERYL_UNSUPPORTED, "%s of %s", info->name,
                                base_type_name(at(g, in[i])->type));
        if (op != OP_CONTRACT && at(g, in[i])->base && at(g, in[i])->role != ROLE_STORED &&
            graph_element_bound(at(g, in[i])) > UINT32_MAX)
            return graph_refuse(g, BERYL_UNSUPPORTED, "%s of a view of more than 2^32 - 1 elements",
                                graph_op_name(op));
        from[i] = graph_layout(g, op, &attr, i, in[i]);
        if (!from[i]) return 0;
    }
    for (uint32_t i = 0; i < c.n_in; i++) c.in[i] = at(g, from[i]);
    graph_tensor out = *c.in[0];
    g->call = &c;
    const bool fits = graph_find_type(g, &c, &out) && rule(g, &c, &out);
    g->call = NULL;
    if (!fits) return 0;
    graph_node *node = base_vec_add(g->heap, &g->nodes);
    if (!node) return graph_no_memory(g);
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
