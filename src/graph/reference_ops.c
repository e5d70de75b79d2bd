/* reference_ops.c - the reference function of every operation, written to be read. */
#include "base/build.h"
#include "base/error.h"
#include "base/sample.h"
#include "graph/reference.h"

#include <math.h>
#include <string.h>

/* ---- access ---------------------------------------------------------------------------------- */

static float *f32(const reference_tensor *x) {
    return x->data;
}

static int32_t *i32(const reference_tensor *x) {
    return x->data;
}

static uint64_t row_count(const reference_tensor *x) {
    uint64_t n = 1;
    for (uint32_t i = 0; i + 1 < x->t->rank; i++) n *= x->dim[i];
    return n;
}

static uint32_t row_size(const reference_tensor *x) {
    return x->t->rank ? x->dim[x->t->rank - 1] : 1;
}

int64_t reference_offset(const reference_tensor *x, const reference_tensor *shape, uint64_t index) {
    int64_t offset = 0;
    for (uint32_t i = shape->t->rank; i-- > 0;) {
        uint64_t at = index % shape->dim[i];
        index /= shape->dim[i];
        uint32_t missing = (uint32_t)(shape->t->rank - x->t->rank);
        if (i >= missing && x->t->dim[i - missing].size != 1)
            offset += (int64_t)at * graph_stride(x->t, i - missing);
    }
    return offset;
}

/* Offset of row `row` of x: all axes but the last. */
static int64_t row_offset(const reference_tensor *x, uint64_t row) {
    int64_t offset = 0;
    for (uint32_t i = x->t->rank ? x->t->rank - 1u : 0; i-- > 0;) {
        offset += (int64_t)(row % x->dim[i]) * graph_stride(x->t, i);
        row /= x->dim[i];
    }
    return offset;
}

/* From one element of a row to the next; what graph/layout.c says is dense has 1. */
static int64_t row_step(const reference_tensor *x) {
    return x->t->rank ? graph_stride(x->t, x->t->rank - 1u) : 1;
}

/* n elements of a weight that is no F32. */
static beryl_status stored_elements(reference_call *c, const reference_tensor *w, int64_t from,
                                    uint32_t n, float *to) {
    return store_read_elements(c->store, w->stored, w->t->offset + (uint64_t)from, n, to, c->error);
}

/* Row `row` of a matrix as f32: in place for F32 tensors of the run, else into `to`. NULL: error
 * in c. */
static const float *matrix_row(reference_call *c, const reference_tensor *w, uint64_t row,
                               float *to, beryl_status *status) {
    if (w->data) return f32(w) + row_offset(w, row);
    *status = stored_elements(c, w, row_offset(w, row), w->dim[w->t->rank - 1], to);
    return *status == BERYL_OK ? to : NULL;
}

/* Of n elements, of one where there are none. */
static size_t row_bytes(uint32_t n) {
    return (n ? n : 1) * sizeof(float);
}

static float *row_buffer(reference_call *c, uint32_t n) {
    float *p = base_heap_resize(c->heap, NULL, 0, row_bytes(n));
    if (!p) base_no_memory(c->error);
    return p;
}

/* ---- movement -------------------------------------------------------------------------------- */

