/* block.c - see tile/block.h.
 *
 * The one idea: a table says where a block type keeps the bits of an element, and how scales
 * belong to its sub-blocks; the code that follows is written once. The planes are those of
 * pack.c, the meaning of the fields is that of the formats' description (64-bit words never
 * cross a plane, so everything is read as 32-bit words). */
#include "tile/block.h"
#include "base/build.h"

/* Of types that not every build has: else nothing is known of them. */
#define OWN(number) (BUILD_HAS_OWN_TYPES ? (number) : 0)

/* clang-format off */
static const tile_block_form forms[TYPE_COUNT] = {
    [TYPE_Q8_0]    = {.low = {8, 0, 32, 0}, .kind = SCALE_D, .d = 1, .packed = {32, false, {4, 4, 1}}},
    [TYPE_Q4_0]    = {.low = {4, 0, 16, 0}, .zero = 8, .kind = SCALE_D, .d = 1, .packed = {32, false, {4, 1}}},
    [TYPE_Q4_1]    = {.low = {4, 0, 16, 0}, .kind = SCALE_D_M, .d = 1, .packed = {32, false, {4, 1}}},
    [TYPE_Q5_0]    = {.low = {4, 0, 16, 0}, .high = {1, 2, 0, 0}, .zero = 16, .kind = SCALE_D, .d = 1, .packed = {32, false, {4, 1, 1}}},
    [TYPE_Q5_1]    = {.low = {4, 0, 16, 0}, .high = {1, 1, 0, 1}, .kind = SCALE_D_M, .d = 1, .packed = {32, false, {4, 1, 1}}},
    [TYPE_IQ4_NL]  = {.low = {4, 0, 16, 0}, .table = 1, .kind = SCALE_D, .d = 1, .packed = {32, false, {4, 1}}},
    [TYPE_IQ4_XS]  = {.low = {4, 0, 16, 0}, .table = 1, .kind = SCALE_IQ4, .sub = 32, .d = 1, .packed = {32, false, {4, 2}}},
    [TYPE_MXFP4]   = {.low = {4, 0, 16, 0}, .table = 2, .kind = SCALE_POWER, .d = 1, .packed = {32, false, {4, 1}}},
    [TYPE_NVFP4]   = {.low = {4, 0, 8, 0}, .table = 2, .kind = SCALE_E4M3, .sub = 16, .d = 1, .packed = {32, false, {4, 1}}},
    [TYPE_Q2_K]    = {.low = {2, 0, 32, 0}, .kind = SCALE_2, .sub = 16, .d = 2, .scales = 1, .packed = {128, false, {4, 4, 2, 1}}},
    [TYPE_Q3_K]    = {.low = {2, 0, 32, 0}, .high = {1, 1, 32, 0}, .zero = 4, .kind = SCALE_3, .sub = 16, .d = 3, .scales = 2,
                     .packed = {128, true, {4, 4, 4, 1, 1, 1, 1}}},
    [TYPE_Q4_K]    = {.low = {4, 0, 32, 0}, .kind = SCALE_4, .sub = 32, .d = 1, .packed = {64, false, {4, 4, 4}}},
    [TYPE_Q5_K]    = {.low = {4, 0, 32, 0}, .high = {1, 2, 32, 0}, .kind = SCALE_4, .sub = 32, .d = 1, .packed = {64, false, {4, 4, 4, 4, 4}}},
    [TYPE_Q6_K]    = {.low = {4, 0, 64, 0}, .high = {2, 1, 32, 0}, .zero = 32, .kind = SCALE_6, .sub = 16, .d = 3, .scales = 2,
                     .packed = {64, true, {4, 4, 4, 2, 1}}},
    [TYPE_TQ1_0]   = {.low = {.bits = 4}, .kind = SCALE_OWN, .d = 1},
    [TYPE_TQ2_0]   = {.low = {2, 0, 32, 0}, .zero = 1, .kind = SCALE_D, .d = 1},
    [TYPE_F8_E4M3] = {.low = {OWN(8), 0, OWN(16), 0}, .kind = OWN(SCALE_FLOAT)},
    [TYPE_F8_E5M2] = {.low = {OWN(8), 0, OWN(16), 0}, .kind = OWN(SCALE_FLOAT)},
    [TYPE_AFFINE8] = {.low = {OWN(8), 0, OWN(32), 0}, .kind = OWN(SCALE_AFFINE), .d = OWN(1)},
    [TYPE_AFFINE4] = {.low = {OWN(4), 0, OWN(16), 0}, .kind = OWN(SCALE_AFFINE), .d = OWN(1)},
    [TYPE_IQ1_S]   = {.low = {.bits = 4}, .kind = SCALE_OWN, .d = 2, .entry = 8, .by = 2},
    [TYPE_IQ1_M]   = {.low = {.bits = 4}, .kind = SCALE_OWN, .d = 2, .entry = 8, .by = 2},
    [TYPE_IQ2_XXS] = {.low = {.bits = 4}, .kind = SCALE_OWN, .d = 1, .entry = 8, .by = 0.25f},
    [TYPE_IQ2_XS]  = {.low = {.bits = 4}, .kind = SCALE_OWN, .d = 2, .entry = 8, .by = 0.25f},
    [TYPE_IQ2_S]   = {.low = {.bits = 4}, .kind = SCALE_OWN, .d = 2, .entry = 8, .by = 0.25f},
    [TYPE_IQ3_XXS] = {.low = {.bits = 4}, .kind = SCALE_OWN, .d = 2, .entry = 4, .by = 0.5f},
    [TYPE_IQ3_S]   = {.low = {.bits = 4}, .kind = SCALE_OWN, .d = 2, .entry = 4, .by = 2},
};
/* clang-format on */

