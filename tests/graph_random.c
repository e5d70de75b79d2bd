/* graph_random.c - see graph_random.h. The idea: a pool of values, and makers that take some of
 * it and add to it. What a value may be as large as is guessed, so that numbers stay where f32
 * is exact. */
#include "graph_random.h"

#include "base/thread.h"
#include "graph/text.h"

#include <string.h>

enum { POOL_MAX = 200, OUTPUTS_MAX = 4 };

typedef struct pooled {
    graph_value v;
    float most;
    bool integer;
    uint32_t used;
} pooled;

typedef struct maker {
    base_random random;
    graph *g;
    graph_store *store;
    pooled pool[POOL_MAX];
    uint32_t n_pool;
    uint8_t rows, others;                 /* extents */
    uint32_t budget;                      /* operations */
    uint32_t slot, pos, angles, angles_d; /* inputs that attention shares, 0: none so far */
    bool wide;                            /* rows are as long as K-quants need them */
    bool square;                          /* most sizes are 4: axes may change places unseen */
} maker;

/* ---- drawing --------------------------------------------------------------------------------- */

static uint32_t draw(maker *m, uint32_t n) {
    return (uint32_t)(base_random_next(&m->random) % n);
}

static uint32_t draw_of(maker *m, const uint32_t *of, uint32_t n) {
    return of[draw(m, n)];
}
#define DRAW_OF(m, ...)                           \
    draw_of((m), (const uint32_t[]){__VA_ARGS__}, \
            sizeof((uint32_t[]){__VA_ARGS__}) / sizeof(uint32_t))

static graph_dim rows_of(const maker *m) {
    if (m->square) return (graph_dim){4, 0};
    return (graph_dim){m->g->extents[m->rows].bound, m->rows};
}

static uint32_t draw_width(maker *m) {
    if (m->square) return DRAW_OF(m, 4, 4, 8, 32);
    if (m->wide && draw(m, 3)) return DRAW_OF(m, 256, 512);
    if (draw(m, 60) == 0) return DRAW_OF(m, 1000, 1536, 2049);
    return DRAW_OF(m, 1, 2, 3, 7, 8, 16, 24, 31, 32, 33, 48, 64, 96, 100, 128, 130, 256, 257);
}

static const graph_tensor *at(const maker *m, graph_value v) {
    return graph_tensor_at(m->g, v);
}

static graph_value keep(maker *m, graph_value v, float most, bool integer) {
    if (v && m->n_pool < POOL_MAX) m->pool[m->n_pool++] = (pooled){v, most, integer, 0};
    return v;
}

/* A value of the result of one operation. */
static graph_value made(maker *m, graph_value v, float most) {
    if (m->budget) m->budget--;
    return keep(m, v, most, false);
}

static graph_value new_input(maker *m, uint32_t rank, const graph_dim *dims) {
    return keep(m, graph_input(m->g, "x", TYPE_F32, rank, dims), 1, false);
}

static graph_value new_whole(maker *m, uint32_t rank, const graph_dim *dims) {
    return graph_input(m->g, "i", TYPE_I32, rank, dims);
}

static base_type draw_type(maker *m, uint32_t k) {
    static const uint32_t any[] = {TYPE_F32,   TYPE_F16,   TYPE_BF16, TYPE_Q4_0,   TYPE_Q4_1,
                                   TYPE_Q5_0,  TYPE_Q5_1,  TYPE_Q8_0, TYPE_IQ4_NL, TYPE_MXFP4,
                                   TYPE_NVFP4, TYPE_Q2_K,  TYPE_Q3_K, TYPE_Q4_K,   TYPE_Q5_K,
                                   TYPE_Q6_K,  TYPE_IQ4_XS};
    return (base_type)draw_of(m, any, k % 256 == 0 ? 17 : k % 64 == 0 ? 11 : k % 32 == 0 ? 10 : 3);
}

static graph_value new_weight(maker *m, base_type type, uint32_t rank, const uint32_t *dims) {
    const uint32_t index = store_add_weight(m->store, "w", type, rank, dims, 0, 0, 0, false);
    return graph_stored(m->g, m->store, index);
}

static graph_value new_state(maker *m, base_type type, uint32_t rank, const uint32_t *dims) {
    return graph_stored(m->g, m->store, store_add_state(m->store, "s", type, rank, dims, 1));
}

/* A pooled number, a late one rather than an early one; NULL: there is none that fits. */
static pooled *pick(maker *m, uint32_t rank, float most) {
    for (int i = 0; i < 30 && m->n_pool; i++) {
        const uint32_t a = draw(m, m->n_pool), b = draw(m, m->n_pool);
        pooled *p = &m->pool[a > b ? a : b];
        if (p->integer || p->most > most || (rank && at(m, p->v)->rank != rank)) continue;
        p->used++;
        return p;
    }
    return NULL;
}

