/* ir_ops.h - the kernel IR's types and ops: the one list that builder, verifier, printer,
 * parser, interpreter, passes, generators, tests and docs/ir-ops.md derive from. */
#ifndef IR_IR_OPS_H
#define IR_IR_OPS_H

/* NAME, name, bytes in memory */
#define IR_TYPE_LIST(X) \
    X(NONE, none, 0)    \
    X(F32, f32, 4)      \
    X(F16, f16, 2)      \
    X(BF16, bf16, 2)    \
    X(F64, f64, 8)      \
    X(I8, i8, 1)        \
    X(I16, i16, 2)      \
    X(I32, i32, 4)      \
    X(I64, i64, 8)      \
    X(U8, u8, 1)        \
    X(U16, u16, 2)      \
    X(U32, u32, 4)      \
    X(U64, u64, 8)      \
    X(BOOL, bool, 0)

/* NAME, name, form, operands, types, flags, exact, meaning, text, value. Every list below has
 * these columns; for an op of a known form its row is all there is. The first eight: ir_op_info
 * in ir.h.
 *
 * text: how generated code says it, in WGSL's syntax, which codegen/expressions.c fills in and
 * translates to each language. TEXT(any, ...): a template; behind it other ones for some types,
 * by the names of ir_op_text's fields (ir.h). In it
 *   $0 $1 $2             are the operands
 *   $t                   the type that holds them in registers: f32 for f16 and bf16, i32 or u32
 *                        for 8 and 16 bits
 *   $s $u                the signed and the unsigned integer of that size
 *   $m                   how many bits the type itself has, less one
 *   @name                a function of C's math.h for $t, or what the language has in its place
 * Other names that WGSL does not have are helper functions (codegen/helpers.c). NO_TEXT: it
 * takes more than a template.
 *
 * value: what one vector lane computes, in C; value.c makes its switches of it and has the
 * functions that it calls.
 *   FLOAT(f)             f, of doubles x, y, z, rounded to the type
 *   BITS(i)              i, of the operands' bits x, y, z (uint64_t); bits above the type's are cut
 *                        off
 *   FLOAT_OR_BITS(f, i)  FLOAT(f) where the type is a float, BITS(i) where it is not
 * type is the result's, in_type the operands'. NO_VALUE: not from one lane of each operand;
 * interpret.c runs it. */

