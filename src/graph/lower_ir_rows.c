/* lower_ir_rows.c - generated kernels that look for the largest of rows (top-k, argmax), rows moved by index.
 *
 * A workgroup a row. Its lanes walk the row and join what they have in a tree. */
#include "graph/lower_ir.h"

enum { LANES = 64, PARTS_MAX = 1024, PART_LEAST = 2048 };

/* ---- the largest ------------------------------------------------------------------------------------------------- */

ir_id lower_ir_order(lower_ir *k, ir_id x, uint32_t nan) {
    ir_builder *b = k->b;
    ir_id bits = ir_bitcast(b, IR_U32, 1, x), magnitude = lower_ir_and(k, bits, 0x7fffffffu), middle = ir_u32(b, 0x80000000u);
    ir_id key = ir_select(b, ir_ge(b, bits, middle), ir_sub(b, middle, magnitude), ir_add(b, middle, magnitude));
    return ir_select(b, ir_gt(b, magnitude, ir_u32(b, 0x7f800000u)), ir_u32(b, nan), key);
}

enum { SCRATCH_BEST = 0 };

typedef struct best { ir_memory key, index, joined; } best; /* registers; joined: workgroup array */

static best best_begin(lower_ir *k) {
    best m = {ir_register(k->b, IR_U32, 1), ir_register(k->b, IR_U32, 1), {0}};
    m.joined = k->lanes > 1 ? ir_workgroup(k->b, IR_U32, k->lanes) : m.key;
    return m;
}

static void best_clear(lower_ir *k, best m) {
    ir_set(k->b, m.key, ir_u32(k->b, 0));
    ir_set(k->b, m.index, ir_u32(k->b, UINT32_MAX));
}

/* Takes (key, index) where it is larger, or the first; `index` rises from call to call. */
static void best_take(lower_ir *k, best m, ir_id key, ir_id index) {
    ir_builder *b = k->b;
    ir_id none = ir_eq(b, ir_get(b, m.index), ir_u32(b, UINT32_MAX));
    ir_if(b, ir_or(b, none, ir_gt(b, key, ir_get(b, m.key))));
    ir_set(b, m.key, key);
    ir_set(b, m.index, index);
    ir_end(b);
}

/* Of all lanes; the first of those alike. */
static void best_join(lower_ir *k, best m, ir_id *key, ir_id *index) {
    ir_builder *b = k->b;
    ir_id own = ir_get(b, m.key);
    *key = lower_ir_reduce(k, IR_MAX, own, m.joined);
    *index = lower_ir_reduce(k, IR_MIN, ir_select(b, ir_eq(b, own, *key), ir_get(b, m.index), ir_u32(b, UINT32_MAX)), m.joined);
}

lower_ir_parts lower_ir_parts_of(uint32_t d, uint32_t most, uint32_t least) {
    uint32_t size = (d + most - 1) / most;
    if (size < least) size = least;
    return (lower_ir_parts){size, (d + size - 1) / size};
}

static bool are_whole_rows(const graph_tensor *x) {
    return x->rank == 2 && !x->dim[1].extent && (x->stride[1] == 1 || x->dim[1].size == 1);
}

/* best [n, n_part] of (key, index): of each part of each row. */
beryl_status lower_ir_best(lowering *l, const graph_node *node, lower_ir_parts p, uint32_t key, uint32_t nan, beryl_error *error) {
    const graph_tensor *x = graph_tensor_at(l->g, node->in[0]);
    if (!are_whole_rows(x)) return lower_ir_refuse(node, "rows of varying length, or with gaps", error);
    lower_ir k;
    lower_ir_begin(&k, l, node, "best_of_parts", lower_ir_lanes(l, p.size));
    ir_builder *b = k.b;
    ir_memory from = lower_ir_read(&k, "x", node->in[0]);
    ir_memory out = lower_ir_scratch(&k, "best", key, (uint64_t)x->dim[0].size * p.n * 8, IR_U32, IR_READ_WRITE);
    ir_id n = lower_ir_count(&k, "n", lower_count_of(x->dim[0])), offset = lower_ir_u32(&k, "x_offset", x->offset);
    best m = best_begin(&k);
    ir_id group = lower_ir_group(&k), row = lower_ir_over(&k, group, p.n), part = lower_ir_rest(&k, group, p.n);
    ir_if(b, ir_lt(b, row, n));
    best_clear(&k, m);
    ir_id start = lower_ir_times(&k, part, p.size), end = ir_min(b, lower_ir_plus(&k, start, p.size), ir_u32(b, x->dim[1].size));
    ir_id base = ir_add(b, offset, lower_ir_times(&k, row, x->stride[0]));
    ir_id i = ir_loop(b, k.lanes == 1 ? start : ir_add(b, start, ir_local(b, 0)), end, ir_u32(b, k.lanes));
    best_take(&k, m, lower_ir_order(&k, ir_load(b, from, ir_add(b, base, i), 1), nan), i);
    ir_end(b);
    ir_id top, index;
    best_join(&k, m, &top, &index);
    if (k.lanes > 1) ir_if(b, ir_eq(b, ir_local(b, 0), ir_u32(b, 0)));
    ir_id to = lower_ir_times(&k, group, 2);
    ir_store(b, out, to, top);
    ir_store(b, out, lower_ir_plus(&k, to, 1), index);
    if (k.lanes > 1) ir_end(b);
    ir_end(b);
    return lower_ir_end(&k, lower_count_times(lower_count_of(x->dim[0]), p.n), 1, error);
}

