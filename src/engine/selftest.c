/* selftest.c - trials of the operations that the engine's plans consist of: each different one
 * once and then every operation there is (the task), or a few that together run every program
 * (the start-up check, check.c). */
#include "engine/selftest.h"
#include "base/error.h"
#include "engine/every_op.h"

#include <string.h>

static const trial_limits whole_limits = {.rows = 40, .out = 64, .reach = 1200, .work = 5e7};
static const trial_limits brief_limits = {.rows = 5, .out = 16, .reach = 70, .work = 5e6};

struct engine_selftest {
    beryl_engine *e;
    trial_limits limits;
    base_vec(struct selftest_case {
        trial_desc desc;
        uint64_t key;
        double work;
        bool tried, ok, skipped, later;
    }) cases;
    size_t at, n_failed, n_tried;
    bool brief;
    bool waits;  /* for the upload's end: while it goes on, less and less can be tried */
    bool *tried; // [n_program] of the engine's store: no trial of it is needed any more
    size_t n_program;
    trial_blocks blocks;
    trial *running;
    every_op *every; /* NULL: the model's own alone */
    base_text name, first_failed;
    double first_error;
};

/* ---- what there is to try -------------------------------------------------------------------- */

static bool is_known(const engine_selftest *s, uint64_t key) {
    for (size_t i = 0; i < s->cases.count; i++)
        if (s->cases.data[i].key == key) return true;
    return false;
}

static size_t index_of(const engine_selftest *s, device_program program) {
    size_t i = 0;
    while (i < s->n_program && s->e->store.programs.data[i].id.id != program.id) i++;
    return i;
}

/* Does the case run a program that no other one has? */
static bool is_needed(const engine_selftest *s, const trial_desc *desc) {
    device_program program;
    for (uint32_t i = 0; trial_program(desc, i, &program); i++) {
        const size_t at = index_of(s, program);
        if (at < s->n_program && !s->tried[at]) return true;
    }
    return false;
}

/* The nodes of one plan; desc.node is nobody's yet. */
static beryl_status collect_from(engine_selftest *s, trial_desc desc, beryl_error *error) {
    desc.exact = s->e->options.precision == BERYL_PRECISION_EXACT;
    for (desc.node = 0; desc.node < desc.g->nodes.count; desc.node++) {
        if (!trial_find(&desc) || (s->brief && !is_needed(s, &desc))) continue;
        const uint64_t key = trial_key(&desc);
        if (is_known(s, key)) continue;
        struct selftest_case *c = base_vec_add(&s->e->heap, &s->cases);
        if (!c) return base_no_memory(error);
        *c =
            (struct selftest_case){.desc = desc, .key = key, .work = trial_work(&desc, &s->limits)};
    }
    return BERYL_OK;
}

static beryl_status collect(engine_selftest *s, beryl_error *error) {
    beryl_status status = BERYL_OK;
    for (int k = 0; status == BERYL_OK && k < PLAN_ALL; k++) {
        const engine_plan *plan = &s->e->plans[k];
        const int kind = k % PLAN_ADAPTED;
        const bool decode = kind >= PLAN_DECODE_NEAR && kind <= PLAN_DECODE_ALL;
        if (plan->exec)
            status = collect_from(
                s,
                (trial_desc){
                    .g = plan->text.g, .exec = plan->exec, .store = &s->e->store, .decode = decode},
                error);
    }
    return status;
}

/* What the model has not, for graphs of the library's users. Pages have none. */
static beryl_status collect_every_op(engine_selftest *s, beryl_error *error) {
#ifdef __wasm__
    (void)s, (void)error;
    return BERYL_OK;
#else
    beryl_engine *e = s->e;
    beryl_status status = every_op_open(
        &e->heap, e->device, e->options.precision == BERYL_PRECISION_EXACT, &s->every, error);
    if (status == BERYL_OK)
        status = collect_from(
            s, (trial_desc){.g = s->every->g, .exec = s->every->exec, .store = &s->every->store},
            error);
    return status;
#endif
}

bool engine_selftest_computes(const beryl_engine *e) {
    return e->device && strcmp(device_caps_of(e->device)->backend, "dummy") != 0;
}

