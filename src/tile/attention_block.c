/* attention_block.c - attention of many rows where one thread runs a workgroup and vectors are the
 * only lanes (processors): a block of rows against blocks of keys, softmax online.
 *
 * The rows of a block are lanes: queries lie as [element, row], so a score is a sum over elements
 * of an element of the key, the same in all lanes, times a vector of queries. Largest scores,
 * weights and their totals are vectors too, and no sum runs across lanes. Sums of values lie as
 * [element, row] until they are done. A key or value that is read serves all rows, and becomes f32
 * once. */
#include "tile/attention_block.h"
#include "base/error.h"

enum { PART = 128 /* elements that are summed one after another */ };

typedef struct form {
    uint32_t wide, vectors, each, keys; /* lanes of a vector; vectors of rows; ... */
    uint32_t rows, group, queries;      /* of a block; group: heads */
} form;

typedef struct block {
    tile_kernel k;
    const attention_task *a;
    form f;
    block_vectors v; /* of rows; each: keys, and elements of values */
    uint32_t reads;  /* elements of a line at once */
    attention_cache keys, values;
    attention_rows rows;
    ir_memory q, out;
    /* workgroup: queries and sums [d, rows]; a block of keys, then of values [keys, d]; scores,
     * then weights [keys, rows] */
    ir_memory queries, sums, lines, weights;
    ir_memory most, total, keep; /* registers [rows] */
    ir_id q_offset, scale;
} block;

static bool form_of(const device_caps *caps, const attention_task *a, form *f) {
    const uint32_t heads = a->n_head / a->n_kv;
    *f = (form){.wide = TILE_RUN,
                .vectors = BLOCK_VECTORS_MAX,
                .keys = a->d >= BLOCK_FAR ? BLOCK_OTHERS_FAR : BLOCK_OTHERS};
    f->each = a->d % BLOCK_EACH_MAX ? 4 : BLOCK_EACH_MAX;
    for (;; f->vectors--) {
        f->rows = f->wide * f->vectors;
        f->group = whole_divisor(heads, f->rows);
        f->queries = f->rows / f->group;
        const uint64_t groups = (uint64_t)whole_over(a->n, f->queries) * (a->n_head / f->group);
        if (f->vectors == 1 || groups >= BLOCK_GROUPS_A_UNIT * caps->compute_units) break;
    }
    const uint64_t floats = (uint64_t)2 * a->d * f->rows + f->keys * (a->d + f->rows);
    return floats * 4 <= caps->workgroup_bytes;
}

bool attention_block_fits(const device_caps *caps, const attention_task *a) {
    form f;
    return device_is_compiled(caps) && !a->raw && attention_cache_known(a) &&
           a->n_head % a->n_kv == 0 && a->d % 4 == 0 && attention_reads(a, 4, 4) &&
           form_of(caps, a, &f);
}

static void bind(block *x) {
    tile_kernel *k = &x->k;
    ir_builder *b = k->b;
    const attention_task *a = x->a;
    const form *f = &x->f;
    x->q = tile_read(k, "q", a->q);
    attention_caches_bind(&x->keys, &x->values, k, a, true);
    x->out = tile_write(k, "out", a->out);
    x->q_offset = tile_u32(k, "q_offset", a->q_offset);
    x->scale = tile_f32(k, "scale", a->scale);
    x->queries = ir_workgroup(b, IR_F32, a->d * f->rows);
    x->sums = ir_workgroup(b, IR_F32, a->d * f->rows);
    x->lines = ir_workgroup(b, IR_F32, f->keys * a->d);
    x->weights = ir_workgroup(b, IR_F32, f->keys * f->rows);
    ir_memory *const of_rows[] = {&x->most, &x->total, &x->keep};
    for (uint32_t i = 0; i < 3; i++) *of_rows[i] = ir_register(b, IR_F32, f->rows);
    x->v = (block_vectors){
        .k = k, .wide = f->wide, .n = f->vectors, .lines = f->rows, .each = f->each};
    block_bind(&x->v);
    x->rows = (attention_rows){.spare = f->queries * f->group != f->rows,
                               .each = f->rows,
                               .queries = f->queries,
                               .group = f->group,
                               .looped = true,
                               .lane_rows = x->v.zero};
    attention_rows_bind(&x->rows, k, a);
    x->reads = f->wide;
    while (a->d % x->reads || !attention_reads(a, x->reads, x->reads)) x->reads /= 2;
}

/* ---- lines ----------------------------------------------------------------------------------- */

