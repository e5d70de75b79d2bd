/* stand_in.h - what tests tell a stand-in driver, and ask it. The functions are the library's own
 * exports beside CUDA's and HIP's, or OpenCL's; a test finds them with dlsym. */
#ifndef TESTS_STAND_IN_H
#define TESTS_STAND_IN_H

#include <stdint.h>

/* The calls whose name (as exported, "cuMemAlloc_v2") begins with `call`: after `after` good ones
 * the next `times` give `code` and do nothing. NULL: all work again. */
typedef void stand_in_fail_function(const char *call, uint32_t after, uint32_t times, int code);
/* How often functions whose name begins so were called since the library was opened. */
typedef uint64_t stand_in_calls_function(const char *call);
/* Things that were made and not dropped: memory of both kinds, streams, events, modules, texts,
 * graphs, contexts; whatever OpenCL's Create and Release are for. */
typedef uint64_t stand_in_alive_function(void);
/* Every command takes at least so long. Not OpenCL's. */
typedef void stand_in_slow_function(uint32_t microseconds);

#endif
