/* probe.h - a plan of the model beside those that the engine runs, over made-up tokens in slot 0,
 * or of a tower, over noise, to be looked at and timed: for traces, tuning and benchmarks. What the
 * caches of that slot held is gone afterwards, so no session may be open. */
#ifndef ENGINE_PROBE_H
#define ENGINE_PROBE_H

#include "engine/towers.h"

typedef struct probe {
    beryl_engine *e;
    gemma4_text text;
    beryl_media *media; /* of a tower; else NULL */
    engine_tower_plan tower;
    graph_exec *exec;
    uint32_t n, depth;    /* rows of a run; position of the first */
    bool decode, output;  /* output: it makes logits */
    device_ticket ticket; /* of the last run */
} probe;

/* MISUSE, UNSUPPORTED: as below. */
beryl_status probe_allowed(const beryl_engine *e, beryl_error *error);
/* depth: positions before the run's. MISUSE where sessions are open, UNSUPPORTED where nothing
 * runs (reference, dummy). Closed by the caller, also on failure. */
beryl_status probe_open(beryl_engine *e, const gemma4_text_options *how, uint32_t depth,
                        const graph_exec_options *with, probe *p, beryl_error *error);
/* The same of a tower: a picture as large as is usual, or 30 s. */
beryl_status probe_tower_open(beryl_engine *e, beryl_media_kind kind,
                              const graph_exec_options *with, probe *p, beryl_error *error);
void probe_close(probe *p);
/* PENDING: programs compile, or a tower's weights are on their way. */
beryl_status probe_ready(probe *p, beryl_error *error);
/* Tokens, positions and angles of the next run: each run needs them anew only where they change. */
void probe_fill(const probe *p);
beryl_status probe_submit(probe *p, beryl_error *error);
/* OK: the run is done (it sleeps; PENDING where nothing may). Then times are in
 * graph_exec_step_at and graph_exec_seconds. */
beryl_status probe_wait(probe *p, beryl_error *error);
beryl_status probe_read(probe *p, beryl_error *error);

#endif
