/* sound.h - sound as models take it: WAV files, and other rates. */
#ifndef MEDIA_SOUND_H
#define MEDIA_SOUND_H

#include "base/memory.h"

enum { MEDIA_RATE_MIN = 1000, MEDIA_RATE_MAX = 768000 };

typedef struct media_sound {
    float *samples; /* [n], one channel, -1 to 1; of the heap: n * 4 bytes */
    size_t n;
    uint32_t rate;   /* samples a second */
    uint64_t n_rest; /* of the file, after these */
} media_sound;

/* Which samples of a file: from `first` on, up to `most`, counted at `rate`. NULL: all of them. */
typedef struct media_part {
    uint64_t first, most;
    uint32_t rate;
} media_part;
/* The same at a file's rate. */
typedef struct media_window {
    uint64_t first, most;
} media_window;
media_window media_window_of(const media_part *part, uint32_t rate);

/* Of a WAV file in memory (RIFF; PCM of 8 to 32 bits, floats of 32 and 64), its channels
 * averaged. A data chunk that says more than there is ends with the file, as recorders that were
 * stopped leave it. BAD_FILE, UNSUPPORTED with what it is instead; NO_MEMORY. */
beryl_status media_wav_read(base_heap *heap, const void *data, size_t size, const media_part *part,
                            media_sound *out, beryl_error *error);
/* The same sound at another rate, by a windowed sinc: what lies above half of the lower rate is
 * 80 dB down and more. The caller gives both back. Rates MEDIA_RATE_MIN .. MEDIA_RATE_MAX.
 * UNSUPPORTED: two rates that have too little in common; NO_MEMORY. */
beryl_status media_resample(base_heap *heap, const media_sound *in, uint32_t rate, media_sound *out,
                            beryl_error *error);

#endif
