/* views.c - other shapes of memory that is there: what strides and an offset can say.
 *
 * Owns the calls of BASE_VIEW_LIST. Refuses axes and sizes that are not there, offsets that hang
 * on a run, and what would take a stride out of 32 bits. The idea: a stride may be anything, 0 and
 * below included; kernels add strides modulo 2^32, and who computes on the host asks
 * graph_stride. */
#include "graph/build.h"
#include "graph/extent.h"

#include <string.h>

/* A view being made: as x at first. */
typedef struct shape {
    uint32_t rank;
    graph_dim dim[GRAPH_RANK_MAX];
    int64_t stride[GRAPH_RANK_MAX], offset;
} shape;

static bool is_one(graph_dim d) {
    return d.size == 1 && !d.extent;
}

static const char *words_of(const graph *g, graph_value x, char text[GRAPH_SHAPE_TEXT]) {
    const graph_tensor *t = graph_tensor_at(g, x);
    return graph_shape_text(g, t->rank, t->dim, text);
}

/* What is wrong, said of a call with x. */
static graph_value refuse_view(graph *g, beryl_status code, base_view_kind view, graph_value x,
                               const char *what) {
    char text[GRAPH_SHAPE_TEXT];
    return graph_refuse(g, code, "%s of %s: %s", base_views[view].name, words_of(g, x, text), what);
}

static bool begin(graph *g, base_view_kind view, graph_value x, shape *s) {
    if (!graph_has(g, x, base_views[view].name)) return false;
    const graph_tensor *t = graph_tensor_at(g, x);
    *s = (shape){.rank = t->rank, .offset = t->offset};
    for (uint32_t i = 0; i < t->rank; i++) {
        s->dim[i] = t->dim[i];
        s->stride[i] = graph_stride(t, i);
    }
    return true;
}

static const char *name_of(base_view_kind view) {
    return base_views[view].name;
}

static bool has_axis(graph *g, const char *what, graph_value x, uint32_t axis) {
    const uint32_t rank = graph_tensor_at(g, x)->rank;
    char text[GRAPH_SHAPE_TEXT];
    if (axis < rank) return true;
    graph_refuse(g, BERYL_MISUSE, "%s of %s: there is no axis %u", what, words_of(g, x, text),
                 axis);
    return false;
}

/* An axis whose size no run changes. */
static bool has_constant_axis(graph *g, const char *what, graph_value x, uint32_t axis) {
    char text[GRAPH_SHAPE_TEXT];
    if (!has_axis(g, what, x, axis)) return false;
    if (!graph_tensor_at(g, x)->dim[axis].extent) return true;
    graph_refuse(g, BERYL_UNSUPPORTED, "%s of %s: a run says how long axis %u is", what,
                 words_of(g, x, text), axis);
    return false;
}

/* Rows of blocks stay as they are. */
static bool keeps_rows(const graph_tensor *from, const shape *s) {
    return !base_type_is_quantised(from->type) ||
           (s->rank && s->stride[s->rank - 1] == 1 &&
            graph_same_dim(s->dim[s->rank - 1], from->dim[from->rank - 1u]));
}

static graph_value finish(graph *g, base_view_kind view, graph_value x, const shape *s) {
    const graph_tensor *from = graph_tensor_at(g, x);
    bool fits = s->offset <= UINT32_MAX;
    for (uint32_t i = 0; i < s->rank; i++)
        fits = fits && (s->dim[i].size == 1 ||
                        (s->stride[i] <= INT32_MAX && s->stride[i] >= -(int64_t)INT32_MAX));
    if (!fits)
        return refuse_view(g, BERYL_UNSUPPORTED, view, x,
                           "elements further apart than 2^31, or behind 2^32 others");
    if (!keeps_rows(from, s))
        return graph_refuse(g, BERYL_UNSUPPORTED, "%s: a view of %s that cuts its rows",
                            base_views[view].name, base_type_name(from->type));
    const graph_value v = graph_view_of(g, x, s->rank, s->dim);
    if (!v) return 0;
    graph_tensor *t = &g->tensors.data[v];
    t->view = view;
    t->offset = (uint32_t)s->offset;
    for (uint32_t i = 0; i < s->rank; i++) t->stride[i] = (uint32_t)s->stride[i];
    return v;
}

