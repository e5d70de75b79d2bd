/* helpers.c - functions that generated texts call, written only where they are.
 *
 * A helper for all languages is in WGSL's syntax (write.h). One for C's languages alone may be
 * plain C. The first entry of a name that fits the language counts; an entry may use those before
 * it. OpenCL for processors has functions of its own where compilers make vectors of them, not of calls. */
#include "codegen/write.h"

#include <string.h>

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

typedef struct helper {
    const char *name;
    int languages;
    const char *text; /* of WIDENED: the name of the helper that it is, of whole vectors */
} helper;

#define INTEGER_DIVISION(u, s)                                                                    \
    {"div_" u, ALL,                                                                               \
     "fn div_" u "(x: " u ", y: " u ") -> " u " {\n"                                              \
     "    return select(x / select(y, " u "(1), y == " u "(0)), " u "(0), y == " u "(0));\n}\n"}, \
        {"mod_" u, ALL,                                                                           \
         "fn mod_" u "(x: " u ", y: " u ") -> " u " {\n"                                          \
         "    return select(x % select(y, " u "(1), y == " u "(0)), " u "(0), y == " u            \
         "(0));\n}\n"},                                                                           \
    {                                                                                             \
        "div_" s, ALL,                                                                            \
            "fn div_" s "(x: " s ", y: " s ") -> " s " {\n" /* by -1: the least stays as it is */ \
            "    let q: " s " = x / select(y, " s "(1), y == " s "(0) || y == " s "(-1));\n"      \
            "    return select(select(q, " s "(" u "(0) - " u "(x)), y == " s "(-1)), " s         \
            "(0), y == " s "(0));\n}\n"                                                           \
    }

#define MIN_MAX(t)                                                                                \
    {"min_" t, ALL,                                                                               \
     "fn min_" t "(x: " t ", y: " t ") -> " t " {\n    return select(y, x, x <= y || nan_" t      \
     "(y));\n}\n"}, /* of a constant y one comparison */                                           \
        {"max_" t, ALL,                                                                           \
         "fn max_" t "(x: " t ", y: " t ") -> " t " {\n    return select(x, y, y > x || nan_" t   \
         "(x));\n}\n"},                                                                           \
    {                                                                                             \
        "within_" t, ALL,                                                                         \
            "fn within_" t "(x: " t ", low: " t ", high: " t ") -> " t " {\n"                     \
            "    return select(select(select(x, high, x > high), low, x < low), " t "(0), nan_" t \
            "(x));\n}\n"                                                                          \
    }

/* Float to a 32- or 64-bit integer. above: the first float that is too large; below: the last that
 * is too small or least. */
#define SATURATE(i, f, below, above, least, most)                                    \
    {                                                                                \
        i "_of_" f, ALL,                                                             \
            "fn " i "_of_" f "(x: " f ") -> " i " {\n"                               \
            "    let inside: bool = x > " below " && x < " above ";\n"               \
            "    let cut: " i " = " i "(select(" f "(0), x, inside));\n"             \
            "    return select(select(select(cut, " least ", x <= " below "), " most \
            ", x >= " above "), " i "(0), nan_" f "(x));\n}\n"                       \
    }

#define ATOMIC(name, t, sign)                                                                    \
    {                                                                                            \
        "atomic_" name "_" t, HOST,                                                              \
            "FN " t " atomic_" name "_" t "(" t " *at, " t " value) {\n"                         \
            "    " t " old = __atomic_load_n(at, __ATOMIC_RELAXED);\n"                           \
            "    while (value " sign " old && !__atomic_compare_exchange_n(at, &old, value, 1, " \
            "__ATOMIC_RELAXED, __ATOMIC_RELAXED)) {}\n"                                          \
            "    return old;\n}\n"                                                               \
    }

/* Vectors of n elements; with a u behind the name, at any address. as_: the same bits as vector of that type; all_: of a scalar,
 * or of a vector, which it leaves as it is. */
#define VECTOR(t, n)                                                                                                                   \
    {t "x" n, HOST, "typedef " t " " t "x" n " __attribute__((vector_size(" n " * sizeof(" t "))));\n"},                               \
    {t "x" n, PROCESSOR, "typedef " t " " t "x" n " __attribute__((ext_vector_type(" n ")));\n"},                                      \
    {t "x" n "u", HOST, "typedef " t " " t "x" n "u __attribute__((vector_size(" n " * sizeof(" t ")), aligned(1), may_alias));\n"},   \
    {t "x" n "u", PROCESSOR, "typedef " t "x" n " " t "x" n "u __attribute__((aligned(1), may_alias));\n"},                            \
    {"as_" t "x" n, HOST, "#define as_" t "x" n "(x) ((" t "x" n ")(x))\n"},                                                           \
    {"as_" t "x" n, PROCESSOR, "#define as_" t "x" n "(x) __builtin_astype(x, " t "x" n ")\n"},                                        \
    {"all_" t "x" n, HOST, "#define all_" t "x" n "(x) ((x) - (" t "x" n "){0})\n"},                                                   \
    {"all_" t "x" n, PROCESSOR, "#define all_" t "x" n "(x) ((" t "x" n ")(x))\n"}
#define VECTORS(t) VECTOR(t, "4"), VECTOR(t, "8"), VECTOR(t, "16")

/* Functions of whole vectors. For C: loops that compilers make one operation of, if they do not unroll them before they look. */
#define EACH_ELEMENT(name, n, parameters, more, elements)                                         \
    "FN f32x" n " " name "_f32x" n "(" parameters ") {\n"                                         \
    "    ALIGNED f32 a[" n "];\n    *(f32x" n "u *)a = x;\n" more                                 \
    "    EACH_ELEMENT for (u32 j = 0; j < " n "; j++) a[j] = " name "_f32(" elements ");\n"        \
    "    return *(f32x" n "u *)a;\n}\n"
#define EACH_OF_ONE(name, n) EACH_ELEMENT(name, n, "f32x" n " x", "", "a[j]")
#define EACH_OF_TWO(name, n)                                                                      \
    EACH_ELEMENT(name, n, "f32x" n " x, f32x" n " y",                                             \
                 "    ALIGNED f32 b[" n "];\n    *(f32x" n "u *)b = y;\n", "a[j], b[j]")
#define EACH_OF_THREE(name, n)                                                                    \
    EACH_ELEMENT(name, n, "f32x" n " x, f32x" n " y, f32x" n " z",                                \
                 "    ALIGNED f32 b[" n "], c[" n "];\n    *(f32x" n "u *)b = y;\n"              \
                 "    *(f32x" n "u *)c = z;\n", "a[j], b[j], c[j]")
