/* products.h - products with the same vectors in a region: what makes the vectors before them, and
 * what becomes of their results. */
#ifndef TILE_PRODUCTS_H
#define TILE_PRODUCTS_H

#include "tile/fused.h"
#include "tile/tree.h"

typedef struct graph_products {
    graph_region before, after; /* after: with the products */
    graph_value x;              /* [n, k] */
    uint32_t n;
    graph_value w[FUSED_SEGMENT_MAX], out[FUSED_SEGMENT_MAX]; /* [rows, k], [n, rows] */
    /* of low rank, with another vector: what is added to a product (plan/pass_low.c): [n, r],
     * [rows, r]; 0: nothing */
    graph_value low[FUSED_SEGMENT_MAX], low_w[FUSED_SEGMENT_MAX];
    /* not 0: side [n, r] is factors [n, r] times x and the rows of side_w [r, k]: `low` are views
     * of it, or it is stored. It is none of the n */
    graph_value side, side_w, factors;
    bool side_stored;
    bool has_low; /* any of these, or a product of low rank before x */
    bool ends;    /* `end` makes the results: */
    tree end;
} graph_products;

/* false: there are none, too many, what follows them is not pointwise, or it reads what is made
 * before them. Pure. */
bool graph_products_of(const graph *g, const graph_region *r, graph_products *out);

#endif