/* [n, d] without gaps, n the rows; made where the pool has none. */
static pooled *pick_rows(maker *m) {
    for (int i = 0; i < 8; i++) {
        pooled *p = pick(m, 2, 30);
        if (p && at(m, p->v)->dim[0].extent == rows_of(m).extent &&
            at(m, p->v)->dim[0].size == rows_of(m).size && !at(m, p->v)->dim[1].extent &&
            at(m, p->v)->stride[1] == 1)
            return p;
    }
    new_input(m, 2, (graph_dim[]){rows_of(m), {draw_width(m), 0}});
    return &m->pool[m->n_pool - 1];
}

/* ---- makers ---------------------------------------------------------------------------------- */

static void make_input(maker *m) {
    graph_dim dims[4];
    const uint32_t rank = 1 + draw(m, 4), where = draw(m, 8);
    for (uint32_t i = 0; i < rank; i++)
        dims[i] = (graph_dim){i + 1 == rank ? draw_width(m) : m->square ? 4 : 1 + draw(m, 6), 0};
    if (where < 6) dims[0] = rows_of(m);
    else if (where == 6) dims[draw(m, rank)] = rows_of(m);
    if (where == 0 && rank > 2) dims[1] = (graph_dim){m->g->extents[m->others].bound, m->others};
    new_input(m, rank, dims);
}

static void make_unary(maker *m) {
    const pooled p = m->n_pool ? *(pick(m, 0, 1000) ? pick(m, 0, 1000) : &m->pool[0]) : (pooled){0};
    if (!p.v || p.integer) return;
    switch (draw(m, 5)) {
    case 0: made(m, graph_copy(m->g, p.v), p.most); break;
    case 1: made(m, graph_scale(m->g, p.v, -0.37f), p.most * 0.37f); break;
    case 2: made(m, graph_gelu_tanh(m->g, p.v), p.most); break;
    case 3: made(m, graph_softcap(m->g, p.v, 5), 5); break;
    case 4: made(m, graph_scale(m->g, p.v, 1.25f), p.most * 1.25f); break;
    }
}

static void make_row(maker *m) {
    const pooled *p = pick(m, 0, 1e6f);
    if (!p || !at(m, p->v)->rank) return;
    const graph_tensor t = *at(m, p->v);
    const uint32_t d = t.dim[t.rank - 1].size;
    const bool constant = !t.dim[t.rank - 1].extent;
    const graph_value w = constant && draw(m, 2) ? new_weight(m, TYPE_F32, 1, &d) : 0;
    const uint32_t axis = draw(m, t.rank);
    switch (draw(m, 8)) {
    case 5:
    case 6:
        if (p->most * (float)t.dim[axis].size < 1e4f)
            made(m, graph_cumsum(m->g, p->v, axis), p->most * (float)t.dim[axis].size);
        break;
    case 7: {
        const uint32_t c = t.rank > 1 ? t.dim[1].size : 1, groups = c % 3 == 0 && draw(m, 2) ? c / 3
                                                                    : c % 2 == 0 && draw(m, 2) ? 2
                                                                                               : 1;
        if (t.rank < 2 || t.rank == GRAPH_RANK_MAX || t.dim[1].extent) break;
        const graph_value weight = draw(m, 2) ? new_weight(m, TYPE_F32, 1, &c) : 0;
        made(m,
             graph_group_norm(m->g, p->v, weight,
                              weight && draw(m, 2) ? new_weight(m, TYPE_F32, 1, &c) : 0, groups,
                              1e-5f),
             8);
        break;
    }
    case 3:
        made(m,
             graph_layer_norm(m->g, p->v, w, w && draw(m, 2) ? new_weight(m, TYPE_F32, 1, &d) : 0,
                              1e-5f),
             8);
        break;
    case 4:
    case 0: made(m, graph_softmax(m->g, p->v), 1); break;
    case 1: made(m, graph_rms_norm(m->g, p->v, 0, 1e-6f), 4); break;
    case 2:
        made(m, graph_rms_norm(m->g, p->v, constant ? new_weight(m, TYPE_F32, 1, &d) : 0, 1e-5f),
             4);
        break;
    }
}

