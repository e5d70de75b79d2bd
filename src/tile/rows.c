/* rows.c - see tile/rows.h.
 *
 * Lanes share a row and hold it in registers from one walk to the next, where it is short
 * enough; many rows whose elements lie apart get a lane each, or an element of its vector, so that
 * neighbours read neighbours.
 * A scan adds up a step of all lanes at a time, and carries the sum to the next. The largest is
 * looked for by keys that rise with the numbers: argmax in parts of a row, if nothing else wants
 * the whole row in one place; topk in turns, each of which takes the largest that comes after the
 * one before, of values kept in workgroup memory or made again. */
#include "base/build.h"
#include "base/error.h"
#include "tile/pointwise.h"
#include "tile/rows_inside.h"
#include "tile/whole.h"

#include <math.h>

enum {
    LANES = 256,
    CHUNK_MAX = 16,         /* vectors of a row that a lane holds, */
    HELD_BEST = 16,         /* elements of one value that are enough, */
    HELD_FEW = 4,           /* and where rows are fewer than the units of a device */
    COLUMN_LANES = 64,      /* of a workgroup that does a row a lane */
    HELD_MAX = 64,          /* and elements of all that it holds at once */
    ROWS_LANES = 128,       /* of a workgroup that does several rows */
    BLOCK = 64,             /* vectors that are summed one after another */
    ARRAY_BYTES = 32 << 10, /* that one lane alone holds, in arrays */
    KEPT_BYTES = 8 << 10,   /* that topk keeps */
    LONG = 8192,            /* elements of a row that one workgroup reads soon enough */
    PARTS_MAX = 1024,       /* of argmax */
    PART_MIN = 2048
};
enum { SCRATCH_BEST = 0 };
enum { NOT_A_NUMBER = 1 /* key in argmax */ };

/* ---- the largest ----------------------------------------------------------------------------- */

ir_id tile_order(ir_builder *b, ir_id x, uint32_t nan) {
    const ir_instruction *i = ir_at(b, x);
    const uint32_t width = i ? i->width : 1;
    ir_id bits = ir_bitcast(b, IR_U32, width, x), magnitude = tile_and(b, bits, 0x7fffffffu),
          middle = ir_bits(b, IR_U32, width, 0x80000000u);
    ir_id key = ir_select(b, ir_ge(b, bits, middle), ir_sub(b, middle, magnitude),
                          ir_add(b, middle, magnitude));
    return ir_select(b, ir_gt(b, magnitude, ir_bits(b, IR_U32, width, 0x7f800000u)),
                     ir_bits(b, IR_U32, width, nan), key);
}

tile_parts tile_parts_of(uint32_t d, uint32_t most, uint32_t least) {
    uint32_t size = (d + most - 1) / most;
    if (size < least) size = least;
    return (tile_parts){size, (d + size - 1) / size};
}

static best best_begin(tile_kernel *k, uint32_t width) {
    best m = {width, ir_register(k->b, IR_U32, width), ir_register(k->b, IR_U32, width), {0}};
    m.joined = k->lanes > 1 ? ir_workgroup(k->b, IR_U32, k->lanes) : m.key;
    return m;
}

static ir_id best_get(ir_builder *b, const best *m, ir_memory from) {
    return ir_load(b, from, ir_u32(b, 0), m->width);
}

static void best_set(ir_builder *b, const best *m, ir_id key, ir_id index) {
    const ir_id zero = ir_u32(b, 0);
    ir_store(b, m->key, zero, key);
    ir_store(b, m->index, zero, index);
}

static void best_clear(ir_builder *b, const best *m) {
    best_set(b, m, ir_bits(b, IR_U32, m->width, 0), ir_bits(b, IR_U32, m->width, UINT32_MAX));
}

/* Takes keys above 0 where they are larger; `index` rises from call to call. */
static void best_take(ir_builder *b, const best *m, ir_id key, ir_id index) {
    const ir_id own = best_get(b, m, m->key), better = ir_gt(b, key, own);
    best_set(b, m, ir_select(b, better, key, own),
             ir_select(b, better, index, best_get(b, m, m->index)));
}

/* Of all lanes; the first of those alike. */
static void best_join(tile_kernel *k, const best *m, ir_id *key, ir_id *index) {
    ir_builder *b = k->b;
    const ir_id keys = best_get(b, m, m->key), none = ir_bits(b, IR_U32, m->width, UINT32_MAX);
    *key = tile_reduce(k, IR_MAX, tile_max_vector(b, keys), m->joined);
    const ir_id first = tile_min_vector(b, ir_select(b, ir_eq(b, keys, ir_splat(b, *key, m->width)),
                                                     best_get(b, m, m->index), none));
    *index = tile_reduce(k, IR_MIN, first, m->joined);
}

