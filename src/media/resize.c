/* resize.c - see resize.h. */
#include "media/resize.h"

#include <math.h>
#include <string.h>

enum { CHANNELS = 3, BITS = 22, ROWS = 8 };

/* Which pixels along a line make pixel i of the result, and by how much. */
typedef struct line {
    uint32_t n_in, n_out, n_most; /* pixels of one result, at most */
    uint32_t *first, *count;      /* [n_out] */
    int32_t *weight;              /* [n_out, n_most] */
} line;

static double cubic(double x) {
    const double a = -0.5;
    x = fabs(x);
    if (x < 1) return ((a + 2) * x - (a + 3)) * x * x + 1;
    return x < 2 ? (((x - 5) * x + 8) * x - 4) * a : 0;
}

static void weigh(line *l, double *room) {
    const double scale = (double)l->n_in / l->n_out, wide = scale > 1 ? scale : 1, reach = 2 * wide;
    for (uint32_t i = 0; i < l->n_out; i++) {
        const double center = (i + 0.5) * scale;
        int64_t from = (int64_t)(center - reach + 0.5), to = (int64_t)(center + reach + 0.5);
        if (from < 0) from = 0;
        if (to > l->n_in) to = l->n_in;
        double sum = 0;
        for (int64_t k = from; k < to; k++)
            sum += room[k - from] = cubic(((double)k - center + 0.5) / wide);
        l->first[i] = (uint32_t)from;
        l->count[i] = (uint32_t)(to - from);
        for (int64_t k = 0; k < to - from; k++)
            l->weight[(size_t)i * l->n_most + (size_t)k] =
                (int32_t)round(room[k] / sum * (1 << BITS));
    }
}

/* The tables of a line in one piece of memory, *bytes long. */
static void *open_line(base_heap *heap, line *l, uint32_t n_in, uint32_t n_out, size_t *bytes) {
    const double wide = n_in > n_out ? (double)n_in / n_out : 1;
    *l = (line){.n_in = n_in, .n_out = n_out, .n_most = (uint32_t)ceil(2 * wide) * 2 + 1};
    const size_t table = (size_t)n_out * l->n_most * sizeof *l->weight,
                 room = l->n_most * sizeof(double);
    *bytes = room + table + (size_t)n_out * 2 * sizeof *l->first;
    char *memory = base_heap_take(heap, *bytes);
    if (!memory) return NULL;
    l->weight = (int32_t *)(void *)(memory + room);
    l->first = (uint32_t *)(void *)(memory + room + table);
    l->count = l->first + n_out;
    weigh(l, (double *)(void *)memory);
    return memory;
}

/* A sum of at most 255 * 5/4 * 2^BITS in size. */
static uint8_t rounded(int32_t sum) {
    const int32_t x = (sum + (1 << (BITS - 1))) >> BITS;
    return (uint8_t)(x < 0 ? 0 : x > 255 ? 255 : x);
}

/* Two rows at once: a number holds a pixel's channel of one in its lower half, of the other in its
 * upper half, and so does a product with a weight: the lower sum, if negative, has borrowed from
 * the upper one. room: [width, 3]. */
static void put_across(const line *l, const uint8_t *a, const uint8_t *b, uint64_t *room,
                       uint8_t *to_a, uint8_t *to_b) {
    for (size_t i = 0; i < (size_t)l->n_in * CHANNELS; i++) room[i] = a[i] | (uint64_t)b[i] << 32;
    for (uint32_t i = 0; i < l->n_out; i++) {
        const int32_t *weight = l->weight + (size_t)i * l->n_most;
        const uint64_t *at = room + (size_t)l->first[i] * CHANNELS;
        uint64_t sum[CHANNELS] = {0};
        for (const int32_t *end = weight + l->count[i]; weight < end; weight++, at += CHANNELS) {
            const uint64_t w = (uint64_t)(int64_t)*weight;
            for (uint32_t c = 0; c < CHANNELS; c++) sum[c] += at[c] * w;
        }
        for (uint32_t c = 0; c < CHANNELS; c++) {
            const int32_t low = (int32_t)(uint32_t)sum[c];
            to_a[i * CHANNELS + c] = rounded(low);
            to_b[i * CHANNELS + c] =
                rounded((int32_t)(uint32_t)((sum[c] - (uint64_t)(int64_t)low) >> 32));
        }
    }
}

/* Row i of the result, from rows of n bytes; sum: [n]. */
static inline void put_down(const line *l, uint32_t i, const uint8_t *from, size_t n, int32_t *sum,
                            uint8_t *to) {
    const int32_t *weight = l->weight + (size_t)i * l->n_most;
    const uint8_t *at = from + l->first[i] * n;
    for (size_t x = 0; x < n; x++) sum[x] = 0;
    for (uint32_t k = 0; k < l->count[i]; k++, at += n)
        for (size_t x = 0; x < n; x++) sum[x] += at[x] * weight[k];
    for (size_t x = 0; x < n; x++) to[x] = rounded(sum[x]);
}

#if defined(__x86_64__) && defined(__GNUC__)
/* The same with vectors of eight, whose product of 32 bits is one instruction. */
#define WIDE __attribute__((target("avx2"))) static
typedef int32_t rows_wide __attribute__((vector_size(4 * ROWS), aligned(4), may_alias));

WIDE void put_down_wide(const line *l, uint32_t i, const uint8_t *from, size_t n, int32_t *sum,
                        uint8_t *to) {
    put_down(l, i, from, n, sum, to);
}

