/* lower_ir_vectors.c - see lower_ir_vectors.h.
 *
 * Each lane has its own fours of a vector in registers, so that all loads are under way before the first sum is waited for, and
 * none is done twice. */
#include "graph/lower_ir_vectors.h"

enum {
    MERGE_EACH = 4, /* pieces of attention that a lane asks for before it works on them */
    OWN_MOST = 16,  /* fours of a lane */
    APART_WG = 512,
    APART_PIECES_MAX = 16 /* of attention: one workgroup joins them all */
};

static bool norms(const fused_matvec *f) {
    return f->from == FUSED_X_NORM || f->from == FUSED_X_ADD_NORM;
}

uint32_t lower_ir_vectors_bindings(const fused_matvec *f, const vectors_walk *w) {
    return 1 + vectors_bindings(f, w);
}

static uint64_t scratch_bytes(const vectors_walk *w) {
    return (uint64_t)w->x.bound * w->x.k * 4;
}

void lower_ir_vectors_begin(lower_ir_vectors *v, lower_ir_matvec *m, const fused_matvec *f, const vectors_walk *w, bool made) {
    lower_ir *k = &m->k;
    *v = (lower_ir_vectors){.m = m, .f = f, .w = w, .from = made ? FUSED_X_PLAIN : f->from};
    v->x = made ? lower_ir_scratch(k, "x", LOWER_IR_SCRATCH_X, scratch_bytes(w), IR_F32, IR_READ) : lower_ir_bind(k, "x", vectors_source(f), IR_F32, IR_READ);
    v->n = lower_ir_count(k, "n_x", w->x.n);
    v->first = lower_ir_times(k, ir_group(k->b, 1), m->c.n_x);
    if (v->from == FUSED_X_MERGE) {
        v->stats = lower_ir_bind(k, "stats", f->stats, IR_F32, IR_READ);
        return;
    }
    v->x_offset = lower_ir_u32(k, "x_offset", made ? 0 : w->x.offset);
    v->x_stride = lower_ir_u32(k, "x_stride", made ? w->x.k : w->x.stride);
    if (made) return;
    if (w->n_norm) {
        static const char *const names[5] = {"norm0", "norm1", "norm2", "norm3", "norm4"};
        uint32_t words[5];
        v->norms = lower_ir_weights(k, "norms", w->norms, w->n_norm, IR_F32, words);
        for (uint32_t i = 0; i < w->n_norm; i++) v->norm[i] = lower_ir_u32(k, names[i], words[i]);
    }
    if (norms(f)) v->eps = lower_ir_f32(k, "eps", f->eps);
    if (!vectors_adds(f)) return;
    v->branch = lower_ir_bind(k, "branch", f->branch, IR_F32, IR_READ);
    v->branch_offset = lower_ir_u32(k, "branch_offset", w->branch.offset);
    v->branch_stride = lower_ir_u32(k, "branch_stride", w->branch.stride);
    v->stream = lower_ir_bind(k, "stream", f->h_out, IR_F32, IR_READ_WRITE);
    v->stream_offset = lower_ir_u32(k, "stream_offset", w->stream.offset);
    v->stream_stride = lower_ir_u32(k, "stream_stride", w->stream.stride);
    v->eps_branch = lower_ir_f32(k, "eps_branch", f->eps_branch);
    if (!f->twin) return;
    v->twin = lower_ir_bind(k, "twin", f->twin, IR_F32, IR_READ);
    v->twin_offset = lower_ir_u32(k, "twin_offset", w->twin.offset);
    v->twin_stride = lower_ir_u32(k, "twin_stride", w->twin.stride);
    v->eps_own = lower_ir_f32(k, "eps_own", f->eps_own);
    v->eps_twin = lower_ir_f32(k, "eps_twin", f->eps_twin);
}

/* Number of vector i of this workgroup; beyond the last: the last. */
static ir_id vector_of(lower_ir_vectors *v, uint32_t i) {
    ir_builder *b = v->m->k.b;
    return ir_min(b, lower_ir_plus(&v->m->k, v->first, i), ir_sub(b, v->n, ir_u32(b, 1)));
}

