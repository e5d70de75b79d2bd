/* sound.c - see sound.h. Format: "Multimedia Programming Interface and Data Specifications 1.0"
 * (RIFF, WAVE), Microsoft's extension for WAVE_FORMAT_EXTENSIBLE. */
#include "media/sound.h"

#include "base/error.h"

#include <math.h>
#include <string.h>

/* ---- WAV ------------------------------------------------------------------------------------- */

enum { PCM = 1, FLOATS = 3, EXTENSIBLE = 0xfffe, CHANNELS_MAX = 64 };

typedef struct wav {
    uint32_t format, channels, rate, bits, bytes; /* bytes: of a sample of one channel */
    const uint8_t *data;
    size_t n; /* bytes of data */
} wav;

static uint32_t u16(const uint8_t *p) {
    return (uint32_t)p[0] | (uint32_t)p[1] << 8;
}

static uint32_t u32(const uint8_t *p) {
    return u16(p) | u16(p + 2) << 16;
}

/* The chunks "fmt " and "data". */
static beryl_status find_chunks(const uint8_t *p, size_t size, wav *w, beryl_error *error) {
    if (size < 12 || memcmp(p, "RIFF", 4) || memcmp(p + 8, "WAVE", 4))
        return base_fail(error, BERYL_BAD_FILE, "no WAV file");
    for (size_t at = 12; at + 8 <= size && !w->data;) {
        const size_t left = size - at - 8, said = u32(p + at + 4), n = said < left ? said : left;
        const uint8_t *chunk = p + at + 8;
        if (!memcmp(p + at, "fmt ", 4) && n >= 16) {
            w->format = u16(chunk);
            w->channels = u16(chunk + 2);
            w->rate = u32(chunk + 4);
            w->bits = u16(chunk + 14);
            if (w->format == EXTENSIBLE && n >= 26) w->format = u16(chunk + 24);
        } else if (!memcmp(p + at, "data", 4)) {
            w->data = chunk;
            w->n = n;
        }
        at += 8 + n + (n & 1);
    }
    if (!w->data || !w->channels)
        return base_fail(error, BERYL_BAD_FILE, "a WAV file without %s",
                         w->channels ? "data" : "its format");
    return BERYL_OK;
}

static float sample_at(const wav *w, const uint8_t *p) {
    float single;
    double wide;
    int32_t x = 0;
    if (w->format == FLOATS) {
        memcpy(&single, p, sizeof single);
        if (w->bits == 32) return single;
        memcpy(&wide, p, sizeof wide);
        return (float)wide;
    }
    if (w->bytes == 1) return ((float)p[0] - 128) / 128;
    for (uint32_t i = 0; i < w->bytes; i++)
        x |= (int32_t)((uint32_t)p[i] << 8 * (4 - w->bytes + i));
    return (float)((double)x / 2147483648.0);
}

media_window media_window_of(const media_part *part, uint32_t rate) {
    if (!part) return (media_window){0, UINT64_MAX / 2};
    if (part->first > (uint64_t)1 << 40) return (media_window){UINT64_MAX / 2, 0};
    return (media_window){part->first * rate / part->rate,
                          (part->most * rate + part->rate - 1) / part->rate};
}

beryl_status media_wav_read(base_heap *heap, const void *data, size_t size, const media_part *part,
                            media_sound *out, beryl_error *error) {
    wav w = {0};
    *out = (media_sound){0};
    beryl_status status = find_chunks(data, size, &w, error);
    if (status != BERYL_OK) return status;
    const bool plain = w.format == PCM && w.bits >= 8 && w.bits <= 32,
               floats = w.format == FLOATS && (w.bits == 32 || w.bits == 64);
    if (!plain && !floats)
        return base_fail(error, BERYL_UNSUPPORTED, "a WAV file of format %u with %u bits", w.format,
                         w.bits);
    if (w.channels > CHANNELS_MAX || w.rate < MEDIA_RATE_MIN || w.rate > MEDIA_RATE_MAX)
        return base_fail(error, BERYL_UNSUPPORTED, "a WAV file of %u channels at %u Hz", w.channels,
                         w.rate);
    w.bytes = (w.bits + 7) / 8;
    const size_t each = (size_t)w.bytes * w.channels;
    out->rate = w.rate;
    const uint64_t n = w.n / each;
    media_window window = media_window_of(part, w.rate);
    if (window.first > n) window.first = n;
    if (window.most > n - window.first) window.most = n - window.first;
    w.data += window.first * each;
    out->n = (size_t)window.most;
    out->n_rest = n - window.first - window.most;
    out->samples = base_heap_take(heap, out->n * sizeof *out->samples);
    if (!out->samples && out->n) return base_no_memory(error);
    for (size_t i = 0; i < out->n; i++) {
        double sum = 0;
        for (uint32_t c = 0; c < w.channels; c++)
            sum += (double)sample_at(&w, w.data + i * each + c * w.bytes);
        out->samples[i] = (float)(sum / w.channels);
    }
    return BERYL_OK;
}

