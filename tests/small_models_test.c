/* small_models_test.c - what models of a few KB show faster than fixtures: shapes that no
 * published model has. */
#include "base/file.h"
#include "model.h"
#include "model_make.h"

#include <math.h>
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

/* ---- a type through a whole model ------------------------------------------------------------ */

enum { N_PROMPT = 11, N_GREEDY = 5, N_TOKEN = N_PROMPT + N_GREEDY - 1, VOCAB_MAX = 64 };

static const base_type types[] = {TYPE_IQ1_S,   TYPE_IQ1_M, TYPE_IQ2_XXS, TYPE_IQ2_XS, TYPE_IQ2_S,
                                  TYPE_IQ3_XXS, TYPE_IQ3_S, TYPE_TQ1_0,   TYPE_TQ2_0};

typedef struct speaker {
    uint8_t *file;
    beryl_engine *engine;
    beryl_session *session;
    size_t n_vocab;
} speaker;

/* Under `fast` tokens go one by one: so products round their vectors where the device can. */
static bool speaker_open(speaker *s, test *t, base_type type, bool written_out, int device,
                         beryl_precision precision) {
    size_t size;
    beryl_engine_info info;
    *s = (speaker){.file = model_make_of(type, written_out, &size)};
    const beryl_source source = base_source_of_memory(s->file, size);
    const beryl_engine_options options = {.source = &source,
                                          .precision = precision,
                                          .context = 64,
                                          .piece = precision == BERYL_PRECISION_FAST};
    s->engine = model_engine(t, NULL, &model_devices[device], &options);
    s->session = s->engine ? model_session(t, s->engine) : NULL;
    if (!s->session) return false;
    CHECK_INT(t, beryl_engine_info_get(s->engine, &info), BERYL_OK);
    s->n_vocab = info.n_vocab;
    return s->n_vocab <= VOCAB_MAX;
}

static void speaker_close(speaker *s) {
    beryl_session_close(s->session);
    beryl_engine_close(s->engine);
    free(s->file);
}

/* What it answers, and the logits along the way, are those of the same numbers as F32. */
static void check_type(test *t, base_type type, int device, bool exact) {
    /* As of joined operations (engine/trial_numbers.c): sums in another order, or vectors rounded
     * to int8; of the size of all logits. */
    const double tolerance = exact ? 5e-5 : 4e-2;
    int32_t tokens[N_TOKEN] = {2, 30, 31, 28, 32, 33, 29, 35, 27, 34, 36};
    float want[N_TOKEN * VOCAB_MAX], got[N_TOKEN * VOCAB_MAX];
    double size = 0, off = 0;
    speaker judge = {0}, s;
    model_answer a;
    if (!speaker_open(&s, t, type, false, device,
                      exact ? BERYL_PRECISION_EXACT : BERYL_PRECISION_FAST) ||
        !speaker_open(&judge, t, type, true, MODEL_REFERENCE, BERYL_PRECISION_EXACT) ||
        !model_generate(t, s.session, tokens, N_PROMPT, N_GREEDY, NULL, &a))
        goto done;
    memcpy(tokens + N_PROMPT, a.tokens, (N_GREEDY - 1) * sizeof *tokens);
    CHECK_INT(t, beryl_session_rewind(s.session, 0, NULL), BERYL_OK);
    if (!model_logits(t, s.session, tokens, N_TOKEN, 0, 0, got, s.n_vocab) ||
        !model_logits(t, judge.session, tokens, N_TOKEN, 0, 0, want, s.n_vocab))
        goto done;
    for (size_t i = 0; i < N_TOKEN * s.n_vocab; i++) {
        const double d = (double)got[i] - (double)want[i];
        size += (double)want[i] * (double)want[i];
        off += d * d;
    }
    if (!(off <= tolerance * tolerance * size))
        test_fail(t, __FILE__, __LINE__, "logits are off by %g of their size", sqrt(off / size));
    for (size_t i = 0; i < N_GREEDY; i++) {
        const float *row = want + (N_PROMPT - 1 + i) * s.n_vocab;
        const double behind = (double)row[model_argmax(row, s.n_vocab)] - (double)row[a.tokens[i]];
        if (!(behind <= (exact ? 0 : MODEL_LEAD)))
            test_fail(t, __FILE__, __LINE__, "token %zu is %g behind the first", i, behind);
    }
done:
    speaker_close(&judge);
    speaker_close(&s);
}

/* Every type in one form, TQ2_0 in that which multiplies its bytes; by make test-all in all. */
static void check_types(test *t) {
    static const int devices[] = {MODEL_WEBGPU, MODEL_HOST, MODEL_OPENCL};
    enum { N_DEVICE = sizeof devices / sizeof *devices };
    for (size_t i = 0; i < sizeof types / sizeof *types; i++)
        for (size_t form = 0; form < 2 * N_DEVICE; form++) {
            const int device = devices[form % N_DEVICE];
            const bool exact = form / N_DEVICE;
            /* ten seconds of OpenCL's compiler each, and products/opencl has their products */
            if ((device != MODEL_OPENCL || test_drawn(i, 2, 9)) &&
                test_drawn(i + 3, form, 2 * N_DEVICE) &&
                test_case(t, "small-models/%s-as-f32-%s-%s", base_type_name(types[i]),
                          model_devices[device].name, exact ? "exact" : "fast"))
                check_type(t, types[i], device, exact);
        }
}

void test_small_models(test *t) {
    for (int kind = 0; kind < MODEL_MAKE_COUNT; kind++)
        if (test_case(t, "small-models/are-the-first-inputs-of-the-fuzzer-%s",
                      model_make_name((model_make_kind)kind)))
            first_input(t, (model_make_kind)kind);
    if (test_case(t, "small-models/q8-rows-of-no-whole-words-are-saved-and-restored")) odd_rows(t);
    check_types(t);
}
