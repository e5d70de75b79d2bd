/* types.c - the type table, half floats, dequantisation of every block format.
 *
 * Reads blocks as GGUF has them: little-endian, unaligned. One function a type turns one block into
 * its elements; base_dequantise walks a row with it. Products and sums are taken in the order of
 * the published formats (scale first), so results are equal to the bit; the build must not contract
 * them. */
#include "base/types.h"
#include "base/build.h"

#include <math.h>
#include <string.h>

static const struct {
    const char *text;
    int id;
    uint32_t block, bytes;
    base_field fields[BASE_FIELD_MAX];
} type_rows[TYPE_COUNT] = {
#define X(name, text, id, n, bytes, ...) {text, id, n, bytes, {__VA_ARGS__}},
    BASE_TYPE_LIST(X)
#undef X
};

/* Types of the file format that have no row above, so that a refusal can name them: id, text. */
#define REFUSED_TYPE_LIST(X) \
    X(9, "Q8_1")             \
    X(41, "Q1_0")            \
    X(42, "Q2_0")

const char *base_type_name(base_type type) {
    return type < TYPE_COUNT ? type_rows[type].text : "?";
}

uint32_t base_type_block(base_type type) {
    return type_rows[type].block;
}

uint32_t base_type_block_bytes(base_type type) {
    return type_rows[type].bytes;
}

base_field base_type_field(base_type type, uint32_t i) {
    return type_rows[type].fields[i];
}

bool base_type_from_gguf(uint32_t id, base_type *type) {
    for (int i = 0; i < TYPE_COUNT; i++) {
        if (type_rows[i].id < 0 || (uint32_t)type_rows[i].id != id) continue;
        *type = (base_type)i;
        return true;
    }
    return false;
}

const char *base_type_gguf_name(uint32_t id) {
    base_type type;
    if (base_type_from_gguf(id, &type)) return type_rows[type].text;
    switch (id) {
#define X(refused, text) \
    case refused: return text;
        REFUSED_TYPE_LIST(X)
#undef X
    }
    return NULL;
}

bool base_type_is_float(base_type type) {
    return type == TYPE_F32 || type == TYPE_F16 || type == TYPE_BF16 || type == TYPE_F64;
}

bool base_type_is_integer(base_type type) {
    return type == TYPE_I8 || type == TYPE_I16 || type == TYPE_I32 || type == TYPE_I64 ||
           type == TYPE_U8 || type == TYPE_U16 || type == TYPE_U32;
}

bool base_type_is_quantised(base_type type) {
    return type_rows[type].block > 1;
}

bool base_type_is_weight(base_type type) {
    enum {
#define X(name, ...) OF_##name,
        BASE_WEIGHT_LIST(X)
#undef X
            WEIGHT_COUNT
    };
    return (int)type < (int)WEIGHT_COUNT; /* they come first */
}

uint64_t base_type_row_bytes(base_type type, uint64_t n) {
    uint64_t blocks = n / type_rows[type].block;
    if (n % type_rows[type].block || blocks > UINT64_MAX / type_rows[type].bytes) return 0;
    return blocks * type_rows[type].bytes;
}

/* ---- half floats */

static float float_of(uint32_t bits) {
    float value;
    memcpy(&value, &bits, sizeof value);
    return value;
}

static uint32_t bits_of(float value) {
    uint32_t bits;
    memcpy(&bits, &value, sizeof bits);
    return bits;
}

static inline float f16_to_f32(uint32_t h) {
    uint32_t sign = (h & 0x8000) << 16, rest = h & 0x7fff;
    uint32_t normal = (rest << 13) + (112u << 23);
    uint32_t tiny = bits_of((float)(int32_t)rest * 0x1p-24f); /* exact */
    uint32_t huge = (rest << 13) + (224u << 23);
    return float_of(sign | (rest < 0x400 ? tiny : rest < 0x7c00 ? normal : huge));
}

float base_f16_to_f32(uint16_t bits) {
    return f16_to_f32(bits);
}

