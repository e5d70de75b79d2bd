/* attention_back_shuffle.c - the backward pass of attention where a workgroup's lanes are a
 * thread's vectors and what a lane loads costs many times what it computes (llvmpipe): a workgroup
 * is a subgroup, each lane owns a line. Of a block of others each lane loads some, and gets the
 * rest by shuffles (tile/attention_back.h, tile/attention_shuffle.c). */
#include "tile/attention_back.h"

enum {
    FOUR = 4,
    LANES = 8,
    EACH = 2, /* other lines that a lane loads */
    OTHERS = EACH * LANES
};

typedef struct shuffle {
    tile_kernel k;
    back_walk w;
    ir_memory weights, slopes;   /* registers [OTHERS], products first */
    ir_memory most, total;       /* registers, of BACK_SUMS */
    ir_id zero, lane, own_stats; /* own_stats: of a row that the lane owns */
} shuffle;

bool back_shuffle_fits(const lowering *l, const back_task *t) {
    const device_caps *caps = l->caps;
    const uint64_t lines = back_owns_rows(t) ? t->a.n_row : t->a.n,
                   /* of a block: elements twice, and what its rows see */
        turns = 2 * t->a.d / FOUR + OTHERS + 1,
                   blocks = back_owns_rows(t)
                                ? lines / OTHERS + 1
                                : (uint64_t)t->a.n_head / t->a.n_kv * (lines / OTHERS + 1);
    return device_makes_vectors(caps) && caps->subgroups && caps->subgroup_size == LANES &&
           back_reads(l, t, FOUR) && (!caps->loop_max || blocks * turns < caps->loop_max);
}

static bool wants_slopes(const shuffle *x) {
    return x->w.t->kind == BACK_Q || x->w.t->kind == BACK_K;
}

static ir_id get(shuffle *x, ir_memory from, uint32_t i) {
    return ir_load(x->k.b, from, ir_u32(x->k.b, i), 1);
}

static void set(shuffle *x, ir_memory to, uint32_t i, ir_id value) {
    ir_store(x->k.b, to, ir_u32(x->k.b, i), value);
}

static ir_id elements(shuffle *x) {
    return ir_loop(x->k.b, x->zero, ir_u32(x->k.b, x->w.t->a.d), ir_u32(x->k.b, FOUR));
}

/* What sums say of a row of the owned or the other block; of BACK_SUMS the first two are 0. */
static ir_id stats_of(shuffle *x, ir_id line) {
    ir_builder *b = x->k.b;
    ir_id query, head, first, end;
    back_row_of(&x->w, line, &query, &head);
    if (x->w.t->kind != BACK_SUMS)
        return ir_load(b, x->w.x.sums, back_sums_at(&x->w, query, head), 4);
    back_keys_of(&x->w, query, &first, &end);
    const ir_id some = ir_lt(b, first, end), none = ir_f32(b, 0),
                last = ir_cast(b, IR_F32, tile_add(b, end, UINT32_MAX)),
                all[4] = {none, none, ir_select(b, some, ir_cast(b, IR_F32, first), ir_f32(b, 1)),
                          ir_select(b, some, last, none)};
    return ir_compose(b, all, 4);
}

/* The line of the block that the lane loads as its own i. */
static ir_id line_of(shuffle *x, uint32_t i) {
    return tile_add(x->k.b, x->lane, i * LANES);
}

static void multiply(shuffle *x) {
    ir_builder *b = x->k.b;
    const uint32_t n = wants_slopes(x) ? 2 : 1;
    const ir_memory to[2] = {x->weights, x->slopes};
    for (uint32_t i = 0; i < OTHERS; i++)
        for (uint32_t p = 0; p < n; p++) set(x, to[p], i, ir_f32(b, 0));
    const ir_id e = elements(x);
    for (uint32_t p = 0; p < n; p++) {
        const ir_id own = back_line_read(&x->w, true, p, x->lane, e, FOUR);
        for (uint32_t i = 0; i < OTHERS; i += LANES) {
            const ir_id mine = back_line_read(&x->w, false, p, line_of(x, i / LANES), e, FOUR);
            for (uint32_t lane = 0; lane < LANES; lane++) {
                const ir_id other = ir_subgroup_broadcast(b, mine, lane);
                ir_id sum = get(x, to[p], i + lane);
                for (uint32_t c = 0; c < FOUR; c++)
                    sum = ir_fma(b, ir_extract(b, own, c), ir_extract(b, other, c), sum);
                set(x, to[p], i + lane, sum);
            }
        }
    }
    ir_end(b);
}

/* Products become weights, 0 where a row does not see a key. */
static void weigh(shuffle *x) {
    ir_builder *b = x->k.b;
    const bool rows = back_owns_rows(x->w.t);
    ir_id mine = IR_NO_ID;
    for (uint32_t i = 0; i < OTHERS; i++) {
        ir_id stats = x->own_stats, key = tile_add(b, x->w.first_other, i);
        if (!rows) {
            if (i % LANES == 0) mine = stats_of(x, line_of(x, i / LANES));
            stats = ir_subgroup_broadcast(b, mine, i % LANES);
            key = ir_add(b, x->w.first_own, x->lane);
        }
        const ir_id place = ir_cast(b, IR_F32, key),
                    slope = wants_slopes(x) ? get(x, x->slopes, i) : IR_NO_ID,
                    weight = back_weight(&x->w.x, b, x->w.t, get(x, x->weights, i), slope,
                                         ir_extract(b, stats, 0), ir_extract(b, stats, 1));
        ir_id sees = ir_and(b, ir_ge(b, place, ir_extract(b, stats, 2)),
                            ir_le(b, place, ir_extract(b, stats, 3)));
        if (!rows) sees = ir_and(b, sees, back_is_row(&x->w, ir_u32(b, i)));
        set(x, x->weights, i, ir_select(b, sees, weight, ir_f32(b, 0)));
    }
}

