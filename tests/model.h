/* model.h - what tests of whole models share: references, engines on a device, logits and answers
 * in one call.
 *
 * All of it goes through beryl.h; format/gguf.h reads the references alone. A helper that fails has
 * failed the case and gives false or NULL.
 *
 *     model_ref ref; model_case c;
 *     beryl_engine *engine = model_engine(t, "e2b-f32.gguf", &model_devices[0], NULL);
 *     if (engine && model_ref_open(t, &ref, "e2b-f32.ref.gguf") && model_case_get(&ref, 0, &c)) ...
 */
#ifndef TESTS_MODEL_H
#define TESTS_MODEL_H

#include "beryl.h"
#include "format/gguf.h"
#include "test.h"

/* The reference itself moves by up to 1.4e-3 when sums are taken in another order (README of the
 * fixtures). */
#define MODEL_TOLERANCE 5e-3
/* With a rounded cache logits move by less than this, and the order of two that are further apart
 * than LEAD stays. */
#define MODEL_TOLERANCE_ROUNDED 5e-2
#define MODEL_LEAD 0.2

typedef struct model_device {
    const char *name;   /* in names of cases */
    const char *device; /* as in beryl_engine_options */
    const char *caps;   /* BERYL_CAPS; "": everything that the device has */
    /* what was compiled is kept for this run, for engines to come (test_compiled) */
    bool kept;
} model_device;

/* Those from MODEL_DEVICE_COUNT on take a while to compile. */
enum { MODEL_REFERENCE, MODEL_WEBGPU, MODEL_MIN, MODEL_DEVICE_COUNT };
enum {
    MODEL_HOST = MODEL_DEVICE_COUNT,
    MODEL_OPENCL,
    MODEL_CUDA,
    MODEL_HIP,
    MODEL_DUMMY, /* computes nothing */
    MODEL_FEW,   /* a GPU's kernels with ten storage buffers */
    MODEL_ALL_COUNT
};
extern const model_device model_devices[MODEL_ALL_COUNT];

/* An opened and loaded engine. NULL: failed, or skipped where there is no such device. */
beryl_engine *model_load(test *t, const beryl_engine_options *options);
/* The same: `file` in tests/data, "default" for the built-in model; options may be NULL; what
 * they leave open is exact precision, no cache folder of the user. NULL: failed, or skipped
 * where there is no such device. */
beryl_engine *model_engine(test *t, const char *file, const model_device *device,
                           const beryl_engine_options *options);
beryl_session *model_session(test *t, beryl_engine *engine);

/* ---- references */

typedef struct model_ref {
    base_heap heap;
    base_arena arena; /* tensors that were asked for */
    format_gguf *gguf;
    uint32_t n_case;
} model_ref;

typedef struct model_case {
    const int32_t *tokens; // [n_token]
    const int32_t *greedy; // [n_greedy]
    const float *logits;   // [n_token - first, n_vocab]
    size_t n_token, n_greedy, first, n_vocab;
} model_case;

bool model_ref_open(test *t, model_ref *r, const char *file);
void model_ref_close(model_ref *r);
/* Case `index`; false: it is no text. Pointers are borrowed from r. */
bool model_case_get(test *t, model_ref *r, uint32_t index, model_case *c);
bool model_case_read(test *t, model_ref *r, uint32_t index, model_case *c); /* of any kind */

/* ---- running */

/* Steps a task to its end, drops its events, closes it. */
beryl_status model_finish(beryl_task *task, beryl_error *error, beryl_result *result);

/* What a sink of a saved session was given. */
typedef struct model_saved {
    unsigned char data[64 << 10];
    size_t size;
} model_saved;
beryl_status model_saved_write(void *user, const void *data, size_t size);

typedef struct model_answer {
    int32_t tokens[256];
    size_t n_token;
    char text[4096];
    size_t text_size;
    beryl_result result;
    beryl_status status;
    beryl_error error;
} model_answer;

/* One event of a generation. */
void model_answer_add(model_answer *a, const beryl_event *event);
/* Runs a whole generation; false (case failed) if it does not end well. options NULL: greedy, EOS
 * ignored, `most` tokens. */
bool model_generate(test *t, beryl_session *s, const int32_t *tokens, size_t n_token, uint32_t most,
                    const beryl_generate_options *options, model_answer *a);
bool model_chat(test *t, beryl_session *s, const char *chat, const beryl_generate_options *options,
                model_answer *a);
/* Greedy, EOS ignored, so many tokens. */
beryl_generate_options model_greedy(uint32_t most);

/* Logits of [first, n_token) into out [n_token - first, n_vocab]. */
bool model_logits(test *t, beryl_session *s, const int32_t *tokens, size_t n_token, size_t first,
                  uint32_t piece, float *out, size_t n_vocab);
/* Greatest distance of two lists; infinity where one is not a number. */
double model_distance(const float *a, const float *b, size_t n);
size_t model_argmax(const float *logits, size_t n);
/* By how much the greatest is ahead of the second. */
double model_lead(const float *logits, size_t n);

/* Checks the whole of a case in one session: logits of every stored position, in pieces. */
void model_check_logits(test *t, beryl_session *s, const model_case *c, uint32_t piece,
                        double tolerance);
/* Checks tokens against the reference's greedy ones. */
void model_check_greedy(test *t, const model_case *c, const int32_t *tokens, size_t n);

#endif
