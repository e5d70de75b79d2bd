/* sample.c - numbers between the elements of a picture, at places that a run says: GridSample,
 * RoiAlign, DeformConv; and AffineGrid, which makes such places.
 *
 * The one idea: the elements around all places are one gather, [n, c, tap, place], that is
 * multiplied with a weight for each tap and place. Indices and weights are products of what the
 * axes say alone, broadcast against each other.
 *
 * Letters: n pictures, c channels, p places, t taps. Refuses more than 3 axes, and samplings whose
 * number depends on the run's numbers. */
#include "onnx/operators.h"

#include <string.h>

enum { AXES_MAX = 3, PLACES_MAX = 1 << 26 };

typedef enum edge { EDGE_ZEROS, EDGE_BORDER, EDGE_REFLECTION } edge;

typedef struct places {
    uint32_t rank, n, p;
    uint32_t size[AXES_MAX];
    graph_value at[AXES_MAX]; /* [n, p] along each axis, in elements, F32 or F64 */
    uint32_t taps;            /* along an axis: 1 nearest, 2 linear, 4 cubic */
    edge edge;
    bool corners; /* reflected at the outermost elements' middles, not at their edges */
} places;

/* What is at one of the taps along an axis, [n, .. t .., p]. */
typedef struct tap {
    graph_value index, inside, weight; /* I32; BOOL, 0: all are; 0: 1 */
} tap;

static graph_value with_number(onnx_call *c, base_op op, graph_value v, double number) {
    return v ? onnx_op2(c, op, v, onnx_number(c, number, onnx_tensor_of(c, v)->type)) : 0;
}

/* A wave of slope 1 and -1 between the two edges. */
static graph_value reflected(onnx_call *c, const places *s, uint32_t axis, graph_value v) {
    graph *g = c->g;
    const float low = s->corners ? 0 : -0.5f,
                length = (float)(s->corners ? s->size[axis] - 1 : s->size[axis]);
    if (!v || length == 0) return v ? graph_scale(g, v, 0) : 0;
    v = with_number(c, OP_MOD, graph_add_scalar(g, v, -low), 2.0 * (double)length);
    v = v ? graph_abs(g, graph_add_scalar(g, v, -length)) : 0;
    return v ? graph_add_scalar(g, graph_neg(g, v), low + length) : 0;
}

/* What is at a distance, [..], counts. */
static graph_value weight_at(onnx_call *c, graph_value d, uint32_t taps) {
    graph *g = c->g;
    const float a = -0.75f;
    if (!d) return 0;
    if (taps == 2) return graph_add_scalar(g, graph_neg(g, d), 1);
    /* ((a + 2) d - (a + 3)) d d + 1, and beyond 1 ((a d - 5 a) d + 8 a) d - 4 a */
    graph_value near = graph_add_scalar(g, graph_scale(g, d, a + 2), -(a + 3)),
                far = graph_add_scalar(g, graph_scale(g, d, a), -5 * a);
    near = onnx_op2(c, OP_MUL, near, graph_square(g, d));
    far = onnx_op2(c, OP_MUL, far, d);
    far = far ? onnx_op2(c, OP_MUL, graph_add_scalar(g, far, 8 * a), d) : 0;
    if (!near || !far) return 0;
    return graph_where(g, with_number(c, OP_LE, d, 1), graph_add_scalar(g, near, 1),
                       graph_add_scalar(g, far, -4 * a));
}

