/* contract.c - sums of products over any axes: of matrices in any order and number, of windows.
 *
 * The one idea: an axis that both factors have is one of a batch, an axis of one factor alone is of
 * its rows, and an axis that is summed is depth. Each such class is one loop, whose index is taken
 * apart where its axes do not lie as one; the kernel says the sum element by element, and the
 * schedule makes tiles of it (ir/pass/schedule.c): matrix units for halves, and for limbs of F32,
 * blocks of sums for all else. A processor wants factors that lie along its vectors: where they do
 * not, one of them is packed so before, and where the other goes with depth stands in a table. Sums
 * are F32 (F64 of F64); integers wrap as 32 bits, or 64. */
#include "tile/contract_inside.h"

#include "base/error.h"
#include "tile/product.h"

#include <stdio.h>
#include <string.h>

void contract_add_axis(const lowering *l, axes *to, lower_count size,
                       const uint32_t stride[LOWER_WALK_TENSORS]) {
    for (uint32_t t = 0; t < LOWER_WALK_TENSORS; t++) to->stride[t][to->n] = stride[t];
    to->size[to->n++] = size;
    to->unfit |= size.extent && to->count.extent;
    to->count.factor *= size.factor;
    to->bound *= size.factor * (size.extent ? l->g->extents[size.extent].bound : 1);
    if (size.extent) to->count.extent = size.extent;
}

/* The axes by class; what lies last in the result is inner. */
static void sort_axes(const lowering *l, contraction *c) {
    const graph_tensor *in[LOWER_WALK_TENSORS], *out = graph_tensor_at(l->g, c->node->out[0]);
    graph_tensor whole = *out; /* the shape that is summed over */
    for (uint32_t t = 0; t < 2; t++) {
        in[t] = graph_tensor_at(l->g, c->node->in[t]);
        for (uint32_t i = 0; i < in[t]->rank; i++) {
            graph_dim *to = &whole.dim[i + out->rank - in[t]->rank];
            if (in[t]->dim[i].size > 1 || in[t]->dim[i].extent) *to = in[t]->dim[i];
        }
    }
    in[OUT] = out;
    for (uint32_t i = 0; i < c->end.n; i++) in[TENSORS + i] = &c->end.seen[i];
    c->n_tensor = TENSORS + c->end.n;
    const lower_walk w = lower_walk_from(&whole, in, c->n_tensor, 0);
    class_kind left = CLASS_OUTER, right = CLASS_INNER;
    for (uint32_t i = 0; i < w.n; i++)
        if (w.stride[OUT][i] && !(w.stride[A][i] && w.stride[B][i])) {
            left = w.stride[B][i] ? CLASS_OUTER : CLASS_INNER;
            right = w.stride[B][i] ? CLASS_INNER : CLASS_OUTER;
        }
    for (uint32_t i = 0; i < CLASSES; i++) c->of[i] = NO_AXES;
    for (uint32_t i = 0; i < w.n; i++) {
        const class_kind kind = !w.stride[OUT][i]                  ? CLASS_DEPTH
                                : w.stride[A][i] && w.stride[B][i] ? CLASS_BATCH
                                : w.stride[B][i]                   ? right
                                                                   : left;
        uint32_t stride[LOWER_WALK_TENSORS] = {0};
        for (uint32_t t = 0; t < c->n_tensor; t++) stride[t] = w.stride[t][i];
        contract_add_axis(l, &c->of[kind], w.size[i], stride);
    }
}

/* "inner_b", "depth_a_1" */
static const char *name_of(contraction *c, class_kind kind, uint32_t t, uint32_t i) {
    static const char *const classes[] = {"batch", "outer", "inner", "depth"},
                             *const tensors[LOWER_WALK_TENSORS + 1] = {
                                 "a",  "b",  "out", "y0", "y1", "y2",  "y3",
                                 "y4", "y5", "y6",  "y7", "y8", "size"};
    char text[32];
    int n = snprintf(text, sizeof text, "%s_%s", classes[kind], tensors[t]);
    if (i) n += snprintf(text + n, sizeof text - (size_t)n, "_%u", i);
    const char *kept = base_arena_text(&c->k.arena, text, (size_t)n);
    return kept ? kept : "";
}

