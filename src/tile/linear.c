/* linear.c - products with weights of any type, alone, joined and with experts.
 *
 * A workgroup takes `rows` rows of the weight for `vectors` vectors at once, so that a weight is
 * unpacked once for all of them. Lanes share the chunks of a row and join their sums in a tree;
 * where one lane is all, it walks the row itself. A weight in shards is a dispatch a shard. */
#include "tile/bytes.h"
#include "tile/contract_end.h"
#include "tile/product.h"
#include "tile/tiled.h"
#include "tile/matvec_fused.h"
#include "tile/vectors.h"
#include "tile/products.h"
#include "tile/walk.h"
#include "base/build.h"
#include "base/error.h"

#include <string.h>

enum { GROUPS_MAX = 32768, ROWS = 4, ROWS_MAX = 8, SPAN = 8, VECTORS_MAX = 16, JOINED_MAX = 32 };

/* ---- products -------------------------------------------------------------------------------- */

typedef struct product { /* one dispatch being made */
    tile_kernel k;
    tile_weight w, other; /* other: of the second half of the rows, where `pair` */
    bool pair;
    uint32_t rows, vectors, tile; /* tile: rows times vectors */
    uint32_t wide;                /* of a sum */
    bool x_aligned, rounds;       /* rounds: vectors to bytes, by the group */
    bool turns;                   /* loops in place of copies */
    bool shuffles;                /* each lane loads a vector, and tells the others */
    tile_bytes bytes;
    /* joined: in turns a register of its own, since what a loop counts through is an array, which
     * the sums are not to be; where else one lane is all, the sums */
    ir_memory x, sums, joined;
    uint32_t apart;                         /* results in `joined` */
    ir_id row[ROWS_MAX], x_at[VECTORS_MAX]; /* rows of the shard; where each vector begins */
    bool ends;                              /* a tree stands at the end, */
    tree_walk end;
    ir_id vector[VECTORS_MAX], to; /* for these vectors, from this column on */
} product;

static ir_id sum_index(product *p, uint32_t row, uint32_t vector) {
    return ir_u32(p->k.b, (row * p->vectors + vector) * p->wide);
}

static const tile_weight *weight_of(const product *p, uint32_t row) {
    return p->pair && row >= p->rows / 2 ? &p->other : &p->w;
}

/* sum + x y, element by element; of a scalar sum: all of them. */
static ir_id add_product(product *p, ir_id x, ir_id y, ir_id sum) {
    ir_builder *b = p->k.b;
    if (p->wide > 1) return ir_fma(b, x, y, sum);
    for (uint32_t e = 0; e < p->k.wide; e++)
        sum = ir_fma(b, ir_extract(b, x, e), ir_extract(b, y, e), sum);
    return sum;
}

static void add_chunk(product *p, ir_id block, ir_id part) {
    tile_kernel *k = &p->k;
    ir_builder *b = k->b;
    const uint32_t n = TILE_RUN / k->wide;
    tile_chunk chunks[ROWS_MAX];
    for (uint32_t r = 0; r < p->rows; r++)
        tile_chunk_load(weight_of(p, r), p->row[r], block, part, &chunks[r]);
    for (uint32_t run = 0; run < p->w.runs; run++) {
        ir_id x[VECTORS_MAX][4], values[4], at = tile_run_at(&p->w, block, part, run);
        for (uint32_t v = 0; v < p->vectors; v++)
            tile_load_run(k, p->x, ir_add(b, p->x_at[v], at), p->x_aligned, x[v]);
        for (uint32_t r = 0; r < p->rows; r++) {
            tile_run_load(weight_of(p, r), &chunks[r], run, values);
            for (uint32_t v = 0; v < p->vectors; v++) {
                ir_id at_sum = sum_index(p, r, v), sum = ir_load(b, p->sums, at_sum, p->wide);
                for (uint32_t i = 0; i < n; i++) sum = add_product(p, values[i], x[v][i], sum);
                ir_store(b, p->sums, at_sum, sum);
            }
        }
    }
}

/* Of each vector `width` elements from `at` on. */
static void load_vectors(product *p, ir_id at, uint32_t width, ir_id x[VECTORS_MAX]) {
    tile_kernel *k = &p->k;
    for (uint32_t v = 0; v < (p->shuffles ? p->vectors / SPAN : p->vectors); v++) {
        ir_id from = ir_add(k->b, p->x_at[v], at);
        x[v] = width == 1 ? ir_load(k->b, p->x, from, 1)
                          : tile_load_vector(k, p->x, from, p->x_aligned);
    }
    for (uint32_t v = p->shuffles ? p->vectors : 0; v-- > 0;)
        x[v] = ir_subgroup_broadcast(k->b, x[v / SPAN], v % SPAN);
}

/* A loop from 0, unless it has one turn; whether it is there. */
static bool turns_begin(ir_builder *b, uint32_t to, uint32_t step, ir_id *at) {
    *at = ir_u32(b, 0);
    if (to > step) *at = ir_loop(b, *at, ir_u32(b, to), ir_u32(b, step));
    return to > step;
}

/* A block of each row, where lanes are a vector: a few elements a turn, since compilers of such
 * devices take long over what is written out. */
