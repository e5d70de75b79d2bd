/* tiled.c - see tile/tiled.h.
 *
 * The one idea: the kernel says y[v, r] = sum over k of x[v, k] * w[r, k], element by element,
 * whatever the weight's type; the schedule brings both factors to workgroup memory, where each
 * weight is unpacked once for a whole tile of vectors, and keeps a block of sums in registers,
 * or in fragments of matrix units. Those want f16: where the plan may be fast, both factors are
 * rounded to it, the vectors before, and with many vectors the weights too, by dispatches of
 * their own: then tiles come by asynchronous copies. A scratch memory that stays in the device's
 * cache is slower than one for whole weights: its products have too few tiles. Where there are
 * 8-bit dot products in place of those, both are bytes, in a kernel of its own (tile/dots.c). A
 * processor has neither memory nor lanes to share: weights are unpacked to f32 before, and sums
 * are vectors along k. */
#include "tile/tiled.h"

#include "base/build.h"
#include "tile/block.h"
#include "tile/dots.h"
#include "tile/product.h"
#include "tile/split.h"

#include <assert.h>

enum {
    FROM = 17,
    FROM_HALVES = 32,
    FROM_UNPACKED = 192,
    DIM_VECTOR = 0,
    DIM_ROW = 1,
    DIM_K = 2,
    DIM_EXPERT = 3,
    SPREAD = 16
};
enum {
    SCRATCH_PARTS = 0,
    SCRATCH_X = 1,
    SCRATCH_WEIGHT = 2,
    SCRATCH_MAX = 256 << 20,
    SCRATCH_MAX_HOST = 4 << 20,
    UNPACK_LANES = 128,
    UNPACK_RUN = 32, /* words of a group's memory until some are left out, */
    UNPACK_WIDE = 4, /* and as many as a lane stores at once */
    ROWS_UNIT = 128,
    RANKS = 64,        /* of adapters, which share a vector, */
    RANKS_DEPTH = 1536 /* which has as many elements at least: a dispatch more is felt */
};

bool tile_tiled_wants(const lowering *l, uint32_t n, uint32_t k) {
    return n >= FROM && (!tile_serial(l) || (tile_is_host(l) && k % TILE_RUN == 0));
}

/* More vectors than a product of few takes, which reads F32 alone (tile/matvec_fused.c). */
static bool rounds(const lowering *l, base_type type, uint32_t n, uint32_t k) {
    return BUILD_HAS_C_TEXTS && ir_has_fragment(l->caps, IR_F16, IR_F32, 16, 8, 16) &&
           !l->settings.exact && type != TYPE_F32 && n >= FROM_HALVES && k >= 16;
}

bool tile_takes_halves(const graph *g, const graph_store *store, const lower_settings *settings,
                       const graph_node *linear) {
    enum {
        FEW = 32,  /* may be a product of another kind, which reads F32 alone */
        ALIGN = 8, /* where rows are a part of others: what is copied at once */
    };
    const lowering l = lower_asked(g, store, settings);
    tile_matrix w;
    lower_matrix x;
    if (!tile_matrix_of(&l, linear->in[1], &w) || !lower_vectors_of(&l, linear->in[0], &x) ||
        ((x.offset || x.stride != w.k) && (x.offset % ALIGN || x.stride % ALIGN || w.k % ALIGN)))
        return false;
    if (linear->n_in > 2) { /* both are copied so */
        const graph_tensor *low = graph_tensor_at(g, linear->in[2]);
        if (low->offset % ALIGN || low->stride[0] % ALIGN || w.k % ALIGN) return false;
    }
    return x.bound > FEW && tile_tiled_wants(&l, x.bound, w.k) && rounds(&l, w.type, x.bound, w.k);
}

/* By bytes, where matrix units do not. */
static bool takes_bytes(const lowering *l, const tile_matrix *w, uint32_t m, uint32_t n) {
    return !rounds(l, w->type, n, w->k) && w->stored && m >= DOTS_ROWS &&
           tile_dots_wants(l, w->type, n, w->k);
}

