/* selftest_test.c - the self-test itself: good kernels pass, broken ones are found, verdicts are kept; bandwidth. On the software device. */
#define _POSIX_C_SOURCE 200809L
#include "engine/selftest.h"
#include "test.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define DEFAULT_MODEL "models/default.gguf"

static beryl_status finish(beryl_task *task, beryl_error *error) {
    beryl_event event;
    beryl_status status;
    while ((status = beryl_wait(task, &event)) == BERYL_EVENT) {}
    if (error && status != BERYL_OK) *error = *beryl_task_error(task);
    beryl_task_close(task);
    return status;
}

/* NULL where there is no software device: the case is skipped. */
static beryl_engine *on_software(test *t, beryl_engine_options options) {
    beryl_engine *engine = NULL;
    beryl_task *task = NULL;
    beryl_error error = {0};
    options.size = sizeof options;
    options.device = "software";
    options.no_cache = true;
    beryl_status status = beryl_engine_open(&options, &engine, &error);
    if (status == BERYL_OK) status = beryl_engine_load(engine, &task, &error);
    if (status == BERYL_OK) status = finish(task, &error);
    if (status == BERYL_OK) return engine;
    if (status == BERYL_NO_DEVICE) {
        test_skip(t, "no software device");
    } else {
        test_fail(t, __FILE__, __LINE__, "%s", error.message);
    }
    beryl_engine_close(engine);
    return NULL;
}

typedef struct tally { int passed, failed; } tally;

static beryl_status selftest(beryl_engine *engine, tally *n) {
    beryl_task *task;
    beryl_event event;
    beryl_status status = beryl_engine_selftest(engine, &task, NULL);
    if (status != BERYL_OK) return status;
    while ((status = beryl_wait(task, &event)) == BERYL_EVENT) *(event.ok ? &n->passed : &n->failed) += 1;
    beryl_task_close(task);
    return status;
}

static beryl_status check_cached(beryl_engine *engine, uint64_t *tried) {
    engine_selftest *state = NULL;
    beryl_status status;
    uint64_t done, total;
    *tried = 0;
    while ((status = engine_selftest_cached(engine, &state, NULL)) == BERYL_EVENT || status == BERYL_PENDING) {
        if (status == BERYL_PENDING) base_sleep(2e-4);
        engine_selftest_progress(state, &done, &total);
        *tried = done;
    }
    return status;
}

/* The same interface, nothing computed. */
static device_program idle_program(const beryl_engine *e, device_program like) {
    const device_program_item *item = device_pool_at(&e->device->programs, like.id);
    char text[4096];
    int n = 0;
    device_program_desc desc = {.source = text, .n_binding = item->n_binding, .param_bytes = item->param_bytes, .label = "idle", .workgroup = {1, 1, 1}};
    for (uint32_t i = 0; i < item->n_binding; i++) {
        const bool writes = item->written >> i & 1;
        desc.access[i] = writes ? DEVICE_READ_WRITE : DEVICE_READ;
        n += snprintf(text + n, sizeof text - (size_t)n, "@group(0) @binding(%u) var<storage, %s> b%u: array<u32>;\n", i, writes ? "read_write" : "read", i);
    }
    if (item->param_bytes)
        n += snprintf(text + n, sizeof text - (size_t)n, "struct P { a: array<vec4<u32>, %u> }\n@group(1) @binding(0) var<uniform> p: P;\n",
                      (item->param_bytes + 15) / 16);
    n += snprintf(text + n, sizeof text - (size_t)n, "@compute @workgroup_size(1) fn main() {\n");
    for (uint32_t i = 0; i < item->n_binding; i++) n += snprintf(text + n, sizeof text - (size_t)n, "    _ = b%u[0];\n", i);
    n += snprintf(text + n, sizeof text - (size_t)n, "}\n");
    desc.source_size = (size_t)n;
    device_program out = {0};
    device_program_make(e->device, &desc, &out, NULL);
    return out;
}