/* ---- as it lies ---------------------------------------------------------------------------------------------------- */

static ir_id four_plain(void *user, uint32_t i, uint32_t e, ir_id u) {
    lower_ir_vectors *v = user;
    ir_builder *b = v->m->k.b;
    (void)e;
    return ir_load(b, v->x, ir_add(b, ir_fma(b, vector_of(v, i), v->x_stride, v->x_offset), lower_ir_times(&v->m->k, u, 4)), 4);
}

/* ---- norms and sums ------------------------------------------------------------------------------------------------ */

/* Element 4u of a row, u clamped to the vector's last four. */
static ir_id four_at(lower_ir_vectors *v, ir_memory from, ir_id start, ir_id u) {
    ir_builder *b = v->m->k.b;
    return ir_load(b, from, ir_add(b, start, lower_ir_times(&v->m->k, u, 4)), 4);
}

static ir_id square(lower_ir_vectors *v, ir_id x) {
    return lower_ir_sum_vector(&v->m->k, ir_mul(v->m->k.b, x, x));
}

typedef struct fours { /* of this lane */
    uint32_t n;
    ir_id u[OWN_MOST], holds[OWN_MOST]; /* holds: IR_NO_ID: always */
} fours;

/* 1 / sqrt(mean of squares + eps). */
static ir_id factor_of(lower_ir_vectors *v, const fours *own, const ir_id *x, ir_id eps) {
    ir_builder *b = v->m->k.b;
    ir_id sum = IR_NO_ID;
    for (uint32_t e = 0; e < own->n; e++) {
        ir_id s = square(v, x[e]);
        if (own->holds[e] != IR_NO_ID) s = ir_select(b, own->holds[e], s, ir_f32(b, 0));
        sum = sum == IR_NO_ID ? s : ir_add(b, sum, s);
    }
    sum = lower_ir_matvec_sum(v->m, sum);
    return ir_rsqrt(b, ir_add(b, ir_div(b, sum, ir_f32(b, (float)v->m->length)), eps));
}

static ir_id scaled(ir_builder *b, ir_id x, ir_id factor, ir_id w) {
    return ir_mul(b, ir_mul(b, x, ir_splat(b, factor, 4)), w);
}

/* h' = scale * (h + rms(branch) * w): into values, and stored by the first workgroup. */
static void add_branch(lower_ir_vectors *v, uint32_t i, const fours *own, const uint32_t first_norm) {
    lower_ir *k = &v->m->k;
    ir_builder *b = k->b;
    const fused_matvec *f = v->f;
    ir_id vector = vector_of(v, i), start = ir_fma(b, vector, v->branch_stride, v->branch_offset);
    ir_id x[OWN_MOST], w[OWN_MOST], other[OWN_MOST], w_own[OWN_MOST], w_twin[OWN_MOST], scale = IR_NO_ID;
    const uint32_t twins = first_norm + 1 + (f->scale != 0);
    for (uint32_t e = 0; e < own->n; e++) {
        x[e] = four_at(v, v->branch, start, own->u[e]);
        w[e] = four_at(v, v->norms, v->norm[first_norm], own->u[e]);
        if (!f->twin) continue;
        other[e] = four_at(v, v->twin, ir_fma(b, vector, v->twin_stride, v->twin_offset), own->u[e]);
        w_own[e] = four_at(v, v->norms, v->norm[twins], own->u[e]);
        w_twin[e] = four_at(v, v->norms, v->norm[twins + 1], own->u[e]);
    }
    if (f->scale) scale = ir_splat(b, ir_load(b, v->norms, v->norm[first_norm + 1], 1), 4);
    if (f->twin) {
        ir_id first = factor_of(v, own, x, v->eps_own), second = factor_of(v, own, other, v->eps_twin);
        for (uint32_t e = 0; e < own->n; e++) x[e] = ir_add(b, scaled(b, x[e], first, w_own[e]), scaled(b, other[e], second, w_twin[e]));
    }
    ir_id factor = factor_of(v, own, x, v->eps_branch);
    ir_id out = ir_fma(b, vector, v->stream_stride, v->stream_offset), writes = ir_eq(b, ir_group(b, 0), ir_u32(b, 0));
    writes = ir_and(b, writes, ir_lt(b, lower_ir_plus(k, v->first, i), v->n));
    for (uint32_t e = 0; e < own->n; e++) {
        v->values[e] = ir_add(b, v->values[e], scaled(b, x[e], factor, w[e]));
        if (f->scale) v->values[e] = ir_mul(b, v->values[e], scale);
    }
    ir_if(b, writes);
    for (uint32_t e = 0; e < own->n; e++) {
        if (own->holds[e] != IR_NO_ID) ir_if(b, own->holds[e]);
        ir_store(b, v->stream, ir_add(b, out, lower_ir_times(k, own->u[e], 4)), v->values[e]);
        if (own->holds[e] != IR_NO_ID) ir_end(b);
    }
    ir_end(b);
}

