/* selftest.c - trials of all operations that the engine's plans consist of, each different one once.
 *
 * As a task it tells every result. As the start-up check it tries shorter runs, stays silent, and keeps a good verdict
 * in a file named by a hash of adapter, driver and the programs' texts; a bad one is never kept. */
#include "engine/selftest.h"
#include "base/error.h"
#include "base/file.h"
#include "base/json.h"

#include <stdio.h>
#include <string.h>

static const trial_limits whole_limits = {.rows = 40, .out = 64, .reach = 1200};
static const trial_limits short_limits = {.rows = 5, .out = 16, .reach = 70};

enum { VERDICT_MAX = 4096 };

struct engine_selftest {
    beryl_engine *e;
    trial_limits limits;
    base_vec(struct selftest_case { trial_desc desc; uint64_t key; bool is_cut; }) cases;
    size_t at, n_failed, n_tried;
    bool *used;         // [n_program] of the engine's store: some trial ran it
    size_t n_program;
    bool again;         /* the second round */
    trial *running;
    base_text name, first_failed;
    double first_error;
    char key[17]; /* of the verdict's file; empty: none is kept */
};

/* ---- what there is to try -------------------------------------------------------------------------------------- */

static bool is_known(const engine_selftest *s, uint64_t key) {
    for (size_t i = 0; i < s->cases.count; i++)
        if (s->cases.data[i].key == key) return true;
    return false;
}

static beryl_status collect(engine_selftest *s, beryl_error *error) {
    for (int k = 0; k < PLAN_COUNT; k++) {
        const engine_plan *plan = &s->e->plans[k];
        if (!plan->exec) continue;
        const graph *g = plan->text.g;
        for (uint32_t i = 0; i < g->nodes.count; i++) {
            const trial_desc desc = {g, i, k == PLAN_DECODE_NEAR || k == PLAN_DECODE || k == PLAN_DECODE_8 || k == PLAN_DECODE_ALL};
            if (!trial_wanted(&desc)) continue;
            const uint64_t key = trial_key(&desc);
            if (is_known(s, key)) continue;
            struct selftest_case *c = base_vec_add(&s->e->heap, &s->cases);
            if (!c) return base_fail(error, BERYL_NO_MEMORY, "out of host memory");
            *c = (struct selftest_case){desc, key, false};
        }
    }
    return BERYL_OK;
}

static bool computes(const beryl_engine *e) {
    return e->device && strcmp(device_caps_of(e->device)->backend, "dummy") != 0;
}

static beryl_status selftest_open(beryl_engine *e, const trial_limits *limits, engine_selftest **out, beryl_error *error) {
    *out = NULL;
    engine_selftest *s = base_heap_take(&e->heap, sizeof *s);
    if (!s) return base_fail(error, BERYL_NO_MEMORY, "out of host memory");
    s->e = e;
    s->limits = *limits;
    base_text_init(&s->name, &e->heap);
    base_text_init(&s->first_failed, &e->heap);
    s->n_program = e->store.programs.count;
    s->used = base_heap_take(&e->heap, s->n_program * sizeof *s->used);
    beryl_status status = s->used ? BERYL_OK : base_fail(error, BERYL_NO_MEMORY, "out of host memory");
    if (status == BERYL_OK && computes(e)) status = collect(s, error);
    if (status == BERYL_OK) {
        *out = s;
    } else {
        engine_selftest_close(s);
    }
    return status;
}

void engine_selftest_close(engine_selftest *s) {
    if (!s) return;
    trial_close(s->running);
    base_heap *heap = &s->e->heap;
    base_vec_fini(heap, &s->cases);
    base_heap_give(heap, s->used, s->n_program * sizeof *s->used);
    base_text_fini(&s->name);
    base_text_fini(&s->first_failed);
    base_heap_give(heap, s, sizeof *s);
}

void engine_selftest_progress(const engine_selftest *s, uint64_t *done, uint64_t *total) {
    *done = s ? s->n_tried : 0;
    *total = s ? s->cases.count : 0;
}

/* The next case. A weight with few rows may get a kernel of another node: while some program was not tried, a second
 * round takes weights as they are. false: there are no more. */
static bool next_case(engine_selftest *s) {
    for (;;) {
        bool missing = false;
        for (size_t i = 0; i < s->n_program; i++) missing |= !s->used[i];
        if (s->again && !missing) return false;
        for (; s->at < s->cases.count; s->at++)
            if (!s->again || s->cases.data[s->at].is_cut) return true;
        if (s->again || !missing) return false;
        s->again = true;
        s->at = 0;
        s->limits.out = UINT32_MAX;
    }
}

