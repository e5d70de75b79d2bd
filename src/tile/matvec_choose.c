/* matvec_choose.c - the form of a generated product with few vectors on GPUs.
 *
 * Numbers of the choice follow from one thought, as in kernels/lower/matvec.c: a matvec is as fast
 * as the bytes that it has in flight. */
#include "tile/matvec_inside.h"

enum {
    WG = 256,
    LONG_WG = 512, /* where every workgroup rounds a long vector: fewer, larger ones */
    LONG_K = 4096,
    WORKED_LONG_K = 2047,
    WORDY = 12,          /* words of a chunk: more leave a lane fewer registers */
    THIN = 9,            /* words of a chunk: fewer leave room for several */
    THIN_FLOATS = 5,     /* that become f32, which take registers too */
    FEW = 16,            /* that part of the lanes that a device should have */
    SMALL_WG = 128,      /* a small matrix: more units have a part of it */
    SMALL_ROWS = 8192,   /* behind a prologue, at most: more lanes, which make it sooner */
    LANES_A_UNIT = 1024, /* that a compute unit should have */
    UNITS_UNKNOWN = 128,
    LANES_MIN = 8,
    LANES_MANY = 16, /* with several vectors, which a workgroup rounds for all its rows */
    RAW_MAX = 64,    /* words that a lane has under way */
    HANDED = 32,     /* results of a block that is rounded */
    SUMS_MAX = 16
};

uint32_t matvec_chunk(base_type type) {
    return tile_packed_known(type) ? tile_packed_chunk(type) : tile_weight_chunk(type);
}

uint32_t matvec_raw_words(base_type type) {
    uint8_t widths[TILE_RAW_MAX];
    uint32_t sum = 0;
    const uint32_t n = tile_packed_known(type) ? tile_packed_widths(type, widths) : 0;
    for (uint32_t i = 0; i < n; i++) sum += widths[i];
    return sum;
}