#define IR_UNARY_LIST(X)                                                                           \
    X(NEG, neg, SAME, 1, IR_NUMBERS, IR_PURE, EXACT,                                               \
      "-x; integers wrap; of a float only the sign bit changes",                                   \
      TEXT("$u(0) - $0", .f = "-$0", .s = "$s($u(0) - $u($0))", .wide = "neg_u64($0)",             \
           .narrow = IR_INTEGERS),                                                                 \
      BITS(negate(type, x)))                                                                       \
    X(ABS, abs, SAME, 1, IR_NUMBERS, IR_PURE, EXACT,                                               \
      "magnitude; the smallest integer stays as it is",                                            \
      TEXT("$0", .f = "@fabs($0)", .s = "select($0, $s($u(0) - $u($0)), $0 < $s(0))",              \
           .wide = "abs_$t($0)", .narrow = IR_INTEGERS),                                           \
      BITS(magnitude(type, x)))                                                                    \
    X(NOT, not, SAME, 1, IR_INTEGERS | IR_BOOLS, IR_PURE, EXACT,                                   \
      "every bit flipped; of a bool: logical not", TEXT("~$0", .b = "!$0", .narrow = IR_INTEGERS), \
      BITS(~x))                                                                                    \
    X(POPCOUNT, popcount, SAME, 1, IR_INTEGERS, IR_PURE, EXACT, "how many bits are set",           \
      TEXT("popcount_$u($0)", .s = "$s(popcount_$u($u($0)))", .wide = "popcount_u64($0)"),         \
      BITS(popcount(x)))                                                                           \
    X(FLOOR, floor, SAME, 1, IR_FLOATS, IR_PURE, EXACT, "rounded down", TEXT("@floor($0)"),        \
      FLOAT(floor(x)))                                                                             \
    X(CEIL, ceil, SAME, 1, IR_FLOATS, IR_PURE, EXACT, "rounded up", TEXT("@ceil($0)"),             \
      FLOAT(ceil(x)))                                                                              \
    X(TRUNC, trunc, SAME, 1, IR_FLOATS, IR_PURE, EXACT, "rounded toward zero", TEXT("@trunc($0)"), \
      FLOAT(trunc(x)))                                                                             \
    X(ROUND, round, SAME, 1, IR_FLOATS, IR_PURE, EXACT, "rounded to the nearest, ties to even",    \
      TEXT("@rint($0)"), FLOAT(round_even(x)))                                                     \
    X(SQRT, sqrt, SAME, 1, IR_FLOATS, IR_PURE, NEAR, "square root; below zero: NaN",               \
      TEXT("@sqrt($0)", .narrow = IR_FLOATS), FLOAT(sqrt(x)))                                      \
    X(RSQRT, rsqrt, SAME, 1, IR_FLOATS, IR_PURE, NEAR, "1 / sqrt(x)",                              \
      TEXT("$t(1) / @sqrt($0)", .narrow = IR_FLOATS), FLOAT(1 / sqrt(x)))                          \
    X(RECIP, recip, SAME, 1, IR_FLOATS, IR_PURE, NEAR, "1 / x",                                    \
      TEXT("$t(1) / $0", .narrow = IR_FLOATS), FLOAT(1 / x))                                       \
    X(EXP, exp, SAME, 1, IR_FLOATS, IR_PURE, NEAR, "e to the power of x",                          \
      TEXT("@exp($0)", .narrow = IR_FLOATS), FLOAT(exp(x)))                                        \
    X(EXP2, exp2, SAME, 1, IR_FLOATS, IR_PURE, NEAR, "2 to the power of x",                        \
      TEXT("@exp2($0)", .narrow = IR_FLOATS), FLOAT(exp2(x)))                                      \
    X(EXP2_NORMAL, exp2_normal, SAME, 1, IR_FLOATS, IR_PURE, NEAR,                                 \
      "exp2; what is below normal numbers may be 0",                                               \
      TEXT("@exp2_normal($0)", .narrow = IR_FLOATS), FLOAT(exp2(x)))                               \
    X(LOG, log, SAME, 1, IR_FLOATS, IR_PURE, NEAR,                                                 \
      "natural logarithm; of 0: -inf; below zero: NaN", TEXT("@log($0)", .narrow = IR_FLOATS),     \
      FLOAT(log(x)))                                                                               \
    X(LOG2, log2, SAME, 1, IR_FLOATS, IR_PURE, NEAR,                                               \
      "logarithm to the base 2; of 0: -inf; below zero: NaN",                                      \
      TEXT("@log2($0)", .narrow = IR_FLOATS), FLOAT(log2(x)))                                      \
    X(SIN, sin, SAME, 1, IR_FLOATS, IR_PURE, LOOSE, "sine", TEXT("@sin($0)", .narrow = IR_FLOATS), \
      FLOAT(sin(x)))                                                                               \
    X(COS, cos, SAME, 1, IR_FLOATS, IR_PURE, LOOSE, "cosine",                                      \
      TEXT("@cos($0)", .narrow = IR_FLOATS), FLOAT(cos(x)))                                        \
    X(TAN, tan, SAME, 1, IR_FLOATS, IR_PURE, LOOSE, "tangent",                                     \
      TEXT("@tan($0)", .narrow = IR_FLOATS), FLOAT(tan(x)))                                        \
    X(ASIN, asin, SAME, 1, IR_FLOATS, IR_PURE, LOOSE, "arc sine; outside [-1, 1]: NaN",            \
      TEXT("@asin($0)", .narrow = IR_FLOATS), FLOAT(asin(x)))                                      \
    X(ACOS, acos, SAME, 1, IR_FLOATS, IR_PURE, LOOSE, "arc cosine; outside [-1, 1]: NaN",          \
      TEXT("@acos($0)", .narrow = IR_FLOATS), FLOAT(acos(x)))                                      \
    X(ATAN, atan, SAME, 1, IR_FLOATS, IR_PURE, LOOSE, "arc tangent",                               \
      TEXT("@atan($0)", .narrow = IR_FLOATS), FLOAT(atan(x)))                                      \
    X(SINH, sinh, SAME, 1, IR_FLOATS, IR_PURE, LOOSE, "hyperbolic sine",                           \
      TEXT("@sinh($0)", .narrow = IR_FLOATS), FLOAT(sinh(x)))                                      \
    X(COSH, cosh, SAME, 1, IR_FLOATS, IR_PURE, LOOSE, "hyperbolic cosine",                         \
      TEXT("@cosh($0)", .narrow = IR_FLOATS), FLOAT(cosh(x)))                                      \
    X(TANH, tanh, SAME, 1, IR_FLOATS, IR_PURE, LOOSE,                                              \
      "hyperbolic tangent; -1 or 1 for large x, never NaN there",                                  \
      TEXT("@tanh($0)", .narrow = IR_FLOATS), FLOAT(tanh(x)))                                      \
    X(ERF, erf, SAME, 1, IR_FLOATS, IR_PURE, LOOSE, "error function",                              \
      TEXT("@erf($0)", .narrow = IR_FLOATS), FLOAT(erf(x)))

