/* decode_test.c - pictures of every format, written by the formats' own libraries or by hand, as
 * pixels; sound files against what was written; damaged files and files that claim to be large. */
#include "test.h"

#include "media/file.h"
#include "media/resize.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <gif_lib.h>
#include <jpeglib.h>
#include <png.h>
#include <sndfile.h>
#include <webp/encode.h>

#define PI 3.14159265358979323846
enum { W = 21, H = 13, FILE_MAX = 1 << 20 };

typedef struct bytes { /* a file in memory */
    uint8_t data[FILE_MAX];
    size_t size, at;
} bytes;

static void put(bytes *b, const void *data, size_t n) {
    if (n > FILE_MAX - b->size) abort();
    memcpy(b->data + b->size, data, n);
    b->size += n;
}

static void put_number(bytes *b, uint32_t x, size_t n) {
    for (size_t i = 0; i < n; i++) put(b, &(uint8_t){(uint8_t)(i < 4 ? x >> 8 * i : 0)}, 1);
}

/* Numbers without a pattern, the same in every run. */
static uint32_t value(uint32_t x, uint32_t y, uint32_t c, uint32_t most) {
    const uint32_t h = (x * 73856093u ^ y * 19349663u ^ (c + 1) * 83492791u) * 2654435761u;
    return (h >> 8) % (most + 1);
}

/* A smooth one, which lossy formats keep. */
static uint8_t smooth(uint32_t x, uint32_t y, uint32_t c) {
    return (uint8_t)(c == 0 ? 40 + 160 * x / W : c == 1 ? 30 + 190 * y / H : 200 - 120 * x / W);
}

static void over_white(uint8_t rgb[3], uint32_t alpha) {
    for (int c = 0; c < 3; c++)
        rgb[c] = (uint8_t)((rgb[c] * alpha + 255 * (255 - alpha) + 127) / 255);
}

/* Decoded, and each pixel within `most` of `want`, [H, W, 3]. */
static void expect(test *t, const char *what, const bytes *b, const uint8_t *want, int most) {
    base_heap heap;
    media_picture p;
    beryl_error error = {0};
    base_heap_init(&heap, NULL);
    if (media_picture_read(&heap, b->data, b->size, &p, &error)) {
        test_fail(t, __FILE__, __LINE__, "%s: %s", what, error.message);
    } else if (p.width != W || p.height != H) {
        test_fail(t, __FILE__, __LINE__, "%s: %u x %u", what, p.width, p.height);
    } else {
        int off = 0;
        for (size_t i = 0; i < (size_t)W * H * 3; i++) {
            const int d = abs(p.rgb[i] - want[i]);
            if (d > off) off = d;
        }
        if (off > most) test_fail(t, __FILE__, __LINE__, "%s: off by %d", what, off);
    }
    media_picture_fini(&heap, &p);
    CHECK_INT(t, heap.bytes, 0);
}

/* ---- PNG ------------------------------------------------------------------------------------- */

static void png_put(png_structp png, png_bytep data, size_t n) {
    put(png_get_io_ptr(png), data, n);
}

static const struct {
    int type, bits;
    bool transparent; /* a palette with alpha */
} pngs[] = {{PNG_COLOR_TYPE_GRAY, 1, false},        {PNG_COLOR_TYPE_GRAY, 2, false},
            {PNG_COLOR_TYPE_GRAY, 4, false},        {PNG_COLOR_TYPE_GRAY, 8, false},
            {PNG_COLOR_TYPE_GRAY, 16, false},       {PNG_COLOR_TYPE_PALETTE, 1, false},
            {PNG_COLOR_TYPE_PALETTE, 2, true},      {PNG_COLOR_TYPE_PALETTE, 4, false},
            {PNG_COLOR_TYPE_PALETTE, 8, true},      {PNG_COLOR_TYPE_RGB, 8, false},
            {PNG_COLOR_TYPE_RGB, 16, false},        {PNG_COLOR_TYPE_GRAY_ALPHA, 8, false},
            {PNG_COLOR_TYPE_GRAY_ALPHA, 16, false}, {PNG_COLOR_TYPE_RGB_ALPHA, 8, false},
            {PNG_COLOR_TYPE_RGB_ALPHA, 16, false}};

