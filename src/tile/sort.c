/* sort.c - rows in order, and the places that their elements had.
 *
 * The one idea: elements become keys, whole numbers that rise as the order asks. A workgroup sorts
 * a block of a row, or several short rows: a few elements by a network over pairs of key and place,
 * of which no two are the same, so that ties keep their order; then runs are merged two by two, in
 * workgroup memory and, a dispatch for each time that they become twice as long, until a row is
 * one. A search along a diagonal finds what a tile of a result takes of either run, and again what
 * a lane takes of it. The last dispatch takes the elements themselves by their places. Processors
 * have one lane: it sorts blocks by the network alone, and merges from buffers. Long rows of keys
 * of 32 bits are sorted digit by digit instead (tile/order.h). */
#include "base/error.h"
#include "tile/sort.h"
#include "tile/whole.h"

enum {
    SERIAL_BLOCK = 128,
    SERIAL_TILE = 4096,
    BLOCK_MAX = 4096,
    ROWS_BLOCK = 1024, /* elements of short rows in a workgroup */
    LANES_MAX = 512,   /* of a workgroup */
    ROW_MAX = 1 << 30, /* twice a row is a number */
    BOUNDS_BYTES = 8,
    DIGITS_MIN = 1 << 15, /* of longer rows, digits are sooner sorted than runs merged */
    DIGITS_MIN_SERIAL = 1 << 12,
    DIGITS_MIN_HOST = SERIAL_BLOCK
};
enum { SCRATCH_KEYS = 0, SCRATCH_PLACES = 2 }; /* two each: dispatches read one, write the other */

static bool is_64(base_type type) {
    return type == TYPE_F64 || type == TYPE_I64 || type == TYPE_U64;
}

static uint32_t log_of(uint32_t power) {
    uint32_t n = 0;
    while (power >> n > 1) n++;
    return n;
}

static void choose(const lowering *l, sort *s) {
    const device_caps *caps = l->caps;
    const uint32_t most = caps->workgroup_invocations, each = is_64(s->x->type) ? 12 : 8;
    const bool serial = tile_serial(l);
    uint32_t largest = serial ? SERIAL_BLOCK : BLOCK_MAX, lanes = 1;
    while (largest * each + BOUNDS_BYTES > caps->workgroup_bytes) largest /= 2;
    const uint32_t row = whole_power_from(s->d);
    s->block = row < largest ? row : largest;
    s->rows_a_group = 1;
    while (!serial && s->d <= s->block && s->rows_a_group * 2 * s->block <= ROWS_BLOCK &&
           s->rows_a_group * s->d < s->bound)
        s->rows_a_group *= 2;
    const uint32_t all = s->block * s->rows_a_group;
    while (!serial && lanes * 2 <= most && lanes * 2 <= LANES_MAX && lanes * 4 < all) lanes *= 2;
    s->lanes = lanes;
}

/* ---- what both kernels have ------------------------------------------------------------------ */

static ir_id numbers(sort *s, uint32_t width, uint64_t bits) {
    return ir_bits(s->k->b, s->key, width, s->key == IR_U32 ? (uint32_t)bits : bits);
}

static ir_id number(sort *s, uint64_t bits) {
    return numbers(s, 1, bits);
}

ir_id sort_key(sort *s, ir_id x) {
    ir_builder *b = s->k->b;
    const base_type type = s->x->type;
    const uint32_t width = ir_at(b, x)->width;
    const bool wide = s->key == IR_U64;
    const uint64_t middle = wide ? UINT64_C(1) << 63 : 1u << 31,
                   infinity = wide ? UINT64_C(0x7ff) << 52 : 0x7f800000;
    ir_id key;
    if (base_type_is_float(type)) {
        if (!wide) x = ir_cast(b, IR_F32, x);
        const ir_id bits = ir_bitcast(b, s->key, width, x), half = numbers(s, width, middle),
                    size = ir_and(b, bits, numbers(s, width, middle - 1)),
                    /* both zeros alike */
            order =
                ir_select(b, ir_ge(b, bits, half), ir_sub(b, half, size), ir_add(b, half, size));
        const uint64_t nan = s->order == GRAPH_SORT_LARGEST ? middle - infinity : UINT64_MAX;
        key = ir_select(b, ir_gt(b, size, numbers(s, width, infinity)), numbers(s, width, nan),
                        order);
    } else if (ir_type_in(tile_element(type), IR_SIGNED)) {
        x = ir_cast(b, wide ? IR_I64 : IR_I32, x);
        key = ir_bitcast(b, s->key, width, x);
        key = s->bits ? tile_add(b, key, 1u << (s->bits - 1))
                      : ir_xor(b, key, numbers(s, width, middle));
    } else {
        key = ir_cast(b, s->key, x);
    }
    if (s->order != GRAPH_SORT_RISING) key = ir_not(b, key);
    return s->bits && s->bits < 32 && !s->shift ? tile_and(b, key, (1u << s->bits) - 1) : key;
}

