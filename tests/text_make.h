/* text_make.h - vocabularies for tests: the real one of Gemma 4, a tiny one, and those of model
 * files. */
#ifndef TESTS_TEXT_MAKE_H
#define TESTS_TEXT_MAKE_H

#include "format/gguf.h"
#include "test.h"
#include "text/tokenizer.h"

typedef struct text_make {
    base_heap heap;
    base_arena arena;
    format_gguf *gguf; /* NULL: a vocabulary made here */
    text_vocab_desc desc;
    text_tokenizer *tok;
} text_make;

/* Specials of the chat format, 256 byte tokens, ASCII, a few others, merges that build " the" and
 * runs of newlines. */
void text_make_tiny_desc(base_arena *arena, text_vocab_desc *desc);
/* All false after a failed check or a skip (then nothing needs closing). */
bool text_make_tiny(test *t, text_make *m);
bool text_make_file(test *t, text_make *m, const char *path);
bool text_make_real(test *t,
                    text_make *m); /* skips the case where the vocabulary was not unpacked */
void text_make_close(text_make *m);
/* An allocator that fails at call `left`, counting from 0, and counts the bytes that are out. */
typedef struct text_make_limit {
    long left;
    size_t out;
} text_make_limit;
void text_make_limited(base_heap *heap, text_make_limit *limit);

#endif
