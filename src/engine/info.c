/* info.c - what an engine, its file, this machine and the library are: facts for people, nothing
 * is computed here.
 *
 * Texts in an info live in the engine's arena, made at the first question. Texts that the caller
 * owns are handed out with their size in front, so that beryl_free needs none. */
#include "base/error.h"
#include "base/ops.h"
#include "engine/out.h"
#include "plan/node.h"
#include "graph/reference.h"

#include <stdio.h>
#include <string.h>

/* ---- memory that the caller frees ------------------------------------------------------------ */

typedef struct handed { /* what lies before the bytes */
    size_t size;        /* of all, this head included */
    _Alignas(16) char bytes[];
} handed;

base_heap *engine_heap(const beryl_engine *engine) {
    return &((beryl_engine *)(uintptr_t)engine)->heap;
}

void *engine_hand_out(const beryl_engine *engine, const void *data, size_t size) {
    if (size > SIZE_MAX - sizeof(handed) - 1) return NULL;
    const size_t whole = sizeof(handed) + size + 1;
    handed *h = base_heap_resize(engine_heap(engine), NULL, 0, whole);
    if (!h) return NULL;
    h->size = whole;
    if (size) memcpy(h->bytes, data, size);
    h->bytes[size] = 0;
    return h->bytes;
}

void beryl_free(const beryl_engine *engine, void *memory) {
    if (!engine || !memory) return;
    handed *h = (handed *)(void *)((char *)memory - offsetof(handed, bytes));
    base_heap_give(engine_heap(engine), h, h->size);
}

/* ---- devices --------------------------------------------------------------------------------- */

static const char *kind_name(device_kind kind) {
    switch (kind) {
    case DEVICE_DISCRETE: return "discrete";
    case DEVICE_INTEGRATED: return "integrated";
    case DEVICE_SOFTWARE: return "software";
    case DEVICE_HOST: return "host";
    }
    return "host";
}

static const char *language_name(uint32_t languages) {
    for (int i = 0; i < DEVICE_LANGUAGE_COUNT; i++)
        if (languages & DEVICE_LANGUAGE_BIT(i)) return device_language_name((device_language)i);
    return "";
}

/* Texts are borrowed from caps. */
static beryl_device_info info_of_caps(const device_caps *caps, const char *why_not) {
    return (beryl_device_info){.backend = caps->backend,
                               .index = caps->index,
                               .name = caps->name,
                               .driver = caps->driver,
                               .kind = caps->name[0] ? kind_name(caps->kind) : "",
                               .usable = !why_not,
                               .why_not = why_not,
                               .memory = caps->memory,
                               .buffer_max = caps->buffer_max,
                               .binding_max = caps->binding_max,
                               .subgroups = caps->subgroups,
                               .subgroup_size = caps->subgroups ? caps->subgroup_size : 0,
                               .f16 = caps->f16,
                               .dot_i8 = caps->dot_i8,
                               .timestamps = caps->timestamps,
                               .language = language_name(caps->languages),
                               .f64 = caps->f64,
                               .fragments = caps->fragments,
                               .compute_units = caps->compute_units,
                               .workgroup_invocations = caps->workgroup_invocations,
                               .workgroup_bytes = caps->workgroup_bytes};
}

static beryl_device_info reference_info(void) {
    return (beryl_device_info){.backend = "reference",
                               .name = "reference functions",
                               .driver = "C, one thread",
                               .kind = "host",
                               .usable = true,
                               .language = ""};
}

beryl_device_info engine_device_info(const device *d) {
    return d ? info_of_caps(device_caps_of(d), NULL) : reference_info();
}

typedef struct device_listing {
    void (*each)(void *user, const beryl_device_info *);
    void *user;
} device_listing;

static void list_device(void *user, const device_caps *caps, const char *why_not) {
    const device_listing *l = user;
    beryl_device_info info = info_of_caps(caps, why_not);
    l->each(l->user, &info);
}

beryl_status beryl_devices(const beryl_log *log,
                           void (*each)(void *user, const beryl_device_info *), void *user,
                           beryl_error *error) {
    static const beryl_log silent = {0};
    if (!each) return base_fail(error, BERYL_MISUSE, "beryl_devices needs a function to call");
    base_heap heap;
    base_heap_init(&heap, NULL);
    device_listing listing = {each, user};
    device_list(&heap, log ? log : &silent, list_device, &listing);
    beryl_device_info reference = reference_info();
    each(user, &reference);
    return BERYL_OK;
}

/* ---- models, operations ---------------------------------------------------------------------- */

