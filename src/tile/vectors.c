/* vectors.c - see tile/vectors.h.
 *
 * Each lane has its own fours of a vector in registers, so that all loads are under way before
 * the first sum is waited for, and none is done twice. */
#include "tile/vectors.h"
#include "tile/dots.h"
#include "tile/factors.h"
#include "tile/matvec_inside.h"

enum {
    LOW_LANES = 4,     /* of a column of low rank */
    MERGE_EACH = 4,    /* pieces of attention that a lane asks for before it works on them */
    SHARED_MAX = 3840, /* numbers: 15 of the 16 KiB that every device has */
    APART_WG = 512,
    APART_PIECES_MAX = 16 /* of attention: one workgroup joins them all */
};

/* ---- where they come from -------------------------------------------------------------------- */

static bool is_whole_row(const lower_matrix *w, uint32_t k) {
    return w->k == k && w->offset % 4 == 0 && w->stride % 4 == 0;
}

bool vectors_plan_of(const lowering *l, const graph_region *r, graph_value x,
                     const fused_matvec *merge, uint32_t k, vectors_plan *out) {
    *out = (vectors_plan){.x = x};
    if (merge) {
        const graph_tensor *partial = graph_tensor_at(l->g, merge->attention);
        out->kind = VECTORS_MERGE;
        out->merge = merge;
        out->x = merge->attention;
        out->rows = (lower_matrix){lower_count_of(partial->dim[0]), partial->dim[0].size, k, 0, 0};
        return merge->n_head * merge->head_dim == k && merge->head_dim % 4 == 0 && k % 16 == 0;
    }
    out->before = graph_region_before(l->g, r, x);
    if (out->before.n) {
        out->kind = VECTORS_TREE;
        out->x = graph_base_of(l->g, x);
        if (k % 16 || !tree_read(&out->t, l->g, &out->before, out->x)) return false;
        const uint32_t low = BUILD_HAS_ADAPTERS ? tree_low(&out->t) : TREE_VALUES;
        if (low < TREE_VALUES &&
            lower_stored(l, out->t.tensors[out->t.values[low].in[0]])->n_shard != 1)
            return false;
    }
    return lower_matrix_of(graph_tensor_at(l->g, out->x), &out->rows) &&
           is_whole_row(&out->rows, k);
}

/* A walk over rows, four elements of each tensor at a time. */
static bool in_fours(tree_walk *c) {
    tree_walk_rows(c);
    return c->w.n == 1 &&
           tree_widest(c, 4, c->t.shape->dim[c->t.shape->rank - 1].size, true, 1) == 4;
}

bool vectors_fit_inside(const vectors_plan *p) {
    if (p->kind != VECTORS_TREE) return true;
    tree_walk c = {.t = p->t};
    for (uint32_t i = 0; i < p->t.n_stat; i++)
        if (p->t.stats[i].kind == TREE_LARGEST) return false;
    return p->t.n_sum == 0 && !p->t.choice && !p->t.n_product && in_fours(&c);
}

uint32_t vectors_reads(const vectors_plan *p) {
    uint32_t n = 0;
    if (p->kind == VECTORS_MERGE) return p->merge->n_split + 1;
    if (p->kind == VECTORS_PLAIN) return 1;
    for (uint32_t i = p->t.n_out; i < p->t.n_tensor; i++)
        n += lower_walk_stride(&p->t.seen[i], p->t.shape->rank, p->t.shape->rank - 1u) != 0;
    for (uint32_t i = 0; BUILD_HAS_ADAPTERS && i < p->t.n_value; i++)
        n += p->t.values[i].low / 2; /* halves */
    return n;
}

uint32_t vectors_shared(const vectors_plan *p) {
    return BUILD_HAS_ADAPTERS && p->kind == VECTORS_TREE && tree_low(&p->t) < TREE_VALUES
               ? p->rows.k
               : 0;
}

uint32_t tile_vectors_bindings(const lowering *l, const vectors_plan *p) {
    return p->kind == VECTORS_PLAIN ? 1 : p->kind == VECTORS_MERGE ? 2 : tree_bindings(l, &p->t);
}