static ir_memory scratch(sort *s, const char *name, uint32_t of, uint32_t which, ir_access access) {
    const ir_type type = of == SCRATCH_KEYS ? s->key : IR_U32;
    return tile_scratch(s->k, name, of + which, s->bound * ir_type_bytes(type), type, access);
}

static ir_memory list(sort *s, const char *name, uint32_t key) {
    return tile_scratch(s->k, name, key, s->bound * 4, IR_U32, IR_READ);
}

/* Of a dispatch that reads what is sorted, or gives the results. */
static void declare_ends(sort *s, bool reads) {
    tile_kernel *k = s->k;
    const bool x = (reads && !s->listed) || s->last;
    if (x) s->from = tile_read(k, "x", s->node->in[0]);
    if (s->listed && reads) s->list_keys = list(s, "list_keys", SORT_LIST_KEYS);
    if (s->listed && s->last) s->list_places = list(s, "list_places", SORT_LIST_PLACES);
    if (s->last) s->out[0] = tile_write(k, "values", s->node->out[0]);
    if (s->last) s->out[1] = tile_bind(k, "indices", s->node->out[1], IR_U32, IR_READ_WRITE);
    s->offset = x ? tile_u32(k, "x_offset", s->x->offset) : IR_NO_ID;
}

static lower_count length_of(const sort *s) {
    return s->listed ? (lower_count){s->d, 0} : lower_count_of(s->x->dim[s->x->rank - 1]);
}

/* Buffers and numbers of a dispatch. */
static void declare(sort *s, bool reads) {
    declare_ends(s, reads);
    if (!s->last) {
        s->out[0] = scratch(s, "keys_out", SCRATCH_KEYS, s->to, IR_READ_WRITE);
        s->out[1] = scratch(s, "places_out", SCRATCH_PLACES, s->to, IR_READ_WRITE);
    }
    s->length = tile_count(s->k, "length", length_of(s));
    s->count = tile_count(s->k, "rows", s->rows);
}

/* row: where its elements begin. */
static ir_id key_at(sort *s, ir_id row, ir_id column) {
    ir_builder *b = s->k->b;
    const ir_id at = ir_add(b, row, column);
    if (s->listed) return ir_load(b, s->list_keys, at, 1);
    return sort_key(s, ir_load(b, s->from, ir_add(b, s->offset, at), 1));
}

static ir_id x_at(sort *s, ir_id row, ir_id place) {
    ir_builder *b = s->k->b;
    return ir_load(b, s->from, ir_add(b, s->offset, ir_add(b, row, place)), 1);
}

/* A result: the element at a place. */
static void put_result(sort *s, ir_id row, ir_id column, ir_id place) {
    ir_builder *b = s->k->b;
    ir_id to = row;
    if (s->listed) {
        const uint32_t length = s->x->dim[s->x->rank - 1].size;
        place = ir_load(b, s->list_places, ir_add(b, row, place), 1);
        row = tile_mul(b, tile_div(b, row, s->d), length);
    } else if (s->kept < s->d) {
        to = tile_mul(b, tile_div(b, row, s->d), s->kept);
        ir_if(b, ir_lt(b, column, ir_u32(b, s->kept)));
    }
    to = ir_add(b, to, column);
    ir_store(b, s->out[0], to, x_at(s, row, place));
    ir_store(b, s->out[1], to, place);
    if (s->kept < s->d) ir_end(b);
}

