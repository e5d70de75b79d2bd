/* tune_test.c - forms of products from the cache folder: what was kept is taken, what is
 * damaged, foreign or does not fit is not; a search on a device that computes. */
#define _POSIX_C_SOURCE 200809L
#include "base/file.h"
#include "engine/engine.h"
#include "model.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

typedef struct warnings {
    uint32_t n;
} warnings;

static void count_warning(void *user, beryl_log_level level, const char *line) {
    warnings *w = user;
    if (level == BERYL_LOG_WARNING && (strstr(line, "tune-") || strstr(line, "schedules.txt")))
        w->n++;
}

static beryl_engine *loaded_from(test *t, const char *model, const char *name, bool no_cache,
                                 warnings *w) {
    beryl_engine_options options = {.size = sizeof options,
                                    .model = test_data(t, model),
                                    .device = name,
                                    .no_cache = no_cache,
                                    .context = 128};
    if (w) options.log = (beryl_log){count_warning, w};
    return model_load(t, &options);
}

static beryl_engine *loaded(test *t, const char *name, bool no_cache, warnings *w) {
    return loaded_from(t, "e2b-q4km.gguf", name, no_cache, w);
}

static void keep_text(void *user, const char *text, size_t size) {
    base_text_add(user, text, size);
}

/* The kernels of the decode plan, as text. */
static void kernels_of(test *t, beryl_engine *engine, base_text *out) {
    beryl_error error = {0};
    const beryl_explain_options options = {.size = sizeof options, .stage = BERYL_STAGE_IR};
    base_text_clear(out);
    if (engine && beryl_engine_explain(engine, &options, keep_text, out, &error) != BERYL_OK)
        test_fail(t, __FILE__, __LINE__, "%s", error.message);
}

/* The classes of the decode plan, all with one form. */
static void tune_all(test *t, beryl_engine *e, lower_form form) {
    const gemma4_text_options how = engine_plan_options(e, PLAN_DECODE);
    const graph_exec_options with = {.exact = false};
    gemma4_text text = {0};
    graph_exec *exec = NULL;
    graph_exec_step step;
    CHECK_INT(t, gemma4_text_build(&e->model, &e->store, &e->heap, &how, &text, NULL), BERYL_OK);
    CHECK_INT(t, graph_exec_open(text.g, &e->store, &with, &exec, NULL), BERYL_OK);
    e->tuned.count = 0;
    form.tuned = true;
    for (uint32_t i = 0; exec && graph_exec_step_at(exec, i, &step); i++) {
        if (!step.product || !step.form.wg) continue;
        const graph_tensor *w = graph_tensor_at(text.g, step.product);
        engine_tuned one = {.form = {lower_tuned_key(text.g, step.product, false), form},
                            .type = w->type,
                            .dim = {w->rank > 2 ? w->dim[0].size : 1, w->dim[w->rank - 2].size,
                                    w->dim[w->rank - 1].size},
                            .n = text.g->extents[1].bound,
                            .before = 2,
                            .after = 1};
        snprintf(one.role, sizeof one.role, "%s", lower_tuned_role(w->name));
        CHECK_INT(t, lower_tuned_key_of(one.role, one.type, one.dim, one.n, false), one.form.key);
        bool known = false;
        for (size_t k = 0; k < e->tuned.count; k++)
            known |= e->tuned.data[k].form.key == one.form.key;
        engine_tuned *to = known ? NULL : base_vec_add(&e->heap, &e->tuned);
        if (to) *to = one;
    }
    CHECK(t, e->tuned.count >= 5);
    graph_exec_close(exec);
    graph_close(text.g);
    CHECK_INT(t, engine_tuned_keep(e, NULL), BERYL_OK);
}

/* The one file, NULL: none. */
static bool first_path(void *user, const beryl_tuned_info *info) {
    snprintf(user, 512, "%s", info->path);
    return true;
}

