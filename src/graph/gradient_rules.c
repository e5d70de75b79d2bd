/* gradient_rules.c - rules of operations that are not pointwise, and the table of all.
 *
 * Letters: x, w inputs, d the gradient of the result, r the result. Each rule is made of graph
 * operations. What scatters does so in one order, so gradients are the same bits in every run. */
#include "graph/gradient.h"
#include "base/build.h"

#include "beryl_graph.h"

#include <string.h>

static const graph_tensor *at(const gradient *s, graph_value v) {
    return graph_tensor_at(s->g, v);
}

/* Over axes, which stay with size 1. */
static graph_value summed(gradient *s, graph_value v, uint32_t axes) {
    return axes ? graph_reduce(s->g, OP_SUM, v, axes, 0) : v;
}

static graph_value mean(gradient *s, graph_value v, uint32_t axes) {
    return graph_reduce(s->g, OP_MEAN, v, axes, 0);
}

static void through_cast(gradient *s, const graph_node *node, graph_value d) {
    gradient_add(s, node->in[0], d);
}

static void through_where(gradient *s, const graph_node *node, graph_value d) {
    graph *g = s->g;
    const graph_value is = node->in[0];
    if (gradient_wants(s, node->in[1])) gradient_add(s, node->in[1], gradient_where(g, is, d));
    if (gradient_wants(s, node->in[2]))
        gradient_add(s, node->in[2], gradient_where(g, graph_logical_not(g, is), d));
}

/* ---- reductions ------------------------------------------------------------------------------ */

static void through_sum(gradient *s, const graph_node *node, graph_value d) {
    gradient_add(s, node->in[0], d);
}

/* By how many elements there are, less the correction: a value where a run says it. */
static void through_mean(gradient *s, const graph_node *node, graph_value d) {
    graph *g = s->g;
    graph_tensor t = *at(s, node->in[0]);
    const uint32_t axes = node->attr.mean.axes, correction = node->attr.mean.correction;
    double fixed = 1;
    uint32_t varying = 0;
    for (uint32_t i = 0; i < t.rank; i++) {
        if (!(axes >> i & 1)) t.dim[i] = (graph_dim){1, 0};
        else if (t.dim[i].extent) varying |= 1u << i;
        else fixed *= t.dim[i].size;
        if (axes >> i & 1 && !t.dim[i].extent) t.dim[i].size = 1;
    }
    if (!varying) {
        const double factor = fixed > correction ? 1 / (fixed - correction) : 0;
        gradient_add(s, node->in[0], graph_scale(g, d, (float)factor));
        return;
    }
    const base_type wide = t.type == TYPE_F64 ? TYPE_F64 : TYPE_F32;
    graph_value n = graph_expand(g, gradient_number(s, fixed, wide), t.rank, t.dim);
    n = summed(s, n, varying);
    if (correction) n = graph_add_scalar(g, n, -(float)correction);
    gradient_add(s, node->in[0], graph_div(g, graph_as(s->g, d, wide), n));
}

/* The products of the elements before each along the axis, or behind each. */
static graph_value product_of_others(gradient *s, graph_value x, uint32_t axis, bool behind) {
    graph *g = s->g;
    if (!x) return 0;
    const graph_dim n = at(s, x)->dim[axis];
    if (!n.extent) return graph_scan(g, x, axis, OP_CUMPROD, true, behind);
    /* [.., i, k]: element k where it counts for i, else 1 */
    x = gradient_turned(g, x, axis, false);
    graph_tensor t = *at(s, x);
    const uint32_t last = t.rank - 1u;
    t.dim[last + 1] = n;
    x = graph_expand(g, graph_unsqueeze(g, x, last), t.rank + 1u, t.dim);
    const graph_value ones = x ? gradient_fill(s, 1, x) : 0;
    x = behind ? graph_add(g, graph_triu(g, x, 1), graph_tril(g, ones, 0))
               : graph_add(g, graph_tril(g, x, -1), graph_triu(g, ones, 0));
    x = graph_reduce(g, OP_PROD, x, 1u << (last + 1), 0);
    return gradient_turned(g, graph_squeeze(g, x, last + 1), axis, true);
}

