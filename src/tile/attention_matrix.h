/* attention_matrix.h - sizes that forms of attention on matrix units share. For
 * attention_matrix.c and the backward pass (attention_back_matrix.h). */
#ifndef TILE_ATTENTION_MATRIX_H
#define TILE_ATTENTION_MATRIX_H

#include "tile/attention.h"

enum {
    ROWS = 16, /* of a fragment; */
    TILE = 8,  /* its columns; */
    DEPTH = 16,
    LANES = 32,
    PAD = 8, /* elements: lines begin in other banks */
    BLOCK = ATTENTION_BLOCK,
    EIGHT = ATTENTION_EIGHT,
    D_MAX = 512,
    HALVES_MAX = 1 << 28 /* elements that a dispatch before makes halves of */
};

/* The sum or the largest of x in the four lanes that have a row of a fragment. */
static inline ir_id attention_quad(ir_builder *b, ir_id x, bool sum) {
    for (uint32_t mask = 1; mask < 4; mask *= 2) {
        ir_id other = ir_subgroup_shuffle_xor(b, x, mask);
        x = sum ? ir_add(b, x, other) : ir_max(b, x, other);
    }
    return x;
}

/* Where an element of a line lies in workgroup memory among `lines` of them, each of `size`
 * elements; direct: in blocks. */
static inline ir_id attention_staged_at(ir_builder *b, bool direct, uint32_t size, ir_id line,
                                        ir_id e, uint32_t lines) {
    return direct ? attention_block_at(b, line, e, lines) : ir_add(b, tile_mul(b, line, size), e);
}

#endif
