/* matvec_fused.h - products with few vectors on GPUs. */
#ifndef TILE_MATVEC_FUSED_H
#define TILE_MATVEC_FUSED_H

#include "tile/fused.h"
#include "tile/tree.h"

bool tile_matvec_fits(const graph *g, const graph_store *store, const lower_settings *settings,
                      const fused_matvec *f, const graph_region *r);
/* Which result of a FUSED_MATVEC node goes to the one product that reads it as int8 blocks, in its
 * own memory; 0: none. */
graph_value tile_matvec_handed_on(const graph *g, const graph_store *store,
                                  const lower_settings *settings, const graph_node *node);
lower_fn tile_fused_matvec; /* a node of kind FUSED_MATVEC */
/* A linear, alone or with a tree at its end (NULL: none), as the plan's `node`; taken false:
 * there is no such form for it (many vectors, odd rows, a device with one lane a workgroup). */
beryl_status tile_matvec_node(lowering *l, const graph_node *product, const tree *end, bool *taken);

/* Can it add what a product of low rank says (plan/pass_low.c)? */
bool tile_matvec_adds(const lowering *l, const graph_node *product, const tree *end);

/* The same where a lane does whole rows (processors, software): tile/linear.c. */
bool tile_joined_fits(const lowering *l, const graph_region *r);
beryl_status tile_joined(lowering *l, const graph_region *r);

#endif
