/* attention_units.c - attention of few rows over many keys of F16 and Q8_0 caches on
 * matrix units: a workgroup reads each of its keys once for up to 8 heads.
 *
 * A matrix has 16 rows and 8 heads need half of them, so the others hold what rounding took: row
 * h is a head's query in halves, row 8 + h the rest, times 2^11. Products of halves are exact in
 * f32, so a score (row h + row 8 + h / 2^11) is as good as one of f32 queries; the same with the
 * weights of the values. Keys come by asynchronous copies in chunks, several under way; a round
 * has all keys of a part of the piece, whose scores stay in workgroup memory, then the weights,
 * then its values. The row's own key and value, where they come along, are worked on in f32 from
 * workgroup memory by the first piece.
 *
 * Bytes of Q8_0 are halves as such, and their scales numbers of f32: a block's part of a score is
 * a sum of its own, and weights are multiplied by the scales of a block of values before they
 * become halves. A lane's word is four elements of a row, so elements of a depth and columns of
 * the sums are in the order in which lanes have them. */
#include "tile/attention.h"
#include "base/build.h"
#include "base/error.h"

#define REST 2048.0f /* 2^11: what rounding to halves takes of x is below x / this */

enum {
    HEADS = 8,
    ROWS = 16,  /* of a matrix; */
    TILE = 8,   /* its columns; */
    DEPTH = 16, /* what is summed at a time */
    LANES = 32,
    WARPS = 8,
    CHUNK = 32, /* keys that are copied at a time */
    KEY_TILES = CHUNK / TILE,
    KEY_PARTS = WARPS / KEY_TILES, /* parts of d, of scores */
    BLOCK = 32,                    /* of Q8_0, */
    BLOCK_TILES = BLOCK / TILE,
    ROUND_CHUNKS = 8,
    ROUND = ROUND_CHUNKS * CHUNK, /* keys; pieces of several rows have one */
    PIECE_MIN = 32,               /* keys, where there are fewer than units */
    PIECES_MAX = 512,
    PAD = 8, /* elements: rows of matrices begin in other banks */
    SCORES = ROUND + PAD,
    STAGES_MAX = 5,
    STAGES_MIN = 3,
    KEYS_FAR = 512 /* more keys than these */
};

typedef struct form {
    uint32_t heads, n_split, stages;
    bool q8;
    uint32_t line; /* of the stage: halves of a row, or words, scales behind the bytes */
} form;

static uint32_t line_of(uint32_t d) { /* elements of a row of queries, of sums */
    return d + PAD;
}

/* Rows of words begin in banks 4 * odd from each other. */
static uint32_t words_of(uint32_t d) {
    const uint32_t words = d / 4 + d / 64;
    return words % 8 ? words : words + 4;
}

/* Lines of room: first the query heads', then of scores, then of sums. Behind them are the row's
 * own key and value. */
static uint32_t room_of(uint32_t d) {
    const uint32_t scores = (uint32_t)KEY_PARTS * ROWS * SCORES, sums = ROWS * line_of(d);
    return ((scores > sums ? scores : sums) + d - 1) / d;
}

static uint32_t halves_of(uint32_t d) { /* queries, weights */
    return ROWS * line_of(d) + ROWS * SCORES;
}

static bool form_of(const device_caps *caps, const attention_task *a, form *f) {
    const uint32_t units = tile_units(caps);
    if (!BUILD_HAS_C_TEXTS || !ir_has_fragment(caps, IR_F16, IR_F32, ROWS, TILE, DEPTH) ||
        caps->subgroup_size != LANES || caps->workgroup_invocations < WARPS * LANES)
        return false;
    if ((a->cache != TYPE_F16 && a->cache != TYPE_Q8_0) || !a->dense || a->k_offset ||
        a->v_offset || a->d % (ATTENTION_EIGHT * LANES) ||
        a->d > ATTENTION_EIGHT * ATTENTION_EIGHTS_MAX * LANES || a->n_head % a->n_kv ||
        a->keys <= KEYS_FAR)
        return false;
    f->heads = whole_divisor(a->n_head / a->n_kv, HEADS);
    f->q8 = a->cache == TYPE_Q8_0;
    f->line = f->q8 ? words_of(a->d) : line_of(a->d);
    const uint32_t fixed = (room_of(a->d) + 2) * a->d * 4 + halves_of(a->d) * 2 + 8 * HEADS,
                   stage = CHUNK * f->line * (f->q8 ? 4 : 2);
    if (caps->workgroup_bytes < fixed + STAGES_MIN * stage) return false;
    f->stages = (caps->workgroup_bytes - fixed) / stage;
    if (f->stages > STAGES_MAX) f->stages = STAGES_MAX;
    /* one for each unit; rows may have keys of different numbers, which short pieces spread */
    const uint32_t beside = a->n_head / f->heads * a->n,
                   least = a->n > 1 ? (a->keys + ROUND - 1) / ROUND : 2,
                   most = (a->keys + PIECE_MIN - 1) / PIECE_MIN;
    f->n_split = units / beside;
    if (f->n_split > most) f->n_split = most;
    if (f->n_split < least) f->n_split = least;
    return f->n_split <= PIECES_MAX;
}