beryl_status engine_selftest_open(beryl_engine *e, selftest_kind kind, engine_selftest **out,
                                  beryl_error *error) {
    const bool brief = kind == SELFTEST_BRIEF;
    *out = NULL;
    engine_selftest *s = base_heap_take(&e->heap, sizeof *s);
    if (!s) return base_no_memory(error);
    s->e = e;
    s->brief = brief;
    s->limits = brief ? brief_limits : whole_limits;
    base_arena_init(&s->blocks.arena, &e->heap);
    base_text_init(&s->name, &e->heap);
    base_text_init(&s->first_failed, &e->heap);
    s->n_program = e->store.programs.count;
    s->tried = base_heap_take(&e->heap, s->n_program * sizeof *s->tried + 1);
    beryl_status status = s->tried ? BERYL_OK : base_no_memory(error);
    for (size_t i = 0; s->tried && i < s->n_program; i++)
        s->tried[i] = e->store.programs.data[i].proven;
    if (status == BERYL_OK) status = collect(s, error);
    if (status == BERYL_OK && kind == SELFTEST_EVERY_OP) status = collect_every_op(s, error);
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
#ifndef __wasm__
    every_op_close(s->every);
#endif
    base_heap *heap = &s->e->heap;
    base_arena_fini(&s->blocks.arena);
    base_vec_fini(heap, &s->cases);
    base_heap_give(heap, s->tried, s->n_program * sizeof *s->tried + 1);
    base_text_fini(&s->name);
    base_text_fini(&s->first_failed);
    base_heap_give(heap, s, sizeof *s);
}

void engine_selftest_progress(const engine_selftest *s, uint64_t *done, uint64_t *total) {
    *done = s->n_tried;
    *total = s->cases.count;
    if (!s->brief) return;
    *done = 0;
    *total = s->n_program;
    for (size_t i = 0; i < s->n_program; i++) *done += s->tried[i];
}

/* The next case; of the start-up check the one with the least work among those needed. NOT_FOUND:
 * there are no more; PENDING: not before weights have come. */
static beryl_status next_case(engine_selftest *s) {
    size_t best = SIZE_MAX;
    bool later = false;
    if (s->waits && store_is_uploading(&s->e->store)) return BERYL_PENDING;
    for (size_t i = 0; i < s->cases.count && (s->brief || best == SIZE_MAX); i++) {
        const struct selftest_case *c = &s->cases.data[i];
        if (c->tried || (s->brief && !is_needed(s, &c->desc))) continue;
        if (!trial_is_ready(&c->desc) || (c->later && store_is_uploading(c->desc.store)))
            later = true;
        else if (best == SIZE_MAX || c->work < s->cases.data[best].work) best = i;
    }
    s->at = best;
    s->waits = best == SIZE_MAX && later;
    return best != SIZE_MAX ? BERYL_OK : later ? BERYL_PENDING : BERYL_NOT_FOUND;
}

static void mark_tried(engine_selftest *s, struct selftest_case *c, bool ok) {
    device_program program;
    c->tried = true;
    c->ok = ok;
    s->n_tried++;
    for (uint32_t i = 0; trial_program(&c->desc, i, &program); i++) {
        const size_t at = index_of(s, program);
        if (at < s->n_program) s->tried[at] = true;
    }
}

/* A kernel that does not compile has failed. What has no room for its trial says nothing about a
 * kernel. */
beryl_status engine_selftest_step(engine_selftest *s, trial_result *result, const base_text **name,
                                  beryl_error *error) {
    *name = &s->name;
    beryl_error why = {0};
    beryl_status status = s->running ? BERYL_OK : next_case(s);
    if (status != BERYL_OK) return status == BERYL_NOT_FOUND ? BERYL_OK : status;
    struct selftest_case *c = &s->cases.data[s->at];
    if (!s->running) status = trial_open(s->e, &c->desc, &s->limits, &s->blocks, &s->running, &why);
    if (status == BERYL_OK) status = trial_step(s->running, result, &why);
    if (status == BERYL_PENDING) return status;
    trial_close(s->running);
    s->running = NULL;
    if (status == BERYL_OK && result->made && !result->ok) {
        c->later = true; /* numbers that are drawn may add up to next to nothing */
        return BERYL_PENDING;
    }
    base_text_clear(&s->name);
    trial_name(&c->desc, &s->name);
    c->skipped = s->brief && (status == BERYL_UNSUPPORTED || status == BERYL_NO_DEVICE_MEMORY);
    if (status == BERYL_DEVICE || status == BERYL_UNSUPPORTED || c->skipped) {
        base_log(&s->e->log, BERYL_LOG_WARNING, "%s: %s", s->name.failed ? "" : s->name.data,
                 why.message);
        *result = (trial_result){.ok = c->skipped, .error = !c->skipped};
        status = BERYL_OK;
    }
    if (status == BERYL_OK && s->name.failed) status = base_no_memory(&why);
    if (status != BERYL_OK) {
        if (error) *error = why;
        return status;
    }
    mark_tried(s, c, result->ok);
    if (!result->ok && s->n_failed++ == 0) {
        base_text_add(&s->first_failed, s->name.data, s->name.size);
        s->first_error = result->error;
    }
    return BERYL_EVENT;
}

