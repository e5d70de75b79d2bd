/* recurrent.c - layers with a state that each step changes: selective scan and gated delta rule.
 *
 * Made of operations that there are. A step is an affine map of the state, and such maps compose: a
 * scan joins each with what lies 1, 2, 4 .. steps before it, so the number of operations grows with
 * the logarithm of the steps. The delta rule does so with whole chunks of steps, whose inner
 * dependencies are a triangular system that is solved by doubling, as substitution does it: nothing
 * is divided, decays are at most 1. Refuses what does not fit, by name.
 *
 * Letters: t steps, e channels, n numbers of a channel's state; d, f sizes of keys and values; c
 * chunks, s steps of a chunk. */
#include "graph/shapes.h"

#include <string.h>

enum { CHUNK_MAX = 64 };

static const graph_tensor *at(const graph *g, graph_value v) {
    return graph_tensor_at(g, v);
}

/* What lies so many places before each element along an axis; zeros in front of the first. */
static graph_value before(graph *g, graph_value v, uint32_t axis, uint32_t by) {
    if (!v) return 0;
    const graph_dim n = at(g, v)->dim[axis];
    if (!n.extent) return graph_pad(g, graph_narrow(g, v, axis, 0, n.size - by, 1), axis, by, 0, 0);
    const graph_value place = graph_iota(g, v, axis);
    return graph_gather(g, v, graph_sub(g, place, graph_clamp(g, place, (float)by, (float)by)),
                        axis);
}

/* v, of size 1 along an axis, as its first of n elements; the others are 0. */
static graph_value as_first(graph *g, graph_value v, uint32_t axis, uint32_t n) {
    return n > 1 ? graph_pad(g, v, axis, 0, n - 1, 0) : v;
}

static graph_value last_of(graph *g, graph_value v, uint32_t axis, uint32_t n) {
    return graph_squeeze(g, graph_narrow(g, v, axis, n - 1, 1, 1), axis);
}

static base_type wide(base_type type) {
    return type == TYPE_F64 ? TYPE_F64 : TYPE_F32;
}

/* Are they floats of these shapes? NONE (0) is none. */
typedef struct wanted {
    graph_value v;
    const graph_dim *dims;
    uint32_t rank;
} wanted;

static bool fit(graph *g, const char *what, const wanted *all, uint32_t n) {
    for (uint32_t i = 0; i < n; i++) {
        const graph_tensor *t = at(g, all[i].v);
        char text[2][GRAPH_SHAPE_TEXT];
        if (!all[i].v) continue;
        bool fits = base_type_is_float(t->type) && t->rank == all[i].rank;
        for (uint32_t k = 0; fits && k < t->rank; k++)
            fits = graph_same_dim(t->dim[k], all[i].dims[k]);
        if (!fits)
            return graph_refuse(g, BERYL_MISUSE, "%s: input %u is %s%s, not floats %s", what, i,
                                base_type_name(t->type),
                                graph_shape_text(g, t->rank, t->dim, text[0]),
                                graph_shape_text(g, all[i].rank, all[i].dims, text[1]));
    }
    return true;
}

/* ---- selective scan -------------------------------------------------------------------------- */

