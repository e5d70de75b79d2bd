/* encode.c - byte-pair encoding in n log n.
 *
 * Owns nothing but the memory of one call. Refuses texts above TEXT_SIZE_MAX and bytes without a
 * token. The one idea: the pairs of a stretch of text wait in a binary heap of 64-bit keys (rank,
 * position), and a key that is out of date is noticed when it comes up, since each symbol remembers
 * the rank of its pair with the next one. So no text is worse than any other.
 *
 * After Sennrich et al. 2016, with the order of merges that SentencePiece and HF tokenizers share:
 * least rank, then leftmost.
 */
#include "base/utf8.h"
#include "text/vocab.h"

#include "base/error.h"

#include <string.h>

typedef struct symbol {
    int32_t id, prev, next; /* next and prev: indices, -1: none */
    uint32_t rank;  /* of the merge with the next symbol; TEXT_NO_RANK: none, or merged away */
    int32_t result; /* of that merge */
} symbol;

typedef struct encoder {
    const text_tokenizer *tok;
    base_vec(symbol) symbols; /* the stretch so far */
    uint64_t *heap;           /* [n_heap] rank << 32 | position */
    size_t n_heap, heap_capacity;
    text_ids *out;
} encoder;

static void heap_sink(uint64_t *heap, size_t n, size_t i) {
    uint64_t key = heap[i];
    for (size_t child; (child = 2 * i + 1) < n; i = child) {
        if (child + 1 < n && heap[child + 1] < heap[child]) child++;
        if (heap[child] >= key) break;
        heap[i] = heap[child];
    }
    heap[i] = key;
}

static void heap_add(encoder *e, uint64_t key) {
    size_t i = e->n_heap++;
    for (; i && e->heap[(i - 1) / 2] > key; i = (i - 1) / 2) e->heap[i] = e->heap[(i - 1) / 2];
    e->heap[i] = key;
}

/* Looks the pair of symbol i and its next one up. */
static bool pair_update(encoder *e, int32_t i) {
    symbol *s = &e->symbols.data[i];
    const text_merge *merge =
        s->next >= 0 ? text_merge_find(e->tok, s->id, e->symbols.data[s->next].id) : NULL;
    s->rank = merge ? (uint32_t)(merge - e->tok->merges) : TEXT_NO_RANK;
    s->result = merge ? merge->result : -1;
    return merge;
}

static uint64_t pair_key(const encoder *e, int32_t i) {
    return (uint64_t)e->symbols.data[i].rank << 32 | (uint32_t)i;
}

static void merge_all(encoder *e) {
    symbol *symbols = e->symbols.data;
    while (e->n_heap) {
        uint64_t key = e->heap[0];
        e->heap[0] = e->heap[--e->n_heap];
        if (e->n_heap) heap_sink(e->heap, e->n_heap, 0);
        int32_t i = (int32_t)(uint32_t)key;
        symbol *s = &symbols[i];
        if (s->rank != (uint32_t)(key >> 32)) continue;
        symbol *gone = &symbols[s->next];
        s->id = s->result;
        s->next = gone->next;
        gone->rank = TEXT_NO_RANK;
        if (s->next >= 0) symbols[s->next].prev = i;
        if (pair_update(e, i)) heap_add(e, pair_key(e, i));
        if (s->prev >= 0 && pair_update(e, s->prev)) heap_add(e, pair_key(e, s->prev));
    }
}

/* Merges the symbols gathered so far and appends their ids. false: no memory. */
static bool stretch_end(encoder *e) {
    size_t n = e->symbols.count, count = 0;
    if (!n) return true;
    /* a merge takes one key out and one symbol away, and adds at most two keys */
    if (2 * n > e->heap_capacity) {
        uint64_t *heap = base_heap_resize(e->tok->heap, e->heap, e->heap_capacity * sizeof *heap,
                                          2 * n * sizeof *heap);
        if (!heap) return false;
        e->heap = heap;
        e->heap_capacity = 2 * n;
    }
    e->n_heap = 0;
    for (size_t i = 0; i < n; i++) {
        e->symbols.data[i].prev = (int32_t)i - 1;
        e->symbols.data[i].next = i + 1 < n ? (int32_t)i + 1 : -1;
        if (pair_update(e, (int32_t)i)) e->heap[e->n_heap++] = pair_key(e, (int32_t)i);
    }
    for (size_t i = e->n_heap / 2; i-- > 0;) heap_sink(e->heap, e->n_heap, i);
    merge_all(e);
    for (int32_t i = 0; i >= 0; i = e->symbols.data[i].next) count++;
    if (!base_vec_reserve(e->tok->heap, e->out, count)) return false;
    for (int32_t i = 0; i >= 0; i = e->symbols.data[i].next)
        e->out->data[e->out->count++] = e->symbols.data[i].id;
    e->symbols.count = 0;
    return true;
}

/* The longest literal of this mode at the start of `text`; its id, or -1. Narrows the sorted
 * literals byte by byte. */
