/* calls.h - what every function of a stand-in driver says when it is called (calls.c). */
#ifndef TESTS_STAND_IN_CALLS_H
#define TESTS_STAND_IN_CALLS_H

#include <stdint.h>

void stand_in_count(int64_t n);            /* things alive */
int stand_in_enter_call(const char *name); /* counts; the code to fail with, or 0 */
int stand_in_fails(const char *name);      /* the same for what is no call */

#endif
