/* chain.c - kernels of pointwise operations, of rows (norms, softmax) and of
 * weighted sums, alone or joined to trees.
 *
 * The one idea: see tile/tree.h. Without stats the walk is over all elements, however many
 * dimensions they have (tile/walk.h); rows are in tile/rows.c. */
#include "base/build.h"
#include "base/error.h"
#include "tile/product.h"
#include "tile/reduce.h"
#include "tile/rows.h"

#include <string.h>

enum {
    LANES = 256, /* of pointwise operations */
    SOFTWARE_LANES = 64,
    TURNED = 16,           /* of an axis, whose neighbours are worth a tile, */
    TURNED_MANY = 1 << 16, /* of so many elements */
    SINGLES = 4,           /* elements that a lane does where vectors are none */
    SEVERAL_MAX = 16,      /* vectors that a lane does at most */
    MANY = 1 << 20,        /* elements of a tensor, for which that pays */
    SERIAL_VECTORS = 256   /* that a workgroup does where it is one lane */
};

/* A row that is no whole number of vectors: what is left of it goes to one more lane. */
static void rest_of_row(tree_walk *c, ir_id at, ir_id n) {
    ir_builder *b = c->k->b;
    ir_id i = ir_loop(b, at, n, ir_u32(b, 1));
    tree_spot s;
    tree_spot_begin(&s, 1);
    for (uint32_t t = 0; t < c->t.n_tensor; t++)
        s.at[t] = c->step[t] ? ir_add(b, c->offset[t], i) : c->offset[t];
    tree_store(c, &s, 0);
    ir_end(b);
}

/* inside: the vector is known to be one. */
static void one_vector(tree_walk *c, ir_id index, ir_id total, ir_id n, bool inside, bool ragged,
                       uint32_t wide) {
    ir_builder *b = c->k->b;
    tree_spot s;
    tree_spot_begin(&s, wide);
    if (!inside) ir_if(b, ir_lt(b, index, total));
    tree_place(c, index, wide, false, s.at);
    tree_store(c, &s, 0);
    if (ragged) {
        ir_else(b);
        ir_if(b, ir_eq(b, index, total));
        rest_of_row(c, tile_mul(c->k, index, wide), n);
        ir_end(b);
    }
    if (!inside) ir_end(b);
}

/* What is read from memory, at once. */
static void read_inputs(tree_walk *c, tree_spot *s, ir_id index, uint32_t wide) {
    tree_place(c, index, wide, false, s->at);
    for (uint32_t v = 0; v < c->t.n_value; v++)
        if (c->t.values[v].kind == TREE_INPUT && !c->t.values[v].inside) tree_value_at(c, s, v);
}

/* Vectors that are `apart` from one another, all of them read before one is written. */
static void several(tree_walk *c, ir_id first, ir_id total, uint32_t n, uint32_t apart,
                    uint32_t wide) {
    ir_builder *b = c->k->b;
    tree_spot s[SEVERAL_MAX];
    ir_id index[SEVERAL_MAX];
    const ir_id last = ir_sub(b, total, ir_u32(b, 1));
    for (uint32_t i = 0; i < n; i++) {
        tree_spot_begin(&s[i], wide);
        index[i] = tile_add(c->k, first, i * apart);
        read_inputs(c, &s[i], ir_min(b, index[i], last), wide);
    }
    for (uint32_t i = 0; i < n; i++) {
        ir_if(b, ir_lt(b, index[i], total));
        tree_store(c, &s[i], 0);
        ir_end(b);
    }
}

/* Neighbours of an input lie along the axis before the last one. */
static bool is_turned(const tree_walk *c) {
    const uint32_t last = c->w.n - 1;
    bool turned = false, fits = c->w.n >= 2;
    for (uint32_t i = 0; i < 2 && fits; i++)
        fits = !c->w.size[last - i].extent && c->w.size[last - i].factor >= TURNED;
    for (uint32_t i = 0; i < c->t.n_tensor && fits; i++)
        turned |= i >= c->t.n_out && c->w.stride[i][last - 1] == 1 && c->w.stride[i][last] > 1;
    return turned;
}

