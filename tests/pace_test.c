/* pace_test.c - how runs are cut into submits, and prompts into pieces, on a device that takes
 * its time. */
#include "device/dummy/dummy.h"
#include "engine/engine.h"
#include "model.h"

#include <string.h>

enum { PIECE = 512 };

typedef struct slow { /* the built-in model on the dummy device */
    beryl_engine *engine;
    beryl_session *session;
} slow;

static void slow_close(slow *s) {
    beryl_session_close(s->session);
    beryl_engine_close(s->engine);
    *s = (slow){0};
}

static bool slow_open(test *t, slow *s, uint32_t sessions, uint32_t piece, uint64_t memory) {
    const beryl_engine_options options = {.size = sizeof options,
                                          .model = "models/default.gguf",
                                          .device = "dummy",
                                          .no_cache = true,
                                          .context = 4096,
                                          .piece = piece,
                                          .memory = memory,
                                          .sessions = sessions};
    beryl_error error = {0};
    beryl_task *task = NULL;
    beryl_event event;
    *s = (slow){0};
    beryl_status status = beryl_engine_open(&options, &s->engine, &error);
    if (status == BERYL_OK) status = beryl_engine_load(s->engine, &task, &error);
    while (status == BERYL_OK && (status = beryl_wait(task, &event)) == BERYL_EVENT)
        status = BERYL_OK;
    beryl_task_close(task);
    if (status == BERYL_OK) status = beryl_session_open(s->engine, NULL, &s->session, &error);
    if (status == BERYL_OK) return true;
    test_fail(t, __FILE__, __LINE__, "%s", error.message);
    slow_close(s);
    return false;
}

static beryl_task *ask(test *t, beryl_session *session, uint32_t n, uint32_t n_answer,
                       uint32_t seed) {
    static int32_t tokens[4096];
    beryl_error error = {0};
    beryl_task *task = NULL;
    for (uint32_t i = 0; i < n; i++) tokens[i] = 300 + (int32_t)((i * 7 + seed) % 3000);
    const beryl_generate_options options = {
        .size = sizeof options, .max_tokens = n_answer, .ignore_eos = true, .greedy = true};
    if (beryl_session_generate(session, tokens, n, &options, &task, &error) != BERYL_OK)
        test_fail(t, __FILE__, __LINE__, "%s", error.message);
    return task;
}

static uint64_t runs_of(const slow *s) {
    beryl_stats stats;
    beryl_engine_stats(s->engine, &stats);
    return stats.steps;
}

static device_dummy_times times_of(const slow *s, uint32_t from) {
    return device_dummy_times_from(s->engine->device, from);
}

/* ---- on the dummy device --------------------------------------------------------------------- */

static void test_pieces(test *t, slow *s) {
    /* The time of a run is a + b n, 0.25 s for a full piece: weights are unpacked for each. */
    device_dummy_slow(s->engine->device, 2e-3, 1e-6);
    CHECK_INT(t, model_finish(ask(t, s->session, PIECE, 1, 1), NULL, NULL), BERYL_OK);
    const device_dummy_times one = times_of(s, 2);
    const uint64_t before = runs_of(s);
    CHECK(t, one.all > 0.15 && one.longest < 0.15);
    CHECK_INT(t, model_finish(ask(t, s->session, 4 * PIECE, 1, 2), NULL, NULL), BERYL_OK);
    const device_dummy_times five = times_of(s, 2);
    CHECK_INT(t, runs_of(s) - before, 4);
    CHECK(t, five.all <= 5.01 * one.all);
    CHECK(t, five.longest < 0.15);
    CHECK(t, five.submits < 100);
}

/* Each piece takes 3 seconds: nobody waits for its end. */
static void test_cancel(test *t, slow *s) {
    device_dummy_slow(s->engine->device, 30e-3, 0);
    beryl_task *task = ask(t, s->session, 4 * PIECE, 1, 1);
    beryl_event event;
    while (times_of(s, 0).submits < 5) {
        CHECK_INT(t, beryl_task_step(task, &event), BERYL_PENDING);
        base_sleep(1e-3);
    }
    beryl_cancel(task);
    const uint32_t submits = times_of(s, 0).submits;
    CHECK_INT(t, model_finish(task, NULL, NULL), BERYL_CANCELLED);
    CHECK_INT(t, times_of(s, 0).submits, submits);
    CHECK(t, times_of(s, 2).longest < 0.2);
    /* What was begun and left does not count as read. */
    const int32_t *tokens;
    size_t n;
    beryl_session_tokens(s->session, &tokens, &n);
    CHECK_INT(t, s->session->n_fed, 0);
    device_dummy_slow(s->engine->device, 0, 0);
    const uint64_t before = runs_of(s);
    CHECK_INT(t, model_finish(ask(t, s->session, 2 * PIECE, 1, 1), NULL, NULL), BERYL_OK);
    CHECK_INT(t, runs_of(s) - before, 2);
}