static void make_normed(lower_ir_vectors *v, uint32_t i) {
    ir_builder *b = v->m->k.b;
    const uint32_t last = v->m->length / 4 - 1;
    fours own = {.n = lower_ir_matvec_each(v->m)};
    ir_id w[OWN_MOST], start = ir_fma(b, vector_of(v, i), v->x_stride, v->x_offset);
    for (uint32_t e = 0; e < own.n; e++) {
        const bool whole = (e + 1) * v->m->c.wg <= last + 1;
        ir_id u = lower_ir_matvec_own(v->m, e);
        own.holds[e] = whole ? IR_NO_ID : ir_le(b, u, ir_u32(b, last));
        own.u[e] = whole ? u : ir_min(b, u, ir_u32(b, last));
        v->values[e] = four_at(v, v->x, start, own.u[e]);
        if (norms(v->f)) w[e] = four_at(v, v->norms, v->norm[0], own.u[e]);
    }
    if (vectors_adds(v->f)) add_branch(v, i, &own, norms(v->f));
    if (!norms(v->f)) return;
    ir_id factor = factor_of(v, &own, v->values, v->eps);
    for (uint32_t e = 0; e < own.n; e++) v->values[e] = scaled(b, v->values[e], factor, w[e]);
}

static ir_id four_made(void *user, uint32_t i, uint32_t e, ir_id u) {
    (void)i, (void)u;
    return ((lower_ir_vectors *)user)->values[e];
}

/* ---- attention's pieces --------------------------------------------------------------------------------------------- */

