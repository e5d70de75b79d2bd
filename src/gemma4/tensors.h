/* tensors.h - tensors of a file that a model needs: found by name or alias, checked against the
 * shape that the configuration wants, added to a store. For gemma4/ alone. */
#ifndef GEMMA4_TENSORS_H
#define GEMMA4_TENSORS_H

#include "gemma4/gemma4.h"

typedef struct gemma4_adding { /* what every add needs */
    const format_gguf *gguf;
    graph_store *store;
    beryl_error *error;
    beryl_status status; /* of the first that failed: later ones do nothing */
    /* Group of the store for vectors. They lie together: a layer's first product needs norms of
     * the layer before as well, through one binding. */
    uint32_t vectors;
} gemma4_adding;

typedef struct gemma4_wanted { /* a tensor as the configuration wants it */
    const char *name, *alias;
    uint32_t rank, dim[3]; /* row-major */
    bool flat;             /* rank 2: the file may have dim[1] as several dimensions */
    bool plain;            /* F32 alone: norms and scales */
    bool optional, on_host;
    uint32_t group; /* of the store */
} gemma4_wanted;

const format_gguf_tensor *gemma4_tensor_find(const format_gguf *gguf, const char *prefix,
                                             const char *name, const char *alias);
/* Index in the store; GEMMA4_NONE where an optional one is missing or after an error. A matrix
 * brings along the scale beside it, X.scale to X.weight. */
uint32_t gemma4_tensor_add(gemma4_adding *a, const char *prefix, gemma4_wanted w);

#endif
