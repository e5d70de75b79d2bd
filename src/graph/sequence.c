/* sequence.c - attention without a cache, along sequences and near by, and rotation by position:
 * made of products, softmax and views.
 *
 * Where a row's keys are a range, scaled dot products are one operation (OP_ATTENTION): heads and
 * the axes before them are its heads, so nothing is copied that lies by rows. Else scores are a
 * matrix in memory, F32 whatever the inputs are. */
#include "graph/shapes.h"

#include <float.h>
#include <math.h>
#include <string.h>

static uint32_t rank_of(const graph *g, graph_value v) {
    return graph_tensor_at(g, v)->rank;
}

static bool is_short_float(const graph_tensor *t) {
    return t->type == TYPE_F32 || t->type == TYPE_F16 || t->type == TYPE_BF16;
}

/* A 1 for each row: x's axes, but constant ones and the last are 1. Of any x, NaN too. */
static graph_value ones_of(graph *g, graph_value x) {
    const graph_tensor t = *graph_tensor_at(g, x);
    for (uint32_t i = 0; x && i < t.rank; i++)
        if (!t.dim[i].extent) x = graph_narrow(g, x, i, 0, 1, 1);
    const graph_value any = x ? graph_is_nan(g, x) : 0;
    return any ? graph_cast(g, graph_eq(g, any, any), TYPE_F32, false) : 0;
}

/* Those of ones_of as [.., rows, columns]. */
static graph_value plane_of(graph *g, graph_value ones, graph_dim rows, graph_dim columns) {
    const graph_tensor t = *graph_tensor_at(g, ones);
    graph_dim dims[GRAPH_RANK_MAX];
    memcpy(dims, t.dim, sizeof dims);
    dims[t.rank - 2] = rows;
    dims[t.rank - 1] = columns;
    return graph_expand(g, ones, t.rank, dims);
}

graph_value graph_attend_weights(graph *g, graph_value scores, graph_value visible) {
    if (!scores || !visible) return scores ? graph_softmax(g, scores) : 0;
    const graph_value low = graph_scale(g, graph_add_scalar(g, visible, -1), FLT_MAX);
    return graph_mul(g, graph_softmax(g, graph_add(g, scores, low)), visible);
}

/* ---- scaled dot products --------------------------------------------------------------------- */

/* With the axis of heads, the third from behind, in two: of so many, and what is left. */
static graph_value in_heads(graph *g, graph_value v, uint32_t heads) {
    graph_dim dims[GRAPH_RANK_MAX];
    const graph_tensor t = *graph_tensor_at(g, v);
    const uint32_t at = t.rank - 3u;
    memcpy(dims, t.dim, at * sizeof *dims);
    dims[at] = (graph_dim){heads, 0};
    dims[at + 1] = (graph_dim){t.dim[at].size / heads, 0};
    memcpy(dims + at + 2, t.dim + at + 1, 2 * sizeof *dims);
    return graph_reshape(g, v, t.rank + 1u, dims);
}

static graph_value with_heads(graph *g, graph_value v, graph_dim heads) {
    if (!v) return 0;
    graph_dim dims[GRAPH_RANK_MAX];
    const graph_tensor t = *graph_tensor_at(g, v);
    const uint32_t at = t.rank - 4u;
    memcpy(dims, t.dim, at * sizeof *dims);
    dims[at] = heads;
    memcpy(dims + at + 1, t.dim + at + 2, 2 * sizeof *dims);
    return graph_reshape(g, v, t.rank - 1u, dims);
}

static bool fits_sdpa(const graph_tensor *q, const graph_tensor *k, const graph_tensor *v) {
    const uint32_t r = q->rank;
    /* a product has two axes more: of groups and of depth */
    bool fits = r >= 3 && r <= GRAPH_RANK_MAX - 2 && k->rank == r && v->rank == r &&
                is_short_float(q) && k->type == q->type && v->type == q->type;
    for (uint32_t i = 0; fits && i + 3 < r; i++)
        fits = graph_same_dim(q->dim[i], k->dim[i]) && graph_same_dim(q->dim[i], v->dim[i]);
    return fits && !q->dim[r - 3].extent && !k->dim[r - 3].extent && k->dim[r - 3].size &&
           q->dim[r - 3].size % k->dim[r - 3].size == 0 &&
           graph_same_dim(k->dim[r - 3], v->dim[r - 3]) &&
           graph_same_dim(k->dim[r - 2], v->dim[r - 2]) &&
           graph_same_dim(q->dim[r - 1], k->dim[r - 1]) && !q->dim[r - 1].extent;
}

