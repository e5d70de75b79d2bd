/* prelude.h - stands before every text that the stand-in compiles: the words of CUDA C and HIP
 * C, as C++ for the host.
 *
 * A lane is a coroutine of the stand-in (lanes.c); what lanes do together goes through the table
 * that it sets when it loads the module. Workgroup memory is static: a module runs one workgroup
 * at a time. */
#include <math.h>
#include <stdint.h>
#include <string.h>

struct stand_in_three {
    unsigned int x, y, z;
};
struct stand_in_lane {
    stand_in_three thread, block, size, grid;
};
struct stand_in_table {
    stand_in_lane *(*lane)(void);
    void (*barrier)(void);
    uint64_t (*exchange)(uint64_t value, int kind, unsigned int with, unsigned int width);
};
extern "C" {
__attribute__((visibility("default"))) stand_in_table *stand_in_host;
}

#define __global__ __attribute__((visibility("default")))
#define __device__
#define __host__
#define __forceinline__ inline
#define __noinline__ __attribute__((noinline))
#define __shared__ static
#define LAUNCH_BYTES(n) static __attribute__((aligned(16))) u8 launch_bytes[n]
#define __constant__ static
#define __launch_bounds__(...)
#define threadIdx (stand_in_host->lane()->thread)
#define blockIdx (stand_in_host->lane()->block)
#define blockDim (stand_in_host->lane()->size)
#define gridDim (stand_in_host->lane()->grid)
#define warpSize 32

static inline void __syncthreads() {
    stand_in_host->barrier();
}
static inline void __threadfence() {}
static inline void __threadfence_block() {}

/* Kinds: 0 lane `with` ^, 1 lane `with`, 2 `with` further down the lanes, 3 up, 4 vote. */
template <class T>
static inline T stand_in_exchange(T value, int kind, unsigned int with, int width) {
    static_assert(sizeof(T) <= 8, "a value of at most 8 bytes");
    uint64_t bits = 0;
    memcpy(&bits, &value, sizeof value);
    bits = stand_in_host->exchange(bits, kind, with, (unsigned int)width);
    memcpy(&value, &bits, sizeof value);
    return value;
}
static inline void __syncwarp(unsigned int = 0xffffffffu) {
    stand_in_exchange(0u, 0, 0, 32);
}
#define STAND_IN_SHUFFLE(name, kind)                                                        \
    template <class T>                                                                      \
    static inline T name##_sync(unsigned int, T value, unsigned int with, int width = 32) { \
        return stand_in_exchange(value, kind, with, width);                                 \
    }                                                                                       \
    template <class T> static inline T name(T value, unsigned int with, int width = 32) {   \
        return stand_in_exchange(value, kind, with, width);                                 \
    }
STAND_IN_SHUFFLE(__shfl_xor, 0)
STAND_IN_SHUFFLE(__shfl, 1)
STAND_IN_SHUFFLE(__shfl_down, 2)
STAND_IN_SHUFFLE(__shfl_up, 3)
static inline unsigned int __ballot_sync(unsigned int, int predicate) {
    return (unsigned int)stand_in_exchange((uint64_t)(predicate != 0), 4, 0, 32);
}

#define STAND_IN_ATOMIC(T)                            \
    static inline T atomicAdd(T *at, T value) {       \
        T was = *at;                                  \
        *at = was + value;                            \
        return was;                                   \
    }                                                 \
    static inline T atomicMin(T *at, T value) {       \
        T was = *at;                                  \
        if (value < was) *at = value;                 \
        return was;                                   \
    }                                                 \
    static inline T atomicMax(T *at, T value) {       \
        T was = *at;                                  \
        if (value > was) *at = value;                 \
        return was;                                   \
    }                                                 \
    static inline T atomicExch(T *at, T value) {      \
        T was = *at;                                  \
        *at = value;                                  \
        return was;                                   \
    }                                                 \
    static inline T atomicCAS(T *at, T is, T value) { \
        T was = *at;                                  \
        if (was == is) *at = value;                   \
        return was;                                   \
    }
STAND_IN_ATOMIC(int)
STAND_IN_ATOMIC(unsigned int)
STAND_IN_ATOMIC(unsigned long long)
STAND_IN_ATOMIC(float)

template <class To, class From> static inline To stand_in_bits(From value) {
    static_assert(sizeof(To) == sizeof(From), "the same bits");
    To to;
    memcpy(&to, &value, sizeof to);
    return to;
}
static inline unsigned int __float_as_uint(float x) {
    return stand_in_bits<unsigned int>(x);
}
static inline int __float_as_int(float x) {
    return stand_in_bits<int>(x);
}
static inline float __uint_as_float(unsigned int x) {
    return stand_in_bits<float>(x);
}
static inline float __int_as_float(int x) {
    return stand_in_bits<float>(x);
}
static inline long long __double_as_longlong(double x) {
    return stand_in_bits<long long>(x);
}
static inline double __longlong_as_double(long long x) {
    return stand_in_bits<double>(x);
}
static inline int __popc(unsigned int x) {
    return __builtin_popcount(x);
}
static inline int __popcll(unsigned long long x) {
    return __builtin_popcountll(x);
}
static inline int __clz(int x) {
    return x ? __builtin_clz((unsigned int)x) : 32;
}
static inline float rsqrtf(float x) {
    return 1.0f / sqrtf(x);
}
static inline double rsqrt(double x) {
    return 1.0 / sqrt(x);
}
template <class T> static inline T __ldg(const T *at) {
    return *at;
}
static inline int __dp4a(int a, int b, int sum) {
    for (int i = 0; i < 32; i += 8) sum += (int)(signed char)(a >> i) * (signed char)(b >> i);
    return sum;
}

