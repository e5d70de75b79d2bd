/* order.c - see tile/order.h.
 *
 * The one idea: a lane owns a stretch of the list. For each digit of the keys it counts what its
 * stretch has of each value; sums so far of all counts, by value and then by stretch, say where
 * each lane's elements of a value go, and it puts them there one after another. So nobody waits
 * for another lane, and the order is the same in every run. */
#include "tile/order.h"

enum { DIGIT = 4, VALUES = 1 << DIGIT, SPAN = 64, MANY = 1 << 20 };

tile_ordered tile_order_of(uint32_t n, uint32_t most) {
    tile_ordered o = {.n = n, .most = most, .each = n < MANY ? 16 : 64};
    o.n_chunk = (uint32_t)(((uint64_t)n + o.each - 1) / o.each);
    o.padded = o.n_chunk * o.each;
    while (o.n_pass * DIGIT < 32 && most >> (o.n_pass * DIGIT)) o.n_pass++;
    return o;
}

static ir_memory list_of(tile_kernel *k, const char *name, uint32_t key, uint64_t n,
                         ir_access access) {
    return tile_scratch(k, name, key, n * 4, IR_U32, access);
}

ir_memory tile_order_keys(tile_kernel *k, const tile_ordered *o, uint32_t pass, ir_access access) {
    return list_of(k, access == IR_READ ? "keys" : "new_keys", ORDER_KEYS + pass % 2, o->padded,
                   access);
}

ir_memory tile_order_places(tile_kernel *k, const tile_ordered *o, uint32_t pass,
                            ir_access access) {
    return list_of(k, access == IR_READ ? "places" : "new_places", ORDER_PLACES + pass % 2,
                   o->padded, access);
}

ir_memory tile_order_counts(tile_kernel *k, uint32_t n, ir_access access) {
    return list_of(k, "counts", ORDER_COUNTS, n, access);
}

/* The first pass finds every key in its place. put: to their new places; else they are counted. */
static beryl_status pass_over(lowering *l, const graph_node *node, const tile_ordered *o,
                              uint32_t pass, bool put, beryl_error *error) {
    tile_kernel k;
    tile_begin(&k, l, node, put ? "order_put" : "order_count", ORDER_LANES);
    ir_builder *b = k.b;
    const bool moved = put && pass;
    ir_memory keys = tile_order_keys(&k, o, pass, IR_READ), places = {0}, to[2] = {{0}},
              counts = tile_order_counts(&k, VALUES * o->n_chunk, put ? IR_READ : IR_READ_WRITE),
              cell = ir_register(b, IR_U32, VALUES);
    if (moved) places = tile_order_places(&k, o, pass, IR_READ);
    if (put) to[0] = tile_order_keys(&k, o, pass + 1, IR_READ_WRITE);
    if (put) to[1] = tile_order_places(&k, o, pass + 1, IR_READ_WRITE);
    const ir_id shift = tile_u32(&k, "shift", pass * DIGIT), n = tile_u32(&k, "n", o->n_chunk),
                lane = tile_lane(&k), zero = ir_u32(b, 0), one = ir_u32(b, 1);
    ir_if(b, ir_lt(b, lane, n));
    for (uint32_t v = 0; v < VALUES; v++) {
        const ir_id at = ir_u32(b, v);
        ir_store(b, cell, at, put ? ir_load(b, counts, ir_fma(b, at, n, lane), 1) : zero);
    }
    const ir_id from = tile_mul(&k, lane, o->each),
                i = ir_loop(b, zero, ir_u32(b, o->each / 4), one),
                at = ir_add(b, from, tile_mul(&k, i, 4)), four = ir_load(b, keys, at, 4),
                were = moved ? ir_load(b, places, at, 4) : IR_NO_ID;
    for (uint32_t e = 0; e < 4; e++) {
        const ir_id key = ir_extract(b, four, e),
                    digit = tile_and(&k, ir_shr(b, key, shift), VALUES - 1),
                    now = ir_load(b, cell, digit, 1);
        ir_store(b, cell, digit, ir_add(b, now, one));
        if (put) ir_store(b, to[0], now, key);
        if (put) ir_store(b, to[1], now, moved ? ir_extract(b, were, e) : tile_add(&k, at, e));
    }
    ir_end(b);
    for (uint32_t v = 0; v < VALUES && !put; v++) {
        const ir_id place = ir_u32(b, v);
        ir_store(b, counts, ir_fma(b, place, n, lane), ir_load(b, cell, place, 1));
    }
    ir_end(b);
    return tile_end(&k, (lower_count){o->n_chunk, 0}, ORDER_LANES, error);
}

