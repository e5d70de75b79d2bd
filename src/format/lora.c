/* lora.c - three forms of adapters as one list of parts.
 *
 * A form says which half of which part a tensor is, and where its experts, ranks and columns lie;
 * all that follows is the same for all. Two halves meet in a table of layers and targets. */
#include "format/lora.h"
#include "base/error.h"
#include "base/file.h"
#include "format/gguf.h"
#include "format/safetensors.h"

#include <math.h>
#include <string.h>

enum { LAYER_MAX = 1024, RANK_MAX = 4096 };
/* The largest of F16: a product with values up to it stays finite. */
#define VALUE_MAX 65504.0f

static const struct {
    const char *gguf, *peft, *rullama;
} targets[LORA_COUNT] = {
#define X(id, gguf, peft, rullama) {gguf, peft, rullama},
    FORMAT_LORA_LIST(X)
#undef X
};

typedef struct reading {
    format_lora *out;
    uint32_t *index;         /* [LAYER_MAX, LORA_COUNT]: 1 + number of the part; 0: none */
    size_t capacity;         /* of the parts: no more than tensors */
    const base_json *config; /* PEFT */
    double alpha;
    uint32_t rank; /* as the file says; 0: it does not */
    beryl_error *error;
} reading;

const char *format_lora_target_name(format_lora_target target) {
    return targets[target].gguf;
}

static int shown(base_view text) {
    return (int)(text.size < 200 ? text.size : 200);
}

static beryl_status bad(const reading *r, base_view name, const char *why) {
    return base_fail(r->error, BERYL_BAD_FILE, "tensor '%.*s': %s", shown(name), name.data, why);
}

static beryl_status unsupported(const reading *r, base_view name, const char *what) {
    return base_fail(r->error, BERYL_UNSUPPORTED, "adapter with %s ('%.*s')", what, shown(name),
                     name.data);
}

/* ---- names ----------------------------------------------------------------------------------- */

static bool cut_begin(base_view *text, const char *begin) {
    const base_view with = base_view_of(begin);
    if (!base_view_begins(*text, with)) return false;
    text->data += with.size;
    text->size -= with.size;
    return true;
}

static bool cut_end(base_view *text, const char *end) {
    const base_view with = base_view_of(end);
    if (!base_view_ends(*text, with)) return false;
    text->size -= with.size;
    return true;
}

/* "12." */
static bool cut_layer(base_view *text, uint32_t *layer) {
    size_t n = 0;
    uint32_t value = 0;
    while (n < text->size && n < 4 && text->data[n] >= '0' && text->data[n] <= '9')
        value = value * 10 + (uint32_t)(text->data[n++] - '0');
    if (n == 0 || n == text->size || text->data[n] != '.' || value >= LAYER_MAX) return false;
    text->data += n + 1;
    text->size -= n + 1;
    *layer = value;
    return true;
}

const char *format_lora_name(format_lora_form form, format_lora_target t) {
    return form == LORA_FORM_PEFT   ? targets[t].peft
           : form == LORA_FORM_GGUF ? targets[t].gguf
                                    : targets[t].rullama;
}

/* The target that is called so, among those of a layer or of the model. */
static bool target_of(format_lora_form form, base_view name, bool of_layer,
                      format_lora_target *target) {
    for (int t = 0; t < LORA_COUNT; t++) {
        const char *as = format_lora_name(form, (format_lora_target)t);
        if (!as || (t < LORA_FIRST_OF_MODEL) != of_layer ||
            !base_view_equal(name, base_view_of(as)))
            continue;
        *target = (format_lora_target)t;
        return true;
    }
    return false;
}

/* ---- parts ----------------------------------------------------------------------------------- */