static void add_block(product *p, ir_id block) {
    tile_kernel *k = &p->k;
    ir_builder *b = k->b;
    const uint32_t all = p->w.plain ? TILE_RUN : base_type_block(p->w.type),
                   span = tile_weight_span(p->w.type);
    ir_id start = tile_mul(b, block, all), first, turn, x[VECTORS_MAX];
    tile_chunk chunks[ROWS_MAX];
    for (uint32_t r = 0; r < p->rows; r++)
        tile_block_open(weight_of(p, r), p->row[r], block, &chunks[r]);
    const bool spans = turns_begin(b, all, span, &first);
    for (uint32_t r = 0; r < p->rows; r++) tile_span_open(weight_of(p, r), first, &chunks[r]);
    const bool turns = turns_begin(b, span, k->wide, &turn);
    ir_id element = ir_add(b, first, turn), at = ir_add(b, start, element);
    load_vectors(p, at, k->wide, x);
    for (uint32_t r = 0; r < p->rows; r++) {
        ir_id w =
            tile_elements_load(weight_of(p, r), &chunks[r], p->w.plain ? at : element, k->wide);
        for (uint32_t v = 0; v < p->vectors; v++) {
            ir_id at_sum = sum_index(p, r, v), sum = ir_load(b, p->sums, at_sum, 1);
            ir_store(b, p->sums, at_sum, add_product(p, w, x[v], sum));
        }
    }
    if (turns) ir_end(b);
    if (spans) ir_end(b);
}

/* A chunk of each row for one vector, in the same way: what is loaded of it serves all its runs. */
static void add_quarters(product *p, ir_id block, ir_id part) {
    tile_kernel *k = &p->k;
    ir_builder *b = k->b;
    ir_id start = tile_run_at(&p->w, block, ir_u32(b, 0), 0), first[TILE_RUNS_MAX], quarter;
    tile_chunk chunks[ROWS_MAX][TILE_RUNS_MAX];
    for (uint32_t run = 0; run < p->w.runs; run++)
        first[run] = p->w.plain ? start : tile_run_in_block(&p->w, part, run);
    for (uint32_t r = 0; r < p->rows; r++) {
        tile_block_open(weight_of(p, r), p->row[r], block, &chunks[r][0]);
        for (uint32_t run = p->w.runs; run-- > 0;) {
            chunks[r][run] = chunks[r][0];
            tile_span_open(weight_of(p, r), first[run], &chunks[r][run]);
        }
    }
    turns_begin(b, TILE_RUN, k->wide, &quarter);
    for (uint32_t run = 0; run < p->w.runs; run++) {
        ir_id element = ir_add(b, first[run], quarter),
              at = p->w.plain ? element : ir_add(b, start, element);
        ir_id x = tile_load_vector(k, p->x, ir_add(b, p->x_at[0], at), p->x_aligned);
        for (uint32_t r = 0; r < p->rows; r++) {
            ir_id w = tile_elements_load(weight_of(p, r), &chunks[r][run], element, k->wide);
            ir_id sum = ir_load(b, p->sums, sum_index(p, r, 0), 1);
            ir_store(b, p->sums, sum_index(p, r, 0), add_product(p, w, x, sum));
        }
    }
    ir_end(b);
}

/* What is left of plain rows after whole runs. */
static void add_rest(product *p) {
    tile_kernel *k = &p->k;
    ir_builder *b = k->b;
    if (!p->w.plain || p->w.n % TILE_RUN == 0) return;
    ir_id from = tile_mul(b, tile_div(b, p->w.row, TILE_RUN), TILE_RUN);
    ir_id i = ir_loop(b, k->lanes == 1 ? from : ir_add(b, ir_local(b, 0), from), p->w.row,
                      ir_u32(b, k->lanes));
    for (uint32_t r = 0; r < p->rows; r++) {
        ir_id value = tile_element_load(weight_of(p, r), p->row[r], i), x[VECTORS_MAX];
        load_vectors(p, i, 1, x);
        for (uint32_t v = 0; v < p->vectors; v++) {
            ir_id at = sum_index(p, r, v);
            ir_store(b, p->sums, at, ir_fma(b, value, x[v], ir_load(b, p->sums, at, 1)));
        }
    }
    ir_end(b);
}

static void walk_bytes(product *p) {
    const tile_weight *w[ROWS_MAX];
    ir_id sums[ROWS_MAX * VECTORS_MAX];
    for (uint32_t r = 0; r < p->rows; r++) w[r] = weight_of(p, r);
    tile_bytes_walk(&p->bytes, w, p->row, sums);
    for (uint32_t i = 0; i < p->tile; i++)
        ir_store(p->k.b, p->sums, ir_u32(p->k.b, i * p->wide), sums[i]);
}

/* The sums over the whole rows, joined[i * apart] of the first lane. */
static void walk_rows(product *p) {
    tile_kernel *k = &p->k;
    ir_builder *b = k->b;
    if (p->rounds) {
        walk_bytes(p);
        return;
    }
    for (uint32_t i = 0; i < p->tile; i++)
        ir_store(b, p->sums, ir_u32(b, i * p->wide), ir_number(b, IR_F32, p->wide, 0));
    const uint32_t chunks = p->turns && p->vectors > 1 ? 1 : p->w.chunks;
    ir_id whole = p->w.plain ? tile_div(b, p->w.row, TILE_RUN) : tile_mul(b, p->w.row, chunks);
    ir_id chunk =
        ir_loop(b, k->lanes == 1 ? ir_u32(b, 0) : ir_local(b, 0), whole, ir_u32(b, k->lanes));
    ir_id block = tile_div(b, chunk, chunks), part = tile_rem(b, chunk, chunks);
    if (p->turns && p->vectors > 1) add_block(p, block);
    else if (p->turns) add_quarters(p, block, part);
    else add_chunk(p, block, part);
    ir_end(b);
    add_rest(p);
    for (uint32_t i = 0; i < p->tile; i++) {
        ir_id sum = tile_sum_vector(b, ir_load(b, p->sums, ir_u32(b, i * p->wide), p->wide));
        ir_id at = ir_u32(b, i * p->apart);
        ir_store(b, p->joined, k->lanes == 1 ? at : ir_add(b, at, ir_local(b, 0)), sum);
    }
    for (uint32_t half = k->lanes / 2; half > 0; half /= 2) {
        ir_barrier(b);
        ir_if(b, ir_lt(b, ir_local(b, 0), ir_u32(b, half)));
        for (uint32_t i = 0; i < p->tile; i++) {
            ir_id at = tile_add(b, ir_local(b, 0), i * k->lanes), other = tile_add(b, at, half);
            ir_store(b, p->joined, at,
                     ir_add(b, ir_load(b, p->joined, at, 1), ir_load(b, p->joined, other, 1)));
        }
        ir_end(b);
    }
    if (k->lanes > 1) ir_barrier(b);
}

