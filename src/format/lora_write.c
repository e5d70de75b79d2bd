/* lora_write.c - one list of parts in three forms.
 *
 * Each half becomes a tensor: a name, a shape, and three loops over its values, the last of which
 * is a row. Values are written row by row, so memory holds one. */
#include "format/lora_write.h"
#include "base/error.h"
#include "base/file.h"
#include "format/gguf_write.h"
#include "format/safetensors.h"

#include <inttypes.h>
#include <math.h>
#include <stdio.h>
#include <string.h>

/* The largest that readers take, of F16 too. */
#define VALUE_MAX 65504.0f

typedef struct tensor {
    format_safetensor head; /* data NULL */
    const format_lora_half *half;
    uint64_t n[3], stride[3]; /* in the order of the file */
    float by;
} tensor;

typedef struct writing {
    const format_lora_write_desc *desc;
    base_arena arena;
    tensor *tensors; // [2 * n_part]
    size_t n;
    double alpha; /* of the whole, above 0 */
    uint32_t rank;
    beryl_error *error;
} writing;

static beryl_status no_memory(const writing *w) {
    return base_no_memory(w->error);
}

static bool is_experts(const format_lora_part *p) {
    return p->target == LORA_GATE_UP_EXPS || p->target == LORA_DOWN_EXPS;
}

static beryl_status refuse(const writing *w, const format_lora_part *p, const char *what) {
    static const char *const forms[] = {
#define X(id, name) name,
        FORMAT_LORA_FORM_LIST(X)
#undef X
    };
    return base_fail(w->error, BERYL_UNSUPPORTED, "%s of layer %u: the form %s %s",
                     format_lora_target_name(p->target), p->layer, forms[w->desc->form], what);
}

/* ---- names ----------------------------------------------------------------------------------- */

/* The module of PEFT, the matrix of the others. */
static const char *module_name(writing *w, const format_lora_part *p) {
    const char *name = format_lora_name(w->desc->form, p->target);
    const bool of_layer = p->target < LORA_FIRST_OF_MODEL;
    switch (w->desc->form) {
    case LORA_FORM_PEFT:
        return of_layer ? base_arena_print(&w->arena, "model.layers.%u.%s", p->layer, name)
                        : base_arena_print(&w->arena, "%s%s",
                                           p->target == LORA_HEAD ? "" : "model.", name);
    case LORA_FORM_GGUF:
        return of_layer ? base_arena_print(&w->arena, "blk.%u.%s.weight", p->layer, name)
                        : base_arena_print(&w->arena, "%s.weight", name);
    case LORA_FORM_RULLAMA:
        return base_arena_print(&w->arena, "lora.blk.%u.%s", of_layer ? p->layer : 0, name);
    }
    return NULL;
}

static const char *tensor_name(writing *w, const format_lora_part *p, bool is_b) {
    const char *module = module_name(w, p), letter = is_b ? 'B' : 'A';
    if (!module) return NULL;
    if (w->desc->form == LORA_FORM_PEFT)
        return p->target == LORA_EMBED
                   ? base_arena_print(&w->arena, "base_model.model.%s.lora_embedding_%c", module,
                                      letter)
                   : base_arena_print(&w->arena, "base_model.model.%s.lora_%c.weight", module,
                                      letter);
    if (w->desc->form == LORA_FORM_GGUF)
        return base_arena_print(&w->arena, "%s.lora_%c", module, is_b ? 'b' : 'a');
    return base_arena_print(&w->arena, "%s.%c", module, letter);
}

/* ---- what a form can say --------------------------------------------------------------------- */

static double alpha_of(const format_lora_part *p) {
    return (double)p->factor * p->rank;
}

/* rank and alpha of the whole: what most parts have, or experts, which patterns cannot say. */
static void choose(writing *w) {
    const format_lora *l = w->desc->lora;
    const format_lora_part *best = &l->parts[0];
    size_t most = 0;
    for (size_t i = 0; i < l->n_part; i++) {
        const format_lora_part *p = &l->parts[i];
        size_t n = 0;
        for (size_t k = 0; k < l->n_part; k++)
            n += l->parts[k].rank == p->rank && fabs(alpha_of(&l->parts[k]) - alpha_of(p)) <= 0;
        if (is_experts(p)) n += l->n_part;
        if (n <= most) continue;
        most = n;
        best = p;
    }
    const double alpha = fabs(alpha_of(best));
    w->rank = best->rank;
    w->alpha = alpha >= 1e-3 && alpha <= 1e6 ? alpha : best->rank;   /* as all forms can say it */
    if (w->desc->form != LORA_FORM_PEFT) w->alpha = (float)w->alpha; /* as GGUF files have it */
}

