/* ops.c - lowering of the small operations: pointwise and copy, norms, softmax, top-k,
 * weighted sum, rope, rows into a state. Matrices, attention and sampling have files of their
 * own.
 *
 * Any rank becomes at most four sizes of this run with strides of the bounds (tile/walk.h).
 * What is more is refused: it is generated. */
#include "base/error.h"
#include "kernels/lower/lower.h"
#include "kernels/lower/request.h"
#include "tile/walk.h"

enum {
    POINTWISE_RANK = 4,
    ROW_RANK = 3,
    POINTWISE_THREADS = 256,
    SERIAL_THREADS = 8,
    SERIAL_MAX = 16384
};

static bool is_dense_row(const graph_tensor *t) {
    return t->rank == 0 || t->stride[t->rank - 1] == 1 ||
           (t->dim[t->rank - 1].size == 1 && !t->dim[t->rank - 1].extent);
}

/* ---- pointwise ------------------------------------------------------------------------------- */

static bool is_in_fours(const lower_walk *w, uint32_t t, uint32_t offset) {
    bool fits = offset % 4 == 0 && w->stride[t][w->n - 1] == 1;
    for (uint32_t i = 0; i + 1 < w->n; i++) fits = fits && w->stride[t][i] % 4 == 0;
    return fits;
}

/* Divides strides and the innermost size by 4. */
static void put_in_fours(lower_walk *w, uint32_t t) {
    for (uint32_t i = 0; i + 1 < w->n; i++) w->stride[t][i] /= 4;
}

static void pointwise_constants(const graph_node *node, uint32_t *op, float *constant) {
    *constant = 0;
    *op = 0;
    if (node->op == OP_ADD) *op = 1;
    if (node->op == OP_MUL) *op = 2;
    if (node->op == OP_SCALE) *op = 3, *constant = node->attr.scale.factor;
    if (node->op == OP_GELU_TANH) *op = 4;
    if (node->op == OP_GEGLU) *op = 5;
    if (node->op == OP_SOFTCAP) *op = 6, *constant = node->attr.softcap.cap;
}

static void walk_params(lower_step *s, const lower_walk *w, uint32_t t, char letter) {
    for (uint32_t i = 0; i < POINTWISE_RANK; i++)
        lower_u32(s, (char[]){letter, (char)('0' + i), 0}, w->stride[t][i]);
}

beryl_status lower_pointwise(lowering *l, const graph_node *node, beryl_error *error) {
    graph_value a = node->in[0], b = node->n_in > 1 ? node->in[1] : a;
    const graph_tensor *ta = graph_tensor_at(l->g, a), *tb = graph_tensor_at(l->g, b);
    lower_walk w = lower_walk_of(
        (const graph_tensor *const[]){ta, graph_tensor_at(l->g, node->out[0]), tb}, 3, 0);
    if (w.n > POINTWISE_RANK)
        return lower_refuse(l, node, "more than 4 dimensions that cannot be joined", error);
    uint32_t rank = w.n ? w.n : 1, a_offset = ta->offset, b_offset = tb->offset, op;
    float constant;
    lower_walk_pad(&w, POINTWISE_RANK);
    const bool splat = w.stride[2][POINTWISE_RANK - 1] == 0;
    const bool wide = w.size[POINTWISE_RANK - 1].factor % 4 == 0 && is_in_fours(&w, 0, a_offset) &&
                      is_in_fours(&w, 1, 0) && (splat || is_in_fours(&w, 2, b_offset));
    pointwise_constants(node, &op, &constant);
    lower_request r = {.kernel.file = "pointwise"};
    lower_request_number(&r, "OP", op);
    lower_request_number(&r, "RANK", rank);
    if (wide) {
        lower_request_option(&r, "ELEMENT", "vec4<f32>");
        w.size[POINTWISE_RANK - 1].factor /= 4;
        put_in_fours(&w, 0);
        put_in_fours(&w, 1);
        a_offset /= 4;
        if (!splat) {
            lower_request_option(&r, "B_ELEMENT", "vec4<f32>");
            put_in_fours(&w, 2);
            b_offset /= 4;
        }
    }
    lower_step *s = lower_step_begin(l, node, &r.kernel);
    lower_bind(s, "a", a);
    lower_bind(s, "b", b);
    lower_bind(s, "out", node->out[0]);
    for (uint32_t i = 0; i < POINTWISE_RANK; i++)
        lower_count_param(s, (char[]){'d', (char)('0' + i), 0}, w.size[i]);
    walk_params(s, &w, 0, 'a');
    walk_params(s, &w, 1, 'o');
    walk_params(s, &w, 2, 'b');
    lower_u32(s, "a_offset", a_offset);
    lower_u32(s, "b_offset", b_offset);
    lower_f32(s, "constant", constant);
    lower_groups(s, lower_walk_count(l, &w), POINTWISE_THREADS);
    return lower_step_end(s, error);
}

