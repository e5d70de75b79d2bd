/* gguf_inside.h - the inside of an open file, shared by gguf.c (opening) and gguf_hash.c
 * (identity). */
#ifndef FORMAT_GGUF_INSIDE_H
#define FORMAT_GGUF_INSIDE_H

#include "format/gguf.h"

typedef struct gguf_sample { /* the bytes of a tensor that go into the hash */
    bool is_there;
    uint8_t bytes[256];
} gguf_sample;

typedef struct part {
    beryl_source source; /* owned */
    beryl_source heard;  /* the same, with what is read of it noted */
    format_gguf *whole;
    uint8_t *head; /* the copy, `capacity` bytes; owned */
    size_t capacity;
    uint64_t have; /* bytes at head that are valid */
    uint64_t end;  /* where the head ends, known after the first walk */
    uint64_t data; /* where tensor data starts */
    uint32_t n_pair, n_tensor, alignment, version;
    uint64_t split_no, split_count, split_tensors; /* 0 where the keys are missing */
    bool has_split_tensors;
    char name[128]; /* for messages: the file's name without folders, or "the file" */
} part;

struct format_gguf {
    base_heap *heap;     /* borrowed */
    beryl_status status; /* of an ended opening that failed; sticky */
    beryl_error error;   /* of the same */
    bool ready, any_type;
    char *path; /* of the first part, owned; NULL where opened on sources */
    size_t path_size;
    base_vec(part) parts;
    size_t n_parsed; /* parts whose tables are filled */
    base_vec(format_gguf_pair) pairs;
    base_vec(format_gguf_tensor) tensors;
    base_map pair_map, tensor_map;
    uint64_t data_size, parameters;
    size_t hash_at; /* parts, then tensors that are already in hash_value */
    uint64_t hash_value;
    gguf_sample *samples; /* [tensors], NULL where reading them costs little */
};

/* Of the heads into hash_value, once. */
void gguf_hash_heads(format_gguf *g);
/* Once it is open: who reads its sources leaves the samples of what goes by. */
void gguf_listen(format_gguf *g);

#endif
