/* attention_matrix.c - attention of many rows on matrix units: a tile of rows against tiles of
 * keys, both in halves, sums in f32. For F16 caches, and for values of the run where a plan may be
 * fast.
 *
 * Queries times the scale stay in workgroup memory, tiles of keys and values take turns in two
 * places of it, from F16 by asynchronous copies. What a fragment holds can be scaled by rows only
 * through memory, so keys are walked twice: first scores for their maximum alone, then scores
 * again, weights of halves, and their product with the values. Lanes beside each other share a
 * row. */
#include "tile/attention.h"
#include "base/build.h"
#include "base/error.h"

enum {
    ROWS = 16, /* of a fragment; */
    TILE = 8,  /* its columns; */
    DEPTH = 16,
    LANES = 32,
    WARPS = 8,
    THREADS = WARPS * LANES,
    PAD = 8, /* elements: rows begin in other banks */
    EIGHT = ATTENTION_EIGHT,
    D_MAX = 512,
    KEYS_FEW = 128, /* not worth it */
    SHARE_MAX = 16  /* fragments of a subgroup's product along one side */
};

typedef struct share { /* of a product: subgroups along rows and columns, fragments of each */
    uint32_t down, rows, columns;
} share;

typedef struct form {
    uint32_t rows, keys, queries, group, d; /* d: whole fragments */
    share score, sum;
    uint32_t across; /* lanes that share a row */
} form;

static uint32_t line_of(const form *f) { /* elements of a staged row */
    return f->d + PAD;
}

static uint32_t wide_of(const form *f) { /* f32: scores of a row */
    return f->keys + 4;
}

static uint32_t bytes_of(const form *f) {
    const uint32_t halves = (f->rows + 2 * f->keys) * line_of(f) + f->rows * (f->keys + PAD);
    return halves * 2 + f->rows * wide_of(f) * 4;
}

/* The split of rows x columns that reads least; false: there is none. */
static bool share_of(uint32_t rows, uint32_t columns, share *s) {
    uint32_t least = UINT32_MAX;
    for (uint32_t down = 1; down <= WARPS; down *= 2) {
        const uint32_t across = WARPS / down;
        if (rows / ROWS % down || columns / TILE % across) continue;
        const share own = {down, rows / ROWS / down, columns / TILE / across};
        const uint32_t read = 2 * own.rows + own.columns;
        if (own.rows > SHARE_MAX || own.columns > SHARE_MAX || read >= least) continue;
        least = read;
        *s = own;
    }
    return least != UINT32_MAX;
}

static uint32_t strip_of(const form *f) { /* columns of results that leave at a time */
    return WARPS / f->sum.down * TILE;
}

/* The first that fits and has work for all units, else the one with the most workgroups. */
static bool form_of(const device_caps *caps, const attention_task *a, form *f) {
    static const struct {
        uint16_t d_max, rows, keys;
    } forms[] = {{128, 128, 64}, {256, 64, 64}, {512, 32, 64}, {128, 32, 32}};
    const uint32_t units = caps->compute_units ? caps->compute_units : 128;
    if (!BUILD_HAS_C_TEXTS || !ir_has_fragment(caps, IR_F16, IR_F32, ROWS, TILE, DEPTH) ||
        caps->subgroup_size != LANES || caps->workgroup_invocations < THREADS)
        return false;
    if (a->raw || !a->fast || a->d % EIGHT || a->d > D_MAX || a->n_head % a->n_kv ||
        a->keys < KEYS_FEW || !(a->cache == TYPE_F16 || (a->cache == TYPE_F32 && a->plain)))
        return false;
    uint64_t most = 0;
    for (uint32_t i = 0; i < sizeof forms / sizeof *forms; i++) {
        const uint32_t heads = a->n_head / a->n_kv;
        form g = {.rows = forms[i].rows,
                  .keys = forms[i].keys,
                  .d = (a->d + DEPTH - 1) / DEPTH * DEPTH,
                  .across = THREADS / forms[i].rows};
        g.group = heads < g.rows ? heads : g.rows;
        while (heads % g.group || g.rows % g.group) g.group--;
        g.queries = g.rows / g.group;
        const uint64_t groups =
            (uint64_t)((a->n + g.queries - 1) / g.queries) * (a->n_head / g.group);
        if (a->d > forms[i].d_max || bytes_of(&g) > caps->workgroup_bytes || groups <= most ||
            !share_of(g.rows, g.keys, &g.score) || !share_of(g.rows, g.d, &g.sum) ||
            strip_of(&g) > g.keys)
            continue;
        *f = g;
        most = groups;
        if (groups >= units - units / 8) break;
    }
    return most > 0;
}

