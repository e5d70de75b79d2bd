/* lower.h - the hand-written kernels: how each operation takes one. */
#ifndef KERNELS_LOWER_LOWER_H
#define KERNELS_LOWER_LOWER_H

#include "tile/fused.h"
#include "tile/lower.h"

extern lower_fn *const lower_written[OP_COUNT]; /* NULL: there is no kernel */
extern const fused_forms fused_forms_written;

lower_fn lower_gather_rows, lower_copy, lower_pointwise, lower_matmul_tiled, lower_rms_norm,
    lower_softmax, lower_topk, lower_weighted_sum, lower_matmul, lower_matmul_id, lower_rope,
    lower_kv_write, lower_attention, lower_argmax, lower_sample, lower_set_rows, lower_fused,
    lower_fused_matvec, lower_fused_attention, lower_fused_router, lower_fused_experts;

bool lower_matvec_fits(const graph *g, const graph_store *store, const lower_settings *settings,
                       const fused_matvec *f, const graph_region *r);
graph_value lower_matvec_handed_on(const graph *g, const graph_store *store,
                                   const lower_settings *settings, const graph_node *node);
bool lower_attention_fits(const graph *g, const graph_store *store, const lower_settings *settings,
                          const fused_attention *f);
bool lower_experts_fits(const graph *g, const graph_store *store, const lower_settings *settings,
                        const fused_experts *f, const graph_region *r);
uint32_t lower_attention_splits(const graph *g, const graph_store *store, const fused_attention *f);

#endif
