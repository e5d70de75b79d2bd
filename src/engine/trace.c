/* trace.c - a few runs of a plan as trace events: the format of Chrome's about:tracing, which
 * Perfetto reads too (events "X" with ts and dur in microseconds).
 *
 * Two clocks meet here. A run's stamps count from its first one; the run is put where it ends
 * when the host's wait for it ended, but not before it was submitted. */
#include "base/error.h"
#include "base/thread.h"
#include "engine/probe.h"
#include "engine/trace_events.h"

#include <string.h>

enum { STEPS_DEFAULT = 3, STEPS_MAX = 100, WARM_MAX = 1000 };
static const double WARM_SECONDS = 0.3; /* a GPU that was idle takes as long to clock up */

typedef enum trace_stage { TRACE_COMPILE, TRACE_WARM, TRACE_RUN } trace_stage;

typedef struct tracing {
    probe p;
    beryl_plan plan;
    void (*write)(void *user, const char *text, size_t size);
    void *user;
    trace_stage stage;
    uint32_t n_step, n_done, n_warm;
    bool waiting; /* for a run */
    /* when it began, the run; of the run before, on the device */
    double warmed, begun, filled, submitted, device_end;
    trace_events events;
} tracing;

/* ---- events ---------------------------------------------------------------------------------- */

static void device_events(tracing *t, double waited) {
    trace_events *to = &t->events;
    const double total = graph_exec_seconds(t->p.exec), encoded = graph_exec_encoded(t->p.exec);
    if (!(total > 0)) { /* no clock of its own: what the host saw */
        trace_event(to, "run (no timestamps)", "run", TRACE_DEVICE, encoded, waited);
        trace_event_end(to);
        return;
    }
    const double at = waited - total > encoded ? waited - total : encoded;
    t->device_end = trace_dispatches(to, t->p.exec, at < t->device_end ? t->device_end : at);
}

static void run_events(tracing *t, double waited, double read) {
    static const char *const names[] = {"fill inputs", "encode", "submit", "wait", "read result"};
    const double encoded = graph_exec_encoded(t->p.exec);
    const double times[] = {t->begun, t->filled, encoded, t->submitted, waited, read};
    trace_event(&t->events, "run", "run", TRACE_HOST, t->begun, read);
    base_text_print(&t->events.text, ",\"args\":{\"number\":%u}", t->n_done);
    trace_event_end(&t->events);
    for (size_t i = 0; i < sizeof names / sizeof *names; i++) {
        trace_event(&t->events, names[i], "host", TRACE_HOST, times[i], times[i + 1]);
        trace_event_end(&t->events);
    }
    device_events(t, waited);
}

/* ---- the task -------------------------------------------------------------------------------- */

static beryl_status run_begin(tracing *t, beryl_error *error) {
    t->begun = base_time();
    probe_fill(&t->p);
    t->filled = base_time();
    const beryl_status status = probe_submit(&t->p, error);
    t->submitted = base_time();
    t->waiting = status == BERYL_OK;
    return status;
}

/* One run, if need be in several steps. */
static beryl_status run_step(beryl_task *task, tracing *t) {
    static const char *const plans[] = {
#define X(id, name, what) name,
        BERYL_PLAN_LIST(X)
#undef X
    };
    beryl_error *error = &task->error;
    beryl_status status = t->waiting ? BERYL_OK : run_begin(t, error);
    if (status == BERYL_OK) status = probe_wait(&t->p, error);
    if (status != BERYL_OK) return status;
    t->waiting = false;
    const double waited = base_time();
    status = probe_read(&t->p, error);
    if (status != BERYL_OK) return status;
    if (t->stage == TRACE_WARM) {
        const bool processor = device_is_processor(device_caps_of(t->p.e->device));
        if (t->n_warm == 0) t->warmed = t->begun;
        if (++t->n_warm < 2 ||
            (!processor && waited - t->warmed < WARM_SECONDS && t->n_warm < WARM_MAX))
            return task_progress(task, "warming up", t->n_warm, 0);
        t->stage = TRACE_RUN;
        t->events.began = base_time();
        trace_head(&t->events, t->p.e, plans[t->plan], t->p.n, t->p.depth);
    } else {
        run_events(t, waited, base_time());
        t->n_done++;
    }
    return t->n_done == t->n_step ? trace_write(&t->events, t->write, t->user, error)
                                  : task_progress(task, "tracing", t->n_done, t->n_step);
}

