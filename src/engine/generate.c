/* generate.c - the generate and chat tasks: from chosen tokens to text, thoughts, calls, and an
 * end. */
#include "base/error.h"
#include "engine/media.h"
#include "engine/session.h"

#include <string.h>

typedef struct generation { /* of one task */
    base_heap *heap;
    bool chat;
    text_parser *parser; /* chat */
    text_stream stream;  /* plain */
    base_text piece;     /* text of a token */
    base_text held;      /* answer text that may be the beginning of a stop text */
    char **stops;        /* [n_stop], in the arena */
    size_t n_stop;
    base_arena arena;
    uint32_t max_tokens, n_generated;
    bool ignore_eos, stopping;
    size_t told;             /* prompt positions told as progress */
    media_encoding encoding; /* of media of the prompt */
    double started, last;
} generation;

/* ---- stop texts ------------------------------------------------------------------------------ */

/* Adds text; *emit: bytes at the front of `held` that may go out. True: a stop text was found
 * there. */
static bool stops_push(generation *g, const char *text, size_t size, size_t *emit) {
    base_text_add(&g->held, text, size);
    *emit = g->held.size;
    size_t keep = 0;
    for (size_t i = 0; i < g->n_stop; i++) {
        size_t length = strlen(g->stops[i]);
        for (size_t at = 0; at + length <= g->held.size; at++)
            if (!memcmp(g->held.data + at, g->stops[i], length)) {
                if (at < *emit) *emit = at;
                g->stopping = true;
                break;
            }
        /* an end that could go on to become this stop text */
        for (size_t n = length - 1; n > 0; n--)
            if (n <= g->held.size && !memcmp(g->held.data + g->held.size - n, g->stops[i], n)) {
                if (n > keep) keep = n;
                break;
            }
    }
    if (!g->stopping) *emit = g->held.size - keep;
    return g->stopping;
}

static beryl_status put_text(beryl_task *task, int32_t token, beryl_part part, const char *text,
                             size_t size) {
    return task_put(task, (beryl_event){.kind = BERYL_EVENT_TOKEN, .token = token, .part = part},
                    text, size);
}

/* Answer text goes through the stop texts. */
static beryl_status put_answer(beryl_task *task, generation *g, int32_t token, const char *text,
                               size_t size) {
    if (g->n_stop == 0) return put_text(task, token, BERYL_PART_TEXT, text, size);
    size_t emit;
    stops_push(g, text, size, &emit);
    if (g->held.failed) return base_no_memory(&task->error);
    beryl_status status = put_text(task, token, BERYL_PART_TEXT, g->held.data, emit);
    size_t left = g->stopping ? 0 : g->held.size - emit;
    memmove(g->held.data, g->held.data + emit, left);
    g->held.size = left;
    g->held.data[left] = 0;
    return status;
}

/* ---- tokens to events ------------------------------------------------------------------------ */

static beryl_status drain_parser(beryl_task *task, generation *g, int32_t token) {
    text_item item;
    bool any = false;
    beryl_status status = BERYL_OK;
    while (status == BERYL_OK && !g->stopping && text_parser_next(g->parser, &item)) {
        int32_t id = any ? -1 : token;
        if (item.kind != TEXT_ITEM_CALL) any = true;
        switch (item.kind) {
        case TEXT_ITEM_TEXT:
            status = put_answer(task, g, id, item.text.data, item.text.size);
            break;
        case TEXT_ITEM_THOUGHT:
            status = put_text(task, id, BERYL_PART_THOUGHT, item.text.data, item.text.size);
            break;
        case TEXT_ITEM_CALL_TEXT:
            status = put_text(task, id, BERYL_PART_CALL, item.text.data, item.text.size);
            break;
        case TEXT_ITEM_CALL:
            status = task_put(
                task, (beryl_event){.kind = BERYL_EVENT_CALL, .token = -1, .part = BERYL_PART_CALL},
                item.text.data, item.text.size);
            break;
        }
    }
    if (status == BERYL_OK && !any && token >= 0)
        status = put_text(task, token, BERYL_PART_CONTROL, "", 0);
    return status;
}

