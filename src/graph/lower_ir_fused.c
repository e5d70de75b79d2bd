/* lower_ir_fused.c - which joined forms there are as generated kernels, and which lowering a fused node takes. */
#include "base/error.h"
#include "graph/fused.h"
#include "graph/lower_ir_attention.h"
#include "graph/lower_ir_experts.h"
#include "graph/lower_ir_matvec_fused.h"

static bool no_hands(const graph *g, const graph_store *store, const lower_settings *settings, const fused_matvec *f) {
    (void)g, (void)store, (void)settings, (void)f;
    return false;
}

const fused_forms fused_forms_generated = {.matvec = lower_ir_matvec_fits, .hands = no_hands, .attention = lower_ir_attention_fits,
                                           .splits = lower_ir_attention_splits,
                                           .experts = lower_ir_experts_fits, .router = lower_ir_router_fits};

beryl_status lower_ir_fused(lowering *l, const graph_node *node, beryl_error *error) {
    if (node->attr.fused.kind == FUSED_MATVEC) return lower_ir_fused_matvec(l, node, error);
    if (node->attr.fused.kind == FUSED_ATTENTION) return lower_ir_fused_attention(l, node, error);
    if (node->attr.fused.kind == FUSED_ROUTER) return lower_ir_fused_router(l, node, error);
    if (node->attr.fused.kind == FUSED_EXPERTS) return lower_ir_fused_experts(l, node, error);
    if (node->attr.fused.kind == FUSED_CHAIN) return lower_ir_chain(l, node, error);
    return lower_refuse(l, node, "a kind that is not generated", error);
}
