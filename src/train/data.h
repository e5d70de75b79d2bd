/* data.h - training data: from a file of examples to rows of tokens with a mask.
 *
 * Owns reading, checking and tokenising the whole file before training begins. Refuses any line
 * that it cannot use, with the number of the line and the reason. The one idea: conversations go
 * through the chat format that inference renders with, and what the model itself writes in them is
 * marked, so that training sees the tokens that a session would.
 *
 * A file is JSONL, one object a line (empty lines are passed over), or plain text: it is JSONL if
 * its first character that is no blank is '{'. A line is one of
 *
 *     {"messages": [...], "tools": [...], "think": bool, ...}   as beryl_render takes it
 *     {"conversations": [{"from": "human" or "gpt" or "system", "value": text}, ...],
 *      "system": text}                                          ShareGPT; passed over: "id"
 *     {"prompt": text, "completion": text}                      a chat: question and answer
 *     {"text": text}                                            as a text file
 *     {"tokens": [id, ...], "mask": [0 or 1, ...], "picture": FILE, "sound": FILE}
 *                                                              as it is; without mask, all
 *
 * No other key is taken. The model writes the tokens of its turns: thoughts, calls, text, and the
 * token that ends a turn or asks for a tool's response; not the responses. Soft tokens of pictures
 * and sound are no targets; video is refused. In models of the large style that do not think, the
 * last answer follows an empty thought, as it does in a session. */
#ifndef TRAIN_DATA_H
#define TRAIN_DATA_H

#include "text/chat.h"

/* What a line says of a picture or a clip: a part of its conversation, or a file. */
typedef struct train_medium {
    bool sound;
    const text_chunk *place; /* NULL: a file */
    const char *file;        /* as the line has it; a picture has the model's size already */
} train_medium;

typedef struct train_media {
    void *user;
    /* *number: what spans call it; *n_soft: how many soft tokens it has, at least one. */
    beryl_status (*open)(void *user, const train_medium *what, uint32_t *number, uint32_t *n_soft,
                         beryl_error *error);
} train_media;

typedef struct train_span { /* of a row: the soft tokens of a picture or a clip */
    uint32_t begin, n;
    uint32_t medium; /* as train_media.open calls it */
} train_span;

typedef struct train_row {
    const int32_t *tokens; /* [n], of the vocabulary */
    const uint8_t *mask; /* [n] 1: a target, predicted from the tokens before it; the first is 0 */
    uint32_t n;          /* at least 2; of mask[1..] at least one is 1 */
    const train_span *spans; /* [n_span], in order */
    uint32_t n_span;
    uint32_t line; /* from 1; of a plain text 0 */
} train_row;

typedef struct train_data {
    train_row *rows; /* [n], in the order of the file */
    uint32_t n;
    uint64_t n_token, n_target; /* n_target: ones in mask[1..] of all rows */
    uint32_t longest;           /* tokens of the longest row */
    uint32_t n_cut;             /* rows that were cut */
    base_arena arena;
    size_t capacity; /* of rows */
} train_data;

typedef struct train_data_desc {
    base_heap *heap;
    const beryl_source *source; /* borrowed, read once; one that is ready at once */
    const char *name;           /* for messages: "train.jsonl" */
    const text_tokenizer *tokenizer;
    text_chat_style style;
    const train_media *media; /* NULL: lines with pictures or sound are refused */
    uint32_t context; /* tokens of a row at most; 0: any number (plain text: rows of 2,048) */
    bool cut;         /* longer rows lose their end; default: they are refused */
    bool whole;       /* every token but the first is a target; default: answers alone */
    bool plain;       /* the file is plain text, whatever it begins with */
} train_data_desc;

/* Plain text becomes rows of BOS and the next tokens, as many as `context` has room for: never cut
 * or refused for its length. BAD_INPUT: a line that cannot be used (error->at is its first byte), a
 * file without rows. After a failure there is nothing to free. */
beryl_status train_data_read(train_data *out, const train_data_desc *desc, beryl_error *error);
void train_data_free(train_data *data);

#endif
