/* lower_ir_matvec.c - see lower_ir_matvec.h. The form is chosen here, and the body written.
 *
 * Numbers of the choice follow from one thought, as in lower_matvec.c: a matvec is as fast as the bytes that it has in flight. */
#include "graph/lower_ir_matvec.h"

enum {
    WG = 256,
    LONG_WG = 512,         /* where every workgroup rounds a long vector: fewer, larger ones */
    LONG_K = 4096,
    WORKED_LONG_K = 2047,
    WORDY = 12,            /* words of a chunk: more leave a lane fewer registers */
    THIN = 9,              /* words of a chunk: fewer leave room for several */
    THIN_FLOATS = 5,       /* that become f32, which take registers too */
    FEW = 16,              /* that part of the lanes that a device should have */
    SMALL_WG = 128,        /* a small matrix: more units have a part of it */
    LANES_A_UNIT = 1024,   /* that a compute unit should have */
    UNITS_UNKNOWN = 128,
    LANES_LEAST = 8,
    LANES_MANY = 16,       /* with several vectors, which a workgroup rounds for all its rows */
    RAW_MOST = 64,         /* words that a lane has under way */
    DEPTH_MOST = 8,
    SUMS_MOST = 16,
    EACH_UNROLLED = 4,     /* fours of a lane that are written out */
    EACH_MOST = 16
};

/* ---- the form ---------------------------------------------------------------------------------------------------- */

static uint32_t power_up(uint32_t n) {
    uint32_t p = 1;
    while (p < n && p < 1u << 30) p *= 2;
    return p;
}

static uint32_t least(uint32_t a, uint32_t b) {
    return a < b ? a : b;
}

static uint32_t chunk_of(base_type type) {
    return lower_ir_packed_known(type) ? lower_ir_packed_chunk(type) : base_type_is_quantised(type) ? 32 : LOWER_IR_RUN;
}

static uint32_t raw_words(base_type type) {
    uint8_t widths[LOWER_IR_RAW_MAX];
    uint32_t sum = 0;
    const uint32_t n = lower_ir_packed_known(type) ? lower_ir_packed_widths(type, widths) : 0;
    for (uint32_t i = 0; i < n; i++) sum += widths[i];
    return sum;
}

/* Do products with int8 vectors want the sums of each 16 numbers? */
static bool needs_halves(base_type type) {
    return lower_ir_packed_zero(type) || type == TYPE_Q2_K;
}

static uint32_t over(uint32_t n, uint32_t by) {
    return (n + by - 1) / by;
}