static beryl_status add_half(reading *r, format_lora_target target, uint32_t layer, bool is_b,
                             const format_lora_half *half) {
    uint32_t *at = &r->index[(size_t)layer * LORA_COUNT + target];
    if (!*at) {
        if (r->out->n_part == r->capacity) return bad(r, half->name, "one too many");
        r->out->parts[r->out->n_part++] = (format_lora_part){.target = target, .layer = layer};
        *at = (uint32_t)r->out->n_part;
    }
    format_lora_part *part = &r->out->parts[*at - 1];
    format_lora_half *to = is_b ? &part->b : &part->a;
    if (to->data) return bad(r, half->name, "another tensor has its place");
    *to = *half;
    return BERYL_OK;
}

static bool is_experts(const format_lora_part *p) {
    return p->target == LORA_GATE_UP_EXPS || p->target == LORA_DOWN_EXPS;
}

/* Shape and strides of a part whose halves are there; false: they do not fit one another. rank:
 * what PEFT says of the module. */
static bool shape_part(format_lora_form form, uint32_t rank, format_lora_part *p) {
    format_lora_half *a = &p->a, *b = &p->b;
    p->n_expert = 1;
    if (is_experts(p) && form == LORA_FORM_PEFT) {
        /* A: ranks of an expert after one another; B: experts within a rank */
        if (a->n_dim != 2 || b->n_dim != 2 || !rank || a->dim[0] % rank || a->dim[0] != b->dim[1])
            return false;
        p->rank = rank;
        p->n_expert = a->dim[0] / rank;
        p->in = a->dim[1];
        p->out = b->dim[0];
        a->stride[0] = (uint64_t)rank * p->in;
        b->stride[0] = 1;
        b->stride[1] = p->n_expert;
        b->stride[2] = b->dim[1];
    } else if (is_experts(p)) {
        if (a->n_dim != 3 || b->n_dim != 3 || a->dim[0] != b->dim[0] || a->dim[1] != b->dim[2])
            return false;
        p->n_expert = a->dim[0];
        p->rank = a->dim[1];
        p->in = a->dim[2];
        p->out = b->dim[1];
        a->stride[0] = (uint64_t)p->rank * p->in;
        b->stride[0] = (uint64_t)p->rank * p->out;
        b->stride[1] = 1;
        b->stride[2] = p->rank;
    } else {
        const bool turned = form == LORA_FORM_GGUF && p->target == LORA_EMBED; /* rows to gather */
        if (a->n_dim != 2 || b->n_dim != 2 || a->dim[turned] != b->dim[1]) return false;
        p->rank = a->dim[turned];
        p->in = a->dim[!turned];
        p->out = b->dim[0];
        b->stride[1] = 1;
        b->stride[2] = p->rank;
        a->stride[1] = turned ? 1 : p->in;
        a->stride[2] = turned ? p->rank : 1;
        return true;
    }
    a->stride[1] = p->in;
    a->stride[2] = 1;
    return true;
}

/* Are there none above the limit? Without signs, larger bits are larger numbers: what is above it
 * carries into the sign, in all elements of a word at once. */
static bool values_fit(const format_lora_half *half) {
    uint64_t n = 1, signs = 0x8000800080008000, add = 0x7fff - 0x7bff, above = 0;
    const uint32_t size = base_type_block_bytes(half->type);
    for (uint32_t i = 0; i < half->n_dim; i++) n *= half->dim[i];
    if (half->type == TYPE_BF16) add = 0x7fff - 0x477f; /* just below */
    if (half->type == TYPE_F32) {
        uint32_t limit;
        memcpy(&limit, &(float){VALUE_MAX}, sizeof limit);
        signs = 0x8000000080000000;
        add = 0x7fffffff - limit;
    }
    add *= signs >> (8 * size - 1);
    uint64_t i = 0, word;
    for (; i + 8 <= n * size; i += 8) {
        memcpy(&word, half->data + i, 8);
        above |= (word & ~signs) + add;
    }
    word = 0;
    memcpy(&word, half->data + i, (size_t)(n * size - i));
    return !((above | ((word & ~signs) + add)) & signs);
}

float format_lora_value(const format_lora_half *half, uint64_t at) {
    float value;
    base_dequantise(half->type, half->data + at * base_type_block_bytes(half->type), &value, 1);
    return value;
}