bool tile_tiled_adds(const lowering *l, const graph_node *linear) {
    enum { ALIGN = 4 };
    tile_matrix w, low_w;
    lower_matrix x, low;
    if (!BUILD_HAS_JOINED_ADAPTERS || !tile_matrix_of(l, linear->in[1], &w) ||
        !tile_matrix_of(l, linear->in[3], &low_w) || !lower_vectors_of(l, linear->in[0], &x) ||
        !lower_vectors_of(l, linear->in[2], &low) || !tile_tiled_wants(l, x.bound, w.k) ||
        !low_w.stored || low_w.stored->n_shard != 1 || low_w.m != w.m || low_w.k != low.k ||
        low.bound != x.bound)
        return false;
    /* halves are copied as they are; the others loaded by runs */
    return rounds(l, w.type, x.bound, w.k)
               ? low_w.type == TYPE_F16
               : takes_bytes(l, &w, w.m, x.bound) && !base_type_is_quantised(low_w.type) &&
                     low_w.k % TILE_RUN == 0 && low.offset % ALIGN == 0 && low.stride % ALIGN == 0;
}

/* Many operations on each sum of a large tile keep the units waiting: a dispatch of its own has
 * more lanes for them, if it finds the sums in the cache. So do several results of each, which a
 * training has that keeps halves. */
bool tile_tiled_waits(const lowering *l, const tree *t, uint64_t n) {
    enum { MANY = 6, SUMS_MAX = 8 << 20 };
    uint32_t n_node = 0;
    for (uint32_t i = 0; i < t->n_value; i++) n_node += t->values[i].kind == TREE_NODE;
    const bool many = n_node > MANY && n <= SUMS_MAX && tree_is_expensive(t);
    return (many || (l->g->halves && t->n_out > 1)) &&
           tile_takes_halves(l->g, l->store, &l->settings, t->product[0]);
}

/* As what: products of a gradient are with rows in memory of the plan, and have its range. */
static ir_type half_of(const lowering *l, const tile_tiled_product *p) {
    return BUILD_HAS_TRAINING && p->by && !p->stored &&
                   graph_tensor_at(l->g, p->weight)->type == TYPE_BF16
               ? IR_BF16
               : IR_F16;
}

/* Vectors that were stored as such (plan/pass_narrow.c). */
static bool are_halves(const lowering *l, const tile_tiled_product *p) {
    return graph_tensor_at(l->g, p->x)->narrow;
}

/* Scratch [n, k] of halves: the vectors, once for products that follow each other. */
static beryl_status halve_vectors(lowering *l, const tile_tiled_product *p) {
    const ir_type half = half_of(l, p);
    tile_kernel kernel, *k = &kernel;
    ir_builder *b = tile_begin(k, l, "linear_halves", 1);
    ir_memory x = tile_read(k, "x", p->x),
              out = tile_scratch(k, "out", SCRATCH_X, (uint64_t)p->bound * p->k * 2, half,
                                 IR_READ_WRITE);
    ir_id n = tile_count(k, "n", p->n), x_offset = tile_u32(k, "x_offset", p->x_offset),
          x_stride = tile_u32(k, "x_stride", p->x_stride);
    ir_id depth = tile_u32(k, "k", p->k), zero = ir_u32(b, 0), one = ir_u32(b, 1);
    ir_id v = ir_loop_marked(b, zero, n, one, IR_PARALLEL, 0),
          i = ir_loop_marked(b, zero, depth, one, IR_PARALLEL, 1);
    ir_id value = ir_cast(
        b, IR_F32, ir_load(b, x, ir_add(b, ir_add(b, ir_mul(b, v, x_stride), x_offset), i), 1));
    ir_store(b, out, ir_add(b, ir_mul(b, v, depth), i),
             half == IR_F16 ? tile_half(b, value) : ir_cast(b, half, value));
    ir_end(b), ir_end(b);
    const beryl_status status = tile_end_marked(k, (lower_count[IR_DIM_MAX]){p->n, {p->k, 0}},
                                                (uint64_t[IR_DIM_MAX]){p->bound, p->k});
    if (status == BERYL_OK) lower_step_share(l);
    return status;
}

/* Where word `at` of a group's words lies in workgroup memory: a few are left out, so that the
 * runs of neighbouring lanes lie in different banks. */
static ir_id place_of(ir_builder *b, ir_id at) {
    return ir_add(b, at, tile_mul(b, tile_div(b, at, UNPACK_RUN), UNPACK_WIDE));
}

