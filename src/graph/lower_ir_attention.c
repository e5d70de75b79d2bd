/* lower_ir_attention.c - generated kernels of rotations and cache writes, and which form of attention a node takes. */
#include "graph/lower_ir_attention.h"
#include "graph/lower_ir_block.h"
#include "base/error.h"

enum { LANES = 64, CACHE_BLOCK = 32 };

/* ---- rotation -------------------------------------------------------------------------------------------------- */

beryl_status lower_ir_rope(lowering *l, const graph_node *node, beryl_error *error) {
    const graph_tensor *x = graph_tensor_at(l->g, node->in[0]), *a = graph_tensor_at(l->g, node->in[1]);
    if (x->stride[2] != 1 || a->stride[2] != 1 || x->dim[1].extent || x->dim[2].extent) return lower_refuse(l, node, "rows with gaps, heads that vary", error);
    const uint32_t half = x->dim[2].size / 2, h = x->dim[1].size;
    lower_ir k;
    lower_ir_begin(&k, l, node, "rope", LANES);
    ir_builder *b = k.b;
    uint32_t wide = k.wide;
    while (wide > 1 && (half % wide || x->offset % wide || x->stride[0] % wide || x->stride[1] % wide || a->offset % wide ||
                        a->stride[0] % wide || a->stride[1] % wide)) wide /= 2;
    const uint32_t units = half / wide;
    ir_memory from = lower_ir_read(&k, "x", node->in[0]), angles = lower_ir_read(&k, "angles", node->in[1]);
    ir_memory out = lower_ir_write(&k, "out", node->out[0]);
    ir_id n = lower_ir_count(&k, "n", lower_count_of(x->dim[0]));
    ir_id x_offset = lower_ir_u32(&k, "x_offset", x->offset), a_offset = lower_ir_u32(&k, "a_offset", a->offset);
    ir_id lane = lower_ir_lane(&k), i = lower_ir_times(&k, lower_ir_rest(&k, lane, units), wide), heads = lower_ir_over(&k, lane, units);
    ir_id head = lower_ir_rest(&k, heads, h), row = lower_ir_over(&k, heads, h);
    ir_if(b, ir_lt(b, row, n));
    ir_id at = ir_add(b, ir_add(b, x_offset, lower_ir_times(&k, row, x->stride[0])), ir_add(b, lower_ir_times(&k, head, x->stride[1]), i));
    ir_id angle = ir_add(b, ir_add(b, a_offset, lower_ir_times(&k, row, a->stride[0])), i);
    ir_id u = ir_load(b, from, at, wide), v = ir_load(b, from, lower_ir_plus(&k, at, half), wide);
    ir_id cosine = ir_load(b, angles, angle, wide), sine = ir_load(b, angles, lower_ir_plus(&k, angle, a->stride[1]), wide);
    ir_id to = ir_add(b, lower_ir_times(&k, heads, half * 2), i);
    ir_store(b, out, to, ir_sub(b, ir_mul(b, u, cosine), ir_mul(b, v, sine)));
    ir_store(b, out, lower_ir_plus(&k, to, half), ir_add(b, ir_mul(b, u, sine), ir_mul(b, v, cosine)));
    ir_end(b);
    return lower_ir_end(&k, lower_count_times(lower_count_of(x->dim[0]), (uint64_t)h * units), LANES, error);
}

/* ---- cache writes ---------------------------------------------------------------------------------------------- */

typedef struct writing {
    const graph_tensor *cache, *x;
    ir_id from, to; /* elements: where the unit is read, and written */
} writing;

/* Opens two blocks: the unit is one of this run, and its slot exists. units: of a head; size: elements of a unit. */
static void write_begin(lower_ir *k, writing *w, uint32_t units, uint32_t size) {
    ir_builder *b = k->b;
    const graph_node *node = k->node;
    const uint32_t h = w->x->dim[1].size;
    ir_memory slots = lower_ir_read(k, "slot", node->in[2]), positions = lower_ir_read(k, "pos", node->in[3]);
    ir_id n = lower_ir_count(k, "n", lower_count_of(w->x->dim[0])), x_offset = lower_ir_u32(k, "x_offset", w->x->offset);
    ir_id slot_offset = lower_ir_u32(k, "slot_offset", graph_tensor_at(k->l->g, node->in[2])->offset);
    ir_id pos_offset = lower_ir_u32(k, "pos_offset", graph_tensor_at(k->l->g, node->in[3])->offset);
    ir_id lane = lower_ir_lane(k), i = lower_ir_times(k, lower_ir_rest(k, lane, units), size), heads = lower_ir_over(k, lane, units);
    ir_id head = lower_ir_rest(k, heads, h), row = lower_ir_over(k, heads, h);
    ir_if(b, ir_lt(b, row, n));
    ir_id slot = ir_cast(b, IR_U32, ir_load(b, slots, ir_add(b, slot_offset, row), 1));
    ir_if(b, ir_lt(b, slot, ir_u32(b, w->cache->dim[0].size)));
    ir_id pos = lower_ir_rest(k, ir_cast(b, IR_U32, ir_load(b, positions, ir_add(b, pos_offset, row), 1)), w->cache->dim[1].size);
    ir_id place = ir_add(b, lower_ir_times(k, slot, w->cache->dim[1].size), pos);
    w->from = ir_add(b, ir_add(b, x_offset, lower_ir_times(k, row, w->x->stride[0])), ir_add(b, lower_ir_times(k, head, w->x->stride[1]), i));
    w->to = ir_add(b, lower_ir_times(k, ir_add(b, lower_ir_times(k, place, h), head), w->cache->dim[3].size), i);
}

