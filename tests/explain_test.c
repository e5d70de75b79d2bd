/* explain_test.c - a model's plan as text: every stage of every plan, on devices that take
 * different languages; one kernel; a trace of a few runs. */
#define _POSIX_C_SOURCE 200809L
#include "base/json.h"
#include "base/memory.h"
#include "engine/out.h"
#include "graph/text.h"
#include "model.h"

#include <stdlib.h>
#include <string.h>

#define DEFAULT_MODEL "models/default.gguf"

static void keep(void *user, const char *text, size_t size) {
    base_text_add(user, text, size);
}

/* The host compiles a model's kernels for long: they are kept. */
static beryl_engine *loaded(test *t, const char *name) {
    const beryl_engine_options options = {.size = sizeof options,
                                          .model = DEFAULT_MODEL,
                                          .device = name,
                                          .no_cache = true,
                                          .context = 256};
    return strcmp(name, "host") ? model_load(t, &options)
                                : model_engine(t, "default", &model_devices[MODEL_HOST], &options);
}

static uint32_t lines(const base_text *text) {
    uint32_t n = 0;
    for (size_t i = 0; i < text->size; i++) n += text->data[i] == '\n';
    return n;
}

static bool has(const base_text *text, const char *part) {
    return text->data && strstr(text->data, part);
}

/* Each stage of each plan up to `last`; the first lines of the decode plan's. */
static void check_stages(test *t, beryl_engine *engine, const char *code, int last) {
    base_heap heap;
    base_text text;
    beryl_error error = {0};
    base_heap_init(&heap, NULL);
    base_text_init(&text, &heap);
    for (int plan = 0; plan <= last; plan++)
        for (int stage = 0; stage <= BERYL_STAGE_CODE; stage++) {
            const beryl_explain_options options = {
                .size = sizeof options, .stage = (beryl_stage)stage, .plan = (beryl_plan)plan};
            base_text_clear(&text);
            if (beryl_engine_explain(engine, &options, keep, &text, &error) != BERYL_OK)
                test_fail(t, __FILE__, __LINE__, "%s", error.message);
            CHECK(t, lines(&text) > 20);
            if (stage == BERYL_STAGE_GRAPH)
                CHECK(t, (has(&text, "attention") || plan == BERYL_PLAN_SOUND) &&
                             has(&text, "blk.0.ffn_down.weight"));
            if (stage == BERYL_STAGE_PLAN)
                CHECK(t, has(&text, "grid") && has(&text, "dispatches") &&
                             has(&text, "intermediates: "));
            if (stage == BERYL_STAGE_IR)
                CHECK(t, has(&text, "after the passes:") || plan != BERYL_PLAN_DECODE);
            if (stage == BERYL_STAGE_CODE) CHECK(t, has(&text, code));
        }
    base_text_clear(&text);
    beryl_explain_options one = {
        .size = sizeof one, .stage = BERYL_STAGE_PLAN, .one = true, .op = 3};
    CHECK_INT(t, beryl_engine_explain(engine, &one, keep, &text, &error), BERYL_OK);
    CHECK_INT(t, lines(&text), 1);
    one.op = 100000;
    CHECK_INT(t, beryl_engine_explain(engine, &one, keep, &text, &error), BERYL_NOT_FOUND);
    one.stage = (beryl_stage)9;
    CHECK_INT(t, beryl_engine_explain(engine, &one, keep, &text, &error), BERYL_MISUSE);
    base_text_fini(&text);
}

static void check_kernel(test *t) {
    static const char good[] =
        "kernel \"twice\" workgroup 1 1 1\n  buffer 0 read f32 \"x\"\n  buffer 1 read_write f32 "
        "\"y\"\n  %0 = group u32 x\n"
        "  %1 = load f32 buffer 0 %0\n  %2 = add f32 %1 %1\n  store buffer 1 %0 %2\n";
    base_heap heap;
    base_text text;
    beryl_error error = {0};
    base_heap_init(&heap, NULL);
    base_text_init(&text, &heap);
    beryl_explain_options options = {
        .size = sizeof options, .stage = BERYL_STAGE_IR, .device = "dummy"};
    CHECK_INT(t, beryl_text_explain(good, sizeof good - 1, &options, keep, &text, &error),
              BERYL_OK);
    CHECK(t,
          has(&text, "before the passes:\nkernel \"twice\"") && has(&text, "after the passes:\n"));
    options.stage = BERYL_STAGE_CODE;
    CHECK_INT(t, beryl_text_explain(good, sizeof good - 1, &options, keep, &text, &error),
              BERYL_OK);
    CHECK(t, has(&text, "WGSL:\n"));
    options.stage = BERYL_STAGE_PLAN;
    CHECK_INT(t, beryl_text_explain(good, sizeof good - 1, &options, keep, &text, &error),
              BERYL_UNSUPPORTED);
    options.stage = BERYL_STAGE_IR;
    for (size_t n = 0; n + 2 < sizeof good; n += 7) { /* cut off anywhere: a status, never more */
        const beryl_status status = beryl_text_explain(good, n, &options, keep, &text, &error);
        CHECK(t, status == BERYL_OK || status == BERYL_BAD_INPUT);
    }
    options.device = "reference";
    CHECK_INT(t, beryl_text_explain(good, sizeof good - 1, &options, keep, &text, &error),
              BERYL_UNSUPPORTED);
    base_text_fini(&text);
}