/* What rows see by their places: 1 or 0, [.., n_q, n_k]; 0: all. */
static graph_value visible_by_place(graph *g, graph_value q, graph_dim n_k, const graph_sdpa *how) {
    if (!how->causal && !how->window) return 0;
    const graph_tensor *t = graph_tensor_at(g, q);
    const graph_dim n_q = t->dim[t->rank - 2];
    const graph_value ones = ones_of(g, q);
    const graph_value plane = ones ? plane_of(g, ones, n_q, n_k) : 0;
    if (!plane) return 0;
    const graph_value before = how->causal ? graph_tril(g, plane, how->first) : 0,
                      after = how->window
                                  ? graph_triu(g, plane, how->first - (int32_t)how->window + 1)
                                  : 0;
    return before && after ? graph_mul(g, before, after) : before ? before : after;
}

/* ---- the same in one operation --------------------------------------------------------------- */

enum { JOINED_UNIT = 8, JOINED_DIM_MAX = 512, JOINED_HEADS_MAX = 65535 };
#define JOINED_PLACE_MAX (1 << 24) /* exact in F32 */
#define JOINED_LAST 1e9f           /* beyond every column, exact */

/* Heads of q, those of the axes before them too; 0: it does not fit. */
static uint32_t joined_heads(const graph_tensor *q, const graph_tensor *k, const graph_tensor *v,
                             const graph_sdpa *how) {
    const uint32_t r = q->rank, d = q->dim[r - 1].size;
    uint64_t heads = 1;
    for (uint32_t i = 0; i + 2 < r && heads <= JOINED_HEADS_MAX; i++) {
        if (q->dim[i].extent) return 0;
        heads *= q->dim[i].size;
    }
    const bool fits = how->cap == 0 && graph_same_dim(v->dim[r - 1], q->dim[r - 1]) && d &&
                      d % JOINED_UNIT == 0 && d <= JOINED_DIM_MAX && q->dim[r - 2].size &&
                      k->dim[r - 2].size && heads <= JOINED_HEADS_MAX &&
                      q->dim[r - 2].size < JOINED_PLACE_MAX && how->window < JOINED_PLACE_MAX &&
                      how->first < JOINED_PLACE_MAX && how->first > -JOINED_PLACE_MAX;
    return fits ? (uint32_t)heads : 0;
}

/* x [.., h, n, d] as [n, heads, d]. */
static graph_value by_rows(graph *g, graph_value x, uint32_t heads) {
    const graph_tensor t = *graph_tensor_at(g, x);
    const uint32_t r = t.rank;
    uint32_t axes[GRAPH_RANK_MAX] = {r - 2u};
    for (uint32_t i = 0; i + 2 < r; i++) axes[1 + i] = i;
    axes[r - 1] = r - 1u;
    x = graph_permute(g, x, r, axes);
    return x ? graph_reshape(g, x, 3, (graph_dim[]){t.dim[r - 2], {heads, 0}, t.dim[r - 1]}) : 0;
}

/* What a store holds is a cache to attention: a copy of it is not. */
static graph_value of_run(graph *g, graph_value x) {
    const bool stored = x && graph_tensor_at(g, graph_base_of(g, x))->role == ROLE_STORED;
    return stored ? graph_copy(g, x) : x;
}

/* The place of each row of q, I32 [n]. */
static graph_value places_of(graph *g, graph_value q) {
    const graph_tensor t = *graph_tensor_at(g, q);
    for (uint32_t i = 0; q && i < t.rank; i++)
        if (i + 2u != t.rank) q = graph_narrow(g, q, i, 0, 1, 1);
    q = q ? graph_reshape(g, q, 1, &t.dim[t.rank - 2]) : 0;
    return q ? graph_iota(g, q, 0) : 0;
}

static graph_value constant(graph *g, graph_value places, float n) {
    return places ? graph_clamp(g, places, n, n) : 0;
}

static graph_value plus(graph *g, graph_value places, int32_t n) {
    const graph_value number = n && places ? constant(g, places, (float)n) : 0;
    return number ? graph_add(g, places, number) : n ? 0 : places;
}

