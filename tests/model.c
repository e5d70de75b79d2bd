/* model.c - see model.h. */
#define _POSIX_C_SOURCE 200809L
#include "model.h"
#include "gguf_make.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

const model_device model_devices[MODEL_ALL_COUNT] = {
    [MODEL_REFERENCE] = {"reference", "reference", "", false},
    [MODEL_WEBGPU] = {"webgpu", "webgpu", "", false},
    [MODEL_MIN] = {"webgpu-min", "webgpu", "no-f16,no-subgroups,no-dot,min", false},
    [MODEL_HOST] = {"host", "host", "", true},
    [MODEL_OPENCL] = {"opencl", "opencl", "", false},
    [MODEL_CUDA] = {"cuda", "cuda", "", false},
    [MODEL_HIP] = {"hip", "hip", "", false},
    [MODEL_DUMMY] = {"dummy", "dummy", "", false},
    [MODEL_FEW] = {"webgpu-few", "webgpu", "hard,few-buffers", false},
};

/* ---- engines --------------------------------------------------------------------------------- */

static const char *path_of(test *t, const char *file, char *room, size_t size) {
    if (strcmp(file, "default") != 0) return test_data(t, file);
    snprintf(room, size, "%s", test_data(t, "../../models/default.gguf"));
    return room;
}

/* A check of kernels that tries others than the plan's says nothing about them. */
static void judge_line(void *user, beryl_log_level level, const char *line) {
    if (level == BERYL_LOG_WARNING && strstr(line, "another program"))
        test_fail(user, __FILE__, __LINE__, "%s", line);
}

beryl_engine *model_load(test *t, const beryl_engine_options *options) {
    beryl_engine *engine = NULL;
    beryl_task *task = NULL;
    beryl_error error = {0};
    beryl_engine_options o = *options;
    if (!o.log.write) o.log = (beryl_log){judge_line, t};
    beryl_status status = beryl_engine_open(&o, &engine, &error);
    if (status == BERYL_OK) status = beryl_engine_load(engine, &task, &error);
    if (status == BERYL_OK) status = model_finish(task, &error, NULL);
    if (status == BERYL_OK) return engine;
    beryl_engine_close(engine);
    if (status == BERYL_NO_DEVICE) {
        test_skip(t, "%s", error.message);
    } else {
        test_fail(t, __FILE__, __LINE__, "%s on %s: %s: %s",
                  options->model ? options->model : "a source",
                  options->device ? options->device : "any device", beryl_status_name(status),
                  error.message);
    }
    return NULL;
}

beryl_engine *model_engine(test *t, const char *file, const model_device *device,
                           const beryl_engine_options *options) {
    beryl_engine_options o = {.precision = BERYL_PRECISION_EXACT};
    char room[512];
    if (options) o = *options;
    o.size = sizeof o;
    if (!o.source) o.model = path_of(t, file, room, sizeof room);
    o.device = device->device;
    o.no_cache = !device->kept;
    const char *cache = getenv("XDG_CACHE_HOME");
    char *before = cache ? strdup(cache) : NULL;
    if (device->kept) setenv("XDG_CACHE_HOME", test_compiled(t), 1);
    setenv("BERYL_CAPS", device->caps, 1);
    beryl_engine *engine = model_load(t, &o);
    if (before) setenv("XDG_CACHE_HOME", before, 1);
    else unsetenv("XDG_CACHE_HOME");
    free(before);
    unsetenv("BERYL_CAPS");
    return engine;
}

beryl_session *model_session(test *t, beryl_engine *engine) {
    beryl_session *s = NULL;
    beryl_error error = {0};
    if (beryl_session_open(engine, NULL, &s, &error) != BERYL_OK)
        test_fail(t, __FILE__, __LINE__, "%s", error.message);
    return s;
}

/* ---- references ------------------------------------------------------------------------------ */

bool model_ref_open(test *t, model_ref *r, const char *file) {
    *r = (model_ref){0};
    base_heap_init(&r->heap, NULL);
    base_arena_init(&r->arena, &r->heap);
    beryl_error error = {0};
    beryl_status status = format_gguf_open_path(&r->heap, test_data(t, file), &r->gguf, &error);
    while (status == BERYL_OK && (status = format_gguf_step(r->gguf, &error)) == BERYL_PENDING) {}
    if (status == BERYL_OK) status = format_gguf_get_u32(r->gguf, "cases", &r->n_case, &error);
    if (status == BERYL_OK) return true;
    test_fail(t, __FILE__, __LINE__, "%s: %s", file, error.message);
    model_ref_close(r);
    return false;
}

