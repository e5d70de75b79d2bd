/* run.c - what the device does next: plans, runs in flight, and who gets which token. */
#include "base/build.h"
#include "base/error.h"
#include "engine/engine.h"

#include <math.h>
#include <string.h>

/* ---- plans ----------------------------------------------------------------------------------- */

static gemma4_text_options plain_options(const beryl_engine *e, engine_plan_kind kind) {
    uint32_t piece = e->piece, sessions = e->options.sessions,
             usual = piece < ENGINE_PIECE ? piece : ENGINE_PIECE;
    uint64_t rows = ENGINE_LOGIT_BYTES / ((uint64_t)e->model.config.n_vocab * 4);
    uint32_t logits = rows < 1 ? 1 : rows > piece ? piece : (uint32_t)rows;
    switch (kind) {
    case PLAN_PREFILL: return (gemma4_text_options){.n_token = piece};
    case PLAN_OUTPUT: return (gemma4_text_options){.n_token = usual, .n_output = 1, .sample = true};
    case PLAN_OUTPUT_LONG:
        return (gemma4_text_options){.n_token = piece, .n_output = 1, .sample = true};
    case PLAN_OUTPUT_SMALL:
        return (gemma4_text_options){.n_token =
                                         piece < ENGINE_SMALL_PIECE ? piece : ENGINE_SMALL_PIECE,
                                     .n_output = 1,
                                     .sample = true};
    case PLAN_DECODE_NEAR:
        return (gemma4_text_options){
            .n_token = 1, .decode = true, .sample = true, .near = ENGINE_NEAR};
    case PLAN_DECODE: return (gemma4_text_options){.n_token = 1, .decode = true, .sample = true};
    case PLAN_DECODE_8:
        return (gemma4_text_options){
            .n_token = sessions < 8 ? sessions : 8, .decode = true, .sample = true};
    case PLAN_DECODE_ALL:
        return (gemma4_text_options){.n_token = sessions, .decode = true, .sample = true};
    case PLAN_LOGITS: return (gemma4_text_options){.n_token = logits, .n_output = logits};
    case PLAN_MEDIA: return (gemma4_text_options){.n_token = piece, .media = engine_media_of(e)};
    case PLAN_MEDIA_LOGITS:
        return (gemma4_text_options){
            .n_token = logits, .n_output = logits, .media = engine_media_of(e)};
    case PLAN_COUNT: break;
    }
    return (gemma4_text_options){0};
}

gemma4_text_options engine_plan_options(const beryl_engine *e, engine_plan_kind kind) {
    gemma4_text_options o = plain_options(e, (engine_plan_kind)((int)kind % PLAN_ADAPTED));
    if ((int)kind >= PLAN_ADAPTED) o.lora = &e->lora.graph;
    return o;
}

bool engine_has_near(const beryl_engine *e) {
    return e->device && !device_is_processor(device_caps_of(e->device)) &&
           e->model.context > ENGINE_NEAR;
}

static void plan_close(engine_plan *plan) {
    graph_exec_close(plan->exec);
    graph_exec_close(plan->making);
    graph_close(plan->text.g);
    *plan = (engine_plan){0};
}

static beryl_status plan_begin(beryl_engine *e, engine_plan_kind kind, beryl_error *error) {
    engine_plan *plan = &e->plans[kind];
    const gemma4_text_options options = engine_plan_options(e, kind);
    const graph_exec_options how = {.exact = e->options.precision == BERYL_PRECISION_EXACT,
                                    .stepwise = true};
    plan->n_token = options.n_token;
    plan->n_output = options.decode ? options.n_token : options.n_output;
    beryl_status status =
        gemma4_text_build(&e->model, &e->store, &e->heap, &options, &plan->text, error);
    if (status == BERYL_OK)
        status = graph_exec_open(plan->text.g, &e->store, &how, &plan->making, error);
    return status == BERYL_OK ? BERYL_EVENT : status;
}

beryl_status engine_plan_make(beryl_engine *e, engine_plan_kind kind, double seconds,
                              beryl_error *error) {
    engine_plan *plan = &e->plans[kind];
    if (plan->exec) return BERYL_OK;
    beryl_status status =
        plan->making ? graph_exec_make(plan->making, seconds, error) : plan_begin(e, kind, error);
    if (status == BERYL_OK) {
        plan->exec = plan->making;
        plan->making = NULL;
    } else if (status != BERYL_EVENT) {
        plan_close(plan);
    }
    return status;
}

