/* window.c - convolutions, pools and pictures at other sizes. */
#include "beryl_graph.h"
#include "onnx/operators.h"

#include <math.h>
#include <string.h>

static bool one(onnx_call *c, const onnx_wholes *from, size_t i, int64_t otherwise, int64_t least,
                uint32_t *to) {
    const int64_t x = i < from->n ? from->at[i] : otherwise;
    if (x < least || x > 1 << 28) return onnx_refuse(c, "a window with %lld", (long long)x), false;
    *to = (uint32_t)x;
    return true;
}

bool onnx_windows(onnx_call *c, const graph_tensor *x, uint32_t n, const uint32_t *sizes,
                  graph_window *to, bool *partial) {
    onnx_wholes strides, dilations, pads;
    onnx_wholes_at(c, "strides", 0, &strides);
    onnx_wholes_at(c, "dilations", 0, &dilations);
    onnx_wholes_at(c, "pads", 0, &pads);
    const base_view how = onnx_text(c, "auto_pad", "NOTSET");
    const bool same = base_view_begins(how, BASE_VIEW("SAME"));
    if (base_view_equal(how, BASE_VIEW("VALID"))) pads.n = 0;
    if (partial) *partial = onnx_whole(c, "ceil_mode", 0);
    if (n < 1 || n > 3) return onnx_refuse(c, "windows along %u axes", n), false;
    for (uint32_t i = 0; i < n; i++) {
        graph_window *w = &to[i];
        *w = (graph_window){.size = sizes[i]};
        if (!one(c, &strides, i, 1, 1, &w->stride) || !one(c, &dilations, i, 1, 1, &w->dilation) ||
            !one(c, &pads, i, 0, 0, &w->pad_before) || !one(c, &pads, i + n, 0, 0, &w->pad_after))
            return false;
        if (!same || !x) continue;
        if (x->dim[2 + i].extent)
            return onnx_refuse(c, "auto_pad of an axis that each run sizes"), false;
        const uint32_t in = x->dim[2 + i].size, out = (in + w->stride - 1) / w->stride;
        const uint64_t reach =
            (uint64_t)(out - 1) * w->stride + (uint64_t)(w->size - 1) * w->dilation + 1;
        const uint32_t all = reach > in ? (uint32_t)(reach - in) : 0;
        const bool upper = base_view_equal(how, BASE_VIEW("SAME_UPPER"));
        w->pad_before = upper ? all / 2 : all - all / 2;
        w->pad_after = all - w->pad_before;
    }
    return true;
}

graph_value onnx_channel(onnx_call *c, graph_value v, uint32_t rank) {
    graph_dim d[GRAPH_RANK_MAX];
    if (!v) return 0;
    for (uint32_t i = 0; i < rank; i++) d[i] = (graph_dim){1, 0};
    d[1] = onnx_tensor_of(c, v)->dim[0];
    return graph_reshape(c->g, v, rank, d);
}

static bool with_kernel(onnx_call *c, graph_value *x, graph_value *w, uint32_t *sizes,
                        uint32_t *n) {
    *x = onnx_in(c, 0);
    *w = *x ? onnx_in(c, 1) : 0;
    if (!*w) return false;
    const graph_tensor *t = onnx_tensor_of(c, *w);
    if (t->rank != onnx_tensor_of(c, *x)->rank || t->rank < 3 || t->rank > 5)
        return onnx_refuse(c, "a kernel of %u axes for %u", t->rank, onnx_tensor_of(c, *x)->rank),
               false;
    *n = t->rank - 2u;
    for (uint32_t i = 0; i < *n; i++) sizes[i] = t->dim[2 + i].size;
    return true;
}

static uint32_t groups_of(onnx_call *c) {
    const int64_t groups = onnx_whole(c, "group", 1);
    if (groups < 1 || groups > INT32_MAX) onnx_refuse(c, "%lld groups", (long long)groups);
    return (uint32_t)groups;
}

