/* tree.h - trees of operations in kernels: what they are, and how a kernel
 * computes them at a place.
 *
 * A tree is values of one shape, computed when something asks for them, and stats: numbers that
 * a row is reduced to. What can be known before any stat is level 0, what needs stats of level n
 * is level n + 1; there is a walk over the row for each level. A scan's value is that of all
 * elements of the row so far, so a walk goes along the row in order. Rows lie along the last axis,
 * or along the axes that operations of the tree say: then it sees all tensors with those last, so
 * that nothing is copied. A weighted sum is a leaf: its
 * loop stands where another value is loaded; pointwise operations that it alone needs, on what
 * it adds up and on its weights, are values inside it, made anew each turn. At the end a tree
 * may be asked for the largest of its rows (topk, argmax); at its start may stand a value that
 * the kernel has made itself (a product). */
#ifndef TILE_TREE_H
#define TILE_TREE_H

#include "tile/kernel.h"
#include "graph/region.h"
#include "tile/walk.h"

enum {
    TREE_VALUES = 80,
    TREE_STATS = 16,
    TREE_SUMS = 4, /* weighted */
    TREE_PRODUCTS = 2,
    TREE_COUNTS = 12,  /* sizes that maps ask for */
    TREE_MOVES = 4,    /* of them, that a tensor is moved by */
    TREE_PIECES = 4,   /* elements of a vector that are made one by one */
    TREE_LOW_MAX = 64, /* columns */
    TREE_MOVED = UINT8_MAX
};

typedef enum tree_value_kind {
    TREE_INPUT,    /* from memory */
    TREE_GIVEN,    /* a product's, from the kernel */
    TREE_WEIGHTED, /* values inside it, summed with weights over an axis that the tree has not */
    TREE_NODE,     /* a pointwise operation */
    TREE_LESS,     /* x - stat */
    TREE_EXP_LESS, /* exp(x - stat) */
    TREE_TIMES,    /* x * stat */
    TREE_SCAN,     /* x joined by `op` with all before it */
    TREE_WITHIN,   /* x where the index in `guard` is below `limit`, else another, or `fill` */
    TREE_KEPT,     /* the same of a value of this walk */
    TREE_RESIZED,  /* elements of the input x, at places that the index in `guard` says */
    TREE_PLACE,    /* the index in `guard` */
    TREE_RANDOM,   /* of keys and the index in `guard` */
    TREE_STAT,     /* the stat itself */
    TREE_LOW /* row in[1] times row `column` of a matrix of `low` columns, which begins at in[0] */
} tree_value_kind;

typedef struct tree_value {
    tree_value_kind kind;
    base_op op; /* NODE, with the node's constants; SCAN: what joins */
    const graph_node *node;
    ir_type type;   /* of the number */
    uint8_t n_in;   /* NODE: operands */
    graph_value id; /* of the graph; 0: made here */
    /* 0: the tree; 2 i + 1: what the sum that is node i adds up; 2 i + 2: its weights; TREE_MOVED:
     * a map, which alone asks for it */
    uint8_t inside;
    uint8_t guard, limit; /* a tensor without memory; of tree.counts */
    float fill;
    uint8_t low;
    bool channels; /* INPUT: a number for each index of axis 1 */
    bool row;      /* STAT, NODE: a number for the whole row; no walk holds it */
    uint8_t in[3]; /* values; INPUT: the tensor */
    uint8_t stat, level;
    uint8_t first, last; /* walks: that computes it, that asks for it last; none inside sums */
    ir_memory array;     /* where the walks are loops of one lane and a later one asks */
} tree_value;

typedef enum tree_stat_kind {
    TREE_LARGEST,
    TREE_MEAN,
    TREE_SUM_OVER, /* 1 / sum */
    TREE_RMS_OVER, /* 1 / sqrt(mean of squares + eps), or of the variance */
    TREE_SUM,
    TREE_AMAX, /* NaN where one is, unlike LARGEST */
    TREE_AMIN
} tree_stat_kind;

typedef struct tree_stat {
    tree_stat_kind kind;
    uint8_t of, level;   /* of: a value */
    uint8_t less;        /* RMS_OVER: without the mean that is stat less - 1; 0: with it */
    uint32_t correction; /* MEAN: over so many fewer */
    float eps;
    ir_id result;
} tree_stat;

/* How a tree sees tensors of its results' shape, all-zero: as they are, a row along the last axis.
 * groups: axis 1 as two, [groups, channels of a group]; last: axes that are put last, a bit each;
 * n_row: axes of a row, those at the end, 0: 1. */