/* ---- how rows are done ----------------------------------------------------------------------- */

static bool is_serial(const device_caps *caps) {
    const lowering l = {.caps = caps};
    return tile_serial(&l);
}

/* Vectors of a lane; whether registers hold them. */
static bool hold(form *f, uint32_t d, uint32_t held) {
    f->chunks = (d / f->wide + f->lanes - 1) / f->lanes;
    return f->chunks <= CHUNK_MAX && f->chunks * f->wide * (held ? held : 1) <= HELD_MAX;
}

static uint32_t rows_of(const device_caps *caps, const tree *t, const form *f) {
    return f->lanes < ROWS_LANES && f->chunks && ROWS_LANES <= caps->workgroup_invocations &&
                   !t->choice
               ? ROWS_LANES / f->lanes
               : 1;
}

static uint32_t subgroup_of(const device_caps *caps, const form *f) {
    const uint32_t size = caps->subgroups && f->lanes > 1 ? caps->subgroup_size : 0;
    return size < 2 ? 0 : f->lanes < size ? f->lanes : size;
}

/* Elements of a row lie apart, and there are rows enough for a lane each. */
static bool in_columns(const device_caps *caps, const tree *t) {
    const uint32_t d = tree_row_length(t), units = tile_units(caps);
    const uint64_t n = graph_element_bound(t->shape) / d;
    return t->axes.last && t->axes.n_row == 1 && !t->n_stat &&
           t->shape->stride[t->shape->rank - 1] != 1 && (is_serial(caps) || n >= 4 * units) &&
           !(caps->loop_max && d > caps->loop_max / 4);
}

/* The walk becomes one over vectors of rows that lie side by side. */
static form columns_form(lowering *l, tree_walk *c) {
    const uint32_t last = c->w.n - 1, most = l->caps->workgroup_invocations;
    uint32_t wide = c->w.size[last].extent ? 1 : device_is_compiled(l->caps) ? TILE_RUN : 4;
    for (uint32_t i = 0; i < c->t.n_tensor; i++) {
        c->step[i] = c->w.stride[i][last];
        while (c->step[i] && c->along.stride[i][0] % wide) wide /= 2;
    }
    wide = tree_widest(c, wide, c->w.size[last].factor, true, last);
    wide = tile_choose(l, "vector", wide, 1, wide);
    c->w.size[last].factor /= wide;
    const uint32_t beside = most < COLUMN_LANES ? most : COLUMN_LANES;
    return (form){.wide = wide,
                  .lanes = 1,
                  .rows = tile_serial(l) ? 1 : tile_choose(l, "columns", beside, 16, most),
                  .across = true};
}

/* Of trees with stats or scans, by the rule. */
static form form_of(const device_caps *caps, const tree *t, uint32_t wide) {
    const lowering l = {.caps = caps};
    const uint32_t d = tree_row_length(t), lanes = tile_lanes(&l, d);
    form f = {.wide = wide, .lanes = lanes, .rows = 1};
    if (is_serial(caps)) {
        if (caps->kind == DEVICE_SOFTWARE && caps->subgroups && caps->subgroup_size > 1)
            f.lanes = caps->subgroup_size;
        f.subgroup = subgroup_of(caps, &f);
        f.arrays = lanes == 1 && (uint64_t)tree_arrays(t) * d * 4 <= ARRAY_BYTES &&
                   device_is_compiled(caps);
        return f;
    }
    const uint32_t most = caps->workgroup_invocations, vectors = d / wide, held = tree_most_held(t);
    const uint32_t least = caps->subgroups && caps->subgroup_size ? caps->subgroup_size : 32;
    f.lanes = whole_power_from(vectors < least ? vectors : least);
    const uint32_t units = tile_units(caps),
                   own = graph_element_bound(t->shape) / d < units ? HELD_FEW : HELD_BEST;
    while (f.lanes * 2 <= most && f.lanes * own < d) f.lanes *= 2;
    for (;;) {
        if (hold(&f, d, held)) break;
        if (f.lanes * 2 > most) {
            f.chunks = 0;
            f.lanes = most < LANES ? whole_power_from(most / 2 + 1) : LANES;
            break;
        }
        f.lanes *= 2;
    }
    if (tree_row_varies(t)) f.chunks = 0;
    f.rows = rows_of(caps, t, &f);
    f.subgroup = subgroup_of(caps, &f);
    return f;
}

