/* data.c - lines become rows.
 *
 * Each line is parsed into an arena of its own; what it says in other words (ShareGPT's, prompt
 * and completion) is first put as a conversation. A conversation is rendered once, whole; the spans
 * that the model writes are found by the format's own chunks, which no text of a message can forge,
 * and each span is encoded for itself, as inference does: a prompt ends where an answer begins. */
#include "train/data.h"
#include "base/error.h"
#include "base/file.h"
#include "text/render.h"

#include <math.h>
#include <string.h>

enum { LINE_MAX_SIZE = 8 << 20, PLAIN_CONTEXT = 2048 };

typedef struct reading {
    const train_data_desc *desc;
    train_data *out;
    base_arena *arena; /* of the line */
    text_ids ids;      /* of the row */
    base_vec(uint8_t) mask;
    base_vec(train_span) spans;
    text_ids run; /* of a conversation, before its places are as long as they have to be */
    uint32_t line;
    beryl_error *error; /* of the line: without its number */
} reading;

static beryl_status no_memory(const reading *r) {
    return base_no_memory(r->error);
}

/* ---- rows ------------------------------------------------------------------------------------ */

static beryl_status add_row(reading *r, const int32_t *tokens, uint8_t *mask, size_t n) {
    train_data *d = r->out;
    const uint32_t context = r->desc->context;
    const size_t n_span = r->spans.count;
    const bool cut = context && n > context;
    if (cut && (!r->desc->cut || n_span))
        return base_fail(r->error, BERYL_BAD_INPUT, "%zu tokens, and a row has %u at most", n,
                         context);
    if (cut) n = context;
    uint64_t n_target = 0;
    for (size_t i = 0; i < n_span; i++)
        memset(mask + r->spans.data[i].begin, 0, r->spans.data[i].n);
    for (size_t t = 1; t < n; t++) n_target += mask[t];
    if (!n_target)
        return base_fail(r->error, BERYL_BAD_INPUT,
                         cut ? "nothing to learn in its first %u tokens" : "nothing to learn",
                         context);
    base_vec(train_row) rows = {d->rows, d->n, d->capacity};
    train_row *row = base_vec_add(r->desc->heap, &rows);
    d->rows = rows.data;
    d->capacity = rows.capacity;
    int32_t *ids = base_arena_take(&d->arena, n, sizeof *ids);
    uint8_t *marks = base_arena_take(&d->arena, n, 1);
    train_span *spans = n_span ? base_arena_take(&d->arena, n_span, sizeof *spans) : NULL;
    if (!row || !ids || !marks || (n_span && !spans)) return no_memory(r);
    memcpy(ids, tokens, n * sizeof *ids);
    memcpy(marks + 1, mask + 1, n - 1); /* nothing predicts the first */
    if (n_span) memcpy(spans, r->spans.data, n_span * sizeof *spans);
    *row = (train_row){ids, marks, (uint32_t)n, spans, (uint32_t)n_span, r->line};
    d->n++;
    d->n_token += n;
    d->n_target += n_target;
    d->n_cut += cut;
    if (n > d->longest) d->longest = (uint32_t)n;
    return BERYL_OK;
}

/* What was encoded since the mask ended is a target or not. */
static beryl_status add_mask(reading *r, bool target) {
    const size_t more = r->ids.count - r->mask.count;
    if (!base_vec_reserve(r->desc->heap, &r->mask, more)) return no_memory(r);
    if (more) memset(r->mask.data + r->mask.count, target, more);
    r->mask.count += more;
    return BERYL_OK;
}

/* ---- pictures and sound ---------------------------------------------------------------------- */

/* Its soft tokens stand from `begin` on. */
static beryl_status add_medium(reading *r, const train_medium *what, size_t begin, uint32_t *n) {
    const train_media *media = r->desc->media;
    if (!media)
        return base_fail(r->error, BERYL_UNSUPPORTED, "pictures and sound are not read here");
    train_span *span = base_vec_add(r->desc->heap, &r->spans);
    if (!span) return no_memory(r);
    *span = (train_span){.begin = (uint32_t)begin};
    const beryl_status status = media->open(media->user, what, &span->medium, &span->n, r->error);
    *n = span->n;
    return status;
}

