/* attention_units.c - attention of few rows over many keys of F16 caches on matrix
 * units: a workgroup reads each of its keys once for up to 8 heads.
 *
 * A matrix has 16 rows and 8 heads need half of them, so the others hold what rounding took: row
 * h is a head's query in halves, row 8 + h the rest, times 2^11. Products of halves are exact in
 * f32, so a score (row h + row 8 + h / 2^11) is as good as one of f32 queries; the same with the
 * weights of the values. Keys come by asynchronous copies in chunks, several under way; first
 * all keys of the piece, whose scores stay in workgroup memory, then the weights, then its
 * values. The row's own key and value, where they come along, are worked on in f32 from
 * workgroup memory by the first piece. */
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
    CHUNK = 32, /* keys; */
    KEY_TILES = CHUNK / TILE,
    KEY_PARTS = WARPS / KEY_TILES, /* parts of d, of scores */
    PIECE = 256,                   /* keys, at most; */
    PIECE_MIN = 32,                /* and at least, where there are fewer than units */
    PIECES_MAX = 512,
    PAD = 8, /* elements: rows of matrices begin in other banks */
    SCORES = PIECE + PAD,
    STAGES_MAX = 5,
    STAGES_MIN = 3,
    KEYS_FAR = 512 /* more keys than these */
};

typedef struct form {
    uint32_t heads, n_split, stages;
} form;

static uint32_t line_of(uint32_t d) { /* elements of a staged row */
    return d + PAD;
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
    const uint32_t units = caps->compute_units ? caps->compute_units : 128;
    if (!BUILD_HAS_C_TEXTS || !ir_has_fragment(caps, IR_F16, IR_F32, ROWS, TILE, DEPTH) ||
        caps->subgroup_size != LANES || caps->workgroup_invocations < WARPS * LANES)
        return false;
    if (a->cache != TYPE_F16 || !a->dense || a->k_offset || a->v_offset ||
        a->d % (ATTENTION_EIGHT * LANES) || a->d > ATTENTION_EIGHT * ATTENTION_EIGHTS_MAX * LANES ||
        a->n_head % a->n_kv || a->keys <= KEYS_FAR)
        return false;
    f->heads = a->n_head / a->n_kv < HEADS ? a->n_head / a->n_kv : HEADS;
    while (a->n_head / a->n_kv % f->heads) f->heads--;
    const uint32_t fixed = (room_of(a->d) + 2) * a->d * 4 + halves_of(a->d) * 2 + 64,
                   stage = CHUNK * line_of(a->d) * 2;
    if (caps->workgroup_bytes < fixed + STAGES_MIN * stage) return false;
    f->stages = (caps->workgroup_bytes - fixed) / stage;
    if (f->stages > STAGES_MAX) f->stages = STAGES_MAX;
    const uint32_t beside = a->n_head / f->heads * a->n, least = (a->keys + PIECE - 1) / PIECE,
                   most = (a->keys + PIECE_MIN - 1) / PIECE_MIN;
    f->n_split = units / beside;
    if (f->n_split > most) f->n_split = most;
    if (f->n_split < least) f->n_split = least;
    return f->n_split <= PIECES_MAX;
}

bool attention_units_fit(const device_caps *caps, const attention_task *a) {
    form f;
    return form_of(caps, a, &f);
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
    attention_cache keys, values;
    attention_places places;
    attention_result result;
    attention_keys of;
    ir_memory wide; /* x.memory: scores [KEY_PARTS, ROWS, SCORES], then sums [ROWS, d] */
    /* halves: [ROWS, d], [ROWS, PIECE], chunks [CHUNK, d]; f32: own key's weights */
    ir_memory queries, weights, stage, own;
    ir_fragments query, key, score, weight, value, sum;
    ir_id count, ring, chunks, warp, own_score;
} shared;

static ir_id constant(shared *s, uint32_t n) {
    return ir_u32(s->k.b, n);
}

