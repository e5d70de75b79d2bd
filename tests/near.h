/* near.h - how near generated code's numbers have to be to the interpreter's. */
#ifndef TESTS_NEAR_H
#define TESTS_NEAR_H

#include "device/device.h"
#include "ir/ir.h"

uint64_t near_element(const void *data, ir_type type, size_t at);
double near_smallest(ir_type type); /* normal number */
bool near_enough(ir_type type, ir_exact exact, uint64_t got, uint64_t want);
/* Words of two halves, from words: with one rounding or two, of the larger term; what is not finite
 * is left open in WGSL. */
bool near_halves(device_language language, ir_op op, uint64_t got, uint64_t want,
                 const uint64_t in[3]);

#endif