/* The row as the file has it, and as it is to be seen. */
static void png_row(size_t k, uint32_t y, uint8_t *row, uint8_t *want) {
    const int type = pngs[k].type;
    const uint32_t bits = (uint32_t)pngs[k].bits, most = (1u << bits) - 1;
    const bool palette = type == PNG_COLOR_TYPE_PALETTE, color = type & PNG_COLOR_MASK_COLOR,
               alpha = type & PNG_COLOR_MASK_ALPHA;
    const uint32_t n = (color && !palette ? 3u : 1u) + alpha;
    memset(row, 0, W * 8);
    for (uint32_t x = 0; x < W; x++, want += 3) {
        uint32_t v[4];
        for (uint32_t c = 0; c < n; c++) {
            v[c] = value(x, y, c, most);
            const size_t at = ((size_t)x * n + c) * bits;
            if (bits == 16) row[at / 8] = (uint8_t)(v[c] >> 8), row[at / 8 + 1] = (uint8_t)v[c];
            else row[at / 8] |= (uint8_t)(v[c] << (8 - bits - at % 8));
            v[c] = palette ? v[c] : (v[c] * 255 + most / 2) / most;
        }
        for (uint32_t c = 0; c < 3; c++)
            want[c] = (uint8_t)(palette ? value(v[0], 99, c, 255) : v[color ? c : 0]);
        if (alpha) over_white(want, v[n - 1]);
        if (pngs[k].transparent && v[0] < 3) over_white(want, 60 * v[0]);
    }
}

static void png_make(size_t k, bool interlaced, bytes *b, uint8_t *want) {
    uint8_t rows[H][W * 8], *row[H];
    png_color colors[256];
    png_byte alpha[3] = {0, 60, 120};
    png_structp png = png_create_write_struct(PNG_LIBPNG_VER_STRING, NULL, NULL, NULL);
    png_infop info = png_create_info_struct(png);
    b->size = 0;
    png_set_write_fn(png, b, png_put, NULL);
    png_set_IHDR(png, info, W, H, pngs[k].bits, pngs[k].type,
                 interlaced ? PNG_INTERLACE_ADAM7 : PNG_INTERLACE_NONE, 0, 0);
    for (uint32_t i = 0; i < 256; i++)
        colors[i] = (png_color){(uint8_t)value(i, 99, 0, 255), (uint8_t)value(i, 99, 1, 255),
                                (uint8_t)value(i, 99, 2, 255)};
    if (pngs[k].type == PNG_COLOR_TYPE_PALETTE) png_set_PLTE(png, info, colors, 1 << pngs[k].bits);
    if (pngs[k].transparent) png_set_tRNS(png, info, alpha, 3, NULL);
    png_set_gAMA(png, info, 0.5); /* passed over */
    png_write_info(png, info);
    for (uint32_t y = 0; y < H; y++) png_row(k, y, row[y] = rows[y], want + (size_t)y * W * 3);
    png_write_image(png, row);
    png_write_end(png, info);
    png_destroy_write_struct(&png, &info);
}

static void check_png(test *t, bytes *b) {
    uint8_t want[W * H * 3];
    for (size_t k = 0; k < sizeof pngs / sizeof *pngs; k++)
        for (int interlaced = 0; interlaced < 2; interlaced++) {
            char what[60];
            snprintf(what, sizeof what, "type %d, %d bits%s", pngs[k].type, pngs[k].bits,
                     interlaced ? ", interlaced" : "");
            png_make(k, interlaced, b, want);
            expect(t, what, b, want, 0);
        }
}

/* ---- JPEG ------------------------------------------------------------------------------------ */

typedef enum jpeg_form { JPEG_COLOR, JPEG_PROGRESSIVE, JPEG_GREY, JPEG_INKS, JPEG_YCCK } jpeg_form;

/* orientation 0: no EXIF data. rgb is as stored, [height, width, 3]. */
static void jpeg_make(jpeg_form form, uint32_t width, uint32_t height, const uint8_t *rgb,
                      uint8_t orientation, bool big, bytes *b) {
    struct jpeg_compress_struct c;
    struct jpeg_error_mgr manager;
    unsigned char *file = NULL;
    unsigned long size = 0;
    c.err = jpeg_std_error(&manager);
    jpeg_create_compress(&c);
    jpeg_mem_dest(&c, &file, &size);
    const bool inks = form >= JPEG_INKS;
    c.image_width = width;
    c.image_height = height;
    c.input_components = form == JPEG_GREY ? 1 : inks ? 4 : 3;
    c.in_color_space = form == JPEG_GREY ? JCS_GRAYSCALE : inks ? JCS_CMYK : JCS_RGB;
    jpeg_set_defaults(&c);
    if (form == JPEG_YCCK) jpeg_set_colorspace(&c, JCS_YCCK);
    jpeg_set_quality(&c, 100, TRUE);
    for (int i = 0; i < c.num_components; i++)
        c.comp_info[i].h_samp_factor = c.comp_info[i].v_samp_factor = 1;
    if (form == JPEG_PROGRESSIVE) jpeg_simple_progression(&c);
    jpeg_start_compress(&c, TRUE);
    uint8_t exif[] = {
        'E',  'x', 'i', 'f', 0, 0, 'I', 'I', '*',         0, 8, 0, 0, 0, 2, 0,
        0x0f, 1,   2,   0,   1, 0, 0,   0,   0,           0, 0, 0, /* another tag before it */
        0x12, 1,   3,   0,   1, 0, 0,   0,   orientation, 0, 0, 0, 0, 0, 0, 0};
    uint8_t other[] = {'E', 'x',  'i', 'f', 0, 0, 'M', 'M', 0, '*',         0, 0, 0, 8, 0, 1,
                       1,   0x12, 0,   3,   0, 0, 0,   1,   0, orientation, 0, 0, 0, 0, 0, 0};
    if (orientation)
        jpeg_write_marker(&c, JPEG_APP0 + 1, big ? other : exif, big ? sizeof other : sizeof exif);
    uint8_t *line = malloc((size_t)width * 4);
    for (uint32_t y = 0; y < height; y++) {
        for (uint32_t x = 0; x < width; x++) {
            const uint8_t *p = rgb + ((size_t)y * width + x) * 3;
            if (form == JPEG_GREY) line[x] = p[0];
            else if (inks) { /* inverted: little black, the rest in the colours */
                for (int k = 0; k < 3; k++) line[x * 4 + (uint32_t)k] = p[k];
                line[x * 4 + 3] = 255;
            } else memcpy(line + (size_t)x * 3, p, 3);
        }
        jpeg_write_scanlines(&c, &line, 1);
    }
    free(line);
    jpeg_finish_compress(&c);
    jpeg_destroy_compress(&c);
    b->size = 0;
    put(b, file, size);
    free(file);
}