ir_memory tile_vectors_low(tile_kernel *k, const vectors_plan *p, ir_access access) {
    return tile_scratch(k, "low", TILE_SCRATCH_LOW, (uint64_t)p->rows.bound * p->low.rows * 4,
                        IR_F32, access);
}

/* Where a dispatch makes them, as f32, are they in its scratch? Else in x's own memory. */
static bool is_apart_in_scratch(const vectors_plan *p) {
    return p->kind == VECTORS_MERGE ||
           (BUILD_HAS_JOINED_ADAPTERS && p->low.rows && p->kind == VECTORS_TREE);
}

static uint64_t scratch_bytes(const vectors_plan *p) {
    return (uint64_t)p->rows.bound * p->rows.k * 4;
}

static tile_int8_vectors rounded_in_scratch(tile_matvec *m, const vectors_plan *p,
                                            ir_access access) {
    const uint32_t bound = p->rows.bound, k = p->rows.k;
    return (tile_int8_vectors){.bytes = tile_scratch(&m->k, "bytes", TILE_SCRATCH_BYTES,
                                                     tile_dots_bytes(bound, k), IR_U32, access),
                               .factors =
                                   tile_scratch(&m->k, "factors", TILE_SCRATCH_SCALES,
                                                tile_dots_scale_bytes(bound, k), IR_U32, access),
                               .factors_at = ir_u32(m->k.b, 0),
                               .bound = tile_u32(&m->k, "bound", bound)};
}

void tile_vectors_begin(tile_vectors *v, tile_matvec *m, const vectors_plan *p, bool made) {
    tile_kernel *k = &m->k;
    *v = (tile_vectors){.m = m, .w = p, .kind = made ? VECTORS_PLAIN : p->kind};
    v->first = tile_mul(k->b, ir_group(k->b, 1), m->c.n_x);
    if (v->kind == VECTORS_TREE) {
        v->walk = (tree_walk){.k = k, .t = p->t};
        tree_walk_rows(&v->walk);
        tree_declare(&v->walk);
        v->n = v->walk.size[0];
        return;
    }
    v->n = tile_count(k, "n_x", p->rows.n);
    m->x_first = v->first;
    m->x_n = v->n;
    if (made && p->rounded) {
        m->int8_from = rounded_in_scratch(m, p, IR_READ);
        return;
    }
    v->x = made && is_apart_in_scratch(p)
               ? tile_scratch(k, "x", TILE_SCRATCH_X, scratch_bytes(p), IR_F32, IR_READ)
               : tile_bind(k, "x", p->x, p->handed ? IR_U32 : IR_F32, IR_READ);
    if (v->kind == VECTORS_MERGE) {
        v->stats = tile_bind(k, "stats", p->merge->stats, IR_F32, IR_READ);
        return;
    }
    if (p->handed) {
        m->int8_from = tile_int8_in(m, v->x, p->rows.bound, p->rows.k);
        return;
    }
    v->x_offset = tile_u32(k, "x_offset", p->rows.offset); /* 0 of what is made */
    v->x_stride = tile_u32(k, "x_stride", is_apart_in_scratch(p) ? p->rows.k : p->rows.stride);
}

/* Number of vector i of this workgroup; beyond the last: the last. */
static ir_id vector_of(tile_vectors *v, uint32_t i) {
    ir_builder *b = v->m->k.b;
    return ir_min(b, tile_add(b, v->first, i), ir_sub(b, v->n, ir_u32(b, 1)));
}

/* ---- as it lies ------------------------------------------------------------------------------ */

static ir_id four_plain(void *user, uint32_t i, uint32_t e, ir_id u) {
    tile_vectors *v = user;
    ir_builder *b = v->m->k.b;
    (void)e;
    return ir_load(
        b, v->x, ir_add(b, ir_fma(b, vector_of(v, i), v->x_stride, v->x_offset), tile_mul(b, u, 4)),
        4);
}

/* ---- trees ----------------------------------------------------------------------------------- */

