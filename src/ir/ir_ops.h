/* ir_ops.h - the kernel IR's types and ops: the one list that builder, verifier, printer, parser, interpreter, passes,
 * generators, tests and docs/ir.md derive from. ir.h says what the columns mean. */
#ifndef IR_IR_OPS_H
#define IR_IR_OPS_H

/* NAME, name, bytes in memory */
#define IR_TYPE_LIST(X)                                                                                                     \
    X(NONE, none, 0)                                                                                                        \
    X(F32, f32, 4)                                                                                                          \
    X(F16, f16, 2)                                                                                                          \
    X(BF16, bf16, 2)                                                                                                        \
    X(F64, f64, 8)                                                                                                          \
    X(I8, i8, 1)                                                                                                            \
    X(I16, i16, 2)                                                                                                          \
    X(I32, i32, 4)                                                                                                          \
    X(I64, i64, 8)                                                                                                          \
    X(U8, u8, 1)                                                                                                            \
    X(U16, u16, 2)                                                                                                          \
    X(U32, u32, 4)                                                                                                          \
    X(U64, u64, 8)                                                                                                          \
    X(BOOL, bool, 0)

/* NAME, name, form, operands, types, flags, exact, meaning. Every list below has these columns. */

#define IR_UNARY_LIST(X)                                                                                                    \
    X(NEG, neg, SAME, 1, IR_NUMBERS, IR_PURE, EXACT, "-x; integers wrap; of a float only the sign bit changes")             \
    X(ABS, abs, SAME, 1, IR_NUMBERS, IR_PURE, EXACT, "magnitude; the least integer stays as it is")                         \
    X(NOT, not, SAME, 1, IR_INTEGERS | IR_BOOLS, IR_PURE, EXACT, "every bit flipped; of a bool: logical not")               \
    X(POPCOUNT, popcount, SAME, 1, IR_INTEGERS, IR_PURE, EXACT, "how many bits are set")                                    \
    X(FLOOR, floor, SAME, 1, IR_FLOATS, IR_PURE, EXACT, "rounded down")                                                     \
    X(CEIL, ceil, SAME, 1, IR_FLOATS, IR_PURE, EXACT, "rounded up")                                                         \
    X(TRUNC, trunc, SAME, 1, IR_FLOATS, IR_PURE, EXACT, "rounded toward zero")                                              \
    X(ROUND, round, SAME, 1, IR_FLOATS, IR_PURE, EXACT, "rounded to the nearest, ties to even")                             \
    X(SQRT, sqrt, SAME, 1, IR_FLOATS, IR_PURE, NEAR, "square root; below zero: NaN")                                        \
    X(RSQRT, rsqrt, SAME, 1, IR_FLOATS, IR_PURE, NEAR, "1 / sqrt(x)")                                                       \
    X(RECIP, recip, SAME, 1, IR_FLOATS, IR_PURE, NEAR, "1 / x")                                                             \
    X(EXP, exp, SAME, 1, IR_FLOATS, IR_PURE, NEAR, "e to the power of x")                                                   \
    X(EXP2, exp2, SAME, 1, IR_FLOATS, IR_PURE, NEAR, "2 to the power of x")                                                 \
    X(LOG, log, SAME, 1, IR_FLOATS, IR_PURE, NEAR, "natural logarithm; of 0: -inf; below zero: NaN")                        \
    X(LOG2, log2, SAME, 1, IR_FLOATS, IR_PURE, NEAR, "logarithm to the base 2; of 0: -inf; below zero: NaN")                \
    X(SIN, sin, SAME, 1, IR_FLOATS, IR_PURE, LOOSE, "sine; shaders lose all digits at large x")                             \
    X(COS, cos, SAME, 1, IR_FLOATS, IR_PURE, LOOSE, "cosine; shaders lose all digits at large x")                           \
    X(TAN, tan, SAME, 1, IR_FLOATS, IR_PURE, LOOSE, "tangent; shaders lose all digits at large x")                          \
    X(ASIN, asin, SAME, 1, IR_FLOATS, IR_PURE, LOOSE, "arc sine; outside [-1, 1]: NaN")                                     \
    X(ACOS, acos, SAME, 1, IR_FLOATS, IR_PURE, LOOSE, "arc cosine; outside [-1, 1]: NaN")                                   \
    X(ATAN, atan, SAME, 1, IR_FLOATS, IR_PURE, LOOSE, "arc tangent")                                                        \
    X(SINH, sinh, SAME, 1, IR_FLOATS, IR_PURE, LOOSE, "hyperbolic sine")                                                    \
    X(COSH, cosh, SAME, 1, IR_FLOATS, IR_PURE, LOOSE, "hyperbolic cosine")                                                  \
    X(TANH, tanh, SAME, 1, IR_FLOATS, IR_PURE, LOOSE, "hyperbolic tangent; -1 or 1 for large x, never NaN there")           \
    X(ERF, erf, SAME, 1, IR_FLOATS, IR_PURE, LOOSE, "error function")

