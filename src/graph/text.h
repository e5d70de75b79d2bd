/* text.h - a graph as text, exact both ways, for tests that are kept and for `beryl explain
 * GRAPH`.
 *
 *     ; what begins with a semicolon is a comment
 *     extent n 7
 *     %1 = input F32 [n 64] "x"
 *     %2 = weight Q4_0 [96 64] "w"
 *     %3 = state F16 [2 50 3 32] "keys"
 *     %4 = linear %1 %2
 *     %5 = reshape %4 [n 3 32]
 *     %6 = narrow %5 1 0 2
 *     %7 = scale %6 0x1p-3
 *     output %7 "y"
 *
 * A dimension is a number, an extent, or made of them: `n+1`, `2*n*m`, `ceil((n+1)/2)`, with
 * brackets where they are needed and no blanks. It is printed multiplied out (graph/extent.h).
 *
 * A line makes one value (topk: two). Numbers after the values are what beryl_graph.h's calls
 * take, in their order: narrow has axis, start and size. attention ends with scale and window (0
 * where a sixth value, `first`, is there: then the fifth is `last`),
 * `apart MOST` behind them is graph_attention_distinct_slots. Ids may be any numbers that were
 * not used before; the printer counts as the graph does. A graph has no numbers of its own: those
 * of its weights are the first file of the store, one weight after the other. */
#ifndef GRAPH_TEXT_H
#define GRAPH_TEXT_H

#include "graph/graph.h"
#include "graph/store.h"

enum { GRAPH_TEXT_ALIGN = 32 }; /* every weight begins at a multiple of so many bytes of file 0 */

/* A graph as it was built. UNSUPPORTED: passes have joined nodes of it. NO_MEMORY: `out` has
 * failed. */
beryl_status graph_text_print(const graph *g, const graph_store *store, base_text *out,
                              beryl_error *error);
/* Into an empty graph and a store that was just made; what it holds is theirs. Hostile text is
 * fine: BAD_INPUT, error->at is the byte. file_bytes: how long file 0 has to be. */
beryl_status graph_text_parse(const char *text, size_t size, graph *g, graph_store *store,
                              uint64_t *file_bytes, beryl_error *error);

#endif
