/* vision.c - the vision tower: keys and weights, the graph, and what a picture gives it. */
#include "gemma4/vision.h"

#include "base/error.h"

#include <math.h>
#include <stdio.h>
#include <string.h>

enum {
    CHANNELS = 3,
    POOL = 3,   /* in no file */
    ANGLES = 3, /* numbers of an angle: cosine, sine negative and as it is */
    LAYERS_MAX = 256,
    PRODUCTS = 7, /* of a layer */
    GROUP_VECTORS = 0,
    GROUP_GLOBAL = 1,
    GROUP_LAYER = 16
};
#define EVERY_PATCH 1e9f             /* last key of a row; exact, beyond any */
static const double rope_base = 100; /* in no file */

/* ---- keys ------------------------------------------------------------------------------------ */

static beryl_status read_keys(const format_gguf *gguf, gemma4_vision *v, beryl_error *error) {
    uint32_t patch = 0, budget = 0;
    const struct {
        const char *name;
        uint32_t least, most, *out;
    } keys[] = {
        {"block_count", 0, LAYERS_MAX, &v->n_layer},
        {"embedding_length", 1, 1 << 16, &v->n_embd},
        {"patch_size", 1, 64, &patch},
    };
    for (size_t i = 0; i < sizeof keys / sizeof *keys; i++) {
        const beryl_status status = gemma4_tower_key(gguf, "vision", keys[i].name, keys[i].least,
                                                     keys[i].most, keys[i].out, error);
        if (status != BERYL_OK) return status;
    }
    beryl_error ignored = {0};
    if (gemma4_tower_key(gguf, "vision", "max_soft_tokens", 1, 1120, &budget, &ignored) == BERYL_OK)
        v->n_soft = budget;
    v->pool = v->n_layer ? POOL : 1;
    v->side = v->n_layer ? patch : POOL * patch;
    v->eps = 1e-6f;
    if (!v->n_layer) return BERYL_OK;
    beryl_status status =
        gemma4_tower_key(gguf, "vision", "attention.head_count", 1, 256, &v->n_head, error);
    if (status == BERYL_OK)
        status =
            gemma4_tower_key(gguf, "vision", "feed_forward_length", 1, 1 << 18, &v->n_ff, error);
    if (status != BERYL_OK) return status;
    const format_gguf_tensor *q = format_gguf_tensor_find(gguf, "v.blk.0.attn_q.weight");
    const uint64_t rows = q ? q->ne[1] : 0;
    if (!rows || rows > 1 << 16 || rows % v->n_head || rows / v->n_head % 4)
        return base_fail(error, BERYL_UNSUPPORTED,
                         "vision: %llu rows of 'v.blk.0.attn_q.weight' for %u heads",
                         (unsigned long long)rows, v->n_head);
    v->head_dim = (uint32_t)rows / v->n_head;
    return BERYL_OK;
}

/* ---- weights --------------------------------------------------------------------------------- */