typedef struct fours { /* of this lane */
    uint32_t n;
    ir_id holds[VECTORS_OWN_MAX]; /* IR_NO_ID: always */
    tree_spot at[VECTORS_OWN_MAX];
} fours;

/* The sum over the row, of squares where it is for their mean. */
static ir_id stat_of(tile_vectors *v, fours *own, const tree_stat *s) {
    ir_builder *b = v->m->k.b;
    ir_id sum = IR_NO_ID, each = ir_f32(b, 1 / (float)v->m->length);
    for (uint32_t e = 0; e < own->n; e++) {
        ir_id x = tree_value_at(&v->walk, &own->at[e], s->of);
        x = tile_sum_vector(b, s->kind == TREE_RMS_OVER ? ir_mul(b, x, x) : x);
        if (own->holds[e] != IR_NO_ID) x = ir_select(b, own->holds[e], x, ir_f32(b, 0));
        sum = sum == IR_NO_ID ? x : ir_add(b, sum, x);
    }
    sum = tile_matvec_sum(v->m, sum);
    if (s->kind == TREE_SUM_OVER) return ir_div(b, ir_f32(b, 1), sum);
    if (s->kind == TREE_MEAN) return ir_mul(b, sum, each);
    const ir_id eps = ir_f32(b, s->eps);
    sum = tree_variance(&v->walk, s, ir_mul(b, sum, each));
    return ir_rsqrt(b, ir_add(b, sum, eps));
}

/* Results of a level, stored by the first workgroup. */
static void store_level(tile_vectors *v, uint32_t i, fours *own) {
    tree_walk *c = &v->walk;
    ir_builder *b = c->k->b;
    bool any = false;
    for (uint32_t o = 0; o < c->t.n_out; o++) {
        if (c->t.values[c->t.out[o]].level != c->level) continue;
        for (uint32_t e = 0; e < own->n; e++) tree_value_at(c, &own->at[e], c->t.out[o]);
        any = true;
    }
    if (!any) return;
    ir_if(b, ir_and(b, ir_eq(b, ir_group(b, 0), ir_u32(b, 0)),
                    ir_lt(b, tile_add(b, v->first, i), v->n)));
    for (uint32_t e = 0; e < own->n; e++) {
        if (own->holds[e] != IR_NO_ID) ir_if(b, own->holds[e]);
        tree_store(c, &own->at[e], c->level);
        if (own->holds[e] != IR_NO_ID) ir_end(b);
    }
    ir_end(b);
}

/* Of LOW_LANES columns neighbouring lanes have parts, which are added: lane n has the sum of column
 * n. */
static ir_id share_sums(ir_builder *b, ir_id *parts, ir_id lane) {
    for (uint32_t mask = 1; mask < LOW_LANES; mask *= 2) {
        ir_id odd = ir_ne(b, tile_and(b, lane, mask), ir_u32(b, 0));
        for (uint32_t i = 0; i < LOW_LANES / 2 / mask; i++) {
            ir_id own = ir_select(b, odd, parts[2 * i + 1], parts[2 * i]),
                  other = ir_select(b, odd, parts[2 * i], parts[2 * i + 1]);
            parts[i] = ir_add(b, own, ir_subgroup_shuffle_xor(b, other, mask));
        }
    }
    return parts[0];
}