/* A group's words from workgroup memory: neighbouring lanes store neighbouring ones. */
static void store_unpacked(tile_kernel *k, ir_memory from, ir_memory to, ir_id first, ir_id end,
                           uint32_t each) {
    ir_builder *b = k->b;
    ir_barrier(b);
    for (uint32_t turn = 0; turn < each / UNPACK_WIDE; turn++) {
        ir_id i = tile_mul(b, tile_add(b, ir_local(b, 0), turn * k->lanes), UNPACK_WIDE),
              at = ir_add(b, first, i);
        ir_if(b, ir_lt(b, at, end));
        ir_store(b, to, at, ir_load(b, from, place_of(b, i), UNPACK_WIDE));
        ir_end(b);
    }
}

/* Scratch [rows, k] of f16: rows [first, first + rows) of the shard, a lane a chunk; where one lane
 * is all, of f32, a group a row. */
static beryl_status unpack_rows(lowering *l, const tile_tiled_product *p, uint32_t first,
                                uint32_t rows, uint64_t bytes) {
    const bool one = tile_is_host(l);
    const uint32_t lanes = one ? 1 : UNPACK_LANES;
    tile_kernel kernel, *k = &kernel;
    tile_weight w;
    ir_builder *b = tile_begin(k, l, "linear_unpack", lanes);
    if (p->stored) tile_weight_stored(&w, k, "weights", p->weight, p->shard, p->k);
    else tile_weight_plain(&w, k, "weights", p->weight, p->k);
    const uint32_t each = w.runs * TILE_RUN / 2, all = lanes * each; /* words: of a lane, a group */
    assert(one || lanes % w.chunks == 0);
    ir_memory out = tile_scratch(k, "out", SCRATCH_WEIGHT, bytes, one ? IR_F32 : IR_U32,
                                 IR_READ_WRITE),
              to = one ? out : ir_workgroup(b, IR_U32, all + all / UNPACK_RUN * UNPACK_WIDE);
    ir_id from = tile_u32(k, "first", first), count = tile_u32(k, "rows", rows),
          blocks = tile_u32(k, "blocks", w.blocks);
    ir_id depth = tile_mul(b, blocks, p->k / w.blocks), units = tile_mul(b, blocks, w.chunks);
    ir_id lane = tile_lane(k), row = one ? lane : ir_div(b, lane, units),
          unit = one ? lane : ir_mod(b, lane, units), values[4];
    ir_id begin = one ? IR_NO_ID : tile_mul(b, tile_group(b), all);
    tile_chunk c;
    ir_if(b, ir_lt(b, row, count));
    if (one) unit = ir_loop(b, ir_u32(b, 0), units, ir_u32(b, 1));
    ir_id block = tile_div(b, unit, w.chunks), part = tile_rem(b, unit, w.chunks);
    tile_chunk_load(&w, ir_add(b, row, from), block, part, &c);
    for (uint32_t run = 0; run < w.runs; run++) {
        ir_id at = ir_add(b, ir_mul(b, row, depth), tile_run_at(&w, block, part, run));
        if (!one) at = place_of(b, ir_sub(b, tile_div(b, at, 2), begin));
        tile_run_load(&w, &c, run, values);
        for (uint32_t i = 0; i < TILE_RUN / k->wide; i++)
            if (one) ir_store(b, to, tile_add(b, at, i * k->wide), values[i]);
            else
                ir_store(b, to, tile_add(b, at, i * k->wide / 2),
                         ir_bitcast(b, IR_U32, k->wide / 2, ir_cast(b, IR_F16, values[i])));
    }
    if (one) ir_end(b);
    ir_end(b);
    if (!one) store_unpacked(k, to, out, begin, tile_div(b, ir_mul(b, count, depth), 2), each);
    return tile_end(k, (lower_count){one ? rows : (uint64_t)rows * w.blocks * w.chunks, 0}, lanes);
}

ir_id tile_tiled_expert_rows(tile_kernel *k, const tile_tiled_product *p, ir_id expert, ir_id *rows,
                             ir_id *column) {
    const store_shard *shard = &lower_stored(k->l, p->weight)->shard[p->shard];
    ir_builder *b = k->b;
    ir_id first = tile_mul(b, expert, p->m), begin = tile_u32(k, "begin", shard->row),
          end = tile_u32(k, "end", shard->row + shard->n_row);
    end = ir_min(b, tile_add(b, first, p->m), end);
    ir_id from = ir_min(b, ir_max(b, first, begin), end);
    *rows = ir_sub(b, end, from);
    *column = ir_add(b, *column, ir_sub(b, from, first));
    return ir_sub(b, from, begin);
}

