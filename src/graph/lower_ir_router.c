/* lower_ir_router.c - generated choice of experts: a logit's rank is how many are before it, so all ranks are found at once,
 * without one search after another. */
#include "base/error.h"
#include "graph/lower_ir_experts.h"

enum { LANES_LEAST = 32, LANES_MOST = 256, LOGITS_MOST = 2048 };

static uint32_t padded(uint32_t d) {
    return (d + 3) / 4 * 4;
}

uint32_t lower_ir_choice_bytes(uint32_t d, uint32_t n) {
    return 4 * padded(d) + 8 * n;
}

void lower_ir_choice_open(lower_ir_choice *c, lower_ir *k, uint32_t d, uint32_t n, ir_id factor) {
    *c = (lower_ir_choice){.d = d, .n = n, .factor = factor};
    c->keys = ir_workgroup(k->b, IR_U32, padded(d));
    c->chosen = ir_workgroup(k->b, IR_U32, n);
    c->values = ir_workgroup(k->b, IR_F32, n);
}

static ir_id share(lower_ir *k, uint32_t n) {
    ir_builder *b = k->b;
    return ir_loop(b, k->lanes == 1 ? ir_u32(b, 0) : ir_local(b, 0), ir_u32(b, n), ir_u32(b, k->lanes));
}

void lower_ir_choice_make(const lower_ir_choice *c, lower_ir *k, ir_memory logits, ir_id at) {
    ir_builder *b = k->b;
    ir_memory rank = ir_register(b, IR_U32, 1);
    ir_id zero = ir_u32(b, 0), i = share(k, padded(c->d)), inside = ir_lt(b, i, ir_u32(b, c->d));
    ir_id logit = ir_load(b, logits, ir_add(b, at, ir_min(b, i, ir_u32(b, c->d - 1))), 1);
    ir_store(b, c->keys, i, ir_select(b, inside, lower_ir_order(k, logit, LOWER_IR_LOWEST), zero));
    ir_end(b);
    if (k->lanes > 1) ir_barrier(b);
    ir_id e = share(k, c->d), own = ir_load(b, c->keys, e, 1);
    ir_set(b, rank, zero);
    ir_id j = ir_loop(b, zero, ir_u32(b, padded(c->d)), ir_u32(b, 4)), four = ir_load(b, c->keys, j, 4), count = ir_get(b, rank);
    for (uint32_t i4 = 0; i4 < 4; i4++) {
        ir_id other = ir_extract(b, four, i4), earlier = ir_lt(b, lower_ir_plus(k, j, i4), e);
        ir_id before = ir_or(b, ir_gt(b, other, own), ir_and(b, ir_eq(b, other, own), earlier));
        count = ir_add(b, count, ir_cast(b, IR_U32, before));
    }
    ir_set(b, rank, count);
    ir_end(b);
    ir_id all = ir_get(b, rank);
    ir_if(b, ir_lt(b, all, ir_u32(b, c->n)));
    ir_id lowest = ir_eq(b, own, ir_u32(b, LOWER_IR_LOWEST));
    ir_store(b, c->chosen, all, e);
    ir_store(b, c->values, all, ir_select(b, lowest, ir_bits(b, IR_F32, 1, 0xff800000u), ir_load(b, logits, ir_add(b, at, e), 1)));
    ir_end(b);
    ir_end(b);
    if (k->lanes > 1) ir_barrier(b);
}

