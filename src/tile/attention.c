/* attention.c - kernels of rotations and cache writes, and which form of
 * attention a node takes. */
#include "tile/attention.h"
#include "tile/block.h"
#include "base/build.h"
#include "base/error.h"

enum { LANES = 64, CACHE_BLOCK = 32, HEAD_FOURS_MAX = 256 };

/* ---- rotation -------------------------------------------------------------------------------- */

beryl_status tile_rope(lowering *l, const graph_node *node) {
    const graph_tensor *x = graph_tensor_at(l->g, node->in[0]),
                       *a = graph_tensor_at(l->g, node->in[1]);
    if (x->stride[2] != 1 || a->stride[2] != 1 || x->dim[1].extent || x->dim[2].extent)
        return lower_refuse(l, node, "rows with gaps, heads that vary");
    const uint32_t half = x->dim[2].size / 2, h = x->dim[1].size;
    tile_kernel k;
    ir_builder *b = tile_begin(&k, l, "rope", LANES);
    uint32_t wide = k.wide;
    while (wide > 1 &&
           (half % wide || x->offset % wide || x->stride[0] % wide || x->stride[1] % wide ||
            a->offset % wide || a->stride[0] % wide || a->stride[1] % wide))
        wide /= 2;
    const uint32_t units = half / wide;
    ir_memory from = tile_read(&k, "x", node->in[0]), angles = tile_read(&k, "angles", node->in[1]);
    ir_memory out = tile_write(&k, "out", node->out[0]);
    ir_id n = tile_count(&k, "n", lower_count_of(x->dim[0]));
    ir_id x_offset = tile_u32(&k, "x_offset", x->offset),
          a_offset = tile_u32(&k, "a_offset", a->offset);
    ir_id lane = tile_lane(&k), i = tile_mul(b, tile_rem(b, lane, units), wide),
          heads = tile_div(b, lane, units);
    ir_id head = tile_rem(b, heads, h), row = tile_div(b, heads, h);
    ir_if(b, ir_lt(b, row, n));
    ir_id at = ir_add(b, ir_add(b, x_offset, tile_mul(b, row, x->stride[0])),
                      ir_add(b, tile_mul(b, head, x->stride[1]), i));
    ir_id angle = ir_add(b, ir_add(b, a_offset, tile_mul(b, row, a->stride[0])), i);
    ir_id u = ir_load(b, from, at, wide), v = ir_load(b, from, tile_add(b, at, half), wide);
    ir_id cosine = ir_load(b, angles, angle, wide),
          sine = ir_load(b, angles, tile_add(b, angle, a->stride[1]), wide);
    ir_id to = ir_add(b, tile_mul(b, heads, half * 2), i);
    ir_store(b, out, to, ir_sub(b, ir_mul(b, u, cosine), ir_mul(b, v, sine)));
    ir_store(b, out, tile_add(b, to, half), ir_add(b, ir_mul(b, u, sine), ir_mul(b, v, cosine)));
    ir_end(b);
    return tile_end(&k, lower_count_times(lower_count_of(x->dim[0]), (uint64_t)h * units), LANES);
}

/* ---- cache writes ---------------------------------------------------------------------------- */

typedef struct writing {
    const graph_tensor *cache, *x;
    ir_id from, to; /* elements: where the unit is read, and written */
} writing;

/* Opens two blocks: the unit is one of this run, and its slot and position are some. units: of a
 * head; size: elements of a unit. */
static void write_begin(tile_kernel *k, writing *w, uint32_t units, uint32_t size) {
    ir_builder *b = k->b;
    const graph_node *node = k->l->node;
    const uint32_t h = w->x->dim[1].size;
    ir_memory slots = tile_read(k, "slot", node->in[2]),
              positions = tile_read(k, "pos", node->in[3]);
    ir_id n = tile_count(k, "n", lower_count_of(w->x->dim[0])),
          x_offset = tile_u32(k, "x_offset", w->x->offset);
    ir_id slot_offset = tile_u32(k, "slot_offset", graph_tensor_at(k->l->g, node->in[2])->offset);
    ir_id pos_offset = tile_u32(k, "pos_offset", graph_tensor_at(k->l->g, node->in[3])->offset);
    ir_id lane = tile_lane(k), i = tile_mul(b, tile_rem(b, lane, units), size),
          heads = tile_div(b, lane, units);
    ir_id head = tile_rem(b, heads, h), row = tile_div(b, heads, h);
    ir_if(b, ir_lt(b, row, n));
    ir_id slot = ir_cast(b, IR_U32, ir_load(b, slots, ir_add(b, slot_offset, row), 1));
    ir_id pos = ir_cast(b, IR_U32, ir_load(b, positions, ir_add(b, pos_offset, row), 1));
    ir_if(b, ir_and(b, ir_lt(b, slot, ir_u32(b, w->cache->dim[0].size)),
                    ir_le(b, pos, ir_u32(b, INT32_MAX))));
    pos = tile_rem(b, pos, w->cache->dim[1].size);
    ir_id place = ir_add(b, tile_mul(b, slot, w->cache->dim[1].size), pos);
    w->from = ir_add(b, ir_add(b, x_offset, tile_mul(b, row, w->x->stride[0])),
                     ir_add(b, tile_mul(b, head, w->x->stride[1]), i));
    w->to =
        ir_add(b, tile_mul(b, ir_add(b, tile_mul(b, place, h), head), w->cache->dim[3].size), i);
}