static void put(sort *s, ir_id row, ir_id column, ir_id key, ir_id place) {
    if (s->last) {
        put_result(s, row, column, place);
        return;
    }
    const ir_id at = ir_add(s->k->b, row, column);
    ir_store(s->k->b, s->out[0], at, key);
    ir_store(s->k->b, s->out[1], at, place);
}

static void barrier(sort *s) {
    if (s->lanes > 1) ir_barrier(s->k->b);
}

/* ---- two runs -------------------------------------------------------------------------------- */

typedef struct pairs { /* in workgroup memory, or buffers */
    ir_memory key, place;
} pairs;

typedef struct run { /* sorted elements of an array */
    ir_id first, n;
} run;

/* How many of the first `diagonal` elements of both are x's; ties are x's. */
static ir_id search(sort *s, ir_memory keys, run x, run y, ir_id diagonal, ir_id steps) {
    ir_builder *b = s->k->b;
    const ir_memory low = ir_register(b, IR_U32, 1), high = ir_register(b, IR_U32, 1);
    ir_set(b, low, ir_sub(b, diagonal, ir_min(b, diagonal, y.n)));
    ir_set(b, high, ir_min(b, diagonal, x.n));
    ir_loop(b, ir_u32(b, 0), steps, ir_u32(b, 1));
    const ir_id from = ir_get(b, low), to = ir_get(b, high);
    ir_if(b, ir_lt(b, from, to));
    const ir_id middle = tile_shr(b, ir_add(b, from, to), 1), next = tile_add(b, middle, 1),
                mine = ir_load(b, keys, ir_add(b, x.first, middle), 1),
                other = ir_load(b, keys, ir_add(b, y.first, ir_sub(b, diagonal, next)), 1),
                before = ir_le(b, mine, other);
    ir_set(b, low, ir_select(b, before, next, from));
    ir_set(b, high, ir_select(b, before, to, middle));
    ir_end(b), ir_end(b);
    return ir_get(b, low);
}

/* A lane's `each` elements of workgroup memory, from `at` on: those from the diagonal on of two
 * runs there. All lanes have read theirs before the first writes. */
static void merge_own(sort *s, const pairs *p, run of_x, run of_y, ir_id diagonal, ir_id at,
                      ir_id steps) {
    ir_builder *b = s->k->b;
    const uint32_t all = s->block * s->rows_a_group, each = all / s->lanes;
    const ir_id most = ir_u32(b, all - 1), one = ir_u32(b, 1), zero = ir_u32(b, 0),
                end_x = ir_add(b, of_x.first, of_x.n), end_y = ir_add(b, of_y.first, of_y.n),
                taken = search(s, p->key, of_x, of_y, diagonal, steps);
    const ir_memory keys = ir_register(b, s->key, each), places = ir_register(b, IR_U32, each);
    ir_id x = ir_add(b, of_x.first, taken), y = ir_add(b, of_y.first, ir_sub(b, diagonal, taken)),
          key_x = ir_load(b, p->key, ir_min(b, x, most), 1),
          key_y = ir_load(b, p->key, ir_min(b, y, most), 1);
    for (uint32_t i = 0; i < each; i++) {
        const ir_id mine =
            ir_and(b, ir_lt(b, x, end_x), ir_or(b, ir_ge(b, y, end_y), ir_le(b, key_x, key_y)));
        const ir_id from = ir_select(b, mine, x, y), to = ir_u32(b, i);
        ir_store(b, keys, to, ir_select(b, mine, key_x, key_y));
        ir_store(b, places, to, ir_load(b, p->place, ir_min(b, from, most), 1));
        if (i + 1 == each) break;
        const ir_id next = ir_load(b, p->key, ir_min(b, tile_add(b, from, 1), most), 1),
                    step = ir_select(b, mine, one, zero);
        key_x = ir_select(b, mine, next, key_x);
        key_y = ir_select(b, mine, key_y, next);
        x = ir_add(b, x, step);
        y = ir_add(b, y, ir_sub(b, one, step));
    }
    ir_barrier(b);
    for (uint32_t i = 0; i < each; i++) {
        const ir_id to = tile_add(b, at, i), from = ir_u32(b, i);
        ir_store(b, p->key, to, ir_load(b, keys, from, 1));
        ir_store(b, p->place, to, ir_load(b, places, from, 1));
    }
    ir_barrier(b);
}

