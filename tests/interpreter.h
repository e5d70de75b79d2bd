/* interpreter.h - a device whose programs are printed kernel IR, run by the interpreter: for tests of what is lowered to
 * IR, with no code generator and no driver between. Buffers are host memory, submits run at once, on the caller's thread. */
#ifndef TESTS_INTERPRETER_H
#define TESTS_INTERPRETER_H

#include "device/device.h"

/* Closed with device_close. NULL: no memory. */
device *interpreter_open(base_heap *heap);
/* From now on every program goes through passes drawn at random before it runs, any subset in any order; 0: as it is. */
void interpreter_shuffle(device *d, uint64_t seed);

#endif