beryl_status engine_plan_get(beryl_engine *e, engine_plan_kind kind, engine_plan **out,
                             beryl_error *error) {
    engine_plan *plan = *out = &e->plans[kind];
    beryl_status status;
    if (plan->ready) return BERYL_OK;
    do {
        status = engine_plan_make(e, kind, INFINITY, error);
    } while (status == BERYL_EVENT);
    if (status == BERYL_OK) status = graph_exec_ready(plan->exec, error);
    uint64_t done, total;
    /* else the load does it for all */
    if (status == BERYL_OK && e->loaded) status = engine_check_step(e, NULL, &done, &total, error);
    if (status == BERYL_EVENT) status = BERYL_PENDING;
    plan->ready = status == BERYL_OK;
    return status;
}

static void plans_close(beryl_engine *e, int from) {
    engine_check_close(e); /* it borrows them */
    for (int k = from; k < PLAN_ALL; k++) plan_close(&e->plans[k]);
}

void engine_plans_close(beryl_engine *e) {
    plans_close(e, 0);
}

void engine_adapted_plans_close(beryl_engine *e) {
    plans_close(e, PLAN_ADAPTED);
}

/* ---- inputs of a run ------------------------------------------------------------------------- */

/* A missing input (of a graph that has none of it) is skipped. */
static void *input_of(const engine_plan *plan, graph_value v) {
    return v ? graph_exec_input(plan->exec, v) : NULL;
}

static void put_rows(const beryl_engine *e, const engine_plan *plan, uint32_t row, uint32_t n,
                     uint32_t slot, size_t first) {
    const gemma4_text *t = &plan->text;
    int32_t *slots = input_of(plan, t->slot), *positions = input_of(plan, t->pos);
    for (uint32_t i = 0; i < n; i++) {
        slots[row + i] = (int32_t)slot;
        positions[row + i] = (int32_t)(first + i);
    }
    for (int k = 0; k < 2; k++) {
        /* cos and sin: 2 * half */
        size_t width = k ? e->model.config.head_dim : e->model.config.head_dim_swa;
        float *angles = input_of(plan, t->angles[k]);
        gemma4_angles(&e->model, k, positions + row, n, angles + row * width);
    }
}

/* Output rows [0, n) are rows [from, from + n) of the run. */
static void put_outputs(const beryl_engine *e, const engine_plan *plan, uint32_t from, uint32_t n) {
    const gemma4_text *t = &plan->text;
    int32_t *rows = input_of(plan, t->output_rows);
    for (uint32_t i = 0; i < n; i++) rows[i] = (int32_t)(from + i);
    memcpy(input_of(plan, t->output_slot), (int32_t *)input_of(plan, t->slot) + from,
           n * sizeof(int32_t));
    memcpy(input_of(plan, t->output_pos), (int32_t *)input_of(plan, t->pos) + from,
           n * sizeof(int32_t));
    for (int k = 0; k < 2; k++) {
        size_t width = k ? e->model.config.head_dim : e->model.config.head_dim_swa;
        memcpy(input_of(plan, t->output_angles[k]),
               (float *)input_of(plan, t->angles[k]) + from * width, n * width * sizeof(float));
    }
}

static void put_settings(const engine_plan *plan, uint32_t row, const beryl_session *s,
                         size_t position) {
    base_sample_settings settings = s->settings;
    settings.counter = (uint32_t)position;
    memcpy((uint32_t *)input_of(plan, plan->text.settings) + (size_t)row * 8, &settings,
           sizeof settings);
}

/* Where the per-layer-embedding table stays in the file: its rows. PENDING: the source has to
 * read. */