/* The same as tuning chose. */
static form chosen_form(lowering *l, const tree *t, uint32_t wide) {
    const device_caps *caps = l->caps;
    const bool serial = tile_serial(l), host = caps->kind == DEVICE_HOST;
    const uint32_t d = tree_row_length(t), most = caps->workgroup_invocations,
                   size = caps->subgroups ? caps->subgroup_size : 0;
    form f = form_of(caps, t, tile_choose(l, "vector", wide, 1, wide));
    const uint32_t rule = f.lanes;
    f.lanes = tile_choose(l, "lanes", rule, serial ? 1 : 4, host ? 1 : most);
    if (f.lanes != rule && !(f.chunks && hold(&f, d, tree_most_held(t)))) f.chunks = 0;
    f.rows = tile_choose(l, "rows", rows_of(caps, t, &f), size > f.lanes ? size / f.lanes : 1,
                         f.chunks && !t->choice ? most / f.lanes : 1);
    const bool fit =
        device_is_compiled(caps) && f.lanes == 1 && (uint64_t)tree_arrays(t) * d * 4 <= ARRAY_BYTES;
    f.arrays = tile_choose(l, "arrays", f.arrays + 1u, 1, fit ? 2 : 1) > 1;
    f.subgroup = subgroup_of(caps, &f);
    return f;
}

/* ---- walks ----------------------------------------------------------------------------------- */

static bool chosen_now(const rows *r) {
    return (r->s.kind == SEARCH_PARTS || r->s.kind == SEARCH_ROW || r->s.keeps) &&
           r->walk.t.values[r->walk.t.chosen].level == r->walk.level;
}

static ir_id indices_of(rows *r, ir_id first) {
    ir_builder *b = r->walk.k->b;
    return ir_add(b, ir_splat(b, first, r->f.wide), tile_ramp(b, r->f.wide, 0, 1));
}

static void take_chosen(rows *r, tree_spot *s) {
    if (!chosen_now(r)) return;
    const ir_id x = tree_value_at(&r->walk, s, r->walk.t.chosen);
    if (r->s.keeps) ir_store(r->walk.k->b, r->kept, s->column, x);
    else
        best_take(r->walk.k->b, &r->best, tile_order(r->walk.k->b, x, r->s.nan),
                  indices_of(r, s->column));
}

/* ---- scans ----------------------------------------------------------------------------------- */

/* What joins scan v, and what changes nothing. */
static ir_id scanned(const rows *r, uint32_t v, ir_id x, ir_id y) {
    return tile_pointwise(r->walk.k, r->walk.t.values[v].op, NULL, (ir_id[]){x, y});
}

static ir_id scan_neutral(const rows *r, uint32_t v, uint32_t width) {
    static const double of[OP_COUNT] = {[OP_MUL] = 1, [OP_MAX] = -INFINITY, [OP_MIN] = INFINITY};
    return ir_number(r->walk.k->b, r->walk.t.real, width, of[r->walk.t.values[v].op]);
}

/* x of the row's lanes before this one, joined; *all: of all of them, the same in each. */
static ir_id scan_lanes(rows *r, uint32_t v, ir_id x, ir_id *all) {
    ir_builder *b = r->walk.k->b;
    const ir_id zero = scan_neutral(r, v, 1);
    ir_id before = zero;
    *all = x;
    for (uint32_t step = 1; step < r->f.lanes; step *= 2) {
        const ir_id other = rows_swapped(r, *all, step),
                    upper = ir_ne(b, tile_and(b, r->lane, step), ir_u32(b, 0));
        before = scanned(r, v, before, ir_select(b, upper, other, zero));
        *all = scanned(r, v, *all, other);
    }
    return before;
}

/* Each element of a vector joined with those before it. */
static ir_id scan_vector(rows *r, uint32_t v, ir_id x, uint32_t width) {
    ir_builder *b = r->walk.k->b;
    const ir_id zero = scan_neutral(r, v, width);
    for (uint32_t step = 1; step < width; step *= 2) {
        uint64_t from = 0;
        for (uint32_t e = step; e < width; e++) from |= (uint64_t)(e - step) << (4 * e);
        const ir_id there = ir_ge(b, tile_ramp(b, width, 0, 1), ir_bits(b, IR_U32, width, step));
        x = scanned(r, v, x, ir_select(b, there, ir_swizzle(b, x, width, from), zero));
    }
    return x;
}

/* Scan v at a spot of every lane, `base` being all steps before; what this one comes to. */
static ir_id scan_step(rows *r, tree_spot *s, uint32_t v, ir_id base) {
    ir_builder *b = r->walk.k->b;
    const uint32_t wide = r->f.wide;
    ir_id all, x = tree_value_at(&r->walk, s, r->walk.t.values[v].in[0]);
    if (r->f.across) {
        tree_value_set(&r->walk, s, v, scanned(r, v, base, x));
        return x;
    }
    x = scan_vector(r, v, x, wide);
    const ir_id before = scan_lanes(r, v, wide == 1 ? x : ir_extract(b, x, wide - 1), &all);
    tree_value_set(&r->walk, s, v,
                   scanned(r, v, x, ir_splat(b, scanned(r, v, base, before), wide)));
    return all;
}

