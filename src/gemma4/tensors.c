/* tensors.c - see tensors.h. */
#include "gemma4/tensors.h"

#include "base/error.h"

#include <stdio.h>
#include <string.h>

const format_gguf_tensor *gemma4_tensor_find(const format_gguf *gguf, const char *prefix,
                                             const char *name, const char *alias) {
    char full[128];
    snprintf(full, sizeof full, "%s%s", prefix, name);
    const format_gguf_tensor *t = format_gguf_tensor_find(gguf, full);
    if (t || !alias) return t;
    snprintf(full, sizeof full, "%s%s", prefix, alias);
    return format_gguf_tensor_find(gguf, full);
}

static bool is_layers_own(const char *name) {
#define X(field, own, alias) \
    if (!strcmp(name, own)) return true;
    GEMMA4_LAYER_LIST(X)
#undef X
    return false;
}

/* The number beside a matrix, X.scale to X.weight, that its products are multiplied with (one a
 * matrix where there are experts): such are quantised by scales so small that one for the whole
 * tensor stands above them. */
static void add_scale(gemma4_adding *a, const char *prefix, const gemma4_wanted *w,
                      uint32_t weight) {
    char name[64];
    snprintf(name, sizeof name, "%.*s.scale", (int)strcspn(w->name, "."), w->name);
    const format_gguf_tensor *t =
        is_layers_own(name) ? NULL : gemma4_tensor_find(a->gguf, prefix, name, NULL);
    if (!t) return;
    const uint32_t n = w->rank == 3 && t->ne[0] != 1 ? w->dim[0] : 1,
                   scale = gemma4_tensor_add(
                       a, prefix,
                       (gemma4_wanted){.name = name, .rank = 1, .dim = {n}, .plain = true});
    a->store->tensors.data[weight].scale = scale;
}

/* Index in the store; GEMMA4_NONE where an optional one is missing or after an error. */
uint32_t gemma4_tensor_add(gemma4_adding *a, const char *prefix, gemma4_wanted w) {
    if (a->status != BERYL_OK) return GEMMA4_NONE;
    const format_gguf_tensor *t = gemma4_tensor_find(a->gguf, prefix, w.name, w.alias);
    if (!t) {
        if (!w.optional)
            a->status =
                base_fail(a->error, BERYL_BAD_FILE, "tensor '%s%s' is missing", prefix, w.name);
        return GEMMA4_NONE;
    }
    uint64_t elements = t->ne[0] * t->ne[1] * t->ne[2] * t->ne[3], want = 1;
    bool fits = true;
    for (uint32_t i = 0; i < w.rank; i++) {
        want *= w.dim[i];
        fits &= t->ne[w.rank - 1 - i] == w.dim[i];
    }
    if (w.flat) fits = t->ne[t->n_dim - 1] == w.dim[0] || elements == t->ne[0] * w.dim[0];
    if (!fits || elements != want) {
        a->status =
            base_fail(a->error, BERYL_BAD_FILE,
                      "tensor '%s%s' has shape [%llu, %llu, %llu], not the one its model needs",
                      prefix, w.name, (unsigned long long)t->ne[0], (unsigned long long)t->ne[1],
                      (unsigned long long)t->ne[2]);
        return GEMMA4_NONE;
    }
    if (w.plain ? t->type != TYPE_F32 : !base_type_is_weight(t->type)) {
        a->status = base_fail(a->error, BERYL_UNSUPPORTED, "tensor '%s%s' has type %s", prefix,
                              w.name, base_type_name(t->type));
        return GEMMA4_NONE;
    }
    char full[128];
    snprintf(full, sizeof full, "%s%s", prefix, w.name);
    const uint32_t group = w.rank == 1 ? a->vectors : w.group;
    uint32_t index = store_add_weight(a->store, full, t->type, w.rank, w.dim, group, t->file,
                                      t->offset, w.on_host);
    if (index == UINT32_MAX) a->status = base_no_memory(a->error);
    else if (w.rank > 1) add_scale(a, prefix, &w, index);
    return index;
}
