/* module.c - what the WebAssembly module exports: beryl.h with numbers and addresses, for
 * engine.ts.
 *
 * One frame stands for one engine; `open` makes it, every call takes it first and gives a status.
 * What a call has to tell lies in the frame's first fields, which engine.ts reads at their offsets:
 * an event, a result, an error, and `out` with `out_size`, which is borrowed until the next call
 * that gives one. Options come as JSON, so that they have no layout. Texts that come in end with
 * NUL, in memory from `take`.
 *
 * The other direction, what JavaScript has to offer: ranges of sources, sinks, rows of logits, the
 * log. The device's own imports are in src/device/web, those of kept texts in src/base/file.c.
 */
#include "module.h"

#include <stdlib.h>
#include <string.h>

IMPORT(source_read)
uint32_t module_source_read(uint32_t source, double offset, void *to, uint32_t size);
IMPORT(source_close) void module_source_close(uint32_t source);
IMPORT(sink_write) uint32_t module_sink_write(uint32_t sink, const void *data, uint32_t size);
IMPORT(sink_close) uint32_t module_sink_close(uint32_t sink, uint32_t whole);
IMPORT(logits_row) void module_logits_row(uint32_t key, uint32_t position, const float *row);
IMPORT(log_line) void module_log(uint32_t level, const char *line, uint32_t size);

/* ---- memory and errors ----------------------------------------------------------------------- */

EXPORT(take) void *module_take(uint32_t size);
EXPORT(give) void module_give(void *memory);
EXPORT(open) frame *module_open(void);

void *module_take(uint32_t size) {
    return malloc(size ? size : 1);
}

void module_give(void *memory) {
    free(memory);
}

frame *module_open(void) {
    frame *f = calloc(1, sizeof *f);
    if (!f) return NULL;
    base_heap_init(&f->heap, NULL);
    base_text_init(&f->given, &f->heap);
    return f;
}

uint32_t frame_failed(frame *f, beryl_status status) {
    f->code = status;
    f->message = f->error.message[0] ? f->error.message : beryl_status_text(status);
    f->message_size = (uint32_t)strlen(f->message);
    f->at = (double)f->error.at;
    return status;
}

/* Ends a call: the error of a failed one is told. */
uint32_t frame_ended(frame *f, beryl_status status) {
    return status == BERYL_OK ? BERYL_OK : frame_failed(f, status);
}

/* Before a call: what the last one gave goes. */
void frame_begin(frame *f) {
    beryl_free(f->engine, f->handed);
    f->handed = NULL;
    base_text_clear(&f->given);
    f->out = NULL;
    f->out_size = 0;
    f->error = (beryl_error){0};
}

/* Takes what the engine has handed out. */
uint32_t frame_hand(frame *f, beryl_status status, void *memory, size_t size) {
    f->out = f->handed = memory;
    f->out_size = (uint32_t)size;
    return frame_ended(f, status);
}

uint32_t frame_give_text(frame *f) {
    f->out = f->given.data;
    f->out_size = (uint32_t)f->given.size;
    return f->given.failed ? frame_failed(f, BERYL_NO_MEMORY) : BERYL_OK;
}

uint32_t frame_give_thing(frame *f, beryl_status status, const void *thing) {
    f->out = thing;
    return frame_ended(f, status);
}

/* ---- sources, sinks, log --------------------------------------------------------------------- */

static uint32_t number_at(const void *user) {
    return (uint32_t)(uintptr_t)user;
}

static beryl_status source_read(void *user, uint64_t offset, void *to, size_t size) {
    return (beryl_status)module_source_read(number_at(user), (double)offset, to, (uint32_t)size);
}

static void source_close(void *user) {
    module_source_close(number_at(user));
}

beryl_source module_source_of(uint32_t number, double size) {
    return (beryl_source){.size = (uint64_t)size,
                          .user = (void *)(uintptr_t)number,
                          .read = source_read,
                          .close = source_close};
}

static beryl_status sink_write(void *user, const void *data, size_t size) {
    return (beryl_status)module_sink_write(number_at(user), data, (uint32_t)size);
}

static beryl_status sink_close(void *user, bool whole) {
    return (beryl_status)module_sink_close(number_at(user), whole);
}

static void log_write(void *user, beryl_log_level level, const char *line) {
    (void)user;
    module_log(level, line, (uint32_t)strlen(line));
}

beryl_log module_log_of(void) {
    return (beryl_log){log_write, NULL};
}

