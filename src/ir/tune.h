/* tune.h - the search for a good schedule, and the file that remembers what was found.
 *
 *     ir_cache *cache = ir_cache_open(&heap, "…/tune.txt", &log);
 *     ir_tuning t = {.plain = kernel, .caps = caps, .time = run_it, .user = me, .cache = cache};
 *     status = ir_tune(&arena, &t, &schedule, &error);   // the cache's, or the best of at most 12
 *     ir_cache_close(cache);
 *
 * Two things are searched in one way: schedules of a kernel with marks (ir_tune), and numbers
 * that a lowering asks for while it builds its kernels (ir_tune_numbers).
 *
 * The idea: the rule of thumb and its neighbours are candidates, the cost model puts them in
 * order, the first few are timed on the device by the caller, the fastest is kept under the
 * kernel, its shape class and the device. Without `time` the model alone decides. What is in the
 * cache is taken as it is, so a result, once found, stays the same. Threads: a cache belongs to
 * one at a time; the file is read once, and replaced as a whole. */
#ifndef IR_TUNE_H
#define IR_TUNE_H

#include "ir/pass/pass.h"

/* A file of what was found, for all devices. */
typedef struct ir_cache ir_cache;

/* Reads it. A file that is not there is empty, and so is one of another version, which the next
 * entry replaces; damage is one warning, and what is good is taken.
 * path is copied, the log borrowed. NULL: no memory. */
ir_cache *ir_cache_open(base_heap *heap, const char *path, const beryl_log *log);
void ir_cache_close(ir_cache *cache); /* NULL is fine */
/* One warning that the file holds numbers which nobody may choose. */
void ir_cache_doubt(ir_cache *cache);
/* Good entries; *damaged: there are others; *other_version: they are another version's. */
uint32_t ir_cache_count(const ir_cache *cache, bool *damaged, bool *other_version);

typedef struct ir_tuning {
    const ir_kernel *plain; /* as its lowering wrote it, with marks */
    const device_caps *caps;
    uint64_t extents[IR_DIM_MAX];          /* as for ir_schedule_default */
    uint32_t params[IR_PARAM_MAX];         /* words, for the cost model and the grid */
    uint32_t param_multiple[IR_PARAM_MAX]; /* what may be promised of params (ir_schedule) */
    bool fragments;                        /* the device has matrix units for the kernel's types */
    uint32_t n_timed;                      /* candidates that are timed at most. 0: 12 */
    uint32_t n_candidate; /* that the model looks at; 0 and at most: 160 (of each kind) */
    base_heap *heap;      /* ir_tune sets it */
    ir_cache *cache;      /* borrowed; NULL: none */
    bool again;           /* ir_tune: what is in it is searched anew */
    /* Seconds of one run of the kernel that the schedule makes (scheduled: after the passes). A
     * status other than OK: the candidate is left out (it does not compile there, say); CANCELLED
     * and NO_MEMORY end the search. NULL: nothing is timed. */
    beryl_status (*time)(void *user, const ir_kernel *scheduled, const ir_schedule *schedule,
                         double *seconds, beryl_error *error);
    void (*progress)(void *user, uint32_t done, uint32_t total); /* NULL: none */
    void *user;
} ir_tuning;

/* OK: *schedule is the best that is known, if need be the rule of thumb. A cache that cannot be
 * written is one warning in its log. */
beryl_status ir_tune(base_arena *arena, const ir_tuning *t, ir_schedule *schedule,
                     beryl_error *error);

/* What the cache knows of the kernel: for interactive use, which never searches. False: nothing. */
bool ir_tuned(base_heap *heap, const ir_tuning *t, ir_schedule *schedule);

/* ---- numbers of any meaning ------------------------------------------------------------------ */

enum { IR_KNOB_VALUES_MAX = 8, IR_CHOICES_MAX = 8 };

typedef struct ir_knob { /* number `at` of a row is one of these */
    uint32_t at, n, values[IR_KNOB_VALUES_MAX];
} ir_knob;

typedef struct ir_choosing {
    uint64_t key; /* of what is built with the rule's numbers, its sizes' classes, the device */
    uint32_t n;   /* numbers */
    uint32_t rule[IR_CHOICES_MAX];
    /* one a number, in their order; the rule's value is among them */
    ir_knob knobs[IR_CHOICES_MAX];
    uint32_t n_timed; /* 0: 12 */
    ir_cache *cache;  /* borrowed; NULL: none */
    bool again;
    /* By the cost model (HUGE_VAL: it cannot be built so), and on the device, as ir_tuning's. */
    beryl_status (*estimate)(void *user, const uint32_t *numbers, double *seconds,
                             beryl_error *error);
    beryl_status (*time)(void *user, const uint32_t *numbers, double *seconds, beryl_error *error);
    void *user;
} ir_choosing;

/* OK: numbers [n] are the best that are known. */
beryl_status ir_tune_numbers(base_heap *heap, const ir_choosing *t, uint32_t *numbers,
                             beryl_error *error);
/* False: the cache knows nothing of it, or what no knob allows, which is a warning. */
bool ir_tuned_numbers(const ir_choosing *t, uint32_t *numbers);

#endif
