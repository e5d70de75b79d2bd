/* config.c - the model's shape from the file's keys. Everything is bounded here, so that later
 * products cannot overflow. */
#include "base/build.h"
#include "base/error.h"
#include "gemma4/gemma4.h"

#include <math.h>
#include <stdio.h>
#include <string.h>

enum {
    LAYER_MAX = 1024,
    WIDTH_MAX = 1 << 18,
    VOCAB_MAX = 1 << 22,
    HEAD_MAX = 1024,
    CONTEXT_MAX = 1 << 22,
    TURN_MAX = 32,
    TURN_STEPS = 31
};

#define TURN_ANGLE 262144.0 /* larger ones are left to libm */

static beryl_status check(uint32_t value, uint32_t least, uint32_t most, const char *key,
                          beryl_error *error) {
    if (value >= least && value <= most) return BERYL_OK;
    return base_fail(error, BERYL_BAD_FILE, "key '%s' is %u, not between %u and %u", key, value,
                     least, most);
}

/* Required (fallback NULL) or optional u32, bounded. */
static beryl_status number(const format_gguf *g, const char *key, const uint32_t *fallback,
                           uint32_t least, uint32_t most, uint32_t *out, beryl_error *error) {
    beryl_status status = fallback ? format_gguf_u32_or(g, key, *fallback, out, error)
                                   : format_gguf_get_u32(g, key, out, error);
    return status == BERYL_OK ? check(*out, least, most, key, error) : status;
}

beryl_status gemma4_check_architecture(const format_gguf *g, beryl_error *error) {
    base_view arch;
    beryl_status status = format_gguf_get_string(g, "general.architecture", &arch, error);
    if (status != BERYL_OK) return status;
    if (base_view_equal(arch, BASE_VIEW("gemma4"))) return BERYL_OK;
    int size = arch.size > 60 ? 60 : (int)arch.size;
    if (base_view_equal(arch, BASE_VIEW("clip")))
        return base_fail(
            error, BERYL_UNSUPPORTED,
            "this file holds the vision and audio part (mmproj) alone: give the text model's file");
    if (base_view_equal(arch, BASE_VIEW("gemma4-assistant")))
        return base_fail(error, BERYL_UNSUPPORTED,
                         "this is a drafter for speculative decoding (gemma4-assistant), not a "
                         "model of its own");
    return base_fail(error, BERYL_UNSUPPORTED,
                     "architecture '%.*s' is not supported: Beryl runs gemma4", size, arch.data);
}

static beryl_status layer_kinds(const format_gguf *g, gemma4_model *m, beryl_error *error) {
    gemma4_config *c = &m->config;
    beryl_status status = BERYL_OK;
    uint32_t n_kv_global = 0;
    format_gguf_u32_or(g, "gemma4.attention.global_head_count_kv", 0, &n_kv_global, NULL);
    for (uint32_t l = 0; status == BERYL_OK && l < c->n_layer; l++) {
        gemma4_layer *layer = &m->layers[l];
        status = format_gguf_bool_at(g, "gemma4.attention.sliding_window_pattern", l,
                                     &layer->sliding, error);
        if (status == BERYL_OK)
            status =
                format_gguf_u32_at(g, "gemma4.attention.head_count_kv", l, &layer->n_kv, error);
        if (status == BERYL_OK && n_kv_global && !layer->sliding) layer->n_kv = n_kv_global;
        if (status == BERYL_OK)
            status = check(layer->n_kv, 1, c->n_head, "gemma4.attention.head_count_kv", error);
        if (status == BERYL_OK && c->n_head % layer->n_kv)
            return base_fail(error, BERYL_BAD_FILE,
                             "layer %u: %u query heads do not divide into %u kv heads", l,
                             c->n_head, layer->n_kv);
        if (status == BERYL_OK)
            status = format_gguf_u32_at(g, "gemma4.feed_forward_length", l, &layer->n_ff, error);
        if (status == BERYL_OK)
            status = check(layer->n_ff, 1, WIDTH_MAX, "gemma4.feed_forward_length", error);
        layer->head_dim = layer->sliding ? c->head_dim_swa : c->head_dim;
        layer->owner = l < c->n_layer - c->shared_kv;
        layer->donor = l;
    }
    /* A shared layer reads the cache of the last owner of its own kind. */
    for (uint32_t l = c->n_layer - c->shared_kv; status == BERYL_OK && l < c->n_layer; l++) {
        uint32_t donor = c->n_layer - c->shared_kv;
        while (donor > 0 && m->layers[donor - 1].sliding != m->layers[l].sliding) donor--;
        if (donor == 0)
            return base_fail(error, BERYL_BAD_FILE,
                             "layer %u shares the cache of a kind that no earlier layer has", l);
        m->layers[l].donor = donor - 1;
        m->layers[l].n_kv = m->layers[donor - 1].n_kv;
    }
    m->last_owner = c->n_layer - c->shared_kv - 1;
    return status;
}