graph_value graph_selective_scan(graph *g, const graph_selective *s, graph_value *last) {
    static const char what[] = "selective_scan";
    if (last) *last = 0;
    if (!graph_has(g, s->x, what) || !graph_has(g, s->dt, what) || !graph_has(g, s->a, what) ||
        !graph_has(g, s->b, what) || !graph_has(g, s->c, what) ||
        (s->d && !graph_has(g, s->d, what)) || (s->first && !graph_has(g, s->first, what)))
        return 0;
    const graph_tensor x = *at(g, s->x), a = *at(g, s->a);
    const uint32_t r = x.rank, t = r - 2u;
    if (r < 2 || r >= GRAPH_RANK_MAX || a.rank != 2)
        return graph_refuse(g, BERYL_MISUSE, "%s of rank %u and %u: [.., t, e] and [e, n]", what, r,
                            a.rank);
    graph_dim states[GRAPH_RANK_MAX], first[GRAPH_RANK_MAX];
    memcpy(states, x.dim, sizeof states);
    memcpy(first, x.dim, sizeof first);
    states[r - 1] = first[r - 1] = a.dim[1];
    first[t] = x.dim[r - 1];
    const graph_dim channels[] = {x.dim[r - 1], a.dim[1]};
    const wanted all[] = {{s->x, x.dim, r},    {s->dt, x.dim, r}, {s->a, channels, 2},
                          {s->b, states, r},   {s->c, states, r}, {s->d, channels, 1},
                          {s->first, first, r}};
    if (!fit(g, what, all, sizeof all / sizeof *all)) return 0;
    if (last && x.dim[t].extent)
        return graph_refuse(g, BERYL_UNSUPPORTED, "%s: the last state of steps that a run sizes",
                            what);
    const base_type type = wide(x.type);
    const graph_value in = graph_as(g, s->x, type), dt = graph_as(g, s->dt, type),
                      rates = graph_as(g, s->a, type);
    /* [.., t, e, n] */
    graph_value keep = graph_exp(g, graph_mul(g, graph_unsqueeze(g, dt, r), rates)),
                h = graph_mul(g, graph_unsqueeze(g, graph_mul(g, dt, in), r),
                              graph_unsqueeze(g, graph_as(g, s->b, type), r - 1));
    for (uint32_t by = 1; h && keep && by < x.dim[t].size; by *= 2) {
        h = graph_add(g, h, graph_mul(g, keep, before(g, h, t, by)));
        if (by < (x.dim[t].size + 1) / 2) keep = graph_mul(g, keep, before(g, keep, t, by));
    }
    if (h && s->first) {
        const graph_value so_far = graph_unsqueeze(g, graph_cumsum(g, dt, t), r),
                          from = graph_unsqueeze(g, graph_as(g, s->first, type), t);
        h = graph_add(g, h, graph_mul(g, graph_exp(g, graph_mul(g, so_far, rates)), from));
    }
    if (!h) return 0;
    if (last) *last = graph_as(g, last_of(g, h, t, x.dim[t].size), x.type);
    graph_value y = graph_mul(g, h, graph_unsqueeze(g, graph_as(g, s->c, type), r - 1));
    y = y ? graph_squeeze(g, graph_reduce(g, OP_SUM, y, 1u << r, 0), r) : 0;
    if (y && s->d) y = graph_add(g, y, graph_mul(g, in, graph_as(g, s->d, type)));
    return graph_as(g, y, x.type);
}

/* ---- gated delta rule ------------------------------------------------------------------------ */

/* 1 where row and column of the last two axes of m lie in one of the squares of such a size along
 * the diagonal; BOOL. */
static graph_value in_squares(graph *g, graph_value m, uint32_t size) {
    const uint32_t rank = at(g, m)->rank;
    graph_value place[2];
    for (uint32_t i = 0; i < 2; i++) {
        place[i] = graph_iota(g, m, rank - 2 + i);
        if (size > 1 && place[i])
            place[i] = graph_div(g, place[i], graph_clamp(g, place[i], (float)size, (float)size));
    }
    return graph_eq(g, place[0], place[1]);
}

static graph_value identity(graph *g, graph_value m) {
    return graph_as(g, in_squares(g, m, 1), at(g, m)->type);
}

static graph_value times(graph *g, graph_value a, graph_value b) {
    return graph_matmul(g, a, b, false, false);
}

/* The inverse of 1 + m, m [.., s, s] strictly below the diagonal, s a power of two: of squares of
 * twice the size from those of one, [[p, 0], [x, q]]: the corner is -q x p. */
