/* ops.h - the operations of graphs: one table says what each takes and gives, and what is true of
 * it. Calls (graph.h, graph_api.c), the text of graphs, `beryl ops`, benchmarks and the self-test
 * follow from it. Shape rules (graph/graph.c), references and kernels do not. */
#ifndef BASE_OPS_H
#define BASE_OPS_H

#include "base/pointwise.h"
#include "base/types.h"
#include "beryl.h"

/* A row:
 *   NAME, name, group
 *   inputs   at least, at most, (names), kinds: a letter each, below; those that may be left out
 *            come last
 *   outputs  how many
 *   attributes  kinds: F a float, U a whole number, I one that may be below 0; (names); (usual
 *            values, for benchmarks and the self-test). SLOTS, JOINED: with fields that passes
 *            fill
 *   call     USUAL: graph_NAME and beryl_graph_NAME take inputs, then attributes; INNER: graph_NAME
 *            alone; OWN: written by hand; NONE: passes make it
 *   facts    OP_IS_..., below
 *   closeness  CLOSE_..., below, of a kernel to the reference
 *   what it does */
/* clang-format off */
#define BASE_OP_POINTWISE(X, NAME, name, n, inputs, kinds, attrs, names, usual, facts, close,      \
                          what, real, whole, code)                                                 \
    X(NAME, name, "pointwise", n, n, inputs, kinds, 1, attrs, names, usual, USUAL,                 \
      OP_IS_POINTWISE | (facts), close, what)
