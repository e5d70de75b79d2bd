/* experts.c - products with experts: x [n, u or 1, k], matrices [e, m, k], ids [n, u] ->
 * [n, u, m].
 *
 * Few pairs of a vector and an expert (decode): matvec, each pair in workgroups of its own, its
 * matrix found by its id. Many (prefill): one workgroup sorts the pairs by expert and cuts them
 * into tiles, then the matmul kernels take the tiles as they come and gather their vectors; the
 * grid has as many tiles as there could be. The matrices lie in one tensor of e * m rows, which
 * may be cut into shards anywhere: one dispatch a shard, which leaves out other shards' rows. */
#include "base/error.h"
#include "kernels/lower/lower.h"
#include "kernels/lower/matvec.h"
#include "kernels/lower/tiled.h"

enum { SCRATCH_X, SCRATCH_MAP }; /* keys */
enum { PAIRS_FEW = 128, EXPERTS_MAX = 2048 /* 16 KiB of workgroup memory hold their counts */ };

typedef struct experts {
    const graph_node *node;
    const store_tensor *stored;
    const graph_tensor *ids;
    tiled_vectors v;
    base_type type;
    uint32_t n_expert, m, n_used;
    uint32_t share; /* pairs that meet one vector */
    lower_count n_pair;
    uint32_t pair_bound;
} experts;

static beryl_status experts_of(const lowering *l, const graph_node *node, experts *e,
                               beryl_error *error) {
    const graph_tensor *x = graph_tensor_at(l->g, node->in[0]),
                       *w = graph_tensor_at(l->g, node->in[1]);
    *e = (experts){.node = node,
                   .stored = lower_weight(l, node->in[1]),
                   .ids = graph_tensor_at(l->g, node->in[2]),
                   .type = w->type,
                   .n_expert = w->dim[0].size,
                   .m = w->dim[1].size};
    e->n_used = e->ids->dim[1].size;
    e->share = x->dim[1].size == 1 ? e->n_used : 1;
    if (!matvec_reader(w->type, false))
        return lower_refuse(l, node, "a weight of this type", error);
    if (!e->stored || w->offset || w->dim[0].extent || w->dim[1].extent || w->dim[2].extent ||
        w->stride[2] != 1 || w->stride[1] != w->dim[2].size ||
        w->stride[0] != (uint64_t)w->stride[1] * e->m)
        return lower_refuse(l, node, "experts that are not one whole weight", error);
    if ((uint64_t)e->n_expert * e->m > INT32_MAX || e->n_expert > EXPERTS_MAX)
        return lower_refuse(l, node, "so many experts", error);
    if (e->ids->dim[1].extent || x->dim[1].extent || e->ids->stride[1] != 1 ||
        !tiled_vectors_of(l, node->in[0], &e->v))
        return lower_refuse(l, node, "vectors or indices with gaps between them", error);
    e->n_pair = lower_count_times(e->v.n, e->share);
    if ((uint64_t)e->v.bound * e->share > INT32_MAX)
        return lower_refuse(l, node, "so many vectors", error);
    e->pair_bound = e->v.bound * e->share;
    return BERYL_OK;
}

static void put_ids(lower_step *s, const experts *e) {
    lower_bind(s, "ids", e->node->in[2]);
    lower_u32(s, "n_used", e->n_used);
    lower_u32(s, "n_expert", e->n_expert);
    lower_u32(s, "ids_offset", e->ids->offset);
    lower_u32(s, "ids_stride", e->ids->stride[0]);
}

static void put_result(lower_step *s, const lowering *l, const experts *e) {
    lower_bind(s, "PART_out", e->node->out[0]);
    lower_u32(s, "PART_out_offset", graph_tensor_at(l->g, e->node->out[0])->offset);
    lower_u32(s, "PART_out_stride", e->m);
}

/* ---- few pairs ------------------------------------------------------------------------------- */

/* The form of matvec as if all pairs' rows were one matrix; a vector too expensive to round
 * again in every workgroup is rounded there all the same, since pairs share vectors in ways that
 * a dispatch before does not know. */
static bool matvec_form(const lowering *l, const experts *e, matvec_shape *shape,
                        matvec_choice *choice) {
    const uint64_t rows = (uint64_t)e->m * e->pair_bound;
    *shape = (matvec_shape){.n_segment = 1,
                            .types = {e->type},
                            .rows = {rows < UINT32_MAX ? (uint32_t)rows : UINT32_MAX},
                            .k = e->v.k,
                            .n_x = 1,
                            .exact = l->settings.exact,
                            .x_any = e->v.offset % 4 || (e->v.bound > 1 && e->v.stride % 4)};
    if (!matvec_choose(l->caps, shape, choice)) return false;
    if (choice->x == MATVEC_QUANTISED) {
        shape->has_prologue = true;
        const bool fits = matvec_choose(l->caps, shape, choice);
        shape->has_prologue = false;
        shape->exact = !fits;
        if (!fits && !matvec_choose(l->caps, shape, choice)) return false;
    }
    shape->rows[0] = e->m;
    return true;
}

