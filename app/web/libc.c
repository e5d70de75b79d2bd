/* libc.c - what the module does not take from wasi-libc, since JavaScript has it or a little is
 * enough: functions of floating point, text from numbers and back, searching and moving bytes.
 * It is 50 KB of the module and more than half of that in tables.
 *
 * Owns the C names below, as far as the library uses them; each says what it leaves out. Numbers
 * go to JavaScript, which rounds decimals as exactly as C does (wasi.ts). */
#include <stdarg.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

double pow(double x, double y);
double atan2(double y, double x);
double exp2(double x);
double hypot(double x, double y);
float expf(float x);

#define IMPORT(name) __attribute__((import_module("beryl"), import_name(#name)))

/* Functions of one number; wasi.ts has the same list. */
#define MATH(X) \
    X(sin)      \
    X(cos) X(tan) X(asin) X(acos) X(atan) X(sinh) X(cosh) X(tanh) X(exp) X(log) X(log2) X(log10)

#define X(name)            \
    double name(double x); \
    IMPORT(name) double libc_##name(double x);
MATH(X)
#undef X
IMPORT(pow) double libc_pow(double x, double y);
IMPORT(atan2) double libc_atan2(double y, double x);
IMPORT(number_read) double libc_number_read(const char *text, uint32_t size);
/* As %e, %f or %g; the bytes written, at most NUMBER_ROOM. */
IMPORT(number_print)
uint32_t libc_number_print(double value, uint32_t conversion, uint32_t precision, char *to);

enum { NUMBER_ROOM = 96, PRECISION_MAX = 40 };

/* ---- floating point -------------------------------------------------------------------------- */

#define X(name)                \
    double name(double x) {    \
        return libc_##name(x); \
    }
MATH(X)
#undef X
double pow(double x, double y) {
    return libc_pow(x, y);
}
double atan2(double y, double x) {
    return libc_atan2(y, x);
}
/* Of numbers whose squares are numbers too. */
double hypot(double x, double y) {
    return __builtin_sqrt(x * x + y * y);
}
double exp2(double x) {
    return libc_pow(2, x);
}
float expf(float x) {
    return (float)libc_exp((double)x);
}

/* ---- bytes: each is one instruction where the target has it ---------------------------------- */

void *memcpy(void *restrict to, const void *restrict from, size_t size) {
    return __builtin_memcpy(to, from, size);
}
void *memmove(void *to, const void *from, size_t size) {
    return __builtin_memmove(to, from, size);
}
void *memset(void *to, int byte, size_t size) {
    return __builtin_memset(to, byte, size);
}

char *strstr(const char *text, const char *part) {
    const size_t size = strlen(part);
    if (size == 0) return (char *)(uintptr_t)text;
    for (; (text = strchr(text, part[0])) != NULL; text++)
        if (!strncmp(text, part, size)) return (char *)(uintptr_t)text;
    return NULL;
}

/* ---- numbers from text: the library has looked at their form --------------------------------- */

/* The whole text is a number; an end is not told. */
double strtod(const char *restrict text, char **restrict end) {
    if (end) *end = NULL;
    return libc_number_read(text, (uint32_t)strlen(text));
}

/* Spaces, then decimal digits; an end is not told. */
unsigned long strtoul(const char *restrict text, char **restrict end, int base) {
    unsigned long value = 0;
    (void)base;
    if (end) *end = NULL;
    while (*text == ' ') text++;
    for (; *text >= '0' && *text <= '9'; text++) value = value * 10 + (unsigned long)(*text - '0');
    return value;
}

int atoi(const char *text) {
    const bool negative = *text == '-';
    const int value = (int)strtoul(text + (negative || *text == '+'), NULL, 10);
    return negative ? -value : value;
}

/* ---- text from numbers ----------------------------------------------------------------------- */

typedef struct printer {
    char *to;
    size_t room, size; /* size: also of what did not fit */
} printer;

typedef struct field {
    bool left, zeros, plus;
    uint32_t width;
    int32_t precision; /* -1: none */
} field;

static void put(printer *p, const char *text, size_t size) {
    const size_t left = p->size < p->room ? p->room - p->size : 0;
    if (left) memcpy(p->to + p->size, text, size < left ? size : left);
    p->size += size;
}

