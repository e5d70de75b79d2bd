/* cancel_test.c - a cancellation is never lost: beryl_cancel, and Ctrl-C through the program's
 * handler, at any moment of a load, logits, an answer, a session's saving and restoring.
 *
 * One idea: a walk goes through all of that and counts its points: calls of the allocator, of
 * source, sink and logits' function, and events. At one of them it is cancelled, whatever the
 * library is doing there: at a few here and there, and at all about the end of each task. */
#define _XOPEN_SOURCE 700
#include "../app/cli/cli.h"
#include "model.h"

#include <errno.h>
#include <signal.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

typedef struct walk {
    const char *path;
    bool vocabulary; /* loads that alone */
    bool signals;    /* SIGINT at the point, tasks as the program runs them; else beryl_cancel */
    uint32_t at, n;  /* the point, and those so far */
    uint32_t ends[8], n_end; /* those when each task ended */
    beryl_task *task;        /* the running one */
    bool asked, told;        /* beryl_cancel was called, and said that it will end the task */
    bool stopped;            /* a task ended with CANCELLED */
    bool wrong;              /* a status or a state that does not fit */
    char *saved;             // [size]
    size_t size;
    bool whole; /* what the sink was told at its end */
} walk;

static void point(walk *w) {
    if (w->n++ != w->at) return;
    if (w->signals) {
        raise(SIGINT);
    } else if (w->task) {
        w->asked = true;
        w->told = beryl_cancel(w->task);
    }
}

static void *resize(void *user, void *memory, size_t old, size_t size) {
    (void)old;
    point(user);
    if (size) return realloc(memory, size);
    free(memory);
    return NULL;
}

static void logits_each(void *user, size_t position, const float *logits) {
    (void)position, (void)logits;
    point(user);
}

static beryl_status sink_write(void *user, const void *data, size_t size) {
    walk *w = user;
    point(w);
    char *more = realloc(w->saved, w->size + size);
    if (!more) return BERYL_NO_MEMORY;
    memcpy(more + w->size, data, size);
    w->saved = more;
    w->size += size;
    return BERYL_OK;
}

static beryl_status sink_close(void *user, bool whole) {
    walk *w = user;
    w->whole = whole;
    point(w);
    return BERYL_OK;
}

static beryl_status source_read(void *user, uint64_t offset, void *to, size_t size) {
    walk *w = user;
    point(w);
    memcpy(to, w->saved + offset, size);
    return BERYL_OK;
}

/* Steps the task to its end. True: it ended well. */
static bool run(walk *w, beryl_task *task) {
    beryl_status status;
    w->task = task;
    if (w->signals) cli_task_begin(task);
    while ((status = beryl_wait(task, NULL)) == BERYL_EVENT) point(w);
    if (w->signals) cli_task_end();
    w->wrong |= w->asked && !w->stopped && status != (w->told ? BERYL_CANCELLED : BERYL_OK);
    w->wrong |= status != BERYL_OK && status != BERYL_CANCELLED;
    w->wrong |= status != beryl_task_step(task, NULL);
    w->wrong |= status == BERYL_OK && !w->signals && beryl_cancel(task);
    w->task = NULL;
    if (w->n_end < 8) w->ends[w->n_end++] = w->n;
    w->stopped |= status == BERYL_CANCELLED;
    beryl_task_close(task);
    return status == BERYL_OK;
}

static size_t held(const beryl_session *s) {
    const int32_t *tokens;
    size_t n;
    beryl_session_tokens(s, &tokens, &n);
    return n;
}

static void in_session(walk *w, beryl_session *s, beryl_session *other) {
    static const int32_t prompt[] = {2, 10, 11, 12};
    beryl_task *task;
    const beryl_generate_options o = {
        .size = sizeof o, .greedy = true, .ignore_eos = true, .max_tokens = 3};
    const beryl_sink sink = {w, sink_write, sink_close};
    w->wrong |= beryl_session_logits(s, prompt, 4, 1, 0, logits_each, w, &task, NULL) != BERYL_OK;
    if (w->wrong || !run(w, task)) return;
    w->wrong |= beryl_session_generate(s, prompt, 4, &o, &task, NULL) != BERYL_OK;
    if (w->wrong || !run(w, task)) return;
    w->wrong |= beryl_session_save_to(s, &sink, &task, NULL) != BERYL_OK;
    bool whole = !w->wrong && run(w, task);
    w->wrong |= whole != w->whole;
    if (!whole) return;
    const beryl_source source = {.size = w->size, .user = w, .read = source_read};
    w->wrong |= beryl_session_restore_from(other, &source, &task, NULL) != BERYL_OK;
    whole = !w->wrong && run(w, task);
    w->wrong |= held(other) != (whole ? held(s) : 0);
}

