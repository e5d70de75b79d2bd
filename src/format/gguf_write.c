/* gguf_write.c - see gguf_write.h. */
#include "format/gguf_write.h"
#include "base/error.h"

#include <string.h>

void format_gguf_head_init(format_gguf_head *h, base_heap *heap, uint32_t alignment) {
    *h = (format_gguf_head){.alignment = alignment};
    base_text_init(&h->pairs, heap);
    base_text_init(&h->tensors, heap);
}

void format_gguf_head_fini(format_gguf_head *h) {
    base_text_fini(&h->pairs);
    base_text_fini(&h->tensors);
}

static void add_string(base_text *to, base_view text) {
    format_out_number(to, text.size, 8);
    base_text_add_view(to, text);
}

static void add_key(format_gguf_head *h, base_view key, format_gguf_kind kind) {
    add_string(&h->pairs, key);
    format_out_number(&h->pairs, kind, 4);
    h->n_pair++;
}

void format_gguf_head_string(format_gguf_head *h, const char *key, base_view value) {
    add_key(h, base_view_of(key), FORMAT_GGUF_STRING);
    add_string(&h->pairs, value);
}

void format_gguf_head_f32(format_gguf_head *h, const char *key, float value) {
    uint32_t bits;
    memcpy(&bits, &value, sizeof bits);
    add_key(h, base_view_of(key), FORMAT_GGUF_F32);
    format_out_number(&h->pairs, bits, 4);
}

void format_gguf_head_pair(format_gguf_head *h, const format_gguf_pair *pair) {
    add_key(h, pair->key, pair->is_array ? FORMAT_GGUF_ARRAY : pair->kind);
    if (pair->is_array) {
        format_out_number(&h->pairs, pair->kind, 4);
        format_out_number(&h->pairs, pair->count, 8);
    }
    base_text_add(&h->pairs, (const char *)pair->data, pair->size);
}

void format_gguf_head_tensor(format_gguf_head *h, base_view name, uint32_t gguf_type,
                             uint32_t n_dim, const uint64_t *ne, uint64_t size) {
    add_string(&h->tensors, name);
    format_out_number(&h->tensors, n_dim, 4);
    for (uint32_t i = 0; i < n_dim; i++) format_out_number(&h->tensors, ne[i], 8);
    format_out_number(&h->tensors, gguf_type, 4);
    format_out_number(&h->tensors, h->data_size, 8);
    h->n_tensor++;
    h->data_size += (size + h->alignment - 1) / h->alignment * h->alignment;
}

beryl_status format_gguf_head_write(const format_gguf_head *h, format_out *out,
                                    beryl_error *error) {
    base_text begin;
    base_text_init(&begin, out->heap);
    base_text_add(&begin, "GGUF", 4);
    format_out_number(&begin, 3, 4);
    format_out_number(&begin, h->n_tensor, 8);
    format_out_number(&begin, h->n_pair, 8);
    const bool failed = begin.failed || h->pairs.failed || h->tensors.failed;
    if (!failed) {
        format_out_add(out, begin.data, begin.size);
        format_out_add(out, h->pairs.data, h->pairs.size);
        format_out_add(out, h->tensors.data, h->tensors.size);
        format_out_pad(out, h->alignment);
    }
    base_text_fini(&begin);
    return failed ? base_no_memory(error) : BERYL_OK;
}