/* Signed bytes, four a word, lowest first: the values of IQ4_NL and IQ4_XS; doubled E2M1. */
static const uint32_t tables[2][4] = {{0xbfad9881u, 0xf6eaddcfu, 0x26190d01u, 0x71594535u},
                                      {0x03020100u, 0x0c080604u, 0xfdfeff00u, 0xf4f8fafcu}};

const tile_block_form *tile_weight_form(base_type type) {
    return &forms[type];
}

const uint32_t *tile_weight_table(base_type type) {
    return forms[type].table ? tables[forms[type].table - 1] : NULL;
}

uint32_t tile_weight_interleave(base_type type) {
    return forms[type].table ? forms[type].low.group : 0;
}

uint32_t tile_weight_words(base_type type, uint32_t plane) {
    const uint32_t size = base_type_field(type, plane).size;
    return size < 4 ? 1 : size / 4;
}

bool tile_weight_has_least(base_type type) {
    const tile_scale kind = forms[type].kind;
    return kind == SCALE_D_M || kind == SCALE_2 || kind == SCALE_4 ||
           (BUILD_HAS_OWN_TYPES && kind == SCALE_AFFINE);
}

static bool is_plain(base_type type) {
    return type == TYPE_F32 || type == TYPE_F16 || type == TYPE_BF16;
}

bool tile_weight_known(base_type type) {
    return is_plain(type) || (type < TYPE_COUNT && forms[type].kind != SCALE_NONE);
}

static uint32_t runs_of(base_type type) {
    return is_plain(type) ? 1 : 8u / forms[type].low.bits;
}

uint32_t tile_weight_chunk(base_type type) {
    return runs_of(type) * TILE_RUN;
}

/* ---- where things lie ------------------------------------------------------------------------ */

static void shape(tile_weight *w, tile_kernel *k, base_type type, uint32_t n) {
    *w = (tile_weight){
        .k = k, .type = type, .n = n, .plain = is_plain(type), .chunks = 1, .runs = runs_of(type)};
    w->blocks = n / (w->plain ? TILE_RUN : base_type_block(type));
    if (!w->plain) w->chunks = base_type_block(type) / tile_weight_chunk(type);
}

static ir_type plain_type(base_type type) {
    return type == TYPE_F32 ? IR_F32 : type == TYPE_F16 ? IR_F16 : IR_BF16;
}

ir_type tile_weight_element(base_type type) {
    return is_plain(type) ? plain_type(type) : IR_U32;
}

void tile_weight_made(tile_weight *w, tile_kernel *k, base_type type, uint32_t n, ir_memory from) {
    shape(w, k, type, n);
    w->from = from;
    w->start = ir_u32(k->b, 0);
    w->row = ir_u32(k->b, w->plain ? n : w->blocks);
    w->aligned = n % k->wide == 0;
}

void tile_weight_stored(tile_weight *w, tile_kernel *k, const char *name, graph_value v,
                        uint32_t shard, uint32_t n) {
    const store_tensor *t = lower_stored(k->l, v);
    shape(w, k, t->type, n);
    w->from = tile_shard(k, name, v, shard, w->plain ? plain_type(t->type) : IR_U32);
    w->start = ir_u32(k->b, 0);
    w->row = tile_u32(k, "row", w->plain ? n : w->blocks);
    w->aligned = n % k->wide == 0;
    static const char *const names[PACK_PLANE_MAX] = {"plane0", "plane1", "plane2", "plane3"};
    const graph_pack_layout *layout = &t->shard[shard].layout;
    w->plane[0] = w->start;
    for (uint32_t i = 1; i < layout->n_plane; i++)
        w->plane[i] = tile_u32(k, names[i], (uint32_t)(layout->offset[i] / 4));
}

void tile_weight_plain(tile_weight *w, tile_kernel *k, const char *name, graph_value v,
                       uint32_t n) {
    const graph_tensor *t = graph_tensor_at(k->l->g, v);
    shape(w, k, t->type, n);
    w->from = tile_bind(k, name, v, plain_type(t->type), IR_READ);
    w->start = tile_u32(k, "weight_offset", t->offset);
    w->row = tile_u32(k, "row", n);
    w->aligned = n % k->wide == 0 && t->offset % k->wide == 0;
}

/* Word `at` of the entry of block `number` in a plane. */
static ir_id word_index(const tile_weight *w, uint32_t plane, ir_id number, uint32_t at) {
    ir_id entry = tile_mul(w->k->b, number, tile_weight_words(w->type, plane));
    return tile_add(w->k->b, ir_add(w->k->b, entry, w->plane[plane]), at);
}

static ir_id word_of(const tile_weight *w, uint32_t plane, ir_id number, uint32_t at) {
    return ir_load(w->k->b, w->from, word_index(w, plane, number, at), 1);
}

/* The entry of 1 or 2 bytes of block `number`, in the low bits. */
static ir_id small_of(const tile_weight *w, uint32_t plane, ir_id number) {
    ir_builder *b = w->k->b;
    const uint32_t bytes = base_type_field(w->type, plane).size;
    ir_id word = word_of(w, plane, tile_div(b, number, 4 / bytes), 0);
    return ir_shr(b, word, tile_mul(b, tile_rem(b, number, 4 / bytes), bytes * 8));
}

static ir_id half(const tile_weight *w, ir_id word) { /* the low one */
    ir_builder *b = w->k->b;
    return ir_cast(b, IR_F32, ir_bitcast(b, IR_F16, 1, ir_cast(b, IR_U16, word)));
}

