/* experts.c - products with chosen experts on GPUs, joined with what stands
 * around them (fused.h): gate and up with the choice of experts and the norm before and the gelu
 * after, or down with the sum over a vector's experts.
 *
 * Both are the body of tile/matvec.h. For the sum, a vector's experts side by side are one
 * matrix of long rows, and its vectors one long vector whose stretches are multiplied by the
 * gates: so there is one result to make and nothing to add up later. */
#include "tile/experts.h"
#include "base/error.h"
#include "tile/vectors.h"

enum { PAIRS_MAX = 128 /* of vectors and experts: more are sorted by expert */, WG_MIN = 128 };

typedef struct joined {
    const fused_experts *f;
    const graph_tensor *ids;
    base_type type;
    const graph_pack_layout *layout;
    /* m: rows of a result; matrix_rows: of an expert in its tensor */
    uint32_t n_expert, n_used, m, k, matrix_rows;
    lower_matrix x;       /* sums: a row has all stretches */
    vectors_plan vectors; /* else */
    uint64_t grids;
    matvec_shape shape;
    matvec_choice c;
    uint32_t tiles, groups;
} joined;

/* Whole weights [e, rows, k] in one piece, of one type. */
static bool weights_of(const lowering *l, const fused_experts *f, joined *j) {
    const graph_tensor *w = graph_tensor_at(l->g, f->w[0]);
    for (uint32_t i = 0; i < f->n_w; i++) {
        const graph_tensor *t = graph_tensor_at(l->g, f->w[i]);
        if (t->role != ROLE_STORED || t->base || t->rank != 3 || t->type != w->type || t->offset)
            return false;
        for (uint32_t k = 0; k < 3; k++)
            if (t->dim[k].size != w->dim[k].size || t->dim[k].extent) return false;
    }
    const store_tensor *stored = lower_weight(l, f->w[0]);
    if (!stored || !tile_weight_known(w->type) || !lower_weights_fit(l, f->w, f->n_w)) return false;
    j->type = w->type;
    j->layout = &stored->shard[0].layout;
    j->n_expert = w->dim[0].size;
    j->matrix_rows = w->dim[1].size;
    j->k = w->dim[2].size;
    j->m = f->sums || f->n_w == 2 ? j->matrix_rows : j->matrix_rows / 2;
    if (!base_type_is_quantised(j->type) && j->k % TILE_RUN) return false;
    return (uint64_t)j->n_expert * j->matrix_rows <= INT32_MAX &&
           (f->sums || f->n_w == 2 || j->matrix_rows % 2 == 0);
}

static bool vectors_of(const lowering *l, const graph_region *r, joined *j) {
    const fused_experts *f = j->f;
    const graph_tensor *x = graph_tensor_at(l->g, f->x);
    if (f->sums) {
        const graph_tensor *gates = graph_tensor_at(l->g, f->gates);
        if (!lower_matrix_of(x, &j->x) || x->rank != 3 || x->dim[1].size != j->n_used ||
            x->dim[1].extent || j->x.k != j->k)
            return false;
        if (j->x.stride != j->k || x->offset % 4 || j->k % 32 || gates->rank != 2 ||
            gates->stride[1] != 1)
            return false;
        j->x.n = lower_count_of(x->dim[0]);
        j->x.bound /= j->n_used;
        return true;
    }
    if (!vectors_plan_of(l, r, f->x, NULL, j->k, &j->vectors) || !vectors_fit_inside(&j->vectors))
        return false;
    j->x = j->vectors.rows;
    return j->vectors.kind == VECTORS_TREE || (x->rank == 3 && x->dim[1].size == 1);
}

static uint32_t bindings_of(const lowering *l, const joined *j) {
    if (j->f->sums) return 5;
    return 3 + tile_vectors_bindings(l, &j->vectors) + (j->f->router.logits ? 3 : 0);
}

