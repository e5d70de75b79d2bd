/* select.c - the first k of long rows, without sorting the rest.
 *
 * The one idea: the key of the last one that is kept is found digit by digit, from the highest on.
 * Chunks of a row count what values the next digit has in keys that agree with what is known; a
 * sum over chunks says which value it is. All counts together say too how many keys of a chunk
 * come before that key, and how many are alike, so each chunk knows where its own go in the list:
 * those before first, then of those alike as many as are missing, all in the order of their
 * places. The list is then sorted (tile/sort.c). Lanes mark what they find as bits of workgroup
 * memory; a lane takes a word of it. The same in every run: atomic are counts and bits alone. */
#include "base/error.h"
#include "tile/sort.h"

enum {
    DIGIT = 8,
    VALUES = 1 << DIGIT,
    LEVELS = 4,
    LANES = VALUES,
    EACH = 16, /* loads of a lane under way */
    WORD = 32,
    CHUNK = LANES * WORD, /* that is marked at once, */
    CHUNKS_MAX = 256,     /* and workgroups of a row */
    CHUNK_SERIAL = 1 << 14,
    LENGTH_MIN = 1 << 13,
    SHARE = 4 /* of a row that may be kept */
};
enum { SCRATCH_KNOWN = SORT_OWN, SCRATCH_SHARES = SCRATCH_KNOWN + 2, SCRATCH_COUNTS };

typedef struct selecting {
    sort *s;
    tile_kernel k;
    uint32_t chunk, n_chunk, n_level;
    ir_id row, chunk_at, first, n; /* n: of this chunk, 0 if the run has no such row */
} selecting;

/* Bits of level i lie from here on. */
static uint32_t shift_of(const sort *s, uint32_t level) {
    const uint32_t behind = DIGIT * (level + 1);
    return s->shift + (s->bits > behind ? s->bits - behind : 0);
}

static uint32_t bits_of(const sort *s, uint32_t level) {
    const uint32_t left = s->bits - DIGIT * level;
    return left < DIGIT ? left : DIGIT;
}

static void cut(const lowering *l, const sort *s, selecting *x) {
    const uint32_t least = tile_serial(l) ? CHUNK_SERIAL : CHUNK,
                   most = l->caps->loop_max ? CHUNKS_MAX / 4 : CHUNKS_MAX;
    x->chunk = least;
    while ((uint64_t)x->chunk * most < s->d) x->chunk *= 2;
    x->n_chunk = (s->d + x->chunk - 1) / x->chunk;
    x->n_level = (s->bits + DIGIT - 1) / DIGIT;
}

bool sort_selects(const lowering *l, const sort *s) {
    selecting x;
    const device_caps *caps = l->caps;
    if (!s->bits || s->d < LENGTH_MIN || s->kept > s->d / SHARE ||
        (!tile_serial(l) && caps->workgroup_invocations < LANES))
        return false;
    cut(l, s, &x);
    return (uint64_t)x.n_chunk * VALUES * s->row_bound <= UINT32_MAX &&
           (!caps->loop_max || x.chunk <= caps->loop_max / 4);
}

/* ---- what the kernels have ------------------------------------------------------------------- */

/* [rows, 2], after a level: the digits that are known; how many of those that agree with them are
 * kept. */
static ir_memory known(selecting *x, uint32_t level, ir_access access) {
    return tile_scratch(&x->k, access == IR_READ ? "known" : "now_known", SCRATCH_KNOWN + level % 2,
                        x->s->row_bound * 8, IR_U32, access);
}

/* [rows, n_chunk, 2]: keys before the last one that is kept; those alike */
static ir_memory shares(selecting *x, ir_access access) {
    return tile_scratch(&x->k, "shares", SCRATCH_SHARES, x->s->row_bound * x->n_chunk * 8, IR_U32,
                        access);
}

/* [rows, n_chunk, VALUES] */
static ir_memory counts(selecting *x, const char *name, uint32_t level, ir_access access) {
    return tile_scratch(&x->k, name, SCRATCH_COUNTS + level,
                        x->s->row_bound * x->n_chunk * VALUES * 4, IR_U32, access);
}

static void begin(selecting *x, lowering *l, const char *name, bool of_chunks) {
    sort *s = x->s;
    tile_kernel *k = s->k = &x->k;
    ir_builder *b = tile_begin(k, l, name, tile_serial(l) ? 1 : LANES);
    const ir_id group = tile_group(b), rows = tile_count(k, "rows", s->rows);
    x->row = of_chunks ? tile_div(b, group, x->n_chunk) : group;
    ir_if(b, ir_lt(b, x->row, rows));
    if (!of_chunks) return;
    x->chunk_at = tile_rem(b, group, x->n_chunk);
    x->first = tile_mul(b, x->chunk_at, x->chunk);
    x->n = ir_min(b, ir_sub(b, ir_u32(b, s->d), x->first), ir_u32(b, x->chunk));
}

