/* form.h - what may be said about a lowering from outside: precision, and other forms of
 * products than those that would be chosen: for benchmarks (bench/plan_bench.c) by name, and
 * those that tuning found (engine/tune.c) by class. */
#ifndef TILE_FORM_H
#define TILE_FORM_H

#include "graph/graph.h"

typedef enum lower_separate {
    LOWER_SEPARATE_CHOSEN,
    LOWER_SEPARATE_YES,
    LOWER_SEPARATE_NO
} lower_separate;

/* Of the products whose first weight's name holds `weight`. A number that is 0 stays as chosen
 * (matvec_form.h says what they are); a form that the device cannot run is BERYL_UNSUPPORTED. */
typedef struct lower_form {
    const char *weight;
    uint32_t wg, lanes, rows, depth, groups, n_x;
    lower_separate apart; /* are norms and sums before the product a dispatch of their own? */
    bool tuned;           /* where it does not fit, what would be chosen does */
} lower_form;

/* What tuning found, for a class of products: those of decode plans whose weights have one role,
 * type and shape. */
/* key: lower_tuned_key */
typedef struct lower_tuned {
    uint64_t key;
    lower_form form;
} lower_tuned;

typedef struct lower_settings {
    bool exact; /* f32 activations; else int8 activations where the device has dot products */
    const lower_form *forms; /* borrowed; the first that fits a name holds */
    uint32_t n_form;
} lower_settings;

/* The class of a product of g, by its weight: lower_tuned.key. 0: of no decode plan, whose
 * products are not tuned. */
uint64_t lower_tuned_key(const graph *g, graph_value weight, bool exact);
/* dim: matrices (1: not of experts), rows, columns; n: vectors at most. */
uint64_t lower_tuned_key_of(const char *role, base_type type, const uint32_t dim[3], uint32_t n,
                            bool exact);
/* "attn_q.weight" of "blk.3.attn_q.weight" */
const char *lower_tuned_role(const char *name);

/* Search for schedules and choices of kernels while a plan is opened
 * (tile/search.c). */
enum { LOWER_SEARCH_MAX = 256 };
typedef struct lower_search {
    struct ir_cache *cache;      /* ir/tune.h; borrowed */
    uint32_t n_timed;            /* candidates timed of each kernel */
    bool again;                  /* though the cache knows the kernel */
    uint32_t left;               /* kernels that may be searched; counts down */
    bool counts;                 /* none is searched: those that would be go to `done` */
    bool (*stopped)(void *user); /* true: CANCELLED */
    void *user;
    bool warm; /* the device is */
    uint64_t done[LOWER_SEARCH_MAX];
    uint32_t n_done;
    /* of the kernel searched last; its seconds by the rule of thumb, and by what was found */
    const char *name;
    double before, after;
    char numbers[128]; /* that were found, where it was choices; as text */
} lower_search;

#endif
