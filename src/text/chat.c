/* chat.c - renders a conversation as Gemma 4's prompt.
 *
 * Owns the way from JSON to chunks; schema.c writes values and declarations, parse.c goes the other
 * way. Refuses conversations of the wrong shape, naming the place. The one idea: text_put_template
 * writes what the format says, text_put_content what somebody wrote, and nothing else adds to a
 * prompt.
 *
 * Follows the published template of 2026-07-09 to the byte, its habits included: white space is
 * what Python trims, and a text behind tool responses ends the turn without opening the next.
 */
#include "text/chat.h"
#include "text/render.h"
#include "base/utf8.h"

#include "base/error.h"

#include <string.h>

/* ---- text ------------------------------------------------------------------------------------ */

/* What Python's str.strip takes away. */
static bool is_space(uint32_t code) {
    if (code < 0x80) return (code >= 9 && code <= 13) || (code >= 28 && code <= 32);
    return code == 0x85 || code == 0xA0 || code == 0x1680 || (code >= 0x2000 && code <= 0x200A) ||
           code == 0x2028 || code == 0x2029 || code == 0x202F || code == 0x205F || code == 0x3000;
}

static base_view trim(base_view text) {
    const uint8_t *p = (const uint8_t *)text.data;
    size_t begin = 0, end = text.size, length;
    while (begin < end && base_utf8_scan(p + begin, end - begin, &length) == BASE_UTF8_WHOLE &&
           is_space(base_utf8_code(p + begin, length)))
        begin += length;
    while (end > begin) {
        size_t last = end - 1;
        while (last > begin && end - last < 4 && (p[last] & 0xC0) == 0x80) last--;
        if (base_utf8_scan(p + last, end - last, &length) != BASE_UTF8_WHOLE ||
            last + length != end || !is_space(base_utf8_code(p + last, length)))
            break;
        end = last;
    }
    return (base_view){text.data + begin, end - begin};
}

/* Where `what` begins in `text` from `from` on; text.size: nowhere. */
static size_t seek(base_view text, size_t from, base_view what) {
    while (from < text.size) {
        const char *p = memchr(text.data + from, what.data[0], text.size - from);
        if (!p) break;
        from = (size_t)(p - text.data);
        if (base_view_begins((base_view){p, text.size - from}, what)) return from;
        from++;
    }
    return text.size;
}

/* Earlier answers lose their thoughts: of each piece that ends with the closing literal (or with
 * the text) only what stands before the opening one is kept. */
static base_view strip_thoughts(text_renderer *r, base_view text) {
    const base_view open = BASE_VIEW("<|channel>"), close = BASE_VIEW("<channel|>");
    if (seek(text, 0, open) == text.size && seek(text, 0, close) == text.size) return trim(text);
    char *kept = base_arena_take(r->arena, text.size + 1, 1);
    size_t n = 0;
    if (!kept) {
        text_no_memory(r);
        return (base_view){"", 0};
    }
    for (size_t at = 0; at < text.size;) {
        size_t end = seek(text, at, close), cut = seek((base_view){text.data, end}, at, open);
        memcpy(kept + n, text.data + at, cut - at);
        n += cut - at;
        at = end + close.size;
    }
    return trim((base_view){kept, n});
}

/* ---- parts of messages ----------------------------------------------------------------------- */

