/* packed.c - see tile/packed.h. The planes are those of pack.c.
 *
 * Quants of less than eight bits stay where masks alone leave them in their byte, a few bits
 * further up: what stands in a factor anyhow takes the power of two in. */
#include "tile/packed.h"

#include <string.h>

bool tile_packed_known(base_type type) {
    return type < TYPE_COUNT && tile_weight_form(type)->packed.chunk != 0;
}

uint32_t tile_packed_chunk(base_type type) {
    return tile_weight_form(type)->packed.chunk;
}

bool tile_packed_signed(base_type type) {
    return tile_weight_form(type)->low.bits == 8 || tile_weight_form(type)->table;
}

uint32_t tile_packed_zero(base_type type) {
    return tile_weight_form(type)->zero;
}

/* Has a word of its raw ones entries of several blocks, or of several chunks? */
static bool is_shared(base_type type) {
    const tile_block_form *f = tile_weight_form(type);
    return f->kind == SCALE_E4M3 || base_type_field(type, f->d).size < 4;
}

/* Widths that are loaded. */
static uint32_t n_load(base_type type) {
    uint32_t n = 0;
    while (tile_weight_form(type)->packed.widths[n]) n++;
    return n;
}

uint32_t tile_packed_widths(base_type type, uint8_t widths[TILE_RAW_MAX]) {
    uint32_t n = n_load(type);
    memcpy(widths, tile_weight_form(type)->packed.widths, n);
    if (n && is_shared(type)) widths[n++] = 1;
    return n;
}

uint32_t tile_packed_words(base_type type) {
    uint32_t sum = 0;
    for (uint32_t i = 0; i < n_load(type); i++) sum += tile_weight_form(type)->packed.widths[i];
    return sum;
}

ir_id tile_packed_dot(ir_builder *b, ir_id x, ir_id y, ir_id sum) {
    for (uint32_t i = 0; i < 4; i++)
        sum = ir_dot4_i8(b, ir_extract(b, x, i), ir_extract(b, y, i), sum);
    return sum;
}

/* ---- loads ----------------------------------------------------------------------------------- */

typedef struct place { /* of a block, and of a chunk in it */
    const tile_weight *w;
    ir_id number, part;
} place;

/* Words from `at` (an id, or IR_NO_ID) plus `more` of the block's entry in a plane. */
static ir_id words(const place *p, uint32_t plane, ir_id at, uint32_t more, uint32_t width) {
    ir_builder *b = p->w->k->b;
    ir_id entry = tile_mul(b, p->number, tile_weight_words(p->w->type, plane)),
          index = ir_add(b, entry, p->w->plane[plane]);
    if (at != IR_NO_ID) index = ir_add(b, index, at);
    return ir_load(b, p->w->from, tile_add(b, index, more), width);
}

/* The word that has the block's entry of 1 or 2 bytes; *shift: to its lowest bits. It is not done
 * here: what waits for a load would keep back all loads that follow. */
static ir_id shared_word(const place *p, uint32_t plane, ir_id *shift) {
    ir_builder *b = p->w->k->b;
    const uint32_t each = 4u / base_type_field(p->w->type, plane).size;
    *shift = tile_mul(b, tile_rem(b, p->number, each), 32 / each);
    return ir_load(b, p->w->from, ir_add(b, tile_div(b, p->number, each), p->w->plane[plane]), 1);
}