/* Losses at quality 100: two roundings of 8 bits between colour spaces. */
enum { JPEG_LOSS = 4 };

static void smooth_picture(uint8_t *to) {
    for (uint32_t i = 0; i < W * H * 3; i++) to[i] = smooth(i / 3 % W, i / 3 / W, i % 3);
}

static void check_jpeg(test *t, bytes *b) {
    static const char *const names[] = {"colour", "progressive", "grey", "CMYK", "YCCK"};
    uint8_t rgb[W * H * 3], want[W * H * 3];
    smooth_picture(rgb);
    for (int form = 0; form <= JPEG_YCCK; form++) {
        memcpy(want, rgb, sizeof want);
        for (size_t i = 0; form == JPEG_GREY && i < sizeof want; i++) want[i] = rgb[i / 3 * 3];
        jpeg_make((jpeg_form)form, W, H, rgb, 0, false, b);
        expect(t, names[form], b, want, JPEG_LOSS);
    }
}

/* Orientation says which sides of what is seen the first row and the first column are. */
static void check_orientation(test *t, bytes *b) {
    static const char sides[][3] = {"tl", "tr", "br", "bl", "lt", "rt", "rb", "lb"};
    uint8_t seen[W * H * 3], stored[W * H * 3];
    smooth_picture(seen);
    for (uint8_t o = 1; o <= 8; o++) {
        const char *s = sides[o - 1];
        const bool turned = s[0] == 'l' || s[0] == 'r';
        const uint32_t width = turned ? H : W, height = turned ? W : H;
        for (uint32_t r = 0; r < height; r++)
            for (uint32_t c = 0; c < width; c++) {
                uint32_t at[2] = {0}; /* x, y of what is seen */
                for (int i = 0; i < 2; i++) {
                    const uint32_t k = i ? c : r;
                    if (s[i] == 't') at[1] = k;
                    else if (s[i] == 'b') at[1] = H - 1 - k;
                    else if (s[i] == 'l') at[0] = k;
                    else at[0] = W - 1 - k;
                }
                memcpy(stored + ((size_t)r * width + c) * 3, seen + ((size_t)at[1] * W + at[0]) * 3,
                       3);
            }
        jpeg_make(JPEG_COLOR, width, height, stored, o, o & 1, b);
        char what[30];
        snprintf(what, sizeof what, "orientation %u", o);
        expect(t, what, b, seen, JPEG_LOSS);
    }
}

/* ---- WebP, GIF, BMP -------------------------------------------------------------------------- */

static void put_chunk(bytes *b, const char *name, const void *data, size_t n) {
    put(b, name, 4);
    put_number(b, (uint32_t)n, 4);
    put(b, data, n);
    if (n & 1) put_number(b, 0, 1);
}

