/* attention_back_matrix.c - the backward pass of attention on matrix units, where a plan may be
 * fast (tile/attention_back.h).
 *
 * As in attention_matrix.c a subgroup has 16 or 32 owned lines, and what it makes of a tile of
 * others stays in fragments: products become weights where they are, and these are the left side
 * of the product with the others. Products of queries and keys are of halves; gradients, whose
 * size nobody knows, are BF16 unless keys are halves in memory. Where heads are long, workgroups
 * share the columns of the sums. Where the device multiplies from workgroup memory (direct), a
 * dispatch before makes halves of the others, and a tile of them is copied while the one before is
 * worked on. */
#include "tile/attention_back_matrix.h"

/* ---- products -------------------------------------------------------------------------------- */

/* c[r, i] += a[left[r]] b[i], i of n; b[i] lies `step` elements after the one before. */
static void multiply(back_matrix_kernel *m, ir_fragments c, uint32_t n, ir_fragments a,
                     const uint32_t *left, ir_fragments right, ir_memory memory, ir_id from,
                     uint32_t step, bool transposed) {
    ir_builder *b = m->k.b;
    for (uint32_t i = 0; i < n; i += 2) {
        for (uint32_t j = 0; j < 2; j++)
            ir_fragment_load(b, right, ir_u32(b, j), memory, tile_add(b, from, (i + j) * step),
                             ir_u32(b, line_of(&m->f)), transposed);
        for (uint32_t j = 0; j < 2; j++)
            for (uint32_t r = 0; r < m->f.each; r++)
                ir_fragment_mma(b, c, ir_u32(b, r * n + i + j), a, ir_u32(b, left[r]), right,
                                ir_u32(b, j));
    }
}

/* Products of pair `which` of lines; direct: begins them. */
static void find_products(back_matrix_kernel *m, ir_fragments c, uint32_t which) {
    ir_builder *b = m->k.b;
    const back_form *f = &m->f;
    const uint32_t line = line_of(f), left[EACH_MAX] = {0, 1};
    for (uint32_t i = 0; i < f->each * m->n_other && !f->direct; i++)
        ir_fragment_fill(b, c, ir_u32(b, i), ir_f32(b, 0));
    for (uint32_t e = 0; e < f->d && f->direct; e += BLOCK)
        ir_fragment_multiply(b, c, m->own[which],
                             tile_add(b, tile_mul(b, tile_div(b, m->warp, 4), 4 * ROWS * BLOCK),
                                      m->own_at[which] + e * f->own),
                             tile_add(b, m->slot, m->other_at[which] + e * f->other), !e,
                             BLOCK / DEPTH);
    if (f->direct) return;
    for (uint32_t e = 0; e < f->d; e += DEPTH) {
        for (uint32_t r = 0; r < f->each; r++)
            ir_fragment_load(
                b, m->left[which], ir_u32(b, r), m->own[which],
                tile_add(b, tile_mul(b, m->warp, f->each * ROWS * line), r * ROWS * line + e),
                ir_u32(b, line), false);
        multiply(m, c, m->n_other, m->left[which], left, m->right[which], m->other[which],
                 ir_u32(b, e), TILE * line, true);
    }
}

static void add_others(back_matrix_kernel *m) {
    const back_form *f = &m->f;
    const uint32_t line = line_of(f), depths = f->other / DEPTH;
    const bool values = m->t->kind == BACK_V, twin = has_twin(f, m->t);
    const ir_memory from = values ? m->other[1] : twin ? m->twin : m->other[0];
    if (f->direct) {
        const uint32_t at = values ? m->other_at[1] : twin ? m->twin_at : m->other_at[0];
        ir_fragment_multiply_held(m->k.b, m->sum, m->weight, from, tile_add(m->k.b, m->slot, at),
                                  depths);
        ir_fragment_wait(m->k.b, 0);
        return;
    }
    ir_id column = tile_mul(m->k.b, m->part, f->columns);
    for (uint32_t e = 0; e < depths; e++) {
        uint32_t left[EACH_MAX];
        for (uint32_t r = 0; r < f->each; r++) left[r] = r * depths + e;
        multiply(m, m->sum, m->n_column, m->weight, left, m->right[1], from,
                 tile_add(m->k.b, column, e * DEPTH * line), TILE, false);
    }
}