uint16_t base_f32_to_f16(float value) {
    uint32_t bits = bits_of(value), sign = bits >> 16 & 0x8000, rest = bits & 0x7fffffff;
    if (rest > 0x7f800000) { /* NaN: keeps what fits of its payload */
        uint32_t payload = rest >> 13 & 0x3ff;
        return (uint16_t)(sign | 0x7c00 | (payload ? payload : 0x200));
    }
    if (rest >= 0x477ff000) return (uint16_t)(sign | 0x7c00); /* 65,520 and more */
    if (rest < 0x38800000) {
        /* Subnormal: adding 0.5 lets the float unit round to a multiple of 2^-24. */
        return (uint16_t)(sign | (bits_of(float_of(rest) + 0.5f) - bits_of(0.5f)));
    }
    rest += 0xfff + (rest >> 13 & 1); /* nearest, ties to even; a carry moves the exponent */
    return (uint16_t)(sign | (rest - (112u << 23)) >> 13);
}

uint16_t base_f32_to_bf16(float value) {
    uint32_t bits = bits_of(value);
    if ((bits & 0x7fffffff) > 0x7f800000) return (uint16_t)(bits >> 16 | 0x40); /* NaN stays NaN */
    return (uint16_t)((bits + 0x7fff + (bits >> 16 & 1)) >> 16);
}

/* ---- little-endian reads */

static inline uint16_t u16_at(const uint8_t *b) {
    return (uint16_t)(b[0] | b[1] << 8);
}

static inline uint32_t u32_at(const uint8_t *b) {
    return (uint32_t)b[0] | (uint32_t)b[1] << 8 | (uint32_t)b[2] << 16 | (uint32_t)b[3] << 24;
}

static inline uint64_t u64_at(const uint8_t *b) {
    return (uint64_t)u32_at(b) | (uint64_t)u32_at(b + 4) << 32;
}

static inline float f16_at(const uint8_t *b) {
    return f16_to_f32(u16_at(b));
}

/* ---- one block each: b [bytes of the block], y [elements of the block] */

/* clang-format off */
static inline void block_F32(const uint8_t *b, float *y) { *y = float_of(u32_at(b)); }
static inline void block_F16(const uint8_t *b, float *y) { *y = f16_at(b); }
static inline void block_BF16(const uint8_t *b, float *y) { *y = float_of(u16_at(b) * 0x10000u); }
static inline void block_I8(const uint8_t *b, float *y) { *y = (float)(int8_t)*b; }
static inline void block_U8(const uint8_t *b, float *y) { *y = (float)*b; }
static inline void block_BOOL(const uint8_t *b, float *y) { *y = (float)(*b != 0); }
static inline void block_I16(const uint8_t *b, float *y) { *y = (float)(int16_t)u16_at(b); }
static inline void block_U16(const uint8_t *b, float *y) { *y = (float)u16_at(b); }
static inline void block_I32(const uint8_t *b, float *y) { *y = (float)(int32_t)u32_at(b); }
static inline void block_U32(const uint8_t *b, float *y) { *y = (float)u32_at(b); }
static inline void block_I64(const uint8_t *b, float *y) { *y = (float)(int64_t)u64_at(b); }
static inline void block_U64(const uint8_t *b, float *y) { *y = (float)u64_at(b); }
/* clang-format on */

static inline void block_F64(const uint8_t *b, float *y) {
    uint64_t bits = u64_at(b);
    double value;
    memcpy(&value, &bits, sizeof value);
    /* Beyond f32 is infinity, said outright: the conversion alone is not defined there. */
    *y = fabs(value) >= 0x1.ffffffp127 ? copysignf(INFINITY, value < 0 ? -1 : 1) : (float)value;
}

static const int8_t iq4_values[16] = {-127, -104, -83, -65, -49, -35, -22, -10,
                                      1,    13,   25,  38,  53,  69,  89,  113};
static const int8_t e2m1_doubled[16] = {0, 1, 2, 3, 4, 6, 8, 12, 0, -1, -2, -3, -4, -6, -8, -12};

static inline void block_Q4_0(const uint8_t *b, float *y) {
    const float d = f16_at(b);
    for (int j = 0; j < 16; j++) y[j] = (float)((b[2 + j] & 15) - 8) * d;
    for (int j = 0; j < 16; j++) y[j + 16] = (float)((b[2 + j] >> 4) - 8) * d;
}