static void logits_each(void *user, size_t position, const float *row) {
    module_logits_row(number_at(user), (uint32_t)position, row);
}

/* ---- options --------------------------------------------------------------------------------- */

double option_number(const base_json *options, const char *key) {
    const base_json *value = base_json_find(options, key);
    return value && value->kind == JSON_NUMBER ? value->number : 0;
}

uint64_t option_count(const base_json *options, const char *key, uint64_t most) {
    const double value = option_number(options, key);
    return !(value > 0) ? 0 : value >= (double)most ? most : (uint64_t)value;
}

bool option_truth(const base_json *options, const char *key) {
    const base_json *value = base_json_find(options, key);
    return value && value->kind == JSON_TRUE;
}

/* Place of the key's text among `names`, which end with NULL; 0 where it is none of them. */
int option_choice(const base_json *options, const char *key, const char *const *names) {
    const base_json *value = base_json_find(options, key);
    for (int i = 0; value && value->kind == JSON_STRING && names[i]; i++)
        if (base_view_equal(value->text, base_view_of(names[i]))) return i;
    return 0;
}

const char *option_text(base_arena *arena, const base_json *value) {
    return value && value->kind == JSON_STRING
               ? base_arena_text(arena, value->text.data, value->text.size)
               : NULL;
}

static beryl_generate_options generate_options(const base_json *o, base_arena *arena) {
    beryl_generate_options g = {.size = sizeof g,
                                .greedy = option_truth(o, "greedy"),
                                .temperature = (float)option_number(o, "temperature"),
                                .top_k = (uint32_t)option_count(o, "topK", UINT32_MAX),
                                .top_p = (float)option_number(o, "topP"),
                                .min_p = (float)option_number(o, "minP"),
                                .repetition_penalty = (float)option_number(o, "repetitionPenalty"),
                                .presence_penalty = (float)option_number(o, "presencePenalty"),
                                .frequency_penalty = (float)option_number(o, "frequencyPenalty"),
                                .seed = option_count(o, "seed", UINT64_C(1) << 53),
                                .max_tokens = (uint32_t)option_count(o, "maxTokens", UINT32_MAX),
                                .ignore_eos = option_truth(o, "ignoreEos")};
    const base_json *stop = base_json_find(o, "stop");
    const char **texts = stop && stop->kind == JSON_ARRAY
                             ? base_arena_take(arena, stop->n_child + 1, sizeof *texts)
                             : NULL;
    for (const base_json *each = texts ? stop->child : NULL; each; each = each->next)
        if ((texts[g.n_stop] = option_text(arena, each))) g.n_stop++;
    g.stop = texts;
    return g;
}

/* ---- the engine ------------------------------------------------------------------------------ */

EXPORT(engine_open)
uint32_t module_engine_open(frame *f, const char *options, uint32_t source, double source_size,
                            uint32_t mmproj, double mmproj_size);
EXPORT(engine_load) uint32_t module_engine_load(frame *f);
EXPORT(engine_close) void module_engine_close(frame *f);
EXPORT(engine_info) uint32_t module_engine_info(frame *f);
EXPORT(engine_stats) uint32_t module_engine_stats(frame *f);
EXPORT(engine_describe) uint32_t module_engine_describe(frame *f, uint32_t tensors);
EXPORT(engine_selftest) uint32_t module_engine_selftest(frame *f);

/* mmproj 0: the towers lie in the model's own file. */
uint32_t module_engine_open(frame *f, const char *options, uint32_t source, double source_size,
                            uint32_t mmproj, double mmproj_size) {
    static const char *const precisions[] = {"fast", "exact", NULL}, *const kinds[] = {"", "f32",
                                                                                       "f16", "q8",
                                                                                       NULL};
    base_arena arena;
    base_json *o;
    frame_begin(f);
    base_arena_init(&arena, &f->heap);
    const beryl_source from = module_source_of(source, source_size),
                       towers = module_source_of(mmproj, mmproj_size);
    beryl_status status = base_json_parse(&arena, options, strlen(options), &o, &f->error);
    if (status == BERYL_OK) {
        const beryl_engine_options e = {
            .size = sizeof e,
            .source = &from,
            .device = option_text(&arena, base_json_find(o, "device")),
            .precision = (beryl_precision)option_choice(o, "precision", precisions),
            .kv = (beryl_kv)option_choice(o, "kv", kinds),
            .context = (uint32_t)option_count(o, "context", UINT32_MAX),
            .sessions = (uint32_t)option_count(o, "sessions", UINT32_MAX),
            .memory = option_count(o, "memory", UINT64_C(1) << 53),
            .piece = (uint32_t)option_count(o, "piece", UINT32_MAX),
            .vocabulary_only = option_truth(o, "vocabularyOnly"),
            .no_cache = !option_truth(o, "kept"),
            .log = module_log_of(),
            .mmproj_source = mmproj ? &towers : NULL};
        status = beryl_engine_open(&e, &f->engine, &f->error);
    }
    base_arena_fini(&arena);
    return frame_ended(f, status);
}

