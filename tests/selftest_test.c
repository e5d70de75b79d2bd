/* selftest_test.c - the self-test and the start-up check: good kernels pass, broken ones are
 * found and done without, verdicts are kept; bandwidth. On the software device, also as a GPU,
 * with its kernels; what needs no more than finding on others too. */
#define _POSIX_C_SOURCE 200809L
#include "base/file.h"
#include "engine/every_op.h"
#include "engine/selftest.h"
#include "interpreter.h"
#include "rig.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#define DEFAULT_MODEL "models/default.gguf"

enum { WAITS = 1000 };

typedef struct watch {                              /* of one load */
    int n_checked, n_weights;                       /* progress events */
    void (*each)(struct watch *w, beryl_engine *e); /* after each step; may be NULL */
    size_t n_broken, n_before, n_waited; /* n_waited: steps in which nothing more was tried */
    clock_t waited, stepped; /* processor time of WAITS of them; when the last one ended */
    bool any, breaks;
    struct held *held;
} watch;

static beryl_status finish(beryl_task *task, beryl_engine *engine, watch *w, beryl_error *error) {
    beryl_event event;
    beryl_status status;
    while ((status = beryl_task_step(task, &event)) == BERYL_EVENT || status == BERYL_PENDING) {
        if (status == BERYL_EVENT && event.kind == BERYL_EVENT_PROGRESS && w)
            *(strcmp(event.what, "checking kernels") ? &w->n_weights : &w->n_checked) += 1;
        if (w && w->each) w->each(w, engine);
        if (status == BERYL_PENDING) base_sleep(2e-4);
    }
    if (error && status != BERYL_OK) *error = *beryl_task_error(task);
    beryl_task_close(task);
    return status;
}

/* On options.device, else on the software device; or as a GPU. NULL where there is none, or
 * where the load fails with an expected DEVICE error. */
static beryl_engine *loaded(test *t, beryl_engine_options options, bool as_gpu, watch *w,
                            beryl_error *refused) {
    beryl_engine *engine = NULL;
    beryl_task *task = NULL;
    beryl_error error = {0};
    options.size = sizeof options;
    if (!options.device) options.device = "software";
    if (as_gpu) setenv("BERYL_CAPS", "hard", 1);
    beryl_status status = beryl_engine_open(&options, &engine, &error);
    if (status == BERYL_OK) status = beryl_engine_load(engine, &task, &error);
    if (status == BERYL_OK) status = finish(task, engine, w, &error);
    if (as_gpu) unsetenv("BERYL_CAPS");
    if (status == BERYL_OK) return engine;
    if (status == BERYL_NO_DEVICE) {
        test_skip(t, "no such device");
    } else if (status != BERYL_DEVICE || !refused) {
        test_fail(t, __FILE__, __LINE__, "%s", error.message);
    }
    if (refused) *refused = error;
    beryl_engine_close(engine);
    return NULL;
}

static beryl_engine *on_software(test *t, beryl_engine_options options) {
    options.no_cache = true;
    return loaded(t, options, false, NULL, NULL);
}

typedef struct tally {
    int passed, failed;
} tally;

/* Of the plans alone, which takes less. */
static beryl_status selftest_plans(beryl_engine *engine, tally *n) {
    engine_selftest *s;
    trial_result result;
    const base_text *name;
    beryl_status status = engine_selftest_open(engine, SELFTEST_PLANS, &s, NULL);
    if (status != BERYL_OK) return status;
    while ((status = engine_selftest_step(s, &result, &name, NULL)) == BERYL_EVENT ||
           status == BERYL_PENDING) {
        if (status == BERYL_PENDING) base_sleep(2e-4);
        else *(result.ok ? &n->passed : &n->failed) += 1;
    }
    if (status == BERYL_OK) status = engine_selftest_verdict(s, NULL);
    engine_selftest_close(s);
    return status;
}

static beryl_status selftest(beryl_engine *engine, tally *n) {
    beryl_task *task;
    beryl_event event;
    beryl_status status = beryl_engine_selftest(engine, &task, NULL);
    if (status != BERYL_OK) return status;
    while ((status = beryl_wait(task, &event)) == BERYL_EVENT)
        *(event.ok ? &n->passed : &n->failed) += 1;
    beryl_task_close(task);
    return status;
}

