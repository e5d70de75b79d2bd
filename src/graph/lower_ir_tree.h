/* lower_ir_tree.h - trees of operations in generated kernels: what they are, and how a kernel computes them at a place.
 *
 * A tree is values of one shape, computed when something asks for them, and stats: numbers that a row is reduced to. What can
 * be known before any stat is level 0, what needs stats of level n is level n + 1; there is a walk over the row for each level.
 * A weighted sum is a leaf: its loop stands where another value is loaded; pointwise operations that it alone needs, on what it
 * adds up and on its weights, are values inside it, made anew each turn. At the end a tree may be asked for the largest of its
 * rows (topk, argmax); at its start may stand a value that the kernel has made itself (a product). */
#ifndef GRAPH_LOWER_IR_TREE_H
#define GRAPH_LOWER_IR_TREE_H

#include "graph/lower_ir.h"
#include "graph/lower_walk.h"

enum {
    TREE_VALUES = 64,
    TREE_STATS = 16,
    TREE_SUMS = 4 /* weighted */
};

typedef enum tree_value_kind {
    TREE_INPUT,    /* from memory */
    TREE_GIVEN,    /* a product's, from the kernel */
    TREE_WEIGHTED, /* values inside it, summed with weights over an axis that the tree has not */
    TREE_NODE,     /* a pointwise operation */
    TREE_LESS,     /* x - stat */
    TREE_EXP_LESS, /* exp(x - stat) */
    TREE_TIMES     /* x * stat */
} tree_value_kind;

typedef struct tree_value {
    tree_value_kind kind;
    base_op op; /* NODE, with the node's constants */
    const graph_node *node;
    bool two; /* operands */
    graph_value id;     /* of the graph; 0: made here */
    uint8_t inside;     /* 0: the tree; 2 i + 1: what the sum that is node i adds up; 2 i + 2: its weights */
    uint8_t in[2];      /* values; INPUT: the tensor */
    uint8_t stat, level;
    uint8_t first, last; /* walks: that computes it, that asks for it last; none inside sums */
    ir_memory array;     /* where the walks are loops of one lane and a later one asks */
} tree_value;

typedef enum tree_stat_kind { TREE_LARGEST, TREE_MEAN, TREE_SUM_OVER /* 1 / sum */, TREE_RMS_OVER /* 1 / sqrt(mean of squares + eps) */ } tree_stat_kind;

typedef struct tree_stat {
    tree_stat_kind kind;
    uint8_t of, level; /* of: a value */
    float eps;
    ir_id result;
} tree_stat;

typedef struct tree {
    const graph *g;
    const graph_tensor *shape; /* of every result */
    const graph_node *choice;  /* topk or argmax of `chosen`; NULL: none */
    const graph_node *product; /* matmul or matmul_id at its start, whose result is given; NULL: none */
    graph_value tensors[LOWER_WALK_TENSORS]; /* results [n_out] first */
    graph_tensor seen[LOWER_WALK_TENSORS];   /* as the walk goes over them */
    uint32_t ahead[LOWER_WALK_TENSORS];      /* inside a sum: from one turn to the next */
    uint32_t n_tensor, n_out, n_value, n_stat, n_level, n_sum;
    tree_value values[TREE_VALUES];
    tree_stat stats[TREE_STATS];
    uint8_t out[GRAPH_OUT_MAX], chosen; /* values */
} tree;

/* Of nodes [n] with these results, those of a choice among them. false: more than there is room for, or something is needed
 * inside a sum and elsewhere, or is not for the inside of one. Pure. */
bool tree_read(tree *t, const graph *g, const graph_node *const *nodes, uint32_t n, const graph_value *outs, uint32_t n_out);
/* No operation, and the largest of the rows of the node's first input. */
void tree_read_choice(tree *t, const graph *g, const graph_node *node);
/* How many values are held between two walks, at most. */
uint32_t tree_most_held(const tree *t);
/* Values that one lane would hold in arrays. */
uint32_t tree_arrays(const tree *t);

typedef struct tree_spot { /* a vector of each tensor */
    uint32_t wide;
    ir_id turn; /* of the sum that it is inside; IR_NO_ID: it is in none */
    ir_id column, at[LOWER_WALK_TENSORS], made[TREE_VALUES]; /* made: IR_NO_ID: not yet */
} tree_spot;

/* A tree in a kernel being written. Who writes it sets k, t, w (lower_walk_of the tensors seen) and step. */
typedef struct tree_walk {
    lower_ir *k;
    tree t;
    lower_walk w;
    bool arrays; /* what a later walk asks for is held in arrays */
    ir_memory memory[LOWER_WALK_TENSORS];
    ir_id offset[LOWER_WALK_TENSORS], size[GRAPH_RANK_MAX], terms[TREE_VALUES]; /* terms: of a weighted sum */
    uint32_t step[LOWER_WALK_TENSORS]; /* from one element of a vector to the next */
    ir_id row[LOWER_WALK_TENSORS];     /* rows: where this one begins */
    uint32_t level;
} tree_walk;

/* Rows: w and step of the walk, one dimension left to the columns. */
void tree_walk_rows(tree_walk *c);
/* The widest vector that every tensor takes along the innermost dimension: there it is dense or broadcast. whole: rows are
 * whole vectors. */
uint32_t tree_widest(const tree_walk *c, uint32_t most, uint64_t row, bool whole, uint32_t n_outer);
/* Bindings, offsets and sizes. Views of one tensor share its binding. */
void tree_declare(tree_walk *c);
/* Where place `left` of the walk is in each tensor; `each`: elements that a step of the innermost dimension goes. Gives the
 * place in the outermost. */
ir_id tree_place(tree_walk *c, ir_id left, uint32_t each, bool clamp, ir_id *at);
void tree_spot_begin(tree_spot *s, uint32_t wide);
/* Elements from column i of the row at c->row. */
void tree_spot_at(tree_walk *c, tree_spot *s, uint32_t wide, ir_id i);
ir_id tree_value_at(tree_walk *c, tree_spot *s, uint32_t v);
/* Stores the results of a level. */
void tree_store(tree_walk *c, tree_spot *s, uint32_t level);

/* The end of a product: its bindings; and the results at a column of a vector, of which the product made x. */
void tree_end_declare(tree_walk *c, lower_ir *k, const tree *t);
void tree_end_store(tree_walk *c, ir_id vector, ir_id column, ir_id x);

bool tree_is_pointwise(base_op op);
/* Of those, the ones that take many instructions. */
bool tree_is_dear(base_op op);

#endif
