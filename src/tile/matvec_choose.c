/* matvec_choose.c - the form of a product with few vectors on GPUs.
 *
 * Numbers of the choice follow from one thought: a matvec is as fast
 * as the bytes that it has in flight. */
#include "tile/matvec_inside.h"
#include "tile/whole.h"

enum {
    WG = 256,
    LONG_WG = 512, /* where every workgroup rounds a long vector: fewer, larger ones */
    EVEN_WG = 384, /* where that spreads rows more evenly over units, by an eighth at least */
    LONG_K = 4096,
    PROLOGUE_LONG_K = 2047,
    WORDY = 12,          /* words of a chunk: more leave a lane fewer registers */
    THIN = 9,            /* words of a chunk: fewer leave room for several */
    THIN_FLOATS = 5,     /* that become f32, which take registers too */
    FEW = 16,            /* that part of the lanes that a device should have */
    SMALL_WG = 128,      /* a small matrix: more units have a part of it */
    SMALL_ROWS = 8192,   /* behind a prologue, at most: more lanes, which make it sooner */
    LANES_A_UNIT = 1024, /* that a compute unit should have */
    LANES_MIN = 8,
    /* of a unit; caches hold them, so each vector reads them for itself, on units that would be
     * idle */
    TINY_WEIGHTS = 4096,
    ALONE_WEIGHTS = 8192, /* the same, before a dispatch rounds vectors and does nothing else */
    LANES_MANY = 16,      /* with several vectors, which a workgroup rounds for all its rows */
    RAW_MAX = 64,         /* words that a lane has under way, */
    RAW_HALVES = 24,      /* of plain numbers: what is written out more often waits for its text */
    HANDED = 32,          /* results of a block that is rounded */
    SUMS_MAX = 16,
    /* batches: vectors, at least, and at a time at most; neighbours that share a row */
    BATCH_MAX = 16,
    BATCH_SHARE = 4,
    BATCH_NEAR = 2, /* rows in neighbouring lanes, which read the same words of the vectors */
    BATCH_ITEMS_MAX = 4,
    BATCH_SUMS_MAX = 32,
    WARP = 32,         /* lanes that a unit's four schedulers handle as one */
    REGISTERS = 65536, /* of a unit, and what a lane may have of them */
    REGISTERS_MAX = 240
};

uint32_t matvec_chunk(base_type type) {
    return tile_packed_known(type) ? tile_packed_chunk(type) : tile_weight_chunk(type);
}

bool matvec_halves(base_type type) {
    return tile_weight_element(type) != IR_U32 && type != TYPE_F32;
}

ir_type tile_matvec_element(base_type type) {
    return matvec_halves(type) ? IR_U32 : tile_weight_element(type);
}

uint32_t matvec_raw_widths(base_type type, uint8_t widths[TILE_RAW_MAX]) {
    if (tile_packed_known(type)) return tile_packed_widths(type, widths);
    if (!matvec_halves(type)) return 0;
    widths[0] = widths[1] = 4;
    return 2;
}

uint32_t matvec_raw_words(base_type type) {
    uint8_t widths[TILE_RAW_MAX];
    uint32_t sum = 0;
    const uint32_t n = matvec_raw_widths(type, widths);
    for (uint32_t i = 0; i < n; i++) sum += widths[i];
    return sum;
}

void matvec_layout(matvec_x x, uint32_t k, uint32_t *unit, uint32_t *half, uint32_t *second,
                   uint32_t *vector) {
    const uint32_t fours = whole_over(k, 64), odd = fours | 1; /* of 64 elements */
    if (x == MATVEC_INT8 ||
        x == MATVEC_COPIED) { /* neighbouring lanes read neighbouring fours: different banks */
        *unit = 0;
        *half = odd;
        *second = (2 * odd + 3) / 8 * 8 + 4;
        *vector = *second + *half + fours;
    } else {
        *unit = odd;
        *half = 4 * odd;
        /* what eight neighbouring lanes read at once begins in eight places mod 8: no bank twice */
        *second = 8 * odd + 2;
        *vector = 16 * odd + 2;
    }
}

