/* sort.h - rows in order (tile/sort.c), and the first of them (tile/select.c, select_blocks.c). For
 * these alone. */
#ifndef TILE_SORT_H
#define TILE_SORT_H

#include "tile/order.h"

enum { /* scratch: what rows were selected, and its place in x */
       SORT_LIST_KEYS = ORDER_OWN,
       SORT_LIST_PLACES,
       SORT_OWN
};

typedef struct sort {
    tile_kernel *k; /* under way */
    const graph_node *node;
    const graph_tensor *x;
    uint32_t order;
    ir_type key;           /* U32 or U64 */
    uint32_t shift, bits;  /* U32: in which keys differ */
    bool listed;           /* what was selected, not x */
    uint32_t d, block;     /* of a row; of what the network sorts: a power of two */
    uint32_t kept;         /* of a row: its first */
    uint32_t rows_a_group; /* more than 1: a row is a block at most */
    uint32_t lanes;
    lower_count rows;
    uint64_t row_bound, bound; /* bound: elements */
    bool last;                 /* this dispatch gives the results */
    uint32_t to;               /* which scratch it writes */
    ir_memory from, out[2], list_keys, list_places;
    ir_id length, count, offset; /* of rows in this run; rows; where x begins */
} sort;

/* The key of an element of x, which rises as the order asks. Any width. */
ir_id sort_key(sort *s, ir_id x);
/* Steps that sort rows of x, or of the list. */
beryl_status sort_rows(lowering *l, sort *s);

/* Is the list of the first `kept` of each row sooner made than a row is sorted? Pure. */
bool sort_selects(const lowering *l, const sort *s);
beryl_status sort_select(lowering *l, sort *s);
/* The same on a processor, of very few. */
bool sort_selects_blocks(const lowering *l, const sort *s);
beryl_status sort_select_blocks(lowering *l, sort *s);
/* Steps that sort the list, which the kernels before have made. */
beryl_status sort_list(lowering *l, const sort *s);

#endif