/* ---- scales ---------------------------------------------------------------------------------- */

/* Four bits in each of the four 16-bit words. */
static ir_id scattered_half(const tile_weight *w, const tile_chunk *c) {
    ir_builder *b = w->k->b;
    const uint32_t plane = forms[w->type].d;
    ir_id low = word_of(w, plane, c->number, 0), high = word_of(w, plane, c->number, 1);
    ir_id first = ir_or(b, tile_and(b, tile_shr(b, low, 12), 0xf),
                        tile_and(b, tile_shr(b, low, 24), 0xf0)),
          last = ir_or(b, tile_and(b, tile_shr(b, high, 4), 0xf00),
                       tile_and(b, tile_shr(b, high, 16), 0xf000));
    return half(w, ir_or(b, first, last));
}

/* What the whole block shares. */
static void load_block(const tile_weight *w, tile_chunk *c) {
    const tile_block_form *f = &forms[w->type];
    ir_builder *b = w->k->b;
    ir_id word;
    c->d = c->m = c->header = IR_NO_ID;
    switch (f->kind) {
    case SCALE_NONE: break;
    case SCALE_D:
    case SCALE_3:
    case SCALE_6: c->d = half(w, small_of(w, f->d, c->number)); break;
    case SCALE_POWER: {
        ir_id e = tile_and(b, small_of(w, f->d, c->number), 255);
        ir_id large = tile_shl(b, tile_add(b, e, UINT32_MAX), 23),
              tiny = ir_shl(b, ir_u32(b, 0x00200000u), e);
        c->d = ir_bitcast(b, IR_F32, 1, ir_select(b, ir_lt(b, e, ir_u32(b, 2)), tiny, large));
        break;
    }
    case SCALE_E4M3: c->header = word_of(w, f->d, c->number, 0); break;
    case SCALE_D_M:
    case SCALE_2:
        word = word_of(w, f->d, c->number, 0);
        c->d = half(w, word);
        c->m = half(w, tile_shr(b, word, 16));
        break;
    case SCALE_4:
        c->header = ir_load(b, w->from, word_index(w, f->d, c->number, 0), 4);
        word = ir_extract(b, c->header, 0);
        c->d = half(w, word);
        c->m = half(w, tile_shr(b, word, 16));
        break;
    case SCALE_FLOAT:
        if (BUILD_HAS_OWN_TYPES) c->d = ir_f32(b, 1);
        break;
    case SCALE_AFFINE:
        if (!BUILD_HAS_OWN_TYPES) break;
        c->d = ir_bitcast(b, IR_F32, 1, word_of(w, f->d, c->number, 0));
        c->m = ir_bitcast(b, IR_F32, 1, word_of(w, f->d, c->number, 1));
        break;
    case SCALE_IQ4: c->d = half(w, word_of(w, f->d, c->number, 0)); break;
    case SCALE_OWN:
        c->d = w->type == TYPE_IQ1_M ? scattered_half(w, c) : half(w, small_of(w, f->d, c->number));
        break;
    }
}

static ir_id to_float(ir_builder *b, ir_id number) {
    return ir_cast(b, IR_F32, number);
}

/* (S, M) of sub-block `sub`, 0 .. 7. */
static void pair_of(const tile_weight *w, const tile_chunk *c, ir_id sub, ir_id *s, ir_id *m) {
    ir_builder *b = w->k->b;
    ir_id shift = tile_mul(b, tile_and(b, sub, 3), 8);
    ir_id first = ir_shr(b, ir_extract(b, c->header, 1), shift),
          second = ir_shr(b, ir_extract(b, c->header, 2), shift);
    ir_id third = ir_shr(b, ir_extract(b, c->header, 3), shift),
          early = ir_lt(b, sub, ir_u32(b, 4));
    ir_id late_s = ir_or(b, tile_and(b, third, 15), tile_and(b, tile_shr(b, first, 2), 48));
    ir_id late_m =
        ir_or(b, tile_and(b, tile_shr(b, third, 4), 15), tile_and(b, tile_shr(b, second, 2), 48));
    *s = ir_select(b, early, tile_and(b, first, 63), late_s);
    *m = ir_select(b, early, tile_and(b, second, 63), late_m);
}

/* 6 bits of 12 bytes, for sub-block `sub`, 0 .. 15. */
static ir_id six_bits(const tile_weight *w, const tile_chunk *c, uint32_t plane, ir_id sub) {
    ir_builder *b = w->k->b;
    ir_id base = word_index(w, plane, c->number, 0), eighth = tile_and(b, sub, 7),
          upper = tile_shr(b, sub, 3);
    ir_id low = ir_load(b, w->from, ir_add(b, base, tile_shr(b, eighth, 2)), 1);
    ir_id shift = ir_add(b, tile_mul(b, tile_and(b, eighth, 3), 8), tile_mul(b, upper, 4));
    ir_id high = ir_load(b, w->from, tile_add(b, base, 2), 1);
    ir_id place =
        ir_add(b, tile_mul(b, tile_and(b, sub, 3), 8), tile_mul(b, tile_shr(b, sub, 2), 2));
    return ir_or(b, tile_and(b, ir_shr(b, low, shift), 15),
                 tile_shl(b, tile_and(b, ir_shr(b, high, place), 3), 4));
}

/* of 16, upper bits: any */
static ir_id byte_of(const tile_weight *w, const tile_chunk *c, uint32_t plane, ir_id sub) {
    ir_builder *b = w->k->b;
    ir_id at = ir_add(b, word_index(w, plane, c->number, 0), tile_shr(b, sub, 2));
    return ir_shr(b, ir_load(b, w->from, at, 1), tile_mul(b, tile_and(b, sub, 3), 8));
}

