/* decode.c - from tokens to text, whole and streaming.
 *
 * Owns no memory. Refuses ids outside of the vocabulary. The one idea: bytes pass through a buffer
 * of at most three, so that only whole characters come out whatever tokens they are spread over.
 */
#include "base/utf8.h"
#include "text/vocab.h"

#include "base/error.h"

#include <string.h>

static void replace_add(base_text *out) {
    base_text_add(out, "\xEF\xBF\xBD", 3); /* U+FFFD */
}

static void stream_bytes(text_stream *stream, const uint8_t *bytes, size_t size, base_text *out) {
    size_t i = 0, length;
    while (i < size) {
        if (stream->n_held) {
            stream->held[stream->n_held++] = bytes[i];
            base_utf8_kind found = base_utf8_scan(stream->held, stream->n_held, &length);
            /* what was held could go on, so this byte is at fault and starts anew */
            if (found == BASE_UTF8_INVALID) {
                replace_add(out);
                stream->n_held = 0;
                continue;
            }
            if (found == BASE_UTF8_WHOLE) {
                base_text_add(out, (const char *)stream->held, length);
                stream->n_held = 0;
            }
            i++;
            continue;
        }
        size_t begin = i;
        base_utf8_kind found = BASE_UTF8_WHOLE;
        while (i < size &&
               (found = base_utf8_scan(bytes + i, size - i, &length)) == BASE_UTF8_WHOLE)
            i += length;
        base_text_add(out, (const char *)bytes + begin, i - begin);
        if (found == BASE_UTF8_INVALID) {
            replace_add(out);
            i += length;
        } else if (found == BASE_UTF8_PART) {
            stream->n_held = (uint32_t)(size - i); /* a part has at most three bytes */
            memcpy(stream->held, bytes + i, size - i);
            i = size;
        }
    }
}

/* The pieces of a token's text between U+2581, which stand for blanks. Gives the next one and
 * whether a blank follows. */
static base_view piece_next(base_view *rest, bool *blank) {
    base_view piece = *rest;
    for (const char *p = rest->data; rest->size; p++) {
        p = memchr(p, 0xE2, rest->size - (size_t)(p - rest->data));
        if (!p || rest->size - (size_t)(p - rest->data) < 3) break;
        if ((uint8_t)p[1] != 0x96 || (uint8_t)p[2] != 0x81) continue;
        piece.size = (size_t)(p - rest->data);
        *rest = (base_view){p + 3, rest->size - piece.size - 3};
        *blank = true;
        return piece;
    }
    *rest = (base_view){rest->data + rest->size, 0};
    *blank = false;
    return piece;
}

/* What a token stands for: true and a view of its text, or one byte in *byte with an empty view.
 * false: nothing is printed. */
static bool token_text(const text_tokenizer *tok, int32_t id, bool special, base_view *text,
                       int *byte) {
    *byte = -1;
    *text = tok->tokens[id];
    if (!text->size) return false;
    switch ((text_kind)tok->kinds[id]) {
    case TEXT_KIND_UNKNOWN:
    case TEXT_KIND_CONTROL: return special;
    case TEXT_KIND_BYTE: *byte = text_byte_of(*text); return true;
    case TEXT_KIND_NORMAL:
    case TEXT_KIND_USER_DEFINED:
    case TEXT_KIND_UNUSED: return true;
    }
    return false;
}

void text_token_bytes(const text_tokenizer *tok, int32_t id, bool special, base_text *out) {
    base_view text;
    int byte;
    if (id < 0 || (size_t)id >= tok->n_token || !token_text(tok, id, special, &text, &byte)) return;
    if (byte >= 0) {
        base_text_add(out, &(char){(char)byte}, 1);
        return;
    }
    for (bool blank = true; blank;) {
        base_text_add_view(out, piece_next(&text, &blank));
        if (blank) base_text_add(out, " ", 1);
    }
}

void text_stream_init(text_stream *stream, const text_tokenizer *tok, bool special) {
    *stream = (text_stream){.tok = tok, .special = special};
}

beryl_status text_stream_push(text_stream *stream, int32_t id, base_text *out, beryl_error *error) {
    const text_tokenizer *tok = stream->tok;
    base_view text;
    int byte;
    if (id < 0 || (size_t)id >= tok->n_token)
        return base_fail(error, BERYL_BAD_INPUT,
                         "the token %d is outside of the vocabulary of %zu tokens", (int)id,
                         tok->n_token);
    if (!token_text(tok, id, stream->special, &text, &byte)) {
        text_stream_finish(stream, out); /* no character goes on behind a control token */
    } else if (byte >= 0) {
        stream_bytes(stream, &(uint8_t){(uint8_t)byte}, 1, out);
    } else {
        for (bool blank = true; blank;) {
            base_view piece = piece_next(&text, &blank);
            stream_bytes(stream, (const uint8_t *)piece.data, piece.size, out);
            if (blank) stream_bytes(stream, (const uint8_t *)" ", 1, out);
        }
    }
    return out->failed ? base_fail(error, BERYL_NO_MEMORY, "no memory to decode a text") : BERYL_OK;
}

void text_stream_finish(text_stream *stream, base_text *out) {
    if (stream->n_held) replace_add(out);
    stream->n_held = 0;
}

beryl_status text_decode(const text_tokenizer *tok, const int32_t *ids, size_t n, bool special,
                         base_text *out, beryl_error *error) {
    text_stream stream;
    beryl_status status = BERYL_OK;
    text_stream_init(&stream, tok, special);
    for (size_t i = 0; i < n && !status; i++)
        status = text_stream_push(&stream, ids[i], out, error);
    if (status) return status;
    text_stream_finish(&stream, out);
    return out->failed ? base_fail(error, BERYL_NO_MEMORY, "no memory to decode a text") : BERYL_OK;
}