/* An axis after another; no division, so zeros are as good as other numbers. */
static void through_prod(gradient *s, const graph_node *node, graph_value d) {
    graph *g = s->g;
    graph_value x[GRAPH_RANK_MAX];
    uint32_t axes[GRAPH_RANK_MAX], n = 0;
    graph_value v = graph_wide(s->g, node->in[0]);
    for (uint32_t i = 0; i < GRAPH_RANK_MAX; i++) {
        if (!(node->attr.prod.axes >> i & 1)) continue;
        x[n] = v;
        axes[n++] = i;
        v = graph_reduce(g, OP_PROD, v, 1u << i, 0);
    }
    d = graph_wide(s->g, d);
    while (n-- > 0)
        d = graph_mul(g, d,
                      graph_mul(g, product_of_others(s, x[n], axes[n], false),
                                product_of_others(s, x[n], axes[n], true)));
    gradient_add(s, node->in[0], d);
}

/* In equal parts to all that are the largest (amax) or smallest. */
static void through_extreme(gradient *s, const graph_node *node, graph_value d) {
    graph *g = s->g;
    const base_type type = at(s, node->in[0])->type, wide = type == TYPE_F64 ? TYPE_F64 : TYPE_F32;
    const graph_value is = graph_eq(g, node->in[0], node->out[0]),
                      n = summed(s, graph_cast(g, is, wide, false), node->attr.amax.axes);
    gradient_add(s, node->in[0], gradient_where(g, is, graph_div(g, graph_as(s->g, d, wide), n)));
}

/* ---- scans ----------------------------------------------------------------------------------- */

static void through_cumsum(gradient *s, const graph_node *node, graph_value d) {
    graph *g = s->g;
    const uint32_t axis = node->attr.cumsum.axis;
    d = graph_wide(s->g, d);
    if (!at(s, d)->dim[axis].extent) {
        gradient_add(s, node->in[0], graph_scan(g, d, axis, OP_CUMSUM, false, true));
        return;
    }
    const graph_value before = graph_sub(g, graph_cumsum(g, d, axis), d);
    gradient_add(s, node->in[0], graph_sub(g, summed(s, d, 1u << axis), before));
}

/* Element i: the product before it times the sum over j from i on of d[j] x[i + 1] .. x[j]; memory
 * is the square of the axis. */
static void through_cumprod(gradient *s, const graph_node *node, graph_value d) {
    graph *g = s->g;
    const uint32_t axis = node->attr.cumprod.axis;
    graph_value x = graph_wide(s->g, node->in[0]);
    const graph_value before = product_of_others(s, x, axis, false);
    x = gradient_turned(g, x, axis, false);
    d = gradient_turned(g, graph_wide(s->g, d), axis, false);
    if (!x || !d) return;
    graph_tensor t = *at(s, x);
    const uint32_t last = t.rank - 1u;
    t.dim[last + 1] = t.dim[last];
    const graph_value rows = graph_expand(g, graph_unsqueeze(g, x, last), t.rank + 1u, t.dim);
    if (!rows) return;
    graph_value m =
        graph_add(g, graph_triu(g, rows, 1), graph_tril(g, gradient_fill(s, 1, rows), 0));
    m = graph_triu(g, graph_cumprod(g, m, last + 1), 0);
    graph_value v = summed(s, graph_mul(g, m, graph_unsqueeze(g, d, last)), 1u << (last + 1));
    v = gradient_turned(g, graph_squeeze(g, v, last + 1), axis, true);
    gradient_add(s, node->in[0], graph_mul(g, before, v));
}

enum { PLACES_MAX = 1 << 24 /* whole numbers of F32 */ };

static bool can_count(gradient *s, const graph_node *node, graph_dim n) {
    return n.size <= PLACES_MAX ||
           graph_refuse(s->g, BERYL_UNSUPPORTED, "gradient of %s along more than 2^24 elements",
                        graph_op_name(node->op));
}

/* To the last element so far that is as large (cummax) or small as the result. */
static void through_cummax(gradient *s, const graph_node *node, graph_value d) {
    graph *g = s->g;
    const graph_value x = node->in[0];
    const uint32_t axis = node->attr.cummax.axis;
    if (!can_count(s, node, at(s, x)->dim[axis])) return;
    graph_value place = graph_cast(g, graph_iota(g, x, axis), TYPE_F32, false);
    place = gradient_where(g, graph_eq(g, x, node->out[0]), place);
    place = graph_cast(g, graph_cummax(g, place, axis), TYPE_I32, false);
    gradient_add(s, x, graph_scatter_add(g, gradient_fill(s, 0, x), place, d, axis));
}

