/* lower_ir_matmul.c - generated products with weights of any type, alone and with experts, and rows of tables by index.
 *
 * A workgroup takes `rows` rows of the weight for `vectors` vectors at once, so that a weight is unpacked once for all of
 * them. Lanes share the chunks of a row and join their sums in a tree; where one lane is all, it walks the row itself. A
 * weight in several shards is one dispatch a shard. */
#include "graph/lower_ir_block.h"
#include "graph/lower_ir_product.h"
#include "graph/lower_ir_tiled.h"
#include "graph/lower_ir_matvec_fused.h"
#include "graph/lower_ir_vectors.h"
#include "graph/lower_walk.h"
#include "base/error.h"

enum { GROUPS_MOST = 32768, ROWS_MOST = 4, VECTORS_MOST = 8, JOINED_VECTORS = 32 };

/* A matrix as it lies: whole rows of a stored weight, or dense in other memory. */
typedef struct matrix {
    graph_value value;
    base_type type;
    const store_tensor *stored; /* weight; NULL: other memory */
    uint32_t m, k, first;       /* first: row of the stored tensor where a view begins */
} matrix;

static bool matrix_of(const lowering *l, graph_value v, matrix *w) {
    const graph_tensor *t = graph_tensor_at(l->g, v);
    if (t->rank != 2 || t->dim[1].extent || t->dim[0].extent || t->stride[1] != 1 || t->stride[0] != t->dim[1].size) return false;
    *w = (matrix){.value = v, .type = t->type, .stored = lower_weight(l, v), .m = t->dim[0].size, .k = t->dim[1].size};
    if (!w->stored) return !base_type_is_quantised(t->type) && lower_ir_weight_known(t->type);
    w->first = t->offset / w->k;
    return t->offset % w->k == 0 && lower_ir_weight_known(t->type);
}

/* Vectors [n, k], one distance apart. */
typedef struct vectors {
    graph_value value;
    lower_count n;
    uint32_t k, stride, offset, bound;
} vectors;

static bool vectors_of(const lowering *l, graph_value v, vectors *x) {
    const graph_tensor *t = graph_tensor_at(l->g, v);
    lower_walk w = lower_walk_of((const graph_tensor *const[]){t}, 1, 1);
    const uint32_t last = t->rank - 1u;
    if (t->rank == 0 || t->dim[last].extent || t->stride[last] != 1 || w.n > 1) return false;
    *x = (vectors){.value = v, .n = w.n ? w.size[0] : (lower_count){1, 0}, .k = t->dim[last].size, .stride = w.n ? w.stride[0][0] : 0,
                   .offset = t->offset};
    x->bound = (uint32_t)(x->n.factor * (x->n.extent ? l->g->extents[x->n.extent].bound : 1));
    return true;
}

/* ---- products -------------------------------------------------------------------------------------------------- */

typedef struct product { /* one dispatch being made */
    lower_ir k;
    lower_ir_weight w, other;        /* other: of the second half of the rows, where `pair` */
    bool pair;
    uint32_t rows, vectors, tile; /* tile: rows times vectors */
    bool x_aligned;
    ir_memory x, sums, joined;
    ir_id row[ROWS_MOST], x_at[VECTORS_MOST]; /* rows of the shard; where each vector begins */
    bool ends;                                /* a tree stands at the end, */
    tree_walk end;
    ir_id vector[VECTORS_MOST], to;           /* for these vectors, from this column on */
} product;

static ir_id sum_index(product *p, uint32_t row, uint32_t vector) {
    return ir_u32(p->k.b, (row * p->vectors + vector) * p->k.wide);
}

static const lower_ir_weight *weight_of(const product *p, uint32_t row) {
    return p->pair && row >= p->rows / 2 ? &p->other : &p->w;
}

static void add_chunk(product *p, ir_id block, ir_id part) {
    lower_ir *k = &p->k;
    ir_builder *b = k->b;
    const uint32_t n = LOWER_IR_RUN / k->wide;
    lower_ir_chunk chunks[ROWS_MOST];
    for (uint32_t r = 0; r < p->rows; r++) lower_ir_chunk_load(weight_of(p, r), p->row[r], block, part, &chunks[r]);
    for (uint32_t run = 0; run < p->w.runs; run++) {
        ir_id x[VECTORS_MOST][4], values[4], at = lower_ir_run_at(&p->w, block, part, run);
        for (uint32_t v = 0; v < p->vectors; v++) lower_ir_load_run(k, p->x, ir_add(b, p->x_at[v], at), p->x_aligned, x[v]);
        for (uint32_t r = 0; r < p->rows; r++) {
            lower_ir_run_load(weight_of(p, r), &chunks[r], run, values);
            for (uint32_t v = 0; v < p->vectors; v++) {
                ir_id at_sum = sum_index(p, r, v), sum = ir_load(b, p->sums, at_sum, k->wide);
                for (uint32_t i = 0; i < n; i++) sum = ir_fma(b, values[i], x[v][i], sum);
                ir_store(b, p->sums, at_sum, sum);
            }
        }
    }
}

