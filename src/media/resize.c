/* resize.c - see resize.h. */
#include "media/resize.h"

#include <math.h>

enum { CHANNELS = 3, BITS = 22 };

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

static uint8_t rounded(int64_t sum) {
    const int64_t x = (sum + (1 << (BITS - 1))) >> BITS;
    return (uint8_t)(x < 0 ? 0 : x > 255 ? 255 : x);
}

/* Pixels of `from` that are `step` elements apart. */
static void put_pixel(const line *l, uint32_t i, const uint8_t *from, size_t step, uint8_t *to) {
    const int32_t *weight = l->weight + (size_t)i * l->n_most;
    const uint8_t *at = from + l->first[i] * step;
    int64_t sum[CHANNELS] = {0};
    for (uint32_t k = 0; k < l->count[i]; k++, at += step)
        for (uint32_t c = 0; c < CHANNELS; c++) sum[c] += (int64_t)at[c] * weight[k];
    for (uint32_t c = 0; c < CHANNELS; c++) to[c] = rounded(sum[c]);
}

beryl_status media_resize(base_heap *heap, const uint8_t *rgb, uint32_t width, uint32_t height,
                          uint8_t *out, uint32_t to_width, uint32_t to_height) {
    line across, down;
    size_t n_across, n_down, row = (size_t)to_width * CHANNELS, n_between = row * height;
    void *a = open_line(heap, &across, width, to_width, &n_across),
         *d = open_line(heap, &down, height, to_height, &n_down);
    uint8_t *between = base_heap_take(heap, n_between);
    const bool there = a && d && between;
    for (uint32_t y = 0; there && y < height; y++)
        for (uint32_t x = 0; x < to_width; x++)
            put_pixel(&across, x, rgb + (size_t)y * width * CHANNELS, CHANNELS,
                      between + y * row + (size_t)x * CHANNELS);
    for (uint32_t y = 0; there && y < to_height; y++)
        for (uint32_t x = 0; x < to_width; x++)
            put_pixel(&down, y, between + (size_t)x * CHANNELS, row,
                      out + y * row + (size_t)x * CHANNELS);
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
