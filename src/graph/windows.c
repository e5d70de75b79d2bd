/* windows.c - what is computed of windows of axes: views, and an operation over what is in each.
 *
 * Owns convolutions, their transposes and pooling. Refuses windows that do not fit. A window is a
 * last axis of a view (graph_windows), so nothing is copied but what lies around x. */
#include "base/build.h"
#include "graph/gradient.h"

#include "beryl_graph.h"

#include <math.h>
#include <string.h>

static graph_dim dim_of(const graph *g, graph_value v, uint32_t axis) {
    return graph_tensor_at(g, v)->dim[axis];
}

static uint32_t rank_of(const graph *g, graph_value v) {
    return graph_tensor_at(g, v)->rank;
}

static bool has_windows(graph *g, const char *what, graph_value x, uint32_t n_axis,
                        const graph_window *w) {
    char text[GRAPH_SHAPE_TEXT];
    if (!graph_has(g, x, what)) return false;
    const graph_tensor *t = graph_tensor_at(g, x);
    bool fits = n_axis >= 1 && n_axis <= 3 && t->rank == n_axis + 2;
    for (uint32_t i = 0; fits && i < n_axis; i++)
        fits = w[i].size && w[i].stride && w[i].dilation &&
               (t->dim[i + 2].extent ? 0 : (uint64_t)t->dim[i + 2].size) + w[i].pad_before +
                       w[i].pad_after + (t->dim[i + 2].extent != 0) >
                   (uint64_t)(w[i].size - 1) * w[i].dilation;
    return fits || graph_refuse(g, BERYL_MISUSE, "%s of %s: its windows do not fit", what,
                                graph_shape_text(g, t->rank, t->dim, text));
}

/* x [n, c, in..] as [n, c, windows.., in each..]; around it lies `value`. */
static graph_value windows_of(graph *g, graph_value x, uint32_t n_axis, const graph_window *w,
                              float value) {
    for (uint32_t i = 0; x && i < n_axis; i++)
        if (w[i].pad_before || w[i].pad_after)
            x = graph_pad(g, x, i + 2, w[i].pad_before, w[i].pad_after, value);
    for (uint32_t i = 0; x && i < n_axis; i++) {
        x = graph_windows(g, x, i + 2, (w[i].size - 1) * w[i].dilation + 1, w[i].stride);
        if (x && w[i].dilation > 1)
            x = graph_narrow(g, x, rank_of(g, x) - 1, 0, w[i].size, w[i].dilation);
    }
    return x;
}

/* Axis 0 or 1 as two, the first of so many. */
static graph_value in_groups(graph *g, graph_value x, uint32_t axis, uint32_t groups) {
    graph_dim dims[GRAPH_RANK_MAX];
    const graph_tensor t = *graph_tensor_at(g, x);
    memcpy(dims, t.dim, (axis + 1) * sizeof *dims);
    memcpy(dims + axis + 1, t.dim + axis, (t.rank - axis) * sizeof *dims);
    dims[axis] = (graph_dim){groups, 0};
    dims[axis + 1] = (graph_dim){t.dim[axis].size / groups, 0};
    return graph_reshape(g, x, t.rank + 1u, dims);
}

/* A weight in groups as [(groups,) out, c, 1 windows.., sizes..]. */
static graph_value beside_elements(graph *g, graph_value weight, uint32_t n_axis, bool grouped) {
    for (uint32_t i = 0; weight && i < n_axis; i++)
        weight = graph_unsqueeze(g, weight, 2 + grouped);
    return weight;
}

/* x [n, c, windows.., in each..] with weight [out, c, sizes..], in groups [groups, out, c,
 * sizes..]: [n, out, windows..]. */
