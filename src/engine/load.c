/* load.c - opening an engine: from a name to weights on a device, in steps. */
#include "base/build.h"
#include "base/error.h"
#include "base/file.h"
#include "engine/engine.h"

#include <math.h>
#include <stdio.h>
#include <string.h>

static char *copy_text(base_arena *arena, const char *text) {
    return text ? base_arena_text(arena, text, strlen(text)) : NULL;
}

beryl_status beryl_engine_open(const beryl_engine_options *options, beryl_engine **out,
                               beryl_error *error) {
    static const beryl_engine_options none = {.size = sizeof none};
    if (!out)
        return base_fail(error, BERYL_MISUSE, "beryl_engine_open needs a place for the engine");
    *out = NULL;
    if (!options) options = &none;
    if (options->size < offsetof(beryl_engine_options, log) || options->size > 1 << 16)
        return base_fail(error, BERYL_MISUSE,
                         "beryl_engine_options.size is %zu: set it to sizeof(beryl_engine_options)",
                         options->size);
    beryl_engine_options o = none;
    memcpy(&o, options, options->size < sizeof o ? options->size : sizeof o);
    if (o.sessions > ENGINE_SESSION_MAX)
        return base_fail(error, BERYL_MISUSE, "%u sessions: at most %d", o.sessions,
                         ENGINE_SESSION_MAX);
    if ((unsigned)o.precision > BERYL_PRECISION_EXACT || (unsigned)o.kv > BERYL_KV_Q8)
        return base_fail(error, BERYL_MISUSE, "no such precision or KV type");
    base_heap heap;
    base_heap_init(&heap, &o.allocator);
    beryl_engine *e = base_heap_take(&heap, sizeof *e);
    if (!e) return base_no_memory(error);
    e->heap = heap;
    base_arena_init(&e->arena, &e->heap);
    e->log = o.log;
    e->options = o;
    if (o.source) e->source = *o.source;
    if (o.mmproj_source) e->mmproj_source = *o.mmproj_source;
    e->mmproj_given = o.mmproj_source != NULL;
    e->options.source = e->options.mmproj_source = NULL;
    e->options.model = copy_text(&e->arena, o.model);
    e->options.device = copy_text(&e->arena, o.device);
    e->options.mmproj = copy_text(&e->arena, o.mmproj);
    if ((o.model && !e->options.model) || (o.device && !e->options.device) ||
        (o.mmproj && !e->options.mmproj)) {
        beryl_engine_close(e);
        return base_no_memory(error);
    }
    if (o.header_only) e->options.vocabulary_only = true; /* nor more than that */
    if (o.sessions == 0) e->options.sessions = 1;
    if (o.kv == BERYL_KV_DEFAULT)
        e->options.kv = o.precision == BERYL_PRECISION_EXACT ? BERYL_KV_F32 : BERYL_KV_F16;
    *out = e;
    return BERYL_OK;
}

void beryl_engine_close(beryl_engine *e) {
    if (!e) return;
    if (e->device && e->n_flight) device_wait(e->device, e->flight[e->n_flight - 1].ticket, NULL);
    engine_plans_close(e);
    engine_towers_close(e);
    engine_lora_close(e);
    store_fini(&e->store);
    device_close(e->device);
    base_vec_fini(&e->heap, &e->known);
    engine_tuned_close(e);
    text_tokenizer_close(e->tokenizer);
    format_gguf_close(e->gguf);
    format_gguf_close(e->mmproj);
    if (e->source.close) e->source.close(e->source.user);
    if (e->mmproj_source.close) e->mmproj_source.close(e->mmproj_source.user);
    base_arena_fini(&e->arena);
    base_heap heap = e->heap;
    base_heap_give(&heap, e, sizeof *e);
}

/* ---- tokenizer and defaults ------------------------------------------------------------------ */

static int32_t token_id(const format_gguf *g, const char *key) {
    int32_t id = -1;
    format_gguf_get_i32(g, key, &id, NULL);
    return id;
}

static beryl_status optional(beryl_status status) {
    return status == BERYL_NOT_FOUND ? BERYL_OK : status;
}

/* The file's head is what takes most of the heap while weights come, and half of it are arrays that
 * the tokenizer has read. The texts of its tokens stay in the head. */
static beryl_status trim_head(beryl_engine *e, base_view *tokens, beryl_error *error) {
    static const char *const read[] = {"tokenizer.ggml.merges", "tokenizer.ggml.scores",
                                       "tokenizer.ggml.token_type"};
    base_view *moved;
    size_t n;
    base_arena arena;
    base_arena_init(&arena, &e->heap);
    for (size_t i = 0; i < sizeof read / sizeof *read; i++) format_gguf_forget(e->gguf, read[i]);
    beryl_status status =
        format_gguf_strings(e->gguf, "tokenizer.ggml.tokens", &arena, &moved, &n, error);
    if (status == BERYL_OK) memcpy(tokens, moved, n * sizeof *tokens);
    base_arena_fini(&arena);
    return status;
}