/* ---- rows ------------------------------------------------------------------------------------ */

/* r (d - sum(d r)) */
static graph_value softmax_slope(gradient *s, graph_value r, graph_value d, uint32_t axes) {
    graph *g = s->g;
    return graph_mul(g, r, graph_sub(g, d, summed(s, graph_mul(g, d, r), axes)));
}

static void through_softmax(gradient *s, const graph_node *node, graph_value d) {
    const uint32_t axes = 1u << (at(s, d)->rank - 1u);
    gradient_add(s, node->in[0],
                 softmax_slope(s, graph_wide(s->g, node->out[0]), graph_wide(s->g, d), axes));
}

/* x as groups, an axis of their own. */
static graph_value in_groups(gradient *s, graph_value x, const graph_tensor *groups) {
    return groups->rank == at(s, x)->rank ? x : graph_reshape(s->g, x, groups->rank, groups->dim);
}

/* A number for each channel, broadcast against x: [c] along its last axis, or of groups, [groups,
 * c / groups, 1 ..]. */
static graph_value of_channels(gradient *s, graph_value w, const graph_tensor *x, bool grouped) {
    graph_dim dims[GRAPH_RANK_MAX];
    if (!grouped) return w;
    for (uint32_t i = 1; i < x->rank; i++) dims[i - 1] = i < 3 ? x->dim[i] : (graph_dim){1, 0};
    return graph_reshape(s->g, w, x->rank - 1u, dims);
}

/* rms_norm, layer_norm, group_norm: (x less its mean) / deviation over axes, times w, plus a bias.
 * The way to x is one tree of rows; what w gets is made of x again, so that no other matrix is kept
 * for it. */
static void through_norm(gradient *s, const graph_node *node, graph_value d) {
    graph *g = s->g;
    const graph_tensor x = *at(s, node->in[0]);
    const bool grouped = node->op == OP_GROUP_NORM, centred = node->op != OP_RMS_NORM;
    const float eps = grouped ? node->attr.group_norm.eps : node->attr.rms_norm.eps;
    graph_tensor t = x;
    uint32_t axes = 1u << (x.rank - 1u), channels = axes;
    if (grouped) {
        const uint32_t groups = node->attr.group_norm.groups;
        t.rank++;
        t.dim[1] = (graph_dim){groups, 0};
        t.dim[2] = (graph_dim){x.dim[1].size / groups, 0};
        memcpy(t.dim + 3, x.dim + 2, (x.rank - 2u) * sizeof *x.dim);
        axes = ((1u << t.rank) - 1) & ~3u;
        channels = 6;
    }
    const graph_value all = in_groups(s, graph_wide(s->g, node->in[0]), &t),
                      middle = centred ? mean(s, all, axes) : 0,
                      v = centred ? graph_sub(g, all, middle) : all,
                      squares = mean(s, graph_square(g, v), axes),
                      over = graph_rsqrt(g, graph_add_scalar(g, squares, eps));
    d = in_groups(s, graph_wide(s->g, d), &t);
    if (!over || !d) return;
    if (gradient_wants(s, node->in[0])) {
        graph_value e = d;
        if (node->n_in > 1) {
            const graph_value w = graph_as(g, node->in[1], at(s, d)->type);
            e = graph_mul(g, d, of_channels(s, w, &t, grouped));
        }
        const graph_value product = mean(s, graph_mul(g, e, v), axes),
                          cube = graph_mul(g, over, graph_square(g, over)),
                          slope = graph_mul(g, product, cube);
        if (centred) e = graph_sub(g, e, mean(s, e, axes));
        e = graph_sub(g, graph_mul(g, e, over), graph_mul(g, v, slope));
        gradient_add(s, node->in[0], grouped ? graph_reshape(g, e, x.rank, x.dim) : e);
    }
    const uint32_t others = ((1u << t.rank) - 1) & ~channels;
    for (uint32_t k = 1; k < node->n_in; k++) {
        if (!gradient_wants(s, node->in[k])) continue;
        graph_value each = d;
        if (k == 1) {
            const graph_value again = centred ? graph_sub(g, all, middle) : all;
            each = graph_mul(g, d, graph_mul(g, again, over));
        }
        each = graph_without(g, summed(s, each, others), others);
        gradient_add(s, node->in[k], grouped && each ? graph_reshape(g, each, 1, &x.dim[1]) : each);
    }
}

/* ---- movement -------------------------------------------------------------------------------- */