beryl_status lower_copy(lowering *l, const graph_node *node, beryl_error *error) {
    return lower_pointwise(l, node, error);
}

/* ---- rows: norm, softmax, top-k -------------------------------------------------------------- */

typedef struct row_shape { /* how many lanes work on a row */
    uint32_t threads, lanes;
    const char *reduce; /* part file, NULL: the plain one */
} row_shape;

/* Software devices: a lane a row, since barriers are what costs there. Elsewhere as many lanes
 * as keep a row's way short (H200, rows of 1536: 9.2 us with 64 lanes, 5.0 with 256; of 256: 6.1
 * and 13.1). */
static row_shape row_shape_of(const lowering *l, uint32_t d) {
    const device_caps *caps = l->caps;
    if (caps->kind == DEVICE_SOFTWARE && d <= SERIAL_MAX)
        return (row_shape){SERIAL_THREADS, 1, "reduce_single"};
    row_shape shape = {256, d > 512 ? 256 : d > 256 ? 128 : 64, NULL};
    if (caps->subgroups && caps->subgroup_size <= shape.lanes) shape.reduce = "reduce_subgroups";
    return shape;
}

static void row_params(lower_step *s, const graph_tensor *x, const lower_walk *w) {
    for (uint32_t i = 0; i < ROW_RANK; i++) {
        lower_count_param(s, (char[]){'r', (char)('0' + i), 0}, w->size[i]);
        lower_u32(s, (char[]){'x', (char)('0' + i), 0}, w->stride[0][i]);
        lower_u32(s, (char[]){'o', (char)('0' + i), 0}, w->stride[1][i]);
    }
    lower_count_param(s, "d", lower_count_of(x->dim[x->rank - 1]));
    lower_u32(s, "x_offset", x->offset);
}

static beryl_status row_walk(const lowering *l, const graph_node *node, lower_walk *w,
                             beryl_error *error) {
    const graph_tensor *x = graph_tensor_at(l->g, node->in[0]);
    if (x->rank == 0 || !is_dense_row(x))
        return lower_refuse(l, node, "rows with gaps between their elements", error);
    *w = lower_walk_of((const graph_tensor *const[]){x, graph_tensor_at(l->g, node->out[0])}, 2, 1);
    if (w->n > ROW_RANK)
        return lower_refuse(l, node, "more than 3 leading dimensions that cannot be joined", error);
    lower_walk_pad(w, ROW_RANK);
    return BERYL_OK;
}