static inline void block_Q4_1(const uint8_t *b, float *y) {
    const float d = f16_at(b), m = f16_at(b + 2);
    for (int j = 0; j < 16; j++) y[j] = (float)(b[4 + j] & 15) * d + m;
    for (int j = 0; j < 16; j++) y[j + 16] = (float)(b[4 + j] >> 4) * d + m;
}

static inline void block_Q5_0(const uint8_t *b, float *y) {
    const float d = f16_at(b);
    const uint32_t high = u32_at(b + 2);
    for (int j = 0; j < 16; j++)
        y[j] = (float)((int)((b[6 + j] & 15u) | (high >> j & 1) << 4) - 16) * d;
    for (int j = 0; j < 16; j++)
        y[j + 16] = (float)((int)((uint32_t)b[6 + j] >> 4 | (high >> (j + 16) & 1) << 4) - 16) * d;
}

static inline void block_Q5_1(const uint8_t *b, float *y) {
    const float d = f16_at(b), m = f16_at(b + 2);
    const uint32_t high = u32_at(b + 4);
    for (int j = 0; j < 16; j++)
        y[j] = (float)(int)((b[8 + j] & 15u) | (high >> j & 1) << 4) * d + m;
    for (int j = 0; j < 16; j++)
        y[j + 16] = (float)(int)((uint32_t)b[8 + j] >> 4 | (high >> (j + 16) & 1) << 4) * d + m;
}

static inline void block_Q8_0(const uint8_t *b, float *y) {
    const float d = f16_at(b);
    for (int j = 0; j < 32; j++) y[j] = (float)(int8_t)b[2 + j] * d;
}

static inline void block_IQ4_NL(const uint8_t *b, float *y) {
    const float d = f16_at(b);
    for (int j = 0; j < 16; j++) y[j] = (float)iq4_values[b[2 + j] & 15] * d;
    for (int j = 0; j < 16; j++) y[j + 16] = (float)iq4_values[b[2 + j] >> 4] * d;
}

static inline void block_MXFP4(const uint8_t *b, float *y) {
    /* 2^(e - 128); the two least exponents are subnormal. */
    const float d = float_of(b[0] < 2 ? 0x00200000u << b[0] : (uint32_t)(b[0] - 1) << 23);
    for (int j = 0; j < 16; j++) y[j] = (float)e2m1_doubled[b[1 + j] & 15] * d;
    for (int j = 0; j < 16; j++) y[j + 16] = (float)e2m1_doubled[b[1 + j] >> 4] * d;
}

/* Half of an E4M3 without sign, whose top bit says nothing: an f16 but for the exponent's bias, 15
 * in place of 7. */
static inline float half_e4m3(uint8_t b) {
    return b == 0x7f ? 0 : f16_to_f32((b & 127u) << 7) * 0x1p7f;
}

static inline void block_NVFP4(const uint8_t *b, float *y) {
    for (int k = 0; k < 4; k++, y += 16) {
        const float d = half_e4m3(b[k]);
        const uint8_t *q = b + 4 + 8 * k;
        for (int j = 0; j < 8; j++) y[j] = (float)e2m1_doubled[q[j] & 15] * d;
        for (int j = 0; j < 8; j++) y[j + 8] = (float)e2m1_doubled[q[j] >> 4] * d;
    }
}

static inline void block_Q2_K(const uint8_t *b, float *y) {
    const float d = f16_at(b + 80), dmin = f16_at(b + 82);
    for (int k = 0; k < 16; k++, y += 16) { /* k = 8h + 2s + half of a run of 32 */
        const uint8_t *q = b + 16 + (k / 8) * 32 + (k % 2) * 16;
        const int shift = k % 8 / 2 * 2;
        const float scale = d * (float)(b[k] & 15), least = dmin * (float)(b[k] >> 4);
        for (int l = 0; l < 16; l++) y[l] = scale * (float)(q[l] >> shift & 3) - least;
    }
}