/* The kind of a part; false: refused. TEMPLATE stands for text. */
static bool part_kind(text_renderer *r, const base_json *part, const text_place *at,
                      text_chunk_kind *kind) {
    static const struct {
        const char *type;
        text_chunk_kind kind;
    } kinds[] = {
        {"text", TEXT_CHUNK_CONTENT},      {"image", TEXT_CHUNK_IMAGE},
        {"image_url", TEXT_CHUNK_IMAGE},   {"audio", TEXT_CHUNK_AUDIO},
        {"input_audio", TEXT_CHUNK_AUDIO}, {"video", TEXT_CHUNK_VIDEO},
    };
    const base_json *type = base_json_find(part, "type");
    if (part->kind != JSON_OBJECT) return text_refuse(r, at, "a part must be an object");
    text_place at_type = {at, BASE_VIEW("type"), 0};
    if (!type || type->kind != JSON_STRING)
        return text_refuse(r, &at_type, "must be the kind of the part as text");
    for (size_t i = 0; i < sizeof kinds / sizeof *kinds; i++) {
        if (!base_view_equal(type->text, base_view_of(kinds[i].type))) continue;
        *kind = kinds[i].kind;
        return true;
    }
    return text_refuse(r, &at_type,
                       "an unknown kind of part; known are text, image, audio and video");
}

/* closed: a part of a message, and not of a tool's result, which may have what it likes. */
static bool part_text(text_renderer *r, const base_json *part, bool closed, const text_place *at,
                      base_view *text) {
    if (closed && !text_check_keys(r, part, at, "type, text, id, annotations")) return false;
    const base_json *found = base_json_find(part, "text");
    text_place at_text = {at, BASE_VIEW("text"), 0};
    if (!found || found->kind != JSON_STRING) return text_refuse(r, &at_text, "must be text");
    *text = found->text;
    return true;
}

/* *filled: something was written. */
static bool content_render(text_renderer *r, const base_json *content, bool is_model,
                           const text_place *at, bool *filled) {
    *filled = false;
    if (text_is_absent(content)) return true;
    if (content->kind == JSON_STRING) {
        base_view text = is_model ? strip_thoughts(r, content->text) : trim(content->text);
        *filled = text.size;
        return text_put_content(r, text);
    }
    if (content->kind != JSON_ARRAY)
        return text_refuse(r, at, "must be text, a list of parts or null");
    size_t index = 0;
    for (const base_json *part = content->child; part; part = part->next) {
        text_place at_part = {at, {0}, index++};
        text_chunk_kind kind;
        base_view text = {0};
        if (!part_kind(r, part, &at_part, &kind)) return false;
        if (kind != TEXT_CHUNK_CONTENT) {
            *filled = true;
            if (!text_put_media(r, kind, part)) return false;
            continue;
        }
        if (!part_text(r, part, true, &at_part, &text)) return false;
        text = is_model ? strip_thoughts(r, text) : trim(text);
        if (text.size) *filled = true;
        if (!text_put_content(r, text)) return false;
    }
    return true;
}

static bool system_render(text_renderer *r, const base_json *content, const text_place *at) {
    if (text_is_absent(content)) return true;
    if (content->kind == JSON_STRING) return text_put_content(r, trim(content->text));
    if (content->kind != JSON_ARRAY)
        return text_refuse(r, at, "must be text, a list of parts or null");
    size_t index = 0;
    for (const base_json *part = content->child; part; part = part->next) {
        text_place at_part = {at, {0}, index++};
        text_chunk_kind kind;
        base_view text = {0};
        if (!part_kind(r, part, &at_part, &kind)) return false;
        if (kind != TEXT_CHUNK_CONTENT)
            return text_refuse(r, &at_part, "a system message has parts of text alone");
        if (!part_text(r, part, true, &at_part, &text)) return false;
        if (!text_put_content(r, trim(text)) || !text_put_template(r, " ")) return false;
    }
    return true;
}

/* ---- calls and responses --------------------------------------------------------------------- */

