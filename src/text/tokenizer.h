/* tokenizer.h - from text to Gemma 4's tokens and back.
 *
 * Owns the vocabulary's indices, byte-pair encoding and decoding, both whole and streaming. Refuses
 * vocabularies that contradict themselves and texts of more than TEXT_SIZE_MAX bytes. The one idea:
 * every symbol is a token id from the start (a character without a token is its bytes' tokens), so
 * that a merge is one look-up of a pair of integers.
 *
 * A tokenizer does not change once it is open: any number of threads may use it at once.
 */
#ifndef TEXT_TOKENIZER_H
#define TEXT_TOKENIZER_H

#include "base/memory.h"

typedef struct text_tokenizer text_tokenizer;

#define TEXT_SIZE_MAX ((size_t)(INT32_MAX / 2)) /* bytes of a text: positions have 32 bits */
#define TEXT_LITERAL_MAX 256                    /* bytes of a control or user-defined token */

typedef base_vec(int32_t) text_ids; /* [n_token]; memory of the tokenizer's heap: text_ids_fini */

/* The kinds of tokens, numbered as in `tokenizer.ggml.token_type`. */
#define TEXT_KIND_LIST(X) \
    X(NORMAL, 1)          \
    X(UNKNOWN, 2)         \
    X(CONTROL, 3)         \
    X(USER_DEFINED, 4)    \
    X(UNUSED, 5)          \
    X(BYTE, 6)

typedef enum text_kind {
#define X(name, value) TEXT_KIND_##name = value,
    TEXT_KIND_LIST(X)
#undef X
} text_kind;

/* Tokens with a meaning of their own, found by their literal when the vocabulary is opened. */
#define TEXT_SPECIAL_LIST(X)            \
    X(PAD, "<pad>")                     \
    X(EOS, "<eos>")                     \
    X(BOS, "<bos>")                     \
    X(UNK, "<unk>")                     \
    X(MASK, "<mask>")                   \
    X(TOOL, "<|tool>")                  \
    X(TOOL_END, "<tool|>")              \
    X(CALL, "<|tool_call>")             \
    X(CALL_END, "<tool_call|>")         \
    X(RESPONSE, "<|tool_response>")     \
    X(RESPONSE_END, "<tool_response|>") \
    X(QUOTE, "<|\"|>")                  \
    X(THINK, "<|think|>")               \
    X(CHANNEL, "<|channel>")            \
    X(CHANNEL_END, "<channel|>")        \
    X(TURN, "<|turn>")                  \
    X(TURN_END, "<turn|>")              \
    X(IMAGE, "<|image>")                \
    X(IMAGE_END, "<image|>")            \
    X(IMAGE_SOFT, "<|image|>")          \
    X(AUDIO, "<|audio>")                \
    X(AUDIO_END, "<audio|>")            \
    X(AUDIO_SOFT, "<|audio|>")          \
    X(VIDEO_SOFT, "<|video|>")

typedef enum text_special_name {
#define X(name, literal) TEXT_SPECIAL_##name,
    TEXT_SPECIAL_LIST(X)
#undef X
        TEXT_SPECIAL_COUNT
} text_special_name;

const char *text_special_literal(text_special_name name);

/* Which literals in a text become tokens of their own.
 *   USER_DEFINED  user-defined tokens, never control tokens: what HF tokenizers do with a text
 *   ALL           both: a text that the chat format, or the user on purpose, has written
 *   CONTENT       neither control tokens nor literals with a meaning in the chat format, whatever
 *                 kind the file gives them
 * In CONTENT, user-defined tokens that are plain text (runs of blanks, HTML tags in some
 * vocabularies; Gemma 4's has none) are still found: they forge nothing, and the model was trained
 * on their ids. */
typedef enum text_special_mode { TEXT_USER_DEFINED, TEXT_ALL, TEXT_CONTENT } text_special_mode;

/* What a model file says of its vocabulary. All is borrowed: tokens' and merges' bytes must
 * outlive the tokenizer (they lie in the copy of the file's head); the arrays themselves, types
 * and ids are read while it is opened, `tokens` also later. */
