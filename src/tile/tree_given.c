/* tree_given.c - see tile/tree_given.h. */
#include "tile/tree_given.h"
#include "base/build.h"
#include "tile/maps.h"
#include "tile/pointwise.h"

static bool is_sums(const graph_node *node) {
    return BUILD_HAS_GRAPHS && node->op == OP_CONTRACT;
}

bool tree_is_product(const graph_node *node) {
    return node->op == OP_LINEAR || node->op == OP_LINEAR_ID || is_sums(node);
}

bool tree_makes(const graph *g, const graph_node *node, graph_value v) {
    for (uint32_t i = 0; i < node->n_out; i++)
        if (node->out[i] == v || (is_sums(node) && v && node->out[i] == graph_base_of(g, v)))
            return true;
    return false;
}

/* What others read of the product. */
static graph_value seen_of(const graph *g, const graph_region *r, const graph_node *product) {
    for (uint32_t i = 0; i < r->n; i++)
        for (uint32_t k = 0; k < r->node[i]->n_in; k++)
            if (tree_makes(g, product, r->node[i]->in[k])) return r->node[i]->in[k];
    return product->out[0];
}

/* Linear ones hand on what they add up in. */
static ir_type type_of(const tree *t, const graph_node *product) {
    return is_sums(product) ? tile_number_type(graph_tensor_at(t->g, product->out[0])->type)
                            : IR_F32;
}

void tree_add_given(tree *t, const graph_region *r) {
    for (uint32_t i = 0; i < t->n_product; i++)
        tree_add_value(t, (tree_value){.kind = TREE_GIVEN,
                                       .type = type_of(t, t->product[i]),
                                       .id = seen_of(t->g, r, t->product[i])});
}
