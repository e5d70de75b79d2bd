/* session_test.c - what sessions promise beside right numbers: limits, cancelling, stop texts,
 * penalties, seeds, reuse of what is there, and that a steady decode step makes nothing. */
#define _POSIX_C_SOURCE 200809L
#include "model.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

/* ---- what most cases need -------------------------------------------------------------------- */

typedef struct place { /* an engine, a session, case 1 of e2b-f32: 47 tokens */
    test *t;
    model_ref ref;
    model_case c;
    beryl_engine *engine;
    beryl_session *session;
} place;

static bool place_open(place *p, test *t, int device, uint32_t piece, uint32_t context,
                       uint32_t sessions) {
    beryl_engine_options options = {.precision = BERYL_PRECISION_EXACT,
                                    .piece = piece,
                                    .context = context,
                                    .sessions = sessions};
    *p = (place){.t = t};
    if (!model_ref_open(t, &p->ref, "e2b-f32.ref.gguf") || !model_case_get(t, &p->ref, 1, &p->c))
        return false;
    p->engine = model_engine(t, "e2b-f32.gguf", &model_devices[device], &options);
    if (p->engine) p->session = model_session(t, p->engine);
    return p->session != NULL;
}

static void place_close(place *p) {
    beryl_session_close(p->session);
    beryl_engine_close(p->engine);
    model_ref_close(&p->ref);
}

static void check_sound(place *p) {
    model_answer a;
    if (model_generate(p->t, p->session, p->c.tokens, p->c.n_token, (uint32_t)p->c.n_greedy, NULL,
                       &a))
        model_check_greedy(p->t, &p->c, a.tokens, a.n_token);
}

static beryl_task *start(place *p, beryl_session *s, uint32_t most) {
    beryl_generate_options o = model_greedy(most);
    beryl_task *task = NULL;
    beryl_error error = {0};
    if (beryl_session_generate(s, p->c.tokens, p->c.n_token, &o, &task, &error) != BERYL_OK)
        test_fail(p->t, __FILE__, __LINE__, "%s", error.message);
    return task;
}

/* The default model for cases about text. */
static bool chat_open(place *p, test *t, int device, uint32_t piece) {
    beryl_engine_options options = {
        .precision = BERYL_PRECISION_EXACT, .piece = piece, .context = 1024};
    *p = (place){.t = t};
    p->engine = model_engine(t, "default", &model_devices[device], &options);
    if (p->engine) p->session = model_session(t, p->engine);
    return p->session != NULL;
}

/* ---- limits ---------------------------------------------------------------------------------- */

static void sessions_are_limited(test *t) {
    place p;
    beryl_session *second = NULL, *third = NULL;
    beryl_error error = {0};
    if (place_open(&p, t, MODEL_REFERENCE, 0, 128, 2)) {
        CHECK_INT(t, beryl_session_open(p.engine, NULL, &second, NULL), BERYL_OK);
        CHECK_INT(t, beryl_session_open(p.engine, NULL, &third, &error), BERYL_MISUSE);
        CHECK(t, !third && error.message[0]);
        beryl_session_close(second);
        CHECK_INT(t, beryl_session_open(p.engine, NULL, &second, NULL), BERYL_OK);
        check_sound(&p);
        beryl_session_close(second);
    }
    place_close(&p);
}

static void context_full_is_recoverable(test *t, int device) {
    enum { CONTEXT = 64 };
    place p;
    int32_t tokens[CONTEXT + 1] = {0};
    if (place_open(&p, t, device, 16, CONTEXT, 1)) {
        beryl_task *task = NULL;
        beryl_error error = {0};
        model_answer a;
        const int32_t *held;
        size_t n_held;
        check_sound(&p);
        CHECK_INT(t, beryl_session_generate(p.session, tokens, CONTEXT + 1, NULL, &task, &error),
                  BERYL_CONTEXT_FULL);
        CHECK(t, !task && error.message[0]);
        beryl_session_tokens(p.session, &held, &n_held);
        CHECK_INT(t, n_held, p.c.n_token + p.c.n_greedy); /* as it was */
        /* No maximum: goes on until the context is full, which is an end and no error. */
        beryl_generate_options o = model_greedy(0);
        if (model_generate(t, p.session, p.c.tokens, p.c.n_token, 0, &o, &a)) {
            CHECK_INT(t, a.result.end, BERYL_END_CONTEXT);
            CHECK_INT(t, a.n_token,
                      CONTEXT - p.c.n_token + 1); /* the last one is chosen and not fed */
            CHECK(t, !memcmp(a.tokens, p.c.greedy, p.c.n_greedy * sizeof *a.tokens));
        }
        if (model_generate(t, p.session, tokens, CONTEXT, 0, &o, &a)) CHECK_INT(t, a.n_token, 1);
        check_sound(&p);
    }
    place_close(&p);
}

