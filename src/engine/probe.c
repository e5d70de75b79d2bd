/* probe.c - a plan over made-up tokens. */
#include "engine/probe.h"
#include "base/error.h"

#include <string.h>

enum { FIRST_TOKEN = 1000 };

beryl_status probe_allowed(const beryl_engine *e, beryl_error *error) {
    if (e->n_session || e->n_flight)
        return base_fail(error, BERYL_MISUSE, "plans are not timed while sessions are open");
    if (!e->device)
        return base_fail(
            error, BERYL_UNSUPPORTED,
            "the reference device runs the graph node by node: it has no plan to time");
    if (!strcmp(device_caps_of(e->device)->backend, "dummy"))
        return base_fail(error, BERYL_UNSUPPORTED,
                         "the dummy device computes nothing that could be timed");
    return BERYL_OK;
}

beryl_status probe_open(beryl_engine *e, const gemma4_text_options *how, uint32_t depth,
                        const graph_exec_options *with, probe *p, beryl_error *error) {
    *p = (probe){.e = e,
                 .n = how->n_token,
                 .depth = depth,
                 .decode = how->decode,
                 .output = how->decode || how->n_output};
    beryl_status status = probe_allowed(e, error);
    if (status != BERYL_OK) return status;
    if ((uint64_t)depth + (how->decode ? 1 : how->n_token) > e->model.context ||
        (how->near && depth >= how->near))
        return base_fail(error, BERYL_BAD_INPUT, "%u tokens after %u: the context holds %u",
                         how->n_token, depth, e->model.context);
    status = gemma4_text_build(&e->model, &e->store, &e->heap, how, &p->text, error);
    if (status == BERYL_OK) status = graph_exec_open(p->text.g, &e->store, with, &p->exec, error);
    if (status == BERYL_OK) probe_fill(p);
    return status;
}

void probe_close(probe *p) {
    if (p->exec && p->ticket) device_wait(p->e->device, p->ticket, NULL);
    graph_exec_close(p->exec);
    graph_close(p->text.g);
    *p = (probe){0};
}

beryl_status probe_ready(probe *p, beryl_error *error) {
    return graph_exec_ready(p->exec, error);
}

void probe_fill(const probe *p) {
    const gemma4_text *t = &p->text;
    graph_exec *exec = p->exec;
    int32_t *slot = graph_exec_input(exec, t->slot), *pos = graph_exec_input(exec, t->pos);
    for (uint32_t i = 0; i < p->n; i++) {
        slot[i] = p->decode ? (int32_t)i : 0;
        pos[i] = (int32_t)(p->decode ? p->depth : p->depth + i);
        if (t->tokens)
            ((int32_t *)graph_exec_input(exec, t->tokens))[i] =
                (int32_t)((FIRST_TOKEN + i) % p->e->model.config.n_vocab);
    }
    for (int k = 0; k < 2; k++)
        gemma4_angles(&p->e->model, k, pos, p->n, graph_exec_input(exec, t->angles[k]));
    if (!t->output_rows) return;
    *(int32_t *)graph_exec_input(exec, t->output_rows) = (int32_t)p->n - 1;
    *(int32_t *)graph_exec_input(exec, t->output_slot) = 0;
    *(int32_t *)graph_exec_input(exec, t->output_pos) = pos[p->n - 1];
    for (int k = 0; k < 2; k++)
        gemma4_angles(&p->e->model, k, pos + p->n - 1, 1,
                      graph_exec_input(exec, t->output_angles[k]));
}

beryl_status probe_submit(probe *p, beryl_error *error) {
    uint32_t extents[GRAPH_EXTENT_MAX + 1] = {0};
    const gemma4_text *t = &p->text;
    extents[t->token_extent] = p->n;
    if (t->output_extent && t->output_extent != t->token_extent) extents[t->output_extent] = 1;
    return graph_exec_submit(p->exec, extents, &t->chosen, t->chosen != 0, &p->ticket, error);
}

beryl_status probe_wait(probe *p, beryl_error *error) {
    return device_wait(p->e->device, p->ticket, error);
}

beryl_status probe_read(probe *p, beryl_error *error) {
    const void *data;
    beryl_error none = {0};
    const beryl_status status =
        graph_exec_fetched(p->exec, p->ticket, 0, &data, p->text.chosen ? error : &none);
    return p->text.chosen ? status : BERYL_OK; /* without results it is for the times alone */
}
