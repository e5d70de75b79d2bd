/* lower_ir_rows.c - see lower_ir_rows.h; and rows moved by index.
 *
 * Lanes share a row and hold it in registers from one walk to the next, where it is short enough. The largest is looked for by
 * keys that rise with the numbers: argmax in parts of a row, if nothing else wants the whole row in one place; topk in turns,
 * each of which takes the largest that comes after the one before, of values kept in workgroup memory or made again. */
#include "base/error.h"
#include "graph/lower_ir_rows.h"

enum {
    LANES = 256,
    CHUNK_MAX = 16,       /* vectors of a row that a lane holds, */
    HELD_BEST = 16,       /* elements of one value that are enough */
    HELD_MAX = 64,        /* and elements of all that it holds at once */
    ROWS_LANES = 128,     /* of a workgroup that does several rows */
    BLOCK = 64,           /* vectors that are summed one after another */
    ARRAY_BYTES = 32 << 10, /* that one lane alone holds, in arrays */
    KEPT_BYTES = 8 << 10, /* that topk keeps */
    PARTS_MAX = 1024,     /* of argmax */
    PART_LEAST = 2048,
    MOVED_LANES = 64
};
enum { SCRATCH_BEST = 0 };
enum { NOT_A_NUMBER = 1 /* key in argmax */ };

#define LEAST (-3.4028234663852886e38)

/* ---- the largest ------------------------------------------------------------------------------------------------- */

ir_id lower_ir_order(lower_ir *k, ir_id x, uint32_t nan) {
    ir_builder *b = k->b;
    const ir_instruction *i = ir_at(b, x);
    const uint32_t width = i ? i->width : 1;
    ir_id bits = ir_bitcast(b, IR_U32, width, x), magnitude = lower_ir_and(k, bits, 0x7fffffffu), middle = ir_bits(b, IR_U32, width, 0x80000000u);
    ir_id key = ir_select(b, ir_ge(b, bits, middle), ir_sub(b, middle, magnitude), ir_add(b, middle, magnitude));
    return ir_select(b, ir_gt(b, magnitude, ir_bits(b, IR_U32, width, 0x7f800000u)), ir_bits(b, IR_U32, width, nan), key);
}

lower_ir_parts lower_ir_parts_of(uint32_t d, uint32_t most, uint32_t least) {
    uint32_t size = (d + most - 1) / most;
    if (size < least) size = least;
    return (lower_ir_parts){size, (d + size - 1) / size};
}

typedef struct best { uint32_t width; ir_memory key, index, joined; } best; /* registers [width]; joined: workgroup array */

static best best_begin(lower_ir *k, uint32_t width) {
    best m = {width, ir_register(k->b, IR_U32, width), ir_register(k->b, IR_U32, width), {0}};
    m.joined = k->lanes > 1 ? ir_workgroup(k->b, IR_U32, k->lanes) : m.key;
    return m;
}

static ir_id best_get(lower_ir *k, const best *m, ir_memory from) {
    return ir_load(k->b, from, ir_u32(k->b, 0), m->width);
}

static void best_set(lower_ir *k, const best *m, ir_id key, ir_id index) {
    const ir_id zero = ir_u32(k->b, 0);
    ir_store(k->b, m->key, zero, key);
    ir_store(k->b, m->index, zero, index);
}

static void best_clear(lower_ir *k, const best *m) {
    best_set(k, m, ir_bits(k->b, IR_U32, m->width, 0), ir_bits(k->b, IR_U32, m->width, UINT32_MAX));
}

/* Takes keys above 0 where they are larger; `index` rises from call to call. */
static void best_take(lower_ir *k, const best *m, ir_id key, ir_id index) {
    ir_builder *b = k->b;
    const ir_id own = best_get(k, m, m->key), better = ir_gt(b, key, own);
    best_set(k, m, ir_select(b, better, key, own), ir_select(b, better, index, best_get(k, m, m->index)));
}

/* Of all lanes; the first of those alike. */
static void best_join(lower_ir *k, const best *m, ir_id *key, ir_id *index) {
    ir_builder *b = k->b;
    const ir_id keys = best_get(k, m, m->key), none = ir_bits(b, IR_U32, m->width, UINT32_MAX);
    *key = lower_ir_reduce(k, IR_MAX, lower_ir_max_vector(k, keys), m->joined);
    const ir_id first = lower_ir_min_vector(k, ir_select(b, ir_eq(b, keys, ir_splat(b, *key, m->width)), best_get(k, m, m->index), none));
    *index = lower_ir_reduce(k, IR_MIN, first, m->joined);
}