#define IR_BINARY_LIST(X)                                                                     \
    X(ADD, add, SAME, 2, IR_NUMBERS, IR_PURE, EXACT, "x + y; integers wrap",                  \
      TEXT("$0 + $1", .s = "$s($u($0) + $u($1))", .wide = "add_u64($0, $1)",                  \
           .narrow = IR_NUMBERS),                                                             \
      FLOAT_OR_BITS(x + y, x + y))                                                            \
    X(SUB, sub, SAME, 2, IR_NUMBERS, IR_PURE, EXACT, "x - y; integers wrap",                  \
      TEXT("$0 - $1", .s = "$s($u($0) - $u($1))", .wide = "sub_u64($0, $1)",                  \
           .narrow = IR_NUMBERS),                                                             \
      FLOAT_OR_BITS(x - y, x - y))                                                            \
    X(MUL, mul, SAME, 2, IR_NUMBERS, IR_PURE, EXACT, "x * y; integers wrap",                  \
      TEXT("$0 * $1", .s = "$s($u($0) * $u($1))", .wide = "mul_u64($0, $1)",                  \
           .narrow = IR_NUMBERS),                                                             \
      FLOAT_OR_BITS(x *y, x *y))                                                              \
    X(DIV, div, SAME, 2, IR_NUMBERS, IR_PURE, NEAR,                                           \
      "x / y; integers: toward zero, by zero 0, least / -1 least (exact)",                    \
      TEXT("div_$t($0, $1)", .f = "$0 / $1", .narrow = IR_NUMBERS),                           \
      FLOAT_OR_BITS(x / y, quotient(type, x, y)))                                             \
    X(DIV_NORMAL, div_normal, SAME, 2, IR_FLOATS, IR_PURE, NEAR,                              \
      "x / y, where y and 1 / y are normal numbers",                                          \
      TEXT("div_normal_$t($0, $1)", .narrow = IR_FLOATS), FLOAT(x / y))                       \
    X(MOD, mod, SAME, 2, IR_NUMBERS, IR_PURE, NEAR,                                           \
      "x - y * trunc(x / y); integers: by zero 0 (exact); floats as C's fmod",                \
      TEXT("mod_$t($0, $1)", .f = "@fmod($0, $1)", .narrow = IR_FLOATS),                      \
      FLOAT_OR_BITS(fmod(x, y), y ? x - y *quotient(type, x, y) : 0))                         \
    X(MIN, min, SAME, 2, IR_NUMBERS, IR_PURE, EXACT,                                          \
      "y < x or x is NaN ? y : x, so a number beats NaN",                                     \
      TEXT("select($0, $1, $1 < $0)", .f = "min_$t($0, $1)",                                  \
           .wide = "select($0, $1, lt_$t($1, $0))"),                                          \
      BITS(less(type, y, x) || is_nan(type, x) ? y : x))                                      \
    X(MAX, max, SAME, 2, IR_NUMBERS, IR_PURE, EXACT,                                          \
      "y > x or x is NaN ? y : x, so a number beats NaN",                                     \
      TEXT("select($0, $1, $1 > $0)", .f = "max_$t($0, $1)",                                  \
           .wide = "select($0, $1, lt_$t($0, $1))"),                                          \
      BITS(less(type, x, y) || is_nan(type, x) ? y : x))                                      \
    X(POW, pow, SAME, 2, IR_FLOATS, IR_PURE, LOOSE, "x to the power of y, as C's pow",        \
      TEXT("@pow($0, $1)", .narrow = IR_FLOATS), FLOAT(pow(x, y)))                            \
    X(ATAN2, atan2, SAME, 2, IR_FLOATS, IR_PURE, LOOSE,                                       \
      "angle of the point (y, x), as C's atan2(first, second)",                               \
      TEXT("@atan2($0, $1)", .narrow = IR_FLOATS), FLOAT(atan2(x, y)))                        \
    X(AND, and, SAME, 2, IR_INTEGERS | IR_BOOLS, IR_PURE, EXACT, "bitwise; of bools logical", \
      TEXT("$0 & $1", .b = "$0 && $1"), BITS(x & y))                                          \
    X(OR, or, SAME, 2, IR_INTEGERS | IR_BOOLS, IR_PURE, EXACT, "bitwise; of bools logical",   \
      TEXT("$0 | $1", .b = "$0 || $1"), BITS(x | y))                                          \
    X(XOR, xor, SAME, 2, IR_INTEGERS | IR_BOOLS, IR_PURE, EXACT, "bitwise; of bools logical", \
      TEXT("$0 ^ $1", .b = "$0 != $1"), BITS(x ^ y))                                          \
    X(SHL, shl, SAME, 2, IR_INTEGERS, IR_PURE, EXACT,                                         \
      "x shifted left by y modulo the bits of the type",                                      \
      TEXT("$0 << (u32($1) & $m)", .s = "$s($u($0) << (u32($1) & $m))",                       \
           .wide = "shl_u64($0, $1.x)", .narrow = IR_INTEGERS),                               \
      BITS(x << shift_count(type, y)))                                                        \
    X(SHR, shr, SAME, 2, IR_INTEGERS, IR_PURE, EXACT,                                         \
      "x shifted right by y modulo the bits; signed: copies the sign",                        \
      TEXT("$0 >> (u32($1) & $m)", .wide = "shr_$t($0, $1.x)"),                               \
      BITS(shift_right(type, x, shift_count(type, y))))

