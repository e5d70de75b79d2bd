/* faults_test.c - reading and writing that fails: each call of the system that the library makes
 * over a whole task fails, the n-th of them, for every n.
 *
 * A scene is something that the library does, from nothing to nothing: load and answer, save,
 * restore, keep what was tuned. It runs with the n-th call made to fail in one of several ways
 * (`kinds`), and then once more without. Each time it is a status with a line that names a file,
 * or all is as without: the same answer, no memory, no descriptor and no unfinished file left. n
 * goes up until a run meets no failure, by steps drawn at random (BERYL_TEST_SEED) where a scene
 * makes many calls. BERYL_TEST_SHOW=1 tells how many, and goes on where a case has failed.
 *
 * Files that change meanwhile are here too: at the n-th read the file is another. */
#define _GNU_SOURCE /* setenv */
#include "faults.h"
#include "rig.h"

#include "base/error.h"
#include "beryl_train.h"
#include "base/file.h"
#include "engine/engine.h"
#include "ir/tune.h"
#include "host_rig.h"
#include "model.h"

#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

static const faults_kind kinds[] = {
    {.name = "EIO", .calls = FAULTS_ALL, .error = EIO},
    {.name = "EIO from then on", .calls = FAULTS_ALL, .error = EIO, .lasting = true},
    {.name = "ENOSPC from then on",
     .calls = FAULTS_WRITE | FAULTS_SYNC | FAULTS_STREAM | FAULTS_CLOSE,
     .error = ENOSPC,
     .lasting = true},
    {.name = "EACCES",
     .calls = FAULTS_OPEN | FAULTS_NAME | FAULTS_LOOK | FAULTS_FOLDER,
     .error = EACCES},
    {.name = "EMFILE", .calls = FAULTS_OPEN | FAULTS_FOLDER, .error = EMFILE},
    {.name = "EINTR",
     .calls = FAULTS_OPEN | FAULTS_READ | FAULTS_WRITE | FAULTS_SYNC,
     .error = EINTR,
     .harmless = true},
    {.name = "short",
     .calls = FAULTS_READ | FAULTS_WRITE,
     .cut = true,
     .lasting = true,
     .harmless = true},
};
enum { N_KIND = sizeof kinds / sizeof *kinds };

/* ---- a bench: what a scene stands on --------------------------------------------------------- */

typedef struct scene scene;

typedef struct bench {
    test *t;
    const scene *scene;
    /* of its own; a copy of the model; what the scene writes or reads */
    char folder[300], model[400], path[400];
    beryl_allocator allocator; /* counts into bytes_out */
    int64_t bytes_out;
    beryl_engine *engine; /* of scenes whose task is not the load */
    beryl_session *session;
    beryl_train *train;
    uint64_t memory;   /* or the size of what is written */
    char answer[256];  /* what a run found, as text */
    char warning[512]; /* the last */
    bool faulty;       /* something may fail in this run */
    uint64_t seed;
} bench;

struct scene {
    const char *name;
    bool (*begin)(bench *b);  /* false: skipped or failed */
    void (*before)(bench *b); /* each run's files as they were; NULL: it changes none */
    beryl_status (*run)(bench *b, beryl_error *error);
    uint32_t most; /* runs of one kind of failure, about; 0: all */
    bool is_slow;  /* `most` of all kinds together */
};

static void *counted(void *user, void *memory, size_t old_size, size_t new_size) {
    bench *b = user;
    if (!new_size) free(memory);
    void *p = new_size ? realloc(memory, new_size) : NULL;
    if (new_size && !p) abort();
    __atomic_fetch_add(&b->bytes_out, (int64_t)new_size - (memory ? (int64_t)old_size : 0),
                       __ATOMIC_RELAXED);
    return p;
}

static void note_warning(void *user, beryl_log_level level, const char *line) {
    bench *b = user;
    if (level <= BERYL_LOG_WARNING) snprintf(b->warning, sizeof b->warning, "%s", line);
}

static beryl_log log_of(bench *b) {
    return (beryl_log){note_warning, b};
}

static void copy_file(test *t, const char *from, const char *to) {
    base_heap heap;
    char *data = NULL;
    size_t size = 0;
    base_heap_init(&heap, NULL);
    if (base_file_read(&heap, from, 64 << 20, &data, &size, NULL) != BERYL_OK ||
        base_file_write(to, data, size, NULL) != BERYL_OK)
        test_fail(t, __FILE__, __LINE__, "%s cannot be copied", from);
    base_heap_give(&heap, data, data ? size + 1 : 0);
}

/* Removes a folder and what is in it. */
static void remove_all(const char *path) {
    char command[600];
    snprintf(command, sizeof command, "rm -rf '%s'", path);
    if (system(command)) abort();
}

static void make_folder(bench *b, const char *name) {
    char path[400];
    snprintf(path, sizeof path, "%s/%s", b->folder, name);
    CHECK_INT(b->t, base_folder_make(path, NULL), BERYL_OK);
}

static void set_model(bench *b, const char *name) {
    snprintf(b->model, sizeof b->model, "%s/%s", b->folder, name);
    copy_file(b->t, test_data(b->t, name), b->model);
}

/* Files that nobody finished, in the bench's folder and those in it. */
typedef struct leftovers {
    base_heap heap;
    char path[600], found[600];
} leftovers;

static void look_at(void *user, const char *name, bool is_folder) {
    leftovers *l = user;
    const size_t size = strlen(l->path), n = strlen(name);
    const bool in_tmp = size >= 4 && !strcmp(l->path + size - 4, "/tmp");
    if (size + n + 2 > sizeof l->path) return;
    l->path[size] = '/';
    memcpy(l->path + size + 1, name, n + 1);
    if (in_tmp || strstr(name, ".part") || (n > 2 && !strcmp(name + n - 2, ".c")) ||
        (n > 4 && !strcmp(name + n - 4, ".txt") && strcmp(name, "schedules.txt")))
        snprintf(l->found, sizeof l->found, "%s", l->path);
    if (is_folder) base_folder_list(&l->heap, l->path, look_at, l, NULL);
    l->path[size] = 0;
}

static void check_leftovers(bench *b, const char *when) {
    leftovers l = {0};
    base_heap_init(&l.heap, NULL);
    snprintf(l.path, sizeof l.path, "%s", b->folder);
    base_folder_list(&l.heap, l.path, look_at, &l, NULL);
    if (l.found[0]) test_fail(b->t, __FILE__, __LINE__, "%s: %s is left", when, l.found);
}

/* ---- judging --------------------------------------------------------------------------------- */

/* Is it one line that names the file, or the cause? Where memory or a device is missing there
 * may be neither to blame. */
