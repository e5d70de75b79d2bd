/* attention_tile.c - attention of many rows: a tile of rows against tiles of keys,
 * softmax online.
 *
 * A workgroup has ROWS rows = (query, head of the few that share a kv head). Scores come from
 * pieces of queries and keys in workgroup memory, line by line as they lie in theirs, PAD apart, so
 * that fours of neighbours' keys lie in different banks; a lane makes its rows by KEYS_EACH keys,
 * `across` lanes beside each other share its rows, their maxima too. The weights then lie there as
 * [key, row], values follow some keys at a time, and a lane keeps its rows by d / across columns.
 * What is staged next is asked for before work begins on what is. Keys run from the first to
 * the last that a row of the tile sees; tiles at that edge are masked row by row. Rows of another
 * slot take turns, and so do rows whose keys one ring cannot hold (usually there is one turn). */
#include "tile/attention.h"
#include "base/error.h"

enum {
    ACROSS = 16, /* more want subgroups as large */
    EIGHT = ATTENTION_EIGHT,
    PAD = 4,
    ROWS_EACH_MAX = 8,
    KEYS_EACH_MAX = 4,
    D_MAX = 512,
    TURNS = 4,
    AHEAD = 8 /* words of a lane that are asked for ahead, at most: registers */
};

typedef struct form {
    /* lanes that share rows; rows of a lane, lanes down, keys of a lane, elements staged, keys of
     * values staged */
    uint32_t across, each, down, keys_each, part, values;
    uint32_t rows, keys, lanes, group, queries; /* group: heads of a tile */
    uint32_t wide, columns;                     /* columns of a lane: vectors of `wide` */
    /* resident: all elements of the queries stay in workgroup memory */
    bool resident, subgroups;
    uint32_t line; /* from row to row of what is staged of queries: elements */
} form;

static uint32_t whole_of(const form *f, uint32_t d) { /* columns of all lanes; from d on: 0 */
    return (d + f->across - 1) / f->across * f->across;
}

static uint32_t stage_of(const form *f, uint32_t d) {
    const uint32_t keys = (f->part + PAD) * f->keys + (f->resident ? 0 : f->line * f->rows),
                   values = f->values * whole_of(f, d);
    return keys > values ? keys : values;
}

static uint32_t floats_of(const form *f, uint32_t d) {
    return f->keys * (f->rows + PAD) + stage_of(f, d) + (f->resident ? f->line * f->rows : 0);
}

enum { FORMS = 14 };

/* false: it does not fit. */
static bool form_at(const device_caps *caps, const attention_task *a, uint32_t i, form *f) {
    /* d_max: in 16ths */
    static const struct {
        uint8_t d_max, across, each, down, keys_each, part, values;
        bool resident;
    } forms[FORMS] = {{4, 16, 8, 8, 4, 32, 32, true},   {4, 16, 4, 8, 4, 32, 32, true},
                      {8, 16, 8, 8, 4, 32, 32, false},  {8, 16, 4, 8, 4, 32, 16, false},
                      {8, 16, 4, 8, 2, 16, 16, false},  {16, 32, 8, 8, 2, 32, 16, false},
                      {16, 16, 4, 8, 4, 64, 16, false}, {16, 16, 4, 8, 4, 32, 16, false},
                      {16, 16, 2, 8, 4, 32, 16, false}, {16, 16, 4, 8, 2, 16, 8, false},
                      {32, 32, 4, 8, 4, 32, 8, false},  {32, 16, 4, 8, 4, 32, 8, false},
                      {32, 16, 2, 8, 4, 32, 8, false},  {32, 16, 2, 8, 2, 16, 4, false}};
    const uint32_t memory = caps->workgroup_bytes, invocations = caps->workgroup_invocations;
    const uint32_t heads = a->n_head / a->n_kv;
    if (a->d > forms[i].d_max * 16u) return false;
    *f = (form){.across = forms[i].across,
                .each = forms[i].each,
                .down = forms[i].down,
                .keys_each = forms[i].keys_each,
                .part = forms[i].part,
                .values = forms[i].values,
                .resident = forms[i].resident};
    while (a->d % f->part) f->part /= 2;
    f->line = (f->resident ? a->d : f->part) + PAD;
    f->rows = f->each * f->down;
    f->keys = f->keys_each * f->across;
    f->lanes = f->down * f->across;
    f->group = whole_divisor(heads, f->rows);
    f->queries = f->rows / f->group;
    f->columns = whole_of(f, a->d) / f->across;
    f->wide = f->columns % 4 == 0 ? 4 : f->columns % 2 == 0 ? 2 : 1;
    f->columns /= f->wide;
    f->subgroups = caps->subgroups && caps->subgroup_size >= f->across;
    return floats_of(f, a->d) * 4 <= memory && f->lanes <= invocations &&
           (f->across == ACROSS || f->subgroups);
}

