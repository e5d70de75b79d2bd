/* texts_bench.c - what making the kernels of a model's plans takes: every plan that an engine of
 * one session opens, on the dummy device, all kernels generated.
 *   texts_bench [e2b|e4b|12b|26b-a4b|31b] [REPEATS]
 *   texts_bench MODEL --texts FOLDER  writes them there as well
 *   texts_bench MODEL --file PATH     writes the model's file (a head, then a hole) for others
 * As a module it is what `npm run bench:texts` of app/web runs in a browser.
 * Reads inside the library: it is for those who work on the compiler. */
#ifndef __wasm__
#define _POSIX_C_SOURCE 200809L
#endif
#include "../tests/shape_make.h"
#include "base/error.h"
#include "base/thread.h"
#include "engine/engine.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

enum { CONTEXT = 4096, REPEATS = 3 };

static const struct {
    engine_plan_kind kind;
    const char *name;
} plans[] = {
    {PLAN_OUTPUT_SMALL, "output small"},
    {PLAN_DECODE_NEAR, "decode near"},
    {PLAN_DECODE, "decode"},
    {PLAN_OUTPUT, "output"},
    {PLAN_PREFILL, "prefill"},
    {PLAN_DECODE_8, "decode 8"},
    {PLAN_DECODE_ALL, "decode 16"},
    {PLAN_LOGITS, "logits"},
};
enum { N_PLAN = sizeof plans / sizeof *plans };

typedef struct cost {                /* of a plan */
    double graph, plan;              /* seconds */
    uint32_t steps, programs, bytes; /* programs: new ones; bytes of their texts */
} cost;

/* Steps the load until the store is laid out and the first plans are there; weights are not
 * wanted. *task keeps the engine at that point. */
static beryl_status load(const beryl_source *source, const char *on, beryl_engine **e,
                         beryl_task **task, beryl_error *error) {
    const beryl_engine_options options = {.size = sizeof options,
                                          .source = source,
                                          .device = on,
                                          .precision = BERYL_PRECISION_FAST,
                                          .context = CONTEXT,
                                          .sessions = 16,
                                          .no_cache = true};
    beryl_status status = beryl_engine_open(&options, e, error);
    if (status == BERYL_OK) status = beryl_engine_load(*e, task, error);
    while (status == BERYL_OK && !(*e)->plans[PLAN_OUTPUT_SMALL].exec) {
        status = beryl_task_step(*task, NULL);
        if (status == BERYL_EVENT) status = BERYL_OK;
        else if (status == BERYL_OK || status == BERYL_PENDING)
            status = base_fail(error, BERYL_MISUSE, "the load made no plans");
        else *error = *beryl_task_error(*task);
    }
    return status;
}

#ifndef __wasm__
static void write_text(const char *folder, const char *code) {
    char path[4096];
    snprintf(path, sizeof path, "%s/%016llx.wgsl", folder,
             (unsigned long long)base_hash(code, strlen(code), 0));
    FILE *to = fopen(path, "wb");
    if (!to || fputs(code, to) < 0) fprintf(stderr, "texts_bench: cannot write %s\n", path);
    if (to) fclose(to);
}
#else
static void write_text(const char *folder, const char *code) {
    (void)folder, (void)code; /* there are no files */
}
#endif

/* Bytes of the texts that the store had not before; folder NULL: they are written nowhere. */
static uint32_t texts_of(const beryl_engine *e, const graph_exec *exec, size_t before,
                         const char *folder) {
    uint32_t bytes = 0;
    lower_texts t;
    for (uint32_t i = 0; graph_exec_texts_at(exec, i, &t); i++) {
        bool is_new = t.code != NULL;
        for (size_t p = 0; p < before; p++)
            is_new = is_new && e->store.programs.data[p].id.id != t.program.id;
        lower_texts other;
        for (uint32_t j = 0; is_new && j < i && graph_exec_texts_at(exec, j, &other); j++)
            is_new = other.program.id != t.program.id;
        if (is_new) bytes += (uint32_t)strlen(t.code);
        if (is_new && folder) write_text(folder, t.code);
    }
    return bytes;
}

/* One plan; explained: its texts are counted, which takes longer. */
static beryl_status make(beryl_engine *e, engine_plan_kind kind, bool explained, const char *folder,
                         cost *c, beryl_error *error) {
    gemma4_text text = {0};
    graph_exec *exec = NULL;
    graph_exec_info info;
    const gemma4_text_options how = engine_plan_options(e, kind);
    const graph_exec_options options = {.explained = explained};
    const size_t before = e->store.programs.count;
    const double start = base_time();
    beryl_status status = gemma4_text_build(&e->model, &e->store, &e->heap, &how, &text, error);
    c->graph = base_time() - start;
    if (status == BERYL_OK) status = graph_exec_open(text.g, &e->store, &options, &exec, error);
    c->plan = base_time() - start - c->graph;
    if (status == BERYL_OK) {
        graph_exec_describe(exec, &info);
        c->steps = info.dispatches;
        c->programs = (uint32_t)(e->store.programs.count - before);
    }
    if (explained && exec) c->bytes = texts_of(e, exec, before, folder);
    graph_exec_close(exec);
    graph_close(text.g);
    return status;
}

