/* lower_matvec.h - which form of the matvec kernel serves a product: a pure function of types, shapes and the device,
 * apart from the lowering so that tests and benchmarks can call it, or choose otherwise. */
#ifndef GRAPH_LOWER_MATVEC_H
#define GRAPH_LOWER_MATVEC_H

#include "base/types.h"
#include "graph/lower_form.h"
#include "graph/lower_request.h"

enum {
    MATVEC_SEGMENT_MAX = 3,
    MATVEC_ROWS_MAX = 32,              /* more vectors are the tiled kernel's */
    MATVEC_REREAD_DEVICE = 8 << 20,    /* numbers that all workgroups together may read again to make their vectors, */
                                       /* rather than wait for a dispatch that makes them once */
    MATVEC_SHARED_SOFTWARE = 32 << 10  /* products of a matvec on a software device that may have them in workgroup memory */
};

typedef enum matvec_x { /* how the vectors are kept */
    MATVEC_DIRECT,     /* f32, read where they lie */
    MATVEC_SHARED,     /* f32 in workgroup memory */
    MATVEC_INT8,       /* rounded to int8 in workgroup memory */
    MATVEC_QUANTISED   /* rounded to int8 by an earlier dispatch */
} matvec_x;

typedef struct matvec_shape {
    uint32_t n_segment;
    base_type types[MATVEC_SEGMENT_MAX];
    uint32_t rows[MATVEC_SEGMENT_MAX];
    uint32_t k, n_x;  /* n_x: at most */
    uint32_t per;     /* weights read for one result; 0: 1 */
    bool exact;       /* f32 activations */
    bool x_any, w_any; /* vectors, weight rows that do not lie at multiples of 16 bytes */
    bool rounded_in;  /* the vectors come as int8, where the product would round them */
    bool rounded_out; /* results are handed on as int8 blocks of 32 rows: a tile is whole blocks */
    bool single;      /* not matvec_batch.wgsl: benchmarks compare */
    bool worked;      /* the vectors come from a prologue that works (a norm), which the caller puts in */
    bool crowded;     /* its invocations hold so much of their vectors that a unit has room for one such workgroup */
    const lower_form *form; /* what is asked for; NULL: nothing */
    uint32_t beside;  /* bytes of workgroup memory that other parts take */
} matvec_shape;

typedef struct matvec_choice { /* the options of matvec.wgsl */
    matvec_x x;
    uint32_t wg, lanes, rows, n_x;
    uint32_t depth;      /* 0: 1 */
    uint32_t groups;     /* workgroups at most: they walk the tiles, */
    bool once;           /* or have one each: said by who knows how many there are, before matvec_request */
    uint32_t span;       /* lanes whose sums are joined by shuffles; more lanes than that go through workgroup memory */
    bool subgroups;
    uint32_t share, near; /* not 0: matvec_batch.wgsl, and its lanes of a row in a subgroup, rows in neighbouring lanes */
    uint32_t copies;      /* generated: of each table that weights are looked up in, in workgroup memory */
    bool resident;        /* there: one window of the vectors is all of k */
} matvec_choice;

/* The vectors would be rounded to int8. */
bool matvec_rounds(const device_caps *caps, const matvec_shape *shape);
/* false: no form fits (vectors too long for workgroup memory where they must lie there). */
bool matvec_choose(const device_caps *caps, const matvec_shape *shape, matvec_choice *out);
/* Options and the parts x, prologue (unless worked), reduce, reader and body. prefixes: of the segments, NULL for one without. */
void matvec_request(lower_request *r, const matvec_shape *shape, const matvec_choice *choice, const char *const *prefixes);
/* The forms for a batch of vectors (lower_matvec_batch.c), which matvec_choose and matvec_request ask and use.
 * choose: false where there is none, or not enough to do. best: whatever there is to do. fits: the device and the shape allow
 * it. */
bool matvec_batch_choose(const device_caps *caps, const matvec_shape *shape, matvec_choice *out);
bool matvec_batch_best(const device_caps *caps, const matvec_shape *shape, matvec_choice *out);
bool matvec_batch_fits(const device_caps *caps, const matvec_shape *shape, const matvec_choice *choice);
void matvec_batch_request(lower_request *r, const matvec_shape *shape, const matvec_choice *choice, const char *const *prefixes);
/* Invocations that sum through shuffles: at most the subgroup's size. */
uint32_t matvec_span(const device_caps *caps, const matvec_choice *choice);
/* Rows of one tile. */
uint32_t matvec_tile(const matvec_choice *choice);

/* "read_q4_k"; `any` for plain values whose rows do not begin at 16 bytes; NULL: no reader. */
const char *matvec_reader(base_type type, bool any);
uint32_t matvec_reader_shift(base_type type); /* log2 of a chunk's elements */

#endif