static bool tap_along(onnx_call *c, const places *s, uint32_t axis, tap *to) {
    graph *g = c->g;
    uint32_t dim[AXES_MAX + 2] = {s->n, 1, 1, 1, 1}, shape[AXES_MAX + 2] = {1, 1, 1, 1, 1};
    dim[s->rank + 1] = s->p;
    shape[axis + 1] = s->taps;
    const float last = (float)(s->size[axis] - 1), steps[2][4] = {{0, 1}, {-1, 0, 1, 2}};
    graph_value v = onnx_reshape(c, s->at[axis], s->rank + 2, dim);
    *to = (tap){0};
    if (v && s->taps == 1) v = graph_round(g, v);
    if (v && s->edge == EDGE_BORDER) v = graph_clamp(g, v, 0, last);
    if (v && s->edge == EDGE_REFLECTION) v = reflected(c, s, axis, v);
    if (!v) return false;
    graph_value i = v;
    if (s->taps > 1) {
        const base_type type = onnx_tensor_of(c, v)->type;
        const graph_value step = graph_constant(g, s->taps, steps[s->taps == 4]);
        i = onnx_op2(c, OP_ADD, graph_floor(g, v),
                     onnx_reshape(c, onnx_as(c, step, type), s->rank + 2, shape));
        const graph_value d = onnx_op2(c, OP_SUB, v, i);
        to->weight = d ? weight_at(c, graph_abs(g, d), s->taps) : 0;
        if (!to->weight) return false;
    }
    if (s->edge == EDGE_ZEROS)
        to->inside = onnx_op2(c, OP_BIT_AND, with_number(c, OP_GE, i, 0),
                              with_number(c, OP_LE, i, (double)last));
    if (s->edge == EDGE_REFLECTION) i = reflected(c, s, axis, i);
    if (s->edge != EDGE_ZEROS) i = i ? graph_clamp(g, i, 0, last) : 0;
    to->index = onnx_as(c, i, TYPE_I32);
    return to->index != 0;
}

/* The taps of all places, [n, t, p]: -1 outside. weights: 0 where there is one tap. */
static graph_value taps_of(onnx_call *c, const places *s, graph_value *weights) {
    graph_value index = 0, inside = 0;
    uint32_t dim[3] = {s->n, 1, s->p};
    *weights = 0;
    for (uint32_t a = 0; a < s->rank; a++) {
        tap t;
        if (!tap_along(c, s, a, &t)) return 0;
        dim[1] *= s->taps;
        index = !index ? t.index
                       : onnx_op2(c, OP_ADD, with_number(c, OP_MUL, index, s->size[a]), t.index);
        if (t.inside) inside = inside ? onnx_op2(c, OP_BIT_AND, inside, t.inside) : t.inside;
        if (t.weight) *weights = *weights ? onnx_op2(c, OP_MUL, *weights, t.weight) : t.weight;
    }
    if (inside) index = graph_where(c->g, inside, index, onnx_number(c, -1, TYPE_I32));
    if (*weights) *weights = onnx_reshape(c, *weights, 3, dim);
    return onnx_reshape(c, index, 3, dim);
}

/* Weighted elements of x [n, c, size..], [n, c, t, p]. */
static graph_value tapped(onnx_call *c, graph_value x, const places *s) {
    graph_value weights, index = taps_of(c, s, &weights);
    uint64_t elements = 1;
    if (!x || !index) return 0;
    const uint32_t channels = onnx_tensor_of(c, x)->dim[1].size,
                   t = onnx_tensor_of(c, index)->dim[1].size;
    for (uint32_t a = 0; a < s->rank; a++) elements *= s->size[a];
    if (elements > INT32_MAX || (uint64_t)t * s->p > PLACES_MAX)
        return onnx_refuse(c, "%u places in a picture of %llu elements", s->p,
                           (unsigned long long)elements);
    x = onnx_reshape(c, x, 3, (uint32_t[]){s->n, channels, (uint32_t)elements});
    index = onnx_reshape(c, index, 3, (uint32_t[]){s->n, 1, t * s->p});
    index = onnx_expand(c, index, 3, (graph_dim[]){{s->n, 0}, {channels, 0}, {t * s->p, 0}});
    x = x && index ? graph_gather(c->g, x, index, 2) : 0;
    x = onnx_reshape(c, x, 4, (uint32_t[]){s->n, channels, t, s->p});
    if (!x || !weights) return x;
    return onnx_op2(c, OP_MUL, x,
                    onnx_as(c, graph_unsqueeze(c->g, weights, 1), onnx_tensor_of(c, x)->type));
}

/* [n, c, p] */
static graph_value sampled(onnx_call *c, graph_value x, const places *s) {
    graph_value v = tapped(c, x, s);
    if (v && s->taps > 1) v = graph_reduce(c->g, OP_SUM, v, 1u << 2, 0);
    return v ? graph_squeeze(c->g, v, 2) : 0;
}

/* Component k of v [.., components, ..] along an axis, without it. */
static graph_value component(onnx_call *c, graph_value v, uint32_t axis, uint32_t k) {
    const graph_value one = v ? graph_narrow(c->g, v, axis, k, 1, 1) : 0;
    return one ? graph_squeeze(c->g, one, axis) : 0;
}

