/* selftest.h - the kernels of an engine's plans against the reference functions. */
#ifndef ENGINE_SELFTEST_H
#define ENGINE_SELFTEST_H

#include "engine/trial.h"

typedef struct engine_selftest engine_selftest;

/* Can numbers of this engine's device be judged? Not of the dummy's or the reference's. */
bool engine_selftest_computes(const beryl_engine *engine);
typedef enum selftest_kind {
    /* the least work that runs every program of the plans made so far which is not proven yet */
    SELFTEST_BRIEF,
    SELFTEST_PLANS,   /* every different operation of those plans */
    SELFTEST_EVERY_OP /* and then every operation there is (every_op.h); not in browsers */
} selftest_kind;
beryl_status engine_selftest_open(beryl_engine *engine, selftest_kind kind, engine_selftest **out,
                                  beryl_error *error);
/* EVENT: one more operation was tried, whose name is *name until the next step. PENDING: step
 * again. OK: there are no more. A kernel that computes wrong numbers is a result, not an error. */
beryl_status engine_selftest_step(engine_selftest *s, trial_result *result, const base_text **name,
                                  beryl_error *error);
void engine_selftest_progress(const engine_selftest *s, uint64_t *done, uint64_t *total);
/* How the programs did, once there are no more operations: sets `proven` in the engine's store;
 * suspects[i]: program i had a part in a wrong result. [n of engine->store.programs] */
void engine_selftest_sort(const engine_selftest *s, bool *suspects, size_t n);
/* OK, or DEVICE: the message names the device and the first operation that failed. */
beryl_status engine_selftest_verdict(const engine_selftest *s, beryl_error *error);
void engine_selftest_close(engine_selftest *s); /* NULL is fine */

#endif