static inline void block_Q3_K(const uint8_t *b, float *y) {
    const float d = f16_at(b + 108);
    const uint8_t *sc = b + 96;
    for (int k = 0; k < 16; k++, y += 16) {
        const int low = k < 8 ? sc[k] & 15 : sc[k - 8] >> 4;
        const int high = sc[8 + k % 4] >> 2 * (k / 4) & 3;
        const float scale = d * (float)((low | high << 4) - 32);
        const uint8_t *q = b + 32 + (k / 8) * 32 + (k % 2) * 16, *mask = b + (k % 2) * 16;
        const int shift = k % 8 / 2 * 2, bit = k / 2;
        for (int l = 0; l < 16; l++)
            y[l] = scale * (float)((q[l] >> shift & 3) + (mask[l] >> bit & 1) * 4 - 4);
    }
}

/* Scale and minimum j of the 8 six-bit pairs in sc[12]. */
static inline void scale_pair(const uint8_t *sc, int j, int *scale, int *least) {
    if (j < 4) {
        *scale = sc[j] & 63;
        *least = sc[j + 4] & 63;
    } else {
        *scale = (sc[j + 4] & 15) | sc[j - 4] >> 6 << 4;
        *least = sc[j + 4] >> 4 | sc[j] >> 6 << 4;
    }
}

static inline void block_Q4_K(const uint8_t *b, float *y) {
    const float d = f16_at(b), dmin = f16_at(b + 2);
    for (int j = 0; j < 8; j++, y += 32) {
        int s, m;
        scale_pair(b + 4, j, &s, &m);
        const float scale = d * (float)s, least = dmin * (float)m;
        const uint8_t *q = b + 16 + j / 2 * 32;
        const int shift = j % 2 * 4;
        for (int l = 0; l < 32; l++) y[l] = scale * (float)(q[l] >> shift & 15) - least;
    }
}

static inline void block_Q5_K(const uint8_t *b, float *y) {
    const float d = f16_at(b), dmin = f16_at(b + 2);
    for (int j = 0; j < 8; j++, y += 32) {
        int s, m;
        scale_pair(b + 4, j, &s, &m);
        const float scale = d * (float)s, least = dmin * (float)m;
        const uint8_t *q = b + 48 + j / 2 * 32, *high = b + 16;
        const int shift = j % 2 * 4;
        for (int l = 0; l < 32; l++)
            y[l] = scale * (float)((q[l] >> shift & 15) | (high[l] >> j & 1) << 4) - least;
    }
}

static inline void block_Q6_K(const uint8_t *b, float *y) {
    const float d = f16_at(b + 208);
    for (int k = 0; k < 16; k++, y += 16) {
        const int h = k / 8, s = k % 8 / 2, half = k % 2 * 16;
        const uint8_t *low = b + 64 * h + (s & 1) * 32 + half, *high = b + 128 + 32 * h + half;
        const float scale = d * (float)(int8_t)b[192 + k];
        for (int l = 0; l < 16; l++) {
            const int q = (low[l] >> s / 2 * 4 & 15) | (high[l] >> 2 * s & 3) << 4;
            y[l] = scale * (float)(q - 32);
        }
    }
}

static inline void block_Q8_K(const uint8_t *b, float *y) {
    const float d = float_of(u32_at(b));
    for (int j = 0; j < 256; j++) y[j] = d * (float)(int8_t)b[4 + j];
}

static inline void block_IQ4_XS(const uint8_t *b, float *y) {
    const float d = f16_at(b);
    const int high = u16_at(b + 2);
    for (int k = 0; k < 8; k++, y += 32) {
        const int s = (b[4 + k / 2] >> k % 2 * 4 & 15) | (high >> 2 * k & 3) << 4;
        const float scale = d * (float)(s - 32);
        const uint8_t *q = b + 8 + 16 * k;
        for (int l = 0; l < 16; l++) y[l] = scale * (float)iq4_values[q[l] & 15];
        for (int l = 0; l < 16; l++) y[l + 16] = scale * (float)iq4_values[q[l] >> 4];
    }
}

/* ---- blocks of places in tables (grids.c)

 * An eighth of such a block is four entries of eight numbers, or eight of four. */