/* A workgroup does a tile of the last two axes, of which each of eight times 32 lanes has a part:
 * what they write fills pieces of 32 bytes, and what they read is soon read whole. */
static beryl_status turned(tree_walk *c, const char *name, beryl_error *error) {
    enum { PIECE = 32, SIDE = 4, ACROSS = 2, DOWN = LANES / 32 / ACROSS };
    tile_kernel *k = c->k;
    lowering *l = k->l;
    const uint32_t last = c->w.n - 1, bytes = base_type_block_bytes(c->t.seen[0].type),
                   beside = bytes < 2 ? 16 : PIECE / bytes, below = 32 / beside,
                   columns = ACROSS * SIDE * beside, rows = DOWN * SIDE * below;
    const uint32_t n_column = (uint32_t)c->w.size[last].factor,
                   n_row = (uint32_t)c->w.size[last - 1].factor,
                   tiles = (n_column + columns - 1) / columns, tiers = (n_row + rows - 1) / rows;
    lower_walk outer = c->w;
    outer.n -= 2;
    tile_begin(k, l, k->node, name, LANES);
    ir_builder *b = k->b;
    tree_declare(c);
    ir_id total = ir_u32(b, 1), group = tile_group(k), local = ir_local(b, 0);
    for (uint32_t i = 0; i < outer.n; i++) total = ir_mul(b, total, c->size[i]);
    const ir_id lane = tile_rem(k, local, 32), part = tile_div(k, local, 32),
                tier = tile_div(k, group, tiles), product = tile_div(k, tier, tiers);
    const ir_id column = ir_add(b, tile_mul(k, tile_rem(k, group, tiles), columns),
                                ir_add(b, tile_mul(k, tile_rem(k, part, ACROSS), SIDE * beside),
                                       tile_rem(k, lane, beside))),
                row = ir_add(b, tile_mul(k, tile_rem(k, tier, tiers), rows),
                             tile_mul(k,
                                      ir_add(b, tile_mul(k, tile_div(k, part, ACROSS), below),
                                             tile_div(k, lane, beside)),
                                      SIDE));
    const ir_id one = ir_u32(b, 1),
                start = tile_mul(k, ir_min(b, product, ir_sub(b, total, one)), n_row);
    tree_spot s[SIDE * SIDE];
    ir_id inside[SIDE * SIDE];
    for (uint32_t i = 0; i < SIDE * SIDE; i++) {
        const ir_id x = tile_add(k, column, i / SIDE * beside), y = tile_add(k, row, i % SIDE);
        tree_spot_begin(&s[i], 1);
        inside[i] =
            ir_and(b, ir_lt(b, product, total),
                   ir_and(b, ir_lt(b, x, ir_u32(b, n_column)), ir_lt(b, y, ir_u32(b, n_row))));
        const ir_id at = ir_add(b, start, ir_min(b, y, ir_u32(b, n_row - 1)));
        read_inputs(c, &s[i],
                    ir_add(b, tile_mul(k, at, n_column), ir_min(b, x, ir_u32(b, n_column - 1))), 1);
    }
    for (uint32_t i = 0; i < SIDE * SIDE; i++) {
        ir_if(b, inside[i]);
        tree_store(c, &s[i], 0);
        ir_end(b);
    }
    const lower_count count = outer.n ? lower_walk_count(l, &outer) : (lower_count){1, 0};
    return tile_end(k, lower_count_times(count, (uint64_t)tiles * tiers), 1, error);
}