static bool joined_of(const lowering *l, const fused_experts *f, const graph_region *r, joined *j) {
    *j = (joined){.f = f, .ids = graph_tensor_at(l->g, f->ids)};
    if (j->ids->rank != 2 || j->ids->dim[1].extent || j->ids->stride[1] != 1) return false;
    j->n_used = j->ids->dim[1].size;
    if (!weights_of(l, f, j) || !vectors_of(l, r, j)) return false;
    if (f->router.logits && (f->router.ids != f->ids ||
                             graph_tensor_at(l->g, f->router.logits)->dim[1].size != j->n_expert ||
                             !tile_router_fits(l->g, l->store, &f->router)))
        return false;
    const uint32_t bindings = bindings_of(l, j), units = tile_units(l->caps);
    if (bindings > l->caps->storage_max) return false;
    const uint64_t pairs = (uint64_t)j->x.bound * j->n_used;
    j->grids = f->sums ? j->x.bound : pairs; /* each with the rows of one matrix */
    if (pairs > PAIRS_MAX) return false;
    const uint32_t k = f->sums ? j->k * j->n_used : j->k,
                   beside = 16 * j->n_used +
                            (f->router.logits ? tile_choice_bytes(j->n_expert, j->n_used) : 0);
    j->shape = (matvec_shape){.n_segment = 1,
                              .types = {j->type},
                              .rows = {(uint32_t)(j->m * j->grids)},
                              .k = k,
                              .n_x = 1,
                              .per = f->sums ? 1 : 2,
                              .exact = l->settings.exact,
                              .form = lower_form_of(l, f->w[0]),
                              .has_prologue = j->vectors.kind != VECTORS_PLAIN};
    device_caps caps = *l->caps;
    const uint32_t memory = caps.workgroup_bytes;
    if (memory <= beside) return false;
    caps.workgroup_bytes = memory - beside;
    if (!tile_matvec_choose(&caps, &j->shape, &j->c) || j->c.n_x != 1 ||
        (f->sums && j->c.x == MATVEC_DIRECT))
        return false;
    const uint32_t rows = j->c.rows;
    while (!j->shape.form && j->c.wg > WG_MIN &&
           (j->m + j->c.wg / j->c.lanes * rows - 1) / (j->c.wg / j->c.lanes * rows) * j->grids <
               units)
        j->c.wg /= 2; /* so that every unit has something to do */
    const uint32_t tile = j->c.wg / j->c.lanes * rows, most = (uint32_t)(j->c.groups / j->grids);
    j->tiles = (j->m + tile - 1) / tile;
    j->groups = j->tiles < (most ? most : 1) ? j->tiles : most ? most : 1;
    return !f->w_norm || (uint64_t)j->groups * j->grids * 2 * j->k <= MATVEC_REREAD_DEVICE;
}

bool tile_experts_fits(const graph *g, const graph_store *store, const lower_settings *settings,
                       const fused_experts *f, const graph_region *r) {
    joined j;
    if (!store->device) return false;
    const lowering l = lower_asked(g, store, settings);
    return joined_of(&l, f, r, &j);
}

/* ---- the kernel ------------------------------------------------------------------------------ */

typedef struct making {
    const joined *j;
    tile_matvec m;
    tile_vectors v;
    tile_choice choice;
    /* kept: gates of the stretches, in workgroup memory */
    ir_memory x, ids, gates, logits, scales, out, kept;
    tile_weight w[2];
    ir_id ids_offset, ids_stride, gates_offset, gates_stride, logits_offset, logits_stride,
        scales_offset, out_offset, x_at;
    ir_id row, used; /* the vector; which of its experts */
} making;