/* Made in this walk: by loops again in each, where no array holds it. */
static bool scans_now(const rows *r, uint32_t v) {
    const tree_value *x = &r->walk.t.values[v];
    const bool again = !r->f.chunks && !r->f.arrays;
    return x->kind == TREE_SCAN &&
           (x->first == r->walk.level || (again && x->first < r->walk.level));
}

/* Elements of a sum that is carried. */
static uint32_t carried(const rows *r) {
    return r->f.across ? r->f.wide : 1;
}

static ir_id carry_of(const rows *r, ir_memory cell) {
    return ir_load(r->walk.k->b, cell, ir_u32(r->walk.k->b, 0), carried(r));
}

static void carry_on(const rows *r, uint32_t v, ir_memory cell, ir_id x) {
    ir_builder *b = r->walk.k->b;
    ir_store(b, cell, ir_u32(b, 0), scanned(r, v, carry_of(r, cell), x));
}

static void clear_scans(rows *r, const ir_memory *cells) {
    for (uint32_t v = 0; v < r->walk.t.n_value; v++)
        if (scans_now(r, v))
            ir_store(r->walk.k->b, cells[v], ir_u32(r->walk.k->b, 0),
                     scan_neutral(r, v, carried(r)));
}

/* In loops. */
static void scan_on(rows *r, tree_spot *s, bool in_blocks) {
    for (uint32_t v = 0; v < r->walk.t.n_value; v++) {
        if (!scans_now(r, v)) continue;
        ir_id base = carry_of(r, r->carry[v]);
        if (in_blocks) base = scanned(r, v, carry_of(r, r->blocks[v]), base);
        carry_on(r, v, r->carry[v], scan_step(r, s, v, base));
    }
}

static void end_block(rows *r) {
    for (uint32_t v = 0; v < r->walk.t.n_value; v++)
        if (scans_now(r, v)) carry_on(r, v, r->blocks[v], carry_of(r, r->carry[v]));
}

/* ---- stats ----------------------------------------------------------------------------------- */

/* Everything of a lane in registers. valid: this row is one (where a workgroup does several),
 * IR_NO_ID: it is. */
static void in_registers(rows *r, uint32_t d, ir_id valid) {
    ir_builder *b = r->walk.k->b;
    const form *f = &r->f;
    tree_spot s[CHUNK_MAX];
    ir_id inside = IR_NO_ID; /* the last vector is one */
    for (uint32_t i = 0; i < f->chunks; i++) {
        ir_id at = tile_add(b, tile_mul(b, r->lane, f->wide), i * f->lanes * f->wide);
        if ((i + 1) * f->lanes * f->wide > d) {
            inside = ir_lt(b, at, ir_u32(b, d));
            at = ir_min(b, at, ir_u32(b, d - f->wide));
        }
        tree_spot_at(&r->walk, &s[i], f->wide, at);
    }
    for (r->walk.level = 0; r->walk.level < r->walk.t.n_level; r->walk.level++) {
        /* all loads of the walk before anything else */
        for (uint32_t v = 0; v < r->walk.t.n_value; v++)
            for (uint32_t i = 0; i < f->chunks; i++)
                if (r->walk.t.values[v].kind == TREE_INPUT &&
                    r->walk.t.values[v].first == r->walk.level)
                    tree_value_at(&r->walk, &s[i], v);
        for (uint32_t v = 0; v < r->walk.t.n_value; v++) {
            if (!scans_now(r, v)) continue;
            ir_id carry = scan_neutral(r, v, 1);
            for (uint32_t i = 0; i < f->chunks; i++)
                carry = scanned(r, v, carry, scan_step(r, &s[i], v, carry));
        }
        for (uint32_t n = 0; n < r->walk.t.n_stat; n++) {
            tree_stat *st = &r->walk.t.stats[n];
            if (st->level != r->walk.level) continue;
            ir_id sum = rows_neutral(r, st->kind, f->wide);
            for (uint32_t i = 0; i < f->chunks; i++) {
                ir_id x = tree_value_at(&r->walk, &s[i], st->of);
                if (i + 1 == f->chunks && inside != IR_NO_ID)
                    x = ir_select(b, ir_splat(b, inside, f->wide), x,
                                  rows_neutral(r, st->kind, f->wide));
                sum = rows_gather(r, st->kind, sum, x);
            }
            rows_finish_stat(r, st, sum);
        }
        for (uint32_t i = 0; i < f->chunks; i++) {
            for (uint32_t n = 0; n < r->walk.t.n_out; n++)
                if (tree_stores_at(&r->walk.t, n, r->walk.level))
                    tree_value_at(&r->walk, &s[i], r->walk.t.out[n]);
            if (chosen_now(r)) tree_value_at(&r->walk, &s[i], r->walk.t.chosen);
            const bool last = i + 1 == f->chunks && inside != IR_NO_ID;
            ir_id may = last ? valid != IR_NO_ID ? ir_and(b, inside, valid) : inside : valid;
            if (may != IR_NO_ID) ir_if(b, may);
            tree_store(&r->walk, &s[i], r->walk.level);
            take_chosen(r, &s[i]);
            if (may != IR_NO_ID) ir_end(b);
        }
    }
}