#define IR_BINARY_LIST(X)                                                                                                   \
    X(ADD, add, SAME, 2, IR_NUMBERS, IR_PURE, EXACT, "x + y; integers wrap")                                                \
    X(SUB, sub, SAME, 2, IR_NUMBERS, IR_PURE, EXACT, "x - y; integers wrap")                                                \
    X(MUL, mul, SAME, 2, IR_NUMBERS, IR_PURE, EXACT, "x * y; integers wrap")                                                \
    X(DIV, div, SAME, 2, IR_NUMBERS, IR_PURE, NEAR, "x / y; integers: toward zero, by zero 0, least / -1 least (exact)")    \
    X(MOD, mod, SAME, 2, IR_NUMBERS, IR_PURE, NEAR, "x - y * trunc(x / y); integers: by zero 0 (exact); floats as C's fmod") \
    X(MIN, min, SAME, 2, IR_NUMBERS, IR_PURE, EXACT, "y < x or x is NaN ? y : x, so a number beats NaN")                    \
    X(MAX, max, SAME, 2, IR_NUMBERS, IR_PURE, EXACT, "y > x or x is NaN ? y : x, so a number beats NaN")                    \
    X(POW, pow, SAME, 2, IR_FLOATS, IR_PURE, LOOSE, "x to the power of y, as C's pow")                                      \
    X(ATAN2, atan2, SAME, 2, IR_FLOATS, IR_PURE, LOOSE, "angle of the point (y, x), as C's atan2(first, second)")           \
    X(AND, and, SAME, 2, IR_INTEGERS | IR_BOOLS, IR_PURE, EXACT, "bitwise; of bools logical")                               \
    X(OR, or, SAME, 2, IR_INTEGERS | IR_BOOLS, IR_PURE, EXACT, "bitwise; of bools logical")                                 \
    X(XOR, xor, SAME, 2, IR_INTEGERS | IR_BOOLS, IR_PURE, EXACT, "bitwise; of bools logical")                               \
    X(SHL, shl, SAME, 2, IR_INTEGERS, IR_PURE, EXACT, "x shifted left by y modulo the bits of the type")                    \
    X(SHR, shr, SAME, 2, IR_INTEGERS, IR_PURE, EXACT, "x shifted right by y modulo the bits; signed: copies the sign")

#define IR_COMPARE_LIST(X)                                                                                                  \
    X(EQ, eq, COMPARE, 2, IR_NUMBERS | IR_BOOLS, IR_PURE, EXACT, "x == y; NaN equals nothing")                              \
    X(NE, ne, COMPARE, 2, IR_NUMBERS | IR_BOOLS, IR_PURE, EXACT, "x != y; true where one is NaN")                           \
    X(LT, lt, COMPARE, 2, IR_NUMBERS, IR_PURE, EXACT, "x < y")                                                              \
    X(LE, le, COMPARE, 2, IR_NUMBERS, IR_PURE, EXACT, "x <= y")                                                             \
    X(GT, gt, COMPARE, 2, IR_NUMBERS, IR_PURE, EXACT, "x > y")                                                              \
    X(GE, ge, COMPARE, 2, IR_NUMBERS, IR_PURE, EXACT, "x >= y")

