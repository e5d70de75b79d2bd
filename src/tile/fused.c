/* fused.c - which joined forms there are, and which lowering a
 * fused node takes. */
#include "base/build.h"
#include "base/error.h"
#include "tile/fused.h"
#include "tile/attention.h"
#include "tile/dots.h"
#include "tile/experts.h"
#include "tile/matvec_fused.h"

bool tile_fused_matvec_fits(const graph *g, const graph_store *store,
                            const lower_settings *settings, const fused_matvec *f,
                            const graph_region *r) {
    return (!f->attention && tile_dots_joined_fits(g, store, settings, r)) ||
           tile_matvec_fits(g, store, settings, f, r);
}

beryl_status tile_fused(lowering *l, const graph_node *node) {
    if (node->attr.fused.kind == FUSED_MATVEC) {
        const fused_matvec *f = node->attr.fused.detail;
        const graph_region r = graph_region_of(l->g, node);
        if (!f->attention && tile_dots_joined_fits(l->g, l->store, &l->settings, &r))
            return tile_dots_joined(l, &r);
        return tile_fused_matvec(l, node);
    }
    if (node->attr.fused.kind == FUSED_ATTENTION) return tile_fused_attention(l, node);
    if (node->attr.fused.kind == FUSED_ROUTER) return tile_fused_router(l, node);
    if (node->attr.fused.kind == FUSED_EXPERTS) return tile_fused_experts(l, node);
    if (node->attr.fused.kind == FUSED_CHAIN) return tile_chain(l, node);
    if (BUILD_HAS_TRAINING && node->attr.fused.kind == FUSED_UPDATE) return tile_update(l, node);
    return lower_refuse(l, node, "a kind that is not generated");
}