/* Tables that weights of these types are looked up in. */
uint32_t matvec_tables(const base_type *types, uint32_t n, tile_pairs pairs[TILE_TABLES_MAX]) {
    uint32_t count = 0;
    for (uint32_t i = 0; i < n; i++) {
        const uint32_t *table = tile_weight_table(types[i]);
        bool known = !table;
        for (uint32_t j = 0; j < count; j++) known = known || pairs[j].table == table;
        if (!known) pairs[count++].table = table;
    }
    return count;
}

static uint32_t tile_rows_of(const matvec_choice *c) {
    return c->wg / c->lanes * c->rows;
}

static uint64_t memory_of(const matvec_choice *c, const matvec_shape *shape, uint32_t tables) {
    const uint32_t k = shape->k, per = shape->per ? shape->per : 1;
    const bool is_kept = c->x == MATVEC_SHARED || c->x == MATVEC_INT8;
    uint32_t unit, half, second, vector;
    matvec_layout(c->x, k, &unit, &half, &second, &vector);
    uint64_t bytes = is_kept ? (uint64_t)vector * 16 * c->n_x : 0;
    /* scales and half sums */
    if (c->x == MATVEC_INT8) bytes += (uint64_t)whole_over(k, 64) * 32 * c->n_x;
    if (c->x == MATVEC_INT8 && tables) bytes += (uint64_t)vector * 16 * c->n_x;
    if (!c->subgroups) bytes += 4ull * c->wg * c->rows * c->n_x * per;
    if (BUILD_HAS_JOINED_ADAPTERS && shape->parts && c->subgroups)
        bytes += 4ull * shape->parts * (c->wg / c->span + 1);
    if (shape->rounded_out || (BUILD_HAS_JOINED_ADAPTERS && shape->keeps))
        bytes += 4ull * tile_rows_of(c) * c->n_x;
    if (BUILD_HAS_ADAPTERS && c->subgroups) bytes += 4ull * shape->shared;
    if (BUILD_HAS_ADAPTERS && shape->factors && c->subgroups)
        bytes += 4ull * shape->factors * c->n_x;
    return bytes + 8ull * c->wg / (c->subgroups ? c->span : 1) +
           (uint64_t)tables * c->copies * TILE_PAIRS_BYTES;
}

static bool take_form(const device_caps *caps, const lower_form *form, matvec_choice *c) {
    if (form->wg) c->wg = form->wg;
    if (form->lanes) c->lanes = form->lanes;
    if (form->rows) c->rows = form->rows;
    if (form->depth) c->depth = form->depth;
    if (form->groups) c->groups = form->groups;
    if (form->n_x) c->n_x = form->n_x;
    return (whole_power_from(c->wg) == c->wg || c->wg % WARP == 0) &&
           whole_power_from(c->lanes) == c->lanes && c->wg <= caps->workgroup_invocations &&
           c->wg >= (c->span ? c->span : 1) && c->lanes <= (c->subgroups ? c->span : c->wg) &&
           c->n_x <= TILE_VECTORS_MAX;
}

/* Turns of lanes without a chunk. */
static uint32_t idle_of(uint32_t n, uint32_t lanes) {
    return whole_over(n, lanes) * lanes - n;
}

/* Is a vector that comes rounded copied to workgroup memory? */
static bool is_copied(const matvec_shape *shape, const matvec_choice *c) {
    return shape->rounded_in && c->x == MATVEC_INT8;
}

static bool may_copy(const matvec_shape *shape, uint32_t most, const matvec_choice *c) {
    matvec_choice with = *c;
    with.wg = LONG_WG, with.lanes = with.rows = 1;
    return shape->k / TILE_RUN <= MATVEC_EACH_MAX * SMALL_WG && memory_of(&with, shape, 0) <= most;
}

/* Lanes of a row where they take two rows of n chunks at once: of a copied vector as many as there
 * are, else LANES_MANY; of pairs half as many, where fewer of those are idle. What WebGPU's
 * compilers make of these is slower than one row. */
static uint32_t lanes_of_two(const device_caps *caps, const matvec_shape *shape,
                             const matvec_choice *c, uint32_t n) {
    if (is_copied(shape, c)) return c->lanes;
    return shape->per > 1 && !tile_is_wgsl(caps) && idle_of(n, LANES_MANY) > n / 6 ? LANES_MANY / 2
                                                                                   : LANES_MANY;
}

