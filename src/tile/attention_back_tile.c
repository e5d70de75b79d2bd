/* attention_back_tile.c - the backward pass of attention by tiles: a tile of owned lines against
 * tiles of the others (tile/attention_back.h).
 *
 * As in attention_tile.c: products come from pieces of both sides in workgroup memory, elements
 * leading; a lane has `each` owned lines by `each_other` others of a tile, `across` lanes beside
 * each other share its lines. Weights then lie there as [other, own], the others follow some lines
 * at a time, and a lane keeps its lines by d / across columns of the sum. */
#include "tile/attention_back.h"

enum { PAD = 4, EACH_MAX = 8, D_MAX = 512, TURNS = 4, PART_MIN = 8 };

typedef struct form {
    /* lanes that share lines; lines of a lane, lanes down, other lines of a lane, elements staged,
     * other lines staged for sums */
    uint32_t across, each, down, each_other, part, lines;
    uint32_t own, other, lanes; /* of a tile; of a workgroup */
    uint32_t group, queries;    /* heads and queries of a tile of rows */
    uint32_t wide, columns;     /* columns of a lane: vectors of `wide` */
    uint32_t unit;              /* elements that are read at once */
    uint32_t split;             /* workgroups that share the heads of a key */
} form;

static uint32_t whole_of(const form *f, uint32_t d) { /* columns of all lanes; from d on: 0 */
    const uint32_t unit = f->across * f->unit;
    return (d + unit - 1) / unit * unit;
}

static uint32_t stage_of(const form *f, uint32_t d) {
    const uint32_t parts = f->part * (f->own + f->other), lines = f->lines * whole_of(f, d);
    return parts > lines ? parts : lines;
}

static uint32_t floats_of(const form *f, uint32_t d) {
    return f->other * (f->own + PAD) + stage_of(f, d);
}

enum { FORMS = 10 };

static bool form_at(const lowering *l, const back_task *t, uint32_t i, form *f) {
    /* d_max: in 16ths */
    static const struct {
        uint8_t d_max, across, each, down, each_other, part, lines;
    } forms[FORMS] = {{4, 16, 8, 8, 4, 32, 32},  {8, 16, 4, 8, 4, 32, 16},
                      {8, 16, 4, 8, 2, 16, 16},  {16, 32, 8, 8, 2, 32, 16},
                      {16, 16, 4, 8, 4, 32, 16}, {16, 16, 4, 8, 2, 16, 8},
                      {32, 32, 4, 8, 4, 32, 8},  {32, 16, 4, 8, 4, 32, 8},
                      {32, 16, 2, 8, 4, 32, 8},  {32, 16, 2, 8, 2, 16, 4}};
    const device_caps *caps = l->caps;
    const uint32_t memory = caps->workgroup_bytes, invocations = caps->workgroup_invocations;
    const attention_task *a = &t->a;
    uint32_t heads = a->n_head / a->n_kv;
    if (a->d > forms[i].d_max * 16u) return false;
    *f = (form){.across = forms[i].across,
                .each = forms[i].each,
                .down = forms[i].down,
                .each_other = forms[i].each_other,
                .part = forms[i].part,
                .lines = forms[i].lines,
                .split = 1,
                .unit = back_reads(l, t, 4) ? 4 : 1};
    while (a->d % f->part && f->part > PART_MIN) f->part /= 2;
    f->own = f->each * f->down;
    f->other = f->each_other * f->across;
    f->lanes = f->down * f->across;
    const uint32_t rows = back_owns_rows(t) ? f->own : f->other, units = tile_units(caps);
    while (!back_owns_rows(t) && !device_is_processor(caps) && heads % 2 == 0 &&
           (uint64_t)whole_over(a->n_row, f->own) * a->n_kv * f->split < units)
        f->split *= 2, heads /= 2;
    f->group = whole_divisor(heads, rows);
    f->queries = rows / f->group;
    f->columns = whole_of(f, a->d) / f->across;
    f->wide = f->columns % 4 == 0 ? 4 : f->columns % 2 == 0 ? 2 : 1;
    f->columns /= f->wide;
    return floats_of(f, a->d) * 4 <= memory && f->lanes <= invocations;
}