bool attention_matrix_fits(const device_caps *caps, const attention_task *a) {
    form f;
    return form_of(caps, a, &f);
}

typedef struct matrix {
    tile_kernel k;
    const attention_task *a;
    form f;
    attention_cache keys, values;
    attention_rows rows;
    ir_memory q, out;
    /* of the workgroup, halves: [rows, line], two of [keys, line], [rows, keys]; f32: [rows,
     * keys] */
    ir_memory queries, stage, weights, scores;
    ir_memory most, total; /* registers: of the row, of this lane's keys */
    ir_fragments left, right, score, sum;
    ir_id q_offset, scale, local, warp, row, column, after;
} matrix;

static ir_id constant(matrix *m, uint32_t n) {
    return ir_u32(m->k.b, n);
}

static uint32_t larger(uint32_t a, uint32_t b) {
    return a > b ? a : b;
}

static void bind(matrix *m) {
    tile_kernel *k = &m->k;
    ir_builder *b = k->b;
    const attention_task *a = m->a;
    const form *f = &m->f;
    m->q = tile_read(k, "q", a->q);
    attention_caches_bind(&m->keys, &m->values, k, a, true);
    m->out = tile_write(k, "out", a->out);
    m->q_offset = tile_u32(k, "q_offset", a->q_offset);
    m->scale = tile_f32(k, "scale", a->scale);
    m->queries = ir_workgroup(b, IR_F16, f->rows * line_of(f));
    m->stage = ir_workgroup(b, IR_F16, 2 * f->keys * line_of(f));
    m->weights = ir_workgroup(b, IR_F16, f->rows * (f->keys + PAD));
    m->scores = ir_workgroup(b, IR_F32, f->rows * wide_of(f));
    m->most = ir_register(b, IR_F32, 1);
    m->total = ir_register(b, IR_F32, 1);
    const uint32_t left = larger(f->score.rows, f->sum.rows),
                   right = larger(f->score.columns, f->sum.columns);
    m->left = ir_fragment(b, IR_ROLE_A, IR_F16, ROWS, TILE, DEPTH, left);
    m->right = ir_fragment(b, IR_ROLE_B, IR_F16, ROWS, TILE, DEPTH, right);
    m->score =
        ir_fragment(b, IR_ROLE_C, IR_F32, ROWS, TILE, DEPTH, f->score.rows * f->score.columns);
    m->sum = ir_fragment(b, IR_ROLE_C, IR_F32, ROWS, TILE, DEPTH, f->sum.rows * f->sum.columns);
    m->local = ir_local(b, 0);
    m->warp = tile_div(k, m->local, LANES);
    m->row = tile_div(k, m->local, f->across);
    m->column = tile_rem(k, m->local, f->across);
    m->rows = (attention_rows){.each = 1,
                               .queries = f->queries,
                               .group = f->group,
                               .spare = f->queries * f->group != f->rows,
                               .lane_rows = m->row};
    attention_rows_bind(&m->rows, k, a);
}

/* ---- to workgroup memory --------------------------------------------------------------------- */

/* Work of n units, each once. */
static ir_id each(matrix *m, uint32_t n) {
    return ir_loop(m->k.b, m->local, constant(m, n), constant(m, THREADS));
}

/* An eight of halves of what is f32 in two fours; beyond d: 0. */
static void store_eight(matrix *m, ir_memory to, ir_id at, ir_id x, ir_id element) {
    ir_builder *b = m->k.b;
    if (m->f.d != m->a->d)
        x = ir_select(b, ir_splat(b, ir_lt(b, element, constant(m, m->a->d)), EIGHT), x,
                      ir_number(b, IR_F32, EIGHT, 0));
    ir_store(b, to, at, ir_cast(b, IR_F16, x));
}

static ir_id inside(matrix *m, ir_id element) {
    return m->f.d == m->a->d ? element : ir_min(m->k.b, element, constant(m, m->a->d - EIGHT));
}