/* mark: what the form shows as in the kernels' text. */
static void check_forms(test *t, lower_form form, const char *mark) {
    warnings w = {0};
    base_heap heap;
    base_text before, after, again;
    base_heap_init(&heap, NULL);
    base_text *const texts[] = {&before, &after, &again};
    for (int i = 0; i < 3; i++) base_text_init(texts[i], &heap);
    beryl_engine *e = loaded(t, "dummy", false, &w);
    kernels_of(t, e, &before);
    if (e) tune_all(t, e, form);
    beryl_engine_close(e);
    for (int i = 0; i < 2; i++) {
        e = loaded(t, "dummy", false, &w);
        if (e) CHECK(t, e->tuned.count >= 5 && e->store.n_tuned == e->tuned.count);
        kernels_of(t, e, i ? &again : &after);
        beryl_engine_close(e);
    }
    CHECK(t, before.data && !strstr(before.data, mark));
    CHECK(t, after.data && strstr(after.data, mark));
    CHECK_TEXT(t, again.data, after.data);
    e = loaded(t, "dummy", true, &w); /* no cache */
    kernels_of(t, e, &again);
    CHECK_TEXT(t, again.data, before.data);
    beryl_engine_close(e);
    CHECK_INT(t, w.n, 0);
    for (int i = 0; i < 3; i++) base_text_fini(texts[i]);
}

static void check_kept(test *t) {
    check_forms(t, (lower_form){.wg = 512, .rows = 2}, "kernel \"linear\" workgroup 512 1 1");
}

/* A form that no kernel has leaves what was chosen. */
static void check_unfit(test *t) {
    base_heap heap;
    base_text before, after;
    base_heap_init(&heap, NULL);
    base_text_init(&before, &heap);
    base_text_init(&after, &heap);
    setenv("BERYL_CAPS", "min", 1); /* 256 invocations */
    beryl_engine *e = loaded(t, "dummy", true, NULL);
    kernels_of(t, e, &before);
    if (e) tune_all(t, e, (lower_form){.wg = 512, .rows = 2});
    beryl_engine_close(e);
    e = loaded(t, "dummy", false, NULL);
    if (e) CHECK(t, e->tuned.count >= 5);
    kernels_of(t, e, &after);
    CHECK_TEXT(t, after.data, before.data);
    beryl_engine_close(e);
    unsetenv("BERYL_CAPS");
    base_text_fini(&before);
    base_text_fini(&after);
}

/* Whatever the file holds, the model loads; the worst is a warning. */
static void check_hostile(test *t) {
    char path[512] = "", *text = NULL;
    size_t size = 0;
    base_heap heap;
    base_heap_init(&heap, NULL);
    beryl_engine *e = loaded(t, "dummy", true, NULL);
    if (e) tune_all(t, e, (lower_form){.wg = 64});
    CHECK_INT(t, beryl_tuned(first_path, path, NULL), BERYL_OK);
    CHECK_INT(t, base_file_read(&heap, path, 1 << 20, &text, &size, NULL), BERYL_OK);
    const size_t n_all = e ? e->tuned.count : 0;
    warnings w = {0};
    if (e) e->log = (beryl_log){count_warning, &w}, e->options.no_cache = false;
    for (size_t i = 0; e && text && i < size; i += 13) { /* cut off, and with a byte changed */
        CHECK_INT(t, base_file_write(path, text, i, NULL), BERYL_OK);
        w.n = 0;
        engine_tuned_recall(e);
        CHECK(t, w.n == 1 && e->tuned.count < n_all);
        const char was = text[i];
        text[i] = (char)(was ^ (1 << i % 7));
        CHECK_INT(t, base_file_write(path, text, size, NULL), BERYL_OK);
        engine_tuned_recall(e);
        CHECK(t, e->tuned.count <= n_all);
        text[i] = was;
    }
    static const char *const parts[][2] = {
        /* in place of one, the other */
        {"\"wg\":64", "\"wg\":65"},
        {"\"wg\":64", "\"wg\":4294967295"},
        {"\"lanes\":0", "\"lanes\":-1"},
        {"\"rows\":0", "\"rows\":1e99"},
        {"\"rows\":0", "\"rows\":\"0\""},
        {"\"apart\":0", "\"apart\":7"},
        {"\"groups\":0", "\"groups\":1.5"},
        {"\"shape\":[1,", "\"shape\":[0,"},
        {"\"shape\":[1,", "\"shape\":[1,1,"},
        {"\"Q4_K\"", "\"Q4_X\""},
        {"\"fast\"", "\"slow\""},
        {"\"role\":\"",
         "\"role\":"
         "\"01234567890123456789012345678901234567890123456789012345678901234567890123456789"}};
    for (size_t i = 0; e && text && i < sizeof parts / sizeof *parts; i++) {
        const char *at = strstr(text, parts[i][0]);
        base_text other;
        base_text_init(&other, &heap);
        CHECK(t, at != NULL);
        if (!at) continue;
        base_text_add(&other, text, (size_t)(at - text));
        base_text_print(&other, "%s%s", parts[i][1], at + strlen(parts[i][0]));
        CHECK_INT(t, base_file_write(path, other.data, other.size, NULL), BERYL_OK);
        base_text_fini(&other);
        w.n = 0;
        engine_tuned_recall(e);
        CHECK_INT(t, e->tuned.count, n_all - 1);
        CHECK_INT(t, w.n, 1);
    }
    text[strcspn(text, "0123456789abcdef")] ^= 1; /* its key: the file is of another device */
    CHECK_INT(t, base_file_write(path, text, size, NULL), BERYL_OK);
    w.n = 0;
    if (e) engine_tuned_recall(e);
    CHECK(t, w.n == 1);
    if (e) CHECK_INT(t, e->tuned.count, 0);
    beryl_engine_close(e);
    remove(path);
    base_heap_give(&heap, text, text ? size + 1 : 0);
}