static beryl_status elements(lowering *l, const graph_node *node, const tree *t, const char *name,
                             beryl_error *error) {
    tree_walk walk = {.t = *t}, *c = &walk;
    tile_kernel k;
    const bool serial = device_is_compiled(l->caps);
    const graph_tensor *tensors[LOWER_WALK_TENSORS];
    for (uint32_t i = 0; i < c->t.n_tensor; i++) tensors[i] = &c->t.seen[i];
    c->w = lower_walk_of(tensors, c->t.n_tensor, 0);
    if (c->w.n == 0) lower_walk_pad(&c->w, 1);
    const uint32_t inner = c->w.n - 1;
    for (uint32_t i = 0; i < c->t.n_tensor; i++) c->step[i] = c->w.stride[i][inner];
    const uint64_t row = c->w.size[inner].factor;
    const uint32_t most = serial ? TILE_RUN : 4;
    const bool ragged = c->w.n == 1 && row % most && tree_widest(c, most, row, false, 0) > 1;
    const uint32_t widest = tree_widest(c, most, row, !ragged, inner),
                   wide = tile_choose(l, "vector", widest, 1, widest);
    const uint32_t invocations =
        l->caps->workgroup_invocations ? l->caps->workgroup_invocations : LANES;
    const uint32_t lanes =
        serial ? 1
               : tile_choose(l, "lanes", tile_serial(l) ? SOFTWARE_LANES : LANES, 16, invocations);
    const bool apart = widest == 1 && !tile_serial(l) && graph_element_bound(c->t.shape) >= MANY;
    if (!BUILD_IS_SMALL && widest == 1 && !tile_serial(l) && lanes == LANES &&
        graph_element_bound(c->t.shape) >= TURNED_MANY && is_turned(c)) {
        k = (tile_kernel){.l = l, .node = node};
        c->k = &k;
        return turned(c, name, error);
    }
    const uint32_t each = tile_choose(l, "vectors",
                                      serial  ? SERIAL_VECTORS
                                      : apart ? SINGLES
                                              : 1,
                                      1,
                                      serial   ? UINT32_MAX
                                      : ragged ? 1
                                               : SEVERAL_MAX);
    if (!ragged) c->w.size[inner].factor /= wide;
    /* all lanes of a workgroup have a vector, or none */
    const bool even = !ragged && c->w.size[inner].factor % lanes == 0;
    tile_begin(&k, l, node, name, lanes);
    c->k = &k;
    ir_builder *b = c->k->b;
    tree_declare(c);
    ir_id n = c->size[0], total = n, group = tile_group(c->k);
    for (uint32_t i = 1; i < c->w.n; i++) total = ir_mul(b, total, c->size[i]);
    if (ragged) total = tile_div(c->k, n, wide);
    ir_id first = tile_mul(c->k, group, lanes * each);
    if (serial) {
        ir_id end =
            ir_min(b, tile_add(c->k, first, each), ragged ? tile_add(c->k, total, 1) : total);
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
    return tile_end(c->k, count, lanes * each * (ragged ? wide : 1), error);
}

/* ---- the lowerings --------------------------------------------------------------------------- */

beryl_status tile_region(lowering *l, const graph_node *node, const graph_region *r,
                         const char *name, beryl_error *error) {
    tree t;
    if (!tree_read(&t, l->g, r, 0))
        return lower_refuse(l, node, "more values than there is room for", error);
    if (t.n_product) return tile_product(l, node, &t, error);
    if (tree_reduces(&t)) return tile_tree_reduce(l, node, &t, name, error);
    return tree_has_rows(&t) ? tile_tree_rows(l, node, &t, name, error)
                             : elements(l, node, &t, name, error);
}

beryl_status tile_operation(lowering *l, const graph_node *node, beryl_error *error) {
    graph_region r = {.node = {node}, .n = 1, .n_out = node->n_out};
    memcpy(r.out, node->out, sizeof r.out);
    return tile_region(l, node, &r, graph_op_name(node->op), error);
}

beryl_status tile_chain(lowering *l, const graph_node *node, beryl_error *error) {
    const graph_region r = graph_region_of(l->g, node);
    return tile_region(l, node, &r, "chain", error);
}

bool tile_region_fits(const graph *g, const graph_store *store, const graph_region *r) {
    tree t;
    const lowering l = {
        .g = g, .store = (graph_store *)(uintptr_t)store, .caps = device_caps_of(store->device)};
    if (!tree_read(&t, g, r, 0)) return false;
    if (t.n_product) return tile_product_fits(g, store, &t);
    /* a choice's own results, or a reduction's parts */
    const uint32_t more = t.choice ? t.choice->n_out : 0;
    if (l.caps->storage_max && tree_bindings(&l, &t) + more > l.caps->storage_max) return false;
    return !tree_has_rows(&t) || tree_reduces(&t) || tile_tree_rows_fit(l.caps, &t);
}