static void stage_queries(matrix *m) {
    tile_kernel *k = &m->k;
    ir_builder *b = k->b;
    const form *f = &m->f;
    const attention_rows *r = &m->rows;
    ir_id i = each(m, f->rows * f->d / EIGHT), row = tile_div(k, i, f->d / EIGHT),
          e = tile_mul(k, tile_rem(k, i, f->d / EIGHT), EIGHT);
    ir_id query = ir_min(b, tile_div(k, row, f->group), tile_add(k, r->n_query, UINT32_MAX));
    ir_id head = ir_add(b, r->first_head, tile_rem(k, row, f->group));
    ir_id at = ir_add(b, tile_mul(k, ir_add(b, r->first_query, query), m->a->q_stride[0]),
                      tile_mul(k, head, m->a->q_stride[1]));
    at = ir_add(b, ir_add(b, m->q_offset, at), inside(m, e));
    ir_id both[2] = {ir_load(b, m->q, at, 4), ir_load(b, m->q, tile_add(k, at, 4), 4)};
    store_eight(m, m->queries, ir_add(b, tile_mul(k, row, line_of(f)), e),
                ir_mul(b, ir_compose(b, both, 2), ir_splat(b, m->scale, EIGHT)), e);
    ir_end(b);
}

/* Keys or values from `first` on to one of the two places. */
static void stage(matrix *m, const attention_cache *cache, ir_id first, uint32_t place) {
    tile_kernel *k = &m->k;
    ir_builder *b = k->b;
    const form *f = &m->f;
    ir_id i = each(m, f->keys * f->d / EIGHT), key = tile_div(k, i, f->d / EIGHT),
          e = tile_mul(k, tile_rem(k, i, f->d / EIGHT), EIGHT);
    ir_id from =
              ir_add(b, attention_rows_key(&m->rows, cache, ir_add(b, first, key)), inside(m, e)),
          to =
              tile_add(k, ir_add(b, tile_mul(k, key, line_of(f)), e), place * f->keys * line_of(f));
    if (cache->halves) {
        ir_copy_async(b, m->stage, to, cache->at, attention_cache_bound(cache, from), 2 * EIGHT,
                      f->d == m->a->d ? IR_NO_ID : ir_lt(b, e, constant(m, m->a->d)));
    } else {
        ir_id raw[ATTENTION_RAW_MAX];
        attention_cache_load(cache, tile_div(k, from, EIGHT), raw);
        store_eight(m, m->stage, to, attention_cache_values(cache, raw), e);
    }
    ir_end(b);
}

/* What was asked for is there, but `under_way` of the last groups; all lanes are done with what
 * is to be overwritten. */
static void arrive(matrix *m, uint32_t under_way) {
    ir_copy_wait(m->k.b, under_way);
    ir_barrier(m->k.b);
}

/* ---- products -------------------------------------------------------------------------------- */

/* A subgroup's first row and column of a product. */
static ir_id row_of(matrix *m, const share *s) {
    return tile_mul(&m->k, tile_rem(&m->k, m->warp, s->down), s->rows * ROWS);
}

static ir_id column_of(matrix *m, const share *s) {
    return tile_mul(&m->k, tile_div(&m->k, m->warp, s->down), s->columns * TILE);
}

/* c += a b of one depth, a from `left` on, its lines `line` apart. */
static void multiply(matrix *m, const share *s, ir_fragments c, ir_memory from, ir_id left,
                     uint32_t line, ir_id right, bool transposed) {
    tile_kernel *k = &m->k;
    ir_builder *b = k->b;
    for (uint32_t r = 0; r < s->rows; r++)
        ir_fragment_load(b, m->left, constant(m, r), from, tile_add(k, left, r * ROWS * line),
                         constant(m, line), false);
    for (uint32_t i = 0; i < s->columns; i++)
        ir_fragment_load(b, m->right, constant(m, i), m->stage,
                         tile_add(k, right, i * TILE * (transposed ? line_of(&m->f) : 1)),
                         constant(m, line_of(&m->f)), transposed);
    for (uint32_t r = 0; r < s->rows; r++)
        for (uint32_t i = 0; i < s->columns; i++)
            ir_fragment_mma(b, c, constant(m, r * s->columns + i), m->left, constant(m, r),
                            m->right, constant(m, i));
}