static bool is_told(beryl_status status, const beryl_error *error, int cause) {
    if (error->code != status || !error->message[0] || strchr(error->message, '\n')) return false;
    return strchr(error->message, '/') || strstr(error->message, ".gguf") ||
           (cause && strstr(error->message, strerror(cause))) || status == BERYL_NO_MEMORY ||
           status == BERYL_NO_DEVICE_MEMORY || status == BERYL_NO_DEVICE;
}

static bool is_expected(beryl_status status) {
    return status == BERYL_IO || status == BERYL_NOT_FOUND || status == BERYL_NO_MEMORY ||
           status == BERYL_NO_DEVICE_MEMORY || status == BERYL_NO_DEVICE || status == BERYL_DEVICE;
}

/* One run, with the n-th call failing. False: nothing did. */
static bool run_one(bench *b, const faults_kind *kind, uint64_t n, const char *want) {
    char when[200];
    beryl_error error = {0};
    if (b->scene->before) b->scene->before(b);
    const int64_t bytes = b->bytes_out;
    const uint32_t files = rig_process_now().files;
    for (int again = 0; again < 2; again++) { /* again: nothing fails, and nothing may be wrong */
        b->answer[0] = 0;
        b->faulty = !again;
        if (!again) faults_begin(kind, n, NULL);
        error = (beryl_error){0};
        const beryl_status status = b->scene->run(b, &error);
        const uint64_t hits = again ? 0 : faults_end(NULL);
        snprintf(when, sizeof when, "%s%s, %s at call %llu (%s)", b->scene->name,
                 again ? " after" : "", kind->name, (unsigned long long)n, faults_where());
        const bool same = status == BERYL_OK && !strcmp(b->answer, want);
        if (status == BERYL_OK && !same)
            test_fail(b->t, __FILE__, __LINE__, "%s: the answer is %s, not %s", when, b->answer,
                      want);
        else if (!same && (again || !hits || kind->harmless))
            test_fail(b->t, __FILE__, __LINE__, "%s: %s: %s", when, beryl_status_name(status),
                      error.message);
        else if (!same && (!is_expected(status) || !is_told(status, &error, kind->error)))
            test_fail(b->t, __FILE__, __LINE__, "%s: %s is told as \"%s\"", when,
                      beryl_status_name(status), error.message);
        if (b->bytes_out != bytes)
            test_fail(b->t, __FILE__, __LINE__, "%s: %lld bytes are not given back", when,
                      (long long)(b->bytes_out - bytes));
        const uint32_t now = rig_process_now().files;
        if (now != files)
            test_fail(b->t, __FILE__, __LINE__, "%s: %u descriptors, and %u were", when, now,
                      files);
        check_leftovers(b, when);
        if (!hits && !again) return false;
    }
    return true;
}

static uint32_t drawn(bench *b, uint32_t most) {
    b->seed = b->seed * 6364136223846793005u + 1442695040888963407u;
    return (uint32_t)(b->seed >> 33) % most;
}

/* How many calls of one kind a run makes. */
static uint64_t count_calls(bench *b, const faults_kind *kind) {
    uint64_t n_call = 0;
    beryl_error error = {0};
    if (b->scene->before) b->scene->before(b);
    faults_begin(kind, UINT64_MAX, NULL);
    const beryl_status status = b->scene->run(b, &error);
    faults_end(&n_call);
    if (status != BERYL_OK)
        test_fail(b->t, __FILE__, __LINE__, "%s: %s", b->scene->name, error.message);
    return n_call;
}

static bool goes_on(bench *b) {
    return !test_failed(b->t) || getenv("BERYL_TEST_SHOW");
}

static void walk(bench *b, const faults_kind *kind, const char *want) {
    const uint64_t n_call = count_calls(b, kind);
    const uint32_t most = b->scene->most,
                   step = most && n_call > most ? (uint32_t)(2 * n_call / most) : 1;
    uint32_t n_run = 0;
    for (uint64_t n = step > 1 ? drawn(b, step) : 0; goes_on(b) && run_one(b, kind, n, want);
         n_run++)
        n += step > 1 ? 1 + drawn(b, step) : 1;
    if (getenv("BERYL_TEST_SHOW"))
        printf("  %s, %s: %llu calls, %u runs\n", b->scene->name, kind->name,
               (unsigned long long)n_call, n_run);
}

/* Where a run takes long: so many, at any call. */
static void draw(bench *b, uint64_t n_call, const char *want) {
    for (uint32_t i = 0; i < b->scene->most && n_call && goes_on(b); i++)
        run_one(b, &kinds[drawn(b, 2)], drawn(b, (uint32_t)n_call), want);
}

static const char *const variables[] = {"XDG_CACHE_HOME", "XDG_DATA_HOME", "TMPDIR", "PATH",
                                        "OLLAMA_MODELS"};
enum { N_VARIABLE = sizeof variables / sizeof *variables };

static void bench_end(bench *b) {
    beryl_session_close(b->session);
    beryl_train_close(b->train);
    beryl_engine_close(b->engine);
    CHECK_INT(b->t, b->bytes_out, 0);
    remove_all(b->folder);
}

static void play(test *t, const scene *s) {
    static char was[N_VARIABLE][4096];
    const char *seed = getenv("BERYL_TEST_SEED");
    bench b = {.t = t,
               .scene = s,
               .allocator = {counted, &b},
               .seed = seed ? strtoull(seed, NULL, 10) : 1};
    char want[sizeof b.answer];
    uint64_t n_call = 0;
    beryl_error error = {0};
    for (int i = 0; i < N_VARIABLE; i++) host_rig_keep(was[i], sizeof was[i], variables[i]);
    snprintf(b.folder, sizeof b.folder, "%s/faults", test_scratch(t));
    make_folder(&b, "tmp");
    make_folder(&b, "cache");
    char path[400];
    snprintf(path, sizeof path, "%s/tmp", b.folder);
    setenv("TMPDIR", path, 1);
    snprintf(path, sizeof path, "%s/cache", b.folder);
    setenv("XDG_CACHE_HOME", path, 1);
    if (s->begin(&b)) {
        if (s->before) s->before(&b);
        b.answer[0] = 0;
        faults_begin(&kinds[0], UINT64_MAX, NULL);
        const beryl_status status = s->run(&b, &error);
        faults_end(&n_call);
        if (status != BERYL_OK) test_fail(t, __FILE__, __LINE__, "%s: %s", s->name, error.message);
        memcpy(want, b.answer, sizeof want);
        for (int i = 0; i < N_KIND && !s->is_slow && goes_on(&b); i++) walk(&b, &kinds[i], want);
        if (s->is_slow) draw(&b, n_call, want);
        if (test_failed(t)) printf("  with BERYL_TEST_SEED=%s\n", seed ? seed : "1");
    }
    bench_end(&b);
    for (int i = 0; i < N_VARIABLE; i++) host_rig_put(variables[i], was[i]);
}

