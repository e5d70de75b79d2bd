/* picture_bench.c - what a photograph of 12 megapixels costs before a tower sees it: decoding of a
 * baseline JPEG and resizing, beside libjpeg's own time to decode the same file, both on one core
 * and in processor time, in turns.
 *   picture_bench [BUDGET] */
#define _POSIX_C_SOURCE 200809L
#include "media/file.h"
#include "media/resize.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <time.h>

#if __has_include(<jpeglib.h>)
#include <jpeglib.h>

enum { WIDTH = 4000, HEIGHT = 3000, CHANNELS = 3, UNIT = 48, TURNS = 9, QUALITY = 90 };

static double seconds(void) {
    struct timespec t;
    clock_gettime(CLOCK_PROCESS_CPUTIME_ID, &t);
    return (double)t.tv_sec + 1e-9 * (double)t.tv_nsec;
}

/* Slow waves with some noise, about as many bytes as a camera's file. */
static void draw(uint8_t *rgb) {
    uint32_t state = 1;
    for (uint32_t y = 0; y < HEIGHT; y++)
        for (uint32_t x = 0; x < WIDTH; x++)
            for (uint32_t c = 0; c < CHANNELS; c++) {
                const double wave = sin(x * 0.011 + c) * cos(y * 0.007 * (c + 1)) * 80;
                state = state * 1664525 + 1013904223;
                *rgb++ = (uint8_t)(128 + wave + (double)(state >> 28) - 8);
            }
}

static uint8_t *encode(uint8_t *rgb, unsigned long *size) {
    struct jpeg_compress_struct c;
    struct jpeg_error_mgr manager;
    uint8_t *file = NULL;
    c.err = jpeg_std_error(&manager);
    jpeg_create_compress(&c);
    jpeg_mem_dest(&c, &file, size);
    c.image_width = WIDTH;
    c.image_height = HEIGHT;
    c.input_components = CHANNELS;
    c.in_color_space = JCS_RGB;
    jpeg_set_defaults(&c);
    jpeg_set_quality(&c, QUALITY, TRUE);
    jpeg_start_compress(&c, TRUE);
    for (uint32_t y = 0; y < HEIGHT; y++) {
        JSAMPROW row = rgb + (size_t)y * WIDTH * CHANNELS;
        jpeg_write_scanlines(&c, &row, 1);
    }
    jpeg_finish_compress(&c);
    jpeg_destroy_compress(&c);
    return file;
}

/* As little as a program can do with it, in memory that it takes for it. */
static double decode_alone(const uint8_t *file, unsigned long size) {
    struct jpeg_decompress_struct d;
    struct jpeg_error_mgr manager;
    const double began = seconds();
    uint8_t *rgb = malloc((size_t)WIDTH * HEIGHT * CHANNELS);
    if (!rgb) return 0;
    d.err = jpeg_std_error(&manager);
    jpeg_create_decompress(&d);
    jpeg_mem_src(&d, file, size);
    jpeg_read_header(&d, TRUE);
    d.out_color_space = JCS_RGB;
    jpeg_start_decompress(&d);
    while (d.output_scanline < d.output_height) {
        JSAMPROW row = rgb + (size_t)d.output_scanline * WIDTH * CHANNELS;
        jpeg_read_scanlines(&d, &row, 1);
    }
    jpeg_finish_decompress(&d);
    jpeg_destroy_decompress(&d);
    free(rgb);
    return seconds() - began;
}

static int later(const void *a, const void *b) {
    const double x = *(const double *)a, y = *(const double *)b;
    return (x > y) - (x < y);
}

static double median(double *x) {
    qsort(x, TURNS, sizeof *x, later);
    return x[TURNS / 2] * 1e3;
}

int main(int argc, char **argv) {
    const uint32_t budget = argc > 1 ? (uint32_t)atoi(argv[1]) : 280;
    const size_t bytes = (size_t)WIDTH * HEIGHT * CHANNELS;
    uint8_t *rgb = malloc(bytes);
    unsigned long size = 0;
    uint32_t width, height;
    double alone[TURNS], decode[TURNS], resize[TURNS], more[TURNS];
    base_heap heap;
    base_heap_init(&heap, NULL);
    media_fit(WIDTH, HEIGHT, UNIT, budget ? budget : 1, &width, &height);
    uint8_t *to = malloc((size_t)width * height * CHANNELS);
    if (!rgb || !to) return 1;
    draw(rgb);
    uint8_t *file = encode(rgb, &size);
    for (int i = 0; i < TURNS; i++) {
        media_picture picture;
        beryl_error error = {0};
        alone[i] = decode_alone(file, size);
        const double began = seconds();
        beryl_status status = media_picture_read(&heap, file, size, &picture, &error);
        const double between = seconds();
        if (status == BERYL_OK)
            status =
                media_resize(&heap, picture.rgb, picture.width, picture.height, to, width, height);
        const double ended = seconds();
        if (status != BERYL_OK) {
            fprintf(stderr, "picture_bench: %s\n", error.message);
            return 1;
        }
        media_picture_fini(&heap, &picture);
        decode[i] = between - began;
        resize[i] = ended - between;
        more[i] = ended - began - alone[i];
    }
    printf("%d x %d, %.1f MB of baseline JPEG, to %u x %u; medians of %d turns, processor time\n",
           WIDTH, HEIGHT, 1e-6 * (double)size, width, height, TURNS);
    printf("libjpeg alone %.1f ms; read %.1f ms, resized %.1f ms: %.1f ms more\n", median(alone),
           median(decode), median(resize), median(more));
    free(file);
    free(to);
    free(rgb);
    return 0;
}

#else

int main(void) {
    puts("picture_bench: built without libjpeg");
    return 0;
}

#endif
