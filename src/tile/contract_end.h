/* contract_end.h - trees of pointwise operations that end a contraction (tile/contract.c): each
 * element as it is made. For tile/ alone. */
#ifndef TILE_CONTRACT_END_H
#define TILE_CONTRACT_END_H

#include "tile/tree.h"

typedef struct contract_end {
    graph_value sums;
    tree_walk walk;
    graph_tensor seen[LOWER_WALK_TENSORS]; /* the tree's tensors, with axes as the sums have them */
    uint32_t n;                            /* of these; 0: the sums are all */
} contract_end;

/* t: whose product is the contraction that makes the sums; NULL: none. false: the tree's axes are
 * not the sums'. */
bool contract_end_of(contract_end *end, graph_value sums, const tree *t);
/* Binds what the kernel stores and what the tree reads. Gives the sums, where they are all. */
ir_memory contract_end_declare(contract_end *end, tile_kernel *k);
/* at [1 + n]: where the sums begin, and each of the tree's tensors */
void contract_end_begin(contract_end *end, tile_kernel *k, ir_id *at);
/* Stores the results of this sum. */
void contract_end_store(contract_end *end, tile_kernel *k, ir_memory out, const ir_id *at,
                        ir_id sum);

/* As tile_product and tile_product_fits; end NULL: the node is the contraction. */
beryl_status tile_contract_product(lowering *l, const tree *end);
bool tile_contract_product_fits(const lowering *l, const tree *t);

#endif