/* x, as it is or as the halves in scratch memory, and where its vectors lie there. */
static ir_memory vectors_memory(tile_kernel *k, const tile_tiled_product *p, bool halves) {
    const uint64_t bytes = (uint64_t)p->bound * p->k * 2;
    return halves && !are_halves(k->l, p)
               ? tile_scratch(k, "x", SCRATCH_X, bytes, half_of(k->l, p), IR_READ)
               : tile_read(k, "x", p->x);
}

static void vectors_place(tile_kernel *k, const tile_tiled_product *p, bool halves, ir_id *offset,
                          ir_id *stride) {
    const bool in_scratch = halves && !are_halves(k->l, p);
    *offset = tile_u32(k, "x_offset", in_scratch ? 0 : p->x_offset);
    *stride = tile_u32(k, "x_stride", in_scratch ? p->k : p->x_stride);
}

typedef struct low_terms { /* behind the k terms of each sum */
    ir_memory x, w;
    ir_id x_offset, x_stride, first, rank; /* first: row of w for row 0 of the shard's */
    ir_id all, last;                       /* terms of a sum; of the first k the last */
} low_terms;

/* to: the result's first row. */
static void low_declare(tile_kernel *k, const tile_tiled_product *p, uint32_t to, ir_id depth,
                        low_terms *low) {
    ir_builder *b = k->b;
    tile_matrix w;
    lower_matrix x;
    const bool known =
        tile_matrix_of(k->l, p->low_w[0], &w) && lower_vectors_of(k->l, p->low[0], &x);
    assert(known); /* tile_tiled_adds */
    (void)known;
    low->x = tile_read(k, "low", p->low[0]);
    low->w = tile_shard(k, "low_weights", p->low_w[0], 0, IR_F16);
    low->x_offset = tile_u32(k, "low_offset", x.offset);
    low->x_stride = tile_u32(k, "low_stride", x.stride);
    low->first = tile_u32(k, "low_first", w.first + to);
    low->rank = tile_u32(k, "rank", w.k);
    low->all = ir_add(b, depth, low->rank);
    low->last = ir_sub(b, depth, ir_u32(b, 1));
    lower_bytes(k->l, base_type_row_bytes(w.type, w.k) * w.m);
}

static ir_id half_value(ir_builder *b, ir_id x) {
    const ir_id before = tile_before(b, IR_F16, x);
    if (ir_at(b, x)->type == IR_F16) return x;
    return before == IR_NO_ID ? tile_half(b, x) : before;
}

/* Term i of a sum: of vector v and row r; left and right are those at min(i, last). */
static void low_term(ir_builder *b, const low_terms *low, ir_id i, ir_id depth, ir_id v, ir_id r,
                     ir_id *left, ir_id *right) {
    const ir_id own = ir_lt(b, i, depth), turn = ir_sub(b, ir_max(b, i, depth), depth),
                x = ir_load(b, low->x,
                            ir_add(b, ir_add(b, ir_mul(b, v, low->x_stride), low->x_offset), turn),
                            1),
                w = ir_load(b, low->w,
                            ir_add(b, ir_mul(b, ir_add(b, r, low->first), low->rank), turn), 1);
    *left = ir_cast(b, IR_F32, ir_select(b, own, half_value(b, *left), half_value(b, x)));
    *right = ir_cast(b, IR_F32, ir_select(b, own, half_value(b, *right), w));
}

/* Rows [first, first + m) of the shard, or of the scratch that holds them (bytes: its size), to
 * rows [to, to + m) of the result; or of each expert all that lie in the shard. */
