/* threads_test.c - engines in several threads at once, and cancelling from outside. A race shows
 * where ThreadSanitizer looks on (`make tsan`); without it, by other answers than one thread
 * alone gets. */
#define _POSIX_C_SOURCE 200809L
#include "base/file.h"
#include "base/thread.h"
#include "model.h"
#include "model_make.h"

#include <pthread.h>
#include <signal.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { THREAD_MAX = 6, SESSIONS = 2, TOKENS_MAX = 12 };

/* ---- a whole life of an engine --------------------------------------------------------------- */

typedef struct life { /* what one thread does, and what came of it */
    model_make_kind kind;
    const char *device;
    atomic_int *waiting; /* threads that are to begin together; NULL: alone */
    int32_t tokens[SESSIONS][TOKENS_MAX];
    size_t n_token[SESSIONS];
    beryl_status status;
    beryl_error error;
    model_saved saved;
} life;

/* Steps the tasks in turn until all have ended, and closes them. */
static beryl_status finish_all(life *l, beryl_task *tasks[SESSIONS]) {
    beryl_status worst = BERYL_OK;
    for (int left = SESSIONS; left > 0;) {
        left = 0;
        for (int i = 0; i < SESSIONS; i++) {
            beryl_event event;
            if (!tasks[i]) continue;
            const beryl_status status = beryl_wait(tasks[i], &event);
            if (status == BERYL_EVENT) {
                left++;
                if (event.kind == BERYL_EVENT_TOKEN && event.token >= 0 &&
                    l->n_token[i] < TOKENS_MAX)
                    l->tokens[i][l->n_token[i]++] = event.token;
                continue;
            }
            if (status) l->error = *beryl_task_error(tasks[i]);
            if (status) worst = status;
            beryl_task_close(tasks[i]);
            tasks[i] = NULL;
        }
    }
    return worst;
}

static beryl_status save_and_restore(life *l, beryl_session *from, beryl_session *to) {
    const beryl_sink sink = {.user = &l->saved, .write = model_saved_write};
    beryl_task *task;
    l->saved.size = 0;
    beryl_status status = beryl_session_save_to(from, &sink, &task, &l->error);
    if (!status) status = model_finish(task, &l->error, NULL);
    const beryl_source source = base_source_of_memory(l->saved.data, l->saved.size);
    if (!status) status = beryl_session_restore_from(to, &source, &task, &l->error);
    return status ? status : model_finish(task, &l->error, NULL);
}

/* Both sessions answer at once, one continues as the other, both answer again. */
static beryl_status talk(life *l, beryl_session *sessions[SESSIONS]) {
    static const int32_t prompts[SESSIONS][5] = {{2, 30, 31, 28, 32}, {2, 40, 33, 29, 26}};
    const beryl_generate_options options = {
        .size = sizeof options, .seed = 7, .max_tokens = TOKENS_MAX / 2, .ignore_eos = true};
    beryl_task *tasks[SESSIONS] = {NULL};
    beryl_status status = BERYL_OK;
    for (int i = 0; i < SESSIONS && !status; i++)
        status = beryl_session_generate(sessions[i], prompts[i], 5, &options, &tasks[i], &l->error);
    const beryl_status first = finish_all(l, tasks);
    if (!status) status = first;
    if (!status) status = save_and_restore(l, sessions[0], sessions[1]);
    for (int i = 0; i < SESSIONS && !status; i++)
        status = beryl_session_generate(sessions[i], prompts[i], 5, &options, &tasks[i], &l->error);
    const beryl_status second = finish_all(l, tasks);
    return status ? status : second;
}