static void give_biased(onnx_call *c, graph_value v, uint32_t rank) {
    const graph_value bias = onnx_or_none(c, 2);
    onnx_give(c, 0, bias && v ? onnx_op2(c, OP_ADD, v, onnx_channel(c, bias, rank)) : v);
}

void onnx_conv(onnx_call *c) {
    graph_value x, w;
    uint32_t sizes[3], n;
    graph_window windows[3];
    const bool normed = onnx_join_norm(c);
    if (!with_kernel(c, &x, &w, sizes, &n)) return;
    const graph_tensor t = *onnx_tensor_of(c, x);
    const uint32_t groups = groups_of(c);
    if (c->g->error.code == BERYL_OK && onnx_windows(c, &t, n, sizes, windows, NULL))
        give_biased(c, graph_conv(c->g, x, w, n, windows, groups), n + 2);
    c->out[0].normed = normed;
}

void onnx_conv_transpose(onnx_call *c) {
    graph_value x, w;
    uint32_t sizes[3], n, more[3];
    graph_window windows[3];
    onnx_wholes extra, shape;
    if (!with_kernel(c, &x, &w, sizes, &n)) return;
    const graph_tensor t = *onnx_tensor_of(c, x);
    const uint32_t groups = groups_of(c);
    if (c->g->error.code != BERYL_OK || !onnx_windows(c, NULL, n, sizes, windows, NULL)) return;
    onnx_wholes_at(c, "output_padding", 0, &extra);
    onnx_wholes_at(c, "output_shape", 0, &shape);
    const bool same = base_view_begins(onnx_text(c, "auto_pad", "NOTSET"), BASE_VIEW("SAME")),
               upper = onnx_text_is(c, "auto_pad", "NOTSET", "SAME_UPPER");
    for (uint32_t i = 0; i < n; i++) {
        graph_window *p = &windows[i];
        if (!one(c, &extra, i, 0, 0, &more[i])) return;
        if (!shape.n && !same) continue;
        const int64_t in = t.dim[2 + i].size,
                      whole =
                          (in - 1) * p->stride + (int64_t)(p->size - 1) * p->dilation + 1 + more[i],
                      out = shape.n > i ? shape.at[shape.n - n + i] : in * p->stride,
                      cut = whole - out;
        if (out < 1 || out > INT32_MAX) {
            onnx_refuse(c, "a size of %lld", (long long)out);
            return;
        }
        p->pad_before = p->pad_after = 0;
        if (cut < 0) {
            more[i] += (uint32_t)-cut;
            continue;
        }
        p->pad_before = (uint32_t)(upper ? cut / 2 : cut - cut / 2);
        if (shape.n && !same) p->pad_before = (uint32_t)(cut / 2);
        p->pad_after = (uint32_t)cut - p->pad_before;
    }
    give_biased(c, graph_conv_transpose(c->g, x, w, n, windows, more, groups), n + 2);
}

/* ---- pools ----------------------------------------------------------------------------------- */

/* (sum of |x|^p)^(1/p) */
static graph_value power_pool(onnx_call *c, graph_value x, uint32_t n, const graph_window *w,
                              bool partial, int64_t p) {
    graph *g = c->g;
    const base_type type = onnx_tensor_of(c, x)->type;
    double count = 1;
    for (uint32_t i = 0; i < n; i++) count *= w[i].size;
    graph_value v = graph_abs(g, x);
    v = onnx_op2(c, OP_POW, v, onnx_number(c, (double)p, type));
    if (!v) return 0;
    v = graph_pool(g, v, n, w, (graph_pool_how){.mean = true, .partial = partial});
    v = graph_scale(g, v, (float)count);
    return onnx_op2(c, OP_POW, v, onnx_number(c, 1.0 / (double)p, type));
}

/* Where in x, as if flat, the largest of each window is: its place in the picture's axes plus where
 * the picture lies. */
