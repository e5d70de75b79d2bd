/* gguf.h - GGUF v2 and v3 files, one or several parts: keys, tensors, where their bytes lie.
 *
 * Owns the parsed header and the sources it was opened on. Reads no tensor data (but for the
 * hash). The one idea: the header is scanned twice. The first pass allocates nothing and proves
 * every count, length, product, offset and alignment inside the file; the second fills tables of
 * known size. Both go over a copy of the head, into which views (keys, strings, names) point:
 * they live as long as the format_gguf.
 *
 *     format_gguf *g; beryl_status status = format_gguf_open_path(heap, path, &g, &error);
 *     while (!status && (status = format_gguf_step(g, &error)) == BERYL_PENDING) {}
 *     if (!status) status = format_gguf_get_u32(g, "gemma4.block_count", &n_layer, &error);
 *     format_gguf_close(g);
 *
 * Format: GGUF as in ggml's docs/gguf.md. Little-endian files alone; version 1, big-endian
 * files, nested arrays and tensor types that base/types.h lacks are refused by name. */
#ifndef FORMAT_GGUF_H
#define FORMAT_GGUF_H

#include "base/memory.h"
#include "base/types.h"

/* name, text, bytes (0: no fixed size). In the order of their ids. */
#define FORMAT_GGUF_KIND_LIST(X) \
    X(U8, "u8", 1)               \
    X(I8, "i8", 1)               \
    X(U16, "u16", 2)             \
    X(I16, "i16", 2)             \
    X(U32, "u32", 4)             \
    X(I32, "i32", 4)             \
    X(F32, "f32", 4)             \
    X(BOOL, "bool", 1)           \
    X(STRING, "string", 0)       \
    X(ARRAY, "array", 0)         \
    X(U64, "u64", 8)             \
    X(I64, "i64", 8)             \
    X(F64, "f64", 8)

typedef enum format_gguf_kind {
#define X(name, text, bytes) FORMAT_GGUF_##name,
    FORMAT_GGUF_KIND_LIST(X)
#undef X
        FORMAT_GGUF_KIND_COUNT
} format_gguf_kind;

const char *format_gguf_kind_name(format_gguf_kind kind); /* "u32" */

typedef struct format_gguf format_gguf;

typedef struct format_gguf_pair {
    base_view key;
    format_gguf_kind kind; /* of the elements where is_array; never ARRAY */
    bool is_array;
    uint64_t count; /* elements; 1 for a scalar */
    /* the first element as it lies in the file (unaligned, little-endian); NULL: forgotten */
    const uint8_t *data;
    size_t size; /* bytes of all elements, strings with their lengths */
} format_gguf_pair;

typedef struct format_gguf_tensor {
    base_view name;
    base_type type;     /* TYPE_COUNT: not known (format_gguf_any_type) */
    uint32_t gguf_type; /* id in the file */
    uint32_t n_dim;     /* 1 to 4 */
    uint64_t ne[4];     /* ne[0] is the fastest; missing ones are 1; none is 0 */
    uint32_t file;      /* which part */
    uint64_t offset;    /* absolute, in that part */
    uint64_t size;      /* bytes; [offset, offset + size) is inside the part */
} format_gguf_tensor;

/* Opens over sources: one, or all parts of a split file in order. The sources are owned from here
 * on, and closed even if this call fails. */
beryl_status format_gguf_open(base_heap *heap, const beryl_source *sources, size_t n_source,
                              format_gguf **g, beryl_error *error);
/* Opens a file by path; of a split file the path of its first part, the others are found beside it.
 */
beryl_status format_gguf_open_path(base_heap *heap, const char *path, format_gguf **g,
                                   beryl_error *error);
/* Before the first step: a tensor's type may be one that is not known. Its size is then 0. */
void format_gguf_any_type(format_gguf *g);
/* Advances opening. PENDING: a source has to read, step again. OK: everything below may be used.
 * After an error every further step gives the same status; close it. */
beryl_status format_gguf_step(format_gguf *g, beryl_error *error);
/* Once it is open: the elements of an array are given back, its pair has kind and count alone. Ends
 * the caller's views into the head. An array of fewer elements than FORGET_MIN stays. */
enum { FORMAT_GGUF_FORGET_MIN = 1024 };
void format_gguf_forget(format_gguf *g, const char *key);
void format_gguf_close(format_gguf *g); /* NULL is fine; ends all views */

uint32_t format_gguf_version(const format_gguf *g);
size_t format_gguf_n_file(const format_gguf *g);
const beryl_source *format_gguf_source(const format_gguf *g, size_t file); /* borrowed */
uint64_t format_gguf_size(const format_gguf *g);                           /* bytes of all parts */
uint64_t format_gguf_data_size(const format_gguf *g);  /* bytes of all tensors */
uint64_t format_gguf_parameters(const format_gguf *g); /* elements of all tensors */

