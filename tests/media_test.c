/* media_test.c - pictures and sound in prompts, through beryl.h alone: logits and answers against
 * the reference, what is read again and what is not, what is refused; pictures at another size. */
#define _POSIX_C_SOURCE 200809L
#include "media_files.h"
#include "model.h"

#include "media/resize.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* From the resized picture; and from the original one, where the reference's own resampling is part
 * of what is compared: of the largest number of the soft tokens. */
#define SOFT_TOLERANCE 1e-3
#define ORIGINAL_TOLERANCE 2e-2
enum { UNIT = 48, BUDGET = 70 };

static const struct {
    const char *name, *mmproj;
    bool small;            /* the original picture on the reference functions */
    uint32_t n_suppressed; /* tokens that the reference has and the engine has ruled out */
} fixtures[] = {
    {"e2b-mm", NULL, false, 0},
    {"e2b-mmproj", "e2b-mmproj.mmproj.gguf", true, 0},
    {"31b-vision", NULL, false, 0},
    {"12b-mm", NULL, true, 3},
};
static const int devices[] = {MODEL_REFERENCE, MODEL_HOST, MODEL_WEBGPU, MODEL_OPENCL};

typedef struct run {
    test *t;
    model_ref ref;
    beryl_engine *engine;
    beryl_session *session;
} run;

static bool run_open(run *r, test *t, size_t fixture, int device) {
    char file[40], mmproj[512];
    beryl_engine_options options = {.precision = BERYL_PRECISION_EXACT, .context = 512};
    *r = (run){.t = t};
    snprintf(file, sizeof file, "%s.ref.gguf", fixtures[fixture].name);
    if (!model_ref_open(t, &r->ref, file)) return false;
    if (fixtures[fixture].mmproj) {
        snprintf(mmproj, sizeof mmproj, "%s", test_data(t, fixtures[fixture].mmproj));
        options.mmproj = mmproj;
    }
    snprintf(file, sizeof file, "%s.gguf", fixtures[fixture].name);
    r->engine = model_engine(t, file, &model_devices[device], &options);
    if (r->engine) r->session = model_session(t, r->engine);
    return r->session != NULL;
}

static void run_close(run *r) {
    beryl_session_close(r->session);
    beryl_engine_close(r->engine);
    model_ref_close(&r->ref);
}

/* Encoded; NULL: failed. */
static beryl_media *encoded(run *r, const beryl_media_desc *desc) {
    beryl_media *media = NULL;
    beryl_task *task;
    beryl_error error = {0};
    beryl_status status = beryl_media_open(r->engine, desc, &media, &error);
    if (status == BERYL_OK) status = beryl_media_encode(media, &task, &error);
    if (status == BERYL_OK) status = model_finish(task, &error, NULL);
    if (status == BERYL_OK) return media;
    test_fail(r->t, __FILE__, __LINE__, "%s", error.message);
    beryl_media_close(media);
    return NULL;
}

/* What case i has in the place of its soft tokens; NULL: it has no media, or it failed. */
static beryl_media *media_of(run *r, uint32_t i, bool original) {
    char key[40], file[64];
    base_view said = {0};
    beryl_media_desc desc = {.size = sizeof desc, .budget = BUDGET, .resized = !original};
    snprintf(key, sizeof key, "case.%u.%s", i, original ? "image" : "resized");
    const bool picture = format_gguf_get_string(r->ref.gguf, key, &said, NULL) == BERYL_OK;
    snprintf(key, sizeof key, "case.%u.audio", i);
    if (!picture && (original || format_gguf_get_string(r->ref.gguf, key, &said, NULL)))
        return NULL;
    snprintf(file, sizeof file, "%.*s", (int)said.size, said.data);
    uint32_t n = 0;
    uint8_t *rgb = picture ? media_picture(r->t, file, &desc.width, &desc.height) : NULL;
    float *samples = picture ? NULL : media_clip(r->t, file, &n);
    desc.kind = picture ? BERYL_PICTURE : BERYL_SOUND;
    desc.rgb = rgb;
    desc.samples = samples;
    desc.n_sample = n;
    beryl_media *media = rgb || samples ? encoded(r, &desc) : NULL;
    free(rgb);
    free(samples);
    return media;
}