/* Rows and vectors at once, lanes: what registers hold and what keeps lanes busy. */
static void product_begin(product *p, lowering *l, const char *name, const base_type *types,
                          uint32_t n_type, uint32_t k, uint32_t m, uint32_t n_x) {
    const bool serial = tile_serial(l);
    p->pair = p->ends = p->shuffles = false;
    p->vectors = n_x == 1 ? 1 : serial && !device_makes_vectors(l->caps) ? SPAN : 4;
    while (p->vectors / 2 >= n_x) p->vectors /= 2;
    p->rows = device_makes_vectors(l->caps) ? ROWS : p->vectors > 1 ? 2 : serial ? ROWS : 2;
    if (p->rows > m) p->rows = 1;
    p->rounds = serial && tile_bytes_fits(l, types, n_type, k, p->vectors);
    if (p->rounds) p->rows = 1; /* memory is read as one stream, which is twice as fast */
    p->tile = p->rows * p->vectors;
    if (serial) tile_begin_items(&p->k, l, name);
    else tile_begin(&p->k, l, name, k > 2048 ? 64 : 32);
    /* of one vector where a lane may take any number of turns: they are four times as many */
    p->turns = device_makes_vectors(l->caps) && (p->vectors > 1 || !l->caps->loop_max);
    p->wide = device_makes_vectors(l->caps) ? 1 : p->k.wide;
}

/* Of many vectors, where lanes are a thread's vectors of eight, each of which loads alone. */
static void product_shuffle(product *p, uint32_t n_x) {
    const device_caps *caps = p->k.l->caps;
    const bool many = n_x > 512; /* worth a longer text */
    p->shuffles = !BUILD_IS_MODULE && p->turns && !p->rounds && caps->subgroups &&
                  caps->subgroup_size == SPAN && n_x >= SPAN && p->k.n_item % SPAN == 0;
    if (!p->shuffles) return;
    ir_subgroup(p->k.b, SPAN);
    p->vectors = many ? VECTORS_MAX : SPAN;
    p->rows = many && p->rows > 1 ? ROWS_MAX : p->rows;
    p->tile = p->rows * p->vectors;
}

/* Where results go: to a tree, or to `out` as they are. */
static void product_end(product *p, graph_value result, const tree *end, ir_memory *out) {
    p->ends = end != NULL;
    if (end) tree_end_declare(&p->end, &p->k, end);
    else *out = tile_write(&p->k, "out", result);
}

/* Once it is known where the vectors begin. */
static void product_memory(product *p, const base_type *types, uint32_t n_type, uint32_t length) {
    ir_builder *b = p->k.b;
    p->sums = ir_register(b, IR_F32, p->tile * p->wide);
    p->apart = p->k.lanes > 1 ? p->k.lanes : p->wide;
    p->joined = p->turns          ? ir_register(b, IR_F32, p->tile)
                : p->k.lanes == 1 ? p->sums
                                  : ir_workgroup(b, IR_F32, p->tile * p->k.lanes);
    if (!p->rounds) return;
    tile_bytes_begin(&p->bytes, &p->k, types, n_type, length, p->rows, p->vectors);
    tile_bytes_fill(&p->bytes, p->x, p->x_aligned, p->x_at);
}

/* The workgroup's vectors, of n; beyond them the last one. */
static void vectors_at(product *p, ir_id n, ir_id stride, ir_id offset) {
    ir_builder *b = p->k.b;
    ir_id first = tile_mul(b, ir_group(b, 1), p->vectors), last = ir_sub(b, n, ir_u32(b, 1));
    for (uint32_t v = 0; v < p->vectors; v++) {
        p->vector[v] = tile_add(b, first, v);
        ir_id own = p->vector[v];
        if (p->shuffles) own = ir_add(b, tile_add(b, first, v * SPAN), ir_subgroup_lane(b));
        p->x_at[v] = ir_fma(b, ir_min(b, own, last), stride, offset);
    }
}

/* Workgroups for tiles of `own` rows. */
static lower_count product_groups(const product *p, uint32_t tiles, uint32_t own) {
    if (p->rounds) return (lower_count){tile_bytes_groups(p->k.l, tiles * own), 0};
    return (lower_count){tiles < GROUPS_MAX ? tiles : GROUPS_MAX, 0};
}

/* Tiles of `rows` rows, of which a workgroup takes every groups-th, or, where it rounds its
 * vectors, as many as the others, one after another. Closed by ir_end. */
