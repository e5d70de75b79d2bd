/* contract.c - sums of products over any axes: of matrices in any order and number, of windows.
 *
 * The one idea: an axis that both factors have is one of a batch, an axis of one factor alone is of
 * its rows, and an axis that is summed is depth. Each such class is one loop, whose index is taken
 * apart where its axes do not lie as one; the kernel says the sum element by element, and the
 * schedule makes tiles of it (ir/pass/schedule.c): matrix units for halves, blocks of sums for all
 * else. Sums are F32 (F64 of F64); integers wrap as 32 bits, or 64.
 *
 * A processor multiplies vectors along depth: there factors that are no F32, or whose depth is no
 * whole number of vectors side by side, are first laid out so, with zeros at the end of a row. */
#include "base/build.h"
#include "base/error.h"
#include "tile/kernel.h"
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
    ir_type type;    /* of sums */
    bool laid[OUT];  /* the factor is read from scratch, */
    uint32_t row;    /* in rows of so many, */
    axes given[OUT]; /* made of these axes, */
    axes depth;      /* and these */
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

/* ---- factors laid out ------------------------------------------------------------------------ */

static class_kind rows_of(const contraction *c, uint32_t t) {
    return moves(&c->of[CLASS_OUTER], t) ? CLASS_OUTER : CLASS_INNER;
}

/* Side by side, the last one `stride` from the next. */
static void lay(axes *of, uint32_t t, uint32_t stride) {
    for (uint32_t i = of->n; i-- > 0;) {
        of->stride[t][i] = stride;
        stride *= (uint32_t)of->size[i].factor;
    }
}

static uint64_t laid_bytes(const contraction *c, uint32_t t) {
    const axes *batch = &c->of[CLASS_BATCH];
    return (moves(batch, t) ? batch->bound : 1) * c->of[rows_of(c, t)].bound * c->row *
           ir_type_bytes(c->type);
}

static bool is_laid(const contraction *c, uint32_t t) {
    return !BUILD_IS_MODULE && c->laid[t];
}

/* Which factors are to be; their axes are then those of the scratch. */
static void lay_out(contraction *c, const graph_tensor *const *tensors) {
    enum { VECTOR = 16, LEAST = 8, BYTES_MAX = 1 << 28 };
    axes *depth = &c->of[CLASS_DEPTH];
    for (uint32_t i = 0; i < CLASSES; i++)
        if (c->of[i].count.extent) return;
    if (BUILD_IS_MODULE || !device_is_compiled(c->k.l->caps) || c->type != IR_F32 ||
        depth->bound < VECTOR || c->of[CLASS_OUTER].bound < LEAST ||
        c->of[CLASS_INNER].bound < LEAST || depth->bound > INT32_MAX)
        return;
    c->row = ((uint32_t)depth->bound + VECTOR - 1) / VECTOR * VECTOR;
    for (uint32_t t = 0; t < OUT; t++) {
        c->laid[t] = c->row != depth->bound || tile_element(tensors[t]->type) != c->type ||
                     !is_one(depth, t) || depth->stride[t][depth->n - 1] != 1;
        if (c->laid[t] && laid_bytes(c, t) > BYTES_MAX) {
            c->laid[A] = c->laid[B] = false;
            return;
        }
    }
    c->depth = *depth;
    for (uint32_t t = 0; t < OUT; t++) {
        axes *rows = &c->of[rows_of(c, t)], *batch = &c->of[CLASS_BATCH];
        c->given[t] = *rows;
        if (!c->laid[t]) continue;
        lay(rows, t, c->row);
        lay(depth, t, 1);
        if (moves(batch, t)) lay(batch, t, c->row * (uint32_t)rows->bound);
    }
    if (c->row == depth->bound) return;
    depth->n = 1;
    depth->size[0] = depth->count = (lower_count){c->row, 0};
    depth->bound = c->row;
    for (uint32_t t = 0; t < OUT; t++) depth->stride[t][0] = 1;
}

