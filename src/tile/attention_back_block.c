/* attention_back_block.c - the backward pass of attention where one thread runs a workgroup and
 * vectors are the only lanes (processors): a block of owned lines against blocks of the others
 * (tile/attention_back.h).
 *
 * As in attention_block.c the owned lines are lanes: they lie as [element, line], and so do sums;
 * weights as [other, line]. A product is a sum over elements of an element of the other line, the
 * same in all lanes, times a vector of owned ones. */
#include "tile/attention_back.h"
#include "tile/attention_block.h"

enum { EACH = BLOCK_EACH_MAX };

typedef struct form {
    uint32_t wide, vectors, own, other; /* lanes of a vector; owned and other lines of a block */
    uint32_t group, queries;            /* of a block of rows */
    uint32_t reads;                     /* elements of a line at once */
} form;

typedef struct block {
    tile_kernel k;
    const back_task *t;
    form f;
    block_vectors v; /* of owned lines; each: others, and elements */
    back_walk w;
    /* workgroup: owned lines and sums [d, own]; others [other, d]; products, then weights
     * [other, own] */
    ir_memory own[2], others[2], sums, scores, slopes;
    ir_memory of_own[4];   /* registers [own]: of rows; of keys 0: their places */
    ir_memory most, total; /* registers [own], of BACK_SUMS */
} block;

static bool form_of(const lowering *l, const back_task *t, form *f) {
    const device_caps *caps = l->caps;
    const attention_task *a = &t->a;
    const bool rows = back_owns_rows(t);
    const uint32_t heads = a->n_head / a->n_kv;
    *f = (form){.wide = TILE_RUN,
                .vectors = BLOCK_VECTORS_MAX,
                .other = a->d >= BLOCK_FAR ? BLOCK_OTHERS_FAR : BLOCK_OTHERS,
                .reads = TILE_RUN};
    for (;; f->vectors--) {
        f->own = f->wide * f->vectors;
        const uint32_t lines = rows ? f->own : f->other;
        f->group = whole_divisor(heads, lines);
        f->queries = lines / f->group;
        const uint64_t groups =
            rows ? (uint64_t)whole_over(a->n, f->queries) * (a->n_head / f->group)
                 : (uint64_t)whole_over(a->n_row, f->own) * a->n_kv;
        if (f->vectors == 1 || groups >= BLOCK_GROUPS_A_UNIT * caps->compute_units) break;
    }
    while (f->reads > 1 && !back_reads(l, t, f->reads)) f->reads /= 2;
    const uint64_t floats = (uint64_t)3 * a->d * f->own + 2 * f->other * (a->d + f->own);
    return floats * 4 <= caps->workgroup_bytes;
}

bool back_block_fits(const lowering *l, const back_task *t) {
    form f;
    return device_is_compiled(l->caps) && t->a.d % EACH == 0 && form_of(l, t, &f);
}

static bool wants_slopes(const block *x) {
    return x->t->kind == BACK_Q || x->t->kind == BACK_K;
}

static void bind(block *x) {
    tile_kernel *k = &x->k;
    ir_builder *b = k->b;
    const form *f = &x->f;
    const uint32_t d = x->t->a.d;
    const bool sums = x->t->kind == BACK_SUMS;
    x->w = (back_walk){.own = f->own, .other = f->other, .group = f->group, .queries = f->queries};
    back_walk_bind(&x->w, k, x->t);
    for (uint32_t i = 0; i < 2; i++) {
        if (!i || wants_slopes(x)) x->own[i] = ir_workgroup(b, IR_F32, d * f->own);
        if (!i || !sums) x->others[i] = ir_workgroup(b, IR_F32, f->other * d);
    }
    x->scores = ir_workgroup(b, IR_F32, f->other * f->own);
    if (wants_slopes(x)) x->slopes = ir_workgroup(b, IR_F32, f->other * f->own);
    if (!sums) x->sums = ir_workgroup(b, IR_F32, d * f->own);
    for (uint32_t i = 0; i < (back_owns_rows(x->t) ? 4 : 1); i++)
        x->of_own[i] = ir_register(b, IR_F32, f->own);
    if (sums) {
        x->most = ir_register(b, IR_F32, f->own);
        x->total = ir_register(b, IR_F32, f->own);
    }
    x->v = (block_vectors){.k = k, .wide = f->wide, .n = f->vectors, .lines = f->own, .each = EACH};
    block_bind(&x->v);
}