static ir_id tiles_begin(product *p, ir_id tiles) {
    ir_builder *b = p->k.b;
    if (p->rounds) {
        ir_id one = ir_u32(b, 1), groups = ir_groups(b, 0);
        ir_id each = ir_div(b, ir_add(b, tiles, ir_sub(b, groups, one)), groups),
              from = ir_mul(b, ir_group(b, 0), each);
        return ir_loop(b, from, ir_min(b, ir_add(b, from, each), tiles), one);
    }
    if (!p->shuffles) return ir_loop(b, tile_item(&p->k), tiles, tile_items(&p->k));
    ir_id first = ir_loop(b, tile_mul(b, ir_group(b, 0), p->k.n_item), tiles, tile_items(&p->k));
    return ir_add(b, first, ir_local(b, 0));
}

/* One result, where it holds: row `row` of vector `vector`, which lies `at` there in `out`. */
static void store_result(product *p, ir_memory out, ir_id at, ir_id row, ir_id vector, ir_id holds,
                         const ir_id of[TREE_PRODUCTS]) {
    ir_builder *b = p->k.b;
    ir_if(b, holds);
    if (p->ends) tree_end_store(&p->end, vector, ir_add(b, row, p->to), of);
    else ir_store(b, out, ir_add(b, at, row), of[0]);
    ir_end(b);
}

/* Result i, of the tile's rows by vectors. */
static ir_id sum_of(product *p, ir_id i) {
    return ir_load(p->k.b, p->joined, tile_mul(p->k.b, i, p->apart), 1);
}

/* Where lanes share rows, the first stores. */
static void stores_begin(product *p) {
    ir_builder *b = p->k.b;
    if (p->k.lanes > 1) ir_if(b, ir_eq(b, ir_local(b, 0), ir_u32(b, 0)));
}

static void stores_end(product *p) {
    ir_builder *b = p->k.b;
    if (p->k.lanes == 1) return;
    ir_end(b);
    ir_barrier(b);
}

/* The results of `own` rows from `row` on, below m, for the tile's vectors, below n: those of
 * vector 0 lie at out_offset, of the next out_stride on. */
static void store_rows(product *p, ir_memory out, ir_id out_offset, ir_id out_stride, uint32_t own,
                       ir_id row, ir_id m, ir_id n) {
    ir_builder *b = p->k.b;
    const uint32_t all = own * p->vectors;
    ir_id i = IR_NO_ID;
    if (p->turns) i = ir_loop(b, ir_u32(b, 0), ir_u32(b, all), ir_u32(b, 1));
    for (uint32_t copy = 0; copy < (p->turns ? 1 : all); copy++) {
        if (!p->turns) i = ir_u32(b, copy);
        ir_id of[TREE_PRODUCTS] = {IR_NO_ID, IR_NO_ID};
        for (uint32_t half = 0; half <= p->pair; half++)
            of[half] = sum_of(p, tile_add(b, i, half * all));
        ir_id own_row = ir_add(b, row, tile_div(b, i, p->vectors)),
              vector = ir_add(b, p->vector[0], tile_rem(b, i, p->vectors)),
              holds = ir_and(b, ir_lt(b, own_row, m), ir_lt(b, vector, n));
        store_result(p, out, ir_fma(b, vector, out_stride, out_offset), own_row, vector, holds, of);
    }
    if (p->turns) ir_end(b);
}

/* Rows [first, first + m) of the shard (or of other memory), which are rows [to, to + m) of the
 * result; end NULL: that is `out`. */
static beryl_status linear_shard(lowering *l, const graph_node *linear, const tree *end,
                                 const tile_matrix *w, const lower_matrix *x, bool rounded,
                                 uint32_t shard, uint32_t first, uint32_t to, uint32_t m) {
    if (tile_tiled_wants(l, x->bound, w->k)) {
        const tile_tiled_product tiled = {.x = linear->in[0],
                                          .weight = w->value,
                                          .out = linear->out[0],
                                          .low = {linear->in[2]},
                                          .low_w = {linear->in[3]},
                                          .end = end,
                                          .stored = w->stored != NULL,
                                          .shard = shard,
                                          .first = first,
                                          .to = to,
                                          .m = m,
                                          .k = w->k,
                                          .n = x->n,
                                          .bound = x->bound,
                                          .x_stride = x->stride,
                                          .x_offset = x->offset,
                                          .rounded = rounded};
        if (w->stored) lower_bytes(l, m * base_type_row_bytes(w->type, w->k));
        return tile_tiled(l, &tiled);
    }
    product p;
    product_begin(&p, l, "linear", &w->type, 1, w->k, m, x->bound);
    product_shuffle(&p, x->bound);
    tile_kernel *k = &p.k;
    ir_builder *b = k->b;
    if (w->stored) {
        tile_weight_stored(&p.w, k, "weights", w->value, shard, w->k);
        lower_bytes(l, m * base_type_row_bytes(w->type, w->k));
    } else {
        tile_weight_plain(&p.w, k, "weights", w->value, w->k);
    }
    p.x = tile_read(k, "x", linear->in[0]);
    p.x_aligned = x->offset % k->wide == 0 && x->stride % k->wide == 0;
    ir_memory out = {0};
    product_end(&p, linear->out[0], end, &out);
    ir_id n = tile_count(k, "n", x->n), x_offset = tile_u32(k, "x_offset", x->offset);
    ir_id row_first = tile_u32(k, "first", first),
          out_offset = tile_u32(k, "out_offset",
                                to + (end ? 0 : graph_tensor_at(l->g, linear->out[0])->offset));
    ir_id rows = tile_u32(k, "m", m), x_stride = tile_u32(k, "x_stride", x->stride);
    ir_id out_stride = tile_u32(k, "out_stride", w->m);
    const uint32_t tiles = (m + p.rows - 1) / p.rows;
    ir_id tiles_id = tile_div(b, tile_add(b, rows, p.rows - 1), p.rows);
    p.to = out_offset;
    vectors_at(&p, n, x_stride, x_offset);
    product_memory(&p, &w->type, 1, w->k);
    ir_id tile = tiles_begin(&p, tiles_id), last_row = ir_sub(b, rows, ir_u32(b, 1)),
          row = tile_mul(b, tile, p.rows);
    for (uint32_t r = 0; r < p.rows; r++)
        p.row[r] = ir_add(b, ir_min(b, tile_add(b, row, r), last_row), row_first);
    walk_rows(&p);
    stores_begin(&p);
    store_rows(&p, out, out_offset, out_stride, p.rows, row, rows, n);
    stores_end(&p);
    ir_end(b);
    return tile_end_3d(k, product_groups(&p, tiles, p.rows), 1, x->n, p.vectors,
                       (lower_count){1, 0});
}

