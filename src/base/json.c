/* json.c - reading and writing JSON (RFC 8259).
 *
 * Refuses what the grammar does not allow, broken UTF-8, lone surrogates, numbers beyond a double
 * and more than 64 levels. One loop walks the text with a stack of open containers: no recursion,
 * so hostile nesting costs nothing. Numbers are read without the process's locale. */
#include "base/json.h"
#include "base/error.h"
#include "base/utf8.h"

#include <assert.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>

enum { DEPTH_MAX = 64 };

typedef struct parser {
    base_arena *arena; /* borrowed */
    const char *data;  /* [size], borrowed */
    size_t size, at;
    beryl_error *error; /* borrowed, may be NULL */
} parser;

static beryl_status fail_json(const parser *p, size_t at, const char *what) {
    size_t line = 1, column = 1;
    for (size_t i = 0; i < at && i < p->size; i++) {
        column++;
        if (p->data[i] == '\n') line++, column = 1;
    }
    return base_fail_at(p->error, BERYL_BAD_INPUT, at, "JSON, line %zu, column %zu: %s", line,
                        column, what);
}

static beryl_status fail_memory(const parser *p) {
    return base_fail_at(p->error, BERYL_NO_MEMORY, p->at, "out of memory while reading JSON");
}

/* The byte at hand, -1 at the end. */
static int peek(const parser *p) {
    return p->at < p->size ? (unsigned char)p->data[p->at] : -1;
}

static void skip_space(parser *p) {
    for (int c = peek(p); c == ' ' || c == '\t' || c == '\n' || c == '\r'; c = peek(p)) p->at++;
}

static bool is_digit(int c) {
    return c >= '0' && c <= '9';
}

/* ---- strings */

static bool read_hex4(parser *p, uint32_t *code) {
    *code = 0;
    for (int i = 0; i < 4; i++, p->at++) {
        int c = peek(p), digit;
        if (is_digit(c)) digit = c - '0';
        else if (c >= 'a' && c <= 'f') digit = c - 'a' + 10;
        else if (c >= 'A' && c <= 'F') digit = c - 'A' + 10;
        else return false;
        *code = *code << 4 | (uint32_t)digit;
    }
    return true;
}

static size_t utf8_write(char *to, uint32_t code) {
    if (code < 0x80) return to[0] = (char)code, 1;
    size_t n = code < 0x800 ? 2 : code < 0x10000 ? 3 : 4;
    for (size_t i = n - 1; i > 0; i--, code >>= 6) to[i] = (char)(0x80 | (code & 0x3f));
    to[0] = (char)(0xf00 >> n | code);
    return n;
}

/* At the backslash. Writes at most as many bytes as it reads. */
static beryl_status read_escape(parser *p, char *to, size_t *n) {
    static const char names[] = "\"\\/bfnrt", values[] = "\"\\/\b\f\n\r\t";
    size_t start = p->at++;
    int c = peek(p);
    const char *name = c > 0 ? strchr(names, c) : NULL;
    if (name) {
        p->at++;
        to[0] = values[name - names];
        *n = 1;
        return BERYL_OK;
    }
    uint32_t code, low;
    if (c != 'u') return fail_json(p, start, "unknown escape in a string");
    p->at++;
    if (!read_hex4(p, &code))
        return fail_json(p, start, "\\u must be followed by four hexadecimal digits");
    if (code >= 0xd800 && code < 0xe000) {
        bool pair = code < 0xdc00 && p->size - p->at >= 6 && !memcmp(p->data + p->at, "\\u", 2);
        if (pair) p->at += 2;
        if (!pair || !read_hex4(p, &low) || low < 0xdc00 || low >= 0xe000)
            return fail_json(p, start, "half of a surrogate pair stands alone");
        code = 0x10000 + ((code - 0xd800) << 10) + (low - 0xdc00);
    }
    *n = utf8_write(to, code);
    return BERYL_OK;
}

