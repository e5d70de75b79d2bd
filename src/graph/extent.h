/* extent.h - sums of products of extents, in one form, for who computes with dimensions.
 *
 * Terms are in one order and unlike each other, factors too, and a quotient is split into what is
 * whole and one ceil(sum / divisor) that cannot be written with smaller numbers. So two expressions
 * that are made equal by these rules are the same sum, and the same extent. */
#ifndef GRAPH_EXTENT_H
#define GRAPH_EXTENT_H

#include "graph/graph.h"

/* *out = d. false: no extent of this graph. */
bool graph_sum_of(const graph *g, graph_dim d, graph_sum *out);
/* *a += b, *a *= b. false: it does not fit; *a is what it was. */
bool graph_sum_add(const graph *g, graph_sum *a, const graph_sum *b);
bool graph_sum_times(const graph *g, graph_sum *a, const graph_sum *b);
/* *a -= size, of what the sum has as a constant. false: that is less. */
bool graph_sum_subtract(graph_sum *a, uint32_t size);
/* *a = ceil(a / divisor), which may need an extent of its own. false: the graph has an error. */
bool graph_sum_quotient(graph *g, graph_sum *a, uint32_t divisor);
bool graph_sum_equal(const graph_sum *a, const graph_sum *b);
/* The dimension of this size: a constant, an extent that is there, or a new one. size 0: the graph
 * has an error. */
graph_dim graph_sum_dim(graph *g, const graph_sum *a);
/* What does not fit, as the graph's error. */
void graph_sum_refuse(graph *g);
/* As the name of an extent has to be in text. */
bool graph_extent_is_word(base_view name);
/* As graph text has it: its name, where that is a word that no extent before has; "2*n+ceil(m/3)".
 */
void graph_extent_print(const graph *g, uint32_t extent, base_text *out);

#endif
