/* lora.c - which matrices of the model adapters go with, and their shapes. */
#include "base/error.h"
#include "gemma4/gemma4.h"

uint32_t gemma4_lora_at(const gemma4_model *m, format_lora_target target, uint32_t layer) {
    return (target < LORA_FIRST_OF_MODEL ? layer : m->config.n_layer) * LORA_COUNT +
           (uint32_t)target;
}

uint32_t gemma4_lora_share(format_lora_target target, format_lora_target *first) {
    const bool qkv = target >= LORA_Q && target <= LORA_V,
               gated = target == LORA_GATE || target == LORA_UP;
    *first = qkv ? LORA_Q : gated ? LORA_GATE : target;
    return qkv ? 3 : gated ? 2 : 1;
}

typedef struct matrix {
    uint32_t n_expert, in, out; /* out 0: the model has none */
} matrix;

static matrix matrix_of(const gemma4_model *m, format_lora_target target, uint32_t l) {
    const gemma4_config *c = &m->config;
    const gemma4_layer *layer = &m->layers[l];
    const uint32_t d = c->n_embd, q = c->n_head * layer->head_dim,
                   kv = layer->n_kv * layer->head_dim, p = c->n_per_layer, e = c->n_expert,
                   w = c->n_ff_expert;
    /* keys serve as values */
    const bool no_v =
        layer->owner && layer->attn_v == GEMMA4_NONE && layer->attn_qkv == GEMMA4_NONE;
    switch (target) {
    case LORA_Q: return (matrix){1, d, q};
    case LORA_K: return (matrix){1, d, kv};
    case LORA_V: return (matrix){1, d, no_v ? 0 : kv};
    case LORA_O: return (matrix){1, q, d};
    case LORA_GATE:
    case LORA_UP: return (matrix){1, d, layer->n_ff};
    case LORA_DOWN: return (matrix){1, layer->n_ff, d};
    case LORA_INP_GATE: return (matrix){1, d, p};
    case LORA_PROJ: return (matrix){1, p, p ? d : 0};
    case LORA_GATE_UP_EXPS: return (matrix){e, d, e ? 2 * w : 0};
    case LORA_DOWN_EXPS: return (matrix){e, w, e ? d : 0};
    case LORA_MODEL_PROJ: return (matrix){1, d, c->n_layer * p};
    case LORA_EMBED: return (matrix){1, c->n_vocab, d};
    case LORA_HEAD: return (matrix){1, d, c->n_vocab};
    case LORA_COUNT: break;
    }
    return (matrix){0};
}

bool gemma4_lora_shape(const gemma4_model *m, format_lora_target target, uint32_t layer,
                       uint32_t *in, uint32_t *out) {
    const matrix has = matrix_of(m, target, layer);
    *in = has.in;
    *out = has.out;
    return has.out != 0;
}

beryl_status gemma4_lora_check(const gemma4_model *m, const format_lora_part *part, bool *acts,
                               beryl_error *error) {
    const bool of_layer = part->target < LORA_FIRST_OF_MODEL;
    const int size = (int)(part->a.name.size < 200 ? part->a.name.size : 200);
    const char *name = format_lora_target_name(part->target);
    *acts = false;
    if (of_layer && part->layer >= m->config.n_layer)
        return base_fail(error, BERYL_UNSUPPORTED,
                         "adapter of another model: tensor '%.*s', and the model has %u layers",
                         size, part->a.name.data, m->config.n_layer);
    const matrix want = matrix_of(m, part->target, of_layer ? part->layer : 0);
    if (!want.out)
        return base_fail(error, BERYL_UNSUPPORTED,
                         "adapter of another model: tensor '%.*s', and the model has no %s there",
                         size, part->a.name.data, name);
    if (part->n_expert != want.n_expert || part->in != want.in || part->out != want.out)
        return base_fail(
            error, BERYL_UNSUPPORTED,
            "adapter of another model: tensor '%.*s' is for a matrix [%u, %u, %u], the "
            "model's %s is [%u, %u, %u] (experts, out, in)",
            size, part->a.name.data, part->n_expert, part->out, part->in, name, want.n_expert,
            want.out, want.in);
    *acts = m->layers[of_layer ? part->layer : 0].owner ||
            (part->target != LORA_K && part->target != LORA_V);
    return BERYL_OK;
}

uint32_t gemma4_lora_places(const gemma4_model *m, format_lora_target target, uint32_t l,
                            gemma4_lora_place places[2]) {
    const bool of_layer = target < LORA_FIRST_OF_MODEL;
    const gemma4_layer *layer = &m->layers[of_layer ? l : 0];
    const uint32_t n = matrix_of(m, target, of_layer ? l : 0).out,
                   q = m->config.n_head * layer->head_dim, joined = layer->attn_qkv;
    uint32_t weight = GEMMA4_NONE, first = 0;
    places[1] = (gemma4_lora_place){GEMMA4_NONE, 0, 0, 0};
    switch (target) {
    case LORA_Q: weight = joined != GEMMA4_NONE ? joined : layer->attn_q; break;
    case LORA_K:
        weight = joined != GEMMA4_NONE ? joined : layer->attn_k;
        first = joined != GEMMA4_NONE ? q : 0;
        break;
    case LORA_V:
        weight = joined != GEMMA4_NONE ? joined : layer->attn_v;
        first = joined != GEMMA4_NONE ? q + n : 0;
        break;
    case LORA_O: weight = layer->attn_output; break;
    case LORA_GATE: weight = layer->ffn_gate; break;
    case LORA_UP: weight = layer->ffn_up; break;
    case LORA_DOWN: weight = layer->ffn_down; break;
    case LORA_INP_GATE: weight = layer->inp_gate; break;
    case LORA_PROJ: weight = layer->proj; break;
    case LORA_GATE_UP_EXPS:
        weight = layer->ffn_gate_up_exps;
        if (weight != GEMMA4_NONE) break;
        places[0] = (gemma4_lora_place){layer->ffn_gate_exps, 0, 0, n / 2};
        places[1] = (gemma4_lora_place){layer->ffn_up_exps, 0, n / 2, n / 2};
        return 2;
    case LORA_DOWN_EXPS: weight = layer->ffn_down_exps; break;
    case LORA_MODEL_PROJ: weight = m->per_layer_model_proj; break;
    case LORA_EMBED: weight = m->token_embd; break;
    case LORA_HEAD: weight = m->output; break;
    case LORA_COUNT: break;
    }
    places[0] = (gemma4_lora_place){weight, first, 0, n};
    return weight != GEMMA4_NONE;
}