/* Tokens of a stretch of a conversation, each place as long as it has to be. */
static beryl_status put_run(reading *r, const text_prompt *run) {
    const text_tokenizer *tok = r->desc->tokenizer;
    size_t next = 0;
    r->run.count = 0;
    beryl_status status = text_prompt_encode(tok, run, &r->run, r->error);
    for (size_t i = 0; !status && i < r->run.count; i++) {
        while (next < run->n_chunk && run->chunks[next].kind <= TEXT_CHUNK_CONTENT) next++;
        const text_chunk *place = next < run->n_chunk ? &run->chunks[next] : NULL;
        if (place && r->run.data[i] == text_media_soft(tok, place->kind)) {
            const train_medium what = {.sound = place->kind == TEXT_CHUNK_AUDIO, .place = place};
            uint32_t n = 0;
            next++;
            status = add_medium(r, &what, r->ids.count + 1, &n);
            if (!status && !text_media_write(tok, place->kind, n, &r->ids)) status = no_memory(r);
        } else {
            int32_t *to = base_vec_add(text_heap(tok), &r->ids);
            if (!to) return no_memory(r);
            *to = r->run.data[i];
        }
    }
    return status;
}

/* The file of a line of tokens, whose soft tokens stand together. */
static beryl_status put_file(reading *r, const base_json *line, bool sound) {
    const char *const key = sound ? "sound" : "picture";
    const base_json *file = base_json_find(line, key);
    const int32_t soft = text_media_soft(r->desc->tokenizer,
                                         sound ? TEXT_CHUNK_AUDIO : TEXT_CHUNK_IMAGE),
                  *ids = r->ids.data;
    const size_t n_id = r->ids.count;
    size_t begin = 0, end, next;
    if (file && (file->kind != JSON_STRING || !file->text.size ||
                 memchr(file->text.data, 0, file->text.size)))
        return base_fail(r->error, BERYL_BAD_INPUT, "%s: must be the path of a file", key);
    while (begin < n_id && ids[begin] != soft) begin++;
    for (end = begin; end < n_id && ids[end] == soft;) end++;
    for (next = end; next < n_id && ids[next] != soft;) next++;
    if ((begin == end || sound) && !file) return BERYL_OK; /* a clip's alone are taken as tokens */
    if (begin == end)
        return base_fail(r->error, BERYL_BAD_INPUT, "%s: no token of it among the tokens", key);
    if (!file)
        return base_fail(r->error, BERYL_BAD_INPUT, "tokens: of a picture, which is not given");
    if (next < n_id)
        return base_fail(r->error, BERYL_BAD_INPUT,
                         "tokens: soft tokens of one %s at %zu and at %zu", key, begin, next);
    const train_medium what = {.sound = sound,
                               .file = base_arena_text(r->arena, file->text.data, file->text.size)};
    uint32_t n = 0;
    if (!what.file) return no_memory(r);
    const beryl_status status = add_medium(r, &what, begin, &n);
    return status || n == end - begin
               ? status
               : base_fail(r->error, BERYL_BAD_INPUT, "%s: %u soft tokens, for %zu places", key, n,
                           end - begin);
}

/* ---- conversations --------------------------------------------------------------------------- */

typedef struct spans {  /* chunks of a conversation, cut where an answer begins or ends */
    text_chunk *chunks; /* [n] */
    bool *target;       /* [n] */
    size_t n;
} spans;

static bool is_format(const text_chunk *chunk, const char *literal) {
    return chunk->kind == TEXT_CHUNK_TEMPLATE &&
           base_view_equal(chunk->text, base_view_of(literal));
}

static void add_span(spans *s, text_chunk chunk, size_t begin, size_t end, bool target) {
    if (begin == end) return;
    chunk.text = (base_view){chunk.text.data + begin, end - begin};
    s->target[s->n] = target;
    s->chunks[s->n++] = chunk;
}