static beryl_status ref_gather_rows(reference_call *c) {
    const reference_tensor *table = &c->in[0], *ids = &c->in[1];
    uint32_t n = table->t->rank == 2 ? table->dim[1] : 1, n_row = table->dim[0];
    uint64_t count = reference_count(ids);
    const reference_tensor *out = &c->out[0];
    float factor = c->node->attr.gather_rows.factor;
    float *buffer = row_buffer(c, n);
    beryl_status status = buffer ? BERYL_OK : BERYL_NO_MEMORY;
    for (uint64_t i = 0; status == BERYL_OK && i < count; i++) {
        int32_t id = i32(ids)[reference_offset(ids, ids, i)];
        const int64_t to = table->t->rank == 2 ? row_offset(out, i) : reference_offset(out, out, i);
        if (id < 0 || (uint32_t)id >= n_row) id = 0; /* as on devices: never outside */
        if (!n_row) {                                /* zeros of either type */
            memset(i32(out) + to, 0, n * sizeof(int32_t));
            continue;
        }
        if (table->t->type == TYPE_I32) {
            for (uint32_t k = 0; k < n; k++)
                i32(out)[to + k] = i32(table)[id * graph_stride(table->t, 0) + k];
            continue;
        }
        const float *row = buffer;
        if (table->t->rank == 1 && !table->data) {
            status = stored_elements(c, table, row_step(table) * id, 1, buffer);
        } else if (table->t->rank == 1) {
            buffer[0] = f32(table)[row_step(table) * id];
        } else {
            row = matrix_row(c, table, (uint64_t)id, buffer, &status);
        }
        for (uint32_t k = 0; status == BERYL_OK && k < n; k++) f32(out)[to + k] = row[k] * factor;
    }
    base_heap_give(c->heap, buffer, row_bytes(n));
    return status;
}

static beryl_status ref_set_rows(reference_call *c) {
    const reference_tensor *state = &c->in[0], *x = &c->in[1], *index = &c->in[2];
    uint32_t n = x->t->rank == 2 ? x->dim[1] : 1;
    for (uint32_t i = 0; i < x->dim[0]; i++) {
        int32_t at = i32(index)[i];
        if (at < 0 || (uint32_t)at >= state->dim[0]) continue;
        memcpy((uint32_t *)state->data + (uint64_t)at * n,
               (uint32_t *)x->data + i * graph_stride(x->t, 0), n * sizeof(uint32_t));
    }
    return BERYL_OK;
}

static beryl_status ref_assign(reference_call *c) {
    const reference_tensor *state = &c->in[0], *x = &c->in[1];
    const size_t size = base_type_block_bytes(state->t->type);
    for (uint64_t i = 0, n = reference_count(state); i < n; i++)
        memcpy((char *)state->data + i * size,
               (const char *)x->data + reference_offset(x, x, i) * (int64_t)size, size);
    return BERYL_OK;
}

static int64_t offset_at(const reference_tensor *x, const int64_t *i) {
    int64_t offset = 0;
    for (uint32_t axis = 0; axis < x->t->rank; axis++) offset += i[axis] * graph_stride(x->t, axis);
    return offset;
}

static char *element_at(const reference_tensor *x, const int64_t *i) {
    return (char *)x->data + offset_at(x, i) * (int64_t)base_type_block_bytes(x->t->type);
}

/* The element itself, or a number as it is in that type. */
static void put_element(const reference_tensor *out, char *to, const char *from, float number) {
    const base_type type = out->t->type;
    const bool truth = type == TYPE_BOOL;
    if (from) memcpy(to, from, base_type_block_bytes(type));
    else
        reference_put(
            type, to,
            (reference_number){(double)number,
                               truth ? number != 0 : reference_within(type, (double)number)});
}

/* pad: one input, from `before` on; concat: each where the one before it ends. */
static beryl_status ref_one_behind_another(reference_call *c) {
    const reference_tensor *out = &c->out[0];
    const bool is_pad = c->node->op == OP_PAD;
    const uint32_t axis = c->node->attr.concat.axis; /* the same place as pad.axis */
    int64_t i[GRAPH_RANK_MAX] = {0};
    for (uint64_t k = 0, n = reference_count(out); k < n; k++) {
        const char *from = NULL;
        reference_place(out, k, i);
        char *to = element_at(out, i);
        if (is_pad) i[axis] -= c->node->attr.pad.before;
        for (uint32_t part = 0; part < c->node->n_in; part++) {
            const reference_tensor *x = &c->in[part];
            if (i[axis] >= 0 && i[axis] < x->dim[axis]) from = element_at(x, i);
            i[axis] -= x->dim[axis];
        }
        put_element(out, to, from, is_pad ? c->node->attr.pad.value : 0);
    }
    return BERYL_OK;
}

