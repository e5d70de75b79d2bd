/* dots.c - see tile/dots.h.
 *
 * The one idea: what is wanted often is made ready once. A workgroup brings a tile of vectors and
 * a tile of rows, some blocks of 32 of k at a time, to workgroup memory: bytes around zero in
 * their order, and factors that are right for whole or half blocks. Then a product of two blocks is
 * eight dot products and one or two multiply-adds, whatever the weight's type. Each lane has a
 * block of rows and vectors, whose sums are registers; loads of the next tile are under way while
 * one is multiplied.
 *
 * Shapes: rows = rows of a tile, vectors = vectors of a tile, blocks = blocks of 32 in its k. */
#include "base/build.h"
#include "tile/dots_tile.h"
#include "tile/product.h"

#include "base/error.h"
#include "tile/vectors.h"
#include "tile/whole.h"

#include <assert.h>

enum {
    BLOCK = DOTS_BLOCK,
    ROUND_LANES = 64, /* of the dispatch that rounds: a block each */
    MERGE_LANES = 256,
    SCRATCH_PARTS = 6, /* key: [parts, n, rows] f32 */
    PARTS_MAX = 8,
    PART_MIN = 512, /* elements of k that a part should have */
    UNITS_UNKNOWN = 64,
    LANES_A_UNIT = 384, /* that hide the time of memory */
    MERGE_COST = 24,    /* of a result, in products, for each part */
    LANES_MIN = 64,     /* of a group: sixteen by four */
    SPREAD = 8,         /* times as many groups as experts have vectors on average */
    COPIES_MAX = 8      /* of a table */
};

/* ---- what a type wants ----------------------------------------------------------------------- */

static dots_kind kind_of(base_type type) {
    dots_kind w = {.type = type, .chunk = tile_packed_chunk(type)};
    const tile_block_form *f = tile_weight_form(type);
    w.least = tile_weight_has_least(type);
    w.halves = f->sub == BLOCK / 2;
    w.span = w.chunk * (f->packed.half_blocks ? 2 : 1);
    return w;
}

static uint32_t lanes_of(const dots_form *f) {
    return DOTS_LANES * f->vectors / f->each;
}

static uint32_t staged_rows(const dots_form *f) {
    return DOTS_LANES * f->rows;
}

/* Without the table. */
static uint32_t memory_of(const dots_form *f, const dots_kind *w) {
    const uint32_t row = BLOCK + 4 * dots_row_factors(w),
                   vector = BLOCK + 4 * dots_vector_factors(w);
    return f->depth / BLOCK *
           (row * staged_rows(f) + vector * f->vectors + BLOCK * (dots_pitch(f) - f->vectors));
}

static bool fits(const device_caps *caps, const dots_form *f, const dots_kind *w, uint32_t k) {
    const uint32_t table =
        tile_weight_table(w->type) && !caps->permutes_bytes ? TILE_PAIRS_BYTES : 0;
    const uint32_t memory = caps->workgroup_bytes, most = caps->workgroup_invocations;
    const uint32_t lanes = lanes_of(f), span = f->depth < w->span ? w->span : f->depth,
                   chunks = staged_rows(f) * (span / w->chunk), pieces = f->vectors * f->depth / 16;
    return memory_of(f, w) + table <= memory && lanes <= most && lanes >= LANES_MIN &&
           chunks <= DOTS_EACH_MAX * lanes && pieces <= DOTS_EACH_MAX * lanes &&
           (f->parts == 1 || k / f->parts >= PART_MIN);
}

/* The rule's tiles, and what a product costs in each of them; arbitrary units. Lanes with many sums
 * read each number from workgroup memory less often; groups of few lanes wait less at barriers. */
static const struct {
    uint32_t vectors, each, cost;
} tiles_of[] = {{64, 16, 39}, {64, 8, 42}, {64, 4, 65}, {32, 8, 44}, {32, 4, 80}, {16, 4, 85}};

/* What the whole costs, in tiles where a product costs `product`. A unit with little to do is no
 * faster for it, so there must be enough tiles. */