static beryl_status put_per_layer(beryl_engine *e, const engine_plan *plan, uint32_t row,
                                  const int32_t *tokens, uint32_t n, beryl_error *error) {
    float *to = input_of(plan, plan->text.per_layer_rows);
    size_t width = (size_t)e->model.config.n_layer * e->model.config.n_per_layer;
    for (uint32_t i = 0; to && i < n; i++) {
        const uint64_t token = tokens[i] < 0 ? 0 : (uint64_t)tokens[i];
        beryl_status status =
            store_read_elements(&e->store, e->model.per_layer_token_embd, token * width,
                                (uint32_t)width, to + (row + i) * width, error);
        if (status != BERYL_OK) return status;
    }
    return BERYL_OK;
}

/* Rows [0, n) are the session's tokens from `first` on: their ids, and what media gives. */
static void put_tokens(const beryl_engine *e, const engine_plan *plan, const beryl_session *s,
                       size_t first, uint32_t n) {
    const gemma4_text *t = &plan->text;
    const size_t width = e->model.config.n_embd;
    int32_t *ids = input_of(plan, t->tokens), *from = input_of(plan, t->first),
            *to = input_of(plan, t->last);
    float *soft = input_of(plan, t->soft);
    bool *is_soft = input_of(plan, t->is_soft);
    const uint32_t window = e->model.config.window;
    const bool all = engine_media_of(e) == GEMMA4_MEDIA_ALL;
    for (uint32_t i = 0; i < n; i++) {
        const size_t p = first + i;
        const session_span *span = s->tokens.data[p] < 0 ? session_span_at(&s->spans, p) : NULL;
        const bool whole = span && span->media->kind == BERYL_PICTURE;
        ids[i] = span ? 0 : s->tokens.data[p];
        if (soft) is_soft[i] = span;
        if (soft && span)
            memcpy(soft + i * width, span->media->soft + (p - span->begin) * width,
                   width * sizeof *soft);
        if (!from) continue;
        size_t begin = p + 1 > window ? p + 1 - window : 0;
        if (whole && all && begin > span->begin) begin = span->begin;
        from[i] = (int32_t)begin;
        to[i] = (int32_t)(whole ? span->begin + span->media->n_soft - 1 : p);
    }
}

/* How many of the next n tokens are one run: soft tokens are in runs of their own, of a picture all
 * where the model sees it whole. *media: they are soft. */
static uint32_t run_length(const beryl_session *s, uint32_t n, bool *media) {
    const session_span *span = session_span_at(&s->spans, s->n_fed);
    *media = span && span->begin <= s->n_fed;
    if (!span) return n;
    const size_t left = (*media ? span->begin + span->media->n_soft : span->begin) - s->n_fed;
    return left < n ? (uint32_t)left : n;
}

/* ---- submitting ------------------------------------------------------------------------------ */

/* Begins a run, which then is e->prompt or e->step until it is submitted to its end. */
static beryl_status begin(beryl_engine *e, engine_plan *plan, engine_run *to, const engine_run *run,
                          const graph_value *fetch, uint32_t n_output, beryl_error *error) {
    uint32_t extents[GRAPH_EXTENT_MAX + 1] = {0};
    extents[plan->text.token_extent] = run->n_token;
    if (plan->text.output_extent != plan->text.token_extent)
        extents[plan->text.output_extent] = n_output;
    beryl_status status = graph_exec_begin(plan->exec, extents, fetch, run->n_fetch, error);
    if (status != BERYL_OK) return status;
    *to = *run;
    to->first = true;
    e->stats.steps++;
    return BERYL_OK;
}

/* The next part of a run that was begun. */
static beryl_status go_on(beryl_engine *e, engine_run *run, beryl_error *error) {
    engine_plan *plan = &e->plans[engine_plan_index(run)];
    run->submitted = base_time();
    beryl_status status = graph_exec_continue(plan->exec, engine_pace_parts(plan, run->n_token),
                                              &run->part, &run->ticket, error);
    if (status != BERYL_OK) return status;
    run->full = e->n_flight + 1 >= e->depth.depth;
    e->flight[e->n_flight++] = *run;
    run->first = false;
    if (run->part.last) run->n_row = 0;
    return BERYL_OK;
}

/* Nothing is chosen, and no logits are wanted. */
static bool only_reads(engine_plan_kind kind) {
    return kind == PLAN_PREFILL || kind == PLAN_MEDIA;
}