/* The first that fits the device and has work for all of its units: they stand in the order of
 * their speed on an H200 through WebGPU, of f16 caches. Of few rows the one with the most
 * workgroups. FORMS: none. */
static uint32_t rule_of(const device_caps *caps, const attention_task *a) {
    const uint32_t units = tile_units(caps);
    uint64_t most = 0;
    uint32_t best = FORMS;
    form f;
    if (a->d % EIGHT || a->d > D_MAX || a->n_head % a->n_kv) return FORMS;
    for (uint32_t i = 0; i < FORMS; i++) {
        if (!form_at(caps, a, i, &f)) continue;
        const uint64_t groups = (uint64_t)whole_over(a->n, f.queries) * (a->n_head / f.group);
        if (groups > most) most = groups, best = i;
        if (groups >= (f.across == ACROSS ? 2 * units : units - units / 8)) break;
    }
    return best;
}

/* As tuning chose, of all that fit. */
static bool choose_form(lowering *l, const attention_task *a, form *f) {
    const uint32_t rule = rule_of(l->caps, a);
    uint32_t fit[FORMS], n = 0;
    if (rule == FORMS) return false;
    for (uint32_t i = 0; i < FORMS; i++)
        if (form_at(l->caps, a, i, f)) fit[n++] = i;
    return form_at(l->caps, a, tile_choose_of(l, "form", rule, fit, n), f);
}

bool attention_tile_fits(const device_caps *caps, const attention_task *a) {
    return attention_cache_known(a) && rule_of(caps, a) < FORMS;
}

typedef struct tile {
    tile_kernel k;
    const attention_task *a;
    form f;
    attention_cache keys, values;
    attention_rows rows;
    ir_memory q, out;
    ir_memory weights, stage, resident;              /* of the workgroup */
    ir_memory scores, sums, most, total, raw, raw_q; /* registers */
    ir_id q_offset, scale, local, across, down;
    bool ahead;
} tile;

/* A loop whose body is short, TURNS of them written out: not all compilers do so. */
static ir_id turns(tile *t, uint32_t n) {
    return ir_loop_unrolled(t->k.b, ir_u32(t->k.b, 0), ir_u32(t->k.b, n), ir_u32(t->k.b, TURNS), 2);
}

static ir_id steps(tile *t, uint32_t n, uint32_t step) {
    return ir_loop(t->k.b, ir_u32(t->k.b, 0), ir_u32(t->k.b, n), ir_u32(t->k.b, step));
}

static uint32_t query_fours(const form *f) { /* of a part */
    return f->rows * f->part / 4;
}

static uint32_t key_eights(const form *f) { /* of a part */
    return f->keys * f->part / EIGHT;
}

static uint32_t value_eights(const tile *t) { /* of what is staged */
    return t->f.values * whole_of(&t->f, t->a->d) / EIGHT;
}

static uint32_t each_of(const form *f, uint32_t n) { /* of n, a lane */
    return whole_over(n, f->lanes);
}