/* What is left of plain rows after whole runs. */
static void add_rest(product *p) {
    lower_ir *k = &p->k;
    ir_builder *b = k->b;
    if (!p->w.plain || p->w.n % LOWER_IR_RUN == 0) return;
    ir_id from = lower_ir_times(k, lower_ir_over(k, p->w.row, LOWER_IR_RUN), LOWER_IR_RUN);
    ir_id i = ir_loop(b, k->lanes == 1 ? from : ir_add(b, ir_local(b, 0), from), p->w.row, ir_u32(b, k->lanes));
    for (uint32_t r = 0; r < p->rows; r++) {
        ir_id value = lower_ir_element_load(weight_of(p, r), p->row[r], i);
        for (uint32_t v = 0; v < p->vectors; v++) {
            ir_id at = sum_index(p, r, v), x = ir_load(b, p->x, ir_add(b, p->x_at[v], i), 1);
            ir_store(b, p->sums, at, ir_fma(b, value, x, ir_load(b, p->sums, at, 1)));
        }
    }
    ir_end(b);
}

/* The sums over the whole rows: sums[i * wide] of lane 0 where one lane is all, else joined[i * lanes]. */
static void walk_rows(product *p) {
    lower_ir *k = &p->k;
    ir_builder *b = k->b;
    for (uint32_t i = 0; i < p->tile; i++) ir_store(b, p->sums, ir_u32(b, i * k->wide), ir_number(b, IR_F32, k->wide, 0));
    const uint32_t chunks = p->w.chunks;
    ir_id whole = p->w.plain ? lower_ir_over(k, p->w.row, LOWER_IR_RUN) : lower_ir_times(k, p->w.row, chunks);
    ir_id chunk = ir_loop(b, k->lanes == 1 ? ir_u32(b, 0) : ir_local(b, 0), whole, ir_u32(b, k->lanes));
    add_chunk(p, lower_ir_over(k, chunk, chunks), lower_ir_rest(k, chunk, chunks));
    ir_end(b);
    add_rest(p);
    for (uint32_t i = 0; i < p->tile; i++) {
        ir_id sum = lower_ir_sum_vector(k, ir_load(b, p->sums, ir_u32(b, i * k->wide), k->wide));
        if (k->lanes == 1) ir_store(b, p->sums, ir_u32(b, i * k->wide), sum);
        else ir_store(b, p->joined, lower_ir_plus(k, ir_local(b, 0), i * k->lanes), sum);
    }
    for (uint32_t half = k->lanes / 2; half > 0; half /= 2) {
        ir_barrier(b);
        ir_if(b, ir_lt(b, ir_local(b, 0), ir_u32(b, half)));
        for (uint32_t i = 0; i < p->tile; i++) {
            ir_id at = lower_ir_plus(k, ir_local(b, 0), i * k->lanes), other = lower_ir_plus(k, at, half);
            ir_store(b, p->joined, at, ir_add(b, ir_load(b, p->joined, at, 1), ir_load(b, p->joined, other, 1)));
        }
        ir_end(b);
    }
    if (k->lanes > 1) ir_barrier(b);
}

/* Rows and vectors at once, lanes: what registers hold and what keeps lanes busy. */
static void product_begin(product *p, lowering *l, const graph_node *node, const char *name, uint32_t k, uint32_t m, uint32_t n_x) {
    const bool serial = lower_ir_serial(l);
    p->pair = p->ends = false;
    p->vectors = n_x == 1 ? 1 : serial ? VECTORS_MOST : 4;
    while (p->vectors / 2 >= n_x) p->vectors /= 2;
    p->rows = p->vectors > 1 ? 2 : serial ? ROWS_MOST : 2;
    if (p->rows > m) p->rows = 1;
    p->tile = p->rows * p->vectors;
    lower_ir_begin(&p->k, l, node, name, serial ? 1 : k > 2048 ? 64 : 32);
}

/* Where results go: to a tree, or to `out` as they are. */
static void product_end(product *p, graph_value result, const tree *end, ir_memory *out) {
    p->ends = end != NULL;
    if (end) tree_end_declare(&p->end, &p->k, end);
    else *out = lower_ir_write(&p->k, "out", result);
}

static void product_memory(product *p) {
    ir_builder *b = p->k.b;
    p->sums = ir_register(b, IR_F32, p->tile * p->k.wide);
    p->joined = p->k.lanes > 1 ? ir_workgroup(b, IR_F32, p->tile * p->k.lanes) : p->sums;
}

/* Tiles of `rows` rows, of which a workgroup takes every groups-th. Closed by ir_end. */
static ir_id tiles_begin(product *p, ir_id tiles) {
    ir_builder *b = p->k.b;
    return ir_loop(b, ir_group(b, 0), tiles, ir_groups(b, 0));
}

/* Stores results: vector v's first is at out_at[v], which holds where holds[v]; row r is `row`[r] of the result, below m. */
static void store_tile(product *p, ir_memory out, const ir_id *row, ir_id m, const ir_id *out_at, const ir_id *holds) {
    lower_ir *k = &p->k;
    ir_builder *b = k->b;
    if (k->lanes > 1) ir_if(b, ir_eq(b, ir_local(b, 0), ir_u32(b, 0)));
    for (uint32_t r = 0; r < p->rows; r++)
        for (uint32_t v = 0; v < p->vectors; v++) {
            const uint32_t i = r * p->vectors + v;
            ir_id sum = k->lanes == 1 ? ir_load(b, p->sums, ir_u32(b, i * k->wide), 1) : ir_load(b, p->joined, ir_u32(b, i * k->lanes), 1);
            ir_if(b, ir_and(b, ir_lt(b, row[r], m), holds[v]));
            if (p->ends) tree_end_store(&p->end, p->vector[v], ir_add(b, row[r], p->to), sum);
            else ir_store(b, out, ir_add(b, out_at[v], row[r]), sum);
            ir_end(b);
        }
    if (k->lanes > 1) ir_end(b);
    if (k->lanes > 1) ir_barrier(b);
}