/* The same interface, nothing computed. */
static device_program idle_program(const beryl_engine *e, device_program like) {
    const device_program_item *item = device_pool_at(&e->device->programs, like.id);
    char text[4096];
    int n = 0;
    device_language language = DEVICE_WGSL;
    while (!(device_caps_of(e->device)->languages & DEVICE_LANGUAGE_BIT(language))) language++;
    device_program_desc desc = {.language = language,
                                .entry = "idle",
                                .source = text,
                                .n_binding = item->n_binding,
                                .param_bytes = item->param_bytes,
                                .label = "idle",
                                .workgroup = {1, 1, 1}};
    for (uint32_t i = 0; i < item->n_binding; i++) {
        const bool writes = item->written >> i & 1;
        desc.access[i] = writes ? DEVICE_READ_WRITE : DEVICE_READ;
        n += snprintf(text + n, sizeof text - (size_t)n,
                      "@group(0) @binding(%u) var<storage, %s> b%u: array<u32>;\n", i,
                      writes ? "read_write" : "read", i);
    }
    if (item->param_bytes)
        n += snprintf(
            text + n, sizeof text - (size_t)n,
            "struct P { a: array<vec4<u32>, %u> }\n@group(1) @binding(0) var<uniform> p: P;\n",
            (item->param_bytes + 15) / 16);
    n += snprintf(text + n, sizeof text - (size_t)n, "@compute @workgroup_size(1) fn idle() {\n");
    for (uint32_t i = 0; i < item->n_binding; i++)
        n += snprintf(text + n, sizeof text - (size_t)n, "    _ = b%u[0];\n", i);
    n += snprintf(text + n, sizeof text - (size_t)n, "}\n");
    if (language != DEVICE_WGSL)
        desc.source = rig_text(language, "idle", item->n_binding, item->param_bytes / 4, "");
    desc.source_size = strlen(desc.source);
    device_program out = {0};
    device_program_make(e->device, &desc, &out, NULL);
    return out;
}

/* A program's id stands for another one from now on: what a faulty driver would make of its
 * text. */
static void swap_items(beryl_engine *e, device_program a, device_program b) {
    device_pool *pool = &e->device->programs;
    void *items[2] = {device_pool_at(pool, a.id), device_pool_at(pool, b.id)};
    for (uint32_t i = 0; i < pool->count; i++) {
        void *item = pool->slots[i].item;
        if (item && (item == items[0] || item == items[1]))
            pool->slots[i].item = items[item == items[0]];
    }
}

static beryl_status check_again(beryl_engine *e, size_t program, beryl_error *error) {
    uint64_t done, total;
    beryl_status status;
    e->store.programs.data[program].proven = false;
    e->n_checked = 0;
    while ((status = engine_check_step(e, NULL, &done, &total, error)) == BERYL_EVENT ||
           status == BERYL_PENDING)
        if (status == BERYL_PENDING) base_sleep(2e-4);
    return status;
}

/* The first program that needs subgroups does nothing; `any`: those of the plans made without do
 * nothing either. */
static void break_programs(watch *w, beryl_engine *e) {
    const size_t n = e->store.programs.count;
    for (size_t i = w->n_broken; w->n_weights && i < n; i++) {
        const device_program real = e->store.programs.data[i].id;
        const bool first = !w->n_broken && e->store.programs.data[i].subgroups;
        if (!first && !(w->any && w->n_broken)) continue;
        while (device_program_status(e->device, real, NULL) == BERYL_PENDING) base_sleep(1e-3);
        const device_program idle = idle_program(e, real);
        while (device_program_status(e->device, idle, NULL) == BERYL_PENDING) base_sleep(1e-3);
        swap_items(e, real, idle);
        if (first) break;
    }
    if (w->n_weights) w->n_broken = n;
}

