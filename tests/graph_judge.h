/* graph_judge.h - a graph on the reference functions, with a bound beside every number: how far
 * the same number may lie from it where sums are taken in another order, functions are as exact
 * as a device's, and caches round.
 *
 * Bounds follow the graph: each operation passes on what its inputs may be off by and adds its
 * own (the table in graph_judge.c). Where a choice (the largest, an index) could fall otherwise
 * within the bounds, nothing is known of it or of what depends on it: its bound is infinite. */
#ifndef TESTS_GRAPH_JUDGE_H
#define TESTS_GRAPH_JUDGE_H

#include "graph/graph.h"
#include "graph/store.h"

typedef struct graph_judge graph_judge;

/* The store has no device, is made, and its sources map. NULL: no memory. */
graph_judge *graph_judge_open(graph *g, graph_store *store);
void graph_judge_close(graph_judge *j);
void *graph_judge_input(graph_judge *j, graph_value input); /* [bound elements] */
beryl_status graph_judge_run(graph_judge *j, const uint32_t *extents, beryl_error *error);
/* Of a base tensor, at the strides of the bounds; 0 for integers that are known. */
const void *graph_judge_value(const graph_judge *j, graph_value v);
const double *graph_judge_bound(const graph_judge *j, graph_value v);

#endif
