/* recompute.c - segments whose values a backward pass makes anew instead of keeping them.
 *
 * Owns segments, the copies of their nodes, and the way back: a graph that keeps some or all of
 * them after all. Refuses segments inside segments, and writes to states inside one. The one idea:
 * nodes run in their order, so copies that are added when the walk back reaches a segment, after
 * all that gives it gradients, run as late as they can, and what they stand for need not live
 * until then. A copy knows what it is a copy of: readers of copies can be given the originals. */
#include "graph/gradient.h"

static const char what[] = "recompute";

/* ---- segments -------------------------------------------------------------------------------- */

void graph_recompute_begin(graph *g) {
    if (g->error.code != BERYL_OK) return;
    if (graph_recompute_is_open(g)) {
        graph_refuse(g, BERYL_UNSUPPORTED, "%s: a segment inside a segment", what);
        return;
    }
    graph_segment *s = base_arena_take(&g->arena, 1, sizeof *s);
    if (!s) {
        graph_no_memory(g);
        return;
    }
    *s = (graph_segment){.before = g->segments,
                         .node = (uint32_t)g->nodes.count,
                         .value = (graph_value)g->tensors.count};
    g->segments = s;
}

bool graph_recompute_is_open(const graph *g) {
    return g->segments && !g->segments->value_end;
}

void graph_recompute_end(graph *g) {
    if (g->error.code != BERYL_OK) return;
    if (!graph_recompute_is_open(g)) {
        graph_refuse(g, BERYL_MISUSE, "%s: no segment has begun", what);
        return;
    }
    graph_segment *s = g->segments;
    s->node_end = (uint32_t)g->nodes.count;
    s->value_end = (graph_value)g->tensors.count;
    for (uint32_t i = s->node; i < s->node_end; i++)
        if (base_ops[g->nodes.data[i].op].facts & OP_IS_IN_PLACE) {
            graph_refuse(g, BERYL_UNSUPPORTED, "%s: %s changes a state inside a segment", what,
                         graph_op_name(g->nodes.data[i].op));
            return;
        }
}

/* ---- copies ---------------------------------------------------------------------------------- */

graph_value gradient_copy_of(const gradient *s, graph_value v) {
    return v < s->count && s->copies[v] ? s->copies[v] : v;
}

/* Values of the segment, but for inputs, what is stored, and views of what was made before. */
static bool copy_values(gradient *s, const graph_segment *segment) {
    graph *g = s->g;
    for (graph_value v = segment->value; v < segment->value_end; v++) {
        graph_tensor t = *graph_tensor_at(g, v);
        if (t.base ? !s->copies[t.base] : t.node == UINT32_MAX) continue;
        t.base = t.base ? s->copies[t.base] : 0;
        t.role = ROLE_INTERMEDIATE;
        t.name = "";
        t.node += (uint32_t)g->nodes.count - segment->node;
        t.again = v;
        graph_tensor *to = base_vec_add(g->heap, &g->tensors);
        if (!to) return graph_no_memory(g);
        *to = t;
        s->copies[v] = (graph_value)(g->tensors.count - 1);
    }
    return true;
}

static bool copy_nodes(gradient *s, const graph_segment *segment) {
    graph *g = s->g;
    for (uint32_t i = segment->node; i < segment->node_end; i++) {
        graph_node node = g->nodes.data[i];
        if (!gradient_reads_the_same(s, &node, i)) return false;
        gradient_take_copies(s, &node);
        graph_node *to = base_vec_add(g->heap, &g->nodes);
        if (!to) return graph_no_memory(g);
        *to = node;
    }
    return true;
}

/* A copy has the rule of its original when it is differentiated in turn. */
static bool copy_rules(gradient *s, const graph_segment *segment) {
    graph *g = s->g;
    for (size_t i = 0, n = g->owns.count; i < n; i++) {
        graph_own own = g->owns.data[i];
        if (own.out < segment->value || own.out >= segment->value_end) continue;
        gradient_take_copies_of_own(s, &own);
        if (!graph_own_rule(g, own)) return false;
    }
    return true;
}