/* The other one of a pair: of the pool where one has the shape, else broadcast in some way. */
static graph_value other_of(maker *m, const pooled *a) {
    const graph_tensor t = *at(m, a->v);
    for (int i = 0; i < 12; i++) {
        pooled *p = pick(m, 0, 30);
        if (p && graph_same_shape(at(m, p->v), &t)) return p->v;
    }
    graph_dim dims[GRAPH_RANK_MAX];
    memcpy(dims, t.dim, sizeof dims);
    const uint32_t how = draw(m, 6), last = t.rank - 1u;
    uint32_t from = 0;
    if (how == 1 && t.rank) from = last;                    /* a row */
    if (how == 2 && t.rank) dims[last] = (graph_dim){1, 0}; /* one number a row */
    if (how == 3) from = t.rank;                            /* a single number */
    if (how == 4 && t.rank)
        from = draw(m, t.rank), dims[from + draw(m, t.rank - from)] = (graph_dim){1, 0};
    if (how == 5 && t.rank && !dims[last].extent)
        return new_weight(m, TYPE_F32, 1, &dims[last].size);
    return graph_input(m->g, "y", TYPE_F32, t.rank - from, dims + from);
}

/* A few pointwise operations on a value and what they make. */
static pooled pointwise_on(maker *m, pooled a) {
    for (uint32_t n = draw(m, 4); n > 0; n--) {
        const uint32_t how = draw(m, 5);
        graph_value v;
        if (how < 2)
            v = made(m, how ? graph_gelu_tanh(m->g, a.v) : graph_scale(m->g, a.v, -0.37f), a.most);
        else
            v = made(m,
                     how == 2 ? graph_add(m->g, a.v, other_of(m, &a))
                              : graph_mul(m->g, a.v, other_of(m, &a)),
                     how == 2 ? a.most + 30 : a.most * 30);
        if (v) a = m->pool[m->n_pool - 1];
    }
    return a;
}

static void make_binary(maker *m) {
    const pooled *p = pick(m, 0, 50);
    if (!p) return;
    const pooled a = *p;
    const graph_value b = other_of(m, &a);
    switch (draw(m, 3)) {
    case 0: made(m, graph_add(m->g, a.v, b), a.most + 30); break;
    case 1: made(m, graph_mul(m->g, a.v, b), a.most * 30); break;
    case 2: made(m, graph_geglu(m->g, a.v, b), a.most * 30); break;
    }
}

/* Of a part of an axis: from anywhere on, any number, any step that fits. */
static graph_value narrowed(maker *m, graph_value x, uint32_t axis) {
    const uint32_t all = at(m, x)->dim[axis].size, size = 1 + draw(m, all),
                   most = size > 1 ? (all - 1) / (size - 1) : 1,
                   step = draw(m, 3) ? 1 : 1 + draw(m, most < 5 ? most : 5),
                   start = draw(m, all - (size - 1) * step);
    return graph_narrow(m->g, x, axis, start, size, step);
}

static graph_value permuted(maker *m, graph_value x) {
    const uint32_t rank = at(m, x)->rank;
    uint32_t axes[GRAPH_RANK_MAX];
    for (uint32_t i = 0; i < rank; i++) {
        const uint32_t k = draw(m, i + 1);
        axes[i] = axes[k];
        axes[k] = i;
    }
    return graph_permute(m->g, x, rank, axes);
}

/* An axis of 1, which may be a new one, as a larger one. */
static graph_value expanded(maker *m, graph_value x, uint32_t axis) {
    const graph_tensor t = *at(m, x);
    graph_dim dims[GRAPH_RANK_MAX];
    const bool more = t.dim[axis].size != 1 || t.dim[axis].extent;
    if (graph_element_bound(&t) > 20000 || (more && t.rank == GRAPH_RANK_MAX)) return 0;
    if (more && draw(m, 2)) return graph_unsqueeze(m->g, x, draw(m, t.rank + 1));
    memcpy(dims + more, t.dim, t.rank * sizeof *dims);
    dims[more ? 0 : axis] = draw(m, 3) ? (graph_dim){1 + draw(m, 5), 0} : rows_of(m);
    return graph_expand(m->g, x, t.rank + more, dims);
}

/* Two axes as one, or one as two; 0: they are none that can be. */
static graph_value reshaped(maker *m, graph_value x, uint32_t axis) {
    const graph_tensor t = *at(m, x);
    const uint32_t last = t.rank - 1u, part = DRAW_OF(m, 1, 2, 3, 4, 8, 32);
    graph_dim dims[GRAPH_RANK_MAX];
    if (t.rank == GRAPH_RANK_MAX || t.dim[axis].extent) return 0;
    memcpy(dims, t.dim, sizeof dims);
    if (axis < last && !dims[axis + 1].extent && draw(m, 2)) {
        dims[axis].size *= dims[axis + 1].size;
        memmove(&dims[axis + 1], &dims[axis + 2], (last - axis - 1) * sizeof *dims);
        return graph_reshape(m->g, x, last, dims);
    }
    if (dims[axis].size % part) return 0;
    memmove(&dims[axis + 2], &dims[axis + 1], (last - axis) * sizeof *dims);
    dims[axis].size /= part;
    dims[axis + 1] = (graph_dim){part, 0};
    return graph_reshape(m->g, x, t.rank + 1u, dims);
}

