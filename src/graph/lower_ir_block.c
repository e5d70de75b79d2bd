/* lower_ir_block.c - see lower_ir_block.h.
 *
 * The one idea: a table says where a block type keeps the bits of an element, and how scales belong to its sub-blocks; the
 * code that follows is written once. The planes are those of pack.c, the meaning of the fields is that of the formats'
 * description (64-bit words never cross a plane, so everything is read as 32-bit words). */
#include "graph/lower_ir_block.h"

typedef enum scale {
    SCALE_NONE,
    SCALE_D,      /* y = d q */
    SCALE_D_M,    /* y = d q + m */
    SCALE_POWER,  /* y = 2^(e - 128) q */
    SCALE_E4M3,   /* y = S / 2 q, 4 bytes e4m3 */
    SCALE_2,      /* d (c & 15) q - dmin (c >> 4), 16 bytes */
    SCALE_3,      /* d (S - 32) q, S of 6 bits in 12 bytes */
    SCALE_4,      /* d S q - dmin M, S and M of 6 bits in 12 bytes after d and dmin */
    SCALE_6,      /* d S q, 16 signed bytes */
    SCALE_IQ4     /* d (S - 32) q, S of 6 bits in 6 bytes after d */
} scale;

/* Bits of elements: a group of g bytes holds g * 8 / bits elements, element e of it in byte e % g at bit (e / g) * bits.
 * group 8: 16 bytes hold two. group 0: one word, element e at bit e. */
typedef struct bits { uint8_t bits, plane, group, stride, at; } bits; /* stride: words a block in that plane; at: word in it */

typedef struct block_form {
    bits low, high;
    uint8_t zero;         /* taken off the bits' number; of 8 bits: they are signed */
    uint8_t table;        /* 1: IQ4's values, 2: E2M1's, doubled */
    scale kind;
    uint8_t sub;          /* elements that share a scale */
    uint8_t d, scales;    /* planes */
} block_form;

static const block_form forms[TYPE_COUNT] = {
    [TYPE_Q8_0] = {.low = {8, 0, 32, 8, 0}, .kind = SCALE_D, .d = 1},
    [TYPE_Q4_0] = {.low = {4, 0, 16, 4, 0}, .zero = 8, .kind = SCALE_D, .d = 1},
    [TYPE_IQ4_NL] = {.low = {4, 0, 16, 4, 0}, .table = 1, .kind = SCALE_D, .d = 1},
    [TYPE_Q4_1] = {.low = {4, 0, 16, 4, 0}, .kind = SCALE_D_M, .d = 1},
    [TYPE_Q5_0] = {.low = {4, 0, 16, 4, 0}, .high = {1, 2, 0, 1, 0}, .zero = 16, .kind = SCALE_D, .d = 1},
    [TYPE_Q5_1] = {.low = {4, 0, 16, 4, 0}, .high = {1, 1, 0, 2, 1}, .kind = SCALE_D_M, .d = 1},
    [TYPE_MXFP4] = {.low = {4, 0, 16, 4, 0}, .table = 2, .kind = SCALE_POWER, .d = 1},
    [TYPE_NVFP4] = {.low = {4, 0, 8, 8, 0}, .table = 2, .kind = SCALE_E4M3, .sub = 16, .d = 1},
    [TYPE_Q2_K] = {.low = {2, 0, 32, 16, 0}, .kind = SCALE_2, .sub = 16, .d = 2, .scales = 1},
    [TYPE_Q3_K] = {.low = {2, 0, 32, 16, 0}, .high = {1, 1, 32, 8, 0}, .zero = 4, .kind = SCALE_3, .sub = 16, .d = 3, .scales = 2},
    [TYPE_Q4_K] = {.low = {4, 0, 32, 32, 0}, .kind = SCALE_4, .sub = 32, .d = 1},
    [TYPE_Q5_K] = {.low = {4, 0, 32, 32, 0}, .high = {1, 2, 32, 8, 0}, .kind = SCALE_4, .sub = 32, .d = 1},
    [TYPE_Q6_K] = {.low = {4, 0, 64, 32, 0}, .high = {2, 1, 32, 16, 0}, .zero = 32, .kind = SCALE_6, .sub = 16, .d = 3, .scales = 2},
    [TYPE_IQ4_XS] = {.low = {4, 0, 16, 32, 0}, .table = 1, .kind = SCALE_IQ4, .sub = 32, .d = 1},
};

