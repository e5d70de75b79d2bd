/* trial_numbers.c - numbers for the self-test, and how far a kernel may be off. */
#include "engine/trial.h"

#include <string.h>

/* Where a block's f16 scales are; everything else in a block may be any bits. */
typedef struct block_scales { uint16_t at[2]; uint8_t n; } block_scales;

static const block_scales scales_of[TYPE_COUNT] = {
    [TYPE_Q4_0] = {{0}, 1}, [TYPE_Q4_1] = {{0, 2}, 2}, [TYPE_Q5_0] = {{0}, 1}, [TYPE_Q5_1] = {{0, 2}, 2}, [TYPE_Q8_0] = {{0}, 1},
    [TYPE_Q2_K] = {{80, 82}, 2}, [TYPE_Q3_K] = {{108}, 1}, [TYPE_Q4_K] = {{0, 2}, 2}, [TYPE_Q5_K] = {{0, 2}, 2}, [TYPE_Q6_K] = {{208}, 1},
    [TYPE_IQ4_NL] = {{0}, 1}, [TYPE_IQ4_XS] = {{0}, 1},
};

static float unit(base_random *random) {
    return (float)base_random_unit(random) * 2 - 1;
}

void trial_fill_floats(base_random *random, float *to, uint64_t n, float amplitude) {
    for (uint64_t i = 0; i < n; i++) to[i] = unit(random) * amplitude;
}

static void fill_bytes(base_random *random, unsigned char *to, uint64_t n) {
    for (uint64_t i = 0; i < n; i += 8) {
        const uint64_t bits = base_random_next(random);
        memcpy(to + i, &bits, n - i < 8 ? (size_t)(n - i) : 8);
    }
}

void trial_fill_rows(base_random *random, base_type type, uint64_t n_row, uint64_t k, void *to) {
    const uint64_t n = n_row * k;
    if (type == TYPE_F32) {
        trial_fill_floats(random, to, n, 1);
        return;
    }
    if (type == TYPE_F16 || type == TYPE_BF16) {
        uint16_t *half = to;
        for (uint64_t i = 0; i < n; i++) half[i] = type == TYPE_F16 ? base_f32_to_f16(unit(random)) : base_f32_to_bf16(unit(random));
        return;
    }
    const uint64_t bytes = base_type_row_bytes(type, k) * n_row;
    const uint32_t block = base_type_block_bytes(type);
    unsigned char *at = to;
    fill_bytes(random, at, bytes);
    const block_scales *scales = &scales_of[type];
    for (uint64_t b = 0; b < bytes; b += block) {
        if (type == TYPE_MXFP4) at[b] = (unsigned char)(118 + (at[b] & 7)); /* a power of two */
        for (uint32_t s = 0; s < scales->n; s++) {
            const uint16_t d = base_f32_to_f16(0.01f + 0.03f * (float)base_random_unit(random));
            memcpy(at + b + scales->at[s], &d, sizeof d);
        }
    }
}

/* Exact: what rounding of f32 sums over some thousand terms amounts to, with room for another order of the sum. Fast: activations
 * are int8 in blocks of 32, which costs about 0.4 % of uniform numbers; 1 % is the contract. */
double trial_tolerance(base_op op, bool exact, base_type cache) {
    const double rounding = cache == TYPE_F32 ? 0 : cache == TYPE_F16 ? 1e-3 : 1e-2; /* another rounding of a tie in the cache */
    switch (op) {
    case OP_COPY:
    case OP_SET_ROWS: return 0;
    case OP_TOPK:
    case OP_ADD:
    case OP_MUL:
    case OP_SCALE: return 1e-6;
    case OP_GATHER_ROWS:
    case OP_WEIGHTED_SUM:
    case OP_ROPE: return 1e-5;
    case OP_RMS_NORM:
    case OP_SOFTMAX:
    case OP_GELU_TANH:
    case OP_GEGLU:
    case OP_SOFTCAP: return 5e-5; /* exp of shaders */
    case OP_MATMUL:
    case OP_MATMUL_ID: return exact ? 5e-5 : 1e-2;
    case OP_KV_WRITE: return rounding;
    case OP_ATTENTION: return 2e-4 + rounding;
    case OP_ARGMAX:
    case OP_SAMPLE: return 0;
    case OP_FUSED: return exact ? 5e-4 : 1.5e-2;
    case OP_COUNT: break;
    }
    return 0;
}
