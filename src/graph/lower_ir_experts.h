/* lower_ir_experts.h - which experts a vector goes to, chosen by a workgroup; and the joined forms around it (fused.h). */
#ifndef GRAPH_LOWER_IR_EXPERTS_H
#define GRAPH_LOWER_IR_EXPERTS_H

#include "graph/fused.h"
#include "graph/lower_ir.h"

typedef struct lower_ir_choice {
    ir_memory keys, chosen, values; /* of the workgroup: an order a logit; by rank: expert, logit */
    uint32_t d, n;                  /* logits; experts to choose */
    ir_id factor;
} lower_ir_choice;

void lower_ir_choice_open(lower_ir_choice *c, lower_ir *k, uint32_t d, uint32_t n, ir_id factor);
uint32_t lower_ir_choice_bytes(uint32_t d, uint32_t n);
/* The whole workgroup chooses among logits[at] .. logits[at + d - 1]. Ends with a barrier. */
void lower_ir_choice_make(const lower_ir_choice *c, lower_ir *k, ir_memory logits, ir_id at);
/* Stores ids and gates of rank 0 .. n - 1 from these places on. The whole workgroup; no barrier. */
void lower_ir_choice_store(const lower_ir_choice *c, lower_ir *k, ir_memory scales, ir_id scales_at, ir_memory ids, ir_id ids_at,
                           ir_memory gates, ir_id gates_at);

bool lower_ir_router_fits(const graph *g, const graph_store *store, const fused_router *f);
bool lower_ir_experts_fits(const graph *g, const graph_store *store, const lower_settings *settings, const fused_experts *f);
lower_fn lower_ir_fused_router, lower_ir_fused_experts;

#endif