/* Joins pieces [begin, begin + n): most, total f32 and sum f32x4 are what the pieces before gave; IR_NO_ID: none. */
static void merge_some(lower_ir_vectors *v, ir_id head, ir_id column, ir_id begin, uint32_t n, ir_id *most, ir_id *total, ir_id *sum, bool guard) {
    lower_ir *k = &v->m->k;
    ir_builder *b = k->b;
    const fused_matvec *f = v->f;
    ir_id best[MERGE_EACH], weight[MERGE_EACH], has[MERGE_EACH], x[MERGE_EACH], low = ir_f32(b, -3.0e38f), zero = ir_f32(b, 0), now = *most;
    for (uint32_t s = 0; s < n; s++) {
        ir_id piece = lower_ir_plus(k, begin, s), inside = guard ? ir_lt(b, piece, ir_u32(b, f->n_split)) : ir_bool(b, true);
        if (guard) piece = ir_min(b, piece, ir_u32(b, f->n_split - 1));
        piece = ir_add(b, lower_ir_times(k, head, f->n_split), piece);
        ir_id both = ir_load(b, v->stats, lower_ir_times(k, piece, 2), 2);
        x[s] = ir_load(b, v->x, ir_add(b, lower_ir_times(k, piece, f->head_dim), column), 4);
        weight[s] = ir_extract(b, both, 1);
        has[s] = ir_and(b, inside, ir_gt(b, weight[s], zero)); /* else a piece without keys */
        best[s] = ir_select(b, has[s], ir_extract(b, both, 0), low);
    }
    for (uint32_t s = 0; s < n; s++) now = now == IR_NO_ID ? best[s] : ir_max(b, now, best[s]);
    if (*most != IR_NO_ID) {
        ir_id keep = ir_exp(b, ir_sub(b, *most, now));
        *total = ir_mul(b, *total, keep);
        *sum = ir_mul(b, *sum, ir_splat(b, keep, 4));
    }
    for (uint32_t s = 0; s < n; s++) {
        ir_id power = ir_select(b, has[s], ir_exp(b, ir_sub(b, best[s], now)), zero), own = ir_mul(b, weight[s], power);
        own = ir_select(b, has[s], own, zero);
        ir_id y = ir_select(b, ir_splat(b, has[s], 4), ir_mul(b, x[s], ir_splat(b, power, 4)), ir_number(b, IR_F32, 4, 0));
        *total = *total == IR_NO_ID ? own : ir_add(b, *total, own);
        *sum = *sum == IR_NO_ID ? y : ir_add(b, *sum, y);
    }
    *most = now;
}

static ir_id four_merged(void *user, uint32_t i, uint32_t e, ir_id u) {
    lower_ir_vectors *v = user;
    lower_ir *k = &v->m->k;
    ir_builder *b = k->b;
    const fused_matvec *f = v->f;
    ir_id at = lower_ir_times(k, u, 4), most = IR_NO_ID, total = IR_NO_ID, sum = IR_NO_ID;
    ir_id head = ir_add(b, lower_ir_times(k, vector_of(v, i), f->n_head), lower_ir_over(k, at, f->head_dim)), column = lower_ir_rest(k, at, f->head_dim);
    const uint32_t first = f->n_split < MERGE_EACH ? f->n_split : MERGE_EACH;
    (void)e;
    merge_some(v, head, column, ir_u32(b, 0), first, &most, &total, &sum, false);
    if (f->n_split > MERGE_EACH) {
        ir_memory numbers = ir_register(b, IR_F32, 2), sums = ir_register(b, IR_F32, 4);
        ir_id zero = ir_u32(b, 0), one = ir_u32(b, 1);
        ir_store(b, numbers, zero, most);
        ir_store(b, numbers, one, total);
        ir_store(b, sums, zero, sum);
        ir_id begin = ir_loop(b, ir_u32(b, MERGE_EACH), ir_u32(b, f->n_split), ir_u32(b, MERGE_EACH));
        most = ir_load(b, numbers, zero, 1);
        total = ir_load(b, numbers, one, 1);
        sum = ir_load(b, sums, zero, 4);
        merge_some(v, head, column, begin, MERGE_EACH, &most, &total, &sum, f->n_split % MERGE_EACH != 0);
        ir_store(b, numbers, zero, most);
        ir_store(b, numbers, one, total);
        ir_store(b, sums, zero, sum);
        ir_end(b);
        total = ir_load(b, numbers, one, 1);
        sum = ir_load(b, sums, zero, 4);
    }
    return ir_div(b, sum, ir_splat(b, total, 4));
}

/* Vector i of the workgroup, where fills go. */
static void make_one(lower_ir_vectors *v, uint32_t i) {
    lower_ir_matvec *m = v->m;
    if (v->from == FUSED_X_PLAIN) {
        lower_ir_matvec_fill_vector(m, i, false, four_plain, v);
    } else if (v->from == FUSED_X_MERGE) {
        lower_ir_matvec_fill_vector(m, i, false, four_merged, v);
    } else {
        make_normed(v, i);
        lower_ir_matvec_fill_vector(m, i, true, four_made, v);
    }
}

