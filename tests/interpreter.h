/* interpreter.h - a device whose programs are printed kernel IR, run by the interpreter: for
 * tests of what is lowered to IR, with no code generator and no driver between. Buffers are host
 * memory, submits run at once, on the caller's thread. */
#ifndef TESTS_INTERPRETER_H
#define TESTS_INTERPRETER_H

#include "device/device.h"

/* Closed with device_close. NULL: no memory. */
device *interpreter_open(base_heap *heap);
/* The same as a GPU with subgroups of 32 and matrix units for halves. */
device *interpreter_units_open(base_heap *heap);
/* From now on every program goes through a subset of the passes in some order, one with marks
 * under some schedule and some number of groups: all drawn from seed and the kernel's text, none
 * included. 0: what lowerings do for other devices, the usual passes under the schedule of the
 * rule of thumb. BERYL_TEST_SHOW=1 prints what was drawn, and each kernel before and after. */
void interpreter_draw(device *d, uint64_t seed);
uint64_t interpreter_drawn(const device *d); /* the seed; of another device, or NULL: 0 */

#endif