uint32_t attention_units_splits(const device_caps *caps, const attention_task *a) {
    form f;
    return form_of(caps, a, &f) ? f.n_split : 0;
}

/* ---- the kernel ------------------------------------------------------------------------------ */

typedef struct shared {
    tile_kernel k;
    const attention_task *a;
    form f;
    attention_lines x;
    ir_memory wide; /* x.memory: scores [KEY_PARTS, ROWS, SCORES], then sums [ROWS, d] */
    /* halves: [ROWS, d], [ROWS, ROUND], of Q8_0 f32 [HEADS, ROUND]; chunks [CHUNK, line];
     * f32 [HEADS]: own key's weights, what a round leaves of the sums before */
    ir_memory queries, weights, stage, own, keep;
    ir_memory most, total; /* registers: of the warp's head */
    ir_fragments query, key, score, weight, value, sum;
    ir_id count, ring, chunks, warp, own_score;
    ir_id row, pair; /* of matrices, the lane's: lane / 4, 2 * (lane % 4) */
} shared;

typedef struct stretch {      /* a round */
    ir_id keys, chunks, step; /* step: its first */
} stretch;

static stretch stretch_of(shared *s, ir_id round) {
    ir_builder *b = s->k.b;
    return (stretch){
        ir_min(b, ir_sub(b, s->count, tile_mul(b, round, ROUND)), ir_u32(b, ROUND)),
        ir_min(b, ir_sub(b, s->chunks, tile_mul(b, round, ROUND_CHUNKS)), ir_u32(b, ROUND_CHUNKS)),
        tile_mul(b, round, 2 * ROUND_CHUNKS)};
}

static void declare(shared *s) {
    ir_builder *b = s->k.b;
    const uint32_t d = s->a->d;
    const bool q8 = s->f.q8;
    s->x.memory = s->wide = ir_workgroup(b, IR_F32, (room_of(d) + 2) * d);
    s->queries = ir_workgroup(b, IR_F16, ROWS * line_of(d));
    s->weights =
        q8 ? ir_workgroup(b, IR_F32, HEADS * SCORES) : ir_workgroup(b, IR_F16, ROWS * SCORES);
    s->stage = ir_workgroup(b, q8 ? IR_U32 : IR_F16, s->f.stages * CHUNK * s->f.line);
    s->own = ir_workgroup(b, IR_F32, HEADS);
    s->keep = ir_workgroup(b, IR_F32, HEADS);
    s->most = ir_register(b, IR_F32, 1);
    s->total = ir_register(b, IR_F32, 1);
    attention_lines_declare(&s->x);
    s->query = ir_fragment(b, IR_ROLE_A, IR_F16, ROWS, TILE, DEPTH, d / KEY_PARTS / DEPTH);
    s->key = ir_fragment(b, IR_ROLE_B, IR_F16, ROWS, TILE, DEPTH, 1);
    s->score = ir_fragment(b, IR_ROLE_C, IR_F32, ROWS, TILE, DEPTH, 1);
    s->weight = ir_fragment(b, IR_ROLE_A, IR_F16, ROWS, TILE, DEPTH, 1);
    s->value = ir_fragment(b, IR_ROLE_B, IR_F16, ROWS, TILE, DEPTH, 1);
    s->sum = ir_fragment(b, IR_ROLE_C, IR_F32, ROWS, TILE, DEPTH, d / WARPS / TILE);
    s->warp = s->x.member;
    s->row = tile_div(b, s->x.lane, 4);
    s->pair = tile_mul(b, tile_rem(b, s->x.lane, 4), 2);
}

/* ---- chunks: of each round the keys' steps, then the values' --------------------------------- */

/* `units` of 16 bytes of each of a chunk's rows, from `from` on: of the caches `each` elements,
 * halves or words, lines one after another; in the stage from `to` on. */