/* ---- what PEFT says of a module -------------------------------------------------------------- */

static bool is_set(const base_json *j) {
    return j && j->kind != JSON_NULL && j->kind != JSON_FALSE &&
           !((j->kind == JSON_ARRAY || j->kind == JSON_OBJECT) && !j->n_child);
}

/* A pattern: the module's name, or its end from a dot on; '^' before it: all of it. */
static bool matches(base_view module, base_view pattern) {
    const bool all = cut_begin(&pattern, "^");
    if (!base_view_ends(module, pattern)) return false;
    const size_t before = module.size - pattern.size;
    return before == 0 || (!all && module.data[before - 1] == '.');
}

/* The number that a pattern gives for the module, else `otherwise`. */
static beryl_status by_pattern(const reading *r, const char *key, base_view module,
                               double otherwise, double *out) {
    const base_json *patterns = base_json_find(r->config, key);
    *out = otherwise;
    for (const base_json *p = is_set(patterns) ? patterns->child : NULL; p; p = p->next) {
        for (size_t i = 0; i < p->key.size; i++)
            if (!base_is_word(p->key.data[i]) && p->key.data[i] != '.' &&
                !(i == 0 && p->key.data[i] == '^'))
                return unsupported(r, p->key, "a pattern that is no name");
        if (p->kind != JSON_NUMBER)
            return base_fail(r->error, BERYL_BAD_FILE, "adapter_config.json: %s is no number", key);
        if (!matches(module, p->key)) continue;
        *out = p->number;
        break;
    }
    return BERYL_OK;
}

static base_view module_of(base_view name) {
    static const char *const ends[] = {".lora_A.weight", ".lora_B.weight", ".lora_embedding_A",
                                       ".lora_embedding_B"};
    cut_begin(&name, "base_model.model.");
    for (size_t i = 0; i < sizeof ends / sizeof *ends; i++)
        if (cut_end(&name, ends[i])) break;
    return name;
}

/* ---- the end, in all forms ------------------------------------------------------------------- */

static beryl_status finish_part(const reading *r, format_lora_part *p) {
    const base_view name = p->a.data ? p->a.name : p->b.name;
    double rank = r->rank, alpha = r->alpha;
    if (!p->a.data || !p->b.data) return bad(r, name, "its other half is not there");
    beryl_status status = BERYL_OK;
    if (r->config) {
        status = by_pattern(r, "rank_pattern", module_of(name), rank, &rank);
        if (status == BERYL_OK)
            status = by_pattern(r, "alpha_pattern", module_of(name), alpha, &alpha);
        if (status != BERYL_OK) return status;
        if (!(rank >= 1 && rank <= RANK_MAX)) return bad(r, name, "a rank that cannot be");
    }
    if (!shape_part(r->out->form, (uint32_t)rank, p))
        return base_fail(r->error, BERYL_BAD_FILE, "tensor '%.*s' [%u, %u] and '%.*s' [%u, %u]%s",
                         shown(p->a.name) / 2, p->a.name.data, p->a.dim[0], p->a.dim[1],
                         shown(p->b.name) / 2, p->b.name.data, p->b.dim[0], p->b.dim[1],
                         " are not two halves");
    if (p->rank > RANK_MAX || (rank > 0 && (double)p->rank != rank))
        return base_fail(r->error, BERYL_BAD_FILE, "tensor '%.*s' is of rank %u, not of %g",
                         shown(name), name.data, p->rank, rank);
    const double by = is_set(r->config ? base_json_find(r->config, "use_rslora") : NULL)
                          ? sqrt((double)p->rank)
                          : (double)p->rank;
    p->factor = (float)(alpha / by);
    if (r->out->form == LORA_FORM_GGUF && !(alpha < 0 || alpha > 0)) p->factor = 1;
    if (!(fabsf(p->factor) <= VALUE_MAX)) return bad(r, name, "an alpha that cannot be");
    if (!values_fit(&p->a) || !values_fit(&p->b))
        return bad(r, name, "a value that is no number, or larger than 65504");
    if (p->rank > r->out->rank) r->out->rank = p->rank;
    return BERYL_OK;
}