static beryl_status end(selecting *x, bool of_chunks) {
    ir_end(x->k.b);
    return tile_end(&x->k, lower_count_times(x->s->rows, of_chunks ? x->n_chunk : 1), 1);
}

static ir_id lane(selecting *x) {
    return x->k.lanes > 1 ? ir_local(x->k.b, 0) : ir_u32(x->k.b, 0);
}

static void barrier(selecting *x) {
    if (x->k.lanes > 1) ir_barrier(x->k.b);
}

/* The shares, or counts, of this chunk begin here. */
static ir_id of_chunk(selecting *x, uint32_t each) {
    ir_builder *b = x->k.b;
    return tile_mul(b, ir_add(b, tile_mul(b, x->row, x->n_chunk), x->chunk_at), each);
}

static void read_x(selecting *x) {
    x->s->from = tile_read(&x->k, "x", x->s->node->in[0]);
    x->s->offset = tile_u32(&x->k, "x_offset", x->s->x->offset);
}

static ir_id key_at(selecting *x, ir_id place) {
    ir_builder *b = x->k.b;
    const ir_id at = ir_add(b, tile_mul(b, x->row, x->s->d), place);
    return sort_key(x->s, ir_load(b, x->s->from, ir_add(b, x->s->offset, at), 1));
}

/* ---- the last one that is kept --------------------------------------------------------------- */

static beryl_status count(lowering *l, selecting *x, uint32_t level) {
    tile_kernel *k = &x->k;
    const sort *s = x->s;
    begin(x, l, "select_count", true);
    ir_builder *b = k->b;
    ir_memory from = {0}, to = counts(x, "counts", level, IR_READ_WRITE),
              cell = ir_workgroup(b, IR_U32, VALUES);
    read_x(x);
    if (level) from = known(x, level - 1, IR_READ);
    const ir_id shift = tile_u32(k, "shift", shift_of(s, level)),
                mask = tile_u32(k, "mask", (1u << bits_of(s, level)) - 1),
                above = tile_u32(k, "above", level ? shift_of(s, level - 1) : 0),
                one = ir_u32(b, 1), lanes = ir_u32(b, k->lanes), zero = ir_u32(b, 0);
    const uint32_t each = k->lanes > 1 ? EACH : 1;
    ir_id v = ir_loop(b, lane(x), ir_u32(b, VALUES), lanes);
    ir_store(b, cell, v, zero);
    ir_end(b);
    barrier(x);
    const ir_id so_far =
        level ? ir_shr(b, ir_load(b, from, tile_mul(b, x->row, 2), 1), above) : IR_NO_ID;
    const ir_id turn = ir_loop(b, zero, x->n, ir_u32(b, k->lanes * each)),
                at = ir_add(b, turn, lane(x)), last = tile_add(b, x->n, UINT32_MAX);
    ir_id keys[EACH];
    for (uint32_t i = 0; i < each; i++)
        keys[i] = key_at(x, ir_add(b, x->first, ir_min(b, tile_add(b, at, i * k->lanes), last)));
    for (uint32_t i = 0; i < each; i++) {
        ir_id counted = ir_lt(b, tile_add(b, at, i * k->lanes), x->n);
        if (level) counted = ir_and(b, counted, ir_eq(b, ir_shr(b, keys[i], above), so_far));
        const ir_id digit = ir_and(b, ir_shr(b, keys[i], shift), mask);
        ir_if(b, counted);
        if (k->lanes > 1) ir_atomic(b, IR_ATOMIC_ADD, cell, digit, one);
        else ir_store(b, cell, digit, tile_add(b, ir_load(b, cell, digit, 1), 1));
        ir_end(b);
    }
    ir_end(b);
    barrier(x);
    v = ir_loop(b, lane(x), ir_u32(b, VALUES), lanes);
    ir_store(b, to, ir_add(b, of_chunk(x, VALUES), v), ir_load(b, cell, v, 1));
    ir_end(b);
    return end(x, true);
}