/* The product `linear`, and a tree at its end (NULL: none), as the plan's `node`. */
static beryl_status lower_product(lowering *l, const graph_node *linear, const tree *end) {
    tile_matrix w;
    lower_matrix x;
    bool taken, rounded = false; /* by a shard before, which left its vectors in scratch memory */
    beryl_status status = tile_matvec_node(l, linear, end, &taken);
    if (taken) return status;
    if (BUILD_HAS_ADAPTERS && linear->n_in > 2 && !tile_tiled_adds(l, linear))
        return lower_refuse(l, linear, "what is added to a product");
    if (!tile_matrix_of(l, linear->in[1], &w))
        return lower_refuse(l, linear, "a weight that is not whole rows of a known type");
    if (!lower_vectors_of(l, linear->in[0], &x))
        return lower_refuse(l, linear, "vectors with gaps");
    if (!end && tile_contract_linear(l, x.n, x.stride, &status)) return status;
    if (!w.stored) return linear_shard(l, linear, end, &w, &x, false, 0, 0, 0, w.m);
    for (uint32_t i = 0; status == BERYL_OK && i < w.stored->n_shard; i++) {
        const store_shard *s = &w.stored->shard[i];
        const uint32_t from = w.first > s->row ? w.first : s->row,
                       last = w.first + w.m < s->row + s->n_row ? w.first + w.m : s->row + s->n_row;
        if (from >= last) continue;
        status = linear_shard(l, linear, end, &w, &x, rounded, i, from - s->row, from - w.first,
                              last - from);
        rounded = true;
    }
    return status;
}

beryl_status tile_linear(lowering *l, const graph_node *node) {
    return lower_product(l, node, NULL);
}

/* ---- joined products where a lane does whole rows -------------------------------------------- */

typedef struct joined { /* everything of such products */
    graph_products products;
    vectors_plan v;
    tile_matrix w[FUSED_SEGMENT_MAX];
} joined;

/* false: they are left as they were. */
static bool joined_of(const lowering *l, const graph_region *r, joined *j) {
    graph_products *p = &j->products;
    if (!graph_products_of(l->g, r, p) || (BUILD_HAS_ADAPTERS && p->has_low) ||
        (p->ends && p->n > 2))
        return false;
    const uint32_t k = graph_tensor_at(l->g, p->w[0])->dim[1].size;
    if (!vectors_plan_of(l, &p->before, p->x, NULL, k, &j->v) || j->v.rows.bound > JOINED_MAX)
        return false;
    for (uint32_t i = 0; i < p->n; i++)
        if (!tile_matrix_of(l, p->w[i], &j->w[i]) || !j->w[i].stored ||
            j->w[i].stored->n_shard != 1 || j->w[i].k != k)
            return false;
    if (p->ends && p->n == 2 && (j->w[0].type != j->w[1].type || j->w[0].m != j->w[1].m))
        return false;
    const uint32_t bindings = p->n + 1 + (p->ends ? tree_bindings(l, &p->end) : p->n);
    return bindings <= l->caps->storage_max &&
           (j->v.kind == VECTORS_PLAIN || vectors_fit_separate(l, &j->v));
}

bool tile_joined_fits(const lowering *l, const graph_region *r) {
    joined j;
    return tile_serial(l) && joined_of(l, r, &j);
}

/* Do all weights share a binding, and their products one text? */
static bool joined_alike(const lowering *l, const joined *j) {
    bool alike = lower_weights_fit(l, j->products.w, j->products.n);
    for (uint32_t i = 1; i < j->products.n; i++) alike &= j->w[i].type == j->w[0].type;
    return alike;
}

static void joined_weights(product *p, const joined *j, bool alike, tile_weight *to, ir_id *first) {
    static const char *const buffers[] = {"weights", "weights_b", "weights_c"};
    static const char *const firsts[] = {"first", "first_b", "first_c"};
    static const char *const planes[FUSED_SEGMENT_MAX][PACK_PLANE_MAX] = {
        {"a0", "a1", "a2", "a3"}, {"b0", "b1", "b2", "b3"}, {"c0", "c1", "c2", "c3"}};
    tile_kernel *k = &p->k;
    uint32_t words[FUSED_SEGMENT_MAX] = {0};
    for (uint32_t i = 0; i < j->products.n; i++) {
        const tile_matrix *w = &j->w[i];
        const graph_pack_layout *layout = &w->stored->shard[0].layout;
        const ir_type type = tile_weight_element(w->type);
        ir_memory from;
        if (!alike) from = tile_shard(k, buffers[i], w->value, 0, type);
        else if (i) from = to[0].from;
        else from = tile_weights(k, buffers[0], j->products.w, j->products.n, type, words);
        tile_weight_made(&to[i], k, w->type, w->k, from);
        to[i].plane[0] = to[i].start;
        for (uint32_t n = !alike; n < layout->n_plane; n++)
            to[i].plane[n] =
                tile_u32(k, planes[i][n],
                         (uint32_t)((words[i] * 4ull + layout->offset[n]) / ir_type_bytes(type)));
        to[i].start = to[i].plane[0];
        first[i] = tile_u32(k, firsts[i], w->first);
        lower_bytes(k->l, w->m * base_type_row_bytes(w->type, w->k));
    }
}