static beryl_status check_part(const writing *w, const format_lora_part *p) {
    const format_lora *l = w->desc->lora;
    const format_lora_form form = w->desc->form;
    if (!format_lora_name(form, p->target) || (form == LORA_FORM_GGUF && p->target == LORA_HEAD))
        return refuse(w, p, "has no name for it");
    if (form == LORA_FORM_RULLAMA && p->rank != w->rank)
        return refuse(w, p, "has one rank for all, and ranks differ");
    if (form != LORA_FORM_PEFT || !is_experts(p)) return BERYL_OK;
    if (p->rank != w->rank || fabs(alpha_of(p) - w->alpha) > 0)
        return refuse(w, p, "has one rank and alpha for experts, and theirs differ");
    for (size_t i = 0; p->target == LORA_GATE_UP_EXPS && i <= l->n_part; i++) {
        if (i == l->n_part) return refuse(w, p, "has no name for it without ffn_down_exps");
        if (l->parts[i].target == LORA_DOWN_EXPS && l->parts[i].layer == p->layer) break;
    }
    return BERYL_OK;
}

/* What B takes so that one alpha does for all; 1: nothing. */
static float folded(const writing *w, const format_lora_part *p) {
    if (w->desc->form == LORA_FORM_PEFT) return 1; /* has patterns */
    const float as_it_is = (float)(w->alpha / p->rank);
    return as_it_is < p->factor || as_it_is > p->factor ? (float)(alpha_of(p) / w->alpha) : 1;
}

static beryl_status add_tensor(writing *w, const format_lora_part *p, bool is_b) {
    const format_lora_form form = w->desc->form;
    const format_lora_half *half = is_b ? &p->b : &p->a;
    const bool turned = form == LORA_FORM_GGUF && p->target == LORA_EMBED && !is_b;
    tensor *t = &w->tensors[w->n++];
    const char *name = tensor_name(w, p, is_b);
    if (!name) return no_memory(w);
    *t = (tensor){.half = half, .by = is_b ? folded(w, p) : 1};
    const uint64_t size[3] = {p->n_expert, p->rank, is_b ? p->out : p->in};
    /* order[i]: which of experts, ranks and columns or rows loop i goes over */
    static const uint8_t orders[3][3] = {{0, 1, 2}, {0, 2, 1}, {2, 1, 0}};
    const bool peft_experts = form == LORA_FORM_PEFT && is_experts(p);
    const uint8_t *order = orders[is_b && peft_experts ? 2 : is_b || turned ? 1 : 0];
    format_safetensor *h = &t->head;
    *h = (format_safetensor){.name = base_view_of(name), .type = w->desc->type};
    if (h->type == TYPE_COUNT) h->type = t->by < 1 || t->by > 1 ? TYPE_F32 : half->type;
    for (int i = 0; i < 3; i++) {
        t->n[i] = size[order[i]];
        t->stride[i] = half->stride[order[i]];
    }
    if (!is_experts(p)) { /* one expert: no dimension */
        h->n_dim = 2;
        memcpy(h->dim, (uint32_t[]){(uint32_t)t->n[1], (uint32_t)t->n[2]}, 8);
    } else if (peft_experts) { /* experts and ranks are one dimension */
        h->n_dim = 2;
        h->dim[0] = (uint32_t)(is_b ? t->n[0] : t->n[0] * t->n[1]);
        h->dim[1] = (uint32_t)(is_b ? t->n[1] * t->n[2] : t->n[2]);
    } else {
        h->n_dim = 3;
        for (int i = 0; i < 3; i++) h->dim[i] = (uint32_t)t->n[i];
    }
    return BERYL_OK;
}

