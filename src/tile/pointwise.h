/* pointwise.h - what a kernel computes for each pointwise operation. */
#ifndef TILE_POINTWISE_H
#define TILE_POINTWISE_H

#include "tile/kernel.h"

/* The type in which a tensor's elements are computed: F16 and BF16 as f32, BOOL as bool. */
ir_type tile_number_type(base_type type);
/* What memory has of that type, as numbers. */
ir_id tile_number(ir_builder *b, base_type type, ir_id x);
/* The operation's result for its inputs: vectors of one width, each of its tensor's number type. */
ir_id tile_pointwise(tile_kernel *k, base_op op, const graph_attrs *attr, const ir_id *in);

#endif
