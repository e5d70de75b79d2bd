/* webp.c - WebP files, by libwebp: lossy, lossless, alpha; of an animation the first frame, on its
 * canvas. Container: https://developers.google.com/speed/webp/docs/riff_container */
#include "base/error.h"
#include "media/decode/decode.h"

#include <string.h>
#include <webp/decode.h>

static uint32_t number(const uint8_t *p, size_t n) {
    uint32_t x = 0;
    for (size_t i = 0; i < n; i++) x |= (uint32_t)p[i] << 8 * i;
    return x;
}

/* The first chunk of this name, after the file's head; NULL: none. */
static const uint8_t *chunk(const uint8_t *p, size_t size, const char *name, size_t *n) {
    for (size_t at = 12; at < size && size - at >= 8;) {
        const size_t left = size - at - 8, said = number(p + at + 4, 4);
        *n = said < left ? said : left;
        if (!memcmp(p + at, name, 4)) return p + at + 8;
        at += 8 + *n + (*n & 1);
    }
    return NULL;
}

typedef struct place { /* of a frame on its canvas */
    uint32_t x, y, width, height;
} place;

static beryl_status decode(base_heap *heap, const uint8_t *data, size_t size, const place *canvas,
                           media_picture *out, beryl_error *error) {
    WebPDecoderConfig config;
    if (!WebPInitDecoderConfig(&config) ||
        WebPGetFeatures(data, size, &config.input) != VP8_STATUS_OK)
        return base_fail(error, BERYL_BAD_FILE, "a damaged WebP file");
    const uint32_t width = (uint32_t)config.input.width, height = (uint32_t)config.input.height;
    const bool alpha = config.input.has_alpha || canvas->width;
    const uint32_t channels = alpha ? 4 : 3;
    const place at = canvas->width ? *canvas : (place){0, 0, width, height};
    if (at.x > at.width || width > at.width - at.x || at.y > at.height || height > at.height - at.y)
        return base_fail(error, BERYL_BAD_FILE, "a damaged WebP file: a frame beside its canvas");
    beryl_status status = decode_take(heap, out, at.width, at.height, channels, size, 0, error);
    if (status != BERYL_OK) return status;
    const size_t row = (size_t)at.width * channels, first = at.y * row + (size_t)at.x * channels;
    config.output.colorspace = alpha ? MODE_RGBA : MODE_RGB;
    config.output.is_external_memory = 1;
    config.output.u.RGBA.rgba = out->rgb + first;
    config.output.u.RGBA.stride = (int)row;
    config.output.u.RGBA.size = row * at.height - first;
    const VP8StatusCode code = WebPDecode(data, size, &config);
    WebPFreeDecBuffer(&config.output);
    if (code == VP8_STATUS_OK) return alpha ? decode_flatten(heap, out, error) : BERYL_OK;
    decode_drop(heap, out, channels);
    if (code == VP8_STATUS_OUT_OF_MEMORY) return base_no_memory(error);
    return base_fail(error, BERYL_BAD_FILE, "a damaged WebP file%s",
                     code == VP8_STATUS_NOT_ENOUGH_DATA ? ": it ends too early" : "");
}

beryl_status media_decode_webp(base_heap *heap, const uint8_t *data, size_t size,
                               media_picture *out, beryl_error *error) {
    enum { FRAME_HEAD = 16 };
    size_t n = 0, n_canvas = 0;
    const uint8_t *frame = chunk(data, size, "ANMF", &n),
                  *canvas = chunk(data, size, "VP8X", &n_canvas);
    if (frame && (n < FRAME_HEAD || !canvas || n_canvas < 10))
        return base_fail(error, BERYL_BAD_FILE, "a damaged WebP file: a frame without its head");
    if (frame) {
        const place at = {2 * number(frame, 3), 2 * number(frame + 3, 3), 1 + number(canvas + 4, 3),
                          1 + number(canvas + 7, 3)};
        return decode(heap, frame + FRAME_HEAD, n - FRAME_HEAD, &at, out, error);
    }
    beryl_status status = decode(heap, data, size, &(place){0}, out, error);
    const uint8_t *exif = status == BERYL_OK ? chunk(data, size, "EXIF", &n) : NULL;
    if (exif && n > 6 && !memcmp(exif, "Exif\0\0", 6)) exif += 6, n -= 6;
    return exif ? decode_turn(heap, out, decode_orientation(exif, n), error) : status;
}
