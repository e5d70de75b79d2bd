/* matvec_low.h - what the kernels of products with few vectors share with what adds products of low
 * rank to theirs (an adapter's). For tile/matvec_fused.c and tile/matvec_low.c alone.
 *
 * B is multiplied at the end of a tile, by elements that were asked for before anything was waited
 * for. Its vector, A x times factors, comes from a dispatch before, of many vectors from the one
 * that makes them, or every workgroup makes what its tiles take; or workgroups of their own make it
 * beside the products, for a later dispatch.
 * Where x is the result of products before, those make parts of A x of what they have at hand,
 * whose sum is taken here (tile/matvec_parts.c). */
#ifndef TILE_MATVEC_LOW_H
#define TILE_MATVEC_LOW_H

#include "tile/factors.h"
#include "tile/fused.h"
#include "tile/matvec_fused.h"
#include "tile/products.h"
#include "tile/vectors.h"

enum { PARTS_AHEAD_MAX = 2 /* fours of two rows that a lane asks for ahead */ };

typedef struct matvec_segment {
    graph_value w, out;
    base_type type;
    uint32_t first, rows; /* rows [first, first + rows) of the stored tensor (shard) */
    uint32_t out_offset, out_stride;
    const graph_pack_layout *layout;
} matvec_segment;

/* What is added to a product: rows of r elements, in one buffer, times a vector of r elements. */
typedef struct matvec_low {
    bool is; /* of any product */
    base_type type;
    struct {
        uint32_t r, first, offset, w; /* r 0: nothing; first: row of the stored tensor w[w] */
    } of[FUSED_SEGMENT_MAX];
    uint32_t stride; /* from a vector to the next */
    uint32_t n;
    graph_value x, w[FUSED_SEGMENT_MAX]; /* x: a value in the buffer of all; w [n] */
    /* not 0: x has so many elements, which every workgroup makes, with rows of the stored tensor
     * `a` from this one on; stored: workgroups of their own do, and here nothing takes them */
    uint32_t made, first;
    base_type a_type;
    bool stored;
    bool is_much; /* for every workgroup */
    bool apart;   /* the dispatch that makes the vectors makes it */
    graph_value a, factors;
    uint32_t factors_stride; /* from a vector's to the next one's */
    uint32_t n_part;         /* not 0: that many */
    graph_value parts;       /* are its sum, and A is not read */
} matvec_low;

typedef struct matvec_parts { /* of a later product of low rank, with each tile's results */
    graph_value to, a;        /* 0: none */
    base_type type;
    uint32_t rows, first; /* rows [first, first + rows) of the stored tensor `a` */
} matvec_parts;

typedef struct matvec_plan { /* everything that the kernel is */
    vectors_plan vectors;
    graph_products products;             /* ends: out_offset is where the segment's columns begin */
    matvec_segment s[FUSED_SEGMENT_MAX]; /* of each product */
    uint32_t n, per;                     /* n: segments of tiles; per: products of each row */
    bool apart;                          /* a dispatch of its own makes the vectors */
    bool hands_on;                       /* the results go on rounded, in their own memory */
    bool sharded;
    uint32_t shard;
    matvec_shape shape;
    matvec_choice c;
    matvec_low low;
    matvec_parts parts;
} matvec_plan;

typedef struct matvec_making {
    matvec_plan *p;
    tile_matvec m;
    tile_vectors v;
    /* weights: of the segment's type */
    ir_memory weights[FUSED_SEGMENT_MAX], out[FUSED_SEGMENT_MAX];
    ir_id planes[FUSED_SEGMENT_MAX][PACK_PLANE_MAX], out_offset[FUSED_SEGMENT_MAX],
        first[FUSED_SEGMENT_MAX];
    tree_walk end;
    ir_memory low;
    tile_weight low_w;
    tile_factors factors; /* where low.made */
    ir_memory low_values; /* loaded ahead */
    ir_id low_start[FUSED_SEGMENT_MAX], low_row[FUSED_SEGMENT_MAX], low_at[FUSED_SEGMENT_MAX],
        low_r[FUSED_SEGMENT_MAX];
    ir_memory part_sums, parts, parts_to;
    tile_weight parts_a;
    ir_id parts_first, parts_ahead[PARTS_AHEAD_MAX][2];
    ir_memory handed; /* hands_on, or parts: a tile's results, [n_x, tile] in workgroup memory */
    uint32_t tile, begin[FUSED_SEGMENT_MAX + 1]; /* rows of a tile; the segments' first tiles */
    uint32_t groups;                             /* that take tiles first */
} matvec_making;

/* The rows of a tile: with the pair, the second weight's after the first's, by words that lie as
 * far apart as the planes. */
typedef struct matvec_tile {
    tile_weight w[2];
    tile_rows rows;
    ir_id result[TILE_ROWS_MAX], count; /* row of the result; rows of the segment */
    ir_id row[TILE_ROWS_MAX];           /* of the result: one that there is */
} matvec_tile;

static inline uint32_t matvec_tile_rows(const matvec_plan *p) {
    return p->c.wg / p->c.lanes * p->c.rows;
}

bool matvec_segment_of(const lowering *l, graph_value v, uint32_t k, matvec_segment *s);
uint32_t matvec_element_bytes(base_type type);
/* What segment of `kind`'s type the tile is of: a value of each, chosen. */
ir_id matvec_chosen(matvec_making *k, uint32_t kind, ir_id tile, const ir_id *of, uint32_t stride);

/* Of p: products, vectors, s; parts [n_part]: that come of A x, 0: none. false: it is not in one
 * buffer, of types that are packed, without a form, or too much for each workgroup. */
bool matvec_low_of(const lowering *l, matvec_plan *p, graph_value parts, uint32_t n_part);
/* Of p with vectors that a dispatch makes: it makes what the products of low rank take, too. */
void matvec_low_apart(matvec_plan *p);
uint32_t matvec_low_bindings(const matvec_plan *p);
/* Are factors that it makes itself multiplied with vectors as they are kept there? */
bool matvec_low_takes(const matvec_plan *p);
/* Is anything added in this kernel? */
bool matvec_low_adds(const matvec_plan *p);
void matvec_low_bind(matvec_making *k);
/* Workgroups of their own; they stand after the others. */
uint32_t matvec_low_groups(const matvec_plan *p);
/* Which factors the workgroup makes: where it has one tile (again: it has more), what that takes.
 * Some of A is asked for, before the vector is there. */
void matvec_low_begin(matvec_making *k, bool again);
/* What will be multiplied for the tile is asked for; the lane's part of each sum is multiplied. */
void matvec_low_fetch(matvec_making *k, uint32_t kind, ir_id tile, const matvec_tile *t);
void matvec_low_add(matvec_making *k, uint32_t kind, ir_id tile, const matvec_tile *t);

/* matvec_parts.c: what the products of a node with this detail make for a later one. false: A has
 * no form for it. */
bool matvec_parts_of(const lowering *l, const fused_matvec *f, matvec_parts *parts);
/* Of a plan that is chosen: can it make its parts, and take those that come? */
bool matvec_parts_fit(const matvec_plan *p);
void matvec_parts_bind(matvec_making *k);
void matvec_parts_bind_taken(matvec_making *k);
/* What will be multiplied for the tile, asked for before anything is waited for. */
void matvec_parts_fetch(matvec_making *k, ir_id tile);
/* Of the tile's results, which are in workgroup memory. */
void matvec_parts_make(matvec_making *k, ir_id tile, bool fetched);
/* Their sums over subgroups; behind a barrier, over all. */
void matvec_parts_take(matvec_making *k);
void matvec_parts_end(matvec_making *k);

#endif