/* EVENT: the case whose name is in s->name has ended. OK: there are no more. A kernel that does not compile has failed. */
static beryl_status selftest_step(engine_selftest *s, trial_result *result, beryl_error *error) {
    if (!s->running && !next_case(s)) return BERYL_OK;
    struct selftest_case *c = &s->cases.data[s->at];
    beryl_error why = {0};
    beryl_status status = BERYL_OK;
    if (!s->running) status = trial_open(s->e, &c->desc, &s->limits, &s->running, &why);
    if (status == BERYL_OK) status = trial_step(s->running, result, &why);
    if (status == BERYL_PENDING) return status;
    if (status == BERYL_OK) {
        c->is_cut = trial_is_cut(s->running);
        trial_mark(s->running, s->used, s->n_program);
    }
    trial_close(s->running);
    s->running = NULL;
    base_text_clear(&s->name);
    trial_name(&c->desc, &s->name);
    if (status == BERYL_DEVICE || status == BERYL_UNSUPPORTED) {
        base_log(&s->e->log, BERYL_LOG_WARNING, "%s: %s", s->name.failed ? "" : s->name.data, why.message);
        *result = (trial_result){false, 1};
        status = BERYL_OK;
    }
    if (status == BERYL_OK && s->name.failed) status = base_fail(&why, BERYL_NO_MEMORY, "out of host memory");
    if (status != BERYL_OK) {
        if (error) *error = why;
        return status;
    }
    s->at++;
    s->n_tried++;
    if (!result->ok && s->n_failed++ == 0) {
        base_text_add(&s->first_failed, s->name.data, s->name.size);
        s->first_error = result->error;
    }
    return BERYL_EVENT;
}

static beryl_status selftest_verdict(const engine_selftest *s, beryl_error *error) {
    if (!s->n_failed) return BERYL_OK;
    return base_fail(error, BERYL_DEVICE, "%zu of %zu kernels compute wrong numbers on %s, the first is %s (error %.2g): try --device software, "
                     "and please report it", s->n_failed, s->n_tried, device_caps_of(s->e->device)->name,
                     s->first_failed.data ? s->first_failed.data : "", s->first_error);
}

/* ---- the task ---------------------------------------------------------------------------------------------------- */

static beryl_status task_step(beryl_task *task) {
    if (task_is_cancelled(task)) return base_fail(&task->error, BERYL_CANCELLED, "the self-test was cancelled");
    engine_selftest *s = task->state;
    trial_result result;
    beryl_status status = selftest_step(s, &result, &task->error);
    if (status == BERYL_OK) return selftest_verdict(s, &task->error);
    if (status != BERYL_EVENT) return status;
    const beryl_event event = {.kind = BERYL_EVENT_TEST, .token = -1, .done = s->n_tried, .total = s->cases.count, .ok = result.ok, .value = result.error};
    status = task_put(task, event, s->name.data, s->name.size);
    return status == BERYL_OK ? BERYL_EVENT : status;
}

static void task_end(beryl_task *task) {
    engine_selftest_close(task->state);
}

beryl_status beryl_engine_selftest(beryl_engine *engine, beryl_task **task, beryl_error *error) {
    if (task) *task = NULL;
    if (!engine || !task || !engine->loaded || engine->options.vocabulary_only)
        return base_fail(error, BERYL_MISUSE, "beryl_engine_selftest needs an engine with a loaded model and a place for the task");
    if (engine->device && !computes(engine)) return base_fail(error, BERYL_UNSUPPORTED, "the dummy device computes nothing that could be tested");
    engine_selftest *s;
    beryl_status status = selftest_open(engine, &whole_limits, &s, error);
    if (status != BERYL_OK) return status;
    status = task_open(engine, NULL, task_step, task, error);
    if (status != BERYL_OK) {
        engine_selftest_close(s);
        return status;
    }
    (*task)->state = s;
    (*task)->close = task_end;
    return BERYL_OK;
}

/* ---- verdicts on disk --------------------------------------------------------------------------------------------- */

