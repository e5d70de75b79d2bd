/* plan.h - a plan: the flat list of dispatches that a graph becomes on one device, made once and replayed. */
#ifndef GRAPH_PLAN_H
#define GRAPH_PLAN_H

#include "graph/exec.h"
#include "graph/lower.h"

typedef struct graph_plan graph_plan;

/* Runs the passes (unless options->unfused), lowers, places memory, makes programs and bindings. */
beryl_status graph_plan_open(graph *g, graph_store *store, const graph_exec_options *options, graph_plan **out, beryl_error *error);
void graph_plan_close(graph_plan *p);
beryl_status graph_plan_ready(graph_plan *p, beryl_error *error);
void *graph_plan_input(graph_plan *p, graph_value input);
beryl_status graph_plan_begin(graph_plan *p, const uint32_t *extents, const graph_value *fetch, uint32_t n_fetch, beryl_error *error);
beryl_status graph_plan_continue(graph_plan *p, uint32_t parts, graph_part *part, device_ticket *ticket, beryl_error *error);
beryl_status graph_plan_fetched(graph_plan *p, device_ticket ticket, uint32_t n, const void **data, beryl_error *error);
void graph_plan_describe(const graph_plan *p, graph_exec_info *info);
bool graph_plan_node_program(const graph_plan *p, uint32_t node, uint32_t i, device_program *out);
void graph_plan_print(const graph_plan *p, base_text *out);
bool graph_plan_step_at(const graph_plan *p, uint32_t i, graph_exec_step *out);
double graph_plan_seconds(const graph_plan *p);
double graph_plan_encoded(const graph_plan *p);
bool graph_plan_print_step(const graph_plan *p, uint32_t i, base_text *out);
bool graph_plan_texts_at(const graph_plan *p, uint32_t i, graph_exec_texts *out);

/* Are all kernels of the store's plans generated ones? Not for browsers. */
bool graph_plan_generated(const graph_store *store);
/* Languages with kernels for an operation: bits as of device_caps. */
uint32_t graph_plan_languages(base_op op);

/* The pass over trees of small operations (pass_chain.c), where this plan may have generated kernels. */
beryl_status graph_plan_chains(graph *g, graph_store *store, const graph_exec_options *options, beryl_error *error);

/* The reference device: the graph itself, node by node (reference.c). */
typedef struct graph_reference graph_reference;
beryl_status graph_reference_open(graph *g, graph_store *store, graph_reference **out, beryl_error *error);
void graph_reference_close(graph_reference *r);
void *graph_reference_input(graph_reference *r, graph_value input);
beryl_status graph_reference_run(graph_reference *r, const uint32_t *extents, beryl_error *error);
const void *graph_reference_value(const graph_reference *r, graph_value v);

#endif
