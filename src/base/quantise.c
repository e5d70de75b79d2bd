/* quantise.c - the other way of types.c.
 *
 * A block's scale is what brings its largest number to the end of the range; it is rounded to what
 * the block keeps before anything is divided by it, so that each number becomes the nearest that
 * the block can say. Types without a minimum let the largest number, by its sign, be the end that
 * the range has one more of. */
#include "base/quantise.h"

#include <math.h>
#include <string.h>

static void put_u16(uint8_t *b, uint16_t bits) {
    b[0] = (uint8_t)bits;
    b[1] = (uint8_t)(bits >> 8);
}

/* Keeps d as F16; gives what that is. */
static float put_f16(uint8_t *b, float d) {
    const uint16_t bits = base_f32_to_f16(d);
    put_u16(b, bits);
    return base_f16_to_f32(bits);
}

/* x / d, rounded, from low to high; d 0: 0. */
static int nearest(float x, float d, int low, int high) {
    const float q = fabsf(d) > 0 ? x / d : 0;
    return (int)lrintf(fminf(fmaxf(q, (float)low), (float)high));
}

/* The number of the largest size, with its sign. */
static float largest(const float *x, int n) {
    float most = 0;
    for (int i = 0; i < n; i++)
        if (fabsf(x[i]) > fabsf(most)) most = x[i];
    return most;
}

static void range(const float *x, int n, float *low, float *high) {
    *low = *high = x[0];
    for (int i = 1; i < n; i++) {
        *low = fminf(*low, x[i]);
        *high = fmaxf(*high, x[i]);
    }
}

static void put_F32(const float *x, uint8_t *b) {
    uint32_t bits;
    memcpy(&bits, x, sizeof bits);
    for (int i = 0; i < 4; i++) b[i] = (uint8_t)(bits >> 8 * i);
}

static void put_F16(const float *x, uint8_t *b) {
    put_u16(b, base_f32_to_f16(*x));
}

static void put_BF16(const float *x, uint8_t *b) {
    put_u16(b, base_f32_to_bf16(*x));
}

/* Adapters are rounded so while a user waits: loops that compilers make vectors of. */
static void put_Q8_0(const float *x, uint8_t *b) {
    int32_t most = 0;
    float size;
    for (int j = 0; j < 32; j++) {
        int32_t bits;
        memcpy(&bits, &x[j], sizeof bits);
        bits &= 0x7fffffff;
        bits = bits > 0x7f800000 ? 0 : bits; /* NaN */
        most = bits > most ? bits : most;
    }
    memcpy(&size, &most, sizeof size);
    const float d = put_f16(b, size / 127), by = d > 0 ? d : INFINITY;
    for (int j = 0; j < 32; j++) {
        const float q = x[j] / by + 12582912; /* 1.5 * 2^23: bits above its own count */
        int32_t whole;
        memcpy(&whole, &q, sizeof whole);
        whole = (whole & 0x7fffffff) > 0x7f800000 ? -127 : whole - 0x4b400000;
        whole = whole < -127 ? -127 : whole;
        b[2 + j] = (uint8_t)(whole > 127 ? 127 : whole);
    }
}

/* 32 numbers of `bits` bits, 4 or 5, in low halves and, of the fifth, single bits. */
static void put_legacy(const float *x, uint8_t *b, int bits, bool has_min) {
    const int half = 1 << (bits - 1), top = 2 * half - 1;
    uint8_t *high_bits = b + (has_min ? 4 : 2), *q = high_bits + (bits == 5 ? 4 : 0);
    float d, m = 0;
    if (has_min) {
        float low, high;
        range(x, 32, &low, &high);
        d = put_f16(b, (high - low) / (float)top);
        m = put_f16(b + 2, low);
    } else {
        d = put_f16(b, largest(x, 32) / (float)-half);
    }
    uint32_t fifth = 0;
    for (int j = 0; j < 32; j++) {
        const int v =
            has_min ? nearest(x[j] - m, d, 0, top) : nearest(x[j], d, -half, half - 1) + half;
        if (j < 16) q[j] = (uint8_t)(v & 15);
        else q[j - 16] |= (uint8_t)((v & 15) << 4);
        fifth |= (uint32_t)(v >> 4) << j;
    }
    if (bits == 5)
        for (int i = 0; i < 4; i++) high_bits[i] = (uint8_t)(fifth >> 8 * i);
}