/* One prompt of 700 tokens, whole and in pieces that go through other plans. */
static void pieces_answer_alike(test *t, int device) {
    enum { N = 700, ANSWER = 12 };
    static const uint32_t pieces[] = {1024, 512};
    int32_t tokens[N], first[ANSWER];
    for (int32_t i = 0; i < N; i++) tokens[i] = 3 + i * 7 % 200;
    for (size_t i = 0; i < sizeof pieces / sizeof *pieces; i++) {
        place p;
        model_answer a;
        if (place_open(&p, t, device, pieces[i], 1024, 1) &&
            model_generate(t, p.session, tokens, N, ANSWER, NULL, &a)) {
            CHECK_INT(t, a.n_token, ANSWER);
            if (i == 0) memcpy(first, a.tokens, sizeof first);
            CHECK(t, !memcmp(first, a.tokens, sizeof first));
        }
        place_close(&p);
    }
}

static void maximum_and_end_of_sequence(test *t) {
    place p;
    if (chat_open(&p, t, MODEL_REFERENCE, 0)) {
        static const char chat[] = "{\"messages\":[{\"role\":\"user\",\"content\":\"Hello\"}]}";
        beryl_generate_options o = {.size = sizeof o, .greedy = true};
        model_answer whole, a;
        if (model_chat(t, p.session, chat, &o, &whole)) {
            CHECK_INT(t, whole.result.end, BERYL_END_STOP);
            CHECK_INT(t, whole.n_token, whole.result.n_generated);
            CHECK(t, whole.text_size > 0);
        }
        o.max_tokens = 3;
        if (model_chat(t, p.session, chat, &o, &a)) {
            CHECK_INT(t, a.result.end, BERYL_END_LENGTH);
            CHECK_INT(t, a.n_token, 3);
            CHECK(t, !memcmp(a.tokens, whole.tokens, 3 * sizeof *a.tokens));
        }
        o.max_tokens = whole.result.n_generated + 5;
        o.ignore_eos = true;
        if (model_chat(t, p.session, chat, &o, &a)) {
            CHECK_INT(t, a.result.end, BERYL_END_LENGTH);
            CHECK_INT(t, a.n_token, o.max_tokens);
        }
    }
    place_close(&p);
}

/* ---- two engines ----------------------------------------------------------------------------- */

static void two_engines(test *t, int one, int other) {
    place p[2];
    model_answer *a = calloc(2, sizeof *a);
    beryl_task *tasks[2] = {0};
    beryl_status status[2] = {BERYL_EVENT, BERYL_EVENT};
    if (!a) abort();
    bool opened = place_open(&p[0], t, one, 3, 128, 1);
    opened = place_open(&p[1], t, other, 0, 256, 2) && opened;
    for (int i = 0; opened && i < 2; i++)
        tasks[i] = start(&p[i], p[i].session, (uint32_t)p[i].c.n_greedy);
    while (opened && !test_failed(t) && (status[0] == BERYL_EVENT || status[1] == BERYL_EVENT))
        for (int i = 0; i < 2; i++) {
            beryl_event event;
            if (status[i] != BERYL_EVENT) continue;
            status[i] = beryl_wait(tasks[i], &event);
            if (status[i] == BERYL_EVENT) model_answer_add(&a[i], &event);
        }
    for (int i = 0; i < 2; i++) {
        if (opened) model_check_greedy(t, &p[i].c, a[i].tokens, a[i].n_token);
        beryl_task_close(tasks[i]);
        place_close(&p[i]);
    }
    free(a);
}

/* ---- cancelling ------------------------------------------------------------------------------ */

/* Cancelled after n steps, for n up to `most` or until the load gets through. A step that has to
 * wait takes a millisecond. */
