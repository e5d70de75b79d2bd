/* config.c - the model's shape from the file's keys. Everything is bounded here, so that later
 * products cannot overflow. */
#include "base/error.h"
#include "gemma4/gemma4.h"

#include <stdio.h>
#include <string.h>

enum {
    LAYER_MAX = 1024,
    WIDTH_MAX = 1 << 18,
    VOCAB_MAX = 1 << 22,
    HEAD_MAX = 1024,
    CONTEXT_MAX = 1 << 22
};

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
