/* types.h - tensor types with block layouts and exact dequantisation (GGUF type ids, GGML block formats). */
#ifndef BASE_TYPES_H
#define BASE_TYPES_H

#include "beryl.h"

/* name, text, GGUF id (-1: not in GGUF), elements a block, bytes a block */
#define BASE_TYPE_LIST(X)                                                                          \
    X(F32, "F32", 0, 1, 4)                                                                         \
    X(F16, "F16", 1, 1, 2)                                                                         \
    X(Q4_0, "Q4_0", 2, 32, 18)                                                                     \
    X(Q4_1, "Q4_1", 3, 32, 20)                                                                     \
    X(Q5_0, "Q5_0", 6, 32, 22)                                                                     \
    X(Q5_1, "Q5_1", 7, 32, 24)                                                                     \
    X(Q8_0, "Q8_0", 8, 32, 34)                                                                     \
    X(Q2_K, "Q2_K", 10, 256, 84)                                                                   \
    X(Q3_K, "Q3_K", 11, 256, 110)                                                                  \
    X(Q4_K, "Q4_K", 12, 256, 144)                                                                  \
    X(Q5_K, "Q5_K", 13, 256, 176)                                                                  \
    X(Q6_K, "Q6_K", 14, 256, 210)                                                                  \
    X(Q8_K, "Q8_K", 15, 256, 292)                                                                  \
    X(IQ4_NL, "IQ4_NL", 20, 32, 18)                                                                \
    X(IQ4_XS, "IQ4_XS", 23, 256, 136)                                                              \
    X(MXFP4, "MXFP4", 39, 32, 17)                                                                  \
    X(NVFP4, "NVFP4", 40, 64, 36)                                                                  \
    X(BF16, "BF16", 30, 1, 2)                                                                      \
    X(F64, "F64", 28, 1, 8)                                                                        \
    X(I8, "I8", 24, 1, 1)                                                                          \
    X(I16, "I16", 25, 1, 2)                                                                        \
    X(I32, "I32", 26, 1, 4)                                                                        \
    X(I64, "I64", 27, 1, 8)                                                                        \
    X(U8, "U8", -1, 1, 1)                                                                          \
    X(U16, "U16", -1, 1, 2)                                                                        \
    X(U32, "U32", -1, 1, 4)                                                                        \
    X(U64, "U64", -1, 1, 8)                                                                        \
    X(BOOL, "BOOL", -1, 1, 1)

typedef enum base_type {
#define X(name, text, id, n, bytes) TYPE_##name,
    BASE_TYPE_LIST(X)
#undef X
    TYPE_COUNT
} base_type;

const char *base_type_name(base_type type);
uint32_t base_type_block(base_type type);       /* elements a block */
uint32_t base_type_block_bytes(base_type type);
bool base_type_from_gguf(uint32_t id, base_type *type); /* false: no such type here */
const char *base_type_gguf_name(uint32_t id);   /* also of types that we refuse; "type 77" is NULL */
bool base_type_is_quantised(base_type type);
/* Bytes of a row of n elements (n a multiple of the block, else 0). */
uint64_t base_type_row_bytes(base_type type, uint64_t n);

/* n elements (a multiple of the block) to f32, bit-equal to ggml. For all floats and block types. */
void base_dequantise(base_type type, const void *blocks, float *out, size_t n);
float base_f16_to_f32(uint16_t bits);
uint16_t base_f32_to_f16(float value); /* nearest even, overflow to infinity */
uint16_t base_f32_to_bf16(float value);

#endif