static void copy_units(shared *s, const attention_cache *cache, ir_id chunk, ir_id slot,
                       uint32_t units, ir_id from, uint32_t to) {
    ir_builder *b = s->k.b;
    const attention_task *a = s->a;
    const form *f = &s->f;
    const uint32_t each = f->q8 ? 4 : ATTENTION_EIGHT, all = CHUNK * units;
    for (uint32_t i = 0; i < all; i += WARPS * LANES) {
        ir_id at = tile_add(b, s->x.local, i), row = tile_div(b, at, units),
              unit = tile_mul(b, tile_rem(b, at, units), each);
        if (all - i < WARPS * LANES) ir_if(b, ir_lt(b, at, ir_u32(b, all)));
        ir_id key = ir_add(b, tile_mul(b, chunk, CHUNK), row), valid = ir_lt(b, key, s->count);
        ir_id place = ir_add(b, s->ring, ir_min(b, key, tile_add(b, s->count, UINT32_MAX))),
              rows = ir_u32(b, a->n_row);
        place = ir_select(b, ir_ge(b, place, rows), ir_sub(b, place, rows), place);
        ir_id line = ir_add(b, tile_mul(b, ir_add(b, s->x.of.base, place), a->n_kv), s->x.kv),
              source = ir_add(b, tile_mul(b, line, units * each), unit);
        if (from != IR_NO_ID) source = ir_add(b, source, from);
        ir_id target = ir_add(b, tile_mul(b, slot, CHUNK * f->line),
                              ir_add(b, tile_mul(b, row, f->line), tile_add(b, unit, to)));
        ir_copy_async(b, s->stage, target, cache->at, attention_cache_bound(cache, source), 16,
                      valid);
        if (all - i < WARPS * LANES) ir_end(b);
    }
}

static void copy(shared *s, const attention_cache *cache, ir_id chunk, ir_id slot) {
    const uint32_t d = s->a->d;
    if (!s->f.q8) {
        copy_units(s, cache, chunk, slot, d / ATTENTION_EIGHT, IR_NO_ID, 0);
        return;
    }
    copy_units(s, cache, chunk, slot, d / 16, IR_NO_ID, 0);
    copy_units(s, cache, chunk, slot, d / 256, ir_u32(s->k.b, cache->plane), d / 4);
}

/* Asks for step i, if there is one. */
static void ask(shared *s, ir_id i) {
    ir_builder *b = s->k.b;
    const uint32_t most = ROUND_CHUNKS;
    ir_id round = tile_div(b, i, 2 * most), first = tile_mul(b, round, most),
          step = tile_rem(b, i, 2 * most), slot = tile_rem(b, i, s->f.stages);
    ir_id keys = ir_min(b, ir_sub(b, s->chunks, first), ir_u32(b, most));
    ir_if(b, ir_lt(b, i, tile_mul(b, s->chunks, 2)));
    ir_if(b, ir_lt(b, step, keys));
    copy(s, &s->x.keys, ir_add(b, first, step), slot);
    ir_else(b);
    copy(s, &s->x.values, ir_add(b, first, ir_sub(b, step, keys)), slot);
    ir_end(b);
    ir_end(b);
    ir_copy_commit(b);
}

/* Waits for step i, asks for the last one that there is room for: its place is that of step i -
 * 1. Where step i lies. */
static ir_id turn(shared *s, ir_id i) {
    ir_builder *b = s->k.b;
    ir_copy_wait(b, s->f.stages - 2);
    ir_barrier(b);
    ask(s, tile_add(b, i, s->f.stages - 1));
    return tile_mul(b, tile_rem(b, i, s->f.stages), CHUNK * s->f.line);
}

/* ---- queries, scores, weights, values -------------------------------------------------------- */

/* A number of rows h and 8 + h. */
static void halve(shared *s, ir_id x, uint32_t width, ir_id out[2]) {
    ir_builder *b = s->k.b;
    out[0] = ir_cast(b, IR_F16, x);
    out[1] = ir_cast(
        b, IR_F16,
        ir_mul(b, ir_sub(b, x, ir_cast(b, IR_F32, out[0])), ir_number(b, IR_F32, width, REST)));
}