static void check_soft(run *r, uint32_t i, const beryl_media *media, double tolerance) {
    char name[40];
    const float *got;
    size_t m, d;
    beryl_media_soft(media, &got, &m, &d);
    snprintf(name, sizeof name, "case.%u.soft_tokens", i);
    const format_gguf_tensor *x = format_gguf_tensor_find(r->ref.gguf, name);
    const beryl_source *source = format_gguf_source(r->ref.gguf, 0);
    float *want = x ? malloc(x->size) : NULL;
    CHECK(r->t, want && x->ne[0] == d && x->ne[1] == m &&
                    source->read(source->user, x->offset, want, x->size) == BERYL_OK);
    double largest = 0;
    for (size_t k = 0; want && k < m * d; k++) largest = fmax(largest, fabs((double)want[k]));
    if (want && !test_failed(r->t))
        CHECK_NEAR(r->t, model_distance(got, want, m * d) / largest, 0, tolerance);
    free(want);
}

static void check_logits(run *r, const model_case *c, uint32_t piece, uint32_t n_suppressed) {
    const size_t n = c->n_token * c->n_vocab;
    float *got = malloc(n * sizeof *got);
    size_t suppressed = 0;
    if (got && model_logits(r->t, r->session, c->tokens, c->n_token, 0, piece, got, c->n_vocab)) {
        for (size_t i = 0; i < n; i++) {
            if (got[i] > -1e29f) continue;
            got[i] = c->logits[i];
            suppressed++;
        }
        CHECK_NEAR(r->t, model_distance(got, c->logits, n), 0, MODEL_TOLERANCE);
        CHECK_INT(r->t, suppressed, n_suppressed * c->n_token);
    }
    free(got);
}

/* Every case with media: logits at every position, the greedy answer, and both once more by what
 * the session kept. */
static void check_cases(test *t, size_t fixture, int device) {
    run r;
    uint32_t n = 0;
    if (run_open(&r, t, fixture, device))
        for (uint32_t i = 0; i < r.ref.n_case && !test_failed(t); i++) {
            model_case c;
            beryl_media *media = media_of(&r, i, false);
            if (!media) continue;
            n++;
            check_soft(&r, i, media, SOFT_TOLERANCE);
            CHECK(t, model_case_read(t, &r.ref, i, &c));
            CHECK_INT(t, beryl_session_media(r.session, &media, 1, NULL), BERYL_OK);
            beryl_media_close(media); /* the session keeps it */
            check_logits(&r, &c, device == MODEL_HOST ? 7 : 0, fixtures[fixture].n_suppressed);
            for (uint32_t k = 0; k < 2 && !test_failed(t); k++) {
                model_answer a;
                if (!k) CHECK_INT(t, beryl_session_rewind(r.session, 0, NULL), BERYL_OK);
                if (!model_generate(t, r.session, c.tokens, c.n_token, (uint32_t)c.n_greedy, NULL,
                                    &a))
                    break;
                model_check_greedy(t, &c, a.tokens, a.n_token);
                CHECK_INT(t, a.result.n_reused, k ? c.n_token - 1 : 0);
            }
        }
    if (r.session) CHECK(t, n > 0);
    run_close(&r);
}

/* Another picture of the same size is noticed; the same one given anew is not read again. */
static void check_content(test *t) {
    run r;
    model_case c;
    model_answer a;
    if (run_open(&r, t, 0, MODEL_REFERENCE)) {
        beryl_media *media = media_of(&r, 3, false), *again = media_of(&r, 3, false), *other;
        size_t m;
        beryl_media_soft(media, NULL, &m, NULL);
        uint8_t *rgb = calloc(m, UNIT * UNIT * 3);
        other = encoded(&r, &(beryl_media_desc){.size = sizeof(beryl_media_desc),
                                                .kind = BERYL_PICTURE,
                                                .rgb = rgb,
                                                .width = UNIT * (uint32_t)m / 5,
                                                .height = UNIT * 5,
                                                .budget = BUDGET,
                                                .resized = true});
        CHECK(t, model_case_read(t, &r.ref, 3, &c) && media && again && other && m % 5 == 0);
        beryl_media *const turns[] = {media, again, other, media};
        const size_t reused[] = {0, c.n_token - 1, 6, 6};
        for (size_t i = 0; i < 4 && !test_failed(t); i++) {
            CHECK_INT(t, beryl_session_media(r.session, &turns[i], 1, NULL), BERYL_OK);
            if (!model_generate(t, r.session, c.tokens, c.n_token, 1, NULL, &a)) break;
            CHECK_INT(t, a.result.n_reused, reused[i]);
        }
        free(rgb);
        beryl_media_close(media);
        beryl_media_close(again);
        beryl_media_close(other);
    }
    run_close(&r);
}

