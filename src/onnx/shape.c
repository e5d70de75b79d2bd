/* shape.c - operators that say where elements are: shapes, axes, parts, padding. */
#include "graph/reference.h"
#include "onnx/operators.h"

#include <math.h>
#include <string.h>

void onnx_constant(onnx_call *c) {
    const onnx_attribute *a;
    onnx_array *to = NULL;
    const uint32_t none = 0;
    if ((a = onnx_attribute_find(c, "value")) && a->tensor) {
        onnx_give_array(c, 0, onnx_array_of(c, a->tensor));
    } else if ((a = onnx_attribute_find(c, "value_float"))) {
        if ((to = onnx_array_make(c, TYPE_F32, 0, &none)))
            memcpy((void *)(uintptr_t)to->data, &a->number, sizeof a->number);
    } else if ((a = onnx_attribute_find(c, "value_int"))) {
        if ((to = onnx_array_make(c, TYPE_I64, 0, &none)))
            memcpy((void *)(uintptr_t)to->data, &a->whole, sizeof a->whole);
    } else if ((a = onnx_attribute_find(c, "value_floats"))) {
        if ((to = onnx_array_make(c, TYPE_F32, 1, (uint32_t[]){(uint32_t)a->n})) && a->numbers)
            memcpy((void *)(uintptr_t)to->data, a->numbers, a->n * sizeof *a->numbers);
    } else if ((a = onnx_attribute_find(c, "value_ints"))) {
        if ((to = onnx_array_make(c, TYPE_I64, 1, (uint32_t[]){(uint32_t)a->n})) && a->wholes)
            memcpy((void *)(uintptr_t)to->data, a->wholes, a->n * sizeof *a->wholes);
    } else {
        onnx_refuse(c, "a constant that is no numbers");
    }
    if (to) onnx_give_array(c, 0, to);
}

/* An array of whole numbers. */
static void give_wholes(onnx_call *c, uint32_t rank, uint32_t n, const int64_t *wholes) {
    onnx_array *to = onnx_array_make(c, TYPE_I64, rank, &n);
    if (!to) return;
    if (n) memcpy((void *)(uintptr_t)to->data, wholes, n * sizeof *wholes);
    onnx_give_array(c, 0, to);
}

static bool constant_shape(onnx_call *c, onnx_shape *shape) {
    if (!onnx_shape_of(c, 0, shape)) return false;
    for (uint32_t i = 0; i < shape->rank; i++)
        if (shape->dim[i].extent)
            return onnx_refuse(c, "the shape of a tensor that each run sizes: give the shapes of "
                                  "inputs"),
                   false;
    return true;
}

static int64_t within(int64_t x, int64_t low, int64_t high) {
    return x < low ? low : x > high ? high : x;
}

void onnx_shape_op(onnx_call *c) {
    onnx_shape shape;
    if (!constant_shape(c, &shape)) return;
    int64_t start = onnx_whole(c, "start", 0), end = onnx_whole(c, "end", shape.rank),
            wholes[GRAPH_RANK_MAX];
    start = within(start < 0 ? start + shape.rank : start, 0, shape.rank);
    end = within(end < 0 ? end + shape.rank : end, 0, shape.rank);
    uint32_t n = 0;
    for (int64_t i = start; i < end; i++) wholes[n++] = shape.dim[i].size;
    give_wholes(c, 1, n, wholes);
}

void onnx_size(onnx_call *c) {
    onnx_shape shape;
    if (!constant_shape(c, &shape)) return;
    int64_t n = 1;
    for (uint32_t i = 0; i < shape.rank; i++) n *= shape.dim[i].size;
    give_wholes(c, 0, 1, &n);
}