static beryl_status few(lowering *l, const experts *e, uint32_t shard_index, beryl_error *error) {
    const store_shard *shard = &e->stored->shard[shard_index];
    static const char *const planes[PACK_PLANE_MAX] = {"PART_plane0", "PART_plane1", "PART_plane2",
                                                       "PART_plane3"};
    static const char *const ups[PACK_PLANE_MAX] = {"PART_up0", "PART_up1", "PART_up2", "PART_up3"};
    matvec_shape shape;
    matvec_choice choice;
    lower_request request = {0};
    if (!matvec_form(l, e, &shape, &choice))
        return lower_refuse(l, e->node, "a weight of this type", error);
    matvec_request(&request, &shape, &choice, NULL);
    lower_request_part(&request, "matrix", "experts_matrix");
    lower_step *s = lower_step_begin(l, e->node, &request.kernel);
    lower_bind_shard(s, "weights", e->node->in[1], shard_index);
    lower_bind(s, "x", e->v.x);
    put_ids(s, e);
    put_result(s, l, e);
    const uint32_t tiles = (e->m + matvec_tile(&choice) - 1) / matvec_tile(&choice);
    const uint32_t groups = choice.groups / e->pair_bound ? choice.groups / e->pair_bound : 1;
    lower_u32(s, "n_tile", tiles);
    lower_count_param(s, "n_x", e->n_pair);
    lower_u32(s, "k", e->v.k);
    lower_u32(s, "x_stride", e->v.stride);
    lower_u32(s, "x_offset", e->v.offset);
    lower_u32(s, "share", e->share);
    lower_u32(s, "stored", shard->n_row);
    lower_u32(s, "matrix_rows", e->m);
    lower_u32(s, "PART_k", e->v.k);
    lower_u32(s, "PART_rows", e->m);
    lower_u32(s, "PART_first", 0 - shard->row);
    for (uint32_t i = 0; i < PACK_PLANE_MAX; i++) {
        lower_u32(s, planes[i], (uint32_t)(shard->layout.offset[i] / 4));
        lower_u32(s, ups[i], 0);
    }
    lower_groups_3d(s, (lower_count){tiles < groups ? tiles : groups, 0}, 1, e->n_pair, 1,
                    (lower_count){1, 0}, 1);
    return lower_step_end(s, error);
}

/* ---- many pairs ------------------------------------------------------------------------------ */

static beryl_status group(lowering *l, const experts *e, uint32_t tile, uint32_t n_tile,
                          beryl_error *error) {
    lower_request request = {.kernel = {.file = "experts_group"}};
    lower_request_number(&request, "EXPERTS", e->n_expert);
    lower_step *s = lower_step_begin(l, e->node, &request.kernel);
    put_ids(s, e);
    lower_bind_scratch(s, "map", SCRATCH_MAP, ((uint64_t)n_tile * 3 + e->pair_bound) * 4);
    lower_count_param(s, "n_pair", e->n_pair);
    lower_u32(s, "tile", tile);
    lower_u32(s, "n_tile", n_tile);
    lower_groups(s, (lower_count){e->n_expert, 0}, 1);
    return lower_step_end(s, error);
}

static beryl_status many(lowering *l, const experts *e, beryl_error *error) {
    const tiled_shape shape = {.type = e->type,
                               .rows = e->m,
                               .k = e->v.k,
                               .n_x = e->pair_bound,
                               .n_matrix = e->n_expert,
                               .exact = l->settings.exact,
                               .x_any = e->v.offset % 4 || (e->v.bound > 1 && e->v.stride % 4)};
    tiled_choice choice;
    if (!tiled_choose(l->caps, &shape, &choice))
        return lower_refuse(l, e->node, "a weight of this type", error);
    const uint32_t used = e->n_expert < e->pair_bound ? e->n_expert : e->pair_bound;
    /* each expert's last may not be full */
    const uint32_t n_tile = e->pair_bound / choice.tile_n + used;
    beryl_status status = group(l, e, choice.tile_n, n_tile, error);
    if (status == BERYL_OK && choice.kind == TILED_INT8)
        status = tiled_quantise(l, e->node, &e->v, SCRATCH_X, error);
    for (uint32_t i = 0; status == BERYL_OK && i < e->stored->n_shard; i++) {
        const store_shard *shard = &e->stored->shard[i];
        lower_request request = {0};
        tiled_request(&request, &shape, &choice);
        lower_request_part(&request, "place", "experts_place");
        lower_step *s = lower_step_begin(l, e->node, &request.kernel);
        lower_bind_shard(s, "weights", e->node->in[1], i);
        lower_bind_scratch(s, "map", SCRATCH_MAP, 0);
        put_result(s, l, e);
        tiled_put(s, &shape, &choice, &e->v, SCRATCH_X, &shard->layout, (uint32_t[2]){0});
        lower_count_param(s, "n_x", e->n_pair);
        lower_u32(s, "share", e->share);
        lower_u32(s, "n_tile", n_tile);
        lower_u32(s, "PART_rows", e->m);
        lower_u32(s, "PART_first", 0 - shard->row);
        lower_u32(s, "PART_stored", shard->n_row);
        lower_groups_3d(s, (lower_count){n_tile, 0}, 1, (lower_count){e->m, 0},
                        tiled_cols(&shape, &choice), (lower_count){1, 0}, 1);
        status = lower_step_end(s, error);
    }
    return status;
}

beryl_status lower_matmul_id(lowering *l, const graph_node *node, beryl_error *error) {
    experts e;
    beryl_status status = experts_of(l, node, &e, error);
    if (status != BERYL_OK) return status;
    const uint32_t used = e.n_used < e.n_expert ? e.n_used : e.n_expert; /* by one token */
    lower_bytes(l, base_type_row_bytes(e.type, e.v.k) * e.m * used);
    if (e.pair_bound > PAIRS_FEW) return many(l, &e, error);
    for (uint32_t i = 0; status == BERYL_OK && i < e.stored->n_shard; i++)
        status = few(l, &e, i, error);
    return status;
}