static void through_pad(gradient *s, const graph_node *node, graph_value d) {
    gradient_add(s, node->in[0],
                 gradient_part(s, d, node->attr.pad.axis, node->attr.pad.before, 0, node->in[0]));
}

static void through_concat(gradient *s, const graph_node *node, graph_value d) {
    graph *g = s->g;
    const uint32_t axis = node->attr.concat.axis;
    uint32_t start = 0;
    graph_value first = 0; /* what a run says of it */
    for (uint32_t k = 0; k < node->n_in; k++) {
        const graph_value x = node->in[k];
        if (gradient_wants(s, x)) gradient_add(s, x, gradient_part(s, d, axis, start, first, x));
        graph_tensor t = *at(s, x);
        if (!t.dim[axis].extent) {
            start += t.dim[axis].size;
            continue;
        }
        for (uint32_t i = 0; i < t.rank; i++)
            if (i != axis) t.dim[i] = (graph_dim){1, 0};
        const graph_value ones = graph_expand(g, gradient_number(s, 1, TYPE_I32), t.rank, t.dim),
                          n = summed(s, ones, 1u << axis);
        first = first ? graph_add(g, first, n) : n;
    }
}

static void through_triangle(gradient *s, const graph_node *node, graph_value d) {
    const int32_t diagonal = node->attr.tril.diagonal; /* the same place as triu's */
    gradient_add(s, node->in[0],
                 node->op == OP_TRIL ? graph_tril(s->g, d, diagonal)
                                     : graph_triu(s->g, d, diagonal));
}

/* 0 to n - 1: one list for all of this pass that ask. */
static graph_value places(gradient *s, graph_dim n) {
    graph *g = s->g;
    for (size_t i = g->nodes.count; i-- > 0;) {
        const graph_node *node = &g->nodes.data[i];
        const graph_tensor *t = at(s, node->out[0]);
        if (node->out[0] < s->count) break;
        if (node->op == OP_IOTA && t->rank == 1 && graph_same_dim(t->dim[0], n))
            return node->out[0];
    }
    return graph_iota(g, graph_expand(g, gradient_number(s, 1, TYPE_F32), 1, &n), 0);
}

/* By the matrix [new size, size] that it is along its axis. */
static void through_resize(gradient *s, const graph_node *node, graph_value d) {
    graph *g = s->g;
    const uint32_t axis = node->attr.resize.axis;
    const graph_dim n = at(s, node->in[0])->dim[axis];
    d = graph_wide(s->g, d);
    graph_value m = graph_one_hot(g, places(s, n), n.size);
    m = graph_as(s->g, m, at(s, d)->type);
    m = graph_resize(g, m, 0, node->attr.resize.size, node->attr.resize.how);
    d = graph_matmul(g, gradient_turned(g, d, axis, false), m, false, false);
    gradient_add(s, node->in[0], gradient_turned(g, d, axis, true));
}

static void through_gather(gradient *s, const graph_node *node, graph_value d) {
    const graph_value x = node->in[0];
    gradient_add(
        s, x,
        graph_scatter_add(s->g, gradient_fill(s, 0, x), node->in[1], d, node->attr.gather.axis));
}

/* Ids that are out of range as 0. */
static graph_value inside(gradient *s, graph_value ids, uint32_t n) {
    graph *g = s->g;
    const graph_value is = graph_eq(g, ids, graph_clamp(g, ids, 0, (float)(n - 1)));
    return gradient_where(g, is, ids);
}

static void through_gather_rows(gradient *s, const graph_node *node, graph_value d) {
    graph *g = s->g;
    const graph_value table = node->in[0];
    const graph_tensor t = *at(s, table), i = *at(s, node->in[1]);
    if (!can_count(s, node, t.dim[0])) return;
    graph_value ids = inside(s, node->in[1], t.dim[0].size);
    graph_dim n = i.rank ? i.dim[0] : (graph_dim){1, 0};
    if (i.rank > 1) n = graph_dim_product(g, n, i.dim[1]);
    ids = graph_reshape(g, ids, 1, &n);
    d = graph_reshape(g, d, t.rank, (graph_dim[]){n, t.dim[1]});
    if (node->attr.gather_rows.factor != 1) d = graph_scale(g, d, node->attr.gather_rows.factor);
    const graph_value none = graph_expand(g, gradient_number(s, 0, TYPE_F32), t.rank, t.dim);
    if (none && ids && d) gradient_add(s, table, graph_index_add(g, none, ids, d, 0));
}