void model_ref_close(model_ref *r) {
    format_gguf_close(r->gguf);
    r->gguf = NULL;
    base_arena_fini(&r->arena);
}

static const void *tensor(test *t, model_ref *r, uint32_t index, const char *what, base_type type,
                          size_t *n) {
    char name[40];
    snprintf(name, sizeof name, "case.%u.%s", (unsigned)index, what);
    const format_gguf_tensor *found = format_gguf_tensor_find(r->gguf, name);
    const void *data =
        found && found->type == type ? gguf_tensor_take(r->gguf, found, &r->arena) : NULL;
    if (!data) test_fail(t, __FILE__, __LINE__, "the reference has no %s", name);
    *n = data ? (size_t)(found->size / 4) : 0;
    return data;
}

bool model_case_get(test *t, model_ref *r, uint32_t index, model_case *c) {
    *c = (model_case){0};
    char key[40];
    base_view kind;
    snprintf(key, sizeof key, "case.%u.kind", (unsigned)index);
    return format_gguf_get_string(r->gguf, key, &kind, NULL) == BERYL_OK &&
           base_view_equal(kind, BASE_VIEW("text")) && model_case_read(t, r, index, c);
}

bool model_case_read(test *t, model_ref *r, uint32_t index, model_case *c) {
    *c = (model_case){0};
    char key[40];
    uint32_t row = 0;
    snprintf(key, sizeof key, "case.%u.logits_row", (unsigned)index);
    if (format_gguf_u32_or(r->gguf, key, 0, &row, NULL) != BERYL_OK) return false;
    size_t n_logit;
    c->tokens = tensor(t, r, index, "tokens", TYPE_I32, &c->n_token);
    c->greedy = tensor(t, r, index, "greedy", TYPE_I32, &c->n_greedy);
    c->logits = tensor(t, r, index, "logits", TYPE_F32, &n_logit);
    c->first = row;
    if (!c->tokens || !c->greedy || !c->logits || c->first >= c->n_token) return false;
    c->n_vocab = n_logit / (c->n_token - c->first);
    return true;
}

/* ---- running --------------------------------------------------------------------------------- */

beryl_status model_finish(beryl_task *task, beryl_error *error, beryl_result *result) {
    beryl_status status;
    while ((status = beryl_wait(task, NULL)) == BERYL_EVENT) {}
    if (status != BERYL_OK && error) *error = *beryl_task_error(task);
    if (result) *result = *beryl_task_result(task);
    beryl_task_close(task);
    return status;
}

beryl_status model_saved_write(void *user, const void *data, size_t size) {
    model_saved *s = user;
    if (size > sizeof s->data - s->size) return BERYL_IO;
    memcpy(s->data + s->size, data, size);
    s->size += size;
    return BERYL_OK;
}

void model_answer_add(model_answer *a, const beryl_event *event) {
    if (event->kind != BERYL_EVENT_TOKEN) return;
    if (event->token >= 0 && a->n_token < sizeof a->tokens / sizeof *a->tokens)
        a->tokens[a->n_token++] = event->token;
    size_t room = sizeof a->text - 1 - a->text_size,
           size = event->text_size < room ? event->text_size : room;
    if (event->part != BERYL_PART_TEXT || !size) return;
    memcpy(a->text + a->text_size, event->text, size);
    a->text_size += size;
    a->text[a->text_size] = 0;
}

beryl_generate_options model_greedy(uint32_t most) {
    return (beryl_generate_options){.size = sizeof(beryl_generate_options),
                                    .greedy = true,
                                    .ignore_eos = true,
                                    .max_tokens = most};
}

static bool collect(test *t, beryl_task *task, model_answer *a) {
    beryl_event event;
    while ((a->status = beryl_wait(task, &event)) == BERYL_EVENT) model_answer_add(a, &event);
    a->result = *beryl_task_result(task);
    a->error = *beryl_task_error(task);
    beryl_task_close(task);
    if (a->status != BERYL_OK)
        test_fail(t, __FILE__, __LINE__, "generating: %s: %s", beryl_status_name(a->status),
                  a->error.message);
    return a->status == BERYL_OK;
}

