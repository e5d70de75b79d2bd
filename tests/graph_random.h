/* graph_random.h - random graphs of up to 30 operations, as text (graph/text.h): everything that the builder takes, and the
 * shapes that passes join (gated products, decode attention, experts, chains). */
#ifndef TESTS_GRAPH_RANDOM_H
#define TESTS_GRAPH_RANDOM_H

#include "base/memory.h"

/* The same seed gives the same graph, from the same compiler. false: no memory, or the builder refused (a comment in `out`). */
bool graph_random(base_text *out, uint64_t seed);

#endif
