/* sound.h - sound as models take it: WAV files, and other rates. */
#ifndef MEDIA_SOUND_H
#define MEDIA_SOUND_H

#include "base/memory.h"

enum { MEDIA_RATE_MIN = 1000, MEDIA_RATE_MAX = 768000 };

typedef struct media_sound {
    float *samples; /* [n], one channel, -1 to 1; of the heap: n * 4 bytes */
    size_t n;
    uint32_t rate; /* samples a second */
} media_sound;

/* A WAV file in memory (RIFF; PCM of 8 to 32 bits, floats of 32 and 64), its channels averaged. A
 * data chunk that says more than there is ends with the file, as recorders that were stopped leave
 * it. BAD_FILE, UNSUPPORTED with what it is instead; NO_MEMORY. */
beryl_status media_wav_read(base_heap *heap, const void *data, size_t size, media_sound *out,
                            beryl_error *error);
/* The same sound at another rate, by a windowed sinc: what lies above half of the lower rate is
 * 80 dB down and more. The caller gives both back. Rates MEDIA_RATE_MIN .. MEDIA_RATE_MAX.
 * UNSUPPORTED: two rates that have too little in common; NO_MEMORY. */
beryl_status media_resample(base_heap *heap, const media_sound *in, uint32_t rate, media_sound *out,
                            beryl_error *error);

#endif