static void live(void *user) {
    life *l = user;
    size_t size;
    uint8_t *file = model_make(l->kind, &size);
    const beryl_source source = base_source_of_memory(file, size);
    const beryl_engine_options options = {.size = sizeof options,
                                          .source = &source,
                                          .device = l->device,
                                          .context = 32,
                                          .sessions = SESSIONS,
                                          .piece = 4,
                                          .kv = BERYL_KV_F32};
    beryl_engine *engine = NULL;
    beryl_session *sessions[SESSIONS] = {NULL};
    beryl_task *task;
    if (l->waiting) {
        atomic_fetch_sub(l->waiting, 1);
        while (atomic_load(l->waiting) > 0) base_sleep(1e-4);
    }
    l->status = beryl_engine_open(&options, &engine, &l->error);
    if (!l->status) l->status = beryl_engine_load(engine, &task, &l->error);
    if (!l->status) l->status = model_finish(task, &l->error, NULL);
    for (int i = 0; i < SESSIONS && !l->status; i++)
        l->status = beryl_session_open(engine, NULL, &sessions[i], &l->error);
    if (!l->status) l->status = talk(l, sessions);
    for (int i = 0; i < SESSIONS; i++) beryl_session_close(sessions[i]);
    beryl_engine_close(engine);
    free(file);
}

/* ---- side by side ---------------------------------------------------------------------------- */

/* One life of each kind alone, then `n` lives at once. */
static void side_by_side(test *t, const char *device, uint32_t n, uint32_t n_kind) {
    static life alone[MODEL_MAKE_COUNT], lives[THREAD_MAX];
    atomic_int waiting = (int)n;
    base_heap heap;
    base_thread *threads[THREAD_MAX];
    base_heap_init(&heap, NULL);
    for (uint32_t i = 0; i < n; i++) {
        lives[i] =
            (life){.kind = (model_make_kind)(i % n_kind), .device = device, .waiting = &waiting};
        threads[i] = base_thread_open(&heap, live, &lives[i]);
        if (!threads[i]) abort();
    }
    for (uint32_t i = 0; i < n; i++) base_thread_close(threads[i]);
    for (uint32_t kind = 0; kind < n_kind; kind++) {
        alone[kind] = (life){.kind = (model_make_kind)kind, .device = device};
        live(&alone[kind]);
        if (alone[kind].status == BERYL_NO_DEVICE) {
            test_skip(t, "%s", alone[kind].error.message);
            return;
        }
        if (alone[kind].status)
            test_fail(t, __FILE__, __LINE__, "%s alone: %s", model_make_name((model_make_kind)kind),
                      alone[kind].error.message);
        CHECK_INT(t, alone[kind].n_token[0], TOKENS_MAX);
    }
    for (uint32_t i = 0; i < n; i++) {
        const life *l = &lives[i], *same = &alone[i % n_kind];
        if (l->status)
            test_fail(t, __FILE__, __LINE__, "%s in a thread: %s", model_make_name(l->kind),
                      l->error.message);
        for (int s = 0; s < SESSIONS; s++) {
            CHECK_INT(t, l->n_token[s], same->n_token[s]);
            CHECK(t, !memcmp(l->tokens[s], same->tokens[s], sizeof same->tokens[s]));
        }
    }
}

/* Nothing is in the cache yet: both compile the same and keep it there. */
static void one_cache(test *t) {
    const char *cache = getenv("XDG_CACHE_HOME");
    char path[600], before[600];
    snprintf(before, sizeof before, "%s", cache ? cache : "");
    snprintf(path, sizeof path, "%s/threads", test_scratch(t));
    CHECK_INT(t, base_folder_make(path, NULL), BERYL_OK);
    setenv("XDG_CACHE_HOME", path, 1);
    side_by_side(t, "host", 2, 1);
    if (before[0]) setenv("XDG_CACHE_HOME", before, 1);
    else unsetenv("XDG_CACHE_HOME");
}

/* ---- cancelling ------------------------------------------------------------------------------ */

typedef struct canceller {
    _Atomic(beryl_task *) task; /* to be cancelled, once; NULL: wait */
    atomic_bool done, end;
    bool by_signal;
    pthread_t to;
    double after; /* seconds */
} canceller;

static _Atomic(beryl_task *) signalled; /* what the handler cancels */

static void on_signal(int number) {
    (void)number;
    beryl_cancel(atomic_load(&signalled));
}

static void cancel_on_demand(void *user) {
    canceller *c = user;
    while (!atomic_load(&c->end)) {
        beryl_task *task = atomic_exchange(&c->task, NULL);
        if (!task) {
            base_sleep(1e-5);
            continue;
        }
        base_sleep(c->after);
        if (c->by_signal) pthread_kill(c->to, SIGUSR1);
        else beryl_cancel(task);
        atomic_store(&c->done, true);
    }
}