static double cost_of(const lowering *l, const tile_tiled_product *p, const dots_form *f,
                      uint32_t product, uint32_t per) {
    const uint32_t units = l->caps->compute_units ? l->caps->compute_units : UNITS_UNKNOWN,
                   columns = staged_rows(f) / per, lanes = lanes_of(f);
    uint64_t tiles = whole_over(p->bound, f->vectors), used = 0;
    const double cost = f->depth < 64 ? 1.1 * product : product;
    if (p->by) { /* most runs have half as many pairs as the longest, or fewer; each expert's last
                    tile is half full, and of few vectors each makes a tile */
        used = (p->by->bound + 1ull) / 2;
        tiles = used / f->vectors;
        if (used > p->by->n_expert) used = p->by->n_expert;
        tiles += (used + 1) / 2;
        if (tiles < used) tiles = used;
    }
    tiles *= (uint64_t)whole_over(p->m, columns) * f->parts;
    uint64_t lanes_busy = (tiles + units - 1) / units * lanes;
    if (lanes_busy < LANES_A_UNIT) lanes_busy = LANES_A_UNIT;
    const double each = (double)f->rows * f->each *
                        whole_over(whole_over(p->k, f->depth), f->parts) * f->depth * cost,
                 merge =
                     f->parts > 1 ? (double)p->bound * p->m * (f->parts + 1) * MERGE_COST * 50 : 0;
    return (double)lanes_busy * each + merge / units;
}

static bool choose(lowering *l, const tile_tiled_product *p, const dots_kind *w, uint32_t per,
                   dots_form *out) {
    static const uint32_t vectors[] = {128, 64, 32, 16}, depths[] = {64, 32, 128};
    double best = -1;
    for (uint32_t t = 0; t < sizeof tiles_of / sizeof *tiles_of; t++)
        for (uint32_t d = 0; d < 2; d++)
            for (uint32_t parts = 1; parts <= (p->by || per > 1 ? 1 : PARTS_MAX); parts *= 2) {
                const dots_form f = {tiles_of[t].vectors, 4, tiles_of[t].each, depths[d], parts};
                if (!fits(l->caps, &f, w, p->k)) continue;
                const double dispatch = parts > 1 ? 1.06 : 1, /* more has to win clearly */
                    cost = cost_of(l, p, &f, tiles_of[t].cost, per) * dispatch;
                if (best >= 0 && cost >= best) continue;
                best = cost;
                *out = f;
            }
    if (best < 0) return false;
    uint32_t values[4], n = 0;
    dots_form f = *out;
    for (uint32_t i = 0; i < 4; i++)
        if (f.vectors = vectors[i], fits(l->caps, &f, w, p->k)) values[n++] = vectors[i];
    out->vectors = tile_choose_of(l, "vectors", out->vectors, values, n);
    f = *out, n = 0;
    for (uint32_t i = 4; i <= 16; i *= 2)
        if (f.each = i, fits(l->caps, &f, w, p->k)) values[n++] = i;
    out->each = tile_choose_of(l, "each", out->each, values, n);
    f = *out, n = 0;
    for (uint32_t i = 0; i < 3; i++)
        if (f.depth = depths[i], fits(l->caps, &f, w, p->k)) values[n++] = depths[i];
    out->depth = tile_choose_of(l, "depth", out->depth, values, n);
    f = *out, n = 0;
    for (uint32_t i = 4; i <= DOTS_ROWS_MAX; i *= 2)
        if (f.rows = i, fits(l->caps, &f, w, p->k)) values[n++] = i;
    out->rows = tile_choose_of(l, "rows", out->rows, values, n);
    f = *out, n = 0;
    if (p->by || per > 1) return true;
    for (uint32_t i = 1; i <= PARTS_MAX; i *= 2)
        if (f.parts = i, fits(l->caps, &f, w, p->k)) values[n++] = i;
    out->parts = tile_choose_of(l, "parts", out->parts, values, n);
    return true;
}

