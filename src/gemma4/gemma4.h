/* gemma4.h - Gemma 4's text model: configuration and weights from a GGUF file, graphs for prefill
 * and decode.
 *
 * Builds graphs of plain operations and runs nothing. Refuses relatives and shapes that it does not
 * know, by name. Letters: n tokens of a run, d width, H query heads, h kv heads, L layers, P
 * per-layer width, V vocabulary. Source of the architecture: the published model's description
 * (layer order, norms, scales).
 */
#ifndef GEMMA4_GEMMA4_H
#define GEMMA4_GEMMA4_H

#include "format/gguf.h"
#include "format/lora.h"
#include "graph/graph.h"
#include "graph/store.h"

#define GEMMA4_NONE UINT32_MAX /* of a store index: the model has no such tensor */

/* Tensors of a layer: field, name in the file, aliases. Presence and shapes are checked in
 * weights.c. */
#define GEMMA4_LAYER_LIST(X)                                                       \
    X(attn_norm, "attn_norm.weight", NULL)                                         \
    X(attn_qkv, "attn_qkv.weight", NULL)                                           \
    X(attn_q, "attn_q.weight", NULL)                                               \
    X(attn_k, "attn_k.weight", NULL)                                               \
    X(attn_v, "attn_v.weight", NULL)                                               \
    X(attn_output, "attn_output.weight", NULL)                                     \
    X(attn_q_norm, "attn_q_norm.weight", NULL)                                     \
    X(attn_k_norm, "attn_k_norm.weight", NULL)                                     \
    X(post_attention_norm, "post_attention_norm.weight", "attn_post_norm.weight")  \
    X(ffn_norm, "ffn_norm.weight", "ffn_pre_norm.weight")                          \
    X(ffn_gate, "ffn_gate.weight", NULL)                                           \
    X(ffn_up, "ffn_up.weight", NULL)                                               \
    X(ffn_down, "ffn_down.weight", NULL)                                           \
    X(post_ffw_norm, "post_ffw_norm.weight", "ffn_post_norm.weight")               \
    X(inp_gate, "inp_gate.weight", NULL)                                           \
    X(proj, "proj.weight", NULL)                                                   \
    X(post_norm, "post_norm.weight", NULL)                                         \
    X(layer_output_scale, "layer_output_scale.weight", "layer_scalar.weight")      \
    X(ffn_gate_inp, "ffn_gate_inp.weight", NULL)                                   \
    X(ffn_gate_inp_scale, "ffn_gate_inp.scale", NULL)                              \
    X(ffn_gate_up_exps, "ffn_gate_up_exps.weight", NULL)                           \
    X(ffn_gate_exps, "ffn_gate_exps.weight", NULL)                                 \
    X(ffn_up_exps, "ffn_up_exps.weight", NULL)                                     \
    X(ffn_down_exps, "ffn_down_exps.weight", NULL)                                 \
    X(ffn_down_exps_scale, "ffn_down_exps.scale", "ffn_gate_inp.per_expert_scale") \
    X(pre_ffw_norm_2, "pre_ffw_norm_2.weight", "ffn_pre_norm_2.weight")            \
    X(post_ffw_norm_1, "post_ffw_norm_1.weight", "ffn_post_norm_1.weight")         \
    X(post_ffw_norm_2, "post_ffw_norm_2.weight", "ffn_post_norm_2.weight")

typedef struct gemma4_layer {
    bool sliding, owner; /* owner: has K and V of its own */
    uint32_t donor;      /* layer whose cache it reads: itself if owner */
    uint32_t n_kv, head_dim, n_ff;
    uint32_t k_cache, v_cache; /* states, of owners */
    /* states: a sliding layer's ring as it was at the turn's start; NONE: the ring never wraps */
    uint32_t k_copy, v_copy;
#define X(field, name, alias) uint32_t field; /* index in the store or GEMMA4_NONE */
    GEMMA4_LAYER_LIST(X)
#undef X
} gemma4_layer;

/* What of pictures and sound a file has towers for: the model's own, or its mmproj. */
void gemma4_towers(const format_gguf *g, bool *sees, bool *hears);