/* Enough rows, and few of so many lanes idle, for two rows at once? They share what is read of the
 * vector, and a workgroup that makes one does more with it. */
static bool takes_two(const matvec_shape *shape, const matvec_choice *c, uint32_t lanes,
                      uint64_t rows, uint32_t n, uint64_t wanted) {
    if (c->n_x > 1 || c->span < LANES_MANY || idle_of(n, lanes) > n / 6) return false;
    if (shape->rounded_in) return shape->per < 2 && rows * WARP > wanted / 4 * 3;
    if (c->x != MATVEC_INT8 || !shape->has_prologue) return false;
    return shape->per > 1 ? rows * LANES_MANY > 2 * wanted : rows * WARP > wanted;
}

/* Tiles of the workgroup that has the most. */
static uint32_t turns_of(const matvec_shape *shape, const matvec_choice *c) {
    uint32_t tiles = 0;
    for (uint32_t i = 0; i < shape->n_segment; i++)
        tiles += whole_over(shape->rows[i], tile_rows_of(c));
    return whole_over(tiles, c->groups);
}

/* Rows of the unit that has the most, in workgroups of so many lanes. */
static uint32_t busiest(const matvec_shape *shape, const matvec_choice *c, uint32_t wg,
                        uint32_t units) {
    matvec_choice with = *c;
    with.wg = wg;
    const uint32_t turns = turns_of(shape, &with);
    with.groups = turns * units;
    return turns_of(shape, &with) * turns * tile_rows_of(&with);
}

/* Other workgroups, where those leave units with much fewer rows than others: of products alone, of
 * pairs that are handed on, of single rows. Others lost, as did workgroups that make factors, or
 * with such beside them: those would wait for a unit. No page knows how many units there are. */
static void spread(const device_caps *caps, const matvec_shape *shape, matvec_choice *c,
                   uint32_t units) {
    if (BUILD_IS_MODULE || shape->factors || shape->beside || !c->subgroups || c->n_x > 1 ||
        EVEN_WG > caps->workgroup_invocations ||
        !(c->wg == WG || (c->wg == LONG_WG && !shape->has_prologue)) ||
        (shape->has_prologue && (shape->per > 1 ? !shape->rounded_out : c->rows > 1)) ||
        (shape->rounded_out && EVEN_WG / c->lanes * c->rows % HANDED))
        return;
    if (busiest(shape, c, EVEN_WG, units) <= busiest(shape, c, c->wg, units) / 8 * 7)
        c->wg = EVEN_WG;
}

/* LONG_WG, or fewer: a lane a four of the vector that it rounds. */
static uint32_t long_wg(const device_caps *caps, const matvec_shape *shape,
                        const matvec_choice *c) {
    const uint32_t fours = shape->k / 4;
    return c->subgroups && !tile_is_wgsl(caps) && fours > WG && fours < LONG_WG && fours % WARP == 0
               ? fours
               : LONG_WG;
}

/* Lanes of a workgroup for a small matrix; few: there are not rows for all units. */
static uint32_t small_wg(const device_caps *caps, const matvec_shape *shape, const matvec_choice *c,
                         bool packed, bool few) {
    if (packed) return shape->rounded_out ? LONG_WG : long_wg(caps, shape, c);
    return few && shape->per < 2 && !tile_is_wgsl(caps) ? SMALL_WG : WG;
}

/* The same where lanes take two rows at once; fits: all workgroups find room. */
static uint32_t two_wg(const device_caps *caps, const matvec_shape *shape, bool is_long,
                       bool fits) {
    if (shape->rounded_in && !fits) return SMALL_WG;
    return is_long && shape->k > LONG_K && !tile_is_wgsl(caps) ? LONG_WG : WG;
}

/* Lanes of a row for workgroups of which there is one a unit: those with which it takes the fewest
 * steps through its rows of n chunks, of those the fewest tiles. */
static void even_out(const matvec_shape *shape, matvec_choice *c, uint32_t n) {
    matvec_choice other = *c;
    uint32_t turns = turns_of(shape, c), best = turns * whole_over(n, c->lanes);
    if (turns == 1) return;
    for (other.lanes = LANES_MIN; other.lanes <= c->span; other.lanes *= 2) {
        const uint32_t own = turns_of(shape, &other), steps = own * whole_over(n, other.lanes);
        if (steps > best || (steps == best && own >= turns)) continue;
        best = steps;
        turns = own;
        c->lanes = other.lanes;
    }
}