static void check_webp(test *t, bytes *b) {
    uint8_t rgba[W * H * 4], want[W * H * 3], *file = NULL;
    for (uint32_t i = 0; i < W * H; i++) {
        for (uint32_t c = 0; c < 4; c++) rgba[i * 4 + c] = (uint8_t)value(i, c, 5, 255);
        memcpy(want + (size_t)i * 3, rgba + (size_t)i * 4, 3);
        if (rgba[i * 4 + 3] == 0) memset(rgba + (size_t)i * 4, 0, 3);
        over_white(want + (size_t)i * 3, rgba[i * 4 + 3]);
    }
    b->size = 0;
    size_t n = WebPEncodeLosslessRGBA(rgba, W, H, W * 4, &file);
    put(b, file, n);
    WebPFree(file);
    expect(t, "lossless with alpha", b, want, 0);
    smooth_picture(want);
    b->size = 0;
    n = WebPEncodeRGB(want, W, H, W * 3, 100, &file);
    put(b, file, n);
    WebPFree(file);
    expect(t, "lossy", b, want, 24); /* colours at half the size */
    /* An animation: a frame of 8 x 6 at (4, 2) of the canvas. */
    uint8_t part[8 * 6 * 3], canvas[10] = {2, 0, 0, 0, W - 1, 0, 0, H - 1, 0, 0}, *frame;
    for (uint32_t i = 0; i < sizeof part; i++) part[i] = (uint8_t)value(i, 7, 1, 255);
    n = WebPEncodeLosslessRGB(part, 8, 6, 24, &frame);
    static bytes inner;
    inner.size = 0;
    put_number(&inner, 2, 3), put_number(&inner, 1, 3); /* in steps of two */
    put_number(&inner, 7, 3), put_number(&inner, 5, 3), put_number(&inner, 100, 4);
    put(&inner, frame + 12, n - 12);
    WebPFree(frame);
    b->size = 0;
    put(b, "RIFF", 4), put_number(b, 0, 4), put(b, "WEBP", 4);
    put_chunk(b, "VP8X", canvas, sizeof canvas);
    put_chunk(b, "ANIM", "\xff\0\0\0\0\0", 6);
    put_chunk(b, "ANMF", inner.data, inner.size);
    memset(want, 255, sizeof want);
    for (uint32_t y = 0; y < 6; y++)
        memcpy(want + ((size_t)(y + 2) * W + 4) * 3, part + (size_t)y * 24, 24);
    expect(t, "animation", b, want, 0);
}

static int gif_put(GifFileType *gif, const GifByteType *data, int n) {
    put(gif->UserData, data, (size_t)n);
    return n;
}

static void check_gif(test *t, bytes *b) {
    enum { X = 3, Y = 2, FW = W - 5, FH = H - 3 };
    uint8_t want[W * H * 3], row[FW];
    for (int interlaced = 0; interlaced < 2; interlaced++) {
        int code = 0;
        GifColorType colors[16];
        for (uint32_t i = 0; i < 16; i++)
            colors[i] = (GifColorType){(uint8_t)value(i, 1, 0, 255), (uint8_t)value(i, 1, 1, 255),
                                       (uint8_t)value(i, 1, 2, 255)};
        b->size = 0;
        GifFileType *gif = EGifOpen(b, gif_put, &code);
        ColorMapObject *map = GifMakeMapObject(16, colors);
        EGifSetGifVersion(gif, true);
        EGifPutScreenDesc(gif, W, H, 4, 0, map);
        EGifPutExtension(gif, GRAPHICS_EXT_FUNC_CODE, 4, "\x01\0\0\x05"); /* 5 is transparent */
        EGifPutImageDesc(gif, X, Y, FW, FH, interlaced, NULL);
        memset(want, 255, sizeof want);
        static const uint32_t first[] = {0, 4, 2, 1}, step[] = {8, 8, 4, 2};
        for (uint32_t pass = 0; pass < (interlaced ? 4 : 1); pass++)
            for (uint32_t y = interlaced ? first[pass] : 0; y < FH;
                 y += interlaced ? step[pass] : 1) {
                for (uint32_t x = 0; x < FW; x++) {
                    row[x] = (uint8_t)value(x, y, 0, 15);
                    const GifColorType *c = &colors[row[x]];
                    const uint8_t rgb[] = {c->Red, c->Green, c->Blue};
                    if (row[x] != 5) memcpy(want + ((size_t)(y + Y) * W + x + X) * 3, rgb, 3);
                }
                EGifPutLine(gif, row, FW);
            }
        EGifPutImageDesc(gif, 0, 0, W, H, false, NULL); /* a second frame, which is not seen */
        for (int y = 0; y < H; y++) EGifPutLine(gif, (uint8_t[W]){0}, W);
        EGifCloseFile(gif, &code);
        GifFreeMapObject(map);
        expect(t, interlaced ? "interlaced" : "plain", b, want, 0);
    }
}

static const struct {
    uint32_t head, bits, method;
    bool down;
} bmps[] = {{12, 1, 0, false}, {12, 24, 0, false}, {40, 1, 0, false}, {40, 4, 0, false},
            {40, 8, 0, true},  {40, 16, 0, false}, {40, 24, 0, true}, {40, 32, 0, false},
            {40, 16, 3, true}, {124, 32, 3, false}};