/* Axis i of the class goes on in tensor t where the one before it ends. */
static bool goes_on(const axes *of, uint32_t t, uint32_t i) {
    return !of->size[i].extent &&
           of->stride[t][i - 1] == of->stride[t][i] * (uint32_t)of->size[i].factor;
}

bool contract_is_one(const axes *of, uint32_t t) {
    for (uint32_t i = 1; i < of->n; i++)
        if (!goes_on(of, t, i)) return false;
    return true;
}

/* Pages have no processor to run on. */
static bool is_packed(const contraction *c, uint32_t t) {
    return BUILD_HAS_C_TEXTS && t < OUT && c->packed[t];
}

/* The loop of the class goes along the width of a factor that is packed so. */
static bool is_along(const contraction *c, class_kind kind) {
    return BUILD_HAS_C_TEXTS && kind == c->along;
}

static bool is_tabled(const contraction *c) {
    return BUILD_HAS_C_TEXTS && c->tabled;
}

static bool is_padded(const contraction *c) {
    return BUILD_HAS_C_TEXTS && c->pads;
}

static bool is_turned(const contraction *c) {
    return BUILD_HAS_C_TEXTS && c->turns;
}

static bool is_limbs(const contraction *c) {
    return BUILD_HAS_C_TEXTS && c->limbs;
}

/* The number for a tensor of the end that goes along axis i as one before it does. */
static ir_id known(const axes *of, const lengths *by, uint32_t t, uint32_t i) {
    for (uint32_t u = OUT; u < t; u++)
        if (of->stride[u][i] == of->stride[t][i] && by->stride[u][i] != IR_NO_ID)
            return by->stride[u][i];
    return IR_NO_ID;
}

void contract_measure(contraction *c, class_kind kind, lengths *out) {
    const axes *of = &c->of[kind];
    out->count = tile_count(&c->k, name_of(c, kind, LOWER_WALK_TENSORS, 0), of->count);
    for (uint32_t i = 0; i < of->n; i++) {
        out->size[i] = tile_count(&c->k, name_of(c, kind, LOWER_WALK_TENSORS, i + 1), of->size[i]);
        for (uint32_t t = 0; t < c->n_tensor; t++) {
            const uint32_t stride = of->stride[t][i];
            if ((t >= OUT && kind == CLASS_DEPTH) || is_packed(c, t) ||
                (is_tabled(c) && kind == CLASS_DEPTH))
                continue;
            const bool last = i + 1 == of->n || !goes_on(of, t, i + 1),
                       asked = last || (i && of->size[i].extent);
            out->stride[t][i] = asked ? known(of, out, t, i) : IR_NO_ID;
            if (asked && out->stride[t][i] == IR_NO_ID)
                out->stride[t][i] = kind == CLASS_DEPTH
                                        ? ir_u32(c->k.b, stride)
                                        : contract_number(c, name_of(c, kind, t, i), stride);
        }
    }
}

ir_id contract_place(contraction *c, class_kind kind, const lengths *by, uint32_t t, ir_id index,
                     ir_id at) {
    const axes *of = &c->of[kind];
    ir_builder *b = c->k.b;
    if (!contract_moves(of, t)) return at;
    if (is_packed(c, t)) return contract_place_packed(c, kind, t, index, at);
    for (uint32_t i = of->n; i-- > 0;) { /* of axes that lie as one the last */
        const uint32_t last = i;
        uint64_t n = of->size[i].factor;
        while (i && goes_on(of, t, i) && (i == 1 || !of->size[i - 1].extent))
            n *= of->size[--i].factor;
        const ir_id size = i == last ? by->size[i] : ir_u32(b, (uint32_t)n),
                    part = i ? ir_mod(b, index, size) : index;
        if (of->stride[t][last]) at = ir_add(b, at, ir_mul(b, part, by->stride[t][last]));
        if (i) index = ir_div(b, index, size);
    }
    return at;
}