/* Of a value of low rank, in workgroup memory: neighbouring lanes have parts of a column. */
static void make_low(tile_vectors *v, const tree_value *x) {
    tree_walk *c = &v->walk;
    ir_builder *b = c->k->b;
    const uint32_t length = v->m->length, step = v->m->c.wg / LOW_LANES, wide = 4 * LOW_LANES;
    const ir_memory matrix = c->memory[x->in[0]];
    ir_id local = ir_local(b, 0), lane = tile_rem(b, local, LOW_LANES), part = tile_mul(b, lane, 4),
          first = tile_div(b, local, LOW_LANES), last = ir_u32(b, length - 1),
          at = ir_add(b, c->row[x->in[0]], part), row[TREE_LOW_MAX / 4], parts[LOW_LANES];
    for (uint32_t i = 0; i < x->low; i += wide)
        row[i / wide] =
            ir_load(b, c->memory[x->in[1]], ir_add(b, c->row[x->in[1]], tile_add(b, part, i)), 4);
    for (uint32_t begin = 0; begin < length; begin += LOW_LANES * step) {
        for (uint32_t n = 0; n < LOW_LANES; n++) {
            ir_id own = ir_min(b, tile_add(b, first, begin + n * step), last), sum = IR_NO_ID;
            for (uint32_t i = 0; i < x->low; i += wide) {
                ir_id a =
                    ir_load(b, matrix, ir_add(b, at, tile_add(b, tile_mul(b, own, x->low), i)), 4);
                a = ir_cast(b, IR_F32, a);
                sum = i ? ir_fma(b, a, row[i / wide], sum) : ir_mul(b, a, row[0]);
            }
            parts[n] = tile_sum_vector(b, sum);
        }
        ir_id sum = share_sums(b, parts, lane),
              column = tile_add(b, ir_add(b, first, tile_mul(b, lane, step)), begin);
        const bool whole = begin + LOW_LANES * step <= length;
        if (!whole) ir_if(b, ir_le(b, column, last));
        ir_store(b, v->low, column, sum);
        if (!whole) ir_end(b);
    }
}

static void make_tree(tile_vectors *v, uint32_t i) {
    tree_walk *c = &v->walk;
    ir_builder *b = c->k->b;
    const uint32_t last = v->m->length / 4 - 1;
    fours own = {.n = tile_matvec_each(v->m)};
    tree_place(c, vector_of(v, i), 1, false, c->row);
    const uint32_t low = BUILD_HAS_ADAPTERS && v->m->c.subgroups ? tree_low(&c->t) : TREE_VALUES;
    if (low < TREE_VALUES) {
        if (i) ir_barrier(b); /* what the vector before had is read */
        else v->low = ir_workgroup(b, IR_F32, v->m->length);
        make_low(v, &c->t.values[low]);
    }
    for (uint32_t e = 0; e < own.n; e++) {
        const bool whole = (e + 1) * v->m->c.wg <= last + 1;
        ir_id u = tile_matvec_own(v->m, e);
        own.holds[e] = whole ? IR_NO_ID : ir_le(b, u, ir_u32(b, last));
        if (!whole) u = ir_min(b, u, ir_u32(b, last));
        tree_spot_at(c, &own.at[e], 4, tile_mul(b, u, 4));
        for (uint32_t n = 0; n < c->t.n_value; n++)
            if (c->t.values[n].kind == TREE_INPUT) tree_value_at(c, &own.at[e], n);
    }
    if (low < TREE_VALUES) ir_barrier(b);
    for (uint32_t e = 0; low < TREE_VALUES && e < own.n; e++)
        tree_value_set(c, &own.at[e], low, ir_load(b, v->low, own.at[e].column, 4));
    for (c->level = 0; c->level < c->t.n_level; c->level++) {
        for (uint32_t n = 0; n < c->t.n_stat; n++)
            if (c->t.stats[n].level == c->level)
                c->t.stats[n].result = stat_of(v, &own, &c->t.stats[n]);
        store_level(v, i, &own);
    }
    for (uint32_t e = 0; e < own.n; e++) v->values[e] = tree_value_at(c, &own.at[e], c->t.root);
}

static ir_id four_made(void *user, uint32_t i, uint32_t e, ir_id u) {
    (void)i, (void)u;
    return ((tile_vectors *)user)->values[e];
}

/* ---- attention's pieces ---------------------------------------------------------------------- */

/* Joins pieces [begin, begin + n): most, total f32 and sum f32x4 are what the pieces before
 * gave; IR_NO_ID: none. */