/* Query and head of a row; rows that have no query: those of the last one. */
static ir_id query_of(block *x, ir_id row) {
    return ir_min(x->k.b, tile_div(x->k.b, row, x->f.group),
                  tile_add(x->k.b, x->rows.n_query, UINT32_MAX));
}

static ir_id head_of(block *x, ir_id row) {
    return ir_add(x->k.b, x->rows.first_head, tile_rem(x->k.b, row, x->f.group));
}

/* Queries, times the scale; no sums yet. */
static void begin(block *x) {
    ir_builder *b = x->k.b;
    const attention_task *a = x->a;
    ir_id row = block_steps(&x->v, x->f.rows, 1);
    ir_id query = ir_add(b, x->rows.first_query, query_of(x, row));
    ir_id from =
        ir_add(b, tile_mul(b, query, a->q_stride[0]), tile_mul(b, head_of(x, row), a->q_stride[1]));
    from = ir_add(b, from, x->q_offset);
    ir_id e = block_steps(&x->v, a->d, x->reads);
    ir_id line =
        ir_mul(b, ir_load(b, x->q, ir_add(b, from, e), x->reads), ir_splat(b, x->scale, x->reads));
    for (uint32_t i = 0; i < x->reads; i++)
        ir_store(b, x->queries, ir_add(b, block_at(&x->v, tile_add(b, e, i), 0), row),
                 ir_extract(b, line, i));
    ir_end(b);
    ir_end(b);
    for (uint32_t v = 0; v < x->f.vectors; v++) {
        ir_store(b, x->most, ir_u32(b, v * x->f.wide), block_number(&x->v, ATTENTION_NO_KEYS));
        ir_store(b, x->total, ir_u32(b, v * x->f.wide), block_number(&x->v, 0));
    }
    e = block_steps(&x->v, a->d * x->f.rows, x->f.wide);
    ir_store(b, x->sums, e, block_number(&x->v, 0));
    ir_end(b);
}

/* Keys or values from `first` on, of a block. */
static void fetch(block *x, const attention_cache *cache, ir_id first) {
    ir_builder *b = x->k.b;
    ir_id key = block_steps(&x->v, x->f.keys, 1);
    ir_id from = attention_rows_key(&x->rows, cache, ir_add(b, first, key)),
          to = tile_mul(b, key, x->a->d);
    ir_id e = block_steps(&x->v, x->a->d, x->reads);
    ir_store(b, x->lines, ir_add(b, to, e),
             attention_cache_read(cache, ir_add(b, from, e), x->reads));
    ir_end(b);
    ir_end(b);
}

/* ---- a block of keys ------------------------------------------------------------------------- */

/* By parts of the elements: long sums of one number after another lose bits. */
static void score(block *x) {
    ir_builder *b = x->k.b;
    const form *f = &x->f;
    const uint32_t d = x->a->d, n = f->vectors * f->each;
    ir_id key = block_steps(&x->v, f->keys, f->each), from = tile_mul(b, key, d);
    ir_id first = tile_mul(b, key, f->rows);
    for (uint32_t i = 0; d > PART && i < n; i++)
        ir_store(b, x->weights, tile_add(b, first, i * f->wide), block_number(&x->v, 0));
    ir_id base = d > PART ? block_steps(&x->v, d, PART) : x->v.zero;
    for (uint32_t i = 0; i < n; i++) ir_store(b, x->v.part[i], x->v.zero, block_number(&x->v, 0));
    ir_id end = ir_min(b, tile_add(b, base, PART), ir_u32(b, d)),
          e = ir_loop(b, base, end, ir_u32(b, 1));
    block_add(&x->v, x->queries, e, x->lines, ir_add(b, from, e), d);
    ir_end(b);
    for (uint32_t i = 0; i < n; i++) {
        ir_id to = tile_add(b, first, i * f->wide),
              sum = block_load(&x->v, x->v.part[i % f->vectors * f->each + i / f->vectors],
                               x->v.zero);
        if (d > PART) sum = ir_add(b, sum, block_load(&x->v, x->weights, to));
        ir_store(b, x->weights, to, sum);
    }
    if (d > PART) ir_end(b);
    ir_end(b);
}

/* Where some row does not see some key of the block. */
static void mask(block *x, ir_id first) {
    ir_builder *b = x->k.b;
    ir_if(b, ir_not(b, attention_rows_all_see(&x->rows, first, x->f.keys)));
    ir_id key = block_steps(&x->v, x->f.keys, 1), place = block_many(&x->v, ir_add(b, first, key));
    for (uint32_t v = 0; v < x->f.vectors; v++) {
        ir_id at = block_at(&x->v, key, v);
        ir_id sees = ir_and(b, ir_ge(b, place, block_of(&x->v, x->rows.low, v)),
                            ir_le(b, place, block_of(&x->v, x->rows.high, v)));
        ir_store(b, x->weights, at,
                 ir_select(b, sees, block_load(&x->v, x->weights, at),
                           block_number(&x->v, ATTENTION_MASKED)));
    }
    ir_end(b);
    ir_end(b);
}