/* index kinds: u32, all but subgroup_lane and local the same in the whole workgroup */
#define IR_INDEX_LIST(X)                                                                                                    \
    X(GROUP, group, AXIS, 0, IR_U32S, IR_PURE | IR_SAME_IN_GROUP, EXACT, "the workgroup's place on an axis")                \
    X(GROUPS, groups, AXIS, 0, IR_U32S, IR_PURE | IR_SAME_IN_GROUP, EXACT, "how many workgroups on an axis")                \
    X(LOCAL, local, AXIS, 0, IR_U32S, IR_PURE, EXACT, "the lane's place in its workgroup on an axis")                       \
    X(SUBGROUP_LANE, subgroup_lane, INDEX, 0, IR_U32S, IR_PURE, EXACT, "the lane's place in its subgroup")                  \
    X(SUBGROUP_SIZE, subgroup_size, INDEX, 0, IR_U32S, IR_PURE | IR_SAME_IN_GROUP, EXACT, "lanes of a subgroup")

#define IR_VALUE_LIST(X)                                                                                                    \
    X(CONST, const, CONST, 0, IR_ANY, IR_PURE | IR_SAME_IN_GROUP, EXACT, "a number, the same in every vector lane")         \
    X(PARAM, param, PARAM, 0, IR_WORDS, IR_PURE | IR_SAME_IN_GROUP, EXACT, "a scalar parameter of the dispatch")            \
    X(FMA, fma, SAME, 3, IR_NUMBERS, IR_PURE, NEAR, "x * y + z, of floats with one rounding or two; integers wrap (exact)") \
    X(SELECT, select, SELECT, 3, IR_ANY, IR_PURE, EXACT, "c ? x : y, lane by lane")                                         \
    X(DOT4_I8, dot4_i8, DOT, 3, IR_I32S, IR_PURE, EXACT, "acc + sum of four signed bytes of x times those of y; x, y: u32") \
    X(PERMUTE_BYTES, permute_bytes, SAME, 3, IR_U32S, IR_PURE, EXACT,                                                       \
      "byte i: byte s of the eight of x and y, x's first, s: the low three bits of nibble i of z; z's fourth bit: all its sign") \
    X(IS_NAN, is_nan, COMPARE, 1, IR_FLOATS, IR_PURE, EXACT, "x is not a number")                                           \
    X(CAST, cast, CAST, 1, IR_ANY, IR_PURE, EXACT, "float to integer saturates, NaN 0; integer to integer keeps the low bits; " \
      "to f16, bf16: by f32; bool: 0 or 1; to bool: x != 0")                                                                \
    X(BITCAST, bitcast, BITCAST, 1, IR_NUMBERS, IR_PURE, EXACT, "the same bits as other type and width, lane 0 lowest")

#define IR_LANES_LIST(X)                                                                                                    \
    X(SPLAT, splat, SPLAT, 1, IR_ANY, IR_PURE, EXACT, "a scalar in every vector lane")                                      \
    X(EXTRACT, extract, EXTRACT, 1, IR_ANY, IR_PURE, EXACT, "one vector lane")                                              \
    X(COMPOSE, compose, COMPOSE, 4, IR_ANY, IR_PURE, EXACT, "2 or 4 scalars or vectors of one width, put side by side")     \
    X(SWIZZLE, swizzle, SWIZZLE, 1, IR_ANY, IR_PURE, EXACT, "vector lanes in any order and number")

#define IR_MEMORY_LIST(X)                                                                                                   \
    X(LOAD, load, LOAD, 1, IR_NUMBERS, IR_READS, EXACT, "elements index .. index + width - 1; index a multiple of width")   \
    X(STORE, store, STORE, 2, IR_NUMBERS, IR_WRITES, EXACT, "elements index .. index + width - 1; index a multiple of width") \
    X(UNIFORM_LOAD, uniform_load, LOAD, 1, IR_NUMBERS, IR_READS | IR_TOGETHER | IR_BARS | IR_SAME_IN_GROUP, EXACT,          \
      "barrier, load of a workgroup array at an index that is the same in the workgroup, barrier; the result counts as such") \
    X(ATOMIC_ADD, atomic_add, ATOMIC, 2, IR_I32S | IR_U32S, IR_READS | IR_WRITES, EXACT, "adds at index, gives the old value") \
    X(ATOMIC_MIN, atomic_min, ATOMIC, 2, IR_I32S | IR_U32S, IR_READS | IR_WRITES, EXACT, "least at index, gives the old value") \
    X(ATOMIC_MAX, atomic_max, ATOMIC, 2, IR_I32S | IR_U32S, IR_READS | IR_WRITES, EXACT, "largest at index, gives the old value") \
    X(BARRIER, barrier, BARE, 0, 0, IR_READS | IR_WRITES | IR_TOGETHER | IR_BARS, EXACT, "all lanes of the workgroup meet; " \
      "what they wrote, to buffers too, the workgroup now sees")