/* Sums of sums: of many numbers in turn the last ones would lose their digits. */
static void begin_sums(rows *r, const ir_memory *cells) {
    for (uint32_t n = 0; n < r->walk.t.n_stat; n++)
        if (r->walk.t.stats[n].level == r->walk.level)
            ir_store(r->walk.k->b, cells[n], ir_u32(r->walk.k->b, 0),
                     rows_neutral(r, r->walk.t.stats[n].kind, r->f.wide));
}

/* The row again for each level. */
static void in_loops(rows *r, uint32_t d, ir_id begin, ir_id end) {
    ir_builder *b = r->walk.k->b;
    const form *f = &r->f;
    ir_memory all[TREE_STATS] = {0}, cells[TREE_STATS] = {0};
    const uint32_t each = f->across ? 1 : f->wide, block = f->lanes * each * BLOCK;
    const ir_id zero = ir_u32(b, 0), step = ir_u32(b, f->lanes * each);
    const bool in_blocks = (r->walk.t.n_stat || r->walk.t.n_scan) && d > 2 * block;
    const bool together = r->walk.t.n_scan && f->lanes > 1; /* all lanes in each step */
    for (uint32_t v = 0; v < r->walk.t.n_value; v++)
        if (r->walk.t.values[v].kind == TREE_SCAN)
            r->carry[v] = ir_register(b, r->walk.t.real, carried(r)),
            r->blocks[v] = in_blocks ? ir_register(b, r->walk.t.real, carried(r)) : r->carry[v];
    for (r->walk.level = 0; r->walk.level < r->walk.t.n_level; r->walk.level++) {
        for (uint32_t n = 0; n < r->walk.t.n_stat; n++)
            if (r->walk.t.stats[n].level == r->walk.level)
                cells[n] = ir_register(b, r->walk.t.real, f->wide),
                all[n] = in_blocks ? ir_register(b, r->walk.t.real, f->wide) : cells[n];
        begin_sums(r, all);
        clear_scans(r, r->blocks);
        const ir_id own = tile_mul(b, r->lane, f->wide),
                    first = f->lanes == 1 || together ? begin : ir_add(b, begin, own);
        ir_id from = first, to = end;
        if (in_blocks) {
            const ir_id at = ir_loop(b, begin, end, ir_u32(b, block));
            begin_sums(r, cells);
            clear_scans(r, r->carry);
            from = ir_add(b, at, first);
            to = ir_min(b, tile_add(b, at, block), end);
        }
        ir_id i = ir_loop(b, from, to, step), inside = IR_NO_ID;
        if (together) { /* the last step is not one of all lanes */
            i = ir_add(b, i, own);
            inside = ir_lt(b, i, end);
            i = ir_min(b, i, ir_sub(b, end, ir_u32(b, f->wide)));
        }
        tree_spot s;
        tree_spot_at(&r->walk, &s, f->wide, i);
        scan_on(r, &s, in_blocks);
        for (uint32_t n = 0; n < r->walk.t.n_stat; n++) {
            const tree_stat *st = &r->walk.t.stats[n];
            if (st->level != r->walk.level) continue;
            ir_id x = tree_value_at(&r->walk, &s, st->of);
            if (together)
                x = ir_select(b, ir_splat(b, inside, f->wide), x,
                              rows_neutral(r, st->kind, f->wide));
            ir_store(b, cells[n], zero,
                     rows_gather(r, st->kind, ir_load(b, cells[n], zero, f->wide), x));
        }
        if (together) ir_if(b, inside);
        tree_store(&r->walk, &s, r->walk.level);
        take_chosen(r, &s);
        if (together) ir_end(b);
        if (together && f->lanes > f->subgroup) ir_barrier(b);
        ir_end(b);
        if (in_blocks) end_block(r);
        for (uint32_t n = 0; in_blocks && n < r->walk.t.n_stat; n++) {
            if (r->walk.t.stats[n].level != r->walk.level) continue;
            const ir_id sum = ir_load(b, all[n], zero, f->wide),
                        more = ir_load(b, cells[n], zero, f->wide);
            ir_store(b, all[n], zero, rows_join(r, r->walk.t.stats[n].kind, sum, more));
        }
        if (in_blocks) ir_end(b);
        for (uint32_t n = 0; n < r->walk.t.n_stat; n++)
            if (r->walk.t.stats[n].level == r->walk.level)
                rows_finish_stat(r, &r->walk.t.stats[n], ir_load(b, all[n], zero, f->wide));
    }
}