/* Blocks of 32 signed bytes in one plane, their scales in another; both as 16-bit words. */
static void write_block(lower_ir *k, const writing *w, ir_memory x, ir_memory cache, bool aligned) {
    ir_builder *b = k->b;
    const graph_tensor *t = w->cache;
    const uint32_t n = LOWER_IR_RUN / k->wide, wide = k->wide;
    const uint64_t plane = (uint64_t)t->dim[0].size * t->dim[1].size * t->dim[2].size * t->dim[3].size / 2;
    ir_id runs[2][4], most = IR_NO_ID;
    for (uint32_t r = 0; r < 2; r++) {
        lower_ir_load_run(k, x, lower_ir_plus(k, w->from, r * LOWER_IR_RUN), aligned, runs[r]);
        for (uint32_t i = 0; i < n; i++) most = most == IR_NO_ID ? ir_abs(b, runs[r][i]) : ir_max(b, most, ir_abs(b, runs[r][i]));
    }
    ir_id d = ir_cast(b, IR_F16, ir_div(b, lower_ir_max_vector(k, most), ir_f32(b, 127))), scale = ir_cast(b, IR_F32, d);
    ir_id some = ir_gt(b, scale, ir_f32(b, 0)), divisor = ir_splat(b, ir_select(b, some, scale, ir_f32(b, 1)), wide);
    ir_id factor = ir_splat(b, ir_select(b, some, ir_f32(b, 1), ir_f32(b, 0)), wide);
    for (uint32_t r = 0; r < 2; r++)
        for (uint32_t i = 0; i < n; i++) {
            ir_id q = ir_mul(b, ir_round(b, ir_div(b, runs[r][i], divisor)), factor);
            q = ir_max(b, ir_min(b, q, ir_number(b, IR_F32, wide, 127)), ir_number(b, IR_F32, wide, -127));
            q = lower_ir_and(k, ir_bitcast(b, IR_U32, wide, ir_cast(b, IR_I32, q)), 255);
            for (uint32_t e = 0; e < wide; e += 2) {
                ir_id pair = ir_or(b, ir_extract(b, q, e), lower_ir_shl(k, ir_extract(b, q, e + 1), 8));
                ir_id at = lower_ir_plus(k, lower_ir_over(k, w->to, 2), (r * LOWER_IR_RUN + i * wide + e) / 2);
                ir_store(b, cache, at, ir_cast(b, IR_U16, pair));
            }
        }
    ir_id at = lower_ir_plus(k, lower_ir_over(k, w->to, CACHE_BLOCK), (uint32_t)plane);
    ir_store(b, cache, at, ir_bitcast(b, IR_U16, 1, d));
}

beryl_status lower_ir_kv_write(lowering *l, const graph_node *node, beryl_error *error) {
    writing w = {.cache = graph_tensor_at(l->g, graph_base_of(l->g, node->in[0])), .x = graph_tensor_at(l->g, node->in[1])};
    const base_type type = w.cache->type;
    const uint32_t d = w.cache->dim[3].size;
    if (w.x->stride[2] != 1 || w.x->dim[1].extent || w.x->dim[2].extent) return lower_refuse(l, node, "rows with gaps, heads that vary", error);
    if (type != TYPE_F32 && type != TYPE_F16 && type != TYPE_Q8_0) return lower_refuse(l, node, "a cache of this type", error);
    lower_ir k;
    lower_ir_begin(&k, l, node, "kv_write", LANES);
    ir_builder *b = k.b;
    uint32_t wide = k.wide;
    while (wide > 1 && (d % wide || w.x->offset % wide || w.x->stride[0] % wide || w.x->stride[1] % wide)) wide /= 2;
    const uint32_t size = type == TYPE_Q8_0 ? CACHE_BLOCK : wide;
    ir_memory x = lower_ir_read(&k, "x", node->in[1]);
    ir_memory cache = lower_ir_bind(&k, "cache", node->in[0], type == TYPE_F32 ? IR_F32 : type == TYPE_F16 ? IR_F16 : IR_U16, IR_READ_WRITE);
    write_begin(&k, &w, d / size, size);
    if (type == TYPE_Q8_0) write_block(&k, &w, x, cache, wide == k.wide);
    else ir_store(b, cache, w.to, ir_cast(b, type == TYPE_F32 ? IR_F32 : IR_F16, ir_load(b, x, w.from, wide)));
    ir_end(b);
    ir_end(b);
    return lower_ir_end(&k, lower_count_times(lower_count_of(w.x->dim[0]), (uint64_t)w.x->dim[1].size * (d / size)), LANES, error);
}

