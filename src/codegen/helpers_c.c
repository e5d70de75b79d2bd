/* helpers_c.c - helper functions of C's languages alone, in WGSL's syntax (write.h) or in plain C.
 *
 * The first entry of a name that fits the language counts, and those here count before those of
 * helpers.c. OpenCL for processors has functions of its own where compilers make vectors of them,
 * not of calls. The texts of helpers keep their lines. */
#include "codegen/helpers.h"

/* clang-format off */
#define ATOMIC(name, t, sign)                                                                    \
    {                                                                                            \
        "atomic_" name "_" t, HOST,                                                              \
            "FN " t " atomic_" name "_" t "(" t " *at, " t " value) {\n"                         \
            "    " t " old = __atomic_load_n(at, __ATOMIC_RELAXED);\n"                           \
            "    while (value " sign " old && !__atomic_compare_exchange_n(at, &old, value, 1, " \
            "__ATOMIC_RELAXED, __ATOMIC_RELAXED)) {}\n"                                          \
            "    return old;\n}\n"                                                               \
    }

/* Vectors of n elements; with a u behind the name, at any address. as_: the same bits as vector
 * of that type; all_: of a scalar, or of a vector, which it leaves as it is. */
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

/* Functions of whole vectors. For C: loops that compilers make one operation of, if they do not
 * unroll them before they look. */
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
/* The lesser or greater as one instruction, which gives y where one is NaN: gcc makes a mask and
 * a choice of a comparison. */
#define HAS_ONE "#ifdef __AVX512VL__\n"
#define ONE_OF_TWO(name, instruction, n)                                                          \
    {name "_f32x" n, HOST,                                                                        \
     HAS_ONE "FN f32x" n " " name "_f32x" n "(f32x" n " x, f32x" n " y) {\n"                      \
     "    __asm__(\"" instruction " %1, %0, %0\" : \"+v\"(x) : \"v\"(y));\n    return x;\n}\n#endif\n"}
#define WITH_ONE(name, n, parameters, expression, otherwise)                                      \
    {name "_f32x" n, HOST,                                                                        \
     HAS_ONE "FN f32x" n " " name "_f32x" n "(" parameters ") {\n    return " expression ";\n}\n#else\n" otherwise "#endif\n"}
#define WIDE(name, n) {name "_f32x" n, PROCESSOR | WIDENED, name "_f32"}
/* What gcc makes seven instructions of, since it widens u16 by halves of a vector. */
#define AT_ONCE(n, has, type, instruction)                                                       \
    "#if " has " && " n " > 4\n"                                                                  \
    "    " type "x" n " wide;\n    __asm__(\"" instruction " %1, %0\" : \"=v\"(wide) : \"v\"(x));\n"
#define HALVES(n, bits)                                                                          \
    "    const u32x" n " size = (" bits " & 0x7fffu) << 13, most = as_u32x" n "(size > 0x0f7fffffu) & 0x7f800000u;\n"\
    "    const f32x" n " moved = as_f32x" n "(size) * 0x1p112f;\n"                                     \
    "    return as_f32x" n "(as_u32x" n "(moved) | most | (" bits " & 0x8000u) << 16);\n"
