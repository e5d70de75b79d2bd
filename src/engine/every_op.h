/* every_op.h - every operation, and every type that its weights or caches may have, in shapes
 * small enough for seconds: a graph over a store of its own, planned as a user's graph is, whose
 * nodes the self-test tries one by one beside the model's. */
#ifndef ENGINE_EVERY_OP_H
#define ENGINE_EVERY_OP_H

#include "plan/exec.h"

typedef struct every_op {
    graph *g;         /* by its passes: a chain is one node */
    graph_exec *exec; /* never run: its programs compile while others are tried */
    graph_store store;
    base_heap *heap;
    beryl_source source;
    unsigned char *blob; /* [blob_size] the weights */
    size_t blob_size;
} every_op;

/* Planned and uploaded; waits for the device. */
beryl_status every_op_open(base_heap *heap, device *d, bool exact, every_op **out,
                           beryl_error *error);
void every_op_close(every_op *e); /* NULL is fine */

#endif