/* ---- attention ------------------------------------------------------------------------------------------------- */

enum { FEW_ROWS = 32, PIECE_LEAST = 16 /* keys, as tuning may choose */ };

typedef enum attention_form { FORM_NONE, FORM_SERIAL, FORM_LANES, FORM_UNITS, FORM_TILE } attention_form;

/* Processors: a lane alone. loop_max: lanes there may not take as many turns as there are keys and elements. */
static attention_form form_of(const device_caps *caps, const attention_task *a) {
    const bool alone = device_is_processor(caps) && !caps->loop_max;
    const bool fours = a->q_offset % 4 == 0 && a->q_stride[0] % 4 == 0 && a->q_stride[1] % 4 == 0;
    const bool few = !alone && fours && a->n <= FEW_ROWS;
    if (few && attention_units_fit(caps, a) && !attention_lanes_near(caps, a)) return FORM_UNITS;
    if (few && attention_lanes_fit(caps, a)) return FORM_LANES;
    if (!alone && fours && !a->raw && attention_tile_fits(caps, a)) return FORM_TILE;
    return attention_serial_fits(a) ? FORM_SERIAL : FORM_NONE;
}

static uint32_t splits_of(const device_caps *caps, const attention_task *a) {
    switch (form_of(caps, a)) {
    case FORM_LANES: return attention_lanes_splits(caps, a);
    case FORM_UNITS: return attention_units_splits(caps, a);
    case FORM_SERIAL: return attention_serial_splits(caps, a);
    case FORM_TILE: return 1;
    case FORM_NONE: break;
    }
    return 0;
}

/* Pieces as tuning chose, where they are this node's own matter. */
static uint32_t chosen_splits(lowering *l, attention_form form, const attention_task *a) {
    const uint32_t rule = a->n_split;
    if (a->partial || form == FORM_TILE || form == FORM_NONE) return rule;
    const bool bound = form == FORM_UNITS || l->caps->loop_max;
    return lower_ir_choose(l, "pieces", rule, bound ? rule : 1, (a->keys + PIECE_LEAST - 1) / PIECE_LEAST);
}

static beryl_status attend(lowering *l, const graph_node *node, const attention_task *given, bool merged, beryl_error *error) {
    attention_task own = *given, *a = &own;
    const attention_form form = form_of(l->caps, a);
    own.n_split = chosen_splits(l, form, a);
    if (form == FORM_TILE) return attention_tile(l, node, a, error);
    if (form == FORM_NONE) return lower_refuse(l, node, "heads of this shape, or a cache of this type", error);
    const beryl_status status = form == FORM_LANES   ? attention_lanes(l, node, a, error)
                                : form == FORM_UNITS ? attention_units(l, node, a, error)
                                                     : attention_serial(l, node, a, error);
    return status == BERYL_OK && a->n_split > 1 && merged ? attention_merge(l, node, a, error) : status;
}

beryl_status lower_ir_attention(lowering *l, const graph_node *node, beryl_error *error) {
    const graph_tensor *q = graph_tensor_at(l->g, node->in[0]);
    attention_task a;
    if (q->stride[2] != 1 || q->dim[1].extent || q->dim[2].extent) return lower_refuse(l, node, "rows with gaps, heads that vary", error);
    attention_task_of(l->g, node, &a);
    if (graph_tensor_at(l->g, graph_base_of(l->g, node->in[2]))->type != a.cache) return lower_refuse(l, node, "keys and values of two types", error);
    a.n_split = splits_of(l->caps, &a);
    return attend(l, node, &a, true, error);
}

/* ---- a joined decode step ------------------------------------------------------------------------------------------- */

bool lower_ir_attention_fits(const graph *g, const graph_store *store, const lower_settings *settings, const fused_attention *f) {
    (void)settings; /* activations are f32 either way */
    attention_task a;
    if (!lower_attention_binds(g, store, f, 0)) return false;
    attention_task_of_fused(g, f, &a);
    return form_of(device_caps_of(store->device), &a) != FORM_NONE;
}

uint32_t lower_ir_attention_splits(const graph *g, const graph_store *store, const fused_attention *f) {
    attention_task a;
    attention_task_of_fused(g, f, &a);
    return store->device ? splits_of(device_caps_of(store->device), &a) : 0;
}

beryl_status lower_ir_fused_attention(lowering *l, const graph_node *node, beryl_error *error) {
    const fused_attention *f = node->attr.fused.detail;
    attention_task a;
    attention_task_of_fused(l->g, f, &a);
    lower_bytes(l, (uint64_t)f->head_dim * (f->k ? 8 : 4));
    return attend(l, node, &a, !f->merged_later, error);
}
