/* engine_fuzz.c - a whole engine on a hostile model file: load, tokens, a chat, sampling,
 * logits, a session saved and restored.
 *
 * The input is a GGUF file, read through a source that cannot map. The device is the reference
 * one and memory is limited by the allocator, so that a run takes milliseconds whatever sizes
 * the file names. The corpus: small whole models (tests/model_make.c), which gguf_mutate.c
 * changes field by field. Whatever goes wrong says so in words; what was saved comes back as it
 * was; in the end no byte is left. */
#include "beryl.h"
#include "base/file.h"

#include <stdlib.h>
#include <string.h>

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

enum { HEAP_MAX = 8 << 20, CONTEXT = 24, SAVED_MAX = 1 << 20, STEP_MAX = 100000 };

static void *small_resize(void *user, void *memory, size_t old_size, size_t new_size) {
    size_t *used = user;
    if (new_size > old_size && new_size - old_size > HEAP_MAX - *used) return NULL;
    *used += new_size - old_size; /* wraps when it shrinks, and so does the sum */
    if (!new_size) return free(memory), NULL;
    return realloc(memory, new_size);
}

/* ---- the file -------------------------------------------------------------------------------- */

typedef struct file {
    const uint8_t *data;
    size_t size;
} file;

static beryl_status file_read(void *user, uint64_t offset, void *to, size_t size) {
    const file *f = user;
    if (!base_range_inside(offset, size, f->size)) abort();
    if (size) memcpy(to, f->data + offset, size);
    return BERYL_OK;
}

/* ---- the engine ------------------------------------------------------------------------------ */

/* Every refusal has its reason. */
static void check(beryl_status status, const beryl_error *error) {
    if (status != BERYL_OK && (error->code != status || !error->message[0])) abort();
}

static beryl_status finish(beryl_task *task) {
    beryl_event event;
    beryl_status status;
    uint32_t n = 0;
    while ((status = beryl_task_step(task, &event)) == BERYL_EVENT || status == BERYL_PENDING) {
        if (++n > STEP_MAX) abort();
        if (status == BERYL_EVENT && event.text_size && !event.text) abort();
    }
    check(status, beryl_task_error(task));
    beryl_task_close(task);
    return status;
}

static const char chat[] =
    "{\"messages\":[{\"role\":\"user\",\"content\":\"hi\"}],\"generate\":true}";

static void ask(const beryl_engine *engine) {
    static const char text[] = "hi the\n <b> \xC3\xA9 <|turn>a<0x41>";
    int32_t ids[64], *rendered = NULL;
    size_t n = 0, size;
    char *back = NULL;
    beryl_engine_info info;
    beryl_error error = {0};
    check(beryl_engine_info_get(engine, &info), &error);
    beryl_status status = beryl_engine_describe(engine, true, &back, &error);
    check(status, &error);
    if (!status) beryl_free(engine, back);
    status = beryl_render_tokens(engine, chat, &rendered, &n, &error);
    check(status, &error);
    if (!status) beryl_free(engine, rendered);
    for (int special = 0; special < 2; special++) {
        status = beryl_tokenize(engine, text, sizeof text - 1, special, ids, 64, &n, &error);
        check(status, &error);
        if (!status)
            status = beryl_detokenize(engine, ids, n < 64 ? n : 64, special, &back, &size, &error);
        check(status, &error);
        if (!status) beryl_free(engine, back);
    }
}

static void count_row(void *user, size_t position, const float *logits) {
    size_t *next = user;
    if (position != (*next)++ || !logits) abort();
}

/* ---- the session ----------------------------------------------------------------------------- */

typedef struct saved {
    uint8_t data[SAVED_MAX];
    size_t size;
} saved;

static beryl_status saved_write(void *user, const void *data, size_t size) {
    saved *s = user;
    if (size > SAVED_MAX - s->size) return BERYL_IO;
    memcpy(s->data + s->size, data, size);
    s->size += size;
    return BERYL_OK;
}

static beryl_status save(beryl_session *session, saved *to) {
    const beryl_sink sink = {.user = to, .write = saved_write};
    beryl_task *task;
    beryl_error error = {0};
    to->size = 0;
    beryl_status status = beryl_session_save_to(session, &sink, &task, &error);
    check(status, &error);
    return status ? status : finish(task);
}

static beryl_status restore(beryl_session *session, const saved *from) {
    file f = {from->data, from->size};
    const beryl_source source = {.size = f.size, .user = &f, .read = file_read};
    beryl_task *task;
    beryl_error error = {0};
    beryl_status status = beryl_session_restore_from(session, &source, &task, &error);
    check(status, &error);
    return status ? status : finish(task);
}

static void save_and_restore(beryl_session *session) {
    static saved first, second; /* a fuzz target is a program */
    if (save(session, &first)) return;
    beryl_status status = restore(session, &first);
    if (status == BERYL_OK) status = save(session, &second);
    if (status && status != BERYL_NO_MEMORY) abort();
    if (!status && (first.size != second.size || memcmp(first.data, second.data, first.size) != 0))
        abort();
}

static void talk(beryl_engine *engine, beryl_session *session) {
    const int32_t prompt[] = {2, 30, 31, 0, 40};
    const beryl_generate_options greedy = {.size = sizeof greedy, .greedy = true, .max_tokens = 3},
                                 drawn = {.size = sizeof drawn,
                                          .seed = 1,
                                          .max_tokens = 2,
                                          .repetition_penalty = 1.1f,
                                          .ignore_eos = true};
    beryl_task *task;
    beryl_error error = {0};
    size_t next = 1;
    beryl_status status = beryl_session_chat(session, chat, &greedy, &task, &error);
    check(status, &error);
    if (!status) finish(task);
    save_and_restore(session);
    status = beryl_session_logits(session, prompt, 5, 1, 2, count_row, &next, &task, &error);
    check(status, &error);
    if (!status && finish(task) == BERYL_OK && next != 5) abort();
    status = beryl_session_generate(session, prompt, 4, &drawn, &task, &error);
    check(status, &error);
    if (!status) finish(task);
    ask(engine);
}

static beryl_status live(const uint8_t *data, size_t size, beryl_kv kv) {
    size_t used = 0;
    file f = {data, size};
    const beryl_source source = {.size = size, .user = &f, .read = file_read};
    const beryl_engine_options options = {.size = sizeof options,
                                          .source = &source,
                                          .device = "reference",
                                          .context = CONTEXT,
                                          .piece = 4,
                                          .kv = kv,
                                          .no_cache = true,
                                          .allocator = {small_resize, &used}};
    beryl_engine *engine;
    beryl_session *session = NULL;
    beryl_task *task;
    beryl_error error = {0};
    if (beryl_engine_open(&options, &engine, &error)) abort();
    beryl_status status = beryl_engine_load(engine, &task, &error);
    check(status, &error);
    if (!status) status = finish(task);
    const beryl_status loaded = status;
    if (!status) {
        status = beryl_session_open(engine, NULL, &session, &error);
        check(status, &error);
    }
    if (!status) talk(engine, session);
    beryl_session_close(session);
    beryl_engine_close(engine);
    if (used) abort();
    return loaded;
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size) {
    const beryl_kv kv = (beryl_kv)(base_hash(data, size, 0) % (BERYL_KV_Q8 + 1));
    /* heads of no whole blocks */
    if (live(data, size, kv) == BERYL_UNSUPPORTED && kv == BERYL_KV_Q8)
        live(data, size, BERYL_KV_F32);
    return 0;
}