/* Masks: 5, 6, 5 bits; or 8 each with alpha. */
static void bmp_make(size_t k, bytes *b, uint8_t *want) {
    const uint32_t bits = bmps[k].bits, head = bmps[k].head, masks = bmps[k].method,
                   n_color = bits <= 8 ? 1u << bits : 0, each = head == 12 ? 3 : 4,
                   n_mask = masks && head == 40 ? 12 : 0, stride = (W * bits + 31) / 32 * 4;
    b->size = 0;
    put(b, "BM", 2), put_number(b, 0, 8);
    put_number(b, 14 + head + n_mask + n_color * each, 4);
    put_number(b, head, 4);
    put_number(b, W, head == 12 ? 2 : 4);
    put_number(b, bmps[k].down ? 0u - H : H, head == 12 ? 2 : 4);
    put_number(b, 1, 2), put_number(b, bits, 2);
    if (head > 12) put_number(b, masks, 4), put_number(b, 0, 20);
    if (masks && bits == 16)
        put_number(b, 0xf800, 4), put_number(b, 0x7e0, 4), put_number(b, 0x1f, 4);
    if (masks && bits == 32)
        for (int c = 0; c < 4; c++) put_number(b, 0xffu << (c == 3 ? 24 : 16 - 8 * c), 4);
    while (b->size < 14 + head) put_number(b, 0, 1);
    for (uint32_t i = 0; i < n_color; i++) {
        for (uint32_t c = 0; c < 3; c++) put_number(b, value(i, 50, 2 - c, 255), 1);
        if (each == 4) put_number(b, 0, 1);
    }
    const size_t rows = b->size;
    for (uint32_t i = 0; i < stride * H; i++) put_number(b, 0, 1);
    for (uint32_t y = 0; y < H; y++)
        for (uint32_t x = 0; x < W; x++) {
            uint8_t *row = b->data + rows + (bmps[k].down ? y : H - 1 - y) * stride,
                    *to = want + ((size_t)y * W + x) * 3;
            uint32_t v[4];
            for (uint32_t c = 0; c < 4; c++) v[c] = value(x, y, c, 255);
            if (bits <= 8) {
                const uint32_t at = x * bits, i = v[0] % n_color;
                row[at / 8] |= (uint8_t)(i << (8 - bits - at % 8));
                for (uint32_t c = 0; c < 3; c++) to[c] = (uint8_t)value(i, 50, c, 255);
            } else if (bits == 16) {
                const uint32_t green = masks ? 6 : 5,
                               p = v[0] % 32 << (5 + green) | v[2] % 32 | v[1] % (1u << green) << 5;
                row[2 * x] = (uint8_t)p, row[2 * x + 1] = (uint8_t)(p >> 8);
                for (uint32_t c = 0; c < 3; c++) {
                    const uint32_t most = c == 1 ? (1u << green) - 1 : 31;
                    to[c] = (uint8_t)lround(v[c] % (most + 1) * 255.0 / most);
                }
            } else {
                for (uint32_t c = 0; c < bits / 8; c++)
                    row[x * bits / 8 + c] = (uint8_t)v[c == 3 ? 3 : 2 - c];
                for (uint32_t c = 0; c < 3; c++) to[c] = (uint8_t)v[c];
                if (masks) over_white(to, v[3]);
            }
        }
}

static void check_bmp(test *t, bytes *b) {
    uint8_t want[W * H * 3];
    for (size_t k = 0; k < sizeof bmps / sizeof *bmps; k++) {
        char what[60];
        snprintf(what, sizeof what, "head %u, %u bits, method %u", bmps[k].head, bmps[k].bits,
                 bmps[k].method);
        bmp_make(k, b, want);
        expect(t, what, b, want, 0);
    }
}

/* ---- hostile --------------------------------------------------------------------------------- */

/* Read or refused with a line; nothing is kept. */
static void check_read(test *t, const uint8_t *data, size_t size) {
    base_heap heap;
    media_picture p;
    beryl_error error = {0};
    base_heap_init(&heap, NULL);
    uint8_t *exact = malloc(size ? size : 1); /* the sanitizer's, to the byte */
    memcpy(exact, data, size);
    const beryl_status status = media_picture_read(&heap, exact, size, &p, &error);
    CHECK(t, status == BERYL_OK ? p.rgb != NULL : error.message[0] && !p.rgb);
    media_picture_fini(&heap, &p);
    CHECK_INT(t, heap.bytes, 0);
    free(exact);
}

static void damage(test *t, bytes *b) {
    const size_t step = b->size / 60 + 1;
    for (size_t n = 0; n < b->size; n += n < 64 ? 1 : step) check_read(t, b->data, n);
    for (size_t i = 0; i < b->size; i += i < 80 ? 1 : step)
        for (uint32_t k = 0; k < 2; k++) {
            const uint8_t was = b->data[i];
            b->data[i] ^= (uint8_t)(k ? 1u << i % 8 : 0xff);
            check_read(t, b->data, b->size);
            b->data[i] = was;
        }
}

