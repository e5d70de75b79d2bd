/* tower.h - what the towers of pictures and of sound share: keys, clamped products, vectors, and
 * how they enter a graph. For gemma4/ alone. */
#ifndef GEMMA4_TOWER_H
#define GEMMA4_TOWER_H

#include "gemma4/tensors.h"

/* A product whose input and result may be clamped: by four stored numbers (least and largest of the
 * input, of the result), or by elements at .. at + 3 of one stored list. */
typedef struct gemma4_clamped {
    uint32_t weight;
    uint32_t clamp[4]; /* GEMMA4_NONE: not clamped */
    uint32_t at;       /* GEMMA4_NONE: numbers */
} gemma4_clamped;

enum { TOWER_CLAMPS = 4 };

/* Key `name` of "gemma4.SENSE." or "clip.SENSE.", least .. most; BAD_FILE: missing, UNSUPPORTED:
 * another value. */
beryl_status gemma4_tower_key(const format_gguf *gguf, const char *sense, const char *name,
                              uint32_t least, uint32_t most, uint32_t *out, beryl_error *error);
/* PREFIXname.weight [out, in] with its clamps. packed: a stored list of clamps, of which it is
 * product `number`; GEMMA4_NONE: they stand beside it, or there are none. */
gemma4_clamped gemma4_tower_product_add(gemma4_adding *a, const char *prefix, const char *name,
                                        uint32_t out, uint32_t in, uint32_t group, uint32_t packed,
                                        uint32_t number);
/* PREFIXname [n], F32. */
uint32_t gemma4_tower_vector_add(gemma4_adding *a, const char *prefix, const char *name, uint32_t n,
                                 bool optional);

typedef struct gemma4_tower { /* of one graph */
    graph *g;
    const graph_store *store;
    float eps;
} gemma4_tower;

graph_dim gemma4_tower_dim(uint32_t size);                              /* a constant */
graph_value gemma4_tower_stored(const gemma4_tower *b, uint32_t index); /* NONE: 0 */
graph_value gemma4_tower_norm(const gemma4_tower *b, graph_value x, uint32_t weight); /* rms */
graph_value gemma4_tower_linear(const gemma4_tower *b, graph_value x, const gemma4_clamped *p);

#endif
