/* sndfile.c - FLAC, Ogg (Vorbis, Opus), MP3, AIFF and WAV of rarer kinds, by libsndfile, from
 * memory. */
#include "base/error.h"
#include "media/file.h"

#include <sndfile.h>
#include <string.h>

enum { CHANNELS_MAX = 64, BLOCK = 4096 };

typedef struct reader {
    const uint8_t *data;
    sf_count_t size, at;
} reader;

static sf_count_t length(void *user) {
    return ((reader *)user)->size;
}

static sf_count_t seek(sf_count_t offset, int whence, void *user) {
    reader *r = user;
    const sf_count_t from = whence == SEEK_SET ? 0 : whence == SEEK_CUR ? r->at : r->size;
    if (offset < -from || offset > r->size - from) return -1;
    return r->at = from + offset;
}

static sf_count_t take_bytes(void *to, sf_count_t n, void *user) {
    reader *r = user;
    if (n > r->size - r->at) n = r->size - r->at;
    if (n <= 0) return 0;
    memcpy(to, r->data + r->at, (size_t)n);
    r->at += n;
    return n;
}

static sf_count_t give_bytes(const void *from, sf_count_t n, void *user) {
    (void)from, (void)n, (void)user;
    return 0;
}

static sf_count_t tell(void *user) {
    return ((reader *)user)->at;
}

/* Averages channels into samples, a block at a time; memory grows with what there is. */
static beryl_status read_blocks(SNDFILE *file, const SF_INFO *info, base_heap *heap,
                                const media_window *w, media_sound *out, beryl_error *error) {
    const uint32_t channels = (uint32_t)info->channels;
    const size_t bytes = (size_t)BLOCK * channels * sizeof(float);
    base_vec(float) samples = {0};
    float *block = base_heap_take(heap, bytes);
    bool failed = !block;
    sf_count_t got = BLOCK;
    uint64_t at = 0;
    /* In MP3 files a seek ends near the place alone. */
    const int form = info->format & SF_FORMAT_TYPEMASK;
    if (w->first && info->seekable && form != SF_FORMAT_MPEG && w->first < (uint64_t)info->frames &&
        sf_seek(file, (sf_count_t)w->first, SEEK_SET) == (sf_count_t)w->first)
        at = w->first;
    while (!failed && got == BLOCK && at < w->first + w->most) {
        got = sf_readf_float(file, block, BLOCK);
        if (got < 0 || got > BLOCK) got = 0;
        failed = !base_vec_reserve(heap, &samples, (size_t)got);
        for (sf_count_t i = 0; !failed && i < got; i++, at++) {
            if (at < w->first || at >= w->first + w->most) continue;
            double sum = 0;
            for (uint32_t c = 0; c < channels; c++) sum += (double)block[(size_t)i * channels + c];
            samples.data[samples.count++] = (float)(sum / channels);
        }
    }
    base_heap_give(heap, block, bytes);
    if (!failed && samples.count) {
        out->samples = base_heap_resize(heap, samples.data, samples.capacity * sizeof(float),
                                        samples.count * sizeof(float));
        failed = !out->samples;
        if (!failed) out->n = samples.count;
    }
    if (failed || !samples.count) base_vec_fini(heap, &samples);
    const uint64_t said = info->frames > 0 ? (uint64_t)info->frames : 0, end = w->first + w->most;
    out->n_rest = got == BLOCK && said > end ? said - end : 0;
    return failed ? base_no_memory(error) : BERYL_OK;
}

beryl_status media_decode_sndfile(base_heap *heap, const uint8_t *data, size_t size,
                                  const media_part *part, media_sound *out, beryl_error *error) {
    static const SF_VIRTUAL_IO io = {length, seek, take_bytes, give_bytes, tell};
    reader r = {data, (sf_count_t)size, 0};
    SF_INFO info = {0};
    SNDFILE *file = sf_open_virtual((SF_VIRTUAL_IO *)(uintptr_t)&io, SFM_READ, &info, &r);
    if (!file)
        return base_fail(error, BERYL_BAD_FILE, "a sound file that cannot be read: %s",
                         sf_strerror(NULL));
    beryl_status status = BERYL_OK;
    if (info.channels < 1 || info.channels > CHANNELS_MAX || info.samplerate < MEDIA_RATE_MIN ||
        info.samplerate > MEDIA_RATE_MAX)
        status = base_fail(error, BERYL_UNSUPPORTED, "a sound file of %d channels at %d Hz",
                           info.channels, info.samplerate);
    if (status == BERYL_OK) {
        out->rate = (uint32_t)info.samplerate;
        const media_window window = media_window_of(part, out->rate);
        status = read_blocks(file, &info, heap, &window, out, error);
    }
    sf_close(file);
    return status;
}