/* All plans, as if nothing had been made before; what the device has of it stays until the end. */
static beryl_status measure(beryl_engine *e, bool explained, const char *folder, cost costs[N_PLAN],
                            beryl_error *error) {
    beryl_status status = BERYL_OK;
    e->store.programs.count = 0;
    for (size_t i = 0; status == BERYL_OK && i < N_PLAN; i++) {
        costs[i] = (cost){0};
        status = make(e, plans[i].kind, explained, folder, &costs[i], error);
    }
    return status;
}

#ifdef __wasm__

#define EXPORT(name) __attribute__((export_name(#name)))

/* For app/web/test/browser/bench_texts.ts. */
EXPORT(texts_run) const cost *texts_run(void);         /* [N_PLAN]; NULL: it failed */
EXPORT(texts_plan) const char *texts_plan(uint32_t i); /* NULL: there are fewer */

const cost *texts_run(void) {
    static beryl_engine *e;
    static beryl_task *task;
    static shape_file file;
    static cost costs[N_PLAN];
    static beryl_error error = {0};
    const beryl_source source = e ? (beryl_source){0} : shape_make(&shapes[0], &file);
    beryl_status status = e ? BERYL_OK : load(&source, NULL, &e, &task, &error);
    if (status == BERYL_OK) status = measure(e, false, NULL, costs, &error);
    return status == BERYL_OK ? costs : NULL;
}

const char *texts_plan(uint32_t i) {
    return i < N_PLAN ? plans[i].name : NULL;
}

#else

static int fail(const char *what, const beryl_error *error) {
    fprintf(stderr, "texts_bench: %s: %s\n", what, error->message);
    return 1;
}

/* The first run counts bytes, the others take the time. */
static beryl_status repeat(beryl_engine *e, uint32_t repeats, const char *folder,
                           cost costs[N_PLAN], beryl_error *error) {
    beryl_status status = measure(e, true, folder, costs, error);
    for (uint32_t r = 0; status == BERYL_OK && r < repeats; r++) {
        cost again[N_PLAN];
        status = measure(e, false, NULL, again, error);
        for (size_t i = 0; status == BERYL_OK && i < N_PLAN; i++) {
            if (!r || again[i].plan < costs[i].plan) costs[i].plan = again[i].plan;
            if (!r || again[i].graph < costs[i].graph) costs[i].graph = again[i].graph;
        }
    }
    return status;
}

static int write_file(const shape_file *file, const char *path) {
    FILE *to = fopen(path, "wb");
    const bool good = to && fwrite(file->head, 1, file->size, to) == file->size && !fflush(to) &&
                      !ftruncate(fileno(to), (off_t)file->bytes);
    if (to) fclose(to);
    if (!good) fprintf(stderr, "texts_bench: cannot write %s\n", path);
    return good ? 0 : 1;
}

int main(int argc, char **argv) {
    const char *name = argc > 1 ? argv[1] : "e2b";
    const shape *s = NULL;
    for (int i = 0; i < SHAPE_COUNT; i++)
        if (!strcmp(shapes[i].name, name)) s = &shapes[i];
    if (!s) return fail(name, &(beryl_error){.message = "no such model"});
    shape_file file;
    const beryl_source source = shape_make(s, &file);
    int result = 1;
    if (argc > 3 && !strcmp(argv[2], "--file")) {
        result = write_file(&file, argv[3]);
        free(file.head);
        return result;
    }
    const char *folder = argc > 3 && !strcmp(argv[2], "--texts") ? argv[3] : NULL;
    const uint32_t repeats = argc > 2 && !folder ? (uint32_t)atoi(argv[2]) : REPEATS;
    beryl_error error = {0};
    cost costs[N_PLAN], all = {0};
    beryl_engine *e = NULL;
    beryl_task *task = NULL;
    if (load(&source, "dummy", &e, &task, &error) != BERYL_OK) fail(name, &error);
    else if (repeat(e, repeats, folder, costs, &error) != BERYL_OK) fail("a plan", &error);
    else {
        printf("%-12s %6s %8s %9s %9s %9s\n", name, "steps", "programs", "bytes", "graph ms",
               "plan ms");
        for (size_t i = 0; i <= N_PLAN; i++) {
            const cost *c = i < N_PLAN ? &costs[i] : &all;
            printf("%-12s %6u %8u %9u %9.1f %9.1f\n", i < N_PLAN ? plans[i].name : "all", c->steps,
                   c->programs, c->bytes, 1e3 * c->graph, 1e3 * c->plan);
            all.steps += c->steps, all.programs += c->programs, all.bytes += c->bytes;
            all.graph += c->graph, all.plan += c->plan;
        }
        result = 0;
    }
    beryl_task_close(task);
    beryl_engine_close(e);
    free(file.head);
    return result;
}

#endif
