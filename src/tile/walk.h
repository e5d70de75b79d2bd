/* walk.h - the dimensions of an operation as kernels walk them: those that lie alike in
 * all its tensors are joined, so that any rank becomes few sizes of a run with strides of the
 * bounds. */
#ifndef TILE_WALK_H
#define TILE_WALK_H

#include "tile/lower.h"

enum { LOWER_WALK_TENSORS = 12 };

typedef struct lower_walk { /* dimensions [n], outermost first */
    uint32_t n, n_tensor;
    lower_count size[GRAPH_RANK_MAX];
    uint32_t stride[LOWER_WALK_TENSORS][GRAPH_RANK_MAX];
} lower_walk;

/* The first `rank` - `left` dimensions of tensors whose shape is that of the first one. */
lower_walk lower_walk_of(const graph_tensor *const *tensors, uint32_t n_tensor, uint32_t left);
/* The dimensions from `first` on of a shape that the tensors have, or are broadcast against. */
lower_walk lower_walk_from(const graph_tensor *shape, const graph_tensor *const *tensors,
                           uint32_t n_tensor, uint32_t first);
/* The stride with which `t` is walked along dimension i of a tensor of rank `rank`; 0 where it
 * is broadcast. */
uint32_t lower_walk_stride(const graph_tensor *t, uint32_t rank, uint32_t i);
/* Does tensor t lie as the walk goes, whose innermost turns are so many elements each? */
bool lower_walk_in_order(const lower_walk *w, uint32_t t, uint32_t each);
/* At least `rank` dimensions, by sizes of 1 in front. */
void lower_walk_pad(lower_walk *w, uint32_t rank);
/* All elements of the walk; where several sizes are extents, all but the first at their bounds
 * (kernels check). */
lower_count lower_walk_count(const lowering *l, const lower_walk *w);

/* The rows of a tensor as a matrix [n, k]: all axes but the last joined. */
typedef struct lower_matrix {
    lower_count n;
    uint32_t bound, k, stride, offset;
} lower_matrix;
/* false: they do not lie evenly. */
bool lower_matrix_of(const graph_tensor *t, lower_matrix *out);
/* The same where axes of one element may lie anywhere, and rows may be one row again and again. */
bool lower_vectors_of(const lowering *l, graph_value v, lower_matrix *out);

#endif