/* The value of the n segments that begin at these tiles which `tile` is of. */
static ir_id chosen(ir_builder *b, ir_id tile, const ir_id *begin, const ir_id *of, uint32_t stride,
                    uint32_t n) {
    ir_id value = of[0];
    for (uint32_t i = 1; i < n; i++)
        value = ir_select(b, ir_ge(b, tile, begin[i]), of[i * stride], value);
    return value;
}

static void begin_segment(ir_builder *b, ir_id tile, const ir_id *begin) {
    ir_if(b, ir_and(b, ir_ge(b, tile, begin[0]), ir_lt(b, tile, begin[1])));
}

beryl_status tile_joined(lowering *l, const graph_region *r) {
    static const char *const outs[] = {"out", "out_b", "out_c"};
    static const char *const offsets[] = {"out_offset", "out_offset_b", "out_offset_c"};
    static const char *const counts[] = {"m", "m_b", "m_c"};
    static const char *const ends[] = {"end", "end_b", "end_c"};
    joined j;
    tile_weight weights[FUSED_SEGMENT_MAX];
    ir_id planes[FUSED_SEGMENT_MAX][PACK_PLANE_MAX];
    ir_memory out[FUSED_SEGMENT_MAX] = {{0}};
    ir_id first[FUSED_SEGMENT_MAX], m[FUSED_SEGMENT_MAX], begin[FUSED_SEGMENT_MAX + 1],
        out_offset[FUSED_SEGMENT_MAX] = {0};
    uint32_t tiles = 0, widest = 0;
    product p;
    if (!joined_of(l, r, &j)) return lower_refuse(l, l->node, "this joined product");
    const graph_products *all = &j.products;
    const lower_matrix *x = &j.v.rows;
    const bool pair = all->ends && all->n == 2, alike = joined_alike(l, &j);
    const beryl_status status =
        j.v.kind == VECTORS_PLAIN ? BERYL_OK : tile_vectors_separate(l, &j.v);
    if (status != BERYL_OK) return status;
    base_type types[FUSED_SEGMENT_MAX];
    for (uint32_t i = 0; i < all->n; i++) {
        widest = j.w[i].m > widest ? j.w[i].m : widest;
        types[i] = j.w[i].type;
    }
    product_begin(&p, l, "matvec", types, all->n, x->k, widest, x->bound);
    if (pair) p.pair = true, p.rows = p.rows < 2 ? 2 : p.rows, p.tile = p.rows * p.vectors;
    const uint32_t own = pair ? p.rows / 2 : p.rows, n_segment = pair ? 1 : all->n;
    tile_kernel *k = &p.k;
    ir_builder *b = k->b;
    joined_weights(&p, &j, alike, weights, first);
    for (uint32_t i = 0; i < all->n; i++) memcpy(planes[i], weights[i].plane, sizeof planes[i]);
    p.x = tile_read(k, "x", j.v.x);
    ir_id x_offset = tile_u32(k, "x_offset", x->offset),
          x_stride = tile_u32(k, "x_stride", x->stride), n = tile_count(k, "n", x->n);
    p.x_aligned = (x->offset | x->stride) % k->wide == 0;
    p.ends = all->ends;
    if (all->ends) tree_end_declare(&p.end, k, &all->end);
    p.to = begin[0] = ir_u32(b, 0);
    for (uint32_t i = 0; i < n_segment; i++) {
        tiles += (j.w[i].m + own - 1) / own;
        begin[i + 1] = tile_u32(k, ends[i], tiles);
        m[i] = tile_u32(k, counts[i], j.w[i].m);
        if (all->ends) continue;
        out[i] = tile_write(k, outs[i], all->out[i]);
        out_offset[i] = tile_u32(k, offsets[i], graph_tensor_at(l->g, all->out[i])->offset);
    }
    vectors_at(&p, n, x_stride, x_offset);
    product_memory(&p, types, all->n, x->k);
    ir_id tile = tiles_begin(&p, begin[n_segment]);
    const uint32_t each = alike ? n_segment : 1; /* segments of a text */
    for (uint32_t i = 0; i < n_segment; i += each) {
        ir_id rows = chosen(b, tile, begin + i, m + i, 1, each),
              at = chosen(b, tile, begin + i, begin + i, 1, each);
        at = tile_mul(b, ir_sub(b, tile, at), own);
        if (each < n_segment) begin_segment(b, tile, begin + i);
        p.w = weights[i];
        if (pair) p.other = weights[1];
        for (uint32_t plane = 0; each > 1 && plane < j.w[i].stored->shard[0].layout.n_plane;
             plane++)
            p.w.plane[plane] = chosen(b, tile, begin, &planes[0][plane], PACK_PLANE_MAX, each);
        p.w.start = p.w.plane[0];
        for (uint32_t row_of = 0; row_of < p.rows; row_of++) {
            ir_id of = pair ? first[row_of / own] : chosen(b, tile, begin + i, first + i, 1, each),
                  row = tile_add(b, at, row_of % own);
            p.row[row_of] = ir_add(b, ir_min(b, row, ir_sub(b, rows, ir_u32(b, 1))), of);
        }
        walk_rows(&p);
        for (uint32_t s = i; s < i + each; s++) {
            if (each > 1) begin_segment(b, tile, begin + s);
            store_rows(&p, out[s], out_offset[s], m[s], own, at, m[s], n);
            if (each > 1) ir_end(b);
        }
        if (each < n_segment) ir_end(b);
    }
    ir_end(b);
    return tile_end_3d(k, product_groups(&p, tiles, own), 1, x->n, p.vectors, (lower_count){1, 0});
}

