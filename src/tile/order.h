/* order.h - rows of keys put in order, equal ones as they were, and sums so far of counts: what
 * operations by index and long sorts are made of. The same in every run. For tile/ alone. */
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

/* A list that a kernel of the user's makes or takes. */
typedef struct tile_order_ends {
    void *user;
    /* Buffers and numbers of a dispatch that calls key, or put. */
    void (*begin)(void *user, tile_kernel *k, bool puts);
    /* The u32 key of an element that the run has. */
    ir_id (*key)(void *user, tile_kernel *k, ir_id row, ir_id column);
    /* An element in its place: the last dispatch. NULL: keys and places stay in scratch. */
    void (*put)(void *user, tile_kernel *k, ir_id row, ir_id column, ir_id key, ir_id place);
} tile_order_ends;

/* Rows of `n` elements at the bound, of which a run has `length`. */
typedef struct tile_ordered {
    uint32_t n;
    lower_count length, rows;
    uint64_t row_bound;
    uint32_t shift, bits; /* keys differ in these bits alone */
    tile_order_ends ends;
    /* by tile_order_plan: elements of a workgroup, of a row in scratch; passes, and their bits */
    uint32_t lanes, each, tile, n_tile, padded, n_pass, digit;
} tile_ordered;

/* false: more than 32 bits count. */
bool tile_order_plan(const lowering *l, tile_ordered *o);
/* Steps that order the rows. */
beryl_status tile_order_sort(lowering *l, const tile_ordered *o);
/* The lists behind the last pass, of `padded` a row. */
ir_memory tile_order_keys(tile_kernel *k, const tile_ordered *o);
ir_memory tile_order_places(tile_kernel *k, const tile_ordered *o);

/* The sum of x over the lanes before this one; *all: over all. `at`: workgroup array of twice the
 * lanes, free again behind the next barrier. */
ir_id tile_order_lanes(tile_kernel *k, ir_id x, ir_memory at, ir_id *all);
/* n counts in scratch ORDER_COUNTS; steps that make of each the sum of those before it. */
ir_memory tile_order_counts(tile_kernel *k, uint32_t n, ir_access access);
beryl_status tile_order_sums(lowering *l, uint32_t n);

#endif
