/* check.c - the start-up check: each program that a plan uses runs once on the device against
 * the reference functions before it is trusted, and is done without where it fails.
 *
 * What is known of an adapter lies in one small file of Beryl's cache folder, named by adapter,
 * driver and version: hashes of programs that are right there, and what the device passes for
 * having not, since programs that need it were wrong. A second start reads that file. */
#include "base/error.h"
#include "base/json.h"
#include "engine/selftest.h"

#include <stdio.h>
#include <string.h>

enum { KNOWN_MAX = 4096 };

#define TELL_SECONDS 0.05   /* no two events of compiling closer */
#define REPEAT_SECONDS 0.25 /* without news */

static const char *const features[] = {"f16", "subgroups", "dot"};
enum { N_FEATURE = sizeof features / sizeof *features };

/* ---- what is known of the adapter ------------------------------------------------------------ */

/* A program's tolerance depends on the precision, so its verdict does. */
static uint64_t program_key(const beryl_engine *e, const store_program *program) {
    return base_hash(&program->hash, sizeof program->hash, (uint64_t)e->options.precision);
}

static bool is_key(base_view text, uint64_t *key) {
    *key = 0;
    for (size_t i = 0; i < text.size; i++) {
        const char *digits = "0123456789abcdef",
                   *at = text.data[i] ? strchr(digits, text.data[i]) : NULL;
        if (!at) return false;
        *key = *key << 4 | (uint64_t)(at - digits);
    }
    return text.size == 16;
}

static void recall_features(beryl_engine *e, const base_json *list) {
    bool lost[N_FEATURE] = {false};
    for (const base_json *word = list && list->kind == JSON_ARRAY ? list->child : NULL; word;
         word = word->next)
        for (int i = 0; i < N_FEATURE; i++)
            if (word->kind == JSON_STRING && base_view_equal(word->text, base_view_of(features[i])))
                e->lost[i] = lost[i] = true;
    device_forgo(e->device, lost[0], lost[1], lost[2]);
}

void engine_check_recall(beryl_engine *e) {
    if (!engine_selftest_computes(e) || e->options.no_cache) return;
    char key[17];
    base_arena arena;
    base_arena_init(&arena, &e->heap);
    engine_adapter_key(e, key);
    const base_json *json =
        engine_cache_read(e, &arena, engine_cache_path(&arena, "kernels", key), key);
    if (json) {
        const base_json *list = base_json_find(json, "good");
        recall_features(e, base_json_find(json, "without"));
        for (const base_json *word = list && list->kind == JSON_ARRAY ? list->child : NULL; word;
             word = word->next) {
            uint64_t hash, *known = word->kind == JSON_STRING && is_key(word->text, &hash)
                                        ? base_vec_add(&e->heap, &e->known)
                                        : NULL;
            if (known) *known = hash;
        }
    }
    base_arena_fini(&arena);
}

/* A verdict that cannot be kept is found again next time. */
static void keep(beryl_engine *e) {
    if (e->options.no_cache) return;
    char key[17];
    base_arena arena;
    base_text text;
    base_arena_init(&arena, &e->heap);
    base_text_init(&text, &e->heap);
    engine_adapter_key(e, key);
    if (e->known.count > KNOWN_MAX) e->known.count = 0;
    for (size_t i = 0; i < e->store.programs.count; i++) {
        uint64_t *known =
            e->store.programs.data[i].proven ? base_vec_add(&e->heap, &e->known) : NULL;
        if (known) *known = program_key(e, &e->store.programs.data[i]);
    }
    engine_cache_begin(e, key, &text);
    base_text_print(&text, ",\"without\":[");
    for (int i = 0, n = 0; i < N_FEATURE; i++)
        if (e->lost[i]) base_text_print(&text, "%s\"%s\"", n++ ? "," : "", features[i]);
    base_text_print(&text, "],\"good\":[");
    for (size_t i = 0, n = 0; i < e->known.count; i++) {
        bool again = false;
        for (size_t k = 0; k < i && !again; k++) again = e->known.data[k] == e->known.data[i];
        if (!again)
            base_text_print(&text, "%s\"%016llx\"", n++ ? "," : "",
                            (unsigned long long)e->known.data[i]);
    }
    base_text_print(&text, "]}\n");
    beryl_error error = {0};
    if (engine_cache_keep(&arena, "kernels", key, &text, &error) != BERYL_OK) {
        base_log(&e->log, e->unkept ? BERYL_LOG_DEBUG : BERYL_LOG_WARNING,
                 "kernels are checked at every start: %s", error.message);
        e->unkept = true;
    }
    base_text_fini(&text);
    base_arena_fini(&arena);
}

/* ---- doing without --------------------------------------------------------------------------- */

/* Lets go of what the suspects need of the device, and of the plans. false: a suspect needs
 * nothing that is left. */