static void expect(run *r, const beryl_media_desc *desc, beryl_status status, const char *why) {
    beryl_media *media = NULL;
    beryl_error error = {0};
    CHECK_INT(r->t, beryl_media_open(r->engine, desc, &media, &error), status);
    if (!strstr(error.message, why))
        test_fail(r->t, __FILE__, __LINE__, "'%s', not '%s'", error.message, why);
    CHECK(r->t, media == NULL);
}

static void check_refused(test *t) {
    static const uint8_t rgb[UNIT * UNIT * 3];
    static const float samples[1600];
    run r;
    beryl_error error = {0};
    beryl_task *task;
    model_case c;
    if (run_open(&r, t, 0, MODEL_REFERENCE)) {
        const beryl_media_desc picture = {.size = sizeof picture,
                                          .kind = BERYL_PICTURE,
                                          .rgb = rgb,
                                          .width = UNIT,
                                          .height = UNIT,
                                          .resized = true},
                               sound = {.size = sizeof sound,
                                        .kind = BERYL_SOUND,
                                        .samples = samples,
                                        .n_sample = 1600};
        beryl_media_desc d = picture;
        d.width = 0;
        expect(&r, &d, BERYL_MISUSE, "without pixels");
        d.width = 70000;
        expect(&r, &d, BERYL_BAD_INPUT, "too large");
        d.width = UNIT - 1;
        expect(&r, &d, BERYL_BAD_INPUT, "no multiples of 48");
        d = picture;
        d.budget = 5000;
        expect(&r, &d, BERYL_BAD_INPUT, "at most 1120");
        d = sound;
        d.n_sample = 480001;
        expect(&r, &d, BERYL_BAD_INPUT, "480001 samples");
        d.n_sample = 160;
        expect(&r, &d, BERYL_BAD_INPUT, "too short");
        d.rate = 8000;
        d.n_sample = 240001;
        expect(&r, &d, BERYL_BAD_INPUT, "at most 30 s");
        d.rate = 999;
        expect(&r, &d, BERYL_MISUSE, "1000 to 768000");
        d.rate = 8000;
        d.samples = NULL;
        expect(&r, &d, BERYL_MISUSE, "without samples");
        d.kind = 3;
        expect(&r, &d, BERYL_MISUSE, "a picture or sound");
        beryl_media *media = NULL;
        size_t n_soft, n_twice;
        d = sound;
        d.rate = 8000; /* half as many samples a second */
        d.n_sample = 800;
        CHECK_INT(t, beryl_media_open(r.engine, &d, &media, &error), BERYL_OK);
        beryl_media_soft(media, NULL, &n_twice, NULL);
        beryl_media_close(media);
        CHECK_INT(t, beryl_media_open(r.engine, &sound, &media, &error), BERYL_OK);
        beryl_media_soft(media, NULL, &n_soft, NULL);
        CHECK_INT(t, n_twice, n_soft);
        CHECK_INT(t, beryl_session_media(r.session, &media, 1, &error), BERYL_MISUSE);
        CHECK(t, strstr(error.message, "not encoded") != NULL);
        CHECK_INT(t, beryl_media_encode(media, &task, &error), BERYL_OK);
        beryl_task_close(task); /* never stepped */
        CHECK_INT(t, beryl_media_encode(media, &task, &error), BERYL_OK);
        CHECK_INT(t, model_finish(task, &error, NULL), BERYL_OK);
        CHECK_INT(t, beryl_session_media(r.session, &media, 1, &error), BERYL_OK);
        CHECK(t, model_case_read(t, &r.ref, 3, &c));
        const beryl_generate_options greedy = model_greedy(1);
        CHECK_INT(t, beryl_session_generate(r.session, c.tokens, c.n_token, &greedy, &task, &error),
                  BERYL_BAD_INPUT);
        CHECK(t, strstr(error.message, "of another kind or length") != NULL);
        CHECK(t, model_case_read(t, &r.ref, 0, &c));
        CHECK_INT(t, beryl_session_generate(r.session, c.tokens, c.n_token, &greedy, &task, &error),
                  BERYL_BAD_INPUT);
        CHECK(t, strstr(error.message, "for 0 places") != NULL);
        CHECK_INT(t, beryl_session_media(r.session, NULL, 0, &error), BERYL_OK);
        beryl_media_close(media);
    }
    run_close(&r);
    if (!test_failed(t) && run_open(&r, t, 2, MODEL_REFERENCE)) /* hears nothing */
        expect(&r,
               &(beryl_media_desc){.size = sizeof(beryl_media_desc),
                                   .kind = BERYL_SOUND,
                                   .samples = samples,
                                   .n_sample = 1600},
               BERYL_UNSUPPORTED, "no tower for sound");
    run_close(&r);
}

