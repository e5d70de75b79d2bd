/* out.c - see out.h. */
#include "format/out.h"
#include "base/error.h"
#include "base/file.h"

#include <string.h>

enum { BUFFER = 1 << 18 };

static void keep_error(void *user, beryl_log_level level, const char *line) {
    format_out *out = user;
    if (level == BERYL_LOG_ERROR && !out->error.code) base_fail(&out->error, BERYL_IO, "%s", line);
}

beryl_status format_out_open(format_out *out, base_heap *heap, const char *path,
                             beryl_error *error) {
    *out = (format_out){.heap = heap, .log = {keep_error, out}};
    out->buffer = base_heap_resize(heap, NULL, 0, BUFFER);
    if (!out->buffer) return base_no_memory(error);
    const beryl_status status = base_sink_open_file(heap, &out->log, path, &out->sink, error);
    if (status) base_heap_give(heap, out->buffer, BUFFER);
    return status;
}

beryl_status format_out_begin(format_out *out, base_heap *heap, const beryl_sink *sink,
                              beryl_error *error) {
    *out = (format_out){.heap = heap, .sink = *sink};
    out->buffer = base_heap_resize(heap, NULL, 0, BUFFER);
    if (out->buffer) return BERYL_OK;
    if (sink->close) sink->close(sink->user, false);
    return base_no_memory(error);
}

static void flush(format_out *out) {
    if (out->used && !out->status)
        out->status = out->sink.write(out->sink.user, out->buffer, out->used);
    if (out->status == BERYL_PENDING) out->status = BERYL_IO;
    out->used = 0;
}

void format_out_add(format_out *out, const void *data, size_t size) {
    const uint8_t *from = data;
    out->at += size;
    while (size && !out->status) {
        const size_t room = BUFFER - out->used, n = size < room ? size : room;
        memcpy(out->buffer + out->used, from, n);
        out->used += n;
        from += n;
        size -= n;
        if (out->used == BUFFER) flush(out);
    }
}

void format_out_pad(format_out *out, uint64_t alignment) {
    while (out->at % alignment) format_out_add(out, "", 1);
}

beryl_status format_out_close(format_out *out, beryl_status status, beryl_error *error) {
    if (!status) flush(out);
    const bool whole = !status && !out->status;
    const beryl_status closed = out->sink.close ? out->sink.close(out->sink.user, whole) : BERYL_OK;
    base_heap_give(out->heap, out->buffer, BUFFER);
    if (status) return status;
    if (!out->status) out->status = closed;
    return out->status ? base_fail(error, out->status, "%s",
                                   out->error.code ? out->error.message : "cannot be written")
                       : BERYL_OK;
}

void format_out_number(base_text *to, uint64_t value, size_t bytes) {
    char raw[8];
    for (size_t i = 0; i < bytes; i++) raw[i] = (char)(value >> 8 * i);
    base_text_add(to, raw, bytes);
}