void tile_packed_load(const tile_weight *w, ir_id row, ir_id chunk, ir_id raw[TILE_RAW_MAX]) {
    ir_builder *b = w->k->b;
    const uint32_t each = base_type_block(w->type) / tile_packed_chunk(w->type);
    const place p = {w, ir_fma(b, row, ir_u32(b, w->blocks), tile_div(b, chunk, each)),
                     tile_rem(b, chunk, each)};
    uint32_t n = 0;
    ir_id shift;
    switch ((int)w->type) {
    case TYPE_Q8_0:
        raw[n++] = words(&p, 0, IR_NO_ID, 0, 4);
        raw[n++] = words(&p, 0, IR_NO_ID, 4, 4);
        raw[n] = shared_word(&p, 1, &raw[n + 1]);
        return;
    case TYPE_IQ4_XS:
        raw[n++] = words(&p, 0, tile_mul(b, p.part, 4), 0, 4);
        raw[n++] = words(&p, 1, IR_NO_ID, 0, 2);
        return;
    case TYPE_MXFP4:
        raw[n++] = words(&p, 0, IR_NO_ID, 0, 4);
        raw[n] = shared_word(&p, 1, &raw[n + 1]);
        return;
    case TYPE_NVFP4:
        raw[n++] = words(&p, 0, tile_mul(b, p.part, 4), 0, 4);
        raw[n++] = words(&p, 1, IR_NO_ID, 0, 1);
        raw[n] = tile_mul(b, p.part, 16);
        return;
    case TYPE_Q4_0:
    case TYPE_IQ4_NL:
    case TYPE_Q5_0:
        raw[n++] = words(&p, 0, IR_NO_ID, 0, 4);
        raw[n++] = shared_word(&p, 1, &shift);
        if (w->type == TYPE_Q5_0) raw[n++] = words(&p, 2, IR_NO_ID, 0, 1);
        raw[n] = shift;
        return;
    case TYPE_Q4_1:
    case TYPE_Q5_1:
        raw[n++] = words(&p, 0, IR_NO_ID, 0, 4);
        raw[n++] = words(&p, 1, IR_NO_ID, 0, 1);
        if (w->type == TYPE_Q5_1) raw[n++] = words(&p, 1, IR_NO_ID, 1, 1);
        return;
    case TYPE_Q2_K:
        raw[n++] = words(&p, 0, tile_mul(b, p.part, 8), 0, 4);
        raw[n++] = words(&p, 0, tile_mul(b, p.part, 8), 4, 4);
        raw[n++] = words(&p, 1, tile_mul(b, p.part, 2), 0, 2);
        raw[n++] = words(&p, 2, IR_NO_ID, 0, 1);
        return;
    /* of each 32 elements one half: so a chunk has all eight bits of its bytes in the second
     * plane */
    case TYPE_Q3_K:
        raw[n++] = words(&p, 0, tile_mul(b, p.part, 4), 0, 4);
        raw[n++] = words(&p, 0, tile_mul(b, p.part, 4), 8, 4);
        raw[n++] = words(&p, 1, tile_mul(b, p.part, 4), 0, 4);
        for (uint32_t i = 0; i < 3; i++) raw[n++] = words(&p, 2, IR_NO_ID, i, 1);
        raw[n] = shared_word(&p, 3, &raw[n + 1]);
        return;
    case TYPE_Q4_K:
    case TYPE_Q5_K:
        raw[n++] = words(&p, 0, tile_mul(b, p.part, 8), 0, 4);
        raw[n++] = words(&p, 0, tile_mul(b, p.part, 8), 4, 4);
        raw[n++] = words(&p, 1, IR_NO_ID, 0, 4);
        for (uint32_t i = 0; w->type == TYPE_Q5_K && i < 2; i++)
            raw[n++] = words(&p, 2, IR_NO_ID, 4 * i, 4);
        return;
    case TYPE_Q6_K: {
        ir_id upper = tile_div(b, p.part, 2), half = tile_mul(b, tile_rem(b, p.part, 2), 4);
        ir_id low = ir_add(b, tile_mul(b, upper, 16), half);
        raw[n++] = words(&p, 0, low, 0, 4);
        raw[n++] = words(&p, 0, low, 8, 4);
        raw[n++] = words(&p, 1, ir_add(b, tile_mul(b, upper, 8), half), 0, 4);
        raw[n++] = words(&p, 2, tile_mul(b, upper, 2), 0, 2);
        raw[n] = shared_word(&p, 3, &raw[n + 1]);
        return;
    }
    default: return;
    }
}

/* ---- numbers --------------------------------------------------------------------------------- */

static ir_id half_of(ir_builder *b, ir_id word) { /* the low one */
    return ir_cast(b, IR_F32, ir_bitcast(b, IR_F16, 1, ir_cast(b, IR_U16, word)));
}

/* `mask` of the bits from `from` on, a whole number. */
static ir_id bits_of(ir_builder *b, ir_id word, uint32_t from, uint32_t mask) {
    return ir_bitcast(b, IR_I32, 1, tile_and(b, tile_shr(b, word, from), mask));
}