/* What a start would ask of the cache folder, and do. Was a kernel tried? */
static bool restarted(beryl_engine *e, bool no_cache) {
    uint64_t done, total;
    beryl_status status;
    bool tried = false;
    for (size_t i = 0; i < e->store.programs.count; i++) e->store.programs.data[i].proven = false;
    e->n_checked = e->known.count = 0;
    e->options.no_cache = no_cache;
    engine_check_recall(e);
    while ((status = engine_check_step(e, NULL, &done, &total, NULL)) == BERYL_EVENT ||
           status == BERYL_PENDING) {
        if (status == BERYL_PENDING) base_sleep(2e-4);
        tried |= status == BERYL_EVENT;
    }
    return tried;
}

static void count_damaged(void *user, beryl_log_level level, const char *line) {
    if (level == BERYL_LOG_WARNING && strstr(line, "/kernels-") && strstr(line, "is damaged"))
        ++*(int *)user;
}

/* A file whose weights do not come before half of the programs have been tried, and then not for a
 * while in which no more can be. */
typedef struct held {
    beryl_source file;
    bool is_held;
} held;

static beryl_status held_read(void *user, uint64_t offset, void *to, size_t size) {
    const held *h = user;
    return h->is_held ? BERYL_PENDING : h->file.read(h->file.user, offset, to, size);
}

static void hold(watch *w, beryl_engine *e) {
    uint64_t done = 0, total = 1;
    if (w->breaks) break_programs(w, e);
    if (e->check) engine_selftest_progress(e->check, &done, &total);
    const clock_t now = clock();
    if (w->held->is_held && 2 * done > total && e->store.upload_done == 0) {
        if (done > w->n_before) w->n_waited = 0, w->waited = 0;
        w->n_before = done;
        if (++w->n_waited > WAITS) w->waited += now - w->stepped;
    }
    w->stepped = now;
    w->held->is_held =
        w->n_weights && w->n_waited < 2 * WAITS && base_time() - e->load_started < 60;
}

/* Processor time of finding out what there is to try. */
static clock_t collecting(beryl_engine *engine) {
    engine_selftest *s;
    const clock_t begun = clock();
    if (engine_selftest_open(engine, SELFTEST_PLANS, &s, NULL) == BERYL_OK)
        engine_selftest_close(s);
    return clock() - begun;
}

/* `broken`: a program that needs subgroups does nothing. */
static void check_before_weights(test *t, bool broken) {
    held h = {0};
    watch w = {.each = hold, .held = &h, .breaks = broken};
    base_heap heap;
    base_heap_init(&heap, NULL);
    if (base_source_open_file(&heap, DEFAULT_MODEL, &h.file, NULL) != BERYL_OK) abort();
    const beryl_source source = {.size = h.file.size, .user = &h, .read = held_read};
    const beryl_engine_options options = {.source = &source, .context = 256, .no_cache = true};
    beryl_engine *engine = loaded(t, options, true, &w, NULL);
    if (engine) {
        CHECK(t, w.n_before > 20);
        CHECK_INT(t, w.n_waited, 2 * WAITS);
        CHECK(t, w.waited < WAITS / 20 * collecting(engine)); /* a step asks nothing anew */
        CHECK_INT(t, device_caps_of(engine->device)->subgroups, !broken);
        size_t n_proven = 0;
        for (size_t i = 0; i < engine->store.programs.count; i++)
            n_proven += engine->store.programs.data[i].proven;
        CHECK_INT(t, n_proven + broken, engine->store.programs.count);
        CHECK(t, !broken || w.n_checked > 40);       /* the new programs too */
        CHECK_INT(t, restarted(engine, true), true); /* with the true weights */
    }
    beryl_engine_close(engine);
    h.file.close(h.file.user);
}

static int in_scratch(test *t, const char *format) {
    char command[1000];
    snprintf(command, sizeof command, format, test_scratch(t), test_scratch(t), test_scratch(t));
    return system(command);
}

