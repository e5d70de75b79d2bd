/* sample.c - choosing a token, see sample.h. */
#include "base/sample.h"
#include "base/thread.h"

#include <math.h>

void base_largest(const float *x, uint32_t n, uint32_t k, float *values, int32_t *indices) {
    uint32_t count = 0;
    for (uint32_t i = 0; i < n; i++) {
        float v = isnan(x[i]) ? -INFINITY : x[i];
        if (count == k && !(v > values[k - 1])) continue;
        uint32_t at = count < k ? count++ : k - 1;
        while (at > 0 && v > values[at - 1]) {
            values[at] = values[at - 1];
            indices[at] = indices[at - 1];
            at--;
        }
        values[at] = v;
        indices[at] = (int32_t)i;
    }
}

int32_t base_sample(const float *logits, uint32_t n, const base_sample_settings *s) {
    float values[BASE_CANDIDATE_MAX], p[BASE_CANDIDATE_MAX];
    int32_t indices[BASE_CANDIDATE_MAX];
    uint32_t k = s->top_k && s->top_k < BASE_CANDIDATE_MAX ? s->top_k : BASE_CANDIDATE_MAX;
    if (s->temperature <= 0) k = 1;
    if (!n) return -1;
    if (k > n) k = n;
    base_largest(logits, n, k, values, indices);
    if (k == 1) return indices[0];
    float total = 0;
    for (uint32_t i = 0; i < k; i++) total += p[i] = expf((values[i] - values[0]) / s->temperature);
    uint32_t keep = 0;
    float sum = 0;
    bool top_p = s->top_p > 0 && s->top_p < 1;
    while (keep < k && (keep == 0 || !top_p || sum < s->top_p * total) &&
           (keep == 0 || s->min_p <= 0 || p[keep] >= s->min_p * p[0]))
        sum += p[keep++];
    uint32_t out[2];
    base_threefry(s->seed, (const uint32_t[2]){s->counter, 0}, out);
    float u = (float)(out[0] >> 8) * (1.0f / 16777216.0f) * sum, so_far = 0;
    for (uint32_t i = 0; i < keep; i++) {
        so_far += p[i];
        if (so_far > u) return indices[i];
    }
    return indices[keep - 1];
}