/* ---- GridSample ------------------------------------------------------------------------------ */

static bool how_to_sample(onnx_call *c, places *s) {
    static const struct {
        const char *name;
        uint32_t taps;
    } modes[] = {{"nearest", 1}, {"linear", 2}, {"bilinear", 2}, {"cubic", 4}, {"bicubic", 4}};
    static const char *const edges[] = {"zeros", "border", "reflection"};
    const base_view mode = onnx_text(c, "mode", "linear"),
                    padding = onnx_text(c, "padding_mode", "zeros");
    size_t k = 0;
    for (size_t i = 0; i < sizeof modes / sizeof *modes; i++)
        if (base_view_equal(mode, base_view_of(modes[i].name))) s->taps = modes[i].taps;
    while (k < 3 && !base_view_equal(padding, base_view_of(edges[k]))) k++;
    s->edge = (edge)k;
    s->corners = onnx_whole(c, "align_corners", 0);
    return (s->taps && k < 3) || onnx_refuse(c, "another mode or padding");
}

/* x [n, c, size..], grid [n, out.., axes] from -1 to 1, the last axis first. */
void onnx_grid_sample(onnx_call *c) {
    graph *g = c->g;
    graph_value x = onnx_in(c, 0), grid = onnx_in(c, 1);
    places s = {0};
    base_type type;
    if (!x || !grid || !how_to_sample(c, &s)) return;
    const graph_tensor t = *onnx_tensor_of(c, x), u = *onnx_tensor_of(c, grid);
    if (!onnx_is_sized(c, &t) || !onnx_is_sized(c, &u)) return;
    s.rank = t.rank - 2u;
    if (t.rank < 3 || s.rank > AXES_MAX || u.rank != t.rank || u.dim[u.rank - 1].size != s.rank ||
        u.dim[0].size != t.dim[0].size) {
        onnx_refuse(c, "a grid of %u axes for %u", u.rank, t.rank);
        return;
    }
    uint32_t dim[GRAPH_RANK_MAX] = {t.dim[0].size, t.dim[1].size};
    uint64_t p = 1;
    for (uint32_t i = 0; i < s.rank; i++) p *= dim[i + 2] = u.dim[i + 1].size;
    if (p > PLACES_MAX) {
        onnx_refuse(c, "%llu places", (unsigned long long)p);
        return;
    }
    s.n = t.dim[0].size;
    s.p = (uint32_t)p;
    base_type was;
    grid = onnx_reshape(c, onnx_wide(c, grid, &was), 3, (uint32_t[]){s.n, s.p, s.rank});
    for (uint32_t a = 0; a < s.rank; a++) {
        s.size[a] = t.dim[a + 2].size;
        graph_value v = component(c, grid, 2, s.rank - 1 - a);
        if (!v) return;
        v = graph_add_scalar(g, v, 1);
        if (s.corners) v = graph_scale(g, v, (float)(s.size[a] - 1) / 2);
        else v = graph_scale(g, graph_add_scalar(g, graph_scale(g, v, (float)s.size[a]), -1), 0.5f);
        s.at[a] = v;
    }
    x = onnx_wide(c, x, &type);
    onnx_give(c, 0, onnx_as(c, onnx_reshape(c, sampled(c, x, &s), t.rank, dim), type));
}