static graph_value places_of_largest(onnx_call *c, graph_value x, uint32_t n,
                                     const graph_window *w) {
    graph *g = c->g;
    const graph_tensor t = *onnx_tensor_of(c, x);
    const bool columns = onnx_whole(c, "storage_order", 0);
    graph_window plain[3];
    graph_value places = 0, cells = x;
    uint64_t area = 1;
    uint32_t dim[GRAPH_RANK_MAX];
    for (uint32_t k = 0; k < n; k++) {
        const uint32_t i = columns ? k : n - 1 - k;
        const graph_value along =
            onnx_op2(c, OP_MUL, graph_iota(g, x, 2 + i), onnx_number(c, (double)area, TYPE_I32));
        places = places ? onnx_op2(c, OP_ADD, places, along) : along;
        area *= t.dim[2 + i].size;
    }
    for (uint32_t i = 0; i < n; i++) {
        plain[i] = w[i];
        plain[i].pad_before = plain[i].pad_after = 0;
        cells = graph_pad(g, cells, 2 + i, w[i].pad_before, w[i].pad_after, -INFINITY);
        places = places ? graph_pad(g, places, 2 + i, w[i].pad_before, w[i].pad_after, 0) : 0;
    }
    const uint32_t all = (uint32_t)(t.dim[0].size * t.dim[1].size);
    if (!cells || !places) return 0;
    graph_tensor p = *onnx_tensor_of(c, cells);
    dim[0] = all, dim[1] = 1;
    for (uint32_t i = 0; i < n; i++) dim[2 + i] = p.dim[2 + i].size;
    cells = graph_im2col(g, onnx_reshape(c, cells, n + 2, dim), n, plain);
    places = graph_im2col(
        g, onnx_as(c, onnx_reshape(c, graph_copy(g, places), n + 2, dim), TYPE_F32), n, plain);
    if (!cells || !places) return 0;
    graph_value at = graph_gather(g, places, graph_arg(g, cells, 1, true), 1);
    if (!at) return 0;
    p = *onnx_tensor_of(c, at);
    dim[0] = t.dim[0].size, dim[1] = t.dim[1].size;
    for (uint32_t i = 0; i < n; i++) dim[2 + i] = p.dim[2 + i].size;
    if (p.rank == 3) { /* windows of all axes are one */
        for (uint32_t i = 0; i < n; i++)
            dim[2 + i] = (t.dim[2 + i].size + w[i].pad_before + w[i].pad_after -
                          (w[i].size - 1) * w[i].dilation - 1) /
                             w[i].stride +
                         1;
    }
    at = onnx_reshape(c, onnx_as(c, at, TYPE_I32), n + 2, dim);
    const graph_value channel = at ? onnx_op2(c, OP_ADD,
                                              onnx_op2(c, OP_MUL, graph_iota(g, at, 0),
                                                       onnx_number(c, t.dim[1].size, TYPE_I32)),
                                              graph_iota(g, at, 1))
                                   : 0;
    at = onnx_op2(c, OP_ADD, at,
                  onnx_op2(c, OP_MUL, channel, onnx_number(c, (double)area, TYPE_I32)));
    return onnx_as(c, at, TYPE_I64);
}

void onnx_pool(onnx_call *c) {
    const graph_value x = onnx_in(c, 0);
    onnx_wholes kernel;
    uint32_t sizes[3];
    graph_window windows[3];
    bool partial;
    if (!x) return;
    const graph_tensor t = *onnx_tensor_of(c, x);
    onnx_wholes_at(c, "kernel_shape", 0, &kernel);
    if (t.rank < 3 || t.rank > 5 || kernel.n != t.rank - 2u) {
        onnx_refuse(c, "windows of %zu axes for %u", kernel.n, t.rank);
        return;
    }
    for (size_t i = 0; i < kernel.n; i++)
        if (!one(c, &kernel, i, 1, 1, &sizes[i])) return;
    if (!onnx_windows(c, &t, t.rank - 2u, sizes, windows, &partial)) return;
    const onnx_pool_kind kind = (onnx_pool_kind)c->variant;
    if (kind == POOL_LP) {
        const int64_t p = onnx_whole(c, "p", 2);
        onnx_give(c, 0, power_pool(c, x, t.rank - 2u, windows, partial, p));
        return;
    }
    const graph_pool_how how = {.mean = kind == POOL_MEAN,
                                .partial = partial,
                                .inside = !onnx_whole(c, "count_include_pad", 0)};
    const base_type type = t.type;
    const bool real = base_type_is_float(type);
    const graph_value v =
        graph_pool(c->g, real ? x : onnx_as(c, x, TYPE_F32), t.rank - 2u, windows, how);
    onnx_give(c, 0, onnx_as(c, v, type));
    if (c->n_out > 1 && partial) onnx_refuse(c, "indices with ceil_mode");
    else if (c->n_out > 1) onnx_give(c, 1, places_of_largest(c, x, t.rank - 2u, windows));
}

