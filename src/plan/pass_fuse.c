/* pass_fuse.c - joins operations into few dispatches: values before and after products with few
 * vectors, attention with its norms, rotations and cache writes, a router with its experts.
 *
 * A group of nodes is joined only if everything it makes is either a result of the joined node
 * or used inside it, and if no node between its members uses a result. Then values are the same
 * by construction. */
#include "base/build.h"
#include "base/error.h"
#include "tile/attention.h"
#include "tile/experts.h"
#include "tile/fused.h"
#include "tile/products.h"
#include "plan/pass.h"

#include <string.h>

enum {
    MEMBER_MAX = 16, /* at most GRAPH_REGION_NODES */
    FUSE_ROWS_MAX = 32,
    GROW_AHEAD = 64 /* nodes between a value and who takes it */
};

typedef struct fusing {
    graph *g;
    graph_store *store;
    lower_settings settings;
    uint32_t *n_use; /* [tensor]: live uses of each base tensor */
    uint32_t n_tensor;
    beryl_error *error;
    beryl_status status;
} fusing;

typedef struct group { /* nodes to be joined */
    uint32_t members[MEMBER_MAX], n;
    graph_value outs[GRAPH_OUT_MAX];
    uint32_t n_out;
} group;

static const graph_tensor *tensor(const fusing *p, graph_value v) {
    return &p->g->tensors.data[v];
}

/* The live node that makes v, NULL: none. Views give their base's. */
static graph_node *maker(const fusing *p, graph_value v, base_op op) {
    if (!v) return NULL;
    uint32_t index = tensor(p, v)->node;
    graph_node *node = index == UINT32_MAX ? NULL : &p->g->nodes.data[index];
    return node && !node->dead && node->op == op ? node : NULL;
}

/* All elements of the tensor whose memory it is, in their order: what is joined here is looked up
 * through views, and read by kernels that see the whole. */
static bool is_whole(const fusing *p, graph_value v) {
    const graph_tensor *t = tensor(p, v), *all = tensor(p, graph_base_of(p->g, v));
    return graph_is_contiguous(t) && !t->offset &&
           graph_element_bound(t) == graph_element_bound(all);
}

static uint32_t index_of(const fusing *p, const graph_node *node) {
    return (uint32_t)(node - p->g->nodes.data);
}

static void count_uses(fusing *p) {
    memset(p->n_use, 0, p->n_tensor * sizeof *p->n_use);
    for (size_t i = 0; i < p->g->nodes.count; i++) {
        const graph_node *node = &p->g->nodes.data[i];
        for (uint32_t k = 0; !node->dead && k < node->n_in; k++)
            if (node->in[k] && graph_base_of(p->g, node->in[k]) < p->n_tensor)
                p->n_use[graph_base_of(p->g, node->in[k])]++;
    }
}

static void add_member(group *set, const fusing *p, const graph_node *node) {
    uint32_t index = index_of(p, node);
    for (uint32_t i = 0; i < set->n; i++)
        if (set->members[i] == index) return;
    if (set->n == MEMBER_MAX) return;
    uint32_t at = set->n++;
    while (at > 0 && set->members[at - 1] > index) {
        set->members[at] = set->members[at - 1];
        at--;
    }
    set->members[at] = index;
}

static bool is_member(const group *set, uint32_t index) {
    for (uint32_t i = 0; i < set->n; i++)
        if (set->members[i] == index) return true;
    return false;
}

static bool is_out(const group *set, graph_value v) {
    for (uint32_t i = 0; i < set->n_out; i++)
        if (set->outs[i] == v) return true;
    return false;
}

static void add_out(group *set, graph_value v) {
    if (v && !is_out(set, v) && set->n_out < GRAPH_OUT_MAX) set->outs[set->n_out++] = v;
}

static uint32_t uses_inside(const fusing *p, const group *set, graph_value base) {
    uint32_t n = 0;
    for (uint32_t m = 0; m < set->n; m++) {
        const graph_node *node = &p->g->nodes.data[set->members[m]];
        for (uint32_t k = 0; k < node->n_in; k++)
            n += node->in[k] && graph_base_of(p->g, node->in[k]) == base;
    }
    return n;
}

