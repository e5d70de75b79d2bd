/* select_blocks.c - the first few of long rows on a processor, which reads a row once.
 *
 * The one idea: of blocks of neighbours, as many as elements are kept, those whose first elements
 * come first hold all that is kept, ties too, which go to the lower place in both. So a dispatch
 * finds the first key of each block, in vectors; a second one takes the blocks, and of their
 * elements those that are kept, in the order of their places; then the list is sorted
 * (tile/sort.c). The last key that is kept is found bit by bit, by counting those below. What is
 * behind the last block is looked at as blocks are that are taken. */
#include "base/error.h"
#include "tile/sort.h"

enum {
    WIDE = TILE_RUN,
    ELEMENTS = 1 << 14, /* of blocks that a workgroup reads, at least */
    LENGTH_MIN = 1 << 8,
    BLOCK_MAX = 1 << 10,
    SHARE = 2 /* of a row that is looked at twice, at most */
};
enum { SCRATCH_FIRST = SORT_OWN, SCRATCH_BLOCKS, SCRATCH_KEYS };

typedef struct selecting {
    sort *s;
    tile_kernel k;
    uint32_t block, n_block;        /* of a row; n_block: a multiple of the vector */
    uint32_t behind, taken, n_keys; /* elements behind blocks; blocks; their elements, and pads */
    ir_id row;
} selecting;

static bool cut(const sort *s, selecting *x) {
    x->block = WIDE;
    /* as much is read of first keys as of blocks that are taken */
    while (x->block < BLOCK_MAX && (uint64_t)x->block * 2 * x->block * 2 * s->kept <= s->d)
        x->block *= 2;
    x->n_block = s->d / x->block / WIDE * WIDE;
    x->behind = s->d - x->n_block * x->block;
    x->taken = s->kept + (x->behind + x->block - 1) / x->block;
    x->n_keys = x->taken * x->block;
    return s->kept <= x->n_block && x->n_keys <= s->d / SHARE;
}

bool sort_selects_blocks(const lowering *l, const sort *s) {
    selecting x;
    return tile_is_host(l) && s->bits && s->d >= LENGTH_MIN && cut(s, &x);
}

/* ---- what both kernels have ------------------------------------------------------------------ */

/* [rows, each] */
static ir_memory scratch(selecting *x, const char *name, uint32_t key, uint32_t each,
                         ir_access access) {
    return tile_scratch(&x->k, name, key, x->s->row_bound * each * 4, IR_U32, access);
}

static void begin(selecting *x, lowering *l, const char *name, uint32_t groups) {
    sort *s = x->s;
    tile_kernel *k = s->k = &x->k;
    ir_builder *b = tile_begin(k, l, name, 1);
    s->from = tile_read(k, "x", s->node->in[0]);
    s->from.anywhere = true;
    const ir_id rows = tile_count(k, "rows", s->rows),
                offset = tile_u32(k, "x_offset", s->x->offset);
    x->row = tile_div(b, tile_group(b), groups);
    ir_if(b, ir_lt(b, x->row, rows));
    s->offset = ir_add(b, offset, tile_mul(b, x->row, s->d));
}

static ir_id keys_at(selecting *x, ir_id place, uint32_t width) {
    ir_builder *b = x->k.b;
    return sort_key(x->s, ir_load(b, x->s->from, ir_add(b, x->s->offset, place), width));
}

/* ---- first keys ------------------------------------------------------------------------------ */

