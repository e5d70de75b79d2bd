/* attach_test.c - pictures and sound that a conversation holds itself: read as those that are given
 * beside it, not encoded twice, refused where they are nothing. */
#include "model.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* A file of tests/data in base64; NULL: failed. Freed by the caller. */
static char *base64_of(test *t, const char *file) {
    static const char letters[] =
        "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789+/";
    FILE *f = fopen(test_data(t, file), "rb");
    unsigned char three[3];
    size_t at = 0, n;
    char *text = malloc(1 << 22);
    while (f && text && at < (1 << 22) - 8 && (n = fread(three, 1, 3, f)) > 0) {
        const uint32_t bits = (uint32_t)three[0] << 16 | (n > 1 ? (uint32_t)three[1] << 8 : 0) |
                              (n > 2 ? three[2] : 0);
        for (size_t k = 0; k < 4; k++)
            text[at++] = k <= n ? letters[bits >> (18 - 6 * k) & 63] : '=';
    }
    if (text) text[at] = 0;
    CHECK(t, f && text && at > 100);
    if (f) fclose(f);
    return text;
}

/* A conversation of these parts, of which `file` fills the one %s. */
static char *chat_of(const char *parts, const char *file) {
    const size_t size = strlen(parts) + (file ? strlen(file) : 0) + 200;
    char *chat = malloc(size);
    if (!chat) return NULL;
    const int n = snprintf(chat, size, "{\"messages\":[{\"role\":\"user\",\"content\":[");
    snprintf(chat + n, size - (size_t)n, parts, file ? file : "");
    return strcat(chat, ",{\"type\":\"text\",\"text\":\"And?\"}]}]}");
}

static bool answer(test *t, beryl_session *s, const char *parts, const char *file,
                   model_answer *a) {
    const beryl_generate_options greedy = model_greedy(4);
    char *chat = chat_of(parts, file);
    const bool fine = chat && model_chat(t, s, chat, &greedy, a);
    free(chat);
    return fine;
}

static void refused(test *t, beryl_session *s, const char *parts, const char *file,
                    beryl_status status, const char *why) {
    beryl_task *task = NULL;
    beryl_error error = {0};
    char *chat = chat_of(parts, file);
    const beryl_status got = beryl_session_chat(s, chat, NULL, &task, &error);
    if (got != status || !strstr(error.message, why))
        test_fail(t, __FILE__, __LINE__, "%s: %s: %s", parts, beryl_status_name(got),
                  error.message);
    beryl_task_close(task);
    free(chat);
}

static beryl_media *given(test *t, beryl_engine *e, const char *file, beryl_media_kind kind,
                          uint32_t budget) {
    static uint8_t bytes[1 << 20];
    beryl_media *media = NULL;
    beryl_task *task = NULL;
    FILE *f = fopen(test_data(t, file), "rb");
    const size_t n = f ? fread(bytes, 1, sizeof bytes, f) : 0;
    const beryl_media_desc desc = {
        .size = sizeof desc, .kind = kind, .file = bytes, .file_size = n, .budget = budget};
    if (f) fclose(f);
    CHECK_INT(t, beryl_media_open(e, &desc, &media, NULL), BERYL_OK);
    if (media) CHECK_INT(t, beryl_media_encode(media, &task, NULL), BERYL_OK);
    if (task) CHECK_INT(t, model_finish(task, NULL, NULL), BERYL_OK);
    return media;
}

static const struct {
    const char *name, *file, *parts, *place;
    beryl_media_kind kind;
    uint32_t budget;
} held[] = {
    {"picture", "e2b-mm.0.png",
     "{\"type\":\"image_url\",\"image_url\":{\"url\":\"data:image/png;base64,%s\","
     "\"detail\":\"low\"}}",
     "{\"type\":\"image\"}", BERYL_PICTURE, 70},
    {"sound", "e2b-mm.0.wav",
     "{\"type\":\"input_audio\",\"input_audio\":{\"data\":\"%s\",\"format\":\"wav\"}}",
     "{\"type\":\"audio\"}", BERYL_SOUND, 0},
};

/* As given beside the conversation: the same tokens, soft ones by content, and the same answer. The
 * next turn reads nothing again. */
static void check_held(test *t, size_t i) {
    const beryl_engine_options options = {
        .precision = BERYL_PRECISION_EXACT, .context = 512, .sessions = 2};
    beryl_engine *e = model_engine(t, "e2b-mm.gguf", &model_devices[MODEL_REFERENCE], &options);
    beryl_session *a = e ? model_session(t, e) : NULL, *b = a ? model_session(t, e) : NULL;
    char *text = base64_of(t, held[i].file);
    beryl_media *media = b ? given(t, e, held[i].file, held[i].kind, held[i].budget) : NULL;
    model_answer want, got;
    if (media && text && beryl_session_media(a, &media, 1, NULL) == BERYL_OK &&
        answer(t, a, held[i].place, NULL, &want) && answer(t, b, held[i].parts, text, &got)) {
        const int32_t *x, *y;
        size_t n, m;
        beryl_session_tokens(a, &x, &n);
        beryl_session_tokens(b, &y, &m);
        CHECK(t, n == m && !memcmp(x, y, n * sizeof *x));
        CHECK_TEXT(t, got.text, want.text);
        CHECK_INT(t, got.result.n_reused, 0);
        beryl_engine_trim(e);
        beryl_stats before, after;
        beryl_engine_stats(e, &before);
        if (answer(t, b, held[i].parts, text, &got))
            CHECK_INT(t, got.result.n_reused, got.result.n_prompt - 1);
        beryl_engine_stats(e, &after); /* no tower came back */
        CHECK(t, after.host_bytes < before.host_bytes + (1 << 20));
    }
    beryl_media_close(media);
    beryl_session_close(a);
    beryl_session_close(b);
    beryl_engine_close(e);
    free(text);
}