beryl_status beryl_models(void (*each)(void *user, const beryl_model_info *), void *user,
                          beryl_error *error) {
    if (!each) return base_fail(error, BERYL_MISUSE, "beryl_models needs a function to call");
    base_heap heap;
    base_heap_init(&heap, NULL);
    return format_store_list(&heap, each, user, error);
}

void beryl_ops(void (*each)(void *user, const beryl_op_info *), void *user) {
    for (int i = 0; each && i < OP_COUNT; i++) {
        const base_op_info *op = &base_ops[i];
        beryl_op_info info = {.name = op->name,
                              .group = op->group,
                              .n_in_min = op->n_in_min,
                              .n_in_max = op->n_in_max,
                              .n_out = op->n_out,
                              .what = op->what,
                              .gradient = graph_has_gradient((base_op)i)};
        char devices[96], where[128];
        device_backend_names(lower_languages((base_op)i), devices, sizeof devices);
        snprintf(where, sizeof where, "%s%s", reference_table[i] ? "reference, " : "", devices);
        info.where = where;
        each(user, &info);
    }
    for (int i = 0; each && i < VIEW_COUNT; i++) {
        const beryl_op_info info = {.name = base_views[i].name,
                                    .group = "view",
                                    .n_in_min = 1,
                                    .n_in_max = 1,
                                    .n_out = 1,
                                    .what = base_views[i].what,
                                    .where = "every device: no work",
                                    .gradient = true};
        each(user, &info);
    }
}

/* ---- the model ------------------------------------------------------------------------------- */

static const char *file_type_name(const format_gguf *g) {
    uint32_t id = UINT32_MAX;
    format_gguf_get_u32(g, "general.file_type", &id, NULL);
    static const struct {
        uint32_t id;
        const char *name;
    } names[] = {
#define X(number, text) {number, text},
        BASE_FILE_TYPE_LIST(X)
#undef X
    };
    for (size_t i = 0; i < sizeof names / sizeof *names; i++)
        if (names[i].id == id) return names[i].name;
    return "mixed";
}

static void fill_config(const gemma4_config *c, beryl_engine_info *info) {
    info->size_label = c->size_label;
    info->n_layer = c->n_layer;
    info->n_embd = c->n_embd;
    info->n_head = c->n_head;
    info->n_expert = c->n_expert;
    info->n_expert_used = c->n_expert_used;
    info->window = c->window;
    info->context_max = c->context_max;
    info->has_vision = c->has_vision;
    info->has_audio = c->has_audio;
    info->has_per_layer_embedding = c->n_per_layer > 0;
}

static beryl_status make_info(beryl_engine *e) {
    const format_gguf *g = e->gguf;
    beryl_engine_info *info = base_arena_take(&e->arena, 1, sizeof *info);
    if (!info) return BERYL_NO_MEMORY;
    base_view name = base_view_of(e->found.name), architecture = {0};
    format_gguf_get_string(g, "general.name", &name, NULL);
    format_gguf_get_string(g, "general.architecture", &architecture, NULL);
    info->model_name = base_arena_text(&e->arena, name.data, name.size);
    info->architecture = base_arena_text(&e->arena, architecture.data, architecture.size);
    if (!info->model_name || !info->architecture) return BERYL_NO_MEMORY;
    info->model_path = e->found.path;
    info->file_type = file_type_name(g);
    info->size_label = "custom";
    info->file_size = format_gguf_size(g);
    info->parameters = format_gguf_parameters(g);
    if (e->options.vocabulary_only) { /* the file may hold a whole model all the same */
        gemma4_model model;
        if (gemma4_config_read(g, &e->arena, &model, NULL) == BERYL_OK)
            fill_config(&model.config, info);
    } else {
        fill_config(&e->model.config, info);
    }
    if (e->mmproj) gemma4_towers(e->mmproj, &info->has_vision, &info->has_audio);
    info->n_vocab = e->tokenizer ? (uint32_t)text_n_token(e->tokenizer)
                                 : (uint32_t)format_gguf_count(g, "tokenizer.ggml.tokens");
    info->why_not = e->why_not;
    base_view template = {0};
    info->other_template =
        format_gguf_get_string(g, "tokenizer.chat_template", &template, NULL) == BERYL_OK &&
        !text_chat_template_known(template);
    info->context = e->model.context;
    info->precision = e->options.precision;
    info->kv = e->options.kv;
    info->temperature = e->temperature;
    info->top_p = e->top_p;
    info->top_k = e->top_k;
    info->device = engine_device_info(e->device);
    if (e->options.vocabulary_only)
        info->device = (beryl_device_info){.backend = "none",
                                           .name = "",
                                           .driver = "",
                                           .kind = "host",
                                           .why_not = "only the vocabulary was loaded"};
    e->info = info;
    return BERYL_OK;
}

