/* factors.h - products of a few rows with the vector that a workgroup has made for others: an
 * adapter's A x, which every workgroup makes for itself, or workgroups of its own for a later
 * dispatch.
 *
 * Who makes them for itself gives each subgroup rows of its own, and keeps the vector in workgroup
 * memory for that. Workgroups of their own have few rows, which all lanes share. */
#ifndef TILE_FACTORS_H
#define TILE_FACTORS_H

#include "tile/matvec.h"

enum {
    FACTORS_STEP = 16,    /* rows are a multiple of it */
    FACTORS_SPAN_MIN = 8, /* lanes of a subgroup */
    FACTORS_ROWS_MAX = 128,
    FACTORS_AHEAD_MAX = 12,       /* fours that a lane loads before the vector is there */
    FACTORS_APART = 2,            /* rows of a workgroup of their own */
    FACTORS_BYTES_MAX = 160 << 10 /* that each workgroup reads, rather than wait for a dispatch */
};

typedef struct tile_factors {
    tile_matvec *m;
    tile_weight a; /* [rows, k], plain */
    uint32_t rows;
    ir_memory scales; /* F32 [rows] */
    /* in workgroup memory: the vector; where `stored`, sums of subgroups */
    ir_memory x, parts;
    /* F32 [rows], the results: in workgroup memory; where `stored`, bound by the caller */
    ir_memory made;
    bool stored;
    ir_id begin, end; /* those that this workgroup makes */
    /* asked for before the vector is there: fours, of so many rows of each subgroup */
    uint32_t ahead, ahead_rows;
    ir_id loaded[FACTORS_AHEAD_MAX], scale[FACTORS_AHEAD_MAX];
} tile_factors;

/* Workgroup memory, in bytes, of those who make `rows` for themselves. */
uint32_t tile_factors_bytes(uint32_t rows, uint32_t k);
/* Of f: all but begin, end and what is in workgroup memory. */
void tile_factors_open(tile_factors *f);
/* Loads of the first rows, before the vector is made; least: rows that every workgroup makes. */
void tile_factors_fetch(tile_factors *f, uint32_t least);
/* x: the lane's own fours (tile_matvec_own), any numbers beyond the vector. A barrier has to stand
 * between two of these; what they make is there behind one more. */
void tile_factors_keep(tile_factors *f, const ir_id *x);
void tile_factors_add(tile_factors *f);
/* Where `stored`: sums of subgroups before the barrier, theirs behind it. x NULL: the vector came
 * rounded. */
void tile_factors_part(tile_factors *f, const ir_id *x);
void tile_factors_end(tile_factors *f);

#endif
