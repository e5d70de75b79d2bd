/* lower_fused.c - which lowering a fused node takes, by its kind: hand-written kernels. */
#include "base/error.h"
#include "graph/fused.h"
#include "graph/lower.h"

const fused_forms fused_forms_written = {.matvec = lower_matvec_fits, .hands = lower_matvec_hands, .attention = lower_attention_fits,
                                         .splits = lower_attention_splits, .experts = lower_experts_fits, .router = lower_router_fits};

beryl_status lower_fused(lowering *l, const graph_node *node, beryl_error *error) {
    switch ((fused_kind)node->attr.fused.kind) {
    case FUSED_MATVEC: return lower_fused_matvec(l, node, error);
    case FUSED_ATTENTION: return lower_fused_attention(l, node, error);
    case FUSED_EXPERTS: return lower_fused_experts(l, node, error);
    case FUSED_ROUTER: return lower_fused_router(l, node, error);
    case FUSED_CHAIN: break; /* generated alone */
    }
    return lower_refuse(l, node, "a kind that is generated alone", error);
}