static const char *size_label(uint32_t n_layer, uint32_t n_embd) {
    static const struct {
        uint32_t n_layer, n_embd;
        const char *label;
    } sizes[] = {{35, 1536, "E2B"},
                 {42, 2560, "E4B"},
                 {48, 3840, "12B"},
                 {30, 2816, "26B-A4B"},
                 {60, 5376, "31B"}};
    for (size_t i = 0; i < sizeof sizes / sizeof *sizes; i++)
        if (sizes[i].n_layer == n_layer && sizes[i].n_embd == n_embd) return sizes[i].label;
    return "custom";
}

void gemma4_towers(const format_gguf *g, bool *sees, bool *hears) {
    *sees = format_gguf_tensor_find(g, "v.patch_embd.weight") != NULL;
    *hears = format_gguf_tensor_find(g, "a.conv1d.0.weight") ||
             format_gguf_tensor_find(g, "mm.a.input_projection.weight");
}

beryl_status gemma4_config_read(const format_gguf *g, base_arena *arena, gemma4_model *m,
                                beryl_error *error) {
    *m = (gemma4_model){0};
    gemma4_config *c = &m->config;
    const uint32_t zero = 0;
    const struct {
        const char *key;
        const uint32_t *fallback;
        uint32_t least, most, *out;
    } numbers[] = {
        {"gemma4.block_count", NULL, 1, LAYER_MAX, &c->n_layer},
        {"gemma4.context_length", NULL, 1, CONTEXT_MAX, &c->context_max},
        {"gemma4.embedding_length", NULL, 1, WIDTH_MAX, &c->n_embd},
        {"gemma4.attention.head_count", NULL, 1, HEAD_MAX, &c->n_head},
        {"gemma4.attention.key_length", NULL, 2, 4096, &c->head_dim},
        {"gemma4.attention.key_length_swa", NULL, 2, 4096, &c->head_dim_swa},
        {"gemma4.attention.sliding_window", NULL, 1, CONTEXT_MAX, &c->window},
        {"gemma4.embedding_length_per_layer_input", &zero, 0, 4096, &c->n_per_layer},
        {"gemma4.expert_count", &zero, 0, 4096, &c->n_expert},
    };
    beryl_status status = gemma4_check_architecture(g, error);
    for (size_t i = 0; status == BERYL_OK && i < sizeof numbers / sizeof *numbers; i++)
        status = number(g, numbers[i].key, numbers[i].fallback, numbers[i].least, numbers[i].most,
                        numbers[i].out, error);
    if (status == BERYL_OK)
        status = number(g, "gemma4.attention.shared_kv_layers", &zero, 0, c->n_layer - 1,
                        &c->shared_kv, error);
    if (status == BERYL_OK && c->n_expert) {
        status = number(g, "gemma4.expert_used_count", NULL, 1, c->n_expert < 16 ? c->n_expert : 16,
                        &c->n_expert_used, error);
        if (status == BERYL_OK)
            status = number(g, "gemma4.expert_feed_forward_length", NULL, 1, WIDTH_MAX,
                            &c->n_ff_expert, error);
    }
    uint32_t value_length = c->head_dim, value_length_swa = c->head_dim_swa;
    if (status == BERYL_OK)
        status = format_gguf_u32_or(g, "gemma4.attention.value_length", c->head_dim, &value_length,
                                    error);
    if (status == BERYL_OK)
        status = format_gguf_u32_or(g, "gemma4.attention.value_length_swa", c->head_dim_swa,
                                    &value_length_swa, error);
    if (status == BERYL_OK && (value_length != c->head_dim || value_length_swa != c->head_dim_swa))
        return base_fail(error, BERYL_UNSUPPORTED, "values of another length than keys");
    if (status == BERYL_OK && (c->head_dim % 2 || c->head_dim_swa % 2))
        return base_fail(error, BERYL_BAD_FILE, "heads of odd length");
    if (status == BERYL_OK)
        status = format_gguf_f32_or(g, "gemma4.attention.layer_norm_rms_epsilon", 1e-6f,
                                    &c->rms_eps, error);
    if (status == BERYL_OK)
        status = format_gguf_f32_or(g, "gemma4.rope.freq_base", 1e6f, &c->rope_base, error);
    if (status == BERYL_OK)
        status =
            format_gguf_f32_or(g, "gemma4.rope.local.freq_base", 1e4f, &c->rope_base_swa, error);
    if (status == BERYL_OK)
        status = format_gguf_f32_or(g, "gemma4.rope.freq_base_swa", c->rope_base_swa,
                                    &c->rope_base_swa, error);
    if (status == BERYL_OK)
        status = format_gguf_f32_or(g, "gemma4.final_logit_softcapping", 0, &c->softcap, error);
    if (status != BERYL_OK) return status;
    if (!(c->rope_base > 1) || !(c->rope_base_swa > 1) || !(c->rms_eps >= 0) || !(c->softcap >= 0))
        return base_fail(error, BERYL_BAD_FILE, "rope base, epsilon or soft-cap out of range");
    uint64_t n_vocab = format_gguf_count(g, "tokenizer.ggml.tokens");
    if (n_vocab < 1 || n_vocab > VOCAB_MAX)
        return base_fail(error, BERYL_BAD_FILE, "a vocabulary of %llu tokens",
                         (unsigned long long)n_vocab);
    c->n_vocab = (uint32_t)n_vocab;
    c->size_label = size_label(c->n_layer, c->n_embd);
    gemma4_towers(g, &c->has_vision, &c->has_audio);
    m->layers = base_arena_take(arena, c->n_layer, sizeof *m->layers);
    m->rope_factors = base_arena_take(arena, c->head_dim / 2, sizeof(float));
    m->rope_inverse[0] = base_arena_take(arena, c->head_dim_swa / 2, sizeof(float));
    m->rope_inverse[1] = base_arena_take(arena, c->head_dim / 2, sizeof(float));
    if (!m->layers || !m->rope_factors || !m->rope_inverse[0] || !m->rope_inverse[1])
        return base_no_memory(error);
    return layer_kinds(g, m, error);
}