/* Results that are a number for the whole row. */
static void store_numbers(rows *r, ir_id valid) {
    ir_builder *b = r->walk.k->b;
    tree_spot s;
    if (BUILD_IS_SMALL || !tree_has_numbers(&r->walk.t)) return;
    ir_id may = valid;
    if (r->f.lanes > 1) {
        const ir_id first = ir_eq(b, r->lane, ir_u32(b, 0));
        may = may == IR_NO_ID ? first : ir_and(b, first, may);
    }
    if (may != IR_NO_ID) ir_if(b, may);
    tree_spot_at(&r->walk, &s, 1, ir_u32(b, 0));
    tree_store_numbers(&r->walk, &s);
    if (may != IR_NO_ID) ir_end(b);
}

/* ---- what becomes of the largest ------------------------------------------------------------- */

static void only_first_lane(tile_kernel *k) {
    if (k->lanes > 1) ir_if(k->b, ir_eq(k->b, ir_local(k->b, 0), ir_u32(k->b, 0)));
}

static void all_lanes(tile_kernel *k) {
    if (k->lanes > 1) ir_end(k->b);
}

/* out: (key, index) at `at` of a part; the index of a row. */
static void store_best(tile_kernel *k, const best *m, ir_memory out, ir_id at, bool is_part) {
    ir_builder *b = k->b;
    ir_id top, index;
    best_join(k, m, &top, &index);
    only_first_lane(k);
    if (is_part) {
        ir_store(b, out, tile_mul(b, at, 2), top);
        ir_store(b, out, tile_add(b, tile_mul(b, at, 2), 1), index);
    } else {
        ir_store(b, out, at, ir_cast(b, IR_I32, index));
    }
    all_lanes(k);
}

static ir_id chosen_at(rows *r, ir_id i, uint32_t wide) {
    tree_spot s;
    if (r->s.keeps) return ir_load(r->walk.k->b, r->kept, i, wide);
    tree_spot_at(&r->walk, &s, wide, i);
    return tree_value_at(&r->walk, &s, r->walk.t.chosen);
}

/* NaN counts as minus infinity; so do, with an index of -1, those that a row has not. */
static void store_turns(rows *r, ir_memory values, ir_memory indices, ir_id row) {
    tile_kernel *k = r->walk.k;
    ir_builder *b = k->b;
    const uint32_t n_best = r->walk.t.choice->attr.topk.k, wide = r->f.wide;
    const ir_memory last_key = ir_register(b, IR_U32, 1), last = ir_register(b, IR_U32, 1);
    const ir_id zero = ir_u32(b, 0);
    if (r->s.keeps && k->lanes > 1) ir_barrier(b);
    ir_set(b, last_key, ir_u32(b, UINT32_MAX));
    ir_set(b, last, zero);
    const ir_id turn = ir_loop(b, zero, ir_u32(b, n_best), ir_u32(b, 1));
    best_clear(b, &r->best);
    const ir_id i = ir_loop(b, tile_mul(b, r->lane, wide), r->length, ir_u32(b, k->lanes * wide));
    const ir_id key = tile_order(b, chosen_at(r, i, wide), TILE_LOWEST), index = indices_of(r, i);
    const ir_id before = ir_splat(b, ir_get(b, last_key), wide),
                behind = ir_gt(b, index, ir_splat(b, ir_get(b, last), wide));
    const ir_id left = ir_or(b, ir_lt(b, key, before), ir_and(b, ir_eq(b, key, before), behind));
    best_take(b, &r->best, ir_select(b, left, key, ir_bits(b, IR_U32, wide, 0)), index);
    ir_end(b);
    ir_id top, found;
    best_join(k, &r->best, &top, &found);
    ir_set(b, last_key, top);
    ir_set(b, last, found);
    only_first_lane(k);
    const ir_id to = ir_add(b, tile_mul(b, row, n_best), turn),
                lowest = ir_le(b, top, ir_u32(b, TILE_LOWEST));
    const ir_id at = tree_row_varies(&r->walk.t)
                         ? ir_min(b, found, ir_u32(b, tree_row_length(&r->walk.t) - 1))
                         : found;
    ir_store(b, values, to,
             ir_select(b, lowest, ir_bits(b, IR_F32, 1, 0xff800000u), chosen_at(r, at, 1)));
    ir_store(b, indices, to, ir_cast(b, IR_I32, found));
    all_lanes(k);
    ir_end(b);
}

