/* lower_ir_chain.c - generated kernels of pointwise operations, of rows (norms, softmax) and of weighted sums, alone or joined to trees.
 *
 * The one idea: see lower_ir_tree.h. Without stats the walk is over all elements, however many dimensions they have
 * (lower_walk.h); rows are in lower_ir_rows.c. */
#include "base/error.h"
#include "graph/fused.h"
#include "graph/lower_ir_product.h"
#include "graph/lower_ir_rows.h"

enum {
    LANES = 256,          /* of pointwise operations */
    SOFTWARE_LANES = 64,
    SINGLES = 4,          /* elements that a lane does where vectors are none */
    SEVERAL_MAX = 16,     /* vectors that a lane does at most */
    MANY = 1 << 20,       /* elements of a tensor, for which that pays */
    SERIAL_VECTORS = 256  /* that a workgroup does where it is one lane */
};

/* A row that is no whole number of vectors: what is left of it goes to one more lane. */
static void rest_of_row(tree_walk *c, ir_id at, ir_id n) {
    ir_builder *b = c->k->b;
    ir_id i = ir_loop(b, at, n, ir_u32(b, 1));
    tree_spot s;
    tree_spot_begin(&s, 1);
    for (uint32_t t = 0; t < c->t.n_tensor; t++) s.at[t] = c->step[t] ? ir_add(b, c->offset[t], i) : c->offset[t];
    tree_store(c, &s, 0);
    ir_end(b);
}

/* inside: the vector is known to be one. */
static void one_vector(tree_walk *c, ir_id index, ir_id total, ir_id n, bool inside, bool ragged, uint32_t wide) {
    ir_builder *b = c->k->b;
    tree_spot s;
    tree_spot_begin(&s, wide);
    if (!inside) ir_if(b, ir_lt(b, index, total));
    tree_place(c, index, wide, false, s.at);
    tree_store(c, &s, 0);
    if (ragged) {
        ir_else(b);
        ir_if(b, ir_eq(b, index, total));
        rest_of_row(c, lower_ir_times(c->k, index, wide), n);
        ir_end(b);
    }
    if (!inside) ir_end(b);
}

/* Vectors that are `apart` from one another, all of them read before one is written. */
static void several(tree_walk *c, ir_id first, ir_id total, uint32_t n, uint32_t apart, uint32_t wide) {
    ir_builder *b = c->k->b;
    tree_spot s[SEVERAL_MAX];
    ir_id index[SEVERAL_MAX];
    const ir_id last = ir_sub(b, total, ir_u32(b, 1));
    for (uint32_t i = 0; i < n; i++) {
        tree_spot_begin(&s[i], wide);
        index[i] = lower_ir_plus(c->k, first, i * apart);
        tree_place(c, ir_min(b, index[i], last), wide, false, s[i].at);
        for (uint32_t v = 0; v < c->t.n_value; v++)
            if (c->t.values[v].kind == TREE_INPUT && !c->t.values[v].inside) tree_value_at(c, &s[i], v);
    }
    for (uint32_t i = 0; i < n; i++) {
        ir_if(b, ir_lt(b, index[i], total));
        tree_store(c, &s[i], 0);
        ir_end(b);
    }
}