/* Scores become weights; keep: what becomes of the sums before. */
static void soften(block *x) {
    ir_builder *b = x->k.b;
    for (uint32_t v = 0; v < x->f.vectors; v++) {
        ir_id own = ir_u32(b, v * x->f.wide), before = block_of(&x->v, x->most, v);
        ir_id key = block_steps(&x->v, x->f.keys, 1);
        ir_store(b, x->most, own,
                 ir_max(b, block_of(&x->v, x->most, v),
                        block_load(&x->v, x->weights, block_at(&x->v, key, v))));
        ir_end(b);
        ir_id now = block_of(&x->v, x->most, v), keep = ir_exp(b, ir_sub(b, before, now));
        ir_store(b, x->keep, own, keep);
        ir_store(b, x->total, own, ir_mul(b, block_of(&x->v, x->total, v), keep));
        key = block_steps(&x->v, x->f.keys, 1);
        ir_id at = block_at(&x->v, key, v),
              weight = ir_exp(b, ir_sub(b, block_load(&x->v, x->weights, at), now));
        ir_store(b, x->weights, at, weight);
        ir_store(b, x->total, own, ir_add(b, block_of(&x->v, x->total, v), weight));
        ir_end(b);
    }
}

static void add_values(block *x) {
    ir_builder *b = x->k.b;
    const form *f = &x->f;
    ir_id e = block_steps(&x->v, x->a->d, f->each);
    for (uint32_t i = 0; i < f->each; i++)
        for (uint32_t v = 0; v < f->vectors; v++)
            ir_store(b, x->v.part[v * f->each + i], x->v.zero,
                     ir_mul(b, block_load(&x->v, x->sums, block_at(&x->v, tile_add(b, e, i), v)),
                            block_of(&x->v, x->keep, v)));
    ir_id key = block_steps(&x->v, f->keys, 1);
    block_add(&x->v, x->weights, key, x->lines, ir_add(b, tile_mul(b, key, x->a->d), e), 1);
    ir_end(b);
    for (uint32_t i = 0; i < f->each; i++)
        for (uint32_t v = 0; v < f->vectors; v++)
            ir_store(b, x->sums, block_at(&x->v, tile_add(b, e, i), v),
                     block_load(&x->v, x->v.part[v * f->each + i], x->v.zero));
    ir_end(b);
}

static void finish(block *x) {
    ir_builder *b = x->k.b;
    ir_id row = block_steps(&x->v, x->f.rows, 1), query = tile_div(b, row, x->f.group);
    ir_if(b, ir_lt(b, query, x->rows.n_query));
    ir_id factor = attention_inverse(b, ir_load(b, x->total, row, 1));
    ir_id to = ir_add(b, tile_mul(b, ir_add(b, x->rows.first_query, query), x->a->n_head),
                      head_of(x, row));
    to = tile_mul(b, to, x->a->d);
    ir_id e = block_steps(&x->v, x->a->d, 1);
    ir_store(b, x->out, ir_add(b, to, e),
             ir_mul(b, ir_load(b, x->sums, ir_add(b, block_at(&x->v, e, 0), row), 1), factor));
    ir_end(b);
    ir_end(b);
    ir_end(b);
}

beryl_status attention_block(lowering *l, const attention_task *a) {
    block x = {.a = a};
    tile_kernel *k = &x.k;
    if (!form_of(l->caps, a, &x.f)) return lower_refuse(l, l->node, "heads of this shape");
    ir_builder *b = tile_begin(k, l, "attention_block", 1);
    bind(&x);
    begin(&x);
    attention_rows_begin(&x.rows);
    ir_id first = ir_loop(b, ir_get(b, x.rows.from), tile_add(b, ir_get(b, x.rows.to), 1),
                          ir_u32(b, x.f.keys));
    fetch(&x, &x.keys, first);
    score(&x);
    mask(&x, first);
    soften(&x);
    fetch(&x, &x.values, first);
    add_values(&x);
    ir_end(b);
    attention_rows_end(&x.rows);
    finish(&x);
    return tile_end_3d(k, a->rows, x.f.queries, (lower_count){a->n_head / x.f.group, 0}, 1,
                       (lower_count){1, 0});
}