static graph_value convolve(graph *g, graph_value x, graph_value weight, uint32_t n_axis,
                            uint32_t groups, uint32_t out) {
    const bool grouped = groups > 1;
    if (x && grouped) x = in_groups(g, x, 1, groups);
    if (x) x = graph_unsqueeze(g, x, 1 + grouped); /* [n, (g,) 1, c, windows.., in each..] */
    weight = beside_elements(g, weight, n_axis, grouped);
    if (!x || !weight) return 0;
    const uint32_t rank = rank_of(g, x), axes = 1u << (2 + grouped) | ((1u << n_axis) - 1)
                                                                          << (rank - n_axis);
    graph_value v = graph_without(g, graph_sum_products(g, x, weight, axes), axes);
    if (!v || !grouped) return v;
    graph_dim dims[GRAPH_RANK_MAX];
    const graph_tensor *t = graph_tensor_at(g, v);
    dims[0] = t->dim[0];
    dims[1] = (graph_dim){out, 0};
    memcpy(dims + 2, t->dim + 3, n_axis * sizeof *dims);
    return graph_reshape(g, v, n_axis + 2, dims);
}

/* Do x [n, c, in..] and weight, whose axis `input` has c or c / groups, `output` out or out /
 * groups, go together? Gives the windows the weight's sizes. */
static bool has_kernel(graph *g, const char *what, graph_value x, graph_value weight,
                       uint32_t n_axis, graph_window *w, uint32_t groups, bool transposed) {
    char text[2][GRAPH_SHAPE_TEXT];
    if (!graph_has(g, x, what) || !graph_has(g, weight, what)) return false;
    const graph_tensor *a = graph_tensor_at(g, x), *k = graph_tensor_at(g, weight);
    bool fits = n_axis >= 1 && n_axis <= 3 && a->rank == n_axis + 2 && k->rank == a->rank &&
                groups && !a->dim[1].extent && !k->dim[0].extent && !k->dim[1].extent &&
                a->dim[1].size % groups == 0 && k->dim[0].size % groups == 0 &&
                a->dim[1].size / (transposed ? 1 : groups) == k->dim[!transposed].size;
    for (uint32_t i = 0; fits && i < n_axis; i++) {
        w[i].size = k->dim[i + 2].size;
        fits = !k->dim[i + 2].extent;
    }
    return fits || graph_refuse(g, BERYL_MISUSE, "%s of %s with %s in %u groups: shapes do not fit",
                                what, graph_shape_text(g, a->rank, a->dim, text[0]),
                                graph_shape_text(g, k->rank, k->dim, text[1]), groups);
}

/* x with what lies around it, which *w then has no more, in lines of whole vectors: their last
 * elements are in no window. */
static graph_value with_even_lines(graph *g, graph_value x, uint32_t n_axis, graph_window *w) {
    enum { VECTOR = 4 };
    const uint32_t last = n_axis - 1;
    const graph_dim line = dim_of(g, x, last + 2);
    const uint32_t n = line.size + w[last].pad_before + w[last].pad_after;
    if (line.extent || n == line.size || n % VECTOR == 0) return x;
    w[last].pad_after += VECTOR - n % VECTOR;
    for (uint32_t i = 0; x && i < n_axis; i++) {
        if (w[i].pad_before || w[i].pad_after)
            x = graph_pad(g, x, i + 2, w[i].pad_before, w[i].pad_after, 0);
        w[i].pad_before = w[i].pad_after = 0;
    }
    return x ? graph_narrow(g, x, last + 2, 0, n, 1) : 0;
}

graph_value graph_conv(graph *g, graph_value x, graph_value weight, uint32_t n_axis,
                       const graph_window *windows, uint32_t groups) {
    graph_window w[3];
    for (uint32_t i = 0; i < n_axis && i < 3; i++) w[i] = windows[i];
    if (!has_kernel(g, "conv", x, weight, n_axis, w, groups, false) ||
        !has_windows(g, "conv", x, n_axis, w))
        return 0;
    const uint32_t out = dim_of(g, weight, 0).size;
    graph_own own = {.kind = OWN_CONV, .in = {x, weight}, .n_axis = n_axis, .groups = groups};
    memcpy(own.windows, w, sizeof w);
    if (groups > 1) {
        x = with_even_lines(g, x, n_axis, w);
        weight = in_groups(g, weight, 0, groups);
    }
    own.all = windows_of(g, x, n_axis, w, 0);
    own.out = convolve(g, own.all, weight, n_axis, groups, out);
    return BUILD_IS_SMALL ? own.out : graph_own_rule(g, own);
}

