/* data_fuzz.c - training data: a byte of settings, then the file. What is taken has rows as its
 * header promises: ids of the vocabulary, masks of 0 and 1, something to learn. */
#include "base/file.h"
#include "train/data.h"

#include <stdio.h>
#include <stdlib.h>

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

enum { N_TOKEN = TEXT_SPECIAL_COUNT + 256 + 3, N_SOFT = 3 };

/* Any file is a picture, or sound; so is what a part of a conversation holds. */
static beryl_status open_medium(void *user, const train_medium *what, uint32_t *number,
                                uint32_t *n_soft, beryl_error *error) {
    (void)user;
    (void)error;
    if (!what->place == !what->file || (what->file && !what->file[0])) abort();
    *number = what->sound;
    *n_soft = N_SOFT;
    return BERYL_OK;
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size) {
    base_heap heap;
    base_view tokens[N_TOKEN];
    char names[256][7];
    text_tokenizer *tok = NULL;
    beryl_error error = {0};
    size_t n = 0;
    if (!size) return 0;
    base_heap_init(&heap, NULL);
    for (int i = 0; i < TEXT_SPECIAL_COUNT; i++)
        tokens[n++] = base_view_of(text_special_literal((text_special_name)i));
    for (int i = 0; i < 256; i++) {
        snprintf(names[i], sizeof names[i], "<0x%02X>", (unsigned)i);
        tokens[n++] = (base_view){names[i], 6};
    }
    tokens[n++] = (base_view){"a", 1};
    tokens[n++] = (base_view){"b", 1};
    tokens[n++] = (base_view){"ab", 2};
    const base_view merges[] = {{"a b", 3}};
    const text_vocab_desc vocab = {.tokens = tokens,
                                   .n_token = n,
                                   .first_merge = merges,
                                   .next_merge = text_next_merge,
                                   .n_merge = 1,
                                   .bos = -1,
                                   .eos = -1,
                                   .pad = -1,
                                   .unk = -1};
    if (text_tokenizer_open(&heap, &vocab, &tok, NULL)) abort();
    const beryl_source source = base_source_of_memory(data + 1, size - 1);
    const train_media media = {.open = open_medium};
    const train_data_desc desc = {.heap = &heap,
                                  .source = &source,
                                  .name = "data",
                                  .tokenizer = tok,
                                  .style = data[0] & 1 ? TEXT_CHAT_LARGE : TEXT_CHAT_SMALL,
                                  .media = &media,
                                  .whole = data[0] & 2,
                                  .cut = data[0] & 4,
                                  .plain = data[0] & 8,
                                  .context = data[0] >> 4 ? (data[0] >> 4) + 1u : 0};
    train_data d;
    if (!train_data_read(&d, &desc, &error)) {
        uint64_t n_token = 0, n_target = 0;
        if (!d.n) abort();
        for (uint32_t i = 0; i < d.n; i++) {
            const train_row *row = &d.rows[i];
            uint64_t targets = 0;
            if (row->n < 2 || row->n > d.longest || row->mask[0]) abort();
            for (uint32_t t = 0; t < row->n; t++) {
                if (row->tokens[t] < 0 || row->tokens[t] >= N_TOKEN || row->mask[t] > 1) abort();
                targets += row->mask[t];
            }
            if (!targets) abort();
            for (uint32_t k = 0; k < row->n_span; k++) {
                const train_span span = row->spans[k];
                if (span.begin + (uint64_t)span.n > row->n || span.n != N_SOFT) abort();
                for (uint32_t t = span.begin; t < span.begin + span.n; t++)
                    if (row->mask[t] || row->tokens[t] != row->tokens[span.begin]) abort();
            }
            n_token += row->n;
            n_target += targets;
        }
        if (n_token != d.n_token || n_target != d.n_target ||
            (desc.context && d.longest > desc.context))
            abort();
        train_data_free(&d);
    } else if (!error.message[0]) {
        abort();
    }
    text_tokenizer_close(tok);
    if (heap.bytes) abort();
    return 0;
}