/* The most tokens of the next run: pictures that the model sees whole are as long as they are. */
static uint32_t piece_for(const beryl_engine *e, const beryl_session *s) {
    const session_span *span = session_span_at(&s->spans, s->n_fed);
    return span && span->begin <= s->n_fed && engine_media_of(e) != GEMMA4_MEDIA_CAUSAL
               ? e->piece
               : e->piece_now;
}

static bool adapted(const beryl_session *s) {
    return BUILD_HAS_ADAPTERS && s->adapters.count > 0;
}

static beryl_status get_plan(beryl_engine *e, engine_plan_kind kind, bool with_adapters,
                             engine_plan **plan, beryl_error *error) {
    return engine_plan_get(e, (engine_plan_kind)(kind + (with_adapters ? PLAN_ADAPTED : 0)), plan,
                           error);
}

static beryl_status begin_prompt(beryl_engine *e, beryl_session *s, beryl_error *error) {
    bool media;
    const uint32_t left = (uint32_t)(s->n_prompt - s->n_fed), most = piece_for(e, s),
                   n = run_length(s, left < most ? left : most, &media);
    const engine_plan_kind kind = media                     ? PLAN_MEDIA
                                  : n < left                ? PLAN_PREFILL
                                  : n <= ENGINE_SMALL_PIECE ? PLAN_OUTPUT_SMALL
                                  : n <= ENGINE_PIECE       ? PLAN_OUTPUT
                                                            : PLAN_OUTPUT_LONG;
    engine_plan *plan;
    beryl_status status = get_plan(e, kind, adapted(s), &plan, error);
    if (status == BERYL_OK) status = put_per_layer(e, plan, 0, s->tokens.data + s->n_fed, n, error);
    if (status != BERYL_OK) return status;
    engine_run run = {
        .kind = kind, .adapted = adapted(s), .n_row = 1, .n_token = n, .rows = {{s, s->turn}}};
    graph_value fetch[2];
    put_tokens(e, plan, s, s->n_fed, n);
    put_rows(e, plan, 0, n, s->slot, s->n_fed);
    if (!only_reads(kind)) {
        put_outputs(e, plan, n - 1, 1);
        put_settings(plan, 0, s, s->n_fed + n - 1);
        fetch[run.n_fetch++] = plan->text.chosen;
        run.logits = s->host_sampling;
        if (run.logits) fetch[run.n_fetch++] = plan->text.logits;
    }
    return begin(e, plan, &e->prompt, &run, fetch, 1, error);
}

static beryl_status begin_logits(beryl_engine *e, beryl_session *s, beryl_error *error) {
    bool wanted = s->n_fed >= s->logits_first;
    engine_plan *plan;
    bool media;
    run_length(s, 1, &media);
    const engine_plan_kind kind = media    ? (wanted ? PLAN_MEDIA_LOGITS : PLAN_MEDIA)
                                  : wanted ? PLAN_LOGITS
                                           : PLAN_PREFILL;
    beryl_status status = get_plan(e, kind, adapted(s), &plan, error);
    if (status != BERYL_OK) return status;
    size_t left = (wanted ? s->n_prompt : s->logits_first) - s->n_fed;
    const uint32_t piece = piece_for(e, s);
    uint32_t n = plan->n_token < piece ? plan->n_token : piece;
    const bool whole = media && engine_media_of(e) != GEMMA4_MEDIA_CAUSAL;
    if (s->logits_piece && n > s->logits_piece && !whole) n = s->logits_piece;
    if (n > left && !whole) n = (uint32_t)left;
    const uint32_t length = run_length(s, whole ? UINT32_MAX : n, &media);
    if (whole && length > n)
        return base_fail(error, BERYL_UNSUPPORTED, "logits of a picture of %u soft tokens", length);
    n = length;
    status = put_per_layer(e, plan, 0, s->tokens.data + s->n_fed, n, error);
    if (status != BERYL_OK) return status;
    engine_run run = {.kind = kind,
                      .adapted = adapted(s),
                      .n_row = 1,
                      .n_token = n,
                      .rows = {{s, s->turn}},
                      .first_position = s->n_fed};
    put_tokens(e, plan, s, s->n_fed, n);
    put_rows(e, plan, 0, n, s->slot, s->n_fed);
    if (wanted) put_outputs(e, plan, 0, n);
    run.logits = wanted;
    run.n_fetch = wanted;
    return begin(e, plan, &e->prompt, &run, &plan->text.logits, n, error);
}