static void bind(tile *t) {
    tile_kernel *k = &t->k;
    ir_builder *b = k->b;
    const attention_task *a = t->a;
    const form *f = &t->f;
    t->q = tile_read(k, "q", a->q);
    attention_caches_bind(&t->keys, &t->values, k, a, false);
    t->out = tile_write(k, "out", a->out);
    t->q_offset = tile_u32(k, "q_offset", a->q_offset);
    t->scale = tile_f32(k, "scale", a->scale);
    t->weights = ir_workgroup(b, IR_F32, f->keys * (f->rows + PAD));
    t->stage = ir_workgroup(b, IR_F32, stage_of(f, a->d));
    if (f->resident) t->resident = ir_workgroup(b, IR_F32, f->line * f->rows);
    t->scores = ir_register(b, IR_F32, f->each * f->keys_each);
    t->sums = ir_register(b, IR_F32, f->each * f->columns * f->wide);
    t->most = ir_register(b, IR_F32, f->each);
    t->total = ir_register(b, IR_F32, f->each);
    const uint32_t words = whole_most(each_of(f, key_eights(f)), each_of(f, value_eights(t))) *
                           whole_most(t->keys.raw, t->values.raw);
    t->raw = ir_register(b, a->cache == TYPE_F32 ? IR_F32 : IR_U32, words);
    t->raw_q = ir_register(b, IR_F32, each_of(f, query_fours(f)) * 4);
    t->ahead = words <= AHEAD;
    t->local = ir_local(b, 0);
    t->across = tile_rem(b, t->local, f->across);
    t->down = tile_div(b, t->local, f->across);
    t->rows = (attention_rows){.spare = f->queries * f->group != f->rows,
                               .each = f->each,
                               .queries = f->queries,
                               .group = f->group,
                               .lane_rows = t->down};
    attention_rows_bind(&t->rows, k, a);
}

/* ---- to workgroup memory --------------------------------------------------------------------- */

/* Number i of what a lane moves, of n. */
static ir_id unit_of(tile *t, uint32_t i, uint32_t n) {
    ir_id at = tile_add(t->k.b, t->local, i * t->f.lanes);
    return (i + 1) * t->f.lanes > n ? ir_min(t->k.b, at, ir_u32(t->k.b, n - 1)) : at;
}

/* Asks for elements [part, part + f.part) of the queries. */
static void fetch_queries(tile *t, ir_id part) {
    ir_builder *b = t->k.b;
    const form *f = &t->f;
    const uint32_t n = query_fours(f), fours = f->part / 4;
    for (uint32_t i = 0; i < each_of(f, n); i++) {
        ir_id unit = unit_of(t, i, n), row = tile_div(b, unit, fours),
              e = ir_add(b, part, tile_mul(b, tile_rem(b, unit, fours), 4));
        ir_id query =
            ir_min(b, tile_div(b, row, f->group), tile_add(b, t->rows.n_query, UINT32_MAX));
        ir_id head = ir_add(b, t->rows.first_head, tile_rem(b, row, f->group));
        ir_id at = ir_add(b, tile_mul(b, ir_add(b, t->rows.first_query, query), t->a->q_stride[0]),
                          tile_mul(b, head, t->a->q_stride[1]));
        ir_store(b, t->raw_q, ir_u32(b, i * 4),
                 ir_load(b, t->q, ir_add(b, ir_add(b, t->q_offset, at), e), 4));
    }
}

/* Them, times the scale, to workgroup memory. */
static void put_queries(tile *t, ir_memory to, ir_id part) {
    ir_builder *b = t->k.b;
    const form *f = &t->f;
    const uint32_t n = query_fours(f), fours = f->part / 4;
    for (uint32_t i = 0; i < each_of(f, n); i++) {
        ir_id unit = tile_add(b, t->local, i * f->lanes),
              e = ir_add(b, part, tile_mul(b, tile_rem(b, unit, fours), 4));
        if ((i + 1) * f->lanes > n) ir_if(b, ir_lt(b, unit, ir_u32(b, n)));
        ir_store(b, to, ir_add(b, tile_mul(b, tile_div(b, unit, fours), f->line), e),
                 ir_mul(b, ir_load(b, t->raw_q, ir_u32(b, i * 4), 4), ir_splat(b, t->scale, 4)));
        if ((i + 1) * f->lanes > n) ir_end(b);
    }
}