static void add_others(shuffle *x, ir_id to, ir_id is) {
    ir_builder *b = x->k.b;
    const ir_id e = elements(x);
    ir_id sum = ir_number(b, IR_F32, FOUR, 0), mine = IR_NO_ID;
    for (uint32_t i = 0; i < OTHERS; i++) {
        if (i % LANES == 0)
            mine = back_line_read(&x->w, false, x->w.t->kind == BACK_V, line_of(x, i / LANES), e,
                                  FOUR);
        sum = ir_fma(b, ir_splat(b, get(x, x->weights, i), FOUR),
                     ir_subgroup_broadcast(b, mine, i % LANES), sum);
    }
    ir_if(b, is);
    const ir_id at = ir_add(b, to, e);
    ir_store(b, x->w.x.out, at, ir_add(b, ir_load(b, x->w.x.out, at, FOUR), sum));
    ir_end(b);
    ir_end(b);
}

/* Of scores, in weights. */
static void add_scores(shuffle *x) {
    ir_builder *b = x->k.b;
    const ir_id before = ir_get(b, x->most);
    ir_id now = before, sum;
    for (uint32_t i = 0; i < OTHERS; i++) {
        const ir_id place = ir_cast(b, IR_F32, tile_add(b, x->w.first_other, i)),
                    sees = ir_and(b, ir_ge(b, place, ir_extract(b, x->own_stats, 2)),
                                  ir_le(b, place, ir_extract(b, x->own_stats, 3))),
                    score = ir_select(b, sees, ir_mul(b, get(x, x->weights, i), x->w.x.scale),
                                      ir_f32(b, ATTENTION_MASKED));
        set(x, x->weights, i, score);
        now = ir_max(b, now, score);
    }
    sum = ir_mul(b, ir_get(b, x->total), ir_exp(b, ir_sub(b, before, now)));
    for (uint32_t i = 0; i < OTHERS; i++)
        sum = ir_add(b, sum, ir_exp(b, ir_sub(b, get(x, x->weights, i), now)));
    ir_set(b, x->total, sum);
    ir_set(b, x->most, now);
}

/* With y d of each row. */
static void finish_sums(shuffle *x, ir_id is) {
    ir_builder *b = x->k.b;
    const attention_task *a = &x->w.t->a;
    ir_id query, head, first, end;
    back_row_of(&x->w, x->lane, &query, &head);
    ir_if(b, is);
    ir_set(b, x->slopes, ir_f32(b, 0));
    const ir_id e = elements(x),
                at = tile_mul(b, ir_fma(b, query, ir_u32(b, a->n_head), head), a->d),
                y = ir_load(b, x->w.x.y, ir_add(b, ir_add(b, at, x->w.x.y_offset), e), FOUR),
                d = back_read(b, &x->w.x.rows, 1, query, head, e, FOUR);
    ir_id sum = ir_get(b, x->slopes);
    for (uint32_t c = 0; c < FOUR; c++)
        sum = ir_fma(b, ir_extract(b, y, c), ir_extract(b, d, c), sum);
    ir_set(b, x->slopes, sum);
    ir_end(b);
    back_keys_of(&x->w, query, &first, &end);
    back_store_sums(&x->w.x, b, back_sums_at(&x->w, query, head), ir_get(b, x->most),
                    ir_get(b, x->total), ir_get(b, x->slopes), first, end);
    ir_end(b);
}

static void clear(shuffle *x, ir_id to, ir_id is) {
    ir_builder *b = x->k.b;
    ir_if(b, is);
    const ir_id e = elements(x);
    ir_store(b, x->w.x.out, ir_add(b, to, e), ir_number(b, IR_F32, FOUR, 0));
    ir_end(b), ir_end(b);
}

beryl_status back_shuffle(lowering *l, const back_task *t) {
    shuffle x = {.w = {.own = LANES, .other = OTHERS}};
    tile_kernel *k = &x.k;
    const bool sums = t->kind == BACK_SUMS;
    const uint32_t lines = back_owns_rows(t) ? LANES : OTHERS;
    x.w.group = whole_divisor(t->a.n_head / t->a.n_kv, lines);
    x.w.queries = lines / x.w.group;
    ir_builder *b =
        tile_begin(k, l, sums ? "attention_sums_shuffle" : "attention_back_shuffle", LANES);
    ir_subgroup(b, LANES);
    back_walk_bind(&x.w, k, t);
    x.weights = ir_register(b, IR_F32, OTHERS);
    x.slopes = ir_register(b, IR_F32, sums ? 1 : OTHERS);
    x.zero = ir_u32(b, 0);
    x.lane = ir_subgroup_lane(b);
    back_own(&x.w);
    ir_id is;
    const ir_id to = back_result_at(&x.w, x.lane, &is);
    if (back_owns_rows(t)) x.own_stats = stats_of(&x, x.lane);
    if (sums) {
        x.most = ir_register(b, IR_F32, 1), x.total = ir_register(b, IR_F32, 1);
        ir_set(b, x.most, ir_f32(b, ATTENTION_NO_KEYS));
        ir_set(b, x.total, ir_f32(b, 0));
    } else {
        clear(&x, to, is);
    }
    back_others(&x.w);
    multiply(&x);
    if (sums) {
        add_scores(&x);
    } else {
        weigh(&x);
        add_others(&x, to, is);
    }
    back_others_end(&x.w);
    if (sums) finish_sums(&x, is);
    return back_walk_end(&x.w, 1);
}
