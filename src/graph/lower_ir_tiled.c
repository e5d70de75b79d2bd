/* lower_ir_tiled.c - see lower_ir_tiled.h.
 *
 * The one idea: the kernel says y[v, r] = sum over k of x[v, k] * w[r, k], element by element, whatever the weight's type; the
 * schedule brings both factors to workgroup memory, where each weight is unpacked once for a whole tile of vectors, and keeps a
 * block of sums in registers, or in fragments of matrix units. Those want f16: where the plan may be fast, both factors are
 * rounded to it, the vectors before, and with many vectors the weights too, by dispatches of their own: then tiles come by
 * asynchronous copies, and the scratch memory between is small enough to stay in the device's cache. A processor has neither
 * memory nor lanes to share: weights are unpacked to f32 before, and sums are vectors along k. */
#include "graph/lower_ir_tiled.h"

#include "graph/lower_ir_block.h"

enum { FROM = 17, FROM_HALVES = 32, FROM_UNPACKED = 192, DIM_VECTOR = 0, DIM_ROW = 1, DIM_K = 2, DIM_EXPERT = 3, SPREAD = 16 };
enum { SCRATCH_X = 1, SCRATCH_WEIGHT = 2, SCRATCH_MOST = 40 << 20, SCRATCH_MOST_HOST = 4 << 20, UNPACK_LANES = 64, ROWS_UNIT = 128 };

static bool is_host(const lowering *l) {
    return device_is_compiled(l->caps) && !l->caps->loop_max;
}

bool lower_ir_tiled_wants(const lowering *l, uint32_t n, uint32_t k) {
    return n >= FROM && (!lower_ir_serial(l) || (is_host(l) && k % LOWER_IR_RUN == 0));
}

/* One value as f16; there are no infinities. */
static ir_id half(ir_builder *b, ir_id x) {
    return ir_cast(b, IR_F16, ir_max(b, ir_min(b, x, ir_f32(b, 65504)), ir_f32(b, -65504)));
}

/* Scratch [n, k] of f16: the vectors. */
static beryl_status halve_vectors(lowering *l, const graph_node *node, const lower_ir_tiled_product *p, beryl_error *error) {
    lower_ir kernel, *k = &kernel;
    lower_ir_begin(k, l, node, "matmul_halves", 1);
    ir_builder *b = k->b;
    ir_memory x = lower_ir_read(k, "x", p->x), out = lower_ir_scratch(k, "out", SCRATCH_X, (uint64_t)p->bound * p->k * 2, IR_F16, IR_READ_WRITE);
    ir_id n = lower_ir_count(k, "n", p->n), x_offset = lower_ir_u32(k, "x_offset", p->x_offset), x_stride = lower_ir_u32(k, "x_stride", p->x_stride);
    ir_id depth = lower_ir_u32(k, "k", p->k), zero = ir_u32(b, 0), one = ir_u32(b, 1);
    ir_id v = ir_loop_marked(b, zero, n, one, IR_PARALLEL, 0), i = ir_loop_marked(b, zero, depth, one, IR_PARALLEL, 1);
    ir_id value = ir_cast(b, IR_F32, ir_load(b, x, ir_add(b, ir_add(b, ir_mul(b, v, x_stride), x_offset), i), 1));
    ir_store(b, out, ir_add(b, ir_mul(b, v, depth), i), half(b, value));
    ir_end(b), ir_end(b);
    return lower_ir_end_marked(k, (lower_count[IR_DIM_MAX]){p->n, {p->k, 0}}, (uint64_t[IR_DIM_MAX]){p->bound, p->k}, error);
}