/* ---- weights --------------------------------------------------------------------------------- */

/* Line 8 q + lane / 4 of the subgroup's owned ones. */
static ir_id own_line(back_matrix_kernel *m, uint32_t q) {
    ir_builder *b = m->k.b;
    ir_id first = tile_mul(b, m->warp, m->f.each * ROWS);
    return tile_add(b, ir_add(b, first, tile_div(b, m->lane, 4)), q * TILE);
}

/* Column 8 i + 2 (lane % 4) + w of the others. */
static ir_id other_line(back_matrix_kernel *m, uint32_t i, uint32_t w) {
    return tile_add(m->k.b, tile_mul(m->k.b, tile_rem(m->k.b, m->lane, 4), 2), i * TILE + w);
}

/* Of the pairs of owned lines and columns 8 i: what rows say. */
typedef struct pair {
    ir_id of[4]; /* width 2: as stats */
    ir_id key;   /* the same: keys as F32 */
} pair;

static pair pair_of_rows(back_matrix_kernel *m, uint32_t i) {
    ir_builder *b = m->k.b;
    ir_id of[2], keys[2];
    pair p = {{0}, 0};
    const bool rows = back_owns_rows(m->t);
    for (uint32_t w = 0; w < 2; w++) {
        ir_id line = other_line(m, i, w);
        if (rows) keys[w] = ir_cast(b, IR_F32, ir_add(b, m->w.first_other, line));
        else of[w] = ir_load(b, m->stats, ir_add(b, m->stats_at, tile_mul(b, line, 4)), 4);
    }
    if (rows) p.key = ir_compose(b, keys, 2);
    for (uint32_t n = 0; !rows && n < 4; n++) {
        const ir_id both[2] = {ir_extract(b, of[0], n), ir_extract(b, of[1], n)};
        p.of[n] = ir_compose(b, both, 2);
    }
    return p;
}

/* With owned line q. */
static pair pair_with(back_matrix_kernel *m, const pair *of, uint32_t q) {
    ir_builder *b = m->k.b;
    pair p = *of;
    if (!back_owns_rows(m->t)) {
        p.key = ir_splat(b, ir_cast(b, IR_F32, ir_add(b, m->w.first_own, own_line(m, q))), 2);
        return p;
    }
    ir_id own = ir_load(b, m->of_own, ir_u32(b, q * 4), 4);
    for (uint32_t n = 0; n < 4; n++) p.of[n] = ir_splat(b, ir_extract(b, own, n), 2);
    return p;
}

static ir_id seen(back_matrix_kernel *m, const pair *p, ir_id x, float none) {
    ir_builder *b = m->k.b;
    ir_id sees = ir_and(b, ir_ge(b, p->key, p->of[2]), ir_le(b, p->key, p->of[3]));
    return ir_select(b, sees, x, ir_number(b, IR_F32, 2, (double)none));
}

static void weigh(back_matrix_kernel *m, bool all) {
    ir_builder *b = m->k.b;
    ir_id scale = ir_splat(b, m->scale, 2);
    for (uint32_t i = 0; i < m->n_other; i++) {
        const pair of = pair_of_rows(m, i);
        for (uint32_t q = 0; q < 2 * m->f.each; q++) {
            const pair p = pair_with(m, &of, q);
            ir_id at = ir_u32(b, q / 2 * m->n_other + i),
                  x = ir_fragment_get(b, m->score, at, q % 2);
            x = ir_exp2_normal(b, ir_fma(b, x, scale, ir_neg(b, p.of[0])));
            if (!all) x = seen(m, &p, x, 0);
            if (wants_slopes(m->t))
                x = ir_mul(b, x, ir_sub(b, ir_fragment_get(b, m->slope, at, q % 2), p.of[1]));
            ir_fragment_set(b, m->weight, ir_u32(b, (q / 2 * m->n_other + i) / 2),
                            q % 2 + i % 2 * 2, ir_cast(b, m->f.type, x));
        }
    }
}

