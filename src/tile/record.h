/* record.h - what lowering records: steps with their programs, bindings to tensors and
 * scratch, parameters and grids that are constants or counts of an extent. The functions of
 * tile/lower.h write it; memory is placed when all steps are known. */
#ifndef TILE_RECORD_H
#define TILE_RECORD_H

#include "tile/lower.h"

enum { PLAN_PATCH_MAX = 12 };
#define PLAN_STORED UINT32_MAX

typedef struct plan_binding {
    /* a tensor of the graph, or the number of tensors + a scratch; PLAN_STORED: a range of the
     * store */
    uint32_t item;
    uint32_t buffer; /* of the store */
    uint64_t offset, size;
} plan_binding;

/* at: byte in the parameters of all steps */
typedef struct plan_patch {
    uint32_t at;
    lower_count count;
} plan_patch;

/* Memory of a node's own; steps of the node with one key share it. item: of another scratch that
 * stands for it (lower_step_share); 0: none */
typedef struct plan_scratch {
    uint32_t node, key;
    uint64_t bytes;
    uint32_t item;
} plan_scratch;

typedef struct plan_step {
    device_program program;
    device_bindings made; /* once memory is placed */
    plan_binding bindings[DEVICE_BINDING_MAX];
    device_access access[DEVICE_BINDING_MAX];
    uint32_t n_binding;
    lower_count groups[3];
    uint32_t per[3];
    bool shared;    /* groups share loops: fewer groups do all the work too */
    bool once;      /* reads weights alone: the first run does it, and what it writes is kept */
    uint32_t node;  /* of the graph */
    uint32_t needs; /* graph_node_needs: where one of them is 0 it is left out */
    const char *label;
    uint64_t bytes;
    double microseconds;
    uint32_t groups_run[3];
    graph_value product;
    lower_form form;
    lower_texts texts;          /* where the plan is explained */
    const lower_binding *names; /* [n_binding], likewise */
} plan_step;

struct lower_step { /* the one under way */
    lowering *l;
    const graph_node *node;
    const char *name, *entry;
    lower_kernel kernel;
    plan_binding bindings[DEVICE_BINDING_MAX];
    bool bound[DEVICE_BINDING_MAX], set[LOWER_PARAM_MAX];
    uint32_t params[DEVICE_PARAM_MAX / 4];
    plan_patch patches[PLAN_PATCH_MAX];
    uint32_t n_patch;
    lower_count groups[3];
    uint32_t per[3];
    bool shared, once; /* as of plan_step */
    beryl_error error;
};

typedef struct plan_record { /* of lowering.record */
    base_heap *heap;         /* borrowed */
    base_arena arena;        /* labels and texts */
    const graph *g;          /* borrowed */
    base_vec(plan_step) steps;
    base_vec(plan_patch) patches;
    base_vec(plan_scratch) scratches;
    unsigned char *params; /* [steps] of DEVICE_PARAM_ALIGN */
    size_t params_bytes;
    lower_step current;
    lower_texts texts;      /* of the step under way */
    uint64_t bytes_pending; /* for the next step */
    graph_value product;    /* of the node under way, as of graph_exec_step */
    lower_form form;
} plan_record;

void plan_record_init(plan_record *record, base_heap *heap, const graph *g);
void plan_record_fini(plan_record *record);

/* So far, for attempts that may be taken back. */
typedef struct plan_mark {
    size_t n_step, n_patch, n_scratch;
    uint64_t bytes;
} plan_mark;
plan_mark plan_record_mark(const plan_record *record);
void plan_record_back(plan_record *record, plan_mark mark);

uint64_t plan_count_value(lower_count count, const uint32_t *extents);

#endif