/* The first that has work for all units of the device; else the one with the most workgroups. */
static uint32_t rule_of(const lowering *l, const back_task *t) {
    const uint32_t units = tile_units(l->caps);
    const attention_task *a = &t->a;
    uint64_t most = 0;
    uint32_t best = FORMS;
    form f;
    if (a->d > D_MAX) return FORMS;
    for (uint32_t i = 0; i < FORMS; i++) {
        if (!form_at(l, t, i, &f)) continue;
        const uint64_t groups = back_owns_rows(t)
                                    ? (uint64_t)whole_over(a->n, f.queries) * (a->n_head / f.group)
                                    : (uint64_t)whole_over(a->n_row, f.own) * a->n_kv * f.split;
        if (groups > most) most = groups, best = i;
        if (groups >= units - units / 8) break;
    }
    return best;
}

/* As tuning chose, of all that fit. */
static bool choose_form(lowering *l, const back_task *t, form *f) {
    const uint32_t rule = rule_of(l, t);
    uint32_t fit[FORMS], n = 0;
    if (rule == FORMS) return false;
    for (uint32_t i = 0; i < FORMS; i++)
        if (form_at(l, t, i, f)) fit[n++] = i;
    return form_at(l, t, tile_choose_of(l, "form", rule, fit, n), f);
}

bool back_tile_fits(const lowering *l, const back_task *t) {
    return rule_of(l, t) < FORMS;
}

typedef struct tile {
    tile_kernel k;
    const back_task *t;
    form f;
    back_walk w;
    ir_memory weights, stage;     /* of the workgroup */
    ir_memory scores, slopes;     /* registers [each, each_other]: q k, d v */
    ir_memory sums;               /* registers [each, columns, wide] */
    ir_memory of_own;             /* registers [each, 4]: sums of rows; of BACK_SUMS: first, end */
    ir_memory most, total, delta; /* registers [each], of BACK_SUMS */
    ir_id local, across, down;
} tile;

static ir_id steps(tile *t, uint32_t n, uint32_t step) {
    return ir_loop(t->k.b, ir_u32(t->k.b, 0), ir_u32(t->k.b, n), ir_u32(t->k.b, step));
}

/* A loop whose body is short, TURNS of them written out. */
static ir_id turns(tile *t, uint32_t n) {
    return ir_loop_unrolled(t->k.b, ir_u32(t->k.b, 0), ir_u32(t->k.b, n), ir_u32(t->k.b, TURNS), 2);
}

/* This lane's work of n units. */
static ir_id share(tile *t, uint32_t n) {
    return ir_loop(t->k.b, t->local, ir_u32(t->k.b, n), ir_u32(t->k.b, t->f.lanes));
}

static void bind(tile *t) {
    tile_kernel *k = &t->k;
    ir_builder *b = k->b;
    const form *f = &t->f;
    const attention_task *a = &t->t->a;
    t->w = (back_walk){.own = f->own, .other = f->other, .group = f->group, .queries = f->queries};
    back_walk_bind(&t->w, k, t->t);
    if (f->split > 1) t->w.share = ir_group(b, 2);
    t->weights = ir_workgroup(b, IR_F32, f->other * (f->own + PAD));
    t->stage = ir_workgroup(b, IR_F32, stage_of(f, a->d));
    t->scores = ir_register(b, IR_F32, f->each * f->each_other);
    if (t->t->kind == BACK_Q || t->t->kind == BACK_K)
        t->slopes = ir_register(b, IR_F32, f->each * f->each_other);
    if (t->t->kind == BACK_SUMS) {
        t->most = ir_register(b, IR_F32, f->each);
        t->total = ir_register(b, IR_F32, f->each);
        t->delta = ir_register(b, IR_F32, f->each);
    } else {
        t->sums = ir_register(b, IR_F32, f->each * f->columns * f->wide);
    }
    if (back_owns_rows(t->t)) t->of_own = ir_register(b, IR_F32, f->each * 4);
    t->local = ir_local(b, 0);
    t->across = tile_rem(b, t->local, f->across);
    t->down = tile_div(b, t->local, f->across);
}

/* ---- to workgroup memory --------------------------------------------------------------------- */