/* ---- transposed convolutions ----------------------------------------------------------------- */

/* Elements of the transpose `stride` apart are a convolution of x with every stride-th tap of the
 * weight. Each phase of these is a channel of one convolution; then channels become elements. */
typedef struct phases { /* along an axis */
    uint32_t n, taps, dilation;
    uint32_t skip;        /* taps of zeros in front, so that what is cut off are whole lines: */
    uint32_t from, lines; /* of n elements, the first that stays and how many */
} phases;

/* weight [in, out / groups, size..] with taps of zeros, so that each phase has as many and those of
 * an axis of several phases are neighbours. */
static graph_value with_whole_phases(graph *g, graph_value weight, uint32_t n_axis,
                                     const graph_window *w, phases *of) {
    for (uint32_t i = 0; weight && i < n_axis; i++) {
        const uint32_t axis = i + 2, apart = of[i].n > 1 ? w[i].dilation : 1;
        graph_dim dims[GRAPH_RANK_MAX];
        uint32_t size = w[i].size;
        of[i].dilation = w[i].dilation / apart;
        if (apart > 1) {
            memcpy(dims, graph_tensor_at(g, weight)->dim, sizeof dims);
            dims[axis].size = size * apart;
            weight = graph_pad(g, graph_unsqueeze(g, weight, axis + 1), axis + 1, 0, apart - 1, 0);
            if (weight) weight = graph_reshape(g, weight, n_axis + 2, dims);
            if (weight) weight = graph_narrow(g, weight, axis, 0, size = (size - 1) * apart + 1, 1);
        }
        size += of[i].skip;
        of[i].taps = (size + of[i].n - 1) / of[i].n;
        const uint32_t more = of[i].taps * of[i].n - size;
        if (weight && (of[i].skip || more))
            weight = graph_pad(g, weight, axis, of[i].skip, more, 0);
    }
    return weight;
}

/* weight [in, out / groups, taps and phases..] as [(groups,) out / groups and phases.., in /
 * groups, taps..], the last tap first. */
static graph_value turned(graph *g, graph_value weight, uint32_t n_axis, const phases *of,
                          uint32_t groups) {
    const uint32_t grouped = groups > 1;
    uint32_t axes[GRAPH_RANK_MAX] = {0}, n = grouped;
    graph_dim dims[GRAPH_RANK_MAX] = {{0}};
    if (!weight) return 0;
    memcpy(dims, graph_tensor_at(g, weight)->dim, 2 * sizeof *dims);
    for (uint32_t i = 0; i < n_axis; i++) {
        dims[2 + 2 * i] = (graph_dim){of[i].taps, 0};
        dims[3 + 2 * i] = (graph_dim){of[i].n, 0};
    }
    weight = graph_reshape(g, weight, 2 + 2 * n_axis, dims);
    for (uint32_t i = 0; weight && i < n_axis; i++) weight = graph_flip(g, weight, 2 + 2 * i);
    if (weight && grouped) weight = in_groups(g, weight, 0, groups);
    if (!weight) return 0;
    memcpy(dims, graph_tensor_at(g, weight)->dim, sizeof dims);
    axes[n++] = 1 + grouped;
    for (uint32_t i = 0; i < n_axis; i++) axes[n++] = 3 + grouped + 2 * i;
    axes[n++] = grouped;
    for (uint32_t i = 0; i < n_axis; i++) axes[n++] = 2 + grouped + 2 * i;
    weight = graph_permute(g, weight, n, axes);
    const graph_dim in = dims[grouped];
    dims[grouped] = dims[1 + grouped];
    dims[1 + grouped] = in;
    for (uint32_t i = 0; i < n_axis; i++) {
        dims[grouped].size *= of[i].n;
        dims[2 + grouped + i] = (graph_dim){of[i].taps, 0};
    }
    return weight ? graph_reshape(g, weight, n_axis + 2 + grouped, dims) : 0;
}

