/* factors.h - products of a few rows with the vector that a workgroup has made for others: an
 * adapter's A x, which every workgroup makes for itself, or workgroups of its own for a later
 * dispatch.
 *
 * Lanes hold fours of the vector in registers. Sums of 16 rows at a time are joined in a subgroup
 * by halving, so that a lane is left with one of them; those of several subgroups, in workgroup
 * memory. */
#ifndef TILE_FACTORS_H
#define TILE_FACTORS_H

#include "tile/matvec.h"

enum {
    FACTORS_STEP = 16,    /* rows are a multiple of it */
    FACTORS_SPAN_MIN = 8, /* lanes of a subgroup */
    FACTORS_ROWS_MAX = 128,
    FACTORS_AHEAD_MAX = 16,       /* fours that a lane loads before it has the vector */
    FACTORS_APART = 2,            /* rows of a workgroup of their own */
    FACTORS_BYTES_MAX = 160 << 10 /* that each workgroup reads, rather than wait for a dispatch */
};

typedef struct tile_factors {
    tile_matvec *m;
    tile_weight a;       /* [rows, k], plain */
    uint32_t rows, step; /* step: at a time, a power of two up to FACTORS_STEP */
    ir_memory scales;    /* F32 [rows] */
    ir_memory parts;     /* in workgroup memory */
    /* F32 [rows], the results: there; where `stored`, bound by the caller */
    ir_memory made;
    bool stored;
    ir_id begin, end; /* those that this workgroup makes, multiples of `step` */
    /* of them, loaded before the vector is there: at least so many are made */
    uint32_t ahead;
    ir_id loaded[FACTORS_AHEAD_MAX];
} tile_factors;

/* Workgroup memory, in bytes. */
uint32_t tile_factors_bytes(uint32_t rows, uint32_t wg, uint32_t span);
/* Of f: all but begin, end and what is in workgroup memory. */
void tile_factors_open(tile_factors *f);
/* Loads of the first rows, before the vector is made; least: rows that every workgroup makes. */
void tile_factors_fetch(tile_factors *f, uint32_t least);
/* x: the lane's own fours (tile_matvec_own), any numbers beyond the vector. A barrier has to stand
 * between the two; the second ends with one, unless `stored`. */
void tile_factors_add(tile_factors *f, const ir_id *x);
void tile_factors_end(tile_factors *f);

#endif