/* Asks for elements [part, part + f.part) of the keys from `first` on. */
static void fetch_keys(tile *t, ir_id first, ir_id part) {
    ir_builder *b = t->k.b;
    const uint32_t n = key_eights(&t->f), eights = t->f.part / EIGHT;
    for (uint32_t i = 0; i < each_of(&t->f, n); i++) {
        ir_id at = unit_of(t, i, n), key = ir_add(b, first, tile_div(b, at, eights)),
              e = ir_add(b, part, tile_mul(b, tile_rem(b, at, eights), EIGHT));
        ir_id from = ir_add(b, attention_rows_key(&t->rows, &t->keys, key), e);
        attention_cache_fetch(&t->keys, tile_div(b, from, EIGHT), t->raw, i);
    }
}

/* What a part of the scores is made of. */
static void fetch_part(tile *t, ir_id first, ir_id part) {
    if (!t->f.resident) fetch_queries(t, part);
    fetch_keys(t, first, part);
}

/* Asks for the values of the keys from `first` on; beyond d: for the last ones. */
static void fetch_values(tile *t, ir_id first) {
    ir_builder *b = t->k.b;
    const uint32_t n = value_eights(t), d = t->a->d, eights = whole_of(&t->f, d) / EIGHT;
    for (uint32_t i = 0; i < each_of(&t->f, n); i++) {
        ir_id at = unit_of(t, i, n), key = ir_add(b, first, tile_div(b, at, eights)),
              e = tile_mul(b, tile_rem(b, at, eights), EIGHT);
        if (d % (eights * EIGHT)) e = ir_min(b, e, ir_u32(b, d - EIGHT));
        ir_id from = ir_add(b, attention_rows_key(&t->rows, &t->values, key), e);
        attention_cache_fetch(&t->values, tile_div(b, from, EIGHT), t->raw, i);
    }
}

/* What was asked for to workgroup memory: lines of so many eights, `line` elements apart. */
static void put(tile *t, const attention_cache *from, uint32_t base, uint32_t n, uint32_t eights,
                uint32_t line) {
    ir_builder *b = t->k.b;
    for (uint32_t i = 0; i < each_of(&t->f, n); i++) {
        const bool ragged = (i + 1) * t->f.lanes > n;
        ir_id at = tile_add(b, t->local, i * t->f.lanes);
        if (ragged) ir_if(b, ir_lt(b, at, ir_u32(b, n)));
        ir_id x = attention_cache_fetched(from, t->raw, i), eight = tile_rem(b, at, eights),
              to = ir_add(b, tile_mul(b, tile_div(b, at, eights), line), tile_mul(b, eight, EIGHT));
        if (from == &t->values && eights * EIGHT > t->a->d)
            x = ir_select(b, ir_splat(b, ir_lt(b, eight, ir_u32(b, t->a->d / EIGHT)), EIGHT), x,
                          ir_number(b, IR_F32, EIGHT, 0));
        ir_store(b, t->stage, tile_add(b, to, base), ir_swizzle(b, x, 4, 0x3210));
        ir_store(b, t->stage, tile_add(b, to, base + 4), ir_swizzle(b, x, 4, 0x7654));
        if (ragged) ir_end(b);
    }
}

/* ---- work ------------------------------------------------------------------------------------ */