/* Signed bytes, four a word, lowest first: the values of IQ4_NL and IQ4_XS; doubled E2M1. */
static const uint32_t tables[2][4] = {{0xbfad9881u, 0xf6eaddcfu, 0x26190d01u, 0x71594535u},
                                      {0x03020100u, 0x0c080604u, 0xfdfeff00u, 0xf4f8fafcu}};

const uint32_t *lower_ir_weight_table(base_type type) {
    return forms[type].table ? tables[forms[type].table - 1] : NULL;
}

uint32_t lower_ir_weight_weave(base_type type) {
    return forms[type].table ? forms[type].low.group : 0;
}

static bool is_plain(base_type type) {
    return type == TYPE_F32 || type == TYPE_F16 || type == TYPE_BF16;
}

bool lower_ir_weight_known(base_type type) {
    return is_plain(type) || (type < TYPE_COUNT && forms[type].kind != SCALE_NONE);
}

/* ---- where things lie ------------------------------------------------------------------------------------------ */

static void shape(lower_ir_weight *w, lower_ir *k, base_type type, uint32_t n) {
    *w = (lower_ir_weight){.k = k, .type = type, .n = n, .plain = is_plain(type), .chunks = 1, .runs = 1};
    w->blocks = n / (w->plain ? LOWER_IR_RUN : base_type_block(type));
    if (w->plain) return;
    w->runs = 8 / forms[type].low.bits;
    w->chunks = base_type_block(type) / (w->runs * LOWER_IR_RUN);
}

static ir_type plain_type(base_type type) {
    return type == TYPE_F32 ? IR_F32 : type == TYPE_F16 ? IR_F16 : IR_BF16;
}

ir_type lower_ir_weight_element(base_type type) {
    return is_plain(type) ? plain_type(type) : IR_U32;
}

void lower_ir_weight_made(lower_ir_weight *w, lower_ir *k, base_type type, uint32_t n, ir_memory from) {
    shape(w, k, type, n);
    w->from = from;
    w->start = ir_u32(k->b, 0);
    w->row = ir_u32(k->b, w->plain ? n : w->blocks);
    w->aligned = n % k->wide == 0;
}

void lower_ir_weight_stored(lower_ir_weight *w, lower_ir *k, const char *name, graph_value v, uint32_t shard, uint32_t n) {
    const store_tensor *t = lower_stored(k->l, v);
    shape(w, k, t->type, n);
    w->from = lower_ir_shard(k, name, v, shard, w->plain ? plain_type(t->type) : IR_U32);
    w->start = ir_u32(k->b, 0);
    w->row = lower_ir_u32(k, "row", w->plain ? n : w->blocks);
    w->aligned = n % k->wide == 0;
    static const char *const names[PACK_PLANE_MAX] = {"plane0", "plane1", "plane2", "plane3"};
    const graph_pack_layout *layout = &t->shard[shard].layout;
    w->plane[0] = w->start;
    for (uint32_t i = 1; i < layout->n_plane; i++) w->plane[i] = lower_ir_u32(k, names[i], (uint32_t)(layout->offset[i] / 4));
}

void lower_ir_weight_plain(lower_ir_weight *w, lower_ir *k, const char *name, graph_value v, uint32_t n) {
    const graph_tensor *t = graph_tensor_at(k->l->g, v);
    shape(w, k, t->type, n);
    w->from = lower_ir_bind(k, name, v, plain_type(t->type), IR_READ);
    w->start = lower_ir_u32(k, "weight_offset", t->offset);
    w->row = lower_ir_u32(k, "row", n);
    w->aligned = n % k->wide == 0 && t->offset % k->wide == 0;
}