/* The node from `first` on that uses it before the last member; UINT32_MAX: none. */
static uint32_t user_between(const fusing *p, const group *set, graph_value base, uint32_t first) {
    for (uint32_t i = first; i < set->members[set->n - 1]; i++) {
        const graph_node *user = &p->g->nodes.data[i];
        for (uint32_t k = 0; !user->dead && !is_member(set, i) && k < user->n_in; k++)
            if (user->in[k] && graph_base_of(p->g, user->in[k]) == base) return i;
    }
    return UINT32_MAX;
}

/* Every value made inside is a result, or used inside alone; results are not used before the
 * last member, nor does what members read change before it. */
static bool is_closed(const fusing *p, const group *set) {
    for (uint32_t m = 0; m < set->n; m++) {
        const graph_node *node = &p->g->nodes.data[set->members[m]];
        for (uint32_t o = 0; o < node->n_out; o++) {
            const graph_value base = graph_base_of(p->g, node->out[o]);
            const graph_role role = tensor(p, base)->role;
            const bool out = is_out(set, node->out[o]);
            if (!out && role == ROLE_OUTPUT) return false;
            if (!out && role != ROLE_STORED && base < p->n_tensor &&
                uses_inside(p, set, base) != p->n_use[base])
                return false;
            if (user_between(p, set, base, set->members[m] + 1) != UINT32_MAX) return false;
        }
    }
    return !graph_pass_changes_between(p->g, set->members, set->n);
}

/* What is used outside. false: more than a node has results. */
static bool find_outs(const fusing *p, group *set) {
    set->n_out = 0;
    for (uint32_t m = 0; m < set->n; m++) {
        const graph_node *node = &p->g->nodes.data[set->members[m]];
        for (uint32_t o = 0; o < node->n_out; o++) {
            const graph_value base = graph_base_of(p->g, node->out[o]);
            if (tensor(p, base)->role != ROLE_OUTPUT && uses_inside(p, set, base) == p->n_use[base])
                continue;
            if (set->n_out == GRAPH_OUT_MAX) return false;
            add_out(set, node->out[o]);
        }
    }
    return true;
}

static graph_region region_of(const fusing *p, const group *set) {
    graph_region r = {.n = set->n, .n_out = set->n_out};
    for (uint32_t i = 0; i < set->n; i++) r.node[i] = &p->g->nodes.data[set->members[i]];
    memcpy(r.out, set->outs, sizeof r.out);
    return r;
}

static void join(fusing *p, const group *set, fused_kind kind, const void *detail) {
    if (graph_pass_join(p->g, set->members, set->n, set->outs, set->n_out, kind, detail))
        count_uses(p);
    else p->status = base_no_memory(p->error);
}

static bool used_once(const fusing *p, graph_value v) {
    graph_value base = graph_base_of(p->g, v);
    return base < p->n_tensor && p->n_use[base] == 1 && tensor(p, base)->role == ROLE_INTERMEDIATE;
}

static bool is_row_weight(const fusing *p, graph_value v) {
    return v && tensor(p, v)->role == ROLE_STORED && tensor(p, v)->type == TYPE_F32 &&
           tensor(p, v)->rank == 1 && is_whole(p, v);
}

/* The only node that uses v, itself of this op; NULL: none or several. */
static graph_node *only_user(const fusing *p, graph_value v, base_op op) {
    if (!used_once(p, v)) return NULL;
    for (uint32_t i = tensor(p, v)->node; i < p->g->nodes.count; i++) {
        graph_node *node = &p->g->nodes.data[i];
        for (uint32_t k = 0; !node->dead && k < node->n_in; k++)
            if (node->in[k] == v) return node->op == op ? node : NULL;
    }
    return NULL;
}

/* The members with their results as one node. */
static void join_products(fusing *p, const fused_matvec *f, const group *set) {
    fused_matvec *kept = base_arena_take(&p->g->arena, 1, sizeof *kept);
    if (!kept) {
        p->status = base_no_memory(p->error);
        return;
    }
    *kept = *f;
    if (f->attention) {
        graph_node *before = maker(p, f->x, OP_FUSED);
        ((fused_attention *)(uintptr_t)before->attr.fused.detail)->merged_later = true;
    }
    join(p, set, FUSED_MATVEC, kept);
}