/* The same for all tensors, at [n_tensor]. near: the turn within its panel. */
static void place_all(contraction *c, class_kind kind, const lengths *by, ir_id index, ir_id near,
                      ir_id *at) {
    for (uint32_t t = 0; t < c->n_tensor; t++)
        at[t] = is_along(c, kind) && is_packed(c, t)
                    ? (contract_moves(&c->of[kind], t) ? ir_add(c->k.b, at[t], near) : at[t])
                    : contract_place(c, kind, by, t, index, at[t]);
}

static ir_id product_and(contraction *c, ir_id x, ir_id y, ir_id sum) {
    ir_builder *b = c->k.b;
    return ir_type_in(c->type, IR_FLOATS) ? ir_fma(b, x, y, sum) : ir_add(b, ir_mul(b, x, y), sum);
}

ir_id contract_turns(ir_builder *b, const lengths *by, ir_mark_kind mark, uint32_t dim) {
    return ir_loop_marked(b, ir_u32(b, 0), by->count, ir_u32(b, 1), mark, dim);
}

/* ---- long sums in parts -------------------------------------------------------------------- */

/* Thin ones of windows have groups enough. */
tile_split contract_split(const contraction *c, const lowering *l) {
    const axes *depth = &c->of[CLASS_DEPTH];
    const bool is_line = contract_is_one(depth, A) && contract_is_one(depth, B);
    if (BUILD_IS_SMALL || c->type != IR_F32 || c->of[CLASS_BATCH].n || c->panels > 1 ||
        (!is_line && tile_split_is_thin(c->of[CLASS_OUTER].bound, c->of[CLASS_INNER].bound)))
        return (tile_split){.n = 1};
    return tile_split_of(l, c->of[CLASS_OUTER].bound, c->of[CLASS_INNER].bound, depth->count,
                         depth->bound);
}
/* ---- products of limbs ----------------------------------------------------------------------- */

/* The limbs of a and of b that are multiplied, smallest products first; the three that are left out
 * are below 2^-25 of the whole one. */
static void limbs_of(contraction *c, ir_id round, ir_id limb[OUT]) {
    static const uint32_t of[OUT] = {0x001012, 0x010210}; /* four bits a round */
    for (uint32_t t = 0; t < OUT; t++)
        limb[t] = ir_and(c->k.b, ir_shr(c->k.b, ir_u32(c->k.b, of[t]), tile_mul(c->k.b, round, 4)),
                         ir_u32(c->k.b, 3));
}

/* Result `index` of those in memory's order, `width` of them side by side: moves `at`, [TENSORS],
 * on to where it is, and its terms. */
static void place_result(contraction *c, const lengths by[CLASSES], class_kind near, ir_id index,
                         ir_id width, ir_id *at) {
    const class_kind far = near == CLASS_INNER ? CLASS_OUTER : CLASS_INNER;
    ir_builder *b = c->k.b;
    ir_id own = ir_mod(b, index, width);
    place_all(c, near, &by[near], own, own, at);
    index = ir_div(b, index, width);
    if (c->of[CLASS_BATCH].n) {
        own = ir_div(b, index, by[far].count);
        place_all(c, CLASS_BATCH, &by[CLASS_BATCH], own, own, at);
        index = ir_mod(b, index, by[far].count);
    }
    place_all(c, far, &by[far], index, index, at);
}

/* Results that are infinite or NaN are computed again, in F32: limbs of infinities, and of what
 * rounds to such, are none. The axes are those of the factors as they are given. A lane looks at
 * vectors of results, and at each alone where one of them is such. */