static void walk_run(walk *w) {
    const beryl_engine_options options = {.size = sizeof options,
                                          .model = w->path,
                                          .device = "reference",
                                          .context = 64,
                                          .sessions = 2,
                                          .vocabulary_only = w->vocabulary,
                                          .no_cache = true,
                                          .allocator = {resize, w}};
    beryl_engine *engine = NULL;
    beryl_session *s = NULL, *other = NULL;
    beryl_task *task = NULL;
    w->wrong = beryl_engine_open(&options, &engine, NULL) != BERYL_OK ||
               beryl_engine_load(engine, &task, NULL) != BERYL_OK;
    bool ready = !w->wrong && run(w, task);
    w->wrong |= (beryl_engine_info_get(engine, &(beryl_engine_info){0}) == BERYL_OK) != ready;
    w->wrong |=
        (beryl_session_open(engine, NULL, &s, NULL) == BERYL_OK) != (ready && !w->vocabulary);
    ready = ready && !w->vocabulary;
    if (ready) w->wrong |= beryl_session_open(engine, NULL, &other, NULL) != BERYL_OK;
    if (ready && !w->wrong) in_session(w, s, other);
    beryl_session_close(s);
    beryl_session_close(other);
    beryl_engine_close(engine);
    free(w->saved);
    w->saved = NULL;
}

static bool is_chosen(const walk *whole, uint32_t at) {
    enum { STRIDE = 101, NEAR = 4 };
    for (uint32_t i = 0; i < whole->n_end; i++)
        if (at + NEAR >= whole->ends[i] && at < whole->ends[i] + NEAR) return true;
    return at % STRIDE == 0;
}

/* ---- by beryl_cancel ------------------------------------------------------------------------- */

static void cancelled_anywhere(test *t, const char *path, bool vocabulary) {
    walk whole = {.path = path, .vocabulary = vocabulary, .at = UINT32_MAX};
    walk_run(&whole);
    CHECK(t, !whole.wrong && !whole.stopped);
    uint32_t n_told = 0, n_tried = 0;
    for (uint32_t at = 0; at < whole.n && !test_failed(t); at++) {
        if (!is_chosen(&whole, at)) continue;
        n_tried++;
        walk w = {.path = path, .vocabulary = vocabulary, .at = at};
        walk_run(&w);
        n_told += w.told;
        if (w.wrong || w.stopped != w.told)
            test_fail(t, __FILE__, __LINE__, "cancelled at point %u of %u: told %d, stopped %d",
                      (unsigned)at, (unsigned)whole.n, w.told, w.stopped);
    }
    CHECK(t, n_told > n_tried / 3);
}

/* ---- by the program's handler ---------------------------------------------------------------- */

/* In a process of its own. 0: the press stopped a task, or is kept for the prompt; 1: it is
 * lost; 2: something is wrong. */
static int interrupted_at(const char *path, uint32_t at, bool chat) {
    walk w = {.path = path, .signals = true, .at = at};
    cli_signals_begin();
    if (chat) cli_chat_begin();
    walk_run(&w);
    return w.wrong ? 2 : w.stopped || cli_interrupted() ? 0 : 1;
}

/* A key that never comes is waited for: Ctrl-C before that is not overlooked. */
static int interrupted_before_a_key(void) {
    int ends[2];
    char byte;
    if (pipe(ends) || dup2(ends[0], 0) < 0) return 2;
    alarm(120);
    cli_signals_begin();
    cli_chat_begin();
    raise(SIGINT);
    if (cli_key_read(&byte) != -1 || errno != EINTR || !cli_interrupted() || cli_interrupted())
        return 1;
    return write(ends[1], "x", 1) == 1 && cli_key_read(&byte) == 1 && byte == 'x' ? 0 : 2;
}

/* at UINT32_MAX: the case of the key. */
static void check_child(test *t, const char *path, uint32_t at, bool chat) {
    pid_t child = fork();
    if (child == 0)
        _exit(at == UINT32_MAX ? interrupted_before_a_key() : interrupted_at(path, at, chat));
    int status = 0;
    CHECK(t, child > 0 && waitpid(child, &status, 0) == child);
    bool ended = !chat && WIFSIGNALED(status) && WTERMSIG(status) == SIGINT;
    if (!ended && (!WIFEXITED(status) || WEXITSTATUS(status)))
        test_fail(t, __FILE__, __LINE__, "SIGINT at point %u%s: status %x", (unsigned)at,
                  chat ? " of a chat" : "", (unsigned)status);
}

static void interrupted_anywhere(test *t, const char *path, bool chat) {
    walk whole = {.path = path, .at = UINT32_MAX};
    walk_run(&whole);
    for (uint32_t at = 0; at < whole.n && !test_failed(t); at++)
        if (is_chosen(&whole, at)) check_child(t, path, at, chat);
}

void test_cancel(test *t) {
    char path[300];
    snprintf(path, sizeof path, "%s", test_data(t, "e2b-q4_0.gguf"));
    if (test_case(t, "cancel/at-any-point-of-any-task")) cancelled_anywhere(t, path, false);
    if (test_case(t, "cancel/at-any-point-of-a-vocabulary's-load"))
        cancelled_anywhere(t, path, true);
    if (test_case(t, "cancel/ctrl-c-at-any-point-of-a-command"))
        interrupted_anywhere(t, path, false);
    if (test_case(t, "cancel/ctrl-c-at-any-point-of-a-chat")) interrupted_anywhere(t, path, true);
    if (test_case(t, "cancel/ctrl-c-before-the-prompt-reads"))
        check_child(t, path, UINT32_MAX, true);
}