void onnx_global_pool(onnx_call *c) {
    const graph_value x = onnx_in(c, 0);
    if (!x) return;
    const uint32_t rank = onnx_tensor_of(c, x)->rank;
    if (rank < 3) onnx_refuse(c, "a tensor of %u axes", rank);
    else onnx_give(c, 0, graph_reduce(c->g, (base_op)c->variant, x, ((1u << rank) - 1) & ~3u, 0));
}

/* x [n, c, in..] to the places, as if the result were flat, that a pool took them from; elsewhere
 * 0. The shape that is said may be larger. */
void onnx_max_unpool(onnx_call *c) {
    graph *g = c->g;
    const graph_value x = onnx_in(c, 0);
    graph_value ids = onnx_in(c, 1);
    onnx_wholes kernel, strides, pads, shape = {.n = 0};
    if (!x || !ids) return;
    const graph_tensor t = *onnx_tensor_of(c, x), u = *onnx_tensor_of(c, ids);
    onnx_wholes_at(c, "kernel_shape", 0, &kernel);
    onnx_wholes_at(c, "strides", 0, &strides);
    onnx_wholes_at(c, "pads", 0, &pads);
    if (onnx_is_given(c, 2) && !onnx_wholes_of(c, 2, &shape)) return;
    if (!onnx_is_sized(c, &t) || !onnx_is_sized(c, &u)) return;
    const uint32_t n = (uint32_t)kernel.n, all = (uint32_t)graph_element_bound(&t);
    if (!n || t.rank != n + 2 || (shape.n && shape.n != t.rank) || graph_element_bound(&u) != all) {
        onnx_refuse(c, "windows of %u axes for %u", n, t.rank);
        return;
    }
    uint32_t dim[GRAPH_RANK_MAX] = {t.dim[0].size, t.dim[1].size};
    uint64_t count = (uint64_t)dim[0] * dim[1];
    for (uint32_t i = 0; i < n; i++) {
        uint32_t size, step, before, after;
        if (!one(c, &kernel, i, 1, 1, &size) || !one(c, &strides, i, 1, 1, &step) ||
            !one(c, &pads, i, 0, 0, &before) || !one(c, &pads, i + n, 0, 0, &after))
            return;
        const int64_t out =
            (int64_t)(t.dim[i + 2].size - 1) * step + size - (int64_t)before - after;
        if (out < 1 || out > INT32_MAX || (count *= (uint64_t)out) > INT32_MAX) {
            onnx_refuse(c, "a size of %lld", (long long)out);
            return;
        }
        dim[i + 2] = (uint32_t)out;
    }
    ids = onnx_reshape(c, onnx_as(c, ids, TYPE_I32), 1, &all);
    const graph_dim flat = {(uint32_t)count, 0};
    const graph_value empty = onnx_expand(c, onnx_number(c, 0, t.type), 1, &flat),
                      v = onnx_reshape(c, x, 1, &all);
    graph_value y = empty && ids && v ? graph_scatter(g, empty, ids, v, 0) : 0;
    y = onnx_reshape(c, y, t.rank, dim);
    for (uint32_t i = 0; y && shape.n && i < t.rank; i++) {
        if (shape.at[i] < dim[i] || shape.at[i] > INT32_MAX)
            y = onnx_refuse(c, "a shape that is smaller than what the pool took");
        else if (shape.at[i] > dim[i]) y = graph_pad(g, y, i, 0, (uint32_t)shape.at[i] - dim[i], 0);
    }
    onnx_give(c, 0, y);
}

