/* interpreter.h - a device whose programs are printed kernel IR, run by the interpreter: for tests of what is lowered to
 * IR, with no code generator and no driver between. Buffers are host memory, submits run at once, on the caller's thread. */
#ifndef TESTS_INTERPRETER_H
#define TESTS_INTERPRETER_H

#include "device/device.h"

/* Closed with device_close. NULL: no memory. */
device *interpreter_open(base_heap *heap);

#endif
