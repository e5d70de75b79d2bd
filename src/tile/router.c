/* router.c - the choice of experts: a logit's rank is how many are before it, so
 * all ranks are found at once, without one search after another. */
#include "base/error.h"
#include "tile/experts.h"

enum { LANES_MIN = 32, LANES_MAX = 256, LOGITS_MAX = 2048 };

static uint32_t padded(uint32_t d) {
    return (d + 3) / 4 * 4;
}

uint32_t tile_choice_bytes(uint32_t d, uint32_t n) {
    return 4 * padded(d) + 8 * n;
}

void tile_choice_open(tile_choice *c, ir_builder *b, uint32_t d, uint32_t n, ir_id factor) {
    *c = (tile_choice){.d = d, .n = n, .factor = factor};
    c->keys = ir_workgroup(b, IR_U32, padded(d));
    c->chosen = ir_workgroup(b, IR_U32, n);
    c->values = ir_workgroup(b, IR_F32, n);
}

static ir_id share(tile_kernel *k, uint32_t n) {
    ir_builder *b = k->b;
    return ir_loop(b, k->lanes == 1 ? ir_u32(b, 0) : ir_local(b, 0), ir_u32(b, n),
                   ir_u32(b, k->lanes));
}

void tile_choice_make(const tile_choice *c, tile_kernel *k, ir_memory logits, ir_id at) {
    ir_builder *b = k->b;
    ir_memory rank = ir_register(b, IR_U32, 1);
    ir_id zero = ir_u32(b, 0), i = share(k, padded(c->d)), inside = ir_lt(b, i, ir_u32(b, c->d));
    ir_id logit = ir_load(b, logits, ir_add(b, at, ir_min(b, i, ir_u32(b, c->d - 1))), 1);
    ir_store(b, c->keys, i, ir_select(b, inside, tile_order(b, logit, TILE_LOWEST), zero));
    ir_end(b);
    if (k->lanes > 1) ir_barrier(b);
    ir_id e = share(k, c->d), own = ir_load(b, c->keys, e, 1);
    ir_set(b, rank, zero);
    ir_id j = ir_loop(b, zero, ir_u32(b, padded(c->d)), ir_u32(b, 4)),
          four = ir_load(b, c->keys, j, 4), count = ir_get(b, rank);
    for (uint32_t i4 = 0; i4 < 4; i4++) {
        ir_id other = ir_extract(b, four, i4), earlier = ir_lt(b, tile_add(b, j, i4), e);
        ir_id before = ir_or(b, ir_gt(b, other, own), ir_and(b, ir_eq(b, other, own), earlier));
        count = ir_add(b, count, ir_cast(b, IR_U32, before));
    }
    ir_set(b, rank, count);
    ir_end(b);
    ir_id all = ir_get(b, rank);
    ir_if(b, ir_lt(b, all, ir_u32(b, c->n)));
    ir_id lowest = ir_eq(b, own, ir_u32(b, TILE_LOWEST));
    ir_store(b, c->chosen, all, e);
    ir_store(b, c->values, all,
             ir_select(b, lowest, ir_bits(b, IR_F32, 1, 0xff800000u),
                       ir_load(b, logits, ir_add(b, at, e), 1)));
    ir_end(b);
    ir_end(b);
    if (k->lanes > 1) ir_barrier(b);
}

void tile_choice_store(const tile_choice *c, tile_kernel *k, ir_memory scales, ir_id scales_at,
                       ir_memory ids, ir_id ids_at, ir_memory gates, ir_id gates_at) {
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
    ir_id p =
        ir_exp(b, ir_sub(b, ir_mul(b, c->factor, ir_load(b, c->values, rank, 1)), ir_get(b, most)));
    ir_id gate = ir_mul(b, ir_div(b, p, ir_get(b, sum)),
                        ir_load(b, scales, ir_add(b, scales_at, expert), 1));
    ir_store(b, ids, ir_add(b, ids_at, rank), ir_cast(b, IR_I32, expert));
    ir_store(b, gates, ir_add(b, gates_at, rank), gate);
    ir_end(b);
}

/* ---- a dispatch of its own ------------------------------------------------------------------- */

static bool is_routable(const graph *g, const graph_store *store, const fused_router *f) {
    const graph_tensor *x = graph_tensor_at(g, f->logits), *scales = graph_tensor_at(g, f->scales);
    if (!store->device || x->rank != 2 || x->dim[1].extent || x->stride[1] != 1 ||
        f->k > FUSED_CHOSEN_MAX || x->dim[1].size > FUSED_ROUTER_MAX)
        return false;
    if (scales->role != ROLE_STORED || scales->type != TYPE_F32 || scales->rank != 1 ||
        scales->dim[0].extent)
        return false;
    return scales->dim[0].size >= x->dim[1].size &&
           store->tensors.data[scales->stored].n_shard == 1;
}

bool tile_router_fits(const graph *g, const graph_store *store, const fused_router *f) {
    if (!is_routable(g, store, f)) return false;
    const uint32_t d = graph_tensor_at(g, f->logits)->dim[1].size,
                   most = device_caps_of(store->device)->workgroup_bytes;
    return d <= LOGITS_MAX && f->k <= d && tile_choice_bytes(d, f->k) <= (most ? most : 16384);
}

beryl_status tile_fused_router(lowering *l, const graph_node *node) {
    const fused_router *f = node->attr.fused.detail;
    const graph_tensor *x = graph_tensor_at(l->g, f->logits);
    if (!tile_router_fits(l->g, l->store, f))
        return lower_refuse(l, node, "this choice of experts");
    uint32_t lanes = tile_serial(l) ? 1 : LANES_MIN;
    while (lanes > 1 && lanes < x->dim[1].size && lanes < LANES_MAX) lanes *= 2;
    if (lanes > l->caps->workgroup_invocations) lanes = l->caps->workgroup_invocations;
    tile_kernel k;
    tile_choice c;
    ir_builder *b = tile_begin(&k, l, "router", lanes);
    ir_memory logits = tile_read(&k, "logits", f->logits),
              scales = tile_read(&k, "scales", f->scales);
    ir_memory ids = tile_write(&k, "ids", f->ids), gates = tile_write(&k, "gates", f->gates);
    ir_id n = tile_count(&k, "n", lower_count_of(x->dim[0])),
          x_offset = tile_u32(&k, "x_offset", x->offset);
    ir_id scales_offset = tile_u32(&k, "scales_offset", graph_tensor_at(l->g, f->scales)->offset);
    tile_choice_open(&c, b, x->dim[1].size, f->k, tile_f32(&k, "factor", f->factor));
    ir_id row = tile_group(b), to = tile_mul(b, row, f->k);
    lower_bytes(l, (uint64_t)f->k * 4);
    ir_if(b, ir_lt(b, row, n));
    tile_choice_make(&c, &k, logits, ir_add(b, x_offset, tile_mul(b, row, x->stride[0])));
    tile_choice_store(&c, &k, scales, scales_offset, ids, to, gates, to);
    ir_end(b);
    return tile_end(&k, lower_count_of(x->dim[0]), 1);
}
