/* audio.c - the audio tower: keys and weights, and the graph. Frames are in mel.c. */
#include "gemma4/audio.h"

#include "base/error.h"

#include <math.h>
#include <stdio.h>
#include <string.h>

enum {
    LAYERS_MAX = 256,
    PAST = GEMMA4_AUDIO_PAST,
    TAPS_MAX = 64,
    GROUP_VECTORS = 0,
    GROUP_GLOBAL = 1,
    GROUP_LAYER = 16
};

/* ---- weights --------------------------------------------------------------------------------- */

static uint32_t add_matrix(gemma4_adding *a, const char *prefix, const char *name, uint32_t out,
                           uint32_t in) {
    return gemma4_tensor_add(
        a, prefix,
        (gemma4_wanted){.name = name, .rank = 2, .dim = {out, in}, .group = GROUP_GLOBAL});
}

/* F32 of rank 2, whatever dimensions the file has behind the first. */
static uint32_t add_kernel(gemma4_adding *a, const char *prefix, const char *name, uint32_t out,
                           uint32_t in) {
    return gemma4_tensor_add(a, prefix,
                             (gemma4_wanted){.name = name,
                                             .rank = 2,
                                             .dim = {out, in},
                                             .flat = true,
                                             .plain = true,
                                             .group = GROUP_GLOBAL});
}

