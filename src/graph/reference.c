/* reference.c - runs a graph node by node on the reference functions. Intermediates live from
 * their node to their last use. */
#include "graph/reference.h"
#include "base/build.h"
#include "base/error.h"

#include <string.h>

struct graph_reference {
    base_heap *heap;
    graph *g;
    graph_store *store;
    void **data;    /* [tensor]: of base tensors */
    size_t *bytes;  /* [tensor] */
    uint32_t *last; /* [tensor]: node of the last use */
    size_t n;
    uint32_t at, done; /* of a run that is PENDING: its node, and what reference_call says */
};

uint64_t reference_count(const reference_tensor *x) {
    uint64_t n = 1;
    for (uint32_t i = 0; i < x->t->rank; i++) n *= x->dim[i];
    return n;
}

void reference_place(const reference_tensor *x, uint64_t index, int64_t *at) {
    for (uint32_t axis = x->t->rank; axis-- > 0; index /= x->dim[axis])
        at[axis] = (int64_t)(index % x->dim[axis]);
}

static size_t tensor_bytes(const graph_tensor *t) {
    return (size_t)graph_element_bound(t) * base_type_block_bytes(t->type);
}

beryl_status graph_reference_open(graph *g, graph_store *store, graph_reference **out,
                                  beryl_error *error) {
    *out = NULL;
    graph_reference *r = base_heap_take(g->heap, sizeof *r);
    if (!r) return base_no_memory(error);
    *r = (graph_reference){.heap = g->heap, .g = g, .store = store, .n = g->tensors.count};
    r->data = base_heap_take(r->heap, r->n * sizeof *r->data);
    r->bytes = base_heap_take(r->heap, r->n * sizeof *r->bytes);
    r->last = base_heap_take(r->heap, r->n * sizeof *r->last);
    bool ok = r->data && r->bytes && r->last;
    for (graph_value v = 1; ok && v < r->n; v++) {
        const graph_tensor *t = &g->tensors.data[v];
        if (t->role != ROLE_INPUT || t->base) continue;
        r->bytes[v] = (tensor_bytes(t) + 3) / 4 * 4; /* whole words, as devices take them */
        r->data[v] = base_heap_take(r->heap, r->bytes[v]);
        ok = r->data[v] != NULL;
    }
    if (!ok) {
        graph_reference_close(r);
        return base_no_memory(error);
    }
    for (uint32_t i = 0; i < g->nodes.count; i++)
        for (uint32_t k = 0; k < g->nodes.data[i].n_in; k++)
            r->last[graph_base_of(g, g->nodes.data[i].in[k])] = i;
    *out = r;
    return BERYL_OK;
}

void graph_reference_close(graph_reference *r) {
    if (!r) return;
    for (size_t v = 0; r->data && r->bytes && v < r->n; v++)
        base_heap_give(r->heap, r->data[v], r->bytes[v]);
    base_heap_give(r->heap, r->data, r->n * sizeof *r->data);
    base_heap_give(r->heap, r->bytes, r->n * sizeof *r->bytes);
    base_heap_give(r->heap, r->last, r->n * sizeof *r->last);
    base_heap_give(r->heap, r, sizeof *r);
}

void *graph_reference_input(graph_reference *r, graph_value input) {
    return input < r->n && r->g->tensors.data[input].role == ROLE_INPUT ? r->data[input] : NULL;
}

const void *graph_reference_value(const graph_reference *r, graph_value v) {
    return v < r->n ? r->data[v] : NULL;
}

/* What is used in place: states, weights of F32, integers, BOOL and F64, or `whole`. Others are
 * read row by row; products, which come to each row once, have not even the file's bytes on the
 * heap. */
static beryl_status stored_data(graph_store *store, uint32_t index, base_op op, bool once,
                                void **out, beryl_error *error) {
    const store_tensor *t = &store->tensors.data[index];
    const void *data = t->host;
    *out = NULL;
    const bool whole = graph_op_is_in_trees(op) || graph_op_reduces(op) ||
                       strchr("an", base_ops[op].inputs[0]) != NULL,
               rows = !graph_type_is_plain(t->type) || t->type == TYPE_F16 || t->type == TYPE_BF16,
               by_row = !t->is_state && rows && !whole;
    beryl_status status =
        t->is_state || (by_row && once) ? BERYL_OK : store_host_weight(store, index, &data, error);
    if (!by_row) *out = (void *)(uintptr_t)data;
    return status;
}