/* ---- engines --------------------------------------------------------------------------------- */

/* Opens and loads; *engine is there to be closed even if it failed. */
static beryl_status load(bench *b, beryl_engine_options options, beryl_engine **engine,
                         beryl_error *error) {
    beryl_task *task = NULL;
    options.size = sizeof options;
    options.allocator = b->allocator;
    options.log = log_of(b);
    if (!options.model && !options.source) options.model = b->model;
    if (!options.context) options.context = 64;
    beryl_status status = beryl_engine_open(&options, engine, error);
    if (status == BERYL_OK) status = beryl_engine_load(*engine, &task, error);
    return status == BERYL_OK ? model_finish(task, error, NULL) : status;
}

static const int32_t prompt[] = {2, 10, 11, 12, 13};

static void add_logits(void *user, size_t position, const float *logits) {
    (void)position;
    uint64_t *hash = user;
    *hash = base_hash(logits, 100 * sizeof *logits, *hash);
}

/* The next tokens, and a hash of logits that shows any other number, added to the answer as
 * text. */
static beryl_status answer(bench *b, beryl_session *session, beryl_error *error) {
    beryl_task *task = NULL;
    beryl_event event;
    const beryl_generate_options greedy = model_greedy(3);
    beryl_status status = beryl_session_generate(session, prompt, sizeof prompt / sizeof *prompt,
                                                 &greedy, &task, error);
    if (status != BERYL_OK) return status;
    while ((status = beryl_wait(task, &event)) == BERYL_EVENT) {
        faults_step();
        const size_t n = strlen(b->answer);
        if (event.kind == BERYL_EVENT_TOKEN)
            snprintf(b->answer + n, sizeof b->answer - n, " %d", event.token);
    }
    if (status != BERYL_OK) *error = *beryl_task_error(task);
    beryl_task_close(task);
    uint64_t hash = 0;
    if (status == BERYL_OK)
        status = beryl_session_logits(session, prompt, sizeof prompt / sizeof *prompt, 0, 0,
                                      add_logits, &hash, &task, error);
    else return status;
    if (status == BERYL_OK) status = model_finish(task, error, NULL);
    const size_t n = strlen(b->answer);
    snprintf(b->answer + n, sizeof b->answer - n, ", %016llx", (unsigned long long)hash);
    return status;
}

static beryl_status load_and_answer(bench *b, beryl_engine_options options, beryl_error *error) {
    beryl_engine *engine = NULL;
    beryl_session *session = NULL;
    beryl_status status = load(b, options, &engine, error);
    if (status == BERYL_OK) status = beryl_session_open(engine, NULL, &session, error);
    faults_step();
    if (status == BERYL_OK) status = answer(b, session, error);
    beryl_session_close(session);
    beryl_engine_close(engine);
    return status;
}

static bool begin_model(bench *b) {
    set_model(b, "e2b-q4_0.gguf");
    return !test_failed(b->t);
}

static beryl_status run_vocabulary(bench *b, beryl_error *error) {
    beryl_engine *engine = NULL;
    beryl_engine_info info;
    beryl_status status =
        load(b, (beryl_engine_options){.vocabulary_only = true, .no_cache = true}, &engine, error);
    if (status == BERYL_OK) status = beryl_engine_info_get(engine, &info);
    if (status == BERYL_OK) snprintf(b->answer, sizeof b->answer, "%u tokens", info.n_vocab);
    beryl_engine_close(engine);
    return status;
}

static beryl_status run_reference(bench *b, beryl_error *error) {
    return load_and_answer(b, (beryl_engine_options){.device = "reference", .no_cache = true},
                           error);
}

static beryl_status run_dummy(bench *b, beryl_error *error) {
    return load_and_answer(b, (beryl_engine_options){.device = "dummy", .no_cache = true}, error);
}

/* So little memory that the table of per-layer embeddings stays in the file, from which each
 * step reads its rows. */
static bool begin_rows(bench *b) {
    beryl_error error = {0};
    beryl_stats stats = {0};
    beryl_engine *engine = NULL;
    if (!begin_model(b)) return false;
    if (load(b, (beryl_engine_options){.device = "dummy", .no_cache = true}, &engine, &error) !=
        BERYL_OK)
        test_fail(b->t, __FILE__, __LINE__, "%s", error.message);
    else beryl_engine_stats(engine, &stats);
    beryl_engine_close(engine);
    b->memory = stats.weight_bytes + stats.kv_bytes - 1;
    return !test_failed(b->t);
}

static beryl_status run_rows(bench *b, beryl_error *error) {
    return load_and_answer(
        b, (beryl_engine_options){.device = "dummy", .no_cache = true, .memory = b->memory}, error);
}

/* ---- sessions in files ----------------------------------------------------------------------- */

static beryl_status save(bench *b, beryl_error *error) {
    beryl_task *task = NULL;
    const beryl_status status = beryl_session_save(b->session, b->path, &task, error);
    return status == BERYL_OK ? model_finish(task, error, NULL) : status;
}

static bool begin_session(bench *b) {
    beryl_error error = {0};
    if (!begin_model(b)) return false;
    snprintf(b->path, sizeof b->path, "%s/kept.session", b->folder);
    beryl_status status = load(b, (beryl_engine_options){.device = "reference", .no_cache = true},
                               &b->engine, &error);
    if (status == BERYL_OK) status = beryl_session_open(b->engine, NULL, &b->session, &error);
    if (status == BERYL_OK) status = answer(b, b->session, &error);
    if (status == BERYL_OK) status = save(b, &error);
    if (status != BERYL_OK) test_fail(b->t, __FILE__, __LINE__, "%s", error.message);
    return status == BERYL_OK;
}

/* What was saved before stays until what is saved now is whole. */
static beryl_status run_save(bench *b, beryl_error *error) {
    if (!b->faulty && !base_file_exists(b->path))
        snprintf(b->answer, sizeof b->answer, "what was there before is gone");
    return save(b, error);
}

static void before_save(bench *b) {
    CHECK_INT(b->t, base_file_write(b->path, "old", 3, NULL), BERYL_OK);
}

static beryl_status run_restore(bench *b, beryl_error *error) {
    beryl_task *task = NULL;
    const int32_t *tokens;
    size_t n;
    beryl_status status = beryl_session_rewind(b->session, 0, error);
    if (status == BERYL_OK) status = beryl_session_restore(b->session, b->path, &task, error);
    if (status == BERYL_OK) status = model_finish(task, error, NULL);
    beryl_session_tokens(b->session, &tokens, &n);
    if (status == BERYL_OK)
        snprintf(b->answer, sizeof b->answer, "%zu tokens, the last is %d", n,
                 n ? tokens[n - 1] : -1);
    else CHECK_INT(b->t, n, 0);
    return status;
}

