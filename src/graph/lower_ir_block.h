/* lower_ir_block.h - how generated kernels read the rows of a weight, of any type that graph_pack_layout_of knows.
 *
 * A row is blocks of the type's elements; a block is chunks, each what lies in 16 bytes of the lowest bits (plane 0); a chunk is
 * runs of 16 neighbouring elements: one for 8-bit quants and plain numbers, two for 4 bits, four for 2. The order of chunks
 * in a block is that of the bytes; lower_ir_run_at says where a run's elements stand in the row. */
#ifndef GRAPH_LOWER_IR_BLOCK_H
#define GRAPH_LOWER_IR_BLOCK_H

#include "graph/lower_ir.h"

enum { LOWER_IR_RUNS_MAX = 4 };

typedef struct lower_ir_weight {
    lower_ir *k;
    base_type type;
    uint32_t n;       /* elements of a row */
    bool plain;       /* F32, F16, BF16: blocks of one chunk of 16; the row's rest is read one by one */
    bool aligned;     /* plain: rows begin at a multiple of the vector */
    ir_memory from;   /* plain: its numbers; else words */
    ir_id start;      /* plain: element of row 0 */
    ir_id row;        /* elements of a row (plain), blocks of a row: parameters, so that one kernel serves all shapes */
    ir_id plane[PACK_PLANE_MAX];    /* words to each plane */
    uint32_t blocks, chunks, runs;  /* blocks of a row (whole ones), chunks of a block, runs of a chunk */
} lower_ir_weight;

typedef struct lower_ir_chunk { /* what was loaded of one */
    ir_id words, bytes[4];      /* quants; bytes: one in each vector lane */
    ir_id row, block, part, number; /* number: of the block, over rows */
    ir_id d, m;                 /* scale and least value of the block; IR_NO_ID: none */
    ir_id header;               /* Q4_K, Q5_K: u32x4; NVFP4: u32 */
} lower_ir_chunk;

/* Can it be read? */
bool lower_ir_weight_known(base_type type);
/* Quants that are places in a table of 16 signed bytes, four a word; NULL: others. */
const uint32_t *lower_ir_weight_table(base_type type);
uint32_t lower_ir_weight_weave(base_type type); /* of those: how far apart the two elements of a byte stand; others: 0 */
ir_type lower_ir_weight_element(base_type type); /* of a buffer with such a weight */
/* In `from`, its planes (plain: `start`) to be set by the caller; rows of n elements, constants of the kernel. */
void lower_ir_weight_made(lower_ir_weight *w, lower_ir *k, base_type type, uint32_t n, ir_memory from);
/* A stored weight's shard, whose rows are counted from the shard's first. */
void lower_ir_weight_stored(lower_ir_weight *w, lower_ir *k, const char *name, graph_value v, uint32_t shard, uint32_t n);
/* A matrix in memory of the plan or in a state; row_stride == n. */
void lower_ir_weight_plain(lower_ir_weight *w, lower_ir *k, const char *name, graph_value v, uint32_t n);

/* A cache [slot, row, head, n] of F32, F16 or Q8_0, its rows counted over the leading axes. */
void lower_ir_weight_cache(lower_ir_weight *w, lower_ir *k, const char *name, graph_value v);

void lower_ir_chunk_load(const lower_ir_weight *w, ir_id row, ir_id block, ir_id part, lower_ir_chunk *c);
/* Run `run` of the chunk as f32: LOWER_IR_RUN / wide vectors. */
void lower_ir_run_load(const lower_ir_weight *w, const lower_ir_chunk *c, uint32_t run, ir_id *values);
/* The element of the row where a run begins. */
ir_id lower_ir_run_at(const lower_ir_weight *w, ir_id block, ir_id part, uint32_t run);
/* One element of a row. */
ir_id lower_ir_element_load(const lower_ir_weight *w, ir_id row, ir_id column);

#endif