/* A part of the prompt's run that is under way, or of the next one of this session. */
static beryl_status submit_prompt(beryl_engine *e, beryl_session *s, beryl_error *error) {
    beryl_status status = BERYL_OK;
    if (e->prompt.n_row == 0)
        status = s->state == SESSION_LOGITS ? begin_logits(e, s, error) : begin_prompt(e, s, error);
    if (status != BERYL_OK) return status;
    const engine_run *run = &e->prompt;
    if (engine_pace_waits(e, run)) return BERYL_PENDING;
    const size_t after = s->n_fed + run->n_token;
    if (after > s->highest) s->highest = after; /* the first part writes into the rings already */
    status = go_on(e, &e->prompt, error);
    if (status != BERYL_OK || !run->part.last) return status;
    s->n_fed = after;
    if (s->state == SESSION_LOGITS) {
        s->n_ahead++;
        return BERYL_OK;
    }
    if (only_reads(run->kind)) return BERYL_OK;
    s->state = SESSION_DECODE;
    s->n_ahead = 1;
    /* A later prompt may leave out what is thought from here on: it then restarts from these
     * copies. */
    s->saved_at = s->n_fed;
    s->saved_highest = s->highest;
    return engine_copy_rings(e, s->slot, false, error);
}

/* Is this session ready for a decode step? Its newest token is on the device, or known where the
 * host needs it. */
static bool may_decode(const beryl_engine *e, const beryl_session *s) {
    if (!s || s->state != SESSION_DECODE || s->n_fed >= s->limit) return false;
    bool host_needs_token = s->host_sampling || e->model.per_layer_on_host;
    return host_needs_token ? s->n_ahead == 0 && s->tokens.count > s->n_fed
                            : s->n_ahead < e->depth.depth;
}

static beryl_status begin_decode(beryl_engine *e, beryl_error *error) {
    beryl_session *ready[ENGINE_SESSION_MAX];
    uint32_t n = 0;
    bool any_adapted = false;
    for (uint32_t i = 0; !e->holding && i < e->options.sessions; i++) {
        if (!may_decode(e, e->sessions[i])) continue;
        any_adapted |= adapted(e->sessions[i]);
        ready[n++] = e->sessions[i];
    }
    if (n == 0) return BERYL_PENDING;
    bool near = n == 1 && ready[0]->n_fed < ENGINE_NEAR && engine_has_near(e);
    engine_plan_kind kind = near     ? PLAN_DECODE_NEAR
                            : n == 1 ? PLAN_DECODE
                            : n <= 8 ? PLAN_DECODE_8
                                     : PLAN_DECODE_ALL;
    engine_plan *plan;
    /* In software a compile takes the processor from the prompt's own step: the first word comes
     * before it. */
    if (e->device && device_caps_of(e->device)->kind == DEVICE_SOFTWARE &&
        !e->plans[kind + (any_adapted ? PLAN_ADAPTED : 0)].exec && e->n_flight)
        return BERYL_PENDING;
    beryl_status status = get_plan(e, kind, any_adapted, &plan, error);
    if (status != BERYL_OK) return status;
    engine_run run = {.kind = kind, .adapted = any_adapted, .n_row = n, .n_token = n, .n_fetch = 1};
    graph_value fetch[2] = {plan->text.chosen, plan->text.logits};
    for (uint32_t i = 0; i < n; i++) {
        beryl_session *s = ready[i];
        run.rows[i] = (engine_row){s, s->turn};
        put_rows(e, plan, i, 1, s->slot, s->n_fed);
        put_settings(plan, i, s, s->n_fed);
        if (e->model.per_layer_on_host)
            status = put_per_layer(e, plan, i, &s->tokens.data[s->n_fed], 1, error);
        if (status != BERYL_OK) return status;
        run.logits |= s->host_sampling;
    }
    run.n_fetch += run.logits;
    status = begin(e, plan, &e->step, &run, fetch, n, error);
    for (uint32_t i = 0; status == BERYL_OK && i < n; i++) {
        ready[i]->n_fed++;
        ready[i]->n_ahead++;
        if (ready[i]->n_fed > ready[i]->highest) ready[i]->highest = ready[i]->n_fed;
    }
    return status;
}

