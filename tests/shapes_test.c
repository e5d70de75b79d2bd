/* shapes_test.c - models of the real shapes on the dummy device, without their bytes: how many
 * dispatches a token takes and how many bytes are read for it. */
#define _POSIX_C_SOURCE 200809L
#include "beryl_train.h"
#include "base/file.h"
#include "engine/selftest.h"
#include "gguf_make.h"
#include "model.h"
#include "shape_make.h"
#include "tile/fused.h"

#include <stdio.h>
#include <stdlib.h>

/* Dispatches, at most. */
typedef struct counts {
    uint32_t decode, few, many, piece; /* a step of 1, 8 and 16 sessions, and a piece of a prompt */
} counts;

/* These may only fall, but for what a measurement on a GPU says (`many` of E2B and E4B: one more,
 * since their largest plain product takes 65 us in two dispatches and took 151 in one; of 31B: ten
 * more round what their products of 88 M weights would round in each workgroup). */
static const counts most_of[SHAPE_COUNT] = {{256, 377, 377, 418},
                                            {305, 474, 474, 678},
                                            {256, 393, 393, 1029},
                                            {248, 339, 339, 987},
                                            {368, 489, 489, 1189}};

/* Texts that all of these plans together are made of, and those of the load: products of long and
 * of usual pieces have tiles of their own, those of batches forms that take half the time. They
 * may only fall. */
static const uint32_t programs_most[SHAPE_COUNT] = {152, 146, 102, 118, 93};

/* Of E2B with adapters of rank 16 on q, k, v, o, gate, up and down. They may only fall. */
static const counts adapted_most = {264, 398, 398, 536};

/* ---- what is counted ------------------------------------------------------------------------- */

static void check_shape(test *t, const shape *s, const char *caps) {
    const model_device dummy = {"dummy", "dummy", caps, false};
    shape_file file;
    beryl_source source = shape_make(s, &file);
    beryl_engine_options options = {
        .source = &source, .precision = BERYL_PRECISION_FAST, .context = 4096};
    beryl_engine *engine = model_engine(t, s->name, &dummy, &options);
    beryl_session *session = engine ? model_session(t, engine) : NULL;
    if (session) {
        beryl_stats before, after;
        model_answer a;
        const int32_t prompt[] = {2, 20, 30};
        enum { N = 9 };
        model_generate(t, session, prompt, 3, 2, NULL, &a);
        beryl_engine_stats(engine, &before);
        model_generate(t, session, prompt, 3, N, NULL, &a); /* two tokens of the prompt are there */
        beryl_engine_stats(engine, &after);
        printf("  %s: %u dispatches and %.1f MB a token (vocabulary of %d)\n", s->name,
               (unsigned)after.decode_dispatches, 1e-6 * (double)after.decode_bytes_per_token,
               SHAPE_VOCAB);
        const uint32_t most = most_of[s - shapes].decode;
        if (after.decode_dispatches > most)
            test_fail(t, __FILE__, __LINE__, "%u dispatches a token, %u at most",
                      (unsigned)after.decode_dispatches, (unsigned)most);
        CHECK(t, after.decode_dispatches >
                     5 * s->n_layer / 2); /* and not made by leaving something out */
        CHECK(t,
              after.dispatches - before.dispatches >= (N - 1) * (uint64_t)after.decode_dispatches);
        CHECK(t, after.decode_bytes_per_token < after.weight_bytes);
    }
    beryl_session_close(session);
    beryl_engine_close(engine);
    free(file.head);
}

/* Norms, sums and rounding of many vectors are one dispatch before their product. */
static void check_plans(test *t, const shape *s) {
    const model_device dummy = {"dummy", "dummy", "", false};
    const counts most = most_of[s - shapes];
    const struct {
        engine_plan_kind kind;
        uint32_t most;
    } plans[] = {
        {PLAN_DECODE_8, most.few}, {PLAN_DECODE_ALL, most.many}, {PLAN_PREFILL, most.piece}};
    shape_file file;
    beryl_source source = shape_make(s, &file);
    beryl_engine_options options = {
        .source = &source, .precision = BERYL_PRECISION_FAST, .context = 4096, .sessions = 16};
    beryl_engine *engine = model_engine(t, s->name, &dummy, &options);
    for (size_t i = 0; engine && i < sizeof plans / sizeof *plans; i++) {
        engine_plan *plan;
        graph_exec_info info;
        beryl_error error = {0};
        if (engine_plan_get(engine, plans[i].kind, &plan, &error) != BERYL_OK) {
            test_fail(t, __FILE__, __LINE__, "%s", error.message);
            break;
        }
        graph_exec_describe(plan->exec, &info);
        if (info.dispatches > plans[i].most || info.dispatches < plans[i].most / 2)
            test_fail(t, __FILE__, __LINE__, "plan %d: %u dispatches, %u at most",
                      (int)plans[i].kind, (unsigned)info.dispatches, (unsigned)plans[i].most);
    }
    const size_t programs = engine ? engine->store.programs.count : 0;
    if (programs > programs_most[s - shapes])
        test_fail(t, __FILE__, __LINE__, "%zu programs, %u at most", programs,
                  (unsigned)programs_most[s - shapes]);
    beryl_engine_close(engine);
    free(file.head);
}