/* Signs of eight numbers, of which seven are given: there is an even number of them. */
static inline uint32_t eighth_sign(uint32_t seven) {
    const uint32_t x = seven ^ seven >> 4, y = x ^ x >> 2;
    return seven | ((y ^ y >> 1) & 1) << 7;
}

/* n numbers of an entry; a bit that is set in `signs` makes one negative. */
static inline void from_table(base_type type, uint32_t entry, uint32_t n, uint32_t signs, float d,
                              float *y) {
    for (uint32_t i = 0; i < n; i++) {
        const float size = d * (float)base_type_table_at(type, entry, i);
        y[i] = signs >> i & 1 ? -size : size;
    }
}

static inline void block_IQ2_XXS(const uint8_t *b, float *y) {
    const float d = f16_at(b);
    for (uint32_t j = 0; j < 32; j++, y += 8) {
        const uint8_t *q = b + 2 + j / 4 * 8;
        const uint32_t more = u32_at(q + 4);
        from_table(TYPE_IQ2_XXS, q[j % 4], 8, eighth_sign(more >> 7 * (j % 4) & 127),
                   d * (0.5f + (float)(more >> 28)) * 0.25f, y);
    }
}

static inline void block_IQ2_XS(const uint8_t *b, float *y) {
    const float d = f16_at(b);
    for (uint32_t j = 0; j < 32; j++, y += 8) {
        const uint32_t q = u16_at(b + 2 + 2 * j), s = b[66 + j / 4] >> j / 2 % 2 * 4 & 15;
        from_table(TYPE_IQ2_XS, q & 511, 8, eighth_sign(q >> 9), d * (0.5f + (float)s) * 0.25f, y);
    }
}

static inline void block_IQ2_S(const uint8_t *b, float *y) {
    const float d = f16_at(b);
    for (uint32_t j = 0; j < 32; j++, y += 8) {
        const uint32_t high = b[66 + j / 4] >> 2 * (j % 4) & 3,
                       s = b[74 + j / 4] >> j / 2 % 2 * 4 & 15;
        from_table(TYPE_IQ2_S, b[2 + j] | high << 8, 8, b[34 + j], d * (0.5f + (float)s) * 0.25f,
                   y);
    }
}

static inline void block_IQ3_XXS(const uint8_t *b, float *y) {
    const float d = f16_at(b);
    for (uint32_t j = 0; j < 64; j++, y += 4) {
        const uint32_t more = u32_at(b + 66 + j / 8 * 4),
                       signs = eighth_sign(more >> 7 * (j / 2 % 4) & 127) >> j % 2 * 4;
        from_table(TYPE_IQ3_XXS, b[2 + j], 4, signs, d * (0.5f + (float)(more >> 28)) * 0.5f, y);
    }
}

static inline void block_IQ3_S(const uint8_t *b, float *y) {
    const float d = f16_at(b);
    for (uint32_t j = 0; j < 64; j++, y += 4) {
        const uint32_t high = b[66 + j / 8] >> j % 8 & 1, signs = b[74 + j / 2] >> j % 2 * 4,
                       s = b[106 + j / 16] >> j / 8 % 2 * 4 & 15;
        from_table(TYPE_IQ3_S, b[2 + j] | high << 8, 4, signs, d * (float)(1 + 2 * s), y);
    }
}

static inline void from_ternary(base_type type, uint32_t entry, bool down, float d, float *y) {
    for (uint32_t i = 0; i < 8; i++)
        y[i] = d * ((float)base_type_table_at(type, entry, i) + (down ? -0.125f : 0.125f));
}

static inline void block_IQ1_S(const uint8_t *b, float *y) {
    const float d = f16_at(b);
    for (uint32_t j = 0; j < 32; j++, y += 8) {
        const uint32_t more = u16_at(b + 34 + j / 4 * 2), high = more >> 3 * (j % 4) & 7;
        from_ternary(TYPE_IQ1_S, b[2 + j] | high << 8, more >> 15,
                     d * (float)(2 * (more >> 12 & 7) + 1), y);
    }
}