static beryl_status find_first(lowering *l, selecting *x) {
    tile_kernel *k = &x->k;
    const uint32_t each = ELEMENTS / x->block, groups = (x->n_block + each - 1) / each;
    begin(x, l, "select_first", groups);
    ir_builder *b = k->b;
    const ir_memory to = scratch(x, "first", SCRATCH_FIRST, x->n_block, IR_READ_WRITE),
                    least = ir_register(b, IR_U32, WIDE);
    const ir_id zero = ir_u32(b, 0), from = tile_mul(b, tile_rem(b, tile_group(b), groups), each),
                end = ir_min(b, tile_add(b, from, each), ir_u32(b, x->n_block)),
                block = ir_loop(b, from, end, ir_u32(b, 1));
    ir_store(b, least, zero, ir_bits(b, IR_U32, WIDE, UINT32_MAX));
    const ir_id i = ir_loop_unrolled(b, zero, ir_u32(b, x->block), ir_u32(b, WIDE), 4);
    const ir_id keys = keys_at(x, ir_add(b, tile_mul(b, block, x->block), i), WIDE);
    ir_store(b, least, zero, ir_min(b, ir_load(b, least, zero, WIDE), keys));
    ir_end(b);
    ir_store(b, to, ir_add(b, tile_mul(b, x->row, x->n_block), block),
             tile_min_vector(b, ir_load(b, least, zero, WIDE)));
    ir_end(b), ir_end(b);
    return tile_end(k, lower_count_times(x->s->rows, groups), 1);
}

/* ---- the list -------------------------------------------------------------------------------- */

typedef struct last { /* key that is kept of some; how many of those alike */
    ir_memory key, alike;
} last;

/* Of n keys from `first` on. */
static last find_last(selecting *x, ir_memory keys, ir_id first, uint32_t n) {
    ir_builder *b = x->k.b;
    const last found = {ir_register(b, IR_U32, 1), ir_register(b, IR_U32, 1)};
    const ir_memory sums = ir_register(b, IR_U32, WIDE);
    const ir_id zero = ir_u32(b, 0), one = ir_u32(b, 1), kept = ir_u32(b, x->s->kept);
    ir_set(b, found.key, zero);
    ir_set(b, found.alike, kept);
    const ir_id turn = ir_loop(b, one, ir_u32(b, x->s->shift + x->s->bits + 1), one),
                bit = ir_sub(b, ir_u32(b, x->s->shift + x->s->bits), turn),
                so_far = ir_get(b, found.key), next = ir_or(b, so_far, ir_shl(b, one, bit)),
                wide = ir_splat(b, next, WIDE), none = ir_bits(b, IR_U32, WIDE, 0),
                ones = ir_bits(b, IR_U32, WIDE, 1);
    ir_store(b, sums, zero, none);
    const ir_id i = ir_loop_unrolled(b, zero, ir_u32(b, n), ir_u32(b, WIDE), 4);
    const ir_id some = ir_load(b, keys, ir_add(b, first, i), WIDE);
    ir_store(
        b, sums, zero,
        ir_add(b, ir_load(b, sums, zero, WIDE), ir_select(b, ir_lt(b, some, wide), ones, none)));
    ir_end(b);
    const ir_id below = tile_sum_vector(b, ir_load(b, sums, zero, WIDE)),
                behind = ir_lt(b, below, kept);
    ir_set(b, found.key, ir_select(b, behind, next, so_far));
    ir_set(b, found.alike, ir_select(b, behind, ir_sub(b, kept, below), ir_get(b, found.alike)));
    ir_end(b);
    return found;
}

/* Where a key is kept: to be ended. */
static void if_kept(selecting *x, const last *t, ir_id key) {
    ir_builder *b = x->k.b;
    const ir_id end = ir_get(b, t->key), alike = ir_eq(b, key, end), left = ir_get(b, t->alike),
                one = ir_u32(b, 1), zero = ir_u32(b, 0);
    ir_if(b, ir_or(b, ir_lt(b, key, end), ir_and(b, alike, ir_ne(b, left, zero))));
    ir_set(b, t->alike, ir_sub(b, left, ir_select(b, alike, one, zero)));
}

static ir_id next_of(selecting *x, ir_memory n) {
    ir_builder *b = x->k.b;
    const ir_id at = ir_get(b, n);
    ir_set(b, n, tile_add(b, at, 1));
    return at;
}

