/* load_test.c - what a load does in which order, where the file's bytes are a source's: weights are
 * asked for first, and all else is done where they have to be waited for. */
#include "base/error.h"
#include "base/file.h"
#include "engine/engine.h"
#include "model.h"
#include "test.h"

#include <stdlib.h>
#include <string.h>

#define DEFAULT_MODEL "models/default.gguf"

/* Of less than 16 MiB: no slice of something else has its turn before they are there. */
typedef struct slow {
    beryl_source file;
    beryl_engine *engine;
    bool has_begun, is_held;
    uint32_t n_weights; /* reads of weights */
    bool early;         /* with a plan before all of them */
} slow;

static beryl_status slow_read(void *user, uint64_t offset, void *to, size_t size) {
    slow *s = user;
    if (s->has_begun && s->is_held) return BERYL_PENDING;
    s->n_weights += s->has_begun && store_is_uploading(&s->engine->store);
    s->early |= s->engine && s->engine->plans[PLAN_OUTPUT_SMALL].exec != NULL &&
                store_is_uploading(&s->engine->store);
    return s->file.read(s->file.user, offset, to, size);
}

/* One step; is there another one, without waiting? */
static bool step(slow *s, beryl_task *task, beryl_status *status) {
    beryl_event event;
    *status = beryl_task_step(task, &event);
    if (*status == BERYL_EVENT && event.what && !strcmp(event.what, "loading weights"))
        s->has_begun = true;
    return *status == BERYL_EVENT;
}

static void check_load(test *t, bool held) {
    slow s = {.is_held = held};
    base_heap heap;
    beryl_error error = {0};
    beryl_task *task = NULL;
    beryl_status status;
    base_heap_init(&heap, NULL);
    if (base_source_open_file(&heap, DEFAULT_MODEL, &s.file, NULL) != BERYL_OK) abort();
    const beryl_source source = {.size = s.file.size, .user = &s, .read = slow_read};
    const beryl_engine_options options = {.size = sizeof options,
                                          .source = &source,
                                          .device = "dummy",
                                          .context = 256,
                                          .no_cache = true};
    CHECK_INT(t, beryl_engine_open(&options, &s.engine, &error), BERYL_OK);
    if (s.engine) CHECK_INT(t, beryl_engine_load(s.engine, &task, &error), BERYL_OK);
    while (task && step(&s, task, &status)) {}
    if (task && held) {
        CHECK_INT(t, status, BERYL_PENDING);
        CHECK_INT(t, s.engine->store.upload_done, 0);
        CHECK(t, s.engine->tokenizer && !s.engine->unread);
        CHECK(t, s.engine->plans[PLAN_OUTPUT_SMALL].exec && s.engine->plans[PLAN_PREFILL].exec);
        s.is_held = false;
        while (step(&s, task, &status)) {}
    }
    CHECK_INT(t, task ? status : BERYL_MISUSE, BERYL_OK);
    CHECK(t, s.n_weights > 10);
    CHECK_INT(t, s.early, held);
    beryl_task_close(task);
    beryl_engine_close(s.engine);
    s.file.close(s.file.user);
}

/* Compilers work while a file's weights come. */
static void check_file(test *t) {
    const beryl_engine_options options = {.size = sizeof options,
                                          .model = DEFAULT_MODEL,
                                          .device = "dummy",
                                          .context = 256,
                                          .no_cache = true};
    slow s = {0};
    beryl_error error = {0};
    beryl_task *task = NULL;
    beryl_status status = BERYL_OK;
    CHECK_INT(t, beryl_engine_open(&options, &s.engine, &error), BERYL_OK);
    if (s.engine) CHECK_INT(t, beryl_engine_load(s.engine, &task, &error), BERYL_OK);
    while (task && !s.has_begun && step(&s, task, &status))
        CHECK(t, s.has_begun || s.engine->store.upload_done == 0);
    CHECK(t, s.has_begun && s.engine->plans[PLAN_OUTPUT_SMALL].exec &&
                 s.engine->plans[PLAN_PREFILL].exec);
    beryl_task_close(task);
    beryl_engine_close(s.engine);
}

void test_load(test *t);
void test_load(test *t) {
    if (test_case(t, "load/weights-come-before-plans")) check_load(t, false);
    if (test_case(t, "load/plans-come-before-the-weights-of-a-file")) check_file(t);
    if (test_case(t, "load/all-else-is-done-while-a-source-says-not-yet")) check_load(t, true);
}
