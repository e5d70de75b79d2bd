/* chat.h - Gemma 4's chat format: from a conversation to the prompt, from the model's tokens to
 * text, thoughts and calls.
 *
 * Owns both directions of the format (template of 2026-07-09). Refuses conversations of the wrong
 * shape, naming the place
 * ("messages[3].content[0].type"). The one idea: a prompt is a list of segments, each the
 * template's own or somebody's text, and only the former is ever searched for control tokens, so
 * that no message, tool result or system prompt can forge a turn or a call.
 */
#ifndef TEXT_CHAT_H
#define TEXT_CHAT_H

#include "base/json.h"
#include "text/tokenizer.h"

/* ---- conversation to prompt ------------------------------------------------------------------ */

typedef enum text_chat_style {
    TEXT_CHAT_SMALL, /* models with per-layer embeddings (E2B, E4B) */
    TEXT_CHAT_LARGE  /* the others: with thinking off, the answer begins with an empty thought */
} text_chat_style;

typedef enum text_chunk_kind {
    TEXT_CHUNK_TEMPLATE, /* written by the format: control literals are control tokens */
    TEXT_CHUNK_CONTENT,  /* written by somebody: no control tokens */
    TEXT_CHUNK_IMAGE,    /* a place for a picture; text is "<|image|>" */
    TEXT_CHUNK_AUDIO,
    TEXT_CHUNK_VIDEO
} text_chunk_kind;

typedef struct text_chunk {
    text_chunk_kind kind;
    base_view text;        /* in the prompt's arena, or a literal, or in the conversation */
    const base_json *part; /* IMAGE, AUDIO, VIDEO: the message's part, borrowed like the chat */
} text_chunk;

typedef struct text_prompt {
    text_chunk *chunks; /* [n_chunk], in the arena */
    size_t n_chunk;
    size_t size;     /* bytes of all texts */
    bool in_thought; /* the prompt ends inside an open thought: the parser starts there */
    bool generate, think;
} text_prompt;

/* chat     {"messages": [message], "tools": [tool] or null, "think": bool,
 *          "generate": bool (default true), "preserve_thinking": bool (keep thoughts before
 *          calls)}; passed over: "model"
 * message  {"role", "content": text, [part] or null, "tool_calls": [call],
 *          "reasoning" or "reasoning_content" or "thinking": text,
 *          "tool_call_id", "name", "tool_responses": [{"name", "response"}]}; passed over: "id",
 *          "refusal", "annotations", and null for "audio", "function_call"; the content of a "tool"
 *          message may be any JSON
 * part     {"type": "text", "text"}, {"type": "image"}, {"type": "audio"}, {"type": "video"},
 *          and OpenAI's names "image_url" and "input_audio"
 * call     {"id", "function": {"name", "arguments": object, or text that is one}};
 *          passed over: "type", "index", here and in the function
 * tool     {"function": {"name", "description", "parameters", "response"}};
 *          passed over: "type", and "strict" in the function
 *
 * Other members are refused, but for those of parts that are no text, of results and of schemas.
 * BAD_INPUT names the place. All memory is the arena's; the prompt borrows from `chat`. */
beryl_status text_chat_render(base_arena *arena, const base_json *chat, text_chat_style style,
                              text_prompt *prompt, beryl_error *error);
/* Is this file's template (`tokenizer.chat_template`, Jinja) one of those whose form
 * text_chat_render writes? White space makes no difference. */
bool text_chat_template_known(base_view source);
/* The prompt as the model reads it. */
void text_prompt_write(const text_prompt *prompt, base_text *out);
/* Appends the prompt's ids, BOS among them; a place for media is its one soft token. */
beryl_status text_prompt_encode(const text_tokenizer *tok, const text_prompt *prompt, text_ids *out,
                                beryl_error *error);
/* Appends the n soft tokens of a picture (IMAGE) or a clip (AUDIO), between the two that enclose
 * them. False: no memory. */
bool text_media_write(const text_tokenizer *tok, text_chunk_kind kind, size_t n, text_ids *out);
/* What stands for such a token; -1: the vocabulary lacks it. */
int32_t text_media_soft(const text_tokenizer *tok, text_chunk_kind kind);

/* ---- tokens to answer ------------------------------------------------------------------------ */

/* An answer's tokens become items of these kinds. CALL_TEXT is a call while it is written, CALL the
 * same call finished, as JSON {"name": ..., "arguments": {...}}. */
typedef enum text_item_kind {
    TEXT_ITEM_TEXT,
    TEXT_ITEM_THOUGHT,
    TEXT_ITEM_CALL_TEXT,
    TEXT_ITEM_CALL
} text_item_kind;

typedef struct text_item {
    text_item_kind kind;
    base_view text; /* valid UTF-8; until the next push or finish */
} text_item;

typedef struct text_parser text_parser;

/* in_thought: as the prompt says. */
beryl_status text_parser_open(base_heap *heap, const text_tokenizer *tok, bool in_thought,
                              text_parser **out, beryl_error *error);
void text_parser_close(text_parser *parser); /* NULL is fine */
/* Takes one token, stop tokens included; then text_parser_next gives its items, none or several.
 * Blanks at the end of a text are held back until more text comes, and dropped where the text ends.
 */
beryl_status text_parser_push(text_parser *parser, int32_t id, beryl_error *error);
/* The end: held-back text, an unfinished call. */
beryl_status text_parser_finish(text_parser *parser, beryl_error *error);
bool text_parser_next(text_parser *parser, text_item *item); /* false: no more items */
bool text_parser_in_thought(const text_parser *parser);

#endif
