/* lanes.h - the workgroups of one launch, lane by lane. */
#ifndef TESTS_STAND_IN_LANES_H
#define TESTS_STAND_IN_LANES_H

#include <stdbool.h>
#include <stdint.h>

typedef struct lanes lanes; /* one a thread that runs kernels */

lanes *lanes_open(void);
void lanes_close(lanes *l);
extern void *const lanes_table; /* what a module's stand_in_host is set to */
/* Runs kernel(arguments) for all groups. False: lanes waited for each other for ever. */
bool lanes_run(lanes *l, void (*kernel)(void **arguments), void **arguments,
               const uint32_t groups[3], const uint32_t size[3]);

#endif