/* Of Q8_0, of four elements of a depth the first two are before all others' last two. */
static void queries(shared *s) {
    ir_builder *b = s->k.b;
    const uint32_t d = s->a->d, fours = d / 4;
    ir_id i = ir_loop(b, s->x.local, ir_u32(b, HEADS * fours), ir_u32(b, WARPS * LANES));
    ir_id head = tile_div(b, i, fours), four = tile_rem(b, i, fours), column = tile_mul(b, four, 4);
    ir_id line = ir_min(b, head, ir_u32(b, s->f.heads - 1)), parts[2];
    ir_id x = ir_load(b, s->x.memory,
                      ir_add(b, tile_mul(b, line, d), attention_line_place(&s->x, 0, four)), 4);
    x = ir_select(b, ir_splat(b, ir_lt(b, head, ir_u32(b, s->f.heads)), 4), x,
                  ir_number(b, IR_F32, 4, 0));
    halve(s, x, 4, parts);
    if (s->f.q8) column = ir_sub(b, column, tile_mul(b, tile_rem(b, four, DEPTH / 4), 2));
    for (uint32_t p = 0; p < 2; p++) {
        ir_id to = ir_add(b, tile_mul(b, tile_add(b, head, p * HEADS), line_of(d)), column);
        if (!s->f.q8) {
            ir_store(b, s->queries, to, parts[p]);
            continue;
        }
        ir_store(b, s->queries, to, ir_swizzle(b, parts[p], 2, 0x10));
        ir_store(b, s->queries, tile_add(b, to, DEPTH / 2), ir_swizzle(b, parts[p], 2, 0x32));
    }
    ir_end(b);
}

/* Bytes of a word as numbers: each, plus 128, are the low bits of 2^23, which is taken off. */
static ir_id bytes(shared *s, ir_id at) {
    ir_builder *b = s->k.b;
    ir_id word = ir_xor(b, ir_load(b, s->stage, at, 1), ir_u32(b, 0x80808080)), x[4];
    for (uint32_t i = 0; i < 4; i++)
        x[i] = ir_bitcast(b, IR_F32, 1,
                          ir_permute_bytes(b, word, ir_u32(b, 0x4b000000), ir_u32(b, 0x7540 | i)));
    return ir_sub(b, ir_compose(b, x, 4), ir_number(b, IR_F32, 4, 8388608 + 128));
}

/* Scores of a tile that lies at `at`, columns from `first` on. */
static void tile_scores(shared *s, ir_id at, ir_id first) {
    ir_builder *b = s->k.b;
    const uint32_t line = s->f.line;
    at = ir_add(b, at, first);
    ir_fragment_fill(b, s->score, ir_u32(b, 0), ir_f32(b, 0));
    for (uint32_t i = 0; i < s->a->d / KEY_PARTS / DEPTH; i++) {
        ir_fragment_load(b, s->key, ir_u32(b, 0), s->stage, tile_add(b, at, i * DEPTH),
                         ir_u32(b, line), true);
        ir_fragment_mma(b, s->score, ir_u32(b, 0), s->query, ir_u32(b, i), s->key, ir_u32(b, 0));
    }
}

/* The same of Q8_0: a block's part is multiplied by its scales. */
static void tile_scores_q8(shared *s, ir_id at, ir_id first) {
    ir_builder *b = s->k.b;
    const uint32_t line = s->f.line, d = s->a->d;
    ir_id zero = ir_u32(b, 0), word = ir_add(b, at, tile_mul(b, s->row, line)), sums[2];
    word = ir_add(b, word, ir_add(b, tile_div(b, first, 4), tile_div(b, s->pair, 2)));
    ir_id scales = tile_add(b, ir_add(b, at, tile_div(b, first, 2 * BLOCK)), d / 4);
    scales = ir_add(b, scales, tile_mul(b, s->pair, line));
    for (uint32_t block = 0; block < d / KEY_PARTS / BLOCK; block += 2) {
        ir_id two[2]; /* keys; scales of two blocks */
        for (uint32_t i = 0; i < 2; i++) {
            ir_id bits = ir_load(b, s->stage, tile_add(b, scales, i * line + block / 2), 1);
            two[i] = ir_cast(b, IR_F32, ir_bitcast(b, IR_F16, 2, bits));
        }
        for (uint32_t e = 0; e < 2; e++) {
            ir_fragment_fill(b, s->score, zero, ir_f32(b, 0));
            for (uint32_t i = 0; i < BLOCK / DEPTH; i++) {
                const uint32_t depth = (block + e) * (BLOCK / DEPTH) + i;
                ir_id x = bytes(s, tile_add(b, word, depth * DEPTH / 4));
                ir_fragment_set(b, s->key, zero, 0, ir_cast(b, IR_F16, ir_swizzle(b, x, 2, 0x10)));
                ir_fragment_set(b, s->key, zero, 1, ir_cast(b, IR_F16, ir_swizzle(b, x, 2, 0x32)));
                ir_fragment_mma(b, s->score, zero, s->query, ir_u32(b, depth), s->key, zero);
            }
            ir_id scale =
                ir_compose(b, (ir_id[]){ir_extract(b, two[0], e), ir_extract(b, two[1], e)}, 2);
            for (uint32_t p = 0; p < 2; p++) {
                ir_id x = ir_fragment_get(b, s->score, zero, p);
                sums[p] = block + e ? ir_fma(b, x, scale, sums[p]) : ir_mul(b, x, scale);
            }
        }
    }
    for (uint32_t p = 0; p < 2; p++) ir_fragment_set(b, s->score, zero, p, sums[p]);
}

