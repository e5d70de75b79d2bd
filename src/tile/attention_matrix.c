/* attention_matrix.c - attention of many rows on matrix units: a tile of rows against tiles of
 * keys, both in halves, sums in f32. For F16 and Q8_0 caches, and for values of the run where a
 * plan may be fast.
 *
 * FlashAttention-2 (Dao, 2023): one walk over the keys, whose weights stay in fragments: scores of
 * a subgroup's own rows become weights where they are, and these are the left side of the product
 * with the values. Weights are relative to a score that was a row's largest; one that is larger by
 * more than GROWTH takes its place, and sums are scaled (as in FlashAttention-4). Tiles of keys and
 * values take turns in two places of workgroup memory, by asynchronous copies; those of Q8_0 pass
 * through registers, where they become halves; of values of the run a dispatch before makes halves.
 *
 * Where the device multiplies from workgroup memory, lines lie in blocks of 64 columns, swizzled,
 * and the scores of a tile and the sums of the one before are under way together.
 *
 * Subgroups have different rows; where rows are few they share them, each with other keys of a
 * tile, and join their sums at the end; where heads are long they share them too, each with other
 * columns of the sums, and all compute the same scores. */
#include "tile/attention_matrix.h"
#include "base/build.h"
#include "base/error.h"

enum {
    KEYS_FEW = 128,  /* not worth it */
    ROWS_BYTES = 32, /* of attention_rows */
    STRIP = 4,       /* fragments of columns that are joined at a time */
    GROWTH = 8       /* binary digits that weights may have: their sums are scaled beyond */
};

/* Subgroups: down x parts x across. */
typedef struct form {
    uint32_t down, each;    /* subgroups with rows of their own, and their fragments of 16 */
    uint32_t parts, across; /* that share the keys of a tile, the columns of the sums */
    uint32_t keys;          /* of a tile */
    bool held;              /* queries stay in fragments */
    bool direct;            /* products from workgroup memory */
    uint32_t rows, queries, group, d; /* d: whole fragments */
} form;

static uint32_t threads_of(const form *f) {
    return f->down * f->parts * f->across * LANES;
}

static uint32_t line_of(const form *f) { /* elements of a staged row */
    return f->direct ? f->d : f->d + PAD;
}

static uint32_t turns_of(const form *f) { /* eights of a tile of keys, a lane */
    return (f->keys * f->d / EIGHT + threads_of(f) - 1) / threads_of(f);
}

static uint32_t place_of(const form *f) { /* elements: a tile of keys, one of values */
    return 2 * f->keys * line_of(f);
}

/* Queries that are held pass through the second place. */
static bool overlaid(const form *f) {
    return f->held && f->rows * line_of(f) <= place_of(f);
}

static uint32_t strip_of(const form *f) { /* columns that are joined at a time, with a gap */
    return f->across * STRIP * TILE + PAD;
}

static uint32_t joined_of(const form *f) { /* f32: sums of the other parts; their stats */
    return (f->parts - 1) * f->rows * strip_of(f) + f->parts * f->rows * 2;
}

static uint32_t bytes_of(const form *f) {
    const uint32_t queries = overlaid(f) ? 0 : f->rows * line_of(f);
    return (2 * place_of(f) + queries) * 2 + (f->parts > 1 ? joined_of(f) * 4 : 0) + ROWS_BYTES;
}