static beryl_status multiply(lowering *l, const tile_tiled_product *p, bool halves,
                             uint64_t unpacked, uint32_t first, uint32_t to, uint32_t m) {
    const tile_grouped *by = p->by;
    const ir_type half = half_of(l, p);
    const uint32_t width = by ? p->m : graph_tensor_at(l->g, p->weight)->dim[0].size,
                   spread = by ? tile_grouped_each(by) : p->bound;
    tile_kernel kernel, *k = &kernel;
    tile_weight w = {.k = NULL};
    ir_memory weights = {0}, list = {0}, x;
    ir_builder *b = tile_begin(k, l, by ? "linear_grouped" : "linear_tiled", 1);
    if (unpacked)
        weights =
            tile_scratch(k, "weights", SCRATCH_WEIGHT, unpacked, halves ? IR_F16 : IR_F32, IR_READ);
    else if (p->stored) tile_weight_stored(&w, k, "weights", p->weight, p->shard, p->k);
    else tile_weight_plain(&w, k, "weights", p->weight, p->k);
    x = vectors_memory(k, p, halves);
    if (by) list = tile_grouped_list(k, by);
    ir_memory out = {0}, sum = ir_register(b, IR_F32, 1);
    tree_walk end;
    if (p->end) tree_end_declare(&end, k, p->end);
    else out = tile_write(k, "out", p->out);
    ir_id n = by ? IR_NO_ID : tile_count(k, "n", p->n), rows = tile_u32(k, "m", m),
          start = tile_u32(k, "first", first);
    ir_id x_offset, x_stride;
    vectors_place(k, p, halves, &x_offset, &x_stride);
    ir_id out_offset =
        tile_u32(k, "out_offset", to + (p->end ? 0 : graph_tensor_at(l->g, p->out)->offset));
    ir_id out_stride = tile_u32(k, "out_stride", width), depth = tile_u32(k, "k", p->k),
          zero = ir_u32(b, 0), one = ir_u32(b, 1);
    low_terms low = {.rank = IR_NO_ID};
    const bool adds = BUILD_HAS_JOINED_ADAPTERS && p->low[0];
    const uint32_t rank = adds ? graph_tensor_at(l->g, p->low_w[0])->dim[1].size : 0;
    if (adds) low_declare(k, p, to, depth, &low);
    ir_id pairs = zero;
    if (by) {
        ir_id expert =
            ir_loop_marked(b, zero, ir_u32(b, by->n_expert), one, IR_PARALLEL, DIM_EXPERT);
        tile_grouped_range(b, list, expert, &pairs, &n);
        if (p->stored && lower_stored(l, p->weight)->n_shard > 1)
            start = tile_tiled_expert_rows(k, p, expert, &rows, &out_offset);
        else start = tile_mul(b, expert, m);
    }
    ir_id v = ir_loop_marked(b, zero, n, one, IR_PARALLEL, DIM_VECTOR),
          r = ir_loop_marked(b, zero, rows, one, IR_PARALLEL, DIM_ROW);
    ir_set(b, sum, ir_f32(b, 0));
    const ir_id turn = ir_loop_marked(b, zero, adds ? low.all : depth, one, IR_REDUCE, DIM_K);
    ir_id i = adds ? ir_min(b, turn, low.last) : turn, vector = v, right;
    if (by) vector = tile_div(b, tile_grouped_pair(b, by, list, pairs, v), by->share);
    ir_id left =
        ir_cast(b, IR_F32,
                ir_load(b, x, ir_add(b, ir_add(b, ir_mul(b, vector, x_stride), x_offset), i), 1));
    if (unpacked)
        right = ir_cast(b, IR_F32, ir_load(b, weights, ir_add(b, ir_mul(b, r, depth), i), 1));
    else right = tile_element_load(&w, ir_add(b, r, start), i);
    /* halves in memory are copied as they are; those of experts are not */
    if (halves && half == IR_F16 && !unpacked &&
        (by || graph_tensor_at(l->g, p->weight)->type != TYPE_F16))
        right = ir_cast(b, IR_F32, ir_cast(b, IR_F16, right));
    if (adds) low_term(b, &low, turn, depth, v, r, &left, &right);
    ir_set(b, sum, ir_fma(b, left, right, ir_get(b, sum)));
    ir_end(b);
    ir_id result = by ? tile_grouped_pair(b, by, list, pairs, v) : v;
    if (p->end)
        tree_end_store(&end, result, ir_add(b, r, out_offset), (ir_id[]){ir_get(b, sum), IR_NO_ID});
    else
        ir_store(b, out, ir_add(b, ir_add(b, ir_mul(b, result, out_stride), out_offset), r),
                 ir_get(b, sum));
    ir_end(b), ir_end(b);
    if (!by)
        return tile_end_marked(k, (lower_count[IR_DIM_MAX]){p->n, {m, 0}},
                               (uint64_t[IR_DIM_MAX]){p->bound, m, p->k + rank});
    ir_end(b);
    /* Experts have more or fewer: tiles for half as many more, groups for many times as many,
     * since groups without any cost little. */
    return tile_end_marked(
        k, (lower_count[IR_DIM_MAX]){{SPREAD * spread, 0}, {m, 0}, {0, 0}, {by->n_expert, 0}},
        (uint64_t[IR_DIM_MAX]){(3ull * spread + 1) / 2, m, p->k, by->n_expert});
}