static void bind(making *k, lowering *l) {
    static const char *const planes[2][PACK_PLANE_MAX] = {{"a0", "a1", "a2", "a3"},
                                                          {"b0", "b1", "b2", "b3"}};
    const joined *j = k->j;
    const fused_experts *f = j->f;
    tile_kernel *ir = &k->m.k;
    uint32_t words[2] = {0, 0};
    const ir_type type = tile_matvec_element(j->type);
    ir_memory from = tile_weights(ir, "weights", f->w, f->n_w, type, words);
    for (uint32_t i = 0; i < f->n_w; i++) {
        tile_weight_made(&k->w[i], ir, j->type, j->k, from);
        for (uint32_t p = 0; p < j->layout->n_plane; p++)
            k->w[i].plane[p] = tile_u32(
                ir, planes[i][p],
                (uint32_t)((words[i] * 4ull + j->layout->offset[p]) / ir_type_bytes(type)));
        k->w[i].start = k->w[i].plane[0];
    }
    if (f->n_w == 1) k->w[1] = k->w[0];
    k->out = tile_write(ir, "out", f->out);
    k->out_offset = tile_u32(ir, "out_offset", graph_tensor_at(l->g, f->out)->offset);
    k->ids = tile_bind(ir, "ids", f->ids, IR_I32, f->router.logits ? IR_READ_WRITE : IR_READ);
    k->ids_offset = tile_u32(ir, "ids_offset", j->ids->offset);
    k->ids_stride = tile_u32(ir, "ids_stride", j->ids->stride[0]);
    if (f->sums || f->router.logits) {
        const graph_value v = f->sums ? f->gates : f->router.gates;
        k->gates = tile_bind(ir, "gates", v, IR_F32, f->sums ? IR_READ : IR_READ_WRITE);
        k->gates_offset = tile_u32(ir, "gates_offset", graph_tensor_at(l->g, v)->offset);
        k->gates_stride = tile_u32(ir, "gates_stride", graph_tensor_at(l->g, v)->stride[0]);
    }
    if (f->router.logits) {
        const graph_tensor *logits = graph_tensor_at(l->g, f->router.logits);
        k->logits = tile_read(ir, "logits", f->router.logits);
        k->scales = tile_read(ir, "scales", f->router.scales);
        k->logits_offset = tile_u32(ir, "logits_offset", logits->offset);
        k->logits_stride = tile_u32(ir, "logits_stride", logits->stride[0]);
        k->scales_offset =
            tile_u32(ir, "scales_offset", graph_tensor_at(l->g, f->router.scales)->offset);
        tile_choice_open(&k->choice, ir->b, j->n_expert, j->n_used,
                         tile_f32(ir, "factor", f->router.factor));
    }
    if (!f->sums) {
        tile_vectors_begin(&k->v, &k->m, &j->vectors, false);
        k->v.first = k->row;
        return;
    }
    k->x = tile_read(ir, "x", f->x);
    k->x_at = ir_fma(ir->b, k->row, ir_u32(ir->b, j->k * j->n_used),
                     tile_u32(ir, "x_offset", graph_tensor_at(l->g, f->x)->offset));
    k->m.stretch = j->k;
    k->m.matrices = ir_workgroup(ir->b, IR_U32, j->n_used);
    k->kept = ir_workgroup(ir->b, IR_F32, j->n_used);
}

static ir_id expert_at(making *k, ir_id used) {
    ir_builder *b = k->m.k.b;
    ir_id at = ir_add(b, ir_fma(b, k->row, k->ids_stride, k->ids_offset), used);
    ir_id id = ir_cast(b, IR_U32, ir_load(b, k->ids, at, 1));
    return ir_select(b, ir_lt(b, id, ir_u32(b, k->j->n_expert)), id, ir_u32(b, 0));
}

/* Which expert this workgroup works for; one workgroup a vector tells what was chosen. */
static ir_id chosen(making *k) {
    tile_kernel *ir = &k->m.k;
    ir_builder *b = ir->b;
    if (!k->j->f->router.logits) return expert_at(k, k->used);
    tile_choice_make(&k->choice, ir, k->logits,
                     ir_fma(b, k->row, k->logits_stride, k->logits_offset));
    ir_if(b, ir_and(b, ir_eq(b, ir_group(b, 0), ir_u32(b, 0)), ir_eq(b, k->used, ir_u32(b, 0))));
    tile_choice_store(&k->choice, ir, k->scales, k->scales_offset, k->ids,
                      ir_fma(b, k->row, k->ids_stride, k->ids_offset), k->gates,
                      ir_fma(b, k->row, k->gates_stride, k->gates_offset));
    ir_end(b);
    return ir_load(b, k->choice.chosen, k->used, 1);
}

static void stretches_make(making *k) {
    ir_builder *b = k->m.k.b;
    const joined *j = k->j;
    ir_id i = ir_loop(b, ir_local(b, 0), ir_u32(b, j->n_used), ir_u32(b, j->c.wg));
    ir_store(b, k->m.matrices, i, tile_mul(b, expert_at(k, i), j->matrix_rows));
    ir_store(
        b, k->kept, i,
        ir_load(b, k->gates, ir_add(b, ir_fma(b, k->row, k->gates_stride, k->gates_offset), i), 1));
    ir_end(b);
    ir_barrier(b);
}

static ir_id four_gated(void *user, uint32_t v, uint32_t e, ir_id u) {
    making *k = user;
    ir_builder *b = k->m.k.b;
    (void)v, (void)e;
    ir_id gate = ir_load(b, k->kept, tile_div(b, u, k->j->k / 4), 1);
    return ir_mul(b, ir_load(b, k->x, ir_add(b, k->x_at, tile_mul(b, u, 4)), 4),
                  ir_splat(b, gate, 4));
}