void gradient_take_copies(const gradient *s, graph_node *node) {
    for (uint32_t k = 0; k < node->n_in; k++) node->in[k] = gradient_copy_of(s, node->in[k]);
    for (uint32_t k = 0; k < node->n_out; k++) node->out[k] = gradient_copy_of(s, node->out[k]);
}

void gradient_take_copies_of_own(const gradient *s, graph_own *own) {
    own->out = gradient_copy_of(s, own->out);
    own->all = gradient_copy_of(s, own->all);
    for (size_t i = 0; i < sizeof own->in / sizeof *own->in; i++)
        own->in[i] = gradient_copy_of(s, own->in[i]);
}

void gradient_recompute(gradient *s, graph_value v) {
    while (s->segment && s->segment->value > v) s->segment = s->segment->before;
    const graph_segment *segment = s->segment;
    if (!segment || v >= segment->value_end) return;
    s->segment = segment->before;
    if (copy_values(s, segment) && copy_nodes(s, segment)) copy_rules(s, segment);
}

void gradient_drop_unread(gradient *s, uint32_t n, const graph_value *gradients) {
    graph *g = s->g;
    if (!g->segments || g->error.code != BERYL_OK) return;
    bool *read = base_heap_take(g->heap, g->tensors.count);
    if (!read) {
        graph_no_memory(g);
        return;
    }
    for (uint32_t i = 0; i < n; i++) read[graph_base_of(g, gradients[i])] = true;
    for (size_t i = g->nodes.count; i-- > 0;) {
        graph_node *node = &g->nodes.data[i];
        bool used = !graph_tensor_at(g, node->out[0])->again;
        for (uint32_t k = 0; k < node->n_out; k++) used |= read[node->out[k]];
        node->dead |= !used;
        for (uint32_t k = 0; used && k < node->n_in; k++)
            read[graph_base_of(g, node->in[k])] = true;
    }
    base_heap_give(g->heap, read, g->tensors.count);
}

/* ---- the way back ---------------------------------------------------------------------------- */

static bool is_computed_again(const graph *g, const graph_segment *s) {
    for (size_t v = 1; v < g->tensors.count; v++) {
        const graph_value of = g->tensors.data[v].again;
        if (of >= s->value && of < s->value_end) return true;
    }
    return false;
}

uint32_t graph_recomputes(const graph *g) {
    uint32_t n = 0;
    for (const graph_segment *s = g->segments; s; s = s->before) n += is_computed_again(g, s);
    return n;
}

/* Copies of this value and of those after it give way to the originals. */
static void keep_from(graph *g, graph_value first) {
    const graph_value from = first ? first : 1; /* 0: it is no copy */
    for (graph_value v = 1; v < g->tensors.count; v++) {
        graph_tensor *t = &g->tensors.data[v];
        if (t->again >= from || !t->base) continue;
        const graph_tensor *base = graph_tensor_at(g, t->base);
        if (base->again >= from) t->base = base->again;
        /* a view of what is made elsewhere now; results in place keep their node */
        if (graph_tensor_at(g, graph_base_of(g, v))->role != ROLE_STORED)
            t->node = graph_tensor_at(g, t->base)->node;
    }
    for (size_t i = 0; i < g->nodes.count; i++) {
        graph_node *node = &g->nodes.data[i];
        node->dead |= graph_tensor_at(g, node->out[0])->again >= from;
        for (uint32_t k = 0; k < node->n_in; k++) {
            const graph_value of = graph_tensor_at(g, node->in[k])->again;
            if (of >= from) node->in[k] = of;
        }
    }
}

void graph_recompute_first(graph *g, uint32_t n) {
    const uint32_t all = graph_recomputes(g);
    graph_value from = 0;
    uint32_t i = all;
    for (const graph_segment *s = g->segments; n && s && !from; s = s->before)
        if (is_computed_again(g, s) && i-- == n) from = s->value_end;
    if (n < all) keep_from(g, from);
}
