/* file.h - files of pictures and sound: what they are by their first bytes, and who decodes them.
 *
 * Decoders of decode/ are functions by the names below, each built where its library is; WAV is
 * read by sound.c everywhere. What is known and not built in is refused by its name, with what
 * brings it. */
#ifndef MEDIA_FILE_H
#define MEDIA_FILE_H

#include "media/sound.h"

enum { MEDIA_PIXELS_MAX = 100000000 };

typedef struct media_picture {
    uint8_t *rgb; /* [height, width, 3], over white where it lets something through; of the heap */
    uint32_t width, height;
} media_picture;

typedef beryl_status media_picture_decoder(base_heap *heap, const uint8_t *data, size_t size,
                                           media_picture *out, beryl_error *error);
typedef beryl_status media_sound_decoder(base_heap *heap, const uint8_t *data, size_t size,
                                         const media_part *part, media_sound *out,
                                         beryl_error *error);

/* A picture's first frame, upright. Memory is bounded before it is taken: BAD_INPUT where there are
 * more than MEDIA_PIXELS_MAX. BAD_FILE: damaged, or no picture; UNSUPPORTED, NO_MEMORY. On failure
 * *out is empty. Libraries work in memory of their own. */
media_picture_decoder media_picture_read;
void media_picture_fini(base_heap *heap, media_picture *p);
/* A part of a sound file, its channels averaged. */
media_sound_decoder media_sound_read;

/* media_decode_NAME of each decoder that is built in. */
#define PICTURE_DECODER(name) media_picture_decoder media_decode_##name;
#define SOUND_DECODER(name) media_sound_decoder media_decode_##name;
#include "decoders.h"
#undef PICTURE_DECODER
#undef SOUND_DECODER

#endif