static void cancel_load(test *t, const model_device *device, uint32_t stride, uint32_t most) {
    bool ended = false;
    for (uint32_t n = 0; n <= most && !ended && !test_failed(t); n += stride) {
        char path[300];
        snprintf(path, sizeof path, "%s", test_data(t, "e2b-q4_0.gguf"));
        beryl_engine_options options = {
            .size = sizeof options, .model = path, .device = device->device, .no_cache = true};
        beryl_engine *engine = NULL;
        beryl_task *task = NULL;
        CHECK_INT(t, beryl_engine_open(&options, &engine, NULL), BERYL_OK);
        CHECK_INT(t, beryl_engine_load(engine, &task, NULL), BERYL_OK);
        beryl_status status = BERYL_EVENT;
        for (uint32_t i = 0; i < n && (status == BERYL_EVENT || status == BERYL_PENDING); i++) {
            if (status == BERYL_PENDING) nanosleep(&(struct timespec){.tv_nsec = 1000000}, NULL);
            status = beryl_task_step(task, NULL);
        }
        if (status == BERYL_NO_DEVICE) {
            test_skip(t, "%s", beryl_task_error(task)->message);
            ended = true;
        } else if (status == BERYL_EVENT || status == BERYL_PENDING) {
            beryl_cancel(task);
            while ((status = beryl_wait(task, NULL)) == BERYL_EVENT) {} /* what was queued before */
            CHECK_INT(t, status, BERYL_CANCELLED);
            CHECK_INT(t, beryl_task_error(task)->code, BERYL_CANCELLED);
            CHECK_INT(t, beryl_task_step(task, NULL), BERYL_CANCELLED);
            beryl_session *s = NULL;
            CHECK_INT(t, beryl_session_open(engine, NULL, &s, NULL), BERYL_MISUSE);
        } else {
            CHECK_INT(t, status, BERYL_OK);
            ended = true;
        }
        beryl_task_close(task);
        beryl_engine_close(engine);
    }
}

/* Cancelled after so many events: within the prompt (17 pieces), then within the answer, which is
 * so long that it has not ended, however far the device is ahead. */
static void cancel_answer(test *t, int device) {
    static const uint32_t events[] = {0, 1, 7, 15, 16, 17, 20, 22};
    place p;
    if (place_open(&p, t, device, 3, 256, 2)) {
        beryl_session *other = model_session(t, p.engine);
        for (size_t k = 0; k < sizeof events / sizeof *events && !test_failed(t); k++) {
            beryl_task *task = start(&p, p.session, 60), *beside = start(&p, other, 12);
            model_answer a = {0}, b = {0};
            beryl_event event;
            beryl_status status = BERYL_EVENT;
            for (uint32_t i = 0; i < events[k] && status == BERYL_EVENT; i++) {
                status = beryl_wait(task, &event);
                if (status == BERYL_EVENT) model_answer_add(&a, &event);
            }
            CHECK_INT(t, status, BERYL_EVENT);
            beryl_cancel(task);
            while ((status = beryl_wait(task, &event)) == BERYL_EVENT) model_answer_add(&a, &event);
            CHECK_INT(t, status, BERYL_CANCELLED);
            CHECK_INT(t, beryl_task_result(task)->end, BERYL_END_CANCELLED);
            const size_t n = a.n_token < p.c.n_greedy ? a.n_token : p.c.n_greedy;
            CHECK(t, !memcmp(a.tokens, p.c.greedy, n * sizeof *a.tokens));
            beryl_task_close(task);
            while ((status = beryl_wait(beside, &event)) == BERYL_EVENT)
                model_answer_add(&b, &event);
            CHECK_INT(t, status, BERYL_OK);
            model_check_greedy(t, &p.c, b.tokens, b.n_token);
            beryl_task_close(beside);
            if (k % 2)
                check_sound(&p); /* else the next turn begins from what the cancelled one left */
            CHECK_INT(t, beryl_session_rewind(other, 0, NULL), BERYL_OK);
            CHECK_INT(t, beryl_session_rewind(p.session, k % 3 * 10, NULL), BERYL_OK);
        }
        check_sound(&p);
        beryl_session_close(other);
    }
    place_close(&p);
}

