/* trial_numbers.c - numbers for the self-test, and how far a kernel may be off. */
#include "engine/trial.h"

static float unit(base_random *random) {
    return (float)base_random_unit(random) * 2 - 1;
}

void trial_fill_floats(base_random *random, float *to, uint64_t n, float amplitude) {
    for (uint64_t i = 0; i < n; i++) to[i] = unit(random) * amplitude;
}

enum { BLOCK_MAX = 256 };

void trial_fill_block(base_random *random, base_type type, unsigned char *to, float least,
                      float most) {
    const uint32_t n = base_type_block(type), bytes = base_type_block_bytes(type);
    float values[BLOCK_MAX], largest;
    do {
        for (uint32_t i = 0; i < bytes; i++)
            to[i] = (unsigned char)(base_random_next(random) >> 24);
        base_dequantise(type, to, values, n);
        largest = 0;
        for (uint32_t i = 0; i < n; i++) {
            const float size = values[i] < 0 ? -values[i] : values[i];
            if (!(size <= largest)) largest = size; /* NaN stays */
        }
    } while (!(largest >= least && largest <= most));
}

/* Exact: what rounding of f32 sums over some thousand terms amounts to, with room for another
 * order of the sum. Fast: activations are int8 in blocks of 32, which costs 0.4 % of uniform
 * numbers and up to 1.4 % where two such products are multiplied; few results scatter more. A
 * joined step of attention takes its own key and value before they are rounded for the cache:
 * with Q8_0 that is the same rounding, in the reference alone. The room is wide, since a false
 * alarm refuses a good device and a wrong kernel is off by far more. */
double trial_tolerance(base_op op, bool exact, base_type cache) {
    /* another rounding of a tie in the cache */
    const double rounding = cache == TYPE_F32 ? 0 : cache == TYPE_F16 ? 1e-3 : 1e-2;
    switch (base_ops[op].closeness) {
    case CLOSE_EQUAL: return 0;
    case CLOSE_ROUNDED: return 1e-6;
    case CLOSE_SUMMED: return 1e-5;
    case CLOSE_FUNCTION: return 5e-5; /* exp of shaders */
    case CLOSE_PRODUCT: return exact ? 2e-5 : 2e-2;
    case CLOSE_CACHED: return rounding;
    case CLOSE_ATTENDED: return 2e-4 + rounding;
    case CLOSE_JOINED: return exact && cache != TYPE_Q8_0 ? 5e-5 : 4e-2;
    }
    return 0;
}
