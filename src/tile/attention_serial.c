/* attention_serial.c - attention where one thread runs all lanes of a workgroup
 * (processors), and of heads whose size suits no other form: a workgroup is one lane, with a
 * row, a piece of its keys and some query heads of one kv head. What it reads of the caches
 * becomes numbers once for all of these heads. Where lanes are items (tile_begin_items), each
 * has one head, reads its query where it lies and keeps its sums in the result: compilers of
 * such devices take seconds over a lane's arrays. In a joined step its query and own key lie in
 * scratch memory. */
#include "tile/attention.h"

enum {
    KEYS = 4 /* at once */,
    HEADS_MAX = 4,
    PIECE_MIN = 64 /* keys */,
    GROUPS_A_UNIT = 2,
    UNITS = 8,
    ITEM_PIECE_MIN = 32,
    ITEMS_WANTED = 32 /* so that threads have vectors of them */
};

typedef struct serial {
    tile_kernel k;
    const attention_task *a;
    uint32_t heads, wide; /* wide: elements at once */
    attention_cache keys, values;
    attention_result result;
    attention_keys of;
    ir_memory q, key, value, norms, angles;
    /* registers: [head, d], own key and value, [head], sums of products */
    ir_memory queries, sums, own[2], most, total, partial;
    ir_id own_at[2]; /* where these begin */
    ir_id angles_offset, w_q, w_k, scale, eps, zero;
    ir_id row, piece, first_head, kv, q_at;
    ir_id queries_at, sums_at; /* where those of the first head begin */
    bool items;                /* with heads of other lanes; queries that lie where they were
                                * made are not scaled yet */
} serial;

static uint32_t heads_of(const attention_task *a) {
    return whole_divisor(a->n_head / a->n_kv, HEADS_MAX);
}

bool attention_serial_fits(const attention_task *a) {
    return attention_cache_known(a) && a->n_head % a->n_kv == 0;
}

bool attention_serial_items(const device_caps *caps, const attention_task *a) {
    return device_makes_vectors(caps) && attention_serial_fits(a) &&
           (!a->raw || attention_bindings_most(a) + 1 <= caps->storage_max);
}

uint32_t attention_serial_splits(const device_caps *caps, const attention_task *a) {
    const bool items = attention_serial_items(caps, a);
    const uint32_t units = caps->compute_units ? caps->compute_units : UNITS,
                   beside = a->n * (items ? a->n_head : a->n_head / heads_of(a)),
                   piece = items ? ITEM_PIECE_MIN : PIECE_MIN;
    uint32_t wanted = ((items ? ITEMS_WANTED : GROUPS_A_UNIT * units) + beside - 1) / beside;
    const uint32_t most = (a->keys + piece - 1) / piece;
    if (wanted > most) wanted = most;
    if (caps->loop_max) { /* turns of a lane, all together */
        const uint32_t turns = 2 * a->d / (a->d % 4 ? 1 : 4) + 3; /* for KEYS of them */
        const uint32_t keys = caps->loop_max / turns * KEYS;
        const uint32_t least = (a->keys + keys) / (keys ? keys : 1);
        if (wanted < least) wanted = least;
    }
    return wanted ? wanted : 1;
}

static ir_id steps(serial *s, uint32_t n, uint32_t step) {
    return ir_loop(s->k.b, s->zero, ir_u32(s->k.b, n), ir_u32(s->k.b, step));
}

static ir_id many(serial *s, ir_id x) {
    return ir_splat(s->k.b, x, s->wide);
}

static ir_id nothing(serial *s) {
    return ir_number(s->k.b, IR_F32, s->wide, 0);
}

/* Where queries, sums and the row's own key and value lie. */
static void lines_declare(serial *s) {
    tile_kernel *k = &s->k;
    ir_builder *b = k->b;
    const attention_task *a = s->a;
    if (!s->items) {
        s->queries = ir_register(b, IR_F32, s->heads * a->d);
        s->sums = ir_register(b, IR_F32, s->heads * a->d);
        for (uint32_t i = 0; a->k && i < 2; i++) s->own[i] = ir_register(b, IR_F32, a->d);
        return;
    }
    s->queries = s->q;
    s->sums = s->own[1] = s->result.out; /* where the own value, of weight 1, is the first */
    if (!a->raw) return;
    s->queries = s->own[0] =
        tile_scratch(k, "work", ATTENTION_WORK,
                     (uint64_t)a->n * a->n_head * a->n_split * 2 * a->d * 4, IR_F32, IR_READ_WRITE);
}