static bool call_render(text_renderer *r, const base_json *call, const text_place *at) {
    const base_json *function = base_json_find(call, "function");
    text_place at_function = {at, BASE_VIEW("function"), 0},
               at_name = {&at_function, BASE_VIEW("name"), 0},
               at_arguments = {&at_function, BASE_VIEW("arguments"), 0};
    if (call->kind == JSON_OBJECT && !text_check_keys(r, call, at, "id, type, index, function"))
        return false;
    if (!function || function->kind != JSON_OBJECT)
        return text_refuse(r, &at_function, "must be an object");
    if (!text_check_keys(r, function, &at_function, "name, arguments, index")) return false;
    const base_json *name = base_json_find(function, "name"),
                    *arguments = base_json_find(function, "arguments");
    if (!name || name->kind != JSON_STRING) return text_refuse(r, &at_name, "must be text");
    if (!text_put_template(r, "<|tool_call>call:") || !text_put_content(r, name->text) ||
        !text_put_template(r, "{"))
        return false;
    if (arguments && arguments->kind == JSON_STRING) { /* as OpenAI's interface hands them on */
        base_json *parsed = NULL;
        beryl_status status =
            base_json_parse(r->arena, arguments->text.data, arguments->text.size, &parsed, NULL);
        if (status == BERYL_NO_MEMORY) return text_no_memory(r);
        if (status) return text_refuse(r, &at_arguments, "is text that is not JSON");
        arguments = parsed;
    }
    if (!text_is_absent(arguments)) {
        if (arguments->kind != JSON_OBJECT)
            return text_refuse(r, &at_arguments, "must be an object");
        if (!text_render_members(r, arguments, false, &at_arguments)) return false;
    }
    return text_put_template(r, "}<tool_call|>");
}

static bool response_render(text_renderer *r, base_view name, const base_json *value,
                            const text_place *at) {
    if (!text_put_template(r, "<|tool_response>response:") || !text_put_content(r, name) ||
        !text_put_template(r, "{"))
        return false;
    if (value && value->kind == JSON_OBJECT) {
        if (!text_render_members(r, value, false, at)) return false;
    } else if (!text_put_template(r, "value:") || !text_render_value(r, value, false, at)) {
        return false;
    }
    return text_put_template(r, "}<tool_response|>");
}

/* Is this list one of content parts, rather than a result that happens to be a list? */
static bool is_part_list(const base_json *value) {
    for (const base_json *part = value->child; part; part = part->next) {
        const base_json *type = base_json_find(part, "type");
        if (!type || type->kind != JSON_STRING) return false;
    }
    return true;
}

static bool result_render(text_renderer *r, base_view name, const base_json *body,
                          const text_place *at) {
    if (!body || body->kind != JSON_ARRAY || !is_part_list(body))
        return response_render(r, name, body, at);
    size_t index = 0, size = 0;
    for (const base_json *part = body->child; part; part = part->next) {
        text_place at_part = {at, {0}, index++};
        text_chunk_kind kind;
        base_view text = {0};
        if (!part_kind(r, part, &at_part, &kind)) return false;
        if (kind != TEXT_CHUNK_CONTENT) continue;
        if (!part_text(r, part, false, &at_part, &text)) return false;
        size += text.size;
    }
    char *joined = base_arena_take(r->arena, size + 1, 1);
    if (!joined) return text_no_memory(r);
    size = 0;
    for (const base_json *part = body->child; part; part = part->next) {
        const base_json *text = base_json_find(part, "text");
        if (!base_view_equal(base_json_find(part, "type")->text, BASE_VIEW("text"))) continue;
        memcpy(joined + size, text->text.data, text->text.size);
        size += text->text.size;
    }
    base_json whole = {.kind = JSON_STRING, .text = {joined, size}};
    if (!response_render(r, name, &whole, at)) return false;
    for (const base_json *part = body->child; part; part = part->next) {
        text_chunk_kind kind = TEXT_CHUNK_CONTENT;
        if (!part_kind(r, part, at, &kind)) return false;
        if (kind != TEXT_CHUNK_CONTENT && !text_put_media(r, kind, part)) return false;
    }
    return true;
}

static bool is_role(const base_json *message, const char *role) {
    return base_view_equal(base_json_find(message, "role")->text, base_view_of(role));
}

static base_view text_or(const base_json *value, base_view otherwise) {
    return value && value->kind == JSON_STRING && value->text.size ? value->text : otherwise;
}