/* x [n, c, in..] so that windows of each axis's taps give the phases' lines. */
static graph_value around_lines(graph *g, graph_value x, uint32_t n_axis, const phases *of) {
    uint32_t start[3];
    for (uint32_t i = 0; x && i < n_axis; i++) {
        const uint32_t span = (of[i].taps - 1) * of[i].dilation, in = dim_of(g, x, i + 2).size,
                       end = of[i].from + of[i].lines,
                       before = span > of[i].from ? span - of[i].from : 0,
                       after = end > in ? end - in : 0;
        start[i] = span > of[i].from ? 0 : of[i].from - span;
        if (before || after) x = graph_pad(g, x, i + 2, before, after, 0);
    }
    for (uint32_t i = 0; x && i < n_axis; i++)
        x = graph_narrow(g, x, i + 2, start[i], of[i].lines + (of[i].taps - 1) * of[i].dilation, 1);
    return x;
}

/* v [n, out and phases.., lines..] as [n, out, lines and phases..] */
static graph_value phases_as_elements(graph *g, graph_value v, uint32_t n_axis, const phases *of) {
    graph_dim dims[GRAPH_RANK_MAX] = {{0}}, whole[GRAPH_RANK_MAX] = {{0}};
    uint32_t axes[GRAPH_RANK_MAX] = {0, 1}, all = 1;
    if (!v) return 0;
    for (uint32_t i = 0; i < n_axis; i++) all *= of[i].n;
    if (all == 1) return v;
    dims[0] = whole[0] = dim_of(g, v, 0);
    dims[1] = whole[1] = (graph_dim){dim_of(g, v, 1).size / all, 0};
    for (uint32_t i = 0; i < n_axis; i++) {
        dims[2 + i] = (graph_dim){of[i].n, 0};
        dims[2 + n_axis + i] = (graph_dim){of[i].lines, 0};
        whole[2 + i] = (graph_dim){of[i].n * of[i].lines, 0};
        axes[2 + 2 * i] = 2 + n_axis + i;
        axes[3 + 2 * i] = 2 + i;
    }
    v = graph_reshape(g, v, 2 * n_axis + 2, dims);
    if (v) v = graph_permute(g, v, 2 * n_axis + 2, axes);
    return v ? graph_reshape(g, v, n_axis + 2, whole) : 0;
}

/* Sizes of the result; false: there is none, or a run says how many elements there are. */
static bool transposed_sizes(graph *g, graph_value x, uint32_t n_axis, const graph_window *w,
                             const uint32_t *more, uint32_t *out) {
    for (uint32_t i = 0; i < n_axis; i++) {
        const graph_dim in = dim_of(g, x, i + 2);
        const uint64_t whole = (uint64_t)(in.size - 1) * w[i].stride +
                               (uint64_t)(w[i].size - 1) * w[i].dilation + 1 + (more ? more[i] : 0),
                       cut = (uint64_t)w[i].pad_before + w[i].pad_after;
        if (in.extent)
            return graph_refuse(g, BERYL_UNSUPPORTED,
                                "conv_transpose: a run says how long axis %u is", i + 2);
        if (!w[i].stride || !w[i].dilation || whole <= cut || whole > INT32_MAX)
            return graph_refuse(g, BERYL_MISUSE,
                                "conv_transpose: %llu elements of axis %u, less %llu",
                                (unsigned long long)whole, i + 2, (unsigned long long)cut);
        out[i] = (uint32_t)(whole - cut);
    }
    return true;
}