static void bind(serial *s) {
    tile_kernel *k = &s->k;
    ir_builder *b = k->b;
    const attention_task *a = s->a;
    uint32_t word[2] = {0, 0};
    attention_places places;
    s->q = tile_read(k, "q", a->q);
    attention_caches_bind(&s->keys, &s->values, k, a, true);
    attention_places_bind(&places, k, a);
    attention_result_bind(&s->result, k, a);
    ir_id q_offset = tile_u32(k, "q_offset", a->q_offset);
    s->scale = tile_f32(k, "scale", a->scale);
    if (a->raw) {
        s->norms = tile_weights(k, "norms", (const graph_value[]){a->w_q, a->k ? a->w_k : a->w_q},
                                2, IR_F32, word);
        s->angles = tile_read(k, "angles", a->angles);
        s->angles_offset =
            tile_u32(k, "angles_offset", graph_tensor_at(k->l->g, a->angles)->offset);
        s->w_q = tile_u32(k, "w_q", word[0]);
        s->w_k = tile_u32(k, "w_k", word[1]);
        s->eps = tile_f32(k, "eps", a->eps);
    }
    if (a->k) {
        s->key = tile_read(k, "key", a->k);
        s->value = a->v == a->k ? s->key : tile_read(k, "value", a->v);
    }
    lines_declare(s);
    s->most = ir_register(b, IR_F32, s->heads);
    s->total = ir_register(b, IR_F32, s->heads);
    s->partial = ir_register(b, IR_F32, s->heads * KEYS * s->wide);
    s->zero = ir_u32(b, 0);
    s->piece = ir_group(b, 0);
    s->first_head = tile_mul(b, ir_group(b, 1), s->heads);
    s->row = ir_group(b, 2);
    s->queries_at = s->sums_at = s->own_at[0] = s->own_at[1] = s->zero;
    if (s->items) {
        ir_id item = tile_item(k), place = tile_div(b, item, a->n_head);
        s->first_head = tile_rem(b, item, a->n_head);
        s->piece = tile_rem(b, place, a->n_split);
        s->row = tile_div(b, place, a->n_split);
        ir_if(b, ir_lt(b, s->row, tile_count(k, "rows", a->rows)));
        place = ir_fma(b, s->row, ir_u32(b, a->n_head), s->first_head);
        place = ir_add(b, tile_mul(b, place, a->n_split), s->piece);
        s->sums_at = s->own_at[1] = tile_mul(b, place, a->d);
        s->queries_at = tile_mul(b, place, 2 * a->d);
        s->own_at[0] = tile_add(b, s->queries_at, a->d);
    }
    s->kv = tile_div(b, s->first_head, a->n_head / a->n_kv);
    s->q_at = ir_add(b, q_offset, tile_mul(b, s->row, a->q_stride[0]));
    if (a->raw) s->angles_offset = ir_add(b, s->angles_offset, tile_mul(b, s->row, a->d));
    attention_keys_of(&places, b, a, s->row, &s->of);
    if (s->items && !a->raw)
        s->queries_at = ir_add(b, s->q_at, tile_mul(b, s->first_head, a->q_stride[1]));
}

/* Element e of a head, from where those of the first begin. */
static ir_id element(serial *s, ir_id from, uint32_t head, ir_id e) {
    return ir_add(s->k.b, from, tile_add(s->k.b, e, head * s->a->d));
}

/* ---- queries, and the row's own key and value ------------------------------------------------ */

