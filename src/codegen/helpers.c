/* helpers.c - functions that generated texts call, written only where they are.
 *
 * A helper for all languages is in WGSL's syntax (write.h); those of C's languages alone are in
 * helpers_c.c. The first entry of a name that fits the language counts. A text has what it calls
 * before it. */
#include "codegen/helpers.h"

#include "base/build.h"

#include <string.h>

/* The texts of helpers keep their lines. */
/* clang-format off */
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
            "fn div_" s "(x: " s ", y: " s ") -> " s " {\n" /* by -1: the smallest stays as it is */ \
            "    let q: " s " = x / select(y, " s "(1), y == " s "(0) || y == " s "(-1));\n"      \
            "    return select(select(q, " s "(" u "(0) - " u "(x)), y == " s "(-1)), " s         \
            "(0), y == " s "(0));\n}\n"                                                           \
    }

static const codegen_helper helpers[] = {
    {"nan_f32", WGSL, "fn nan_f32(x: f32) -> bool {\n    return (bitcast<u32>(x) & 0x7fffffffu) > 0x7f800000u;\n}\n"},
    {"hidden", WGSL, "var<private> hidden: u32;\n"},

    /* ---- narrow types */
    {"wrap_i8", ALL, "fn wrap_i8(x: i32) -> i32 {\n    return i32(u32(x) << 24u) >> 24u;\n}\n"},
    {"wrap_i16", ALL, "fn wrap_i16(x: i32) -> i32 {\n    return i32(u32(x) << 16u) >> 16u;\n}\n"},
    /* Nearest even: built-ins may round as they like. Without branches, since it stands many times
     * in a kernel. Below the smallest normal half a sum has the steps that halves have there. */
    {"f16_by_bits", ALL,
     "fn f16_by_bits(x: f32) -> u32 {\n"
     "    let bits: u32 = bitcast<u32>(x);\n"
     "    let size: u32 = bits & 0x7fffffffu;\n"
     "    let usual: u32 = (size - 0x37fff001u + ((size >> 13u) & 1u)) >> 13u;\n"
     "    let small: u32 = bitcast<u32>(bitcast<f32>(size) + 0.5f) - 0x3f000000u;\n"
     "    let large: u32 = select(0x7c00u, 0x7e00u, size > 0x7f800000u);\n"
     "    let number: u32 = select(usual, small, size < 0x38800000u);\n"
     "    return ((bits >> 16u) & 0x8000u) | select(number, large, size >= 0x47800000u);\n"
     "}\n"},
    /* of values that are halves already; what packing makes of infinity is anybody's guess */
    {"f16_of_f32", WGSL,
     "fn f16_of_f32(x: f32) -> u32 {\n"
     "    return select(pack2x16float(vec2<f32>(x, 0.0)) & 0xffffu, ((bitcast<u32>(x) >> 16u) & 0x8000u) | 0x7c00u, (bitcast<u32>(x) & 0x7fffffffu) == 0x7f800000u);\n"
     "}\n"},
    {"f16x2_by_bits", WGSL, "fn f16x2_by_bits(x: f32, y: f32) -> u32 {\n    return f16_by_bits(x) | (f16_by_bits(y) << 16u);\n}\n"},
    {"f32_of_f16", WGSL, "fn f32_of_f16(x: u32) -> f32 {\n    return unpack2x16float(x).x;\n}\n"},
    {"round_f16", WGSL, "fn round_f16(x: f32) -> f32 {\n    return f32_of_f16(f16_by_bits(x));\n}\n"},
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
    /* shaders' own rest is undefined where one of both is negative */
    {"mod_i32", ALL, "fn mod_i32(x: i32, y: i32) -> i32 {\n    let by: i32 = select(y, 1, y == 0 || y == -1);\n    return select(x - x / by * by, 0, y == 0);\n}\n"},
    {"popcount_u32", WGSL, "fn popcount_u32(x: u32) -> u32 {\n    return countOneBits(x);\n}\n"},
    {"dot4_i8", ALL,
     "fn dot4_i8(x: u32, y: u32, sum: i32) -> i32 {\n"
     "    return i32(u32(sum) + u32((i32(x) >> 24u) * (i32(y) >> 24u) + (i32(x << 8u) >> 24u) * (i32(y << 8u) >> 24u) +\n"
     "        (i32(x << 16u) >> 24u) * (i32(y << 16u) >> 24u) + (i32(x << 24u) >> 24u) * (i32(y << 24u) >> 24u)));\n"
     "}\n"},
    {"dot4_u8", ALL,
     "fn dot4_u8(x: u32, y: u32, sum: i32) -> i32 {\n"
     "    return i32(u32(sum) + u32(i32(x >> 24u) * (i32(y) >> 24u) + i32((x >> 16u) & 255u) * (i32(y << 8u) >> 24u) +\n"
     "        i32((x >> 8u) & 255u) * (i32(y << 16u) >> 24u) + i32(x & 255u) * (i32(y << 24u) >> 24u)));\n"
     "}\n"},
    {"permuted_byte", ALL,
     "fn permuted_byte(x: u32, y: u32, z: u32) -> u32 {\n"
     "    let byte: u32 = (select(x, y, (z & 4u) != 0u) >> ((z & 3u) * 8u)) & 255u;\n"
     "    return select(byte, (byte >> 7u) * 255u, (z & 8u) != 0u);\n"
     "}\n"},
    {"permute_bytes", ALL,
     "fn permute_bytes(x: u32, y: u32, z: u32) -> u32 {\n"
     "    return permuted_byte(x, y, z) | (permuted_byte(x, y, z >> 4u) << 8u) |\n"
     "        (permuted_byte(x, y, z >> 8u) << 16u) | (permuted_byte(x, y, z >> 12u) << 24u);\n"
     "}\n"},

    /* ---- 64-bit integers as pairs of u32 */
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
    /* rounded once: the digits below are folded into one that keeps the rounding right */
    {"f32_of_u64", WGSL,
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
    MIN_MAX(ALL, "f32"),
    SATURATE(ALL, "i32", "f32", "-2147483648.0f", "2147483648.0f", "i32(0x80000000u)", "2147483647"),
    SATURATE(ALL, "u32", "f32", "0.0f", "4294967296.0f", "0u", "4294967295u"),
    /* the built-in overflows on some devices and is coarse near 0 on others */
    {"tanh_f32", WGSL | HOST | PROCESSOR,
     "fn tanh_f32(x: f32) -> f32 {\n" TANH_QUOTIENT
     "    let size: f32 = @fabs(t);\n"
     "    return bitcast<f32>(bitcast<u32>(select(size, 1.0f, size > 1.0f)) | (bitcast<u32>(t) & 0x80000000u));\n}\n"},
    {"sinh_f32", WGSL,
     "fn sinh_f32(x: f32) -> f32 {\n    let square = x * x;\n"
     "    if (square < 1.0f) {\n        return x * (1.0f + square * (0.16666667f + square * (0.0083333333f + square * (0.00019841270f + square * 0.0000027557319f))));\n    }\n"
     "    let e = exp(0.5f * abs(x));\n    let s = 0.5f * e * e - 0.5f / (e * e);\n    return select(s, -s, x < 0.0f);\n}\n"},
    {"cosh_f32", WGSL,
     "fn cosh_f32(x: f32) -> f32 {\n    let e = exp(0.5f * abs(x));\n    return 0.5f * e * e + 0.5f / (e * e);\n}\n"},
    /* The built-ins lose all digits at large angles. (an angle of at most pi / 4, whole right
     * angles less 4 n) of |x|: by a pi / 2 of three parts, above 4096 by as many bits of 2 / pi as
     * x's exponent asks for. */
    {"turned_f32", WGSL,
     "fn turned_f32(x: f32) -> vec2<f32> {\n    let size = abs(x);\n"
     "    if (size < 4096.0f) {\n        let k = round(size * 0.63661977f);\n"
     "        return vec2<f32>(((size - k * 1.5703125f) - k * 0.0004837513f) - k * 7.54979e-8f, k - 4.0f * floor(0.25f * k));\n    }\n"
     "    let bits = bitcast<u32>(size);\n"
     "    if (bits >= 0x7f800000u) {\n        return vec2<f32>(bitcast<f32>(0x7fc00000u | hidden), 0.0f);\n    }\n"
     "    var digits = array<u32, 8>(0u, 0xa2f9836eu, 0x4e441529u, 0xfc2757d1u, 0xf534ddc0u, 0xdb629599u, 0x3c439041u, 0xfe5163abu);\n"
     "    let at = (bits >> 23u) - 120u;\n    let n = at & 31u;\n    let word = at >> 5u;\n"
     "    let m = vec2<u32>((bits & 0x7fffffu) | 0x800000u, 0u);\n"
     "    let a = mul_u64(vec2<u32>((digits[word + 2u] << n) | ((digits[word + 3u] >> 1u) >> (31u - n)), 0u), m);\n"
     "    let b = mul_u64(vec2<u32>((digits[word + 1u] << n) | ((digits[word + 2u] >> 1u) >> (31u - n)), 0u), m);\n"
     "    let middle = b.x + a.y;\n"
     "    let top = ((digits[word] << n) | ((digits[word + 1u] >> 1u) >> (31u - n))) * m.x + b.y + select(0u, 1u, middle < a.y);\n"
     "    let turn = f32(i32((top << 2u) | (middle >> 30u))) * 2.3283064e-10f + f32((middle << 2u) | (a.x >> 30u)) * 5.421011e-20f;\n"
     "    return vec2<f32>(turn * 1.5707964f, f32(((top >> 30u) + ((top >> 29u) & 1u)) & 3u));\n}\n"},
    {"sine_f32", WGSL,
     "fn sine_f32(x: f32) -> f32 {\n    let t = x * x;\n    return x + x * t * (-0.16666665f + t * (0.0083327366f - t * 0.00019585373f));\n}\n"},
    {"cosine_f32", WGSL,
     "fn cosine_f32(x: f32) -> f32 {\n    let t = x * x;\n    return 1.0f - 0.5f * t + t * t * (0.041666665f + t * (-0.0013888291f + t * 0.000024545419f));\n}\n"},
    {"sin_f32", WGSL,
     "fn sin_f32(x: f32) -> f32 {\n    let t = turned_f32(x);\n    let y = select(sine_f32(t.x), cosine_f32(t.x), t.y == 1.0f || t.y == 3.0f);\n"
     "    return select(y, -y, (t.y >= 2.0f) != (x < 0.0f));\n}\n"},
    {"cos_f32", WGSL,
     "fn cos_f32(x: f32) -> f32 {\n    let t = turned_f32(x);\n    let y = select(cosine_f32(t.x), sine_f32(t.x), t.y == 1.0f || t.y == 3.0f);\n"
     "    return select(y, -y, t.y == 1.0f || t.y == 2.0f);\n}\n"},
    {"tan_f32", WGSL,
     "fn tan_f32(x: f32) -> f32 {\n    let t = turned_f32(x);\n    let s = sine_f32(t.x);\n    let c = cosine_f32(t.x);\n"
     "    let y = select(s / c, -c / s, t.y == 1.0f || t.y == 3.0f);\n    return select(y, -y, x < 0.0f);\n}\n"},
    /* the built-ins may be off by 4096 in the last place */
    {"atan_f32", WGSL,
     "fn atan_f32(x: f32) -> f32 {\n    let size = abs(x);\n    var base = 0.0f;\n    var y = size;\n"
     "    if (size > 2.4142135f) {\n        base = 1.5707964f;\n        y = -1.0f / size;\n    } else if (size > 0.41421356f) {\n"
     "        base = 0.78539816f;\n        y = (size - 1.0f) / (size + 1.0f);\n    }\n"
     "    let t = y * y;\n    y = base + (y + y * t * (-0.33333286f + t * (0.19991214f + t * (-0.1402368f + t * 0.0851835f))));\n"
     "    return select(select(y, -y, x < 0.0f), x, nan_f32(x));\n}\n"},
    {"half_asin_f32", WGSL, /* of at most 1 / 2 */
     "fn half_asin_f32(x: f32) -> f32 {\n    let t = x * x;\n"
     "    return x + x * t * (0.16666672f + t * (0.07498855f + t * (0.04500138f + t * (0.026554542f + t * 0.038085024f))));\n}\n"},
    {"asin_f32", WGSL,
     "fn asin_f32(x: f32) -> f32 {\n    let size = abs(x);\n    if (!(size <= 1.0f)) {\n        return bitcast<f32>(0x7fc00000u | hidden);\n    }\n"
     "    if (size <= 0.5f) {\n        return half_asin_f32(x);\n    }\n"
     "    let y = 1.5707964f - 2.0f * half_asin_f32(sqrt(0.5f - 0.5f * size));\n    return select(y, -y, x < 0.0f);\n}\n"},
    {"acos_f32", WGSL,
     "fn acos_f32(x: f32) -> f32 {\n    let size = abs(x);\n    if (!(size <= 1.0f)) {\n        return bitcast<f32>(0x7fc00000u | hidden);\n    }\n"
     "    if (size <= 0.5f) {\n        return 1.5707964f - half_asin_f32(x);\n    }\n"
     "    let y = 2.0f * half_asin_f32(sqrt(0.5f - 0.5f * size));\n    return select(y, 3.1415927f - y, x < 0.0f);\n}\n"},
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
     "fn atan2_f32(y: f32, x: f32) -> f32 {\n    if (nan_f32(x) || nan_f32(y)) {\n        return x + y;\n    }\n"
     "    let above = abs(y);\n    let beside = abs(x);\n    var a = 0.0f;\n"
     "    if (above != 0.0f && above == beside) {\n        a = 0.78539816f;\n"
     "    } else if (above > beside) {\n        a = 1.5707964f - atan_f32(beside / above);\n    } else if (above != 0.0f) {\n        a = atan_f32(above / beside);\n    }\n"
     "    a = select(a, 3.1415927f - a, (bitcast<u32>(x) >> 31u) == 1u);\n    return select(a, -a, (bitcast<u32>(y) >> 31u) == 1u);\n}\n"},
    {NULL, 0, NULL},
};
/* clang-format on */
/* of one text */
enum { WANTED_MAX = 160 };

