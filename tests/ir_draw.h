/* ir_draw.h - schedules and orders of passes by chance: what a kernel must be right under. */
#ifndef TESTS_IR_DRAW_H
#define TESTS_IR_DRAW_H

#include "ir/pass/pass.h"

enum { IR_DRAW_PASSES = 32, IR_DRAW_DIMS = 4 };

/* Below n. *state: not 0; every call changes it. */
uint32_t ir_draw(uint64_t *state, uint32_t n);
/* Anything that a schedule may say of the first IR_DRAW_DIMS dimensions, fragments and wide
 * vectors included. */
ir_schedule ir_draw_schedule(uint64_t *state);
/* None at all, all in the usual order, some of those, or any in any order; how many. */
size_t ir_draw_order(uint64_t *state, ir_pass order[IR_DRAW_PASSES]);

#endif