static beryl_status mend(lowering *l, contraction *c) {
    enum { LANES = 256, EACH = 4, TURNS = 4 };
    static const char *const offsets[] = {"a_offset", "b_offset", "out_offset"};
    const axes *inner = &c->of[CLASS_INNER];
    const class_kind near = inner->stride[OUT][0] == 1 ? CLASS_INNER : CLASS_OUTER,
                     far = near == CLASS_INNER ? CLASS_OUTER : CLASS_INNER;
    const graph_tensor *to = graph_tensor_at(l->g, c->node->out[0]);
    const uint32_t gaps = (uint32_t)c->of[near].bound | to->offset | c->of[far].stride[OUT][0] |
                          (c->of[CLASS_BATCH].n ? c->of[CLASS_BATCH].stride[OUT][0] : 0),
                   each = gaps % EACH || c->of[near].stride[OUT][0] != 1 ? 1 : EACH;
    const uint64_t vectors =
        c->of[CLASS_BATCH].bound * c->of[CLASS_OUTER].bound * c->of[CLASS_INNER].bound / each;
    const uint32_t turn = vectors % TURNS ? 1 : TURNS, units = (uint32_t)(vectors / turn);
    tile_kernel *k = &c->k;
    ir_builder *b = tile_begin(k, l, "contract_mend", LANES);
    const ir_memory in[TENSORS] = {tile_read(k, "a", c->node->in[A]),
                                   tile_read(k, "b", c->node->in[B]),
                                   tile_write(k, "out", c->node->out[0])},
                    sum = ir_register(b, IR_F32, 1);
    const ir_id one = ir_u32(b, 1), exponent = ir_u32(b, 0x7f800000), unit = tile_lane(k),
                n = tile_u32(k, "units", units), lanes = ir_u32(b, each);
    ir_id begin[TENSORS], at[TENSORS], x[OUT], most = IR_NO_ID;
    lengths by[CLASSES];
    for (uint32_t t = 0; t < TENSORS; t++) {
        const graph_value v = t < OUT ? c->node->in[t] : c->node->out[0];
        begin[t] = contract_number(c, offsets[t], graph_tensor_at(l->g, v)->offset);
    }
    for (uint32_t i = 0; i < CLASSES; i++) contract_measure(c, i, &by[i]);
    ir_if(b, ir_lt(b, unit, n));
    for (uint32_t i = 0; i < turn; i++) {
        const ir_id vector = i ? ir_fma(b, ir_u32(b, i), n, unit) : unit;
        memcpy(at, begin, sizeof at);
        place_result(c, by, near, ir_mul(b, vector, lanes), by[near].count, at);
        const ir_id bits = ir_bitcast(b, IR_U32, each, ir_load(b, in[OUT], at[OUT], each));
        for (uint32_t e = 0; e < each; e++) {
            const ir_id own = ir_and(b, ir_extract(b, bits, e), exponent);
            most = most == IR_NO_ID ? own : ir_max(b, most, own);
        }
    }
    ir_if(b, ir_eq(b, most, exponent));
    const ir_id i = ir_loop(b, ir_u32(b, 0), ir_u32(b, turn * each), one),
                vector = ir_fma(b, ir_div(b, i, lanes), n, unit);
    memcpy(at, begin, sizeof at);
    place_result(c, by, near, ir_fma(b, vector, lanes, ir_mod(b, i, lanes)), by[near].count, at);
    const ir_id bits = ir_bitcast(b, IR_U32, 1, ir_load(b, in[OUT], at[OUT], 1));
    ir_if(b, ir_eq(b, ir_and(b, bits, exponent), exponent));
    ir_set(b, sum, ir_f32(b, 0));
    const ir_id term = ir_loop(b, ir_u32(b, 0), by[CLASS_DEPTH].count, one);
    for (uint32_t t = 0; t < OUT; t++)
        x[t] =
            ir_load(b, in[t], contract_place(c, CLASS_DEPTH, &by[CLASS_DEPTH], t, term, at[t]), 1);
    ir_set(b, sum, ir_fma(b, x[A], x[B], ir_get(b, sum)));
    ir_end(b);
    ir_store(b, in[OUT], at[OUT], ir_get(b, sum));
    ir_end(b), ir_end(b), ir_end(b), ir_end(b);
    return tile_end(k, (lower_count){units, 0}, LANES);
}

/* ---- parts added up -------------------------------------------------------------------------- */

