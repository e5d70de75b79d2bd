/* matmul_tiled.c - products with many vectors (prefill, training): lower_matmul hands them
 * on.
 *
 * A weight in several shards is one product a shard, each for its rows of the result. Where the
 * kernel wants the vectors as int8, one dispatch rounds them for all shards; where k is divided,
 * one more adds up the parts. Of joined products (tile/fused.h) one dispatch makes the vectors for
 * all, norms and sums with them; gate and up of a feed-forward layer are one product, which
 * stores gelu(gate) * up alone. */
#include "base/error.h"
#include "kernels/lower/lower.h"
#include "kernels/lower/matvec.h"
#include "kernels/lower/tiled.h"
#include "kernels/lower/vectors.h"

enum { SCRATCH_X, SCRATCH_PARTS }; /* keys */

bool tiled_vectors_of(const lowering *l, graph_value x, tiled_vectors *out) {
    const graph_tensor *t = graph_tensor_at(l->g, x);
    const uint32_t last = t->rank - 1u;
    uint64_t bound = 1;
    *out = (tiled_vectors){.x = x,
                           .n = lower_rows(t),
                           .k = t->dim[last].size,
                           .offset = t->offset,
                           .stride = last ? t->stride[last - 1] : t->dim[last].size};
    bool varies = false; /* an extent leaves gaps between what lies outside it */
    for (uint32_t i = last; i-- > 0;) {
        if (t->dim[i].size == 1 && !t->dim[i].extent) continue;
        if (varies || (bound > 1 && t->stride[i] != out->stride * bound)) return false;
        if (bound == 1) out->stride = t->stride[i];
        bound *= t->dim[i].size;
        if (bound > UINT32_MAX) return false;
        varies = t->dim[i].extent != 0;
    }
    out->bound = (uint32_t)bound;
    return out->n.factor && !t->dim[last].extent && (t->stride[last] == 1 || out->k == 1);
}

beryl_status tiled_quantise(lowering *l, const graph_node *node, const tiled_vectors *v,
                            uint32_t key, beryl_error *error) {
    return vectors_quantise(
        l, node, v->x, &(lower_matrix){v->n, v->bound, v->k, v->stride, v->offset}, key, error);
}

void tiled_put(lower_step *s, const tiled_shape *shape, const tiled_choice *choice,
               const tiled_vectors *v, uint32_t key, const graph_pack_layout *layout,
               const uint32_t word[2]) {
    static const char *const planes[PACK_PLANE_MAX] = {"PART_plane0", "PART_plane1", "PART_plane2",
                                                       "PART_plane3"};
    static const char *const ups[PACK_PLANE_MAX] = {"PART_up0", "PART_up1", "PART_up2", "PART_up3"};
    if (choice->kind == TILED_INT8) {
        lower_bind_scratch(s, "x", key, 0);
        lower_count_param(s, "x_count", v->n);
    } else {
        if (v->x) lower_bind(s, "x", v->x);
        else lower_bind_scratch(s, "x", key, 0);
        lower_u32(s, "x_stride", v->stride);
        lower_u32(s, "x_offset", v->offset);
    }
    if (choice->kind != TILED_PLAIN) lower_u32(s, "steps", tiled_steps(shape, choice));
    lower_u32(s, "k", shape->k);
    lower_u32(s, "PART_k", shape->k);
    for (uint32_t i = 0; i < PACK_PLANE_MAX; i++) {
        const uint32_t offset = layout ? (uint32_t)(layout->offset[i] / 4) : 0;
        lower_u32(s, planes[i], word[0] + offset);
        lower_u32(s, ups[i], word[1] + offset);
    }
}

/* Rows of the weight that one product has: [from, from + n) of the value, stored from row
 * `first` of the shard on. */
typedef struct piece {
    graph_value weight, out;
    const store_shard *shard;
    uint32_t index, from, n, first, plain;
} piece;

