/* model_make.c - see model_make.h. Letters: d width, H query heads, h kv heads, V vocabulary, f
 * feed-forward width, E experts. */
#include "model_make.h"

#include "gguf_make.h"
#include "text/tokenizer.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { BLOCK_MAX = 256, LAYER_MAX = 5, WINDOW = 4, TYPE_MAX = 9 };

/* The shape of one kind. Types of matrices are taken in turn, as the rows of a matrix allow. */
typedef struct shape {
    uint32_t n_layer, d, n_head, n_kv, head_dim, head_dim_swa, f, n_per_layer, shared, n_expert,
        f_expert;
    bool joined, output, raw_values, suppress;
    base_type types[TYPE_MAX];
    uint32_t n_type;
} shape;

/* clang-format off */
static const shape shapes[MODEL_MAKE_COUNT] = {
    [MODEL_MAKE_DENSE] = {.n_layer = 2, .d = 8, .n_head = 2, .n_kv = 1, .head_dim = 8, .head_dim_swa
     = 4, .f = 8, .raw_values = true, .suppress = true, .types = {TYPE_F32, TYPE_F16, TYPE_BF16},
     .n_type = 3},
    [MODEL_MAKE_SMALL] = {.n_layer = 3, .d = 32, .n_head = 2, .n_kv = 1, .head_dim = 16,
     .head_dim_swa = 8, .f = 32, .n_per_layer = 4, .shared = 1, .output = true, .types = {TYPE_Q8_0,
     TYPE_Q4_0, TYPE_Q4_1, TYPE_Q5_0, TYPE_Q5_1}, .n_type = 5},
    [MODEL_MAKE_EXPERTS] = {.n_layer = 2, .d = 32, .n_head = 2, .n_kv = 2, .head_dim = 8,
     .head_dim_swa = 8, .f = 64, .n_expert = 3, .f_expert = 16, .types = {TYPE_NVFP4, TYPE_IQ4_NL,
     TYPE_MXFP4}, .n_type = 3},
    [MODEL_MAKE_BLOCKS] = {.n_layer = 3, .d = 2, .n_head = 8, .n_kv = 1, .head_dim = 32,
     .head_dim_swa = 32, .f = 256, .joined = true, .types = {TYPE_Q2_K, TYPE_Q3_K, TYPE_Q4_K,
     TYPE_Q5_K, TYPE_Q6_K, TYPE_IQ4_XS}, .n_type = 6},
    [MODEL_MAKE_TABLES] = {.n_layer = 5, .d = 2, .n_head = 8, .n_kv = 1, .head_dim = 32,
     .head_dim_swa = 32, .f = 256, .joined = true, .types = {TYPE_IQ1_S, TYPE_IQ1_M, TYPE_IQ2_XXS,
     TYPE_IQ2_XS, TYPE_IQ2_S, TYPE_IQ3_XXS, TYPE_IQ3_S, TYPE_TQ1_0, TYPE_TQ2_0}, .n_type = 9},
};
/* model_make_of: every row is whole blocks of any type. */
static const shape uniform = {.n_layer = 2, .d = 256, .n_head = 4, .n_kv = 2, .head_dim = 64,
    .head_dim_swa = 64, .f = 256, .n_type = 1};
/* clang-format on */

static const char *const characters[] = {
    "\n", "a",   "d",  "e",      "h",      "i",      "l",
    "m",  "o",   "r",  "s",      "t",      "u",      "\xE2\x96\x81",
    "th", "the", "hi", "<0x41>", "<0xC3>", "<0xA9>", "thought\n"};
static const char *const merges[] = {"t h", "th e", "h i"};
enum {
    N_CHARACTER = sizeof characters / sizeof *characters,
    N_TOKEN = TEXT_SPECIAL_COUNT + N_CHARACTER
};

typedef struct making {
    gguf_make file;
    const shape *s;
    uint64_t seed;
    uint32_t n_matrix;
    bool written_out; /* matrices as F32 */
    char prefix[16];
} making;

static uint32_t draw(making *m) {
    m->seed = m->seed * 6364136223846793005u + 1442695040888963407u;
    return (uint32_t)(m->seed >> 33);
}

/* Neither so large that sums overflow nor all but zero; in wide rows smaller. */
static bool is_usual(const making *m, base_type type, uint32_t rank, const uint8_t *block) {
    const float size = m->s->d < BLOCK_MAX ? 1 : rank > 1 ? 8 : 2;
    float x[BLOCK_MAX], most = 0;
    base_dequantise(type, block, x, base_type_block(type));
    for (uint32_t i = 0; i < base_type_block(type); i++) {
        if (!(fabsf(x[i]) < 2 / size)) return false;
        most = fmaxf(most, fabsf(x[i]));
    }
    return most > 0.1f / size;
}

