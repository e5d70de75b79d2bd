/* pass_chain.c - joins trees of pointwise operations and rows (norms, softmax) of one shape into
 * nodes that are one kernel; a weighted sum or a product is where one begins, topk or argmax
 * where one ends.
 *
 * A tree grows from its first operation on: what uses one of its values joins it, and brings
 * along what else it is made from. Its sums then take in their terms: pointwise operations of
 * another shape, of which nobody else needs anything. So terms are left alone until then; those
 * that no sum takes make trees like any others. Nothing is computed twice, but for what is cheap
 * among a sum's weights. The joined node stands in the place of its last member, so nobody
 * between its members may use what they make, nor change what they read. */
#include "base/build.h"
#include "base/error.h"
#include "tile/fused.h"
#include "tile/tree.h"
#include "plan/pass.h"

#include <string.h>

enum { AHEAD_MAX = 64 /* nodes between a tree's first and last */ };

typedef struct members { /* [n], rising; results are found by look_outside */
    uint32_t node[GRAPH_REGION_NODES], n, n_out;
    graph_value out[GRAPH_OUT_MAX];
} members;

static bool is_member(const members *set, uint32_t node) {
    for (uint32_t i = 0; i < set->n; i++)
        if (set->node[i] == node) return true;
    return false;
}

/* An operation that may be in a tree. */
static bool is_fit(const graph_node *node) {
    if (node->dead || node->n_out != 1) return false;
    return graph_op_is_in_trees(node->op) || node->op == OP_WEIGHTED_SUM;
}

/* A number for each row of `shape`, whose last axes are 1. */
static bool is_of_rows(const graph_tensor *shape, const graph_tensor *t) {
    uint32_t i = 0;
    if (BUILD_IS_SMALL || t->rank != shape->rank) return false;
    while (i < t->rank && t->dim[i].size == shape->dim[i].size &&
           t->dim[i].extent == shape->dim[i].extent)
        i++;
    for (; i < t->rank; i++)
        if (t->dim[i].size != 1 || t->dim[i].extent) return false;
    return true;
}

/* A reduction of rows, which a tree may go on with. */
static bool reduces_rows(const graph *g, const graph_node *node) {
    return !node->dead && graph_op_reduces(node->op) &&
           is_of_rows(graph_tensor_at(g, node->in[0]), graph_tensor_at(g, node->out[0]));
}

/* May the node be in a tree over `shape`? */
static bool belongs(const graph *g, const graph_tensor *shape, const graph_node *node) {
    const graph_tensor *t = graph_tensor_at(g, node->out[0]);
    if (reduces_rows(g, node)) return graph_same_shape(shape, graph_tensor_at(g, node->in[0]));
    return is_fit(node) && (graph_same_shape(shape, t) ||
                            (graph_op_is_pointwise(node->op) && is_of_rows(shape, t)));
}

/* One that may be a tree's end. */
static bool is_end(const graph *g, const graph_node *node) {
    const bool chooses = node->op == OP_TOPK || node->op == OP_ARGMAX;
    return !node->dead && (graph_op_reduces(node->op) ||
                           (chooses && !graph_tensor_at(g, node->in[0])->dim[1].extent));
}

static bool add(members *set, uint32_t node) {
    if (is_member(set, node)) return true;
    if (set->n == GRAPH_REGION_NODES) return false;
    uint32_t at = set->n++;
    for (; at > 0 && set->node[at - 1] > node; at--) set->node[at] = set->node[at - 1];
    set->node[at] = node;
    return true;
}

/* Adds a node with what it is made from, as far as that belongs there and is not far back. */
static bool add_with_makers(const graph *g, const graph_tensor *shape, members *set, uint32_t index,
                            uint32_t first) {
    const graph_node *node = &g->nodes.data[index];
    if (!add(set, index)) return false;
    const bool from_memory = node->op == OP_WEIGHTED_SUM || graph_op_is_from_memory(node->op);
    for (uint32_t k = 0; !from_memory && k < node->n_in; k++) {
        const graph_tensor *t = graph_tensor_at(g, node->in[k]);
        if (!node->in[k] || t->base || t->node == UINT32_MAX || t->node < first) continue;
        if (belongs(g, shape, &g->nodes.data[t->node]) &&
            !add_with_makers(g, shape, set, t->node, first))
            return false;
    }
    return true;
}