/* Scores of the keys in place `place`, to memory. */
static void score(matrix *m, uint32_t place) {
    tile_kernel *k = &m->k;
    ir_builder *b = k->b;
    const form *f = &m->f;
    const share *s = &f->score;
    ir_id row = row_of(m, s), column = column_of(m, s), left = tile_mul(k, row, line_of(f)),
          right = tile_add(k, tile_mul(k, column, line_of(f)), place * f->keys * line_of(f));
    for (uint32_t i = 0; i < s->rows * s->columns; i++)
        ir_fragment_fill(b, m->score, constant(m, i), ir_f32(b, 0));
    for (uint32_t e = 0; e < f->d; e += DEPTH)
        multiply(m, s, m->score, m->queries, tile_add(k, left, e), line_of(f),
                 tile_add(k, right, e), true);
    ir_id to = ir_add(b, tile_mul(k, row, wide_of(f)), column);
    for (uint32_t r = 0; r < s->rows; r++)
        for (uint32_t i = 0; i < s->columns; i++)
            ir_fragment_store(b, m->score, constant(m, r * s->columns + i), m->scores,
                              tile_add(k, to, r * ROWS * wide_of(f) + i * TILE),
                              constant(m, wide_of(f)), false);
}

/* This lane's keys in fours, n of them: i across + column. */
static ir_id score_at(matrix *m, ir_id first, uint32_t i) {
    tile_kernel *k = &m->k;
    ir_builder *b = k->b;
    ir_id at = tile_add(k, tile_mul(k, m->column, 4), i * 4 * m->f.across);
    ir_id x = ir_load(b, m->scores, ir_add(b, tile_mul(k, m->row, wide_of(&m->f)), at), 4), all[4];
    ir_id low = ir_load(b, m->rows.low, constant(m, 0), 1),
          high = ir_load(b, m->rows.high, constant(m, 0), 1);
    for (uint32_t j = 0; j < 4; j++) {
        ir_id key = ir_add(b, first, tile_add(k, at, j));
        ir_id sees = ir_and(b, ir_ge(b, key, low), ir_le(b, key, high));
        all[j] = ir_select(b, sees, ir_extract(b, x, j), ir_f32(b, ATTENTION_MASKED));
    }
    return ir_compose(b, all, 4);
}

static uint32_t fours_of(const form *f) {
    return f->keys / f->across / 4;
}

static ir_id shared(matrix *m, ir_id x, bool sum) {
    ir_builder *b = m->k.b;
    for (uint32_t mask = 1; mask < m->f.across; mask *= 2) {
        ir_id other = ir_subgroup_shuffle_xor(b, x, mask);
        x = sum ? ir_add(b, x, other) : ir_max(b, x, other);
    }
    return x;
}

/* ---- the two walks over the keys ------------------------------------------------------------- */

static ir_id walk(matrix *m) {
    ir_builder *b = m->k.b;
    return ir_loop(b, ir_get(b, m->rows.from), m->after, constant(m, m->f.keys));
}

/* Asks for the tile after the one at `first`, if there is one. */
static void stage_next(matrix *m, ir_id first) {
    ir_builder *b = m->k.b;
    ir_id next = tile_add(&m->k, first, m->f.keys);
    ir_if(b, ir_lt(b, next, m->after));
    stage(m, &m->keys, next, 0);
    ir_end(b);
    ir_copy_commit(b);
}

static void stage_first(matrix *m) {
    stage(m, &m->keys, ir_get(m->k.b, m->rows.from), 0);
    ir_copy_commit(m->k.b);
}

static void find_most(matrix *m) {
    ir_builder *b = m->k.b;
    stage_first(m);
    ir_id first = walk(m);
    arrive(m, 0);
    score(m, 0);
    ir_barrier(b);
    stage_next(m, first);
    ir_id most = ir_get(b, m->most);
    for (uint32_t i = 0; i < fours_of(&m->f); i++)
        most = ir_max(b, most, tile_max_vector(&m->k, score_at(m, first, i)));
    ir_set(b, m->most, most);
    ir_end(b);
    arrive(m, 0);
    ir_set(b, m->most, shared(m, ir_get(b, m->most), false));
}

static void soften(matrix *m, ir_id first) {
    tile_kernel *k = &m->k;
    ir_builder *b = k->b;
    const form *f = &m->f;
    ir_id most = ir_splat(b, ir_get(b, m->most), 4), total = ir_get(b, m->total);
    for (uint32_t i = 0; i < fours_of(f); i++) {
        ir_id p = ir_cast(b, IR_F16, ir_exp(b, ir_sub(b, score_at(m, first, i), most)));
        ir_id at = tile_add(k, tile_mul(k, m->column, 4), i * 4 * f->across);
        ir_store(b, m->weights, ir_add(b, tile_mul(k, m->row, f->keys + PAD), at), p);
        total = ir_add(b, total, tile_sum_vector(k, ir_cast(b, IR_F32, p)));
    }
    ir_set(b, m->total, total);
}