/* The tool messages that follow `message`, which holds `calls`. A result belongs to the call with
 * its id; one without an id to the function it names, else to the last call without an id. */
static bool results_render(text_renderer *r, const base_json *message, const base_json *calls,
                           const text_place *at_messages, size_t index, bool *found) {
    base_map ids;
    base_view loose = BASE_VIEW("unknown");
    bool fine = true;
    base_map_init(&ids, r->arena->heap);
    const base_view **names =
        base_arena_take(r->arena, calls->n_child + 1, sizeof *names); /* [n_call] */
    if (!names) fine = text_no_memory(r);
    uint32_t n = 0;
    for (const base_json *call = calls->child; call && fine; call = call->next, n++) {
        const base_json *id = base_json_find(call, "id");
        names[n] = &base_json_find(base_json_find(call, "function"), "name")->text;
        if (text_is_absent(id)) loose = *names[n];
        else if (!base_map_set(&ids, id->text, n)) fine = text_no_memory(r);
    }
    for (const base_json *result = message->next; result && fine && is_role(result, "tool");
         result = result->next) {
        const base_json *id = base_json_find(result, "tool_call_id");
        uint32_t which;
        base_view name = text_or(base_json_find(result, "name"),
                                 text_is_absent(id) ? loose : BASE_VIEW("unknown"));
        if (!text_is_absent(id) && base_map_find(&ids, id->text, &which)) name = *names[which];
        text_place at = {at_messages, {0}, ++index}, at_content = {&at, BASE_VIEW("content"), 0};
        fine = result_render(r, name, base_json_find(result, "content"), &at_content);
        *found = true;
    }
    base_map_fini(&ids);
    return fine;
}

static bool embedded_results_render(text_renderer *r, const base_json *responses,
                                    const text_place *at) {
    size_t index = 0;
    for (const base_json *response = responses->child; response; response = response->next) {
        text_place at_response = {at, {0}, index++},
                   at_value = {&at_response, BASE_VIEW("response"), 0};
        if (response->kind != JSON_OBJECT) return text_refuse(r, &at_response, "must be an object");
        if (!text_check_keys(r, response, &at_response, "name, response")) return false;
        base_view name = text_or(base_json_find(response, "name"), BASE_VIEW("unknown"));
        if (!response_render(r, name, base_json_find(response, "response"), &at_value))
            return false;
    }
    return true;
}

/* ---- messages -------------------------------------------------------------------------------- */

typedef enum last_kind { LAST_TEXT, LAST_CALL, LAST_RESPONSE } last_kind;

typedef struct turns { /* what the messages so far leave behind */
    last_kind last;
    bool after_assistant; /* the last message that is no tool's was an assistant's */
    const base_json *last_user;
    bool past_last_user, keep_thoughts;
} turns;

static bool thought_render(text_renderer *r, const base_json *message, bool wanted,
                           const text_place *at) {
    static const char *const names[] = {"reasoning", "reasoning_content", "thinking"};
    for (size_t i = 0; i < sizeof names / sizeof *names; i++) {
        const base_json *text = base_json_find(message, names[i]);
        if (!text_is_true(text)) continue;
        text_place at_text = {at, base_view_of(names[i]), 0};
        if (text->kind != JSON_STRING) return text_refuse(r, &at_text, "must be text");
        return !wanted || (text_put_template(r, "<|channel>thought\n") &&
                           text_put_content(r, text->text) && text_put_template(r, "\n<channel|>"));
    }
    return true;
}

/* A list that an assistant's message may have; NULL: none, or empty. */
static bool list_find(text_renderer *r, const base_json *message, const char *key, bool is_model,
                      const text_place *at, const base_json **list) {
    const base_json *found = base_json_find(message, key);
    text_place at_list = {at, base_view_of(key), 0};
    *list = NULL;
    if (!text_is_true(found)) return true;
    if (found->kind != JSON_ARRAY) return text_refuse(r, &at_list, "must be a list");
    if (!is_model) return text_refuse(r, &at_list, "only an assistant's message has these");
    *list = found;
    return true;
}