typedef struct wanted {
    codegen *g;
    base_text *out;
    const codegen_helper *helpers[WANTED_MAX];
    uint32_t n;
} wanted;

static bool is_word(char c) {
    return (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || (c >= '0' && c <= '9') || c == '_';
}

static bool is_digit(char c) {
    return c >= '0' && c <= '9';
}

static int language_of(const codegen *g) {
    return codegen_for_processor(g) && g->language->language == DEVICE_OPENCL_C
               ? PROCESSOR
               : 1 << g->language->language;
}

/* The first that fits, or NULL. */
static const codegen_helper *find_in(const codegen_helper *h, int language, const char *name,
                                     size_t size) {
    for (; h->name; h++)
        if (h->name[0] == name[0] && (h->languages & language) && strlen(h->name) == size &&
            !memcmp(h->name, name, size))
            return h;
    return NULL;
}

static const codegen_helper *find(const codegen *g, const char *name, size_t size) {
    const int language = language_of(g);
    const codegen_helper *own =
        BUILD_HAS_C_TEXTS ? find_in(codegen_c_helpers, language, name, size) : NULL;
    return own ? own : find_in(helpers, language, name, size);
}

static bool is_scalar(const char *word) {
    return !strncmp(word, "f32", 3) || !strncmp(word, "i32", 3) || !strncmp(word, "u32", 3);
}

/* A scalar function in C as that of whole vectors, where the language's operators and functions
 * take either: types, casts, which are of the same size, and its name. lanes: "x16". */
static void widen(base_text *out, const char *name, const char *text, const char *lanes) {
    while (*text) {
        size_t n = 0;
        while (is_word(text[n])) n++;
        if (text[0] == '(' && is_scalar(text + 1) && text[4] == ')' && text[5] == '(') {
            base_text_print(out, "as_%.3s%s", text + 1, lanes);
            n = 5;
        } else if (n == 8 && !memcmp(text, "bits_", 5) && is_scalar(text + 5)) {
            base_text_print(out, "as_%.3s%s", text + 5, lanes);
        } else if ((n == 3 && is_scalar(text)) ||
                   base_view_equal((base_view){text, n}, base_view_of(name))) {
            base_text_print(out, "%.*s%s", (int)n, text, lanes);
        } else {
            base_text_add(out, text, n += !n);
        }
        text += n;
    }
}

static const char *widened(codegen *g, const codegen_helper *h) {
    const codegen_helper *scalar = find(g, h->text, strlen(h->text));
    base_text text;
    base_text_init(&text, g->arena->heap);
    if (scalar)
        widen(&text, h->text, codegen_own(g, scalar->text), h->name + strlen(h->text)); /* "x16" */
    const char *own = text.failed || !text.data ? "" : codegen_print(g, "%s", text.data);
    if (text.failed) codegen_no_memory(g);
    base_text_fini(&text);
    return own;
}

static void want_called(wanted *w, const char *text, size_t size);

static void want(wanted *w, const codegen_helper *h) {
    for (uint32_t i = 0; i < w->n; i++)
        if (w->helpers[i] == h) return;
    if (w->n == WANTED_MAX) {
        codegen_refuse(w->g, "more than %d helper functions", WANTED_MAX);
        return;
    }
    w->helpers[w->n++] = h;
    const char *own = h->languages & WIDENED ? widened(w->g, h) : codegen_own(w->g, h->text);
    want_called(w, own, strlen(own));
    base_text_add_view(w->out, base_view_of(own));
}

/* The words of a text that are names of helpers. */
static void want_called(wanted *w, const char *text, size_t size) {
    for (size_t i = 0; i < size;) {
        if (!is_word(text[i])) {
            i++;
            continue;
        }
        size_t end = i;
        while (end < size && is_word(text[end])) end++;
        /* most words are numbers and v12, t3, r4_5; helpers begin so with f16_, i32_, u64_ alone */
        const bool may =
            end - i > 3 && !is_digit(text[i]) && (!is_digit(text[i + 1]) || strchr("fiu", text[i]));
        const codegen_helper *h = may ? find(w->g, text + i, end - i) : NULL;
        if (h) want(w, h);
        i = end;
    }
}

void codegen_helpers(codegen *g, base_text *out, const char *text, size_t size) {
    wanted w = {.g = g, .out = out};
    want_called(&w, text, size);
}
