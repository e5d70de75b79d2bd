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

#endif