/* own: as files of towers alone name it. */
static void add_layer(gemma4_adding *adding, gemma4_audio *a, uint32_t i, bool own) {
    const uint32_t n_embd = a->n_embd, n_ff = a->n_ff, head_dim = a->head_dim;
    gemma4_audio_layer *layer = &a->layers[i];
    char prefix[32];
    snprintf(prefix, sizeof prefix, "a.blk.%u.", i);
#define X(name, out, in) \
    layer->name =        \
        gemma4_tower_product_add(adding, prefix, #name, out, in, GROUP_LAYER + i, GEMMA4_NONE, 0);
    GEMMA4_AUDIO_PRODUCT_LIST(X)
#undef X
#define X(name, merged, alone, n)                         \
    layer->name = gemma4_tower_vector_add(adding, prefix, \
                                          own ? alone ".weight" : merged ".weight", n, false);
    GEMMA4_AUDIO_VECTOR_LIST(X)
#undef X
    layer->conv_dw = add_kernel(adding, prefix, "conv_dw.weight", n_embd, a->n_tap);
    layer->relative =
        gemma4_tensor_add(adding, prefix,
                          (gemma4_wanted){.name = own ? "attn_k_rel.weight" : "linear_pos.weight",
                                          .rank = 2,
                                          .dim = {n_embd, n_embd},
                                          .group = GROUP_LAYER + i});
}

/* What the file's tensors alone tell. */
static beryl_status read_shapes(const format_gguf *gguf, gemma4_audio *a, beryl_error *error) {
    const struct {
        const char *name;
        uint32_t axis, most, *out;
    } sizes[] = {
        {"a.blk.0.conv_dw.weight", 0, TAPS_MAX, &a->n_tap},
        {"a.conv1d.0.norm.weight", 0, 1 << 12, &a->channels[0]},
        {"a.conv1d.1.norm.weight", 0, 1 << 12, &a->channels[1]},
        {"mm.a.input_projection.weight", 0, 1 << 16, &a->n_out},
    };
    for (size_t i = 0; i < sizeof sizes / sizeof *sizes; i++) {
        const format_gguf_tensor *t = format_gguf_tensor_find(gguf, sizes[i].name);
        if (!t) return base_fail(error, BERYL_BAD_FILE, "tensor '%s' is missing", sizes[i].name);
        if (t->ne[sizes[i].axis] > sizes[i].most)
            return base_fail(error, BERYL_UNSUPPORTED, "tensor '%s' has %llu elements a row",
                             sizes[i].name, (unsigned long long)t->ne[sizes[i].axis]);
        *sizes[i].out = (uint32_t)t->ne[sizes[i].axis];
    }
    return BERYL_OK;
}

static beryl_status read_keys(const format_gguf *gguf, gemma4_audio *a, beryl_error *error) {
    const struct {
        const char *name;
        uint32_t least, most, *out;
    } keys[] = {
        {"embedding_length", 8, 1 << 14, &a->n_embd},
        {"attention.head_count", 1, 256, &a->n_head},
        {"feed_forward_length", 1, 1 << 18, &a->n_ff},
    };
    for (size_t i = 0; i < sizeof keys / sizeof *keys; i++) {
        const beryl_status status = gemma4_tower_key(gguf, "audio", keys[i].name, keys[i].least,
                                                     keys[i].most, keys[i].out, error);
        if (status != BERYL_OK) return status;
    }
    if (a->n_embd % a->n_head || a->n_embd % 2)
        return base_fail(error, BERYL_UNSUPPORTED, "audio: %u heads of a width of %u", a->n_head,
                         a->n_embd);
    a->head_dim = a->n_embd / a->n_head;
    return read_shapes(gguf, a, error);
}

beryl_status gemma4_audio_add(const format_gguf *gguf, uint32_t d, base_arena *arena,
                              graph_store *store, gemma4_audio *a, beryl_error *error) {
    *a = (gemma4_audio){.d = d, .eps = 1e-6f, .n_out = GEMMA4_AUDIO_FRAME};
    gemma4_adding adding = {.gguf = gguf, .store = store, .error = error, .vectors = GROUP_VECTORS};
    if (!format_gguf_tensor_find(gguf, "mm.a.input_projection.weight"))
        return base_fail(error, BERYL_NOT_FOUND, "this model hears no sound");
    beryl_status status =
        gemma4_tower_key(gguf, "audio", "block_count", 0, LAYERS_MAX, &a->n_layer, error);
    if (status == BERYL_OK && a->n_layer) status = read_keys(gguf, a, error);
    if (status != BERYL_OK) return status;
    a->layers = base_arena_take(arena, a->n_layer + 1, sizeof *a->layers);
    if (!a->layers) return base_no_memory(error);
    a->projection = add_matrix(&adding, "mm.a.", "input_projection.weight", d, a->n_out);
    if (!a->n_layer) return adding.status;
    const bool own = format_gguf_tensor_find(gguf, "a.blk.0.attn_pre_norm.weight");
    for (uint32_t i = 0; i < 2; i++) {
        char name[32];
        snprintf(name, sizeof name, "conv1d.%u.weight", i);
        a->conv[i] = add_kernel(&adding, "a.", name, a->channels[i], i ? 9 * a->channels[0] : 9);
        snprintf(name, sizeof name, "conv1d.%u.norm.weight", i);
        a->conv_norm[i] = gemma4_tower_vector_add(&adding, "a.", name, a->channels[i], false);
    }
    a->sub = add_matrix(&adding, "a.", own ? "input_projection.weight" : "pre_encode.out.weight",
                        a->n_embd, GEMMA4_AUDIO_MEL / 4 * a->channels[1]);
    a->out = add_matrix(&adding, "", own ? "a.pre_encode.out.weight" : "mm.a.fc.weight", a->n_out,
                        a->n_embd);
    a->out_bias = gemma4_tower_vector_add(
        &adding, "", own ? "a.pre_encode.out.bias" : "mm.a.fc.bias", a->n_out, false);
    for (uint32_t i = 0; i < a->n_layer; i++) add_layer(&adding, a, i, own);
    return adding.status;
}

/* ---- the graph ------------------------------------------------------------------------------- */

typedef struct building {
    gemma4_tower t;
    graph *g;
    const gemma4_audio *a;
    gemma4_audio_graph *out;
} building;

static graph_dim length_of(const building *b, graph_value x) {
    return graph_tensor_at(b->g, x)->dim[0];
}

static graph_value einsum(const building *b, const char *letters, graph_value x, graph_value y) {
    return graph_einsum(b->g, letters, 2, (graph_value[]){x, y});
}

/* Frames, or windows of them, [t, f, channels] by 3 x 3, two apart, in zeros: [t / 2, f / 2,
 * channels]. */
static graph_value subsample(const building *b, graph_value x, uint32_t i) {
    graph *g = b->g;
    const uint32_t before = i ? b->a->channels[0] : 1;
    for (uint32_t axis = 0; axis < 2; axis++) x = graph_pad(g, x, axis, 1, 1, 0);
    for (uint32_t axis = 0; axis < 2; axis++) x = graph_windows(g, x, axis, 3, 2);
    const graph_value kernel =
        graph_reshape(g, gemma4_tower_stored(&b->t, b->a->conv[i]), 4,
                      (graph_dim[]){gemma4_tower_dim(b->a->channels[i]), gemma4_tower_dim(before),
                                    gemma4_tower_dim(3), gemma4_tower_dim(3)});
    x = einsum(b, "tfcxy,ocxy->tfo", x, kernel);
    x = graph_layer_norm(g, x, gemma4_tower_stored(&b->t, b->a->conv_norm[i]), 0, b->a->eps);
    return graph_relu(g, x);
}

static graph_value feed_forward(const building *b, graph_value x, uint32_t norm,
                                const gemma4_clamped *up, const gemma4_clamped *down,
                                uint32_t post_norm) {
    graph_value y = gemma4_tower_linear(&b->t, gemma4_tower_norm(&b->t, x, norm), up);
    y = gemma4_tower_linear(&b->t, graph_silu(b->g, y), down);
    return graph_add(b->g, x, graph_scale(b->g, gemma4_tower_norm(&b->t, y, post_norm), 0.5f));
}

/* [n, w] as [n, H, w / H]. */
static graph_value heads(const building *b, graph_value x) {
    return graph_reshape(b->g, x, 3,
                         (graph_dim[]){length_of(b, x), gemma4_tower_dim(b->a->n_head),
                                       gemma4_tower_dim(b->a->head_dim)});
}

/* Each row beside those before it: [n, .., past], the oldest first. */
static graph_value with_past(const building *b, graph_value x, uint32_t past) {
    return graph_windows(b->g, graph_pad(b->g, x, 0, past - 1, 0, 0), 0, past, 1);
}

static graph_value attend(const building *b, const gemma4_audio_layer *layer, graph_value x) {
    graph *g = b->g;
    const double ln2 = log(2.0);
    const float q_factor = (float)(1 / sqrt((double)b->a->head_dim) / ln2),
                k_factor = (float)(log(1 + exp(1.0)) / ln2);
    graph_value q = heads(b, gemma4_tower_linear(&b->t, x, &layer->attn_q));
    graph_value k = heads(b, gemma4_tower_linear(&b->t, x, &layer->attn_k));
    graph_value v = heads(b, gemma4_tower_linear(&b->t, x, &layer->attn_v));
    q = graph_mul(g, graph_scale(g, q, q_factor), gemma4_tower_stored(&b->t, layer->query_scale));
    k = graph_scale(g, k, k_factor);
    const graph_value r =
        heads(b, graph_linear(g, b->out->distance, gemma4_tower_stored(&b->t, layer->relative)));
    graph_value scores = einsum(b, "thd,thdp->thp", q, with_past(b, k, PAST));
    scores = graph_add(g, scores, einsum(b, "thd,phd->thp", q, r));
    const graph_value mask = graph_unsqueeze(g, b->out->mask, 1);
    scores = graph_softmax(g, graph_add(g, graph_softcap(g, scores, 50), mask));
    const graph_value o = einsum(b, "thp,thdp->thd", scores, with_past(b, v, PAST));
    return graph_reshape(g, o, 2, (graph_dim[]){length_of(b, x), gemma4_tower_dim(b->a->n_embd)});
}

static graph_value convolve(const building *b, const gemma4_audio_layer *layer, graph_value x) {
    graph *g = b->g;
    const uint32_t n = b->a->n_embd;
    graph_value y = gemma4_tower_norm(&b->t, x, layer->conv_norm);
    y = gemma4_tower_linear(&b->t, y, &layer->conv_pw1);
    const graph_value gate = graph_sigmoid(g, graph_narrow(g, y, 1, n, n, 1));
    y = graph_mul(g, graph_narrow(g, y, 1, 0, n, 1), gate);
    y = einsum(b, "tck,ck->tc", with_past(b, y, b->a->n_tap),
               gemma4_tower_stored(&b->t, layer->conv_dw));
    y = graph_silu(g, gemma4_tower_norm(&b->t, y, layer->conv_dw_norm));
    return graph_add(g, x, gemma4_tower_linear(&b->t, y, &layer->conv_pw2));
}

static graph_value layer_of(const building *b, const gemma4_audio_layer *layer, graph_value x) {
    x = feed_forward(b, x, layer->ffn_norm, &layer->ffn_up, &layer->ffn_down, layer->ffn_post_norm);
    graph_value o = attend(b, layer, gemma4_tower_norm(&b->t, x, layer->attn_norm));
    o = gemma4_tower_linear(&b->t, o, &layer->attn_out);
    x = graph_add(b->g, x, gemma4_tower_norm(&b->t, o, layer->attn_post_norm));
    x = convolve(b, layer, x);
    x = feed_forward(b, x, layer->ffn_norm_1, &layer->ffn_up_1, &layer->ffn_down_1,
                     layer->ffn_post_norm_1);
    return gemma4_tower_norm(&b->t, x, layer->out_norm);
}

static graph_value encode(const building *b, graph_value x) {
    graph *g = b->g;
    const gemma4_audio *a = b->a;
    x = graph_unsqueeze(g, x, 2);
    for (uint32_t i = 0; i < 2; i++) x = subsample(b, x, i);
    const graph_dim n = length_of(b, x);
    b->out->mask = graph_input(g, "mask", TYPE_F32, 2, (graph_dim[]){n, gemma4_tower_dim(PAST)});
    x = graph_reshape(g, x, 2,
                      (graph_dim[]){n, gemma4_tower_dim(GEMMA4_AUDIO_MEL / 4 * a->channels[1])});
    x = graph_linear(g, x, gemma4_tower_stored(&b->t, a->sub));
    for (uint32_t i = 0; i < a->n_layer && graph_status(g, NULL) == BERYL_OK; i++)
        x = layer_of(b, &a->layers[i], x);
    x = graph_linear(g, x, gemma4_tower_stored(&b->t, a->out));
    return graph_add(g, x, gemma4_tower_stored(&b->t, a->out_bias));
}

beryl_status gemma4_audio_build(const gemma4_audio *a, const graph_store *store, base_heap *heap,
                                uint32_t n_frame, gemma4_audio_graph *out, beryl_error *error) {
    *out = (gemma4_audio_graph){.g = graph_open(heap)};
    if (!out->g) return base_no_memory(error);
    graph *g = out->g;
    const building b = {.t = {g, store, a->eps}, .g = g, .a = a, .out = out};
    out->extent = graph_extent_add(g, "n_frame", n_frame);
    out->frames =
        graph_input(g, "frames", TYPE_F32, 2,
                    (graph_dim[]){{n_frame, out->extent},
                                  gemma4_tower_dim(a->n_layer ? GEMMA4_AUDIO_MEL : a->n_out)});
    graph_value x = out->frames;
    if (a->n_layer) {
        out->distance =
            graph_input(g, "distance", TYPE_F32, 2,
                        (graph_dim[]){gemma4_tower_dim(PAST), gemma4_tower_dim(a->n_embd)});
        x = encode(&b, x);
    }
    x = graph_linear(g, gemma4_tower_norm(&b.t, x, GEMMA4_NONE),
                     gemma4_tower_stored(&b.t, a->projection));
    out->soft = x;
    graph_output(g, x, "soft");
    return graph_status(g, error);
}

/* ---- what is given --------------------------------------------------------------------------- */

uint32_t gemma4_audio_soft(const gemma4_audio *a, uint32_t n_frame) {
    return a->n_layer ? (n_frame + 3) / 4 : n_frame;
}

void gemma4_audio_distances(const gemma4_audio *a, float *out) {
    const uint32_t half = a->n_embd / 2;
    for (uint32_t p = 0; p < PAST; p++)
        for (uint32_t i = 0; i < half; i++) {
            const double apart = PAST - 1 - p,
                         angle = apart * exp(-(double)i * log(10000.0) / (half - 1));
            out[p * a->n_embd + i] = (float)sin(angle);
            out[p * a->n_embd + half + i] = (float)cos(angle);
        }
}

void gemma4_audio_mask(uint32_t n_soft, float *out) {
    for (uint32_t t = 0; t < n_soft; t++)
        for (uint32_t p = 0; p < PAST; p++) out[t * PAST + p] = t + p < PAST - 1 ? -1e9f : 0;
}