/* A step that was begun is always ended, since its positions count as fed. */
static beryl_status submit_decode(beryl_engine *e, beryl_error *error) {
    const beryl_status status = e->step.n_row ? BERYL_OK : begin_decode(e, error);
    return status == BERYL_OK ? go_on(e, &e->step, error) : status;
}

static bool wants_prompt(const beryl_session *s) {
    return s && (s->state == SESSION_PREFILL || s->state == SESSION_LOGITS) &&
           s->n_fed < s->n_prompt;
}

/* The session whose prompt is next. A run under way goes first, unless its turn has ended: then
 * the rest of it is left. */
static beryl_session *next_prompt(beryl_engine *e) {
    if (e->prompt.n_row) {
        beryl_session *s = e->prompt.rows[0].session;
        if (s && s->turn == e->prompt.rows[0].turn) return s;
        e->prompt.n_row = 0;
    }
    for (uint32_t i = 0; !e->holding && i < e->options.sessions; i++) {
        uint32_t slot = (e->next_prefill + i) % e->options.sessions;
        if (wants_prompt(e->sessions[slot])) return e->sessions[e->next_prefill = slot];
    }
    return NULL;
}

/* Parts of prompts and decode steps take turns. */
static beryl_status submit_next(beryl_engine *e, beryl_error *error) {
    beryl_session *prompt = next_prompt(e);
    if (!prompt || e->last_was_prompt || e->step.n_row) {
        beryl_status status = submit_decode(e, error);
        e->last_was_prompt = false;
        if (!prompt || status != BERYL_PENDING) return status;
    }
    e->last_was_prompt = true;
    return submit_prompt(e, prompt, error);
}

/* ---- finishing ------------------------------------------------------------------------------- */

/* Repetition, presence and frequency penalties over the newest tokens, then the rule of
 * base/sample.h. */
static int32_t choose_on_host(beryl_engine *e, beryl_session *s, float *logits, size_t position) {
    uint32_t n_vocab = e->model.config.n_vocab;
    size_t n = s->tokens.count, first = n > s->penalty_window ? n - s->penalty_window : 0;
    for (size_t i = first; i < n; i++) {
        int32_t token = s->tokens.data[i];
        if (token < 0) continue; /* soft */
        size_t count = 0;
        bool seen = false;
        for (size_t k = first; k < n; k++) {
            seen |= k < i && s->tokens.data[k] == token;
            count += s->tokens.data[k] == token;
        }
        if (seen) continue;
        float *l = &logits[token];
        if (s->repetition > 0) *l = *l > 0 ? *l / s->repetition : *l * s->repetition;
        *l -= s->presence + s->frequency * (float)count;
    }
    base_sample_settings settings = s->settings;
    settings.counter = (uint32_t)position;
    return base_sample(logits, n_vocab, &settings);
}

static beryl_status deliver(beryl_engine *e, beryl_session *s, int32_t token, beryl_error *error) {
    /* what was taken makes room, so that the box stays as small as its longest queue */
    if (s->inbox_taken) {
        s->inbox.count -= s->inbox_taken;
        memmove(s->inbox.data, s->inbox.data + s->inbox_taken,
                s->inbox.count * sizeof *s->inbox.data);
        s->inbox_taken = 0;
    }
    int32_t *known = base_vec_add(&e->heap, &s->tokens), *inbox = base_vec_add(&e->heap, &s->inbox);
    if (!known || !inbox) return base_no_memory(error);
    *known = *inbox = token;
    if (s->first_token == 0) s->first_token = base_time();
    s->n_ahead--;
    return BERYL_OK;
}