static void make_view(maker *m) {
    const pooled *p = pick(m, 0, 1e6f);
    if (!p || !at(m, p->v)->rank) return;
    const pooled from = *p;
    const graph_tensor t = *at(m, from.v);
    const uint32_t axis = draw(m, t.rank), other = draw(m, t.rank);
    const bool constant = !t.dim[axis].extent;
    graph_value v = 0;
    switch (draw(m, 9)) {
    case 8:
        if (constant && t.rank < GRAPH_RANK_MAX && graph_element_bound(&t) < 20000) {
            const uint32_t most = t.dim[axis].size < 9 ? t.dim[axis].size : 9;
            v = graph_windows(m->g, from.v, axis, 1 + draw(m, most), 1 + draw(m, 4));
        }
        break;
    case 0:
    case 1:
        if (constant) v = narrowed(m, from.v, axis);
        break;
    case 2:
        if (constant && t.dim[axis].size == 1 && t.rank > 1) v = graph_squeeze(m->g, from.v, axis);
        break;
    case 3: v = permuted(m, from.v); break;
    case 4: v = expanded(m, from.v, axis); break;
    case 5:
        if (constant) v = graph_flip(m->g, from.v, axis);
        break;
    case 6:
        if (axis != other && t.dim[axis].extent == t.dim[other].extent)
            v = graph_diagonal(m->g, from.v, axis, other);
        break;
    case 7: v = reshaped(m, from.v, axis); break;
    }
    keep(m, v, from.most, false);
}

/* From other places: a pad, a triangle, random numbers, with others of its kind behind it or beside
 * it. */
static void make_map(maker *m) {
    const pooled *p = pick(m, 0, 1e6f);
    if (!p || !at(m, p->v)->rank || graph_element_bound(at(m, p->v)) > 40000) return;
    const pooled from = *p;
    const graph_tensor t = *at(m, from.v);
    const uint32_t axis = draw(m, t.rank), unit = DRAW_OF(m, 1, 1, 4, 16);
    graph_value in[4] = {from.v, from.v, from.v, from.v};
    graph_dim dims[GRAPH_RANK_MAX];
    const int32_t diagonal = (int32_t)draw(m, 9) - 4;
    memcpy(dims, t.dim, sizeof dims);
    switch (draw(m, 6)) {
    case 5: {
        const graph_value words = graph_input(m->g, "key", TYPE_U32, 1, (graph_dim[]){{8, 0}}),
                          key = graph_narrow(m->g, words, 0, draw(m, 7), 2, 1),
                          v = graph_random_uniform(m->g, (graph_draw){key, draw(m, 3)}, TYPE_F32, 0,
                                                   1, t.rank, t.dim);
        made(m, v, 1);
        if (draw(m, 2)) made(m, graph_mul(m->g, from.v, v), from.most);
        break;
    }
    case 0:
        made(m,
             graph_pad(m->g, from.v, axis, unit * draw(m, 4), unit * draw(m, 4),
                       draw(m, 2) ? 0 : 1.5f),
             from.most + 2);
        break;
    case 1:
        if (t.rank > 1)
            made(m,
                 draw(m, 2) ? graph_tril(m->g, from.v, diagonal)
                            : graph_triu(m->g, from.v, diagonal),
                 from.most);
        break;
    case 2:
    case 3: /* one of another length too, where extents are few */
        if (m->g->n_extent > 12) return;
        dims[axis] = draw(m, 3) ? (graph_dim){unit * (1 + draw(m, 5)), 0} : rows_of(m);
        in[1] = new_input(m, t.rank, dims);
        made(m, graph_concat(m->g, 2 + draw(m, 3), in, axis), from.most + 1);
        break;
    case 4:
        if (!t.dim[axis].extent)
            keep(m, graph_roll(m->g, from.v, axis, 1 + draw(m, t.dim[axis].size)), from.most,
                 false);
        break;
    }
}

static float product_size(float most, uint32_t k) {
    float n = 1;
    while (n * n < (float)k) n++;
    return most * n * 0.6f;
}

/* [rows, k]: whole, rows of a larger one, one matrix of several, or numbers of a weight with
 * longer rows. */
static graph_value new_matrix(maker *m, base_type type, uint32_t rows, uint32_t k) {
    const uint32_t how = draw(m, 16), first = draw(m, 5), more = 2 + draw(m, 3);
    const graph_dim each[2] = {{(rows + first) * more, 0}, {k, 0}};
    if (how == 2 && !base_type_is_quantised(type))
        return graph_narrow(
            m->g,
            graph_reshape(m->g, new_weight(m, type, 2, (uint32_t[]){rows + first, k * more}), 2,
                          each),
            0, first * more, rows, 1);
    if (how == 0)
        return graph_narrow(m->g,
                            new_weight(m, type, 2, (uint32_t[]){rows + first + draw(m, 3), k}), 0,
                            first, rows, 1);
    if (how == 1)
        return graph_squeeze(
            m->g,
            graph_narrow(m->g, new_weight(m, type, 3, (uint32_t[]){5, rows, k}), 0, first, 1, 1),
            0);
    return new_weight(m, type, 2, (uint32_t[]){rows, k});
}