static void turn(back_matrix_kernel *m) {
    ir_builder *b = m->k.b;
    find_products(m, m->score, 0);
    if (wants_slopes(m->t)) find_products(m, m->slope, 1);
    if (m->f.direct) ir_fragment_wait(b, 0);
    ir_if(b, m->whole);
    weigh(m, true);
    ir_else(b);
    weigh(m, false);
    ir_end(b);
    add_others(m);
}

/* ---- sums of rows ---------------------------------------------------------------------------- */

static void hide(back_matrix_kernel *m) {
    ir_builder *b = m->k.b;
    for (uint32_t i = 0; i < m->n_other; i++) {
        const pair of = pair_of_rows(m, i);
        for (uint32_t q = 0; q < 2 * m->f.each; q++) {
            const pair p = pair_with(m, &of, q);
            ir_id at = ir_u32(b, q / 2 * m->n_other + i);
            ir_fragment_set(b, m->score, at, q % 2,
                            seen(m, &p, ir_fragment_get(b, m->score, at, q % 2), ATTENTION_MASKED));
        }
    }
}

/* Scores in exponents of 2: queries come times the scale. */
static void sums_turn(back_matrix_kernel *m) {
    ir_builder *b = m->k.b;
    find_products(m, m->score, 0);
    if (m->f.direct) ir_fragment_wait(b, 0);
    ir_if(b, ir_not(b, m->whole));
    hide(m);
    ir_end(b);
    for (uint32_t q = 0; q < 2 * m->f.each; q++) {
        ir_id before = ir_load(b, m->most, ir_u32(b, q), 1), own = ir_splat(b, before, 2),
              total = ir_number(b, IR_F32, 2, 0);
        for (uint32_t i = 0; i < m->n_other; i++)
            own = ir_max(b, own,
                         ir_fragment_get(b, m->score, ir_u32(b, q / 2 * m->n_other + i), q % 2));
        ir_id now = tile_max_vector(b, own), both = ir_splat(b, now, 2);
        for (uint32_t i = 0; i < m->n_other; i++)
            total = ir_add(
                b, total,
                ir_exp2_normal(b, ir_sub(b,
                                         ir_fragment_get(b, m->score,
                                                         ir_u32(b, q / 2 * m->n_other + i), q % 2),
                                         both)));
        ir_id kept = ir_mul(b, ir_load(b, m->total, ir_u32(b, q), 1),
                            ir_exp2_normal(b, ir_sub(b, before, now)));
        ir_store(b, m->total, ir_u32(b, q), ir_add(b, kept, tile_sum_vector(b, total)));
        ir_store(b, m->most, ir_u32(b, q), now);
    }
}

/* y d of the lane's rows, but for what the lanes that share them have. */
static void find_deltas(back_matrix_kernel *m) {
    ir_builder *b = m->k.b;
    const attention_task *a = &m->t->a;
    ir_memory part = ir_register(b, IR_F32, 4);
    for (uint32_t q = 0; q < 2 * m->f.each; q++) {
        ir_id query, head, at;
        back_row_of(&m->w, own_line(m, q), &query, &head);
        at = tile_mul(b, ir_fma(b, query, ir_u32(b, a->n_head), head), a->d);
        ir_store(b, part, ir_u32(b, 0), ir_number(b, IR_F32, 4, 0));
        ir_id e = ir_loop_unrolled(b, tile_mul(b, tile_rem(b, m->lane, 4), 4), ir_u32(b, a->d),
                                   ir_u32(b, 16), 4);
        ir_id y = ir_load(b, m->w.x.y, ir_add(b, ir_add(b, at, m->w.x.y_offset), e), 4);
        ir_store(b, part, ir_u32(b, 0),
                 ir_fma(b, y, back_read(b, &m->w.x.rows, 1, query, head, e, 4),
                        ir_load(b, part, ir_u32(b, 0), 4)));
        ir_end(b);
        ir_store(b, m->delta, ir_u32(b, q), tile_sum_vector(b, ir_load(b, part, ir_u32(b, 0), 4)));
    }
}