/* ---- angles ---------------------------------------------------------------------------------- */

/* Cosines and sines of angles below TURN_ANGLE, to far more digits than f32 has. libm's keep a GPU
 * waiting for a fifth of a short prompt: here nothing branches, so that it runs by vectors. An
 * angle lies at most half a right angle from a multiple of one; products with the first two parts
 * of a right angle are exact. */
static void turn(const double angles[TURN_MAX], double cosines[TURN_MAX], double sines[TURN_MAX]) {
    static const double right[] = {0x1.921fb544p+0, 0x1.0b4611a6p-34, 0x1.3198a2e037073p-69};
    double both[2][TURN_MAX];
    int32_t turns[TURN_MAX];
    for (uint32_t i = 0; i < TURN_MAX; i++) {
        turns[i] = (int32_t)(angles[i] * 0.6366197723675814 + 0.5);
        const double m = turns[i], z0 = (angles[i] - m * right[0]) - m * right[1],
                     x = z0 - m * right[2], z = x * x;
        double c = 1.0 / 479001600 - z * (1.0 / 87178291200),
               s = 1.0 / 6227020800 - z * (1.0 / 1307674368000);
        c = 1.0 / 40320 + z * (-1.0 / 3628800 + z * c);
        s = 1.0 / 362880 + z * (-1.0 / 39916800 + z * s);
        both[0][i] = 1 + z * (-0.5 + z * (1.0 / 24 + z * (-1.0 / 720 + z * c)));
        both[1][i] = x + x * z * (-1.0 / 6 + z * (1.0 / 120 + z * (-1.0 / 5040 + z * s)));
    }
    for (uint32_t i = 0; i < TURN_MAX; i++) {
        const int32_t m = turns[i];
        cosines[i] = both[m & 1][i] * (1 - ((m + 1) & 2));
        sines[i] = both[~m & 1][i] * (1 - (m & 2));
    }
}

typedef struct turned { /* pairs of a head */
    double cosine[TURN_MAX], sine[TURN_MAX];
} turned;

typedef struct turning { /* of positions that follow each other; angles are exact */
    double rate[TURN_MAX];
    turned first, step[TURN_STEPS]; /* by position * rate; by 1, 2 .. times rate */
    uint32_t n_step, at;            /* steps that are known; the position, after the first */
} turning;

static void turn_by(const turning *t, double by, turned *to) {
    double angles[TURN_MAX];
    for (uint32_t k = 0; k < TURN_MAX; k++) angles[k] = by * t->rate[k];
    turn(angles, to->cosine, to->sine);
}

