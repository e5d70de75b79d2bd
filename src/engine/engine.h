/* engine.h - the inside of an engine, its sessions and tasks, shared by the files of this room.
 *
 * One idea: a session's task never runs the device itself. engine_pump looks at all sessions, puts
 * the next run together (a piece of one session's prompt, or one decode step of all that are ready)
 * and hands finished runs back; tasks take their tokens from their session's inbox. So sessions
 * decode together whichever task is stepped.
 */
#ifndef ENGINE_ENGINE_H
#define ENGINE_ENGINE_H

#include "base/json.h"
#include "base/sample.h"
#include "base/thread.h"
#include "format/store.h"
#include "gemma4/audio.h"
#include "gemma4/vision.h"
#include "plan/exec.h"
#include "text/chat.h"

enum {
    ENGINE_SESSION_MAX = 64,
    ENGINE_FLIGHT_MIN = 2, /* submits under way: as deep as makes answers faster (pace.c) */
    ENGINE_FLIGHT_MAX = 4,
    ENGINE_DEPTH_STEPS = 16,             /* decode steps by which a depth is judged */
    ENGINE_PIECES = 7,                   /* lengths of pieces, each half of the one before */
    ENGINE_PIECE = 512,                  /* most prompt tokens in one run, by default, */
    ENGINE_PIECE_MAX = 4 * ENGINE_PIECE, /* on a GPU with memory for it */
    ENGINE_SMALL_PIECE = 32,             /* of the plan for short prompts */
    ENGINE_NEAR = 512,
    ENGINE_CONTEXT = 8192,                   /* default, where the file has more; */
    ENGINE_CONTEXT_MAX = 4 * ENGINE_CONTEXT, /* where the device has memory for it */
    ENGINE_LOGIT_BYTES = 64 << 20,
};

/* What a plan is for. */
typedef enum engine_plan_kind {
    PLAN_PREFILL,      /* a piece whose logits nobody wants */
    PLAN_OUTPUT,       /* the last piece of a prompt: one output row, sampled */
    PLAN_OUTPUT_SMALL, /* the same for short pieces, */
    PLAN_OUTPUT_LONG,  /* and for those of more than ENGINE_PIECE */
    /* one row, at a position below ENGINE_NEAR: attention in few pieces, no dispatch to merge
     * them */
    PLAN_DECODE_NEAR,
    PLAN_DECODE,       /* one row */
    PLAN_DECODE_8,     /* up to 8 sessions */
    PLAN_DECODE_ALL,   /* all sessions */
    PLAN_LOGITS,       /* every row's logits, nothing sampled */
    PLAN_MEDIA,        /* PLAN_PREFILL and */
    PLAN_MEDIA_LOGITS, /* PLAN_LOGITS with soft tokens among the rows */
    PLAN_COUNT
} engine_plan_kind;

/* Added to a kind: the same with adapters. */
enum { PLAN_ADAPTED = PLAN_COUNT, PLAN_ALL = 2 * PLAN_COUNT };

typedef struct engine_pace { /* of a plan's runs (pace.c) */
    /* of the last run, if all of it had been as slow as its slowest part; 0: none was finished */
    double seconds;
    uint32_t n_token; /* of it */
    /* of the run under way: what is done, its seconds, and the most seconds by share */
    double share, sum, worst;
    double dispatch; /* the longest part of one dispatch */
} engine_pace;

typedef struct engine_depth { /* how many decode steps are under way */
    /* settled: steps until deeper is tried again, after `patience` of them, twice as many each
     * time that it was no faster: one try may be bad luck */
    uint32_t depth, n, skip, settled, patience;
    double seconds[ENGINE_DEPTH_STEPS], best;
} engine_depth;

typedef struct engine_plan {
    gemma4_text text;
    graph_exec *exec;   /* NULL: not made yet */
    graph_exec *making; /* until then, once it is begun */
    uint32_t n_token, n_output;
    bool ready;
    engine_pace pace;
} engine_plan;