/* y = scale * q + least for the elements that begin at `element` of the block; least IR_NO_ID:
 * 0. */
static void scale_of(const tile_weight *w, const tile_chunk *c, ir_id element, ir_id *factor,
                     ir_id *least) {
    const tile_block_form *f = &forms[w->type];
    ir_builder *b = w->k->b;
    ir_id sub = f->sub ? tile_div(b, element, f->sub) : IR_NO_ID, s = IR_NO_ID, m = IR_NO_ID;
    *factor = c->d;
    *least = c->m;
    switch (f->kind) {
    case SCALE_NONE:
    case SCALE_OWN:
    case SCALE_D:
    case SCALE_D_M:
    case SCALE_FLOAT:
    case SCALE_AFFINE:
    case SCALE_POWER: return;
    case SCALE_2:
        s = byte_of(w, c, f->scales, sub);
        m = tile_and(b, tile_shr(b, s, 4), 15);
        s = tile_and(b, s, 15);
        break;
    case SCALE_4: pair_of(w, c, sub, &s, &m); break;
    case SCALE_E4M3: { /* an f16 but for its exponent's bias, 15 in place of 7 */
        ir_id byte = tile_and(b, ir_shr(b, c->header, tile_mul(b, sub, 8)), 127);
        *factor = ir_mul(b, half(w, tile_shl(b, byte, 7)), ir_f32(b, 128));
        return;
    }
    case SCALE_3:
        *factor =
            ir_mul(b, c->d, ir_sub(b, to_float(b, six_bits(w, c, f->scales, sub)), ir_f32(b, 32)));
        return;
    case SCALE_6: {
        ir_id sign = ir_bitcast(b, IR_I32, 1, tile_shl(b, byte_of(w, c, f->scales, sub), 24));
        *factor = ir_mul(b, c->d, to_float(b, tile_shr(b, sign, 24)));
        return;
    }
    case SCALE_IQ4: {
        ir_id low = tile_and(b, ir_shr(b, word_of(w, f->d, c->number, 1), tile_mul(b, sub, 4)), 15);
        ir_id place = tile_add(b, tile_mul(b, sub, 2), 16);
        ir_id high = tile_and(b, ir_shr(b, word_of(w, f->d, c->number, 0), place), 3);
        *factor = ir_mul(
            b, c->d, ir_sub(b, to_float(b, ir_or(b, low, tile_shl(b, high, 4))), ir_f32(b, 32)));
        return;
    }
    }
    *factor = ir_mul(b, c->d, to_float(b, s));
    *least = ir_neg(b, ir_mul(b, c->m, to_float(b, m)));
}

/* ---- numbers --------------------------------------------------------------------------------- */

/* u32x4 as vectors of u32, whose lanes hold one of the 16 bytes each: alone, or with bytes above
 * that shifts will bring down. */
static void spread(tile_kernel *k, ir_id words, ir_id *bytes) {
    ir_builder *b = k->b;
    if (k->wide == TILE_RUN) {
        bytes[0] = ir_cast(b, IR_U32, ir_bitcast(b, IR_U8, TILE_RUN, words));
        return;
    }
    ir_id places = tile_ramp(b, 4, 0, 8);
    for (uint32_t i = 0; i < 4; i++)
        bytes[i] = ir_shr(b, ir_splat(b, ir_extract(b, words, i), 4), places);
}

/* Bits of vector i of a run where groups are of eight bytes, whose lower halves are the run's
 * first eight elements. */
static ir_id bits_of_eights(tile_kernel *k, const ir_id *bytes, uint32_t run, uint32_t i) {
    if (k->wide < TILE_RUN) return tile_shr(k->b, bytes[2 * run + i % 2], i / 2 * 4);
    ir_id halves[2] = {bytes[0], tile_shr(k->b, bytes[0], 4)}, lanes[TILE_RUN];
    for (uint32_t j = 0; j < TILE_RUN; j++)
        lanes[j] = ir_extract(k->b, halves[j / 8], 8 * run + j % 8);
    return ir_compose(k->b, lanes, TILE_RUN);
}

/* Where a run's elements stand in its block. */
ir_id tile_run_in_block(const tile_weight *w, ir_id part, uint32_t run) {
    ir_builder *b = w->k->b;
    const tile_bits low = forms[w->type].low;
    ir_id byte = tile_mul(b, part, TILE_RUN);
    if (low.group <= TILE_RUN)
        return tile_add(b, tile_mul(b, part, TILE_RUN * w->runs), run * TILE_RUN);
    ir_id group = tile_mul(b, tile_div(b, byte, low.group), low.group * w->runs);
    return tile_add(b, ir_add(b, group, tile_rem(b, byte, low.group)), run * low.group);
}

ir_id tile_run_at(const tile_weight *w, ir_id block, ir_id part, uint32_t run) {
    ir_builder *b = w->k->b;
    if (w->plain) return tile_mul(b, block, TILE_RUN);
    return ir_add(b, tile_mul(b, block, base_type_block(w->type)), tile_run_in_block(w, part, run));
}

void tile_chunk_load(const tile_weight *w, ir_id row, ir_id block, ir_id part, tile_chunk *c) {
    tile_kernel *k = w->k;
    *c = (tile_chunk){.row = row, .block = block, .part = part};
    if (w->plain) return;
    const tile_bits low = forms[w->type].low;
    c->number = ir_fma(k->b, row, w->row, block);
    if (forms[w->type].kind == SCALE_OWN) {
        load_block(w, c);
        return;
    }
    ir_id at = ir_add(k->b, word_index(w, low.plane, c->number, low.at), tile_mul(k->b, part, 4));
    c->words = ir_load(k->b, w->from, at, 4);
    if (low.bits < 8) spread(k, c->words, c->bytes);
    load_block(w, c);
}