static graph_value told(graph *g, graph_value v, const uint32_t *numbers, uint32_t n) {
    if (v) memcpy(g->tensors.data[v].told, numbers, n * sizeof *numbers);
    return v;
}

/* ---- reshape --------------------------------------------------------------------------------- */

typedef struct part { /* neighbouring dimensions, taken from the innermost one on */
    const graph_dim *dims;
    uint32_t left; /* of the shape, outside of it */
    uint64_t bound;
    graph_sum size;
    bool varies;
} part;

static void part_begin(part *p) {
    p->bound = 1;
    p->size = (graph_sum){1, {{1, {0}}}};
    p->varies = false;
}

/* false: there is no more, or a run would have gaps within it. */
static bool part_take(const graph *g, part *p) {
    graph_sum size;
    if (!p->left || p->varies) return false;
    const graph_dim d = p->dims[--p->left];
    p->bound *= d.size;
    p->varies = d.extent;
    return graph_sum_of(g, d, &size) && graph_sum_times(g, &p->size, &size);
}

/* The dimensions [first, end) of x are as one, whose elements lie `*stride` apart. */
static bool are_one(const shape *x, uint32_t first, uint32_t end, int64_t *stride) {
    int64_t next = 0;
    bool any = false;
    for (uint32_t i = end; i-- > first;) {
        if (x->dim[i].size == 1) continue;
        if (!any) next = *stride = x->stride[i];
        if (x->stride[i] != next) return false;
        next = x->stride[i] * x->dim[i].size;
        any = true;
    }
    return true;
}

/* Dimensions of 1 lie as those behind them say: all shapes are written in one way. */
static void place_ones(shape *s) {
    for (uint32_t i = s->rank; i-- > 0;)
        if (s->dim[i].size == 1)
            s->stride[i] = i + 1 < s->rank ? s->stride[i + 1] * s->dim[i + 1].size : 1;
}

typedef enum composed { COMPOSED, COMPOSED_BY_COPY, COMPOSED_NEVER } composed;

/* The elements of every run lie where they have to: parts of one shape have the size of parts of
 * the other, with only their outermost dimension varying; where each part of x is as one dimension,
 * strides say it. The bounds of the shapes agree as a whole. to: its strides are found. */
static composed compose(const graph *g, const shape *x, shape *to) {
    composed how = COMPOSED;
    part a = {.dims = x->dim, .left = x->rank}, b = {.dims = to->dim, .left = to->rank};
    while (a.left || b.left) {
        const uint32_t a_end = a.left, b_end = b.left;
        int64_t stride = 1;
        part_begin(&a);
        part_begin(&b);
        do {
            const bool first = a.bound == b.bound ? a.left && !a.varies : a.bound < b.bound;
            if (!part_take(g, first ? &a : &b)) return COMPOSED_NEVER;
        } while (a.bound != b.bound || !graph_sum_equal(&a.size, &b.size));
        if (!are_one(x, a.left, a_end, &stride)) how = COMPOSED_BY_COPY;
        for (uint32_t i = b_end; i-- > b.left; stride *= to->dim[i].size) to->stride[i] = stride;
    }
    place_ones(to);
    return how;
}