/* Where the last answer begins to which a session adds an empty thought; n_chunk: nowhere. */
static size_t empty_thought_at(const text_prompt *p, text_chat_style style) {
    size_t at = p->n_chunk;
    if (style == TEXT_CHAT_SMALL || p->think) return at;
    for (size_t i = 2; i < p->n_chunk; i++) {
        const text_chunk *c = &p->chunks[i];
        if (is_format(c, "\n") && is_format(c - 1, "model") && is_format(c - 2, "<|turn>"))
            at = i + 1;
        else if (is_format(c, "<|tool_response>response:")) at = p->n_chunk;
    }
    return at < p->n_chunk && is_format(&p->chunks[at], "<|channel>thought\n") ? p->n_chunk : at;
}

static beryl_status find_spans(reading *r, const text_prompt *p, spans *s) {
    static const char response[] = "<|tool_response>", turn_end[] = "<turn|>",
                      empty_thought[] = "<|channel>thought\n<channel|>";
    enum { PROMPT, ANSWER, RESPONSE, RESPONDED } state = PROMPT;
    const size_t thought = empty_thought_at(p, r->desc->style);
    s->chunks = base_arena_take(r->arena, 2 * p->n_chunk + 1, sizeof *s->chunks);
    s->target = base_arena_take(r->arena, 2 * p->n_chunk + 1, sizeof *s->target);
    if (!s->chunks || !s->target) return no_memory(r);
    for (size_t i = 0; i < p->n_chunk; i++) {
        const text_chunk c = p->chunks[i];
        const bool format = c.kind == TEXT_CHUNK_TEMPLATE;
        const bool writes = state == ANSWER && c.kind <= TEXT_CHUNK_CONTENT;
        size_t own = writes ? c.text.size : 0; /* bytes that the model writes */
        if (c.kind == TEXT_CHUNK_VIDEO)
            return base_fail(r->error, BERYL_UNSUPPORTED, "a conversation with video");
        if (i == thought)
            add_span(s, (text_chunk){TEXT_CHUNK_TEMPLATE, base_view_of(empty_thought), NULL}, 0,
                     sizeof empty_thought - 1, false);
        if (state == RESPONDED && !(format && base_view_begins(c.text, base_view_of(response)))) {
            state = ANSWER;
            own = c.text.size;
        }
        if (is_format(&c, "<|turn>")) {
            own = 0;
            state = PROMPT;
        } else if (format && base_view_begins(c.text, base_view_of(response))) {
            own = state == ANSWER ? sizeof response - 1 : 0; /* asked for by the model */
            state = RESPONSE;
        } else if (state == RESPONSE && is_format(&c, "}<tool_response|>")) {
            state = RESPONDED;
        } else if (format && base_view_begins(c.text, base_view_of(turn_end))) {
            own = own ? sizeof turn_end - 1 : 0;
            state = PROMPT;
        } else if (i >= 2 && is_format(&c, "\n") && is_format(&p->chunks[i - 1], "model") &&
                   is_format(&p->chunks[i - 2], "<|turn>")) {
            state = ANSWER;
        }
        add_span(s, c, 0, own, true);
        add_span(s, c, own, c.text.size, false);
    }
    return BERYL_OK;
}

static base_json *add_node(reading *r, base_json *parent, base_json_kind kind, base_view key,
                           base_view text) {
    base_json *node = base_arena_take(r->arena, 1, sizeof *node);
    if (!node) return NULL;
    *node = (base_json){.kind = kind, .key = key, .text = text};
    if (!parent) return node;
    base_json **last = &parent->child;
    while (*last) last = &(*last)->next;
    parent->n_child++;
    return *last = node;
}

static beryl_status read_chat(reading *r, base_json *chat) {
    text_prompt prompt;
    spans s = {0};
    if (!add_node(r, chat, JSON_FALSE, BASE_VIEW("generate"), (base_view){"", 0}))
        return no_memory(r); /* the last of a key counts */
    beryl_status status = text_chat_render(r->arena, chat, r->desc->style, &prompt, r->error);
    if (!status) status = find_spans(r, &prompt, &s);
    for (size_t i = 0, end; !status && i < s.n; i = end) {
        for (end = i + 1; end < s.n && s.target[end] == s.target[i];) end++;
        const text_prompt run = {.chunks = s.chunks + i, .n_chunk = end - i};
        status = put_run(r, &run);
        if (!status) status = add_mask(r, s.target[i] || r->desc->whole);
    }
    return status ? status : add_row(r, r->ids.data, r->mask.data, r->ids.count);
}

/* ---- other words for conversations ----------------------------------------------------------- */