/* Does a member read a view of what one of them makes? Its memory is only being written, but for
 * what products of low rank take (graph_products.side). */
static bool reads_a_view(const fusing *p, const group *set) {
    for (uint32_t m = 0; m < set->n; m++) {
        const graph_node *node = &p->g->nodes.data[set->members[m]];
        for (uint32_t k = 0; k < node->n_in; k++) {
            const uint32_t from = node->in[k] ? tensor(p, node->in[k])->node : UINT32_MAX;
            if (from == UINT32_MAX || !is_member(set, from)) continue;
            if (BUILD_HAS_ADAPTERS && node->op == OP_LINEAR && k == 2) continue;
            const graph_node *made = &p->g->nodes.data[from];
            bool itself = false;
            for (uint32_t o = 0; o < made->n_out; o++) itself |= made->out[o] == node->in[k];
            if (!itself) return true;
        }
    }
    return false;
}

static bool fits(const fusing *p, const fused_matvec *f, group *set) {
    if (reads_a_view(p, set) || !find_outs(p, set) || !is_closed(p, set)) return false;
    const graph_region r = region_of(p, set);
    return tile_fused_matvec_fits(p->g, p->store, &p->settings, f, &r);
}

/* Do all others that read what attention's pieces make join them too? Then nobody stores it. */
static bool others_merge(const fusing *p, const fused_matvec *f, const group *set) {
    const graph_value base = graph_base_of(p->g, f->x);
    for (uint32_t i = 0; i < p->g->nodes.count; i++) {
        const graph_node *node = &p->g->nodes.data[i];
        bool reads = false;
        for (uint32_t k = 0; !node->dead && k < node->n_in; k++)
            reads |= node->in[k] && graph_base_of(p->g, node->in[k]) == base;
        if (!reads || is_member(set, i)) continue;
        const fused_matvec *other = node->op == OP_FUSED && node->attr.fused.kind == FUSED_MATVEC
                                        ? node->attr.fused.detail
                                        : NULL;
        group alone = {.n = 0};
        add_member(&alone, p, node);
        if (other ? other->attention != f->attention
                  : node->op != OP_LINEAR || node->in[0] != f->x || !fits(p, f, &alone))
            return false;
    }
    return true;
}

/* x is what attention's pieces make, and nobody stores it. */
static void match_merge(const fusing *p, const group *set, fused_matvec *f) {
    graph_node *before = maker(p, f->x, OP_FUSED);
    if (!is_whole(p, f->x) || !before || before->attr.fused.kind != FUSED_ATTENTION) return;
    const fused_attention *a = before->attr.fused.detail;
    const graph_value base = graph_base_of(p->g, f->x);
    if (a->n_split < 2 || a->out != base || tensor(p, base)->role != ROLE_INTERMEDIATE) return;
    const fused_matvec merging = {.x = f->x,
                                  .attention = a->partial,
                                  .stats = a->stats,
                                  .n_split = a->n_split,
                                  .n_head = a->n_head,
                                  .head_dim = a->head_dim};
    if (p->n_use[base] == set->n || (BUILD_HAS_ADAPTERS && others_merge(p, &merging, set)))
        *f = merging;
}

/* Adds the node if the set still fits with it. */
static bool grow_by(const fusing *p, const fused_matvec *f, group *set, uint32_t index) {
    group more = *set;
    if (is_member(set, index) || set->n == MEMBER_MAX) return false;
    add_member(&more, p, &p->g->nodes.data[index]);
    if (!fits(p, f, &more)) return false;
    *set = more;
    return true;
}

/* A live operation that trees have. */
static bool is_fit(const fusing *p, uint32_t index, bool rows) {
    const graph_node *node = &p->g->nodes.data[index];
    if (node->dead || node->n_out != 1 || tensor(p, node->out[0])->type != TYPE_F32) return false;
    return rows ? graph_op_is_over_rows(node->op) ||
                      (graph_op_is_pointwise(node->op) && !graph_op_is_expensive(node->op))
                : graph_op_is_pointwise(node->op);
}