typedef struct text_vocab_desc {
    const base_view *tokens; /* [n_token], kept: must outlive the tokenizer */
    size_t n_token;
    const int32_t *types; /* [n_token] of text_kind; NULL: special by their literals */
    size_t n_merge;
    const void *first_merge; /* "left right", the best first, one after the other */
    base_view (*next_merge)(const void **at);
    int32_t bos, eos, pad, unk; /* -1: none; BOS, EOS, PAD and UNK are also found by literal */
    const int32_t *eos_ids;     /* [n_eos] more ids that end a turn */
    size_t n_eos;
    const int32_t *suppress; /* [n_suppress] never to be generated */
    size_t n_suppress;
    bool add_bos;  /* as the file says; the chat format always writes BOS itself */
    bool stepwise; /* text_tokenizer_step reads the merges: before, nothing is encoded */
} text_vocab_desc;

/* next_merge, where first_merge is an array of views. */
static inline base_view text_next_merge(const void **at) {
    const base_view *merge = *at;
    *at = merge + 1;
    return *merge;
}

/* BAD_FILE with a message naming the token or merge, UNSUPPORTED for a vocabulary without merges,
 * NO_MEMORY. */
beryl_status text_tokenizer_open(base_heap *heap, const text_vocab_desc *desc, text_tokenizer **out,
                                 beryl_error *error);
/* Reads merges of one that was opened `stepwise`, for about so long. EVENT: there are more. */
beryl_status text_tokenizer_step(text_tokenizer *tok, double seconds, beryl_error *error);
void text_tokenizer_close(text_tokenizer *tok); /* NULL is fine */

base_heap *text_heap(const text_tokenizer *tok); /* what its ids are allocated from */
size_t text_n_token(const text_tokenizer *tok);
bool text_add_bos(const text_tokenizer *tok);
/* -1: the vocabulary lacks it. */
int32_t text_special(const text_tokenizer *tok, text_special_name name);
/* EOS, end of turn, tool response, or one of eos_ids? */
bool text_is_stop(const text_tokenizer *tok, int32_t id);
const int32_t *text_stop_ids(const text_tokenizer *tok, size_t *n);   /* ascending */
const int32_t *text_suppressed(const text_tokenizer *tok, size_t *n); /* ascending, each once */
int32_t text_find(const text_tokenizer *tok, base_view text); /* id of this very token; -1: none */
/* As the file has it; empty if id is outside. */
base_view text_token(const text_tokenizer *tok, int32_t id);
text_kind text_token_kind(const text_tokenizer *tok, int32_t id);
/* Adds the bytes that the token stands for: blanks for U+2581, the raw byte of a byte token,
 * nothing for control tokens (their literal where `special`). Not necessarily valid UTF-8. */
void text_token_bytes(const text_tokenizer *tok, int32_t id, bool special, base_text *out);

/* ---- encoding -------------------------------------------------------------------------------- */

/* Appends the ids of `text` to `out`, without BOS. Any bytes will do: NUL is a character, bytes
 * that are not UTF-8 are byte tokens. BAD_INPUT: too long, or a byte that the vocabulary has no
 * token for. After a failure `out` is as it was. */
beryl_status text_encode(const text_tokenizer *tok, const char *text, size_t size,
                         text_special_mode mode, text_ids *out, beryl_error *error);

typedef struct text_segment {
    base_view text;
    text_special_mode mode;
} text_segment;

/* The same for a text in segments with modes of their own. A special literal never crosses a border
 * between segments, merges do: without special literals the ids are those of the joined text. */
beryl_status text_encode_segments(const text_tokenizer *tok, const text_segment *segments,
                                  size_t n_segment, text_ids *out, beryl_error *error);
void text_ids_fini(const text_tokenizer *tok, text_ids *ids);

/* ---- decoding -------------------------------------------------------------------------------- */

/* Streaming: gives out valid UTF-8 only. What may still become a character is held back; what
 * cannot is U+FFFD, one for each longest piece that could have begun a character. */
typedef struct text_stream {
    const text_tokenizer *tok; /* borrowed */
    bool special;              /* control tokens as their literals */
    uint8_t held[4];
    uint32_t n_held;
} text_stream;

void text_stream_init(text_stream *stream, const text_tokenizer *tok, bool special);
/* Adds to `out` what the token completes. BAD_INPUT: no such token. */
beryl_status text_stream_push(text_stream *stream, int32_t id, base_text *out, beryl_error *error);
void text_stream_finish(text_stream *stream, base_text *out); /* what is held back becomes U+FFFD */

/* All at once: adds valid UTF-8 to `out`. */
beryl_status text_decode(const text_tokenizer *tok, const int32_t *ids, size_t n, bool special,
                         base_text *out, beryl_error *error);

#endif
