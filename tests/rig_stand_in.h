/* rig_stand_in.h - the drivers of hardware that is not there. */
#ifndef TESTS_RIG_STAND_IN_H
#define TESTS_RIG_STAND_IN_H

#include <stdbool.h>

/* Where `backend` is "cuda" or "hip", opens nothing and its environment variable names nothing:
 * from now on it is the stand-in driver (tests/stand_in/). True: it is, and rig_stand_in_end
 * undoes it. */
bool rig_stand_in(const char *backend);
void rig_stand_in_end(const char *backend);

/* Where OpenCL opens and has no subgroups: from now on it has those of `vendor`, "amd" (64
 * lanes) or "intel" (32), by tests/stand_in/opencl.c. True: it is so, and
 * rig_stand_in_end("opencl") undoes it. */
bool rig_opencl_subgroups(const char *vendor);

#endif
