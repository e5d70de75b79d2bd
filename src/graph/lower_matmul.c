/* lower_matmul.c - products with a weight for few vectors, and rows taken by index.
 *
 * Many vectors go to the tiled kernel (lower_matmul_tiled.c). A weight in several shards is one dispatch a shard, each
 * for its rows of the result. Weights that are no stored tensor are plain values in memory of the plan. */
#include "base/error.h"
#include "graph/lower.h"
#include "graph/lower_matvec.h"

#include <string.h>

/* The rows of a tensor as a matrix [n, k]: all axes but the last joined. false: they do not lie evenly. */
typedef struct row_walk { lower_count n; uint32_t bound, k, stride, offset; } row_walk;

static uint64_t bound_of(const lowering *l, graph_dim dim) {
    return dim.extent ? l->g->extents[dim.extent].bound : dim.size;
}

static bool row_walk_of(const lowering *l, const graph_tensor *t, row_walk *w) {
    const uint32_t last = t->rank - 1u;
    uint64_t bound = 1;
    *w = (row_walk){.n = lower_rows(t), .k = t->dim[last].size, .stride = t->rank > 1 ? t->stride[last - 1] : t->dim[last].size,
                    .offset = t->offset};
    for (uint32_t i = 0; i < last; i++) {
        bound *= bound_of(l, t->dim[i]);
        const bool inner = i + 1 < last;
        if (inner && t->stride[i] != (uint64_t)t->stride[i + 1] * t->dim[i + 1].size) return false;
        if (i > 0 && t->dim[i].extent) return false;
    }
    w->bound = bound > UINT32_MAX ? UINT32_MAX : (uint32_t)bound;
    return w->n.factor != 0 && !t->dim[last].extent && (t->stride[last] == 1 || w->k == 1);
}

static beryl_status refuse(const graph_node *node, const char *what, beryl_error *error) {
    return base_fail(error, BERYL_UNSUPPORTED, "%s on a device: %s", graph_op_name(node->op), what);
}

/* A weight matrix [m, k] as the readers need it. */
typedef struct weight_walk {
    graph_value value;
    base_type type;
    const store_tensor *stored; /* NULL: an intermediate */
    uint32_t m, k, first;       /* first: row of the stored tensor where a view begins */
    uint32_t plain;             /* intermediate or state: element where it begins */
} weight_walk;

static bool weight_walk_of(const lowering *l, graph_value v, weight_walk *w) {
    const graph_tensor *t = graph_tensor_at(l->g, v);
    if (t->rank != 2 || t->dim[1].extent || t->dim[0].extent || t->stride[1] != 1 || t->stride[0] != t->dim[1].size) return false;
    *w = (weight_walk){.value = v, .type = t->type, .stored = lower_stored(l, v), .m = t->dim[0].size, .k = t->dim[1].size};
    if (!w->stored || w->stored->is_state) {
        w->plain = t->offset;
        return t->type == TYPE_F32 || t->type == TYPE_F16 || t->type == TYPE_BF16;
    }
    w->first = t->offset / w->k;
    return t->offset % w->k == 0;
}

static void planes_put(lower_step *s, const char *prefix, const char *name, const graph_pack_layout *layout, uint32_t plain_word) {
    for (uint32_t i = 0; i < PACK_PLANE_MAX; i++) {
        char text[KERNELS_NAME_MAX];
        snprintf(text, sizeof text, "%s%s%u", prefix, name, i);
        lower_u32(s, text, layout ? (uint32_t)(layout->offset[i] / 4) : i == 0 ? plain_word : 0);
    }
}

/* ---- products -------------------------------------------------------------------------------------------- */

static beryl_status quantise(lowering *l, const graph_node *node, graph_value x, const row_walk *rows, beryl_error *error) {
    lower_step *s = lower_step_begin(l, node, &(kernels_request){.file = "quantise"});
    lower_bind(s, "x", x);
    lower_bind_scratch(s, "quantised", 0, ((uint64_t)rows->bound * (rows->k / 32) + 1) / 2 * 80);
    lower_count_param(s, "n_x", rows->n);
    lower_u32(s, "k", rows->k);
    lower_u32(s, "x_stride", rows->stride);
    lower_u32(s, "x_offset", rows->offset);
    lower_groups(s, lower_count_times(rows->n, rows->k / 32), 128);
    return lower_step_end(s, error);
}

