/* order.c - see tile/order.h.
 *
 * The one idea: a radix sort from the lowest digit on. For each digit every workgroup counts what
 * its tile of a row has of each value; sums so far of all counts, by value and then by tile, say
 * where its elements of a value go. They are put in order of their digit in workgroup memory
 * first, so that neighbours go to neighbouring places: half a digit at a time, each lane counting
 * its own elements, 16 bits a count. Counts of integers alone are atomic, so the order is the same
 * in every run. Processors have one lane a tile, which puts elements one after another. */
#include "tile/order.h"

enum {
    DIGIT_MAX = 8,
    HALF_MAX = 4, /* bits of a digit that a lane counts at once */
    LANES = 256,
    EACH = 16, /* elements of a lane, */
    EACH_FEW = 4,
    FEW = 1 << 12, /* and of one in rows up to this long */
    TILE_SERIAL = 1 << 14,
    SPAN = 16, /* counts of a lane */
    SPAN_SERIAL = 4096,
    PER_BANK = 8 /* words of workgroup memory between those that are left out */
};

/* ---- lists ----------------------------------------------------------------------------------- */

static uint32_t sorted_words(const tile_ordered *o) {
    return o->tile + o->tile / o->each;
}

static uint32_t count_words(uint32_t lanes, uint32_t bits) {
    const uint32_t words = (lanes << bits) / 2;
    return words + words / PER_BANK;
}

/* Low bits of a digit. */
static uint32_t half_of(uint32_t digit) {
    return digit > HALF_MAX ? (digit + 1) / 2 : digit;
}

bool tile_order_plan(const lowering *l, tile_ordered *o) {
    const device_caps *caps = l->caps;
    o->n_pass = (o->bits + DIGIT_MAX - 1) / DIGIT_MAX;
    o->digit = (o->bits + o->n_pass - 1) / o->n_pass;
    o->lanes = 1;
    o->tile = TILE_SERIAL;
    while (tile_is_host(l) && o->tile / 2 >= o->n) o->tile /= 2; /* of many short rows */
    o->each = o->tile;
    if (!tile_serial(l)) {
        o->each = o->n > FEW ? EACH : EACH_FEW;
        for (o->lanes = LANES;; o->lanes /= 2) {
            o->tile = o->lanes * o->each;
            const uint32_t words = sorted_words(o) + count_words(o->lanes, half_of(o->digit)) +
                                   2 * o->lanes + (1u << o->digit);
            if (words * 4 <= caps->workgroup_bytes && o->lanes <= caps->workgroup_invocations)
                break;
        }
    }
    o->n_tile = (uint32_t)(((uint64_t)o->n + o->tile - 1) / o->tile);
    const uint64_t padded = (uint64_t)o->n_tile * o->tile, most = UINT32_MAX - o->tile;
    o->padded = (uint32_t)padded;
    return padded <= most && padded * o->row_bound <= most &&
           ((uint64_t)o->n_tile << o->digit) * o->row_bound <= most;
}

static ir_memory list_of(tile_kernel *k, const char *name, uint32_t key, uint64_t n,
                         ir_access access) {
    return tile_scratch(k, name, key, n * 4, IR_U32, access);
}

static ir_memory keys_of(tile_kernel *k, const tile_ordered *o, uint32_t pass, ir_access access) {
    return list_of(k, access == IR_READ ? "keys" : "new_keys", ORDER_KEYS + pass % 2,
                   o->padded * o->row_bound, access);
}

static ir_memory places_of(tile_kernel *k, const tile_ordered *o, uint32_t pass, ir_access access) {
    return list_of(k, access == IR_READ ? "places" : "new_places", ORDER_PLACES + pass % 2,
                   o->padded * o->row_bound, access);
}

ir_memory tile_order_keys(tile_kernel *k, const tile_ordered *o) {
    return keys_of(k, o, o->n_pass, IR_READ);
}

ir_memory tile_order_places(tile_kernel *k, const tile_ordered *o) {
    return places_of(k, o, o->n_pass, IR_READ);
}

static uint32_t span_lanes(const lowering *l) {
    const uint32_t most = l->caps->workgroup_invocations;
    return tile_serial(l) ? 1 : most < LANES ? most : LANES;
}

