/* mel.c - frames of sound: log-mel of 16 kHz samples, in double; without a tower the samples. */
#include "base/thread.h"
#include "gemma4/audio.h"

#include <math.h>
#include <string.h>

enum {
    LENGTH = 320,
    HOP = 160,
    POINTS = 512,
    BINS = POINTS / 2 + 1,
    MEL = GEMMA4_AUDIO_MEL,
    LOG_POINTS = 9
};
#define PI 3.14159265358979323846

typedef struct tables {
    double window[LENGTH];
    double cosine[POINTS], sine[POINTS]; /* [half + i]: of -pi i / half, i < half */
    uint16_t order[POINTS];
    double weight[BINS][2]; /* of filter `first`, and of the one behind it */
    int16_t first[BINS];    /* -1: the one behind it alone */
} tables;

static double mel_of(double hertz) {
    return 2595 * log10(1 + hertz / 700);
}

/* Triangles that overlap by half: a frequency is in two of them. */
static void make_filters(tables *t) {
    double edge[MEL + 2];
    const double all = mel_of(GEMMA4_AUDIO_RATE / 2.0);
    for (uint32_t i = 0; i < MEL + 2; i++)
        edge[i] = 700 * (pow(10, all * i / (MEL + 1) / 2595) - 1);
    for (uint32_t i = 0, at = 0; i < BINS; i++) {
        const double hertz = (double)i * GEMMA4_AUDIO_RATE / POINTS;
        while (at < MEL && edge[at + 1] <= hertz) at++;
        const double up = (hertz - edge[at]) / (edge[at + 1] - edge[at]);
        t->first[i] = (int16_t)((int)at - 1); /* falls between edges at and at + 1 */
        t->weight[i][0] = 1 - up;
        t->weight[i][1] = up;
    }
}

static void make_tables(tables *t) {
    for (uint32_t i = 0; i < LENGTH; i++)
        t->window[i] = (double)(float)(0.5 - 0.5 * cos(2 * PI * i / LENGTH));
    for (uint32_t half = 1; half < POINTS; half *= 2)
        for (uint32_t i = 0; i < half; i++) {
            t->cosine[half + i] = cos(PI * i / half);
            t->sine[half + i] = -sin(PI * i / half);
        }
    for (uint32_t i = 0; i < POINTS; i++) {
        uint32_t turned = 0;
        for (uint32_t bit = 0; bit < LOG_POINTS; bit++)
            turned |= (i >> bit & 1) << (LOG_POINTS - 1 - bit);
        t->order[i] = (uint16_t)turned;
    }
    make_filters(t);
}

/* In place, in bit-reversed order before. */
static void transform(const tables *t, double *restrict re, double *restrict im) {
    for (uint32_t half = 1; half < POINTS; half *= 2)
        for (uint32_t from = 0; from < POINTS; from += 2 * half) {
            const double *c = t->cosine + half, *s = t->sine + half;
            double *a = re + from, *b = im + from;
            for (uint32_t i = 0; i < half; i++) {
                const double x = a[half + i] * c[i] - b[half + i] * s[i],
                             y = a[half + i] * s[i] + b[half + i] * c[i];
                a[half + i] = a[i] - x;
                b[half + i] = b[i] - y;
                a[i] += x;
                b[i] += y;
            }
        }
}

/* Frames begin 160 samples before the sound. */
static double sample_at(const float *samples, uint32_t n, uint32_t i) {
    return i < HOP || i - HOP >= n ? 0 : (double)samples[i - HOP];
}

/* Two frames by one transform: the second one is its imaginary part. */
static void two_frames(const tables *t, const float *samples, uint32_t n, uint32_t frame,
                       double magnitude[2][BINS]) {
    double re[POINTS] = {0}, im[POINTS] = {0};
    for (uint32_t i = 0; i < LENGTH; i++) {
        re[t->order[i]] = sample_at(samples, n, frame * HOP + i) * t->window[i];
        im[t->order[i]] = sample_at(samples, n, (frame + 1) * HOP + i) * t->window[i];
    }
    transform(t, re, im);
    for (uint32_t i = 0; i < BINS; i++) {
        const uint32_t k = (POINTS - i) % POINTS;
        const double a = re[i] + re[k], b = im[i] - im[k], c = im[i] + im[k], d = re[k] - re[i];
        magnitude[0][i] = sqrt(a * a + b * b) / 2;
        magnitude[1][i] = sqrt(c * c + d * d) / 2;
    }
}

static void log_mel(const tables *t, const double magnitude[BINS], float *out) {
    double mel[MEL + 2] = {0}; /* from filter -1 on */
    for (uint32_t i = 0; i < BINS; i++) {
        mel[t->first[i] + 1] += t->weight[i][0] * magnitude[i];
        mel[t->first[i] + 2] += t->weight[i][1] * magnitude[i];
    }
    for (uint32_t i = 0; i < MEL; i++) out[i] = (float)log(mel[i + 1] + 0.001);
}

/* ---- frames, by several threads -------------------------------------------------------------- */

enum { THREADS = 16, FRAMES_ALONE = 128 /* fewer are not worth a thread */ };

typedef struct stretch { /* of a thread */
    const tables *t;
    const float *samples;
    uint32_t n_sample, from, to; /* frames; from: even */
    float *out;                  // [to, MEL]
} stretch;

static void make_frames(void *user) {
    const stretch *s = user;
    for (uint32_t i = s->from; i < s->to; i += 2) {
        double magnitude[2][BINS];
        two_frames(s->t, s->samples, s->n_sample, i, magnitude);
        for (uint32_t k = 0; k < 2 && i + k < s->to; k++)
            log_mel(s->t, magnitude[k], s->out + (size_t)(i + k) * MEL);
    }
}

static void make_all(base_heap *heap, stretch all) {
    stretch parts[THREADS];
    base_thread *threads[THREADS] = {NULL};
    const uint32_t n = all.to < THREADS * FRAMES_ALONE ? all.to / FRAMES_ALONE + 1 : THREADS;
    for (uint32_t i = n; i-- > 0;) {
        parts[i] = all;
        parts[i].from = all.to / n * i & ~1u;
        parts[i].to = i + 1 < n ? all.to / n * (i + 1) & ~1u : all.to;
        threads[i] = i ? base_thread_open(heap, make_frames, &parts[i]) : NULL;
        if (!threads[i]) make_frames(&parts[i]);
    }
    for (uint32_t i = 0; i < n; i++) base_thread_close(threads[i]);
}

uint32_t gemma4_audio_frames(const gemma4_audio *a, uint32_t n_sample) {
    if (!a->n_layer) return n_sample / a->n_out + (n_sample % a->n_out != 0);
    return n_sample > HOP ? (n_sample - HOP - 1) / HOP + 1 : 0;
}

beryl_status gemma4_audio_fill(const gemma4_audio *a, base_heap *heap, const float *samples,
                               uint32_t n_sample, float *out) {
    const uint32_t n = gemma4_audio_frames(a, n_sample);
    if (!a->n_layer) {
        memset(out, 0, (size_t)n * a->n_out * sizeof *out);
        memcpy(out, samples, n_sample * sizeof *out);
        return BERYL_OK;
    }
    tables *t = base_heap_take(heap, sizeof *t);
    if (!t) return BERYL_NO_MEMORY;
    make_tables(t);
    make_all(heap, (stretch){t, samples, n_sample, 0, n, out});
    base_heap_give(heap, t, sizeof *t);
    return BERYL_OK;
}
