/* gguf_hash.c - which model it is: a hash over the heads and a little of each tensor.
 *
 * A source that answers later takes as long for 256 bytes as for a block, and a model has hundreds
 * of tensors. What is read of it for other ends goes through here, and its samples are kept. */
#include "format/gguf_inside.h"

#include "base/error.h"
#include "base/file.h"

#include <string.h>

/* Where a tensor's sample begins, and its size. */
static uint64_t sample_of(const format_gguf_tensor *t, size_t *size) {
    const size_t most = sizeof((gguf_sample *)0)->bytes;
    *size = t->size < most ? (size_t)t->size : most;
    return t->offset + (t->size - *size) / 2;
}

static beryl_status heard_read(void *user, uint64_t offset, void *to, size_t size) {
    const part *p = user;
    const format_gguf *g = p->whole;
    const beryl_status status = p->source.read(p->source.user, offset, to, size);
    for (size_t i = 0; status == BERYL_OK && i < g->tensors.count; i++) {
        const format_gguf_tensor *t = &g->tensors.data[i];
        size_t n;
        const uint64_t at = sample_of(t, &n);
        if (&g->parts.data[t->file] != p || at < offset || at + n > offset + size) continue;
        memcpy(g->samples[i].bytes, (const char *)to + (at - offset), n);
        g->samples[i].is_there = true;
    }
    return status;
}

void gguf_listen(format_gguf *g) {
    const bool listens = g->tensors.count && !base_source_is_file(&g->parts.data[0].source);
    g->samples = listens ? base_heap_take(g->heap, g->tensors.count * sizeof *g->samples) : NULL;
    for (size_t i = 0; i < g->parts.count; i++) {
        part *p = &g->parts.data[i];
        p->whole = g;
        p->heard = g->samples
                       ? (beryl_source){.size = p->source.size, .user = p, .read = heard_read}
                       : p->source;
    }
}

const beryl_source *format_gguf_source(const format_gguf *g, size_t file) {
    return &g->parts.data[file].heard;
}

void gguf_hash_heads(format_gguf *g) {
    for (; g->hash_at < g->parts.count; g->hash_at++) {
        const part *p = &g->parts.data[g->hash_at];
        uint8_t size[8]; /* little-endian on every machine */
        for (int i = 0; i < 8; i++) size[i] = (uint8_t)(p->source.size >> 8 * i);
        g->hash_value = base_hash(p->head, (size_t)p->end, g->hash_value);
        g->hash_value = base_hash(size, sizeof size, g->hash_value);
    }
}

beryl_status format_gguf_hash(format_gguf *g, uint64_t *hash, beryl_error *error) {
    if (!g->ready)
        return base_fail(error, BERYL_MISUSE, "a GGUF file has a hash only once it is open");
    gguf_hash_heads(g);
    for (; g->hash_at < g->parts.count + g->tensors.count; g->hash_at++) {
        const size_t index = g->hash_at - g->parts.count;
        const format_gguf_tensor *t = &g->tensors.data[index];
        const beryl_source *source = &g->parts.data[t->file].source;
        gguf_sample own, *sample = g->samples ? &g->samples[index] : &own;
        size_t n;
        const uint64_t at = sample_of(t, &n);
        const bool known = g->samples && sample->is_there;
        const beryl_status status =
            known ? BERYL_OK : source->read(source->user, at, sample->bytes, n);
        if (status == BERYL_PENDING) return status;
        if (status) return base_source_fail(source, g->parts.data[t->file].name, status, at, error);
        g->hash_value = base_hash(sample->bytes, n, g->hash_value);
    }
    *hash = g->hash_value;
    return BERYL_OK;
}