static uint32_t span_of(const lowering *l) {
    return tile_serial(l) ? SPAN_SERIAL : SPAN * span_lanes(l);
}

/* With room for what the last lanes read beyond its end. */
static ir_memory counts_of(tile_kernel *k, const char *name, uint32_t level, uint32_t n,
                           ir_access access) {
    const uint64_t span = span_of(k->l);
    return list_of(k, name, ORDER_COUNTS + level, (n + span - 1) / span * span, access);
}

ir_memory tile_order_counts(tile_kernel *k, uint32_t n, ir_access access) {
    return counts_of(k, "counts", 0, n, access);
}

/* ---- a pass ---------------------------------------------------------------------------------- */

typedef struct pass {
    tile_kernel k;
    const tile_ordered *o;
    uint32_t number;
    bool given, taken; /* keys are the user's; results are */
    ir_memory keys, places, to[2], counts;
    ir_memory cell, sorted, count, sums; /* workgroup arrays */
    ir_id shift, rows, row, tile, first, before;
    ir_id base, n; /* of the row's keys; of this tile's */
} pass;

static void begin_pass(pass *p, lowering *l, bool put) {
    const tile_ordered *o = p->o;
    tile_kernel *k = &p->k;
    ir_builder *b = tile_begin(k, l, put ? "order_put" : "order_count", o->lanes);
    p->given = !p->number;
    p->taken = put && o->ends.put && p->number + 1 == o->n_pass;
    if (p->given || p->taken) o->ends.begin(o->ends.user, k, p->taken);
    if (!p->given) p->keys = keys_of(k, o, p->number, IR_READ);
    if (!p->given && put) p->places = places_of(k, o, p->number, IR_READ);
    if (put && !p->taken) p->to[0] = keys_of(k, o, p->number + 1, IR_READ_WRITE);
    if (put && !p->taken) p->to[1] = places_of(k, o, p->number + 1, IR_READ_WRITE);
    p->counts = tile_order_counts(k, (uint32_t)(((uint64_t)o->n_tile << o->digit) * o->row_bound),
                                  put ? IR_READ : IR_READ_WRITE);
    p->shift = tile_u32(k, "shift", o->shift + p->number * o->digit);
    p->rows = tile_count(k, "rows", o->rows);
    const ir_id length = tile_count(k, "length", o->length), group = tile_group(b),
                zero = ir_u32(b, 0);
    p->row = tile_div(b, group, o->n_tile);
    p->tile = tile_rem(b, group, o->n_tile);
    p->first = tile_mul(b, p->tile, o->tile);
    p->base = ir_add(b, tile_mul(b, p->row, o->padded), p->first);
    const ir_id has = ir_select(b, ir_lt(b, p->row, p->rows), length, zero);
    p->n = ir_min(b, ir_sub(b, has, ir_min(b, has, p->first)), ir_u32(b, o->tile));
    p->before = ir_mul(b, p->row, length);
    p->cell = ir_workgroup(b, IR_U32, 1u << o->digit);
}

static ir_id digit_of(pass *p, ir_id key, uint32_t from, uint32_t bits) {
    return tile_and(p->k.b, ir_shr(p->k.b, key, tile_add(p->k.b, p->shift, from)),
                    (1u << bits) - 1);
}

static ir_id digit_whole(pass *p, ir_id key) {
    return digit_of(p, key, 0, p->o->digit);
}

/* The key of element i of the tile, which is there. */
static ir_id key_at(pass *p, ir_id i) {
    const tile_order_ends *ends = &p->o->ends;
    return p->given ? ends->key(ends->user, &p->k, p->row, ir_add(p->k.b, p->first, i))
                    : ir_load(p->k.b, p->keys, ir_add(p->k.b, p->base, i), 1);
}

static void put(pass *p, ir_id to, ir_id key, ir_id place) {
    const tile_ordered *o = p->o;
    ir_builder *b = p->k.b;
    if (p->taken) {
        o->ends.put(o->ends.user, &p->k, p->row, to, key, place);
        return;
    }
    to = ir_add(b, to, tile_mul(b, p->row, o->padded));
    ir_store(b, p->to[0], to, key);
    ir_store(b, p->to[1], to, place);
}