/* ---- blocks ---------------------------------------------------------------------------------- */

/* Of the parts that the network sorts; on GPUs lanes merge them, each as many elements. */
static uint32_t network_of(const sort *s) {
    const uint32_t each = s->block * s->rows_a_group / s->lanes;
    return s->lanes == 1 || s->block < each ? s->block : each;
}

/* Two neighbours of a step of the network, in order. */
static void exchange(sort *s, const pairs *p, uint32_t part, ir_id turn, ir_id size, ir_id stride) {
    ir_builder *b = s->k->b;
    const ir_id one = ir_u32(b, 1), low = ir_and(b, turn, ir_sub(b, stride, one)),
                i = ir_sub(b, ir_add(b, turn, turn), low), other = ir_add(b, i, stride);
    const ir_id key = ir_load(b, p->key, i, 1), key_o = ir_load(b, p->key, other, 1),
                place = ir_load(b, p->place, i, 1), place_o = ir_load(b, p->place, other, 1);
    const ir_id behind =
        ir_or(b, ir_gt(b, key, key_o), ir_and(b, ir_eq(b, key, key_o), ir_gt(b, place, place_o)));
    const ir_id within = tile_and(b, i, part - 1),
                rises = ir_eq(b, ir_and(b, within, size), ir_u32(b, 0));
    ir_if(b, ir_eq(b, behind, rises));
    ir_store(b, p->key, i, key_o);
    ir_store(b, p->key, other, key);
    ir_store(b, p->place, i, place_o);
    ir_store(b, p->place, other, place);
    ir_end(b);
}

static void network(sort *s, const pairs *p, uint32_t part) {
    ir_builder *b = s->k->b;
    const ir_id one = ir_u32(b, 1), zero = ir_u32(b, 0),
                first = s->lanes > 1 ? ir_local(b, 0) : zero,
                half = ir_u32(b, s->block * s->rows_a_group / 2);
    const ir_id stage = ir_loop(b, one, ir_u32(b, log_of(part) + 1), one),
                size = ir_shl(b, one, stage), step = ir_loop(b, zero, stage, one),
                stride = ir_shr(b, size, tile_add(b, step, 1)),
                turn = ir_loop(b, first, half, ir_u32(b, s->lanes));
    exchange(s, p, part, turn, size, stride);
    ir_end(b);
    barrier(s);
    ir_end(b), ir_end(b);
}

/* From sorted parts to blocks. */
static void merge_rounds(sort *s, const pairs *p, uint32_t part) {
    ir_builder *b = s->k->b;
    const ir_id one = ir_u32(b, 1), at = tile_mul(b, ir_local(b, 0), part),
                stage = ir_loop(b, ir_u32(b, log_of(part)), ir_u32(b, log_of(s->block)), one),
                length = ir_shl(b, one, stage),
                diagonal = ir_and(b, at, ir_sub(b, ir_add(b, length, length), one)),
                first = ir_sub(b, at, diagonal);
    merge_own(s, p, (run){first, length}, (run){ir_add(b, first, length), length}, diagonal, at,
              tile_add(b, stage, 1));
    ir_end(b);
}

/* Turns of a lane over the block; where element i of it is. */
static ir_id elements(sort *s, ir_id *row, ir_id *column, ir_id *inside) {
    ir_builder *b = s->k->b;
    const uint32_t n_block = (s->d + s->block - 1) / s->block;
    const ir_id group = tile_group(b), first = s->lanes > 1 ? ir_local(b, 0) : ir_u32(b, 0),
                i = ir_loop(b, first, ir_u32(b, s->block * s->rows_a_group), ir_u32(b, s->lanes));
    *row = ir_add(b, tile_mul(b, tile_div(b, group, n_block), s->rows_a_group),
                  tile_div(b, i, s->block));
    *column =
        ir_add(b, tile_mul(b, tile_rem(b, group, n_block), s->block), tile_rem(b, i, s->block));
    *inside = ir_and(b, ir_lt(b, *row, s->count), ir_lt(b, *column, s->length));
    *row = tile_mul(b, *row, s->d);
    return i;
}