bool model_generate(test *t, beryl_session *s, const int32_t *tokens, size_t n_token, uint32_t most,
                    const beryl_generate_options *options, model_answer *a) {
    beryl_generate_options greedy = model_greedy(most);
    beryl_task *task;
    *a = (model_answer){0};
    a->status =
        beryl_session_generate(s, tokens, n_token, options ? options : &greedy, &task, &a->error);
    if (a->status == BERYL_OK) return collect(t, task, a);
    test_fail(t, __FILE__, __LINE__, "generating: %s: %s", beryl_status_name(a->status),
              a->error.message);
    return false;
}

bool model_chat(test *t, beryl_session *s, const char *chat, const beryl_generate_options *options,
                model_answer *a) {
    beryl_task *task;
    *a = (model_answer){0};
    a->status = beryl_session_chat(s, chat, options, &task, &a->error);
    if (a->status == BERYL_OK) return collect(t, task, a);
    test_fail(t, __FILE__, __LINE__, "chat: %s: %s", beryl_status_name(a->status),
              a->error.message);
    return false;
}

typedef struct rows { /* where logits go */
    float *out;       // [n_row, n_vocab]
    size_t first, next, n_vocab;
    bool in_order;
} rows;

static void take_row(void *user, size_t position, const float *logits) {
    rows *r = user;
    r->in_order &= position == r->next;
    memcpy(r->out + (position - r->first) * r->n_vocab, logits, r->n_vocab * sizeof *logits);
    r->next = position + 1;
}

bool model_logits(test *t, beryl_session *s, const int32_t *tokens, size_t n_token, size_t first,
                  uint32_t piece, float *out, size_t n_vocab) {
    rows r = {out, first, first, n_vocab, true};
    beryl_task *task;
    beryl_error error = {0};
    beryl_status status =
        beryl_session_logits(s, tokens, n_token, first, piece, take_row, &r, &task, &error);
    if (status == BERYL_OK) status = model_finish(task, &error, NULL);
    if (status != BERYL_OK) {
        test_fail(t, __FILE__, __LINE__, "logits: %s: %s", beryl_status_name(status),
                  error.message);
        return false;
    }
    CHECK(t, r.in_order);
    CHECK_INT(t, r.next, n_token);
    return r.in_order && r.next == n_token;
}

double model_distance(const float *a, const float *b, size_t n) {
    double most = 0;
    for (size_t i = 0; i < n; i++) {
        double d = fabs((double)a[i] - (double)b[i]);
        if (!(d <= most)) most = isnan(d) ? (double)INFINITY : d;
    }
    return most;
}

size_t model_argmax(const float *logits, size_t n) {
    size_t best = 0;
    for (size_t i = 1; i < n; i++)
        if (logits[i] > logits[best]) best = i;
    return best;
}

double model_lead(const float *logits, size_t n) {
    size_t best = model_argmax(logits, n);
    double second = -(double)INFINITY;
    for (size_t i = 0; i < n; i++)
        if (i != best && (double)logits[i] > second) second = (double)logits[i];
    return (double)logits[best] - second;
}

void model_check_logits(test *t, beryl_session *s, const model_case *c, uint32_t piece,
                        double tolerance) {
    size_t n = (c->n_token - c->first) * c->n_vocab;
    float *got = malloc(n * sizeof *got);
    if (!got) abort();
    if (model_logits(t, s, c->tokens, c->n_token, c->first, piece, got, c->n_vocab)) {
        double d = model_distance(got, c->logits, n);
        if (!(d <= tolerance))
            test_fail(t, __FILE__, __LINE__, "logits of %zu tokens in pieces of %u are off by %g",
                      c->n_token, (unsigned)piece, d);
    }
    free(got);
}

void model_check_greedy(test *t, const model_case *c, const int32_t *tokens, size_t n) {
    CHECK_INT(t, n, c->n_greedy);
    for (size_t i = 0; i < n && i < c->n_greedy; i++) {
        if (tokens[i] == c->greedy[i]) continue;
        test_fail(t, __FILE__, __LINE__, "token %zu after %zu is %d, not %d", i, c->n_token,
                  tokens[i], c->greedy[i]);
        return;
    }
}
