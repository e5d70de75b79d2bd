/* whole.h - whole numbers of which forms are made. */
#ifndef TILE_WHOLE_H
#define TILE_WHOLE_H

#include <stdint.h>

static inline uint32_t whole_least(uint32_t a, uint32_t b) {
    return a < b ? a : b;
}

static inline uint32_t whole_most(uint32_t a, uint32_t b) {
    return a > b ? a : b;
}

/* n / by, rounded up. */
static inline uint32_t whole_over(uint32_t n, uint32_t by) {
    return (n + by - 1) / by;
}

/* The smallest power of two from n on. */
static inline uint32_t whole_power_from(uint32_t n) {
    uint32_t p = 1;
    while (p < n && p < 1u << 30) p *= 2;
    return p;
}

/* The largest power of two up to n. */
static inline uint32_t whole_power_to(uint32_t n) {
    uint32_t p = 1;
    while (p * 2 <= n) p *= 2;
    return p;
}

/* The largest divisor of n up to `most`. */
static inline uint32_t whole_divisor(uint32_t n, uint32_t most) {
    uint32_t d = whole_least(n, most);
    while (n % d) d--;
    return d;
}

#endif
