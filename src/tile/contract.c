/* contract.c - sums of products over any axes: of matrices in any order and number, of windows.
 *
 * The one idea: an axis that both factors have is one of a batch, an axis of one factor alone is of
 * its rows, and an axis that is summed is depth. Each such class is one loop, whose index is taken
 * apart where its axes do not lie as one; the kernel says the sum element by element, and the
 * schedule makes tiles of it (ir/pass/schedule.c): matrix units for halves, blocks of sums for all
 * else. Sums are F32 (F64 of F64); integers wrap as 32 bits, or 64. */
#include "base/build.h"
#include "base/error.h"
#include "tile/kernel.h"
#include "tile/split.h"
#include "tile/walk.h"

#include <stdio.h>

enum { A, B, OUT, TENSORS };
enum { DIM_OUTER = 0, DIM_INNER = 1, DIM_DEPTH = 2, DIM_BATCH = 3 };

typedef enum class_kind { CLASS_BATCH, CLASS_OUTER, CLASS_INNER, CLASS_DEPTH, CLASSES } class_kind;

/* Axes of one class, outermost first. */
typedef struct axes {
    uint32_t n, stride[TENSORS][GRAPH_RANK_MAX];
    lower_count size[GRAPH_RANK_MAX], count; /* count: all of them */
    uint64_t bound;
    bool unfit; /* more than one size of a run */
} axes;