beryl_status lower_ir_argmax(lowering *l, const graph_node *node, beryl_error *error) {
    const graph_tensor *x = graph_tensor_at(l->g, node->in[0]);
    const lower_ir_parts p = lower_ir_parts_of(x->dim[1].size, PARTS_MAX, PART_LEAST);
    beryl_status status = lower_ir_best(l, node, p, SCRATCH_BEST, 0, error);
    if (status != BERYL_OK) return status;
    lower_ir k;
    lower_ir_begin(&k, l, node, "best_of_row", lower_ir_lanes(l, p.n));
    ir_builder *b = k.b;
    ir_memory from = lower_ir_scratch(&k, "best", SCRATCH_BEST, 0, IR_U32, IR_READ), out = lower_ir_write(&k, "out", node->out[0]);
    ir_id n = lower_ir_count(&k, "n", lower_count_of(x->dim[0]));
    best m = best_begin(&k);
    ir_id row = lower_ir_group(&k);
    ir_if(b, ir_lt(b, row, n));
    best_clear(&k, m);
    ir_id i = ir_loop(b, k.lanes == 1 ? ir_u32(b, 0) : ir_local(b, 0), ir_u32(b, p.n), ir_u32(b, k.lanes));
    ir_id at = lower_ir_times(&k, ir_add(b, lower_ir_times(&k, row, p.n), i), 2);
    best_take(&k, m, ir_load(b, from, at, 1), ir_load(b, from, lower_ir_plus(&k, at, 1), 1));
    ir_end(b);
    ir_id top, index;
    best_join(&k, m, &top, &index);
    if (k.lanes > 1) ir_if(b, ir_eq(b, ir_local(b, 0), ir_u32(b, 0)));
    ir_store(b, out, row, ir_cast(b, IR_I32, index));
    if (k.lanes > 1) ir_end(b);
    ir_end(b);
    return lower_ir_end(&k, lower_count_of(x->dim[0]), 1, error);
}

/* k turns: each takes the largest that comes after the one before. NaN counts as minus infinity. */
beryl_status lower_ir_topk(lowering *l, const graph_node *node, beryl_error *error) {
    const graph_tensor *x = graph_tensor_at(l->g, node->in[0]);
    const uint32_t d = x->dim[1].size, n_best = node->attr.topk.k;
    if (!are_whole_rows(x)) return lower_ir_refuse(node, "rows of varying length, or with gaps", error);
    lower_ir k;
    lower_ir_begin(&k, l, node, "topk", lower_ir_lanes(l, d * n_best));
    if (l->caps->loop_max && (uint64_t)(d / k.lanes + 1) * n_best > l->caps->loop_max / 2) {
        base_arena_fini(&k.arena);
        return lower_ir_refuse(node, "rows this long", error);
    }
    ir_builder *b = k.b;
    ir_memory from = lower_ir_read(&k, "x", node->in[0]), values = lower_ir_write(&k, "values", node->out[0]);
    ir_memory indices = lower_ir_write(&k, "indices", node->out[1]);
    ir_id n = lower_ir_count(&k, "n", lower_count_of(x->dim[0])), offset = lower_ir_u32(&k, "x_offset", x->offset);
    best m = best_begin(&k);
    ir_memory last_key = ir_register(b, IR_U32, 1), last = ir_register(b, IR_U32, 1);
    ir_id row = lower_ir_group(&k);
    ir_if(b, ir_lt(b, row, n));
    ir_id base = ir_add(b, offset, lower_ir_times(&k, row, x->stride[0]));
    ir_set(b, last_key, ir_u32(b, UINT32_MAX));
    ir_set(b, last, ir_u32(b, 0));
    ir_id turn = ir_loop(b, ir_u32(b, 0), ir_u32(b, n_best), ir_u32(b, 1));
    best_clear(&k, m);
    ir_id i = ir_loop(b, k.lanes == 1 ? ir_u32(b, 0) : ir_local(b, 0), ir_u32(b, d), ir_u32(b, k.lanes));
    ir_id key = lower_ir_order(&k, ir_load(b, from, ir_add(b, base, i), 1), LOWER_IR_LOWEST), before = ir_get(b, last_key);
    ir_if(b, ir_or(b, ir_lt(b, key, before), ir_and(b, ir_eq(b, key, before), ir_gt(b, i, ir_get(b, last)))));
    best_take(&k, m, key, i);
    ir_end(b);
    ir_end(b);
    ir_id top, index;
    best_join(&k, m, &top, &index);
    ir_set(b, last_key, top);
    ir_set(b, last, index);
    if (k.lanes > 1) ir_if(b, ir_eq(b, ir_local(b, 0), ir_u32(b, 0)));
    ir_id to = ir_add(b, lower_ir_times(&k, row, n_best), turn), value = ir_load(b, from, ir_add(b, base, index), 1);
    ir_store(b, values, to, ir_select(b, ir_eq(b, top, ir_u32(b, LOWER_IR_LOWEST)), ir_bits(b, IR_F32, 1, 0xff800000u), value));
    ir_store(b, indices, to, ir_cast(b, IR_I32, index));
    if (k.lanes > 1) ir_end(b);
    ir_end(b);
    ir_end(b);
    return lower_ir_end(&k, lower_count_of(x->dim[0]), 1, error);
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