typedef struct tally {
    uint32_t n, n_won;
    uint64_t done, total;
    beryl_status status;
} tally;

/* Of one total from the first event on, and never less than before. */
static void check_progress(test *t, tally *n, const beryl_event *event) {
    CHECK(t, event->total > 0 && (!n->total || event->total == n->total));
    CHECK(t, event->done >= n->done && event->done <= event->total);
    n->done = event->done, n->total = event->total;
}

static tally tuned(test *t, beryl_engine *e, const beryl_tune_options *options,
                   uint32_t cancel_after) {
    tally n = {0};
    beryl_task *task = NULL;
    beryl_event event;
    beryl_error error = {0};
    uint32_t n_event = 0;
    n.status = beryl_engine_tune(e, options, &task, &error);
    if (n.status != BERYL_OK) return n;
    while ((n.status = beryl_wait(task, &event)) == BERYL_EVENT) {
        if (event.kind == BERYL_EVENT_TEST) n.n++, n.n_won += event.ok;
        if (event.kind == BERYL_EVENT_TEST)
            CHECK(t, event.text_size > 10 && event.value > 0 && event.value <= 1 &&
                         (event.ok || event.value == 1));
        if (event.kind == BERYL_EVENT_PROGRESS) check_progress(t, &n, &event);
        if (cancel_after && ++n_event == cancel_after) beryl_cancel(task);
    }
    if (n.status == BERYL_OK) CHECK(t, n.total > 0 && n.done == n.total);
    else if (n.status != BERYL_CANCELLED)
        test_fail(t, __FILE__, __LINE__, "%s", beryl_task_error(task)->message);
    beryl_task_close(task);
    return n;
}

/* Of one type, whose forms are compiled in a third of the time. */
#define SEARCHED "e2b-q4_0.gguf"

static void check_search(test *t) {
    beryl_tune_options options = {.size = sizeof options, .tries = 1};
    setenv("BERYL_CAPS", "hard", 1); /* products of software devices have one form */
    beryl_engine *e = loaded_from(t, SEARCHED, "software", false, NULL);
    unsetenv("BERYL_CAPS");
    if (!e) return;
    /* after the plan was looked at and one round was run */
    const tally stopped = tuned(t, e, &options, 3);
    CHECK_INT(t, stopped.status, BERYL_CANCELLED);
    CHECK(t, stopped.n > 0); /* what was tried until then is known */
    CHECK_INT(t, e->tuned.count, stopped.n);
    const size_t n = e->tuned.count;
    e->tuned.count = 0;
    engine_tuned_recall(e); /* as the next load would */
    CHECK_INT(t, e->tuned.count, n);
    beryl_engine_close(e);
}