/* ---- other sizes ----------------------------------------------------------------------------- */

typedef struct scaling {
    uint32_t in, out;
    double scale, roi_start, roi_end, cubic;
    base_view mode, place, nearest;
    bool antialias, exclude, outside; /* outside: elements from outside are a number */
    double length;                    /* of the axis at the new size, before it was rounded */
} scaling;

static double place_of(const scaling *s, double i) {
    const base_view p = s->place;
    if (base_view_equal(p, BASE_VIEW("asymmetric"))) return i / s->scale;
    if (base_view_equal(p, BASE_VIEW("align_corners")))
        return s->length > 1 ? i * (s->in - 1.0) / (s->length - 1.0) : 0;
    if (base_view_equal(p, BASE_VIEW("pytorch_half_pixel")))
        return s->out > 1 ? (i + 0.5) / s->scale - 0.5 : 0;
    if (base_view_equal(p, BASE_VIEW("tf_half_pixel_for_nn"))) return (i + 0.5) / s->scale;
    if (base_view_equal(p, BASE_VIEW("tf_crop_and_resize")))
        return s->out > 1 ? s->roi_start * (s->in - 1.0) +
                                i * (s->roi_end - s->roi_start) * (s->in - 1.0) / (s->out - 1.0)
                          : 0.5 * (s->roi_start + s->roi_end) * (s->in - 1.0);
    if (base_view_equal(p, BASE_VIEW("half_pixel_symmetric"))) {
        const double adjust = s->out / s->length, centre = s->in / 2.0;
        return centre * (1 - adjust) + (i + 0.5) / s->scale - 0.5;
    }
    return (i + 0.5) / s->scale - 0.5;
}

static double nearest_of(const scaling *s, double x) {
    if (base_view_equal(s->nearest, BASE_VIEW("floor"))) return floor(x);
    if (base_view_equal(s->nearest, BASE_VIEW("ceil"))) return ceil(x);
    if (base_view_equal(s->nearest, BASE_VIEW("round_prefer_ceil"))) return floor(x + 0.5);
    return ceil(x - 0.5);
}

static double kernel_of(const scaling *s, double x) {
    const double a = s->cubic;
    x = fabs(x);
    if (base_view_equal(s->mode, BASE_VIEW("linear"))) return x < 1 ? 1 - x : 0;
    if (x <= 1) return ((a + 2) * x - (a + 3)) * x * x + 1;
    return x < 2 ? a * (((x - 5) * x + 8) * x - 4) : 0;
}

/* Row i of the matrix that makes the new axis of the old one. */
static void row_of(const scaling *s, uint32_t i, float *row) {
    const double at = fmin(fmax(place_of(s, i), -1e9), 1e9),
                 shrink = s->antialias && s->scale < 1 ? fmax(s->scale, 1e-7) : 1;
    const int reach = (int)ceil((base_view_equal(s->mode, BASE_VIEW("cubic")) ? 2 : 1) / shrink);
    double sum = 0;
    for (int k = (int)floor(at) - reach; k <= (int)floor(at) + reach + 1; k++) {
        const double weight = kernel_of(s, (k - at) * shrink);
        if (weight == 0 || (s->exclude && (k < 0 || k >= (int)s->in))) continue;
        const int inside = k < 0 ? 0 : k >= (int)s->in ? (int)s->in - 1 : k;
        row[inside] += (float)weight;
        sum += weight;
    }
    for (uint32_t k = 0; sum != 0 && k < s->in; k++) row[k] = (float)(row[k] / sum);
}