/* ---- how rows are done ----------------------------------------------------------------------------------------------- */

typedef struct form {
    uint32_t wide;   /* elements of a vector */
    uint32_t lanes;  /* of a row */
    uint32_t rows;   /* of a workgroup */
    uint32_t chunks; /* vectors that a lane holds in registers; 0: walks are loops */
    bool arrays;     /* loops of one lane, which holds values in arrays; else they are computed again */
    uint32_t subgroup;
} form;

static uint32_t power_from(uint32_t n) { /* the least power of two from n on */
    uint32_t p = 1;
    while (p < n) p *= 2;
    return p;
}

static bool is_serial(const device_caps *caps) {
    const lowering l = {.caps = caps};
    return lower_ir_serial(&l);
}

/* At most. */
static uint32_t length_of(const tree *t) {
    return t->shape->dim[t->shape->rank - 1].size;
}

/* Rows are as long as the run says: they are walked in loops, element by element. */
static bool is_varying(const tree *t) {
    return t->shape->dim[t->shape->rank - 1].extent;
}

/* Vectors of a lane; whether registers hold them. */
static bool hold(form *f, uint32_t d, uint32_t held) {
    f->chunks = (d / f->wide + f->lanes - 1) / f->lanes;
    return f->chunks <= CHUNK_MAX && f->chunks * f->wide * (held ? held : 1) <= HELD_MAX;
}

static uint32_t most_lanes(const device_caps *caps) {
    return caps->workgroup_invocations ? caps->workgroup_invocations : LANES;
}

static uint32_t rows_of(const device_caps *caps, const tree *t, const form *f) {
    return f->lanes < ROWS_LANES && f->chunks && ROWS_LANES <= most_lanes(caps) && !t->choice ? ROWS_LANES / f->lanes : 1;
}

static uint32_t subgroup_of(const device_caps *caps, const form *f) {
    const uint32_t size = caps->subgroups && f->lanes > 1 ? caps->subgroup_size : 0;
    return size < 2 ? 0 : f->lanes < size ? f->lanes : size;
}

/* Of trees with stats, by the rule. */
static form form_of(const device_caps *caps, const tree *t, uint32_t wide) {
    const lowering l = {.caps = caps};
    const uint32_t d = length_of(t), lanes = lower_ir_lanes(&l, d);
    form f = {.wide = wide, .lanes = lanes, .rows = 1};
    if (is_serial(caps)) {
        if (caps->kind == DEVICE_SOFTWARE && caps->subgroups && caps->subgroup_size > 1) f.lanes = caps->subgroup_size;
        f.subgroup = subgroup_of(caps, &f);
        f.arrays = lanes == 1 && (uint64_t)tree_arrays(t) * d * 4 <= ARRAY_BYTES && device_is_compiled(caps);
        return f;
    }
    const uint32_t most = most_lanes(caps), vectors = d / wide, held = tree_most_held(t);
    const uint32_t least = caps->subgroups && caps->subgroup_size ? caps->subgroup_size : 32;
    f.lanes = power_from(vectors < least ? vectors : least);
    while (f.lanes * 2 <= most && f.lanes * HELD_BEST < d) f.lanes *= 2;
    for (;;) {
        if (hold(&f, d, held)) break;
        if (f.lanes * 2 > most) {
            f.chunks = 0;
            f.lanes = most < LANES ? power_from(most / 2 + 1) : LANES;
            break;
        }
        f.lanes *= 2;
    }
    if (is_varying(t)) f.chunks = 0;
    f.rows = rows_of(caps, t, &f);
    f.subgroup = subgroup_of(caps, &f);
    return f;
}

