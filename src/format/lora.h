/* lora.h - low-rank adapters in memory, in the forms that PEFT, llama.cpp and rullama write, as one
 * list of parts: y += factor * B * (A * x) for a matrix of the model.
 *
 * Owns the list; the files' bytes are borrowed. Refuses by name what an adapter of matrices does
 * not say (DoRA, whole modules, biases), parts without their other half, ranks that do not agree,
 * values that are not numbers. What the model has is checked by whoever knows the model.
 *
 * Source of the forms: PEFT's adapter_config.json and adapter_model.safetensors; GGUF files of
 * general.type "adapter"; safetensors with the metadata `format` "rullama-lora-v0". */
#ifndef FORMAT_LORA_H
#define FORMAT_LORA_H

#include "base/memory.h"
#include "base/types.h"

/* What an adapter goes with: id, tensor of GGUF files, module of PEFT, name of rullama (NULL:
 * none). Those of a layer, then those of the model. */
#define FORMAT_LORA_LIST(X)                                                   \
    X(Q, "attn_q", "self_attn.q_proj", "attn_q")                              \
    X(K, "attn_k", "self_attn.k_proj", "attn_k")                              \
    X(V, "attn_v", "self_attn.v_proj", "attn_v")                              \
    X(O, "attn_output", "self_attn.o_proj", "attn_o")                         \
    X(GATE, "ffn_gate", "mlp.gate_proj", "ffn_gate")                          \
    X(UP, "ffn_up", "mlp.up_proj", "ffn_up")                                  \
    X(DOWN, "ffn_down", "mlp.down_proj", "ffn_down")                          \
    X(INP_GATE, "inp_gate", "per_layer_input_gate", NULL)                     \
    X(PROJ, "proj", "per_layer_projection", NULL)                             \
    X(GATE_UP_EXPS, "ffn_gate_up_exps", "experts.base_layer", NULL)           \
    X(DOWN_EXPS, "ffn_down_exps", "experts", NULL)                            \
    X(MODEL_PROJ, "per_layer_model_proj", "per_layer_model_projection", NULL) \
    X(EMBED, "token_embd", "embed_tokens", "embed_tokens")                    \
    X(HEAD, "output", "lm_head", "lm_head")

typedef enum format_lora_target {
#define X(id, gguf, peft, rullama) LORA_##id,
    FORMAT_LORA_LIST(X)
#undef X
        LORA_COUNT,
    LORA_FIRST_OF_MODEL = LORA_MODEL_PROJ /* those before are of a layer */
} format_lora_target;

const char *format_lora_target_name(format_lora_target target); /* as in GGUF files */

enum { LORA_RANK_MAX = 4 };

typedef struct format_lora_half {       /* A or B */
    base_view name;                     /* in the file */
    base_type type;                     /* F32, F16, BF16 */
    const uint8_t *data;                /* NULL: not there */
    uint32_t n_dim, dim[LORA_RANK_MAX]; /* as the file has them, row-major */
    uint64_t stride[3];                 /* in elements: of an expert, a rank, an input or output */
} format_lora_half;

typedef struct format_lora_part {
    format_lora_target target;
    uint32_t layer; /* of targets of the model: 0 */
    uint32_t n_expert, rank, in, out;
    format_lora_half a, b; // [n_expert, rank, in], [n_expert, out, rank] by their strides
    float factor;          /* alpha / rank */
} format_lora_part;

#define FORMAT_LORA_FORM_LIST(X) \
    X(PEFT, "peft")              \
    X(GGUF, "gguf")              \
    X(RULLAMA, "rullama")
typedef enum format_lora_form {
#define X(id, name) LORA_FORM_##id,
    FORMAT_LORA_FORM_LIST(X)
#undef X
} format_lora_form;

/* What a form calls the target, without layer and half; NULL: it has no name. */
const char *format_lora_name(format_lora_form form, format_lora_target target);

typedef struct format_lora {
    base_arena arena;
    format_lora_form form;
    uint32_t rank;           /* the largest of any part */
    format_lora_part *parts; // [n_part], in the arena
    size_t n_part;
} format_lora;

/* data: a GGUF or safetensors file, borrowed until format_lora_fini. config: PEFT's
 * adapter_config.json, NULL: none. After a failure there is nothing to free. */
beryl_status format_lora_read(base_heap *heap, const void *data, size_t size, const char *config,
                              size_t config_size, format_lora *out, beryl_error *error);
void format_lora_fini(format_lora *lora);
/* Element of a half at `stride` products. */
float format_lora_value(const format_lora_half *half, uint64_t at);

#endif