uint32_t module_engine_load(frame *f) {
    beryl_task *task = NULL;
    frame_begin(f);
    beryl_status status = beryl_engine_load(f->engine, &task, &f->error);
    return frame_give_thing(f, status, task);
}

void module_engine_close(frame *f) {
    frame_begin(f);
    beryl_engine_close(f->engine);
    f->engine = NULL;
    base_text_fini(&f->given);
}

uint32_t module_engine_selftest(frame *f) {
    beryl_task *task = NULL;
    frame_begin(f);
    beryl_status status = beryl_engine_selftest(f->engine, &task, &f->error);
    return frame_give_thing(f, status, task);
}

void frame_add_text(frame *f, const char *key, const char *text) {
    base_text_print(&f->given, ",\"%s\":", key);
    base_json_write_string(&f->given, text ? text : "", text ? strlen(text) : 0);
}

/* "camelCase": value, for one field. */
void frame_add_number(frame *f, const char *key, double value) {
    base_text_print(&f->given, ",\"%s\":%.17g", key, value);
}

void frame_add_truth(frame *f, const char *key, bool value) {
    base_text_print(&f->given, ",\"%s\":%s", key, value ? "true" : "false");
}

void frame_add_device(frame *f, const beryl_device_info *d) {
    base_text_print(&f->given, ",\"device\":{\"index\":%u", d->index);
    frame_add_text(f, "backend", d->backend);
    frame_add_text(f, "name", d->name);
    frame_add_text(f, "driver", d->driver);
    frame_add_text(f, "kind", d->kind);
    frame_add_truth(f, "usable", d->usable);
    frame_add_text(f, "whyNot", d->why_not);
    frame_add_number(f, "memory", (double)d->memory);
    frame_add_number(f, "bufferMax", (double)d->buffer_max);
    frame_add_number(f, "bindingMax", (double)d->binding_max);
    frame_add_number(f, "subgroupSize", d->subgroup_size);
    frame_add_truth(f, "f16", d->f16);
    frame_add_truth(f, "dotI8", d->dot_i8);
    frame_add_truth(f, "timestamps", d->timestamps);
    base_text_add(&f->given, "}", 1);
}

uint32_t module_engine_info(frame *f) {
    static const char *const kinds[] = {"f32", "f32", "f16", "q8"};
    beryl_engine_info i;
    frame_begin(f);
    beryl_status status = beryl_engine_info_get(f->engine, &i);
    if (status != BERYL_OK) return frame_failed(f, status);
    base_text_print(&f->given, "{\"version\":\"%s\"", beryl_version());
    frame_add_text(f, "modelName", i.model_name);
    frame_add_text(f, "architecture", i.architecture);
    frame_add_text(f, "sizeLabel", i.size_label);
    frame_add_text(f, "fileType", i.file_type);
    frame_add_number(f, "fileSize", (double)i.file_size);
    frame_add_number(f, "parameters", (double)i.parameters);
    frame_add_number(f, "nLayer", i.n_layer);
    frame_add_number(f, "nEmbd", i.n_embd);
    frame_add_number(f, "nVocab", i.n_vocab);
    frame_add_number(f, "nHead", i.n_head);
    frame_add_number(f, "nExpert", i.n_expert);
    frame_add_number(f, "nExpertUsed", i.n_expert_used);
    frame_add_number(f, "window", i.window);
    frame_add_number(f, "context", i.context);
    frame_add_number(f, "contextMax", i.context_max);
    frame_add_truth(f, "hasVision", i.has_vision);
    frame_add_truth(f, "hasAudio", i.has_audio);
    frame_add_truth(f, "hasPerLayerEmbedding", i.has_per_layer_embedding);
    frame_add_text(f, "precision", i.precision == BERYL_PRECISION_EXACT ? "exact" : "fast");
    frame_add_text(f, "kv", kinds[i.kv]);
    frame_add_number(f, "temperature", (double)i.temperature);
    frame_add_number(f, "topP", (double)i.top_p);
    frame_add_number(f, "topK", i.top_k);
    frame_add_device(f, &i.device);
    base_text_add(&f->given, "}", 1);
    return frame_give_text(f);
}