/* What is explained is what beryl_graph.h makes of the same graph. */
static void check_graph(test *t) {
    static const char graph_text[] = "%1 = input F32 [4 256] \"x\"\n%2 = add %1 %1\n%3 = scale %2 "
                                     "0x1p-1\n%4 = softmax %3\noutput %4 \"y\"\n";
    const beryl_explain_options options = {
        .size = sizeof options, .stage = BERYL_STAGE_PLAN, .device = "dummy"};
    const graph_exec_options with = engine_graph_options(BERYL_PRECISION_FAST);
    beryl_error error = {0};
    base_heap heap;
    base_text text;
    device *d = NULL;
    graph_exec *exec = NULL;
    graph_store store;
    graph_exec_info info = {0};
    uint64_t bytes = 0;
    base_heap_init(&heap, NULL);
    base_text_init(&text, &heap);
    CHECK_INT(t,
              beryl_text_explain(graph_text, sizeof graph_text - 1, &options, keep, &text, &error),
              BERYL_OK);
    CHECK_INT(t, engine_device_open(&heap, NULL, "dummy", &d, &error), BERYL_OK);
    graph *g = graph_open(&heap);
    CHECK_INT(t, store_init(&store, &heap, d, NULL, 0, &error), BERYL_OK);
    CHECK_INT(t, graph_text_parse(graph_text, sizeof graph_text - 1, g, &store, &bytes, &error),
              BERYL_OK);
    CHECK_INT(t, graph_exec_open(g, &store, &with, &exec, &error), BERYL_OK);
    if (exec) graph_exec_describe(exec, &info);
    CHECK_INT(t, info.dispatches, 1);
    CHECK(t, has(&text, "\n1 dispatch"));
    graph_exec_close(exec);
    graph_close(g);
    store_fini(&store);
    device_close(d);
    base_text_fini(&text);
}

static beryl_status traced(beryl_engine *engine, const beryl_trace_options *options,
                           base_text *text, beryl_error *error) {
    beryl_task *task = NULL;
    const beryl_status status = beryl_engine_trace(engine, options, keep, text, &task, error);
    return status == BERYL_OK ? model_finish(task, error, NULL) : status;
}

/* Of an event; -1: not there. */
static double number(const base_json *event, const char *key) {
    const base_json *value = base_json_find(event, key);
    return value && value->kind == JSON_NUMBER ? value->number : -1;
}

static bool is(const base_json *event, const char *key, const char *text) {
    const base_json *value = base_json_find(event, key);
    return value && value->kind == JSON_STRING && base_view_equal(value->text, base_view_of(text));
}

static void check_trace(test *t, beryl_engine *engine, beryl_plan plan) {
    base_heap heap;
    base_arena arena;
    base_text text;
    base_json *root = NULL;
    beryl_error error = {0};
    beryl_stats stats;
    const beryl_trace_options options = {.size = sizeof options, .plan = plan, .steps = 2};
    base_heap_init(&heap, NULL);
    base_arena_init(&arena, &heap);
    base_text_init(&text, &heap);
    beryl_engine_stats(engine, &stats);
    if (traced(engine, &options, &text, &error) != BERYL_OK)
        test_fail(t, __FILE__, __LINE__, "%s", error.message);
    CHECK_INT(t, base_json_parse(&arena, text.data ? text.data : "", text.size, &root, &error),
              BERYL_OK);
    const base_json *events = root ? base_json_find(root, "traceEvents") : NULL;
    CHECK(t, events && events->kind == JSON_ARRAY);
    uint32_t n_run = 0, n_dispatch = 0, n_meta = 0, n_busy = 0;
    double end = 0;
    for (const base_json *e = events ? events->child : NULL; e; e = e->next) {
        n_meta += is(e, "ph", "M");
        if (is(e, "ph", "M")) continue;
        CHECK(t, is(e, "ph", "X") && number(e, "ts") >= 0 && number(e, "dur") >= 0 &&
                     number(e, "pid") > 0 && base_json_find(e, "name"));
        if (is(e, "cat", "run")) n_run++;
        if (!is(e, "cat", "dispatch")) continue;
        /* one after another, but for the rounding of two numbers */
        CHECK(t, number(e, "ts") >= end - 0.002);
        end = number(e, "ts") + number(e, "dur");
        n_busy += number(e, "dur") > 0;
        n_dispatch++;
    }
    CHECK_INT(t, n_meta, 3);
    CHECK_INT(t, n_run, 2);
    CHECK(t, n_dispatch > 20 && n_dispatch % 2 == 0 && n_busy > n_dispatch / 2);
    if (plan == BERYL_PLAN_DECODE) CHECK_INT(t, n_dispatch, 2 * stats.decode_dispatches);
    base_text_fini(&text);
    base_arena_fini(&arena);
}

