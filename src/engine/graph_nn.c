/* graph_nn.c - beryl_nn.h: weights of whole numbers as blocks of the store, and the graph's own
 * layers and losses, where building is allowed. */
#include "beryl_nn.h"
#include "engine/graph_api.h"

#include <string.h>

/* ---- weights of whole numbers ---------------------------------------------------------------- */

enum { AFFINE_BLOCK = 32 };

/* A block's scale and offset of what it keeps: signed codes of 8 bits, unsigned ones of 4. */
static void put_factors(uint8_t *block, const beryl_affine *how, uint64_t group) {
    const double scale = (double)how->scales[group],
                 zero = how->zeros ? (double)how->zeros[group] : 0,
                 level = how->bits == 8 ? (how->is_signed ? 0 : 128) : (how->is_signed ? -8 : 0);
    const float factors[2] = {(float)scale, (float)(scale * (level - zero))};
    memcpy(block, factors, sizeof factors);
}

/* 32 codes, of 4 bits those of two runs of 16 side by side. */
static void put_codes(uint8_t *to, const uint8_t *codes, const beryl_affine *how) {
    const uint32_t flip = how->bits == 8 ? (how->is_signed ? 0 : 128) : (how->is_signed ? 0x88 : 0);
    if (how->bits == 8) {
        for (uint32_t i = 0; i < AFFINE_BLOCK; i++) to[i] = (uint8_t)(codes[i] ^ flip);
        return;
    }
    for (uint32_t i = 0; i < AFFINE_BLOCK / 2; i++) {
        const uint32_t low = codes[i / 2] >> i % 2 * 4 & 15,
                       high = codes[8 + i / 2] >> i % 2 * 4 & 15;
        to[i] = (uint8_t)((low | high << 4) ^ flip);
    }
}

beryl_value beryl_graph_weight_affine(beryl_graph *g, const char *name, uint32_t rank,
                                      const uint32_t *dims, const void *codes, size_t size,
                                      const beryl_affine *how) {
    static const char what[] = "weight_affine";
    if (!graph_api_may_build(g)) return 0;
    if (!codes || !dims || !how || !how->scales || !rank || rank > QUANTISED_RANK_MAX ||
        (how->bits != 8 && how->bits != 4))
        return graph_api_refuse(g, BERYL_MISUSE, "1 to 4 dimensions, codes of 8 or 4 bits, scales",
                                what);
    const uint32_t k = dims[rank - 1], group = how->group ? how->group : k;
    if (!k || k % AFFINE_BLOCK)
        return graph_api_refuse(g, BERYL_UNSUPPORTED, "rows are a multiple of 32", what);
    if (group % AFFINE_BLOCK || k % group)
        return graph_api_refuse(g, BERYL_MISUSE, "groups of a multiple of 32 that divides rows",
                                what);
    uint64_t blocks = k / AFFINE_BLOCK;
    for (uint32_t i = 0; i + 1 < rank; i++)
        if (!dims[i] || (blocks *= dims[i]) > UINT32_MAX)
            return graph_api_refuse(g, BERYL_MISUSE, "a dimension of 0, or too many", what);
    const size_t from_bytes = AFFINE_BLOCK * how->bits / 8, each = 8 + from_bytes;
    if (size != blocks * from_bytes)
        return graph_api_refuse(g, BERYL_MISUSE, "codes of another size than the shape's", what);
    uint8_t *made = base_arena_take(&g->arena, (size_t)blocks, each);
    if (!made) return graph_api_refuse(g, BERYL_NO_MEMORY, "out of host memory", what);
    for (uint64_t i = 0; i < blocks; i++) {
        put_factors(made + i * each, how, i / (group / AFFINE_BLOCK));
        put_codes(made + i * each + 8, (const uint8_t *)codes + i * from_bytes, how);
    }
    return beryl_graph_weight(g, name, how->bits == 8 ? BERYL_TYPE_AFFINE8 : BERYL_TYPE_AFFINE4,
                              rank, dims, made, (size_t)blocks * each);
}

/* ---- layers and losses ----------------------------------------------------------------------- */

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