static bool uses(const graph_node *node, graph_value v) {
    for (uint32_t k = 0; k < node->n_in; k++)
        if (node->in[k] == v) return true;
    return false;
}

/* Forwards from the products: pointwise operations on what members make. */
static void grow_end(const fusing *p, const fused_matvec *f, group *set) {
    for (uint32_t m = 0; m < set->n; m++) { /* the set grows meanwhile */
        const graph_node *node = &p->g->nodes.data[set->members[m]];
        const uint32_t last = set->members[m] + GROW_AHEAD;
        for (uint32_t i = set->members[m] + 1; i < p->g->nodes.count && i <= last; i++)
            if (is_fit(p, i, false) && uses(&p->g->nodes.data[i], node->out[0]))
                grow_by(p, f, set, i);
    }
}

/* Takes in what stands between the products and uses them. */
static void take_between(const fusing *p, group *set) {
    for (uint32_t m = 0; m < set->n && set->n < MEMBER_MAX; m++) {
        const graph_node *node = &p->g->nodes.data[set->members[m]];
        const uint32_t user = user_between(p, set, node->out[0], set->members[m] + 1);
        if (user == UINT32_MAX || !is_fit(p, user, false)) continue;
        add_member(set, p, &p->g->nodes.data[user]);
        m--; /* it may have another one */
    }
}

/* A product of low rank with what products before it left (part_ways). */
static bool is_low(const fusing *p, uint32_t index) {
    const graph_node *node = &p->g->nodes.data[index],
                     *before = BUILD_HAS_ADAPTERS && !node->dead && node->op == OP_LINEAR
                                   ? maker(p, node->in[0], OP_FUSED)
                                   : NULL;
    graph_products products;
    if (!before || before->attr.fused.kind != FUSED_MATVEC) return false;
    const graph_region r = graph_region_of(p->g, before);
    return graph_products_of(p->g, &r, &products) && products.side_stored &&
           products.side == node->in[0];
}

/* Backwards from v: operations on the same rows, the last first. */
static void grow_before(const fusing *p, const fused_matvec *f, group *set, graph_value v) {
    const uint32_t index = tensor(p, v)->node;
    if (index == UINT32_MAX || tensor(p, v)->base ||
        (!is_fit(p, index, true) && !is_low(p, index)) || !grow_by(p, f, set, index))
        return;
    const graph_node *node = &p->g->nodes.data[index];
    for (uint32_t k = 0; k < node->n_in; k++)
        if (node->in[k] && graph_same_shape(tensor(p, node->in[k]), tensor(p, v)))
            grow_before(p, f, set, node->in[k]);
}

static void swap_nodes(graph *g, uint32_t a, uint32_t b) {
    const graph_node node = g->nodes.data[a];
    g->nodes.data[a] = g->nodes.data[b];
    g->nodes.data[b] = node;
    for (size_t i = 0; i < g->tensors.count; i++) {
        uint32_t *at = &g->tensors.data[i].node;
        if (*at == a || *at == b) *at = a + b - *at;
    }
}

/* The dead product of x with w, UINT32_MAX: none. */
static uint32_t dead_product(const graph *g, graph_value x, graph_value w, uint32_t before) {
    for (uint32_t i = before; i-- > 0;) {
        const graph_node *node = &g->nodes.data[i];
        if (node->dead && node->op == OP_LINEAR && node->n_in == 2 && node->in[0] == x &&
            node->in[1] == w)
            return i;
    }
    return UINT32_MAX;
}

/* Where each workgroup would have too much to do for what a product of low rank takes (`first` is
 * the node of it, `mul` its factors): a dispatch does the long products alone, and who reads the
 * sum adds the short one on the way. false: all is as before. */