void lower_ir_vectors_make(lower_ir_vectors *v) {
    lower_ir_matvec *m = v->m;
    ir_builder *b = m->k.b;
    for (uint32_t i = 0; i < m->c.n_x; i++) {
        if (m->c.x != MATVEC_DIRECT) {
            make_one(v, i);
            continue;
        }
        m->x_from = v->x;
        m->x_at[i] = ir_fma(b, vector_of(v, i), v->x_stride, v->x_offset);
    }
    if (m->c.x != MATVEC_DIRECT) ir_barrier(b);
}

/* ---- a dispatch of their own ---------------------------------------------------------------------------------------- */

static matvec_choice apart_of(const lowering *l, const vectors_walk *w) {
    const device_caps *caps = l->caps;
    const uint32_t most = caps->workgroup_invocations ? caps->workgroup_invocations : 256;
    matvec_choice c = {.x = MATVEC_SHARED, .wg = 64, .lanes = 1, .rows = 1, .n_x = 1, .depth = 1, .groups = 1};
    c.subgroups = caps->subgroups && caps->subgroup_size >= 8;
    c.span = !c.subgroups ? 0 : caps->vendor == 0x8086 ? 8 : caps->subgroup_size < 32 ? caps->subgroup_size : 32;
    while (c.wg * 4 < w->x.k && 2 * c.wg <= APART_WG && 2 * c.wg <= most) c.wg *= 2;
    return c;
}

bool lower_ir_vectors_apart_fits(const lowering *l, const fused_matvec *f, const vectors_walk *w) {
    const matvec_choice c = apart_of(l, w);
    const uint32_t bindings = 1 + lower_ir_vectors_bindings(f, w);
    if (l->caps->kind == DEVICE_HOST || l->caps->kind == DEVICE_SOFTWARE || !vectors_worked(f)) return false;
    return (w->x.k / 4 + c.wg - 1) / c.wg <= OWN_MOST && w->x.k % 16 == 0 && bindings <= (l->caps->storage_max ? l->caps->storage_max : 8) &&
           bindings <= IR_BUFFER_MAX && (f->from != FUSED_X_MERGE || (f->head_dim % 4 == 0 && f->n_split <= APART_PIECES_MAX));
}

beryl_status lower_ir_vectors_apart(lowering *l, const graph_node *node, const fused_matvec *f, const vectors_walk *w, beryl_error *error) {
    const matvec_choice c = apart_of(l, w);
    lower_ir_matvec m;
    lower_ir_vectors v;
    lower_ir_matvec_begin(&m, l, node, "vectors", &c, w->x.k);
    ir_builder *b = m.k.b;
    lower_ir_vectors_begin(&v, &m, f, w, false);
    m.x_to = lower_ir_scratch(&m.k, "to", LOWER_IR_SCRATCH_X, scratch_bytes(w), IR_F32, IR_READ_WRITE);
    m.x_keep = true;
    m.to_at = lower_ir_times(&m.k, v.first, w->x.k);
    m.to_holds = ir_lt(b, v.first, v.n);
    lower_ir_matvec_open_sums(&m);
    make_one(&v, 0);
    return lower_ir_end_3d(&m.k, (lower_count){1, 0}, 1, w->x.n, 1, (lower_count){1, 0}, 1, error);
}

/* ---- by one lane ------------------------------------------------------------------------------------------------------ */

typedef struct serial { /* of one vector */
    lower_ir k;
    const fused_matvec *f;
    uint32_t length;
    ir_memory h, branch, twin, out, stream, norms[5], sum;
    ir_id h_at, branch_at, twin_at, stream_at, out_at;
    uint32_t own_norms; /* where those of the twins begin */
    ir_id scale, factor_own, factor_twin, factor_branch;
} serial;