/* The value of a digit that `all` keys have, `before` less ones: is the last one among them? */
static void take_digit(selecting *x, ir_memory to, ir_id shift, ir_id so_far, ir_id wanted, ir_id v,
                       ir_id before, ir_id all) {
    ir_builder *b = x->k.b;
    const ir_id at = tile_mul(b, x->row, 2);
    ir_if(b, ir_and(b, ir_lt(b, before, wanted), ir_ge(b, ir_add(b, before, all), wanted)));
    ir_store(b, to, at, ir_or(b, so_far, ir_shl(b, v, shift)));
    ir_store(b, to, tile_add(b, at, 1), ir_sub(b, wanted, before));
    ir_end(b);
}

static beryl_status find(lowering *l, selecting *x, uint32_t level) {
    tile_kernel *k = &x->k;
    begin(x, l, "select_find", false);
    ir_builder *b = k->b;
    ir_memory from = counts(x, "counts", level, IR_READ), to = known(x, level, IR_READ_WRITE),
              had = {0}, sum = ir_register(b, IR_U32, 1), before = ir_register(b, IR_U32, 1);
    if (level) had = known(x, level - 1, IR_READ);
    const ir_id shift = tile_u32(k, "shift", shift_of(x->s, level)), zero = ir_u32(b, 0),
                one = ir_u32(b, 1), at = tile_mul(b, x->row, 2),
                row = tile_mul(b, x->row, x->n_chunk * VALUES);
    const ir_id so_far = level ? ir_load(b, had, at, 1) : zero,
                wanted =
                    level ? ir_load(b, had, tile_add(b, at, 1), 1) : tile_u32(k, "k", x->s->kept);
    ir_set(b, before, zero);
    const ir_id v = k->lanes > 1 ? ir_local(b, 0) : ir_loop(b, zero, ir_u32(b, VALUES), one);
    ir_set(b, sum, zero);
    const ir_id i = ir_loop_unrolled(b, zero, ir_u32(b, x->n_chunk), one, 8);
    const ir_id more = ir_load(b, from, ir_add(b, ir_add(b, row, tile_mul(b, i, VALUES)), v), 1);
    ir_set(b, sum, ir_add(b, ir_get(b, sum), more));
    ir_end(b);
    ir_id all = ir_get(b, sum), total;
    if (k->lanes > 1) {
        const ir_memory lanes = ir_workgroup(b, IR_U32, 2 * LANES);
        ir_set(b, before, tile_order_lanes(k, all, lanes, &total));
    }
    take_digit(x, to, shift, so_far, wanted, v, ir_get(b, before), all);
    if (k->lanes == 1) {
        ir_set(b, before, ir_add(b, ir_get(b, before), all));
        ir_end(b);
    }
    return end(x, false);
}

/* ---- the list -------------------------------------------------------------------------------- */

/* What chunks have of it. */
static beryl_status share(lowering *l, selecting *x) {
    tile_kernel *k = &x->k;
    begin(x, l, "select_share", true);
    ir_builder *b = k->b;
    static const char *const names[LEVELS] = {"counts0", "counts1", "counts2", "counts3"};
    ir_memory level[LEVELS], from = known(x, x->n_level - 1, IR_READ),
                             to = shares(x, IR_READ_WRITE), sum = ir_register(b, IR_U32, 1);
    for (uint32_t i = 0; i < x->n_level; i++) level[i] = counts(x, names[i], i, IR_READ);
    const ir_id zero = ir_u32(b, 0), key = ir_load(b, from, tile_mul(b, x->row, 2), 1),
                first = of_chunk(x, VALUES);
    ir_id last = zero;
    ir_set(b, sum, zero);
    const ir_id v = ir_loop(b, lane(x), ir_u32(b, VALUES), ir_u32(b, k->lanes));
    for (uint32_t i = 0; i < x->n_level; i++) {
        const ir_id digit = tile_and(b, tile_shr(b, key, shift_of(x->s, i)),
                                     (1u << bits_of(x->s, i)) - 1),
                    n = ir_load(b, level[i], ir_add(b, first, v), 1);
        ir_set(b, sum, ir_add(b, ir_get(b, sum), ir_select(b, ir_lt(b, v, digit), n, zero)));
    }
    ir_end(b);
    const ir_memory lanes = k->lanes > 1 ? ir_workgroup(b, IR_U32, k->lanes) : sum;
    const ir_id all = tile_reduce(k, IR_ADD, ir_get(b, sum), lanes);
    const uint32_t end_level = x->n_level - 1;
    last = tile_and(b, tile_shr(b, key, shift_of(x->s, end_level)),
                    (1u << bits_of(x->s, end_level)) - 1);
    if (k->lanes > 1) ir_if(b, ir_eq(b, ir_local(b, 0), zero));
    const ir_id at = of_chunk(x, 2);
    ir_store(b, to, at, all);
    ir_store(b, to, tile_add(b, at, 1), ir_load(b, level[end_level], ir_add(b, first, last), 1));
    if (k->lanes > 1) ir_end(b);
    return end(x, true);
}

