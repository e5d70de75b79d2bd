/* products.c - see tile/products.h; what a matrix of tile/product.h is. */
#include "tile/products.h"
#include "base/build.h"
#include "tile/block.h"
#include "tile/product.h"

bool tile_matrix_of(const lowering *l, graph_value v, tile_matrix *w) {
    const graph_tensor *t = graph_tensor_at(l->g, v);
    if (t->rank != 2 || t->dim[1].extent || t->dim[0].extent || t->stride[1] != 1 ||
        t->stride[0] != t->dim[1].size)
        return false;
    *w = (tile_matrix){.value = v,
                       .type = t->type,
                       .stored = lower_weight(l, v),
                       .m = t->dim[0].size,
                       .k = t->dim[1].size};
    if (!w->stored) return !base_type_is_quantised(t->type) && tile_weight_known(t->type);
    w->first = t->offset / w->k;
    return t->offset % w->k == 0 && tile_weight_known(t->type);
}

/* Does an operation after the products read what those before them make? Workgroups that make the
 * vectors for themselves do not wait for the one that stores it. */
static bool reads(const graph *g, const graph_region *after, const graph_region *before) {
    for (uint32_t i = 0; i < after->n; i++)
        for (uint32_t k = 0; after->node[i]->op != OP_LINEAR && k < after->node[i]->n_in; k++)
            if (graph_region_before(g, before, after->node[i]->in[k]).n) return true;
    return false;
}

static const graph_node *maker_in(const graph *g, const graph_region *r, graph_value v) {
    for (uint32_t i = 0; i < r->n; i++)
        for (uint32_t o = 0; o < r->node[i]->n_out; o++)
            if (r->node[i]->out[o] == graph_base_of(g, v)) return r->node[i];
    return NULL;
}

static bool is_among(const graph_region *r, const graph_node *node) {
    for (uint32_t i = 0; i < r->n; i++)
        if (r->node[i] == node) return true;
    return false;
}

/* Is it a result, of a product with x and of another shape than that of another such product? */
static bool is_beside(const graph *g, const graph_region *r, const graph_node *mul, graph_value x) {
    const graph_node *product = maker_in(g, r, mul->in[0]);
    bool is_out = false, other = false;
    for (uint32_t o = 0; o < r->n_out; o++) is_out |= r->out[o] == mul->out[0];
    if (!is_out || !product || product->op != OP_LINEAR || product->in[0] != x) return false;
    for (uint32_t i = 0; i < r->n; i++)
        other |= r->node[i]->op == OP_LINEAR && r->node[i]->in[0] == x &&
                 !graph_same_shape(graph_tensor_at(g, r->node[i]->out[0]),
                                   graph_tensor_at(g, mul->out[0]));
    return other;
}

/* A product of the same vectors with a few rows, times factors: what products of low rank take, or
 * a result beside theirs. side: its two nodes, else empty. false: by other operations. */
static bool find_side(const graph *g, const graph_region *r, graph_products *out,
                      graph_region *side) {
    *side = (graph_region){.n = 0};
    for (uint32_t i = 0; BUILD_HAS_ADAPTERS && i < r->n; i++) {
        const graph_node *node = r->node[i], *mul = NULL;
        if (node->op == OP_LINEAR && node->n_in > 2) mul = maker_in(g, r, node->in[2]);
        if (node->op == OP_MUL && is_beside(g, r, node, out->x)) mul = node;
        const graph_node *product = mul ? maker_in(g, r, mul->in[0]) : NULL;
        if (!mul || mul == (side->n ? side->node[1] : NULL)) continue;
        if (side->n || mul->op != OP_MUL || !product || product->op != OP_LINEAR ||
            product->n_in != 2 || product->out[0] != mul->in[0] || product->in[0] != out->x ||
            maker_in(g, r, mul->in[1]))
            return false;
        *side = (graph_region){.n = 2, .node = {product, mul}};
        out->side = mul->out[0];
        out->side_w = product->in[1];
        out->factors = mul->in[1];
        for (uint32_t o = 0; o < r->n_out; o++)
            if (r->out[o] == out->side) side->out[side->n_out++] = out->side;
        out->side_stored = side->n_out;
    }
    return true;
}

bool graph_products_of(const graph *g, const graph_region *r, graph_products *out) {
    graph_region side;
    *out = (graph_products){.n = 0};
    for (uint32_t i = 0; i < r->n; i++) /* those before them are of low rank */
        if (r->node[i]->op == OP_LINEAR) out->x = r->node[i]->in[0];
    out->before = graph_region_before(g, r, out->x);
    if (!find_side(g, r, out, &side)) return false;
    for (uint32_t i = 0; i < r->n; i++) {
        const graph_node *node = r->node[i];
        if (node->op != OP_LINEAR || (BUILD_HAS_ADAPTERS && is_among(&side, node))) continue;
        if (BUILD_HAS_ADAPTERS && is_among(&out->before, node)) {
            out->has_low = true;
            continue;
        }
        if (out->n == FUSED_SEGMENT_MAX || node->in[0] != out->x) return false;
        out->w[out->n] = node->in[1];
        if (BUILD_HAS_ADAPTERS && node->n_in > 2) {
            if (out->side != graph_base_of(g, node->in[2]) && maker_in(g, r, node->in[2]))
                return false;
            out->low[out->n] = node->in[2];
            out->low_w[out->n] = node->in[3];
            out->has_low = true;
        }
        out->out[out->n++] = node->out[0];
    }
    if (!out->n) return false;
    out->has_low |= BUILD_HAS_ADAPTERS && out->side;
    out->after = graph_region_without(r, &out->before);
    if (BUILD_HAS_ADAPTERS) out->after = graph_region_without(&out->after, &side);
    out->ends = out->after.n > out->n;
    if (reads(g, &out->after, &out->before)) return false;
    return !out->ends || (tree_read(&out->end, g, &out->after, 0) && tree_is_end(&out->end));
}
