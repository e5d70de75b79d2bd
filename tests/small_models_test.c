/* small_models_test.c - what models of a few KB show faster than fixtures: shapes that no
 * published model has. */
#include "base/file.h"
#include "model.h"
#include "model_make.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* The fuzzer begins with what the engine can run. BERYL_TEST_WRITE: its files are written anew. */
static void first_input(test *t, model_make_kind kind) {
    char name[100];
    size_t size;
    uint8_t *made = model_make(kind, &size), *kept = malloc(size + 1);
    if (!kept) abort();
    snprintf(name, sizeof name, "../../fuzz/corpus/engine/%s", model_make_name(kind));
    if (getenv("BERYL_TEST_WRITE"))
        CHECK_INT(t, base_file_write(test_data(t, name), made, size, NULL), BERYL_OK);
    FILE *file = fopen(test_data(t, name), "rb");
    CHECK(t, file && fread(kept, 1, size + 1, file) == size && !memcmp(made, kept, size));
    if (file) fclose(file);
    free(made);
    free(kept);
}

static void save(test *t, beryl_session *session, model_saved *to) {
    const beryl_sink sink = {.user = to, .write = model_saved_write};
    beryl_error error = {0};
    beryl_task *task;
    to->size = 0;
    beryl_status status = beryl_session_save_to(session, &sink, &task, &error);
    if (!status) status = model_finish(task, &error, NULL);
    if (status) test_fail(t, __FILE__, __LINE__, "saving: %s", error.message);
}

/* A row of one head of 32 has 34 bytes. */
static void odd_rows(test *t) {
    static model_saved first, second;
    size_t size;
    uint8_t *file = model_make(MODEL_MAKE_BLOCKS, &size);
    const beryl_source source = base_source_of_memory(file, size);
    const beryl_engine_options options = {.size = sizeof options,
                                          .source = &source,
                                          .device = "reference",
                                          .context = 16,
                                          .kv = BERYL_KV_Q8};
    beryl_engine *engine = model_load(t, &options);
    beryl_session *session = engine ? model_session(t, engine) : NULL;
    for (size_t n = 1; session && n < 8; n++) {
        static const int32_t prompt[] = {2, 30, 31, 28, 32, 33, 29};
        model_answer a;
        beryl_error error = {0};
        beryl_task *task;
        CHECK(t, model_generate(t, session, prompt, n, 1, NULL, &a));
        save(t, session, &first);
        const beryl_source from = base_source_of_memory(first.data, first.size);
        CHECK_INT(t, beryl_session_rewind(session, 0, NULL), BERYL_OK);
        if (beryl_session_restore_from(session, &from, &task, &error) ||
            model_finish(task, &error, NULL))
            test_fail(t, __FILE__, __LINE__, "restoring %zu tokens: %s", n, error.message);
        save(t, session, &second);
        CHECK(t, first.size == second.size && !memcmp(first.data, second.data, first.size));
    }
    beryl_session_close(session);
    beryl_engine_close(engine);
    free(file);
}

void test_small_models(test *t) {
    for (int kind = 0; kind < MODEL_MAKE_COUNT; kind++)
        if (test_case(t, "small-models/are-the-first-inputs-of-the-fuzzer-%s",
                      model_make_name((model_make_kind)kind)))
            first_input(t, (model_make_kind)kind);
    if (test_case(t, "small-models/q8-rows-of-no-whole-words-are-saved-and-restored")) odd_rows(t);
}
