/* attention_rows.c - which keys the rows of a tile see, for the forms of many rows: see
 * tile/attention.h. */
#include "tile/attention.h"
#include "base/build.h"

enum { FROM, TO, INNER_LOW, INNER_HIGH, ALIKE, FOUND }; /* ALIKE: all have one slot */

void attention_rows_bind(attention_rows *x, tile_kernel *k, const attention_task *a) {
    ir_builder *b = k->b;
    x->k = k;
    x->a = a;
    attention_places_bind(&x->places, k, a);
    ir_id n = tile_count(k, "n", a->rows);
    x->low = ir_register(b, IR_U32, x->each);
    x->high = ir_register(b, IR_U32, x->each);
    ir_memory *const uniform[] = {&x->from, &x->to,        &x->open,
                                  &x->end,  &x->inner_low, &x->inner_high};
    for (uint32_t i = 0; i < 6; i++) *uniform[i] = ir_register(b, IR_U32, 1);
    if (BUILD_HAS_C_TEXTS && x->joint) x->found = ir_workgroup(b, IR_U32, FOUND);
    /* long ones first */
    ir_id late = tile_add(b, ir_sub(b, ir_groups(b, 0), ir_group(b, 0)), UINT32_MAX);
    x->first_query = tile_mul(b, late, x->queries);
    x->n_query = ir_min(b, ir_u32(b, x->queries), ir_sub(b, n, x->first_query));
    x->first_head = tile_mul(b, ir_group(b, 1), x->group);
    x->kv = tile_div(b, x->first_head, a->n_head / a->n_kv);
}

static ir_id slot_at(attention_rows *x, ir_id query) {
    ir_builder *b = x->k->b;
    ir_id at = ir_add(b, x->places.slot_offset, ir_add(b, x->first_query, query));
    return ir_cast(b, IR_U32, ir_load(b, x->places.slot, at, 1));
}

/* The keys low .. high that a query sees; none: low above high. */
static void range_of(attention_rows *x, ir_id query, ir_id *low, ir_id *high) {
    ir_builder *b = x->k->b;
    attention_keys keys;
    attention_keys_of(&x->places, b, x->a, ir_add(b, x->first_query, query), &keys);
    ir_id some = ir_lt(b, keys.first, keys.end);
    *low = ir_select(b, some, keys.first, ir_u32(b, UINT32_MAX));
    *high = ir_select(b, some, tile_add(b, keys.end, UINT32_MAX), ir_u32(b, 0));
}

/* Of the lane's row r, where its query is one of [done, end); else none: low above high. */
static void row_range(attention_rows *x, ir_id done, ir_id r) {
    ir_builder *b = x->k->b;
    ir_id row = x->apart ? ir_add(b, x->lane_rows, tile_mul(b, r, x->apart))
                         : ir_add(b, tile_mul(b, x->lane_rows, x->each), r);
    ir_id own = tile_div(b, row, x->group);
    ir_id sees = ir_and(b, ir_ge(b, own, done), ir_lt(b, own, ir_get(b, x->end))), low, high;
    range_of(x, ir_min(b, own, tile_add(b, x->n_query, UINT32_MAX)), &low, &high);
    ir_store(b, x->low, r, ir_select(b, sees, low, ir_u32(b, UINT32_MAX)));
    ir_store(b, x->high, r, ir_select(b, sees, high, ir_u32(b, 0)));
}

/* Each lane some of the queries: true, and `found` is set, where all queries make one turn. */
static ir_id scan_together(attention_rows *x) {
    tile_kernel *k = x->k;
    ir_builder *b = k->b;
    static const uint32_t none[FOUND] = {UINT32_MAX, 0, 0, UINT32_MAX, 1};
    ir_id lane = ir_local(b, 0), low, high, found[FOUND];
    for (uint32_t i = 0; i < FOUND; i++) {
        ir_if(b, ir_eq(b, lane, ir_u32(b, i)));
        ir_store(b, x->found, ir_u32(b, i), ir_u32(b, none[i]));
        ir_end(b);
    }
    ir_barrier(b);
    ir_id query = ir_loop(b, lane, x->n_query, ir_u32(b, k->lanes));
    range_of(x, query, &low, &high);
    ir_id same = ir_eq(b, slot_at(x, query), x->slot);
    ir_atomic(b, IR_ATOMIC_MIN, x->found, ir_u32(b, FROM), low);
    ir_atomic(b, IR_ATOMIC_MAX, x->found, ir_u32(b, TO), high);
    ir_atomic(b, IR_ATOMIC_MAX, x->found, ir_u32(b, INNER_LOW), low);
    ir_atomic(b, IR_ATOMIC_MIN, x->found, ir_u32(b, INNER_HIGH), high);
    ir_atomic(b, IR_ATOMIC_MIN, x->found, ir_u32(b, ALIKE), ir_cast(b, IR_U32, same));
    ir_end(b);
    for (uint32_t i = 0; i < FOUND; i++) found[i] = ir_uniform_load(b, x->found, ir_u32(b, i));
    ir_set(b, x->from, found[FROM]);
    ir_set(b, x->to, found[TO]);
    ir_set(b, x->inner_low, found[INNER_LOW]);
    ir_set(b, x->inner_high, found[INNER_HIGH]);
    ir_set(b, x->end, x->n_query);
    return ir_and(b, ir_eq(b, found[ALIKE], ir_u32(b, 1)),
                  ir_le(b, ir_sub(b, found[TO], found[FROM]), ir_u32(b, x->a->n_row)));
}

