/* session.c - one timeline of tokens: what of a prompt is reused, rewound or computed again, and
 * how a turn begins and ends. */
#include "engine/session.h"
#include "base/error.h"

#include <string.h>

beryl_status beryl_session_open(beryl_engine *e, const void *reserved, beryl_session **out,
                                beryl_error *error) {
    if (!e || !out || reserved)
        return base_fail(error, BERYL_MISUSE,
                         "beryl_session_open needs an engine and a place for the session");
    *out = NULL;
    if (!e->loaded || e->options.vocabulary_only)
        return base_fail(error, BERYL_MISUSE, "the engine has no model loaded");
    uint32_t slot = 0;
    while (slot < e->options.sessions && e->sessions[slot]) slot++;
    if (slot == e->options.sessions)
        return base_fail(
            error, BERYL_MISUSE,
            "all %u sessions are open: ask for more with beryl_engine_options.sessions",
            e->options.sessions);
    beryl_session *s = base_heap_take(&e->heap, sizeof *s);
    if (!s) return base_no_memory(error);
    s->engine = e;
    s->slot = slot;
    beryl_status status = engine_lora_scales(e, slot, error); /* another session's, as yet */
    if (status != BERYL_OK) {
        base_heap_give(&e->heap, s, sizeof *s);
        return status;
    }
    e->sessions[slot] = s;
    e->n_session++;
    *out = s;
    return BERYL_OK;
}

void beryl_session_close(beryl_session *s) {
    if (!s) return;
    beryl_engine *e = s->engine;
    for (uint32_t i = 0; i < e->n_flight; i++) engine_run_forget(&e->flight[i], s);
    engine_run_forget(&e->prompt, s);
    engine_run_forget(&e->step, s);
    if (s->task) { /* it may be stepped or closed later, but has nothing to say any more */
        s->task->session = NULL;
        s->task->ended = true;
        s->task->status = base_fail(&s->task->error, BERYL_CANCELLED, "the session was closed");
    }
    e->sessions[s->slot] = NULL;
    e->n_session--;
    session_media_clear(s);
    session_adapters_clear(s);
    base_vec_fini(&e->heap, &s->tokens);
    base_vec_fini(&e->heap, &s->inbox);
    base_heap_give(&e->heap, s, sizeof *s);
}

void beryl_session_tokens(const beryl_session *s, const int32_t **tokens, size_t *n_token) {
    if (tokens) *tokens = s ? s->tokens.data : NULL;
    if (n_token) *n_token = s ? s->tokens.count : 0;
}

beryl_status beryl_session_rewind(beryl_session *s, size_t n_token, beryl_error *error) {
    if (!s || s->task)
        return base_fail(error, BERYL_MISUSE, "a session is not rewound while a task runs on it");
    if (n_token > s->tokens.count)
        return base_fail(error, BERYL_BAD_INPUT, "position %zu: the session has %zu", n_token,
                         s->tokens.count);
    s->tokens.count = n_token;
    if (s->n_fed > n_token) s->n_fed = n_token;
    return BERYL_OK;
}

/* Do the rings still hold the window before position q, if positions up to `highest` were
 * written? (A ring as long as the context never wraps, but after a restore it has no more than
 * the others.) */
static bool ring_holds(const beryl_engine *e, size_t q, size_t highest) {
    size_t ring = e->model.ring, window = e->model.config.window;
    size_t first = q + 1 > window ? q + 1 - window : 0;
    return first + ring >= highest;
}

/* Brings the caches to a position at or before `common`; what that is becomes n_fed. */
static beryl_status rewind_to(beryl_session *s, size_t common, beryl_error *error) {
    beryl_engine *e = s->engine;
    if (ring_holds(e, common, s->highest)) {
        s->n_fed = common;
        return BERYL_OK;
    }
    size_t q = common < s->saved_at ? common : s->saved_at;
    if (s->saved_at > 0 && ring_holds(e, q, s->saved_highest)) {
        s->n_fed = q;
        s->highest = s->saved_highest;
        return engine_copy_rings(e, s->slot, true, error);
    }
    s->n_fed = s->highest = s->saved_at = 0;
    return BERYL_OK;
}

/* Where pictures see themselves whole, each is in one run: it fits one, */
static beryl_status check_spans(const beryl_engine *e, const session_spans *spans,
                                beryl_error *error) {
    for (size_t i = 0; i < spans->count; i++) {
        const beryl_media *m = spans->data[i].media;
        if (m->kind == BERYL_PICTURE && engine_media_of(e) != GEMMA4_MEDIA_CAUSAL &&
            m->n_soft > e->piece)
            return base_fail(error, BERYL_BAD_INPUT,
                             "a picture of %u soft tokens, where a run reads %u: ask for longer "
                             "pieces of prompts",
                             m->n_soft, e->piece);
    }
    return BERYL_OK;
}

/* and no position inside is where reading goes on. */
static size_t whole_pictures(const beryl_engine *e, const session_spans *spans, size_t position) {
    const session_span *span = session_span_at(spans, position);
    return span && span->begin < position && span->media->kind == BERYL_PICTURE &&
                   engine_media_of(e) != GEMMA4_MEDIA_CAUSAL
               ? span->begin
               : position;
}