uint32_t module_engine_stats(frame *f) {
    beryl_stats s;
    frame_begin(f);
    beryl_engine_stats(f->engine, &s);
    base_text_print(&f->given, "{\"loadSeconds\":%.9g", s.load_s);
    frame_add_number(f, "weightBytes", (double)s.weight_bytes);
    frame_add_number(f, "kvBytes", (double)s.kv_bytes);
    frame_add_number(f, "deviceBytes", (double)s.device_bytes);
    frame_add_number(f, "deviceBytesPeak", (double)s.device_bytes_peak);
    frame_add_number(f, "hostBytes", (double)s.host_bytes);
    frame_add_number(f, "hostBytesPeak", (double)s.host_bytes_peak);
    frame_add_number(f, "decodeBytesPerToken", (double)s.decode_bytes_per_token);
    frame_add_number(f, "decodeDispatches", s.decode_dispatches);
    frame_add_number(f, "steps", (double)s.steps);
    frame_add_number(f, "submits", (double)s.submits);
    frame_add_number(f, "dispatches", (double)s.dispatches);
    frame_add_number(f, "allocations", (double)s.allocations);
    frame_add_number(f, "deviceObjects", (double)s.device_objects);
    base_text_add(&f->given, "}", 1);
    return frame_give_text(f);
}

uint32_t module_engine_describe(frame *f, uint32_t tensors) {
    char *json = NULL;
    frame_begin(f);
    beryl_status status = beryl_engine_describe(f->engine, tensors != 0, &json, &f->error);
    return frame_hand(f, status, json, json ? strlen(json) : 0);
}

/* ---- tokens and chat ------------------------------------------------------------------------- */

EXPORT(tokenize)
uint32_t module_tokenize(frame *f, const char *text, uint32_t size, uint32_t special);
EXPORT(detokenize)
uint32_t module_detokenize(frame *f, const int32_t *tokens, uint32_t n, uint32_t special);
EXPORT(render) uint32_t module_render(frame *f, const char *chat);
EXPORT(render_tokens) uint32_t module_render_tokens(frame *f, const char *chat);

uint32_t module_tokenize(frame *f, const char *text, uint32_t size, uint32_t special) {
    size_t n = 0, got = 0;
    frame_begin(f);
    beryl_status status =
        beryl_tokenize(f->engine, text, size, special != 0, NULL, 0, &n, &f->error);
    int32_t *tokens = status == BERYL_OK ? module_take((uint32_t)(n * sizeof *tokens)) : NULL;
    if (tokens)
        status = beryl_tokenize(f->engine, text, size, special != 0, tokens, n, &got, &f->error);
    if (tokens && status == BERYL_OK)
        base_text_add(&f->given, (const char *)tokens, n * sizeof *tokens);
    module_give(tokens);
    if (status == BERYL_OK && (!tokens || f->given.failed)) status = BERYL_NO_MEMORY;
    f->out = f->given.data;
    f->out_size = (uint32_t)n;
    return frame_ended(f, status);
}

uint32_t module_detokenize(frame *f, const int32_t *tokens, uint32_t n, uint32_t special) {
    char *text = NULL;
    size_t size = 0;
    frame_begin(f);
    beryl_status status =
        beryl_detokenize(f->engine, tokens, n, special != 0, &text, &size, &f->error);
    return frame_hand(f, status, text, size);
}

uint32_t module_render(frame *f, const char *chat) {
    char *text = NULL;
    size_t size = 0;
    frame_begin(f);
    beryl_status status = beryl_render(f->engine, chat, &text, &size, &f->error);
    return frame_hand(f, status, text, size);
}

uint32_t module_render_tokens(frame *f, const char *chat) {
    int32_t *tokens = NULL;
    size_t n = 0;
    frame_begin(f);
    beryl_status status = beryl_render_tokens(f->engine, chat, &tokens, &n, &f->error);
    return frame_hand(f, status, tokens, n);
}

/* ---- sessions -------------------------------------------------------------------------------- */

