/* attention_back_stage.c - see attention_back_matrix.h: forms of the backward pass on matrix units,
 * its rows, and tiles in workgroup memory. */
#include "tile/attention_back_matrix.h"
#include "base/build.h"

#include <assert.h>

static uint32_t bytes_of(const back_form *f, const back_task *t) {
    const uint32_t own = wants_slopes(t) ? 2 : 1, twin = has_twin(f, t),
                   other = (t->kind == BACK_SUMS ? 1 : 2) + twin;
    return (own * f->own + f->slots * other * f->other) * line_of(f) * 2 + f->warps * f->other * 16;
}

/* Workgroups share the heads of a key where there are few of them. */
static void group_heads(back_form *f, const attention_task *a, bool rows, uint32_t units) {
    uint32_t heads = a->n_head / a->n_kv;
    const uint32_t lines = rows ? f->own : f->other;
    const uint64_t groups = (uint64_t)whole_over(a->n_row, f->own) * a->n_kv * f->parts;
    f->split = 1;
    while (!rows && groups * f->split < units && heads % 2 == 0) f->split *= 2, heads /= 2;
    f->group = whole_least(heads, lines);
    while (heads % f->group || lines % f->group) f->group--;
    f->queries = lines / f->group;
}

bool back_form_of(const lowering *l, const back_task *t, back_form *f) {
    static const struct {
        uint16_t d_max, warps, each, other;
        bool direct;
    } forms[] = {{128, 8, 1, 128, true}, {128, 8, 1, 64, true},  {64, 4, 2, 64, false},
                 {128, 4, 2, 32, false}, {256, 8, 1, 32, false}, {512, 4, 1, 32, false},
                 {512, 4, 1, 16, false}, {128, 4, 1, 64, false}, {256, 4, 1, 32, false},
                 {512, 2, 1, 16, false}};
    const device_caps *caps = l->caps;
    const attention_task *a = &t->a;
    const bool rows = back_owns_rows(t);
    const uint64_t others =
        (uint64_t)(rows ? a->n_row : a->n) * (rows ? a->n_kv : a->n_head) * a->d;
    const uint32_t units = tile_units(caps);
    const ir_type type = a->cache == TYPE_F16 ? IR_F16 : IR_BF16;
    if (!BUILD_HAS_C_TEXTS || caps->subgroup_size != LANES || !a->fast || a->d > D_MAX ||
        !back_reads(l, t, EIGHT) || a->n < LINES_FEW || a->n_row < LINES_FEW ||
        !ir_has_fragment(caps, IR_F16, IR_F32, ROWS, TILE, DEPTH) ||
        !ir_has_fragment(caps, type, IR_F32, ROWS, TILE, DEPTH))
        return false;
    uint64_t most = 0;
    for (uint32_t i = 0; i < sizeof forms / sizeof *forms; i++) {
        back_form g = {.warps = forms[i].warps,
                       .each = forms[i].each,
                       .own = (uint32_t)forms[i].warps * forms[i].each * ROWS,
                       .other = forms[i].other,
                       .d = (a->d + DEPTH - 1) / DEPTH * DEPTH,
                       .parts = t->kind == BACK_SUMS ? 1 : (a->d + COLUMNS_MAX - 1) / COLUMNS_MAX,
                       .slots = forms[i].direct ? 2 : 1,
                       .type = type,
                       .direct = forms[i].direct};
        while (g.d % (g.parts * DEPTH)) g.d += DEPTH;
        g.columns = g.d / g.parts;
        group_heads(&g, a, rows, units);
        const uint64_t groups =
            (rows ? (uint64_t)whole_over(a->n, g.queries) * (a->n_head / g.group)
                  : (uint64_t)whole_over(a->n_row, g.own) * a->n_kv * g.split) *
            g.parts;
        if (g.direct && (!caps->multiplies_memory || a->d % BLOCK || others > HALVES_MAX)) continue;
        if (a->d > forms[i].d_max || bytes_of(&g, t) > caps->workgroup_bytes ||
            g.warps * LANES > caps->workgroup_invocations || groups <= most)
            continue;
        *f = g;
        most = groups;
        if (groups >= units - units / 8) break;
    }
    return most > 0;
}