void lower_ir_weight_cache(lower_ir_weight *w, lower_ir *k, const char *name, graph_value v) {
    const graph_tensor *t = graph_tensor_at(k->l->g, graph_base_of(k->l->g, v));
    shape(w, k, t->type, t->dim[3].size);
    w->from = lower_ir_bind(k, name, v, w->plain ? plain_type(t->type) : IR_U32, IR_READ);
    w->start = ir_u32(k->b, 0);
    w->row = ir_u32(k->b, w->plain ? w->n : w->blocks);
    w->aligned = w->n % k->wide == 0;
    w->plane[0] = w->start;
    w->plane[1] = ir_u32(k->b, (uint32_t)((uint64_t)t->dim[0].size * t->dim[1].size * t->dim[2].size * w->n / 4));
}

/* Word `at` of the entry of block `number` in a plane whose entries have `stride` words. */
static ir_id word_index(const lower_ir_weight *w, uint32_t plane, ir_id number, uint32_t stride, uint32_t at) {
    return lower_ir_plus(w->k, ir_add(w->k->b, lower_ir_times(w->k, number, stride), w->plane[plane]), at);
}

static ir_id word_of(const lower_ir_weight *w, uint32_t plane, ir_id number, uint32_t stride, uint32_t at) {
    return ir_load(w->k->b, w->from, word_index(w, plane, number, stride, at), 1);
}

/* The entry of 1 or 2 bytes of block `number`, in the low bits. */
static ir_id small_of(const lower_ir_weight *w, uint32_t plane, ir_id number, uint32_t bytes) {
    lower_ir *k = w->k;
    ir_id word = word_of(w, plane, lower_ir_over(k, number, 4 / bytes), 1, 0);
    return ir_shr(k->b, word, lower_ir_times(k, lower_ir_rest(k, number, 4 / bytes), bytes * 8));
}

static ir_id half(const lower_ir_weight *w, ir_id word) { /* the low one */
    ir_builder *b = w->k->b;
    return ir_cast(b, IR_F32, ir_bitcast(b, IR_F16, 1, ir_cast(b, IR_U16, word)));
}

/* ---- scales ---------------------------------------------------------------------------------------------------- */

/* What the whole block shares. */
static void load_block(const lower_ir_weight *w, lower_ir_chunk *c) {
    const block_form *f = &forms[w->type];
    ir_builder *b = w->k->b;
    ir_id word;
    c->d = c->m = c->header = IR_NO_ID;
    switch (f->kind) {
    case SCALE_NONE: break;
    case SCALE_D:
    case SCALE_3:
    case SCALE_6: c->d = half(w, small_of(w, f->d, c->number, 2)); break;
    case SCALE_POWER: {
        ir_id e = lower_ir_and(w->k, small_of(w, f->d, c->number, 1), 255);
        ir_id large = lower_ir_shl(w->k, lower_ir_plus(w->k, e, UINT32_MAX), 23), tiny = ir_shl(b, ir_u32(b, 0x00200000u), e);
        c->d = ir_bitcast(b, IR_F32, 1, ir_select(b, ir_lt(b, e, ir_u32(b, 2)), tiny, large));
        break;
    }
    case SCALE_E4M3: c->header = word_of(w, f->d, c->number, 1, 0); break;
    case SCALE_D_M:
    case SCALE_2:
        word = word_of(w, f->d, c->number, w->type == TYPE_Q5_1 ? 2 : 1, 0);
        c->d = half(w, word);
        c->m = half(w, lower_ir_shr(w->k, word, 16));
        break;
    case SCALE_4:
        c->header = ir_load(b, w->from, word_index(w, f->d, c->number, 4, 0), 4);
        word = ir_extract(b, c->header, 0);
        c->d = half(w, word);
        c->m = half(w, lower_ir_shr(w->k, word, 16));
        break;
    case SCALE_IQ4: c->d = half(w, word_of(w, f->d, c->number, 2, 0)); break;
    }
}

static ir_id to_float(ir_builder *b, ir_id number) {
    return ir_cast(b, IR_F32, number);
}

