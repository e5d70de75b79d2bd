/* pass_update.c - optimisers in few dispatches: a tree of pointwise operations whose results states
 * become stores them there itself, and neighbouring trees of this kind share a dispatch.
 *
 * A body is a tree with the assignments that alone read its results. Those that are joined run in
 * the place of the last assignment. So nothing in between may use what a body makes or change what
 * it reads, and no body may use or change what another one makes. */
#include "base/error.h"
#include "tile/fused.h"
#include "tile/kernel.h"
#include "plan/pass.h"

#include <string.h>

typedef struct body {
    uint32_t place, last; /* nodes: of the tree, and of the last assignment */
    uint32_t n_out, assigned[GRAPH_OUT_MAX];
    graph_value to[GRAPH_OUT_MAX];
} body;

typedef struct updates { /* those that are to share a dispatch: bodies [n] */
    graph *g;
    graph_store *store;
    body bodies[FUSED_BODY_MAX];
    uint32_t n;
} updates;

static const graph_tensor *root(const graph *g, graph_value v) {
    return graph_tensor_at(g, graph_base_of(g, v));
}

static bool is_same_memory(const graph *g, graph_value a, graph_value b) {
    const graph_tensor *x = root(g, a), *y = root(g, b);
    return x == y || (x->role == ROLE_STORED && y->role == ROLE_STORED && x->stored == y->stored);
}

static bool reads(const graph *g, const graph_node *node, graph_value v) {
    for (uint32_t k = 0; k < node->n_in; k++)
        if (node->in[k] && is_same_memory(g, node->in[k], v)) return true;
    return false;
}

/* Does a node of a tree read v? */
static bool tree_reads(const graph *g, const body *b, graph_value v) {
    const graph_node *node = &g->nodes.data[b->place];
    if (node->op != OP_FUSED) return reads(g, node, v);
    for (uint32_t i = 0; i < node->attr.fused.count; i++)
        if (reads(g, &g->inner.data[node->attr.fused.first + i], v)) return true;
    return false;
}

/* Does node m, behind the tree, use what the tree makes, change what it reads, or come between an
 * assignment and the end and use that state? */
static bool meets(const graph *g, const body *b, uint32_t m) {
    const graph_node *tree = &g->nodes.data[b->place], *node = &g->nodes.data[m];
    for (uint32_t o = 0; o < b->n_out; o++)
        if (!b->to[o] ? reads(g, node, tree->out[o])
                      : m > b->assigned[o] && reads(g, node, b->to[o]))
            return true;
    for (uint32_t k = 0; k < node->n_out; k++) {
        if (root(g, node->out[k])->role != ROLE_STORED) continue;
        if (tree_reads(g, b, node->out[k])) return true;
        for (uint32_t o = 0; o < b->n_out; o++)
            if (b->to[o] && is_same_memory(g, b->to[o], node->out[k])) return true;
    }
    return false;
}

/* Does b use or change what a makes? */
static bool takes(const graph *g, const body *a, const body *b) {
    const graph_node *tree = &g->nodes.data[a->place];
    for (uint32_t o = 0; o < a->n_out; o++) {
        if (tree_reads(g, b, tree->out[o])) return true;
        if (!a->to[o]) continue;
        if (tree_reads(g, b, a->to[o])) return true;
        for (uint32_t k = 0; k < b->n_out; k++)
            if (b->to[k] && is_same_memory(g, a->to[o], b->to[k])) return true;
    }
    return false;
}

static bool is_among(const updates *u, uint32_t node) {
    for (uint32_t i = 0; i < u->n; i++) {
        if (u->bodies[i].place == node) return true;
        for (uint32_t o = 0; o < u->bodies[i].n_out; o++)
            if (u->bodies[i].to[o] && u->bodies[i].assigned[o] == node) return true;
    }
    return false;
}

static uint32_t last_of(const updates *u) {
    uint32_t last = 0;
    for (uint32_t i = 0; i < u->n; i++)
        if (u->bodies[i].last > last) last = u->bodies[i].last;
    return last;
}

/* May all of them run in the place of the last? */
static bool are_apart(const updates *u) {
    const graph *g = u->g;
    for (uint32_t i = 0; i < u->n; i++)
        for (uint32_t k = 0; k < u->n; k++)
            if (i != k && takes(g, &u->bodies[i], &u->bodies[k])) return false;
    for (uint32_t m = u->bodies[0].place + 1; m < last_of(u); m++) {
        if (g->nodes.data[m].dead || is_among(u, m)) continue;
        for (uint32_t i = 0; i < u->n && u->bodies[i].place < m; i++)
            if (meets(g, &u->bodies[i], m)) return false;
    }
    return true;
}

/* The tree at this node, with what becomes states. */
static bool find_body(const graph *g, uint32_t place, body *b) {
    const graph_node *node = &g->nodes.data[place];
    *b = (body){.place = place, .n_out = node->n_out};
    if (node->dead || node->n_out > GRAPH_OUT_MAX) return false;
    if (node->op == OP_FUSED ? node->attr.fused.kind != FUSED_CHAIN
                             : !graph_op_is_pointwise(node->op) || node->op == OP_COPY)
        return false;
    for (uint32_t o = 0; o < node->n_out; o++) {
        const graph_node *reader = graph_reader_of(g, node->out[o]);
        if (!reader || reader->op != OP_ASSIGN ||
            !tile_update_takes(graph_tensor_at(g, node->out[o])->type))
            continue;
        b->to[o] = reader->out[0];
        b->assigned[o] = (uint32_t)(reader - g->nodes.data);
        if (b->assigned[o] > b->last) b->last = b->assigned[o];
    }
    return b->last != 0;
}