/* Whole numbers as dimensions; false: refused. */
static bool dims_of(onnx_call *c, const onnx_wholes *from, uint32_t *dim) {
    if (from->n > GRAPH_RANK_MAX) return onnx_refuse(c, "more than 10 dimensions"), false;
    for (size_t i = 0; i < from->n; i++) {
        if (from->at[i] < 0 || from->at[i] > INT32_MAX)
            return onnx_refuse(c, "a dimension of %lld", (long long)from->at[i]), false;
        dim[i] = (uint32_t)from->at[i];
    }
    return true;
}

void onnx_constant_of_shape(onnx_call *c) {
    onnx_wholes sizes;
    uint32_t dim[GRAPH_RANK_MAX];
    const onnx_attribute *value = onnx_attribute_find(c, "value");
    if (!onnx_wholes_of(c, 0, &sizes) || !dims_of(c, &sizes, dim)) return;
    const onnx_array *one = value && value->tensor ? onnx_array_of(c, value->tensor) : NULL;
    if (c->g->error.code != BERYL_OK) return;
    if (one && (onnx_array_count(one) != 1 || !one->data)) {
        onnx_refuse(c, "the value is not one number");
        return;
    }
    const onnx_array as = {.type = one ? one->type : TYPE_F32, .rank = (uint32_t)sizes.n};
    onnx_array probe = as;
    memcpy(probe.dim, dim, sizes.n * sizeof *dim);
    if (onnx_array_count(&probe) > 1 << 16) {
        double real = 0;
        if (one) {
            const reference_number x = reference_number_at(one->type, one->data);
            real = base_type_is_float(one->type) ? x.real : (double)x.whole;
        }
        graph_dim d[GRAPH_RANK_MAX];
        for (size_t i = 0; i < sizes.n; i++) d[i] = (graph_dim){dim[i], 0};
        onnx_give(c, 0, onnx_expand(c, onnx_number(c, real, as.type), (uint32_t)sizes.n, d));
        return;
    }
    onnx_array *to = onnx_array_make(c, as.type, as.rank, dim);
    if (!to) return;
    const uint32_t bytes = base_type_block_bytes(as.type);
    for (uint64_t i = 0; one && i < onnx_array_count(to); i++)
        memcpy((char *)(uintptr_t)to->data + i * bytes, one->data, bytes);
    onnx_give_array(c, 0, to);
}

void onnx_range(onnx_call *c) {
    double at[3];
    size_t n;
    for (size_t k = 0; k < 3; k++)
        if (!onnx_reals_of(c, k, &at[k], 1, &n)) return;
    const base_type type = c->in[0].array->type;
    const double count = ceil((at[1] - at[0]) / at[2]);
    if (!(count <= 1 << 24)) {
        onnx_refuse(c, "a range of %g numbers", count);
        return;
    }
    const uint32_t size = count > 0 ? (uint32_t)count : 0, bytes = base_type_block_bytes(type);
    onnx_array *to = onnx_array_make(c, type, 1, &size);
    for (uint32_t i = 0; to && i < size; i++) {
        const double x = at[0] + i * at[2];
        reference_put(type, (char *)(uintptr_t)to->data + i * bytes,
                      (reference_number){x, reference_within(type, x)});
    }
    if (to) onnx_give_array(c, 0, to);
}

/* ---- shapes ---------------------------------------------------------------------------------- */

/* x, of n elements in all, in another shape: an array where it is one. */
static void give_reshaped(onnx_call *c, uint32_t rank, const graph_dim *dim) {
    if (rank > GRAPH_RANK_MAX) {
        onnx_refuse(c, "more than 10 dimensions");
        return;
    }
    const onnx_array *a = onnx_is_given(c, 0) ? c->in[0].array : NULL;
    bool constant = a != NULL;
    for (uint32_t i = 0; i < rank; i++) constant = constant && !dim[i].extent;
    if (constant && !c->in[0].v) {
        onnx_array *to = base_arena_take(c->arena, 1, sizeof *to);
        if (!to) {
            graph_no_memory(c->g);
            return;
        }
        *to = *a;
        to->rank = rank;
        for (uint32_t i = 0; i < rank; i++) to->dim[i] = dim[i].size;
        if (onnx_array_count(to) == onnx_array_count(a)) onnx_give_array(c, 0, to);
        else
            onnx_refuse(c, "a shape of %llu elements for %llu",
                        (unsigned long long)onnx_array_count(to),
                        (unsigned long long)onnx_array_count(a));
        return;
    }
    const graph_value x = onnx_in(c, 0);
    if (x) onnx_give(c, 0, graph_reshape(c->g, x, rank, dim));
}

