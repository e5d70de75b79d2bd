/* node.h - which kernel a node gets: one written by hand in WGSL, or one generated from
 * IR. */
#ifndef PLAN_NODE_H
#define PLAN_NODE_H

#include "plan/exec.h"
#include "tile/fused.h"

/* Records a node's steps: kernels written by hand first, unless all are generated; what they
 * refuse is generated. */
beryl_status lower_node(lowering *l, const graph_node *node, beryl_error *error);
/* Are all kernels of the store's plans generated? Where the device takes no WGSL, or
 * BERYL_KERNELS (environment) says so. */
bool lower_generated(const graph_store *store);
/* What those can join. */
const fused_forms *fused_forms_of(const graph_store *store);
/* Refuses a device that runs no programs, and another word in BERYL_KERNELS. *language: of
 * generated kernels. */
beryl_status lower_language(const graph_store *store, device_language *language,
                            beryl_error *error);
/* Languages with kernels for an operation: bits as of device_caps. */
uint32_t lower_languages(base_op op);
/* The pass over trees of small operations (plan/pass_chain.c), where a plan may have generated
 * kernels. */
beryl_status lower_chains(graph *g, graph_store *store, const graph_exec_options *options,
                          beryl_error *error);

#endif
