/* beryl_graph.h - tensor graphs of one's own, compiled for the device that is there.
 *
 * Owns graphs without a model: tensors, operations, one compiled plan, runs. Engines and sessions
 * are in beryl.h. softmax(x times transposed w), w given once and x for each run (errors are left
 * out here; examples/graph.c has them):
 *
 *     beryl_graph *g;
 *     beryl_graph_open(NULL, &g, NULL);
 *     uint32_t n = beryl_graph_extent(g, "n", 64);                  // up to 64 rows a run
 *     beryl_dim shape[] = {{64, n}, {512, 0}};
 *     beryl_value x = beryl_graph_input(g, "x", BERYL_TYPE_F32, 2, shape);
 *     uint32_t sizes[] = {1000, 512};
 *     beryl_value w = beryl_graph_weight(g, "w", BERYL_TYPE_F32, 2, sizes, numbers, n_bytes);
 *     beryl_value y = beryl_graph_softmax(g, beryl_graph_linear(g, x, w));
 *     beryl_graph_output(g, y, "y");
 *     while (beryl_graph_compile(g, NULL) == BERYL_PENDING) {}
 *     beryl_graph_set(g, x, rows, 3 * 512 * 4, NULL);
 *     beryl_graph_run(g, (uint32_t[]){3}, 1, NULL);                 // 3 rows this time
 *     beryl_graph_wait(g, NULL);
 *     beryl_graph_read(g, y, result, 3 * 1000 * 4, NULL);
 *     beryl_graph_close(g);
 *
 * Conventions (beside those of beryl.h)
 *   Shapes   Row-major, the last dimension is contiguous. A dimension is a constant or an extent: a
 *            named size with an upper bound whose value is given for each run, or one computed from
 *            others (a + b, 2 * n, half of n rounded up). Memory is laid out for the bounds: where
 *            an extent is the first dimension, the rows of a run simply lie first.
 *   Nothing  An extent may be 0 in a run. What has no elements is not computed, and states keep
 *            what they hold; an output of no elements is read with size 0. Sums over nothing are
 *            0; argmax and topk find -1 in a row of no elements, topk with -infinity; rows from a
 *            table of no rows are 0.
 *   Building Calls that build give a value, or 0 after the first error, which sticks: no check is
 *            needed between them, beryl_graph_compile reports it. After compiling nothing can be
 *            added.
 *   Types    Pointwise operations take F32, F16, BF16, F64, I8 to I64, U8 to U32 and BOOL (a byte,
 *            0 or 1); F64 where the device has it. Others take F32, and indices I32. Weights may
 *            have any type that a GGUF file may have; quantised ones are given as a file has them,
 *            in blocks along the last dimension.
 *   Threads  A graph belongs to one thread at a time; two graphs are independent.
 */
#ifndef BERYL_GRAPH_H
#define BERYL_GRAPH_H

#include "beryl.h"

