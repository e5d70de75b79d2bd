/* train_out_test.c - a training without files: data, order and first adapter from memory, adapters
 * to sinks; and sessions that have what is trained while it is. */
#define _POSIX_C_SOURCE 200809L
#include "base/file.h"
#include "beryl_train.h"
#include "model.h"

#include <math.h>
#include <stdio.h>
#include <string.h>

enum { VOCAB = 400, SAVED_MAX = 1 << 19 };

typedef struct saved { /* what a sink was given */
    char *data;        // [SAVED_MAX]
    size_t size;
    int n_closed;
    bool whole;
} saved;

static beryl_status saved_write(void *user, const void *data, size_t size) {
    saved *s = user;
    if (size > SAVED_MAX - s->size) return BERYL_IO;
    memcpy(s->data + s->size, data, size);
    s->size += size;
    return BERYL_OK;
}

static beryl_status saved_close(void *user, bool whole) {
    saved *s = user;
    s->n_closed++;
    s->whole = whole;
    return BERYL_OK;
}

static beryl_sink sink_of(saved *s) {
    return (beryl_sink){s, saved_write, saved_close};
}

typedef struct bench { /* an engine and what its training is made of */
    test *t;
    base_heap heap;
    beryl_engine *engine;
    beryl_adapter *initial;
    char *text[4]; // [size[i] + 1]: data, validation, tensors and configuration of the adapter
    size_t size[4];
    beryl_train *train;
    saved file, config;
} bench;

static void must(bench *b, beryl_status status, const beryl_error *error) {
    if (status) test_fail(b->t, __FILE__, __LINE__, "%s", error->message);
}

static bool bench_open(bench *b, test *t, int where) {
    static const char *const names[] = {"train.jsonl", "valid.jsonl",
                                        "initial/adapter_model.safetensors",
                                        "initial/adapter_config.json"};
    beryl_error error = {0};
    *b = (bench){.t = t};
    base_heap_init(&b->heap, NULL);
    for (int i = 0; i < 4; i++) {
        char name[100];
        snprintf(name, sizeof name, "lora/train-e2b-f32/%s", names[i]);
        must(
            b,
            base_file_read(&b->heap, test_data(t, name), 1 << 20, &b->text[i], &b->size[i], &error),
            &error);
    }
    b->file.data = base_heap_take(&b->heap, SAVED_MAX);
    b->config.data = base_heap_take(&b->heap, SAVED_MAX);
    const beryl_engine_options exact = {.precision = BERYL_PRECISION_EXACT, .sessions = 2};
    b->engine = model_engine(t, "e2b-f32.gguf", &model_devices[where], &exact);
    const beryl_adapter_options adapter = {.size = sizeof adapter,
                                           .data = b->text[2],
                                           .data_size = b->size[2],
                                           .config = b->text[3],
                                           .config_size = b->size[3]};
    if (b->engine && !test_failed(t))
        must(b, beryl_adapter_open(b->engine, &adapter, &b->initial, &error), &error);
    return b->engine && !test_failed(t);
}

static void bench_close(bench *b) {
    beryl_train_close(b->train);
    beryl_engine_close(b->engine);
    base_heap_give(&b->heap, b->file.data, SAVED_MAX);
    base_heap_give(&b->heap, b->config.data, SAVED_MAX);
    for (int i = 0; i < 4; i++) base_heap_give(&b->heap, b->text[i], b->size[i] + 1);
    CHECK_INT(b->t, b->heap.bytes, 0);
}

static void train_open(bench *b, bool live) {
    static const char order[] = "[[14,13,12,11,10,9,8,7,6,5,4,3,2,1,0]]";
    beryl_error error = {0};
    const beryl_train_options o = {.size = sizeof o,
                                   .data_text = b->text[0],
                                   .data_size = b->size[0],
                                   .valid_text = b->text[1],
                                   .valid_size = b->size[1],
                                   .order_text = order,
                                   .order_size = sizeof order - 1,
                                   .from = b->initial,
                                   .schedule = "constant",
                                   .rate = 1e-2,
                                   .live = live};
    must(b, beryl_train_open(b->engine, &o, &b->train, &error), &error);
}

static void finish(bench *b, beryl_status status, beryl_task *task, beryl_error *error) {
    if (status == BERYL_OK) status = model_finish(task, error, NULL);
    must(b, status, error);
}

static void step(bench *b) {
    beryl_task *task = NULL;
    beryl_error error = {0};
    const beryl_status status = beryl_train_step(b->train, &task, &error);
    finish(b, status, task, &error);
}

static void save(bench *b, const char *form) {
    beryl_task *task = NULL;
    beryl_error error = {0};
    b->file.size = b->config.size = 0;
    b->file.n_closed = b->config.n_closed = 0;
    const bool peft = !strcmp(form, "peft");
    const beryl_sink file = sink_of(&b->file), config = sink_of(&b->config);
    const beryl_status status =
        beryl_train_save_to(b->train, form, &file, peft ? &config : NULL, &task, &error);
    finish(b, status, task, &error);
    CHECK_INT(b->t, b->file.n_closed, 1);
    CHECK_INT(b->t, b->config.n_closed, peft);
    CHECK(b->t, b->file.whole);
}

/* The sink was given what lies in the file. */
static void check_file(bench *b, const saved *s, const char *path) {
    char *data = NULL;
    size_t size = 0;
    beryl_error error = {0};
    must(b, base_file_read(&b->heap, path, SAVED_MAX, &data, &size, &error), &error);
    CHECK_INT(b->t, size, s->size);
    CHECK(b->t, data && size == s->size && !memcmp(data, s->data, size));
    base_heap_give(&b->heap, data, size + 1);
}

