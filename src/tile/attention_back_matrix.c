/* attention_back_matrix.c - the backward pass of attention on matrix units, where a plan may be
 * fast (tile/attention_back.h).
 *
 * As in attention_matrix.c a subgroup has 16 or 32 owned lines, and what it makes of a tile of
 * others stays in fragments: products become weights where they are, and these are the left side
 * of the product with the others. Products of queries and keys are of halves; gradients, whose
 * size nobody knows, are BF16 unless keys are halves in memory. Where heads are long, workgroups
 * share the columns of the sums. */
#include "tile/attention_back.h"
#include "base/build.h"

enum {
    ROWS = 16, /* of a fragment; */
    TILE = 8,  /* its columns; */
    DEPTH = 16,
    LANES = 32,
    PAD = 8,    /* elements: lines begin in other banks */
    BLOCK = 64, /* columns of a block of lines */
    EIGHT = ATTENTION_EIGHT,
    EIGHTS_AHEAD = 4, /* that a lane asks for at a time */
    EACH_MAX = 2,
    D_MAX = 512,
    COLUMNS_MAX = 256, /* of the sums of a subgroup */
    LINES_FEW = 128    /* not worth it */
};
#define LOG2_E 1.44269504f

typedef struct form {
    uint32_t warps, each, own, other; /* own: lines of a tile; each: fragments a subgroup */
    uint32_t d, parts, columns;       /* d: whole fragments; parts: of its columns */
    uint32_t group, queries;          /* of a tile of rows */
    uint32_t split;                   /* heads of a key are summed by so many workgroups */
    uint32_t slots;                   /* tiles of others */
    ir_type type;                     /* of gradients and weights */
    bool direct;                      /* products from workgroup memory */
} form;

static uint32_t line_of(const form *f) { /* elements of a staged line */
    return f->direct ? f->d : f->d + PAD;
}

static bool wants_slopes(const back_task *t) {
    return t->kind == BACK_Q || t->kind == BACK_K;
}

/* The others of scores once more, as another type. */
static bool has_twin(const form *f, const back_task *t) {
    return wants_slopes(t) && f->type != IR_F16;
}

static uint32_t bytes_of(const form *f, const back_task *t) {
    const uint32_t own = wants_slopes(t) ? 2 : 1, twin = has_twin(f, t),
                   other = (t->kind == BACK_SUMS ? 1 : 2) + twin;
    return (own * f->own + f->slots * other * f->other) * line_of(f) * 2 + f->warps * f->other * 16;
}

/* Workgroups share the heads of a key where there are few of them. */
static void group_heads(form *f, const attention_task *a, bool rows, uint32_t units) {
    uint32_t heads = a->n_head / a->n_kv;
    const uint32_t lines = rows ? f->own : f->other;
    const uint64_t groups = (uint64_t)((a->n_row + f->own - 1) / f->own) * a->n_kv * f->parts;
    f->split = 1;
    while (!rows && groups * f->split < units && heads % 2 == 0) f->split *= 2, heads /= 2;
    f->group = heads < lines ? heads : lines;
    while (heads % f->group || lines % f->group) f->group--;
    f->queries = lines / f->group;
}

