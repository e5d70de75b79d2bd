/* file.c - see file.h. */
#include "media/file.h"

#include "base/error.h"

#include <string.h>

static const struct {
    const char *name;
    media_picture_decoder *picture;
    media_sound_decoder *sound;
} built[] = {
#define PICTURE_DECODER(name) {#name, media_decode_##name, NULL},
#define SOUND_DECODER(name) {#name, NULL, media_decode_##name},
#include "decoders.h"
#undef PICTURE_DECODER
#undef SOUND_DECODER
    {NULL, NULL, NULL}};

typedef enum kind_use { PICTURE, SOUND } kind_use;

/* What a file is: bytes at a place. Longer signatures stand before shorter ones. */
typedef struct kind {
    const char *name;
    uint8_t at, n;
    const char *bytes;
    kind_use use;
    const char *decoder, *library, *package; /* decoder NULL: not read */
} kind;

#define SNDFILE "sndfile", "libsndfile", "libsndfile1-dev"
#define NOT_READ NULL, NULL, NULL
static const kind kinds[] = {
    {"PNG", 0, 8, "\x89PNG\r\n\x1a\n", PICTURE, "png", "libpng", "libpng-dev"},
    {"JPEG", 0, 3, "\xff\xd8\xff", PICTURE, "jpeg", "libjpeg", "libjpeg62-turbo-dev"},
    {"WebP", 8, 4, "WEBP", PICTURE, "webp", "libwebp", "libwebp-dev"},
    {"GIF", 0, 4, "GIF8", PICTURE, "gif", "giflib", "libgif-dev"},
    {"WAV", 8, 4, "WAVE", SOUND, SNDFILE},
    {"FLAC", 0, 4, "fLaC", SOUND, SNDFILE},
    {"Ogg", 0, 4, "OggS", SOUND, SNDFILE},
    {"MP3", 0, 3, "ID3", SOUND, SNDFILE},
    {"AIFF", 8, 4, "AIFF", SOUND, SNDFILE},
    {"AIFF", 8, 4, "AIFC", SOUND, SNDFILE},
    {"CAF", 0, 4, "caff", SOUND, SNDFILE},
    {"TIFF", 0, 4, "II*\0", PICTURE, NOT_READ},
    {"TIFF", 0, 4, "MM\0*", PICTURE, NOT_READ},
    {"AVIF", 4, 8, "ftypavif", PICTURE, NOT_READ},
    {"HEIC", 4, 7, "ftyphei", PICTURE, NOT_READ},
    {"HEIC", 4, 8, "ftypmif1", PICTURE, NOT_READ},
    {"JPEG XL", 0, 2, "\xff\x0a", PICTURE, NOT_READ},
    {"JPEG XL", 4, 8, "JXL \r\n\x87\n", PICTURE, NOT_READ},
    {"MP4 (M4A)", 4, 4, "ftyp", SOUND, NOT_READ},
    {"BMP", 0, 2, "BM", PICTURE, "bmp", "decoder of it", "none"},
};

static const kind *kind_of(const uint8_t *p, size_t size) {
    static const kind mp3 = {"MP3", 0, 0, "", SOUND, SNDFILE};
    for (size_t i = 0; i < sizeof kinds / sizeof *kinds; i++)
        if (size >= (size_t)kinds[i].at + kinds[i].n &&
            !memcmp(p + kinds[i].at, kinds[i].bytes, kinds[i].n))
            return &kinds[i];
    /* A frame without a head before it: 11 bits that are set, and a layer. */
    return size >= 4 && p[0] == 0xff && (p[1] & 0xe0) == 0xe0 && p[1] & 6 ? &mp3 : NULL;
}

/* Index into built; its end: refused. */
static size_t decoder_of(const kind *k, kind_use use, beryl_error *error, beryl_status *status) {
    static const char *const uses[] = {"picture", "sound"};
    size_t i = 0;
    *status = BERYL_OK;
    while (built[i].name && (!k || !k->decoder || strcmp(built[i].name, k->decoder))) i++;
    if (k && k->use == use && built[i].name) return i;
    while (built[i].name) i++;
    *status = !k ? BERYL_BAD_FILE : BERYL_UNSUPPORTED;
    if (!k) base_fail(error, *status, "not a %s file of a known format", uses[use]);
    else if (k->use != use)
        base_fail(error, *status, "a %s file is not a %s file", k->name, uses[use]);
    else if (!k->decoder)
        base_fail(error, *status, "%s files are not read: convert it to %s", k->name,
                  use == SOUND ? "WAV or FLAC" : "PNG or JPEG");
    else
        base_fail(error, *status, "a %s file: this build has no %s (Debian: %s)", k->name,
                  k->library, k->package);
    return i;
}

beryl_status media_picture_read(base_heap *heap, const uint8_t *data, size_t size,
                                media_picture *out, beryl_error *error) {
    beryl_status status;
    *out = (media_picture){0};
    const size_t i = decoder_of(kind_of(data, size), PICTURE, error, &status);
    if (status == BERYL_OK) status = built[i].picture(heap, data, size, out, error);
    if (status != BERYL_OK) media_picture_fini(heap, out);
    return status;
}

void media_picture_fini(base_heap *heap, media_picture *p) {
    base_heap_give(heap, p->rgb, (size_t)p->width * p->height * 3);
    *p = (media_picture){0};
}

/* WAV files of kinds that sound.c does not read are the library's, where it is. */
beryl_status media_sound_read(base_heap *heap, const uint8_t *data, size_t size,
                              const media_part *part, media_sound *out, beryl_error *error) {
    const kind *k = kind_of(data, size);
    beryl_status status = BERYL_UNSUPPORTED, missing;
    *out = (media_sound){0};
    const bool wav = k && k->use == SOUND && !strcmp(k->name, "WAV");
    if (wav) status = media_wav_read(heap, data, size, part, out, error);
    if (status != BERYL_UNSUPPORTED) return status;
    const size_t i = decoder_of(k, SOUND, wav ? NULL : error, &missing);
    return missing == BERYL_OK ? built[i].sound(heap, data, size, part, out, error) : missing;
}
