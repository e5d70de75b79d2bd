/* matvec_inside.h - what the choice of a product's form and its body share. For
 * the files of matvec and dots alone. */
#ifndef TILE_MATVEC_INSIDE_H
#define TILE_MATVEC_INSIDE_H

#include "tile/matvec.h"
#include "tile/whole.h"

enum {
    MATVEC_DEPTH_MAX = 8,
    MATVEC_EACH_MAX = 16 /* fours of a vector that a lane makes */
};

uint32_t matvec_chunk(base_type type); /* elements that a lane takes at once */
bool matvec_halves(base_type type);    /* F16, BF16: words of them are fetched as of blocks */
/* What a chunk is fetched as, as of tile_packed_widths, and its words; 0: of F32. */
uint32_t matvec_raw_widths(base_type type, uint8_t widths[TILE_RAW_MAX]);
uint32_t matvec_raw_words(base_type type);
/* Where the parts of a vector of k elements lie in workgroup memory, in 16 bytes. */
void matvec_layout(matvec_x x, uint32_t k, uint32_t *unit, uint32_t *half, uint32_t *second,
                   uint32_t *vector);
/* Elements of a vector that workgroup memory holds at a time. */
static inline uint32_t matvec_held(const matvec_choice *c, uint32_t k) {
    return tile_matvec_copies(c) ? c->window : k;
}

/* Where 16 elements of vector v lie in workgroup memory, in 16 bytes. */
ir_id matvec_place(tile_matvec *m, uint32_t v, ir_id four, ir_id second, ir_id half);
/* The lane's places, of MATVEC_COPIED. */
void matvec_copy_begin(tile_matvec *m);
/* What is asked for goes to workgroup memory; then window `next` is asked for (IR_NO_ID: none). */
void matvec_copy_window(tile_matvec *m, ir_id next);
/* Memory for it. */
void matvec_copy_open(tile_matvec *m, uint32_t rows);

/* Rows of opened chunks times all vectors, added to the lane's sums; do the types want sums of
 * each 16 numbers? */
void matvec_copied_add(tile_matvec *m, base_type type, uint32_t rows, const tile_opened *opened);
bool matvec_copied_halves(base_type type);

/* Of the word that two sums of 16 numbers lie in, in memory (tile/dots.h). */
void matvec_sums_of(ir_builder *b, ir_id word, ir_id sums[2]);

/* Runs from `first` on that share factors. */
uint32_t matvec_alike(const tile_part *p, uint32_t first);

/* Tables that weights of these types are looked up in. */
uint32_t matvec_tables(const base_type *types, uint32_t n, tile_pairs pairs[TILE_TABLES_MAX]);

#endif