typedef struct tree_axes {
    uint32_t groups, last, n_row;
} tree_axes;

/* Back by a size of the run, each of whose elements is so many of the tensor's. */
typedef struct tree_move {
    uint8_t count;
    uint32_t stride;
} tree_move;

typedef struct tree {
    const graph *g;
    ir_type real;     /* of stats and scans, and what is held: F32, or F64 */
    graph_value like; /* a result: of maps the shape */
    /* of every result, as it is seen; borrowed from this tree where axes are not all-zero */
    const graph_tensor *shape;
    tree_axes axes;
    uint32_t rank; /* of the results */
    /* topk or argmax of `chosen`, or what reduces it (tile/reduce.h): then the one result, which
     * no value makes; NULL: none */
    const graph_node *choice;
    const graph_node *second; /* like `choice`, of the same elements; NULL: none */
    const graph_node *ending; /* the cast of a reduction's result, which alone is stored, or NULL */
    graph_tensor whole;       /* of reductions: their input, as it is seen */
    /* linear or linear_id at its start, whose results are given: the first values */
    const graph_node *product[TREE_PRODUCTS];
    graph_value tensors[LOWER_WALK_TENSORS]; /* results [n_out] first; 0: indices (maps.h) */
    graph_tensor seen[LOWER_WALK_TENSORS];   /* as the walk goes over them */
    tree_move moves[LOWER_WALK_TENSORS][TREE_MOVES];
    uint8_t n_move[LOWER_WALK_TENSORS];
    bool is_moved[LOWER_WALK_TENSORS]; /* by a map: seen.offset is where it begins */
    graph_dim counts[TREE_COUNTS];
    uint32_t n_count;
    bool unfit;                         /* a map that this tree cannot have */
    bool has_inner;                     /* reductions of the region are stats */
    uint32_t ahead[LOWER_WALK_TENSORS]; /* inside a sum: from one turn to the next */
    uint32_t n_tensor, n_out, n_value, n_stat, n_scan, n_level, n_sum, n_product, n_random;
    tree_value values[TREE_VALUES];
    tree_stat stats[TREE_STATS];
    uint8_t out[GRAPH_OUT_MAX], chosen, chosen_second; /* values */
    uint8_t root; /* a value that the kernel asks for itself, where has_root */
    bool has_root;
} tree;

/* Of a region, with the results of a choice among its own; root: a value that the kernel asks for
 * and does not store, of the shape of all results; 0: none. With a root a linear of few columns is
 * a value (TREE_LOW). false: more than there is room for, or
 * something is needed inside a sum and elsewhere, or is not for the inside of one. Pure. */
bool tree_read(tree *t, const graph *g, const graph_region *r, graph_value root);
/* No operation, and the largest of the rows of the node's first input. */
void tree_read_choice(tree *t, const graph *g, const graph_node *node);
/* Its end is a reduction. */
bool tree_reduces(const tree *t);
/* Something is asked of whole rows. */
bool tree_has_rows(const tree *t);
/* Elements of a row: at most, and whether the run says how many. */
uint32_t tree_row_length(const tree *t);
bool tree_row_varies(const tree *t);
/* The value that is TREE_LOW, of which there is one at most; TREE_VALUES: none. */
uint32_t tree_low(const tree *t);
/* How many values are held between two walks, at most: of F64 twice as many. */
uint32_t tree_most_held(const tree *t);
/* Values that one lane would hold in arrays. */
uint32_t tree_arrays(const tree *t);

typedef struct tree_spot { /* a vector of each tensor */
    uint32_t wide;
    ir_id turn; /* of the sum that it is inside; IR_NO_ID: it is in none */
    ir_id column, at[LOWER_WALK_TENSORS], made[TREE_VALUES]; /* made: IR_NO_ID: not yet */
} tree_spot;

/* Memory that trees of one kernel share, bound once: trees whose names have a prefix. */
typedef struct tree_bound {
    uint32_t of; /* what memory_of says of a tensor */
    ir_memory memory;
    uint32_t start; /* element at which the tensor begins there */
} tree_bound;
typedef struct tree_shared {
    uint32_t (*memory_of)(const graph *g, graph_value v);
    const char *prefix; /* of the names of the tree under way */
    tree_bound bound[TILE_STORED_MAX + DEVICE_BINDING_MAX];
    uint32_t n;
} tree_shared;

