/* lower_ir_tiled.c - see lower_ir_tiled.h.
 *
 * The one idea: the kernel says y[v, r] = sum over k of x[v, k] * w[r, k], element by element, whatever the weight's type; the
 * schedule brings both factors to workgroup memory, where each weight is unpacked once for a whole tile of vectors, and keeps a
 * block of sums in registers, or in fragments of matrix units. Those want f16: where the plan may be fast, both factors are
 * rounded to it. */
#include "graph/lower_ir_tiled.h"

#include "graph/lower_ir_block.h"

enum { FROM = 17, DIM_VECTOR = 0, DIM_ROW = 1, DIM_K = 2 };

bool lower_ir_tiled_wants(const lowering *l, uint32_t n) {
    return n >= FROM && !lower_ir_serial(l);
}

/* On matrix units: where there are some, and where rounding to f16 is allowed or changes nothing. */
static bool takes_halves(const lowering *l, const lower_ir_tiled_product *p) {
    return l->caps->fragments && !l->settings.exact && graph_tensor_at(l->g, p->weight)->type != TYPE_F32 && p->bound >= 32;
}

static ir_id half(ir_builder *b, ir_id x) {
    x = ir_max(b, ir_min(b, x, ir_f32(b, 65504)), ir_f32(b, -65504)); /* no infinities */
    return ir_cast(b, IR_F32, ir_cast(b, IR_F16, x));
}

beryl_status lower_ir_tiled(lowering *l, const graph_node *node, const lower_ir_tiled_product *p, beryl_error *error) {
    const uint32_t width = graph_tensor_at(l->g, node->in[1])->dim[0].size;
    lower_ir kernel, *k = &kernel;
    lower_ir_weight w;
    lower_ir_begin(k, l, node, "matmul_tiled", 1);
    ir_builder *b = k->b;
    if (p->stored) lower_ir_weight_stored(&w, k, "weights", p->weight, p->shard, p->k);
    else lower_ir_weight_plain(&w, k, "weights", p->weight, p->k);
    ir_memory x = lower_ir_read(k, "x", p->x), out = lower_ir_write(k, "out", node->out[0]), sum = ir_register(b, IR_F32, 1);
    ir_id n = lower_ir_count(k, "n", p->n), m = lower_ir_u32(k, "m", p->m), first = lower_ir_u32(k, "first", p->first);
    ir_id x_offset = lower_ir_u32(k, "x_offset", p->x_offset), x_stride = lower_ir_u32(k, "x_stride", p->x_stride);
    ir_id out_offset = lower_ir_u32(k, "out_offset", graph_tensor_at(l->g, node->out[0])->offset + p->to);
    ir_id out_stride = lower_ir_u32(k, "out_stride", width), depth = lower_ir_u32(k, "k", p->k);
    ir_id zero = ir_u32(b, 0), one = ir_u32(b, 1);
    ir_id v = ir_loop_marked(b, zero, n, one, IR_PARALLEL, DIM_VECTOR), r = ir_loop_marked(b, zero, m, one, IR_PARALLEL, DIM_ROW);
    ir_set(b, sum, ir_f32(b, 0));
    ir_id i = ir_loop_marked(b, zero, depth, one, IR_REDUCE, DIM_K);
    ir_id x_at = ir_add(b, ir_add(b, ir_mul(b, v, x_stride), x_offset), i);
    ir_id left = ir_cast(b, IR_F32, ir_load(b, x, x_at, 1)), right = lower_ir_element_load(&w, ir_add(b, r, first), i);
    if (takes_halves(l, p)) left = half(b, left), right = half(b, right);
    ir_set(b, sum, ir_fma(b, left, right, ir_get(b, sum)));
    ir_end(b);
    ir_store(b, out, ir_add(b, ir_add(b, ir_mul(b, v, out_stride), out_offset), r), ir_get(b, sum));
    ir_end(b), ir_end(b);
    const lower_count counts[IR_DIM_MAX] = {[DIM_VECTOR] = p->n, [DIM_ROW] = {p->m, 0}};
    const uint64_t extents[IR_DIM_MAX] = {[DIM_VECTOR] = p->bound, [DIM_ROW] = p->m, [DIM_K] = p->k};
    return lower_ir_end_marked(k, counts, extents, error);
}