static bool check_keys(reading *r, const base_json *object, const char *known) {
    text_renderer checks = {.arena = r->arena, .error = r->error};
    return text_check_keys(&checks, object, NULL, known);
}

static base_json *add_message(reading *r, base_json *messages, const char *role, base_view text) {
    base_json *message = add_node(r, messages, JSON_OBJECT, (base_view){"", 0}, (base_view){"", 0});
    return message && add_node(r, message, JSON_STRING, BASE_VIEW("role"), base_view_of(role)) &&
                   add_node(r, message, JSON_STRING, BASE_VIEW("content"), text)
               ? message
               : NULL;
}

static const base_json *find_text(reading *r, const base_json *object, const char *key,
                                  beryl_status *status) {
    const base_json *text = base_json_find(object, key);
    if (text && text->kind == JSON_STRING) return text;
    *status = base_fail(r->error, BERYL_BAD_INPUT, "%s: must be text", key);
    return NULL;
}

static beryl_status read_share_gpt(reading *r, const base_json *line) {
    static const char *const roles[][2] = {{"human", "user"},      {"user", "user"},
                                           {"gpt", "assistant"},   {"assistant", "assistant"},
                                           {"model", "assistant"}, {"system", "system"}};
    const base_json *turns = base_json_find(line, "conversations"),
                    *system = base_json_find(line, "system");
    beryl_status status = BERYL_OK;
    if (!check_keys(r, line, "conversations, system, id")) return BERYL_BAD_INPUT;
    if (turns->kind != JSON_ARRAY)
        return base_fail(r->error, BERYL_BAD_INPUT, "conversations: must be a list");
    base_json *chat = add_node(r, NULL, JSON_OBJECT, (base_view){"", 0}, (base_view){"", 0}),
              *messages =
                  chat ? add_node(r, chat, JSON_ARRAY, BASE_VIEW("messages"), (base_view){"", 0})
                       : NULL;
    if (!messages) return no_memory(r);
    if (system && system->kind != JSON_NULL && find_text(r, line, "system", &status) &&
        system->text.size && !add_message(r, messages, "system", system->text))
        return no_memory(r);
    for (const base_json *turn = turns->child; !status && turn; turn = turn->next) {
        const char *role = NULL;
        if (turn->kind != JSON_OBJECT)
            return base_fail(r->error, BERYL_BAD_INPUT,
                             "conversations: must be a list of {\"from\", \"value\"}");
        if (!check_keys(r, turn, "from, value")) return BERYL_BAD_INPUT;
        const base_json *from = find_text(r, turn, "from", &status),
                        *value = status ? NULL : find_text(r, turn, "value", &status);
        if (status) break;
        for (size_t i = 0; !role && i < sizeof roles / sizeof *roles; i++)
            if (base_view_equal(from->text, base_view_of(roles[i][0]))) role = roles[i][1];
        if (!role)
            return base_fail(r->error, BERYL_BAD_INPUT,
                             "from: '%.*s' is none of human, gpt and system",
                             (int)(from->text.size < 60 ? from->text.size : 60), from->text.data);
        if (!add_message(r, messages, role, value->text)) return no_memory(r);
    }
    return status ? status : read_chat(r, chat);
}

static beryl_status read_pair(reading *r, const base_json *line) {
    beryl_status status = BERYL_OK;
    if (!check_keys(r, line, "prompt, completion")) return BERYL_BAD_INPUT;
    const base_json *prompt = find_text(r, line, "prompt", &status),
                    *answer = status ? NULL : find_text(r, line, "completion", &status);
    if (status) return status;
    base_json *chat = add_node(r, NULL, JSON_OBJECT, (base_view){"", 0}, (base_view){"", 0}),
              *messages =
                  chat ? add_node(r, chat, JSON_ARRAY, BASE_VIEW("messages"), (base_view){"", 0})
                       : NULL;
    return messages && add_message(r, messages, "user", prompt->text) &&
                   add_message(r, messages, "assistant", answer->text)
               ? read_chat(r, chat)
               : no_memory(r);
}

/* ---- text and tokens ------------------------------------------------------------------------- */

