/* helpers.h - the tables of helper functions (helpers.c has those that WGSL takes too, helpers_c.c
 * those of C's languages alone). */
#ifndef CODEGEN_HELPERS_H
#define CODEGEN_HELPERS_H

#include "codegen/write.h"

enum {
    WGSL = 1 << DEVICE_WGSL,
    CUDA = 1 << DEVICE_CUDA_C,
    HIP = 1 << DEVICE_HIP_C,
    OPENCL = 1 << DEVICE_OPENCL_C,
    HOST = 1 << DEVICE_C,
    PROCESSOR = HOST << 1, /* OpenCL C for one */
    WIDENED = PROCESSOR << 1,
    C_LIKE = CUDA | HIP | OPENCL | PROCESSOR | HOST,
    ALL = WGSL | C_LIKE
};

typedef struct codegen_helper {
    const char *name; /* NULL ends a table */
    int languages;
    const char *text; /* of WIDENED: the name of the helper that it is, of whole vectors */
} codegen_helper;

extern const codegen_helper codegen_c_helpers[];

/* clang-format off */
/* A quotient of polynomials to 9, 5 units in the last place; beyond it may leave -1 to 1. */
#define TANH_QUOTIENT \
    "    let bits: i32 = i32(bitcast<u32>(x * x));\n" \
    "    let s: f32 = bitcast<f32>(u32(select(bits, 0x42a20000, bits > 0x42a20000)));\n" /* 81 */ \
    "    let p2: f32 = @fma(@fma(s, 1.33550502e-8f, 2.06093938e-5f), s, 3.49560849e-3f);\n" \
    "    let q2: f32 = @fma(@fma(s, 7.77672641e-7f, 3.28566709e-4f), s, 2.58770613e-2f);\n" \
    "    let p: f32 = @fma(@fma(p2, s, 0.133810433f), s, 0.99999998f);\n" \
    "    let t: f32 = x * p / @fma(@fma(q2, s, 0.467143589f), s, 1.0f);\n"
/* of: the languages that have them. */
#define MIN_MAX(of, t)                                                                            \
    {"min_" t, of,                                                                                \
     "fn min_" t "(x: " t ", y: " t ") -> " t " {\n    return select(y, x, x <= y || nan_" t      \
     "(y));\n}\n"}, /* of a constant y one comparison */                                          \
        {"max_" t, of,                                                                            \
         "fn max_" t "(x: " t ", y: " t ") -> " t " {\n    return select(x, y, y > x || nan_" t   \
         "(x));\n}\n"},                                                                           \
    {                                                                                             \
        "within_" t, of,                                                                          \
            "fn within_" t "(x: " t ", low: " t ", high: " t ") -> " t " {\n"                     \
            "    return select(select(select(x, high, x > high), low, x < low), " t "(0), nan_" t \
            "(x));\n}\n"                                                                          \
    }

/* Float to a 32- or 64-bit integer. above: the first float that is too large; below: the last that
 * is too small or least. */
#define SATURATE(of, i, f, below, above, least, most)                                             \
    {                                                                                             \
        i "_of_" f, of,                                                                           \
            "fn " i "_of_" f "(x: " f ") -> " i " {\n"                                            \
            "    let inside: bool = x > " below " && x < " above ";\n"                            \
            "    let cut: " i " = " i "(select(" f "(0), x, inside));\n"                          \
            "    return select(select(select(cut, " least ", x <= " below "), " most              \
            ", x >= " above "), " i "(0), nan_" f "(x));\n}\n"                                    \
    }
/* clang-format on */

#endif