/* Blocks of 32 signed bytes in one plane, their scales in another; both as 16-bit words. */
static void write_block(tile_kernel *k, const writing *w, ir_memory x, ir_memory cache,
                        bool aligned) {
    ir_builder *b = k->b;
    const graph_tensor *t = w->cache;
    const uint32_t n = TILE_RUN / k->wide, wide = k->wide;
    const uint64_t plane =
        (uint64_t)t->dim[0].size * t->dim[1].size * t->dim[2].size * t->dim[3].size / 2;
    ir_id runs[2][4], most = IR_NO_ID;
    for (uint32_t r = 0; r < 2; r++) {
        tile_load_run(k, x, tile_add(b, w->from, r * TILE_RUN), aligned, runs[r]);
        for (uint32_t i = 0; i < n; i++)
            most =
                most == IR_NO_ID ? ir_abs(b, runs[r][i]) : ir_max(b, most, ir_abs(b, runs[r][i]));
    }
    ir_id d = ir_cast(b, IR_F16, ir_div(b, tile_max_vector(b, most), ir_f32(b, 127))),
          scale = ir_cast(b, IR_F32, d);
    ir_id some = ir_gt(b, scale, ir_f32(b, 0)),
          divisor = ir_splat(b, ir_select(b, some, scale, ir_f32(b, 1)), wide);
    ir_id factor = ir_splat(b, ir_select(b, some, ir_f32(b, 1), ir_f32(b, 0)), wide);
    for (uint32_t r = 0; r < 2; r++)
        for (uint32_t i = 0; i < n; i++) {
            ir_id q = ir_mul(b, ir_round(b, ir_div(b, runs[r][i], divisor)), factor);
            q = ir_max(b, ir_min(b, q, ir_number(b, IR_F32, wide, 127)),
                       ir_number(b, IR_F32, wide, -127));
            q = tile_and(b, ir_bitcast(b, IR_U32, wide, ir_cast(b, IR_I32, q)), 255);
            for (uint32_t e = 0; e < wide; e += 2) {
                ir_id pair = ir_or(b, ir_extract(b, q, e), tile_shl(b, ir_extract(b, q, e + 1), 8));
                ir_id at = tile_add(b, tile_div(b, w->to, 2), (r * TILE_RUN + i * wide + e) / 2);
                ir_store(b, cache, at, ir_cast(b, IR_U16, pair));
            }
        }
    ir_id at = tile_add(b, tile_div(b, w->to, CACHE_BLOCK), (uint32_t)plane);
    ir_store(b, cache, at, ir_bitcast(b, IR_U16, 1, d));
}

beryl_status tile_kv_write(lowering *l, const graph_node *node) {
    writing w = {.cache = graph_tensor_at(l->g, node->in[0]),
                 .x = graph_tensor_at(l->g, node->in[1])};
    const base_type type = w.cache->type;
    const uint32_t d = w.cache->dim[3].size;
    if (w.x->stride[2] != 1 || w.x->dim[1].extent || w.x->dim[2].extent)
        return lower_refuse(l, node, "rows with gaps, heads that vary");
    if (type != TYPE_F32 && type != TYPE_F16 && type != TYPE_Q8_0)
        return lower_refuse(l, node, "a cache of this type");
    tile_kernel k;
    ir_builder *b = tile_begin(&k, l, "kv_write", LANES);
    uint32_t wide = k.wide;
    while (wide > 1 &&
           (d % wide || w.x->offset % wide || w.x->stride[0] % wide || w.x->stride[1] % wide))
        wide /= 2;
    const uint32_t size = type == TYPE_Q8_0 ? CACHE_BLOCK : wide;
    ir_memory x = tile_read(&k, "x", node->in[1]);
    ir_memory cache = tile_bind(&k, "cache", node->in[0],
                                type == TYPE_F32   ? IR_F32
                                : type == TYPE_F16 ? IR_F16
                                                   : IR_U16,
                                IR_READ_WRITE);
    write_begin(&k, &w, d / size, size);
    if (type == TYPE_Q8_0) write_block(&k, &w, x, cache, wide == k.wide);
    else
        ir_store(b, cache, w.to,
                 ir_cast(b, type == TYPE_F32 ? IR_F32 : IR_F16, ir_load(b, x, w.from, wide)));
    ir_end(b);
    ir_end(b);
    return tile_end(
        &k, lower_count_times(lower_count_of(w.x->dim[0]), (uint64_t)w.x->dim[1].size * (d / size)),
        LANES);
}

