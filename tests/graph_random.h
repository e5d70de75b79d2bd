/* graph_random.h - random graphs, as text (graph/text.h): everything that the builder takes, and
 * the shapes that passes join (gated products, decode attention, experts, chains). */
#ifndef TESTS_GRAPH_RANDOM_H
#define TESTS_GRAPH_RANDOM_H

#include "base/memory.h"

/* Up to `most` operations, or a few more where one step takes several. The same seed gives the
 * same graph, from the same compiler. false: no memory, or the builder refused (a comment in
 * `out`). */
bool graph_random(base_text *out, uint64_t seed, uint32_t most);

#endif