/* Sums of products, which trees may read through a view. */
static bool is_sums(const graph_node *node) {
    return BUILD_HAS_GRAPHS && node->op == OP_CONTRACT;
}

/* Does no node between the members use what member `maker` makes? out: it is used after them. */
static bool is_result_apart(const graph *g, const members *set, uint32_t maker, graph_value v,
                            bool *out) {
    *out = graph_tensor_at(g, v)->role == ROLE_OUTPUT;
    for (size_t i = maker + 1, end = graph_readers_end(g, v); i < end; i++) {
        const graph_node *user = &g->nodes.data[i];
        for (uint32_t k = 0; !user->dead && k < user->n_in; k++) {
            if (!user->in[k] || graph_base_of(g, user->in[k]) != v) continue;
            /* a view, of memory that is being written */
            if (is_member(set, (uint32_t)i) ? user->in[k] != v && !is_sums(&g->nodes.data[maker])
                                            : i < set->node[set->n - 1])
                return false;
            *out |= !is_member(set, (uint32_t)i);
        }
    }
    return true;
}

/* Does a node that is no member use or change something that members make or read? Fills the
 * results. */
static bool is_apart(const graph *g, members *set) {
    bool out;
    set->n_out = 0;
    for (uint32_t m = 0; m < set->n; m++) {
        const graph_node *node = &g->nodes.data[set->node[m]];
        for (uint32_t o = 0; o < node->n_out; o++) {
            if (!is_result_apart(g, set, set->node[m], node->out[o], &out)) return false;
            if (out && set->n_out == GRAPH_OUT_MAX) return false;
            if (out) set->out[set->n_out++] = node->out[o];
        }
    }
    return set->n_out > 0 && !graph_pass_changes_between(g, set->node, set->n);
}

static bool can_join(const graph *g, const graph_store *store, members *set) {
    if (!is_apart(g, set)) return false;
    graph_region r = {.n = set->n, .n_out = set->n_out};
    for (uint32_t i = 0; i < set->n; i++) r.node[i] = &g->nodes.data[set->node[i]];
    memcpy(r.out, set->out, sizeof r.out);
    return tile_region_fits(g, store, &r);
}

static bool uses_one(const graph *g, const members *set, const graph_node *node) {
    for (uint32_t k = 0; k < node->n_in; k++) {
        const graph_tensor *t = graph_tensor_at(g, node->in[k]);
        if (node->in[k] && !t->base && t->node != UINT32_MAX && is_member(set, t->node))
            return true;
    }
    return false;
}

/* The node that makes v, or what v is a view of, where that is a product; NULL: none. */
static const graph_node *product_of(const graph *g, graph_value v) {
    const uint32_t at = graph_tensor_at(g, graph_base_of(g, v))->node;
    const graph_node *node = v && at != UINT32_MAX ? &g->nodes.data[at] : NULL;
    const bool whole = !graph_tensor_at(g, v)->base;
    return node && !node->dead &&
                   (is_sums(node) || (whole && (node->op == OP_LINEAR || node->op == OP_LINEAR_ID)))
               ? node
               : NULL;
}

static uint64_t bytes_of(const graph *g, graph_value v) {
    const graph_tensor *t = graph_tensor_at(g, v);
    return graph_element_bound(t) * base_type_block_bytes(t->type);
}

/* A product that waits for its tree keeps its factors in memory until then, those that nobody else
 * reads so late; one that does not wait keeps its sums. Do the factors take more? */
static bool keeps_more(const graph *g, const members *set, uint32_t product) {
    const graph_node *node = &g->nodes.data[product];
    const uint32_t last = set->node[set->n - 1];
    bool between = false;
    uint64_t kept = 0;
    for (uint32_t i = product + 1; i < last; i++)
        between |= !g->nodes.data[i].dead && !is_member(set, i);
    for (uint32_t k = 0; k < node->n_in; k++) {
        const graph_value v = graph_base_of(g, node->in[k]);
        if (graph_tensor_at(g, v)->role == ROLE_INTERMEDIATE && graph_readers_end(g, v) <= last)
            kept += bytes_of(g, v);
    }
    return between && kept > bytes_of(g, node->out[0]);
}