/* (S, M) of sub-block `sub`, 0 .. 7. */
static void pair_of(const lower_ir_weight *w, const lower_ir_chunk *c, ir_id sub, ir_id *s, ir_id *m) {
    lower_ir *k = w->k;
    ir_builder *b = k->b;
    ir_id shift = lower_ir_times(k, lower_ir_and(k, sub, 3), 8);
    ir_id first = ir_shr(b, ir_extract(b, c->header, 1), shift), second = ir_shr(b, ir_extract(b, c->header, 2), shift);
    ir_id third = ir_shr(b, ir_extract(b, c->header, 3), shift), early = ir_lt(b, sub, ir_u32(b, 4));
    ir_id late_s = ir_or(b, lower_ir_and(k, third, 15), lower_ir_and(k, lower_ir_shr(k, first, 2), 48));
    ir_id late_m = ir_or(b, lower_ir_and(k, lower_ir_shr(k, third, 4), 15), lower_ir_and(k, lower_ir_shr(k, second, 2), 48));
    *s = ir_select(b, early, lower_ir_and(k, first, 63), late_s);
    *m = ir_select(b, early, lower_ir_and(k, second, 63), late_m);
}

/* 6 bits of 12 bytes, for sub-block `sub`, 0 .. 15. */
static ir_id six_bits(const lower_ir_weight *w, const lower_ir_chunk *c, uint32_t plane, ir_id sub) {
    lower_ir *k = w->k;
    ir_builder *b = k->b;
    ir_id base = word_index(w, plane, c->number, 3, 0), eighth = lower_ir_and(k, sub, 7), upper = lower_ir_shr(k, sub, 3);
    ir_id low = ir_load(b, w->from, ir_add(b, base, lower_ir_shr(k, eighth, 2)), 1);
    ir_id shift = ir_add(b, lower_ir_times(k, lower_ir_and(k, eighth, 3), 8), lower_ir_times(k, upper, 4));
    ir_id high = ir_load(b, w->from, lower_ir_plus(k, base, 2), 1);
    ir_id place = ir_add(b, lower_ir_times(k, lower_ir_and(k, sub, 3), 8), lower_ir_times(k, lower_ir_shr(k, sub, 2), 2));
    return ir_or(b, lower_ir_and(k, ir_shr(b, low, shift), 15), lower_ir_shl(k, lower_ir_and(k, ir_shr(b, high, place), 3), 4));
}

static ir_id byte_of(const lower_ir_weight *w, const lower_ir_chunk *c, uint32_t plane, ir_id sub) { /* of 16, upper bits: any */
    lower_ir *k = w->k;
    ir_id at = ir_add(k->b, word_index(w, plane, c->number, 4, 0), lower_ir_shr(k, sub, 2));
    return ir_shr(k->b, ir_load(k->b, w->from, at, 1), lower_ir_times(k, lower_ir_and(k, sub, 3), 8));
}

/* y = scale * q + least for the elements that begin at `element` of the block; least IR_NO_ID: 0. */
static void scale_of(const lower_ir_weight *w, const lower_ir_chunk *c, ir_id element, ir_id *factor, ir_id *least) {
    const block_form *f = &forms[w->type];
    lower_ir *k = w->k;
    ir_builder *b = k->b;
    ir_id sub = f->sub ? lower_ir_over(k, element, f->sub) : IR_NO_ID, s = IR_NO_ID, m = IR_NO_ID;
    *factor = c->d;
    *least = c->m;
    switch (f->kind) {
    case SCALE_NONE:
    case SCALE_D:
    case SCALE_D_M:
    case SCALE_POWER: return;
    case SCALE_2:
        s = byte_of(w, c, f->scales, sub);
        m = lower_ir_and(k, lower_ir_shr(k, s, 4), 15);
        s = lower_ir_and(k, s, 15);
        break;
    case SCALE_4: pair_of(w, c, sub, &s, &m); break;
    case SCALE_E4M3: { /* an f16 but for its exponent's bias, 15 in place of 7 */
        ir_id byte = lower_ir_and(k, ir_shr(b, c->header, lower_ir_times(k, sub, 8)), 127);
        *factor = ir_mul(b, half(w, lower_ir_shl(k, byte, 7)), ir_f32(b, 128));
        return;
    }
    case SCALE_3: *factor = ir_mul(b, c->d, ir_sub(b, to_float(b, six_bits(w, c, f->scales, sub)), ir_f32(b, 32))); return;
    case SCALE_6: {
        ir_id sign = ir_bitcast(b, IR_I32, 1, lower_ir_shl(k, byte_of(w, c, f->scales, sub), 24));
        *factor = ir_mul(b, c->d, to_float(b, lower_ir_shr(k, sign, 24)));
        return;
    }
    case SCALE_IQ4: {
        ir_id low = lower_ir_and(k, ir_shr(b, word_of(w, f->d, c->number, 2, 1), lower_ir_times(k, sub, 4)), 15);
        ir_id place = lower_ir_plus(k, lower_ir_times(k, sub, 2), 16);
        ir_id high = lower_ir_and(k, ir_shr(b, word_of(w, f->d, c->number, 2, 0), place), 3);
        *factor = ir_mul(b, c->d, ir_sub(b, to_float(b, ir_or(b, low, lower_ir_shl(k, high, 4))), ir_f32(b, 32)));
        return;
    }
    }
    *factor = ir_mul(b, c->d, to_float(b, s));
    *least = ir_neg(b, ir_mul(b, c->m, to_float(b, m)));
}