bool tile_dots_wants(const lowering *l, base_type type, uint32_t n, uint32_t k) {
    enum { FROM = 17 };
    if (l->settings.exact || !l->caps->dot_i8 ||
        ir_has_fragment(l->caps, IR_F16, IR_F32, 16, 8, 16) || device_is_processor(l->caps) ||
        n < FROM || !tile_packed_known(type) || k % BLOCK || k % base_type_block(type))
        return false;
    const dots_kind w = kind_of(type);
    return k % w.chunk == 0 && fits(l->caps, &(dots_form){16, 4, 4, 32, 1}, &w, k);
}

/* ---- the dispatch that rounds ---------------------------------------------------------------- */

uint64_t tile_dots_bytes(uint32_t bound, uint32_t k) {
    return (uint64_t)bound * whole_over(k, 2 * BLOCK) * 64;
}

uint64_t tile_dots_scale_bytes(uint32_t bound, uint32_t k) {
    return (uint64_t)bound * whole_over(k, 2 * BLOCK) * 16;
}

/* Four of i32x4 as bytes of a word. */
static ir_id packed(ir_builder *b, ir_id q) {
    ir_id bytes = tile_and(b, ir_bitcast(b, IR_U32, 4, q), 255), word = ir_extract(b, bytes, 0);
    for (uint32_t i = 1; i < 4; i++)
        word = ir_or(b, word, tile_shl(b, ir_extract(b, bytes, i), 8 * i));
    return word;
}

/* A lane a block; once for products that follow each other. */
static beryl_status round_vectors(lowering *l, const tile_tiled_product *p) {
    const uint32_t blocks = p->k / BLOCK;
    tile_kernel kernel, *k = &kernel;
    ir_builder *b = tile_begin(k, l, "linear_round", ROUND_LANES);
    ir_memory x = p->x ? tile_read(k, "x", p->x)
                       : tile_scratch(k, "x", TILE_SCRATCH_X, (uint64_t)p->bound * p->k * 4, IR_F32,
                                      IR_READ),
              bytes = tile_scratch(k, "bytes", TILE_SCRATCH_BYTES, tile_dots_bytes(p->bound, p->k),
                                   IR_U32, IR_READ_WRITE),
              scales = tile_scratch(k, "scales", TILE_SCRATCH_SCALES,
                                    tile_dots_scale_bytes(p->bound, p->k), IR_U32, IR_READ_WRITE);
    ir_id n = tile_count(k, "n", p->n), offset = tile_u32(k, "x_offset", p->x_offset),
          stride = tile_u32(k, "x_stride", p->x_stride), bound = tile_u32(k, "bound", p->bound),
          lane = tile_lane(k);
    ir_id vector = tile_div(b, lane, blocks), block = tile_rem(b, lane, blocks);
    const bool aligned = p->x_offset % 4 == 0 && p->x_stride % 4 == 0;
    ir_if(b, ir_lt(b, vector, n));
    ir_id at = ir_add(b, ir_fma(b, vector, stride, offset), tile_mul(b, block, BLOCK)), runs[8],
          most = IR_NO_ID, words[8], sums[2];
    assert(k->wide == 4);
    for (uint32_t r = 0; r < 2; r++)
        tile_load_run(k, x, tile_add(b, at, r * TILE_RUN), aligned, &runs[4 * r]);
    for (uint32_t i = 0; i < 8; i++) {
        ir_id own = ir_abs(b, runs[i]);
        most = i ? ir_max(b, most, own) : own;
    }
    most = tile_max_vector(b, most);
    /* smaller ones would overflow */
    ir_id factor = ir_select(b, ir_gt(b, most, ir_f32(b, 1e-30f)), ir_div(b, ir_f32(b, 127), most),
                             ir_f32(b, 0));
    for (uint32_t i = 0; i < 8; i++) {
        ir_id q = ir_cast(b, IR_I32, ir_round(b, ir_mul(b, runs[i], ir_splat(b, factor, 4)))),
              sum = tile_sum_vector(b, q);
        words[i] = packed(b, q);
        sums[i / 4] = i % 4 ? ir_add(b, sums[i / 4], sum) : sum;
    }
    ir_id pair = ir_fma(b, tile_div(b, block, 2), bound, vector), odd = tile_rem(b, block, 2);
    for (uint32_t r = 0; r < 2; r++) {
        ir_id to = ir_add(b, tile_mul(b, pair, 16), tile_mul(b, odd, 8));
        ir_store(b, bytes, tile_add(b, to, 4 * r), ir_compose(b, &words[4 * r], 4));
        sums[r] = tile_and(b, ir_bitcast(b, IR_U32, 1, sums[r]), 0xffff);
    }
    ir_id both[2] = {ir_bitcast(b, IR_U32, 1, ir_mul(b, most, ir_f32(b, 1.0f / 127))),
                     ir_or(b, sums[0], tile_shl(b, sums[1], 16))};
    ir_store(b, scales, ir_add(b, tile_mul(b, pair, 4), tile_mul(b, odd, 2)),
             ir_compose(b, both, 2));
    ir_end(b);
    const beryl_status status = tile_end(k, lower_count_times(p->n, blocks), ROUND_LANES);
    if (BUILD_HAS_JOINED_ADAPTERS && status == BERYL_OK) lower_step_share(l);
    return status;
}

