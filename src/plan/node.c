/* node.c - from a node to its steps. */
#include "plan/node.h"
#include "base/build.h"
#include "base/error.h"
#include "plan/pass.h"
#include "tile/kernel.h"
#include "tile/record.h"

uint32_t lower_languages(base_op op) {
    return tile_lowering(op) ? DEVICE_LANGUAGE_BIT(DEVICE_LANGUAGE_COUNT) - 1 : 0;
}

beryl_status lower_language(const graph_store *store, device_language *language,
                            beryl_error *error) {
    const uint32_t languages = device_caps_of(store->device)->languages;
    uint32_t first = 0;
    while (first < DEVICE_LANGUAGE_COUNT && !(languages >> first & 1)) first++;
    *language = (device_language)first;
    return languages ? BERYL_OK
                     : base_fail(error, BERYL_UNSUPPORTED, "the device runs no programs");
}

/* With what tuning found; by the rules where a number of it may not be. */
beryl_status lower_node(lowering *l, const graph_node *node) {
    lower_fn *lower = tile_lowering(node->op);
    if (!lower) return lower_refuse(l, node, "there is no kernel");
    l->node = node;
    const plan_mark before = plan_record_mark(l->record);
    lower_choices found;
    beryl_status status = tile_choices_find(l, node, lower, &found);
    if (status != BERYL_OK) return status;
    plan_record_back(l->record, before);
    l->choices = found.n_given || found.draws ? &found : NULL;
    status = lower(l, node);
    l->choices = NULL;
    if (!BUILD_HAS_TUNING || !found.refused) return status;
    ir_cache_doubt(l->store->schedules);
    plan_record_back(l->record, before);
    return lower(l, node);
}
