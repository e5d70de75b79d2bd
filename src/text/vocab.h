/* vocab.h - the inside of a tokenizer, shared by vocab.c (opening, look-ups), encode.c and
 * decode.c. */
#ifndef TEXT_VOCAB_H
#define TEXT_VOCAB_H

#include "text/tokenizer.h"

#define TEXT_NO_RANK UINT32_MAX
#define TEXT_MODE_COUNT 3

typedef struct text_merge {
    int32_t left, right, result;
} text_merge;

struct text_tokenizer {
    base_heap *heap;         /* borrowed */
    const base_view *tokens; /* [n_token], borrowed */
    size_t n_token;
    /* [n_token] of text_kind, as used: byte tokens and the chat format's by their literals */
    uint8_t *kinds;
    uint64_t seed;
    uint64_t *
        slots; /* [n_slot] text to id, open addressing: upper half of the hash | id + 1; 0: empty */
    size_t n_slot;         /* a power of two */
    text_merge *merges;    /* [n_merge] by rank, as in the file: the lowest is applied first */
    uint32_t *merge_slots; /* [n_merge_slot] pair to rank + 1, open addressing; 0: empty */
    size_t n_merge, n_merge_slot; /* slots: a power of two */
    /* Until all merges are read: */
    size_t n_merged;      /* those that are */
    const void *merge_at; /* the next one */
    base_view (*next_merge)(const void **at);
    size_t longest; /* bytes of a token */
    char *joined;   /* [2 * longest + 1] */
    /* [n_literal] ids of control and user-defined tokens, sorted by text, each text once */
    uint32_t *literals;
    size_t n_literal;
    uint32_t
        literal_at[257]; /* first entry of `literals` that begins with this byte or a greater one */
    bool literal_begins[TEXT_MODE_COUNT]
                       [256]; /* does a literal of this mode begin with this byte? */
    int32_t ascii[128];       /* id of a character, -1: none; a blank is U+2581 */
    int32_t bytes[256];       /* id of a byte token, -1: none */
    int32_t special[TEXT_SPECIAL_COUNT];
    int32_t *stop; /* [n_stop] */
    size_t n_stop, stop_capacity;
    int32_t *suppressed; /* [n_suppressed] */
    size_t n_suppressed, suppressed_capacity;
    bool add_bos;
    /* no merge joins a newline with anything else: lines can be encoded one by one */
    bool newline_apart;
};

/* Is the token found by its literal in this mode? */
bool text_literal_wanted(const text_tokenizer *tok, int32_t id, text_special_mode mode);
/* May byte-pair encoding produce the token? Never one that means something to the chat format. */
bool text_may_encode(const text_tokenizer *tok, int32_t id);
/* The merge of a pair, NULL: none. */
const text_merge *text_merge_find(const text_tokenizer *tok, int32_t left, int32_t right);
/* The byte of "<0x..>"; -1: another text. */
int text_byte_of(base_view text);

#endif
