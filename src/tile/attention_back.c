/* attention_back.c - the backward pass of attention: what its kernels read, which form a node
 * takes, and the one in which a lane owns a line (tile/attention_back.h). */
#include "tile/attention_back.h"
#include "base/build.h"

enum { KEYS_MAX = 1 << 24 /* whole numbers of F32 */, SUBGROUP_MIN = 8, MERGE_LANES = 64 };
enum { SHARES, HALVES }; /* scratch memory of a node; HALVES: and the next */

static void task_of(const graph *g, const graph_node *node, back_task *t) {
    const bool sums = node->op == OP_ATTENTION_SUMS;
    *t = (back_task){.kind = sums ? BACK_SUMS : (back_kind)node->attr.attention_back.towards,
                     .d = node->in[sums ? 5 : 3],
                     .y = sums ? node->in[2] : 0,
                     .sums = sums ? 0 : node->in[4]};
    attention_task_of(g, node, &t->a);
}

/* ---- what is read ---------------------------------------------------------------------------- */

static void lines_bind(back_lines *x, tile_kernel *k, uint32_t which, const char *name,
                       const char *offset, graph_value v) {
    const graph_tensor *t = graph_tensor_at(k->l->g, v);
    const uint32_t axis = t->rank - 3u;
    x->at[which] = tile_read(k, name, v);
    x->offset[which] = tile_u32(k, offset, t->offset);
    for (uint32_t i = 0; i < 2; i++) x->stride[which][i] = t->stride[axis + i];
}

static uint64_t shares_bytes(const back_task *t) { /* [split, keys, kv heads, d] */
    return (uint64_t)t->split * t->a.n_row * t->a.n_kv * t->a.d * 4;
}

void back_bind(back_bound *x, tile_kernel *k, const back_task *t, ir_access out) {
    const attention_task *a = &t->a;
    *x = (back_bound){.scale = tile_f32(k, "scale", a->scale)};
    lines_bind(&x->rows, k, 0, "q", "q_offset", a->q);
    lines_bind(&x->keys, k, 0, "k", "k_offset", a->k_cache);
    lines_bind(&x->rows, k, 1, "d", "d_offset", t->d);
    if (t->kind == BACK_Q || t->kind == BACK_K)
        lines_bind(&x->keys, k, 1, "v", "v_offset", a->v_cache);
    x->n_row = tile_count(k, "n", a->rows);
    if (t->kind == BACK_SUMS) {
        x->y = tile_read(k, "y", t->y);
        x->y_offset = tile_u32(k, "y_offset", graph_tensor_at(k->l->g, t->y)->offset);
        attention_places_bind(&x->places, k, a);
        x->n_key = x->places.held;
    } else {
        x->sums = tile_read(k, "sums", t->sums);
        x->n_key = tile_count(k, "held", a->held);
    }
    x->out = t->split > 1 ? tile_scratch(k, "out", SHARES, shares_bytes(t), IR_F32, out)
                          : tile_bind(k, "out", a->out, IR_F32, out);
}

ir_id back_read(ir_builder *b, const back_lines *lines, uint32_t which, ir_id line, ir_id head,
                ir_id e, uint32_t width) {
    ir_id at = ir_add(b, tile_mul(b, line, lines->stride[which][0]),
                      tile_mul(b, head, lines->stride[which][1]));
    at = ir_add(b, ir_add(b, at, lines->offset[which]), e);
    return ir_cast(b, IR_F32, ir_load(b, lines->at[which], at, width));
}

static bool lies(const lowering *l, graph_value v, uint32_t wide) {
    const graph_tensor *t = v ? graph_tensor_at(l->g, v) : NULL;
    return !t || (t->offset | t->stride[t->rank - 3] | t->stride[t->rank - 2]) % wide == 0;
}

bool back_reads(const lowering *l, const back_task *t, uint32_t wide) {
    return t->a.d % wide == 0 && lies(l, t->a.q, wide) && lies(l, t->a.k_cache, wide) &&
           lies(l, t->a.v_cache, wide) && lies(l, t->d, wide) && lies(l, t->y, wide);
}

ir_id back_weight(const back_bound *x, ir_builder *b, const back_task *t, ir_id score, ir_id dv,
                  ir_id sum, ir_id delta) {
    const uint32_t width = ir_at(b, score)->width;
    /* at most 1, but for rounding */
    ir_id p = ir_exp(b, ir_min(b, ir_sub(b, ir_mul(b, score, ir_splat(b, x->scale, width)), sum),
                               ir_number(b, IR_F32, width, 0)));
    if (t->kind == BACK_V) return p;
    return ir_mul(b, ir_mul(b, p, ir_sub(b, dv, delta)), ir_splat(b, x->scale, width));
}

