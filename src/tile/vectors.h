/* vectors.h - the vectors [n, k] of a product: read as they lie, or made by its
 * prologue, a tree of operations or the join of attention's pieces. With few vectors every
 * workgroup makes them for itself; else a dispatch before the product does, and multiplies them
 * with rows of an adapter's A while it has them. */
#ifndef TILE_VECTORS_H
#define TILE_VECTORS_H

#include "tile/matvec.h"
#include "tile/tree.h"
#include "tile/fused.h"
#include "tile/walk.h"

enum {
    TILE_SCRATCH_X = 0,   /* key: pieces of attention joined by a dispatch before: f32 [n, k] */
    TILE_SCRATCH_LOW = 6, /* key: what products of low rank take: f32 [n, rows] */
    VECTORS_OWN_MAX = 16  /* fours of a lane */
};

typedef enum vectors_kind { VECTORS_PLAIN, VECTORS_TREE, VECTORS_MERGE } vectors_kind;

/* Rows of a stored tensor, multiplied with the vectors and with factors of their own. */
typedef struct vectors_low {
    uint32_t rows, first; /* rows [first, first + rows); 0: none */
    uint32_t stride;      /* from a vector's factors to the next one's */
    base_type type;
    graph_value a, factors;
} vectors_low;

typedef struct vectors_plan {
    vectors_kind kind;
    graph_value x;             /* MERGE: the pieces */
    lower_matrix rows;         /* k: of a vector, whatever it comes from */
    graph_region before;       /* TREE: what makes x, */
    tree t;                    /* with x as its root */
    const fused_matvec *merge; /* MERGE; borrowed */
    bool handed;               /* PLAIN: they come rounded from the product before */
    bool rounded;              /* a dispatch before rounds them, tile_vectors_separate */
    vectors_low low;           /* which multiplies them, too */
} vectors_plan;

/* Of the product in region r whose vectors are x, k long; merge NULL: pieces of attention are not
 * joined here. false: no kernel reads them so. Pure, like all that ask. */
bool vectors_plan_of(const lowering *l, const graph_region *r, graph_value x,
                     const fused_matvec *merge, uint32_t k, vectors_plan *out);
/* Can a product's own kernel make them? Can a dispatch before it? */
bool vectors_fit_inside(const vectors_plan *p);
bool vectors_fit_separate(const lowering *l, const vectors_plan *p);
/* Can it leave them rounded, as tile/dots.h wants them, and multiply them with rows? */
bool vectors_fit_rounded(const lowering *l, const vectors_plan *p);
/* Numbers that it takes of workgroup memory, on devices with subgroups. */
uint32_t vectors_shared(const vectors_plan *p);
/* Numbers read for each element of a vector that is made. */
uint32_t vectors_reads(const vectors_plan *p);

typedef struct tile_vectors {
    tile_matvec *m;
    const vectors_plan *w;
    vectors_kind kind;       /* as this kernel has it */
    tree_walk walk;          /* TREE */
    ir_memory x, stats, low; /* low: a value of low rank, in workgroup memory */
    ir_id first, n;          /* number of the first vector; vectors of the run */
    ir_id x_offset, x_stride;
    /* of the vector that is being made: the lane's own fours, where it is a tree or `keeps` */
    ir_id values[VECTORS_OWN_MAX];
    bool keeps;
} tile_vectors;

/* how many buffers that takes */
uint32_t tile_vectors_bindings(const lowering *l, const vectors_plan *p);
/* Binds and names parameters. made: a dispatch before has made them. */
void tile_vectors_begin(tile_vectors *v, tile_matvec *m, const vectors_plan *p, bool made);
/* The vectors, into workgroup memory or as m->x_from and m->x_at. Ends with a barrier in the former
 * case, unless `keeps`. */
void tile_vectors_make(tile_vectors *v);
/* What that dispatch makes for products of low rank. */
ir_memory tile_vectors_low(tile_kernel *k, const vectors_plan *p, ir_access access);
/* That dispatch. */
beryl_status tile_vectors_separate(lowering *l, const vectors_plan *p);

#endif
