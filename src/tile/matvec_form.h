/* matvec_form.h - a product with few vectors, and the forms of a kernel that makes it. */
#ifndef TILE_MATVEC_FORM_H
#define TILE_MATVEC_FORM_H

#include "base/types.h"
#include "tile/form.h"

enum {
    MATVEC_SEGMENT_MAX = 3,
    MATVEC_ROWS_MAX = 32, /* more vectors are the tiled kernel's */
    /* numbers that all workgroups together may read again to make their vectors, */
    MATVEC_REREAD_DEVICE = 8 << 20
    /* rather than wait for a dispatch that makes them once */
};

typedef enum matvec_x {                   /* how the vectors are kept */
                        MATVEC_DIRECT,    /* f32, read where they lie */
                        MATVEC_SHARED,    /* f32 in workgroup memory */
                        MATVEC_INT8,      /* rounded to int8 in workgroup memory, or copied there */
                        MATVEC_QUANTISED, /* rounded to int8 by an earlier dispatch */
                        MATVEC_COPIED     /* the same, a window at a time in workgroup memory */
} matvec_x;

typedef struct matvec_shape {
    uint32_t n_segment;
    base_type types[MATVEC_SEGMENT_MAX];
    uint32_t rows[MATVEC_SEGMENT_MAX];
    uint32_t k, n_x;    /* n_x: at most */
    uint32_t per;       /* weights read for one result; 0: 1 */
    bool exact;         /* f32 activations */
    bool rounded_in;    /* the vectors come as int8, where the product would round them */
    bool rounded_apart; /* rounded_in: by a dispatch that does nothing else */
    bool rounded_out; /* results are handed on as int8 blocks of 32 rows: a tile is whole blocks */
    /* the vectors come from a prologue that works (a norm), which the caller puts in */
    bool has_prologue;
    const lower_form *form; /* what is asked for; NULL: nothing */
    uint32_t shared;        /* numbers that a prologue has in workgroup memory, beside subgroups */
    bool beside;            /* workgroups of their own stand beside the product's */
    uint32_t parts;         /* of a sum of so many rows, which each workgroup makes */
    bool keeps;             /* a tile's results are looked at again */
    uint32_t factors;       /* rows that every workgroup multiplies too (tile/factors.h) */
} matvec_shape;

typedef struct matvec_choice { /* see matvec.h */
    matvec_x x;
    uint32_t wg, lanes, rows, n_x;
    uint32_t depth;  /* 0: 1 */
    uint32_t groups; /* workgroups at most: they walk the tiles */
    /* lanes whose sums are joined by shuffles; more lanes than that go through workgroup memory */
    uint32_t span;
    bool subgroups;
    /* not 0: lanes of a row in a subgroup, rows in neighbouring lanes */
    uint32_t share, near;
    /* of each table that weights are looked up in, in workgroup memory */
    uint32_t copies;
    /* MATVEC_COPIED: elements of a window. Of a row's lanes `share` are neighbours;
     * each such run of them has other parts of every window. */
    uint32_t window;
} matvec_choice;

#endif