/* One session answers while the pieces of another's prompt take a while. */
static void test_fairness(test *t, slow *s) {
    beryl_session *other = NULL;
    beryl_event event;
    CHECK_INT(t, beryl_session_open(s->engine, NULL, &other, NULL), BERYL_OK);
    /* so that speeds are known */
    CHECK_INT(t, model_finish(ask(t, s->session, PIECE, 1, 1), NULL, NULL), BERYL_OK);
    beryl_task *answer = ask(t, s->session, 8, 200, 2);
    while (beryl_wait(answer, &event) == BERYL_EVENT && event.kind != BERYL_EVENT_TOKEN) {}
    device_dummy_slow(s->engine->device, 3e-3, 0); /* four parts */
    beryl_task *prompt = ask(t, other, 2 * PIECE, 1, 3);
    uint32_t n = 0;
    while (other->n_fed == 0 && n < 50 && beryl_wait(answer, &event) == BERYL_EVENT) n++;
    CHECK(t, n >= 3 && n < 50);
    beryl_cancel(prompt);
    beryl_cancel(answer);
    CHECK_INT(t, model_finish(prompt, NULL, NULL), BERYL_CANCELLED);
    CHECK_INT(t, model_finish(answer, NULL, NULL), BERYL_CANCELLED);
    beryl_session_close(other);
}

/* By default pieces are long where the device has the memory. A prompt that is no longer than
 * usual has a plan of its own, which is faster for it. */
static void test_long(test *t) {
    slow s;
    if (test_case(t, "pace/pieces-grow-with-the-memory") && slow_open(t, &s, 1, 0, 0)) {
        const engine_plan *plans = s.engine->plans;
        const uint64_t before = runs_of(&s);
        CHECK_INT(t, s.engine->piece, ENGINE_PIECE_MAX);
        CHECK_INT(t, plans[PLAN_OUTPUT].n_token, PIECE);
        CHECK_INT(t, plans[PLAN_OUTPUT_LONG].n_token, ENGINE_PIECE_MAX);
        CHECK_INT(t, model_finish(ask(t, s.session, ENGINE_PIECE_MAX, 1, 1), NULL, NULL), BERYL_OK);
        CHECK_INT(t, runs_of(&s) - before, 1);
        CHECK_INT(t, plans[PLAN_OUTPUT_LONG].pace.n_token, ENGINE_PIECE_MAX);
        CHECK_INT(t, model_finish(ask(t, s.session, PIECE, 1, 2), NULL, NULL), BERYL_OK);
        CHECK_INT(t, plans[PLAN_OUTPUT].pace.n_token, PIECE);
        slow_close(&s);
    }
    if (test_case(t, "pace/pieces-stay-short-where-memory-is") &&
        slow_open(t, &s, 1, 0, UINT64_C(64) << 20)) {
        CHECK_INT(t, s.engine->piece, ENGINE_PIECE);
        CHECK(t, !s.engine->plans[PLAN_OUTPUT_LONG].exec);
        slow_close(&s);
    }
}

/* ---- by the rules alone ---------------------------------------------------------------------- */

/* Runs of a plan with pieces of the length that is due, each `a` seconds and `b` a token, of
 * `steps` equal dispatches. */
static double read_prompt(beryl_engine *e, double a, double b, uint32_t steps, uint32_t n_run) {
    double all = 0;
    for (uint32_t r = 0; r < n_run; r++) {
        engine_run run = {.kind = PLAN_PREFILL, .n_token = e->piece_now, .first = true};
        const double seconds = a + b * run.n_token;
        for (uint32_t done = 0; done < steps; run.first = false) {
            const uint32_t parts = engine_pace_parts(&e->plans[run.kind], run.n_token),
                           most = (steps + parts - 1) / parts;
            run.part.steps = most < steps - done ? most : steps - done;
            run.part.share = (float)run.part.steps / (float)steps;
            done += run.part.steps;
            run.part.last = done == steps;
            engine_pace_done(e, &run, seconds * run.part.share);
        }
        all += seconds / run.n_token;
    }
    return all / n_run;
}

