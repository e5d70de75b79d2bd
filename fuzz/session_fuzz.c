/* session_fuzz.c - saved sessions from strangers: whatever the bytes are, restoring says what is wrong or restores.
 * The engine is the reference device on the smallest fixture, opened once. Every input is tried as it is and, so that the
 * fuzzer is not stopped by the hash, with the magic, identity and hash of a session of this model. (The rows' hash at the end
 * is left alone: it is looked at last.) */
#include "engine/engine.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

enum { HEADER = 64, IDENTITY = 32, HASH = 48 }; /* bytes: the header; magic to model hash; where its own hash is */

static beryl_session *open_session(void) {
    const char *model = getenv("BERYL_FUZZ_MODEL");
    const beryl_engine_options options = {.size = sizeof options, .model = model ? model : "tests/data/e2b-q4_0.gguf",
                                          .device = "reference", .context = 64, .precision = BERYL_PRECISION_EXACT};
    beryl_engine *engine;
    beryl_session *session;
    beryl_task *task;
    if (beryl_engine_open(&options, &engine, NULL) || beryl_engine_load(engine, &task, NULL)) abort();
    while (beryl_wait(task, NULL) == BERYL_EVENT) {}
    beryl_task_close(task);
    if (beryl_session_open(engine, NULL, &session, NULL)) abort();
    return session;
}

static beryl_status run(beryl_task *task) {
    beryl_status status;
    while ((status = beryl_wait(task, NULL)) == BERYL_EVENT) {}
    beryl_task_close(task);
    return status;
}

static void write_file(const char *path, const uint8_t *data, size_t size) {
    FILE *file = fopen(path, "wb");
    if (!file || fwrite(data, 1, size, file) != size || fclose(file)) abort();
}

static void restore(beryl_session *session, const char *path) {
    beryl_task *task;
    const int32_t prompt[] = {2, 5, 6};
    if (beryl_session_restore(session, path, &task, NULL) == BERYL_OK && run(task) == BERYL_OK) {
        const beryl_generate_options options = {.size = sizeof options, .greedy = true, .max_tokens = 1};
        if (beryl_session_generate(session, prompt, 3, &options, &task, NULL) == BERYL_OK) run(task);
    }
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size) {
    static beryl_session *session; /* a fuzz target is a program */
    static uint8_t identity[IDENTITY + 8];
    static char path[64];
    if (!session) {
        beryl_task *task;
        session = open_session();
        snprintf(path, sizeof path, "/tmp/beryl-session-fuzz-%ld", (long)getpid());
        if (beryl_session_save(session, path, &task, NULL) || run(task) != BERYL_OK) abort();
        FILE *file = fopen(path, "rb");
        if (!file || fread(identity, 1, IDENTITY, file) != IDENTITY || fclose(file)) abort();
    }
    write_file(path, data, size);
    restore(session, path);
    if (size >= HEADER) {
        uint8_t *copy = malloc(size);
        uint64_t n_token;
        if (!copy) abort();
        memcpy(copy, data, size);
        memcpy(copy, identity, IDENTITY);
        memset(copy + HASH, 0, sizeof(uint64_t));
        memcpy(&n_token, copy + IDENTITY, sizeof n_token);
        const size_t tokens = n_token <= (size - HEADER) / 4 ? (size_t)n_token * 4 : 0;
        const uint64_t hash = base_hash(copy + HEADER, tokens, base_hash(copy, HEADER, 0));
        memcpy(copy + HASH, &hash, sizeof hash);
        write_file(path, copy, size);
        restore(session, path);
        free(copy);
    }
    unlink(path);
    return 0;
}