graph_value graph_conv_transpose(graph *g, graph_value x, graph_value weight, uint32_t n_axis,
                                 const graph_window *windows, const uint32_t *more,
                                 uint32_t groups) {
    graph_window w[3];
    uint32_t out[3];
    for (uint32_t i = 0; i < n_axis && i < 3; i++) w[i] = windows[i];
    if (!has_kernel(g, "conv_transpose", x, weight, n_axis, w, groups, true) ||
        !transposed_sizes(g, x, n_axis, w, more, out))
        return 0;
    uint32_t channels = dim_of(g, weight, 1).size * groups;
    phases of[3];
    for (uint32_t i = 0; i < n_axis; i++) {
        const uint32_t n = w[i].stride, whole = (w[i].pad_before + n - 1) / n;
        of[i] = (phases){.n = n,
                         .skip = whole * n - w[i].pad_before,
                         .from = whole,
                         .lines = (out[i] + n - 1) / n};
        channels *= of[i].n;
    }
    weight = turned(g, with_whole_phases(g, weight, n_axis, w, of), n_axis, of, groups);
    x = around_lines(g, x, n_axis, of);
    for (uint32_t i = 0; i < n_axis; i++)
        w[i] = (graph_window){.size = of[i].taps, .stride = 1, .dilation = of[i].dilation};
    x = x ? convolve(g, windows_of(g, x, n_axis, w, 0), weight, n_axis, groups, channels) : 0;
    x = phases_as_elements(g, x, n_axis, of);
    for (uint32_t i = 0; x && i < n_axis; i++)
        if (out[i] % of[i].n) x = graph_narrow(g, x, i + 2, 0, out[i], 1);
    return x;
}

/* ---- the way back ---------------------------------------------------------------------------- */

/* Towards x: the transpose. Where no two windows share an element it would multiply more zeros than
 * the view's own rule moves elements, and where a run sizes an axis there is none: false. */
static bool goes_by_transpose(const graph *g, const graph_own *own, uint32_t *more) {
    bool shares = false, fixed = true;
    for (uint32_t i = 0; i < own->n_axis; i++) {
        const graph_window *w = &own->windows[i];
        const graph_dim in = dim_of(g, own->in[0], i + 2), out = dim_of(g, own->out, i + 2);
        fixed &= !in.extent && !out.extent;
        shares |= w->size > w->stride || w->dilation > 1;
        more[i] = in.size + w->pad_before + w->pad_after - (out.size - 1) * w->stride -
                  (w->size - 1) * w->dilation - 1;
    }
    return shares && fixed;
}

/* [n, out, windows..] as [n, (groups,) out, 1, windows.., 1 each..] */
static graph_value beside_windows(graph *g, const graph_own *own, graph_value d) {
    const bool grouped = own->groups > 1;
    if (d && grouped) d = in_groups(g, d, 1, own->groups);
    if (d) d = graph_unsqueeze(g, d, 2 + grouped);
    for (uint32_t i = 0; d && i < own->n_axis; i++) d = graph_unsqueeze(g, d, rank_of(g, d));
    return d;
}

enum { RESULTS_FEW = 1 << 17 /* of a sum that leaves a GPU idle */, PARTS_MAX = 1 << 24 };

/* Towards the weight: a sum over batch and windows; where it has few results for so long a one, a
 * sum for each of the batch, but for halves, whose sums would be rounded. */
static graph_value towards_weight(graph *g, const graph_own *own, graph_value d) {
    const bool grouped = own->groups > 1;
    const graph_tensor weight = *graph_tensor_at(g, own->in[1]);
    const graph_dim batch = dim_of(g, own->all, 0);
    graph_value x = own->all;
    if (x && grouped) x = in_groups(g, x, 1, own->groups);
    if (x) x = graph_unsqueeze(g, x, 1 + grouped);
    d = beside_windows(g, own, d);
    if (!x || !d) return 0;
    const uint64_t results = graph_element_bound(&weight);
    const bool apart = weight.type != TYPE_F16 && weight.type != TYPE_BF16 && !batch.extent &&
                       batch.size > 1 && results <= RESULTS_FEW &&
                       results * batch.size <= PARTS_MAX && results > own->groups * 16u;
    const uint32_t windows = ((1u << own->n_axis) - 1) << (3 + grouped);
    graph_value v = graph_sum_products(g, d, x, windows | !apart);
    if (v && apart) v = graph_reduce(g, OP_SUM, v, 1, 0);
    return v ? graph_reshape(g, v, weight.rank, weight.dim) : 0;
}

