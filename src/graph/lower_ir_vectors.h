/* lower_ir_vectors.h - the vectors of a generated product: read as they lie, or made by its prologue (fused.h). */
#ifndef GRAPH_LOWER_IR_VECTORS_H
#define GRAPH_LOWER_IR_VECTORS_H

#include "graph/lower_ir_matvec.h"
#include "graph/lower_vectors.h"

enum { LOWER_IR_SCRATCH_X = 0 }; /* key: vectors made by a dispatch before: f32 [n, k] */

typedef struct lower_ir_vectors {
    lower_ir_matvec *m;
    const fused_matvec *f;
    const vectors_walk *w;
    fused_x from; /* as this kernel has it */
    ir_memory x, norms, branch, twin, stream, stats;
    ir_id first, n;              /* number of the first vector; vectors of the run */
    ir_id x_offset, x_stride, branch_offset, branch_stride, twin_offset, twin_stride, stream_offset, stream_stride;
    ir_id norm[5];               /* elements of `norms` where w->norms begin */
    ir_id eps, eps_branch, eps_own, eps_twin;
    ir_id values[16];            /* of the vector that is being made: the lane's own fours */
} lower_ir_vectors;

uint32_t lower_ir_vectors_bindings(const fused_matvec *f, const vectors_walk *w); /* how many buffers that takes */
/* Binds and names parameters. made: a dispatch before has made them, into the node's scratch. */
void lower_ir_vectors_begin(lower_ir_vectors *v, lower_ir_matvec *m, const fused_matvec *f, const vectors_walk *w, bool made);
/* That dispatch: a workgroup a vector. fits: can there be one? */
bool lower_ir_vectors_apart_fits(const lowering *l, const fused_matvec *f, const vectors_walk *w);
beryl_status lower_ir_vectors_apart(lowering *l, const graph_node *node, const fused_matvec *f, const vectors_walk *w, beryl_error *error);
/* The vectors, into workgroup memory or as m->x_from and m->x_at. */
void lower_ir_vectors_make(lower_ir_vectors *v);

/* The same by one lane a vector. */
bool lower_ir_vectors_serial_fits(const lowering *l, const fused_matvec *f, const vectors_walk *w);
beryl_status lower_ir_vectors_serial(lowering *l, const graph_node *node, const fused_matvec *f, const vectors_walk *w, beryl_error *error);

#endif