static beryl_status push_token(beryl_task *task, generation *g, int32_t token) {
    beryl_status status;
    if (g->chat) {
        status = text_parser_push(g->parser, token, &task->error);
        return status == BERYL_OK ? drain_parser(task, g, token) : status;
    }
    base_text_clear(&g->piece);
    status = text_stream_push(&g->stream, token, &g->piece, &task->error);
    if (status == BERYL_OK && g->piece.failed) status = base_no_memory(&task->error);
    return status == BERYL_OK ? put_answer(task, g, token, g->piece.data, g->piece.size) : status;
}

/* What was held back goes out. */
static beryl_status flush(beryl_task *task, generation *g) {
    beryl_status status = BERYL_OK;
    if (g->stopping) return status;
    if (g->chat) {
        status = text_parser_finish(g->parser, &task->error);
        if (status == BERYL_OK) status = drain_parser(task, g, -1);
    } else {
        base_text_clear(&g->piece);
        text_stream_finish(&g->stream, &g->piece);
        if (g->piece.size) status = put_answer(task, g, -1, g->piece.data, g->piece.size);
    }
    if (status == BERYL_OK && g->held.size && !g->stopping)
        status = put_text(task, -1, BERYL_PART_TEXT, g->held.data, g->held.size);
    return status;
}

static beryl_status end(beryl_task *task, generation *g, beryl_end how) {
    beryl_session *s = task->session;
    beryl_result *r = &task->result;
    if (how != BERYL_END_CANCELLED && task_settle(task) != BERYL_OK) how = BERYL_END_CANCELLED;
    r->end = how;
    r->n_generated = g->n_generated;
    r->prefill_s = s->prefill_done > 0 ? s->prefill_done - g->started : 0;
    r->first_token_s = s->first_token > 0 ? s->first_token - g->started : 0;
    r->decode_s = g->n_generated > 1 ? g->last - s->first_token : 0;
    beryl_status status = how == BERYL_END_CANCELLED
                              ? base_fail(&task->error, BERYL_CANCELLED, "cancelled")
                              : flush(task, g);
    session_turn_end(s);
    return status;
}

/* One token from the inbox. OK: the turn has ended; EVENT: go on. */
static beryl_status take_token(beryl_task *task, generation *g) {
    beryl_session *s = task->session;
    int32_t token = s->inbox.data[s->inbox_taken++];
    if (s->inbox_taken == s->inbox.count) s->inbox.count = s->inbox_taken = 0;
    g->last = base_time();
    g->n_generated++;
    bool stop = text_is_stop(task->engine->tokenizer, token) && !g->ignore_eos;
    beryl_status status = stop && !g->chat ? BERYL_OK : push_token(task, g, token);
    if (status != BERYL_OK) return status;
    if (stop || g->stopping) return end(task, g, BERYL_END_STOP);
    if (g->max_tokens && g->n_generated == g->max_tokens) return end(task, g, BERYL_END_LENGTH);
    return BERYL_EVENT;
}

static size_t n_encoded(const session_spans *spans) {
    size_t i = 0;
    while (i < spans->count && media_is_encoded(spans->data[i].media)) i++;
    return i;
}

/* Soft tokens of the prompt's media, before it is read. */
static beryl_status encode_media(beryl_task *task, generation *g) {
    beryl_session *s = task->session;
    const session_spans *spans = &s->spans;
    const size_t i = n_encoded(spans);
    if (i == spans->count) {
        s->state = SESSION_PREFILL;
        return BERYL_OK;
    }
    if (!g->encoding.media) media_encode_begin(&g->encoding, spans->data[i].media);
    const beryl_status status = media_encode_step(task, &g->encoding);
    if (status != BERYL_OK) return status;
    media_encode_end(&g->encoding);
    return task_progress(task, "encoding", i + 1, spans->count);
}

static beryl_status generate_step(beryl_task *task) {
    beryl_session *s = task->session;
    generation *g = task->state;
    for (;;) {
        if (task_is_cancelled(task)) return end(task, g, BERYL_END_CANCELLED);
        if (s->state == SESSION_MEDIA) {
            const beryl_status status = encode_media(task, g);
            if (status != BERYL_OK) return status;
        }
        if (s->inbox.count > s->inbox_taken) return take_token(task, g);
        if (s->state == SESSION_DECODE && s->n_ahead == 0 && s->n_fed >= s->limit)
            return end(task, g, BERYL_END_CONTEXT);
        beryl_status status = engine_pump(task->engine, &task->error);
        bool told = s->n_fed > g->told && g->told < s->n_prompt;
        if (told && (status == BERYL_OK || status == BERYL_PENDING)) {
            g->told = s->n_fed;
            uint64_t reused = task->result.n_reused;
            status = task_put(
                task,
                (beryl_event){.kind = BERYL_EVENT_PROGRESS,
                              .what = "reading the prompt",
                              .token = -1,
                              .done = (s->n_fed < s->n_prompt ? s->n_fed : s->n_prompt) - reused,
                              .total = s->n_prompt - reused},
                NULL, 0);
            return status == BERYL_OK ? BERYL_EVENT : status;
        }
        if (status == BERYL_PENDING && !task->engine->n_flight)
            return engine_compile_progress(task);
        if (status != BERYL_OK) return status;
    }
}