static void check_cases(test *t) {
    if (test_case(t, "selftest/finds-a-kernel-that-does-nothing")) {
        beryl_engine *engine = loaded(
            t, (beryl_engine_options){.model = DEFAULT_MODEL, .context = 1024, .no_cache = true},
            true, NULL, NULL);
        const size_t count = engine ? engine->store.programs.count : 0;
        for (size_t i = 0; i < count; i++) {
            const device_program real = engine->store.programs.data[i].id;
            const device_program_item *item = device_pool_at(&engine->device->programs, real.id);
            /* its first stage only makes the list of candidates short */
            if (!strcmp(item->label, "sample")) continue;
            const device_program idle = idle_program(engine, real);
            CHECK(t, idle.id != 0);
            swap_items(engine, real, idle);
            if (check_again(engine, i, NULL) != BERYL_DEVICE)
                test_fail(t, __FILE__, __LINE__,
                          "program %zu of %zu (%s) did nothing and nobody noticed", i, count,
                          item->label);
            if (i == 0) {
                tally n = {0};
                CHECK_INT(t, selftest_plans(engine, &n), BERYL_DEVICE);
                CHECK(t, n.failed > 0 && n.passed > 0);
            }
            swap_items(engine, real, idle);
            device_program_drop(engine->device, idle);
            CHECK_INT(t, check_again(engine, i, NULL), BERYL_OK);
        }
        /* nothing was compiled for it */
        if (engine) CHECK_INT(t, engine->store.programs.count, count);
        beryl_engine_close(engine);
    }
    static const char *const processors[] = {"software", "opencl", "host"};
    for (size_t i = 0; i < sizeof processors / sizeof *processors; i++) {
        if (!test_case(t, "selftest/finds-a-wrong-kernel-on-%s", processors[i])) continue;
        watch w = {0};
        const beryl_engine_options options = {.model = DEFAULT_MODEL,
                                              .context = 256,
                                              .piece = 1, /* so that plans are few */
                                              .no_cache = true,
                                              .device = processors[i]};
        beryl_error error = {0};
        beryl_engine *engine = loaded(t, options, false, &w, NULL);
        if (!engine) continue;
        CHECK(t, w.n_checked > 10);
        const device_program real = engine->store.programs.data[0].id,
                             idle = idle_program(engine, real);
        while (device_program_status(engine->device, idle, NULL) == BERYL_PENDING) base_sleep(1e-3);
        swap_items(engine, real, idle);
        CHECK_INT(t, check_again(engine, 0, &error), BERYL_DEVICE);
        CHECK(t, strstr(error.message, "wrong numbers") &&
                     strstr(error.message, "--device reference"));
        swap_items(engine, real, idle);
        device_program_drop(engine->device, idle);
        CHECK_INT(t, check_again(engine, 0, NULL), BERYL_OK);
        beryl_engine_close(engine);
    }
    if (test_case(t, "selftest/kernels-are-checked-before-weights-come"))
        check_before_weights(t, false);
    if (test_case(t, "selftest/goes-on-without-what-is-wrong")) check_before_weights(t, true);
    if (test_case(t, "selftest/refuses-a-device-whose-portable-kernels-are-wrong")) {
        watch w = {.each = break_programs, .any = true};
        beryl_error error = {0};
        beryl_engine *engine = loaded(
            t, (beryl_engine_options){.model = DEFAULT_MODEL, .context = 256, .no_cache = true},
            true, &w, &error);
        if (!engine && error.code == BERYL_DEVICE) {
            CHECK(t, strstr(error.message, "llvmpipe") && strstr(error.message, "the first is"));
        } else {
            CHECK_INT(t, engine != NULL, 0);
        }
        beryl_engine_close(engine);
    }
    if (test_case(t, "selftest/verdict-is-kept")) {
        int damaged = 0;
        const beryl_engine_options options = {.model = DEFAULT_MODEL,
                                              .context = 256,
                                              .no_cache = true,
                                              .log = {count_damaged, &damaged}};
        const char *before = getenv("XDG_CACHE_HOME");
        char *kept = before ? strdup(before) : NULL;
        watch w = {0};
        /* before the folder is another: drivers keep programs there too */
        beryl_engine *engine = loaded(t, options, true, &w, NULL);
        setenv("XDG_CACHE_HOME", test_scratch(t), 1);
        if (engine) {
            static const struct {
                const char *change;
                bool no_cache, tried, subgroups;
            } starts[] = {
                {"true", false, true, true},
                {"true", false, false, true}, /* a file is read, that is all */
                /* told not to read */
                {"true", true, true, true},
                /* no key: not believed */
                {"for f in '%s'/beryl/kernels-*.json; do echo '{\"good\":[]}' > \"$f\"; done",
                 false, true, true},
                {"for f in '%s'/beryl/kernels-*.json; do printf '{' > \"$f\"; done", false, true,
                 true},
                /* written anew */
                {"true", false, false, true},
                {"sed -i 's/\"without\":\\[/&\"subgroups\"/' '%s'/beryl/kernels-*.json", false,
                 false, false}};
            CHECK(t, w.n_checked > 20);
            for (size_t i = 0; i < sizeof starts / sizeof *starts; i++) {
                CHECK_INT(t, in_scratch(t, starts[i].change), 0);
                if (restarted(engine, starts[i].no_cache) != starts[i].tried)
                    test_fail(t, __FILE__, __LINE__, "start %zu", i);
                CHECK_INT(t, device_caps_of(engine->device)->subgroups, starts[i].subgroups);
            }
            CHECK_INT(t, damaged, 2); /* each once */
            beryl_engine_close(engine);
        }
        if (kept) setenv("XDG_CACHE_HOME", kept, 1);
        else unsetenv("XDG_CACHE_HOME");
        free(kept);
    }
    if (test_case(t, "selftest/load-can-be-cancelled-while-it-checks")) {
        beryl_engine_options options = {.size = sizeof options,
                                        .model = DEFAULT_MODEL,
                                        .context = 256,
                                        .no_cache = true,
                                        .device = "software"};
        beryl_engine *engine = NULL;
        beryl_task *task = NULL;
        beryl_event event;
        beryl_status status;
        setenv("BERYL_CAPS", "hard", 1);
        if (beryl_engine_open(&options, &engine, NULL) == BERYL_OK &&
            beryl_engine_load(engine, &task, NULL) == BERYL_OK) {
            while ((status = beryl_wait(task, &event)) == BERYL_EVENT &&
                   strcmp(event.what, "checking kernels") != 0) {}
            if (status == BERYL_EVENT) {
                CHECK(t, event.total > event.done);
                beryl_cancel(task);
                CHECK_INT(t, finish(task, engine, NULL, NULL), BERYL_CANCELLED);
            } else {
                if (status == BERYL_NO_DEVICE) test_skip(t, "no software device");
                else test_fail(t, __FILE__, __LINE__, "%s", beryl_task_error(task)->message);
                beryl_task_close(task);
            }
        }
        unsetenv("BERYL_CAPS");
        beryl_engine_close(engine);
    }
}

