/* tree_store.c - a tree and memory: elements of its inputs, results where a walk is, numbers of
 * whole rows once it is over. */
#include "base/build.h"
#include "tile/tree.h"

enum { APART_MAX = 4 /* elements of a vector that is read so */ };

ir_id tree_load(tree_walk *c, uint32_t t, ir_id at, uint32_t wide) {
    ir_id each[APART_MAX];
    if (BUILD_IS_SMALL || !c->apart || wide == 1) return ir_load(c->k->b, c->memory[t], at, wide);
    for (uint32_t i = 0; i < wide; i++)
        each[i] = ir_load(c->k->b, c->memory[t], tile_add(c->k->b, at, i * c->step[t]), 1);
    return ir_compose(c->k->b, each, wide);
}

/* As memory has it. */
static ir_id element_of(ir_builder *b, const graph_tensor *t, ir_id x) {
    const ir_type to = tile_element(t->type);
    if (BUILD_HAS_C_TEXTS && t->narrow) return tile_half(b, x);
    const ir_id before = tile_before(b, to, x);
    return before == IR_NO_ID ? ir_cast(b, to, x) : before;
}

static void store(tree_walk *c, tree_spot *s, uint32_t out) {
    ir_store(c->k->b, c->memory[out], s->at[out],
             element_of(c->k->b, &c->t.seen[out], tree_value_at(c, s, c->t.out[out])));
}

bool tree_stores_at(const tree *t, uint32_t out, uint32_t level) {
    const tree_value *v = &t->values[t->out[out]];
    return v->level == level && !v->row;
}

void tree_store(tree_walk *c, tree_spot *s, uint32_t level) {
    /* what is stored may be where another result is read from */
    for (uint32_t i = 0; BUILD_HAS_TRAINING && c->shared && i < c->t.n_out; i++)
        tree_value_at(c, s, c->t.out[i]);
    for (uint32_t i = 0; i < c->t.n_out; i++)
        if (tree_stores_at(&c->t, i, level)) store(c, s, i);
}

bool tree_has_numbers(const tree *t) {
    bool has = false;
    for (uint32_t i = 0; t->has_inner && i < t->n_out; i++) has |= t->values[t->out[i]].row;
    return has;
}

void tree_store_numbers(tree_walk *c, tree_spot *s) {
    for (uint32_t i = 0; i < c->t.n_out; i++)
        if (c->t.values[c->t.out[i]].row) store(c, s, i);
}