graph_value graph_reshape(graph *g, graph_value x, uint32_t rank, const graph_dim *dims) {
    char from[GRAPH_SHAPE_TEXT], to[GRAPH_SHAPE_TEXT];
    shape s, as;
    uint64_t n = 1;
    if (!begin(g, VIEW_RESHAPE, x, &s)) return 0;
    if (rank > GRAPH_RANK_MAX) return graph_refuse(g, BERYL_UNSUPPORTED, "reshape: rank %u", rank);
    for (uint32_t i = 0; i < rank; i++)
        n = !dims[i].size || n <= GRAPH_VIEW_ELEMENTS / dims[i].size ? n * dims[i].size
                                                                     : UINT64_MAX;
    as = (shape){.rank = rank, .offset = s.offset};
    if (rank) memcpy(as.dim, dims, rank * sizeof *dims);
    const graph_tensor *t = graph_tensor_at(g, x);
    const composed how = n == graph_element_bound(t) ? compose(g, &s, &as) : COMPOSED_NEVER;
    if (how == COMPOSED_NEVER)
        return graph_refuse(g, BERYL_MISUSE,
                            "reshape of %s to %s: another size, or across an extent that is not "
                            "outermost",
                            words_of(g, x, from), graph_shape_text(g, rank, dims, to));
    if (how == COMPOSED) return finish(g, VIEW_RESHAPE, x, &as);
    if (!graph_type_is_plain(t->type))
        return refuse_view(g, BERYL_UNSUPPORTED, VIEW_RESHAPE, x,
                           "a view whose elements lie apart, of a type that is not copied");
    return graph_reshape(g, graph_copy(g, x), rank, dims);
}

/* ---- the others ------------------------------------------------------------------------------ */

graph_value graph_permute(graph *g, graph_value x, uint32_t rank, const uint32_t *axes) {
    shape s, as;
    uint32_t seen = 0, packed[2] = {0};
    if (!begin(g, VIEW_PERMUTE, x, &s)) return 0;
    as = s;
    for (uint32_t i = 0; i < rank && i < s.rank; i++) {
        if (!has_axis(g, name_of(VIEW_PERMUTE), x, axes[i])) return 0;
        as.dim[i] = s.dim[axes[i]];
        as.stride[i] = s.stride[axes[i]];
        seen |= 1u << axes[i];
        packed[i / 8] |= axes[i] << 4 * (i % 8);
    }
    if (rank != s.rank || seen != (1u << rank) - 1)
        return refuse_view(g, BERYL_MISUSE, VIEW_PERMUTE, x, "not each of its axes once");
    return told(g, finish(g, VIEW_PERMUTE, x, &as), packed, 2);
}

graph_value graph_expand(graph *g, graph_value x, uint32_t rank, const graph_dim *dims) {
    char from[GRAPH_SHAPE_TEXT], to[GRAPH_SHAPE_TEXT];
    shape s, as;
    if (!begin(g, VIEW_EXPAND, x, &s)) return 0;
    if (rank > GRAPH_RANK_MAX) return graph_refuse(g, BERYL_UNSUPPORTED, "expand: rank %u", rank);
    bool fits = rank >= s.rank;
    as = (shape){.rank = rank, .offset = s.offset};
    for (uint32_t i = 0; fits && i < rank; i++) {
        const uint32_t k = i + s.rank - rank; /* beyond all axes where x has none */
        const bool same = i >= rank - s.rank && graph_same_dim(s.dim[k], dims[i]);
        fits = dims[i].extent <= g->n_extent && (same || i < rank - s.rank || is_one(s.dim[k]));
        as.dim[i] = dims[i];
        as.stride[i] = same ? s.stride[k] : 0;
    }
    if (!fits)
        return graph_refuse(g, BERYL_MISUSE,
                            "expand of %s to %s: an axis that is neither 1 nor the same",
                            words_of(g, x, from), graph_shape_text(g, rank, dims, to));
    return finish(g, VIEW_EXPAND, x, &as);
}