typedef struct engine_row { /* of a run in flight */
    beryl_session *session; /* NULL: closed meanwhile */
    /* of the session when submitted: results of an ended turn are dropped */
    uint64_t turn;
} engine_row;

typedef struct engine_run { /* or a part of it */
    engine_plan_kind kind;
    bool adapted; /* a session of it has adapters */
    device_ticket ticket;
    graph_part part;
    bool first; /* the run's first part */
    bool full;  /* the device had as much to do as it gets, when this was submitted */
    uint32_t n_row, n_token, n_fetch;
    bool logits; /* logits are read back (as the last fetch) */
    double submitted;
    engine_row rows[ENGINE_SESSION_MAX];
    size_t first_position; /* LOGITS: of the first row */
} engine_run;

typedef struct engine_tuned { /* a class of products and its form (tuned.c) */
    lower_tuned form;
    char role[64];
    base_type type;
    uint32_t dim[3], n; /* of the weight; rows of the run, at most */
    bool exact;
    double before, after; /* microseconds */
} engine_tuned;

typedef struct engine_towers engine_towers; /* towers.h */

typedef struct engine_lora { /* adapters.c */
    base_vec(beryl_adapter *) open;
    bool uploading; /* the pool's bytes are on their way: nothing runs before */
    bool made;      /* there is a pool, and all below: */
    uint32_t rank;
    base_type type;
    store_mark mark;           /* the pool's tensors: scales, then A and B of the pairs */
    gemma4_lora graph;         /* pairs owned */
    base_vec(uint32_t) places; /* of each A and B: number of the pair, doubled, and 1 for B */
    char *row;                 // [row_size]: of the pool's widest tensor
    size_t row_size;
} engine_lora;

typedef struct engine_adapted { /* of a session */
    beryl_adapter *adapter;
    float scale;
} engine_adapted;
typedef base_vec(engine_adapted) engine_adapters;

struct beryl_engine {
    base_heap heap;
    base_arena arena; /* lives as long as the engine */
    beryl_log log;
    beryl_engine_options options; /* texts copied into the arena */
    beryl_source source;          /* a given one, until the file takes it */
    bool loaded;
    bool table_on_host; /* the per-layer-embedding table did not fit on the device */
    /* nor did what nobody asked for: a context of more than ENGINE_CONTEXT, long pieces */
    bool no_growth;
    format_model found;
    format_gguf *gguf;
    format_gguf *mmproj;        /* the towers' file; NULL: the model's own */
    beryl_source mmproj_source; /* until it is opened */
    bool mmproj_given;          /* that source */
    uint64_t model_hash;
    text_tokenizer *tokenizer; /* may be NULL after a load with header_only */
    base_view *unread;         /* its texts, while merges are to be read; else NULL */
    /* header_only: why the file does not run; NULL: nothing stands against it */
    const char *why_not;
    text_chat_style style;
    gemma4_model model;
    device *device; /* NULL: reference, or vocabulary only */
    graph_store store;
    base_type kv_type;
    uint32_t piece, piece_now;           /* the longest piece, and the next one */
    double piece_seconds[ENGINE_PIECES]; /* of a token, in pieces of piece >> index; 0: not tried */
    engine_depth depth;
    engine_plan plans[PLAN_ALL];
    engine_run flight[ENGINE_FLIGHT_MAX]; /* oldest first */
    uint32_t n_flight;
    engine_run prompt, step; /* begun, and not submitted to its end: n_row 0: none */
    bool holding;            /* runs that were begun are ended, no other is begun */
    bool last_was_prompt;    /* prompts and decode steps take turns */
    double last_finished;
    float *host_logits;     /* [V], in the arena: for penalties */
    device_command *copies; /* [n_copy_max], in the arena: for copies of rings */
    beryl_session *sessions[ENGINE_SESSION_MAX]; /* by slot */
    uint32_t n_session, next_prefill;
    beryl_error failure; /* of the device: ends every task */
    beryl_stats stats;
    float temperature, top_p; /* defaults of the file */
    uint32_t top_k;
    double load_started;
    struct engine_selftest *check; /* of kernels, while it runs; else NULL (check.c) */
    /* programs of the store when it began; those that need no check any more */
    size_t n_checking, n_checked;
    size_t n_compiled; /* programs, as told last, and when (engine_compile_progress) */
    double compile_told;
    base_vec(uint64_t) known;     /* programs that were right on this adapter before */
    base_vec(engine_tuned) tuned; /* forms of products, in the file's order */
    struct ir_cache *schedules;   /* where there is a file of them; owned */
    lower_tuned *tuned_forms;     /* [tuned.count], of the store; owned */
    size_t n_tuned_forms;
    bool lost[3]; /* f16, subgroups, dot: done without since programs were wrong */
    bool unkept;  /* verdicts cannot be written: said once */
    engine_lora lora;
    struct beryl_train *train; /* the open one; NULL: none */
    engine_towers *towers;     /* NULL until media is first opened; owned */
    beryl_engine_info *info;   /* NULL until first asked for; in the arena (info.c) */
};