static beryl_status open_tokenizer(beryl_engine *e, beryl_error *error) {
    const format_gguf *g = e->gguf;
    base_view model = {0};
    beryl_status status = format_gguf_get_string(g, "tokenizer.ggml.model", &model, error);
    if (status != BERYL_OK) return status;
    if (!base_view_equal(model, BASE_VIEW("gemma4")) && !base_view_equal(model, BASE_VIEW("llama")))
        return base_fail(error, BERYL_UNSUPPORTED,
                         "tokenizer '%.*s' is not supported: Gemma 4 has 'gemma4' or 'llama'",
                         model.size > 40 ? 40 : (int)model.size, model.data);
    text_vocab_desc desc = {.bos = token_id(g, "tokenizer.ggml.bos_token_id"),
                            .eos = token_id(g, "tokenizer.ggml.eos_token_id"),
                            .pad = token_id(g, "tokenizer.ggml.padding_token_id"),
                            .unk = token_id(g, "tokenizer.ggml.unknown_token_id")};
    base_view *tokens = NULL;
    int32_t *types = NULL, *eos = NULL, *suppress = NULL;
    size_t n_type = 0, n_eos = 0;
    base_arena arena; /* types are read only now */
    base_arena_init(&arena, &e->heap);
    status =
        format_gguf_strings(g, "tokenizer.ggml.tokens", &e->arena, &tokens, &desc.n_token, error);
    if (status == BERYL_OK)
        status = format_gguf_strings_at(g, "tokenizer.ggml.merges", &desc.first_merge,
                                        &desc.n_merge, error);
    if (status == BERYL_OK)
        status = optional(
            format_gguf_i32s(g, "tokenizer.ggml.token_type", &arena, &types, &n_type, error));
    if (status == BERYL_OK && types && n_type != desc.n_token)
        status = base_fail(error, BERYL_BAD_FILE, "%zu token types for %zu tokens", n_type,
                           desc.n_token);
    if (status == BERYL_OK)
        status = optional(
            format_gguf_i32s(g, "tokenizer.ggml.eos_token_ids", &arena, &eos, &n_eos, error));
    if (status == BERYL_OK)
        status = optional(format_gguf_i32s(g, "tokenizer.ggml.suppress_tokens", &arena, &suppress,
                                           &desc.n_suppress, error));
    int32_t *stops = status == BERYL_OK ? base_arena_take(&arena, n_eos + 1, sizeof *stops) : NULL;
    if (status == BERYL_OK && !stops) status = base_no_memory(error);
    if (status == BERYL_OK) {
        int32_t turn = token_id(g, "tokenizer.ggml.eot_token_id");
        for (size_t i = 0; i < n_eos; i++) stops[desc.n_eos++] = eos[i];
        if (turn >= 0) stops[desc.n_eos++] = turn;
        desc.tokens = tokens;
        desc.types = types;
        desc.next_merge = format_gguf_string_next;
        desc.stepwise = true;
        desc.eos_ids = stops;
        desc.suppress = suppress;
        format_gguf_bool_or(g, "tokenizer.ggml.add_bos_token", true, &desc.add_bos, NULL);
        status = text_tokenizer_open(&e->heap, &desc, &e->tokenizer, error);
    }
    base_arena_fini(&arena);
    e->unread = tokens;
    return status;
}

/* The rest of the vocabulary, for about so long. EVENT: there is more. */
static beryl_status read_merges(beryl_engine *e, double seconds, beryl_error *error) {
    if (!e->unread) return BERYL_OK;
    beryl_status status = text_tokenizer_step(e->tokenizer, seconds, error);
    if (status == BERYL_OK) status = trim_head(e, e->unread, error);
    if (status == BERYL_OK) e->unread = NULL;
    return status;
}

static void number_of(const base_json *params, const char *key, float *out) {
    const base_json *value = params ? base_json_find(params, key) : NULL;
    if (value && value->kind == JSON_NUMBER) *out = (float)value->number;
}