/* Eight bytes of eight rows, `apart` from each other: columns become rows. */
static inline void turn(const uint8_t *from, size_t apart, uint8_t *to, size_t to_apart) {
    static const uint64_t lows[] = {0x00ff00ff00ff00ff, 0x0000ffff0000ffff, 0x00000000ffffffff};
    uint64_t row[ROWS];
    for (uint32_t r = 0; r < ROWS; r++) memcpy(&row[r], from + r * apart, ROWS);
    for (uint32_t i = 0; i < 3; i++)
        for (uint32_t r = 0; r < ROWS; r++) {
            const uint32_t n = 1u << i, bits = 8 * n;
            if (r & n) continue;
            const uint64_t low = lows[i], a = row[r], b = row[r + n];
            row[r] = (a & low) | (b & low) << bits;
            row[r + n] = (a >> bits & low) | (b & ~low);
        }
    for (uint32_t r = 0; r < ROWS; r++) memcpy(to + r * to_apart, &row[r], ROWS);
}

/* Eight rows of n_in bytes to such of n_out, a lane each; both at least eight long. Bytes become
 * numbers apart from their sums: gcc 12 widens them one by one there. room: [n_in + n_out]. */
WIDE void put_across_wide(const line *l, const uint8_t *from, size_t n_in, rows_wide *room,
                          uint8_t *to, size_t n_out) {
    rows_wide *sums = room + n_in;
    uint8_t columns[ROWS * ROWS];
    for (size_t i = 0; i < n_in; i += ROWS) {
        const size_t x = i + ROWS < n_in ? i : n_in - ROWS;
        int32_t *into = (int32_t *)(room + x);
        turn(from + x, n_in, columns, ROWS);
        for (size_t k = 0; k < ROWS * ROWS; k++) into[k] = columns[k];
    }
    for (uint32_t i = 0; i < l->n_out; i++) {
        const int32_t *weight = l->weight + (size_t)i * l->n_most;
        const rows_wide *at = room + (size_t)l->first[i] * CHANNELS;
        rows_wide sum[CHANNELS] = {{0}};
        for (const int32_t *end = weight + l->count[i]; weight < end; weight++, at += CHANNELS)
            for (uint32_t c = 0; c < CHANNELS; c++) sum[c] += at[c] * *weight;
        for (uint32_t c = 0; c < CHANNELS; c++) sums[i * CHANNELS + c] = sum[c];
    }
    for (size_t i = 0; i < n_out; i += ROWS) {
        const size_t x = i + ROWS < n_out ? i : n_out - ROWS;
        const int32_t *of = (const int32_t *)(sums + x);
        for (size_t k = 0; k < ROWS * ROWS; k++) columns[k] = rounded(of[k]);
        turn(columns, ROWS, to + x, n_out);
    }
}
#define IS_WIDE __builtin_cpu_supports("avx2")
#else
#define IS_WIDE 0
#define put_down_wide put_down
#define put_across_wide(l, from, n_in, room, to, n_out) ((void)0)
#endif

beryl_status media_resize(base_heap *heap, const uint8_t *rgb, uint32_t width, uint32_t height,
                          uint8_t *out, uint32_t to_width, uint32_t to_height) {
    line across, down;
    const size_t row = (size_t)to_width * CHANNELS, row_in = (size_t)width * CHANNELS,
                 n_between = row * height, n_room = (row_in + row) * ROWS * sizeof(int32_t),
                 n_sum = row * sizeof(int32_t);
    size_t n_across, n_down;
    void *a = open_line(heap, &across, width, to_width, &n_across),
         *d = open_line(heap, &down, height, to_height, &n_down);
    uint8_t *between = base_heap_take(heap, n_between);
    uint64_t *room = base_heap_take(heap, n_room);
    int32_t *sum = base_heap_take(heap, n_sum);
    const bool there = a && d && between && room && sum;
    const bool wide = IS_WIDE && row_in >= ROWS && row >= ROWS;
    uint32_t y = 0;
    for (; there && wide && y + ROWS <= height; y += ROWS)
        put_across_wide(&across, rgb + y * row_in, row_in, (rows_wide *)room, between + y * row,
                        row);
    for (; there && y < height; y += 2) {
        const uint32_t z = y + 1 < height ? y + 1 : y;
        put_across(&across, rgb + y * row_in, rgb + z * row_in, room, between + y * row,
                   between + z * row);
    }
    for (y = 0; there && y < to_height; y++)
        (wide ? put_down_wide : put_down)(&down, y, between, row, sum, out + y * row);
    base_heap_give(heap, sum, n_sum);
    base_heap_give(heap, room, n_room);
    base_heap_give(heap, between, n_between);
    base_heap_give(heap, d, n_down);
    base_heap_give(heap, a, n_across);
    return there ? BERYL_OK : BERYL_NO_MEMORY;
}

void media_fit(uint32_t width, uint32_t height, uint32_t unit, uint32_t budget, uint32_t *to_width,
               uint32_t *to_height) {
    const double pixels = (double)budget * unit * unit,
                 factor = sqrt(pixels / ((double)width * height));
    uint32_t across = (uint32_t)floor(factor * width / unit),
             down = (uint32_t)floor(factor * height / unit);
    if (!down) {
        down = 1;
        across = width / height < budget ? width / height : budget;
    } else if (!across) {
        across = 1;
        down = height / width < budget ? height / width : budget;
    }
    *to_width = (across ? across : 1) * unit;
    *to_height = (down ? down : 1) * unit;
}