/* ---- the kernel ------------------------------------------------------------------------------ */

static void bind_weights(dots *d) {
    static const char *const planes[2][PACK_PLANE_MAX] = {{"a0", "a1", "a2", "a3"},
                                                          {"b0", "b1", "b2", "b3"}};
    const tile_tiled_product *p = d->p;
    tile_kernel *k = &d->k;
    if (d->per == 1) {
        tile_weight_stored(&d->weight[0], k, "weights", p->weight, p->shard, p->k);
        return;
    }
    uint32_t words[2];
    const graph_value both[2] = {p->weight, p->other};
    const graph_pack_layout *layout = &lower_stored(k->l, p->weight)->shard[0].layout;
    ir_memory from = tile_weights(k, "weights", both, 2, IR_U32, words);
    for (uint32_t i = 0; i < 2; i++) {
        tile_weight_made(&d->weight[i], k, d->w.type, p->k, from);
        for (uint32_t j = 0; j < layout->n_plane; j++)
            d->weight[i].plane[j] =
                tile_u32(k, planes[i][j], words[i] + (uint32_t)(layout->offset[j] / 4));
    }
}

static void bind_low(dots *d) {
    static const char *const planes[] = {"low_start", "low_start_b"};
    static const char *const places[] = {"low_offset", "low_offset_b"};
    static const char *const firsts[] = {"low_first", "low_first_b"};
    const tile_tiled_product *p = d->p;
    tile_kernel *k = &d->k;
    const base_type type = graph_tensor_at(k->l->g, p->low_w[0])->type;
    const ir_type element = tile_weight_element(type);
    uint32_t words[2];
    const ir_memory from = tile_weights(k, "low_weights", p->low_w, d->per, element, words);
    d->low = tile_read(k, "low", p->low[0]);
    for (uint32_t i = 0; i < d->per; i++) {
        tile_matrix w;
        lower_matrix x;
        const bool known =
            tile_matrix_of(k->l, p->low_w[i], &w) && lower_vectors_of(k->l, p->low[i], &x);
        assert(known); /* tile_tiled_adds */
        (void)known;
        d->rank = w.k;
        tile_weight_made(&d->low_w[i], k, type, w.k, from);
        d->low_w[i].plane[0] = d->low_w[i].start =
            tile_u32(k, planes[i], words[i] * 4 / ir_type_bytes(element));
        d->low_offset[i] = tile_u32(k, places[i], x.offset);
        d->low_first[i] = tile_u32(k, firsts[i], w.first + p->to);
        if (!i) d->low_stride = tile_u32(k, "low_stride", x.stride);
        lower_bytes(k->l, base_type_row_bytes(type, w.k) * w.m);
    }
}

