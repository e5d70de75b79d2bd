/* lower_ir_packed.c - see lower_ir_packed.h. The planes are those of pack.c.
 *
 * Quants with a sign are brought to the upper end of their byte, q' = (q - zero) * 2^(8 - bits) + 128: then the sign is the upper
 * bit whatever the type, and the scale takes the power of two in. */
#include "graph/lower_ir_packed.h"

typedef struct packed_form {
    uint8_t chunk;  /* elements; 0: the type is not read so */
    uint8_t up;     /* biased: bits that quants are moved up by */
    bool biased;
    uint8_t widths[LOWER_IR_RAW_MAX];
} packed_form;

static const packed_form forms[TYPE_COUNT] = {
    [TYPE_Q8_0] = {32, 0, true, {4, 4, 1}},
    [TYPE_Q4_0] = {32, 4, true, {4, 1}},
    [TYPE_Q4_1] = {32, 0, false, {4, 1}},
    [TYPE_Q5_0] = {32, 3, true, {4, 1, 1}},
    [TYPE_Q5_1] = {32, 0, false, {4, 1, 1}},
    [TYPE_IQ4_NL] = {32, 0, true, {4, 1}},
    [TYPE_IQ4_XS] = {32, 0, true, {4, 2}},
    [TYPE_MXFP4] = {32, 0, true, {4, 1}},
    [TYPE_Q2_K] = {128, 0, false, {4, 4, 2, 1}},
    [TYPE_Q3_K] = {128, 5, true, {4, 4, 4, 4, 1, 1, 1, 1}},
    [TYPE_Q4_K] = {64, 0, false, {4, 4, 4}},
    [TYPE_Q5_K] = {64, 0, false, {4, 4, 4, 4, 4}},
    [TYPE_Q6_K] = {64, 2, true, {4, 4, 4, 2, 1}},
};

/* Quants that are places in a table: the numbers there, + 128. */
static const uint8_t iq4_table[16] = {1, 24, 45, 63, 79, 93, 106, 118, 129, 141, 153, 166, 181, 197, 217, 241};
static const uint8_t e2m1_table[16] = {128, 129, 130, 131, 132, 134, 136, 140, 128, 127, 126, 125, 124, 122, 120, 116}; /* doubled */

bool lower_ir_packed_known(base_type type) {
    return type < TYPE_COUNT && forms[type].chunk != 0;
}

uint32_t lower_ir_packed_chunk(base_type type) {
    return forms[type].chunk;
}

bool lower_ir_packed_biased(base_type type) {
    return forms[type].biased;
}

uint32_t lower_ir_packed_widths(base_type type, uint8_t widths[LOWER_IR_RAW_MAX]) {
    uint32_t n = 0;
    for (; n < LOWER_IR_RAW_MAX && forms[type].widths[n]; n++) widths[n] = forms[type].widths[n];
    return n;
}

/* ---- loads ----------------------------------------------------------------------------------------------------- */

typedef struct place { /* of a block, and of a chunk in it */
    const lower_ir_weight *w;
    ir_id number, part;
} place;

/* Words from `at` (an id, or IR_NO_ID) plus `more` of the block's entry in a plane. */
static ir_id words(const place *p, uint32_t plane, uint32_t stride, ir_id at, uint32_t more, uint32_t width) {
    lower_ir *k = p->w->k;
    ir_id index = ir_add(k->b, lower_ir_times(k, p->number, stride), p->w->plane[plane]);
    if (at != IR_NO_ID) index = ir_add(k->b, index, at);
    return ir_load(k->b, p->w->from, lower_ir_plus(k, index, more), width);
}

/* The block's entry of 2 bytes, in the lower ones. */
static ir_id short_of(const place *p, uint32_t plane) {
    lower_ir *k = p->w->k;
    ir_id word = ir_load(k->b, p->w->from, ir_add(k->b, lower_ir_over(k, p->number, 2), p->w->plane[plane]), 1);
    return ir_shr(k->b, word, lower_ir_times(k, lower_ir_rest(k, p->number, 2), 16));
}