/* theta [n, axes, axes + 1] -> [n, size.., axes]: each place of the new picture, and 1, turned. */
void onnx_affine_grid(onnx_call *c) {
    graph_value theta = onnx_in(c, 0);
    onnx_wholes size;
    base_type type;
    if (!theta || !onnx_wholes_of(c, 1, &size)) return;
    const graph_tensor t = *onnx_tensor_of(c, theta);
    const bool corners = onnx_whole(c, "align_corners", 0);
    const uint32_t n = (uint32_t)size.n - 2;
    uint64_t p = 1;
    uint32_t dim[AXES_MAX + 2] = {t.dim[0].size};
    if (size.n < 4 || size.n > 5 || t.rank != 3 || t.dim[0].extent || t.dim[1].size != n ||
        t.dim[2].size != n + 1) {
        onnx_refuse(c, "a size of %zu numbers", size.n);
        return;
    }
    for (uint32_t a = 0; a < n; a++) {
        if (size.at[a + 2] < 1 || size.at[a + 2] > PLACES_MAX || p > PLACES_MAX) {
            onnx_refuse(c, "a size of %lld", (long long)size.at[a + 2]);
            return;
        }
        p *= dim[a + 1] = (uint32_t)size.at[a + 2];
    }
    dim[n + 1] = n;
    if (p > PLACES_MAX) {
        onnx_refuse(c, "%llu places", (unsigned long long)p);
        return;
    }
    onnx_array *base = onnx_array_make(c, TYPE_F32, 2, (uint32_t[]){(uint32_t)p, n + 1});
    if (!base) return;
    float *to = (float *)(uintptr_t)base->data;
    for (uint32_t i = 0; i < p; i++, to += n + 1) {
        uint32_t rest = i;
        for (uint32_t a = n; a-- > 0; rest /= dim[a + 1]) {
            const double k = rest % dim[a + 1], last = dim[a + 1] - 1.0;
            to[n - 1 - a] =
                (float)(corners ? (last > 0 ? 2 * k / last - 1 : 0) : (2 * k + 1) / (last + 1) - 1);
        }
        to[n] = 1;
    }
    onnx_value v = {.array = base};
    theta = onnx_wide(c, theta, &type);
    const graph_value b = onnx_as(c, onnx_value_in_graph(c, &v), onnx_tensor_of(c, theta)->type);
    if (b)
        onnx_give(c, 0,
                  onnx_as(c, onnx_reshape(c, graph_matmul(c->g, b, theta, false, true), n + 2, dim),
                          type));
}

/* ---- RoiAlign -------------------------------------------------------------------------------- */

/* Where samples of each region lie along an axis (0: height), [regions, out * ratio]. */
static graph_value region_places(onnx_call *c, graph_value rois, uint32_t axis, uint32_t out,
                                 uint32_t ratio) {
    graph *g = c->g;
    const bool half = c->opset >= 16 &&
                      onnx_text_is(c, "coordinate_transformation_mode", "half_pixel", "half_pixel");
    const float scale = onnx_real(c, "spatial_scale", 1);
    graph_value ends[2];
    for (uint32_t i = 0; i < 2; i++) {
        ends[i] = graph_narrow(g, rois, 1, 1 - axis + 2 * i, 1, 1); /* [regions, 1] */
        if (!ends[i]) return 0;
        ends[i] = graph_add_scalar(g, graph_scale(g, ends[i], scale), half ? -0.5f : 0);
    }
    graph_value length = onnx_op2(c, OP_SUB, ends[1], ends[0]);
    if (!half) length = with_number(c, OP_MAX, length, 1);
    const uint32_t n = out * ratio;
    onnx_array *along = onnx_array_make(c, TYPE_F32, 2, (uint32_t[]){1, n});
    for (uint32_t i = 0; along && i < n; i++)
        ((float *)(uintptr_t)along->data)[i] = ((float)i + 0.5f) / (float)n;
    onnx_value v = {.array = along};
    if (!along || !length) return 0;
    const graph_value part =
        onnx_as(c, onnx_value_in_graph(c, &v), onnx_tensor_of(c, length)->type);
    return onnx_op2(c, OP_ADD, onnx_op2(c, OP_MUL, part, length), ends[0]);
}

