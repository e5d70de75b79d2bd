/* gguf_make.h - writes small GGUF files in memory, right ones and wrong ones. Tests only: out of
 * memory aborts.
 *
 *     gguf_make m = {0};
 *     gguf_make_string(&m, "general.architecture", "gemma4");
 *     gguf_make_tensor(&m, "output_norm.weight", 0, 1, (uint64_t[]){4}, floats, 16);
 *     size_t size; uint8_t *file = gguf_make_take(&m, &size);   // free(file)
 */
#ifndef TESTS_GGUF_MAKE_H
#define TESTS_GGUF_MAKE_H

#include "format/gguf.h"

typedef struct gguf_bytes {
    uint8_t *data;
    size_t size, capacity;
} gguf_bytes;

typedef struct gguf_make {
    gguf_bytes pairs, tensors, data;
    uint64_t n_pair, n_tensor;
    uint32_t version;   /* 0: 3 */
    uint32_t alignment; /* 0: 32. The key itself is the caller's to write */
} gguf_make;

void gguf_bytes_add(gguf_bytes *b, const void *data, size_t size);
void gguf_bytes_u32(gguf_bytes *b, uint32_t value);
void gguf_bytes_u64(gguf_bytes *b, uint64_t value);

/* One key with the value bytes as given; gguf_make_key alone leaves kind and value to the caller.
 */
void gguf_make_key(gguf_make *m, const char *key);
void gguf_make_scalar(gguf_make *m, const char *key, format_gguf_kind kind, const void *value,
                      size_t size);
void gguf_make_array(gguf_make *m, const char *key, format_gguf_kind kind, uint64_t count,
                     const void *values, size_t size);
void gguf_make_u32(gguf_make *m, const char *key, uint32_t value);
void gguf_make_f32(gguf_make *m, const char *key, float value);
void gguf_make_bool(gguf_make *m, const char *key, bool value);
void gguf_make_string(gguf_make *m, const char *key, const char *value);
void gguf_make_strings(gguf_make *m, const char *key, const char *const *values, size_t n);
/* Appends a tensor and its data; data NULL: a pattern. */
void gguf_make_tensor(gguf_make *m, const char *name, uint32_t type, uint32_t n_dim,
                      const uint64_t *ne, const void *data, size_t size);
/* The tensor's head alone, with any offset. */
void gguf_make_tensor_head(gguf_make *m, const char *name, uint32_t type, uint32_t n_dim,
                           const uint64_t *ne, uint64_t offset);
/* The file; caller frees. The maker is empty afterwards. */
uint8_t *gguf_make_take(gguf_make *m, size_t *size);

/* The other way: a tensor's bytes from the file that it is in. NULL: they cannot be read at
 * once. */
const void *gguf_tensor_take(const format_gguf *g, const format_gguf_tensor *t, base_arena *arena);

#endif
