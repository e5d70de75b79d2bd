/* bytes.c - see tile/bytes.h.
 *
 * The one idea: 64 bytes of a weight, shifted and masked as one vector, are bytes that one
 * operation multiplies by 64 of the rounded vector. Where their elements stand, and which scale
 * belongs to which lane, follows from the type's form alone (tile/block.h), so it is computed
 * here and now; the kernel only has constant places. Numbers below zero become unsigned by what
 * the form takes off (its zero): that, and least values, are scales times the sums of the
 * rounded numbers. */
#include "tile/bytes.h"

enum {
    LANES = 16, /* words of a vector */
    CHUNK = 4 * LANES,
    PART = 32, /* elements of a rounded block */
    BYTES = 0x01010101,
    ROWS_MIN = 64,       /* of a group, which rounds the vectors: that costs as much as a few */
    GROUPS_A_THREAD = 4, /* as the device divides work */
    LEVEL = 128          /* that makes signed bytes unsigned */
};
/* added to a number and taken off again leaves it rounded; its lowest byte is the number's */
static const float ROUNDER = 0x1.8p23f;

/* ---- the form -------------------------------------------------------------------------------- */

static bool unit_of(base_type type, uint32_t k, tile_unit *u) {
    const tile_block_form *f = tile_weight_form(type);
    if (!base_type_is_quantised(type) || !tile_weight_known(type) || f->table ||
        f->kind >= SCALE_OWN)
        return false;
    const uint32_t block = base_type_block(type);
    *u = (tile_unit){.form = f, .block = block, .group = f->low.group};
    u->size = block < 256 && k % 256 ? 128 : 256;
    u->runs = 8 / f->low.bits;
    u->chunks = u->size / (CHUNK * u->runs);
    u->sub = f->sub ? f->sub : block < PART ? block : PART;
    u->subs = u->size / u->sub;
    return k % u->size == 0;
}

/* Where lane `lane` of run `run` of a chunk has its four elements in the unit. */
static uint32_t element_of(const tile_unit *u, uint32_t chunk, uint32_t run, uint32_t lane) {
    const uint32_t byte = chunk * CHUNK + 4 * lane;
    return byte / u->group * u->group * u->runs + byte % u->group + run * u->group;
}

/* The other way: the word of the rounded unit where an element lies. */
static uint32_t word_of(const tile_unit *u, uint32_t element) {
    const uint32_t span = u->group * u->runs, run = element % span / u->group;
    const uint32_t byte = element / span * u->group + element % u->group;
    return (byte / CHUNK * u->runs + run) * LANES + byte % CHUNK / 4;
}

static bool same_layout(const tile_unit *a, const tile_unit *b) {
    return a->size == b->size && a->runs == b->runs && a->group == b->group && a->subs == b->subs;
}

static uint64_t bytes_of(const tile_unit *u, uint32_t k) {
    return k + (uint64_t)k / u->size * u->subs * 8;
}

bool tile_bytes_fits(const lowering *l, const base_type *types, uint32_t n_type, uint32_t k,
                     uint32_t vectors) {
    uint64_t bytes = 0;
    if (l->caps->dot_words < LANES || l->settings.exact || n_type > TILE_BYTES_LAYOUTS)
        return false;
    for (uint32_t i = 0; i < n_type; i++) {
        tile_unit u;
        if (!unit_of(types[i], k, &u)) return false;
        bytes += bytes_of(&u, k);
    }
    return bytes * vectors <= l->caps->workgroup_bytes;
}

uint32_t tile_bytes_groups(const lowering *l, uint32_t rows) {
    const uint32_t most = GROUPS_A_THREAD * (l->caps->compute_units ? l->caps->compute_units : 1),
                   n = (rows + ROWS_MIN - 1) / ROWS_MIN;
    return n < most ? n : most;
}

void tile_bytes_begin(tile_bytes *y, tile_kernel *k, const base_type *types, uint32_t n_type,
                      uint32_t length, uint32_t rows, uint32_t vectors) {
    *y = (tile_bytes){.k = k, .length = length, .rows = rows, .vectors = vectors};
    for (uint32_t i = 0; i < n_type; i++) {
        tile_rounded *r = &y->rounded[y->n_rounded];
        bool known = false;
        unit_of(types[i], length, &r->unit);
        for (uint32_t j = 0; j < y->n_rounded; j++)
            known = known || same_layout(&y->rounded[j].unit, &r->unit);
        if (known) continue;
        r->x = ir_workgroup(k->b, IR_U32, vectors * length / 4);
        r->about = ir_workgroup(k->b, IR_F32, vectors * length / r->unit.size * r->unit.subs * 2);
        y->n_rounded++;
    }
    y->sums = ir_register(k->b, IR_F32, rows * vectors * 2 * LANES);
}