/* Sampling defaults: Ollama's params, then the file's, then the model family's. */
static void read_defaults(beryl_engine *e) {
    const format_gguf *g = e->gguf;
    float top_k = 64;
    uint32_t per_layer = 0;
    e->temperature = 1.0f;
    e->top_p = 0.95f;
    format_gguf_get_f32(g, "general.sampling.temp", &e->temperature, NULL);
    format_gguf_get_f32(g, "general.sampling.top_p", &e->top_p, NULL);
    uint32_t k = 64;
    format_gguf_get_u32(g, "general.sampling.top_k", &k, NULL);
    top_k = (float)k;
    base_json *params = NULL;
    if (e->found.params)
        base_json_parse(&e->arena, e->found.params, strlen(e->found.params), &params, NULL);
    number_of(params, "temperature", &e->temperature);
    number_of(params, "top_p", &e->top_p);
    number_of(params, "top_k", &top_k);
    if (!(e->temperature >= 0) || e->temperature > 100) e->temperature = 1.0f;
    if (!(e->top_p > 0) || e->top_p > 1) e->top_p = 1;
    e->top_k = top_k >= 1 && top_k <= BASE_CANDIDATE_MAX ? (uint32_t)top_k : 64;
    format_gguf_get_u32(g, "gemma4.embedding_length_per_layer_input", &per_layer, NULL);
    e->style = per_layer ? TEXT_CHAT_SMALL : TEXT_CHAT_LARGE;
}

/* Conversations are written in Gemma 4's form, whatever the file says. */
static void check_template(const beryl_engine *e) {
    base_view source = {0};
    if (format_gguf_get_string(e->gguf, "tokenizer.chat_template", &source, NULL) != BERYL_OK ||
        text_chat_template_known(source))
        return;
    base_log(
        &e->log, BERYL_LOG_WARNING,
        "the file has a chat template of its own (tokenizer.chat_template), which is not followed: "
        "conversations are written in Gemma 4's form of 2026-07-09");
}

/* ---- device and model ------------------------------------------------------------------------ */

beryl_status engine_device_open(base_heap *heap, const beryl_log *log, const char *choice,
                                device **out, beryl_error *error) {
    *out = NULL;
    if (!choice || !*choice) choice = base_environment("BERYL_DEVICE");
    if (choice && (!strcmp(choice, "reference") || !strcmp(choice, "reference:0"))) return BERYL_OK;
    beryl_status status = device_open(heap, log, choice, out, error);
    const device_caps *caps = status == BERYL_OK ? device_caps_of(*out) : NULL;
    if (!caps || caps->languages) return status;
    status = base_fail(error, BERYL_UNSUPPORTED,
                       "%s:%u keeps memory but runs no programs: 'beryl devices' lists what does",
                       caps->backend, caps->index);
    device_close(*out);
    *out = NULL;
    return status;
}

static beryl_status open_device(beryl_engine *e, beryl_error *error) {
    beryl_status status =
        engine_device_open(&e->heap, &e->log, e->options.device, &e->device, error);
    if (status != BERYL_OK || !e->device) return status;
    if (e->options.no_cache) device_cache_forgo(e->device);
    engine_check_recall(e);
    return BERYL_OK;
}

static base_type kv_type(beryl_kv kv) {
    return kv == BERYL_KV_F32 ? TYPE_F32 : kv == BERYL_KV_Q8 ? TYPE_Q8_0 : TYPE_F16;
}

/* The model's shape, and a store over the file. */
static beryl_status open_store(beryl_engine *e, beryl_error *error) {
    uint32_t n_source = (uint32_t)format_gguf_n_file(e->gguf);
    beryl_source *sources = base_arena_take(&e->arena, n_source + 1, sizeof *sources);
    if (!sources) return base_no_memory(error);
    for (uint32_t i = 0; i < n_source; i++) sources[i] = *format_gguf_source(e->gguf, i);
    sources[n_source++] = engine_lora_source(e);
    beryl_status status = gemma4_config_read(e->gguf, &e->arena, &e->model, error);
    return status == BERYL_OK ? store_init(&e->store, &e->heap, e->device, sources, n_source, error)
                              : status;
}

static void add_model_weights(beryl_engine *e, bool on_host, beryl_status *status,
                              beryl_error *error) {
    *status = open_store(e, error);
    if (*status == BERYL_OK) {
        if (!on_host) engine_tuned_recall(e); /* once: on_host is another try */
        engine_tuned_use(e, true);
    }
    if (*status == BERYL_OK)
        *status = gemma4_weights_add(e->gguf, &e->model, &e->store, on_host, error);
}

/* Tensors may share bytes, so that a small file could ask for any amount of memory. */
static beryl_status check_claim(const beryl_engine *e, beryl_error *error) {
    const uint64_t size = format_gguf_size(e->gguf);
    uint64_t left = size;
    for (size_t i = 0; i < e->store.tensors.count; i++) {
        const store_tensor *t = &e->store.tensors.data[i];
        if (t->is_state) continue;
        if (t->file_bytes > left)
            return base_fail(error, BERYL_BAD_FILE,
                             "the model's tensors claim more than the %llu bytes that there are: "
                             "several lie in one place",
                             (unsigned long long)size);
        left -= t->file_bytes;
    }
    return BERYL_OK;
}

/* Where defaults grow with the device's memory, what lies there beside the weights; else 0. What
 * imitates a device pays for it with time, and a page has to know what it asks for. */