/* A line of the owned or the other tile: 0 beyond d. */
static ir_id line_read(tile *t, bool own, uint32_t which, ir_id line, ir_id e) {
    ir_builder *b = t->k.b;
    const uint32_t d = t->t->a.d, unit = t->f.unit;
    const bool guard = d % t->f.part || !own;
    ir_id inside = guard ? ir_min(b, e, ir_u32(b, d - unit)) : e,
          x = back_line_read(&t->w, own, which, line, inside, unit);
    return guard ? ir_select(b, ir_splat(b, ir_lt(b, e, ir_u32(b, d)), unit), x,
                             ir_number(b, IR_F32, unit, 0))
                 : x;
}

/* Elements [part, part + f.part) of a tile's lines as [element, place]. Of others place p is line
 * p / each_other + p % each_other * across, so that what lanes beside each other store of weights
 * later falls into different banks. */
static void stage_part(tile *t, bool own, uint32_t which, ir_id part) {
    ir_builder *b = t->k.b;
    const form *f = &t->f;
    const uint32_t lines = own ? f->own : f->other, unit = f->unit,
                   base = own ? 0 : f->part * f->own;
    ir_id i = share(t, lines * f->part / unit), place = tile_rem(b, i, lines), line = place,
          e = tile_mul(b, tile_div(b, i, lines), unit);
    if (!own)
        line = ir_add(b, tile_div(b, place, f->each_other),
                      tile_mul(b, tile_rem(b, place, f->each_other), f->across));
    ir_id x = line_read(t, own, which, line, ir_add(b, part, e));
    for (uint32_t j = 0; j < unit; j++)
        ir_store(b, t->stage,
                 tile_add(b, ir_add(b, tile_mul(b, tile_add(b, e, j), lines), place), base),
                 unit == 1 ? x : ir_extract(b, x, j));
    ir_end(b);
}

/* Other lines from `base` of the tile on as [line, element]. */
static void stage_lines(tile *t, ir_id base) {
    ir_builder *b = t->k.b;
    const form *f = &t->f;
    const uint32_t whole = whole_of(f, t->t->a.d), units = whole / f->unit;
    ir_id i = share(t, f->lines * units), line = tile_div(b, i, units),
          e = tile_mul(b, tile_rem(b, i, units), f->unit);
    ir_store(b, t->stage, ir_fma(b, line, ir_u32(b, whole), e),
             line_read(t, false, t->t->kind == BACK_V, ir_add(b, base, line), e));
    ir_end(b);
}

/* ---- work ------------------------------------------------------------------------------------ */

static void add_product(tile *t, ir_memory to, ir_id e) {
    ir_builder *b = t->k.b;
    const form *f = &t->f;
    const uint32_t n = f->each_other;
    ir_id own[EACH_MAX];
    tile_load_some(b, t->stage, ir_add(b, tile_mul(b, e, f->own), tile_mul(b, t->down, f->each)),
                   f->each, own);
    ir_id at = tile_add(b, ir_add(b, tile_mul(b, e, f->other), tile_mul(b, t->across, n)),
                        f->part * f->own);
    ir_id other = ir_load(b, t->stage, at, n);
    for (uint32_t r = 0; r < f->each; r++) {
        ir_id place = ir_u32(b, r * n);
        ir_store(b, to, place, ir_fma(b, ir_splat(b, own[r], n), other, ir_load(b, to, place, n)));
    }
}

/* Products of pair `which` of lines. */
static void multiply(tile *t, ir_memory to, uint32_t which) {
    ir_builder *b = t->k.b;
    const form *f = &t->f;
    for (uint32_t r = 0; r < f->each; r++)
        ir_store(b, to, ir_u32(b, r * f->each_other), ir_number(b, IR_F32, f->each_other, 0));
    ir_id part = steps(t, t->t->a.d, f->part);
    ir_barrier(b);
    stage_part(t, true, which, part);
    stage_part(t, false, which, part);
    ir_barrier(b);
    ir_id e = turns(t, f->part);
    for (uint32_t i = 0; i < TURNS; i++) add_product(t, to, tile_add(b, e, i));
    ir_end(b);
    ir_end(b);
}

static ir_id other_line(tile *t, uint32_t i) {
    return tile_add(t->k.b, t->across, i * t->f.across);
}

static ir_id own_line(tile *t, uint32_t r) {
    return tile_add(t->k.b, tile_mul(t->k.b, t->down, t->f.each), r);
}