/* One part holds its clip, for the other it is given. */
static void check_mixed(test *t) {
    const beryl_engine_options options = {.precision = BERYL_PRECISION_EXACT, .context = 512};
    beryl_engine *e = model_engine(t, "e2b-mm.gguf", &model_devices[MODEL_REFERENCE], &options);
    beryl_session *s = e ? model_session(t, e) : NULL;
    beryl_media *clip = s ? given(t, e, "e2b-mm.1.wav", BERYL_SOUND, 0) : NULL;
    char *file = base64_of(t, "e2b-mm.0.wav"), parts[300];
    model_answer a;
    if (clip && file && beryl_session_media(s, &clip, 1, NULL) == BERYL_OK) {
        snprintf(parts, sizeof parts, "%s,{\"type\":\"audio\"}", held[1].parts);
        answer(t, s, parts, file, &a);
        snprintf(parts, sizeof parts, "%s,{\"type\":\"audio\"},{\"type\":\"image\"}",
                 held[1].parts);
        refused(t, s, parts, file, BERYL_BAD_INPUT, "no more was given");
        refused(t, s, held[1].parts, file, BERYL_BAD_INPUT, "1 pictures and clips for 0 places");
        snprintf(parts, sizeof parts, "%s,{\"type\":\"image\"}", held[1].parts);
        refused(t, s, parts, file, BERYL_BAD_INPUT, "a place for a picture");
    }
    beryl_media_close(clip);
    beryl_session_close(s);
    beryl_engine_close(e);
    free(file);
}

static void check_refused(test *t) {
    static const struct {
        const char *part, *why;
        beryl_status status;
    } cases[] = {
#define URL(url) "{\"type\":\"image_url\",\"image_url\":{\"url\":\"" url "\"}}"
#define DATA(data) "{\"type\":\"input_audio\",\"input_audio\":{\"data\":\"" data "\"}}"
        {URL("https://example.org/a.png"), "a data URL in base64", BERYL_BAD_INPUT},
        {URL("file:///etc/passwd"), "a data URL in base64", BERYL_BAD_INPUT},
        {URL("data:image/png,abc"), "a data URL in base64", BERYL_BAD_INPUT},
        {URL("data:image/png;base64"), "a data URL in base64", BERYL_BAD_INPUT},
        {URL("data:image/png;base64,a"), "no base64", BERYL_BAD_INPUT},
        {URL("data:image/png;base64,ab=c"), "no base64", BERYL_BAD_INPUT},
        {URL("data:image/png;base64,ab==="), "no base64", BERYL_BAD_INPUT},
        {URL("data:image/png;base64,a$bc"), "no base64", BERYL_BAD_INPUT},
        {URL("data:image/png;base64,aGVsbG8gdGhlcmU="), "", BERYL_BAD_FILE},
        {URL("data:image/png;base64,"), "", BERYL_BAD_FILE},
        {"{\"type\":\"image_url\",\"image_url\":{}}", "a data URL in base64", BERYL_BAD_INPUT},
        {"{\"type\":\"image_url\",\"image_url\":{\"url\":\"data:image/png;base64,aGVs\","
         "\"detail\":\"best\"}}",
         "low, high or auto", BERYL_BAD_INPUT},
        {DATA("UklGRg=="), "", BERYL_BAD_FILE},
        {"{\"type\":\"input_audio\",\"input_audio\":{}}", "an object with data", BERYL_BAD_INPUT},
        {"{\"type\":\"image_url\"}", "none was given", BERYL_BAD_INPUT},
        {"{\"type\":\"video\"}", "none was given", BERYL_BAD_INPUT},
    };
    const beryl_engine_options options = {.precision = BERYL_PRECISION_EXACT, .context = 128};
    beryl_engine *e = model_engine(t, "e2b-mm.gguf", &model_devices[MODEL_REFERENCE], &options);
    beryl_session *s = e ? model_session(t, e) : NULL;
    for (size_t i = 0; s && i < sizeof cases / sizeof *cases; i++)
        refused(t, s, cases[i].part, NULL, cases[i].status, cases[i].why);
    beryl_session_close(s);
    beryl_engine_close(e);
}

void test_attach(test *t) {
    for (size_t i = 0; i < sizeof held / sizeof *held; i++)
        if (test_case(t, "attach/%s", held[i].name)) check_held(t, i);
    if (test_case(t, "attach/beside-what-is-given")) check_mixed(t);
    if (test_case(t, "attach/refused")) check_refused(t);
}