/* ---- sessions (session.c) -------------------------------------------------------------------- */

typedef enum session_state {
    SESSION_IDLE,
    SESSION_MEDIA,   /* its prompt waits for soft tokens */
    SESSION_PREFILL, /* prompt tokens are still to be fed */
    SESSION_DECODE,
    SESSION_LOGITS
} session_state;

struct beryl_media {
    beryl_engine *engine;
    uint32_t users; /* who opened it, and sessions */
    beryl_media_kind kind;
    uint64_t hash;   /* of what it was made from */
    uint64_t source; /* of the text that held it (attach.c); 0: none did */
    uint8_t *rgb;    /* [height, width, 3], as the model sees it; given back once encoded */
    uint32_t width, height;
    float *samples; /* [n_sample]; the same */
    uint32_t n_sample;
    uint32_t n_soft;
    float *soft; /* [n_soft, n_embd]; NULL: not encoded yet */
    struct {
        beryl_media *picture; /* one user: the video */
        uint32_t second;
    } * frames; /* [n_frame], of a video, which has nothing else */
    uint32_t n_frame;
    uint64_t n_rest; /* samples at 16 kHz of its file after it */
};

typedef base_vec(beryl_media *) media_list;

typedef struct session_span { /* of a prompt: where media stands */
    size_t begin;
    beryl_media *media;
} session_span;
typedef base_vec(session_span) session_spans;

struct beryl_session {
    beryl_engine *engine;
    uint32_t slot;
    session_state state;
    uint64_t turn; /* rises when a turn begins or ends */
    /* the timeline as known: what was fed, and the newest token; soft tokens are below 0, and tell
     * what they are by content (media.c) */
    base_vec(int32_t) tokens;
    media_list given;         /* for prompts */
    session_spans spans;      /* where media stands in this one */
    engine_adapters adapters; /* that it takes */
    size_t n_fed;             /* positions [0, n_fed) are in the cache or on their way there */
    /* one past the highest position ever written into the rings since their last restart */
    size_t highest;
    size_t n_prompt, n_ahead;
    /* n_prompt: of this turn */ /* n_ahead: steps submitted whose token is not known yet */
    base_vec(int32_t) inbox;     /* tokens chosen and not yet taken by the task */
    size_t inbox_taken;
    base_sample_settings settings;
    bool host_sampling; /* penalties: logits are read back for each token */
    float repetition, presence, frequency;
    uint32_t penalty_window;
    size_t limit;        /* no token is fed at or beyond this position */
    size_t logits_first; /* SESSION_LOGITS: rows from here on are handed over */
    uint32_t logits_piece;
    void (*logits_each)(void *user, size_t position, const float *logits);
    void *logits_user;
    /* n_fed and highest when the rings were copied, at the end of a prompt; saved_at 0: never */
    size_t saved_at, saved_highest;
    double first_token, prefill_done; /* times */
    beryl_task *task;                 /* the running one, NULL: none */
};