#define VECTOR_MATH(n)                                                                           \
    {"pick_f32x" n, HOST,                                                                        \
     "#define pick_f32x" n "(mask, x, y) as_f32x" n "((as_u32x" n "(x) & as_u32x" n "(mask)) | " \
     "(as_u32x" n "(y) & ~as_u32x" n "(mask)))\n"},                                              \
    {"pick_f32x" n, PROCESSOR, "#define pick_f32x" n "(mask, x, y) ((mask) ? (x) : (y))\n"},    \
    /* exact: the exponent is moved by a product, and put back where it was the largest */        \
    {"halves_f32x" n, PROCESSOR, "FN f32x" n " halves_f32x" n "(u32x" n " x) {\n" HALVES(n, "x") "}\n"}, \
    {"halves_f32x" n, HOST, "FN f32x" n " halves_f32x" n "(u16x" n " x) {\n"                            \
     AT_ONCE(n, "(defined(__AVX512VL__) || (defined(__F16C__) && " n " < 16))", "f32", "vcvtph2ps")   \
     "    return wide;\n#else\n    const u32x" n " bits = __builtin_convertvector(x, u32x" n ");\n"     \
     HALVES(n, "bits") "#endif\n}\n"},                                                              \
    {"uppers_f32x" n, HOST, "FN f32x" n " uppers_f32x" n "(u16x" n " x) {\n"                            \
     AT_ONCE(n, "defined(__AVX512VL__)", "u32", "vpmovzxwd")                                        \
     "#else\n    const u32x" n " wide = __builtin_convertvector(x, u32x" n ");\n#endif\n"                \
     "    return as_f32x" n "(wide << 16);\n}\n"},                                                   \
    {"fma_f32x" n, PROCESSOR, "#define fma_f32x" n "(x, y, z) fma(x, y, z)\n"},                     \
    WIDE("min", n), WIDE("max", n), WIDE("exp", n), WIDE("tanh", n),                    \
    ONE_OF_TWO("lesser", "vminps", n), ONE_OF_TWO("greater", "vmaxps", n),                          \
    WITH_ONE("min", n, "f32x" n " x, f32x" n " y", "pick_f32x" n "(y != y, x, lesser_f32x" n "(x, y))", EACH_OF_TWO("min", n)), \
    WITH_ONE("max", n, "f32x" n " x, f32x" n " y", "pick_f32x" n "(y != y, x, greater_f32x" n "(x, y))", EACH_OF_TWO("max", n)), \
    {"tanh_quotient_f32x" n, HOST, EACH_OF_ONE("tanh_quotient", n)},                                \
    WITH_ONE("tanh", n, "f32x" n " x", "lesser_f32x" n "(all_f32x" n "(1.0f), greater_f32x" n "(all_f32x" n "(-1.0f), tanh_quotient_f32x" n "(x)))", EACH_OF_ONE("tanh", n)), \
    {"exp_f32x" n, HOST, EACH_OF_ONE("exp", n)}, {"fma_f32x" n, HOST, EACH_OF_THREE("fma", n)}

/* gcc 12 widens bytes by way of 16 bits, in halves. */
#define WORDS_OF_BYTES(s, instruction)                                                            \
    "#ifdef __AVX512F__\nFN " s "32x16 words_" s "32x16(" s "8x16 x) {\n    " s "32x16 wide;\n"       \
    "    __asm__(\"" instruction " %1, %0\" : \"=v\"(wide) : \"v\"(x));\n    return wide;\n}\n"     \
    "#else\n#define words_" s "32x16(x) "                                                           \
    "__builtin_convertvector(__builtin_convertvector(x, " s "16x16), " s "32x16)\n#endif\n"

/* Four bytes by four of each word: by one instruction, or by halves. */
#define DOT4_U8(n, half, instructions)                                                            \
    {"dot4_u8_i32x" n, HOST,                                                                      \
     "FN i32x" n " dot4_u8_i32x" n "(u32x" n " x, u32x" n " y, i32x" n " sum) {\n" instructions   \
     "#else\n"                                                                                    \
     "    union {\n        u32x" n " whole;\n        u32x" half " half[2];\n    } a, b;\n"        \
     "    union {\n        i32x" n " whole;\n        i32x" half " half[2];\n    } c;\n"           \
     "    a.whole = x;\n    b.whole = y;\n    c.whole = sum;\n"                                   \
     "    for (u32 i = 0; i < 2; i++) c.half[i] = dot4_u8_i32x" half "(a.half[i], b.half[i], c.half[i]);\n" \
     "    return c.whole;\n#endif\n}\n"}