void matvec_layout(matvec_x x, uint32_t k, uint32_t *unit, uint32_t *half, uint32_t *second,
                   uint32_t *vector) {
    const uint32_t fours = matvec_over(k, 64), odd = fours | 1; /* of 64 elements */
    if (x == MATVEC_INT8) { /* neighbouring lanes read neighbouring fours: different banks */
        *unit = 0;
        *half = odd;
        *second = (2 * odd + 3) / 8 * 8 + 4;
        *vector = *second + *half + fours;
    } else {
        *unit = odd;
        *half = 4 * odd;
        *second = 8 * odd;
        *vector = 16 * odd;
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

static uint32_t power_up(uint32_t n) {
    uint32_t p = 1;
    while (p < n && p < 1u << 30) p *= 2;
    return p;
}

static uint32_t least(uint32_t a, uint32_t b) {
    return a < b ? a : b;
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
    if (c->x == MATVEC_INT8) bytes += (uint64_t)matvec_over(k, 64) * 32 * c->n_x;
    if (c->x == MATVEC_INT8 && tables) bytes += (uint64_t)vector * 16 * c->n_x;
    if (!c->subgroups) bytes += 4ull * c->wg * c->rows * c->n_x * per;
    if (shape->rounded_out) bytes += 4ull * tile_rows_of(c) * c->n_x;
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
    const uint32_t most = caps->workgroup_invocations ? caps->workgroup_invocations : 256;
    return power_up(c->wg) == c->wg && power_up(c->lanes) == c->lanes && c->wg <= most &&
           c->wg >= (c->span ? c->span : 1) && c->lanes <= (c->subgroups ? c->span : c->wg) &&
           c->n_x <= TILE_VECTORS_MAX;
}

/* Turns of lanes without a chunk. */
static uint32_t idle_of(uint32_t n, uint32_t lanes) {
    return matvec_over(n, lanes) * lanes - n;
}

static bool choose(const device_caps *caps, const matvec_shape *shape, matvec_choice *out) {
    const uint32_t units = caps->compute_units ? caps->compute_units : UNITS_UNKNOWN,
                   per = shape->per ? shape->per : 1;
    const uint32_t most = caps->workgroup_bytes ? caps->workgroup_bytes : 16384;
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
        chunk = least(chunk, matvec_chunk(type));
        packed = packed && tile_packed_known(type);
        const uint32_t loaded = tile_packed_known(type) ? tile_packed_words(type) : 0;
        if (loaded > words) words = loaded;
        rows += (uint64_t)shape->rows[i] * per;
    }
    tile_pairs pairs[TILE_TABLES_MAX];
    const uint32_t n = shape->k / chunk,
                   tables = matvec_tables(shape->types, shape->n_segment, pairs);
    const uint64_t wanted = (uint64_t)units * LANES_A_UNIT;
    c->copies = !caps->permutes_bytes;
    c->subgroups = caps->subgroups && caps->subgroup_size >= LANES_MIN;
    c->span = !c->subgroups ? 0 : caps->vendor == 0x8086 ? 8 : least(caps->subgroup_size, 32);
    c->x = c->subgroups && caps->dot_i8 && packed && !shape->exact ? MATVEC_INT8 : MATVEC_SHARED;
    c->n_x = shape->n_x == 1 ? 1 : least(power_up(shape->n_x), 4);
    if (shape->rounded_in && c->x == MATVEC_INT8 && !tables) c->x = MATVEC_QUANTISED;
    c->lanes = least(c->subgroups ? c->span : LANES_MIN, power_up(n));
    if (shape->n_x > 1) c->lanes = least(c->lanes, LANES_MANY);
    /* Few rows: rather lanes without a chunk than units without work. */
    const bool small = shape->has_prologue && c->n_x == 1 && rows <= SMALL_ROWS;
    const uint32_t fewest = small                           ? least(c->lanes, LANES_MANY)
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
    const bool is_long = shape->k > (shape->has_prologue ? WORKED_LONG_K : LONG_K) && c->n_x == 1 &&
                         per == 1 && !many && !shape->rounded_in;
    c->rows = !many ? 1 : wordy || thin ? 2 : 4;
    const uint32_t all = matvec_over(n, c->lanes),
                   room = words ? RAW_MAX / (words * c->rows) : MATVEC_DEPTH_MAX;
    const bool has_long = shape->has_prologue && shape->k > WORKED_LONG_K;
    const uint32_t invocations = caps->workgroup_invocations ? caps->workgroup_invocations : 256;
    c->wg = least(is_long || small || (many && wordy)    ? LONG_WG
                  : shape->rounded_in && shape->n_x == 1 ? SMALL_WG
                                                         : WG,
                  invocations);
    /* Where the vectors are read beside the weights, or a lane has made much of one, more lanes
     * hide more than more loads of each. */
    const bool shallow = (many && !thin) || per > 1 || c->x == MATVEC_QUANTISED ||
                         (shape->has_prologue && shape->k / 4 > (small ? 1u : 2u) * c->wg);
    c->depth = matvec_over(
        all, matvec_over(all, shallow ? 1 : least(least(all, room ? room : 1), MATVEC_DEPTH_MAX)));
    while (!is_long && !shape->has_prologue && c->wg > SMALL_WG &&
           rows / per * c->lanes / c->wg < units / 2)
        c->wg /= 2;
    c->groups = (has_long || small || (many && wordy) ? 2
                 : c->x == MATVEC_QUANTISED           ? 8
                                                      : 4) *
                units;
    if (shape->form && !take_form(caps, shape->form, c)) return false;
    if (c->rows * per > TILE_ROWS_MAX || c->rows * per * c->n_x > TILE_SUMS_MAX) return false;
    /* blocks of results that are handed on lie in one tile */
    while (shape->rounded_out && tile_rows_of(c) % HANDED != 0) {
        if (shape->form) return false;
        if (2 * c->wg <= LONG_WG && 2 * c->wg <= invocations) c->wg *= 2;
        else if (c->lanes > 1) c->lanes /= 2;
        else return false;
    }
    while (!shape->form && c->n_x > 1 &&
           (memory_of(c, shape, tables) > most || c->rows * per * c->n_x > SUMS_MAX))
        c->n_x /= 2;
    if (memory_of(c, shape, tables) > most && !shape->has_prologue) c->x = MATVEC_DIRECT;
    if ((shape->rounded_in && c->x != MATVEC_QUANTISED) ||
        (shape->rounded_out && (!c->subgroups || !caps->dot_i8 || shape->exact)))
        return false;
    for (matvec_choice more = *c; more.copies && more.copies < TILE_COPIES_MAX;) {
        more.copies *= 2;
        if (memory_of(&more, shape, tables) <= most) c->copies = more.copies;
    }
    const uint32_t each = matvec_over(shape->k / 4, c->wg);
    return memory_of(c, shape, tables) <= most &&
           (!shape->has_prologue || (each <= MATVEC_EACH_MAX && shape->k % 16 == 0));
}

bool tile_matvec_choose(const device_caps *caps, const matvec_shape *shape, matvec_choice *out) {
    if (choose(caps, shape, out)) return true;
    if (!shape->form || !shape->form->tuned) return false;
    matvec_shape plain = *shape;
    plain.form = NULL;
    return choose(caps, &plain, out);
}