/* A four of elements of each of the lane's rows and keys; e: of the part. */
static void add_score(tile *t, ir_id part, ir_id e) {
    ir_builder *b = t->k.b;
    const form *f = &t->f;
    const uint32_t each = f->keys_each, keys_at = f->resident ? 0 : f->line * f->rows;
    ir_id keys[KEYS_EACH_MAX], columns[4], own = tile_mul(b, t->down, f->each * f->line),
                                           at = f->resident ? ir_add(b, part, e) : e;
    for (uint32_t i = 0; i < each; i++) {
        ir_id key = tile_add(b, t->across, i * f->across);
        keys[i] = ir_load(b, t->stage,
                          tile_add(b, ir_add(b, tile_mul(b, key, f->part + PAD), e), keys_at), 4);
    }
    for (uint32_t j = 0; j < 4; j++) {
        ir_id some[KEYS_EACH_MAX];
        for (uint32_t i = 0; i < each; i++) some[i] = ir_extract(b, keys[i], j);
        columns[j] = ir_compose(b, some, each);
    }
    for (uint32_t r = 0; r < f->each; r++) {
        ir_id to = ir_u32(b, r * each), sum = ir_load(b, t->scores, to, each),
              row = ir_load(b, f->resident ? t->resident : t->stage,
                            tile_add(b, ir_add(b, own, at), r * f->line), 4);
        for (uint32_t j = 0; j < 4; j++)
            sum = ir_fma(b, ir_splat(b, ir_extract(b, row, j), each), columns[j], sum);
        ir_store(b, t->scores, to, sum);
    }
}

static void add_scores(tile *t, ir_id part) {
    ir_id e = turns(t, t->f.part);
    add_score(t, part, e);
    ir_end(t->k.b);
}

static void mask(tile *t, ir_id first) {
    ir_builder *b = t->k.b;
    const form *f = &t->f;
    ir_if(b, ir_not(b, attention_rows_all_see(&t->rows, first, f->keys)));
    for (uint32_t i = 0; i < f->keys_each; i++) {
        ir_id key = ir_add(b, first, tile_add(b, t->across, i * f->across));
        for (uint32_t r = 0; r < f->each; r++) {
            ir_id at = ir_u32(b, r * f->keys_each + i);
            ir_id sees = ir_and(b, ir_ge(b, key, ir_load(b, t->rows.low, ir_u32(b, r), 1)),
                                ir_le(b, key, ir_load(b, t->rows.high, ir_u32(b, r), 1)));
            ir_store(b, t->scores, at,
                     ir_select(b, sees, ir_load(b, t->scores, at, 1), ir_f32(b, ATTENTION_MASKED)));
        }
    }
    ir_end(b);
}

/* A row's numbers of the lanes that share it, joined; `weights` is free. n numbers a lane. */
static void join(tile *t, ir_op op, ir_id *x) {
    ir_builder *b = t->k.b;
    const form *f = &t->f;
    if (f->subgroups) {
        for (uint32_t r = 0; r < f->each; r++)
            x[r] = op == IR_MAX ? ir_subgroup_max(b, x[r]) : ir_subgroup_add(b, x[r]);
        return;
    }
    ir_id own = tile_mul(b, t->down, f->each), at = ir_add(b, tile_mul(b, t->across, f->rows), own);
    for (uint32_t r = 0; r < f->each; r++) ir_store(b, t->weights, tile_add(b, at, r), x[r]);
    ir_barrier(b);
    for (uint32_t l = 0; l < f->across; l++) {
        ir_id other[ROWS_EACH_MAX];
        tile_load_some(b, t->weights, tile_add(b, own, l * f->rows), f->each, other);
        for (uint32_t r = 0; r < f->each; r++)
            x[r] = l ? ir_binary(b, op, x[r], other[r]) : other[r];
    }
    ir_barrier(b);
}

