/* beryl.h - Gemma 4 on the user's own GPU, from GGUF files.
 *
 * Owns the public face of the engine: opening a model, sessions, generation, tokens and chat.
 * Tensor graphs without a model are in beryl_graph.h, training of adapters in beryl_train.h.
 *
 * A whole conversation (every call that can fail returns a status; errors are left out here):
 *
 *     beryl_engine *engine; beryl_session *session; beryl_task *task; beryl_event event;
 *     beryl_engine_options options = {.size = sizeof options};
 *     beryl_engine_open(&options, &engine, NULL);
 *     beryl_engine_load(engine, &task, NULL);
 *     while (beryl_wait(task, &event) == BERYL_EVENT) {}           // progress of the load
 *     beryl_task_close(task);
 *     beryl_session_open(engine, NULL, &session, NULL);
 *     const char *hi = "{\"messages\":[{\"role\":\"user\",\"content\":\"Hi\"}]}";
 *     beryl_session_chat(session, hi, NULL, &task, NULL);
 *     while (beryl_wait(task, &event) == BERYL_EVENT)
 *         if (event.kind == BERYL_EVENT_TOKEN && event.part == BERYL_PART_TEXT)
 *             fwrite(event.text, 1, event.text_size, stdout);
 *     beryl_task_close(task); beryl_session_close(session); beryl_engine_close(engine);
 *
 * Conventions
 *   Status   Every fallible call returns a beryl_status and, where the caller gives one, fills a
 *            beryl_error. The library never prints, never exits and installs no signal handler.
 *   Options  Structs whose all-zero value means the defaults written beside the fields; `size` is
 *            sizeof the struct as the caller was compiled, so that later fields may be added.
 *            NULL options mean the defaults.
 *   Tasks    Nothing blocks: a long call gives a task, which beryl_task_step advances. beryl_wait
 *            is the same and sleeps while the device or a file is busy (native builds only).
 *   Threads  An engine, its sessions and tasks belong to one thread at a time; two engines are
 *            independent. beryl_cancel alone may be called from any thread or signal handler.
 *   Strings  UTF-8, NUL-terminated unless a size stands beside them. Pointers in events and infos
 *            are borrowed until the next call on the same object.
 *   Units    Sizes in bytes, times in seconds, token positions from 0.
 */