typedef struct contraction {
    tile_kernel k;
    const graph_node *node;
    axes of[CLASSES];
    ir_type type; /* of sums */
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

static void add_axis(const lowering *l, axes *to, const lower_walk *w, uint32_t i) {
    const lower_count size = w->size[i];
    for (uint32_t t = 0; t < TENSORS; t++) to->stride[t][to->n] = w->stride[t][i];
    to->size[to->n++] = size;
    to->unfit |= size.extent && to->count.extent;
    to->count.factor *= size.factor;
    to->bound *= size.factor * (size.extent ? l->g->extents[size.extent].bound : 1);
    if (size.extent) to->count.extent = size.extent;
}

/* The axes by class; what lies last in the result is inner. */
static void sort_axes(const lowering *l, contraction *c) {
    const graph_tensor *in[2], *out = graph_tensor_at(l->g, c->node->out[0]);
    graph_tensor whole = *out; /* the shape that is summed over */
    for (uint32_t t = 0; t < 2; t++) {
        in[t] = graph_tensor_at(l->g, c->node->in[t]);
        for (uint32_t i = 0; i < in[t]->rank; i++) {
            graph_dim *to = &whole.dim[i + out->rank - in[t]->rank];
            if (in[t]->dim[i].size > 1 || in[t]->dim[i].extent) *to = in[t]->dim[i];
        }
    }
    const lower_walk w =
        lower_walk_from(&whole, (const graph_tensor *const[]){in[A], in[B], out}, TENSORS, 0);
    class_kind left = CLASS_OUTER, right = CLASS_INNER;
    for (uint32_t i = 0; i < w.n; i++)
        if (w.stride[OUT][i] && !(w.stride[A][i] && w.stride[B][i])) {
            left = w.stride[B][i] ? CLASS_OUTER : CLASS_INNER;
            right = w.stride[B][i] ? CLASS_INNER : CLASS_OUTER;
        }
    for (uint32_t i = 0; i < CLASSES; i++) c->of[i] = (axes){.count = {1, 0}, .bound = 1};
    for (uint32_t i = 0; i < w.n; i++) {
        const class_kind kind = !w.stride[OUT][i]                  ? CLASS_DEPTH
                                : w.stride[A][i] && w.stride[B][i] ? CLASS_BATCH
                                : w.stride[B][i]                   ? right
                                                                   : left;
        add_axis(l, &c->of[kind], &w, i);
    }
}

/* "inner_b", "depth_a_1" */
static const char *name_of(contraction *c, class_kind kind, uint32_t t, uint32_t i) {
    static const char *const classes[] = {"batch", "outer", "inner", "depth"}, *const tensors[] = {
                                                                                   "a", "b", "out",
                                                                                   "size"};
    char text[32];
    int n = snprintf(text, sizeof text, "%s_%s", classes[kind], tensors[t]);
    if (i) n += snprintf(text + n, sizeof text - (size_t)n, "_%u", i);
    const char *kept = base_arena_text(&c->k.arena, text, (size_t)n);
    return kept ? kept : "";
}

static ir_id number(contraction *c, const char *name, uint32_t x) {
    return x < 2 ? ir_u32(c->k.b, x) : tile_u32(&c->k, name, x);
}

/* The axes of the class lie in tensor t as one. */
static bool is_one(const axes *of, uint32_t t) {
    for (uint32_t i = 0; i + 1 < of->n; i++)
        if (of->size[i + 1].extent ||
            of->stride[t][i] != of->stride[t][i + 1] * (uint32_t)of->size[i + 1].factor)
            return false;
    return true;
}

/* Strides, made where they are the same for all turns: along depth constants, by which schedules
 * tell what neighbours are. */
typedef struct lengths {
    ir_id stride[TENSORS][GRAPH_RANK_MAX], size[GRAPH_RANK_MAX], count;
} lengths;

static void measure(contraction *c, class_kind kind, lengths *out) {
    const axes *of = &c->of[kind];
    out->count = tile_count(&c->k, name_of(c, kind, TENSORS, 0), of->count);
    for (uint32_t i = 0; i < of->n; i++) {
        out->size[i] = tile_count(&c->k, name_of(c, kind, TENSORS, i + 1), of->size[i]);
        for (uint32_t t = 0; t < TENSORS; t++) {
            const uint32_t stride = of->stride[t][i];
            if (t == OUT && kind == CLASS_DEPTH) continue;
            const bool asked = i + 1 == of->n || !is_one(of, t);
            out->stride[t][i] = !asked                ? IR_NO_ID
                                : kind == CLASS_DEPTH ? ir_u32(c->k.b, stride)
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
    if (is_one(of, t)) return ir_add(b, at, ir_mul(b, index, by->stride[t][of->n - 1]));
    for (uint32_t i = of->n; i-- > 0;) {
        const ir_id part = i ? ir_mod(b, index, by->size[i]) : index;
        if (of->stride[t][i]) at = ir_add(b, at, ir_mul(b, part, by->stride[t][i]));
        if (i) index = ir_div(b, index, by->size[i]);
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

/* What is summed: of axes that lie as one in both factors, in parts. */
static tile_split split_of(const contraction *c, const lowering *l) {
    const axes *depth = &c->of[CLASS_DEPTH];
    if (BUILD_IS_SMALL || c->type != IR_F32 || c->of[CLASS_BATCH].n || !is_one(depth, A) ||
        !is_one(depth, B))
        return (tile_split){.n = 1};
    return tile_split_of(l, c->of[CLASS_OUTER].bound, c->of[CLASS_INNER].bound, depth->count,
                         depth->bound);
}

/* Adds the parts [part, outer, inner]. */
static beryl_status add_parts(lowering *l, contraction *c, const tile_split *split,
                              beryl_error *error) {
    const graph_tensor *t = graph_tensor_at(l->g, c->node->out[0]);
    tile_kernel *k = &c->k;
    lengths outer, inner;
    tile_begin(k, l, c->node, "contract_sum", 1);
    ir_builder *b = k->b;
    const ir_memory parts = tile_scratch(k, "parts", 0, split->bytes, IR_F32, IR_READ),
                    out = tile_write(k, "out", c->node->out[0]);
    ir_id to = number(c, "out_offset", t->offset);
    measure(c, CLASS_OUTER, &outer);
    measure(c, CLASS_INNER, &inner);
    const ir_id i = turns(b, &outer, IR_PARALLEL, DIM_OUTER),
                j = turns(b, &inner, IR_PARALLEL, DIM_INNER),
                at = ir_add(b, ir_mul(b, i, inner.count), j),
                terms = tile_count(k, "terms", split->terms),
                sum =
                    tile_split_sum(k, split, terms, parts, at, ir_mul(b, outer.count, inner.count));
    to = place(c, CLASS_OUTER, &outer, OUT, i, to);
    to = place(c, CLASS_INNER, &inner, OUT, j, to);
    ir_store(b, out, to, ir_cast(b, tile_element(t->type), sum));
    ir_end(b), ir_end(b);
    return tile_end_marked(
        k, (lower_count[IR_DIM_MAX]){c->of[CLASS_OUTER].count, c->of[CLASS_INNER].count},
        (uint64_t[IR_DIM_MAX]){c->of[CLASS_OUTER].bound, c->of[CLASS_INNER].bound}, error);
}

beryl_status tile_contract(lowering *l, const graph_node *node, beryl_error *error) {
    const graph_tensor *tensors[TENSORS] = {graph_tensor_at(l->g, node->in[0]),
                                            graph_tensor_at(l->g, node->in[1]),
                                            graph_tensor_at(l->g, node->out[0])};
    static const char *const offsets[] = {"a_offset", "b_offset", "out_offset"};
    contraction all = {.node = node, .type = sum_type(tensors[A]->type)}, *c = &all;
    sort_axes(l, c);
    for (uint32_t i = 0; i < CLASSES; i++)
        if (c->of[i].unfit)
            return lower_refuse(l, node, "axes of one kind with several sizes of a run", error);
    const tile_split split = split_of(c, l);
    const bool whole = split.n == 1;
    tile_kernel *k = &c->k;
    tile_begin(k, l, node, "contract", 1);
    ir_builder *b = k->b;
    const ir_memory a = tile_read(k, "a", node->in[0]), other = tile_read(k, "b", node->in[1]),
                    out = whole ? tile_write(k, "out", node->out[0])
                                : tile_scratch(k, "parts", 0, split.bytes, IR_F32, IR_READ_WRITE),
                    sum = ir_register(b, c->type, 1);
    ir_id at[TENSORS];
    for (uint32_t t = 0; t < TENSORS; t++) at[t] = number(c, offsets[t], tensors[t]->offset);
    lengths by[CLASSES];
    for (uint32_t i = 0; i < CLASSES; i++) measure(c, i, &by[i]);
    const bool has_batch = c->of[CLASS_BATCH].n;
    const axes *depth = &c->of[CLASS_DEPTH];
    ir_id part = IR_NO_ID, first;
    if (!whole) {
        const ir_id terms = by[CLASS_DEPTH].count;
        part = tile_split_open(k, &split, terms, DIM_BATCH, &first, &by[CLASS_DEPTH].count);
        for (uint32_t t = 0; t < OUT; t++)
            at[t] = place(c, CLASS_DEPTH, &by[CLASS_DEPTH], t, first, at[t]);
    }
    if (has_batch) {
        const ir_id i = turns(b, &by[CLASS_BATCH], IR_PARALLEL, DIM_BATCH);
        for (uint32_t t = 0; t < TENSORS; t++)
            at[t] = place(c, CLASS_BATCH, &by[CLASS_BATCH], t, i, at[t]);
    }
    const ir_id outer = turns(b, &by[CLASS_OUTER], IR_PARALLEL, DIM_OUTER),
                inner = turns(b, &by[CLASS_INNER], IR_PARALLEL, DIM_INNER), zero = ir_u32(b, 0);
    ir_store(b, sum, zero, ir_number(b, c->type, 1, 0));
    for (uint32_t t = 0; t < TENSORS; t++) {
        at[t] = place(c, CLASS_OUTER, &by[CLASS_OUTER], t, outer, at[t]);
        at[t] = place(c, CLASS_INNER, &by[CLASS_INNER], t, inner, at[t]);
    }
    const ir_id i = turns(b, &by[CLASS_DEPTH], IR_REDUCE, DIM_DEPTH);
    ir_id value[OUT];
    for (uint32_t t = 0; t < OUT; t++) {
        const ir_id from = place(c, CLASS_DEPTH, &by[CLASS_DEPTH], t, i, at[t]);
        value[t] = ir_cast(b, c->type, ir_load(b, t == A ? a : other, from, 1));
    }
    ir_store(b, sum, zero, product_and(c, value[A], value[B], ir_load(b, sum, zero, 1)));
    ir_end(b);
    const ir_id result = ir_load(b, sum, zero, 1);
    if (whole) {
        ir_store(b, out, at[OUT], ir_cast(b, tile_element(tensors[OUT]->type), result));
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
    const uint64_t extents[IR_DIM_MAX] = {[DIM_OUTER] = c->of[CLASS_OUTER].bound,
                                          [DIM_INNER] = c->of[CLASS_INNER].bound,
                                          [DIM_DEPTH] = whole ? depth->bound : split.each,
                                          [DIM_BATCH] = whole ? c->of[CLASS_BATCH].bound : split.n};
    const beryl_status status = tile_end_marked(k, counts, extents, error);
    return status == BERYL_OK && !whole ? add_parts(l, c, &split, error) : status;
}
