/* weights.c - the text model's tensors: found by name or alias, checked against the
 * configuration, added to the store. */
#include "base/error.h"
#include "base/file.h"
#include "gemma4/tensors.h"

#include <math.h>
#include <stdio.h>
#include <string.h>

enum {
    GROUP_GLOBAL = 0,
    GROUP_EMBEDDING = 1,
    GROUP_PER_LAYER = 2,
    GROUP_VECTOR = 3,
    GROUP_LAYER = 16,
    GROUP_STATE = 1 << 20,
    GROUP_COPY = 1 << 21
};

static uint32_t add_matrix(gemma4_adding *a, const char *prefix, const char *name, uint32_t out,
                           uint32_t in, uint32_t group) {
    return gemma4_tensor_add(
        a, prefix, (gemma4_wanted){.name = name, .rank = 2, .dim = {out, in}, .group = group});
}

static uint32_t add_vector(gemma4_adding *a, const char *prefix, const char *name,
                           const char *alias, uint32_t n, uint32_t group) {
    return gemma4_tensor_add(
        a, prefix,
        (gemma4_wanted){
            .name = name, .alias = alias, .rank = 1, .dim = {n}, .plain = true, .group = group});
}

static bool has(const gemma4_adding *a, const char *prefix, const char *name) {
    return gemma4_tensor_find(a->gguf, prefix, name, NULL) != NULL;
}

static void add_attention(gemma4_adding *a, const gemma4_config *c, gemma4_layer *layer,
                          const char *prefix, uint32_t group) {
    uint32_t q_rows = c->n_head * layer->head_dim, kv_rows = layer->n_kv * layer->head_dim;
    layer->attn_norm = add_vector(a, prefix, "attn_norm.weight", NULL, c->n_embd, group);
    bool joined = has(a, prefix, "attn_qkv.weight");
    if (joined) {
        layer->attn_qkv =
            add_matrix(a, prefix, "attn_qkv.weight", q_rows + 2 * kv_rows, c->n_embd, group);
    } else {
        layer->attn_q = add_matrix(a, prefix, "attn_q.weight", q_rows, c->n_embd, group);
        if (layer->owner) {
            layer->attn_k = add_matrix(a, prefix, "attn_k.weight", kv_rows, c->n_embd, group);
            /* Without V the values are the raw keys (global layers of the large models). */
            if (has(a, prefix, "attn_v.weight")) {
                layer->attn_v = add_matrix(a, prefix, "attn_v.weight", kv_rows, c->n_embd, group);
            } else if (layer->sliding) {
                if (a->status == BERYL_OK)
                    a->status = base_fail(a->error, BERYL_BAD_FILE,
                                          "tensor '%sattn_v.weight' is missing", prefix);
            }
        }
    }
    layer->attn_output = add_matrix(a, prefix, "attn_output.weight", c->n_embd, q_rows, group);
    layer->attn_q_norm = add_vector(a, prefix, "attn_q_norm.weight", NULL, layer->head_dim, group);
    if (layer->owner)
        layer->attn_k_norm =
            add_vector(a, prefix, "attn_k_norm.weight", NULL, layer->head_dim, group);
    layer->post_attention_norm = add_vector(a, prefix, "post_attention_norm.weight",
                                            "attn_post_norm.weight", c->n_embd, group);
}

static void add_experts(gemma4_adding *a, const gemma4_config *c, gemma4_layer *layer,
                        const char *prefix, uint32_t group) {
    uint32_t d = c->n_embd, e = c->n_expert, w = c->n_ff_expert;
    layer->ffn_gate_inp = add_matrix(a, prefix, "ffn_gate_inp.weight", e, d, group);
    layer->ffn_gate_inp_scale = add_vector(a, prefix, "ffn_gate_inp.scale", NULL, d, group);
    if (has(a, prefix, "ffn_gate_up_exps.weight")) {
        layer->ffn_gate_up_exps =
            gemma4_tensor_add(a, prefix,
                              (gemma4_wanted){.name = "ffn_gate_up_exps.weight",
                                              .rank = 3,
                                              .dim = {e, 2 * w, d},
                                              .group = group + 1});
    } else {
        layer->ffn_gate_exps = gemma4_tensor_add(
            a, prefix,
            (gemma4_wanted){
                .name = "ffn_gate_exps.weight", .rank = 3, .dim = {e, w, d}, .group = group + 1});
        layer->ffn_up_exps = gemma4_tensor_add(
            a, prefix,
            (gemma4_wanted){
                .name = "ffn_up_exps.weight", .rank = 3, .dim = {e, w, d}, .group = group + 1});
    }
    layer->ffn_down_exps = gemma4_tensor_add(
        a, prefix,
        (gemma4_wanted){
            .name = "ffn_down_exps.weight", .rank = 3, .dim = {e, d, w}, .group = group + 1});
    layer->ffn_down_exps_scale =
        add_vector(a, prefix, "ffn_down_exps.scale", "ffn_gate_inp.per_expert_scale", e, group);
    layer->pre_ffw_norm_2 =
        add_vector(a, prefix, "pre_ffw_norm_2.weight", "ffn_pre_norm_2.weight", d, group);
    layer->post_ffw_norm_1 =
        add_vector(a, prefix, "post_ffw_norm_1.weight", "ffn_post_norm_1.weight", d, group);
    layer->post_ffw_norm_2 =
        add_vector(a, prefix, "post_ffw_norm_2.weight", "ffn_post_norm_2.weight", d, group);
}