/* The lesser or greater as one instruction, which gives y where one is NaN: gcc makes a mask and a choice of a comparison. */
#define HAS_ONE "#ifdef __AVX512VL__\n"
#define ONE_OF_TWO(name, instruction, n)                                                          \
    {name "_f32x" n, HOST,                                                                        \
     HAS_ONE "FN f32x" n " " name "_f32x" n "(f32x" n " x, f32x" n " y) {\n"                      \
     "    __asm__(\"" instruction " %1, %0, %0\" : \"+v\"(x) : \"v\"(y));\n    return x;\n}\n#endif\n"}
#define WITH_ONE(name, n, parameters, expression, otherwise)                                      \
    {name "_f32x" n, HOST,                                                                        \
     HAS_ONE "FN f32x" n " " name "_f32x" n "(" parameters ") {\n    return " expression ";\n}\n#else\n" otherwise "#endif\n"}
#define WIDE(name, n) {name "_f32x" n, PROCESSOR | WIDENED, name "_f32"}
#define VECTOR_MATH(n)                                                                           \
    {"pick_f32x" n, HOST,                                                                        \
     "#define pick_f32x" n "(mask, x, y) as_f32x" n "((as_u32x" n "(x) & as_u32x" n "(mask)) | " \
     "(as_u32x" n "(y) & ~as_u32x" n "(mask)))\n"},                                              \
    {"pick_f32x" n, PROCESSOR, "#define pick_f32x" n "(mask, x, y) ((mask) ? (x) : (y))\n"},    \
    {"halves_f32x" n, HOST | PROCESSOR, /* exact: the exponent is moved by a product, and put back where it was the largest */\
     "FN f32x" n " halves_f32x" n "(u32x" n " x) {\n"                                                \
     "    const u32x" n " size = (x & 0x7fffu) << 13, most = as_u32x" n "(size > 0x0f7fffffu) & 0x7f800000u;\n"\
     "    const f32x" n " moved = as_f32x" n "(size) * 0x1p112f;\n"                                     \
     "    return as_f32x" n "(as_u32x" n "(moved) | most | (x & 0x8000u) << 16);\n}\n"},                 \
    {"fma_f32x" n, PROCESSOR, "#define fma_f32x" n "(x, y, z) fma(x, y, z)\n"},                     \
    WIDE("min", n), WIDE("max", n), WIDE("exp", n), WIDE("tanh", n),                    \
    ONE_OF_TWO("lesser", "vminps", n), ONE_OF_TWO("greater", "vmaxps", n),                          \
    WITH_ONE("min", n, "f32x" n " x, f32x" n " y", "pick_f32x" n "(y != y, x, lesser_f32x" n "(x, y))", EACH_OF_TWO("min", n)), \
    WITH_ONE("max", n, "f32x" n " x, f32x" n " y", "pick_f32x" n "(y != y, x, greater_f32x" n "(x, y))", EACH_OF_TWO("max", n)), \
    {"tanh_quotient_f32x" n, HOST, EACH_OF_ONE("tanh_quotient", n)},                                \
    WITH_ONE("tanh", n, "f32x" n " x", "lesser_f32x" n "(all_f32x" n "(1.0f), greater_f32x" n "(all_f32x" n "(-1.0f), tanh_quotient_f32x" n "(x)))", EACH_OF_ONE("tanh", n)), \
    {"exp_f32x" n, HOST, EACH_OF_ONE("exp", n)}, {"fma_f32x" n, HOST, EACH_OF_THREE("fma", n)}

/* A quotient of polynomials to 9, 5 units in the last place; beyond it may leave -1 to 1. */
#define TANH_QUOTIENT \
    "    let bits: i32 = i32(bitcast<u32>(x * x));\n" \
    "    let s: f32 = bitcast<f32>(u32(select(bits, 0x42a20000, bits > 0x42a20000)));\n" /* 81 */ \
    "    let p2: f32 = @fma(@fma(s, 1.33550502e-8f, 2.06093938e-5f), s, 3.49560849e-3f);\n" \
    "    let q2: f32 = @fma(@fma(s, 7.77672641e-7f, 3.28566709e-4f), s, 2.58770613e-2f);\n" \
    "    let p: f32 = @fma(@fma(p2, s, 0.133810433f), s, 0.99999998f);\n" \
    "    let t: f32 = x * p / @fma(@fma(q2, s, 0.467143589f), s, 1.0f);\n"

