/* shape_make.c - heads of GGUF files of the published models' shapes. */
#include "shape_make.h"
#include "base/types.h"
#include "gguf_make.h"

#include <stdio.h>
#include <string.h>

enum { VOCAB = SHAPE_VOCAB, HEAD = 256, HEAD_GLOBAL = 512 };

/* clang-format off */
const shape shapes[SHAPE_COUNT] = {
    {"e2b", 35, 1536, 8, 1, 1, 6144, 512, 5, 20, 256, true, false, 0, 0, 0},
    {"e4b", 42, 2560, 8, 2, 2, 10240, 512, 6, 18, 256, false, false, 0, 0, 0},
    {"12b", 48, 3840, 16, 8, 1, 15360, 1024, 6, 0, 0, false, true, 0, 0, 0},
    {"26b-a4b", 30, 2816, 16, 8, 2, 2112, 1024, 6, 0, 0, false, true, 128, 8, 704},
    {"31b", 60, 5376, 32, 16, 4, 21504, 1024, 6, 0, 0, false, true, 0, 0, 0},
};
/* clang-format on */

/* ---- the file: its head, then zeros ---------------------------------------------------------- */

typedef struct writing {
    gguf_make make;
    uint64_t offset; /* of the next tensor's data */
    uint32_t layer;
} writing;

static void add(writing *w, const char *name, base_type type, uint32_t n_dim, uint64_t ne0,
                uint64_t ne1, uint64_t ne2) {
    static const uint32_t ids[TYPE_COUNT] = {
        [TYPE_F32] = 0, [TYPE_Q4_K] = 12, [TYPE_Q6_K] = 14, [TYPE_BF16] = 30, [TYPE_Q8_0] = 8};
    const uint64_t ne[3] = {ne0, ne1, ne2};
    uint64_t rows = (n_dim > 1 ? ne1 : 1) * (n_dim > 2 ? ne2 : 1);
    gguf_make_tensor_head(&w->make, name, ids[type], n_dim, ne, w->offset);
    w->offset = (w->offset + base_type_row_bytes(type, ne0) * rows + 31) / 32 * 32;
}

static void add_of_layer(writing *w, const char *name, base_type type, uint32_t n_dim, uint64_t ne0,
                         uint64_t ne1, uint64_t ne2) {
    char full[64];
    snprintf(full, sizeof full, "blk.%u.%s", (unsigned)w->layer, name);
    add(w, full, type, n_dim, ne0, ne1, ne2);
}

#define VECTOR(name, n) add_of_layer(w, name, TYPE_F32, 1, n, 1, 1)
#define MATRIX(name, in, out) \
    add_of_layer(w, name, (in) % 256 ? TYPE_Q8_0 : TYPE_Q4_K, 2, in, out, 1)

static void add_layer(writing *w, const shape *s, uint32_t layer) {
    bool sliding = (layer + 1) % s->period != 0, owner = layer < s->n_layer - s->shared;
    uint32_t head = sliding ? HEAD : HEAD_GLOBAL, kv = (sliding ? s->n_kv : s->n_kv_global) * head,
             q = s->n_head * head;
    uint32_t n_ff = s->n_ff * (s->wide && !owner ? 2 : 1);
    bool more = layer < s->n_layer / 8 ||
                layer % 3 == 2; /* some matrices with more bits, as quantisers choose */
    w->layer = layer;
    VECTOR("attn_norm.weight", s->d);
    MATRIX("attn_q.weight", s->d, q);
    MATRIX("attn_k.weight", s->d, kv);
    if (sliding || !s->k_eq_v)
        add_of_layer(w, "attn_v.weight", more ? TYPE_Q6_K : TYPE_Q4_K, 2, s->d, kv, 1);
    MATRIX("attn_output.weight", q, s->d);
    VECTOR("attn_q_norm.weight", head);
    VECTOR("attn_k_norm.weight", head);
    VECTOR("post_attention_norm.weight", s->d);
    VECTOR("ffn_norm.weight", s->d);
    MATRIX("ffn_gate.weight", s->d, n_ff);
    MATRIX("ffn_up.weight", s->d, n_ff);
    add_of_layer(w, "ffn_down.weight",
                 n_ff % 256 ? TYPE_Q8_0
                 : more     ? TYPE_Q6_K
                            : TYPE_Q4_K,
                 2, n_ff, s->d, 1);
    VECTOR("post_ffw_norm.weight", s->d);
    VECTOR("layer_output_scale.weight", 1);
    if (s->n_per_layer) {
        MATRIX("inp_gate.weight", s->d, s->n_per_layer);
        MATRIX("proj.weight", s->n_per_layer, s->d);
        VECTOR("post_norm.weight", s->d);
    }
    if (!s->n_expert) return;
    add_of_layer(w, "ffn_gate_inp.weight", TYPE_F32, 2, s->d, s->n_expert, 1);
    VECTOR("ffn_gate_inp.scale", s->d);
    add_of_layer(w, "ffn_gate_up_exps.weight", TYPE_Q4_K, 3, s->d, 2 * s->n_ff_expert, s->n_expert);
    add_of_layer(w, "ffn_down_exps.weight", TYPE_Q8_0, 3, s->n_ff_expert, s->d, s->n_expert);
    VECTOR("ffn_down_exps.scale", s->n_expert);
    VECTOR("pre_ffw_norm_2.weight", s->d);
    VECTOR("post_ffw_norm_1.weight", s->d);
    VECTOR("post_ffw_norm_2.weight", s->d);
}

