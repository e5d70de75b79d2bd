/* sound_fuzz.c - WAV files and all that libsndfile reads, and what is made of them at 16 kHz. */
#include "media/file.h"

#include <stdlib.h>

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size) {
    enum { RATE = 16000, SAMPLES_MAX = 4000 };
    const media_part part = {0, 1 << 16, RATE};
    base_heap heap;
    beryl_error error = {0};
    media_sound sound, other = {0};
    base_heap_init(&heap, NULL);
    const beryl_status status = media_sound_read(&heap, data, size, &part, &sound, &error);
    if (status != BERYL_OK && (sound.samples || !error.message[0])) abort();
    if (status == BERYL_OK && sound.n < SAMPLES_MAX && sound.rate % 25 == 0)
        media_resample(&heap, &sound, RATE, &other, &error);
    base_heap_give(&heap, other.samples, other.n * sizeof *other.samples);
    base_heap_give(&heap, sound.samples, sound.n * sizeof *sound.samples);
    if (heap.bytes) abort();
    return 0;
}