static graph_value inverse(graph *g, graph_value m) {
    if (!m) return 0;
    const uint32_t size = at(g, m)->dim[at(g, m)->rank - 1u].size;
    graph_value y = identity(g, m);
    for (uint32_t s = 1; y && s < size; s *= 2) {
        const graph_value corners = graph_bit_xor(g, in_squares(g, m, s), in_squares(g, m, 2 * s));
        graph_value x = graph_mul(g, m, graph_as(g, corners, at(g, m)->type));
        if (s > 1) x = times(g, times(g, y, x), y);
        y = graph_sub(g, y, x);
    }
    return y;
}

/* x [.., t, rest] as [.., c, s, rest], zeros behind the last step. */
static graph_value in_chunks(graph *g, graph_value x, uint32_t axis, uint32_t c, uint32_t s,
                             base_type type) {
    x = graph_as(g, x, type);
    if (!x) return 0;
    const uint32_t n = at(g, x)->dim[axis].size;
    if (c * s > n) x = graph_pad(g, x, axis, 0, c * s - n, 0);
    if (!x) return 0;
    const graph_tensor t = *at(g, x);
    graph_dim dims[GRAPH_RANK_MAX + 1];
    memcpy(dims, t.dim, axis * sizeof *dims);
    dims[axis] = (graph_dim){c, 0};
    dims[axis + 1] = (graph_dim){s, 0};
    memcpy(dims + axis + 2, t.dim + axis + 1, (t.rank - axis - 1u) * sizeof *dims);
    return graph_reshape(g, x, t.rank + 1u, dims);
}

static bool fits_delta(graph *g, const char *what, const graph_delta *s) {
    if (!graph_has(g, s->q, what) || !graph_has(g, s->k, what) || !graph_has(g, s->v, what) ||
        !graph_has(g, s->decay, what) || !graph_has(g, s->beta, what) ||
        (s->first && !graph_has(g, s->first, what)))
        return false;
    const graph_tensor q = *at(g, s->q), v = *at(g, s->v);
    const uint32_t r = q.rank;
    if (r < 2 || r > GRAPH_RANK_MAX - 2 || v.rank != r)
        return graph_refuse(g, BERYL_MISUSE, "%s of ranks %u and %u: [.., t, d], from 2 to %u",
                            what, r, v.rank, (unsigned)GRAPH_RANK_MAX - 2);
    graph_dim values[GRAPH_RANK_MAX], first[GRAPH_RANK_MAX];
    memcpy(values, q.dim, sizeof values);
    memcpy(first, q.dim, sizeof first);
    values[r - 1] = first[r - 1] = v.dim[r - 1];
    first[r - 2] = q.dim[r - 1];
    const wanted all[] = {{s->q, q.dim, r},         {s->k, q.dim, r},        {s->v, values, r},
                          {s->decay, q.dim, r - 1}, {s->beta, q.dim, r - 1}, {s->first, first, r}};
    if (!fit(g, what, all, sizeof all / sizeof *all)) return false;
    return (!q.dim[r - 2].extent && !q.dim[r - 1].extent && !v.dim[r - 1].extent) ||
           graph_refuse(g, BERYL_UNSUPPORTED, "%s: steps or sizes of keys that a run says", what);
}

/* What chunks do to a state z [d, f]: z' = keep z + more; and what of it their values are. */
typedef struct chunks {
    graph_value near;       /* [.., c, s, s]: decays from a step to a later one, else 0 */
    graph_value since;      /* [.., c, s, 1]: decays from the chunk's begin to each step */
    graph_value own, other; /* [.., c, s, f], [.., c, s, d]: a step's value is own - other z */
    graph_value keep, more; /* [.., c, d, d], [.., c, d, f] */
} chunks;