#define BASE_OP_LIST(X)                                                                            \
    X(GATHER_ROWS, gather_rows, "movement", 2, 2, (table, ids), "mI", 1, F, (factor), (1),         \
      USUAL, 0, CLOSE_SUMMED, "rows of a table by index (out of range: row 0), times a constant")  \
    X(PAD, pad, "movement", 1, 1, (x), "a", 1, UUUF, (axis, before, after, value), (1, 3, 2, 0),   \
      USUAL, OP_IS_MAPPED, CLOSE_EQUAL, "pads an axis before and after with a value")   \
    X(CONCAT, concat, "movement", 2, 5, (a, b, c, d, e), "aaaaa", 1, U, (axis), (1),               \
      OWN, OP_IS_MAPPED, CLOSE_EQUAL, "tensors joined along an axis")                          \
    X(TRIL, tril, "movement", 1, 1, (x), "a", 1, I, (diagonal), (1),                               \
      USUAL, OP_IS_MAPPED, CLOSE_EQUAL, "0 above a diagonal of the last two axes")                 \
    X(TRIU, triu, "movement", 1, 1, (x), "a", 1, I, (diagonal), (-1),                              \
      USUAL, OP_IS_MAPPED, CLOSE_EQUAL, "0 below a diagonal of the last two axes")                 \
    X(RESIZE, resize, "movement", 1, 1, (x), "a", 1, UUU, (axis, size, how), (1, 2048, 2),         \
      USUAL, OP_IS_MAPPED, CLOSE_SUMMED,                                                           \
      "an axis at another size: nearest elements, between two, or means of parts (beryl_resize)")  \
    X(IOTA, iota, "movement", 1, 1, (x), "a", 1, U, (axis), (1),                                   \
      USUAL, OP_IS_MAPPED, CLOSE_EQUAL, "where each element is along an axis, as I32")             \
    X(GATHER, gather, "movement", 2, 2, (x, indices), "am", 1, U, (axis), (0),                     \
      USUAL, 0, CLOSE_EQUAL, "elements by index along an axis (out of range, or below 0: 0)")      \
    X(SCATTER, scatter, "movement", 3, 3, (x, indices, updates), "ama", 1, U, (axis), (0),         \
      USUAL, 0, CLOSE_EQUAL,                                                                       \
      "x with updates by index along an axis: the last of a place; out of range: left out")        \
    X(SCATTER_ADD, scatter_add, "movement", 3, 3, (x, indices, updates), "nmn", 1, U, (axis), (0), \
      USUAL, 0, CLOSE_SUMMED,                                                                      \
      "x plus updates by index along an axis, in one order; out of range: left out")               \
    X(ONE_HOT, one_hot, "movement", 1, 1, (ids), "m", 1, U, (depth), (64),                         \
      USUAL, 0, CLOSE_EQUAL, "BOOL, true at the index along a new last axis; out of range: none")  \
    X(NONZERO, nonzero, "movement", 1, 1, (x), "a", 1, NONE, (), (0),                              \
      OWN, 0, CLOSE_EQUAL, "places of what is not 0, in order; then -1")              \
    BASE_POINTWISE_LIST(BASE_OP_POINTWISE, X)                                                      \
    X(CAST, cast, "pointwise", 1, 1, (x), "a", 1, UU, (type, wrap), (1, 0),                        \
      OWN, OP_IS_POINTWISE | OP_IS_CAST, CLOSE_EQUAL,                                              \
      "x as another type: saturates, NaN becomes 0; wrap: integers keep their low bits")           \
    X(RANDOM, random, "random", 2, 2, (low, high), "uu", 1,                                        \
      UUUF, (kind, stream, type, chance), (RANDOM_UNIFORM, 0, TYPE_F32, 0.5f),                     \
      OWN, OP_IS_MAPPED | OP_IS_EXPENSIVE, CLOSE_FUNCTION,                                       \
      "by Threefry of keys, a stream and each element's place: bits, uniform, normal, chances")    \
    X(RMS_NORM, rms_norm, "norm", 1, 2, (x, weight), "hw", 1, F, (eps), (1e-6f),                   \
      USUAL, OP_IS_OVER_ROWS, CLOSE_FUNCTION,                                                      \
      "x / rms(x) over the last axis, times a weight if given")                                    \
    X(LAYER_NORM, layer_norm, "norm", 1, 3, (x, weight, bias), "hww", 1, F, (eps), (1e-6f),        \
      USUAL, OP_IS_OVER_ROWS, CLOSE_FUNCTION,                                                      \
      "(x - mean) / deviation over the last axis, times a weight, plus a bias if given")           \
    X(GROUP_NORM, group_norm, "norm", 1, 3, (x, weight, bias), "hww", 1,                           \
      UF, (groups, eps), (1, 1e-6f), USUAL, OP_IS_OVER_AXES, CLOSE_FUNCTION,                       \
      "layer_norm over groups of channels of x[n, c, ..], weight and bias for each channel")       \
    X(SOFTMAX, softmax, "reduction", 1, 1, (x), "h", 1, NONE, (), (0),                             \
      USUAL, OP_IS_OVER_ROWS, CLOSE_FUNCTION, "over the last axis")                                \
    X(CUMSUM, cumsum, "reduction", 1, 1, (x), "h", 1, U, (axis), (1),                              \
      USUAL, OP_IS_OVER_AXES, CLOSE_SUMMED, "sums of x along an axis, up to each element")         \
    X(SUM, sum, "reduction", 1, 1, (x), "n", 1, U, (axes), (2),                                    \
      OWN, OP_REDUCES, CLOSE_SUMMED, "sums over axes; integers wrap; of nothing 0")                \
    X(MEAN, mean, "reduction", 1, 1, (x), "f", 1, UU, (axes, correction), (2, 0),                  \
      OWN, OP_REDUCES, CLOSE_SUMMED, "sums over axes, by how many there are less the correction")  \
    X(PROD, prod, "reduction", 1, 1, (x), "n", 1, U, (axes), (2),                                  \
      OWN, OP_REDUCES | OP_WANTS_UNIT, CLOSE_FUNCTION, "products over axes; of nothing 1")         \
    X(AMAX, amax, "reduction", 1, 1, (x), "n", 1, U, (axes), (2), OWN, OP_REDUCES, CLOSE_EQUAL,    \
      "the largest over axes, NaN where there is one; of nothing the smallest number")                \
    X(AMIN, amin, "reduction", 1, 1, (x), "n", 1, U, (axes), (2), OWN, OP_REDUCES, CLOSE_EQUAL,    \
      "the smallest over axes, NaN where there is one; of nothing the largest number")             \
    X(ANY, any, "reduction", 1, 1, (x), "b", 1, U, (axes), (2),                                    \
      OWN, OP_REDUCES | OP_GIVES_BOOL, CLOSE_EQUAL, "is one true over axes?")                      \
    X(ALL, all, "reduction", 1, 1, (x), "b", 1, U, (axes), (2),                                    \
      OWN, OP_REDUCES | OP_GIVES_BOOL, CLOSE_EQUAL, "are all true over axes?")                     \
    X(ARG_LARGEST, arg_largest, "reduction", 1, 1, (x), "n", 1, U, (axes), (2),                    \
      OWN, OP_REDUCES | OP_GIVES_INDEX, CLOSE_EQUAL,                                               \
      "index of the largest along an axis, of a NaN if there is one; ties: lower; of nothing -1")  \
    X(CUMPROD, cumprod, "reduction", 1, 1, (x), "h", 1, U, (axis), (1),                            \
      USUAL, OP_IS_OVER_AXES | OP_WANTS_UNIT, CLOSE_FUNCTION,                                      \
      "products of x along an axis, up to each element")                                           \
    X(CUMMAX, cummax, "reduction", 1, 1, (x), "h", 1, U, (axis), (1),                              \
      USUAL, OP_IS_OVER_AXES, CLOSE_EQUAL,                                                         \
      "the largest of x along an axis, up to each element; from a NaN on NaN")                     \
    X(CUMMIN, cummin, "reduction", 1, 1, (x), "h", 1, U, (axis), (1),                              \
      USUAL, OP_IS_OVER_AXES, CLOSE_EQUAL,                                                         \
      "the smallest of x along an axis, up to each element; from a NaN on NaN")                    \
    X(TOPK, topk, "reduction", 1, 1, (x), "l", 2, U, (k), (64),                                    \
      OWN, 0, CLOSE_ROUNDED,                                                                       \
      "the k largest of the last axis, falling, and their indices; ties: lower index")             \
    X(SORT, sort, "reduction", 1, 1, (x), "n", 2, UU, (order, k), (0, 0),                           \
      OWN, 0, CLOSE_EQUAL,                                                                         \
      "the last axis rising (1: falling; 2: with NaN as -inf), its first k (0: all), and indices; ties keep order") \
    X(FOURIER, fourier, "reduction", 1, 1, (x), "f", 1,                                            \
      UUU, (axis, size, how), (1, 0, FOURIER_REAL_IN | FOURIER_REAL_OUT),                          \
      INNER, 0, CLOSE_PRODUCT, "Fourier transform along an axis, whose primes are at most 13")     \
    X(WEIGHTED_SUM, weighted_sum, "reduction", 2, 2, (x, weights), "xx", 1, NONE, (), (0),         \
      USUAL, 0, CLOSE_SUMMED, "sum over axis 1 of x[n, u, d] times g[n, u]")                       \
    X(LINEAR, linear, "linear", 2, 2, (x, w), "xm", 1, NONE, (), (0),                              \
      INNER, 0, CLOSE_PRODUCT, "x[.., n, k] times transposed w[m, k], w plain or quantised")       \
    X(LINEAR_ID, linear_id, "linear", 3, 3, (x, w, ids), "xmI", 1, NONE, (), (0),                  \
      USUAL, 0, CLOSE_PRODUCT,                                                                     \
      "experts: x[n, u or 1, k] with matrix ids[n, u] (out of range: 0) of w[e, m, k]")            \
    X(CONTRACT, contract, "linear", 2, 2, (a, b), "nn", 1, U, (axes), (1),                         \
      INNER, 0, CLOSE_PRODUCT, "sums over axes of a times b, broadcast against each other")        \
    X(ROPE, rope, "attention", 2, 2, (x, angles), "xx", 1, NONE, (), (0),                          \
      USUAL, 0, CLOSE_SUMMED, "split-half rotation by rows of cos and sin")                        \
    X(KV_WRITE, kv_write, "attention", 4, 4, (cache, x, slot, pos), "mxsp", 1, NONE, (), (0),      \
      USUAL, OP_IS_IN_PLACE, CLOSE_CACHED,                                                         \
      "rows into a cache at slot and position modulo its length; out of range: not written")       \
    X(ATTENTION, attention, "attention", 5, 6, (q, k, v, slot, pos, first), "xmmspp", 1,           \
      SLOTS, (scale, window), (0.125f, 0),                                                         \
      OWN, 0, CLOSE_ATTENDED,                                                                      \
      "grouped, over the keys of each row in caches: causal, a window, or a range; none: 0")       \
    X(ATTENTION_SUMS, attention_sums, "attention", 6, 7, (q, k, y, slot, pos, d, first),           \
      "xmxspxp", 1, FU, (scale, window), (0.125f, 0), NONE, 0, CLOSE_ATTENDED,                     \
      "of each row: log of attention's sum, y times d, first and last key")                        \
    X(ATTENTION_BACK, attention_back, "attention", 5, 5, (q, k, v, d, sums), "xmmxx", 1,           \
      FU, (scale, towards), (0.125f, 0), NONE, 0, CLOSE_ATTENDED,                                  \
      "attention's gradient towards q, k or v, from d and attention_sums")                         \
    X(ARGMAX, argmax, "sampling", 1, 1, (x), "l", 1, NONE, (), (0),                                \
      INNER, 0, CLOSE_EQUAL, "index of the largest of the last axis; ties: lower index")           \
    X(SAMPLE, sample, "sampling", 2, 2, (logits, settings), "lc", 1, NONE, (), (0),                \
      INNER, 0, CLOSE_EQUAL,                                                                       \
      "a token by temperature, top-k, top-p, min-p and a counter-based draw")                      \
    X(SET_ROWS, set_rows, "movement", 3, 3, (state, x, index), "mmI", 1, NONE, (), (0),            \
      USUAL, OP_IS_IN_PLACE, CLOSE_EQUAL,                                                          \
      "rows of x into a state at given indices; out of range: not written")                        \
    X(ASSIGN, assign, "movement", 2, 2, (state, x), "mm", 1, NONE, (), (0),                        \
      OWN, OP_IS_IN_PLACE, CLOSE_EQUAL, "a state becomes x")                                       \
    X(FUSED, fused, "fused", 1, 24, (), "", 4, JOINED, (), (0),                                    \
      NONE, 0, CLOSE_JOINED, "a group of operations that runs as one dispatch")
