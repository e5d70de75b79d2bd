/* block.h - how kernels read the rows of a weight, of any type that
 * graph_pack_layout_of knows.
 *
 * A row is blocks of the type's elements; a block is chunks, each what lies in 16 bytes of the
 * lowest bits (plane 0); a chunk is runs of 16 neighbouring elements: one for 8-bit quants and
 * plain numbers, two for 4 bits, four for 2. The order of chunks in a block is that of the
 * bytes; tile_run_at says where a run's elements stand in the row. */
#ifndef TILE_BLOCK_H
#define TILE_BLOCK_H

#include "tile/kernel.h"

enum { TILE_RUNS_MAX = 4, TILE_RAW_MAX = 8 };

typedef enum tile_scale {
    SCALE_NONE,
    SCALE_D,     /* y = d q */
    SCALE_D_M,   /* y = d q + m */
    SCALE_POWER, /* y = 2^(e - 128) q */
    SCALE_E4M3,  /* y = S / 2 q, 4 bytes e4m3 */
    SCALE_2,     /* d (c & 15) q - dmin (c >> 4), 16 bytes */
    SCALE_3,     /* d (S - 32) q, S of 6 bits in 12 bytes */
    SCALE_4,     /* d S q - dmin M, S and M of 6 bits in 12 bytes after d and dmin */
    SCALE_6,     /* d S q, 16 signed bytes */
    SCALE_IQ4,   /* d (S - 32) q, S of 6 bits in 6 bytes after d */
    SCALE_OWN,   /* fours and sixteenths by their own rules: four_at, factor_at */
    SCALE_FLOAT, /* q is a float of 8 bits */
    SCALE_AFFINE /* y = d q + m, both F32 */
} tile_scale;

/* Bits of elements: a group of g bytes holds g * 8 / bits elements, element e of it in byte e %
 * g at bit (e / g) * bits. group 8: 16 bytes hold two. group 0: one word, element e at bit e.
 * at: word of the block's entry in that plane. */
typedef struct tile_bits {
    uint8_t bits, plane, group, at;
} tile_bits;

/* How GPUs read it (tile/packed.h). */
typedef struct tile_packed_form {
    uint8_t chunk;    /* elements; 0: they do not */
    bool half_blocks; /* a chunk is halves of blocks of 32 */
    uint8_t widths[TILE_RAW_MAX];
} tile_packed_form;

/* All that kernels know of a type, but for how SCALE_OWN unpacks. */
typedef struct tile_block_form {
    tile_bits low, high;
    uint8_t zero;  /* taken off the bits' number; of 8 bits: they are signed */
    uint8_t table; /* 1: IQ4's values, 2: E2M1's, doubled */
    tile_scale kind;
    uint8_t sub;       /* elements that share a scale */
    uint8_t d, scales; /* planes */
    uint8_t entry;     /* SCALE_OWN: numbers of an entry of base_type_table; 0: there is none */
    float by;          /* and a factor is d (s + 1/2) by */
    tile_packed_form packed;
} tile_block_form;

typedef struct tile_weight {
    tile_kernel *k;
    base_type type;
    uint32_t n; /* elements of a row */
    /* F32, F16, BF16: blocks of one chunk of 16; the row's rest is read one by one */
    bool plain;
    bool aligned;   /* plain: rows begin at a multiple of the vector */
    ir_memory from; /* plain: its numbers; else words */
    ir_id start;    /* plain: element of row 0 */
    /* elements of a row (plain), blocks of a row: parameters, so that one kernel serves all
     * shapes */
    ir_id row;
    ir_id plane[PACK_PLANE_MAX]; /* words to each plane */
    /* blocks of a row (whole ones), chunks of a block, runs of a chunk */
    uint32_t blocks, chunks, runs;
} tile_weight;

typedef struct tile_chunk {         /* what was loaded of one */
    ir_id words, bytes[4];          /* quants; bytes: one in each vector lane */
    ir_id row, block, part, number; /* number: of the block, over rows */
    ir_id d, m;                     /* scale and least value of the block; IR_NO_ID: none */
    ir_id header;                   /* Q4_K, Q5_K: u32x4; NVFP4: u32 */
    ir_id factor, least;            /* of tile_span_open; least IR_NO_ID: none */
} tile_chunk;

/* of a quantised type */
const tile_block_form *tile_weight_form(base_type type);
/* Words of a block's entry in a plane; of less than a word: 1. */
uint32_t tile_weight_words(base_type type, uint32_t plane);
/* Has a product a second sum, of least values? */
bool tile_weight_has_least(base_type type);
/* Can it be read? */
bool tile_weight_known(base_type type);
/* Quants that are places in a table of 16 signed bytes, four a word; NULL: others. */
const uint32_t *tile_weight_table(base_type type);
/* of those: how far apart the two elements of a byte stand; others: 0 */
uint32_t tile_weight_interleave(base_type type);
uint32_t tile_weight_chunk(base_type type);  /* its elements */
ir_type tile_weight_element(base_type type); /* of a buffer with such a weight */
/* In `from`, its planes (plain: `start`) to be set by the caller; rows of n elements, constants
 * of the kernel. */
void tile_weight_made(tile_weight *w, tile_kernel *k, base_type type, uint32_t n, ir_memory from);
/* A stored weight's shard, whose rows are counted from the shard's first. */
void tile_weight_stored(tile_weight *w, tile_kernel *k, const char *name, graph_value v,
                        uint32_t shard, uint32_t n);
/* A matrix in memory of the plan or in a state; row_stride == n. */
void tile_weight_plain(tile_weight *w, tile_kernel *k, const char *name, graph_value v, uint32_t n);

void tile_chunk_load(const tile_weight *w, ir_id row, ir_id block, ir_id part, tile_chunk *c);
/* Run `run` of the chunk as f32: TILE_RUN / wide vectors. */
void tile_run_load(const tile_weight *w, const tile_chunk *c, uint32_t run, ir_id *values);
/* The element of the row where a run begins. */
ir_id tile_run_at(const tile_weight *w, ir_id block, ir_id part, uint32_t run);
/* The element of the block, of a quantised type. */
ir_id tile_run_in_block(const tile_weight *w, ir_id part, uint32_t run);

/* The same in the order of the elements, for loops in place of copies: a block is spans that
 * share a factor (plain: runs). What is loaded of a block, of a span that begins at `element` of
 * it, and its elements from `element` on, all from one word: one, or four that begin at a multiple
 * of four. Of plain rows: elements of the row, any block. */
uint32_t tile_weight_span(base_type type);
void tile_block_open(const tile_weight *w, ir_id row, ir_id block, tile_chunk *c);
void tile_span_open(const tile_weight *w, ir_id element, tile_chunk *c);
ir_id tile_elements_load(const tile_weight *w, const tile_chunk *c, ir_id element, uint32_t width);
/* One element of a row. */
ir_id tile_element_load(const tile_weight *w, ir_id row, ir_id column);

#endif