static void sums_finish(back_matrix_kernel *m) {
    ir_builder *b = m->k.b;
    find_deltas(m);
    for (uint32_t q = 0; q < 2 * m->f.each; q++) {
        ir_id own = ir_load(b, m->most, ir_u32(b, q), 1), most = attention_quad(b, own, false),
              total = ir_mul(b, ir_load(b, m->total, ir_u32(b, q), 1),
                             ir_exp2_normal(b, ir_sub(b, own, most)));
        ir_id line = own_line(m, q), query, head;
        attention_keys keys;
        ir_id delta = attention_quad(b, ir_load(b, m->delta, ir_u32(b, q), 1), true);
        total = attention_quad(b, total, true);
        back_row_of(&m->w, line, &query, &head);
        attention_keys_of(&m->w.x.places, b, &m->t->a, query, &keys);
        ir_if(b,
              ir_and(b, ir_eq(b, tile_rem(b, m->lane, 4), ir_u32(b, 0)), back_is_row(&m->w, line)));
        back_store_sums(&m->w.x, b, back_sums_at(&m->w, query, head),
                        ir_mul(b, most, ir_f32(b, 1 / LOG2_E)), total, delta, keys.first, keys.end);
        ir_end(b);
    }
}

/* ---- the kernel ------------------------------------------------------------------------------ */

/* Where tile number n of the others lies in its arrays. */
static ir_id slot_of(back_matrix_kernel *m, ir_id n) {
    return tile_mul(m->k.b, tile_rem(m->k.b, n, 2), m->f.other * m->f.d);
}

static void own_rows(back_matrix_kernel *m) {
    ir_builder *b = m->k.b;
    const back_form *f = &m->f;
    ir_id found[4], range[4];
    back_own(&m->w);
    for (uint32_t q = 0; q < 2 * f->each; q++)
        ir_store(b, m->of_own, ir_u32(b, q * 4), back_stats_of(m, own_line(m, q)));
    back_reach(m, f->own, IR_NO_ID, found);
    back_stage_own(m);
    ir_id none = ir_lt(b, found[1], found[0]), zero = ir_f32(b, 0), one = ir_f32(b, 1);
    found[0] = ir_select(b, none, zero, found[0]);
    found[1] = ir_select(b, none, zero, ir_add(b, found[1], one));
    found[3] = ir_add(b, found[3], one);
    for (uint32_t i = 0; i < 4; i++) found[i] = ir_cast(b, IR_U32, found[i]);
    ir_if(b, ir_eq(b, m->local, ir_u32(b, 0)));
    for (uint32_t i = 0; i < 4; i++) ir_store(b, m->uniform, ir_u32(b, i), found[i]);
    ir_end(b);
    for (uint32_t i = 0; i < 4; i++) range[i] = ir_uniform_load(b, m->uniform, ir_u32(b, i));
    m->w.first_other = range[0];
    if (f->direct) back_copy_others(m, ir_u32(b, 0));
    m->w.first_other = ir_loop(b, range[0], range[1], ir_u32(b, f->other));
    m->whole = ir_and(b, ir_ge(b, m->w.first_other, range[2]),
                      ir_le(b, tile_add(b, m->w.first_other, f->other), range[3]));
    if (f->direct) {
        ir_id now = m->w.first_other, next = tile_add(b, now, f->other);
        m->slot = slot_of(m, tile_div(b, ir_sub(b, now, range[0]), f->other));
        back_arrive(m);
        ir_if(b, ir_lt(b, next, range[1]));
        m->w.first_other = next;
        back_copy_others(m, ir_sub(b, ir_u32(b, f->other * f->d), m->slot));
        m->w.first_other = now;
        ir_end(b);
    } else {
        ir_barrier(b);
        back_stage_others(m);
        ir_barrier(b);
    }
    if (m->t->kind == BACK_SUMS) sums_turn(m);
    else turn(m);
    ir_end(b);
    if (f->direct) ir_copy_wait(b, 0);
}

