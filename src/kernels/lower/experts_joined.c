/* experts_joined.c - products with chosen experts, joined with what stands around them
 * (tile/fused.h): gate and up with the choice of experts and the norm before and the gelu after, or
 * down with the sum over a vector's experts.
 *
 * Both are the matvec kernel. For the sum, a vector's experts side by side are one matrix of
 * long rows, and its vectors one long vector whose stretches are multiplied by the gates: so
 * there is one result to make and nothing to add up later. */
#include "base/error.h"
#include "kernels/lower/lower.h"
#include "kernels/lower/matvec.h"
#include "kernels/lower/tiled.h"

enum {
    PAIRS_MAX =
        128 /* of vectors and experts: more are sorted by expert (kernels/lower/experts.c) */,
    WG_MIN = 128,
    CHOICE_BYTES = 256 /* of workgroup memory, beside a key an expert */
};

typedef struct joined {
    const graph_tensor *ids;
    const store_tensor *stored;
    tiled_vectors v;                 /* one for all experts of a row, or their stretches as one */
    uint32_t n_expert, n_used, m, k; /* k: of a matrix */
    uint32_t matrix_rows;            /* of an expert in its tensor */
    matvec_shape shape;
    matvec_choice choice;
    uint32_t tiles, groups; /* of a grid */
} joined;

/* Whole weights [e, rows, k] in one piece, of one type. */
static bool weights_of(const lowering *l, const fused_experts *f, joined *j) {
    const graph_tensor *w = graph_tensor_at(l->g, f->w[0]);
    for (uint32_t i = 0; i < f->n_w; i++) {
        const graph_tensor *t = graph_tensor_at(l->g, f->w[i]);
        if (t->role != ROLE_STORED || t->base || t->rank != 3 || t->type != w->type) return false;
        for (uint32_t k = 0; k < 3; k++)
            if (t->dim[k].size != w->dim[k].size) return false;
        if (t->offset || t->dim[0].extent || t->dim[1].extent || t->dim[2].extent) return false;
    }
    if (!matvec_reader(w->type, false) || !lower_weights_fit(l, f->w, f->n_w)) return false;
    j->stored = lower_stored(l, f->w[0]);
    j->n_expert = w->dim[0].size;
    j->matrix_rows = w->dim[1].size;
    j->k = w->dim[2].size;
    j->m = f->sums || f->n_w == 2 ? j->matrix_rows : j->matrix_rows / 2;
    const graph_pack_layout *layout = &j->stored->shard[0].layout;
    /* the other half begins where 16 bytes do */
    for (uint32_t i = 0; !f->sums && f->n_w == 1 && i < layout->n_plane; i++)
        if ((uint64_t)layout->row_bytes[i] * j->m % 16) return false;
    return (uint64_t)j->n_expert * j->matrix_rows <= INT32_MAX &&
           (f->sums || f->n_w == 2 || j->matrix_rows % 2 == 0);
}

static bool vectors_of(const lowering *l, const fused_experts *f, joined *j) {
    if (!tiled_vectors_of(l, f->w_norm ? f->h : f->x, &j->v) || j->v.k != j->k || j->v.offset % 4 ||
        j->v.stride % 4)
        return false;
    if (f->w_norm) return j->k % 16 == 0 && lower_weights_fit(l, &f->w_norm, 1);
    const graph_tensor *x = graph_tensor_at(l->g, f->x);
    if (!f->sums) return x->dim[1].size == 1;
    if (j->k % 32 || j->v.stride != j->k || x->dim[1].size != j->n_used || x->dim[1].extent)
        return false;
    const graph_tensor *gates = graph_tensor_at(l->g, f->gates);
    j->v = (tiled_vectors){
        f->x,        lower_count_of(x->dim[0]), j->v.bound / j->n_used, j->k * j->n_used,
        j->v.offset, j->k * j->n_used};
    return gates->rank == 2 && gates->stride[1] == 1;
}

/* All workgroups make the vectors anew; on software devices that is worth it only for the
 * smallest. */
static bool norm_pays(const lowering *l, const joined *j, uint64_t pairs) {
    if (device_is_processor(l->caps)) return pairs * 2 * j->m * j->k <= MATVEC_SHARED_SOFTWARE;
    const uint64_t groups =
        pairs * ((j->m + matvec_tile(&j->choice) - 1) / matvec_tile(&j->choice));
    return groups * 2 * j->k <= MATVEC_REREAD_DEVICE;
}