/* The original picture, at the size and with the numbers that the reference has. */
static void check_resized(test *t, const char *name, uint32_t i) {
    char file[64];
    base_heap heap;
    base_heap_init(&heap, NULL);
    uint32_t width, height, want_width, want_height, to_width, to_height, most = 0;
    snprintf(file, sizeof file, "%s.%u.png", name, i);
    uint8_t *rgb = media_picture(t, file, &width, &height);
    snprintf(file, sizeof file, "%s.%u.resized.png", name, i);
    uint8_t *want = media_picture(t, file, &want_width, &want_height),
            *got = malloc((size_t)want_width * want_height * 3);
    if (rgb && want && got) {
        media_fit(width, height, UNIT, BUDGET, &to_width, &to_height);
        CHECK_INT(t, to_width, want_width);
        CHECK_INT(t, to_height, want_height);
        CHECK_INT(t, media_resize(&heap, rgb, width, height, got, want_width, want_height),
                  BERYL_OK);
        for (size_t k = 0; k < (size_t)want_width * want_height * 3; k++) {
            const uint32_t off = (uint32_t)abs(got[k] - want[k]);
            if (off > most) most = off;
        }
        CHECK(t, most <= 1);
    }
    free(rgb);
    free(want);
    free(got);
    CHECK_INT(t, heap.bytes, 0);
}

static void check_original(test *t, size_t fixture) {
    run r;
    uint32_t n = 0;
    if (run_open(&r, t, fixture, MODEL_REFERENCE))
        for (uint32_t i = 0; i < r.ref.n_case && !test_failed(t); i++) {
            beryl_media *media = media_of(&r, i, true);
            if (!media) continue;
            check_soft(&r, i, media, ORIGINAL_TOLERANCE);
            beryl_media_close(media);
            n++;
        }
    if (r.session) CHECK(t, n > 0);
    run_close(&r);
}

void test_media(test *t) {
    for (size_t i = 0; i < sizeof fixtures / sizeof *fixtures; i++) {
        for (size_t d = 0; d < sizeof devices / sizeof *devices; d++)
            if (test_drawn(d + i, 0, sizeof devices / sizeof *devices) &&
                test_case(t, "media/%s/%s", model_devices[devices[d]].name, fixtures[i].name))
                check_cases(t, i, devices[d]);
        if (fixtures[i].small && test_case(t, "media/from-the-original-%s", fixtures[i].name))
            check_original(t, i);
        for (uint32_t k = 0; k < 2; k++)
            if (test_case(t, "media/resized-%s-%u", fixtures[i].name, k))
                check_resized(t, fixtures[i].name, k);
    }
    if (test_case(t, "media/content-is-what-is-reused")) check_content(t);
    if (test_case(t, "media/refused")) check_refused(t);
}