static void test_rules(test *t) {
    static device somewhere;
    if (test_case(t, "pace/parts-are-as-long-as-planned")) {
        beryl_engine e = {.device = &somewhere, .piece = PIECE, .piece_now = PIECE};
        engine_plan *plan = &e.plans[PLAN_PREFILL];
        CHECK(t, engine_pace_parts(plan, PIECE) > 1); /* nothing is known yet */
        read_prompt(&e, 0.01, 1e-5, 200, 2);
        CHECK_INT(t, engine_pace_parts(plan, PIECE), 1);
        read_prompt(&e, 0.1, 4e-4, 200, 2); /* 0.305 s */
        CHECK_INT(t, engine_pace_parts(plan, PIECE), 4);
        CHECK_INT(t, e.piece_now, PIECE);
        read_prompt(&e, 1, 0.02, 2000, 2); /* 11 s */
        CHECK_INT(t, engine_pace_parts(plan, PIECE), 128);
        CHECK_INT(t, e.piece_now, PIECE);
    }
    if (test_case(t, "pace/pieces-are-shorter-where-one-dispatch-takes-long")) {
        beryl_engine e = {.device = &somewhere, .piece = PIECE, .piece_now = PIECE};
        read_prompt(&e, 0, 0.03, 50, 8); /* 15 s, 0.3 a dispatch */
        CHECK_INT(t, e.piece_now, PIECE / 2);
    }
    if (test_case(t, "pace/pieces-stay-full-where-shorter-ones-are-slower")) {
        beryl_engine e = {.device = &somewhere, .piece = PIECE, .piece_now = PIECE};
        const double each = read_prompt(&e, 10, 0.02, 50, 20), full = (10 + 0.02 * PIECE) / PIECE;
        CHECK_INT(t, e.piece_now, PIECE);
        CHECK(t, each < 1.05 * full); /* one was tried */
    }
    if (test_case(t, "pace/one-slow-try-does-not-last")) {
        /* steps are slow for a while, as where another program has the GPU */
        beryl_engine e = {.device = &somewhere, .depth.depth = ENGINE_FLIGHT_MIN};
        for (uint32_t n = 0; n < 160; n++) {
            const engine_run run = {.kind = PLAN_DECODE,
                                    .n_token = 1,
                                    .first = true,
                                    .full = true,
                                    .part = {1, 100, true}};
            const double round = (1.75e-3 + 2.9e-3) / e.depth.depth;
            engine_pace_done(&e, &run, n > 16 && n < 60 ? 4e-3 : round);
        }
        CHECK(t, e.depth.depth >= 3); /* or one more is tried */
    }
    if (test_case(t, "pace/as-many-steps-ahead-as-make-answers-faster")) {
        static const struct {
            double step, latency;
            uint32_t depth;
        } cases[] = {{1.75e-3, 2.9e-3, 3},
                     {0.3e-3, 2.9e-3, ENGINE_FLIGHT_MAX},
                     {1.1e-3, 0.05e-3, ENGINE_FLIGHT_MIN},
                     {60e-3, 200e-3, ENGINE_FLIGHT_MIN}};
        for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
            beryl_engine e = {.device = &somewhere, .depth.depth = ENGINE_FLIGHT_MIN};
            for (uint32_t n = 0; n < 1000; n++) {
                const double round = (cases[i].step + cases[i].latency) / e.depth.depth;
                const engine_run run = {.kind = PLAN_DECODE,
                                        .n_token = 1,
                                        .first = true,
                                        .full = true,
                                        .part = {1, 100, true}};
                engine_pace_done(&e, &run, round > cases[i].step ? round : cases[i].step);
            }
            CHECK_INT(t, e.depth.depth, cases[i].depth);
        }
    }
}

void test_pace(test *t) {
    static const struct {
        const char *name;
        void (*run)(test *t, slow *s);
        uint32_t sessions;
    } cases[] = {
        {"pace/a-long-prompt-is-read-in-full-pieces", test_pieces, 1},
        {"pace/a-cancelled-prompt-waits-for-no-piece", test_cancel, 1},
        {"pace/answers-go-on-between-the-parts-of-a-piece", test_fairness, 2},
    };
    slow s;
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        if (!test_case(t, "%s", cases[i].name) || !slow_open(t, &s, cases[i].sessions, PIECE, 0))
            continue;
        cases[i].run(t, &s);
        slow_close(&s);
    }
    test_long(t);
    test_rules(t);
}
