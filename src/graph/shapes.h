/* shapes.h - what each operation makes of its inputs: types, and a shape rule a row of
 * BASE_OP_LIST.
 * Refuses what does not fit, by name. For graph/ alone. */
#ifndef GRAPH_SHAPES_H
#define GRAPH_SHAPES_H

#include "graph/build.h"

/* A call whose inputs have been given. */
typedef struct graph_call {
    base_op op;
    uint32_t n_in;
    graph_attrs attr;
    const graph_tensor *in[GRAPH_IN_MAX];
} graph_call;

/* Says what a call makes whose inputs have good types: *out is at first the first input, with the
 * result's type. false: the graph has an error. */
typedef bool graph_shape_rule(graph *g, const graph_call *c, graph_tensor *out);
graph_shape_rule *graph_shape_rule_of(base_op op);
/* By index (graph/index.c). */
graph_shape_rule graph_shape_by_index, graph_shape_one_hot, graph_shape_nonzero;

/* Of an input of that kind (base/ops.h). */
bool graph_is_type(char kind, base_type type);
/* The type of the result, where the inputs' kinds or the operation say it. */
bool graph_find_type(graph *g, const graph_call *c, graph_tensor *out);

#endif