/* A tile of queries from `first` on. */
static void take_queries(back_matrix_kernel *m, ir_id first) {
    ir_builder *b = m->k.b;
    ir_id n = m->w.x.n_row, queries = ir_u32(b, m->f.queries);
    m->w.first_other = ir_min(b, first, tile_add(b, n, UINT32_MAX));
    m->w.n_query = ir_min(b, queries, ir_sub(b, ir_max(b, n, first), first));
}

/* Subgroups look at a tile of rows each: 0: no row sees an owned key; 2: all see all. */
static void look(back_matrix_kernel *m) {
    ir_builder *b = m->k.b;
    const back_form *f = &m->f;
    ir_id range[4], begin = ir_cast(b, IR_F32, m->w.first_own),
                    last = ir_cast(b, IR_F32, tile_add(b, m->w.first_own, f->own - 1));
    back_reach(m, f->other, tile_mul(b, m->warp, f->other * 4), range);
    ir_id meet = ir_and(b, ir_le(b, range[0], last), ir_ge(b, range[1], begin)),
          whole = ir_and(b, ir_le(b, range[2], begin), ir_ge(b, range[3], last));
    ir_id found = ir_select(b, meet, ir_select(b, whole, ir_u32(b, 2), ir_u32(b, 1)), ir_u32(b, 0));
    ir_if(b, ir_eq(b, m->lane, ir_u32(b, 0)));
    ir_store(b, m->uniform, m->warp, found);
    ir_end(b);
}

/* The tile is there; begins to copy the next, if it has rows that meet. */
static void copy_next(back_matrix_kernel *m, ir_id first, ir_id tile) {
    ir_builder *b = m->k.b;
    const back_form *f = &m->f;
    ir_id next = tile_add(b, tile, 1), last = ir_min(b, next, ir_u32(b, f->warps - 1));
    m->slot = slot_of(m, tile);
    back_arrive(m);
    ir_if(b, ir_and(b, ir_lt(b, next, ir_u32(b, f->warps)),
                    ir_gt(b, ir_load(b, m->uniform, last, 1), ir_u32(b, 0))));
    take_queries(m, ir_add(b, first, tile_mul(b, next, f->queries)));
    back_copy_others(m, ir_sub(b, ir_u32(b, f->other * f->d), m->slot));
    ir_end(b);
}

