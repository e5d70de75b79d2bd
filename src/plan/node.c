/* node.c - which kernel a node gets. */
#include "plan/node.h"
#include "base/build.h"
#include "base/error.h"
#include "kernels/lower/lower.h"
#include "plan/pass.h"
#include "tile/kernel.h"
#include "tile/record.h"

uint32_t lower_languages(base_op op) {
    return (lower_written[op] ? DEVICE_LANGUAGE_BIT(DEVICE_WGSL) : 0) |
           (tile_lowering(op) ? DEVICE_LANGUAGE_BIT(DEVICE_LANGUAGE_COUNT) - 1 : 0);
}

bool lower_generated(const graph_store *store) {
    return store->kernels == STORE_KERNELS_GENERATED ||
           !(device_caps_of(store->device)->languages & DEVICE_LANGUAGE_BIT(DEVICE_WGSL));
}

const fused_forms *fused_forms_of(const graph_store *store) {
    return store->device && lower_generated(store) ? &fused_forms_generated : &fused_forms_written;
}

beryl_status lower_language(const graph_store *store, device_language *language,
                            beryl_error *error) {
    const uint32_t languages = device_caps_of(store->device)->languages;
    if (store->kernels == STORE_KERNELS_UNKNOWN)
        return base_fail(error, BERYL_BAD_INPUT,
                         "BERYL_KERNELS has another word: there are generated and written");
    uint32_t first = 0;
    while (first < DEVICE_LANGUAGE_COUNT && !(languages >> first & 1)) first++;
    *language = (device_language)first;
    return languages ? BERYL_OK
                     : base_fail(error, BERYL_UNSUPPORTED, "the device runs no programs");
}

beryl_status lower_chains(graph *g, graph_store *store, const graph_exec_options *options,
                          beryl_error *error) {
    const bool generated = lower_generated(store);
    return options->chains || generated
               ? graph_pass_chains(g, store, options->chains && generated, error)
               : BERYL_OK;
}

/* With what tuning found; by the rules where a number of it may not be. */
static beryl_status generate(lowering *l, const graph_node *node, lower_fn *lower, plan_mark before,
                             beryl_error *error) {
    lower_choices found;
    beryl_status status = tile_choices_find(l, node, lower, &found, error);
    if (status != BERYL_OK) return status;
    plan_record_back(l->record, before);
    l->choices = found.n_given || found.draws ? &found : NULL;
    status = lower(l, node, error);
    l->choices = NULL;
    if (!BUILD_HAS_TUNING || !found.refused) return status;
    ir_cache_doubt(l->store->schedules);
    plan_record_back(l->record, before);
    return lower(l, node, error);
}

/* A joined node is of the kind whose forms the pass asked for; any other may be of both. */
beryl_status lower_node(lowering *l, const graph_node *node, beryl_error *error) {
    const bool joined = node->op == OP_FUSED,
               chain = joined && node->attr.fused.kind == FUSED_CHAIN,
               all = lower_generated(l->store);
    lower_fn *written = all || chain ? NULL : lower_written[node->op],
             *generated = all || chain || !joined ? tile_lowering(node->op) : NULL;
    const plan_mark before = plan_record_mark(l->record);
    beryl_error why;
    beryl_status status =
        written ? written(l, node, &why) : lower_refuse(l, node, "there is no kernel", &why);
    if (status == BERYL_UNSUPPORTED && generated) {
        plan_record_back(l->record, before);
        status = generate(l, node, generated, before, &why);
    }
    if (status != BERYL_OK && error) *error = why;
    return status;
}