bool lower_ir_vectors_serial_fits(const lowering *l, const fused_matvec *f, const vectors_walk *w) {
    const uint32_t bindings = 2 + w->n_norm + (vectors_adds(f) ? 2u : 0u) + (f->twin ? 1u : 0u);
    const uint32_t places = w->x.k | w->x.offset | w->x.stride | w->branch.offset | w->branch.stride | w->twin.offset | w->twin.stride |
                            w->stream.offset | w->stream.stride;
    return f->from != FUSED_X_MERGE && places % LOWER_IR_RUN == 0 && bindings <= (l->caps->storage_max ? l->caps->storage_max : 8);
}

static ir_id run_of(serial *s, ir_memory from, ir_id at, ir_id i) {
    return ir_load(s->k.b, from, at == IR_NO_ID ? i : ir_add(s->k.b, at, i), s->k.wide);
}

static ir_id wide(serial *s, ir_id x) {
    return ir_splat(s->k.b, x, s->k.wide);
}

static ir_id each_begin(serial *s) {
    ir_builder *b = s->k.b;
    return ir_loop(b, ir_u32(b, 0), ir_u32(b, s->length), ir_u32(b, s->k.wide));
}

static void add_square(serial *s, uint32_t which, ir_id x) {
    ir_builder *b = s->k.b;
    ir_id at = ir_u32(b, which * s->k.wide);
    ir_store(b, s->sum, at, ir_fma(b, x, x, ir_load(b, s->sum, at, s->k.wide)));
}

static void sum_clear(serial *s, uint32_t which) {
    ir_store(s->k.b, s->sum, ir_u32(s->k.b, which * s->k.wide), ir_number(s->k.b, IR_F32, s->k.wide, 0));
}

static ir_id sum_factor(serial *s, uint32_t which, ir_id eps) {
    ir_builder *b = s->k.b;
    ir_id sum = lower_ir_sum_vector(&s->k, ir_load(b, s->sum, ir_u32(b, which * s->k.wide), s->k.wide));
    return ir_rsqrt(b, ir_add(b, ir_div(b, sum, ir_f32(b, (float)s->length)), eps));
}

/* What is added to the stream, before its norm. */
static ir_id branch_at(serial *s, ir_id i) {
    ir_builder *b = s->k.b;
    ir_id x = run_of(s, s->branch, s->branch_at, i);
    if (!s->f->twin) return x;
    ir_id own = ir_mul(b, ir_mul(b, x, wide(s, s->factor_own)), run_of(s, s->norms[s->own_norms], IR_NO_ID, i));
    ir_id twin = ir_mul(b, ir_mul(b, run_of(s, s->twin, s->twin_at, i), wide(s, s->factor_twin)), run_of(s, s->norms[s->own_norms + 1], IR_NO_ID, i));
    return ir_add(b, own, twin);
}

/* The stream with the branch, stored; its squares are summed. */
static void serial_add(serial *s, uint32_t first, ir_id eps_branch, ir_id eps_own, ir_id eps_twin) {
    ir_builder *b = s->k.b;
    sum_clear(s, 0);
    sum_clear(s, 1);
    if (s->f->twin) {
        ir_id i = each_begin(s);
        add_square(s, 0, run_of(s, s->branch, s->branch_at, i));
        add_square(s, 1, run_of(s, s->twin, s->twin_at, i));
        ir_end(b);
        s->factor_own = sum_factor(s, 0, eps_own);
        s->factor_twin = sum_factor(s, 1, eps_twin);
        sum_clear(s, 0);
    }
    ir_id i = each_begin(s);
    add_square(s, 0, branch_at(s, i));
    ir_end(b);
    s->factor_branch = sum_factor(s, 0, eps_branch);
    sum_clear(s, 0);
    i = each_begin(s);
    ir_id x = ir_mul(b, ir_mul(b, branch_at(s, i), wide(s, s->factor_branch)), run_of(s, s->norms[first], IR_NO_ID, i));
    x = ir_add(b, run_of(s, s->h, s->h_at, i), x);
    if (s->f->scale) x = ir_mul(b, x, wide(s, s->scale));
    ir_store(b, s->stream, ir_add(b, s->stream_at, i), x);
    if (!norms(s->f)) ir_store(b, s->out, ir_add(b, s->out_at, i), x);
    add_square(s, 0, x);
    ir_end(b);
}