/* The same as tuning chose. */
static form chosen_form(lowering *l, const tree *t, uint32_t wide) {
    const device_caps *caps = l->caps;
    const bool serial = lower_ir_serial(l), host = caps->kind == DEVICE_HOST;
    const uint32_t d = length_of(t), most = most_lanes(caps), size = caps->subgroups ? caps->subgroup_size : 0;
    form f = form_of(caps, t, lower_ir_choose(l, "vector", wide, 1, wide));
    const uint32_t rule = f.lanes;
    f.lanes = lower_ir_choose(l, "lanes", rule, serial ? 1 : 4, host ? 1 : most);
    if (f.lanes != rule && !(f.chunks && hold(&f, d, tree_most_held(t)))) f.chunks = 0;
    f.rows = lower_ir_choose(l, "rows", rows_of(caps, t, &f), size > f.lanes ? size / f.lanes : 1, f.chunks && !t->choice ? most / f.lanes : 1);
    const bool fit = device_is_compiled(caps) && f.lanes == 1 && (uint64_t)tree_arrays(t) * d * 4 <= ARRAY_BYTES;
    f.arrays = lower_ir_choose(l, "arrays", f.arrays + 1u, 1, fit ? 2 : 1) > 1;
    f.subgroup = subgroup_of(caps, &f);
    return f;
}

/* ---- walks ----------------------------------------------------------------------------------------------------------- */

typedef enum search_kind { SEARCH_NONE, SEARCH_PARTS, SEARCH_ROW, SEARCH_TURNS } search_kind;

typedef struct search { /* for the largest */
    search_kind kind;
    lower_ir_parts parts;
    uint32_t nan, scratch;
    bool keeps; /* turns: of what was kept */
} search;

typedef struct rows {
    tree_walk walk;
    form f;
    ir_id lane; /* its number among those of its row */
    ir_id length, count; /* of this run's rows; the same as F32 */
    search s;
    best best;
    ir_memory kept;
} rows;

static bool chosen_now(const rows *r) {
    return (r->s.kind == SEARCH_PARTS || r->s.kind == SEARCH_ROW || r->s.keeps) && r->walk.t.values[r->walk.t.chosen].level == r->walk.level;
}

static ir_id indices_of(rows *r, ir_id first) {
    const uint32_t wide = r->f.wide;
    return ir_add(r->walk.k->b, ir_splat(r->walk.k->b, first, wide), lower_ir_ramp(r->walk.k, wide, 0, 1));
}

static void take_chosen(rows *r, tree_spot *s) {
    if (!chosen_now(r)) return;
    const ir_id x = tree_value_at(&r->walk, s, r->walk.t.chosen);
    if (r->s.keeps) ir_store(r->walk.k->b, r->kept, s->column, x);
    else best_take(r->walk.k, &r->best, lower_ir_order(r->walk.k, x, r->s.nan), indices_of(r, s->column));
}

static ir_id neutral(rows *r, tree_stat_kind kind, uint32_t width) {
    return ir_number(r->walk.k->b, IR_F32, width, kind == TREE_LARGEST ? LEAST : 0);
}

static ir_id gather(rows *r, tree_stat_kind kind, ir_id sum, ir_id x) {
    ir_builder *b = r->walk.k->b;
    if (kind == TREE_LARGEST) return ir_max(b, sum, x);
    return kind == TREE_RMS_OVER ? ir_fma(b, x, x, sum) : ir_add(b, sum, x);
}

/* x of the row's lanes, joined, in all of them. Each call has memory of its own, so no two meet. */
static ir_id join_lanes(rows *r, ir_op op, ir_id x) {
    ir_builder *b = r->walk.k->b;
    const form *f = &r->f;
    if (f->lanes == 1) return x;
    const ir_id local = ir_local(b, 0);
    if (!f->subgroup) {
        const ir_memory at = ir_workgroup(b, IR_F32, f->lanes * f->rows);
        ir_store(b, at, local, x);
        for (uint32_t half = f->lanes / 2; half > 0; half /= 2) {
            ir_barrier(b);
            ir_if(b, ir_lt(b, r->lane, ir_u32(b, half)));
            ir_store(b, at, local, ir_binary(b, op, ir_load(b, at, local, 1), ir_load(b, at, lower_ir_plus(r->walk.k, local, half), 1)));
            ir_end(b);
        }
        ir_barrier(b);
        return ir_load(b, at, ir_sub(b, local, r->lane), 1);
    }
    x = op == IR_MAX ? ir_subgroup_max(b, x) : ir_subgroup_add(b, x);
    if (f->lanes == f->subgroup) return x;
    const uint32_t n = f->lanes / f->subgroup, wide = n < 4 ? n : 4;
    const ir_memory at = ir_workgroup(b, IR_F32, n * f->rows);
    ir_if(b, ir_eq(b, ir_subgroup_lane(b), ir_u32(b, 0)));
    ir_store(b, at, lower_ir_over(r->walk.k, local, f->subgroup), x);
    ir_end(b);
    ir_barrier(b);
    const ir_id first = lower_ir_over(r->walk.k, ir_sub(b, local, r->lane), f->subgroup);
    ir_id all = ir_load(b, at, first, wide);
    for (uint32_t i = wide; i < n; i += wide) all = ir_binary(b, op, all, ir_load(b, at, lower_ir_plus(r->walk.k, first, i), wide));
    return op == IR_MAX ? lower_ir_max_vector(r->walk.k, all) : lower_ir_sum_vector(r->walk.k, all);
}