void back_store_sums(const back_bound *x, ir_builder *b, ir_id at, ir_id most, ir_id total,
                     ir_id delta, ir_id first, ir_id end) {
    ir_id some = ir_lt(b, first, end), none = ir_f32(b, 0), one = ir_f32(b, 1);
    ir_id sum = ir_add(b, most, ir_log(b, ir_select(b, some, total, one)));
    ir_id all[4] = {ir_select(b, some, sum, none), delta,
                    ir_select(b, some, ir_cast(b, IR_F32, first), one),
                    ir_select(b, some, ir_cast(b, IR_F32, tile_add(b, end, UINT32_MAX)), none)};
    ir_store(b, x->out, at, ir_compose(b, all, 4));
}

beryl_status back_merge(lowering *l, const back_task *t) {
    const attention_task *a = &t->a;
    const uint32_t line = a->n_kv * a->d, wide = line % 4 ? 1 : 4;
    tile_kernel k;
    ir_builder *b = tile_begin(&k, l, "attention_back_merge", MERGE_LANES);
    ir_memory from = tile_scratch(&k, "shares", SHARES, shares_bytes(t), IR_F32, IR_READ),
              to = tile_write(&k, "out", a->out);
    const lower_count count = lower_count_times(a->held, line / wide);
    ir_id lane = tile_lane(&k), at = tile_mul(b, lane, wide), sum = IR_NO_ID;
    ir_if(b, ir_lt(b, lane, tile_count(&k, "count", count)));
    for (uint32_t i = 0; i < t->split; i++) {
        ir_id x = ir_load(b, from, tile_add(b, at, i * a->n_row * line), wide);
        sum = i ? ir_add(b, sum, x) : x;
    }
    ir_store(b, to, at, sum);
    ir_end(b);
    return tile_end(&k, count, MERGE_LANES);
}

/* ---- halves ---------------------------------------------------------------------------------- */

bool back_halves_has(const back_task *t, ir_type type, uint32_t which) {
    return !which ||
           (t->kind != BACK_SUMS && (which == 1 || (t->kind != BACK_V && type != IR_F16)));
}

void back_halves_bind(ir_memory out[BACK_HALVES], tile_kernel *k, const back_task *t, ir_type type,
                      ir_access access) {
    static const char *const names[] = {"halves", "gradients", "twins"};
    const attention_task *a = &t->a;
    const bool rows = !back_owns_rows(t);
    const uint64_t bytes =
        (uint64_t)(rows ? a->n : a->n_row) * (rows ? a->n_head : a->n_kv) * a->d * 2;
    for (uint32_t i = 0; i < BACK_HALVES; i++)
        if (back_halves_has(t, type, i))
            out[i] = tile_scratch(k, names[i], HALVES + i, bytes, i ? type : IR_F16, access);
}

/* An eight a lane. */
beryl_status back_halve(lowering *l, const back_task *t, ir_type type) {
    enum { EIGHT = ATTENTION_EIGHT };
    const attention_task *a = &t->a;
    const bool rows = !back_owns_rows(t), pairs = t->kind != BACK_SUMS;
    const uint32_t heads = rows ? a->n_head : a->n_kv, eights = a->d / EIGHT;
    const lower_count count = lower_count_times(rows ? a->rows : a->held, heads * eights);
    back_bound x = {0};
    ir_memory out[BACK_HALVES];
    tile_kernel kernel, *k = &kernel;
    ir_builder *b = tile_begin(k, l, "attention_back_halves", MERGE_LANES);
    back_lines *lines = rows ? &x.rows : &x.keys;
    lines_bind(lines, k, 0, "x", "x_offset", rows ? a->q : a->k_cache);
    if (pairs) lines_bind(lines, k, 1, "y", "y_offset", rows ? t->d : a->v_cache);
    back_halves_bind(out, k, t, type, IR_READ_WRITE);
    ir_id lane = tile_lane(k), line = tile_div(b, lane, eights),
          e = tile_mul(b, tile_rem(b, lane, eights), EIGHT);
    ir_if(b, ir_lt(b, lane, tile_count(k, "count", count)));
    ir_id at = tile_div(b, line, heads), head = tile_rem(b, line, heads);
    for (uint32_t i = 0; i < (pairs ? 2u : 1u); i++) {
        ir_id both[2];
        for (uint32_t n = 0; n < 2; n++)
            both[n] = back_read(b, lines, i, at, head, tile_add(b, e, 4 * n), 4);
        ir_id all = ir_compose(b, both, 2), to = tile_mul(b, lane, EIGHT);
        ir_store(b, out[i], to, ir_cast(b, i ? type : IR_F16, all));
        if (!i && back_halves_has(t, type, 2)) ir_store(b, out[2], to, ir_cast(b, type, all));
    }
    ir_end(b);
    return tile_end(k, count, MERGE_LANES);
}

