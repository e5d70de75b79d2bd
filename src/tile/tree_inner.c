/* tree_inner.c - see tile/tree_inner.h. */
#include "tile/tree_inner.h"
#include "base/build.h"
#include "tile/maps.h"
#include "tile/pointwise.h"

static bool is_read(const graph_region *r, graph_value v) {
    for (uint32_t i = 0; i < r->n; i++)
        for (uint32_t k = 0; k < r->node[i]->n_in; k++)
            if (r->node[i]->in[k] == v) return true;
    return false;
}

const graph_node *tree_ending(const graph *g, const graph_region *r, const graph_node *reduction) {
    const graph_node *ending = NULL;
    if (BUILD_IS_SMALL || graph_tensor_at(g, reduction->out[0])->type != TYPE_F32) return NULL;
    for (uint32_t i = 0; i < r->n; i++) {
        const graph_node *node = r->node[i];
        const base_type to = graph_tensor_at(g, node->out[0])->type;
        for (uint32_t k = 0; k < node->n_in; k++) {
            if (node->in[k] != reduction->out[0]) continue;
            if (ending || node->op != OP_CAST || (to != TYPE_F16 && to != TYPE_BF16)) return NULL;
            ending = node;
        }
    }
    return ending && r->n_out == 1 && r->out[0] == ending->out[0] ? ending : NULL;
}

static bool lies_last(const tree *t, uint32_t axes) {
    const uint32_t rank = graph_tensor_at(t->g, t->like)->rank;
    return axes && axes + (axes & (0 - axes)) == 1u << rank;
}

void tree_inner_find(tree *t, const graph_region *r) {
    uint32_t n = 0, axes = 0;
    bool inside = r->n_out > 1;
    for (uint32_t i = 0; !BUILD_IS_SMALL && i < r->n; i++) {
        if (!graph_op_reduces(r->node[i]->op)) continue;
        if (!n++) t->like = r->node[i]->in[0], axes = r->node[i]->attr.sum.axes;
        inside |= n > 1 || (is_read(r, r->node[i]->out[0]) && !tree_ending(t->g, r, r->node[i]));
    }
    t->has_inner = n && inside && lies_last(t, axes);
}

bool tree_inner_is_number(const tree *t, const graph_tensor *x) {
    const graph_tensor *like = graph_tensor_at(t->g, t->like);
    const uint32_t first = like->rank - (t->axes.n_row ? t->axes.n_row : 1);
    bool is = x->rank == like->rank;
    for (uint32_t i = 0; is && i < like->rank; i++)
        is = i < first
                 ? x->dim[i].size == like->dim[i].size && x->dim[i].extent == like->dim[i].extent
                 : x->dim[i].size == 1 && !x->dim[i].extent;
    return is;
}

static bool is_stat(base_op op) {
    return op == OP_SUM || op == OP_MEAN || op == OP_AMAX || op == OP_AMIN;
}

bool tree_inner_fits(const tree *t, const graph_region *r) {
    const graph_tensor *like = graph_tensor_at(t->g, t->like);
    const uint32_t rank = like->rank, n_row = t->axes.n_row ? t->axes.n_row : 1;
    if (!rank || t->choice || t->has_root || t->n_product || t->axes.groups || n_row > rank ||
        (t->axes.last && t->axes.last != ((1u << n_row) - 1) << (rank - n_row)))
        return false;
    for (uint32_t i = 0; i < r->n; i++) {
        const graph_node *node = r->node[i];
        const graph_tensor *out = graph_tensor_at(t->g, node->out[0]);
        if (graph_op_reduces(node->op)) {
            const graph_tensor *x = graph_tensor_at(t->g, node->in[0]);
            if (!is_stat(node->op) || !graph_same_shape(x, like) ||
                tile_number_type(x->type) != t->real || out->type != x->type)
                return false;
            continue;
        }
        const bool rows = graph_op_is_over_rows(node->op) || graph_op_is_mapped(node->op);
        if (!graph_same_shape(out, like) &&
            (!graph_op_is_pointwise(node->op) || !tree_inner_is_number(t, out)))
            return false;
        if (graph_op_is_from_memory(node->op) || (!rows && !graph_op_is_pointwise(node->op)))
            return false;
    }
    return true;
}

uint8_t tree_inner_read(tree *t, const graph_node *node, uint8_t x) {
    const tree_stat_kind kind = node->op == OP_SUM    ? TREE_SUM
                                : node->op == OP_MEAN ? TREE_MEAN
                                : node->op == OP_AMAX ? TREE_AMAX
                                                      : TREE_AMIN;
    const uint8_t s = tree_add_stat(t, kind, x, 0);
    if (node->op == OP_MEAN) t->stats[s].correction = node->attr.mean.correction;
    return tree_add_value(
        t,
        (tree_value){.kind = TREE_STAT, .stat = s, .row = true, .level = t->stats[s].level + 1u});
}

ir_id tree_variance(tree_walk *c, const tree_stat *s, ir_id squares) {
    if (!s->less) return squares;
    const ir_id mean = c->t.stats[s->less - 1].result;
    return ir_max(c->k->b, ir_sub(c->k->b, squares, ir_mul(c->k->b, mean, mean)),
                  ir_number(c->k->b, c->t.real, 1, 0));
}