/* Scores become weights, in workgroup memory; what was before fades. */
static void soften(tile *t) {
    ir_builder *b = t->k.b;
    const form *f = &t->f;
    ir_id now[ROWS_EACH_MAX], p[ROWS_EACH_MAX];
    for (uint32_t r = 0; r < f->each; r++)
        now[r] =
            tile_max_vector(b, ir_load(b, t->scores, ir_u32(b, r * f->keys_each), f->keys_each));
    join(t, IR_MAX, now);
    for (uint32_t r = 0; r < f->each; r++) {
        ir_id at = ir_u32(b, r), before = ir_load(b, t->most, at, 1);
        now[r] = ir_max(b, before, now[r]);
        ir_id keep = ir_exp(b, ir_sub(b, before, now[r])),
              score = ir_load(b, t->scores, ir_u32(b, r * f->keys_each), f->keys_each);
        p[r] = ir_exp(b, ir_sub(b, score, ir_splat(b, now[r], f->keys_each)));
        ir_store(b, t->most, at, now[r]);
        ir_store(b, t->total, at,
                 ir_fma(b, ir_load(b, t->total, at, 1), keep, tile_sum_vector(b, p[r])));
        for (uint32_t c = 0; c < f->columns; c++) {
            ir_id sum = ir_u32(b, (r * f->columns + c) * f->wide);
            ir_store(b, t->sums, sum,
                     ir_mul(b, ir_load(b, t->sums, sum, f->wide), ir_splat(b, keep, f->wide)));
        }
    }
    const uint32_t wide = f->each % 4 == 0 ? 4 : 2;
    for (uint32_t i = 0; i < f->keys_each; i++) {
        ir_id key = tile_add(b, t->across, i * f->across),
              at = ir_add(b, tile_mul(b, key, f->rows + PAD), tile_mul(b, t->down, f->each));
        for (uint32_t r = 0; r < f->each; r += wide) {
            ir_id some[4];
            for (uint32_t j = 0; j < wide; j++) some[j] = ir_extract(b, p[r + j], i);
            ir_store(b, t->weights, tile_add(b, at, r), ir_compose(b, some, wide));
        }
    }
}

static void add_value(tile *t, ir_id base, ir_id key) {
    ir_builder *b = t->k.b;
    const form *f = &t->f;
    ir_id rows[ROWS_EACH_MAX], at = ir_add(b, tile_mul(b, ir_add(b, base, key), f->rows + PAD),
                                           tile_mul(b, t->down, f->each));
    tile_load_some(b, t->weights, at, f->each, rows);
    for (uint32_t c = 0; c < f->columns; c++) {
        ir_id column = tile_add(b, tile_mul(b, t->across, f->wide), c * f->across * f->wide);
        ir_id value =
            ir_load(b, t->stage, ir_fma(b, key, ir_u32(b, whole_of(f, t->a->d)), column), f->wide);
        for (uint32_t r = 0; r < f->each; r++) {
            ir_id sum = ir_u32(b, (r * f->columns + c) * f->wide);
            ir_store(
                b, t->sums, sum,
                ir_fma(b, ir_splat(b, rows[r], f->wide), value, ir_load(b, t->sums, sum, f->wide)));
        }
    }
}

/* Keys [base, base + values) of the tile. */
static void add_values(tile *t, ir_id base) {
    ir_id key = turns(t, t->f.values);
    for (uint32_t i = 0; i < TURNS; i++) add_value(t, base, tile_add(t->k.b, key, i));
    ir_end(t->k.b);
}

/* The tile of keys that begins at `first`; its first part has been asked for, where that is done
 * ahead. */
static void turn(tile *t, ir_id first) {
    ir_builder *b = t->k.b;
    const form *f = &t->f;
    const uint32_t d = t->a->d, whole = whole_of(f, d);
    for (uint32_t r = 0; r < f->each; r++)
        ir_store(b, t->scores, ir_u32(b, r * f->keys_each), ir_number(b, IR_F32, f->keys_each, 0));
    ir_id part = steps(t, d, f->part);
    ir_barrier(b);
    if (!t->ahead) fetch_part(t, first, part);
    if (!f->resident) put_queries(t, t->stage, ir_u32(b, 0));
    put(t, &t->keys, f->resident ? 0 : f->line * f->rows, key_eights(f), f->part / EIGHT,
        f->part + PAD);
    ir_barrier(b);
    if (t->ahead) {
        ir_id next = tile_add(b, part, f->part);
        ir_if(b, ir_lt(b, next, ir_u32(b, d)));
        fetch_part(t, first, next);
        ir_else(b);
        fetch_values(t, first);
        ir_end(b);
    }
    add_scores(t, part);
    ir_end(b);
    mask(t, first);
    soften(t);
    ir_id base = steps(t, f->keys, f->values);
    ir_barrier(b);
    if (!t->ahead) fetch_values(t, ir_add(b, first, base));
    put(t, &t->values, 0, value_eights(t), whole / EIGHT, whole);
    ir_barrier(b);
    if (t->ahead) {
        ir_id next = tile_add(b, base, f->values);
        ir_if(b, ir_lt(b, next, ir_u32(b, f->keys)));
        fetch_values(t, ir_add(b, first, next));
        ir_else(b);
        fetch_part(t, tile_add(b, first, f->keys), ir_u32(b, 0));
        ir_end(b);
    }
    add_values(t, base);
    ir_end(b);
}