/* ---- values ---------------------------------------------------------------------------------- */

static bool put_value(base_type type, float value, uint8_t *to) {
    const uint16_t half = type == TYPE_F16 ? base_f32_to_f16(value) : base_f32_to_bf16(value);
    float back;
    if (type == TYPE_F32) memcpy(to, &value, 4);
    else memcpy(to, &half, 2);
    base_dequantise(type, to, &back, 1);
    return fabsf(back) <= VALUE_MAX;
}

static beryl_status write_tensor(const writing *w, const tensor *t, format_out *out, uint8_t *row) {
    const uint32_t size = base_type_block_bytes(t->head.type);
    for (uint64_t i = 0; i < t->n[0] * t->n[1]; i++) {
        const uint64_t at = i / t->n[1] * t->stride[0] + i % t->n[1] * t->stride[1];
        for (uint64_t k = 0; k < t->n[2]; k++)
            if (!put_value(t->head.type, format_lora_value(t->half, at + k * t->stride[2]) * t->by,
                           row + k * size))
                return base_fail(w->error, BERYL_UNSUPPORTED,
                                 "tensor '%s': a value that is no number or too large for %s",
                                 t->head.name.data, base_type_name(t->head.type));
        format_out_add(out, row, (size_t)t->n[2] * size);
    }
    return BERYL_OK;
}

static beryl_status write_values(writing *w, format_out *out, uint32_t alignment) {
    uint64_t longest = 0;
    beryl_status status = BERYL_OK;
    for (size_t i = 0; i < w->n; i++)
        if (w->tensors[i].n[2] > longest) longest = w->tensors[i].n[2];
    uint8_t *row = base_heap_resize(out->heap, NULL, 0, (size_t)longest * 4);
    if (!row) return no_memory(w);
    for (size_t i = 0; !status && i < w->n; i++) {
        status = write_tensor(w, &w->tensors[i], out, row);
        format_out_pad(out, alignment);
    }
    base_heap_give(out->heap, row, (size_t)longest * 4);
    return status;
}

/* ---- forms ----------------------------------------------------------------------------------- */

static beryl_status write_gguf(writing *w, format_out *out) {
    format_gguf_head h;
    format_gguf_head_init(&h, out->heap, 32);
    format_gguf_head_string(&h, "general.architecture", BASE_VIEW("gemma4"));
    format_gguf_head_string(&h, "general.type", BASE_VIEW("adapter"));
    if (w->desc->name) format_gguf_head_string(&h, "general.name", base_view_of(w->desc->name));
    format_gguf_head_string(&h, "adapter.type", BASE_VIEW("lora"));
    format_gguf_head_f32(&h, "adapter.lora.alpha", (float)w->alpha);
    for (size_t i = 0; i < w->n; i++) {
        const format_safetensor *t = &w->tensors[i].head;
        uint64_t ne[SAFETENSORS_RANK_MAX], size = base_type_block_bytes(t->type);
        for (uint32_t k = 0; k < t->n_dim; k++) {
            ne[k] = t->dim[t->n_dim - 1 - k];
            size *= ne[k];
        }
        const uint32_t id = t->type == TYPE_F32 ? 0 : t->type == TYPE_F16 ? 1 : 30;
        format_gguf_head_tensor(&h, t->name, id, t->n_dim, ne, size);
    }
    beryl_status status = format_gguf_head_write(&h, out, w->error);
    format_gguf_head_fini(&h);
    return status ? status : write_values(w, out, 32);
}

static beryl_status write_safetensors(writing *w, const base_view (*metadata)[2], size_t n,
                                      format_out *out) {
    base_text head;
    base_text_init(&head, out->heap);
    format_safetensor *heads = base_arena_take(&w->arena, w->n, sizeof *heads);
    for (size_t i = 0; heads && i < w->n; i++) heads[i] = w->tensors[i].head;
    if (heads) format_safetensors_write(heads, w->n, metadata, n, &head);
    const bool failed = !heads || head.failed;
    if (!failed) format_out_add(out, head.data, head.size);
    base_text_fini(&head);
    return failed ? no_memory(w) : write_values(w, out, 1);
}