beryl_status tile_order_sort(lowering *l, const graph_node *node, const tile_ordered *o,
                             beryl_error *error) {
    beryl_status status = BERYL_OK;
    for (uint32_t pass = 0; status == BERYL_OK && pass < o->n_pass; pass++) {
        status = pass_over(l, node, o, pass, false, error);
        if (status == BERYL_OK) status = tile_order_sums(l, node, VALUES * o->n_chunk, error);
        if (status == BERYL_OK) status = pass_over(l, node, o, pass, true, error);
    }
    return status;
}

/* ---- sums so far ----------------------------------------------------------------------------- */

/* A lane a span of the n numbers of a level. up: the next level gets their sum; else each becomes
 * the sum of those before it, from what the next level (where there is one) says. */
static beryl_status spans(lowering *l, const graph_node *node, uint32_t level, uint32_t n, bool up,
                          beryl_error *error) {
    const uint32_t n_span = (uint32_t)(((uint64_t)n + SPAN - 1) / SPAN);
    tile_kernel k;
    tile_begin(&k, l, node, up ? "order_sum" : "order_sums", ORDER_LANES);
    ir_builder *b = k.b;
    ir_memory counts = list_of(&k, "counts", ORDER_COUNTS + level, n, up ? IR_READ : IR_READ_WRITE),
              next = {0}, sum = ir_register(b, IR_U32, 1);
    if (up || n_span > 1)
        next = list_of(&k, "next", ORDER_COUNTS + level + 1, n_span, up ? IR_READ_WRITE : IR_READ);
    const ir_id count = tile_u32(&k, "n", n), lane = tile_lane(&k), from = tile_mul(&k, lane, SPAN);
    ir_if(b, ir_lt(b, from, count));
    ir_set(b, sum, up || n_span == 1 ? ir_u32(b, 0) : ir_load(b, next, lane, 1));
    /* of the last span what is left */
    const ir_id left = ir_min(b, ir_sub(b, count, from), ir_u32(b, SPAN)),
                i = ir_loop(b, ir_u32(b, 0), left, ir_u32(b, 1)), at = ir_add(b, from, i),
                x = ir_load(b, counts, at, 1), before = ir_get(b, sum);
    if (!up) ir_store(b, counts, at, before);
    ir_set(b, sum, ir_add(b, before, x));
    ir_end(b);
    if (up) ir_store(b, next, lane, ir_get(b, sum));
    ir_end(b);
    return tile_end(&k, (lower_count){n_span, 0}, ORDER_LANES, error);
}

beryl_status tile_order_sums(lowering *l, const graph_node *node, uint32_t n, beryl_error *error) {
    uint32_t sizes[8] = {n}, level = 0;
    beryl_status status = BERYL_OK;
    while (status == BERYL_OK && sizes[level] > SPAN) {
        status = spans(l, node, level, sizes[level], true, error);
        sizes[level + 1] = (uint32_t)(((uint64_t)sizes[level] + SPAN - 1) / SPAN);
        level++;
    }
    for (level++; status == BERYL_OK && level-- > 0;)
        status = spans(l, node, level, sizes[level], false, error);
    return status;
}