static beryl_status product(lowering *l, const graph_node *node, const tiled_vectors *v,
                            tiled_shape *shape, const piece *p, bool *rounded, beryl_error *error) {
    const graph_tensor *w = graph_tensor_at(l->g, p->weight), *out = graph_tensor_at(l->g, p->out);
    tiled_choice choice;
    lower_request request = {0};
    beryl_status status = BERYL_OK;
    shape->rows = p->n;
    if (!tiled_choose(l->caps, shape, &choice))
        return lower_refuse(l, node, "a weight of this type", error);
    if (choice.kind == TILED_INT8 && !*rounded)
        status = tiled_quantise(l, node, v, SCRATCH_X, error);
    if (status != BERYL_OK) return status;
    *rounded = choice.kind == TILED_INT8;
    tiled_request(&request, shape, &choice);
    if (p->shard) lower_bytes(l, p->n * base_type_row_bytes(shape->type, shape->k));
    lower_step *s = lower_step_begin(l, node, &request.kernel);
    const uint64_t part = (uint64_t)v->bound * p->n;
    if (p->shard) lower_bind_shard(s, "weights", p->weight, p->index);
    else lower_bind(s, "weights", p->weight);
    if (choice.parts > 1) {
        if (part > UINT32_MAX / choice.parts)
            return lower_refuse(l, node, "a result of more than 2^32 elements", error);
        lower_bind_scratch(s, "PART_out", SCRATCH_PARTS, part * choice.parts * 4);
        lower_u32(s, "PART_out_part", (uint32_t)part);
    } else {
        lower_bind(s, "PART_out", p->out);
        lower_u32(s, "PART_out_offset", out->offset + p->from);
        lower_u32(s, "PART_out_stride", w->dim[0].size);
    }
    tiled_put(s, shape, &choice, v, SCRATCH_X, p->shard ? &p->shard->layout : NULL,
              (uint32_t[2]){p->plain, 0});
    lower_count_param(s, "n_x", v->n);
    lower_u32(s, "PART_rows", p->n);
    lower_u32(s, "PART_first", p->first);
    lower_u32(s, "PART_stored", p->first + p->n);
    lower_groups_3d(s, v->n, choice.tile_n, (lower_count){p->n, 0}, tiled_cols(shape, &choice),
                    (lower_count){choice.parts, 0}, 1);
    status = lower_step_end(s, error);
    if (status != BERYL_OK || choice.parts == 1) return status;
    s = lower_step_begin(l, node, &(kernels_request){.file = "matmul_merge"});
    lower_bind_scratch(s, "parts", SCRATCH_PARTS, 0);
    lower_bind(s, "out", p->out);
    lower_count_param(s, "n", v->n);
    lower_u32(s, "rows", p->n);
    lower_u32(s, "n_part", choice.parts);
    lower_u32(s, "part", (uint32_t)part);
    lower_u32(s, "out_offset", out->offset + p->from);
    lower_u32(s, "out_stride", w->dim[0].size);
    lower_groups(s, lower_count_times(v->n, p->n), 256);
    return lower_step_end(s, error);
}

