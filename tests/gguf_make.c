/* gguf_make.c - the writer behind the hostile files. Checks nothing on purpose. Little-endian
 * hosts. */
#include "gguf_make.h"

#include <stdlib.h>
#include <string.h>

void gguf_bytes_add(gguf_bytes *b, const void *data, size_t size) {
    if (size > b->capacity - b->size) {
        b->capacity = (b->size + size) * 2 + 64;
        b->data = realloc(b->data, b->capacity);
        if (!b->data) abort();
    }
    if (size) memcpy(b->data + b->size, data, size);
    b->size += size;
}

void gguf_bytes_u32(gguf_bytes *b, uint32_t value) {
    gguf_bytes_add(b, &value, 4);
}

void gguf_bytes_u64(gguf_bytes *b, uint64_t value) {
    gguf_bytes_add(b, &value, 8);
}

static void add_string(gguf_bytes *b, const char *text) {
    gguf_bytes_u64(b, strlen(text));
    gguf_bytes_add(b, text, strlen(text));
}

static void pad(gguf_bytes *b, size_t alignment) {
    static const uint8_t zero[1] = {0};
    while (b->size % alignment) gguf_bytes_add(b, zero, 1);
}

void gguf_make_key(gguf_make *m, const char *key) {
    add_string(&m->pairs, key);
    m->n_pair++;
}

void gguf_make_scalar(gguf_make *m, const char *key, format_gguf_kind kind, const void *value,
                      size_t size) {
    gguf_make_key(m, key);
    gguf_bytes_u32(&m->pairs, (uint32_t)kind);
    gguf_bytes_add(&m->pairs, value, size);
}

void gguf_make_array(gguf_make *m, const char *key, format_gguf_kind kind, uint64_t count,
                     const void *values, size_t size) {
    gguf_make_key(m, key);
    gguf_bytes_u32(&m->pairs, FORMAT_GGUF_ARRAY);
    gguf_bytes_u32(&m->pairs, (uint32_t)kind);
    gguf_bytes_u64(&m->pairs, count);
    gguf_bytes_add(&m->pairs, values, size);
}

void gguf_make_u32(gguf_make *m, const char *key, uint32_t value) {
    gguf_make_scalar(m, key, FORMAT_GGUF_U32, &value, 4);
}

void gguf_make_f32(gguf_make *m, const char *key, float value) {
    gguf_make_scalar(m, key, FORMAT_GGUF_F32, &value, 4);
}

void gguf_make_bool(gguf_make *m, const char *key, bool value) {
    uint8_t byte = value;
    gguf_make_scalar(m, key, FORMAT_GGUF_BOOL, &byte, 1);
}

void gguf_make_string(gguf_make *m, const char *key, const char *value) {
    gguf_make_scalar(m, key, FORMAT_GGUF_STRING, NULL, 0);
    add_string(&m->pairs, value);
}

void gguf_make_strings(gguf_make *m, const char *key, const char *const *values, size_t n) {
    gguf_make_array(m, key, FORMAT_GGUF_STRING, n, NULL, 0);
    for (size_t i = 0; i < n; i++) add_string(&m->pairs, values[i]);
}

void gguf_make_tensor_head(gguf_make *m, const char *name, uint32_t type, uint32_t n_dim,
                           const uint64_t *ne, uint64_t offset) {
    add_string(&m->tensors, name);
    gguf_bytes_u32(&m->tensors, n_dim);
    for (uint32_t i = 0; i < n_dim; i++) gguf_bytes_u64(&m->tensors, ne[i]);
    gguf_bytes_u32(&m->tensors, type);
    gguf_bytes_u64(&m->tensors, offset);
    m->n_tensor++;
}

void gguf_make_tensor(gguf_make *m, const char *name, uint32_t type, uint32_t n_dim,
                      const uint64_t *ne, const void *data, size_t size) {
    pad(&m->data, m->alignment ? m->alignment : 32);
    gguf_make_tensor_head(m, name, type, n_dim, ne, m->data.size);
    if (data) {
        gguf_bytes_add(&m->data, data, size);
    } else {
        for (size_t i = 0; i < size; i++)
            gguf_bytes_add(&m->data, &(uint8_t){(uint8_t)(i * 7 + m->n_tensor)}, 1);
    }
}

uint8_t *gguf_make_take(gguf_make *m, size_t *size) {
    gguf_bytes file = {0};
    gguf_bytes_add(&file, "GGUF", 4);
    gguf_bytes_u32(&file, m->version ? m->version : 3);
    gguf_bytes_u64(&file, m->n_tensor);
    gguf_bytes_u64(&file, m->n_pair);
    gguf_bytes_add(&file, m->pairs.data, m->pairs.size);
    gguf_bytes_add(&file, m->tensors.data, m->tensors.size);
    if (m->data.size) pad(&file, m->alignment ? m->alignment : 32);
    gguf_bytes_add(&file, m->data.data, m->data.size);
    free(m->pairs.data);
    free(m->tensors.data);
    free(m->data.data);
    *m = (gguf_make){0};
    /* An exact allocation, so that a sanitizer sees a read behind the end. */
    uint8_t *exact = malloc(file.size);
    if (!exact) abort();
    memcpy(exact, file.data, file.size);
    free(file.data);
    *size = file.size;
    return exact;
}

const void *gguf_tensor_take(const format_gguf *g, const format_gguf_tensor *t, base_arena *arena) {
    const beryl_source *source = format_gguf_source(g, t->file);
    void *data = base_arena_take(arena, 1, (size_t)t->size);
    return data && !source->read(source->user, t->offset, data, (size_t)t->size) ? data : NULL;
}
