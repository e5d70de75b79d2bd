/* decode.h - what decoders of pictures share. One file each; data is never trusted, and what a
 * head claims is compared with the file's size before memory is taken. */
#ifndef MEDIA_DECODE_H
#define MEDIA_DECODE_H

#include "media/file.h"

/* Takes [height, width, n_channel] bytes into out->rgb, which decoders make [.., 3] in the end;
 * out's sizes are set. `most` pixels a byte of the file can be at best (0: any number). */
beryl_status decode_take(base_heap *heap, media_picture *out, uint32_t width, uint32_t height,
                         uint32_t n_channel, size_t size, uint32_t most, beryl_error *error);
/* Gives back what decode_take took with so many channels. */
void decode_drop(base_heap *heap, media_picture *p, uint32_t n_channel);
/* Red, green, blue and alpha, in place, as three over white. NO_MEMORY: dropped. */
beryl_status decode_flatten(base_heap *heap, media_picture *p, beryl_error *error);
/* Upright: orientation as EXIF has it, 1 to 8 (others: as it is). NO_MEMORY: as it was. */
beryl_status decode_turn(base_heap *heap, media_picture *p, uint32_t orientation,
                         beryl_error *error);
/* Of EXIF data, from its TIFF head on; 1 where it says none. */
uint32_t decode_orientation(const uint8_t *exif, size_t size);

#endif
