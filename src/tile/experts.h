/* experts.h - which experts a vector goes to, chosen by a workgroup; and the joined
 * forms around it (tile/fused.h). */
#ifndef TILE_EXPERTS_H
#define TILE_EXPERTS_H

#include "tile/fused.h"
#include "tile/kernel.h"

typedef struct tile_choice {
    ir_memory keys, chosen, values; /* of the workgroup: an order a logit; by rank: expert, logit */
    uint32_t d, n;                  /* logits; experts to choose */
    ir_id factor;
} tile_choice;

void tile_choice_open(tile_choice *c, ir_builder *b, uint32_t d, uint32_t n, ir_id factor);
uint32_t tile_choice_bytes(uint32_t d, uint32_t n);
/* The whole workgroup chooses among logits[at] .. logits[at + d - 1]. Ends with a barrier. */
void tile_choice_make(const tile_choice *c, tile_kernel *k, ir_memory logits, ir_id at);
/* Stores ids and gates of rank 0 .. n - 1 from these places on. The whole workgroup; no barrier. */
void tile_choice_store(const tile_choice *c, tile_kernel *k, ir_memory scales, ir_id scales_at,
                       ir_memory ids, ir_id ids_at, ir_memory gates, ir_id gates_at);

bool tile_router_fits(const graph *g, const graph_store *store, const fused_router *f);
bool tile_experts_fits(const graph *g, const graph_store *store, const lower_settings *settings,
                       const fused_experts *f, const graph_region *r);
lower_fn tile_fused_router, tile_fused_experts;

#endif