/* ---- lines ----------------------------------------------------------------------------------- */

/* As sums have it: of BACK_SUMS the first two are 0. */
static void stats_of(block *x, ir_id query, ir_id head, ir_id stats[4]) {
    ir_builder *b = x->k.b;
    if (x->t->kind != BACK_SUMS) {
        ir_id all = ir_load(b, x->w.x.sums, back_sums_at(&x->w, query, head), 4);
        for (uint32_t i = 0; i < 4; i++) stats[i] = ir_extract(b, all, i);
        return;
    }
    ir_id first, end;
    back_keys_of(&x->w, query, &first, &end);
    ir_id some = ir_lt(b, first, end);
    stats[0] = stats[1] = ir_f32(b, 0);
    stats[2] = ir_select(b, some, ir_cast(b, IR_F32, first), ir_f32(b, 1));
    stats[3] = ir_select(b, some, ir_cast(b, IR_F32, tile_add(b, end, UINT32_MAX)), ir_f32(b, 0));
}

static void stage_own(block *x, uint32_t which) {
    ir_builder *b = x->k.b;
    ir_id line = block_steps(&x->v, x->f.own, 1), e = block_steps(&x->v, x->t->a.d, x->f.reads);
    ir_id some = back_line_read(&x->w, true, which, line, e, x->f.reads);
    for (uint32_t i = 0; i < x->f.reads; i++)
        ir_store(b, x->own[which], ir_add(b, block_at(&x->v, tile_add(b, e, i), 0), line),
                 x->f.reads == 1 ? some : ir_extract(b, some, i));
    ir_end(b);
    ir_end(b);
}

static void stage_others(block *x, uint32_t which) {
    ir_builder *b = x->k.b;
    const uint32_t d = x->t->a.d;
    ir_id line = block_steps(&x->v, x->f.other, 1), e = block_steps(&x->v, d, x->f.reads);
    ir_store(b, x->others[which], ir_add(b, tile_mul(b, line, d), e),
             back_line_read(&x->w, false, which, line, e, x->f.reads));
    ir_end(b);
    ir_end(b);
}

/* Largest scores and totals of BACK_SUMS, places of keys, what rows say; no sums yet. */
static void begin(block *x) {
    tile_kernel *k = &x->k;
    ir_builder *b = k->b;
    const form *f = &x->f;
    const bool sums = x->t->kind == BACK_SUMS;
    ir_id line = block_steps(&x->v, f->own, 1);
    if (back_owns_rows(x->t)) {
        ir_id query, head, stats[4];
        back_row_of(&x->w, line, &query, &head);
        stats_of(x, query, head, stats);
        for (uint32_t i = 0; i < 4; i++) ir_store(b, x->of_own[i], line, stats[i]);
    } else {
        ir_store(b, x->of_own[0], line, ir_cast(b, IR_F32, ir_add(b, x->w.first_own, line)));
    }
    ir_end(b);
    for (uint32_t v = 0; sums && v < f->vectors; v++) {
        ir_store(b, x->most, ir_u32(b, v * f->wide), block_number(&x->v, ATTENTION_NO_KEYS));
        ir_store(b, x->total, ir_u32(b, v * f->wide), block_number(&x->v, 0));
    }
    stage_own(x, 0);
    if (wants_slopes(x)) stage_own(x, 1);
    if (sums) return;
    ir_id e = block_steps(&x->v, x->t->a.d * f->own, f->wide);
    ir_store(b, x->sums, e, block_number(&x->v, 0));
    ir_end(b);
    (void)k;
}

/* ---- a block of others ----------------------------------------------------------------------- */