/* ---- attention ------------------------------------------------------------------------------- */

enum {
    FEW_ROWS = 32,
    BLOCK_ROWS = 8, /* from so many on */
    SUBGROUP_MIN = 8,
    PIECE_MIN = 16,     /* keys, as tuning may choose */
    ITEM_PIECES_MAX = 4 /* of many rows as items, whose sums lie in memory */
};

typedef enum attention_form {
    FORM_NONE,
    FORM_SERIAL,
    FORM_LANES,
    FORM_FAR,
    FORM_UNITS,
    FORM_MATRIX,
    FORM_BLOCK,
    FORM_TILE,
    FORM_SHUFFLE
} attention_form;

/* Processors: a lane alone. loop_max: lanes there may not take as many turns as there are keys
 * and elements. Subgroups of fewer than 8 are no GPU's, whatever a device says of itself:
 * SwiftShader's compiler takes minutes and gigabytes over the long texts of the other forms. */
static attention_form form_of(const device_caps *caps, const attention_task *a) {
    const bool narrow = caps->subgroups && caps->subgroup_size < SUBGROUP_MIN,
               alone = narrow || (device_is_processor(caps) && !caps->loop_max);
    const bool fours = attention_reads(a, 4, a->cache == TYPE_F16 ? ATTENTION_EIGHT : 4);
    const bool few = !alone && fours && a->n <= FEW_ROWS;
    if (!BUILD_IS_MODULE && a->n > FEW_ROWS && attention_shuffle_fits(caps, a)) return FORM_SHUFFLE;
    if (attention_serial_items(caps, a) &&
        (a->n <= FEW_ROWS || attention_serial_splits(caps, a) <= ITEM_PIECES_MAX))
        return FORM_SERIAL;
    const bool near = few && attention_lanes_near(caps, a);
    if (few && !near && attention_units_splits(caps, a)) return FORM_UNITS;
    if (few && !near && attention_far_splits(caps, a)) return FORM_FAR;
    if (few && attention_lanes_splits(caps, a)) return FORM_LANES;
    if (!few && fours && attention_matrix_fits(caps, a)) return FORM_MATRIX;
    if (BUILD_HAS_C_TEXTS && a->n >= BLOCK_ROWS && attention_block_fits(caps, a)) return FORM_BLOCK;
    if (!alone && fours && !a->raw && attention_tile_fits(caps, a)) return FORM_TILE;
    return attention_serial_fits(a) ? FORM_SERIAL : FORM_NONE;
}

static uint32_t splits_of(const device_caps *caps, const attention_task *a) {
    switch (form_of(caps, a)) {
    case FORM_LANES: return attention_lanes_splits(caps, a);
    case FORM_FAR: return attention_far_splits(caps, a);
    case FORM_UNITS: return attention_units_splits(caps, a);
    case FORM_SERIAL: return attention_serial_splits(caps, a);
    case FORM_MATRIX:
    case FORM_BLOCK:
    case FORM_TILE:
    case FORM_SHUFFLE: return 1;
    case FORM_NONE: break;
    }
    return 0;
}

/* Pieces as tuning chose, where they are this node's own matter. */
static uint32_t chosen_splits(lowering *l, attention_form form, const attention_task *a) {
    const uint32_t rule = a->n_split;
    if (a->partial || form >= FORM_MATRIX || form == FORM_NONE) return rule;
    const bool bound = form == FORM_UNITS || l->caps->loop_max;
    return tile_choose(l, "pieces", rule, bound ? rule : 1, (a->keys + PIECE_MIN - 1) / PIECE_MIN);
}

static beryl_status attend(lowering *l, const attention_task *given, bool merged) {
    attention_task own = *given, *a = &own;
    const attention_form form = form_of(l->caps, a);
    own.n_split = chosen_splits(l, form, a);
    if (form == FORM_MATRIX) return attention_matrix(l, a);
    if (BUILD_HAS_C_TEXTS && form == FORM_BLOCK) return attention_block(l, a);
    if (form == FORM_TILE) return attention_tile(l, a);
    if (!BUILD_IS_MODULE && form == FORM_SHUFFLE) return attention_shuffle(l, a);
    if (form == FORM_NONE)
        return lower_refuse(l, l->node, "heads of this shape, or a cache of this type");
    const beryl_status status = form == FORM_LANES   ? attention_lanes(l, a)
                                : form == FORM_FAR   ? attention_far(l, a)
                                : form == FORM_UNITS ? attention_units(l, a)
                                                     : attention_serial(l, a);
    return status == BERYL_OK && a->n_split > 1 && merged ? attention_merge(l, a) : status;
}