void lower_ir_choice_store(const lower_ir_choice *c, lower_ir *k, ir_memory scales, ir_id scales_at, ir_memory ids, ir_id ids_at,
                           ir_memory gates, ir_id gates_at) {
    ir_builder *b = k->b;
    ir_memory most = ir_register(b, IR_F32, 1), sum = ir_register(b, IR_F32, 1);
    ir_id zero = ir_u32(b, 0), one = ir_u32(b, 1), n = ir_u32(b, c->n), rank = share(k, c->n);
    ir_set(b, most, ir_mul(b, c->factor, ir_load(b, c->values, zero, 1)));
    ir_id i = ir_loop(b, one, n, one);
    ir_set(b, most, ir_max(b, ir_get(b, most), ir_mul(b, c->factor, ir_load(b, c->values, i, 1))));
    ir_end(b);
    ir_set(b, sum, ir_f32(b, 0));
    i = ir_loop(b, zero, n, one);
    ir_id x = ir_sub(b, ir_mul(b, c->factor, ir_load(b, c->values, i, 1)), ir_get(b, most));
    ir_set(b, sum, ir_add(b, ir_get(b, sum), ir_exp(b, x)));
    ir_end(b);
    ir_id expert = ir_load(b, c->chosen, rank, 1);
    ir_id p = ir_exp(b, ir_sub(b, ir_mul(b, c->factor, ir_load(b, c->values, rank, 1)), ir_get(b, most)));
    ir_id gate = ir_mul(b, ir_div(b, p, ir_get(b, sum)), ir_load(b, scales, ir_add(b, scales_at, expert), 1));
    ir_store(b, ids, ir_add(b, ids_at, rank), ir_cast(b, IR_I32, expert));
    ir_store(b, gates, ir_add(b, gates_at, rank), gate);
    ir_end(b);
}

/* ---- a dispatch of its own ---------------------------------------------------------------------------------------- */

bool lower_ir_router_fits(const graph *g, const graph_store *store, const fused_router *f) {
    if (!lower_router_fits(g, store, f)) return false;
    const uint32_t d = graph_tensor_at(g, f->logits)->dim[1].size, most = device_caps_of(store->device)->workgroup_bytes;
    return d <= LOGITS_MOST && f->k <= d && lower_ir_choice_bytes(d, f->k) <= (most ? most : 16384);
}

beryl_status lower_ir_fused_router(lowering *l, const graph_node *node, beryl_error *error) {
    const fused_router *f = node->attr.fused.detail;
    const graph_tensor *x = graph_tensor_at(l->g, f->logits);
    if (!lower_ir_router_fits(l->g, l->store, f)) return lower_refuse(l, node, "this choice of experts", error);
    uint32_t lanes = lower_ir_serial(l) ? 1 : LANES_LEAST;
    while (lanes > 1 && lanes < x->dim[1].size && lanes < LANES_MOST) lanes *= 2;
    if (l->caps->workgroup_invocations && lanes > l->caps->workgroup_invocations) lanes = l->caps->workgroup_invocations;
    lower_ir k;
    lower_ir_choice c;
    lower_ir_begin(&k, l, node, "router", lanes);
    ir_builder *b = k.b;
    ir_memory logits = lower_ir_read(&k, "logits", f->logits), scales = lower_ir_read(&k, "scales", f->scales);
    ir_memory ids = lower_ir_write(&k, "ids", f->ids), gates = lower_ir_write(&k, "gates", f->gates);
    ir_id n = lower_ir_count(&k, "n", lower_count_of(x->dim[0])), x_offset = lower_ir_u32(&k, "x_offset", x->offset);
    ir_id scales_offset = lower_ir_u32(&k, "scales_offset", graph_tensor_at(l->g, f->scales)->offset);
    lower_ir_choice_open(&c, &k, x->dim[1].size, f->k, lower_ir_f32(&k, "factor", f->factor));
    ir_id row = lower_ir_group(&k), to = lower_ir_times(&k, row, f->k);
    lower_bytes(l, (uint64_t)f->k * 4);
    ir_if(b, ir_lt(b, row, n));
    lower_ir_choice_make(&c, &k, logits, ir_add(b, x_offset, lower_ir_times(&k, row, x->stride[0])));
    lower_ir_choice_store(&c, &k, scales, scales_offset, ids, to, gates, to);
    ir_end(b);
    return lower_ir_end(&k, lower_count_of(x->dim[0]), 1, error);
}