graph_value graph_narrow(graph *g, graph_value x, uint32_t axis, uint32_t start, uint32_t size,
                         uint32_t step) {
    char text[GRAPH_SHAPE_TEXT];
    shape s;
    if (!begin(g, VIEW_NARROW, x, &s) || !has_constant_axis(g, name_of(VIEW_NARROW), x, axis))
        return 0;
    if (!size || !step || start + (uint64_t)(size - 1) * step >= s.dim[axis].size)
        return graph_refuse(g, BERYL_MISUSE,
                            "narrow of %s: axis %u has no %u elements from %u on, %u apart",
                            words_of(g, x, text), axis, size, start, step);
    s.dim[axis].size = size;
    s.offset += start * s.stride[axis];
    s.stride[axis] *= step;
    return told(g, finish(g, VIEW_NARROW, x, &s), (uint32_t[]){axis, start, size, step}, 4);
}

void graph_split(graph *g, graph_value x, uint32_t axis, uint32_t n, graph_value *parts) {
    char text[GRAPH_SHAPE_TEXT];
    for (uint32_t i = 0; i < n; i++) parts[i] = 0;
    if (!graph_has(g, x, "split") || !has_constant_axis(g, "split", x, axis)) return;
    const uint32_t size = graph_tensor_at(g, x)->dim[axis].size;
    if (!n || size % n) {
        graph_refuse(g, BERYL_MISUSE, "split of %s: axis %u in %u equal parts",
                     words_of(g, x, text), axis, n);
        return;
    }
    for (uint32_t i = 0; i < n; i++)
        parts[i] = graph_narrow(g, x, axis, i * (size / n), size / n, 1);
}

graph_value graph_flip(graph *g, graph_value x, uint32_t axis) {
    shape s;
    if (!begin(g, VIEW_FLIP, x, &s) || !has_constant_axis(g, name_of(VIEW_FLIP), x, axis)) return 0;
    s.offset += (s.dim[axis].size - 1) * s.stride[axis];
    if (!is_one(s.dim[axis])) s.stride[axis] = -s.stride[axis];
    return told(g, finish(g, VIEW_FLIP, x, &s), &axis, 1);
}

graph_value graph_diagonal(graph *g, graph_value x, uint32_t axis, uint32_t other) {
    shape s;
    if (!begin(g, VIEW_DIAGONAL, x, &s) || !has_axis(g, name_of(VIEW_DIAGONAL), x, axis) ||
        !has_axis(g, name_of(VIEW_DIAGONAL), x, other))
        return 0;
    const graph_dim a = s.dim[axis], b = s.dim[other];
    if (axis == other || ((a.extent || b.extent) && !graph_same_dim(a, b)))
        return refuse_view(g, BERYL_MISUSE, VIEW_DIAGONAL, x,
                           "it takes two axes, constants or the same extent");
    shape as = {.offset = s.offset};
    for (uint32_t i = 0; i < s.rank; i++) {
        if (i == axis || i == other) continue;
        as.dim[as.rank] = s.dim[i];
        as.stride[as.rank++] = s.stride[i];
    }
    as.dim[as.rank] = a.size < b.size ? a : b;
    as.stride[as.rank++] = s.stride[axis] + s.stride[other];
    return told(g, finish(g, VIEW_DIAGONAL, x, &as), (uint32_t[]){axis, other}, 2);
}

/* How many windows of `size` elements begin `step` apart in an axis, as far as they are whole. Of
 * an axis that a run sizes as many are there as it has steps, where constants (padding) make up for
 * the last one; size 0: they do not. */
static graph_dim window_count(graph *g, graph_dim axis, uint32_t size, uint32_t step) {
    if (!axis.extent) return (graph_dim){axis.size < size ? 0 : (axis.size - size) / step + 1, 0};
    graph_sum sum;
    if (!graph_sum_of(g, axis, &sum) || !graph_sum_subtract(&sum, size - 1))
        return (graph_dim){0, 0};
    return graph_sum_quotient(g, &sum, step) ? graph_sum_dim(g, &sum) : (graph_dim){0, 0};
}