typedef struct taking { /* of a chunk */
    ir_memory keys, places;
    ir_memory next[2];    /* where the next one goes, of those before and of those alike */
    ir_id key, last, row; /* the key, without what is below its digits; where the list begins */
} taking;

/* The next of which: 0 before, 1 alike. */
static void take(selecting *x, const taking *t, uint32_t which, ir_id key, ir_id place) {
    ir_builder *b = x->k.b;
    const ir_id to = ir_get(b, t->next[which]);
    ir_set(b, t->next[which], tile_add(b, to, 1));
    ir_if(b, ir_lt(b, to, ir_u32(b, x->s->kept)));
    ir_store(b, t->keys, ir_add(b, t->row, to), key);
    ir_store(b, t->places, ir_add(b, t->row, to), place);
    ir_end(b);
}

static void take_alone(selecting *x, const taking *t) {
    ir_builder *b = x->k.b;
    const ir_id i = ir_loop(b, ir_u32(b, 0), x->n, ir_u32(b, 1)), place = ir_add(b, x->first, i),
                key = key_at(x, place), high = tile_shr(b, key, x->s->shift);
    ir_if(b, ir_lt(b, high, t->last));
    take(x, t, 0, key, place);
    ir_end(b);
    ir_if(b, ir_eq(b, high, t->last));
    take(x, t, 1, key, place);
    ir_end(b);
    ir_end(b);
}

static void take_together(selecting *x, taking *t, ir_id some) {
    tile_kernel *k = &x->k;
    ir_builder *b = k->b;
    const ir_memory marks = ir_workgroup(b, IR_U32, 2 * LANES),
                    sums = ir_workgroup(b, IR_U32, 2 * LANES), word = ir_register(b, IR_U32, 1),
                    passed[2] = {ir_register(b, IR_U32, 1), ir_register(b, IR_U32, 1)};
    const ir_id local = ir_local(b, 0), zero = ir_u32(b, 0), one = ir_u32(b, 1),
                last = tile_add(b, x->n, UINT32_MAX), bit = tile_and(b, local, WORD - 1);
    for (uint32_t w = 0; w < 2; w++) ir_set(b, passed[w], ir_get(b, t->next[w]));
    /* nothing to take: no turn */
    const ir_id turn =
        ir_loop(b, zero, ir_select(b, some, ir_u32(b, x->chunk), zero), ir_u32(b, CHUNK));
    for (uint32_t w = 0; w < 2; w++) ir_store(b, marks, tile_add(b, local, w * LANES), zero);
    ir_barrier(b);
    const ir_id at = ir_add(b, ir_add(b, turn, local),
                            ir_loop(b, zero, ir_u32(b, CHUNK), ir_u32(b, EACH * LANES)));
    ir_id keys[EACH];
    for (uint32_t i = 0; i < EACH; i++)
        keys[i] = key_at(x, ir_add(b, x->first, ir_min(b, tile_add(b, at, i * LANES), last)));
    for (uint32_t i = 0; i < EACH; i++) {
        const ir_id own = tile_add(b, at, i * LANES), high = tile_shr(b, keys[i], x->s->shift);
        ir_if(b, ir_and(b, ir_le(b, high, t->last), ir_lt(b, own, x->n)));
        const ir_id in = tile_shr(b, ir_sub(b, own, turn), 5),
                    which = ir_select(b, ir_eq(b, high, t->last), ir_u32(b, LANES), zero);
        ir_atomic(b, IR_ATOMIC_ADD, marks, ir_add(b, in, which), ir_shl(b, one, bit));
        ir_end(b);
    }
    ir_end(b);
    ir_barrier(b);
    ir_id words[2], all;
    for (uint32_t w = 0; w < 2; w++) words[w] = ir_load(b, marks, tile_add(b, local, w * LANES), 1);
    const ir_id n[2] = {ir_unary(b, IR_POPCOUNT, words[0]), ir_unary(b, IR_POPCOUNT, words[1])},
                before = tile_order_lanes(k, ir_or(b, n[0], tile_shl(b, n[1], 16)), sums, &all);
    for (uint32_t w = 0; w < 2; w++) {
        ir_set(b, t->next[w],
               ir_add(b, ir_get(b, passed[w]), tile_and(b, tile_shr(b, before, 16 * w), 0xffff)));
        ir_set(b, word, words[w]);
        ir_loop(b, zero, n[w], one);
        const ir_id left = ir_get(b, word), less = tile_add(b, left, UINT32_MAX);
        /* the lowest bit: how many are below it */
        const ir_id lowest = ir_unary(b, IR_POPCOUNT, ir_and(b, ir_not(b, left), less)),
                    place = ir_add(b, ir_add(b, x->first, turn),
                                   ir_add(b, tile_mul(b, local, WORD), lowest));
        ir_set(b, word, ir_and(b, left, less));
        take(x, t, w, key_at(x, place), place);
        ir_end(b);
        ir_set(b, passed[w],
               ir_add(b, ir_get(b, passed[w]), tile_and(b, tile_shr(b, all, 16 * w), 0xffff)));
    }
    ir_barrier(b);
    ir_end(b);
}

