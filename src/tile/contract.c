/* contract.c - sums of products over any axes: of matrices in any order and number, of windows.
 *
 * The one idea: an axis that both factors have is one of a batch, an axis of one factor alone is of
 * its rows, and an axis that is summed is depth. Each such class is one loop, whose index is taken
 * apart where its axes do not lie as one; the kernel says the sum element by element, and the
 * schedule makes tiles of it (ir/pass/schedule.c): matrix units for halves, blocks of sums for all
 * else. A processor wants factors that lie along its vectors: where they do not, one of them is
 * packed so before, and where the other goes with depth stands in a table. Sums are F32 (F64 of
 * F64); integers wrap as 32 bits, or 64. */
#include "base/build.h"
#include "base/error.h"
#include "tile/contract_end.h"
#include "tile/kernel.h"
#include "tile/split.h"
#include "tile/walk.h"

#include <stdio.h>

enum { A, B, OUT, TENSORS };
enum { DIM_OUTER = 0, DIM_INNER = 1, DIM_DEPTH = 2, DIM_BATCH = 3 };
enum {
    SCRATCH_PACKED = 1,
    SCRATCH_PLACES = 2,
    VECTOR = 16,
    PACK_FROM = 1 << 18, /* products */
    SIDE_MIN = 8,        /* rows and columns of what schedules make tiles of */
    DEPTH_MIN = 64       /* of sums along vectors */
};

typedef enum class_kind { CLASS_BATCH, CLASS_OUTER, CLASS_INNER, CLASS_DEPTH, CLASSES } class_kind;

/* Axes of one class, outermost first. */
typedef struct axes {
    uint32_t n, stride[LOWER_WALK_TENSORS][GRAPH_RANK_MAX];
    lower_count size[GRAPH_RANK_MAX], count; /* count: all of them */
    uint64_t bound;
    bool unfit; /* more than one size of a run */
} axes;

#define NO_AXES ((axes){.count = {1, 0}, .bound = 1})

typedef struct contraction {
    tile_kernel k;
    const graph_node *node, *placed; /* placed: what the plan has, the node or one that joins it */
    contract_end end;
    uint32_t n_tensor; /* TENSORS, then those of the end */
    axes of[CLASSES];
    ir_type type; /* of sums */
    /* The factor that is packed, F32 [batch, depth, width], and the class along its width;
     * TENSORS: none */
    uint32_t packed, width;
    class_kind along;
    bool tabled; /* the other one's places along depth */
} contraction;

static ir_type sum_type(base_type type) {
    const ir_type own = tile_element(type);
    switch ((int)own) {
    case IR_F16:
    case IR_BF16: return IR_F32;
    case IR_I8:
    case IR_I16: return IR_I32;
    case IR_U8:
    case IR_U16: return IR_U32;
    default: return own;
    }
}