graph_value graph_windows(graph *g, graph_value x, uint32_t axis, uint32_t size, uint32_t step) {
    char text[GRAPH_SHAPE_TEXT];
    shape s;
    if (!begin(g, VIEW_WINDOWS, x, &s) || !has_axis(g, name_of(VIEW_WINDOWS), x, axis)) return 0;
    const graph_dim n = size && step ? window_count(g, s.dim[axis], size, step) : (graph_dim){0, 0};
    if (g->error.code != BERYL_OK) return 0;
    if (!n.size)
        return graph_refuse(g, BERYL_MISUSE, "windows of %s: axis %u in windows of %u, %u apart%s",
                            words_of(g, x, text), axis, size, step,
                            s.dim[axis].extent ? ": it is not padded by one less" : "");
    if (s.rank == GRAPH_RANK_MAX)
        return refuse_view(g, BERYL_UNSUPPORTED, VIEW_WINDOWS, x, "no place for one more axis");
    s.dim[s.rank] = (graph_dim){size, 0};
    s.stride[s.rank++] = s.stride[axis];
    s.dim[axis] = n;
    s.stride[axis] *= step;
    return told(g, finish(g, VIEW_WINDOWS, x, &s), (uint32_t[]){axis, size, step}, 3);
}

graph_value graph_squeeze(graph *g, graph_value x, uint32_t axis) {
    shape s;
    if (!begin(g, VIEW_SQUEEZE, x, &s) || !has_axis(g, name_of(VIEW_SQUEEZE), x, axis)) return 0;
    if (!is_one(s.dim[axis]))
        return refuse_view(g, BERYL_MISUSE, VIEW_SQUEEZE, x, "the axis is not 1");
    s.rank--;
    memmove(s.dim + axis, s.dim + axis + 1, (s.rank - axis) * sizeof *s.dim);
    memmove(s.stride + axis, s.stride + axis + 1, (s.rank - axis) * sizeof *s.stride);
    return told(g, finish(g, VIEW_SQUEEZE, x, &s), &axis, 1);
}

graph_value graph_unsqueeze(graph *g, graph_value x, uint32_t axis) {
    shape s;
    if (!begin(g, VIEW_UNSQUEEZE, x, &s)) return 0;
    if (axis > s.rank || s.rank == GRAPH_RANK_MAX)
        return refuse_view(g, s.rank == GRAPH_RANK_MAX ? BERYL_UNSUPPORTED : BERYL_MISUSE,
                           VIEW_UNSQUEEZE, x, "no place for one more axis there");
    memmove(s.dim + axis + 1, s.dim + axis, (s.rank - axis) * sizeof *s.dim);
    memmove(s.stride + axis + 1, s.stride + axis, (s.rank - axis) * sizeof *s.stride);
    s.dim[axis] = (graph_dim){1, 0};
    s.stride[axis] = 1;
    s.rank++;
    if (axis + 1 < s.rank) s.stride[axis] = s.stride[axis + 1] * s.dim[axis + 1].size;
    return told(g, finish(g, VIEW_UNSQUEEZE, x, &s), &axis, 1);
}

graph_value graph_view(graph *g, base_view_kind view, graph_value x, const uint32_t *numbers,
                       uint32_t rank, const graph_dim *dims) {
    switch (view) {
    case VIEW_RESHAPE: return graph_reshape(g, x, rank, dims);
    case VIEW_PERMUTE: return graph_permute(g, x, rank, numbers);
    case VIEW_EXPAND: return graph_expand(g, x, rank, dims);
    case VIEW_NARROW: return graph_narrow(g, x, numbers[0], numbers[1], numbers[2], numbers[3]);
    case VIEW_FLIP: return graph_flip(g, x, numbers[0]);
    case VIEW_DIAGONAL: return graph_diagonal(g, x, numbers[0], numbers[1]);
    case VIEW_WINDOWS: return graph_windows(g, x, numbers[0], numbers[1], numbers[2]);
    case VIEW_SQUEEZE: return graph_squeeze(g, x, numbers[0]);
    case VIEW_UNSQUEEZE: return graph_unsqueeze(g, x, numbers[0]);
    case VIEW_COUNT: break;
    }
    return 0;
}