static int32_t literal_match(const text_tokenizer *tok, const uint8_t *text, size_t size,
                             text_special_mode mode) {
    size_t low = tok->literal_at[text[0]], high = tok->literal_at[text[0] + 1];
    int32_t best = -1;
    for (size_t depth = 1; low < high; depth++) {
        int32_t id = (int32_t)tok->literals[low];
        if (tok->tokens[id].size == depth) {
            if (text_literal_wanted(tok, id, mode)) best = id;
            low++;
        }
        if (depth == size) break;
        size_t end = high, begin = low;
        while (begin < end) { /* first that has this byte or a greater one */
            size_t middle = begin + (end - begin) / 2;
            if ((uint8_t)tok->tokens[tok->literals[middle]].data[depth] < text[depth])
                begin = middle + 1;
            else end = middle;
        }
        low = begin;
        end = high;
        while (begin < end) { /* first that has a greater one */
            size_t middle = begin + (end - begin) / 2;
            if ((uint8_t)tok->tokens[tok->literals[middle]].data[depth] <= text[depth])
                begin = middle + 1;
            else end = middle;
        }
        high = begin;
    }
    return best;
}

static beryl_status symbol_add(encoder *e, int32_t id, beryl_error *error) {
    symbol *s = base_vec_add(e->tok->heap, &e->symbols);
    if (!s) return base_fail(error, BERYL_NO_MEMORY, "no memory to encode a text");
    s->id = id;
    return BERYL_OK;
}

/* Adds the character at `text` as a symbol, or its bytes as several; *length: how many bytes it
 * has. */
static beryl_status character_add(encoder *e, const uint8_t *text, size_t size, size_t *length,
                                  beryl_error *error) {
    const text_tokenizer *tok = e->tok;
    int32_t id = -1;
    *length = 1;
    if (text[0] < 0x80) {
        id = tok->ascii[text[0]];
    } else if (base_utf8_scan(text, size, length) == BASE_UTF8_WHOLE) {
        id = text_find(tok, (base_view){(const char *)text, *length});
        if (id >= 0 && !text_may_encode(tok, id)) id = -1;
    } else {
        *length = 1;
    }
    if (id >= 0) return symbol_add(e, id, error);
    beryl_status status = BERYL_OK;
    for (size_t i = 0; i < *length && !status; i++) {
        if (tok->bytes[text[i]] < 0)
            return base_fail(error, BERYL_BAD_INPUT,
                             "the vocabulary has no token for the byte 0x%02X", text[i]);
        status = symbol_add(e, tok->bytes[text[i]], error);
    }
    return status;
}

static beryl_status segment_encode(encoder *e, const uint8_t *text, size_t size,
                                   text_special_mode mode, bool *was_newline, beryl_error *error) {
    const text_tokenizer *tok = e->tok;
    beryl_status status = BERYL_OK;
    for (size_t i = 0, length; i < size && !status; i += length) {
        int32_t id =
            tok->literal_begins[mode][text[i]] ? literal_match(tok, text + i, size - i, mode) : -1;
        bool is_newline = text[i] == '\n';
        bool is_border = id >= 0 || (tok->newline_apart && is_newline != *was_newline);
        if (is_border && !stretch_end(e))
            return base_fail(error, BERYL_NO_MEMORY, "no memory to encode a text");
        *was_newline = is_newline;
        if (id >= 0) {
            length = tok->tokens[id].size;
            int32_t *to = base_vec_add(tok->heap, e->out);
            if (!to) return base_fail(error, BERYL_NO_MEMORY, "no memory to encode a text");
            *to = id;
        } else {
            status = character_add(e, text + i, size - i, &length, error);
        }
    }
    return status;
}

beryl_status text_encode_segments(const text_tokenizer *tok, const text_segment *segments,
                                  size_t n_segment, text_ids *out, beryl_error *error) {
    encoder e = {.tok = tok, .out = out};
    size_t total = 0, count = out->count;
    beryl_status status = BERYL_OK;
    bool was_newline = false;
    for (size_t i = 0; i < n_segment; i++) {
        if (segments[i].text.size > TEXT_SIZE_MAX - total)
            return base_fail(error, BERYL_BAD_INPUT,
                             "a text of more than %zu bytes cannot be encoded at once",
                             TEXT_SIZE_MAX);
        total += segments[i].text.size;
    }
    for (size_t i = 0; i < n_segment && !status; i++)
        status = segment_encode(&e, (const uint8_t *)segments[i].text.data, segments[i].text.size,
                                segments[i].mode, &was_newline, error);
    if (!status && !stretch_end(&e))
        status = base_fail(error, BERYL_NO_MEMORY, "no memory to encode a text");
    if (status) out->count = count;
    base_vec_fini(tok->heap, &e.symbols);
    base_heap_give(tok->heap, e.heap, e.heap_capacity * sizeof *e.heap);
    return status;
}

beryl_status text_encode(const text_tokenizer *tok, const char *text, size_t size,
                         text_special_mode mode, text_ids *out, beryl_error *error) {
    text_segment segment = {{text, size}, mode};
    return text_encode_segments(tok, &segment, 1, out, error);
}

void text_ids_fini(const text_tokenizer *tok, text_ids *ids) {
    base_vec_fini(tok->heap, ids);
}