beryl_status lower_rms_norm(lowering *l, const graph_node *node, beryl_error *error) {
    const graph_tensor *x = graph_tensor_at(l->g, node->in[0]);
    const bool weighted = node->n_in > 1 && node->in[1];
    lower_walk w;
    beryl_status status = row_walk(l, node, &w, error);
    if (status != BERYL_OK) return status;
    const uint32_t d = x->dim[x->rank - 1].size;
    const row_shape shape = row_shape_of(l, d);
    lower_request r = {.kernel.file = "rms_norm"};
    lower_request_number(&r, "THREADS", shape.threads);
    lower_request_number(&r, "LANES", shape.lanes);
    lower_request_flag(&r, "WEIGHTED", weighted);
    if (shape.reduce) lower_request_part(&r, "reduce", shape.reduce);
    lower_step *s = lower_step_begin(l, node, &r.kernel);
    lower_bind(s, "x", node->in[0]);
    lower_bind(s, "weight", weighted ? node->in[1] : node->in[0]);
    lower_bind(s, "out", node->out[0]);
    row_params(s, x, &w);
    lower_u32(s, "weight_offset", weighted ? graph_tensor_at(l->g, node->in[1])->offset : 0);
    lower_f32(s, "eps", node->attr.rms_norm.eps);
    lower_groups(s, lower_walk_count(l, &w), shape.threads / shape.lanes);
    if (weighted) lower_bytes(l, (uint64_t)d * 4);
    return lower_step_end(s, error);
}

beryl_status lower_softmax(lowering *l, const graph_node *node, beryl_error *error) {
    const graph_tensor *x = graph_tensor_at(l->g, node->in[0]);
    lower_walk w;
    beryl_status status = row_walk(l, node, &w, error);
    if (status != BERYL_OK) return status;
    const row_shape shape = row_shape_of(l, x->dim[x->rank - 1].size);
    lower_request r = {.kernel.file = "softmax"};
    lower_request_number(&r, "THREADS", shape.threads);
    lower_request_number(&r, "LANES", shape.lanes);
    if (shape.reduce) lower_request_part(&r, "reduce", shape.reduce);
    lower_step *s = lower_step_begin(l, node, &r.kernel);
    lower_bind(s, "x", node->in[0]);
    lower_bind(s, "out", node->out[0]);
    row_params(s, x, &w);
    lower_groups(s, lower_walk_count(l, &w), shape.threads / shape.lanes);
    return lower_step_end(s, error);
}

beryl_status lower_topk(lowering *l, const graph_node *node, beryl_error *error) {
    const graph_tensor *x = graph_tensor_at(l->g, node->in[0]);
    const uint32_t k = node->attr.topk.k, d = x->dim[1].size;
    if (!is_dense_row(x))
        return lower_refuse(l, node, "rows with gaps between their elements", error);
    lower_request r = {.kernel.file = "topk"};
    const bool serial = l->caps->kind == DEVICE_SOFTWARE && (uint64_t)d * k <= SERIAL_MAX;
    const uint32_t lanes = serial ? 1 : d > 512 || x->dim[0].size < 16 ? 256 : 64;
    if (!serial && l->caps->loop_max && (uint64_t)(d / lanes + 1) * k > l->caps->loop_max / 2)
        return lower_refuse(l, node, "rows this long", error);
    lower_request_number(&r, "THREADS", serial ? SERIAL_THREADS : 256);
    lower_request_number(&r, "LANES", lanes);
    if (serial) lower_request_part(&r, "reduce_best", "reduce_best_single");
    lower_step *s = lower_step_begin(l, node, &r.kernel);
    lower_bind(s, "x", node->in[0]);
    lower_bind(s, "values", node->out[0]);
    lower_bind(s, "indices", node->out[1]);
    lower_count_param(s, "n", lower_count_of(x->dim[0]));
    lower_count_param(s, "d", lower_count_of(x->dim[1]));
    lower_u32(s, "k", k);
    lower_u32(s, "x_offset", x->offset);
    lower_u32(s, "x0", x->stride[0]);
    lower_groups(s, lower_count_of(x->dim[0]), (serial ? SERIAL_THREADS : 256) / lanes);
    return lower_step_end(s, error);
}