void onnx_reshape_to(onnx_call *c) {
    onnx_shape from;
    onnx_wholes to;
    if (!onnx_shape_of(c, 0, &from) || !onnx_wholes_of(c, 1, &to)) return;
    if (to.n > GRAPH_RANK_MAX) {
        onnx_refuse(c, "more than 10 dimensions");
        return;
    }
    graph_dim dim[GRAPH_RANK_MAX];
    const bool zeros = onnx_whole(c, "allowzero", 0);
    uint64_t known = 1, all = 1;
    uint32_t open = UINT32_MAX;
    uint8_t extent = 0;
    for (uint32_t i = 0; i < from.rank; i++)
        if (from.dim[i].extent && !extent) extent = from.dim[i].extent, all *= 1;
        else all *= from.dim[i].size;
    for (uint32_t i = 0; i < to.n; i++) {
        if (to.at[i] == 0 && !zeros) {
            if (i >= from.rank) {
                onnx_refuse(c, "dimension %u is to be that of the input, which has it not", i);
                return;
            }
            dim[i] = from.dim[i];
            if (dim[i].extent) extent = 0;
        } else if (to.at[i] == -1 && open == UINT32_MAX) {
            open = i;
            continue;
        } else if (to.at[i] < 0 || to.at[i] > INT32_MAX) {
            onnx_refuse(c, "a dimension of %lld", (long long)to.at[i]);
            return;
        } else {
            dim[i] = (graph_dim){(uint32_t)to.at[i], 0};
        }
        if (!dim[i].extent) known *= dim[i].size;
    }
    if (open != UINT32_MAX) {
        if (!known || all % known || all / known > UINT32_MAX) {
            onnx_refuse(c, "no size makes %llu elements of that shape", (unsigned long long)all);
            return;
        }
        dim[open] = (graph_dim){(uint32_t)(all / known), 0};
        for (uint32_t i = 0; extent && i < from.rank; i++)
            if (from.dim[i].extent == extent)
                dim[open] = graph_dim_product(c->g, from.dim[i], dim[open]);
    }
    give_reshaped(c, (uint32_t)to.n, dim);
}

void onnx_flatten(onnx_call *c) {
    onnx_shape s;
    if (!onnx_shape_of(c, 0, &s)) return;
    int64_t axis = onnx_whole(c, "axis", 1);
    axis = axis < 0 ? axis + s.rank : axis;
    graph_dim d[2] = {{1, 0}, {1, 0}};
    for (uint32_t i = 0; i < s.rank; i++) {
        graph_dim *to = &d[i >= axis];
        *to = to->size && s.dim[i].size ? graph_dim_product(c->g, *to, s.dim[i]) : (graph_dim){0};
    }
    give_reshaped(c, 2, d);
}

void onnx_squeeze(onnx_call *c) {
    onnx_shape s;
    onnx_wholes axes;
    uint32_t drop = 0, n = 0;
    if (!onnx_shape_of(c, 0, &s)) return;
    const bool said = onnx_wholes_at(c, "axes", 1, &axes);
    if (c->g->error.code != BERYL_OK) return;
    for (uint32_t i = 0; !said && i < s.rank; i++)
        drop |= (uint32_t)(s.dim[i].size == 1 && !s.dim[i].extent) << i;
    for (size_t i = 0; said && i < axes.n; i++) {
        const uint32_t axis = onnx_axis(c, axes.at[i], s.rank);
        if (axis == UINT32_MAX) return;
        drop |= 1u << axis;
    }
    for (uint32_t i = 0; i < s.rank; i++)
        if (!(drop >> i & 1)) s.dim[n++] = s.dim[i];
        else if (s.dim[i].size != 1) {
            onnx_refuse(c, "axis %u has size %u", i, s.dim[i].size);
            return;
        }
    give_reshaped(c, n, s.dim);
}