/* A row a group. */
static beryl_status lay_rows(contraction *c, const axes *batch, uint32_t t,
                             const graph_tensor *tensor, beryl_error *error) {
    static const char *const names[] = {"contract_a", "contract_b"};
    lowering *l = c->k.l;
    const axes now[CLASSES] = {c->of[0], c->of[1], c->of[2], c->of[3]};
    const class_kind own = rows_of(c, t);
    const uint32_t n_row = (uint32_t)now[own].bound;
    const bool in_batch = moves(batch, t);
    c->of[CLASS_BATCH] = *batch;
    c->of[own] = c->given[t];
    c->of[CLASS_DEPTH] = c->depth;
    tile_begin(&c->k, l, c->node, names[t], 1);
    ir_builder *b = c->k.b;
    const ir_memory from = tile_read(&c->k, "from", c->node->in[t]),
                    to = tile_scratch(&c->k, "rows", t, laid_bytes(c, t), c->type, IR_READ_WRITE);
    lengths by[CLASSES];
    for (uint32_t i = 0; i < CLASSES; i++) measure(c, i, &by[i]);
    const uint32_t n = n_row * (in_batch ? (uint32_t)batch->bound : 1);
    const ir_id row = tile_group(&c->k), start = tile_mul(&c->k, row, c->row);
    ir_if(b, ir_lt(b, row, ir_u32(b, n)));
    ir_id at = number(c, "offset", tensor->offset);
    at = place(c, own, &by[own], t, in_batch ? tile_rem(&c->k, row, n_row) : row, at);
    if (in_batch) at = place(c, CLASS_BATCH, &by[CLASS_BATCH], t, tile_div(&c->k, row, n_row), at);
    const ir_id one = ir_u32(b, 1), end = ir_u32(b, (uint32_t)c->depth.bound),
                i = ir_loop(b, ir_u32(b, 0), end, one),
                x = ir_load(b, from, place(c, CLASS_DEPTH, &by[CLASS_DEPTH], t, i, at), 1);
    ir_store(b, to, ir_add(b, start, i), ir_cast(b, c->type, x));
    ir_end(b);
    if (c->row != c->depth.bound) {
        const ir_id rest = ir_loop(b, end, ir_u32(b, c->row), one);
        ir_store(b, to, ir_add(b, start, rest), ir_number(b, c->type, 1, 0));
        ir_end(b);
    }
    ir_end(b);
    for (uint32_t k = 0; k < CLASSES; k++) c->of[k] = now[k];
    return tile_end(&c->k, (lower_count){n, 0}, 1, error);
}

static ir_memory factor(contraction *c, uint32_t t) {
    static const char *const names[] = {"a", "b"};
    return is_laid(c, t) ? tile_scratch(&c->k, names[t], t, 0, c->type, IR_READ)
                         : tile_read(&c->k, names[t], c->node->in[t]);
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
    tile_kernel *k = &c->k;
    const axes batch = c->of[CLASS_BATCH];
    k->l = l;
    lay_out(c, tensors);
    beryl_status status = BERYL_OK;
    for (uint32_t t = 0; t < OUT && status == BERYL_OK; t++)
        if (is_laid(c, t)) status = lay_rows(c, &batch, t, tensors[t], error);
    if (status != BERYL_OK) return status;
    tile_begin(k, l, node, "contract", 1);
    ir_builder *b = k->b;
    const ir_memory a = factor(c, A), other = factor(c, B),
                    out = tile_write(k, "out", node->out[0]), sum = ir_register(b, c->type, 1);
    ir_id at[TENSORS];
    for (uint32_t t = 0; t < TENSORS; t++)
        at[t] = number(c, offsets[t], t < OUT && is_laid(c, t) ? 0 : tensors[t]->offset);
    lengths by[CLASSES];
    for (uint32_t i = 0; i < CLASSES; i++) measure(c, i, &by[i]);
    const bool has_batch = c->of[CLASS_BATCH].n;
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
    ir_store(b, out, at[OUT],
             ir_cast(b, tile_element(tensors[OUT]->type), ir_load(b, sum, zero, 1)));
    ir_end(b), ir_end(b);
    if (has_batch) ir_end(b);
    const lower_count counts[IR_DIM_MAX] = {[DIM_OUTER] = c->of[CLASS_OUTER].count,
                                            [DIM_INNER] = c->of[CLASS_INNER].count,
                                            [DIM_BATCH] = c->of[CLASS_BATCH].count};
    const uint64_t extents[IR_DIM_MAX] = {[DIM_OUTER] = c->of[CLASS_OUTER].bound,
                                          [DIM_INNER] = c->of[CLASS_INNER].bound,
                                          [DIM_DEPTH] = c->of[CLASS_DEPTH].bound,
                                          [DIM_BATCH] = c->of[CLASS_BATCH].bound};
    return tile_end_marked(k, counts, extents, error);
}
