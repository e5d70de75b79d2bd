/* decode.c - see decode.h. EXIF: CIPA DC-008, which takes its form from TIFF 6.0. */
#include "media/decode/decode.h"

#include "base/error.h"

#include <string.h>

beryl_status decode_take(base_heap *heap, media_picture *out, uint32_t width, uint32_t height,
                         uint32_t n_channel, size_t size, uint32_t most, beryl_error *error) {
    const uint64_t pixels = (uint64_t)width * height;
    *out = (media_picture){0};
    if (!pixels) return base_fail(error, BERYL_BAD_FILE, "a picture without pixels");
    if (pixels > MEDIA_PIXELS_MAX)
        return base_fail(error, BERYL_BAD_INPUT,
                         "a picture of %u x %u pixels is too large: at most %d megapixels", width,
                         height, MEDIA_PIXELS_MAX / 1000000);
    if (most && pixels / most > size)
        return base_fail(error, BERYL_BAD_FILE,
                         "a damaged file: %zu bytes cannot be %u x %u pixels", size, width, height);
    out->rgb = base_heap_take(heap, (size_t)pixels * n_channel);
    if (!out->rgb) return base_no_memory(error);
    out->width = width;
    out->height = height;
    return BERYL_OK;
}

void decode_drop(base_heap *heap, media_picture *p, uint32_t n_channel) {
    base_heap_give(heap, p->rgb, (size_t)p->width * p->height * n_channel);
    *p = (media_picture){0};
}

beryl_status decode_flatten(base_heap *heap, media_picture *p, beryl_error *error) {
    const size_t n = (size_t)p->width * p->height;
    uint8_t *to = p->rgb;
    for (const uint8_t *from = p->rgb; from < p->rgb + 4 * n; from += 4, to += 3)
        for (int c = 0; c < 3; c++)
            to[c] = (uint8_t)((from[c] * from[3] + 255 * (255 - from[3]) + 127) / 255);
    uint8_t *rgb = base_heap_resize(heap, p->rgb, 4 * n, 3 * n);
    if (!rgb) {
        decode_drop(heap, p, 4);
        return base_no_memory(error);
    }
    p->rgb = rgb;
    return BERYL_OK;
}

beryl_status decode_turn(base_heap *heap, media_picture *p, uint32_t orientation,
                         beryl_error *error) {
    if (orientation < 2 || orientation > 8) return BERYL_OK;
    /* Where pixel (x, y) comes from: first over the diagonal, then mirrored. */
    const bool swap = orientation > 4,
               left = orientation == 2 || orientation == 3 || orientation == 6 || orientation == 7,
               up = orientation == 3 || orientation == 4 || orientation == 7 || orientation == 8;
    const size_t size = (size_t)p->width * p->height * 3;
    media_picture q = {NULL, swap ? p->height : p->width, swap ? p->width : p->height};
    if (!(q.rgb = base_heap_take(heap, size))) return base_no_memory(error);
    enum { BLOCK = 32 }; /* rows and columns of both stay in the cache */
    for (uint32_t row = 0; row < q.height; row += BLOCK)
        for (uint32_t column = 0; column < q.width; column += BLOCK)
            for (uint32_t y = row; y < q.height && y < row + BLOCK; y++)
                for (uint32_t x = column; x < q.width && x < column + BLOCK; x++) {
                    const uint32_t a = left ? q.width - 1 - x : x, b = up ? q.height - 1 - y : y;
                    memcpy(q.rgb + ((size_t)y * q.width + x) * 3,
                           p->rgb +
                               (swap ? (size_t)a * p->width + b : (size_t)b * p->width + a) * 3,
                           3);
                }
    base_heap_give(heap, p->rgb, size);
    *p = q;
    return BERYL_OK;
}

static uint32_t number(const uint8_t *p, size_t n, bool big) {
    uint32_t x = 0;
    for (size_t i = 0; i < n; i++) x |= (uint32_t)p[i] << 8 * (big ? n - 1 - i : i);
    return x;
}

uint32_t decode_orientation(const uint8_t *p, size_t size) {
    enum { ENTRY = 12, TAG = 0x0112, SHORT = 3 };
    if (size < 8 || (memcmp(p, "II*\0", 4) && memcmp(p, "MM\0*", 4))) return 1;
    const bool big = p[0] == 'M';
    const size_t at = number(p + 4, 4, big);
    if (at > size || size - at < 2) return 1;
    size_t n = number(p + at, 2, big);
    const size_t fit = (size - at - 2) / ENTRY;
    if (n > fit) n = fit;
    for (size_t i = 0; i < n; i++) {
        const uint8_t *e = p + at + 2 + i * ENTRY;
        if (number(e, 2, big) != TAG || number(e + 2, 2, big) != SHORT) continue;
        const uint32_t x = number(e + 8, 2, big);
        return x >= 1 && x <= 8 ? x : 1;
    }
    return 1;
}
