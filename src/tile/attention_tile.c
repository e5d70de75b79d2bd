/* attention_tile.c - attention of many rows: a tile of rows against tiles of keys,
 * softmax online.
 *
 * A workgroup has ROWS rows = (query, head of the few that share a kv head). Scores come from
 * pieces of queries and keys in workgroup memory, elements leading, so that a lane's rows and
 * keys are neighbours there; a lane makes its rows by KEYS_EACH keys, `across` lanes beside each
 * other share its rows, their maxima too. The weights then lie there as [key, row], values follow
 * some keys at a time, and a lane keeps its rows by d / across columns. Keys run from the first to
 * the last that a row of the tile sees; tiles at that edge are masked row by row. Rows of another
 * slot take turns, and so do rows whose keys one ring cannot hold (usually there is one turn). */
#include "tile/attention.h"
#include "base/error.h"

enum {
    ACROSS = 16, /* more want subgroups as large */
    EIGHT = ATTENTION_EIGHT,
    PAD = 4,
    ROWS_EACH_MAX = 8,
    D_MAX = 512,
    UNITS = 128,
    TURNS = 4
};

typedef struct form {
    /* lanes that share rows; rows of a lane, lanes down, keys of a lane, elements staged, keys of
     * values staged */
    uint32_t across, each, down, keys_each, part, values;
    uint32_t rows, keys, lanes, group, queries; /* group: heads of a tile */
    uint32_t wide, columns;                     /* columns of a lane: vectors of `wide` */
    /* resident: all elements of the queries stay in workgroup memory */
    bool resident, subgroups;
} form;

static uint32_t whole_of(const form *f, uint32_t d) { /* columns of all lanes; from d on: 0 */
    return (d + f->across - 1) / f->across * f->across;
}

static uint32_t stage_of(const form *f, uint32_t d) {
    const uint32_t keys = f->part * (f->keys + (f->resident ? 0 : f->rows)),
                   values = f->values * whole_of(f, d);
    return keys > values ? keys : values;
}

