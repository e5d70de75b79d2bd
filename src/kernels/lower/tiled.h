/* tiled.h - which form of the matmul kernels serves a product with many vectors: a pure
 * function of types, shapes and the device, apart from the lowering so that tests and benchmarks
 * can call it, or choose otherwise. */
#ifndef KERNELS_LOWER_TILED_H
#define KERNELS_LOWER_TILED_H

#include "base/types.h"
#include "tile/fused.h"
#include "tile/lower.h"
#include "kernels/lower/request.h"

typedef enum tiled_kind {
    TILED_F32,  /* matmul_tile */
    TILED_INT8, /* matmul_dot: vectors rounded to int8 by a dispatch before */
    TILED_PLAIN /* matmul_plain: no workgroup memory, for software devices */
} tiled_kind;

typedef struct tiled_shape {
    base_type type;
    uint32_t rows, k, n_x; /* n_x: vectors at most */
    uint32_t n_matrix;     /* experts that share out the vectors; 0: one matrix for all */
    uint32_t per;          /* weights read for one result; 0: 1 */
    bool exact;            /* f32 activations */
    bool x_any, w_any;     /* vectors, weights that cannot be read 16 bytes at a time */
} tiled_shape;

typedef struct tiled_choice { /* the options of the kernels */
    tiled_kind kind;
    uint32_t wg, tile_n, tile_m, tile_k, each_n, each_m;
    /* of k, each with a grid of its own, added up by matmul_merge; 1: not divided */
    uint32_t parts;
    bool now; /* no loads ahead of the step before */
} tiled_choice;

/* All forms; `parts` and `now` are for the caller to set. */
const tiled_choice *tiled_forms(uint32_t *n);
/* The device and the shape allow it. */
bool tiled_fits(const device_caps *caps, const tiled_shape *shape, const tiled_choice *choice);
/* false: none fits. */
bool tiled_choose(const device_caps *caps, const tiled_shape *shape, tiled_choice *out);
/* File, options, and the parts x and reader. */
void tiled_request(lower_request *r, const tiled_shape *shape, const tiled_choice *choice);
/* Results of a vector in one tile; steps of k in one of its parts (kinds but PLAIN). */
uint32_t tiled_cols(const tiled_shape *shape, const tiled_choice *choice);
uint32_t tiled_steps(const tiled_shape *shape, const tiled_choice *choice);

/* A fused node of many vectors: one dispatch that makes them, then its products; gate and up are
 * one. */
bool tiled_joined_fits(const lowering *l, const fused_matvec *f);
beryl_status lower_tiled_joined(lowering *l, const graph_node *node, beryl_error *error);

/* The vectors of a product: rows at one distance in value `x`; 0: f32 or int8, in the node's
 * scratch. */
typedef struct tiled_vectors {
    graph_value x;
    lower_count n;
    uint32_t bound, k, offset, stride;
} tiled_vectors;
/* false: they lie otherwise. */
bool tiled_vectors_of(const lowering *l, graph_value x, tiled_vectors *out);
/* Rounds them to int8 into the node's scratch `key`. */
beryl_status tiled_quantise(lowering *l, const graph_node *node, const tiled_vectors *v,
                            uint32_t key, beryl_error *error);
/* Binds x and sets what all kinds share. key: of the rounded vectors. layout NULL: plain values.
 * word: where the weight begins in its binding, and the second one where there are two. */
void tiled_put(lower_step *s, const tiled_shape *shape, const tiled_choice *choice,
               const tiled_vectors *v, uint32_t key, const graph_pack_layout *layout,
               const uint32_t word[2]);

#endif
