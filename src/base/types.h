/* types.h - tensor types with block layouts and exact dequantisation (GGUF type ids, GGML block
 * formats). */
#ifndef BASE_TYPES_H
#define BASE_TYPES_H

#include "beryl.h"

/* name, text, GGUF id (-1: not in GGUF), elements a block, bytes a block, fields. A field is
 * {first byte, bytes} of the block, and lies in a plane of its own on a device (graph/pack.c says
 * what is in it); no fields, so no weight: {0, 0}. The first BASE_USUAL_TYPES are those that files
 * have most. A new type is a row here and its name in beryl_graph.h; if it is a block, how it is
 * dequantised (types.c, and grids.c if its bits are places in a long table), and what
 * kernels know of it: a row of `forms` in tile/block.c, and code there or in tile/packed.c for what
 * no row can say. */
#define BASE_WEIGHT_LIST(X)                                                 \
    X(F32, "F32", 0, 1, 4, {0, 4})                                          \
    X(F16, "F16", 1, 1, 2, {0, 2})                                          \
    X(Q8_0, "Q8_0", 8, 32, 34, {2, 32}, {0, 2})                             \
    X(Q4_K, "Q4_K", 12, 256, 144, {16, 128}, {0, 16})                       \
    X(Q6_K, "Q6_K", 14, 256, 210, {0, 128}, {128, 64}, {192, 16}, {208, 2}) \
    X(BF16, "BF16", 30, 1, 2, {0, 2})                                       \
    X(Q4_0, "Q4_0", 2, 32, 18, {2, 16}, {0, 2})                             \
    X(Q4_1, "Q4_1", 3, 32, 20, {4, 16}, {0, 4})                             \
    X(Q5_0, "Q5_0", 6, 32, 22, {6, 16}, {0, 2}, {2, 4})                     \
    X(Q5_1, "Q5_1", 7, 32, 24, {8, 16}, {0, 8})                             \
    X(Q2_K, "Q2_K", 10, 256, 84, {16, 64}, {0, 16}, {80, 4})                \
    X(Q3_K, "Q3_K", 11, 256, 110, {32, 64}, {0, 32}, {96, 12}, {108, 2})    \
    X(Q5_K, "Q5_K", 13, 256, 176, {48, 128}, {0, 16}, {16, 32})             \
    X(IQ4_NL, "IQ4_NL", 20, 32, 18, {2, 16}, {0, 2})                        \
    X(IQ4_XS, "IQ4_XS", 23, 256, 136, {8, 128}, {0, 8})                     \
    X(MXFP4, "MXFP4", 39, 32, 17, {1, 16}, {0, 1})                          \
    X(NVFP4, "NVFP4", 40, 64, 36, {4, 32}, {0, 4})                          \
    X(IQ1_S, "IQ1_S", 19, 256, 50, {2, 32}, {34, 16}, {0, 2})               \
    X(IQ1_M, "IQ1_M", 29, 256, 56, {0, 32}, {32, 16}, {48, 8})              \
    X(IQ2_XXS, "IQ2_XXS", 16, 256, 66, {2, 64}, {0, 2})                     \
    X(IQ2_XS, "IQ2_XS", 17, 256, 74, {2, 64}, {66, 8}, {0, 2})              \
    X(IQ2_S, "IQ2_S", 22, 256, 82, {2, 64}, {66, 16}, {0, 2})               \
    X(IQ3_XXS, "IQ3_XXS", 18, 256, 98, {2, 64}, {66, 32}, {0, 2})           \
    X(IQ3_S, "IQ3_S", 21, 256, 110, {2, 64}, {66, 44}, {0, 2})              \
    X(TQ1_0, "TQ1_0", 34, 256, 54, {0, 52}, {52, 2})                        \
    X(TQ2_0, "TQ2_0", 35, 256, 66, {0, 64}, {64, 2})                        \
    X(F8_E4M3, "F8_E4M3", -1, 16, 16, {0, 16})                              \
    X(F8_E5M2, "F8_E5M2", -1, 16, 16, {0, 16})                              \
    X(AFFINE8, "AFFINE8", -1, 32, 40, {8, 32}, {0, 8})                      \
    X(AFFINE4, "AFFINE4", -1, 32, 24, {8, 16}, {0, 8})