/* Bits of the high plane for the run that begins at `element` of the block, in the vectors' low
 * bits. */
static void high_bits(const tile_weight *w, const tile_chunk *c, ir_id element, ir_id *out) {
    const tile_bits high = forms[w->type].high;
    tile_kernel *k = w->k;
    ir_builder *b = k->b;
    const uint32_t n = TILE_RUN / k->wide;
    if (!high.group) { /* one word */
        ir_id word = ir_shr(b, word_of(w, high.plane, c->number, high.at), element);
        for (uint32_t i = 0; i < n; i++)
            out[i] = tile_and(
                b, ir_shr(b, ir_splat(b, word, k->wide), tile_ramp(b, k->wide, i * k->wide, 1)), 1);
        return;
    }
    const uint32_t span = high.group * 8u / high.bits; /* elements of a group */
    ir_id byte = ir_add(b, tile_mul(b, tile_div(b, element, span), high.group),
                        tile_rem(b, element, high.group));
    ir_id at = ir_add(b, word_index(w, high.plane, c->number, high.at), tile_div(b, byte, 4));
    ir_id shift = tile_mul(b, tile_div(b, tile_rem(b, element, span), high.group), high.bits);
    spread(k, ir_load(b, w->from, at, 4), out);
    for (uint32_t i = 0; i < n; i++)
        out[i] = tile_and(b, ir_shr(b, out[i], ir_splat(b, shift, k->wide)), (1u << high.bits) - 1);
}

static ir_id look_up(ir_builder *b, ir_id index, const uint32_t *table, uint32_t width) {
    ir_id zero = ir_bits(b, IR_U32, width, 0), odd = ir_ne(b, tile_and(b, index, 4), zero);
    ir_id low =
        ir_select(b, odd, ir_bits(b, IR_U32, width, table[1]), ir_bits(b, IR_U32, width, table[0]));
    ir_id high =
        ir_select(b, odd, ir_bits(b, IR_U32, width, table[3]), ir_bits(b, IR_U32, width, table[2]));
    ir_id word = ir_select(b, ir_ne(b, tile_and(b, index, 8), zero), high, low);
    ir_id up = ir_sub(b, ir_bits(b, IR_U32, width, 24), tile_shl(b, tile_and(b, index, 3), 3));
    return ir_cast(b, IR_F32, tile_shr(b, ir_bitcast(b, IR_I32, width, ir_shl(b, word, up)), 24));
}

/* 16 signed bytes. */
static void signed_bytes(tile_kernel *k, ir_id words, ir_id *out) {
    ir_builder *b = k->b;
    if (k->wide == TILE_RUN) {
        out[0] = ir_cast(b, IR_F32, ir_cast(b, IR_I32, ir_bitcast(b, IR_I8, TILE_RUN, words)));
        return;
    }
    ir_id up = tile_ramp(b, 4, 24, (uint32_t)-8);
    for (uint32_t i = 0; i < 4; i++) {
        ir_id top =
            ir_bitcast(b, IR_I32, 4, ir_shl(b, ir_splat(b, ir_extract(b, words, i), 4), up));
        out[i] = ir_cast(b, IR_F32, tile_shr(b, top, 24));
    }
}

static bool is_small_float(const tile_block_form *f) {
    return BUILD_HAS_OWN_TYPES && f->kind == SCALE_FLOAT;
}

/* Floats of 8 bits, as base/types.c has them, in the low bits of a vector. */
static ir_id small_floats(ir_builder *b, base_type type, ir_id codes, uint32_t width) {
    const bool long_one = type == TYPE_F8_E4M3;
    const uint32_t fraction = long_one ? 3 : 2, special = long_one ? 127 : 124,
                   normal = (long_one ? 120u : 112u) << 23;
    ir_id rest = tile_and(b, codes, 127), sign = tile_shl(b, tile_and(b, codes, 128), 24);
    ir_id step = ir_number(b, IR_F32, width, long_one ? 0x1p-9 : 0x1p-16),
          tiny = ir_bitcast(b, IR_U32, width, ir_mul(b, ir_cast(b, IR_F32, rest), step));
    ir_id bits = tile_add(b, tile_shl(b, rest, 23 - fraction), normal);
    bits = ir_select(b, ir_lt(b, rest, ir_bits(b, IR_U32, width, special)), bits,
                     tile_add(b, bits, normal));
    bits = ir_select(b, ir_lt(b, rest, ir_bits(b, IR_U32, width, 1u << fraction)), tiny, bits);
    return ir_bitcast(b, IR_F32, width, ir_or(b, bits, sign));
}

/* ---- fours and sixteenths by rules of their own, as base/types.c has them -------------------- */

typedef struct four { /* neighbouring elements */
    ir_id bytes;      /* signed numbers, the first lowest */
    ir_id power;      /* IR_NO_ID; else those are fractions to the base 3, of which this is asked */
    ir_id signs;      /* IR_NO_ID, or bits: made negative where set */
    ir_id more;       /* IR_NO_ID, or what is added */
} four;

/* Word `first` and id `at` on of the block's entry. */
static ir_id word_at(const tile_weight *w, const tile_chunk *c, uint32_t plane, uint32_t first,
                     ir_id at) {
    ir_id index = word_index(w, plane, c->number, first);
    return ir_load(w->k->b, w->from, ir_add(w->k->b, index, at), 1);
}

