/* selftest.h - every kernel of an engine's plans against the reference functions; verdicts kept on disk. */
#ifndef ENGINE_SELFTEST_H
#define ENGINE_SELFTEST_H

#include "engine/trial.h"

typedef struct engine_selftest engine_selftest;

/* The start-up check, once the plans are ready: nothing to do where the same programs passed before on this adapter with
 * this driver. *state is NULL at the first call, and again when the check has ended.
 * OK: trusted. EVENT: one more kernel was tried. PENDING: step again. DEVICE: a kernel computes wrong numbers here; the
 * message names the first. */
beryl_status engine_selftest_cached(beryl_engine *engine, engine_selftest **state, beryl_error *error);
void engine_selftest_progress(const engine_selftest *s, uint64_t *done, uint64_t *total); /* s may be NULL */
void engine_selftest_close(engine_selftest *s); /* NULL is fine */

#endif