/* ---- the kernel ------------------------------------------------------------------------------ */

static form search_form(lowering *l, const tree *t, const search *s, uint32_t wide) {
    if (t->n_stat || t->n_scan) return chosen_form(l, t, wide);
    while (s->kind == SEARCH_PARTS && s->parts.size % wide) wide /= 2;
    const uint32_t n = s->kind == SEARCH_PARTS   ? s->parts.size
                       : s->kind == SEARCH_TURNS ? tree_row_length(t) * t->choice->attr.topk.k
                                                 : tree_row_length(t);
    return (form){.wide = tile_choose(l, "vector", wide, 1, wide),
                  .lanes = tile_lanes_chosen(l, n),
                  .rows = 1};
}

static beryl_status rows_kernel(lowering *l, const tree *t, const char *name, const search *s) {
    const uint32_t d = tree_row_length(t);
    rows all = {.walk = {.t = *t}, .s = *s}, *r = &all;
    tree_walk *c = &r->walk;
    tile_kernel k;
    tree_walk_rows(c);
    if (in_columns(l->caps, t)) r->f = columns_form(l, c);
    else
        r->f = search_form(l, t, s,
                           tree_widest(c,
                                       tree_row_varies(t)            ? 1
                                       : device_is_compiled(l->caps) ? TILE_RUN
                                                                     : 4,
                                       c->along.size[c->along.n - 1].factor, true, c->w.n));
    const form *f = &r->f;
    if (s->kind == SEARCH_TURNS && l->caps->loop_max &&
        (uint64_t)(d / f->lanes + 1) * t->choice->attr.topk.k > l->caps->loop_max / 2)
        return lower_refuse(l, t->choice, "rows this long");
    tile_begin(&k, l, name, f->lanes * f->rows);
    c->k = &k;
    c->arrays = f->arrays;
    ir_builder *b = k.b;
    if (f->subgroup) ir_subgroup(b, f->subgroup);
    tree_declare(c);
    ir_memory out = {0}, indices = {0};
    const uint64_t bytes = t->shape->dim[0].size * (uint64_t)s->parts.n * 8;
    if (s->kind == SEARCH_PARTS)
        out = tile_scratch(&k, "best", s->scratch, bytes, IR_U32, IR_READ_WRITE);
    else if (s->kind) out = tile_write(&k, "out", t->choice->out[0]);
    if (s->kind == SEARCH_TURNS) indices = tile_write(&k, "indices", t->choice->out[1]);
    for (uint32_t i = 0; f->arrays && i < t->n_value; i++)
        if (t->values[i].kind != TREE_INPUT && t->values[i].last > t->values[i].first)
            c->t.values[i].array = ir_register(b, r->walk.t.real, d);
    if (s->kind) r->best = best_begin(&k, f->wide);
    if (s->keeps) r->kept = ir_workgroup(b, r->walk.t.real, d);
    const ir_id local = ir_local(b, 0), group = tile_group(b);
    r->lane = f->lanes == 1 ? ir_u32(b, 0) : f->rows > 1 ? tile_rem(b, local, f->lanes) : local;
    ir_id row = group, begin = ir_u32(b, 0);
    r->length = tree_walk_length(c);
    r->count = tree_row_varies(t) ? ir_cast(b, t->real, r->length) : ir_number(b, t->real, 1, d);
    ir_id end = r->length;
    if (f->rows > 1) row = ir_add(b, tile_mul(b, group, f->rows), tile_div(b, local, f->lanes));
    if (s->kind == SEARCH_PARTS) {
        row = tile_div(b, group, s->parts.n);
        begin = tile_mul(b, tile_rem(b, group, s->parts.n), s->parts.size);
        end = ir_min(b, tile_add(b, begin, s->parts.size), end);
    }
    const bool all_valid = f->rows > 1 && f->chunks; /* what is no row does another one's work */
    const ir_id outer = tree_place(c, row, f->across ? f->wide : 1, all_valid, c->row),
                valid = ir_lt(b, outer, c->size[0]);
    if (!all_valid) ir_if(b, valid);
    if (s->kind) best_clear(b, &r->best);
    if (f->chunks) in_registers(r, d, all_valid ? valid : IR_NO_ID);
    else if (s->kind != SEARCH_TURNS || s->keeps) in_loops(r, d, begin, end);
    store_numbers(r, all_valid ? valid : IR_NO_ID);
    if (s->kind == SEARCH_TURNS) store_turns(r, out, indices, row);
    else if (s->kind)
        store_best(&k, &r->best, out, s->kind == SEARCH_PARTS ? group : row,
                   s->kind == SEARCH_PARTS);
    if (!all_valid) ir_end(b);
    lower_count count = lower_walk_count(l, &c->w);
    if (s->kind == SEARCH_PARTS) count = lower_count_times(count, s->parts.n);
    return tile_end(&k, count, f->rows);
}