static void merge_some(tile_vectors *v, ir_id head, ir_id column, ir_id begin, uint32_t n,
                       ir_id *most, ir_id *total, ir_id *sum, bool guard) {
    ir_builder *b = v->m->k.b;
    const fused_matvec *f = v->w->merge;
    ir_id best[MERGE_EACH], weight[MERGE_EACH], has[MERGE_EACH], x[MERGE_EACH],
        low = ir_f32(b, -3.0e38f), zero = ir_f32(b, 0), now = *most;
    for (uint32_t s = 0; s < n; s++) {
        ir_id piece = tile_add(b, begin, s),
              inside = guard ? ir_lt(b, piece, ir_u32(b, f->n_split)) : ir_bool(b, true);
        if (guard) piece = ir_min(b, piece, ir_u32(b, f->n_split - 1));
        piece = ir_add(b, tile_mul(b, head, f->n_split), piece);
        ir_id both = ir_load(b, v->stats, tile_mul(b, piece, 2), 2);
        x[s] = ir_load(b, v->x, ir_add(b, tile_mul(b, piece, f->head_dim), column), 4);
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
        ir_id power = ir_select(b, has[s], ir_exp(b, ir_sub(b, best[s], now)), zero),
              own = ir_mul(b, weight[s], power);
        own = ir_select(b, has[s], own, zero);
        ir_id y = ir_select(b, ir_splat(b, has[s], 4), ir_mul(b, x[s], ir_splat(b, power, 4)),
                            ir_number(b, IR_F32, 4, 0));
        *total = *total == IR_NO_ID ? own : ir_add(b, *total, own);
        *sum = *sum == IR_NO_ID ? y : ir_add(b, *sum, y);
    }
    *most = now;
}

static ir_id four_merged(void *user, uint32_t i, uint32_t e, ir_id u) {
    tile_vectors *v = user;
    ir_builder *b = v->m->k.b;
    const fused_matvec *f = v->w->merge;
    ir_id at = tile_mul(b, u, 4), most = IR_NO_ID, total = IR_NO_ID, sum = IR_NO_ID;
    ir_id head = ir_add(b, tile_mul(b, vector_of(v, i), f->n_head), tile_div(b, at, f->head_dim)),
          column = tile_rem(b, at, f->head_dim);
    const uint32_t first = f->n_split < MERGE_EACH ? f->n_split : MERGE_EACH;
    (void)e;
    merge_some(v, head, column, ir_u32(b, 0), first, &most, &total, &sum, false);
    if (f->n_split > MERGE_EACH) {
        ir_memory numbers = ir_register(b, IR_F32, 2), sums = ir_register(b, IR_F32, 4);
        ir_id zero = ir_u32(b, 0), one = ir_u32(b, 1);
        ir_store(b, numbers, zero, most);
        ir_store(b, numbers, one, total);
        ir_store(b, sums, zero, sum);
        ir_id begin =
            ir_loop(b, ir_u32(b, MERGE_EACH), ir_u32(b, f->n_split), ir_u32(b, MERGE_EACH));
        most = ir_load(b, numbers, zero, 1);
        total = ir_load(b, numbers, one, 1);
        sum = ir_load(b, sums, zero, 4);
        merge_some(v, head, column, begin, MERGE_EACH, &most, &total, &sum,
                   f->n_split % MERGE_EACH != 0);
        ir_store(b, numbers, zero, most);
        ir_store(b, numbers, one, total);
        ir_store(b, sums, zero, sum);
        ir_end(b);
        total = ir_load(b, numbers, one, 1);
        sum = ir_load(b, sums, zero, 4);
    }
    return ir_div(b, sum, ir_splat(b, ir_max(b, total, ir_f32(b, FUSED_TOTAL_MIN)), 4));
}

static ir_id four_kept(void *user, uint32_t i, uint32_t e, ir_id u) {
    tile_vectors *v = user;
    return v->values[e] = (v->kind == VECTORS_PLAIN ? four_plain : four_merged)(user, i, e, u);
}

/* ---- handed on ------------------------------------------------------------------------------- */

/* Which of n things this lane copies in turn i; *whole: each lane has one. */
static ir_id copy_at(tile_vectors *v, uint32_t i, uint32_t n, bool *whole) {
    *whole = (i + 1) * v->m->c.wg <= n;
    return tile_matvec_own(v->m, i);
}