/* Products become weights, in workgroup memory. */
static void weigh(tile *t) {
    ir_builder *b = t->k.b;
    const form *f = &t->f;
    const bool rows = back_owns_rows(t->t);
    const uint32_t wide = f->each % 4 == 0 ? 4 : 2;
    for (uint32_t i = 0; i < f->each_other; i++) {
        ir_id line = other_line(t, i), weights[EACH_MAX], of = IR_NO_ID, is = IR_NO_ID, key;
        if (!rows) {
            ir_id query, head;
            back_row_of(&t->w, line, &query, &head);
            of = ir_load(b, t->w.x.sums, back_sums_at(&t->w, query, head), 4);
            is = back_is_row(&t->w, line);
        }
        for (uint32_t r = 0; r < f->each; r++) {
            ir_id own = own_line(t, r), place = ir_u32(b, r * f->each_other + i);
            if (rows) of = ir_load(b, t->of_own, ir_u32(b, r * 4), 4);
            key = rows ? ir_add(b, t->w.first_other, line) : ir_add(b, t->w.first_own, own);
            key = ir_cast(b, IR_F32, key);
            ir_id sees =
                ir_and(b, ir_ge(b, key, ir_extract(b, of, 2)), ir_le(b, key, ir_extract(b, of, 3)));
            if (!rows) sees = ir_and(b, sees, is);
            ir_id weight =
                back_weight(&t->w.x, b, t->t, ir_load(b, t->scores, place, 1),
                            t->t->kind == BACK_V ? IR_NO_ID : ir_load(b, t->slopes, place, 1),
                            ir_extract(b, of, 0), ir_extract(b, of, 1));
            weights[r] = ir_select(b, sees, weight, ir_f32(b, 0));
        }
        ir_id at = ir_add(b, tile_mul(b, line, f->own + PAD), tile_mul(b, t->down, f->each));
        for (uint32_t r = 0; r < f->each; r += wide)
            ir_store(b, t->weights, tile_add(b, at, r), ir_compose(b, weights + r, wide));
    }
}

static void add_line(tile *t, ir_id base, ir_id line) {
    ir_builder *b = t->k.b;
    const form *f = &t->f;
    ir_id weights[EACH_MAX];
    tile_load_some(
        b, t->weights,
        ir_add(b, tile_mul(b, ir_add(b, base, line), f->own + PAD), tile_mul(b, t->down, f->each)),
        f->each, weights);
    for (uint32_t c = 0; c < f->columns; c++) {
        ir_id column = tile_add(b, tile_mul(b, t->across, f->wide), c * f->across * f->wide);
        ir_id x = ir_load(b, t->stage, ir_fma(b, line, ir_u32(b, whole_of(f, t->t->a.d)), column),
                          f->wide);
        for (uint32_t r = 0; r < f->each; r++) {
            ir_id sum = ir_u32(b, (r * f->columns + c) * f->wide);
            ir_store(
                b, t->sums, sum,
                ir_fma(b, ir_splat(b, weights[r], f->wide), x, ir_load(b, t->sums, sum, f->wide)));
        }
    }
}

/* The tile of others at first_other. */
static void turn(tile *t) {
    ir_builder *b = t->k.b;
    const form *f = &t->f;
    multiply(t, t->scores, 0);
    if (t->t->kind != BACK_V) multiply(t, t->slopes, 1);
    weigh(t);
    ir_id base = steps(t, f->other, f->lines);
    ir_barrier(b);
    stage_lines(t, base);
    ir_barrier(b);
    ir_id line = turns(t, f->lines);
    for (uint32_t i = 0; i < TURNS; i++) add_line(t, base, tile_add(b, line, i));
    ir_end(b);
    ir_end(b);
}

/* ---- sums of rows ---------------------------------------------------------------------------- */