/* "x-00002-of-00003.gguf": the length of "x", *no 2, *count 3; 0 where the name is no part's. */
size_t format_gguf_part_stem(const char *path, unsigned *no, unsigned *count);

/* ---- keys (of the first part, in the order of the file) */
size_t format_gguf_n_pair(const format_gguf *g);
const format_gguf_pair *format_gguf_pair_at(const format_gguf *g, size_t index);
const format_gguf_pair *format_gguf_find(const format_gguf *g,
                                         const char *key); /* NULL: no such key */
uint64_t format_gguf_count(const format_gguf *g,
                           const char *key); /* elements; 1: scalar; 0: no such key */

/* Typed reading. NOT_FOUND: no such key; BAD_FILE: another kind, or the value does not fit.
 * Integers may be stored in any integer kind, floats as f32 or f64 (finite), bool as bool or an
 * integer 0 or 1. On failure *out stays as it was, so that a default may stand there and NOT_FOUND
 * be ignored. */
beryl_status format_gguf_get_u32(const format_gguf *g, const char *key, uint32_t *out,
                                 beryl_error *error);
beryl_status format_gguf_get_i32(const format_gguf *g, const char *key, int32_t *out,
                                 beryl_error *error);
beryl_status format_gguf_get_u64(const format_gguf *g, const char *key, uint64_t *out,
                                 beryl_error *error);
beryl_status format_gguf_get_i64(const format_gguf *g, const char *key, int64_t *out,
                                 beryl_error *error);
beryl_status format_gguf_get_f32(const format_gguf *g, const char *key, float *out,
                                 beryl_error *error);
beryl_status format_gguf_get_f64(const format_gguf *g, const char *key, double *out,
                                 beryl_error *error);
beryl_status format_gguf_get_bool(const format_gguf *g, const char *key, bool *out,
                                  beryl_error *error);
beryl_status format_gguf_get_string(const format_gguf *g, const char *key, base_view *out,
                                    beryl_error *error);
/* The same for element `index` (a layer): a scalar stands for every index; an array that is too
 * short is BAD_FILE. */
beryl_status format_gguf_u32_at(const format_gguf *g, const char *key, uint64_t index,
                                uint32_t *out, beryl_error *error);
beryl_status format_gguf_i64_at(const format_gguf *g, const char *key, uint64_t index, int64_t *out,
                                beryl_error *error);
beryl_status format_gguf_f32_at(const format_gguf *g, const char *key, uint64_t index, float *out,
                                beryl_error *error);
beryl_status format_gguf_bool_at(const format_gguf *g, const char *key, uint64_t index, bool *out,
                                 beryl_error *error);
/* Optional keys: as get, but a missing key gives OK and `fallback`. */
beryl_status format_gguf_u32_or(const format_gguf *g, const char *key, uint32_t fallback,
                                uint32_t *out, beryl_error *error);
beryl_status format_gguf_f32_or(const format_gguf *g, const char *key, float fallback, float *out,
                                beryl_error *error);
beryl_status format_gguf_bool_or(const format_gguf *g, const char *key, bool fallback, bool *out,
                                 beryl_error *error);

/* Whole arrays into an arena. NOT_FOUND, BAD_FILE as above; a scalar is BAD_FILE. The views point
 * into g. */
beryl_status format_gguf_strings(const format_gguf *g, const char *key, base_arena *arena,
                                 base_view **out, size_t *n,
                                 beryl_error *error); // [n]
/* The same strings one after the other, for whoever needs no array of half a million views: n of
 * them, the first at *at. */
beryl_status format_gguf_strings_at(const format_gguf *g, const char *key, const void **at,
                                    size_t *n, beryl_error *error);
base_view format_gguf_string_next(const void **at);
beryl_status format_gguf_i32s(const format_gguf *g, const char *key, base_arena *arena,
                              int32_t **out, size_t *n,
                              beryl_error *error); // [n]
beryl_status format_gguf_f32s(const format_gguf *g, const char *key, base_arena *arena, float **out,
                              size_t *n,
                              beryl_error *error); // [n]

/* One pair as JSON: strings quoted, arrays of at most `most` elements (then "..." as a last
 * string). */
void format_gguf_pair_write(const format_gguf_pair *pair, size_t most, base_text *out);

/* ---- tensors (of all parts, in the order of the files) */
size_t format_gguf_n_tensor(const format_gguf *g);
const format_gguf_tensor *format_gguf_tensor_at(const format_gguf *g, size_t index);
const format_gguf_tensor *format_gguf_tensor_find(const format_gguf *g,
                                                  const char *name); /* NULL: none */

/* ---- identity: header bytes, size of every part and up to 256 bytes from the middle of every
 * tensor. PENDING: call again. Sessions and caches are tied to a model by it. */
beryl_status format_gguf_hash(format_gguf *g, uint64_t *hash, beryl_error *error);

#endif
