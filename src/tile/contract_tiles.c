/* contract_tiles.c - products of BF16 on the tiles of a processor (caps->tiles): matrices of 16 by
 * 32 and of 32 by 16, multiplied by one instruction.
 *
 * Both factors are packed before, a tile after the other along depth, each 16 rows of its matrix:
 * those of the outer class as they are, those of the inner one as pairs of terms, so that every
 * word has two neighbours along depth. Beyond the depth lie zeros, beyond the rows the last one
 * again. What already lies so, whole tiles of rows along depth, is read where it is. A group
 * multiplies squares of two tiles by two, and stores them by way of memory of its own. Refuses
 * sizes of a run and windows, whose copies would be many times as large. */
#include "tile/contract_inside.h"

enum {
    SIDE = 16,           /* rows of a tile, */
    DEPTH = 32,          /* terms; */
    WORDS = DEPTH / 2,   /* of a row, */
    TILE = SIDE * WORDS, /* and of all */
    SQUARE = 2,          /* tiles */
    LINES = SQUARE * SIDE,
    HIGH = 8,        /* squares below one another that share what they read, */
    BUSY = 2,        /* if each unit has so many groups, */
    BESIDE = 8,      /* and squares beside one another */
    LEAST = 1 << 18, /* products that are worth packing */
    LEAST_SIDE = 32, /* rows and terms */
};

static uint64_t up(uint64_t n, uint64_t unit) {
    return (n + unit - 1) / unit;
}

static uint32_t factor_of(const contraction *c, class_kind rows) {
    return contract_moves(&c->of[rows], A) ? A : B;
}

static uint32_t steps_of(const contraction *c) {
    return (uint32_t)up(c->of[CLASS_DEPTH].bound, DEPTH);
}

/* Tiles below one another. */
static uint32_t tiles_of(const contraction *c, class_kind rows) {
    return (uint32_t)up(c->of[rows].bound, LINES) * SQUARE;
}

static bool is_batched(const contraction *c, class_kind rows) {
    return contract_moves(&c->of[CLASS_BATCH], factor_of(c, rows));
}

static uint64_t words_of(const contraction *c, class_kind rows) {
    const uint64_t batch = is_batched(c, rows) ? c->of[CLASS_BATCH].bound : 1;
    return batch * tiles_of(c, rows) * steps_of(c) * TILE;
}

/* A packed copy that lasts costs nothing. */
static bool lies(const contraction *c, const lowering *l, class_kind rows) {
    const uint32_t t = factor_of(c, rows);
    return rows == CLASS_OUTER && c->of[rows].bound % LINES == 0 &&
           c->of[CLASS_DEPTH].bound % DEPTH == 0 && contract_is_one(&c->of[rows], t) &&
           contract_has_vectors(c, l, t, CLASS_DEPTH, DEPTH) && !contract_is_lasting(c, l, t);
}

bool contract_takes_tiles(const contraction *c, const lowering *l) {
    if (!l->caps->tiles || !tile_is_host(l) || c->of[CLASS_DEPTH].bound < LEAST_SIDE ||
        c->of[CLASS_OUTER].bound * c->of[CLASS_INNER].bound * c->of[CLASS_DEPTH].bound < LEAST)
        return false;
    for (uint32_t i = 0; i < CLASSES; i++)
        if (c->of[i].count.extent) return false;
    for (class_kind rows = CLASS_OUTER; rows <= CLASS_INNER; rows++) {
        const uint32_t t = factor_of(c, rows);
        if (graph_tensor_at(l->g, c->node->in[t])->type != TYPE_BF16 ||
            c->of[rows].bound < LEAST_SIDE || !contract_is_one(&c->of[CLASS_DEPTH], t) ||
            words_of(c, rows) > UINT32_MAX / 4)
            return false;
    }
    return true;
}

/* ---- packing --------------------------------------------------------------------------------- */

typedef struct packing {
    contraction c;
    uint32_t t, terms, unit; /* unit: elements of x in one of memory's */
    class_kind rows;
    lengths by[CLASSES];
    ir_memory x;
    bool whole; /* no terms beyond */
} packing;

/* What lies in memory at row and term, two elements or one in the upper half, as u32 [width];
 * beyond the terms 0. */