static bool message_render(text_renderer *r, const base_json *message, turns *state,
                           const text_place *at_messages, size_t index) {
    text_place at = {at_messages, {0}, index}, at_calls = {&at, BASE_VIEW("tool_calls"), 0},
               at_responses = {&at, BASE_VIEW("tool_responses"), 0},
               at_content = {&at, BASE_VIEW("content"), 0};
    bool is_assistant = is_role(message, "assistant"),
         is_model = is_assistant || is_role(message, "model");
    bool responded = false, filled = false;
    const base_json *calls, *responses;
    state->last = LAST_TEXT;
    if (!list_find(r, message, "tool_calls", is_model, &at, &calls)) return false;
    if (!list_find(r, message, "tool_responses", is_model, &at, &responses)) return false;
    if (!(is_model && state->after_assistant)) {
        base_view role = base_json_find(message, "role")->text;
        if (!text_put_template(r, "<|turn>")) return false;
        if (!(is_model ? text_put_template(r, "model") : text_put_content(r, role))) return false;
        if (!text_put_template(r, "\n")) return false;
    }
    bool think = state->past_last_user || (state->keep_thoughts && calls);
    if (!thought_render(r, message, think, &at)) return false;
    if (calls) {
        size_t i = 0;
        for (const base_json *call = calls->child; call; call = call->next) {
            text_place at_call = {&at_calls, {0}, i++};
            if (!call_render(r, call, &at_call)) return false;
        }
        state->last = LAST_CALL;
    }
    if (responses) {
        if (!embedded_results_render(r, responses, &at_responses)) return false;
        responded = true;
    } else if (calls && !results_render(r, message, calls, at_messages, index, &responded)) {
        return false;
    }
    if (responded) state->last = LAST_RESPONSE;
    if (!content_render(r, base_json_find(message, "content"), is_model, &at_content, &filled))
        return false;
    const base_json *next = message->next;
    while (next && is_role(next, "tool")) next = next->next;
    state->after_assistant = is_assistant;
    if (calls && !responded) return text_put_template(r, "<|tool_response>");
    if (is_model && next && is_role(next, "assistant")) return true;
    if (responded && !filled && !next) return true;
    return text_put_template(r, "<turn|>\n");
}

/* ---- the whole ------------------------------------------------------------------------------- */

/* A member that is true or false; missing and null are `otherwise`. */
static bool flag_find(text_renderer *r, const base_json *chat, const char *key, bool otherwise,
                      bool *value) {
    const base_json *found = base_json_find(chat, key);
    text_place at = {NULL, base_view_of(key), 0};
    *value = otherwise;
    if (text_is_absent(found)) return true;
    if (found->kind != JSON_TRUE && found->kind != JSON_FALSE)
        return text_refuse(r, &at, "must be true or false");
    *value = found->kind == JSON_TRUE;
    return true;
}

static bool messages_check(text_renderer *r, const base_json *messages, const text_place *at) {
    size_t index = 0;
    if (!messages || messages->kind != JSON_ARRAY)
        return text_refuse(r, at, "must be a list of messages");
    for (const base_json *message = messages->child; message; message = message->next) {
        text_place at_message = {at, {0}, index++}, at_role = {&at_message, BASE_VIEW("role"), 0};
        if (message->kind != JSON_OBJECT) return text_refuse(r, &at_message, "must be an object");
        const base_json *role = base_json_find(message, "role");
        if (!role || role->kind != JSON_STRING || !role->text.size)
            return text_refuse(r, &at_role, "must be text");
        if (!text_check_keys(r, message, &at_message,
                             "role, content, reasoning, reasoning_content, thinking, tool_calls, "
                             "tool_responses, tool_call_id, name, id, refusal, annotations, audio, "
                             "function_call"))
            return false;
        static const char *const unused[] = {"audio", "function_call"};
        for (size_t i = 0; i < sizeof unused / sizeof *unused; i++) {
            text_place at_unused = {&at_message, base_view_of(unused[i]), 0};
            if (!text_is_absent(base_json_find(message, unused[i])))
                return text_refuse(r, &at_unused, "is not supported: only null");
        }
    }
    return true;
}

