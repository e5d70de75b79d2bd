/* lower_fused.c - which lowering a fused node takes, by its kind. */
#include "base/error.h"
#include "graph/fused.h"
#include "graph/lower.h"

beryl_status lower_fused(lowering *l, const graph_node *node, beryl_error *error) {
    switch ((fused_kind)node->attr.fused.kind) {
    case FUSED_MATVEC: return lower_fused_matvec(l, node, error);
    case FUSED_ATTENTION: return lower_fused_attention(l, node, error);
    case FUSED_EXPERTS: return lower_fused_experts(l, node, error);
    case FUSED_ROUTER: return lower_fused_router(l, node, error);
    }
    return base_fail(error, BERYL_UNSUPPORTED, "a fused operation of kind %u", node->attr.fused.kind);
}
