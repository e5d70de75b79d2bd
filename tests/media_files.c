/* media_files.c - see media_files.h. */
#include "media_files.h"

#include <png.h>
#include <stdio.h>
#include <stdlib.h>

uint8_t *media_picture(test *t, const char *file, uint32_t *width, uint32_t *height) {
    png_image png = {.version = PNG_IMAGE_VERSION};
    uint8_t *rgb = NULL;
    if (png_image_begin_read_from_file(&png, test_data(t, file))) {
        png.format = PNG_FORMAT_RGB;
        rgb = malloc(PNG_IMAGE_SIZE(png));
        if (rgb && !png_image_finish_read(&png, NULL, rgb, 0, NULL)) {
            free(rgb);
            rgb = NULL;
        }
    }
    if (!rgb) test_fail(t, __FILE__, __LINE__, "%s: %s", file, png.message);
    *width = png.width;
    *height = png.height;
    png_image_free(&png);
    return rgb;
}

float *media_clip(test *t, const char *file, uint32_t *n) {
    static unsigned char bytes[1 << 17];
    FILE *in = fopen(test_data(t, file), "rb");
    const size_t size = in ? fread(bytes, 1, sizeof bytes, in) : 0;
    float *samples = size > 44 ? malloc((size - 44) / 2 * sizeof *samples) : NULL;
    if (in) fclose(in);
    *n = 0;
    if (!samples) test_fail(t, __FILE__, __LINE__, "%s is no clip", file);
    for (size_t i = 44; samples && i + 1 < size; i += 2)
        samples[(*n)++] = (float)(int16_t)(bytes[i] | bytes[i + 1] << 8) / 32768;
    return samples;
}
