/* attention_shuffle.c - attention of many rows where a workgroup's lanes are a thread's vectors
 * and what a lane loads costs many times what it computes, also where all lanes load the same
 * (llvmpipe): a workgroup is a subgroup, its lanes have rows = (query, head of the few
 * that share a kv head). Of a block of as many keys as there are lanes each lane loads one, and
 * gets the others' numbers by shuffles. Queries, scores and sums are registers, softmax online. */
#include "tile/attention.h"

enum {
    FOUR = 4,
    LANES = 8,        /* of four, SwiftShader's, it is a tenth faster and compiles for a second */
    EACH_MAX = 2,     /* rows of a lane */
    ELEMENTS_MAX = 64 /* of all its rows: a longer text compiles longer than it runs */
};

typedef struct form {
    uint32_t lanes, each, group, queries; /* of a workgroup; group: heads */
} form;

typedef struct shuffle {
    tile_kernel k;
    const attention_task *a;
    form f;
    attention_cache keys, values;
    attention_rows rows;
    ir_memory q, out;
    ir_memory queries, sums;       /* registers [each, d] */
    ir_memory scores, most, total; /* registers [each, lanes], [each], [each] */
    ir_id q_offset, scale, lane;
} shuffle;

static bool form_of(const device_caps *caps, const attention_task *a, form *f) {
    const uint32_t heads = a->n_head / a->n_kv;
    *f = (form){.lanes = caps->subgroup_size, .each = ELEMENTS_MAX / a->d};
    if (f->each > EACH_MAX) f->each = EACH_MAX;
    if (!f->each) return false;
    const uint32_t rows = f->lanes * f->each;
    f->group = whole_divisor(heads, rows);
    f->queries = rows / f->group;
    /* of a turn; each query may have its own */
    const uint64_t turns = a->keys / f->lanes + 1 + f->queries;
    return !caps->loop_max || turns * f->queries < caps->loop_max;
}

bool attention_shuffle_fits(const device_caps *caps, const attention_task *a) {
    form f;
    return device_makes_vectors(caps) && caps->subgroups && caps->subgroup_size == LANES &&
           !a->raw && attention_cache_known(a) && a->n_head % a->n_kv == 0 && a->d % FOUR == 0 &&
           attention_reads(a, FOUR, FOUR) && form_of(caps, a, &f);
}

/* Element i of row r in registers of `n` a row. */
static ir_id at(shuffle *x, uint32_t r, uint32_t n, uint32_t i) {
    return ir_u32(x->k.b, r * n + i);
}

static ir_id get(shuffle *x, ir_memory from, uint32_t i) {
    return ir_load(x->k.b, from, ir_u32(x->k.b, i), 1);
}

static void set(shuffle *x, ir_memory to, uint32_t i, ir_id value) {
    ir_store(x->k.b, to, ir_u32(x->k.b, i), value);
}

static void bind(shuffle *x) {
    tile_kernel *k = &x->k;
    ir_builder *b = k->b;
    const attention_task *a = x->a;
    const form *f = &x->f;
    x->q = tile_read(k, "q", a->q);
    attention_caches_bind(&x->keys, &x->values, k, a, true);
    x->out = tile_write(k, "out", a->out);
    x->q_offset = tile_u32(k, "q_offset", a->q_offset);
    x->scale = tile_f32(k, "scale", a->scale);
    x->lane = ir_subgroup_lane(b);
    x->queries = ir_register(b, IR_F32, f->each * a->d);
    x->sums = ir_register(b, IR_F32, f->each * a->d);
    x->scores = ir_register(b, IR_F32, f->each * f->lanes);
    x->most = ir_register(b, IR_F32, f->each);
    x->total = ir_register(b, IR_F32, f->each);
    x->rows = (attention_rows){.spare = f->queries * f->group != f->lanes * f->each,
                               .each = f->each,
                               .queries = f->queries,
                               .group = f->group,
                               .lane_rows = x->lane};
    attention_rows_bind(&x->rows, k, a);
}

/* Query of the lane's row r within the workgroup, and its head. */
static ir_id query_of(shuffle *x, uint32_t r, ir_id *head) {
    ir_builder *b = x->k.b;
    ir_id row = tile_add(b, tile_mul(b, x->lane, x->f.each), r);
    *head = ir_add(b, x->rows.first_head, tile_rem(b, row, x->f.group));
    return tile_div(b, row, x->f.group);
}

/* Rows that have no query have those of the last one. */
static void begin(shuffle *x) {
    ir_builder *b = x->k.b;
    const attention_task *a = x->a;
    for (uint32_t r = 0; r < x->f.each; r++) {
        ir_id head, query = query_of(x, r, &head);
        query = ir_min(b, query, tile_add(b, x->rows.n_query, UINT32_MAX));
        query = ir_add(b, x->rows.first_query, query);
        ir_id from =
            ir_add(b, tile_mul(b, query, a->q_stride[0]), tile_mul(b, head, a->q_stride[1]));
        from = ir_add(b, from, x->q_offset);
        for (uint32_t e = 0; e < a->d; e += FOUR) {
            ir_id line = ir_load(b, x->q, tile_add(b, from, e), FOUR);
            ir_store(b, x->queries, at(x, r, a->d, e),
                     ir_mul(b, line, ir_splat(b, x->scale, FOUR)));
            ir_store(b, x->sums, at(x, r, a->d, e), ir_number(b, IR_F32, FOUR, 0));
        }
        set(x, x->most, r, ir_f32(b, ATTENTION_NO_KEYS));
        set(x, x->total, r, ir_f32(b, 0));
    }
}