/* The best of all parts of a row. */
static beryl_status join_parts(lowering *l, const tree *t, tile_parts p) {
    tile_kernel k;
    ir_builder *b = tile_begin(&k, l, "best_of_row", tile_lanes_chosen(l, p.n));
    ir_memory from = tile_scratch(&k, "best", SCRATCH_BEST, 0, IR_U32, IR_READ),
              out = tile_write(&k, "out", t->choice->out[0]);
    ir_id n = tile_count(&k, "n", lower_count_of(t->shape->dim[0]));
    best m = best_begin(&k, 1);
    ir_id row = tile_group(b);
    ir_if(b, ir_lt(b, row, n));
    best_clear(b, &m);
    ir_id i = ir_loop(b, k.lanes == 1 ? ir_u32(b, 0) : ir_local(b, 0), ir_u32(b, p.n),
                      ir_u32(b, k.lanes));
    ir_id at = tile_mul(b, ir_add(b, tile_mul(b, row, p.n), i), 2);
    best_take(b, &m, ir_load(b, from, at, 1), ir_load(b, from, tile_add(b, at, 1), 1));
    ir_end(b);
    store_best(&k, &m, out, row, false);
    ir_end(b);
    return tile_end(&k, lower_count_of(t->shape->dim[0]), 1);
}

static bool can_keep(const tree *t, uint32_t d) {
    return t->n_value > 1 && d <= KEPT_BYTES / 4;
}

beryl_status tile_tree_rows(lowering *l, const tree *t, const char *name) {
    search s = {.kind = SEARCH_NONE, .nan = NOT_A_NUMBER, .scratch = SCRATCH_BEST};
    if (t->shape->rank == 0) return lower_refuse(l, l->node, "the rows of a scalar");
    if (!t->choice) return rows_kernel(l, t, name, &s);
    const uint32_t d = tree_row_length(t);
    if (t->choice->op == OP_TOPK) {
        s.kind = SEARCH_TURNS;
        s.keeps = can_keep(t, d);
        return rows_kernel(l, t, name, &s);
    }
    s.parts = tile_parts_of(d, PARTS_MAX, tile_choose(l, "part", PART_MIN, 256, 1 << 16));
    s.kind = t->n_stat || s.parts.n == 1 ? SEARCH_ROW : SEARCH_PARTS;
    beryl_status status = rows_kernel(l, t, name, &s);
    return status == BERYL_OK && s.kind == SEARCH_PARTS ? join_parts(l, t, s.parts) : status;
}

/* Would a workgroup a row keep the device as busy as reductions in parts do? */
static bool are_enough(const device_caps *caps, const tree *t) {
    const uint32_t d = tree_row_length(t), units = tile_units(caps);
    if (caps->loop_max && (uint64_t)d * t->n_level > caps->loop_max / 2) return false;
    return d <= LONG || graph_element_bound(t->shape) / d >= units;
}

bool tile_tree_rows_fit(const device_caps *caps, const tree *t) {
    if (t->shape->rank == 0) return false;
    const uint32_t d = tree_row_length(t);
    if (t->choice && t->choice->op == OP_TOPK && !can_keep(t, d)) return false;
    if (!t->n_stat && !t->n_scan) return true;
    if (t->has_inner && !are_enough(caps, t)) return false;
    const form f = form_of(caps, t, is_serial(caps) || d % 4 || tree_row_varies(t) ? 1 : 4);
    if (f.chunks || f.arrays) return true;
    for (uint32_t i = 0; i < t->n_value; i++) /* would be computed once a walk */
        if (t->values[i].last > t->values[i].first &&
            (t->values[i].kind == TREE_WEIGHTED || t->values[i].kind == TREE_SCAN ||
             (t->values[i].kind == TREE_NODE && graph_op_is_expensive(t->values[i].op))))
            return false;
    return true;
}

beryl_status tile_best(lowering *l, const graph_node *node, tile_parts p, uint32_t key,
                       uint32_t nan) {
    tree t;
    const graph_tensor *x = graph_tensor_at(l->g, node->in[0]);
    if (x->rank != 2 || x->dim[1].extent) return lower_refuse(l, node, "rows of varying length");
    tree_read_choice(&t, l->g, node);
    return rows_kernel(l, &t, "best_of_parts",
                       &(search){.kind = SEARCH_PARTS, .parts = p, .nan = nan, .scratch = key});
}

beryl_status tile_largest(lowering *l, const graph_node *node) {
    tree t;
    tree_read_choice(&t, l->g, node);
    return tile_tree_rows(l, &t, graph_op_name(node->op));
}