static void layout_of(matvec_x x, uint32_t k, uint32_t *unit, uint32_t *half, uint32_t *second, uint32_t *vector) {
    const uint32_t fours = over(k, 64), odd = fours | 1; /* of 64 elements */
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
static uint32_t tables_of(const base_type *types, uint32_t n, lower_ir_pairs pairs[LOWER_IR_TABLES_MAX]) {
    uint32_t count = 0;
    for (uint32_t i = 0; i < n; i++) {
        const uint32_t *table = lower_ir_weight_table(types[i]);
        bool known = !table;
        for (uint32_t j = 0; j < count; j++) known = known || pairs[j].table == table;
        if (!known) pairs[count++].table = table;
    }
    return count;
}

static uint64_t memory_of(const matvec_choice *c, uint32_t k, uint32_t per, uint32_t tables) {
    uint32_t unit, half, second, vector;
    layout_of(c->x, k, &unit, &half, &second, &vector);
    uint64_t bytes = c->x == MATVEC_DIRECT ? 0 : (uint64_t)vector * 16 * c->n_x;
    if (c->x == MATVEC_INT8) bytes += (uint64_t)over(k, 64) * 32 * c->n_x; /* scales and half sums */
    if (c->x == MATVEC_INT8 && tables) bytes += (uint64_t)vector * 16 * c->n_x;
    if (!c->subgroups) bytes += 4ull * c->wg * c->rows * c->n_x * per;
    return bytes + 8ull * c->wg / (c->subgroups ? c->span : 1) + (uint64_t)tables * c->copies * LOWER_IR_PAIRS_BYTES;
}

static bool take_form(const device_caps *caps, const lower_form *form, matvec_choice *c) {
    if (form->wg) c->wg = form->wg;
    if (form->lanes) c->lanes = form->lanes;
    if (form->rows) c->rows = form->rows;
    if (form->depth) c->depth = form->depth;
    if (form->groups) c->groups = form->groups;
    if (form->n_x) c->n_x = form->n_x;
    const uint32_t most = caps->workgroup_invocations ? caps->workgroup_invocations : 256;
    return power_up(c->wg) == c->wg && power_up(c->lanes) == c->lanes && c->wg <= most && c->wg >= (c->span ? c->span : 1) &&
           c->lanes <= (c->subgroups ? c->span : c->wg) && c->n_x <= LOWER_IR_VECTORS_MAX;
}

/* Turns of lanes without a chunk. */
static uint32_t idle_of(uint32_t n, uint32_t lanes) {
    return over(n, lanes) * lanes - n;
}

static bool choose(const device_caps *caps, const matvec_shape *shape, matvec_choice *out) {
    const uint32_t units = caps->compute_units ? caps->compute_units : UNITS_UNKNOWN, per = shape->per ? shape->per : 1;
    const uint32_t most = caps->workgroup_bytes ? caps->workgroup_bytes : 16384;
    matvec_choice *c = out;
    uint32_t chunk = UINT32_MAX, words = 0, weave = 0;
    uint64_t rows = 0;
    bool packed = shape->k % 32 == 0;
    *c = (matvec_choice){0};
    if (device_is_processor(caps)) return false;
    for (uint32_t i = 0; i < shape->n_segment; i++) {
        const base_type type = shape->types[i];
        if (!lower_ir_weight_known(type) || shape->k % chunk_of(type)) return false;
        const uint32_t own = lower_ir_weight_weave(type);
        if (own && weave && own != weave) return false; /* the vectors are woven one way */
        if (own) weave = own;
        chunk = least(chunk, chunk_of(type));
        packed = packed && lower_ir_packed_known(type);
        if (raw_words(type) > words) words = raw_words(type);
        rows += (uint64_t)shape->rows[i] * per;
    }
    lower_ir_pairs pairs[LOWER_IR_TABLES_MAX];
    const uint32_t n = shape->k / chunk, tables = tables_of(shape->types, shape->n_segment, pairs);
    const uint64_t wanted = (uint64_t)units * LANES_A_UNIT;
    c->copies = !caps->permutes_bytes;
    c->subgroups = caps->subgroups && caps->subgroup_size >= LANES_LEAST;
    c->span = !c->subgroups ? 0 : caps->vendor == 0x8086 ? 8 : least(caps->subgroup_size, 32);
    c->x = c->subgroups && caps->dot_i8 && packed && !shape->exact ? MATVEC_INT8 : MATVEC_SHARED;
    c->lanes = least(c->subgroups ? c->span : LANES_LEAST, power_up(n));
    if (shape->n_x > 1) c->lanes = least(c->lanes, LANES_MANY);
    /* Few rows: rather lanes without a chunk than units without work. */
    const uint32_t fewest = idle_of(n, LANES_LEAST) > n / 4 ? LANES_LEAST / 2 : LANES_LEAST;
    while (c->lanes > fewest && (rows * c->lanes > 2 * wanted || (idle_of(n, c->lanes) > n / 4 && rows * c->lanes > wanted / FEW))) c->lanes /= 2;
    c->n_x = shape->n_x == 1 ? 1 : least(power_up(shape->n_x), 4);
    /* Many rows: several at once share what is read of the vectors; else a row's loads are under way together. */
    const bool many = c->n_x == 1 && per == 1 && rows * c->lanes > 8 * wanted, wordy = words > WORDY;
    const bool thin = words <= (c->x == MATVEC_INT8 ? THIN : THIN_FLOATS) && !(tables && c->copies);
    const bool is_long = shape->k > (shape->worked ? WORKED_LONG_K : LONG_K) && c->n_x == 1 && per == 1 && !many;
    c->rows = !many ? 1 : wordy || thin ? 2 : 4;
    const uint32_t all = over(n, c->lanes), room = words ? RAW_MOST / (words * c->rows) : DEPTH_MOST;
    c->depth = over(all, over(all, (many && !thin) || per > 1 ? 1 : least(least(all, room ? room : 1), DEPTH_MOST)));
    c->wg = least(is_long || (many && wordy) ? LONG_WG : WG, caps->workgroup_invocations ? caps->workgroup_invocations : 256);
    while (!is_long && !shape->worked && c->wg > SMALL_WG && rows / per * c->lanes / c->wg < units / 2) c->wg /= 2;
    c->groups = (shape->worked || (many && wordy) ? 2 : 4) * units;
    if (shape->form && !take_form(caps, shape->form, c)) return false;
    if (c->rows * per > LOWER_IR_ROWS_MAX || c->rows * per * c->n_x > LOWER_IR_SUMS_MAX) return false;
    while (!shape->form && c->n_x > 1 && (memory_of(c, shape->k, per, tables) > most || c->rows * per * c->n_x > SUMS_MOST)) c->n_x /= 2;
    if (memory_of(c, shape->k, per, tables) > most && !shape->worked) c->x = MATVEC_DIRECT;
    for (matvec_choice more = *c; more.copies && more.copies < LOWER_IR_COPIES_MOST;) {
        more.copies *= 2;
        if (memory_of(&more, shape->k, per, tables) <= most) c->copies = more.copies;
    }
    const uint32_t each = over(shape->k / 4, c->wg);
    return memory_of(c, shape->k, per, tables) <= most && (!shape->worked || (each <= EACH_MOST && shape->k % 16 == 0));
}

bool lower_ir_matvec_choose(const device_caps *caps, const matvec_shape *shape, matvec_choice *out) {
    if (choose(caps, shape, out)) return true;
    if (!shape->form || !shape->form->tuned) return false;
    matvec_shape plain = *shape;
    plain.form = NULL;
    return choose(caps, &plain, out);
}

/* ---- memory ------------------------------------------------------------------------------------------------------ */

void lower_ir_matvec_begin(lower_ir_matvec *m, lowering *l, const graph_node *node, const char *name, const matvec_choice *c, uint32_t k) {
    *m = (lower_ir_matvec){.c = *c, .length = k};
    lower_form_chosen(l, c);
    lower_ir_begin(&m->k, l, node, name, c->wg);
    ir_builder *b = m->k.b;
    if (c->subgroups) ir_subgroup(b, c->span);
    layout_of(c->x, k, &m->unit, &m->half, &m->second, &m->vector);
    m->lane = lower_ir_rest(&m->k, ir_local(b, 0), c->lanes);
    m->slot = lower_ir_over(&m->k, ir_local(b, 0), c->lanes);
}

lower_ir_weight lower_ir_matvec_weight(lower_ir_matvec *m, base_type type, ir_memory from) {
    lower_ir_weight w;
    lower_ir_weight_made(&w, &m->k, type, m->length, from);
    return w;
}

void lower_ir_matvec_open_sums(lower_ir_matvec *m) {
    m->parts = ir_workgroup(m->k.b, IR_F32, m->c.subgroups ? 2 * m->c.wg / m->c.span : m->c.wg);
}

void lower_ir_matvec_open(lower_ir_matvec *m, const base_type *types, uint32_t n, uint32_t rows) {
    ir_builder *b = m->k.b;
    const matvec_choice *c = &m->c;
    for (uint32_t i = 0; i < n; i++)
        if (raw_words(types[i]) * rows * c->depth > m->n_ahead) m->n_ahead = raw_words(types[i]) * rows * c->depth;
    m->n_ahead = (m->n_ahead + 3) / 4 * 4;
    m->sums = ir_register(b, IR_F32, rows * c->n_x);
    if (m->n_ahead) m->ahead = ir_register(b, IR_U32, m->n_ahead);
    if (c->x != MATVEC_DIRECT) m->x = ir_workgroup(b, c->x == MATVEC_INT8 ? IR_U32 : IR_F32, m->vector * 4 * c->n_x);
    if (c->x == MATVEC_INT8) m->scales = ir_workgroup(b, IR_F32, over(m->length, 64) * 4 * c->n_x);
    for (uint32_t i = 0; i < n && c->x == MATVEC_INT8; i++) {
        const uint32_t apart = lower_ir_weight_weave(types[i]);
        if (apart) m->weave = apart; /* the same of all that have one */
    }
    for (uint32_t i = 0; i < n; i++) m->with_halves = m->with_halves || (c->x == MATVEC_INT8 && needs_halves(types[i]));
    if (m->with_halves) m->halves = ir_workgroup(b, IR_I32, over(m->length, 64) * 4 * c->n_x);
    if (!c->subgroups) m->joined = ir_workgroup(b, IR_F32, c->wg * rows * c->n_x);
    lower_ir_matvec_open_sums(m);
    const uint32_t tables = tables_of(types, n, m->pairs);
    if (m->weave) m->woven = ir_workgroup(b, IR_U32, m->vector * 4 * c->n_x);
    m->n_pairs = c->copies ? tables : 0;
    for (uint32_t i = 0; i < m->n_pairs; i++) {
        m->pairs[i].copies = c->copies;
        m->pairs[i].memory = ir_workgroup(b, IR_U32, LOWER_IR_PAIRS_BYTES / 4 * c->copies);
        lower_ir_pairs_fill(&m->k, &m->pairs[i]);
    }
    if (m->n_pairs) ir_barrier(b);
}

/* ---- the vectors --------------------------------------------------------------------------------------------------- */

ir_id lower_ir_matvec_sum(lower_ir_matvec *m, ir_id x) {
    lower_ir *k = &m->k;
    ir_builder *b = k->b;
    if (!m->c.subgroups) return lower_ir_reduce(k, IR_ADD, x, m->parts);
    /* Calls take turns with two halves: who writes one again has passed the barrier of the call between. */
    const uint32_t runs = m->c.wg / m->c.span, first = m->sum_turn++ % 2 * runs;
    ir_id sum = ir_subgroup_add(b, x);
    ir_if(b, ir_eq(b, ir_subgroup_lane(b), ir_u32(b, 0)));
    ir_store(b, m->parts, lower_ir_plus(k, lower_ir_over(k, ir_local(b, 0), m->c.span), first), sum);
    ir_end(b);
    ir_barrier(b);
    sum = ir_load(b, m->parts, ir_u32(b, first), 1);
    for (uint32_t i = 1; i < runs; i++) sum = ir_add(b, sum, ir_load(b, m->parts, ir_u32(b, first + i), 1));
    return sum;
}

uint32_t lower_ir_matvec_each(const lower_ir_matvec *m) {
    return over(m->length / 4, m->c.wg);
}

ir_id lower_ir_matvec_own(lower_ir_matvec *m, uint32_t e) {
    return lower_ir_plus(&m->k, ir_local(m->k.b, 0), e * m->c.wg);
}

/* Where 16 elements of a vector lie, in 16 bytes. */
static ir_id place_of(lower_ir_matvec *m, uint32_t v, ir_id four, ir_id second, ir_id half) {
    lower_ir *k = &m->k;
    ir_id at = ir_add(k->b, lower_ir_times(k, half, m->half), lower_ir_times(k, second, m->second));
    return lower_ir_plus(k, ir_add(k->b, four, at), v * m->vector);
}

static ir_id largest_of(lower_ir *k, ir_id x) {
    return lower_ir_max_vector(k, ir_abs(k->b, x));
}

/* The word that is woven of this lane's and that of the lane `weave` elements on or back; where it goes. */
static ir_id woven_of(lower_ir_matvec *m, uint32_t v, ir_id u, ir_id word, ir_id *at) {
    lower_ir *k = &m->k;
    ir_builder *b = k->b;
    const uint32_t span = m->weave / 4;
    ir_id later = lower_ir_rest(k, lower_ir_over(k, u, span), 2), up = lower_ir_times(k, later, 16), is_later = ir_ne(b, later, ir_u32(b, 0));
    ir_id other = ir_subgroup_shuffle_xor(b, word, span);
    ir_id first = ir_shr(b, ir_select(b, is_later, other, word), up), second = ir_shr(b, ir_select(b, is_later, word, other), up);
    ir_id low = ir_or(b, lower_ir_and(k, first, 255), lower_ir_shl(k, lower_ir_and(k, second, 255), 8));
    ir_id high = ir_or(b, lower_ir_shl(k, lower_ir_and(k, first, 0xff00), 8), lower_ir_shl(k, lower_ir_and(k, second, 0xff00), 16));
    ir_id place = ir_add(b, lower_ir_times(k, lower_ir_rest(k, u, span), 2), later); /* of 2 span */
    ir_id half = span == 2 ? lower_ir_rest(k, lower_ir_over(k, u, 4), 2) : lower_ir_over(k, place, 4);
    *at = place_of(m, v, lower_ir_over(k, u, 16), lower_ir_rest(k, lower_ir_over(k, u, 8), 2), half);
    *at = ir_add(b, lower_ir_times(k, *at, 4), lower_ir_rest(k, place, 4));
    return ir_or(b, low, high);
}

/* Four u of vector v, rounded with the 28 numbers that seven neighbouring lanes have. */
static void keep_int8(lower_ir_matvec *m, uint32_t v, ir_id u, ir_id holds, ir_id x) {
    lower_ir *k = &m->k;
    ir_builder *b = k->b;
    ir_id most = largest_of(k, x), sum;
    for (uint32_t mask = 1; mask < 8; mask *= 2) most = ir_max(b, most, ir_subgroup_shuffle_xor(b, most, mask));
    ir_id scale = ir_mul(b, most, ir_f32(b, 1.0f / 127));
    /* smaller ones would overflow */
    ir_id factor = ir_select(b, ir_gt(b, most, ir_f32(b, 1e-30f)), ir_div(b, ir_f32(b, 127), most), ir_f32(b, 0));
    ir_id q = ir_cast(b, IR_I32, ir_round(b, ir_mul(b, x, ir_splat(b, factor, 4))));
    sum = lower_ir_sum_vector(k, q);
    for (uint32_t mask = 1; mask < 4; mask *= 2) sum = ir_add(b, sum, ir_subgroup_shuffle_xor(b, sum, mask));
    ir_id half = sum;
    sum = ir_add(b, sum, ir_subgroup_shuffle_xor(b, sum, 4));
    ir_id bytes = lower_ir_and(k, ir_bitcast(b, IR_U32, 4, q), 255), word = ir_extract(b, bytes, 0);
    for (uint32_t i = 1; i < 4; i++) word = ir_or(b, word, lower_ir_shl(k, ir_extract(b, bytes, i), 8 * i));
    ir_id group = lower_ir_over(k, u, 4);
    ir_id at = place_of(m, v, lower_ir_over(k, u, 16), lower_ir_rest(k, lower_ir_over(k, group, 2), 2), lower_ir_rest(k, group, 2));
    at = ir_add(b, lower_ir_times(k, at, 4), lower_ir_rest(k, u, 4));
    ir_id woven_at = IR_NO_ID, woven = m->weave ? woven_of(m, v, u, word, &woven_at) : IR_NO_ID;
    if (holds != IR_NO_ID) ir_if(b, holds);
    ir_store(b, m->x, at, word);
    if (m->weave) ir_store(b, m->woven, woven_at, woven);
    if (m->with_halves) {
        ir_if(b, ir_eq(b, lower_ir_rest(k, ir_local(b, 0), 4), ir_u32(b, 0)));
        ir_store(b, m->halves, lower_ir_plus(k, group, v * over(m->length, 64) * 4), half);
        ir_end(b);
    }
    ir_if(b, ir_eq(b, lower_ir_rest(k, ir_local(b, 0), 8), ir_u32(b, 0)));
    ir_id both = ir_compose(b, (ir_id[]){scale, ir_mul(b, scale, ir_cast(b, IR_F32, sum))}, 2);
    ir_store(b, m->scales, lower_ir_plus(k, lower_ir_times(k, lower_ir_over(k, u, 8), 2), v * over(m->length, 64) * 4), both);
    ir_end(b);
    if (holds != IR_NO_ID) ir_end(b);
}

static void keep_f32(lower_ir_matvec *m, uint32_t v, ir_id u, ir_id holds, ir_id x) {
    lower_ir *k = &m->k;
    ir_builder *b = k->b;
    ir_id group = lower_ir_over(k, u, 4);
    ir_id at = place_of(m, v, lower_ir_over(k, u, 16), lower_ir_rest(k, lower_ir_over(k, group, 2), 2), lower_ir_rest(k, group, 2));
    at = ir_add(b, at, lower_ir_times(k, lower_ir_rest(k, u, 4), m->unit));
    if (holds != IR_NO_ID) ir_if(b, holds);
    ir_store(b, m->x, lower_ir_times(k, at, 4), x);
    if (holds != IR_NO_ID) ir_end(b);
}

static void keep_apart(lower_ir_matvec *m, uint32_t v, ir_id u, ir_id holds, ir_id x) {
    ir_builder *b = m->k.b;
    (void)v;
    ir_if(b, holds == IR_NO_ID ? m->to_holds : ir_and(b, holds, m->to_holds));
    ir_store(b, m->x_to, ir_add(b, m->to_at, lower_ir_times(&m->k, u, 4)), x);
    ir_end(b);
}

/* n fours from the e-th on, all asked for before the first is used. */
static void fill_some(lower_ir_matvec *m, uint32_t v, uint32_t e, ir_id first, uint32_t n, lower_ir_four *four, void *user) {
    lower_ir *k = &m->k;
    ir_builder *b = k->b;
    const uint32_t fours = m->length / 4;
    ir_id u[EACH_MOST], x[EACH_MOST], holds[EACH_MOST];
    for (uint32_t i = 0; i < n; i++) {
        const bool whole = first == IR_NO_ID && (e + i + 1) * m->c.wg <= fours;
        u[i] = first == IR_NO_ID ? lower_ir_matvec_own(m, e + i) : lower_ir_plus(k, first, i * m->c.wg);
        holds[i] = whole ? IR_NO_ID : ir_lt(b, u[i], ir_u32(b, fours));
        x[i] = four(user, v, e + i, whole ? u[i] : ir_min(b, u[i], ir_u32(b, fours - 1)));
    }
    for (uint32_t i = 0; i < n; i++) (m->x_keep ? keep_apart : m->c.x == MATVEC_INT8 ? keep_int8 : keep_f32)(m, v, u[i], holds[i], x[i]);
}

void lower_ir_matvec_fill_vector(lower_ir_matvec *m, uint32_t v, bool one_by_one, lower_ir_four *four, void *user) {
    ir_builder *b = m->k.b;
    const uint32_t each = lower_ir_matvec_each(m);
    if (one_by_one || each <= EACH_UNROLLED) {
        fill_some(m, v, 0, IR_NO_ID, each, four, user);
        return;
    }
    const uint32_t wg = m->c.wg, step = EACH_UNROLLED * wg;
    ir_id base = ir_loop(b, ir_u32(b, 0), ir_u32(b, over(each, EACH_UNROLLED) * step), ir_u32(b, step));
    fill_some(m, v, 0, ir_add(b, base, ir_local(b, 0)), EACH_UNROLLED, four, user);
    ir_end(b);
}

static void x_floats(lower_ir_matvec *m, uint32_t v, const lower_ir_part *p, uint32_t run, ir_id x[4]) {
    lower_ir *k = &m->k;
    ir_builder *b = k->b;
    ir_id half = run ? ir_u32(b, 1) : p->half;
    if (m->c.x == MATVEC_DIRECT) {
        ir_id at = ir_add(b, lower_ir_times(k, p->four, 64), ir_add(b, lower_ir_times(k, p->second, 32), lower_ir_times(k, half, 16)));
        at = ir_add(b, at, m->x_at[v]);
        for (uint32_t i = 0; i < 4; i++) x[i] = ir_load(b, m->x_from, lower_ir_plus(k, at, 4 * i), 4);
        return;
    }
    ir_id at = lower_ir_times(k, place_of(m, v, p->four, p->second, half), 4);
    for (uint32_t i = 0; i < 4; i++) x[i] = ir_load(b, m->x, lower_ir_plus(k, at, 4 * i * m->unit), 4);
}

/* ---- a chunk ------------------------------------------------------------------------------------------------------- */

static void add_to(lower_ir_matvec *m, uint32_t row, uint32_t v, ir_id x) {
    ir_builder *b = m->k.b;
    ir_id at = ir_u32(b, row * m->c.n_x + v);
    ir_store(b, m->sums, at, ir_add(b, ir_load(b, m->sums, at, 1), x));
}

static ir_id dot(ir_builder *b, ir_id x, ir_id y, ir_id sum) { /* 16 bytes */
    for (uint32_t i = 0; i < 4; i++) sum = ir_dot4_i8(b, ir_extract(b, x, i), ir_extract(b, y, i), sum);
    return sum;
}

static ir_id plus(ir_builder *b, ir_id x, ir_id sum) { /* sum IR_NO_ID: 0 */
    return sum == IR_NO_ID ? x : ir_add(b, x, sum);
}

static ir_id plus_times(ir_builder *b, ir_id x, ir_id y, ir_id sum) { /* y IR_NO_ID: 1 */
    return y == IR_NO_ID ? plus(b, x, sum) : sum == IR_NO_ID ? ir_mul(b, x, y) : ir_fma(b, x, y, sum);
}

/* Runs from `first` on that share factors. */
static uint32_t alike(const lower_ir_part *p, uint32_t first) {
    return first + 1 < p->n_run && p->scale[0] == p->scale[1] && p->least[0] == p->least[1] ? 2 : 1;
}

/* The sums of a part's vector, as whole numbers: of its runs. */
static void half_sums(lower_ir_matvec *m, uint32_t v, const lower_ir_part *p, ir_id block, ir_id sums[2]) {
    lower_ir *k = &m->k;
    ir_builder *b = k->b;
    ir_id at = lower_ir_plus(k, lower_ir_times(k, block, 2), v * over(m->length, 64) * 4);
    ir_id own = p->n_run == 2 ? ir_load(b, m->halves, at, 2) : ir_load(b, m->halves, ir_add(b, at, p->half), 1);
    for (uint32_t r = 0; r < p->n_run; r++) sums[r] = p->n_run == 2 ? ir_extract(b, own, r) : own;
}

/* Part i of every row's chunk with vector v, which is int8: added to what stands by d and by m. */
static void multiply_int8(lower_ir_matvec *m, base_type type, uint32_t rows, lower_ir_opened *opened, uint32_t i, uint32_t v, ir_id *by_d, ir_id *by_m) {
    lower_ir *k = &m->k;
    ir_builder *b = k->b;
    const lower_ir_part *p = &opened[0].parts[i];
    const uint32_t zero = lower_ir_packed_zero(type) << p->up;
    const bool least = opened[0].m != IR_NO_ID, apart = alike(p, 0) < p->n_run;
    ir_id block = ir_add(b, lower_ir_times(k, p->four, 2), p->second), x[2], sums[2];
    ir_id own = ir_load(b, m->scales, lower_ir_plus(k, lower_ir_times(k, block, 2), v * over(m->length, 64) * 4), 2), scale = ir_extract(b, own, 0);
    ir_id moved = p->up ? ir_mul(b, scale, ir_f32(b, 1.0f / (float)(1u << p->up))) : scale;
    for (uint32_t r = 0; r < p->n_run; r++)
        x[r] = ir_load(b, lower_ir_weight_table(type) ? m->woven : m->x, lower_ir_times(k, place_of(m, v, p->four, p->second, r ? ir_u32(b, 1) : p->half), 4), 4);
    if (needs_halves(type)) half_sums(m, v, p, block, sums);
    for (uint32_t row = 0; row < rows; row++) {
        const lower_ir_part *w = &opened[row].parts[i];
        ir_id total = IR_NO_ID, below = IR_NO_ID;
        for (uint32_t r = 0, n; r < w->n_run; r += n) {
            ir_id sum = ir_i32(b, 0);
            n = alike(w, r);
            for (uint32_t j = r; zero && j < r + n; j++) sum = ir_sub(b, sum, ir_mul(b, sums[j], ir_i32(b, (int32_t)zero)));
            for (uint32_t j = r; j < r + n; j++) sum = dot(b, w->run[j], x[j], sum);
            ir_id less = ir_i32(b, 0);
            for (uint32_t j = r; j < r + n && w->less[j] != IR_NO_ID; j++) less = dot(b, w->less[j], x[j], less);
            if (w->less[r] != IR_NO_ID) sum = ir_sub(b, sum, less);
            total = plus_times(b, opened[row].fractions ? ir_cast(b, IR_F32, sum) : sum, w->scale[r], total);
            if (least && apart) below = plus_times(b, sums[r], w->least[r], below);
        }
        by_d[row] = plus_times(b, ir_cast(b, IR_F32, total), moved, by_d[row]);
        if (!least) continue;
        ir_id factor = apart ? ir_cast(b, IR_F32, below) : w->least[0] == IR_NO_ID ? IR_NO_ID : ir_cast(b, IR_F32, w->least[0]);
        by_m[row] = plus_times(b, apart ? scale : ir_extract(b, own, 1), factor, by_m[row]);
    }
}

static void add_int8(lower_ir_matvec *m, base_type type, uint32_t rows, lower_ir_opened *opened) {
    ir_builder *b = m->k.b;
    for (uint32_t v = 0; v < m->c.n_x; v++) {
        ir_id by_d[LOWER_IR_ROWS_MAX], by_m[LOWER_IR_ROWS_MAX];
        for (uint32_t row = 0; row < rows; row++) by_d[row] = by_m[row] = IR_NO_ID;
        for (uint32_t i = 0; i < opened[0].n; i++) multiply_int8(m, type, rows, opened, i, v, by_d, by_m);
        for (uint32_t row = 0; row < rows; row++) {
            ir_id at = ir_u32(b, row * m->c.n_x + v), sum = ir_fma(b, opened[row].d, by_d[row], ir_load(b, m->sums, at, 1));
            ir_store(b, m->sums, at, by_m[row] == IR_NO_ID ? sum : ir_fma(b, opened[row].m, by_m[row], sum));
        }
    }
}

/* x - y, byte by byte. */
static ir_id bytes_less(lower_ir *k, ir_id x, ir_id y) {
    ir_builder *b = k->b;
    ir_id tops = ir_bits(b, IR_U32, 4, 0x80808080u), low = ir_sub(b, ir_or(b, x, tops), lower_ir_and(k, y, 0x7f7f7f7fu));
    return ir_xor(b, low, ir_and(b, ir_xor(b, ir_xor(b, x, y), tops), tops));
}

/* 16 bytes less `zero` as f32, without conversions: 2^23 + byte is a float whose lower bits are the byte's. */
static void floats_of(lower_ir *k, ir_id bytes, bool is_signed, uint32_t zero, ir_id x[4]) {
    ir_builder *b = k->b;
    if (is_signed) bytes = ir_xor(b, bytes, ir_bits(b, IR_U32, 4, 0x80808080u)), zero = 128;
    ir_id shifts = lower_ir_ramp(k, 4, 0, 8), places = lower_ir_ramp(k, 4, 0x7440, 1), bias = ir_number(b, IR_F32, 4, 8388608 + zero);
    ir_id above = ir_bits(b, IR_U32, 4, 0x4b000000u);
    for (uint32_t i = 0; i < 4; i++) {
        ir_id word = ir_splat(b, ir_extract(b, bytes, i), 4);
        ir_id whole = k->l->caps->permutes_bytes ? ir_permute_bytes(b, word, above, places) : ir_or(b, lower_ir_and(k, ir_shr(b, word, shifts), 255), above);
        x[i] = ir_sub(b, ir_bitcast(b, IR_F32, 4, whole), bias);
    }
}

static ir_id dot_floats(lower_ir *k, const ir_id x[4], const ir_id y[4], ir_id sum) { /* f32x4 */
    for (uint32_t i = 0; i < 4; i++) sum = sum == IR_NO_ID ? ir_mul(k->b, x[i], y[i]) : ir_fma(k->b, x[i], y[i], sum);
    return sum;
}

/* As runs of types with tables are. */
static void weave(ir_builder *b, uint32_t apart, ir_id x[2][4]) {
    ir_id woven[8];
    for (uint32_t i = 0; i < 8; i++) {
        ir_id four[4];
        for (uint32_t j = 0; j < 4; j++) {
            const uint32_t place = (4 * i + j) % (2 * apart), from = 4 * i + j - place + place / 2 + place % 2 * apart;
            four[j] = ir_extract(b, x[from / 16][from % 16 / 4], from % 4);
        }
        woven[i] = ir_compose(b, four, 4);
    }
    for (uint32_t i = 0; i < 8; i++) x[i / 4][i % 4] = woven[i];
}

static ir_id times_whole(ir_builder *b, ir_id x, ir_id whole) {
    return whole == IR_NO_ID ? x : ir_mul(b, x, ir_cast(b, IR_F32, whole));
}

static void multiply_f32(lower_ir_matvec *m, base_type type, uint32_t rows, const lower_ir_opened *opened, uint32_t i) {
    lower_ir *k = &m->k;
    ir_builder *b = k->b;
    const lower_ir_part *p = &opened[0].parts[i];
    const bool is_signed = lower_ir_packed_signed(type), least = opened[0].m != IR_NO_ID;
    ir_id w[LOWER_IR_ROWS_MAX][2][4];
    for (uint32_t row = 0; row < rows; row++)
        for (uint32_t r = 0; r < p->n_run; r++) {
            ir_id run = opened[row].parts[i].run[r], less = opened[row].parts[i].less[r];
            if (less != IR_NO_ID) run = bytes_less(k, run, less);
            floats_of(k, run, is_signed, lower_ir_packed_zero(type) << p->up, w[row][r]);
        }
    for (uint32_t v = 0; v < m->c.n_x; v++) {
        ir_id x[2][4], all[2] = {IR_NO_ID, IR_NO_ID};
        for (uint32_t r = 0; r < p->n_run; r++) x_floats(m, v, p, r, x[r]);
        if (lower_ir_weight_table(type)) weave(b, lower_ir_weight_weave(type), x);
        for (uint32_t r = 0, n; least && r < p->n_run; r += n) {
            n = alike(p, r);
            for (uint32_t j = 0; j < 4 * n; j++) all[r] = plus(b, x[r + j / 4][j % 4], all[r]);
            all[r] = lower_ir_sum_vector(k, all[r]);
        }
        for (uint32_t row = 0; row < rows; row++) {
            const lower_ir_part *own = &opened[row].parts[i];
            ir_id d = p->up ? ir_mul(b, opened[row].d, ir_f32(b, 1.0f / (float)(1u << p->up))) : opened[row].d;
            for (uint32_t r = 0, n; r < p->n_run; r += n) {
                ir_id sum = IR_NO_ID;
                n = alike(own, r);
                for (uint32_t j = r; j < r + n; j++) sum = dot_floats(k, w[row][j], x[j], sum);
                ir_id y = ir_mul(b, times_whole(b, d, own->scale[r]), lower_ir_sum_vector(k, sum));
                add_to(m, row, v, least ? ir_fma(b, times_whole(b, opened[row].m, own->least[r]), all[r], y) : y);
            }
        }
    }
}

static void add_packed(lower_ir_matvec *m, const lower_ir_rows *rows, ir_id raw[][LOWER_IR_RAW_MAX], ir_id chunk) {
    lower_ir_opened opened[LOWER_IR_ROWS_MAX];
    ir_id turn = m->c.lanes % 8 == 0 ? m->lane : chunk; /* then the same in all steps of a lane */
    const lower_ir_pairs *pairs = NULL;
    for (uint32_t i = 0; i < m->n_pairs; i++)
        if (m->pairs[i].table == lower_ir_weight_table(rows->w[0]->type)) pairs = &m->pairs[i];
    for (uint32_t row = 0; row < rows->n; row++) lower_ir_packed_open(rows->w[row], raw[row], chunk, turn, pairs, &opened[row]);
    if (m->c.x == MATVEC_INT8) add_int8(m, rows->w[0]->type, rows->n, opened);
    for (uint32_t i = 0; m->c.x != MATVEC_INT8 && i < opened[0].n; i++) multiply_f32(m, rows->w[0]->type, rows->n, opened, i);
}

/* The chunk in its own matrix; `from`: what to add to the row. */
static ir_id chunk_in_stretch(lower_ir_matvec *m, base_type type, ir_id chunk, ir_id *from) {
    lower_ir *k = &m->k;
    const uint32_t each = m->stretch / chunk_of(type);
    *from = ir_load(k->b, m->matrices, lower_ir_over(k, chunk, each), 1);
    return lower_ir_rest(k, chunk, each);
}

/* 16 plain numbers, or a block of a type with a table. */
static void add_values(lower_ir_matvec *m, const lower_ir_rows *rows, ir_id chunk) {
    lower_ir *k = &m->k;
    const lower_ir_weight *w = rows->w[0];
    lower_ir_chunk chunks[LOWER_IR_ROWS_MAX];
    ir_id from = IR_NO_ID, own = m->stretch ? chunk_in_stretch(m, w->type, chunk, &from) : chunk;
    ir_id block = lower_ir_over(k, own, w->chunks), part = lower_ir_rest(k, own, w->chunks);
    ir_id before = m->stretch ? lower_ir_times(k, ir_sub(k->b, chunk, own), chunk_of(w->type) / LOWER_IR_RUN) : IR_NO_ID;
    for (uint32_t r = 0; r < rows->n; r++) {
        ir_id row = m->stretch ? ir_add(k->b, rows->row[r], from) : rows->row[r];
        lower_ir_chunk_load(rows->w[r], row, block, part, &chunks[r]);
    }
    for (uint32_t run = 0; run < w->runs; run++) {
        ir_id values[LOWER_IR_ROWS_MAX][4], x[4], group = lower_ir_over(k, lower_ir_run_at(w, block, part, run), LOWER_IR_RUN);
        if (m->stretch) group = ir_add(k->b, group, before);
        const lower_ir_part p = {.four = lower_ir_over(k, group, 4), .second = lower_ir_rest(k, lower_ir_over(k, group, 2), 2),
                                 .half = lower_ir_rest(k, group, 2)};
        for (uint32_t r = 0; r < rows->n; r++) lower_ir_run_load(rows->w[r], &chunks[r], run, values[r]);
        for (uint32_t v = 0; v < m->c.n_x; v++) {
            x_floats(m, v, &p, 0, x);
            for (uint32_t r = 0; r < rows->n; r++) add_to(m, r, v, lower_ir_sum_vector(k, dot_floats(k, values[r], x, IR_NO_ID)));
        }
    }
}

/* ---- rows ---------------------------------------------------------------------------------------------------------- */

static uint32_t chunks_of(const lower_ir_matvec *m, base_type type) {
    return m->length / chunk_of(type);
}

/* Chunk of step `step`, turn d. */
static ir_id chunk_at(lower_ir_matvec *m, ir_id step, uint32_t d) {
    lower_ir *k = &m->k;
    ir_id first = lower_ir_plus(k, lower_ir_times(k, step, m->c.depth * m->c.lanes), d * m->c.lanes);
    return ir_add(k->b, m->lane, first);
}

void lower_ir_matvec_fetch(lower_ir_matvec *m, const lower_ir_rows *rows, ir_id step) {
    lower_ir *k = &m->k;
    ir_builder *b = k->b;
    const base_type type = rows->w[0]->type;
    if (!lower_ir_packed_known(type)) return;
    uint8_t widths[LOWER_IR_RAW_MAX];
    const uint32_t n = lower_ir_packed_widths(type, widths), words = raw_words(type), all = chunks_of(m, type);
    for (uint32_t d = 0; d < m->c.depth; d++)
        for (uint32_t r = 0; r < rows->n; r++) {
            ir_id raw[LOWER_IR_RAW_MAX], chunk = chunk_at(m, step, d);
            if (all % (m->c.depth * m->c.lanes)) chunk = ir_min(b, chunk, ir_u32(b, all - 1));
            ir_id from = IR_NO_ID, own = m->stretch ? chunk_in_stretch(m, type, chunk, &from) : chunk;
            lower_ir_packed_load(rows->w[r], m->stretch ? ir_add(b, rows->row[r], from) : rows->row[r], own, raw);
            for (uint32_t i = 0, at = (d * rows->n + r) * words; i < n; at += widths[i++])
                for (uint32_t e = 0; e < widths[i]; e++) ir_store(b, m->ahead, ir_u32(b, at + e), widths[i] == 1 ? raw[i] : ir_extract(b, raw[i], e));
        }
}

/* What was fetched, out of the registers. */
static void take_ahead(lower_ir_matvec *m, const lower_ir_rows *rows, uint32_t d, ir_id raw[][LOWER_IR_RAW_MAX]) {
    ir_builder *b = m->k.b;
    uint8_t widths[LOWER_IR_RAW_MAX];
    const uint32_t n = lower_ir_packed_widths(rows->w[0]->type, widths), words = raw_words(rows->w[0]->type);
    for (uint32_t r = 0; r < rows->n; r++)
        for (uint32_t i = 0, at = (d * rows->n + r) * words; i < n; at += widths[i++]) {
            ir_id parts[4];
            for (uint32_t e = 0; e < widths[i]; e++) parts[e] = ir_load(b, m->ahead, ir_u32(b, at + e), 1);
            raw[r][i] = widths[i] == 1 ? parts[0] : ir_compose(b, parts, widths[i]);
        }
}

/* The following loads, then this step's arithmetic. */
static void walk_step(lower_ir_matvec *m, const lower_ir_rows *rows, const lower_ir_rows *next, ir_id there, ir_id step, uint32_t steps) {
    lower_ir *k = &m->k;
    ir_builder *b = k->b;
    const uint32_t depth = m->c.depth, lanes = m->c.lanes, all = chunks_of(m, rows->w[0]->type);
    ir_id raw[DEPTH_MOST][LOWER_IR_ROWS_MAX][LOWER_IR_RAW_MAX];
    for (uint32_t d = 0; d < depth; d++) take_ahead(m, rows, d, raw[d]);
    if (steps > 1) {
        ir_id after = lower_ir_plus(k, step, 1), more = ir_lt(b, after, ir_u32(b, steps));
        lower_ir_weight weights[LOWER_IR_ROWS_MAX];
        lower_ir_rows then = *rows;
        if (next) {
            for (uint32_t r = 0; r < rows->n; r++) {
                then.row[r] = ir_select(b, more, rows->row[r], next->row[r]);
                weights[r] = *rows->w[r];
                for (uint32_t i = 0; i < PACK_PLANE_MAX; i++)
                    if (next->w[r]->plane[i] != weights[r].plane[i]) weights[r].plane[i] = ir_select(b, more, weights[r].plane[i], next->w[r]->plane[i]);
                then.w[r] = &weights[r];
            }
            after = ir_select(b, more, after, ir_u32(b, 0));
        }
        ir_if(b, next ? ir_or(b, more, there) : more);
        lower_ir_matvec_fetch(m, &then, after);
        ir_end(b);
    } else if (next) {
        ir_if(b, there);
        lower_ir_matvec_fetch(m, next, ir_u32(b, 0));
        ir_end(b);
    }
    for (uint32_t d = 0; d < depth; d++) {
        const bool ragged = ((steps - 1) * depth + d + 1) * lanes > all;
        ir_id chunk = chunk_at(m, step, d);
        if (ragged) ir_if(b, ir_lt(b, chunk, ir_u32(b, all)));
        add_packed(m, rows, raw[d], chunk);
        if (ragged) ir_end(b);
    }
}

void lower_ir_matvec_join(lower_ir_matvec *m, uint32_t rows, ir_id *sums) {
    lower_ir *k = &m->k;
    ir_builder *b = k->b;
    const uint32_t n = rows * m->c.n_x;
    const uint32_t lanes = m->c.lanes, wg = m->c.wg;
    if (m->c.subgroups || lanes == 1) {
        for (uint32_t i = 0; i < n; i++) {
            sums[i] = ir_load(b, m->sums, ir_u32(b, i), 1);
            for (uint32_t mask = lanes / 2; mask; mask /= 2) sums[i] = ir_add(b, sums[i], ir_subgroup_shuffle_xor(b, sums[i], mask));
        }
        return;
    }
    ir_id local = ir_local(b, 0);
    for (uint32_t i = 0; i < n; i++) ir_store(b, m->joined, lower_ir_plus(k, local, i * wg), ir_load(b, m->sums, ir_u32(b, i), 1));
    ir_barrier(b);
    ir_id first = ir_sub(b, local, m->lane);
    for (uint32_t i = 0; i < n; i++) {
        sums[i] = ir_load(b, m->joined, lower_ir_plus(k, first, i * wg), 1);
        for (uint32_t j = 1; j < lanes; j++) sums[i] = ir_add(b, sums[i], ir_load(b, m->joined, lower_ir_plus(k, first, i * wg + j), 1));
    }
    ir_barrier(b);
}

void lower_ir_matvec_walk(lower_ir_matvec *m, const lower_ir_rows *rows, const lower_ir_rows *next, ir_id there, ir_id *sums) {
    lower_ir_matvec_add(m, rows, next, there);
    lower_ir_matvec_join(m, rows->n, sums);
}

void lower_ir_matvec_add(lower_ir_matvec *m, const lower_ir_rows *rows, const lower_ir_rows *next, ir_id there) {
    ir_builder *b = m->k.b;
    const uint32_t all = chunks_of(m, rows->w[0]->type), n = rows->n * m->c.n_x;
    for (uint32_t i = 0; i < n; i++) ir_store(b, m->sums, ir_u32(b, i), ir_f32(b, 0));
    if (!lower_ir_packed_known(rows->w[0]->type)) {
        ir_id chunk = ir_loop_unrolled(b, m->lane, ir_u32(b, all), ir_u32(b, m->c.lanes), m->c.depth);
        add_values(m, rows, chunk);
        ir_end(b);
    } else {
        const uint32_t steps = over(all, m->c.depth * m->c.lanes);
        if (steps == 1) walk_step(m, rows, next, there, ir_u32(b, 0), 1);
        else {
            ir_id step = ir_loop(b, ir_u32(b, 0), ir_u32(b, steps), ir_u32(b, 1));
            walk_step(m, rows, next, there, step, steps);
            ir_end(b);
        }
    }
}
