/* gguf_fuzz.c - the GGUF reader on any bytes: read at once, read in pieces, and, where a second
 * "GGUF" is inside, as the two parts of a split file. Whatever opens must answer every question
 * about every key and tensor. The corpus: right and wrong files of tests/gguf_make.c, and the
 * heads of two fixtures. */
#include "base/file.h"
#include "format/gguf.h"

#include <stdlib.h>
#include <string.h>

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

/* A source that says PENDING before every answer. */
typedef struct slow {
    const uint8_t *data;
    bool asked;
} slow;

static beryl_status slow_read(void *user, uint64_t offset, void *to, size_t size) {
    slow *s = user;
    s->asked = !s->asked;
    if (s->asked) return BERYL_PENDING;
    memcpy(to, s->data + offset, size);
    return BERYL_OK;
}

static void ask_key(const format_gguf *g, const format_gguf_pair *pair, base_heap *heap) {
    char key[256] = {0};
    memcpy(key, pair->key.data, pair->key.size < 255 ? pair->key.size : 255);
    uint32_t u;
    int32_t i;
    uint64_t ul;
    int64_t l;
    float f;
    double d;
    bool b;
    base_view view;
    beryl_error error;
    format_gguf_get_u32(g, key, &u, &error);
    format_gguf_get_i32(g, key, &i, &error);
    format_gguf_get_u64(g, key, &ul, &error);
    format_gguf_get_i64(g, key, &l, &error);
    format_gguf_get_f32(g, key, &f, &error);
    format_gguf_get_f64(g, key, &d, &error);
    format_gguf_get_bool(g, key, &b, &error);
    format_gguf_u32_at(g, key, 3, &u, &error);
    format_gguf_f32_at(g, key, pair->count, &f, &error);
    format_gguf_bool_at(g, key, pair->count - 1, &b, &error);
    if (!format_gguf_get_string(g, key, &view, &error)) ul = base_hash(view.data, view.size, 0);
    base_arena arena;
    base_arena_init(&arena, heap);
    base_view *strings;
    int32_t *ints;
    float *floats;
    size_t n;
    if (!format_gguf_strings(g, key, &arena, &strings, &n, &error))
        for (size_t k = 0; k < n; k++) ul ^= base_hash(strings[k].data, strings[k].size, 0);
    format_gguf_i32s(g, key, &arena, &ints, &n, &error);
    format_gguf_f32s(g, key, &arena, &floats, &n, &error);
    base_arena_fini(&arena);
    base_text out;
    base_text_init(&out, heap);
    format_gguf_pair_write(pair, 8, &out);
    base_text_fini(&out);
}

static void read_all(base_heap *heap, const beryl_source *sources, size_t n_source) {
    format_gguf *g = NULL;
    beryl_error error = {0};
    beryl_status status = format_gguf_open(heap, sources, n_source, &g, &error);
    while (!status && (status = format_gguf_step(g, &error)) == BERYL_PENDING) status = BERYL_OK;
    if (status && !error.message[0]) abort(); /* every refusal has its reason */
    if (!status) {
        for (size_t i = 0; i < format_gguf_n_pair(g); i++)
            ask_key(g, format_gguf_pair_at(g, i), heap);
        uint64_t hash = 0;
        for (size_t i = 0; i < format_gguf_n_tensor(g); i++) {
            const format_gguf_tensor *x = format_gguf_tensor_at(g, i);
            if (!base_range_inside(x->offset, x->size, format_gguf_source(g, x->file)->size))
                abort();
        }
        while ((status = format_gguf_hash(g, &hash, &error)) == BERYL_PENDING) {}
        if (status) abort();
    }
    format_gguf_close(g);
    if (heap->bytes) abort();
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size) {
    base_heap heap;
    base_heap_init(&heap, NULL);
    beryl_source sources[2] = {base_source_of_memory(data, size)};
    read_all(&heap, sources, 1);
    slow s = {.data = data};
    sources[0] = (beryl_source){.size = size, .user = &s, .read = slow_read};
    read_all(&heap, sources, 1);
    for (size_t at = 24; at + 24 <= size; at++) {
        if (memcmp(data + at, "GGUF", 4)) continue;
        sources[0] = base_source_of_memory(data, at);
        sources[1] = base_source_of_memory(data + at, size - at);
        read_all(&heap, sources, 2);
        break;
    }
    return 0;
}