/* ---- every operation ------------------------------------------------------------------------- */

/* bits; weights by rows: one, few, many */
typedef struct covered {
    uint32_t ops, weights[OP_COUNT][3], caches;
} covered;

static void cover(covered *c, const graph *g, const graph_node *node) {
    c->ops |= 1u << node->op;
    for (uint32_t i = 0; node->op == OP_FUSED && i < node->attr.fused.count; i++)
        cover(c, g, &g->inner.data[node->attr.fused.first + i]);
    if (node->op == OP_LINEAR || node->op == OP_LINEAR_ID || node->op == OP_GATHER_ROWS) {
        const uint32_t n = graph_tensor_at(g, node->out[0])->dim[0].size;
        c->weights[node->op][n == 1    ? 0
                             : n <= 16 ? 1
                                       : 2] |=
            1u << graph_tensor_at(g, node->in[node->op != OP_GATHER_ROWS])->type;
    }
    if (node->op == OP_ATTENTION) c->caches |= 1u << graph_tensor_at(g, node->in[1])->type;
}

static void check_every_op(test *t) {
    base_heap heap;
    device *d = NULL;
    every_op *every = NULL;
    beryl_error error = {0};
    covered c = {0};
    uint32_t packed = 0;
    base_heap_init(&heap, NULL);
    CHECK_INT(t, device_open(&heap, NULL, "dummy", &d, &error), BERYL_OK);
    if (d && every_op_open(&heap, d, true, &every, &error) != BERYL_OK)
        test_fail(t, __FILE__, __LINE__, "%s", error.message);
    for (uint32_t i = 0; every && i < every->g->nodes.count; i++)
        if (!every->g->nodes.data[i].dead) cover(&c, every->g, &every->g->nodes.data[i]);
    graph_pack_layout layout;
    for (int i = 0; i < TYPE_COUNT; i++)
        packed |= (uint32_t)graph_pack_layout_of((base_type)i, 4, 512, &layout) << i;
    for (int i = 0; i < OP_COUNT; i++)
        if (!(c.ops >> i & 1))
            test_fail(t, __FILE__, __LINE__, "no case of %s: add one to src/engine/op_cases.c",
                      graph_op_name((base_op)i));
    for (int k = 0; k < 3; k++) CHECK_INT(t, c.weights[OP_LINEAR][k], packed);
    CHECK_INT(t, c.weights[OP_LINEAR_ID][0], packed);
    CHECK_INT(t, c.weights[OP_GATHER_ROWS][1], packed);
    CHECK_INT(t, c.caches, 1u << TYPE_F32 | 1u << TYPE_F16 | 1u << TYPE_Q8_0);
    every_op_close(every);
    device_close(d);
    CHECK_INT(t, heap.bytes, 0);
}

