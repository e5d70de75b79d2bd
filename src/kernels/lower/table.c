/* table.c - which lowering an operation takes, and a fused node by its kind: hand-written
 * kernels. */
#include "base/error.h"
#include "kernels/lower/lower.h"

const fused_forms fused_forms_written = {.matvec = lower_matvec_fits,
                                         .handed_on = lower_matvec_handed_on,
                                         .attention = lower_attention_fits,
                                         .splits = lower_attention_splits,
                                         .experts = lower_experts_fits,
                                         .router = lower_router_fits};

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

lower_fn *const lower_written[OP_COUNT] = {
    [OP_GATHER_ROWS] = lower_gather_rows,
    [OP_COPY] = lower_copy,
    [OP_ADD] = lower_pointwise,
    [OP_MUL] = lower_pointwise,
    [OP_SCALE] = lower_pointwise,
    [OP_GELU_TANH] = lower_pointwise,
    [OP_GEGLU] = lower_pointwise,
    [OP_SOFTCAP] = lower_pointwise,
    [OP_RMS_NORM] = lower_rms_norm,
    [OP_SOFTMAX] = lower_softmax,
    [OP_TOPK] = lower_topk,
    [OP_WEIGHTED_SUM] = lower_weighted_sum,
    [OP_MATMUL] = lower_matmul,
    [OP_MATMUL_ID] = lower_matmul_id,
    [OP_ROPE] = lower_rope,
    [OP_KV_WRITE] = lower_kv_write,
    [OP_ATTENTION] = lower_attention,
    [OP_ARGMAX] = lower_argmax,
    [OP_SAMPLE] = lower_sample,
    [OP_SET_ROWS] = lower_set_rows,
    [OP_FUSED] = lower_fused,
};