void lower_ir_packed_load(const lower_ir_weight *w, ir_id row, ir_id chunk, ir_id raw[LOWER_IR_RAW_MAX]) {
    lower_ir *k = w->k;
    ir_builder *b = k->b;
    const uint32_t each = base_type_block(w->type) / forms[w->type].chunk;
    const place p = {w, ir_fma(b, row, ir_u32(b, w->blocks), lower_ir_over(k, chunk, each)), lower_ir_rest(k, chunk, each)};
    uint32_t n = 0;
    switch ((int)w->type) {
    case TYPE_Q8_0:
        raw[n++] = words(&p, 0, 8, IR_NO_ID, 0, 4);
        raw[n++] = words(&p, 0, 8, IR_NO_ID, 4, 4);
        raw[n++] = short_of(&p, 1);
        return;
    case TYPE_IQ4_XS:
        raw[n++] = words(&p, 0, 32, lower_ir_times(k, p.part, 4), 0, 4);
        raw[n++] = words(&p, 1, 2, IR_NO_ID, 0, 2);
        return;
    case TYPE_MXFP4:
        raw[n++] = words(&p, 0, 4, IR_NO_ID, 0, 4);
        raw[n] = ir_load(b, w->from, ir_add(b, lower_ir_over(k, p.number, 4), w->plane[1]), 1);
        raw[n] = ir_shr(b, raw[n], lower_ir_times(k, lower_ir_rest(k, p.number, 4), 8));
        return;
    case TYPE_Q4_0:
    case TYPE_IQ4_NL:
    case TYPE_Q5_0:
        raw[n++] = words(&p, 0, 4, IR_NO_ID, 0, 4);
        raw[n++] = short_of(&p, 1);
        if (w->type == TYPE_Q5_0) raw[n++] = words(&p, 2, 1, IR_NO_ID, 0, 1);
        return;
    case TYPE_Q4_1:
    case TYPE_Q5_1:
        raw[n++] = words(&p, 0, 4, IR_NO_ID, 0, 4);
        raw[n++] = words(&p, 1, w->type == TYPE_Q5_1 ? 2 : 1, IR_NO_ID, 0, 1);
        if (w->type == TYPE_Q5_1) raw[n++] = words(&p, 1, 2, IR_NO_ID, 1, 1);
        return;
    case TYPE_Q2_K:
    case TYPE_Q3_K:
        raw[n++] = words(&p, 0, 16, lower_ir_times(k, p.part, 8), 0, 4);
        raw[n++] = words(&p, 0, 16, lower_ir_times(k, p.part, 8), 4, 4);
        if (w->type == TYPE_Q2_K) {
            raw[n++] = words(&p, 1, 4, lower_ir_times(k, p.part, 2), 0, 2);
            raw[n++] = words(&p, 2, 1, IR_NO_ID, 0, 1);
            return;
        }
        for (uint32_t i = 0; i < 2; i++) raw[n++] = words(&p, 1, 8, IR_NO_ID, 4 * i, 4);
        for (uint32_t i = 0; i < 3; i++) raw[n++] = words(&p, 2, 3, IR_NO_ID, i, 1);
        raw[n++] = short_of(&p, 3);
        return;
    case TYPE_Q4_K:
    case TYPE_Q5_K:
        raw[n++] = words(&p, 0, 32, lower_ir_times(k, p.part, 8), 0, 4);
        raw[n++] = words(&p, 0, 32, lower_ir_times(k, p.part, 8), 4, 4);
        raw[n++] = words(&p, 1, 4, IR_NO_ID, 0, 4);
        for (uint32_t i = 0; w->type == TYPE_Q5_K && i < 2; i++) raw[n++] = words(&p, 2, 8, IR_NO_ID, 4 * i, 4);
        return;
    case TYPE_Q6_K: {
        ir_id upper = lower_ir_over(k, p.part, 2), half = lower_ir_times(k, lower_ir_rest(k, p.part, 2), 4);
        ir_id low = ir_add(b, lower_ir_times(k, upper, 16), half);
        raw[n++] = words(&p, 0, 32, low, 0, 4);
        raw[n++] = words(&p, 0, 32, low, 8, 4);
        raw[n++] = words(&p, 1, 16, ir_add(b, lower_ir_times(k, upper, 8), half), 0, 4);
        raw[n++] = words(&p, 2, 4, lower_ir_times(k, upper, 2), 0, 2);
        raw[n++] = short_of(&p, 3);
        return;
    }
    default: return;
    }
}

/* ---- numbers --------------------------------------------------------------------------------------------------- */

static ir_id half_of(lower_ir *k, ir_id word) { /* the low one */
    return ir_cast(k->b, IR_F32, ir_bitcast(k->b, IR_F16, 1, ir_cast(k->b, IR_U16, word)));
}

