/* out.h - a file or a sink that is being written: gathered into pieces, little-endian numbers, and
 * the first failure kept, so that a writer checks once, at the end. A file has its name only once
 * it is whole (base_sink_open_file). */
#ifndef FORMAT_OUT_H
#define FORMAT_OUT_H

#include "base/memory.h"

typedef struct format_out { /* not moved while it is open */
    base_heap *heap;        /* borrowed */
    beryl_sink sink;
    beryl_log log; /* what the sink tells becomes `error` */
    beryl_error error;
    beryl_status status; /* after a failure adding does nothing */
    uint8_t *buffer;
    size_t used;
    uint64_t at; /* bytes so far */
} format_out;

beryl_status format_out_open(format_out *out, base_heap *heap, const char *path,
                             beryl_error *error);
/* To a sink, which is owned from here on, after a failure too. It takes everything at once: PENDING
 * is a failure. */
beryl_status format_out_begin(format_out *out, base_heap *heap, const beryl_sink *sink,
                              beryl_error *error);
void format_out_add(format_out *out, const void *data, size_t size);
/* Zeros up to a multiple of `alignment`. */
void format_out_pad(format_out *out, uint64_t alignment);
/* Gives the file its name if nothing failed, here and in `status`; else there is none. Gives the
 * first failure; one in `status` has filled *error already. */
beryl_status format_out_close(format_out *out, beryl_status status, beryl_error *error);

/* Little-endian numbers into a text. */
void format_out_number(base_text *to, uint64_t value, size_t bytes);

#endif