#define IR_SUBGROUP_LIST(X)                                                                                                 \
    X(SUBGROUP_ADD, subgroup_add, SAME, 1, IR_NUMBERS, IR_TOGETHER, NEAR, "sum over the subgroup, in any order")            \
    X(SUBGROUP_MIN, subgroup_min, SAME, 1, IR_NUMBERS, IR_TOGETHER, EXACT, "least of the subgroup; a number beats NaN")     \
    X(SUBGROUP_MAX, subgroup_max, SAME, 1, IR_NUMBERS, IR_TOGETHER, EXACT, "largest of the subgroup; a number beats NaN")   \
    X(SUBGROUP_BROADCAST, subgroup_broadcast, LANE, 1, IR_NUMBERS, IR_TOGETHER, EXACT, "the value of one lane (constant)")  \
    X(SUBGROUP_SHUFFLE_XOR, subgroup_shuffle_xor, LANE, 1, IR_NUMBERS, IR_TOGETHER, EXACT, "the value of lane ^ constant")

#define IR_MATRIX_LIST(X)                                                                                                   \
    X(FRAGMENT_FILL, fragment_fill, FRAGMENT_FILL, 2, 0, IR_WRITES | IR_TOGETHER, EXACT, "every element = value")           \
    X(FRAGMENT_LOAD, fragment_load, FRAGMENT_LOAD, 3, 0, IR_READS | IR_WRITES | IR_TOGETHER, EXACT,                         \
      "rows from memory: element (r, c) at index + r * stride + c, `transposed`: at index + c * stride + r")                \
    X(FRAGMENT_MMA, fragment_mma, FRAGMENT_MMA, 3, 0, IR_READS | IR_WRITES | IR_TOGETHER, NEAR,                             \
      "c += a * b, products and sums in the type of c at least, in any order")                                              \
    X(FRAGMENT_STORE, fragment_store, FRAGMENT_STORE, 3, 0, IR_READS | IR_WRITES | IR_TOGETHER, EXACT,                      \
      "as fragment_load, to memory")                                                                                        \
    X(COPY_ASYNC, copy_async, COPY_ASYNC, 3, 0, IR_READS | IR_WRITES, EXACT,                                                \
      "begins to copy 4, 8 or 16 bytes from a buffer to a workgroup array; where the third operand is false: zeros")        \
    X(COPY_COMMIT, copy_commit, BARE, 0, 0, IR_READS | IR_WRITES, EXACT, "this lane's copies so far form a group")          \
    X(COPY_WAIT, copy_wait, COUNT, 0, 0, IR_READS | IR_WRITES, EXACT, "waits until at most N of this lane's groups are under way")

#define IR_CONTROL_LIST(X)                                                                                                  \
    X(LOOP, loop, LOOP, 3, IR_U32S, IR_OPENS, EXACT, "for (i = from; i < to; i += step), i is its value; to + step < 2^32") \
    X(IF, if, IF, 1, 0, IR_OPENS, EXACT, "what follows, up to else or end, where the operand is true")                      \
    X(ELSE, else, BARE, 0, 0, IR_OPENS | IR_CLOSES, EXACT, "what follows, up to end, where it is false")                    \
    X(END, end, BARE, 0, 0, IR_CLOSES, EXACT, "ends a loop or an if")

#define IR_OP_LIST(X)                                                                                                       \
    IR_VALUE_LIST(X) IR_INDEX_LIST(X) IR_UNARY_LIST(X) IR_BINARY_LIST(X) IR_COMPARE_LIST(X) IR_LANES_LIST(X)                \
    IR_MEMORY_LIST(X) IR_SUBGROUP_LIST(X) IR_MATRIX_LIST(X) IR_CONTROL_LIST(X)

#endif