static graph_value joined(graph *g, graph_value q, graph_value k, graph_value v, uint32_t heads,
                          float scale, const graph_sdpa *how) {
    const graph_tensor t = *graph_tensor_at(g, q);
    const uint32_t r = t.rank,
                   keys = heads / t.dim[r - 3].size * graph_tensor_at(g, k)->dim[r - 3].size;
    const graph_value places = places_of(g, q), slot = constant(g, places, 0);
    const graph_value last =
        how->causal ? plus(g, places, how->first) : constant(g, places, JOINED_LAST);
    const graph_value first =
        how->window ? plus(g, places, how->first - (int32_t)how->window + 1) : 0;
    q = by_rows(g, graph_as(g, q, TYPE_F32), heads);
    k = by_rows(g, t.type == TYPE_BF16 ? graph_as(g, k, TYPE_F32) : k, keys);
    v = by_rows(g, t.type == TYPE_BF16 ? graph_as(g, v, TYPE_F32) : v, keys);
    if (!slot || !last || (how->window && !first) || !q || !k || !v) return 0;
    k = graph_unsqueeze(g, of_run(g, k), 0);
    v = graph_unsqueeze(g, of_run(g, v), 0);
    graph_value y = first ? graph_attention_range(g, q, k, v, slot, first, last, scale)
                          : graph_attention(g, q, k, v, slot, last, scale, 0);
    graph_dim dims[GRAPH_RANK_MAX] = {t.dim[r - 2]};
    uint32_t axes[GRAPH_RANK_MAX];
    for (uint32_t i = 0; i + 2 < r; i++) dims[1 + i] = t.dim[i], axes[i] = i + 1;
    dims[r - 1] = t.dim[r - 1], axes[r - 2] = 0, axes[r - 1] = r - 1u;
    y = y ? graph_reshape(g, y, r, dims) : 0;
    y = y ? graph_permute(g, y, r, axes) : 0;
    return y ? graph_as(g, y, t.type) : 0;
}

graph_value graph_attend(graph *g, graph_value q, graph_value k, graph_value v, graph_value mask,
                         const graph_sdpa *how) {
    if (!graph_has(g, q, "sdpa") || !graph_has(g, k, "sdpa") || !graph_has(g, v, "sdpa")) return 0;
    if (mask && !graph_has(g, mask, "sdpa")) return 0;
    char text[3][GRAPH_SHAPE_TEXT];
    const graph_tensor a = *graph_tensor_at(g, q), b = *graph_tensor_at(g, k),
                       c = *graph_tensor_at(g, v);
    if (!fits_sdpa(&a, &b, &c))
        return graph_refuse(g, BERYL_MISUSE, "sdpa of %s, %s and %s: types or shapes do not fit",
                            graph_shape_text(g, a.rank, a.dim, text[0]),
                            graph_shape_text(g, b.rank, b.dim, text[1]),
                            graph_shape_text(g, c.rank, c.dim, text[2]));
    if (mask && graph_tensor_at(g, mask)->type != TYPE_BOOL &&
        !is_short_float(graph_tensor_at(g, mask)))
        return graph_refuse(g, BERYL_MISUSE, "sdpa: a mask is BOOL, F32, F16 or BF16");
    if (how->window > INT32_MAX / 2 || how->first > INT32_MAX / 2 || how->first < -INT32_MAX / 2)
        return graph_refuse(g, BERYL_UNSUPPORTED, "sdpa: a window or first place above 2^30");
    const graph_dim heads = a.dim[a.rank - 3];
    const uint32_t groups = b.dim[a.rank - 3].size;
    const bool grouped = groups != heads.size;
    const float scale = how->scale != 0 ? how->scale : 1 / sqrtf((float)a.dim[a.rank - 1].size);
    const uint32_t all = mask ? 0 : joined_heads(&a, &b, &c, how);
    if (all) return joined(g, q, k, v, all, scale, how);
    graph_value visible = visible_by_place(g, q, b.dim[a.rank - 2], how);
    q = graph_scale(g, graph_as(g, q, TYPE_F32), scale);
    k = graph_as(g, k, TYPE_F32);
    v = graph_as(g, v, TYPE_F32);
    if (!q || !k || !v) return 0;
    if (grouped) {
        q = in_heads(g, q, groups);
        k = graph_unsqueeze(g, k, a.rank - 2u);
        v = graph_unsqueeze(g, v, a.rank - 2u);
    }
    if (!q || !k || !v) return 0;
    graph_value scores = graph_matmul(g, q, k, false, true);
    if (grouped) scores = with_heads(g, scores, heads);
    if (scores && how->cap != 0) scores = graph_softcap(g, scores, how->cap);
    if (scores && mask && graph_tensor_at(g, mask)->type == TYPE_BOOL) {
        mask = graph_as(g, mask, TYPE_F32);
        visible = visible ? graph_mul(g, visible, mask) : mask;
    } else if (scores && mask) {
        scores = graph_add(g, scores, graph_as(g, mask, TYPE_F32));
    }
    graph_value weights = graph_attend_weights(g, scores, visible);
    if (weights && rank_of(g, weights) != a.rank)
        return graph_refuse(g, BERYL_MISUSE, "sdpa: a mask with more axes than the scores");
    for (uint32_t i = 0; weights && i < a.rank; i++) {
        const graph_dim d = graph_tensor_at(g, weights)->dim[i];
        if (!graph_same_dim(d, i + 1 < a.rank ? a.dim[i] : b.dim[a.rank - 2]))
            return graph_refuse(g, BERYL_MISUSE, "sdpa: a mask that is larger than the scores");
    }
    if (weights && grouped) weights = in_heads(g, weights, groups);
    graph_value y = weights ? graph_matmul(g, weights, v, false, false) : 0;
    if (grouped) y = with_heads(g, y, heads);
    return graph_as(g, y, a.type);
}