static void add_values(matrix *m) {
    tile_kernel *k = &m->k;
    const form *f = &m->f;
    const share *s = &f->sum;
    stage_first(m);
    ir_id first = walk(m);
    arrive(m, 0);
    stage(m, &m->values, first, 1);
    ir_copy_commit(k->b);
    score(m, 0);
    ir_barrier(k->b);
    stage_next(m, first);
    soften(m, first);
    ir_id left = tile_mul(k, row_of(m, s), f->keys + PAD),
          right = tile_add(k, column_of(m, s), f->keys * line_of(f));
    arrive(m, 1);
    for (uint32_t e = 0; e < f->keys; e += DEPTH)
        multiply(m, s, m->sum, m->weights, tile_add(k, left, e), f->keys + PAD,
                 tile_add(k, right, e * line_of(f)), false);
    ir_end(k->b);
    arrive(m, 0);
}

/* Through memory by strips, divided on the way. */
static void store(matrix *m) {
    tile_kernel *k = &m->k;
    ir_builder *b = k->b;
    const form *f = &m->f;
    const attention_rows *r = &m->rows;
    const share *s = &f->sum;
    ir_id inverse = attention_inverse(k, shared(m, ir_get(b, m->total), true));
    ir_id query = tile_div(k, m->row, f->group),
          head = ir_add(b, r->first_head, tile_rem(k, m->row, f->group));
    ir_id place = ir_add(b, tile_mul(k, ir_add(b, r->first_query, query), m->a->n_head), head),
          row = row_of(m, s);
    for (uint32_t i = 0; i < s->columns; i++) { /* strip i: column tile i of each subgroup */
        ir_barrier(b);
        ir_id to = ir_add(b, tile_mul(k, row, wide_of(f)),
                          tile_mul(k, tile_div(k, m->warp, s->down), TILE));
        for (uint32_t n = 0; n < s->rows; n++)
            ir_fragment_store(b, m->sum, constant(m, n * s->columns + i), m->scores,
                              tile_add(k, to, n * ROWS * wide_of(f)), constant(m, wide_of(f)),
                              false);
        ir_barrier(b);
        ir_if(b, ir_lt(b, query, r->n_query));
        ir_id four = ir_loop(b, m->column, constant(m, strip_of(f) / 4), constant(m, f->across)),
              at = tile_mul(k, four, 4);
        ir_id e = ir_add(b, tile_mul(k, tile_div(k, at, TILE), s->columns * TILE),
                         tile_add(k, tile_rem(k, at, TILE), i * TILE));
        if (f->d != m->a->d) ir_if(b, ir_lt(b, e, constant(m, m->a->d)));
        ir_id x = ir_load(b, m->scores, ir_add(b, tile_mul(k, m->row, wide_of(f)), at), 4);
        ir_store(b, m->out, ir_add(b, tile_mul(k, place, m->a->d), e),
                 ir_mul(b, x, ir_splat(b, inverse, 4)));
        if (f->d != m->a->d) ir_end(b);
        ir_end(b);
        ir_end(b);
    }
}

beryl_status attention_matrix(lowering *l, const graph_node *node, const attention_task *a,
                              beryl_error *error) {
    matrix m = {.a = a};
    if (!form_of(l->caps, a, &m.f)) return lower_refuse(l, node, "heads of this shape", error);
    tile_kernel *k = &m.k;
    tile_begin(k, l, node, "attention_matrix", THREADS);
    ir_builder *b = k->b;
    ir_subgroup(b, LANES);
    bind(&m);
    ir_set(b, m.most, ir_f32(b, ATTENTION_LEAST));
    ir_set(b, m.total, ir_f32(b, 0));
    for (uint32_t i = 0; i < m.f.sum.rows * m.f.sum.columns; i++)
        ir_fragment_fill(b, m.sum, constant(&m, i), ir_f32(b, 0));
    stage_queries(&m);
    attention_rows_begin(&m.rows);
    m.after = tile_add(k, ir_get(b, m.rows.to), 1);
    find_most(&m);
    add_values(&m);
    attention_rows_end(&m.rows);
    store(&m);
    return tile_end_3d(k, a->rows, m.f.queries, (lower_count){a->n_head / m.f.group, 0}, 1,
                       (lower_count){1, 0}, 1, error);
}