static graph_value along_matrix(onnx_call *c, graph_value x, uint32_t axis, const scaling *s) {
    const uint32_t dim[2] = {s->out, s->in};
    if ((uint64_t)s->out * s->in > 1 << 24)
        return onnx_refuse(c, "an axis of %u to %u", s->in, s->out);
    onnx_array *a = onnx_array_make(c, TYPE_F32, 2, dim);
    if (!a) return 0;
    for (uint32_t i = 0; i < s->out; i++)
        row_of(s, i, (float *)(uintptr_t)a->data + (size_t)i * s->in);
    onnx_value m = {.array = a};
    base_type type;
    const uint32_t rank = onnx_tensor_of(c, x)->rank;
    uint32_t axes[GRAPH_RANK_MAX];
    for (uint32_t i = 0; i < rank; i++) axes[i] = i;
    axes[axis] = rank - 1, axes[rank - 1] = axis;
    x = onnx_wide(c, x, &type);
    const graph_value matrix = onnx_as(c, onnx_value_in_graph(c, &m), onnx_tensor_of(c, x)->type);
    x = graph_permute(c->g, x, rank, axes);
    x = x && matrix ? graph_matmul(c->g, x, matrix, false, true) : 0;
    return onnx_as(c, x ? graph_permute(c->g, x, rank, axes) : 0, type);
}

/* number: of places outside. */
static graph_value resized(onnx_call *c, graph_value x, uint32_t axis, const scaling *s,
                           double number) {
    const base_type type = onnx_tensor_of(c, x)->type;
    if (base_view_equal(s->mode, BASE_VIEW("nearest"))) {
        onnx_array *ids = onnx_array_make(c, TYPE_I32, 1, &s->out);
        for (uint32_t i = 0; ids && i < s->out; i++) {
            const double at = nearest_of(s, place_of(s, i));
            ((int32_t *)(uintptr_t)ids->data)[i] = !(at >= 0)    ? 0
                                                   : at >= s->in ? (int32_t)s->in - 1
                                                                 : (int32_t)at;
        }
        onnx_value v = {.array = ids};
        x = ids ? graph_index_select(c->g, x, onnx_value_in_graph(c, &v), axis) : 0;
    } else if (base_view_equal(s->mode, BASE_VIEW("linear")) && !s->antialias &&
               base_view_equal(s->place, BASE_VIEW("half_pixel")) && base_type_is_float(type) &&
               s->scale * s->in == s->out) {
        return graph_resize(c->g, x, axis, s->out, BERYL_RESIZE_LINEAR);
    } else {
        x = along_matrix(c, x, axis, s);
    }
    if (!s->outside || !x) return x;
    onnx_array *in = onnx_array_make(c, TYPE_BOOL, 1, &s->out);
    for (uint32_t i = 0; in && i < s->out; i++) {
        const double at = place_of(s, i);
        ((uint8_t *)(uintptr_t)in->data)[i] = at >= 0 && at <= s->in - 1.0;
    }
    uint32_t dim[GRAPH_RANK_MAX];
    const uint32_t rank = onnx_tensor_of(c, x)->rank;
    for (uint32_t i = 0; i < rank; i++) dim[i] = i == axis ? s->out : 1;
    onnx_value v = {.array = in};
    const graph_value mask = in ? onnx_reshape(c, onnx_value_in_graph(c, &v), rank, dim) : 0;
    return mask ? graph_where(c->g, mask, x, onnx_number(c, number, type)) : 0;
}