static bool part_ways(fusing *p, uint32_t first, const graph_node *mul) {
    graph *g = p->g;
    const graph_node *user = only_user(p, mul->out[0], OP_LINEAR);
    const fused_matvec f = {.x = g->nodes.data[first].in[0]};
    if (!user || user->n_in != 4 || user->in[2] != mul->out[0] || user->in[0] != f.x) return false;
    graph_node *sum = &g->nodes.data[index_of(p, user)];
    const graph_node joined = *sum;
    uint32_t full = dead_product(g, sum->in[0], sum->in[1], index_of(p, sum)),
             low = dead_product(g, sum->in[2], sum->in[3], index_of(p, sum));
    if (full == UINT32_MAX || low == UINT32_MAX ||
        !only_user(p, sum->out[0], OP_RMS_NORM)) /* the beginning of what makes other vectors */
        return false;
    if (low < full) {
        const uint32_t other = low;
        swap_nodes(g, low, full);
        low = full;
        full = other;
    }
    graph_node *parts[2] = {&g->nodes.data[full], &g->nodes.data[low]};
    parts[0]->dead = parts[1]->dead = false;
    *sum = (graph_node){.op = OP_ADD,
                        .n_in = 2,
                        .in = {parts[0]->out[0], parts[1]->out[0]},
                        .n_out = 1,
                        .out = {joined.out[0]}};
    count_uses(p);
    group set = {.n = 0};
    add_member(&set, p, &g->nodes.data[first]);
    add_member(&set, p, mul);
    add_member(&set, p, parts[0]);
    if (fits(p, &f, &set)) {
        join_products(p, &f, &set);
        return true;
    }
    parts[0]->dead = parts[1]->dead = true;
    *sum = joined;
    count_uses(p);
    return false;
}

/* The products before, which make the set's vector, make parts of what products of low rank take of
 * it (`mul`: their factors). false: all is as before. */
static bool take_parts(fusing *p, fused_matvec *f, group *set, const graph_node *mul) {
    const graph_value base = graph_base_of(p->g, f->x);
    graph_node *before = maker(p, f->x, OP_FUSED);
    const graph_node *product = maker(p, mul->in[0], OP_LINEAR);
    if (!BUILD_HAS_JOINED_ADAPTERS || !is_whole(p, f->x) || !before || !product || f->attention ||
        before->attr.fused.kind != FUSED_MATVEC || uses_inside(p, set, base) != p->n_use[base])
        return false;
    fused_matvec *made = (fused_matvec *)(uintptr_t)before->attr.fused.detail;
    const graph_tensor *a = tensor(p, product->in[1]);
    if (made->parts || a->rank != 2 || a->dim[1].size < FUSED_PART_MIN) return false;
    const graph_dim dims[] = {{a->dim[1].size / FUSED_PART_MIN, 0}, {(a->dim[0].size + 1) / 2, 0}};
    made->parts = f->parts = graph_intermediate(p->g, TYPE_U32, 2, dims);
    made->parts_of = product->in[1];
    if (f->parts && fits(p, f, set)) return true;
    made->parts = made->parts_of = f->parts = 0;
    return false;
}

/* The products of one vector from node `index` on, then the first of them alone. */
static void grow_products(fusing *p, uint32_t index) {
    const graph_value x = p->g->nodes.data[index].in[0];
    if (tensor(p, x)->rank != 2) return;
    const graph_node *side =
        BUILD_HAS_ADAPTERS ? only_user(p, p->g->nodes.data[index].out[0], OP_MUL) : NULL;
    for (uint32_t most = FUSED_SEGMENT_MAX + (side != NULL); most > 0; most = most > 1 ? 1 : 0) {
        fused_matvec f = {.x = x};
        group set = {.n = 0};
        for (uint32_t i = index; i < p->g->nodes.count && set.n < most; i++) {
            const graph_node *node = &p->g->nodes.data[i];
            if (!node->dead && node->op == OP_LINEAR && node->in[0] == x) add_member(&set, p, node);
        }
        match_merge(p, &set, &f);
        take_between(p, &set);
        if (side && f.attention && !fits(p, &f, &set)) f = (fused_matvec){.x = x};
        if (!fits(p, &f, &set) &&
            (!side || most <= FUSED_SEGMENT_MAX || !take_parts(p, &f, &set, side))) {
            if (side && most > FUSED_SEGMENT_MAX && part_ways(p, index, side)) return;
            continue;
        }
        grow_end(p, &f, &set);
        if (!f.attention) grow_before(p, &f, &set, x);
        if (set.n + (f.attention != 0) < 2) continue;
        find_outs(p, &set);
        join_products(p, &f, &set);
        return;
    }
}