static beryl_status finish_tokens(beryl_engine *e, engine_run *run, beryl_error *error) {
    engine_plan *plan = &e->plans[engine_plan_index(run)];
    const int32_t *chosen = NULL;
    const float *logits = NULL;
    beryl_status status =
        graph_exec_fetched(plan->exec, run->ticket, 0, (const void **)&chosen, error);
    if (status == BERYL_OK && run->logits)
        status = graph_exec_fetched(plan->exec, run->ticket, 1, (const void **)&logits, error);
    for (uint32_t i = 0; status == BERYL_OK && i < run->n_row; i++) {
        beryl_session *s = run->rows[i].session;
        if (!s || s->turn != run->rows[i].turn) continue;
        int32_t token = chosen[i];
        if (token < 0 || (uint32_t)token >= e->model.config.n_vocab)
            return base_fail(error, BERYL_DEVICE, "the device chose token %d of a vocabulary of %u",
                             token, e->model.config.n_vocab);
        if (s->host_sampling) {
            size_t n_vocab = e->model.config.n_vocab;
            memcpy(e->host_logits, logits + (size_t)i * n_vocab, n_vocab * sizeof *logits);
            token = choose_on_host(e, s, e->host_logits, s->n_fed - 1);
            status = store_state_write(&e->store, e->model.tokens, s->slot * 4u, &token, 4, error);
        }
        if (status == BERYL_OK) status = deliver(e, s, token, error);
    }
    return status;
}

static beryl_status finish_logits(beryl_engine *e, engine_run *run, beryl_error *error) {
    beryl_session *s = run->rows[0].session;
    if (!s || s->turn != run->rows[0].turn) return BERYL_OK;
    s->n_ahead--;
    if (!run->logits) return BERYL_OK;
    const float *logits;
    beryl_status status = graph_exec_fetched(e->plans[engine_plan_index(run)].exec, run->ticket, 0,
                                             (const void **)&logits, error);
    for (uint32_t i = 0; status == BERYL_OK && i < run->n_token; i++)
        s->logits_each(s->logits_user, run->first_position + i,
                       logits + (size_t)i * e->model.config.n_vocab);
    return status;
}

static beryl_status finish_run(beryl_engine *e, engine_run *run, beryl_error *error) {
    double now = base_time();
    beryl_session *s = run->rows[0].session;
    bool current = s && s->turn == run->rows[0].turn;
    bool prompt =
        run->kind == PLAN_PREFILL || run->kind == PLAN_OUTPUT || run->kind == PLAN_OUTPUT_SMALL;
    engine_pace_done(e, run,
                     now - (run->submitted > e->last_finished ? run->submitted : e->last_finished));
    e->last_finished = now;
    if (!run->part.last) return BERYL_OK;
    if (prompt && current && run->kind != PLAN_PREFILL) s->prefill_done = now;
    if (current && s->state == SESSION_LOGITS) return finish_logits(e, run, error);
    return only_reads(run->kind) || run->kind == PLAN_LOGITS || run->kind == PLAN_MEDIA_LOGITS
               ? BERYL_OK
               : finish_tokens(e, run, error);
}

static beryl_status finish_done(beryl_engine *e, bool *moved, beryl_error *error) {
    device_ticket done = UINT64_MAX; /* the reference computes at once */
    if (e->n_flight == 0) return BERYL_OK;
    beryl_status status = e->device ? device_poll(e->device, &done, error) : BERYL_OK;
    while (status == BERYL_OK && e->n_flight && e->flight[0].ticket <= done) {
        engine_run run = e->flight[0];
        e->n_flight--;
        memmove(e->flight, e->flight + 1, e->n_flight * sizeof *e->flight);
        *moved = true;
        status = finish_run(e, &run, error);
    }
    return status;
}

beryl_status engine_pump(beryl_engine *e, beryl_error *error) {
    bool moved = false;
    if (e->failure.code != BERYL_OK) {
        if (error) *error = e->failure;
        return e->failure.code;
    }
    beryl_status status = finish_done(e, &moved, &e->failure);
    uint32_t most = e->device ? e->depth.depth : 1;
    if (BUILD_HAS_ADAPTERS && status == BERYL_OK && e->lora.uploading)
        status = engine_lora_upload(e, &e->failure);
    while (status == BERYL_OK && e->n_flight < most) {
        status = submit_next(e, &e->failure);
        moved |= status == BERYL_OK;
    }
    if (status == BERYL_OK || status == BERYL_PENDING) {
        e->failure = (beryl_error){0};
        return moved ? BERYL_OK : BERYL_PENDING;
    }
    e->failure.code = status;
    if (error) *error = e->failure;
    return status;
}