static void put_fill(printer *p, char c, size_t n) {
    while (n--) put(p, &c, 1);
}

/* A sign may stand before the zeros that fill a field. */
static void put_field(printer *p, const field *f, const char *text, size_t size) {
    const size_t fill = f->width > size ? f->width - size : 0;
    const bool zeros = f->zeros && !f->left;
    if (zeros && size && (*text == '-' || *text == '+')) put(p, text++, 1), size--;
    if (!f->left) put_fill(p, zeros ? '0' : ' ', fill);
    put(p, text, size);
    if (f->left) put_fill(p, ' ', fill);
}

static void put_integer(printer *p, const field *f, uint64_t value, bool negative,
                        char conversion) {
    const uint32_t base = conversion == 'x' || conversion == 'X' ? 16 : 10;
    const char *digits = conversion == 'X' ? "0123456789ABCDEF" : "0123456789abcdef";
    char text[24], *at = text + sizeof text;
    do *--at = digits[value % base];
    while (value /= base);
    if (negative || f->plus) *--at = negative ? '-' : '+';
    put_field(p, f, at, (size_t)(text + sizeof text - at));
}

static void put_number(printer *p, const field *f, double value, char conversion) {
    char text[NUMBER_ROOM];
    const uint32_t precision = f->precision < 0               ? 6
                               : f->precision > PRECISION_MAX ? PRECISION_MAX
                                                              : (uint32_t)f->precision;
    put_field(p, f, text, libc_number_print(value, (uint32_t)conversion, precision, text));
}

static void put_string(printer *p, field *f, const char *text) {
    size_t size = 0;
    while ((f->precision < 0 || size < (size_t)f->precision) && text[size]) size++;
    f->zeros = false;
    put_field(p, f, text, size);
}

/* The conversions d u x X c s e f g %, the flags - and 0, + of whole numbers, lengths to 64
 * bits; anything else is -1. A precision is for strings and floating point. */
int vsnprintf(char *restrict to, size_t room, const char *restrict format, va_list args) {
    printer p = {to, room ? room - 1 : 0, 0};
    for (const char *at = format; *at; at++) {
        const char *begin = at;
        while (*at && *at != '%') at++;
        put(&p, begin, (size_t)(at - begin));
        if (!*at) break;
        field f = {.precision = -1};
        for (at++; *at == '-' || *at == '0' || *at == '+'; at++)
            *(*at == '-' ? &f.left : *at == '0' ? &f.zeros : &f.plus) = true;
        if (*at == '*') f.width = va_arg(args, uint32_t), at++;
        for (; *at >= '0' && *at <= '9'; at++) f.width = f.width * 10 + (uint32_t)(*at - '0');
        if (*at == '.') {
            if (*++at == '*') f.precision = va_arg(args, int), at++;
            else
                for (f.precision = 0; *at >= '0' && *at <= '9'; at++)
                    f.precision = f.precision * 10 + (*at - '0');
        }
        bool wide = false;
        for (; *at == 'l' || *at == 'z'; at++) wide = *at == 'l' && at[1] == 'l' ? true : wide;
        switch (*at) {
        case 'd': {
            const int64_t value = wide ? va_arg(args, long long) : va_arg(args, int);
            put_integer(&p, &f, value < 0 ? 0 - (uint64_t)value : (uint64_t)value, value < 0, 'd');
            break;
        }
        case 'u':
        case 'x':
        case 'X':
            put_integer(&p, &f, wide ? va_arg(args, unsigned long long) : va_arg(args, unsigned),
                        false, *at);
            break;
        case 'e':
        case 'f':
        case 'g': put_number(&p, &f, va_arg(args, double), *at); break;
        case 's': put_string(&p, &f, va_arg(args, const char *)); break;
        case 'c': {
            const char c = (char)va_arg(args, int);
            put_field(&p, &f, &c, 1);
            break;
        }
        case '%': put(&p, "%", 1); break;
        default: return -1;
        }
    }
    if (room) to[p.size < p.room ? p.size : p.room] = 0;
    return (int)p.size;
}

int snprintf(char *restrict to, size_t room, const char *restrict format, ...) {
    va_list args;
    va_start(args, format);
    const int size = vsnprintf(to, room, format, args);
    va_end(args);
    return size;
}