/* Updates get what is read at their places, but of a place the last alone. */
static void through_scatter(gradient *s, const graph_node *node, graph_value d) {
    graph *g = s->g;
    const graph_value x = node->in[0], ids = node->in[1], updates = node->in[2];
    const uint32_t axis = node->attr.scatter.axis;
    if (gradient_wants(s, x))
        gradient_add(s, x, graph_scatter(g, d, ids, gradient_fill(s, 0, updates), axis));
    if (!gradient_wants(s, updates)) return;
    const graph_value place = graph_iota(g, ids, axis), on = graph_iota(g, x, axis);
    const graph_value won = graph_gather(g, graph_scatter(g, on, ids, place, axis), ids, axis);
    gradient_add(s, updates,
                 gradient_where(g, graph_eq(g, won, place), graph_gather(g, d, ids, axis)));
}

static void through_scatter_add(gradient *s, const graph_node *node, graph_value d) {
    gradient_add(s, node->in[0], d);
    if (gradient_wants(s, node->in[2]))
        gradient_add(s, node->in[2],
                     graph_gather(s->g, d, node->in[1], node->attr.scatter_add.axis));
}

/* sort, topk: by the indices, their second result */
static void through_order(gradient *s, const graph_node *node, graph_value d) {
    const graph_value x = node->in[0];
    gradient_add(
        s, x,
        graph_scatter_add(s->g, gradient_fill(s, 0, x), node->out[1], d, at(s, x)->rank - 1u));
}

static void through_assign(gradient *s, const graph_node *node, graph_value d) {
    gradient_add(s, node->in[1], d);
}

/* ---- products -------------------------------------------------------------------------------- */

/* Each input gets d times the other, summed over the axes where it was broadcast. */
static void through_contract(gradient *s, const graph_node *node, graph_value d) {
    graph *g = s->g;
    for (uint32_t k = 0; k < 2; k++) {
        const graph_value other = node->in[1 - k];
        if (!gradient_wants(s, node->in[k])) continue;
        const graph_tensor x = *at(s, node->in[k]), y = *at(s, other), r = *at(s, d);
        uint32_t axes = 0;
        for (uint32_t i = 0; i < r.rank; i++) {
            const uint32_t missing = r.rank - (uint32_t)x.rank, from = r.rank - (uint32_t)y.rank;
            const bool one = i < missing ||
                             (x.dim[i - missing].size == 1 && !x.dim[i - missing].extent),
                       more = r.dim[i].size != 1 || r.dim[i].extent ||
                              (i >= from && (y.dim[i - from].size != 1 || y.dim[i - from].extent));
            if (one && more) axes |= 1u << i;
        }
        gradient_add(s, node->in[k],
                     axes ? graph_sum_products(g, d, other, axes) : graph_mul(g, d, other));
    }
}

/* Stored rows of any type as F32: of w [.., m, k] the same shape. */
static graph_value unpacked(gradient *s, graph_value w) {
    graph *g = s->g;
    const graph_tensor t = *at(s, w);
    if (graph_type_is_plain(t.type)) return graph_as(s->g, w, TYPE_F32);
    graph_dim n = t.dim[0];
    for (uint32_t i = 1; i + 1 < t.rank; i++) n = graph_dim_product(g, n, t.dim[i]);
    const graph_dim flat[] = {n, t.dim[t.rank - 1]};
    if (t.rank == 2) return graph_gather_rows(g, w, places(s, n), 1);
    const graph_value rows = graph_gather_rows(g, graph_reshape(g, w, 2, flat), places(s, n), 1);
    return graph_reshape(g, rows, t.rank, t.dim);
}

/* With halves, products of d and a weight; of matrices that are trained themselves also those
 * towards them, unless x has the longer rows, and halves of it are not at hand. */