/* Adds the product that a member takes, where the tree may stand at its end. */
static void add_product(const graph *g, const graph_store *store, members *set) {
    for (uint32_t m = 0; m < set->n; m++) {
        const graph_node *node = &g->nodes.data[set->node[m]];
        for (uint32_t k = 0; k < node->n_in; k++) {
            const graph_node *product = product_of(g, node->in[k]);
            const uint32_t at = product ? (uint32_t)(product - g->nodes.data) : 0;
            members more = *set;
            if (!product || (is_sums(product) && keeps_more(g, set, at)) || !add(&more, at) ||
                !can_join(g, store, &more))
                continue;
            *set = more;
            return;
        }
    }
}

static bool is_map(const graph_node *node) {
    return !node->dead && graph_op_is_from_memory(node->op);
}

/* A pointwise operation that nobody reads but the one member. */
static bool is_read_there(const graph *g, const graph_node *node, const graph_node *reader) {
    return is_fit(node) && graph_op_is_pointwise(node->op) &&
           graph_tensor_at(g, node->out[0])->role != ROLE_OUTPUT &&
           graph_reader_of(g, node->out[0]) == reader;
}

/* Maps that members which are maps read, and pointwise operations that such a map alone reads, or
 * another one of these. of: what the tree's values have. */
static void add_maps(const graph *g, const graph_store *store, const graph_tensor *of,
                     members *set) {
    for (uint32_t m = set->n; m-- > 0;) {
        const graph_node *node = &g->nodes.data[set->node[m]];
        const bool reads = is_map(node) || !graph_same_shape(of, graph_tensor_at(g, node->out[0]));
        for (uint32_t k = 0; reads && k < node->n_in; k++) {
            const graph_tensor *t = graph_tensor_at(g, node->in[k]);
            if (t->base || t->node == UINT32_MAX || is_member(set, t->node)) continue;
            const graph_node *maker = &g->nodes.data[t->node];
            if (!is_map(maker) && !is_read_there(g, maker, node)) continue;
            members more = *set;
            if (!add(&more, t->node) || !can_join(g, store, &more)) continue;
            *set = more;
            m = set->n; /* it may read another one */
            break;
        }
    }
}

/* ---- terms ----------------------------------------------------------------------------------- */

enum { IN_SUM = 1, ELSEWHERE = 2 }; /* a node's result is needed; in a sum alone: it is a term */

/* Are there any? */
static bool find_terms(const graph *g, uint8_t *needed /* [nodes] */) {
    for (size_t i = g->nodes.count; i-- > 0;) { /* those who need it come after it */
        const graph_node *node = &g->nodes.data[i];
        if (!is_fit(node) || !graph_op_is_pointwise(node->op) ||
            graph_tensor_at(g, node->out[0])->role == ROLE_OUTPUT)
            needed[i] |= ELSEWHERE;
        for (uint32_t k = 0; !node->dead && k < node->n_in; k++) {
            const graph_tensor *t = graph_tensor_at(g, node->in[k]);
            if (!node->in[k] || t->node == UINT32_MAX) continue;
            const bool in_sum =
                node->op == OP_WEIGHTED_SUM ||
                (needed[i] == IN_SUM && graph_same_shape(t, graph_tensor_at(g, node->out[0])));
            needed[t->node] |= in_sum && !t->base ? IN_SUM : ELSEWHERE;
        }
    }
    return memchr(needed, IN_SUM, g->nodes.count);
}

static bool is_used_by(const graph *g, const members *set, graph_value v) {
    for (uint32_t m = 0; m < set->n; m++) {
        const graph_node *node = &g->nodes.data[set->node[m]];
        for (uint32_t k = 0; k < node->n_in; k++)
            if (node->in[k] == v) return true;
    }
    return false;
}

static void add_terms(const graph *g, const graph_store *store, const uint8_t *needed,
                      members *set) {
    const uint32_t last = set->node[set->n - 1];
    for (uint32_t k = last; k-- > 0 && k + AHEAD_MAX >= last;) {
        members more = *set;
        if (needed[k] == IN_SUM && !g->nodes.data[k].dead &&
            is_used_by(g, set, g->nodes.data[k].out[0]) && add(&more, k) &&
            can_join(g, store, &more))
            *set = more;
    }
}