/* ---- numbers --------------------------------------------------------------------------------------------------- */

/* u32x4 as vectors of u32, whose lanes hold one of the 16 bytes each: alone, or with bytes above that shifts will bring down. */
static void spread(lower_ir *k, ir_id words, ir_id *bytes) {
    ir_builder *b = k->b;
    if (k->wide == LOWER_IR_RUN) {
        bytes[0] = ir_cast(b, IR_U32, ir_bitcast(b, IR_U8, LOWER_IR_RUN, words));
        return;
    }
    ir_id places = lower_ir_ramp(k, 4, 0, 8);
    for (uint32_t i = 0; i < 4; i++) bytes[i] = ir_shr(b, ir_splat(b, ir_extract(b, words, i), 4), places);
}

/* Bits of vector i of a run where groups are of eight bytes, whose lower halves are the run's first eight elements. */
static ir_id bits_of_eights(lower_ir *k, const ir_id *bytes, uint32_t run, uint32_t i) {
    if (k->wide < LOWER_IR_RUN) return lower_ir_shr(k, bytes[2 * run + i % 2], i / 2 * 4);
    ir_id halves[2] = {bytes[0], lower_ir_shr(k, bytes[0], 4)}, lanes[LOWER_IR_RUN];
    for (uint32_t j = 0; j < LOWER_IR_RUN; j++) lanes[j] = ir_extract(k->b, halves[j / 8], 8 * run + j % 8);
    return ir_compose(k->b, lanes, LOWER_IR_RUN);
}

/* Where a run's elements stand in its block. */
static ir_id element_in_block(const lower_ir_weight *w, ir_id part, uint32_t run) {
    lower_ir *k = w->k;
    const bits low = forms[w->type].low;
    ir_id byte = lower_ir_times(k, part, LOWER_IR_RUN);
    if (low.group <= LOWER_IR_RUN) return lower_ir_plus(k, lower_ir_times(k, part, LOWER_IR_RUN * w->runs), run * LOWER_IR_RUN);
    ir_id group = lower_ir_times(k, lower_ir_over(k, byte, low.group), low.group * w->runs);
    return lower_ir_plus(k, ir_add(k->b, group, lower_ir_rest(k, byte, low.group)), run * low.group);
}

ir_id lower_ir_run_at(const lower_ir_weight *w, ir_id block, ir_id part, uint32_t run) {
    lower_ir *k = w->k;
    if (w->plain) return lower_ir_times(k, block, LOWER_IR_RUN);
    return ir_add(k->b, lower_ir_times(k, block, base_type_block(w->type)), element_in_block(w, part, run));
}