static ir_id sum_of_squares(serial *s, ir_memory from, ir_id start) {
    ir_builder *b = s->k.b;
    ir_store(b, s->partial, s->zero, nothing(s));
    ir_id i = steps(s, s->a->d, s->wide), x = ir_load(b, from, ir_add(b, start, i), s->wide);
    ir_store(b, s->partial, s->zero, ir_fma(b, x, x, ir_load(b, s->partial, s->zero, s->wide)));
    ir_end(b);
    return tile_sum_vector(b, ir_load(b, s->partial, s->zero, s->wide));
}

/* to = scale * x, x after its norm if there is one: weight IR_NO_ID: without weight and
 * rotation. */
static void line_make(serial *s, ir_memory from, ir_id start, ir_id weight, ir_id scale,
                      ir_memory to, ir_id at) {
    ir_builder *b = s->k.b;
    const uint32_t half = s->a->d / 2, wide = s->wide;
    ir_id factor = scale;
    if (s->a->raw) {
        ir_id mean = ir_mul(b, sum_of_squares(s, from, start), ir_f32(b, 1.0f / (float)s->a->d));
        factor = ir_mul(b, scale, ir_rsqrt(b, ir_add(b, mean, s->eps)));
    }
    factor = many(s, factor);
    if (!s->a->raw || weight == IR_NO_ID) {
        ir_id i = steps(s, s->a->d, wide);
        ir_store(b, to, ir_add(b, at, i),
                 ir_mul(b, ir_load(b, from, ir_add(b, start, i), wide), factor));
        ir_end(b);
        return;
    }
    ir_id i = steps(s, half, wide), w = ir_add(b, weight, i),
          angle = ir_add(b, s->angles_offset, i), low = ir_add(b, start, i);
    ir_id u =
        ir_mul(b, ir_mul(b, ir_load(b, from, low, wide), factor), ir_load(b, s->norms, w, wide));
    ir_id v = ir_mul(b, ir_load(b, from, tile_add(b, low, half), wide), factor);
    v = ir_mul(b, v, ir_load(b, s->norms, tile_add(b, w, half), wide));
    ir_id cosine = ir_load(b, s->angles, angle, wide),
          sine = ir_load(b, s->angles, tile_add(b, angle, half), wide);
    at = ir_add(b, at, i);
    ir_store(b, to, at, ir_sub(b, ir_mul(b, u, cosine), ir_mul(b, v, sine)));
    ir_store(b, to, tile_add(b, at, half), ir_add(b, ir_mul(b, u, sine), ir_mul(b, v, cosine)));
    ir_end(b);
}

/* The first piece has the row's own key and value, if there are any; of the first heads of a kv
 * head it stores them. */
static void own_make(serial *s) {
    ir_builder *b = s->k.b;
    const attention_task *a = s->a;
    ir_id one = ir_f32(b, 1),
          from = tile_mul(b, ir_add(b, tile_mul(b, s->row, a->n_kv), s->kv), a->d);
    ir_if(b, ir_and(b, ir_eq(b, s->piece, s->zero), s->of.is));
    line_make(s, s->key, from, s->w_k, one, s->own[0], s->own_at[0]);
    line_make(s, s->value, from, IR_NO_ID, one, s->own[1], s->own_at[1]);
    /* its score is the maximum so far, so its weight is 1 */
    for (uint32_t h = 0; h < s->heads; h++) {
        ir_store(b, s->partial, s->zero, nothing(s));
        ir_id i = steps(s, a->d, s->wide),
              x = ir_load(b, s->queries, element(s, s->queries_at, h, i), s->wide);
        ir_store(b, s->partial, s->zero,
                 ir_fma(b, x, ir_load(b, s->own[0], ir_add(b, s->own_at[0], i), s->wide),
                        ir_load(b, s->partial, s->zero, s->wide)));
        if (!s->items)
            ir_store(b, s->sums, tile_add(b, i, h * a->d), ir_load(b, s->own[1], i, s->wide));
        ir_end(b);
        ir_store(b, s->most, ir_u32(b, h),
                 tile_sum_vector(b, ir_load(b, s->partial, s->zero, s->wide)));
        ir_store(b, s->total, ir_u32(b, h), one);
    }
    ir_id stores = ir_eq(b, tile_rem(b, s->first_head, a->n_head / a->n_kv), s->zero);
    ir_if(b, stores);
    ir_id place = ir_add(b, s->of.base, tile_rem(b, s->of.last, a->n_row));
    ir_id to = tile_mul(b, ir_add(b, tile_mul(b, place, a->n_kv), s->kv), a->d);
    for (uint32_t which = 0; which < 2; which++) {
        const attention_cache *cache = which ? &s->values : &s->keys;
        const uint32_t unit = attention_cache_unit(cache, 8);
        ir_id i = steps(s, a->d, unit);
        attention_cache_store(cache, s->own[which], ir_add(b, s->own_at[which], i),
                              ir_add(b, to, i), unit);
        ir_end(b);
    }
    ir_end(b);
    ir_end(b);
}

