/* compile.c - the queue of jobs, the workers, and a compiler's words made into one line.
 *
 * Owns the threads and the jobs. One more worker starts while jobs wait, up to the processors less
 * one, since most programs come in one burst; where no thread is to be had, a job is compiled at
 * once on the caller's.
 */
#define _POSIX_C_SOURCE 200809L /* sysconf */
#include "device/driver/compile.h"
#include "base/error.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

bool driver_compiler_init(driver_compiler *c) {
    c->lock = base_lock_open(c->heap);
    return c->lock != NULL;
}

static void job_free(driver_compiler *c, driver_job *job) {
    c->discard(c->user, job);
    base_heap_give(c->heap, job->source, job->source ? job->source_size + 1 : 0);
    base_heap_give(c->heap, job->entry, job->entry ? job->entry_size + 1 : 0);
    base_heap_give(c->heap, job->told, job->told_size);
    base_heap_give(c->heap, job, sizeof *job);
}

static void work(void *user) {
    driver_compiler *c = ((driver_worker *)user)->compiler;
    base_lock_enter(c->lock);
    for (;;) {
        while (!c->first && !c->closing) base_lock_sleep(c->lock);
        if (c->closing) break;
        driver_job *job = c->first;
        c->first = job->next;
        if (!c->first) c->last = NULL;
        job->next = NULL;
        job->state = DRIVER_COMPILING;
        base_lock_leave(c->lock);
        bool ok = c->compile(c->user, job);
        base_lock_enter(c->lock);
        job->state = ok ? DRIVER_READY : DRIVER_FAILED;
        if (!job->orphan) continue;
        base_lock_leave(c->lock);
        job_free(c, job);
        base_lock_enter(c->lock);
    }
    base_lock_leave(c->lock);
}

static uint32_t most_workers(const driver_compiler *c) {
    const long processors = sysconf(_SC_NPROCESSORS_ONLN);
    const uint32_t usual = processors > 2 ? (uint32_t)processors - 1 : 1;
    const uint32_t most = c->n_max ? c->n_max : usual;
    return most < DRIVER_WORKER_MAX ? most : (uint32_t)DRIVER_WORKER_MAX;
}

static void job_start(driver_compiler *c, driver_job *job) {
    base_lock_enter(c->lock);
    bool more = (c->first || !c->n_worker) && c->n_worker < most_workers(c) && !c->closing;
    base_lock_leave(c->lock);
    if (more) { /* workers are added by the owner's thread alone */
        driver_worker *worker = &c->workers[c->n_worker];
        worker->compiler = c;
        worker->thread = base_thread_open(c->heap, work, worker);
        if (worker->thread) c->n_worker++;
    }
    if (!c->n_worker) {
        job->state = c->compile(c->user, job) ? DRIVER_READY : DRIVER_FAILED;
        return;
    }
    base_lock_enter(c->lock);
    if (c->last) c->last->next = job;
    else c->first = job;
    c->last = job;
    base_lock_wake(c->lock);
    base_lock_leave(c->lock);
}

void driver_compiler_stop(driver_compiler *c) {
    if (!c->lock) return;
    base_lock_enter(c->lock);
    c->closing = true;
    base_lock_wake(c->lock);
    base_lock_leave(c->lock);
    for (uint32_t i = 0; i < c->n_worker; i++) base_thread_close(c->workers[i].thread);
    c->n_worker = 0;
}

void driver_compiler_fini(driver_compiler *c) {
    driver_compiler_stop(c);
    driver_cache_close(&c->cache);
    if (c->lock) base_lock_close(c->lock);
    c->lock = NULL;
}

/* ---- jobs ------------------------------------------------------------------------------------ */

static char *copy_text(base_heap *heap, const char *text, size_t size) {
    if (size == SIZE_MAX) return NULL;
    char *copy = base_heap_take(heap, size + 1);
    if (copy && size) memcpy(copy, text, size);
    return copy;
}

beryl_status driver_job_make(driver_compiler *c, const device_program_item *item,
                             const device_program_desc *desc, bool no_cache, driver_job **out,
                             beryl_error *error) {
    *out = NULL;
    driver_job *job = base_heap_take(c->heap, sizeof *job);
    if (!job) return base_fail(error, BERYL_NO_MEMORY, "out of memory for program %s", item->label);
    const char *entry = desc->entry ? desc->entry : "main";
    job->source_size = desc->source_size;
    job->entry_size = strlen(entry);
    job->source = copy_text(c->heap, desc->source, job->source_size);
    job->entry = copy_text(c->heap, entry, job->entry_size);
    if (!job->source || !job->entry) {
        job_free(c, job);
        return base_fail(error, BERYL_NO_MEMORY, "out of memory for program %s", item->label);
    }
    memcpy(job->label, item->label, sizeof job->label);
    job->n_binding = item->n_binding;
    job->param_bytes = item->param_bytes;
    job->no_cache = no_cache;
    for (int i = 0; i < 3; i++) job->workgroup[i] = item->workgroup[i];
    job->launch_bytes = desc->launch_bytes;
    job_start(c, job);
    *out = job;
    return BERYL_OK;
}