/* Random bytes; a block of them is drawn until its numbers are usual ones. */
static void add(making *m, const char *name, base_type type, uint32_t rank, const uint32_t *dim) {
    char full[64];
    uint64_t ne[3], n = 1;
    for (uint32_t i = 0; i < rank; i++) {
        ne[i] = dim[rank - 1 - i];
        n *= ne[i];
    }
    const uint32_t unit = base_type_block_bytes(type);
    size_t size = (size_t)(n / base_type_block(type)) * unit;
    uint8_t *data = malloc(size);
    if (!data) abort();
    for (size_t at = 0; at < size; at += unit) do
            for (uint32_t i = 0; i < unit; i++) data[at + i] = (uint8_t)draw(m);
        while (!is_usual(m, type, rank, data + at));
    if (m->written_out && rank > 1) {
        float *values = malloc((size_t)n * sizeof *values);
        if (!values) abort();
        base_dequantise(type, data, values, (size_t)n);
        free(data);
        data = (uint8_t *)values;
        size = (size_t)n * sizeof *values;
        type = TYPE_F32;
    }
    snprintf(full, sizeof full, "%s%s", m->prefix, name);
    static const int ids[] = {
#define X(id_name, text, id, ...) id,
        BASE_TYPE_LIST(X)
#undef X
    };
    gguf_make_tensor(&m->file, full, (uint32_t)ids[type], rank, ne, data, size);
    free(data);
}

static void add_vector(making *m, const char *name, uint32_t n) {
    add(m, name, TYPE_F32, 1, &n);
}

/* [n_expert,] out, in; n_expert 0: a matrix. */
static void add_matrix(making *m, const char *name, uint32_t n_expert, uint32_t out, uint32_t in) {
    const uint32_t dim[] = {n_expert, out, in};
    base_type type = TYPE_F16;
    for (uint32_t i = 0; i < m->s->n_type; i++) {
        const base_type next = m->s->types[m->n_matrix++ % m->s->n_type];
        if (in % base_type_block(next)) continue;
        type = next;
        break;
    }
    add(m, name, type, n_expert ? 3 : 2, n_expert ? dim : dim + 1);
}

static bool is_sliding(const shape *s, uint32_t layer) {
    return layer % 2 == 0 && s->n_layer > 1;
}

static void add_layer(making *m, uint32_t l) {
    const shape *s = m->s;
    const uint32_t head = is_sliding(s, l) ? s->head_dim_swa : s->head_dim, q = s->n_head * head,
                   kv = s->n_kv * head;
    const bool owner = l < s->n_layer - s->shared;
    snprintf(m->prefix, sizeof m->prefix, "blk.%u.", l);
    add_vector(m, "attn_norm.weight", s->d);
    if (s->joined) {
        add_matrix(m, "attn_qkv.weight", 0, q + 2 * kv, s->d);
    } else {
        add_matrix(m, "attn_q.weight", 0, q, s->d);
        if (owner) add_matrix(m, "attn_k.weight", 0, kv, s->d);
        if (owner && (is_sliding(s, l) || !s->raw_values))
            add_matrix(m, "attn_v.weight", 0, kv, s->d);
    }
    add_matrix(m, "attn_output.weight", 0, s->d, q);
    add_vector(m, "attn_q_norm.weight", head);
    if (owner) add_vector(m, "attn_k_norm.weight", head);
    add_vector(m, "post_attention_norm.weight", s->d);
    add_vector(m, "ffn_norm.weight", s->d);
    add_matrix(m, "ffn_gate.weight", 0, s->f, s->d);
    add_matrix(m, "ffn_up.weight", 0, s->f, s->d);
    add_matrix(m, "ffn_down.weight", 0, s->d, s->f);
    add_vector(m, "post_ffw_norm.weight", s->d);
    if (s->n_expert) {
        add_matrix(m, "ffn_gate_inp.weight", 0, s->n_expert, s->d);
        add_vector(m, "ffn_gate_inp.scale", s->d);
        if (l % 2 == 0) {
            add_matrix(m, "ffn_gate_up_exps.weight", s->n_expert, 2 * s->f_expert, s->d);
            add_vector(m, "ffn_gate_up_exps.scale", s->n_expert);
        } else {
            add_matrix(m, "ffn_gate_exps.weight", s->n_expert, s->f_expert, s->d);
            add_matrix(m, "ffn_up_exps.weight", s->n_expert, s->f_expert, s->d);
        }
        add_matrix(m, "ffn_down_exps.weight", s->n_expert, s->d, s->f_expert);
        add_vector(m, "ffn_down_exps.scale", s->n_expert);
        add_vector(m, "pre_ffw_norm_2.weight", s->d);
        add_vector(m, "post_ffw_norm_1.weight", s->d);
        add_vector(m, "post_ffw_norm_2.weight", s->d);
    }
    if (s->n_per_layer) {
        add_matrix(m, "inp_gate.weight", 0, s->n_per_layer, s->d);
        add_matrix(m, "proj.weight", 0, s->d, s->n_per_layer);
        add_vector(m, "post_norm.weight", s->d);
    }
    add_vector(m, "layer_output_scale.weight", 1);
    m->prefix[0] = 0;
}