/* A warp has a tile of each chunk's keys and a part of d. */
static void scores(shared *s, const stretch *p) {
    ir_builder *b = s->k.b;
    const form *f = &s->f;
    ir_id tile = tile_rem(b, s->warp, KEY_TILES), own = tile_div(b, s->warp, KEY_TILES),
          first = tile_mul(b, own, s->a->d / KEY_PARTS), zero = ir_u32(b, 0);
    ir_id step = ir_loop(b, zero, p->chunks, ir_u32(b, 1)), at = turn(s, ir_add(b, p->step, step));
    ir_id key = tile_mul(b, tile, TILE), from = ir_add(b, at, tile_mul(b, key, f->line));
    if (f->q8) tile_scores_q8(s, from, first);
    else tile_scores(s, from, first);
    ir_id to = ir_add(b, tile_mul(b, own, ROWS * SCORES), ir_add(b, tile_mul(b, step, CHUNK), key));
    ir_fragment_store(b, s->score, zero, s->wide, to, ir_u32(b, SCORES), false);
    ir_end(b);
}

static void load_queries(shared *s) {
    ir_builder *b = s->k.b;
    const uint32_t part = s->a->d / KEY_PARTS;
    ir_id first = tile_mul(b, tile_div(b, s->warp, KEY_TILES), part);
    for (uint32_t i = 0; i < part / DEPTH; i++)
        ir_fragment_load(b, s->query, ir_u32(b, i), s->queries, tile_add(b, first, i * DEPTH),
                         ir_u32(b, line_of(s->a->d)), false);
}

/* The row's own key: a group a head, all of its lanes know the score. */
static void own_score(shared *s) {
    ir_builder *b = s->k.b;
    const uint32_t d = s->a->d;
    if (!s->a->k) return;
    ir_id head = ir_min(b, s->warp, ir_u32(b, s->f.heads - 1)), at = tile_mul(b, s->x.lane, 4),
          sum = IR_NO_ID;
    for (uint32_t i = 0; i < d; i += 4 * LANES) {
        ir_id x = ir_load(b, s->x.memory, ir_add(b, tile_mul(b, head, d), tile_add(b, at, i)), 4);
        ir_id y = ir_load(b, s->x.memory, tile_add(b, at, room_of(d) * d + i), 4);
        sum = i ? ir_fma(b, x, y, sum) : ir_mul(b, x, y);
    }
    s->own_score = attention_lanes_sum(&s->x, tile_sum_vector(b, sum));
}

static ir_id score_at(shared *s, ir_id key) {
    ir_builder *b = s->k.b;
    ir_id whole = IR_NO_ID, rest = IR_NO_ID;
    for (uint32_t p = 0; p < KEY_PARTS; p++) {
        ir_id at = tile_add(b, ir_add(b, tile_mul(b, s->warp, SCORES), key), p * ROWS * SCORES);
        ir_id x = ir_load(b, s->wide, at, 1),
              y = ir_load(b, s->wide, tile_add(b, at, HEADS * SCORES), 1);
        whole = p ? ir_add(b, whole, x) : x;
        rest = p ? ir_add(b, rest, y) : y;
    }
    return ir_fma(b, rest, ir_f32(b, 1 / REST), whole);
}