/* The first that fits and has work for all units, else the one with the most workgroups. */
static bool form_of(const device_caps *caps, const attention_task *a, form *f) {
    static const struct {
        uint16_t d_max;
        uint8_t down, each, parts, across, keys;
        bool held, direct;
    } forms[] = {
        {64, 4, 2, 1, 1, 64, true, false},   {128, 8, 1, 1, 1, 128, false, true},
        {256, 8, 1, 1, 1, 64, false, true},  {128, 4, 1, 1, 1, 64, true, false},
        {256, 8, 1, 1, 1, 64, false, false}, {256, 4, 1, 2, 1, 64, false, false},
        {512, 4, 1, 1, 2, 32, false, false}, {128, 2, 1, 4, 1, 64, true, false},
        {256, 2, 1, 2, 1, 64, false, false}, {512, 2, 1, 2, 2, 32, false, false},
        {256, 2, 1, 2, 1, 32, false, false},
    };
    const uint32_t units = tile_units(caps);
    if (!BUILD_HAS_C_TEXTS || !ir_has_fragment(caps, IR_F16, IR_F32, ROWS, TILE, DEPTH) ||
        caps->subgroup_size != LANES)
        return false;
    if (a->raw || !a->fast || a->d % EIGHT || a->d > D_MAX || a->n_head % a->n_kv ||
        a->keys < KEYS_FEW ||
        !(a->cache == TYPE_F16 || (a->cache == TYPE_Q8_0 && attention_cache_known(a)) ||
          (a->cache == TYPE_F32 && a->plain && attention_halves(a) <= HALVES_MAX)))
        return false;
    uint64_t most = 0;
    for (uint32_t i = 0; i < sizeof forms / sizeof *forms; i++) {
        const uint32_t heads = a->n_head / a->n_kv;
        form g = {.down = forms[i].down,
                  .each = forms[i].each,
                  .parts = forms[i].parts,
                  .across = forms[i].across,
                  .keys = forms[i].keys,
                  .held = forms[i].held,
                  .direct = forms[i].direct,
                  .rows = (uint32_t)forms[i].down * forms[i].each * ROWS};
        const uint32_t whole = DEPTH * g.across;
        g.d = (a->d + whole - 1) / whole * whole;
        g.group = whole_least(heads, g.rows);
        while (heads % g.group || g.rows % g.group) g.group--;
        g.queries = g.rows / g.group;
        const uint64_t groups = (uint64_t)whole_over(a->n, g.queries) * (a->n_head / g.group);
        if (g.direct && (!caps->multiplies_memory || a->d % BLOCK || a->cache == TYPE_Q8_0))
            continue;
        if (a->d > forms[i].d_max || bytes_of(&g) > caps->workgroup_bytes ||
            threads_of(&g) > caps->workgroup_invocations || groups <= most)
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
    /* of the workgroup, halves: [rows, line]; two of [2, keys, line]; direct: in one array, as
     * [d / BLOCK, rows or keys, BLOCK] */
    ir_memory queries, stage;
    ir_memory joined;      /* f32: [parts - 1, rows, strip], [parts, rows, 2] */
    ir_memory raw;         /* registers: what the lane has asked for of a tile of Q8_0 */
    ir_memory most, total; /* registers [2 each]: of the rows, of this lane's keys */
    ir_fragments query, right, score, weight, sum;
    uint32_t n_key, n_column; /* fragments of a subgroup's keys of a tile, of its columns */
    ir_memory factor;         /* register [2]: of sums that are to be scaled; direct alone */
    uint32_t queries_at;      /* where they begin in `queries` */
    ir_id q_offset, scale, local, lane, row, part, column; /* row: the first of the lane's */
} matrix;

static void bind(matrix *m) {
    tile_kernel *k = &m->k;
    ir_builder *b = k->b;
    const attention_task *a = m->a;
    const form *f = &m->f;
    m->q = tile_read(k, "q", a->q);
    if (a->cache == TYPE_F32) attention_halves_bind(&m->keys, &m->values, k, a);
    else attention_caches_bind(&m->keys, &m->values, k, a, true);
    m->out = tile_write(k, "out", a->out);
    m->q_offset = tile_u32(k, "q_offset", a->q_offset);
    m->scale = tile_f32(k, "scale", a->scale * 1.44269504f); /* scores: exponents of 2 */
    if (f->direct) {
        m->queries_at = 2 * place_of(f);
        m->queries = m->stage =
            ir_workgroup_swizzled(b, IR_F16, m->queries_at + f->rows * line_of(f), 3, 3, 3);
        m->factor = ir_register(b, IR_F32, 2);
    } else {
        m->stage = ir_workgroup(b, IR_F16, 2 * place_of(f));
        m->queries_at = overlaid(f) ? place_of(f) : 0;
        m->queries = overlaid(f) ? m->stage : ir_workgroup(b, IR_F16, f->rows * line_of(f));
    }
    if (a->cache == TYPE_Q8_0) m->raw = ir_register(b, IR_U32, turns_of(f) * m->keys.raw);
    if (f->parts > 1) m->joined = ir_workgroup(b, IR_F32, joined_of(f));
    m->most = ir_register(b, IR_F32, 2 * f->each);
    m->total = ir_register(b, IR_F32, 2 * f->each);
    m->n_key = f->keys / f->parts / TILE;
    m->n_column = f->d / f->across / TILE;
    const uint32_t depths = f->d / DEPTH;
    if (!f->direct) {
        m->query =
            ir_fragment(b, IR_ROLE_A, IR_F16, ROWS, TILE, DEPTH, f->each * (f->held ? depths : 1));
        m->right = ir_fragment(b, IR_ROLE_B, IR_F16, ROWS, TILE, DEPTH, 2);
    }
    m->score = ir_fragment(b, IR_ROLE_C, IR_F32, ROWS, TILE, DEPTH, f->each * m->n_key);
    m->weight = ir_fragment(b, IR_ROLE_A, IR_F16, ROWS, TILE, DEPTH, f->each * m->n_key / 2);
    m->sum = ir_fragment(b, IR_ROLE_C, IR_F32, ROWS, TILE, DEPTH, f->each * m->n_column);
    m->local = ir_local(b, 0);
    m->lane = tile_rem(b, m->local, LANES);
    ir_id warp = tile_div(b, m->local, LANES), rest = tile_div(b, warp, f->down);
    m->row =
        ir_add(b, tile_mul(b, tile_rem(b, warp, f->down), f->each * ROWS), tile_div(b, m->lane, 4));
    m->part = tile_rem(b, rest, f->parts);
    m->column = tile_mul(b, tile_div(b, rest, f->parts), m->n_column * TILE);
    m->rows = (attention_rows){.each = 2 * f->each,
                               .apart = TILE,
                               .joint = true,
                               .queries = f->queries,
                               .group = f->group,
                               .spare = f->queries * f->group != f->rows,
                               .lane_rows = m->row};
    attention_rows_bind(&m->rows, k, a);
}

/* ---- to workgroup memory --------------------------------------------------------------------- */

static ir_id inside(matrix *m, ir_id element) {
    return m->f.d == m->a->d ? element : ir_min(m->k.b, element, ir_u32(m->k.b, m->a->d - EIGHT));
}

/* An eight of f32 as halves; beyond d: 0. */
static void store_eight(matrix *m, ir_memory to, ir_id at, ir_id x, ir_id element) {
    ir_builder *b = m->k.b;
    if (m->f.d != m->a->d)
        x = ir_select(b, ir_splat(b, ir_lt(b, element, ir_u32(b, m->a->d)), EIGHT), x,
                      ir_number(b, IR_F32, EIGHT, 0));
    ir_store(b, to, at, ir_cast(b, IR_F16, x));
}

/* One eight for each lane, `turn` of them before: its row, its first element. */
static void eight_of(matrix *m, ir_id turn, ir_id *row, ir_id *element) {
    ir_builder *b = m->k.b;
    const uint32_t eights = m->f.d / EIGHT;
    ir_id i = ir_add(b, m->local, tile_mul(b, turn, threads_of(&m->f)));
    *row = tile_div(b, i, eights);
    *element = tile_mul(b, tile_rem(b, i, eights), EIGHT);
}

static void stage_queries(matrix *m) {
    ir_builder *b = m->k.b;
    const form *f = &m->f;
    const attention_rows *r = &m->rows;
    const uint32_t n = f->rows * f->d / EIGHT, threads = threads_of(f);
    ir_id row, e;
    ir_id turn = ir_loop(b, ir_u32(b, 0), ir_u32(b, (n + threads - 1) / threads), ir_u32(b, 1));
    eight_of(m, turn, &row, &e);
    if (n % threads) ir_if(b, ir_lt(b, row, ir_u32(b, f->rows)));
    ir_id query = ir_min(b, tile_div(b, row, f->group), tile_add(b, r->n_query, UINT32_MAX));
    ir_id head = ir_add(b, r->first_head, tile_rem(b, row, f->group));
    ir_id at = ir_add(b, tile_mul(b, ir_add(b, r->first_query, query), m->a->q_stride[0]),
                      tile_mul(b, head, m->a->q_stride[1]));
    at = ir_add(b, ir_add(b, m->q_offset, at), inside(m, e));
    ir_id both[2] = {ir_load(b, m->q, at, 4), ir_load(b, m->q, tile_add(b, at, 4), 4)};
    ir_id to = tile_add(b, attention_staged_at(b, m->f.direct, line_of(&m->f), row, e, f->rows),
                        m->queries_at);
    store_eight(m, m->queries, to, ir_mul(b, ir_compose(b, both, 2), ir_splat(b, m->scale, EIGHT)),
                e);
    if (n % threads) ir_end(b);
    ir_end(b);
}

/* Keys or values from `first` on to `place`, an element of the stage. */
static void stage(matrix *m, const attention_cache *cache, ir_id first, ir_id place) {
    ir_builder *b = m->k.b;
    const form *f = &m->f;
    const uint32_t n = f->keys * f->d / EIGHT, threads = threads_of(f);
    for (uint32_t turn = 0; turn * threads < n; turn++) {
        ir_id key, e;
        eight_of(m, ir_u32(b, turn), &key, &e);
        ir_id to = ir_add(b, place,
                          attention_staged_at(b, m->f.direct, line_of(&m->f), key, e, f->keys)),
              from = ir_add(b, attention_rows_key(&m->rows, cache, ir_add(b, first, key)),
                            inside(m, e));
        if (n % threads) ir_if(b, ir_lt(b, key, ir_u32(b, f->keys)));
        ir_copy_async(b, m->stage, to, cache->at, attention_cache_bound(cache, from), 2 * EIGHT,
                      f->d == m->a->d ? IR_NO_ID : ir_lt(b, e, ir_u32(b, m->a->d)));
        if (n % threads) ir_end(b);
    }
}

/* The same of Q8_0: asks for them, */
static void fetch(matrix *m, const attention_cache *cache, ir_id first) {
    ir_builder *b = m->k.b;
    for (uint32_t turn = 0; turn < turns_of(&m->f); turn++) {
        ir_id key, e;
        eight_of(m, ir_u32(b, turn), &key, &e);
        ir_id from = ir_add(b, attention_rows_key(&m->rows, cache, ir_add(b, first, key)), e);
        attention_cache_fetch(cache, tile_div(b, from, EIGHT), m->raw, turn);
    }
}

/* and puts them as halves to `place`. */
static void put(matrix *m, const attention_cache *cache, ir_id place) {
    ir_builder *b = m->k.b;
    const form *f = &m->f;
    const bool guarded = f->keys * f->d / EIGHT % threads_of(f);
    for (uint32_t turn = 0; turn < turns_of(f); turn++) {
        ir_id key, e;
        eight_of(m, ir_u32(b, turn), &key, &e);
        ir_id x = ir_cast(b, IR_F16, attention_cache_fetched(cache, m->raw, turn));
        if (guarded) ir_if(b, ir_lt(b, key, ir_u32(b, f->keys)));
        ir_store(
            b, m->stage,
            ir_add(b, place, attention_staged_at(b, m->f.direct, line_of(&m->f), key, e, f->keys)),
            x);
        if (guarded) ir_end(b);
    }
}

static void stage_tile(matrix *m, ir_id first, ir_id place) {
    stage(m, &m->keys, first, place);
    stage(m, &m->values, first, tile_add(m->k.b, place, m->f.keys * line_of(&m->f)));
    ir_copy_commit(m->k.b);
}

/* What was asked for is there, and all lanes are done with what is to be overwritten. */
static void arrive(matrix *m) {
    ir_copy_wait(m->k.b, 0);
    ir_barrier(m->k.b);
}

/* ---- products -------------------------------------------------------------------------------- */

/* A row of the lane's subgroup that is the same for all of its lanes: its first. */
static ir_id first_row(matrix *m) {
    ir_builder *b = m->k.b;
    ir_id warp = tile_div(b, m->local, LANES);
    return tile_mul(b, tile_rem(b, warp, m->f.down), m->f.each * ROWS);
}

static void load_queries(matrix *m, uint32_t depth, uint32_t to) {
    ir_builder *b = m->k.b;
    const uint32_t line = line_of(&m->f);
    ir_id from = tile_add(b, tile_mul(b, first_row(m), line), m->queries_at + depth * DEPTH);
    for (uint32_t r = 0; r < m->f.each; r++)
        ir_fragment_load(b, m->query, ir_u32(b, to + r), m->queries,
                         tile_add(b, from, r * ROWS * line), ir_u32(b, line), false);
}

/* c[r, i] += a[r] b[i] of one depth, i of n; b[i] lies `step` elements after the one before. */
static void multiply(matrix *m, ir_fragments c, uint32_t n, ir_fragments a, const uint32_t *left,
                     ir_id from, uint32_t step, bool transposed) {
    ir_builder *b = m->k.b;
    for (uint32_t i = 0; i < n; i += 2) {
        const uint32_t count = n - i < 2 ? n - i : 2;
        for (uint32_t j = 0; j < count; j++)
            ir_fragment_load(b, m->right, ir_u32(b, j), m->stage, tile_add(b, from, (i + j) * step),
                             ir_u32(b, line_of(&m->f)), transposed);
        for (uint32_t j = 0; j < count; j++)
            for (uint32_t r = 0; r < m->f.each; r++)
                ir_fragment_mma(b, c, ir_u32(b, r * n + i + j), a, ir_u32(b, left[r]), m->right,
                                ir_u32(b, j));
    }
}

/* Scores of the subgroup's keys of the tile at `place`. */
static void find_scores(matrix *m, ir_id place) {
    ir_builder *b = m->k.b;
    const form *f = &m->f;
    const uint32_t depths = f->d / DEPTH, line = line_of(f);
    ir_id from = ir_add(b, place, tile_mul(b, m->part, m->n_key * TILE * line));
    for (uint32_t i = 0; i < f->each * m->n_key; i++)
        ir_fragment_fill(b, m->score, ir_u32(b, i), ir_f32(b, 0));
    for (uint32_t e = 0; e < depths; e++) {
        uint32_t left[8];
        for (uint32_t r = 0; r < f->each; r++) left[r] = (f->held ? e * f->each : 0) + r;
        if (!f->held) load_queries(m, e, 0);
        multiply(m, m->score, m->n_key, m->query, left, tile_add(b, from, e * DEPTH), TILE * line,
                 true);
    }
}

/* Scores of keys that a row does not see; `first`: of the subgroup's keys. */
static void hide(matrix *m, ir_id first) {
    ir_builder *b = m->k.b;
    for (uint32_t q = 0; q < 2 * m->f.each; q++) {
        ir_id low = ir_load(b, m->rows.low, ir_u32(b, q), 1),
              high = ir_load(b, m->rows.high, ir_u32(b, q), 1);
        for (uint32_t i = 0; i < m->n_key; i++) {
            ir_id at = ir_u32(b, q / 2 * m->n_key + i), own[2];
            ir_id x = ir_fragment_get(b, m->score, at, q % 2);
            for (uint32_t w = 0; w < 2; w++) {
                ir_id key = ir_add(
                    b, first, tile_add(b, tile_mul(b, tile_rem(b, m->lane, 4), 2), i * TILE + w));
                ir_id sees = ir_and(b, ir_ge(b, key, low), ir_le(b, key, high));
                own[w] = ir_select(b, sees, ir_extract(b, x, w), ir_f32(b, ATTENTION_MASKED));
            }
            ir_fragment_set(b, m->score, at, q % 2, ir_compose(b, own, 2));
        }
    }
}

static void scale_sums(matrix *m, uint32_t q, ir_id factor) {
    ir_builder *b = m->k.b;
    ir_id both = ir_splat(b, factor, 2);
    for (uint32_t c = 0; c < m->n_column; c++) {
        ir_id at = ir_u32(b, q / 2 * m->n_column + c);
        ir_fragment_set(b, m->sum, at, q % 2,
                        ir_mul(b, ir_fragment_get(b, m->sum, at, q % 2), both));
    }
}

/* The largest score of each of the lane's rows in the tile. */
static void find_most(matrix *m, ir_id *most) {
    ir_builder *b = m->k.b;
    const uint32_t n = 2 * m->f.each;
    for (uint32_t q = 0; q < n; q++) {
        ir_id own = IR_NO_ID;
        for (uint32_t i = 0; i < m->n_key; i++) {
            ir_id x = ir_fragment_get(b, m->score, ir_u32(b, q / 2 * m->n_key + i), q % 2);
            own = i ? ir_max(b, own, x) : x;
        }
        most[q] = ir_max(b, ir_extract(b, own, 0), ir_extract(b, own, 1));
    }
    for (uint32_t q = 0; q < n; q++) most[q] = attention_quad(b, most[q], false);
}

/* Scores become weights. */
static void soften(matrix *m) {
    ir_builder *b = m->k.b;
    const uint32_t n = 2 * m->f.each;
    ir_id most[8];
    find_most(m, most);
    for (uint32_t q = 0; q < n; q++) {
        ir_id before = ir_load(b, m->most, ir_u32(b, q), 1);
        ir_if(b, ir_gt(b, most[q], ir_add(b, before, ir_f32(b, GROWTH))));
        ir_id factor = ir_exp2_normal(b, ir_sub(b, before, most[q]));
        ir_store(b, m->most, ir_u32(b, q), most[q]);
        ir_store(b, m->total, ir_u32(b, q),
                 ir_mul(b, ir_load(b, m->total, ir_u32(b, q), 1), factor));
        scale_sums(m, q, factor);
        ir_end(b);
    }
    for (uint32_t q = 0; q < n; q++) {
        ir_id both = ir_splat(b, ir_load(b, m->most, ir_u32(b, q), 1), 2), total = IR_NO_ID;
        for (uint32_t i = 0; i < m->n_key; i++) {
            ir_id x = ir_fragment_get(b, m->score, ir_u32(b, q / 2 * m->n_key + i), q % 2);
            ir_id p = ir_exp2_normal(b, ir_sub(b, x, both));
            total = i ? ir_add(b, total, p) : p;
            ir_fragment_set(b, m->weight, ir_u32(b, q / 2 * (m->n_key / 2) + i / 2),
                            q % 2 + i % 2 * 2, ir_cast(b, IR_F16, p));
        }
        ir_id sum = ir_load(b, m->total, ir_u32(b, q), 1);
        ir_store(b, m->total, ir_u32(b, q), ir_add(b, sum, tile_sum_vector(b, total)));
    }
}

static void add_values(matrix *m, ir_id place) {
    ir_builder *b = m->k.b;
    const form *f = &m->f;
    const uint32_t line = line_of(f), depths = m->n_key / 2;
    ir_id from = tile_add(b, ir_add(b, place, m->column), f->keys * line);
    from = ir_add(b, from, tile_mul(b, m->part, m->n_key * TILE * line));
    for (uint32_t e = 0; e < depths; e++) {
        uint32_t left[8];
        for (uint32_t r = 0; r < f->each; r++) left[r] = r * depths + e;
        multiply(m, m->sum, m->n_column, m->weight, left, tile_add(b, from, e * DEPTH * line), TILE,
                 false);
    }
}

/* ---- the walk over the keys ------------------------------------------------------------------ */

static void walk(matrix *m) {
    ir_builder *b = m->k.b;
    const form *f = &m->f;
    const attention_rows *r = &m->rows;
    const bool rounded = m->a->cache == TYPE_Q8_0;
    const uint32_t values = f->keys * line_of(f);
    ir_id from = ir_get(b, r->from), after = tile_add(b, ir_get(b, r->to), 1);
    ir_id held = ir_sub(b, ir_max(b, after, from), from),
          tiles = tile_div(b, tile_add(b, held, f->keys - 1), f->keys);
    if (rounded) {
        fetch(m, &m->keys, from);
        put(m, &m->keys, ir_u32(b, 0));
        fetch(m, &m->values, from);
        put(m, &m->values, ir_u32(b, values));
    } else {
        stage_tile(m, from, ir_u32(b, 0));
    }
    ir_id tile = ir_loop(b, ir_u32(b, 0), tiles, ir_u32(b, 1)),
          place = tile_mul(b, tile_rem(b, tile, 2), place_of(f)),
          other = ir_sub(b, ir_u32(b, place_of(f)), place),
          first = ir_add(b, from, tile_mul(b, tile, f->keys)), next = tile_add(b, first, f->keys),
          more = ir_lt(b, tile_add(b, tile, 1), tiles);
    arrive(m);
    ir_if(b, more);
    if (rounded) fetch(m, &m->keys, next);
    else stage_tile(m, next, other);
    ir_end(b);
    find_scores(m, place);
    if (rounded) {
        ir_if(b, more);
        put(m, &m->keys, other);
        fetch(m, &m->values, next);
        ir_end(b);
    }
    const ir_id all = attention_rows_all_see(r, first, f->keys);
    ir_if(b, ir_xor(b, all, ir_bool(b, true)));
    hide(m, ir_add(b, first, tile_mul(b, m->part, m->n_key * TILE)));
    ir_end(b);
    soften(m);
    if (rounded) {
        ir_if(b, more);
        put(m, &m->values, tile_add(b, other, values));
        ir_end(b);
    }
    add_values(m, place);
    ir_end(b);
    arrive(m);
}

/* ---- the same, straight from workgroup memory ------------------------------------------------ */

/* Begins the scores of the tile at `place`. */
static void begin_scores(matrix *m, ir_id place) {
    ir_builder *b = m->k.b;
    const form *f = &m->f;
    ir_id group = tile_mul(b, tile_div(b, m->local, 4 * LANES), 4 * ROWS * BLOCK);
    for (uint32_t e = 0; e < f->d; e += BLOCK)
        ir_fragment_multiply(b, m->score, m->stage, tile_add(b, group, m->queries_at + e * f->rows),
                             tile_add(b, place, e * f->keys), !e, BLOCK / DEPTH);
}

/* Begins to add the values of the tile at `place`, by the weights. */
static void begin_values(matrix *m, ir_id place) {
    const form *f = &m->f;
    ir_fragment_multiply_held(m->k.b, m->sum, m->weight, m->stage,
                              tile_add(m->k.b, place, f->keys * f->d), f->keys / DEPTH);
}

/* Scores become weights where they are, while sums are under way. */
static void soften_scores(matrix *m) {
    ir_builder *b = m->k.b;
    ir_id most[2];
    find_most(m, most);
    for (uint32_t q = 0; q < 2; q++) {
        ir_id before = ir_load(b, m->most, ir_u32(b, q), 1),
              grows = ir_gt(b, most[q], ir_add(b, before, ir_f32(b, GROWTH))),
              now = ir_select(b, grows, most[q], before),
              factor = ir_exp2_normal(b, ir_sub(b, before, now)), both = ir_splat(b, now, 2),
              total = ir_number(b, IR_F32, 2, 0);
        for (uint32_t i = 0; i < m->n_key; i++) {
            ir_id x = ir_fragment_get(b, m->score, ir_u32(b, i), q);
            x = ir_exp2_normal(b, ir_sub(b, x, both));
            total = ir_add(b, total, x);
            ir_fragment_set(b, m->score, ir_u32(b, i), q, x);
        }
        ir_store(b, m->most, ir_u32(b, q), now);
        ir_store(b, m->factor, ir_u32(b, q), factor);
        ir_store(
            b, m->total, ir_u32(b, q),
            ir_fma(b, ir_load(b, m->total, ir_u32(b, q), 1), factor, tile_sum_vector(b, total)));
    }
}

/* Sums that are there are scaled to the weights to come. */
static void take_weights(matrix *m) {
    ir_builder *b = m->k.b;
    ir_id factor[2];
    for (uint32_t q = 0; q < 2; q++) factor[q] = ir_load(b, m->factor, ir_u32(b, q), 1);
    ir_if(b, ir_lt(b, ir_min(b, factor[0], factor[1]), ir_f32(b, 1)));
    for (uint32_t q = 0; q < 2; q++) scale_sums(m, q, factor[q]);
    ir_end(b);
    for (uint32_t q = 0; q < 2; q++)
        for (uint32_t i = 0; i < m->n_key; i++)
            ir_fragment_set(b, m->weight, ir_u32(b, i / 2), q + i % 2 * 2,
                            ir_cast(b, IR_F16, ir_fragment_get(b, m->score, ir_u32(b, i), q)));
}

static void soften_tile(matrix *m, ir_id first) {
    ir_builder *b = m->k.b;
    const attention_rows *r = &m->rows;
    ir_if(b, ir_not(b, attention_rows_all_see(r, first, m->f.keys)));
    hide(m, first);
    ir_end(b);
    soften_scores(m);
}

/* A turn has the scores of a tile and the sums of the one before; meanwhile the values of the one
 * and the keys of the next come. */
static void walk_direct(matrix *m) {
    ir_builder *b = m->k.b;
    const form *f = &m->f;
    const attention_rows *r = &m->rows;
    const uint32_t part = place_of(f);
    ir_id from = ir_get(b, r->from), after = tile_add(b, ir_get(b, r->to), 1), zero = ir_u32(b, 0),
          one = ir_u32(b, 1);
    ir_id held = ir_sub(b, ir_max(b, after, from), from);
    ir_id tiles = ir_max(b, tile_div(b, tile_add(b, held, f->keys - 1), f->keys), one);
    stage(m, &m->keys, from, zero);
    ir_copy_commit(b);
    stage(m, &m->values, from, ir_u32(b, part / 2));
    ir_copy_commit(b);
    ir_copy_wait(b, 1);
    ir_barrier(b);
    begin_scores(m, zero);
    ir_if(b, ir_lt(b, one, tiles));
    stage(m, &m->keys, tile_add(b, from, f->keys), ir_u32(b, part));
    ir_end(b);
    ir_copy_commit(b);
    ir_fragment_wait(b, 0);
    soften_tile(m, from);
    take_weights(m);
    ir_id tile = ir_loop(b, one, tiles, one), first = ir_add(b, from, tile_mul(b, tile, f->keys)),
          place = tile_mul(b, tile_rem(b, tile, 2), part),
          other = ir_sub(b, ir_u32(b, part), place);
    arrive(m);
    begin_scores(m, place);
    begin_values(m, other);
    ir_if(b, ir_lt(b, tile_add(b, tile, 1), tiles));
    stage(m, &m->keys, tile_add(b, first, f->keys), other);
    ir_end(b);
    stage(m, &m->values, first, tile_add(b, place, part / 2));
    ir_copy_commit(b);
    ir_fragment_wait(b, 1);
    soften_tile(m, first);
    ir_fragment_wait(b, 0);
    take_weights(m);
    ir_end(b);
    arrive(m);
    begin_values(m, tile_mul(b, tile_rem(b, tile_add(b, tiles, UINT32_MAX), 2), part));
    ir_fragment_wait(b, 0);
    ir_barrier(b);
}

/* ---- results --------------------------------------------------------------------------------- */

static ir_id stats_at(matrix *m, ir_id part, ir_id row) {
    ir_builder *b = m->k.b;
    const form *f = &m->f;
    ir_id at = ir_add(b, tile_mul(b, part, f->rows), row);
    return tile_add(b, tile_mul(b, at, 2), (f->parts - 1) * f->rows * strip_of(f));
}

/* The parts' largest scores and totals as those of all keys; sums fit them. */
static void join_stats(matrix *m) {
    ir_builder *b = m->k.b;
    const form *f = &m->f;
    for (uint32_t q = 0; q < 2 * f->each; q++) {
        ir_id own[2] = {ir_load(b, m->most, ir_u32(b, q), 1),
                        ir_load(b, m->total, ir_u32(b, q), 1)};
        ir_if(b, ir_and(b, ir_eq(b, tile_rem(b, m->lane, 4), ir_u32(b, 0)),
                        ir_eq(b, m->column, ir_u32(b, 0))));
        ir_store(b, m->joined, stats_at(m, m->part, tile_add(b, m->row, q * TILE)),
                 ir_compose(b, own, 2));
        ir_end(b);
    }
    ir_barrier(b);
    for (uint32_t q = 0; q < 2 * f->each; q++) {
        ir_id stats[8], most = IR_NO_ID, total = IR_NO_ID;
        for (uint32_t p = 0; p < f->parts; p++) {
            stats[p] =
                ir_load(b, m->joined, stats_at(m, ir_u32(b, p), tile_add(b, m->row, q * TILE)), 2);
            ir_id x = ir_extract(b, stats[p], 0);
            most = p ? ir_max(b, most, x) : x;
        }
        for (uint32_t p = 0; p < f->parts; p++) {
            ir_id part = ir_mul(b, ir_extract(b, stats[p], 1),
                                ir_exp2_normal(b, ir_sub(b, ir_extract(b, stats[p], 0), most)));
            total = p ? ir_add(b, total, part) : part;
        }
        ir_store(b, m->total, ir_u32(b, q), total);
        scale_sums(m, q, ir_exp2_normal(b, ir_sub(b, ir_load(b, m->most, ir_u32(b, q), 1), most)));
    }
}

/* Where a pair of the sums lies in the strip that begins with fragment `begin`, of part `part`. */
static ir_id joined_at(matrix *m, ir_id part, uint32_t q, uint32_t fragment) {
    ir_builder *b = m->k.b;
    const form *f = &m->f;
    ir_id line = ir_add(b, tile_mul(b, part, f->rows), tile_add(b, m->row, q * TILE));
    ir_id at = tile_mul(b, tile_div(b, m->column, m->n_column * TILE), STRIP * TILE);
    at = ir_add(b, at, tile_mul(b, tile_rem(b, m->lane, 4), 2));
    return ir_add(b, tile_mul(b, line, strip_of(f)), tile_add(b, at, fragment % STRIP * TILE));
}

/* Sums of a strip of columns of the other parts, to memory. */
static void give_strip(matrix *m, uint32_t begin, uint32_t end) {
    ir_builder *b = m->k.b;
    ir_barrier(b);
    ir_if(b, ir_gt(b, m->part, ir_u32(b, 0)));
    for (uint32_t q = 0; q < 2 * m->f.each; q++)
        for (uint32_t c = begin; c < end; c++)
            ir_store(b, m->joined, joined_at(m, tile_add(b, m->part, UINT32_MAX), q, c),
                     ir_fragment_get(b, m->sum, ir_u32(b, q / 2 * m->n_column + c), q % 2));
    ir_end(b);
    ir_barrier(b);
}

static void store_strip(matrix *m, uint32_t begin, uint32_t end) {
    ir_builder *b = m->k.b;
    const form *f = &m->f;
    const attention_rows *r = &m->rows;
    for (uint32_t q = 0; q < 2 * f->each; q++) {
        ir_id row = tile_add(b, m->row, q * TILE), query = tile_div(b, row, f->group),
              head = ir_add(b, r->first_head, tile_rem(b, row, f->group));
        ir_id line = ir_add(b, tile_mul(b, ir_add(b, r->first_query, query), m->a->n_head), head);
        ir_id at = ir_add(b, m->column, tile_mul(b, tile_rem(b, m->lane, 4), 2));
        ir_id is = ir_lt(b, query, r->n_query);
        if (f->parts > 1) is = ir_and(b, is, ir_eq(b, m->part, ir_u32(b, 0)));
        ir_if(b, is);
        ir_id inverse = ir_splat(b, attention_inverse(b, ir_load(b, m->total, ir_u32(b, q), 1)), 2);
        for (uint32_t c = begin; c < end; c++) {
            ir_id x = ir_fragment_get(b, m->sum, ir_u32(b, q / 2 * m->n_column + c), q % 2);
            for (uint32_t p = 1; p < f->parts; p++)
                x = ir_add(b, x, ir_load(b, m->joined, joined_at(m, ir_u32(b, p - 1), q, c), 2));
            ir_id e = tile_add(b, at, c * TILE);
            if (f->d != m->a->d) ir_if(b, ir_lt(b, e, ir_u32(b, m->a->d)));
            ir_store(b, m->out, ir_add(b, tile_mul(b, line, m->a->d), e), ir_mul(b, x, inverse));
            if (f->d != m->a->d) ir_end(b);
        }
        ir_end(b);
    }
}

static void store(matrix *m) {
    ir_builder *b = m->k.b;
    const form *f = &m->f;
    for (uint32_t q = 0; q < 2 * f->each; q++)
        ir_store(b, m->total, ir_u32(b, q),
                 attention_quad(b, ir_load(b, m->total, ir_u32(b, q), 1), true));
    if (f->parts == 1) {
        store_strip(m, 0, m->n_column);
        return;
    }
    join_stats(m);
    for (uint32_t c = 0; c < m->n_column; c += STRIP) {
        const uint32_t end = m->n_column - c < STRIP ? m->n_column : c + STRIP;
        give_strip(m, c, end);
        store_strip(m, c, end);
    }
}

beryl_status attention_matrix(lowering *l, const attention_task *a) {
    matrix m = {.a = a};
    if (!form_of(l->caps, a, &m.f)) return lower_refuse(l, l->node, "heads of this shape");
    tile_kernel *k = &m.k;
    const form *f = &m.f;
    const beryl_status status = a->cache == TYPE_F32 ? attention_halve(l, a) : BERYL_OK;
    if (status != BERYL_OK) return status;
    ir_builder *b =
        tile_begin(k, l, f->direct ? "attention_direct" : "attention_matrix", threads_of(f));
    ir_subgroup(b, LANES);
    bind(&m);
    for (uint32_t q = 0; q < 2 * f->each; q++) {
        ir_store(b, m.most, ir_u32(b, q), ir_f32(b, ATTENTION_LEAST));
        ir_store(b, m.total, ir_u32(b, q), ir_f32(b, 0));
    }
    for (uint32_t i = 0; i < f->each * m.n_column; i++)
        ir_fragment_fill(b, m.sum, ir_u32(b, i), ir_f32(b, 0));
    stage_queries(&m);
    if (!f->direct) ir_barrier(b);
    for (uint32_t e = 0; e < f->d / DEPTH && f->held; e++) load_queries(&m, e, e * f->each);
    attention_rows_begin(&m.rows);
    if (f->direct) walk_direct(&m);
    else walk(&m);
    attention_rows_end(&m.rows);
    store(&m);
    return tile_end_3d(k, a->rows, f->queries, (lower_count){a->n_head / f->group, 0}, 1,
                       (lower_count){1, 0});
}