/* Of a whole weight, or rows of it. *rounded: the vectors are in the scratch, as int8. */
static beryl_status products(lowering *l, const graph_node *node, const tiled_vectors *v,
                             graph_value weight, graph_value out, bool *rounded,
                             beryl_error *error) {
    const graph_tensor *w = graph_tensor_at(l->g, weight);
    const store_tensor *stored = lower_weight(l, weight);
    if (w->rank != 2 || w->dim[0].extent || w->dim[1].extent || w->stride[1] != 1 ||
        w->stride[0] != w->dim[1].size)
        return lower_refuse(l, node, "a weight that is no matrix in one piece", error);
    tiled_shape shape = {.type = w->type,
                         .k = v->k,
                         .n_x = v->bound,
                         .exact = l->settings.exact,
                         .x_any = v->offset % 4 || (v->bound > 1 && v->stride % 4)};
    if (!stored) {
        const uint64_t begin = (uint64_t)w->offset * base_type_block_bytes(w->type);
        if (base_type_is_quantised(w->type))
            return lower_refuse(l, node, "a quantised matrix that is no weight", error);
        if (begin % 4) return lower_refuse(l, node, "a weight that begins inside a word", error);
        shape.w_any = begin % 16 != 0;
        return product(
            l, node, v, &shape,
            &(piece){
                .weight = weight, .out = out, .n = w->dim[0].size, .plain = (uint32_t)(begin / 4)},
            rounded, error);
    }
    if (w->offset % w->dim[1].size)
        return lower_refuse(l, node, "a weight that begins inside a row", error);
    const uint32_t first = w->offset / w->dim[1].size, end = first + w->dim[0].size;
    beryl_status status = BERYL_OK;
    for (uint32_t i = 0; status == BERYL_OK && i < stored->n_shard; i++) {
        const store_shard *shard = &stored->shard[i];
        const uint32_t from = shard->row > first ? shard->row : first;
        const uint32_t to = shard->row + shard->n_row < end ? shard->row + shard->n_row : end;
        if (from >= to) continue;
        const piece p = {.weight = weight,
                         .out = out,
                         .shard = shard,
                         .index = i,
                         .from = from - first,
                         .n = to - from,
                         .first = from - shard->row};
        status = product(l, node, v, &shape, &p, rounded, error);
    }
    return status;
}

beryl_status lower_matmul_tiled(lowering *l, const graph_node *node, beryl_error *error) {
    tiled_vectors v;
    bool rounded = false;
    if (!tiled_vectors_of(l, node->in[0], &v))
        return lower_refuse(l, node, "vectors with gaps between their elements", error);
    return products(l, node, &v, node->in[1], node->out[0], &rounded, error);
}

/* ---- joined products ------------------------------------------------------------------------- */

typedef struct joined {
    vectors_walk walk;
    tiled_vectors v;
    bool apart, int8;  /* a dispatch makes the vectors; they are rounded */
    tiled_shape shape; /* of gate and up */
    tiled_choice choice;
} joined;

static bool gated_of(const lowering *l, const fused_matvec *f, joined *j) {
    const graph_tensor *a = graph_tensor_at(l->g, f->w[0]), *b = graph_tensor_at(l->g, f->w[1]);
    if (f->n_segment != 2 || !lower_weights_fit(l, f->w, 2)) return false;
    if (a->rank != 2 || b->rank != 2 || a->type != b->type || a->dim[0].size != b->dim[0].size ||
        a->offset || b->offset)
        return false;
    if (lower_stored(l, f->w[0])->dim[0] != a->dim[0].size ||
        lower_stored(l, f->w[1])->dim[0] != a->dim[0].size)
        return false;
    j->shape = (tiled_shape){.type = a->type,
                             .rows = a->dim[0].size,
                             .k = j->v.k,
                             .n_x = j->v.bound,
                             .per = 2,
                             .exact = l->settings.exact,
                             .x_any = j->v.offset % 4 || j->v.stride % 4};
    return a->dim[1].size == j->v.k && tiled_choose(l->caps, &j->shape, &j->choice);
}

/* All of one kind, so that one dispatch makes the vectors for all. */
static bool kind_of(const lowering *l, const fused_matvec *f, const joined *j, tiled_kind *kind) {
    for (uint32_t i = 0; i < f->n_segment; i++) {
        const graph_tensor *w = graph_tensor_at(l->g, f->w[i]);
        if (!lower_weight(l, f->w[i]) || w->rank != 2 || w->dim[0].extent || w->dim[1].extent ||
            w->dim[1].size != j->v.k)
            return false;
        if (w->stride[1] != 1 || w->stride[0] != w->dim[1].size || w->offset % w->dim[1].size)
            return false;
        const tiled_shape shape = {.type = w->type,
                                   .rows = w->dim[0].size,
                                   .k = j->v.k,
                                   .n_x = j->v.bound,
                                   .exact = l->settings.exact};
        tiled_choice choice;
        if (!tiled_choose(l->caps, &shape, &choice) || (i > 0 && choice.kind != *kind))
            return false;
        *kind = choice.kind;
    }
    return true;
}