/* The text of ne for floats is the opposite of ==: WGSL's != may be false where one is NaN. */
#define IR_COMPARE_LIST(X)                                                                        \
    X(EQ, eq, COMPARE, 2, IR_NUMBERS | IR_BOOLS, IR_PURE, EXACT, "x == y; NaN equals nothing",    \
      TEXT("$0 == $1", .wide = "all($0 == $1)"), BITS(equal(in_type, x, y)))                      \
    X(NE, ne, COMPARE, 2, IR_NUMBERS | IR_BOOLS, IR_PURE, EXACT, "x != y; true where one is NaN", \
      TEXT("$0 != $1", .f = "!($0 == $1)", .wide = "any($0 != $1)"), BITS(!equal(in_type, x, y))) \
    X(LT, lt, COMPARE, 2, IR_NUMBERS, IR_PURE, EXACT, "x < y",                                    \
      TEXT("$0 < $1", .wide = "lt_$t($0, $1)"), BITS(less(in_type, x, y)))                        \
    X(LE, le, COMPARE, 2, IR_NUMBERS, IR_PURE, EXACT, "x <= y",                                   \
      TEXT("$0 <= $1", .wide = "!lt_$t($1, $0)"),                                                 \
      BITS(less(in_type, x, y) || equal(in_type, x, y)))                                          \
    X(GT, gt, COMPARE, 2, IR_NUMBERS, IR_PURE, EXACT, "x > y",                                    \
      TEXT("$0 > $1", .wide = "lt_$t($1, $0)"), BITS(less(in_type, y, x)))                        \
    X(GE, ge, COMPARE, 2, IR_NUMBERS, IR_PURE, EXACT, "x >= y",                                   \
      TEXT("$0 >= $1", .wide = "!lt_$t($0, $1)"),                                                 \
      BITS(less(in_type, y, x) || equal(in_type, x, y)))

/* index kinds: u32, all but subgroup_lane and local the same in the whole workgroup */
#define IR_INDEX_LIST(X)                                                                  \
    X(GROUP, group, AXIS, 0, IR_U32S, IR_PURE | IR_SAME_IN_GROUP, EXACT,                  \
      "the workgroup's place on an axis", NO_TEXT, NO_VALUE)                              \
    X(GROUPS, groups, AXIS, 0, IR_U32S, IR_PURE | IR_SAME_IN_GROUP, EXACT,                \
      "how many workgroups on an axis", NO_TEXT, NO_VALUE)                                \
    X(LOCAL, local, AXIS, 0, IR_U32S, IR_PURE, EXACT,                                     \
      "the lane's place in its workgroup on an axis", NO_TEXT, NO_VALUE)                  \
    X(SUBGROUP_LANE, subgroup_lane, INDEX, 0, IR_U32S, IR_PURE, EXACT,                    \
      "the lane's place in its subgroup", NO_TEXT, NO_VALUE)                              \
    X(SUBGROUP_SIZE, subgroup_size, INDEX, 0, IR_U32S, IR_PURE | IR_SAME_IN_GROUP, EXACT, \
      "lanes of a subgroup", NO_TEXT, NO_VALUE)