/* All workgroups choose the experts anew: on a software device a dispatch of its own is cheaper. */
static bool choice_of(const lowering *l, const fused_experts *f, const joined *j) {
    const uint32_t bindings = 7 + (f->w_norm != 0);
    return !device_is_processor(l->caps) && f->router.ids == f->ids &&
           graph_tensor_at(l->g, f->router.logits)->dim[1].size == j->n_expert &&
           lower_router_fits(l->g, l->store, &f->router) &&
           bindings <= (l->caps->storage_max ? l->caps->storage_max : 8);
}

static bool joined_of(const lowering *l, const fused_experts *f, joined *j) {
    *j = (joined){.ids = graph_tensor_at(l->g, f->ids)};
    if (j->ids->rank != 2 || j->ids->dim[1].extent || j->ids->stride[1] != 1) return false;
    j->n_used = j->ids->dim[1].size;
    if (!weights_of(l, f, j) || !vectors_of(l, f, j) || (f->router.logits && !choice_of(l, f, j)))
        return false;
    /* each with the rows of one matrix */
    const uint64_t pairs = (uint64_t)j->v.bound * j->n_used, grids = f->sums ? j->v.bound : pairs;
    if (pairs > PAIRS_MAX) return false;
    const uint64_t rows = (uint64_t)j->m * grids;
    j->shape =
        (matvec_shape){.n_segment = 1,
                       .types = {j->stored->type},
                       .rows = {rows < UINT32_MAX ? (uint32_t)rows : UINT32_MAX},
                       .k = j->v.k,
                       .n_x = 1,
                       .per = f->sums ? 1 : 2,
                       .exact = l->settings.exact,
                       .form = lower_form_of(l, f->w[0]),
                       .has_prologue = f->w_norm || (f->sums && !device_is_processor(l->caps)),
                       .beside = f->router.logits ? CHOICE_BYTES + j->n_expert * 4 : 0};
    if (!matvec_choose(l->caps, &j->shape, &j->choice)) return false;
    /* nothing before this dispatch knows which vectors it takes */
    if (j->choice.x == MATVEC_QUANTISED) {
        j->shape.has_prologue = true;
        if (!matvec_choose(l->caps, &j->shape, &j->choice)) return false;
    }
    const uint32_t units = l->caps->compute_units ? l->caps->compute_units : 128;
    while (!device_is_processor(l->caps) && !(j->shape.form && j->shape.form->wg) &&
           j->choice.wg > WG_MIN && j->choice.wg > j->choice.lanes &&
           (j->m + matvec_tile(&j->choice) - 1) / matvec_tile(&j->choice) * grids < units)
        j->choice.wg /= 2; /* so that every unit has something to do */
    j->tiles = (j->m + matvec_tile(&j->choice) - 1) / matvec_tile(&j->choice);
    j->groups = j->choice.groups / grids ? (uint32_t)(j->choice.groups / grids) : 1;
    j->choice.once = j->tiles <= j->groups;
    return !f->w_norm || norm_pays(l, j, pairs);
}

bool lower_experts_fits(const graph *g, const graph_store *store, const lower_settings *settings,
                        const fused_experts *f, const graph_region *r) {
    (void)r;
    joined j;
    if (!store->device) return false;
    const lowering l = {.g = g,
                        .store = (graph_store *)(uintptr_t)store,
                        .caps = device_caps_of(store->device),
                        .settings = *settings};
    return joined_of(&l, f, &j);
}

static void parts_put(lower_request *r, const lowering *l, const fused_experts *f, joined *j) {
    j->shape.has_prologue = j->shape.has_prologue || f->sums; /* the prologue is put in here */
    matvec_request(r, &j->shape, &j->choice, NULL);
    lower_request_part(r, "matrix",
                       f->sums            ? "experts_sum"
                       : f->router.logits ? "experts_chosen"
                                          : "experts_matrix");
    if (f->router.logits) lower_request_number(r, "FOURS", (j->n_expert + 3) / 4);
    if (f->sums) lower_request_part(r, "prologue", "matvec_prologue_gated");
    else if (f->w_norm) lower_request_part(r, "prologue", "matvec_prologue_norm");
    else if (j->shape.has_prologue) lower_request_part(r, "prologue", "matvec_prologue_plain");
    if (!f->sums) lower_request_part(r, "epilogue", "matvec_store_geglu");
    if (f->w_norm && j->choice.subgroups) {
        lower_request_part(r, "sum", "matvec_sum_subgroup");
        lower_request_number(r, "SPAN", matvec_span(l->caps, &j->choice));
    }
}