static void add_layers(gemma4_adding *a, gemma4_vision *v, uint32_t packed) {
    const uint32_t rows = v->n_head * v->head_dim, n_embd = v->n_embd, n_ff = v->n_ff,
                   head_dim = v->head_dim, one = 1;
    for (uint32_t i = 0; i < v->n_layer; i++) {
        gemma4_vision_layer *layer = &v->layers[i];
        char prefix[32];
        uint32_t number = i * PRODUCTS;
        snprintf(prefix, sizeof prefix, "v.blk.%u.", i);
#define X(name, out, in) \
    layer->name =        \
        gemma4_tower_product_add(a, prefix, #name, out, in, GROUP_LAYER + i, packed, number++);
        GEMMA4_VISION_PRODUCT_LIST(X)
#undef X
#define X(name, n, optional) \
    layer->name = gemma4_tower_vector_add(a, prefix, #name ".weight", n, optional);
        GEMMA4_VISION_VECTOR_LIST(X)
#undef X
    }
}

/* Without a tower: three norms around a product. Some files number them from 0 on. */
static void add_embedder(gemma4_adding *a, gemma4_vision *v, uint32_t n_pixel) {
    const uint32_t first = !format_gguf_tensor_find(a->gguf, "v.patch_norm.0.weight");
    v->patch_bias = gemma4_tower_vector_add(a, "v.", "patch_embd.bias", v->n_embd, false);
    for (uint32_t i = 0; i < 3; i++) {
        char name[32];
        for (uint32_t k = 0; k < 2; k++) {
            snprintf(name, sizeof name, "patch_norm.%u.%s", i + first, k ? "bias" : "weight");
            v->patch_norm[i][k] =
                gemma4_tower_vector_add(a, "v.", name, i ? v->n_embd : n_pixel, false);
        }
    }
}

beryl_status gemma4_vision_add(const format_gguf *gguf, uint32_t d, base_arena *arena,
                               graph_store *store, gemma4_vision *v, beryl_error *error) {
    *v = (gemma4_vision){.d = d};
    const format_gguf_tensor *positions = format_gguf_tensor_find(gguf, "v.position_embd.weight");
    if (!positions) return base_fail(error, BERYL_NOT_FOUND, "this model sees no pictures");
    beryl_status status = read_keys(gguf, v, error);
    if (status != BERYL_OK) return status;
    if (positions->ne[1] > 1 << 20 || positions->ne[2] != 2)
        return base_fail(error, BERYL_BAD_FILE,
                         "tensor 'v.position_embd.weight' has no two lists of positions");
    v->n_position = (uint32_t)positions->ne[1];
    v->layers = base_arena_take(arena, v->n_layer + 1, sizeof *v->layers);
    if (!v->layers) return base_no_memory(error);
    gemma4_adding a = {.gguf = gguf, .store = store, .error = error, .vectors = GROUP_VECTORS};
    const uint32_t n_pixel = CHANNELS * v->side * v->side,
                   n_clamp = (v->n_layer * PRODUCTS + 1) * TOWER_CLAMPS,
                   packed = gemma4_tower_vector_add(&a, "v.", "clamp_data", n_clamp, true);
    v->patch_embd = gemma4_tensor_add(&a, "v.",
                                      (gemma4_wanted){.name = "patch_embd.weight",
                                                      .rank = 2,
                                                      .dim = {v->n_embd, n_pixel},
                                                      .flat = true,
                                                      .group = GROUP_GLOBAL});
    v->position_embd = gemma4_tensor_add(&a, "v.",
                                         (gemma4_wanted){.name = "position_embd.weight",
                                                         .rank = 2,
                                                         .dim = {2 * v->n_position, v->n_embd},
                                                         .flat = true,
                                                         .group = GROUP_GLOBAL});
    v->std_bias = gemma4_tower_vector_add(&a, "v.", "std_bias", v->n_embd, true);
    v->std_scale = gemma4_tower_vector_add(&a, "v.", "std_scale", v->n_embd, true);
    if (v->n_layer) add_layers(&a, v, packed);
    else add_embedder(&a, v, n_pixel);
    v->projection = gemma4_tower_product_add(&a, "mm.", "input_projection", d, v->n_embd,
                                             GROUP_GLOBAL, packed, v->n_layer * PRODUCTS);
    return a.status;
}

/* ---- the graph ------------------------------------------------------------------------------- */

typedef struct building {
    gemma4_tower t;
    graph *g;
    const gemma4_vision *v;
    graph_dim n, m;         /* patches, soft tokens */
    graph_value cosines;    /* [n, 1, 2, 1, quarter] */
    graph_value sines;      /* [n, 1, 2, 2, quarter] */
    graph_value slot, last; /* of attention over all patches */
} building;

/* [n, H * head_dim] as [n, H, head_dim] */
static graph_value heads(const building *b, graph_value x) {
    const uint32_t n_head = b->v->n_head, dim = b->v->head_dim;
    return graph_reshape(b->g, x, 3,
                         (graph_dim[]){b->n, gemma4_tower_dim(n_head), gemma4_tower_dim(dim)});
}

/* Queries or keys, normed and rotated: one after the other, so that few are in memory at once. A
 * head holds pairs that turn by columns in its first half, by rows in its second, the two of a pair
 * a quarter apart: [n, H, 2, 2, quarter]. */
static graph_value turned_rows(const building *b, graph_value x, const gemma4_clamped *w,
                               uint32_t norm) {
    graph *g = b->g;
    const graph_dim two = {2, 0}, quarter = gemma4_tower_dim(b->v->head_dim / 4);
    x = gemma4_tower_norm(&b->t, heads(b, gemma4_tower_linear(&b->t, x, w)), norm);
    x = graph_reshape(g, x, 5,
                      (graph_dim[]){b->n, gemma4_tower_dim(b->v->n_head), two, two, quarter});
    const graph_value across = graph_mul(g, graph_flip(g, x, 3), b->sines);
    return heads(b, graph_add(g, graph_mul(g, x, b->cosines), across));
}

static graph_value as_keys(const building *b, graph_value x) {
    return graph_unsqueeze(b->g, x, 0);
}

static graph_value attend(const building *b, const gemma4_vision_layer *layer, graph_value x) {
    graph *g = b->g;
    const graph_value q = turned_rows(b, x, &layer->attn_q, layer->attn_q_norm),
                      k = turned_rows(b, x, &layer->attn_k, layer->attn_k_norm);
    graph_value v = heads(b, gemma4_tower_linear(&b->t, x, &layer->attn_v));
    v = graph_rms_norm(g, v, 0, b->v->eps);
    const graph_value o =
        graph_attention(g, q, as_keys(b, k), as_keys(b, v), b->slot, b->last, 1, 0);
    return graph_reshape(g, o, 2,
                         (graph_dim[]){b->n, gemma4_tower_dim(b->v->n_head * b->v->head_dim)});
}

static graph_value layer_of(const building *b, const gemma4_vision_layer *layer, graph_value h) {
    graph *g = b->g;
    graph_value o = attend(b, layer, gemma4_tower_norm(&b->t, h, layer->ln1));
    h = graph_add(g, h,
                  gemma4_tower_norm(&b->t, gemma4_tower_linear(&b->t, o, &layer->attn_out),
                                    layer->attn_post_norm));
    const graph_value x = gemma4_tower_norm(&b->t, h, layer->ln2);
    const graph_value gate = gemma4_tower_linear(&b->t, x, &layer->ffn_gate);
    const graph_value up = gemma4_tower_linear(&b->t, x, &layer->ffn_up);
    const graph_value f = gemma4_tower_linear(&b->t, graph_geglu(g, gate, up), &layer->ffn_down);
    h = graph_add(g, h, gemma4_tower_norm(&b->t, f, layer->ffn_post_norm));
    return layer->out_scale == GEMMA4_NONE
               ? h
               : graph_mul(g, h, gemma4_tower_stored(&b->t, layer->out_scale));
}

static graph_value layer_norm(const building *b, graph_value x, uint32_t i) {
    const uint32_t *w = b->v->patch_norm[i];
    return graph_layer_norm(b->g, x, gemma4_tower_stored(&b->t, w[0]),
                            gemma4_tower_stored(&b->t, w[1]), 1e-5f);
}

static graph_value add_positions(const building *b, graph_value h, const gemma4_vision_graph *t) {
    const graph_value table = gemma4_tower_stored(&b->t, b->v->position_embd);
    const graph_value column = graph_gather_rows(b->g, table, t->columns, 1);
    const graph_value row = graph_gather_rows(b->g, table, t->rows, 1);
    return graph_add(b->g, graph_add(b->g, h, column), row);
}

/* Bytes of pixels as [n, 3 * side * side], channel by channel: -1 to 1, or 0 to 1 without a
 * tower. */
static graph_value values_of(const building *b, graph_value pixels) {
    const uint32_t tower = b->v->n_layer != 0;
    graph *g = b->g;
    graph_value x =
        graph_cast(g, graph_permute(g, pixels, 3, (uint32_t[]){0, 2, 1}), TYPE_F32, false);
    x = graph_scale(g, x, (tower ? 2.0f : 1.0f) / 255);
    if (tower) x = graph_sub(g, x, graph_clamp(g, x, 1, 1));
    return graph_reshape(g, x, 2,
                         (graph_dim[]){b->n, gemma4_tower_dim(CHANNELS * b->v->side * b->v->side)});
}

/* Of each patch, [n, 3, 2, quarter]: by column, by row. The first of a pair takes the second by the
 * negative sine. */
static void add_angles(building *b, gemma4_vision_graph *out) {
    graph *g = b->g;
    const graph_dim two = {2, 0}, quarter = gemma4_tower_dim(b->v->head_dim / 4);
    out->angles = graph_input(g, "angles", TYPE_F32, 4,
                              (graph_dim[]){b->n, gemma4_tower_dim(ANGLES), two, quarter});
    b->cosines = graph_unsqueeze(g, graph_narrow(g, out->angles, 1, 0, 1, 1), 3);
    b->sines =
        graph_permute(g, graph_narrow(g, out->angles, 1, 1, 2, 1), 4, (uint32_t[]){0, 2, 1, 3});
    b->sines = graph_unsqueeze(g, b->sines, 1);
}

static graph_value pooled(const building *b, graph_value h) {
    const gemma4_vision *v = b->v;
    graph *g = b->g;
    h = graph_reshape(
        g, h, 3,
        (graph_dim[]){b->m, gemma4_tower_dim(v->pool * v->pool), gemma4_tower_dim(v->n_embd)});
    h = graph_squeeze(g, graph_reduce(g, OP_MEAN, h, 1u << 1, 0), 1);
    h = graph_scale(g, h, sqrtf((float)v->n_embd));
    if (v->std_bias != GEMMA4_NONE) h = graph_sub(g, h, gemma4_tower_stored(&b->t, v->std_bias));
    if (v->std_scale != GEMMA4_NONE) h = graph_mul(g, h, gemma4_tower_stored(&b->t, v->std_scale));
    return h;
}

beryl_status gemma4_vision_build(const gemma4_vision *v, const graph_store *store, base_heap *heap,
                                 uint32_t n_soft, gemma4_vision_graph *out, beryl_error *error) {
    *out = (gemma4_vision_graph){.g = graph_open(heap)};
    if (!out->g) return base_no_memory(error);
    building b = {.t = {out->g, store, v->eps}, .v = v, .g = out->g};
    graph *g = out->g;
    out->extent = graph_extent_add(g, "n_soft", n_soft);
    b.m = (graph_dim){n_soft, out->extent};
    b.n = graph_dim_product(g, b.m, gemma4_tower_dim(v->pool * v->pool));
    out->pixels = graph_input(
        g, "pixels", TYPE_U8, 3,
        (graph_dim[]){b.n, gemma4_tower_dim(v->side * v->side), gemma4_tower_dim(CHANNELS)});
    out->columns = graph_input(g, "columns", TYPE_I32, 1, &b.n);
    out->rows = graph_input(g, "rows", TYPE_I32, 1, &b.n);
    graph_value h = values_of(&b, out->pixels);
    if (v->n_layer) {
        add_angles(&b, out);
        b.slot = graph_clamp(g, out->columns, 0, 0);
        b.last = graph_clamp(g, out->columns, EVERY_PATCH, EVERY_PATCH);
        h = add_positions(&b, graph_linear(g, h, gemma4_tower_stored(&b.t, v->patch_embd)), out);
        for (uint32_t i = 0; i < v->n_layer && graph_status(g, NULL) == BERYL_OK; i++)
            h = layer_of(&b, &v->layers[i], h);
        h = pooled(&b, h);
    } else {
        h = graph_linear(g, layer_norm(&b, h, 0), gemma4_tower_stored(&b.t, v->patch_embd));
        h = layer_norm(&b, graph_add(g, h, gemma4_tower_stored(&b.t, v->patch_bias)), 1);
        h = layer_norm(&b, add_positions(&b, h, out), 2);
    }
    out->soft = gemma4_tower_linear(&b.t, gemma4_tower_norm(&b.t, h, GEMMA4_NONE), &v->projection);
    graph_output(g, out->soft, "soft");
    return graph_status(g, error);
}

/* ---- a picture ------------------------------------------------------------------------------- */

uint32_t gemma4_vision_unit(const gemma4_vision *v) {
    return v->side * v->pool;
}

static void fill_pixels(const gemma4_vision *v, const uint8_t *rgb, uint32_t width, uint32_t column,
                        uint32_t row, uint8_t *out) {
    const size_t line = (size_t)v->side * CHANNELS;
    for (uint32_t y = 0; y < v->side; y++) {
        const size_t at = (size_t)(row * v->side + y) * width + column * v->side;
        memcpy(out + y * line, rgb + at * CHANNELS, line);
    }
}

/* Where a patch stands among all. */
static size_t place_of(const gemma4_vision *v, uint32_t across, uint32_t column, uint32_t row) {
    const size_t soft = (size_t)(row / v->pool) * across + column / v->pool;
    return soft * v->pool * v->pool + row % v->pool * v->pool + column % v->pool;
}

/* A half of a patch's cosines and sines, in rows of head_dim / 2: `from` has them where that is
 * another patch of the same column or row, which came before. */
static void fill_angles(uint32_t head_dim, uint32_t position, uint32_t at, const float *from,
                        float *to) {
    const uint32_t quarter = head_dim / 4, half = head_dim / 2;
    for (uint32_t k = 0; k < ANGLES && from != to; k++)
        memcpy(to + k * half + at, from + k * half + at, quarter * sizeof *to);
    for (uint32_t i = 0; i < quarter && from == to; i++) {
        const float angle = (float)position * (float)pow(rope_base, -2.0 * i / half);
        to[at + i] = (float)cos((double)angle);
        to[2 * half + at + i] = (float)sin((double)angle);
        to[half + at + i] = -to[2 * half + at + i];
    }
}

void gemma4_vision_fill(const gemma4_vision *v, const uint8_t *rgb, uint32_t width, uint32_t height,
                        uint8_t *pixels, int32_t *columns, int32_t *rows, float *angles) {
    const uint32_t unit = gemma4_vision_unit(v), across = width / unit, each = v->pool * v->pool,
                   d = v->head_dim, each_angle = ANGLES * (d / 2);
    const size_t n = (size_t)across * (height / unit) * each,
                 n_pixel = (size_t)CHANNELS * v->side * v->side;
    for (size_t i = 0; i < n; i++) {
        const uint32_t soft = (uint32_t)(i / each), inside = (uint32_t)(i % each),
                       column = soft % across * v->pool + inside % v->pool,
                       row = soft / across * v->pool + inside / v->pool;
        fill_pixels(v, rgb, width, column, row, pixels + i * n_pixel);
        columns[i] = (int32_t)column;
        rows[i] = (int32_t)(v->n_position + row);
        if (!angles) continue;
        float *to = angles + i * each_angle;
        fill_angles(d, column, 0, angles + place_of(v, across, column, 0) * each_angle, to);
        fill_angles(d, row, d / 4, angles + place_of(v, across, 0, row) * each_angle, to);
    }
}
