/* dots_tile.h - one tile of a product that multiplies bytes, for tile/dots.c alone:
 * brought to workgroup memory, multiplied, stored. */
#ifndef TILE_DOTS_TILE_H
#define TILE_DOTS_TILE_H

#include "tile/dots.h"
#include "tile/matvec_inside.h"

enum {
    DOTS_BLOCK = 32,
    DOTS_LANES = 16,   /* lanes that divide a tile's rows; each has every 16th */
    DOTS_ROWS_MAX = 8, /* of a lane */
    DOTS_EACH_MAX = 8  /* chunks or blocks that a lane brings of a tile */
};

typedef struct dots_form { /* numbers that tuning may change */
    uint32_t vectors;      /* of a tile */
    uint32_t rows;         /* of a lane */
    uint32_t each;         /* vectors of a lane */
    uint32_t depth;        /* of a tile's k */
    uint32_t parts;        /* that k is divided into, each with groups of its own */
} dots_form;

typedef struct dots_kind { /* of a weight's type */
    base_type type;
    bool least;    /* elements have a least number, not 0 */
    bool halves;   /* scales are of 16 elements */
    uint32_t span; /* of elements that as many neighbouring chunks hold: it is whole blocks */
    uint32_t chunk;
} dots_kind;

/* Factors of a block in workgroup memory: of a row scale and least, maybe of both halves; of a
 * vector the scale, and scaled sums where the row has leasts. */
uint32_t dots_row_factors(const dots_kind *w);
uint32_t dots_vector_factors(const dots_kind *w);
/* Rows of a plane of vectors: two more than there are, so that the pieces of a vector, which
 * neighbouring lanes bring, lie in different banks. */
uint32_t dots_pitch(const dots_form *f);

typedef struct dots { /* the kernel being made */
    tile_kernel k;
    const tile_tiled_product *p;
    dots_form f;
    dots_kind w;
    uint32_t per;          /* rows for one result (2: gate and up) */
    uint32_t blocks, rows; /* of a tile */
    uint32_t columns;      /* results of a vector in a tile */
    uint32_t pieces;       /* of 16 bytes that lie side by side in memory, of a vector in a tile; */
    uint32_t pairs_of;     /* such runs of them: two blocks, or one */
    uint32_t piece_turns;  /* pieces that a lane brings, */
    uint32_t pair_turns;   /* factors of two blocks, */
    uint32_t units, share; /* a row's chunks in a tile; tiles that share one */
    uint32_t row_turns;    /* chunks that a lane brings */
    uint32_t steps;        /* tiles of k */
    tile_weight weight[2];
    tile_pairs pairs;
    ir_memory x, scales, list, out;
    ir_memory x_tile, w_tile, x_factors, w_factors; /* workgroup */
    ir_memory x_ahead, scale_ahead, w_ahead, sums;  /* of a lane */
    tree_walk end;
    /* what is added of low rank, to each of per: vectors, F32, and rows of the weight, from
     * low_first on */
    ir_memory low;
    tile_weight low_w[2];
    ir_id low_offset[2], low_stride, low_first[2];
    uint32_t rank;
    ir_id start, count, pairs_at; /* row of the first; rows; of an expert: its pairs in the list */
    ir_id out_offset, out_stride, n;
    ir_id bound; /* vectors that their memory has room for */
    ir_id first; /* of the tile's vectors */
    ir_id column;
    /* that each turn brings */
    ir_id row_of[DOTS_EACH_MAX], vector_of[DOTS_EACH_MAX], pair_vector_of[DOTS_EACH_MAX];
    ir_id other[DOTS_EACH_MAX]; /* is the row one of the second weight? */
} dots;

/* The tile that begins at vector d->first and row d->column, over this part of k. */
void dots_tile(dots *d);

#endif
