/* tree_low.c - see tile/tree_low.h. */
#include "tile/tree_low.h"
#include "tile/maps.h"

uint8_t tree_low_read(tree *t, const graph_node *node) {
    graph_tensor w = *graph_tensor_at(t->g, node->in[1]), x = *graph_tensor_at(t->g, node->in[0]);
    const graph_tensor *out = graph_tensor_at(t->g, node->out[0]);
    const uint32_t n = w.rank == 2 ? w.dim[1].size : 0;
    const bool fits = node->n_in == 2 && n && n <= TREE_LOW_MAX && n % 16 == 0 &&
                      w.role == ROLE_STORED && !base_type_is_quantised(w.type) &&
                      w.offset % 4 == 0 && graph_is_contiguous(&w) && x.type == TYPE_F32 &&
                      x.rank == 2 && out->rank == 2 && x.stride[1] == 1 && x.stride[0] % 4 == 0 &&
                      x.offset % 4 == 0;
    t->unfit |= !fits || tree_low(t) < TREE_VALUES;
    w.rank = x.rank = 2;
    for (uint32_t i = 0; i < 2; i++) { /* each is seen at the beginning of its row */
        w.dim[i] = x.dim[i] = out->dim[i];
        w.stride[i] = 0;
    }
    x.stride[1] = 0;
    const uint8_t matrix = tree_add_tensor(t, node->in[1], w, 0),
                  row = tree_add_tensor(t, node->in[0], x, 0);
    return tree_add_value(
        t, (tree_value){.kind = TREE_LOW, .type = IR_F32, .low = (uint8_t)n, .in = {matrix, row}});
}

uint32_t tree_low(const tree *t) {
    for (uint32_t i = 0; i < t->n_value; i++)
        if (t->values[i].kind == TREE_LOW) return i;
    return TREE_VALUES;
}

/* Of each column of the spot, loads of all of them before their use. */
ir_id tree_low_value(tree_walk *c, const tree_spot *s, const tree_value *v) {
    ir_builder *b = c->k->b;
    const uint32_t matrix = v->in[0], row = v->in[1];
    ir_id at = ir_add(b, s->at[matrix], tile_mul(b, s->column, v->low)), x[TREE_LOW_MAX / 4], y[4];
    for (uint32_t i = 0; i < v->low; i += 4)
        x[i / 4] = ir_load(b, c->memory[row], tile_add(b, s->at[row], i), 4);
    for (uint32_t k = 0; k < s->wide; k++) {
        ir_id sum = IR_NO_ID;
        for (uint32_t i = 0; i < v->low; i += 4) {
            ir_id a = ir_load(b, c->memory[matrix], tile_add(b, at, k * v->low + i), 4);
            a = ir_cast(b, IR_F32, a);
            sum = i ? ir_fma(b, a, x[i / 4], sum) : ir_mul(b, a, x[0]);
        }
        y[k] = tile_sum_vector(b, sum);
    }
    return s->wide == 1 ? y[0] : ir_compose(b, y, s->wide);
}