/* Rows [first, first + m) of the shard (or of other memory), which are rows [to, to + m) of the result; end NULL: that is `out`. */
static beryl_status matmul_shard(lowering *l, const graph_node *node, graph_value result, const tree *end, const matrix *w, const vectors *x, uint32_t shard,
                                 uint32_t first, uint32_t to, uint32_t m, beryl_error *error) {
    if (lower_ir_tiled_wants(l, x->bound, w->k)) {
        const lower_ir_tiled_product tiled = {.x = x->value, .weight = w->value, .out = result, .end = end, .stored = w->stored != NULL, .shard = shard, .first = first, .to = to,
                                              .m = m, .k = w->k, .n = x->n, .bound = x->bound, .x_stride = x->stride, .x_offset = x->offset};
        if (w->stored) lower_bytes(l, m * base_type_row_bytes(w->type, w->k));
        return lower_ir_tiled(l, node, &tiled, error);
    }
    product p;
    product_begin(&p, l, node, "matmul", w->k, m, x->bound);
    lower_ir *k = &p.k;
    ir_builder *b = k->b;
    if (w->stored) {
        lower_ir_weight_stored(&p.w, k, "weights", w->value, shard, w->k);
        lower_bytes(l, m * base_type_row_bytes(w->type, w->k));
    } else {
        lower_ir_weight_plain(&p.w, k, "weights", w->value, w->k);
    }
    p.x = lower_ir_read(k, "x", x->value);
    p.x_aligned = x->offset % k->wide == 0 && x->stride % k->wide == 0;
    ir_memory out = {0};
    product_end(&p, result, end, &out);
    ir_id n = lower_ir_count(k, "n", x->n), x_offset = lower_ir_u32(k, "x_offset", x->offset);
    ir_id row_first = lower_ir_u32(k, "first", first), out_offset = lower_ir_u32(k, "out_offset", to + (end ? 0 : graph_tensor_at(l->g, result)->offset));
    ir_id rows = lower_ir_u32(k, "m", m), x_stride = lower_ir_u32(k, "x_stride", x->stride);
    ir_id out_stride = lower_ir_u32(k, "out_stride", w->m);
    product_memory(&p);
    const uint32_t tiles = (m + p.rows - 1) / p.rows;
    ir_id tiles_id = lower_ir_over(k, lower_ir_plus(k, rows, p.rows - 1), p.rows);
    ir_id begin = lower_ir_times(k, ir_group(b, 1), p.vectors), out_at[VECTORS_MOST], holds[VECTORS_MOST], row[ROWS_MOST];
    ir_id last = ir_sub(b, n, ir_u32(b, 1));
    p.to = out_offset;
    for (uint32_t v = 0; v < p.vectors; v++) {
        ir_id vector = p.vector[v] = lower_ir_plus(k, begin, v);
        holds[v] = ir_lt(b, vector, n);
        p.x_at[v] = ir_fma(b, ir_min(b, vector, last), x_stride, x_offset);
        out_at[v] = ir_fma(b, vector, out_stride, out_offset);
    }
    ir_id tile = tiles_begin(&p, tiles_id), last_row = ir_sub(b, rows, ir_u32(b, 1));
    for (uint32_t r = 0; r < p.rows; r++) {
        row[r] = lower_ir_plus(k, lower_ir_times(k, tile, p.rows), r);
        p.row[r] = ir_add(b, ir_min(b, row[r], last_row), row_first);
    }
    walk_rows(&p);
    store_tile(&p, out, row, rows, out_at, holds);
    ir_end(b);
    return lower_ir_end_3d(k, (lower_count){tiles < GROUPS_MOST ? tiles : GROUPS_MOST, 0}, 1, x->n, p.vectors, (lower_count){1, 0}, 1, error);
}

/* The product `matmul`, and a tree at its end (NULL: none), as the plan's `node`. */
static beryl_status lower_product(lowering *l, const graph_node *node, const graph_node *matmul, const tree *end, beryl_error *error) {
    matrix w;
    vectors x;
    bool taken;
    const graph_value out = matmul->out[0];
    const beryl_status made = lower_ir_matvec_node(l, node, matmul, end, &taken, error);
    if (taken) return made;
    if (!matrix_of(l, matmul->in[1], &w)) return lower_refuse(l, matmul, "a weight that is not whole rows of a known type", error);
    if (!vectors_of(l, matmul->in[0], &x)) return lower_refuse(l, matmul, "vectors with gaps", error);
    if (!w.stored) return matmul_shard(l, node, out, end, &w, &x, 0, 0, 0, w.m, error);
    beryl_status status = BERYL_OK;
    for (uint32_t i = 0; status == BERYL_OK && i < w.stored->n_shard; i++) {
        const store_shard *s = &w.stored->shard[i];
        const uint32_t from = w.first > s->row ? w.first : s->row, last = w.first + w.m < s->row + s->n_row ? w.first + w.m : s->row + s->n_row;
        if (from < last) status = matmul_shard(l, node, out, end, &w, &x, i, from - s->row, from - w.first, last - from, error);
    }
    return status;
}

beryl_status lower_ir_matmul(lowering *l, const graph_node *node, beryl_error *error) {
    return lower_product(l, node, node, NULL, error);
}

/* ---- joined products where a lane does whole rows ------------------------------------------------------------------ */