/* At the opening quote. */
static beryl_status read_string(parser *p, base_view *out) {
    size_t start = p->at++, end = p->at;
    while (end < p->size && p->data[end] != '"')
        end += p->data[end] == '\\' && end + 1 < p->size ? 2 : 1;
    if (end >= p->size) return fail_json(p, start, "a string is not closed");
    char *text = base_arena_take(p->arena, end - p->at + 1, 1);
    if (!text) return fail_memory(p);
    size_t size = 0;
    while (p->at < end) {
        size_t n = 0;
        unsigned char c = (unsigned char)p->data[p->at];
        if (c == '\\') {
            beryl_status status = read_escape(p, text + size, &n);
            if (status) return status;
        } else {
            if (c < 0x20)
                return fail_json(p, p->at, "a control character in a string must be escaped");
            n = base_utf8(p->data + p->at, end - p->at, NULL);
            if (!n) return fail_json(p, p->at, "the text is not valid UTF-8");
            memcpy(text + size, p->data + p->at, n);
            p->at += n;
        }
        size += n;
    }
    p->at++;
    *out = (base_view){text, size};
    return BERYL_OK;
}

/* ---- numbers */

/* The value of a number that has the form of RFC 8259, rounded to nearest. strtod reads a decimal
 * point as the locale has it, so it is given digits and an exponent alone. More than 780
 * significant digits only matter as "not zero". */
static double number_value(const char *text, size_t size) {
    enum { DIGITS = 780 };
    char digits[DIGITS + 32]; /* sign, digits, sticky digit, exponent, NUL */
    size_t n = 0, i = 0;
    bool sticky = false, fraction = false, negative = text[0] == '-';
    int64_t exponent = 0, written = 0; /* text lengths stay far below 2^62 */
    if (negative) i++;
    for (; i < size && (is_digit(text[i]) || text[i] == '.'); i++) {
        if (text[i] == '.') {
            fraction = true;
        } else if (n == 0 && text[i] == '0') {
            exponent -= fraction; /* a leading zero */
        } else if (n < DIGITS) {
            digits[n++] = text[i];
            exponent -= fraction;
        } else {
            sticky |= text[i] != '0';
            exponent += !fraction;
        }
    }
    if (i < size) {
        bool down = text[++i] == '-';
        if (text[i] == '-' || text[i] == '+') i++;
        for (; i < size; i++)
            if (written < INT64_MAX / 32) written = written * 10 + (text[i] - '0');
        exponent += down ? -written : written;
    }
    if (!n) return negative ? -0.0 : 0.0;
    if (sticky) digits[n++] = '1', exponent--;
    digits[n++] = 'e';
    if (exponent < 0) digits[n++] = '-';
    uint64_t size_of_exponent = (uint64_t)(exponent < 0 ? -exponent : exponent);
    if (size_of_exponent > 99999)
        size_of_exponent = 99999; /* still zero or infinity: n is below 1,000 */
    for (uint64_t unit = 10000; unit; unit /= 10)
        digits[n++] = (char)('0' + size_of_exponent / unit % 10);
    digits[n] = 0;
    double value = strtod(digits, NULL);
    return negative ? -value : value;
}

static beryl_status read_number(parser *p, base_json *value) {
    size_t start = p->at;
    if (peek(p) == '-') p->at++;
    if (!is_digit(peek(p))) return fail_json(p, start, "a value is expected");
    if (peek(p) == '0') p->at++;
    else
        while (is_digit(peek(p))) p->at++;
    if (is_digit(peek(p))) return fail_json(p, start, "a number must not begin with 0");
    if (peek(p) == '.') {
        p->at++;
        if (!is_digit(peek(p))) return fail_json(p, p->at, "a digit must follow the decimal point");
        while (is_digit(peek(p))) p->at++;
    }
    if (peek(p) == 'e' || peek(p) == 'E') {
        p->at++;
        if (peek(p) == '+' || peek(p) == '-') p->at++;
        if (!is_digit(peek(p)))
            return fail_json(p, p->at, "a digit must follow the exponent's sign");
        while (is_digit(peek(p))) p->at++;
    }
    size_t size = p->at - start;
    char *text = base_arena_text(p->arena, p->data + start, size);
    if (!text) return fail_memory(p);
    value->kind = JSON_NUMBER;
    value->text = (base_view){text, size};
    value->number = number_value(text, size);
    return isfinite(value->number) ? BERYL_OK : fail_json(p, start, "a number is too large");
}