/* x [n, c, h, w], regions [r, 4], the picture of each [r] -> [r, c, out_h, out_w]. */
void onnx_roi_align(onnx_call *c) {
    graph *g = c->g;
    graph_value x = onnx_in(c, 0), rois = onnx_in(c, 1);
    base_type type, was;
    if (!x || !rois) return;
    const graph_tensor t = *onnx_tensor_of(c, x), u = *onnx_tensor_of(c, rois);
    const int64_t out[2] = {onnx_whole(c, "output_height", 1), onnx_whole(c, "output_width", 1)},
                  ratio = onnx_whole(c, "sampling_ratio", 0);
    if (!onnx_is_sized(c, &t) || !onnx_is_sized(c, &u)) return;
    if (t.rank != 4 || u.rank != 2 || u.dim[1].size != 4 || out[0] < 1 || out[1] < 1 ||
        out[0] > 4096 || out[1] > 4096 || ratio > 64 ||
        out[0] * out[1] * ratio * ratio > PLACES_MAX) {
        onnx_refuse(c, "regions of another shape");
        return;
    }
    if (ratio < 1) {
        onnx_refuse(c, "sampling_ratio 0: how many samples there are depends on numbers of a run");
        return;
    }
    const uint32_t r = u.dim[0].size, k = (uint32_t)ratio, h = (uint32_t)out[0],
                   w = (uint32_t)out[1];
    places s = {.rank = 2, .n = r, .p = h * w * k * k, .taps = 2, .edge = EDGE_BORDER};
    graph_value inside = 0;
    rois = onnx_wide(c, rois, &was);
    for (uint32_t a = 0; a < 2; a++) {
        s.size[a] = t.dim[a + 2].size;
        graph_value at = region_places(c, rois, a, a ? w : h, k);
        const graph_value in = onnx_op2(c, OP_BIT_AND, with_number(c, OP_GE, at, -1),
                                        with_number(c, OP_LE, at, s.size[a]));
        if (!at || !in) return;
        const graph_dim all[3] = {{r, 0}, {h * k, 0}, {w * k, 0}};
        at = onnx_expand(c, graph_unsqueeze(g, at, 2 - a), 3, all);
        s.at[a] = onnx_reshape(c, at, 2, (uint32_t[]){r, s.p});
        const graph_value wide = graph_unsqueeze(g, in, 2 - a);
        inside = inside ? onnx_op2(c, OP_BIT_AND, inside, wide) : wide;
    }
    const graph_value ids = onnx_indices(c, 2, t.dim[0].size);
    x = onnx_wide(c, x, &type);
    graph_value v = ids && inside ? tapped(c, graph_index_select(g, x, ids, 0), &s) : 0;
    if (!v) return;
    inside = onnx_reshape(c, inside, 4, (uint32_t[]){r, 1, 1, s.p});
    v = graph_where(g, inside, v, onnx_number(c, 0, onnx_tensor_of(c, v)->type));
    v = onnx_reshape(c, v, 7, (uint32_t[]){r, t.dim[1].size, 4, h, k, w, k});
    const bool mean = onnx_text_is(c, "mode", "avg", "avg");
    if (v) v = graph_reduce(g, mean ? OP_SUM : OP_AMAX, v, 1u << 2 | 1u << 4 | 1u << 6, 0);
    if (v && mean) v = graph_scale(g, v, 1 / (float)(k * k));
    onnx_give(c, 0, onnx_as(c, onnx_reshape(c, v, 4, (uint32_t[]){r, t.dim[1].size, h, w}), type));
}

/* ---- DeformConv ------------------------------------------------------------------------------ */

/* Places of a kernel's elements [k, p] along an axis, before anything is added to them. */
static graph_value kernel_places(onnx_call *c, uint32_t axis, const graph_window *w,
                                 const uint32_t *out) {
    const uint32_t n_k = w[0].size * w[1].size, p = out[0] * out[1];
    onnx_array *a = onnx_array_make(c, TYPE_F32, 2, (uint32_t[]){n_k, p});
    if (!a) return 0;
    for (uint32_t k = 0; k < n_k; k++)
        for (uint32_t i = 0; i < p; i++) {
            const uint32_t in_kernel = axis ? k % w[1].size : k / w[1].size,
                           place = axis ? i % out[1] : i / out[1];
            ((float *)(uintptr_t)a->data)[(size_t)k * p + i] =
                (float)place * (float)w[axis].stride + (float)in_kernel * (float)w[axis].dilation -
                (float)w[axis].pad_before;
        }
    onnx_value v = {.array = a};
    return onnx_value_in_graph(c, &v);
}

typedef struct deformed {
    uint32_t n, channels, out_channels, groups, offset_groups, n_k, out[2];
} deformed;