static void finish(tile *t) {
    ir_builder *b = t->k.b;
    const form *f = &t->f;
    ir_id total[ROWS_EACH_MAX];
    for (uint32_t r = 0; r < f->each; r++) total[r] = ir_load(b, t->total, ir_u32(b, r), 1);
    ir_barrier(b);
    join(t, IR_ADD, total);
    for (uint32_t r = 0; r < f->each; r++) {
        ir_id row = tile_add(b, tile_mul(b, t->down, f->each), r),
              query = tile_div(b, row, f->group);
        ir_id head = ir_add(b, t->rows.first_head, tile_rem(b, row, f->group)),
              factor = ir_splat(b, attention_inverse(b, total[r]), f->wide);
        ir_id at = tile_mul(
            b, ir_add(b, tile_mul(b, ir_add(b, t->rows.first_query, query), t->a->n_head), head),
            t->a->d);
        ir_if(b, ir_lt(b, query, t->rows.n_query));
        for (uint32_t c = 0; c < f->columns; c++) {
            ir_id column = tile_add(b, tile_mul(b, t->across, f->wide), c * f->across * f->wide);
            const bool beyond = (c + 1) * f->across * f->wide > t->a->d;
            if (beyond) ir_if(b, ir_lt(b, column, ir_u32(b, t->a->d)));
            ir_store(b, t->out, ir_add(b, at, column),
                     ir_mul(b,
                            ir_load(b, t->sums, ir_u32(b, (r * f->columns + c) * f->wide), f->wide),
                            factor));
            if (beyond) ir_end(b);
        }
        ir_end(b);
    }
}

beryl_status attention_tile(lowering *l, const attention_task *a) {
    tile t = {.a = a};
    form *f = &t.f;
    if (!choose_form(l, a, f)) return lower_refuse(l, l->node, "heads of this shape");
    tile_kernel *k = &t.k;
    ir_builder *b = tile_begin(k, l, "attention_tile", f->lanes);
    if (f->subgroups) ir_subgroup(b, f->across);
    bind(&t);
    for (uint32_t r = 0; r < f->each; r++) {
        ir_store(b, t.most, ir_u32(b, r), ir_f32(b, ATTENTION_NO_KEYS));
        ir_store(b, t.total, ir_u32(b, r), ir_f32(b, 0));
        for (uint32_t c = 0; c < f->columns; c++)
            ir_store(b, t.sums, ir_u32(b, (r * f->columns + c) * f->wide),
                     ir_number(b, IR_F32, f->wide, 0));
    }
    if (f->resident) {
        ir_id part = steps(&t, a->d, f->part);
        fetch_queries(&t, part);
        put_queries(&t, t.resident, part);
        ir_end(b);
    }
    attention_rows_begin(&t.rows);
    ir_id from = ir_get(b, t.rows.from), to = ir_get(b, t.rows.to);
    if (t.ahead) fetch_part(&t, from, ir_u32(b, 0));
    ir_id first = ir_loop(b, from, tile_add(b, to, 1), ir_u32(b, f->keys));
    turn(&t, first);
    ir_end(b);
    attention_rows_end(&t.rows);
    finish(&t);
    return tile_end_3d(k, a->rows, f->queries, (lower_count){a->n_head / f->group, 0}, 1,
                       (lower_count){1, 0});
}