static bool form_of(const lowering *l, const back_task *t, form *f) {
    static const struct {
        uint16_t d_max, warps, each, other;
        bool direct;
    } forms[] = {{128, 8, 1, 64, true},  {64, 4, 2, 64, false},  {128, 4, 2, 32, false},
                 {256, 8, 1, 32, false}, {512, 4, 1, 32, false}, {512, 4, 1, 16, false},
                 {128, 4, 1, 64, false}, {256, 4, 1, 32, false}, {512, 2, 1, 16, false}};
    const device_caps *caps = l->caps;
    const attention_task *a = &t->a;
    const bool rows = back_owns_rows(t);
    const uint32_t units = caps->compute_units ? caps->compute_units : 128;
    const ir_type type = a->cache == TYPE_F16 ? IR_F16 : IR_BF16;
    if (!BUILD_HAS_C_TEXTS || caps->subgroup_size != LANES || !a->fast || a->d > D_MAX ||
        !back_reads(l, t, EIGHT) || a->n < LINES_FEW || a->n_row < LINES_FEW ||
        !ir_has_fragment(caps, IR_F16, IR_F32, ROWS, TILE, DEPTH) ||
        !ir_has_fragment(caps, type, IR_F32, ROWS, TILE, DEPTH))
        return false;
    uint64_t most = 0;
    for (uint32_t i = 0; i < sizeof forms / sizeof *forms; i++) {
        form g = {.warps = forms[i].warps,
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
            (rows ? (uint64_t)((a->n + g.queries - 1) / g.queries) * (a->n_head / g.group)
                  : (uint64_t)((a->n_row + g.own - 1) / g.own) * a->n_kv * g.split) *
            g.parts;
        if (g.direct && (!caps->multiplies_memory || a->d % BLOCK)) continue;
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
    form f;
    return form_of(l, t, &f);
}

typedef struct matrix {
    tile_kernel k;
    const back_task *t;
    form f;
    back_bound x;
    /* of the workgroup, [own or other, line]: pairs of lines, and the twin; f32 [warps, other, 4]:
     * of rows that are the others, a tile a subgroup: sum in exponents of 2, delta, first and last
     * key */
    ir_memory own[2], other[2], twin, stats;
    /* direct: in one array of each type, [d / BLOCK, own or other, BLOCK], where they begin */
    uint32_t own_at[2], other_at[2], twin_at;
    ir_memory halves[BACK_HALVES];  /* the others in memory */
    ir_id slot;                     /* of the tile in hand, in elements */
    ir_memory uniform;              /* of the workgroup, u32 [4 or warps]: what loops go by */
    ir_memory most, total, delta;   /* registers [2 each], of BACK_SUMS */
    ir_memory of_own;               /* registers [2 each, 4]: as stats, of the lane's rows */
    ir_fragments left[2], right[2]; /* of halves, of gradients */
    ir_fragments score, slope, weight, sum;
    uint32_t n_other, n_column;     /* fragments */
    ir_id local, lane, warp, scale; /* scale: of exponents of 2 */
    ir_id kv, first_own, first_other, first_head, n_query;
    ir_id part, share; /* of columns; of heads */
    ir_id stats_at;    /* of the tile in hand */
    ir_id whole;       /* every owned line meets every other one */
} matrix;

static ir_id constant(matrix *m, uint32_t n) {
    return ir_u32(m->k.b, n);
}

static ir_type type_of(const matrix *m, uint32_t which) {
    return which ? m->f.type : IR_F16;
}

/* Arrays of the workgroup of halves, and of gradients where these are of another type. */
static void bind_direct(matrix *m) {
    ir_builder *b = m->k.b;
    const form *f = &m->f;
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

static void bind(matrix *m) {
    tile_kernel *k = &m->k;
    ir_builder *b = k->b;
    const form *f = &m->f;
    const back_kind kind = m->t->kind;
    const bool sums = kind == BACK_SUMS;
    back_bind(&m->x, k, m->t, IR_READ_WRITE);
    m->scale = ir_mul(b, m->x.scale, ir_f32(b, LOG2_E));
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
    m->lane = tile_rem(k, m->local, LANES);
    m->warp = tile_div(k, m->local, LANES);
    m->part = tile_rem(k, ir_group(b, 2), f->parts);
    m->share = tile_div(k, ir_group(b, 2), f->parts);
}

/* ---- rows ------------------------------------------------------------------------------------ */

/* Of a line of the tile of rows; beyond the last query: of that. */
static void row_of(matrix *m, ir_id line, ir_id *query, ir_id *head) {
    tile_kernel *k = &m->k;
    ir_builder *b = k->b;
    ir_id last = tile_add(k, ir_max(b, m->n_query, constant(m, 1)), UINT32_MAX),
          own = ir_min(b, tile_div(k, line, m->f.group), last);
    *query = ir_add(b, back_owns_rows(m->t) ? m->first_own : m->first_other, own);
    *head = ir_add(b, m->first_head, tile_rem(k, line, m->f.group));
}

static ir_id is_row(matrix *m, ir_id line) {
    return ir_lt(m->k.b, tile_div(&m->k, line, m->f.group), m->n_query);
}

static ir_id sums_at(matrix *m, ir_id query, ir_id head) {
    ir_builder *b = m->k.b;
    return tile_mul(&m->k, ir_fma(b, query, constant(m, m->t->a.n_head), head), 4);
}

/* Sum in exponents of 2, delta, first and last key of a row; no row: no keys. */
static ir_id stats_of(matrix *m, ir_id line) {
    tile_kernel *k = &m->k;
    ir_builder *b = k->b;
    ir_id query, head, is = is_row(m, line), all[4];
    row_of(m, line, &query, &head);
    if (m->t->kind == BACK_SUMS) {
        attention_keys keys;
        attention_keys_of(&m->x.places, k, &m->t->a, query, &keys);
        ir_id some = ir_lt(b, keys.first, keys.end);
        is = ir_and(b, is, some);
        all[0] = all[1] = ir_f32(b, 0);
        all[2] = ir_cast(b, IR_F32, keys.first);
        all[3] = ir_cast(b, IR_F32, tile_add(k, keys.end, UINT32_MAX));
    } else {
        ir_id x = ir_load(b, m->x.sums, sums_at(m, query, head), 4);
        for (uint32_t i = 0; i < 4; i++) all[i] = ir_extract(b, x, i);
        all[0] = ir_mul(b, all[0], ir_f32(b, LOG2_E));
    }
    all[2] = ir_select(b, is, all[2], ir_f32(b, 1));
    all[3] = ir_select(b, is, all[3], ir_f32(b, 0));
    return ir_compose(b, all, 4);
}

/* The keys that rows of a tile see: some of them [0] to [1] (none: above it), all of them [2] to
 * [3]. keep: what is found of rows stays in `stats` from this element on; IR_NO_ID: no. */
static void reach(matrix *m, uint32_t lines, ir_id keep, ir_id range[4]) {
    tile_kernel *k = &m->k;
    ir_builder *b = k->b;
    ir_id far = ir_f32(b, 3e38f), none = ir_f32(b, -1);
    range[0] = range[3] = far, range[1] = range[2] = none;
    for (uint32_t i = 0; i < lines; i += LANES) {
        ir_id line = tile_add(k, m->lane, i);
        if (lines < LANES) line = ir_min(b, line, constant(m, lines - 1));
        ir_id of = stats_of(m, line), low = ir_extract(b, of, 2), high = ir_extract(b, of, 3),
              some = ir_le(b, low, high);
        if (keep != IR_NO_ID && lines < LANES) ir_if(b, ir_lt(b, m->lane, constant(m, lines)));
        if (keep != IR_NO_ID) ir_store(b, m->stats, ir_add(b, keep, tile_mul(k, line, 4)), of);
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
static ir_id eight_of(matrix *m, bool own, uint32_t which, ir_id line, ir_id e) {
    tile_kernel *k = &m->k;
    ir_builder *b = k->b;
    const uint32_t d = m->t->a.d;
    const bool rows = own == back_owns_rows(m->t), guard = m->f.d != d;
    ir_id at, head = m->kv, inside = guard ? ir_min(b, e, constant(m, d - EIGHT)) : e, both[2];
    if (rows) row_of(m, line, &at, &head);
    else
        at = ir_min(b, ir_add(b, own ? m->first_own : m->first_other, line),
                    tile_add(k, m->x.n_key, UINT32_MAX));
    for (uint32_t i = 0; i < 2; i++)
        both[i] = back_read(&m->x, k, rows ? &m->x.rows : &m->x.keys, which, at, head,
                            tile_add(k, inside, 4 * i), 4);
    ir_id x = ir_compose(b, both, 2);
    return guard ? ir_select(b, ir_splat(b, ir_lt(b, e, constant(m, d)), EIGHT), x,
                             ir_number(b, IR_F32, EIGHT, 0))
                 : x;
}

/* Where an element of a staged line lies, one of so many. */
static ir_id staged_at(matrix *m, ir_id line, ir_id e, uint32_t lines) {
    tile_kernel *k = &m->k;
    ir_builder *b = k->b;
    if (!m->f.direct) return ir_add(b, tile_mul(k, line, line_of(&m->f)), e);
    ir_id block = tile_mul(k, tile_div(k, e, BLOCK), lines * BLOCK);
    return ir_add(b, block, ir_add(b, tile_mul(k, line, BLOCK), tile_rem(k, e, BLOCK)));
}

/* Begins to copy a tile of others to a slot. */
static void copy_others(matrix *m, ir_id slot) {
    tile_kernel *k = &m->k;
    ir_builder *b = k->b;
    const form *f = &m->f;
    const attention_task *a = &m->t->a;
    const uint32_t eights = f->d / EIGHT, threads = f->warps * LANES;
    const bool rows = !back_owns_rows(m->t);
    const uint32_t heads = rows ? a->n_head : a->n_kv;
    for (uint32_t turn = 0; turn < f->other * eights; turn += threads) {
        ir_id number = tile_add(k, m->local, turn), line = tile_div(k, number, eights),
              e = tile_mul(k, tile_rem(k, number, eights), EIGHT), at, head = m->kv;
        if (rows) row_of(m, line, &at, &head);
        else at = ir_min(b, ir_add(b, m->first_other, line), tile_add(k, m->x.n_key, UINT32_MAX));
        ir_id from = ir_add(b, tile_mul(k, ir_fma(b, at, constant(m, heads), head), a->d), e),
              to = ir_add(b, slot, staged_at(m, line, e, f->other));
        const uint32_t begins[BACK_HALVES] = {m->other_at[0], m->other_at[1], m->twin_at};
        const ir_memory memory[BACK_HALVES] = {m->other[0], m->other[1], m->twin};
        for (uint32_t i = 0; i < BACK_HALVES; i++)
            if (back_halves_has(m->t, f->type, i))
                ir_copy_async(b, memory[i], tile_add(k, to, begins[i]), m->halves[i], from,
                              2 * EIGHT, IR_NO_ID);
    }
    ir_copy_commit(b);
}

/* Copies that were asked for are there, and all lanes are done with what comes next. */
static void arrive(matrix *m) {
    ir_copy_wait(m->k.b, 0);
    ir_barrier(m->k.b);
}

/* Pair `which` of lines of a tile; of others with their twin. */
static void stage(matrix *m, bool own, uint32_t which) {
    tile_kernel *k = &m->k;
    ir_builder *b = k->b;
    const form *f = &m->f;
    const uint32_t lines = own ? f->own : f->other, eights = f->d / EIGHT, n = lines * eights,
                   threads = f->warps * LANES, turns = (n + threads - 1) / threads,
                   ahead = turns < EIGHTS_AHEAD ? turns : EIGHTS_AHEAD;
    const ir_memory to = own ? m->own[which] : m->other[which];
    ir_id turn = ir_loop(b, constant(m, 0), constant(m, turns), constant(m, ahead));
    ir_id x[EIGHTS_AHEAD], at[EIGHTS_AHEAD], is[EIGHTS_AHEAD];
    for (uint32_t i = 0; i < ahead; i++) {
        ir_id number = ir_add(b, m->local, tile_mul(k, tile_add(k, turn, i), threads));
        ir_id line = tile_div(k, number, eights),
              e = tile_mul(k, tile_rem(k, number, eights), EIGHT);
        is[i] = ir_lt(b, line, constant(m, lines));
        line = ir_min(b, line, constant(m, lines - 1));
        x[i] = eight_of(m, own, which, line, e);
        if (own && m->t->kind == BACK_SUMS) x[i] = ir_mul(b, x[i], ir_splat(b, m->scale, EIGHT));
        at[i] = staged_at(m, line, e, lines);
        if (f->direct) at[i] = tile_add(k, at[i], m->own_at[which]);
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

static void stage_others(matrix *m) {
    stage(m, false, 0);
    if (m->t->kind != BACK_SUMS) stage(m, false, 1);
}

static void stage_own(matrix *m) {
    stage(m, true, 0);
    if (wants_slopes(m->t)) stage(m, true, 1);
}

/* ---- products -------------------------------------------------------------------------------- */

/* c[r, i] += a[left[r]] b[i], i of n; b[i] lies `step` elements after the one before. */
static void multiply(matrix *m, ir_fragments c, uint32_t n, ir_fragments a, const uint32_t *left,
                     ir_fragments right, ir_memory memory, ir_id from, uint32_t step,
                     bool transposed) {
    tile_kernel *k = &m->k;
    ir_builder *b = k->b;
    for (uint32_t i = 0; i < n; i += 2) {
        for (uint32_t j = 0; j < 2; j++)
            ir_fragment_load(b, right, constant(m, j), memory, tile_add(k, from, (i + j) * step),
                             constant(m, line_of(&m->f)), transposed);
        for (uint32_t j = 0; j < 2; j++)
            for (uint32_t r = 0; r < m->f.each; r++)
                ir_fragment_mma(b, c, constant(m, r * n + i + j), a, constant(m, left[r]), right,
                                constant(m, j));
    }
}

/* Products of pair `which` of lines; direct: begins them. */
static void find_products(matrix *m, ir_fragments c, uint32_t which) {
    tile_kernel *k = &m->k;
    ir_builder *b = k->b;
    const form *f = &m->f;
    const uint32_t line = line_of(f), left[EACH_MAX] = {0, 1};
    for (uint32_t i = 0; i < f->each * m->n_other; i++)
        ir_fragment_fill(b, c, constant(m, i), ir_f32(b, 0));
    for (uint32_t e = 0; e < f->d && f->direct; e += BLOCK)
        ir_fragment_multiply(b, c, m->own[which],
                             tile_add(k, tile_mul(k, tile_div(k, m->warp, 4), 4 * ROWS * BLOCK),
                                      m->own_at[which] + e * f->own),
                             tile_add(k, m->slot, m->other_at[which] + e * f->other), false,
                             BLOCK / DEPTH);
    if (f->direct) return;
    for (uint32_t e = 0; e < f->d; e += DEPTH) {
        for (uint32_t r = 0; r < f->each; r++)
            ir_fragment_load(
                b, m->left[which], constant(m, r), m->own[which],
                tile_add(k, tile_mul(k, m->warp, f->each * ROWS * line), r * ROWS * line + e),
                constant(m, line), false);
        multiply(m, c, m->n_other, m->left[which], left, m->right[which], m->other[which],
                 constant(m, e), TILE * line, true);
    }
}

static void add_others(matrix *m) {
    const form *f = &m->f;
    const uint32_t line = line_of(f), depths = f->other / DEPTH;
    const bool values = m->t->kind == BACK_V, twin = has_twin(f, m->t);
    const ir_memory from = values ? m->other[1] : twin ? m->twin : m->other[0];
    if (f->direct) {
        const uint32_t at = values ? m->other_at[1] : twin ? m->twin_at : m->other_at[0];
        ir_fragment_multiply_held(m->k.b, m->sum, m->weight, from, tile_add(&m->k, m->slot, at),
                                  true, depths);
        ir_fragment_wait(m->k.b, 0);
        return;
    }
    ir_id column = tile_mul(&m->k, m->part, f->columns);
    for (uint32_t e = 0; e < depths; e++) {
        uint32_t left[EACH_MAX];
        for (uint32_t r = 0; r < f->each; r++) left[r] = r * depths + e;
        multiply(m, m->sum, m->n_column, m->weight, left, m->right[1], from,
                 tile_add(&m->k, column, e * DEPTH * line), TILE, false);
    }
}

/* ---- weights --------------------------------------------------------------------------------- */

/* Line 8 q + lane / 4 of the subgroup's owned ones. */
static ir_id own_line(matrix *m, uint32_t q) {
    tile_kernel *k = &m->k;
    ir_id first = tile_mul(k, m->warp, m->f.each * ROWS);
    return tile_add(k, ir_add(k->b, first, tile_div(k, m->lane, 4)), q * TILE);
}

/* Column 8 i + 2 (lane % 4) + w of the others. */
static ir_id other_line(matrix *m, uint32_t i, uint32_t w) {
    return tile_add(&m->k, tile_mul(&m->k, tile_rem(&m->k, m->lane, 4), 2), i * TILE + w);
}

/* Of the pairs of owned lines and columns 8 i: what rows say. */
typedef struct pair {
    ir_id of[4]; /* width 2: as stats */
    ir_id key;   /* the same: keys as F32 */
} pair;

static pair pair_of_rows(matrix *m, uint32_t i) {
    ir_builder *b = m->k.b;
    ir_id of[2], keys[2];
    pair p = {{0}, 0};
    const bool rows = back_owns_rows(m->t);
    for (uint32_t w = 0; w < 2; w++) {
        ir_id line = other_line(m, i, w);
        if (rows) keys[w] = ir_cast(b, IR_F32, ir_add(b, m->first_other, line));
        else of[w] = ir_load(b, m->stats, ir_add(b, m->stats_at, tile_mul(&m->k, line, 4)), 4);
    }
    if (rows) p.key = ir_compose(b, keys, 2);
    for (uint32_t n = 0; !rows && n < 4; n++) {
        const ir_id both[2] = {ir_extract(b, of[0], n), ir_extract(b, of[1], n)};
        p.of[n] = ir_compose(b, both, 2);
    }
    return p;
}

/* With owned line q. */
static pair pair_with(matrix *m, const pair *of, uint32_t q) {
    ir_builder *b = m->k.b;
    pair p = *of;
    if (!back_owns_rows(m->t)) {
        p.key = ir_splat(b, ir_cast(b, IR_F32, ir_add(b, m->first_own, own_line(m, q))), 2);
        return p;
    }
    ir_id own = ir_load(b, m->of_own, constant(m, q * 4), 4);
    for (uint32_t n = 0; n < 4; n++) p.of[n] = ir_splat(b, ir_extract(b, own, n), 2);
    return p;
}

static ir_id seen(matrix *m, const pair *p, ir_id x, float none) {
    ir_builder *b = m->k.b;
    ir_id sees = ir_and(b, ir_ge(b, p->key, p->of[2]), ir_le(b, p->key, p->of[3]));
    return ir_select(b, sees, x, ir_number(b, IR_F32, 2, (double)none));
}

static void weigh(matrix *m, bool all) {
    ir_builder *b = m->k.b;
    ir_id scale = ir_splat(b, m->scale, 2);
    for (uint32_t i = 0; i < m->n_other; i++) {
        const pair of = pair_of_rows(m, i);
        for (uint32_t q = 0; q < 2 * m->f.each; q++) {
            const pair p = pair_with(m, &of, q);
            ir_id at = constant(m, q / 2 * m->n_other + i),
                  x = ir_fragment_get(b, m->score, at, q % 2);
            x = ir_exp2_normal(b, ir_fma(b, x, scale, ir_neg(b, p.of[0])));
            if (!all) x = seen(m, &p, x, 0);
            if (wants_slopes(m->t))
                x = ir_mul(b, x, ir_sub(b, ir_fragment_get(b, m->slope, at, q % 2), p.of[1]));
            ir_fragment_set(b, m->weight, constant(m, (q / 2 * m->n_other + i) / 2),
                            q % 2 + i % 2 * 2, ir_cast(b, m->f.type, x));
        }
    }
}

static void turn(matrix *m) {
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

static void hide(matrix *m) {
    ir_builder *b = m->k.b;
    for (uint32_t i = 0; i < m->n_other; i++) {
        const pair of = pair_of_rows(m, i);
        for (uint32_t q = 0; q < 2 * m->f.each; q++) {
            const pair p = pair_with(m, &of, q);
            ir_id at = constant(m, q / 2 * m->n_other + i);
            ir_fragment_set(b, m->score, at, q % 2,
                            seen(m, &p, ir_fragment_get(b, m->score, at, q % 2), ATTENTION_MASKED));
        }
    }
}

/* Scores in exponents of 2: queries come times the scale. */
static void sums_turn(matrix *m) {
    tile_kernel *k = &m->k;
    ir_builder *b = k->b;
    find_products(m, m->score, 0);
    if (m->f.direct) ir_fragment_wait(b, 0);
    ir_if(b, ir_not(b, m->whole));
    hide(m);
    ir_end(b);
    for (uint32_t q = 0; q < 2 * m->f.each; q++) {
        ir_id before = ir_load(b, m->most, constant(m, q), 1), own = ir_splat(b, before, 2),
              total = ir_number(b, IR_F32, 2, 0);
        for (uint32_t i = 0; i < m->n_other; i++)
            own = ir_max(b, own,
                         ir_fragment_get(b, m->score, constant(m, q / 2 * m->n_other + i), q % 2));
        ir_id now = tile_max_vector(k, own), both = ir_splat(b, now, 2);
        for (uint32_t i = 0; i < m->n_other; i++)
            total = ir_add(
                b, total,
                ir_exp2_normal(
                    b,
                    ir_sub(b,
                           ir_fragment_get(b, m->score, constant(m, q / 2 * m->n_other + i), q % 2),
                           both)));
        ir_id kept = ir_mul(b, ir_load(b, m->total, constant(m, q), 1),
                            ir_exp2_normal(b, ir_sub(b, before, now)));
        ir_store(b, m->total, constant(m, q), ir_add(b, kept, tile_sum_vector(k, total)));
        ir_store(b, m->most, constant(m, q), now);
    }
}

/* Over the lanes that share a line. */
static ir_id shared(matrix *m, ir_id x, bool sum) {
    ir_builder *b = m->k.b;
    for (uint32_t mask = 1; mask < 4; mask *= 2) {
        ir_id other = ir_subgroup_shuffle_xor(b, x, mask);
        x = sum ? ir_add(b, x, other) : ir_max(b, x, other);
    }
    return x;
}

/* y d of the lane's rows, but for what the lanes that share them have. */
static void find_deltas(matrix *m) {
    tile_kernel *k = &m->k;
    ir_builder *b = k->b;
    const attention_task *a = &m->t->a;
    ir_memory part = ir_register(b, IR_F32, 4);
    for (uint32_t q = 0; q < 2 * m->f.each; q++) {
        ir_id query, head, at;
        row_of(m, own_line(m, q), &query, &head);
        at = tile_mul(k, ir_fma(b, query, constant(m, a->n_head), head), a->d);
        ir_store(b, part, constant(m, 0), ir_number(b, IR_F32, 4, 0));
        ir_id e = ir_loop_unrolled(b, tile_mul(k, tile_rem(k, m->lane, 4), 4), constant(m, a->d),
                                   constant(m, 16), 4);
        ir_id y = ir_load(b, m->x.y, ir_add(b, ir_add(b, at, m->x.y_offset), e), 4);
        ir_store(b, part, constant(m, 0),
                 ir_fma(b, y, back_read(&m->x, k, &m->x.rows, 1, query, head, e, 4),
                        ir_load(b, part, constant(m, 0), 4)));
        ir_end(b);
        ir_store(b, m->delta, constant(m, q),
                 tile_sum_vector(k, ir_load(b, part, constant(m, 0), 4)));
    }
}

static void sums_finish(matrix *m) {
    tile_kernel *k = &m->k;
    ir_builder *b = k->b;
    find_deltas(m);
    for (uint32_t q = 0; q < 2 * m->f.each; q++) {
        ir_id own = ir_load(b, m->most, constant(m, q), 1), most = shared(m, own, false),
              total = ir_mul(b, ir_load(b, m->total, constant(m, q), 1),
                             ir_exp2_normal(b, ir_sub(b, own, most)));
        ir_id line = own_line(m, q), query, head;
        attention_keys keys;
        ir_id delta = shared(m, ir_load(b, m->delta, constant(m, q), 1), true);
        total = shared(m, total, true);
        row_of(m, line, &query, &head);
        attention_keys_of(&m->x.places, k, &m->t->a, query, &keys);
        ir_if(b, ir_and(b, ir_eq(b, tile_rem(k, m->lane, 4), constant(m, 0)), is_row(m, line)));
        back_store_sums(&m->x, k, sums_at(m, query, head), ir_mul(b, most, ir_f32(b, 1 / LOG2_E)),
                        total, delta, keys.first, keys.end);
        ir_end(b);
    }
}

/* ---- the kernel ------------------------------------------------------------------------------ */

/* Where tile number n of the others lies in its arrays. */
static ir_id slot_of(matrix *m, ir_id n) {
    return tile_mul(&m->k, tile_rem(&m->k, n, 2), m->f.other * m->f.d);
}

static void own_rows(matrix *m) {
    tile_kernel *k = &m->k;
    ir_builder *b = k->b;
    const form *f = &m->f;
    const attention_task *a = &m->t->a;
    /* long ones first */
    ir_id late = tile_add(k, ir_sub(b, ir_groups(b, 0), ir_group(b, 0)), UINT32_MAX), found[4],
          range[4];
    m->first_own = tile_mul(k, late, f->queries);
    m->n_query = ir_min(b, constant(m, f->queries), ir_sub(b, m->x.n_row, m->first_own));
    m->first_head = tile_mul(k, ir_group(b, 1), f->group);
    m->kv = tile_div(k, m->first_head, a->n_head / a->n_kv);
    for (uint32_t q = 0; q < 2 * f->each; q++)
        ir_store(b, m->of_own, constant(m, q * 4), stats_of(m, own_line(m, q)));
    reach(m, f->own, IR_NO_ID, found);
    stage_own(m);
    ir_id none = ir_lt(b, found[1], found[0]), zero = ir_f32(b, 0), one = ir_f32(b, 1);
    found[0] = ir_select(b, none, zero, found[0]);
    found[1] = ir_select(b, none, zero, ir_add(b, found[1], one));
    found[3] = ir_add(b, found[3], one);
    for (uint32_t i = 0; i < 4; i++) found[i] = ir_cast(b, IR_U32, found[i]);
    ir_if(b, ir_eq(b, m->local, constant(m, 0)));
    for (uint32_t i = 0; i < 4; i++) ir_store(b, m->uniform, constant(m, i), found[i]);
    ir_end(b);
    for (uint32_t i = 0; i < 4; i++) range[i] = ir_uniform_load(b, m->uniform, constant(m, i));
    m->first_other = range[0];
    if (f->direct) copy_others(m, constant(m, 0));
    m->first_other = ir_loop(b, range[0], range[1], constant(m, f->other));
    m->whole = ir_and(b, ir_ge(b, m->first_other, range[2]),
                      ir_le(b, tile_add(k, m->first_other, f->other), range[3]));
    if (f->direct) {
        ir_id now = m->first_other, next = tile_add(k, now, f->other);
        m->slot = slot_of(m, tile_div(k, ir_sub(b, now, range[0]), f->other));
        arrive(m);
        ir_if(b, ir_lt(b, next, range[1]));
        m->first_other = next;
        copy_others(m, ir_sub(b, constant(m, f->other * f->d), m->slot));
        m->first_other = now;
        ir_end(b);
    } else {
        ir_barrier(b);
        stage_others(m);
        ir_barrier(b);
    }
    if (m->t->kind == BACK_SUMS) sums_turn(m);
    else turn(m);
    ir_end(b);
    if (f->direct) ir_copy_wait(b, 0);
}

/* A tile of queries from `first` on. */
static void take_queries(matrix *m, ir_id first) {
    ir_builder *b = m->k.b;
    ir_id n = m->x.n_row, queries = constant(m, m->f.queries);
    m->first_other = ir_min(b, first, tile_add(&m->k, n, UINT32_MAX));
    m->n_query = ir_min(b, queries, ir_sub(b, ir_max(b, n, first), first));
}

/* Subgroups look at a tile of rows each: 0: no row sees an owned key; 2: all see all. */
static void look(matrix *m) {
    tile_kernel *k = &m->k;
    ir_builder *b = k->b;
    const form *f = &m->f;
    ir_id range[4], begin = ir_cast(b, IR_F32, m->first_own),
                    last = ir_cast(b, IR_F32, tile_add(k, m->first_own, f->own - 1));
    reach(m, f->other, tile_mul(k, m->warp, f->other * 4), range);
    ir_id meet = ir_and(b, ir_le(b, range[0], last), ir_ge(b, range[1], begin)),
          whole = ir_and(b, ir_le(b, range[2], begin), ir_ge(b, range[3], last));
    ir_id found =
        ir_select(b, meet, ir_select(b, whole, constant(m, 2), constant(m, 1)), constant(m, 0));
    ir_if(b, ir_eq(b, m->lane, constant(m, 0)));
    ir_store(b, m->uniform, m->warp, found);
    ir_end(b);
}

/* The tile is there; begins to copy the next, if it has rows that meet. */
static void copy_next(matrix *m, ir_id first, ir_id tile) {
    tile_kernel *k = &m->k;
    ir_builder *b = k->b;
    const form *f = &m->f;
    ir_id next = tile_add(k, tile, 1), last = ir_min(b, next, constant(m, f->warps - 1));
    m->slot = slot_of(m, tile);
    arrive(m);
    ir_if(b, ir_and(b, ir_lt(b, next, constant(m, f->warps)),
                    ir_gt(b, ir_load(b, m->uniform, last, 1), constant(m, 0))));
    take_queries(m, ir_add(b, first, tile_mul(k, next, f->queries)));
    copy_others(m, ir_sub(b, constant(m, f->other * f->d), m->slot));
    ir_end(b);
}

static void own_keys(matrix *m) {
    tile_kernel *k = &m->k;
    ir_builder *b = k->b;
    const form *f = &m->f;
    const attention_task *a = &m->t->a;
    const uint32_t heads = a->n_head / a->n_kv, some = heads / f->split;
    m->first_own = tile_mul(k, ir_group(b, 0), f->own);
    m->kv = ir_group(b, 1);
    stage_own(m);
    ir_id head = ir_loop(b, constant(m, 0), constant(m, some), constant(m, f->group));
    m->first_head =
        ir_add(b, tile_mul(k, m->kv, heads), ir_fma(b, m->share, constant(m, some), head));
    ir_id first = ir_loop(b, constant(m, 0), m->x.n_row, constant(m, f->warps * f->queries));
    if (f->direct) {
        ir_barrier(b);
        take_queries(m, first);
        copy_others(m, constant(m, 0));
    }
    take_queries(m, ir_add(b, first, tile_mul(k, m->warp, f->queries)));
    if (!f->direct) ir_barrier(b);
    look(m);
    ir_id tile = ir_loop(b, constant(m, 0), constant(m, f->warps), constant(m, 1)),
          meets = ir_uniform_load(b, m->uniform, tile);
    if (f->direct) copy_next(m, first, tile);
    ir_if(b, ir_gt(b, meets, constant(m, 0)));
    m->whole = ir_eq(b, meets, constant(m, 2));
    m->stats_at = tile_mul(k, tile, f->other * 4);
    if (!f->direct) {
        take_queries(m, ir_add(b, first, tile_mul(k, tile, f->queries)));
        stage_others(m);
        ir_barrier(b);
    }
    turn(m);
    ir_end(b);
    ir_end(b);
    ir_end(b);
    ir_end(b);
}

static void finish(matrix *m) {
    tile_kernel *k = &m->k;
    ir_builder *b = k->b;
    const form *f = &m->f;
    const attention_task *a = &m->t->a;
    const bool rows = back_owns_rows(m->t);
    ir_id column =
        ir_add(b, tile_mul(k, m->part, f->columns), tile_mul(k, tile_rem(k, m->lane, 4), 2));
    ir_id factor = ir_splat(b, wants_slopes(m->t) ? m->x.scale : ir_f32(b, 1), 2);
    for (uint32_t q = 0; q < 2 * f->each; q++) {
        ir_id line = own_line(m, q), at, head = m->kv, is;
        if (rows) {
            row_of(m, line, &at, &head);
            is = is_row(m, line);
        } else {
            at = ir_add(b, m->first_own, line);
            is = ir_lt(b, at, m->x.n_key);
        }
        if (f->split > 1) at = ir_fma(b, m->share, constant(m, a->n_row), at);
        at = tile_mul(k, ir_fma(b, at, constant(m, rows ? a->n_head : a->n_kv), head), a->d);
        ir_if(b, is);
        for (uint32_t c = 0; c < m->n_column; c++) {
            ir_id e = tile_add(k, column, c * TILE);
            if (f->d != a->d) ir_if(b, ir_lt(b, e, constant(m, a->d)));
            ir_store(b, m->x.out, ir_add(b, at, e),
                     ir_mul(b,
                            ir_fragment_get(b, m->sum, constant(m, q / 2 * m->n_column + c), q % 2),
                            factor));
            if (f->d != a->d) ir_end(b);
        }
        ir_end(b);
    }
}

beryl_status back_matrix(lowering *l, const graph_node *node, const back_task *task,
                         beryl_error *error) {
    static const char *const names[2][BACK_SUMS + 1] = {
        {"attention_back_matrix_q", "attention_back_matrix_k", "attention_back_matrix_v",
         "attention_sums_matrix"},
        {"attention_back_direct_q", "attention_back_direct_k", "attention_back_direct_v",
         "attention_sums_direct"}};
    back_task t = *task;
    matrix m = {.t = &t};
    const form *f = &m.f;
    const attention_task *a = &t.a;
    if (!form_of(l, task, &m.f)) return lower_refuse(l, node, "heads of this shape", error);
    t.split = f->split;
    tile_kernel *k = &m.k;
    if (f->direct) {
        const beryl_status halved = back_halve(l, node, &t, f->type, error);
        if (halved != BERYL_OK) return halved;
    }
    tile_begin(k, l, node, names[f->direct][t.kind], f->warps * LANES);
    ir_builder *b = k->b;
    ir_subgroup(b, LANES);
    bind(&m);
    if (t.kind == BACK_SUMS)
        for (uint32_t q = 0; q < 2 * f->each; q++) {
            ir_store(b, m.most, constant(&m, q), ir_f32(b, ATTENTION_NO_KEYS));
            ir_store(b, m.total, constant(&m, q), ir_f32(b, 0));
        }
    for (uint32_t c = 0; t.kind != BACK_SUMS && c < f->each * m.n_column; c++)
        ir_fragment_fill(b, m.sum, constant(&m, c), ir_f32(b, 0));
    if (back_owns_rows(&t)) own_rows(&m);
    else own_keys(&m);
    if (t.kind == BACK_SUMS) sums_finish(&m);
    else finish(&m);
    const lower_count z = {(uint64_t)f->parts * f->split, 0};
    beryl_status status =
        back_owns_rows(&t)
            ? tile_end_3d(k, a->rows, f->queries, (lower_count){a->n_head / f->group, 0}, 1, z, 1,
                          error)
            : tile_end_3d(k, a->held, f->own, (lower_count){a->n_kv, 0}, 1, z, 1, error);
    return status == BERYL_OK && f->split > 1 ? back_merge(l, node, &t, error) : status;
}