static void declare(shared *s) {
    ir_builder *b = s->k.b;
    const uint32_t d = s->a->d;
    s->x.memory = s->wide = ir_workgroup(b, IR_F32, (room_of(d) + 2) * d);
    s->queries = ir_workgroup(b, IR_F16, ROWS * line_of(d));
    s->weights = ir_workgroup(b, IR_F16, ROWS * SCORES);
    s->stage = ir_workgroup(b, IR_F16, s->f.stages * CHUNK * line_of(d));
    s->own = ir_workgroup(b, IR_F32, HEADS);
    attention_lines_declare(&s->x);
    s->query = ir_fragment(b, IR_ROLE_A, IR_F16, ROWS, TILE, DEPTH, d / KEY_PARTS / DEPTH);
    s->key = ir_fragment(b, IR_ROLE_B, IR_F16, ROWS, TILE, DEPTH, 1);
    s->score = ir_fragment(b, IR_ROLE_C, IR_F32, ROWS, TILE, DEPTH, 1);
    s->weight = ir_fragment(b, IR_ROLE_A, IR_F16, ROWS, TILE, DEPTH, 1);
    s->value = ir_fragment(b, IR_ROLE_B, IR_F16, ROWS, TILE, DEPTH, 1);
    s->sum = ir_fragment(b, IR_ROLE_C, IR_F32, ROWS, TILE, DEPTH, d / WARPS / TILE);
    s->warp = s->x.member;
}

/* ---- chunks: step i is keys of chunk i, then values ------------------------------------------ */

static void copy(shared *s, const attention_cache *from, ir_id chunk, ir_id slot) {
    tile_kernel *k = &s->k;
    ir_builder *b = k->b;
    const attention_task *a = s->a;
    const uint32_t eights = a->d / ATTENTION_EIGHT;
    for (uint32_t i = 0; i < CHUNK * eights / (WARPS * LANES); i++) {
        ir_id at = tile_add(k, s->x.local, i * WARPS * LANES), row = tile_div(k, at, eights),
              eight = tile_mul(k, tile_rem(k, at, eights), ATTENTION_EIGHT);
        ir_id key = ir_add(b, tile_mul(k, chunk, CHUNK), row), valid = ir_lt(b, key, s->count);
        ir_id place = ir_add(b, s->ring, ir_min(b, key, tile_add(k, s->count, UINT32_MAX))),
              rows = constant(s, a->n_row);
        place = ir_select(b, ir_ge(b, place, rows), ir_sub(b, place, rows), place);
        ir_id source = ir_add(
            b,
            tile_mul(k, ir_add(b, tile_mul(k, ir_add(b, s->of.base, place), a->n_kv), s->x.kv),
                     a->d),
            eight);
        ir_id target = ir_add(
            b, ir_add(b, tile_mul(k, slot, CHUNK * line_of(a->d)), tile_mul(k, row, line_of(a->d))),
            eight);
        ir_copy_async(b, s->stage, target, from->at, source, 16, valid);
    }
}

/* Asks for step i, if there is one. keys: it may still be one of keys. */
static void ask(shared *s, ir_id i, bool keys) {
    tile_kernel *k = &s->k;
    ir_builder *b = k->b;
    ir_id slot = tile_rem(k, i, s->f.stages);
    if (keys) {
        ir_if(b, ir_lt(b, i, s->chunks));
        copy(s, &s->keys, i, slot);
        ir_end(b);
    }
    ir_if(b, ir_and(b, ir_ge(b, i, s->chunks), ir_lt(b, i, tile_mul(k, s->chunks, 2))));
    copy(s, &s->values, ir_sub(b, i, s->chunks), slot);
    ir_end(b);
    ir_copy_commit(b);
}

/* Waits for step i, asks for the last one that there is room for: its place is that of step i -
 * 1. Where step i lies. */
static ir_id turn(shared *s, ir_id i, bool keys) {
    tile_kernel *k = &s->k;
    ir_copy_wait(k->b, s->f.stages - 2);
    ir_barrier(k->b);
    ask(s, tile_add(k, i, s->f.stages - 1), keys);
    return tile_mul(k, tile_rem(k, i, s->f.stages), CHUNK * line_of(s->a->d));
}

/* ---- queries, scores, weights, values -------------------------------------------------------- */

/* A number of rows h and 8 + h. */
static ir_id halved(shared *s, ir_id x, ir_id is_rest, uint32_t width) {
    ir_builder *b = s->k.b;
    ir_id whole = ir_cast(b, IR_F32, ir_cast(b, IR_F16, x)),
          rest = ir_mul(b, ir_sub(b, x, whole), ir_number(b, IR_F32, width, REST));
    return ir_cast(b, IR_F16, ir_select(b, ir_splat(b, is_rest, width), rest, whole));
}

