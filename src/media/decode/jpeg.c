/* jpeg.c - JPEG files, by libjpeg(-turbo): baseline and progressive, grey, colour and CMYK, upright
 * as EXIF says. What is cut off or damaged is refused rather than shown grey. */
#include "base/error.h"
#include "media/decode/decode.h"

#include <setjmp.h>
#include <stdio.h>
#include <string.h>

#include <jerror.h>
#include <jpeglib.h>

enum {
    WORK_MAX = 1 << 30, /* bytes of coefficients of a progressive file */
    SCANS_MAX = 200,
    PIXELS_OF_BYTE = 512 /* a block of 64 is at least a bit */
};

typedef struct reader {
    struct jpeg_error_mgr manager;
    struct jpeg_progress_mgr progress;
    jmp_buf out;
    char message[JMSG_LENGTH_MAX];
    bool no_memory;
    uint8_t *line; /* [width, 4], of CMYK */
    size_t n_line;
    uint32_t orientation;
} reader;

static void leave(j_common_ptr c) {
    reader *r = (reader *)(void *)c->err;
    c->err->format_message(c, r->message);
    r->no_memory = c->err->msg_code == JERR_OUT_OF_MEMORY;
    longjmp(r->out, 1);
}

/* Warnings, and traces, which are passed over. */
static void warn(j_common_ptr c, int level) {
    if (level < 0 && (c->err->msg_code == JWRN_HIT_MARKER || c->err->msg_code == JWRN_JPEG_EOF ||
                      c->err->msg_code == JWRN_HUFF_BAD_CODE))
        leave(c);
}

static void watch(j_common_ptr c) {
    reader *r = (reader *)(void *)c->err;
    if (((j_decompress_ptr)(void *)c)->input_scan_number <= SCANS_MAX) return;
    snprintf(r->message, sizeof r->message, "more than %d scans", SCANS_MAX);
    longjmp(r->out, 1);
}

static uint32_t orientation_of(const struct jpeg_decompress_struct *d) {
    for (jpeg_saved_marker_ptr m = d->marker_list; m; m = m->next)
        if (m->data_length > 6 && !memcmp(m->data, "Exif\0\0", 6))
            return decode_orientation(m->data + 6, m->data_length - 6);
    return 1;
}

/* CMYK is stored inverted, 255 being no ink, as Adobe began and all others follow. */
static void from_cmyk(const uint8_t *from, uint8_t *to, uint32_t n) {
    for (uint32_t i = 0; i < n; i++, from += 4, to += 3)
        for (int c = 0; c < 3; c++) to[c] = (uint8_t)((from[c] * from[3] + 127) / 255);
}

static beryl_status read_all(struct jpeg_decompress_struct *d, base_heap *heap, reader *r,
                             const uint8_t *data, size_t size, media_picture *out,
                             beryl_error *error) {
    if (setjmp(r->out)) {
        if (r->no_memory) return base_no_memory(error);
        return base_fail(error, BERYL_BAD_FILE, "a damaged JPEG file: %.150s", r->message);
    }
    jpeg_create_decompress(d);
    d->mem->max_memory_to_use = WORK_MAX;
    r->progress.progress_monitor = watch;
    d->progress = &r->progress;
    jpeg_mem_src(d, data, size);
    jpeg_save_markers(d, JPEG_APP0 + 1, 0xffff);
    jpeg_read_header(d, TRUE);
    const bool cmyk = d->jpeg_color_space == JCS_CMYK || d->jpeg_color_space == JCS_YCCK;
    d->out_color_space = cmyk ? JCS_CMYK : JCS_RGB;
    beryl_status status =
        decode_take(heap, out, d->image_width, d->image_height, 3, size, PIXELS_OF_BYTE, error);
    if (status != BERYL_OK) return status;
    r->orientation = orientation_of(d);
    if (cmyk) {
        r->n_line = (size_t)out->width * 4;
        if (!(r->line = base_heap_take(heap, r->n_line))) return base_no_memory(error);
    }
    jpeg_start_decompress(d);
    while (d->output_scanline < d->output_height) {
        uint8_t *row = out->rgb + (size_t)d->output_scanline * out->width * 3,
                *to = cmyk ? r->line : row;
        jpeg_read_scanlines(d, &to, 1);
        if (cmyk) from_cmyk(r->line, row, out->width);
    }
    jpeg_finish_decompress(d);
    return BERYL_OK;
}

beryl_status media_decode_jpeg(base_heap *heap, const uint8_t *data, size_t size,
                               media_picture *out, beryl_error *error) {
    struct jpeg_decompress_struct d = {0};
    reader r = {0};
    d.err = jpeg_std_error(&r.manager);
    r.manager.error_exit = leave;
    r.manager.emit_message = warn;
    beryl_status status = read_all(&d, heap, &r, data, size, out, error);
    jpeg_destroy_decompress(&d);
    base_heap_give(heap, r.line, r.n_line);
    if (status == BERYL_OK) return decode_turn(heap, out, r.orientation, error);
    decode_drop(heap, out, 3);
    return status;
}