/* Parts of the sums of few rows: parts[part, v, r]. */
static beryl_status multiply_parts(lowering *l, const tile_tiled_product *p, bool halves,
                                   const tile_split *split) {
    tile_kernel kernel, *k = &kernel;
    tile_weight w;
    ir_builder *b = tile_begin(k, l, "linear_parts", 1);
    if (p->stored) tile_weight_stored(&w, k, "weights", p->weight, p->shard, p->k);
    else tile_weight_plain(&w, k, "weights", p->weight, p->k);
    const ir_memory x = vectors_memory(k, p, halves),
                    parts = tile_scratch(k, "parts", SCRATCH_PARTS, split->bytes, IR_F32,
                                         IR_READ_WRITE),
                    sum = ir_register(b, IR_F32, 1);
    const ir_id n = tile_count(k, "n", p->n), start = tile_u32(k, "first", p->first),
                m = ir_u32(b, p->m), zero = ir_u32(b, 0), one = ir_u32(b, 1);
    ir_id x_offset, x_stride, from, length;
    vectors_place(k, p, halves, &x_offset, &x_stride);
    const ir_id part = tile_split_open(b, split, ir_u32(b, p->k), DIM_EXPERT, &from, &length),
                v = ir_loop_marked(b, zero, n, one, IR_PARALLEL, DIM_VECTOR),
                r = ir_loop_marked(b, zero, m, one, IR_PARALLEL, DIM_ROW);
    ir_set(b, sum, ir_f32(b, 0));
    const ir_id begin = ir_add(b, ir_add(b, ir_mul(b, v, x_stride), x_offset), from),
                i = ir_loop_marked(b, zero, length, one, IR_REDUCE, DIM_K);
    const ir_id left = ir_cast(b, IR_F32, ir_load(b, x, ir_add(b, begin, i), 1));
    ir_id right = tile_element_load(&w, ir_add(b, r, start), ir_add(b, from, i));
    if (halves && graph_tensor_at(l->g, p->weight)->type != TYPE_F16)
        right = ir_cast(b, IR_F32, ir_cast(b, half_of(l, p), right));
    ir_set(b, sum, ir_fma(b, left, right, ir_get(b, sum)));
    ir_end(b);
    const ir_id row = ir_add(b, ir_mul(b, part, n), v);
    ir_store(b, parts, ir_add(b, ir_mul(b, row, m), r), ir_get(b, sum));
    ir_end(b), ir_end(b), ir_end(b);
    return tile_end_marked(k, (lower_count[IR_DIM_MAX]){p->n, {p->m, 0}, {0, 0}, {split->n, 0}},
                           (uint64_t[IR_DIM_MAX]){p->bound, p->m, split->each, split->n});
}