/* Everything of such a product; false: it is left as it was. Pieces of attention are joined by attention itself. */
static bool joined_walk(const lowering *l, const fused_matvec *f, vectors_walk *v, matrix *w) {
    const bool pair = f->to == FUSED_GEGLU;
    if (f->n_segment == 0 || f->n_segment > FUSED_SEGMENT_MAX || f->from == FUSED_X_MERGE) return false;
    if (!vectors_walk_of(l, f, graph_tensor_at(l->g, f->w[0])->dim[1].size, v) || v->x.bound > JOINED_VECTORS || v->x_any) return false;
    for (uint32_t i = 0; i < f->n_segment; i++)
        if (!matrix_of(l, f->w[i], &w[i]) || !w[i].stored || w[i].stored->n_shard != 1 || w[i].k != v->x.k) return false;
    if (pair && (f->n_segment != 2 || w[0].type != w[1].type || w[0].m != w[1].m)) return false;
    if (!pair && f->to != FUSED_STORE && f->n_segment != 1) return false;
    if (f->to == FUSED_GELU_MUL) {
        vectors_rows slice;
        if (!vectors_rows_of(graph_tensor_at(l->g, f->slice), &slice) || slice.k != w[0].m) return false;
    }
    const uint32_t bindings = 2u * f->n_segment + 1 + (f->to == FUSED_GELU_MUL ? 1 : 0);
    return bindings <= (l->caps->storage_max ? l->caps->storage_max : 8) && (!vectors_worked(f) || lower_ir_vectors_serial_fits(l, f, v));
}

bool lower_ir_joined_fits(const lowering *l, const fused_matvec *f) {
    vectors_walk v;
    matrix w[FUSED_SEGMENT_MAX];
    return lower_ir_serial(l) && joined_walk(l, f, &v, w);
}

typedef struct ending { /* what becomes of sums */
    const fused_matvec *f;
    ir_memory slice;
    ir_id slice_offset, slice_stride, cap;
} ending;

static ir_id ended(product *p, const ending *e, uint32_t row, uint32_t vector, ir_id at_row, ir_id number) {
    ir_builder *b = p->k.b;
    ir_id sum = ir_load(b, p->sums, sum_index(p, row, vector), 1);
    if (e->f->to == FUSED_GEGLU) return ir_mul(b, lower_ir_gelu(&p->k, sum), ir_load(b, p->sums, sum_index(p, row + p->rows / 2, vector), 1));
    if (e->f->to == FUSED_SOFTCAP) return ir_mul(b, e->cap, ir_tanh(b, ir_div(b, sum, e->cap)));
    if (e->f->to == FUSED_STORE) return sum;
    ir_id at = ir_add(b, ir_fma(b, number, e->slice_stride, e->slice_offset), at_row);
    return ir_mul(b, lower_ir_gelu(&p->k, sum), ir_load(b, e->slice, at, 1));
}

static void joined_weight(product *p, lower_ir_weight *to, const matrix *w, uint32_t i, ir_id *first) {
    static const char *const buffers[] = {"weights", "weights_b", "weights_c"}, *const firsts[] = {"first", "first_b", "first_c"};
    static const char *const planes[FUSED_SEGMENT_MAX][PACK_PLANE_MAX] = {
        {"a0", "a1", "a2", "a3"}, {"b0", "b1", "b2", "b3"}, {"c0", "c1", "c2", "c3"}};
    lower_ir *k = &p->k;
    const graph_pack_layout *layout = &w->stored->shard[0].layout;
    lower_ir_weight_made(to, k, w->type, w->k, lower_ir_shard(k, buffers[i], w->value, 0, lower_ir_weight_element(w->type)));
    to->plane[0] = ir_u32(k->b, 0);
    for (uint32_t j = 1; j < layout->n_plane; j++) to->plane[j] = lower_ir_u32(k, planes[i][j], (uint32_t)(layout->offset[j] / 4));
    *first = lower_ir_u32(k, firsts[i], w->first);
    lower_bytes(k->l, w->m * base_type_row_bytes(w->type, w->k));
}