/* ---- adapters in other forms, and folded into models ----------------------------------------- */

/* Written means all of it. */
static void say_written(bench *b, const char *path, off_t size, beryl_status status) {
    struct stat about;
    if (status != BERYL_OK) return;
    snprintf(b->answer, sizeof b->answer, "written");
    if (!b->faulty && (stat(path, &about) || about.st_size != size))
        snprintf(b->answer, sizeof b->answer, "%s has %lld bytes", path, (long long)about.st_size);
}

static bool begin_adapter(bench *b) {
    set_model(b, "e2b-f32.gguf");
    snprintf(b->path, sizeof b->path, "%s/adapter.gguf", b->folder);
    copy_file(b->t, test_data(b->t, "lora/e2b-f32.part.gguf"), b->path);
    return !test_failed(b->t);
}

static beryl_status run_convert(bench *b, beryl_error *error) {
    char folder[400], file[500];
    snprintf(folder, sizeof folder, "%s/peft", b->folder);
    snprintf(file, sizeof file, "%s/adapter_model.safetensors", folder);
    beryl_convert_options o = {
        .size = sizeof o, .from = b->path, .to = folder, .form = "peft", .allocator = b->allocator};
    beryl_status status = beryl_adapter_convert(&o, error);
    say_written(b, file, 55248, status);
    if (status != BERYL_OK) return status;
    snprintf(file, sizeof file, "%s/rullama.safetensors", b->folder);
    o.to = file;
    o.form = "rullama";
    status = beryl_adapter_convert(&o, error);
    say_written(b, file, 54520, status);
    return status;
}

static beryl_status run_merge(bench *b, beryl_error *error) {
    char out[400];
    const char *adapter = b->path;
    snprintf(out, sizeof out, "%s/merged.gguf", b->folder);
    const beryl_merge_options o = {.size = sizeof o,
                                   .model = b->model,
                                   .out = out,
                                   .adapters = &adapter,
                                   .n_adapter = 1,
                                   .allocator = b->allocator,
                                   .log = log_of(b)};
    const beryl_status status = beryl_merge(&o, error);
    say_written(b, out, 2442912, status);
    return status;
}

/* ---- a training ------------------------------------------------------------------------------ */

static bool begin_train(bench *b) {
    static const char rows[] = "{\"tokens\":[2,10,11,12]}\n";
    char path[400];
    beryl_error error = {0};
    set_model(b, "e2b-f32.gguf");
    snprintf(b->path, sizeof b->path, "%s/checkpoint", b->folder);
    snprintf(path, sizeof path, "%s/rows.jsonl", b->folder);
    CHECK_INT(b->t, base_file_write(path, rows, sizeof rows - 1, NULL), BERYL_OK);
    const beryl_train_options o = {.size = sizeof o, .data = path, .targets = "q", .rank = 2};
    beryl_status status = load(b, (beryl_engine_options){.device = "reference", .no_cache = true},
                               &b->engine, &error);
    struct stat about = {0};
    if (status == BERYL_OK) status = beryl_train_open(b->engine, &o, &b->train, &error);
    if (status == BERYL_OK) status = beryl_train_checkpoint(b->train, b->path, &error);
    if (status == BERYL_OK && !stat(b->path, &about)) b->memory = (uint64_t)about.st_size;
    CHECK(b->t, b->memory > 39000); /* two moments and a value of each number */
    if (status != BERYL_OK) test_fail(b->t, __FILE__, __LINE__, "%s", error.message);
    return status == BERYL_OK;
}

/* What was saved before stays until what is saved now is whole. */
static beryl_status run_train(bench *b, beryl_error *error) {
    char folder[400], file[500];
    const bool was_there = b->faulty || base_file_exists(b->path);
    snprintf(folder, sizeof folder, "%s/trained", b->folder);
    snprintf(file, sizeof file, "%s/adapter_model.safetensors", folder);
    beryl_status status = beryl_train_save(b->train, folder, NULL, error);
    say_written(b, file, 13768, status);
    if (status != BERYL_OK || strcmp(b->answer, "written") != 0) return status;
    status = beryl_train_checkpoint(b->train, b->path, error);
    say_written(b, b->path, (off_t)b->memory, status);
    if (!was_there) snprintf(b->answer, sizeof b->answer, "what was there before is gone");
    return status;
}

/* ---- models by name -------------------------------------------------------------------------- */

static const char digest[] = "0123456789abcdef0123456789abcdef0123456789abcdef0123456789abcdef";

/* One in Beryl's folder, one in Ollama's. */
static bool begin_names(bench *b) {
    char path[600], text[400];
    base_heap heap;
    base_heap_init(&heap, NULL);
    make_folder(b, "data/beryl/models");
    make_folder(b, "ollama/blobs");
    make_folder(b, "ollama/manifests/here/ns/small");
    set_model(b, "e2b-q4_0.gguf");
    snprintf(path, sizeof path, "%s/data/beryl/models/own.gguf", b->folder);
    copy_file(b->t, b->model, path);
    snprintf(path, sizeof path, "%s/ollama/blobs/sha256-%s", b->folder, digest);
    copy_file(b->t, b->model, path);
    snprintf(path, sizeof path, "%s/ollama/manifests/here/ns/small/latest", b->folder);
    snprintf(text, sizeof text,
             "{\"layers\":[{\"mediaType\":\"application/"
             "vnd.ollama.image.model\",\"digest\":\"sha256:%s\"}]}",
             digest);
    CHECK_INT(b->t, base_file_write(path, text, strlen(text), NULL), BERYL_OK);
    snprintf(path, sizeof path, "%s/data", b->folder);
    setenv("XDG_DATA_HOME", path, 1);
    snprintf(path, sizeof path, "%s/ollama", b->folder);
    setenv("OLLAMA_MODELS", path, 1);
    return !test_failed(b->t);
}

static beryl_status run_names(bench *b, beryl_error *error) {
    static const char *const names[] = {"own", "here/ns/small"};
    for (int i = 0; i < 2; i++) {
        beryl_engine *engine = NULL;
        beryl_engine_info info = {0};
        beryl_status status = load(
            b, (beryl_engine_options){.model = names[i], .vocabulary_only = true, .no_cache = true},
            &engine, error);
        if (status == BERYL_OK) status = beryl_engine_info_get(engine, &info);
        const size_t n = strlen(b->answer);
        if (status == BERYL_OK)
            snprintf(b->answer + n, sizeof b->answer - n, "%s of %u ", names[i], info.n_vocab);
        beryl_engine_close(engine);
        if (status != BERYL_OK) return status;
    }
    return BERYL_OK;
}

static void ignore_model(void *user, const beryl_model_info *info) {
    (void)user, (void)info;
}

