/* factors.h - products of a few rows with the vector that a workgroup has made for others: an
 * adapter's A x, which every workgroup makes for itself, or workgroups of its own for a later
 * dispatch.
 *
 * Who makes them for itself gives each subgroup rows of its own, and reads the vector where the
 * others find it in workgroup memory. Workgroups of their own have few rows, which all lanes
 * share. */
#ifndef TILE_FACTORS_H
#define TILE_FACTORS_H

#include "tile/matvec.h"

enum {
    FACTORS_STEP = 16,    /* rows are a multiple of it */
    FACTORS_SPAN_MIN = 8, /* lanes of a subgroup */
    FACTORS_ROWS_MAX = 128,
    FACTORS_AHEAD_MAX = 60, /* words that a lane loads before the vector is there */
    FACTORS_APART = 2,      /* rows of a workgroup of their own beside products */
    FACTORS_ASKED_MAX = 32, /* fours that a lane asks for before the vector is there */
    /* of A, that each workgroup reads, rather than wait for a dispatch */
    FACTORS_ELEMENTS_MAX = 80 << 10
};

typedef struct tile_factors {
    tile_matvec *m;
    tile_weight a; /* [rows, k] from row `first` on: plain, or Q8_0 */
    ir_id first;
    uint32_t rows;
    ir_memory scales; /* F32 [rows] */
    ir_memory parts;  /* where `apart`: sums of subgroups, in workgroup memory */
    /* F32 [vectors, rows], the results: in workgroup memory; where `apart`, bound by the caller */
    ir_memory made;
    uint32_t apart; /* not 0: rows of a workgroup of their own, at most */
    bool several;   /* vectors of the run, whose scales begin here, and, where `apart`, results */
    ir_id scales_at[TILE_VECTORS_MAX], made_at;
    bool is_asked;
    ir_id asked[FACTORS_ASKED_MAX]; /* of each of the lane's fours, of each row */
    ir_id begin, end;               /* those that this workgroup makes */
    tile_matvec own; /* the workgroup as subgroups with rows of their own, over m's vector */
    tile_rows ahead; /* of them the first ones, which are asked for before the vector is there */
    ir_id scale[TILE_SUMS_MAX];
} tile_factors;

/* Rows of n numbers of A, read by elements; names: of the buffer, then of its planes. */
void tile_factors_bind(tile_kernel *k, const char *const names[1 + PACK_PLANE_MAX], graph_value a,
                       base_type type, ir_type element, uint32_t n, tile_weight *w);
/* Four u of a stored row of A. */
ir_id tile_factors_four(ir_builder *b, tile_weight *a, ir_id row, ir_id u);
/* May A be of this type, where the vector is kept so? */
bool tile_factors_takes(base_type type, matvec_x x);
/* Of f: all but begin, end and what is in workgroup memory. */
void tile_factors_open(tile_factors *f);
/* Loads of the first rows, before the vector is made; least: rows that every workgroup makes. */
void tile_factors_fetch(tile_factors *f, uint32_t least);
/* Where the vector is in workgroup memory; what this makes is there behind a barrier. */
void tile_factors_add(tile_factors *f);
/* Where `apart`: loads of the workgroup's rows, of which there are some, before the vector is made;
 * sums of subgroups before the barrier, theirs behind it. x: the lane's own fours
 * (tile_matvec_own), any numbers beyond the vector; NULL: the vector came rounded. */
void tile_factors_ask(tile_factors *f);
void tile_factors_part(tile_factors *f, const ir_id *x);
void tile_factors_end(tile_factors *f);

#endif