/* Adapter, driver and the texts of all programs, in whatever order they were made. */
static void verdict_key(const beryl_engine *e, char key[17]) {
    const device_caps *caps = device_caps_of(e->device);
    uint64_t hash = base_hash(BERYL_VERSION, sizeof BERYL_VERSION, e->options.precision), programs = 0;
    hash = base_hash(caps->backend, strlen(caps->backend), hash);
    hash = base_hash(caps->name, strlen(caps->name), hash);
    hash = base_hash(caps->driver, strlen(caps->driver), hash);
    for (size_t i = 0; i < e->store.programs.count; i++) programs += base_hash(&e->store.programs.data[i].hash, sizeof(uint64_t), 1);
    hash = base_hash(&programs, sizeof programs, hash);
    snprintf(key, 17, "%016llx", (unsigned long long)hash);
}

/* Beryl's cache folder, or the verdict's file in it. NULL: there is none. */
static char *verdict_path(base_arena *arena, const char *key) {
    const char *cache = base_environment("XDG_CACHE_HOME"), *home = base_environment("HOME");
    const char *file = key ? "/selftest-" : "", *end = key ? ".json" : "";
    if (!key) key = "";
    if (cache && *cache == '/') return base_arena_print(arena, "%s/beryl%s%s%s", cache, file, key, end);
    return home && *home == '/' ? base_arena_print(arena, "%s/.cache/beryl%s%s%s", home, file, key, end) : NULL;
}

static bool verdict_read(beryl_engine *e, const char *key) {
    base_arena arena;
    base_arena_init(&arena, &e->heap);
    const char *path = verdict_path(&arena, key);
    char *text = NULL;
    size_t size = 0;
    base_json *json = NULL;
    bool good = path && base_file_read(&e->heap, path, VERDICT_MAX, &text, &size, NULL) == BERYL_OK &&
                base_json_parse(&arena, text, size, &json, NULL) == BERYL_OK;
    const base_json *ok = good ? base_json_find(json, "ok") : NULL, *same = good ? base_json_find(json, "key") : NULL;
    good = ok && ok->kind == JSON_TRUE && same && same->kind == JSON_STRING && base_view_equal(same->text, base_view_of(key));
    base_heap_give(&e->heap, text, size + 1);
    base_arena_fini(&arena);
    return good;
}

/* A verdict that cannot be kept is found again next time. */
static void verdict_write(const engine_selftest *s) {
    const device_caps *caps = device_caps_of(s->e->device);
    base_arena arena;
    base_arena_init(&arena, &s->e->heap);
    base_text text;
    base_text_init(&text, &s->e->heap);
    base_text_print(&text, "{\"key\":\"%s\",\"ok\":true,\"tests\":%zu,\"adapter\":", s->key, s->n_tried);
    base_json_write_string(&text, caps->name, strlen(caps->name));
    base_text_print(&text, ",\"driver\":");
    base_json_write_string(&text, caps->driver, strlen(caps->driver));
    base_text_print(&text, ",\"version\":\"" BERYL_VERSION "\"}\n");
    const char *folder = verdict_path(&arena, NULL), *path = verdict_path(&arena, s->key);
    beryl_error error = {0};
    bool kept = folder && path && !text.failed && base_folder_make(folder, &error) == BERYL_OK &&
                base_file_write(path, text.data, text.size, &error) == BERYL_OK;
    if (!kept) base_log(&s->e->log, BERYL_LOG_DEBUG, "the self-test's verdict was not kept: %s", error.message);
    base_text_fini(&text);
    base_arena_fini(&arena);
}

beryl_status engine_selftest_cached(beryl_engine *e, engine_selftest **state, beryl_error *error) {
    beryl_status status = BERYL_OK;
    if (!*state) {
        if (!computes(e)) return BERYL_OK;
        char key[17];
        verdict_key(e, key);
        if (!e->options.no_cache && verdict_read(e, key)) return BERYL_OK;
        status = selftest_open(e, &short_limits, state, error);
        if (status != BERYL_OK) return status;
        if (!e->options.no_cache) memcpy((*state)->key, key, sizeof key);
        base_log(&e->log, BERYL_LOG_INFO, "checking %zu kernels on this device, once", (*state)->cases.count);
    }
    engine_selftest *s = *state;
    trial_result result;
    status = selftest_step(s, &result, error);
    if (status == BERYL_EVENT || status == BERYL_PENDING) return status;
    if (status == BERYL_OK) status = selftest_verdict(s, error);
    if (status == BERYL_OK && s->key[0]) verdict_write(s);
    engine_selftest_close(s);
    *state = NULL;
    return status;
}