/* Scratch [rows, k] of f16 or f32: rows [first, first + rows) of the shard. A lane a chunk; where one lane is all, a group a row. */
static beryl_status unpack_rows(lowering *l, const graph_node *node, const lower_ir_tiled_product *p, ir_type type, uint32_t first, uint32_t rows,
                                uint64_t bytes, beryl_error *error) {
    const uint32_t lanes = is_host(l) ? 1 : UNPACK_LANES;
    lower_ir kernel, *k = &kernel;
    lower_ir_weight w;
    lower_ir_begin(k, l, node, "matmul_unpack", lanes);
    ir_builder *b = k->b;
    if (p->stored) lower_ir_weight_stored(&w, k, "weights", p->weight, p->shard, p->k);
    else lower_ir_weight_plain(&w, k, "weights", p->weight, p->k);
    ir_memory out = lower_ir_scratch(k, "out", SCRATCH_WEIGHT, bytes, type, IR_READ_WRITE);
    ir_id from = lower_ir_u32(k, "first", first), count = lower_ir_u32(k, "rows", rows), blocks = lower_ir_u32(k, "blocks", w.blocks);
    ir_id depth = lower_ir_times(k, blocks, p->k / w.blocks), units = lower_ir_times(k, blocks, w.chunks);
    ir_id lane = lower_ir_lane(k), row = lanes == 1 ? lane : ir_div(b, lane, units), unit = lanes == 1 ? lane : ir_mod(b, lane, units), values[4];
    lower_ir_chunk c;
    ir_if(b, ir_lt(b, row, count));
    if (lanes == 1) unit = ir_loop(b, ir_u32(b, 0), units, ir_u32(b, 1));
    ir_id block = lower_ir_over(k, unit, w.chunks), part = lower_ir_rest(k, unit, w.chunks);
    lower_ir_chunk_load(&w, ir_add(b, row, from), block, part, &c);
    for (uint32_t run = 0; run < w.runs; run++) {
        ir_id at = ir_add(b, ir_mul(b, row, depth), lower_ir_run_at(&w, block, part, run));
        lower_ir_run_load(&w, &c, run, values);
        for (uint32_t i = 0; i < LOWER_IR_RUN / k->wide; i++) ir_store(b, out, lower_ir_plus(k, at, i * k->wide), ir_cast(b, type, values[i]));
    }
    if (lanes == 1) ir_end(b);
    ir_end(b);
    return lower_ir_end(k, (lower_count){lanes == 1 ? rows : (uint64_t)rows * w.blocks * w.chunks, 0}, lanes, error);
}

/* Of an expert's rows those that the shard has: where they begin in it, how many there are; what lies before them is added to
 * `column`. */
static ir_id expert_rows(lower_ir *k, const lower_ir_tiled_product *p, ir_id expert, ir_id *rows, ir_id *column) {
    const store_shard *shard = &lower_stored(k->l, p->weight)->shard[p->shard];
    ir_builder *b = k->b;
    ir_id first = lower_ir_times(k, expert, p->m), begin = lower_ir_u32(k, "begin", shard->row), end = lower_ir_u32(k, "end", shard->row + shard->n_row);
    end = ir_min(b, lower_ir_plus(k, first, p->m), end);
    ir_id from = ir_min(b, ir_max(b, first, begin), end);
    *rows = ir_sub(b, end, from);
    *column = ir_add(b, *column, ir_sub(b, from, first));
    return ir_sub(b, from, begin);
}

/* Rows [first, first + m) of the shard, or of the scratch that holds them (bytes: its size), to rows [to, to + m) of the result;
 * or of each expert all that lie in the shard. */