static void check_trace_refused(test *t) {
    base_heap heap;
    base_text text;
    beryl_error error = {0};
    base_heap_init(&heap, NULL);
    base_text_init(&text, &heap);
    beryl_trace_options options = {.size = sizeof options};
    static const char *const devices[] = {"dummy", "reference"};
    for (int i = 0; i < 2; i++) {
        beryl_engine *engine = loaded(t, devices[i]);
        CHECK_INT(t, traced(engine, &options, &text, &error), BERYL_UNSUPPORTED);
        beryl_engine_close(engine);
    }
    beryl_engine *engine = loaded(t, "host");
    if (engine) {
        options.depth = 100000;
        CHECK_INT(t, traced(engine, &options, &text, &error), BERYL_BAD_INPUT);
        options = (beryl_trace_options){.size = sizeof options, .steps = 100000};
        CHECK_INT(t, traced(engine, &options, &text, &error), BERYL_BAD_INPUT);
        options = (beryl_trace_options){.size = 1};
        CHECK_INT(t, traced(engine, &options, &text, &error), BERYL_MISUSE);
        beryl_session *session = NULL;
        options = (beryl_trace_options){.size = sizeof options};
        CHECK_INT(t, beryl_session_open(engine, NULL, &session, NULL), BERYL_OK);
        CHECK_INT(t, traced(engine, &options, &text, &error), BERYL_MISUSE);
        beryl_session_close(session);
        beryl_task *task = NULL;
        CHECK_INT(t, beryl_engine_trace(engine, &options, keep, &text, &task, &error), BERYL_OK);
        beryl_cancel(task);
        CHECK_INT(t, beryl_wait(task, NULL), BERYL_CANCELLED);
        beryl_task_close(task);
    }
    CHECK_INT(t, text.size, 0);
    beryl_engine_close(engine);
    base_text_fini(&text);
}

void test_explain(test *t) {
    static const struct {
        const char *device, *code;
    } devices[] = {{"dummy", "WGSL:\n"}, {"host", "\nC:\n"}, {"software", "WGSL:\n"}};
    for (size_t i = 0; i < sizeof devices / sizeof *devices; i++) {
        if (!test_case(t, "explain/stages-on-%s", devices[i].device)) continue;
        beryl_engine *engine = loaded(t, devices[i].device);
        /* towers on the first alone: others compile them */
        if (engine)
            check_stages(t, engine, devices[i].code, i ? BERYL_PLAN_BATCH : BERYL_PLAN_SOUND);
        beryl_engine_close(engine);
    }
    if (test_case(t, "explain/reference-has-a-graph-alone")) {
        beryl_engine *engine = loaded(t, "reference");
        base_heap heap;
        base_text text;
        base_heap_init(&heap, NULL);
        base_text_init(&text, &heap);
        beryl_explain_options options = {.size = sizeof options};
        CHECK_INT(t, beryl_engine_explain(engine, &options, keep, &text, NULL), BERYL_OK);
        CHECK(t, lines(&text) > 100);
        options.stage = BERYL_STAGE_PLAN;
        CHECK_INT(t, beryl_engine_explain(engine, &options, keep, &text, NULL), BERYL_UNSUPPORTED);
        base_text_fini(&text);
        beryl_engine_close(engine);
    }
    if (test_case(t, "explain/kernel")) check_kernel(t);
    if (test_case(t, "explain/graph")) check_graph(t);
    for (size_t i = 1; i < sizeof devices / sizeof *devices; i++) {
        if (!test_case(t, "explain/trace-on-%s", devices[i].device)) continue;
        setenv("BERYL_TEST_OPTIMISED", "1", 1); /* runs of whole plans */
        beryl_engine *engine = loaded(t, devices[i].device);
        if (engine) check_trace(t, engine, BERYL_PLAN_DECODE);
        for (int plan = BERYL_PLAN_PREFILL; engine && i == 1 && plan <= BERYL_PLAN_PICTURE; plan++)
            if (plan != BERYL_PLAN_OUTPUT && plan != BERYL_PLAN_BATCH)
                check_trace(t, engine, (beryl_plan)plan);
        beryl_engine_close(engine);
        unsetenv("BERYL_TEST_OPTIMISED");
    }
    if (test_case(t, "explain/trace-refused")) check_trace_refused(t);
}