static bool choose(const device_caps *caps, const matvec_shape *shape, matvec_choice *out) {
    const uint32_t units = tile_units(caps), per = shape->per ? shape->per : 1,
                   most = caps->workgroup_bytes;
    const bool factors = BUILD_HAS_ADAPTERS && shape->factors;
    matvec_choice *c = out;
    uint32_t chunk = UINT32_MAX, words = 0, interleave = 0;
    uint64_t rows = 0;
    bool packed = shape->k % 32 == 0;
    *c = (matvec_choice){0};
    if (device_is_processor(caps)) return false;
    for (uint32_t i = 0; i < shape->n_segment; i++) {
        const base_type type = shape->types[i];
        if (!tile_weight_known(type) || shape->k % matvec_chunk(type)) return false;
        const uint32_t own = tile_weight_interleave(type);
        if (own && interleave && own != interleave)
            return false; /* the vectors are interleaved one way */
        if (own) interleave = own;
        chunk = whole_least(chunk, matvec_chunk(type));
        packed = packed && tile_packed_known(type);
        const uint32_t loaded =
            tile_packed_known(type) ? tile_packed_words(type) : matvec_raw_words(type);
        if (loaded > words) words = loaded;
        rows += (uint64_t)shape->rows[i] * per;
    }
    tile_pairs pairs[TILE_TABLES_MAX];
    const uint32_t n = shape->k / chunk,
                   tables = matvec_tables(shape->types, shape->n_segment, pairs);
    const uint64_t wanted = (uint64_t)units * LANES_A_UNIT;
    c->copies = !caps->permutes_bytes;
    c->subgroups = caps->subgroups && caps->subgroup_size >= LANES_MIN;
    c->span = c->subgroups ? tile_span(caps) : 0;
    c->x = c->subgroups && caps->dot_i8 && packed && !shape->exact ? MATVEC_INT8 : MATVEC_SHARED;
    const bool one = shape->n_x == 1 || rows * shape->k <= (uint64_t)TINY_WEIGHTS * units;
    c->n_x = one ? 1 : whole_least(whole_power_from(shape->n_x), 4);
    if (is_copied(shape, c) && !tables && !may_copy(shape, most, c)) c->x = MATVEC_QUANTISED;
    const bool copied = is_copied(shape, c) && !tables;
    c->lanes = whole_least(c->subgroups ? c->span : LANES_MIN, whole_power_from(n));
    if (!one) c->lanes = whole_least(c->lanes, LANES_MANY);
    /* Few rows: rather lanes without a chunk than units without work. */
    const bool small = shape->has_prologue && c->n_x == 1 && rows <= SMALL_ROWS;
    const uint32_t fewest = small                           ? whole_least(c->lanes, LANES_MANY)
                            : idle_of(n, LANES_MIN) > n / 4 ? LANES_MIN / 2
                                                            : LANES_MIN;
    while (c->lanes > fewest && (rows * c->lanes > 2 * wanted ||
                                 (idle_of(n, c->lanes) > n / 4 && rows * c->lanes > wanted / FEW)))
        c->lanes /= 2;
    /* Many rows: several at once share what is read of the vectors; else a row's loads are under
     * way together. */
    const bool many = c->n_x == 1 && per == 1 && rows * c->lanes > 8 * wanted,
               wordy = words > WORDY;
    const bool thin =
        words <= (c->x == MATVEC_SHARED ? THIN_FLOATS : THIN) && !(tables && c->copies);
    const bool is_long = shape->k > (shape->has_prologue ? PROLOGUE_LONG_K : LONG_K) &&
                         c->n_x == 1 && per == 1 && !many && !shape->rounded_in;
    const uint32_t two = lanes_of_two(caps, shape, c, n);
    const bool twice = !many && !(wordy && per > 1) && !factors && !tables &&
                       takes_two(shape, c, two, rows, n, wanted);
    if (twice) c->lanes = two;
    c->rows = twice ? 2 : !many ? 1 : wordy || thin ? 2 : 4;
    const uint32_t raw = packed ? RAW_MAX : RAW_HALVES,
                   room = words ? raw / (words * c->rows) : MATVEC_DEPTH_MAX;
    const bool has_long = shape->has_prologue && shape->k > PROLOGUE_LONG_K;
    /* few copies, if all workgroups find room at once */
    const bool fits = copied && rows * c->lanes / c->rows <= (uint64_t)units * LONG_WG;
    c->wg = factors                              ? long_wg(caps, shape, c)
            : twice                              ? two_wg(caps, shape, is_long, fits)
            : is_long || (many && wordy) || fits ? LONG_WG
            : small             ? small_wg(caps, shape, c, packed, rows * c->lanes <= wanted / FEW)
            : shape->rounded_in ? SMALL_WG
                                : WG;
    c->wg = whole_least(c->wg, caps->workgroup_invocations);
    if (factors) { /* all workgroups read the same rows again */
        c->groups = units;
        even_out(shape, c, n);
    }
    const uint32_t all = whole_over(n, c->lanes);
    /* Where the vectors are read beside the weights, or a lane has made much of one, more lanes
     * hide more than more loads of each. */
    const bool shallow =
        twice || (many && !thin) || per > 1 ||
        (shape->rounded_in && (!fits || shape->beside || tile_is_wgsl(caps))) ||
        (c->wg > SMALL_WG && shape->has_prologue && shape->k / 4 > (small ? 1u : 2u) * c->wg);
    /* Workgroups that make factors are few: of halves as they lie two loads are under way. */
    const bool halves = factors && !packed;
    const uint32_t deep =
        shallow && !halves ? 1 : whole_least(room ? room : 1, halves ? 2 : MATVEC_DEPTH_MAX);
    c->depth = whole_over(all, whole_over(all, whole_least(all, deep)));
    while (!is_long && !shape->has_prologue && c->wg > SMALL_WG &&
           rows / per * c->lanes / c->wg < units / 2)
        c->wg /= 2;
    if (!factors)
        c->groups = (has_long || small || (many && wordy) ? 2 : c->wg <= SMALL_WG ? 8 : 4) * units;
    spread(caps, shape, c, units);
    if (shape->form && !take_form(caps, shape->form, c)) return false;
    if (c->rows * per > TILE_ROWS_MAX || c->rows * per * c->n_x > TILE_SUMS_MAX) return false;
    /* blocks of results that are handed on lie in one tile */
    while (shape->rounded_out && tile_rows_of(c) % HANDED != 0) {
        if (shape->form) return false;
        if (2 * c->wg <= LONG_WG && 2 * c->wg <= caps->workgroup_invocations) c->wg *= 2;
        else if (c->lanes > 1) c->lanes /= 2;
        else return false;
    }
    while (!shape->form && c->n_x > 1 &&
           (memory_of(c, shape, tables) > most || c->rows * per * c->n_x > SUMS_MAX))
        c->n_x /= 2;
    if (memory_of(c, shape, tables) > most && !shape->has_prologue) c->x = MATVEC_DIRECT;
    const bool takes =
        c->x == MATVEC_QUANTISED || (copied && c->x == MATVEC_INT8 &&
                                     whole_over(shape->k / TILE_RUN, c->wg) <= MATVEC_EACH_MAX);
    if ((shape->rounded_in && !takes) ||
        (shape->rounded_out && (!c->subgroups || !caps->dot_i8 || shape->exact)))
        return false;
    for (matvec_choice more = *c; more.copies && more.copies < TILE_COPIES_MAX;) {
        more.copies *= 2;
        if (memory_of(&more, shape, tables) <= most) c->copies = more.copies;
    }
    const uint32_t each = whole_over(shape->k / 4, c->wg);
    return memory_of(c, shape, tables) <= most &&
           (!shape->has_prologue || (each <= MATVEC_EACH_MAX && shape->k % 16 == 0));
}

