/* trial_inside.h - the inside of a trial, shared by trial.c (building) and trial_run.c (running,
 * comparing). */
#ifndef ENGINE_TRIAL_INSIDE_H
#define ENGINE_TRIAL_INSIDE_H

#include "engine/trial.h"

enum { LIST_MAX = 40, USED_MAX = 32, VALUE_MAX = 64, FILL_ROWS = 64, PIECE_MAX = 160 };
enum { DRAWN_BITS = 40 };

typedef struct trial_used { /* a stored tensor of the node */
    graph_value base;
    uint32_t from, at; /* index in the engine's store, and in both of the trial's */
    uint32_t rank, dim[STORE_RANK_MAX]; /* of a weight: what the reference side has of it */
    uint32_t rows; /* of a cache: dim[1] on the reference side, which has those of the run alone */
    base_type type;
    bool is_state, is_cache, written;
    unsigned char *drawn; // [TRIAL_DRAWN] blocks or elements, of which a drawn weight consists
} trial_used;

typedef enum number_kind {
    NUMBER_PLAIN,
    NUMBER_WIDE,
    NUMBER_UNIT,
    NUMBER_LOGIT,
    NUMBER_INDEX,
    NUMBER_SLOT,
    NUMBER_POS,
    NUMBER_SETTINGS
} number_kind;
/* limit: of an index, of the largest logits' */
typedef struct trial_input {
    graph_value v;
    number_kind kind;
    uint32_t limit;
} trial_input;

/* Bytes of a state to compare: at `offset` on the device; of a cache [first, first + n) of the
 * rows on the reference, else from its begin on. */
typedef struct trial_piece {
    uint32_t used;
    bool scales;
    uint64_t offset, size, first, n;
} trial_piece;

typedef struct trial_side {
    graph *g;
    graph_store store;
    graph_exec *exec;
    device_ticket ticket;
} trial_side;

typedef enum trial_stage {
    TRIAL_COMPILE,
    TRIAL_READ,
    TRIAL_FILL,
    TRIAL_REFERENCE,
    TRIAL_SUBMIT,
    TRIAL_WAIT,
    TRIAL_STATES,
    TRIAL_DONE
} trial_stage;

struct trial {
    beryl_engine *e;
    base_heap *heap;
    trial_desc desc;
    trial_limits limits;
    trial_blocks *blocks; /* borrowed */
    /* what the device runs: the node, and the one that finishes it */
    const graph_node *run[TRIAL_RUN_MAX];
    const graph_node *list[LIST_MAX]; /* what the reference runs */
    uint32_t n_run, n_list;
    graph_value outputs[GRAPH_OUT_MAX];
    uint32_t n_output;
    trial_side sides[2]; /* device, reference */
    trial_used used[USED_MAX];
    uint32_t n_used;
    trial_input inputs[VALUE_MAX];
    uint32_t n_input;
    uint32_t extents[GRAPH_EXTENT_MAX + 1], n, first; /* rows of the run; position of the first */
    uint32_t slot, fill_from, fill_at, fill_total;
    /* the weights are the trial's own, which both sides read: `used` i from i << DRAWN_BITS on */
    bool made;
    beryl_source drawn;
    bool is_cut; /* a cache is smaller than the plan's */
    graph *fill; /* writes rows into the reference side's caches; NULL: none */
    graph_exec *fill_exec;
    graph_value fill_x[2], fill_slot, fill_pos;
    /* borrowed programs; the device side's own buffers, before the borrowed ones */
    size_t n_program, n_own;
    base_random random;
    trial_piece pieces[PIECE_MAX];
    uint32_t n_piece, at_piece;
    device_ticket piece_ticket;
    double error;
    trial_stage stage;
};

/* The stored tensor behind a value, NULL: not of this trial. */
trial_used *trial_used_find(trial *t, graph_value v);

#endif