/* Products of pair `which` of lines. */
static void multiply(block *x, ir_memory out, uint32_t which) {
    ir_builder *b = x->k.b;
    const form *f = &x->f;
    const uint32_t d = x->t->a.d, n = f->vectors * EACH;
    ir_id line = block_steps(&x->v, f->other, EACH);
    for (uint32_t i = 0; i < n; i++) ir_store(b, x->v.part[i], x->v.zero, block_number(&x->v, 0));
    ir_id e = block_steps(&x->v, d, 1);
    block_add(&x->v, x->own[which], e, x->others[which], ir_add(b, tile_mul(b, line, d), e), d);
    ir_end(b);
    for (uint32_t i = 0; i < n; i++)
        ir_store(b, out, block_at(&x->v, tile_add(b, line, i % EACH), i / EACH),
                 block_load(&x->v, x->v.part[i], x->v.zero));
    ir_end(b);
}

/* Of another line, in all lanes: what rows say, where rows are the others, else its place. */
static void other_stats(block *x, ir_id line, ir_id of[4], ir_id *key) {
    ir_builder *b = x->k.b;
    ir_id query, head, is;
    if (back_owns_rows(x->t)) {
        *key = block_many(&x->v, ir_cast(b, IR_F32, ir_add(b, x->w.first_other, line)));
        return;
    }
    back_row_of(&x->w, line, &query, &head);
    stats_of(x, query, head, of);
    is = back_is_row(&x->w, line);
    of[2] = ir_select(b, is, of[2], ir_f32(b, 1));
    of[3] = ir_select(b, is, of[3], ir_f32(b, 0));
    for (uint32_t i = 0; i < 4; i++) of[i] = block_many(&x->v, of[i]);
}

static ir_id pair_sees(block *x, uint32_t v, ir_id of[4], ir_id *key) {
    ir_builder *b = x->k.b;
    if (!back_owns_rows(x->t)) *key = block_of(&x->v, x->of_own[0], v);
    for (uint32_t i = 0; back_owns_rows(x->t) && i < 4; i++)
        of[i] = block_of(&x->v, x->of_own[i], v);
    return ir_and(b, ir_ge(b, *key, of[2]), ir_le(b, *key, of[3]));
}

static void weigh(block *x) {
    ir_builder *b = x->k.b;
    ir_id line = block_steps(&x->v, x->f.other, 1), of[4], key;
    other_stats(x, line, of, &key);
    for (uint32_t v = 0; v < x->f.vectors; v++) {
        ir_id at = block_at(&x->v, line, v), sees = pair_sees(x, v, of, &key);
        ir_id slope = wants_slopes(x) ? block_load(&x->v, x->slopes, at) : IR_NO_ID;
        ir_id weight =
            back_weight(&x->w.x, b, x->t, block_load(&x->v, x->scores, at), slope, of[0], of[1]);
        ir_store(b, x->scores, at, ir_select(b, sees, weight, block_number(&x->v, 0)));
    }
    ir_end(b);
}

static void add_others(block *x) {
    ir_builder *b = x->k.b;
    const form *f = &x->f;
    const uint32_t d = x->t->a.d, n = f->vectors * EACH;
    ir_id e = block_steps(&x->v, d, EACH);
    for (uint32_t i = 0; i < n; i++)
        ir_store(b, x->v.part[i], x->v.zero,
                 block_load(&x->v, x->sums, block_at(&x->v, tile_add(b, e, i % EACH), i / EACH)));
    ir_id line = block_steps(&x->v, f->other, 1);
    block_add(&x->v, x->scores, line, x->others[x->t->kind == BACK_V],
              ir_add(b, tile_mul(b, line, d), e), 1);
    ir_end(b);
    for (uint32_t i = 0; i < n; i++)
        ir_store(b, x->sums, block_at(&x->v, tile_add(b, e, i % EACH), i / EACH),
                 block_load(&x->v, x->v.part[i], x->v.zero));
    ir_end(b);
}