/* ---- a lane owns a line ---------------------------------------------------------------------- */

typedef struct serial {
    tile_kernel k;
    const back_task *t;
    back_bound x;
    uint32_t wide;
    ir_memory part[2]; /* registers [wide]: sums of products */
    ir_id zero, to;    /* to: where the line of the result begins */
} serial;

static ir_id steps(serial *s, ir_id n, uint32_t step) {
    return ir_loop(s->k.b, s->zero, n, ir_u32(s->k.b, step));
}

static ir_id elements(serial *s) {
    return steps(s, ir_u32(s->k.b, s->t->a.d), s->wide);
}

static ir_id nothing(serial *s) {
    return ir_number(s->k.b, IR_F32, s->wide, 0);
}

static ir_id read(serial *s, const back_lines *lines, uint32_t which, ir_id line, ir_id head,
                  ir_id e) {
    return back_read(s->k.b, lines, which, line, head, e, s->wide);
}

/* q k, and d v where it is wanted. */
static void products(serial *s, ir_id row, ir_id head, ir_id key, ir_id kv, bool both,
                     ir_id sum[2]) {
    ir_builder *b = s->k.b;
    const uint32_t n = both ? 2 : 1;
    for (uint32_t i = 0; i < n; i++) ir_store(b, s->part[i], s->zero, nothing(s));
    ir_id e = elements(s);
    for (uint32_t i = 0; i < n; i++)
        ir_store(b, s->part[i], s->zero,
                 ir_fma(b, read(s, &s->x.rows, i, row, head, e), read(s, &s->x.keys, i, key, kv, e),
                        ir_load(b, s->part[i], s->zero, s->wide)));
    ir_end(b);
    sum[0] = sum[1] = IR_NO_ID;
    for (uint32_t i = 0; i < n; i++)
        sum[i] = tile_sum_vector(b, ir_load(b, s->part[i], s->zero, s->wide));
}

/* Adds what a pair gives to the line of the result. */
static void add_pair(serial *s, ir_id row, ir_id head, ir_id key, ir_id kv, ir_id of_row) {
    ir_builder *b = s->k.b;
    const back_kind kind = s->t->kind;
    ir_id sum[2];
    products(s, row, head, key, kv, kind != BACK_V, sum);
    ir_id weight = back_weight(&s->x, b, s->t, sum[0], sum[1], ir_extract(b, of_row, 0),
                               ir_extract(b, of_row, 1));
    weight = ir_splat(b, weight, s->wide);
    ir_id e = elements(s), at = ir_add(b, s->to, e);
    ir_id other = kind == BACK_Q ? read(s, &s->x.keys, 0, key, kv, e)
                                 : read(s, &s->x.rows, kind == BACK_V, row, head, e);
    ir_store(b, s->x.out, at, ir_fma(b, weight, other, ir_load(b, s->x.out, at, s->wide)));
    ir_end(b);
}

static ir_id sums_at(serial *s, ir_id row, ir_id head) {
    ir_builder *b = s->k.b;
    return tile_mul(b, ir_fma(b, row, ir_u32(b, s->t->a.n_head), head), 4);
}

static void make_sums(serial *s, ir_id row, ir_id head, ir_id kv) {
    ir_builder *b = s->k.b;
    const attention_task *a = &s->t->a;
    attention_keys of;
    attention_keys_of(&s->x.places, b, a, row, &of);
    ir_memory most = ir_register(b, IR_F32, 1), total = ir_register(b, IR_F32, 1);
    ir_set(b, most, ir_f32(b, ATTENTION_NO_KEYS));
    ir_set(b, total, ir_f32(b, 0));
    ir_id key = ir_loop(b, of.first, of.end, ir_u32(b, 1)), sum[2];
    products(s, row, head, key, kv, false, sum);
    ir_id score = ir_mul(b, sum[0], s->x.scale), before = ir_get(b, most),
          now = ir_max(b, before, score);
    ir_set(b, total,
           ir_fma(b, ir_get(b, total), ir_exp(b, ir_sub(b, before, now)),
                  ir_exp(b, ir_sub(b, score, now))));
    ir_set(b, most, now);
    ir_end(b);
    ir_store(b, s->part[0], s->zero, nothing(s));
    ir_id e = elements(s);
    ir_id y = ir_load(b, s->x.y,
                      ir_add(b, tile_mul(b, ir_fma(b, row, ir_u32(b, a->n_head), head), a->d),
                             ir_add(b, s->x.y_offset, e)),
                      s->wide);
    ir_store(b, s->part[0], s->zero,
             ir_fma(b, y, read(s, &s->x.rows, 1, row, head, e),
                    ir_load(b, s->part[0], s->zero, s->wide)));
    ir_end(b);
    back_store_sums(&s->x, b, sums_at(s, row, head), ir_get(b, most), ir_get(b, total),
                    tile_sum_vector(b, ir_load(b, s->part[0], s->zero, s->wide)), of.first, of.end);
}

