/* fragment_inside.h - a product of matrices as ir/pass/fragment.c finds and writes it: for
 * fragment*.c alone. */
#ifndef IR_PASS_FRAGMENT_INSIDE_H
#define IR_PASS_FRAGMENT_INSIDE_H

#include "ir/pass/edit.h"

enum {
    ROWS = 16,
    COLUMNS = 8,
    DEPTH = 16,
    PAD = 8,
    PIECE = 8,
    OUTER_AXIS = 2,
    LINE = 64, /* elements of a line of 128 bytes */
    WARPS = 4  /* subgroups of one direct product */
};

typedef struct side {
    ir_id value; /* f16 or bf16, inside the reduction */
    /* where it is a load: that; or of turns of k below `split` one, of the rest another. turn: what
     * stands for k in it. n_load 0: it is more than that */
    ir_id load[2], turn[2], split;
    uint32_t n_load;
    uint32_t loop;        /* m or n */
    uint32_t warps, each; /* subgroups along it, fragments of each */
    uint32_t unit, size;  /* rows of a fragment, of the tile */
    uint32_t axis;        /* of the groups */
    bool copied;          /* by asynchronous copies; else loaded, perhaps computed, and stored */
    bool across;          /* neighbours in memory differ in the row, not in k: tiles lie so too */
    /* held: a lane's part of the next tile, until the one in use is done with */
    ir_memory memory, held;
    ir_id first; /* new: where the tile begins */
} side;

typedef enum way { WHOLE_WAY, TO_REGISTERS, FROM_REGISTERS } way;

/* Which load of a factor that has two: by turn of k, or known. */
typedef enum load_of { EITHER, BELOW_SPLIT, ABOVE_SPLIT } load_of;

typedef struct product {
    pass_edit *e;
    uint32_t m, n, k; /* the loops */
    ir_id turn;       /* what stands for k in what is being cloned */
    load_of copies;   /* where a loop is cut at the split */
    /* a parallel loop around m, whose turns are products of their own; IR_NO_ID: none */
    uint32_t outer;
    side a, b;
    uint32_t depth, subgroup;
    uint32_t slots;  /* tiles of each factor in workgroup memory */
    bool once;       /* one of each, by copies: all of k */
    bool direct;     /* products straight from there */
    uint32_t rounds; /* of those: ir_schedule.rounds */
    uint32_t strip;  /* fragments of c that leave at a time */
    uint16_t array;  /* register array of the sum */
    ir_type type;    /* of a and b */
    uint32_t *seen, stamp, steps;
    ir_id *cloned;
    uint16_t fragments[3]; /* c, a, b */
    uint16_t whole;        /* the sums: c, or those that c is added to */
} product;

/* Whether the loops at p->m, around which is p->outer, are a product, and there is room. */
bool fragment_find(product *p);
/* Elements of a subgroup's strip: rows with a gap, so that they begin in different banks. */
uint32_t fragment_strip_stride(const product *p);
/* A tile's elements from one of its lines to the next, and all of them. Lines are rows of the
 * factor, or, of one that lies across, turns of k; where products are direct, of LINE elements:
 * what is longer lies in panels of so many one after the other. */
uint32_t fragment_line_stride(const product *p, const side *s);
uint32_t fragment_tile_size(const product *p, const side *s);

#endif