static beryl_status multiply(lowering *l, const graph_node *node, const lower_ir_tiled_product *p, bool halves, uint64_t unpacked, uint32_t first,
                             uint32_t to, uint32_t m, beryl_error *error) {
    const lower_ir_grouped *by = p->by;
    const uint32_t width = by ? p->m : graph_tensor_at(l->g, p->weight)->dim[0].size, spread = by ? lower_ir_grouped_each(by) : p->bound;
    lower_ir kernel, *k = &kernel;
    lower_ir_weight w = {.k = NULL};
    ir_memory weights = {0}, list = {0}, x;
    lower_ir_begin(k, l, node, by ? "matmul_grouped" : "matmul_tiled", 1);
    ir_builder *b = k->b;
    if (unpacked) weights = lower_ir_scratch(k, "weights", SCRATCH_WEIGHT, unpacked, halves ? IR_F16 : IR_F32, IR_READ);
    else if (p->stored) lower_ir_weight_stored(&w, k, "weights", p->weight, p->shard, p->k);
    else lower_ir_weight_plain(&w, k, "weights", p->weight, p->k);
    if (halves) x = lower_ir_scratch(k, "x", SCRATCH_X, (uint64_t)p->bound * p->k * 2, IR_F16, IR_READ);
    else x = lower_ir_read(k, "x", p->x);
    if (by) list = lower_ir_grouped_list(k, by);
    ir_memory out = {0}, sum = ir_register(b, IR_F32, 1);
    tree_walk end;
    if (p->end) tree_end_declare(&end, k, p->end);
    else out = lower_ir_write(k, "out", p->out);
    ir_id n = by ? IR_NO_ID : lower_ir_count(k, "n", p->n), rows = lower_ir_u32(k, "m", m), start = lower_ir_u32(k, "first", first);
    ir_id x_offset = lower_ir_u32(k, "x_offset", halves ? 0 : p->x_offset), x_stride = lower_ir_u32(k, "x_stride", halves ? p->k : p->x_stride);
    ir_id out_offset = lower_ir_u32(k, "out_offset", to + (p->end ? 0 : graph_tensor_at(l->g, p->out)->offset));
    ir_id out_stride = lower_ir_u32(k, "out_stride", width), depth = lower_ir_u32(k, "k", p->k), zero = ir_u32(b, 0), one = ir_u32(b, 1);
    ir_id pairs = zero;
    if (by) {
        ir_id expert = ir_loop_marked(b, zero, ir_u32(b, by->n_expert), one, IR_PARALLEL, DIM_EXPERT);
        lower_ir_grouped_range(k, list, expert, &pairs, &n);
        if (lower_stored(l, p->weight)->n_shard > 1) start = expert_rows(k, p, expert, &rows, &out_offset);
        else start = lower_ir_times(k, expert, m);
    }
    ir_id v = ir_loop_marked(b, zero, n, one, IR_PARALLEL, DIM_VECTOR), r = ir_loop_marked(b, zero, rows, one, IR_PARALLEL, DIM_ROW);
    ir_set(b, sum, ir_f32(b, 0));
    ir_id i = ir_loop_marked(b, zero, depth, one, IR_REDUCE, DIM_K), vector = v, right;
    if (by) vector = lower_ir_over(k, lower_ir_grouped_pair(k, by, list, pairs, v), by->share);
    ir_id left = ir_cast(b, IR_F32, ir_load(b, x, ir_add(b, ir_add(b, ir_mul(b, vector, x_stride), x_offset), i), 1));
    if (unpacked) right = ir_cast(b, IR_F32, ir_load(b, weights, ir_add(b, ir_mul(b, r, depth), i), 1));
    else right = lower_ir_element_load(&w, ir_add(b, r, start), i);
    if (halves && !unpacked) right = ir_cast(b, IR_F32, ir_cast(b, IR_F16, right));
    ir_set(b, sum, ir_fma(b, left, right, ir_get(b, sum)));
    ir_end(b);
    ir_id result = by ? lower_ir_grouped_pair(k, by, list, pairs, v) : v;
    if (p->end) tree_end_store(&end, result, ir_add(b, r, out_offset), ir_get(b, sum));
    else ir_store(b, out, ir_add(b, ir_add(b, ir_mul(b, result, out_stride), out_offset), r), ir_get(b, sum));
    ir_end(b), ir_end(b);
    if (!by) return lower_ir_end_marked(k, (lower_count[IR_DIM_MAX]){p->n, {m, 0}}, (uint64_t[IR_DIM_MAX]){p->bound, m, p->k}, error);
    ir_end(b);
    /* Experts have more or fewer: tiles for half as many more, groups for many times as many, since groups without any cost little. */
    return lower_ir_end_marked(k, (lower_count[IR_DIM_MAX]){{SPREAD * spread, 0}, {m, 0}, {0, 0}, {by->n_expert, 0}},
                               (uint64_t[IR_DIM_MAX]){(3ull * spread + 1) / 2, m, p->k, by->n_expert}, error);
}

/* A piece after the other, through one scratch. */
static beryl_status multiply_unpacked(lowering *l, const graph_node *node, const lower_ir_tiled_product *p, bool halves, beryl_error *error) {
    const uint64_t row = (uint64_t)p->k * (halves ? 2 : 4);
    uint64_t most = (halves ? SCRATCH_MOST : SCRATCH_MOST_HOST) / row / ROWS_UNIT * ROWS_UNIT;
    beryl_status status = BERYL_OK;
    if (most < ROWS_UNIT) most = ROWS_UNIT;
    if (most > p->m) most = p->m;
    for (uint32_t done = 0; done < p->m && status == BERYL_OK; done += (uint32_t)most) {
        const uint32_t m = p->m - done < most ? p->m - done : (uint32_t)most;
        status = unpack_rows(l, node, p, halves ? IR_F16 : IR_F32, p->first + done, m, most * row, error);
        if (status == BERYL_OK) status = multiply(l, node, p, halves, most * row, 0, p->to + done, m, error);
    }
    return status;
}

beryl_status lower_ir_tiled(lowering *l, const graph_node *node, const lower_ir_tiled_product *p, beryl_error *error) {
    const base_type type = graph_tensor_at(l->g, p->weight)->type;
    const bool halves = ir_has_fragment(l->caps, IR_F16, IR_F32, 16, 8, 16) && !l->settings.exact && type != TYPE_F32 && p->bound >= FROM_HALVES && p->k >= 16;
    beryl_status status = halves ? halve_vectors(l, node, p, error) : BERYL_OK;
    if (status != BERYL_OK) return status;
    const bool packed = base_type_is_quantised(type) || (type == TYPE_BF16 && p->k % LOWER_IR_RUN == 0);
    if (p->by) {
        lower_ir_tiled_product shard = *p;
        for (; status == BERYL_OK && shard.shard < lower_stored(l, p->weight)->n_shard; shard.shard++)
            status = multiply(l, node, &shard, halves, 0, 0, 0, p->m, error);
        return status;
    }
    if (is_host(l) ? type != TYPE_F32 : halves && packed && p->bound >= FROM_UNPACKED)
        return multiply_unpacked(l, node, p, halves, error);
    return multiply(l, node, p, halves, 0, p->first, p->to, p->m, error);
}