static ir_id element(packing *p, ir_id at, ir_id row, ir_id term, uint32_t width) {
    ir_builder *b = p->c.k.b;
    const ir_id inside = ir_lt(b, term, ir_u32(b, p->terms));
    if (!p->whole) term = ir_min(b, term, ir_u32(b, p->terms - p->unit));
    at = contract_place(&p->c, p->rows, &p->by[p->rows], p->t, row, at);
    at = contract_place(&p->c, CLASS_DEPTH, &p->by[CLASS_DEPTH], p->t, term, at);
    ir_id x = ir_load(b, p->x, tile_div(b, at, p->unit), width);
    if (p->unit == 1) x = ir_bitcast(b, IR_U32, width, ir_cast(b, IR_F32, x));
    return p->whole ? x : ir_select(b, inside, x, ir_u32(b, 0));
}

static ir_id words(packing *p, ir_id at, ir_id row, ir_id term, uint32_t width) {
    ir_builder *b = p->c.k.b;
    const ir_id first = element(p, at, row, term, width);
    if (p->unit == 2) return first;
    return ir_or(b, tile_shr(b, first, 16), element(p, at, row, tile_add(b, term, 1), width));
}

static beryl_status pack(lowering *l, const contraction *from, class_kind rows) {
    packing all = {.c = *from, .t = factor_of(from, rows), .rows = rows}, *p = &all;
    contraction *c = &p->c;
    tile_kernel *k = &c->k;
    const axes *depth = &c->of[CLASS_DEPTH], *of = &c->of[rows];
    const uint32_t steps = steps_of(c), tiles = tiles_of(c, rows), t = p->t;
    const bool pairs = rows == CLASS_INNER, batched = is_batched(c, rows);
    p->terms = (uint32_t)depth->bound;
    p->whole = p->terms % DEPTH == 0;
    p->unit = contract_has_vectors(c, l, t, CLASS_DEPTH, 2) && p->terms % 2 == 0 ? 2 : 1;
    const bool vectors =
        p->whole && (pairs ? of->bound % SIDE == 0 && contract_has_vectors(c, l, t, rows, SIDE)
                           : contract_has_vectors(c, l, t, CLASS_DEPTH, DEPTH));
    if (vectors) p->unit = pairs ? 1 : 2;
    /* lines of the factor are read by pieces of a cache's, and not by columns */
    const bool lines = vectors && pairs;
    const uint32_t beside = lines ? tiles / SQUARE : steps, each = lines ? steps : tiles;
    lower_count groups = batched ? c->of[CLASS_BATCH].count : (lower_count){1, 0};
    groups.factor *= each;
    ir_builder *b = tile_begin(k, l, "contract_tiles", 1);
    k->once = contract_is_lasting(c, l, t);
    c->n_tensor = OUT;
    p->x = tile_bind(k, "x", c->node->in[t], p->unit == 2 ? IR_U32 : IR_BF16, IR_READ);
    const ir_memory out =
        tile_scratch(k, "out", CONTRACT_COPY + t, words_of(c, rows) * 4, IR_U32, IR_READ_WRITE);
    contract_measure(c, CLASS_BATCH, &p->by[CLASS_BATCH]);
    contract_measure(c, CLASS_DEPTH, &p->by[CLASS_DEPTH]);
    contract_measure(c, rows, &p->by[rows]);
    ir_id at = contract_number(c, "offset", graph_tensor_at(l->g, c->node->in[t])->offset);
    const ir_id group = tile_group(b), zero = ir_u32(b, 0), one = ir_u32(b, 1),
                side = ir_u32(b, SIDE), last = ir_u32(b, (uint32_t)of->bound - 1),
                batch = batched ? tile_div(b, group, each) : zero, own = tile_rem(b, group, each);
    ir_if(b, ir_lt(b, group, tile_count(k, "groups", groups)));
    if (batched) at = contract_place(c, CLASS_BATCH, &p->by[CLASS_BATCH], t, batch, at);
    const ir_id other = ir_loop(b, zero, ir_u32(b, beside), one),
                tile = lines ? tile_mul(b, other, SQUARE) : own, step = lines ? own : other,
                first = tile_mul(b, tile, SIDE), term = tile_mul(b, step, DEPTH),
                to = tile_mul(
                    b, ir_fma(b, ir_fma(b, batch, ir_u32(b, tiles), tile), ir_u32(b, steps), step),
                    TILE),
                line = ir_loop(b, zero, side, one), start = ir_add(b, to, tile_mul(b, line, WORDS));
    if (lines) {
        for (uint32_t i = 0; i < SQUARE; i++)
            ir_store(b, out, tile_add(b, start, i * steps * TILE),
                     words(p, at,
                           ir_min(b, tile_add(b, first, i * SIDE),
                                  ir_u32(b, (uint32_t)of->bound - SIDE)),
                           ir_add(b, term, tile_mul(b, line, 2)), SIDE));
    } else if (vectors) {
        ir_store(b, out, start, words(p, at, ir_min(b, ir_add(b, first, line), last), term, WORDS));
    } else {
        const ir_id near = ir_loop(b, zero, side, one),
                    row = ir_min(b, ir_add(b, first, pairs ? near : line), last),
                    word = tile_mul(b, pairs ? line : near, 2);
        ir_store(b, out, ir_add(b, start, near), words(p, at, row, ir_add(b, term, word), 1));
        ir_end(b);
    }
    ir_end(b), ir_end(b), ir_end(b);
    return tile_end(k, groups, 1);
}