/* tril keeps what is not above the diagonal, triu what is not below it. */
static beryl_status ref_triangle(reference_call *c) {
    const reference_tensor *x = &c->in[0], *out = &c->out[0];
    const uint32_t rank = out->t->rank;
    const bool lower = c->node->op == OP_TRIL;
    int64_t i[GRAPH_RANK_MAX] = {0};
    for (uint64_t k = 0, n = reference_count(out); k < n; k++) {
        reference_place(out, k, i);
        const int64_t right = i[rank - 1] - i[rank - 2],
                      diagonal = c->node->attr.tril.diagonal; /* the same place as triu's */
        const bool keeps = lower ? right <= diagonal : right >= diagonal;
        put_element(out, element_at(out, i), keeps ? element_at(x, i) : NULL, 0);
    }
    return BERYL_OK;
}

/* ---- norms and reductions -------------------------------------------------------------------- */

static beryl_status ref_rms_norm(reference_call *c) {
    const reference_tensor *x = &c->in[0], *out = &c->out[0], *w = &c->in[1];
    const int64_t step = row_step(x);
    uint32_t n = row_size(x);
    uint64_t rows = row_count(x);
    for (uint64_t r = 0; r < rows; r++) {
        const float *from = f32(x) + row_offset(x, r);
        float *to = f32(out) + row_offset(out, r);
        double sum = 0;
        for (uint32_t i = 0; i < n; i++) sum += (double)from[i * step] * (double)from[i * step];
        double factor = 1 / sqrt(sum / n + (double)c->node->attr.rms_norm.eps);
        for (uint32_t i = 0; i < n; i++)
            to[i] = (float)((double)from[i * step] * factor *
                            (c->node->n_in > 1 ? (double)f32(w)[i * row_step(w)] : 1));
    }
    return BERYL_OK;
}

static beryl_status ref_layer_norm(reference_call *c) {
    const reference_tensor *x = &c->in[0], *out = &c->out[0], *w = &c->in[1], *b = &c->in[2];
    const int64_t step = row_step(x);
    uint32_t n = row_size(x);
    uint64_t rows = row_count(x);
    for (uint64_t r = 0; r < rows; r++) {
        const float *from = f32(x) + row_offset(x, r);
        float *to = f32(out) + row_offset(out, r);
        double sum = 0, squares = 0;
        for (uint32_t i = 0; i < n; i++) sum += (double)from[i * step];
        const double mean = sum / n;
        for (uint32_t i = 0; i < n; i++)
            squares += ((double)from[i * step] - mean) * ((double)from[i * step] - mean);
        const double factor = 1 / sqrt(squares / n + (double)c->node->attr.layer_norm.eps);
        for (uint32_t i = 0; i < n; i++) {
            const double weight = c->node->n_in > 1 ? (double)f32(w)[i * row_step(w)] : 1,
                         bias = c->node->n_in > 2 ? (double)f32(b)[i * row_step(b)] : 0;
            to[i] = (float)(((double)from[i * step] - mean) * factor * weight + bias);
        }
    }
    return BERYL_OK;
}

static beryl_status ref_group_norm(reference_call *c) {
    const reference_tensor *x = &c->in[0], *out = &c->out[0];
    const uint32_t channels = x->dim[1], groups = c->node->attr.group_norm.groups;
    reference_tensor part = *x; /* a group: the first of them */
    part.dim[0] = 1;
    part.dim[1] = channels / groups;
    const uint64_t n = reference_count(&part), inner = n / part.dim[1];
    for (uint32_t i = 0; i < x->dim[0] * groups; i++) {
        const uint32_t first = i % groups * part.dim[1]; /* channel */
        const float *from =
            f32(x) + i / groups * graph_stride(x->t, 0) + first * graph_stride(x->t, 1);
        float *to =
            f32(out) + i / groups * graph_stride(out->t, 0) + first * graph_stride(out->t, 1);
        double sum = 0, squares = 0;
        for (uint64_t k = 0; k < n; k++) sum += (double)from[reference_offset(x, &part, k)];
        const double mean = sum / (double)n;
        for (uint64_t k = 0; k < n; k++) {
            const double less = (double)from[reference_offset(x, &part, k)] - mean;
            squares += less * less;
        }
        const double factor = 1 / sqrt(squares / (double)n + (double)c->node->attr.group_norm.eps);
        for (uint64_t k = 0; k < n; k++) {
            const int64_t channel = first + (int64_t)(k / inner);
            const reference_tensor *w = &c->in[1], *b = &c->in[2];
            const double weight = c->node->n_in > 1 ? (double)f32(w)[channel * row_step(w)] : 1,
                         bias = c->node->n_in > 2 ? (double)f32(b)[channel * row_step(b)] : 0;
            to[reference_offset(out, &part, k)] =
                (float)(((double)from[reference_offset(x, &part, k)] - mean) * factor * weight +
                        bias);
        }
    }
    return BERYL_OK;
}