/* Values of the digit, a lane its share of them; each has a place in `counts`. */
static ir_id each_value(pass *p, ir_id *at) {
    ir_builder *b = p->k.b;
    const tile_ordered *o = p->o;
    const uint32_t n = 1u << o->digit;
    const ir_id v =
        ir_loop(b, o->lanes > 1 ? ir_local(b, 0) : ir_u32(b, 0), ir_u32(b, n), ir_u32(b, o->lanes));
    *at = ir_add(b, tile_mul(b, ir_add(b, tile_mul(b, p->row, n), v), o->n_tile), p->tile);
    return v;
}

static void barrier(pass *p) {
    if (p->o->lanes > 1) ir_barrier(p->k.b);
}

static void count_together(pass *p) {
    ir_builder *b = p->k.b;
    const uint32_t each = p->o->each, wide = p->given ? 1 : 4;
    const ir_id local = tile_mul(b, ir_local(b, 0), wide);
    ir_id keys[EACH], at[EACH];
    for (uint32_t i = 0; i < each; i += wide) {
        at[i] = tile_add(b, local, i * p->o->lanes);
        for (uint32_t e = 1; e < wide; e++) at[i + e] = tile_add(b, at[i], e);
        if (!p->given) tile_load_some(b, p->keys, ir_add(b, p->base, at[i]), wide, &keys[i]);
    }
    for (uint32_t i = 0; i < each; i++) {
        ir_if(b, ir_lt(b, at[i], p->n));
        const ir_id key = p->given ? key_at(p, at[i]) : keys[i];
        ir_atomic(b, IR_ATOMIC_ADD, p->cell, digit_whole(p, key), ir_u32(b, 1));
        ir_end(b);
    }
}

static beryl_status count(lowering *l, const tile_ordered *o, uint32_t number) {
    pass all = {.o = o, .number = number}, *p = &all;
    begin_pass(p, l, false);
    ir_builder *b = p->k.b;
    ir_id at, v = each_value(p, &at);
    ir_store(b, p->cell, v, ir_u32(b, 0));
    ir_end(b);
    barrier(p);
    if (o->lanes > 1) {
        count_together(p);
    } else {
        const ir_id i = ir_loop(b, ir_u32(b, 0), p->n, ir_u32(b, 1)),
                    digit = digit_whole(p, key_at(p, i));
        ir_store(b, p->cell, digit, tile_add(b, ir_load(b, p->cell, digit, 1), 1));
        ir_end(b);
    }
    barrier(p);
    ir_if(b, ir_lt(b, p->row, p->rows));
    v = each_value(p, &at);
    ir_store(b, p->counts, at, ir_load(b, p->cell, v, 1));
    ir_end(b), ir_end(b);
    return tile_end(&p->k, lower_count_times(o->rows, o->n_tile), 1);
}

/* ---- a tile in order of its digit ------------------------------------------------------------ */

ir_id tile_order_lanes(tile_kernel *k, ir_id x, ir_memory at, ir_id *all) {
    ir_builder *b = k->b;
    const ir_id local = ir_local(b, 0), zero = ir_u32(b, 0);
    ir_id sum = x;
    uint32_t half = 0; /* the one that was written last */
    ir_store(b, at, local, sum);
    for (uint32_t step = 1; step < k->lanes; step *= 2, half = k->lanes - half) {
        ir_barrier(b);
        const ir_id behind = ir_ge(b, local, ir_u32(b, step)),
                    from = ir_select(b, behind, ir_sub(b, local, ir_u32(b, step)), local),
                    other = ir_load(b, at, tile_add(b, from, half), 1);
        sum = ir_add(b, sum, ir_select(b, behind, other, zero));
        ir_store(b, at, tile_add(b, local, k->lanes - half), sum);
    }
    ir_barrier(b);
    *all = ir_load(b, at, ir_u32(b, half + k->lanes - 1), 1);
    return ir_sub(b, sum, x);
}