#ifndef BERYL_H
#define BERYL_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#ifdef __cplusplus
extern "C" {
#endif

#if defined(_WIN32)
#define BERYL_API
#else
#define BERYL_API __attribute__((visibility("default")))
#endif

#define BERYL_VERSION "0.1.0"

/* ---- status ---------------------------------------------------------------------------------- */

/* name, text. The first three are no errors. */
#define BERYL_STATUS_LIST(X)                                       \
    X(OK, "done")                                                  \
    X(EVENT, "an event was delivered; step again")                 \
    X(PENDING, "waiting for the device or for a file; step again") \
    X(CANCELLED, "cancelled")                                      \
    X(MISUSE, "the call does not fit its object or its arguments") \
    X(UNSUPPORTED, "not supported")                                \
    X(NOT_FOUND, "not found")                                      \
    X(IO, "reading or writing failed")                             \
    X(BAD_FILE, "the file is damaged or not what it says")         \
    X(BAD_INPUT, "the input is not valid")                         \
    X(NO_MEMORY, "out of host memory")                             \
    X(NO_DEVICE_MEMORY, "does not fit into the device's memory")   \
    X(NO_DEVICE, "no usable device")                               \
    X(DEVICE, "the device reported an error")                      \
    X(DEVICE_LOST, "the device was lost")                          \
    X(CONTEXT_FULL, "the context is full")

typedef enum beryl_status {
#define X(name, text) BERYL_##name,
    BERYL_STATUS_LIST(X)
#undef X
} beryl_status;

typedef struct beryl_error {
    beryl_status code;
    /* byte offset in the file or text that is to blame, where there is one, else 0 */
    uint64_t at;
    char message[480]; /* one line: what failed, and what to do */
} beryl_error;

BERYL_API const char *beryl_status_name(beryl_status status); /* "BAD_FILE" */
BERYL_API const char *beryl_status_text(beryl_status status);
BERYL_API const char *beryl_version(void);

/* ---- what the caller may bring --------------------------------------------------------------- */

/* resize(user, NULL, 0, n) allocates, resize(user, p, n, 0) frees and returns NULL. A NULL
 * result for n > 0 is BERYL_NO_MEMORY, never a crash. Called from the engine's thread and its
 * own workers. */
typedef struct beryl_allocator {
    void *(*resize)(void *user, void *memory, size_t old_size, size_t new_size); /* NULL: malloc */
    void *user;
} beryl_allocator;

typedef enum beryl_log_level {
    BERYL_LOG_ERROR,
    BERYL_LOG_WARNING,
    BERYL_LOG_INFO,
    BERYL_LOG_DEBUG
} beryl_log_level;

typedef struct beryl_log {
    void (*write)(void *user, beryl_log_level level, const char *line); /* NULL: silent */
    void *user;
} beryl_log;

/* A file that answers ranges now or later. All reading of model files goes through one, and what
 * is kept of it is copied: no length is read twice. The engine owns a source that it was given
 * and closes it. */
typedef struct beryl_source {
    uint64_t size; /* bytes */
    void *user;
    /* Copies bytes [offset, offset + size) to `to`. BERYL_PENDING: asked for, call again with
     * the same arguments. Ranges are always inside the file. BERYL_IO: they cannot be read, or
     * are no longer what they were. Called from the engine's thread alone. */
    beryl_status (*read)(void *user, uint64_t offset, void *to, size_t size);
    void (*close)(void *user); /* may be NULL */
} beryl_source;

/* Where a stream of bytes goes. Whoever is given one owns it, closes it once, and has closed it
 * if the call that it was given to failed. */
typedef struct beryl_sink {
    void *user;
    /* Takes the next `size` bytes, all of them. BERYL_PENDING: not now, call again with the same
     * arguments. */
    beryl_status (*write)(void *user, const void *data, size_t size);
    /* whole: everything was written; else what there is should be thrown away. May be NULL. */
    beryl_status (*close)(void *user, bool whole);
} beryl_sink;

/* ---- devices --------------------------------------------------------------------------------- */

typedef struct beryl_device_info {
    /* "webgpu", "cuda", "hip", "opencl", "host", "disk", "reference", "dummy" */
    const char *backend;
    uint32_t index;   /* as in --device webgpu:1 */
    const char *name; /* the adapter's name; "": the backend found none */
    const char *driver;
    const char *kind; /* "discrete", "integrated", "software", "host"; "": not known */
    bool usable;
    const char *why_not; /* one line where it is not usable, else NULL */
    uint64_t memory;     /* bytes, 0: not known */
    uint64_t buffer_max, binding_max;
    bool subgroups;
    uint32_t subgroup_size; /* 0: none, or not known before it is opened (WebGPU) */
    bool f16, dot_i8, timestamps;
    /* of its kernels: "WGSL", "CUDA C", "HIP C", "OpenCL C", "C"; "": it runs none */
    const char *language;
    bool f64;
    bool fragments;                                  /* matrix units for f16 and bf16 */
    uint32_t compute_units;                          /* 0: not known */
    uint32_t workgroup_invocations, workgroup_bytes; /* lanes and memory of a workgroup at most */
} beryl_device_info;

/* Calls `each` for every device of every backend, the default one first. */
BERYL_API beryl_status beryl_devices(const beryl_log *log,
                                     void (*each)(void *user, const beryl_device_info *),
                                     void *user, beryl_error *error);

/* ---- engine: a loaded model on a device ------------------------------------------------------ */

typedef struct beryl_engine beryl_engine;
typedef struct beryl_session beryl_session;
typedef struct beryl_task beryl_task;
typedef struct beryl_adapter beryl_adapter;

typedef enum beryl_precision {
    BERYL_PRECISION_FAST, /* int8 activations in blocks of 32 where the device has dot products */
    BERYL_PRECISION_EXACT /* f32 activations */
} beryl_precision;

typedef enum beryl_kv { BERYL_KV_DEFAULT, BERYL_KV_F32, BERYL_KV_F16, BERYL_KV_Q8 } beryl_kv;

typedef struct beryl_engine_options {
    size_t size;
    /* path, name in Beryl's folder, or Ollama name; NULL: the built-in model */
    const char *model;
    /* instead of `model`: where the bytes come from; copied, then owned */
    const beryl_source *source;
    /* NULL: $BERYL_DEVICE, else the best; "gpu", "cpu", "webgpu", "cuda:1", "host", part of a
     * name, "software", "reference", "dummy" */
    const char *device;
    beryl_precision precision; /* default fast */
    beryl_kv kv;               /* default f32 under exact, else f16 */
    /* tokens a session can hold; 0: 8,192, or 16,384 or 32,768 where the caches then take a
     * quarter of the device's memory beside the weights at most (not in browsers); never more
     * than the file has */
    uint32_t context;
    uint32_t sessions;         /* how many sessions can be open at once; 0: 1 */
    uint64_t memory;           /* bytes of device memory that may be used; 0: what the device has */
    bool vocabulary_only;      /* load tokenizer and metadata alone: no weights, no device */
    bool no_cache;             /* neither read nor write Beryl's cache folder */
    uint32_t piece;            /* most tokens of a prompt in one step; 0: as the device likes */
    beryl_allocator allocator; /* default malloc */
    beryl_log log;             /* default silent */
    /* load the header alone, of any GGUF file, also of one that cannot be run: for
     * beryl_engine_info.why_not and beryl_engine_describe; tokens where the vocabulary fits */
    bool header_only;
    /* path of the file that holds the towers of pictures and sound, where that is not the model's
     * own; NULL: the model's */
    const char *mmproj;
    /* instead of `mmproj`: where the bytes come from; copied, then owned */
    const beryl_source *mmproj_source;
} beryl_engine_options;

typedef struct beryl_engine_info {
    const char *model_name; /* general.name, or the file's */
    const char *model_path;
    const char *architecture; /* "gemma4" */
    const char *size_label;   /* "E2B", "26B-A4B", ... or "custom" */
    const char *file_type;    /* "Q4_K_M", ... as general.file_type says, else "mixed" */
    uint64_t file_size, parameters;
    uint32_t n_layer, n_embd, n_vocab, n_head, n_expert, n_expert_used, window;
    uint32_t context, context_max; /* tokens: in use, and the file's own */
    bool has_vision, has_audio, has_per_layer_embedding;
    beryl_precision precision;
    beryl_kv kv;
    beryl_device_info device;
    float temperature, top_p; /* sampling defaults as the file has them, else 1.0, 0.95, 64 */
    uint32_t top_k;
    /* the file has a chat template that is none of the known ones: it is not followed (a warning
     * at the load) */
    bool other_template;
    /* header_only: one line why this file does not run, NULL: nothing stands against it */
    const char *why_not;
} beryl_engine_info;

typedef struct beryl_stats {
    double load_s;         /* open file to ready */
    uint64_t weight_bytes; /* resident on the device */
    uint64_t kv_bytes, device_bytes, device_bytes_peak, host_bytes, host_bytes_peak;
    uint64_t decode_bytes_per_token; /* read from device memory by one decode step, depth 0 */
    uint32_t decode_dispatches;      /* of one decode step of one session */
    /* bytes a second, as measured on the device; 0: not measured */
    double bandwidth;
    uint64_t steps, submits, dispatches;
    uint64_t allocations;    /* calls of the allocator so far */
    uint64_t device_objects; /* buffers, programs, bind groups made so far */
} beryl_stats;

/* Remembers the options; reads nothing yet. */
BERYL_API beryl_status beryl_engine_open(const beryl_engine_options *options, beryl_engine **engine,
                                         beryl_error *error);
/* NULL is fine; its sessions and tasks must be closed before */
BERYL_API void beryl_engine_close(beryl_engine *engine);
/* Finds and checks the file, chooses the device, uploads the weights. */
BERYL_API beryl_status beryl_engine_load(beryl_engine *engine, beryl_task **task,
                                         beryl_error *error);
BERYL_API beryl_status beryl_engine_info_get(const beryl_engine *engine, beryl_engine_info *info);
BERYL_API void beryl_engine_stats(const beryl_engine *engine, beryl_stats *stats);
/* Gives back device memory that is not needed now: the towers of pictures and sound, unless one
 * encodes, and where no session is at work what plans compute in. Both come back when they are
 * needed. NULL is fine. */
BERYL_API void beryl_engine_trim(beryl_engine *engine);
/* Measures how fast the device reads its memory (a few ms on a GPU); then in stats.bandwidth. */
BERYL_API beryl_status beryl_engine_measure(beryl_engine *engine, beryl_error *error);
/* Runs every kernel that this engine's plans use, then every operation with every type in small
 * shapes (not in browsers), against the reference functions; each result is a BERYL_EVENT_TEST.
 * The task ends with BERYL_DEVICE if one failed. UNSUPPORTED: nothing runs (dummy, reference). */
BERYL_API beryl_status beryl_engine_selftest(beryl_engine *engine, beryl_task **task,
                                             beryl_error *error);
/* What the file has, in its order, one JSON object: {"metadata": {KEY: VALUE, ...}, "tensors":
 * [{"name", "type", "shape": [ne0, ...], "bytes"}, ...]}, arrays longer than 64 as {"type",
 * "count"}. Caller frees with beryl_free. */
BERYL_API beryl_status beryl_engine_describe(const beryl_engine *engine, bool tensors, char **json,
                                             beryl_error *error);

/* ---- looking inside -------------------------------------------------------------------------- */

/* Plans of a model: name, what one run of it does. */
#define BERYL_PLAN_LIST(X)                                                               \
    X(DECODE, "decode", "one token of one session")                                      \
    X(PREFILL, "prefill", "a piece of a prompt whose logits nobody wants")               \
    X(OUTPUT, "output", "the last piece of a prompt, and the choice of the first token") \
    X(LOGITS, "logits", "a piece with the logits of every row")                          \
    X(BATCH, "batch", "one token of each session")                                       \
    X(PICTURE, "picture", "soft tokens of a picture")                                    \
    X(SOUND, "sound", "soft tokens of 30 s of sound")

typedef enum beryl_plan {
#define X(id, name, what) BERYL_PLAN_##id,
    BERYL_PLAN_LIST(X)
#undef X
} beryl_plan;

typedef enum beryl_stage {
    BERYL_STAGE_GRAPH, /* operations as the passes left them: shapes, types, what is joined */
    BERYL_STAGE_PLAN,  /* dispatches with grid, bindings and bytes */
    BERYL_STAGE_IR,    /* each kernel before and after the passes */
    BERYL_STAGE_CODE   /* what the device's compiler is given */
} beryl_stage;

typedef struct beryl_explain_options {
    size_t size;
    beryl_stage stage;  /* default graph */
    beryl_plan plan;    /* default decode */
    bool one;           /* `op` alone */
    uint32_t op;        /* number of a node (graph) or of a dispatch, as the texts have them */
    const char *device; /* beryl_text_explain: as in beryl_engine_options */
    beryl_precision precision; /* beryl_text_explain: of a graph; default fast */
} beryl_explain_options;

/* One stage of a plan as text, handed to `write` in one piece or several. The engine must be
 * loaded; nothing is run. With adapters, if any are open. */
BERYL_API beryl_status beryl_engine_explain(
    beryl_engine *engine, const beryl_explain_options *options,
    void (*write)(void *user, const char *text, size_t size), void *user, beryl_error *error);
/* The same for a text: a graph (its form is at the head of src/graph/text.h), or one kernel as
 * printed IR (docs/ir.md), which has the stages IR and CODE. Hostile text is BERYL_BAD_INPUT,
 * error->at its byte. */
BERYL_API beryl_status beryl_text_explain(const char *text, size_t size,
                                          const beryl_explain_options *options,
                                          void (*write)(void *user, const char *text, size_t size),
                                          void *user, beryl_error *error);

typedef struct beryl_trace_options {
    size_t size;
    beryl_plan plan; /* default decode */
    uint32_t depth;  /* tokens of context before the run; 0: none */
    uint32_t steps;  /* runs that are recorded, after as many as warm the device; 0: 3 */
} beryl_trace_options;

/* Runs a plan on made-up tokens and records it in the JSON form that Perfetto and Chrome's
 * about:tracing read: each dispatch with the device's own time, grid, bytes and GB/s, and what
 * the host did meanwhile. Of a device without timestamps, which is a warning, it has each run as
 * a whole, by the host's clock. The text is handed to `write` in pieces before the task ends. No
 * session may be open. */
BERYL_API beryl_status beryl_engine_trace(beryl_engine *engine, const beryl_trace_options *options,
                                          void (*write)(void *user, const char *text, size_t size),
                                          void *user, beryl_task **task, beryl_error *error);

/* ---- tuning ---------------------------------------------------------------------------------- */

typedef struct beryl_tune_options {
    size_t size;
    uint32_t tries; /* forms that are tried of each class of products at most; 0: 24 */
    bool again;     /* what was found before is searched anew */
} beryl_tune_options;

/* Looks for faster forms of the products of the model's decode plans: tries them on the device
 * inside the plan, keeps those that win by more than 2 %, checks the kernels, and writes what it
 * found to Beryl's cache folder, from which every later load on this device takes it (unless
 * no_cache). Each class of products is a BERYL_EVENT_TEST: text names it and its form, value is
 * its time as a part of what it was, ok: another form won. Cancelled, it keeps what it has found
 * so far. No session may be open; native builds only. UNSUPPORTED: nothing runs (dummy,
 * reference), or the device has no timestamps. */
BERYL_API beryl_status beryl_engine_tune(beryl_engine *engine, const beryl_tune_options *options,
                                         beryl_task **task, beryl_error *error);

typedef struct beryl_tuned_info {
    const char *path, *backend, *adapter, *driver;
    uint32_t n_product;
    bool damaged; /* what is not among n_product is ignored */
} beryl_tuned_info;

/* Calls `each` for every file that tuning left in the cache folder, with how many products it
 * holds; false from it: the file is deleted. */
BERYL_API beryl_status beryl_tuned(bool (*each)(void *user, const beryl_tuned_info *), void *user,
                                   beryl_error *error);

/* ---- operations ------------------------------------------------------------------------------ */

typedef struct beryl_op_info {
    const char *name, *group; /* "rms_norm", "norm" */
    uint32_t n_in_min, n_in_max, n_out;
    const char *what; /* one line */
    /* backends that run it, "reference, webgpu, cuda"; borrowed during the call */
    const char *where;
    bool gradient; /* beryl_graph_gradient goes through it */
} beryl_op_info;

/* Calls `each` for every operation that graphs are made of. */
BERYL_API void beryl_ops(void (*each)(void *user, const beryl_op_info *), void *user);

/* ---- how fast operations are ----------------------------------------------------------------- */

/* a device, measured, on which operations are timed one by one */
typedef struct beryl_bench beryl_bench;

typedef struct beryl_bench_options {
    size_t size;
    const char *device;        /* as in beryl_engine_options */
    beryl_precision precision; /* default fast */
    bool no_cache;
    beryl_allocator allocator; /* default malloc */
    beryl_log log;             /* default silent */
} beryl_bench_options;

typedef struct beryl_bench_info { /* rates are 0 where they could not be measured */
    beryl_device_info device;
    double read, copy; /* bytes a second; copying counts what is read and what is written */
    double f32;        /* operations a second; a fused multiply-add counts as two */
} beryl_bench_info;

typedef struct beryl_bench_case {
    const char *op;   /* "linear" */
    const char *type; /* of the weight, table or cache: "Q4_K"; NULL: F32 */
    uint32_t n_shape; /* 0: the usual shape */
    uint32_t shape[4];
    const char *letters; /* out: what the numbers of the shape are: "M,N,K" */
} beryl_bench_case;

typedef struct beryl_bench_result {
    beryl_bench_case what; /* as it was run */
    /* of one operation: the median of several runs, by the device's clock where it has one */
    double seconds;
    double bytes; /* read and written at least */
    /* multiply-adds count as two; 0: of no interest (what is bound by bytes) */
    double operations;
    double bandwidth_part, f32_part; /* of what was measured, 0 to 1; 0: not known */
    uint32_t dispatches;
} beryl_bench_result;

/* The i-th of the usual cases, unless `out` is NULL; false: there are fewer. */
BERYL_API bool beryl_bench_usual(uint32_t i, beryl_bench_case *out);
/* Opens the device and measures it: may take seconds where a compiler is slow. Native builds
 * only, like the other calls. */
BERYL_API beryl_status beryl_bench_open(const beryl_bench_options *options, beryl_bench **bench,
                                        beryl_error *error);
BERYL_API void beryl_bench_close(beryl_bench *bench); /* NULL is fine */
BERYL_API void beryl_bench_info_get(const beryl_bench *bench, beryl_bench_info *info);
/* Times one operation on made-up numbers. UNSUPPORTED: not this type or shape here. */
BERYL_API beryl_status beryl_bench_op(beryl_bench *bench, const beryl_bench_case *what,
                                      beryl_bench_result *result, beryl_error *error);

/* ---- models on this machine ------------------------------------------------------------------ */

typedef struct beryl_model_info {
    const char *name, *path, *source; /* source: "built-in", "beryl", "ollama" */
    uint64_t size;
} beryl_model_info;

BERYL_API beryl_status beryl_models(void (*each)(void *user, const beryl_model_info *), void *user,
                                    beryl_error *error);

/* ---- tokens and chat (no device needed) ------------------------------------------------------ */

/* Ids of `text`, without BOS. special: control literals in the text become control tokens. Needs
 * *n_token ids; if `capacity` is less, fills what fits and still gives the whole count. */
BERYL_API beryl_status beryl_tokenize(const beryl_engine *engine, const char *text, size_t size,
                                      bool special, int32_t *tokens, size_t capacity,
                                      size_t *n_token, beryl_error *error);
/* The text of tokens, control tokens left out unless `special`. Caller frees with beryl_free. */
BERYL_API beryl_status beryl_detokenize(const beryl_engine *engine, const int32_t *tokens,
                                        size_t n_token, bool special, char **text, size_t *size,
                                        beryl_error *error);
/* chat: JSON {"messages": [...], "tools": [...], "think": bool, "generate": bool (default true),
 * "preserve_thinking": bool}. A message is {"role", "content"}, content text or [{"type":
 * "text", "text"}, ...]; an assistant's also "tool_calls", "tool_responses", "reasoning" (or
 * "reasoning_content", "thinking"); a tool's "tool_call_id", "name". "model" and what OpenAI's
 * messages carry beside ("id", "refusal", "annotations", "strict", ...) is passed over; any
 * other key is BERYL_BAD_INPUT, which names it and those that are known. The prompt as text. */
BERYL_API beryl_status beryl_render(const beryl_engine *engine, const char *chat, char **prompt,
                                    size_t *size, beryl_error *error);
/* The same as tokens: text of messages never becomes a control token. */
BERYL_API beryl_status beryl_render_tokens(const beryl_engine *engine, const char *chat,
                                           int32_t **tokens, size_t *n_token, beryl_error *error);
BERYL_API void beryl_free(const beryl_engine *engine, void *memory);

/* ---- sessions: one timeline of tokens -------------------------------------------------------- */

typedef struct beryl_generate_options {
    size_t size;
    /* always the likeliest token: what a temperature of 0 is elsewhere. Here a zero means the
     * default, so that options of zeros are the model's own; .greedy = true asks for the other
     * thing */
    bool greedy;
    /* 0: the file's default, which is not greedy (see above); not below 0 */
    float temperature;
    uint32_t top_k;     /* 0: default; UINT32_MAX: off (then 256 candidates) */
    float top_p, min_p; /* 0: default, off; top_p >= 1: off */
    float repetition_penalty, presence_penalty, frequency_penalty; /* 0: off */
    uint32_t penalty_window; /* tokens looked back upon; 0: 64 */
    uint64_t seed;           /* 0: from the clock */
    uint32_t max_tokens;     /* 0: until a stop or the end of the context */
    const char *const *stop; /* texts that end the answer and are not part of it */
    size_t n_stop;
    bool ignore_eos;
} beryl_generate_options;

typedef enum beryl_event_kind {
    BERYL_EVENT_PROGRESS, /* done of total, of what */
    BERYL_EVENT_TOKEN,    /* one more token; text may be empty while UTF-8 is incomplete */
    BERYL_EVENT_CALL,     /* a whole tool call: text is JSON {"name", "arguments"} */
    BERYL_EVENT_TEST      /* text names what was tested, ok says how it went, value the error */
} beryl_event_kind;

typedef enum beryl_part {
    BERYL_PART_TEXT,
    BERYL_PART_THOUGHT,
    BERYL_PART_CALL,
    BERYL_PART_CONTROL
} beryl_part;

typedef struct beryl_event {
    beryl_event_kind kind;
    /* PROGRESS: "loading weights", "compiling kernels" (done of total are counts), "reading the
     * prompt", ... */
    const char *what;
    uint64_t done, total;
    int32_t token; /* TOKEN: -1 where only held-back text is delivered */
    beryl_part part;
    const char *text; /* TOKEN, CALL, TEST */
    size_t text_size;
    bool ok;
    double value;
} beryl_event;

typedef enum beryl_end {
    BERYL_END_STOP,
    BERYL_END_LENGTH,
    BERYL_END_CONTEXT,
    BERYL_END_CANCELLED
} beryl_end;

typedef struct beryl_result { /* of a generate or chat task; valid after the task has ended */
    beryl_end end;
    uint32_t n_prompt, n_reused, n_generated;
    double prefill_s, first_token_s, decode_s;
} beryl_result;

BERYL_API beryl_status beryl_session_open(beryl_engine *engine, const void *reserved,
                                          beryl_session **session, beryl_error *error);
/* NULL is fine; ends a task of its own */
BERYL_API void beryl_session_close(beryl_session *session);
/* The whole prompt, always; what the session already holds of it is not computed again. A prompt
 * that does not fit is BERYL_CONTEXT_FULL at once, and the session stays as it was. Tokens are
 * copied. */
BERYL_API beryl_status beryl_session_generate(beryl_session *session, const int32_t *tokens,
                                              size_t n_token, const beryl_generate_options *options,
                                              beryl_task **task, beryl_error *error);
/* The same for a conversation (see beryl_render); thought and calls arrive as parts of their
 * own. */
BERYL_API beryl_status beryl_session_chat(beryl_session *session, const char *chat,
                                          const beryl_generate_options *options, beryl_task **task,
                                          beryl_error *error);
/* Logits of positions [first, n_token) after the final soft-cap: f32 [n_token - first, n_vocab],
 * each row handed to `each` once, in order. The session then holds these tokens. `piece`: tokens
 * fed at once, 0: default. */
BERYL_API beryl_status beryl_session_logits(beryl_session *session, const int32_t *tokens,
                                            size_t n_token, size_t first, uint32_t piece,
                                            void (*each)(void *user, size_t position,
                                                         const float *logits),
                                            void *user, beryl_task **task, beryl_error *error);
/* ---- pictures and sound ---------------------------------------------------------------------- */

typedef enum beryl_media_kind { BERYL_PICTURE = 1, BERYL_SOUND, BERYL_VIDEO } beryl_media_kind;

enum { BERYL_VIDEO_FRAMES = 32 }; /* at most */

typedef struct beryl_media_desc {
    size_t size;
    beryl_media_kind kind;
    /* of a picture: [height, width, 3], red, green, blue; up to 65,535 a side, 2^28 pixels; of a
     * video [n_frame, height, width, 3] */
    const uint8_t *rgb;
    uint32_t width, height;
    /* taken as it is: its sides are whole soft tokens (48 pixels), no more than the budget */
    bool resized;
    /* most soft tokens of a picture; 0: as the file says, else 280; of a video's frame; 0: 70 */
    uint32_t budget;
    /* of sound: one channel in -1 to 1, up to 30 s */
    const float *samples;
    size_t n_sample;
    uint32_t rate; /* samples a second, 1,000 to 768,000; 0: 16,000 */
    /* Or a file in memory; its bytes say what it is. A picture: PNG, JPEG (upright as EXIF says),
     * WebP, GIF (both: the first frame), BMP, over white where it lets something through, up to 100
     * megapixels. Sound: WAV; FLAC, MP3, Ogg Vorbis and Opus, AIFF; any channels, any rate. What a
     * build has no library for is UNSUPPORTED, with its name; in wasm all but WAV. */
    const void *file;
    size_t file_size;
    /* of a sound file: where the clip begins, in samples at 16 kHz; 480,000 of them at most.
     * Without `part`, what does not end there is BAD_INPUT; with it, beryl_media_rest tells what
     * is left. */
    uint64_t from;
    bool part;
    /* of a video: up to BERYL_VIDEO_FRAMES, and when they are shown, in seconds from 0 to below
     * 6,000; NULL: one a second */
    uint32_t n_frame;
    const double *times;
} beryl_media_desc;

/* A picture, a clip or a video for prompts, of one engine: closed before it. One thread with its
 * engine. */
typedef struct beryl_media beryl_media;
/* Copies what desc names. UNSUPPORTED: the model does not see, or hear. */
BERYL_API beryl_status beryl_media_open(beryl_engine *engine, const beryl_media_desc *desc,
                                        beryl_media **media, beryl_error *error);
/* Loads the tower of pictures (of videos too) or of sound and compiles its programs, for when media
 * is about to come. UNSUPPORTED: the model does not see, or hear. */
BERYL_API beryl_status beryl_engine_prepare_media(beryl_engine *engine, beryl_media_kind kind,
                                                  beryl_task **task, beryl_error *error);
/* NULL is fine. Sessions that were given it keep what they need. */
BERYL_API void beryl_media_close(beryl_media *media);
/* Computes its soft tokens; the first of a kind loads the tower. Prompts wait for nothing else:
 * media is encoded before it is given to a session. */
BERYL_API beryl_status beryl_media_encode(beryl_media *media, beryl_task **task,
                                          beryl_error *error);
/* How many soft tokens it is, and, once encoded, F32 [n_token, n_embd], borrowed until it is closed
 * (else, and of a video, NULL). Places may be NULL. */
BERYL_API void beryl_media_soft(const beryl_media *media, const float **soft, size_t *n_token,
                                size_t *n_embd);
/* Samples at 16 kHz of its file that follow the clip: the next one begins at from + 480,000. Less
 * than a tenth of a second is passed over. 0: none, or no file. */
BERYL_API uint64_t beryl_media_rest(const beryl_media *media);
/* What stands in the session's prompts from now on, in the order of their places: of
 * beryl_session_chat the parts "image", "audio" and "video" that hold nothing themselves, of other
 * calls runs of the soft-token id, as long as its soft tokens are, a video's a run of a picture's
 * for each frame. A prompt whose places do not fit is BAD_INPUT. n 0: no media. What a session
 * holds of media in its caches is told by their content, so a conversation may be given again with
 * the same pictures and none is read twice.
 *
 * A conversation may hold pictures and clips itself, as OpenAI's parts do:
 *     {"type": "image_url", "image_url": {"url": "data:image/png;base64,...", "detail": "low"}}
 *     {"type": "input_audio", "input_audio": {"data": "...", "format": "wav"}}
 * any file that `file` above takes, 30 s of sound at most; "detail" low: 70 soft tokens, high:
 * 1,120, auto: as budget 0. The task encodes them before it reads the prompt, in the next turn not
 * again. No other URL is taken, and no part makes the library open a file. */
BERYL_API beryl_status beryl_session_media(beryl_session *session, beryl_media *const *media,
                                           size_t n, beryl_error *error);

/* ---- adapters -------------------------------------------------------------------------------- */

typedef struct beryl_adapter_options {
    size_t size;
    /* a folder that PEFT wrote (adapter_config.json, adapter_model.safetensors), a GGUF adapter, or
     * safetensors of the form "rullama-lora-v0" */
    const char *path;
    /* or the file in memory, copied; and of PEFT's form the text of adapter_config.json */
    const void *data;
    size_t data_size;
    const char *config;
    size_t config_size;
} beryl_adapter_options;

/* Reads a low-rank adapter (F32, F16 or BF16) and lays it on the device beside the others: y +=
 * scale * alpha / rank * B * (A * x) for the matrices that it names. Runs that were begun are
 * ended first; tasks go on afterwards. Plans are compiled anew, at the next prompt, where all
 * open adapters have more ranks, other matrices or another type than any that were open together
 * before. UNSUPPORTED names the tensor and both shapes if it is another model's, and what it asks
 * for if that is not computed here (DoRA, whole modules, biases). Unless under `exact`, GPUs have
 * F32 as F16, and A beside quantised matrices in blocks of 8 bits. In a browser's module PENDING:
 * runs are under way, call again. */
BERYL_API beryl_status beryl_adapter_open(beryl_engine *engine,
                                          const beryl_adapter_options *options,
                                          beryl_adapter **adapter, beryl_error *error);
/* NULL is fine. Sessions that were given it keep it until they are given others or closed.
 * Adapters end with their engine at the latest. */
BERYL_API void beryl_adapter_close(beryl_adapter *adapter);
/* Which adapters the session takes from now on, n of them, added up; scales [n], NULL: 1 each. n 0:
 * none. Sessions of one engine may have different ones and still run together; a step then costs
 * all of them the ranks of all open adapters. Unless they are what the session has, nothing that it
 * holds is used again: the next prompt is read from its beginning. MISUSE while a task runs on the
 * session. A session is restored under the adapters that it was saved under. */
BERYL_API beryl_status beryl_session_adapters(beryl_session *session,
                                              beryl_adapter *const *adapters, const float *scales,
                                              size_t n, beryl_error *error);

typedef struct beryl_convert_options {
    size_t size;
    const char *from; /* as path in beryl_adapter_options */
    const char *to;   /* of form "peft" a folder, made if it is not there; else a file */
    const char *form; /* "peft", "gguf", "rullama" */
    const char *type; /* of the values: "F32", "F16", "BF16"; NULL: as they are */
    beryl_allocator allocator;
} beryl_convert_options;

/* An adapter in another form. UNSUPPORTED names what the form cannot say (the head in GGUF, ranks
 * that differ or experts in rullama's) or the type cannot hold. Blocks; any thread. A file gets its
 * name only once it is whole. */
BERYL_API beryl_status beryl_adapter_convert(const beryl_convert_options *options,
                                             beryl_error *error);

typedef struct beryl_merge_options {
    size_t size;
    const char *model;           /* as in beryl_engine_options */
    const char *out;             /* the GGUF file that is written */
    const char *const *adapters; // [n_adapter], each as path in beryl_adapter_options
    const float *scales;         // [n_adapter]; NULL: 1 each
    size_t n_adapter;
    /* bytes written of all; false: ends with BERYL_CANCELLED. May be NULL */
    bool (*progress)(void *user, uint64_t done, uint64_t total);
    void *user;
    beryl_allocator allocator;
    beryl_log log; /* warnings: tensors that change their type */
    /* of what is folded into: "F32", "F16", "BF16"; NULL: its own */
    const char *type;
} beryl_merge_options;

/* A model with adapters folded in, W + scale * alpha / rank * B * A, that needs none at run time.
 * Without `type` what is folded into keeps its own if that is a float, Q8_0, Q4_0, Q4_1, Q5_0,
 * Q5_1, Q4_K, Q5_K or Q6_K (rounded to nearest anew), else becomes F16; all else is copied as it
 * is, keys too. Where head and embedding are one tensor and an adapter changes one of them, the
 * file has "output.weight" besides. Parts of a split file become one. Holds the adapters and a few
 * rows in memory. Blocks; any thread. The file gets its name only once it is whole. */
BERYL_API beryl_status beryl_merge(const beryl_merge_options *options, beryl_error *error);

/* What the session holds, borrowed until its next task. Either place may be NULL; a session that
 * is NULL holds nothing. */
BERYL_API void beryl_session_tokens(const beryl_session *session, const int32_t **tokens,
                                    size_t *n_token);
/* Keeps the first n_token positions, forgets the others. 0 clears. */
BERYL_API beryl_status beryl_session_rewind(beryl_session *session, size_t n_token,
                                            beryl_error *error);
/* To a file and back, bit for bit. restore refuses a file of another model, KV type or
 * precision. */
BERYL_API beryl_status beryl_session_save(beryl_session *session, const char *path,
                                          beryl_task **task, beryl_error *error);
BERYL_API beryl_status beryl_session_restore(beryl_session *session, const char *path,
                                             beryl_task **task, beryl_error *error);
/* The same to wherever the caller likes and from there, a few MB at a time. Sink and source are
 * copied, then owned. */
BERYL_API beryl_status beryl_session_save_to(beryl_session *session, const beryl_sink *sink,
                                             beryl_task **task, beryl_error *error);
BERYL_API beryl_status beryl_session_restore_from(beryl_session *session,
                                                  const beryl_source *source, beryl_task **task,
                                                  beryl_error *error);

/* ---- tasks ----------------------------------------------------------------------------------- */

/* BERYL_OK: ended. BERYL_EVENT: *event is filled. BERYL_PENDING: nothing to do yet. Else it failed;
 * every later call gives the same status. `event` may be NULL. Stepping one session's task also
 * advances the other sessions of its engine: they decode together. */
BERYL_API beryl_status beryl_task_step(beryl_task *task, beryl_event *event);
BERYL_API beryl_status beryl_wait(beryl_task *task, beryl_event *event); /* never PENDING */
BERYL_API const beryl_error *beryl_task_error(const beryl_task *task);
BERYL_API const beryl_result *beryl_task_result(const beryl_task *task);
/* From any thread or signal handler, as long as the task is open. A cancellation is never lost.
 * True: the task ends with BERYL_CANCELLED at its next step, or at the end of the one that is
 * running, be it the last; unless it fails first. True again when it is cancelled again. False:
 * it had ended before (or is NULL), and the cancellation changes nothing: what the task was to
 * do is done, or it has failed, and only its last events and its end may still have to be taken. */
BERYL_API bool beryl_cancel(beryl_task *task);
BERYL_API void beryl_task_close(beryl_task *task);

#ifdef __cplusplus
}
#endif
#endif