static void check_damaged(test *t, bytes *b) {
    uint8_t rgb[W * H * 3], want[W * H * 3], *file;
    smooth_picture(rgb);
    png_make(9, true, b, want), damage(t, b);
    png_make(8, false, b, want), damage(t, b);
    jpeg_make(JPEG_COLOR, W, H, rgb, 6, false, b), damage(t, b);
    jpeg_make(JPEG_PROGRESSIVE, W, H, rgb, 0, false, b), damage(t, b);
    jpeg_make(JPEG_YCCK, W, H, rgb, 0, false, b), damage(t, b);
    bmp_make(3, b, want), damage(t, b);
    bmp_make(9, b, want), damage(t, b);
    check_gif(t, b), damage(t, b);
    check_webp(t, b), damage(t, b); /* the animation */
    b->size = 0;
    put(b, rgb, 0);
    const size_t n = WebPEncodeRGB(rgb, W, H, W * 3, 80, &file);
    put(b, file, n);
    WebPFree(file);
    damage(t, b);
}

/* 65,535 pixels a side are refused before memory is taken. */
static void check_large(test *t, bytes *b) {
    static const struct {
        const char *name;
        size_t size;
        const char *bytes;
    } heads[] = {
        {"PNG", 33, "\x89PNG\r\n\x1a\n\0\0\0\rIHDR\0\0\xff\xff\0\0\xff\xff\x08\x02\0\0\0\0\0\0\0"},
        {"GIF", 25, "GIF89a\xff\xff\xff\xff\x80\0\0\0\0\0\xff\xff\xff,\0\0\0\0\1"},
        {"BMP", 54,
         "BM\0\0\0\0\0\0\0\0\x36\0\0\0\x28\0\0\0\xff\xff\0\0\xff\xff\0\0\1\0\x18\0"
         "\0\0\0\0\0\0\0\0\0\0\0\0\0\0\0\0\0\0\0\0\0\0\0\0"},
    };
    uint8_t rgb[W * H * 3];
    smooth_picture(rgb);
    for (size_t i = 0; i < sizeof heads / sizeof *heads + 2; i++) {
        base_heap heap;
        media_picture p;
        beryl_error error = {0};
        base_heap_init(&heap, NULL);
        if (i < sizeof heads / sizeof *heads) {
            b->size = 0;
            put(b, heads[i].bytes, heads[i].size);
        } else {
            jpeg_make(JPEG_COLOR, W, H, rgb, 0, false, b);
            for (size_t k = 0; k + 9 < b->size; k++)
                if (b->data[k] == 0xff && b->data[k + 1] == 0xc0) /* 65,500 or 9,000 a side */
                    for (size_t c = 5; c < 9; c++)
                        b->data[k + c] = (uint8_t)(c & 1 ? (i & 1 ? 0x23 : 0xff) : 0xdc);
        }
        const beryl_status status = media_picture_read(&heap, b->data, b->size, &p, &error);
        CHECK(t, status == BERYL_BAD_INPUT || status == BERYL_BAD_FILE);
        CHECK(t, error.message[0] != 0);
        CHECK(t, heap.bytes_peak < 4096);
        CHECK_INT(t, heap.bytes, 0);
    }
}

static void check_named(test *t) {
    static const struct {
        const char *bytes;
        size_t size;
        bool sound;
        beryl_status status;
        const char *said;
    } files[] = {
        {"hello, world", 12, false, BERYL_BAD_FILE, "not a picture file of a known format"},
        {"", 0, false, BERYL_BAD_FILE, "not a picture file of a known format"},
        {"\0\0\0\x18"
         "ftypheic",
         12, false, BERYL_UNSUPPORTED, "HEIC files are not read"},
        {"II*\0\0\0\0\0", 8, false, BERYL_UNSUPPORTED, "TIFF files are not read"},
        {"fLaC\0\0\0\x22", 8, false, BERYL_UNSUPPORTED, "a FLAC file is not a picture file"},
        {"\xff\xd8\xff\xe0", 4, true, BERYL_UNSUPPORTED, "a JPEG file is not a sound file"},
        {"\0\0\0\x18"
         "ftypM4A ",
         12, true, BERYL_UNSUPPORTED, "MP4 (M4A) files are not read"},
        {"hello, world", 12, true, BERYL_BAD_FILE, "not a sound file of a known format"},
    };
    for (size_t i = 0; i < sizeof files / sizeof *files; i++) {
        base_heap heap;
        media_picture p;
        media_sound s;
        beryl_error error = {0};
        base_heap_init(&heap, NULL);
        const uint8_t *data = (const uint8_t *)files[i].bytes;
        const beryl_status status =
            files[i].sound ? media_sound_read(&heap, data, files[i].size, NULL, &s, &error)
                           : media_picture_read(&heap, data, files[i].size, &p, &error);
        CHECK_INT(t, status, files[i].status);
        if (!strstr(error.message, files[i].said))
            test_fail(t, __FILE__, __LINE__, "'%s', not '%s'", error.message, files[i].said);
    }
}

/* ---- sound ----------------------------------------------------------------------------------- */