/* clang-format off */
static const helper helpers[] = {
    {"u32x4", PROCESSOR, ""}, /* every text begins with it */
    VECTORS("f32"), VECTORS("f64"), VECTORS("i8"), VECTORS("i16"), VECTORS("i32"), VECTORS("i64"),
    VECTORS("u8"), VECTORS("u16"), VECTORS("u32"), VECTORS("u64"),

    /* ---- bits of floats */
    {"bits_u32", OPENCL | PROCESSOR, "#define bits_u32(x) as_uint(x)\n"},
    {"bits_f32", OPENCL | PROCESSOR, "#define bits_f32(x) as_float(x)\n"},
    {"bits_u64", OPENCL | PROCESSOR, "#define bits_u64(x) as_ulong(x)\n"},
    {"bits_f64", OPENCL | PROCESSOR, "#define bits_f64(x) as_double(x)\n"},
    {"bits_u32", C_LIKE, "FN u32 bits_u32(f32 x) {\n    union {\n        f32 f;\n        u32 u;\n    } both;\n    both.f = x;\n    return both.u;\n}\n"},
    {"bits_f32", C_LIKE, "FN f32 bits_f32(u32 x) {\n    union {\n        f32 f;\n        u32 u;\n    } both;\n    both.u = x;\n    return both.f;\n}\n"},
    {"bits_u64", C_LIKE, "FN u64 bits_u64(f64 x) {\n    union {\n        f64 f;\n        u64 u;\n    } both;\n    both.f = x;\n    return both.u;\n}\n"},
    {"bits_f64", C_LIKE, "FN f64 bits_f64(u64 x) {\n    union {\n        f64 f;\n        u64 u;\n    } both;\n    both.u = x;\n    return both.f;\n}\n"},
    {"nan_f32", WGSL, "fn nan_f32(x: f32) -> bool {\n    return (bitcast<u32>(x) & 0x7fffffffu) > 0x7f800000u;\n}\n"},
    {"nan_f32", C_LIKE, "#define nan_f32(x) ((x) != (x))\n"},
    {"nan_f64", C_LIKE, "#define nan_f64(x) ((x) != (x))\n"},
    {"hidden", WGSL, "var<private> hidden: u32;\n"},

    /* ---- narrow types */
    {"wrap_i8", ALL, "fn wrap_i8(x: i32) -> i32 {\n    return i32(u32(x) << 24u) >> 24u;\n}\n"},
    {"wrap_i16", ALL, "fn wrap_i16(x: i32) -> i32 {\n    return i32(u32(x) << 16u) >> 16u;\n}\n"},
    {"f16_of_f32", OPENCL | PROCESSOR, "FN u32 f16_of_f32(f32 x) {\n    u16 bits;\n    vstore_half_rte(x, 0, (half *)&bits);\n    return bits;\n}\n"},
    {"f32_of_f16", OPENCL | PROCESSOR, "FN f32 f32_of_f16(u32 x) {\n    const u16 bits = (u16)x;\n    return vload_half(0, (const half *)&bits);\n}\n"},
    {"f16_by_bits", ALL, /* nearest even, by integers: built-ins may round as they like */
     "fn f16_by_bits(x: f32) -> u32 {\n"
     "    let bits: u32 = bitcast<u32>(x);\n"
     "    let sign: u32 = (bits >> 16u) & 0x8000u;\n"
     "    let size: u32 = bits & 0x7fffffffu;\n"
     "    if (size >= 0x47800000u) {\n"
     "        return sign | select(0x7c00u, 0x7e00u, size > 0x7f800000u);\n"
     "    }\n"
     "    if (size >= 0x38800000u) {\n"
     "        let based: u32 = size - 0x38000000u;\n"
     "        return sign | ((based + 0xfffu + ((based >> 13u) & 1u)) >> 13u);\n"
     "    }\n"
     "    if (size < 0x33000000u) {\n"
     "        return sign;\n"
     "    }\n"
     "    let shift: u32 = 126u - (size >> 23u);\n"
     "    let digits: u32 = (size & 0x7fffffu) | 0x800000u;\n"
     "    let whole: u32 = digits >> shift;\n"
     "    let rest: u32 = digits & ((1u << shift) - 1u);\n"
     "    let middle: u32 = 1u << (shift - 1u);\n"
     "    return sign | (whole + select(0u, 1u, rest > middle || (rest == middle && (whole & 1u) == 1u)));\n"
     "}\n"},
    {"f16_of_f32", WGSL, "fn f16_of_f32(x: f32) -> u32 {\n    return f16_by_bits(x);\n}\n"},
    {"f16_of_f32", C_LIKE,
     "#if defined(__CUDA_ARCH__)\nFN u32 f16_of_f32(f32 x) {\n    u16 bits;\n    asm(\"cvt.rn.f16.f32 %0, %1;\" : \"=h\"(bits) : \"f\"(x));\n    return bits;\n}\n"
     "#elif defined(HAS_HALF)\nFN u32 f16_of_f32(f32 x) {\n    union {\n        _Float16 f;\n        u16 u;\n    } both;\n    both.f = (_Float16)x;\n    return both.u;\n}\n"
     "#else\n#define f16_of_f32(x) f16_by_bits(x)\n#endif\n"},
    {"f32_of_f16", WGSL, "fn f32_of_f16(x: u32) -> f32 {\n    return unpack2x16float(x).x;\n}\n"},
    {"f32_by_bits", C_LIKE,
     "fn f32_by_bits(x: u32) -> f32 {\n"
     "    let sign: u32 = (x & 0x8000u) << 16u;\n"
     "    let size: u32 = (x & 0x7fffu) << 13u;\n"
     "    if (size >= 0x0f800000u) {\n"
     "        return bitcast<f32>(sign | (size + 0x70000000u));\n"
     "    }\n"
     "    if (size < 0x00800000u) {\n"
     "        return bitcast<f32>(sign | bitcast<u32>(f32(size >> 13u) * 0x1.0p-24f));\n"
     "    }\n"
     "    return bitcast<f32>(sign | (size + 0x38000000u));\n"
     "}\n"},
    {"f32_of_f16", C_LIKE,
     "#if defined(__CUDA_ARCH__)\nFN f32 f32_of_f16(u32 x) {\n    f32 f;\n    asm(\"cvt.f32.f16 %0, %1;\" : \"=f\"(f) : \"h\"((u16)x));\n    return f;\n}\n"
     "#elif defined(HAS_HALF)\nFN f32 f32_of_f16(u32 x) {\n    union {\n        _Float16 f;\n        u16 u;\n    } both;\n    both.u = (u16)x;\n    return (f32)both.f;\n}\n"
     "#else\n#define f32_of_f16(x) f32_by_bits(x)\n#endif\n"},
    {"f16x2_of_f32", CUDA,
     "#if defined(__CUDA_ARCH__) && __CUDA_ARCH__ >= 800\nFN u32 f16x2_of_f32(f32 x, f32 y) {\n    u32 bits;\n    asm(\"cvt.rn.f16x2.f32 %0, %1, %2;\" : \"=r\"(bits) : \"f\"(y), \"f\"(x));\n    return bits;\n}\n"
     "#else\nFN u32 f16x2_of_f32(f32 x, f32 y) {\n    return f16_of_f32(x) | (f16_of_f32(y) << 16u);\n}\n#endif\n"},
    {"f16x2_of_f32", ALL, "fn f16x2_of_f32(x: f32, y: f32) -> u32 {\n    return f16_of_f32(x) | (f16_of_f32(y) << 16u);\n}\n"},
    {"round_f16", ALL, "fn round_f16(x: f32) -> f32 {\n    return f32_of_f16(f16_of_f32(x));\n}\n"},
    {"round_bf16", ALL,
     "fn round_bf16(x: f32) -> f32 {\n"
     "    let bits: u32 = bitcast<u32>(x);\n"
     "    let up: u32 = (bits + 0x7fffu + ((bits >> 16u) & 1u)) & 0xffff0000u;\n"
     "    return bitcast<f32>(select(up, bits | 0x400000u, (bits & 0x7fffffffu) > 0x7f800000u));\n"
     "}\n"},

    /* ---- integers */
    INTEGER_DIVISION("u32", "i32"),
    {"mod_i32", ALL, "fn mod_i32(x: i32, y: i32) -> i32 {\n    return select(x % select(y, 1, y == 0 || y == -1), 0, y == 0);\n}\n"},
    {"popcount_u32", WGSL, "fn popcount_u32(x: u32) -> u32 {\n    return countOneBits(x);\n}\n"},
    {"popcount_u32", C_LIKE,
     "FN u32 popcount_u32(u32 x) {\n    x -= (x >> 1) & 0x55555555u;\n    x = (x & 0x33333333u) + ((x >> 2) & 0x33333333u);\n"
     "    return ((x + (x >> 4)) & 0x0f0f0f0fu) * 0x01010101u >> 24;\n}\n"},
    {"dot4_i8", CUDA, "FN i32 dot4_i8(u32 x, u32 y, i32 sum) {\n#if defined(__CUDA_ARCH__) && __CUDA_ARCH__ >= 610\n    return __dp4a((i32)x, (i32)y, sum);\n#else\n"
     "    for (u32 at = 0; at < 32; at += 8) sum = (i32)((u32)sum + (u32)(((i32)(x << at) >> 24) * ((i32)(y << at) >> 24)));\n    return sum;\n#endif\n}\n"},
    {"dot4_i8", ALL,
     "fn dot4_i8(x: u32, y: u32, sum: i32) -> i32 {\n"
     "    return i32(u32(sum) + u32((i32(x) >> 24u) * (i32(y) >> 24u) + (i32(x << 8u) >> 24u) * (i32(y << 8u) >> 24u) +\n"
     "        (i32(x << 16u) >> 24u) * (i32(y << 16u) >> 24u) + (i32(x << 24u) >> 24u) * (i32(y << 24u) >> 24u)));\n"
     "}\n"},
    {"permuted_byte", ALL,
     "fn permuted_byte(x: u32, y: u32, z: u32) -> u32 {\n"
     "    let byte: u32 = (select(x, y, (z & 4u) != 0u) >> ((z & 3u) * 8u)) & 255u;\n"
     "    return select(byte, (byte >> 7u) * 255u, (z & 8u) != 0u);\n"
     "}\n"},
    {"permute_bytes", CUDA, "FN u32 permute_bytes(u32 x, u32 y, u32 z) {\n    u32 out = 0;\n#if defined(__CUDA_ARCH__)\n"
     "    asm(\"prmt.b32 %0, %1, %2, %3;\" : \"=r\"(out) : \"r\"(x), \"r\"(y), \"r\"(z));\n#else\n"
     "    for (u32 i = 0; i < 4; i++) out |= permuted_byte(x, y, z >> 4 * i) << 8 * i;\n#endif\n    return out;\n}\n"},
    {"permute_bytes", ALL,
     "fn permute_bytes(x: u32, y: u32, z: u32) -> u32 {\n"
     "    return permuted_byte(x, y, z) | (permuted_byte(x, y, z >> 4u) << 8u) |\n"
     "        (permuted_byte(x, y, z >> 8u) << 16u) | (permuted_byte(x, y, z >> 12u) << 24u);\n"
     "}\n"},

    /* ---- 64-bit integers: C's own, or pairs of u32 */
    {"div_u64", C_LIKE, "FN u64 div_u64(u64 x, u64 y) {\n    return y ? x / y : 0;\n}\n"},
    {"mod_u64", C_LIKE, "FN u64 mod_u64(u64 x, u64 y) {\n    return y ? x % y : 0;\n}\n"},
    {"div_i64", C_LIKE, "FN i64 div_i64(i64 x, i64 y) {\n    return y == -1 ? (i64)(0 - (u64)x) : y ? x / y : 0;\n}\n"},
    {"mod_i64", C_LIKE, "FN i64 mod_i64(i64 x, i64 y) {\n    return y == 0 || y == -1 ? 0 : x % y;\n}\n"},
    {"popcount_u64", C_LIKE, "FN u64 popcount_u64(u64 x) {\n    return popcount_u32((u32)x) + popcount_u32((u32)(x >> 32));\n}\n"},
    {"popcount_u64", WGSL, "fn popcount_u64(x: vec2<u32>) -> vec2<u32> {\n    return vec2<u32>(countOneBits(x.x) + countOneBits(x.y), 0u);\n}\n"},
    {"u64_of_i32", WGSL, "fn u64_of_i32(x: i32) -> vec2<u32> {\n    return vec2<u32>(u32(x), u32(x >> 31u));\n}\n"},
    {"add_u64", WGSL, "fn add_u64(x: vec2<u32>, y: vec2<u32>) -> vec2<u32> {\n    let low = x.x + y.x;\n    return vec2<u32>(low, x.y + y.y + select(0u, 1u, low < x.x));\n}\n"},
    {"sub_u64", WGSL, "fn sub_u64(x: vec2<u32>, y: vec2<u32>) -> vec2<u32> {\n    return vec2<u32>(x.x - y.x, x.y - y.y - select(0u, 1u, x.x < y.x));\n}\n"},
    {"neg_u64", WGSL, "fn neg_u64(x: vec2<u32>) -> vec2<u32> {\n    return sub_u64(vec2<u32>(0u), x);\n}\n"},
    {"abs_i64", WGSL, "fn abs_i64(x: vec2<u32>) -> vec2<u32> {\n    return select(x, neg_u64(x), (x.y >> 31u) == 1u);\n}\n"},
    {"abs_u64", WGSL, "fn abs_u64(x: vec2<u32>) -> vec2<u32> {\n    return x;\n}\n"},
    {"mul_u64", WGSL,
     "fn mul_u64(x: vec2<u32>, y: vec2<u32>) -> vec2<u32> {\n"
     "    let a = x.x & 0xffffu;\n    let b = x.x >> 16u;\n    let c = y.x & 0xffffu;\n    let d = y.x >> 16u;\n"
     "    let middle = b * c + ((a * c) >> 16u);\n    let rest = a * d + (middle & 0xffffu);\n"
     "    return vec2<u32>(x.x * y.x, b * d + (middle >> 16u) + (rest >> 16u) + x.x * y.y + x.y * y.x);\n}\n"},
    {"lt_u64", WGSL, "fn lt_u64(x: vec2<u32>, y: vec2<u32>) -> bool {\n    return x.y < y.y || (x.y == y.y && x.x < y.x);\n}\n"},
    {"lt_i64", WGSL, "fn lt_i64(x: vec2<u32>, y: vec2<u32>) -> bool {\n    return i32(x.y) < i32(y.y) || (x.y == y.y && x.x < y.x);\n}\n"},
    {"shl_u64", WGSL,
     "fn shl_u64(x: vec2<u32>, count: u32) -> vec2<u32> {\n    let n = count & 31u;\n"
     "    let low = x.x << n;\n    let high = (x.y << n) | select(x.x >> (32u - n), 0u, n == 0u);\n"
     "    return select(vec2<u32>(low, high), vec2<u32>(0u, low), (count & 32u) != 0u);\n}\n"},
    {"shr_u64", WGSL,
     "fn shr_u64(x: vec2<u32>, count: u32) -> vec2<u32> {\n    let n = count & 31u;\n"
     "    let high = x.y >> n;\n    let low = (x.x >> n) | select(x.y << (32u - n), 0u, n == 0u);\n"
     "    return select(vec2<u32>(low, high), vec2<u32>(high, 0u), (count & 32u) != 0u);\n}\n"},
    {"shr_i64", WGSL,
     "fn shr_i64(x: vec2<u32>, count: u32) -> vec2<u32> {\n    let n = count & 31u;\n"
     "    let high = u32(i32(x.y) >> n);\n    let low = (x.x >> n) | select(x.y << (32u - n), 0u, n == 0u);\n"
     "    return select(vec2<u32>(low, high), vec2<u32>(high, u32(i32(x.y) >> 31u)), (count & 32u) != 0u);\n}\n"},
    {"divide_u64", WGSL, /* quotient and rest, bit by bit */
     "fn divide_u64(x: vec2<u32>, y: vec2<u32>) -> vec4<u32> {\n"
     "    var q = x;\n    var rest = vec2<u32>(0u);\n"
     "    for (var i = 0u; i < 64u; i = i + 1u) {\n"
     "        let over = rest.y >> 31u;\n"
     "        rest = vec2<u32>((rest.x << 1u) | (q.y >> 31u), (rest.y << 1u) | (rest.x >> 31u));\n"
     "        q = vec2<u32>(q.x << 1u, (q.y << 1u) | (q.x >> 31u));\n"
     "        if (over == 1u || !lt_u64(rest, y)) {\n            rest = sub_u64(rest, y);\n            q.x = q.x | 1u;\n        }\n"
     "    }\n"
     "    return select(vec4<u32>(q, rest), vec4<u32>(0u), all(y == vec2<u32>(0u)));\n}\n"},
    {"div_u64", WGSL, "fn div_u64(x: vec2<u32>, y: vec2<u32>) -> vec2<u32> {\n    return divide_u64(x, y).xy;\n}\n"},
    {"mod_u64", WGSL, "fn mod_u64(x: vec2<u32>, y: vec2<u32>) -> vec2<u32> {\n    return divide_u64(x, y).zw;\n}\n"},
    {"div_i64", WGSL,
     "fn div_i64(x: vec2<u32>, y: vec2<u32>) -> vec2<u32> {\n    let q = divide_u64(abs_i64(x), abs_i64(y)).xy;\n"
     "    return select(q, neg_u64(q), ((x.y ^ y.y) >> 31u) == 1u);\n}\n"},
    {"mod_i64", WGSL,
     "fn mod_i64(x: vec2<u32>, y: vec2<u32>) -> vec2<u32> {\n    let rest = divide_u64(abs_i64(x), abs_i64(y)).zw;\n"
     "    return select(rest, neg_u64(rest), (x.y >> 31u) == 1u);\n}\n"},
    {"f32_of_u64", WGSL, /* rounded once: the digits below are folded into one that keeps the rounding right */
     "fn f32_of_u64(x: vec2<u32>) -> f32 {\n"
     "    if (x.y == 0u) {\n        return f32(x.x);\n    }\n"
     "    let zeros = countLeadingZeros(x.y);\n"
     "    let all_of = shl_u64(x, zeros);\n"
     "    let top = all_of.y | select(0u, 1u, all_of.x != 0u);\n"
     "    let kept = (top + 0x7fu + ((top >> 8u) & 1u));\n"
     "    let over = kept < top;\n"
     "    let digits = select(kept >> 8u, 0x1000000u, over);\n"
     "    return bitcast<f32>(((190u - zeros) << 23u) + (digits - 0x800000u));\n}\n"},
    {"f32_of_i64", WGSL,
     "fn f32_of_i64(x: vec2<u32>) -> f32 {\n    let size = f32_of_u64(abs_i64(x));\n    return select(size, -size, (x.y >> 31u) == 1u);\n}\n"},
    {"u64_of_f32", WGSL,
     "fn u64_of_f32(x: f32) -> vec2<u32> {\n"
     "    let bits = bitcast<u32>(x);\n    let exponent = (bits >> 23u) & 255u;\n"
     "    if ((bits & 0x7fffffffu) > 0x7f800000u || (bits >> 31u) == 1u || exponent < 127u) {\n        return vec2<u32>(0u);\n    }\n"
     "    if (exponent >= 191u) {\n        return vec2<u32>(0xffffffffu);\n    }\n"
     "    let digits = vec2<u32>((bits & 0x7fffffu) | 0x800000u, 0u);\n"
     "    if (exponent < 150u) {\n        return shr_u64(digits, 150u - exponent);\n    }\n"
     "    return shl_u64(digits, exponent - 150u);\n}\n"},
    {"i64_of_f32", WGSL,
     "fn i64_of_f32(x: f32) -> vec2<u32> {\n"
     "    let bits = bitcast<u32>(x);\n    let size = u64_of_f32(bitcast<f32>(bits & 0x7fffffffu));\n"
     "    if ((size.y >> 31u) == 1u) {\n        return select(vec2<u32>(0xffffffffu, 0x7fffffffu), vec2<u32>(0u, 0x80000000u), (bits >> 31u) == 1u);\n    }\n"
     "    return select(size, neg_u64(size), (bits >> 31u) == 1u);\n}\n"},

    /* ---- floats */
    {"min_f32", CUDA | HIP, "#define min_f32(x, y) fminf(x, y)\n"}, /* one instruction, and the same rule */
    {"max_f32", CUDA | HIP, "#define max_f32(x, y) fmaxf(x, y)\n"},
    {"min_f32", OPENCL, "#define min_f32(x, y) fmin(x, y)\n"},
    {"max_f32", OPENCL, "#define max_f32(x, y) fmax(x, y)\n"},
    MIN_MAX("f32"),
    MIN_MAX("f64"),
    SATURATE("i32", "f32", "-2147483648.0f", "2147483648.0f", "i32(0x80000000u)", "2147483647"),
    SATURATE("u32", "f32", "0.0f", "4294967296.0f", "0u", "4294967295u"),
    SATURATE("i32", "f64", "-2147483649.0", "2147483648.0", "i32(0x80000000u)", "2147483647"),
    SATURATE("u32", "f64", "0.0", "4294967296.0", "0u", "4294967295u"),
    SATURATE("i64", "f32", "-9223372036854775808.0f", "9223372036854775808.0f", "i64(u64(1) << 63u)", "i64(~(u64(1) << 63u))"),
    SATURATE("u64", "f32", "0.0f", "18446744073709551616.0f", "u64(0)", "~u64(0)"),
    SATURATE("i64", "f64", "-9223372036854775808.0", "9223372036854775808.0", "i64(u64(1) << 63u)", "i64(~(u64(1) << 63u))"),
    SATURATE("u64", "f64", "0.0", "18446744073709551616.0", "u64(0)", "~u64(0)"),
    {"fma_f32", HOST, "#ifdef __FP_FAST_FMAF\n#define fma_f32(x, y, z) __builtin_fmaf(x, y, z)\n#else\n#define fma_f32(x, y, z) ((x) * (y) + (z))\n#endif\n"},
    {"exp_f32", HOST | PROCESSOR, /* what a compiler makes vectors of; 1 unit in the last place, 0 for what is below normal numbers */
     "fn exp_f32(x: f32) -> f32 {\n"
     "    let at: f32 = @fma(x, 1.44269504f, 12583039.0f);\n" /* whole numbers in the last bits, 127 on: an exponent */
     "    let bits: i32 = i32(bitcast<u32>(at));\n"
     "    let t: u32 = u32(select(bits, 0x4b4000fe, bits > 0x4b4000fe));\n" /* 12583166, the largest: the series itself overflows. Least and largest are quicker of integers */
     "    let n: f32 = 12583039.0f - bitcast<f32>(t);\n"
     "    let r: f32 = @fma(n, 1.42860677e-6f, @fma(n, 0.693145752f, x));\n" /* -0.35 to 0.7 */
     "    let p4: f32 = @fma(@fma(r, 2.32609663e-4f, 1.38379619e-3f), r, 8.32677679e-3f);\n"
     "    let p2: f32 = @fma(@fma(p4, r, 4.16680818e-2f), r, 1.66666999e-1f);\n"
     "    let p: f32 = @fma(@fma(p2, r, 4.99999949e-1f), r * r, r);\n"
     "    return select((p + 1.0f) * bitcast<f32>(t << 23u), 0.0f, x < -87.33654f);\n}\n"},
    {"exp_f32", OPENCL, "#define exp_f32(x) exp(x)\n"},
    {"tanh_f32", OPENCL, "#define tanh_f32(x) tanh(x)\n"},
    {"tanh_quotient_f32", HOST, "fn tanh_quotient_f32(x: f32) -> f32 {\n" TANH_QUOTIENT "    return t;\n}\n"},
    {"tanh_f32", WGSL | HOST | PROCESSOR, /* the built-in overflows on some devices and is coarse near 0 on others */
     "fn tanh_f32(x: f32) -> f32 {\n" TANH_QUOTIENT
     "    let size: f32 = @fabs(t);\n"
     "    return bitcast<f32>(bitcast<u32>(select(size, 1.0f, size > 1.0f)) | (bitcast<u32>(t) & 0x80000000u));\n}\n"},
    {"sinh_f32", WGSL,
     "fn sinh_f32(x: f32) -> f32 {\n    let square = x * x;\n"
     "    if (square < 1.0f) {\n        return x * (1.0f + square * (0.16666667f + square * (0.0083333333f + square * (0.00019841270f + square * 0.0000027557319f))));\n    }\n"
     "    let e = exp(0.5f * abs(x));\n    let s = 0.5f * e * e - 0.5f / (e * e);\n    return select(s, -s, x < 0.0f);\n}\n"},
    {"erf_f32", WGSL, /* Abramowitz and Stegun 7.1.26; the series near 0 */
     "fn erf_f32(x: f32) -> f32 {\n    let size = abs(x);\n    let square = x * x;\n"
     "    if (size < 0.5f) {\n        return x * (1.1283792f + square * (-0.37612639f + square * (0.11283792f + square * (-0.026866171f + square * 0.0052239776f))));\n    }\n"
     "    let t = 1.0f / (1.0f + 0.3275911f * size);\n"
     "    let y = 1.0f - t * (0.254829592f + t * (-0.284496736f + t * (1.421413741f + t * (-1.453152027f + t * 1.061405429f)))) * exp(-min(square, 80.0f));\n"
     "    return select(select(y, -y, x < 0.0f), x, nan_f32(x));\n}\n"},
    {"fmod_f32", WGSL, /* every subtraction is exact */
     "fn fmod_f32(x: f32, y: f32) -> f32 {\n    let by = abs(y);\n    var rest = abs(x);\n    if (rest < by) {\n        return x;\n    }\n"
     "    if (!(by > 0.0f) || !(rest <= 3.4028234e38f)) {\n        return bitcast<f32>(0x7fc00000u | hidden);\n    }\n"
     "    var step = by;\n    var turns = 1u;\n"
     "    for (; turns < 300u && step <= 0.5f * rest; turns = turns + 1u) {\n        step = 2.0f * step;\n    }\n"
     "    for (; turns > 0u; turns = turns - 1u) {\n        if (rest >= step) {\n            rest = rest - step;\n        }\n        step = 0.5f * step;\n    }\n"
     "    return select(rest, -rest, x < 0.0f);\n}\n"},
    {"pow_f32", WGSL,
     "fn pow_f32(x: f32, y: f32) -> f32 {\n    if (y == 0.0f || x == 1.0f) {\n        return 1.0f;\n    }\n"
     "    if (nan_f32(x) || nan_f32(y)) {\n        return x + y;\n    }\n"
     "    let whole = floor(y) == y;\n    let odd = whole && abs(y) < 16777216.0f && (i32(y) & 1) == 1;\n    let a = abs(x);\n"
     "    var r = pow(a, y);\n"
     "    if (a == 0.0f) {\n        r = select(0.0f, bitcast<f32>(0x7f800000u | hidden), y < 0.0f);\n    } else if (a == 1.0f) {\n        r = 1.0f;\n    }\n"
     "    if ((bitcast<u32>(x) >> 31u) == 0u) {\n        return r;\n    }\n"
     "    if (!whole && a != 0.0f && a < 3.4028234e38f) {\n        return bitcast<f32>(0x7fc00000u | hidden);\n    }\n"
     "    return select(r, -r, odd);\n}\n"},
    {"atan2_f32", WGSL,
     "fn atan2_f32(y: f32, x: f32) -> f32 {\n    if (y == 0.0f && !nan_f32(x)) {\n"
     "        let a = select(0.0f, 3.1415927f, (bitcast<u32>(x) >> 31u) == 1u);\n        return select(a, -a, (bitcast<u32>(y) >> 31u) == 1u);\n    }\n"
     "    return atan2(y, x);\n}\n"},

    VECTOR_MATH("4"), VECTOR_MATH("8"), VECTOR_MATH("16"),

    ATOMIC("min", "i32", "<"),
    ATOMIC("max", "i32", ">"),
    ATOMIC("min", "u32", "<"),
    ATOMIC("max", "u32", ">"),

    /* ---- waiting, moving between lanes */
    {"multiply_f32_f16", CUDA,
     "#ifdef __CUDA_ARCH__\nFN void multiply_f32_f16(f32 *c, const u32 *a, const u32 *b) {\n"
     "    asm volatile(\"mma.sync.aligned.m16n8k16.row.col.f32.f16.f16.f32 {%0, %1, %2, %3}, {%4, %5, %6, %7}, {%8, %9}, {%0, %1, %2, %3};\"\n"
     "                 : \"+f\"(c[0]), \"+f\"(c[1]), \"+f\"(c[2]), \"+f\"(c[3])\n"
     "                 : \"r\"(a[0]), \"r\"(a[1]), \"r\"(a[2]), \"r\"(a[3]), \"r\"(b[0]), \"r\"(b[1]));\n}\n#endif\n"},
    {"multiply_f32_bf16", CUDA,
     "#ifdef __CUDA_ARCH__\nFN void multiply_f32_bf16(f32 *c, const u32 *a, const u32 *b) {\n"
     "    asm volatile(\"mma.sync.aligned.m16n8k16.row.col.f32.bf16.bf16.f32 {%0, %1, %2, %3}, {%4, %5, %6, %7}, {%8, %9}, {%0, %1, %2, %3};\"\n"
     "                 : \"+f\"(c[0]), \"+f\"(c[1]), \"+f\"(c[2]), \"+f\"(c[3])\n"
     "                 : \"r\"(a[0]), \"r\"(a[1]), \"r\"(a[2]), \"r\"(a[3]), \"r\"(b[0]), \"r\"(b[1]));\n}\n#endif\n"},
    {"multiply_f16_f16", CUDA,
     "#ifdef __CUDA_ARCH__\nFN void multiply_f16_f16(u32 *c, const u32 *a, const u32 *b) {\n"
     "    asm volatile(\"mma.sync.aligned.m16n8k16.row.col.f16.f16.f16.f16 {%0, %1}, {%2, %3, %4, %5}, {%6, %7}, {%0, %1};\"\n"
     "                 : \"+r\"(c[0]), \"+r\"(c[1])\n"
     "                 : \"r\"(a[0]), \"r\"(a[1]), \"r\"(a[2]), \"r\"(a[3]), \"r\"(b[0]), \"r\"(b[1]));\n}\n#endif\n"},
    {"multiply_i8_i8", CUDA,
     "#ifdef __CUDA_ARCH__\nFN void multiply_i8_i8(i32 *c, const u32 *a, const u32 *b) {\n"
     "    asm volatile(\"mma.sync.aligned.m16n8k32.row.col.s32.s8.s8.s32 {%0, %1, %2, %3}, {%4, %5, %6, %7}, {%8, %9}, {%0, %1, %2, %3};\"\n"
     "                 : \"+r\"(c[0]), \"+r\"(c[1]), \"+r\"(c[2]), \"+r\"(c[3])\n"
     "                 : \"r\"(a[0]), \"r\"(a[1]), \"r\"(a[2]), \"r\"(a[3]), \"r\"(b[0]), \"r\"(b[1]));\n}\n#endif\n"},
    {"multiply_i8_u8", CUDA,
     "#ifdef __CUDA_ARCH__\nFN void multiply_i8_u8(i32 *c, const u32 *a, const u32 *b) {\n"
     "    asm volatile(\"mma.sync.aligned.m16n8k32.row.col.s32.s8.u8.s32 {%0, %1, %2, %3}, {%4, %5, %6, %7}, {%8, %9}, {%0, %1, %2, %3};\"\n"
     "                 : \"+r\"(c[0]), \"+r\"(c[1]), \"+r\"(c[2]), \"+r\"(c[3])\n"
     "                 : \"r\"(a[0]), \"r\"(a[1]), \"r\"(a[2]), \"r\"(a[3]), \"r\"(b[0]), \"r\"(b[1]));\n}\n#endif\n"},
    {"multiply_u8_i8", CUDA,
     "#ifdef __CUDA_ARCH__\nFN void multiply_u8_i8(i32 *c, const u32 *a, const u32 *b) {\n"
     "    asm volatile(\"mma.sync.aligned.m16n8k32.row.col.s32.u8.s8.s32 {%0, %1, %2, %3}, {%4, %5, %6, %7}, {%8, %9}, {%0, %1, %2, %3};\"\n"
     "                 : \"+r\"(c[0]), \"+r\"(c[1]), \"+r\"(c[2]), \"+r\"(c[3])\n"
     "                 : \"r\"(a[0]), \"r\"(a[1]), \"r\"(a[2]), \"r\"(a[3]), \"r\"(b[0]), \"r\"(b[1]));\n}\n#endif\n"},
    {"multiply_u8_u8", CUDA,
     "#ifdef __CUDA_ARCH__\nFN void multiply_u8_u8(i32 *c, const u32 *a, const u32 *b) {\n"
     "    asm volatile(\"mma.sync.aligned.m16n8k32.row.col.s32.u8.u8.s32 {%0, %1, %2, %3}, {%4, %5, %6, %7}, {%8, %9}, {%0, %1, %2, %3};\"\n"
     "                 : \"+r\"(c[0]), \"+r\"(c[1]), \"+r\"(c[2]), \"+r\"(c[3])\n"
     "                 : \"r\"(a[0]), \"r\"(a[1]), \"r\"(a[2]), \"r\"(a[3]), \"r\"(b[0]), \"r\"(b[1]));\n}\n#endif\n"},
    {"load_matrix_2", CUDA,
     "#ifdef __CUDA_ARCH__\nFN void load_matrix_2(u32 *to, const void *from) {\n"
     "    asm volatile(\"ldmatrix.sync.aligned.m8n8.x2.shared.b16 {%0, %1}, [%2];\"\n"
     "                 : \"=r\"(to[0]), \"=r\"(to[1])\n"
     "                 : \"r\"((u32)__cvta_generic_to_shared(from))\n"
     "                 : \"memory\");\n}\n#endif\n"},
    {"load_matrix_2_turned", CUDA,
     "#ifdef __CUDA_ARCH__\nFN void load_matrix_2_turned(u32 *to, const void *from) {\n"
     "    asm volatile(\"ldmatrix.sync.aligned.m8n8.x2.trans.shared.b16 {%0, %1}, [%2];\"\n"
     "                 : \"=r\"(to[0]), \"=r\"(to[1])\n"
     "                 : \"r\"((u32)__cvta_generic_to_shared(from))\n"
     "                 : \"memory\");\n}\n#endif\n"},
    {"load_matrix_4", CUDA,
     "#ifdef __CUDA_ARCH__\nFN void load_matrix_4(u32 *to, const void *from) {\n"
     "    asm volatile(\"ldmatrix.sync.aligned.m8n8.x4.shared.b16 {%0, %1, %2, %3}, [%4];\"\n"
     "                 : \"=r\"(to[0]), \"=r\"(to[1]), \"=r\"(to[2]), \"=r\"(to[3])\n"
     "                 : \"r\"((u32)__cvta_generic_to_shared(from))\n"
     "                 : \"memory\");\n}\n#endif\n"},
    {"load_matrix_4_turned", CUDA,
     "#ifdef __CUDA_ARCH__\nFN void load_matrix_4_turned(u32 *to, const void *from) {\n"
     "    asm volatile(\"ldmatrix.sync.aligned.m8n8.x4.trans.shared.b16 {%0, %1, %2, %3}, [%4];\"\n"
     "                 : \"=r\"(to[0]), \"=r\"(to[1]), \"=r\"(to[2]), \"=r\"(to[3])\n"
     "                 : \"r\"((u32)__cvta_generic_to_shared(from))\n"
     "                 : \"memory\");\n}\n#endif\n"},
    {"pair_of", CUDA | HIP, "FN u32x2 pair_of(u32 x, u32 y) {\n    u32x2 both;\n    both.x = x;\n    both.y = y;\n    return both;\n}\n"},
    {"quad_of", CUDA | HIP, "FN u32x4 quad_of(u32 x, u32 y, u32 z, u32 w) {\n    u32x4 all;\n    all.x = x;\n    all.y = y;\n    all.z = z;\n    all.w = w;\n    return all;\n}\n"},
    {"pair_of", OPENCL | PROCESSOR, "#define pair_of(x, y) (uint2)(x, y)\n"},
    {"quad_of", OPENCL | PROCESSOR, "#define quad_of(x, y, z, w) (uint4)(x, y, z, w)\n"},
    {"copy_async", CUDA,
     "FN void copy_async(void *to, const void *from, u32 bytes, bool valid) {\n"
     "#if defined(__CUDA_ARCH__) && __CUDA_ARCH__ >= 800\n"
     "    const u32 at = (u32)__cvta_generic_to_shared(to);\n    const u32 taken = valid ? bytes : 0u;\n"
     "    if (bytes == 16) asm volatile(\"cp.async.cg.shared.global [%0], [%1], 16, %2;\" ::\"r\"(at), \"l\"(from), \"r\"(taken) : \"memory\");\n"
     "    else if (bytes == 8) asm volatile(\"cp.async.ca.shared.global [%0], [%1], 8, %2;\" ::\"r\"(at), \"l\"(from), \"r\"(taken) : \"memory\");\n"
     "    else asm volatile(\"cp.async.ca.shared.global [%0], [%1], 4, %2;\" ::\"r\"(at), \"l\"(from), \"r\"(taken) : \"memory\");\n"
     "#else\n"
     "    for (u32 i = 0; i < bytes / 4; i++) ((u32 *)to)[i] = valid ? ((const u32 *)from)[i] : 0u;\n"
     "#endif\n}\n"},
    {"copy_commit", CUDA,
     "FN void copy_commit(void) {\n#if defined(__CUDA_ARCH__) && __CUDA_ARCH__ >= 800\n    asm volatile(\"cp.async.commit_group;\" ::: \"memory\");\n#endif\n}\n"},
    {"copy_wait", CUDA,
     "#if defined(__CUDA_ARCH__) && __CUDA_ARCH__ >= 800\n#define copy_wait(n) asm volatile(\"cp.async.wait_group %0;\" ::\"n\"(n) : \"memory\")\n#else\n#define copy_wait(n)\n#endif\n"},
};
/* clang-format on */
enum { N_HELPER = sizeof helpers / sizeof *helpers };