/* Rows [from, from + n) of the weight, all of shard `shard`. */
static beryl_status matvec_shard(lowering *l, const graph_node *node, const row_walk *x, const weight_walk *w, matvec_shape *shape,
                                 uint32_t shard, uint32_t from, uint32_t n, beryl_error *error) {
    const graph_tensor *out = graph_tensor_at(l->g, node->out[0]);
    const store_shard *place = w->stored && !w->stored->is_state ? &w->stored->shard[shard] : NULL;
    matvec_choice choice;
    shape->rows[0] = n;
    if (!matvec_choose(l->caps, shape, &choice)) return refuse(node, base_type_name(w->type), error);
    if (choice.x == MATVEC_QUANTISED) {
        beryl_status status = quantise(l, node, node->in[0], x, error);
        if (status != BERYL_OK) return status;
    }
    lower_request request = {0};
    matvec_request(&request, shape, &choice, NULL);
    if (place) lower_bytes(l, n * base_type_row_bytes(w->type, w->k));
    lower_step *s = lower_step_begin(l, node, &request.kernel);
    if (place) lower_bind_shard(s, "weights", w->value, shard);
    else lower_bind(s, "weights", w->value);
    if (choice.x == MATVEC_QUANTISED) lower_bind_scratch(s, "x", 0, 0);
    else lower_bind(s, "x", node->in[0]);
    lower_bind(s, "PART_out", node->out[0]);
    const uint32_t tiles = (n + matvec_tile(&choice) - 1) / matvec_tile(&choice);
    lower_u32(s, "n_tile", tiles);
    lower_count_param(s, "n_x", x->n);
    lower_u32(s, "k", x->k);
    lower_u32(s, "x_stride", x->stride);
    lower_u32(s, "x_offset", x->offset);
    lower_u32(s, "PART_k", w->k);
    lower_u32(s, "PART_rows", n);
    lower_u32(s, "PART_first", place ? from - place->row : 0);
    planes_put(s, "PART_", "plane", place ? &place->layout : NULL, w->plain * base_type_block_bytes(w->type) / 4);
    planes_put(s, "PART_", "up", NULL, 0);
    lower_u32(s, "PART_out_offset", out->offset + from - w->first);
    lower_u32(s, "PART_out_stride", w->m);
    lower_groups_3d(s, (lower_count){tiles < choice.groups ? tiles : choice.groups, 0}, 1, x->n, choice.n_x, (lower_count){1, 0}, 1);
    return lower_step_end(s, error);
}

beryl_status lower_matmul(lowering *l, const graph_node *node, beryl_error *error) {
    row_walk x;
    weight_walk w;
    if (!row_walk_of(l, graph_tensor_at(l->g, node->in[0]), &x)) return refuse(node, "vectors with gaps between their elements", error);
    if (x.bound > MATVEC_ROWS_MAX) return lower_matmul_tiled(l, node, error);
    if (!weight_walk_of(l, node->in[1], &w)) return refuse(node, "a weight that is no matrix in one piece", error);
    matvec_shape shape = {.n_segment = 1, .types = {w.type}, .k = x.k, .n_x = x.bound, .exact = l->settings.exact,
                          .x_any = x.offset % 4 || (x.bound > 1 && x.stride % 4),
                          .w_any = (uint64_t)w.plain * base_type_block_bytes(w.type) % 16 != 0};
    if (!matvec_reader(w.type, false)) return refuse(node, base_type_name(w.type), error);
    if (!w.stored || w.stored->is_state) {
        if ((uint64_t)w.plain * base_type_block_bytes(w.type) % 4) return refuse(node, "a weight that begins inside a word", error);
        return matvec_shard(l, node, &x, &w, &shape, 0, 0, w.m, error);
    }
    beryl_status status = BERYL_OK;
    for (uint32_t i = 0; status == BERYL_OK && i < w.stored->n_shard; i++) {
        const store_shard *shard = &w.stored->shard[i];
        const uint32_t from = shard->row > w.first ? shard->row : w.first;
        const uint32_t a = shard->row + shard->n_row, b = w.first + w.m, to = a < b ? a : b;
        if (from < to) status = matvec_shard(l, node, &x, &w, &shape, i, from, to - from, error);
    }
    return status;
}

/* ---- rows by index ------------------------------------------------------------------------------------------- */

