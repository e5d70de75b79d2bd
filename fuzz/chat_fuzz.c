/* chat_fuzz.c - conversations and answers.
 *
 * An input that begins with `{` is a conversation: it is rendered, encoded, and no literal in it
 * becomes a control token that the template did not write. Any other input is an answer, two bytes
 * a token: it is parsed, and every call must be JSON. */
#include "text/chat.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

enum { N_TOKEN = TEXT_SPECIAL_COUNT + 256 + 128 + 2 };

static void vocabulary_open(base_heap *heap, base_view *tokens, char names[256][7],
                            char *characters, text_tokenizer **tok) {
    static const base_view merges[] = {{"c a", 3}};
    size_t n = 0;
    for (int i = 0; i < TEXT_SPECIAL_COUNT; i++)
        tokens[n++] = base_view_of(text_special_literal((text_special_name)i));
    for (int i = 0; i < 256; i++) {
        snprintf(names[i], sizeof names[i], "<0x%02X>", (unsigned)i);
        tokens[n++] = (base_view){names[i], 6};
    }
    for (int i = 0; i < 128; i++) {
        characters[i] = (char)i;
        tokens[n++] = (base_view){&characters[i], 1};
    }
    tokens[n++] = (base_view){"ca", 2};
    tokens[n++] = (base_view){"thought\n", 8};
    text_vocab_desc desc = {.tokens = tokens,
                            .n_token = n,
                            .first_merge = merges,
                            .next_merge = text_next_merge,
                            .n_merge = 1,
                            .bos = -1,
                            .eos = -1,
                            .pad = -1,
                            .unk = -1};
    if (text_tokenizer_open(heap, &desc, tok, NULL)) abort();
}

static void conversation(base_heap *heap, const text_tokenizer *tok, const char *data,
                         size_t size) {
    base_arena arena;
    base_json *json = NULL;
    base_arena_init(&arena, heap);
    for (int style = 0; style < 2 && !base_json_parse(&arena, data, size, &json, NULL); style++) {
        text_prompt prompt;
        beryl_error error = {0};
        beryl_status status =
            text_chat_render(&arena, json, (text_chat_style)style, &prompt, &error);
        if (status && (status != BERYL_BAD_INPUT || !error.message[0])) abort();
        if (status) break;
        base_text text, back;
        text_ids ids = {0};
        size_t n_control = 0, n_allowed = 0;
        base_text_init(&text, heap);
        base_text_init(&back, heap);
        text_prompt_write(&prompt, &text);
        if (text.size != prompt.size || text_prompt_encode(tok, &prompt, &ids, NULL)) abort();
        if (text_decode(tok, ids.data, ids.count, true, &back, NULL)) abort();
        for (size_t i = 0; i < ids.count; i++)
            n_control += text_token_kind(tok, ids.data[i]) == TEXT_KIND_CONTROL;
        for (size_t i = 0; i < prompt.n_chunk; i++) {
            if (prompt.chunks[i].kind == TEXT_CHUNK_CONTENT) continue;
            text_ids part = {0};
            if (text_encode(tok, prompt.chunks[i].text.data, prompt.chunks[i].text.size, TEXT_ALL,
                            &part, NULL))
                abort();
            for (size_t k = 0; k < part.count; k++)
                n_allowed += text_token_kind(tok, part.data[k]) == TEXT_KIND_CONTROL;
            text_ids_fini(tok, &part);
        }
        if (n_control != n_allowed || back.size != text.size ||
            memcmp(back.data, text.data, text.size)) {
            if (!strstr(text.data, "\xE2\x96\x81")) abort(); /* U+2581 comes back as a blank */
        }
        base_text_fini(&text);
        base_text_fini(&back);
        text_ids_fini(tok, &ids);
    }
    base_arena_fini(&arena);
}

static void answer(base_heap *heap, const text_tokenizer *tok, const uint8_t *data, size_t size) {
    text_parser *parser = NULL;
    if (text_parser_open(heap, tok, size & 1, &parser, NULL)) abort();
    for (size_t i = 0; i + 1 < size + 2; i += 2) {
        int32_t id = i + 1 < size ? (int32_t)((data[i] | data[i + 1] << 8) % N_TOKEN) : -1;
        if (id >= 0 ? text_parser_push(parser, id, NULL) : text_parser_finish(parser, NULL))
            abort();
        for (text_item item; text_parser_next(parser, &item);) {
            base_arena arena;
            base_json *json = NULL;
            base_arena_init(&arena, heap);
            if (item.kind == TEXT_ITEM_CALL &&
                base_json_parse(&arena, item.text.data, item.text.size, &json, NULL))
                abort();
            base_arena_fini(&arena);
        }
    }
    text_parser_close(parser);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size) {
    base_heap heap;
    base_view tokens[N_TOKEN];
    char names[256][7], characters[128];
    text_tokenizer *tok = NULL;
    base_heap_init(&heap, NULL);
    vocabulary_open(&heap, tokens, names, characters, &tok);
    if (size && data[0] == '{') conversation(&heap, tok, (const char *)data, size);
    else answer(&heap, tok, data, size);
    text_tokenizer_close(tok);
    if (heap.bytes) abort();
    return 0;
}