static beryl_status sort_blocks(lowering *l, sort *s) {
    tile_kernel own, *k = s->k = &own;
    const uint32_t all = s->block * s->rows_a_group, n_block = (s->d + s->block - 1) / s->block;
    ir_builder *b = tile_begin(k, l, "sort_blocks", s->lanes);
    declare(s, true);
    const pairs p = {ir_workgroup(b, s->key, all), ir_workgroup(b, IR_U32, all)};
    ir_id row, column, inside;
    ir_id i = elements(s, &row, &column, &inside);
    ir_store(b, p.place, i, column);
    /* what is not there is last: its place is behind all others */
    ir_if(b, inside);
    ir_store(b, p.key, i, key_at(s, row, column));
    ir_else(b);
    ir_store(b, p.key, i, number(s, UINT64_MAX));
    ir_end(b), ir_end(b);
    barrier(s);
    const uint32_t alone = network_of(s);
    if (alone > 1) network(s, &p, alone);
    if (alone < s->block) merge_rounds(s, &p, alone);
    i = elements(s, &row, &column, &inside);
    ir_if(b, inside);
    const ir_id key = ir_load(b, p.key, i, 1), place = ir_load(b, p.place, i, 1);
    put(s, row, column, key, place);
    ir_end(b), ir_end(b);
    return tile_end(k, lower_count_times(s->rows, n_block), s->rows_a_group);
}

/* ---- merges ---------------------------------------------------------------------------------- */

/* A tile of the result: both runs in the row, from `row` on, and the elements of them, in order,
 * that are the tile's. */
typedef struct part {
    ir_id row, first, begin, end; /* first: the tile's column */
    run x, y;
    pairs from;
} part;

static void begin_part(sort *s, part *p, ir_id tile, ir_id length) {
    ir_builder *b = s->k->b;
    const ir_id zero = ir_u32(b, 0), group = tile_group(b),
                tiles = ir_div(b, ir_add(b, ir_u32(b, s->d - 1), tile), tile),
                number = ir_div(b, group, tiles), of = ir_mod(b, group, tiles);
    const ir_id n = ir_select(b, ir_lt(b, number, s->count), s->length, zero),
                both = ir_add(b, length, length);
    p->row = ir_mul(b, number, ir_u32(b, s->d));
    p->first = ir_mul(b, of, tile);
    const ir_id start = ir_sub(b, p->first, ir_mod(b, p->first, both)), x = ir_min(b, start, n),
                y = ir_min(b, ir_add(b, start, length), n),
                last = ir_min(b, ir_add(b, start, both), n), all = ir_sub(b, last, x),
                begin = ir_sub(b, p->first, start);
    p->x = (run){ir_add(b, p->row, x), ir_sub(b, y, x)};
    p->y = (run){ir_add(b, p->row, y), ir_sub(b, last, y)};
    p->begin = ir_min(b, begin, all);
    p->end = ir_min(b, ir_add(b, begin, tile), all);
}

/* One lane: the next elements of both runs, from `taken` of x on. */
static void merge_alone(sort *s, const part *p, ir_id taken) {
    ir_builder *b = s->k->b;
    const ir_memory at_x = ir_register(b, IR_U32, 1), at_y = ir_register(b, IR_U32, 1);
    const ir_id zero = ir_u32(b, 0), one = ir_u32(b, 1), end_x = ir_add(b, p->x.first, p->x.n),
                end_y = ir_add(b, p->y.first, p->y.n), last = ir_sub(b, end_y, one);
    ir_set(b, at_x, ir_add(b, p->x.first, taken));
    ir_set(b, at_y, ir_add(b, p->y.first, ir_sub(b, p->begin, taken)));
    const ir_id i = ir_loop(b, zero, ir_sub(b, p->end, p->begin), one);
    const ir_id x = ir_get(b, at_x), y = ir_get(b, at_y);
    const ir_id key_x = ir_load(b, p->from.key, ir_min(b, x, last), 1),
                key_y = ir_load(b, p->from.key, ir_min(b, y, last), 1);
    const ir_id mine =
        ir_and(b, ir_lt(b, x, end_x), ir_or(b, ir_ge(b, y, end_y), ir_le(b, key_x, key_y)));
    const ir_id place = ir_load(b, p->from.place, ir_select(b, mine, x, y), 1);
    put(s, p->row, ir_add(b, p->first, i), ir_select(b, mine, key_x, key_y), place);
    const ir_id step = ir_select(b, mine, one, zero);
    ir_set(b, at_x, ir_add(b, x, step));
    ir_set(b, at_y, ir_add(b, y, ir_sub(b, one, step)));
    ir_end(b);
}

