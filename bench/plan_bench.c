/* plan_bench.c - where the time of a model's plans goes, dispatch by dispatch, by the device's own clock.
 *   plan_bench [MODEL] [decode|prefill|output] [N_TOKEN] [DEPTH] [exact]
 * Reads inside the library: it is for those who work on kernels. */
#include "engine/engine.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static int fail(const char *what, const beryl_error *error) {
    fprintf(stderr, "plan_bench: %s: %s\n", what, error->message);
    return 1;
}

static void fill_inputs(beryl_engine *e, const gemma4_text *t, graph_exec *exec, uint32_t n, uint32_t depth, bool decode) {
    int32_t *slot = graph_exec_input(exec, t->slot), *pos = graph_exec_input(exec, t->pos);
    for (uint32_t i = 0; i < n; i++) {
        slot[i] = decode ? (int32_t)i : 0;
        pos[i] = (int32_t)(decode ? depth : depth + i);
        if (t->tokens) ((int32_t *)graph_exec_input(exec, t->tokens))[i] = (int32_t)(1000 + i);
    }
    for (int k = 0; k < 2; k++) gemma4_angles(&e->model, k, pos, n, graph_exec_input(exec, t->angles[k]));
    if (t->output_rows) {
        *(int32_t *)graph_exec_input(exec, t->output_rows) = (int32_t)n - 1;
        *(int32_t *)graph_exec_input(exec, t->output_slot) = 0;
        *(int32_t *)graph_exec_input(exec, t->output_pos) = (int32_t)(depth + n - 1);
        for (int k = 0; k < 2; k++) gemma4_angles(&e->model, k, pos + n - 1, 1, graph_exec_input(exec, t->output_angles[k]));
    }
}

static beryl_status run_once(beryl_engine *e, graph_exec *exec, const gemma4_text *t, uint32_t n, bool output, beryl_error *error) {
    uint32_t extents[GRAPH_EXTENT_MAX + 1] = {0};
    extents[t->token_extent] = n;
    if (t->output_extent && t->output_extent != t->token_extent) extents[t->output_extent] = 1;
    device_ticket ticket;
    beryl_status status = graph_exec_submit(exec, extents, &t->chosen, output, &ticket, error);
    if (status == BERYL_OK) status = device_wait(e->device, ticket, error);
    const void *data;
    if (status == BERYL_OK) status = graph_exec_fetched(exec, ticket, 0, &data, error);
    return output ? status : BERYL_OK;
}

int main(int argc, char **argv) {
    const char *kind = argc > 2 ? argv[2] : "decode";
    uint32_t n = argc > 3 ? (uint32_t)atoi(argv[3]) : 1, depth = argc > 4 ? (uint32_t)atoi(argv[4]) : 16;
    bool exact = argc > 5 && !strcmp(argv[5], "exact"), decode = !strcmp(kind, "decode"), output = strcmp(kind, "prefill") != 0;
    if (n == 0) {
        fputs("usage: plan_bench [MODEL] [decode|prefill|output] [N_TOKEN] [DEPTH] [exact]\n", stderr);
        return 2;
    }
    beryl_engine_options options = {.size = sizeof options, .model = argc > 1 ? argv[1] : NULL, .context = depth + n + 64, .sessions = decode ? n : 1,
                                    .precision = exact ? BERYL_PRECISION_EXACT : BERYL_PRECISION_FAST};
    beryl_engine *e;
    beryl_task *task;
    beryl_error error = {0};
    if (beryl_engine_open(&options, &e, &error) || beryl_engine_load(e, &task, &error)) return fail("opening", &error);
    beryl_status status;
    while ((status = beryl_wait(task, NULL)) == BERYL_EVENT) {}
    if (status != BERYL_OK) return fail("loading", beryl_task_error(task));
    beryl_task_close(task);
    if (!e->device) return fputs("plan_bench: needs a device\n", stderr), 1;
    gemma4_text_options how = {.n_token = n, .n_output = output && !decode, .decode = decode, .sample = output};
    gemma4_text text;
    graph_exec *exec;
    graph_exec_options with = {.exact = exact, .stamped = true};
    if (gemma4_text_build(&e->model, &e->store, &e->heap, &how, &text, &error) || graph_exec_open(text.g, &e->store, &with, &exec, &error))
        return fail("planning", &error);
    while ((status = graph_exec_ready(exec, &error)) == BERYL_PENDING) base_sleep(1e-3);
    if (status != BERYL_OK) return fail("compiling", &error);
    fill_inputs(e, &text, exec, n, depth, decode);
    for (int i = 0; i < 5; i++) {
        double start = base_time();
        if (run_once(e, exec, &text, n, output, &error) != BERYL_OK) return fail("running", &error);
        printf("run %d: %.3f ms\n", i, (base_time() - start) * 1e3);
    }
    base_text out;
    base_text_init(&out, &e->heap);
    graph_exec_print(exec, &out);
    fwrite(out.data, 1, out.size, stdout);
    base_text_fini(&out);
    graph_exec_close(exec);
    graph_close(text.g);
    beryl_engine_close(e);
    return 0;
}