/* Inputs: x, scales (opset 10); x, roi, scales, sizes from 11 on. */
void onnx_resize(onnx_call *c) {
    graph_value x = onnx_in(c, 0);
    double scales[GRAPH_RANK_MAX], roi[2 * GRAPH_RANK_MAX];
    size_t n = 0, n_roi = 0;
    onnx_wholes sizes = {.n = 0}, axes;
    if (!x) return;
    const graph_tensor t = *onnx_tensor_of(c, x);
    const size_t at = c->opset < 11 ? 1 : 2;
    const onnx_attribute *old = onnx_attribute_find(c, "scales");
    if (old) {
        for (; n < old->n && n < t.rank && old->numbers; n++) scales[n] = (double)old->numbers[n];
    } else if (onnx_is_given(c, at) && !onnx_reals_of(c, at, scales, GRAPH_RANK_MAX, &n)) {
        return;
    }
    if (at == 2 && onnx_is_given(c, 3) && !onnx_wholes_of(c, 3, &sizes)) return;
    const bool crop = onnx_text_is(c, "coordinate_transformation_mode", "", "tf_crop_and_resize");
    if (crop && !onnx_reals_of(c, 1, roi, 2 * GRAPH_RANK_MAX, &n_roi)) return;
    if (!onnx_wholes_at(c, "axes", 0, &axes))
        for (axes.n = 0; axes.n < t.rank; axes.n++) axes.at[axes.n] = (int64_t)axes.n;
    if ((sizes.n ? sizes.n : n) != axes.n || axes.n > t.rank || (crop && n_roi != 2 * axes.n)) {
        onnx_refuse(c, "%zu scales for %zu axes", sizes.n ? sizes.n : n, axes.n);
        return;
    }
    const base_view keep = onnx_text(c, "keep_aspect_ratio_policy", "stretch");
    double one_scale = 0;
    for (size_t i = 0; i < axes.n; i++) {
        const uint32_t axis = onnx_axis(c, axes.at[i], t.rank);
        if (axis == UINT32_MAX) return;
        if (t.dim[axis].extent) {
            if (!sizes.n && scales[i] == 1) continue;
            onnx_refuse(c, "axis %u, which each run sizes", axis);
            return;
        }
        if (sizes.n) scales[i] = (double)sizes.at[i] / t.dim[axis].size;
        const bool smaller = base_view_equal(keep, BASE_VIEW("not_larger"));
        if (one_scale == 0 || (smaller ? scales[i] < one_scale : scales[i] > one_scale))
            one_scale = scales[i];
    }
    const bool stretch = !sizes.n || base_view_equal(keep, BASE_VIEW("stretch"));
    for (size_t i = 0; x && i < axes.n; i++) {
        const uint32_t axis = onnx_axis(c, axes.at[i], t.rank), in = t.dim[axis].size;
        if (t.dim[axis].extent) continue;
        const double scale = stretch ? scales[i] : one_scale, length = scale * in,
                     out = sizes.n && stretch ? (double)sizes.at[i]
                           : sizes.n          ? floor(length + 0.5)
                                              : floor(length);
        if (!(out >= 1 && out <= INT32_MAX)) {
            onnx_refuse(c, "a size of %g", out);
            return;
        }
        if (out == in && scale == 1 && !crop) continue;
        const scaling s = {.in = in,
                           .out = (uint32_t)out,
                           .scale = scale,
                           .length = sizes.n ? out : length,
                           .roi_start = crop ? roi[i] : 0,
                           .roi_end = crop ? roi[axes.n + i] : 1,
                           .cubic = (double)onnx_real(c, "cubic_coeff_a", -0.75f),
                           .mode = onnx_text(c, "mode", "nearest"),
                           .place = onnx_text(c, "coordinate_transformation_mode",
                                              at == 1 || c->variant ? "asymmetric" : "half_pixel"),
                           .nearest =
                               onnx_text(c, "nearest_mode",
                                         at == 1 || c->variant ? "floor" : "round_prefer_floor"),
                           .antialias = onnx_whole(c, "antialias", 0),
                           .exclude = onnx_whole(c, "exclude_outside", 0),
                           .outside = crop};
        x = resized(c, x, axis, &s, (double)onnx_real(c, "extrapolation_value", 0));
    }
    onnx_give(c, 0, x);
}