void lower_ir_chunk_load(const lower_ir_weight *w, ir_id row, ir_id block, ir_id part, lower_ir_chunk *c) {
    lower_ir *k = w->k;
    *c = (lower_ir_chunk){.row = row, .block = block, .part = part};
    if (w->plain) return;
    const bits low = forms[w->type].low;
    c->number = ir_fma(k->b, row, w->row, block);
    ir_id at = ir_add(k->b, word_index(w, low.plane, c->number, low.stride, low.at), lower_ir_times(k, part, 4));
    c->words = ir_load(k->b, w->from, at, 4);
    if (low.bits < 8) spread(k, c->words, c->bytes);
    load_block(w, c);
}

/* Bits of the high plane for the run that begins at `element` of the block, in the vectors' low bits. */
static void high_bits(const lower_ir_weight *w, const lower_ir_chunk *c, ir_id element, ir_id *out) {
    const bits high = forms[w->type].high;
    lower_ir *k = w->k;
    ir_builder *b = k->b;
    const uint32_t n = LOWER_IR_RUN / k->wide;
    if (!high.group) { /* one word */
        ir_id word = ir_shr(b, word_of(w, high.plane, c->number, high.stride, high.at), element);
        for (uint32_t i = 0; i < n; i++)
            out[i] = lower_ir_and(k, ir_shr(b, ir_splat(b, word, k->wide), lower_ir_ramp(k, k->wide, i * k->wide, 1)), 1);
        return;
    }
    const uint32_t span = high.group * 8u / high.bits; /* elements of a group */
    ir_id byte = ir_add(b, lower_ir_times(k, lower_ir_over(k, element, span), high.group), lower_ir_rest(k, element, high.group));
    ir_id at = ir_add(b, word_index(w, high.plane, c->number, high.stride, high.at), lower_ir_over(k, byte, 4));
    ir_id shift = lower_ir_times(k, lower_ir_over(k, lower_ir_rest(k, element, span), high.group), high.bits);
    spread(k, ir_load(b, w->from, at, 4), out);
    for (uint32_t i = 0; i < n; i++) out[i] = lower_ir_and(k, ir_shr(b, out[i], ir_splat(b, shift, k->wide)), (1u << high.bits) - 1);
}

static ir_id look_up(lower_ir *k, ir_id index, const uint32_t *table, uint32_t width) {
    ir_builder *b = k->b;
    ir_id zero = ir_bits(b, IR_U32, width, 0), odd = ir_ne(b, lower_ir_and(k, index, 4), zero);
    ir_id low = ir_select(b, odd, ir_bits(b, IR_U32, width, table[1]), ir_bits(b, IR_U32, width, table[0]));
    ir_id high = ir_select(b, odd, ir_bits(b, IR_U32, width, table[3]), ir_bits(b, IR_U32, width, table[2]));
    ir_id word = ir_select(b, ir_ne(b, lower_ir_and(k, index, 8), zero), high, low);
    ir_id up = ir_sub(b, ir_bits(b, IR_U32, width, 24), lower_ir_shl(k, lower_ir_and(k, index, 3), 3));
    return ir_cast(b, IR_F32, lower_ir_shr(k, ir_bitcast(b, IR_I32, width, ir_shl(b, word, up)), 24));
}

/* 16 signed bytes. */
static void signed_bytes(lower_ir *k, ir_id words, ir_id *out) {
    ir_builder *b = k->b;
    if (k->wide == LOWER_IR_RUN) {
        out[0] = ir_cast(b, IR_F32, ir_cast(b, IR_I32, ir_bitcast(b, IR_I8, LOWER_IR_RUN, words)));
        return;
    }
    ir_id up = lower_ir_ramp(k, 4, 24, (uint32_t)-8);
    for (uint32_t i = 0; i < 4; i++) {
        ir_id top = ir_bitcast(b, IR_I32, 4, ir_shl(b, ir_splat(b, ir_extract(b, words, i), 4), up));
        out[i] = ir_cast(b, IR_F32, lower_ir_shr(k, top, 24));
    }
}