/* clang-format on */

typedef enum base_op {
#define X(NAME, ...) OP_##NAME,
    BASE_OP_LIST(X)
#undef X
        OP_COUNT
} base_op;

/* Kinds of inputs.
 * One type for all inputs of these kinds, which is the result's too: a any plain type, n numbers,
 * f and h floats, z integers or BOOL, i integers. b: BOOL.
 * w: a number each of the rows' elements, a float, F64 where they are. Of one type: x numbers, l
 * logits (F32);
 * I indices, s slots, p positions (I32); c settings, u (U32). m: of the types that the shape rule
 * takes. */

/* What is true of an operation. */
enum {
    OP_IS_POINTWISE = 1, /* each element of its result from those in its place */
    OP_IS_EXPENSIVE = 2, /* many instructions an element */
    OP_IS_OVER_ROWS = 4, /* rows of its result from the same rows, along the last axis */
    OP_IS_OVER_AXES = 8, /* the same along axes that its attributes say */
    OP_IS_IN_PLACE = 16, /* its result is its first input, changed */
    OP_IS_CAST = 32,     /* its result has the type that its first attribute says, */
    OP_GIVES_BOOL = 64,  /* or BOOL */
    OP_WANTS_UNIT = 128, /* of numbers in (0, 1) its result is one of usual size */
    OP_REDUCES = 256,    /* axes become 1: those that its first attribute says, a bit each */
    /* each element of its result is a constant or one of an input, which its place says */
    OP_IS_MAPPED = 512,
    OP_GIVES_INDEX = 1024 /* its result is I32 */
};

