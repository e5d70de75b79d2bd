/* gif.c - GIF files, by giflib: the first frame on its canvas, white where nothing is. Later frames
 * are not read. */
#include "base/error.h"
#include "media/decode/decode.h"

#include <gif_lib.h>
#include <string.h>

typedef struct reader {
    const uint8_t *data;
    size_t size, at;
    uint8_t *line; /* [width of the frame] */
    size_t n_line;
    int transparent; /* -1: none */
} reader;

static int take_bytes(GifFileType *gif, GifByteType *to, int n) {
    reader *r = gif->UserData;
    const size_t left = r->size - r->at, m = (size_t)n < left ? (size_t)n : left;
    memcpy(to, r->data + r->at, m);
    r->at += m;
    return (int)m;
}

/* Extensions up to the first frame's description. */
static bool find_frame(GifFileType *gif, reader *r) {
    GifRecordType type;
    GifByteType *block;
    int code;
    while (DGifGetRecordType(gif, &type) == GIF_OK) {
        if (type == IMAGE_DESC_RECORD_TYPE) return DGifGetImageDesc(gif) == GIF_OK;
        if (type != EXTENSION_RECORD_TYPE || DGifGetExtension(gif, &code, &block) != GIF_OK)
            return false;
        if (code == GRAPHICS_EXT_FUNC_CODE && block && block[0] >= 4)
            r->transparent = block[1] & 1 ? block[4] : -1;
        while (block)
            if (DGifGetExtensionNext(gif, &block) != GIF_OK) return false;
    }
    return false;
}

/* Row i of the file is this one of an interlaced frame. */
static uint32_t row_of(uint32_t i, uint32_t height) {
    static const uint32_t first[] = {0, 4, 2, 1}, step[] = {8, 8, 4, 2};
    for (int pass = 0; pass < 3; pass++) {
        const uint32_t n =
            height > first[pass] ? (height - first[pass] + step[pass] - 1) / step[pass] : 0;
        if (i < n) return first[pass] + i * step[pass];
        i -= n;
    }
    return first[3] + i * step[3];
}

static bool draw(GifFileType *gif, const reader *r, media_picture *out) {
    const GifImageDesc *frame = &gif->Image;
    const ColorMapObject *colors = frame->ColorMap ? frame->ColorMap : gif->SColorMap;
    const uint32_t width = (uint32_t)frame->Width, height = (uint32_t)frame->Height,
                   left = (uint32_t)frame->Left, top = (uint32_t)frame->Top;
    if (!colors) return false;
    for (uint32_t i = 0; i < height; i++) {
        if (DGifGetLine(gif, r->line, (int)width) != GIF_OK) return false;
        const uint32_t y = top + (frame->Interlace ? row_of(i, height) : i);
        for (uint32_t x = 0; y < out->height && x < width && left + x < out->width; x++) {
            const int c = r->line[x];
            if (c == r->transparent || c >= colors->ColorCount) continue;
            const GifColorType *color = &colors->Colors[c];
            uint8_t *to = out->rgb + ((size_t)y * out->width + left + x) * 3;
            to[0] = color->Red, to[1] = color->Green, to[2] = color->Blue;
        }
    }
    return true;
}

beryl_status media_decode_gif(base_heap *heap, const uint8_t *data, size_t size, media_picture *out,
                              beryl_error *error) {
    enum { PIXELS_OF_BYTE = 4096 }; /* a code of a table of 4096 is that long at most */
    reader r = {.data = data, .size = size, .transparent = -1};
    int code = 0;
    GifFileType *gif = DGifOpen(&r, take_bytes, &code);
    if (!gif)
        return code == D_GIF_ERR_NOT_ENOUGH_MEM
                   ? base_no_memory(error)
                   : base_fail(error, BERYL_BAD_FILE, "a damaged GIF file: its head");
    bool good = find_frame(gif, &r) && gif->Image.Width > 0 && gif->Image.Height > 0;
    beryl_status status = BERYL_OK;
    if (good && (uint64_t)gif->Image.Width * (uint64_t)gif->Image.Height > MEDIA_PIXELS_MAX)
        good = false;
    if (good)
        status = decode_take(heap, out, (uint32_t)gif->SWidth, (uint32_t)gif->SHeight, 3, size,
                             PIXELS_OF_BYTE, error);
    if (good && status == BERYL_OK) {
        memset(out->rgb, 255, (size_t)out->width * out->height * 3);
        r.n_line = (size_t)gif->Image.Width;
        r.line = base_heap_take(heap, r.n_line);
        if (!r.line) status = base_no_memory(error);
        else good = draw(gif, &r, out);
    }
    if (status == BERYL_OK && !good) {
        const char *why = GifErrorString(gif->Error);
        status = base_fail(error, BERYL_BAD_FILE, "a damaged GIF file: %s",
                           why ? why : "its first frame");
    }
    base_heap_give(heap, r.line, r.n_line);
    DGifCloseFile(gif, NULL);
    if (status != BERYL_OK) decode_drop(heap, out, 3);
    return status;
}