/* ---- batches --------------------------------------------------------------------------------- */

static uint64_t batch_bytes(const matvec_shape *shape, const matvec_choice *c) {
    uint32_t unit, half, second, vector;
    matvec_layout(c->x, c->window, &unit, &half, &second, &vector);
    const uint64_t per = shape->per ? shape->per : 1,
                   x = 16ull * vector * c->n_x + 32ull * (c->window / 64) * c->n_x,
                   sums = 4ull * c->wg / c->share * c->rows * per * c->n_x;
    return x + sums + (shape->rounded_out ? 4ull * tile_rows_of(c) * c->n_x : 0);
}

/* Clocks that a unit has to do with one form, guessed from what it does: instructions, words from
 * workgroup memory, rounds of units that do not come out even. Those of one generation of GPUs;
 * what counts is their ratio. */
static uint64_t batch_clocks(const matvec_shape *shape, uint32_t units, const matvec_choice *c) {
    const uint32_t items = c->rows * (shape->per ? shape->per : 1), warps = c->wg / WARP,
                   chunks = whole_over(shape->k, 64), windows = whole_over(shape->k, c->window);
    const bool resident = windows == 1;
    const uint32_t ahead = resident ? 0 : 6 * (c->n_x * c->window / 16 / c->wg + 1);
    uint32_t registers = items * (c->n_x + 32) + 76 + ahead;
    /* a little fewer must do where a workgroup would not fit else */
    if (registers * c->wg > REGISTERS && registers * c->wg <= REGISTERS / 8 * 9)
        registers = REGISTERS / c->wg;
    if (registers > REGISTERS_MAX || registers * c->wg > REGISTERS) return UINT64_MAX;
    uint64_t tiles = 0;
    for (uint32_t i = 0; i < shape->n_segment; i++)
        tiles += whole_over(shape->rows[i], tile_rows_of(c));
    tiles *= whole_over(shape->n_x, c->n_x);
    const uint64_t each = (tiles + units - 1) / units, room = REGISTERS / (registers * c->wg),
                   beside = each < room ? each : room;
    const uint64_t dots = 16ull * items * c->n_x,
                   all = dots + 8ull * items * c->n_x + 6 * c->n_x + 70 * items,
                   words = 40 * c->n_x, most = 2 * dots > all ? 2 * dots : all,
                   step = most > words ? most : words;
    const uint64_t work = each * warps * whole_over(chunks, c->lanes) * step / 4;
    const uint64_t window = 20ull * (c->window / 16) * c->n_x / 32;
    const uint64_t fills = resident ? (each < 4 ? each : 4) * window : each * windows * window,
                   ends = each * warps * (items * c->n_x * 3 + 100) / 4 +
                          (resident ? 0 : each * windows * 150);
    return work + work * 4 / (beside * warps) + fills / 2 + beside * window + ends;
}

