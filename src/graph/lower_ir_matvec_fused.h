/* lower_ir_matvec_fused.h - generated products with few vectors on GPUs. */
#ifndef GRAPH_LOWER_IR_MATVEC_FUSED_H
#define GRAPH_LOWER_IR_MATVEC_FUSED_H

#include "graph/fused.h"
#include "graph/lower_ir_tree.h"

bool lower_ir_matvec_fits(const graph *g, const graph_store *store, const lower_settings *settings, const fused_matvec *f);
lower_fn lower_ir_fused_matvec; /* a node of kind FUSED_MATVEC */
/* A matmul, alone or with a tree at its end (NULL: none), as the plan's `node`; taken false: there is no such form for it (many
 * vectors, odd rows, a device with one lane a workgroup). */
beryl_status lower_ir_matvec_node(lowering *l, const graph_node *node, const graph_node *product, const tree *end, bool *taken, beryl_error *error);

/* The same where a lane does whole rows (processors, software): lower_ir_matmul.c. */
bool lower_ir_joined_fits(const lowering *l, const fused_matvec *f);
beryl_status lower_ir_joined(lowering *l, const graph_node *node, const fused_matvec *f, beryl_error *error);

#endif