/* Adds the parts [part, outer, inner]. */
static beryl_status add_parts(lowering *l, contraction *c, const tile_split *split) {
    tile_kernel *k = &c->k;
    lengths outer, inner;
    ir_id to[LOWER_WALK_TENSORS];
    ir_builder *b = tile_begin(k, l, "contract_sum", 1);
    const ir_memory parts = tile_scratch(k, "parts", 0, split->bytes, IR_F32, IR_READ),
                    out = contract_end_declare(&c->end, k);
    contract_end_begin(&c->end, k, to + OUT);
    c->n_tensor = TENSORS + c->end.n;
    contract_measure(c, CLASS_OUTER, &outer);
    contract_measure(c, CLASS_INNER, &inner);
    const ir_id i = contract_turns(b, &outer, IR_PARALLEL, DIM_OUTER),
                j = contract_turns(b, &inner, IR_PARALLEL, DIM_INNER),
                at = ir_add(b, ir_mul(b, i, inner.count), j),
                terms = tile_count(k, "terms", split->terms),
                sum =
                    tile_split_sum(b, split, terms, parts, at, ir_mul(b, outer.count, inner.count));
    for (uint32_t t = OUT; t < c->n_tensor; t++) {
        to[t] = contract_place(c, CLASS_OUTER, &outer, t, i, to[t]);
        to[t] = contract_place(c, CLASS_INNER, &inner, t, j, to[t]);
    }
    contract_end_store(&c->end, k, out, to + OUT, sum);
    ir_end(b), ir_end(b);
    return tile_end_marked(
        k, (lower_count[IR_DIM_MAX]){c->of[CLASS_OUTER].count, c->of[CLASS_INNER].count},
        (uint64_t[IR_DIM_MAX]){c->of[CLASS_OUTER].bound, c->of[CLASS_INNER].bound});
}

/* Factor t as it is, or its copy. */
static ir_memory factor(contraction *c, uint32_t t) {
    const char *name = t == A ? "a" : "b";
    const graph_value v = c->node->in[t];
    if (is_packed(c, t))
        return tile_scratch(&c->k, name, CONTRACT_COPY + t, contract_packed_bytes(c, t), IR_F32,
                            IR_READ);
    if (!BUILD_HAS_C_TEXTS || !c->copied[t]) return tile_read(&c->k, name, v);
    const ir_type type = is_limbs(c) ? IR_BF16 : tile_element(graph_tensor_at(c->k.l->g, v)->type);
    return tile_scratch(&c->k, name, CONTRACT_COPY + t, c->bytes[t], type, IR_READ);
}

/* A class's loop, in whole vectors where a factor is packed along it. */
static ir_id turns_along(contraction *c, class_kind kind, const lengths *by, uint32_t dim) {
    ir_builder *b = c->k.b;
    if (!is_along(c, kind)) return contract_turns(b, by, IR_PARALLEL, dim);
    const ir_id unit = ir_u32(b, VECTOR),
                end = c->of[kind].count.extent
                          ? ir_mul(b, ir_div(b, ir_add(b, by->count, ir_u32(b, VECTOR - 1)), unit),
                                   unit)
                          : ir_u32(b, c->panel);
    return ir_loop_marked(b, ir_u32(b, 0), end, ir_u32(b, 1), IR_PARALLEL, dim);
}

/* The class's turn, of turn `near` of a panel that begins at `start`. */
static ir_id turn_of(contraction *c, class_kind kind, ir_id start, ir_id near) {
    return is_along(c, kind) && c->panels > 1 ? ir_add(c->k.b, start, near) : near;
}

/* The product's batches, a panel each. */
static lower_count batches_of(const contraction *c) {
    lower_count n = c->of[CLASS_BATCH].count;
    n.factor *= BUILD_HAS_C_TEXTS ? c->panels : 1;
    return n;
}

/* What its loops have. */
static void sizes_of(const contraction *c, const tile_split *split, lower_count counts[IR_DIM_MAX],
                     uint64_t extents[IR_DIM_MAX]) {
    const bool whole = split->n == 1;
    counts[DIM_OUTER] = c->of[CLASS_OUTER].count, counts[DIM_INNER] = c->of[CLASS_INNER].count;
    counts[DIM_BATCH] = whole ? batches_of(c) : (lower_count){split->n, 0};
    extents[DIM_OUTER] = c->of[CLASS_OUTER].bound, extents[DIM_INNER] = c->of[CLASS_INNER].bound;
    extents[DIM_DEPTH] = is_limbs(c) ? CONTRACT_ROUNDS * split->each
                         : whole     ? c->of[CLASS_DEPTH].bound
                                     : split->each;
    extents[DIM_BATCH] = whole ? c->of[CLASS_BATCH].bound : split->n;
    if (!BUILD_HAS_C_TEXTS || c->along == CLASSES) return;
    const uint32_t dim = c->along == CLASS_INNER ? DIM_INNER : DIM_OUTER;
    extents[dim] = c->panel;
    if (c->panels == 1) return;
    counts[dim] = (lower_count){c->panel, 0};
    if (whole) extents[DIM_BATCH] *= c->panels;
}

