/* session_fuzz.c - saved sessions from strangers: whatever the bytes are, restoring says what is
 * wrong or restores, and the session goes on from there.
 *
 * The engines are the reference device on small whole models (tests/model_make.c), with each
 * type of cache, opened once. Every input is tried as it is on all of them and, so that the
 * fuzzer is not stopped by hashes and sizes, on one of them twice more: with the identity and
 * the hash of a session of its model, and with counts that fit, its rows to their end and their
 * hash. */
#include "../tests/model_make.h"
#include "base/file.h"
#include "engine/engine.h"

#include <stdlib.h>
#include <string.h>

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

enum { CONTEXT = 12, N_ENGINE = 3, SIZE_MOST = 8 << 10 };
/* bytes: the header; magic to model hash; where fields are */
enum { HEADER = 64, IDENTITY = 32, N_TOKEN = 32, N_FED = 40, HASH = 48, ADAPTERS = 56 };

typedef struct side {
    beryl_session *session;
    uint8_t *model; /* as long as the program */
    uint8_t identity[IDENTITY];
} side;

typedef struct bytes {
    uint8_t data[SIZE_MOST];
    size_t size;
} bytes;

static beryl_status run(beryl_task *task) {
    beryl_status status;
    while ((status = beryl_wait(task, NULL)) == BERYL_EVENT) {}
    if (status && !beryl_task_error(task)->message[0]) abort();
    beryl_task_close(task);
    return status;
}

static beryl_status bytes_add(void *user, const void *data, size_t size) {
    bytes *b = user;
    if (size > sizeof b->data - b->size) abort();
    memcpy(b->data + b->size, data, size);
    b->size += size;
    return BERYL_OK;
}

static beryl_status bytes_read(void *user, uint64_t offset, void *to, size_t size) {
    const bytes *b = user;
    if (offset > b->size || size > b->size - offset) abort();
    if (size) memcpy(to, b->data + offset, size);
    return BERYL_OK;
}

static void open_side(side *s, model_make_kind kind, beryl_kv kv) {
    static bytes saved; /* a fuzz target is a program */
    size_t size;
    s->model = model_make(kind, &size);
    const beryl_source source = base_source_of_memory(s->model, size);
    const beryl_sink sink = {.user = &saved, .write = bytes_add};
    const beryl_engine_options options = {.size = sizeof options,
                                          .source = &source,
                                          .device = "reference",
                                          .context = CONTEXT,
                                          .piece = 4,
                                          .kv = kv,
                                          .no_cache = true};
    beryl_engine *engine;
    beryl_task *task;
    saved.size = 0;
    if (beryl_engine_open(&options, &engine, NULL) || beryl_engine_load(engine, &task, NULL) ||
        run(task) || beryl_session_open(engine, NULL, &s->session, NULL) ||
        beryl_session_save_to(s->session, &sink, &task, NULL) || run(task))
        abort();
    memcpy(s->identity, saved.data, IDENTITY);
}

/* ---- what is right in a file ----------------------------------------------------------------- */

static void put_hash(bytes *b, size_t tokens) {
    memset(b->data + HASH, 0, sizeof(uint64_t));
    const uint64_t hash = base_hash(b->data + HEADER, tokens, base_hash(b->data, HEADER, 0));
    memcpy(b->data + HASH, &hash, sizeof hash);
}

/* Positions [first, first + count) of a cache, hashed as they lie in the file from b->size on. */
static void put_rows(const beryl_session *s, bytes *b, uint32_t state, uint32_t rows, size_t first,
                     size_t count, uint64_t *hash) {
    const uint32_t row = (uint32_t)(first % rows),
                   head = count < rows - row ? (uint32_t)count : rows - row;
    const uint32_t runs[2][2] = {{row, head}, {0, (uint32_t)count - head}};
    for (int i = 0; i < 2; i++) {
        cache_range ranges[2];
        const uint32_t n = runs[i][1] ? engine_cache_ranges(s->engine, state, s->slot, runs[i][0],
                                                            runs[i][1], ranges)
                                      : 0;
        for (uint32_t k = 0; k < n; k++) {
            const size_t size = (size_t)ranges[k].size;
            if (size > sizeof b->data - 8 - b->size) abort();
            *hash = base_hash(b->data + b->size, size, *hash);
            b->size += size;
        }
    }
}

/* A whole file from the input: counts within the context, tokens of the vocabulary, as many rows
 * as there must be. */
