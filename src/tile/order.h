/* order.h - a list of keys put in order, equal ones as they were, and sums so far of counts: what
 * operations by index are made of. The same in every run. For tile/ alone. */
#ifndef TILE_ORDER_H
#define TILE_ORDER_H

#include "tile/kernel.h"

enum {
    ORDER_LANES = 64,
    ORDER_KEYS = 0,   /* scratch: two lists of keys, */
    ORDER_PLACES = 2, /* two of where they were, */
    ORDER_COUNTS = 4, /* and levels of sums, up to 6; users' own from ORDER_OWN on */
    ORDER_OWN = 16
};

/* n keys, 0 .. most; behind them come keys of `most`, up to `padded`. */
typedef struct tile_ordered {
    uint32_t n, most, each, n_chunk, padded, n_pass;
} tile_ordered;

tile_ordered tile_order_of(uint32_t n, uint32_t most);
/* The list before (0) or behind (n_pass) the passes. */
ir_memory tile_order_keys(tile_kernel *k, const tile_ordered *o, uint32_t pass, ir_access access);
ir_memory tile_order_places(tile_kernel *k, const tile_ordered *o, uint32_t pass, ir_access access);
/* Steps that order the list. */
beryl_status tile_order_sort(lowering *l, const graph_node *node, const tile_ordered *o,
                             beryl_error *error);

/* n counts in scratch ORDER_COUNTS; steps that make of each the sum of those before it. */
ir_memory tile_order_counts(tile_kernel *k, uint32_t n, ir_access access);
beryl_status tile_order_sums(lowering *l, const graph_node *node, uint32_t n, beryl_error *error);

#endif
