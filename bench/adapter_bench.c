/* adapter_bench.c - how long a session waits for another adapter: from a file in memory to the
 * session's first step with it, beside a step as it is. Two adapters take turns in one engine.
 *   adapter_bench MODEL ADAPTER ADAPTER [DEVICE]      (adapters: GGUF files of one shape) */
#include "base/file.h"
#include "base/thread.h"
#include "beryl.h"

#include <stdio.h>
#include <stdlib.h>

enum { TURNS = 12, TOKENS = 4 };

static void check(beryl_status status, const beryl_error *error) {
    if (status == BERYL_OK) return;
    fprintf(stderr, "%s\n", error->message);
    exit(1);
}

static void wait(beryl_task *task) {
    beryl_status status;
    while ((status = beryl_wait(task, NULL)) == BERYL_EVENT) {}
    check(status, beryl_task_error(task));
    beryl_task_close(task);
}

/* Seconds of a prompt and a few tokens. */
static double answer(beryl_session *s, beryl_error *error) {
    static const int32_t prompt[] = {2, 300, 310, 320};
    const beryl_generate_options how = {
        .size = sizeof how, .greedy = true, .max_tokens = TOKENS, .ignore_eos = true};
    const double began = base_time();
    beryl_task *task;
    check(beryl_session_generate(s, prompt, sizeof prompt / sizeof *prompt, &how, &task, error),
          error);
    wait(task);
    return base_time() - began;
}

int main(int argc, char **argv) {
    beryl_error error = {0};
    if (argc < 4) return printf("adapter_bench: no model and adapters given\n"), 0;
    const beryl_engine_options options = {
        .size = sizeof options, .model = argv[1], .device = argc > 4 ? argv[4] : NULL};
    base_heap heap;
    beryl_engine *engine;
    beryl_session *session;
    beryl_task *task;
    char *data[2];
    size_t size[2];
    base_heap_init(&heap, NULL);
    check(beryl_engine_open(&options, &engine, &error), &error);
    check(beryl_engine_load(engine, &task, &error), &error);
    wait(task);
    check(beryl_session_open(engine, NULL, &session, &error), &error);
    for (int i = 0; i < 2; i++)
        check(base_file_read(&heap, argv[2 + i], SIZE_MAX / 2, &data[i], &size[i], &error), &error);
    double best = 1e9, worst = 0, alone = 1e9;
    beryl_adapter *old = NULL;
    for (int i = 0; i < TURNS; i++) {
        const beryl_adapter_options given = {
            .size = sizeof given, .data = data[i & 1], .data_size = size[i & 1]};
        beryl_adapter *adapter;
        const double began = base_time();
        check(beryl_session_adapters(session, NULL, NULL, 0, &error), &error);
        beryl_adapter_close(old);
        check(beryl_adapter_open(engine, &given, &adapter, &error), &error);
        check(beryl_session_adapters(session, &adapter, NULL, 1, &error), &error);
        const double took = base_time() - began, with = answer(session, &error);
        old = adapter;
        if (i < 2) continue; /* plans are compiled */
        if (took + with < best) best = took + with;
        if (took > worst) worst = took;
        const float scale = 1 + 1e-3f * (float)i; /* so that the prompt is read anew */
        check(beryl_session_adapters(session, &adapter, &scale, 1, &error), &error);
        const double again = answer(session, &error);
        if (again < alone) alone = again;
    }
    printf("%.1f MB: swapped in at most %.1f ms; with a prompt and %d tokens %.1f ms, which alone "
           "take "
           "%.1f ms\n",
           1e-6 * (double)size[0], 1e3 * worst, TOKENS, 1e3 * best, 1e3 * alone);
    beryl_session_close(session);
    beryl_adapter_close(old);
    for (int i = 0; i < 2; i++) base_heap_give(&heap, data[i], size[i] + 1);
    beryl_engine_close(engine);
    return 0;
}
