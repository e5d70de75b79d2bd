/* answers_test.c - the built-in model: its reference answers, `fast` against `exact`, rounded
 * caches, perplexity of its stories. */
#define _POSIX_C_SOURCE 200809L
#include "model.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { VOCAB = 4096, ROOM = 160, VERY_LONG = 1000 }; /* ROOM: tokens of a case and its answer */

typedef struct pair { /* the engine to be judged and, where another judges it, that one */
    test *t;
    model_ref ref;
    beryl_engine *engine;
    beryl_session *session;
} pair;

static bool pair_open(pair *p, test *t, int device, beryl_precision precision, beryl_kv kv) {
    beryl_engine_options options = {.precision = precision, .kv = kv, .context = 2048};
    *p = (pair){.t = t};
    if (!model_ref_open(t, &p->ref, "default/default.ref.gguf")) return false;
    p->engine = model_engine(t, "default", &model_devices[device], &options);
    if (p->engine) p->session = model_session(t, p->engine);
    return p->session != NULL;
}

static void pair_close(pair *p) {
    beryl_session_close(p->session);
    beryl_engine_close(p->engine);
    model_ref_close(&p->ref);
}

/* Logits at every stored position, the answer as far as it is stored. */
static void check_exact(test *t, int device, bool very_long) {
    pair p;
    model_case c;
    uint32_t n = 0;
    bool opened = pair_open(&p, t, device, BERYL_PRECISION_EXACT, BERYL_KV_F32);
    for (uint32_t i = 0; opened && i < p.ref.n_case && !test_failed(t); i++) {
        model_answer a;
        if (!model_case_get(t, &p.ref, i, &c) || (c.n_token >= VERY_LONG) != very_long) continue;
        CHECK_INT(t, c.n_vocab, VOCAB);
        model_check_logits(t, p.session, &c, 0, MODEL_TOLERANCE);
        if (model_generate(t, p.session, c.tokens, c.n_token, (uint32_t)c.n_greedy, NULL, &a))
            model_check_greedy(t, &c, a.tokens, a.n_token);
        n++;
    }
    if (opened) CHECK_INT(t, n, very_long ? 1 : 7);
    pair_close(&p);
}

/* Along the reference's answers: where `exact` is sure of a token, the other way of computing
 * chooses it too; and its own answer is the same up to where the reference was not sure. */
static void check_rounded(test *t, int device, beryl_precision precision, beryl_kv kv) {
    pair p, judge;
    model_case c;
    uint32_t n_sure = 0;
    float *want = malloc(ROOM * VOCAB * sizeof *want), *got = malloc(ROOM * VOCAB * sizeof *got);
    if (!want || !got) abort();
    bool opened = pair_open(&judge, t, device, BERYL_PRECISION_EXACT, BERYL_KV_F32);
    opened = pair_open(&p, t, device, precision, kv) && opened;
    for (uint32_t i = 0; opened && i < p.ref.n_case && !test_failed(t); i++) {
        int32_t tokens[ROOM];
        model_answer a;
        if (!model_case_get(t, &p.ref, i, &c) || c.n_token + c.n_greedy > ROOM) continue;
        size_t n = c.n_token + c.n_greedy - 1, first = c.n_token - 1;
        memcpy(tokens, c.tokens, c.n_token * sizeof *tokens);
        memcpy(tokens + c.n_token, c.greedy, (c.n_greedy - 1) * sizeof *tokens);
        if (!model_logits(t, judge.session, tokens, n, first, 0, want, VOCAB) ||
            !model_logits(t, p.session, tokens, n, first, 0, got, VOCAB) ||
            !model_generate(t, p.session, c.tokens, c.n_token, (uint32_t)c.n_greedy, NULL, &a))
            break;
        bool same_path = true;
        for (size_t k = 0; k < c.n_greedy; k++) {
            const float *row = want + k * VOCAB;
            CHECK_INT(t, model_argmax(row, VOCAB), c.greedy[k]);
            if (model_lead(row, VOCAB) > MODEL_LEAD) {
                CHECK_INT(t, model_argmax(got + k * VOCAB, VOCAB), c.greedy[k]);
                if (same_path) CHECK_INT(t, a.tokens[k], c.greedy[k]);
                n_sure++;
            }
            same_path &= a.tokens[k] == c.greedy[k];
        }
    }
    if (opened) CHECK(t, n_sure > 80); /* of 112 */
    pair_close(&p);
    pair_close(&judge);
    free(want);
    free(got);
}

