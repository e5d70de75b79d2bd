/* lower_node.c - the tables of lowerings, and the one condition for generated kernels: a module for browsers links nothing that makes
 * them. */
#include "graph/lower_node.h"
#include "base/error.h"
#include "graph/fused.h"
#ifndef __wasm__
#include "graph/lower_ir.h"
#endif
#include "graph/pass.h"
#include "graph/plan_record.h"

static lower_fn *const lower_table[OP_COUNT] = {
    [OP_GATHER_ROWS] = lower_gather_rows, [OP_COPY] = lower_copy, [OP_ADD] = lower_pointwise, [OP_MUL] = lower_pointwise,
    [OP_SCALE] = lower_pointwise, [OP_GELU_TANH] = lower_pointwise, [OP_GEGLU] = lower_pointwise, [OP_SOFTCAP] = lower_pointwise,
    [OP_RMS_NORM] = lower_rms_norm, [OP_SOFTMAX] = lower_softmax, [OP_TOPK] = lower_topk, [OP_WEIGHTED_SUM] = lower_weighted_sum,
    [OP_MATMUL] = lower_matmul, [OP_MATMUL_ID] = lower_matmul_id, [OP_ROPE] = lower_rope, [OP_KV_WRITE] = lower_kv_write,
    [OP_ATTENTION] = lower_attention, [OP_ARGMAX] = lower_argmax, [OP_SAMPLE] = lower_sample, [OP_SET_ROWS] = lower_set_rows,
    [OP_FUSED] = lower_fused,
};

#ifdef __wasm__
beryl_status lower_language(const graph_store *store, device_language *language, beryl_error *error) {
    (void)store, (void)error;
    *language = DEVICE_WGSL;
    return BERYL_OK;
}

bool lower_generated(const graph_store *store) {
    (void)store;
    return false;
}

beryl_status lower_chains(graph *g, graph_store *store, const graph_exec_options *options, beryl_error *error) {
    (void)g, (void)store, (void)options, (void)error;
    return BERYL_OK;
}

const fused_forms *fused_forms_of(const graph_store *store) {
    (void)store;
    return &fused_forms_written;
}

uint32_t lower_languages(base_op op) {
    return lower_table[op] ? DEVICE_LANGUAGE_BIT(DEVICE_WGSL) : 0;
}

beryl_status lower_node(lowering *l, const graph_node *node, beryl_error *error) {
    lower_fn *lower = lower_table[node->op];
    return lower ? lower(l, node, error) : lower_refuse(l, node, "there is no kernel", error);
}
#else
uint32_t lower_languages(base_op op) {
    return (lower_table[op] ? DEVICE_LANGUAGE_BIT(DEVICE_WGSL) : 0) | (lower_ir_table[op] ? DEVICE_LANGUAGE_BIT(DEVICE_LANGUAGE_COUNT) - 1 : 0);
}

bool lower_generated(const graph_store *store) {
    return store->kernels == STORE_KERNELS_GENERATED || !(device_caps_of(store->device)->languages & DEVICE_LANGUAGE_BIT(DEVICE_WGSL));
}

const fused_forms *fused_forms_of(const graph_store *store) {
    return store->device && lower_generated(store) ? &fused_forms_generated : &fused_forms_written;
}

beryl_status lower_language(const graph_store *store, device_language *language, beryl_error *error) {
    const uint32_t languages = device_caps_of(store->device)->languages;
    if (store->kernels == STORE_KERNELS_UNKNOWN)
        return base_fail(error, BERYL_BAD_INPUT, "BERYL_KERNELS has another word: there are generated and written");
    uint32_t first = 0;
    while (first < DEVICE_LANGUAGE_COUNT && !(languages >> first & 1)) first++;
    *language = (device_language)first;
    return languages ? BERYL_OK : base_fail(error, BERYL_UNSUPPORTED, "the device runs no programs");
}

beryl_status lower_chains(graph *g, graph_store *store, const graph_exec_options *options, beryl_error *error) {
    const bool generated = lower_generated(store);
    return options->chains || generated ? graph_pass_chains(g, store, options->chains && generated, error) : BERYL_OK;
}

/* With what tuning found; by the rules where a number of it may not be. */
static beryl_status generate(lowering *l, const graph_node *node, lower_fn *lower, plan_mark before, beryl_error *error) {
    lower_choices found;
    beryl_status status = lower_ir_choices_find(l, node, lower, &found, error);
    if (status != BERYL_OK) return status;
    plan_record_back(l->record, before);
    l->choices = found.n_given || found.draws ? &found : NULL;
    status = lower(l, node, error);
    l->choices = NULL;
    if (!found.refused) return status;
    ir_cache_doubt(l->store->schedules);
    plan_record_back(l->record, before);
    return lower(l, node, error);
}

/* A joined node is of the kind whose forms the pass asked for; any other may be of both. */
beryl_status lower_node(lowering *l, const graph_node *node, beryl_error *error) {
    const bool joined = node->op == OP_FUSED, chain = joined && node->attr.fused.kind == FUSED_CHAIN, all = lower_generated(l->store);
    lower_fn *written = all || chain ? NULL : lower_table[node->op], *generated = all || chain || !joined ? lower_ir_table[node->op] : NULL;
    const plan_mark before = plan_record_mark(l->record);
    beryl_error why;
    beryl_status status = written ? written(l, node, &why) : lower_refuse(l, node, "there is no kernel", &why);
    if (status == BERYL_UNSUPPORTED && generated) {
        plan_record_back(l->record, before);
        status = generate(l, node, generated, before, &why);
    }
    if (status != BERYL_OK && error) *error = why;
    return status;
}
#endif
