/* graph_nn.c - beryl_nn.h: the graph's own layers and losses, where building is allowed. */
#include "beryl_nn.h"
#include "engine/graph_api.h"

beryl_value beryl_graph_selective_scan(beryl_graph *g, const beryl_selective_scan *scan,
                                       beryl_value *last) {
    if (last) *last = 0;
    if (!graph_api_may_build(g)) return 0;
    if (!scan) return graph_api_refuse(g, BERYL_MISUSE, "no inputs", "selective_scan");
    const graph_selective s = {scan->x, scan->dt, scan->a, scan->b, scan->c, scan->d, scan->first};
    return graph_selective_scan(g->g, &s, last);
}

beryl_value beryl_graph_gated_delta(beryl_graph *g, const beryl_gated_delta *rule,
                                    beryl_value *last) {
    if (last) *last = 0;
    if (!graph_api_may_build(g)) return 0;
    if (!rule) return graph_api_refuse(g, BERYL_MISUSE, "no inputs", "gated_delta");
    const graph_delta d = {rule->q, rule->k, rule->v, rule->decay, rule->beta, rule->first};
    return graph_gated_delta(g->g, &d, last);
}

beryl_value beryl_graph_loss(beryl_graph *g, beryl_loss kind, beryl_value x, beryl_value target,
                             float delta) {
    return graph_api_may_build(g) ? graph_loss(g->g, (graph_loss_kind)kind, x, target, delta) : 0;
}

beryl_value beryl_graph_nll(beryl_graph *g, beryl_value logs, beryl_value targets) {
    return graph_api_may_build(g) ? graph_nll(g->g, logs, targets) : 0;
}

beryl_value beryl_graph_triplet(beryl_graph *g, beryl_value anchor, beryl_value same,
                                beryl_value other, float margin) {
    return graph_api_may_build(g) ? graph_triplet(g->g, anchor, same, other, margin) : 0;
}