/* The rows of a tile: with a pair, gate and up of each. */
static void tile_of(making *k, ir_id tile, ir_id first, tile_rows *rows, ir_id *results) {
    const joined *j = k->j;
    ir_builder *b = k->m.k.b;
    const uint32_t per = j->f->sums ? 1 : 2, apart = j->c.wg / j->c.lanes;
    *rows = (tile_rows){.n = j->c.rows * per};
    ir_id base = ir_add(b, tile_mul(b, tile, apart * j->c.rows), k->m.slot);
    for (uint32_t r = 0; r < j->c.rows; r++) {
        results[r] = tile_add(b, base, r * apart);
        ir_id row = ir_add(b, first, ir_min(b, results[r], ir_u32(b, j->m - 1)));
        for (uint32_t i = 0; i < per; i++) {
            rows->w[r * per + i] = &k->w[i];
            rows->row[r * per + i] = tile_add(b, row, i && j->f->n_w == 1 ? j->m : 0);
        }
    }
}

static void store_tile(making *k, const ir_id *results, const ir_id *sums) {
    const joined *j = k->j;
    ir_builder *b = k->m.k.b;
    ir_id grid = j->f->sums ? k->row : ir_group(b, 1),
          start = ir_fma(b, grid, ir_u32(b, j->m), k->out_offset);
    for (uint32_t r = 0; r < j->c.rows; r++) {
        ir_if(b, ir_and(b, ir_lt(b, results[r], ir_u32(b, j->m)),
                        ir_eq(b, k->m.lane, ir_u32(b, r % j->c.lanes))));
        ir_id y = j->f->sums ? sums[r] : ir_mul(b, tile_gelu(b, sums[2 * r]), sums[2 * r + 1]);
        ir_store(b, k->out, ir_add(b, start, results[r]), y);
        ir_end(b);
    }
}

beryl_status tile_fused_experts(lowering *l, const graph_node *node) {
    const fused_experts *f = node->attr.fused.detail;
    joined j;
    const graph_region r = graph_region_of(l->g, node);
    if (!joined_of(l, f, &r, &j))
        return lower_refuse(l, node, "these joined products with experts");
    const uint32_t used = j.n_used < j.n_expert ? j.n_used : j.n_expert; /* by one token */
    lower_bytes(l, base_type_row_bytes(j.type, j.k) * j.m * (f->sums ? 1 : 2) * used);
    making k = {.j = &j};
    tile_matvec_begin(&k.m, l, f->sums ? "experts_sum" : "experts", &j.c, j.shape.k);
    tile_kernel *ir = &k.m.k;
    ir_builder *b = ir->b;
    k.row = f->sums ? ir_group(b, 1) : tile_div(b, ir_group(b, 1), j.n_used);
    k.used = f->sums ? ir_u32(b, 0) : tile_rem(b, ir_group(b, 1), j.n_used);
    bind(&k, l);
    tile_matvec_open(&k.m, &j.type, 1, j.c.rows * j.shape.per);
    ir_id first = ir_u32(b, 0), results[TILE_ROWS_MAX], after[TILE_ROWS_MAX], sums[TILE_SUMS_MAX];
    if (f->sums) stretches_make(&k);
    else first = tile_mul(b, chosen(&k), j.matrix_rows);
    tile_rows now, next;
    tile_of(&k, ir_group(b, 0), first, &now, results);
    tile_matvec_fetch(&k.m, &now, ir_u32(b, 0));
    if (f->sums) {
        tile_matvec_fill_vector(&k.m, 0, false, four_gated, &k);
        ir_barrier(b);
    } else {
        tile_vectors_make(&k.v);
    }
    const bool again = j.tiles > j.groups;
    ir_id tile = again ? ir_loop(b, ir_group(b, 0), ir_u32(b, j.tiles), ir_groups(b, 0))
                       : ir_group(b, 0),
          there = IR_NO_ID;
    tile_of(&k, tile, first, &now, results);
    if (again) {
        ir_id following = ir_add(b, tile, ir_groups(b, 0));
        there = ir_lt(b, following, ir_u32(b, j.tiles));
        tile_of(&k, following, first, &next, after);
    }
    tile_matvec_walk(&k.m, &now, again ? &next : NULL, there, sums);
    store_tile(&k, results, sums);
    if (again) ir_end(b);
    const lower_count grids = f->sums ? j.x.n : lower_count_times(j.x.n, j.n_used);
    return tile_end_3d(ir, (lower_count){j.groups, 0}, 1, grids, 1, (lower_count){1, 0});
}
