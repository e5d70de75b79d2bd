/* tokens.c - text to tokens and back, conversations to prompts: src/text behind the public
 * interface.
 *
 * Needs a vocabulary alone. Whatever the caller gets is handed out by engine_hand_out. */
#include "base/error.h"
#include "engine/out.h"

#include <string.h>

static beryl_status check_engine(const beryl_engine *engine, const char *call, beryl_error *error) {
    if (engine && engine->loaded && engine->tokenizer) return BERYL_OK;
    return base_fail(error, BERYL_MISUSE, "%s needs a loaded engine with a vocabulary", call);
}

beryl_status beryl_tokenize(const beryl_engine *engine, const char *text, size_t size, bool special,
                            int32_t *tokens, size_t capacity, size_t *n_token, beryl_error *error) {
    if (n_token) *n_token = 0;
    beryl_status status = check_engine(engine, "beryl_tokenize", error);
    if (status != BERYL_OK) return status;
    if (!n_token || (!text && size) || (!tokens && capacity))
        return base_fail(
            error, BERYL_MISUSE,
            "beryl_tokenize needs a text, room for the tokens and a place for their count");
    text_ids ids = {0};
    status = text_encode(engine->tokenizer, text ? text : "", size,
                         special ? TEXT_ALL : TEXT_USER_DEFINED, &ids, error);
    if (status == BERYL_OK) {
        *n_token = ids.count;
        const size_t n = ids.count < capacity ? ids.count : capacity;
        if (n) memcpy(tokens, ids.data, n * sizeof *tokens);
    }
    text_ids_fini(engine->tokenizer, &ids);
    return status;
}

beryl_status beryl_detokenize(const beryl_engine *engine, const int32_t *tokens, size_t n_token,
                              bool special, char **text, size_t *size, beryl_error *error) {
    if (text) *text = NULL;
    if (size) *size = 0;
    beryl_status status = check_engine(engine, "beryl_detokenize", error);
    if (status != BERYL_OK) return status;
    if (!text || (!tokens && n_token))
        return base_fail(error, BERYL_MISUSE,
                         "beryl_detokenize needs tokens and a place for the text");
    base_text out;
    base_text_init(&out, engine_heap(engine));
    status = text_decode(engine->tokenizer, tokens, n_token, special, &out, error);
    if (status == BERYL_OK && out.failed) status = base_no_memory(error);
    if (status == BERYL_OK) *text = engine_hand_out(engine, out.data, out.size);
    if (status == BERYL_OK && !*text) status = base_no_memory(error);
    if (status == BERYL_OK && size) *size = out.size;
    base_text_fini(&out);
    return status;
}

/* The prompt of a conversation; it borrows from the arena. */
static beryl_status read_chat(const beryl_engine *engine, const char *chat, base_arena *arena,
                              text_prompt *prompt, beryl_error *error) {
    base_json *json;
    beryl_status status = base_json_parse(arena, chat, strlen(chat), &json, error);
    return status == BERYL_OK ? text_chat_render(arena, json, engine->style, prompt, error)
                              : status;
}

beryl_status beryl_render(const beryl_engine *engine, const char *chat, char **text, size_t *size,
                          beryl_error *error) {
    if (text) *text = NULL;
    if (size) *size = 0;
    beryl_status status = check_engine(engine, "beryl_render", error);
    if (status != BERYL_OK) return status;
    if (!chat || !text)
        return base_fail(error, BERYL_MISUSE,
                         "beryl_render needs a conversation and a place for the prompt");
    base_arena arena;
    base_arena_init(&arena, engine_heap(engine));
    base_text out;
    base_text_init(&out, engine_heap(engine));
    text_prompt prompt;
    status = read_chat(engine, chat, &arena, &prompt, error);
    if (status == BERYL_OK) {
        text_prompt_write(&prompt, &out);
        *text = out.failed ? NULL : engine_hand_out(engine, out.data, out.size);
        if (!*text) status = base_no_memory(error);
    }
    if (status == BERYL_OK && size) *size = out.size;
    base_text_fini(&out);
    base_arena_fini(&arena);
    return status;
}

beryl_status beryl_render_tokens(const beryl_engine *engine, const char *chat, int32_t **tokens,
                                 size_t *n_token, beryl_error *error) {
    if (tokens) *tokens = NULL;
    if (n_token) *n_token = 0;
    beryl_status status = check_engine(engine, "beryl_render_tokens", error);
    if (status != BERYL_OK) return status;
    if (!chat || !tokens || !n_token)
        return base_fail(
            error, BERYL_MISUSE,
            "beryl_render_tokens needs a conversation and places for the tokens and their count");
    base_arena arena;
    base_arena_init(&arena, engine_heap(engine));
    text_ids ids = {0};
    text_prompt prompt;
    status = read_chat(engine, chat, &arena, &prompt, error);
    if (status == BERYL_OK) status = text_prompt_encode(engine->tokenizer, &prompt, &ids, error);
    if (status == BERYL_OK) {
        *tokens = engine_hand_out(engine, ids.data, ids.count * sizeof *ids.data);
        if (!*tokens) status = base_no_memory(error);
    }
    if (status == BERYL_OK) *n_token = ids.count;
    text_ids_fini(engine->tokenizer, &ids);
    base_arena_fini(&arena);
    return status;
}