static beryl_status begin(reading *r, size_t n_tensor) {
    if (n_tensor == 0) return base_fail(r->error, BERYL_BAD_FILE, "an adapter without tensors");
    r->capacity = n_tensor;
    r->out->parts = base_arena_take(&r->out->arena, n_tensor, sizeof *r->out->parts);
    r->index = base_arena_take(&r->out->arena, (size_t)LAYER_MAX * LORA_COUNT, sizeof *r->index);
    return r->out->parts && r->index ? BERYL_OK : base_no_memory(r->error);
}

/* ---- safetensors: PEFT and rullama ----------------------------------------------------------- */

/* What an adapter must not say, since it would compute something else. */
static const char *const refused[] = {
    "use_dora",          "modules_to_save",
    "fan_in_fan_out",    "lora_bias",
    "use_qalora",        "use_bdlora",
    "layer_replication", "alora_invocation_tokens",
    "arrow_config",      "trainable_token_indices",
    "kasa_config",       "monteclora_config",
    "velora_config",
};

static beryl_status read_config(reading *r, const char *text, size_t size) {
    base_json *json;
    beryl_error why = {0};
    beryl_status status = base_json_parse(&r->out->arena, text, size, &json, &why);
    if (status == BERYL_NO_MEMORY) return base_fail(r->error, status, "%s", why.message);
    if (status != BERYL_OK || json->kind != JSON_OBJECT)
        return base_fail_at(r->error, BERYL_BAD_FILE, why.at,
                            "adapter_config.json is no JSON object: %.300s", why.message);
    const base_json *type = base_json_find(json, "peft_type"), *rank = base_json_find(json, "r"),
                    *alpha = base_json_find(json, "lora_alpha"),
                    *bias = base_json_find(json, "bias");
    if (!type || !base_view_equal(type->text, BASE_VIEW("LORA")))
        return unsupported(r, type ? type->text : (base_view){"", 0}, "another peft_type");
    for (size_t i = 0; i < sizeof refused / sizeof *refused; i++) {
        const base_json *j = base_json_find(json, refused[i]);
        if (!is_set(j)) continue;
        const bool list = j->kind == JSON_ARRAY && j->child->kind == JSON_STRING;
        return unsupported(r, list ? j->child->text : BASE_VIEW("adapter_config.json"), refused[i]);
    }
    if (bias && bias->kind == JSON_STRING && !base_view_equal(bias->text, BASE_VIEW("none")))
        return unsupported(r, bias->text, "biases");
    if (!rank || rank->kind != JSON_NUMBER || !(rank->number >= 1 && rank->number <= RANK_MAX) ||
        !alpha || alpha->kind != JSON_NUMBER)
        return base_fail(r->error, BERYL_BAD_FILE, "adapter_config.json: no r and lora_alpha");
    r->config = json;
    r->rank = (uint32_t)rank->number;
    r->alpha = alpha->number;
    return BERYL_OK;
}

static beryl_status peft_name(const reading *r, base_view name, format_lora_target *target,
                              uint32_t *layer, bool *is_b) {
    base_view rest = name;
    if (base_view_ends(name, BASE_VIEW("lora_magnitude_vector")) ||
        base_view_ends(name, BASE_VIEW("lora_magnitude_vector.weight")))
        return unsupported(r, name, "DoRA's magnitudes");
    *is_b = cut_end(&rest, ".lora_B.weight") || cut_end(&rest, ".lora_embedding_B");
    if (!*is_b && !cut_end(&rest, ".lora_A.weight") && !cut_end(&rest, ".lora_embedding_A"))
        return unsupported(r, name, "a tensor that is neither A nor B");
    cut_begin(&rest, "base_model.model.");
    if (!cut_begin(&rest, "model.language_model.") && !cut_begin(&rest, "language_model.model."))
        cut_begin(&rest, "model.");
    const bool of_layer = cut_begin(&rest, "layers.") && cut_layer(&rest, layer);
    return target_of(LORA_FORM_PEFT, rest, of_layer, target)
               ? BERYL_OK
               : unsupported(r, name, "a module that adapters here do not change");
}