bool back_matrix_fits(const lowering *l, const back_task *t) {
    back_form f;
    return back_form_of(l, t, &f);
}

static ir_type type_of(const back_matrix_kernel *m, uint32_t which) {
    return which ? m->f.type : IR_F16;
}

/* Arrays of the workgroup of halves, and of gradients where these are of another type. */
static void bind_direct(back_matrix_kernel *m) {
    ir_builder *b = m->k.b;
    const back_form *f = &m->f;
    const bool sums = m->t->kind == BACK_SUMS, twin = has_twin(f, m->t), one = f->type == IR_F16;
    const uint32_t own = f->own * f->d, other = f->slots * f->other * f->d;
    uint32_t size[2] = {own + other, 0}, *second = &size[one ? 0 : 1];
    m->other_at[0] = own;
    if (!sums) {
        m->own_at[1] = *second;
        *second += wants_slopes(m->t) ? own : 0;
        m->other_at[1] = *second;
        m->twin_at = *second += other;
        *second += twin ? other : 0;
    }
    m->own[0] = ir_workgroup_swizzled(b, IR_F16, size[0], 3, 3, 3);
    m->own[1] = one || sums ? m->own[0] : ir_workgroup_swizzled(b, f->type, size[1], 3, 3, 3);
    for (uint32_t i = 0; i < 2; i++) m->other[i] = m->own[i];
    m->twin = m->own[1];
    back_halves_bind(m->halves, &m->k, m->t, f->type, IR_READ);
}

void back_bind_matrix(back_matrix_kernel *m) {
    tile_kernel *k = &m->k;
    ir_builder *b = k->b;
    const back_form *f = &m->f;
    const back_kind kind = m->t->kind;
    const bool sums = kind == BACK_SUMS;
    m->w = (back_walk){
        .own = m->f.own, .other = m->f.other, .group = m->f.group, .queries = m->f.queries};
    back_walk_bind(&m->w, k, m->t);
    m->scale = ir_mul(b, m->w.x.scale, ir_f32(b, LOG2_E));
    if (f->direct) bind_direct(m);
    for (uint32_t i = 0; i < 2 && !f->direct; i++) {
        if (!i || wants_slopes(m->t))
            m->own[i] = ir_workgroup(b, type_of(m, i), f->own * line_of(f));
        if (!i || !sums) m->other[i] = ir_workgroup(b, type_of(m, i), f->other * line_of(f));
    }
    if (has_twin(f, m->t) && !f->direct) m->twin = ir_workgroup(b, f->type, f->other * line_of(f));
    if (!back_owns_rows(m->t)) m->stats = ir_workgroup(b, IR_F32, f->warps * f->other * 4);
    else m->of_own = ir_register(b, IR_F32, 8 * f->each);
    m->uniform = ir_workgroup(b, IR_U32, f->warps < 4 ? 4 : f->warps);
    m->n_other = f->other / TILE;
    m->n_column = f->columns / TILE;
    for (uint32_t i = 0; i < (sums ? 1 : 2) && !f->direct; i++) {
        if (i && f->type == IR_F16) {
            m->left[1] = m->left[0], m->right[1] = m->right[0];
            break;
        }
        m->left[i] = ir_fragment(b, IR_ROLE_A, type_of(m, i), ROWS, TILE, DEPTH, f->each);
        m->right[i] = ir_fragment(b, IR_ROLE_B, type_of(m, i), ROWS, TILE, DEPTH, 2);
    }
    m->score = ir_fragment(b, IR_ROLE_C, IR_F32, ROWS, TILE, DEPTH, f->each * m->n_other);
    if (wants_slopes(m->t))
        m->slope = ir_fragment(b, IR_ROLE_C, IR_F32, ROWS, TILE, DEPTH, f->each * m->n_other);
    if (sums) {
        ir_memory *const of_rows[] = {&m->most, &m->total, &m->delta};
        for (uint32_t i = 0; i < 3; i++) *of_rows[i] = ir_register(b, IR_F32, 2 * f->each);
    } else {
        m->weight = ir_fragment(b, IR_ROLE_A, f->type, ROWS, TILE, DEPTH, f->each * m->n_other / 2);
        m->sum = ir_fragment(b, IR_ROLE_C, IR_F32, ROWS, TILE, DEPTH, f->each * m->n_column);
    }
    m->local = ir_local(b, 0);
    m->lane = tile_rem(b, m->local, LANES);
    m->warp = tile_div(b, m->local, LANES);
    m->part = tile_rem(b, ir_group(b, 2), f->parts);
    if (f->split > 1) m->w.share = tile_div(b, ir_group(b, 2), f->parts);
}

