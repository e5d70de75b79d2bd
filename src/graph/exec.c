/* exec.c - one face for plans on devices and for the reference functions. */
#include "graph/exec.h"
#include "base/error.h"
#include "graph/plan.h"

enum { FETCH_MAX = 4 };

struct graph_exec {
    base_heap *heap;
    graph_plan *plan;           /* one of the two */
    graph_reference *reference;
    device_ticket ticket;       /* reference: counts runs */
    graph_value fetch[FETCH_MAX];
    uint32_t n_fetch, n_node;
};

beryl_status graph_exec_open(graph *g, graph_store *store, const graph_exec_options *options, graph_exec **out, beryl_error *error) {
    *out = NULL;
    beryl_status status = graph_status(g, error);
    if (status != BERYL_OK) return status;
    graph_exec *e = base_heap_take(g->heap, sizeof *e);
    if (!e) return base_fail(error, BERYL_NO_MEMORY, "out of host memory");
    e->heap = g->heap;
    for (size_t i = 0; i < g->nodes.count; i++) e->n_node += !g->nodes.data[i].dead;
    static const graph_exec_options defaults;
    status = store->device ? graph_plan_open(g, store, options ? options : &defaults, &e->plan, error)
                           : graph_reference_open(g, store, &e->reference, error);
    if (status != BERYL_OK) {
        graph_exec_close(e);
        return status;
    }
    *out = e;
    return BERYL_OK;
}

void graph_exec_close(graph_exec *e) {
    if (!e) return;
    graph_plan_close(e->plan);
    graph_reference_close(e->reference);
    base_heap_give(e->heap, e, sizeof *e);
}

beryl_status graph_exec_ready(graph_exec *e, beryl_error *error) {
    return e->plan ? graph_plan_ready(e->plan, error) : BERYL_OK;
}

void *graph_exec_input(graph_exec *e, graph_value input) {
    return e->plan ? graph_plan_input(e->plan, input) : graph_reference_input(e->reference, input);
}

beryl_status graph_exec_begin(graph_exec *e, const uint32_t *extents, const graph_value *fetch, uint32_t n_fetch, beryl_error *error) {
    if (n_fetch > FETCH_MAX) return base_fail(error, BERYL_MISUSE, "%u values to read back", n_fetch);
    if (e->plan) return graph_plan_begin(e->plan, extents, fetch, n_fetch, error);
    beryl_status status = graph_reference_run(e->reference, extents, error);
    if (status != BERYL_OK) return status;
    e->n_fetch = n_fetch;
    for (uint32_t i = 0; i < n_fetch; i++) e->fetch[i] = fetch[i];
    return BERYL_OK;
}

beryl_status graph_exec_continue(graph_exec *e, uint32_t parts, graph_part *part, device_ticket *ticket, beryl_error *error) {
    if (e->plan) return graph_plan_continue(e->plan, parts, part, ticket, error);
    *part = (graph_part){.share = 1, .steps = e->n_node, .last = true};
    *ticket = ++e->ticket;
    return BERYL_OK;
}

beryl_status graph_exec_submit(graph_exec *e, const uint32_t *extents, const graph_value *fetch, uint32_t n_fetch,
                               device_ticket *ticket, beryl_error *error) {
    graph_part whole;
    const beryl_status status = graph_exec_begin(e, extents, fetch, n_fetch, error);
    return status == BERYL_OK ? graph_exec_continue(e, 1, &whole, ticket, error) : status;
}

beryl_status graph_exec_fetched(graph_exec *e, device_ticket ticket, uint32_t n, const void **data, beryl_error *error) {
    if (e->plan) return graph_plan_fetched(e->plan, ticket, n, data, error);
    if (ticket != e->ticket || n >= e->n_fetch) return base_fail(error, BERYL_MISUSE, "a result that is gone");
    *data = graph_reference_value(e->reference, e->fetch[n]);
    return BERYL_OK;
}

void graph_exec_describe(const graph_exec *e, graph_exec_info *info) {
    *info = (graph_exec_info){.dispatches = e->n_node};
    if (e->plan) graph_plan_describe(e->plan, info);
}

bool graph_exec_node_program(const graph_exec *e, uint32_t node, uint32_t i, device_program *out) {
    return e->plan && graph_plan_node_program(e->plan, node, i, out);
}

void graph_exec_print(graph_exec *e, base_text *out) {
    if (e->plan) graph_plan_print(e->plan, out);
}

bool graph_exec_step_at(const graph_exec *e, uint32_t i, graph_exec_step *out) {
    return e->plan && graph_plan_step_at(e->plan, i, out);
}

double graph_exec_seconds(const graph_exec *e) {
    return e->plan ? graph_plan_seconds(e->plan) : 0;
}

double graph_exec_encoded(const graph_exec *e) {
    return e->plan ? graph_plan_encoded(e->plan) : 0;
}

bool graph_exec_print_step(const graph_exec *e, uint32_t i, base_text *out) {
    return e->plan && graph_plan_print_step(e->plan, i, out);
}

bool graph_exec_texts_at(const graph_exec *e, uint32_t i, graph_exec_texts *out) {
    return e->plan && graph_plan_texts_at(e->plan, i, out);
}