/* ---- perplexity ------------------------------------------------------------------------------ */

typedef struct score {
    const int32_t *tokens; // [n_token]
    size_t n_token;
    double sum; /* of negative log likelihoods */
    size_t n;
} score;

static void score_row(void *user, size_t position, const float *logits) {
    score *s = user;
    if (position + 1 >= s->n_token) return;
    double sum = 0, most = (double)logits[model_argmax(logits, VOCAB)];
    for (int i = 0; i < VOCAB; i++) sum += exp((double)logits[i] - most);
    s->sum += log(sum) + most - (double)logits[s->tokens[position + 1]];
    s->n++;
}

static char *read_stories(test *t) {
    FILE *f = fopen(test_data(t, "default/stories.txt"), "rb");
    char *text = calloc(1, 1 << 17);
    if (!f || !text || !fread(text, 1, (1 << 17) - 1, f)) abort();
    fclose(f);
    return text;
}

/* exp of the mean over the second halves of pieces of 512 tokens, spread over the text. */
static double perplexity(pair *p, const char *text, uint32_t n_piece) {
    enum { PIECE = 512 };
    int32_t *tokens = malloc(20000 * sizeof *tokens), piece[PIECE];
    size_t n = 0;
    score s = {piece, PIECE, 0, 0};
    if (!tokens) abort();
    CHECK_INT(p->t, beryl_tokenize(p->engine, text, strlen(text), false, tokens, 20000, &n, NULL),
              BERYL_OK);
    CHECK(p->t, n > PIECE * n_piece && n <= 20000);
    for (uint32_t i = 0; i < n_piece && !test_failed(p->t); i++) {
        beryl_task *task;
        size_t at = n / PIECE * i / n_piece * PIECE;
        memcpy(piece, tokens + at, sizeof piece);
        piece[0] = 2; /* BOS */
        CHECK_INT(p->t, beryl_session_rewind(p->session, 0, NULL), BERYL_OK);
        CHECK_INT(p->t,
                  beryl_session_logits(p->session, piece, PIECE, PIECE / 2, 0, score_row, &s, &task,
                                       NULL),
                  BERYL_OK);
        if (!test_failed(p->t)) CHECK_INT(p->t, model_finish(task, NULL, NULL), BERYL_OK);
    }
    free(tokens);
    return exp(s.sum / (double)s.n);
}

static void check_perplexity(test *t, int device, beryl_precision precision, beryl_kv kv,
                             uint32_t n_piece) {
    pair exact, other;
    char *text = read_stories(t);
    setenv("BERYL_TEST_OPTIMISED", "1", 1);
    bool opened = pair_open(&exact, t, device, BERYL_PRECISION_EXACT, BERYL_KV_F32);
    opened = pair_open(&other, t, device, precision, kv) && opened;
    if (opened) {
        double want = perplexity(&exact, text, n_piece), got = perplexity(&other, text, n_piece);
        CHECK(t, want > 1 && want < 100);
        CHECK_NEAR(t, got / want, 1, 0.01);
    }
    unsetenv("BERYL_TEST_OPTIMISED");
    pair_close(&exact);
    pair_close(&other);
    free(text);
}

void test_answers(test *t) {
    /* the smallest limits: fixtures/whole-webgpu-min */
    const int n = MODEL_DEVICE_COUNT - !getenv("BERYL_TEST_ALL");
    for (int device = 0; device < n; device++)
        if (test_case(t, "answers/exact-%s", model_devices[device].name))
            check_exact(t, device, false);
    if (test_case(t, "answers/exact-very-long")) check_exact(t, MODEL_WEBGPU, true);
    for (int device = MODEL_WEBGPU; device < n; device++)
        if (test_case(t, "answers/fast-as-exact-%s", model_devices[device].name))
            check_rounded(t, device, BERYL_PRECISION_FAST, BERYL_KV_DEFAULT);
    if (test_case(t, "answers/q8-cache-as-exact"))
        check_rounded(t, MODEL_WEBGPU, BERYL_PRECISION_FAST, BERYL_KV_Q8);
    if (test_case(t, "answers/perplexity-of-fast"))
        check_perplexity(t, MODEL_HOST, BERYL_PRECISION_FAST, BERYL_KV_DEFAULT,
                         getenv("BERYL_TEST_ALL") ? 4 : 2);
}