/* Field `i` of so many fields of `bits`, a power of two, that begin at a word. */
static ir_id field_at(const tile_weight *w, const tile_chunk *c, uint32_t plane, uint32_t first,
                      uint32_t bits_each, ir_id i) {
    ir_builder *b = w->k->b;
    const uint32_t each = 32 / bits_each;
    ir_id word = word_at(w, c, plane, first, tile_div(b, i, each));
    ir_id shift = tile_mul(b, tile_rem(b, i, each), bits_each);
    return tile_and(b, ir_shr(b, word, shift), (1u << bits_each) - 1);
}

/* Signs of eight numbers: those given, and what makes the negative ones an even number. */
static ir_id eighth_sign(ir_builder *b, ir_id seven) {
    ir_id x = seven;
    for (uint32_t by = 4; by; by /= 2) x = ir_xor(b, x, tile_shr(b, x, by));
    return ir_or(b, seven, tile_shl(b, tile_and(b, x, 1), 7));
}

static ir_id seventh_of(ir_builder *b, ir_id word, ir_id i) {
    return eighth_sign(b, tile_and(b, ir_shr(b, word, tile_mul(b, i, 7)), 127));
}

/* The second or first four numbers of an entry; of four: all. The table is the last plane. */
static ir_id entry_half(const tile_weight *w, ir_id entry, ir_id second) {
    ir_builder *b = w->k->b;
    uint32_t plane = 0;
    while (base_type_field(w->type, plane).size) plane++;
    ir_id at = forms[w->type].entry == 4 ? entry : ir_add(b, tile_mul(b, entry, 2), second);
    return ir_load(b, w->from, ir_add(b, w->plane[plane], at), 1);
}

static ir_id eighth_of_one(ir_builder *b, ir_id down) {
    return ir_select(b, ir_ne(b, down, ir_u32(b, 0)), ir_f32(b, -0.125f), ir_f32(b, 0.125f));
}

/* Fives of 32 bytes, fives of 16, fours of 4: each byte's first, then each byte's second ... */
static four four_of_threes(const tile_weight *w, const tile_chunk *c, ir_id at) {
    ir_builder *b = w->k->b;
    ir_id run = tile_div(b, at, 4), i = tile_rem(b, at, 4);
    ir_id early = ir_lt(b, run, ir_u32(b, 10)), last = ir_eq(b, run, ir_u32(b, 15));
    ir_id word = ir_select(b, early, tile_rem(b, at, 8), tile_add(b, i, 8)),
          turn = ir_select(b, early, tile_div(b, run, 2), tile_add(b, run, 0u - 10));
    word = ir_select(b, last, ir_u32(b, 12), word);
    turn = ir_select(b, last, i, turn);
    ir_id small =
        tile_and(b, ir_shr(b, ir_u32(b, 0x1b090301u), tile_mul(b, tile_rem(b, turn, 4), 8)), 255);
    return (four){.bytes = word_at(w, c, 0, 0, word),
                  .power = ir_select(b, ir_eq(b, turn, ir_u32(b, 4)), ir_u32(b, 81), small),
                  .signs = IR_NO_ID,
                  .more = IR_NO_ID};
}

/* Four `at` of the block's 64. */
static four four_at(const tile_weight *w, const tile_chunk *c, ir_id at) {
    ir_builder *b = w->k->b;
    ir_id eight = tile_div(b, at, 2), second = tile_rem(b, at, 2), part = tile_div(b, at, 8),
          turn = tile_rem(b, eight, 4);
    ir_id entry, high, word, signs = IR_NO_ID, more = IR_NO_ID;
    switch ((int)w->type) {
    case TYPE_TQ1_0: return four_of_threes(w, c, at);
    case TYPE_IQ2_XXS:
        word = word_at(w, c, 0, 0, tile_mul(b, part, 2));
        entry = tile_and(b, ir_shr(b, word, tile_mul(b, turn, 8)), 255);
        signs = seventh_of(b, word_at(w, c, 0, 1, tile_mul(b, part, 2)), turn);
        break;
    case TYPE_IQ2_XS:
        word = field_at(w, c, 0, 0, 16, eight);
        entry = tile_and(b, word, 511);
        signs = eighth_sign(b, tile_shr(b, word, 9));
        break;
    case TYPE_IQ2_S:
        high = field_at(w, c, 1, 0, 2, eight);
        entry = ir_or(b, field_at(w, c, 0, 0, 8, eight), tile_shl(b, high, 8));
        signs = field_at(w, c, 0, 8, 8, eight);
        break;
    case TYPE_IQ3_XXS:
        entry = field_at(w, c, 0, 0, 8, at);
        signs = seventh_of(b, word_at(w, c, 1, 0, part), turn);
        break;
    case TYPE_IQ3_S:
        high = field_at(w, c, 1, 0, 1, at);
        entry = ir_or(b, field_at(w, c, 0, 0, 8, at), tile_shl(b, high, 8));
        signs = field_at(w, c, 1, 2, 8, eight);
        break;
    case TYPE_IQ1_S:
        word = field_at(w, c, 1, 0, 16, part);
        high = tile_and(b, ir_shr(b, word, tile_mul(b, turn, 3)), 7);
        entry = ir_or(b, field_at(w, c, 0, 0, 8, eight), tile_shl(b, high, 8));
        more = eighth_of_one(b, tile_shr(b, word, 15));
        break;
    default: /* IQ1_M */
        word = field_at(w, c, 1, 0, 4, eight);
        high = tile_and(b, word, 7);
        entry = ir_or(b, field_at(w, c, 0, 0, 8, eight), tile_shl(b, high, 8));
        more = eighth_of_one(b, tile_shr(b, word, 3));
        break;
    }
    if (signs != IR_NO_ID) signs = ir_shr(b, signs, tile_mul(b, second, 4));
    return (four){
        .bytes = entry_half(w, entry, second), .power = IR_NO_ID, .signs = signs, .more = more};
}

