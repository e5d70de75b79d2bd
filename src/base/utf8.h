/* utf8.h - one character of UTF-8 at a time, strictly (RFC 3629: no surrogates, no overlong forms,
 * at most U+10FFFF). */
#ifndef BASE_UTF8_H
#define BASE_UTF8_H

#include <stddef.h>
#include <stdint.h>

typedef enum base_utf8_kind {
    BASE_UTF8_WHOLE, /* *length bytes are a character */
    BASE_UTF8_PART,  /* all bytes could begin a character; more are needed */
    /* *length (at least 1) bytes can never become a character; the next byte starts anew */
    BASE_UTF8_INVALID
} base_utf8_kind;

/* size > 0. */
base_utf8_kind base_utf8_scan(const uint8_t *bytes, size_t size, size_t *length);
/* The code point of a whole character. */
uint32_t base_utf8_code(const uint8_t *bytes, size_t length);
/* Bytes of the character at `data`, 1 to 4; 0: none is whole and valid there. code may be NULL. */
size_t base_utf8(const char *data, size_t size, uint32_t *code);

#endif