beryl_status lower_ir_joined(lowering *l, const graph_node *node, const fused_matvec *f, beryl_error *error) {
    static const char *const outs[] = {"out", "out_b", "out_c"}, *const offsets[] = {"out_offset", "out_offset_b", "out_offset_c"};
    vectors_walk v;
    matrix w[FUSED_SEGMENT_MAX];
    lower_ir_weight weights[FUSED_SEGMENT_MAX];
    ir_memory out[FUSED_SEGMENT_MAX];
    ir_id first[FUSED_SEGMENT_MAX], out_offset[FUSED_SEGMENT_MAX], n, x_offset, x_stride;
    uint32_t begin[FUSED_SEGMENT_MAX + 1] = {0}, widest = 0;
    ending e = {.f = f};
    product p;
    if (!joined_walk(l, f, &v, w)) return lower_refuse(l, node, "this joined product", error);
    const bool made = vectors_worked(f), pair = f->to == FUSED_GEGLU;
    const beryl_status status = made ? lower_ir_vectors_serial(l, node, f, &v, error) : BERYL_OK;
    if (status != BERYL_OK) return status;
    for (uint32_t i = 0; i < f->n_segment; i++) widest = w[i].m > widest ? w[i].m : widest;
    product_begin(&p, l, node, "matvec", v.x.k, widest, v.x.bound);
    if (pair) p.pair = true, p.rows = p.rows < 2 ? 2 : p.rows, p.tile = p.rows * p.vectors;
    const uint32_t own = pair ? p.rows / 2 : p.rows, n_segment = pair ? 1 : f->n_segment;
    lower_ir *k = &p.k;
    ir_builder *b = k->b;
    for (uint32_t i = 0; i < f->n_segment; i++) joined_weight(&p, &weights[i], &w[i], i, &first[i]);
    p.x = made ? lower_ir_scratch(k, "x", LOWER_IR_SCRATCH_X, (uint64_t)v.x.bound * v.x.k * 4, IR_F32, IR_READ) : lower_ir_read(k, "x", f->x);
    x_offset = lower_ir_u32(k, "x_offset", made ? 0 : v.x.offset);
    x_stride = lower_ir_u32(k, "x_stride", made ? v.x.k : v.x.stride);
    p.x_aligned = (made ? v.x.k : v.x.offset | v.x.stride) % k->wide == 0;
    n = lower_ir_count(k, "n", v.x.n);
    for (uint32_t i = 0; i < n_segment; i++) {
        out[i] = lower_ir_write(k, outs[i], f->out[i]);
        out_offset[i] = lower_ir_u32(k, offsets[i], graph_tensor_at(l->g, f->out[i])->offset);
        begin[i + 1] = begin[i] + (w[i].m + own - 1) / own;
    }
    if (f->to == FUSED_SOFTCAP) e.cap = lower_ir_f32(k, "cap", f->cap);
    if (f->to == FUSED_GELU_MUL) {
        vectors_rows slice;
        vectors_rows_of(graph_tensor_at(l->g, f->slice), &slice);
        e.slice = lower_ir_read(k, "slice", f->slice);
        e.slice_offset = lower_ir_u32(k, "slice_offset", slice.offset);
        e.slice_stride = lower_ir_u32(k, "slice_stride", slice.stride);
    }
    product_memory(&p);
    ir_id vector[VECTORS_MOST], last = ir_sub(b, n, ir_u32(b, 1));
    for (uint32_t i = 0; i < p.vectors; i++) {
        vector[i] = lower_ir_plus(k, lower_ir_times(k, ir_group(b, 1), p.vectors), i);
        p.x_at[i] = ir_fma(b, ir_min(b, vector[i], last), x_stride, x_offset);
    }
    ir_id tile = tiles_begin(&p, ir_u32(b, begin[n_segment]));
    for (uint32_t i = 0; i < n_segment; i++) {
        ir_id row[ROWS_MOST], at = lower_ir_times(k, lower_ir_plus(k, tile, 0 - begin[i]), own);
        if (n_segment > 1) ir_if(b, ir_and(b, ir_ge(b, tile, ir_u32(b, begin[i])), ir_lt(b, tile, ir_u32(b, begin[i + 1]))));
        p.w = weights[i];
        if (pair) p.other = weights[1];
        for (uint32_t r = 0; r < p.rows; r++) {
            row[r] = lower_ir_plus(k, at, r % own);
            p.row[r] = ir_add(b, ir_min(b, row[r], ir_u32(b, w[i].m - 1)), first[r / own]);
            if (!pair) p.row[r] = ir_add(b, ir_min(b, row[r], ir_u32(b, w[i].m - 1)), first[i]);
        }
        walk_rows(&p);
        for (uint32_t r = 0; r < own; r++)
            for (uint32_t x = 0; x < p.vectors; x++) {
                ir_if(b, ir_and(b, ir_lt(b, row[r], ir_u32(b, w[i].m)), ir_lt(b, vector[x], n)));
                ir_store(b, out[i], ir_add(b, ir_fma(b, vector[x], ir_u32(b, w[i].m), out_offset[i]), row[r]), ended(&p, &e, r, x, row[r], vector[x]));
                ir_end(b);
            }
        if (n_segment > 1) ir_end(b);
    }
    ir_end(b);
    const uint32_t tiles = begin[n_segment];
    return lower_ir_end_3d(k, (lower_count){tiles < GROUPS_MOST ? tiles : GROUPS_MOST, 0}, 1, v.x.n, p.vectors, (lower_count){1, 0}, 1, error);
}

/* ---- experts --------------------------------------------------------------------------------------------------- */