/* What sixteenth `at` of the block is multiplied with. */
static ir_id factor_at(const tile_weight *w, const tile_chunk *c, ir_id at) {
    ir_builder *b = w->k->b;
    ir_id part = tile_div(b, at, 2), s, word;
    switch ((int)w->type) {
    case TYPE_TQ1_0: return c->d;
    case TYPE_IQ2_XXS: s = tile_shr(b, word_at(w, c, 0, 1, tile_mul(b, part, 2)), 28); break;
    case TYPE_IQ2_XS: s = field_at(w, c, 1, 0, 4, at); break;
    case TYPE_IQ2_S: s = field_at(w, c, 1, 2, 4, at); break;
    case TYPE_IQ3_XXS: s = tile_shr(b, word_at(w, c, 1, 0, part), 28); break;
    case TYPE_IQ3_S: s = field_at(w, c, 1, 10, 4, part); break;
    case TYPE_IQ1_S: s = tile_and(b, tile_shr(b, field_at(w, c, 1, 0, 16, part), 12), 7); break;
    default: /* IQ1_M */
        word = field_at(w, c, 2, 0, 16, tile_div(b, at, 4));
        s = tile_and(b, ir_shr(b, word, tile_mul(b, tile_rem(b, at, 4), 3)), 7);
        break;
    }
    const float by = forms[w->type].by; /* all are exact */
    ir_id by_scale = ir_mul(b, ir_add(b, to_float(b, s), ir_f32(b, 0.5f)), ir_f32(b, by));
    return ir_mul(b, c->d, by_scale);
}

/* Its elements `lane`, a vector of `width`. */
static ir_id numbers_of(ir_builder *b, const four *f, ir_id lane, uint32_t width) {
    ir_id shift = tile_shl(b, lane, 3), bytes = ir_splat(b, f->bytes, width), x;
    if (f->power != IR_NO_ID) {
        x = ir_mul(b, tile_and(b, ir_shr(b, bytes, shift), 255), ir_splat(b, f->power, width));
        x = ir_mul(b, tile_and(b, x, 255), ir_bits(b, IR_U32, width, 3));
        x = ir_sub(b, ir_cast(b, IR_F32, tile_shr(b, x, 8)), ir_number(b, IR_F32, width, 1));
    } else {
        ir_id top = ir_shl(b, bytes, ir_sub(b, ir_bits(b, IR_U32, width, 24), shift));
        x = ir_cast(b, IR_F32, tile_shr(b, ir_bitcast(b, IR_I32, width, top), 24));
    }
    if (f->signs != IR_NO_ID) {
        ir_id up = ir_sub(b, ir_bits(b, IR_U32, width, 31), lane),
              sign = tile_and(b, ir_shl(b, ir_splat(b, f->signs, width), up), 0x80000000u);
        x = ir_bitcast(b, IR_F32, width, ir_xor(b, ir_bitcast(b, IR_U32, width, x), sign));
    }
    return f->more == IR_NO_ID ? x : ir_add(b, x, ir_splat(b, f->more, width));
}

static void own_run(const tile_weight *w, const tile_chunk *c, uint32_t run, ir_id *values) {
    tile_kernel *k = w->k;
    ir_id first = tile_add(k->b, tile_mul(k->b, c->part, 8), 4 * run), fours[4];
    ir_id factor = ir_splat(k->b, factor_at(w, c, tile_div(k->b, first, 4)), 4),
          lanes = tile_ramp(k->b, 4, 0, 1);
    for (uint32_t i = 0; i < 4; i++) {
        const four own = four_at(w, c, tile_add(k->b, first, i));
        fours[i] = ir_mul(k->b, numbers_of(k->b, &own, lanes, 4), factor);
    }
    if (k->wide == TILE_RUN) values[0] = ir_compose(k->b, fours, 4);
    else
        for (uint32_t i = 0; i < 4; i++) values[i] = fours[i];
}

void tile_run_load(const tile_weight *w, const tile_chunk *c, uint32_t run, ir_id *values) {
    tile_kernel *k = w->k;
    ir_builder *b = k->b;
    if (w->plain) {
        ir_id at = ir_add(b, ir_fma(b, c->row, w->row, w->start), tile_mul(b, c->block, TILE_RUN));
        tile_load_run(k, w->from, at, w->aligned, values);
        return;
    }
    const tile_block_form *f = &forms[w->type];
    if (f->kind == SCALE_OWN) {
        own_run(w, c, run, values);
        return;
    }
    const uint32_t n = TILE_RUN / k->wide;
    ir_id high[4], factor, least, element = tile_run_in_block(w, c->part, run);
    if (is_small_float(f)) spread(k, c->words, values);
    else if (f->low.bits == 8) signed_bytes(k, c->words, values);
    if (f->high.bits) high_bits(w, c, element, high);
    scale_of(w, c, element, &factor, &least);
    factor = ir_splat(b, factor, k->wide);
    if (least != IR_NO_ID) least = ir_splat(b, least, k->wide);
    for (uint32_t i = 0; i < n; i++) {
        if (is_small_float(f)) {
            values[i] = small_floats(b, w->type, values[i], k->wide);
            continue;
        }
        if (f->low.bits < 8) {
            ir_id q = f->low.group == 8 ? bits_of_eights(k, c->bytes, run, i)
                                        : tile_shr(b, c->bytes[i], run * f->low.bits);
            q = tile_and(b, q, (1u << f->low.bits) - 1);
            if (f->high.bits) q = ir_or(b, q, tile_shl(b, high[i], f->low.bits));
            values[i] =
                f->table ? look_up(b, q, tables[f->table - 1], k->wide) : ir_cast(b, IR_F32, q);
        }
        if (f->zero) values[i] = ir_sub(b, values[i], ir_number(b, IR_F32, k->wide, f->zero));
        values[i] =
            least == IR_NO_ID ? ir_mul(b, values[i], factor) : ir_fma(b, values[i], factor, least);
    }
}