static graph_value product(maker *m, graph_value x, float most, base_type type, uint32_t rows) {
    const graph_tensor t = *at(m, x);
    const uint32_t k = t.dim[t.rank - 1].size;
    return made(m, graph_linear(m->g, x, new_matrix(m, type, rows, k)), product_size(most, k));
}

static void make_product(maker *m) {
    const pooled *p = pick(m, 0, 100);
    if (!p || !at(m, p->v)->rank) return;
    const graph_dim last = at(m, p->v)->dim[at(m, p->v)->rank - 1];
    const pooled *other = draw(m, 3) == 0 ? pick(m, 2, 30) : NULL; /* of two values */
    if (other && !last.extent && !at(m, other->v)->dim[0].extent &&
        at(m, other->v)->dim[1].size == last.size && graph_is_contiguous(at(m, other->v)))
        made(m, graph_linear(m->g, p->v, other->v),
             product_size(p->most * other->most, last.size) * 4);
    else if (!last.extent) product(m, p->v, p->most, draw_type(m, last.size), draw_width(m));
    if (last.extent || draw(m, 2)) return;
    const pooled y = m->pool[m->n_pool - 1]; /* what a tree at its end may be */
    const graph_value sum = made(m, graph_add(m->g, y.v, other_of(m, &y)), y.most + 30);
    if (draw(m, 2))
        made(m, draw(m, 2) ? graph_gelu_tanh(m->g, sum) : graph_scale(m->g, sum, 0.5f),
             y.most + 30);
}

/* norm, gate and up, gelu(gate) * up, down, and the sum with where it began. */
static void make_gated(maker *m) {
    const pooled p = *pick_rows(m);
    const uint32_t d = at(m, p.v)->dim[1].size, f = DRAW_OF(m, 8, 32, 64, 96, 256);
    const base_type type = draw_type(m, d);
    graph_value x = p.v;
    if (draw(m, 4)) x = made(m, graph_rms_norm(m->g, x, new_weight(m, TYPE_F32, 1, &d), 1e-6f), 4);
    graph_value gate = product(m, x, 4, type, f), up = product(m, x, 4, type, f);
    x = draw(m, 3) ? made(m, graph_geglu(m->g, gate, up), 200)
                   : made(m, graph_mul(m->g, graph_gelu_tanh(m->g, gate), up), 200);
    if (!draw(m, 3)) return;
    x = product(m, x, 200, draw_type(m, f), d);
    if (draw(m, 3))
        x = made(m, graph_rms_norm(m->g, x, draw(m, 3) ? new_weight(m, TYPE_F32, 1, &d) : 0, 1e-6f),
                 4);
    x = made(m, graph_add(m->g, p.v, x), p.most + 4);
    if (draw(m, 2))
        x = made(m, graph_mul(m->g, x, new_weight(m, TYPE_F32, 1, (uint32_t[]){1})), p.most + 4);
    if (draw(m, 2)) x = made(m, graph_rms_norm(m->g, x, new_weight(m, TYPE_F32, 1, &d), 1e-6f), 4);
    if (draw(m, 2)) product(m, x, 4, draw_type(m, d), DRAW_OF(m, 8, 33, 64));
}

static graph_value heads_of(maker *m, graph_value x, uint32_t heads, uint32_t d, bool norm,
                            bool weight, bool turn) {
    graph_value v = graph_reshape(m->g, x, 3, (graph_dim[]){rows_of(m), {heads, 0}, {d, 0}});
    if (norm) v = graph_rms_norm(m->g, v, weight ? new_weight(m, TYPE_F32, 1, &d) : 0, 1e-6f);
    if (turn) v = graph_rope(m->g, v, m->angles);
    m->budget -= m->budget > 2 ? 2 : m->budget;
    return v;
}

