/* gradient.h - what the files of gradients share: a backward pass being added to a graph, and the
 * rules of operations. For graph/ alone. */
#ifndef GRAPH_GRADIENT_H
#define GRAPH_GRADIENT_H

#include "graph/build.h"

typedef struct gradient {
    graph *g;
    graph_value one;              /* F32 [], from which every constant is made */
    graph_value count;            /* tensors of the graph before the backward pass */
    graph_value *of;              /* [count]: the gradient of a tensor so far; 0: none */
    bool *needed;                 /* [count]: it depends on one of the values asked for */
    uint32_t *changed;            /* [count]: 1 + the last node that changes this state; 0: none */
    graph_value *copies;          /* [count]: the value made anew for this pass; 0: it was kept */
    const graph_segment *segment; /* the last one that is not made anew yet; NULL: none */
    /* Inputs of the node whose rule runs that it reads as halves: in, and what stands for it */
    struct {
        graph_value in, as;
    } rounded[GRAPH_IN_MAX];
    uint32_t n_rounded;
} gradient;

/* Adds to the gradients of a node's inputs what d, the gradient of its first result, makes of them.
 * Errors are the graph's. */
typedef void gradient_rule(gradient *s, const graph_node *node, graph_value d);
/* NULL: the operation has none. */
gradient_rule *gradient_rule_of(base_op op);
gradient_rule gradient_pointwise, gradient_attention, gradient_attention_back;
bool gradient_is_pointwise(base_op op); /* gradient_pointwise knows it */

/* Is the gradient of this input asked for? */
bool gradient_wants(const gradient *s, graph_value x);
/* The gradient of x becomes larger by v: summed over axes where x was broadcast, expanded where it
 * is the same for all, cast to x's type. */
void gradient_add(gradient *s, graph_value x, graph_value v);
/* One number, [], of a type; integers below 2^24. */
graph_value gradient_number(gradient *s, double value, base_type type);
/* With graph.halves: v as BF16, one cast for all that ask. */
graph_value gradient_half(gradient *s, graph_value v);
/* Do trees make v, so that its halves cost no dispatch? */
bool gradient_is_of_tree(const gradient *s, graph_value v);
/* A number for each element of x. */
graph_value gradient_fill(gradient *s, double value, graph_value x);
/* v where the condition, BOOL, is true, else 0: also where v is no number. */
graph_value gradient_where(graph *g, graph_value condition, graph_value v);
/* As many elements of v along the axis as x has, from `start` on; first (0: none), I32, is added.
 */
graph_value gradient_part(gradient *s, graph_value v, uint32_t axis, uint32_t start,
                          graph_value first, graph_value x);
/* v with the axis last, or the last one there. */
graph_value gradient_turned(graph *g, graph_value v, uint32_t axis, bool back);

/* Segments that are computed again (recompute.c). The walk back has come to v: where v is of a
 * segment that was not made anew, it is. */
void gradient_recompute(gradient *s, graph_value v);
/* What stands for v in this pass. */
graph_value gradient_copy_of(const gradient *s, graph_value v);
void gradient_take_copies(const gradient *s, graph_node *node);
void gradient_take_copies_of_own(const gradient *s, graph_own *own);
/* Copies that no rule has read are not run. */
void gradient_drop_unread(gradient *s, uint32_t n, const graph_value *gradients);
/* No state that the node `index` reads has been changed since: it would read something else. */
bool gradient_reads_the_same(const gradient *s, const graph_node *node, uint32_t index);

/* Results with a rule of their own, whatever operations they are made of. */
void gradient_own(gradient *s, const graph_own *own, graph_value d);
void gradient_conv(gradient *s, const graph_own *own, graph_value d);
void gradient_linear_cross_entropy(gradient *s, const graph_own *own, graph_value d);

#endif
