/* blocks.c - see blocks.h. */
#include "blocks.h"

#include <string.h>

uint32_t blocks_next(uint32_t *state) {
    *state = *state * 1664525u + 1013904223u;
    return *state >> 8;
}

float blocks_unit(uint32_t *state) {
    return (float)blocks_next(state) * 0x1p-23f - 1;
}

/* Where the f16 factors of a block lie; MXFP4, NVFP4 and the plain types have none, IQ1_M has its
 * one in four parts. */
static const struct {
    uint16_t n, at[2];
} halves[TYPE_COUNT] = {
    [TYPE_Q4_0] = {1, {0}},    [TYPE_Q4_1] = {2, {0, 2}}, [TYPE_Q5_0] = {1, {0}},
    [TYPE_Q5_1] = {2, {0, 2}}, [TYPE_Q8_0] = {1, {0}},    [TYPE_Q2_K] = {2, {80, 82}},
    [TYPE_Q3_K] = {1, {108}},  [TYPE_Q4_K] = {2, {0, 2}}, [TYPE_Q5_K] = {2, {0, 2}},
    [TYPE_Q6_K] = {1, {208}},  [TYPE_IQ4_NL] = {1, {0}},  [TYPE_IQ4_XS] = {1, {0}},
    [TYPE_IQ1_S] = {1, {0}},   [TYPE_IQ2_XXS] = {1, {0}}, [TYPE_IQ2_XS] = {1, {0}},
    [TYPE_IQ2_S] = {1, {0}},   [TYPE_IQ3_XXS] = {1, {0}}, [TYPE_IQ3_S] = {1, {0}},
    [TYPE_TQ1_0] = {1, {52}},  [TYPE_TQ2_0] = {1, {64}},
};

void blocks_fill(base_type type, uint64_t bytes, unsigned char *to, uint32_t seed) {
    blocks_fill_by(type, bytes, to, seed, 1);
}

void blocks_fill_by(base_type type, uint64_t bytes, unsigned char *to, uint32_t seed, float by) {
    const uint32_t each = base_type_block_bytes(type);
    for (uint64_t at = 0; at < bytes; at += each) {
        const float value = blocks_unit(&seed);
        const uint16_t half = base_f32_to_f16(value), brain = base_f32_to_bf16(value);
        for (uint32_t i = 0; i < each; i++) to[at + i] = (unsigned char)blocks_next(&seed);
        if (type == TYPE_F32) memcpy(to + at, &value, sizeof value);
        if (type == TYPE_F16) memcpy(to + at, &half, sizeof half);
        if (type == TYPE_BF16) memcpy(to + at, &brain, sizeof brain);
        if (type == TYPE_MXFP4) to[at] = (unsigned char)(120 + to[at] % 8);
        /* below 1; the top bit says nothing */
        for (uint32_t i = 0; type == TYPE_NVFP4 && i < 4; i++) to[at + i] &= 0xbf;
        /* below 2, and no NaN */
        for (uint32_t i = 0; type == TYPE_F8_E4M3 && i < each; i++) to[at + i] &= 0xbf;
        for (uint32_t i = 0; type == TYPE_F8_E5M2 && i < each; i++) to[at + i] &= 0xbf;
        for (uint32_t i = 0; (type == TYPE_AFFINE8 || type == TYPE_AFFINE4) && i < 2; i++) {
            /* of 11 bits, so that a number times it is exact, fused with the sum or not */
            const float factor =
                base_f16_to_f32(base_f32_to_f16(by * (i ? value : 0.02f + 0.01f * value)));
            memcpy(to + at + 4 * i, &factor, sizeof factor);
        }
        for (uint32_t i = 0; i < halves[type].n; i++) {
            const uint16_t factor = base_f32_to_f16(by * (0.02f + 0.01f * blocks_unit(&seed)));
            memcpy(to + at + halves[type].at[i], &factor, sizeof factor);
        }
        const uint16_t parts = base_f32_to_f16(by * 0.02f);
        for (uint32_t i = 0; type == TYPE_IQ1_M && i < 4; i++)
            to[at + 49 + 2 * i] =
                (unsigned char)((to[at + 49 + 2 * i] & 15) | (parts >> 4 * i & 15) << 4);
    }
}