/* of the byte that `up` brings to the top */
static ir_id signed_byte(ir_builder *b, ir_id word, ir_id up) {
    return tile_shr(b, ir_bitcast(b, IR_I32, 1, ir_shl(b, word, up)), 24);
}

/* (x >> from & mask) << up in one shift; mask: in all bytes, or wherever it has its bits. */
static ir_id field(ir_builder *b, ir_id x, uint32_t from, uint32_t mask, uint32_t up) {
    ir_id moved = from > up ? tile_shr(b, x, from - up) : tile_shl(b, x, up - from);
    return tile_and(b, moved, mask << up);
}

enum { BYTES = 0x01010101, SHORTS = 0x00010001 };

/* 16 bits from bit `from` on, each at bit 4 of a byte of its own. */
static ir_id spread_bits(ir_builder *b, ir_id word, uint32_t from) {
    ir_id parts[4];
    for (uint32_t i = 0; i < 4; i++)
        parts[i] =
            tile_and(b, tile_mul(b, tile_and(b, tile_shr(b, word, from + 4 * i), 15), 0x02040810u),
                     16 * BYTES);
    return ir_compose(b, parts, 4);
}

/* What permuting takes from both halves of a table. A place has a number in one half; in the
 * other it finds a sign, of which all there are the same, s: lower - upper is the number where
 * lower is a + s and upper s - b. */
static void halves_of(const uint32_t table[4], uint32_t halves[4]) {
    const uint32_t s = table[0] >> 15 & 1; /* zero has no sign: ask its neighbour */
    memset(halves, 0, 4 * sizeof *halves);
    for (uint32_t i = 0; i < 16; i++) {
        const uint32_t number = table[i / 4] >> i % 4 * 8;
        halves[i / 4] |= ((i < 8 ? number - s : 0 - s - number) & 255) << i % 4 * 8;
    }
}

/* Words of eight places to the numbers there, four - less, by permuting bytes. */
static void look_up_permuted(ir_builder *b, ir_id x, const uint32_t table[4], ir_id four[2],
                             ir_id less[2]) {
    uint32_t halves[4];
    ir_id words[4], other = ir_xor(b, x, ir_bits(b, IR_U32, 4, 0x88888888u));
    halves_of(table, halves);
    for (uint32_t i = 0; i < 4; i++) words[i] = ir_bits(b, IR_U32, 4, halves[i]);
    for (uint32_t i = 0; i < 2; i++) {
        four[i] = ir_permute_bytes(b, words[0], words[1], tile_shr(b, x, 16 * i));
        less[i] = ir_permute_bytes(b, words[2], words[3], tile_shr(b, other, 16 * i));
    }
}

/* The same by a table of pairs. */
static void look_up_pairs(ir_builder *b, ir_id x, const tile_pairs *pairs, ir_id four[2]) {
    ir_id copy = tile_rem(b, ir_local(b, 0), pairs->copies), words[2][4], pair[2];
    uint32_t up = 0;
    while (1u << up < pairs->copies) up++;
    for (uint32_t i = 0; i < 8; i++) {
        for (uint32_t j = 0; j < 2; j++)
            pair[j] = ir_load(
                b, pairs->memory,
                ir_add(b, field(b, ir_extract(b, x, i / 2), i % 2 * 16 + j * 8, 255, up), copy), 1);
        words[i % 2][i / 2] = ir_or(b, pair[0], tile_shl(b, pair[1], 16));
    }
    for (uint32_t i = 0; i < 2; i++) four[i] = ir_compose(b, words[i], 4);
}

/* A byte's two numbers come out as neighbours: so runs are interleaved. */
static void interleaved_runs(ir_builder *b, const ir_id four[2], ir_id run[2]) {
    for (uint32_t r = 0; r < 2; r++) {
        ir_id words[4];
        for (uint32_t i = 0; i < 4; i++) words[i] = ir_extract(b, four[i % 2], 2 * r + i / 2);
        run[r] = ir_compose(b, words, 4);
    }
}