/* Opens a block. */
static void sees(serial *s, ir_id key, ir_id low, ir_id high) {
    ir_builder *b = s->k.b;
    ir_id place = ir_cast(b, IR_F32, key);
    ir_if(b, ir_and(b, ir_ge(b, place, low), ir_le(b, place, high)));
}

static void own_row(serial *s, ir_id line, ir_id head) {
    ir_builder *b = s->k.b;
    ir_id kv = tile_div(b, head, s->t->a.n_head / s->t->a.n_kv);
    if (s->t->kind == BACK_SUMS) {
        make_sums(s, line, head, kv);
        return;
    }
    ir_id of_row = ir_load(b, s->x.sums, sums_at(s, line, head), 4);
    ir_id first = ir_cast(b, IR_U32, ir_extract(b, of_row, 2)),
          end = tile_add(b, ir_cast(b, IR_U32, ir_extract(b, of_row, 3)), 1);
    ir_id key = ir_loop(b, first, end, ir_u32(b, 1));
    sees(s, key, ir_extract(b, of_row, 2), ir_extract(b, of_row, 3));
    add_pair(s, line, head, key, kv, of_row);
    ir_end(b);
    ir_end(b);
}

static void own_key(serial *s, ir_id line, ir_id kv) {
    ir_builder *b = s->k.b;
    const uint32_t each = s->t->a.n_head / s->t->a.n_kv;
    ir_id row = steps(s, s->x.n_row, 1), first = tile_mul(b, kv, each),
          range = ir_load(b, s->x.sums, tile_add(b, sums_at(s, row, first), 2), 2);
    sees(s, line, ir_extract(b, range, 0), ir_extract(b, range, 1));
    ir_id i = steps(s, ir_u32(b, each), 1), head = ir_add(b, first, i);
    add_pair(s, row, head, line, kv, ir_load(b, s->x.sums, sums_at(s, row, head), 4));
    ir_end(b);
    ir_end(b);
    ir_end(b);
}

/* Any shape. */
static beryl_status back_serial(lowering *l, const back_task *t) {
    serial s = {.t = t};
    tile_kernel *k = &s.k;
    const bool rows = back_owns_rows(t);
    const uint32_t heads = rows ? t->a.n_head : t->a.n_kv;
    ir_builder *b = tile_begin_items(k, l, "attention_back");
    s.wide = k->wide;
    while (s.wide > 1 && !back_reads(l, t, s.wide)) s.wide /= 2;
    back_bind(&s.x, k, t, IR_READ_WRITE);
    for (uint32_t i = 0; i < 2; i++) s.part[i] = ir_register(b, IR_F32, s.wide);
    s.zero = ir_u32(b, 0);
    ir_id item = tile_item(k), line = tile_div(b, item, heads), head = tile_rem(b, item, heads);
    ir_if(b, ir_lt(b, line, rows ? s.x.n_row : s.x.n_key));
    s.to = tile_mul(b, item, t->a.d);
    if (t->kind != BACK_SUMS) {
        ir_id e = elements(&s);
        ir_store(b, s.x.out, ir_add(b, s.to, e), nothing(&s));
        ir_end(b);
    }
    if (rows) own_row(&s, line, head);
    else own_key(&s, line, head);
    ir_end(b);
    return tile_end(k, lower_count_times(rows ? t->a.rows : t->a.held, heads), 1);
}

/* ---- the choice ------------------------------------------------------------------------------ */

beryl_status tile_attention_back(lowering *l, const graph_node *node) {
    back_task t;
    const device_caps *caps = l->caps;
    task_of(l->g, node, &t);
    t.a.fast = !l->settings.exact;
    if (!BUILD_HAS_TRAINING || t.a.n_row >= KEYS_MAX) return lower_refuse(l, node, "so many keys");
    const bool narrow = caps->subgroups && caps->subgroup_size < SUBGROUP_MIN,
               alone = narrow || (device_is_processor(caps) && !caps->loop_max);
    if (back_matrix_fits(l, &t)) return back_matrix(l, &t);
    if (BUILD_HAS_C_TEXTS && back_block_fits(l, &t)) return back_block(l, &t);
    if (!BUILD_IS_MODULE && back_shuffle_fits(l, &t)) return back_shuffle(l, &t);
    if (!alone && back_tile_fits(l, &t)) return back_tile(l, &t);
    return back_serial(l, &t);
}