beryl_status session_turn_begin(beryl_session *s, const int32_t *tokens, size_t n,
                                const media_list *media, size_t reuse_max, uint32_t *n_reused,
                                beryl_error *error) {
    beryl_engine *e = s->engine;
    if (s->task) return base_fail(error, BERYL_MISUSE, "another task is running on this session");
    if (!tokens || n == 0) return base_fail(error, BERYL_BAD_INPUT, "an empty prompt");
    if (n > e->model.context)
        return base_fail(error, BERYL_CONTEXT_FULL,
                         "the prompt has %zu tokens, the context holds %u%s", n, e->model.context,
                         e->model.context < e->model.config.context_max
                             ? ": shorten it or use a larger --context"
                             : ", which is all that this model has: shorten it");
    for (size_t i = 0; i < n; i++)
        if (tokens[i] < 0 || (uint32_t)tokens[i] >= e->model.config.n_vocab)
            return base_fail_at(error, BERYL_BAD_INPUT, i, "token %d at %zu: the vocabulary has %u",
                                tokens[i], i, e->model.config.n_vocab);
    if (!base_vec_reserve(
            &e->heap, &s->tokens,
            e->model.context + 2 -
                (s->tokens.count < e->model.context ? s->tokens.count : e->model.context)) ||
        !base_vec_reserve(&e->heap, &s->inbox, 16))
        return base_no_memory(error);
    int32_t *now = base_heap_take(&e->heap, n * sizeof *now);
    if (!now) return base_no_memory(error);
    size_t common = 0, most = s->n_fed < reuse_max ? s->n_fed : reuse_max;
    session_spans spans = {0};
    beryl_status status = session_media_place(s, tokens, n, media, now, &spans, error);
    if (status == BERYL_OK) status = check_spans(e, &spans, error);
    if (status == BERYL_OK) {
        while (common < most && common < n && s->tokens.data[common] == now[common]) common++;
        common = whole_pictures(e, &spans, common);
        status = rewind_to(s, common, error);
    }
    if (status == BERYL_OK) s->n_fed = whole_pictures(e, &spans, s->n_fed);
    if (status == BERYL_OK) memcpy(s->tokens.data, now, n * sizeof *now);
    base_heap_give(&e->heap, now, n * sizeof *now);
    session_spans_fini(&e->heap, status == BERYL_OK ? &s->spans : &spans);
    if (status != BERYL_OK) return status;
    s->spans = spans;
    /* what the copies hold of later positions is another timeline's */
    if (s->saved_at > common) s->saved_at = common;
    s->tokens.count = n;
    s->n_prompt = n;
    s->n_ahead = 0;
    s->inbox.count = s->inbox_taken = 0;
    s->first_token = s->prefill_done = 0;
    s->turn++;
    *n_reused = (uint32_t)s->n_fed;
    return BERYL_OK;
}

void session_turn_end(beryl_session *s) {
    if (s->state == SESSION_IDLE) return;
    s->turn++;
    s->state = SESSION_IDLE;
    s->n_ahead = 0;
    s->inbox.count = s->inbox_taken = 0;
    if (s->n_fed > s->tokens.count) s->n_fed = s->tokens.count;
}

/* ---- logits ---------------------------------------------------------------------------------- */

static beryl_status logits_step(beryl_task *task) {
    beryl_session *s = task->session;
    for (;;) {
        if (task_is_cancelled(task)) return base_fail(&task->error, BERYL_CANCELLED, "cancelled");
        if (s->n_fed == s->n_prompt && s->n_ahead == 0) {
            session_turn_end(s);
            return BERYL_OK;
        }
        size_t before = s->n_fed;
        beryl_status status = engine_pump(task->engine, &task->error);
        if (status == BERYL_PENDING && !task->engine->n_flight)
            return engine_compile_progress(task);
        if (status != BERYL_OK) return status;
        if (s->n_fed == before) continue;
        status = task_put(task,
                          (beryl_event){.kind = BERYL_EVENT_PROGRESS,
                                        .what = "reading the prompt",
                                        .done = s->n_fed,
                                        .total = s->n_prompt,
                                        .token = -1},
                          NULL, 0);
        return status == BERYL_OK ? BERYL_EVENT : status;
    }
}

static void logits_close(beryl_task *task) {
    if (task->session) session_turn_end(task->session);
}

beryl_status beryl_session_logits(beryl_session *s, const int32_t *tokens, size_t n, size_t first,
                                  uint32_t piece,
                                  void (*each)(void *user, size_t position, const float *logits),
                                  void *user, beryl_task **out, beryl_error *error) {
    if (!s || !each || !out || first >= n)
        return base_fail(error, BERYL_MISUSE,
                         "beryl_session_logits: session, function, or no position wanted");
    *out = NULL;
    uint32_t reused;
    beryl_status status = session_turn_begin(s, tokens, n, &s->given, first, &reused, error);
    if (status == BERYL_OK) status = task_open(s->engine, s, logits_step, out, error);
    if (status != BERYL_OK) return status;
    (*out)->close = logits_close;
    s->state = SESSION_LOGITS;
    s->logits_first = first;
    s->logits_piece = piece;
    s->logits_each = each;
    s->logits_user = user;
    (*out)->result = (beryl_result){.n_prompt = (uint32_t)n, .n_reused = reused};
    return BERYL_OK;
}