void driver_compiler_warn(driver_compiler *c, const beryl_error *why) {
    base_lock_enter(c->lock);
    uint32_t i = 0;
    while (i < c->n_warning && strcmp(c->warnings[i].message, why->message) != 0) i++;
    if (i == c->n_warning && i < DRIVER_WARNING_MAX) c->warnings[c->n_warning++] = *why;
    base_lock_leave(c->lock);
}

static void tell_warnings(driver_compiler *c) {
    base_lock_enter(c->lock);
    const uint32_t n = c->n_warning;
    base_lock_leave(c->lock);
    for (; c->n_told < n; c->n_told++)
        base_log(c->log, BERYL_LOG_WARNING, "%s", c->warnings[c->n_told].message);
}

beryl_status driver_job_status(driver_compiler *c, driver_job *job, beryl_error *error) {
    base_lock_enter(c->lock);
    driver_job_state state = job->state;
    base_lock_leave(c->lock);
    if (state == DRIVER_WAITING || state == DRIVER_COMPILING) return BERYL_PENDING;
    tell_warnings(c);
    if (job->told) base_log(c->log, BERYL_LOG_DEBUG, "%s: %s", job->label, job->told);
    base_heap_give(c->heap, job->told, job->told_size);
    job->told = NULL, job->told_size = 0;
    if (state == DRIVER_READY) return BERYL_OK;
    if (error) *error = job->error;
    return job->error.code;
}

void driver_job_drop(driver_compiler *c, driver_job *job) {
    if (!job) return;
    base_lock_enter(c->lock);
    if (job->state == DRIVER_WAITING) {
        driver_job *before = NULL, *at = c->first;
        while (at && at != job) before = at, at = at->next;
        if (at && before) before->next = job->next;
        else if (at) c->first = job->next;
        if (c->last == job) c->last = before;
    }
    bool busy = job->state == DRIVER_COMPILING;
    if (busy) job->orphan = true;
    base_lock_leave(c->lock);
    if (!busy) job_free(c, job);
}

/* ---- through the cache ----------------------------------------------------------------------- */

enum { WAIT_MAX = 60 }; /* seconds for a process that may have been stopped */
#define WAIT_PIECE 0.01

static void open_cache(driver_compiler *c) {
    beryl_error warning = {0};
    base_lock_enter(c->lock);
    if (!c->cache.asked) driver_cache_open(&c->cache, c->cache_folder, c->backend, &warning);
    base_lock_leave(c->lock);
    if (warning.code) driver_compiler_warn(c, &warning);
}

/* A place in `making`, or NULL: another thread makes this program. The file's claims keep processes
 * and devices apart, not the threads of one. */
static driver_making *begin_making(driver_compiler *c, const driver_cache_key *key) {
    driver_making *place = NULL;
    base_lock_enter(c->lock);
    for (int i = 0; i < DRIVER_WORKER_MAX + 1; i++) {
        driver_making *m = &c->making[i];
        if (m->used && !memcmp(&m->key, key, sizeof *key)) {
            place = NULL;
            break;
        }
        if (!m->used && !place) place = m;
    }
    if (place) *place = (driver_making){*key, true};
    base_lock_leave(c->lock);
    return place;
}

static void end_making(driver_compiler *c, driver_making *place) {
    base_lock_enter(c->lock);
    place->used = false;
    base_lock_leave(c->lock);
}

/* Waits while another process or thread makes this program. False: the device closes. */
static bool claim(driver_compiler *c, const driver_job *job, const driver_cache_key *key,
                  driver_making **making, bool *claimed, bool *waited) {
    const double began = base_time();
    for (;;) {
        if (!*making) *making = begin_making(c, key);
        const beryl_status status = *making ? driver_cache_claim(&c->cache, key) : BERYL_PENDING;
        *claimed = status == BERYL_OK;
        if (status != BERYL_PENDING) return true;
        *waited = true;
        const bool late = base_time() - began > WAIT_MAX;
        base_lock_enter(c->lock);
        const bool closing = c->closing, go_on = late || c->impatient;
        c->impatient = go_on;
        base_lock_leave(c->lock);
        if (late) {
            beryl_error why;
            base_fail(&why, BERYL_IO,
                      "another process has been compiling %s for %d s: kernels are "
                      "compiled here too",
                      job->label, WAIT_MAX);
            driver_compiler_warn(c, &why);
        }
        if (closing || go_on) return !closing;
        base_sleep(WAIT_PIECE);
    }
}