/* The queries [done, end) have the slot of `done`, and together as many keys as a ring holds, so
 * that no position makes the loop over them long: what all of them see, and any of them. */
static void scan_queries(attention_rows *x, ir_id done) {
    ir_builder *b = x->k->b;
    ir_set(b, x->from, ir_u32(b, UINT32_MAX));
    ir_set(b, x->to, ir_u32(b, 0));
    ir_set(b, x->inner_low, ir_u32(b, 0));
    ir_set(b, x->inner_high, ir_u32(b, UINT32_MAX));
    ir_set(b, x->open, ir_u32(b, 1));
    ir_set(b, x->end, done);
    ir_id query = ir_loop(b, done, x->n_query, ir_u32(b, 1)),
          same = ir_eq(b, slot_at(x, query), x->slot);
    ir_id low, high;
    range_of(x, query, &low, &high);
    ir_id from = ir_min(b, ir_get(b, x->from), low), to = ir_max(b, ir_get(b, x->to), high);
    same = ir_and(b, same, ir_le(b, ir_sub(b, to, from), ir_u32(b, x->a->n_row)));
    ir_if(b, ir_and(b, same, ir_eq(b, ir_get(b, x->open), ir_u32(b, 1))));
    ir_set(b, x->from, from);
    ir_set(b, x->to, to);
    ir_set(b, x->inner_low, ir_max(b, ir_get(b, x->inner_low), low));
    ir_set(b, x->inner_high, ir_min(b, ir_get(b, x->inner_high), high));
    ir_set(b, x->end, tile_add(b, query, 1));
    ir_else(b);
    ir_set(b, x->open, ir_u32(b, 0));
    ir_end(b);
    ir_end(b);
}

static void scan(attention_rows *x, ir_id done) {
    ir_builder *b = x->k->b;
    const bool joint = BUILD_HAS_C_TEXTS && x->joint;
    if (joint) {
        ir_set(b, x->open, ir_u32(b, 0));
        ir_if(b, ir_eq(b, done, ir_u32(b, 0)));
        ir_set(b, x->open, ir_cast(b, IR_U32, scan_together(x)));
        ir_end(b);
        ir_if(b, ir_eq(b, ir_get(b, x->open), ir_u32(b, 0)));
    }
    scan_queries(x, done);
    if (joint) ir_end(b);
    ir_id all =
        ir_and(b, ir_eq(b, done, ir_u32(b, 0)), ir_eq(b, ir_get(b, x->end), ir_u32(b, x->queries)));
    if (x->spare) all = ir_bool(b, false);
    ir_set(b, x->inner_high, ir_select(b, all, ir_get(b, x->inner_high), ir_u32(b, 0)));
    ir_set(b, x->inner_low, ir_select(b, all, ir_get(b, x->inner_low), ir_u32(b, UINT32_MAX)));
    const bool looped = BUILD_HAS_C_TEXTS && x->looped;
    if (looped) {
        row_range(x, done, ir_loop(b, ir_u32(b, 0), ir_u32(b, x->each), ir_u32(b, 1)));
        ir_end(b);
    }
    for (uint32_t r = 0; !looped && r < x->each; r++) row_range(x, done, ir_u32(b, r));
}

void attention_rows_begin(attention_rows *x) {
    ir_builder *b = x->k->b;
    ir_set(b, x->end, ir_u32(b, 0));
    ir_id done = ir_loop(b, ir_u32(b, 0), x->n_query, ir_u32(b, 1));
    ir_if(b, ir_eq(b, done, ir_get(b, x->end)));
    x->slot = slot_at(x, done);
    scan(x, done);
}

void attention_rows_end(attention_rows *x) {
    ir_end(x->k->b);
    ir_end(x->k->b);
}

ir_id attention_rows_all_see(const attention_rows *x, ir_id first, uint32_t n) {
    ir_builder *b = x->k->b;
    return ir_and(b, ir_ge(b, first, ir_get(b, x->inner_low)),
                  ir_le(b, tile_add(b, first, n - 1), ir_get(b, x->inner_high)));
}

ir_id attention_rows_key(attention_rows *x, const attention_cache *cache, ir_id key) {
    ir_builder *b = x->k->b;
    const attention_task *a = x->a;
    ir_id base = tile_mul(b, ir_min(b, x->slot, ir_u32(b, a->n_slot - 1)), a->n_row);
    ir_id place = tile_rem(b, ir_min(b, key, ir_get(b, x->to)), a->n_row);
    return attention_cache_at(cache, base, place, x->kv, 1);
}

ir_id attention_block_at(ir_builder *b, ir_id line, ir_id element, uint32_t lines) {
    ir_id block = tile_mul(b, tile_div(b, element, ATTENTION_BLOCK), lines * ATTENTION_BLOCK);
    return ir_add(
        b, block,
        ir_add(b, tile_mul(b, line, ATTENTION_BLOCK), tile_rem(b, element, ATTENTION_BLOCK)));
}