/* The product, with the copies that are chosen. */
static beryl_status multiply(lowering *l, contraction *c) {
    const graph_node *node = c->node;
    const graph_tensor *tensors[TENSORS] = {graph_tensor_at(l->g, node->in[0]),
                                            graph_tensor_at(l->g, node->in[1]),
                                            graph_tensor_at(l->g, node->out[0])};
    static const char *const offsets[] = {"a_offset", "b_offset"};
    if (BUILD_HAS_C_TEXTS && contract_takes_tiles(c, l)) return contract_tiles(l, c);
    c->along = CLASSES, c->panels = 1;
    for (uint32_t t = 0; t < OUT; t++) c->offset[t] = tensors[t]->offset;
    beryl_status status = BERYL_OK;
    if (BUILD_HAS_C_TEXTS && !is_padded(c) && !is_turned(c)) status = contract_pack(l, c, tensors);
    const lower_count rows = c->of[CLASS_OUTER].count, columns = c->of[CLASS_INNER].count;
    tile_split split = is_padded(c) && !is_limbs(c) ? (tile_split){.n = 1} : contract_split(c, l);
    axes given[CLASSES];
    memcpy(given, c->of, sizeof given);
    if (BUILD_HAS_C_TEXTS && status == BERYL_OK) status = contract_copy(l, c);
    if (status) return status;
    if (is_turned(c)) split = contract_split(c, l);
    if (is_limbs(c))
        split = (tile_split){.n = c->parts,
                             .each = c->depth / c->parts,
                             .bytes = c->parts * rows.factor * columns.factor * sizeof(float),
                             .terms = c->of[CLASS_DEPTH].count};
    const bool whole = split.n == 1;
    tile_kernel *k = &c->k;
    ir_builder *b = tile_begin(k, l, "contract", 1);
    ir_memory places = {0};
    ir_memory in[OUT];
    for (uint32_t t = 0; t < OUT; t++) in[t] = factor(c, t);
    if (is_tabled(c))
        places = tile_scratch(k, "places", CONTRACT_PLACES,
                              c->of[CLASS_DEPTH].bound * sizeof(uint32_t), IR_U32, IR_READ);
    const ir_memory out = whole ? contract_end_declare(&c->end, k)
                                : tile_scratch(k, "parts", 0, split.bytes, IR_F32, IR_READ_WRITE),
                    sum = ir_register(b, c->type, 1);
    ir_id at[LOWER_WALK_TENSORS];
    for (uint32_t t = 0; t < OUT; t++)
        at[t] = is_packed(c, t) ? ir_u32(b, 0) : contract_number(c, offsets[t], c->offset[t]);
    contract_end_begin(&c->end, k, at + OUT);
    if (!whole) c->n_tensor = TENSORS;
    lengths by[CLASSES];
    for (uint32_t i = 0; i < CLASSES; i++) contract_measure(c, i, &by[i]);
    const uint32_t panels = BUILD_HAS_C_TEXTS ? c->panels : 1;
    const bool has_batch = c->of[CLASS_BATCH].n || panels > 1;
    if (panels > 1) by[CLASS_BATCH].count = tile_count(k, "panels", batches_of(c));
    const axes *depth = &c->of[CLASS_DEPTH];
    ir_id part = IR_NO_ID, first = IR_NO_ID, start = IR_NO_ID;
    const bool adds = !whole && contract_is_one(depth, A) && contract_is_one(depth, B);
    if (!whole) {
        const ir_id terms = by[CLASS_DEPTH].count;
        part = tile_split_open(b, &split, terms, DIM_BATCH, &first, &by[CLASS_DEPTH].count);
        for (uint32_t t = 0; t < OUT && adds; t++)
            at[t] = contract_place(c, CLASS_DEPTH, &by[CLASS_DEPTH], t, first, at[t]);
    }
    if (has_batch) {
        ir_id i = contract_turns(b, &by[CLASS_BATCH], IR_PARALLEL, DIM_BATCH);
        if (panels > 1) {
            start = tile_mul(b, tile_rem(b, i, panels), c->panel);
            for (uint32_t t = 0; t < OUT; t++)
                if (is_packed(c, t) && contract_moves(&c->of[c->along], t))
                    at[t] = ir_add(b, at[t], tile_mul(b, start, (uint32_t)depth->bound));
            i = tile_div(b, i, panels);
        }
        place_all(c, CLASS_BATCH, &by[CLASS_BATCH], i, i, at);
    }
    const ir_id near[] = {[CLASS_OUTER] = turns_along(c, CLASS_OUTER, &by[CLASS_OUTER], DIM_OUTER),
                          [CLASS_INNER] = turns_along(c, CLASS_INNER, &by[CLASS_INNER], DIM_INNER)},
                zero = ir_u32(b, 0), outer = turn_of(c, CLASS_OUTER, start, near[CLASS_OUTER]),
                inner = turn_of(c, CLASS_INNER, start, near[CLASS_INNER]);
    ir_store(b, sum, zero, ir_number(b, c->type, 1, 0));
    place_all(c, CLASS_OUTER, &by[CLASS_OUTER], outer, near[CLASS_OUTER], at);
    place_all(c, CLASS_INNER, &by[CLASS_INNER], inner, near[CLASS_INNER], at);
    if (is_limbs(c)) by[CLASS_DEPTH].count = ir_u32(b, CONTRACT_ROUNDS * split.each);
    ir_id i = contract_turns(b, &by[CLASS_DEPTH], IR_REDUCE, DIM_DEPTH), value[OUT], limb[OUT];
    if (is_limbs(c)) {
        limbs_of(c, tile_div(b, i, split.each), limb);
        for (uint32_t t = 0; t < OUT; t++)
            at[t] = ir_add(b, at[t], tile_mul(b, limb[t], c->plane[t]));
        i = tile_rem(b, i, split.each);
    }
    if (!whole && !adds) i = ir_add(b, first, i);
    for (uint32_t t = 0; t < OUT; t++) {
        const ir_id from = is_tabled(c) && !is_packed(c, t)
                               ? ir_add(b, at[t], ir_load(b, places, i, 1))
                               : contract_place(c, CLASS_DEPTH, &by[CLASS_DEPTH], t, i, at[t]);
        value[t] = ir_cast(b, c->type, ir_load(b, in[t], from, 1));
    }
    ir_store(b, sum, zero, product_and(c, value[A], value[B], ir_load(b, sum, zero, 1)));
    ir_end(b);
    const ir_id result = ir_load(b, sum, zero, 1);
    ir_id lines = by[CLASS_OUTER].count, width = by[CLASS_INNER].count;
    if (is_padded(c)) {
        lines = tile_count(k, "rows", rows);
        const ir_id above = ir_lt(b, outer, lines);
        width = tile_count(k, "columns", columns);
        ir_if(b, ir_and(b, above, ir_lt(b, inner, width)));
    }
    const bool ragged = BUILD_HAS_C_TEXTS && contract_is_ragged(c);
    if (ragged) ir_if(b, ir_lt(b, c->along == CLASS_INNER ? inner : outer, by[c->along].count));
    if (whole) {
        contract_end_store(&c->end, k, out, at + OUT, result);
    } else {
        const ir_id row = ir_add(b, ir_mul(b, part, lines), outer);
        ir_store(b, out, ir_add(b, ir_mul(b, row, width), inner), result);
    }
    if (is_padded(c) || ragged) ir_end(b);
    ir_end(b), ir_end(b);
    if (has_batch || !whole) ir_end(b);
    lower_count counts[IR_DIM_MAX] = {{0, 0}};
    uint64_t extents[IR_DIM_MAX] = {0};
    sizes_of(c, &split, counts, extents);
    if (is_limbs(c)) k->rounds = CONTRACT_ROUNDS;
    status = tile_end_marked(k, counts, extents);
    if (is_limbs(c)) memcpy(c->of, given, sizeof given);
    if (status == BERYL_OK && !whole) status = add_parts(l, c, &split);
    return status == BERYL_OK && is_limbs(c) ? mend(l, c) : status;
}