static beryl_status ref_softmax(reference_call *c) {
    const reference_tensor *x = &c->in[0];
    const int64_t step = row_step(x);
    uint32_t n = row_size(x);
    uint64_t rows = row_count(x);
    for (uint64_t r = 0; r < rows; r++) {
        const float *from = f32(x) + row_offset(x, r);
        float *to = f32(&c->out[0]) + row_offset(&c->out[0], r);
        double most = -INFINITY, sum = 0;
        for (uint32_t i = 0; i < n; i++) most = fmax(most, (double)from[i * step]);
        for (uint32_t i = 0; i < n; i++) sum += exp((double)from[i * step] - most);
        for (uint32_t i = 0; i < n; i++) to[i] = (float)(exp((double)from[i * step] - most) / sum);
    }
    return BERYL_OK;
}

static beryl_status ref_scan(reference_call *c) {
    const reference_tensor *x = &c->in[0], *out = &c->out[0];
    const uint32_t axis = c->node->attr.cumsum.axis, n = x->dim[axis];
    reference_tensor begins = *out; /* the first element of each row */
    begins.dim[axis] = 1;
    for (uint64_t r = 0, rows = reference_count(&begins); r < rows; r++) {
        const float *from = f32(x) + reference_offset(x, &begins, r);
        float *to = f32(out) + reference_offset(out, &begins, r);
        const base_op op = c->node->op;
        double sum = op == OP_CUMPROD  ? 1
                     : op == OP_CUMMAX ? -(double)INFINITY
                     : op == OP_CUMMIN ? (double)INFINITY
                                       : 0;
        for (uint32_t i = 0; i < n; i++) {
            const double at = (double)from[i * graph_stride(x->t, axis)];
            sum = op == OP_CUMSUM    ? sum + at
                  : op == OP_CUMPROD ? sum * at
                  : isnan(sum)       ? sum
                  : isnan(at)        ? at
                  : op == OP_CUMMAX  ? fmax(sum, at)
                                     : fmin(sum, at);
            to[i * graph_stride(out->t, axis)] = (float)sum;
        }
    }
    return BERYL_OK;
}

static beryl_status ref_topk(reference_call *c) {
    const reference_tensor *x = &c->in[0];
    uint32_t n = row_size(x), k = c->node->attr.topk.k;
    uint64_t rows = row_count(x);
    for (uint64_t r = 0; r < rows; r++) {
        float *values = f32(&c->out[0]) + r * k;
        int32_t *indices = i32(&c->out[1]) + r * k;
        /* more than this run's rows have */
        for (uint32_t i = n; i < k; i++) values[i] = -INFINITY, indices[i] = -1;
        base_largest(f32(x) + row_offset(x, r), n, k, values, indices);
    }
    return BERYL_OK;
}