/* ---- the product ----------------------------------------------------------------------------- */

/* The square's results, which lie in memory of the group. at: where the batch's results begin */
static void store_square(contraction *c, const lengths by[CLASSES], ir_memory results,
                         ir_memory out, ir_id first_row, ir_id first_column, const ir_id *at) {
    tile_kernel *k = &c->k;
    ir_builder *b = k->b;
    const ir_id zero = ir_u32(b, 0), one = ir_u32(b, 1), most = ir_u32(b, LINES);
    ir_id to[LOWER_WALK_TENSORS], end[LOWER_WALK_TENSORS];
    ir_id n[2] = {most, most};
    for (uint32_t i = 0; i < 2; i++) {
        const class_kind rows = i ? CLASS_INNER : CLASS_OUTER;
        if (c->of[rows].bound % LINES)
            n[i] = ir_min(b, most, ir_sub(b, by[rows].count, i ? first_column : first_row));
    }
    const ir_id row = ir_loop(b, zero, n[0], one);
    for (uint32_t t = OUT; t < c->n_tensor; t++)
        to[t] =
            contract_place(c, CLASS_OUTER, &by[CLASS_OUTER], t, ir_add(b, first_row, row), at[t]);
    const axes *inner = &c->of[CLASS_INNER];
    bool line = true; /* columns lie as one: the loop begins at the first one's place */
    for (uint32_t t = OUT; t < c->n_tensor; t++) line = line && contract_is_one(inner, t);
    for (uint32_t t = OUT; line && t < c->n_tensor; t++)
        to[t] = contract_place(c, CLASS_INNER, &by[CLASS_INNER], t, first_column, to[t]);
    const ir_id column = ir_loop(b, zero, n[1], one);
    for (uint32_t t = OUT; t < c->n_tensor; t++)
        end[t] = contract_place(c, CLASS_INNER, &by[CLASS_INNER], t,
                                line ? column : ir_add(b, first_column, column), to[t]);
    contract_end_store(&c->end, k, out, end + OUT,
                       ir_load(b, results, ir_add(b, tile_mul(b, row, LINES), column), 1));
    ir_end(b), ir_end(b);
}

