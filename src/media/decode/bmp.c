/* bmp.c - BMP files: 1 to 32 bits a pixel, palettes, masks, either way up. Run-length codes, JPEG
 * and PNG inside are refused. Format: BITMAPCOREHEADER, BITMAPINFOHEADER, BITMAPV5HEADER. */
#include "base/error.h"
#include "media/decode/decode.h"

#include <string.h>

typedef struct bmp {
    uint32_t width, height, bits, method, n_color, mask[4]; /* red, green, blue, alpha */
    bool down;                                              /* rows from the top */
    const uint8_t *colors, *rows;
    uint32_t color_size; /* bytes of a colour */
    size_t stride;
} bmp;

enum { PLAIN, RLE8, RLE4, MASKS, JPEG, PNG, MASKS_ALPHA };

static uint32_t number(const uint8_t *p, size_t n) {
    uint32_t x = 0;
    for (size_t i = 0; i < n; i++) x |= (uint32_t)p[i] << 8 * i;
    return x;
}

static beryl_status damaged(beryl_error *error, const char *what) {
    return base_fail(error, BERYL_BAD_FILE, "a damaged BMP file: %s", what);
}

/* Sizes and kind; *after: where colours begin. */
static beryl_status read_head(const uint8_t *p, size_t size, bmp *b, size_t *after,
                              beryl_error *error) {
    enum { FILE_HEAD = 14, OLD = 12, USUAL = 40, MASKED = 52 };
    if (size < FILE_HEAD + OLD) return damaged(error, "its head");
    const uint8_t *h = p + FILE_HEAD;
    const uint32_t n = number(h, 4);
    if ((n != OLD && n < USUAL) || n > size - FILE_HEAD) return damaged(error, "its head");
    const bool old = n == OLD;
    const int32_t height = old ? (int32_t)number(h + 6, 2) : (int32_t)number(h + 8, 4);
    b->width = number(h + 4, old ? 2 : 4);
    b->down = height < 0;
    b->height = b->down ? 0u - (uint32_t)height : (uint32_t)height;
    b->bits = number(h + (old ? 10 : 14), 2);
    b->method = old ? PLAIN : number(h + 16, 4);
    b->n_color = old ? 0 : number(h + 32, 4);
    b->color_size = old ? 3 : 4;
    *after = FILE_HEAD + n;
    if (b->method != PLAIN && b->method != MASKS && b->method != MASKS_ALPHA)
        return base_fail(error, BERYL_UNSUPPORTED, "a BMP file with %s is not read",
                         b->method == RLE8 || b->method == RLE4 ? "run-length codes"
                         : b->method == JPEG                    ? "a JPEG file inside"
                         : b->method == PNG                     ? "a PNG file inside"
                                                                : "an unknown code");
    if (b->method != PLAIN) {
        const uint32_t n_mask = b->method == MASKS_ALPHA || n >= MASKED + 4 ? 4 : 3;
        if (size - FILE_HEAD - USUAL < n_mask * 4) return damaged(error, "its masks");
        for (uint32_t i = 0; i < n_mask; i++) b->mask[i] = number(h + USUAL + i * 4, 4);
        if (n == USUAL) *after += n_mask * 4;
    } else if (b->bits == 16) {
        b->mask[0] = 0x7c00, b->mask[1] = 0x3e0, b->mask[2] = 0x1f;
    } else if (b->bits == 32) {
        b->mask[0] = 0xff0000, b->mask[1] = 0xff00, b->mask[2] = 0xff;
    }
    return BERYL_OK;
}

static beryl_status read_layout(const uint8_t *p, size_t size, bmp *b, size_t after,
                                beryl_error *error) {
    const uint32_t bits = b->bits;
    if (bits != 1 && bits != 4 && bits != 8 && bits != 16 && bits != 24 && bits != 32)
        return base_fail(error, BERYL_UNSUPPORTED, "a BMP file of %u bits a pixel", bits);
    if (b->method != PLAIN && bits != 16 && bits != 32) return damaged(error, "masks");
    if (bits <= 8) {
        if (!b->n_color || b->n_color > 1u << bits) b->n_color = 1u << bits;
        if (after > size || (size - after) / b->color_size < b->n_color)
            return damaged(error, "its colours");
        b->colors = p + after;
    }
    const uint64_t stride = ((uint64_t)b->width * bits + 31) / 32 * 4;
    const size_t at = number(p + 10, 4);
    if (!b->width || !b->height || at > size || (size - at) / stride < b->height)
        return damaged(error, "it ends too early");
    b->stride = (size_t)stride;
    b->rows = p + at;
    return BERYL_OK;
}

/* Bits of a mask as 0 .. 255. */
static uint8_t part(uint32_t pixel, uint32_t mask, uint8_t none) {
    if (!mask) return none;
    const uint32_t low = mask & (0u - mask), most = mask / low;
    return (uint8_t)(((uint64_t)((pixel & mask) / low) * 255 + most / 2) / most);
}

static void read_row(const bmp *b, const uint8_t *from, uint8_t *to, uint32_t n_channel) {
    for (uint32_t x = 0; x < b->width; x++, to += n_channel) {
        const uint8_t *color = from + (size_t)x * 3; /* blue, green, red */
        if (b->bits <= 8) {
            const uint32_t each = 8 / b->bits, shift = (each - 1 - x % each) * b->bits;
            uint32_t i = from[x / each] >> shift & ((1u << b->bits) - 1);
            if (i >= b->n_color) i = 0;
            color = b->colors + (size_t)i * b->color_size;
        } else if (b->bits != 24) {
            const uint32_t pixel = number(from + (size_t)x * b->bits / 8, b->bits / 8);
            for (uint32_t c = 0; c < n_channel; c++) to[c] = part(pixel, b->mask[c], 0);
            continue;
        }
        to[0] = color[2], to[1] = color[1], to[2] = color[0];
    }
}

beryl_status media_decode_bmp(base_heap *heap, const uint8_t *data, size_t size, media_picture *out,
                              beryl_error *error) {
    bmp b = {0};
    size_t after = 0;
    beryl_status status = read_head(data, size, &b, &after, error);
    if (status == BERYL_OK) status = read_layout(data, size, &b, after, error);
    const uint32_t n_channel = b.mask[3] ? 4 : 3;
    if (status == BERYL_OK)
        status = decode_take(heap, out, b.width, b.height, n_channel, size, 8, error);
    if (status != BERYL_OK) return status;
    for (uint32_t y = 0; y < b.height; y++)
        read_row(&b, b.rows + (b.down ? y : b.height - 1 - y) * b.stride,
                 out->rgb + (size_t)y * b.width * n_channel, n_channel);
    return n_channel == 4 ? decode_flatten(heap, out, error) : BERYL_OK;
}