/* A step of attention from one vector a row. */
static void make_attention(maker *m) {
    const pooled p = *pick_rows(m);
    const uint32_t d = DRAW_OF(m, 4, 16, 32, 64, 96), kv = 1 + draw(m, 2),
                   heads = kv * DRAW_OF(m, 1, 2, 4), n = rows_of(m).size;
    const uint32_t slots = draw(m, 2) ? n + draw(m, 3) : 1 + draw(m, 2),
                   length = n + DRAW_OF(m, 0, 1, 5, 30);
    const base_type cache =
        (base_type)DRAW_OF(m, TYPE_F32, TYPE_F16, d % 32 ? TYPE_F16 : TYPE_Q8_0);
    const bool norm = draw(m, 4) != 0, turn = draw(m, 4) != 0, shared = draw(m, 6) == 0;
    if (m->slot || n > 64) return; /* once: what slots and positions may be depends on the caches */
    m->slot = new_whole(m, 1, (graph_dim[]){rows_of(m)});
    m->pos = new_whole(m, 1, (graph_dim[]){rows_of(m)});
    m->angles =
        graph_input(m->g, "angles", TYPE_F32, 3, (graph_dim[]){rows_of(m), {2, 0}, {d / 2, 0}});
    const base_type type = draw_type(m, at(m, p.v)->dim[1].size);
    graph_value q = product(m, p.v, p.most, type, heads * d),
                k = product(m, p.v, p.most, type, kv * d);
    graph_value v = shared ? k : product(m, p.v, p.most, type, kv * d);
    q = heads_of(m, q, heads, d, norm, true, turn);
    const graph_value k_rows = k;
    k = heads_of(m, k, kv, d, norm, true, turn);
    v = heads_of(m, shared ? k_rows : v, kv, d, norm, false, false);
    const uint32_t dims[4] = {slots, length, kv, d};
    graph_value keys = new_state(m, cache, 4, dims), values = new_state(m, cache, 4, dims);
    keys = graph_kv_write(m->g, keys, k, m->slot, m->pos);
    values = graph_kv_write(m->g, values, v, m->slot, m->pos);
    const uint32_t window = draw(m, 2) ? 0 : 1 + draw(m, length);
    const graph_value first = draw(m, 4) ? 0 : new_whole(m, 1, (graph_dim[]){rows_of(m)});
    graph_value out =
        first ? graph_attention_range(m->g, q, keys, values, m->slot, first, m->pos, 0.3f)
              : graph_attention(m->g, q, keys, values, m->slot, m->pos, 0.3f, window);
    if (slots >= n) graph_attention_distinct_slots(m->g, out, draw(m, 2) ? 0 : length);
    made(m, out, norm ? 4 : product_size(p.most, at(m, p.v)->dim[1].size));
    if (!draw(m, 4)) return;
    const float most = m->pool[m->n_pool - 1].most;
    out = keep(m, graph_reshape(m->g, out, 2, (graph_dim[]){rows_of(m), {heads * d, 0}}), most,
               false);
    product(m, out, most, draw_type(m, heads * d), at(m, p.v)->dim[1].size);
}

static void make_experts(maker *m) {
    const pooled p = *pick_rows(m);
    const uint32_t d = at(m, p.v)->dim[1].size, n_expert = DRAW_OF(m, 2, 5, 8),
                   k = 1 + draw(m, n_expert < 4 ? n_expert : 4), f = DRAW_OF(m, 8, 32, 64);
    graph_value ids, x = p.v, logits = product(m, p.v, p.most, draw_type(m, d), n_expert);
    graph_value gates = made(m, graph_topk(m->g, logits, k, &ids), 30);
    keep(m, ids, 1, true);
    gates = made(m, graph_softmax(m->g, gates), 1);
    if (draw(m, 2)) {
        graph_value scales = graph_gather_rows(m->g, new_weight(m, TYPE_F32, 1, &n_expert), ids, 1);
        gates = made(m, graph_mul(m->g, gates, scales), 1);
    }
    if (draw(m, 2)) x = made(m, graph_rms_norm(m->g, x, new_weight(m, TYPE_F32, 1, &d), 1e-6f), 4);
    const bool both = draw(m, 2);
    const base_type type = draw_type(m, d);
    if (!graph_is_contiguous(at(m, x))) x = made(m, graph_copy(m->g, x), p.most);
    x = graph_reshape(m->g, x, 3, (graph_dim[]){rows_of(m), {1, 0}, {d, 0}});
    graph_value gate = made(m,
                            graph_linear_id(
                                m->g, x,
                                new_weight(m, type, 3, (uint32_t[]){n_expert, both ? 2 * f : f, d}),
                                ids),
                            100),
                up;
    if (both) {
        up = graph_narrow(m->g, gate, 2, f, f, 1);
        gate = graph_narrow(m->g, gate, 2, 0, f, 1);
    } else {
        up = made(
            m, graph_linear_id(m->g, x, new_weight(m, type, 3, (uint32_t[]){n_expert, f, d}), ids),
            100);
    }
    x = made(m, graph_geglu(m->g, gate, up), 300);
    x = made(m,
             graph_linear_id(m->g, x,
                             new_weight(m, draw_type(m, f), 3, (uint32_t[]){n_expert, d, f}), ids),
             1000);
    const uint32_t how = draw(m, 4);
    if (how < 2) x = pointwise_on(m, m->pool[m->n_pool - 1]).v;
    if (how != 1) made(m, graph_weighted_sum(m->g, x, gates), 1000);
}