static beryl_status gather_words(lowering *l, const graph_node *node, const graph_tensor *table, lower_count n, beryl_error *error) {
    const graph_tensor *ids = graph_tensor_at(l->g, node->in[1]), *out = graph_tensor_at(l->g, node->out[0]);
    const uint32_t d = table->rank == 2 ? table->dim[1].size : 1;
    lower_step *s = lower_step_begin(l, node, &(kernels_request){.file = "gather_words"});
    lower_bind(s, "table", node->in[0]);
    lower_bind(s, "ids", node->in[1]);
    lower_bind(s, "out", node->out[0]);
    lower_count_param(s, "n", n);
    lower_count_param(s, "n_row", lower_count_of(table->dim[0]));
    lower_u32(s, "d", d);
    lower_u32(s, "table_offset", table->offset);
    lower_u32(s, "table_stride", table->stride[0]);
    lower_u32(s, "ids_offset", ids->offset);
    lower_u32(s, "out_offset", out->offset);
    lower_u32(s, "out_stride", d);
    lower_groups(s, lower_count_times(n, d), 64);
    return lower_step_end(s, error);
}

static beryl_status gather_shard(lowering *l, const graph_node *node, const weight_walk *w, lower_count n, uint32_t shard,
                                 beryl_error *error) {
    const graph_tensor *ids = graph_tensor_at(l->g, node->in[1]), *out = graph_tensor_at(l->g, node->out[0]);
    const store_shard *place = w->stored && !w->stored->is_state ? &w->stored->shard[shard] : NULL;
    const uint64_t begin = (uint64_t)w->plain * base_type_block_bytes(w->type);
    const uint32_t chunk = 1u << matvec_reader_shift(w->type);
    lower_request request = {.kernel = {.file = "gather_rows"}};
    lower_request_part(&request, "reader", matvec_reader(w->type, w->k % 16 || begin % 16));
    lower_step *s = lower_step_begin(l, node, &request.kernel);
    if (place) lower_bind_shard(s, "weights", w->value, shard);
    else lower_bind(s, "weights", w->value);
    lower_bind(s, "ids", node->in[1]);
    lower_bind(s, "out", node->out[0]);
    lower_count_param(s, "n", n);
    lower_u32(s, "n_row", w->m);
    lower_u32(s, "first", place ? place->row : 0);
    lower_u32(s, "count", place ? place->n_row : w->m);
    lower_u32(s, "ids_offset", ids->offset);
    lower_u32(s, "out_offset", out->offset);
    lower_u32(s, "out_stride", w->k);
    planes_put(s, "", "plane", place ? &place->layout : NULL, (uint32_t)(begin / 4));
    lower_u32(s, "PART_k", w->k);
    lower_f32(s, "factor", node->attr.gather_rows.factor);
    lower_groups(s, lower_count_times(n, (w->k + chunk - 1) / chunk), 64);
    return lower_step_end(s, error);
}

beryl_status lower_gather_rows(lowering *l, const graph_node *node, beryl_error *error) {
    const graph_tensor *table = graph_tensor_at(l->g, node->in[0]), *ids = graph_tensor_at(l->g, node->in[1]);
    const uint32_t last = table->rank - 1u;
    lower_count n = {1, 0};
    if (!graph_is_contiguous(ids)) return refuse(node, "indices with gaps", error);
    for (uint32_t i = 0; i < ids->rank; i++) {
        if (ids->dim[i].extent && i > 0) return refuse(node, "indices over an inner extent", error);
        n = ids->dim[i].extent ? lower_count_of(ids->dim[i]) : lower_count_times(n, ids->dim[i].size);
    }
    if (table->dim[last].extent && table->rank == 2) return refuse(node, "rows of varying length", error);
    const bool words = table->type == TYPE_I32 || (table->type == TYPE_F32 && node->attr.gather_rows.factor == 1);
    const store_tensor *stored = lower_stored(l, node->in[0]);
    if (words && (table->rank == 1 || table->stride[1] == 1) && (!stored || stored->n_shard == 1))
        return gather_words(l, node, table, n, error);
    weight_walk w = {.value = node->in[0], .type = table->type, .stored = stored, .m = table->dim[0].size, .k = 1, .plain = table->offset};
    const bool vector = table->rank == 1 && !table->dim[0].extent && !base_type_is_quantised(table->type) && (!stored || table->offset == 0);
    if (!vector && (!weight_walk_of(l, node->in[0], &w) || w.first)) return refuse(node, "a table that is not whole or varies in length", error);
    if (!matvec_reader(w.type, false)) return refuse(node, base_type_name(w.type), error);
    beryl_status status = BERYL_OK;
    const uint32_t n_shard = w.stored && !w.stored->is_state ? w.stored->n_shard : 1;
    for (uint32_t i = 0; status == BERYL_OK && i < n_shard; i++) status = gather_shard(l, node, &w, n, i, error);
    return status;
}