/* ---- rounding -------------------------------------------------------------------------------- */

static ir_id size_of(ir_builder *b, ir_id x) { /* without its sign */
    ir_id bits = ir_bitcast(b, IR_U32, LANES, x);
    return ir_bitcast(b, IR_F32, LANES, ir_and(b, bits, ir_bits(b, IR_U32, LANES, 0x7fffffffu)));
}

/* 32 elements of a vector, those of the unit from `element` on. */
static void round_block(tile_bytes *y, const tile_rounded *r, ir_id base, ir_id about,
                        uint32_t element, const ir_id *values) {
    ir_builder *b = y->k->b;
    const tile_unit *u = &r->unit;
    ir_id largest = tile_max_vector(b, ir_max(b, size_of(b, values[0]), size_of(b, values[1])));
    ir_id scale = ir_mul(b, largest, ir_f32(b, 1.0f / 127)),
          up = ir_select(b, ir_gt(b, largest, ir_f32(b, 0)), ir_div(b, ir_f32(b, 127), largest),
                         ir_f32(b, 0));
    ir_id sums[2], rounder = ir_number(b, IR_F32, LANES, ROUNDER);
    for (uint32_t i = 0; i < 2; i++) {
        ir_id shifted = ir_fma(b, values[i], ir_splat(b, up, LANES), rounder);
        ir_id bytes = ir_cast(b, IR_U8, ir_bitcast(b, IR_U32, LANES, shifted));
        ir_id at = tile_add(b, base, word_of(u, element + LANES * i));
        ir_store(b, r->x, at, ir_bitcast(b, IR_U32, 4, bytes));
        sums[i] = ir_sub(b, shifted, rounder);
    }
    const uint32_t n = u->sub < PART ? 2 : 1;
    if (n == 1) sums[0] = ir_add(b, sums[0], sums[1]);
    for (uint32_t i = 0; i < n; i++) {
        ir_id at = tile_add(b, about, element / u->sub + i);
        ir_store(b, r->about, at, scale);
        ir_store(b, r->about, tile_add(b, at, u->subs),
                 ir_mul(b, scale, tile_sum_vector(b, sums[i])));
    }
}

/* Vectors take turns where there are several: written out they would be most of the text. */
void tile_bytes_fill(tile_bytes *y, ir_memory x, bool aligned, const ir_id *x_at) {
    tile_kernel *k = y->k;
    ir_builder *b = k->b;
    const bool in_turns = y->vectors > 1;
    ir_id zero = ir_u32(b, 0), one = ir_u32(b, 1), v = zero, begin = x_at[0];
    if (in_turns) {
        const ir_memory begins = ir_register(b, IR_U32, y->vectors);
        for (uint32_t i = 0; i < y->vectors; i++) ir_store(b, begins, ir_u32(b, i), x_at[i]);
        v = ir_loop(b, zero, ir_u32(b, y->vectors), one);
        begin = ir_load(b, begins, v, 1);
    }
    for (uint32_t i = 0; i < y->n_rounded; i++) {
        const tile_rounded *r = &y->rounded[i];
        const uint32_t units = y->length / r->unit.size;
        ir_id u = ir_loop(b, zero, ir_u32(b, units), one);
        ir_id from = ir_add(b, begin, tile_mul(b, u, r->unit.size)),
              unit = ir_add(b, u, tile_mul(b, v, units));
        ir_id base = tile_mul(b, unit, r->unit.size / 4),
              about = tile_mul(b, unit, 2 * r->unit.subs);
        for (uint32_t e = 0; e < r->unit.size; e += PART) {
            ir_id values[2];
            for (uint32_t j = 0; j < 2; j++)
                tile_load_run(k, x, tile_add(b, from, e + LANES * j), aligned, &values[j]);
            round_block(y, r, base, about, e, values);
        }
        ir_end(b);
    }
    if (in_turns) ir_end(b);
}