#define IR_VALUE_LIST(X)                                                                         \
    X(CONST, const, CONST, 0, IR_ANY, IR_PURE | IR_SAME_IN_GROUP, EXACT,                         \
      "a number, the same in every vector lane", NO_TEXT, NO_VALUE)                              \
    X(PARAM, param, PARAM, 0, IR_WORDS, IR_PURE | IR_SAME_IN_GROUP, EXACT,                       \
      "a scalar parameter of the dispatch", NO_TEXT, NO_VALUE)                                   \
    X(FMA, fma, SAME, 3, IR_NUMBERS, IR_PURE, NEAR,                                              \
      "x * y + z, of floats with one rounding or two; integers wrap (exact)",                    \
      TEXT("$0 * $1 + $2", .f = "@fma($0, $1, $2)", .s = "$s($u($0) * $u($1) + $u($2))",         \
           .wide = "add_u64(mul_u64($0, $1), $2)", .narrow = IR_NUMBERS),                        \
      FLOAT_OR_BITS(fused(type, x, y, z), x *y + z))                                             \
    X(SELECT, select, SELECT, 3, IR_ANY, IR_PURE, EXACT, "c ? x : y, lane by lane",              \
      TEXT("select($2, $1, $0)"), BITS(x ? y : z))                                               \
    X(DOT4_I8, dot4_i8, DOT, 3, IR_I32S, IR_PURE, EXACT,                                         \
      "acc + sum of four signed bytes of x times those of y; x, y: u32",                         \
      TEXT("dot4_i8($0, $1, $2)"), BITS(dot4_i8(x, y, z)))                                       \
    X(DOT4_U8, dot4_u8, DOT, 3, IR_I32S, IR_PURE, EXACT,                                         \
      "acc + sum of four unsigned bytes of x times the signed ones of y; x, y: u32",             \
      TEXT("dot4_u8($0, $1, $2)"), BITS(dot4_u8(x, y, z)))                                       \
    X(PERMUTE_BYTES, permute_bytes, SAME, 3, IR_U32S, IR_PURE, EXACT,                            \
      "byte i: byte s of the eight of x and y, x's first, s: the low three bits of nibble i of " \
      "z; z's fourth bit: all its sign",                                                         \
      TEXT("permute_bytes($0, $1, $2)"), BITS(permute_bytes(x, y, z)))                           \
    X(IS_NAN, is_nan, COMPARE, 1, IR_FLOATS, IR_PURE, EXACT, "x is not a number",                \
      TEXT("nan_$t($0)"), BITS(is_nan(in_type, x)))                                              \
    X(CAST, cast, CAST, 1, IR_ANY, IR_PURE, EXACT,                                               \
      "float to integer saturates, NaN 0; integer to integer keeps the low bits; "               \
      "to f16, bf16: by f32; bool: 0 or 1; to bool: x != 0",                                     \
      NO_TEXT, BITS(cast(type, in_type, x)))                                                     \
    X(BITCAST, bitcast, BITCAST, 1, IR_NUMBERS, IR_PURE, EXACT,                                  \
      "the same bits as other type and width, lane 0 lowest", NO_TEXT, NO_VALUE)

#define IR_LANES_LIST(X)                                                                          \
    X(SPLAT, splat, SPLAT, 1, IR_ANY, IR_PURE, EXACT, "a scalar in every vector lane", NO_TEXT,   \
      NO_VALUE)                                                                                   \
    X(EXTRACT, extract, EXTRACT, 1, IR_ANY, IR_PURE, EXACT, "one vector lane", NO_TEXT, NO_VALUE) \
    X(COMPOSE, compose, COMPOSE, 4, IR_ANY, IR_PURE, EXACT,                                       \
      "2 or 4 scalars or vectors of one width, put side by side", NO_TEXT, NO_VALUE)              \
    X(SWIZZLE, swizzle, SWIZZLE, 1, IR_ANY, IR_PURE, EXACT,                                       \
      "vector lanes in any order and number", NO_TEXT, NO_VALUE)