/* ---- rows ------------------------------------------------------------------------------------ */

ir_id back_stats_of(back_matrix_kernel *m, ir_id line) {
    ir_builder *b = m->k.b;
    ir_id query, head, is = back_is_row(&m->w, line), all[4];
    back_row_of(&m->w, line, &query, &head);
    if (m->t->kind == BACK_SUMS) {
        attention_keys keys;
        attention_keys_of(&m->w.x.places, b, &m->t->a, query, &keys);
        ir_id some = ir_lt(b, keys.first, keys.end);
        is = ir_and(b, is, some);
        all[0] = all[1] = ir_f32(b, 0);
        all[2] = ir_cast(b, IR_F32, keys.first);
        all[3] = ir_cast(b, IR_F32, tile_add(b, keys.end, UINT32_MAX));
    } else {
        ir_id x = ir_load(b, m->w.x.sums, back_sums_at(&m->w, query, head), 4);
        for (uint32_t i = 0; i < 4; i++) all[i] = ir_extract(b, x, i);
        all[0] = ir_mul(b, all[0], ir_f32(b, LOG2_E));
    }
    all[2] = ir_select(b, is, all[2], ir_f32(b, 1));
    all[3] = ir_select(b, is, all[3], ir_f32(b, 0));
    return ir_compose(b, all, 4);
}

void back_reach(back_matrix_kernel *m, uint32_t lines, ir_id keep, ir_id range[4]) {
    ir_builder *b = m->k.b;
    ir_id far = ir_f32(b, 3e38f), none = ir_f32(b, -1);
    range[0] = range[3] = far, range[1] = range[2] = none;
    for (uint32_t i = 0; i < lines; i += LANES) {
        ir_id line = tile_add(b, m->lane, i);
        if (lines < LANES) line = ir_min(b, line, ir_u32(b, lines - 1));
        ir_id of = back_stats_of(m, line), low = ir_extract(b, of, 2), high = ir_extract(b, of, 3),
              some = ir_le(b, low, high);
        if (keep != IR_NO_ID && lines < LANES) ir_if(b, ir_lt(b, m->lane, ir_u32(b, lines)));
        if (keep != IR_NO_ID) ir_store(b, m->stats, ir_add(b, keep, tile_mul(b, line, 4)), of);
        if (keep != IR_NO_ID && lines < LANES) ir_end(b);
        range[0] = ir_min(b, range[0], ir_select(b, some, low, far));
        range[1] = ir_max(b, range[1], ir_select(b, some, high, none));
        range[2] = ir_max(b, range[2], low);
        range[3] = ir_min(b, range[3], high);
    }
    for (uint32_t i = 0; i < 4; i++)
        range[i] = i % 3 ? ir_subgroup_max(b, range[i]) : ir_subgroup_min(b, range[i]);
}

/* ---- to workgroup memory --------------------------------------------------------------------- */

/* Eight elements from e on of a line of the owned or the other tile, F32; beyond d: 0. */
static ir_id eight_of(back_matrix_kernel *m, bool own, uint32_t which, ir_id line, ir_id e) {
    ir_builder *b = m->k.b;
    const uint32_t d = m->t->a.d;
    const bool guard = m->f.d != d;
    ir_id inside = guard ? ir_min(b, e, ir_u32(b, d - EIGHT)) : e, both[2];
    for (uint32_t i = 0; i < 2; i++)
        both[i] = back_line_read(&m->w, own, which, line, tile_add(b, inside, 4 * i), 4);
    ir_id x = ir_compose(b, both, 2);
    return guard ? ir_select(b, ir_splat(b, ir_lt(b, e, ir_u32(b, d)), EIGHT), x,
                             ir_number(b, IR_F32, EIGHT, 0))
                 : x;
}