/* As it is, rounded to f32. */
static void turn_alone(const turning *t, double position, float cosines[TURN_MAX],
                       float sines[TURN_MAX]) {
    double angles[TURN_MAX];
    turned there;
    for (uint32_t k = 0; k < TURN_MAX; k++) angles[k] = (double)(float)(position * t->rate[k]);
    turn(angles, there.cosine, there.sine);
    for (uint32_t k = 0; k < TURN_MAX; k++) {
        cosines[k] = (float)there.cosine[k];
        sines[k] = (float)there.sine[k];
    }
}

/* next: the position follows the last one. What an angle loses when it is rounded is so little that
 * a few terms make up for it. Beside a multiple of a right angle the sums have lost digits. */
static void turn_to(turning *t, double position, bool next, float cosines[TURN_MAX],
                    float sines[TURN_MAX]) {
    turned there;
    int32_t lost = 0;
    if (!next || t->at == TURN_STEPS) {
        turn_by(t, position, &t->first);
        t->at = 0;
        there = t->first;
    } else {
        if (t->at == t->n_step) turn_by(t, ++t->n_step, &t->step[t->at]);
        const turned *first = &t->first, *step = &t->step[t->at++];
        for (uint32_t k = 0; k < TURN_MAX; k++) {
            there.cosine[k] = first->cosine[k] * step->cosine[k] - first->sine[k] * step->sine[k];
            there.sine[k] = first->sine[k] * step->cosine[k] + first->cosine[k] * step->sine[k];
        }
    }
    for (uint32_t k = 0; k < TURN_MAX; k++) {
        const double x = position * t->rate[k], d = (double)(float)x - x, z = d * d,
                     c = 1 - z * (0.5 - z * (1.0 / 24)), s = d * (1 - z * (1.0 / 6));
        cosines[k] = (float)(there.cosine[k] * c - there.sine[k] * s);
        sines[k] = (float)(there.sine[k] * c + there.cosine[k] * s);
    }
    for (uint32_t k = 0; k < TURN_MAX; k++) lost |= fabsf(cosines[k]) < 1e-7f;
    for (uint32_t k = 0; k < TURN_MAX; k++) lost |= fabsf(sines[k]) < 1e-7f;
    if (lost) turn_alone(t, position, cosines, sines);
}

/* TURN_MAX pairs of a head, or the last ones: out [n, stride], sines `half` behind cosines. */
static void pairs_angles(const float *inverse, uint32_t some, const int32_t *positions, uint32_t n,
                         float *out, uint32_t half) {
    turning t = {.n_step = 0, .at = TURN_STEPS};
    float cosines[TURN_MAX], sines[TURN_MAX];
    double fastest = 0;
    for (uint32_t k = 0; k < some; k++) {
        t.rate[k] = (double)inverse[k];
        fastest = !(t.rate[k] <= fastest) ? t.rate[k] : fastest;
    }
    for (uint32_t i = 0; i < n; i++, out += 2 * half) {
        const double position = positions[i], most = position * fastest;
        const bool turns = most >= 1e-9 && most < TURN_ANGLE;
        if (turns && (BUILD_IS_MODULE || !(fastest * TURN_STEPS < TURN_ANGLE))) {
            turn_alone(&t, position, cosines, sines);
        } else if (turns) {
            turn_to(&t, position, i && positions[i] == positions[i - 1] + 1, cosines, sines);
        } else {
            t.at = TURN_STEPS;
            for (uint32_t k = 0; k < TURN_MAX; k++) sines[k] = (float)(position * t.rate[k]);
            /* pairs that do not rotate, three quarters of a global head */
            for (uint32_t k = 0; k < TURN_MAX; k++) cosines[k] = 1;
            for (uint32_t k = 0; k < some && !(most < 1e-9); k++) { /* a strange file's */
                const double angle = (double)sines[k];
                cosines[k] = (float)cos(angle), sines[k] = (float)sin(angle);
            }
        }
        memcpy(out, cosines, some * sizeof *out);
        memcpy(out + half, sines, some * sizeof *out);
    }
}

void gemma4_angles(const gemma4_model *m, bool global, const int32_t *positions, uint32_t n,
                   float *out) {
    const uint32_t half = (global ? m->config.head_dim : m->config.head_dim_swa) / 2;
    for (uint32_t from = 0; from < half; from += TURN_MAX)
        pairs_angles(m->rope_inverse[global] + from,
                     half - from < TURN_MAX ? half - from : TURN_MAX, positions, n, out + from,
                     half);
}