typedef struct gemma4_config {
    /* n_per_layer: 0 without per-layer embeddings */
    uint32_t n_layer, n_embd, n_head, n_vocab, n_per_layer;
    uint32_t head_dim, head_dim_swa, window, context_max, shared_kv;
    uint32_t n_expert, n_expert_used, n_ff_expert;
    float rms_eps, rope_base, rope_base_swa, softcap; /* softcap 0: none */
    bool has_vision, has_audio;
    const char *size_label;
} gemma4_config;

typedef struct gemma4_model {
    gemma4_config config;
    gemma4_layer *layers; /* [L], in the arena */
    uint32_t last_owner;  /* last layer with K and V of its own */
    uint32_t token_embd, output, output_norm, per_layer_token_embd, per_layer_model_proj,
        per_layer_proj_norm;
    /* states: I32 [n_slot], the newest token of each slot; F32 [V] or NONE */
    uint32_t tokens, suppress;
    bool per_layer_on_host; /* its rows come as an input */
    float *rope_factors;    /* [head_dim / 2], global layers */
    /* inverse frequencies: [0] sliding [head_dim_swa / 2], [1] global [head_dim / 2] */
    float *rope_inverse[2];
    uint32_t n_slot, context, ring; /* of the caches: rows of global and of sliding layers */
} gemma4_model;

/* Is it this model family at all? UNSUPPORTED says what it is instead. */
beryl_status gemma4_check_architecture(const format_gguf *gguf, beryl_error *error);
/* Reads and checks the configuration; layers with kinds and donors, in the arena. */
beryl_status gemma4_config_read(const format_gguf *gguf, base_arena *arena, gemma4_model *m,
                                beryl_error *error);
/* Adds all weights of the text model to the store, each checked against the configuration. */
beryl_status gemma4_weights_add(const format_gguf *gguf, gemma4_model *m, graph_store *store,
                                bool per_layer_on_host, beryl_error *error);
/* Bytes of the per-layer-embedding table in the file, 0: none. */
uint64_t gemma4_per_layer_bytes(const format_gguf *gguf);

typedef struct gemma4_cache_desc {
    base_type type;                  /* F32, F16, Q8_0 */
    uint32_t n_slot, context, piece; /* piece: most tokens of one run */
    uint32_t ahead;                  /* decode steps that may be thrown away when a turn ends */
} gemma4_cache_desc;
/* Adds the states: caches, tokens, suppress list if suppressing. */
beryl_status gemma4_cache_add(gemma4_model *m, graph_store *store, const gemma4_cache_desc *desc,
                              bool suppressing, beryl_error *error);
/* cos and sin of n positions: out [n, 2, head_dim / 2]; global: of global layers. In double from
 * f32 products. */
void gemma4_angles(const gemma4_model *m, bool global, const int32_t *positions, uint32_t n,
                   float *out);

/* Some rows are soft tokens of pictures or sound. What soft tokens of a picture see besides what
 * every row sees: nothing (models with per-layer embeddings); in sliding layers those behind them
 * of the same picture (other models with a vision tower); all of the same picture, in all layers,
 * however wide the window (12B, which has none). Then a picture is in one run. */
typedef enum gemma4_media {
    GEMMA4_MEDIA_NONE,
    GEMMA4_MEDIA_CAUSAL,
    GEMMA4_MEDIA_SLIDING,
    GEMMA4_MEDIA_ALL
} gemma4_media;

/* ---- adapters (lora.c) */

/* Those of a graph, of all ranks side by side: A [r, in], B [out, r], of experts [expert, r, in]
 * and [expert, out, r]; A of the embedding is [V, r], rows to gather. What a row takes of each rank
 * follows from its slot: y += B * (scales[slot] * (A * x)). Targets of one vector (q, k, v; gate,
 * up) share one A, [n r, in]. */
enum { LORA_SHARE_MAX = 3 };
typedef struct gemma4_lora_pair {
    uint32_t a, b;  /* weights; GEMMA4_NONE: nothing is added here */
    uint32_t n, at; /* how many share a, and which of them this is */
    float factor;   /* of training: alpha / rank */
} gemma4_lora_pair;

typedef struct gemma4_lora {
    uint32_t scales;         /* state: F32 [n_slot, LORA_SHARE_MAX r]: the same, so many times */
    gemma4_lora_pair *pairs; // [L + 1, LORA_COUNT]: those of the model are the last
} gemma4_lora;