#define BASE_TYPE_LIST(X)                 \
    BASE_WEIGHT_LIST(X)                   \
    X(Q8_K, "Q8_K", 15, 256, 292, {0, 0}) \
    X(F64, "F64", 28, 1, 8, {0, 0})       \
    X(I8, "I8", 24, 1, 1, {0, 0})         \
    X(I16, "I16", 25, 1, 2, {0, 0})       \
    X(I32, "I32", 26, 1, 4, {0, 0})       \
    X(I64, "I64", 27, 1, 8, {0, 0})       \
    X(U8, "U8", -1, 1, 1, {0, 0})         \
    X(U16, "U16", -1, 1, 2, {0, 0})       \
    X(U32, "U32", -1, 1, 4, {0, 0})       \
    X(U64, "U64", -1, 1, 8, {0, 0})       \
    X(BOOL, "BOOL", -1, 1, 1, {0, 0})

enum { BASE_USUAL_TYPES = 5 };

/* What a file says that it is, general.file_type: number, name. */
#define BASE_FILE_TYPE_LIST(X) \
    X(0, "F32")                \
    X(1, "F16")                \
    X(2, "Q4_0")               \
    X(3, "Q4_1")               \
    X(7, "Q8_0")               \
    X(8, "Q5_0")               \
    X(9, "Q5_1")               \
    X(10, "Q2_K")              \
    X(11, "Q3_K_S")            \
    X(12, "Q3_K_M")            \
    X(13, "Q3_K_L")            \
    X(14, "Q4_K_S")            \
    X(15, "Q4_K_M")            \
    X(16, "Q5_K_S")            \
    X(17, "Q5_K_M")            \
    X(18, "Q6_K")              \
    X(19, "IQ2_XXS")           \
    X(20, "IQ2_XS")            \
    X(21, "Q2_K_S")            \
    X(22, "IQ3_XS")            \
    X(23, "IQ3_XXS")           \
    X(24, "IQ1_S")             \
    X(25, "IQ4_NL")            \
    X(26, "IQ3_S")             \
    X(27, "IQ3_M")             \
    X(28, "IQ2_S")             \
    X(29, "IQ2_M")             \
    X(30, "IQ4_XS")            \
    X(31, "IQ1_M")             \
    X(32, "BF16")              \
    X(36, "TQ1_0")             \
    X(37, "TQ2_0")             \
    X(38, "MXFP4_MOE")         \
    X(39, "NVFP4")

typedef enum base_type {
#define X(name, ...) TYPE_##name,
    BASE_TYPE_LIST(X)
#undef X
        TYPE_COUNT
} base_type;

typedef struct base_field { /* bytes [at, at + size) of a block */
    uint16_t at, size;
} base_field;

enum { BASE_FIELD_MAX = 4 };

const char *base_type_name(base_type type);
uint32_t base_type_block(base_type type); /* elements a block */
uint32_t base_type_block_bytes(base_type type);
bool base_type_from_gguf(uint32_t id, base_type *type); /* false: no such type here */
/* also of types that we refuse; "type 77" is NULL */
const char *base_type_gguf_name(uint32_t id);
bool base_type_is_quantised(base_type type);
bool base_type_is_float(base_type type); /* F32, F16, BF16, F64 */
bool base_type_is_integer(base_type type);
/* May a model's matrix have it? */
bool base_type_is_weight(base_type type);
/* The numbers that the blocks' bits are places of, for types where those are too many for a
 * kernel's text: signed bytes, a multiple of 16 of them; to: where, NULL: nowhere. 0: there are
 * none. */
uint32_t base_type_table(base_type type, uint8_t *to);
int32_t base_type_table_at(base_type type, uint32_t entry, uint32_t i);
/* Field i of a weight's block, i < BASE_FIELD_MAX; size 0: it has no more. */
base_field base_type_field(base_type type, uint32_t i);
/* Bytes of a row of n elements (n a multiple of the block, else 0). */
uint64_t base_type_row_bytes(base_type type, uint64_t n);

/* n elements (a multiple of the block) to f32, bit-equal to ggml. For all floats and block
 * types. */
void base_dequantise(base_type type, const void *blocks, float *out, size_t n);
float base_f16_to_f32(uint16_t bits);
uint16_t base_f32_to_f16(float value); /* nearest even, overflow to infinity */
uint16_t base_f32_to_bf16(float value);

#endif