/* This lane's of n things, `width` words each. */
static void copy_load(tile_vectors *v, uint32_t n, ir_memory from, ir_id first, uint32_t width,
                      ir_id values[VECTORS_OWN_MAX]) {
    ir_builder *b = v->m->k.b;
    bool whole;
    for (uint32_t i = 0; i < whole_over(n, v->m->c.wg); i++) {
        ir_id at = copy_at(v, i, n, &whole);
        if (!whole) at = ir_min(b, at, ir_u32(b, n - 1));
        values[i] = ir_load(b, from, ir_add(b, first, tile_mul(b, at, width)), width);
    }
}

static void copy_store(tile_vectors *v, uint32_t n, const ir_id values[VECTORS_OWN_MAX],
                       void (*store)(tile_vectors *v, ir_id at, ir_id value)) {
    ir_builder *b = v->m->k.b;
    bool whole;
    for (uint32_t i = 0; i < whole_over(n, v->m->c.wg); i++) {
        ir_id at = copy_at(v, i, n, &whole);
        if (!whole) ir_if(b, ir_lt(b, at, ir_u32(b, n)));
        store(v, at, values[i]);
        if (!whole) ir_end(b);
    }
}

static void copy_bytes(tile_vectors *v, ir_id group, ir_id bytes) {
    ir_builder *b = v->m->k.b;
    ir_id at = matvec_place(v->m, 0, tile_div(b, group, 4), tile_rem(b, tile_div(b, group, 2), 2),
                            tile_rem(b, group, 2));
    ir_store(b, v->m->x, tile_mul(b, at, 4), bytes);
}

static void copy_factors(tile_vectors *v, ir_id block, ir_id factors) {
    ir_builder *b = v->m->k.b;
    ir_id scale = ir_bitcast(b, IR_F32, 1, ir_extract(b, factors, 0)), sums[2];
    matvec_sums_of(b, ir_extract(b, factors, 1), sums);
    ir_id all = ir_cast(b, IR_F32, ir_add(b, sums[0], sums[1])), at = tile_mul(b, block, 2);
    ir_store(b, v->m->scales, at, ir_compose(b, (ir_id[]){scale, ir_mul(b, scale, all)}, 2));
    if (v->m->with_halves) ir_store(b, v->m->halves, at, ir_compose(b, sums, 2));
}

/* The vector that came rounded, to where a product has what it rounds itself: read beside the
 * weights, its loads would stand behind theirs. */
static void copy_handed(tile_vectors *v) {
    const tile_int8_vectors *from = &v->m->int8_from;
    const uint32_t groups = v->m->length / TILE_RUN, blocks = v->m->length / 32;
    ir_id bytes[VECTORS_OWN_MAX], factors[VECTORS_OWN_MAX];
    copy_load(v, groups, from->bytes, ir_u32(v->m->k.b, 0), 4, bytes);
    copy_load(v, blocks, from->factors, from->factors_at, 2, factors);
    copy_store(v, groups, bytes, copy_bytes);
    copy_store(v, blocks, factors, copy_factors);
}

/* Vector i of the workgroup, where fills go. */
static void make_one(tile_vectors *v, uint32_t i) {
    tile_matvec *m = v->m;
    if (v->w->handed) {
        copy_handed(v);
    } else if (BUILD_HAS_ADAPTERS && v->keeps && v->kind != VECTORS_TREE) {
        tile_matvec_fill_vector(m, i, true, four_kept, v);
    } else if (v->kind == VECTORS_PLAIN) {
        tile_matvec_fill_vector(m, i, false, four_plain, v);
    } else if (v->kind == VECTORS_MERGE) {
        tile_matvec_fill_vector(m, i, false, four_merged, v);
    } else {
        make_tree(v, i);
        tile_matvec_fill_vector(m, i, true, four_made, v);
    }
}