EXPORT(session_open) uint32_t module_session_open(frame *f);
EXPORT(session_close) void module_session_close(beryl_session *s);
EXPORT(session_tokens) uint32_t module_session_tokens(frame *f, const beryl_session *s);
EXPORT(session_rewind) uint32_t module_session_rewind(frame *f, beryl_session *s, uint32_t n);
EXPORT(session_generate)
uint32_t module_session_generate(frame *f, beryl_session *s, const int32_t *tokens, uint32_t n,
                                 const char *options);
EXPORT(session_chat)
uint32_t module_session_chat(frame *f, beryl_session *s, const char *chat, const char *options);
EXPORT(session_logits)
uint32_t module_session_logits(frame *f, beryl_session *s, const int32_t *tokens, uint32_t n,
                               uint32_t first, uint32_t piece, uint32_t key);
EXPORT(session_save) uint32_t module_session_save(frame *f, beryl_session *s, uint32_t sink);
EXPORT(session_restore)
uint32_t module_session_restore(frame *f, beryl_session *s, uint32_t source, double size);

uint32_t module_session_open(frame *f) {
    beryl_session *s = NULL;
    frame_begin(f);
    beryl_status status = beryl_session_open(f->engine, NULL, &s, &f->error);
    return frame_give_thing(f, status, s);
}

void module_session_close(beryl_session *s) {
    beryl_session_close(s);
}

uint32_t module_session_tokens(frame *f, const beryl_session *s) {
    const int32_t *tokens;
    size_t n;
    frame_begin(f);
    beryl_session_tokens(s, &tokens, &n);
    f->out = tokens;
    f->out_size = (uint32_t)n;
    return BERYL_OK;
}

uint32_t module_session_rewind(frame *f, beryl_session *s, uint32_t n) {
    frame_begin(f);
    return frame_ended(f, beryl_session_rewind(s, n, &f->error));
}

/* chat NULL: of tokens. */
static uint32_t answer(frame *f, beryl_session *s, const int32_t *tokens, uint32_t n,
                       const char *chat, const char *options) {
    base_arena arena;
    base_json *o;
    beryl_task *task = NULL;
    frame_begin(f);
    base_arena_init(&arena, &f->heap);
    beryl_status status = base_json_parse(&arena, options, strlen(options), &o, &f->error);
    if (status == BERYL_OK) {
        const beryl_generate_options g = generate_options(o, &arena);
        status = chat ? beryl_session_chat(s, chat, &g, &task, &f->error)
                      : beryl_session_generate(s, tokens, n, &g, &task, &f->error);
    }
    base_arena_fini(&arena);
    return frame_give_thing(f, status, task);
}

uint32_t module_session_generate(frame *f, beryl_session *s, const int32_t *tokens, uint32_t n,
                                 const char *options) {
    return answer(f, s, tokens, n, NULL, options);
}

uint32_t module_session_chat(frame *f, beryl_session *s, const char *chat, const char *options) {
    return answer(f, s, NULL, 0, chat, options);
}

uint32_t module_session_logits(frame *f, beryl_session *s, const int32_t *tokens, uint32_t n,
                               uint32_t first, uint32_t piece, uint32_t key) {
    beryl_task *task = NULL;
    frame_begin(f);
    beryl_status status = beryl_session_logits(s, tokens, n, first, piece, logits_each,
                                               (void *)(uintptr_t)key, &task, &f->error);
    return frame_give_thing(f, status, task);
}

uint32_t module_session_save(frame *f, beryl_session *s, uint32_t sink) {
    beryl_task *task = NULL;
    const beryl_sink to = {
        .user = (void *)(uintptr_t)sink, .write = sink_write, .close = sink_close};
    frame_begin(f);
    beryl_status status = beryl_session_save_to(s, &to, &task, &f->error);
    return frame_give_thing(f, status, task);
}

uint32_t module_session_restore(frame *f, beryl_session *s, uint32_t source, double size) {
    beryl_task *task = NULL;
    const beryl_source from = module_source_of(source, size);
    frame_begin(f);
    beryl_status status = beryl_session_restore_from(s, &from, &task, &f->error);
    return frame_give_thing(f, status, task);
}

/* ---- pictures and sound ---------------------------------------------------------------------- */

/* What lies at `data`: pixels [b, a, 3], a samples b times a second, or a WAV file of a bytes. */
typedef enum media_form { MEDIA_PIXELS, MEDIA_SAMPLES, MEDIA_WAV } media_form;