/* How many targets take the same vector, from *first on. */
uint32_t gemma4_lora_share(format_lora_target target, format_lora_target *first);

/* Where a part has its pair. */
uint32_t gemma4_lora_at(const gemma4_model *m, format_lora_target target, uint32_t layer);
/* Of the matrix there, of one expert; false: the model has none. */
bool gemma4_lora_shape(const gemma4_model *m, format_lora_target target, uint32_t layer,
                       uint32_t *in, uint32_t *out);
/* Is this what the model has there? UNSUPPORTED names the tensor and both shapes. *acts: false:
 * the model has the matrix and does not use it (K and V of layers that share another's cache). */
beryl_status gemma4_lora_check(const gemma4_model *m, const format_lora_part *part, bool *acts,
                               beryl_error *error);

/* Rows [row, row + n) of a weight (of each expert, where there are several) are those of a target
 * from `from` on; of the embedding a row is a token, and n is its width. How many of the two places
 * the model has: 0 or 1, 2 where gate and up of experts are not together. */
typedef struct gemma4_lora_place {
    uint32_t weight; /* index in the store */
    uint32_t row, from, n;
} gemma4_lora_place;
uint32_t gemma4_lora_places(const gemma4_model *m, format_lora_target target, uint32_t layer,
                            gemma4_lora_place places[2]);

typedef struct gemma4_text_options {
    uint32_t n_token; /* bound */
    /* bound of rows whose logits are wanted; 0: none, stops after the last cache write */
    uint32_t n_output;
    uint32_t near; /* decode: every position is below; 0: any */
    /* rows belong to different slots, tokens come from the state, every row is an output
     * (n_output ignored) */
    bool decode;
    bool sample; /* the next token of each output row is chosen and set in the state */
    /* not of decode; no layer stops early for output rows then */
    gemma4_media media;
    const gemma4_lora *lora; /* borrowed while the graph is built; NULL: none */
    /* keep the residual stream before each layer and after the output norm (tests) */
    bool hidden;
    /* Training: tokens of several sequences, which see one another as first and last say, no caches
     * (slot is 0). Adapters are those of `lora`, whose A and B are states, F32, A of each target on
     * its own (n 1) and scales no state: factor instead. Losses of n_output rows instead of logits.
     * Each layer is a segment (graph_recompute_begin). Not of decode; nothing is sampled. */
    bool labels;
    float dropout; /* of training: the chance that a number is dropped before A; 0: none is */
    bool halves;   /* as graph.halves */
} gemma4_text_options;

/* A graph with its inputs and outputs. 0: this graph has none. */
typedef struct gemma4_text {
    graph *g;
    uint8_t token_extent, output_extent; /* decode: the same */
    graph_value tokens;                  /* I32 [n]; not of decode */
    graph_value slot, pos;               /* I32 [n] */
    graph_value angles[2];               /* F32 [n, 2, head_dim / 2]: sliding, global */
    /* F32 [n, L * P], unscaled rows of the table, where that stays on the host */
    graph_value per_layer_rows;
    /* media: F32 [n, d] and BOOL [n, 1], which rows those are instead of their token, which is 0 */
    graph_value soft, is_soft;
    /* SLIDING, ALL: I32 [n]: positions that a row of a sliding layer sees, first and last; ALL:
     * one of the others all up to the last */
    graph_value first, last;
    /* training: I32 [n], the same of other layers; labels [n_output], below 0: none; losses F32
     * [n_output] */
    graph_value first_global, last_global, labels, losses;
    graph_value dropout_key; /* dropout: U32 [2], another one for each run */
    graph_value output_rows; /* I32 [n_output]: which of the n */
    /* settings: U32 [n_output, 8] */
    graph_value output_slot, output_pos, output_angles[2], settings;
    graph_value logits;  /* F32 [n_output, V] */
    graph_value chosen;  /* I32 [n_output] */
    graph_value *hidden; /* [L + 1], in the graph's arena */
} gemma4_text;

/* t->g is made here and closed by the caller (graph_close), also on failure where it is not
 * NULL. */
beryl_status gemma4_text_build(const gemma4_model *m, const graph_store *store, base_heap *heap,
                               const gemma4_text_options *options, gemma4_text *t,
                               beryl_error *error);

#endif