static beryl_status ref_weighted_sum(reference_call *c) {
    const reference_tensor *x = &c->in[0], *g = &c->in[1];
    uint32_t u = x->dim[1], d = x->dim[2];
    for (uint32_t n = 0; n < x->dim[0]; n++)
        for (uint32_t i = 0; i < d; i++) {
            double sum = 0;
            for (uint32_t k = 0; k < u; k++)
                sum += (double)f32(x)[n * graph_stride(x->t, 0) + k * graph_stride(x->t, 1) +
                                      i * graph_stride(x->t, 2)] *
                       (double)f32(g)[n * graph_stride(g->t, 0) + k * graph_stride(g->t, 1)];
            f32(&c->out[0])[row_offset(&c->out[0], n) + i] = (float)sum;
        }
    return BERYL_OK;
}

static beryl_status ref_argmax(reference_call *c) {
    const reference_tensor *x = &c->in[0];
    const int64_t step = row_step(x);
    for (uint32_t r = 0; r < x->dim[0]; r++) {
        const float *row = f32(x) + row_offset(x, r);
        uint32_t best = 0;
        for (uint32_t i = 1; i < x->dim[1]; i++)
            if (row[i * step] > row[best * step] ||
                (isnan(row[best * step]) && !isnan(row[i * step])))
                best = i;
        i32(&c->out[0])[r] = x->dim[1] ? (int32_t)best : -1;
    }
    return BERYL_OK;
}

/* ---- linear ---------------------------------------------------------------------------------- */

static double dot(const float *a, const float *b, uint32_t n) {
    /* four chains: the order of a double sum does not matter here, its latency does */
    double s0 = 0, s1 = 0, s2 = 0, s3 = 0;
    uint32_t i = 0;
    for (; i + 4 <= n; i += 4) {
        s0 += (double)a[i] * (double)b[i];
        s1 += (double)a[i + 1] * (double)b[i + 1];
        s2 += (double)a[i + 2] * (double)b[i + 2];
        s3 += (double)a[i + 3] * (double)b[i + 3];
    }
    for (; i < n; i++) s0 += (double)a[i] * (double)b[i];
    return s0 + s1 + s2 + s3;
}

/* adds: to what is there. */
static beryl_status linear_of(reference_call *c, const reference_tensor *x,
                              const reference_tensor *w, bool adds) {
    const uint32_t k = row_size(x), m = c->in[1].dim[0], before = adds ? m : 0;
    uint64_t rows = row_count(x);
    float *buffer = row_buffer(c, k);
    beryl_status status = buffer ? BERYL_OK : BERYL_NO_MEMORY;
    for (; status == BERYL_OK && *c->done - before < m; *c->done += status == BERYL_OK) {
        const uint32_t o = *c->done - before;
        const float *row = matrix_row(c, w, o, buffer, &status);
        for (uint64_t r = 0; row && r < rows; r++) {
            float *to = f32(&c->out[0]) + row_offset(&c->out[0], r) + o;
            const float sum = (float)dot(f32(x) + row_offset(x, r), row, k);
            *to = adds ? *to + sum : sum;
        }
    }
    base_heap_give(c->heap, buffer, row_bytes(k));
    return status;
}

static beryl_status ref_linear(reference_call *c) {
    const beryl_status status = linear_of(c, &c->in[0], &c->in[1], false);
    return BUILD_HAS_ADAPTERS && status == BERYL_OK && c->node->n_in > 2
               ? linear_of(c, &c->in[2], &c->in[3], true)
               : status;
}

static beryl_status ref_linear_id(reference_call *c) {
    const reference_tensor *x = &c->in[0], *w = &c->in[1], *ids = &c->in[2];
    uint32_t k = x->dim[2], m = w->dim[1], u = ids->dim[1];
    float *buffer = row_buffer(c, k);
    beryl_status status = buffer ? BERYL_OK : BERYL_NO_MEMORY;
    for (uint32_t n = 0; n < ids->dim[0]; n++)
        for (uint32_t j = 0; j < u; j++) {
            int32_t id = i32(ids)[(uint64_t)n * ids->t->stride[0] + j];
            uint64_t expert = id < 0 || (uint32_t)id >= w->dim[0] ? 0 : (uint64_t)id;
            const float *from = f32(x) + (uint64_t)n * x->t->stride[0] +
                                (x->dim[1] == 1 ? 0 : (uint64_t)j * x->t->stride[1]);
            float *to = f32(&c->out[0]) + row_offset(&c->out[0], (uint64_t)n * u + j);
            for (uint32_t o = 0; status == BERYL_OK && o < m; o++) {
                const float *row = matrix_row(c, w, expert * m + o, buffer, &status);
                if (row) to[o] = (float)dot(from, row, k);
            }
        }
    base_heap_give(c->heap, buffer, row_bytes(k));
    return status;
}