/* ---- trees ----------------------------------------------------------------------------------- */

/* From where on a tree that begins there may grow: from its first reader on, however far that is,
 * as where all gradients are clipped before one is used. */
static uint32_t growth_begins(const graph *g, uint32_t first) {
    if (!BUILD_HAS_TRAINING) return first + 1;
    const graph_value v = g->nodes.data[first].out[0];
    const uint32_t end = (uint32_t)graph_readers_end(g, v);
    if (end <= first + AHEAD_MAX) return first + 1;
    for (uint32_t i = first + 1; i < end; i++)
        for (uint32_t k = 0; !g->nodes.data[i].dead && k < g->nodes.data[i].n_in; k++)
            if (g->nodes.data[i].in[k] == v) return i > first + AHEAD_MAX ? i : first + 1;
    return first + 1;
}

/* Is the node read by a sum over other axes than those of rows alone, or by pointwise operations
 * of one? Its tree makes it, and what is read for it is less than would be stored. */
static bool is_for_columns(const graph *g, const graph_tensor *shape, const graph_node *node) {
    while (node && is_fit(node) && graph_op_is_pointwise(node->op) &&
           graph_same_shape(shape, graph_tensor_at(g, node->out[0])))
        node = graph_reader_of(g, node->out[0]);
    return node && graph_op_reduces(node->op) && !reduces_rows(g, node);
}

static bool has_row_reduction(const graph *g, const members *set) {
    for (uint32_t m = 0; m < set->n; m++)
        if (reduces_rows(g, &g->nodes.data[set->node[m]])) return true;
    return false;
}

/* hope: the set with what could not join it yet, as while a tree makes more results than a node
 * has, which its rows' sums then take. */
static void grow(const graph *g, const graph_store *store, const uint8_t *needed, uint32_t first,
                 members *set) {
    const graph_node *begin = &g->nodes.data[first];
    const graph_tensor *shape =
        graph_tensor_at(g, reduces_rows(g, begin) ? begin->in[0] : begin->out[0]);
    const uint32_t from = growth_begins(g, first);
    members hope = *set;
    for (uint32_t k = from; k < g->nodes.count && k < from + AHEAD_MAX; k++) {
        const graph_node *node = &g->nodes.data[k];
        if (needed[k] == IN_SUM || !belongs(g, shape, node) || !uses_one(g, &hope, node) ||
            (has_row_reduction(g, &hope) && is_for_columns(g, shape, node)))
            continue;
        members all = hope, more = *set;
        const bool hopes = add_with_makers(g, shape, &all, k, first);
        if (hopes && has_row_reduction(g, &all)) hope = all;
        if (hopes && hope.n == all.n && can_join(g, store, &all)) {
            *set = hope = all;
            continue;
        }
        if (!uses_one(g, set, node)) continue;
        bool joined = add_with_makers(g, shape, &more, k, first) && can_join(g, store, &more);
        if (!joined) { /* the node alone */
            more = *set;
            joined = add(&more, k) && can_join(g, store, &more);
        }
        if (joined) *set = more;
        if (joined && !has_row_reduction(g, &hope)) hope = more;
    }
}

static bool add_end(const graph *g, const graph_store *store, uint32_t first, members *set) {
    for (uint32_t k = first + 1; k < g->nodes.count && k <= first + AHEAD_MAX; k++) {
        const graph_node *node = &g->nodes.data[k];
        members more = *set;
        if (!is_end(g, node) || !uses_one(g, set, node) || !add(&more, k) ||
            !can_join(g, store, &more))
            continue;
        *set = more;
        return true;
    }
    return false;
}