/* A list shows what can be read. */
static beryl_status run_list(bench *b, beryl_error *error) {
    snprintf(b->answer, sizeof b->answer, "listed");
    return beryl_models(ignore_model, NULL, error);
}

/* ---- what is kept of devices ----------------------------------------------------------------- */

static bool begin_nothing(bench *b) {
    (void)b;
    return true;
}

static void before_cold(bench *b) {
    char path[400];
    snprintf(path, sizeof path, "%s/cache/beryl", b->folder);
    remove_all(path);
}

/* A compiler that takes no time: it gives what the real one gave. */
static bool begin_compiler(bench *b) {
    rig r;
    char path[600], text[1500];
    if (!rig_open(b->t, &r, "host")) return false;
    rig_close(b->t, &r);
    make_folder(b, "bin");
    snprintf(path, sizeof path, "%s/bin/kernel.c", b->folder);
    const char *kernel = rig_text(DEVICE_C, "seven", 1, 0, "b0[0] = 7;");
    CHECK_INT(b->t, base_file_write(path, kernel, strlen(kernel), NULL), BERYL_OK);
    snprintf(text, sizeof text,
             "cd '%s/bin' && cc -shared -fPIC -w -o kernel.so kernel.c && rm kernel.c", b->folder);
    CHECK_INT(b->t, system(text), 0);
    snprintf(path, sizeof path, "%s/bin/cc", b->folder);
    snprintf(text, sizeof text,
             "#!/bin/sh\nwhile [ $# -gt 0 ]; do\n    [ \"$1\" = -o ] && out=$2\n    "
             "shift\ndone\nexec cp '%s/bin/kernel.so' \"$out\"\n",
             b->folder);
    CHECK_INT(b->t, base_file_write(path, text, strlen(text), NULL), BERYL_OK);
    snprintf(text, sizeof text, "chmod 700 '%s'", path);
    CHECK_INT(b->t, system(text), 0);
    snprintf(text, sizeof text, "%s/bin:/usr/bin:/bin", b->folder);
    setenv("PATH", text, 1);
    return !test_failed(b->t);
}

/* One kernel on a fresh device. */
static beryl_status run_compiled(bench *b, beryl_error *error) {
    rig r = {0};
    device_program program = {0};
    device_buffer out = {0};
    device_bindings bindings = {0};
    device_ticket ticket = 0;
    uint32_t y[16] = {0};
    const beryl_log log = log_of(b);
    const char *text = rig_text(DEVICE_C, "seven", 1, 0, "b0[0] = 7;");
    const device_program_desc desc = {.language = DEVICE_C,
                                      .source = text,
                                      .source_size = strlen(text),
                                      .entry = "seven",
                                      .label = "seven",
                                      .n_binding = 1,
                                      .access = {DEVICE_READ_WRITE},
                                      .workgroup = {64, 1, 1}};
    base_heap_init(&r.heap, &b->allocator);
    beryl_status status = device_open(&r.heap, &log, "host", &r.d, &r.error);
    if (status == BERYL_OK) status = device_program_make(r.d, &desc, &program, &r.error);
    if (status == BERYL_OK) status = rig_compiled(&r, program);
    if (status == BERYL_OK) status = device_buffer_make(r.d, sizeof y, "out", &out, &r.error);
    if (status == BERYL_OK)
        status = device_bindings_make(r.d, program, &(device_binding){.buffer = out}, 1, &bindings,
                                      &r.error);
    const device_command list[] = {rig_dispatch(program, bindings, 1, 0),
                                   rig_range(DEVICE_FETCH, out, 0, sizeof y)};
    if (status == BERYL_OK) status = rig_submit(&r, list, 2, NULL, 0, &ticket);
    if (status == BERYL_OK) status = rig_take(&r, ticket, 0, y, sizeof y);
    device_close(r.d);
    snprintf(b->answer, sizeof b->answer, "%u", y[0]);
    *error = r.error;
    error->code = status;
    return status;
}

/* One form, kept and found again. */
static bool begin_tuned(bench *b) {
    const engine_tuned one = {.role = "q",
                              .type = TYPE_Q4_K,
                              .dim = {1, 8, 256},
                              .n = 1,
                              .form.form = {.tuned = true, .wg = 64},
                              .before = 2,
                              .after = 1};
    beryl_error error = {0};
    if (!begin_model(b)) return false;
    if (load(b, (beryl_engine_options){.device = "dummy"}, &b->engine, &error) != BERYL_OK)
        return test_fail(b->t, __FILE__, __LINE__, "%s", error.message), false;
    engine_tuned *to = base_vec_add(&b->engine->heap, &b->engine->tuned);
    if (to) *to = one;
    return to != NULL;
}

static beryl_status run_tuned(bench *b, beryl_error *error) {
    beryl_engine *e = b->engine;
    e->tuned.count = 1; /* as it was, whatever was read */
    const beryl_status status = engine_tuned_keep(e, error);
    engine_tuned_recall(e); /* what cannot be read is as if it were not there */
    if (status == BERYL_OK && e->tuned.count != 1 && !b->faulty)
        snprintf(b->answer, sizeof b->answer, "%zu forms", e->tuned.count);
    return status;
}

/* ---- what tuning keeps of kernels between products ------------------------------------------- */

static beryl_status estimated(void *user, const uint32_t *numbers, double *seconds,
                              beryl_error *error) {
    (void)user, (void)error;
    *seconds = numbers[0];
    return BERYL_OK;
}

static ir_choosing choosing(uint64_t key, ir_cache *cache) {
    return (ir_choosing){.key = key,
                         .n = 1,
                         .rule = {2},
                         .knobs = {{.at = 0, .n = 3, .values = {1, 2, 3}}},
                         .cache = cache,
                         .estimate = estimated,
                         .time = estimated};
}

/* Two results, of which one is older. */
static beryl_status run_schedules(bench *b, beryl_error *error) {
    base_heap heap;
    uint32_t found[2] = {0};
    const beryl_log log = log_of(b);
    base_heap_init(&heap, &b->allocator);
    ir_cache *cache = ir_cache_open(&heap, b->path, &log);
    if (!cache) return base_fail(error, BERYL_NO_MEMORY, "no memory");
    ir_choosing older = choosing(1, cache), newer = choosing(2, cache);
    if (!ir_tuned_numbers(&older, &found[0]) && !b->faulty)
        snprintf(b->answer, sizeof b->answer, "what was kept before is gone;");
    beryl_status status = ir_tune_numbers(&heap, &older, &found[0], error);
    if (status == BERYL_OK) status = ir_tune_numbers(&heap, &newer, &found[1], error);
    ir_cache_close(cache);
    const size_t n = strlen(b->answer);
    snprintf(b->answer + n, sizeof b->answer - n, "%u %u", found[0], found[1]);
    return status;
}