static sf_count_t io_length(void *user) {
    return (sf_count_t)((bytes *)user)->size;
}
static sf_count_t io_seek(sf_count_t to, int whence, void *user) {
    bytes *b = user;
    b->at = (size_t)(to + (whence == SEEK_CUR   ? (sf_count_t)b->at
                           : whence == SEEK_END ? (sf_count_t)b->size
                                                : 0));
    return (sf_count_t)b->at;
}
static sf_count_t io_read(void *to, sf_count_t n, void *user) {
    (void)to, (void)n, (void)user;
    return 0;
}
static sf_count_t io_write(const void *from, sf_count_t n, void *user) {
    bytes *b = user;
    if (b->at + (size_t)n > FILE_MAX) return 0;
    memcpy(b->data + b->at, from, (size_t)n);
    b->at += (size_t)n;
    if (b->at > b->size) b->size = b->at;
    return n;
}
static sf_count_t io_tell(void *user) {
    return (sf_count_t)((bytes *)user)->at;
}

/* within: of a tone of 0.5. Lossy ones by how they shape noise, and by the seams of their
 * blocks. */
static const struct {
    const char *name;
    int format, rate, channels;
    double within;
} sounds[] = {{"FLAC", SF_FORMAT_FLAC | SF_FORMAT_PCM_16, 44100, 2, 4e-5},
              {"AIFF", SF_FORMAT_AIFF | SF_FORMAT_PCM_24, 22050, 1, 1e-6},
              {"mu-law", SF_FORMAT_WAV | SF_FORMAT_ULAW, 8000, 1, 2e-2},
              {"Vorbis", SF_FORMAT_OGG | SF_FORMAT_VORBIS, 44100, 2, 2e-2},
              {"Opus", SF_FORMAT_OGG | SF_FORMAT_OPUS, 48000, 1, 2e-2},
              {"MP3", SF_FORMAT_MPEG | SF_FORMAT_MPEG_LAYER_III, 44100, 1, 2e-2}};
enum { SECONDS = 2 };

/* A tone that rises and falls in strength, so that each sample tells its time. */
static double tone(size_t i, int rate) {
    const double s = (double)i / rate;
    return 0.5 * sin(2 * PI * 330 * s) * sin(PI * s / SECONDS);
}

/* False: this libsndfile does not write it. */
static bool sound_make(size_t k, bytes *b) {
    SF_VIRTUAL_IO io = {io_length, io_seek, io_read, io_write, io_tell};
    SF_INFO info = {
        .samplerate = sounds[k].rate, .channels = sounds[k].channels, .format = sounds[k].format};
    b->size = b->at = 0;
    SNDFILE *file = sf_open_virtual(&io, SFM_WRITE, &info, b);
    if (!file) return false;
    const size_t n = (size_t)sounds[k].rate * SECONDS, c = (size_t)sounds[k].channels;
    float *x = malloc(n * c * sizeof *x);
    for (size_t i = 0; x && i < n * c; i++) /* channels whose mean is the tone */
        x[i] = (float)(tone(i / c, sounds[k].rate) * (c == 1 ? 1 : i % c ? 0.5 : 1.5));
    sf_writef_float(file, x, (sf_count_t)n);
    sf_close(file);
    free(x);
    return true;
}

static void check_sound(test *t, size_t k, bytes *b) {
    base_heap heap;
    media_sound s;
    beryl_error error = {0};
    base_heap_init(&heap, NULL);
    if (!sound_make(k, b)) {
        test_skip(t, "this libsndfile does not write it");
        return;
    }
    const int rate = sounds[k].rate;
    if (media_sound_read(&heap, b->data, b->size, NULL, &s, &error)) {
        test_fail(t, __FILE__, __LINE__, "%s", error.message);
        return;
    }
    CHECK_INT(t, s.rate, rate);
    CHECK(t, s.n >= (size_t)rate * SECONDS && s.n < (size_t)rate * SECONDS + 2400);
    double off = 0;
    for (size_t i = 0; i < s.n && i < (size_t)rate * SECONDS; i++)
        off = fmax(off, fabs((double)s.samples[i] - tone(i, rate)));
    CHECK_NEAR(t, off, 0, sounds[k].within);
    base_heap_give(&heap, s.samples, s.n * sizeof *s.samples);
    /* A part: from 1 s on, half a second. */
    const media_part part = {16000, 8000, 16000};
    CHECK_INT(t, media_sound_read(&heap, b->data, b->size, &part, &s, &error), BERYL_OK);
    CHECK_INT(t, s.n, rate / 2);
    CHECK(t, s.n_rest >= (uint64_t)rate / 2 && s.n_rest < (uint64_t)rate / 2 + 2400);
    off = 0;
    for (size_t i = 0; i < s.n; i++)
        off = fmax(off, fabs((double)s.samples[i] - tone(i + (size_t)rate, rate)));
    CHECK_NEAR(t, off, 0, sounds[k].within);
    base_heap_give(&heap, s.samples, s.n * sizeof *s.samples);
    const media_part beyond = {160000, 8000, 16000};
    CHECK_INT(t, media_sound_read(&heap, b->data, b->size, &beyond, &s, &error), BERYL_OK);
    CHECK_INT(t, s.n, 0);
    base_heap_give(&heap, s.samples, s.n * sizeof *s.samples);
    CHECK_INT(t, heap.bytes, 0);
    /* Cut and changed; of MP3 files libmpg123 would tell on standard error. */
    if ((sounds[k].format & SF_FORMAT_TYPEMASK) == SF_FORMAT_MPEG) return;
    const size_t step = b->size / 24 + 1;
    for (size_t i = 0; i < b->size; i += i < 40 ? 5 : step)
        for (int cut = 0; cut < 2; cut++) {
            const uint8_t was = b->data[i];
            const media_part some = {0, 4000, 16000};
            error = (beryl_error){0};
            if (!cut) b->data[i] ^= 0xff;
            const beryl_status status =
                media_sound_read(&heap, b->data, cut ? i : b->size, &some, &s, &error);
            CHECK(t, status == BERYL_OK || (error.message[0] && !s.samples));
            base_heap_give(&heap, s.samples, s.n * sizeof *s.samples);
            b->data[i] = was;
        }
    CHECK_INT(t, heap.bytes, 0);
}