#define IR_MEMORY_LIST(X)                                                                          \
    X(LOAD, load, LOAD, 1, IR_NUMBERS, IR_READS, EXACT,                                            \
      "elements index .. index + width - 1; index a multiple of width, or anywhere", NO_TEXT,      \
      NO_VALUE)                                                                                    \
    X(STORE, store, STORE, 2, IR_NUMBERS, IR_WRITES, EXACT,                                        \
      "elements index .. index + width - 1; index a multiple of width, or anywhere", NO_TEXT,      \
      NO_VALUE)                                                                                    \
    X(UNIFORM_LOAD, uniform_load, LOAD, 1, IR_NUMBERS,                                             \
      IR_READS | IR_TOGETHER | IR_BARS | IR_SAME_IN_GROUP, EXACT,                                  \
      "barrier, load of a workgroup array at an index that is the same in the workgroup, "         \
      "barrier; the result counts as such",                                                        \
      NO_TEXT, NO_VALUE)                                                                           \
    X(ATOMIC_ADD, atomic_add, ATOMIC, 2, IR_I32S | IR_U32S, IR_READS | IR_WRITES, EXACT,           \
      "adds at index, gives the old value", NO_TEXT, NO_VALUE)                                     \
    X(ATOMIC_MIN, atomic_min, ATOMIC, 2, IR_I32S | IR_U32S, IR_READS | IR_WRITES, EXACT,           \
      "least at index, gives the old value", NO_TEXT, NO_VALUE)                                    \
    X(ATOMIC_MAX, atomic_max, ATOMIC, 2, IR_I32S | IR_U32S, IR_READS | IR_WRITES, EXACT,           \
      "largest at index, gives the old value", NO_TEXT, NO_VALUE)                                  \
    X(BARRIER, barrier, BARE, 0, 0, IR_READS | IR_WRITES | IR_TOGETHER | IR_BARS, EXACT,           \
      "all lanes of the workgroup meet; what they wrote to workgroup arrays all now see", NO_TEXT, \
      NO_VALUE)

#define IR_SUBGROUP_LIST(X)                                                                \
    X(SUBGROUP_ADD, subgroup_add, SAME, 1, IR_NUMBERS, IR_TOGETHER, NEAR,                  \
      "sum over the subgroup, in any order", NO_TEXT, NO_VALUE)                            \
    X(SUBGROUP_MIN, subgroup_min, SAME, 1, IR_NUMBERS, IR_TOGETHER, EXACT,                 \
      "least of the subgroup; a number beats NaN", NO_TEXT, NO_VALUE)                      \
    X(SUBGROUP_MAX, subgroup_max, SAME, 1, IR_NUMBERS, IR_TOGETHER, EXACT,                 \
      "largest of the subgroup; a number beats NaN", NO_TEXT, NO_VALUE)                    \
    X(SUBGROUP_BROADCAST, subgroup_broadcast, LANE, 1, IR_NUMBERS, IR_TOGETHER, EXACT,     \
      "the value of one lane (constant)", NO_TEXT, NO_VALUE)                               \
    X(SUBGROUP_SHUFFLE_XOR, subgroup_shuffle_xor, LANE, 1, IR_NUMBERS, IR_TOGETHER, EXACT, \
      "the value of lane ^ constant", NO_TEXT, NO_VALUE)

