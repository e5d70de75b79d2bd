/* graph_case.h - one graph as text, run on a device and compared with the judge; and what is
 * left of a failing one when all is taken away that need not be there. */
#ifndef TESTS_GRAPH_CASE_H
#define TESTS_GRAPH_CASE_H

#include "device/device.h"

typedef enum graph_verdict {
    GRAPH_RIGHT,
    /* numbers outside their bounds, memory that did not come back, or an error that is not
     * UNSUPPORTED */
    GRAPH_WRONG,
    GRAPH_REFUSED, /* UNSUPPORTED */
    GRAPH_NO_CASE  /* no graph, or one that the reference does not run */
} graph_verdict;

typedef struct graph_how { /* it is run */
    device *d;
    bool unfused, as_it_is; /* no graph passes; no IR passes but the usual ones (interpreter) */
    /* of inputs, weights, extents and passes; odd: of the numbers that lowerings choose too */
    uint64_t seed;
} graph_how;

typedef struct graph_result {
    char message[600];
    /* numbers; those with a bound of more than 1 % (of 1 at least); those of which nothing is
     * known */
    uint64_t compared, loose, unknown;
} graph_result;

/* Run by run with other numbers: as lines of the text say ("; run 5 0 3", the given extents in
 * order), else at the bounds, with any extents, and with half of them 0. */
graph_verdict graph_case_run(const char *text, const graph_how *how, graph_result *result);
/* Text (to be freed) that is still wrong, found within so many seconds. */
char *graph_case_shrink(const char *text, const graph_how *how, double seconds);

#endif