static ir_id byte_of(lower_ir *k, ir_id word, uint32_t i) {
    return ir_cast(k->b, IR_F32, lower_ir_and(k, lower_ir_shr(k, word, 8 * i), 255));
}

static ir_id signed_byte(lower_ir *k, ir_id word, ir_id up) { /* of the byte that `up` brings to the top */
    return ir_cast(k->b, IR_F32, lower_ir_shr(k, ir_bitcast(k->b, IR_I32, 1, ir_shl(k->b, word, up)), 24));
}

/* (x >> from & mask), in all bytes, moved up by `up`: one shift. */
static ir_id field(lower_ir *k, ir_id x, uint32_t from, uint32_t mask, uint32_t up) {
    ir_id moved = from > up ? lower_ir_shr(k, x, from - up) : lower_ir_shl(k, x, up - from);
    return lower_ir_and(k, moved, (mask << up) * 0x01010101u);
}

/* The same where `from` is an id. */
static ir_id field_at(lower_ir *k, ir_id x, ir_id from, uint32_t mask, uint32_t up) {
    ir_id low = lower_ir_and(k, ir_shr(k->b, x, ir_splat(k->b, from, 4)), mask * 0x01010101u);
    return lower_ir_shl(k, low, up);
}

/* 16 bits from bit `from` on, each in a byte of its own. */
static ir_id spread_bits(lower_ir *k, ir_id word, uint32_t from, uint32_t up) {
    ir_id parts[4];
    for (uint32_t i = 0; i < 4; i++)
        parts[i] = lower_ir_shl(k, lower_ir_and(k, lower_ir_times(k, lower_ir_and(k, lower_ir_shr(k, word, from + 4 * i), 15), 0x00204081u), 0x01010101u), up);
    return ir_compose(k->b, parts, 4);
}

/* Bytes 0 .. 15 to those of a table, four at a time: each bit chooses between halves. */
static ir_id look_up(lower_ir *k, ir_id x, const uint8_t table[16]) {
    ir_builder *b = k->b;
    ir_id v[8];
    for (uint32_t bit = 0, n = 8; n; bit++, n /= 2) {
        ir_id mask = lower_ir_times(k, lower_ir_and(k, lower_ir_shr(k, x, bit), 0x01010101u), 255);
        for (uint32_t i = 0; i < n; i++) {
            ir_id low = bit ? v[2 * i] : ir_bits(b, IR_U32, 4, table[2 * i] * 0x01010101u);
            ir_id change = bit ? ir_xor(b, low, v[2 * i + 1]) : ir_bits(b, IR_U32, 4, (uint32_t)(table[2 * i] ^ table[2 * i + 1]) * 0x01010101u);
            v[i] = ir_xor(b, low, ir_and(b, change, mask));
        }
    }
    return v[0];
}

static const uint8_t *table_of(base_type type) {
    return type == TYPE_MXFP4 ? e2m1_table : type == TYPE_IQ4_NL || type == TYPE_IQ4_XS ? iq4_table : NULL;
}

/* 2^(e - 128), of the lowest byte. */
static ir_id power_of(lower_ir *k, ir_id word) {
    ir_builder *b = k->b;
    ir_id e = lower_ir_and(k, word, 255), large = lower_ir_shl(k, lower_ir_plus(k, e, UINT32_MAX), 23), tiny = ir_shl(b, ir_u32(b, 0x00200000u), e);
    return ir_bitcast(b, IR_F32, 1, ir_select(b, ir_lt(b, e, ir_u32(b, 2)), tiny, large));
}

/* d (S - 32) of a block's eighth, S of 6 bits. */
static ir_id scale_iq4(lower_ir *k, ir_id header, ir_id part) {
    ir_builder *b = k->b;
    ir_id first = ir_extract(b, header, 0), low = lower_ir_and(k, ir_shr(b, ir_extract(b, header, 1), lower_ir_times(k, part, 4)), 15);
    ir_id high = lower_ir_and(k, ir_shr(b, first, lower_ir_plus(k, lower_ir_times(k, part, 2), 16)), 3);
    ir_id scale = ir_cast(b, IR_F32, ir_or(b, low, lower_ir_shl(k, high, 4)));
    return ir_mul(b, half_of(k, first), ir_sub(b, scale, ir_f32(b, 32)));
}