static void make_choice(maker *m) {
    const pooled *p = pick(m, 2, 1e6f);
    if (!p || at(m, p->v)->dim[1].extent) return;
    const graph_value x = p->v;
    const uint32_t d = at(m, x)->dim[1].size;
    graph_value ids = 0;
    switch (draw(m, 4)) {
    case 3: made(m, graph_sort(m->g, x, 1, GRAPH_SORT_LARGEST, &ids), p->most); break;
    case 0: made(m, graph_topk(m->g, x, 1 + draw(m, d < 9 ? d : 9), &ids), p->most); break;
    case 1: ids = graph_argmax(m->g, x); break;
    case 2:
        ids = graph_sample(
            m->g, x,
            graph_input(m->g, "settings", TYPE_U32, 2, (graph_dim[]){at(m, x)->dim[0], {8, 0}}));
        break;
    }
    keep(m, ids, 1, true);
}

static void make_chain(maker *m) {
    for (uint32_t i = 0, n = 2 + draw(m, 5); i < n && m->budget; i++) {
        if (draw(m, 2)) make_unary(m);
        else make_binary(m);
    }
    if (draw(m, 2)) make_row(m);
    if (draw(m, 3) == 0) make_choice(m);
}

static void make_gather(maker *m) {
    graph_value ids = 0, table = 0;
    for (uint32_t i = 0; i < m->n_pool && draw(m, 2); i++)
        if (m->pool[i].integer) ids = m->pool[i].v;
    if (!ids && draw(m, 3) == 0)
        ids = new_whole(m, 2, (graph_dim[]){rows_of(m), {1 + draw(m, 4), 0}});
    if (ids && at(m, ids)->rank == 2 && at(m, ids)->dim[1].size > 1 && draw(m, 3) == 0)
        ids = graph_narrow(m->g, ids, 1, 1, at(m, ids)->dim[1].size - 1, 1);
    if (!ids)
        ids = new_whole(
            m, 1,
            (graph_dim[]){draw(m, 2) ? rows_of(m)
                                     : (graph_dim){m->g->extents[m->others].bound, m->others}});
    const uint32_t d = draw_width(m), rows = 3 + draw(m, 30), how = draw(m, 4);
    const pooled *p = how == 0 ? pick(m, 2, 1e6f) : NULL;
    if (p && !at(m, p->v)->dim[0].extent && !at(m, p->v)->dim[1].extent) table = p->v;
    else if (how == 1) table = new_weight(m, TYPE_F32, 1, &rows);
    else table = new_weight(m, draw_type(m, d), 2, (uint32_t[]){rows, d});
    made(m, graph_gather_rows(m->g, table, ids, draw(m, 2) ? 1 : 0.5f), p ? p->most : 3);
}

/* Rows into a state, and from it. */
static void make_state(maker *m) {
    const pooled *p = pick(m, 1 + draw(m, 2), 100);
    if (!p || at(m, p->v)->dim[at(m, p->v)->rank - 1].extent !=
                  (at(m, p->v)->rank == 1 ? at(m, p->v)->dim[0].extent : 0))
        return;
    const graph_tensor t = *at(m, p->v);
    if (t.stride[t.rank - 1] != 1 && t.rank == 2) return;
    const uint32_t dims[2] = {t.dim[0].size + draw(m, 9), t.rank == 2 ? t.dim[1].size : 1};
    graph_value s = new_state(m, TYPE_F32, t.rank, dims);
    s = graph_set_rows(m->g, s, p->v, new_whole(m, 1, t.dim));
    if (draw(m, 2)) {
        made(m, graph_copy(m->g, s), p->most);
        return;
    }
    graph_value ids =
        new_whole(m, 1, (graph_dim[]){draw(m, 2) ? rows_of(m) : (graph_dim){1 + draw(m, 7), 0}});
    made(m, graph_gather_rows(m->g, s, ids, 1), p->most);
}

/* The same of whole numbers. */
static void make_whole_state(maker *m) {
    graph_value x = 0;
    for (uint32_t i = 0; i < m->n_pool && draw(m, 2); i++)
        if (m->pool[i].integer && at(m, m->pool[i].v)->rank == 1) x = m->pool[i].v;
    if (!x) x = new_whole(m, 1, (graph_dim[]){rows_of(m)});
    const graph_tensor t = *at(m, x);
    graph_value s = new_state(m, TYPE_I32, 1, (uint32_t[]){t.dim[0].size + draw(m, 9)});
    s = graph_set_rows(m->g, s, x, new_whole(m, 1, t.dim));
    if (m->budget) m->budget--;
    keep(m,
         graph_gather_rows(
             m->g, s,
             new_whole(m, 1,
                       (graph_dim[]){draw(m, 2) ? rows_of(m) : (graph_dim){1 + draw(m, 7), 0}}),
             1),
         50, true);
}

