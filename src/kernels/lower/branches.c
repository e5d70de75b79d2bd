/* branches.c - what joins the branches of a layer with experts, other than products: the
 * choice of experts, where the products with them do not choose themselves
 * (kernels/lower/experts_joined.c). One workgroup a row, whatever the device. */
#include "base/error.h"
#include "kernels/lower/lower.h"
#include "kernels/lower/request.h"

enum { WG_MIN = 32, WG_MAX = 256 };

/* A power of two that holds n, within bounds that every device has. */
static uint32_t workgroup_for(uint32_t n) {
    uint32_t wg = WG_MIN;
    while (wg < n && wg < WG_MAX) wg *= 2;
    return wg;
}

/* ---- the choice of experts ------------------------------------------------------------------- */

beryl_status lower_fused_router(lowering *l, const graph_node *node, beryl_error *error) {
    const fused_router *f = node->attr.fused.detail;
    if (!lower_router_fits(l->g, l->store, f))
        return lower_refuse(l, node, "this choice of experts", error);
    const graph_tensor *x = graph_tensor_at(l->g, f->logits);
    lower_request r = {.kernel.file = "router"};
    lower_request_number(&r, "WG", workgroup_for(x->dim[1].size));
    lower_request_number(&r, "FOURS", (x->dim[1].size + 3) / 4);
    lower_bytes(l, (uint64_t)f->k * 4);
    lower_step *s = lower_step_begin(l, node, &r.kernel);
    lower_bind(s, "logits", f->logits);
    lower_bind(s, "scales", f->scales);
    lower_bind(s, "ids", f->ids);
    lower_bind(s, "gates", f->gates);
    lower_count_param(s, "n", lower_count_of(x->dim[0]));
    lower_u32(s, "d", x->dim[1].size);
    lower_u32(s, "k", f->k);
    lower_u32(s, "x_offset", x->offset);
    lower_u32(s, "x0", x->stride[0]);
    lower_u32(s, "scales_offset", graph_tensor_at(l->g, f->scales)->offset);
    lower_f32(s, "factor", f->factor);
    lower_groups(s, lower_count_of(x->dim[0]), 1);
    return lower_step_end(s, error);
}
