/* split.c - see tile/split.h. */
#include "tile/split.h"

enum {
    THIN = 32,        /* rows or columns of a thin product at most, */
    TILE = 1024,      /* results of one of its tiles, */
    GROUPS_EACH = 16, /* and groups of a compute unit: they have little in flight */
    TERMS = 128,      /* of a part at least */
    SIDE = 128,       /* the same of others: rows, and columns, of a tile */
    GROUPS_EACH_WIDE = 2,
    TERMS_WIDE = 512,
    TERMS_HALVES = 2048, /* of sums that are worth halves */
    TERMS_UNIT = 64,     /* parts are multiples of */
    COLUMNS_UNITS = 16,  /* of a tile of few on matrix units, by SIDE rows, */
    TERMS_UNITS = 256,   /* and terms of a part */
    BYTES_MAX = 64 << 20,
    UNITS_UNKNOWN = 64,
    AHEAD = 16 /* parts that are asked for at once */
};

bool tile_split_is_thin(uint64_t rows, uint64_t columns) {
    return rows <= THIN || columns <= THIN;
}

static bool shares(const lowering *l, uint64_t rows, uint64_t columns) {
    return !tile_serial(l) && !device_is_compiled(l->caps) && rows && columns;
}

static uint64_t units_of(const lowering *l) {
    return l->caps->compute_units ? l->caps->compute_units : UNITS_UNKNOWN;
}

static uint64_t tiles_of(uint64_t rows, uint64_t columns) {
    return ((rows + SIDE - 1) / SIDE) * ((columns + SIDE - 1) / SIDE);
}

/* Parts of n, if there is room for what they leave. */
static tile_split parts_of(uint64_t n, uint64_t rows, uint64_t columns, lower_count terms,
                           uint64_t bound) {
    tile_split s = {.n = 1, .each = (uint32_t)bound, .terms = terms};
    const uint64_t part = rows * columns * 4;
    if (n < 2 || n * part > BYTES_MAX) return s;
    const uint64_t each = ((bound + n - 1) / n + TERMS_UNIT - 1) / TERMS_UNIT * TERMS_UNIT;
    s.n = (uint32_t)((bound + each - 1) / each);
    if (s.n < 2) s.n = 1;
    else s.each = (uint32_t)each;
    s.bytes = s.n * part;
    return s;
}

tile_split tile_split_of(const lowering *l, uint64_t rows, uint64_t columns, lower_count terms,
                         uint64_t bound) {
    if (!shares(l, rows, columns)) return parts_of(1, rows, columns, terms, bound);
    const bool thin = tile_split_is_thin(rows, columns);
    const uint64_t tiles = thin ? (rows * columns + TILE - 1) / TILE : tiles_of(rows, columns),
                   wanted = (thin ? GROUPS_EACH : GROUPS_EACH_WIDE) * units_of(l) / tiles,
                   most = bound / (thin ? TERMS : TERMS_WIDE);
    return parts_of(wanted < most ? wanted : most, rows, columns, terms, bound);
}

tile_split tile_split_units(const lowering *l, uint64_t rows, uint64_t columns, uint32_t terms) {
    const uint64_t tiles =
                       (rows + SIDE - 1) / SIDE * ((columns + COLUMNS_UNITS - 1) / COLUMNS_UNITS),
                   wanted = tiles ? GROUPS_EACH_WIDE * units_of(l) / tiles : 0,
                   most = terms / TERMS_UNITS;
    return parts_of(wanted < most ? wanted : most, rows, columns, (lower_count){terms, 0}, terms);
}

tile_split tile_split_halves(const lowering *l, uint64_t rows, uint64_t columns, uint32_t terms) {
    const uint64_t units = units_of(l), tiles = tiles_of(rows, columns),
                   whole = (tiles + units - 1) / units, halves = (2 * tiles + units - 1) / units;
    /* matrix units have tiles of other sizes */
    const bool pays = l->caps->compute_units && !l->caps->fragments && shares(l, rows, columns) &&
                      !device_is_processor(l->caps) && tiles >= units && 3 * halves <= 5 * whole &&
                      terms >= TERMS_HALVES;
    return parts_of(pays ? 2 : 1, rows, columns, (lower_count){terms, 0}, terms);
}

/* Parts of this run. */
static ir_id count(ir_builder *b, const tile_split *s, ir_id terms) {
    if (!s->terms.extent) return ir_u32(b, s->n);
    return tile_div(b, tile_add(b, terms, s->each - 1), s->each);
}

ir_id tile_split_open(ir_builder *b, const tile_split *s, ir_id terms, uint32_t dim, ir_id *first,
                      ir_id *length) {
    const ir_id zero = ir_u32(b, 0), one = ir_u32(b, 1);
    const ir_id part = ir_loop_marked(b, zero, count(b, s, terms), one, IR_PARALLEL, dim);
    *first = tile_mul(b, part, s->each);
    *length = ir_u32(b, s->each);
    if (s->terms.extent || s->terms.factor % s->each)
        *length = ir_min(b, *length, ir_sub(b, terms, *first));
    return part;
}

ir_id tile_split_sum(ir_builder *b, const tile_split *s, ir_id terms, ir_memory parts, ir_id at,
                     ir_id size) {
    const ir_memory sum = ir_register(b, IR_F32, 1);
    const ir_id n = count(b, s, terms), zero = ir_f32(b, 0);
    const uint32_t each = s->n < AHEAD ? s->n : AHEAD;
    const bool whole = !s->terms.extent && s->n % each == 0;
    ir_set(b, sum, zero);
    const ir_id i = ir_loop(b, ir_u32(b, 0), n, ir_u32(b, each));
    ir_id x[AHEAD];
    for (uint32_t e = 0; e < each; e++) {
        const ir_id own = tile_add(b, i, e),
                    here = whole || !e ? own : ir_min(b, own, ir_sub(b, n, ir_u32(b, 1)));
        x[e] = ir_load(b, parts, ir_add(b, ir_mul(b, here, size), at), 1);
        if (!whole && e) x[e] = ir_select(b, ir_lt(b, own, n), x[e], zero);
    }
    for (uint32_t e = 0; e < each; e++) ir_set(b, sum, ir_add(b, ir_get(b, sum), x[e]));
    ir_end(b);
    return ir_get(b, sum);
}
