/* measure.h - what a device can do at most, measured on it: what the speed of plans and
 * operations is held against. */
#ifndef ENGINE_MEASURE_H
#define ENGINE_MEASURE_H

#include "graph/store.h"

typedef enum measure_kind {
    MEASURE_READ, /* bytes a second that are only read */
    MEASURE_COPY, /* bytes a second, read and written each counted */
    MEASURE_FMA   /* f32 operations a second, a fused multiply-add counted as two */
} measure_kind;

/* store: whose buffers may serve for reading; NULL: none. memory: bytes of the device that may
 * be used; 0: what it has. Takes a few ms on a GPU; native only. UNSUPPORTED: it computes
 * nothing (dummy). */
beryl_status measure_rate(base_heap *heap, device *d, const graph_store *store, uint64_t memory,
                          measure_kind kind, double *rate, beryl_error *error);

/* Sorts x. */
double measure_median(double *x, uint32_t n);

#endif