/* Elements that windows are multiples of: a chunk of each lane. */
static uint32_t window_unit(const matvec_shape *shape, uint32_t lanes) {
    uint32_t most = 64;
    for (uint32_t i = 0; i < shape->n_segment; i++)
        if (matvec_chunk(shape->types[i]) > most) most = matvec_chunk(shape->types[i]);
    return most * lanes;
}

static bool batch_fits(const device_caps *caps, const matvec_shape *shape, const matvec_choice *c) {
    const uint32_t items = c->rows * (shape->per ? shape->per : 1);
    return c->lanes % c->share == 0 && c->window % window_unit(shape, c->lanes) == 0 &&
           c->wg % c->lanes == 0 && c->wg / c->lanes % c->near == 0 && c->wg % WARP == 0 &&
           c->wg <= caps->workgroup_invocations && items <= BATCH_ITEMS_MAX &&
           c->n_x <= BATCH_MAX && items * c->n_x <= BATCH_SUMS_MAX &&
           batch_bytes(shape, c) <= caps->workgroup_bytes &&
           (!shape->rounded_out || tile_rows_of(c) % HANDED == 0);
}

/* What vectors that come rounded can be multiplied with so: weights that are no fewer than each
 * vector might read for itself. */
static bool batch_wanted(const device_caps *caps, const matvec_shape *shape, uint32_t units) {
    uint64_t weights = 0;
    tile_pairs pairs[TILE_TABLES_MAX];
    if (device_is_processor(caps) || !caps->subgroups ||
        caps->subgroup_size < BATCH_SHARE * BATCH_NEAR || !caps->dot_i8 || shape->exact ||
        shape->k % 32 || matvec_tables(shape->types, shape->n_segment, pairs))
        return false;
    for (uint32_t i = 0; i < shape->n_segment; i++) {
        if (!tile_packed_known(shape->types[i]) || shape->k % matvec_chunk(shape->types[i]))
            return false;
        weights += (uint64_t)shape->rows[i] * shape->k * (shape->per ? shape->per : 1);
    }
    return weights > (uint64_t)(shape->rounded_apart ? ALONE_WEIGHTS : TINY_WEIGHTS) * units;
}