static beryl_status trace_step(beryl_task *task) {
    tracing *t = task->state;
    if (task_is_cancelled(task))
        return base_fail(&task->error, BERYL_CANCELLED, "the trace was cancelled");
    if (t->stage == TRACE_COMPILE) {
        const beryl_status status = probe_ready(&t->p, &task->error);
        if (status != BERYL_OK) return status;
        t->stage = TRACE_WARM;
    }
    return run_step(task, t);
}

static void tracing_drop(beryl_engine *e, tracing *t) {
    probe_close(&t->p);
    base_text_fini(&t->events.text);
    base_heap_give(&e->heap, t, sizeof *t);
}

static void trace_close(beryl_task *task) {
    tracing_drop(task->engine, task->state);
}

static beryl_status open_plan(beryl_engine *e, const beryl_trace_options *o, probe *p,
                              beryl_error *error) {
    const graph_exec_options with = {.exact = e->options.precision == BERYL_PRECISION_EXACT,
                                     .stamped = true};
    if (o->plan == BERYL_PLAN_PICTURE || o->plan == BERYL_PLAN_SOUND)
        return probe_tower_open(e, o->plan == BERYL_PLAN_SOUND ? BERYL_SOUND : BERYL_PICTURE, &with,
                                p, error);
    const gemma4_text_options how =
        engine_plan_options(e, engine_plan_kind_of(e, o->plan, o->depth < ENGINE_NEAR));
    return probe_open(e, &how, o->depth, &with, p, error);
}

beryl_status beryl_engine_trace(beryl_engine *e, const beryl_trace_options *options,
                                void (*write)(void *user, const char *text, size_t size),
                                void *user, beryl_task **task, beryl_error *error) {
    static const beryl_trace_options none = {.size = sizeof none};
    if (task) *task = NULL;
    if (!e || !task || !write || !e->loaded || e->options.vocabulary_only)
        return base_fail(error, BERYL_MISUSE,
                         "beryl_engine_trace needs an engine with a loaded model, a function to "
                         "call and a place for the task");
    if (!options) options = &none;
    if (options->size < offsetof(beryl_trace_options, steps) || options->size > 1 << 16)
        return base_fail(error, BERYL_MISUSE,
                         "beryl_trace_options.size is %zu: set it to sizeof(beryl_trace_options)",
                         options->size);
    beryl_trace_options o = none;
    memcpy(&o, options, options->size < sizeof o ? options->size : sizeof o);
    if ((unsigned)o.plan > BERYL_PLAN_SOUND) return base_fail(error, BERYL_MISUSE, "no such plan");
    if (o.steps > STEPS_MAX)
        return base_fail(error, BERYL_BAD_INPUT, "%u steps: a trace has at most %d", o.steps,
                         STEPS_MAX);
    tracing *t = base_heap_take(&e->heap, sizeof *t);
    if (!t) return base_no_memory(error);
    t->plan = o.plan;
    t->write = write;
    t->user = user;
    t->n_step = o.steps ? o.steps : STEPS_DEFAULT;
    base_text_init(&t->events.text, &e->heap);
    beryl_status status = open_plan(e, &o, &t->p, error);
    if (status == BERYL_OK) status = task_open(e, NULL, trace_step, task, error);
    if (status != BERYL_OK) {
        tracing_drop(e, t);
        return status;
    }
    const device_caps *caps = device_caps_of(e->device);
    if (!caps->timestamps)
        base_log(&e->log, BERYL_LOG_WARNING,
                 "%s gives no timestamps: the trace has what the host did, and each run as a whole "
                 "by the host's clock, no dispatches",
                 caps->name);
    (*task)->state = t;
    (*task)->close = trace_close;
    return BERYL_OK;
}
