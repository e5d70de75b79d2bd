/* model_make.h - whole Gemma 4 models of a few KB in memory, so small that the reference device
 * loads one and answers in milliseconds. Their weights are pseudo-random and the same on every
 * machine. Tests only: out of memory aborts.
 *
 *     size_t size; uint8_t *file = model_make(MODEL_MAKE_DENSE, &size);   // free(file)
 */
#ifndef TESTS_MODEL_MAKE_H
#define TESTS_MODEL_MAKE_H

#include "base/types.h"

/* name, text, what it has */
#define MODEL_MAKE_LIST(X)                                                                    \
    X(DENSE, "dense",                                                                         \
      "a sliding and a global layer, global values from the keys, suppressed tokens")         \
    X(SMALL, "small", "per-layer embeddings, shared caches, an output matrix, Q8_0 and Q4_0") \
    X(EXPERTS, "experts", "experts joined and apart, with scales, in types of 32 and 64")     \
    X(BLOCKS, "blocks", "the usual types in blocks of 256, projections joined")               \
    X(TABLES, "tables", "the other types in blocks of 256: IQ1, IQ2, IQ3 and TQ")

typedef enum model_make_kind {
#define X(name, text, what) MODEL_MAKE_##name,
    MODEL_MAKE_LIST(X)
#undef X
        MODEL_MAKE_COUNT
} model_make_kind;

const char *model_make_name(model_make_kind kind);
/* The file; caller frees. */
uint8_t *model_make(model_make_kind kind, size_t *size);
/* All matrices of one type, or the same numbers written out as F32. A few 100 KB. */
uint8_t *model_make_of(base_type type, bool written_out, size_t *size);

#endif