/* Of one size of workgroup: its lanes are `splits` runs of so many. */
static void try_batch(const device_caps *caps, const matvec_shape *shape, uint32_t units,
                      uint32_t splits, uint32_t wg, matvec_choice *out, uint64_t *best) {
    static const uint32_t windows[] = {1, 2, 4, UINT32_MAX}; /* in units */
    const uint32_t lanes = BATCH_SHARE * splits, unit = window_unit(shape, lanes),
                   all = whole_over(shape->k, unit), per = shape->per ? shape->per : 1,
                   turns = whole_over(shape->n_x, BATCH_MAX),
                   n_x = whole_over(whole_over(shape->n_x, turns), 4) * 4;
    for (uint32_t rows = 1; rows * per <= BATCH_ITEMS_MAX; rows *= 2)
        for (uint32_t parts = 1; parts <= 2; parts++) /* of the vectors: more workgroups */
            for (size_t i = 0; i < sizeof windows / sizeof *windows; i++) {
                const matvec_choice c = {.x = MATVEC_COPIED,
                                         .wg = wg,
                                         .lanes = lanes,
                                         .rows = rows,
                                         .n_x = whole_over(n_x / parts, 4) * 4,
                                         .depth = 1,
                                         .share = BATCH_SHARE,
                                         .near = BATCH_NEAR,
                                         .window = whole_least(windows[i], all) * unit,
                                         .span = tile_span(caps),
                                         .subgroups = true};
                if (!batch_fits(caps, shape, &c)) continue;
                const uint64_t guess = batch_clocks(shape, units, &c);
                if (guess >= *best) continue;
                *best = guess;
                *out = c;
            }
}

/* What is asked for; form->depth: units of a window. */
static bool take_batch(const device_caps *caps, const matvec_shape *shape, matvec_choice *c) {
    const lower_form *form = shape->form;
    if (form->wg) c->wg = form->wg;
    if (form->lanes) c->lanes = form->lanes;
    if (form->rows) c->rows = form->rows;
    if (form->groups) c->groups = form->groups;
    if (form->n_x) c->n_x = form->n_x;
    const uint32_t unit = window_unit(shape, c->lanes);
    if (form->depth || c->window % unit)
        c->window = whole_least(form->depth ? form->depth : 1, whole_over(shape->k, unit)) * unit;
    return batch_fits(caps, shape, c);
}

/* Vectors that come rounded: the form that is guessed to be fastest. */
static bool choose_batch(const device_caps *caps, const matvec_shape *shape, matvec_choice *out) {
    static const uint32_t splits[] = {1, 2, 3, 4, 6, 8, 12, 16},
                          sizes[] = {256, 288, 320, 384, 480, 512};
    const uint32_t units = tile_units(caps);
    uint64_t best = UINT64_MAX;
    if (!batch_wanted(caps, shape, units)) return false;
    for (size_t i = 0; i < sizeof splits / sizeof *splits; i++)
        for (size_t j = 0; j < sizeof sizes / sizeof *sizes; j++)
            if (sizes[j] % splits[i] == 0)
                try_batch(caps, shape, units, splits[i], sizes[j], out, &best);
    if (best == UINT64_MAX) return false;
    /* more tiles than stay on the device at a time: the workgroups walk them */
    out->groups = units * (REGISTERS / 160 / out->wg ? REGISTERS / 160 / out->wg : 1);
    return !shape->form || take_batch(caps, shape, out);
}

bool tile_matvec_choose(const device_caps *caps, const matvec_shape *shape, matvec_choice *out) {
    if (shape->rounded_in && shape->n_x > 1) return choose_batch(caps, shape, out);
    if (choose(caps, shape, out)) return true;
    if (!shape->form || !shape->form->tuned) return false;
    matvec_shape plain = *shape;
    plain.form = NULL;
    return choose(caps, &plain, out);
}