/* A task may outlive its session, a session an unfinished task; both in any order. */
static void close_early(test *t, int device) {
    place p;
    if (place_open(&p, t, device, 3, 256, 2)) {
        beryl_session *other = model_session(t, p.engine);
        beryl_task *task = start(&p, other, 12);
        for (int i = 0; i < 20; i++) CHECK_INT(t, beryl_wait(task, NULL), BERYL_EVENT);
        beryl_session_close(other);
        CHECK_INT(t, beryl_wait(task, NULL), BERYL_CANCELLED);
        beryl_task_close(task);
        task = start(&p, p.session, 12);
        for (int i = 0; i < 20; i++) CHECK_INT(t, beryl_wait(task, NULL), BERYL_EVENT);
        beryl_task *second = NULL;
        beryl_generate_options o = model_greedy(1);
        CHECK_INT(t, beryl_session_generate(p.session, p.c.tokens, 3, &o, &second, NULL),
                  BERYL_MISUSE); /* one at a time */
        CHECK_INT(t, beryl_session_rewind(p.session, 0, NULL), BERYL_MISUSE);
        beryl_task_close(task);
        check_sound(&p);
    }
    place_close(&p);
}

/* ---- stop texts ------------------------------------------------------------------------------ */

static void stop_texts(test *t) {
    place p;
    if (chat_open(&p, t, MODEL_REFERENCE, 0)) {
        static const char chat[] = "{\"messages\":[{\"role\":\"user\",\"content\":\"Hello\"}]}";
        beryl_generate_options o = {.size = sizeof o, .greedy = true};
        model_answer whole, a;
        if (!model_chat(t, p.session, chat, &o, &whole)) goto done;
        CHECK(t, whole.text_size > 12);
        /* Each part of the answer ends it where that part first begins, wherever tokens begin. */
        for (size_t at = 1; at + 5 < whole.text_size && !test_failed(t); at += 3) {
            char stop[6];
            memcpy(stop, whole.text + at, 5);
            stop[5] = 0;
            const char *const stops[] = {"\x01 never", stop, ""};
            o.stop = stops;
            o.n_stop = 3;
            if (!model_chat(t, p.session, chat, &o, &a)) break;
            CHECK_INT(t, a.result.end, BERYL_END_STOP);
            CHECK_INT(t, a.text_size, strstr(whole.text, stop) - whole.text);
            CHECK(t, !memcmp(a.text, whole.text, a.text_size));
        }
        /* Held back for a stop text that then does not come, it is delivered all the same. */
        char almost[64];
        snprintf(almost, sizeof almost, "%sx", whole.text + whole.text_size - 6);
        const char *const stops[] = {almost};
        o.stop = stops;
        o.n_stop = 1;
        if (model_chat(t, p.session, chat, &o, &a)) CHECK_TEXT(t, a.text, whole.text);
    }
done:
    place_close(&p);
}

/* ---- choosing -------------------------------------------------------------------------------- */

static beryl_generate_options draw(uint64_t seed) {
    return (beryl_generate_options){.size = sizeof(beryl_generate_options),
                                    .temperature = 1.5f,
                                    .top_k = UINT32_MAX,
                                    .top_p = 1,
                                    .seed = seed,
                                    .ignore_eos = true,
                                    .max_tokens = 24};
}

static bool same_tokens(const model_answer *a, const model_answer *b) {
    return a->n_token == b->n_token &&
           !memcmp(a->tokens, b->tokens, a->n_token * sizeof *a->tokens);
}

/* The same seed gives the same answer: again, on every device, with penalties that change nothing
 * (then the host draws). */
static void seeds(test *t, int device) {
    place p, judge;
    bool opened = place_open(&p, t, device, 0, 128, 1);
    opened = place_open(&judge, t, MODEL_REFERENCE, 0, 128, 1) && opened;
    uint32_t n_same = 0;
    model_answer first = {0}, a;
    for (uint64_t seed = 1; opened && seed <= 4 && !test_failed(t); seed++) {
        beryl_generate_options o = draw(seed << 31);
        model_answer want;
        if (!model_generate(t, judge.session, judge.c.tokens, 12, 0, &o, &want) ||
            !model_generate(t, p.session, p.c.tokens, 12, 0, &o, &a))
            break;
        CHECK_INT(t, a.n_token, 24);
        CHECK(t, same_tokens(&a, &want));
        o.presence_penalty = 1e-20f;
        if (model_generate(t, p.session, p.c.tokens, 12, 0, &o, &a))
            CHECK(t, same_tokens(&a, &want));
        if (seed == 1) first = want;
        if (seed > 1) n_same += same_tokens(&first, &want);
    }
    CHECK_INT(t, n_same, 0);
    place_close(&p);
    place_close(&judge);
}