/* ---- media in prompts (places.c) ------------------------------------------------------------- */

/* The prompt as the session keeps it: out [n], soft tokens by content, and where media stands,
 * users of it, also where it fails. BAD_INPUT: places and media do not fit. */
beryl_status session_media_place(const beryl_session *s, const int32_t *tokens, size_t n,
                                 const media_list *media, int32_t *out, session_spans *spans,
                                 beryl_error *error);
/* Tokens of a rendered conversation, each place for media as long as it has to be; ids grows. */
beryl_status session_media_expand(const beryl_session *s, const media_list *media, text_ids *ids,
                                  beryl_error *error);
void session_spans_fini(base_heap *heap, session_spans *spans);
/* Media is dropped, and spans. */
void session_media_clear(beryl_session *s);
/* The first span that ends after position p; NULL: none. */
const session_span *session_span_at(const session_spans *spans, size_t p);

/* ---- towers (towers.c) ----------------------------------------------------------------------- */

/* How pictures see themselves in this model. */
gemma4_media engine_media_of(const beryl_engine *e);
void engine_towers_close(beryl_engine *e);
/* Off the device go those that nothing encodes with. */
void engine_towers_leave(beryl_engine *e);

/* ---- adapters (adapters.c) ------------------------------------------------------------------- */

/* The pool's bytes: the store's last source. */
beryl_source engine_lora_source(beryl_engine *engine);
/* What the slot's session takes of each rank, to the device, in order with runs. */
beryl_status engine_lora_scales(beryl_engine *engine, uint32_t slot, beryl_error *error);
/* The rest of the pool's bytes to the device. PENDING: step again. */
beryl_status engine_lora_upload(beryl_engine *engine, beryl_error *error);
/* An adapter whose values the caller changes, in memory of the adapter; takes over `lora`, after a
 * failure too. Nothing runs. */
beryl_status engine_adapter_make(beryl_engine *engine, format_lora *lora, beryl_adapter **adapter,
                                 beryl_error *error);
/* Its values become others: sessions that have it hold nothing any more. MISUSE: one of them has a
 * task. Then, once they are: to the device. Nothing runs. */
beryl_status engine_adapter_changed(beryl_adapter *adapter, beryl_error *error);
beryl_status engine_adapter_upload(beryl_adapter *adapter, beryl_error *error);
/* Its parts, as they were read. */
const format_lora *engine_adapter_lora(const beryl_adapter *adapter);
/* No session is open. Adapters that are still open end with their engine. */
void engine_lora_close(beryl_engine *engine);
/* The file of an adapter at a path, and PEFT's configuration where that is beside it: each given
 * back with base_heap_give(.., size + 1), after a failure too. */
beryl_status engine_adapter_files(base_heap *heap, base_arena *arena, const char *path, char **data,
                                  size_t *size, char **config, size_t *config_size,
                                  beryl_error *error);
/* "F32", "F16", "BF16"; NULL: TYPE_COUNT. false: another name. */
bool engine_float_type(const char *name, base_type *type);
/* An adapter at a path, read. */
typedef struct engine_adapter_file {
    char *data, *config;
    size_t size, config_size;
    format_lora lora;
} engine_adapter_file;
beryl_status engine_adapter_file_open(base_heap *heap, const char *path, engine_adapter_file *file,
                                      beryl_error *error);
void engine_adapter_file_close(base_heap *heap, engine_adapter_file *file);
bool engine_adapter_form(const char *name, format_lora_form *form); /* false: no such form */
void session_adapters_clear(beryl_session *s);
/* Which adapters at which scales, in their order; 0: none. */
uint64_t session_adapters_hash(const beryl_session *s);

/* ---- tasks (task.c) -------------------------------------------------------------------------- */

/* text_at: in the task's text */
typedef struct task_event {
    beryl_event event;
    size_t text_at;
} task_event;

