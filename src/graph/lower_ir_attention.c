/* lower_ir_attention.c - generated kernels of rotations, cache writes and attention.
 *
 * Attention is one workgroup for a query and a head, with an online softmax. Where one lane is all it walks the keys one by
 * one in vectors; else each lane scores one key of a tile, then owns some of the result's elements. */
#include "graph/lower_ir_block.h"
#include "base/error.h"

enum { LANES = 64, CACHE_BLOCK = 32 };

/* ---- rotation -------------------------------------------------------------------------------------------------- */

beryl_status lower_ir_rope(lowering *l, const graph_node *node, beryl_error *error) {
    const graph_tensor *x = graph_tensor_at(l->g, node->in[0]), *a = graph_tensor_at(l->g, node->in[1]);
    if (x->stride[2] != 1 || a->stride[2] != 1 || x->dim[1].extent || x->dim[2].extent) return lower_ir_refuse(node, "rows with gaps, heads that vary", error);
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
    if (w.x->stride[2] != 1 || w.x->dim[1].extent || w.x->dim[2].extent) return lower_ir_refuse(node, "rows with gaps, heads that vary", error);
    if (type != TYPE_F32 && type != TYPE_F16 && type != TYPE_Q8_0) return lower_ir_refuse(node, base_type_name(type), error);
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

typedef struct attending {
    lower_ir k;
    const graph_tensor *q, *cache; /* cache: of keys; that of values is like it */
    lower_ir_weight keys, values;
    ir_memory query, out, sum; /* sum: a vector, of one score */
    bool aligned;
    uint32_t d, n_row, n_kv;
    ir_id q_at, out_at, base, kv, first, end; /* base: rows before this slot's; keys first .. end - 1 */
} attending;

static ir_id cache_row(attending *a, ir_id j) {
    lower_ir *k = &a->k;
    return ir_add(k->b, lower_ir_times(k, ir_add(k->b, a->base, lower_ir_rest(k, j, a->n_row)), a->n_kv), a->kv);
}

/* Opens a block: there is such a query and its slot. */
static void attend_begin(attending *a) {
    lower_ir *k = &a->k;
    ir_builder *b = k->b;
    const graph_node *node = k->node;
    const graph *g = k->l->g;
    const uint32_t n_head = a->q->dim[1].size, window = node->attr.attention.window;
    a->query = lower_ir_read(k, "q", node->in[0]);
    lower_ir_weight_cache(&a->keys, k, "k_cache", node->in[1]);
    lower_ir_weight_cache(&a->values, k, "v_cache", node->in[2]);
    ir_memory slots = lower_ir_read(k, "slot", node->in[3]), positions = lower_ir_read(k, "pos", node->in[4]);
    a->out = lower_ir_write(k, "out", node->out[0]);
    ir_id n = lower_ir_count(k, "n", lower_count_of(a->q->dim[0])), q_offset = lower_ir_u32(k, "q_offset", a->q->offset);
    ir_id slot_offset = lower_ir_u32(k, "slot_offset", graph_tensor_at(g, node->in[3])->offset);
    ir_id pos_offset = lower_ir_u32(k, "pos_offset", graph_tensor_at(g, node->in[4])->offset);
    ir_id group = lower_ir_group(k), head = lower_ir_rest(k, group, n_head), row = lower_ir_over(k, group, n_head);
    ir_if(b, ir_lt(b, row, n));
    ir_id slot = ir_cast(b, IR_U32, ir_load(b, slots, ir_add(b, slot_offset, row), 1));
    ir_id pos = ir_cast(b, IR_U32, ir_load(b, positions, ir_add(b, pos_offset, row), 1));
    a->end = lower_ir_plus(k, pos, 1);
    a->first = window ? ir_sub(b, a->end, ir_min(b, a->end, ir_u32(b, window))) : ir_u32(b, 0);
    a->base = lower_ir_times(k, ir_min(b, slot, ir_u32(b, a->cache->dim[0].size - 1)), a->n_row);
    a->kv = lower_ir_over(k, lower_ir_times(k, head, a->n_kv), n_head);
    a->q_at = ir_add(b, ir_add(b, q_offset, lower_ir_times(k, row, a->q->stride[0])), lower_ir_times(k, head, a->q->stride[1]));
    a->out_at = lower_ir_times(k, group, a->d);
}

/* The values of run `at` of a cache's row; gives the element where it begins. */
static ir_id run_values(const lower_ir_weight *w, ir_id at, ir_id row, ir_id *values) {
    lower_ir_chunk c;
    ir_id block = lower_ir_over(w->k, at, w->chunks), part = lower_ir_rest(w->k, at, w->chunks);
    lower_ir_chunk_load(w, row, block, part, &c);
    lower_ir_run_load(w, &c, 0, values);
    return lower_ir_run_at(w, block, part, 0);
}

/* q . key of row `row`, times the scale. */
static ir_id score(attending *a, ir_id row) {
    lower_ir *k = &a->k;
    ir_builder *b = k->b;
    const uint32_t n = LOWER_IR_RUN / k->wide, rest = a->keys.plain ? a->keys.blocks * LOWER_IR_RUN : a->d;
    ir_id zero = ir_u32(b, 0);
    ir_store(b, a->sum, zero, ir_number(b, IR_F32, k->wide, 0));
    ir_id q[4], values[4], run = ir_loop(b, zero, ir_u32(b, a->keys.blocks * a->keys.chunks), ir_u32(b, 1));
    ir_id at = run_values(&a->keys, run, row, values), sum = ir_load(b, a->sum, zero, k->wide);
    lower_ir_load_run(k, a->query, ir_add(b, a->q_at, at), a->aligned, q);
    for (uint32_t i = 0; i < n; i++) sum = ir_fma(b, q[i], values[i], sum);
    ir_store(b, a->sum, zero, sum);
    ir_end(b);
    ir_id total = lower_ir_sum_vector(k, ir_load(b, a->sum, zero, k->wide));
    for (uint32_t e = rest; e < a->d; e++) {
        ir_id one = ir_load(b, a->query, lower_ir_plus(k, a->q_at, e), 1);
        total = ir_fma(b, one, lower_ir_element_load(&a->keys, row, ir_u32(b, e)), total);
    }
    return ir_mul(b, total, ir_f32(b, k->node->attr.attention.scale));
}

/* sums = sums * fade + p * value; sums [d] in registers. */
static void add_values(attending *a, ir_memory sums, ir_id row, ir_id p, ir_id fade) {
    lower_ir *k = &a->k;
    ir_builder *b = k->b;
    const uint32_t n = LOWER_IR_RUN / k->wide, rest = a->values.plain ? a->values.blocks * LOWER_IR_RUN : a->d;
    ir_id many_p = ir_splat(b, p, k->wide), many_fade = ir_splat(b, fade, k->wide);
    ir_id values[4], run = ir_loop(b, ir_u32(b, 0), ir_u32(b, a->values.blocks * a->values.chunks), ir_u32(b, 1));
    ir_id from = run_values(&a->values, run, row, values);
    for (uint32_t i = 0; i < n; i++) {
        ir_id at = lower_ir_plus(k, from, i * k->wide), before = ir_load(b, sums, at, k->wide);
        ir_store(b, sums, at, ir_fma(b, values[i], many_p, ir_mul(b, before, many_fade)));
    }
    ir_end(b);
    for (uint32_t e = rest; e < a->d; e++) {
        ir_id at = ir_u32(b, e), value = lower_ir_element_load(&a->values, row, at);
        ir_store(b, sums, at, ir_fma(b, value, p, ir_mul(b, ir_load(b, sums, at, 1), fade)));
    }
}

static void attend_alone(attending *a) {
    lower_ir *k = &a->k;
    ir_builder *b = k->b;
    const uint32_t wide = a->aligned ? k->wide : 1;
    a->sum = ir_register(b, IR_F32, k->wide);
    ir_memory sums = ir_register(b, IR_F32, a->d), most = ir_register(b, IR_F32, 1), total = ir_register(b, IR_F32, 1);
    attend_begin(a);
    for (uint32_t e = 0; e < a->d; e += wide) ir_store(b, sums, ir_u32(b, e), ir_number(b, IR_F32, wide, 0));
    ir_set(b, most, ir_f32(b, -3.4028234663852886e38f));
    ir_set(b, total, ir_f32(b, 0));
    ir_id j = ir_loop(b, a->first, a->end, ir_u32(b, 1)), row = cache_row(a, j), s = score(a, row);
    ir_id before = ir_get(b, most), now = ir_max(b, before, s);
    ir_id fade = ir_exp(b, ir_sub(b, before, now)), p = ir_exp(b, ir_sub(b, s, now));
    ir_set(b, most, now);
    ir_set(b, total, ir_fma(b, ir_get(b, total), fade, p));
    add_values(a, sums, row, p, fade);
    ir_end(b);
    ir_id factor = ir_splat(b, ir_div(b, ir_f32(b, 1), ir_get(b, total)), wide);
    for (uint32_t e = 0; e < a->d; e += wide)
        ir_store(b, a->out, lower_ir_plus(k, a->out_at, e), ir_mul(b, ir_load(b, sums, ir_u32(b, e), wide), factor));
    ir_end(b);
}

static void attend_together(attending *a) {
    lower_ir *k = &a->k;
    ir_builder *b = k->b;
    a->sum = ir_register(b, IR_F32, k->wide);
    const uint32_t each = (a->d + LANES - 1) / LANES; /* elements of the result that a lane owns: lane, lane + LANES .. */
    ir_memory sums = ir_register(b, IR_F32, each), most = ir_register(b, IR_F32, 1), total = ir_register(b, IR_F32, 1);
    ir_memory own = ir_register(b, IR_F32, 1), joined = ir_workgroup(b, IR_F32, LANES), weights = ir_workgroup(b, IR_F32, LANES);
    attend_begin(a);
    ir_id lane = ir_local(b, 0), lowest = ir_f32(b, -3.4028234663852886e38f);
    for (uint32_t i = 0; i < each; i++) ir_store(b, sums, ir_u32(b, i), ir_f32(b, 0));
    ir_set(b, most, lowest);
    ir_set(b, total, ir_f32(b, 0));
    ir_id start = ir_loop(b, a->first, a->end, ir_u32(b, LANES)), j = ir_add(b, start, lane), inside = ir_lt(b, j, a->end);
    ir_set(b, own, lowest);
    ir_if(b, inside);
    ir_set(b, own, score(a, cache_row(a, j)));
    ir_end(b);
    ir_id s = ir_get(b, own), before = ir_get(b, most), now = ir_max(b, before, lower_ir_reduce(k, IR_MAX, s, joined));
    ir_id fade = ir_exp(b, ir_sub(b, before, now)), p = ir_select(b, inside, ir_exp(b, ir_sub(b, s, now)), ir_f32(b, 0));
    ir_store(b, weights, lane, p);
    ir_id sum = lower_ir_reduce(k, IR_ADD, p, joined); /* its barriers are for `weights` too */
    ir_set(b, most, now);
    ir_set(b, total, ir_fma(b, ir_get(b, total), fade, sum));
    for (uint32_t i = 0; i < each; i++) ir_store(b, sums, ir_u32(b, i), ir_mul(b, ir_load(b, sums, ir_u32(b, i), 1), fade));
    ir_id one = ir_loop(b, ir_u32(b, 0), ir_min(b, ir_sub(b, a->end, start), ir_u32(b, LANES)), ir_u32(b, 1));
    ir_id row = cache_row(a, ir_add(b, start, one)), weight = ir_load(b, weights, one, 1);
    for (uint32_t i = 0; i < each; i++) {
        ir_id e = lower_ir_plus(k, lane, i * LANES);
        if (a->d % LANES) e = ir_min(b, e, ir_u32(b, a->d - 1));
        ir_id value = lower_ir_element_load(&a->values, row, e);
        ir_store(b, sums, ir_u32(b, i), ir_fma(b, value, weight, ir_load(b, sums, ir_u32(b, i), 1)));
    }
    ir_end(b);
    ir_barrier(b);
    ir_end(b);
    ir_id factor = ir_div(b, ir_f32(b, 1), ir_get(b, total));
    for (uint32_t i = 0; i < each; i++) {
        ir_id e = lower_ir_plus(k, lane, i * LANES);
        ir_if(b, ir_lt(b, e, ir_u32(b, a->d)));
        ir_store(b, a->out, ir_add(b, a->out_at, e), ir_mul(b, ir_load(b, sums, ir_u32(b, i), 1), factor));
        ir_end(b);
    }
    ir_end(b);
}

beryl_status lower_ir_attention(lowering *l, const graph_node *node, beryl_error *error) {
    const graph_tensor *q = graph_tensor_at(l->g, node->in[0]), *cache = graph_tensor_at(l->g, graph_base_of(l->g, node->in[1]));
    const graph_tensor *v = graph_tensor_at(l->g, graph_base_of(l->g, node->in[2]));
    if (q->stride[2] != 1 || q->dim[1].extent || q->dim[2].extent) return lower_ir_refuse(node, "rows with gaps, heads that vary", error);
    if ((cache->type != TYPE_F32 && cache->type != TYPE_F16 && cache->type != TYPE_Q8_0) || v->type != cache->type)
        return lower_ir_refuse(node, base_type_name(cache->type), error);
    attending a = {.q = q, .cache = cache, .d = q->dim[2].size, .n_row = cache->dim[1].size, .n_kv = cache->dim[2].size};
    const bool alone = lower_ir_serial(l) && !l->caps->loop_max; /* turns of loops over all keys and their elements */
    lower_ir_begin(&a.k, l, node, "attention", alone ? 1 : LANES);
    a.aligned = lower_ir_aligned(&a.k, q) && a.d % a.k.wide == 0;
    if (alone) attend_alone(&a);
    else attend_together(&a);
    return lower_ir_end(&a.k, lower_count_times(lower_count_of(q->dim[0]), q->dim[1].size), 1, error);
}