beryl_status lower_weighted_sum(lowering *l, const graph_node *node, beryl_error *error) {
    const graph_tensor *x = graph_tensor_at(l->g, node->in[0]),
                       *g = graph_tensor_at(l->g, node->in[1]);
    if (!is_dense_row(x) || !is_dense_row(g) || x->dim[2].extent)
        return lower_refuse(l, node, "rows with gaps between their elements", error);
    lower_step *s = lower_step_begin(l, node, &(kernels_request){.file = "weighted_sum"});
    lower_bind(s, "x", node->in[0]);
    lower_bind(s, "weight", node->in[1]);
    lower_bind(s, "out", node->out[0]);
    lower_count_param(s, "n", lower_count_of(x->dim[0]));
    lower_count_param(s, "u", lower_count_of(x->dim[1]));
    lower_u32(s, "d", x->dim[2].size);
    lower_u32(s, "x_offset", x->offset);
    lower_u32(s, "x0", x->stride[0]);
    lower_u32(s, "x1", x->stride[1]);
    lower_u32(s, "w_offset", g->offset);
    lower_u32(s, "w0", g->stride[0]);
    lower_groups(s, lower_count_times(lower_count_of(x->dim[0]), x->dim[2].size), 256);
    return lower_step_end(s, error);
}

/* ---- positions, rows into a state ------------------------------------------------------------ */

beryl_status lower_rope(lowering *l, const graph_node *node, beryl_error *error) {
    const graph_tensor *x = graph_tensor_at(l->g, node->in[0]),
                       *a = graph_tensor_at(l->g, node->in[1]);
    if (!is_dense_row(x) || !is_dense_row(a) || x->dim[1].extent || x->dim[2].extent)
        return lower_refuse(l, node, "rows with gaps, heads that vary", error);
    lower_step *s = lower_step_begin(l, node, &(kernels_request){.file = "rope"});
    const uint32_t half = x->dim[2].size / 2;
    lower_bind(s, "x", node->in[0]);
    lower_bind(s, "angles", node->in[1]);
    lower_bind(s, "out", node->out[0]);
    lower_count_param(s, "n", lower_count_of(x->dim[0]));
    lower_u32(s, "h", x->dim[1].size);
    lower_u32(s, "half", half);
    lower_u32(s, "x_offset", x->offset);
    lower_u32(s, "x0", x->stride[0]);
    lower_u32(s, "x1", x->stride[1]);
    lower_u32(s, "a_offset", a->offset);
    lower_u32(s, "a0", a->stride[0]);
    lower_u32(s, "a1", a->stride[1]);
    lower_groups(s, lower_count_times(lower_count_of(x->dim[0]), (uint64_t)x->dim[1].size * half),
                 256);
    return lower_step_end(s, error);
}

beryl_status lower_set_rows(lowering *l, const graph_node *node, beryl_error *error) {
    const graph_tensor *state = graph_tensor_at(l->g, node->in[0]),
                       *x = graph_tensor_at(l->g, node->in[1]);
    const uint32_t d = x->rank == 2 ? x->dim[1].size : 1;
    if (x->rank == 2 && (!is_dense_row(x) || x->dim[1].extent))
        return lower_refuse(l, node, "rows with gaps between their elements", error);
    lower_step *s = lower_step_begin(l, node, &(kernels_request){.file = "set_rows"});
    lower_bind(s, "x", node->in[1]);
    lower_bind(s, "index", node->in[2]);
    lower_bind(s, "state", node->in[0]);
    lower_count_param(s, "n", lower_count_of(x->dim[0]));
    lower_u32(s, "d", d);
    lower_u32(s, "r", state->dim[0].size);
    lower_u32(s, "x_offset", x->offset);
    lower_u32(s, "x0", x->stride[0]);
    lower_u32(s, "index_offset", graph_tensor_at(l->g, node->in[2])->offset);
    lower_groups(s, lower_count_times(lower_count_of(x->dim[0]), d), 64);
    return lower_step_end(s, error);
}