static bool is_word(char c) {
    return (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || (c >= '0' && c <= '9') || c == '_';
}

static void mark(codegen *g, bool *wanted, const char *text, size_t size);

static int language_of(const codegen *g) {
    return codegen_for_processor(g) && g->language->language == DEVICE_OPENCL_C ? PROCESSOR : 1 << g->language->language;
}

/* Index of the first that fits; N_HELPER: none. */
static int helper_of(const codegen *g, const char *name, size_t size) {
    int i = 0;
    while (i < N_HELPER && (!(helpers[i].languages & language_of(g)) || strlen(helpers[i].name) != size || memcmp(helpers[i].name, name, size))) i++;
    return i;
}

static bool is_scalar(const char *word) {
    return !strncmp(word, "f32", 3) || !strncmp(word, "i32", 3) || !strncmp(word, "u32", 3);
}

/* A scalar function in C as that of whole vectors, where the language's operators and functions take either: types, casts,
 * which are of the same size, and its name. lanes: "x16". */
static void widen(base_text *out, const char *name, const char *text, const char *lanes) {
    while (*text) {
        size_t n = 0;
        while (is_word(text[n])) n++;
        if (text[0] == '(' && is_scalar(text + 1) && text[4] == ')' && text[5] == '(') {
            base_text_print(out, "as_%.3s%s", text + 1, lanes);
            n = 5;
        } else if (n == 8 && !memcmp(text, "bits_", 5) && is_scalar(text + 5)) {
            base_text_print(out, "as_%.3s%s", text + 5, lanes);
        } else if ((n == 3 && is_scalar(text)) || base_view_equal((base_view){text, n}, base_view_of(name))) {
            base_text_print(out, "%.*s%s", (int)n, text, lanes);
        } else {
            base_text_add(out, text, n += !n);
        }
        text += n;
    }
}

static const char *widened(codegen *g, const helper *h) {
    const int scalar = helper_of(g, h->text, strlen(h->text));
    base_text text;
    base_text_init(&text, g->arena->heap);
    if (scalar < N_HELPER) widen(&text, h->text, codegen_own(g, helpers[scalar].text), h->name + strlen(h->text)); /* "x16" */
    const char *own = text.failed || !text.data ? "" : codegen_print(g, "%s", text.data);
    if (text.failed) codegen_no_memory(g);
    base_text_fini(&text);
    return own;
}

static const char *text_of(codegen *g, const helper *h) {
    return h->languages & WIDENED ? widened(g, h) : codegen_own(g, h->text);
}

static void mark_name(codegen *g, bool *wanted, const char *name, size_t size) {
    const int i = helper_of(g, name, size);
    if (i == N_HELPER || wanted[i]) return;
    wanted[i] = true;
    const char *own = text_of(g, &helpers[i]);
    mark(g, wanted, own, strlen(own));
}

/* The words of a text that are names of helpers. */
static void mark(codegen *g, bool *wanted, const char *text, size_t size) {
    for (size_t i = 0; i < size;) {
        if (!is_word(text[i])) {
            i++;
            continue;
        }
        size_t end = i;
        while (end < size && is_word(text[end])) end++;
        if (end - i > 3) mark_name(g, wanted, text + i, end - i);
        i = end;
    }
}

void codegen_helpers(codegen *g, base_text *out, const char *text, size_t size) {
    bool wanted[N_HELPER] = {false};
    mark(g, wanted, text, size);
    for (int i = 0; i < N_HELPER; i++)
        if (wanted[i]) base_text_add_view(out, base_view_of(text_of(g, &helpers[i])));
}