/* ---- of several, and again and again --------------------------------------------------------- */

graph_value graph_concat(graph *g, uint32_t n, const graph_value *x, uint32_t axis) {
    enum { MOST = 5 }; /* of one node */
    graph_value in[GRAPH_IN_MAX] = {0}, parts[MOST];
    if (g->error.code != BERYL_OK) return 0;
    if (!n) return graph_refuse(g, BERYL_MISUSE, "concat of nothing");
    if (n == 1) return graph_has(g, x[0], "concat") && has_axis(g, "concat", x[0], axis) ? x[0] : 0;
    if (n <= MOST) {
        memcpy(in, x, n * sizeof *x);
        return graph_op(g, OP_CONCAT, in, (graph_attrs){.concat = {axis}});
    }
    for (uint32_t i = 0, first = 0; i < MOST; i++) { /* parts of parts */
        const uint32_t end = (uint32_t)((uint64_t)n * (i + 1) / MOST);
        parts[i] = graph_concat(g, end - first, x + first, axis);
        first = end;
    }
    return graph_concat(g, MOST, parts, axis);
}

graph_value graph_stack(graph *g, uint32_t n, const graph_value *x, uint32_t axis) {
    if (g->error.code != BERYL_OK) return 0;
    if (!n) return graph_refuse(g, BERYL_MISUSE, "stack of nothing");
    graph_value *with = base_arena_take(&g->arena, n, sizeof *with);
    if (!with) return graph_no_memory(g);
    for (uint32_t i = 0; i < n; i++) with[i] = graph_unsqueeze(g, x[i], axis);
    return g->error.code == BERYL_OK ? graph_concat(g, n, with, axis) : 0;
}

graph_value graph_roll(graph *g, graph_value x, uint32_t axis, uint32_t by) {
    if (!graph_has(g, x, "roll") || !has_constant_axis(g, "roll", x, axis)) return 0;
    const uint32_t size = graph_tensor_at(g, x)->dim[axis].size, end = by % size;
    if (!end) return x;
    const graph_value parts[2] = {graph_narrow(g, x, axis, size - end, end, 1),
                                  graph_narrow(g, x, axis, 0, size - end, 1)};
    return graph_concat(g, 2, parts, axis);
}

/* With a new axis of so many at `at`, joined with the one beside it. */
static graph_value times(graph *g, graph_value x, uint32_t axis, uint32_t n, uint32_t at,
                         const char *what) {
    graph_dim dims[GRAPH_RANK_MAX];
    if (!graph_has(g, x, what) || !has_axis(g, what, x, axis)) return 0;
    if (!n) return graph_refuse(g, BERYL_MISUSE, "%s: 0 times", what);
    const graph_tensor t = *graph_tensor_at(g, x);
    const graph_value one = graph_unsqueeze(g, x, at);
    if (!one) return 0; /* more axes than there may be */
    memcpy(dims, graph_tensor_at(g, one)->dim, sizeof dims);
    dims[at].size = n;
    const graph_value all = graph_expand(g, one, t.rank + 1u, dims);
    memcpy(dims, t.dim, sizeof dims);
    dims[axis] = graph_dim_product(g, t.dim[axis], (graph_dim){n, 0});
    return all ? graph_reshape(g, all, t.rank, dims) : 0;
}

graph_value graph_tile(graph *g, graph_value x, uint32_t axis, uint32_t n) {
    if (!graph_has(g, x, "tile") || !has_constant_axis(g, "tile", x, axis)) return 0;
    return times(g, x, axis, n, axis, "tile");
}

graph_value graph_repeat(graph *g, graph_value x, uint32_t axis, uint32_t n) {
    return times(g, x, axis, n, axis + 1, "repeat");
}