/* ---- attention ------------------------------------------------------------------------------- */

static beryl_status ref_rope(reference_call *c) {
    const reference_tensor *x = &c->in[0], *a = &c->in[1];
    uint32_t half = x->dim[2] / 2;
    for (uint32_t n = 0; n < x->dim[0]; n++) {
        const float *cosine = f32(a) + (uint64_t)n * a->t->stride[0],
                    *sine = cosine + a->t->stride[1];
        for (uint32_t h = 0; h < x->dim[1]; h++) {
            const float *from =
                f32(x) + (uint64_t)n * x->t->stride[0] + (uint64_t)h * x->t->stride[1];
            float *to = f32(&c->out[0]) + row_offset(&c->out[0], (uint64_t)n * x->dim[1] + h);
            for (uint32_t i = 0; i < half; i++) {
                double u = from[i], v = from[i + half];
                to[i] = (float)(u * (double)cosine[i] - v * (double)sine[i]);
                to[i + half] = (float)(u * (double)sine[i] + v * (double)cosine[i]);
            }
        }
    }
    return BERYL_OK;
}

/* Rounds n values to the cache's type. Q8_0: blocks of 32, d = absmax / 127 as f16, nearest
 * even. */
static void cache_store(base_type type, const float *from, void *to, uint32_t n) {
    if (type == TYPE_F32) memcpy(to, from, n * sizeof *from);
    for (uint32_t i = 0; type == TYPE_F16 && i < n; i++)
        ((uint16_t *)to)[i] = base_f32_to_f16(from[i]);
    for (uint32_t b = 0; type == TYPE_Q8_0 && b < n / 32; b++) {
        unsigned char *block = (unsigned char *)to + (size_t)b * 34;
        float most = 0;
        for (uint32_t i = 0; i < 32; i++) most = fmaxf(most, fabsf(from[b * 32 + i]));
        uint16_t d = base_f32_to_f16(most / 127);
        float scale = base_f16_to_f32(d);
        memcpy(block, &d, 2);
        for (uint32_t i = 0; i < 32; i++) {
            float q = scale > 0 ? rintf(from[b * 32 + i] / scale) : 0;
            block[2 + i] = (unsigned char)(signed char)(isnan(q)   ? 0
                                                        : q > 127  ? 127
                                                        : q < -127 ? -127
                                                                   : q);
        }
    }
}

static beryl_status ref_kv_write(reference_call *c) {
    const reference_tensor *cache = &c->in[0], *x = &c->in[1];
    uint64_t row = base_type_row_bytes(cache->t->type, cache->dim[3]); /* bytes of one head */
    for (uint32_t n = 0; n < x->dim[0]; n++) {
        const int32_t slot = i32(&c->in[2])[n], pos = i32(&c->in[3])[n];
        if (slot < 0 || (uint32_t)slot >= cache->dim[0] || pos < 0) continue;
        for (uint32_t h = 0; h < x->dim[1]; h++)
            cache_store(cache->t->type,
                        f32(x) + (uint64_t)n * x->t->stride[0] + (uint64_t)h * x->t->stride[1],
                        (char *)cache->data +
                            ((((uint64_t)slot * cache->dim[1] + (uint32_t)pos % cache->dim[1]) *
                              cache->dim[2]) +
                             h) *
                                row,
                        cache->dim[3]);
    }
    return BERYL_OK;
}

