/* attention_back.h - what kernels of the backward pass of attention are asked for, and what their
 * forms share. For tile/attention_back*.c alone.
 *
 * Rows are (query, head), lines what lies side by side of a head: of rows q and d, of keys k and v.
 * A kernel owns some rows and walks over the keys that they see, or owns some keys and walks over
 * the rows that see them. Of each pair it makes the weight again, p = exp(scale q k - sum), and
 * what it gives: towards q p (d v - y d) scale times k, towards k the same times q, towards v p
 * times d. Nobody else adds to what it owns. */
#ifndef TILE_ATTENTION_BACK_H
#define TILE_ATTENTION_BACK_H

#include "tile/attention.h"

typedef enum back_kind { BACK_Q, BACK_K, BACK_V, BACK_SUMS } back_kind;

typedef struct back_task {
    attention_task a; /* without v and places, but where kind is BACK_SUMS */
    back_kind kind;
    graph_value d, y, sums; /* y: of BACK_SUMS, which makes sums */
    /* towards k and v: workgroups share the heads of a key, and this many sums of each lie in
     * scratch, until back_merge; 0, 1: they do not */
    uint32_t split;
} back_task;

/* Towards q, or of sums: rows are owned, else keys. */
static inline bool back_owns_rows(const back_task *t) {
    return t->kind == BACK_Q || t->kind == BACK_SUMS;
}

typedef struct back_lines { /* of rows: q, d; of keys: k, v */
    ir_memory at[2];
    ir_id offset[2];
    uint32_t stride[2][2]; /* elements from line to line, from head to head */
} back_lines;

typedef struct back_bound {
    back_lines rows, keys;
    ir_memory y, sums, out; /* of BACK_SUMS: out is sums */
    ir_id y_offset, scale, n_row, n_key;
    attention_places places; /* of BACK_SUMS */
} back_bound;

void back_bind(back_bound *x, tile_kernel *k, const back_task *t, ir_access out);
/* `width` elements, from element e of a line on, as F32. */
ir_id back_read(ir_builder *b, const back_lines *lines, uint32_t which, ir_id line, ir_id head,
                ir_id e, uint32_t width);
/* Do all lines begin at multiples of so many elements? */
bool back_reads(const lowering *l, const back_task *t, uint32_t wide);
/* Of a pair that the row sees; score: not yet scaled; d v: not read towards v. */
ir_id back_weight(const back_bound *x, ir_builder *b, const back_task *t, ir_id score, ir_id dv,
                  ir_id sum, ir_id delta);

/* At an element of sums. first, end: of the row's keys. */
void back_store_sums(const back_bound *x, ir_builder *b, ir_id at, ir_id most, ir_id total,
                     ir_id delta, ir_id first, ir_id end);

/* The step that adds the sums in scratch up, in one order. */
beryl_status back_merge(lowering *l, const back_task *t);

/* ---- the walk of a workgroup that owns a block of lines -------------------------------------- */

typedef struct back_walk {
    tile_kernel *k;
    const back_task *t;
    back_bound x;
    uint32_t own, other;              /* lines of a block; */
    uint32_t group, queries;          /* heads and queries of a block of rows */
    ir_id share;                      /* of the heads of a key, where those are shared */
    ir_id kv, first_own, first_other; /* key, or query, */
    ir_id first_head, n_query;        /* of the block of rows */
} back_walk;

/* With own, other, group and queries set; t->split holds. */
void back_walk_bind(back_walk *w, tile_kernel *k, const back_task *t);
/* The owned block. */
void back_own(back_walk *w);
/* Of a line of the block of rows; beyond the last query: of that. */
void back_row_of(const back_walk *w, ir_id line, ir_id *query, ir_id *head);
ir_id back_is_row(const back_walk *w, ir_id line);
ir_id back_sums_at(const back_walk *w, ir_id query, ir_id head);
/* The keys first .. end - 1 of a query. */
void back_keys_of(const back_walk *w, ir_id query, ir_id *first, ir_id *end);
/* Of a line of the owned or the other block: query or key, its head; is it a row? */
bool back_line_of(const back_walk *w, bool own, ir_id line, ir_id *at, ir_id *head);
/* As back_read, of a line of the owned or the other block. */
ir_id back_line_read(const back_walk *w, bool own, uint32_t which, ir_id line, ir_id e,
                     uint32_t width);
/* What comes until back_others_end is done for each block of others of which some line meets an
 * owned one. */
void back_others(back_walk *w);
void back_others_end(back_walk *w);
/* Where results of an owned line begin, and whether there is such a line. */
ir_id back_result_at(const back_walk *w, ir_id line, ir_id *is);
/* The kernel's end, and the step that adds shares up. parts: workgroups that share its columns. */
beryl_status back_walk_end(back_walk *w, uint32_t parts);

/* ---- halves ---------------------------------------------------------------------------------- */

/* The lines that a kernel does not own, in scratch [lines, heads, d]: q or k in F16, then d or v,
 * then q or k once more, both as `type`; where they are wanted. d a multiple of 8. */
enum { BACK_HALVES = 3 };
bool back_halves_has(const back_task *t, ir_type type, uint32_t which);
void back_halves_bind(ir_memory out[BACK_HALVES], tile_kernel *k, const back_task *t, ir_type type,
                      ir_access access);
/* The step that makes them. */
beryl_status back_halve(lowering *l, const back_task *t, ir_type type);

/* ---- forms ----------------------------------------------------------------------------------- */

/* Where lanes are a thread's vectors, which tell each other what they load. */
bool back_shuffle_fits(const lowering *l, const back_task *t);
beryl_status back_shuffle(lowering *l, const back_task *t);
/* Tiles in workgroup memory. */
bool back_tile_fits(const lowering *l, const back_task *t);
beryl_status back_tile(lowering *l, const back_task *t);
/* The same on processors, whose vectors have owned lines as lanes. */
bool back_block_fits(const lowering *l, const back_task *t);
beryl_status back_block(lowering *l, const back_task *t);
/* On matrix units, where halves will do. */
bool back_matrix_fits(const lowering *l, const back_task *t);
beryl_status back_matrix(lowering *l, const back_task *t);

#endif