/* A product of vectors that lie in F32: its results stay where they are while it is PENDING. */
static bool is_resumed(const graph *g, const graph_node *node) {
    return node->op == OP_LINEAR && !g->tensors.data[node->in[0]].narrow;
}

static beryl_status tensor_of(graph_reference *r, const graph_node *node, graph_value v,
                              const uint32_t *values, reference_tensor *out, beryl_error *error) {
    const graph_tensor *t = &r->g->tensors.data[v];
    *out = (reference_tensor){.t = t, .stored = UINT32_MAX};
    for (uint32_t i = 0; i < t->rank; i++) out->dim[i] = graph_dim_value(t->dim[i], values);
    graph_value base = graph_base_of(r->g, v);
    if (t->role == ROLE_STORED) {
        out->stored = t->stored;
        beryl_status status =
            stored_data(r->store, t->stored, node->op, is_resumed(r->g, node), &out->data, error);
        if (status != BERYL_OK || !out->data) return status;
    } else {
        if (!r->data[base]) {
            r->bytes[base] = tensor_bytes(&r->g->tensors.data[base]);
            r->data[base] = base_heap_resize(r->heap, NULL, 0, r->bytes[base]);
            if (!r->data[base]) return base_no_memory(error);
        }
        out->data = r->data[base];
    }
    /* views cut no rows of blocks */
    out->data = (char *)out->data +
                (size_t)t->offset / base_type_block(t->type) * base_type_block_bytes(t->type);
    return BERYL_OK;
}

/* Frees intermediates whose last use was node `index`. */
static void give_back(graph_reference *r, uint32_t index) {
    for (uint32_t k = 0; k < r->g->nodes.data[index].n_in; k++) {
        graph_value v = graph_base_of(r->g, r->g->nodes.data[index].in[k]);
        if (!v || r->last[v] != index || r->g->tensors.data[v].role != ROLE_INTERMEDIATE) continue;
        base_heap_give(r->heap, r->data[v], r->bytes[v]);
        r->data[v] = NULL;
        r->bytes[v] = 0;
    }
}

/* Norms and scans are written for F32, and so are products, whose vectors a plan may keep as
 * halves. */
static beryl_status run_node(reference_call *call) {
    const base_op op = call->node->op;
    const bool rows = graph_op_is_over_rows(op) || graph_op_is_over_axes(op) ||
                      (BUILD_HAS_C_TEXTS && op == OP_LINEAR && call->in[0].t->narrow);
    if (rows && call->out[0].t->type == TYPE_F64) return reference_doubles(call);
    return rows ? reference_through_floats(call, reference_table[op]) : reference_table[op](call);
}

beryl_status graph_reference_run(graph_reference *r, const uint32_t *extents, beryl_error *error) {
    uint32_t values[GRAPH_EXTENT_MAX + 1];
    beryl_status status = graph_extent_values(r->g, extents, values, error);
    if (status != BERYL_OK) return status;
    const uint32_t empty = graph_extents_empty(r->g, values);
    for (uint32_t i = r->at; i < r->g->nodes.count; i++, r->done = 0) {
        const graph_node *node = &r->g->nodes.data[i];
        if (node->dead) continue;
        if (!reference_table[node->op])
            return base_fail(error, BERYL_UNSUPPORTED, "%s on the reference device",
                             graph_op_name(node->op));
        reference_call call = {
            .node = node, .store = r->store, .heap = r->heap, .error = error, .done = &r->done};
        for (uint32_t k = 0; status == BERYL_OK && k < node->n_in; k++)
            status = tensor_of(r, node, node->in[k], values, &call.in[k], error);
        for (uint32_t k = 0; status == BERYL_OK && k < node->n_out; k++)
            status = tensor_of(r, node, node->out[k], values, &call.out[k], error);
        if (status == BERYL_OK && !(graph_node_needs(r->g, node) & empty)) status = run_node(&call);
        r->at = status == BERYL_PENDING ? i : 0;
        if (status != BERYL_OK && status != BERYL_PENDING) r->done = 0;
        if (status != BERYL_OK) return status;
        give_back(r, i);
    }
    return BERYL_OK;
}