/* Of several programs of a wrong result those that others show to be right are not to blame, if
 * any is left. */
void engine_selftest_sort(const engine_selftest *s, bool *suspects, size_t n) {
    device_program program;
    memset(suspects, 0, n * sizeof *suspects);
    for (int ok = 1; ok >= 0; ok--) {
        for (size_t i = 0; i < s->cases.count; i++) {
            const struct selftest_case *c = &s->cases.data[i];
            bool blamed = false;
            if (!c->tried || c->skipped || c->ok != ok) continue;
            for (int all = ok; all < 2 && !blamed; all++) {
                for (uint32_t k = 0; trial_program(&c->desc, k, &program); k++) {
                    const size_t at = index_of(s, program);
                    if (at >= s->n_program || at >= n ||
                        (!ok && !all && s->e->store.programs.data[at].proven))
                        continue;
                    s->e->store.programs.data[at].proven = ok;
                    suspects[at] = blamed = !ok;
                }
            }
        }
    }
}

beryl_status engine_selftest_verdict(const engine_selftest *s, beryl_error *error) {
    if (!s->n_failed) return BERYL_OK;
    const device_caps *caps = device_caps_of(s->e->device);
    return base_fail(error, BERYL_DEVICE,
                     "%zu of %zu kernels compute wrong numbers on %s, the first is %s (error "
                     "%.2g): try --device %s, "
                     "and please report it",
                     s->n_failed, s->n_tried, caps->name,
                     s->first_failed.data ? s->first_failed.data : "", s->first_error,
                     device_is_processor(caps) ? "reference" : "software");
}

/* ---- the task -------------------------------------------------------------------------------- */

static beryl_status task_step(beryl_task *task) {
    if (task_is_cancelled(task))
        return base_fail(&task->error, BERYL_CANCELLED, "the self-test was cancelled");
    engine_selftest *s = task->state;
    trial_result result;
    const base_text *name;
    beryl_status status = engine_selftest_step(s, &result, &name, &task->error);
    if (status == BERYL_OK) return engine_selftest_verdict(s, &task->error);
    if (status != BERYL_EVENT) return status;
    const beryl_event event = {.kind = BERYL_EVENT_TEST,
                               .token = -1,
                               .done = s->n_tried,
                               .total = s->cases.count,
                               .ok = result.ok,
                               .value = result.error};
    status = task_put(task, event, name->data, name->size);
    return status == BERYL_OK ? BERYL_EVENT : status;
}

static void task_end(beryl_task *task) {
    engine_selftest_close(task->state);
}

beryl_status beryl_engine_selftest(beryl_engine *engine, beryl_task **task, beryl_error *error) {
    if (task) *task = NULL;
    if (!engine || !task || !engine->loaded || engine->options.vocabulary_only)
        return base_fail(
            error, BERYL_MISUSE,
            "beryl_engine_selftest needs an engine with a loaded model and a place for the task");
    if (!engine->device)
        return base_fail(error, BERYL_UNSUPPORTED,
                         "the reference functions are what kernels are compared with: choose "
                         "another device to test");
    if (!engine_selftest_computes(engine))
        return base_fail(error, BERYL_UNSUPPORTED,
                         "the dummy device computes nothing that could be tested");
    engine_selftest *s;
    beryl_status status = engine_selftest_open(engine, SELFTEST_EVERY_OP, &s, error);
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