#ifdef __cplusplus
extern "C" {
#endif

/* Elements a block and bytes a block are those of GGUF. */
#define BERYL_TYPE_LIST(X) \
    X(F32)                 \
    X(F16)                 \
    X(BF16)                \
    X(Q4_0)                \
    X(Q4_1)                \
    X(Q5_0)                \
    X(Q5_1)                \
    X(Q8_0)                \
    X(Q2_K)                \
    X(Q3_K)                \
    X(Q4_K)                \
    X(Q5_K)                \
    X(Q6_K)                \
    X(IQ4_NL)              \
    X(IQ4_XS)              \
    X(MXFP4)               \
    X(NVFP4)               \
    X(I32)                 \
    X(U32)                 \
    X(IQ1_S)               \
    X(IQ1_M)               \
    X(IQ2_XXS)             \
    X(IQ2_XS)              \
    X(IQ2_S)               \
    X(IQ3_XXS)             \
    X(IQ3_S)               \
    X(TQ1_0)               \
    X(TQ2_0)               \
    X(F64)                 \
    X(I8)                  \
    X(I16)                 \
    X(I64)                 \
    X(U8)                  \
    X(U16)                 \
    X(BOOL)                \
    X(F8_E4M3)             \
    X(F8_E5M2)             \
    X(AFFINE8)             \
    X(AFFINE4)

typedef enum beryl_type {
#define X(name) BERYL_TYPE_##name,
    BERYL_TYPE_LIST(X)
#undef X
} beryl_type;

typedef struct beryl_graph beryl_graph;
typedef uint32_t beryl_value; /* a tensor of a graph; 0: none */
typedef struct beryl_dim {
    uint32_t size;   /* of a constant; of an extent its bound */
    uint32_t extent; /* from beryl_graph_extent, or as a call below gave it; 0: a constant */
} beryl_dim;

typedef struct beryl_graph_options {
    size_t size;
    const char *device; /* as in beryl_engine_options */
    /* fast: int8 activations in products with quantised weights, where the device has dot
     * products */
    beryl_precision precision;
    uint64_t memory;           /* bytes of device memory that may be used; 0: what the device has */
    beryl_allocator allocator; /* default malloc */
    beryl_log log;             /* default silent */
} beryl_graph_options;

/* Opens the device. NULL options: the defaults. */
BERYL_API beryl_status beryl_graph_open(const beryl_graph_options *options, beryl_graph **graph,
                                        beryl_error *error);
BERYL_API void beryl_graph_close(beryl_graph *graph); /* NULL is fine; waits for a run */

/* The place in the caller's text that messages about the next calls name at their end, as
 * "(file.c:12)": beryl_graph_at(g, BERYL_HERE). `file`, without its folders, is borrowed until the
 * next such call; NULL: no place. */
#define BERYL_HERE __FILE__, __LINE__
BERYL_API void beryl_graph_at(beryl_graph *g, const char *file, uint32_t line);

/* ---- tensors --------------------------------------------------------------------------------- */

/* A size that varies from run to run, from 0 to `bound`, which is not 0. At most 32, those below
 * included. Names are copied, here and below. */
BERYL_API uint32_t beryl_graph_extent(beryl_graph *g, const char *name, uint32_t bound);
/* a + b, a * b, and a / divisor rounded up. Of constants a constant; else an extent that each run
 * computes, whose bound is what the bounds give. Equal expressions are the same extent, however
 * they were made: a + a and 2 * a, half of a half and a quarter. Constants are dimensions too:
 * n + 1 is beryl_graph_dim_sum(g, (beryl_dim){64, n}, (beryl_dim){1, 0}). MISUSE: an extent of
 * another graph, a divisor of 0, a size of 0. UNSUPPORTED: a bound above 2^32 - 1, also of what
 * is divided; more than 32 extents; an expression of more than 6 terms, or of more than 4 extents
 * in one. {0, 0} after an error. */
BERYL_API beryl_dim beryl_graph_dim_sum(beryl_graph *g, beryl_dim a, beryl_dim b);
BERYL_API beryl_dim beryl_graph_dim_product(beryl_graph *g, beryl_dim a, beryl_dim b);
BERYL_API beryl_dim beryl_graph_dim_quotient(beryl_graph *g, beryl_dim a, uint32_t divisor);
/* Written before a run; of any type without blocks, up to 10 dimensions. */
BERYL_API beryl_value beryl_graph_input(beryl_graph *g, const char *name, beryl_type type,
                                        uint32_t rank, const beryl_dim *dims);
/* Never written. 1 to 10 dimensions, quantised 1 to 4. `data` is borrowed until the graph is
 * closed; `size` is what type and shape need. */
BERYL_API beryl_value beryl_graph_weight(beryl_graph *g, const char *name, beryl_type type,
                                         uint32_t rank, const uint32_t *dims, const void *data,
                                         size_t size);
/* Never written, of a plain type: `data` are the numbers, row-major, and are copied. 0 to 10
 * dimensions, none of size 0. F32, and F16 with rows of whole words, stand wherever a weight
 * may, others wherever an input may; these are sent to the device with every run. */
BERYL_API beryl_value beryl_graph_constant(beryl_graph *g, beryl_type type, uint32_t rank,
                                           const uint32_t *dims, const void *data);
/* Kept from run to run, zero at first; F32, I32, I16, and as caches F16 and Q8_0. As many
 * dimensions as weights. */
BERYL_API beryl_value beryl_graph_state(beryl_graph *g, const char *name, beryl_type type,
                                        uint32_t rank, const uint32_t *dims);
/* Can be read after a run: any value; a view, an input and what is stored are copied for it. At
 * most 64. */
BERYL_API void beryl_graph_output(beryl_graph *g, beryl_value value, const char *name);
/* As the graph knows it. false: no such value. dims: up to 10. */
BERYL_API bool beryl_graph_shape(const beryl_graph *g, beryl_value value, beryl_type *type,
                                 uint32_t *rank, beryl_dim *dims);

/* Views: no work, no memory, of inputs, results, weights, states and other views. Pointwise
 * operations, norms, softmax and sums along axes read any of them where it lies. An operation that
 * cannot read it so (a product whose rows are not contiguous) reads a copy, which is made for it.
 * Quantised types: as long as rows stay whole. */
/* To a shape with the same elements in every run. Dimensions are split and joined where all but the
 * outermost of them are constants: [n, 3, d] is [3 * n, d]; [n, m] is not [n * m], since the rows
 * of a run lie as far apart as m's bound says. A view that lies so that strides cannot say it is
 * copied first. */
BERYL_API beryl_value beryl_graph_reshape(beryl_graph *g, beryl_value x, uint32_t rank,
                                          const beryl_dim *dims);
/* Axes in another order, axes [rank]: axis i of the result is axis axes[i] of x. */
BERYL_API beryl_value beryl_graph_permute(beryl_graph *g, beryl_value x, uint32_t rank,
                                          const uint32_t *axes);
/* The same elements again and again: axes of 1, and axes in front that x has not, at any size. */
BERYL_API beryl_value beryl_graph_expand(beryl_graph *g, beryl_value x, uint32_t rank,
                                         const beryl_dim *dims);
/* `size` elements of a constant axis: start, start + step, start + 2 * step ... */
BERYL_API beryl_value beryl_graph_narrow(beryl_graph *g, beryl_value x, uint32_t axis,
                                         uint32_t start, uint32_t size, uint32_t step);
/* A constant axis in n parts of one size. parts [n]: zeros after an error. */
BERYL_API void beryl_graph_split(beryl_graph *g, beryl_value x, uint32_t axis, uint32_t n,
                                 beryl_value *parts);
BERYL_API beryl_value beryl_graph_flip(beryl_graph *g, beryl_value x,
                                       uint32_t axis); /* a constant axis backwards */
/* The elements with the same index along both axes: as the last axis, in place of the two. Axes of
 * constants, of which the smaller counts, or of one extent. */
BERYL_API beryl_value beryl_graph_diagonal(beryl_graph *g, beryl_value x, uint32_t axis,
                                           uint32_t other);
/* Windows of `size` elements of an axis, one every `step` elements, as far as they are whole; they
 * may overlap. The axis becomes their number, and a last axis what is in each: [n, 9] with size 3
 * and step 2 is [n, 4, 3]. An axis that a run sizes has to be padded by size - 1 at least. */
BERYL_API beryl_value beryl_graph_windows(beryl_graph *g, beryl_value x, uint32_t axis,
                                          uint32_t size, uint32_t step);
/* drops an axis of size 1 */
BERYL_API beryl_value beryl_graph_squeeze(beryl_graph *g, beryl_value x, uint32_t axis);
/* an axis of size 1, as that axis of the result */
BERYL_API beryl_value beryl_graph_unsqueeze(beryl_graph *g, beryl_value x, uint32_t axis);

/* ---- operations ------------------------------------------------------------------------------ */

/* Indices, slots and positions may be any numbers: those out of range never reach memory outside
 * a tensor, and mean what is said with each operation. */

/* table [r, d] or [r], ids I32 [n] or [n, m] -> [n, d] and so on, times `factor`. An id out of
 * range is 0. */
BERYL_API beryl_value beryl_graph_gather_rows(beryl_graph *g, beryl_value table, beryl_value ids,
                                              float factor);
/* By index along an axis: x of any type without blocks, indices I32 or I64. An index below 0, or
 * from the size of the axis on, is of no element: what is gathered there is 0, what is scattered
 * there is left out. Indices do not count from the end.
 * gather: indices of x's rank, along other axes as long as x or shorter (an extent: the same) -> an
 * element for each index, the one with that index along the axis and the same place elsewhere.
 * index_select: ids of any rank take the place of the axis: [2, r, 3] by [n, m] along 1 is
 * [2, n, m, 3]. */
BERYL_API beryl_value beryl_graph_gather(beryl_graph *g, beryl_value x, beryl_value indices,
                                         uint32_t axis);
BERYL_API beryl_value beryl_graph_index_select(beryl_graph *g, beryl_value x, beryl_value ids,
                                               uint32_t axis);
/* x, but with updates at the places from which gather would read: updates of x's type and the shape
 * of the indices. Where several go to one place: scatter takes the one with the highest place along
 * the axis; scatter_add (numbers) adds all to what x has, F16 and BF16 in F32, integers wrap; both
 * give the same bits in every run. index_add: ids [n], updates as x but n along the axis: rows of a
 * table, with axis 0. UNSUPPORTED: 2^31 indices or 2^32 updates and more. */
BERYL_API beryl_value beryl_graph_scatter(beryl_graph *g, beryl_value x, beryl_value indices,
                                          beryl_value updates, uint32_t axis);
BERYL_API beryl_value beryl_graph_scatter_add(beryl_graph *g, beryl_value x, beryl_value indices,
                                              beryl_value updates, uint32_t axis);
BERYL_API beryl_value beryl_graph_index_add(beryl_graph *g, beryl_value x, beryl_value ids,
                                            beryl_value updates, uint32_t axis);
/* ids I32 or I64 [..] -> BOOL [.., depth]: true where the place along the last axis is the id. */
BERYL_API beryl_value beryl_graph_one_hot(beryl_graph *g, beryl_value ids, uint32_t depth);
/* mask, BOOL, broadcast against x ? value, as cast to x's type : x */
BERYL_API beryl_value beryl_graph_masked_fill(beryl_graph *g, beryl_value x, beryl_value mask,
                                              float value);
/* Places of what is not 0 (NaN is not), x of at least one axis, in the order of its elements: I32
 * [as many as x has at most, rank], and I32 [1], how many there are. Behind them the list is -1. */
BERYL_API beryl_value beryl_graph_nonzero(beryl_graph *g, beryl_value x, beryl_value *count);
/* a view without gaps */
BERYL_API beryl_value beryl_graph_copy(beryl_graph *g, beryl_value x);
/* Elements from other places: exact, and read by what takes them where they lie, in the same
 * dispatch. */
/* `before` elements of `value` before an axis, `after` after it */
BERYL_API beryl_value beryl_graph_pad(beryl_graph *g, beryl_value x, uint32_t axis, uint32_t before,
                                      uint32_t after, float value);
/* x [n], joined along an axis; other dimensions are the same. stack: of one shape,
 * along a new axis. */
BERYL_API beryl_value beryl_graph_concat(beryl_graph *g, uint32_t n, const beryl_value *x,
                                         uint32_t axis);
BERYL_API beryl_value beryl_graph_stack(beryl_graph *g, uint32_t n, const beryl_value *x,
                                        uint32_t axis);
/* Element i of the result is element i - by, modulo the size of the axis, a constant. */
BERYL_API beryl_value beryl_graph_roll(beryl_graph *g, beryl_value x, uint32_t axis, uint32_t by);
/* All of an axis `times` times, and each element of it `times` times: copies. */
BERYL_API beryl_value beryl_graph_tile(beryl_graph *g, beryl_value x, uint32_t axis,
                                       uint32_t times);
BERYL_API beryl_value beryl_graph_repeat(beryl_graph *g, beryl_value x, uint32_t axis,
                                         uint32_t times);
/* How an axis [size] becomes one of another size: element i is that at */
typedef enum beryl_resize {
    BERYL_RESIZE_NEAREST,        /* floor(i * size / new size) */
    BERYL_RESIZE_NEAREST_MIDDLE, /* floor((i + 1/2) * size / new size) */
    BERYL_RESIZE_LINEAR,         /* (i + 1/2) * size / new size - 1/2: between two, at ends one */
    BERYL_RESIZE_LINEAR_CORNERS, /* i * (size - 1) / (new size - 1): ends on ends */
    /* the mean from floor(i * size / new size) to before ceil((i + 1) * size / new size) */
    BERYL_RESIZE_MEAN,
    BERYL_RESIZE_COUNT
} beryl_resize;
/* A constant axis of x at another size, by a beryl_resize: pictures along each of their axes. Of
 * integers and BOOL the nearest alone. */
BERYL_API beryl_value beryl_graph_resize(beryl_graph *g, beryl_value x, uint32_t axis,
                                         uint32_t size, uint32_t how);
/* I32 of x's shape: where each element is along an axis, from 0 on. x is not read. */
BERYL_API beryl_value beryl_graph_iota(beryl_graph *g, beryl_value x, uint32_t axis);
/* Of the last two axes what has column - row up to (tril) or from (triu) `diagonal` on, else 0. */
BERYL_API beryl_value beryl_graph_tril(beryl_graph *g, beryl_value x, int32_t diagonal);
BERYL_API beryl_value beryl_graph_triu(beryl_graph *g, beryl_value x, int32_t diagonal);
/* Pointwise. Inputs are broadcast against each other from the right: sizes are the same or 1, or
 * leading axes are missing. They have one type, which the result has too; others are cast first
 * (UNSUPPORTED). F16 and BF16 are computed in F32.
 * Numbers: floats and integers. Integers wrap; divided by 0 they are 0. */
BERYL_API beryl_value beryl_graph_add(beryl_graph *g, beryl_value a, beryl_value b);
BERYL_API beryl_value beryl_graph_sub(beryl_graph *g, beryl_value a, beryl_value b);
BERYL_API beryl_value beryl_graph_mul(beryl_graph *g, beryl_value a, beryl_value b);
BERYL_API beryl_value beryl_graph_div(beryl_graph *g, beryl_value a, beryl_value b);
BERYL_API beryl_value beryl_graph_neg(beryl_graph *g, beryl_value x);
BERYL_API beryl_value beryl_graph_abs(beryl_graph *g, beryl_value x);
BERYL_API beryl_value beryl_graph_square(beryl_graph *g, beryl_value x);
BERYL_API beryl_value beryl_graph_sign(beryl_graph *g, beryl_value x);
BERYL_API beryl_value beryl_graph_relu(beryl_graph *g, beryl_value x);
/* The rest of a / b, with b's sign (mod) or a's (fmod). */
BERYL_API beryl_value beryl_graph_mod(beryl_graph *g, beryl_value a, beryl_value b);
BERYL_API beryl_value beryl_graph_fmod(beryl_graph *g, beryl_value a, beryl_value b);
/* NaN where one is. */
BERYL_API beryl_value beryl_graph_max(beryl_graph *g, beryl_value a, beryl_value b);
BERYL_API beryl_value beryl_graph_min(beryl_graph *g, beryl_value a, beryl_value b);
/* x, but at least `low` and at most `high`; NaN stays. */
BERYL_API beryl_value beryl_graph_clamp(beryl_graph *g, beryl_value x, float low, float high);
/* -> BOOL. NaN equals nothing and is neither less nor greater. */
BERYL_API beryl_value beryl_graph_eq(beryl_graph *g, beryl_value a, beryl_value b);
BERYL_API beryl_value beryl_graph_ne(beryl_graph *g, beryl_value a, beryl_value b);
BERYL_API beryl_value beryl_graph_lt(beryl_graph *g, beryl_value a, beryl_value b);
BERYL_API beryl_value beryl_graph_le(beryl_graph *g, beryl_value a, beryl_value b);
BERYL_API beryl_value beryl_graph_gt(beryl_graph *g, beryl_value a, beryl_value b);
BERYL_API beryl_value beryl_graph_ge(beryl_graph *g, beryl_value a, beryl_value b);
/* -> BOOL: x is 0; x is not a number (floats). */
BERYL_API beryl_value beryl_graph_logical_not(beryl_graph *g, beryl_value x);
BERYL_API beryl_value beryl_graph_is_nan(beryl_graph *g, beryl_value x);
/* condition, BOOL ? a : b, of any type. */
BERYL_API beryl_value beryl_graph_where(beryl_graph *g, beryl_value condition, beryl_value a,
                                        beryl_value b);
/* x as another type. What is out of an integer's range saturates, NaN becomes 0; wrap: integers
 * keep their low bits. BOOL is 0 or 1; to BOOL: x is not 0. */
BERYL_API beryl_value beryl_graph_cast(beryl_graph *g, beryl_value x, beryl_type type, bool wrap);
/* Integers, and of BOOL logical. */
BERYL_API beryl_value beryl_graph_bit_and(beryl_graph *g, beryl_value a, beryl_value b);
BERYL_API beryl_value beryl_graph_bit_or(beryl_graph *g, beryl_value a, beryl_value b);
BERYL_API beryl_value beryl_graph_bit_xor(beryl_graph *g, beryl_value a, beryl_value b);
BERYL_API beryl_value beryl_graph_bit_not(beryl_graph *g, beryl_value x);
/* Integers: a shifted by b modulo its bits; to the right signed ones copy their sign. */
BERYL_API beryl_value beryl_graph_shl(beryl_graph *g, beryl_value a, beryl_value b);
BERYL_API beryl_value beryl_graph_shr(beryl_graph *g, beryl_value a, beryl_value b);
/* Floats. */
BERYL_API beryl_value beryl_graph_scale(beryl_graph *g, beryl_value x, float factor);
BERYL_API beryl_value beryl_graph_add_scalar(beryl_graph *g, beryl_value x, float number);
BERYL_API beryl_value beryl_graph_pow(beryl_graph *g, beryl_value a, beryl_value b);
BERYL_API beryl_value beryl_graph_reciprocal(beryl_graph *g, beryl_value x);
BERYL_API beryl_value beryl_graph_sqrt(beryl_graph *g, beryl_value x);
BERYL_API beryl_value beryl_graph_rsqrt(beryl_graph *g, beryl_value x);
BERYL_API beryl_value beryl_graph_exp(beryl_graph *g, beryl_value x);
BERYL_API beryl_value beryl_graph_exp2(beryl_graph *g, beryl_value x);
BERYL_API beryl_value beryl_graph_log(beryl_graph *g, beryl_value x);
BERYL_API beryl_value beryl_graph_log2(beryl_graph *g, beryl_value x);
/* To whole numbers; round: ties to even. */
BERYL_API beryl_value beryl_graph_round(beryl_graph *g, beryl_value x);
BERYL_API beryl_value beryl_graph_floor(beryl_graph *g, beryl_value x);
BERYL_API beryl_value beryl_graph_ceil(beryl_graph *g, beryl_value x);
BERYL_API beryl_value beryl_graph_trunc(beryl_graph *g, beryl_value x);
/* atan2: the angle of the point (b, a). */
BERYL_API beryl_value beryl_graph_sin(beryl_graph *g, beryl_value x);
BERYL_API beryl_value beryl_graph_cos(beryl_graph *g, beryl_value x);
BERYL_API beryl_value beryl_graph_tan(beryl_graph *g, beryl_value x);
BERYL_API beryl_value beryl_graph_asin(beryl_graph *g, beryl_value x);
BERYL_API beryl_value beryl_graph_acos(beryl_graph *g, beryl_value x);
BERYL_API beryl_value beryl_graph_atan(beryl_graph *g, beryl_value x);
BERYL_API beryl_value beryl_graph_atan2(beryl_graph *g, beryl_value a, beryl_value b);
BERYL_API beryl_value beryl_graph_sinh(beryl_graph *g, beryl_value x);
BERYL_API beryl_value beryl_graph_cosh(beryl_graph *g, beryl_value x);
BERYL_API beryl_value beryl_graph_tanh(beryl_graph *g, beryl_value x);
BERYL_API beryl_value beryl_graph_erf(beryl_graph *g, beryl_value x);
BERYL_API beryl_value beryl_graph_erfinv(beryl_graph *g, beryl_value x);
/* Activations. gelu_erf: the exact form; quick_gelu: x * sigmoid(1.702 x); mish: x times
 * tanh(softplus(x)); elu: below 0 alpha * (exp(x) - 1); hardswish: x * clamp(x + 3, 0, 6) / 6;
 * softcap: cap * tanh(x / cap). */
BERYL_API beryl_value beryl_graph_sigmoid(beryl_graph *g, beryl_value x);
BERYL_API beryl_value beryl_graph_silu(beryl_graph *g, beryl_value x);
BERYL_API beryl_value beryl_graph_gelu_erf(beryl_graph *g, beryl_value x);
BERYL_API beryl_value beryl_graph_gelu_tanh(beryl_graph *g, beryl_value x);
BERYL_API beryl_value beryl_graph_quick_gelu(beryl_graph *g, beryl_value x);
BERYL_API beryl_value beryl_graph_softplus(beryl_graph *g, beryl_value x);
BERYL_API beryl_value beryl_graph_mish(beryl_graph *g, beryl_value x);
BERYL_API beryl_value beryl_graph_elu(beryl_graph *g, beryl_value x, float alpha);
BERYL_API beryl_value beryl_graph_selu(beryl_graph *g, beryl_value x);
BERYL_API beryl_value beryl_graph_leaky_relu(beryl_graph *g, beryl_value x, float slope);
BERYL_API beryl_value beryl_graph_hardswish(beryl_graph *g, beryl_value x);
BERYL_API beryl_value beryl_graph_softcap(beryl_graph *g, beryl_value x, float cap);
/* The activation of gate times up; glu: a * sigmoid(b). */
BERYL_API beryl_value beryl_graph_geglu(beryl_graph *g, beryl_value gate, beryl_value up);
BERYL_API beryl_value beryl_graph_quick_geglu(beryl_graph *g, beryl_value gate, beryl_value up);
BERYL_API beryl_value beryl_graph_swiglu(beryl_graph *g, beryl_value gate, beryl_value up);
BERYL_API beryl_value beryl_graph_glu(beryl_graph *g, beryl_value a, beryl_value b);
/* The same of the halves of a constant axis of x, the first one as the first operand. */
typedef enum beryl_gate {
    BERYL_GATE_GLU,
    BERYL_GATE_SWIGLU,
    BERYL_GATE_GEGLU,
    BERYL_GATE_QUICK_GEGLU
} beryl_gate;
BERYL_API beryl_value beryl_graph_gated(beryl_graph *g, beryl_value x, uint32_t axis,
                                        beryl_gate gate);
/* Reductions over axes [n_axes], over all where there are none given. keep: they stay, with size 1.
 * Floats are summed in F32 (F64 in F64); integers wrap: cast them first where that is too small.
 * amax and amin: NaN where there is one, and of nothing the smallest and largest number. any and
 * all take and give BOOL. norm: the root of the sum of squares; logsumexp: log(sum(exp(x))). */
BERYL_API beryl_value beryl_graph_sum(beryl_graph *g, beryl_value x, const uint32_t *axes,
                                      uint32_t n_axes, bool keep);
BERYL_API beryl_value beryl_graph_mean(beryl_graph *g, beryl_value x, const uint32_t *axes,
                                       uint32_t n_axes, bool keep);
BERYL_API beryl_value beryl_graph_prod(beryl_graph *g, beryl_value x, const uint32_t *axes,
                                       uint32_t n_axes, bool keep);
BERYL_API beryl_value beryl_graph_amax(beryl_graph *g, beryl_value x, const uint32_t *axes,
                                       uint32_t n_axes, bool keep);
BERYL_API beryl_value beryl_graph_amin(beryl_graph *g, beryl_value x, const uint32_t *axes,
                                       uint32_t n_axes, bool keep);
BERYL_API beryl_value beryl_graph_any(beryl_graph *g, beryl_value x, const uint32_t *axes,
                                      uint32_t n_axes, bool keep);
BERYL_API beryl_value beryl_graph_all(beryl_graph *g, beryl_value x, const uint32_t *axes,
                                      uint32_t n_axes, bool keep);
BERYL_API beryl_value beryl_graph_norm(beryl_graph *g, beryl_value x, const uint32_t *axes,
                                       uint32_t n_axes, bool keep);
BERYL_API beryl_value beryl_graph_logsumexp(beryl_graph *g, beryl_value x, const uint32_t *axes,
                                            uint32_t n_axes, bool keep);
/* Divided by how many there are less the correction (1: of a sample). */
BERYL_API beryl_value beryl_graph_var(beryl_graph *g, beryl_value x, const uint32_t *axes,
                                      uint32_t n_axes, uint32_t correction, bool keep);
BERYL_API beryl_value beryl_graph_std(beryl_graph *g, beryl_value x, const uint32_t *axes,
                                      uint32_t n_axes, uint32_t correction, bool keep);
/* Along an axis: x less its logsumexp; x over sqrt(sum of squares + eps). */
BERYL_API beryl_value beryl_graph_log_softmax(beryl_graph *g, beryl_value x, uint32_t axis);
BERYL_API beryl_value beryl_graph_l2_norm(beryl_graph *g, beryl_value x, uint32_t axis, float eps);
/* Over the last axis. */
/* weight [d], 0: none */
BERYL_API beryl_value beryl_graph_rms_norm(beryl_graph *g, beryl_value x, beryl_value weight,
                                           float eps);
/* (x - mean) / sqrt(variance + eps) * weight + bias, both [d]; bias, or both: 0: none */
BERYL_API beryl_value beryl_graph_layer_norm(beryl_graph *g, beryl_value x, beryl_value weight,
                                             beryl_value bias, float eps);
BERYL_API beryl_value beryl_graph_softmax(beryl_graph *g, beryl_value x);
/* Over any axis; a view where that is not the last. */
BERYL_API beryl_value beryl_graph_softmax_along(beryl_graph *g, beryl_value x, uint32_t axis);
/* x [n, c, ..]: (x - mean) / sqrt(variance + eps) * weight + bias, each [c] of x's type or, of
 * halves, F32; weight, bias: 0: none. training: mean and variance are x's own over all axes but c,
 * by their number (no correction), and given in x's type where the pointers are not NULL. */
BERYL_API beryl_value beryl_graph_batch_norm(beryl_graph *g, beryl_value x, beryl_value mean,
                                             beryl_value variance, beryl_value weight,
                                             beryl_value bias, float eps);
BERYL_API beryl_value beryl_graph_batch_norm_training(beryl_graph *g, beryl_value x,
                                                      beryl_value weight, beryl_value bias,
                                                      float eps, beryl_value *mean,
                                                      beryl_value *variance);
/* The sum of the squares of all elements of x [n], floats of any shapes -> []: of halves in F32. */
BERYL_API beryl_value beryl_graph_sum_of_squares(beryl_graph *g, uint32_t n, const beryl_value *x);
/* x [n, c, ..]: as layer_norm, over each of `groups` groups of c / groups channels and all that
 * follows them; weight and bias [c], or 0. */
BERYL_API beryl_value beryl_graph_group_norm(beryl_graph *g, beryl_value x, beryl_value weight,
                                             beryl_value bias, uint32_t groups, float eps);
/* Along any axis: each element with all before it. */
BERYL_API beryl_value beryl_graph_cumsum(beryl_graph *g, beryl_value x, uint32_t axis);
BERYL_API beryl_value beryl_graph_cumprod(beryl_graph *g, beryl_value x, uint32_t axis);
BERYL_API beryl_value beryl_graph_cummax(beryl_graph *g, beryl_value x, uint32_t axis);
BERYL_API beryl_value beryl_graph_cummin(beryl_graph *g, beryl_value x, uint32_t axis);
/* One of them with all options: exclusive: with all before it alone, of the first 0, 1, or the
 * infinity that loses; backwards: from the end. The axis of either is a constant. */
typedef enum beryl_scan {
    BERYL_SCAN_SUM,
    BERYL_SCAN_PROD,
    BERYL_SCAN_MAX,
    BERYL_SCAN_MIN
} beryl_scan;
BERYL_API beryl_value beryl_graph_scan(beryl_graph *g, beryl_value x, uint32_t axis,
                                       beryl_scan scan, bool exclusive, bool backwards);
/* Index, I32, of the largest or smallest along an axis, of any numbers, or of a NaN if there is
 * one; ties: the lowest index; of no elements: -1. keep: the axis stays, with size 1. */
BERYL_API beryl_value beryl_graph_argmax(beryl_graph *g, beryl_value x, uint32_t axis, bool keep);
BERYL_API beryl_value beryl_graph_argmin(beryl_graph *g, beryl_value x, uint32_t axis, bool keep);
/* The elements along an axis, of any length and any numbers, rising or falling, and the indices I32
 * that they had (NULL: not wanted). Ties keep their order, 0 and -0 are alike, NaN is larger than
 * all numbers. argsort: the indices alone. UNSUPPORTED: more than 2^30 along the axis. */
BERYL_API beryl_value beryl_graph_sort(beryl_graph *g, beryl_value x, uint32_t axis,
                                       bool descending, beryl_value *indices);
BERYL_API beryl_value beryl_graph_argsort(beryl_graph *g, beryl_value x, uint32_t axis,
                                          bool descending);
/* The k largest along an axis of any length, falling, and their indices I32 (NULL: not wanted): the
 * axis has size k. Ties: the lower index first; NaN counts as -infinity. An axis that a run sizes
 * has to be the last of F32 [n, m]: where it is shorter than k, -infinity and -1 follow its
 * last. MISUSE: k is 0 or more than the axis has. */
BERYL_API beryl_value beryl_graph_topk(beryl_graph *g, beryl_value x, uint32_t k, uint32_t axis,
                                       beryl_value *indices);
/* [n, u, d], [n, u] -> [n, d] */
BERYL_API beryl_value beryl_graph_weighted_sum(beryl_graph *g, beryl_value x, beryl_value weights);
/* Products of numbers of one type, summed in F32 (F64 in F64); integers wrap. Views are read where
 * they lie. */
/* a [.., m, k] times b [.., k, n] -> [.., m, n]; transposed: a [.., k, m], b [.., n, k]. Axes in
 * front are broadcast. a or b may be one vector [k]: the result has no m, or no n. */
BERYL_API beryl_value beryl_graph_matmul(beryl_graph *g, beryl_value a, beryl_value b,
                                         bool transpose_a, bool transpose_b);
/* "bij,bjk->bik": a letter for each axis of x [n], n up to 8, and of the result; axes of one letter
 * go together, those that the result has not are summed. */
BERYL_API beryl_value beryl_graph_einsum(beryl_graph *g, const char *letters, uint32_t n,
                                         const beryl_value *x);
/* Windows along an axis, of `size` elements `dilation` from each other (1: side by side), each
 * `stride` after the one before; so many elements are put before and after the axis. */
typedef struct beryl_window {
    uint32_t size, stride, dilation, pad_before, pad_after;
} beryl_window;
/* x [n, c, in..] with n_axis (1 to 3) axes after c, weight [out, c / groups, sizes..] -> [n, out,
 * ..]. windows [n_axis]: size is the weight's, whatever it says; around x lie zeros. */
BERYL_API beryl_value beryl_graph_conv(beryl_graph *g, beryl_value x, beryl_value weight,
                                       uint32_t n_axis, const beryl_window *windows,
                                       uint32_t groups);
/* The largest and the mean of each window; means count zeros around x. */
BERYL_API beryl_value beryl_graph_max_pool(beryl_graph *g, beryl_value x, uint32_t n_axis,
                                           const beryl_window *windows);
BERYL_API beryl_value beryl_graph_avg_pool(beryl_graph *g, beryl_value x, uint32_t n_axis,
                                           const beryl_window *windows);
/* Pools with all their options; NULL: the largest. */
typedef struct beryl_pool {
    bool mean;    /* in place of the largest */
    bool partial; /* windows that begin before the end may reach beyond it (ceil mode) */
    bool inside;  /* means count elements of x alone, not the zeros around it */
} beryl_pool;
BERYL_API beryl_value beryl_graph_pool(beryl_graph *g, beryl_value x, uint32_t n_axis,
                                       const beryl_window *windows, const beryl_pool *how);
/* Means of parts of axes, sizes [n_axis] parts of each, from floor(i * in / size) to before
 * ceil((i + 1) * in / size). */
BERYL_API beryl_value beryl_graph_adaptive_avg_pool(beryl_graph *g, beryl_value x, uint32_t n_axis,
                                                    const uint32_t *sizes);
/* x [n, c, in..], weight [c, out / groups, sizes..] -> [n, out, ..]: the gradient of a convolution
 * with that weight. Element i of an axis reaches from i * stride - pad_before on; pad_after: cut
 * off at the end; more [n_axis], NULL: none: further elements after it. in..: constants. */
BERYL_API beryl_value beryl_graph_conv_transpose(beryl_graph *g, beryl_value x, beryl_value weight,
                                                 uint32_t n_axis, const beryl_window *windows,
                                                 const uint32_t *more, uint32_t groups);
/* What is in each window, in memory: [n, c * sizes.., windows..]. A convolution needs none. */
BERYL_API beryl_value beryl_graph_im2col(beryl_graph *g, beryl_value x, uint32_t n_axis,
                                         const beryl_window *windows);
/* Random numbers by Threefry-2x32-20: an element's hang on the key, U32 [2], the stream and its
 * place as the bounds say, and on nothing else. Draws with one key take different streams; a key
 * that is an input makes other numbers each run. A key of a seed, the same in all runs: */
BERYL_API beryl_value beryl_graph_key(beryl_graph *g, uint64_t seed);
/* U32, any of them */
BERYL_API beryl_value beryl_graph_random_bits(beryl_graph *g, beryl_value key, uint32_t stream,
                                              uint32_t rank, const beryl_dim *dims);
/* F32, F16, BF16. From 0 to 1: multiples of 2^-24, 2^-11, 2^-8 below 1, the same bits on every
 * device; else these of F32 times (high - low) plus low, which may be rounded to high. */
BERYL_API beryl_value beryl_graph_random_uniform(beryl_graph *g, beryl_value key, uint32_t stream,
                                                 beryl_type type, float low, float high,
                                                 uint32_t rank, const beryl_dim *dims);
/* F32, F16, BF16: with mean 0 and deviation 1 within 1e-6 of the exact ones, relative above 1 */
BERYL_API beryl_value beryl_graph_random_normal(beryl_graph *g, beryl_value key, uint32_t stream,
                                                beryl_type type, float mean, float deviation,
                                                uint32_t rank, const beryl_dim *dims);
/* BOOL: is the uniform number below `chance`? */
BERYL_API beryl_value beryl_graph_bernoulli(beryl_graph *g, beryl_value key, uint32_t stream,
                                            float chance, uint32_t rank, const beryl_dim *dims);
/* logits [n, m] F32 -> I32 [n]: an index of each row with the probability that softmax says */
BERYL_API beryl_value beryl_graph_categorical(beryl_graph *g, beryl_value key, uint32_t stream,
                                              beryl_value logits);
/* First weights [out, in, ..] of a layer: of deviation gain * sqrt(2 / (fan_in + fan_out)) (xavier)
 * or gain / sqrt(fan_in) (kaiming), normal or uniform; fan_in: in times all that follows. */
BERYL_API beryl_value beryl_graph_xavier_uniform(beryl_graph *g, beryl_value key, uint32_t stream,
                                                 beryl_type type, float gain, uint32_t rank,
                                                 const beryl_dim *dims);
BERYL_API beryl_value beryl_graph_xavier_normal(beryl_graph *g, beryl_value key, uint32_t stream,
                                                beryl_type type, float gain, uint32_t rank,
                                                const beryl_dim *dims);
BERYL_API beryl_value beryl_graph_kaiming_uniform(beryl_graph *g, beryl_value key, uint32_t stream,
                                                  beryl_type type, float gain, uint32_t rank,
                                                  const beryl_dim *dims);
BERYL_API beryl_value beryl_graph_kaiming_normal(beryl_graph *g, beryl_value key, uint32_t stream,
                                                 beryl_type type, float gain, uint32_t rank,
                                                 const beryl_dim *dims);
/* Fourier transforms along an axis of any constant length n; floats, F16 and BF16 computed in F32.
 * Complex numbers are a last axis of 2, real and imaginary parts. X[k] is the sum of x[t]
 * exp(-2 pi i k t / n), on the way back of X[k] exp(2 pi i k t / n). The result may be a view.
 * BACKWARD: divided by n on the way back; FORWARD: forward; ORTHO: by the root of n both ways. */
typedef enum beryl_fft_norm {
    BERYL_FFT_BACKWARD,
    BERYL_FFT_FORWARD,
    BERYL_FFT_ORTHO
} beryl_fft_norm;
/* x [.., n, .., 2] -> the same shape */
BERYL_API beryl_value beryl_graph_fft(beryl_graph *g, beryl_value x, uint32_t axis, bool inverse,
                                      beryl_fft_norm norm);
/* x [.., n, ..], real -> the first half: [.., n / 2 + 1, .., 2] */
BERYL_API beryl_value beryl_graph_rfft(beryl_graph *g, beryl_value x, uint32_t axis,
                                       beryl_fft_norm norm);
/* and back: x [.., n / 2 + 1, .., 2] -> [.., n, ..], real; the imaginary parts of what is its own
 * conjugate count as 0 */
BERYL_API beryl_value beryl_graph_irfft(beryl_graph *g, beryl_value x, uint32_t axis, uint32_t n,
                                        beryl_fft_norm norm);
/* Spectra of parts: `size` elements of the last axis of x [.., n], each part `step` after the one
 * before, as far as they are whole, times a window [size] (0: none), by rfft: -> [.., parts,
 * size / 2 + 1, 2]. istft: the signal of them, [.., (parts - 1) * step + size], divided by the sum
 * of squared windows. hann: 0.5 - 0.5 * cos(2 pi i / size), F32 [size]. */
BERYL_API beryl_value beryl_graph_hann(beryl_graph *g, uint32_t size);
BERYL_API beryl_value beryl_graph_stft(beryl_graph *g, beryl_value x, beryl_value window,
                                       uint32_t size, uint32_t step);
BERYL_API beryl_value beryl_graph_istft(beryl_graph *g, beryl_value x, beryl_value window,
                                        uint32_t size, uint32_t step);
/* Welch's power spectrum of x [.., n], `rate` samples a second: density at size / 2 + 1
 * frequencies of a second, one side for both; parts as of stft, each less its mean. */
BERYL_API beryl_value beryl_graph_welch(beryl_graph *g, beryl_value x, beryl_value window,
                                        uint32_t size, uint32_t step, float rate);
/* x [n, m] F32, not below 0 -> the k largest peaks [n, k], falling, and their indices I32 [n, k]:
 * above the element before and not below the one after; the ends are none. 0 where there are
 * fewer. */
BERYL_API beryl_value beryl_graph_peaks(beryl_graph *g, beryl_value x, uint32_t k,
                                        beryl_value *indices);
/* Points are rows, floats. EUCLID: root of SQUARED, the sum of squared differences; of more than 32
 * coordinates from a product of matrices, which is near the squares of the points' sizes to 7
 * digits. COSINE: 1 less the cosine of the angle; of a zero point 1. */
typedef enum beryl_distance {
    BERYL_DISTANCE_EUCLID,
    BERYL_DISTANCE_SQUARED,
    BERYL_DISTANCE_COSINE
} beryl_distance;
/* a [n, d], b [m, d] -> [n, m] */
BERYL_API beryl_value beryl_graph_pairwise_distance(beryl_graph *g, beryl_value a, beryl_value b,
                                                    beryl_distance kind);
/* x [m, d], queries [n, d], F32 -> distances to the k nearest of x [n, k], rising, and their
 * indices I32 [n, k]; ties: the lower index first */
BERYL_API beryl_value beryl_graph_knn(beryl_graph *g, beryl_value x, beryl_value queries,
                                      uint32_t k, beryl_distance kind, beryl_value *indices);
/* UMAP's fuzzy graph: of what knn gives of x and itself, [n, k] with k from 2 on, n constant, the
 * symmetric weights [n, n] of pairs, 0 to 1. Of row i the weight of index j is exp(-(distance -
 * rho) / sigma), 1 where that is above 1, 0 of i itself; rho: the smallest distance above 0; sigma:
 * such that all but the first sum to log2(k), at least a thousandth of the row's mean distance (of
 * all, where rho is 0). Pairs: a + b - a b of both directions. */
BERYL_API beryl_value beryl_graph_umap_weights(beryl_graph *g, beryl_value distances,
                                               beryl_value indices);
/* Attention without a cache. q [.., h, n, d], k [.., g, m, d], v [.., g, m, e] of F32, F16 or BF16
 * -> [.., h, n, e]: softmax(cap(scale * q k^T) + mask) v, computed in F32; h is a multiple of g,
 * query head i reads head i * g / h. Axes in front are the same; [.., n, h, d] is a permute.
 * mask, 0: none: broadcast against [.., h, n, m]: BOOL says what is seen, floats are added. Rows
 * that see nothing by place or by BOOL are 0. Without mask and cap, with d = e a multiple of 8 up
 * to 512 and constant axes in front it is one operation, whose memory does not grow with n * m.
 * Else the scores are in memory: F32, h * n * m. */
typedef struct beryl_sdpa { /* all 0 (or NULL) is usual */
    float scale;            /* 0: 1 / sqrt(d) */
    float cap;              /* scores become cap * tanh(score / cap); 0: none */
    bool causal;            /* row i sees columns up to first + i */
    uint32_t window;        /* and from first + i - window + 1 on; 0: all */
    int32_t first;          /* the place of row 0 among the columns */
} beryl_sdpa;
BERYL_API beryl_value beryl_graph_sdpa(beryl_graph *g, beryl_value q, beryl_value k, beryl_value v,
                                       beryl_value mask, const beryl_sdpa *how);
/* q and k [.., n, d], v [.., n, e] of F32, F16 or BF16 -> [.., n, e]: each row over itself and the
 * window - 1 (below 65,535) rows before it, in F32. far [.., window, d], 0: none: relative
 * positions; q times row i of it is added to the score of what is i rows before. The scores, times
 * scale, are capped as above (cap 0: not). Work and memory are n * window. */
BERYL_API beryl_value beryl_graph_local_attention(beryl_graph *g, beryl_value q, beryl_value k,
                                                  beryl_value v, beryl_value far, uint32_t window,
                                                  float scale, float cap);
/* Rotation by position, of floats: n (1 to 4) parts of x [.., d], one after another, each by its
 * own angles: cosines and sines [n], each [.., r], broadcast against x, turn 2 * r elements.
 * Element i is turned with i + r of its part; pairs: 2 * i with 2 * i + 1. What lies after the
 * parts stays. Two parts by column and row: axial positions in two dimensions. */
BERYL_API beryl_value beryl_graph_rotate(beryl_graph *g, beryl_value x, uint32_t n,
                                         const beryl_value *cosines, const beryl_value *sines,
                                         bool pairs);
/* x [.., k] times transposed w [m, k] -> [.., m] of the type of x: F32, halves; w of any type. */
BERYL_API beryl_value beryl_graph_linear(beryl_graph *g, beryl_value x, beryl_value w);
/* x [n, u or 1, k], each with the matrix of w [e, m, k] that ids I32 [n, u] names -> [n, u, m]. An
 * id out of range is 0. */
BERYL_API beryl_value beryl_graph_linear_id(beryl_graph *g, beryl_value x, beryl_value w,
                                            beryl_value ids);
/* ---- for engines: rotations, states, caches -------------------------------------------------- */

/* x [n, h, d], angles [n, 2, d / 2] (cosines, sines): element i turned with element i + d / 2. */
BERYL_API beryl_value beryl_graph_rope(beryl_graph *g, beryl_value x, beryl_value angles);
/* state [r] or [r, d] I32 or F32; x [n] or [n, d]; index I32 [n]: state[index] = x, but where
 * the index is out of range. Gives the state as it then is. */
BERYL_API beryl_value beryl_graph_set_rows(beryl_graph *g, beryl_value state, beryl_value x,
                                           beryl_value index);
/* cache, a state [n_slot, n_row, h, d] of F32, F16 or Q8_0; x [n, h, d]; slot, pos I32 [n]:
 * cache[slot, pos modulo n_row] = x, but where pos is negative or slot out of range. Gives the
 * cache as it then is. */
BERYL_API beryl_value beryl_graph_kv_write(beryl_graph *g, beryl_value cache, beryl_value x,
                                           beryl_value slot, beryl_value pos);
/* q [n, H, d] over caches as kv_write left them: a row sees positions max(0, pos - window + 1)
 * to pos of its slot (window 0: from 0), of these the last n_row; query head i reads head i * h /
 * H. Zeros where pos is negative or slot out of range. -> [n, H, d] */
BERYL_API beryl_value beryl_graph_attention(beryl_graph *g, beryl_value q, beryl_value k,
                                            beryl_value v, beryl_value slot, beryl_value pos,
                                            float scale, uint32_t window);
/* The same, but each row says which positions it sees: first to last, both I32 [n]; of these the
 * last n_row. They may lie after its own: a picture's block sees all of itself, packed sequences
 * begin where theirs does, padding is left out, all rows of an encoder see all. Zeros where first
 * is above last. Of both operations k and v may also be F32 or F16 values of the run instead of
 * caches, [1, m, h, d] (views, as long as elements of a head are neighbours), slots 0: a row then
 * sees positions below the run's m. */
BERYL_API beryl_value beryl_graph_attention_range(beryl_graph *g, beryl_value q, beryl_value k,
                                                  beryl_value v, beryl_value slot,
                                                  beryl_value first, beryl_value last, float scale);

/* ---- gradients and training ------------------------------------------------------------------ */

/* Adds the backward pass of a loss, a float of one element, and gives the gradient towards each of
 * values [n] (floats: inputs, states, weights, results, views; each as used by what was built up
 * to here), of its type and shape: zeros where the loss does not depend on it. gradients [n]:
 * zeros after an error. The pass is operations like any other, so a gradient may be differentiated
 * again; sums are made in one order, the same bits in every run on a device. Ties and kinks are
 * PyTorch's: relu and abs have 0 at 0, the largest of equals share (amax evenly, max half each),
 * clamp passes its ends. MISUSE: another loss, values that are no floats, a state that was changed
 * after the loss read it. UNSUPPORTED: an operation without a gradient, by name: those that docs/
 * operations.md does not mark, and attention over caches; over k and v of the run it needs memory
 * that grows with q, k and v. cumprod, and prod along an axis that a run sizes, need memory of the
 * square of the axis. */
BERYL_API void beryl_graph_gradient(beryl_graph *g, beryl_value loss, uint32_t n,
                                    const beryl_value *values, beryl_value *gradients);
/* What is built between is a segment, as a layer is: gradients of what is built later compute its
 * values again instead of keeping them until then. MISUSE: an end without a begin, a gradient
 * inside. UNSUPPORTED: a segment or a change of a state inside. */
BERYL_API void beryl_graph_recompute_begin(beryl_graph *g);
BERYL_API void beryl_graph_recompute_end(beryl_graph *g);
/* x, towards which no gradient goes: a copy. */
BERYL_API beryl_value beryl_graph_detach(beryl_graph *g, beryl_value x);
/* A state becomes x, of its type and shape, in every run. Gives the state as it then is: reading
 * that value orders the read; what was built before reads the state as it was. */
BERYL_API beryl_value beryl_graph_assign(beryl_graph *g, beryl_value state, beryl_value x);
/* x [n], of any shapes, times min(1, norm / (theirs + 1e-6)): clipped [n], which may be x. Gives
 * theirs: the root of the sum of all their squares, []. */
BERYL_API beryl_value beryl_graph_clip(beryl_graph *g, uint32_t n, const beryl_value *x, float norm,
                                       beryl_value *clipped);

/* With t steps done, p the parameter, d the gradient (but for ADAMW, LION plus weight_decay * p).
 * SGD: m = momentum * m + d; p -= rate * m (nesterov: rate * (d + momentum * m)).
 * ADAM: m = beta1 * m + (1 - beta1) * d, v = beta2 * v + (1 - beta2) * d^2,
 *   p -= rate / (1 - beta1^t) * m / (sqrt(v / (1 - beta2^t)) + eps).
 * ADAMW: the same, but before it p -= rate * weight_decay * p.
 * RMSPROP: v as above, p -= rate * d / (sqrt(v) + eps), through m where there is a momentum.
 * LION: p -= rate * (sign(beta1 * m + (1 - beta1) * d) + weight_decay * p), then m = beta2 * m +
 *   (1 - beta2) * d. ADAGRAD: v = v + d^2, p -= rate * d / (sqrt(v) + eps). */
typedef enum beryl_optimiser_kind {
    BERYL_SGD,
    BERYL_ADAM,
    BERYL_ADAMW,
    BERYL_RMSPROP,
    BERYL_LION,
    BERYL_ADAGRAD
} beryl_optimiser_kind;
typedef struct beryl_optimiser {
    beryl_optimiser_kind kind;
    float momentum, weight_decay; /* 0: none */
    bool nesterov;
    float beta1, beta2; /* 0: 0.9; 0.999, of RMSPROP and LION 0.99 */
    float eps;          /* 0: 1e-8, of ADAGRAD 1e-10 */
    beryl_value when;   /* BOOL [1]: where it is false, all stays as it was; 0: always */
} beryl_optimiser;
/* A step for parameters [n], states of F32, by gradients [n] of their shapes (halves are computed
 * in F32), with a rate, one F32: an input, or a value of the graph. What the optimiser keeps are
 * states named after the parameter: "w.momentum", "w.mean", "w.square"; all share
 * "optimiser.steps". updated [n], NULL: not wanted: the parameters as they then are. */
BERYL_API void beryl_graph_optimise(beryl_graph *g, uint32_t n, const beryl_value *parameters,
                                    const beryl_value *gradients, beryl_value rate,
                                    const beryl_optimiser *how, beryl_value *updated);
/* Gradients where some of the numbers are halves: of the loss times a scale, and divided by it: F32
 * [n]. Gives whether all are finite, BOOL [1]: beryl_optimiser.when. The scale, the state
 * "loss.scale", is `first` (0: 65,536) at first, half of itself after gradients that are not, twice
 * itself after 2,000 runs of those that are; from 1 to 2^24. */
BERYL_API beryl_value beryl_graph_gradient_scaled(beryl_graph *g, beryl_value loss, float first,
                                                  uint32_t n, const beryl_value *values,
                                                  beryl_value *gradients);
/* All of a state of a compiled graph, `size` bytes as its type and shape say: first weights, and
 * what was learned. set: before the next run; get: after the last one (PENDING, in a browser: call
 * again with the same). */
BERYL_API beryl_status beryl_graph_state_set(beryl_graph *graph, beryl_value state,
                                             const void *data, size_t size, beryl_error *error);
BERYL_API beryl_status beryl_graph_state_get(beryl_graph *graph, beryl_value state, void *data,
                                             size_t size, beryl_error *error);

/* ---- compiling and running ------------------------------------------------------------------- */

/* Uploads weights and makes the plan. PENDING: in progress, call again. OK: it can run. The
 * first error of the building calls comes from here. */
BERYL_API beryl_status beryl_graph_compile(beryl_graph *graph, beryl_error *error);
/* The first `size` bytes of an input, copied; they stay until set again. */
BERYL_API beryl_status beryl_graph_set(beryl_graph *graph, beryl_value input, const void *data,
                                       size_t size, beryl_error *error);
/* Starts a run. extents: the values [n_extent] of those from beryl_graph_extent, in their order; 0
 * to their bounds. PENDING: the device is busy, call again. Results not read yet are gone. */
BERYL_API beryl_status beryl_graph_run(beryl_graph *graph, const uint32_t *extents,
                                       uint32_t n_extent, beryl_error *error);
/* Sleeps until the last run is done (native builds only; PENDING in a browser). */
BERYL_API beryl_status beryl_graph_wait(beryl_graph *graph, beryl_error *error);
/* The first `size` bytes of an output of the last run. PENDING: not done yet. */
BERYL_API beryl_status beryl_graph_read(beryl_graph *graph, beryl_value output, void *data,
                                        size_t size, beryl_error *error);
/* Where an output (from then on not read) or an input (not written) of a compiled graph lies: the
 * device's own handle of the buffer: an address, cl_mem, WGPUBuffer. false: it has none. */
BERYL_API bool beryl_graph_place(beryl_graph *graph, beryl_value value, uint64_t *buffer,
                                 uint64_t *offset);
/* The value of an extent, as beryl_graph_shape tells it, in the last run. */
BERYL_API uint32_t beryl_graph_extent_value(const beryl_graph *graph, uint32_t extent);
/* One stage of the plan as text, as beryl_engine_explain has it, of a graph that is not compiled
 * yet and may be afterwards (native builds only). */
BERYL_API beryl_status beryl_graph_explain(beryl_graph *graph, const beryl_explain_options *options,
                                           void (*write)(void *user, const char *text, size_t size),
                                           void *user, beryl_error *error);
/* For small use: makes `value` an output where it is none, compiles, runs and reads the first
 * `size` bytes of it, in one call. Any value of the graph, which has no extents that a run is
 * given. A graph that is compiled already is run again, with inputs as they were set, and `value`
 * is one of its outputs. PENDING, in a browser: call again with the same. */
BERYL_API beryl_status beryl_graph_eval(beryl_graph *graph, beryl_value value, void *data,
                                        size_t size, beryl_error *error);
/* Bytes of a compiled graph's intermediates, and what they would be if segments were kept. */
BERYL_API beryl_status beryl_graph_memory(const beryl_graph *graph, uint64_t *bytes, uint64_t *kept,
                                          beryl_error *error);
/* The device that was chosen; texts live as long as the graph. */
BERYL_API beryl_status beryl_graph_device(const beryl_graph *graph, beryl_device_info *info);

#ifdef __cplusplus
}
#endif
#endif