/* ---- near by --------------------------------------------------------------------------------- */

/* x [.., n, d] as [.., n, d, size]: of each row itself, the one before, and so on; zeros in front
 * of the first. */
static graph_value before_each(graph *g, graph_value x, uint32_t size) {
    const uint32_t rank = rank_of(g, x);
    if (size > 1) x = graph_pad(g, x, rank - 2, size - 1, 0, 0);
    if (x) x = graph_windows(g, x, rank - 2, size, 1);
    return x ? graph_flip(g, x, rank) : 0;
}

graph_value graph_local_attention(graph *g, graph_value q, graph_value k, graph_value v,
                                  graph_value far, uint32_t window, float scale, float cap) {
    static const char what[] = "local_attention";
    if (!graph_has(g, q, what) || !graph_has(g, k, what) || !graph_has(g, v, what)) return 0;
    if (far && !graph_has(g, far, what)) return 0;
    char text[4][GRAPH_SHAPE_TEXT];
    const graph_tensor a = *graph_tensor_at(g, q), b = *graph_tensor_at(g, k),
                       c = *graph_tensor_at(g, v), r = *graph_tensor_at(g, far ? far : q);
    bool fits = a.rank >= 2 && a.rank <= GRAPH_RANK_MAX - 2 && b.rank == a.rank &&
                c.rank == a.rank && is_short_float(&a) && b.type == a.type && c.type == a.type &&
                window && window <= UINT16_MAX && !a.dim[a.rank - 1].extent;
    for (uint32_t i = 0; fits && i < a.rank; i++)
        fits = graph_same_dim(a.dim[i], b.dim[i]) &&
               (i + 1u == a.rank || graph_same_dim(a.dim[i], c.dim[i]));
    if (fits && far)
        fits = r.type == a.type && r.rank >= 2 && r.rank <= a.rank &&
               graph_same_dim(r.dim[r.rank - 2], (graph_dim){window, 0}) &&
               graph_same_dim(r.dim[r.rank - 1], a.dim[a.rank - 1]);
    if (!fits)
        return graph_refuse(g, BERYL_MISUSE,
                            "%s over %u of %s, %s, %s%s%s: types or shapes do not fit", what,
                            window, graph_shape_text(g, a.rank, a.dim, text[0]),
                            graph_shape_text(g, b.rank, b.dim, text[1]),
                            graph_shape_text(g, c.rank, c.dim, text[2]), far ? " and " : "",
                            far ? graph_shape_text(g, r.rank, r.dim, text[3]) : "");
    const uint32_t rows = a.rank - 2u;
    graph_value visible = ones_of(g, q);
    visible = visible ? plane_of(g, visible, a.dim[rows], (graph_dim){window, 0}) : 0;
    if (visible) visible = graph_tril(g, visible, 0); /* row i has i rows before it */
    q = graph_scale(g, graph_as(g, q, TYPE_F32), scale);
    k = before_each(g, graph_as(g, k, TYPE_F32), window);
    v = before_each(g, graph_as(g, v, TYPE_F32), window);
    if (!visible || !q || !k || !v) return 0;
    /* a row each: [.., n, 1, d] times [.., n, d, window] */
    graph_value scores = graph_matmul(g, graph_unsqueeze(g, q, rows + 1), k, false, false);
    scores = scores ? graph_squeeze(g, scores, rows + 1) : 0;
    if (scores && far)
        scores = graph_add(g, scores, graph_matmul(g, q, graph_as(g, far, TYPE_F32), false, true));
    if (scores && cap != 0) scores = graph_softcap(g, scores, cap);
    const graph_value weights = graph_attend_weights(g, scores, visible);
    if (!weights) return 0;
    const graph_value y = graph_matmul(g, graph_unsqueeze(g, weights, rows + 1), v, false, true);
    return y ? graph_as(g, graph_squeeze(g, y, rows + 1), a.type) : 0;
}

