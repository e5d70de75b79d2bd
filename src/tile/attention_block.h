/* attention_block.h - lines (rows or keys) as lanes of vectors. For tile/attention_block.c and
 * tile/attention_back_block.c alone. */
#ifndef TILE_ATTENTION_BLOCK_H
#define TILE_ATTENTION_BLOCK_H

#include "tile/attention.h"

enum {
    BLOCK_VECTORS_MAX = 2, /* of lines */
    BLOCK_EACH_MAX = 8,    /* sums of each that are in registers */
    BLOCK_OTHERS = 32,     /* other lines of a block; */
    BLOCK_OTHERS_FAR = 16, /* of long heads, */
    BLOCK_FAR = 256,       /* which have so many elements */
    BLOCK_GROUPS_A_UNIT = 2
};

typedef struct block_vectors {
    tile_kernel *k;
    uint32_t wide, n, lines, each; /* lanes of a vector; vectors; their lines; sums of each */
    ir_memory part[BLOCK_VECTORS_MAX * BLOCK_EACH_MAX]; /* registers [wide] */
    ir_id zero;
} block_vectors;

static inline void block_bind(block_vectors *v) {
    for (uint32_t i = 0; i < v->n * v->each; i++)
        v->part[i] = ir_register(v->k->b, IR_F32, v->wide);
    v->zero = ir_u32(v->k->b, 0);
}

static inline ir_id block_steps(const block_vectors *v, uint32_t n, uint32_t step) {
    return ir_loop(v->k->b, v->zero, ir_u32(v->k->b, n), ir_u32(v->k->b, step));
}

static inline ir_id block_many(const block_vectors *v, ir_id value) {
    return ir_splat(v->k->b, value, v->wide);
}

static inline ir_id block_number(const block_vectors *v, float value) {
    return ir_number(v->k->b, IR_F32, v->wide, (double)value);
}

/* Of [.., lines]: where vector i of entry `at` begins. */
static inline ir_id block_at(const block_vectors *v, ir_id at, uint32_t i) {
    return tile_add(v->k->b, tile_mul(v->k->b, at, v->lines), i * v->wide);
}

static inline ir_id block_load(const block_vectors *v, ir_memory from, ir_id at) {
    return ir_load(v->k->b, from, at, v->wide);
}

/* Vector i of a register array of all lines. */
static inline ir_id block_of(const block_vectors *v, ir_memory from, uint32_t i) {
    return block_load(v, from, ir_u32(v->k->b, i * v->wide));
}

/* part[v, i] += vector v of entry `at` of `vectors` * the number i of `from` at `numbers`, `stride`
 * apart. */
static inline void block_add(const block_vectors *x, ir_memory vectors, ir_id at, ir_memory from,
                             ir_id numbers, uint32_t stride) {
    ir_builder *b = x->k->b;
    ir_id own[BLOCK_VECTORS_MAX];
    for (uint32_t v = 0; v < x->n; v++) own[v] = block_load(x, vectors, block_at(x, at, v));
    for (uint32_t i = 0; i < x->each; i++) {
        ir_id y = block_many(x, ir_load(b, from, tile_add(b, numbers, i * stride), 1));
        for (uint32_t v = 0; v < x->n; v++) {
            ir_memory to = x->part[v * x->each + i];
            ir_store(b, to, x->zero, ir_fma(b, own[v], y, block_load(x, to, x->zero)));
        }
    }
}

#endif