/* settled: too late to cancel it */
typedef enum task_fate { TASK_OPEN, TASK_CANCELLED, TASK_SETTLED } task_fate;

struct beryl_task {
    beryl_engine *engine;
    beryl_session *session; /* NULL: of the engine */
    /* OK, EVENT (events were put), PENDING, or an error in task->error */
    beryl_status (*step)(beryl_task *task);
    void (*close)(beryl_task *task); /* may be NULL */
    void *state;                     /* of the kind of task, owned by close */
    beryl_status status;             /* OK before the end means running */
    bool ended;
    int fate; /* atomic: task_fate */
    beryl_error error;
    beryl_result result;
    base_vec(task_event) events;
    size_t n_taken;
    base_text text; /* of the events not yet taken */
};

beryl_status task_open(beryl_engine *engine, beryl_session *session,
                       beryl_status (*step)(beryl_task *), beryl_task **out, beryl_error *error);
/* Queues an event with a copy of its text. */
beryl_status task_put(beryl_task *task, beryl_event event, const char *text, size_t size);
/* Queues progress: EVENT, or why it could not. */
beryl_status task_progress(beryl_task *task, const char *what, uint64_t done, uint64_t total);
bool task_is_cancelled(const beryl_task *task);
/* Before what a task does counts for others, in its last step: OK: from here on it cannot be
 * cancelled, and has to end well or fail. CANCELLED, with task->error: it was cancelled before.
 * Where a step does not ask, it is asked when the step gives OK. */
beryl_status task_settle(beryl_task *task);

/* ---- the device to run on (load.c) ----------------------------------------------------------- */

/* As device_open, for whoever runs something there: choice NULL or "": $BERYL_DEVICE, else the
 * best. OK with *out NULL: the reference functions. A device that runs no programs is
 * UNSUPPORTED. */
beryl_status engine_device_open(base_heap *heap, const beryl_log *log, const char *choice,
                                device **out, beryl_error *error);

/* ---- the start-up check (check.c) ------------------------------------------------------------ */

/* Once the device is open: what the cache folder knows of it. */
void engine_check_recall(beryl_engine *engine);
/* OK: every program of the plans made so far is trusted (at once, where it was before). EVENT:
 * one more operation was tried. PENDING: step again. DEVICE: a kernel computes wrong numbers
 * here; the message names it. again not NULL: where a program was wrong that needs something
 * special of the device, *again is set: that is masked and the plans are closed. */
beryl_status engine_check_step(beryl_engine *engine, bool *again, uint64_t *done, uint64_t *total,
                               beryl_error *error);
/* The same for programs that did not compile: true: make the plans again. */
bool engine_check_broken(beryl_engine *engine, const beryl_error *why);
/* For a step that waits for programs: EVENT: told how many are compiled. PENDING: nothing new. */
beryl_status engine_compile_progress(beryl_task *task);
void engine_check_close(beryl_engine *engine);

/* ---- files of what is known of an adapter (cached.c) ----------------------------------------- */

/* Hash of adapter, driver and version, in hexadecimal. */
void engine_adapter_key(const beryl_engine *engine, char key[17]);
/* KIND-KEY.json in Beryl's cache folder; kind NULL: the folder. NULL: there is none, or no
 * memory. */
char *engine_cache_path(base_arena *arena, const char *kind, const char *key);
/* What the file holds whose "key" is `key`, in the arena. NULL: there is none, or it is damaged
 * or has another key, which is a warning. */
const base_json *engine_cache_read(beryl_engine *engine, base_arena *arena, const char *path,
                                   const char *key);
/* A file's beginning, '{' and what tells whose it is; without a comma after it. */
void engine_cache_begin(const beryl_engine *engine, const char *key, base_text *text);
/* Makes the folder, or says that nothing can be kept. */
beryl_status engine_cache_folder(base_arena *arena, beryl_error *error);
/* Writes the file KIND-KEY.json; one that was there is replaced as a whole. */
beryl_status engine_cache_keep(base_arena *arena, const char *kind, const char *key,
                               const base_text *text, beryl_error *error);