static void look_up(ir_builder *b, ir_id x, const uint32_t table[4], const tile_pairs *pairs,
                    tile_part *p) {
    ir_id four[2], less[2];
    if (pairs) {
        look_up_pairs(b, x, pairs, four);
    } else {
        look_up_permuted(b, x, table, four, less);
        interleaved_runs(b, less, p->less);
    }
    interleaved_runs(b, four, p->run);
}

/* The table's byte at a place of four bits. */
static ir_id number_at(ir_builder *b, ir_id at, const uint32_t table[4]) {
    ir_id zero = ir_u32(b, 0), odd = ir_ne(b, tile_and(b, at, 4), zero);
    ir_id low = ir_select(b, odd, ir_u32(b, table[1]), ir_u32(b, table[0])),
          high = ir_select(b, odd, ir_u32(b, table[3]), ir_u32(b, table[2]));
    ir_id word = ir_select(b, ir_ne(b, tile_and(b, at, 8), zero), high, low);
    return tile_and(b, ir_shr(b, word, tile_mul(b, tile_and(b, at, 3), 8)), 255);
}

void tile_pairs_fill(tile_kernel *k, const tile_pairs *pairs) {
    ir_builder *b = k->b;
    ir_id byte = ir_loop(b, ir_local(b, 0), ir_u32(b, 256), ir_u32(b, k->lanes));
    ir_id pair = ir_or(b, number_at(b, byte, pairs->table),
                       tile_shl(b, number_at(b, tile_shr(b, byte, 4), pairs->table), 8));
    /* neighbours begin at different ones: a bank each */
    for (uint32_t i = 0; i < pairs->copies; i++) {
        ir_id copy = tile_rem(b, tile_add(b, byte, i), pairs->copies);
        ir_store(b, pairs->memory, ir_add(b, tile_mul(b, byte, pairs->copies), copy), pair);
    }
    ir_end(b);
}

/* 2^(e - 128), of the lowest byte. */
static ir_id power_of(ir_builder *b, ir_id word) {
    ir_id e = tile_and(b, word, 255), large = tile_shl(b, tile_add(b, e, UINT32_MAX), 23),
          tiny = ir_shl(b, ir_u32(b, 0x00200000u), e);
    return ir_bitcast(b, IR_F32, 1, ir_select(b, ir_lt(b, e, ir_u32(b, 2)), tiny, large));
}

/* Of an e4m3 without sign: an f16 but for its exponent's bias, 15 in place of 7. What is missing
 * is 2^8. */
static ir_id e4m3_of(ir_builder *b, ir_id word, uint32_t from) {
    return half_of(b, tile_shl(b, tile_and(b, tile_shr(b, word, from), 127), 7));
}

/* S - 32 of a block's eighth, S of 6 bits. */
static ir_id scale_iq4(ir_builder *b, ir_id header, ir_id part) {
    ir_id low = tile_and(b, ir_shr(b, ir_extract(b, header, 1), tile_mul(b, part, 4)), 15);
    ir_id high =
        tile_and(b, ir_shr(b, ir_extract(b, header, 0), tile_add(b, tile_mul(b, part, 2), 16)), 3);
    return ir_sub(b, ir_bitcast(b, IR_I32, 1, ir_or(b, low, tile_shl(b, high, 4))), ir_i32(b, 32));
}

/* ---- taking apart ---------------------------------------------------------------------------- */

static tile_part *part_of(tile_opened *o, ir_id four, ir_id second, ir_id half, uint32_t n_run) {
    tile_part *p = &o->parts[o->n++];
    *p = (tile_part){.n_run = n_run, .four = four, .second = second, .half = half};
    for (uint32_t r = 0; r < 2; r++) p->run[r] = p->less[r] = p->scale[r] = p->least[r] = IR_NO_ID;
    return p;
}

/* Entry `at` of raw, where a word has several blocks'. */
static ir_id shared_entry(const tile_weight *w, const ir_id *raw, uint32_t at) {
    return ir_shr(w->k->b, raw[at], raw[n_load(w->type)]);
}