#define IR_MATRIX_LIST(X)                                                                         \
    X(FRAGMENT_FILL, fragment_fill, FRAGMENT_FILL, 2, 0, IR_WRITES | IR_TOGETHER, EXACT,          \
      "every element = value", NO_TEXT, NO_VALUE)                                                 \
    X(FRAGMENT_LOAD, fragment_load, FRAGMENT_LOAD, 3, 0, IR_READS | IR_WRITES | IR_TOGETHER,      \
      EXACT,                                                                                      \
      "rows from memory: element (r, c) at index + r * stride + c, `transposed`: at index + c * " \
      "stride + r, `pairs`, of b: at index + r / 2 * stride + 2 * c + r % 2",                     \
      NO_TEXT, NO_VALUE)                                                                          \
    X(FRAGMENT_MMA, fragment_mma, FRAGMENT_MMA, 3, 0, IR_READS | IR_WRITES | IR_TOGETHER, NEAR,   \
      "c += a * b, products and sums in the type of c at least, in any order", NO_TEXT, NO_VALUE) \
    X(FRAGMENT_MULTIPLY, fragment_multiply, FRAGMENT_MULTIPLY, 2, 0,                              \
      IR_READS | IR_WRITES | IR_TOGETHER, NEAR,                                                   \
      "begins, at every place j, c += a * b, fresh: c = a * b, for some steps of 16 k, of "       \
      "factors in workgroup memory: element (r, k) of a at index + 64 * r + k, turned: + 64 * "   \
      "k + r, where r counts the 64 rows of four subgroups, the first of them a multiple of "     \
      "four, or held: a fragment a step from a place on; column r = 8 * j + n of b alike, "       \
      "turned: + r / 64 * 1024 * steps + 64 * k + r % 64",                                        \
      NO_TEXT, NO_VALUE)                                                                          \
    X(FRAGMENT_WAIT, fragment_wait, COUNT, 0, 0, IR_READS | IR_WRITES, EXACT,                     \
      "waits until at most N products of fragment_multiply are under way: until then nothing "    \
      "else may touch c, nor write their factors",                                                \
      NO_TEXT, NO_VALUE)                                                                          \
    X(FRAGMENT_STORE, fragment_store, FRAGMENT_STORE, 3, 0, IR_READS | IR_WRITES | IR_TOGETHER,   \
      EXACT, "as fragment_load, to memory", NO_TEXT, NO_VALUE)                                    \
    X(FRAGMENT_GET, fragment_get, FRAGMENT_GET, 1, IR_FLOATS, IR_READS, EXACT,                    \
      "the lane's pair j of a or c, of 16 rows: row lane / 4 + 8 * (j % 2), columns "             \
      "2 * (lane % 4) + 8 * (j / 2) and the next; of b, of 8 columns: column lane / 4, rows "     \
      "2 * (lane % 4) + 8 * j and the next",                                                      \
      NO_TEXT, NO_VALUE)                                                                          \
    X(FRAGMENT_SET, fragment_set, FRAGMENT_SET, 2, 0, IR_READS | IR_WRITES, EXACT,                \
      "the pair = value", NO_TEXT, NO_VALUE)                                                      \
    X(COPY_ASYNC, copy_async, COPY_ASYNC, 3, 0, IR_READS | IR_WRITES, EXACT,                      \
      "begins to copy 4, 8 or 16 bytes from a buffer to a workgroup array; where the third "      \
      "operand is false: zeros",                                                                  \
      NO_TEXT, NO_VALUE)                                                                          \
    X(COPY_COMMIT, copy_commit, BARE, 0, 0, IR_READS | IR_WRITES, EXACT,                          \
      "this lane's copies so far form a group", NO_TEXT, NO_VALUE)                                \
    X(COPY_WAIT, copy_wait, COUNT, 0, 0, IR_READS | IR_WRITES, EXACT,                             \
      "waits until at most N of this lane's groups are under way", NO_TEXT, NO_VALUE)

#define IR_CONTROL_LIST(X)                                                                      \
    X(LOOP, loop, LOOP, 3, IR_U32S, IR_OPENS, EXACT,                                            \
      "for (i = from; i < to; i += step), i is its value; to + step < 2^32", NO_TEXT, NO_VALUE) \
    X(IF, if, IF, 1, 0, IR_OPENS, EXACT,                                                        \
      "what follows, up to else or end, where the operand is true", NO_TEXT, NO_VALUE)          \
    X(ELSE, else, BARE, 0, 0, IR_OPENS | IR_CLOSES, EXACT,                                      \
      "what follows, up to end, where it is false", NO_TEXT, NO_VALUE)                          \
    X(END, end, BARE, 0, 0, IR_CLOSES, EXACT, "ends a loop or an if", NO_TEXT, NO_VALUE)

#define IR_OP_LIST(X)  \
    IR_VALUE_LIST(X)   \
    IR_INDEX_LIST(X)   \
    IR_UNARY_LIST(X)   \
    IR_BINARY_LIST(X)  \
    IR_COMPARE_LIST(X) \
    IR_LANES_LIST(X) IR_MEMORY_LIST(X) IR_SUBGROUP_LIST(X) IR_MATRIX_LIST(X) IR_CONTROL_LIST(X)

#endif