void onnx_unsqueeze(onnx_call *c) {
    onnx_shape s;
    onnx_wholes axes;
    if (!onnx_shape_of(c, 0, &s)) return;
    if (!onnx_wholes_at(c, "axes", 1, &axes)) {
        onnx_refuse(c, "no axes are given");
        return;
    }
    const uint32_t rank = s.rank + (uint32_t)axes.n;
    graph_dim d[GRAPH_RANK_MAX];
    uint32_t new = 0, from = 0;
    if (rank > GRAPH_RANK_MAX) {
        onnx_refuse(c, "more than 10 dimensions");
        return;
    }
    for (size_t i = 0; i < axes.n; i++) {
        const uint32_t axis = onnx_axis(c, axes.at[i], rank);
        if (axis == UINT32_MAX) return;
        if (new >> axis & 1) {
            onnx_refuse(c, "twice the same axis");
            return;
        }
        new |= 1u << axis;
    }
    for (uint32_t i = 0; i < rank; i++) d[i] = new >> i & 1 ? (graph_dim){1, 0} : s.dim[from++];
    give_reshaped(c, rank, d);
}

void onnx_transpose(onnx_call *c) {
    const graph_value x = onnx_in(c, 0);
    onnx_wholes perm;
    uint32_t axes[GRAPH_RANK_MAX];
    if (!x) return;
    const uint32_t rank = onnx_tensor_of(c, x)->rank;
    const bool said = onnx_wholes_at(c, "perm", 0, &perm);
    if (said && perm.n != rank) {
        onnx_refuse(c, "%zu axes for a tensor of %u", perm.n, rank);
        return;
    }
    for (uint32_t i = 0; i < rank; i++) {
        axes[i] = said ? onnx_axis(c, perm.at[i], rank) : rank - 1 - i;
        if (axes[i] == UINT32_MAX) return;
    }
    onnx_give(c, 0, rank ? graph_permute(c->g, x, rank, axes) : x);
}

void onnx_expand_to(onnx_call *c) {
    const graph_value x = onnx_in(c, 0);
    onnx_wholes sizes;
    uint32_t dim[GRAPH_RANK_MAX];
    if (!x || !onnx_wholes_of(c, 1, &sizes) || !dims_of(c, &sizes, dim)) return;
    const graph_tensor t = *onnx_tensor_of(c, x);
    const uint32_t rank = t.rank > sizes.n ? t.rank : (uint32_t)sizes.n;
    graph_dim d[GRAPH_RANK_MAX];
    for (uint32_t i = 0; i < rank; i++) {
        const uint32_t behind = rank - i; /* from the right */
        const graph_dim own = behind <= t.rank ? t.dim[t.rank - behind] : (graph_dim){1, 0};
        const uint32_t size = behind <= sizes.n ? dim[sizes.n - behind] : 1;
        d[i] = own.size != 1 || own.extent ? own : (graph_dim){size, 0};
    }
    onnx_give(c, 0, onnx_expand(c, x, rank, d));
}

void onnx_tile(onnx_call *c) {
    graph_value x = onnx_in(c, 0);
    onnx_wholes times;
    if (!x || !onnx_wholes_of(c, 1, &times)) return;
    if (times.n != onnx_tensor_of(c, x)->rank) {
        onnx_refuse(c, "%zu repeats for another number of axes", times.n);
        return;
    }
    for (uint32_t i = 0; x && i < times.n; i++) {
        if (times.at[i] < 1 || times.at[i] > INT32_MAX)
            x = onnx_refuse(c, "repeated %lld times", (long long)times.at[i]);
        else if (times.at[i] != 1) x = graph_tile(c->g, x, i, (uint32_t)times.at[i]);
    }
    onnx_give(c, 0, x);
}

