/* lower_ir_packed.h - rows of blocks as GPUs read them best: a lane loads a chunk whole (lower_ir_packed_load: loads and their
 * addresses alone, so that many may be under way), and takes it apart later into bytes, four a word, as integer products
 * want them.
 *
 * A chunk is 32, 64 or 128 elements. Its parts share a scale each: y = factor * q + least. A part has one or two runs of 16
 * elements. Where a run's elements stand is said by three numbers: four (of 64 elements), second (block of 32 in it), half. */
#ifndef GRAPH_LOWER_IR_PACKED_H
#define GRAPH_LOWER_IR_PACKED_H

#include "graph/lower_ir_block.h"

enum { LOWER_IR_RAW_MAX = 8, LOWER_IR_PART_MAX = 8 };

typedef struct lower_ir_part {
    ir_id run[2]; /* u32x4: a byte an element */
    uint32_t n_run;
    ir_id factor, least;       /* f32; least IR_NO_ID: 0 */
    ir_id four, half, second;  /* of run 0; run 1 is the other half */
} lower_ir_part;

/* Is the type read so? All blocks are; plain numbers are not. */
bool lower_ir_packed_known(base_type type);
uint32_t lower_ir_packed_chunk(base_type type); /* elements of a chunk */
/* Its bytes are q + 128, else q, 0 .. 127. */
bool lower_ir_packed_biased(base_type type);
/* What a chunk is loaded as: u32 vectors of these widths. Gives their number. */
uint32_t lower_ir_packed_widths(base_type type, uint8_t widths[LOWER_IR_RAW_MAX]);
void lower_ir_packed_load(const lower_ir_weight *w, ir_id row, ir_id chunk, ir_id raw[LOWER_IR_RAW_MAX]);
/* chunk: its number in the row; turn: the same modulo 4, or as many more as one likes. Gives the number of parts. */
uint32_t lower_ir_packed_open(const lower_ir_weight *w, const ir_id raw[LOWER_IR_RAW_MAX], ir_id chunk, ir_id turn,
                              lower_ir_part parts[LOWER_IR_PART_MAX]);

#endif