/* Elements of blocks that are taken, and those behind all blocks, as keys. */
static void take_blocks(selecting *x, ir_memory first, ir_memory blocks, ir_memory keys,
                        ir_memory n) {
    ir_builder *b = x->k.b;
    const ir_id zero = ir_u32(b, 0), one = ir_u32(b, 1), n_block = ir_u32(b, x->n_block),
                own = tile_mul(b, x->row, x->n_block), list = tile_mul(b, x->row, x->taken),
                to = tile_mul(b, x->row, x->n_keys);
    const last t = find_last(x, first, own, x->n_block);
    ir_set(b, n, zero);
    const ir_id block = ir_loop(b, zero, n_block, one);
    if_kept(x, &t, ir_load(b, first, ir_add(b, own, block), 1));
    const ir_id at = next_of(x, n);
    ir_store(b, blocks, ir_add(b, list, at), block);
    const ir_id i = ir_loop(b, zero, ir_u32(b, x->block), ir_u32(b, WIDE));
    ir_store(b, keys, ir_add(b, to, ir_add(b, tile_mul(b, at, x->block), i)),
             keys_at(x, ir_add(b, tile_mul(b, block, x->block), i), WIDE));
    ir_end(b), ir_end(b), ir_end(b);
    const uint32_t more = x->taken - x->s->kept, pads = more * x->block;
    if (!more) return;
    const ir_id next = ir_loop(b, zero, ir_u32(b, more), one);
    ir_store(b, blocks, ir_add(b, list, tile_add(b, next, x->s->kept)), ir_add(b, n_block, next));
    ir_end(b);
    const ir_id behind = ir_loop(b, zero, ir_u32(b, pads), one),
                place = tile_add(b, behind, x->n_block * x->block);
    ir_store(b, keys, ir_add(b, to, tile_add(b, behind, x->s->kept * x->block)),
             ir_select(b, ir_lt(b, behind, ir_u32(b, x->behind)),
                       keys_at(x, ir_min(b, place, ir_u32(b, x->s->d - 1)), 1),
                       ir_u32(b, UINT32_MAX)));
    ir_end(b);
}

static beryl_status take(lowering *l, selecting *x) {
    tile_kernel *k = &x->k;
    const uint32_t kept = x->s->kept;
    begin(x, l, "select_few", 1);
    ir_builder *b = k->b;
    const ir_memory first = scratch(x, "first", SCRATCH_FIRST, x->n_block, IR_READ),
                    blocks = scratch(x, "blocks", SCRATCH_BLOCKS, x->taken, IR_READ_WRITE),
                    keys = scratch(x, "keys", SCRATCH_KEYS, x->n_keys, IR_READ_WRITE),
                    list_keys = scratch(x, "list_keys", SORT_LIST_KEYS, kept, IR_READ_WRITE),
                    list_places = scratch(x, "list_places", SORT_LIST_PLACES, kept, IR_READ_WRITE),
                    n = ir_register(b, IR_U32, 1);
    take_blocks(x, first, blocks, keys, n);
    const ir_id zero = ir_u32(b, 0), one = ir_u32(b, 1), from = tile_mul(b, x->row, x->n_keys),
                list = tile_mul(b, x->row, kept);
    const last t = find_last(x, keys, from, x->n_keys);
    ir_set(b, n, zero);
    const ir_id i = ir_loop(b, zero, ir_u32(b, x->n_keys), one),
                key = ir_load(b, keys, ir_add(b, from, i), 1);
    if_kept(x, &t, key);
    const ir_id to = ir_add(b, list, next_of(x, n)),
                block =
                    ir_load(b, blocks,
                            ir_add(b, tile_mul(b, x->row, x->taken), tile_div(b, i, x->block)), 1);
    ir_store(b, list_keys, to, key);
    ir_store(b, list_places, to, ir_add(b, tile_mul(b, block, x->block), tile_rem(b, i, x->block)));
    ir_end(b), ir_end(b), ir_end(b);
    return tile_end(k, x->s->rows, 1);
}

beryl_status sort_select_blocks(lowering *l, sort *s) {
    selecting x = {.s = s};
    cut(s, &x);
    beryl_status status = find_first(l, &x);
    if (status == BERYL_OK) status = take(l, &x);
    return status == BERYL_OK ? sort_list(l, s) : status;
}
