/* safetensors.h - safetensors files in memory: names, types, shapes, where their bytes lie.
 *
 * Owns what is parsed of the header; the file's bytes are borrowed. A file is read whole or
 * refused: the header's length, its JSON, every shape, product and offset are checked before a
 * tensor is given out, and no two tensors share a byte. F32, F16, BF16, I32 and I16; other types
 * are refused by name.
 *
 * Format: u64 length of the header, JSON {name: {dtype, shape, data_offsets: [begin, end]},
 * "__metadata__": {text: text}}, data; offsets from the header's end. Little-endian. */
#ifndef FORMAT_SAFETENSORS_H
#define FORMAT_SAFETENSORS_H

#include "base/json.h"
#include "base/types.h"

enum { SAFETENSORS_RANK_MAX = 10 };

typedef struct format_safetensor {
    base_view name;
    base_type type;
    uint32_t n_dim;
    uint32_t dim[SAFETENSORS_RANK_MAX]; /* row-major; none is 0 */
    const uint8_t *data;                /* of the file, unaligned */
    size_t size;
} format_safetensor;

typedef struct format_safetensors { /* in the arena */
    const base_json *metadata;      /* NULL: none */
    format_safetensor *tensors;     // [n], in the order of the header
    size_t n;
} format_safetensors;

/* BAD_FILE, UNSUPPORTED: `error->at` is the byte, where there is one. Views point into the arena
 * and the file. */
beryl_status format_safetensors_read(base_arena *arena, const void *data, size_t size,
                                     format_safetensors *out, beryl_error *error);
/* A text of the metadata; empty: none. */
base_view format_safetensors_text(const format_safetensors *s, const char *key);

/* What a file begins with, length and all, for tensors whose bytes (by type and shape) follow in
 * this order; metadata: [n_metadata] of key and text. Adds to `out`. */
void format_safetensors_write(const format_safetensor *tensors, size_t n,
                              const base_view (*metadata)[2], size_t n_metadata, base_text *out);

#endif
