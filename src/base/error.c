/* error.c - statuses as text, messages, log lines.
 *
 * Owns the one place where a message is formatted. Names from hostile files end up in messages, so
 * a message is always one line of valid UTF-8: control characters and broken bytes become '?'. */
#include "base/error.h"
#include "base/memory.h"
#include "base/utf8.h"

#include <stdarg.h>
#include <stdio.h>

static const struct {
    const char *name, *text;
} status_rows[] = {
#define X(name, text) {#name, text},
    BERYL_STATUS_LIST(X)
#undef X
};

static bool status_known(beryl_status status) {
    return (size_t)status < sizeof status_rows / sizeof *status_rows;
}

const char *beryl_status_name(beryl_status status) {
    return status_known(status) ? status_rows[status].name : "UNKNOWN";
}

const char *beryl_status_text(beryl_status status) {
    return status_known(status) ? status_rows[status].text : "unknown status";
}

const char *beryl_version(void) {
    return BERYL_VERSION;
}

/* Formats into line[capacity] and cleans it; a sequence cut off by the end of the line is dropped.
 */
static void line_print(char *line, size_t capacity, const char *format, va_list args) {
    int length = vsnprintf(line, capacity, format, args);
    size_t size = length < 0 ? 0 : (size_t)length;
    bool cut = size >= capacity;
    if (cut) size = capacity - 1;
    size_t to = 0;
    for (size_t from = 0; from < size;) {
        size_t n = base_utf8(line + from, size - from, NULL);
        unsigned char byte = (unsigned char)line[from];
        if (n == 0 || byte < 0x20 || byte == 0x7f) {
            if (cut && n == 0 && size - from < 4 && byte >= 0xc2) break;
            line[to++] = '?', from++;
            continue;
        }
        for (size_t i = 0; i < n; i++) line[to++] = line[from++];
    }
    line[to] = 0;
}

static void fail(beryl_error *error, beryl_status code, uint64_t at, const char *message,
                 va_list args) {
    if (!error) return;
    error->code = code;
    error->at = at;
    line_print(error->message, sizeof error->message, message, args);
}

beryl_status base_fail(beryl_error *error, beryl_status code, const char *message, ...) {
    va_list args;
    va_start(args, message);
    fail(error, code, 0, message, args);
    va_end(args);
    return code;
}

beryl_status base_no_memory(beryl_error *error) {
    return base_fail(error, BERYL_NO_MEMORY, "out of host memory");
}

beryl_status base_fail_at(beryl_error *error, beryl_status code, uint64_t at, const char *message,
                          ...) {
    va_list args;
    va_start(args, message);
    fail(error, code, at, message, args);
    va_end(args);
    return code;
}

void base_log(const beryl_log *log, beryl_log_level level, const char *message, ...) {
    if (!log || !log->write) return;
    char line[1024]; /* [bytes with the NUL] */
    va_list args;
    va_start(args, message);
    line_print(line, sizeof line, message, args);
    va_end(args);
    log->write(log->user, level, line);
}