static uint64_t spare_memory(const beryl_engine *e) {
    const device_caps *caps = e->device ? device_caps_of(e->device) : NULL;
    if (BUILD_IS_MODULE || e->no_growth || !caps || caps->kind == DEVICE_SOFTWARE) return 0;
    const uint64_t memory =
        e->options.memory && e->options.memory < caps->memory ? e->options.memory : caps->memory;
    const uint64_t weights = format_gguf_data_size(e->gguf);
    return memory > weights ? memory - weights : 0;
}

/* Bytes that a position takes in the caches of all layers of a kind. */
static uint64_t position_bytes(const beryl_engine *e, bool sliding, uint64_t *widest) {
    uint64_t each = 0;
    *widest = 0;
    for (uint32_t l = 0; l < e->model.config.n_layer; l++) {
        const gemma4_layer *layer = &e->model.layers[l];
        if (layer->sliding != sliding || !layer->owner) continue;
        const uint64_t bytes = base_type_row_bytes(kv_type(e->options.kv), layer->head_dim) *
                               layer->n_kv * e->options.sessions;
        each += 2 * bytes;
        if (bytes > *widest) *widest = bytes;
    }
    return each;
}

static uint64_t largest_buffer(const device *d) {
    const device_caps *caps = device_caps_of(d);
    return caps->binding_max < caps->buffer_max ? caps->binding_max : caps->buffer_max;
}

/* The default where the file has more than ENGINE_CONTEXT: so much that the caches take a
 * quarter of the memory beside the weights at most. */
static uint32_t grown_context(const beryl_engine *e) {
    const uint64_t spare = spare_memory(e);
    uint64_t widest;
    const uint64_t each = position_bytes(e, false, &widest);
    uint32_t context = ENGINE_CONTEXT;
    while (spare && 2 * context <= ENGINE_CONTEXT_MAX && 2 * context * each <= spare / 4 &&
           2 * context * widest <= largest_buffer(e->device))
        context *= 2;
    return context;
}

/* The default: longer on a GPU where rings, their copies and a layer's values in two plans take
 * an eighth of the memory beside the weights at most. Weights are then read, and unpacked, less
 * often. */
static uint32_t grown_piece(const beryl_engine *e) {
    const gemma4_config *c = &e->model.config;
    const uint64_t spare = spare_memory(e);
    uint64_t widest, row = 0;
    for (uint32_t l = 0; l < c->n_layer; l++) {
        const gemma4_layer *layer = &e->model.layers[l];
        const uint64_t wide = 8 * (uint64_t)c->n_embd + 3 * (uint64_t)layer->n_ff +
                              4 * (uint64_t)c->n_head * layer->head_dim +
                              (uint64_t)c->n_expert_used * (c->n_embd + 3 * c->n_ff_expert);
        if (wide > row) row = wide;
    }
    const uint64_t each = 2 * position_bytes(e, true, &widest) + 2 * row * sizeof(float);
    uint32_t piece = ENGINE_PIECE;
    if (e->device && device_is_processor(device_caps_of(e->device))) return piece;
    while (spare && 2 * piece <= ENGINE_PIECE_MAX && 2 * piece * each <= spare / 8 &&
           2 * piece * row * sizeof(float) <= largest_buffer(e->device))
        piece *= 2;
    return piece;
}

/* Weights, caches, buffers. */
static beryl_status place_model(beryl_engine *e, beryl_error *error) {
    beryl_status status = BERYL_OK;
    add_model_weights(e, e->table_on_host, &status, error);
    if (status == BERYL_OK) status = check_claim(e, error);
    if (status != BERYL_OK) return status;
    const uint32_t most = e->model.config.context_max, grown = grown_context(e);
    const uint32_t context = e->options.context ? e->options.context : grown < most ? grown : most;
    if (context > most)
        return base_fail(error, BERYL_BAD_INPUT, "--context %u: this model has at most %u", context,
                         most);
    if (e->model.config.n_vocab != text_n_token(e->tokenizer))
        return base_fail(error, BERYL_BAD_FILE, "vocabulary of two sizes");
    e->piece = e->options.piece ? e->options.piece : grown_piece(e);
    if (e->piece > context) e->piece = context;
    e->piece_now = e->piece;
    e->depth.depth = ENGINE_FLIGHT_MIN;
    e->kv_type = kv_type(e->options.kv);
    size_t n_suppress;
    text_suppressed(e->tokenizer, &n_suppress);
    gemma4_cache_desc cache = {e->kv_type, e->options.sessions, context, e->piece,
                               ENGINE_FLIGHT_MAX};
    status = gemma4_cache_add(&e->model, &e->store, &cache, n_suppress > 0, error);
    if (status == BERYL_OK) status = store_layout(&e->store, e->options.memory, error);
    if (status == BERYL_OK) status = store_make(&e->store, error);
    return status;
}