/* Digits that the reader gives the very number for; no exponent. */
static const char *number_text(writing *w, double value) {
    char *text = base_arena_print(&w->arena, "%.15f", value);
    if (!text) return NULL;
    size_t n = strlen(text);
    while (text[n - 1] == '0') n--;
    text[text[n - 1] == '.' ? n - 1 : n] = 0;
    return text;
}

static beryl_status write_rullama(writing *w, format_out *out) {
    base_text targets;
    const char *rank = base_arena_print(&w->arena, "%u", w->rank),
               *alpha = number_text(w, w->alpha);
    const format_lora *l = w->desc->lora;
    base_text_init(&targets, out->heap);
    for (int t = 0; t < LORA_COUNT; t++)
        for (size_t i = 0; i < l->n_part; i++) {
            if (l->parts[i].target != (format_lora_target)t) continue;
            base_text_print(&targets, "%s%s", targets.size ? "," : "",
                            format_lora_name(LORA_FORM_RULLAMA, (format_lora_target)t));
            break;
        }
    const base_type type = w->tensors[0].head.type;
    const base_view dtype = type == TYPE_F16    ? BASE_VIEW("f16")
                            : type == TYPE_BF16 ? BASE_VIEW("bf16")
                                                : BASE_VIEW("f32");
    const base_view metadata[][2] = {{BASE_VIEW("format"), BASE_VIEW("rullama-lora-v0")},
                                     {BASE_VIEW("rank"), base_view_of(rank)},
                                     {BASE_VIEW("alpha"), base_view_of(alpha)},
                                     {BASE_VIEW("dtype"), dtype},
                                     {BASE_VIEW("target_modules"), {targets.data, targets.size}}};
    const beryl_status status =
        rank && alpha && !targets.failed
            ? write_safetensors(w, metadata, sizeof metadata / sizeof *metadata, out)
            : no_memory(w);
    base_text_fini(&targets);
    return status;
}

/* "model.layers.0.self_attn.q_proj": 4, where it differs from the whole. */
static void put_pattern(writing *w, base_text *to, const char *key, bool of_alpha) {
    const format_lora *l = w->desc->lora;
    bool any = false;
    base_text_print(to, " \"%s\": {", key);
    for (size_t i = 0; i < l->n_part; i++) {
        const format_lora_part *p = &l->parts[i];
        const double value = of_alpha ? alpha_of(p) : p->rank,
                     all = of_alpha ? w->alpha : (double)w->rank;
        const char *module = module_name(w, p);
        if (!module) to->failed = true;
        if (!module || !(value < all || value > all)) continue;
        base_text_print(to, "%s\"%s\": %.17g", any ? ", " : "", module, value);
        any = true;
    }
    base_text_print(to, "},\n");
}

/* experts: target_parameters, which names the tensors; else target_modules. */
static void put_targets(writing *w, base_text *to, const char *key, bool experts) {
    const format_lora *l = w->desc->lora;
    bool any = false;
    base_text_print(to, " \"%s\": [", key);
    for (size_t i = 0; i < l->n_part; i++) {
        const format_lora_part *p = &l->parts[i];
        if (is_experts(p) != experts) continue;
        const char *module = module_name(w, p);
        if (!module) to->failed = true;
        else if (experts)
            base_text_print(to, "%s\"model.layers.%u.experts.%s_proj\"", any ? ", " : "", p->layer,
                            p->target == LORA_DOWN_EXPS ? "down" : "gate_up");
        else base_text_print(to, "%s\"%s\"", any ? ", " : "", module);
        any = true;
    }
    base_text_print(to, "],\n");
}

static void write_config(writing *w, base_text *to) {
    base_text_print(to, "{\n");
    put_pattern(w, to, "alpha_pattern", true);
    base_text_print(to, " \"base_model_name_or_path\": ");
    if (w->desc->base) base_json_write_string(to, w->desc->base, strlen(w->desc->base));
    else base_text_print(to, "null");
    base_text_print(to,
                    ",\n \"bias\": \"none\",\n \"fan_in_fan_out\": false,\n"
                    " \"inference_mode\": true,\n \"lora_alpha\": %.17g,\n"
                    " \"lora_dropout\": 0.0,\n \"modules_to_save\": null,\n"
                    " \"peft_type\": \"LORA\",\n \"r\": %u,\n",
                    w->alpha, w->rank);
    put_pattern(w, to, "rank_pattern", false);
    put_targets(w, to, "target_modules", false);
    put_targets(w, to, "target_parameters", true);
    base_text_print(to, " \"task_type\": \"CAUSAL_LM\",\n \"use_dora\": false,\n"
                        " \"use_rslora\": false\n}\n");
}