static void own_keys(back_matrix_kernel *m) {
    ir_builder *b = m->k.b;
    const back_form *f = &m->f;
    const attention_task *a = &m->t->a;
    const uint32_t heads = a->n_head / a->n_kv, some = heads / f->split;
    back_own(&m->w);
    back_stage_own(m);
    ir_id head = ir_loop(b, ir_u32(b, 0), ir_u32(b, some), ir_u32(b, f->group));
    if (f->split > 1) head = ir_fma(b, m->w.share, ir_u32(b, some), head);
    m->w.first_head = ir_add(b, tile_mul(b, m->w.kv, heads), head);
    ir_id first = ir_loop(b, ir_u32(b, 0), m->w.x.n_row, ir_u32(b, f->warps * f->queries));
    if (f->direct) {
        ir_barrier(b);
        take_queries(m, first);
        back_copy_others(m, ir_u32(b, 0));
    }
    take_queries(m, ir_add(b, first, tile_mul(b, m->warp, f->queries)));
    if (!f->direct) ir_barrier(b);
    look(m);
    ir_id tile = ir_loop(b, ir_u32(b, 0), ir_u32(b, f->warps), ir_u32(b, 1)),
          meets = ir_uniform_load(b, m->uniform, tile);
    if (f->direct) copy_next(m, first, tile);
    ir_if(b, ir_gt(b, meets, ir_u32(b, 0)));
    m->whole = ir_eq(b, meets, ir_u32(b, 2));
    m->stats_at = tile_mul(b, tile, f->other * 4);
    if (!f->direct) {
        take_queries(m, ir_add(b, first, tile_mul(b, tile, f->queries)));
        back_stage_others(m);
        ir_barrier(b);
    }
    turn(m);
    ir_end(b);
    ir_end(b);
    ir_end(b);
    ir_end(b);
}

static void finish(back_matrix_kernel *m) {
    ir_builder *b = m->k.b;
    const back_form *f = &m->f;
    const attention_task *a = &m->t->a;
    ir_id column =
        ir_add(b, tile_mul(b, m->part, f->columns), tile_mul(b, tile_rem(b, m->lane, 4), 2));
    ir_id factor = ir_splat(b, wants_slopes(m->t) ? m->w.x.scale : ir_f32(b, 1), 2);
    for (uint32_t q = 0; q < 2 * f->each; q++) {
        ir_id is, at = back_result_at(&m->w, own_line(m, q), &is);
        ir_if(b, is);
        for (uint32_t c = 0; c < m->n_column; c++) {
            ir_id e = tile_add(b, column, c * TILE);
            if (f->d != a->d) ir_if(b, ir_lt(b, e, ir_u32(b, a->d)));
            ir_store(b, m->w.x.out, ir_add(b, at, e),
                     ir_mul(b,
                            ir_fragment_get(b, m->sum, ir_u32(b, q / 2 * m->n_column + c), q % 2),
                            factor));
            if (f->d != a->d) ir_end(b);
        }
        ir_end(b);
    }
}

beryl_status back_matrix(lowering *l, const back_task *task) {
    static const char *const names[2][BACK_SUMS + 1] = {
        {"attention_back_matrix_q", "attention_back_matrix_k", "attention_back_matrix_v",
         "attention_sums_matrix"},
        {"attention_back_direct_q", "attention_back_direct_k", "attention_back_direct_v",
         "attention_sums_direct"}};
    back_task t = *task;
    back_matrix_kernel m = {.t = &t};
    const back_form *f = &m.f;
    if (!back_form_of(l, task, &m.f)) return lower_refuse(l, l->node, "heads of this shape");
    t.split = f->split;
    tile_kernel *k = &m.k;
    if (f->direct) {
        const beryl_status halved = back_halve(l, &t, f->type);
        if (halved != BERYL_OK) return halved;
    }
    ir_builder *b = tile_begin(k, l, names[f->direct][t.kind], f->warps * LANES);
    ir_subgroup(b, LANES);
    back_bind_matrix(&m);
    if (t.kind == BACK_SUMS)
        for (uint32_t q = 0; q < 2 * f->each; q++) {
            ir_store(b, m.most, ir_u32(b, q), ir_f32(b, ATTENTION_NO_KEYS));
            ir_store(b, m.total, ir_u32(b, q), ir_f32(b, 0));
        }
    for (uint32_t c = 0; t.kind != BACK_SUMS && c < f->each * m.n_column; c++)
        ir_fragment_fill(b, m.sum, ir_u32(b, c), ir_f32(b, 0));
    if (back_owns_rows(&t)) own_rows(&m);
    else own_keys(&m);
    if (t.kind == BACK_SUMS) sums_finish(&m);
    else finish(&m);
    return back_walk_end(&m.w, f->parts);
}