static beryl_status set_suppressed(beryl_engine *e, beryl_error *error) {
    size_t n;
    const int32_t *ids = text_suppressed(e->tokenizer, &n);
    const float never = -1e30f; /* finite: infinities are not portable in shaders */
    beryl_status status = BERYL_OK;
    for (size_t i = 0; status == BERYL_OK && i < n; i++)
        status = store_state_write(&e->store, e->model.suppress, (uint64_t)ids[i] * 4, &never,
                                   sizeof never, error);
    return status;
}

/* What did not fit is to be placed anew with less. False: there is nothing to leave out. */
static bool forgo_some(beryl_engine *e) {
    if ((!e->options.context && e->model.context > ENGINE_CONTEXT) ||
        (!e->options.piece && e->piece > ENGINE_PIECE)) {
        e->no_growth = true;
    } else if (!e->table_on_host && gemma4_per_layer_bytes(e->gguf) > 0) {
        base_log(&e->log, BERYL_LOG_INFO, "the per-layer-embedding table stays on the host");
        e->table_on_host = true;
    } else {
        return false;
    }
    store_fini(&e->store);
    return true;
}

/* May be PENDING, and is then begun anew: little was read so far. */
static beryl_status make_model(beryl_engine *e, beryl_error *error) {
    beryl_status status = place_model(e, error);
    while (status == BERYL_NO_DEVICE_MEMORY && forgo_some(e)) status = place_model(e, error);
    if (status == BERYL_PENDING) store_fini(&e->store);
    return status;
}

/* Before a weight is read, a device that tells late is asked whether it has the memory. *again:
 * the model is to be placed anew. */
static beryl_status check_room(beryl_engine *e, bool *again, beryl_error *error) {
    beryl_error why = {0};
    const graph_store *s = &e->store;
    beryl_status status = e->device ? device_settle(e->device, &why) : BERYL_OK;
    if (status == BERYL_NO_DEVICE_MEMORY) engine_plans_close(e); /* before the store */
    *again = status == BERYL_NO_DEVICE_MEMORY && forgo_some(e);
    if (*again) return BERYL_OK;
    if (status == BERYL_NO_DEVICE_MEMORY)
        return base_fail(error, status,
                         "the device has no room for %llu MB (weights %llu, cache %llu): %s",
                         (unsigned long long)((s->weight_bytes + s->state_bytes) >> 20),
                         (unsigned long long)(s->weight_bytes >> 20),
                         (unsigned long long)(s->state_bytes >> 20), why.message);
    if (status != BERYL_OK) *error = why;
    return status == BERYL_OK && e->model.suppress != GEMMA4_NONE ? set_suppressed(e, error)
                                                                  : status;
}

/* ---- files that may not run ------------------------------------------------------------------ */

static beryl_status check_types(const format_gguf *g, beryl_error *error) {
    const format_gguf_tensor *first = NULL;
    size_t n = 0;
    for (size_t i = 0; i < format_gguf_n_tensor(g); i++) {
        const format_gguf_tensor *t = format_gguf_tensor_at(g, i);
        if (t->type != TYPE_COUNT) continue;
        if (!n++) first = t;
    }
    if (!first) return BERYL_OK;
    char number[24];
    const char *type = base_type_gguf_name(first->gguf_type);
    snprintf(number, sizeof number, "type %u", first->gguf_type);
    return base_fail(
        error, BERYL_UNSUPPORTED,
        "%zu of %zu tensors have types that are not supported, the first is '%.*s' with %s", n,
        format_gguf_n_tensor(g), first->name.size > 80 ? 80 : (int)first->name.size,
        first->name.data, type ? type : number);
}

/* Are the tensors there that the model needs? */
static beryl_status check_weights(beryl_engine *e, beryl_error *error) {
    beryl_status status = open_store(e, error);
    if (status == BERYL_OK)
        status = gemma4_weights_add(e->gguf, &e->model, &e->store, false, error);
    store_fini(&e->store);
    return status;
}

/* Only memory and the source can fail here; what else is wrong becomes e->why_not. */
static beryl_status judge(beryl_engine *e, beryl_error *error) {
    beryl_error why = {0};
    read_defaults(e);
    beryl_status status = gemma4_check_architecture(e->gguf, &why);
    if (status == BERYL_OK) status = check_types(e->gguf, &why);
    if (status == BERYL_OK) status = check_weights(e, &why);
    if (status == BERYL_OK) status = open_tokenizer(e, &why);
    if (status == BERYL_OK) status = read_merges(e, INFINITY, &why);
    if (status == BERYL_OK || status == BERYL_PENDING) return status;
    *error = why;
    if (status == BERYL_NO_MEMORY || status == BERYL_IO) return status;
    e->why_not = copy_text(&e->arena, why.message);
    return e->why_not ? BERYL_OK : base_no_memory(error);
}