/* ---- experts --------------------------------------------------------------------------------- */

/* Rows of the shard for vectors of one expert at a time: by its list, or without one for a pair.
 * stored NULL: all rows, in memory of the plan. */
static beryl_status experts_shard(lowering *l, const graph_node *linear, const tree *end,
                                  const store_tensor *stored, uint32_t shard_index,
                                  const tile_grouped *by) {
    const graph_tensor *x = graph_tensor_at(l->g, linear->in[0]),
                       *w = graph_tensor_at(l->g, linear->in[1]);
    const graph_tensor *ids = graph_tensor_at(l->g, linear->in[2]);
    const uint32_t m = w->dim[1].size, n_used = ids->dim[1].size,
                   each = by ? tile_grouped_each(by) : 1,
                   first_row = stored ? stored->shard[shard_index].row : 0,
                   n_row = stored ? stored->shard[shard_index].n_row : w->dim[0].size * m;
    product p;
    product_begin(&p, l, by ? "linear_grouped" : "linear_id", &w->type, 1, w->dim[2].size, m, each);
    tile_kernel *k = &p.k;
    ir_builder *b = k->b;
    if (stored) tile_weight_stored(&p.w, k, "weights", linear->in[1], shard_index, w->dim[2].size);
    else tile_weight_plain(&p.w, k, "weights", linear->in[1], w->dim[2].size);
    p.x = tile_read(k, "x", linear->in[0]);
    p.x_aligned = tile_aligned(k, x);
    ir_memory list = by ? tile_grouped_list(k, by) : tile_read(k, "ids", linear->in[2]), out = {0};
    product_end(&p, linear->out[0], end, &out);
    ir_id x_offset = tile_u32(k, "x_offset", x->offset),
          ids_offset = tile_u32(k, "ids_offset", ids->offset);
    ir_id out_offset =
        tile_u32(k, "out_offset", end ? 0 : graph_tensor_at(l->g, linear->out[0])->offset);
    p.to = out_offset;
    ir_id n = tile_count(k, "pairs", lower_count_times(lower_count_of(ids->dim[0]), n_used)), at,
          id, first = IR_NO_ID;
    const uint32_t tiles = (m + p.rows - 1) / p.rows;
    if (by) {
        id = ir_group(b, 2);
        tile_grouped_range(b, list, id, &first, &n);
        at = ir_loop(b, tile_mul(b, ir_group(b, 1), p.vectors), n,
                     tile_mul(b, ir_groups(b, 1), p.vectors));
    } else {
        at = ir_fma(b, ir_group(b, 2), ir_groups(b, 1), ir_group(b, 1));
        ir_if(b, ir_lt(b, at, n));
        ir_id place = ir_add(b, tile_mul(b, tile_div(b, at, n_used), ids->stride[0]),
                             tile_rem(b, at, n_used));
        id = ir_cast(b, IR_U32, ir_load(b, list, ir_add(b, ids_offset, place), 1));
        id = ir_select(b, ir_lt(b, id, ir_u32(b, w->dim[0].size)), id, ir_u32(b, 0));
    }
    ir_id out_at[VECTORS_MAX], holds[VECTORS_MAX], row[ROWS_MAX], kept[ROWS_MAX],
        last = ir_sub(b, n, ir_u32(b, 1));
    for (uint32_t v = 0; v < p.vectors; v++) {
        ir_id i = tile_add(b, at, v),
              pair = by ? tile_grouped_pair(b, by, list, first, ir_min(b, i, last)) : i;
        p.vector[v] = pair;
        holds[v] = ir_lt(b, i, n);
        p.x_at[v] = ir_add(b, x_offset, tile_mul(b, tile_div(b, pair, n_used), x->stride[0]));
        if (x->dim[1].size > 1)
            p.x_at[v] = ir_add(b, p.x_at[v], tile_mul(b, tile_rem(b, pair, n_used), x->stride[1]));
        out_at[v] = ir_add(b, out_offset, tile_mul(b, pair, m));
    }
    product_memory(&p, &w->type, 1, w->dim[2].size);
    ir_id tile = tiles_begin(&p, ir_u32(b, tiles));
    for (uint32_t r = 0; r < p.rows; r++) { /* rows of other shards begin far above this one's */
        row[r] = tile_add(b, tile_mul(b, tile, p.rows), r);
        ir_id place = tile_add(b, ir_add(b, tile_mul(b, id, m), row[r]), 0 - first_row);
        p.row[r] = ir_min(b, place, ir_u32(b, n_row - 1));
        kept[r] = ir_select(b, ir_eq(b, p.row[r], place), row[r], ir_u32(b, m));
    }
    walk_rows(&p);
    stores_begin(&p);
    for (uint32_t i = 0; i < p.tile; i++) {
        const uint32_t r = i / p.vectors, v = i % p.vectors;
        ir_id is = ir_and(b, ir_lt(b, kept[r], ir_u32(b, m)), holds[v]);
        ir_id of[TREE_PRODUCTS] = {sum_of(&p, ir_u32(b, i)), IR_NO_ID};
        store_result(&p, out, out_at[v], kept[r], p.vector[v], is, of);
    }
    stores_end(&p);
    ir_end(b);
    ir_end(b);
    const lower_count groups = product_groups(&p, tiles, p.rows);
    if (by)
        return tile_end_3d(k, groups, 1, (lower_count){each, 0}, p.vectors,
                           (lower_count){by->n_expert, 0});
    return tile_end_3d(k, groups, 1, lower_count_of(ids->dim[0]), 1, (lower_count){n_used, 0});
}