static beryl_status read_text(reading *r, base_view text) {
    const train_data_desc *d = r->desc;
    const size_t context = d->context ? d->context : PLAIN_CONTEXT;
    const int32_t bos = text_special(d->tokenizer, TEXT_SPECIAL_BOS);
    beryl_status status = BERYL_OK;
    if (bos < 0)
        return base_fail(r->error, BERYL_UNSUPPORTED, "the vocabulary lacks the token <bos>");
    int32_t *first = base_vec_add(text_heap(d->tokenizer), &r->ids);
    if (!first) return no_memory(r);
    status = text_encode(d->tokenizer, text.data, text.size, TEXT_USER_DEFINED, &r->ids, r->error);
    if (!status) status = add_mask(r, true);
    for (size_t at = 0; !status && at + 1 < r->ids.count; at += context - 1) {
        const size_t left = r->ids.count - at;
        r->ids.data[at] = bos; /* over the last token of the row before */
        status = add_row(r, r->ids.data + at, r->mask.data, left < context ? left : context);
    }
    return status;
}

static bool whole_number(const base_json *j, double limit) {
    return j->kind == JSON_NUMBER && j->number >= 0 && j->number < limit &&
           j->number == floor(j->number);
}

static beryl_status read_tokens(reading *r, const base_json *line) {
    const base_json *tokens = base_json_find(line, "tokens"), *mask = base_json_find(line, "mask");
    const size_t n_vocab = text_n_token(r->desc->tokenizer), n = tokens->n_child;
    if (!check_keys(r, line, "tokens, mask, picture, sound")) return BERYL_BAD_INPUT;
    if (tokens->kind != JSON_ARRAY || n < 2)
        return base_fail(r->error, BERYL_BAD_INPUT, "tokens: must be a list of two ids or more");
    if (mask && (mask->kind != JSON_ARRAY || mask->n_child != n))
        return base_fail(r->error, BERYL_BAD_INPUT, "mask: must be a list as long as tokens (%zu)",
                         n);
    if (!base_vec_reserve(text_heap(r->desc->tokenizer), &r->ids, n)) return no_memory(r);
    for (const base_json *j = tokens->child; j; j = j->next) {
        if (!whole_number(j, (double)n_vocab))
            return base_fail(r->error, BERYL_BAD_INPUT,
                             "tokens: number %zu is no id of the vocabulary, which has %zu",
                             r->ids.count, n_vocab);
        r->ids.data[r->ids.count++] = (int32_t)j->number;
    }
    beryl_status status = put_file(r, line, false);
    if (!status) status = put_file(r, line, true);
    if (r->spans.count == 2 && r->spans.data[0].begin > r->spans.data[1].begin) {
        const train_span last = r->spans.data[0];
        r->spans.data[0] = r->spans.data[1];
        r->spans.data[1] = last;
    }
    if (!status) status = add_mask(r, true);
    if (status) return status;
    size_t t = 0;
    for (const base_json *j = mask ? mask->child : NULL; j; j = j->next, t++) {
        const bool is_bool = j->kind == JSON_TRUE || j->kind == JSON_FALSE;
        if (!is_bool && !whole_number(j, 2))
            return base_fail(r->error, BERYL_BAD_INPUT, "mask: number %zu is neither 0 nor 1", t);
        r->mask.data[t] = is_bool ? j->kind == JSON_TRUE : j->number > 0;
    }
    return add_row(r, r->ids.data, r->mask.data, n);
}

/* ---- the file -------------------------------------------------------------------------------- */

static beryl_status read_line(reading *r, base_view text) {
    base_json *line;
    beryl_error why = {0};
    static const char place[] = "JSON, line 1, "; /* in its text, which is one line */
    const beryl_status status = base_json_parse(r->arena, text.data, text.size, &line, &why);
    if (status)
        return base_fail_at(r->error, status, why.at, "%s",
                            strncmp(why.message, place, sizeof place - 1)
                                ? why.message
                                : why.message + sizeof place - 1);
    if (base_json_find(line, "messages")) return read_chat(r, line);
    if (base_json_find(line, "conversations")) return read_share_gpt(r, line);
    if (base_json_find(line, "prompt")) return read_pair(r, line);
    if (base_json_find(line, "tokens")) return read_tokens(r, line);
    if (base_json_find(line, "text")) {
        beryl_status wrong = BERYL_OK;
        if (!check_keys(r, line, "text")) return BERYL_BAD_INPUT;
        const base_json *plain = find_text(r, line, "text", &wrong);
        return wrong ? wrong : read_text(r, plain->text);
    }
    return base_fail(r->error, BERYL_BAD_INPUT,
                     "must be an object with messages, conversations, prompt, text or tokens");
}

