/* render.h - what chat.c and schema.c share: a prompt that grows, places for messages, JSON's
 * notions. */
#ifndef TEXT_RENDER_H
#define TEXT_RENDER_H

#include "text/chat.h"

typedef struct text_renderer {
    base_arena *arena;
    base_vec(text_chunk) chunks; /* memory of arena->heap */
    size_t size;
    beryl_status status;
    beryl_error *error;
} text_renderer;

/* Where in the conversation: a chain on the stack, the innermost last. */
typedef struct text_place {
    const struct text_place *up;
    base_view key; /* data NULL: an element of a list */
    size_t index;
} text_place;

/* All give false on failure, with the renderer's status set. */
bool text_put_template(text_renderer *r, const char *literal); /* borrowed for good: a literal */
bool text_put_content(text_renderer *r,
                      base_view text); /* borrowed for as long as the prompt lives */
bool text_put_media(text_renderer *r, text_chunk_kind kind, const base_json *part);
bool text_refuse(text_renderer *r, const text_place *at, const char *what);
bool text_no_memory(text_renderer *r);
/* Refuses an object that has another key than `known`, "a, b, c". */
bool text_check_keys(text_renderer *r, const base_json *object, const text_place *at,
                     const char *known);

bool text_is_absent(const base_json *value); /* NULL or null */
bool text_is_true(const base_json *value);   /* as Python sees it: not empty, not zero */

/* `{` and `}` are the caller's. quoted: keys between quote tokens. value NULL is null. */
bool text_render_members(text_renderer *r, const base_json *object, bool quoted,
                         const text_place *at);
bool text_render_value(text_renderer *r, const base_json *value, bool quoted, const text_place *at);
bool text_render_tools(text_renderer *r, const base_json *tools, const text_place *at);

#endif