static beryl_status rullama_name(const reading *r, base_view name, format_lora_target *target,
                                 uint32_t *layer, bool *is_b) {
    base_view rest = name;
    *is_b = cut_end(&rest, ".B");
    if ((!*is_b && !cut_end(&rest, ".A")) || !cut_begin(&rest, "lora.blk.") ||
        !cut_layer(&rest, layer))
        return bad(r, name, "not of the form lora.blk.N.NAME.A or .B");
    if (target_of(LORA_FORM_RULLAMA, rest, true, target)) return BERYL_OK;
    return *layer == 0 && target_of(LORA_FORM_RULLAMA, rest, false, target)
               ? BERYL_OK
               : unsupported(r, name, "a matrix that adapters here do not change");
}

static bool number_of(base_view text, double *out) {
    *out = 0;
    double unit = 0;
    if (!text.size || text.size > 24) return false;
    for (size_t i = 0; i < text.size; i++) {
        const char c = text.data[i];
        if (c == '.' && unit == 0) unit = 1;
        else if (c < '0' || c > '9') return false;
        else if (unit > 0) *out += (c - '0') * (unit /= 10);
        else *out = *out * 10 + (c - '0');
    }
    return true;
}

static beryl_status read_safetensors(reading *r, const void *data, size_t size, const char *config,
                                     size_t config_size) {
    format_safetensors s;
    beryl_status status = format_safetensors_read(&r->out->arena, data, size, &s, r->error);
    if (status != BERYL_OK) return status;
    const base_view form = format_safetensors_text(&s, "format");
    const bool rullama = base_view_equal(form, BASE_VIEW("rullama-lora-v0"));
    r->out->form = rullama ? LORA_FORM_RULLAMA : LORA_FORM_PEFT;
    double rank;
    if (rullama) {
        if (!number_of(format_safetensors_text(&s, "rank"), &rank) || rank < 1 || rank > RANK_MAX ||
            !number_of(format_safetensors_text(&s, "alpha"), &r->alpha))
            return base_fail(r->error, BERYL_BAD_FILE, "metadata without rank and alpha");
        r->rank = (uint32_t)rank;
    } else if (!config) {
        return base_fail(r->error, BERYL_BAD_FILE,
                         "safetensors without adapter_config.json, and not of rullama");
    } else {
        status = read_config(r, config, config_size);
    }
    if (status == BERYL_OK) status = begin(r, s.n);
    for (size_t i = 0; status == BERYL_OK && i < s.n; i++) {
        const format_safetensor *t = &s.tensors[i];
        if (!base_type_is_float(t->type) || t->n_dim > LORA_RANK_MAX) {
            status = unsupported(r, t->name, "not floats of 1 to 4 dimensions");
            break;
        }
        format_lora_half half = {
            .name = t->name, .type = t->type, .data = t->data, .n_dim = t->n_dim};
        memcpy(half.dim, t->dim, sizeof half.dim);
        format_lora_target target = LORA_COUNT;
        uint32_t layer = 0;
        bool is_b;
        status = (rullama ? rullama_name : peft_name)(r, t->name, &target, &layer, &is_b);
        if (status == BERYL_OK) status = add_half(r, target, layer, is_b, &half);
    }
    return status;
}

/* ---- GGUF ------------------------------------------------------------------------------------ */

static beryl_status gguf_name(const reading *r, base_view name, format_lora_target *target,
                              uint32_t *layer, bool *is_b) {
    base_view rest = name;
    *is_b = cut_end(&rest, ".weight.lora_b");
    if (!*is_b && !cut_end(&rest, ".weight.lora_a"))
        return unsupported(r, name, "a tensor that is neither lora_a nor lora_b");
    const bool of_layer = cut_begin(&rest, "blk.") && cut_layer(&rest, layer);
    return target_of(LORA_FORM_GGUF, rest, of_layer, target)
               ? BERYL_OK
               : unsupported(r, name, "a matrix that adapters here do not change");
}