/* What is in the way of such a product; NULL: nothing. */
static const char *experts_obstacle(const lowering *l, const graph_node *linear) {
    const graph_tensor *x = graph_tensor_at(l->g, linear->in[0]),
                       *w = graph_tensor_at(l->g, linear->in[1]),
                       *ids = graph_tensor_at(l->g, linear->in[2]);
    const store_tensor *stored = lower_weight(l, linear->in[1]);
    if (w->dim[0].extent || w->dim[1].extent || w->dim[2].extent || w->stride[2] != 1 ||
        w->stride[1] != w->dim[2].size || w->stride[0] != (uint64_t)w->stride[1] * w->dim[1].size ||
        !tile_weight_known(w->type) ||
        (stored ? w->offset != 0 : !BUILD_HAS_TRAINING || base_type_is_quantised(w->type)))
        return "experts that are not one whole weight";
    if ((uint64_t)w->dim[0].size * w->dim[1].size > INT32_MAX) return "so many experts";
    if (ids->dim[1].extent || x->dim[1].extent || ids->stride[1] != 1 || x->stride[2] != 1)
        return "vectors or indices with gaps";
    return NULL;
}

/* The same as lower_product. */
static beryl_status lower_experts_product(lowering *l, const graph_node *linear, const tree *end) {
    const graph_tensor *w = graph_tensor_at(l->g, linear->in[1]),
                       *ids = graph_tensor_at(l->g, linear->in[2]);
    const store_tensor *stored = lower_weight(l, linear->in[1]);
    const char *obstacle = experts_obstacle(l, linear);
    if (obstacle) return lower_refuse(l, linear, obstacle);
    /* by one token */
    const uint32_t used = ids->dim[1].size < w->dim[0].size ? ids->dim[1].size : w->dim[0].size;
    lower_bytes(l, base_type_row_bytes(w->type, w->dim[2].size) * w->dim[1].size * used);
    tile_grouped by;
    lower_matrix v;
    const bool grouped = tile_grouped_of(l, linear, &by),
               tiled = grouped && !tile_serial(l) && lower_vectors_of(l, linear->in[0], &v);
    beryl_status status = grouped ? tile_group_pairs(l, &by) : BERYL_OK;
    if (status == BERYL_OK && tiled) {
        const tile_tiled_product all = {.x = linear->in[0],
                                        .weight = linear->in[1],
                                        .out = linear->out[0],
                                        .end = end,
                                        .stored = stored,
                                        .m = w->dim[1].size,
                                        .k = w->dim[2].size,
                                        .n = v.n,
                                        .bound = v.bound,
                                        .x_stride = v.stride,
                                        .x_offset = v.offset,
                                        .by = &by};
        return tile_tiled(l, &all);
    }
    for (uint32_t i = 0; status == BERYL_OK && i < (stored ? stored->n_shard : 1); i++)
        status = experts_shard(l, linear, end, stored, i, grouped ? &by : NULL);
    return status;
}

beryl_status tile_linear_id(lowering *l, const graph_node *node) {
    return lower_experts_product(l, node, NULL);
}

/* ---- with a tree at the end ------------------------------------------------------------------ */

beryl_status tile_product(lowering *l, const tree *t) {
    if (BUILD_HAS_GRAPHS && t->product[0]->op == OP_CONTRACT) return tile_contract_product(l, t);
    return t->product[0]->op == OP_LINEAR ? lower_product(l, t->product[0], t)
                                          : lower_experts_product(l, t->product[0], t);
}

bool tile_product_fits(const graph *g, const graph_store *store, const tree *t) {
    const lowering l = lower_asked(g, store, NULL);
    const graph_node *linear = t->product[0];
    const bool experts = linear->op == OP_LINEAR_ID;
    tile_matrix w;
    lower_matrix x;
    if (BUILD_HAS_GRAPHS && linear->op == OP_CONTRACT) return tile_contract_product_fits(&l, t);
    if (t->n_product != 1 || !tree_is_end(t) ||
        (experts
             ? experts_obstacle(&l, linear) != NULL
             : !tile_matrix_of(&l, linear->in[1], &w) || !lower_vectors_of(&l, linear->in[0], &x) ||
                   tile_contract_takes_linear(&l, linear, x.n, x.stride)))
        return false;
    if (tree_bindings(&l, t) + linear->n_in + l.caps->dot_i8 > /* rounded vectors are two */
        l.caps->storage_max)
        return false;
    if (BUILD_HAS_ADAPTERS && !experts && linear->n_in > 2) {
        lowering exact = l;
        exact.settings.exact = true;
        if (!tile_matvec_adds(&exact, linear, NULL)) return tile_tiled_adds(&l, linear);
        return tile_matvec_adds(&l, linear, t) && tile_matvec_adds(&exact, linear, t);
    }
    if (!tile_serial(&l)) return experts || !tile_tiled_waits(&l, t, (uint64_t)x.bound * w.m);
    /* where a lane is all, it computes a tree at a product's end one by one */
    return !tree_is_expensive(t) && !experts &&
           (x.bound <= VECTORS_MAX || tile_tiled_wants(&l, x.bound, w.k));
}