/* Nothing, or the row's own key: its score is the highest so far, so its weight is 1. */
static void softmax_begin(shared *s) {
    ir_builder *b = s->k.b;
    ir_id most = ir_f32(b, ATTENTION_LEAST), total = ir_f32(b, 0);
    if (s->a->k) {
        most = ir_select(b, s->x.fresh, s->own_score, most);
        total = ir_select(b, s->x.fresh, ir_f32(b, 1), total);
    }
    ir_set(b, s->most, most);
    ir_set(b, s->total, total);
    for (uint32_t t = 0; t < s->a->d / WARPS / TILE; t++)
        ir_fragment_fill(b, s->sum, ir_u32(b, t), ir_f32(b, 0));
}

/* A group a head. */
static void softmax(shared *s, const stretch *p) {
    ir_builder *b = s->k.b;
    ir_memory kept = ir_register(b, IR_F32, ROUND / LANES);
    ir_id before = ir_get(b, s->most), most = before, total = ir_f32(b, 0), seen[ROUND / LANES];
    for (uint32_t i = 0; i < ROUND / LANES; i++) {
        ir_id key = tile_add(b, s->x.lane, i * LANES);
        seen[i] = ir_lt(b, key, p->keys);
        ir_store(b, kept, ir_u32(b, i), ir_f32(b, ATTENTION_LEAST));
        ir_if(b, seen[i]);
        ir_store(b, kept, ir_u32(b, i), score_at(s, key));
        ir_end(b);
        most = ir_max(b, most, ir_load(b, kept, ir_u32(b, i), 1));
    }
    most = ir_subgroup_max(b, most);
    for (uint32_t i = 0; i < ROUND / LANES; i++) {
        ir_id x =
            ir_select(b, seen[i], ir_exp(b, ir_sub(b, ir_load(b, kept, ir_u32(b, i), 1), most)),
                      ir_f32(b, 0));
        ir_id at = ir_add(b, tile_mul(b, s->warp, SCORES), tile_add(b, s->x.lane, i * LANES));
        total = ir_add(b, total, x);
        if (s->f.q8) {
            ir_store(b, s->weights, at, x);
            continue;
        }
        ir_id parts[2];
        halve(s, x, 1, parts);
        ir_store(b, s->weights, at, parts[0]);
        ir_store(b, s->weights, tile_add(b, at, HEADS * SCORES), parts[1]);
    }
    ir_id keep = ir_exp(b, ir_sub(b, before, most));
    ir_set(b, s->most, most);
    ir_set(b, s->total, ir_fma(b, ir_get(b, s->total), keep, ir_subgroup_add(b, total)));
    ir_if(b, ir_eq(b, s->x.lane, ir_u32(b, 0)));
    ir_store(b, s->keep, s->warp, keep);
    ir_end(b);
}

/* Sums of the rounds before. */
static void keep_sums(shared *s) {
    ir_builder *b = s->k.b;
    ir_id keep = ir_splat(b, ir_load(b, s->keep, s->row, 1), 2);
    for (uint32_t t = 0; t < s->a->d / WARPS / TILE; t++)
        for (uint32_t p = 0; p < 2; p++)
            ir_fragment_set(b, s->sum, ir_u32(b, t), p,
                            ir_mul(b, ir_fragment_get(b, s->sum, ir_u32(b, t), p), keep));
}

/* A depth of values that lies at `at`, of the warp's columns; keys: the first. */
static void add_values(shared *s, ir_id at, ir_id keys) {
    ir_builder *b = s->k.b;
    const uint32_t part = s->a->d / WARPS;
    ir_id zero = ir_u32(b, 0), first = ir_add(b, at, tile_mul(b, s->warp, part));
    ir_fragment_load(b, s->weight, zero, s->weights, keys, ir_u32(b, SCORES), false);
    for (uint32_t t = 0; t < part / TILE; t++) {
        ir_fragment_load(b, s->value, zero, s->stage, tile_add(b, first, t * TILE),
                         ir_u32(b, s->f.line), false);
        ir_fragment_mma(b, s->sum, ir_u32(b, t), s->weight, zero, s->value, zero);
    }
}