/* ---- attention ------------------------------------------------------------------------------- */

/* v = rope(rms(view of raw) * w): gives raw and w. */
static graph_value match_rotated(const fusing *p, graph_value v, fused_attention *a,
                                 graph_value *weight, group *set) {
    graph_node *rope = maker(p, v, OP_ROPE),
               *norm = rope ? maker(p, rope->in[0], OP_RMS_NORM) : NULL;
    if (!norm || norm->n_in != 2 || !is_row_weight(p, norm->in[1]) ||
        (a->angles && a->angles != rope->in[1]))
        return 0;
    if (!is_whole(p, v) || !is_whole(p, rope->in[0]) || !is_whole(p, norm->in[0])) return 0;
    a->angles = rope->in[1];
    a->eps = norm->attr.rms_norm.eps;
    *weight = norm->in[1];
    add_member(set, p, norm);
    add_member(set, p, rope);
    return graph_base_of(p->g, norm->in[0]);
}

static bool match_write(const fusing *p, graph_value cache, fused_attention *a, bool keys,
                        group *set) {
    graph_node *write = maker(p, cache, OP_KV_WRITE);
    if (!write) return false;
    if (keys) {
        a->k = match_rotated(p, write->in[1], a, &a->w_k, set);
        if (!a->k) return false;
    } else {
        graph_node *norm = maker(p, write->in[1], OP_RMS_NORM);
        if (!norm || norm->n_in != 1 || !is_whole(p, norm->in[0]) || !is_whole(p, write->in[1]))
            return false;
        a->v = graph_base_of(p->g, norm->in[0]);
        add_member(set, p, norm);
    }
    add_member(set, p, write);
    return true;
}

static void fuse_attention(fusing *p, uint32_t index) {
    const graph_node *node = &p->g->nodes.data[index];
    const graph_tensor *q = tensor(p, node->in[0]), *cache = tensor(p, node->in[1]);
    if (!node->attr.attention.apart || node->n_in > 5 || q->dim[0].size > FUSE_ROWS_MAX) return;
    fused_attention a = {.k_cache = node->in[1],
                         .v_cache = node->in[2],
                         .slot = node->in[3],
                         .pos = node->in[4],
                         .scale = node->attr.attention.scale,
                         .window = node->attr.attention.window,
                         .most = node->attr.attention.most,
                         .n_head = q->dim[1].size,
                         .n_kv = cache->dim[2].size,
                         .head_dim = q->dim[2].size,
                         .out = node->out[0]};
    graph_dim n = q->dim[0];
    group set = {.n = 0};
    if (!is_whole(p, node->in[1]) || !is_whole(p, node->in[2])) return;
    a.q = match_rotated(p, node->in[0], &a, &a.w_q, &set);
    if (!a.q) return;
    bool owner = maker(p, node->in[1], OP_KV_WRITE) != NULL;
    if (owner && (!match_write(p, node->in[1], &a, true, &set) ||
                  !match_write(p, node->in[2], &a, false, &set)))
        return;
    add_member(&set, p, node);
    add_out(&set, a.out);
    if (owner) add_out(&set, node->in[1]), add_out(&set, node->in[2]);
    a.n_split = tile_attention_splits(p->g, p->store, &a);
    if (a.n_split == 0 || !is_closed(p, &set) ||
        !tile_attention_fits(p->g, p->store, &p->settings, &a))
        return;
    fused_attention *kept = base_arena_take(&p->g->arena, 1, sizeof *kept);
    if (kept && a.n_split > 1) {
        graph_dim dims[4] = {n, {a.n_head, 0}, {a.n_split, 0}, {a.head_dim, 0}};
        a.partial = graph_intermediate(p->g, TYPE_F32, 4, dims);
        dims[3].size = 2;
        a.stats = graph_intermediate(p->g, TYPE_F32, 4, dims);
    }
    if (!kept || (a.n_split > 1 && !a.stats)) {
        p->status = base_no_memory(p->error);
        return;
    }
    *kept = a;
    join(p, &set, FUSED_ATTENTION, kept);
}

/* ---- experts --------------------------------------------------------------------------------- */

