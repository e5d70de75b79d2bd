/* pass.c - the order of passes, and the small ones. */
#include "plan/pass.h"
#include "base/build.h"
#include "base/error.h"

#include <string.h>

static bool is_effect(const graph *g, const graph_node *node) {
    for (uint32_t i = 0; i < node->n_out; i++) {
        const graph_tensor *t = &g->tensors.data[graph_base_of(g, node->out[i])];
        if (t->role == ROLE_OUTPUT || t->role == ROLE_STORED) return true;
    }
    return false;
}

void graph_pass_dead(graph *g) {
    for (size_t i = g->nodes.count; i-- > 0;) {
        graph_node *node = &g->nodes.data[i];
        if (node->dead || is_effect(g, node)) continue;
        bool used = false;
        for (size_t k = i + 1; k < g->nodes.count && !used; k++) {
            const graph_node *later = &g->nodes.data[k];
            for (uint32_t a = 0; !later->dead && a < later->n_in; a++)
                for (uint32_t b = 0; b < node->n_out; b++)
                    used |= later->in[a] &&
                            graph_base_of(g, later->in[a]) == graph_base_of(g, node->out[b]);
        }
        node->dead = !used;
    }
}

static bool is_among(const uint32_t *members, uint32_t n, uint32_t node) {
    for (uint32_t i = 0; i < n; i++)
        if (members[i] == node) return true;
    return false;
}

bool graph_pass_changes_between(const graph *g, const uint32_t *members, uint32_t n) {
    for (uint32_t i = members[0] + 1; i < members[n - 1]; i++) {
        const graph_node *between = &g->nodes.data[i];
        for (uint32_t o = 0; !between->dead && !is_among(members, n, i) && o < between->n_out;
             o++) {
            const graph_value state = graph_base_of(g, between->out[o]);
            if (g->tensors.data[state].role != ROLE_STORED) continue;
            for (uint32_t m = 0; m < n && members[m] < i; m++)
                for (uint32_t k = 0; k < g->nodes.data[members[m]].n_in; k++)
                    if (graph_base_of(g, g->nodes.data[members[m]].in[k]) == state) return true;
        }
    }
    return false;
}

bool graph_pass_join(graph *g, const uint32_t *members, uint32_t n, const graph_value *outs,
                     uint32_t n_out, uint32_t kind, const void *detail) {
    graph_node joined = {.op = OP_FUSED};
    const uint32_t place = members[n - 1];
    if (!base_vec_reserve(g->heap, &g->inner, n)) return false;
    joined.attr.fused.kind = kind;
    joined.attr.fused.detail = detail;
    joined.attr.fused.first = (uint32_t)g->inner.count;
    joined.attr.fused.count = n;
    for (uint32_t m = 0; m < n; m++) {
        graph_node *node = &g->nodes.data[members[m]];
        *(graph_node *)base_vec_add(g->heap, &g->inner) = *node;
        for (uint32_t k = 0; k < node->n_in; k++) {
            const uint32_t from = node->in[k] ? g->tensors.data[node->in[k]].node : UINT32_MAX;
            bool known = !node->in[k] || is_among(members, n, from);
            for (uint32_t i = 0; i < joined.n_in; i++) known |= joined.in[i] == node->in[k];
            if (!known && joined.n_in < GRAPH_IN_MAX) joined.in[joined.n_in++] = node->in[k];
        }
        node->dead = true;
    }
    for (uint32_t k = 0; BUILD_HAS_TRAINING && g->last_reader && k < joined.n_in; k++) {
        uint32_t *last = &g->last_reader[graph_base_of(g, joined.in[k])];
        if (*last < place) *last = place;
    }
    for (uint32_t o = 0; o < n_out; o++) joined.out[joined.n_out++] = outs[o];
    /* results and their views now come from here */
    for (graph_value v = 1; v < g->tensors.count; v++)
        if (is_among(members, n, g->tensors.data[v].node)) g->tensors.data[v].node = place;
    g->nodes.data[place] = joined;
    return true;
}

