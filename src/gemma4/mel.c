/* mel.c - frames of sound: log-mel of 16 kHz samples, in double; without a tower the samples. */
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
    double window[LENGTH], turn[POINTS / 2][2]; /* cos and -sin of 2 pi i / POINTS */
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
    for (uint32_t i = 0; i < POINTS / 2; i++) {
        t->turn[i][0] = cos(2 * PI * i / POINTS);
        t->turn[i][1] = -sin(2 * PI * i / POINTS);
    }
    for (uint32_t i = 0; i < POINTS; i++) {
        uint32_t turned = 0;
        for (uint32_t bit = 0; bit < LOG_POINTS; bit++)
            turned |= (i >> bit & 1) << (LOG_POINTS - 1 - bit);
        t->order[i] = (uint16_t)turned;
    }
    make_filters(t);
}

static void transform(const tables *t, double x[POINTS][2]) {
    for (uint32_t half = 1; half < POINTS; half *= 2)
        for (uint32_t from = 0; from < POINTS; from += 2 * half)
            for (uint32_t i = 0; i < half; i++) {
                const double *w = t->turn[i * (POINTS / 2 / half)], *b = x[from + half + i];
                double *a = x[from + i];
                const double re = b[0] * w[0] - b[1] * w[1], im = b[0] * w[1] + b[1] * w[0];
                x[from + half + i][0] = a[0] - re;
                x[from + half + i][1] = a[1] - im;
                a[0] += re;
                a[1] += im;
            }
}

/* Frames begin 160 samples before the sound. */
static double sample_at(const float *samples, uint32_t n, uint32_t i) {
    return i < HOP || i - HOP >= n ? 0 : (double)samples[i - HOP];
}

/* Two frames by one transform: the second one is its imaginary part. */
static void two_frames(const tables *t, const float *samples, uint32_t n, uint32_t frame,
                       double magnitude[2][BINS]) {
    double x[POINTS][2];
    memset(x, 0, sizeof x);
    for (uint32_t i = 0; i < LENGTH; i++)
        for (uint32_t k = 0; k < 2; k++)
            x[t->order[i]][k] = sample_at(samples, n, (frame + k) * HOP + i) * t->window[i];
    transform(t, x);
    for (uint32_t i = 0; i < BINS; i++) {
        const double *a = x[i], *b = x[(POINTS - i) % POINTS];
        magnitude[0][i] = hypot(a[0] + b[0], a[1] - b[1]) / 2;
        magnitude[1][i] = hypot(a[1] + b[1], b[0] - a[0]) / 2;
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
    for (uint32_t i = 0; i < n; i += 2) {
        double magnitude[2][BINS];
        two_frames(t, samples, n_sample, i, magnitude);
        for (uint32_t k = 0; k < 2 && i + k < n; k++)
            log_mel(t, magnitude[k], out + (size_t)(i + k) * MEL);
    }
    base_heap_give(heap, t, sizeof *t);
    return BERYL_OK;
}