beryl_status beryl_engine_info_get(const beryl_engine *engine, beryl_engine_info *info) {
    if (!engine || !info || !engine->loaded) return BERYL_MISUSE;
    beryl_status status = engine->info ? BERYL_OK : make_info((beryl_engine *)(uintptr_t)engine);
    if (status == BERYL_OK) *info = *engine->info;
    return status;
}

void beryl_engine_stats(const beryl_engine *e, beryl_stats *stats) {
    if (!stats) return;
    *stats = (beryl_stats){0};
    if (!e) return;
    *stats = e->stats;
    stats->weight_bytes = e->store.weight_bytes;
    stats->kv_bytes = e->store.state_bytes;
    stats->host_bytes = __atomic_load_n(&e->heap.bytes, __ATOMIC_RELAXED);
    stats->host_bytes_peak = __atomic_load_n(&e->heap.bytes_peak, __ATOMIC_RELAXED);
    stats->allocations = __atomic_load_n(&e->heap.calls, __ATOMIC_RELAXED);
    if (e->device) {
        device_stats d;
        device_stats_of(e->device, &d);
        stats->device_bytes = d.buffer_bytes;
        stats->device_bytes_peak = d.buffer_bytes_peak;
        stats->submits = d.submits;
        stats->dispatches = d.dispatches;
        stats->device_objects = d.objects;
    }
    const engine_plan *decode = NULL; /* with adapters, if any were used */
    static const unsigned kinds[] = {PLAN_DECODE_NEAR + PLAN_ADAPTED, PLAN_DECODE + PLAN_ADAPTED,
                                     PLAN_DECODE_NEAR, PLAN_DECODE};
    for (size_t i = 0; i < sizeof kinds / sizeof *kinds && (!decode || !decode->exec); i++)
        decode = &e->plans[kinds[i]];
    if (decode->exec) {
        graph_exec_info plan;
        graph_exec_describe(decode->exec, &plan);
        stats->decode_dispatches = plan.dispatches;
        stats->decode_bytes_per_token = plan.bytes;
    }
}

/* ---- what the file has ----------------------------------------------------------------------- */

enum { LONG_ARRAY = 64 };

static void write_pairs(const format_gguf *g, base_text *out) {
    base_text_print(out, "{\"metadata\":{");
    for (size_t i = 0; i < format_gguf_n_pair(g); i++) {
        const format_gguf_pair *pair = format_gguf_pair_at(g, i);
        if (i) base_text_add(out, ",", 1);
        base_json_write_string(out, pair->key.data, pair->key.size);
        base_text_add(out, ":", 1);
        if (pair->is_array && pair->count > LONG_ARRAY) {
            base_text_print(out, "{\"type\":\"%s\",\"count\":%llu}",
                            format_gguf_kind_name(pair->kind), (unsigned long long)pair->count);
        } else {
            format_gguf_pair_write(pair, LONG_ARRAY, out);
        }
    }
    base_text_add(out, "}", 1);
}

static void write_tensors(const format_gguf *g, base_text *out) {
    base_text_print(out, ",\"tensors\":[");
    for (size_t i = 0; i < format_gguf_n_tensor(g); i++) {
        const format_gguf_tensor *t = format_gguf_tensor_at(g, i);
        base_text_print(out, "%s{\"name\":", i ? "," : "");
        base_json_write_string(out, t->name.data, t->name.size);
        const char *type = base_type_gguf_name(t->gguf_type);
        if (type) base_text_print(out, ",\"type\":\"%s\",\"shape\":[", type);
        else base_text_print(out, ",\"type\":\"type %u\",\"shape\":[", t->gguf_type);
        for (uint32_t k = 0; k < t->n_dim; k++)
            base_text_print(out, "%s%llu", k ? "," : "", (unsigned long long)t->ne[k]);
        base_text_print(out, "],\"bytes\":%llu}", (unsigned long long)t->size);
    }
    base_text_add(out, "]", 1);
}

beryl_status beryl_engine_describe(const beryl_engine *engine, bool tensors, char **json,
                                   beryl_error *error) {
    if (json) *json = NULL;
    if (!engine || !json || !engine->loaded)
        return base_fail(error, BERYL_MISUSE,
                         "beryl_engine_describe needs a loaded engine and a place for the text");
    base_text text;
    base_text_init(&text, engine_heap(engine));
    write_pairs(engine->gguf, &text);
    if (tensors) write_tensors(engine->gguf, &text);
    base_text_add(&text, "}", 1);
    *json = text.failed ? NULL : engine_hand_out(engine, text.data, text.size);
    base_text_fini(&text);
    return *json ? BERYL_OK : base_no_memory(error);
}
