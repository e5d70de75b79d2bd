/* rows_inside.h - what the form of rows, their walks and their stats share. For tile/rows.c and
 * tile/rows_stats.c alone. */
#ifndef TILE_ROWS_INSIDE_H
#define TILE_ROWS_INSIDE_H

#include "tile/rows.h"

/* registers [width]; joined: workgroup array */
typedef struct best {
    uint32_t width;
    ir_memory key, index, joined;
} best;

typedef struct form {
    uint32_t wide;   /* elements of a vector */
    uint32_t lanes;  /* of a row */
    uint32_t rows;   /* of a workgroup */
    uint32_t chunks; /* vectors that a lane holds in registers; 0: walks are loops */
    /* loops of one lane, which holds values in arrays; else they are computed again */
    bool arrays;
    bool across; /* a vector has an element of each of `wide` rows, in loops of one lane */
    uint32_t subgroup;
} form;

typedef enum search_kind { SEARCH_NONE, SEARCH_PARTS, SEARCH_ROW, SEARCH_TURNS } search_kind;

typedef struct search { /* for the largest */
    search_kind kind;
    tile_parts parts;
    uint32_t nan, scratch;
    bool keeps; /* turns: of what was kept */
} search;

typedef struct rows {
    tree_walk walk;
    form f;
    ir_id lane;          /* its number among those of its row */
    ir_id length, count; /* of this run's rows; the same as a number */
    search s;
    best best;
    ir_memory kept;
    /* of a walk in loops, of each scan: the sum of this block's steps, and of the blocks before */
    ir_memory carry[TREE_VALUES], blocks[TREE_VALUES];
} rows;

/* What changes nothing in a stat of this kind; x joined to it; two of its sums joined. */
ir_id rows_neutral(rows *r, tree_stat_kind kind, uint32_t width);
ir_id rows_gather(rows *r, tree_stat_kind kind, ir_id sum, ir_id x);
ir_id rows_join(rows *r, tree_stat_kind kind, ir_id x, ir_id y);
/* The stat's result, of what each lane has of its row. */
void rows_finish_stat(rows *r, tree_stat *s, ir_id vector);
/* What lane ^ step has of x. Each call has memory of its own. */
ir_id rows_swapped(rows *r, ir_id x, uint32_t step);

#endif