static void before_schedules(bench *b) {
    base_heap heap;
    uint32_t found;
    base_heap_init(&heap, NULL);
    snprintf(b->path, sizeof b->path, "%s/cache/schedules.txt", b->folder);
    remove(b->path);
    ir_cache *cache = ir_cache_open(&heap, b->path, NULL);
    const ir_choosing older = choosing(1, cache);
    CHECK_INT(b->t, ir_tune_numbers(&heap, &older, &found, NULL), BERYL_OK);
    ir_cache_close(cache);
}

/* ---- a whole engine that compiles ------------------------------------------------------------ */

/* Load, answer, tune. Stopped early, tuning keeps what it has found by then. */
static beryl_status run_host(bench *b, beryl_error *error) {
    const beryl_tune_options options = {.size = sizeof options, .tries = 1};
    beryl_engine *engine = NULL;
    beryl_session *session = NULL;
    beryl_task *task = NULL;
    int n_event = 0;
    beryl_status status = load(b, (beryl_engine_options){.device = "host"}, &engine, error);
    if (status == BERYL_OK) status = beryl_session_open(engine, NULL, &session, error);
    if (status == BERYL_OK) status = answer(b, session, error);
    beryl_session_close(session);
    if (status == BERYL_OK) status = beryl_engine_tune(engine, &options, &task, error);
    if (task) {
        while ((status = beryl_wait(task, NULL)) == BERYL_EVENT)
            if (++n_event == 3) beryl_cancel(task);
        if (status == BERYL_CANCELLED) status = BERYL_OK;
        else *error = *beryl_task_error(task);
    }
    beryl_task_close(task);
    beryl_engine_close(engine);
    return status;
}

/* What it compiles is kept from here on. */
static bool begin_host(bench *b) {
    beryl_error error = {0};
    if (!begin_model(b)) return false;
    const beryl_status status = run_host(b, &error);
    if (status == BERYL_NO_DEVICE) test_skip(b->t, "%s", error.message);
    else if (status != BERYL_OK) test_fail(b->t, __FILE__, __LINE__, "%s", error.message);
    return status == BERYL_OK;
}

/* What was found of kernels and forms is found anew. */
static void before_host(bench *b) {
    char command[600];
    snprintf(command, sizeof command, "rm -f '%s'/cache/beryl/*.json", b->folder);
    if (system(command)) abort();
}

/* ---- files that change meanwhile ------------------------------------------------------------- */

enum { MEETS = FAULTS_OPEN | FAULTS_READ | FAULTS_LOOK | FAULTS_MAP | FAULTS_STEP };
typedef enum change {
    CHANGE_CUT,
    CHANGE_EMPTIED,
    CHANGE_GROWN,
    CHANGE_OTHER,
    CHANGE_HEAD,
    CHANGE_REPLACED,
    CHANGE_GONE,
    N_CHANGE
} change;
static const char *const change_names[N_CHANGE] = {
    "cut in half", "emptied", "longer", "of other numbers", "of another head", "replaced", "gone"};

typedef struct versions {
    bench b;
    const char *path;  /* what changes */
    uint8_t *bytes[2]; /* [size] one version and another, equal but in their numbers */
    size_t size, head; /* head: where the numbers begin, at least */
    char answers[2][256];
    change how;
} versions;

static void write_at(versions *v, long at, const void *data, size_t size) {
    FILE *file = fopen(v->path, "r+b");
    if (!file || fseek(file, at, SEEK_SET) || fwrite(data, 1, size, file) != size || fclose(file))
        abort();
}

/* The first version, and as if it had lain there for long: else a change in the same tick of the
 * clock would not be seen. */
static void version_put(versions *v) {
    const struct timespec then[2] = {{.tv_sec = 1000000000}, {.tv_sec = 1000000000}};
    if (base_file_write(v->path, v->bytes[0], v->size, NULL) != BERYL_OK ||
        utimensat(AT_FDCWD, v->path, then, 0))
        abort();
}

static void version_change(void *user) {
    versions *v = user;
    static const uint8_t more[4096];
    switch (v->how) {
    case CHANGE_CUT:
    case CHANGE_EMPTIED:
        if (truncate(v->path, v->how == CHANGE_CUT ? (off_t)(v->size / 2) : 0)) abort();
        break;
    case CHANGE_GROWN: write_at(v, (long)v->size, more, sizeof more); break;
    case CHANGE_OTHER: write_at(v, 0, v->bytes[1], v->size); break;
    case CHANGE_HEAD: /* counts and lengths of GGUF's head, and some of what they count */
        memset(v->bytes[1] + 8, 0xff, 200);
        write_at(v, 0, v->bytes[1], v->head);
        memcpy(v->bytes[1], v->bytes[0], v->head);
        break;
    case CHANGE_REPLACED:
        if (base_file_write(v->path, v->bytes[1], v->size, NULL) != BERYL_OK) abort();
        break;
    case CHANGE_GONE:
        if (unlink(v->path)) abort();
        break;
    case N_CHANGE: break;
    }
}

static uint8_t *read_all(test *t, const char *path, size_t *size) {
    base_heap heap;
    char *data = NULL;
    base_heap_init(&heap, NULL);
    if (base_file_read(&heap, path, 64 << 20, &data, size, NULL) != BERYL_OK)
        test_fail(t, __FILE__, __LINE__, "%s cannot be read", path);
    return (uint8_t *)data; /* the heap's memory is malloc's */
}

/* The same with other numbers: bytes of weights behind the head change places within their
 * blocks. */
static void version_make(test *t, versions *v) {
    v->bytes[0] = read_all(t, v->b.model, &v->size);
    v->bytes[1] = read_all(t, v->b.model, &v->size);
    v->head = v->size / 2;
    /* Q4_0: a quant or the lowest bit of a scale */
    for (size_t i = v->head; v->bytes[1] && i < v->size; i++) v->bytes[1][i] ^= 1;
}

static beryl_status version_run(versions *v, beryl_error *error) {
    v->b.answer[0] = 0;
    return v->b.scene->run(&v->b, error);
}

static bool is_answer(const versions *v) {
    return !strcmp(v->b.answer, v->answers[0]) || !strcmp(v->b.answer, v->answers[1]);
}