static void bind(dots *d) {
    const tile_tiled_product *p = d->p;
    tile_kernel *k = &d->k;
    const uint32_t to = p->end ? 0 : graph_tensor_at(k->l->g, p->out)->offset,
                   width = p->by || d->per > 1 ? p->m
                                               : graph_tensor_at(k->l->g, p->weight)->dim[0].size;
    bind_weights(d);
    d->x =
        tile_scratch(k, "x", TILE_SCRATCH_BYTES, tile_dots_bytes(p->bound, p->k), IR_U32, IR_READ);
    d->scales = tile_scratch(k, "scales", TILE_SCRATCH_SCALES,
                             tile_dots_scale_bytes(p->bound, p->k), IR_U32, IR_READ);
    if (p->by) d->list = tile_grouped_list(k, p->by);
    if (d->f.parts > 1)
        d->out = tile_scratch(k, "parts", SCRATCH_PARTS, (uint64_t)d->f.parts * p->bound * p->m * 4,
                              IR_F32, IR_READ_WRITE);
    else if (p->end) tree_end_declare(&d->end, k, p->end);
    else d->out = tile_write(k, "out", p->out);
    d->n = p->by ? IR_NO_ID : tile_count(k, "n", p->n);
    d->bound = tile_u32(k, "bound", p->bound);
    d->count = tile_u32(k, "m", p->m);
    d->start = tile_u32(k, "first", p->first);
    d->out_offset = tile_u32(k, "out_offset", p->to + to);
    d->out_stride = tile_u32(k, "out_stride", width);
    if (BUILD_HAS_JOINED_ADAPTERS && p->low[0]) bind_low(d);
}

static void memory(dots *d) {
    ir_builder *b = d->k.b;
    const device_caps *caps = d->k.l->caps;
    d->x_tile = ir_workgroup(b, IR_U32, dots_pitch(&d->f) * d->blocks * 8);
    d->w_tile = ir_workgroup(b, IR_U32, d->rows * d->blocks * 8);
    d->x_factors = ir_workgroup(b, IR_F32, d->f.vectors * d->blocks * dots_vector_factors(&d->w));
    d->w_factors = ir_workgroup(b, IR_F32, d->rows * d->blocks * dots_row_factors(&d->w));
    d->x_ahead = ir_register(b, IR_U32, 4 * d->piece_turns);
    d->scale_ahead = ir_register(b, IR_U32, 4 * d->pair_turns);
    d->w_ahead = ir_register(b, IR_U32, matvec_raw_words(d->w.type) * d->row_turns);
    d->sums = ir_register(b, IR_F32, d->f.rows * d->f.each);
    const uint32_t *table = tile_weight_table(d->w.type);
    if (!table || caps->permutes_bytes) return;
    const uint32_t room = caps->workgroup_bytes - memory_of(&d->f, &d->w);
    d->pairs = (tile_pairs){.table = table, .copies = COPIES_MAX};
    while (d->pairs.copies > 1 && d->pairs.copies * TILE_PAIRS_BYTES > room) d->pairs.copies /= 2;
    d->pairs.memory = ir_workgroup(b, IR_U32, TILE_PAIRS_BYTES / 4 * d->pairs.copies);
    tile_pairs_fill(&d->k, &d->pairs);
    ir_barrier(b);
}

static beryl_status merge(lowering *l, const tile_tiled_product *p, uint32_t parts) {
    tile_kernel kernel, *k = &kernel;
    tree_walk end;
    ir_builder *b = tile_begin(k, l, "linear_merge", MERGE_LANES);
    ir_memory from = tile_scratch(k, "parts", SCRATCH_PARTS, (uint64_t)parts * p->bound * p->m * 4,
                                  IR_F32, IR_READ),
              out = {0};
    if (p->end) tree_end_declare(&end, k, p->end);
    else out = tile_write(k, "out", p->out);
    ir_id n = tile_count(k, "n", p->n), m = tile_u32(k, "m", p->m),
          offset = tile_u32(k, "out_offset",
                            p->to + (p->end ? 0 : graph_tensor_at(l->g, p->out)->offset)),
          stride = tile_u32(k, "out_stride", graph_tensor_at(l->g, p->weight)->dim[0].size);
    ir_id lane = tile_lane(k), all = ir_mul(b, n, m), sum = IR_NO_ID;
    ir_if(b, ir_lt(b, lane, all));
    for (uint32_t i = 0; i < parts; i++) {
        ir_id own = ir_load(b, from, ir_fma(b, all, ir_u32(b, i), lane), 1);
        sum = i ? ir_add(b, sum, own) : own;
    }
    ir_id vector = ir_div(b, lane, m), row = ir_sub(b, lane, ir_mul(b, vector, m));
    if (p->end) tree_end_store(&end, vector, ir_add(b, row, offset), (ir_id[]){sum, IR_NO_ID});
    else ir_store(b, out, ir_add(b, ir_fma(b, vector, stride, offset), row), sum);
    ir_end(b);
    return tile_end(k, lower_count_times(p->n, p->m), MERGE_LANES);
}