static bool is_blank(base_view text) {
    for (size_t i = 0; i < text.size; i++)
        if (!memchr(" \t\r\n", text.data[i], 4)) return false;
    return true;
}

static beryl_status read_piece(reading *r, base_view piece, bool plain) {
    base_arena arena;
    base_arena_init(&arena, r->desc->heap);
    r->arena = &arena;
    r->ids.count = r->mask.count = r->spans.count = 0;
    beryl_status status = BERYL_OK;
    if (plain) status = read_text(r, piece);
    else if (piece.size > LINE_MAX_SIZE)
        status = base_fail(r->error, BERYL_BAD_INPUT, "longer than %d MiB", LINE_MAX_SIZE >> 20);
    else status = read_line(r, piece);
    base_arena_fini(&arena);
    return status;
}

static beryl_status read_lines(reading *r, base_view text, beryl_error *error) {
    const char *const begin = text.data;
    while (text.size) {
        const char *end = memchr(text.data, '\n', text.size);
        const base_view line = {text.data, end ? (size_t)(end - text.data) : text.size};
        r->line++;
        beryl_error why = {0};
        r->error = &why;
        const beryl_status status = is_blank(line) ? BERYL_OK : read_piece(r, line, false);
        if (status)
            return base_fail_at(error, status, (uint64_t)(line.data - begin) + why.at,
                                "%.100s, line %u: %s", r->desc->name, r->line, why.message);
        text.data += line.size + (end != NULL);
        text.size -= line.size + (end != NULL);
    }
    return BERYL_OK;
}

beryl_status train_data_read(train_data *out, const train_data_desc *desc, beryl_error *error) {
    const uint64_t size = desc->source->size;
    *out = (train_data){0};
    if (desc->context == 1)
        return base_fail(error, BERYL_MISUSE, "rows of one token: nothing to predict");
    if (size > TEXT_SIZE_MAX)
        return base_fail(error, BERYL_BAD_INPUT, "%.100s: %llu bytes, %zu can be read", desc->name,
                         (unsigned long long)size, TEXT_SIZE_MAX);
    reading r = {.desc = desc, .out = out, .error = error};
    base_arena_init(&out->arena, desc->heap);
    char *data = base_heap_resize(desc->heap, NULL, 0, (size_t)size + 1);
    beryl_status status = BERYL_OK;
    if (!data) status = no_memory(&r);
    if (!status && size) status = desc->source->read(desc->source->user, 0, data, (size_t)size);
    if (data && status) status = base_source_fail(desc->source, desc->name, status, 0, error);
    base_view text = {data, (size_t)size};
    if (!status) {
        const base_view mark = BASE_VIEW("\xEF\xBB\xBF"); /* byte order */
        if (base_view_begins(text, mark)) text.data += mark.size, text.size -= mark.size;
        size_t at = 0;
        while (at < text.size && is_blank((base_view){text.data + at, 1})) at++;
        const bool lines = !desc->plain && at < text.size && text.data[at] == '{';
        if (lines) status = read_lines(&r, text, error);
        else if (at < text.size) status = read_piece(&r, text, true);
        if (!status && !out->n)
            status = base_fail(error, BERYL_BAD_INPUT, "%.100s: nothing in it", desc->name);
    }
    base_heap_give(desc->heap, data, (size_t)size + 1);
    base_vec_fini(desc->heap, &r.mask);
    base_vec_fini(desc->heap, &r.spans);
    text_ids_fini(desc->tokenizer, &r.ids);
    text_ids_fini(desc->tokenizer, &r.run);
    if (status) train_data_free(out);
    return status;
}

void train_data_free(train_data *data) {
    if (!data->arena.heap) return;
    base_heap_give(data->arena.heap, data->rows, data->capacity * sizeof *data->rows);
    base_arena_fini(&data->arena);
    *data = (train_data){0};
}