/* Over the same table: the interpreter, which is the judge of all generators, and every
 * generator where its device is. */
static const struct judged {
    const char *name, *device;
    bool slow; /* the driver takes a minute for what other suites compile too: make test-all */
} judged[] = {
    {"interpreter", NULL, false}, {"software", "webgpu:software", true},
    {"host", "host", true},       {"opencl", "opencl", true},
    {"cuda", "cuda", false},      {"hip", "hip", false},
};

static void check_judged(test *t, const struct judged *on) {
    beryl_engine e = {.options = {.precision = BERYL_PRECISION_EXACT}};
    engine_selftest *s = NULL;
    trial_result found;
    const base_text *name;
    beryl_error error = {0};
    beryl_status status = BERYL_OK;
    uint32_t n = 0;
    base_heap_init(&e.heap, NULL);
    if (on->device) status = device_open(&e.heap, NULL, on->device, &e.device, &error);
    else e.device = interpreter_open(&e.heap);
    if (status == BERYL_NO_DEVICE) test_skip(t, "%s", error.message);
    else CHECK(t, e.device);
    if (e.device && engine_selftest_open(&e, SELFTEST_EVERY_OP, &s, &error) != BERYL_OK)
        test_fail(t, __FILE__, __LINE__, "%s", error.message);
    while (s && ((status = engine_selftest_step(s, &found, &name, &error)) == BERYL_EVENT ||
                 status == BERYL_PENDING)) {
        if (status == BERYL_PENDING) {
            base_sleep(2e-4);
            continue;
        }
        n++;
        if (!found.ok)
            test_fail(t, __FILE__, __LINE__, "%.*s: error %g", (int)name->size, name->data,
                      found.error);
    }
    if (s) CHECK_INT(t, status, BERYL_OK);
    if (e.device) CHECK(t, n > 100);
    engine_selftest_close(s);
    device_close(e.device);
    CHECK_INT(t, e.heap.bytes, 0);
}

/* What adapters add on the way, and products that each join attention's pieces: a step's plans with
 * adapters, on a GPU's kernels. */
static void check_adapters(test *t) {
    static const engine_plan_kind kinds[] = {PLAN_DECODE, PLAN_DECODE_8};
    const beryl_engine_options options = {
        .model = "tests/data/e2b-f32.gguf", .context = 256, .sessions = 8, .no_cache = true};
    const beryl_adapter_options o = {.size = sizeof o, .path = "tests/data/lora/e2b-f32.rs.gguf"};
    beryl_engine *engine = loaded(t, options, true, NULL, NULL);
    beryl_adapter *a = NULL;
    engine_plan *plan;
    tally n = {0};
    if (!engine) return;
    CHECK_INT(t, beryl_adapter_open(engine, &o, &a, NULL), BERYL_OK);
    for (size_t i = 0; a && i < sizeof kinds / sizeof *kinds; i++) {
        const engine_plan_kind kind = (engine_plan_kind)(kinds[i] + PLAN_ADAPTED);
        beryl_status status;
        while ((status = engine_plan_get(engine, kind, &plan, NULL)) == BERYL_PENDING)
            base_sleep(1e-3);
        CHECK_INT(t, status, BERYL_OK);
    }
    CHECK_INT(t, selftest_plans(engine, &n), BERYL_OK);
    CHECK_INT(t, n.failed, 0);
    CHECK(t, n.passed > 20);
    beryl_adapter_close(a);
    beryl_engine_close(engine);
}