static void queries(shared *s) {
    tile_kernel *k = &s->k;
    ir_builder *b = k->b;
    const uint32_t d = s->a->d, fours = d / 4;
    ir_id i = ir_loop(b, s->x.local, constant(s, ROWS * fours), constant(s, WARPS * LANES));
    ir_id row = tile_div(k, i, fours), four = tile_rem(k, i, fours), head = tile_rem(k, row, HEADS);
    ir_id line = ir_min(b, head, constant(s, s->f.heads - 1));
    ir_id x = ir_load(b, s->x.memory,
                      ir_add(b, tile_mul(k, line, d), attention_line_place(&s->x, 0, four)), 4);
    x = ir_select(b, ir_splat(b, ir_lt(b, head, constant(s, s->f.heads)), 4), x,
                  ir_number(b, IR_F32, 4, 0));
    ir_store(b, s->queries, ir_add(b, tile_mul(k, row, line_of(d)), tile_mul(k, four, 4)),
             halved(s, x, ir_ge(b, row, constant(s, HEADS)), 4));
    ir_end(b);
}

/* A warp has a tile of each chunk's keys and a part of d. */
static void scores(shared *s) {
    tile_kernel *k = &s->k;
    ir_builder *b = k->b;
    const uint32_t part = s->a->d / KEY_PARTS, line = line_of(s->a->d);
    ir_id tile = tile_rem(k, s->warp, KEY_TILES), own = tile_div(k, s->warp, KEY_TILES),
          first = tile_mul(k, own, part), zero = constant(s, 0);
    for (uint32_t i = 0; i < part / DEPTH; i++)
        ir_fragment_load(b, s->query, constant(s, i), s->queries, tile_add(k, first, i * DEPTH),
                         constant(s, line), false);
    ir_id step = ir_loop(b, zero, s->chunks, constant(s, 1)), at = turn(s, step, true);
    at = ir_add(b, ir_add(b, at, tile_mul(k, tile, TILE * line)), first);
    ir_fragment_fill(b, s->score, zero, ir_f32(b, 0));
    for (uint32_t i = 0; i < part / DEPTH; i++) {
        ir_fragment_load(b, s->key, zero, s->stage, tile_add(k, at, i * DEPTH), constant(s, line),
                         true);
        ir_fragment_mma(b, s->score, zero, s->query, constant(s, i), s->key, zero);
    }
    ir_id to = ir_add(b, tile_mul(k, own, ROWS * SCORES),
                      ir_add(b, tile_mul(k, step, CHUNK), tile_mul(k, tile, TILE)));
    ir_fragment_store(b, s->score, zero, s->wide, to, constant(s, SCORES), false);
    ir_end(b);
}

/* The row's own key: a group a head, all of its lanes know the score. */
static void own_score(shared *s) {
    tile_kernel *k = &s->k;
    ir_builder *b = k->b;
    const uint32_t d = s->a->d;
    if (!s->a->k) return;
    ir_id head = ir_min(b, s->warp, constant(s, s->f.heads - 1)), at = tile_mul(k, s->x.lane, 4),
          sum = IR_NO_ID;
    for (uint32_t i = 0; i < d; i += 4 * LANES) {
        ir_id x = ir_load(b, s->x.memory, ir_add(b, tile_mul(k, head, d), tile_add(k, at, i)), 4);
        ir_id y = ir_load(b, s->x.memory, tile_add(k, at, room_of(d) * d + i), 4);
        sum = i ? ir_fma(b, x, y, sum) : ir_mul(b, x, y);
    }
    s->own_score = attention_lanes_sum(&s->x, tile_sum_vector(k, sum));
}

static ir_id score_at(shared *s, ir_id key) {
    tile_kernel *k = &s->k;
    ir_builder *b = k->b;
    ir_id whole = IR_NO_ID, rest = IR_NO_ID;
    for (uint32_t p = 0; p < KEY_PARTS; p++) {
        ir_id at = tile_add(k, ir_add(b, tile_mul(k, s->warp, SCORES), key), p * ROWS * SCORES);
        ir_id x = ir_load(b, s->wide, at, 1),
              y = ir_load(b, s->wide, tile_add(k, at, HEADS * SCORES), 1);
        whole = p ? ir_add(b, whole, x) : x;
        rest = p ? ir_add(b, rest, y) : y;
    }
    return ir_fma(b, rest, ir_f32(b, 1 / REST), whole);
}