/* The same of Q8_0: column 8 * t + n of a block's sums is element 4 * n + t. */
static void add_values_q8(shared *s, ir_id at, ir_id keys) {
    ir_builder *b = s->k.b;
    const uint32_t blocks = s->a->d / WARPS / BLOCK, line = s->f.line;
    static const uint32_t row[4] = {0, 1, DEPTH / 2, DEPTH / 2 + 1};
    ir_id zero = ir_u32(b, 0), lines = ir_add(b, at, tile_mul(b, s->pair, line)), weights[2];
    for (uint32_t i = 0; i < 2; i++)
        weights[i] = ir_load(b, s->weights,
                             ir_add(b, tile_mul(b, s->row, SCORES),
                                    ir_add(b, tile_add(b, keys, row[2 * i]), s->pair)),
                             2);
    for (uint32_t i = 0; i < blocks; i++) {
        ir_id block = tile_add(b, tile_mul(b, s->warp, blocks), i), numbers[4], scales[4];
        for (uint32_t r = 0; r < 4; r++) {
            ir_id from = tile_add(b, lines, row[r] * line);
            ir_id bits = ir_load(
                b, s->stage, tile_add(b, ir_add(b, from, tile_div(b, block, 2)), s->a->d / 4), 1);
            bits = ir_cast(b, IR_U16, ir_shr(b, bits, tile_mul(b, tile_rem(b, block, 2), 16)));
            scales[r] = ir_cast(b, IR_F32, ir_bitcast(b, IR_F16, 1, bits));
            numbers[r] = bytes(s, ir_add(b, from, ir_add(b, tile_mul(b, block, 8), s->row)));
        }
        for (uint32_t r = 0; r < 2; r++) {
            ir_id parts[2];
            halve(s, ir_mul(b, weights[r], ir_compose(b, scales + 2 * r, 2)), 2, parts);
            for (uint32_t p = 0; p < 2; p++)
                ir_fragment_set(b, s->weight, zero, 2 * r + p, parts[p]);
        }
        for (uint32_t t = 0; t < BLOCK_TILES; t++) {
            for (uint32_t r = 0; r < 2; r++) {
                ir_id x[2] = {ir_extract(b, numbers[2 * r], t),
                              ir_extract(b, numbers[2 * r + 1], t)};
                ir_fragment_set(b, s->value, zero, r, ir_cast(b, IR_F16, ir_compose(b, x, 2)));
            }
            ir_fragment_mma(b, s->sum, ir_u32(b, i * BLOCK_TILES + t), s->weight, zero, s->value,
                            zero);
        }
    }
}

/* A warp has a part of d. */
static void values(shared *s, const stretch *p) {
    ir_builder *b = s->k.b;
    const form *f = &s->f;
    ir_id step = ir_loop(b, ir_u32(b, 0), p->chunks, ir_u32(b, 1)),
          at = turn(s, ir_add(b, p->step, ir_add(b, p->chunks, step))),
          keys = tile_mul(b, step, CHUNK);
    for (uint32_t i = 0; i < CHUNK; i += DEPTH) {
        ir_id from = tile_add(b, at, i * f->line), key = tile_add(b, keys, i);
        if (f->q8) add_values_q8(s, from, key);
        else add_values(s, from, key);
    }
    ir_end(b);
}

/* What has been found of the piece: sums, to workgroup memory, the stats. */
static void finish(shared *s) {
    ir_builder *b = s->k.b;
    const attention_task *a = s->a;
    const uint32_t part = a->d / WARPS;
    ir_id first = tile_mul(b, s->warp, part), both[2] = {ir_get(b, s->most), ir_get(b, s->total)};
    for (uint32_t t = 0; t < part / TILE; t++)
        ir_fragment_store(b, s->sum, ir_u32(b, t), s->wide, tile_add(b, first, t * TILE),
                          ir_u32(b, line_of(a->d)), false);
    ir_if(b,
          ir_and(b, ir_eq(b, s->x.lane, ir_u32(b, 0)), ir_lt(b, s->warp, ir_u32(b, s->f.heads))));
    if (a->k)
        ir_store(
            b, s->own, s->warp,
            ir_select(b, s->x.fresh, ir_exp(b, ir_sub(b, s->own_score, both[0])), ir_f32(b, 0)));
    ir_id head = ir_add(b, tile_mul(b, s->x.row, a->n_head), ir_add(b, s->x.first_head, s->warp));
    ir_store(b, s->x.result.stats,
             tile_mul(b, ir_add(b, tile_mul(b, head, a->n_split), s->x.piece), 2),
             ir_compose(b, both, 2));
    ir_end(b);
}

/* A four of a line of the sums. */
static ir_id sums_at(shared *s, ir_id line, ir_id four) {
    ir_builder *b = s->k.b;
    if (!s->f.q8) return ir_load(b, s->wide, ir_add(b, line, tile_mul(b, four, 4)), 4);
    ir_id at = ir_add(b, line, tile_mul(b, tile_div(b, four, TILE), BLOCK)), x[4];
    at = ir_add(b, at, tile_rem(b, four, TILE));
    for (uint32_t t = 0; t < 4; t++) x[t] = ir_load(b, s->wide, tile_add(b, at, t * TILE), 1);
    return ir_compose(b, x, 4);
}