/* Towards what is in each window. */
static graph_value towards_windows(graph *g, const graph_own *own, graph_value d) {
    const bool grouped = own->groups > 1;
    graph_value weight = own->in[1];
    if (grouped) weight = in_groups(g, weight, 0, own->groups);
    weight = beside_elements(g, weight, own->n_axis, grouped);
    const uint32_t out = 1u << (1 + grouped);
    d = beside_windows(g, own, d);
    if (!d || !weight) return 0;
    const graph_value v = graph_without(g, graph_sum_products(g, d, weight, out), out);
    const graph_tensor t = *graph_tensor_at(g, own->all);
    return v && grouped ? graph_reshape(g, v, t.rank, t.dim) : v;
}

void gradient_conv(gradient *s, const graph_own *own, graph_value d) {
    graph *g = s->g;
    uint32_t more[3];
    const graph_value x = own->in[0], weight = own->in[1];
    d = graph_as(g, d, graph_tensor_at(g, x)->type);
    if (gradient_wants(s, weight)) gradient_add(s, weight, towards_weight(g, own, d));
    if (!gradient_wants(s, x)) return;
    if (goes_by_transpose(g, own, more)) {
        gradient_add(
            s, x, graph_conv_transpose(g, d, weight, own->n_axis, own->windows, more, own->groups));
        return;
    }
    gradient_add(s, own->all, towards_windows(g, own, d));
}

graph_value graph_im2col(graph *g, graph_value x, uint32_t n_axis, const graph_window *w) {
    uint32_t axes[GRAPH_RANK_MAX] = {0, 1};
    graph_dim dims[3] = {{0}};
    if (!has_windows(g, "im2col", x, n_axis, w)) return 0;
    graph_value v = windows_of(g, x, n_axis, w, 0); /* [n, c, windows.., in each..] */
    if (!v) return 0;
    dims[0] = dim_of(g, v, 0);
    dims[1] = dim_of(g, v, 1);
    dims[2] = (graph_dim){1, 0};
    for (uint32_t i = 0; i < n_axis; i++) {
        axes[i + 2] = n_axis + 2 + i;
        axes[n_axis + 2 + i] = i + 2;
        dims[1] = graph_dim_product(g, dims[1], dim_of(g, v, n_axis + 2 + i));
        dims[2] = graph_dim_product(g, dims[2], dim_of(g, v, i + 2));
    }
    v = graph_permute(g, v, 2 * n_axis + 2, axes);
    return v ? graph_reshape(g, graph_copy(g, v), 3, dims) : 0;
}

/* ---- pooling --------------------------------------------------------------------------------- */

/* How many elements more lie behind the axis, so that windows that begin in what was there are
 * whole. */
static uint32_t to_be_whole(uint32_t size, const graph_window *w) {
    const uint64_t span = (uint64_t)(w->size - 1) * w->dilation + 1,
                   all = (uint64_t)size + w->pad_before;
    uint64_t n = (all + w->pad_after - span + w->stride - 1) / w->stride;
    if (n * w->stride >= all) n--; /* the last one would begin behind x */
    const uint64_t end = n * w->stride + span;
    return end > all + w->pad_after ? (uint32_t)(end - all - w->pad_after) : 0;
}

static graph_value times(graph *g, graph_value x, graph_value factor) {
    return x && factor ? graph_mul(g, x, factor) : 0;
}

/* Of elements from `place` on, `apart`: how many come before `end`, of `size`, as a number of v's
 * type. */
static graph_value count_before(graph *g, graph_value place, const graph_window *w, float end) {
    const float apart = (float)w->dilation; /* rounded up, with room for the quotient's rounding */
    graph_value v = graph_add_scalar(g, graph_neg(g, place), end);
    if (w->dilation > 1)
        v = graph_floor(g, graph_scale(g, graph_add_scalar(g, v, apart - 0.5f), 1 / apart));
    return graph_clamp(g, v, 0, (float)w->size);
}