/* Rows of the shard for vectors of one expert at a time: by its list, or without one for a pair. */
static beryl_status experts_shard(lowering *l, const graph_node *node, const graph_node *matmul, const tree *end, const store_tensor *stored, uint32_t shard_index,
                                  const lower_ir_grouped *by, beryl_error *error) {
    const graph_tensor *x = graph_tensor_at(l->g, matmul->in[0]), *w = graph_tensor_at(l->g, matmul->in[1]);
    const graph_tensor *ids = graph_tensor_at(l->g, matmul->in[2]);
    const store_shard *shard = &stored->shard[shard_index];
    const uint32_t m = w->dim[1].size, n_used = ids->dim[1].size, each = by ? lower_ir_grouped_each(by) : 1;
    product p;
    product_begin(&p, l, node, by ? "matmul_grouped" : "matmul_id", w->dim[2].size, m, each);
    lower_ir *k = &p.k;
    ir_builder *b = k->b;
    lower_ir_weight_stored(&p.w, k, "weights", matmul->in[1], shard_index, w->dim[2].size);
    p.x = lower_ir_read(k, "x", matmul->in[0]);
    p.x_aligned = lower_ir_aligned(k, x);
    ir_memory list = by ? lower_ir_grouped_list(k, by) : lower_ir_read(k, "ids", matmul->in[2]), out = {0};
    product_end(&p, matmul->out[0], end, &out);
    ir_id x_offset = lower_ir_u32(k, "x_offset", x->offset), ids_offset = lower_ir_u32(k, "ids_offset", ids->offset);
    ir_id out_offset = lower_ir_u32(k, "out_offset", end ? 0 : graph_tensor_at(l->g, matmul->out[0])->offset);
    p.to = out_offset;
    ir_id n = lower_ir_count(k, "pairs", lower_count_times(lower_count_of(ids->dim[0]), n_used)), at, id, first = IR_NO_ID;
    product_memory(&p);
    const uint32_t tiles = (m + p.rows - 1) / p.rows;
    if (by) {
        id = ir_group(b, 2);
        lower_ir_grouped_range(k, list, id, &first, &n);
        at = ir_loop(b, lower_ir_times(k, ir_group(b, 1), p.vectors), n, lower_ir_times(k, ir_groups(b, 1), p.vectors));
    } else {
        at = ir_fma(b, ir_group(b, 2), ir_groups(b, 1), ir_group(b, 1));
        ir_if(b, ir_lt(b, at, n));
        ir_id place = ir_add(b, lower_ir_times(k, lower_ir_over(k, at, n_used), ids->stride[0]), lower_ir_rest(k, at, n_used));
        id = ir_cast(b, IR_U32, ir_load(b, list, ir_add(b, ids_offset, place), 1));
        id = ir_select(b, ir_lt(b, id, ir_u32(b, w->dim[0].size)), id, ir_u32(b, 0));
    }
    ir_id out_at[VECTORS_MOST], holds[VECTORS_MOST], row[ROWS_MOST], kept[ROWS_MOST], last = ir_sub(b, n, ir_u32(b, 1));
    for (uint32_t v = 0; v < p.vectors; v++) {
        ir_id i = lower_ir_plus(k, at, v), pair = by ? lower_ir_grouped_pair(k, by, list, first, ir_min(b, i, last)) : i;
        p.vector[v] = pair;
        holds[v] = ir_lt(b, i, n);
        p.x_at[v] = ir_add(b, x_offset, lower_ir_times(k, lower_ir_over(k, pair, n_used), x->stride[0]));
        if (x->dim[1].size > 1) p.x_at[v] = ir_add(b, p.x_at[v], lower_ir_times(k, lower_ir_rest(k, pair, n_used), x->stride[1]));
        out_at[v] = ir_add(b, out_offset, lower_ir_times(k, pair, m));
    }
    ir_id tile = tiles_begin(&p, ir_u32(b, tiles));
    for (uint32_t r = 0; r < p.rows; r++) { /* rows of other shards begin far above this one's */
        row[r] = lower_ir_plus(k, lower_ir_times(k, tile, p.rows), r);
        ir_id place = lower_ir_plus(k, ir_add(b, lower_ir_times(k, id, m), row[r]), 0 - shard->row);
        p.row[r] = ir_min(b, place, ir_u32(b, shard->n_row - 1));
        kept[r] = ir_select(b, ir_eq(b, p.row[r], place), row[r], ir_u32(b, m));
    }
    walk_rows(&p);
    store_tile(&p, out, kept, ir_u32(b, m), out_at, holds);
    ir_end(b);
    ir_end(b);
    const lower_count groups = {tiles < GROUPS_MOST ? tiles : GROUPS_MOST, 0};
    if (by) return lower_ir_end_3d(k, groups, 1, (lower_count){each, 0}, p.vectors, (lower_count){by->n_expert, 0}, 1, error);
    return lower_ir_end_3d(k, groups, 1, lower_count_of(ids->dim[0]), 1, (lower_count){n_used, 0}, 1, error);
}

/* What is in the way of such a product; NULL: nothing. */
static const char *experts_obstacle(const lowering *l, const graph_node *matmul) {
    const graph_tensor *x = graph_tensor_at(l->g, matmul->in[0]), *w = graph_tensor_at(l->g, matmul->in[1]), *ids = graph_tensor_at(l->g, matmul->in[2]);
    const store_tensor *stored = lower_weight(l, matmul->in[1]);
    if (!stored || w->offset || w->dim[0].extent || w->dim[1].extent || w->dim[2].extent || w->stride[2] != 1 ||
        w->stride[1] != w->dim[2].size || w->stride[0] != (uint64_t)w->stride[1] * w->dim[1].size || !lower_ir_weight_known(stored->type))
        return "experts that are not one whole weight";
    if ((uint64_t)w->dim[0].size * w->dim[1].size > INT32_MAX) return "so many experts";
    if (ids->dim[1].extent || x->dim[1].extent || ids->stride[1] != 1 || x->stride[2] != 1) return "vectors or indices with gaps";
    return NULL;
}