static void store(shared *s) {
    ir_builder *b = s->k.b;
    const attention_task *a = s->a;
    const uint32_t fours = a->d / 4, line = line_of(a->d);
    ir_id i = ir_loop(b, s->x.local, ir_u32(b, s->f.heads * fours), ir_u32(b, WARPS * LANES));
    ir_id head = tile_div(b, i, fours), four = tile_rem(b, i, fours), column = tile_mul(b, four, 4);
    ir_id at = tile_mul(b, head, line);
    ir_id x = ir_fma(b, sums_at(s, tile_add(b, at, HEADS * line), four),
                     ir_number(b, IR_F32, 4, 1 / REST), sums_at(s, at, four));
    if (a->k) {
        ir_id value =
                  ir_load(b, s->x.memory, attention_line_place(&s->x, room_of(a->d) + 1, four), 4),
              weight = ir_load(b, s->own, head, 1);
        x = ir_select(b, ir_splat(b, s->x.fresh, 4), ir_fma(b, value, ir_splat(b, weight, 4), x),
                      x);
    }
    ir_id place = ir_add(b, tile_mul(b, s->x.row, a->n_head), ir_add(b, s->x.first_head, head));
    ir_store(
        b, s->x.result.out,
        ir_fma(b, ir_add(b, tile_mul(b, place, a->n_split), s->x.piece), ir_u32(b, a->d), column),
        x);
    ir_end(b);
}

beryl_status attention_units(lowering *l, const attention_task *a) {
    shared s = {.a = a};
    if (!form_of(l->caps, a, &s.f)) return lower_refuse(l, l->node, "heads of this shape");
    tile_kernel *k = &s.k;
    ir_builder *b =
        tile_begin(k, l, a->raw ? "attention_step_units" : "attention_units", WARPS * LANES);
    ir_subgroup(b, LANES);
    s.x = (attention_lines){.k = k,
                            .a = a,
                            .lanes = LANES,
                            .groups = WARPS,
                            .heads = s.f.heads,
                            .apart = room_of(a->d) - s.f.heads,
                            .eights = a->d / (ATTENTION_EIGHT * LANES),
                            .sums = 1,
                            .subgroups = true};
    attention_lines_bind(&s.x, true);
    declare(&s);
    attention_lines_see(&s.x);
    ir_id all = ir_sub(b, s.x.of.end, s.x.of.first),
          span = tile_div(b, tile_add(b, all, a->n_split - 1), a->n_split), none = ir_u32(b, 0);
    span = ir_max(b, span, ir_u32(b, PIECE_MIN));
    ir_id begin = ir_min(b, ir_mul(b, s.x.piece, span), all);
    s.count = ir_min(b, span, ir_sub(b, all, begin));
    s.ring = tile_rem(b, ir_add(b, s.x.of.first, begin), a->n_row);
    s.chunks = tile_div(b, tile_add(b, s.count, CHUNK - 1), CHUNK);
    ir_if(b, ir_or(b, ir_gt(b, s.count, none), s.x.fresh));
    attention_lines_load(&s.x);
    ir_id early = ir_loop(b, none, ir_u32(b, s.f.stages - 1), ir_u32(b, 1));
    ask(&s, early);
    ir_end(b);
    attention_lines_make(&s.x);
    ir_barrier(b);
    queries(&s);
    own_score(&s);
    attention_lines_store_own(&s.x);
    ir_barrier(b);
    load_queries(&s);
    softmax_begin(&s);
    ir_id rounds = tile_div(b, tile_add(b, s.count, ROUND - 1), ROUND),
          round = ir_loop(b, none, rounds, ir_u32(b, 1));
    const stretch p = stretch_of(&s, round);
    scores(&s, &p);
    ir_barrier(b);
    softmax(&s, &p);
    ir_if(b, ir_gt(b, round, none));
    ir_barrier(b);
    keep_sums(&s);
    ir_end(b);
    values(&s, &p);
    ir_end(b);
    ir_barrier(b);
    finish(&s);
    ir_barrier(b);
    store(&s);
    ir_else(b);
    attention_lines_nothing(&s.x);
    ir_end(b);
    return tile_end_3d(k, (lower_count){a->n_split, 0}, 1, (lower_count){a->n_head / s.f.heads, 0},
                       1, a->rows);
}
