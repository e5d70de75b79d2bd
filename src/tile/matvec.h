/* matvec.h - the body of products with few vectors on GPUs, for lowerings
 * that put other things around it.
 *
 * A group of `lanes` lanes shares a row: each takes every lanes-th chunk, all loads of a step
 * before their first use, and the loads of the next step (or the next tile's first) before this
 * one's arithmetic. The vectors lie in workgroup memory, as f32 or rounded to int8 in blocks of
 * 32, or are read where they are; of a batch they come rounded and are copied to workgroup memory
 * a window at a time (tile/matvec_copied.c). A workgroup walks the tiles of rows.
 *
 *     tile_matvec m;
 *     matvec_choice c;
 *     if (!tile_matvec_choose(caps, &shape, &c)) ...
 *     tile_matvec_begin(&m, l, node, "name", &c, shape.k);
 *     ... bind; weights with tile_matvec_weight
 *     tile_matvec_open(&m, types, n, rows);
 *     tile_rows now = {.n = 1, .w = {&w}, .row = {...}};
 *     tile_matvec_fetch(&m, &now, ir_u32(b, 0));
 *     tile_matvec_fill_vector(&m, 0, false, four_of, user);  // DIRECT: x_from, x_at
 *     tile_matvec_walk(&m, &now, NULL, IR_NO_ID, sums);
 *
 * Everything between begin and the step's end stands where the whole workgroup comes by. */
#ifndef TILE_MATVEC_H
#define TILE_MATVEC_H

#include "base/build.h"
#include "tile/packed.h"
#include "tile/matvec_form.h"

/* vectors: at a time, but for MATVEC_COPIED */
enum { TILE_ROWS_MAX = 8, TILE_SUMS_MAX = 32, TILE_VECTORS_MAX = 8 };

/* Vectors rounded to int8, in memory as tile/dots.h has them. */
typedef struct tile_int8_vectors {
    ir_memory bytes, factors; /* U32; they may be one memory, */
    ir_id factors_at;         /* in which the factors begin here */
    ir_id bound;              /* vectors that there is room for */
} tile_int8_vectors;

typedef struct tile_matvec {
    tile_kernel k; /* lanes: those of the workgroup */
    matvec_choice c;
    uint32_t length; /* of a vector */
    /* the lane's place among those of its row; the row's place in the workgroup */
    ir_id lane, slot;
    ir_memory x_from;            /* MATVEC_DIRECT: f32 */
    tile_int8_vectors int8_from; /* of vectors that come rounded */
    /* MATVEC_COPIED: number of the workgroup's first vector, vectors of the run; which run of
     * neighbours the lane is of, and its place there */
    ir_id x_first, x_n, run, share_lane;
    ir_memory x_ahead, factors_ahead; /* what comes of the next window, in registers */
    ir_id x_at[TILE_VECTORS_MAX];     /* where each vector begins there; QUANTISED: its number */
    /* in workgroup memory; scales: of each block of 32 its scale and the sum of its numbers */
    ir_memory x, scales;
    /* there, where with_halves: of each 16 the sum of its numbers, i32, without the scale */
    ir_memory halves;
    /* there, where interleave is not 0: x again, as runs of types with tables have it
     * (tile_weight_interleave) */
    ir_memory interleaved;
    bool with_halves;
    uint32_t interleave;
    tile_pairs pairs[TILE_TABLES_MAX]; /* [n_pairs], of the types with tables */
    uint32_t n_pairs;
    uint32_t unit, half, second, vector; /* how far apart things lie there, in 16 bytes */
    bool has_sums;                       /* products are added to what the sums are already */
    ir_memory x_to;                      /* not in use while x_keep is false: */
    bool x_keep;                         /* fills go there, f32, or */
    bool x_round;                        /* rounded, to int8_to */
    tile_int8_vectors int8_to;
    ir_id to_at, to_holds; /* where the vector begins (rounded: its number); is there one? */
    /* not 0: a row goes on in another matrix of the weight every so many elements, */
    uint32_t stretch;
    /* whose first rows lie here, in workgroup memory; rows are counted from them */
    ir_memory matrices;
    ir_memory sums, ahead, joined, parts;
    uint32_t n_ahead, sum_turn;
} tile_matvec;