static void *keep(fusing *p, const void *detail, size_t size) {
    void *kept = base_arena_take(&p->g->arena, 1, size);
    if (kept) memcpy(kept, detail, size);
    else p->status = base_no_memory(p->error);
    return kept;
}

/* softmax([scale *] topk(logits)) * rows of a table, taken by the same indices: what begins with
 * this node. */
static bool match_router(const fusing *p, const graph_node *topk, fused_router *f, group *set) {
    const graph_node *scaled = topk ? only_user(p, topk->out[0], OP_SCALE) : NULL;
    const graph_node *softmax =
        topk ? only_user(p, scaled ? scaled->out[0] : topk->out[0], OP_SOFTMAX) : NULL;
    const graph_node *mul = softmax ? only_user(p, softmax->out[0], OP_MUL) : NULL;
    const graph_node *rows =
        mul && mul->in[0] == softmax->out[0] ? maker(p, mul->in[1], OP_GATHER_ROWS) : NULL;
    if (!rows || rows->in[1] != topk->out[1] || rows->out[0] != mul->in[1] ||
        rows->attr.gather_rows.factor != 1)
        return false;
    if (!is_row_weight(p, rows->in[0]) || !used_once(p, mul->in[1])) return false;
    *f = (fused_router){.logits = topk->in[0],
                        .scales = rows->in[0],
                        .k = topk->attr.topk.k,
                        .factor = scaled ? scaled->attr.scale.factor : 1,
                        .ids = topk->out[1],
                        .gates = mul->out[0]};
    add_member(set, p, topk);
    if (scaled) add_member(set, p, scaled);
    add_member(set, p, softmax);
    add_member(set, p, rows);
    add_member(set, p, mul);
    add_out(set, f->ids);
    add_out(set, f->gates);
    return true;
}

static void fuse_router(fusing *p, uint32_t index) {
    fused_router f;
    group set = {.n = 0};
    if (!match_router(p, &p->g->nodes.data[index], &f, &set) || !is_closed(p, &set) ||
        !tile_router_fits(p->g, p->store, &f))
        return;
    const void *kept = keep(p, &f, sizeof f);
    if (kept) join(p, &set, FUSED_ROUTER, kept);
}

static bool try_experts(fusing *p, const fused_experts *f, group *set) {
    add_out(set, f->out);
    const graph_region r = region_of(p, set);
    if (!is_closed(p, set) || !tile_experts_fits(p->g, p->store, &p->settings, f, &r)) return false;
    const void *kept = keep(p, f, sizeof *f);
    if (kept) join(p, set, FUSED_EXPERTS, kept);
    return kept != NULL;
}

/* The node that takes both halves of `both` [n, u, 2m] as gate and up. */
static graph_node *gated_halves(const fusing *p, graph_value both) {
    if (p->n_use[both] != 2 || tensor(p, both)->role != ROLE_INTERMEDIATE) return NULL;
    for (uint32_t i = tensor(p, both)->node; i < p->g->nodes.count; i++) {
        graph_node *node = &p->g->nodes.data[i];
        if (node->dead || node->op != OP_GEGLU || graph_base_of(p->g, node->in[0]) != both ||
            graph_base_of(p->g, node->in[1]) != both)
            continue;
        const graph_tensor *t = tensor(p, both), *a = tensor(p, node->in[0]),
                           *b = tensor(p, node->in[1]);
        const uint32_t m = t->dim[2].size / 2;
        const bool halves = t->dim[2].size == 2 * m && a->rank == 3 && b->rank == 3 &&
                            a->offset == t->offset && b->offset == t->offset + m &&
                            a->dim[2].size == m && b->dim[2].size == m &&
                            a->dim[1].size == t->dim[1].size &&
                            !memcmp(a->stride, t->stride, 3 * sizeof *t->stride) &&
                            !memcmp(b->stride, t->stride, 3 * sizeof *t->stride);
        return halves ? node : NULL;
    }
    return NULL;
}

/* Gate and up of experts, with the choice of them and the norm before, where nothing else takes
 * that. */