static beryl_status add_parts(lowering *l, const tile_tiled_product *p, const tile_split *split) {
    tile_kernel kernel, *k = &kernel;
    tree_walk end;
    ir_memory out = {0};
    ir_builder *b = tile_begin(k, l, "linear_sum", 1);
    const ir_memory parts = tile_scratch(k, "parts", SCRATCH_PARTS, split->bytes, IR_F32, IR_READ);
    if (p->end) tree_end_declare(&end, k, p->end);
    else out = tile_write(k, "out", p->out);
    const uint32_t to = p->to + (p->end ? 0 : graph_tensor_at(l->g, p->out)->offset),
                   width = graph_tensor_at(l->g, p->weight)->dim[0].size;
    const ir_id n = tile_count(k, "n", p->n), column = tile_u32(k, "out_offset", to),
                stride = tile_u32(k, "out_stride", width), m = ir_u32(b, p->m), zero = ir_u32(b, 0),
                one = ir_u32(b, 1);
    const ir_id v = ir_loop_marked(b, zero, n, one, IR_PARALLEL, DIM_VECTOR),
                r = ir_loop_marked(b, zero, m, one, IR_PARALLEL, DIM_ROW),
                at = ir_add(b, ir_mul(b, v, m), r), size = ir_mul(b, n, m),
                sum = tile_split_sum(b, split, ir_u32(b, p->k), parts, at, size);
    if (p->end) tree_end_store(&end, v, ir_add(b, r, column), (ir_id[]){sum, IR_NO_ID});
    else ir_store(b, out, ir_add(b, ir_add(b, ir_mul(b, v, stride), column), r), sum);
    ir_end(b), ir_end(b);
    return tile_end_marked(k, (lower_count[IR_DIM_MAX]){p->n, {p->m, 0}},
                           (uint64_t[IR_DIM_MAX]){p->bound, p->m});
}

/* A piece after the other, through one scratch. */
static beryl_status multiply_unpacked(lowering *l, const tile_tiled_product *p, bool halves) {
    const uint64_t row = (uint64_t)p->k * (halves ? 2 : 4);
    uint64_t most = (halves ? SCRATCH_MAX : SCRATCH_MAX_HOST) / row / ROWS_UNIT * ROWS_UNIT;
    beryl_status status = BERYL_OK;
    if (most < ROWS_UNIT) most = ROWS_UNIT;
    if (most > p->m) most = p->m;
    for (uint32_t done = 0; done < p->m && status == BERYL_OK; done += (uint32_t)most) {
        const uint32_t m = p->m - done < most ? p->m - done : (uint32_t)most;
        status = unpack_rows(l, p, p->first + done, m, most * row);
        if (status == BERYL_OK) status = multiply(l, p, halves, most * row, 0, p->to + done, m);
    }
    return status;
}

beryl_status tile_tiled(lowering *l, const tile_tiled_product *p) {
    const base_type type = graph_tensor_at(l->g, p->weight)->type;
    const bool halves = rounds(l, type, p->bound, p->k);
    const bool dots = !halves && p->stored && (p->m >= DOTS_ROWS || p->low[0]) &&
                      tile_dots_wants(l, type, p->by ? p->by->bound : p->bound, p->k);
    beryl_status status =
        halves && !p->rounded && !are_halves(l, p) ? halve_vectors(l, p) : BERYL_OK;
    if (status != BERYL_OK) return status;
    const bool packed = base_type_is_quantised(type) || (type == TYPE_BF16 && p->k % TILE_RUN == 0);
    if (p->by) {
        const uint32_t n_shard = p->stored ? lower_stored(l, p->weight)->n_shard : 1;
        tile_tiled_product shard = *p;
        for (; status == BERYL_OK && shard.shard < n_shard; shard.shard++, shard.rounded = true)
            status = dots ? tile_dots(l, &shard) : multiply(l, &shard, halves, 0, 0, 0, p->m);
        return status;
    }
    if (dots) return tile_dots(l, p);
    /* few results, as an adapter's A has, or in a training: elsewhere a dispatch more is felt */
    const bool ranks = p->m <= RANKS && p->k >= RANKS_DEPTH,
               few = p->m < p->bound && (l->g->segments || ranks);
    const tile_split split = !BUILD_HAS_TRAINING || p->low[0] || (halves && !ranks)
                                 ? (tile_split){.n = 1}
                             : halves ? tile_split_units(l, p->bound, p->m, p->k)
                             : few ? tile_split_of(l, p->bound, p->m, (lower_count){p->k, 0}, p->k)
                                   : tile_split_halves(l, p->bound, p->m, p->k);
    if (split.n > 1) {
        status = multiply_parts(l, p, halves, &split);
        return status == BERYL_OK ? add_parts(l, p, &split) : status;
    }
    if (tile_is_host(l) ? type != TYPE_F32
                        : halves && packed && p->bound >= FROM_UNPACKED && p->m >= DOTS_ROWS)
        return multiply_unpacked(l, p, halves);
    return multiply(l, p, halves, 0, p->first, p->to, p->m);
}