/* The n-th call, or the n-th step of an answer, finds another file. False: there are fewer. */
static bool change_one(versions *v, uint64_t n) {
    const faults_kind kind = {.calls = MEETS, .instead = version_change};
    beryl_error error = {0};
    test *t = v->b.t;
    version_put(v);
    const uint32_t files = rig_process_now().files;
    faults_begin(&kind, n, v);
    const beryl_status status = version_run(v, &error);
    const uint64_t hits = faults_end(NULL);
    if (status == BERYL_OK && !is_answer(v))
        test_fail(t, __FILE__, __LINE__, "%s at call %llu (%s): %s is the answer of no version",
                  change_names[v->how], (unsigned long long)n, faults_where(), v->b.answer);
    if (status != BERYL_OK && status != BERYL_IO && status != BERYL_BAD_FILE &&
        status != BERYL_NOT_FOUND && status != BERYL_UNSUPPORTED && status != BERYL_NO_MEMORY &&
        status != BERYL_BAD_INPUT)
        test_fail(t, __FILE__, __LINE__, "%s at call %llu (%s): %s: %s", change_names[v->how],
                  (unsigned long long)n, faults_where(), beryl_status_name(status), error.message);
    if (status != BERYL_OK && (!is_told(status, &error, 0) || !hits))
        test_fail(t, __FILE__, __LINE__, "%s at call %llu (%s): %s is told as \"%s\"",
                  change_names[v->how], (unsigned long long)n, faults_where(),
                  beryl_status_name(status), error.message);
    CHECK_INT(t, rig_process_now().files, files);
    return hits > 0;
}

static void change_everywhere(test *t, const scene *s) {
    const char *seed = getenv("BERYL_TEST_SEED");
    versions v = {.b = {.t = t,
                        .scene = s,
                        .allocator = {counted, &v.b},
                        .seed = seed ? strtoull(seed, NULL, 10) : 1}};
    beryl_error error = {0};
    snprintf(v.b.folder, sizeof v.b.folder, "%s/changes", test_scratch(t));
    make_folder(&v.b, "");
    if (s->begin(&v.b)) {
        v.path = v.b.path[0] ? v.b.path : v.b.model;
        if (v.b.path[0]) snprintf(v.b.model, sizeof v.b.model, "%s", v.b.path);
        version_make(t, &v);
        for (int i = 0; i < 2; i++) {
            if (base_file_write(v.path, v.bytes[i], v.size, NULL) != BERYL_OK) abort();
            const beryl_status status = version_run(&v, &error);
            if (status != BERYL_OK && (i == 0 || v.b.path[0] == 0))
                test_fail(t, __FILE__, __LINE__, "%s", error.message);
            snprintf(v.answers[i], sizeof v.answers[i], "%s",
                     status == BERYL_OK ? v.b.answer : "none");
        }
        /* which computes nothing */
        CHECK(t, strcmp(v.answers[0], v.answers[1]) != 0 || s->run == run_rows);
        const faults_kind none = {.calls = MEETS};
        uint64_t n_call = 0;
        version_put(&v);
        faults_begin(&none, UINT64_MAX, NULL);
        CHECK_INT(t, version_run(&v, &error), BERYL_OK);
        faults_end(&n_call);
        const uint32_t step = s->most && n_call > s->most ? (uint32_t)(2 * n_call / s->most) : 1;
        for (v.how = 0; v.how < N_CHANGE; v.how++) {
            uint32_t n_run = 0;
            for (uint64_t n = step > 1 ? drawn(&v.b, step) : 0; goes_on(&v.b) && change_one(&v, n);
                 n_run++)
                n += step > 1 ? 1 + drawn(&v.b, step) : 1;
            if (getenv("BERYL_TEST_SHOW"))
                printf("  %s, %s: %llu calls, %u runs\n", s->name, change_names[v.how],
                       (unsigned long long)n_call, n_run);
        }
        if (test_failed(t)) printf("  with BERYL_TEST_SEED=%s\n", seed ? seed : "1");
    }
    free(v.bytes[0]);
    free(v.bytes[1]);
    bench_end(&v.b);
}

/* ---- sources that lie ------------------------------------------------------------------------ */

typedef enum lie {
    LIE_AGAIN,
    LIE_OTHER,
    LIE_NOISE,
    LIE_ONES,
    LIE_FAILS,
    LIE_FAILS_ONCE,
    N_LIE
} lie;
static const char *const lie_names[N_LIE] = {"other bytes for what was read before",
                                             "other bytes from then on",
                                             "noise from then on",
                                             "ones from then on",
                                             "errors from then on",
                                             "an error once"};

typedef struct liar {
    versions *v;
    lie how;
    uint64_t n, n_read;
    uint8_t *seen; /* [size] was the byte given out? */
    uint64_t noise;
} liar;

static beryl_status liar_read(void *user, uint64_t offset, void *to, size_t size) {
    liar *l = user;
    uint8_t *out = to;
    const bool now = l->n_read++ >= l->n;
    if (now && (l->how == LIE_FAILS || (l->how == LIE_FAILS_ONCE && l->n_read == l->n + 1)))
        return BERYL_IO;
    memcpy(out, l->v->bytes[now && l->how == LIE_OTHER] + offset, size);
    if (now && l->how == LIE_ONES) memset(out, 0xff, size);
    for (size_t i = 0; now && l->how == LIE_NOISE && i < size; i++)
        out[i] = (uint8_t)((l->noise = l->noise * 6364136223846793005u + 1) >> 56);
    for (size_t i = 0; l->how == LIE_AGAIN && i < size; i++) {
        if (l->seen[offset + i]) out[i] = l->v->bytes[1][offset + i];
        l->seen[offset + i] = 1;
    }
    return BERYL_OK;
}

static beryl_status liar_run(liar *l, const char *on, beryl_error *error) {
    const beryl_source source = {.size = l->v->size, .user = l, .read = liar_read};
    memset(l->seen, 0, l->v->size);
    l->n_read = 0;
    l->v->b.answer[0] = 0;
    return load_and_answer(
        &l->v->b,
        (beryl_engine_options){
            .source = &source, .device = on, .no_cache = true, .memory = l->v->b.memory},
        error);
}

/* From the n-th read on, for about `most` of all n: the load or the answer fails, or it goes on.
 * Where only what is read twice changes, the numbers are those of the first time. */
