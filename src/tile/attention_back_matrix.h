/* attention_back_matrix.h - what a kernel of the backward pass on matrix units has: its form, and
 * what it brings to workgroup memory. For attention_back_matrix.c and attention_back_stage.c. */
#ifndef TILE_ATTENTION_BACK_MATRIX_H
#define TILE_ATTENTION_BACK_MATRIX_H

#include "tile/attention_back.h"
#include "tile/attention_matrix.h"

enum {
    EIGHTS_AHEAD = 4, /* that a lane asks for at a time */
    EACH_MAX = 2,
    COLUMNS_MAX = 256, /* of the sums of a subgroup */
    LINES_FEW = 128    /* not worth it */
};
#define LOG2_E 1.44269504f

typedef struct back_form {
    uint32_t warps, each, own, other; /* own: lines of a tile; each: fragments a subgroup */
    uint32_t d, parts, columns;       /* d: whole fragments; parts: of its columns */
    uint32_t group, queries;          /* of a tile of rows */
    uint32_t split;                   /* heads of a key are summed by so many workgroups */
    uint32_t slots;                   /* tiles of others */
    ir_type type;                     /* of gradients and weights */
    bool direct;                      /* products from workgroup memory */
} back_form;

static inline uint32_t line_of(const back_form *f) { /* elements of a staged line */
    return f->direct ? f->d : f->d + PAD;
}

static inline bool wants_slopes(const back_task *t) {
    return t->kind == BACK_Q || t->kind == BACK_K;
}

/* The others of scores once more, as another type. */
static inline bool has_twin(const back_form *f, const back_task *t) {
    return wants_slopes(t) && f->type != IR_F16;
}
typedef struct back_matrix_kernel {
    tile_kernel k;
    const back_task *t;
    back_form f;
    back_walk w;
    /* of the workgroup, [own or other, line]: pairs of lines, and the twin; f32 [warps, other, 4]:
     * of rows that are the others, a tile a subgroup: sum in exponents of 2, delta, first and last
     * key */
    ir_memory own[2], other[2], twin, stats;
    /* direct: in one array of each type, [d / BLOCK, own or other, BLOCK], where they begin */
    uint32_t own_at[2], other_at[2], twin_at;
    ir_memory halves[BACK_HALVES];  /* the others in memory */
    ir_id slot;                     /* of the tile in hand, in elements */
    ir_memory uniform;              /* of the workgroup, u32 [4 or warps]: what loops go by */
    ir_memory most, total, delta;   /* registers [2 each], of BACK_SUMS */
    ir_memory of_own;               /* registers [2 each, 4]: as stats, of the lane's rows */
    ir_fragments left[2], right[2]; /* of halves, of gradients */
    ir_fragments score, slope, weight, sum;
    uint32_t n_other, n_column;     /* fragments */
    ir_id local, lane, warp, scale; /* scale: of exponents of 2 */
    ir_id part;                     /* of columns */
    ir_id stats_at;                 /* of the tile in hand */
    ir_id whole;                    /* every owned line meets every other one */
} back_matrix_kernel;

bool back_form_of(const lowering *l, const back_task *t, back_form *f);
void back_bind_matrix(back_matrix_kernel *m);

/* Sum in exponents of 2, delta, first and last key of a row; no row: no keys. */
ir_id back_stats_of(back_matrix_kernel *m, ir_id line);
/* The keys that rows of a tile see: some of them [0] to [1] (none: above it), all of them [2] to
 * [3]. keep: what is found of rows stays in `stats` from this element on; IR_NO_ID: no. */
void back_reach(back_matrix_kernel *m, uint32_t lines, ir_id keep, ir_id range[4]);

void back_stage_own(back_matrix_kernel *m);
void back_stage_others(back_matrix_kernel *m);
/* Begins to copy a tile of others to a slot. */
void back_copy_others(back_matrix_kernel *m, ir_id slot);
/* Copies that were asked for are there, and all lanes are done with what comes next. */
void back_arrive(back_matrix_kernel *m);

#endif