/* The sum of blocks where they lie: a transposed convolution with a kernel of ones. */
void onnx_col2im(onnx_call *c) {
    graph_value x = onnx_in(c, 0);
    onnx_wholes image, block;
    if (!x || !onnx_wholes_of(c, 1, &image) || !onnx_wholes_of(c, 2, &block)) return;
    const graph_tensor t = *onnx_tensor_of(c, x);
    const uint32_t n = (uint32_t)image.n;
    uint32_t sizes[3], dim[GRAPH_RANK_MAX], more[3] = {0}, all[3];
    uint64_t cells_all = 1;
    graph_window w[3];
    if (n < 1 || n > 3 || block.n != n || t.rank != 3) {
        onnx_refuse(c, "blocks of %zu axes", block.n);
        return;
    }
    for (uint32_t i = 0; i < n; i++) {
        if (!one(c, &block, i, 1, 1, &sizes[i]) || !one(c, &image, i, 1, 1, &all[i])) return;
        cells_all *= sizes[i] < 4097 ? sizes[i] : 4097;
    }
    if (!onnx_windows(c, NULL, n, sizes, w, NULL)) return;
    const uint32_t cells = cells_all <= 4096 ? (uint32_t)cells_all : 0;
    if (!cells || t.dim[1].size % cells) {
        onnx_refuse(c, "%u channels of blocks of %u", t.dim[1].size, cells);
        return;
    }
    const uint32_t channels = t.dim[1].size / cells;
    dim[0] = t.dim[0].size * channels, dim[1] = cells;
    for (uint32_t i = 0; i < n; i++) {
        const int64_t whole = (int64_t)all[i] + w[i].pad_before + w[i].pad_after,
                      reach = (int64_t)(sizes[i] - 1) * w[i].dilation + 1;
        if (whole < reach) {
            onnx_refuse(c, "blocks larger than the picture");
            return;
        }
        dim[2 + i] = (uint32_t)((whole - reach) / w[i].stride) + 1;
        more[i] = (uint32_t)((whole - reach) % w[i].stride);
    }
    x = onnx_reshape(c, x, n + 2, dim);
    /* weight [cells, 1, block]: one at each cell's own place */
    uint32_t shape[5] = {cells, 1};
    for (uint32_t i = 0; i < n; i++) shape[2 + i] = sizes[i];
    onnx_array *a = onnx_array_make(c, TYPE_F32, n + 2, shape);
    for (uint32_t i = 0; a && i < cells; i++)
        ((float *)(uintptr_t)a->data)[(size_t)i * cells + i] = 1;
    onnx_value one_each = {.array = a};
    graph_value v =
        a && x ? graph_conv_transpose(
                     c->g, x, onnx_as(c, onnx_value_in_graph(c, &one_each), t.type), n, w, more, 1)
               : 0;
    dim[0] = t.dim[0].size, dim[1] = channels;
    for (uint32_t i = 0; i < n; i++) dim[2 + i] = all[i];
    onnx_give(c, 0, onnx_reshape(c, v, n + 2, dim));
}

/* Windows of signals, of a size that is known: 0 Hann, 1 Hamming, 2 Blackman. */
void onnx_window_function(onnx_call *c) {
    static const double part[3][3] = {{0.5, 0.5, 0}, {25.0 / 46, 21.0 / 46, 0}, {0.42, 0.5, 0.08}};
    onnx_wholes size;
    if (!onnx_wholes_of(c, 0, &size)) return;
    base_type type;
    if (size.n != 1 || size.at[0] < 1 || size.at[0] > 1 << 24 ||
        !onnx_type_of((uint32_t)onnx_whole(c, "output_datatype", 1), &type) || type != TYPE_F32) {
        onnx_refuse(c, "a window that is not float, or of no size");
        return;
    }
    const uint32_t n = (uint32_t)size.at[0];
    const double turns = onnx_whole(c, "periodic", 1) ? n : n - 1.0, *p = part[c->variant];
    onnx_array *a = onnx_array_make(c, type, 1, &n);
    for (uint32_t i = 0; a && i < n; i++) {
        const double x = 2 * 3.14159265358979323846 * i / turns;
        ((float *)(uintptr_t)a->data)[i] = (float)(p[0] - p[1] * cos(x) + p[2] * cos(2 * x));
    }
    onnx_give_array(c, 0, a);
}