static void lie_everywhere(test *t, const char *on, bool rows, uint32_t most) {
    const char *seed = getenv("BERYL_TEST_SEED");
    versions v = {
        .b = {.t = t, .allocator = {counted, &v.b}, .seed = seed ? strtoull(seed, NULL, 10) : 1}};
    liar l = {.v = &v};
    char want[sizeof v.b.answer];
    beryl_error error = {0};
    snprintf(v.b.folder, sizeof v.b.folder, "%s/lies", test_scratch(t));
    make_folder(&v.b, "");
    if (rows ? begin_rows(&v.b) : begin_model(&v.b)) {
        version_make(t, &v);
        l.seen = calloc(1, v.size);
        if (!l.seen) abort();
        l.n = UINT64_MAX;
        CHECK_INT(t, liar_run(&l, on, &error), BERYL_OK);
        memcpy(want, v.b.answer, sizeof want);
        const uint64_t n_read = l.n_read;
        const uint32_t step = (uint32_t)(2 * n_read / most) + 1;
        for (l.how = 0; l.how < N_LIE; l.how++) {
            for (l.n = drawn(&v.b, 4); l.n < n_read && goes_on(&v.b);
                 l.n += 1 + drawn(&v.b, l.n < 4 ? 2 : step)) {
                l.noise = v.b.seed;
                const beryl_status status = liar_run(&l, on, &error);
                if (status == BERYL_OK && l.how == LIE_AGAIN && strcmp(v.b.answer, want))
                    test_fail(t, __FILE__, __LINE__, "%s is the answer, not %s", v.b.answer, want);
                if (status == BERYL_OK && (l.how == LIE_FAILS || l.how == LIE_FAILS_ONCE))
                    test_fail(t, __FILE__, __LINE__, "read %llu failed, and nobody says so",
                              (unsigned long long)l.n);
                if (status == BERYL_MISUSE || status == BERYL_PENDING ||
                    (status != BERYL_OK && !error.message[0]))
                    test_fail(t, __FILE__, __LINE__, "%s from read %llu on: %s: \"%s\"",
                              lie_names[l.how], (unsigned long long)l.n, beryl_status_name(status),
                              error.message);
                CHECK_INT(t, v.b.bytes_out, 0);
                if (l.how == LIE_AGAIN) break; /* no n */
            }
        }
        free(l.seen);
        if (test_failed(t)) printf("  with BERYL_TEST_SEED=%s\n", seed ? seed : "1");
    }
    free(v.bytes[0]);
    free(v.bytes[1]);
    bench_end(&v.b);
}

/* A saved session from a source that says something else each time: refused, or as it was saved. */
static void lie_restored(test *t) {
    const scene s = {"restore", begin_session, NULL, run_restore, 0, false};
    versions v = {.b = {.t = t, .scene = &s, .allocator = {counted, &v.b}, .seed = 1}};
    liar l = {.v = &v};
    beryl_error error = {0};
    char want[sizeof v.b.answer];
    snprintf(v.b.folder, sizeof v.b.folder, "%s/lies", test_scratch(t));
    make_folder(&v.b, "");
    if (begin_session(&v.b)) {
        CHECK_INT(t, run_restore(&v.b, &error), BERYL_OK);
        memcpy(want, v.b.answer, sizeof want);
        snprintf(v.b.model, sizeof v.b.model, "%s", v.b.path);
        version_make(t, &v);
        l.seen = calloc(1, v.size);
        if (!l.seen) abort();
        bool met = true;
        for (l.how = 0; l.how < N_LIE; l.how++) {
            met = true;
            for (l.n = 0; met && goes_on(&v.b); l.n++) {
                const beryl_source source = {.size = v.size, .user = &l, .read = liar_read};
                beryl_task *task = NULL;
                const int32_t *tokens;
                size_t n_token;
                memset(l.seen, 0, v.size);
                l.n_read = 0;
                beryl_status status = beryl_session_rewind(v.b.session, 0, &error);
                if (status == BERYL_OK)
                    status = beryl_session_restore_from(v.b.session, &source, &task, &error);
                if (status == BERYL_OK) status = model_finish(task, &error, NULL);
                met = l.n_read > l.n && l.how != LIE_AGAIN;
                beryl_session_tokens(v.b.session, &tokens, &n_token);
                if (status == BERYL_OK) {
                    snprintf(v.b.answer, sizeof v.b.answer, "%zu tokens, the last is %d", n_token,
                             n_token ? tokens[n_token - 1] : -1);
                    CHECK_TEXT(t, v.b.answer, want);
                    if (met)
                        test_fail(t, __FILE__, __LINE__, "%s from read %llu on: nobody says so",
                                  lie_names[l.how], (unsigned long long)l.n);
                } else {
                    CHECK_INT(t, n_token, 0);
                    CHECK(t, status == BERYL_IO || status == BERYL_BAD_FILE ||
                                 status == BERYL_BAD_INPUT || status == BERYL_UNSUPPORTED ||
                                 status == BERYL_CONTEXT_FULL);
                    CHECK(t, met && error.message[0]);
                }
            }
        }
        free(l.seen);
    }
    free(v.bytes[0]);
    free(v.bytes[1]);
    bench_end(&v.b);
}

void test_faults(test *t) {
    const scene scenes[] = {
        {"load-of-a-vocabulary", begin_model, NULL, run_vocabulary, 0, false},
        {"load-and-answer-reference", begin_model, NULL, run_reference, 16, false},
        {"load-and-answer-dummy", begin_model, NULL, run_dummy, 3, false},
        {"rows-that-stay-in-the-file", begin_rows, NULL, run_rows, 3, false},
        {"save", begin_session, before_save, run_save, 0, false},
        {"restore", begin_session, NULL, run_restore, 0, false},
        {"convert-an-adapter", begin_adapter, NULL, run_convert, 0, false},
        {"merge-an-adapter", begin_adapter, NULL, run_merge, 16, false},
        {"save-a-training", begin_train, before_save, run_train, 0, false},
        {"model-by-name", begin_names, NULL, run_names, 0, false},
        {"list-of-models", begin_names, NULL, run_list, 0, false},
        {"kernels-that-are-compiled", begin_compiler, before_cold, run_compiled,
         getenv("BERYL_TEST_ALL") ? 0 : 60, false},
        {"kernels-that-were-compiled", begin_compiler, NULL, run_compiled, 30, false},
        {"tuned-forms", begin_tuned, before_cold, run_tuned, 0, false},
        {"tuned-schedules", begin_nothing, before_schedules, run_schedules, 0, false},
        {"load-answer-and-tune-host", begin_host, before_host, run_host, 2, true},
    };
    for (size_t i = 0; i < sizeof scenes / sizeof *scenes; i++) {
        if (!test_case(t, "faults/%s", scenes[i].name)) continue;
        if (faults_work()) play(t, &scenes[i]);
        else test_skip(t, "the linker puts nothing between here");
    }
    static const scene changing[] = {
        {"reference", begin_model, NULL, run_reference, 12, false},
        {"rows-that-stay-in-the-file", begin_rows, NULL, run_rows, 3, false},
        {"saved-session", begin_session, NULL, run_restore, 0, false},
    };
    for (size_t i = 0; i < sizeof changing / sizeof *changing; i++) {
        if (!test_case(t, "faults/file-that-changes-%s", changing[i].name)) continue;
        if (faults_work()) change_everywhere(t, &changing[i]);
        else test_skip(t, "the linker puts nothing between here");
    }
    if (test_case(t, "faults/source-that-lies-reference"))
        lie_everywhere(t, "reference", false, 12);
    if (test_case(t, "faults/source-that-lies-dummy")) lie_everywhere(t, "dummy", true, 3);
    if (test_case(t, "faults/source-that-lies-saved-session")) lie_restored(t);
}