/* A mean of whole windows as that of their elements in [from, end) of an axis. */
static graph_value mean_within(graph *g, graph_value mean, uint32_t axis, const graph_window *w,
                               float from, float end) {
    const base_type type = graph_tensor_at(g, mean)->type;
    graph_value place = graph_cast(g, graph_iota(g, mean, axis), type, false);
    place = graph_add_scalar(g, graph_scale(g, place, (float)w->stride), -(float)w->pad_before);
    const graph_value n =
        graph_sub(g, count_before(g, place, w, end), count_before(g, place, w, from));
    return times(g, mean, graph_scale(g, graph_reciprocal(g, n), (float)w->size));
}

graph_value graph_pool(graph *g, graph_value x, uint32_t n_axis, const graph_window *windows,
                       graph_pool_how how) {
    enum { EXACT = 1 << 22 }; /* places are counted in F32 */
    const char *what = how.mean ? "avg_pool" : "max_pool";
    graph_window w[3];
    uint32_t size[3], more[3] = {0};
    bool counts = false;
    if (!has_windows(g, what, x, n_axis, windows)) return 0;
    const base_type type = graph_tensor_at(g, x)->type;
    for (uint32_t i = 0; i < n_axis; i++) {
        const graph_dim d = dim_of(g, x, i + 2);
        w[i] = windows[i];
        size[i] = d.size;
        if (how.partial) more[i] = to_be_whole(d.size, &w[i]);
        counts |= how.mean && (more[i] || (how.inside && (w[i].pad_before || w[i].pad_after)));
        if ((how.partial || how.inside) && (d.extent || d.size + w[i].pad_before >= EXACT))
            return graph_refuse(g, BERYL_UNSUPPORTED, "%s of axis %u%s", what, i + 2,
                                d.extent ? ": a run says how long it is" : ": it is too long");
        w[i].pad_after += more[i];
    }
    if (counts && (type == TYPE_F16 || type == TYPE_BF16)) x = graph_cast(g, x, TYPE_F32, false);
    graph_value v = x ? windows_of(g, x, n_axis, w, how.mean ? 0 : -INFINITY) : 0;
    const uint32_t axes = ((1u << n_axis) - 1) << (n_axis + 2);
    if (v) v = graph_without(g, graph_reduce(g, how.mean ? OP_MEAN : OP_AMAX, v, axes, 0), axes);
    for (uint32_t i = 0; v && counts && i < n_axis; i++)
        v = mean_within(g, v, i + 2, &w[i], how.inside ? 0 : -(float)w[i].pad_before,
                        (float)size[i] + (how.inside ? 0 : (float)windows[i].pad_after));
    return v && graph_tensor_at(g, v)->type != type ? graph_cast(g, v, type, false) : v;
}

graph_value graph_max_pool(graph *g, graph_value x, uint32_t n_axis, const graph_window *windows) {
    return graph_pool(g, x, n_axis, windows, (graph_pool_how){.mean = false});
}

graph_value graph_avg_pool(graph *g, graph_value x, uint32_t n_axis, const graph_window *windows) {
    return graph_pool(g, x, n_axis, windows, (graph_pool_how){.mean = true});
}

graph_value graph_adaptive_avg_pool(graph *g, graph_value x, uint32_t n_axis,
                                    const uint32_t *sizes) {
    graph_window w[3];
    bool even = true;
    if (!graph_has(g, x, "adaptive_avg_pool")) return 0;
    if (!n_axis || n_axis > 3 || rank_of(g, x) != n_axis + 2)
        return graph_refuse(g, BERYL_MISUSE, "adaptive_avg_pool along %u axes of %u", n_axis,
                            rank_of(g, x));
    for (uint32_t i = 0; i < n_axis; i++) {
        const graph_dim d = dim_of(g, x, i + 2);
        even = even && sizes[i] && !d.extent && d.size % sizes[i] == 0;
        const uint32_t each = even ? d.size / sizes[i] : 1;
        w[i] = (graph_window){.size = each, .stride = each, .dilation = 1};
    }
    if (even) return graph_avg_pool(g, x, n_axis, w);
    for (uint32_t i = 0; x && i < n_axis; i++)
        x = graph_resize(g, x, i + 2, sizes[i], BERYL_RESIZE_MEAN);
    return x;
}
