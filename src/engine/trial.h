/* trial.h - one operation of a plan, run on the engine's device and on the reference functions. */
#ifndef ENGINE_TRIAL_H
#define ENGINE_TRIAL_H

#include "engine/engine.h"

typedef struct trial_limits {
    uint32_t rows; /* most tokens of the run */
    /* most rows of a weight that the reference computes, where it can do with fewer */
    uint32_t out;
    uint32_t reach; /* positions behind the run that attention may look at, at most */
    double work;    /* products that the reference may take; at least for two tokens */
} trial_limits;

enum { TRIAL_RUN_MAX = 2 };

typedef struct trial_desc {
    const graph *g; /* borrowed, and its plan */
    const graph_exec *exec;
    const graph_store *store; /* of the plan */
    bool exact;
    uint32_t node; /* of g->nodes */
    bool decode;   /* rows belong to different slots */
    /* by trial_find: what the device runs, the node and the one that finishes or takes it; and the
     * result that such a one takes as int8 blocks, 0: none */
    uint32_t run[TRIAL_RUN_MAX], n_run;
    graph_value handed;
} trial_desc;

typedef struct trial_result {
    bool ok;
    /* the largest relative error (root mean square) of an output; of indices: the part that is
     * wrong */
    double error;
    bool
        made; /* with weights of its own: what such a one finds wrong is tried with the true ones */
} trial_result;

enum { TRIAL_DRAWN = 16 };

/* Numbers of weights that have not come, the same in all trials of a check: it takes long to draw
 * blocks of a usual size. All zero: none yet. The arena is the caller's. */
typedef struct trial_blocks {
    base_arena arena;
    unsigned char *of[TYPE_COUNT]; // [TRIAL_DRAWN] blocks of a quantised type
} trial_blocks;

typedef struct trial trial;

/* Is this node live, and not tried together with another one? Then *desc knows what is run of it,
 * which takes long to find and is asked for often. */
bool trial_find(trial_desc *desc);
/* The i-th program that it runs; false: there are fewer. */
bool trial_program(const trial_desc *desc, uint32_t i, device_program *out);
/* Can it run now? While weights are uploaded: do its own all come later, and are none of them
 * experts? */
bool trial_is_ready(const trial_desc *desc);
/* Products that the reference takes for one token. */
double trial_work(const trial_desc *desc, const trial_limits *limits);
/* The same for two operations that differ in nothing a kernel could depend on. */
uint64_t trial_key(const trial_desc *desc);
/* "linear Q4_K k=1536 rows=1" */
void trial_name(const trial_desc *desc, base_text *out);
/* Builds both sides. The engine must have a device; it and the blocks outlive the trial. */
beryl_status trial_open(beryl_engine *engine, const trial_desc *desc, const trial_limits *limits,
                        trial_blocks *blocks, trial **out, beryl_error *error);
/* OK: *result is filled. PENDING: step again */
beryl_status trial_step(trial *t, trial_result *result, beryl_error *error);
void trial_close(trial *t); /* NULL is fine */

/* ---- generated numbers (trial_numbers.c) ----------------------------------------------------- */

void trial_fill_floats(base_random *random, float *to, uint64_t n, float amplitude);
/* A block of a quantised type whose largest number is between the two: random bytes, drawn again
 * until they are that. */
void trial_fill_block(base_random *random, base_type type, unsigned char *to, float least,
                      float most);
/* Allowed relative error of an operation; `cache`: type of the cache that it writes or reads,
 * else F32. */
double trial_tolerance(base_op op, bool exact, base_type cache);

#endif
