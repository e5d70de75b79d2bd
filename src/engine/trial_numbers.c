/* trial_numbers.c - numbers for the self-test, and how far a kernel may be off. */
#include "engine/trial.h"

#include <math.h>
#include <string.h>

#define SCALE_LEAST 1e-4f /* scales that are no normal f16 number are a device's own business */

/* Where a block's f16 scales are; everything else in a block may be any bits. The second one is that of the minimum: so many
 * times the first that the weights' mean is about 0 (else all results of a product are nearly the same). */
typedef struct block_scales { uint16_t at[2]; uint8_t n; float second; } block_scales;

static const block_scales scales_of[TYPE_COUNT] = {
    [TYPE_Q4_0] = {{0}, 1, 0}, [TYPE_Q5_0] = {{0}, 1, 0}, [TYPE_Q8_0] = {{0}, 1, 0}, [TYPE_Q3_K] = {{108}, 1, 0}, [TYPE_Q6_K] = {{208}, 1, 0},
    [TYPE_IQ4_NL] = {{0}, 1, 0}, [TYPE_IQ4_XS] = {{0}, 1, 0}, [TYPE_Q4_1] = {{0, 2}, 2, -7.5f}, [TYPE_Q5_1] = {{0, 2}, 2, -15.5f},
    [TYPE_Q2_K] = {{80, 82}, 2, 1.5f}, [TYPE_Q4_K] = {{0, 2}, 2, 7.5f}, [TYPE_Q5_K] = {{0, 2}, 2, 15.5f},
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

/* Root mean square of the first elements, at most 1,024. */
static double size_of(base_type type, uint64_t n, const void *from) {
    float values[1024];
    if (n > 1024) n = 1024;
    base_dequantise(type, from, values, (size_t)n);
    double sum = 0;
    for (uint64_t i = 0; i < n; i++) sum += (double)values[i] * (double)values[i];
    return sqrt(sum / (double)n);
}

static void put_scale(unsigned char *at, float value) {
    if (fabsf(value) < SCALE_LEAST) value = SCALE_LEAST;
    const uint16_t d = base_f32_to_f16(value);
    memcpy(at, &d, sizeof d);
}

static void put_scales(base_random *random, const block_scales *scales, uint64_t bytes, uint32_t block, float size, unsigned char *to) {
    for (uint64_t b = 0; scales->n && b < bytes; b += block) {
        const float d = size * (0.5f + (float)base_random_unit(random));
        put_scale(to + b + scales->at[0], d);
        if (scales->n > 1) put_scale(to + b + scales->at[1], d * scales->second * (0.9f + 0.2f * (float)base_random_unit(random)));
    }
}

static void fill_blocks(base_random *random, base_type type, uint64_t n_row, uint64_t k, float size, unsigned char *to) {
    const uint64_t bytes = base_type_row_bytes(type, k) * n_row;
    const uint32_t block = base_type_block_bytes(type);
    fill_bytes(random, to, bytes);
    if (type == TYPE_MXFP4) { /* a power of two before values of about 3 */
        const int power = (int)floor(log2((double)size / 3)) + 126;
        for (uint64_t b = 0; b < bytes; b += block) to[b] = (unsigned char)(power + (to[b] & 1));
        return;
    }
    const base_random start = *random;
    put_scales(random, &scales_of[type], bytes, block, 0.02f, to);
    const float factor = size / (float)size_of(type, k, to);
    *random = start;
    put_scales(random, &scales_of[type], bytes, block, 0.02f * factor, to);
}

/* A product with a row of a matrix is about 4, as gates and logits are: not where gelu or a cap has no slope. */
void trial_fill_rows(base_random *random, base_type type, uint64_t n_row, uint64_t k, void *to) {
    const float size = n_row > 1 ? 7 / sqrtf((float)k) : 1;
    const uint64_t n = n_row * k;
    uint16_t *half = to;
    if (type == TYPE_F32) {
        trial_fill_floats(random, to, n, size);
    } else if (type == TYPE_F16 || type == TYPE_BF16) {
        for (uint64_t i = 0; i < n; i++) half[i] = type == TYPE_F16 ? base_f32_to_f16(unit(random) * size) : base_f32_to_bf16(unit(random) * size);
    } else {
        fill_blocks(random, type, n_row, k, size, to);
    }
}

/* Exact: what rounding of f32 sums over some thousand terms amounts to, with room for another order of the sum. Fast: activations
 * are int8 in blocks of 32, which costs 0.4 % of uniform numbers and up to 1.4 % where two such products are multiplied; few
 * results scatter more. The room is wide, since a false alarm refuses a good device and a wrong kernel is off by far more. */
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
    case OP_MATMUL_ID: return exact ? 2e-5 : 2e-2;
    case OP_KV_WRITE: return rounding;
    case OP_ATTENTION: return 2e-4 + rounding;
    case OP_ARGMAX:
    case OP_SAMPLE: return 0;
    case OP_FUSED: return exact ? 5e-5 : 4e-2;
    case OP_COUNT: break;
    }
    return 0;
}