/* The words that generated texts have for PTX of matrices. Where elements lie is said by PTX's
 * chapters on ldmatrix and mma: with e elements in a register, of `a` register (row >> 3) + 2 (k /
 * 4e) of lane 4 (row % 8) + k % 4e / e; of `b` register k / 4e of lane 4 column + k % 4e / e. */
static inline unsigned int stand_in_lane_of_32() {
    const stand_in_lane *l = stand_in_host->lane();
    return (l->thread.x + l->size.x * (l->thread.y + l->size.y * l->thread.z)) % 32;
}
static inline void stand_in_matrix(unsigned int *to, const void *from, unsigned int n,
                                   bool turned) {
    const unsigned int lane = stand_in_lane_of_32();
    for (unsigned int j = 0; j < n; j++) {
        to[j] = 0;
        for (unsigned int e = 0; e < 2; e++) {
            const unsigned int row = lane / 4, column = 2 * (lane % 4) + e;
            const void *at = stand_in_exchange(from, 1, 8 * j + (turned ? column : row), 32);
            to[j] |= (unsigned int)((const unsigned short *)at)[turned ? row : column] << 16 * e;
        }
    }
}
#define load_matrix_2(to, from) stand_in_matrix(to, from, 2, false)
#define load_matrix_4(to, from) stand_in_matrix(to, from, 4, false)
#define load_matrix_2_turned(to, from) stand_in_matrix(to, from, 2, true)
#define load_matrix_4_turned(to, from) stand_in_matrix(to, from, 4, true)

static inline double stand_in_f16(unsigned int word, unsigned int at) {
    const unsigned int bits = word >> 16 * at & 0xffff, exponent = bits >> 10 & 31,
                       digits = bits & 1023;
    const double size = exponent ? ldexp(1024.0 + digits, (int)exponent - 25) : ldexp(digits, -24);
    return bits >> 15 ? -size : size;
}
static inline double stand_in_bf16(unsigned int word, unsigned int at) {
    return stand_in_bits<float>((word >> 16 * at & 0xffff) << 16);
}
static inline double stand_in_i8(unsigned int word, unsigned int at) {
    return (signed char)(word >> 8 * at & 255);
}
static inline double stand_in_u8(unsigned int word, unsigned int at) {
    return word >> 8 * at & 255;
}
template <class C>
static inline void stand_in_multiply(C *c, const unsigned int *a, const unsigned int *b,
                                     unsigned int e, double (*left)(unsigned int, unsigned int),
                                     double (*right)(unsigned int, unsigned int)) {
    const unsigned int lane = stand_in_lane_of_32();
    for (unsigned int j = 0; j < 4; j++) {
        const unsigned int column = 2 * (lane % 4) + (j & 1);
        double sum = (double)c[j];
        for (unsigned int k = 0; k < 8 * e; k++) {
            const unsigned int part = k % (4 * e) / e, half = k / (4 * e);
            const unsigned int x =
                stand_in_exchange(a[(j >> 1) + 2 * half], 1, lane / 4 * 4 + part, 32);
            const unsigned int y = stand_in_exchange(b[half], 1, 4 * column + part, 32);
            sum += left(x, k % e) * right(y, k % e);
        }
        c[j] = (C)sum;
    }
}
#define multiply_f32_f16(c, a, b) stand_in_multiply(c, a, b, 2, stand_in_f16, stand_in_f16)
#define multiply_f32_bf16(c, a, b) stand_in_multiply(c, a, b, 2, stand_in_bf16, stand_in_bf16)
#define multiply_i8_i8(c, a, b) stand_in_multiply(c, a, b, 4, stand_in_i8, stand_in_i8)
#define multiply_i8_u8(c, a, b) stand_in_multiply(c, a, b, 4, stand_in_i8, stand_in_u8)
#define multiply_u8_i8(c, a, b) stand_in_multiply(c, a, b, 4, stand_in_u8, stand_in_i8)
#define multiply_u8_u8(c, a, b) stand_in_multiply(c, a, b, 4, stand_in_u8, stand_in_u8)

/* How a kernel is entered: arguments as the driver gets them. */
template <class... T> struct stand_in_types {};
template <class... All, class... Done>
static void stand_in_enter(void (*kernel)(All...), void **, stand_in_types<>, Done *...done) {
    kernel(*done...);
}
template <class... All, class First, class... Rest, class... Done>
static void stand_in_enter(void (*kernel)(All...), void **at, stand_in_types<First, Rest...>,
                           Done *...done) {
    stand_in_enter(kernel, at + 1, stand_in_types<Rest...>(), done..., (First *)*at);
}
template <class... All> static void stand_in_run(void (*kernel)(All...), void **arguments) {
    stand_in_enter(kernel, arguments, stand_in_types<All...>());
}
template <class... All>
static const unsigned int *stand_in_sizes(void (*)(All...), unsigned int *n) {
    static const unsigned int sizes[] = {sizeof(All)..., 0};
    *n = sizeof...(All);
    return sizes;
}