/* ---- taking apart ------------------------------------------------------------------------------------------------ */

static uint32_t open_small(const lower_ir_weight *w, const ir_id *raw, ir_id chunk, lower_ir_part *p) {
    lower_ir *k = w->k;
    ir_builder *b = k->b;
    const packed_form *f = &forms[w->type];
    p->n_run = 2;
    p->four = lower_ir_over(k, chunk, 2);
    p->second = lower_ir_rest(k, chunk, 2);
    p->half = ir_u32(b, 0);
    p->least = IR_NO_ID;
    if (w->type == TYPE_IQ4_XS) p->factor = scale_iq4(k, raw[1], lower_ir_rest(k, chunk, 8));
    else if (w->type == TYPE_MXFP4) p->factor = power_of(k, raw[1]);
    else p->factor = half_of(k, raw[w->type == TYPE_Q8_0 ? 2 : 1]);
    if (w->type == TYPE_Q8_0) {
        for (uint32_t i = 0; i < 2; i++) p->run[i] = ir_xor(b, raw[i], ir_bits(b, IR_U32, 4, 0x80808080u));
        return 1;
    }
    for (uint32_t i = 0; i < 2; i++) {
        p->run[i] = field(k, raw[0], 4 * i, 15, f->up);
        if (table_of(w->type)) p->run[i] = look_up(k, p->run[i], table_of(w->type));
        if (w->type == TYPE_Q5_0 || w->type == TYPE_Q5_1) p->run[i] = ir_or(b, p->run[i], spread_bits(k, raw[2], 16 * i, 4u + f->up));
    }
    if (f->up) p->factor = ir_mul(b, p->factor, ir_f32(b, 1.0f / (float)(1u << f->up)));
    if (!f->biased) p->least = half_of(k, lower_ir_shr(k, raw[1], 16));
    return 1;
}

static uint32_t open_2_3(const lower_ir_weight *w, const ir_id *raw, ir_id chunk, ir_id turn, lower_ir_part *parts) {
    lower_ir *k = w->k;
    ir_builder *b = k->b;
    const bool three = w->type == TYPE_Q3_K;
    ir_id part = lower_ir_rest(k, turn, 2);
    ir_id d = half_of(k, raw[three ? 7 : 3]), least = three ? IR_NO_ID : ir_neg(b, half_of(k, lower_ir_shr(k, raw[3], 16)));
    if (three) d = ir_mul(b, d, ir_f32(b, 1.0f / 32));
    for (uint32_t i = 0; i < 8; i++) {
        lower_ir_part *p = &parts[i];
        p->n_run = 1;
        p->four = lower_ir_plus(k, lower_ir_times(k, chunk, 2), i / 4);
        p->second = ir_u32(b, i / 2 % 2);
        p->half = ir_u32(b, i % 2);
        p->least = IR_NO_ID;
        p->run[0] = field(k, raw[i % 2], i / 2 * 2, 3, three ? 5 : 0);
        if (three) {
            ir_id bit = lower_ir_plus(k, lower_ir_times(k, part, 4), i / 2);
            p->run[0] = ir_or(b, p->run[0], field_at(k, raw[2 + i % 2], bit, 1, 7));
            ir_id low = lower_ir_and(k, ir_shr(b, raw[4 + i / 4], lower_ir_plus(k, lower_ir_times(k, part, 4), i % 4 * 8)), 15);
            ir_id high = lower_ir_and(k, ir_shr(b, raw[6], lower_ir_plus(k, lower_ir_times(k, part, 4), i % 4 * 8 + i / 4 * 2)), 3);
            ir_id scale = ir_cast(b, IR_F32, ir_or(b, low, lower_ir_shl(k, high, 4)));
            p->factor = ir_mul(b, d, ir_sub(b, scale, ir_f32(b, 32)));
            continue;
        }
        ir_id pair = lower_ir_shr(k, ir_extract(b, raw[2], i / 4), i % 4 * 8);
        p->factor = ir_mul(b, d, ir_cast(b, IR_F32, lower_ir_and(k, pair, 15)));
        p->least = ir_mul(b, least, ir_cast(b, IR_F32, lower_ir_and(k, lower_ir_shr(k, pair, 4), 15)));
    }
    return 8;
}

/* The scales and leasts of both blocks of a chunk, 6 bits each: those of blocks 0 to 3 lie whole in bytes, of the others the
 * upper two bits apart. */