/* ---- scales ---------------------------------------------------------------------------------- */

typedef struct reader { /* of a unit of a row */
    tile_kernel *k;
    const tile_weight *w;
    const tile_unit *u;
    ir_id number; /* of its first block, over rows */
} reader;

static ir_id load_words(const reader *r, uint32_t plane, uint32_t at, uint32_t width) {
    ir_builder *b = r->k->b;
    ir_id entry = tile_mul(b, r->number, tile_weight_words(r->w->type, plane)),
          index = ir_add(b, entry, r->w->plane[plane]);
    return ir_load(b, r->w->from, tile_add(b, index, at), width);
}

static ir_id constants(ir_builder *b, const uint32_t *values, uint32_t n) {
    ir_id parts[LANES];
    for (uint32_t i = 0; i < n; i++) parts[i] = ir_u32(b, values[i]);
    return ir_compose(b, parts, n);
}

static ir_id halves_of(ir_builder *b, ir_id x, uint32_t n) { /* the low ones of words */
    return ir_cast(b, IR_F32, ir_bitcast(b, IR_F16, n, ir_cast(b, IR_U16, x)));
}

/* The half at the entry of 2 bytes of a block that is a unit. */
static ir_id small_half(const reader *r, uint32_t plane) {
    ir_builder *b = r->k->b;
    ir_id index = ir_add(b, tile_div(b, r->number, 2), r->w->plane[plane]);
    ir_id word =
        ir_shr(b, ir_load(b, r->w->from, index, 1), tile_mul(b, tile_rem(b, r->number, 2), 16));
    return halves_of(b, word, 1);
}

/* One half for each block of the unit. */
static ir_id small_halves(const reader *r, uint32_t plane) {
    ir_builder *b = r->k->b;
    const uint32_t n = r->u->subs;
    ir_id at = ir_add(b, tile_div(b, r->number, 2), r->w->plane[plane]);
    ir_id words = ir_load(b, r->w->from, at, n / 2);
    return ir_cast(b, IR_F32, ir_bitcast(b, IR_F16, n, words));
}

/* The bytes of a vector's words as f32. */
static ir_id bytes_to_floats(ir_builder *b, ir_id words, ir_type type) {
    return ir_cast(b, IR_F32,
                   ir_cast(b, type == IR_I8 ? IR_I32 : IR_U32, ir_bitcast(b, type, LANES, words)));
}

/* Words of a vector in another order, each shifted right and masked. */
static ir_id picked(ir_builder *b, ir_id words, uint64_t order, const uint32_t *shifts,
                    const uint32_t *masks) {
    return ir_and(b, ir_shr(b, ir_swizzle(b, words, 4, order), constants(b, shifts, 4)),
                  constants(b, masks, 4));
}

enum { M4 = 15 * BYTES, M6 = 63 * BYTES, M2 = 3 * BYTES, H2 = 48 * BYTES };