void back_copy_others(back_matrix_kernel *m, ir_id slot) {
    ir_builder *b = m->k.b;
    const back_form *f = &m->f;
    const attention_task *a = &m->t->a;
    const uint32_t eights = f->d / EIGHT, threads = f->warps * LANES;
    assert(f->other * eights % threads == 0);
    for (uint32_t turn = 0; turn < f->other * eights; turn += threads) {
        ir_id number = tile_add(b, m->local, turn), line = tile_div(b, number, eights),
              e = tile_mul(b, tile_rem(b, number, eights), EIGHT), at, head;
        const uint32_t heads = back_line_of(&m->w, false, line, &at, &head) ? a->n_head : a->n_kv;
        ir_id from = ir_add(b, tile_mul(b, ir_fma(b, at, ir_u32(b, heads), head), a->d), e),
              to = ir_add(b, slot,
                          attention_staged_at(b, m->f.direct, line_of(&m->f), line, e, f->other));
        const uint32_t begins[BACK_HALVES] = {m->other_at[0], m->other_at[1], m->twin_at};
        const ir_memory memory[BACK_HALVES] = {m->other[0], m->other[1], m->twin};
        for (uint32_t i = 0; i < BACK_HALVES; i++)
            if (back_halves_has(m->t, f->type, i))
                ir_copy_async(b, memory[i], tile_add(b, to, begins[i]), m->halves[i], from,
                              2 * EIGHT, IR_NO_ID);
    }
    ir_copy_commit(b);
}

void back_arrive(back_matrix_kernel *m) {
    ir_copy_wait(m->k.b, 0);
    ir_barrier(m->k.b);
}

/* Pair `which` of lines of a tile; of others with their twin. */
static void stage(back_matrix_kernel *m, bool own, uint32_t which) {
    ir_builder *b = m->k.b;
    const back_form *f = &m->f;
    const uint32_t lines = own ? f->own : f->other, eights = f->d / EIGHT, n = lines * eights,
                   threads = f->warps * LANES, turns = (n + threads - 1) / threads,
                   ahead = turns < EIGHTS_AHEAD ? turns : EIGHTS_AHEAD;
    const ir_memory to = own ? m->own[which] : m->other[which];
    ir_id turn = ir_loop(b, ir_u32(b, 0), ir_u32(b, turns), ir_u32(b, ahead));
    ir_id x[EIGHTS_AHEAD], at[EIGHTS_AHEAD], is[EIGHTS_AHEAD];
    for (uint32_t i = 0; i < ahead; i++) {
        ir_id number = ir_add(b, m->local, tile_mul(b, tile_add(b, turn, i), threads));
        ir_id line = tile_div(b, number, eights),
              e = tile_mul(b, tile_rem(b, number, eights), EIGHT);
        is[i] = ir_lt(b, line, ir_u32(b, lines));
        line = ir_min(b, line, ir_u32(b, lines - 1));
        x[i] = eight_of(m, own, which, line, e);
        if (own && m->t->kind == BACK_SUMS) x[i] = ir_mul(b, x[i], ir_splat(b, m->scale, EIGHT));
        at[i] = attention_staged_at(b, m->f.direct, line_of(&m->f), line, e, lines);
        if (f->direct) at[i] = tile_add(b, at[i], m->own_at[which]);
    }
    for (uint32_t i = 0; i < ahead; i++) {
        const bool some = n % (threads * ahead);
        if (some) ir_if(b, is[i]);
        ir_store(b, to, at[i], ir_cast(b, type_of(m, which), x[i]));
        if (!own && !which && has_twin(f, m->t))
            ir_store(b, m->twin, at[i], ir_cast(b, f->type, x[i]));
        if (some) ir_end(b);
    }
    ir_end(b);
}

void back_stage_others(back_matrix_kernel *m) {
    stage(m, false, 0);
    if (m->t->kind != BACK_SUMS) stage(m, false, 1);
}

void back_stage_own(back_matrix_kernel *m) {
    stage(m, true, 0);
    if (wants_slopes(m->t)) stage(m, true, 1);
}