/* ---- what tuning found (tuned.c) ------------------------------------------------------------- */

#ifdef __wasm__ /* browsers are not tuned */
#define engine_tuned_recall(engine) ((void)(engine))
#define engine_tuned_use(engine, use) ((void)(engine))
#define engine_tuned_close(engine) ((void)(engine))
#else
/* Once the store is there: what the cache folder holds for it, into engine->tuned; damage is a
 * warning. */
void engine_tuned_recall(beryl_engine *engine);
/* The forms to the store, whose plans take them from then on, or none. */
void engine_tuned_use(beryl_engine *engine, bool use);
void engine_tuned_close(beryl_engine *engine);
/* Writes engine->tuned; a file that was there is replaced as a whole. */
beryl_status engine_tuned_keep(const beryl_engine *engine, beryl_error *error);
/* The file of ir/tune.h in the cache folder, for all devices. NULL: there is no folder, or no
 * memory. */
char *engine_schedules_path(base_arena *arena);
#endif

/* ---- runs (run.c) ---------------------------------------------------------------------------- */

/* Do short contexts have a decode plan of their own? */
bool engine_has_near(const beryl_engine *engine);
/* near: of a short context. */
engine_plan_kind engine_plan_kind_of(const beryl_engine *engine, beryl_plan plan, bool near);
/* What a plan's graph is built with; kind may be with PLAN_ADAPTED, like that of
 * engine_plan_get. */
gemma4_text_options engine_plan_options(const beryl_engine *engine, engine_plan_kind kind);
/* Makes a plan unless there, for about so long. EVENT: there is more to make. */
beryl_status engine_plan_make(beryl_engine *engine, engine_plan_kind kind, double seconds,
                              beryl_error *error);
/* The same to its end; OK when its programs are compiled. */
beryl_status engine_plan_get(beryl_engine *engine, engine_plan_kind kind, engine_plan **plan,
                             beryl_error *error);
void engine_plans_close(beryl_engine *engine);
void engine_adapted_plans_close(beryl_engine *engine);
static inline unsigned engine_plan_index(const engine_run *run) {
    return run->kind + (run->adapted ? PLAN_ADAPTED : 0u);
}
/* Until nothing runs that was begun; nothing else is begun meanwhile. */
beryl_status engine_drain(beryl_engine *engine, beryl_error *error);
/* OK: something moved; PENDING: the device is busy or nobody wants anything; else the engine has
 * failed. */
beryl_status engine_pump(beryl_engine *engine, beryl_error *error);
/* Sleeps until the oldest run in flight is done (native). */
beryl_status engine_sleep(beryl_engine *engine, beryl_error *error);

/* Nobody reads what it gives for this session, which is closed. */
void engine_run_forget(engine_run *run, const beryl_session *session);
/* Into how many parts the rest of a run is cut. */
uint32_t engine_pace_parts(const engine_plan *plan, uint32_t n_token);
/* Is so much under way that a cancellation of this prompt would wait too long for another part? */
bool engine_pace_waits(const beryl_engine *engine, const engine_run *run);
/* A part is done, so many seconds after it could begin. */
void engine_pace_done(beryl_engine *engine, const engine_run *run, double seconds);

/* Bytes ranges of cache rows [row, row + n) of a slot in a cache state: one or two (Q8_0 on
 * devices: quants and scales). */
typedef struct cache_range {
    uint64_t offset, size;
} cache_range;
/* Copies a slot's rings to the turn's copies, or back. In order with runs. */
beryl_status engine_copy_rings(beryl_engine *engine, uint32_t slot, bool back, beryl_error *error);
uint32_t engine_cache_ranges(const beryl_engine *engine, uint32_t state, uint32_t slot,
                             uint32_t row, uint32_t n, cache_range *out);

#endif