static void score(shuffle *x, ir_id from) {
    ir_builder *b = x->k.b;
    const form *f = &x->f;
    const uint32_t d = x->a->d;
    for (uint32_t i = 0; i < f->each * f->lanes; i++) set(x, x->scores, i, ir_f32(b, 0));
    ir_id own = IR_NO_ID;
    for (uint32_t e = 0; e < d; e++) {
        if (e % FOUR == 0) own = attention_cache_read(&x->keys, tile_add(b, from, e), FOUR);
        ir_id mine = ir_extract(b, own, e % FOUR);
        for (uint32_t key = 0; key < f->lanes; key++) {
            ir_id y = ir_subgroup_broadcast(b, mine, key);
            for (uint32_t r = 0; r < f->each; r++) {
                const uint32_t to = r * f->lanes + key;
                set(x, x->scores, to,
                    ir_fma(b, get(x, x->queries, r * d + e), y, get(x, x->scores, to)));
            }
        }
    }
}

/* Where some row does not see some key of the block. */
static void mask(shuffle *x, ir_id first) {
    ir_builder *b = x->k.b;
    const uint32_t lanes = x->f.lanes;
    ir_if(b, ir_not(b, attention_rows_all_see(&x->rows, first, lanes)));
    for (uint32_t i = 0; i < x->f.each * lanes; i++) {
        ir_id key = tile_add(b, first, i % lanes), r = ir_u32(b, i / lanes);
        ir_id sees = ir_and(b, ir_ge(b, key, ir_load(b, x->rows.low, r, 1)),
                            ir_le(b, key, ir_load(b, x->rows.high, r, 1)));
        set(x, x->scores, i, ir_select(b, sees, get(x, x->scores, i), ir_f32(b, ATTENTION_MASKED)));
    }
    ir_end(b);
}

/* Scores become weights; sums so far what they are beside these. */
static void soften(shuffle *x) {
    ir_builder *b = x->k.b;
    const uint32_t lanes = x->f.lanes, d = x->a->d;
    for (uint32_t r = 0; r < x->f.each; r++) {
        ir_id before = get(x, x->most, r), now = before, sum;
        for (uint32_t i = 0; i < lanes; i++) now = ir_max(b, now, get(x, x->scores, r * lanes + i));
        ir_id keep = ir_exp(b, ir_sub(b, before, now));
        sum = ir_mul(b, get(x, x->total, r), keep);
        for (uint32_t i = 0; i < lanes; i++) {
            ir_id weight = ir_exp(b, ir_sub(b, get(x, x->scores, r * lanes + i), now));
            set(x, x->scores, r * lanes + i, weight);
            sum = ir_add(b, sum, weight);
        }
        set(x, x->most, r, now);
        set(x, x->total, r, sum);
        for (uint32_t e = 0; e < d; e++)
            set(x, x->sums, r * d + e, ir_mul(b, get(x, x->sums, r * d + e), keep));
    }
}

static void add_values(shuffle *x, ir_id from) {
    ir_builder *b = x->k.b;
    const form *f = &x->f;
    const uint32_t d = x->a->d;
    ir_id own = IR_NO_ID;
    for (uint32_t e = 0; e < d; e++) {
        if (e % FOUR == 0) own = attention_cache_read(&x->values, tile_add(b, from, e), FOUR);
        ir_id mine = ir_extract(b, own, e % FOUR);
        for (uint32_t key = 0; key < f->lanes; key++) {
            ir_id y = ir_subgroup_broadcast(b, mine, key);
            for (uint32_t r = 0; r < f->each; r++)
                set(x, x->sums, r * d + e,
                    ir_fma(b, get(x, x->scores, r * f->lanes + key), y,
                           get(x, x->sums, r * d + e)));
        }
    }
}

static void finish(shuffle *x) {
    ir_builder *b = x->k.b;
    const attention_task *a = x->a;
    for (uint32_t r = 0; r < x->f.each; r++) {
        ir_id head, query = query_of(x, r, &head);
        ir_if(b, ir_lt(b, query, x->rows.n_query));
        ir_id factor = ir_splat(b, attention_inverse(b, get(x, x->total, r)), FOUR);
        ir_id to = ir_add(b, tile_mul(b, ir_add(b, x->rows.first_query, query), a->n_head), head);
        to = tile_mul(b, to, a->d);
        for (uint32_t e = 0; e < a->d; e += FOUR)
            ir_store(b, x->out, tile_add(b, to, e),
                     ir_mul(b, ir_load(b, x->sums, at(x, r, a->d, e), FOUR), factor));
        ir_end(b);
    }
}

beryl_status attention_shuffle(lowering *l, const attention_task *a) {
    shuffle x = {.a = a};
    tile_kernel *k = &x.k;
    if (!form_of(l->caps, a, &x.f)) return lower_refuse(l, l->node, "heads of this shape");
    ir_builder *b = tile_begin(k, l, "attention_shuffle", x.f.lanes);
    ir_subgroup(b, x.f.lanes);
    bind(&x);
    begin(&x);
    attention_rows_begin(&x.rows);
    ir_id first = ir_loop(b, ir_get(b, x.rows.from), tile_add(b, ir_get(b, x.rows.to), 1),
                          ir_u32(b, x.f.lanes));
    ir_id own = ir_add(b, first, x.lane);
    score(&x, attention_rows_key(&x.rows, &x.keys, own));
    mask(&x, first);
    soften(&x);
    add_values(&x, attention_rows_key(&x.rows, &x.values, own));
    ir_end(b);
    attention_rows_end(&x.rows);
    finish(&x);
    return tile_end_3d(k, a->rows, x.f.queries, (lower_count){a->n_head / x.f.group, 0}, 1,
                       (lower_count){1, 0});
}
