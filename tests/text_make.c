/* text_make.c - see text_make.h. */
#include "text_make.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static int32_t id_or_none(const format_gguf *g, const char *key) {
    int32_t id = -1;
    format_gguf_get_i32(g, key, &id, NULL);
    return id;
}

static beryl_status desc_read(text_make *m, beryl_error *error) {
    text_vocab_desc *d = &m->desc;
    base_view *tokens;
    int32_t *types, *eos_ids;
    size_t n_type = 0;
    beryl_status status = format_gguf_strings(m->gguf, "tokenizer.ggml.tokens", &m->arena, &tokens,
                                              &d->n_token, error);
    if (!status)
        status = format_gguf_strings_at(m->gguf, "tokenizer.ggml.merges", &d->first_merge,
                                        &d->n_merge, error);
    if (!status)
        status = format_gguf_i32s(m->gguf, "tokenizer.ggml.token_type", &m->arena, &types, &n_type,
                                  error);
    if (status) return status;
    d->tokens = tokens;
    d->next_merge = format_gguf_string_next;
    d->types = types;
    d->bos = id_or_none(m->gguf, "tokenizer.ggml.bos_token_id");
    d->eos = id_or_none(m->gguf, "tokenizer.ggml.eos_token_id");
    d->pad = id_or_none(m->gguf, "tokenizer.ggml.padding_token_id");
    d->unk = id_or_none(m->gguf, "tokenizer.ggml.unknown_token_id");
    if (!format_gguf_i32s(m->gguf, "tokenizer.ggml.eos_token_ids", &m->arena, &eos_ids, &d->n_eos,
                          NULL))
        d->eos_ids = eos_ids;
    return n_type == d->n_token ? BERYL_OK : BERYL_BAD_FILE;
}

bool text_make_file(test *t, text_make *m, const char *path) {
    beryl_error error = {0};
    *m = (text_make){0};
    base_heap_init(&m->heap, NULL);
    base_arena_init(&m->arena, &m->heap);
    beryl_status status = format_gguf_open_path(&m->heap, path, &m->gguf, &error);
    while (!status && (status = format_gguf_step(m->gguf, &error)) == BERYL_PENDING)
        status = BERYL_OK;
    if (!status) status = desc_read(m, &error);
    if (!status) status = text_tokenizer_open(&m->heap, &m->desc, &m->tok, &error);
    if (!status) return true;
    test_fail(t, __FILE__, __LINE__, "%s: %s", path, error.message);
    text_make_close(m);
    return false;
}

bool text_make_real(test *t, text_make *m) {
    const char *path = getenv("BERYL_TEST_VOCAB");
#ifdef BERYL_TEST_VOCAB
    if (!path) path = BERYL_TEST_VOCAB;
#endif
    FILE *file = path ? fopen(path, "rb") : NULL;
    if (!file) return test_skip(t, "the vocabulary was not unpacked (needs xz)"), false;
    fclose(file);
    return text_make_file(t, m, path);
}

void text_make_close(text_make *m) {
    text_tokenizer_close(m->tok);
    format_gguf_close(m->gguf);
    base_arena_fini(&m->arena);
}

/* ---- tiny ------------------------------------------------------------------------------------ */

static const char *const extra_tokens[] = {
    "\xE2\x96\x81", "\xC3\xA9", "\xE4\xBD\xA0", "th",   "the",  "\xE2\x96\x81the",          "in",
    "\n\n",         "\n\n\n",   "aa",           "aaaa", "call", "\xE2\x96\x81\xE2\x96\x81", "<b>"};
static const char *const merge_texts[] = {
    "t h", "th e",  "\xE2\x96\x81 the",         "i n", "\n\n \n", "\n \n", "a a", "aa aa", "c a",
    "l l", "ca ll", "\xE2\x96\x81 \xE2\x96\x81"};

void text_make_tiny_desc(base_arena *arena, text_vocab_desc *desc) {
    size_t n = 0, n_extra = sizeof extra_tokens / sizeof *extra_tokens,
           room = TEXT_SPECIAL_COUNT + 256 + 128 + n_extra + 2;
    base_view *tokens = base_arena_take(arena, room, sizeof *tokens);
    int32_t *types = base_arena_take(arena, room, sizeof *types);
    base_view *merges =
        base_arena_take(arena, sizeof merge_texts / sizeof *merge_texts, sizeof *merges);
    if (!tokens || !types || !merges) abort();
    for (int i = 0; i < TEXT_SPECIAL_COUNT; i++) {
        text_special_name name = (text_special_name)i;
        bool user = (name >= TEXT_SPECIAL_CALL && name <= TEXT_SPECIAL_QUOTE) ||
                    name == TEXT_SPECIAL_CHANNEL ||
                    name == TEXT_SPECIAL_CHANNEL_END; /* as the real vocabulary has them */
        types[n] = user ? TEXT_KIND_USER_DEFINED : TEXT_KIND_CONTROL;
        tokens[n++] = base_view_of(text_special_literal(name));
    }
    for (int i = 0; i < 256; i++, n++) {
        types[n] = TEXT_KIND_BYTE;
        tokens[n] = base_view_of(base_arena_print(arena, "<0x%02X>", (unsigned)i));
    }
    for (int c = 0; c < 127; c++) {
        if (c != '\n' && c < '!') continue;
        types[n] = TEXT_KIND_NORMAL;
        tokens[n++] = (base_view){base_arena_text(arena, &(char){(char)c}, 1), 1};
    }
    for (size_t i = 0; i < n_extra; i++, n++) {
        types[n] = strcmp(extra_tokens[i], "<b>") ? TEXT_KIND_NORMAL : TEXT_KIND_USER_DEFINED;
        tokens[n] = base_view_of(extra_tokens[i]);
    }
    types[n] = types[n + 1] = TEXT_KIND_NORMAL;
    tokens[n++] = BASE_VIEW("ca");
    tokens[n++] = BASE_VIEW("ll");
    for (size_t i = 0; i < sizeof merge_texts / sizeof *merge_texts; i++)
        merges[i] = base_view_of(merge_texts[i]);
    *desc = (text_vocab_desc){.tokens = tokens,
                              .n_token = n,
                              .types = types,
                              .first_merge = merges,
                              .next_merge = text_next_merge,
                              .n_merge = sizeof merge_texts / sizeof *merge_texts,
                              .bos = -1,
                              .eos = -1,
                              .pad = -1,
                              .unk = -1};
}

bool text_make_tiny(test *t, text_make *m) {
    beryl_error error = {0};
    *m = (text_make){0};
    base_heap_init(&m->heap, NULL);
    base_arena_init(&m->arena, &m->heap);
    text_make_tiny_desc(&m->arena, &m->desc);
    if (!text_tokenizer_open(&m->heap, &m->desc, &m->tok, &error)) return true;
    test_fail(t, __FILE__, __LINE__, "%s", error.message);
    text_make_close(m);
    return false;
}

/* ---- memory ---------------------------------------------------------------------------------- */

static void *limited_resize(void *user, void *memory, size_t old_size, size_t new_size) {
    text_make_limit *limit = user;
    if (!new_size) {
        limit->out -= old_size;
        free(memory);
        return NULL;
    }
    if (limit->left-- == 0) return NULL;
    void *next = realloc(memory, new_size);
    if (!next) abort();
    limit->out += new_size - old_size;
    return next;
}

void text_make_limited(base_heap *heap, text_make_limit *limit) {
    base_heap_init(heap, &(beryl_allocator){limited_resize, limit});
}