beryl_status lower_ir_vectors_serial(lowering *l, const graph_node *node, const fused_matvec *f, const vectors_walk *w, beryl_error *error) {
    static const char *const names[5] = {"norm0", "norm1", "norm2", "norm3", "norm4"};
    serial s = {.f = f, .length = w->x.k};
    lower_ir_begin(&s.k, l, node, "vectors", 1);
    lower_ir *k = &s.k;
    ir_builder *b = k->b;
    s.h = lower_ir_read(k, "h", f->h);
    s.out = lower_ir_scratch(k, "out", LOWER_IR_SCRATCH_X, scratch_bytes(w), IR_F32, IR_READ_WRITE);
    for (uint32_t i = 0; i < w->n_norm; i++) s.norms[i] = lower_ir_read(k, names[i], w->norms[i]);
    ir_id n = lower_ir_count(k, "n", w->x.n), eps = norms(f) ? lower_ir_f32(k, "eps", f->eps) : IR_NO_ID;
    ir_id h_offset = lower_ir_u32(k, "h_offset", w->x.offset), eps_branch = IR_NO_ID, eps_own = IR_NO_ID, eps_twin = IR_NO_ID;
    ir_id branch_offset = IR_NO_ID, stream_offset = IR_NO_ID, twin_offset = IR_NO_ID;
    if (vectors_adds(f)) {
        s.branch = lower_ir_read(k, "branch", f->branch);
        s.stream = lower_ir_write(k, "stream", f->h_out);
        branch_offset = lower_ir_u32(k, "branch_offset", w->branch.offset);
        stream_offset = lower_ir_u32(k, "stream_offset", w->stream.offset);
        eps_branch = lower_ir_f32(k, "eps_branch", f->eps_branch);
    }
    if (f->twin) {
        s.twin = lower_ir_read(k, "twin", f->twin);
        twin_offset = lower_ir_u32(k, "twin_offset", w->twin.offset);
        eps_own = lower_ir_f32(k, "eps_own", f->eps_own);
        eps_twin = lower_ir_f32(k, "eps_twin", f->eps_twin);
    }
    s.sum = ir_register(b, IR_F32, 2 * k->wide);
    ir_id vector = lower_ir_group(k);
    ir_if(b, ir_lt(b, vector, n));
    s.h_at = ir_add(b, lower_ir_times(k, vector, w->x.stride), h_offset);
    s.out_at = lower_ir_times(k, vector, w->x.k);
    const uint32_t first = norms(f);
    if (vectors_adds(f)) {
        s.branch_at = ir_add(b, lower_ir_times(k, vector, w->branch.stride), branch_offset);
        s.stream_at = ir_add(b, lower_ir_times(k, vector, w->stream.stride), stream_offset);
        if (f->twin) s.twin_at = ir_add(b, lower_ir_times(k, vector, w->twin.stride), twin_offset);
        if (f->scale) s.scale = ir_load(b, s.norms[first + 1], ir_u32(b, 0), 1);
        s.own_norms = first + 1 + (f->scale != 0);
        serial_add(&s, first, eps_branch, eps_own, eps_twin);
    } else {
        sum_clear(&s, 0);
        ir_id i = each_begin(&s);
        add_square(&s, 0, run_of(&s, s.h, s.h_at, i));
        ir_end(b);
    }
    if (norms(f)) {
        ir_id factor = wide(&s, sum_factor(&s, 0, eps)), i = each_begin(&s);
        ir_id x = vectors_adds(f) ? run_of(&s, s.stream, s.stream_at, i) : run_of(&s, s.h, s.h_at, i);
        ir_store(b, s.out, ir_add(b, s.out_at, i), ir_mul(b, ir_mul(b, x, factor), run_of(&s, s.norms[0], IR_NO_ID, i)));
        ir_end(b);
    }
    ir_end(b);
    return lower_ir_end(k, w->x.n, 1, error);
}
