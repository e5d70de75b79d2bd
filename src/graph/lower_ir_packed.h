/* lower_ir_packed.h - rows of blocks as GPUs read them best: a lane loads a chunk whole (lower_ir_packed_load: loads and their
 * addresses alone, so that many may be under way), and takes it apart later into bytes, four a word, as integer products
 * want them.
 *
 * A chunk is 32, 64 or 128 elements. Its parts are blocks of 32 elements, or halves of them, of one or two runs of 16
 * elements. Where a run's elements stand is said by three numbers: four (of 64 elements), second (block of 32 in it), half.
 * Of types with a table (lower_ir_weight_table) runs are woven, each with what stands lower_ir_weight_weave elements on. 16: the runs
 * of a block are its elements 0, 16, 1, 17, ..., 7, 23 and 8, 24, ..., 31; 8: each run is its own 0, 8, 1, 9, ..., 7, 15.
 * An element is d * scale * (q - zero) + m * least. */
#ifndef GRAPH_LOWER_IR_PACKED_H
#define GRAPH_LOWER_IR_PACKED_H

#include "graph/lower_ir_block.h"

enum { LOWER_IR_RAW_MAX = 8, LOWER_IR_PART_MAX = 8 };

typedef struct lower_ir_part {
    ir_id run[2]; /* u32x4: a byte an element, q moved up by `up` bits */
    ir_id less[2]; /* IR_NO_ID, or bytes that are to be taken off those */
    uint32_t n_run, up;
    ir_id scale[2], least[2]; /* i32 (scale: f32 where fractions), of each run; of both the same: one id. IR_NO_ID: 1 */
    ir_id four, half, second; /* of run 0; run 1 is the other half */
} lower_ir_part;

typedef struct lower_ir_opened {
    ir_id d, m; /* f32; m IR_NO_ID: 0 */
    bool fractions;
    lower_ir_part parts[LOWER_IR_PART_MAX];
    uint32_t n;
} lower_ir_opened;

/* A table of numbers (lower_ir_weight_table) for two places at once, in workgroup memory: word byte * copies + copy has the number
 * of the byte's lower half in its lowest byte, that of the upper half in its second. As many copies as lanes read at once, if
 * there is room, so that each reads a bank of its own. */
typedef struct lower_ir_pairs {
    const uint32_t *table;
    ir_memory memory;
    uint32_t copies;
} lower_ir_pairs;

enum { LOWER_IR_TABLES_MAX = 2, LOWER_IR_PAIRS_BYTES = 1024, LOWER_IR_COPIES_MOST = 32 }; /* of a copy */

/* Fills it. A barrier has to follow. */
void lower_ir_pairs_fill(lower_ir *k, const lower_ir_pairs *pairs);

/* Is the type read so? All blocks are; plain numbers are not. */
bool lower_ir_packed_known(base_type type);
uint32_t lower_ir_packed_chunk(base_type type); /* elements of a chunk */
bool lower_ir_packed_signed(base_type type);   /* its bytes are, else 0 .. 127 */
uint32_t lower_ir_packed_zero(base_type type);
/* What a chunk is loaded as: u32 vectors of these widths. Gives their number. */
uint32_t lower_ir_packed_widths(base_type type, uint8_t widths[LOWER_IR_RAW_MAX]);
void lower_ir_packed_load(const lower_ir_weight *w, ir_id row, ir_id chunk, ir_id raw[LOWER_IR_RAW_MAX]);
/* chunk: its number in the row; turn: the same modulo 8, or as many more as one likes; pairs: of its table, NULL: it has none,
 * or permutes bytes. */
void lower_ir_packed_open(const lower_ir_weight *w, const ir_id raw[LOWER_IR_RAW_MAX], ir_id chunk, ir_id turn, const lower_ir_pairs *pairs,
                          lower_ir_opened *o);

#endif
