/* sound_test.c - WAV files of every kind, damaged ones, and sound at other rates: what passes is as
 * it was, what would fold back is 80 dB down. */
#include "test.h"

#include "media/sound.h"

#include <math.h>
#include <string.h>

#define PI 3.14159265358979323846

static size_t put(uint8_t *to, uint32_t x, size_t n) {
    for (size_t i = 0; i < n; i++) to[i] = (uint8_t)(x >> 8 * i);
    return n;
}

enum { SAMPLES = 50 };

/* A file of so many channels, in which channel c holds (i - 25) / 50 / (c + 1). */
static size_t make(uint8_t *to, uint32_t format, uint32_t bits, uint32_t channels) {
    const uint32_t bytes = (bits + 7) / 8, n = SAMPLES * bytes * channels;
    memcpy(to, "RIFF\0\0\0\0WAVELIST\x03\0\0\0abc\0fmt \x10\0\0\0", 32);
    size_t at = 32;
    at += put(to + at, format, 2);
    at += put(to + at, channels, 2);
    at += put(to + at, 22050, 4);
    at += put(to + at, 22050 * bytes * channels, 4);
    at += put(to + at, bytes * channels, 2);
    at += put(to + at, bits, 2);
    memcpy(to + at, "data", 4);
    at += 4;
    at += put(to + at, n, 4);
    for (int i = 0; i < SAMPLES; i++)
        for (uint32_t c = 0; c < channels; c++) {
            const double x = (i - 25) / 50.0 / (c + 1);
            const float single = (float)x;
            if (format == 3 && bits == 32) memcpy(to + at, &single, 4);
            else if (format == 3) memcpy(to + at, &x, 8);
            else if (bits == 8) to[at] = (uint8_t)lrint(x * 127 + 128);
            else put(to + at, (uint32_t)(int32_t)lrint(ldexp(x, (int)bits - 1)), bytes);
            at += bytes;
        }
    return at;
}

static const struct {
    uint32_t format, bits, channels;
    double within;
} kinds[] = {{1, 8, 1, 8e-3},  {1, 16, 1, 4e-5}, {1, 16, 2, 4e-5}, {1, 24, 1, 2e-7},
             {1, 24, 6, 2e-7}, {1, 32, 1, 1e-7}, {3, 32, 2, 1e-7}, {3, 64, 1, 1e-7}};

static void check_kinds(test *t, base_heap *heap) {
    static uint8_t file[1 << 14];
    for (size_t k = 0; k < sizeof kinds / sizeof *kinds; k++) {
        media_sound s;
        beryl_error error = {0};
        const size_t size = make(file, kinds[k].format, kinds[k].bits, kinds[k].channels);
        CHECK_INT(t, media_wav_read(heap, file, size, NULL, &s, &error), BERYL_OK);
        CHECK_INT(t, s.rate, 22050);
        CHECK_INT(t, s.n, SAMPLES);
        double mean = 0;
        for (uint32_t c = 0; c < kinds[k].channels; c++) mean += 1.0 / (c + 1) / kinds[k].channels;
        for (size_t i = 0; i < s.n; i++)
            CHECK_NEAR(t, (double)s.samples[i], ((double)i - 25) / 50 * mean, kinds[k].within);
        base_heap_give(heap, s.samples, s.n * sizeof *s.samples);
    }
}

/* Cut at every length, and with every byte of the head changed: read or refused, never beyond. */
static void check_damaged(test *t, base_heap *heap) {
    uint8_t file[256];
    media_sound s;
    const size_t size = make(file, 1, 16, 1);
    for (size_t n = 0; n <= size; n++)
        for (size_t i = 0; i < 2; i++) {
            beryl_error error = {0};
            uint8_t *cut = base_heap_take(heap, n ? n : 1);
            memcpy(cut, file, n);
            if (i && n > 12) cut[n % 60 < n ? n % 60 : 0] ^= 0xff;
            const beryl_status status = media_wav_read(heap, cut, n, NULL, &s, &error);
            CHECK(t, status == BERYL_OK || (error.message[0] && !s.samples));
            base_heap_give(heap, s.samples, s.n * sizeof *s.samples);
            base_heap_give(heap, cut, n ? n : 1);
        }
}

static const struct {
    uint32_t from, to;
} rates[] = {{44100, 16000}, {48000, 16000}, {8000, 16000},
             {22050, 16000}, {16000, 16000}, {11025, 16000}};

/* The largest number of the middle of a tone at another rate. */
static double level(test *t, base_heap *heap, uint32_t from, uint32_t to, double hertz,
                    bool against) {
    media_sound in = {.n = from, .rate = from}, out;
    beryl_error error = {0};
    double most = 0;
    in.samples = base_heap_take(heap, in.n * sizeof *in.samples);
    for (size_t i = 0; i < in.n; i++) in.samples[i] = (float)sin(2 * PI * hertz * (double)i / from);
    CHECK_INT(t, media_resample(heap, &in, to, &out, &error), BERYL_OK);
    CHECK_INT(t, out.n, to);
    for (size_t i = out.n / 4; i < out.n * 3 / 4; i++) {
        const double want = against ? sin(2 * PI * hertz * (double)i / to) : 0;
        most = fmax(most, fabs((double)out.samples[i] - want));
    }
    base_heap_give(heap, in.samples, in.n * sizeof *in.samples);
    base_heap_give(heap, out.samples, out.n * sizeof *out.samples);
    return most;
}

static void check_rates(test *t, base_heap *heap) {
    for (size_t i = 0; i < sizeof rates / sizeof *rates; i++) {
        const uint32_t from = rates[i].from, to = rates[i].to, lower = from < to ? from : to;
        CHECK_NEAR(t, level(t, heap, from, to, 440, true), 0, 1e-3);
        CHECK_NEAR(t, level(t, heap, from, to, lower * 0.4, true), 0, 1e-3);
        if (from > to) /* -80 dB */
            for (double part = 0.51; part < 0.5 * from / to; part += 0.07)
                CHECK_NEAR(t, level(t, heap, from, to, to * part, false), 0, 1e-4);
    }
}

static void check_refused(test *t, base_heap *heap) {
    float sample = 0;
    media_sound out;
    beryl_error error = {0};
    CHECK_INT(t,
              media_resample(heap, &(media_sound){.samples = &sample, .n = 1, .rate = 767999},
                             16000, &out, &error),
              BERYL_UNSUPPORTED);
    CHECK(t, !out.samples && strstr(error.message, "767999 Hz") != NULL);
}

void test_sound(test *t) {
    base_heap heap;
    base_heap_init(&heap, NULL);
    if (test_case(t, "sound/wav-of-every-kind")) check_kinds(t, &heap);
    if (test_case(t, "sound/wav-damaged")) check_damaged(t, &heap);
    if (test_case(t, "sound/other-rates")) check_rates(t, &heap);
    if (test_case(t, "sound/rates-without-a-common-measure")) check_refused(t, &heap);
    if (test_case(t, "sound/gives-everything-back")) CHECK_INT(t, heap.bytes, 0);
}