void tile_vectors_make(tile_vectors *v) {
    tile_matvec *m = v->m;
    ir_builder *b = m->k.b;
    const bool is_kept = m->c.x == MATVEC_SHARED || m->c.x == MATVEC_INT8;
    if (tile_matvec_copies(&m->c)) {
        tile_matvec_copy_first(m);
        return;
    }
    for (uint32_t i = 0; i < m->c.n_x; i++) {
        if (is_kept) {
            make_one(v, i);
            continue;
        }
        m->x_from = v->x;
        m->x_at[i] =
            v->w->handed ? vector_of(v, i) : ir_fma(b, vector_of(v, i), v->x_stride, v->x_offset);
    }
    if (is_kept && !(BUILD_HAS_ADAPTERS && v->keeps)) ir_barrier(b);
}

/* ---- a dispatch of their own ----------------------------------------------------------------- */

bool vectors_fit_separate(const lowering *l, const vectors_plan *p) {
    if (p->kind == VECTORS_TREE) {
        const graph_region all = graph_region_with(&p->before, p->x);
        return !graph_tensor_at(l->g, p->x)->base && tile_region_fits(l->g, l->store, &all);
    }
    return p->kind == VECTORS_MERGE && p->merge->n_split <= APART_PIECES_MAX;
}

static matvec_choice apart_of(const lowering *l, const vectors_plan *p) {
    const device_caps *caps = l->caps;
    matvec_choice c = {
        .x = MATVEC_SHARED, .wg = 64, .lanes = 1, .rows = 1, .n_x = 1, .depth = 1, .groups = 1};
    c.subgroups = caps->subgroups && caps->subgroup_size >= 8;
    c.span = c.subgroups ? tile_span(caps) : 0;
    while (c.wg * 4 < p->rows.k && 2 * c.wg <= APART_WG && 2 * c.wg <= caps->workgroup_invocations)
        c.wg *= 2;
    return c;
}

bool vectors_fit_rounded(const lowering *l, const vectors_plan *p) {
    const matvec_choice c = apart_of(l, p);
    const uint32_t low = BUILD_HAS_JOINED_ADAPTERS && p->low.rows ? 3 : 0,
                   bindings = 2 + low + tile_vectors_bindings(l, p); /* two results */
    return c.subgroups && p->rows.k % 32 == 0 && !device_is_processor(l->caps) &&
           vectors_fit_inside(p) &&
           ((p->kind != VECTORS_TREE && !low) ||
            (p->rows.k / 4 + c.wg - 1) / c.wg <= VECTORS_OWN_MAX) &&
           (p->kind != VECTORS_MERGE || p->merge->n_split <= APART_PIECES_MAX) &&
           vectors_shared(p) <= SHARED_MAX && bindings <= l->caps->storage_max;
}

/* The lane's fours of the vector, wherever they come from. */
static void take_own(tile_vectors *v) {
    ir_builder *b = v->m->k.b;
    ir_id last = ir_u32(b, v->m->length / 4 - 1);
    if (v->kind == VECTORS_TREE) {
        make_tree(v, 0);
        return;
    }
    for (uint32_t e = 0; e < tile_matvec_each(v->m); e++)
        four_kept(v, 0, e, ir_min(b, tile_matvec_own(v->m, e), last));
}

/* Rows of A for a workgroup, beside `others` for each vector: few where units have no vector, as
 * many as a lane asks for. Where dispatches begin early all are to find a unit at once. */
static uint32_t rows_of(const lowering *l, const vectors_plan *p, const tile_matvec *m,
                        uint32_t others) {
    const uint32_t units = tile_units(l->caps), each = units / p->rows.bound,
                   taken = tile_is_wgsl(l->caps) ? 0 : others,
                   rows = whole_over(p->low.rows, each > taken ? each - taken : 1);
    return whole_least(rows > 2 ? rows : 2, FACTORS_ASKED_MAX / tile_matvec_each(m));
}