/* However a filter is set, where it leaves one token that is the greedy one. */
static void filters_to_greedy(test *t, int device) {
    place p;
    if (place_open(&p, t, device, 0, 128, 1)) {
        beryl_generate_options o[4];
        for (int i = 0; i < 4; i++) o[i] = draw(99), o[i].max_tokens = (uint32_t)p.c.n_greedy;
        o[0].top_k = 1;
        o[1].top_p = 1e-6f;
        o[2].min_p = 1;
        o[3].greedy = true; /* whatever the temperature */
        for (int i = 0; i < 4; i++) {
            model_answer a;
            if (model_generate(t, p.session, p.c.tokens, p.c.n_token, 0, &o[i], &a))
                model_check_greedy(t, &p.c, a.tokens, a.n_token);
        }
        beryl_task *task = NULL;
        o[3].temperature = -1;
        CHECK_INT(t, beryl_session_generate(p.session, p.c.tokens, p.c.n_token, &o[3], &task, NULL),
                  BERYL_BAD_INPUT);
    }
    place_close(&p);
}

static void penalties(test *t, int device) {
    place p;
    if (place_open(&p, t, device, 0, 128, 1)) {
        model_answer plain, a;
        beryl_generate_options o = model_greedy(30);
        if (!model_generate(t, p.session, p.c.tokens, p.c.n_token, 0, &o, &plain)) goto done;
        uint32_t repeats = 0;
        for (size_t i = 0; i < plain.n_token; i++)
            for (size_t k = 0; k < i; k++) repeats += plain.tokens[i] == plain.tokens[k];
        CHECK(t, repeats > 0); /* else this case shows nothing */
        for (int kind = 0; kind < 3 && !test_failed(t); kind++) {
            o = model_greedy(30);
            o.presence_penalty = kind == 0 ? 1000 : 0; /* logits lie within 30 of 0 */
            o.frequency_penalty = kind == 1 ? 1000 : 0;
            o.repetition_penalty = kind == 2 ? 1.3f : 0;
            o.penalty_window = 128;
            if (!model_generate(t, p.session, p.c.tokens, p.c.n_token, 0, &o, &a)) break;
            CHECK(t, !same_tokens(&a, &plain));
            for (size_t i = 0; kind < 2 && i < a.n_token; i++) {
                for (size_t k = 0; k < p.c.n_token; k++) CHECK(t, a.tokens[i] != p.c.tokens[k]);
                for (size_t k = 0; k < i; k++) CHECK(t, a.tokens[i] != a.tokens[k]);
            }
        }
        o = model_greedy((uint32_t)p.c.n_greedy);
        o.repetition_penalty = 1;
        if (model_generate(t, p.session, p.c.tokens, p.c.n_token, 0, &o, &a))
            model_check_greedy(t, &p.c, a.tokens, a.n_token);
    }
done:
    place_close(&p);
}

/* ---- reuse ----------------------------------------------------------------------------------- */

static size_t ids_of(place *p, const char *text, bool chat, int32_t *out, size_t room) {
    size_t n = 0;
    if (!chat) {
        CHECK_INT(p->t, beryl_tokenize(p->engine, text, strlen(text), true, out, room, &n, NULL),
                  BERYL_OK);
        return n;
    }
    int32_t *tokens = NULL;
    CHECK_INT(p->t, beryl_render_tokens(p->engine, text, &tokens, &n, NULL), BERYL_OK);
    CHECK(p->t, n <= room);
    if (n > room) n = room;
    if (tokens) memcpy(out, tokens, n * sizeof *out);
    beryl_free(p->engine, tokens);
    return n;
}

/* Each turn thinks at length, past the rings, and the next prompt leaves the thoughts out: it is
 * continued from where the turn before had its prompt's end, and answers as a new session would. */
