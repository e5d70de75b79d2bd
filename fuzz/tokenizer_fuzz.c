/* tokenizer_fuzz.c - a small vocabulary made from the input, then texts of the input through it.
 *
 *   byte 0   n: tokens that follow, each a size (4 bits), a kind (4 bits) and its bytes
 *   byte     m: merges, each two bytes: indices of tokens (taken modulo their number)
 *   byte     mode of encoding
 *   rest     the text, split at its middle into two segments
 * The tokens' bytes 0x00 to 0x7F and all byte tokens are always there, so that most vocabularies
 * open. */
#include "text/tokenizer.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

typedef struct input {
    const uint8_t *data;
    size_t size;
} input;

static unsigned next_byte(input *in) {
    return in->size ? (in->size--, (unsigned)*in->data++) : 0u;
}

enum { N_FIXED = 384, N_MORE = 255 };

static void check_back(const text_tokenizer *tok, const text_ids *ids, base_heap *heap) {
    base_text whole, bytes, pieces;
    text_stream stream;
    base_text_init(&whole, heap);
    base_text_init(&bytes, heap);
    base_text_init(&pieces, heap);
    text_stream_init(&stream, tok, true);
    if (text_decode(tok, ids->data, ids->count, true, &whole, NULL)) abort();
    for (size_t i = 0; i < ids->count; i++) {
        text_token_bytes(tok, ids->data[i], true, &bytes);
        if (text_stream_push(&stream, ids->data[i], &pieces, NULL)) abort();
    }
    text_stream_finish(&stream, &pieces);
    if (pieces.size != whole.size || (whole.size && memcmp(pieces.data, whole.data, whole.size)))
        abort();
    base_text_fini(&whole);
    base_text_fini(&bytes);
    base_text_fini(&pieces);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size) {
    static char names[256][7], characters[128];
    base_view tokens[N_FIXED + N_MORE], merges[256];
    int32_t types[N_FIXED + N_MORE];
    char merge_text[256][40];
    input in = {data, size};
    size_t n = 0, n_merge = 0;
    for (int i = 0; i < 256; i++, n++) {
        snprintf(names[i], sizeof names[i], "<0x%02X>", (unsigned)i);
        tokens[n] = (base_view){names[i], 6};
        types[n] = TEXT_KIND_BYTE;
    }
    for (int i = 0; i < 128; i++, n++) {
        characters[i] = (char)i;
        tokens[n] = (base_view){&characters[i], 1};
        types[n] = TEXT_KIND_NORMAL;
    }
    for (unsigned left = next_byte(&in); left; left--) {
        unsigned head = next_byte(&in), length = head & 15;
        if (length > in.size) length = (unsigned)in.size;
        tokens[n] = (base_view){(const char *)in.data, length};
        types[n++] = (int32_t)(head >> 4) % 8; /* 7 is none */
        in.data += length, in.size -= length;
    }
    for (unsigned left = next_byte(&in); left; left--) {
        base_view l = tokens[(256 + next_byte(&in)) % n], r = tokens[(256 + next_byte(&in)) % n];
        if (l.size + r.size + 1 > sizeof merge_text[0]) continue;
        memcpy(merge_text[n_merge], l.data, l.size);
        merge_text[n_merge][l.size] = ' ';
        if (r.size) memcpy(merge_text[n_merge] + l.size + 1, r.data, r.size);
        merges[n_merge] = (base_view){merge_text[n_merge], l.size + r.size + 1};
        n_merge++;
    }
    text_special_mode mode = (text_special_mode)(next_byte(&in) % 3);
    text_vocab_desc desc = {.tokens = tokens,
                            .n_token = n,
                            .types = types,
                            .first_merge = merges,
                            .next_merge = text_next_merge,
                            .n_merge = n_merge,
                            .bos = -1,
                            .eos = -1,
                            .pad = -1,
                            .unk = -1};
    base_heap heap;
    text_tokenizer *tok = NULL;
    text_ids ids = {0};
    base_heap_init(&heap, NULL);
    if (!text_tokenizer_open(&heap, &desc, &tok, NULL)) {
        text_segment segments[2] = {
            {{(const char *)in.data, in.size / 2}, mode},
            {{(const char *)in.data + in.size / 2, in.size - in.size / 2}, TEXT_CONTENT}};
        if (text_encode_segments(tok, segments, 2, &ids, NULL)) abort();
        for (size_t i = 0; i < ids.count; i++)
            if (ids.data[i] < 0 || (size_t)ids.data[i] >= n) abort();
        check_back(tok, &ids, &heap);
        ids.count = 0;
        if (text_encode(tok, (const char *)in.data, in.size, TEXT_CONTENT, &ids, NULL)) abort();
        for (size_t i = 0; i < ids.count; i++) /* the promise of the chat format */
            if (text_token_kind(tok, ids.data[i]) == TEXT_KIND_CONTROL) abort();
        text_ids_fini(tok, &ids);
    }
    text_tokenizer_close(tok);
    if (heap.bytes) abort();
    return 0;
}