static void generation_close(generation *g) {
    media_encode_end(&g->encoding);
    text_parser_close(g->parser);
    base_text_fini(&g->piece);
    base_text_fini(&g->held);
    base_arena_fini(&g->arena);
    base_heap_give(g->heap, g, sizeof *g);
}

static void generate_close(beryl_task *task) {
    if (task->session) session_turn_end(task->session);
    if (task->state) generation_close(task->state);
}

/* ---- beginning ------------------------------------------------------------------------------- */

static beryl_status read_options(const beryl_generate_options *given, beryl_generate_options *o,
                                 beryl_error *error) {
    static const beryl_generate_options none = {.size = sizeof none};
    if (!given) given = &none;
    if (given->size < offsetof(beryl_generate_options, ignore_eos) || given->size > 1 << 16)
        return base_fail(
            error, BERYL_MISUSE,
            "beryl_generate_options.size is %zu: set it to sizeof(beryl_generate_options)",
            given->size);
    *o = none;
    memcpy(o, given, given->size < sizeof *o ? given->size : sizeof *o);
    const float numbers[] = {
        o->temperature,      o->top_p, o->min_p, o->repetition_penalty, o->presence_penalty,
        o->frequency_penalty};
    for (size_t i = 0; i < sizeof numbers / sizeof *numbers; i++)
        if (!(numbers[i] > -1e6f && numbers[i] < 1e6f))
            return base_fail(error, BERYL_BAD_INPUT, "a sampling setting is not a sensible number");
    if (o->temperature < 0)
        return base_fail(error, BERYL_BAD_INPUT,
                         "a temperature below 0: .greedy asks for the likeliest token");
    if (o->repetition_penalty < 0)
        return base_fail(error, BERYL_BAD_INPUT, "a negative repetition penalty");
    if (o->n_stop && !o->stop)
        return base_fail(error, BERYL_MISUSE, "stop texts without their list");
    return BERYL_OK;
}

static void set_sampling(beryl_session *s, const beryl_generate_options *o) {
    const beryl_engine *e = s->engine;
    uint64_t seed = o->seed ? o->seed : base_random_seed();
    s->settings =
        (base_sample_settings){.temperature = o->temperature == 0 ? e->temperature : o->temperature,
                               .top_p = o->top_p == 0 ? e->top_p : o->top_p,
                               .min_p = o->min_p,
                               .top_k = o->top_k == 0 ? e->top_k : o->top_k,
                               .seed = {(uint32_t)seed, (uint32_t)(seed >> 32)}};
    if (o->greedy) s->settings.temperature = 0;
    if (s->settings.top_k > BASE_CANDIDATE_MAX) s->settings.top_k = BASE_CANDIDATE_MAX;
    bool repeats = o->repetition_penalty > 0 && o->repetition_penalty != 1.0f;
    s->repetition = repeats ? o->repetition_penalty : 0;
    s->presence = o->presence_penalty;
    s->frequency = o->frequency_penalty;
    s->penalty_window = o->penalty_window ? o->penalty_window : 64;
    s->host_sampling = repeats || s->presence != 0 || s->frequency != 0;
}

static beryl_status copy_stops(generation *g, const beryl_generate_options *o, beryl_error *error) {
    g->stops = base_arena_take(&g->arena, o->n_stop + 1, sizeof *g->stops);
    for (size_t i = 0; g->stops && i < o->n_stop; i++) {
        if (!o->stop[i] || !*o->stop[i]) continue;
        g->stops[g->n_stop] = base_arena_text(&g->arena, o->stop[i], strlen(o->stop[i]));
        if (!g->stops[g->n_stop++]) g->stops = NULL;
    }
    return g->stops ? BERYL_OK : base_no_memory(error);
}