static beryl_status elements(lowering *l, const graph_node *node, const tree *t, const char *name, beryl_error *error) {
    tree_walk walk = {.t = *t}, *c = &walk;
    lower_ir k;
    const bool serial = device_is_compiled(l->caps);
    const graph_tensor *tensors[LOWER_WALK_TENSORS];
    for (uint32_t i = 0; i < c->t.n_tensor; i++) tensors[i] = &c->t.seen[i];
    c->w = lower_walk_of(tensors, c->t.n_tensor, 0);
    if (c->w.n == 0) lower_walk_pad(&c->w, 1);
    const uint32_t inner = c->w.n - 1;
    for (uint32_t i = 0; i < c->t.n_tensor; i++) c->step[i] = c->w.stride[i][inner];
    const uint64_t row = c->w.size[inner].factor;
    const uint32_t most = serial ? LOWER_IR_RUN : 4;
    const bool ragged = c->w.n == 1 && row % most && tree_widest(c, most, row, false, 0) > 1;
    const uint32_t widest = tree_widest(c, most, row, !ragged, inner), wide = lower_ir_choose(l, "vector", widest, 1, widest);
    const uint32_t invocations = l->caps->workgroup_invocations ? l->caps->workgroup_invocations : LANES;
    const uint32_t lanes = serial ? 1 : lower_ir_choose(l, "lanes", lower_ir_serial(l) ? SOFTWARE_LANES : LANES, 16, invocations);
    const bool apart = widest == 1 && !lower_ir_serial(l) && graph_element_bound(c->t.shape) >= MANY;
    const uint32_t each = lower_ir_choose(l, "vectors", serial ? SERIAL_VECTORS : apart ? SINGLES : 1, 1, serial ? UINT32_MAX : ragged ? 1 : SEVERAL_MAX);
    if (!ragged) c->w.size[inner].factor /= wide;
    const bool even = !ragged && c->w.size[inner].factor % lanes == 0; /* all lanes of a workgroup have a vector, or none */
    lower_ir_begin(&k, l, node, name, lanes);
    c->k = &k;
    ir_builder *b = c->k->b;
    tree_declare(c);
    ir_id n = c->size[0], total = n, group = lower_ir_group(c->k);
    for (uint32_t i = 1; i < c->w.n; i++) total = ir_mul(b, total, c->size[i]);
    if (ragged) total = lower_ir_over(c->k, n, wide);
    ir_id first = lower_ir_times(c->k, group, lanes * each);
    if (serial) {
        ir_id end = ir_min(b, lower_ir_plus(c->k, first, each), ragged ? lower_ir_plus(c->k, total, 1) : total);
        ir_id index = ir_loop(b, first, end, ir_u32(b, 1));
        one_vector(c, index, total, n, !ragged, ragged, wide);
        ir_end(b);
    } else if (each > 1) {
        several(c, ir_add(b, first, ir_local(b, 0)), total, each, lanes, wide);
    } else {
        if (even) ir_if(b, ir_lt(b, first, total));
        one_vector(c, ir_add(b, first, ir_local(b, 0)), total, n, even, ragged, wide);
        if (even) ir_end(b);
    }
    lower_count count = lower_walk_count(l, &c->w);
    return lower_ir_end(c->k, count, lanes * each * (ragged ? wide : 1), error);
}

/* ---- the lowerings ------------------------------------------------------------------------------------------------------ */

static beryl_status lower_tree(lowering *l, const graph_node *node, const graph_node *const *nodes, uint32_t n, const char *name, beryl_error *error) {
    tree t;
    if (!tree_read(&t, l->g, nodes, n, node->out, node->n_out)) return lower_refuse(l, node, "more values than there is room for", error);
    if (t.product) return lower_ir_product(l, node, &t, error);
    return t.n_stat || t.choice ? lower_ir_tree_rows(l, node, &t, name, error) : elements(l, node, &t, name, error);
}

beryl_status lower_ir_pointwise(lowering *l, const graph_node *node, beryl_error *error) {
    return lower_tree(l, node, &node, 1, graph_op_name(node->op), error);
}

beryl_status lower_ir_chain(lowering *l, const graph_node *node, beryl_error *error) {
    const graph_node *nodes[FUSED_CHAIN_MAX];
    const uint32_t n = node->attr.fused.count;
    for (uint32_t i = 0; i < n && i < FUSED_CHAIN_MAX; i++) nodes[i] = &l->g->inner.data[node->attr.fused.first + i];
    return lower_tree(l, node, nodes, n, "chain", error);
}

bool lower_ir_chain_fits(const graph *g, const graph_store *store, const graph_node *const *nodes, uint32_t n, const graph_value *outs, uint32_t n_out) {
    tree t;
    const device_caps *caps = device_caps_of(store->device);
    if (!tree_read(&t, g, nodes, n, outs, n_out)) return false;
    if (t.product) return lower_ir_product_fits(g, store, &t);
    const uint32_t more = t.choice ? t.choice->n_out : 0;
    if (caps->storage_max && t.n_tensor + more > caps->storage_max) return false;
    return !(t.n_stat || t.choice) || lower_ir_tree_rows_fit(caps, &t);
}