/* ---- keys ------------------------------------------------------------------------------------ */

static ir_id partial_at(serial *s, uint32_t head, uint32_t key) {
    return ir_u32(s->k.b, (head * KEYS + key) * s->wide);
}

/* KEYS keys from `first` on; beyond the last that one again, with weight 0. */
static void turn(serial *s, ir_id first, ir_id end) {
    ir_builder *b = s->k.b;
    const attention_task *a = s->a;
    ir_id at[KEYS], from[KEYS], weights[HEADS_MAX][KEYS], keeps[HEADS_MAX], all[KEYS],
        last = tile_add(b, end, UINT32_MAX);
    for (uint32_t i = 0; i < KEYS; i++) {
        ir_id place = tile_rem(b, ir_min(b, tile_add(b, first, i), last), a->n_row);
        at[i] = attention_cache_at(&s->keys, s->of.base, place, s->kv, 1);
        from[i] = a->dense ? at[i] : attention_cache_at(&s->values, s->of.base, place, s->kv, 1);
        for (uint32_t h = 0; h < s->heads; h++)
            ir_store(b, s->partial, partial_at(s, h, i), nothing(s));
    }
    ir_id e = steps(s, a->d, s->wide);
    for (uint32_t i = 0; i < KEYS; i++)
        all[i] = attention_cache_read(&s->keys, ir_add(b, at[i], e), s->wide);
    for (uint32_t h = 0; h < s->heads; h++) {
        ir_id x = ir_load(b, s->queries, element(s, s->queries_at, h, e), s->wide);
        for (uint32_t i = 0; i < KEYS; i++) {
            ir_id p = partial_at(s, h, i);
            ir_store(b, s->partial, p, ir_fma(b, x, all[i], ir_load(b, s->partial, p, s->wide)));
        }
    }
    ir_end(b);
    for (uint32_t h = 0; h < s->heads; h++) {
        ir_id before = ir_load(b, s->most, ir_u32(b, h), 1), now = before, score[KEYS],
              sum = IR_NO_ID;
        for (uint32_t i = 0; i < KEYS; i++) {
            score[i] = tile_sum_vector(b, ir_load(b, s->partial, partial_at(s, h, i), s->wide));
            if (s->items && !a->raw) score[i] = ir_mul(b, score[i], s->scale);
            now = ir_max(b, now, score[i]);
        }
        keeps[h] = ir_exp(b, ir_sub(b, before, now));
        for (uint32_t i = 0; i < KEYS; i++) {
            ir_id p = ir_exp(b, ir_sub(b, score[i], now));
            if (i) p = ir_select(b, ir_lt(b, tile_add(b, first, i), end), p, ir_f32(b, 0));
            sum = i ? ir_add(b, sum, p) : p;
            weights[h][i] = many(s, p);
        }
        ir_store(b, s->total, ir_u32(b, h),
                 ir_fma(b, ir_load(b, s->total, ir_u32(b, h), 1), keeps[h], sum));
        ir_store(b, s->most, ir_u32(b, h), now);
        keeps[h] = many(s, keeps[h]);
    }
    e = steps(s, a->d, s->wide);
    for (uint32_t i = 0; i < KEYS; i++)
        all[i] = attention_cache_read(&s->values, ir_add(b, from[i], e), s->wide);
    for (uint32_t h = 0; h < s->heads; h++) {
        ir_id to = element(s, s->sums_at, h, e),
              sum = ir_mul(b, ir_load(b, s->sums, to, s->wide), keeps[h]);
        for (uint32_t i = 0; i < KEYS; i++) sum = ir_fma(b, all[i], weights[h][i], sum);
        ir_store(b, s->sums, to, sum);
    }
    ir_end(b);
}