/* y = scales * q + leasts for each sub-block of the unit; *leasts IR_NO_ID: none. */
static void scales_of(const reader *r, ir_id *scales, ir_id *leasts) {
    ir_builder *b = r->k->b;
    const tile_block_form *f = r->u->form;
    const uint32_t n = r->u->subs;
    ir_id words, both, d, m;
    *leasts = IR_NO_ID;
    switch (f->kind) {
    case SCALE_NONE:
    case SCALE_POWER:
    case SCALE_E4M3:
    case SCALE_IQ4:
    case SCALE_FLOAT:
    case SCALE_AFFINE:
    case SCALE_OWN: *scales = ir_number(b, IR_F32, n, 0); return;
    case SCALE_D:
        *scales = r->u->block > PART ? ir_splat(b, small_half(r, f->d), n) : small_halves(r, f->d);
        return;
    case SCALE_D_M:
        words = load_words(r, f->d, 0, tile_weight_words(r->w->type, f->d) * n);
        if (f->high.bits) words = ir_swizzle(b, words, n, n < 8 ? 0x6420 : 0xeca86420u);
        *scales = halves_of(b, words, n);
        *leasts = halves_of(b, tile_shr(b, words, 16), n);
        return;
    case SCALE_2:
        words = load_words(r, f->scales, 0, 4);
        both = load_words(r, f->d, 0, 1);
        d = halves_of(b, both, 1), m = ir_neg(b, halves_of(b, tile_shr(b, both, 16), 1));
        *scales = ir_mul(b, bytes_to_floats(b, tile_and(b, words, M4), IR_U8), ir_splat(b, d, n));
        *leasts = ir_mul(b, bytes_to_floats(b, tile_and(b, tile_shr(b, words, 4), M4), IR_U8),
                         ir_splat(b, m, n));
        return;
    case SCALE_3: {
        ir_id own[4], high = load_words(r, f->scales, 2, 1);
        for (uint32_t i = 0; i < 4; i++) {
            ir_id low = tile_shr(b, load_words(r, f->scales, i % 2, 1), i / 2 * 4);
            own[i] = ir_or(b, tile_and(b, low, M4),
                           tile_shl(b, tile_and(b, tile_shr(b, high, 2 * i), M2), 4));
        }
        both = bytes_to_floats(b, ir_compose(b, own, 4), IR_U8);
        *scales = ir_mul(b, ir_sub(b, both, ir_number(b, IR_F32, n, 32)),
                         ir_splat(b, small_half(r, f->d), n));
        return;
    }
    case SCALE_4:
        words = load_words(r, f->d, 0, 4);
        both = ir_or(b,
                     picked(b, words, 0x2211, (const uint32_t[]){0, 2, 0, 2},
                            (const uint32_t[]){M6, H2, M6, H2}),
                     picked(b, words, 0x3333, (const uint32_t[]){0, 0, 0, 4},
                            (const uint32_t[]){0, M4, 0, M4}));
        both = bytes_to_floats(b, both, IR_U8);
        words = ir_extract(b, words, 0);
        d = halves_of(b, words, 1), m = ir_neg(b, halves_of(b, tile_shr(b, words, 16), 1));
        *scales = ir_mul(b, ir_swizzle(b, both, n, 0x76543210), ir_splat(b, d, n));
        *leasts = ir_mul(b, ir_swizzle(b, both, n, 0xfedcba98), ir_splat(b, m, n));
        return;
    case SCALE_6:
        words = load_words(r, f->scales, 0, 4);
        *scales = ir_mul(b, bytes_to_floats(b, words, IR_I8), ir_splat(b, small_half(r, f->d), n));
        return;
    }
}

/* ---- bytes ----------------------------------------------------------------------------------- */

enum { HIGH_VECTORS = 2 };

/* The words of the high bits' plane that belong to the unit. */
static uint32_t load_high(const reader *r, ir_id *high) {
    const tile_bits f = r->u->form->high;
    const uint32_t n = f.bits ? r->u->size / r->u->block * tile_weight_words(r->w->type, f.plane)
                              : 0,
                   width = n < LANES ? n : LANES;
    for (uint32_t i = 0; i * LANES < n; i++) high[i] = load_words(r, f.plane, i * LANES, width);
    return width;
}

/* What the high bits of a run add to its bytes. */
static ir_id high_of(const reader *r, const ir_id *high, uint32_t chunk, uint32_t run) {
    ir_builder *b = r->k->b;
    const tile_bits f = r->u->form->high;
    const uint32_t up = r->u->form->low.bits, mask = ((1u << f.bits) - 1) * BYTES;
    uint32_t shifts[LANES], least = UINT32_MAX, most = 0, vector = 0;
    uint64_t order = 0;
    for (uint32_t lane = 0; lane < LANES; lane++) {
        const uint32_t e = element_of(r->u, chunk, run, lane), block = e / r->u->block,
                       in = e % r->u->block, span = f.group ? f.group * 8u / f.bits : 32;
        const uint32_t byte = f.group ? in / span * f.group + in % f.group : 4u * f.at;
        const uint32_t word = block * tile_weight_words(r->w->type, f.plane) + byte / 4;
        shifts[lane] = f.group ? in % span / f.group * f.bits : in;
        vector = word / LANES;
        order |= (uint64_t)(word % LANES) << 4 * lane;
        least = shifts[lane] < least ? shifts[lane] : least;
        most = shifts[lane] > most ? shifts[lane] : most;
    }
    ir_id words = ir_swizzle(b, high[vector], LANES, order);
    if (!f.group) { /* four bits of a word, each to a byte of its own */
        words = tile_and(b, ir_shr(b, words, constants(b, shifts, LANES)), 15);
        words = ir_mul(b, words, ir_bits(b, IR_U32, LANES, 0x00204081));
        return tile_shl(b, tile_and(b, words, BYTES), up);
    }
    if (most <= up) {
        for (uint32_t i = 0; i < LANES; i++) shifts[i] = up - shifts[i];
        return tile_and(b, ir_shl(b, words, constants(b, shifts, LANES)), mask << up);
    }
    if (least >= up) {
        for (uint32_t i = 0; i < LANES; i++) shifts[i] -= up;
        return tile_and(b, ir_shr(b, words, constants(b, shifts, LANES)), mask << up);
    }
    return tile_shl(b, tile_and(b, ir_shr(b, words, constants(b, shifts, LANES)), mask), up);
}