static void weights_put(lower_step *s, const fused_experts *f, const joined *j) {
    static const char *const planes[PACK_PLANE_MAX] = {"PART_plane0", "PART_plane1", "PART_plane2",
                                                       "PART_plane3"};
    static const char *const ups[PACK_PLANE_MAX] = {"PART_up0", "PART_up1", "PART_up2", "PART_up3"};
    const graph_pack_layout *layout = &j->stored->shard[0].layout;
    uint32_t word[2];
    lower_bind_weights(s, "weights", f->w, f->n_w, word);
    for (uint32_t i = 0; i < PACK_PLANE_MAX; i++) {
        const uint32_t plane = (uint32_t)(layout->offset[i] / 4);
        const uint32_t half =
            i < layout->n_plane ? (uint32_t)((uint64_t)layout->row_bytes[i] * j->m / 4) : 0;
        lower_u32(s, planes[i], word[0] + plane);
        lower_u32(s, ups[i], f->sums ? 0 : f->n_w == 2 ? word[1] + plane : word[0] + plane + half);
    }
    lower_u32(s, "PART_k", j->k);
    lower_u32(s, "PART_rows", j->m);
    lower_u32(s, "PART_first", 0);
}

/* Which experts: told by an earlier dispatch, or chosen here. */
static void choice_put(lower_step *s, const lowering *l, const fused_experts *f, const joined *j) {
    lower_bind(s, "ids", f->ids);
    lower_u32(s, "n_used", j->n_used);
    lower_u32(s, "n_expert", j->n_expert);
    lower_u32(s, "ids_offset", j->ids->offset);
    lower_u32(s, "ids_stride", j->ids->stride[0]);
    if (!f->router.logits) return;
    const graph_tensor *logits = graph_tensor_at(l->g, f->router.logits),
                       *gates = graph_tensor_at(l->g, f->router.gates);
    lower_bind(s, "logits", f->router.logits);
    lower_bind(s, "scales", f->router.scales);
    lower_bind(s, "gates", f->router.gates);
    lower_u32(s, "logits_offset", logits->offset);
    lower_u32(s, "logits_stride", logits->stride[0]);
    lower_u32(s, "scales_offset", graph_tensor_at(l->g, f->router.scales)->offset);
    lower_u32(s, "gates_offset", gates->offset);
    lower_u32(s, "gates_stride", gates->stride[0]);
    lower_f32(s, "factor", f->router.factor);
}

/* A node of kind FUSED_EXPERTS. */
beryl_status lower_fused_experts(lowering *l, const graph_node *node, beryl_error *error) {
    const fused_experts *f = node->attr.fused.detail;
    joined j;
    lower_request request = {0};
    if (!joined_of(l, f, &j))
        return lower_refuse(l, node, "these joined products with experts", error);
    const uint32_t used = j.n_used < j.n_expert ? j.n_used : j.n_expert; /* by one token */
    lower_bytes(l, base_type_row_bytes(j.stored->type, j.k) * j.m * (f->sums ? 1 : 2) * used);
    lower_form_chosen(l, &j.choice);
    parts_put(&request, l, f, &j);
    lower_step *s = lower_step_begin(l, node, &request.kernel);
    weights_put(s, f, &j);
    lower_bind(s, "x", j.v.x);
    lower_bind(s, "PART_out", f->out);
    choice_put(s, l, f, &j);
    lower_u32(s, "PART_out_offset", graph_tensor_at(l->g, f->out)->offset);
    lower_u32(s, "PART_out_stride", j.m);
    if (f->sums) {
        const graph_tensor *gates = graph_tensor_at(l->g, f->gates);
        const uint32_t shift = matvec_reader_shift(j.stored->type);
        lower_bind(s, "gates", f->gates);
        lower_u32(s, "gated", j.k);
        lower_u32(s, "gates_offset", gates->offset);
        lower_u32(s, "gates_stride", gates->stride[0]);
        lower_u32(s, "stretch", (j.k + (1u << shift) - 1) >> shift);
    } else {
        lower_u32(s, "matrix_rows", j.matrix_rows);
    }
    if (!f->sums && !f->router.logits) {
        lower_u32(s, "share", j.n_used);
        lower_u32(s, "stored", j.n_expert * j.matrix_rows);
    }
    if (f->w_norm) {
        uint32_t word;
        lower_bind_weights(s, "norms", &f->w_norm, 1, &word);
        lower_u32(s, "norm", word);
        lower_f32(s, "eps", f->eps);
    }
    const lower_count grids = f->sums ? j.v.n : lower_count_times(j.v.n, j.n_used);
    lower_u32(s, "n_tile", j.tiles);
    lower_count_param(s, "n_x", grids);
    lower_u32(s, "k", j.v.k);
    lower_u32(s, "x_stride", j.v.stride);
    lower_u32(s, "x_offset", j.v.offset);
    lower_groups_3d(s, (lower_count){j.tiles < j.groups ? j.tiles : j.groups, 0}, 1, grids, 1,
                    (lower_count){1, 0}, 1);
    return lower_step_end(s, error);
}