/* A group a head. */
static void softmax(shared *s) {
    tile_kernel *k = &s->k;
    ir_builder *b = k->b;
    const attention_task *a = s->a;
    ir_memory kept = ir_register(b, IR_F32, PIECE / LANES);
    ir_id most = ir_f32(b, ATTENTION_LEAST), total = ir_f32(b, 0), seen[PIECE / LANES],
          own = IR_NO_ID;
    for (uint32_t i = 0; i < PIECE / LANES; i++) {
        ir_id key = tile_add(k, s->x.lane, i * LANES);
        seen[i] = ir_lt(b, key, s->count);
        ir_store(b, kept, constant(s, i), ir_f32(b, ATTENTION_LEAST));
        ir_if(b, seen[i]);
        ir_store(b, kept, constant(s, i), score_at(s, key));
        ir_end(b);
        most = ir_max(b, most, ir_load(b, kept, constant(s, i), 1));
    }
    most = ir_subgroup_max(b, most);
    if (a->k) {
        own = ir_select(b, s->x.fresh, s->own_score, ir_f32(b, ATTENTION_LEAST));
        most = ir_max(b, most, own);
    }
    for (uint32_t i = 0; i < PIECE / LANES; i++) {
        ir_id x =
            ir_select(b, seen[i], ir_exp(b, ir_sub(b, ir_load(b, kept, constant(s, i), 1), most)),
                      ir_f32(b, 0));
        ir_id at = ir_add(b, tile_mul(k, s->warp, SCORES), tile_add(k, s->x.lane, i * LANES));
        total = ir_add(b, total, x);
        ir_store(b, s->weights, at, halved(s, x, ir_bool(b, false), 1));
        ir_store(b, s->weights, tile_add(k, at, HEADS * SCORES), halved(s, x, ir_bool(b, true), 1));
    }
    total = ir_subgroup_add(b, total);
    if (a->k) {
        own = ir_select(b, s->x.fresh, ir_exp(b, ir_sub(b, own, most)), ir_f32(b, 0));
        total = ir_add(b, total, own);
    }
    ir_if(b, ir_and(b, ir_eq(b, s->x.lane, constant(s, 0)),
                    ir_lt(b, s->warp, constant(s, s->f.heads))));
    if (a->k) ir_store(b, s->own, s->warp, own);
    ir_id head = ir_add(b, tile_mul(k, s->x.row, a->n_head), ir_add(b, s->x.first_head, s->warp)),
          both[2] = {most, total};
    ir_store(b, s->result.stats,
             tile_mul(k, ir_add(b, tile_mul(k, head, a->n_split), s->x.piece), 2),
             ir_compose(b, both, 2));
    ir_end(b);
}

/* A warp has a part of d. */
static void values(shared *s) {
    tile_kernel *k = &s->k;
    ir_builder *b = k->b;
    const uint32_t part = s->a->d / WARPS, line = line_of(s->a->d);
    ir_id first = tile_mul(k, s->warp, part), zero = constant(s, 0);
    for (uint32_t t = 0; t < part / TILE; t++)
        ir_fragment_fill(b, s->sum, constant(s, t), ir_f32(b, 0));
    ir_id step = ir_loop(b, s->chunks, tile_mul(k, s->chunks, 2), constant(s, 1)),
          at = ir_add(b, turn(s, step, false), first);
    ir_id keys = tile_mul(k, ir_sub(b, step, s->chunks), CHUNK);
    for (uint32_t i = 0; i < CHUNK; i += DEPTH) {
        ir_fragment_load(b, s->weight, zero, s->weights, tile_add(k, keys, i), constant(s, SCORES),
                         false);
        for (uint32_t t = 0; t < part / TILE; t++) {
            ir_fragment_load(b, s->value, zero, s->stage, tile_add(k, at, i * line + t * TILE),
                             constant(s, line), false);
            ir_fragment_mma(b, s->sum, constant(s, t), s->weight, zero, s->value, zero);
        }
    }
    ir_end(b);
    for (uint32_t t = 0; t < part / TILE; t++)
        ir_fragment_store(b, s->sum, constant(s, t), s->wide, tile_add(k, first, t * TILE),
                          constant(s, line), false);
}