/* Kernels with many vectors. */
static void check_schedules(test *t) {
    beryl_tune_options options = {.size = sizeof options, .tries = 1};
    beryl_engine *e = loaded_from(t, SEARCHED, "host", false, NULL);
    if (!e) return;
    CHECK(t, !e->schedules);
    const tally first = tuned(t, e, &options, 0);
    CHECK_INT(t, first.status, BERYL_OK);
    const char *path = engine_schedules_path(&e->arena);
    CHECK(t, first.n > 0 && e->schedules && base_file_exists(path));
    CHECK_INT(t, tuned(t, e, &options, 0).n, 0);
    beryl_engine_close(e);
    base_text before, after;
    base_heap heap;
    base_heap_init(&heap, NULL);
    base_text_init(&before, &heap);
    base_text_init(&after, &heap);
    for (int i = 0; i < 2; i++) { /* every later load takes the same */
        e = loaded_from(t, SEARCHED, "host", false, NULL);
        if (e) CHECK(t, e->schedules && e->store.schedules);
        const beryl_explain_options prompt = {
            .size = sizeof prompt, .stage = BERYL_STAGE_IR, .plan = BERYL_PLAN_PREFILL};
        CHECK_INT(t, beryl_engine_explain(e, &prompt, keep_text, i ? &after : &before, NULL),
                  BERYL_OK);
        beryl_engine_close(e);
    }
    CHECK_TEXT(t, after.data, before.data);
    base_text_fini(&before);
    base_text_fini(&after);
}

/* Its warning comes once a load, though many kernels ask; with what an older Beryl left nothing
 * is wrong. */
static void check_damaged_schedules(test *t) {
    base_heap heap;
    base_arena arena;
    static const char *const texts[] = {"beryl tune 2\n0 0 0\n", "gar\nba\nge\n"};
    base_heap_init(&heap, NULL);
    base_arena_init(&arena, &heap);
    CHECK_INT(t, engine_cache_folder(&arena, NULL), BERYL_OK);
    const char *path = engine_schedules_path(&arena);
    for (uint32_t i = 0; i < 2; i++) {
        warnings w = {0};
        CHECK_INT(t, base_file_write(path, texts[i], strlen(texts[i]), NULL), BERYL_OK);
        beryl_engine *e = loaded(t, "dummy", false, &w);
        CHECK_INT(t, w.n, i);
        beryl_engine_close(e);
    }
    base_arena_fini(&arena);
}

static void check_refused(test *t) {
    const beryl_tune_options options = {.size = sizeof options};
    beryl_task *task = NULL;
    for (int i = 0; i < 2; i++) {
        beryl_engine *e = loaded(t, i ? "reference" : "dummy", true, NULL);
        CHECK_INT(t, beryl_engine_tune(e, &options, &task, NULL), BERYL_UNSUPPORTED);
        CHECK(t, !task);
        if (!i) {
            beryl_session *session = NULL;
            CHECK_INT(t, beryl_session_open(e, NULL, &session, NULL), BERYL_OK);
            CHECK_INT(t, beryl_engine_tune(e, &options, &task, NULL), BERYL_MISUSE);
            beryl_session_close(session);
            CHECK_INT(t, beryl_engine_tune(e, &(beryl_tune_options){.size = 1}, &task, NULL),
                      BERYL_MISUSE);
            CHECK_INT(
                t,
                beryl_engine_tune(e, &(beryl_tune_options){.size = sizeof options, .tries = 100000},
                                  &task, NULL),
                BERYL_BAD_INPUT);
        }
        beryl_engine_close(e);
    }
    CHECK_INT(t, beryl_engine_tune(NULL, &options, &task, NULL), BERYL_MISUSE);
}

void test_tune(test *t) {
    static const struct {
        const char *name;
        void (*check)(test *t);
    } cases[] = {{"kept-forms-are-taken", check_kept},
                 {"form-that-does-not-fit", check_unfit},
                 {"hostile-files", check_hostile},
                 {"search", check_search},
                 {"search-of-schedules", check_schedules},
                 {"damaged-schedules", check_damaged_schedules},
                 {"refused", check_refused}};
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        if (!test_case(t, "tune/%s", cases[i].name)) continue;
        const char *was = getenv("XDG_CACHE_HOME");
        char folder[512], kept[512] = "";
        if (was) snprintf(kept, sizeof kept, "%s", was);
        snprintf(folder, sizeof folder, "%s/tune-%zu", test_scratch(t), i);
        setenv("XDG_CACHE_HOME", folder, 1);
        cases[i].check(t);
        if (was) setenv("XDG_CACHE_HOME", kept, 1);
        else unsetenv("XDG_CACHE_HOME");
    }
}
