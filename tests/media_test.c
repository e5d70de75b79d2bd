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

static bool run_open_in(run *r, test *t, size_t fixture, int device, uint64_t memory) {
    char file[40], mmproj[512];
    beryl_engine_options options = {
        .precision = BERYL_PRECISION_EXACT, .context = 512, .memory = memory};
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

static bool run_open(run *r, test *t, size_t fixture, int device) {
    return run_open_in(r, t, fixture, device, 0);
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
        d.kind = 4;
        expect(&r, &d, BERYL_MISUSE, "a picture, sound or video");
        d.kind = BERYL_VIDEO;
        expect(&r, &d, BERYL_MISUSE, "a video of 0 frames");
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

static uint64_t on_device(const run *r) {
    beryl_stats stats;
    beryl_engine_stats(r->engine, &stats);
    return stats.device_bytes;
}

/* What towers take on the device comes back when they are let go, and where there is room for one
 * alone, they take turns. */
static void check_let_go(test *t) {
    run r;
    uint64_t none = 0, one = 0, both = 0, room = UINT64_C(1) << 32;
    for (int small = 0; small < 2 && !test_failed(t); small++) {
        if (run_open_in(&r, t, 0, MODEL_DUMMY, room)) {
            beryl_engine_trim(r.engine);
            none = on_device(&r);
            beryl_media *picture = media_of(&r, 3, false);
            one = on_device(&r);
            beryl_media *clip = media_of(&r, 5, false);
            both = on_device(&r);
            CHECK(t, picture && clip && none < one && (small || one < both));
            beryl_media *again = media_of(&r, 3, false);
            if (small) CHECK_INT(t, on_device(&r), one);
            else CHECK_INT(t, on_device(&r), both);
            beryl_media_close(picture);
            beryl_media_close(clip);
            beryl_media_close(again);
            beryl_engine_trim(r.engine);
            CHECK_INT(t, on_device(&r), none);
            room = none + (both - one > one - none ? both - one : one - none) + 1;
        }
        run_close(&r);
    }
    beryl_engine_trim(NULL);
}

/* What is prepared is there when media comes: its weights, its plan and its programs. */
static void check_prepared(test *t) {
    run r;
    if (run_open(&r, t, 0, MODEL_DUMMY)) {
        beryl_error error = {0};
        beryl_task *task = NULL;
        const beryl_media_kind kinds[] = {BERYL_PICTURE, BERYL_SOUND};
        for (uint32_t i = 0; i < 2; i++) {
            const uint64_t none = on_device(&r);
            CHECK_INT(t, beryl_engine_prepare_media(r.engine, kinds[i], &task, &error), BERYL_OK);
            CHECK_INT(t, model_finish(task, &error, NULL), BERYL_OK);
            const uint64_t ready = on_device(&r);
            beryl_stats before, after;
            beryl_engine_stats(r.engine, &before);
            CHECK(t, ready > none);
            beryl_media *media = media_of(&r, i ? 5 : 3, false);
            beryl_engine_stats(r.engine, &after);
            CHECK(t, media && after.device_bytes == ready);
            CHECK(t, before.device_objects == after.device_objects);
            beryl_media_close(media);
        }
        beryl_engine_trim(r.engine);
        CHECK_INT(t, beryl_engine_prepare_media(r.engine, BERYL_PICTURE, &task, &error), BERYL_OK);
        CHECK(t, beryl_cancel(task));
        CHECK_INT(t, model_finish(task, &error, NULL), BERYL_CANCELLED);
        CHECK_INT(t, beryl_engine_prepare_media(r.engine, 0, &task, &error), BERYL_MISUSE);
    }
    run_close(&r);
}

/* A tower that is loaded again computes what it did. */
static void check_comes_back(test *t) {
    run r;
    if (run_open(&r, t, 0, MODEL_REFERENCE)) {
        const float *want, *got;
        size_t n = 0, m = 0, d;
        beryl_media *first = media_of(&r, 3, false);
        beryl_engine_trim(r.engine);
        beryl_media *again = media_of(&r, 3, false);
        beryl_media_soft(first, &want, &n, &d);
        beryl_media_soft(again, &got, &m, &d);
        CHECK(t, want && got && n == m && !memcmp(want, got, n * d * sizeof *want));
        beryl_media_close(first);
        beryl_media_close(again);
    }
    run_close(&r);
}

/* A WAV file of 16 bits, one channel, at 8 kHz. */
static uint8_t *wav_of(uint32_t n_sample, size_t *size) {
    const uint32_t n = n_sample * 2;
    static const char head[] =
        "RIFF\0\0\0\0WAVEfmt \x10\0\0\0\1\0\1\0\x40\x1f\0\0\x80\x3e\0\0\2\0\x10\0data";
    enum { HEAD = 44 };
    uint8_t *file = calloc(1, *size = HEAD + n);
    memcpy(file, head, HEAD - 4);
    for (uint32_t i = 0; i < 4; i++) file[HEAD - 4 + i] = (uint8_t)(n >> 8 * i);
    for (size_t i = HEAD; i < *size; i += 2) file[i] = (uint8_t)(i * 7);
    return file;
}

/* Long sound in clips: what is left is told, as long as it can be heard. */
static void check_clips(test *t) {
    enum { CLIP = 480000 };
    static const struct {
        double seconds;
        uint64_t from, rest;
        bool part;
        const char *refused;
    } clips[] = {
        {12, 0, 0, false, NULL},    {35, 0, 0, false, "35.0 s: at most 30 s"},
        {35, 0, 80000, true, NULL}, {35, CLIP, 0, true, NULL},
        {35, CLIP, 0, false, NULL}, {35, 2 * CLIP, 0, true, "without samples after that time"},
        {30.05, 0, 0, false, NULL}, {0, 0, 0, false, "without samples"}};
    run r;
    if (run_open(&r, t, 1, MODEL_REFERENCE))
        for (size_t i = 0; i < sizeof clips / sizeof *clips; i++) {
            beryl_media *media = NULL;
            beryl_error error = {0};
            size_t size;
            uint8_t *file = wav_of((uint32_t)(clips[i].seconds * 8000), &size);
            const beryl_media_desc desc = {.size = sizeof desc,
                                           .kind = BERYL_SOUND,
                                           .file = file,
                                           .file_size = size,
                                           .from = clips[i].from,
                                           .part = clips[i].part};
            if (clips[i].refused) {
                expect(&r, &desc, BERYL_BAD_INPUT, clips[i].refused);
            } else {
                CHECK_INT(t, beryl_media_open(r.engine, &desc, &media, &error), BERYL_OK);
                CHECK_INT(t, beryl_media_rest(media), clips[i].rest);
            }
            beryl_media_close(media);
            free(file);
        }
    run_close(&r);
}

/* Times and frames of a video in a conversation, "00:00 <frame> 01:05 <frame>"; frames are what the
 * same pictures are. */
static void check_video(test *t) {
    enum { WIDE = 2, N = 2 };
    static const double times[N] = {0, 65};
    static uint8_t rgb[N * WIDE * UNIT * UNIT * 3];
    run r;
    for (size_t i = 0; i < sizeof rgb; i++) rgb[i] = (uint8_t)(i * i >> 7);
    if (run_open(&r, t, 1, MODEL_REFERENCE)) {
        beryl_media_desc desc = {.size = sizeof desc,
                                 .kind = BERYL_VIDEO,
                                 .rgb = rgb,
                                 .width = WIDE * UNIT,
                                 .height = UNIT,
                                 .resized = true,
                                 .n_frame = N,
                                 .times = times};
        beryl_media *video = encoded(&r, &desc);
        const float *soft;
        size_t n;
        beryl_media_soft(video, &soft, &n, NULL);
        CHECK(t, !soft && n == N * WIDE);
        static const char chat[] =
            "{\"messages\":[{\"role\":\"user\",\"content\":[{\"type\":\"video\"},"
            "{\"type\":\"text\",\"text\":\"hi\"}]}]}";
        static const char *const texts[N] = {"00:00 ", " 01:05 "};
        const beryl_generate_options greedy = model_greedy(1);
        beryl_task *task = NULL;
        beryl_error error = {0};
        const int32_t *tokens;
        CHECK_INT(t, beryl_session_media(r.session, &video, 1, &error), BERYL_OK);
        CHECK_INT(t, beryl_session_chat(r.session, chat, &greedy, &task, &error), BERYL_OK);
        if (!test_failed(t)) CHECK_INT(t, model_finish(task, &error, NULL), BERYL_OK);
        beryl_session_tokens(r.session, &tokens, &n);
        size_t at = 0, n_text = 0, first = 0;
        for (int i = 0; i < N && !test_failed(t); i++) {
            int32_t text[16];
            while (at < n && tokens[at] >= 0) at++;
            CHECK_INT(t,
                      beryl_tokenize(r.engine, texts[i], strlen(texts[i]), false, text, 16, &n_text,
                                     &error),
                      BERYL_OK);
            CHECK(t, n_text <= 16 && at > n_text && at + WIDE < n);
            CHECK(t, !memcmp(tokens + at - 1 - n_text, text, n_text * sizeof *text));
            for (size_t k = 0; k < WIDE; k++) CHECK(t, tokens[at++] < 0);
            CHECK(t, tokens[at] > 0);
            if (i) CHECK_INT(t, at, first + 1 + n_text + 1 + WIDE); /* end, text, begin */
            first = at;
        }
        desc.kind = BERYL_VIDEO;
        desc.n_frame = BERYL_VIDEO_FRAMES + 1;
        expect(&r, &desc, BERYL_MISUSE, "1 to 32 are taken");
        desc.n_frame = N;
        desc.times = (const double[]){0, -1};
        expect(&r, &desc, BERYL_BAD_INPUT, "frame 1 of a video at -1 s");
        beryl_media_close(video);
    }
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
    /* OpenCL's driver takes most of a minute: towers/opencl has the towers alone */
    const uint32_t n = sizeof devices / sizeof *devices - !getenv("BERYL_TEST_ALL");
    for (size_t i = 0; i < sizeof fixtures / sizeof *fixtures; i++) {
        for (size_t d = 0; d < n; d++)
            if (test_drawn(d + i, 0, n) &&
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
    if (test_case(t, "media/let-go")) check_let_go(t);
    if (test_case(t, "media/prepared")) check_prepared(t);
    if (test_case(t, "media/comes-back")) check_comes_back(t);
    if (test_case(t, "media/long-sound-in-clips")) check_clips(t);
    if (test_case(t, "media/video")) check_video(t);
}