static void add_layer(gemma4_adding *a, gemma4_model *m, uint32_t l) {
    const gemma4_config *c = &m->config;
    gemma4_layer *layer = &m->layers[l];
    char prefix[32];
    snprintf(prefix, sizeof prefix, "blk.%u.", l);
    uint32_t group = GROUP_LAYER + 2 * l, d = c->n_embd;
    layer->k_cache = layer->v_cache = layer->k_copy = layer->v_copy = GEMMA4_NONE;
#define X(field, name, alias) layer->field = GEMMA4_NONE;
    GEMMA4_LAYER_LIST(X)
#undef X
    add_attention(a, c, layer, prefix, group);
    layer->ffn_norm = add_vector(a, prefix, "ffn_norm.weight", "ffn_pre_norm.weight", d, group);
    layer->ffn_gate = add_matrix(a, prefix, "ffn_gate.weight", layer->n_ff, d, group);
    layer->ffn_up = add_matrix(a, prefix, "ffn_up.weight", layer->n_ff, d, group);
    layer->ffn_down = add_matrix(a, prefix, "ffn_down.weight", d, layer->n_ff, group);
    layer->post_ffw_norm =
        add_vector(a, prefix, "post_ffw_norm.weight", "ffn_post_norm.weight", d, group);
    if (c->n_expert) add_experts(a, c, layer, prefix, group);
    if (c->n_per_layer) {
        layer->inp_gate = add_matrix(a, prefix, "inp_gate.weight", c->n_per_layer, d, group);
        layer->proj = add_matrix(a, prefix, "proj.weight", d, c->n_per_layer, group);
        layer->post_norm = add_vector(a, prefix, "post_norm.weight", NULL, d, group);
    }
    layer->layer_output_scale =
        gemma4_tensor_add(a, prefix,
                          (gemma4_wanted){.name = "layer_output_scale.weight",
                                          .alias = "layer_scalar.weight",
                                          .rank = 1,
                                          .dim = {1},
                                          .plain = true,
                                          .optional = true,
                                          .group = group});
}

/* Inverse frequencies, f32 as the reference has them. Without the factors in the file a quarter
 * of the pairs rotates. */
static beryl_status rope_tables(gemma4_adding *a, gemma4_model *m) {
    const gemma4_config *c = &m->config;
    uint32_t half = c->head_dim / 2;
    const format_gguf_tensor *t = format_gguf_tensor_find(a->gguf, "rope_freqs.weight");
    for (uint32_t i = 0; i < half; i++) m->rope_factors[i] = i < half / 4 ? 1 : 1e30f;
    if (t) {
        if (t->type != TYPE_F32 || t->ne[0] != half || t->size != half * sizeof(float))
            return base_fail(a->error, BERYL_BAD_FILE, "tensor 'rope_freqs.weight' is not F32 [%u]",
                             half);
        const beryl_source *source = format_gguf_source(a->gguf, t->file);
        beryl_status status =
            source->read(source->user, t->offset, m->rope_factors, half * sizeof(float));
        if (status == BERYL_PENDING) return status;
        if (status != BERYL_OK)
            return base_source_fail(source, "the rope factors", status, t->offset, a->error);
    }
    for (uint32_t i = 0; i < half; i++) {
        if (!(m->rope_factors[i] > 0))
            return base_fail(a->error, BERYL_BAD_FILE,
                             "tensor 'rope_freqs.weight' holds a value that is not positive");
        m->rope_inverse[1][i] =
            (float)(1 / pow((double)c->rope_base, 2.0 * i / c->head_dim)) / m->rope_factors[i];
    }
    for (uint32_t i = 0; i < c->head_dim_swa / 2; i++)
        m->rope_inverse[0][i] =
            (float)(1 / pow((double)c->rope_base_swa, 2.0 * i / c->head_dim_swa));
    return BERYL_OK;
}

