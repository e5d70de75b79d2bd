/* tower.c - see tower.h. */
#include "gemma4/tower.h"

#include "base/error.h"

#include <stdio.h>

beryl_status gemma4_tower_key(const format_gguf *gguf, const char *sense, const char *name,
                              uint32_t least, uint32_t most, uint32_t *out, beryl_error *error) {
    const char *const prefixes[] = {"gemma4", "clip"};
    char full[96];
    beryl_status status = BERYL_NOT_FOUND;
    for (size_t i = 0; i < 2 && status == BERYL_NOT_FOUND; i++) {
        snprintf(full, sizeof full, "%s.%s.%s", prefixes[i], sense, name);
        status = format_gguf_get_u32(gguf, full, out, error);
    }
    if (status == BERYL_NOT_FOUND)
        return base_fail(error, BERYL_BAD_FILE, "%s: key '%s' is missing", sense, name);
    if (status == BERYL_OK && (*out < least || *out > most))
        return base_fail(error, BERYL_UNSUPPORTED, "%s: %s is %u, not %u to %u", sense, name, *out,
                         least, most);
    return status;
}

gemma4_clamped gemma4_tower_product_add(gemma4_adding *a, const char *prefix, const char *name,
                                        uint32_t out, uint32_t in, uint32_t group, uint32_t packed,
                                        uint32_t number) {
    static const char *const kinds[TOWER_CLAMPS] = {"input_min", "input_max", "output_min",
                                                    "output_max"};
    char full[64];
    gemma4_clamped p;
    snprintf(full, sizeof full, "%s.weight", name);
    p.weight = gemma4_tensor_add(
        a, prefix, (gemma4_wanted){.name = full, .rank = 2, .dim = {out, in}, .group = group});
    p.at = packed == GEMMA4_NONE ? GEMMA4_NONE : number * TOWER_CLAMPS;
    for (uint32_t i = 0; i < TOWER_CLAMPS; i++) {
        p.clamp[i] = packed;
        if (packed != GEMMA4_NONE) continue;
        snprintf(full, sizeof full, "%s.%s", name, kinds[i]);
        p.clamp[i] = gemma4_tensor_add(
            a, prefix,
            (gemma4_wanted){.name = full, .rank = 1, .dim = {1}, .plain = true, .optional = true});
    }
    return p;
}

uint32_t gemma4_tower_vector_add(gemma4_adding *a, const char *prefix, const char *name, uint32_t n,
                                 bool optional) {
    return gemma4_tensor_add(
        a, prefix,
        (gemma4_wanted){.name = name, .rank = 1, .dim = {n}, .plain = true, .optional = optional});
}

graph_dim gemma4_tower_dim(uint32_t size) {
    return (graph_dim){size, 0};
}

graph_value gemma4_tower_stored(const gemma4_tower *b, uint32_t index) {
    return index == GEMMA4_NONE ? 0 : graph_stored(b->g, b->store, index);
}

graph_value gemma4_tower_norm(const gemma4_tower *b, graph_value x, uint32_t weight) {
    return graph_rms_norm(b->g, x, gemma4_tower_stored(b, weight), b->eps);
}

/* Bound `i` of a product as a value that is broadcast. */
static graph_value bound_of(const gemma4_tower *b, const gemma4_clamped *p, uint32_t i) {
    const graph_value all = gemma4_tower_stored(b, p->clamp[i]);
    return p->at == GEMMA4_NONE ? all : graph_narrow(b->g, all, 0, p->at + i, 1, 1);
}

static graph_value clamp(const gemma4_tower *b, graph_value x, const gemma4_clamped *p,
                         uint32_t i) {
    if (p->clamp[i] != GEMMA4_NONE) x = graph_max(b->g, x, bound_of(b, p, i));
    if (p->clamp[i + 1] != GEMMA4_NONE) x = graph_min(b->g, x, bound_of(b, p, i + 1));
    return x;
}

graph_value gemma4_tower_linear(const gemma4_tower *b, graph_value x, const gemma4_clamped *p) {
    x = graph_linear(b->g, clamp(b, x, p, 0), gemma4_tower_stored(b, p->weight));
    const uint32_t scale = b->store->tensors.data[p->weight].scale;
    if (scale != GEMMA4_NONE) x = graph_mul(b->g, x, gemma4_tower_stored(b, scale));
    return clamp(b, x, p, 2);
}
