/* json.h - RFC 8259, strict, into an arena: positions in errors, depth at most 64, duplicate
 * keys kept in order. */
#ifndef BASE_JSON_H
#define BASE_JSON_H

#include "base/memory.h"

typedef enum base_json_kind {
    JSON_NULL,
    JSON_FALSE,
    JSON_TRUE,
    JSON_NUMBER,
    JSON_STRING,
    JSON_ARRAY,
    JSON_OBJECT
} base_json_kind;

typedef struct base_json {
    base_json_kind kind;
    /* STRING: unescaped, valid UTF-8, may contain NUL; NUMBER: as written */
    base_view text;
    double number;
    base_view key;           /* of a member of an object */
    struct base_json *child; /* first element or member */
    struct base_json *next;  /* next sibling */
    size_t n_child, at;      /* at: byte offset in the source */
} base_json;

beryl_status base_json_parse(base_arena *arena, const char *data, size_t size, base_json **out,
                             beryl_error *error);
/* last of that key; NULL: none or no object */
const base_json *base_json_find(const base_json *object, const char *key);
/* Writes a JSON string with quotes; invalid UTF-8 becomes U+FFFD. */
void base_json_write_string(base_text *out, const char *data, size_t size);
void base_json_write(base_text *out, const base_json *value); /* compact, numbers as written */

#endif