uint64_t gemma4_per_layer_bytes(const format_gguf *gguf) {
    const format_gguf_tensor *t = format_gguf_tensor_find(gguf, "per_layer_token_embd.weight");
    return t ? t->size : 0;
}

beryl_status gemma4_weights_add(const format_gguf *gguf, gemma4_model *m, graph_store *store,
                                bool per_layer_on_host, beryl_error *error) {
    gemma4_adding a = {.vectors = GROUP_VECTOR, .gguf = gguf, .store = store, .error = error};
    gemma4_config *c = &m->config;
    uint32_t all = c->n_layer * c->n_per_layer;
    m->per_layer_on_host = per_layer_on_host;
    m->output = m->per_layer_token_embd = m->per_layer_model_proj = m->per_layer_proj_norm =
        m->tokens = m->suppress = GEMMA4_NONE;
    a.status = rope_tables(&a, m);
    m->token_embd = add_matrix(&a, "", "token_embd.weight", c->n_vocab, c->n_embd, GROUP_EMBEDDING);
    m->output = gemma4_tensor_add(&a, "",
                                  (gemma4_wanted){.name = "output.weight",
                                                  .rank = 2,
                                                  .dim = {c->n_vocab, c->n_embd},
                                                  .optional = true,
                                                  .group = GROUP_EMBEDDING});
    m->output_norm = add_vector(&a, "", "output_norm.weight", NULL, c->n_embd, GROUP_GLOBAL);
    if (c->n_per_layer) {
        m->per_layer_token_embd =
            gemma4_tensor_add(&a, "",
                              (gemma4_wanted){.name = "per_layer_token_embd.weight",
                                              .rank = 2,
                                              .dim = {c->n_vocab, all},
                                              .on_host = per_layer_on_host,
                                              .group = GROUP_PER_LAYER});
        m->per_layer_model_proj =
            add_matrix(&a, "", "per_layer_model_proj.weight", all, c->n_embd, GROUP_GLOBAL);
        m->per_layer_proj_norm =
            add_vector(&a, "", "per_layer_proj_norm.weight", NULL, c->n_per_layer, GROUP_GLOBAL);
    }
    for (uint32_t l = 0; l < c->n_layer; l++) add_layer(&a, m, l);
    return a.status;
}

beryl_status gemma4_cache_add(gemma4_model *m, graph_store *store, const gemma4_cache_desc *desc,
                              bool suppressing, beryl_error *error) {
    const gemma4_config *c = &m->config;
    uint64_t ring = (uint64_t)c->window + desc->piece + desc->ahead;
    m->n_slot = desc->n_slot;
    m->context = desc->context;
    m->ring = ring < desc->context ? (uint32_t)ring : desc->context;
    for (uint32_t l = 0; l < c->n_layer; l++) {
        gemma4_layer *layer = &m->layers[l];
        if (!layer->owner) continue;
        if (layer->head_dim % base_type_block(desc->type))
            return base_fail(error, BERYL_UNSUPPORTED, "a cache of %s with heads of %u",
                             base_type_name(desc->type), layer->head_dim);
        uint32_t dim[4] = {m->n_slot, layer->sliding ? m->ring : m->context, layer->n_kv,
                           layer->head_dim};
        bool wraps = layer->sliding && m->ring < m->context;
        const struct {
            const char *kind;
            char which;
            uint32_t *index, group;
            bool wanted;
        } states[] = {
            {"cache", 'k', &layer->k_cache, GROUP_STATE + 1, true},
            {"cache", 'v', &layer->v_cache, GROUP_STATE + 1, true},
            {"copy", 'k', &layer->k_copy, GROUP_COPY, wraps},
            {"copy", 'v', &layer->v_copy, GROUP_COPY, wraps},
        };
        for (size_t i = 0; i < sizeof states / sizeof *states; i++) {
            char name[40];
            if (!states[i].wanted) continue;
            snprintf(name, sizeof name, "%s.%u.%c", states[i].kind, l, states[i].which);
            *states[i].index =
                store_add_state(store, name, desc->type, 4, dim, states[i].group + l);
            if (*states[i].index == UINT32_MAX) return base_no_memory(error);
        }
    }
    m->tokens = store_add_state(store, "tokens", TYPE_I32, 1, (uint32_t[]){m->n_slot}, GROUP_STATE);
    m->suppress = suppressing ? store_add_state(store, "suppress", TYPE_F32, 1,
                                                (uint32_t[]){c->n_vocab}, GROUP_STATE + 100000)
                              : GEMMA4_NONE;
    if (m->tokens == UINT32_MAX || (suppressing && m->suppress == UINT32_MAX))
        return base_no_memory(error);
    return BERYL_OK;
}