static bool chat_render(text_renderer *r, const base_json *chat, text_chat_style style,
                        text_prompt *prompt) {
    text_place at_messages = {NULL, BASE_VIEW("messages"), 0},
               at_tools = {NULL, BASE_VIEW("tools"), 0};
    turns state = {0};
    if (!chat || chat->kind != JSON_OBJECT)
        return text_refuse(r, NULL, "must be an object with \"messages\"");
    const base_json *messages = base_json_find(chat, "messages"),
                    *tools = base_json_find(chat, "tools");
    if (!text_check_keys(r, chat, NULL,
                         "messages, tools, think, generate, preserve_thinking, model") ||
        !messages_check(r, messages, &at_messages))
        return false;
    if (!flag_find(r, chat, "think", false, &prompt->think) ||
        !flag_find(r, chat, "generate", true, &prompt->generate) ||
        !flag_find(r, chat, "preserve_thinking", false, &state.keep_thoughts))
        return false;
    if (!text_is_absent(tools) && tools->kind != JSON_ARRAY)
        return text_refuse(r, &at_tools, "must be a list of tools or null");
    if (!text_is_true(tools)) tools = NULL;
    const base_json *message = messages->child, *system = NULL;
    if (message && (is_role(message, "system") || is_role(message, "developer"))) system = message;
    if (!text_put_template(r, "<bos>")) return false;
    size_t index = 0;
    if (system || tools || prompt->think) {
        text_place at = {&at_messages, {0}, 0}, at_content = {&at, BASE_VIEW("content"), 0};
        if (!text_put_template(r, "<|turn>system\n")) return false;
        if (prompt->think && !text_put_template(r, "<|think|>\n")) return false;
        if (system && !system_render(r, base_json_find(system, "content"), &at_content))
            return false;
        if (tools && !text_render_tools(r, tools, &at_tools)) return false;
        if (!text_put_template(r, "<turn|>\n")) return false;
        if (system) message = system->next, index = 1;
    }
    state.past_last_user = true;
    for (const base_json *m = message; m; m = m->next)
        if (is_role(m, "user")) state.last_user = m, state.past_last_user = false;
    for (; message; message = message->next, index++) {
        if (!is_role(message, "tool") && !message_render(r, message, &state, &at_messages, index))
            return false;
        if (message == state.last_user) state.past_last_user = true;
    }
    if (!prompt->generate) return true;
    if (state.last == LAST_TEXT) {
        if (!text_put_template(r, "<|turn>model\n")) return false;
        return style == TEXT_CHAT_SMALL || prompt->think ||
               text_put_template(r, "<|channel>thought\n<channel|>");
    }
    prompt->in_thought = state.last == LAST_RESPONSE && prompt->think;
    return !prompt->in_thought || text_put_template(r, "<|channel>thought\n");
}

beryl_status text_chat_render(base_arena *arena, const base_json *chat, text_chat_style style,
                              text_prompt *prompt, beryl_error *error) {
    text_renderer r = {.arena = arena, .error = error};
    *prompt = (text_prompt){0};
    if (chat_render(&r, chat, style, prompt)) {
        prompt->chunks = base_arena_take(arena, r.chunks.count, sizeof *prompt->chunks);
        prompt->n_chunk = r.chunks.count;
        prompt->size = r.size;
        if (prompt->chunks)
            memcpy(prompt->chunks, r.chunks.data, r.chunks.count * sizeof *prompt->chunks);
        else text_no_memory(&r);
    }
    base_vec_fini(arena->heap, &r.chunks);
    return r.status;
}

