/* audio.h - sound: the audio tower of Gemma 4 as a graph, from log-mel frames to soft tokens.
 *
 * Builds graphs of plain operations and runs nothing, but for the frames, which the processor
 * computes. Letters: T frames, N soft tokens, w width of the tower, H heads, d width of the text
 * model. E2B and E4B have a tower (a Conformer that sees 12 soft tokens back); 12B has none, and
 * 640 samples are a soft token. Source of the architecture: the published model's description. */
#ifndef GEMMA4_AUDIO_H
#define GEMMA4_AUDIO_H

#include "gemma4/tower.h"

enum {
    GEMMA4_AUDIO_RATE = 16000,
    GEMMA4_AUDIO_SAMPLES = 480000, /* of a clip, at most */
    GEMMA4_AUDIO_MEL = 128,        /* bins of a frame */
    GEMMA4_AUDIO_FRAME = 640,      /* samples of a soft token, without a tower */
    GEMMA4_AUDIO_PAST = 12         /* soft tokens that one sees, its own among them */
};

/* Of a layer: products; vectors with their names in merged files and in an mmproj, where these
 * differ, and their lengths. */
#define GEMMA4_AUDIO_PRODUCT_LIST(X) \
    X(ffn_up, n_ff, n_embd)          \
    X(ffn_down, n_embd, n_ff)        \
    X(attn_q, n_embd, n_embd)        \
    X(attn_k, n_embd, n_embd)        \
    X(attn_v, n_embd, n_embd)        \
    X(attn_out, n_embd, n_embd)      \
    X(conv_pw1, 2 * n_embd, n_embd)  \
    X(conv_pw2, n_embd, n_embd)      \
    X(ffn_up_1, n_ff, n_embd)        \
    X(ffn_down_1, n_embd, n_ff)
#define GEMMA4_AUDIO_VECTOR_LIST(X)                                  \
    X(ffn_norm, "ffn_norm", "ffn_norm", n_embd)                      \
    X(ffn_post_norm, "ffn_post_norm", "ffn_post_norm", n_embd)       \
    X(attn_norm, "ln1", "attn_pre_norm", n_embd)                     \
    X(attn_post_norm, "ln2", "attn_post_norm", n_embd)               \
    X(query_scale, "per_dim_scale", "per_dim_scale", head_dim)       \
    X(conv_norm, "conv_norm", "conv_norm", n_embd)                   \
    X(conv_dw_norm, "norm_conv", "norm_conv", n_embd)                \
    X(ffn_norm_1, "ffn_norm_1", "ffn_norm_1", n_embd)                \
    X(ffn_post_norm_1, "ffn_post_norm_1", "ffn_post_norm_1", n_embd) \
    X(out_norm, "layer_pre_norm", "ln2", n_embd)

typedef struct gemma4_audio_layer {
#define X(name, out, in) gemma4_clamped name;
    GEMMA4_AUDIO_PRODUCT_LIST(X)
#undef X
#define X(name, merged, own, n) uint32_t name;
    GEMMA4_AUDIO_VECTOR_LIST(X)
#undef X
    uint32_t conv_dw, relative; /* F32 [n_embd, taps]; [n_embd, n_embd] */
} gemma4_audio_layer;

typedef struct gemma4_audio {
    uint32_t n_layer; /* 0: no tower */
    uint32_t n_embd, n_head, head_dim, n_ff, n_tap, n_out;
    uint32_t channels[2]; /* of the two convolutions */
    uint32_t d;
    float eps;
    gemma4_audio_layer *layers;     /* [n_layer], in the arena */
    uint32_t conv[2], conv_norm[2]; /* [channels, channels before, 3, 3]; [channels] */
    uint32_t sub, out, out_bias, projection;
} gemma4_audio;

/* Reads keys and adds weights; d: the text model's width. The file is the model's or its mmproj.
 * NOT_FOUND: it hears nothing; what it has and cannot be read is refused by name. */
beryl_status gemma4_audio_add(const format_gguf *gguf, uint32_t d, base_arena *arena,
                              graph_store *store, gemma4_audio *a, beryl_error *error);

typedef struct gemma4_audio_graph {
    graph *g;
    uint8_t extent;       /* frames of a run */
    graph_value frames;   /* F32 [T, 128] log-mel; without a tower [N, 640] samples */
    graph_value distance; /* F32 [12, w]: gemma4_audio_distances; 0 without a tower */
    graph_value mask;     /* F32 [N, 12]: gemma4_audio_mask; 0 without a tower */
    graph_value soft;     /* F32 [N, d] */
} gemma4_audio_graph;

/* n_frame: the extent's bound. out->g is closed by the caller (graph_close), also on failure where
 * it is not NULL. */
beryl_status gemma4_audio_build(const gemma4_audio *a, const graph_store *store, base_heap *heap,
                                uint32_t n_frame, gemma4_audio_graph *out, beryl_error *error);

/* How many frames n samples of 16 kHz have, and how many soft tokens n frames. */
uint32_t gemma4_audio_frames(const gemma4_audio *a, uint32_t n_sample);
uint32_t gemma4_audio_soft(const gemma4_audio *a, uint32_t n_frame);
/* Their numbers: out [gemma4_audio_frames, 128 or 640] of samples in -1 .. 1. heap: for a moment.
 * NO_MEMORY. */
beryl_status gemma4_audio_fill(const gemma4_audio *a, base_heap *heap, const float *samples,
                               uint32_t n_sample, float *out);
/* out [12, w]: sines and cosines of how far back each of the 12 is. */
void gemma4_audio_distances(const gemma4_audio *a, float *out);
/* out [n_soft, 12]: what is added to the scores of what lies before the beginning. */
void gemma4_audio_mask(uint32_t n_soft, float *out);

#endif