/* What is known of values TREE_WITHIN where the kernel is. */
typedef struct tree_settled {
    uint8_t guard[2], limit[2];
    bool holds[2];
    uint32_t n;
} tree_settled;

/* A tree in a kernel being written. Who writes it sets k, t, w (lower_walk_of the tensors seen)
 * and step; rows: tree_walk_rows does. */
typedef struct tree_walk {
    tile_kernel *k;
    tree t;
    bool second; /* a tree of this kernel has its names already */
    bool words;  /* the first result is bound as words, which the tree does not store */
    lower_walk w;
    lower_walk along;                 /* a row: its dimensions, the innermost with `step` */
    ir_id along_size[GRAPH_RANK_MAX]; /* where it has several */
    bool arrays;                      /* what a later walk asks for is held in arrays */
    ir_memory memory[LOWER_WALK_TENSORS];
    /* terms: of a weighted sum */
    ir_id offset[LOWER_WALK_TENSORS], size[GRAPH_RANK_MAX], terms[TREE_VALUES], counts[TREE_COUNTS];
    uint32_t step[LOWER_WALK_TENSORS]; /* from one element of a vector to the next */
    bool apart;  /* vectors are read an element at a time, wherever they lie */
    bool pieces; /* what is inside for some elements of a vector is made of each alone */
    ir_id row[LOWER_WALK_TENSORS]; /* rows: where this one begins */
    uint32_t level;
    tree_settled settled;
    tree_shared *shared; /* NULL: its memory is its own, and no result lies where it reads */
} tree_walk;

/* Rows: w, along and step of the walk. */
void tree_walk_rows(tree_walk *c);
/* Elements of this run's rows. */
ir_id tree_walk_length(tree_walk *c);
/* The widest vector that every tensor takes along the innermost dimension: there it is dense or
 * broadcast. whole: rows are whole vectors. */
uint32_t tree_widest(const tree_walk *c, uint32_t most, uint64_t row, bool whole, uint32_t n_outer);
/* Buffers that it takes. */
uint32_t tree_bindings(const lowering *l, const tree *t);
/* Bindings, offsets and sizes. Views of one tensor share its binding, and on GPUs, where bindings
 * are few, weights that lie in one buffer. */
void tree_declare(tree_walk *c);
/* Where place `left` of the walk is in each tensor; `each`: elements that a step of the
 * innermost dimension goes. Gives the place in the outermost. */
ir_id tree_place(tree_walk *c, ir_id left, uint32_t each, bool clamp, ir_id *at);
/* Elements of tensor t, `step` apart, from `at` on: a vector. */
ir_id tree_load(tree_walk *c, uint32_t t, ir_id at, uint32_t wide);
void tree_spot_begin(tree_spot *s, uint32_t wide);
/* Elements from column i of the row at c->row. */
void tree_spot_at(tree_walk *c, tree_spot *s, uint32_t wide, ir_id i);
ir_id tree_value_at(tree_walk *c, tree_spot *s, uint32_t v);
/* Of stat s, RMS_OVER, which has this mean of squares. */
ir_id tree_variance(tree_walk *c, const tree_stat *s, ir_id squares);
/* What a scan is there: who walks the row says it before anything asks. */
void tree_value_set(tree_walk *c, tree_spot *s, uint32_t v, ir_id made);
/* Stores the results of a level that have an element for each of the row. */
void tree_store(tree_walk *c, tree_spot *s, uint32_t level);
/* Is result `out` one of them? */
bool tree_stores_at(const tree *t, uint32_t out, uint32_t level);
/* Stores the results that are a number for the whole row. Are there any? */
void tree_store_numbers(tree_walk *c, tree_spot *s);
bool tree_has_numbers(const tree *t);

/* The end of products: can it be one, with nothing but pointwise operations on all that they make?
 * Its bindings, the kernel's second tree; and the results at a column of a vector, of which the
 * products made x. */
bool tree_is_end(const tree *t);
bool tree_is_expensive(const tree *t); /* one of its operations is */
void tree_end_declare(tree_walk *c, tile_kernel *k, const tree *t);
/* The same where who writes the kernel stores words in place of the first result. */
void tree_end_declare_words(tree_walk *c, tile_kernel *k, const tree *t);
void tree_end_store(tree_walk *c, ir_id vector, ir_id column, const ir_id x[TREE_PRODUCTS]);
/* The first result there. */
ir_id tree_end_value(tree_walk *c, ir_id vector, ir_id column, const ir_id x[TREE_PRODUCTS]);

#endif
