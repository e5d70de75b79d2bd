/* picture_png.c - PNG files, by libpng. */
#include "picture.h"

#include "base/error.h"

#include <png.h>
#include <string.h>

static beryl_status refuse_kind(const unsigned char *p, size_t size, beryl_error *error) {
    static const struct {
        const char *begin, *name;
        size_t at, n;
    } kinds[] = {{"\xff\xd8\xff", "JPEG", 0, 3},
                 {"WEBP", "WebP", 8, 4},
                 {"GIF8", "GIF", 0, 4},
                 {"BM", "BMP", 0, 2}};
    for (size_t i = 0; i < sizeof kinds / sizeof *kinds; i++)
        if (size >= kinds[i].at + kinds[i].n &&
            !memcmp(p + kinds[i].at, kinds[i].begin, kinds[i].n))
            return base_fail(error, BERYL_UNSUPPORTED, "a %s file: pictures are PNG files",
                             kinds[i].name);
    return base_fail(error, BERYL_BAD_FILE, "no picture that is known: pictures are PNG files");
}

beryl_status picture_read(base_heap *heap, const void *data, size_t size, picture *out,
                          beryl_error *error) {
    png_image png = {.version = PNG_IMAGE_VERSION};
    const png_color white = {255, 255, 255};
    *out = (picture){0};
    if (size < 8 || png_sig_cmp(data, 0, 8)) return refuse_kind(data, size, error);
    if (!png_image_begin_read_from_memory(&png, data, size))
        return base_fail(error, BERYL_BAD_FILE, "a damaged PNG file: %s", png.message);
    beryl_status status = BERYL_OK;
    if ((uint64_t)png.width * png.height > PICTURE_PIXELS_MAX)
        status = base_fail(error, BERYL_BAD_INPUT, "a picture of %u x %u pixels is too large",
                           png.width, png.height);
    png.format = PNG_FORMAT_RGB;
    out->width = png.width;
    out->height = png.height;
    if (!status) {
        out->rgb = base_heap_take(heap, (size_t)png.width * png.height * 3);
        if (!out->rgb) status = base_fail(error, BERYL_NO_MEMORY, "out of host memory");
    }
    if (!status && !png_image_finish_read(&png, &white, out->rgb, 0, NULL))
        status = base_fail(error, BERYL_BAD_FILE, "a damaged PNG file: %s", png.message);
    png_image_free(&png);
    if (status) picture_free(heap, out);
    return status;
}

void picture_free(base_heap *heap, picture *p) {
    base_heap_give(heap, p->rgb, (size_t)p->width * p->height * 3);
    *p = (picture){0};
}