static void thoughts_are_left_out(test *t, int device) {
    place p;
    setenv("BERYL_TEST_OPTIMISED", "1", 1); /* 340 tokens */
    if (!chat_open(&p, t, device, 8)) goto done;
    char chat[2000] = "{\"think\":true,\"messages\":[{\"role\":\"user\",\"content\":\"Hello\"}";
    uint32_t before = 0;
    for (int turn = 0; turn < 2 && !test_failed(t); turn++) {
        int32_t prompt[400];
        size_t end = strlen(chat);
        snprintf(chat + end, sizeof chat - end, "]}");
        size_t n = ids_of(&p, chat, true, prompt, 400);
        model_answer a;
        beryl_generate_options o = model_greedy(150); /* longer than ring and window: 128 + 8 + 2 */
        if (!model_generate(t, p.session, prompt, n, 0, &o, &a)) break;
        CHECK_INT(t, a.result.n_prompt, n);
        if (turn)
            CHECK(t, a.result.n_reused >= before); /* all of the prompt before but its last token */
        before = (uint32_t)n - 1;
        chat[end] = 0;
        snprintf(chat + end, sizeof chat - end,
                 ",{\"role\":\"assistant\",\"content\":\"Answer "
                 "%d.\"},{\"role\":\"user\",\"content\":\"And %d?\"}",
                 turn, turn);
        if (!turn) continue;
        CHECK_INT(t, beryl_session_rewind(p.session, 0, NULL), BERYL_OK);
        model_answer again;
        o.max_tokens = 40;
        if (model_generate(t, p.session, prompt, n, 0, &o, &again)) {
            CHECK_INT(t, again.result.n_reused, 0);
            CHECK(t, !memcmp(a.tokens, again.tokens, 40 * sizeof *a.tokens));
        }
    }
done:
    unsetenv("BERYL_TEST_OPTIMISED");
    place_close(&p);
}

/* A chat without thoughts goes on from the end of the answer itself. */
static void chat_goes_on(test *t) {
    place p;
    if (!chat_open(&p, t, MODEL_REFERENCE, 0)) goto done;
    beryl_generate_options o = {.size = sizeof o, .greedy = true, .max_tokens = 30};
    char chat[2000] = "{\"messages\":[{\"role\":\"user\",\"content\":\"Hello\"}";
    uint32_t before = 0;
    for (int turn = 0; turn < 3 && !test_failed(t); turn++) {
        model_answer a;
        size_t end = strlen(chat);
        snprintf(chat + end, sizeof chat - end, "]}");
        if (!model_chat(t, p.session, chat, &o, &a)) break;
        CHECK(t, a.result.n_reused >= before);
        before = a.result.n_prompt + a.result.n_generated - 2;
        chat[end] = 0;
        snprintf(chat + end, sizeof chat - end,
                 ",{\"role\":\"assistant\",\"content\":\"%.300s\"},{\"role\":\"user\",\"content\":"
                 "\"Again\"}",
                 a.text);
    }
done:
    place_close(&p);
}

/* ---- a steady decode step makes nothing ------------------------------------------------------ */

static void steady_decode(test *t, const model_device *device, uint32_t n_session) {
    enum { WARM = 12, STEADY = 32 };
    beryl_engine_options options = {
        .precision = BERYL_PRECISION_EXACT, .context = 256, .sessions = n_session};
    beryl_session *sessions[3] = {0};
    beryl_task *tasks[3] = {0};
    model_ref ref;
    model_case c;
    beryl_stats before = {0}, after;
    if (!model_ref_open(t, &ref, "e2b-q4km.ref.gguf") || !model_case_get(t, &ref, 1, &c)) return;
    beryl_engine *engine = model_engine(t, "e2b-q4km.gguf", device, &options);
    beryl_generate_options o = model_greedy(0);
    for (uint32_t i = 0; engine && i < n_session; i++) {
        sessions[i] = model_session(t, engine);
        if (sessions[i])
            CHECK_INT(t,
                      beryl_session_generate(sessions[i], c.tokens, c.n_token, &o, &tasks[i], NULL),
                      BERYL_OK);
    }
    for (uint32_t n = 0; engine && n < WARM + STEADY && !test_failed(t); n++) {
        if (n == WARM) beryl_engine_stats(engine, &before);
        for (uint32_t i = 0; i < n_session; i++) {
            beryl_event event = {0};
            do CHECK_INT(t, beryl_wait(tasks[i], &event), BERYL_EVENT);
            while (event.kind != BERYL_EVENT_TOKEN && !test_failed(t));
        }
    }
    if (engine) {
        beryl_engine_stats(engine, &after);
        CHECK(t, after.steps >= before.steps + STEADY - 2);
        CHECK_INT(t, after.allocations - before.allocations, 0);
        CHECK_INT(t, after.device_objects - before.device_objects, 0);
        CHECK_INT(t, after.host_bytes, before.host_bytes);
    }
    for (uint32_t i = 0; i < n_session; i++) {
        beryl_task_close(tasks[i]);
        beryl_session_close(sessions[i]);
    }
    beryl_engine_close(engine);
    model_ref_close(&ref);
}

/* ---- sinks and sources of the caller's own --------------------------------------------------- */