/* In workgroups after `others`. */
static void open_low(tile_vectors *v, const vectors_plan *p, uint32_t others, tile_factors *f) {
    static const char *const names[] = {"factors_a", "low_a0", "low_a1", "low_a2", "low_a3"};
    const vectors_low *low = &p->low;
    tile_matvec *m = v->m;
    tile_kernel *k = &m->k;
    ir_builder *b = k->b;
    ir_id group = ir_group(b, 0);
    *f = (tile_factors){.m = m, .rows = low->rows, .apart = rows_of(k->l, p, m, others)};
    tile_factors_bind(k, names, low->a, low->type, tile_weight_element(low->type), p->rows.k,
                      &f->a);
    f->first = tile_u32(k, "low_first", low->first);
    f->scales = tile_read(k, "low_scales", low->factors);
    f->made = tile_vectors_low(k, p, IR_READ_WRITE);
    f->several = true;
    f->scales_at[0] = tile_mul(b, v->first, low->stride);
    f->made_at = tile_mul(b, v->first, low->rows);
    f->begin = tile_mul(b, tile_add(b, group, (uint32_t)-others), f->apart);
    f->end = ir_u32(b, low->rows);
    if (others) f->end = ir_select(b, ir_lt(b, group, ir_u32(b, others)), f->begin, f->end);
    lower_bytes(k->l, low->rows * base_type_row_bytes(low->type, p->rows.k));
    tile_factors_open(f);
    tile_factors_ask(f);
}

/* The vector, kept by the first workgroup, and its products with rows of A, by others. PoCL 3.1
 * gets shuffles in conditions wrong. */
static uint32_t make_with_low(tile_vectors *v, const vectors_plan *p, bool stays) {
    tile_matvec *m = v->m;
    ir_builder *b = m->k.b;
    const uint32_t others = stays ? 0 : 1;
    const bool branches = !(m->k.l->caps->languages & DEVICE_LANGUAGE_BIT(DEVICE_OPENCL_C));
    ir_id group = ir_group(b, 0), is_first = ir_eq(b, group, ir_u32(b, 0));
    tile_factors f;
    open_low(v, p, others, &f);
    take_own(v);
    if (!stays) {
        if (branches) ir_if(b, is_first);
        else m->to_holds = ir_and(b, m->to_holds, is_first);
        tile_matvec_fill_vector(m, 0, true, four_made, v);
        if (branches) ir_end(b);
        ir_if(b, ir_not(b, is_first));
    }
    tile_factors_part(&f, v->values);
    if (!stays) ir_end(b);
    ir_barrier(b);
    tile_factors_end(&f);
    return whole_over(p->low.rows, f.apart) + others;
}

/* A workgroup a vector, as in a product's own kernel; with rows of A, several. */
static beryl_status made_separately(lowering *l, const vectors_plan *p) {
    const matvec_choice c = apart_of(l, p);
    const bool low = BUILD_HAS_JOINED_ADAPTERS && p->low.rows,
               stays = low && !p->rounded && p->kind == VECTORS_PLAIN;
    uint32_t groups = 1;
    tile_matvec m;
    tile_vectors v;
    tile_matvec_begin(&m, l, "vectors", &c, p->rows.k);
    tile_vectors_begin(&v, &m, p, false);
    m.x_keep = true;
    m.x_round = p->rounded;
    m.to_at = p->rounded ? v.first : tile_mul(m.k.b, v.first, p->rows.k);
    if (p->rounded) m.int8_to = rounded_in_scratch(&m, p, IR_READ_WRITE);
    else if (!stays)
        m.x_to = tile_scratch(&m.k, "to", TILE_SCRATCH_X, scratch_bytes(p), IR_F32, IR_READ_WRITE);
    m.to_holds = ir_lt(m.k.b, v.first, v.n);
    tile_matvec_open_sums(&m);
    if (low) groups = make_with_low(&v, p, stays);
    else make_one(&v, 0);
    return tile_end_3d(&m.k, (lower_count){groups, 0}, 1, p->rows.n, 1, (lower_count){1, 0});
}

beryl_status tile_vectors_separate(lowering *l, const vectors_plan *p) {
    if (p->rounded || p->kind == VECTORS_MERGE || (BUILD_HAS_JOINED_ADAPTERS && p->low.rows))
        return made_separately(l, p);
    const graph_region all = graph_region_with(&p->before, p->x);
    return tile_region(l, &all, "vectors");
}
