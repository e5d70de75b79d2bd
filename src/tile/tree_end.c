/* tree_end.c - trees that end a product: each element as it is made. */
#include "tile/tree.h"

bool tree_is_end(const tree *t) {
    if (tree_has_rows(t) || t->n_sum || t->n_count || t->n_random || !t->n_product) return false;
    for (uint32_t i = 0; i < t->n_product; i++)
        if (t->values[i].first == UINT8_MAX ||
            !graph_same_shape(t->shape, graph_tensor_at(t->g, t->values[i].id)))
            return false;
    return true;
}

bool tree_is_expensive(const tree *t) {
    for (uint32_t i = 0; i < t->n_value; i++)
        if (t->values[i].kind == TREE_NODE && graph_op_is_expensive(t->values[i].op)) return true;
    return false;
}

static void end_declare(tree_walk *c, tile_kernel *k, const tree *t, bool words) {
    *c = (tree_walk){.k = k, .t = *t, .second = true, .words = words};
    tree_walk_rows(c);
    tree_declare(c);
}

void tree_end_declare(tree_walk *c, tile_kernel *k, const tree *t) {
    end_declare(c, k, t, false);
}

void tree_end_declare_words(tree_walk *c, tile_kernel *k, const tree *t) {
    end_declare(c, k, t, true);
}

static void end_at(tree_walk *c, tree_spot *s, ir_id vector, ir_id column,
                   const ir_id x[TREE_PRODUCTS]) {
    tree_place(c, vector, 1, false, c->row);
    tree_spot_at(c, s, 1, column);
    for (uint32_t i = 0; i < c->t.n_product; i++) s->made[i] = x[i];
}

void tree_end_store(tree_walk *c, ir_id vector, ir_id column, const ir_id x[TREE_PRODUCTS]) {
    tree_spot s;
    end_at(c, &s, vector, column, x);
    tree_store(c, &s, 0);
}

ir_id tree_end_value(tree_walk *c, ir_id vector, ir_id column, const ir_id x[TREE_PRODUCTS]) {
    tree_spot s;
    end_at(c, &s, vector, column, x);
    return tree_value_at(c, &s, c->t.out[0]);
}