static beryl_status collect(lowering *l, selecting *x) {
    tile_kernel *k = &x->k;
    sort *s = x->s;
    begin(x, l, "select", true);
    ir_builder *b = k->b;
    ir_memory digits = known(x, x->n_level - 1, IR_READ), from = shares(x, IR_READ);
    const uint64_t bytes = s->row_bound * s->kept * 4;
    taking t = {.keys = tile_scratch(k, "list_keys", SORT_LIST_KEYS, bytes, IR_U32, IR_READ_WRITE),
                .places =
                    tile_scratch(k, "list_places", SORT_LIST_PLACES, bytes, IR_U32, IR_READ_WRITE)};
    read_x(x);
    const ir_id kept = ir_u32(b, s->kept), state = tile_mul(b, x->row, 2),
                alike = ir_load(b, digits, tile_add(b, state, 1), 1), own = of_chunk(x, 2),
                first = tile_mul(b, x->row, x->n_chunk * 2);
    ir_id n[2];
    for (uint32_t w = 0; w < 2; w++) {
        t.next[w] = ir_register(b, IR_U32, 1);
        ir_set(b, t.next[w], ir_u32(b, 0));
    }
    const ir_id i = ir_loop(b, lane(x), x->chunk_at, ir_u32(b, k->lanes));
    for (uint32_t w = 0; w < 2; w++) {
        const ir_id more = ir_load(b, from, ir_add(b, first, tile_add(b, tile_mul(b, i, 2), w)), 1);
        ir_set(b, t.next[w], ir_add(b, ir_get(b, t.next[w]), more));
    }
    ir_end(b);
    const ir_memory lanes = k->lanes > 1 ? ir_workgroup(b, IR_U32, k->lanes) : t.next[0];
    for (uint32_t w = 0; w < 2; w++) n[w] = tile_reduce(k, IR_ADD, ir_get(b, t.next[w]), lanes);
    /* those alike come behind all that are before */
    n[1] = ir_add(b, n[1], ir_sub(b, kept, alike));
    for (uint32_t w = 0; w < 2; w++) ir_set(b, t.next[w], n[w]);
    t.key = ir_load(b, digits, state, 1);
    t.last = tile_shr(b, t.key, s->shift);
    t.row = tile_mul(b, x->row, s->kept);
    const ir_id zero = ir_u32(b, 0),
                some = ir_or(b, ir_ne(b, ir_load(b, from, own, 1), zero),
                             ir_and(b, ir_ne(b, ir_load(b, from, tile_add(b, own, 1), 1), zero),
                                    ir_lt(b, n[1], kept)));
    if (k->lanes > 1) {
        take_together(x, &t, some);
    } else {
        ir_if(b, some);
        take_alone(x, &t);
        ir_end(b);
    }
    return end(x, true);
}

beryl_status sort_select(lowering *l, sort *s) {
    selecting x = {.s = s};
    cut(l, s, &x);
    beryl_status status = BERYL_OK;
    for (uint32_t level = 0; status == BERYL_OK && level < x.n_level; level++) {
        status = count(l, &x, level);
        if (status == BERYL_OK) status = find(l, &x, level);
    }
    if (status == BERYL_OK) status = share(l, &x);
    if (status == BERYL_OK) status = collect(l, &x);
    return status == BERYL_OK ? sort_list(l, s) : status;
}

beryl_status sort_list(lowering *l, const sort *s) {
    sort list = *s;
    list.listed = true;
    list.d = s->kept;
    list.bound = s->row_bound * s->kept;
    return sort_rows(l, &list);
}