static void open_small(const tile_weight *w, const ir_id *raw, ir_id chunk, ir_id turn,
                       const tile_pairs *pairs, tile_opened *o) {
    ir_builder *b = w->k->b;
    const uint32_t *table = tile_weight_table(w->type);
    tile_part *p = part_of(o, tile_div(b, chunk, 2), tile_rem(b, chunk, 2), ir_u32(b, 0), 2);
    const uint32_t at = w->type == TYPE_Q8_0 ? 2 : 1; /* of the block's factor */
    ir_id factor = w->type == TYPE_IQ4_XS ? ir_extract(b, raw[1], 0)
                   : is_shared(w->type)   ? shared_entry(w, raw, at)
                                          : raw[at];
    if (w->type == TYPE_NVFP4) {
        o->d = ir_f32(b, 128); /* doubled numbers */
        o->fractions = true;
        for (uint32_t r = 0; r < 2; r++) p->scale[r] = e4m3_of(b, factor, 8 * r);
    } else if (w->type == TYPE_MXFP4) o->d = power_of(b, factor);
    else o->d = half_of(b, factor);
    if (w->type == TYPE_IQ4_XS)
        p->scale[0] = p->scale[1] = scale_iq4(b, raw[1], tile_rem(b, turn, 8));
    if (w->type == TYPE_Q4_1 || w->type == TYPE_Q5_1) o->m = half_of(b, tile_shr(b, raw[1], 16));
    if (table) look_up(b, raw[0], table, pairs, p);
    for (uint32_t i = 0; !table && i < 2; i++) {
        p->run[i] = w->type == TYPE_Q8_0 ? raw[i] : field(b, raw[0], 4 * i, 15 * BYTES, 0);
        if (w->type == TYPE_Q5_0 || w->type == TYPE_Q5_1)
            p->run[i] = ir_or(b, p->run[i], spread_bits(b, raw[2], 16 * i));
    }
}

/* How far up fields of two bits are left: the fourth would be a sign. */
static const uint8_t ups[4] = {0, 2, 4, 4};

static void open_2(const tile_weight *w, const ir_id *raw, ir_id chunk, tile_opened *o) {
    ir_builder *b = w->k->b;
    o->d = half_of(b, raw[3]);
    o->m = ir_neg(b, half_of(b, tile_shr(b, raw[3], 16)));
    for (uint32_t i = 0; i < 4; i++) {
        tile_part *p = part_of(o, tile_add(b, tile_mul(b, chunk, 2), i / 2), ir_u32(b, i % 2),
                               ir_u32(b, 0), 2);
        ir_id pairs = ir_extract(b, raw[2], i / 2);
        p->up = ups[i];
        for (uint32_t r = 0; r < 2; r++) {
            p->run[r] = field(b, raw[r], 2 * i, 3 * BYTES, p->up);
            p->scale[r] = bits_of(b, pairs, i % 2 * 16 + r * 8, 15);
            p->least[r] = bits_of(b, pairs, i % 2 * 16 + r * 8 + 4, 15);
        }
    }
}

static void open_3(const tile_weight *w, const ir_id *raw, ir_id chunk, ir_id turn,
                   tile_opened *o) {
    ir_builder *b = w->k->b;
    ir_id half = tile_rem(b, turn, 2), four = tile_mul(b, tile_and(b, chunk, ~1u), 2), own[3];
    for (uint32_t i = 0; i < 3; i++) own[i] = ir_shr(b, raw[3 + i], tile_mul(b, half, 8));
    o->d = half_of(b, shared_entry(w, raw, 6));
    for (uint32_t i = 0; i < 8; i++) {
        tile_part *p = part_of(o, tile_add(b, four, i / 2), ir_u32(b, i % 2), half, 1);
        p->up = ups[i % 4];
        p->run[0] = ir_or(b, field(b, raw[i / 4], i % 4 * 2, 3 * BYTES, p->up),
                          field(b, raw[2], i, BYTES, p->up + 2u));
        /* two scales at once, 16 bits apart */
        ir_id pair = ir_or(b, field(b, own[i / 2 % 2], i / 4 * 4, 15 * SHORTS, 0),
                           field(b, own[2], i / 2 * 2, 3 * SHORTS, 4));
        p->scale[0] = ir_sub(b, bits_of(b, pair, i % 2 * 16, 0xffff), ir_i32(b, 32));
    }
}

/* The scales and leasts of both blocks of a chunk, 6 bits each: those of blocks 0 to 3 lie whole
 * in bytes, of the others the upper two bits apart. */