/* ---- the task -------------------------------------------------------------------------------- */

/* The hash, which reads a little of everything, comes late: a source that fetches has it all by
 * then. */
typedef enum load_stage {
    LOAD_FIND,
    LOAD_HEADER,
    LOAD_TOKENIZER,
    LOAD_DEVICE,
    LOAD_PLACE,
    LOAD_ROOM,
    LOAD_PLANS,
    LOAD_UPLOAD,
    LOAD_HASH,
    LOAD_READY,
    LOAD_CHECK,
    LOAD_REST
} load_stage;

typedef struct load {
    load_stage stage;
    uint64_t due; /* bytes of the upload behind which something else has its turn */
    bool checked; /* the kernels of the first plans */
    uint64_t n_tried, n_trial;
} load;

/* While weights come, the load does all else in slices: where it has to wait for them, and, so that
 * programs are compiled early, now and then. A slice is short against what sources read ahead. */
#define SLICE_SECONDS 0.004
enum { SLICE_BYTES = 16 << 20 };

static beryl_status find_file(beryl_engine *e, beryl_error *error) {
    if (e->source.read) {
        e->found = (format_model){.name = "(given)", .path = "(given)", .source = "file"};
        beryl_source source = e->source;
        e->source = (beryl_source){0};
        return format_gguf_open(&e->heap, &source, 1, &e->gguf, error);
    }
#ifdef __wasm__ /* what searches for files would only make the module larger */
    return base_fail(error, BERYL_UNSUPPORTED, "this build has no files; give a source instead");
#else
    beryl_status status = format_store_find(&e->arena, e->options.model, &e->found, error);
    return status == BERYL_OK ? format_gguf_open_path(&e->heap, e->found.path, &e->gguf, error)
                              : status;
#endif
}

/* Begins to read the towers' file, where they have one of their own: a given one, one that is
 * named, or one that was found beside a model without towers. */
static beryl_status open_towers(beryl_engine *e, beryl_error *error) {
    const beryl_source source = e->mmproj_source;
    e->mmproj_source = (beryl_source){0};
    if (source.read) return format_gguf_open(&e->heap, &source, 1, &e->mmproj, error);
#ifdef __wasm__
    return BERYL_OK;
#else
    const char *path = e->options.mmproj ? e->options.mmproj : e->found.projector;
    bool sees = false, hears = false;
    if (!e->options.mmproj) gemma4_towers(e->gguf, &sees, &hears);
    if (!path || sees || hears) return BERYL_OK;
    base_log(&e->log, BERYL_LOG_INFO, "towers for pictures and sound: %s", path);
    return format_gguf_open_path(&e->heap, path, &e->mmproj, error);
#endif
}

/* The header of the model's file, then that of its towers. A damaged file that was only found
 * beside the model is as none. */
static beryl_status read_headers(beryl_engine *e, beryl_error *error) {
    if (!BUILD_IS_MODULE && e->options.header_only) format_gguf_any_type(e->gguf);
    beryl_status status = format_gguf_step(e->gguf, error);
    if (status != BERYL_OK) return status;
    const bool given = e->options.mmproj || e->mmproj_given;
    if (!e->mmproj) status = open_towers(e, error);
    if (status == BERYL_OK && e->mmproj) status = format_gguf_step(e->mmproj, error);
    if (status == BERYL_OK || status == BERYL_PENDING || given) return status;
    base_log(&e->log, BERYL_LOG_WARNING, "no towers: %s", error->message);
    *error = (beryl_error){0};
    format_gguf_close(e->mmproj);
    e->mmproj = NULL;
    return BERYL_OK;
}

static beryl_status make_plans(beryl_engine *e, const engine_plan_kind *kinds, size_t n,
                               beryl_error *error) {
    beryl_status status = BERYL_OK;
    for (size_t i = 0; status == BERYL_OK && i < n; i++)
        status = engine_plan_make(e, kinds[i], SLICE_SECONDS, error);
    return status;
}

/* What a short question needs. The load waits for these. On a processor, where a compile takes
 * longest, steps are compiled and checked while the question is read, or after it: the first
 * word needs none. */
static uint32_t first_plans(const beryl_engine *e, engine_plan_kind kinds[2]) {
    const bool is_processor = e->device && device_is_processor(device_caps_of(e->device));
    kinds[0] = PLAN_OUTPUT_SMALL;
    kinds[1] = engine_has_near(e) ? PLAN_DECODE_NEAR : PLAN_DECODE;
    return is_processor ? 1 : 2;
}

