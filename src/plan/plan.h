/* plan.h - the inside of graph_exec: a plan on a device, or the graph on the reference
 * functions. plan/plan.c makes it, plan/replay.c runs it. */
#ifndef PLAN_PLAN_H
#define PLAN_PLAN_H

#include "plan/exec.h"
#include "plan/memory.h"
#include "graph/reference.h"

enum { PLAN_STAMP_MAX = 2000, PLAN_FETCH_MAX = 64 };

struct graph_exec {
    base_heap *heap;    /* borrowed */
    graph *g;           /* borrowed */
    graph_store *store; /* borrowed */
    graph_exec_options options;
    graph_reference *reference;        /* where the store has no device: instead of all below */
    device_ticket ticket;              /* reference: counts runs */
    graph_value fetch[PLAN_FETCH_MAX]; /* reference: of the last run */
    uint32_t n_fetch;
    device *device;   /* borrowed */
    size_t n_lowered; /* nodes of the graph */
    bool whole;       /* all below is made */
    plan_record record;
    plan_memory memory;
    uint64_t kept_bytes, recomputed_bytes; /* as of graph_exec_info */
    uint32_t recomputes;
    base_vec(device_command) commands; /* of the run under way */
    size_t at, sent;                   /* steps and commands of it that are submitted */
    size_t stamp_from, stamp_next;     /* the first step with a stamp: of this run, of the next */
    uint64_t work;                     /* bytes that all steps read of weights and states */
    double seconds, encoded;           /* of the last run */
    uint32_t kept;                     /* 1 + uploads of the store that steps of `once` have read */
};

#endif
