/* trace_events.h - trace events, the format of Chrome's about:tracing (events "X" with ts and dur
 * in microseconds): what trace.c writes of plans, and train_out.c of a training's steps. */
#ifndef ENGINE_TRACE_EVENTS_H
#define ENGINE_TRACE_EVENTS_H

#include "engine/engine.h"

typedef enum trace_track { TRACE_HOST = 1, TRACE_DEVICE } trace_track;

typedef struct trace_events {
    base_text text;
    double began; /* when 0 is */
    bool comma;
} trace_events;

/* plan: its name; n: tokens of a run, depth: before them. */
void trace_head(trace_events *t, const beryl_engine *e, const char *plan, uint32_t n,
                uint32_t depth);
/* Open: more may be added before trace_event_end. Seconds of the host's clock. */
void trace_event(trace_events *t, const char *name, const char *kind, trace_track where,
                 double from, double to);
void trace_event_end(trace_events *t);
/* Those of the last run of a stamped plan, one after another. Gives when the last one ended. */
double trace_dispatches(trace_events *t, const graph_exec *exec, double from);
/* All of it to `write`. */
beryl_status trace_write(trace_events *t, void (*write)(void *user, const char *text, size_t size),
                         void *user, beryl_error *error);

#endif