/* A workgroup a tile. */
static void merge_together(sort *s, const part *p, ir_id steps) {
    ir_builder *b = s->k->b;
    const uint32_t half = s->lanes / 2;
    const pairs tile = {ir_workgroup(b, s->key, s->block), ir_workgroup(b, IR_U32, s->block)};
    const ir_memory bounds = ir_workgroup(b, IR_U32, 2);
    const ir_id local = ir_local(b, 0), zero = ir_u32(b, 0), lanes = ir_u32(b, s->lanes),
                size = ir_u32(b, s->block);
    /* one half of the lanes looks for the begin, the other for the end */
    const ir_id diagonal = ir_select(b, ir_lt(b, local, ir_u32(b, half)), p->begin, p->end);
    const ir_id found = search(s, p->from.key, p->x, p->y, diagonal, steps);
    ir_if(b, ir_eq(b, tile_rem(b, local, half), zero));
    ir_store(b, bounds, tile_div(b, local, half), found);
    ir_end(b);
    ir_barrier(b);
    const ir_id x = ir_load(b, bounds, zero, 1),
                n_x = ir_sub(b, ir_load(b, bounds, ir_u32(b, 1), 1), x),
                n = ir_sub(b, p->end, p->begin), at_x = ir_add(b, p->x.first, x),
                at_y = ir_sub(b, ir_add(b, p->y.first, ir_sub(b, p->begin, x)), n_x);
    ir_id i = ir_loop(b, local, size, lanes);
    ir_if(b, ir_lt(b, i, n));
    const ir_id from = ir_add(b, i, ir_select(b, ir_lt(b, i, n_x), at_x, at_y));
    ir_store(b, tile.key, i, ir_load(b, p->from.key, from, 1));
    ir_store(b, tile.place, i, ir_load(b, p->from.place, from, 1));
    ir_else(b);
    ir_store(b, tile.key, i, number(s, 0));
    ir_store(b, tile.place, i, zero);
    ir_end(b), ir_end(b);
    ir_barrier(b);
    const ir_id to = tile_mul(b, local, s->block / s->lanes);
    merge_own(s, &tile, (run){zero, n_x}, (run){n_x, ir_sub(b, n, n_x)}, ir_min(b, to, n), to,
              ir_u32(b, log_of(s->block) + 1));
    i = ir_loop(b, local, size, lanes);
    ir_if(b, ir_lt(b, i, n));
    const ir_id key = ir_load(b, tile.key, i, 1), place = ir_load(b, tile.place, i, 1);
    put(s, p->row, ir_add(b, p->first, i), key, place);
    ir_end(b), ir_end(b);
}

/* length: of the runs that are there. */
static beryl_status merge(lowering *l, sort *s, uint32_t length) {
    tile_kernel own, *k = s->k = &own;
    uint32_t tile = s->block;
    while (s->lanes == 1 && tile < 2 * length && tile < SERIAL_TILE) tile *= 2;
    ir_builder *b = tile_begin(k, l, "sort_merge", s->lanes);
    part p = {.from = {scratch(s, "keys", SCRATCH_KEYS, !s->to, IR_READ),
                       scratch(s, "places", SCRATCH_PLACES, !s->to, IR_READ)}};
    declare(s, false);
    const ir_id of = tile_u32(k, "length_of_runs", length),
                steps = tile_u32(k, "steps", log_of(length) + 1),
                size = s->lanes == 1 ? tile_u32(k, "tile", tile) : ir_u32(b, tile);
    begin_part(s, &p, size, of);
    if (s->lanes == 1) merge_alone(s, &p, search(s, p.from.key, p.x, p.y, p.begin, steps));
    else merge_together(s, &p, steps);
    return tile_end(k, lower_count_times(s->rows, (s->d + tile - 1) / tile), 1);
}

/* ---- digit by digit -------------------------------------------------------------------------- */

static void ends_begin(void *user, tile_kernel *k, bool puts) {
    sort *s = user;
    s->k = k;
    s->last = puts;
    declare_ends(s, true);
}