beryl_status tile_attention(lowering *l, const graph_node *node) {
    const graph_tensor *q = graph_tensor_at(l->g, node->in[0]);
    attention_task a;
    if (q->stride[2] != 1 || q->dim[1].extent || q->dim[2].extent)
        return lower_refuse(l, node, "rows with gaps, heads that vary");
    attention_task_of(l->g, node, &a);
    a.fast = !l->settings.exact;
    a.n_split = splits_of(l->caps, &a);
    return attend(l, &a, true);
}

/* ---- a joined decode step -------------------------------------------------------------------- */

static const store_tensor *stored(const graph *g, const graph_store *store, graph_value v) {
    const graph_tensor *t = graph_tensor_at(g, graph_base_of(g, v));
    const store_tensor *s = t->role == ROLE_STORED ? &store->tensors.data[t->stored] : NULL;
    return s && s->n_shard == 1 ? s : NULL;
}

/* Rows of `width` numbers, one after another. */
static bool is_plain(const graph *g, graph_value v, uint32_t width) {
    const graph_tensor *t = graph_tensor_at(g, v);
    return t->rank >= 1 && graph_is_contiguous(t) && t->offset % 4 == 0 && t->stride[0] == width;
}

/* Do its tensors lie as kernels want them, and does the device have so many bindings? */
static bool binds(const graph *g, const graph_store *store, const fused_attention *f,
                  uint32_t bindings) {
    const device_caps *caps = device_caps_of(store->device);
    const bool owner = f->k != 0;
    const store_tensor *w_q = stored(g, store, f->w_q),
                       *w_k = owner ? stored(g, store, f->w_k) : w_q;
    const store_tensor *k = stored(g, store, f->k_cache), *v = stored(g, store, f->v_cache);
    if (!w_q || !w_k || !k || !v || f->head_dim % 8 || f->head_dim / 4 > HEAD_FOURS_MAX)
        return false;
    if (graph_tensor_at(g, f->k_cache)->type == TYPE_Q8_0 && f->head_dim % (owner ? 64 : 32))
        return false;
    if (!is_plain(g, f->q, f->n_head * f->head_dim) || !is_plain(g, f->angles, f->head_dim))
        return false;
    if (owner &&
        (!is_plain(g, f->k, f->n_kv * f->head_dim) || !is_plain(g, f->v, f->n_kv * f->head_dim)))
        return false;
    const store_shard *q_at = &w_q->shard[0], *k_at = &w_k->shard[0];
    const uint64_t apart =
        q_at->offset > k_at->offset ? q_at->offset - k_at->offset : k_at->offset - q_at->offset;
    if (q_at->buffer != k_at->buffer || apart + 4 * f->head_dim > caps->binding_max) return false;
    if (owner && (q_at->buffer == k->shard[0].buffer || q_at->buffer == v->shard[0].buffer))
        return false;
    return bindings <= caps->storage_max;
}

bool tile_attention_fits(const graph *g, const graph_store *store, const lower_settings *settings,
                         const fused_attention *f) {
    attention_task a;
    if (!store->device) return false;
    const lowering l = lower_asked(g, store, settings);
    attention_task_of_fused(g, f, &a);
    if (!binds(g, store, f, attention_bindings(&l, &a))) return false;
    return form_of(device_caps_of(store->device), &a) != FORM_NONE;
}

bool tile_attention_halves(const graph *g, const graph_store *store, const graph_node *node) {
    attention_task a;
    attention_task_of(g, node, &a);
    a.fast = true;
    const bool rounds = a.plain && form_of(device_caps_of(store->device), &a) == FORM_MATRIX;
    a.cache = TYPE_F16;
    return rounds && form_of(device_caps_of(store->device), &a) == FORM_MATRIX;
}

uint32_t tile_attention_splits(const graph *g, const graph_store *store, const fused_attention *f) {
    attention_task a;
    attention_task_of_fused(g, f, &a);
    return store->device ? splits_of(device_caps_of(store->device), &a) : 0;
}

beryl_status tile_fused_attention(lowering *l, const graph_node *node) {
    const fused_attention *f = node->attr.fused.detail;
    attention_task a;
    attention_task_of_fused(l->g, f, &a);
    lower_bytes(l, (uint64_t)f->head_dim * (f->k ? 8 : 4));
    return attend(l, &a, !f->merged_later);
}