/* Rows of a table that are cast, and read by nothing else, are made in that type. */
static void cast_rows(graph *g) {
    for (uint32_t i = 0; i < g->nodes.count; i++) {
        graph_node *cast = &g->nodes.data[i];
        if (cast->dead || cast->op != OP_CAST) continue;
        const graph_tensor *x = graph_tensor_at(g, cast->in[0]);
        const base_type to = graph_tensor_at(g, cast->out[0])->type;
        graph_node *rows = x->node == UINT32_MAX ? NULL : &g->nodes.data[x->node];
        if (!rows || rows->dead || rows->op != OP_GATHER_ROWS || x->type != TYPE_F32 ||
            (to != TYPE_F16 && to != TYPE_BF16) || graph_reader_of(g, cast->in[0]) != cast)
            continue;
        rows->out[0] = cast->out[0];
        cast->dead = true;
        for (graph_value v = 1; v < g->tensors.count; v++)
            if (g->tensors.data[v].node == i) g->tensors.data[v].node = x->node;
    }
}

/* The node whose tree can make the halves that this node makes far behind it; UINT32_MAX: none. */
static uint32_t halves_maker(const graph *g, uint32_t cast) {
    enum { FAR = 64 /* nodes, more than a tree has */ };
    const graph_node *node = &g->nodes.data[cast];
    if (node->dead || node->op != OP_CAST || graph_tensor_at(g, node->out[0])->type != TYPE_BF16)
        return UINT32_MAX;
    const graph_tensor *x = graph_tensor_at(g, node->in[0]);
    return x->type == TYPE_F32 && x->role == ROLE_INTERMEDIATE && !x->base &&
                   x->node != UINT32_MAX && x->node + FAR < cast &&
                   graph_is_stored_by_trees(&g->nodes.data[x->node])
               ? x->node
               : UINT32_MAX;
}

/* What a backward pass reads as halves becomes such where it is made, so that those alone are kept
 * until then. false: no memory. */
static bool make_halves_early(graph *g) {
    const uint32_t n = (uint32_t)g->nodes.count;
    base_arena arena; /* of this call */
    base_arena_init(&arena, g->heap);
    /* [n]: 1 + the first cast behind a node, 1 + the one after it; where a node goes */
    uint32_t *first = base_arena_take(&arena, n, sizeof *first),
             *next = base_arena_take(&arena, n, sizeof *next),
             *to = base_arena_take(&arena, n, sizeof *to), at = 0;
    graph_node *nodes = base_arena_take(&arena, n, sizeof *nodes);
    const bool made = first && next && to && nodes;
    for (uint32_t i = n; made && i-- > 0;) {
        const uint32_t maker = halves_maker(g, i);
        if (maker != UINT32_MAX) next[i] = first[maker], first[maker] = i + 1;
    }
    for (uint32_t i = 0; made && i < n; i++) {
        if (halves_maker(g, i) != UINT32_MAX) continue;
        nodes[at] = g->nodes.data[i], to[i] = at++;
        for (uint32_t k = first[i]; k; k = next[k - 1])
            nodes[at] = g->nodes.data[k - 1], to[k - 1] = at++;
    }
    if (made) memcpy(g->nodes.data, nodes, n * sizeof *nodes);
    for (graph_value v = 1; made && v < g->tensors.count; v++)
        if (g->tensors.data[v].node != UINT32_MAX)
            g->tensors.data[v].node = to[g->tensors.data[v].node];
    base_arena_fini(&arena);
    return made;
}

lower_settings lower_settings_of(const graph_exec_options *options) {
    return (lower_settings){options->exact, options->forms, options->n_form};
}

beryl_status graph_pass_all(graph *g, graph_store *store, const graph_exec_options *options,
                            beryl_error *error) {
    graph_pass_dead(g);
    if (BUILD_HAS_TRAINING && store->device) cast_rows(g);
    if (BUILD_HAS_TRAINING && g->halves && !make_halves_early(g)) return base_no_memory(error);
    if (BUILD_HAS_GRAPHS) graph_pass_concats(g);
    beryl_status status = graph_pass_fuse(g, store, options, error);
    if (status == BERYL_OK) status = graph_pass_chains(g, store, error);
    if (status == BERYL_OK && BUILD_HAS_TRAINING) status = graph_pass_updates(g, store, error);
    if (status == BERYL_OK && BUILD_HAS_C_TEXTS) graph_pass_narrow(g, store, options);
    return status;
}
