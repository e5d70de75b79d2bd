/* build.h - what the builders of graphs share: errors, shapes in words, new tensors. For graph/
 * alone. */
#ifndef GRAPH_BUILD_H
#define GRAPH_BUILD_H

#include "graph/graph.h"

/* The graph's first error stays. Gives 0. */
graph_value graph_refuse(graph *g, beryl_status code, const char *format, ...)
    __attribute__((format(printf, 3, 4)));
/* The same of host memory. */
graph_value graph_no_memory(graph *g);
/* false: the graph has an error, or gets one that names `what`. */
bool graph_has(graph *g, graph_value v, const char *what);
graph_value graph_tensor_add(graph *g, base_type type, graph_role role, uint32_t rank,
                             const graph_dim *dims);
/* Of x's memory from where x begins, with strides as if without gaps. */
graph_value graph_view_of(graph *g, graph_value x, uint32_t rank, const graph_dim *dims);
/* v without those of its axes, each of size 1, a bit each. */
graph_value graph_without(graph *g, graph_value v, uint32_t axes);
bool graph_same_dim(graph_dim a, graph_dim b);

enum { GRAPH_SHAPE_TEXT = 120 };
/* "[n<=64, 3]", cut where it is too long. Gives `text`. */
const char *graph_shape_text(const graph *g, uint32_t rank, const graph_dim *dims,
                             char text[GRAPH_SHAPE_TEXT]);

/* v, cast where its type is another one; 0 of 0. */
graph_value graph_as(graph *g, graph_value v, base_type type);
/* v as F32 where it is of halves. */
graph_value graph_wide(graph *g, graph_value v);
/* The square root of a sum of squares: with PyTorch's slope of 0 where it is 0. */
graph_value graph_root(graph *g, graph_value x);
/* graph_contract, or what comes to the same where one of the two has no rows of its own. */
graph_value graph_sum_products(graph *g, graph_value a, graph_value b, uint32_t axes);
/* Input k of an operation, with strides that its kernels read (graph/layout.c): v itself, another
 * view of the same elements, or a copy. 0: the graph has an error. */
graph_value graph_layout(graph *g, base_op op, const graph_attrs *attr, uint32_t k, graph_value v);

#endif