/* The same as lower_product. */
static beryl_status lower_experts_product(lowering *l, const graph_node *node, const graph_node *matmul, const tree *end, beryl_error *error) {
    const graph_tensor *w = graph_tensor_at(l->g, matmul->in[1]), *ids = graph_tensor_at(l->g, matmul->in[2]);
    const store_tensor *stored = lower_stored(l, matmul->in[1]);
    const char *obstacle = experts_obstacle(l, matmul);
    if (obstacle) return lower_refuse(l, matmul, obstacle, error);
    const uint32_t used = ids->dim[1].size < w->dim[0].size ? ids->dim[1].size : w->dim[0].size; /* by one token */
    lower_bytes(l, base_type_row_bytes(stored->type, w->dim[2].size) * w->dim[1].size * used);
    lower_ir_grouped by;
    vectors v;
    const bool grouped = lower_ir_grouped_of(l, matmul, &by), tiled = grouped && !lower_ir_serial(l) && vectors_of(l, matmul->in[0], &v);
    beryl_status status = grouped ? lower_ir_group_pairs(l, node, &by, error) : BERYL_OK;
    if (status == BERYL_OK && tiled) {
        const lower_ir_tiled_product all = {.x = matmul->in[0], .weight = matmul->in[1], .out = matmul->out[0], .end = end, .stored = true, .m = w->dim[1].size,
                                            .k = w->dim[2].size, .n = v.n, .bound = v.bound, .x_stride = v.stride, .x_offset = v.offset, .by = &by};
        return lower_ir_tiled(l, node, &all, error);
    }
    for (uint32_t i = 0; status == BERYL_OK && i < stored->n_shard; i++) status = experts_shard(l, node, matmul, end, stored, i, grouped ? &by : NULL, error);
    return status;
}

beryl_status lower_ir_matmul_id(lowering *l, const graph_node *node, beryl_error *error) {
    return lower_experts_product(l, node, node, NULL, error);
}

/* ---- with a tree at the end ------------------------------------------------------------------------------------------ */

beryl_status lower_ir_product(lowering *l, const graph_node *node, const tree *t, beryl_error *error) {
    return t->product->op == OP_MATMUL ? lower_product(l, node, t->product, t, error) : lower_experts_product(l, node, t->product, t, error);
}

bool lower_ir_product_fits(const graph *g, const graph_store *store, const tree *t) {
    const lowering l = {.g = g, .store = (graph_store *)(uintptr_t)store, .caps = device_caps_of(store->device)};
    const bool experts = t->product->op == OP_MATMUL_ID;
    matrix w;
    vectors x;
    if (t->n_stat || t->n_sum || t->choice || !graph_same_shape(t->shape, graph_tensor_at(g, t->product->out[0]))) return false;
    if (experts ? experts_obstacle(&l, t->product) != NULL : !matrix_of(&l, t->product->in[1], &w) || !vectors_of(&l, t->product->in[0], &x)) return false;
    if (t->n_tensor + t->product->n_in > (l.caps->storage_max ? l.caps->storage_max : 8)) return false;
    if (!lower_ir_serial(&l)) return true;
    for (uint32_t i = 0; i < t->n_value; i++) /* where a lane is all, it computes a tree at a product's end one by one */
        if (t->values[i].kind == TREE_NODE && tree_is_dear(t->values[i].op)) return false;
    return !experts && (x.bound <= VECTORS_MOST || lower_ir_tiled_wants(&l, x.bound, w.k));
}

/* ---- rows by index ----------------------------------------------------------------------------------------------- */

enum { GATHER_LANES = 64 };

/* Index `i` of the list, outside of the table 0. */
static ir_id index_at(lower_ir *k, ir_memory ids, ir_id at, ir_id n_row) {
    ir_builder *b = k->b;
    ir_id id = ir_cast(b, IR_U32, ir_load(b, ids, at, 1));
    return ir_select(b, ir_lt(b, id, n_row), id, ir_u32(b, 0));
}

/* Words as they are; a lane an element. */
static beryl_status gather_words(lowering *l, const graph_node *node, lower_count n, beryl_error *error) {
    const graph_tensor *table = graph_tensor_at(l->g, node->in[0]), *ids = graph_tensor_at(l->g, node->in[1]);
    const graph_tensor *out = graph_tensor_at(l->g, node->out[0]);
    const uint32_t d = table->rank == 2 ? table->dim[1].size : 1;
    lower_ir k;
    lower_ir_begin(&k, l, node, "gather_words", GATHER_LANES);
    ir_builder *b = k.b;
    ir_memory from = lower_ir_bind(&k, "table", node->in[0], IR_U32, IR_READ), index = lower_ir_read(&k, "ids", node->in[1]);
    ir_memory to = lower_ir_bind(&k, "out", node->out[0], IR_U32, IR_READ_WRITE);
    ir_id count = lower_ir_count(&k, "n", n), n_row = lower_ir_count(&k, "n_row", lower_count_of(table->dim[0]));
    ir_id table_offset = lower_ir_u32(&k, "table_offset", table->offset), ids_offset = lower_ir_u32(&k, "ids_offset", ids->offset);
    ir_id out_offset = lower_ir_u32(&k, "out_offset", out->offset);
    ir_id lane = lower_ir_lane(&k), row = lower_ir_over(&k, lane, d), column = lower_ir_rest(&k, lane, d);
    ir_if(b, ir_lt(b, row, count));
    ir_id id = index_at(&k, index, ir_add(b, ids_offset, row), n_row);
    ir_id at = ir_add(b, ir_add(b, table_offset, lower_ir_times(&k, id, table->stride[0])), column);
    ir_store(b, to, ir_add(b, out_offset, lane), ir_load(b, from, at, 1));
    ir_end(b);
    return lower_ir_end(&k, lower_count_times(n, d), GATHER_LANES, error);
}

static void store_run(lower_ir *k, ir_memory out, ir_id at, bool aligned, const ir_id *values) {
    ir_builder *b = k->b;
    for (uint32_t i = 0; i < LOWER_IR_RUN / k->wide; i++) {
        ir_id to = lower_ir_plus(k, at, i * k->wide);
        if (aligned) ir_store(b, out, to, values[i]);
        for (uint32_t e = 0; !aligned && e < k->wide; e++) ir_store(b, out, lower_ir_plus(k, to, e), ir_extract(b, values[i], e));
    }
}