beryl_status engine_sleep(beryl_engine *e, beryl_error *error) {
    if (e->device && e->n_flight) return device_wait(e->device, e->flight[0].ticket, error);
    if (e->device) base_sleep(2e-4); /* a program compiles or an upload drains */
    return BERYL_OK;
}

beryl_status engine_drain(beryl_engine *e, beryl_error *error) {
    beryl_status status = BERYL_OK;
    e->holding = true;
    while ((status == BERYL_OK || status == BERYL_PENDING) &&
           (e->n_flight || e->step.n_row || next_prompt(e) || e->lora.uploading)) {
        status = engine_pump(e, error);
        if (status == BERYL_PENDING && BUILD_IS_MODULE) break; /* nothing ends while C runs */
        if (status == BERYL_PENDING) status = engine_sleep(e, error);
    }
    e->holding = false;
    return status;
}

void engine_run_forget(engine_run *run, const beryl_session *s) {
    for (uint32_t k = 0; k < run->n_row; k++)
        if (run->rows[k].session == s) run->rows[k].session = NULL;
}

/* ---- cache rows ------------------------------------------------------------------------------ */

uint32_t engine_cache_ranges(const beryl_engine *e, uint32_t state, uint32_t slot, uint32_t row,
                             uint32_t n, cache_range *out) {
    const store_tensor *t = &e->store.tensors.data[state];
    uint64_t heads = t->dim[2], d = t->dim[3], first = ((uint64_t)slot * t->dim[1] + row) * heads,
             count = n * heads;
    if (t->type != TYPE_Q8_0 || !e->device) {
        uint64_t bytes = base_type_row_bytes(t->type, d);
        out[0] = (cache_range){first * bytes, count * bytes};
        return 1;
    }
    uint64_t quants = (uint64_t)t->dim[0] * t->dim[1] * heads * d; /* bytes of the first plane */
    out[0] = (cache_range){first * d, count * d};
    out[1] = (cache_range){quants + first * d / 16, count * d / 16};
    return 2;
}

static uint32_t copy_ring(beryl_engine *e, uint32_t from, uint32_t to, uint32_t slot,
                          device_command *commands) {
    cache_range ranges[2];
    uint32_t n = engine_cache_ranges(e, from, slot, 0, e->store.tensors.data[from].dim[1], ranges);
    const store_tensor *a = &e->store.tensors.data[from], *b = &e->store.tensors.data[to];
    for (uint32_t i = 0; i < n; i++) {
        if (!e->device) {
            memcpy((char *)b->host + ranges[i].offset, (const char *)a->host + ranges[i].offset,
                   (size_t)ranges[i].size);
            continue;
        }
        const struct store_buffer *buffers = e->store.buffers.data;
        commands[i] = (device_command){
            .kind = DEVICE_COPY,
            .copy = {buffers[a->shard[0].buffer].id, buffers[b->shard[0].buffer].id,
                     a->shard[0].offset + ranges[i].offset, b->shard[0].offset + ranges[i].offset,
                     ranges[i].size}};
    }
    return n;
}

beryl_status engine_copy_rings(beryl_engine *e, uint32_t slot, bool back, beryl_error *error) {
    uint32_t n = 0, n_layer = e->model.config.n_layer;
    if (!e->copies) e->copies = base_arena_take(&e->arena, (size_t)n_layer * 4, sizeof *e->copies);
    if (!e->copies) return base_no_memory(error);
    for (uint32_t l = 0; l < n_layer; l++) {
        const gemma4_layer *layer = &e->model.layers[l];
        if (layer->k_copy == GEMMA4_NONE) continue;
        n += copy_ring(e, back ? layer->k_copy : layer->k_cache,
                       back ? layer->k_cache : layer->k_copy, slot, e->copies + n);
        n += copy_ring(e, back ? layer->v_copy : layer->v_cache,
                       back ? layer->v_cache : layer->v_copy, slot, e->copies + n);
    }
    if (n == 0 || !e->device) return BERYL_OK;
    device_ticket ticket;
    return device_submit(e->device, &(device_submit_desc){.commands = e->copies, .n_command = n},
                         &ticket, error);
}