EXPORT(media_open)
uint32_t module_media_open(frame *f, uint32_t form, const void *data, uint32_t a, uint32_t b,
                           uint32_t budget, uint32_t resized);
EXPORT(media_encode) uint32_t module_media_encode(frame *f, beryl_media *m);
EXPORT(media_prepare) uint32_t module_media_prepare(frame *f, uint32_t kind);
EXPORT(media_soft) uint32_t module_media_soft(frame *f, const beryl_media *m);
EXPORT(media_close) void module_media_close(beryl_media *m);
EXPORT(session_media)
uint32_t module_session_media(frame *f, beryl_session *s, beryl_media *const *media, uint32_t n);

uint32_t module_media_open(frame *f, uint32_t form, const void *data, uint32_t a, uint32_t b,
                           uint32_t budget, uint32_t resized) {
    beryl_media *m = NULL;
    beryl_media_desc d = {.size = sizeof d, .kind = BERYL_SOUND};
    frame_begin(f);
    if (form == MEDIA_PIXELS) {
        d.kind = BERYL_PICTURE;
        d.rgb = data;
        d.width = a;
        d.height = b;
        d.budget = budget;
        d.resized = resized != 0;
    } else if (form == MEDIA_SAMPLES) {
        d.samples = data;
        d.n_sample = a;
        d.rate = b;
    } else {
        d.file = data;
        d.file_size = a;
    }
    beryl_status status = beryl_media_open(f->engine, &d, &m, &f->error);
    return frame_give_thing(f, status, m);
}

uint32_t module_media_encode(frame *f, beryl_media *m) {
    beryl_task *task = NULL;
    frame_begin(f);
    beryl_status status = beryl_media_encode(m, &task, &f->error);
    return frame_give_thing(f, status, task);
}

/* kind: of beryl_media_kind. */
uint32_t module_media_prepare(frame *f, uint32_t kind) {
    beryl_task *task = NULL;
    frame_begin(f);
    beryl_status status =
        beryl_engine_prepare_media(f->engine, (beryl_media_kind)kind, &task, &f->error);
    return frame_give_thing(f, status, task);
}

/* `out`: F32 [out_size, n_embd], 0 before it is encoded. */
uint32_t module_media_soft(frame *f, const beryl_media *m) {
    const float *soft;
    size_t n;
    frame_begin(f);
    beryl_media_soft(m, &soft, &n, NULL);
    f->out = soft;
    f->out_size = (uint32_t)n;
    return BERYL_OK;
}

void module_media_close(beryl_media *m) {
    beryl_media_close(m);
}

uint32_t module_session_media(frame *f, beryl_session *s, beryl_media *const *media, uint32_t n) {
    frame_begin(f);
    return frame_ended(f, beryl_session_media(s, media, n, &f->error));
}

/* ---- tasks ----------------------------------------------------------------------------------- */

EXPORT(task_step) uint32_t module_task_step(frame *f, beryl_task *task);
EXPORT(task_cancel) void module_task_cancel(beryl_task *task);
EXPORT(task_close) void module_task_close(beryl_task *task);

static void tell_event(frame *f, const beryl_event *e) {
    f->kind = e->kind;
    f->part = e->part;
    f->token = e->token;
    f->ok = e->ok;
    f->text = e->text;
    f->text_size = (uint32_t)e->text_size;
    f->what = e->what;
    f->done = (double)e->done;
    f->total = (double)e->total;
    f->value = e->value;
}

/* The status of beryl_task_step. OK and CANCELLED: the result is there, so far as there is one. */
uint32_t module_task_step(frame *f, beryl_task *task) {
    beryl_event event;
    const beryl_status status = beryl_task_step(task, &event);
    if (status == BERYL_PENDING) return status;
    if (status == BERYL_EVENT) {
        tell_event(f, &event);
        return status;
    }
    const beryl_result *r = beryl_task_result(task);
    f->end = r->end;
    f->n_prompt = r->n_prompt;
    f->n_reused = r->n_reused;
    f->n_generated = r->n_generated;
    f->prefill_s = r->prefill_s;
    f->first_token_s = r->first_token_s;
    f->decode_s = r->decode_s;
    f->error = *beryl_task_error(task);
    return frame_ended(f, status);
}

void module_task_cancel(beryl_task *task) {
    beryl_cancel(task);
}

void module_task_close(beryl_task *task) {
    beryl_task_close(task);
}