static bool do_without(beryl_engine *e, const bool *suspects, const beryl_error *why) {
    bool lost[N_FEATURE] = {false};
    for (size_t i = 0; i < e->store.programs.count; i++) {
        const store_program *p = &e->store.programs.data[i];
        const bool needs[N_FEATURE] = {p->f16 && !e->lost[0], p->subgroups && !e->lost[1],
                                       p->dot && !e->lost[2]};
        if (!suspects[i]) continue;
        if (!needs[0] && !needs[1] && !needs[2]) return false;
        for (int k = 0; k < N_FEATURE; k++) lost[k] |= needs[k];
    }
    for (int i = 0; i < N_FEATURE; i++) {
        if (!lost[i]) continue;
        e->lost[i] = true;
        base_log(&e->log, BERYL_LOG_WARNING, "going on without %s: %s", features[i], why->message);
    }
    device_forgo(e->device, lost[0], lost[1], lost[2]);
    engine_plans_close(e);
    return true;
}

/* Programs that do not compile are suspects too. */
static bool broken_programs(beryl_engine *e, bool *suspects) {
    bool any = false;
    for (size_t i = 0; i < e->store.programs.count; i++) {
        store_program *p = &e->store.programs.data[i];
        const bool is_used =
            !(p->f16 && e->lost[0]) && !(p->subgroups && e->lost[1]) && !(p->dot && e->lost[2]);
        const beryl_status status =
            is_used ? device_program_status(e->device, p->id, NULL) : BERYL_OK;
        suspects[i] = status == BERYL_DEVICE || status == BERYL_UNSUPPORTED;
        any |= suspects[i];
    }
    return any;
}

static bool *suspects_take(beryl_engine *e) {
    return base_heap_take(&e->heap, e->store.programs.count * sizeof(bool) + 1);
}

bool engine_check_broken(beryl_engine *e, const beryl_error *why) {
    bool *suspects = engine_selftest_computes(e) ? suspects_take(e) : NULL;
    const size_t n = e->store.programs.count;
    const bool again = suspects && broken_programs(e, suspects) && do_without(e, suspects, why);
    base_heap_give(&e->heap, suspects, suspects ? n * sizeof(bool) + 1 : 0);
    return again;
}

/* ---- the check ------------------------------------------------------------------------------- */

static bool is_all_known(beryl_engine *e) {
    bool all = true;
    for (size_t i = 0; i < e->store.programs.count; i++) {
        store_program *p = &e->store.programs.data[i];
        const uint64_t key = program_key(e, p);
        for (size_t k = 0; k < e->known.count && !p->proven; k++)
            p->proven = e->known.data[k] == key;
        all &= p->proven;
    }
    return all;
}

static beryl_status check_end(beryl_engine *e, bool *again, beryl_error *error) {
    beryl_error why = {0};
    const size_t n = e->store.programs.count;
    bool *suspects = suspects_take(e);
    if (!suspects) return base_no_memory(error);
    engine_selftest_sort(e->check, suspects, n);
    beryl_status status = engine_selftest_verdict(e->check, &why);
    engine_check_close(e);
    if (status != BERYL_OK && again && do_without(e, suspects, &why)) {
        *again = true;
        status = BERYL_OK;
    }
    if (status == BERYL_OK) keep(e);
    else if (error) *error = why;
    base_heap_give(&e->heap, suspects, n * sizeof(bool) + 1);
    e->n_checked = status == BERYL_OK && !(again && *again) ? e->n_checking : 0;
    return status;
}

beryl_status engine_check_step(beryl_engine *e, bool *again, uint64_t *done, uint64_t *total,
                               beryl_error *error) {
    if (again) *again = false;
    if (e->n_checked == e->store.programs.count || !engine_selftest_computes(e)) return BERYL_OK;
    beryl_status status = BERYL_OK;
    if (!e->check) {
        e->n_checked = is_all_known(e) ? e->store.programs.count : 0;
        if (e->n_checked) return BERYL_OK;
        e->n_checking = e->store.programs.count;
        status = engine_selftest_open(e, SELFTEST_BRIEF, &e->check, error);
        if (status != BERYL_OK) return status;
        base_log(&e->log, BERYL_LOG_INFO, "checking kernels on this device, once");
    }
    trial_result result;
    const base_text *name;
    status = engine_selftest_step(e->check, &result, &name, error);
    engine_selftest_progress(e->check, done, total);
    return status == BERYL_OK ? check_end(e, again, error) : status;
}

beryl_status engine_compile_progress(beryl_task *task) {
    beryl_engine *e = task->engine;
    const double now = base_time();
    const size_t n = e->device ? e->store.programs.count : 0;
    size_t done = 0;
    if (now - e->compile_told < TELL_SECONDS) return BERYL_PENDING;
    for (size_t i = 0; i < n; i++)
        done +=
            device_program_status(e->device, e->store.programs.data[i].id, NULL) != BERYL_PENDING;
    if (done == n || (done == e->n_compiled && now - e->compile_told < REPEAT_SECONDS))
        return BERYL_PENDING;
    e->n_compiled = done;
    e->compile_told = now;
    const beryl_event event = {.kind = BERYL_EVENT_PROGRESS,
                               .what = "compiling kernels",
                               .done = done,
                               .total = n,
                               .token = -1};
    const beryl_status status = task_put(task, event, NULL, 0);
    return status == BERYL_OK ? BERYL_EVENT : status;
}

void engine_check_close(beryl_engine *e) {
    engine_selftest_close(e->check);
    e->check = NULL;
}