static void through_linear(gradient *s, const graph_node *node, graph_value d) {
    graph *g = s->g;
    const graph_value x = node->in[0], w = node->in[1];
    const graph_tensor t = *at(s, w);
    const uint32_t last = at(s, x)->rank - 1u, axes = (1u << last) - 1;
    const bool trained = gradient_wants(s, w),
               halves = g->halves && (t.type != TYPE_F32 || trained);
    if (gradient_wants(s, x)) {
        graph_value y = unpacked(s, w);
        if (halves) y = graph_cast(g, y, TYPE_BF16, false);
        y = graph_matmul(g, halves ? gradient_half(s, d) : d, y, false, false);
        gradient_add(s, x, y);
    }
    if (!trained) return;
    const bool both = halves && (t.dim[0].size > t.dim[1].size || gradient_is_of_tree(s, x));
    /* [.., m, 1] and [.., 1, k] */
    const graph_value a = graph_unsqueeze(g, both ? gradient_half(s, d) : d, last + 1),
                      b = graph_unsqueeze(g, both ? gradient_half(s, x) : x, last);
    gradient_add(s, w,
                 axes ? graph_without(g, graph_sum_products(g, a, b, axes), axes)
                      : graph_mul(g, a, b));
}

static void through_linear_id(gradient *s, const graph_node *node, graph_value d) {
    graph *g = s->g;
    const graph_value x = node->in[0], w = node->in[1], ids = node->in[2];
    const graph_tensor t = *at(s, w), r = *at(s, d);
    if (gradient_wants(s, x)) {
        graph_value y = unpacked(s, w);
        if (g->halves && t.type != TYPE_F32) y = graph_cast(g, y, TYPE_BF16, false);
        y = graph_copy(g, gradient_turned(g, y, 1, false));
        gradient_add(s, x, graph_linear_id(g, d, y, ids));
    }
    if (!gradient_wants(s, w)) return;
    const graph_value hot = graph_as(s->g,
                                     graph_one_hot(g, inside(s, ids, t.dim[0].size), t.dim[0].size),
                                     TYPE_F32),
                      all = graph_expand(g, x, 3, (graph_dim[]){r.dim[0], r.dim[1], t.dim[2]});
    gradient_add(s, w, graph_einsum(g, "nue,num,nuk->emk", 3, (graph_value[]){hot, d, all}));
}

static void through_weighted_sum(gradient *s, const graph_node *node, graph_value d) {
    graph *g = s->g;
    const graph_value x = node->in[0], w = node->in[1], rows = graph_unsqueeze(g, d, 1);
    if (gradient_wants(s, x)) gradient_add(s, x, graph_mul(g, rows, graph_unsqueeze(g, w, 2)));
    if (gradient_wants(s, w))
        gradient_add(s, w, graph_squeeze(g, summed(s, graph_mul(g, rows, x), 4), 2));
}

/* Turned back: by angles of the opposite sign. Halves p, q of x and of d: towards the cosines p
 * d_p + q d_q, towards the sines p d_q - q d_p, summed over heads. */
static void through_rope(gradient *s, const graph_node *node, graph_value d) {
    graph *g = s->g;
    const graph_value x = node->in[0], angles = node->in[1];
    if (gradient_wants(s, x)) {
        const graph_value parts[2] = {graph_narrow(g, angles, 1, 0, 1, 1),
                                      graph_neg(g, graph_narrow(g, angles, 1, 1, 1, 1))};
        gradient_add(s, x, graph_rope(g, d, graph_concat(g, 2, parts, 1)));
    }
    if (!gradient_wants(s, angles)) return;
    graph_value p[2], q[2];
    graph_split(g, x, 2, 2, p);
    graph_split(g, d, 2, 2, q);
    const graph_value parts[2] = {
        summed(s, graph_add(g, graph_mul(g, p[0], q[0]), graph_mul(g, p[1], q[1])), 2),
        summed(s, graph_sub(g, graph_mul(g, p[0], q[1]), graph_mul(g, p[1], q[0])), 2)};
    gradient_add(s, angles, graph_concat(g, 2, parts, 1));
}

/* Its sums along the other axis of its roots: back where it went forth, with x and its result in
 * each other's place. */
static void through_fourier(gradient *s, const graph_node *node, graph_value d) {
    const graph_tensor x = *at(s, node->in[0]);
    const uint32_t axis = node->attr.fourier.axis, from = x.dim[axis].size,
                   n = node->attr.fourier.size ? node->attr.fourier.size : from,
                   how = node->attr.fourier.how;
    const bool half = from == n / 2 + 1;
    d = graph_fourier(s->g, d, axis, n,
                      (~how & FOURIER_BACK) | (how & (FOURIER_OVER | FOURIER_OVER_ROOT)) |
                          (half ? FOURIER_HALF : 0) |
                          (how & FOURIER_REAL_IN ? FOURIER_REAL_OUT : 0) |
                          (how & FOURIER_REAL_OUT ? FOURIER_REAL_IN : 0));
    gradient_add(s, node->in[0], half || from == n ? d : graph_narrow(s->g, d, axis, 0, from, 1));
}