/* What OP_RANDOM makes of the two words of Threefry at (place, stream): the first or second word;
 * as many upper bits of the first as the type holds, in [0, 1); by both words with mean 0 and
 * deviation 1; -log(-log(u)) of u in (0, 1); whether the uniform number is below the chance. */
typedef enum base_random_kind {
    RANDOM_BITS,
    RANDOM_BITS_HIGH,
    RANDOM_UNIFORM,
    RANDOM_NORMAL,
    RANDOM_GUMBEL,
    RANDOM_TRUE
} base_random_kind;

/* What OP_FOURIER makes of x [.., n, .., 2], real and imaginary parts, as if zeros made the axis as
 * long as its size (0: as x has it): the sums of elements times roots exp(-2 pi i j k / size). */
enum {
    FOURIER_BACK = 1,     /* by the conjugate roots */
    FOURIER_HALF = 2,     /* the first size / 2 + 1 of them alone */
    FOURIER_REAL_IN = 4,  /* x are real numbers [.., n, ..] */
    FOURIER_REAL_OUT = 8, /* the sums' real parts alone */
    FOURIER_OVER = 16,    /* divided by the size */
    FOURIER_OVER_ROOT = 32,
    FOURIER_PRIME_MAX = 13,
    FOURIER_SIZE_MAX = 1 << 28
};