static beryl_status write_form(writing *w, format_out *out) {
    const base_view metadata[1][2] = {{BASE_VIEW("format"), BASE_VIEW("pt")}};
    switch (w->desc->form) {
    case LORA_FORM_PEFT: return write_safetensors(w, metadata, 1, out);
    case LORA_FORM_GGUF: return write_gguf(w, out);
    case LORA_FORM_RULLAMA: return write_rullama(w, out);
    }
    return BERYL_MISUSE;
}

/* Both files are complete before either has its name. */
static beryl_status write_peft(writing *w, base_heap *heap, const char *path) {
    const char *model = base_arena_print(&w->arena, "%s/adapter_model.safetensors", path),
               *config = base_arena_print(&w->arena, "%s/adapter_config.json", path);
    format_out out;
    base_text text;
    if (!model || !config) return no_memory(w);
    beryl_status status = base_folder_make(path, w->error);
    if (!status) status = format_out_open(&out, heap, model, w->error);
    if (status) return status;
    base_text_init(&text, heap);
    write_config(w, &text);
    status = text.failed ? no_memory(w) : write_form(w, &out);
    status = format_out_close(&out, status, w->error);
    if (!status) status = base_file_write(config, text.data, text.size, w->error);
    base_text_fini(&text);
    return status;
}

/* What is written where, before anything is. */
static beryl_status prepare(writing *w, base_heap *heap, const format_lora_write_desc *desc,
                            beryl_error *error) {
    const format_lora *l = desc->lora;
    *w = (writing){.desc = desc, .error = error};
    base_arena_init(&w->arena, heap);
    if (!l->n_part) return base_fail(error, BERYL_BAD_INPUT, "an adapter without parts");
    w->tensors = base_arena_take(&w->arena, 2 * l->n_part, sizeof *w->tensors);
    if (!w->tensors) return no_memory(w);
    choose(w);
    beryl_status status = BERYL_OK;
    for (size_t i = 0; !status && i < l->n_part; i++) {
        status = check_part(w, &l->parts[i]);
        if (!status) status = add_tensor(w, &l->parts[i], false);
        if (!status) status = add_tensor(w, &l->parts[i], true);
    }
    return status;
}

beryl_status format_lora_write(base_heap *heap, const format_lora_write_desc *desc,
                               const char *path, beryl_error *error) {
    writing w;
    format_out out;
    beryl_status status = prepare(&w, heap, desc, error);
    if (!status && desc->form == LORA_FORM_PEFT && !desc->alone) {
        status = write_peft(&w, heap, path);
    } else if (!status) {
        status = format_out_open(&out, heap, path, error);
        if (!status) status = format_out_close(&out, write_form(&w, &out), error);
    }
    base_arena_fini(&w.arena);
    return status;
}

static void leave(const beryl_sink *sink) {
    if (sink->close) sink->close(sink->user, false);
}

beryl_status format_lora_write_to(base_heap *heap, const format_lora_write_desc *desc,
                                  const beryl_sink *file, const beryl_sink *config,
                                  beryl_error *error) {
    writing w;
    format_out out;
    base_text text;
    base_text_init(&text, heap);
    beryl_status status = prepare(&w, heap, desc, error);
    if (!status && config) write_config(&w, &text);
    if (text.failed) status = no_memory(&w);
    if (status) leave(file);
    else if (!(status = format_out_begin(&out, heap, file, error)))
        status = format_out_close(&out, write_form(&w, &out), error);
    if (config && status) leave(config);
    else if (config && !(status = format_out_begin(&out, heap, config, error))) {
        format_out_add(&out, text.data, text.size);
        status = format_out_close(&out, BERYL_OK, error);
    }
    base_text_fini(&text);
    base_arena_fini(&w.arena);
    return status;
}