static void sums_turn(tile *t) {
    ir_builder *b = t->k.b;
    const form *f = &t->f;
    multiply(t, t->scores, 0);
    for (uint32_t r = 0; r < f->each; r++) {
        ir_id of = ir_load(b, t->of_own, ir_u32(b, r * 4), 2), at = ir_u32(b, r);
        ir_id scores[4], before = ir_load(b, t->most, at, 1), now = before, sum = ir_f32(b, 0);
        for (uint32_t i = 0; i < f->each_other; i++) {
            ir_id key = ir_cast(b, IR_F32, ir_add(b, t->w.first_other, other_line(t, i)));
            ir_id sees =
                ir_and(b, ir_ge(b, key, ir_extract(b, of, 0)), ir_lt(b, key, ir_extract(b, of, 1)));
            ir_id score =
                ir_mul(b, ir_load(b, t->scores, ir_u32(b, r * f->each_other + i), 1), t->w.x.scale);
            scores[i] = ir_select(b, sees, score, ir_f32(b, ATTENTION_MASKED));
            now = ir_max(b, now, scores[i]);
        }
        for (uint32_t i = 0; i < f->each_other; i++)
            sum = ir_add(b, sum, ir_exp(b, ir_sub(b, scores[i], now)));
        ir_store(b, t->total, at,
                 ir_fma(b, ir_load(b, t->total, at, 1), ir_exp(b, ir_sub(b, before, now)), sum));
        ir_store(b, t->most, at, now);
    }
}

/* The numbers of the lanes that share lines, joined in each of them; `weights` is free. */
static void join(tile *t, ir_op op, ir_memory x) {
    ir_builder *b = t->k.b;
    const form *f = &t->f;
    ir_id own = tile_mul(b, t->down, f->each), sum[EACH_MAX];
    for (uint32_t r = 0; r < f->each; r++)
        ir_store(b, t->weights, ir_add(b, tile_mul(b, t->across, f->own), tile_add(b, own, r)),
                 ir_load(b, x, ir_u32(b, r), 1));
    ir_barrier(b);
    for (uint32_t l = 0; l < f->across; l++) {
        ir_id other[EACH_MAX];
        tile_load_some(b, t->weights, tile_add(b, own, l * f->own), f->each, other);
        for (uint32_t r = 0; r < f->each; r++)
            sum[r] = l ? ir_binary(b, op, sum[r], other[r]) : other[r];
    }
    for (uint32_t r = 0; r < f->each; r++) ir_store(b, x, ir_u32(b, r), sum[r]);
    ir_barrier(b);
}

static void sums_finish(tile *t) {
    ir_builder *b = t->k.b;
    const form *f = &t->f;
    const attention_task *a = &t->t->a;
    for (uint32_t r = 0; r < f->each; r++) {
        ir_id query, head,
            part = ir_loop(b, tile_mul(b, t->across, f->unit), ir_u32(b, a->d),
                           ir_u32(b, f->across * f->unit));
        back_row_of(&t->w, own_line(t, r), &query, &head);
        ir_id y = ir_load(b, t->w.x.y,
                          ir_add(b, tile_mul(b, ir_fma(b, query, ir_u32(b, a->n_head), head), a->d),
                                 ir_add(b, t->w.x.y_offset, part)),
                          f->unit);
        ir_id product = ir_mul(b, y, back_read(b, &t->w.x.rows, 1, query, head, part, f->unit));
        ir_store(b, t->delta, ir_u32(b, r),
                 ir_add(b, ir_load(b, t->delta, ir_u32(b, r), 1), tile_sum_vector(b, product)));
        ir_end(b);
    }
    ir_memory before = ir_register(b, IR_F32, f->each);
    for (uint32_t r = 0; r < f->each; r++)
        ir_store(b, before, ir_u32(b, r), ir_load(b, t->most, ir_u32(b, r), 1));
    ir_barrier(b);
    join(t, IR_MAX, t->most);
    for (uint32_t r = 0; r < f->each; r++) {
        ir_id at = ir_u32(b, r),
              less = ir_sub(b, ir_load(b, before, at, 1), ir_load(b, t->most, at, 1));
        ir_store(b, t->total, at, ir_mul(b, ir_load(b, t->total, at, 1), ir_exp(b, less)));
    }
    join(t, IR_ADD, t->total);
    join(t, IR_ADD, t->delta);
    ir_if(b, ir_eq(b, t->across, ir_u32(b, 0)));
    for (uint32_t r = 0; r < f->each; r++) {
        ir_id line = own_line(t, r), at = ir_u32(b, r), query, head, first, end;
        back_row_of(&t->w, line, &query, &head);
        back_keys_of(&t->w, query, &first, &end);
        ir_if(b, back_is_row(&t->w, line));
        back_store_sums(&t->w.x, b, back_sums_at(&t->w, query, head), ir_load(b, t->most, at, 1),
                        ir_load(b, t->total, at, 1), ir_load(b, t->delta, at, 1), first, end);
        ir_end(b);
    }
    ir_end(b);
}