/* Of a uniform number; 0: there are none of the type. */
uint32_t base_random_bits(base_type type);

/* How close a kernel comes to the reference: trial_tolerance has the numbers. */
typedef enum base_closeness {
    CLOSE_EQUAL,
    CLOSE_ROUNDED,
    CLOSE_SUMMED,
    CLOSE_FUNCTION, /* exp and the like of devices */
    CLOSE_PRODUCT,
    CLOSE_CACHED,
    CLOSE_ATTENDED,
    CLOSE_JOINED
} base_closeness;

enum { BASE_OP_ATTRS_MAX = 4 };

typedef struct base_op_info {
    const char *name, *group, *what;
    const char *inputs, *attributes; /* kinds, a letter each */
    uint8_t n_in_min, n_in_max, n_out;
    uint16_t facts; /* OP_... */
    base_closeness closeness;
    float usual[BASE_OP_ATTRS_MAX];
} base_op_info;

extern const base_op_info base_ops[OP_COUNT];

/* Of a row's (names), by how many inputs and which attributes there are: parameters after a first
 * one, values for a call, fields of a struct. */
#define OP_INPUTS_1(a) , uint32_t a
#define OP_INPUTS_2(a, b) OP_INPUTS_1(a) OP_INPUTS_1(b)
#define OP_INPUTS_3(a, b, c) OP_INPUTS_2(a, b) OP_INPUTS_1(c)
#define OP_INPUTS_4(a, b, c, d) OP_INPUTS_2(a, b) OP_INPUTS_2(c, d)
#define OP_INPUTS_5(a, b, c, d, e) OP_INPUTS_4(a, b, c, d) OP_INPUTS_1(e)
#define OP_PARAMS_NONE()
#define OP_PARAMS_F(a) , float a
#define OP_PARAMS_U(a) , uint32_t a
#define OP_PARAMS_FU(a, b) , float a, uint32_t b
#define OP_PARAMS_UF(a, b) , uint32_t a, float b
#define OP_PARAMS_I(a) , int32_t a
#define OP_PARAMS_UUUF(a, b, c, d) , uint32_t a, uint32_t b, uint32_t c, float d
#define OP_PARAMS_FF(a, b) , float a, float b
#define OP_PARAMS_UU(a, b) , uint32_t a, uint32_t b
#define OP_PARAMS_UUU(a, b, c) , uint32_t a, uint32_t b, uint32_t c
#define OP_PARAMS_SLOTS OP_PARAMS_FU
#define OP_FIELDS_NONE() uint32_t none;
#define OP_FIELDS_F(a) float a;
#define OP_FIELDS_U(a) uint32_t a;
#define OP_FIELDS_FU(a, b) \
    float a;               \
    uint32_t b;