/* keeps what is written, and gives it back; says PENDING at every other call */
typedef struct stream {
    char *data; // [capacity], owned
    size_t size, capacity, largest;
    size_t fails_at; /* no byte from here on is taken or given; 0: none fails */
    uint32_t calls, closed;
    bool whole;
} stream;

static beryl_status stream_write(void *user, const void *data, size_t size) {
    stream *s = user;
    if (s->calls++ % 2 == 0) return BERYL_PENDING;
    if (s->fails_at && s->size + size > s->fails_at) return BERYL_IO;
    if (s->size + size > s->capacity) {
        s->capacity = (s->size + size) * 2;
        if (!(s->data = realloc(s->data, s->capacity))) abort();
    }
    memcpy(s->data + s->size, data, size);
    s->size += size;
    if (size > s->largest) s->largest = size;
    return BERYL_OK;
}

static beryl_status stream_whole(void *user, bool whole) {
    stream *s = user;
    s->closed++;
    s->whole = whole;
    return BERYL_OK;
}

static beryl_status stream_read(void *user, uint64_t offset, void *to, size_t size) {
    stream *s = user;
    if (s->calls++ % 2 == 0) return BERYL_PENDING;
    if (offset + size > s->size) abort(); /* ranges are always inside */
    if (s->fails_at && offset + size > s->fails_at) return BERYL_IO;
    memcpy(to, s->data + offset, size);
    return BERYL_OK;
}

static void stream_close(void *user) {
    ((stream *)user)->closed++;
}

static beryl_status save_to(place *p, beryl_session *s, stream *to, beryl_error *error) {
    beryl_task *task;
    beryl_sink sink = {to, stream_write, stream_whole};
    beryl_status status = beryl_session_save_to(s, &sink, &task, error);
    (void)p;
    return status == BERYL_OK ? model_finish(task, error, NULL) : status;
}

static beryl_status restore_from(place *p, beryl_session *s, stream *from, beryl_error *error) {
    beryl_task *task;
    beryl_source source = {
        .size = from->size, .user = from, .read = stream_read, .close = stream_close};
    beryl_status status = beryl_session_restore_from(s, &source, &task, error);
    (void)p;
    return status == BERYL_OK ? model_finish(task, error, NULL) : status;
}

static size_t held(const beryl_session *s) {
    size_t n;
    beryl_session_tokens(s, NULL, &n);
    return n;
}

static void tokens_of_nothing(test *t) {
    const int32_t none = 0, *tokens = &none;
    size_t n = 7;
    beryl_session_tokens(NULL, &tokens, &n);
    CHECK(t, !tokens && !n);
    beryl_session_tokens(NULL, NULL, NULL);
}

static void saved_elsewhere(test *t, int device) {
    place p;
    stream to = {0}, again = {0}, bad = {.fails_at = 500};
    beryl_error error = {0};
    beryl_session *second = NULL;
    if (!place_open(&p, t, device, 0, 128, 2)) goto done;
    check_sound(&p);
    const size_t n = held(p.session);
    CHECK_INT(t, save_to(&p, p.session, &to, &error), BERYL_OK);
    CHECK(t, to.closed == 1 && to.whole && to.size > 1000);
    if (!(second = model_session(t, p.engine)) || test_failed(t)) goto done;
    CHECK_INT(t, restore_from(&p, second, &to, &error), BERYL_OK);
    CHECK_INT(t, to.closed, 2);
    CHECK_INT(t, held(second), n);
    CHECK_INT(t, save_to(&p, second, &again, &error), BERYL_OK);
    CHECK(t, again.size == to.size && !memcmp(again.data, to.data, to.size));
    model_answer a;
    if (model_generate(t, second, p.c.tokens, p.c.n_token, (uint32_t)p.c.n_greedy, NULL, &a))
        model_check_greedy(t, &p.c, a.tokens, a.n_token);
    /* ends that fail: their own status, and they are closed */
    CHECK_INT(t, save_to(&p, p.session, &bad, &error), BERYL_IO);
    CHECK(t, bad.closed == 1 && !bad.whole && error.message[0]);
    to.fails_at = to.size - 100;
    to.closed = 0;
    CHECK_INT(t, restore_from(&p, second, &to, &error), BERYL_IO);
    CHECK_INT(t, to.closed, 1);
    CHECK_INT(t, held(second), 0);
    to.fails_at = 0;
    /* cancelled in the middle, and refused before anything began */
    beryl_task *task;
    beryl_sink sink = {&bad, stream_write, stream_whole};
    beryl_source source = {
        .size = to.size, .user = &to, .read = stream_read, .close = stream_close};
    bad = (stream){.data = bad.data, .capacity = bad.capacity};
    CHECK_INT(t, beryl_session_save_to(p.session, &sink, &task, &error), BERYL_OK);
    for (int i = 0; i < 6; i++) beryl_task_step(task, NULL);
    CHECK_INT(t, beryl_session_restore_from(p.session, &source, &(beryl_task *){NULL}, &error),
              BERYL_MISUSE);
    CHECK_INT(t, to.closed, 2);
    beryl_cancel(task);
    CHECK_INT(t, model_finish(task, &error, NULL), BERYL_CANCELLED);
    CHECK(t, bad.closed == 1 && !bad.whole);
    CHECK_INT(t, beryl_session_save_to(NULL, &sink, &task, &error), BERYL_MISUSE);
    CHECK_INT(t, bad.closed, 2);
    if (!test_failed(t)) check_sound(&p);
done:
    beryl_session_close(second);
    place_close(&p);
    free(to.data);
    free(again.data);
    free(bad.data);
}