/* Runs the task until it ends; it is cancelled meanwhile, at some time. Whether that came before
 * the end is in the status. */
static beryl_status run_cancelled(canceller *c, beryl_task *task, double after) {
    beryl_status status;
    bool was_done = false, lost = false;
    atomic_store(&signalled, task);
    atomic_store(&c->done, false);
    c->after = after;
    atomic_store(&c->task, task);
    for (;;) {
        status = beryl_task_step(task, NULL);
        if (status != BERYL_EVENT && status != BERYL_PENDING) break;
        /* this step began after the call */
        lost |= was_done && !c->by_signal && status == BERYL_PENDING;
        was_done = atomic_load(&c->done);
    }
    while (!atomic_load(&c->done)) base_sleep(1e-5);
    atomic_store(&signalled, NULL);
    beryl_task_close(task);
    return lost ? BERYL_MISUSE : status;
}

static void cancel_from_outside(test *t, bool by_signal) {
    enum { ROUNDS = 60 };
    static const int32_t prompt[] = {2, 30, 31, 28, 32};
    struct sigaction action = {.sa_handler = on_signal}, before;
    canceller c = {.by_signal = by_signal, .to = pthread_self()};
    base_heap heap;
    size_t size;
    uint8_t *file = model_make(MODEL_MAKE_DENSE, &size);
    const beryl_source source = base_source_of_memory(file, size);
    const beryl_engine_options options = {
        .size = sizeof options, .source = &source, .device = "reference", .no_cache = true};
    const beryl_generate_options all = {.size = sizeof all, .greedy = true, .ignore_eos = true};
    int n_cancelled = 0;
    base_heap_init(&heap, NULL);
    sigaction(SIGUSR1, &action, &before);
    base_thread *thread = base_thread_open(&heap, cancel_on_demand, &c);
    if (!thread) abort();
    for (int i = 0; i < ROUNDS; i++) {
        beryl_engine *engine;
        beryl_session *session = NULL;
        beryl_task *task;
        CHECK_INT(t, beryl_engine_open(&options, &engine, NULL), BERYL_OK);
        CHECK_INT(t, beryl_engine_load(engine, &task, NULL), BERYL_OK);
        const beryl_status loaded =
            i % 2 ? run_cancelled(&c, task, i * 1e-5) : model_finish(task, NULL, NULL);
        CHECK(t, loaded == BERYL_OK || (i % 2 && loaded == BERYL_CANCELLED));
        n_cancelled += loaded == BERYL_CANCELLED;
        if (loaded == BERYL_OK) {
            CHECK_INT(t, beryl_session_open(engine, NULL, &session, NULL), BERYL_OK);
            CHECK_INT(t, beryl_session_generate(session, prompt, 5, &all, &task, NULL), BERYL_OK);
            const beryl_status ended = run_cancelled(&c, task, i * 1e-5);
            CHECK(t, ended == BERYL_OK || ended == BERYL_CANCELLED);
            n_cancelled += ended == BERYL_CANCELLED;
            /* and goes on as before */
            CHECK_INT(t, beryl_session_generate(session, prompt, 5, &all, &task, NULL), BERYL_OK);
            CHECK_INT(t, model_finish(task, NULL, NULL), BERYL_OK);
        }
        beryl_session_close(session);
        beryl_engine_close(engine);
    }
    atomic_store(&c.end, true);
    base_thread_close(thread);
    sigaction(SIGUSR1, &before, NULL);
    CHECK(t, n_cancelled > 0);
    free(file);
}

void test_threads(test *t) {
    if (test_case(t, "threads/engines-are-independent"))
        side_by_side(t, "reference", THREAD_MAX, MODEL_MAKE_COUNT);
    if (test_case(t, "threads/engines-share-a-cache")) one_cache(t);
    if (test_case(t, "threads/cancel-from-another")) cancel_from_outside(t, false);
    if (test_case(t, "threads/cancel-from-a-signal-handler")) cancel_from_outside(t, true);
}
