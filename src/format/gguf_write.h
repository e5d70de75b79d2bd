/* gguf_write.h - the head of a GGUF file (version 3): keys, then tensors in the order in which
 * their bytes will follow.
 *
 *     format_gguf_head h; format_gguf_head_init(&h, heap, 32);
 *     format_gguf_head_string(&h, "general.architecture", BASE_VIEW("gemma4"));
 *     format_gguf_head_tensor(&h, name, 0, 1, (uint64_t[]){4}, 16);
 *     format_gguf_head_write(&h, &out);                    // and pads
 *     format_out_add(&out, floats, 16); format_out_pad(&out, 32);   // of each tensor
 *     format_gguf_head_fini(&h);
 *
 * Names and shapes are the caller's to get right: nothing is checked. */
#ifndef FORMAT_GGUF_WRITE_H
#define FORMAT_GGUF_WRITE_H

#include "format/gguf.h"
#include "format/out.h"

typedef struct format_gguf_head {
    base_text pairs, tensors; /* as they lie in the file */
    uint64_t n_pair, n_tensor, data_size;
    uint32_t alignment;
} format_gguf_head;

void format_gguf_head_init(format_gguf_head *h, base_heap *heap, uint32_t alignment);
void format_gguf_head_fini(format_gguf_head *h);
void format_gguf_head_string(format_gguf_head *h, const char *key, base_view value);
void format_gguf_head_f32(format_gguf_head *h, const char *key, float value);
void format_gguf_head_pair(format_gguf_head *h, const format_gguf_pair *pair); /* as it is */
/* ne: [n_dim], the fastest first; size: bytes */
void format_gguf_head_tensor(format_gguf_head *h, base_view name, uint32_t gguf_type,
                             uint32_t n_dim, const uint64_t *ne, uint64_t size);
/* NO_MEMORY: adding had failed. What goes wrong in writing, `out` keeps. */
beryl_status format_gguf_head_write(const format_gguf_head *h, format_out *out, beryl_error *error);

#endif
