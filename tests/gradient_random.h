/* gradient_random.h - random graphs of differentiable operations and views, and the gradients of a
 * number that they make. */
#ifndef TESTS_GRADIENT_RANDOM_H
#define TESTS_GRADIENT_RANDOM_H

#include "test.h"

enum { GRADIENT_STEPS = 12 };

/* The reference's gradients in double against central differences. A graph that is wrong is told
 * with its seed and the fewest steps that are wrong too. */
void gradient_random_check(test *t, uint64_t seed);

#endif