static void sizes(dots *d) {
    const dots_form *f = &d->f;
    const uint32_t lanes = lanes_of(f);
    d->blocks = f->depth / BLOCK;
    d->rows = staged_rows(f);
    d->columns = d->rows / d->per;
    d->pieces = d->blocks < 2 ? 2 : 4;
    d->pairs_of = d->blocks < 2 ? 1 : d->blocks / 2;
    d->piece_turns = whole_over(f->vectors * d->pieces * d->pairs_of, lanes);
    d->pair_turns = whole_over(f->vectors * d->pairs_of, lanes);
    d->share = f->depth < d->w.span ? d->w.span / f->depth : 1;
    d->units = (f->depth < d->w.span ? d->w.span : f->depth) / d->w.chunk;
    d->row_turns = whole_over(d->rows * d->units, lanes);
    d->steps = whole_over(d->p->k, f->depth);
}

beryl_status tile_dots(lowering *l, const tile_tiled_product *p) {
    dots d = {
        .p = p, .w = kind_of(graph_tensor_at(l->g, p->weight)->type), .per = p->other ? 2 : 1};
    const tile_grouped *by = p->by;
    beryl_status status = p->rounded ? BERYL_OK : round_vectors(l, p);
    if (status != BERYL_OK) return status;
    if (!choose(l, p, &d.w, d.per, &d.f))
        return lower_refuse(l, l->node, "tiles of bytes on this device");
    sizes(&d);
    tile_kernel *k = &d.k;
    ir_builder *b = tile_begin(k, l, by ? "linear_grouped_dots" : "linear_dots", lanes_of(&d.f));
    bind(&d);
    memory(&d);
    d.column = tile_mul(b, ir_group(b, 1), d.columns);
    if (!by) {
        d.first = tile_mul(b, ir_group(b, 0), d.f.vectors);
        dots_tile(&d);
        status = tile_end_3d(k, p->n, d.f.vectors, (lower_count){p->m, 0}, d.columns,
                             (lower_count){d.f.parts, 0});
        return status == BERYL_OK && d.f.parts > 1 ? merge(l, p, d.f.parts) : status;
    }
    const uint64_t spread =
        (uint64_t)tile_choose(l, "spread", SPREAD, 2, 16) * tile_grouped_each(by);
    ir_id expert = ir_group(b, 2);
    tile_grouped_range(b, d.list, expert, &d.pairs_at, &d.n);
    if (lower_stored(l, p->weight)->n_shard > 1)
        d.start = tile_tiled_expert_rows(k, p, expert, &d.count, &d.out_offset);
    else d.start = tile_mul(b, expert, p->m);
    ir_if(b, ir_lt(b, d.column, d.count));
    d.first = ir_loop(b, tile_mul(b, ir_group(b, 0), d.f.vectors), d.n,
                      tile_mul(b, ir_groups(b, 0), d.f.vectors));
    dots_tile(&d);
    ir_end(b);
    ir_end(b);
    return tile_end_3d(k, (lower_count){spread < by->bound ? spread : by->bound, 0}, d.f.vectors,
                       (lower_count){p->m, 0}, d.columns, (lower_count){by->n_expert, 0});
}