/* ---- resizing -------------------------------------------------------------------------------- */

static double cubic(double x) {
    x = fabs(x);
    return x < 1   ? 1.5 * x * x * x - 2.5 * x * x + 1
           : x < 2 ? -0.5 * x * x * x + 2.5 * x * x - 4 * x + 2
                   : 0;
}

/* A line in double, rounded to 8 bits: pixels within two of the larger pixel's width count. */
static void line_reference(const uint8_t *from, size_t step, uint32_t n, uint32_t m, uint8_t *to,
                           size_t to_step) {
    const double scale = (double)n / m, wide = scale > 1 ? scale : 1;
    for (uint32_t i = 0; i < m; i++) {
        const double center = (i + 0.5) * scale;
        double sum = 0, all = 0;
        for (uint32_t k = 0; k < n; k++) {
            const double w = cubic((k + 0.5 - center) / wide);
            sum += w * from[k * step];
            all += w;
        }
        to[i * to_step] = (uint8_t)fmin(255, fmax(0, floor(sum / all + 0.5)));
    }
}

static void check_resize(test *t) {
    static const uint32_t sizes[][4] = {
        {640, 427, 144, 96}, {97, 61, 336, 240}, {301, 480, 48, 96}, {5, 300, 48, 336}};
    base_heap heap;
    base_heap_init(&heap, NULL);
    for (size_t k = 0; k < sizeof sizes / sizeof *sizes; k++) {
        const uint32_t w = sizes[k][0], h = sizes[k][1], tw = sizes[k][2], th = sizes[k][3];
        uint8_t *in = malloc((size_t)w * h * 3), *between = malloc((size_t)tw * h * 3),
                *want = malloc((size_t)tw * th * 3), *got = malloc((size_t)tw * th * 3);
        for (uint32_t i = 0; i < w * h * 3; i++) /* edges, noise and flat places */
            in[i] = (uint8_t)(i / 3 % w < w / 3   ? value(i, 0, 0, 255)
                              : i / 3 / w < h / 2 ? 255 * ((i / 3 % w / 7) & 1)
                                                  : 90);
        for (size_t c = 0; c < 3; c++) {
            for (uint32_t y = 0; y < h; y++)
                line_reference(in + (size_t)y * w * 3 + c, 3, w, tw,
                               between + (size_t)y * tw * 3 + c, 3);
            for (uint32_t x = 0; x < tw; x++)
                line_reference(between + (size_t)x * 3 + c, (size_t)tw * 3, h, th,
                               want + (size_t)x * 3 + c, (size_t)tw * 3);
        }
        CHECK_INT(t, media_resize(&heap, in, w, h, got, tw, th), BERYL_OK);
        int off = 0;
        for (size_t i = 0; i < (size_t)tw * th * 3; i++) {
            const int d = abs(got[i] - want[i]);
            if (d > off) off = d;
        }
        CHECK(t, off <= 1);
        free(in), free(between), free(want), free(got);
    }
    CHECK_INT(t, heap.bytes, 0);
}

void test_decode(test *t) {
    static bytes b;
    static const struct {
        const char *name;
        void (*check)(test *t, bytes *b);
    } cases[] = {
        {"png", check_png},         {"jpeg", check_jpeg},  {"jpeg-upright", check_orientation},
        {"webp", check_webp},       {"gif", check_gif},    {"bmp", check_bmp},
        {"damaged", check_damaged}, {"large", check_large}};
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++)
        if (test_case(t, "decode/%s", cases[i].name)) cases[i].check(t, &b);
    if (test_case(t, "decode/told-by-name")) check_named(t);
    for (size_t i = 0; i < sizeof sounds / sizeof *sounds; i++)
        if (test_case(t, "decode/sound-%s", sounds[i].name)) check_sound(t, i, &b);
    if (test_case(t, "decode/resized-as-by-the-rule")) check_resize(t);
}