static void add_scores(block *x) {
    ir_builder *b = x->k.b;
    ir_id line = block_steps(&x->v, x->f.other, 1), of[4], key;
    other_stats(x, line, of, &key);
    for (uint32_t v = 0; v < x->f.vectors; v++) {
        ir_id own = ir_u32(b, v * x->f.wide), sees = pair_sees(x, v, of, &key),
              before = block_of(&x->v, x->most, v);
        ir_id score = ir_mul(b, block_load(&x->v, x->scores, block_at(&x->v, line, v)),
                             block_many(&x->v, x->w.x.scale));
        score = ir_select(b, sees, score, block_number(&x->v, ATTENTION_MASKED));
        ir_id now = ir_max(b, before, score);
        ir_store(b, x->total, own,
                 ir_fma(b, block_of(&x->v, x->total, v), ir_exp(b, ir_sub(b, before, now)),
                        ir_exp(b, ir_sub(b, score, now))));
        ir_store(b, x->most, own, now);
    }
    ir_end(b);
}

static void turn(block *x) {
    stage_others(x, 0);
    multiply(x, x->scores, 0);
    if (x->t->kind == BACK_SUMS) {
        add_scores(x);
        return;
    }
    stage_others(x, 1);
    if (wants_slopes(x)) multiply(x, x->slopes, 1);
    weigh(x);
    add_others(x);
}

/* ---- results --------------------------------------------------------------------------------- */

static void finish_sums(block *x) {
    ir_builder *b = x->k.b;
    const attention_task *a = &x->t->a;
    ir_id line = block_steps(&x->v, x->f.own, 1), query, head;
    ir_id first, end;
    back_row_of(&x->w, line, &query, &head);
    ir_if(b, back_is_row(&x->w, line));
    ir_store(b, x->v.part[0], x->v.zero, block_number(&x->v, 0));
    ir_id e = block_steps(&x->v, a->d, x->f.reads);
    ir_id at = tile_mul(b, ir_fma(b, query, ir_u32(b, a->n_head), head), a->d);
    ir_id y = ir_load(b, x->w.x.y, ir_add(b, ir_add(b, at, x->w.x.y_offset), e), x->f.reads);
    ir_store(b, x->v.part[0], x->v.zero,
             ir_fma(b, y, back_read(b, &x->w.x.rows, 1, query, head, e, x->f.reads),
                    ir_load(b, x->v.part[0], x->v.zero, x->f.reads)));
    ir_end(b);
    back_keys_of(&x->w, query, &first, &end);
    back_store_sums(&x->w.x, b, back_sums_at(&x->w, query, head), ir_load(b, x->most, line, 1),
                    ir_load(b, x->total, line, 1),
                    tile_sum_vector(b, ir_load(b, x->v.part[0], x->v.zero, x->f.reads)), first,
                    end);
    ir_end(b);
    ir_end(b);
}

static void finish(block *x) {
    ir_builder *b = x->k.b;
    ir_id line = block_steps(&x->v, x->f.own, 1), is, at = back_result_at(&x->w, line, &is);
    ir_if(b, is);
    ir_id e = block_steps(&x->v, x->t->a.d, 1);
    ir_store(b, x->w.x.out, ir_add(b, at, e),
             ir_load(b, x->sums, ir_add(b, block_at(&x->v, e, 0), line), 1));
    ir_end(b);
    ir_end(b);
    ir_end(b);
}

/* ---- the kernel ------------------------------------------------------------------------------ */

beryl_status back_block(lowering *l, const back_task *t) {
    block x = {.t = t};
    if (!form_of(l, t, &x.f)) return lower_refuse(l, l->node, "heads of this shape");
    tile_begin(&x.k, l, t->kind == BACK_SUMS ? "attention_sums" : "attention_back", 1);
    bind(&x);
    back_own(&x.w);
    begin(&x);
    back_others(&x.w);
    turn(&x);
    back_others_end(&x.w);
    if (t->kind == BACK_SUMS) finish_sums(&x);
    else finish(&x);
    return back_walk_end(&x.w, 1);
}