static beryl_status make_first_plans(beryl_engine *e, beryl_error *error) {
    engine_plan_kind kinds[2];
    return make_plans(e, kinds, first_plans(e, kinds), error);
}

/* What the next questions need. In a browser's software a compile takes the processor from the
 * first question's own step: there these plans wait until they are needed. */
static beryl_status make_other_plans(beryl_engine *e, beryl_error *error) {
    if (BUILD_IS_MODULE && device_caps_of(e->device)->kind == DEVICE_SOFTWARE) return BERYL_OK;
    engine_plan_kind kinds[5] = {PLAN_DECODE, PLAN_OUTPUT, PLAN_PREFILL};
    uint32_t n = 3;
    if (e->piece > ENGINE_PIECE) kinds[n++] = PLAN_OUTPUT_LONG;
    if (e->options.sessions > 1)
        kinds[n++] = e->options.sessions <= 8 ? PLAN_DECODE_8 : PLAN_DECODE_ALL;
    return make_plans(e, kinds, n, error);
}

/* Is there a compiler that works through its list while the weights come? In a browser, and
 * where the device is the CPU, programs that are not needed yet only hold up those that are. */
static bool compiles_aside(const beryl_engine *e) {
    return !BUILD_IS_MODULE && (!e->device || !device_is_processor(device_caps_of(e->device)));
}

static beryl_status plans_ready(beryl_engine *e, beryl_error *error) {
    engine_plan_kind kinds[2 + PLAN_COUNT];
    uint32_t n = first_plans(e, kinds);
    for (int k = 0; compiles_aside(e) && k < PLAN_COUNT; k++)
        if (e->plans[k].exec) kinds[n++] = (engine_plan_kind)k;
    beryl_status status = BERYL_OK;
    for (uint32_t i = 0; status == BERYL_OK && i < n; i++) {
        engine_plan *plan;
        status = engine_plan_get(e, kinds[i], &plan, error);
    }
    return status;
}

/* The plans, and while their programs are compiled the vocabulary. EVENT: there is more to do. */
static beryl_status prepare(beryl_task *task, load *l) {
    beryl_engine *e = task->engine;
    beryl_error why = {0};
    beryl_status status = make_first_plans(e, &why);
    if (status == BERYL_OK && compiles_aside(e)) status = make_other_plans(e, &why);
    if (status == BERYL_OK) status = read_merges(e, SLICE_SECONDS, &why);
    if (status == BERYL_OK || status == BERYL_EVENT) return status;
    engine_plans_close(e); /* before the store that they lie on */
    if (status == BERYL_NO_DEVICE_MEMORY && forgo_some(e)) {
        l->stage = LOAD_PLACE - 1;
        return BERYL_OK;
    }
    task->error = why;
    return status;
}

/* The same while something else is waited for. */
static beryl_status prepare_beside(beryl_task *task, load *l) {
    const load_stage stage = l->stage;
    const beryl_status status = prepare(task, l);
    return status == BERYL_OK && l->stage == stage ? BERYL_PENDING : status;
}

/* A device whose kernels fail may pass for one that needs others: then plans are made again. */
static beryl_status check_kernels(beryl_task *task, load *l) {
    bool again;
    if (l->checked) return BERYL_OK;
    beryl_status status =
        engine_check_step(task->engine, &again, &l->n_tried, &l->n_trial, &task->error);
    l->checked = status == BERYL_OK && !again;
    if (status == BERYL_OK && again) l->stage = LOAD_PLANS - 1;
    return status;
}

/* Something else than the upload, of which kernels are checked with other weights, where writes and
 * runs keep their order. EVENT: something was done. PENDING: nothing can be. OK: the upload is
 * left. */
static beryl_status do_beside(beryl_task *task, load *l) {
    beryl_engine *e = task->engine;
    device_ticket ticket;
    beryl_status status = device_poll(e->device, &ticket, &task->error);
    if (status == BERYL_OK) status = prepare_beside(task, l);
    if (status != BERYL_PENDING) return status;
    if (!device_caps_of(e->device)->in_order || plans_ready(e, NULL) != BERYL_OK)
        return BERYL_PENDING;
    status = check_kernels(task, l);
    return status == BERYL_OK && l->stage == LOAD_UPLOAD ? BERYL_PENDING : status;
}

static beryl_status upload(beryl_task *task, load *l) {
    beryl_engine *e = task->engine;
    const uint64_t done = e->store.upload_done;
    if (e->device && done >= l->due && store_is_uploading(&e->store)) {
        l->due = done + SLICE_BYTES;
        const beryl_status status = do_beside(task, l);
        if (status != BERYL_PENDING) return status;
    }
    const beryl_status status = store_upload_step(&e->store, &task->error);
    if (status == BERYL_OK) return prepare(task, l);
    return status == BERYL_PENDING && e->device ? do_beside(task, l) : status;
}