static void scales_4(lower_ir *k, ir_id header, ir_id turn, ir_id *scale, ir_id *least) {
    ir_builder *b = k->b;
    ir_id y = ir_extract(b, header, 1), z = ir_extract(b, header, 2), w = ir_extract(b, header, 3);
    ir_id shift = lower_ir_times(k, lower_ir_and(k, turn, 1), 16), two = lower_ir_and(k, turn, 2), far = ir_ne(b, two, ir_u32(b, 0));
    ir_id upper = ir_add(b, shift, two);
    ir_id mask = ir_select(b, far, ir_u32(b, 0x3030), ir_u32(b, 0x3f3f)), rest = ir_select(b, far, ir_u32(b, 0x0f0f), ir_u32(b, 0));
    *scale = ir_or(b, ir_and(b, ir_shr(b, y, upper), mask), ir_and(b, ir_shr(b, w, shift), rest));
    *least = ir_or(b, ir_and(b, ir_shr(b, z, upper), mask), ir_and(b, ir_shr(b, w, lower_ir_plus(k, shift, 4)), rest));
}

static uint32_t open_4_5(const lower_ir_weight *w, const ir_id *raw, ir_id chunk, ir_id turn, lower_ir_part *parts) {
    lower_ir *k = w->k;
    ir_builder *b = k->b;
    ir_id scale, least, first = ir_extract(b, raw[2], 0), d = half_of(k, first), m = ir_neg(b, half_of(k, lower_ir_shr(k, first, 16)));
    scales_4(k, raw[2], turn, &scale, &least);
    for (uint32_t i = 0; i < 2; i++) {
        lower_ir_part *p = &parts[i];
        p->n_run = 2;
        p->four = chunk;
        p->second = ir_u32(b, i);
        p->half = ir_u32(b, 0);
        p->factor = ir_mul(b, d, byte_of(k, scale, i));
        p->least = ir_mul(b, m, byte_of(k, least, i));
        for (uint32_t r = 0; r < 2; r++) {
            p->run[r] = field(k, raw[r], 4 * i, 15, 0);
            if (w->type != TYPE_Q5_K) continue;
            ir_id bit = lower_ir_plus(k, lower_ir_times(k, lower_ir_and(k, turn, 3), 2), i);
            p->run[r] = ir_or(b, p->run[r], field_at(k, raw[3 + r], bit, 1, 4));
        }
    }
    return 2;
}

static uint32_t open_6(const lower_ir_weight *w, const ir_id *raw, ir_id chunk, ir_id turn, lower_ir_part *parts) {
    lower_ir *k = w->k;
    ir_builder *b = k->b;
    ir_id d = ir_mul(b, half_of(k, raw[4]), ir_f32(b, 0.25f)), half = lower_ir_and(k, turn, 1);
    ir_id four = ir_sub(b, chunk, half), up = ir_sub(b, ir_u32(b, 24), lower_ir_times(k, half, 8));
    for (uint32_t i = 0; i < 4; i++) {
        lower_ir_part *p = &parts[i];
        p->n_run = 1;
        p->four = lower_ir_plus(k, four, i / 2);
        p->second = ir_u32(b, i % 2);
        p->half = half;
        p->least = IR_NO_ID;
        p->run[0] = ir_or(b, field(k, raw[i % 2], i / 2 * 4, 15, 2), field(k, raw[2], i * 2, 3, 6));
        ir_id shift = i % 2 ? ir_sub(b, up, ir_u32(b, 16)) : up; /* byte half, then half + 2, of a word */
        p->factor = ir_mul(b, d, signed_byte(k, ir_extract(b, raw[3], i / 2), shift));
    }
    return 4;
}

uint32_t lower_ir_packed_open(const lower_ir_weight *w, const ir_id raw[LOWER_IR_RAW_MAX], ir_id chunk, ir_id turn,
                              lower_ir_part parts[LOWER_IR_PART_MAX]) {
    if (w->type == TYPE_Q2_K || w->type == TYPE_Q3_K) return open_2_3(w, raw, chunk, turn, parts);
    if (w->type == TYPE_Q4_K || w->type == TYPE_Q5_K) return open_4_5(w, raw, chunk, turn, parts);
    if (w->type == TYPE_Q6_K) return open_6(w, raw, chunk, turn, parts);
    return open_small(w, raw, chunk, parts);
}
