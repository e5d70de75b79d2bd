/* attention_block.c - attention of many rows where one thread runs a workgroup and vectors are the
 * only lanes (processors): a block of rows against blocks of keys, softmax online.
 *
 * The rows of a block are lanes: queries lie as [element, row], so a score is a sum over elements
 * of an element of the key, the same in all lanes, times a vector of queries. Largest scores,
 * weights and their totals are vectors too, and no sum runs across lanes. Sums of values lie as
 * [element, row] until they are done. A key or value that is read serves all rows, and becomes f32
 * once. */
#include "tile/attention.h"
#include "base/error.h"

enum {
    VECTORS_MAX = 2,   /* of rows */
    EACH_MAX = 8,      /* keys, and elements of values, whose sums are in registers */
    KEYS = 32,         /* of a block; */
    KEYS_FAR = 16,     /* of long heads, */
    FAR = 256,         /* which have so many elements */
    PART = 128,        /* elements that are summed one after another */
    GROUPS_A_UNIT = 2, /* workgroups, */
    UNITS = 8          /* where the device tells no number of threads */
};

typedef struct form {
    uint32_t wide, vectors, each, keys; /* lanes of a vector; vectors of rows; ... */
    uint32_t rows, group, queries;      /* of a block; group: heads */
} form;

typedef struct block {
    tile_kernel k;
    const attention_task *a;
    form f;
    uint32_t reads; /* elements of a line at once */
    attention_cache keys, values;
    attention_rows rows;
    ir_memory q, out;
    /* workgroup: queries and sums [d, rows]; a block of keys, then of values [keys, d]; scores,
     * then weights [keys, rows] */
    ir_memory queries, sums, lines, weights;
    ir_memory most, total, keep;            /* registers [rows] */
    ir_memory part[VECTORS_MAX * EACH_MAX]; /* registers [wide] */
    ir_id q_offset, scale, zero;
} block;