/* A lane a chunk; what is left of a plain row is one more. */
static beryl_status gather_shard(lowering *l, const graph_node *node, const matrix *w, lower_count n, uint32_t shard, beryl_error *error) {
    const graph_tensor *ids = graph_tensor_at(l->g, node->in[1]), *out = graph_tensor_at(l->g, node->out[0]);
    const store_shard *place = w->stored ? &w->stored->shard[shard] : NULL;
    lower_ir k;
    lower_ir_weight table;
    lower_ir_begin(&k, l, node, "gather_rows", GATHER_LANES);
    ir_builder *b = k.b;
    if (place) lower_ir_weight_stored(&table, &k, "table", w->value, shard, w->k);
    else lower_ir_weight_plain(&table, &k, "table", w->value, w->k);
    ir_memory index = lower_ir_read(&k, "ids", node->in[1]), to = lower_ir_write(&k, "out", node->out[0]);
    ir_id count = lower_ir_count(&k, "n", n), ids_offset = lower_ir_u32(&k, "ids_offset", ids->offset);
    ir_id out_offset = lower_ir_u32(&k, "out_offset", out->offset);
    const uint32_t whole = table.blocks * table.chunks, rest = table.plain ? w->k % LOWER_IR_RUN : 0, units = whole + (rest > 0);
    const bool aligned = w->k % k.wide == 0 && out->offset % k.wide == 0;
    ir_id lane = lower_ir_lane(&k), i = lower_ir_over(&k, lane, units), unit = lower_ir_rest(&k, lane, units);
    ir_if(b, ir_lt(b, i, count));
    ir_id id = index_at(&k, index, ir_add(b, ids_offset, i), ir_u32(b, w->m));
    ir_id row = lower_ir_plus(&k, id, place ? 0 - place->row : 0), to_row = ir_add(b, out_offset, lower_ir_times(&k, i, w->k));
    ir_if(b, ir_lt(b, row, ir_u32(b, place ? place->n_row : w->m)));
    ir_id factor = ir_f32(b, node->attr.gather_rows.factor);
    if (rest) ir_if(b, ir_lt(b, unit, ir_u32(b, whole)));
    if (whole) {
        lower_ir_chunk c;
        ir_id block = lower_ir_over(&k, unit, table.chunks), part = lower_ir_rest(&k, unit, table.chunks), values[4];
        lower_ir_chunk_load(&table, row, block, part, &c);
        for (uint32_t run = 0; run < table.runs; run++) {
            lower_ir_run_load(&table, &c, run, values);
            for (uint32_t v = 0; v < LOWER_IR_RUN / k.wide; v++) values[v] = ir_mul(b, values[v], ir_splat(b, factor, k.wide));
            store_run(&k, to, ir_add(b, to_row, lower_ir_run_at(&table, block, part, run)), aligned, values);
        }
    }
    if (rest) {
        ir_else(b);
        for (uint32_t e = w->k - rest; e < w->k; e++) {
            ir_id column = ir_u32(b, e);
            ir_store(b, to, ir_add(b, to_row, column), ir_mul(b, lower_ir_element_load(&table, row, column), factor));
        }
        ir_end(b);
    }
    ir_end(b);
    ir_end(b);
    return lower_ir_end(&k, lower_count_times(n, units), GATHER_LANES, error);
}

beryl_status lower_ir_gather_rows(lowering *l, const graph_node *node, beryl_error *error) {
    const graph_tensor *table = graph_tensor_at(l->g, node->in[0]), *ids = graph_tensor_at(l->g, node->in[1]);
    const uint32_t last = table->rank - 1u;
    lower_count n = {1, 0};
    if (!graph_is_contiguous(ids)) return lower_refuse(l, node, "indices with gaps", error);
    for (uint32_t i = 0; i < ids->rank; i++) {
        if (ids->dim[i].extent && i > 0) return lower_refuse(l, node, "indices over an inner extent", error);
        n = ids->dim[i].extent ? lower_count_of(ids->dim[i]) : lower_count_times(n, ids->dim[i].size);
    }
    if (table->dim[last].extent && table->rank == 2) return lower_refuse(l, node, "rows of varying length", error);
    const bool words = table->type == TYPE_I32 || (table->type == TYPE_F32 && node->attr.gather_rows.factor == 1);
    const store_tensor *stored = lower_stored(l, node->in[0]);
    if (words && (table->rank == 1 || table->stride[1] == 1) && (!stored || stored->n_shard == 1)) return gather_words(l, node, n, error);
    matrix w;
    if (table->rank == 1) {
        w = (matrix){.value = node->in[0], .type = table->type, .m = table->dim[0].size, .k = 1};
        if (table->dim[0].extent || base_type_is_quantised(table->type)) return lower_refuse(l, node, "a table that varies in length", error);
    } else if (!matrix_of(l, node->in[0], &w) || w.first) {
        return lower_refuse(l, node, "a table that is not whole or varies in length", error);
    }
    beryl_status status = BERYL_OK;
    const uint32_t n_shard = w.stored ? w.stored->n_shard : 1;
    for (uint32_t i = 0; status == BERYL_OK && i < n_shard; i++) status = gather_shard(l, node, &w, n, i, error);
    return status;
}