static inline void block_IQ1_M(const uint8_t *b, float *y) {
    uint32_t bits = 0; /* of d, four in each of the words */
    for (uint32_t i = 0; i < 4; i++) bits |= (uint32_t)u16_at(b + 48 + 2 * i) >> 12 << 4 * i;
    const float d = f16_to_f32(bits);
    for (uint32_t j = 0; j < 32; j++, y += 8) {
        const uint32_t more = b[32 + j / 2] >> j % 2 * 4 & 15,
                       s = u16_at(b + 48 + j / 8 * 2) >> 3 * (j / 2 % 4) & 7;
        from_ternary(TYPE_IQ1_M, b[j] | (more & 7) << 8, more >> 3, d * (float)(2 * s + 1), y);
    }
}

/* ---- blocks of -1, 0 and 1: five a byte, as fractions of 256 to the base 3, or four */

static inline void block_TQ1_0(const uint8_t *b, float *y) {
    static const uint8_t powers[5] = {1, 3, 9, 27, 81};
    const float d = f16_at(b + 52);
    for (uint32_t j = 0; j < 256; j++) {
        const uint32_t n = j < 160   ? j / 32
                           : j < 240 ? (j - 160) / 16
                                     : (j - 240) / 4,
                       at = j < 160   ? j % 32
                            : j < 240 ? 32 + j % 16
                                      : 48 + j % 4;
        y[j] = d * (float)((int)((uint8_t)(b[at] * powers[n]) * 3u >> 8) - 1);
    }
}

static inline void block_TQ2_0(const uint8_t *b, float *y) {
    const float d = f16_at(b + 64);
    for (uint32_t j = 0; j < 256; j++)
        y[j] = d * (float)((b[j / 128 * 32 + j % 32] >> j / 32 % 4 * 2 & 3) - 1);
}

/* ---- of users' graphs alone: floats of 8 bits, whole numbers with a scale and a zero point */

/* normal: 127 less the type's bias; from `special` on there are no finite numbers. */
static inline float f8_to_f32(uint32_t code, uint32_t fraction, uint32_t normal, uint32_t special) {
    const uint32_t sign = (code & 128) << 24, rest = code & 127;
    const uint32_t tiny = bits_of((float)rest * float_of((normal + 1 - fraction) << 23));
    const uint32_t bits = (rest << (23 - fraction)) + (normal << 23);
    return float_of(sign | (rest < 1u << fraction ? tiny
                            : rest < special      ? bits
                                                  : bits + (normal << 23)));
}

static inline void block_F8_E4M3(const uint8_t *b, float *y) {
    for (uint32_t j = 0; BUILD_HAS_OWN_TYPES && j < 16; j++) y[j] = f8_to_f32(b[j], 3, 120, 127);
}

static inline void block_F8_E5M2(const uint8_t *b, float *y) {
    for (uint32_t j = 0; BUILD_HAS_OWN_TYPES && j < 16; j++) y[j] = f8_to_f32(b[j], 2, 112, 124);
}

static inline float f32_at(const uint8_t *b) {
    return float_of(u16_at(b) | (uint32_t)u16_at(b + 2) << 16);
}

static inline void block_AFFINE8(const uint8_t *b, float *y) {
    const float d = f32_at(b), m = f32_at(b + 4);
    for (uint32_t j = 0; BUILD_HAS_OWN_TYPES && j < 32; j++) y[j] = d * (float)(int8_t)b[8 + j] + m;
}

static inline void block_AFFINE4(const uint8_t *b, float *y) {
    const float d = f32_at(b), m = f32_at(b + 4);
    for (uint32_t j = 0; BUILD_HAS_OWN_TYPES && j < 32; j++)
        y[j] = d * (float)(b[8 + j % 16] >> j / 16 * 4 & 15) + m;
}

void base_dequantise(base_type type, const void *blocks, float *out, size_t n) {
    const uint8_t *b = blocks;
    switch (type) {
#define X(name, text, id, count, bytes, ...)                                                 \
    case TYPE_##name:                                                                        \
        for (size_t i = 0; i < n / count; i++) block_##name(b + i * bytes, out + i * count); \
        break;
        BASE_TYPE_LIST(X)
#undef X
    case TYPE_COUNT: break;
    }
}