void lower_ir_run_load(const lower_ir_weight *w, const lower_ir_chunk *c, uint32_t run, ir_id *values) {
    lower_ir *k = w->k;
    ir_builder *b = k->b;
    if (w->plain) {
        ir_id at = ir_add(b, ir_fma(b, c->row, w->row, w->start), lower_ir_times(k, c->block, LOWER_IR_RUN));
        lower_ir_load_run(k, w->from, at, w->aligned, values);
        return;
    }
    const block_form *f = &forms[w->type];
    const uint32_t n = LOWER_IR_RUN / k->wide;
    ir_id high[4], factor, least, element = element_in_block(w, c->part, run);
    if (f->low.bits == 8) signed_bytes(k, c->words, values);
    if (f->high.bits) high_bits(w, c, element, high);
    scale_of(w, c, element, &factor, &least);
    factor = ir_splat(b, factor, k->wide);
    if (least != IR_NO_ID) least = ir_splat(b, least, k->wide);
    for (uint32_t i = 0; i < n; i++) {
        if (f->low.bits < 8) {
            ir_id q = f->low.group == 8 ? bits_of_eights(k, c->bytes, run, i) : lower_ir_shr(k, c->bytes[i], run * f->low.bits);
            q = lower_ir_and(k, q, (1u << f->low.bits) - 1);
            if (f->high.bits) q = ir_or(b, q, lower_ir_shl(k, high[i], f->low.bits));
            values[i] = f->table ? look_up(k, q, tables[f->table - 1], k->wide) : ir_cast(b, IR_F32, q);
        }
        if (f->zero) values[i] = ir_sub(b, values[i], ir_number(b, IR_F32, k->wide, f->zero));
        values[i] = least == IR_NO_ID ? ir_mul(b, values[i], factor) : ir_fma(b, values[i], factor, least);
    }
}

/* The bits of one element of the block, in the low bits; of 8: with their sign. */
static ir_id element_bits(const lower_ir_weight *w, const lower_ir_chunk *c, bits f, ir_id element) {
    lower_ir *k = w->k;
    ir_builder *b = k->b;
    const uint32_t mask = (1u << f.bits) - 1;
    if (!f.group) return lower_ir_and(k, ir_shr(b, word_of(w, f.plane, c->number, f.stride, f.at), element), mask);
    const uint32_t span = f.group * 8u / f.bits; /* elements of a group */
    ir_id byte = ir_add(b, lower_ir_times(k, lower_ir_over(k, element, span), f.group), lower_ir_rest(k, element, f.group));
    ir_id word = ir_load(b, w->from, ir_add(b, word_index(w, f.plane, c->number, f.stride, f.at), lower_ir_over(k, byte, 4)), 1);
    ir_id shift = lower_ir_times(k, lower_ir_rest(k, byte, 4), 8);
    if (f.bits == 8) return lower_ir_shr(k, ir_bitcast(b, IR_I32, 1, ir_shl(b, word, ir_sub(b, ir_u32(b, 24), shift))), 24);
    shift = ir_add(b, shift, lower_ir_times(k, lower_ir_over(k, lower_ir_rest(k, element, span), f.group), f.bits));
    return lower_ir_and(k, ir_shr(b, word, shift), mask);
}

ir_id lower_ir_element_load(const lower_ir_weight *w, ir_id row, ir_id column) {
    lower_ir *k = w->k;
    ir_builder *b = k->b;
    if (w->plain) return ir_cast(b, IR_F32, ir_load(b, w->from, ir_add(b, ir_fma(b, row, w->row, w->start), column), 1));
    const block_form *f = &forms[w->type];
    const uint32_t block = base_type_block(w->type);
    ir_id element = lower_ir_rest(k, column, block), factor, least;
    lower_ir_chunk c = {.row = row, .number = ir_fma(b, row, w->row, lower_ir_over(k, column, block))};
    load_block(w, &c);
    scale_of(w, &c, element, &factor, &least);
    ir_id q = element_bits(w, &c, f->low, element);
    if (f->high.bits) q = ir_or(b, q, lower_ir_shl(k, element_bits(w, &c, f->high, element), f->low.bits));
    ir_id value = f->table ? look_up(k, q, tables[f->table - 1], 1) : ir_cast(b, IR_F32, q);
    if (f->zero) value = ir_sub(b, value, ir_f32(b, f->zero));
    return least == IR_NO_ID ? ir_mul(b, value, factor) : ir_fma(b, value, factor, least);
}