static void store(shared *s) {
    tile_kernel *k = &s->k;
    ir_builder *b = k->b;
    const attention_task *a = s->a;
    const uint32_t fours = a->d / 4, line = line_of(a->d);
    ir_id i = ir_loop(b, s->x.local, constant(s, s->f.heads * fours), constant(s, WARPS * LANES));
    ir_id head = tile_div(k, i, fours), four = tile_rem(k, i, fours), column = tile_mul(k, four, 4);
    ir_id at = ir_add(b, tile_mul(k, head, line), column);
    ir_id x = ir_fma(b, ir_load(b, s->wide, tile_add(k, at, HEADS * line), 4),
                     ir_number(b, IR_F32, 4, 1 / REST), ir_load(b, s->wide, at, 4));
    if (a->k) {
        ir_id value =
                  ir_load(b, s->x.memory, attention_line_place(&s->x, room_of(a->d) + 1, four), 4),
              weight = ir_load(b, s->own, head, 1);
        x = ir_select(b, ir_splat(b, s->x.fresh, 4), ir_fma(b, value, ir_splat(b, weight, 4), x),
                      x);
    }
    ir_id place = ir_add(b, tile_mul(k, s->x.row, a->n_head), ir_add(b, s->x.first_head, head));
    ir_store(
        b, s->result.out,
        ir_fma(b, ir_add(b, tile_mul(k, place, a->n_split), s->x.piece), constant(s, a->d), column),
        x);
    ir_end(b);
}

beryl_status attention_units(lowering *l, const graph_node *node, const attention_task *a,
                             beryl_error *error) {
    shared s = {.a = a};
    if (!form_of(l->caps, a, &s.f)) return lower_refuse(l, node, "heads of this shape", error);
    tile_kernel *k = &s.k;
    tile_begin(k, l, node, a->raw ? "attention_step_units" : "attention_units", WARPS * LANES);
    ir_builder *b = k->b;
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
    s.x.q = tile_read(k, "q", a->q);
    attention_caches_bind(&s.keys, &s.values, k, a, true);
    attention_places_bind(&s.places, k, a);
    attention_result_bind(&s.result, k, a);
    attention_lines_bind(&s.x);
    declare(&s);
    attention_keys_of(&s.places, k, a, s.x.row, &s.of);
    s.x.fresh = ir_and(b, s.x.fresh, s.of.is);
    ir_id all = ir_sub(b, s.of.end, s.of.first),
          span = tile_div(k, tile_add(k, all, a->n_split - 1), a->n_split), none = constant(&s, 0);
    span = ir_max(b, span, constant(&s, PIECE_MIN));
    ir_id begin = ir_min(b, ir_mul(b, s.x.piece, span), all);
    s.count = ir_min(b, span, ir_sub(b, all, begin));
    s.ring = tile_rem(k, ir_add(b, s.of.first, begin), a->n_row);
    s.chunks = tile_div(k, tile_add(k, s.count, CHUNK - 1), CHUNK);
    ir_if(b, ir_or(b, ir_gt(b, s.count, none), s.x.fresh));
    attention_lines_load(&s.x);
    ir_id early = ir_loop(b, none, constant(&s, s.f.stages - 1), constant(&s, 1));
    ask(&s, early, true);
    ir_end(b);
    attention_lines_make(&s.x);
    ir_barrier(b);
    queries(&s);
    own_score(&s);
    attention_lines_store_own(&s.x, &s.of, &s.keys, &s.values);
    ir_barrier(b);
    scores(&s);
    ir_barrier(b);
    softmax(&s);
    values(&s);
    ir_barrier(b);
    store(&s);
    ir_else(b);
    attention_result_nothing(&s.result, &s.x);
    ir_end(b);
    return tile_end_3d(k, (lower_count){a->n_split, 0}, 1, (lower_count){a->n_head / s.f.heads, 0},
                       1, a->rows, 1, error);
}