void test_session(test *t) {
    if (test_case(t, "session/tokens-of-no-session")) tokens_of_nothing(t);
    if (test_case(t, "session/as-many-as-asked-for")) sessions_are_limited(t);
    if (test_case(t, "session/maximum-and-end-of-sequence")) maximum_and_end_of_sequence(t);
    if (test_case(t, "session/pieces-answer-alike-webgpu")) pieces_answer_alike(t, MODEL_WEBGPU);
    if (test_case(t, "session/pieces-answer-alike-host")) pieces_answer_alike(t, MODEL_HOST);
    if (test_case(t, "session/two-engines-reference"))
        two_engines(t, MODEL_REFERENCE, MODEL_REFERENCE);
    if (test_case(t, "session/two-engines-reference-and-webgpu"))
        two_engines(t, MODEL_REFERENCE, MODEL_WEBGPU);
    if (getenv("BERYL_TEST_ALL") && test_case(t, "session/two-engines-webgpu"))
        two_engines(t, MODEL_WEBGPU, MODEL_MIN);
    if (test_case(t, "session/cancel-load-reference"))
        cancel_load(t, &model_devices[MODEL_REFERENCE], 1, 500);
    if (test_case(t, "session/cancel-load-dummy"))
        cancel_load(t, &model_devices[MODEL_DUMMY], 7, 500);
    if (test_case(t, "session/cancel-load-webgpu"))
        cancel_load(t, &model_devices[MODEL_WEBGPU], 100, 1000);
    for (int device = MODEL_REFERENCE; device <= MODEL_WEBGPU; device++) {
        const char *on = model_devices[device].name;
        if (test_case(t, "session/context-full-is-recoverable-%s", on))
            context_full_is_recoverable(t, device);
        if (test_case(t, "session/cancel-in-prompt-and-answer-%s", on)) cancel_answer(t, device);
        if (test_case(t, "session/closed-early-%s", on)) close_early(t, device);
        if (test_case(t, "session/saved-elsewhere-%s", on)) saved_elsewhere(t, device);
        if (test_case(t, "session/same-seed-same-answer-%s", on)) seeds(t, device);
        if (test_case(t, "session/filters-that-leave-one-%s", on)) filters_to_greedy(t, device);
        if (test_case(t, "session/penalties-%s", on)) penalties(t, device);
    }
    if (test_case(t, "session/same-seed-same-answer-webgpu-min")) seeds(t, MODEL_MIN);
    if (test_case(t, "session/thoughts-left-out")) thoughts_are_left_out(t, MODEL_HOST);
    if (test_case(t, "session/stop-texts")) stop_texts(t);
    if (test_case(t, "session/chat-goes-on")) chat_goes_on(t);
    for (uint32_t n = 1; n <= 3; n += 2) {
        if (test_case(t, "session/steady-decode-of-%u-makes-nothing-dummy", (unsigned)n))
            steady_decode(t, &model_devices[MODEL_DUMMY], n);
        if ((n == 1 || getenv("BERYL_TEST_ALL")) &&
            test_case(t, "session/steady-decode-of-%u-makes-nothing-webgpu", (unsigned)n))
            steady_decode(t, &model_devices[MODEL_WEBGPU], n);
    }
}