typedef struct tile_rows { /* that this lane's group reads */
    uint32_t n;
    const tile_weight *w[TILE_ROWS_MAX]; /* all of one type */
    ir_id row[TILE_ROWS_MAX];            /* that there are: clamp them */
} tile_rows;

/* Are the vectors copied a window at a time? */
static inline bool tile_matvec_copies(const matvec_choice *c) {
    return c->x == MATVEC_COPIED;
}

/* A pure function of types, shapes and the device; honours shape->form. false: no form fits, or
 * the device has one lane a workgroup. Of shape: n_segment, types, rows, k, n_x, per, exact,
 * has_prologue, form. */
bool tile_matvec_choose(const device_caps *caps, const matvec_shape *shape, matvec_choice *out);
void tile_matvec_begin(tile_matvec *m, lowering *l, const char *name, const matvec_choice *c,
                       uint32_t k);
/* Of a buffer with such a weight: words, F32: numbers. */
ir_type tile_matvec_element(base_type type);
/* A weight of rows of k elements in `from`, its planes (plain types: `start`), in elements of it,
 * set by the caller. */
tile_weight tile_matvec_weight(tile_matvec *m, base_type type, ir_memory from);
/* Memory for tile_matvec_sum alone. */
void tile_matvec_open_sums(tile_matvec *m);
/* Memory for at most `rows` rows of any of these types at once. */
void tile_matvec_open(tile_matvec *m, const base_type *types, uint32_t n, uint32_t rows);

/* Four u (elements 4u .. 4u + 3) of vector v as f32x4; e: its index among the lane's, where fours
 * are dealt out one by one. */
typedef ir_id tile_four(void *user, uint32_t v, uint32_t e, ir_id u);
/* Vectors into workgroup memory; each: fours of a lane, where user wants them one by one
 * (`tile_matvec_each`), 0: it does not care. Ends with a barrier. */
uint32_t tile_matvec_each(const tile_matvec *m);
/* which four that is: maybe one beyond the vector */
ir_id tile_matvec_own(tile_matvec *m, uint32_t e);
void tile_matvec_fill_vector(tile_matvec *m, uint32_t v, bool one_by_one, tile_four *four,
                             void *user);
/* x of all lanes of the workgroup added up, in every lane. Has a barrier. */
ir_id tile_matvec_sum(tile_matvec *m, ir_id x);

/* Loads of step `step` of these rows, into registers. Nothing for F32. */
void tile_matvec_fetch(tile_matvec *m, const tile_rows *rows, ir_id step);

/* `bound` vectors of k elements in one memory: bytes, then factors. */
tile_int8_vectors tile_int8_in(tile_matvec *m, ir_memory memory, uint32_t bound, uint32_t k);

/* A workgroup array [vectors of the workgroup, fours * 4], in blocks of 32, rounded to int8_to:
 * four u of vector v becomes four `first` + u, of `length`, of vector `vector` + v, of `vectors`.
 * Where the whole workgroup comes by. */
void tile_matvec_hand_on(tile_matvec *m, ir_memory from, uint32_t fours, ir_id first,
                         uint32_t length, ir_id vector, ir_id vectors);
/* Products of all rows and vectors, whose first step was fetched: sums[row * n_x + vector], the
 * same in all lanes of the rows. next: rows whose first step is fetched on the way where `there`
 * holds; NULL: none. */
void tile_matvec_walk(tile_matvec *m, const tile_rows *rows, const tile_rows *next, ir_id there,
                      ir_id *sums);
/* The two halves of it: what each lane has of the sums, which has no barrier but for windows; and
 * the sums of all lanes. */
void tile_matvec_add(tile_matvec *m, const tile_rows *rows, const tile_rows *next, ir_id there);
void tile_matvec_clear(tile_matvec *m, uint32_t rows); /* the sums, where has_sums */
void tile_matvec_join(tile_matvec *m, uint32_t rows, ir_id *sums);
/* In its place, MATVEC_COPIED: the sums to workgroup memory; from there, of row `row` of the
 * lanes in place `slot`. */
void tile_matvec_leave(tile_matvec *m, uint32_t rows);
ir_id tile_matvec_left(tile_matvec *m, uint32_t rows, ir_id row, ir_id vector, ir_id slot);
/* MATVEC_COPIED: asks for the first window; where that is all, it is there after this. */
void tile_matvec_copy_first(tile_matvec *m);

#endif