/* `word` in each of `width` elements, each `step` bits further down than the one before. */
static ir_id spread_word(ir_builder *b, ir_id word, uint32_t width, uint32_t step) {
    if (width == 1) return word;
    return ir_shr(b, ir_splat(b, word, width), tile_ramp(b, width, 0, step));
}

/* The bits of `width` elements of the block, in the low bits; of 8: with their sign. */
static ir_id element_bits(const tile_weight *w, const tile_chunk *c, tile_bits f, ir_id element,
                          uint32_t width) {
    ir_builder *b = w->k->b;
    const uint32_t mask = (1u << f.bits) - 1;
    if (!f.group) {
        ir_id word = ir_shr(b, word_of(w, f.plane, c->number, f.at), element);
        return tile_and(b, spread_word(b, word, width, 1), mask);
    }
    const uint32_t span = f.group * 8u / f.bits; /* elements of a group */
    ir_id byte =
        ir_add(b, tile_mul(b, tile_div(b, element, span), f.group), tile_rem(b, element, f.group));
    ir_id word = ir_load(
        b, w->from, ir_add(b, word_index(w, f.plane, c->number, f.at), tile_div(b, byte, 4)), 1);
    ir_id shift = width == 1 ? tile_mul(b, tile_rem(b, byte, 4), 8) : ir_u32(b, 0);
    if (f.bits == 8) {
        ir_id up =
            width == 1 ? ir_sub(b, ir_u32(b, 24), shift) : tile_ramp(b, width, 24, (uint32_t)-8);
        if (width > 1) word = ir_splat(b, word, width);
        return tile_shr(b, ir_bitcast(b, IR_I32, width, ir_shl(b, word, up)), 24);
    }
    shift = ir_add(b, shift, tile_mul(b, tile_div(b, tile_rem(b, element, span), f.group), f.bits));
    return tile_and(b, spread_word(b, ir_shr(b, word, shift), width, 8), mask);
}

uint32_t tile_weight_span(base_type type) {
    const tile_block_form *f = &forms[type];
    if (is_plain(type) || f->kind == SCALE_OWN) return TILE_RUN;
    return f->sub ? f->sub : base_type_block(type);
}

void tile_block_open(const tile_weight *w, ir_id row, ir_id block, tile_chunk *c) {
    *c = (tile_chunk){.row = row};
    if (w->plain) return;
    c->number = ir_fma(w->k->b, row, w->row, block);
    load_block(w, c);
}

void tile_span_open(const tile_weight *w, ir_id element, tile_chunk *c) {
    if (w->plain) return;
    if (forms[w->type].kind != SCALE_OWN) scale_of(w, c, element, &c->factor, &c->least);
    else c->factor = factor_at(w, c, tile_div(w->k->b, element, TILE_RUN)), c->least = IR_NO_ID;
}

ir_id tile_elements_load(const tile_weight *w, const tile_chunk *c, ir_id element, uint32_t width) {
    tile_kernel *k = w->k;
    ir_builder *b = k->b;
    if (w->plain) {
        ir_id at = ir_add(b, ir_fma(b, c->row, w->row, w->start), element);
        return width == 1 ? ir_cast(b, IR_F32, ir_load(b, w->from, at, 1))
                          : tile_load_vector(k, w->from, at, w->aligned);
    }
    const tile_block_form *f = &forms[w->type];
    ir_id factor = ir_splat(b, c->factor, width);
    if (f->kind == SCALE_OWN) {
        const four own = four_at(w, c, tile_div(b, element, 4));
        ir_id lanes = width == 1 ? tile_rem(b, element, 4) : tile_ramp(b, width, 0, 1);
        return ir_mul(b, numbers_of(b, &own, lanes, width), factor);
    }
    ir_id q = element_bits(w, c, f->low, element, width);
    if (is_small_float(f)) return small_floats(b, w->type, ir_bitcast(b, IR_U32, width, q), width);
    if (f->high.bits)
        q = ir_or(b, q, tile_shl(b, element_bits(w, c, f->high, element, width), f->low.bits));
    ir_id value = f->table ? look_up(b, q, tables[f->table - 1], width) : ir_cast(b, IR_F32, q);
    if (f->zero) value = ir_sub(b, value, ir_number(b, IR_F32, width, f->zero));
    return c->least == IR_NO_ID ? ir_mul(b, value, factor)
                                : ir_fma(b, value, factor, ir_splat(b, c->least, width));
}

ir_id tile_element_load(const tile_weight *w, ir_id row, ir_id column) {
    const uint32_t each = w->plain ? 0 : base_type_block(w->type);
    ir_id element = each ? tile_rem(w->k->b, column, each) : column;
    tile_chunk c;
    tile_block_open(w, row, each ? tile_div(w->k->b, column, each) : IR_NO_ID, &c);
    tile_span_open(w, element, &c);
    return tile_elements_load(w, &c, element, 1);
}