/* One word in so many is left out, so that lanes far apart meet in different banks. */
static ir_id spread(ir_builder *b, ir_id at, uint32_t per) {
    uint32_t shift = 0;
    while (per >> shift > 1) shift++;
    return ir_add(b, at, tile_shr(b, at, shift));
}

/* The places [each] of a lane's keys in order of some bits: of all values, two counts a word, each
 * lane has its own, which become sums over what comes before. */
static void rank(pass *p, const ir_id *keys, uint32_t from, uint32_t bits, ir_id *ranks) {
    tile_kernel *k = &p->k;
    ir_builder *b = k->b;
    const uint32_t lanes = p->o->lanes, each = p->o->each, words = (1u << bits) / 2;
    const ir_id local = ir_local(b, 0), one = ir_u32(b, 1);
    ir_id at[EACH], half[EACH], had[1 << (HALF_MAX - 1)], sum = ir_u32(b, 0), all;
    for (uint32_t w = 0; w < words; w++)
        ir_store(b, p->count, spread(b, tile_add(b, local, w * lanes), PER_BANK), ir_u32(b, 0));
    for (uint32_t i = 0; i < each; i++) {
        const ir_id digit = digit_of(p, keys[i], from, bits),
                    word = tile_mul(b, tile_and(b, digit, words - 1), lanes);
        half[i] = tile_shl(b, tile_shr(b, digit, bits - 1), 4);
        at[i] = spread(b, ir_add(b, word, local), PER_BANK);
        const ir_id now = ir_load(b, p->count, at[i], 1);
        ir_store(b, p->count, at[i], ir_add(b, now, ir_shl(b, one, half[i])));
        ranks[i] = tile_and(b, ir_shr(b, now, half[i]), 0xffff);
    }
    ir_barrier(b);
    const ir_id own = tile_mul(b, local, words);
    for (uint32_t w = 0; w < words; w++) {
        had[w] = ir_load(b, p->count, spread(b, tile_add(b, own, w), PER_BANK), 1);
        sum = ir_add(b, sum, had[w]);
    }
    sum = tile_order_lanes(k, sum, p->sums, &all);
    /* values of upper halves come behind all of lower ones */
    sum = ir_add(b, sum, tile_shl(b, all, 16));
    for (uint32_t w = 0; w < words; w++) {
        ir_store(b, p->count, spread(b, tile_add(b, own, w), PER_BANK), sum);
        sum = ir_add(b, sum, had[w]);
    }
    ir_barrier(b);
    for (uint32_t i = 0; i < each; i++) {
        const ir_id before = ir_shr(b, ir_load(b, p->count, at[i], 1), half[i]);
        ranks[i] = ir_add(b, ranks[i], tile_and(b, before, 0xffff));
    }
}

static ir_id place_sorted(pass *p, ir_id at) {
    return spread(p->k.b, at, p->o->each);
}

/* x [each] of a lane to places in workgroup memory. */
static void lay(pass *p, const ir_id *x, const ir_id *to) {
    for (uint32_t i = 0; i < p->o->each; i++)
        ir_store(p->k.b, p->sorted, place_sorted(p, to[i]), x[i]);
    ir_barrier(p->k.b);
}

/* A lane's elements: neighbours, or as far apart as there are lanes. */
static void places_of_lane(pass *p, bool neighbours, ir_id *at) {
    ir_builder *b = p->k.b;
    const ir_id local = ir_local(b, 0), own = tile_mul(b, local, p->o->each);
    for (uint32_t i = 0; i < p->o->each; i++)
        at[i] = neighbours ? tile_add(b, own, i) : tile_add(b, local, i * p->o->lanes);
}

static void take(pass *p, bool neighbours, ir_id *x) {
    ir_id at[EACH];
    places_of_lane(p, neighbours, at);
    for (uint32_t i = 0; i < p->o->each; i++)
        x[i] = ir_load(p->k.b, p->sorted, place_sorted(p, at[i]), 1);
    ir_barrier(p->k.b);
}

