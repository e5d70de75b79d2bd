/* node.h - from a node of the graph to steps of its plan. */
#ifndef PLAN_NODE_H
#define PLAN_NODE_H

#include "plan/exec.h"

/* Records a node's steps. */
beryl_status lower_node(lowering *l, const graph_node *node);
/* In what language kernels of the store's device are; a device that runs no programs is refused. */
beryl_status lower_language(const graph_store *store, device_language *language,
                            beryl_error *error);
/* Languages with kernels for an operation: bits as of device_caps. */
uint32_t lower_languages(base_op op);

#endif
