/* sides.h - one graph on two sides: as it is on the reference functions, and joined by the pass
 * on a device. Both read the same weights and are given the same inputs. */
#ifndef TESTS_SIDES_H
#define TESTS_SIDES_H

#include "test.h"

#include "plan/exec.h"
#include "plan/pass.h"

enum { SIDES_WEIGHTS = 16, SIDES_VALUES = 8 };

typedef struct sides_weights { /* all zero: none yet */
    unsigned char *bytes;      /* owned: free */
    uint64_t size;
    uint32_t n;
    struct sides_weight {
        uint64_t at;
        base_type type;
        uint32_t group, rank, dim[3];
    } each[SIDES_WEIGHTS];
} sides_weights;

/* Bits drawn at random; group: as in the store. */
void sides_weight_add(sides_weights *w, base_type type, uint32_t group, uint32_t rank, uint32_t a,
                      uint32_t b, uint32_t c);

typedef struct side {
    graph *g;
    graph_store store;
    graph_exec *exec;
    graph_value in[SIDES_VALUES], out[SIDES_VALUES];
    uint32_t n_in, n_out;
} side;

/* For a problem's `build`. The first dimension of every value is that of the extent. */
graph_value side_input(side *s, const char *name, uint32_t rank, const graph_dim *dims);
void side_output(side *s, graph_value v);
uint32_t side_live_nodes(const side *s, base_op op); /* OP_COUNT: of all operations */

typedef struct sides {
    const sides_weights *weights;
    void (*build)(side *s, const graph_value *weights, const void *problem);
    void (*check)(test *t, side *joined, const void *problem); /* NULL: numbers alone */
    const void *problem;
    uint32_t n; /* of the extent, the graph's first */
    bool exact;
    double within; /* a result's root of summed squares may be off by this part of itself */
    bool again;    /* and once more, after the weights have become others where they lie */
} sides;

void sides_run(test *t, base_heap *heap, device *d, const sides *what);

#endif