/* ---- other rates ----------------------------------------------------------------------------- */

/* Kaiser's window: 90 dB of attenuation, and as many zeros of the sinc on each side that the
 * transition takes a tenth of the band. */
enum { ZEROS = 32, WEIGHTS_MAX = 1 << 22 };
#define BETA 8.96
#define PI 3.14159265358979323846

static double bessel0(double x) {
    double sum = 1, term = 1;
    for (int k = 1; k < 64 && term > sum * 1e-17; k++) sum += term *= (x / (2 * k)) * (x / (2 * k));
    return sum;
}

/* x in samples of the lower rate, times what keeps the transition below its half. */
static double kernel(double x, double cutoff) {
    const double inside = 1 - (x / ZEROS) * (x / ZEROS), at = PI * x * cutoff;
    if (inside <= 0) return 0;
    return (at == 0 ? 1 : sin(at) / at) * cutoff * bessel0(BETA * sqrt(inside)) / bessel0(BETA);
}

static uint32_t common_divisor(uint32_t a, uint32_t b) {
    while (b) {
        const uint32_t rest = a % b;
        a = b;
        b = rest;
    }
    return a;
}

beryl_status media_resample(base_heap *heap, const media_sound *in, uint32_t rate, media_sound *out,
                            beryl_error *error) {
    /* Result i lies at i * step / phases of the input: its phase says which weights it takes. */
    const uint32_t divisor = common_divisor(in->rate, rate), phases = rate / divisor,
                   step = in->rate / divisor;
    const double lower = in->rate > rate ? (double)rate / in->rate : 1, cutoff = 0.91;
    const uint32_t reach = (uint32_t)ceil(ZEROS / lower), taps = 2 * reach;
    const uint64_t n = ((uint64_t)in->n * rate + in->rate - 1) / in->rate;
    *out = (media_sound){0};
    if ((uint64_t)phases * taps > WEIGHTS_MAX)
        return base_fail(error, BERYL_UNSUPPORTED, "sound at %u Hz made into %u Hz", in->rate,
                         rate);
    const size_t bytes = (size_t)phases * taps * sizeof(float);
    *out = (media_sound){.rate = rate, .n = (size_t)n};
    float *weights = n > UINT32_MAX ? NULL : base_heap_take(heap, bytes);
    if (weights) out->samples = base_heap_take(heap, out->n * sizeof *out->samples);
    if (!out->samples && n) {
        base_heap_give(heap, weights, bytes);
        return base_no_memory(error);
    }
    for (uint32_t p = 0; p < phases; p++)
        for (uint32_t k = 0; k < taps; k++) {
            const double away = (double)k - (reach - 1) - (double)p / phases;
            weights[(size_t)p * taps + k] = (float)(kernel(away * lower, cutoff) * lower);
        }
    for (uint64_t i = 0; i < n; i++) {
        const uint64_t place = i * step, at = place / phases;
        const float *w = weights + place % phases * taps;
        double sum = 0;
        for (uint32_t k = 0; k < taps; k++) {
            const int64_t from = (int64_t)(at + k) - (reach - 1);
            if (from >= 0 && (uint64_t)from < in->n)
                sum += (double)w[k] * (double)in->samples[from];
        }
        out->samples[i] = (float)sum;
    }
    base_heap_give(heap, weights, bytes);
    return BERYL_OK;
}