static beryl_status begin(beryl_session *s, const int32_t *tokens, size_t n,
                          const media_list *media, const beryl_generate_options *o, generation *g,
                          beryl_task **out, beryl_error *error) {
    beryl_engine *e = s->engine;
    uint32_t reused;
    g->started = base_time();
    g->max_tokens = o->max_tokens;
    g->ignore_eos = o->ignore_eos;
    beryl_status status = copy_stops(g, o, error);
    bool penalties =
        o->repetition_penalty > 0 || o->presence_penalty != 0 || o->frequency_penalty != 0;
    if (status == BERYL_OK && penalties && !e->host_logits) {
        e->host_logits = base_arena_take(&e->arena, e->model.config.n_vocab, sizeof(float));
        if (!e->host_logits) status = base_no_memory(error);
    }
    if (status == BERYL_OK)
        status = session_turn_begin(s, tokens, n, media, n - (n > 0), &reused, error);
    if (status == BERYL_OK) status = task_open(e, s, generate_step, out, error);
    if (status != BERYL_OK) return status;
    set_sampling(s, o);
    uint64_t limit = o->max_tokens ? (uint64_t)n + o->max_tokens - 1 : UINT64_MAX;
    s->limit = limit < e->model.context ? (size_t)limit : e->model.context;
    s->state = n_encoded(&s->spans) < s->spans.count ? SESSION_MEDIA : SESSION_PREFILL;
    g->told = reused;
    (*out)->state = g;
    (*out)->close = generate_close;
    (*out)->result = (beryl_result){.n_prompt = (uint32_t)n, .n_reused = reused};
    return BERYL_OK;
}

static generation *generation_open(beryl_engine *e) {
    generation *g = base_heap_take(&e->heap, sizeof *g);
    if (!g) return NULL;
    g->heap = &e->heap;
    base_arena_init(&g->arena, &e->heap);
    base_text_init(&g->piece, &e->heap);
    base_text_init(&g->held, &e->heap);
    text_stream_init(&g->stream, e->tokenizer, false);
    return g;
}

beryl_status beryl_session_generate(beryl_session *s, const int32_t *tokens, size_t n,
                                    const beryl_generate_options *options, beryl_task **out,
                                    beryl_error *error) {
    if (!s || !out)
        return base_fail(error, BERYL_MISUSE,
                         "beryl_session_generate needs a session and a place for the task");
    *out = NULL;
    beryl_generate_options o;
    beryl_status status = read_options(options, &o, error);
    if (status != BERYL_OK) return status;
    generation *g = generation_open(s->engine);
    if (!g) return base_no_memory(error);
    status = begin(s, tokens, n, &s->given, &o, g, out, error);
    if (status != BERYL_OK) generation_close(g);
    return status;
}

beryl_status beryl_session_chat(beryl_session *s, const char *chat,
                                const beryl_generate_options *options, beryl_task **out,
                                beryl_error *error) {
    if (!s || !chat || !out)
        return base_fail(
            error, BERYL_MISUSE,
            "beryl_session_chat needs a session, a conversation and a place for the task");
    *out = NULL;
    beryl_engine *e = s->engine;
    beryl_generate_options o;
    beryl_status status = read_options(options, &o, error);
    if (status != BERYL_OK) return status;
    generation *g = generation_open(e);
    if (!g) return base_no_memory(error);
    g->chat = true;
    base_json *json = NULL;
    text_prompt prompt;
    text_ids ids = {0};
    media_list media = {0};
    status = base_json_parse(&g->arena, chat, strlen(chat), &json, error);
    if (status == BERYL_OK) status = text_chat_render(&g->arena, json, e->style, &prompt, error);
    if (status == BERYL_OK) status = media_attached(s, &prompt, &media, error);
    if (status == BERYL_OK) status = text_prompt_encode(e->tokenizer, &prompt, &ids, error);
    if (status == BERYL_OK) status = session_media_expand(s, &media, &ids, error);
    if (status == BERYL_OK)
        status = text_parser_open(&e->heap, e->tokenizer, prompt.in_thought, &g->parser, error);
    if (status == BERYL_OK) status = begin(s, ids.data, ids.count, &media, &o, g, out, error);
    media_list_fini(&e->heap, &media);
    text_ids_fini(e->tokenizer, &ids);
    if (status != BERYL_OK) generation_close(g);
    return status;
}
