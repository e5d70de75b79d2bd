/* vectors.h - the vectors that a fused product works out before it multiplies (tile/fused.h,
 * fused_x): where their pieces lie, and the two ways to make them - parts of the product's own
 * kernel, or a dispatch before it (vectors.wgsl). */
#ifndef KERNELS_LOWER_VECTORS_H
#define KERNELS_LOWER_VECTORS_H

#include "tile/fused.h"
#include "tile/lower.h"
#include "kernels/lower/request.h"
#include "tile/walk.h"

/* Everything that the vectors of a fused product are made of. */
typedef struct vectors_walk {
    lower_matrix x, branch, second, stream; /* x.k: length of a vector, whatever they come from */
    /* w_norm, w_branch, scale, w_own, w_second: those there are */
    graph_value norms[5];
    uint32_t n_norm;
    bool x_any; /* PLAIN: cannot be read 16 bytes at a time */
} vectors_walk;
/* k: of the weights. false: no kernel reads them so. */
bool vectors_walk_of(const lowering *l, const fused_matvec *f, uint32_t k, vectors_walk *out);
/* They are not there yet: a norm, a sum or a merge makes them. */
bool vectors_has_prologue(const fused_matvec *f);
/* The value that is bound as x where they are made. */
graph_value vectors_source(const fused_matvec *f);
bool vectors_adds(const fused_matvec *f); /* are they a sum that is a result too? */

/* As parts of a kernel that has `prologue`: what they bind beside x, the request (span:
 * invocations that sum by shuffles, 0: none), bindings and parameters. */
uint32_t vectors_bindings(const fused_matvec *f, const vectors_walk *w);
void vectors_parts(lower_request *r, const fused_matvec *f, uint32_t span);
void vectors_put(lower_step *s, const fused_matvec *f, const vectors_walk *w);

/* In a dispatch of their own, which writes them into scratch `key` of the node: f32 [n, k], or
 * int8 as quantise.wgsl does. fits: not on software devices, whose barriers cost more than the
 * dispatches saved, nor for many pieces of attention, which attention_merge joins by many lanes. */
bool vectors_separate_fits(const lowering *l, const fused_matvec *f, const vectors_walk *w,
                           bool int8);
beryl_status vectors_separate(lowering *l, const graph_node *node, const fused_matvec *f,
                              const vectors_walk *w, bool int8, uint32_t key, beryl_error *error);
/* Vectors as they lie, rounded into scratch `key`. */
beryl_status vectors_quantise(lowering *l, const graph_node *node, graph_value x,
                              const lower_matrix *rows, uint32_t key, beryl_error *error);

#endif