static void add_tensors(making *m) {
    const shape *s = m->s;
    const uint32_t all = s->n_layer * s->n_per_layer, half = s->head_dim / 2;
    float factors[32]; // [half]
    for (uint32_t i = 0; i < half; i++) factors[i] = i % 2 ? 1e30f : 1;
    add_matrix(m, "token_embd.weight", 0, N_TOKEN, s->d);
    if (s->output) add_matrix(m, "output.weight", 0, N_TOKEN, s->d);
    add_vector(m, "output_norm.weight", s->d);
    gguf_make_tensor(&m->file, "rope_freqs.weight", 0, 1, (uint64_t[]){half}, factors,
                     half * sizeof *factors);
    if (s->n_per_layer) {
        add_matrix(m, "per_layer_token_embd.weight", 0, N_TOKEN, all);
        add_matrix(m, "per_layer_model_proj.weight", 0, all, s->d);
        add_vector(m, "per_layer_proj_norm.weight", s->n_per_layer);
    }
    for (uint32_t l = 0; l < s->n_layer; l++) add_layer(m, l);
}

static void add_keys(making *m, const char *name) {
    const shape *s = m->s;
    gguf_make *f = &m->file;
    const struct {
        const char *key;
        uint32_t value;
    } numbers[] = {
        {"block_count", s->n_layer},
        {"context_length", 64},
        {"embedding_length", s->d},
        {"feed_forward_length", s->f},
        {"attention.head_count", s->n_head},
        {"attention.head_count_kv", s->n_kv},
        {"attention.key_length", s->head_dim},
        {"attention.key_length_swa", s->head_dim_swa},
        {"attention.sliding_window", WINDOW},
        {"attention.shared_kv_layers", s->shared},
        {"embedding_length_per_layer_input", s->n_per_layer},
        {"expert_count", s->n_expert},
        {"expert_used_count", s->n_expert ? 2 : 0},
        {"expert_feed_forward_length", s->f_expert},
    };
    uint8_t pattern[LAYER_MAX];
    gguf_make_string(f, "general.architecture", "gemma4");
    gguf_make_string(f, "general.name", name);
    for (size_t i = 0; i < sizeof numbers / sizeof *numbers; i++) {
        char key[64];
        snprintf(key, sizeof key, "gemma4.%s", numbers[i].key);
        if (numbers[i].value) gguf_make_u32(f, key, numbers[i].value);
    }
    for (uint32_t l = 0; l < s->n_layer; l++) pattern[l] = is_sliding(s, l);
    gguf_make_array(f, "gemma4.attention.sliding_window_pattern", FORMAT_GGUF_BOOL, s->n_layer,
                    pattern, s->n_layer);
    gguf_make_f32(f, "gemma4.final_logit_softcapping", 30);
}

static void add_vocabulary(making *m) {
    gguf_make *f = &m->file;
    const char *tokens[N_TOKEN];
    int32_t types[N_TOKEN];
    for (int i = 0; i < N_TOKEN; i++) {
        tokens[i] = i < TEXT_SPECIAL_COUNT ? text_special_literal((text_special_name)i)
                                           : characters[i - TEXT_SPECIAL_COUNT];
        types[i] = i < TEXT_SPECIAL_COUNT ? TEXT_KIND_CONTROL
                   : tokens[i][0] == '<'  ? TEXT_KIND_BYTE
                                          : TEXT_KIND_NORMAL;
    }
    gguf_make_string(f, "tokenizer.ggml.model", "gemma4");
    gguf_make_strings(f, "tokenizer.ggml.tokens", tokens, N_TOKEN);
    gguf_make_strings(f, "tokenizer.ggml.merges", merges, sizeof merges / sizeof *merges);
    gguf_make_array(f, "tokenizer.ggml.token_type", FORMAT_GGUF_I32, N_TOKEN, types, sizeof types);
    gguf_make_u32(f, "tokenizer.ggml.bos_token_id", TEXT_SPECIAL_BOS);
    gguf_make_u32(f, "tokenizer.ggml.eos_token_id", TEXT_SPECIAL_EOS);
    if (m->s->suppress)
        gguf_make_array(f, "tokenizer.ggml.suppress_tokens", FORMAT_GGUF_I32, 1,
                        (int32_t[]){TEXT_SPECIAL_IMAGE}, 4);
}

const char *model_make_name(model_make_kind kind) {
    static const char *const names[] = {
#define X(name, text, what) text,
        MODEL_MAKE_LIST(X)
#undef X
    };
    return names[kind];
}

static uint8_t *make(making *m, const char *name, size_t *size) {
    add_keys(m, name);
    add_vocabulary(m);
    add_tensors(m);
    return gguf_make_take(&m->file, size);
}

uint8_t *model_make(model_make_kind kind, size_t *size) {
    making m = {.s = &shapes[kind], .seed = (uint64_t)kind + 1};
    return make(&m, model_make_name(kind), size);
}

uint8_t *model_make_of(base_type type, bool written_out, size_t *size) {
    shape s = uniform;
    s.types[0] = type;
    making m = {.s = &s, .seed = (uint64_t)type + 1, .written_out = written_out};
    return make(&m, base_type_name(type), size);
}