/* What was tried of the engine's plans; 0: not all of it came to an end. That the dummy's results
 * are wrong is no matter. */
static uint64_t try_kernels(test *t, beryl_engine *engine) {
    engine_selftest *tries;
    trial_result result;
    const base_text *name;
    beryl_error error = {0};
    beryl_status status = BERYL_PENDING;
    uint64_t done = 0, total = 1;
    if (engine_selftest_open(engine, SELFTEST_BRIEF, &tries, &error) != BERYL_OK) {
        test_fail(t, __FILE__, __LINE__, "%s", error.message);
        return 0;
    }
    for (int again = 0; again < 200 && (status == BERYL_EVENT || status == BERYL_PENDING); again++)
        status = engine_selftest_step(tries, &result, &name, &error);
    engine_selftest_progress(tries, &done, &total);
    engine_selftest_close(tries);
    return status == BERYL_OK && done == total ? total : 0;
}

/* The caller frees. */
static uint8_t *adapter_make(const beryl_engine *e, size_t *size) {
    enum { RANK = 16 };
    gguf_make m = {0};
    gguf_make_string(&m, "general.architecture", "gemma4");
    gguf_make_string(&m, "general.type", "adapter");
    gguf_make_string(&m, "adapter.type", "lora");
    gguf_make_f32(&m, "adapter.lora.alpha", RANK);
    for (uint32_t l = 0; l < e->model.config.n_layer; l++) {
        const gemma4_layer *layer = &e->model.layers[l];
        const uint32_t of[] = {layer->attn_q,   layer->attn_k, layer->attn_v,  layer->attn_output,
                               layer->ffn_gate, layer->ffn_up, layer->ffn_down};
        for (size_t i = 0; i < sizeof of / sizeof *of; i++) {
            if (of[i] == GEMMA4_NONE) continue;
            const store_tensor *w = &e->store.tensors.data[of[i]];
            for (uint32_t half = 0; half < 2; half++) {
                const uint64_t ne[] = {half ? RANK : w->dim[1], half ? w->dim[0] : RANK};
                const size_t bytes = (size_t)(ne[0] * ne[1] * 2);
                char name[100];
                void *zeros = calloc(1, bytes);
                if (!zeros) abort();
                snprintf(name, sizeof name, "%.80s.lora_%c", w->name, half ? 'b' : 'a');
                gguf_make_tensor(&m, name, 1, 2, ne, zeros, bytes);
                free(zeros);
            }
        }
    }
    return gguf_make_take(&m, size);
}

/* Products that make parts of an adapter's factors for those behind them. */
static uint32_t parts_in(const engine_plan *plan) {
    const graph *g = plan->text.g;
    uint32_t n = 0;
    for (size_t i = 0; i < g->nodes.count; i++) {
        const graph_node *node = &g->nodes.data[i];
        if (!node->dead && node->op == OP_FUSED && node->attr.fused.kind == FUSED_MATVEC)
            n += ((const fused_matvec *)node->attr.fused.detail)->parts_of != 0;
    }
    return n;
}

static void check_adapted(test *t, const shape *s) {
    const model_device dummy = {"dummy", "dummy", "", false};
    const struct {
        engine_plan_kind kind;
        uint32_t most;
    } plans[] = {{PLAN_DECODE, adapted_most.decode},
                 {PLAN_DECODE_8, adapted_most.few},
                 {PLAN_DECODE_ALL, adapted_most.many},
                 {PLAN_PREFILL, adapted_most.piece}};
    shape_file file;
    beryl_source source = shape_make(s, &file);
    beryl_engine_options options = {
        .source = &source, .precision = BERYL_PRECISION_FAST, .context = 1024, .sessions = 16};
    beryl_engine *engine = model_engine(t, s->name, &dummy, &options);
    beryl_adapter *a = NULL;
    beryl_error error = {0};
    size_t size = 0;
    uint8_t *data = engine ? adapter_make(engine, &size) : NULL;
    const beryl_adapter_options o = {.size = sizeof o, .data = data, .data_size = size};
    if (data && beryl_adapter_open(engine, &o, &a, &error))
        test_fail(t, __FILE__, __LINE__, "%s", error.message);
    for (size_t i = 0; a && i < sizeof plans / sizeof *plans; i++) {
        engine_plan *plan;
        graph_exec_info info;
        if (engine_plan_get(engine, plans[i].kind + PLAN_ADAPTED, &plan, &error) != BERYL_OK) {
            test_fail(t, __FILE__, __LINE__, "%s", error.message);
            break;
        }
        graph_exec_describe(plan->exec, &info);
        printf("  %s with adapters, plan %d: %u dispatches, %u with parts\n", s->name,
               (int)plans[i].kind, (unsigned)info.dispatches, (unsigned)parts_in(plan));
        if (info.dispatches > plans[i].most)
            test_fail(t, __FILE__, __LINE__, "plan %d: %u dispatches, %u at most",
                      (int)plans[i].kind, (unsigned)info.dispatches, (unsigned)plans[i].most);
        if (plans[i].kind == PLAN_DECODE) CHECK_INT(t, parts_in(plan), s->n_layer);
    }
    if (a) CHECK(t, try_kernels(t, engine) > 20);
    beryl_adapter_close(a);
    beryl_engine_close(engine);
    free(data);
    free(file.head);
}

