/* dots_joined.c - products of many vectors with what stands around them as tiles of bytes
 * (tile/dots.h): one dispatch makes and rounds the vectors for all, then each product is its
 * own; gate and up of a feed-forward layer are one, which stores gelu(gate) * up alone. */
#include "base/build.h"
#include "base/error.h"
#include "tile/dots.h"
#include "tile/matvec_fused.h"
#include "tile/vectors.h"
#include "tile/products.h"
#include "tile/tiled.h"

enum { VECTORS_MIN = MATVEC_ROWS_MAX + 1 };

typedef struct joined {
    graph_products products;
    vectors_plan v;
    bool pair; /* gate and up */
} joined;

/* Whole rows of a stored weight. */
static bool weight_of(const lowering *l, graph_value v, const joined *j) {
    const graph_tensor *t = graph_tensor_at(l->g, v);
    return lower_weight(l, v) && t->rank == 2 && !t->dim[0].extent && !t->dim[1].extent &&
           t->dim[1].size == j->v.rows.k && t->stride[1] == 1 && t->stride[0] == t->dim[1].size &&
           t->offset % t->dim[1].size == 0 &&
           tile_dots_wants(l, t->type, j->v.rows.bound, j->v.rows.k);
}

static bool is_whole(const lowering *l, graph_value v) {
    const graph_tensor *t = graph_tensor_at(l->g, v);
    return t->offset == 0 && lower_stored(l, v)->dim[0] == t->dim[0].size;
}

/* gelu(gate) * up, of the first product and the second, and nothing else. */
static bool is_pair(const lowering *l, const graph_products *p) {
    if (!p->ends || p->n != 2 || p->after.n != 3 || p->after.n_out != 1) return false;
    const graph_node *end = p->after.node[2];
    const graph_tensor *a = graph_tensor_at(l->g, p->w[0]), *b = graph_tensor_at(l->g, p->w[1]);
    return end->op == OP_GEGLU && end->in[0] == p->out[0] && end->in[1] == p->out[1] &&
           a->type == b->type && a->dim[0].size == b->dim[0].size && is_whole(l, p->w[0]) &&
           is_whole(l, p->w[1]) && lower_weights_fit(l, p->w, 2);
}

/* Is what is of low rank added to the products, by vectors that are there? */
static bool adds_low(const lowering *l, const graph_products *p) {
    if (p->side) return false;
    for (uint32_t i = 0; i < p->before.n; i++)
        if (p->before.node[i]->op == OP_LINEAR) return false;
    for (uint32_t i = 0; i < p->n; i++) {
        const graph_node sum = {
            .op = OP_LINEAR, .n_in = 4, .in = {p->x, p->w[i], p->low[i], p->low_w[i]}};
        if (p->low[i] && !tile_tiled_adds(l, &sum)) return false;
    }
    return true;
}

/* To both of a pair from one buffer, or to none? */
static bool adds_low_alike(const lowering *l, const graph_products *p) {
    return !p->low[0] == !p->low[1] &&
           (!p->low[0] ||
            (graph_base_of(l->g, p->low[0]) == graph_base_of(l->g, p->low[1]) &&
             graph_tensor_at(l->g, p->low_w[0])->type == graph_tensor_at(l->g, p->low_w[1])->type &&
             graph_same_shape(graph_tensor_at(l->g, p->low_w[0]),
                              graph_tensor_at(l->g, p->low_w[1])) &&
             lower_weights_fit(l, p->low_w, 2)));
}

static bool joined_of(const lowering *l, const graph_region *r, joined *j) {
    const graph_products *p = &j->products;
    *j = (joined){.pair = false};
    if (!graph_products_of(l->g, r, &j->products) ||
        (BUILD_HAS_ADAPTERS && p->has_low && !(BUILD_HAS_JOINED_ADAPTERS && adds_low(l, p))))
        return false;
    const uint32_t k = graph_tensor_at(l->g, p->w[0])->dim[1].size;
    if (!vectors_plan_of(l, &p->before, p->x, NULL, k, &j->v) || j->v.rows.bound < VECTORS_MIN)
        return false;
    uint64_t rows = 0;
    for (uint32_t i = 0; i < p->n; rows += graph_tensor_at(l->g, p->w[i++])->dim[0].size)
        if (!weight_of(l, p->w[i], j)) return false;
    if (rows < DOTS_ROWS) return false;
    j->pair = is_pair(l, p);
    if ((p->ends && !j->pair) || (BUILD_HAS_JOINED_ADAPTERS && j->pair && !adds_low_alike(l, p)))
        return false;
    j->v.rounded = j->v.kind == VECTORS_TREE && vectors_fit_rounded(l, &j->v);
    return j->v.kind == VECTORS_PLAIN || j->v.rounded || vectors_fit_separate(l, &j->v);
}

bool tile_dots_joined_fits(const graph *g, const graph_store *store, const lower_settings *settings,
                           const graph_region *r) {
    joined j;
    if (!store->device) return false;
    const lowering l = lower_asked(g, store, settings);
    return joined_of(&l, r, &j);
}

/* All rows of a weight, a shard after the other. */
static beryl_status segment(lowering *l, tile_tiled_product *p) {
    const store_tensor *stored = lower_stored(l, p->weight);
    const graph_tensor *t = graph_tensor_at(l->g, p->weight);
    const uint32_t begin = t->offset / p->k, end = begin + t->dim[0].size;
    beryl_status status = BERYL_OK;
    lower_bytes(l, t->dim[0].size * base_type_row_bytes(t->type, p->k));
    for (uint32_t i = 0; status == BERYL_OK && i < stored->n_shard; i++) {
        const store_shard *s = &stored->shard[i];
        const uint32_t from = begin > s->row ? begin : s->row,
                       to = end < s->row + s->n_row ? end : s->row + s->n_row;
        if (from >= to) continue;
        p->shard = i;
        p->first = from - s->row;
        p->to = from - begin;
        p->m = to - from;
        status = tile_dots(l, p);
        p->rounded = true;
    }
    return status;
}

beryl_status tile_dots_joined(lowering *l, const graph_region *r) {
    joined j;
    if (!joined_of(l, r, &j)) return lower_refuse(l, l->node, "this joined product");
    const graph_products *all = &j.products;
    const lower_matrix *x = &j.v.rows;
    beryl_status status = j.v.kind == VECTORS_PLAIN ? BERYL_OK : tile_vectors_separate(l, &j.v);
    tile_tiled_product p = {.x = j.v.x,
                            .stored = true,
                            .rounded = j.v.rounded,
                            .k = x->k,
                            .n = x->n,
                            .bound = x->bound,
                            .x_stride = x->stride,
                            .x_offset = x->offset};
    if (j.pair) {
        p.other = all->w[1];
        lower_bytes(l, graph_tensor_at(l->g, p.other)->dim[0].size *
                           base_type_row_bytes(graph_tensor_at(l->g, p.other)->type, p.k));
    }
    for (uint32_t i = 0; status == BERYL_OK && i < (j.pair ? 1 : all->n); i++) {
        p.weight = all->w[i];
        for (uint32_t k = 0; BUILD_HAS_JOINED_ADAPTERS && k < (j.pair ? 2 : 1); k++) {
            p.low[k] = all->low[i + k];
            p.low_w[k] = all->low_w[i + k];
        }
        p.out = j.pair ? all->after.out[0] : all->out[i];
        status = segment(l, &p);
    }
    return status;
}