static void make_whole(const beryl_session *s, bytes *b) {
    const gemma4_model *m = &s->engine->model;
    uint64_t n_token, n_fed, hash;
    for (size_t at = b->size; at < sizeof b->data; at++) b->data[at] = b->data[at - b->size];
    memcpy(&n_token, b->data + N_TOKEN, sizeof n_token);
    memcpy(&n_fed, b->data + N_FED, sizeof n_fed);
    n_token %= CONTEXT + 2;
    n_fed %= (n_token < CONTEXT ? n_token : CONTEXT) + 1;
    memcpy(b->data + N_TOKEN, &n_token, sizeof n_token);
    memcpy(b->data + N_FED, &n_fed, sizeof n_fed);
    for (size_t i = 0; i < n_token; i++) {
        uint32_t id;
        memcpy(&id, b->data + HEADER + 4 * i, sizeof id);
        id %= m->config.n_vocab;
        memcpy(b->data + HEADER + 4 * i, &id, sizeof id);
    }
    b->size = HEADER + 4 * (size_t)n_token;
    put_hash(b, 4 * (size_t)n_token);
    memcpy(&hash, b->data + HASH, sizeof hash);
    for (uint32_t l = 0; l < m->config.n_layer; l++) {
        const gemma4_layer *layer = &m->layers[l];
        if (!layer->owner) continue;
        const size_t count =
            layer->sliding && n_fed > m->config.window ? m->config.window : (size_t)n_fed;
        const uint32_t rows = layer->sliding ? m->ring : m->context;
        put_rows(s, b, layer->k_cache, rows, (size_t)n_fed - count, count, &hash);
        put_rows(s, b, layer->v_cache, rows, (size_t)n_fed - count, count, &hash);
    }
    memcpy(b->data + b->size, &hash, sizeof hash);
    b->size += sizeof hash;
}

/* ---- restoring ------------------------------------------------------------------------------- */

/* The session answers after what it holds and after half of it. */
static void go_on(beryl_session *session) {
    const beryl_generate_options options = {
        .size = sizeof options, .greedy = true, .max_tokens = 1};
    for (int i = 0; i < 2; i++) {
        const int32_t *held;
        int32_t prompt[CONTEXT + 2];
        size_t n;
        beryl_task *task;
        beryl_error error = {0};
        beryl_session_tokens(session, &held, &n);
        if (n > CONTEXT + 1) abort();
        if (n) memcpy(prompt, held, n * sizeof *prompt);
        prompt[n++] = 5;
        beryl_status status = beryl_session_generate(session, prompt, n, &options, &task, &error);
        if (status == BERYL_OK) status = run(task);
        else if (status != BERYL_CONTEXT_FULL || !error.message[0]) abort();
        if (beryl_session_rewind(session, n / 2, &error) && !error.message[0]) abort();
    }
}

static beryl_status restore(beryl_session *session, bytes *b) {
    const beryl_source source = {.size = b->size, .user = b, .read = bytes_read};
    beryl_task *task;
    if (beryl_session_restore_from(session, &source, &task, NULL)) abort();
    const beryl_status status = run(task);
    if (status == BERYL_OK) go_on(session);
    return status;
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size) {
    static side sides[N_ENGINE];
    static bytes b;
    if (!sides[0].session) {
        open_side(&sides[0], MODEL_MAKE_DENSE, BERYL_KV_F32);
        open_side(&sides[1], MODEL_MAKE_SMALL, BERYL_KV_F16);
        open_side(&sides[2], MODEL_MAKE_BLOCKS, BERYL_KV_Q8);
    }
    if (size > SIZE_MOST / 2) return 0;
    for (int i = 0; i < N_ENGINE; i++) {
        memcpy(b.data, data, b.size = size);
        restore(sides[i].session, &b);
    }
    if (size < HEADER) return 0;
    const side *s = &sides[base_hash(data, size, 0) % N_ENGINE];
    uint64_t n_token;
    memcpy(b.data, data, b.size = size);
    memcpy(b.data, s->identity, IDENTITY);
    memcpy(&n_token, b.data + N_TOKEN, sizeof n_token);
    put_hash(&b, n_token <= (size - HEADER) / 4 ? (size_t)n_token * 4 : 0);
    restore(s->session, &b);
    memcpy(b.data, data, b.size = size);
    memcpy(b.data, s->identity, IDENTITY);
    memset(b.data + ADAPTERS, 0, HEADER - ADAPTERS); /* none */
    make_whole(s->session, &b);
    if (restore(s->session, &b)) abort();
    return 0;
}
