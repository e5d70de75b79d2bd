/* packed.h - rows of blocks as GPUs read them best: a lane loads a chunk whole
 * (tile_packed_load: loads and their addresses alone, so that many may be under way), and
 * takes it apart later into bytes, four a word, as integer products want them.
 *
 * A chunk is 32, 64 or 128 elements. Its parts are blocks of 32 elements, or halves of them, of
 * one or two runs of 16 elements. Where a run's elements stand is said by three numbers: four
 * (of 64 elements), second (block of 32 in it), half. Of types with a table
 * (tile_weight_table) runs are interleaved, each with what stands tile_weight_interleave elements
 * on. 16: the runs of a block are its elements 0, 16, 1, 17, ..., 7, 23 and 8, 24, ..., 31; 8:
 * each run is its own 0, 8, 1, 9, ..., 7, 15. An element is d * scale * (q - zero) + m * least. */
#ifndef TILE_PACKED_H
#define TILE_PACKED_H

#include "tile/block.h"

enum { TILE_PART_MAX = 8 };

typedef struct tile_part {
    ir_id run[2];  /* u32x4: a byte an element, q moved up by `up` bits */
    ir_id less[2]; /* IR_NO_ID, or bytes that are to be taken off those */
    uint32_t n_run, up;
    /* i32 (scale: f32 where fractions), of each run; of both the same: one id. IR_NO_ID: 1 */
    ir_id scale[2], least[2];
    ir_id four, half, second; /* of run 0; run 1 is the other half */
} tile_part;

typedef struct tile_opened {
    ir_id d, m; /* f32; m IR_NO_ID: 0 */
    bool fractions;
    tile_part parts[TILE_PART_MAX];
    uint32_t n;
} tile_opened;

/* A table of numbers (tile_weight_table) for two places at once, in workgroup memory: word
 * byte * copies + copy has the number of the byte's lower half in its lowest byte, that of the
 * upper half in its second. As many copies as lanes read at once, if there is room, so that each
 * reads a bank of its own. */
typedef struct tile_pairs {
    const uint32_t *table;
    ir_memory memory;
    uint32_t copies;
} tile_pairs;

/* of a copy */
enum { TILE_TABLES_MAX = 2, TILE_PAIRS_BYTES = 1024, TILE_COPIES_MAX = 32 };

/* Fills it. A barrier has to follow. */
void tile_pairs_fill(tile_kernel *k, const tile_pairs *pairs);

/* Is the type read so? All blocks are; plain numbers are not. */
bool tile_packed_known(base_type type);
uint32_t tile_packed_chunk(base_type type); /* elements of a chunk */
bool tile_packed_signed(base_type type);    /* its bytes are, else 0 .. 127 */
uint32_t tile_packed_zero(base_type type);
/* What a chunk is loaded as: u32 vectors of these widths; their number is given. Where a word has
 * entries of several blocks the last is no load: how far up this block's stand. */
uint32_t tile_packed_widths(base_type type, uint8_t widths[TILE_RAW_MAX]);
uint32_t tile_packed_words(base_type type); /* that are loaded */
void tile_packed_load(const tile_weight *w, ir_id row, ir_id chunk, ir_id raw[TILE_RAW_MAX]);
/* chunk: its number in the row; turn: the same modulo 8, plus any multiple of it; pairs: of
 * its table, NULL: it has none, or permutes bytes. */
void tile_packed_open(const tile_weight *w, const ir_id raw[TILE_RAW_MAX], ir_id chunk, ir_id turn,
                      const tile_pairs *pairs, tile_opened *o);
/* 16 bytes x times y, and the sum. */
ir_id tile_packed_dot(ir_builder *b, ir_id x, ir_id y, ir_id sum);

#endif