static ir_id ends_key(void *user, tile_kernel *k, ir_id row, ir_id column) {
    sort *s = user;
    s->k = k;
    return key_at(s, tile_mul(k->b, row, s->d), column);
}

static void ends_put(void *user, tile_kernel *k, ir_id row, ir_id column, ir_id key, ir_id place) {
    sort *s = user;
    (void)key;
    s->k = k;
    put_result(s, tile_mul(k->b, row, s->d), column, place);
}

static beryl_status sort_digits(lowering *l, sort *s, bool *fits) {
    tile_ordered o = {.n = s->d,
                      .length = length_of(s),
                      .rows = s->rows,
                      .row_bound = s->row_bound,
                      .shift = s->shift,
                      .bits = s->bits,
                      .ends = {s, ends_begin, ends_key, ends_put}};
    *fits = tile_order_plan(l, &o);
    return *fits ? tile_order_sort(l, &o) : BERYL_OK;
}

beryl_status sort_rows(lowering *l, sort *s) {
    choose(l, s);
    if (s->bits && s->d > (tile_is_host(l)  ? DIGITS_MIN_HOST
                           : tile_serial(l) ? DIGITS_MIN_SERIAL
                                            : DIGITS_MIN)) {
        bool fits;
        const beryl_status status = sort_digits(l, s, &fits);
        if (fits) return status;
    }
    s->bits = 0; /* whole keys are compared */
    s->last = s->d <= s->block;
    beryl_status status = sort_blocks(l, s);
    for (uint32_t length = s->block; status == BERYL_OK && length < s->d; length *= 2) {
        s->to = !s->to;
        s->last = length * 2 >= s->d;
        status = merge(l, s, length);
    }
    return status;
}

/* Where the bits are in which keys of a type differ. */
static void bits_of(sort *s) {
    const base_type type = s->x->type;
    if (s->key == IR_U64) return;
    s->bits = base_type_block_bytes(type) * 8;
    if (type == TYPE_BF16) s->shift = 16;
    if (type == TYPE_F16) s->shift = 13, s->bits = 19; /* as F32 */
}

/* All at the bound, where those that a run has do not lie side by side. */
static lower_count rows_of(const graph_tensor *x, uint64_t bound) {
    bool has_outer = false;
    for (uint32_t i = 0; i + 1 < x->rank; i++) {
        if (x->dim[i].extent && has_outer) return (lower_count){bound, 0};
        has_outer = has_outer || x->dim[i].size != 1;
    }
    return lower_rows(x);
}

static sort sort_of(const lowering *l, const graph_node *node, uint32_t order, uint32_t kept) {
    const graph_tensor *x = graph_tensor_at(l->g, node->in[0]);
    sort s = {.node = node,
              .x = x,
              .order = order,
              .key = is_64(x->type) ? IR_U64 : IR_U32,
              .d = x->dim[x->rank - 1].size,
              .bound = graph_element_bound(x)};
    s.kept = kept ? kept : s.d;
    s.row_bound = s.d ? s.bound / s.d : 0;
    s.rows = rows_of(x, s.row_bound);
    bits_of(&s);
    return s;
}

beryl_status tile_sort(lowering *l, const graph_node *node) {
    sort s = sort_of(l, node, node->attr.sort.order, node->attr.sort.k);
    if (s.d > ROW_MAX || s.bound > UINT32_MAX)
        return lower_refuse(l, node, "more elements than 32 bits count");
    if (BUILD_HAS_C_TEXTS && sort_selects_blocks(l, &s)) return sort_select_blocks(l, &s);
    return sort_selects(l, &s) ? sort_select(l, &s) : sort_rows(l, &s);
}

/* Rows that lie as one, where that is sooner done than a turn for each that is kept. */
beryl_status tile_topk(lowering *l, const graph_node *node) {
    const graph_tensor *x = graph_tensor_at(l->g, node->in[0]);
    sort s = sort_of(l, node, GRAPH_SORT_LARGEST, node->attr.topk.k);
    return BUILD_HAS_C_TEXTS && !x->dim[1].extent && x->stride[0] == s.d && s.bound <= UINT32_MAX &&
                   sort_selects_blocks(l, &s)
               ? sort_select_blocks(l, &s)
               : tile_largest(l, node);
}