/* The tile's keys, and where they were in the row: neighbours in a lane. */
static void load_tile(pass *p, ir_id *keys, ir_id *places) {
    ir_builder *b = p->k.b;
    const uint32_t each = p->o->each;
    const ir_id none = ir_u32(b, UINT32_MAX);
    const ir_memory held = p->given ? ir_register(b, IR_U32, 1) : (ir_memory){0};
    ir_id at[EACH];
    places_of_lane(p, !p->given, at);
    for (uint32_t i = 0; i < each && p->given; i++) {
        ir_set(b, held, none);
        ir_if(b, ir_lt(b, at[i], p->n));
        ir_set(b, held, key_at(p, at[i]));
        ir_end(b);
        keys[i] = ir_get(b, held);
    }
    if (p->given) {
        lay(p, keys, at);
        take(p, true, keys);
        places_of_lane(p, true, at);
        for (uint32_t i = 0; i < each; i++) places[i] = ir_add(b, p->first, at[i]);
        return;
    }
    const ir_id from = ir_add(b, p->base, at[0]);
    tile_load_some(b, p->keys, from, each, keys);
    tile_load_some(b, p->places, from, each, places);
    for (uint32_t i = 0; i < each; i++)
        keys[i] = ir_select(b, ir_lt(b, at[i], p->n), keys[i], none);
}

static void put_together(pass *p) {
    ir_builder *b = p->k.b;
    const uint32_t each = p->o->each, lanes = p->o->lanes, digit = p->o->digit,
                   low = half_of(digit);
    ir_id keys[EACH], places[EACH], ranks[EACH], at[EACH], to[EACH];
    p->sorted = ir_workgroup(b, IR_U32, sorted_words(p->o));
    p->count = ir_workgroup(b, IR_U32, count_words(lanes, low));
    p->sums = ir_workgroup(b, IR_U32, 2 * lanes);
    load_tile(p, keys, places);
    rank(p, keys, 0, low, ranks);
    if (low < digit) {
        lay(p, keys, ranks);
        take(p, true, keys);
        lay(p, places, ranks);
        take(p, true, places);
        rank(p, keys, low, digit - low, ranks);
    }
    ir_id where;
    const ir_id v = each_value(p, &where);
    ir_store(b, p->cell, v, ir_sub(b, ir_load(b, p->counts, where, 1), p->before));
    ir_end(b);
    lay(p, keys, ranks);
    places_of_lane(p, false, at);
    for (uint32_t i = 0; i < each; i++) {
        keys[i] = ir_load(b, p->sorted, place_sorted(p, at[i]), 1);
        to[i] = digit_whole(p, keys[i]);
        const ir_id before = ir_sub(b, ir_max(b, at[i], ir_u32(b, 1)), ir_u32(b, 1)),
                    other = digit_whole(p, ir_load(b, p->sorted, place_sorted(p, before), 1)),
                    begins = ir_or(b, ir_eq(b, at[i], ir_u32(b, 0)), ir_ne(b, other, to[i]));
        ir_if(b, begins); /* the first of its value: where the others go follows from it */
        ir_store(b, p->cell, to[i], ir_sub(b, ir_load(b, p->cell, to[i], 1), at[i]));
        ir_end(b);
    }
    ir_barrier(b);
    lay(p, places, ranks);
    for (uint32_t i = 0; i < each; i++) {
        const ir_id place = ir_load(b, p->sorted, place_sorted(p, at[i]), 1);
        ir_if(b, ir_lt(b, at[i], p->n));
        put(p, ir_add(b, ir_load(b, p->cell, to[i], 1), at[i]), keys[i], place);
        ir_end(b);
    }
}

static void put_alone(pass *p) {
    ir_builder *b = p->k.b;
    ir_id where;
    const ir_id v = each_value(p, &where);
    ir_store(b, p->cell, v, ir_sub(b, ir_load(b, p->counts, where, 1), p->before));
    ir_end(b);
    const ir_id i = ir_loop(b, ir_u32(b, 0), p->n, ir_u32(b, 1)), key = key_at(p, i),
                place = p->given ? ir_add(b, p->first, i)
                                 : ir_load(b, p->places, ir_add(b, p->base, i), 1),
                digit = digit_whole(p, key), to = ir_load(b, p->cell, digit, 1);
    ir_store(b, p->cell, digit, tile_add(b, to, 1));
    put(p, to, key, place);
    ir_end(b);
}