static void check_saved(test *t) {
    bench b;
    char path[600], inner[700];
    beryl_error error = {0};
    if (bench_open(&b, t, MODEL_REFERENCE)) {
        train_open(&b, false);
        CHECK(t, !beryl_train_adapter(b.train));
        CHECK_INT(t, beryl_train_report_of(b.train).rows, 15);
        step(&b);
        for (int i = 0; i < 3 && !test_failed(t); i++) {
            static const char *const forms[] = {"peft", "gguf", "rullama"};
            snprintf(path, sizeof path, "%s/saved.%s", test_scratch(t), forms[i]);
            save(&b, forms[i]);
            must(&b, beryl_train_save(b.train, path, forms[i], &error), &error);
            snprintf(inner, sizeof inner, "%s%s", path, i ? "" : "/adapter_model.safetensors");
            check_file(&b, &b.file, inner);
            snprintf(inner, sizeof inner, "%s/adapter_config.json", path);
            if (!i) check_file(&b, &b.config, inner);
        }
        /* sinks that are left are closed, once */
        beryl_task *task = NULL;
        const beryl_sink file = sink_of(&b.file), config = sink_of(&b.config);
        b.file.n_closed = b.config.n_closed = 0;
        CHECK_INT(t, beryl_train_save_to(b.train, "gguf", &file, &config, &task, NULL),
                  BERYL_MISUSE);
        CHECK_INT(t, b.file.n_closed + b.config.n_closed, 2);
        CHECK_INT(t, beryl_train_save_to(b.train, NULL, &file, &config, &task, NULL), BERYL_OK);
        beryl_cancel(task);
        CHECK_INT(t, model_finish(task, NULL, NULL), BERYL_CANCELLED);
        CHECK_INT(t, b.file.n_closed + b.config.n_closed, 4);
        CHECK(t, !b.file.whole && !b.config.whole);
    }
    bench_close(&b);
}

static void take(bench *b, beryl_session *s, beryl_adapter *adapter) {
    beryl_error error = {0};
    must(b, beryl_session_adapters(s, &adapter, NULL, adapter ? 1 : 0, &error), &error);
}

static void show(bench *b) {
    beryl_task *task = NULL;
    beryl_error error = {0};
    const beryl_status status = beryl_train_show(b->train, &task, &error);
    finish(b, status, task, &error);
}

/* What a session says under the training's adapter is what one says under the file of it. */
static void check_live(test *t, int where) {
    static const int32_t tokens[] = {2, 302, 306, 280, 303, 299, 315, 286};
    enum { N = sizeof tokens / sizeof *tokens };
    static float plain[N * VOCAB], now[N * VOCAB], filed[N * VOCAB];
    bench b;
    beryl_error error = {0};
    if (bench_open(&b, t, where)) {
        beryl_session *s = model_session(t, b.engine), *other = model_session(t, b.engine);
        model_logits(t, s, tokens, N, 0, 0, plain, VOCAB);
        train_open(&b, true);
        beryl_adapter *live = beryl_train_adapter(b.train);
        CHECK(t, live);
        take(&b, s, live);
        model_logits(t, s, tokens, N, 0, 0, now, VOCAB);
        CHECK_NEAR(t, model_distance(plain, now, N * VOCAB), 0, MODEL_TOLERANCE);
        step(&b);
        beryl_task *task = NULL, *answer = NULL;
        const beryl_generate_options few = model_greedy(4);
        CHECK_INT(t, beryl_session_generate(s, tokens, N, &few, &answer, NULL), BERYL_OK);
        CHECK_INT(t, beryl_train_show(b.train, &task, NULL), BERYL_OK);
        CHECK_INT(t, model_finish(task, &error, NULL), BERYL_MISUSE);
        CHECK(t, strstr(error.message, "has a task"));
        model_finish(answer, NULL, NULL);
        show(&b);
        model_logits(t, s, tokens, N, 0, 0, now, VOCAB);
        CHECK(t, model_distance(plain, now, N * VOCAB) > 10 * MODEL_TOLERANCE);
        model_logits(t, other, tokens, N, 0, 0, filed, VOCAB); /* without it: as ever */
        CHECK_NEAR(t, model_distance(plain, filed, N * VOCAB), 0, MODEL_TOLERANCE);
        save(&b, "gguf");
        beryl_train_close(b.train);
        b.train = NULL;
        beryl_adapter *file = NULL;
        const beryl_adapter_options options = {
            .size = sizeof options, .data = b.file.data, .data_size = b.file.size};
        must(&b, beryl_adapter_open(b.engine, &options, &file, &error), &error);
        take(&b, other, file);
        model_logits(t, other, tokens, N, 0, 0, filed, VOCAB);
        CHECK_NEAR(t, model_distance(now, filed, N * VOCAB), 0, MODEL_TOLERANCE);
        model_logits(t, s, tokens, N, 0, 0, filed, VOCAB); /* it outlives its training */
        CHECK_NEAR(t, model_distance(now, filed, N * VOCAB), 0, MODEL_TOLERANCE);
        beryl_session_close(s);
        beryl_session_close(other);
    }
    bench_close(&b);
}

void test_train_out(test *t) {
    if (test_case(t, "train_out/sinks-get-what-files-get")) check_saved(t);
    for (int where = MODEL_REFERENCE; where <= MODEL_WEBGPU; where++)
        if ((where == MODEL_REFERENCE || test_drawn(0, 1, 2)) &&
            test_case(t, "train_out/sessions-have-what-is-trained-%s", model_devices[where].name))
            check_live(t, where);
}