static bool joined_of(const lowering *l, const fused_matvec *f, joined *j) {
    tiled_kind kind = TILED_PLAIN;
    *j = (joined){0};
    if (f->n_segment == 0 || f->n_segment > FUSED_SEGMENT_MAX ||
        (f->to != FUSED_STORE && f->to != FUSED_GEGLU))
        return false;
    if (vectors_has_prologue(f)) {
        if (!vectors_walk_of(l, f, graph_tensor_at(l->g, f->w[0])->dim[1].size, &j->walk))
            return false;
        j->v = (tiled_vectors){
            .n = j->walk.x.n, .bound = j->walk.x.bound, .k = j->walk.x.k, .stride = j->walk.x.k};
    } else if (!tiled_vectors_of(l, f->x, &j->v)) {
        return false;
    }
    if (j->v.bound <= MATVEC_ROWS_MAX || !kind_of(l, f, j, &kind)) return false;
    if (f->to == FUSED_GEGLU && (!gated_of(l, f, j) || j->choice.kind != kind)) return false;
    j->int8 = kind == TILED_INT8;
    j->apart = vectors_has_prologue(f);
    if (j->apart) return vectors_separate_fits(l, f, &j->walk, j->int8);
    return f->to == FUSED_GEGLU || j->int8; /* else nothing is saved */
}

bool tiled_joined_fits(const lowering *l, const fused_matvec *f) {
    joined j;
    return joined_of(l, f, &j);
}

static beryl_status gated(lowering *l, const graph_node *node, const fused_matvec *f,
                          const joined *j, beryl_error *error) {
    lower_request request = {0};
    tiled_request(&request, &j->shape, &j->choice);
    lower_request_part(&request, "epilogue", "matvec_store_geglu");
    lower_bytes(l, 2 * j->shape.rows * base_type_row_bytes(j->shape.type, j->shape.k));
    lower_step *s = lower_step_begin(l, node, &request.kernel);
    uint32_t word[2];
    lower_bind_weights(s, "weights", f->w, 2, word);
    lower_bind(s, "PART_out", f->out[0]);
    lower_u32(s, "PART_out_offset", graph_tensor_at(l->g, f->out[0])->offset);
    lower_u32(s, "PART_out_stride", j->shape.rows);
    tiled_put(s, &j->shape, &j->choice, &j->v, SCRATCH_X,
              &lower_stored(l, f->w[0])->shard[0].layout, word);
    lower_count_param(s, "n_x", j->v.n);
    lower_u32(s, "PART_rows", j->shape.rows);
    lower_u32(s, "PART_first", 0);
    lower_u32(s, "PART_stored", j->shape.rows);
    lower_groups_3d(s, j->v.n, j->choice.tile_n, (lower_count){j->shape.rows, 0},
                    tiled_cols(&j->shape, &j->choice), (lower_count){1, 0}, 1);
    return lower_step_end(s, error);
}

beryl_status lower_tiled_joined(lowering *l, const graph_node *node, beryl_error *error) {
    const fused_matvec *f = node->attr.fused.detail;
    joined j;
    if (!joined_of(l, f, &j)) return lower_refuse(l, node, "this joined product", error);
    beryl_status status = j.apart  ? vectors_separate(l, node, f, &j.walk, j.int8, SCRATCH_X, error)
                          : j.int8 ? tiled_quantise(l, node, &j.v, SCRATCH_X, error)
                                   : BERYL_OK;
    if (status == BERYL_OK && f->to == FUSED_GEGLU) return gated(l, node, f, &j, error);
    bool rounded = j.int8;
    for (uint32_t i = 0; status == BERYL_OK && i < f->n_segment; i++)
        status = products(l, node, &j.v, f->w[i], f->out[i], &rounded, error);
    return status;
}