beryl_status tile_order_sort(lowering *l, const tile_ordered *o) {
    const uint32_t n = (uint32_t)(((uint64_t)o->n_tile << o->digit) * o->row_bound);
    beryl_status status = BERYL_OK;
    for (uint32_t number = 0; status == BERYL_OK && number < o->n_pass; number++) {
        status = count(l, o, number);
        if (status == BERYL_OK) status = tile_order_sums(l, n);
        pass p = {.o = o, .number = number};
        if (status != BERYL_OK) break;
        begin_pass(&p, l, true);
        if (o->lanes > 1) put_together(&p);
        else put_alone(&p);
        status = tile_end(&p.k, lower_count_times(o->rows, o->n_tile), 1);
    }
    return status;
}

/* ---- sums so far ----------------------------------------------------------------------------- */

/* A workgroup a span of the n numbers of a level. up: the next level gets their sum; else each
 * becomes the sum of those before it, from what the next level (where there is one) says. */
static beryl_status spans(lowering *l, uint32_t level, uint32_t n, bool up) {
    const uint32_t size = span_of(l), n_span = (uint32_t)(((uint64_t)n + size - 1) / size);
    tile_kernel k;
    ir_builder *b = tile_begin(&k, l, up ? "order_sum" : "order_sums", span_lanes(l));
    ir_memory counts = counts_of(&k, "counts", level, n, up ? IR_READ : IR_READ_WRITE), next = {0},
              reg = ir_register(b, IR_U32, 1);
    if (up || n_span > 1)
        next = counts_of(&k, "next", level + 1, n_span, up ? IR_READ_WRITE : IR_READ);
    const ir_id end = tile_u32(&k, "n", n), span = tile_group(b), zero = ir_u32(b, 0),
                from = tile_mul(b, span, size);
    ir_if(b, ir_lt(b, span, ir_u32(b, n_span)));
    ir_set(b, reg, up || n_span == 1 ? zero : ir_load(b, next, span, 1));
    if (k.lanes == 1) {
        const ir_id left = ir_min(b, ir_sub(b, end, from), ir_u32(b, size)),
                    at = ir_add(b, from, ir_loop(b, zero, left, ir_u32(b, 1))),
                    before = ir_get(b, reg);
        ir_set(b, reg, ir_add(b, before, ir_load(b, counts, at, 1)));
        if (!up) ir_store(b, counts, at, before);
        ir_end(b);
        if (up) ir_store(b, next, span, ir_get(b, reg));
    } else {
        const ir_memory sums = ir_workgroup(b, IR_U32, 2 * k.lanes);
        const ir_id local = ir_local(b, 0), at = ir_add(b, from, tile_mul(b, local, SPAN));
        ir_id x[SPAN], own = zero, all;
        tile_load_some(b, counts, at, SPAN, x);
        for (uint32_t i = 0; i < SPAN; i++) {
            x[i] = ir_select(b, ir_lt(b, tile_add(b, at, i), end), x[i], zero);
            own = ir_add(b, own, x[i]);
        }
        ir_id sum = ir_add(b, ir_get(b, reg), tile_order_lanes(&k, own, sums, &all));
        for (uint32_t i = 0; i < SPAN && !up; i++) {
            ir_store(b, counts, tile_add(b, at, i), sum);
            sum = ir_add(b, sum, x[i]);
        }
        if (up) ir_if(b, ir_eq(b, local, zero));
        if (up) ir_store(b, next, span, all);
        if (up) ir_end(b);
    }
    ir_end(b);
    return tile_end(&k, (lower_count){n_span, 0}, 1);
}

beryl_status tile_order_sums(lowering *l, uint32_t n) {
    const uint32_t size = span_of(l);
    uint32_t sizes[8] = {n}, level = 0;
    beryl_status status = BERYL_OK;
    while (status == BERYL_OK && sizes[level] > size) {
        status = spans(l, level, sizes[level], true);
        sizes[level + 1] = (uint32_t)(((uint64_t)sizes[level] + size - 1) / size);
        level++;
    }
    for (level++; status == BERYL_OK && level-- > 0;) status = spans(l, level, sizes[level], false);
    return status;
}