static uint32_t floats_of(const form *f, uint32_t d) {
    return f->keys * (f->rows + PAD) + stage_of(f, d) + (f->resident ? d * f->rows : 0);
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

/* The first that fits the device and has work for all of its units; as measured on an H200
 * through WebGPU (f16 cache; TFLOP/s: d 256 15.2, d 512 15.4). Of few rows the one with the most
 * workgroups. FORMS: none. */
static uint32_t rule_of(const device_caps *caps, const attention_task *a) {
    const uint32_t units = caps->compute_units ? caps->compute_units : UNITS;
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
    ir_memory weights, stage, resident;  /* of the workgroup */
    ir_memory scores, sums, most, total; /* registers */
    ir_id q_offset, scale, local, across, down;
} tile;

/* A loop whose body is short, TURNS of them written out: not all compilers do so. */
static ir_id turns(tile *t, uint32_t n) {
    return ir_loop_unrolled(t->k.b, ir_u32(t->k.b, 0), ir_u32(t->k.b, n), ir_u32(t->k.b, TURNS), 2);
}

static ir_id steps(tile *t, uint32_t n, uint32_t step) {
    return ir_loop(t->k.b, ir_u32(t->k.b, 0), ir_u32(t->k.b, n), ir_u32(t->k.b, step));
}

/* This lane's work of n units. */
static ir_id share(tile *t, uint32_t n) {
    return ir_loop(t->k.b, t->local, ir_u32(t->k.b, n), ir_u32(t->k.b, t->f.lanes));
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
    if (f->resident) t->resident = ir_workgroup(b, IR_F32, a->d * f->rows);
    t->scores = ir_register(b, IR_F32, f->each * f->keys_each);
    t->sums = ir_register(b, IR_F32, f->each * f->columns * f->wide);
    t->most = ir_register(b, IR_F32, f->each);
    t->total = ir_register(b, IR_F32, f->each);
    t->local = ir_local(b, 0);
    t->across = tile_rem(k, t->local, f->across);
    t->down = tile_div(k, t->local, f->across);
    t->rows = (attention_rows){.spare = f->queries * f->group != f->rows,
                               .each = f->each,
                               .queries = f->queries,
                               .group = f->group,
                               .lane_rows = t->down};
    attention_rows_bind(&t->rows, k, a);
}

/* ---- to workgroup memory --------------------------------------------------------------------- */

/* Elements [part, part + n) of the queries, times the scale, as [element, row]. */
static void stage_queries(tile *t, ir_memory to, ir_id part, uint32_t n) {
    tile_kernel *k = &t->k;
    ir_builder *b = k->b;
    const form *f = &t->f;
    ir_id i = share(t, f->rows * n / 4), row = tile_rem(k, i, f->rows),
          e = tile_mul(k, tile_div(k, i, f->rows), 4);
    ir_id query = ir_min(b, tile_div(k, row, f->group), tile_add(k, t->rows.n_query, UINT32_MAX));
    ir_id head = ir_add(b, t->rows.first_head, tile_rem(k, row, f->group));
    ir_id at = ir_add(b, tile_mul(k, ir_add(b, t->rows.first_query, query), t->a->q_stride[0]),
                      tile_mul(k, head, t->a->q_stride[1]));
    ir_id x = ir_load(b, t->q, ir_add(b, ir_add(b, t->q_offset, at), ir_add(b, part, e)), 4);
    x = ir_mul(b, x, ir_splat(b, t->scale, 4));
    for (uint32_t j = 0; j < 4; j++)
        ir_store(b, to, ir_add(b, tile_mul(k, tile_add(k, e, j), f->rows), row),
                 ir_extract(b, x, j));
    ir_end(b);
}

static ir_id eight_of(const attention_cache *cache, ir_id at) {
    ir_id raw[8];
    attention_cache_load(cache, tile_div(cache->k, at, EIGHT), raw);
    return attention_cache_values(cache, raw);
}

/* Elements [part, part + f.part) of a tile's keys as [element, place]; at place p is key p /
 * keys_each + p % keys_each * across, so that what lanes beside each other store of weights later
 * falls into different banks. */
static void stage_keys(tile *t, ir_id first, ir_id part, uint32_t base) {
    tile_kernel *k = &t->k;
    ir_builder *b = k->b;
    const form *f = &t->f;
    ir_id i = share(t, f->keys * f->part / EIGHT), place = tile_rem(k, i, f->keys),
          e = tile_mul(k, tile_div(k, i, f->keys), EIGHT);
    ir_id key = ir_add(b, tile_div(k, place, f->keys_each),
                       tile_mul(k, tile_rem(k, place, f->keys_each), f->across));
    ir_id from = attention_rows_key(&t->rows, &t->keys, ir_add(b, first, key)),
          x = eight_of(&t->keys, ir_add(b, from, ir_add(b, part, e)));
    for (uint32_t j = 0; j < EIGHT; j++)
        ir_store(b, t->stage,
                 tile_add(k, ir_add(b, tile_mul(k, tile_add(k, e, j), f->keys), place), base),
                 ir_extract(b, x, j));
    ir_end(b);
}

static void stage_values(tile *t, ir_id first) {
    tile_kernel *k = &t->k;
    ir_builder *b = k->b;
    const uint32_t d = t->a->d, whole = whole_of(&t->f, d), units = whole / EIGHT;
    ir_id i = share(t, t->f.values * units), key = tile_div(k, i, units),
          e = tile_mul(k, tile_rem(k, i, units), EIGHT);
    ir_id from = whole == d ? e : ir_min(b, e, ir_u32(b, d - EIGHT));
    ir_id x = eight_of(
              &t->values,
              ir_add(b, attention_rows_key(&t->rows, &t->values, ir_add(b, first, key)), from)),
          to = ir_fma(b, key, ir_u32(b, whole), e);
    if (whole != d)
        x = ir_select(b, ir_splat(b, ir_eq(b, from, e), EIGHT), x, ir_number(b, IR_F32, EIGHT, 0));
    ir_store(b, t->stage, to, ir_swizzle(b, x, 4, 0x3210));
    ir_store(b, t->stage, tile_add(k, to, 4), ir_swizzle(b, x, 4, 0x7654));
    ir_end(b);
}

/* ---- work ------------------------------------------------------------------------------------ */

static void add_score(tile *t, ir_id part, ir_id e) {
    tile_kernel *k = &t->k;
    ir_builder *b = k->b;
    const form *f = &t->f;
    const uint32_t keys_at = f->resident ? 0 : f->part * f->rows;
    ir_id rows[ROWS_EACH_MAX], own = tile_mul(k, t->down, f->each);
    if (f->resident)
        tile_load_some(&t->k, t->resident, ir_add(b, tile_mul(k, ir_add(b, part, e), f->rows), own),
                       f->each, rows);
    else tile_load_some(&t->k, t->stage, ir_add(b, tile_mul(k, e, f->rows), own), f->each, rows);
    ir_id at = tile_add(k, ir_add(b, tile_mul(k, e, f->keys), tile_mul(k, t->across, f->keys_each)),
                        keys_at);
    ir_id keys = ir_load(b, t->stage, at, f->keys_each);
    for (uint32_t r = 0; r < f->each; r++) {
        ir_id to = ir_u32(b, r * f->keys_each);
        ir_store(b, t->scores, to,
                 ir_fma(b, ir_splat(b, rows[r], f->keys_each), keys,
                        ir_load(b, t->scores, to, f->keys_each)));
    }
}

static void add_scores(tile *t, ir_id part) {
    ir_id e = turns(t, t->f.part);
    for (uint32_t i = 0; i < TURNS; i++) add_score(t, part, tile_add(&t->k, e, i));
    ir_end(t->k.b);
}

static void mask(tile *t, ir_id first) {
    tile_kernel *k = &t->k;
    ir_builder *b = k->b;
    const form *f = &t->f;
    ir_id whole = ir_and(b, ir_ge(b, first, ir_get(b, t->rows.inner_low)),
                         ir_le(b, tile_add(k, first, f->keys - 1), ir_get(b, t->rows.inner_high)));
    ir_if(b, ir_not(b, whole));
    for (uint32_t i = 0; i < f->keys_each; i++) {
        ir_id key = ir_add(b, first, tile_add(k, t->across, i * f->across));
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
    tile_kernel *k = &t->k;
    ir_builder *b = k->b;
    const form *f = &t->f;
    if (f->subgroups) {
        for (uint32_t r = 0; r < f->each; r++)
            x[r] = op == IR_MAX ? ir_subgroup_max(b, x[r]) : ir_subgroup_add(b, x[r]);
        return;
    }
    ir_id own = tile_mul(k, t->down, f->each), at = ir_add(b, tile_mul(k, t->across, f->rows), own);
    for (uint32_t r = 0; r < f->each; r++) ir_store(b, t->weights, tile_add(k, at, r), x[r]);
    ir_barrier(b);
    for (uint32_t l = 0; l < f->across; l++) {
        ir_id other[ROWS_EACH_MAX];
        tile_load_some(&t->k, t->weights, tile_add(k, own, l * f->rows), f->each, other);
        for (uint32_t r = 0; r < f->each; r++)
            x[r] = l ? ir_binary(b, op, x[r], other[r]) : other[r];
    }
    ir_barrier(b);
}

/* Scores become weights, in workgroup memory; what was before fades. */
static void soften(tile *t) {
    tile_kernel *k = &t->k;
    ir_builder *b = k->b;
    const form *f = &t->f;
    ir_id now[ROWS_EACH_MAX], p[ROWS_EACH_MAX];
    for (uint32_t r = 0; r < f->each; r++)
        now[r] =
            tile_max_vector(k, ir_load(b, t->scores, ir_u32(b, r * f->keys_each), f->keys_each));
    join(t, IR_MAX, now);
    for (uint32_t r = 0; r < f->each; r++) {
        ir_id at = ir_u32(b, r), before = ir_load(b, t->most, at, 1);
        now[r] = ir_max(b, before, now[r]);
        ir_id keep = ir_exp(b, ir_sub(b, before, now[r])),
              score = ir_load(b, t->scores, ir_u32(b, r * f->keys_each), f->keys_each);
        p[r] = ir_exp(b, ir_sub(b, score, ir_splat(b, now[r], f->keys_each)));
        ir_store(b, t->most, at, now[r]);
        ir_store(b, t->total, at,
                 ir_fma(b, ir_load(b, t->total, at, 1), keep, tile_sum_vector(k, p[r])));
        for (uint32_t c = 0; c < f->columns; c++) {
            ir_id sum = ir_u32(b, (r * f->columns + c) * f->wide);
            ir_store(b, t->sums, sum,
                     ir_mul(b, ir_load(b, t->sums, sum, f->wide), ir_splat(b, keep, f->wide)));
        }
    }
    const uint32_t wide = f->each % 4 == 0 ? 4 : 2;
    for (uint32_t i = 0; i < f->keys_each; i++) {
        ir_id key = tile_add(k, t->across, i * f->across),
              at = ir_add(b, tile_mul(k, key, f->rows + PAD), tile_mul(k, t->down, f->each));
        for (uint32_t r = 0; r < f->each; r += wide) {
            ir_id some[4];
            for (uint32_t j = 0; j < wide; j++) some[j] = ir_extract(b, p[r + j], i);
            ir_store(b, t->weights, tile_add(k, at, r), ir_compose(b, some, wide));
        }
    }
}

static void add_value(tile *t, ir_id base, ir_id key) {
    tile_kernel *k = &t->k;
    ir_builder *b = k->b;
    const form *f = &t->f;
    ir_id rows[ROWS_EACH_MAX], at = ir_add(b, tile_mul(k, ir_add(b, base, key), f->rows + PAD),
                                           tile_mul(k, t->down, f->each));
    tile_load_some(&t->k, t->weights, at, f->each, rows);
    for (uint32_t c = 0; c < f->columns; c++) {
        ir_id column = tile_add(k, tile_mul(k, t->across, f->wide), c * f->across * f->wide);
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
    for (uint32_t i = 0; i < TURNS; i++) add_value(t, base, tile_add(&t->k, key, i));
    ir_end(t->k.b);
}

/* The tile of keys that begins at `first`. */
static void turn(tile *t, ir_id first) {
    ir_builder *b = t->k.b;
    const form *f = &t->f;
    for (uint32_t r = 0; r < f->each; r++)
        ir_store(b, t->scores, ir_u32(b, r * f->keys_each), ir_number(b, IR_F32, f->keys_each, 0));
    ir_id part = steps(t, t->a->d, f->part);
    ir_barrier(b);
    if (!f->resident) stage_queries(t, t->stage, part, f->part);
    stage_keys(t, first, part, f->resident ? 0 : f->part * f->rows);
    ir_barrier(b);
    add_scores(t, part);
    ir_end(b);
    mask(t, first);
    soften(t);
    ir_id base = steps(t, f->keys, f->values);
    ir_barrier(b);
    stage_values(t, ir_add(b, first, base));
    ir_barrier(b);
    add_values(t, base);
    ir_end(b);
}

static void finish(tile *t) {
    tile_kernel *k = &t->k;
    ir_builder *b = k->b;
    const form *f = &t->f;
    ir_id total[ROWS_EACH_MAX];
    for (uint32_t r = 0; r < f->each; r++) total[r] = ir_load(b, t->total, ir_u32(b, r), 1);
    ir_barrier(b);
    join(t, IR_ADD, total);
    for (uint32_t r = 0; r < f->each; r++) {
        ir_id row = tile_add(k, tile_mul(k, t->down, f->each), r),
              query = tile_div(k, row, f->group);
        ir_id head = ir_add(b, t->rows.first_head, tile_rem(k, row, f->group)),
              factor = ir_splat(b, attention_inverse(k, total[r]), f->wide);
        ir_id at = tile_mul(
            k, ir_add(b, tile_mul(k, ir_add(b, t->rows.first_query, query), t->a->n_head), head),
            t->a->d);
        ir_if(b, ir_lt(b, query, t->rows.n_query));
        for (uint32_t c = 0; c < f->columns; c++) {
            ir_id column = tile_add(k, tile_mul(k, t->across, f->wide), c * f->across * f->wide);
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

beryl_status attention_tile(lowering *l, const graph_node *node, const attention_task *a,
                            beryl_error *error) {
    tile t = {.a = a};
    form *f = &t.f;
    if (!choose_form(l, a, f)) return lower_refuse(l, node, "heads of this shape", error);
    tile_kernel *k = &t.k;
    tile_begin(k, l, node, "attention_tile", f->lanes);
    ir_builder *b = k->b;
    if (f->subgroups) ir_subgroup(b, f->across);
    bind(&t);
    for (uint32_t r = 0; r < f->each; r++) {
        ir_store(b, t.most, ir_u32(b, r), ir_f32(b, ATTENTION_NO_KEYS));
        ir_store(b, t.total, ir_u32(b, r), ir_f32(b, 0));
        for (uint32_t c = 0; c < f->columns; c++)
            ir_store(b, t.sums, ir_u32(b, (r * f->columns + c) * f->wide),
                     ir_number(b, IR_F32, f->wide, 0));
    }
    if (f->resident) stage_queries(&t, t.resident, ir_u32(b, 0), a->d);
    attention_rows_begin(&t.rows);
    ir_id first = ir_loop(b, ir_get(b, t.rows.from), tile_add(k, ir_get(b, t.rows.to), 1),
                          ir_u32(b, f->keys));
    turn(&t, first);
    ir_end(b);
    attention_rows_end(&t.rows);
    finish(&t);
    return tile_end_3d(k, a->rows, f->queries, (lower_count){a->n_head / f->group, 0}, 1,
                       (lower_count){1, 0}, 1, error);
}