static const float *cache_row(const reference_tensor *cache, uint32_t slot, uint32_t pos,
                              uint32_t head, float *buffer) {
    const uint32_t *stride = cache->t->stride;
    const uint64_t at = (uint64_t)slot * stride[0] + (uint64_t)(pos % cache->dim[1]) * stride[1] +
                        (uint64_t)head * stride[2];
    const char *from = (const char *)cache->data + base_type_row_bytes(cache->t->type, at);
    if (cache->t->type == TYPE_F32) return (const float *)(const void *)from;
    base_dequantise(cache->t->type, from, buffer, cache->dim[3]);
    return buffer;
}

/* Caches are rings; other values have the rows of the run. */
reference_keys reference_keys_of(const reference_call *c, uint32_t n) {
    const uint32_t *cache = c->in[1].dim, window = c->node->attr.attention.window;
    const int32_t slot = i32(&c->in[3])[n], pos = i32(&c->in[4])[n];
    const bool ring = c->in[1].stored != UINT32_MAX;
    const uint32_t all = ring ? cache[1] : UINT32_MAX, most = window && window < all ? window : all;
    if (slot < 0 || (uint32_t)slot >= cache[0] || pos < 0) return (reference_keys){0};
    const uint32_t end = (uint32_t)pos + 1;
    reference_keys keys = {(uint32_t)slot, end - (end < most ? end : most), end};
    if (!ring && keys.end > cache[1]) keys.end = cache[1];
    const uint32_t first = c->node->op == OP_ATTENTION_SUMS ? 6 : 5;
    if (c->node->n_in > first && i32(&c->in[first])[n] > (int32_t)keys.first)
        keys.first = (uint32_t)i32(&c->in[first])[n];
    if (keys.first > keys.end) keys.first = keys.end;
    return keys;
}

/* The heads of one group: each row of a cache is read once for all of them. */
static void attend(const reference_call *c, uint32_t n, uint32_t kv, double *scores, double *sum,
                   float *buffer) {
    const reference_tensor *q = &c->in[0], *k = &c->in[1], *v = &c->in[2];
    const uint32_t d = q->dim[2], each = q->dim[1] / k->dim[2];
    const reference_keys keys = reference_keys_of(c, n);
    const uint32_t n_key = keys.end - keys.first, *stride = q->t->stride;
    const float *query = f32(q) + (uint64_t)n * stride[0] + (uint64_t)kv * each * stride[1];
    float *to = f32(&c->out[0]) + ((uint64_t)n * q->dim[1] + (uint64_t)kv * each) * d;
    for (uint32_t j = 0; j < n_key; j++) {
        const float *key = cache_row(k, keys.slot, keys.first + j, kv, buffer);
        for (uint32_t h = 0; h < each; h++)
            scores[h * n_key + j] = dot(query + (uint64_t)h * stride[1], key, d) *
                                    (double)c->node->attr.attention.scale;
    }
    for (uint32_t h = 0; h < each; h++) {
        double most = -INFINITY, *score = scores + h * n_key;
        for (uint32_t j = 0; j < n_key; j++) most = fmax(most, score[j]);
        for (uint32_t j = 0; j < n_key; j++) score[j] = exp(score[j] - most);
    }
    memset(sum, 0, (size_t)each * d * sizeof *sum);
    for (uint32_t j = 0; j < n_key; j++) {
        const float *value = cache_row(v, keys.slot, keys.first + j, kv, buffer);
        for (uint32_t h = 0; h < each; h++)
            for (uint32_t i = 0; i < d; i++)
                sum[h * d + i] += scores[h * n_key + j] * (double)value[i];
    }
    for (uint32_t h = 0; h < each; h++) {
        double total = 0;
        for (uint32_t j = 0; j < n_key; j++) total += scores[h * n_key + j];
        for (uint32_t i = 0; i < d; i++)
            to[h * d + i] = n_key ? (float)(sum[h * d + i] / total) : 0;
    }
}

