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
    const uint32_t most = c->n_most ? c->n_most : usual;
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
    if (c->lock) base_lock_close(c->lock);
    c->lock = NULL;
}

/* ---- jobs ----------------------------------------------------------------------------------- */

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
    if (strcmp(c->warning.message, why->message) != 0) c->warning = *why, c->warned = false;
    base_lock_leave(c->lock);
}

static void tell_warning(driver_compiler *c) {
    base_lock_enter(c->lock);
    const beryl_error warning = c->warning;
    const bool tell = warning.code && !c->warned;
    c->warned = true;
    base_lock_leave(c->lock);
    if (tell) base_log(c->log, BERYL_LOG_WARNING, "%s", warning.message);
}

beryl_status driver_job_status(driver_compiler *c, driver_job *job, beryl_error *error) {
    base_lock_enter(c->lock);
    driver_job_state state = job->state;
    base_lock_leave(c->lock);
    if (state == DRIVER_WAITING || state == DRIVER_COMPILING) return BERYL_PENDING;
    tell_warning(c);
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

/* ---- what a compiler said --------------------------------------------------------------------- */

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
