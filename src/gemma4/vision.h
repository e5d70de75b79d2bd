/* vision.h - pictures: the vision tower of Gemma 4 as a graph, from patches of pixels to soft
 * tokens.
 *
 * Builds graphs of plain operations and runs nothing. Letters: n patches, m soft tokens, w width of
 * the tower, H heads, d width of the text model. Models with a tower (E2B, E4B, 26B-A4B, 31B) see
 * patches of 16 x 16 pixels and average 3 x 3 of them to one soft token; 12B has no tower and sees
 * patches of 48 x 48. Patches lie in the order of their soft tokens, so that those of one token are
 * neighbours; rows and columns say where they are. Source of the architecture: the published
 * model's description. */
#ifndef GEMMA4_VISION_H
#define GEMMA4_VISION_H

#include "gemma4/tower.h"

/* Of a layer: products, with their names in the file, and vectors with their length. */
#define GEMMA4_VISION_PRODUCT_LIST(X) \
    X(attn_q, rows, n_embd)           \
    X(attn_k, rows, n_embd)           \
    X(attn_v, rows, n_embd)           \
    X(attn_out, n_embd, rows)         \
    X(ffn_gate, n_ff, n_embd)         \
    X(ffn_up, n_ff, n_embd)           \
    X(ffn_down, n_embd, n_ff)
#define GEMMA4_VISION_VECTOR_LIST(X) \
    X(ln1, n_embd, false)            \
    X(attn_q_norm, head_dim, false)  \
    X(attn_k_norm, head_dim, false)  \
    X(attn_post_norm, n_embd, false) \
    X(ln2, n_embd, false)            \
    X(ffn_post_norm, n_embd, false)  \
    X(out_scale, one, true)

typedef struct gemma4_vision_layer {
#define X(name, out, in) gemma4_clamped name;
    GEMMA4_VISION_PRODUCT_LIST(X)
#undef X
#define X(name, n, optional) uint32_t name;
    GEMMA4_VISION_VECTOR_LIST(X)
#undef X
} gemma4_vision_layer;

typedef struct gemma4_vision {
    uint32_t n_layer; /* 0: no tower */
    uint32_t n_embd, n_head, head_dim, n_ff;
    uint32_t n_position; /* rows and columns that there are vectors for */
    uint32_t side;       /* pixels along a patch */
    uint32_t pool;       /* patches along a soft token */
    uint32_t n_soft;     /* most soft tokens of a picture, as the file says; 0: it does not */
    uint32_t d;
    float eps;
    gemma4_vision_layer *layers; /* [n_layer], in the arena */
    uint32_t patch_embd, position_embd, std_bias, std_scale;
    uint32_t patch_bias, patch_norm[3][2]; /* without a tower: weight and bias */
    gemma4_clamped projection;
} gemma4_vision;

/* Reads keys and adds weights; d: the text model's width. The file is the model's or its mmproj.
 * NOT_FOUND: it has no vision; what it has and cannot be read is refused by name. */
beryl_status gemma4_vision_add(const format_gguf *gguf, uint32_t d, base_arena *arena,
                               graph_store *store, gemma4_vision *v, beryl_error *error);

typedef struct gemma4_vision_graph {
    graph *g;
    uint8_t extent;            /* soft tokens of a run */
    graph_value pixels;        /* U8 [n, side * side, 3]: row, column, channel */
    graph_value columns, rows; /* I32 [n] */
    graph_value angles;        /* F32 [n, 3, 2, head_dim / 4]; 0 without a tower */
    graph_value soft;          /* F32 [m, d] */
} gemma4_vision_graph;

/* n_soft: the extent's bound. out->g is closed by the caller (graph_close), also on failure where
 * it is not NULL. */
beryl_status gemma4_vision_build(const gemma4_vision *v, const graph_store *store, base_heap *heap,
                                 uint32_t n_soft, gemma4_vision_graph *out, beryl_error *error);

/* Pixels along a soft token. */
uint32_t gemma4_vision_unit(const gemma4_vision *v);
/* Inputs for a picture of width x height, rgb [height, width, 3], both whole units and within the
 * positions that there are. columns, rows [n]; angles may be NULL without a tower. */
void gemma4_vision_fill(const gemma4_vision *v, const uint8_t *rgb, uint32_t width, uint32_t height,
                        uint8_t *pixels, int32_t *columns, int32_t *rows, float *angles);

#endif