/* ---- the table ------------------------------------------------------------------------------- */

gradient_rule *gradient_rule_of(base_op op) {
    static gradient_rule *const rules[OP_COUNT] = {
        [OP_CAST] = through_cast,
        [OP_WHERE] = through_where,
        [OP_SUM] = through_sum,
        [OP_MEAN] = through_mean,
        [OP_PROD] = through_prod,
        [OP_AMAX] = through_extreme,
        [OP_AMIN] = through_extreme,
        [OP_CUMSUM] = through_cumsum,
        [OP_CUMPROD] = through_cumprod,
        [OP_CUMMAX] = through_cummax,
        [OP_CUMMIN] = through_cummax,
        [OP_SOFTMAX] = through_softmax,
        [OP_RMS_NORM] = through_norm,
        [OP_LAYER_NORM] = through_norm,
        [OP_GROUP_NORM] = through_norm,
        [OP_PAD] = through_pad,
        [OP_CONCAT] = through_concat,
        [OP_TRIL] = through_triangle,
        [OP_TRIU] = through_triangle,
        [OP_RESIZE] = through_resize,
        [OP_GATHER] = through_gather,
        [OP_GATHER_ROWS] = through_gather_rows,
        [OP_SCATTER] = through_scatter,
        [OP_SCATTER_ADD] = through_scatter_add,
        [OP_SORT] = through_order,
        [OP_TOPK] = through_order,
        [OP_ASSIGN] = through_assign,
        [OP_CONTRACT] = through_contract,
        [OP_FOURIER] = BUILD_HAS_GRAPHS ? through_fourier : NULL,
        [OP_LINEAR] = through_linear,
        [OP_LINEAR_ID] = through_linear_id,
        [OP_WEIGHTED_SUM] = through_weighted_sum,
        [OP_ROPE] = through_rope,
        [OP_ATTENTION] = gradient_attention,
        [OP_ATTENTION_BACK] = BUILD_HAS_TRAINING ? gradient_attention_back : NULL,
    };
    return gradient_is_pointwise(op) ? gradient_pointwise : rules[op];
}

/* ---- results with rules of their own --------------------------------------------------------- */

/* softmax(x) less 1 at the target, times d; 0 where the target is no class. */
static void through_cross_entropy(gradient *s, const graph_own *own, graph_value d) {
    graph *g = s->g;
    const graph_value x = graph_wide(s->g, own->in[0]), targets = own->in[1];
    const uint32_t classes = at(s, x)->dim[1].size;
    const graph_value is = graph_eq(g, targets, graph_clamp(g, targets, 0, (float)(classes - 1)));
    const graph_value hot = graph_as(s->g, graph_one_hot(g, targets, classes), at(s, x)->type),
                      rows = graph_unsqueeze(g, gradient_where(g, is, d), 1);
    gradient_add(s, own->in[0], graph_mul(g, graph_sub(g, graph_softmax(g, x), hot), rows));
}

void gradient_own(gradient *s, const graph_own *own, graph_value d) {
    graph *g = s->g;
    const graph_value r = graph_wide(s->g, own->out);
    d = graph_wide(s->g, d);
    switch (own->kind) {
    case OWN_CONSTANT: break;
    case OWN_ROOT:
        d = gradient_where(g, graph_cast(g, r, TYPE_BOOL, false), graph_div(g, d, r));
        gradient_add(s, own->in[0], graph_scale(g, d, 0.5f));
        break;
    case OWN_LOGSUMEXP: /* softmax */
        gradient_add(s, own->in[0],
                     graph_mul(g, graph_exp(g, graph_sub(g, graph_wide(s->g, own->in[0]), r)), d));
        break;
    case OWN_LOG_SOFTMAX:
        gradient_add(s, own->in[0],
                     graph_sub(g, d, graph_mul(g, graph_exp(g, r), summed(s, d, own->axes))));
        break;
    case OWN_LINEAR_CROSS_ENTROPY: gradient_linear_cross_entropy(s, own, d); break;
    case OWN_CROSS_ENTROPY: through_cross_entropy(s, own, d); break;
    case OWN_CONV:
        if (!BUILD_IS_SMALL) gradient_conv(s, own, d);
        break;
    }
}