/* A contraction with its axes; t_end: the tree that ends it, or NULL. */
static beryl_status begin(const lowering *l, const graph_node *placed, const tree *t_end,
                          contraction *c) {
    const graph_node *node = t_end ? t_end->product[0] : placed;
    *c = (contraction){.node = node,
                       .type =
                           tile_sum_type(tile_element(graph_tensor_at(l->g, node->in[0])->type))};
    if (!contract_end_of(&c->end, node->out[0], t_end))
        return lower_refuse(l, placed, "such an end");
    sort_axes(l, c);
    for (uint32_t i = 0; i < CLASSES; i++)
        if (c->of[i].unfit)
            return lower_refuse(l, placed, "axes of one kind with several sizes of a run");
    if (c->of[CLASS_DEPTH].bound > UINT32_MAX)
        return lower_refuse(l, placed, "sums of more than 2^32 - 1 products");
    if (BUILD_HAS_C_TEXTS) contract_choose_copies(l, c);
    return BERYL_OK;
}

bool contract_takes_limbs(const lowering *l, const graph_node *node) {
    contraction c;
    lowering asked = *l;
    asked.error = NULL;
    return l->caps->limbs_from && begin(&asked, node, NULL, &c) == BERYL_OK && is_limbs(&c);
}

beryl_status tile_contract_product(lowering *l, const tree *end) {
    contraction c;
    const beryl_status status = begin(l, l->node, end, &c);
    return status == BERYL_OK ? multiply(l, &c) : status;
}