/* 64 elements as unsigned bytes. */
static ir_id run_of(const reader *r, ir_id chunk_words, const ir_id *high, uint32_t chunk,
                    uint32_t run) {
    ir_builder *b = r->k->b;
    const uint32_t bits = r->u->form->low.bits;
    if (bits == 8)
        return ir_xor(b, chunk_words, ir_bits(b, IR_U32, LANES, (uint64_t)LEVEL * BYTES));
    ir_id words = tile_and(b, tile_shr(b, chunk_words, run * bits), ((1u << bits) - 1) * BYTES);
    return r->u->form->high.bits ? ir_or(b, words, high_of(r, high, chunk, run)) : words;
}

/* ---- products -------------------------------------------------------------------------------- */

/* Which sub-block each lane of a run belongs to. */
static uint64_t subs_of(const tile_unit *u, uint32_t chunk, uint32_t run) {
    uint64_t order = 0;
    for (uint32_t lane = 0; lane < LANES; lane++)
        order |= (uint64_t)(element_of(u, chunk, run, lane) / u->sub) << 4 * lane;
    return order;
}

static ir_id sum_at(ir_builder *b, const tile_bytes *y, uint32_t row, uint32_t vector,
                    uint32_t second) {
    return ir_u32(b, ((row * y->vectors + vector) * 2 + second) * LANES);
}

typedef struct tile {
    tile_bytes *y;
    const tile_rounded *rounded;
    reader r[TILE_BYTES_ROWS];
    ir_id x[TILE_BYTES_VECTORS]; /* where the unit's words lie */
    ir_id factors[TILE_BYTES_ROWS][TILE_BYTES_VECTORS];
    ir_id high[TILE_BYTES_ROWS][HIGH_VECTORS];
    ir_id dots[TILE_BYTES_ROWS][TILE_BYTES_VECTORS];
    ir_id sums[TILE_BYTES_ROWS][TILE_BYTES_VECTORS];
} tile;

/* Scales times those of the vectors; what zeros and least values add is summed. */
static void open_unit(tile *t, ir_id unit, uint32_t units) {
    tile_bytes *y = t->y;
    ir_builder *b = y->k->b;
    const tile_unit *u = &t->rounded->unit;
    ir_id scales[TILE_BYTES_ROWS], leasts[TILE_BYTES_ROWS];
    for (uint32_t i = 0; i < y->rows; i++) {
        scales_of(&t->r[i], &scales[i], &leasts[i]);
        load_high(&t->r[i], t->high[i]);
    }
    for (uint32_t v = 0; v < y->vectors; v++) {
        ir_id at = tile_add(b, unit, v * units), about = tile_mul(b, at, 2 * u->subs);
        t->x[v] = tile_mul(b, at, u->size / 4);
        ir_id own = ir_load(b, t->rounded->about, about, u->subs),
              sums = ir_load(b, t->rounded->about, tile_add(b, about, u->subs), u->subs);
        for (uint32_t i = 0; i < y->rows; i++) {
            t->factors[i][v] = ir_mul(b, scales[i], own);
            t->sums[i][v] = ir_load(b, y->sums, sum_at(b, y, i, v, 0), LANES);
            if (leasts[i] == IR_NO_ID && !u->form->zero && u->form->low.bits < 8) continue;
            ir_id rest = sum_at(b, y, i, v, 1), by = leasts[i] == IR_NO_ID ? scales[i] : leasts[i];
            ir_store(b, y->sums, rest, ir_fma(b, by, sums, ir_load(b, y->sums, rest, u->subs)));
        }
    }
}