static chunks chunks_of(graph *g, graph_value k, graph_value v, graph_value decay,
                        graph_value beta) {
    chunks m = {0};
    if (!k || !v || !decay || !beta) return m;
    const uint32_t r = at(g, decay)->rank, s = at(g, decay)->dim[r - 1].size;
    const graph_value logs = graph_cumsum(g, decay, r - 1),
                      all = graph_narrow(g, logs, r - 1, s - 1, 1, 1);
    graph_value apart = graph_sub(g, graph_unsqueeze(g, logs, r), graph_unsqueeze(g, logs, r - 1));
    m.near = graph_tril(g, graph_exp(g, graph_tril(g, apart, 0)), 0);
    m.since = graph_exp(g, graph_unsqueeze(g, logs, r));
    beta = graph_unsqueeze(g, beta, r);
    const graph_value pairs = graph_mul(g, graph_matmul(g, k, k, false, true), m.near);
    const graph_value solved = inverse(g, graph_tril(g, graph_mul(g, pairs, beta), -1));
    m.own = times(g, solved, graph_mul(g, v, beta));
    m.other = times(g, solved, graph_mul(g, k, graph_mul(g, m.since, beta)));
    const graph_value until = graph_exp(g, graph_unsqueeze(g, graph_sub(g, all, logs), r)),
                      keys = graph_mul(g, k, until);
    m.more = graph_matmul(g, keys, m.own, true, false);
    const graph_value less = graph_matmul(g, keys, m.other, true, false);
    if (less)
        m.keep = graph_sub(
            g, graph_mul(g, identity(g, less), graph_exp(g, graph_unsqueeze(g, all, r))), less);
    return m;
}

graph_value graph_gated_delta(graph *g, const graph_delta *d, graph_value *last) {
    static const char what[] = "gated_delta";
    if (last) *last = 0;
    if (!fits_delta(g, what, d)) return 0;
    const graph_tensor q = *at(g, d->q), v = *at(g, d->v);
    const uint32_t r = q.rank, axis = r - 2u, n = q.dim[axis].size;
    const base_type type = wide(q.type);
    uint32_t s = 1;
    while (s < CHUNK_MAX && s < n) s *= 2;
    const uint32_t c = n / s + (n % s != 0);
    const graph_value queries = in_chunks(g, d->q, axis, c, s, type),
                      keys = in_chunks(g, d->k, axis, c, s, type),
                      first = d->first ? graph_unsqueeze(g, graph_as(g, d->first, type), axis) : 0;
    chunks m = chunks_of(g, keys, in_chunks(g, d->v, axis, c, s, type),
                         in_chunks(g, d->decay, axis, c, s, type),
                         in_chunks(g, d->beta, axis, c, s, type));
    if (!m.keep || !m.more) return 0;
    if (first) {
        const graph_value kept = times(g, graph_narrow(g, m.keep, axis, 0, 1, 1), first);
        m.more = graph_add(g, m.more, as_first(g, kept, axis, c));
    }
    for (uint32_t by = 1; m.more && m.keep && by < c; by *= 2) {
        m.more = graph_add(g, m.more, times(g, m.keep, before(g, m.more, axis, by)));
        if (by < (c + 1) / 2) m.keep = times(g, m.keep, before(g, m.keep, axis, by));
    }
    if (last && m.more) *last = graph_as(g, last_of(g, m.more, axis, c), q.type);
    graph_value z = c > 1 ? before(g, m.more, axis, 1) : 0; /* at the begin of each chunk */
    if (first) z = z ? graph_add(g, z, as_first(g, first, axis, c)) : first;
    const graph_value scores = graph_mul(g, graph_matmul(g, queries, keys, false, true), m.near);
    graph_value values = m.own;
    if (z) values = graph_sub(g, values, times(g, m.other, z));
    graph_value y = times(g, scores, values);
    if (z) y = graph_add(g, y, times(g, graph_mul(g, queries, m.since), z));
    graph_dim dims[GRAPH_RANK_MAX];
    memcpy(dims, v.dim, sizeof dims);
    dims[axis].size = c * s;
    y = y ? graph_reshape(g, y, r, dims) : 0;
    if (y && c * s > n) y = graph_narrow(g, y, axis, 0, n, 1);
    return graph_as(g, y, q.type);
}