bool text_chat_template_known(base_view source) {
    static const uint64_t known[] = {
        0xb58b45356c0b17db, /* published 2026-07-09, E2B and E4B */
        0x5202d6d37dc1c442, /* the same, larger models */
        0x8165c47f58d081f7, /* the built-in model's */
    };
    uint64_t hash = 0xcbf29ce484222325; /* FNV-1a */
    for (size_t i = 0; i < source.size; i++)
        if ((uint8_t)source.data[i] > ' ') hash = (hash ^ (uint8_t)source.data[i]) * 0x100000001b3;
    for (size_t i = 0; i < sizeof known / sizeof *known; i++)
        if (hash == known[i]) return true;
    return false;
}

void text_prompt_write(const text_prompt *prompt, base_text *out) {
    for (size_t i = 0; i < prompt->n_chunk; i++) base_text_add_view(out, prompt->chunks[i].text);
}

/* A literal that the vocabulary lacks would reach the model as plain text, in pieces: a wrong
 * prompt, so it is refused. */
static beryl_status literals_check(const text_tokenizer *tok, base_view text, beryl_error *error) {
    for (int name = 0; name < TEXT_SPECIAL_COUNT; name++) {
        const char *literal = text_special_literal((text_special_name)name);
        if (text_special(tok, (text_special_name)name) < 0 &&
            seek(text, 0, base_view_of(literal)) < text.size)
            return base_fail(error, BERYL_UNSUPPORTED,
                             "the vocabulary lacks the token %s, which this conversation needs",
                             literal);
    }
    return BERYL_OK;
}

beryl_status text_prompt_encode(const text_tokenizer *tok, const text_prompt *prompt, text_ids *out,
                                beryl_error *error) {
    base_vec(text_segment) segments = {0};
    beryl_status status = BERYL_OK;
    base_heap *heap = text_heap(tok);
    for (size_t i = 0; i < prompt->n_chunk && !status; i++) {
        const text_chunk *chunk = &prompt->chunks[i];
        if (chunk->kind != TEXT_CHUNK_CONTENT) status = literals_check(tok, chunk->text, error);
        text_segment *segment = base_vec_add(heap, &segments);
        if (!segment)
            status = base_fail(error, BERYL_NO_MEMORY, "no memory for a prompt of %zu pieces",
                               prompt->n_chunk);
        else
            *segment = (text_segment){chunk->text,
                                      chunk->kind == TEXT_CHUNK_CONTENT ? TEXT_CONTENT : TEXT_ALL};
    }
    if (!status) status = text_encode_segments(tok, segments.data, segments.count, out, error);
    base_vec_fini(heap, &segments);
    return status;
}

int32_t text_media_soft(const text_tokenizer *tok, text_chunk_kind kind) {
    return text_special(tok, kind == TEXT_CHUNK_IMAGE   ? TEXT_SPECIAL_IMAGE_SOFT
                             : kind == TEXT_CHUNK_AUDIO ? TEXT_SPECIAL_AUDIO_SOFT
                                                        : TEXT_SPECIAL_VIDEO_SOFT);
}

bool text_media_write(const text_tokenizer *tok, text_chunk_kind kind, size_t n, text_ids *out) {
    const bool sound = kind == TEXT_CHUNK_AUDIO;
    const int32_t soft = text_media_soft(tok, kind);
    if (!base_vec_reserve(text_heap(tok), out, n + 2)) return false;
    out->data[out->count++] = text_special(tok, sound ? TEXT_SPECIAL_AUDIO : TEXT_SPECIAL_IMAGE);
    for (size_t i = 0; i < n; i++) out->data[out->count++] = soft;
    out->data[out->count++] =
        text_special(tok, sound ? TEXT_SPECIAL_AUDIO_END : TEXT_SPECIAL_IMAGE_END);
    return true;
}
