/* exec.h - runs a graph: on a device through a plan, or on the reference functions where the store
 * has no device.
 *
 * graph_exec_open plans (passes, memory, programs); each graph_exec_submit then replays with the
 * inputs as they lie in graph_exec_input's memory (copied during the call) and allocates nothing.
 * Several submits may be in flight; they run in order. On the reference functions a submit computes
 * at once.
 */
#ifndef PLAN_EXEC_H
#define PLAN_EXEC_H

#include "graph/graph.h"
#include "graph/store.h"
#include "tile/lower.h"

typedef struct graph_exec graph_exec;

/* Of a graph whose gradients compute segments again: */
typedef enum graph_recompute_choice {
    GRAPH_RECOMPUTE,        /* they do, `segments` of them */
    GRAPH_KEEP,             /* they keep everything */
    GRAPH_KEEP_OR_RECOMPUTE /* no more than so that all fits in `room`; on the reference none */
} graph_recompute_choice;

typedef struct graph_exec_options {
    bool exact;   /* f32 activations; false: int8 activations where the device has dot products */
    bool unfused; /* no graph passes: every node its own dispatch */
    /* a timestamp after each step, for graph_exec_step_at; of many steps each run stamps some, in
     * turns */
    bool stamped;
    bool framed;             /* two timestamps alone, around the steps, for graph_exec_seconds */
    lower_search *search;    /* NULL: none */
    uint64_t draws;          /* tests: not 0: the numbers that lowerings choose are drawn from it */
    bool explained;          /* keeps what each step is made from, for graph_exec_texts_at */
    const lower_form *forms; /* [n_form], for benchmarks */
    uint32_t n_form;
    graph_recompute_choice recompute;
    uint32_t segments; /* the first ones; 0: all */
    uint64_t room;     /* bytes for intermediates; 0: any */
    bool placed;       /* inputs have no memory on the host: who runs it writes where they lie */
    bool stepwise;     /* graph_exec_make makes what runs; graphs with segments are made at once */
} graph_exec_options;

typedef struct graph_exec_info {
    uint32_t dispatches; /* of one run */
    /* weights and states read by one run, at the bounds of extents of size 1 */
    uint64_t bytes;
    uint64_t arena_bytes; /* intermediates */
    uint64_t arenas[16];  /* the same by colour */
    /* The same if nothing is computed again, and if all segments are; 0: there are none. */
    uint64_t kept_bytes, recomputed_bytes;
    uint32_t recomputes; /* segments */
    uint32_t programs;
} graph_exec_info;

/* g is borrowed and must outlive it; passes may mark its nodes dead and add fused ones. */
beryl_status graph_exec_open(graph *g, graph_store *store, const graph_exec_options *options,
                             graph_exec **out, beryl_error *error);
/* Makes one that was opened `stepwise`, for about so long. EVENT: there is more to make. */
beryl_status graph_exec_make(graph_exec *e, double seconds, beryl_error *error);
void graph_exec_close(graph_exec *e); /* its submits must be done. NULL is fine */
/* PENDING while programs compile */
beryl_status graph_exec_ready(graph_exec *e, beryl_error *error);
/* [bound elements] of its type; NULL: no input of this graph */
void *graph_exec_input(graph_exec *e, graph_value input);
/* Where an input or an output lies. false: nowhere, or by the reference functions. */
bool graph_exec_place(const graph_exec *e, graph_value value, device_buffer *buffer,
                      uint64_t *offset);
/* An input that others write there: runs do so no longer. */
void graph_exec_leave(graph_exec *e, graph_value input);
/* extents: values of the given ones by index from [1], each 0 .. bound; derived ones follow from
 * them. What works on nothing is not run. fetch: values to read back (inputs or
 * outputs of the graph). */
beryl_status graph_exec_submit(graph_exec *e, const uint32_t *extents, const graph_value *fetch,
                               uint32_t n_fetch, device_ticket *ticket, beryl_error *error);
/* The same in several submits: begin takes the inputs and submits nothing; each continue submits
 * the next part, about one of `parts` (a power of two, which may change on the way), a step at
 * least. PENDING: nothing was submitted, try again. Between two parts other plans may run; a
 * begin gives up what is left of the run before. The last part's ticket is the run's. Plans that
 * are stamped or framed, and the reference functions, have one part. */
typedef struct graph_part {
    float share; /* of the run's work, by an estimate */
    uint32_t steps;
    bool last;
} graph_part;
beryl_status graph_exec_begin(graph_exec *e, const uint32_t *extents, const graph_value *fetch,
                              uint32_t n_fetch, beryl_error *error);
beryl_status graph_exec_continue(graph_exec *e, uint32_t parts, graph_part *part,
                                 device_ticket *ticket, beryl_error *error);
/* Data of the n-th fetched value of a done submit: rows at the bounds' strides, as many as the
 * run's extents had. Borrowed until 3 later submits of this exec. */
beryl_status graph_exec_fetched(graph_exec *e, device_ticket ticket, uint32_t n, const void **data,
                                beryl_error *error);
void graph_exec_describe(const graph_exec *e, graph_exec_info *info);
/* The i-th program that the plan runs for a node of the graph; false: there are fewer. */
bool graph_exec_node_program(const graph_exec *e, uint32_t node, uint32_t i, device_program *out);
/* Text of the plan: a line a step with kernel, grid and bindings; with times in microseconds if
 * it ran stamped. */
void graph_exec_print(graph_exec *e, base_text *out);
/* Step i of the plan: what it does, for people, its grid in the last run, and if that was
 * stamped how long it took. product: the weight of a product whose form may be said (0: none),
 * and its form. false: there are fewer. */
typedef struct graph_exec_step {
    const char *label;
    uint64_t bytes;
    double microseconds;
    uint32_t groups[3];
    graph_value product;
    lower_form form;
} graph_exec_step;
bool graph_exec_step_at(const graph_exec *e, uint32_t i, graph_exec_step *out);
/* Of the last run of a stamped or framed plan whose results were asked for, by the device's
 * clock; 0: not known. */
double graph_exec_seconds(const graph_exec *e);
/* When the last submit was handed to the device (base_time); what was before is encoding. */
double graph_exec_encoded(const graph_exec *e);
/* Its line of graph_exec_print; false: there are fewer. */
bool graph_exec_print_step(const graph_exec *e, uint32_t i, base_text *out);
/* What step i of a plan that was opened `explained` is made from. false: there are fewer, or
 * nobody asked. */
bool graph_exec_texts_at(const graph_exec *e, uint32_t i, lower_texts *out);

/* ---- as text, for people (explain.c) --------------------------------------------------------- */

/* A line a node that is left after the passes, with its number; what a fused node holds below
 * it. only: one node, NULL: all. false: there is no such node. */
bool graph_explain_nodes(const graph *g, const uint32_t *only, base_text *out);
/* only: one step */
bool graph_exec_explain_plan(const graph_exec *e, const uint32_t *only, base_text *out);
/* Each different kernel once: its origin (IR, or file and parts), or with `code` its text in the
 * device's language. */
bool graph_exec_explain_kernels(const graph_exec *e, bool code, const uint32_t *only,
                                base_text *out);

#endif
