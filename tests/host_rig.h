/* host_rig.h - the processor as a device in surroundings of a test's own: cache folder, TMPDIR,
 * PATH. */
#ifndef TESTS_HOST_RIG_H
#define TESTS_HOST_RIG_H

#include "rig.h"

/* The kernel "scale": y = params[0] * x + n, a group of 64 at a time. Its text is good until the
 * next call. */
const char *host_rig_text(uint32_t n);
device_program_desc host_rig_desc(const char *text);
/* Compiles and runs it; the first word of the result, where x is 1 and the factor 3; 0: failed. */
uint32_t host_rig_run(test *t, rig *r, uint32_t n);

/* A variable of the environment, "" where it is not set; and put back. */
void host_rig_keep(char *to, size_t size, const char *name);
void host_rig_put(const char *name, const char *value);
/* What a case changes of the environment, put back by host_away_end. */
typedef struct host_away {
    char path[4096], cache[600], temporary[600];
} host_away;
/* A fresh cache and a fresh folder for temporary files, `name` under the scratch folder. */
void host_away_begin(test *t, host_away *a, const char *name);
void host_away_end(const host_away *a);
/* Entries of a folder of the environment's; -1: there is no folder. last: the path of the last. */
int host_rig_count(const char *variable, const char *under, char *last, size_t size);
/* A compiler of the test's own, the only one in PATH: a script in a folder `name`. */
void host_rig_compiler(test *t, const char *name, const char *script);

typedef struct host_warnings {
    int n;
    char last[512];
} host_warnings;
/* a log hook; user: host_warnings */
void host_rig_note(void *user, beryl_log_level level, const char *line);
/* False: the case was skipped (no compiler) or failed. */
bool host_rig_open(test *t, rig *r, beryl_log *log, host_warnings *w);
/* Runs a kernel on a fresh device: its result (n is 4), and how many warnings there were. */
void host_rig_check(test *t, int want_warnings, const char *words);

#endif