static bool deformed_shapes(onnx_call *c, const graph_tensor *x, const graph_tensor *w,
                            const graph_tensor *offset, deformed *d) {
    const int64_t groups = onnx_whole(c, "group", 1), parts = onnx_whole(c, "offset_group", 1);
    if (!onnx_is_sized(c, x) || !onnx_is_sized(c, w) || !onnx_is_sized(c, offset)) return false;
    if (x->rank != 4 || w->rank != 4 || offset->rank != 4)
        return onnx_refuse(c, "%u axes, not two", x->rank - 2u), false;
    d->n = x->dim[0].size;
    d->channels = x->dim[1].size;
    d->out_channels = w->dim[0].size;
    d->n_k = w->dim[2].size * w->dim[3].size;
    for (uint32_t a = 0; a < 2; a++) d->out[a] = offset->dim[a + 2].size;
    if (groups < 1 || parts < 1 || groups > d->channels || parts > d->channels ||
        d->channels % groups || d->channels % parts || d->out_channels % groups ||
        w->dim[1].size != d->channels / groups || offset->dim[0].size != d->n ||
        offset->dim[1].size != (uint64_t)parts * d->n_k * 2 ||
        (uint64_t)w->dim[2].size * w->dim[3].size > PLACES_MAX ||
        (uint64_t)d->out[0] * d->out[1] > PLACES_MAX / d->n_k)
        return onnx_refuse(c, "shapes that do not go together"), false;
    d->groups = (uint32_t)groups;
    d->offset_groups = (uint32_t)parts;
    return true;
}

/* A convolution whose elements of a window each lie where the offsets say. */
void onnx_deform_conv(onnx_call *c) {
    graph *g = c->g;
    graph_value x = onnx_in(c, 0), weight = onnx_in(c, 1), offset = onnx_in(c, 2),
                mask = onnx_or_none(c, 4);
    graph_window windows[2];
    base_type type, was;
    deformed d;
    if (!x || !weight || !offset || g->error.code != BERYL_OK) return;
    const graph_tensor t = *onnx_tensor_of(c, x), u = *onnx_tensor_of(c, weight);
    if (!deformed_shapes(c, &t, &u, onnx_tensor_of(c, offset), &d) ||
        !onnx_windows(c, NULL, 2, (uint32_t[]){u.dim[2].size, u.dim[3].size}, windows, NULL))
        return;
    const uint32_t p = d.out[0] * d.out[1], all = d.n * d.offset_groups,
                   part = d.channels / d.offset_groups;
    places s = {.rank = 2, .n = all, .p = d.n_k * p, .taps = 2, .edge = EDGE_ZEROS};
    x = onnx_reshape(c, onnx_wide(c, x, &type), 4,
                     (uint32_t[]){all, part, t.dim[2].size, t.dim[3].size});
    offset = onnx_reshape(c, onnx_wide(c, offset, &was), 4, (uint32_t[]){all, d.n_k, 2, p});
    for (uint32_t a = 0; a < 2; a++) {
        const graph_value by = component(c, offset, 2, a),
                          from = kernel_places(c, a, windows, d.out);
        if (!by || !from) return;
        s.size[a] = t.dim[a + 2].size;
        s.at[a] =
            onnx_reshape(c, onnx_op2(c, OP_ADD, by, onnx_as(c, from, onnx_tensor_of(c, by)->type)),
                         2, (uint32_t[]){all, s.p});
    }
    graph_value v = sampled(c, x, &s); /* [n * offset groups, part, k * p] */
    if (v && mask) {
        mask = onnx_reshape(c, mask, 3, (uint32_t[]){all, 1, s.p});
        v = onnx_op2(c, OP_MUL, v, onnx_as(c, mask, onnx_tensor_of(c, v)->type));
    }
    const uint32_t depth = d.channels / d.groups * d.n_k;
    v = onnx_reshape(c, v, 4, (uint32_t[]){d.n, d.groups, depth, p});
    weight = onnx_reshape(c, onnx_wide(c, weight, &was), 3,
                          (uint32_t[]){d.groups, d.out_channels / d.groups, depth});
    v = v && weight ? graph_matmul(g, weight, v, false, false) : 0;
    v = onnx_reshape(c, v, 4, (uint32_t[]){d.n, d.out_channels, d.out[0], d.out[1]});
    const graph_value bias = onnx_or_none(c, 3);
    if (bias && v)
        v = onnx_op2(c, OP_ADD, v,
                     onnx_as(c, onnx_channel(c, bias, 4), onnx_tensor_of(c, v)->type));
    onnx_give(c, 0, onnx_as(c, v, type));
}