static beryl_status multiply(lowering *l, contraction *c) {
    tile_kernel *k = &c->k;
    const uint32_t steps = steps_of(c), line = steps * TILE * 2, /* elements of a row of tiles */
        squares[] = {tiles_of(c, CLASS_OUTER) / SQUARE, tiles_of(c, CLASS_INNER) / SQUARE};
    uint32_t high = HIGH;
    while (high > 1 &&
           up(squares[0], high) * c->of[CLASS_BATCH].bound < BUSY * l->caps->compute_units)
        high /= 2;
    const uint32_t bands = (uint32_t)up(squares[0], high);
    lower_count groups = c->of[CLASS_BATCH].count;
    groups.factor *= bands;
    ir_builder *b = tile_begin(k, l, "contract", 1);
    ir_subgroup(b, 1);
    const axes *outer = &c->of[CLASS_OUTER];
    const uint32_t own = factor_of(c, CLASS_OUTER);
    ir_memory in[2];
    for (uint32_t i = 0; i < 2; i++) {
        const class_kind rows = i ? CLASS_INNER : CLASS_OUTER;
        const uint32_t t = factor_of(c, rows);
        c->packed[t] = !lies(c, l, rows);
        in[i] = c->packed[t] ? tile_scratch(k, i ? "b" : "a", CONTRACT_COPY + t,
                                            words_of(c, rows) * 4, IR_BF16, IR_READ)
                             : tile_read(k, "a", c->node->in[t]);
    }
    const bool in_place = !c->packed[own];
    const ir_memory out = contract_end_declare(&c->end, k),
                    results = ir_workgroup(b, IR_F32, LINES * LINES);
    const ir_fragments x[2] = {ir_fragment(b, IR_ROLE_A, IR_BF16, SIDE, SIDE, DEPTH, SQUARE),
                               ir_fragment(b, IR_ROLE_B, IR_BF16, SIDE, SIDE, DEPTH, SQUARE)},
                       sums = ir_fragment(b, IR_ROLE_C, IR_F32, SIDE, SIDE, DEPTH, SQUARE * SQUARE);
    ir_id at[LOWER_WALK_TENSORS], first[2];
    contract_end_begin(&c->end, k, at + OUT);
    lengths by[CLASSES];
    for (uint32_t i = 0; i < CLASS_DEPTH; i++) contract_measure(c, i, &by[i]);
    const ir_id group = tile_group(b), zero = ir_u32(b, 0), one = ir_u32(b, 1),
                wide = ir_u32(b, DEPTH), batch = tile_div(b, group, bands),
                band = tile_mul(b, tile_rem(b, group, bands), high);
    ir_if(b, ir_lt(b, group, tile_count(k, "groups", groups)));
    for (uint32_t t = OUT; t < c->n_tensor; t++)
        at[t] = contract_place(c, CLASS_BATCH, &by[CLASS_BATCH], t, batch, at[t]);
    for (uint32_t i = 0; i < 2; i++)
        first[i] = is_batched(c, i ? CLASS_INNER : CLASS_OUTER)
                       ? tile_mul(b, batch, squares[i] * SQUARE * line)
                       : zero;
    if (in_place) {
        first[0] = contract_number(c, "offset", graph_tensor_at(l->g, c->node->in[own])->offset);
        first[0] = contract_place(c, CLASS_BATCH, &by[CLASS_BATCH], own, batch, first[0]);
    }
    const ir_id stride = in_place ? by[CLASS_OUTER].stride[own][outer->n - 1] : wide,
                below = in_place ? tile_mul(b, stride, SIDE) : ir_u32(b, line),
                beside = ir_loop(b, zero, ir_u32(b, squares[1]), ir_u32(b, BESIDE)),
                down = ir_loop(b, band, ir_min(b, tile_add(b, band, high), ir_u32(b, squares[0])),
                               one),
                across = ir_loop(
                    b, beside, ir_min(b, tile_add(b, beside, BESIDE), ir_u32(b, squares[1])), one);
    first[0] = ir_add(b, first[0], ir_mul(b, tile_mul(b, down, SQUARE), below));
    first[1] = ir_add(b, first[1], tile_mul(b, across, SQUARE * line));
    for (uint32_t i = 0; i < SQUARE * SQUARE; i++)
        ir_fragment_fill(b, sums, ir_u32(b, i), ir_f32(b, 0));
    const ir_id step = ir_loop(b, zero, ir_u32(b, steps), one);
    first[0] = ir_add(b, first[0], tile_mul(b, step, in_place ? DEPTH : TILE * 2));
    first[1] = ir_add(b, first[1], tile_mul(b, step, TILE * 2));
    for (uint32_t i = 0; i < SQUARE; i++) {
        const ir_id place = ir_u32(b, i);
        ir_fragment_load(b, x[0], place, in[0], first[0], stride, false);
        ir_fragment_load_pairs(b, x[1], place, in[1], first[1], wide);
        first[0] = ir_add(b, first[0], below);
        first[1] = tile_add(b, first[1], line);
    }
    for (uint32_t i = 0; i < SQUARE * SQUARE; i++)
        ir_fragment_mma(b, sums, ir_u32(b, i), x[0], ir_u32(b, i / SQUARE), x[1],
                        ir_u32(b, i % SQUARE));
    ir_end(b);
    for (uint32_t i = 0; i < SQUARE * SQUARE; i++)
        ir_fragment_store(b, sums, ir_u32(b, i), results,
                          ir_u32(b, i / SQUARE * SIDE * LINES + i % SQUARE * SIDE),
                          ir_u32(b, LINES), false);
    store_square(c, by, results, out, tile_mul(b, down, LINES), tile_mul(b, across, LINES), at);
    ir_end(b), ir_end(b), ir_end(b), ir_end(b);
    return tile_end(k, groups, 1);
}

beryl_status contract_tiles(lowering *l, contraction *c) {
    beryl_status status = lies(c, l, CLASS_OUTER) ? BERYL_OK : pack(l, c, CLASS_OUTER);
    if (status == BERYL_OK) status = pack(l, c, CLASS_INNER);
    return status == BERYL_OK ? multiply(l, c) : status;
}