/* ---- values */

static beryl_status read_scalar(parser *p, base_json *value) {
    static const struct {
        base_view word;
        base_json_kind kind;
    } words[] = {{{"null", 4}, JSON_NULL}, {{"false", 5}, JSON_FALSE}, {{"true", 4}, JSON_TRUE}};
    if (peek(p) == '"') {
        value->kind = JSON_STRING;
        return read_string(p, &value->text);
    }
    base_view rest = {p->data + p->at, p->size - p->at};
    for (size_t i = 0; i < sizeof words / sizeof *words; i++) {
        if (!base_view_begins(rest, words[i].word)) continue;
        value->kind = words[i].kind;
        p->at += words[i].word.size;
        return BERYL_OK;
    }
    return peek(p) < 0 ? fail_json(p, p->at, "the text ends where a value is expected")
                       : read_number(p, value);
}

/* The key of an object's member and its colon. */
static beryl_status read_key(parser *p, base_view *key) {
    if (peek(p) != '"') return fail_json(p, p->at, "a key in quotes is expected");
    beryl_status status = read_string(p, key);
    if (status) return status;
    skip_space(p);
    if (peek(p) != ':') return fail_json(p, p->at, "':' is expected after a key");
    p->at++;
    skip_space(p);
    return BERYL_OK;
}

/* What follows a value inside `open`: a comma (then *closed is false) or its bracket. */
static beryl_status read_separator(parser *p, const base_json *open, bool *closed) {
    bool object = open->kind == JSON_OBJECT;
    skip_space(p);
    int c = peek(p);
    *closed = c == (object ? '}' : ']');
    if (c < 0)
        return fail_json(p, open->at,
                         object ? "an object is not closed" : "an array is not closed");
    if (!*closed && c != ',')
        return fail_json(p, p->at, object ? "',' or '}' is expected" : "',' or ']' is expected");
    p->at++;
    if (!*closed) skip_space(p);
    return BERYL_OK;
}

static beryl_status parse(parser *p, base_json **out) {
    base_json *open[DEPTH_MAX]; /* containers around the place at hand, outermost first */
    base_json **slot = out;     /* where the next value belongs */
    base_json **slots[DEPTH_MAX];
    size_t depth = 0;
    skip_space(p);
    for (;;) {
        base_json *value = base_arena_take(p->arena, 1, sizeof *value);
        if (!value) return fail_memory(p);
        beryl_status status = BERYL_OK;
        bool closed = false;
        if (depth && open[depth - 1]->kind == JSON_OBJECT) status = read_key(p, &value->key);
        if (status) return status;
        value->at = p->at;
        *slot = value;
        if (depth) open[depth - 1]->n_child++;
        slot = &value->next;
        int c = peek(p);
        if (c == '[' || c == '{') {
            if (depth == DEPTH_MAX) return fail_json(p, p->at, "nested more than 64 levels deep");
            value->kind = c == '[' ? JSON_ARRAY : JSON_OBJECT;
            p->at++;
            skip_space(p);
            if (peek(p) != (c == '[' ? ']' : '}')) {
                open[depth] = value;
                slots[depth++] = slot;
                slot = &value->child;
                if (peek(p) < 0) return read_separator(p, value, &closed); /* for its message */
                continue;
            }
            p->at++;
        } else {
            status = read_scalar(p, value);
            if (status) return status;
        }
        for (closed = true; depth && closed;) {
            status = read_separator(p, open[depth - 1], &closed);
            if (status) return status;
            if (closed) slot = slots[--depth];
        }
        if (closed) break;
    }
    skip_space(p);
    return p->at < p->size ? fail_json(p, p->at, "something follows the value") : BERYL_OK;
}

