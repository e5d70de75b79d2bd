/* lower_ir_pointwise.c - generated kernels of pointwise operations, copies, and rows moved by index.
 *
 * The one idea: an element has one place in the walk over the joined dimensions (lower_walk.h); a lane does the widest vector
 * that all tensors take there. */
#include "graph/lower_ir.h"
#include "graph/lower_walk.h"

enum { LANES = 64, TENSORS = 3 };

/* ---- pointwise ----------------------------------------------------------------------------------------------- */

static ir_id value_of(lower_ir *k, ir_id x, ir_id y) {
    ir_builder *b = k->b;
    const ir_instruction *i = ir_at(b, x);
    const uint32_t width = i ? i->width : 1;
    const graph_attrs *attr = &k->node->attr;
    switch ((int)k->node->op) {
    case OP_ADD: return ir_add(b, x, y);
    case OP_MUL: return ir_mul(b, x, y);
    case OP_SCALE: return ir_mul(b, x, ir_number(b, IR_F32, width, (double)attr->scale.factor));
    case OP_GELU_TANH: return lower_ir_gelu(k, x);
    case OP_GEGLU: return ir_mul(b, lower_ir_gelu(k, x), y);
    case OP_SOFTCAP: {
        ir_id cap = ir_number(b, IR_F32, width, (double)attr->softcap.cap);
        return ir_mul(b, cap, ir_tanh(b, ir_div(b, x, cap)));
    }
    default: return x; /* copy */
    }
}

/* The widest vector that every tensor takes along the innermost dimension: there it is dense or broadcast. */
static uint32_t vector_of(const lower_ir *k, const lower_walk *w, const uint32_t *offsets) {
    const uint32_t last = w->n - 1;
    for (uint32_t wide = k->wide; wide > 1; wide /= 2) {
        bool fits = w->size[last].factor % wide == 0;
        for (uint32_t t = 0; fits && t < w->n_tensor; t++) {
            if (w->stride[t][last] == 0) continue;
            fits = w->stride[t][last] == 1 && offsets[t] % wide == 0;
            for (uint32_t i = 0; i < last; i++) fits = fits && w->stride[t][i] % wide == 0;
        }
        if (fits) return wide;
    }
    return 1;
}

beryl_status lower_ir_pointwise(lowering *l, const graph_node *node, beryl_error *error) {
    const bool two = node->n_in > 1;
    const graph_tensor *ta = graph_tensor_at(l->g, node->in[0]), *tb = graph_tensor_at(l->g, node->in[two]);
    const graph_tensor *out = graph_tensor_at(l->g, node->out[0]);
    lower_walk w = lower_walk_of((const graph_tensor *const[]){ta, out, tb}, two ? 3 : 2, 0);
    const uint32_t offsets[TENSORS] = {ta->offset, out->offset, tb->offset};
    if (w.n == 0) lower_walk_pad(&w, 1);
    lower_ir k;
    lower_ir_begin(&k, l, node, graph_op_name(node->op), LANES);
    const uint32_t wide = vector_of(&k, &w, offsets);
    ir_builder *b = k.b;
    static const char *const sizes[GRAPH_RANK_MAX] = {"d0", "d1", "d2", "d3", "d4", "d5", "d6", "d7"};
    ir_id size[GRAPH_RANK_MAX], at[TENSORS];
    w.size[w.n - 1].factor /= wide;
    ir_memory x = lower_ir_read(&k, "a", node->in[0]), y = two ? lower_ir_read(&k, "b", node->in[1]) : x;
    ir_memory z = lower_ir_write(&k, "out", node->out[0]);
    for (uint32_t i = 0; i < w.n; i++) size[i] = lower_ir_count(&k, sizes[i], w.size[i]);
    at[0] = lower_ir_u32(&k, "a_offset", offsets[0]);
    at[1] = lower_ir_u32(&k, "out_offset", offsets[1]);
    at[2] = two ? lower_ir_u32(&k, "b_offset", offsets[2]) : IR_NO_ID;
    ir_id left = lower_ir_lane(&k);
    for (uint32_t i = w.n; i-- > 0;) {
        ir_id place = i ? (w.size[i].extent ? ir_mod(b, left, size[i]) : lower_ir_rest(&k, left, (uint32_t)w.size[i].factor)) : left;
        if (i) left = w.size[i].extent ? ir_div(b, left, size[i]) : lower_ir_over(&k, left, (uint32_t)w.size[i].factor);
        const uint32_t each = i + 1 == w.n ? wide : 1;
        for (uint32_t t = 0; t < w.n_tensor; t++)
            if (w.stride[t][i]) at[t] = ir_add(b, at[t], lower_ir_times(&k, place, w.stride[t][i] * each));
    }
    ir_if(b, ir_lt(b, left, size[0]));
    ir_id in[2];
    for (uint32_t t = 0; t < w.n_tensor; t += 2) {
        const bool splat = w.stride[t][w.n - 1] == 0;
        in[t / 2] = ir_splat(b, ir_load(b, t ? y : x, at[t], splat ? 1 : wide), wide);
    }
    ir_store(b, z, at[1], value_of(&k, in[0], two ? in[1] : IR_NO_ID));
    ir_end(b);
    return lower_ir_end(&k, lower_walk_count(l, &w), LANES, error);
}

/* ---- rows by index ------------------------------------------------------------------------------------------- */

/* state[index[i]] = x[i]; a lane an element. */
beryl_status lower_ir_set_rows(lowering *l, const graph_node *node, beryl_error *error) {
    const graph_tensor *state = graph_tensor_at(l->g, node->in[0]), *x = graph_tensor_at(l->g, node->in[1]);
    const uint32_t d = x->rank == 2 ? x->dim[1].size : 1;
    if (x->rank == 2 && (x->stride[1] != 1 || x->dim[1].extent)) return lower_ir_refuse(node, "rows with gaps between their elements", error);
    lower_ir k;
    lower_ir_begin(&k, l, node, "set_rows", LANES);
    ir_builder *b = k.b;
    ir_memory from = lower_ir_bind(&k, "x", node->in[1], IR_U32, IR_READ), index = lower_ir_read(&k, "index", node->in[2]);
    ir_memory to = lower_ir_bind(&k, "state", node->in[0], IR_U32, IR_READ_WRITE);
    ir_id n = lower_ir_count(&k, "n", lower_count_of(x->dim[0]));
    ir_id x_offset = lower_ir_u32(&k, "x_offset", x->offset);
    ir_id index_offset = lower_ir_u32(&k, "index_offset", graph_tensor_at(l->g, node->in[2])->offset);
    ir_id lane = lower_ir_lane(&k), row = lower_ir_over(&k, lane, d), column = lower_ir_rest(&k, lane, d);
    ir_if(b, ir_lt(b, row, n));
    ir_id place = ir_cast(b, IR_U32, ir_load(b, index, ir_add(b, index_offset, row), 1)); /* below 0: very large */
    ir_if(b, ir_lt(b, place, ir_u32(b, state->dim[0].size)));
    ir_id at = ir_add(b, ir_add(b, x_offset, lower_ir_times(&k, row, x->stride[0])), column);
    ir_store(b, to, ir_add(b, lower_ir_times(&k, place, d), column), ir_load(b, from, at, 1));
    ir_end(b);
    ir_end(b);
    return lower_ir_end(&k, lower_count_times(lower_count_of(x->dim[0]), d), LANES, error);
}