/* OK: loaded. NOT_FOUND, BAD_FILE: it has to be made. NO_MEMORY: job->error is set. */
static beryl_status load_kept(driver_compiler *c, driver_job *job, const driver_cache_key *key,
                              const driver_maker *maker) {
    void *code;
    size_t size;
    beryl_error why = {0};
    beryl_status status = driver_cache_find(&c->cache, c->heap, key, &code, &size, &why);
    if (status == BERYL_OK) {
        if (!maker->load(c->user, job, key, code, size, &why)) status = BERYL_BAD_FILE;
        base_heap_give(c->heap, code, size + 1);
    }
    if (status == BERYL_NO_MEMORY) job->error = why;
    else if (why.code) driver_compiler_warn(c, &why);
    return status == BERYL_IO ? BERYL_BAD_FILE : status;
}

static bool make_program(driver_compiler *c, driver_job *job, const driver_cache_key *key,
                         const driver_maker *maker, bool keep) {
    void *code = NULL;
    size_t size = 0;
    if (!maker->make(c->user, job, &code, &size)) return false;
    const bool loaded = maker->load(c->user, job, key, code, size, &job->error);
    beryl_error why = {0};
    if (loaded && keep && driver_cache_keep(&c->cache, key, code, size, &why))
        driver_compiler_warn(c, &why);
    base_heap_give(c->heap, code, size + 1);
    return loaded;
}

bool driver_compile_kept(driver_compiler *c, driver_job *job, const driver_cache_key *key,
                         const driver_maker *maker) {
    bool claimed = false, waited = false;
    driver_making *making = NULL;
    if (job->no_cache) return make_program(c, job, key, maker, false);
    open_cache(c);
    beryl_status status = load_kept(c, job, key, maker);
    if (status == BERYL_OK || status == BERYL_NO_MEMORY) return !status;
    if (!claim(c, job, key, &making, &claimed, &waited)) {
        if (making) end_making(c, making);
        base_fail(&job->error, BERYL_CANCELLED, "%s: the device closes", job->label);
        return false;
    }
    /* whoever had the claim before may have kept it */
    if (waited || status == BERYL_NOT_FOUND) status = load_kept(c, job, key, maker);
    if (status == BERYL_NOT_FOUND || status == BERYL_BAD_FILE)
        status = make_program(c, job, key, maker, true) ? BERYL_OK : job->error.code;
    if (claimed) driver_cache_release(&c->cache, key);
    if (making) end_making(c, making);
    return status == BERYL_OK;
}

/* ---- what a compiler said -------------------------------------------------------------------- */

/* The place that stands before "error": "...:LINE:COLUMN: " or "...(LINE): ". False: none. */
static bool find_place(const char *line, size_t size, unsigned long *row, unsigned long *column) {
    *row = *column = 0;
    for (size_t i = 0; i + 1 < size; i++) {
        if ((line[i] != ':' && line[i] != '(') || line[i + 1] < '0' || line[i + 1] > '9') continue;
        char *end;
        *row = strtoul(line + i + 1, &end, 10);
        if (line[i] == '(' && *end == ')') return true;
        if (line[i] == ':' && *end == ':' && end[1] >= '0' && end[1] <= '9')
            *column = strtoul(end + 1, &end, 10);
        if (line[i] == ':' && *end == ':') return true;
    }
    *row = *column = 0;
    return false;
}

static uint64_t offset_of(const driver_job *job, unsigned long row, unsigned long column) {
    size_t at = 0;
    if (!row) return 0;
    while (--row && at < job->source_size) {
        const char *end = memchr(job->source + at, '\n', job->source_size - at);
        if (!end) return 0;
        at = (size_t)(end - job->source) + 1;
    }
    at += column ? column - 1 : 0;
    return at <= job->source_size ? at : 0;
}

bool driver_compile_fail(const driver_compiler *c, driver_job *job, const char *told,
                         size_t told_size) {
    while (told_size && (!told[told_size - 1] || told[told_size - 1] == '\n')) told_size--;
    job->told = told_size ? copy_text(c->heap, told, told_size) : NULL;
    if (!job->told) {
        if (told_size) base_fail(&job->error, BERYL_NO_MEMORY, "out of memory for %s", job->label);
        else base_fail(&job->error, BERYL_DEVICE, "%s: the compiler said nothing", job->label);
        return false;
    }
    job->told_size = told_size + 1;
    for (size_t i = 0; i < told_size; i++)
        if ((unsigned char)job->told[i] < ' ' && job->told[i] != '\n') job->told[i] = ' ';
    /* the first line that speaks of an error; else the first that says something */
    const char *line = job->told, *word = strstr(line, "error");
    while (word && word > line && word[-1] != '\n') word--;
    line = word ? word : line + strspn(line, " \n");
    size_t size = strcspn(line, "\n");
    unsigned long row, column;
    char place[48] = "";
    if (find_place(line, size, &row, &column)) {
        if (column) snprintf(place, sizeof place, ":%lu:%lu", row, column);
        else snprintf(place, sizeof place, ":%lu", row);
    }
    const char *message = place[0] ? strstr(line, "error") : NULL;
    if (message && message < line + size) size -= (size_t)(message - line), line = message;
    base_fail_at(&job->error, BERYL_DEVICE, offset_of(job, row, column), "%s%s: %.*s", job->label,
                 place, size > 400 ? 400 : (int)size, line);
    return false;
}