static void fuse_experts(fusing *p, uint32_t index) {
    const graph_node *first = &p->g->nodes.data[index], *second = NULL, *glu;
    const graph_node *sum = only_user(p, first->out[0], OP_WEIGHTED_SUM);
    fused_experts f = {.x = first->in[0], .n_w = 1, .w = {first->in[1]}, .ids = first->in[2]};
    if (sum && sum->in[0] == first->out[0]) {
        group set = {.n = 0};
        f.sums = true;
        f.gates = sum->in[1];
        f.out = sum->out[0];
        add_member(&set, p, first);
        add_member(&set, p, sum);
        try_experts(p, &f, &set);
        return;
    }
    if (!(glu = gated_halves(p, first->out[0]))) {
        glu = only_user(p, first->out[0], OP_GEGLU);
        second = glu && glu->in[0] == first->out[0] && used_once(p, glu->in[1])
                     ? maker(p, glu->in[1], OP_LINEAR_ID)
                     : NULL;
        if (!second || second->out[0] != glu->in[1] || second->in[0] != f.x ||
            second->in[2] != f.ids)
            return;
        f.w[f.n_w++] = second->in[1];
    }
    f.out = glu->out[0];
    const graph_value base = graph_base_of(p->g, f.x);
    const graph_node *norm = maker(p, base, OP_RMS_NORM);
    const bool normed = norm && norm->n_in == 2 && is_row_weight(p, norm->in[1]) &&
                        p->n_use[base] == f.n_w && tensor(p, base)->rank == 2 &&
                        tensor(p, base)->role == ROLE_INTERMEDIATE && is_whole(p, f.x) &&
                        tensor(p, f.x)->dim[1].size == 1;
    /* norm and choice, the choice, the norm, neither */
    for (int attempt = 0; attempt < 4; attempt++) {
        const bool with_norm = attempt % 2 == 0, with_choice = attempt < 2;
        group set = {.n = 0};
        if (with_norm && !normed) continue;
        f.router = (fused_router){0};
        if (with_choice &&
            (!is_whole(p, f.ids) || !match_router(p, maker(p, f.ids, OP_TOPK), &f.router, &set)))
            continue;
        add_member(&set, p, first);
        if (second) add_member(&set, p, second);
        add_member(&set, p, glu);
        f.w_norm = 0;
        if (with_norm) {
            f.h = norm->in[0];
            f.w_norm = norm->in[1];
            f.eps = norm->attr.rms_norm.eps;
            add_member(&set, p, norm);
        }
        if (try_experts(p, &f, &set)) return;
    }
}

beryl_status graph_pass_fuse(graph *g, graph_store *store, const graph_exec_options *options,
                             beryl_error *error) {
    uint32_t n = (uint32_t)g->tensors.count;
    if (BUILD_HAS_ADAPTERS) graph_pass_low(g, store, options);
    fusing p = {.g = g,
                .store = store,
                .settings = lower_settings_of(options),
                .n_tensor = n,
                .error = error};
    p.n_use = base_arena_take(&g->arena, n, sizeof *p.n_use);
    if (!p.n_use) return base_no_memory(error);
    count_uses(&p);
    for (uint32_t i = 0; p.status == BERYL_OK && i < g->nodes.count; i++)
        if (!g->nodes.data[i].dead && g->nodes.data[i].op == OP_ATTENTION) fuse_attention(&p, i);
    for (uint32_t i = 0; p.status == BERYL_OK && i < g->nodes.count; i++)
        if (!g->nodes.data[i].dead && g->nodes.data[i].op == OP_LINEAR_ID) fuse_experts(&p, i);
    for (uint32_t i = 0; p.status == BERYL_OK && i < g->nodes.count; i++)
        if (!g->nodes.data[i].dead && g->nodes.data[i].op == OP_TOPK) fuse_router(&p, i);
    for (uint32_t i = 0; p.status == BERYL_OK && i < g->nodes.count; i++)
        if (!g->nodes.data[i].dead && g->nodes.data[i].op == OP_LINEAR && !is_low(&p, i))
            grow_products(&p, i);
    for (uint32_t i = 0; p.status == BERYL_OK && i < g->nodes.count; i++) /* whom nobody took */
        if (is_low(&p, i)) grow_products(&p, i);
    return p.status;
}