const codegen_helper codegen_c_helpers[] = {
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
    {"nan_f32", C_LIKE, "#define nan_f32(x) ((x) != (x))\n"},
    {"nan_f64", C_LIKE, "#define nan_f64(x) ((x) != (x))\n"},
    {"f16_of_f32", OPENCL | PROCESSOR, "FN u32 f16_of_f32(f32 x) {\n    u16 bits;\n    vstore_half_rte(x, 0, (half *)&bits);\n    return bits;\n}\n"},
    {"f32_of_f16", OPENCL | PROCESSOR, "FN f32 f32_of_f16(u32 x) {\n    const u16 bits = (u16)x;\n    return vload_half(0, (const half *)&bits);\n}\n"},
    {"f16_of_f32", C_LIKE,
     "#if defined(__CUDA_ARCH__)\nFN u32 f16_of_f32(f32 x) {\n    u16 bits;\n    asm(\"cvt.rn.f16.f32 %0, %1;\" : \"=h\"(bits) : \"f\"(x));\n    return bits;\n}\n"
     "#elif defined(HAS_HALF)\nFN u32 f16_of_f32(f32 x) {\n    union {\n        _Float16 f;\n        u16 u;\n    } both;\n    both.f = (_Float16)x;\n    return both.u;\n}\n"
     "#else\n#define f16_of_f32(x) f16_by_bits(x)\n#endif\n"},
    /* exact: the exponent is moved by a product, and put back where it was the largest */
    {"f32_by_bits", HOST,
     "FN f32 f32_by_bits(u32 x) {\n"
     "    const u32 size = (x & 0x7fffu) << 13, most = size > 0x0f7fffffu ? 0x7f800000u : 0u;\n"
     "    return bits_f32(bits_u32(bits_f32(size) * 0x1p112f) | most | (x & 0x8000u) << 16);\n}\n"},
    {"f16_by_bits", HOST,
     "FN u32 f16_by_bits(f32 x) {\n    const u32 bits = bits_u32(x), size = bits & 0x7fffffffu;\n"
     "    const u32 usual = (size + 0xc8000fffu + (size >> 13 & 1u)) >> 13;\n" /* 127 - 15 less */
     "    const u32 small = bits_u32(bits_f32(size) + 0.5f) - 0x3f000000u;\n" /* of the sum's last bits */
     "    const u32 large = size > 0x7f800000u ? 0x7e00u : 0x7c00u;\n"
     "    const u32 rounded = size < 0x38800000u ? small : usual;\n"
     "    return (bits >> 16 & 0x8000u) | (size < 0x47800000u ? rounded : large);\n}\n"},
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
    {"popcount_u32", C_LIKE,
     "FN u32 popcount_u32(u32 x) {\n    x -= (x >> 1) & 0x55555555u;\n    x = (x & 0x33333333u) + ((x >> 2) & 0x33333333u);\n"
     "    return ((x + (x >> 4)) & 0x0f0f0f0fu) * 0x01010101u >> 24;\n}\n"},
    {"dot4_i8", CUDA, "FN i32 dot4_i8(u32 x, u32 y, i32 sum) {\n#if defined(__CUDA_ARCH__) && __CUDA_ARCH__ >= 610\n    return __dp4a((i32)x, (i32)y, sum);\n#else\n"
     "    for (u32 at = 0; at < 32; at += 8) sum = (i32)((u32)sum + (u32)(((i32)(x << at) >> 24) * ((i32)(y << at) >> 24)));\n    return sum;\n#endif\n}\n"},
    {"words_u32x16", HOST, WORDS_OF_BYTES("u", "vpmovzxbd")},
    {"words_i32x16", HOST, WORDS_OF_BYTES("i", "vpmovsxbd")},
    {"dot4_u8_i32x4", HOST,
     "FN i32x4 dot4_u8_i32x4(u32x4 x, u32x4 y, i32x4 sum) {\n"
     "#if defined(__AVX512VNNI__) && defined(__AVX512VL__)\n"
     "    __asm__(\"vpdpbusd %2, %1, %0\" : \"+v\"(sum) : \"v\"(x), \"v\"(y));\n"
     "#elif defined(__ARM_FEATURE_LINEAR_INT8)\n"
     "    __asm__(\"usdot %0.4s, %1.16b, %2.16b\" : \"+w\"(sum) : \"w\"(x), \"w\"(y));\n"
     "#elif defined(__ARM_FEATURE_DOTPROD)\n" /* x - 128, and what that took */
     "    const u32x4 top = all_u32x4(0x80808080u);\n    i32x4 taken = {0};\n    x ^= top;\n"
     "    __asm__(\"sdot %0.4s, %1.16b, %2.16b\" : \"+w\"(sum) : \"w\"(x), \"w\"(y));\n"
     "    __asm__(\"sdot %0.4s, %1.16b, %2.16b\" : \"+w\"(taken) : \"w\"(top), \"w\"(y));\n"
     "    sum -= taken;\n"
     "#else\n"
     "    for (u32 at = 0; at < 32; at += 8) sum += as_i32x4(x >> at & 255u) * (as_i32x4(y << (24 - at)) >> 24);\n"
     "#endif\n    return sum;\n}\n"},
    DOT4_U8("8", "4",
     "#if defined(__AVX512VNNI__) && defined(__AVX512VL__)\n"
     "    __asm__(\"vpdpbusd %2, %1, %0\" : \"+v\"(sum) : \"v\"(x), \"v\"(y));\n    return sum;\n"
     "#elif defined(__AVXVNNI__)\n"
     "    __asm__(\"{vex} vpdpbusd %2, %1, %0\" : \"+x\"(sum) : \"x\"(x), \"x\"(y));\n    return sum;\n"
     "#elif defined(__AVX2__)\n" /* every other byte, as words of 16 bits: sums of two do not saturate */
     "    u32x8 even = x & 0x00ff00ffu, odd = as_u32x8(as_u16x16(x) >> 8);\n"
     "    const u32x8 low = as_u32x8(as_i16x16(as_u16x16(y) << 8) >> 8), high = as_u32x8(as_i16x16(y) >> 8);\n"
     "    __asm__(\"vpmaddwd %1, %0, %0\" : \"+x\"(even) : \"x\"(low));\n"
     "    __asm__(\"vpmaddwd %1, %0, %0\" : \"+x\"(odd) : \"x\"(high));\n"
     "    return as_i32x8(as_u32x8(sum) + even + odd);\n"),
    DOT4_U8("16", "8",
     "#if defined(__AVX512VNNI__)\n"
     "    __asm__(\"vpdpbusd %2, %1, %0\" : \"+v\"(sum) : \"v\"(x), \"v\"(y));\n    return sum;\n"),
    {"lanes_of", HOST,
     "#if defined(__clang__) || __GNUC__ >= 12\n#define lanes_of(type, shuffled, ...) shuffled\n"
     "#else\n#define lanes_of(type, shuffled, ...) (type){__VA_ARGS__}\n#endif\n"},
    /* tiles of 16 lines of 64 bytes, which a sanitizer does not see */
    {"tiles_begin", HOST,
     "#if defined(__AMX_BF16__) && !defined(__SANITIZE_ADDRESS__)\n#define HAS_TILES 1\n"
     "#define tile_zero(t) __asm__ volatile(\"tilezero %%tmm\" #t ::: \"memory\")\n"
     "#define tile_load(t, at, bytes) __asm__ volatile(\"tileloadd (%0,%1,1), %%tmm\" #t ::\"r\"(at), \"r\"((u64)(bytes)) : \"memory\")\n"
     "#define tile_store(t, at, bytes) __asm__ volatile(\"tilestored %%tmm\" #t \", (%0,%1,1)\" ::\"r\"(at), \"r\"((u64)(bytes)) : \"memory\")\n"
     "#define tile_multiply(c, a, b) __asm__ volatile(\"tdpbf16ps %%tmm\" #b \", %%tmm\" #a \", %%tmm\" #c ::: \"memory\")\n"
     "FN void tiles_begin(void) {\n"
     "    static const u8 shape[64] = {1, [16] = 64, [18] = 64, [20] = 64, [22] = 64, [24] = 64, [26] = 64, [28] = 64, [30] = 64,\n"
     "                                 [48] = 16, 16, 16, 16, 16, 16, 16, 16};\n"
     "    __asm__ volatile(\"ldtilecfg %0\" ::\"m\"(shape) : \"memory\");\n}\n"
     "#define tiles_end() __asm__ volatile(\"tilerelease\" ::: \"memory\")\n"
     "#else\n#define tiles_begin()\n#define tiles_end()\n#endif\n"},
    {"permute_bytes", CUDA, "FN u32 permute_bytes(u32 x, u32 y, u32 z) {\n    u32 out = 0;\n#if defined(__CUDA_ARCH__)\n"
     "    asm(\"prmt.b32 %0, %1, %2, %3;\" : \"=r\"(out) : \"r\"(x), \"r\"(y), \"r\"(z));\n#else\n"
     "    for (u32 i = 0; i < 4; i++) out |= permuted_byte(x, y, z >> 4 * i) << 8 * i;\n#endif\n    return out;\n}\n"},

    /* ---- 64-bit integers: C's own, or pairs of u32 */
    {"div_u64", C_LIKE, "FN u64 div_u64(u64 x, u64 y) {\n    return y ? x / y : 0;\n}\n"},
    {"mod_u64", C_LIKE, "FN u64 mod_u64(u64 x, u64 y) {\n    return y ? x % y : 0;\n}\n"},
    {"div_i64", C_LIKE, "FN i64 div_i64(i64 x, i64 y) {\n    return y == -1 ? (i64)(0 - (u64)x) : y ? x / y : 0;\n}\n"},
    {"mod_i64", C_LIKE, "FN i64 mod_i64(i64 x, i64 y) {\n    return y == 0 || y == -1 ? 0 : x % y;\n}\n"},
    {"popcount_u64", C_LIKE, "FN u64 popcount_u64(u64 x) {\n    return popcount_u32((u32)x) + popcount_u32((u32)(x >> 32));\n}\n"},

    /* ---- floats */
    /* one instruction, and the same rule */
    {"min_f32", CUDA | HIP, "#define min_f32(x, y) fminf(x, y)\n"},
    {"max_f32", CUDA | HIP, "#define max_f32(x, y) fmaxf(x, y)\n"},
    {"min_f32", OPENCL, "#define min_f32(x, y) fmin(x, y)\n"},
    {"max_f32", OPENCL, "#define max_f32(x, y) fmax(x, y)\n"},
    {"fma_f32", HOST, "#ifdef __FP_FAST_FMAF\n#define fma_f32(x, y, z) __builtin_fmaf(x, y, z)\n#else\n#define fma_f32(x, y, z) ((x) * (y) + (z))\n#endif\n"},
    /* what a compiler makes vectors of; 1 unit in the last place, 0 for what is below normal
     * numbers */
    {"exp_f32", HOST | PROCESSOR,
     "fn exp_f32(x: f32) -> f32 {\n"
     /* whole numbers in the last bits, 127 on: an exponent */
     "    let at: f32 = @fma(x, 1.44269504f, 12583039.0f);\n"
     "    let bits: i32 = i32(bitcast<u32>(at));\n"
     /* 12583166, the largest: the series itself overflows. Least and largest are quicker of
      * integers */
     "    let t: u32 = u32(select(bits, 0x4b4000fe, bits > 0x4b4000fe));\n"
     "    let n: f32 = 12583039.0f - bitcast<f32>(t);\n"
     "    let r: f32 = @fma(n, 1.42860677e-6f, @fma(n, 0.693145752f, x));\n" /* -0.35 to 0.7 */
     "    let p4: f32 = @fma(@fma(r, 2.32609663e-4f, 1.38379619e-3f), r, 8.32677679e-3f);\n"
     "    let p2: f32 = @fma(@fma(p4, r, 4.16680818e-2f), r, 1.66666999e-1f);\n"
     "    let p: f32 = @fma(@fma(p2, r, 4.99999949e-1f), r * r, r);\n"
     "    return select((p + 1.0f) * bitcast<f32>(t << 23u), 0.0f, x < -87.33654f);\n}\n"},
    {"exp_f32", OPENCL, "#define exp_f32(x) exp(x)\n"},
    /* one instruction */
    {"exp2_normalf", CUDA,
     "#ifdef __CUDA_ARCH__\nFN f32 exp2_normalf(f32 x) {\n    f32 y;\n    asm(\"ex2.approx.ftz.f32 %0, %1;\" : \"=f\"(y) : \"f\"(x));\n    return y;\n}\n"
     "#else\n#define exp2_normalf(x) exp2f(x)\n#endif\n"},
    {"exp2_normalf", HIP, "#define exp2_normalf(x) exp2f(x)\n"},
    {"exp2_normal", C_LIKE, "#define exp2_normal(x) exp2(x)\n"},
    /* 2 units in the last place */
    {"div_normal_f32", CUDA,
     "#ifdef __CUDA_ARCH__\nFN f32 div_normal_f32(f32 x, f32 y) {\n    f32 over;\n    asm(\"rcp.approx.ftz.f32 %0, %1;\" : \"=f\"(over) : \"f\"(y));\n    return x * over;\n}\n"
     "#else\n#define div_normal_f32(x, y) ((x) / (y))\n#endif\n"},
    {"tanh_f32", OPENCL, "#define tanh_f32(x) tanh(x)\n"},
    {"tanh_quotient_f32", HOST, "fn tanh_quotient_f32(x: f32) -> f32 {\n" TANH_QUOTIENT "    return t;\n}\n"},

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
    {"load_once", CUDA,
     "FN u32x4 load_once(const void *from) {\n"
     "#if defined(__CUDA_ARCH__) && __CUDA_ARCH__ >= 800\n"
     "    u32x4 all;\n    u64 first;\n"
     "    asm(\"createpolicy.fractional.L2::evict_first.b64 %0, 1.0;\" : \"=l\"(first));\n"
     "    asm(\"ld.global.nc.L2::cache_hint.v4.u32 {%0, %1, %2, %3}, [%4], %5;\"\n"
     "        : \"=r\"(all.x), \"=r\"(all.y), \"=r\"(all.z), \"=r\"(all.w)\n"
     "        : \"l\"(from), \"l\"(first));\n    return all;\n"
     "#else\n    return *(const u32x4 *)from;\n#endif\n}\n"},
    {"pair_of", OPENCL | PROCESSOR, "#define pair_of(x, y) (uint2)(x, y)\n"},
    {"quad_of", OPENCL | PROCESSOR, "#define quad_of(x, y, z, w) (uint4)(x, y, z, w)\n"},
    {"write_past", HOST,
     "#if defined(__AVX512F__) && !defined(__SANITIZE_ADDRESS__)\n"
     "#define write_past(to, x) do { if ((uintptr_t)&(to) % sizeof(to)) (to) = (x); else __asm__(\"vmovntdq %1, %0\" : \"=m\"(to) : \"v\"(x)); } while (0)\n"
     "#else\n#define write_past(to, x) (to) = (x)\n#endif\n"},
    {"past_end", HOST,
     "#ifdef __x86_64__\n#define past_end() __asm__ volatile(\"sfence\" ::: \"memory\")\n#else\n#define past_end() (void)0\n#endif\n"},
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
    {"matrix_at", CUDA,
     "FN u64 matrix_at(const void *at, u32 beside) {\n"
     "    return (u64)(((u32)__cvta_generic_to_shared(at) & 0x3ffffu) >> 4u) | (u64)beside << 16u | (u64)64u << 32u | (u64)1u << 62u;\n}\n"},
    {"multiply_begin", CUDA, "#define multiply_begin() asm volatile(\"wgmma.fence.sync.aligned;\" ::: \"memory\")\n"},
    {"multiply_commit", CUDA, "#define multiply_commit() asm volatile(\"wgmma.commit_group.sync.aligned;\" ::: \"memory\")\n"},
    {"multiply_wait", CUDA, "#define multiply_wait(n) asm volatile(\"wgmma.wait_group.sync.aligned %0;\" ::\"n\"(n) : \"memory\")\n"},
    {"multiply_done", CUDA, "#define multiply_done(x) asm volatile(\"\" : \"+f\"(x))\n"},
    {"multiply_fence", CUDA, "#define multiply_fence() asm volatile(\"fence.proxy.async.shared::cta;\" ::: \"memory\")\n"},

    /* ---- of 64 bits, which WGSL does without */
    MIN_MAX(C_LIKE, "f64"),
    SATURATE(C_LIKE, "i32", "f64", "-2147483649.0", "2147483648.0", "i32(0x80000000u)", "2147483647"),
    SATURATE(C_LIKE, "u32", "f64", "0.0", "4294967296.0", "0u", "4294967295u"),
    SATURATE(C_LIKE, "i64", "f32", "-9223372036854775808.0f", "9223372036854775808.0f", "i64(u64(1) << 63u)", "i64(~(u64(1) << 63u))"),
    SATURATE(C_LIKE, "u64", "f32", "0.0f", "18446744073709551616.0f", "u64(0)", "~u64(0)"),
    SATURATE(C_LIKE, "i64", "f64", "-9223372036854775808.0", "9223372036854775808.0", "i64(u64(1) << 63u)", "i64(~(u64(1) << 63u))"),
    SATURATE(C_LIKE, "u64", "f64", "0.0", "18446744073709551616.0", "u64(0)", "~u64(0)"),
    {NULL, 0, NULL},
};
/* clang-format on */