static bool form_of(const device_caps *caps, const attention_task *a, form *f) {
    const uint32_t heads = a->n_head / a->n_kv,
                   units = caps->compute_units ? caps->compute_units : UNITS;
    *f = (form){.wide = TILE_RUN, .vectors = VECTORS_MAX, .keys = a->d >= FAR ? KEYS_FAR : KEYS};
    f->each = a->d % EACH_MAX ? 4 : EACH_MAX;
    for (;; f->vectors--) {
        f->rows = f->wide * f->vectors;
        f->group = heads < f->rows ? heads : f->rows;
        while (heads % f->group) f->group--;
        f->queries = f->rows / f->group;
        const uint64_t groups =
            (uint64_t)((a->n + f->queries - 1) / f->queries) * (a->n_head / f->group);
        if (f->vectors == 1 || groups >= GROUPS_A_UNIT * units) break;
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

static ir_id constant(block *x, uint32_t n) {
    return ir_u32(x->k.b, n);
}

static ir_id steps(block *x, uint32_t n, uint32_t step) {
    return ir_loop(x->k.b, x->zero, constant(x, n), constant(x, step));
}

static ir_id many(block *x, ir_id value) {
    return ir_splat(x->k.b, value, x->f.wide);
}

static ir_id number(block *x, float value) {
    return ir_number(x->k.b, IR_F32, x->f.wide, (double)value);
}

/* Of [.., rows]: where vector v of line i begins. */
static ir_id line_at(block *x, ir_id i, uint32_t v) {
    return tile_add(&x->k, tile_mul(&x->k, i, x->f.rows), v * x->f.wide);
}

static ir_id vector_load(block *x, ir_memory from, ir_id at) {
    return ir_load(x->k.b, from, at, x->f.wide);
}

/* Vector v of a register array of all rows. */
static ir_id of_rows(block *x, ir_memory from, uint32_t v) {
    return vector_load(x, from, constant(x, v * x->f.wide));
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
    for (uint32_t i = 0; i < f->vectors * f->each; i++)
        x->part[i] = ir_register(b, IR_F32, f->wide);
    x->zero = ir_u32(b, 0);
    x->rows = (attention_rows){.spare = f->queries * f->group != f->rows,
                               .each = f->rows,
                               .queries = f->queries,
                               .group = f->group,
                               .looped = true,
                               .lane_rows = x->zero};
    attention_rows_bind(&x->rows, k, a);
    x->reads = f->wide;
    while (a->d % x->reads || !attention_reads(a, x->reads, x->reads)) x->reads /= 2;
}

/* ---- lines ----------------------------------------------------------------------------------- */

/* Query and head of a row; rows that have no query: those of the last one. */
static ir_id query_of(block *x, ir_id row) {
    return ir_min(x->k.b, tile_div(&x->k, row, x->f.group),
                  tile_add(&x->k, x->rows.n_query, UINT32_MAX));
}

static ir_id head_of(block *x, ir_id row) {
    return ir_add(x->k.b, x->rows.first_head, tile_rem(&x->k, row, x->f.group));
}

/* Queries, times the scale; no sums yet. */
static void begin(block *x) {
    tile_kernel *k = &x->k;
    ir_builder *b = k->b;
    const attention_task *a = x->a;
    ir_id row = steps(x, x->f.rows, 1);
    ir_id query = ir_add(b, x->rows.first_query, query_of(x, row));
    ir_id from =
        ir_add(b, tile_mul(k, query, a->q_stride[0]), tile_mul(k, head_of(x, row), a->q_stride[1]));
    from = ir_add(b, from, x->q_offset);
    ir_id e = steps(x, a->d, x->reads);
    ir_id line =
        ir_mul(b, ir_load(b, x->q, ir_add(b, from, e), x->reads), ir_splat(b, x->scale, x->reads));
    for (uint32_t i = 0; i < x->reads; i++)
        ir_store(b, x->queries, ir_add(b, line_at(x, tile_add(k, e, i), 0), row),
                 ir_extract(b, line, i));
    ir_end(b);
    ir_end(b);
    for (uint32_t v = 0; v < x->f.vectors; v++) {
        ir_store(b, x->most, constant(x, v * x->f.wide), number(x, ATTENTION_NO_KEYS));
        ir_store(b, x->total, constant(x, v * x->f.wide), number(x, 0));
    }
    e = steps(x, a->d * x->f.rows, x->f.wide);
    ir_store(b, x->sums, e, number(x, 0));
    ir_end(b);
}

/* Keys or values from `first` on, of a block. */
static void fetch(block *x, const attention_cache *cache, ir_id first) {
    tile_kernel *k = &x->k;
    ir_builder *b = k->b;
    ir_id key = steps(x, x->f.keys, 1);
    ir_id from = attention_rows_key(&x->rows, cache, ir_add(b, first, key)),
          to = tile_mul(k, key, x->a->d);
    ir_id e = steps(x, x->a->d, x->reads);
    ir_store(b, x->lines, ir_add(b, to, e),
             attention_cache_read(cache, ir_add(b, from, e), x->reads));
    ir_end(b);
    ir_end(b);
}

/* ---- a block of keys ------------------------------------------------------------------------- */

/* part[v, i] += vector v at `vectors` * the number i at `numbers`, `stride` apart. */
static void add_products(block *x, ir_memory vectors, ir_id line, ir_id numbers, uint32_t stride) {
    ir_builder *b = x->k.b;
    const form *f = &x->f;
    ir_id own[VECTORS_MAX];
    for (uint32_t v = 0; v < f->vectors; v++) own[v] = vector_load(x, vectors, line_at(x, line, v));
    for (uint32_t i = 0; i < f->each; i++) {
        ir_id y = many(x, ir_load(b, x->lines, tile_add(&x->k, numbers, i * stride), 1));
        for (uint32_t v = 0; v < f->vectors; v++) {
            ir_memory to = x->part[v * f->each + i];
            ir_store(b, to, x->zero, ir_fma(b, own[v], y, vector_load(x, to, x->zero)));
        }
    }
}

/* By parts of the elements: long sums of one number after another lose bits. */
static void score(block *x) {
    tile_kernel *k = &x->k;
    ir_builder *b = k->b;
    const form *f = &x->f;
    const uint32_t d = x->a->d, n = f->vectors * f->each;
    ir_id key = steps(x, f->keys, f->each), from = tile_mul(k, key, d);
    ir_id first = tile_mul(k, key, f->rows);
    for (uint32_t i = 0; d > PART && i < n; i++)
        ir_store(b, x->weights, tile_add(k, first, i * f->wide), number(x, 0));
    ir_id base = d > PART ? steps(x, d, PART) : x->zero;
    for (uint32_t i = 0; i < n; i++) ir_store(b, x->part[i], x->zero, number(x, 0));
    ir_id end = ir_min(b, tile_add(k, base, PART), constant(x, d)),
          e = ir_loop(b, base, end, constant(x, 1));
    add_products(x, x->queries, e, ir_add(b, from, e), d);
    ir_end(b);
    for (uint32_t i = 0; i < n; i++) {
        ir_id to = tile_add(k, first, i * f->wide),
              sum = vector_load(x, x->part[i % f->vectors * f->each + i / f->vectors], x->zero);
        if (d > PART) sum = ir_add(b, sum, vector_load(x, x->weights, to));
        ir_store(b, x->weights, to, sum);
    }
    if (d > PART) ir_end(b);
    ir_end(b);
}

/* Where some row does not see some key of the block. */
static void mask(block *x, ir_id first) {
    tile_kernel *k = &x->k;
    ir_builder *b = k->b;
    ir_id whole =
        ir_and(b, ir_ge(b, first, ir_get(b, x->rows.inner_low)),
               ir_le(b, tile_add(k, first, x->f.keys - 1), ir_get(b, x->rows.inner_high)));
    ir_if(b, ir_not(b, whole));
    ir_id key = steps(x, x->f.keys, 1), place = many(x, ir_add(b, first, key));
    for (uint32_t v = 0; v < x->f.vectors; v++) {
        ir_id at = line_at(x, key, v);
        ir_id sees = ir_and(b, ir_ge(b, place, of_rows(x, x->rows.low, v)),
                            ir_le(b, place, of_rows(x, x->rows.high, v)));
        ir_store(b, x->weights, at,
                 ir_select(b, sees, vector_load(x, x->weights, at), number(x, ATTENTION_MASKED)));
    }
    ir_end(b);
    ir_end(b);
}

/* Scores become weights; keep: what becomes of the sums before. */
static void soften(block *x) {
    ir_builder *b = x->k.b;
    for (uint32_t v = 0; v < x->f.vectors; v++) {
        ir_id own = constant(x, v * x->f.wide), before = of_rows(x, x->most, v);
        ir_id key = steps(x, x->f.keys, 1);
        ir_store(b, x->most, own,
                 ir_max(b, of_rows(x, x->most, v), vector_load(x, x->weights, line_at(x, key, v))));
        ir_end(b);
        ir_id now = of_rows(x, x->most, v), keep = ir_exp(b, ir_sub(b, before, now));
        ir_store(b, x->keep, own, keep);
        ir_store(b, x->total, own, ir_mul(b, of_rows(x, x->total, v), keep));
        key = steps(x, x->f.keys, 1);
        ir_id at = line_at(x, key, v),
              weight = ir_exp(b, ir_sub(b, vector_load(x, x->weights, at), now));
        ir_store(b, x->weights, at, weight);
        ir_store(b, x->total, own, ir_add(b, of_rows(x, x->total, v), weight));
        ir_end(b);
    }
}

static void add_values(block *x) {
    ir_builder *b = x->k.b;
    const form *f = &x->f;
    ir_id e = steps(x, x->a->d, f->each);
    for (uint32_t i = 0; i < f->each; i++)
        for (uint32_t v = 0; v < f->vectors; v++)
            ir_store(b, x->part[v * f->each + i], x->zero,
                     ir_mul(b, vector_load(x, x->sums, line_at(x, tile_add(&x->k, e, i), v)),
                            of_rows(x, x->keep, v)));
    ir_id key = steps(x, f->keys, 1);
    add_products(x, x->weights, key, ir_add(b, tile_mul(&x->k, key, x->a->d), e), 1);
    ir_end(b);
    for (uint32_t i = 0; i < f->each; i++)
        for (uint32_t v = 0; v < f->vectors; v++)
            ir_store(b, x->sums, line_at(x, tile_add(&x->k, e, i), v),
                     vector_load(x, x->part[v * f->each + i], x->zero));
    ir_end(b);
}

static void finish(block *x) {
    tile_kernel *k = &x->k;
    ir_builder *b = k->b;
    ir_id row = steps(x, x->f.rows, 1), query = tile_div(k, row, x->f.group);
    ir_if(b, ir_lt(b, query, x->rows.n_query));
    ir_id factor = attention_inverse(k, ir_load(b, x->total, row, 1));
    ir_id to = ir_add(b, tile_mul(k, ir_add(b, x->rows.first_query, query), x->a->n_head),
                      head_of(x, row));
    to = tile_mul(k, to, x->a->d);
    ir_id e = steps(x, x->a->d, 1);
    ir_store(b, x->out, ir_add(b, to, e),
             ir_mul(b, ir_load(b, x->sums, ir_add(b, line_at(x, e, 0), row), 1), factor));
    ir_end(b);
    ir_end(b);
    ir_end(b);
}

beryl_status attention_block(lowering *l, const graph_node *node, const attention_task *a,
                             beryl_error *error) {
    block x = {.a = a};
    tile_kernel *k = &x.k;
    if (!form_of(l->caps, a, &x.f)) return lower_refuse(l, node, "heads of this shape", error);
    tile_begin(k, l, node, "attention_block", 1);
    ir_builder *b = k->b;
    bind(&x);
    begin(&x);
    attention_rows_begin(&x.rows);
    ir_id first = ir_loop(b, ir_get(b, x.rows.from), tile_add(k, ir_get(b, x.rows.to), 1),
                          constant(&x, x.f.keys));
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
                       (lower_count){1, 0}, 1, error);
}