/* A sum beside the one that a tree ends in, of what it reads or makes, over the same axes. */
static void add_second_end(const graph *g, const graph_store *store, members *set) {
    const graph_node *end = &g->nodes.data[set->node[set->n - 1]];
    const uint32_t last = set->node[set->n - 1];
    for (uint32_t k = last + 1; k < g->nodes.count && k <= last + AHEAD_MAX; k++) {
        const graph_node *node = &g->nodes.data[k];
        members more = *set;
        if (node->dead || node->op != end->op || node->attr.sum.axes != end->attr.sum.axes ||
            !(uses_one(g, set, node) || is_used_by(g, set, node->in[0])) || !add(&more, k) ||
            !can_join(g, store, &more))
            continue;
        *set = more;
        return;
    }
}

/* The cast that alone reads the sum that a tree ends in. */
static void add_cast(const graph *g, const graph_store *store, members *set) {
    const graph_node *reader = graph_reader_of(g, g->nodes.data[set->node[set->n - 1]].out[0]);
    members more = *set;
    if (reader && reader->op == OP_CAST && add(&more, (uint32_t)(reader - g->nodes.data)) &&
        can_join(g, store, &more))
        *set = more;
}

/* The map that alone reads the one thing that a tree makes, as its next member; 0: none. */
static uint32_t next_map(const graph *g, const graph_store *store, members *set) {
    const graph_value made = g->nodes.data[set->node[set->n - 1]].out[0];
    const graph_node *reader = graph_reader_of(g, made);
    members more = *set;
    if (!reader || !is_map(reader) || graph_tensor_at(g, made)->role == ROLE_OUTPUT) return 0;
    const uint32_t at = (uint32_t)(reader - g->nodes.data);
    if (!add(&more, at) || !can_join(g, store, &more) || more.n_out != 1) return 0;
    *set = more;
    return at;
}

/* All trees but those that begin with a term. */
static bool join_trees(graph *g, graph_store *store, const uint8_t *needed) {
    for (uint32_t i = 0; i < g->nodes.count; i++) {
        const bool reduces = reduces_rows(g, &g->nodes.data[i]);
        if (needed[i] == IN_SUM || !(is_fit(&g->nodes.data[i]) || reduces)) continue;
        members set = {.node = {i}, .n = 1};
        uint32_t first = i;
        grow(g, store, needed, first, &set);
        if (reduces && set.n == 1) continue;
        for (uint32_t map; (map = next_map(g, store, &set)) != 0; first = map)
            grow(g, store, needed, map, &set);
        add_terms(g, store, needed, &set);
        add_maps(g, store, graph_tensor_at(g, g->nodes.data[first].out[0]), &set);
        const bool ended = add_end(g, store, first, &set);
        if (ended && !BUILD_IS_SMALL && g->nodes.data[set.node[set.n - 1]].op == OP_SUM)
            add_second_end(g, store, &set);
        if (ended && !BUILD_IS_SMALL) add_cast(g, store, &set);
        if (!ended) add_product(g, store, &set);
        if (set.n > 1 &&
            !graph_pass_join(g, set.node, set.n, set.out, set.n_out, FUSED_CHAIN, NULL))
            return false;
    }
    return true;
}

/* Graphs of training have thousands of nodes, among which readers are asked for over and over. */
static bool find_last_readers(graph *g, uint32_t **last) {
    if (!BUILD_HAS_TRAINING) return true;
    *last = g->last_reader = base_heap_take(g->heap, g->tensors.count * sizeof **last);
    for (uint32_t i = 0; *last && i < g->nodes.count; i++) {
        const graph_node *node = &g->nodes.data[i];
        for (uint32_t k = 0; !node->dead && k < node->n_in; k++)
            (*last)[graph_base_of(g, node->in[k])] = i;
    }
    return *last != NULL;
}

beryl_status graph_pass_chains(graph *g, graph_store *store, beryl_error *error) {
    const size_t n = g->nodes.count, n_value = g->tensors.count;
    uint32_t *last = NULL;
    uint8_t *needed = base_heap_take(g->heap, n + 1);
    bool good = needed && find_last_readers(g, &last);
    const bool any = good && find_terms(g, needed);
    good = good && join_trees(g, store, needed);
    if (any) memset(needed, 0, n);
    if (any && good) good = join_trees(g, store, needed);
    g->last_reader = NULL;
    base_heap_give(g->heap, last, n_value * sizeof *last);
    base_heap_give(g->heap, needed, n + 1);
    return good ? BERYL_OK : base_no_memory(error);
}