static void add_vocabulary(gguf_make *m) {
    static char texts[VOCAB][12];
    const char *tokens[VOCAB];
    int32_t kinds[VOCAB];
    static const char *const special[] = {"<pad>",   "<eos>",   "<bos>",      "<unk>",
                                          "<|turn>", "<turn|>", "<|channel>", "<channel|>"};
    enum { N_SPECIAL = sizeof special / sizeof *special, BYTE = 6, CONTROL = 3, NORMAL = 1 };
    for (int i = 0; i < VOCAB; i++) {
        int byte = i - N_SPECIAL;
        bool is_byte = byte >= 0 && byte < 256;
        snprintf(texts[i], sizeof texts[i], is_byte ? "<0x%02X>" : "w%d",
                 (unsigned)(is_byte ? byte : i));
        tokens[i] = i < N_SPECIAL ? special[i] : texts[i];
        kinds[i] = i < N_SPECIAL ? CONTROL : is_byte ? BYTE : NORMAL;
    }
    tokens[VOCAB - 3] = "a";
    tokens[VOCAB - 2] = "b";
    tokens[VOCAB - 1] = "ab";
    gguf_make_string(m, "tokenizer.ggml.model", "gemma4");
    gguf_make_strings(m, "tokenizer.ggml.tokens", tokens, VOCAB);
    gguf_make_array(m, "tokenizer.ggml.token_type", FORMAT_GGUF_I32, VOCAB, kinds, sizeof kinds);
    gguf_make_strings(m, "tokenizer.ggml.merges", (const char *const[]){"a b"}, 1);
    gguf_make_u32(m, "tokenizer.ggml.padding_token_id", 0);
    gguf_make_u32(m, "tokenizer.ggml.eos_token_id", 1);
    gguf_make_u32(m, "tokenizer.ggml.bos_token_id", 2);
    gguf_make_u32(m, "tokenizer.ggml.unknown_token_id", 3);
}

static void add_keys(gguf_make *m, const shape *s) {
    uint32_t n_ff[64], n_kv[64];
    uint8_t sliding[64];
    for (uint32_t i = 0; i < s->n_layer; i++) {
        sliding[i] = (i + 1) % s->period != 0;
        n_ff[i] = s->n_ff * (s->wide && i >= s->n_layer - s->shared ? 2 : 1);
        n_kv[i] = sliding[i] ? s->n_kv : s->n_kv_global;
    }
    const struct {
        const char *key;
        uint32_t value;
    } numbers[] = {
        {"gemma4.block_count", s->n_layer},
        {"gemma4.context_length", 131072},
        {"gemma4.embedding_length", s->d},
        {"gemma4.attention.head_count", s->n_head},
        {"gemma4.attention.key_length", HEAD_GLOBAL},
        {"gemma4.attention.value_length", HEAD_GLOBAL},
        {"gemma4.attention.key_length_swa", HEAD},
        {"gemma4.attention.value_length_swa", HEAD},
        {"gemma4.attention.sliding_window", s->window},
        {"gemma4.attention.shared_kv_layers", s->shared},
        {"gemma4.embedding_length_per_layer_input", s->n_per_layer},
        {"gemma4.expert_count", s->n_expert},
        {"gemma4.expert_used_count", s->n_expert_used},
        {"gemma4.expert_feed_forward_length", s->n_ff_expert},
    };
    gguf_make_string(m, "general.architecture", "gemma4");
    gguf_make_string(m, "general.name", s->name);
    for (size_t i = 0; i < sizeof numbers / sizeof *numbers; i++)
        if (numbers[i].value || i < 11) gguf_make_u32(m, numbers[i].key, numbers[i].value);
    gguf_make_array(m, "gemma4.feed_forward_length", FORMAT_GGUF_U32, s->n_layer, n_ff,
                    s->n_layer * 4);
    gguf_make_array(m, "gemma4.attention.head_count_kv", FORMAT_GGUF_U32, s->n_layer, n_kv,
                    s->n_layer * 4);
    gguf_make_array(m, "gemma4.attention.sliding_window_pattern", FORMAT_GGUF_BOOL, s->n_layer,
                    sliding, s->n_layer);
    gguf_make_f32(m, "gemma4.rope.freq_base", 1e6f);
    gguf_make_f32(m, "gemma4.rope.freq_base_swa", 1e4f);
    gguf_make_f32(m, "gemma4.attention.layer_norm_rms_epsilon", 1e-6f);
    gguf_make_f32(m, "gemma4.final_logit_softcapping", 30);
}

static beryl_status read_empty(void *user, uint64_t offset, void *to, size_t size) {
    const shape_file *f = user;
    size_t n = offset >= f->size ? 0 : f->size - offset < size ? (size_t)(f->size - offset) : size;
    if (n) memcpy(to, f->head + offset, n);
    memset((char *)to + n, 0, size - n);
    return BERYL_OK;
}

beryl_source shape_make(const shape *s, shape_file *file) {
    writing w = {0};
    add_keys(&w.make, s);
    add_vocabulary(&w.make);
    add(&w, "token_embd.weight", TYPE_Q6_K, 2, s->d, VOCAB, 1);
    add(&w, "output_norm.weight", TYPE_F32, 1, s->d, 1, 1);
    if (s->n_per_layer) {
        add(&w, "per_layer_token_embd.weight", TYPE_Q6_K, 2, s->n_per_layer * s->n_layer, VOCAB, 1);
        add(&w, "per_layer_model_proj.weight", TYPE_BF16, 2, s->d, s->n_per_layer * s->n_layer, 1);
        add(&w, "per_layer_proj_norm.weight", TYPE_F32, 1, s->n_per_layer, 1, 1);
    }
    for (uint32_t i = 0; i < s->n_layer; i++) add_layer(&w, s, i);
    const uint64_t data = w.offset;
    file->head = gguf_make_take(&w.make, &file->size);
    file->bytes = (file->size + 31) / 32 * 32 + data;
    return (beryl_source){.size = file->bytes, .user = file, .read = read_empty};
}