static void add_axis(const lowering *l, axes *to, lower_count size,
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
        add_axis(l, &c->of[kind], w.size[i], stride);
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

static ir_id number(contraction *c, const char *name, uint32_t x) {
    return x < 2 ? ir_u32(c->k.b, x) : tile_u32(&c->k, name, x);
}

/* Axis i of the class goes on in tensor t where the one before it ends. */
static bool goes_on(const axes *of, uint32_t t, uint32_t i) {
    return !of->size[i].extent &&
           of->stride[t][i - 1] == of->stride[t][i] * (uint32_t)of->size[i].factor;
}

/* The axes of the class lie in tensor t as one. */
static bool is_one(const axes *of, uint32_t t) {
    for (uint32_t i = 1; i < of->n; i++)
        if (!goes_on(of, t, i)) return false;
    return true;
}

/* Pages have no processor to run on. */
static bool is_packed(const contraction *c) {
    return BUILD_HAS_C_TEXTS && c->packed != TENSORS;
}

static bool is_tabled(const contraction *c) {
    return BUILD_HAS_C_TEXTS && c->tabled;
}

/* Strides, made where they are the same for all turns: along depth constants, by which schedules
 * tell what neighbours are. */
typedef struct lengths {
    ir_id stride[LOWER_WALK_TENSORS][GRAPH_RANK_MAX], size[GRAPH_RANK_MAX], count;
} lengths;

/* The number for a tensor of the end that goes along axis i as one before it does. */
static ir_id known(const axes *of, const lengths *by, uint32_t t, uint32_t i) {
    for (uint32_t u = OUT; u < t; u++)
        if (of->stride[u][i] == of->stride[t][i] && by->stride[u][i] != IR_NO_ID)
            return by->stride[u][i];
    return IR_NO_ID;
}

static void measure(contraction *c, class_kind kind, lengths *out) {
    const axes *of = &c->of[kind];
    out->count = tile_count(&c->k, name_of(c, kind, LOWER_WALK_TENSORS, 0), of->count);
    for (uint32_t i = 0; i < of->n; i++) {
        out->size[i] = tile_count(&c->k, name_of(c, kind, LOWER_WALK_TENSORS, i + 1), of->size[i]);
        for (uint32_t t = 0; t < c->n_tensor; t++) {
            const uint32_t stride = of->stride[t][i];
            if ((t >= OUT && kind == CLASS_DEPTH) || (is_packed(c) && t == c->packed) ||
                (is_tabled(c) && kind == CLASS_DEPTH))
                continue;
            const bool last = i + 1 == of->n || !goes_on(of, t, i + 1),
                       asked = last || (i && of->size[i].extent);
            out->stride[t][i] = asked ? known(of, out, t, i) : IR_NO_ID;
            if (asked && out->stride[t][i] == IR_NO_ID)
                out->stride[t][i] = kind == CLASS_DEPTH ? ir_u32(c->k.b, stride)
                                                        : number(c, name_of(c, kind, t, i), stride);
        }
    }
}

static bool moves(const axes *of, uint32_t t) {
    for (uint32_t i = 0; i < of->n; i++)
        if (of->stride[t][i]) return true;
    return false;
}

/* Where turn `index` of the class is in tensor t, from `at` on. */
static ir_id place(contraction *c, class_kind kind, const lengths *by, uint32_t t, ir_id index,
                   ir_id at) {
    const axes *of = &c->of[kind];
    ir_builder *b = c->k.b;
    if (!moves(of, t)) return at;
    if (is_packed(c) && t == c->packed) {
        const uint64_t each = kind == c->along      ? 1
                              : kind == CLASS_DEPTH ? c->width
                                                    : c->width * c->of[CLASS_DEPTH].bound;
        return ir_add(b, at, ir_mul(b, index, ir_u32(b, (uint32_t)each)));
    }
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

static ir_id product_and(contraction *c, ir_id x, ir_id y, ir_id sum) {
    ir_builder *b = c->k.b;
    return ir_type_in(c->type, IR_FLOATS) ? ir_fma(b, x, y, sum) : ir_add(b, ir_mul(b, x, y), sum);
}

static ir_id turns(ir_builder *b, const lengths *by, ir_mark_kind mark, uint32_t dim) {
    return ir_loop_marked(b, ir_u32(b, 0), by->count, ir_u32(b, 1), mark, dim);
}

/* ---- on processors --------------------------------------------------------------------------- */

/* Both factors lie along the class in whole vectors, or do not know it. */
static bool lies_along(const contraction *c, class_kind kind, const graph_tensor *const *tensors) {
    const axes *of = &c->of[kind];
    if (!of->n || of->count.extent || of->count.factor % VECTOR) return false;
    for (uint32_t t = 0; t < OUT; t++) {
        if (!moves(of, t)) continue;
        if (!is_one(of, t) || of->stride[t][of->n - 1] != 1 || tensors[t]->offset % VECTOR)
            return false;
        for (uint32_t other = 0; other < CLASSES; other++)
            for (uint32_t i = 0; i < c->of[other].n && other != (uint32_t)kind; i++)
                if (c->of[other].stride[t][i] % VECTOR) return false;
    }
    return true;
}

/* Pictures of a batch whose pixels alone lie along the class: each becomes a product of its own. */
static bool part_batch(contraction *c, const lowering *l, class_kind kind,
                       const graph_tensor *const *tensors) {
    contraction apart = *c;
    axes *rest = &apart.of[kind], *batch = &apart.of[CLASS_BATCH];
    const axes *of = &c->of[kind];
    if (of->n < 2 || batch->n) return false;
    *rest = NO_AXES;
    for (uint32_t i = 0; i < of->n; i++) {
        uint32_t stride[LOWER_WALK_TENSORS];
        for (uint32_t t = 0; t < LOWER_WALK_TENSORS; t++) stride[t] = of->stride[t][i];
        add_axis(l, i ? rest : batch, of->size[i], stride);
    }
    if (rest->unfit || !lies_along(&apart, kind, tensors)) return false;
    *c = apart;
    return true;
}

/* Chooses what is packed: the smaller factor. */
static void choose_packed(contraction *c, const lowering *l, const graph_tensor *const *tensors) {
    const uint64_t outer = c->of[CLASS_OUTER].bound, inner = c->of[CLASS_INNER].bound,
                   depth = c->of[CLASS_DEPTH].bound;
    if (!tile_is_host(l) || c->type != IR_F32 || outer < SIDE_MIN || inner < SIDE_MIN ||
        depth < VECTOR || outer * inner * depth < PACK_FROM ||
        (depth >= DEPTH_MIN && lies_along(c, CLASS_DEPTH, tensors)) ||
        lies_along(c, CLASS_INNER, tensors) || lies_along(c, CLASS_OUTER, tensors) ||
        part_batch(c, l, CLASS_OUTER, tensors) || part_batch(c, l, CLASS_INNER, tensors))
        return;
    const class_kind along = inner <= outer ? CLASS_INNER : CLASS_OUTER;
    const uint64_t width = ((along == CLASS_INNER ? inner : outer) + VECTOR - 1) / VECTOR * VECTOR;
    if (width * depth * c->of[CLASS_BATCH].bound * sizeof(float) > UINT32_MAX) return;
    c->along = along, c->width = (uint32_t)width;
    c->packed = moves(&c->of[along], A) ? A : B;
    c->tabled = !is_one(&c->of[CLASS_DEPTH], OUT - 1 - c->packed);
}

static uint64_t packed_bytes(const contraction *c) {
    return c->width * c->of[CLASS_DEPTH].bound * c->of[CLASS_BATCH].bound * sizeof(float);
}

static beryl_status pack(const contraction *from, lowering *l, const graph_tensor *tensor,
                         beryl_error *error) {
    contraction all = *from, *c = &all;
    const uint32_t t = c->packed;
    const class_kind along = c->along;
    tile_kernel *k = &c->k;
    lengths by[CLASSES];
    tile_begin(k, l, c->placed, "contract_pack", 1);
    c->packed = c->n_tensor = TENSORS, c->tabled = false;
    ir_builder *b = k->b;
    const ir_memory x = tile_read(k, "x", c->node->in[t]),
                    out = tile_scratch(k, "out", SCRATCH_PACKED, packed_bytes(c), IR_F32,
                                       IR_READ_WRITE);
    const class_kind kinds[] = {CLASS_BATCH, CLASS_DEPTH, along};
    const ir_id one = ir_u32(b, 1), zero = ir_u32(b, 0), width = ir_u32(b, c->width);
    for (uint32_t i = 0; i < 3; i++) measure(c, kinds[i], &by[kinds[i]]);
    ir_id at = number(c, "offset", tensor->offset);
    const ir_id batch = turns(b, &by[CLASS_BATCH], IR_PARALLEL, DIM_BATCH),
                depth = turns(b, &by[CLASS_DEPTH], IR_PARALLEL, DIM_DEPTH),
                row = ir_loop_marked(b, zero, width, one, IR_PARALLEL, DIM_INNER);
    at = place(c, CLASS_BATCH, &by[CLASS_BATCH], t, batch, at);
    at = place(c, CLASS_DEPTH, &by[CLASS_DEPTH], t, depth, at);
    at = place(c, along, &by[along], t, ir_min(b, row, ir_sub(b, by[along].count, one)), at);
    const ir_id line =
        ir_add(b, ir_mul(b, batch, ir_u32(b, (uint32_t)c->of[CLASS_DEPTH].bound)), depth);
    ir_store(b, out, ir_add(b, ir_mul(b, line, width), row),
             ir_cast(b, IR_F32, ir_load(b, x, at, 1)));
    ir_end(b), ir_end(b), ir_end(b);
    return tile_end_marked(k,
                           (lower_count[IR_DIM_MAX]){[DIM_INNER] = {c->width, 0},
                                                     [DIM_DEPTH] = c->of[CLASS_DEPTH].count,
                                                     [DIM_BATCH] = c->of[CLASS_BATCH].count},
                           (uint64_t[IR_DIM_MAX]){[DIM_INNER] = c->width,
                                                  [DIM_DEPTH] = c->of[CLASS_DEPTH].bound,
                                                  [DIM_BATCH] = c->of[CLASS_BATCH].bound},
                           error);
}

/* Scratch [depth]: where the factor that is not packed goes with depth. */
static beryl_status tabulate(const contraction *from, lowering *l, beryl_error *error) {
    contraction all = *from, *c = &all;
    const uint32_t t = OUT - 1 - c->packed;
    tile_kernel *k = &c->k;
    lengths by;
    tile_begin(k, l, c->placed, "contract_places", 1);
    c->packed = c->n_tensor = TENSORS, c->tabled = false;
    ir_builder *b = k->b;
    const ir_memory out =
        tile_scratch(k, "out", SCRATCH_PLACES, c->of[CLASS_DEPTH].bound * sizeof(uint32_t), IR_U32,
                     IR_READ_WRITE);
    measure(c, CLASS_DEPTH, &by);
    const ir_id depth = turns(b, &by, IR_PARALLEL, DIM_DEPTH);
    ir_store(b, out, depth, place(c, CLASS_DEPTH, &by, t, depth, ir_u32(b, 0)));
    ir_end(b);
    return tile_end_marked(k, (lower_count[IR_DIM_MAX]){[DIM_DEPTH] = c->of[CLASS_DEPTH].count},
                           (uint64_t[IR_DIM_MAX]){[DIM_DEPTH] = c->of[CLASS_DEPTH].bound}, error);
}

/* A class's loop, in whole vectors where a factor is packed along it. */
static ir_id turns_padded(contraction *c, class_kind kind, const lengths *by, uint32_t dim) {
    ir_builder *b = c->k.b;
    if (!is_packed(c) || kind != c->along) return turns(b, by, IR_PARALLEL, dim);
    const lower_count count = c->of[kind].count;
    const ir_id vector = ir_u32(b, VECTOR),
                end =
                    count.extent
                        ? ir_mul(b, ir_div(b, ir_add(b, by->count, ir_u32(b, VECTOR - 1)), vector),
                                 vector)
                        : ir_u32(b, c->width);
    return ir_loop_marked(b, ir_u32(b, 0), end, ir_u32(b, 1), IR_PARALLEL, dim);
}

/* ---- long sums in parts -------------------------------------------------------------------- */

/* Thin ones of windows have groups enough. */
static tile_split split_of(const contraction *c, const lowering *l) {
    const axes *depth = &c->of[CLASS_DEPTH];
    const bool is_line = is_one(depth, A) && is_one(depth, B);
    if (BUILD_IS_SMALL || c->type != IR_F32 || c->of[CLASS_BATCH].n ||
        (!is_line && tile_split_is_thin(c->of[CLASS_OUTER].bound, c->of[CLASS_INNER].bound)))
        return (tile_split){.n = 1};
    return tile_split_of(l, c->of[CLASS_OUTER].bound, c->of[CLASS_INNER].bound, depth->count,
                         depth->bound);
}

/* ---- factors that units take in pieces of 16 bytes ------------------------------------------ */

enum {
    PIECE = 8, /* elements of what is copied */
    PIECE_BYTES = 16,
    PADDED_MIN = 128,      /* rows, columns, depth of a product that is worth it; */
    PADDED_MIN_WIDE = 512, /* rows and columns of one of F32 */
    SCRATCH_PADDED = 3     /* and the next: keys of a, b */
};

static uint32_t padded(uint64_t n) {
    return (uint32_t)((n + PIECE - 1) / PIECE * PIECE);
}

static class_kind rows_of(const contraction *c, uint32_t t) {
    return moves(&c->of[CLASS_OUTER], t) ? CLASS_OUTER : CLASS_INNER;
}

static uint32_t element_bytes(const lowering *l, const contraction *c, uint32_t t) {
    return ir_type_bytes(tile_element(graph_tensor_at(l->g, c->node->in[t])->type));
}

/* Whether every line of the factor begins at a whole piece and has nothing but such. */
static bool has_pieces(const lowering *l, const contraction *c, uint32_t t) {
    const axes *of[3] = {&c->of[rows_of(c, t)], &c->of[CLASS_DEPTH], &c->of[CLASS_BATCH]};
    uint32_t rest = graph_tensor_at(l->g, c->node->in[t])->offset;
    for (uint32_t i = 0; i < 3; i++)
        if (of[i]->n)
            rest |=
                of[i]->stride[t][0] == 1 ? (uint32_t)of[i]->size[0].factor : of[i]->stride[t][0];
    return rest % (PIECE_BYTES / element_bytes(l, c, t)) == 0;
}

/* Is it worth a copy of both factors? Matrix units read halves without pieces a quarter as fast;
 * F32 are loaded one by one, which takes a fifth more. */
static bool wants_padding(const lowering *l, const contraction *c) {
    const bool halves = element_bytes(l, c, A) == 2;
    const uint32_t side = halves ? PADDED_MIN : PADDED_MIN_WIDE,
                   least[CLASSES] = {0, side, side, halves ? PADDED_MIN : PIECE};
    if (!BUILD_HAS_C_TEXTS || c->type != IR_F32 ||
        (halves ? !l->caps->multiplies_memory : tile_serial(l)))
        return false;
    for (uint32_t i = 0; i < CLASSES; i++) {
        const axes *of = &c->of[i];
        if (of->n > 1 || of->count.extent || of->count.factor < least[i]) return false;
    }
    const uint64_t outer = c->of[CLASS_OUTER].bound, inner = c->of[CLASS_INNER].bound,
                   most = (uint64_t)padded(outer > inner ? outer : inner) *
                          padded(c->of[CLASS_DEPTH].bound) * c->of[CLASS_BATCH].bound;
    return most * element_bytes(l, c, A) <= l->caps->binding_max &&
           (!has_pieces(l, c, A) || !has_pieces(l, c, B)) && (halves || split_of(c, l).n == 1);
}

/* A copy of factor t in the scratch, [batch, line, width], with zeros beyond; its strides are those
 * of the factor from then on. */
static beryl_status pad(lowering *l, contraction *c, uint32_t t, uint64_t *bytes,
                        beryl_error *error) {
    axes *row = &c->of[rows_of(c, t)], *depth = &c->of[CLASS_DEPTH], *batch = &c->of[CLASS_BATCH];
    const bool across = row->stride[t][0] == 1, batched = moves(batch, t);
    axes *line = across ? depth : row, *in_line = across ? row : depth;
    const uint32_t lines = (uint32_t)line->count.factor, width = (uint32_t)in_line->count.factor,
                   all_lines = padded(lines), all_width = padded(width),
                   n_batch = batched ? (uint32_t)batch->count.factor : 1;
    const graph_tensor *from = graph_tensor_at(l->g, c->node->in[t]);
    const ir_type type = tile_element(from->type);
    *bytes = (uint64_t)n_batch * all_lines * all_width * ir_type_bytes(type);
    tile_kernel *k = &c->k;
    tile_begin(k, l, c->placed, "contract_pad", 1);
    ir_builder *b = k->b;
    const ir_memory x = tile_read(k, "x", c->node->in[t]),
                    out = tile_scratch(k, "out", SCRATCH_PADDED + t, *bytes, type, IR_READ_WRITE);
    const ir_id zero = ir_u32(b, 0), one = ir_u32(b, 1), n_line = tile_u32(k, "lines", lines),
                n_width = tile_u32(k, "width", width),
                to_line = tile_u32(k, "all_lines", all_lines),
                to_width = tile_u32(k, "all_width", all_width);
    ir_id at = number(c, "offset", from->offset), to = zero;
    if (batched) {
        const ir_id i = ir_loop_marked(b, zero, tile_u32(k, "batch", n_batch), one, IR_PARALLEL, 2);
        at = ir_add(b, at, ir_mul(b, i, number(c, "batch_stride", batch->stride[t][0])));
        to = ir_mul(b, i, ir_mul(b, to_line, to_width));
    }
    const ir_id i = ir_loop_marked(b, zero, to_line, one, IR_PARALLEL, 0),
                j = ir_loop_marked(b, zero, to_width, one, IR_PARALLEL, 1),
                inside = ir_and(b, ir_lt(b, i, n_line), ir_lt(b, j, n_width));
    at = ir_add(b, at,
                ir_mul(b, ir_min(b, i, ir_sub(b, n_line, one)),
                       number(c, "line_stride", line->stride[t][0])));
    at = ir_add(b, at,
                ir_mul(b, ir_min(b, j, ir_sub(b, n_width, one)),
                       number(c, "stride", in_line->stride[t][0])));
    ir_store(b, out, ir_add(b, to, ir_add(b, ir_mul(b, i, to_width), j)),
             ir_select(b, inside, ir_load(b, x, at, 1), ir_number(b, type, 1, 0)));
    ir_end(b), ir_end(b);
    if (batched) ir_end(b);
    if (batched) batch->stride[t][0] = all_lines * all_width;
    line->stride[t][0] = all_width, in_line->stride[t][0] = 1;
    return tile_end_marked(
        k, (lower_count[IR_DIM_MAX]){{all_lines, 0}, {all_width, 0}, {n_batch, 0}},
        (uint64_t[IR_DIM_MAX]){all_lines, all_width, batched ? n_batch : 0}, error);
}

static void round_up(axes *of) {
    of->bound = of->count.factor = of->size[0].factor = padded(of->count.factor);
}

/* ---- factors of windows, whose channels come to lie last ------------------------------------- */

enum {
    CHANNELS_SIDE_MIN = 64,
    CHANNELS_DEPTH_MIN = 64,
    TURN = 64, /* sides of what a workgroup turns */
    TURN_LINE = TURN + 2,
    TURN_LANES = 256,
    TURN_ROUNDS = TURN * TURN / TURN_LANES
};

/* Memory from `first` on, [outer, n, apart], that becomes [outer, apart, n]. */
typedef struct channels {
    uint32_t first, outer, n, apart;
    class_kind kind; /* of the axis of n */
    uint32_t axis;
} channels;

/* How the factor's axis would be its channels: what lies closer is in one line of a channel, what
 * lies further has all of them. */
static bool channels_along(const lowering *l, const contraction *c, uint32_t t, class_kind kind,
                           uint32_t axis, channels *out) {
    const graph_tensor *x = graph_tensor_at(l->g, c->node->in[t]),
                       *base = graph_tensor_at(l->g, graph_base_of(l->g, c->node->in[t]));
    const int64_t apart = (int32_t)c->of[kind].stride[t][axis],
                  n = (int64_t)c->of[kind].size[axis].factor, whole = apart * n;
    if (apart <= 0 || n % PIECE || whole > INT32_MAX || x->offset / apart % n) return false;
    int64_t low = x->offset % apart, high = low, last = 0;
    for (uint32_t k = 0; k < CLASSES; k++)
        for (uint32_t i = 0; i < c->of[k].n; i++) {
            const int64_t stride = (int32_t)c->of[k].stride[t][i],
                          way = stride * ((int64_t)c->of[k].size[i].factor - 1);
            if (k == (uint32_t)kind && i == axis) continue;
            if (stride > -apart && stride < apart) {
                if (stride < 0) low += way;
                else high += way;
            } else if (stride > 0 && stride % whole == 0) last += way / whole;
            else return false;
        }
    *out = (channels){.first = (uint32_t)(x->offset / whole * whole),
                      .outer = (uint32_t)last + 1,
                      .n = (uint32_t)n,
                      .apart = (uint32_t)apart,
                      .kind = kind,
                      .axis = axis};
    return low >= 0 && high < apart &&
           out->first + (uint64_t)(last + 1) * (uint64_t)whole <= graph_element_bound(base);
}

/* The axis of the class that would be channels with the shortest lines. */
static bool channels_in(const lowering *l, const contraction *c, uint32_t t, class_kind kind,
                        channels *out) {
    bool found = false;
    channels one;
    for (uint32_t i = 0; i < c->of[kind].n; i++)
        if (channels_along(l, c, t, kind, i, &one) && (!found || one.apart < out->apart))
            *out = one, found = true;
    return found;
}

/* Every element of the factor is read once for each row of the other one: no windows overlap. */
static bool is_plain(const contraction *c, uint32_t t, const channels *as) {
    const uint64_t seen = c->of[rows_of(c, t)].bound * c->of[CLASS_DEPTH].bound;
    return seen == (uint64_t)as->outer * as->n * as->apart;
}

/* Both factors' channels: an axis of depth that is that of both, or one of the rows. */
static bool channels_of(const lowering *l, const contraction *c, channels out[OUT]) {
    channels rows[OUT], depth[OUT];
    bool in_rows[OUT], in_depth[OUT];
    if (!BUILD_HAS_C_TEXTS || !l->caps->multiplies_memory || c->type != IR_F32 ||
        ir_type_bytes(tile_element(graph_tensor_at(l->g, c->node->in[A])->type)) != 2 ||
        c->of[CLASS_BATCH].n || c->of[CLASS_OUTER].bound < CHANNELS_SIDE_MIN ||
        c->of[CLASS_INNER].bound < CHANNELS_SIDE_MIN ||
        c->of[CLASS_DEPTH].bound < CHANNELS_DEPTH_MIN ||
        (c->of[CLASS_OUTER].n < 2 && c->of[CLASS_INNER].n < 2 && c->of[CLASS_DEPTH].n < 2))
        return false;
    for (uint32_t i = 0; i < CLASSES; i++)
        if (c->of[i].count.extent) return false;
    for (uint32_t t = 0; t < OUT; t++) {
        in_rows[t] = channels_in(l, c, t, rows_of(c, t), &rows[t]);
        in_depth[t] = channels_in(l, c, t, CLASS_DEPTH, &depth[t]);
    }
    /* windows are of the factor with more axes: its channels lie next to them */
    const uint32_t t = c->of[rows_of(c, A)].n > c->of[rows_of(c, B)].n ? A : B, other = OUT - 1 - t;
    if (in_depth[t] && (!in_rows[t] || depth[t].apart < rows[t].apart)) {
        out[t] = depth[t];
        if (depth[t].apart > 1 && is_plain(c, t, &depth[t])) return false; /* not worth a copy */
        return channels_along(l, c, other, CLASS_DEPTH, depth[t].axis, &out[other]);
    }
    if (!in_rows[t]) return false;
    const bool lies = in_depth[other] && depth[other].apart == 1; /* in pieces already */
    out[t] = rows[t];
    out[other] = in_rows[other] && !lies ? rows[other] : depth[other];
    return in_rows[other] || in_depth[other];
}

/* The axis becomes the last one of its class. */
static void put_last(axes *of, uint32_t axis) {
    for (uint32_t i = axis; i + 1 < of->n; i++) {
        const lower_count size = of->size[i];
        of->size[i] = of->size[i + 1], of->size[i + 1] = size;
        for (uint32_t t = 0; t < LOWER_WALK_TENSORS; t++) {
            const uint32_t stride = of->stride[t][i];
            of->stride[t][i] = of->stride[t][i + 1], of->stride[t][i + 1] = stride;
        }
    }
}

/* A copy of factor t in the scratch with its channels last; its strides and *offset are those of
 * the copy from then on. */
static beryl_status turn(lowering *l, contraction *c, uint32_t t, const channels *as,
                         uint32_t *offset, uint64_t *bytes, beryl_error *error) {
    const graph_tensor *from = graph_tensor_at(l->g, c->node->in[t]);
    const ir_type type = tile_element(from->type);
    const uint32_t whole = as->n * as->apart, tiles = (as->n + TURN - 1) / TURN,
                   tiers = (as->apart + TURN - 1) / TURN;
    *bytes = (uint64_t)as->outer * whole * 2;
    *offset = from->offset % as->apart * as->n;
    tile_kernel *k = &c->k;
    tile_begin(k, l, c->placed, "contract_turn", TURN_LANES);
    ir_builder *b = k->b;
    const ir_memory x = tile_read(k, "x", c->node->in[t]),
                    out = tile_scratch(k, "out", SCRATCH_PADDED + t, *bytes, type, IR_READ_WRITE),
                    tile = ir_workgroup(b, type, TURN * TURN_LINE);
    const ir_id group = tile_group(k), lane = ir_local(b, 0), in_line = tile_rem(k, lane, TURN),
                line = tile_div(k, lane, TURN), n = ir_u32(b, as->n), apart = ir_u32(b, as->apart),
                channel = tile_mul(k, tile_rem(k, group, tiles), TURN),
                tier = tile_div(k, group, tiles),
                place = tile_mul(k, tile_rem(k, tier, tiers), TURN), o = tile_div(k, tier, tiers),
                is_whole = ir_lt(b, o, ir_u32(b, as->outer)), start = tile_mul(k, o, whole),
                near =
                    ir_fma(b, ir_min(b, o, ir_u32(b, as->outer - 1)), ir_u32(b, whole),
                           ir_add(b, number(c, "first", as->first),
                                  ir_min(b, ir_add(b, place, in_line), ir_u32(b, as->apart - 1))));
    ir_id read[TURN_ROUNDS];
    for (uint32_t i = 0; i < TURN_ROUNDS; i++) { /* all before one is waited for */
        const ir_id j = tile_add(k, line, i * TURN_LANES / TURN),
                    from_channel = ir_min(b, ir_add(b, channel, j), ir_u32(b, as->n - 1));
        read[i] = ir_load(b, x, ir_fma(b, from_channel, apart, near), 1);
    }
    for (uint32_t i = 0; i < TURN_ROUNDS; i++)
        ir_store(
            b, tile,
            ir_add(b, tile_mul(k, in_line, TURN_LINE), tile_add(k, line, i * TURN_LANES / TURN)),
            read[i]);
    ir_barrier(b);
    for (uint32_t i = 0; i < TURN_ROUNDS; i++) {
        const ir_id j = tile_add(k, line, i * TURN_LANES / TURN), to_place = ir_add(b, place, j),
                    to_channel = ir_add(b, channel, in_line);
        ir_if(b,
              ir_and(b, is_whole, ir_and(b, ir_lt(b, to_channel, n), ir_lt(b, to_place, apart))));
        ir_store(b, out, ir_add(b, start, ir_fma(b, to_place, n, to_channel)),
                 ir_load(b, tile, ir_add(b, tile_mul(k, j, TURN_LINE), in_line), 1));
        ir_end(b);
    }
    for (uint32_t kind = 0; kind < CLASSES; kind++)
        for (uint32_t a = 0; a < c->of[kind].n; a++) {
            uint32_t *stride = &c->of[kind].stride[t][a];
            const int64_t was = (int32_t)*stride;
            if (kind == (uint32_t)as->kind && a == as->axis) *stride = 1;
            else if (was > -(int64_t)as->apart && was < as->apart) *stride *= as->n;
        }
    return tile_end(k, (lower_count){(uint64_t)as->outer * tiles * tiers, 0}, 1, error);
}

/* ---- parts added up -------------------------------------------------------------------------- */

/* Adds the parts [part, outer, inner]. */
static beryl_status add_parts(lowering *l, contraction *c, const tile_split *split,
                              beryl_error *error) {
    tile_kernel *k = &c->k;
    lengths outer, inner;
    ir_id to[LOWER_WALK_TENSORS];
    tile_begin(k, l, c->placed, "contract_sum", 1);
    ir_builder *b = k->b;
    const ir_memory parts = tile_scratch(k, "parts", 0, split->bytes, IR_F32, IR_READ),
                    out = contract_end_declare(&c->end, k);
    contract_end_begin(&c->end, k, to + OUT);
    c->n_tensor = TENSORS + c->end.n;
    measure(c, CLASS_OUTER, &outer);
    measure(c, CLASS_INNER, &inner);
    const ir_id i = turns(b, &outer, IR_PARALLEL, DIM_OUTER),
                j = turns(b, &inner, IR_PARALLEL, DIM_INNER),
                at = ir_add(b, ir_mul(b, i, inner.count), j),
                terms = tile_count(k, "terms", split->terms),
                sum =
                    tile_split_sum(k, split, terms, parts, at, ir_mul(b, outer.count, inner.count));
    for (uint32_t t = OUT; t < c->n_tensor; t++) {
        to[t] = place(c, CLASS_OUTER, &outer, t, i, to[t]);
        to[t] = place(c, CLASS_INNER, &inner, t, j, to[t]);
    }
    contract_end_store(&c->end, k, out, to + OUT, sum);
    ir_end(b), ir_end(b);
    return tile_end_marked(
        k, (lower_count[IR_DIM_MAX]){c->of[CLASS_OUTER].count, c->of[CLASS_INNER].count},
        (uint64_t[IR_DIM_MAX]){c->of[CLASS_OUTER].bound, c->of[CLASS_INNER].bound}, error);
}

beryl_status tile_contract_product(lowering *l, const graph_node *placed, const tree *end,
                                   beryl_error *error) {
    const graph_node *node = end ? end->product[0] : placed;
    const graph_tensor *tensors[TENSORS] = {graph_tensor_at(l->g, node->in[0]),
                                            graph_tensor_at(l->g, node->in[1]),
                                            graph_tensor_at(l->g, node->out[0])};
    static const char *const offsets[] = {"a_offset", "b_offset"};
    contraction all = {.node = node, .placed = placed, .type = sum_type(tensors[A]->type)},
                *c = &all;
    if (!contract_end_of(&c->end, node->out[0], end))
        return lower_refuse(l, placed, "such an end", error);
    sort_axes(l, c);
    for (uint32_t i = 0; i < CLASSES; i++)
        if (c->of[i].unfit)
            return lower_refuse(l, placed, "axes of one kind with several sizes of a run", error);
    if (c->of[CLASS_DEPTH].bound > UINT32_MAX)
        return lower_refuse(l, placed, "sums of more than 2^32 - 1 products", error);
    channels as[OUT];
    const bool pads = wants_padding(l, c), turns_both = !pads && channels_of(l, c, as);
    c->packed = TENSORS;
    if (!pads && !turns_both) choose_packed(c, l, tensors);
    beryl_status status = is_packed(c) ? pack(c, l, tensors[c->packed], error) : BERYL_OK;
    if (status == BERYL_OK && is_tabled(c)) status = tabulate(c, l, error);
    const lower_count rows = c->of[CLASS_OUTER].count, columns = c->of[CLASS_INNER].count;
    uint64_t bytes[OUT];
    bool copied[OUT] = {pads, pads};
    uint32_t offset[OUT] = {tensors[A]->offset, tensors[B]->offset};
    for (uint32_t t = 0; t < OUT && status == BERYL_OK; t++) {
        if (pads) offset[t] = 0, status = pad(l, c, t, &bytes[t], error);
        copied[t] |= turns_both && as[t].apart > 1;
        if (!pads && copied[t]) status = turn(l, c, t, &as[t], &offset[t], &bytes[t], error);
    }
    if (status) return status;
    for (uint32_t t = 0; t < OUT && turns_both; t++)
        if (!t || as[t].kind != as[A].kind) put_last(&c->of[as[t].kind], as[t].axis);
    for (uint32_t i = CLASS_OUTER; i < CLASSES && pads; i++) round_up(&c->of[i]);
    const tile_split split = pads ? (tile_split){.n = 1} : split_of(c, l);
    const bool whole = split.n == 1;
    tile_kernel *k = &c->k;
    tile_begin(k, l, placed, "contract", 1);
    ir_builder *b = k->b;
    ir_memory in[OUT], places = {0};
    static const char *const names[] = {"a", "b"};
    for (uint32_t t = 0; t < OUT; t++)
        in[t] = is_packed(c) && t == c->packed
                    ? tile_scratch(k, names[t], SCRATCH_PACKED, packed_bytes(c), IR_F32, IR_READ)
                : copied[t] ? tile_scratch(k, names[t], SCRATCH_PADDED + t, bytes[t],
                                           tile_element(tensors[t]->type), IR_READ)
                            : tile_read(k, names[t], node->in[t]);
    if (is_tabled(c))
        places = tile_scratch(k, "places", SCRATCH_PLACES,
                              c->of[CLASS_DEPTH].bound * sizeof(uint32_t), IR_U32, IR_READ);
    const ir_memory out = whole ? contract_end_declare(&c->end, k)
                                : tile_scratch(k, "parts", 0, split.bytes, IR_F32, IR_READ_WRITE),
                    sum = ir_register(b, c->type, 1);
    ir_id at[LOWER_WALK_TENSORS];
    for (uint32_t t = 0; t < OUT; t++)
        at[t] = is_packed(c) && t == c->packed ? ir_u32(b, 0) : number(c, offsets[t], offset[t]);
    contract_end_begin(&c->end, k, at + OUT);
    if (!whole) c->n_tensor = TENSORS;
    lengths by[CLASSES];
    for (uint32_t i = 0; i < CLASSES; i++) measure(c, i, &by[i]);
    const bool has_batch = c->of[CLASS_BATCH].n;
    const axes *depth = &c->of[CLASS_DEPTH];
    ir_id part = IR_NO_ID, first = IR_NO_ID;
    const bool adds = !whole && is_one(depth, A) && is_one(depth, B);
    if (!whole) {
        const ir_id terms = by[CLASS_DEPTH].count;
        part = tile_split_open(k, &split, terms, DIM_BATCH, &first, &by[CLASS_DEPTH].count);
        for (uint32_t t = 0; t < OUT && adds; t++)
            at[t] = place(c, CLASS_DEPTH, &by[CLASS_DEPTH], t, first, at[t]);
    }
    if (has_batch) {
        const ir_id i = turns(b, &by[CLASS_BATCH], IR_PARALLEL, DIM_BATCH);
        for (uint32_t t = 0; t < c->n_tensor; t++)
            at[t] = place(c, CLASS_BATCH, &by[CLASS_BATCH], t, i, at[t]);
    }
    const ir_id outer = turns_padded(c, CLASS_OUTER, &by[CLASS_OUTER], DIM_OUTER),
                inner = turns_padded(c, CLASS_INNER, &by[CLASS_INNER], DIM_INNER),
                zero = ir_u32(b, 0);
    ir_store(b, sum, zero, ir_number(b, c->type, 1, 0));
    for (uint32_t t = 0; t < c->n_tensor; t++) {
        at[t] = place(c, CLASS_OUTER, &by[CLASS_OUTER], t, outer, at[t]);
        at[t] = place(c, CLASS_INNER, &by[CLASS_INNER], t, inner, at[t]);
    }
    ir_id i = turns(b, &by[CLASS_DEPTH], IR_REDUCE, DIM_DEPTH), value[OUT];
    if (!whole && !adds) i = ir_add(b, first, i);
    for (uint32_t t = 0; t < OUT; t++) {
        const ir_id from = is_tabled(c) && t != c->packed
                               ? ir_add(b, at[t], ir_load(b, places, i, 1))
                               : place(c, CLASS_DEPTH, &by[CLASS_DEPTH], t, i, at[t]);
        value[t] = ir_cast(b, c->type, ir_load(b, in[t], from, 1));
    }
    ir_store(b, sum, zero, product_and(c, value[A], value[B], ir_load(b, sum, zero, 1)));
    ir_end(b);
    const ir_id result = ir_load(b, sum, zero, 1);
    if (whole) {
        if (pads)
            ir_if(b, ir_and(b, ir_lt(b, outer, tile_count(k, "rows", rows)),
                            ir_lt(b, inner, tile_count(k, "columns", columns))));
        const lower_count along = c->of[c->along].count;
        const bool ragged = is_packed(c) && (along.extent || along.factor != c->width);
        if (ragged) ir_if(b, ir_lt(b, c->along == CLASS_INNER ? inner : outer, by[c->along].count));
        contract_end_store(&c->end, k, out, at + OUT, result);
        if (pads || ragged) ir_end(b);
    } else {
        const ir_id row = ir_add(b, ir_mul(b, part, by[CLASS_OUTER].count), outer);
        ir_store(b, out, ir_add(b, ir_mul(b, row, by[CLASS_INNER].count), inner), result);
    }
    ir_end(b), ir_end(b);
    if (has_batch || !whole) ir_end(b);
    const lower_count counts[IR_DIM_MAX] = {[DIM_OUTER] = c->of[CLASS_OUTER].count,
                                            [DIM_INNER] = c->of[CLASS_INNER].count,
                                            [DIM_BATCH] = whole ? c->of[CLASS_BATCH].count
                                                                : (lower_count){split.n, 0}};
    uint64_t extents[IR_DIM_MAX] = {[DIM_OUTER] = c->of[CLASS_OUTER].bound,
                                    [DIM_INNER] = c->of[CLASS_INNER].bound,
                                    [DIM_DEPTH] = whole ? depth->bound : split.each,
                                    [DIM_BATCH] = whole ? c->of[CLASS_BATCH].bound : split.n};
    if (is_packed(c)) extents[c->along == CLASS_INNER ? DIM_INNER : DIM_OUTER] = c->width;
    status = tile_end_marked(k, counts, extents, error);
    return status == BERYL_OK && !whole ? add_parts(l, c, &split, error) : status;
}

beryl_status tile_contract(lowering *l, const graph_node *node, beryl_error *error) {
    return tile_contract_product(l, node, NULL, error);
}