/* A row of tokens as long as what is trained at a time. */
static bool write_row(const char *path, uint32_t n) {
    base_heap heap;
    base_text text;
    base_heap_init(&heap, NULL);
    base_text_init(&text, &heap);
    for (uint32_t i = 0; i < n; i++)
        base_text_print(&text, "%s%u", i ? ", " : "{\"tokens\": [", 300 + i % 700);
    base_text_print(&text, "], \"mask\": [0");
    for (uint32_t i = 1; i < n; i++) base_text_print(&text, ", 1");
    base_text_print(&text, "]}\n");
    const bool good = base_file_write(path, text.data, text.size, NULL) == BERYL_OK;
    base_text_fini(&text);
    return good;
}

/* Kept layers of 2,048 tokens take gigabytes; recomputed ones a sixth of that at most. */
static void check_training(test *t, const shape *s) {
    const model_device dummy = {"dummy", "dummy", "", false};
    char path[600];
    snprintf(path, sizeof path, "%s/row.jsonl", test_scratch(t));
    CHECK(t, write_row(path, 2048));
    shape_file file;
    beryl_source source = shape_make(s, &file);
    beryl_engine_options options = {
        .source = &source, .precision = BERYL_PRECISION_FAST, .context = 2048};
    beryl_engine *engine = model_engine(t, s->name, &dummy, &options);
    beryl_train *train = NULL;
    beryl_error error = {0};
    const beryl_train_options how = {.size = sizeof how, .data = path, .recompute = "always"};
    if (engine && beryl_train_open(engine, &how, &train, &error))
        test_fail(t, __FILE__, __LINE__, "%s", error.message);
    const beryl_train_report r = beryl_train_report_of(train);
    printf(
        "  %s, %u tokens, rank 16: intermediates of %.0f MB kept, %.0f recomputed; %.0f in all\n",
        s->name, (unsigned)r.tokens, 1e-6 * (double)r.kept_bytes, 1e-6 * (double)r.recomputed_bytes,
        1e-6 * (double)r.bytes);
    CHECK(t, r.recomputes && r.recomputed_bytes < r.kept_bytes / 6);
    beryl_train_close(train);
    beryl_engine_close(engine);
    free(file.head);
}

/* A trial has a layer's largest weights, whole where the next product wants all results of one.
 * The heap has a window of them at a time, as the file has them or drawn. */
static void check_trials(test *t, const shape *s) {
    static const uint64_t most = 8 << 20;
    const model_device dummy = {"dummy", "dummy", "", false};
    shape_file file;
    beryl_source source = shape_make(s, &file);
    beryl_engine_options options = {
        .source = &source, .precision = BERYL_PRECISION_FAST, .context = 4096};
    beryl_engine *engine = model_engine(t, s->name, &dummy, &options);
    for (int drawn = 0; engine && drawn < 2; drawn++) {
        for (size_t i = 0; i < engine->store.programs.count; i++)
            engine->store.programs.data[i].proven = false;
        if (drawn) store_upload_again(&engine->store, 0);
        const uint64_t before = engine->heap.bytes_peak = engine->heap.bytes;
        /* what is drawn is found wrong and left for true weights, which do not come */
        const uint64_t tried = try_kernels(t, engine);
        CHECK(t, drawn || tried > 20);
        const uint64_t took = engine->heap.bytes_peak - before;
        printf("  %s: trials of %s weights took %.1f MB\n", s->name, drawn ? "drawn" : "true",
               1e-6 * (double)took);
        if (took > most)
            test_fail(t, __FILE__, __LINE__, "%.1f MB, %.1f at most", 1e-6 * (double)took,
                      1e-6 * (double)most);
    }
    beryl_engine_close(engine);
    free(file.head);
}

void test_shapes(test *t) {
    for (size_t i = 0; i < SHAPE_COUNT; i++) {
        if (test_case(t, "shapes/dispatches-of-%s", shapes[i].name)) check_shape(t, &shapes[i], "");
        /* browsers offer ten storage buffers on some GPUs */
        if (test_case(t, "shapes/dispatches-with-few-buffers-of-%s", shapes[i].name))
            check_shape(t, &shapes[i], "few-buffers");
        if (test_case(t, "shapes/dispatches-together-of-%s", shapes[i].name))
            check_plans(t, &shapes[i]);
        if (i == 0 && test_case(t, "shapes/dispatches-with-adapters-of-%s", shapes[i].name))
            check_adapted(t, &shapes[i]);
        if (i == 0 && test_case(t, "shapes/memory-of-trials-of-%s", shapes[i].name))
            check_trials(t, &shapes[i]);
        if (i == 0 && test_case(t, "shapes/training-memory-of-%s", shapes[i].name))
            check_training(t, &shapes[i]);
    }
}