beryl_status tile_contract(lowering *l, const graph_node *node) {
    (void)node;
    return tile_contract_product(l, NULL);
}

/* A linear of plain rows as a contraction; false: it is none. */
static bool linear_of(const lowering *l, const graph_node *node, lower_count n, uint32_t stride,
                      contraction *c) {
    const graph_tensor *x = graph_tensor_at(l->g, node->in[0]),
                       *w = graph_tensor_at(l->g, node->in[1]);
    const uint32_t rows = w->dim[0].size, depth = w->dim[1].size;
    if (!BUILD_HAS_C_TEXTS || lower_weight(l, node->in[1]) || w->type != x->type || node->n_in > 2)
        return false;
    *c = (contraction){.node = node,
                       .end = {.sums = node->out[0]},
                       .n_tensor = TENSORS,
                       .type = tile_sum_type(tile_element(x->type))};
    for (uint32_t i = 0; i < CLASSES; i++) c->of[i] = NO_AXES;
    contract_add_axis(l, &c->of[CLASS_OUTER], n, (uint32_t[LOWER_WALK_TENSORS]){stride, 0, rows});
    contract_add_axis(l, &c->of[CLASS_INNER], (lower_count){rows, 0},
                      (uint32_t[LOWER_WALK_TENSORS]){0, depth, 1});
    contract_add_axis(l, &c->of[CLASS_DEPTH], (lower_count){depth, 0},
                      (uint32_t[LOWER_WALK_TENSORS]){1, 1, 0});
    contract_choose_copies(l, c);
    return true;
}

bool tile_contract_takes_linear(const lowering *l, const graph_node *node, lower_count n,
                                uint32_t stride) {
    contraction c;
    return linear_of(l, node, n, stride, &c) && is_limbs(&c);
}

bool tile_contract_linear(lowering *l, lower_count n, uint32_t stride, beryl_status *status) {
    contraction c;
    if (!linear_of(l, l->node, n, stride, &c)) return false;
    const bool takes =
        is_limbs(&c) ||
        (BUILD_HAS_C_TEXTS && (contract_packs_lines(&c, l) || contract_takes_tiles(&c, l)));
    if (takes) *status = multiply(l, &c);
    return takes;
}