/* ---- rotation -------------------------------------------------------------------------------- */

graph_value graph_rotate(graph *g, graph_value x, uint32_t n, const graph_value *cosines,
                         const graph_value *sines, bool pairs) {
    if (!graph_has(g, x, "rotate")) return 0;
    const graph_tensor t = *graph_tensor_at(g, x);
    if (!graph_is_type('f', t.type))
        return graph_refuse(g, BERYL_MISUSE, "rotate of %s, not of floats", base_type_name(t.type));
    if (!n || n > GRAPH_ROTATE_MAX || !t.rank || t.dim[t.rank - 1].extent)
        return graph_refuse(g, BERYL_MISUSE, "rotate: 1 to %u parts of a constant last axis",
                            (unsigned)GRAPH_ROTATE_MAX);
    const uint32_t last = t.rank - 1u, size = t.dim[last].size;
    const base_type wide = t.type == TYPE_F16 || t.type == TYPE_BF16 ? TYPE_F32 : t.type;
    graph_value parts[2 * GRAPH_ROTATE_MAX + 1];
    uint32_t at = 0, made = 0;
    x = graph_as(g, x, wide);
    for (uint32_t i = 0; i < n; i++) {
        if (!graph_has(g, cosines[i], "rotate") || !graph_has(g, sines[i], "rotate")) return 0;
        const graph_tensor a = *graph_tensor_at(g, cosines[i]), b = *graph_tensor_at(g, sines[i]);
        const uint32_t half = a.rank ? a.dim[a.rank - 1].size : 0;
        if (!graph_same_shape(&a, &b) || !graph_is_type('f', a.type) ||
            !graph_is_type('f', b.type) || a.rank > t.rank || !half || a.dim[a.rank - 1].extent ||
            half > (size - at) / 2)
            return graph_refuse(g, BERYL_MISUSE, "rotate: angles of part %u do not fit", i);
        const graph_value c = graph_as(g, cosines[i], wide), s = graph_as(g, sines[i], wide);
        const graph_value p = graph_narrow(g, x, last, at, half, pairs ? 2 : 1),
                          q = graph_narrow(g, x, last, pairs ? at + 1 : at + half, half,
                                           pairs ? 2 : 1);
        if (!c || !s || !p || !q) return 0;
        const graph_value turned[2] = {graph_sub(g, graph_mul(g, p, c), graph_mul(g, q, s)),
                                       graph_add(g, graph_mul(g, p, s), graph_mul(g, q, c))};
        if (pairs) {
            graph_dim dims[GRAPH_RANK_MAX];
            memcpy(dims, t.dim, sizeof dims);
            dims[last] = (graph_dim){2 * half, 0};
            const graph_value both = graph_stack(g, 2, turned, last + 1);
            parts[made++] = both ? graph_reshape(g, both, t.rank, dims) : 0;
        } else {
            parts[made++] = turned[0];
            parts[made++] = turned[1];
        }
        at += 2 * half;
    }
    if (at < size) parts[made++] = graph_narrow(g, x, last, at, size - at, 1);
    for (uint32_t i = 0; i < made; i++)
        if (!parts[i]) return 0;
    return graph_as(g, made > 1 ? graph_concat(g, made, parts, last) : parts[0], t.type);
}