static beryl_status compile_kernels(beryl_engine *e, load *l, beryl_error *error) {
    beryl_error why = {0};
    beryl_status status = plans_ready(e, &why);
    if ((status == BERYL_DEVICE || status == BERYL_UNSUPPORTED) && engine_check_broken(e, &why)) {
        l->stage = LOAD_PLANS - 1;
        return BERYL_OK;
    }
    if (status != BERYL_OK) *error = why;
    return status;
}

/* One stage; OK goes on to the one after it. */
static beryl_status load_stage_run(beryl_task *task, load *l) {
    beryl_engine *e = task->engine;
    beryl_error *error = &task->error;
    beryl_status status = BERYL_OK;
    bool again;
    switch (l->stage) {
    case LOAD_FIND: return find_file(e, error);
    case LOAD_HEADER: return read_headers(e, error);
    case LOAD_TOKENIZER:
        if (!BUILD_IS_MODULE && e->options.header_only) return judge(e, error);
        status = gemma4_check_architecture(e->gguf, error);
        if (status == BERYL_OK) status = open_tokenizer(e, error);
        if (status == BERYL_OK) read_defaults(e);
        if (status != BERYL_OK) return status;
        if (e->options.vocabulary_only) return read_merges(e, INFINITY, error);
        check_template(e);
        return status;
    case LOAD_DEVICE: return open_device(e, error);
    case LOAD_PLACE: return make_model(e, error);
    case LOAD_ROOM:
        status = check_room(e, &again, error);
        if (status == BERYL_PENDING) return prepare_beside(task, l);
        if (status == BERYL_OK && again) l->stage = LOAD_PLACE - 1;
        return status;
    case LOAD_PLANS: /* where a file's bytes need not be waited for */
        return e->device && !base_source_is_file(&e->store.sources[0]) ? BERYL_OK
                                                                       : prepare(task, l);
    case LOAD_UPLOAD: return upload(task, l);
    case LOAD_HASH: return format_gguf_hash(e->gguf, &e->model_hash, error);
    case LOAD_READY:
        status = compile_kernels(e, l, error);
        return status == BERYL_PENDING ? engine_compile_progress(task) : status;
    case LOAD_CHECK: return check_kernels(task, l);
    case LOAD_REST: return make_other_plans(e, error);
    }
    return BERYL_OK;
}

static beryl_status tell(beryl_task *task, const load *l) {
    const graph_store *s = &task->engine->store;
    if (l->stage == LOAD_UPLOAD)
        return task_progress(task, "loading weights", s->upload_done, s->upload_total);
    if (l->stage == LOAD_CHECK)
        return task_progress(task, "checking kernels", l->n_tried, l->n_trial);
    if (l->stage == LOAD_READY) return BERYL_EVENT;
    return task_progress(task, l->stage == LOAD_REST ? "making more plans" : "making plans", 0, 0);
}

static beryl_status load_step(beryl_task *task) {
    beryl_engine *e = task->engine;
    load *l = task->state;
    if (task_is_cancelled(task))
        return base_fail(&task->error, BERYL_CANCELLED, "loading was cancelled");
    for (;;) {
        beryl_status status = load_stage_run(task, l);
        if (status == BERYL_EVENT) return tell(task, l);
        if (status != BERYL_OK) return status;
        const bool only = e->options.vocabulary_only && l->stage == LOAD_TOKENIZER;
        if (only || l->stage == LOAD_CHECK) {
            status = task_settle(task);
            if (status != BERYL_OK) return status;
            e->loaded = true; /* who does not wait may begin */
            e->stats.load_s = base_time() - e->load_started;
        }
        if (only || l->stage == LOAD_REST) return BERYL_OK;
        ++l->stage;
        if (task_is_cancelled(task))
            return base_fail(&task->error, BERYL_CANCELLED, "loading was cancelled");
    }
}

static void load_close(beryl_task *task) {
    base_heap_give(&task->engine->heap, task->state, sizeof(load));
}

beryl_status beryl_engine_load(beryl_engine *e, beryl_task **out, beryl_error *error) {
    if (!e || !out)
        return base_fail(error, BERYL_MISUSE,
                         "beryl_engine_load needs an engine and a place for the task");
    *out = NULL;
    if (e->load_started > 0)
        return base_fail(error, BERYL_MISUSE, "this engine was loaded before: open another one");
    load *l = base_heap_take(&e->heap, sizeof *l);
    beryl_status status = l ? task_open(e, NULL, load_step, out, error) : base_no_memory(error);
    if (status != BERYL_OK) {
        base_heap_give(&e->heap, l, sizeof *l);
        return status;
    }
    l->stage = LOAD_FIND;
    (*out)->state = l;
    (*out)->close = load_close;
    e->load_started = base_time();
    return BERYL_OK;
}