/* ---- the kernel ------------------------------------------------------------------------------ */

static void begin(tile *t) {
    ir_builder *b = t->k.b;
    const form *f = &t->f;
    for (uint32_t r = 0; r < f->each; r++) {
        if (t->t->kind == BACK_SUMS) {
            ir_store(b, t->most, ir_u32(b, r), ir_f32(b, ATTENTION_NO_KEYS));
            ir_store(b, t->total, ir_u32(b, r), ir_f32(b, 0));
            ir_store(b, t->delta, ir_u32(b, r), ir_f32(b, 0));
        }
        for (uint32_t c = 0; t->t->kind != BACK_SUMS && c < f->columns; c++)
            ir_store(b, t->sums, ir_u32(b, (r * f->columns + c) * f->wide),
                     ir_number(b, IR_F32, f->wide, 0));
    }
}

/* What the lane's rows say. */
static void begin_rows(tile *t) {
    ir_builder *b = t->k.b;
    for (uint32_t r = 0; r < t->f.each; r++) {
        ir_id query, head, of;
        back_row_of(&t->w, own_line(t, r), &query, &head);
        if (t->t->kind == BACK_SUMS) {
            ir_id range[2], all[2];
            back_keys_of(&t->w, query, &range[0], &range[1]);
            for (uint32_t i = 0; i < 2; i++) all[i] = ir_cast(b, IR_F32, range[i]);
            of = ir_compose(b, all, 2);
        } else {
            of = ir_load(b, t->w.x.sums, back_sums_at(&t->w, query, head), 4);
        }
        ir_store(b, t->of_own, ir_u32(b, r * 4), of);
    }
}

static void finish(tile *t) {
    ir_builder *b = t->k.b;
    const form *f = &t->f;
    const attention_task *a = &t->t->a;
    for (uint32_t r = 0; r < f->each; r++) {
        ir_id is, at = back_result_at(&t->w, own_line(t, r), &is);
        ir_if(b, is);
        for (uint32_t c = 0; c < f->columns; c++) {
            ir_id column = tile_add(b, tile_mul(b, t->across, f->wide), c * f->across * f->wide);
            const bool beyond = (c + 1) * f->across * f->wide > a->d;
            ir_id x = ir_load(b, t->sums, ir_u32(b, (r * f->columns + c) * f->wide), f->wide);
            /* without whole vectors in a line one by one */
            const uint32_t n = a->d % f->wide ? f->wide : 1, width = f->wide / n;
            for (uint32_t i = 0; i < n; i++) {
                ir_id e = tile_add(b, column, i);
                if (beyond) ir_if(b, ir_lt(b, e, ir_u32(b, a->d)));
                ir_store(b, t->w.x.out, ir_add(b, at, e),
                         width == f->wide ? x : ir_extract(b, x, i));
                if (beyond) ir_end(b);
            }
        }
        ir_end(b);
    }
}

beryl_status back_tile(lowering *l, const back_task *task) {
    static const char *const names[] = {[BACK_Q] = "attention_back_q",
                                        [BACK_K] = "attention_back_k",
                                        [BACK_V] = "attention_back_v",
                                        [BACK_SUMS] = "attention_sums"};
    back_task own = *task;
    tile t = {.t = &own};
    if (!choose_form(l, task, &t.f)) return lower_refuse(l, l->node, "heads of this shape");
    own.split = t.f.split;
    tile_begin(&t.k, l, names[task->kind], t.f.lanes);
    bind(&t);
    begin(&t);
    back_own(&t.w);
    if (back_owns_rows(task)) begin_rows(&t);
    back_others(&t.w);
    if (task->kind == BACK_SUMS) sums_turn(&t);
    else turn(&t);
    back_others_end(&t.w);
    if (task->kind == BACK_SUMS) sums_finish(&t);
    else finish(&t);
    return back_walk_end(&t.w, 1);
}
