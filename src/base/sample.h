/* sample.h - the rule by which a token is chosen from logits. Kernels are judged by it, the host
 * path uses it.
 *
 * Candidates are the top_k largest logits (at most BASE_CANDIDATE_MAX), falling, ties by lower
 * index; p = exp((l - l0) / temperature); top-p keeps the shortest prefix whose sum reaches
 * top_p of the whole (at least one); min-p drops p < min_p * p[0]; u in [0, 1) is drawn by
 * Threefry at {counter, 0}, and the first candidate whose running sum exceeds u * kept sum is
 * taken. All sums in f32, in order. Temperature 0 takes the likeliest. */
#ifndef BASE_SAMPLE_H
#define BASE_SAMPLE_H

#include "beryl.h"

enum { BASE_CANDIDATE_MAX = 256 };

typedef struct base_sample_settings { /* 8 words, as devices read them */
    float temperature, top_p, min_p;  /* top_p >= 1 or <= 0, min_p <= 0: off */
    uint32_t top_k;                   /* at most BASE_CANDIDATE_MAX; 0: that many */
    uint32_t seed[2];                 /* Threefry key */
    uint32_t counter;                 /* of the draw: the position */
    uint32_t reserved;
} base_sample_settings;

/* The k largest of x[n] in falling order, ties by lower index; k <= n. NaN is never chosen
 * before a number. */
void base_largest(const float *x, uint32_t n, uint32_t k, float *values, int32_t *indices);
int32_t base_sample(const float *logits, uint32_t n, const base_sample_settings *settings);

#endif
