/* utf8.h - one character of UTF-8 at a time, strictly (RFC 3629: no surrogates, no overlong forms,
 * at most U+10FFFF). */
#ifndef TEXT_UTF8_H
#define TEXT_UTF8_H

#include <stddef.h>
#include <stdint.h>

typedef enum text_utf8 {
    TEXT_UTF8_WHOLE,  /* *length bytes are a character */
    TEXT_UTF8_PART,   /* all bytes could begin a character; more are needed */
    TEXT_UTF8_INVALID /* *length (at least 1) bytes can never become a character; the next byte
                         starts anew */
} text_utf8;

/* size > 0. */
text_utf8 text_utf8_scan(const uint8_t *bytes, size_t size, size_t *length);
/* The code point of a whole character. */
uint32_t text_utf8_code(const uint8_t *bytes, size_t length);

#endif