static void finish_stat(rows *r, tree_stat *s, ir_id vector) {
    ir_builder *b = r->walk.k->b;
    const bool largest = s->kind == TREE_LARGEST;
    const ir_id one = largest ? lower_ir_max_vector(r->walk.k, vector) : lower_ir_sum_vector(r->walk.k, vector);
    const ir_id all = join_lanes(r, largest ? IR_MAX : IR_ADD, one);
    s->result = all;
    if (s->kind == TREE_SUM_OVER) s->result = ir_div(b, ir_f32(b, 1), all);
    if (s->kind == TREE_MEAN) s->result = ir_div(b, all, r->count);
    if (s->kind != TREE_RMS_OVER) return;
    const ir_id mean = ir_add(b, ir_div(b, all, r->count), ir_f32(b, s->eps));
    s->result = ir_div(b, ir_f32(b, 1), ir_sqrt(b, mean));
}

/* Everything of a lane in registers. valid: this row is one (where a workgroup does several), IR_NO_ID: it is. */
static void in_registers(rows *r, uint32_t d, ir_id valid) {
    ir_builder *b = r->walk.k->b;
    const form *f = &r->f;
    tree_spot s[CHUNK_MAX];
    ir_id inside = IR_NO_ID; /* the last vector is one */
    for (uint32_t i = 0; i < f->chunks; i++) {
        ir_id at = lower_ir_plus(r->walk.k, lower_ir_times(r->walk.k, r->lane, f->wide), i * f->lanes * f->wide);
        if ((i + 1) * f->lanes * f->wide > d) {
            inside = ir_lt(b, at, ir_u32(b, d));
            at = ir_min(b, at, ir_u32(b, d - f->wide));
        }
        tree_spot_at(&r->walk, &s[i], f->wide, at);
    }
    for (r->walk.level = 0; r->walk.level < r->walk.t.n_level; r->walk.level++) {
        for (uint32_t v = 0; v < r->walk.t.n_value; v++) /* all loads of the walk before anything else */
            for (uint32_t i = 0; i < f->chunks; i++)
                if (r->walk.t.values[v].kind == TREE_INPUT && r->walk.t.values[v].first == r->walk.level) tree_value_at(&r->walk, &s[i], v);
        for (uint32_t n = 0; n < r->walk.t.n_stat; n++) {
            tree_stat *st = &r->walk.t.stats[n];
            if (st->level != r->walk.level) continue;
            ir_id sum = neutral(r, st->kind, f->wide);
            for (uint32_t i = 0; i < f->chunks; i++) {
                ir_id x = tree_value_at(&r->walk, &s[i], st->of);
                if (i + 1 == f->chunks && inside != IR_NO_ID) x = ir_select(b, ir_splat(b, inside, f->wide), x, neutral(r, st->kind, f->wide));
                sum = gather(r, st->kind, sum, x);
            }
            finish_stat(r, st, sum);
        }
        for (uint32_t i = 0; i < f->chunks; i++) {
            for (uint32_t n = 0; n < r->walk.t.n_out; n++)
                if (r->walk.t.values[r->walk.t.out[n]].level == r->walk.level) tree_value_at(&r->walk, &s[i], r->walk.t.out[n]);
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

/* Sums of sums: of many numbers one after another the last ones would lose their digits. */
static void begin_sums(rows *r, const ir_memory *cells) {
    for (uint32_t n = 0; n < r->walk.t.n_stat; n++)
        if (r->walk.t.stats[n].level == r->walk.level) ir_store(r->walk.k->b, cells[n], ir_u32(r->walk.k->b, 0), neutral(r, r->walk.t.stats[n].kind, r->f.wide));
}

/* The row again for each level. */
static void in_loops(rows *r, uint32_t d, ir_id begin, ir_id end) {
    ir_builder *b = r->walk.k->b;
    const form *f = &r->f;
    ir_memory all[TREE_STATS] = {0}, cells[TREE_STATS] = {0};
    const ir_id zero = ir_u32(b, 0), step = ir_u32(b, f->lanes * f->wide);
    const uint32_t block = f->lanes * f->wide * BLOCK;
    const bool in_blocks = r->walk.t.n_stat && d > 2 * block;
    for (r->walk.level = 0; r->walk.level < r->walk.t.n_level; r->walk.level++) {
        for (uint32_t n = 0; n < r->walk.t.n_stat; n++)
            if (r->walk.t.stats[n].level == r->walk.level) cells[n] = ir_register(b, IR_F32, f->wide), all[n] = in_blocks ? ir_register(b, IR_F32, f->wide) : cells[n];
        begin_sums(r, all);
        const ir_id first = f->lanes == 1 ? begin : ir_add(b, begin, lower_ir_times(r->walk.k, r->lane, f->wide));
        ir_id from = first, to = end;
        if (in_blocks) {
            const ir_id at = ir_loop(b, begin, end, ir_u32(b, block));
            begin_sums(r, cells);
            from = ir_add(b, at, first);
            to = ir_min(b, lower_ir_plus(r->walk.k, at, block), end);
        }
        const ir_id i = ir_loop(b, from, to, step);
        tree_spot s;
        tree_spot_at(&r->walk, &s, f->wide, i);
        for (uint32_t n = 0; n < r->walk.t.n_stat; n++) {
            const tree_stat *st = &r->walk.t.stats[n];
            if (st->level != r->walk.level) continue;
            const ir_id x = tree_value_at(&r->walk, &s, st->of);
            ir_store(b, cells[n], zero, gather(r, st->kind, ir_load(b, cells[n], zero, f->wide), x));
        }
        tree_store(&r->walk, &s, r->walk.level);
        take_chosen(r, &s);
        ir_end(b);
        for (uint32_t n = 0; in_blocks && n < r->walk.t.n_stat; n++) {
            if (r->walk.t.stats[n].level != r->walk.level) continue;
            const ir_id sum = ir_load(b, all[n], zero, f->wide), more = ir_load(b, cells[n], zero, f->wide);
            ir_store(b, all[n], zero, r->walk.t.stats[n].kind == TREE_LARGEST ? ir_max(b, sum, more) : ir_add(b, sum, more));
        }
        if (in_blocks) ir_end(b);
        for (uint32_t n = 0; n < r->walk.t.n_stat; n++)
            if (r->walk.t.stats[n].level == r->walk.level) finish_stat(r, &r->walk.t.stats[n], ir_load(b, all[n], zero, f->wide));
    }
}

/* ---- what becomes of the largest ---------------------------------------------------------------------------------- */

static void only_first_lane(lower_ir *k) {
    if (k->lanes > 1) ir_if(k->b, ir_eq(k->b, ir_local(k->b, 0), ir_u32(k->b, 0)));
}

static void all_lanes(lower_ir *k) {
    if (k->lanes > 1) ir_end(k->b);
}

/* out: (key, index) at `at` of a part; the index of a row. */
static void store_best(lower_ir *k, const best *m, ir_memory out, ir_id at, bool is_part) {
    ir_builder *b = k->b;
    ir_id top, index;
    best_join(k, m, &top, &index);
    only_first_lane(k);
    if (is_part) {
        ir_store(b, out, lower_ir_times(k, at, 2), top);
        ir_store(b, out, lower_ir_plus(k, lower_ir_times(k, at, 2), 1), index);
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
    lower_ir *k = r->walk.k;
    ir_builder *b = k->b;
    const uint32_t n_best = r->walk.t.choice->attr.topk.k, wide = r->f.wide;
    const ir_memory last_key = ir_register(b, IR_U32, 1), last = ir_register(b, IR_U32, 1);
    const ir_id zero = ir_u32(b, 0);
    if (r->s.keeps && k->lanes > 1) ir_barrier(b);
    ir_set(b, last_key, ir_u32(b, UINT32_MAX));
    ir_set(b, last, zero);
    const ir_id turn = ir_loop(b, zero, ir_u32(b, n_best), ir_u32(b, 1));
    best_clear(k, &r->best);
    const ir_id i = ir_loop(b, lower_ir_times(k, r->lane, wide), r->length, ir_u32(b, k->lanes * wide));
    const ir_id key = lower_ir_order(k, chosen_at(r, i, wide), LOWER_IR_LOWEST), index = indices_of(r, i);
    const ir_id before = ir_splat(b, ir_get(b, last_key), wide), behind = ir_gt(b, index, ir_splat(b, ir_get(b, last), wide));
    const ir_id left = ir_or(b, ir_lt(b, key, before), ir_and(b, ir_eq(b, key, before), behind));
    best_take(k, &r->best, ir_select(b, left, key, ir_bits(b, IR_U32, wide, 0)), index);
    ir_end(b);
    ir_id top, found;
    best_join(k, &r->best, &top, &found);
    ir_set(b, last_key, top);
    ir_set(b, last, found);
    only_first_lane(k);
    const ir_id to = ir_add(b, lower_ir_times(k, row, n_best), turn), lowest = ir_le(b, top, ir_u32(b, LOWER_IR_LOWEST));
    const ir_id at = is_varying(&r->walk.t) ? ir_min(b, found, ir_u32(b, length_of(&r->walk.t) - 1)) : found;
    ir_store(b, values, to, ir_select(b, lowest, ir_bits(b, IR_F32, 1, 0xff800000u), chosen_at(r, at, 1)));
    ir_store(b, indices, to, ir_cast(b, IR_I32, found));
    all_lanes(k);
    ir_end(b);
}

/* ---- the kernel ---------------------------------------------------------------------------------------------------- */

static form search_form(lowering *l, const tree *t, const search *s, uint32_t wide) {
    if (t->n_stat) return chosen_form(l, t, wide);
    while (s->kind == SEARCH_PARTS && s->parts.size % wide) wide /= 2;
    const uint32_t n = s->kind == SEARCH_PARTS ? s->parts.size : s->kind == SEARCH_TURNS ? length_of(t) * t->choice->attr.topk.k : length_of(t);
    return (form){.wide = lower_ir_choose(l, "vector", wide, 1, wide), .lanes = lower_ir_lanes_chosen(l, n), .rows = 1};
}

static beryl_status rows_kernel(lowering *l, const graph_node *node, const tree *t, const char *name, const search *s, beryl_error *error) {
    const uint32_t d = length_of(t);
    rows all = {.walk = {.t = *t}, .s = *s}, *r = &all;
    tree_walk *c = &r->walk;
    lower_ir k;
    tree_walk_rows(c);
    r->f = search_form(l, t, s, tree_widest(c, is_varying(t) ? 1 : device_is_compiled(l->caps) ? LOWER_IR_RUN : 4, d, true, c->w.n));
    const form *f = &r->f;
    if (s->kind == SEARCH_TURNS && l->caps->loop_max && (uint64_t)(d / f->lanes + 1) * t->choice->attr.topk.k > l->caps->loop_max / 2)
        return lower_refuse(l, t->choice, "rows this long", error);
    lower_ir_begin(&k, l, node, name, f->lanes * f->rows);
    c->k = &k;
    c->arrays = f->arrays;
    ir_builder *b = k.b;
    if (f->subgroup) ir_subgroup(b, f->subgroup);
    tree_declare(c);
    ir_memory out = {0}, indices = {0};
    const uint64_t bytes = t->shape->dim[0].size * (uint64_t)s->parts.n * 8;
    if (s->kind == SEARCH_PARTS) out = lower_ir_scratch(&k, "best", s->scratch, bytes, IR_U32, IR_READ_WRITE);
    else if (s->kind) out = lower_ir_write(&k, "out", t->choice->out[0]);
    if (s->kind == SEARCH_TURNS) indices = lower_ir_write(&k, "indices", t->choice->out[1]);
    for (uint32_t i = 0; f->arrays && i < t->n_value; i++)
        if (t->values[i].kind != TREE_INPUT && t->values[i].last > t->values[i].first) c->t.values[i].array = ir_register(b, IR_F32, d);
    if (s->kind) r->best = best_begin(&k, f->wide);
    if (s->keeps) r->kept = ir_workgroup(b, IR_F32, d);
    const ir_id local = ir_local(b, 0), group = lower_ir_group(&k);
    r->lane = f->lanes == 1 ? ir_u32(b, 0) : f->rows > 1 ? lower_ir_rest(&k, local, f->lanes) : local;
    ir_id row = group, begin = ir_u32(b, 0);
    r->length = is_varying(t) ? lower_ir_count(&k, "length", lower_count_of(t->shape->dim[t->shape->rank - 1])) : ir_u32(b, d);
    r->count = is_varying(t) ? ir_cast(b, IR_F32, r->length) : ir_f32(b, (float)d);
    ir_id end = r->length;
    if (f->rows > 1) row = ir_add(b, lower_ir_times(&k, group, f->rows), lower_ir_over(&k, local, f->lanes));
    if (s->kind == SEARCH_PARTS) {
        row = lower_ir_over(&k, group, s->parts.n);
        begin = lower_ir_times(&k, lower_ir_rest(&k, group, s->parts.n), s->parts.size);
        end = ir_min(b, lower_ir_plus(&k, begin, s->parts.size), end);
    }
    const ir_id outer = tree_place(c, row, 1, f->rows > 1, c->row), valid = ir_lt(b, outer, c->size[0]);
    if (f->rows == 1) ir_if(b, valid);
    if (s->kind) best_clear(&k, &r->best);
    if (f->chunks) in_registers(r, d, f->rows > 1 ? valid : IR_NO_ID);
    else if (s->kind != SEARCH_TURNS || s->keeps) in_loops(r, d, begin, end);
    if (s->kind == SEARCH_TURNS) store_turns(r, out, indices, row);
    else if (s->kind) store_best(&k, &r->best, out, s->kind == SEARCH_PARTS ? group : row, s->kind == SEARCH_PARTS);
    if (f->rows == 1) ir_end(b);
    lower_count count = lower_walk_count(l, &c->w);
    if (s->kind == SEARCH_PARTS) count = lower_count_times(count, s->parts.n);
    return lower_ir_end(&k, count, f->rows, error);
}

/* The best of all parts of a row. */
static beryl_status join_parts(lowering *l, const graph_node *node, const tree *t, lower_ir_parts p, beryl_error *error) {
    lower_ir k;
    lower_ir_begin(&k, l, node, "best_of_row", lower_ir_lanes_chosen(l, p.n));
    ir_builder *b = k.b;
    ir_memory from = lower_ir_scratch(&k, "best", SCRATCH_BEST, 0, IR_U32, IR_READ), out = lower_ir_write(&k, "out", t->choice->out[0]);
    ir_id n = lower_ir_count(&k, "n", lower_count_of(t->shape->dim[0]));
    best m = best_begin(&k, 1);
    ir_id row = lower_ir_group(&k);
    ir_if(b, ir_lt(b, row, n));
    best_clear(&k, &m);
    ir_id i = ir_loop(b, k.lanes == 1 ? ir_u32(b, 0) : ir_local(b, 0), ir_u32(b, p.n), ir_u32(b, k.lanes));
    ir_id at = lower_ir_times(&k, ir_add(b, lower_ir_times(&k, row, p.n), i), 2);
    best_take(&k, &m, ir_load(b, from, at, 1), ir_load(b, from, lower_ir_plus(&k, at, 1), 1));
    ir_end(b);
    store_best(&k, &m, out, row, false);
    ir_end(b);
    return lower_ir_end(&k, lower_count_of(t->shape->dim[0]), 1, error);
}

static bool can_keep(const tree *t, uint32_t d) {
    return t->n_value > 1 && d <= KEPT_BYTES / 4;
}

beryl_status lower_ir_tree_rows(lowering *l, const graph_node *node, const tree *t, const char *name, beryl_error *error) {
    search s = {.kind = SEARCH_NONE, .nan = NOT_A_NUMBER, .scratch = SCRATCH_BEST};
    if (t->shape->rank == 0) return lower_refuse(l, node, "the rows of a scalar", error);
    if (!t->choice) return rows_kernel(l, node, t, name, &s, error);
    const uint32_t d = length_of(t);
    if (t->choice->op == OP_TOPK) {
        s.kind = SEARCH_TURNS;
        s.keeps = can_keep(t, d);
        return rows_kernel(l, node, t, name, &s, error);
    }
    s.parts = lower_ir_parts_of(d, PARTS_MAX, lower_ir_choose(l, "part", PART_LEAST, 256, 1 << 16));
    s.kind = t->n_stat || s.parts.n == 1 ? SEARCH_ROW : SEARCH_PARTS;
    beryl_status status = rows_kernel(l, node, t, name, &s, error);
    return status == BERYL_OK && s.kind == SEARCH_PARTS ? join_parts(l, node, t, s.parts, error) : status;
}

bool lower_ir_tree_rows_fit(const device_caps *caps, const tree *t) {
    if (t->shape->rank == 0) return false;
    const uint32_t d = length_of(t);
    if (t->choice && t->choice->op == OP_TOPK && !can_keep(t, d)) return false;
    if (!t->n_stat) return true;
    const form f = form_of(caps, t, is_serial(caps) || d % 4 || is_varying(t) ? 1 : 4);
    if (f.chunks || f.arrays) return true;
    for (uint32_t i = 0; i < t->n_value; i++) /* would be computed once a walk */
        if (t->values[i].last > t->values[i].first && (t->values[i].kind == TREE_WEIGHTED || (t->values[i].kind == TREE_NODE && tree_is_dear(t->values[i].op)))) return false;
    return true;
}

beryl_status lower_ir_best(lowering *l, const graph_node *node, lower_ir_parts p, uint32_t key, uint32_t nan, beryl_error *error) {
    tree t;
    const graph_tensor *x = graph_tensor_at(l->g, node->in[0]);
    if (x->rank != 2 || x->dim[1].extent) return lower_refuse(l, node, "rows of varying length", error);
    tree_read_choice(&t, l->g, node);
    return rows_kernel(l, node, &t, "best_of_parts", &(search){.kind = SEARCH_PARTS, .parts = p, .nan = nan, .scratch = key}, error);
}

beryl_status lower_ir_largest(lowering *l, const graph_node *node, beryl_error *error) {
    tree t;
    tree_read_choice(&t, l->g, node);
    return lower_ir_tree_rows(l, node, &t, graph_op_name(node->op), error);
}

/* ---- rows by index ------------------------------------------------------------------------------------------- */

/* state[index[i]] = x[i]; a lane an element. */
beryl_status lower_ir_set_rows(lowering *l, const graph_node *node, beryl_error *error) {
    const graph_tensor *state = graph_tensor_at(l->g, node->in[0]), *x = graph_tensor_at(l->g, node->in[1]);
    const uint32_t d = x->rank == 2 ? x->dim[1].size : 1;
    if (x->rank == 2 && (x->stride[1] != 1 || x->dim[1].extent)) return lower_refuse(l, node, "rows with gaps between their elements", error);
    lower_ir k;
    lower_ir_begin(&k, l, node, "set_rows", MOVED_LANES);
    ir_builder *b = k.b;
    ir_memory from = lower_ir_bind(&k, "x", node->in[1], IR_U32, IR_READ), index = lower_ir_read(&k, "index", node->in[2]);
    ir_memory to = lower_ir_bind(&k, "state", node->in[0], IR_U32, IR_READ_WRITE);
    ir_id n = lower_ir_count(&k, "n", lower_count_of(x->dim[0]));
    ir_id x_offset = lower_ir_u32(&k, "x_offset", x->offset);
    ir_id index_offset = lower_ir_u32(&k, "index_offset", graph_tensor_at(l->g, node->in[2])->offset);
    ir_id lane = lower_ir_lane(&k), row = lower_ir_over(&k, lane, d), column = lower_ir_rest(&k, lane, d);
    ir_if(b, ir_lt(b, row, n));
    ir_id place = ir_cast(b, IR_U32, ir_load(b, index, ir_add(b, index_offset, row), 1)); /* below 0: very large */
    ir_if(b, ir_lt(b, place, ir_u32(b, state->dim[0].size)));
    ir_id at = ir_add(b, ir_add(b, x_offset, lower_ir_times(&k, row, x->stride[0])), column);
    ir_store(b, to, ir_add(b, lower_ir_times(&k, place, d), column), ir_load(b, from, at, 1));
    ir_end(b);
    ir_end(b);
    return lower_ir_end(&k, lower_count_times(lower_count_of(x->dim[0]), d), MOVED_LANES, error);
}
