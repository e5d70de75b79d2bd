/* perplexity.c - how well a model predicts a text: pieces of n tokens, each begun with BOS in the
 * place of its first token; the tokens after the middle are scored, so that all of them have
 * context. */
#include "cli.h"

#include <math.h>
#include <string.h>

enum { PIECE = 512 };

typedef struct score {
    const int32_t *tokens; /* [n_token], the running piece */
    size_t n_token, first; /* tokens[first + 1 ..] are scored */
    uint32_t n_vocab;
    double sum, sum_square; /* of the negative log likelihoods */
    uint64_t n;
    bool broken; /* a logit was not a number */
} score;

/* The row of `position` judges the token after it. */
static void score_each(void *user, size_t position, const float *logits) {
    score *s = user;
    if (position < s->first || position + 1 >= s->n_token) return;
    int32_t next = s->tokens[position + 1];
    if (next < 0 || (uint32_t)next >= s->n_vocab) return;
    float most = -INFINITY;
    for (uint32_t i = 0; i < s->n_vocab; i++) most = logits[i] > most ? logits[i] : most;
    double sum = 0;
    for (uint32_t i = 0; i < s->n_vocab; i++) sum += (double)expf(logits[i] - most);
    double nll = log(sum) + (double)most - (double)logits[next];
    if (!isfinite(nll)) s->broken = true;
    s->sum += nll;
    s->sum_square += nll * nll;
    s->n++;
}

typedef struct perplexity {
    double value, deviation;
} perplexity;

/* exp of the mean; the deviation is that of the mean, carried through exp. */
static perplexity score_result(const score *s) {
    double n = (double)s->n, mean = s->sum / n, variance = s->sum_square / n - mean * mean;
    perplexity p = {.value = exp(mean)};
    if (s->n > 1 && variance > 0) p.deviation = p.value * sqrt(variance / (n - 1));
    return p;
}

static beryl_status piece_score(beryl_session *session, score *s, beryl_error *error) {
    beryl_task *task = NULL;
    beryl_status status = beryl_session_rewind(session, 0, error);
    if (!status)
        status = beryl_session_logits(session, s->tokens, s->n_token, s->first, 0, score_each, s,
                                      &task, error);
    if (status) return status;
    beryl_event event;
    cli_task_begin(task); /* without a bar of its own: the whole has one */
    while ((status = beryl_wait(task, &event)) == BERYL_EVENT) {}
    cli_task_end();
    const beryl_error *cause = beryl_task_error(task);
    if (status && cause) *error = *cause;
    beryl_task_close(task);
    return status;
}

static int result_print(cli *c, const score *s, size_t n_piece, size_t piece) {
    perplexity p = score_result(s);
    if (!c->json) {
        printf("perplexity %.4f ± %.4f (%llu tokens of %zu pieces of %zu)\n", p.value, p.deviation,
               (unsigned long long)s->n, n_piece, piece);
        return CLI_OK;
    }
    json_out j;
    json_init(&j, &c->heap);
    json_open(&j, NULL, '{');
    json_number(&j, "perplexity", p.value);
    json_number(&j, "deviation", p.deviation);
    json_number(&j, "nll", s->sum / (double)s->n);
    json_integer(&j, "tokens", (int64_t)s->n);
    json_integer(&j, "pieces", (int64_t)n_piece);
    json_integer(&j, "piece", (int64_t)piece);
    json_close(&j, '}');
    int code = json_print(c, &j, stdout);
    json_fini(&j);
    return code;
}

static int measure(cli *c, beryl_engine *engine, int32_t bos, int32_t *tokens, size_t n_token,
                   size_t piece) {
    beryl_engine_info info = {0};
    beryl_error error = {0};
    beryl_session *session = NULL;
    size_t n_piece = n_token / piece, most = args_count(&c->args, FLAG_PIECES, UINT32_MAX),
           done = 0;
    if (!n_piece) {
        n_piece = 1;
        piece = n_token;
    }
    if (n_piece > most) n_piece = most;
    beryl_status status = beryl_engine_info_get(engine, &info);
    if (!status) status = cli_session_open(c, engine, &session, &error);
    score s = {.n_token = piece, .first = piece / 2, .n_vocab = info.n_vocab};
    for (; !status && done < n_piece; done++) {
        char note[64] = "";
        if (s.n) snprintf(note, sizeof note, "%.3f", score_result(&s).value);
        term_progress(&c->term, "scoring", done, n_piece, note);
        tokens[done * piece] = bos;
        s.tokens = tokens + done * piece;
        status = piece_score(session, &s, &error);
    }
    term_clear(&c->term);
    beryl_session_close(session);
    if (status == BERYL_CANCELLED)
        return cli_fail(c, "stopped after %zu of %zu pieces", done - 1, n_piece);
    if (status) return cli_report(c, status, &error);
    if (s.broken) return cli_fail(c, "the model gave logits that are not numbers");
    if (!s.n) return cli_fail(c, "no token could be scored");
    return result_print(c, &s, n_piece, piece);
}

int perplexity_main(cli *c) {
    const args *a = &c->args;
    /* With one argument it is the file. */
    bool named = args_has(a, FLAG_MODEL) || a->n_positional > 1;
    const char *model = args_has(a, FLAG_MODEL) ? args_text(a, FLAG_MODEL)
                        : named                 ? a->positional[0]
                                                : NULL;
    const char *path = a->positional[a->n_positional - 1];
    uint32_t piece = args_count(a, FLAG_SCORE_PIECE, PIECE);
    if (piece < 4) return cli_usage(c, "--piece is 4 at least");
    if (args_has(a, FLAG_PIECES) && !args_count(a, FLAG_PIECES, 0))
        return cli_usage(c, "--pieces is 1 at least");
    size_t size = 0, n_token = 0;
    char *text = cli_read(c, path, &size);
    if (!text) return CLI_FAILED;
    cli_open open = {.model = model, .context = piece};
    beryl_engine *engine = cli_engine_open(c, &open);
    int code = CLI_FAILED;
    int32_t bos = engine ? cli_bos(c, engine) : -1;
    int32_t *tokens = bos < 0 ? NULL : cli_tokens(c, engine, bos, text, size, false, &n_token);
    if (tokens && n_token < 4) {
        code = cli_fail(c, "%s is too short: %zu tokens", path, n_token);
    } else if (tokens) {
        code = measure(c, engine, bos, tokens, n_token, piece);
    }
    base_heap_give(&c->heap, tokens, n_token * sizeof *tokens);
    base_heap_give(&c->heap, text, size + 1);
    beryl_engine_close(engine);
    return code;
}