void test_selftest(test *t) {
    check_cases(t);
    if (test_case(t, "selftest/has-every-operation-and-type")) check_every_op(t);
    for (size_t i = 0; i < sizeof judged / sizeof *judged; i++)
        if ((!judged[i].slow || getenv("BERYL_TEST_ALL")) &&
            test_case(t, "selftest/every-operation-on-%s", judged[i].name))
            check_judged(t, &judged[i]);
    if (test_case(t, "selftest/passes-on-software")) {
        static const beryl_engine_options kinds[] = {
            {.model = "tests/data/e2b-q4km.gguf", .context = 512},
            {.model = "tests/data/moe-26b.gguf",
             .context = 256,
             .precision = BERYL_PRECISION_EXACT,
             .sessions = 3}};
        for (size_t i = 0; i < sizeof kinds / sizeof *kinds; i++) {
            tally n = {0};
            beryl_engine *engine = on_software(t, kinds[i]);
            if (!engine) break;
            CHECK_INT(t, i ? selftest_plans(engine, &n) : selftest(engine, &n), BERYL_OK);
            CHECK_INT(t, n.failed, 0);
            CHECK(t, n.passed > (i ? 20 : 100));
            beryl_engine_close(engine);
        }
    }
    if (test_case(t, "selftest/tries-the-programs-of-many-sessions")) {
        tally n = {0};
        const beryl_engine_options options = {.model = "tests/data/moe-26b.gguf",
                                              .context = 4096,
                                              .sessions = 5,
                                              .no_cache = true,
                                              .device = "host"};
        beryl_engine *engine = loaded(t, options, false, NULL, NULL);
        if (engine) {
            const uint64_t before = engine->heap.bytes_peak = engine->heap.bytes;
            CHECK_INT(t, selftest_plans(engine, &n), BERYL_OK);
            /* 6.3 MB; rows of two caches that no run reaches would be 5.3 more */
            CHECK(t, engine->heap.bytes_peak - before < 9000000);
            CHECK_INT(t, n.failed, 0);
            CHECK(t, n.passed > 20);
        }
        beryl_engine_close(engine);
    }
    /* whose driver compiles for a minute */
    if (getenv("BERYL_TEST_ALL") && test_case(t, "selftest/plans-with-adapters")) check_adapters(t);
    if (test_case(t, "selftest/can-be-cancelled")) {
        beryl_engine *engine =
            on_software(t, (beryl_engine_options){.model = DEFAULT_MODEL, .context = 256});
        beryl_task *task = NULL;
        if (engine && beryl_engine_selftest(engine, &task, NULL) == BERYL_OK) {
            beryl_event event;
            CHECK_INT(t, beryl_wait(task, &event), BERYL_EVENT);
            CHECK(t, event.kind == BERYL_EVENT_TEST && event.text_size == strlen(event.text));
            beryl_task_step(task, &event); /* in the middle of one */
            beryl_cancel(task);
            CHECK_INT(t, finish(task, engine, NULL, NULL), BERYL_CANCELLED);
        }
        beryl_engine_close(engine);
    }
    if (test_case(t, "selftest/bandwidth-of-software")) {
        beryl_engine *engine =
            on_software(t, (beryl_engine_options){.model = DEFAULT_MODEL, .context = 256});
        beryl_stats before, after;
        if (engine) {
            beryl_engine_stats(engine, &before);
            CHECK_INT(t, beryl_engine_measure(engine, NULL), BERYL_OK);
            beryl_engine_stats(engine, &after);
            CHECK(t, after.bandwidth > 1e7 && after.bandwidth < 1e13);
            CHECK_INT(t,
                      after.device_bytes >= before.device_bytes &&
                          after.device_bytes < before.device_bytes + (1 << 20),
                      1);
        }
        beryl_engine_close(engine);
    }
}