static beryl_status gguf_keys(reading *r, const format_gguf *g) {
    base_view type = {"", 0}, lora = {"", 0}, architecture = {"", 0};
    format_gguf_get_string(g, "general.type", &type, NULL);
    format_gguf_get_string(g, "adapter.type", &lora, NULL);
    format_gguf_get_string(g, "general.architecture", &architecture, NULL);
    if (!base_view_equal(type, BASE_VIEW("adapter")))
        return base_fail(r->error, BERYL_BAD_FILE, "a GGUF file, but no adapter");
    if (!base_view_equal(lora, BASE_VIEW("lora"))) return unsupported(r, lora, "another type");
    if (!base_view_equal(architecture, BASE_VIEW("gemma4")))
        return base_fail(r->error, BERYL_UNSUPPORTED, "an adapter of '%.*s', not of gemma4",
                         shown(architecture), architecture.data);
    if (format_gguf_find(g, "adapter.alora.invocation_tokens"))
        return unsupported(r, BASE_VIEW("adapter.alora.invocation_tokens"), "aLoRA");
    return format_gguf_get_f64(g, "adapter.lora.alpha", &r->alpha, r->error);
}

static beryl_status read_gguf(reading *r, base_heap *heap, const void *data, size_t size) {
    const beryl_source source = base_source_of_memory(data, size);
    format_gguf *g = NULL;
    beryl_status status = format_gguf_open(heap, &source, 1, &g, r->error);
    if (status == BERYL_OK) status = format_gguf_step(g, r->error);
    r->out->form = LORA_FORM_GGUF;
    if (status == BERYL_OK) status = gguf_keys(r, g);
    if (status == BERYL_OK) status = begin(r, format_gguf_n_tensor(g));
    for (size_t i = 0; status == BERYL_OK && i < r->capacity; i++) {
        const format_gguf_tensor *t = format_gguf_tensor_at(g, i);
        const char *name = base_arena_text(&r->out->arena, t->name.data, t->name.size);
        format_lora_half half = {.name = {name, t->name.size},
                                 .type = t->type,
                                 .data = (const uint8_t *)data + t->offset,
                                 .n_dim = t->n_dim};
        format_lora_target target = LORA_COUNT;
        uint32_t layer = 0;
        bool is_b;
        if (!name) {
            status = base_no_memory(r->error);
            break;
        }
        status = gguf_name(r, half.name, &target, &layer, &is_b);
        if (status == BERYL_OK && t->type != TYPE_F32 && t->type != TYPE_F16 &&
            t->type != TYPE_BF16)
            status = unsupported(r, half.name, "quantised values");
        for (uint32_t k = 0; status == BERYL_OK && k < t->n_dim; k++) {
            const uint64_t ne = t->ne[t->n_dim - 1 - k];
            if (ne > UINT32_MAX) status = bad(r, half.name, "a dimension that cannot be");
            half.dim[k] = (uint32_t)ne;
        }
        if (status == BERYL_OK) status = add_half(r, target, layer, is_b, &half);
    }
    format_gguf_close(g);
    return status;
}

beryl_status format_lora_read(base_heap *heap, const void *data, size_t size, const char *config,
                              size_t config_size, format_lora *out, beryl_error *error) {
    reading r = {.out = out, .error = error};
    *out = (format_lora){0};
    base_arena_init(&out->arena, heap);
    beryl_status status = size >= 4 && !memcmp(data, "GGUF", 4)
                              ? read_gguf(&r, heap, data, size)
                              : read_safetensors(&r, data, size, config, config_size);
    for (size_t i = 0; status == BERYL_OK && i < out->n_part; i++)
        status = finish_part(&r, &out->parts[i]);
    if (status != BERYL_OK) format_lora_fini(out);
    return status;
}

void format_lora_fini(format_lora *lora) {
    if (lora->arena.heap) base_arena_fini(&lora->arena);
    *lora = (format_lora){0};
}