static void scales_4(ir_builder *b, ir_id header, ir_id turn, ir_id *scale, ir_id *least) {
    ir_id y = ir_extract(b, header, 1), z = ir_extract(b, header, 2), w = ir_extract(b, header, 3);
    ir_id shift = tile_mul(b, tile_and(b, turn, 1), 16), two = tile_and(b, turn, 2),
          far = ir_ne(b, two, ir_u32(b, 0));
    ir_id upper = ir_add(b, shift, two);
    ir_id mask = ir_select(b, far, ir_u32(b, 0x3030), ir_u32(b, 0x3f3f)),
          rest = ir_select(b, far, ir_u32(b, 0x0f0f), ir_u32(b, 0));
    *scale = ir_or(b, ir_and(b, ir_shr(b, y, upper), mask), ir_and(b, ir_shr(b, w, shift), rest));
    *least = ir_or(b, ir_and(b, ir_shr(b, z, upper), mask),
                   ir_and(b, ir_shr(b, w, tile_add(b, shift, 4)), rest));
}

static void open_4_5(const tile_weight *w, const ir_id *raw, ir_id chunk, ir_id turn,
                     tile_opened *o) {
    ir_builder *b = w->k->b;
    ir_id scale, least, first = ir_extract(b, raw[2], 0), high[2];
    scales_4(b, raw[2], turn, &scale, &least);
    o->d = half_of(b, first);
    o->m = ir_neg(b, half_of(b, tile_shr(b, first, 16)));
    for (uint32_t r = 0; w->type == TYPE_Q5_K && r < 2; r++)
        high[r] = ir_shr(b, raw[3 + r], ir_splat(b, tile_mul(b, tile_and(b, turn, 3), 2), 4));
    for (uint32_t i = 0; i < 2; i++) {
        tile_part *p = part_of(o, chunk, ir_u32(b, i), ir_u32(b, 0), 2);
        p->scale[0] = p->scale[1] = bits_of(b, scale, 8 * i, 255);
        p->least[0] = p->least[1] = bits_of(b, least, 8 * i, 255);
        for (uint32_t r = 0; r < 2; r++) {
            p->run[r] = field(b, raw[r], 4 * i, 15 * BYTES, 0);
            if (w->type == TYPE_Q5_K)
                p->run[r] = ir_or(b, p->run[r], field(b, high[r], i, BYTES, 4));
        }
    }
}

static void open_6(const tile_weight *w, const ir_id *raw, ir_id chunk, ir_id turn,
                   tile_opened *o) {
    ir_builder *b = w->k->b;
    ir_id half = tile_and(b, turn, 1), four = tile_and(b, chunk, ~1u),
          up = ir_sub(b, ir_u32(b, 24), tile_mul(b, half, 8));
    o->d = half_of(b, shared_entry(w, raw, 4));
    for (uint32_t i = 0; i < 4; i++) {
        tile_part *p = part_of(o, tile_add(b, four, i / 2), ir_u32(b, i % 2), half, 1);
        p->run[0] = ir_or(b, field(b, raw[i % 2], i / 2 * 4, 15 * BYTES, 0),
                          field(b, raw[2], i * 2, 3 * BYTES, 4));
        /* byte half, then half + 2, of a word */
        ir_id shift = i % 2 ? ir_sub(b, up, ir_u32(b, 16)) : up;
        p->scale[0] = signed_byte(b, ir_extract(b, raw[3], i / 2), shift);
    }
}

void tile_packed_open(const tile_weight *w, const ir_id raw[TILE_RAW_MAX], ir_id chunk, ir_id turn,
                      const tile_pairs *pairs, tile_opened *o) {
    *o = (tile_opened){.m = IR_NO_ID};
    if (w->type == TYPE_Q2_K) open_2(w, raw, chunk, o);
    else if (w->type == TYPE_Q3_K) open_3(w, raw, chunk, turn, o);
    else if (w->type == TYPE_Q4_K || w->type == TYPE_Q5_K) open_4_5(w, raw, chunk, turn, o);
    else if (w->type == TYPE_Q6_K) open_6(w, raw, chunk, turn, o);
    else open_small(w, raw, chunk, turn, pairs, o);
}