/* Puts a node that is no chain yet among the inner ones, as one. */
static bool make_chain(graph *g, uint32_t place) {
    const graph_node node = g->nodes.data[place];
    return node.op == OP_FUSED ||
           graph_pass_join(g, &place, 1, node.out, node.n_out, FUSED_CHAIN, NULL);
}

static fused_update described(const updates *u) {
    fused_update all = {.n = u->n};
    for (uint32_t i = 0; i < u->n; i++) {
        const body *b = &u->bodies[i];
        const graph_node *tree = &u->g->nodes.data[b->place];
        fused_body *to = &all.bodies[i];
        *to = (fused_body){tree->attr.fused.first, tree->attr.fused.count, b->n_out, {0}, {0}};
        memcpy(to->out, tree->out, sizeof to->out);
        memcpy(to->to, b->to, sizeof to->to);
    }
    return all;
}

static bool fit(const updates *u) {
    const fused_update all = described(u);
    return are_apart(u) && tile_update_fits(u->g, u->store, &all);
}

/* The inner nodes of all bodies, then their assignments, one after another. */
static bool gather_inner(graph *g, const updates *u, fused_update *all, uint32_t *first,
                         uint32_t *count) {
    uint32_t n = 0;
    for (uint32_t i = 0; i < u->n; i++) n += all->bodies[i].count + u->bodies[i].n_out;
    if (!base_vec_reserve(g->heap, &g->inner, n)) return false;
    *first = (uint32_t)g->inner.count;
    for (uint32_t i = 0; i < u->n; i++) {
        const uint32_t from = all->bodies[i].first;
        all->bodies[i].first = (uint32_t)g->inner.count;
        for (uint32_t k = 0; k < all->bodies[i].count; k++) {
            const graph_node node = g->inner.data[from + k];
            *(graph_node *)base_vec_add(g->heap, &g->inner) = node;
        }
    }
    for (uint32_t i = 0; i < u->n; i++)
        for (uint32_t o = 0; o < u->bodies[i].n_out; o++)
            if (u->bodies[i].to[o])
                *(graph_node *)base_vec_add(g->heap, &g->inner) =
                    g->nodes.data[u->bodies[i].assigned[o]];
    *count = (uint32_t)g->inner.count - *first;
    return true;
}

/* Inputs and results beyond those that a node has room for are known to the bodies alone. */
static void add_values(graph *g, const updates *u, graph_node *joined) {
    for (uint32_t i = 0; i < u->n; i++) {
        const graph_node *tree = &g->nodes.data[u->bodies[i].place];
        for (uint32_t k = 0; k < tree->n_in && joined->n_in < GRAPH_IN_MAX; k++)
            if (tree->in[k]) joined->in[joined->n_in++] = tree->in[k];
        for (uint32_t o = 0; o < tree->n_out && joined->n_out < GRAPH_OUT_MAX; o++)
            joined->out[joined->n_out++] = u->bodies[i].to[o] ? u->bodies[i].to[o] : tree->out[o];
    }
}

static bool join(updates *u) {
    graph *g = u->g;
    if (!u->n) return true;
    const uint32_t place = last_of(u);
    fused_update *all = base_arena_take(&g->arena, 1, sizeof *all);
    graph_node joined = {.op = OP_FUSED};
    joined.attr.fused.kind = FUSED_UPDATE;
    joined.attr.fused.detail = all;
    if (!all) return false;
    *all = described(u);
    if (!gather_inner(g, u, all, &joined.attr.fused.first, &joined.attr.fused.count)) return false;
    add_values(g, u, &joined);
    for (graph_value v = 1; v < g->tensors.count; v++)
        if (g->tensors.data[v].node != UINT32_MAX && is_among(u, g->tensors.data[v].node))
            g->tensors.data[v].node = place;
    for (uint32_t i = 0; i < u->n; i++) {
        g->nodes.data[u->bodies[i].place].dead = true;
        for (uint32_t o = 0; o < u->bodies[i].n_out; o++)
            if (u->bodies[i].to[o]) g->nodes.data[u->bodies[i].assigned[o]].dead = true;
    }
    g->nodes.data[place] = joined;
    u->n = 0;
    return true;
}

static bool has_assignments(const graph *g) {
    for (uint32_t i = 0; i < g->nodes.count; i++)
        if (!g->nodes.data[i].dead && g->nodes.data[i].op == OP_ASSIGN) return true;
    return false;
}

beryl_status graph_pass_updates(graph *g, graph_store *store, beryl_error *error) {
    updates u = {.g = g, .store = store};
    bool good = true;
    if (!has_assignments(g)) return BERYL_OK;
    for (uint32_t i = 0; good && i < g->nodes.count; i++) {
        body b;
        if (!find_body(g, i, &b)) continue;
        good = make_chain(g, i);
        bool fits = false;
        for (uint32_t turn = 0; good && turn < 2 && !fits; turn++) {
            if (u.n < FUSED_BODY_MAX) {
                u.bodies[u.n++] = b;
                fits = fit(&u);
                if (!fits) u.n--;
            }
            if (!fits && u.n) good = join(&u); /* and alone */
            else break;
        }
    }
    return good && join(&u) ? BERYL_OK : base_no_memory(error);
}