beryl_status base_json_parse(base_arena *arena, const char *data, size_t size, base_json **out,
                             beryl_error *error) {
    parser p = {.arena = arena, .data = data ? data : "", .size = size, .error = error};
    *out = NULL;
    beryl_status status = parse(&p, out);
    if (status) *out = NULL;
    return status;
}

const base_json *base_json_find(const base_json *object, const char *key) {
    const base_json *found = NULL;
    if (!object || object->kind != JSON_OBJECT) return NULL;
    base_view want = base_view_of(key);
    for (const base_json *member = object->child; member; member = member->next)
        if (base_view_equal(member->key, want)) found = member;
    return found;
}

/* ---- writing */

/* Bytes of the broken sequence at data that count as one: a lead byte with what could continue it.
 */
static size_t broken_size(const char *data, size_t size) {
    const unsigned char *b = (const unsigned char *)data;
    size_t want = b[0] >= 0xf0 && b[0] <= 0xf4 ? 4 : b[0] >= 0xe0 && b[0] <= 0xef ? 3 : 1, n = 1;
    if (want > 1 && size > 1) { /* the second byte has tighter bounds after some leads */
        unsigned char low = b[0] == 0xe0 ? 0xa0 : b[0] == 0xf0 ? 0x90 : 0x80;
        unsigned char high = b[0] == 0xed ? 0x9f : b[0] == 0xf4 ? 0x8f : 0xbf;
        if (b[1] < low || b[1] > high) return 1;
    }
    while (n < want - (want > 1) && n < size && (b[n] & 0xc0) == 0x80) n++;
    return n;
}

void base_json_write_string(base_text *out, const char *data, size_t size) {
    static const char names[] = "\"\\bfnrt", values[] = "\"\\\b\f\n\r\t";
    base_text_add(out, "\"", 1);
    if (!size) data = ""; /* NULL may be given for nothing */
    size_t plain = 0;     /* start of what can be copied as it is */
    for (size_t i = 0; i < size;) {
        unsigned char c = (unsigned char)data[i];
        size_t n = c < 0x80 ? 1 : base_utf8(data + i, size - i, NULL);
        if (n && c >= 0x20 && c != '"' && c != '\\') {
            i += n;
            continue;
        }
        base_text_add(out, data + plain, i - plain);
        const char *value = c && n ? strchr(values, c) : NULL;
        if (value) base_text_print(out, "\\%c", names[value - values]);
        else if (n) base_text_print(out, "\\u%04x", c);
        else base_text_add(out, "\xef\xbf\xbd", 3);
        i += n ? n : broken_size(data + i, size - i);
        plain = i;
    }
    base_text_add(out, data + plain, size - plain);
    base_text_add(out, "\"", 1);
}

void base_json_write(base_text *out, const base_json *value) {
    static const char *const words[] = {"null", "false", "true"};
    switch (value->kind) {
    case JSON_NULL:
    case JSON_FALSE:
    case JSON_TRUE: base_text_add_view(out, base_view_of(words[value->kind])); return;
    case JSON_NUMBER: base_text_add_view(out, value->text); return;
    case JSON_STRING: base_json_write_string(out, value->text.data, value->text.size); return;
    case JSON_ARRAY:
    case JSON_OBJECT: break;
    }
    bool object = value->kind == JSON_OBJECT;
    base_text_add(out, object ? "{" : "[", 1);
    for (const base_json *child = value->child; child; child = child->next) {
        if (child != value->child) base_text_add(out, ",", 1);
        if (object) {
            base_json_write_string(out, child->key.data, child->key.size);
            base_text_add(out, ":", 1);
        }
        base_json_write(out, child);
    }
    base_text_add(out, object ? "}" : "]", 1);
}
