/* lower_ir_matvec.h - the body of generated products with few vectors on GPUs, for lowerings that put other things around it.
 *
 * A group of `lanes` lanes shares a row: each takes every lanes-th chunk, all loads of a step before their first use, and the
 * loads of the next step (or the next tile's first) before this one's arithmetic. The vectors lie in workgroup memory, as
 * f32 or rounded to int8 in blocks of 32, or are read where they are. A workgroup walks the tiles of rows.
 *
 *     lower_ir_matvec m;
 *     matvec_choice c;
 *     if (!lower_ir_matvec_choose(caps, &shape, &c)) ...
 *     lower_ir_matvec_begin(&m, l, node, "name", &c, shape.k);
 *     ... bind; weights with lower_ir_matvec_weight
 *     lower_ir_matvec_open(&m, types, n, rows);
 *     lower_ir_rows now = {.n = 1, .w = {&w}, .row = {...}};
 *     lower_ir_matvec_fetch(&m, &now, ir_u32(b, 0));
 *     lower_ir_matvec_fill_vector(&m, 0, false, four_of, user);  // or x_from, x_at for MATVEC_DIRECT
 *     lower_ir_matvec_walk(&m, &now, NULL, IR_NO_ID, sums);
 *
 * Everything between begin and the step's end stands where the whole workgroup comes by. */
#ifndef GRAPH_LOWER_IR_MATVEC_H
#define GRAPH_LOWER_IR_MATVEC_H

#include "graph/lower_ir_packed.h"
#include "graph/lower_matvec.h"

enum { LOWER_IR_ROWS_MAX = 8, LOWER_IR_SUMS_MAX = 32, LOWER_IR_VECTORS_MAX = 8 };

typedef struct lower_ir_matvec {
    lower_ir k; /* lanes: those of the workgroup */
    matvec_choice c;
    uint32_t length;          /* of a vector */
    ir_id lane, slot;         /* the lane's place among those of its row; the row's place in the workgroup */
    ir_memory x_from;         /* MATVEC_DIRECT: f32 */
    ir_id x_at[LOWER_IR_VECTORS_MAX]; /* there: where each vector begins */
    ir_memory x, scales;      /* in workgroup memory; scales: of each block of 32 its scale and the sum of its numbers */
    ir_memory halves;         /* there, where with_halves: of each 16 the sum of its numbers, i32, without the scale */
    ir_memory woven;          /* there, where weave is not 0: x again, as runs of types with tables have it (lower_ir_weight_weave) */
    bool with_halves;
    uint32_t weave;
    lower_ir_pairs pairs[LOWER_IR_TABLES_MAX]; /* [n_pairs], of the types with tables */
    uint32_t n_pairs;
    uint32_t unit, half, second, vector; /* how far apart things lie there, in 16 bytes */
    ir_memory x_to;           /* not in use while x_keep is false: */
    bool x_keep;              /* fills go there, f32 */
    ir_id to_at, to_holds;    /* where the vector begins; whether there is one */
    uint32_t stretch;         /* not 0: a row goes on in another matrix of the weight every so many elements, */
    ir_memory matrices;       /* whose first rows lie here, in workgroup memory; rows are counted from them */
    ir_memory sums, ahead, joined, parts;
    uint32_t n_ahead, sum_turn;
} lower_ir_matvec;

typedef struct lower_ir_rows { /* that this lane's group reads */
    uint32_t n;
    const lower_ir_weight *w[LOWER_IR_ROWS_MAX]; /* all of one type */
    ir_id row[LOWER_IR_ROWS_MAX]; /* that there are: clamp them */
} lower_ir_rows;

/* A pure function of types, shapes and the device; honours shape->form. false: no form fits, or the device has one lane a
 * workgroup. Of shape: n_segment, types, rows, k, n_x, per, exact, worked, form. */
bool lower_ir_matvec_choose(const device_caps *caps, const matvec_shape *shape, matvec_choice *out);
void lower_ir_matvec_begin(lower_ir_matvec *m, lowering *l, const graph_node *node, const char *name, const matvec_choice *c, uint32_t k);
/* A weight of rows of k elements in `from` (u32 words, plain types: elements), its planes (plain: `start`) set by the caller. */
lower_ir_weight lower_ir_matvec_weight(lower_ir_matvec *m, base_type type, ir_memory from);
/* Memory for lower_ir_matvec_sum alone. */
void lower_ir_matvec_open_sums(lower_ir_matvec *m);
/* Memory for at most `rows` rows of any of these types at once. */
void lower_ir_matvec_open(lower_ir_matvec *m, const base_type *types, uint32_t n, uint32_t rows);

/* Four u (elements 4u .. 4u + 3) of vector v as f32x4; e: the lane's how-manieth, where fours are dealt out one by one. */
typedef ir_id lower_ir_four(void *user, uint32_t v, uint32_t e, ir_id u);
/* Vectors into workgroup memory; each: fours of a lane, where user wants them one by one (`lower_ir_matvec_each`), 0: it does
 * not care. Ends with a barrier. */
uint32_t lower_ir_matvec_each(const lower_ir_matvec *m);
ir_id lower_ir_matvec_own(lower_ir_matvec *m, uint32_t e);         /* which four that is: maybe one beyond the vector */
void lower_ir_matvec_fill_vector(lower_ir_matvec *m, uint32_t v, bool one_by_one, lower_ir_four *four, void *user);
/* x of all lanes of the workgroup added up, in every lane. Has a barrier. */
ir_id lower_ir_matvec_sum(lower_ir_matvec *m, ir_id x);

/* Loads of step `step` of these rows, into registers. Nothing for types that are not packed. */
void lower_ir_matvec_fetch(lower_ir_matvec *m, const lower_ir_rows *rows, ir_id step);
/* Products of all rows and vectors, whose first step was fetched: sums[row * n_x + vector], the same in all lanes of the rows.
 * next: rows whose first step is fetched on the way where `there` holds; NULL: none. */
void lower_ir_matvec_walk(lower_ir_matvec *m, const lower_ir_rows *rows, const lower_ir_rows *next, ir_id there, ir_id *sums);
/* The two halves of it: what each lane has of the sums, which has no barrier; and the sums of all lanes. */
void lower_ir_matvec_add(lower_ir_matvec *m, const lower_ir_rows *rows, const lower_ir_rows *next, ir_id there);
void lower_ir_matvec_join(lower_ir_matvec *m, uint32_t rows, ir_id *sums);

#endif