static void finish(serial *s) {
    ir_builder *b = s->k.b;
    const attention_task *a = s->a;
    for (uint32_t h = 0; h < s->heads; h++) {
        ir_id place = ir_add(b, tile_mul(b, s->row, a->n_head), tile_add(b, s->first_head, h)),
              factor = IR_NO_ID;
        ir_id both[2] = {ir_load(b, s->most, ir_u32(b, h), 1),
                         ir_load(b, s->total, ir_u32(b, h), 1)};
        if (a->n_split > 1) {
            place = ir_add(b, tile_mul(b, place, a->n_split), s->piece);
            ir_store(b, s->result.stats, tile_mul(b, place, 2), ir_compose(b, both, 2));
        } else {
            factor = many(s, attention_inverse(b, both[1]));
        }
        ir_id i = steps(s, a->d, s->wide),
              x = ir_load(b, s->sums, element(s, s->sums_at, h, i), s->wide);
        ir_store(b, s->result.out, ir_fma(b, place, ir_u32(b, a->d), i),
                 a->n_split > 1 ? x : ir_mul(b, x, factor));
        ir_end(b);
    }
}

/* Elements at once: of whole vectors in every line that is read. */
static uint32_t wide_of(const tile_kernel *k, const attention_task *a) {
    const uint32_t unit = a->raw ? a->d / 2 : a->d;
    uint32_t wide = k->wide;
    while (wide > 1 && (unit % wide || !attention_reads(a, wide, wide))) wide /= 2;
    return wide;
}

beryl_status attention_serial(lowering *l, const attention_task *a) {
    const uint32_t heads = heads_of(a);
    const char *name = a->raw ? "attention_step" : "attention_serial";
    serial s = {.a = a, .items = attention_serial_items(l->caps, a), .heads = 1};
    tile_kernel *k = &s.k;
    if (s.items) tile_begin_items(k, l, name);
    else tile_begin(k, l, name, 1), s.heads = tile_choose(l, "heads", heads, 1, heads);
    ir_builder *b = k->b;
    s.wide = wide_of(k, a);
    bind(&s);
    for (uint32_t h = 0; h < s.heads; h++) {
        ir_id from = ir_add(b, s.q_at, tile_mul(b, tile_add(b, s.first_head, h), a->q_stride[1]));
        if (!s.items || a->raw)
            line_make(&s, s.q, from, s.w_q, s.scale, s.queries,
                      tile_add(b, s.queries_at, h * a->d));
        ir_store(b, s.most, ir_u32(b, h), ir_f32(b, ATTENTION_LEAST));
        ir_store(b, s.total, ir_u32(b, h), ir_f32(b, 0));
    }
    ir_id e = steps(&s, s.heads * a->d, s.wide);
    ir_store(b, s.sums, ir_add(b, s.sums_at, e), nothing(&s));
    ir_end(b);
    if (a->k) own_make(&s);
    ir_id count = ir_sub(b, s.of.end, s.of.first),
          span = tile_div(b, tile_add(b, count, a->n_split - 1), a->n_split);
    ir_id begin = ir_min(b, ir_add(b, s.of.first, ir_mul(b, s.piece, span)), s.of.end),
          end = ir_min(b, ir_add(b, begin, span), s.of.end);
    ir_id first = ir_loop(b, begin, end, ir_u32(b, KEYS));
    turn(&s, first, end);
    ir_end(b);
    finish(&s);
    if (s.items) {
        ir_end(b);
        return tile_end(k, lower_count_times(a->rows, (uint64_t)a->n_head * a->n_split), 1);
    }
    return tile_end_3d(k, (lower_count){a->n_split, 0}, 1, (lower_count){a->n_head / s.heads, 0}, 1,
                       a->rows);
}
