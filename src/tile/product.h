/* product.h - matrices of products, and products with a tree of pointwise operations at their
 * end. */
#ifndef TILE_PRODUCT_H
#define TILE_PRODUCT_H

#include "tile/tree.h"

/* A matrix as it lies: whole rows of a stored weight, or dense in other memory. */
typedef struct tile_matrix {
    graph_value value;
    base_type type;
    const store_tensor *stored; /* weight; NULL: other memory */
    uint32_t m, k, first;       /* first: row of the stored tensor where a view begins */
} tile_matrix;
/* false: no such matrix, or of a type that no kernel reads. */
bool tile_matrix_of(const lowering *l, graph_value v, tile_matrix *w);

/* A product of n vectors, which lie `stride` apart, with a matrix of values, where that is faster:
 * units take F32 in limbs (tile/contract_copy.c), or a processor packs short lines. false: it is
 * not made. */
bool tile_contract_linear(lowering *l, lower_count n, uint32_t stride, beryl_status *status);
/* Would it be? Pure. */
bool tile_contract_takes_linear(const lowering *l, const graph_node *node, lower_count n,
                                uint32_t stride);

/* `node`: what the plan has; the product is the tree's. */
beryl_status tile_product(lowering *l, const tree *t);
/* Is there a kernel of the product that takes the tree, and is that not slower than two? Pure. */
bool tile_product_fits(const graph *g, const graph_store *store, const tree *t);

#endif