/* The sums of the lanes' products, times their factors. */
static void close_runs(tile *t, uint64_t order) {
    ir_builder *b = t->y->k->b;
    for (uint32_t i = 0; i < t->y->rows; i++)
        for (uint32_t v = 0; v < t->y->vectors; v++)
            t->sums[i][v] = ir_fma(b, ir_cast(b, IR_F32, t->dots[i][v]),
                                   ir_swizzle(b, t->factors[i][v], LANES, order), t->sums[i][v]);
}

static void add_unit(tile *t, const tile_unit *u) {
    tile_bytes *y = t->y;
    ir_builder *b = y->k->b;
    const tile_bits low = u->form->low;
    ir_id none = ir_bits(b, IR_I32, LANES, 0);
    for (uint32_t chunk = 0; chunk < u->chunks; chunk++) {
        ir_id words[TILE_BYTES_ROWS];
        for (uint32_t i = 0; i < y->rows; i++)
            words[i] = load_words(&t->r[i], low.plane, chunk * LANES, LANES);
        for (uint32_t run = 0; run < u->runs; run++) {
            const uint64_t order = subs_of(u, chunk, run);
            const bool first = run == 0 || order != subs_of(u, chunk, run - 1),
                       last = run + 1 == u->runs || order != subs_of(u, chunk, run + 1);
            ir_id x[TILE_BYTES_VECTORS];
            for (uint32_t v = 0; v < y->vectors; v++)
                x[v] = ir_load(b, t->rounded->x,
                               tile_add(b, t->x[v], (chunk * u->runs + run) * LANES), LANES);
            for (uint32_t i = 0; i < y->rows; i++) {
                ir_id bytes = run_of(&t->r[i], words[i], t->high[i], chunk, run);
                for (uint32_t v = 0; v < y->vectors; v++)
                    t->dots[i][v] = ir_dot4_u8(b, bytes, x[v], first ? none : t->dots[i][v]);
            }
            if (last) close_runs(t, order);
        }
    }
}

/* What a row and a vector come to. */
static ir_id result_of(const tile *t, const tile_unit *u, uint32_t row, uint32_t vector) {
    tile_bytes *y = t->y;
    ir_builder *b = y->k->b;
    const uint32_t zero = u->form->low.bits == 8 ? LEVEL : u->form->zero;
    ir_id sum = ir_load(b, y->sums, sum_at(b, y, row, vector, 0), LANES),
          rest = ir_load(b, y->sums, sum_at(b, y, row, vector, 1), u->subs);
    if (zero) rest = ir_mul(b, rest, ir_number(b, IR_F32, u->subs, -(double)zero));
    if (u->subs == LANES) return tile_sum_vector(b, ir_add(b, sum, rest));
    return ir_add(b, tile_sum_vector(b, sum), tile_sum_vector(b, rest));
}

void tile_bytes_walk(tile_bytes *y, const tile_weight *const *w, const ir_id *row, ir_id *sums) {
    tile_kernel *k = y->k;
    ir_builder *b = k->b;
    tile t = {.y = y};
    tile_unit u;
    unit_of(w[0]->type, y->length, &u);
    for (uint32_t i = 0; i < y->n_rounded; i++)
        if (same_layout(&y->rounded[i].unit, &u)) t.rounded = &y->rounded[i];
    const uint32_t units = y->length / u.size;
    for (uint32_t i = 0; i < y->rows * y->vectors * 2; i++)
        ir_store(b, y->sums, ir_u32(b, i * LANES), ir_number(b, IR_F32, LANES, 0));
    ir_id unit = ir_loop(b, ir_u32(b, 0), ir_u32(b, units), ir_u32(b, 1));
    for (uint32_t i = 0; i < y->rows; i++) {
        ir_id number = ir_fma(b, row[i], w[i]->row, tile_mul(b, unit, u.size / u.block));
        t.r[i] = (reader){.k = k, .w = w[i], .u = &u, .number = number};
    }
    open_unit(&t, unit, units);
    add_unit(&t, &u);
    for (uint32_t i = 0; i < y->rows; i++)
        for (uint32_t v = 0; v < y->vectors; v++)
            ir_store(b, y->sums, sum_at(b, y, i, v, 0), t.sums[i][v]);
    ir_end(b);
    for (uint32_t i = 0; i < y->rows; i++)
        for (uint32_t v = 0; v < y->vectors; v++)
            sums[i * y->vectors + v] = result_of(&t, &u, i, v);
}