static void make_sum(maker *m) {
    const pooled *p = pick(m, 3, 100);
    if (!p)
        p = (new_input(m, 3, (graph_dim[]){rows_of(m), {1 + draw(m, 6), 0}, {draw_width(m), 0}}),
             &m->pool[m->n_pool - 1]);
    const pooled x = pointwise_on(m, *p);
    const graph_tensor t = *at(m, x.v);
    new_input(m, 2, t.dim);
    const pooled weights = pointwise_on(m, m->pool[m->n_pool - 1]);
    made(m, graph_weighted_sum(m->g, x.v, weights.v), x.most * weights.most * (float)t.dim[1].size);
    if (draw(m, 2)) pointwise_on(m, m->pool[m->n_pool - 1]);
}

static void make_turn(maker *m) {
    const pooled *p = pick(m, 3, 100);
    if (!p || at(m, p->v)->dim[2].size % 2 || at(m, p->v)->dim[2].extent) return;
    const graph_tensor t = *at(m, p->v);
    graph_value angles = graph_input(m->g, "angles", TYPE_F32, 3,
                                     (graph_dim[]){t.dim[0], {2, 0}, {t.dim[2].size / 2, 0}});
    made(m, graph_rope(m->g, p->v, angles), p->most * 2);
}

static const struct {
    void (*make)(maker *);
    uint32_t weight;
} makers[] = {
    {make_input, 1},     {make_unary, 3},   {make_row, 3},     {make_binary, 4},
    {make_chain, 2},     {make_view, 5},    {make_product, 2}, {make_gated, 1},
    {make_attention, 1}, {make_experts, 1}, {make_choice, 1},  {make_gather, 1},
    {make_state, 1},     {make_sum, 2},     {make_turn, 1},    {make_whole_state, 1},
    {make_map, 3},
};

/* ---- whole ----------------------------------------------------------------------------------- */

/* Some of what was made; what nothing reads rather than what something does. */
static void choose_outputs(maker *m) {
    uint32_t n = 0;
    for (int sure = 0; sure < 2; sure++)
        for (uint32_t i = m->n_pool; i-- > 0 && n < OUTPUTS_MAX;) {
            const graph_tensor *t = at(m, m->pool[i].v);
            if (t->base || t->role != ROLE_INTERMEDIATE || t->node == UINT32_MAX ||
                (!sure && m->pool[i].used && draw(m, 4)))
                continue;
            graph_output(m->g, m->pool[i].v, "y");
            n++;
        }
}

bool graph_random(base_text *out, uint64_t seed, uint32_t most) {
    base_heap heap;
    graph_store store;
    base_heap_init(&heap, NULL);
    store_init(&store, &heap, NULL, NULL, 0, NULL);
    maker m = {.random = {seed}, .g = graph_open(&heap), .store = &store};
    if (!m.g) return false;
    m.rows = graph_extent_add(m.g, "n", DRAW_OF(&m, 1, 1, 2, 3, 5, 8, 9, 17, 33));
    m.others = graph_extent_add(m.g, "m", 1 + draw(&m, 5));
    /* of most graphs computed ones instead */
    const graph_dim n = rows_of(&m), others = {m.g->extents[m.others].bound, m.others};
    if (seed % 4 == 1 || seed % 4 == 3)
        m.others = graph_dim_quotient(m.g, graph_dim_sum(m.g, n, others), 3).extent;
    if (seed % 4 > 1) {
        const graph_dim half = graph_dim_quotient(m.g, n, 2);
        m.rows = graph_dim_sum(m.g, graph_dim_product(m.g, half, others), (graph_dim){1, 0}).extent;
    }
    m.budget = 1 + draw(&m, most);
    m.wide = draw(&m, 3) == 0;
    m.square = draw(&m, 6) == 0;
    new_input(&m, 2, (graph_dim[]){rows_of(&m), {draw_width(&m), 0}});
    uint32_t total = 0;
    for (size_t i = 0; i < sizeof makers / sizeof *makers; i++) total += makers[i].weight;
    for (int i = 0; i < 200 && m.budget && m.g->error.code == BERYL_OK; i++) {
        uint32_t which = draw(&m, total), k = 0;
        while (which >= makers[k].weight) which -= makers[k++].weight;
        makers[k].make(&m);
    }
    choose_outputs(&m);
    beryl_error error = {0};
    bool good = graph_status(m.g, &error) == BERYL_OK &&
                graph_text_print(m.g, &store, out, &error) == BERYL_OK;
    if (!good) base_text_print(out, "; seed %llu: %s\n", (unsigned long long)seed, error.message);
    graph_close(m.g);
    store_fini(&store);
    return good;
}
