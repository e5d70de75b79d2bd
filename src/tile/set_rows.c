/* set_rows.c - rows into a state by index, and a whole state. */
#include "base/error.h"
#include "tile/kernel.h"

enum { MOVED_LANES = 64 };

/* state[index[i]] = x[i]; a lane an element. */
beryl_status tile_set_rows(lowering *l, const graph_node *node) {
    const graph_tensor *state = graph_tensor_at(l->g, node->in[0]),
                       *x = graph_tensor_at(l->g, node->in[1]);
    const uint32_t d = x->rank == 2 ? x->dim[1].size : 1;
    if (x->rank == 2 && (x->stride[1] != 1 || x->dim[1].extent))
        return lower_refuse(l, node, "rows with gaps between their elements");
    tile_kernel k;
    ir_builder *b = tile_begin(&k, l, "set_rows", MOVED_LANES);
    ir_memory from = tile_bind(&k, "x", node->in[1], IR_U32, IR_READ),
              index = tile_read(&k, "index", node->in[2]);
    ir_memory to = tile_bind(&k, "state", node->in[0], IR_U32, IR_READ_WRITE);
    ir_id n = tile_count(&k, "n", lower_count_of(x->dim[0]));
    ir_id x_offset = tile_u32(&k, "x_offset", x->offset);
    ir_id index_offset = tile_u32(&k, "index_offset", graph_tensor_at(l->g, node->in[2])->offset);
    ir_id lane = tile_lane(&k), row = tile_div(b, lane, d), column = tile_rem(b, lane, d);
    ir_if(b, ir_lt(b, row, n));
    /* below 0: very large */
    ir_id place = ir_cast(b, IR_U32, ir_load(b, index, ir_add(b, index_offset, row), 1));
    ir_if(b, ir_lt(b, place, ir_u32(b, state->dim[0].size)));
    ir_id at = ir_add(b, ir_add(b, x_offset, tile_mul(b, row, x->stride[0])), column);
    ir_store(b, to, ir_add(b, tile_mul(b, place, d), column), ir_load(b, from, at, 1));
    ir_end(b);
    ir_end(b);
    return tile_end(&k, lower_count_times(lower_count_of(x->dim[0]), d), MOVED_LANES);
}

/* A copy whose result is the state. */
beryl_status tile_assign(lowering *l, const graph_node *node) {
    const graph_node copy = {
        .op = OP_COPY, .n_in = 1, .n_out = 1, .in = {node->in[1]}, .out = {node->out[0]}};
    const graph_region r = {.node = {&copy}, .n = 1, .out = {node->out[0]}, .n_out = 1};
    return tile_region(l, &r, graph_op_name(OP_COPY));
}
