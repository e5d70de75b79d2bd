/* typed.h - a graph over inputs of any plain types, on a device and on the reference functions. */
#ifndef TESTS_TYPED_H
#define TESTS_TYPED_H

#include "test.h"

#include "plan/exec.h"

enum { TYPED_IN_MAX = 40, TYPED_OUT_MAX = 4 };

typedef enum typed_fill {               /* integers: special and random ones, whatever it is */
                          TYPED_ODD,    /* special numbers among others of all sizes */
                          TYPED_FINITE, /* the same without infinities and what is near them */
                          TYPED_UNIT,   /* in -1 .. 1; of BOOL few are true */
                          TYPED_NEAR_ONE
} typed_fill;

typedef struct typed_side {
    graph *g; /* with an extent for rows, 1 */
    graph_store store;
    graph_exec *exec;
    graph_value in[TYPED_IN_MAX], out[TYPED_OUT_MAX];
    uint32_t n_in, n_out;
    float *given[TYPED_IN_MAX]; /* of constants, which are inputs too: their numbers; else NULL */
} typed_side;

graph_value typed_input(typed_side *s, base_type type, uint32_t rank, const graph_dim *dims);
void typed_output(typed_side *s, graph_value v);

typedef struct typed_problem {
    const char *name;
    void (*build)(typed_side *s, const void *what);
    const void *what;
    uint32_t rows, fewer; /* the extent's bound; its value in a second run */
    typed_fill fill;
    uint64_t seed;
    /* |difference| <= within + relative * |value|, and the rounding of the type; both 0: equal */
    double within, relative;
    uint32_t dispatches; /* of a run; 0: any */
    bool planned;        /* is not run: dispatches are counted */
} typed_problem;

void typed_run(test *t, base_heap *heap, device *d, const typed_problem *p);

#endif