static void put_Q4_0(const float *x, uint8_t *b) {
    put_legacy(x, b, 4, false);
}

static void put_Q4_1(const float *x, uint8_t *b) {
    put_legacy(x, b, 4, true);
}

static void put_Q5_0(const float *x, uint8_t *b) {
    put_legacy(x, b, 5, false);
}

static void put_Q5_1(const float *x, uint8_t *b) {
    put_legacy(x, b, 5, true);
}

/* Q4_K and Q5_K: eight runs of 32, each with a scale and a minimum of six bits. */
static void put_super(const float *x, uint8_t *b, int bits) {
    const int top = (1 << bits) - 1;
    uint8_t *sc = b + 4, *high = b + 16, *q = b + (bits == 5 ? 48 : 16);
    float scale[8], least[8];
    for (int j = 0; j < 8; j++) {
        float low, up;
        range(x + 32 * j, 32, &low, &up);
        least[j] = fmaxf(-low, 0); /* what is taken away is never below 0 */
        scale[j] = fmaxf(up + least[j], 0) / (float)top;
    }
    const float d = put_f16(b, largest(scale, 8) / 63),
                dmin = put_f16(b + 2, largest(least, 8) / 63);
    for (int j = 0; j < 8; j++) {
        const int s = nearest(scale[j], d, 0, 63), m = nearest(least[j], dmin, 0, 63);
        if (j < 4) {
            sc[j] |= (uint8_t)s;
            sc[j + 4] |= (uint8_t)m;
        } else {
            sc[j + 4] = (uint8_t)((s & 15) | (m & 15) << 4);
            sc[j - 4] |= (uint8_t)(s >> 4 << 6);
            sc[j] |= (uint8_t)(m >> 4 << 6);
        }
        for (int l = 0; l < 32; l++) {
            const int v = nearest(x[32 * j + l] + dmin * (float)m, d * (float)s, 0, top);
            q[j / 2 * 32 + l] |= (uint8_t)((v & 15) << j % 2 * 4);
            if (bits == 5) high[l] |= (uint8_t)(v >> 4 << j);
        }
    }
}

static void put_Q4_K(const float *x, uint8_t *b) {
    put_super(x, b, 4);
}

static void put_Q5_K(const float *x, uint8_t *b) {
    put_super(x, b, 5);
}

static void put_Q6_K(const float *x, uint8_t *b) {
    float scale[16];
    for (int k = 0; k < 16; k++) scale[k] = largest(x + 16 * k, 16) / -32;
    const float d = put_f16(b + 208, largest(scale, 16) / -128);
    for (int k = 0; k < 16; k++, x += 16) {
        const int h = k / 8, s = k % 8 / 2, half = k % 2 * 16, c = nearest(scale[k], d, -128, 127);
        uint8_t *low = b + 64 * h + (s & 1) * 32 + half, *high = b + 128 + 32 * h + half;
        b[192 + k] = (uint8_t)c;
        for (int l = 0; l < 16; l++) {
            const int v = nearest(x[l], d * (float)c, -32, 31) + 32;
            low[l] |= (uint8_t)((v & 15) << s / 2 * 4);
            high[l] |= (uint8_t)(v >> 4 << 2 * s);
        }
    }
}

/* name */
#define QUANTISED_LIST(X) \
    X(F32) X(F16) X(BF16) X(Q8_0) X(Q4_0) X(Q4_1) X(Q5_0) X(Q5_1) X(Q4_K) X(Q5_K) X(Q6_K)

static void (*const put[TYPE_COUNT])(const float *x, uint8_t *b) = {
#define X(name) [TYPE_##name] = put_##name,
    QUANTISED_LIST(X)
#undef X
};

bool base_can_quantise(base_type type) {
    return type < TYPE_COUNT && put[type];
}

void base_quantise(base_type type, const float *x, void *blocks, size_t n) {
    const uint32_t block = base_type_block(type), bytes = base_type_block_bytes(type);
    uint8_t *b = blocks;
    memset(b, 0, n / block * bytes);
    for (size_t i = 0; i < n; i += block, b += bytes) put[type](x + i, b);
}