static beryl_status ref_attention(reference_call *c) {
    const reference_tensor *q = &c->in[0], *k = &c->in[1];
    const size_t d = q->dim[2], each = q->dim[1] / k->dim[2], n_score = each * k->dim[1],
                 bytes = (n_score + each * d) * sizeof(double) + d * sizeof(float);
    double *memory = base_heap_resize(c->heap, NULL, 0, bytes);
    if (!memory) return base_no_memory(c->error);
    for (uint32_t n = 0; n < q->dim[0]; n++)
        for (uint32_t kv = 0; kv < k->dim[2]; kv++)
            attend(c, n, kv, memory, memory + n_score, (float *)(memory + n_score + each * d));
    base_heap_give(c->heap, memory, bytes);
    return BERYL_OK;
}

/* ---- sampling -------------------------------------------------------------------------------- */

static beryl_status ref_sample(reference_call *c) {
    const reference_tensor *x = &c->in[0];
    for (uint32_t r = 0; r < x->dim[0]; r++) {
        base_sample_settings settings;
        memcpy(&settings, (const uint32_t *)c->in[1].data + (uint64_t)r * 8, sizeof settings);
        i32(&c->out[0])[r] =
            base_sample(f32(x) + (uint64_t)r * x->t->stride[0], x->dim[1], &settings);
    }
    return BERYL_OK;
}

/* clang-format off */
reference_fn *const reference_table[OP_COUNT] = {
    [OP_GATHER_ROWS] = ref_gather_rows,
    [OP_GATHER] = reference_gather,
    [OP_SCATTER] = reference_scatter,
    [OP_SCATTER_ADD] = reference_scatter,
    [OP_ONE_HOT] = reference_one_hot,
    [OP_NONZERO] = reference_nonzero,
#define ROW(X, NAME, ...) [OP_##NAME] = reference_pointwise,
    BASE_POINTWISE_LIST(ROW, )
#undef ROW
    [OP_PAD] = ref_one_behind_another,
    [OP_CONCAT] = ref_one_behind_another,
    [OP_RANDOM] = reference_random,
    [OP_TRIL] = ref_triangle,
    [OP_TRIU] = ref_triangle,
    [OP_RESIZE] = reference_resize,
    [OP_IOTA] = reference_iota,
    [OP_CAST] = reference_pointwise,
    [OP_SUM] = reference_reduce,
    [OP_MEAN] = reference_reduce,
    [OP_PROD] = reference_reduce,
    [OP_AMAX] = reference_reduce,
    [OP_AMIN] = reference_reduce,
    [OP_ANY] = reference_reduce,
    [OP_ALL] = reference_reduce,
    [OP_RMS_NORM] = ref_rms_norm,
    [OP_LAYER_NORM] = ref_layer_norm,
    [OP_GROUP_NORM] = ref_group_norm,
    [OP_SOFTMAX] = ref_softmax,
    [OP_CUMSUM] = ref_scan,
    [OP_CUMPROD] = ref_scan,
    [OP_CUMMAX] = ref_scan,
    [OP_CUMMIN] = ref_scan,
    [OP_TOPK] = ref_topk,
    [OP_SORT] = reference_sort,
    [OP_FOURIER] = BUILD_HAS_GRAPHS ? reference_fourier : NULL,
    [OP_ARG_LARGEST] = reference_arg_largest,
    [OP_WEIGHTED_SUM] = ref_weighted_sum,
    [OP_CONTRACT] = reference_contract,
    [OP_LINEAR] = ref_linear,
    [OP_LINEAR_ID] = ref_linear_id,
    [OP_ROPE] = ref_rope,
    [OP_KV_WRITE] = ref_kv_write,
    [OP_ATTENTION] = ref_attention,
    [OP_ATTENTION_SUMS] = BUILD_HAS_TRAINING ? reference_attention_sums : NULL,
    [OP_ATTENTION_BACK] = BUILD_HAS_TRAINING ? reference_attention_back : NULL,
    [OP_ARGMAX] = ref_argmax,
    [OP_SAMPLE] = ref_sample,
    [OP_SET_ROWS] = ref_set_rows,
    [OP_ASSIGN] = ref_assign,
};
/* clang-format on */