#define OP_FIELDS_UF(a, b) \
    uint32_t a;            \
    float b;
#define OP_FIELDS_I(a) int32_t a;
#define OP_FIELDS_UUUF(a, b, c, d) \
    uint32_t a, b, c;              \
    float d;
#define OP_FIELDS_FF(a, b) \
    float a;               \
    float b;
#define OP_FIELDS_UU(a, b) \
    uint32_t a;            \
    uint32_t b;
#define OP_FIELDS_UUU(a, b, c) uint32_t a, b, c;
#define OP_FIELDS_SLOTS(a, b)         \
    OP_FIELDS_FU(a, b) uint32_t most; \
    bool apart;
#define OP_FIELDS_JOINED()       \
    uint32_t kind, first, count; \
    const void *detail;
#define OP_LETTERS_NONE ""
#define OP_LETTERS_F "F"
#define OP_LETTERS_U "U"
#define OP_LETTERS_FU "FU"
#define OP_LETTERS_UF "UF"
#define OP_LETTERS_I "I"
#define OP_LETTERS_UUUF "UUUF"
#define OP_LETTERS_FF "FF"
#define OP_LETTERS_UU "UU"
#define OP_LETTERS_UUU "UUU"
#define OP_LETTERS_SLOTS "FU"
#define OP_LETTERS_JOINED ""
#define OP_NAMES_NONE() 0
#define OP_NAMES_F(a) a
#define OP_NAMES_U(a) a
#define OP_NAMES_FU(a, b) a, b
#define OP_NAMES_UF(a, b) a, b
#define OP_NAMES_I(a) a
#define OP_NAMES_UUUF(a, b, c, d) a, b, c, d
#define OP_NAMES_FF(a, b) a, b
#define OP_NAMES_UU(a, b) a, b
#define OP_NAMES_UUU(a, b, c) a, b, c
#define OP_NAMES_SLOTS(a, b) a, b, 0, false
#define OP_LIST(...) __VA_ARGS__ /* OP_LIST (a, b): a, b */

/* ---- views ----------------------------------------------------------------------------------- */

/* Other shapes of a tensor's memory: no work. A row: NAME, name, what its calls take (D a shape, A
 * axes, in brackets; U a number; S a number that is left out where it is 1), what it does. */
/* clang-format off */
#define BASE_VIEW_LIST(X)                                                                          \
    X(RESHAPE, reshape, "D", "the same elements in another shape; copied where strides cannot say it") \
    X(PERMUTE, permute, "A", "axes in another order")                                              \
    X(EXPAND, expand, "D", "axes of 1, and new ones in front, of any size: the same elements again") \
    X(NARROW, narrow, "UUUS", "a part of an axis: from a start, so many, every so manieth")        \
    X(FLIP, flip, "U", "an axis backwards")                                                        \
    X(DIAGONAL, diagonal, "UU", "two axes as one, the last: what has the same index along both")   \
    X(WINDOWS, windows, "UUS", "windows of an axis: their number, and a last axis of what is in each") \
    X(SQUEEZE, squeeze, "U", "without an axis of 1")                                               \
    X(UNSQUEEZE, unsqueeze, "U", "with an axis of 1 there")
/* clang-format on */

typedef enum base_view_kind {
#define X(NAME, ...) VIEW_##NAME,
    BASE_VIEW_LIST(X)
#undef X
        VIEW_COUNT
} base_view_kind;

typedef struct base_view_info {
    const char *name, *takes, *what;
} base_view_info;

extern const base_view_info base_views[VIEW_COUNT];

#endif