/* ---- parts ----------------------------------------------------------------------------------- */

void onnx_concat(onnx_call *c) {
    graph_value parts[ONNX_IN_MAX];
    uint32_t n = 0;
    onnx_shape s;
    if (!onnx_shape_of(c, 0, &s)) return;
    const uint32_t axis = onnx_axis(c, onnx_whole(c, "axis", 1), s.rank);
    if (axis == UINT32_MAX) return;
    size_t last = 0;
    for (size_t k = 0; k < c->n_in; k++) {
        if (!onnx_is_given(c, k)) continue;
        const onnx_array *a = c->in[k].array;
        last = k;
        if (a && !onnx_array_count(a)) continue; /* nothing */
        if (!(parts[n++] = onnx_in(c, k))) return;
    }
    if (!n) c->out[0] = c->in[last];
    else onnx_give(c, 0, n == 1 ? parts[0] : graph_concat(c->g, n, parts, axis));
}

static void give_nothing(onnx_call *c, size_t k, const graph_tensor *t, uint32_t axis) {
    uint32_t dim[GRAPH_RANK_MAX];
    for (uint32_t i = 0; i < t->rank; i++) dim[i] = i == axis ? 0 : t->dim[i].size;
    const onnx_array *a = onnx_array_make(c, t->type, t->rank, dim);
    if (a) onnx_give_array(c, k, a);
}

void onnx_split(onnx_call *c) {
    onnx_shape s;
    onnx_wholes sizes;
    if (!onnx_shape_of(c, 0, &s)) return;
    const uint32_t axis = onnx_axis(c, onnx_whole(c, "axis", 0), s.rank);
    if (axis == UINT32_MAX) return;
    const bool said = onnx_wholes_at(c, "split", 1, &sizes);
    if (c->g->error.code != BERYL_OK) return;
    const uint32_t all = s.dim[axis].size, n = (uint32_t)c->n_out, each = n ? (all + n - 1) / n : 0;
    graph_tensor shape = {.type = s.type, .rank = (uint8_t)s.rank};
    memcpy(shape.dim, s.dim, sizeof s.dim);
    uint32_t at = 0;
    if (said && sizes.n != n) {
        onnx_refuse(c, "%zu sizes for %u outputs", sizes.n, n);
        return;
    }
    for (uint32_t k = 0; k < n; k++) {
        const int64_t size = said ? sizes.at[k] : each < all - at ? each : all - at;
        if (size < 0 || size > all - at) {
            onnx_refuse(c, "a part of %lld", (long long)size);
            return;
        }
        if (!size) {
            give_nothing(c, k, &shape, axis);
        } else {
            const graph_value x = onnx_in(c, 0);
            if (!x) return;
            onnx_give(c, k, graph_narrow(c->g, x, axis, at, (uint32_t)size, 1));
        }
        at += (uint32_t)size;
    }
}

/* Starts, ends, axes and steps, from attributes before opset 10. */
static bool slice_parts(onnx_call *c, onnx_wholes part[4]) {
    static const char *const names[] = {"starts", "ends", "axes", "steps"};
    for (size_t k = 0; k < 4; k++) {
        part[k].n = 0;
        if (c->opset < 10) onnx_wholes_at(c, names[k], 0, &part[k]);
        else if (k < 2 || onnx_is_given(c, k + 1)) onnx_wholes_of(c, k + 1, &part[k]);
        if (c->g->error.code != BERYL_OK) return false;
    }
    const size_t n = part[0].n;
    if (part[1].n == n && (!part[2].n || part[2].n == n) && (!part[3].n || part[3].n == n))
        return true;
    onnx_refuse(c, "starts, ends, axes and steps of different numbers");
    return false;
}

