/* png.c - PNG files, by libpng: every depth and colour, interlaced ones, alpha. Numbers are taken
 * as they are: neither gamma nor colour profiles are applied. */
#include "base/error.h"
#include "media/decode/decode.h"

#include <png.h>
#include <string.h>

typedef struct reader {
    const uint8_t *data;
    size_t size, at;
    char message[100];
    uint32_t n_channel;
    uint8_t **rows;
    size_t n_row;
} reader;

static void take_bytes(png_structp png, png_bytep to, size_t n) {
    reader *r = png_get_io_ptr(png);
    if (n > r->size - r->at) png_error(png, "it ends too early");
    memcpy(to, r->data + r->at, n);
    r->at += n;
}

static void fail(png_structp png, png_const_charp message) {
    reader *r = png_get_error_ptr(png);
    size_t n = strlen(message);
    if (n > sizeof r->message - 1) n = sizeof r->message - 1;
    memcpy(r->message, message, n);
    r->message[n] = 0;
    png_longjmp(png, 1);
}

static void ignore(png_structp png, png_const_charp message) {
    (void)png, (void)message;
}

/* Everything becomes 8 bits of red, green, blue and, where there is any, alpha. */
static beryl_status head(png_structp png, png_infop info, base_heap *heap, reader *r,
                         media_picture *out, beryl_error *error) {
    enum { DEFLATE_MOST = 1032 }; /* bytes of a byte at best */
    png_read_info(png, info);
    const uint32_t bits = (uint32_t)png_get_bit_depth(png, info) * png_get_channels(png, info);
    png_set_expand(png);
    png_set_scale_16(png);
    png_set_gray_to_rgb(png);
    png_set_interlace_handling(png);
    png_read_update_info(png, info);
    r->n_channel = png_get_channels(png, info);
    return decode_take(heap, out, png_get_image_width(png, info), png_get_image_height(png, info),
                       r->n_channel, r->size, DEFLATE_MOST * 8 / bits, error);
}

/* libpng leaves by longjmp: what is needed then lies in *r and *out. */
static beryl_status read_rows(png_structp png, png_infop info, base_heap *heap, reader *r,
                              media_picture *out, beryl_error *error) {
    if (setjmp(png_jmpbuf(png)))
        return base_fail(error, BERYL_BAD_FILE, "a damaged PNG file: %s", r->message);
    beryl_status status = head(png, info, heap, r, out, error);
    if (status != BERYL_OK) return status;
    r->n_row = out->height;
    r->rows = base_heap_take(heap, r->n_row * sizeof *r->rows);
    if (!r->rows) return base_no_memory(error);
    for (size_t y = 0; y < r->n_row; y++) r->rows[y] = out->rgb + y * out->width * r->n_channel;
    png_read_image(png, r->rows);
    png_read_end(png, info);
    return BERYL_OK;
}

beryl_status media_decode_png(base_heap *heap, const uint8_t *data, size_t size, media_picture *out,
                              beryl_error *error) {
    enum { CHUNK_MAX = 8 << 20 };
    reader r = {.data = data, .size = size};
    png_structp png = png_create_read_struct(PNG_LIBPNG_VER_STRING, &r, fail, ignore);
    png_infop info = png ? png_create_info_struct(png) : NULL;
    beryl_status status = BERYL_NO_MEMORY;
    uint32_t orientation = 1;
    if (info) {
        png_set_read_fn(png, &r, take_bytes);
        png_set_user_limits(png, 0x7fffffff, 0x7fffffff);
        png_set_chunk_malloc_max(png, CHUNK_MAX);
        status = read_rows(png, info, heap, &r, out, error);
    } else {
        base_fail(error, status, "out of host memory");
    }
    png_bytep exif = NULL;
    png_uint_32 n_exif = 0;
    if (status == BERYL_OK && png_get_eXIf_1(png, info, &n_exif, &exif))
        orientation = decode_orientation(exif, n_exif);
    if (png) png_destroy_read_struct(&png, &info, NULL);
    base_heap_give(heap, r.rows, r.n_row * sizeof *r.rows);
    if (status != BERYL_OK) decode_drop(heap, out, r.n_channel);
    else if (r.n_channel == 4) status = decode_flatten(heap, out, error);
    return status == BERYL_OK ? decode_turn(heap, out, orientation, error) : status;
}