void test_selftest(test *t) {
    if (test_case(t, "selftest/passes-on-software")) {
        static const beryl_engine_options kinds[] = {
            {.model = "tests/data/e2b-q4km.gguf", .context = 512},
            {.model = "tests/data/moe-26b.gguf", .context = 256, .precision = BERYL_PRECISION_EXACT, .sessions = 3}};
        for (size_t i = 0; i < sizeof kinds / sizeof *kinds; i++) {
            tally n = {0};
            beryl_engine *engine = on_software(t, kinds[i]);
            if (!engine) break;
            CHECK_INT(t, selftest(engine, &n), BERYL_OK);
            CHECK_INT(t, n.failed, 0);
            CHECK(t, n.passed > 20);
            beryl_engine_close(engine);
        }
    }
    if (test_case(t, "selftest/finds-a-kernel-that-does-nothing")) {
        beryl_engine *engine = on_software(t, (beryl_engine_options){.model = DEFAULT_MODEL, .context = 256});
        const size_t count = engine ? engine->store.programs.count : 0;
        for (size_t i = 0; i < count; i += 1 + count / 5) {
            struct store_program *program = &engine->store.programs.data[i];
            const device_program real = program->id;
            const device_program_item *item = device_pool_at(&engine->device->programs, real.id);
            if (!strcmp(item->label, "sample")) continue; /* its first stage only makes the list of candidates short */
            program->id = idle_program(engine, real);
            CHECK(t, program->id.id != 0);
            uint64_t tried;
            if (check_cached(engine, &tried) != BERYL_DEVICE) test_fail(t, __FILE__, __LINE__, "program %zu of %zu did nothing and nobody noticed", i, count);
            if (i == 0) {
                tally n = {0};
                CHECK_INT(t, selftest(engine, &n), BERYL_DEVICE);
                CHECK(t, n.failed > 0 && n.passed > 0);
            }
            device_program_drop(engine->device, program->id);
            program->id = real;
        }
        beryl_engine_close(engine);
    }
    if (test_case(t, "selftest/verdict-is-kept")) {
        beryl_engine *engine = on_software(t, (beryl_engine_options){.model = DEFAULT_MODEL, .context = 256});
        if (engine) {
            const char *before = getenv("XDG_CACHE_HOME");
            char *kept = before ? strdup(before) : NULL, command[600];
            uint64_t tried;
            setenv("XDG_CACHE_HOME", test_scratch(t), 1);
            CHECK_INT(t, check_cached(engine, &tried), BERYL_OK);
            CHECK(t, tried > 20);
            CHECK_INT(t, check_cached(engine, &tried), BERYL_OK); /* no_cache: tried again */
            CHECK(t, tried > 20);
            engine->options.no_cache = false;
            CHECK_INT(t, check_cached(engine, &tried), BERYL_OK);
            CHECK(t, tried > 20);
            CHECK_INT(t, check_cached(engine, &tried), BERYL_OK);
            CHECK_INT(t, tried, 0);
            snprintf(command, sizeof command, "for f in '%s'/beryl/selftest-*.json; do echo '{\"ok\":true}' > \"$f\"; done", test_scratch(t));
            CHECK_INT(t, system(command), 0);
            CHECK_INT(t, check_cached(engine, &tried), BERYL_OK); /* a file without its key is not believed */
            CHECK(t, tried > 20);
            if (kept) setenv("XDG_CACHE_HOME", kept, 1);
            else unsetenv("XDG_CACHE_HOME");
            free(kept);
            beryl_engine_close(engine);
        }
    }
    if (test_case(t, "selftest/can-be-cancelled")) {
        beryl_engine *engine = on_software(t, (beryl_engine_options){.model = DEFAULT_MODEL, .context = 256});
        beryl_task *task = NULL;
        if (engine && beryl_engine_selftest(engine, &task, NULL) == BERYL_OK) {
            beryl_event event;
            CHECK_INT(t, beryl_wait(task, &event), BERYL_EVENT);
            CHECK(t, event.kind == BERYL_EVENT_TEST && event.text_size == strlen(event.text));
            beryl_task_step(task, &event); /* in the middle of one */
            beryl_cancel(task);
            CHECK_INT(t, finish(task, NULL), BERYL_CANCELLED);
        }
        beryl_engine_close(engine);
    }
    if (test_case(t, "selftest/bandwidth-of-software")) {
        beryl_engine *engine = on_software(t, (beryl_engine_options){.model = DEFAULT_MODEL, .context = 256});
        beryl_stats before, after;
        if (engine) {
            beryl_engine_stats(engine, &before);
            CHECK_INT(t, beryl_engine_measure(engine, NULL), BERYL_OK);
            beryl_engine_stats(engine, &after);
            CHECK(t, after.bandwidth > 1e7 && after.bandwidth < 1e13);
            CHECK_INT(t, after.device_bytes >= before.device_bytes && after.device_bytes < before.device_bytes + (1 << 20), 1);
        }
        beryl_engine_close(engine);
    }
}