void onnx_slice(onnx_call *c) {
    onnx_wholes part[4];
    onnx_shape s;
    if (!onnx_shape_of(c, 0, &s) || !slice_parts(c, part)) return;
    graph_tensor shape = {.type = s.type, .rank = (uint8_t)s.rank};
    memcpy(shape.dim, s.dim, sizeof s.dim);
    graph_value x = 0;
    bool none = c->in[0].array && !onnx_array_count(c->in[0].array);
    if (!none && !(x = onnx_in(c, 0))) return;
    for (size_t i = 0; i < part[0].n; i++) {
        const uint32_t axis = onnx_axis(c, part[2].n ? part[2].at[i] : (int64_t)i, s.rank);
        if (axis == UINT32_MAX) return;
        const int64_t step = part[3].n ? part[3].at[i] : 1, size = shape.dim[axis].size;
        int64_t start = part[0].at[i], end = part[1].at[i];
        if (!step || step < -INT32_MAX || step > INT32_MAX) {
            onnx_refuse(c, "a step of %lld", (long long)step);
            return;
        }
        start = start < -size ? -size : start;
        end = end < -size - 1 ? -size - 1 : end;
        start = within(start < 0 ? start + size : start, 0, step > 0 ? size : size - 1);
        end = within(end < 0 ? end + size : end, step > 0 ? 0 : -1, size);
        const int64_t reach = step > 0 ? end - start : start - end, by = step > 0 ? step : -step,
                      n = reach > 0 && size ? (reach + by - 1) / by : 0;
        const bool whole = step == 1 && start == 0 && n == size;
        if (whole) continue;
        if (shape.dim[axis].extent) {
            onnx_refuse(c, "a part of axis %u, which each run sizes", axis);
            return;
        }
        shape.dim[axis].size = (uint32_t)n;
        none = none || !n;
        if (none) continue;
        x = graph_narrow(c->g, x, axis, (uint32_t)(step > 0 ? start : start - (n - 1) * by),
                         (uint32_t)n, (uint32_t)by);
        if (x && step < 0) x = graph_flip(c->g, x, axis);
        if (!x) return;
    }
    if (none) give_nothing(c, 0, &shape, UINT32_MAX);
    else onnx_give(c, 0, x);
}

/* ---- padding --------------------------------------------------------------------------------- */

/* Elements of an axis from other places of it: reflected, or the last ones again. */
static graph_value pad_by_index(onnx_call *c, graph_value x, uint32_t axis, int64_t before,
                                int64_t after, char how) {
    const int64_t size = onnx_tensor_of(c, x)->dim[axis].size, n = before + size + after;
    if (n <= 0 || n > INT32_MAX) return onnx_refuse(c, "padded to %lld", (long long)n);
    const uint32_t count = (uint32_t)n;
    onnx_array *ids = onnx_array_make(c, TYPE_I32, 1, &count);
    for (int64_t i = 0; ids && i < n; i++) {
        int64_t at = i - before;
        if (how == 'e') at = within(at, 0, size - 1);
        else if (how == 'w') at = ((at % size) + size) % size;
        else if (size == 1) at = 0;
        else {
            const int64_t period = 2 * (size - 1);
            at = ((at % period) + period) % period;
            at = at < size ? at : period - at;
        }
        ((int32_t *)(uintptr_t)ids->data)[i] = (int32_t)at;
    }
    onnx_value v = {.array = ids};
    return ids ? graph_index_select(c->g, x, onnx_value_in_graph(c, &v), axis) : 0;
}

/* The number around x, as a value of its type, where the graph's pad cannot say it. */
static graph_value pad_with(onnx_call *c, graph_value x, uint32_t axis, uint32_t before,
                            uint32_t after, double number) {
    return before || after ? graph_pad(c->g, x, axis, before, after, (float)number) : x;
}

void onnx_pad(onnx_call *c) {
    graph_value x = onnx_in(c, 0);
    onnx_wholes pads, axes = {.n = 0};
    double number = (double)onnx_real(c, "value", 0);
    size_t n = 1;
    if (!x) return;
    if (!onnx_wholes_at(c, "pads", 1, &pads)) {
        if (c->g->error.code == BERYL_OK) onnx_refuse(c, "no pads are given");
        return;
    }
    if (onnx_is_given(c, 2) && !onnx_reals_of(c, 2, &number, 1, &n)) return;
    if (onnx_is_given(c, 3) && !onnx_wholes_of(c, 3, &axes)) return;
    const base_view mode = onnx_text(c, "mode", "constant");
    const uint32_t rank = onnx_tensor_of(c, x)->rank;
    const size_t half = pads.n / 2;
    if (pads.n % 2 || (axes.n ? axes.n : rank) != half) {
        onnx_refuse(c, "%zu pads for %u axes", pads.n, rank);
        return;
    }
    for (size_t i = 0; x && i < half; i++) {
        const uint32_t axis = onnx_axis(c, axes.n ? axes.at[i] : (int64_t)i, rank);
        int64_t before = pads.at[i], after = pads.at[half + i];
        if (axis == UINT32_MAX) return;
        if (!before && !after) continue;
        if (before < -INT32_MAX || before > INT32_MAX || after < -INT32_MAX || after > INT32_MAX) {
            onnx_refuse(c, "a pad that cannot be");
            return;
        }
        if (!base_view_equal(mode, BASE_VIEW("constant"))) {
            x = pad_by_index(c, x, axis, before, after, mode.size ? mode.data[0] : 'r');
            continue;
        }
        if (before < 0 || after < 0) { /* cut off */
            const int64_t size = onnx_tensor_of(c, x)->dim[axis].size,
                          low = before < 0 ? -before : 0, high = after < 0 ? -after : 0;
            if (low + high >= size) {
                onnx_refuse(c, "nothing is left of axis %u", axis);
                return;
            }
            x = graph_narrow(c->g, x, axis, (uint32_t)low, (uint32_t)(size - low - high), 1);
        }
        x = pad_with(c, x, axis, before > 0 ? (uint32_t)before : 0, after > 0 ? (uint32_t)after : 0,
                     number);
    }
    onnx_give(c, 0, x);
}

void onnx_center_crop_pad(onnx_call *c) {
    graph_value x = onnx_in(c, 0);
    onnx_wholes sizes, axes = {.n = 0};
    if (!x || !onnx_wholes_of(c, 1, &sizes)) return;
    onnx_wholes_at(c, "axes", 0, &axes);
    const uint32_t rank = onnx_tensor_of(c, x)->rank;
    for (size_t i = 0; x && i < sizes.n; i++) {
        const uint32_t axis = onnx_axis(c, axes.n > i ? axes.at[i] : (int64_t)i, rank);
        if (axis == UINT32_MAX) return;
        const int64_t size = onnx_tensor_of(c, x)->dim[axis].size, to = sizes.at[i];
        if (to < 1 || to > INT32_MAX) {
            onnx_refuse(c, "a size of %lld", (long long)to);
            return;
        }
        if (to < size)
            x = graph_narrow(c->g, x, axis, (uint32_t)((size - to) / 2), (uint32_t)to, 1);
        else if (to > size)
            x = pad_with(c, x, axis, (uint32_t)((to - size) / 2),
                         (uint32_t)(to - size - (to - size) / 2), 0);
    }
    onnx_give(c, 0, x);
}

/* ---- matrices and blocks --------------------------------------------------------------------- */

void onnx_trilu(onnx_call *c) {
    if (onnx_is_given(c, 0) && c->in[0].array && !onnx_array_count(c->in[0].array)) {
        c->out[0] = c->in[0];
        return;
    }
    const graph_value x = onnx_in(c, 0);
    onnx_wholes k = {.n = 0};
    if (!x || (onnx_is_given(c, 1) && !onnx_wholes_of(c, 1, &k))) return;
    const int32_t diagonal = k.n ? (int32_t)within(k.at[0], -INT32_MAX, INT32_MAX) : 0;
    onnx_give(c, 0,
              onnx_whole(c, "upper", 1) ? graph_triu(c->g, x, diagonal)
                                        : graph_tril(c->g, x, diagonal));
}

void onnx_eye_like(onnx_call *c) {
    onnx_shape s;
    if (!constant_shape(c, &s) || s.rank != 2) return;
    base_type type = s.type;
    const int64_t k = onnx_whole(c, "k", 0);
    const onnx_attribute *to = onnx_attribute_find(c, "dtype");
    if (to && !onnx_type_of((uint32_t)to->whole, &type)) {
        onnx_refuse(c, "of type %s", onnx_kind_name((uint32_t)to->whole));
        return;
    }
    const uint32_t dim[2] = {s.dim[0].size, s.dim[1].size}, bytes = base_type_block_bytes(type);
    if ((uint64_t)dim[0] * dim[1] > 1 << 24) {
        onnx_refuse(c, "a matrix of more than 2^24 numbers");
        return;
    }
    onnx_array *a = onnx_array_make(c, type, 2, dim);
    for (int64_t i = 0; a && i < dim[0]; i++)
        if (i + k >= 0 && i + k < dim[1])
            reference_put(type,
                          (char *)(uintptr_t)a->data +
                              ((uint64_t)i * dim[1] + (uint64_t)(i + k)) * bytes,
                          (reference_number){1, 1});
    if (a) onnx_give_array(c, 0, a);
}

/* x [n, c, h, w] as six axes, in another order, joined again. */
static void blocks(onnx_call *c, const uint32_t split[6], const uint32_t axes[6],
                   const uint32_t joined[4]) {
    graph_value x = onnx_reshape(c, onnx_in(c, 0), 6, split);
    if (x) x = graph_permute(c->g, x, 6, axes);
    onnx_give(c, 0, onnx_reshape(c, x, 4, joined));
}

static bool picture(onnx_call *c, onnx_shape *s, uint32_t *block) {
    const int64_t size = onnx_whole(c, "blocksize", 0);
    if (!constant_shape(c, s)) return false;
    if (s->rank != 4 || size < 1 || size > 1 << 15)
        return onnx_refuse(c, "blocks of %lld of %u axes", (long long)size, s->rank), false;
    *block = (uint32_t)size;
    return true;
}

void onnx_depth_to_space(onnx_call *c) {
    onnx_shape s;
    uint32_t b;
    if (!picture(c, &s, &b)) return;
    const uint32_t n = s.dim[0].size, d = s.dim[1].size / (b * b), h = s.dim[2].size,
                   w = s.dim[3].size, joined[4] = {n, d, h * b, w * b};
    if (onnx_text_is(c, "mode", "DCR", "CRD"))
        blocks(c, (uint32_t[]){n, d, b, b, h, w}, (uint32_t[]){0, 1, 4, 2, 5, 3}, joined);
    else blocks(c, (uint32_t[]){n, b, b, d, h, w}, (uint32_t[]){0, 3, 4, 1, 5, 2}, joined);
}

void onnx_space_to_depth(onnx_call *c) {
    onnx_shape s;
    uint32_t b;
    if (!picture(c, &s, &b)) return;
    const uint32_t n = s.dim[0].size, d = s.dim[1].size, h = s.dim[2].size / b,
                   w = s.dim[3].size / b;
    const bool columns = onnx_text_is(c, "mode", "DCR", "CRD");
    blocks(c, (uint32_t[]){n, d, h, b, w, b},
           columns ? (uint32_t[]){0, 1, 3, 5, 2, 4} : (uint32_t[]){0, 3, 5, 1, 2, 4},
           (uint32_t[]){n, d * b * b, h, w});
}
