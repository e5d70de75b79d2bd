/* angles.c - cosines and sines of the rotations of positions, as exact as f32 holds them and faster
 * than libm's, which keep a GPU waiting for a fifth of a short prompt. The one idea: those of
 * positions that follow each other are products of the first one's and of a step's. */
#include "base/build.h"
#include "gemma4/gemma4.h"

#include <math.h>
#include <string.h>

enum { TURN_MAX = 32, TURN_STEPS = 31 };

#define TURN_ANGLE 262144.0 /* larger ones are left to libm */

/* Of angles below TURN_ANGLE, to far more digits than f32 has. Nothing branches, so that it runs by
 * vectors. An angle lies at most half a right angle from a multiple of one; products with the first
 * two parts of a right angle are exact. */
static void turn(const double angles[TURN_MAX], double cosines[TURN_MAX], double sines[TURN_MAX]) {
    static const double right[] = {0x1.921fb544p+0, 0x1.0b4611a6p-34, 0x1.3198a2e037073p-69};
    double both[2][TURN_MAX];
    int32_t turns[TURN_MAX];
    for (uint32_t i = 0; i < TURN_MAX; i++) {
        turns[i] = (int32_t)(angles[i] * 0.6366197723675814 + 0.5);
        const double m = turns[i], z0 = (angles[i] - m * right[0]) - m * right[1],
                     x = z0 - m * right[2], z = x * x;
        double c = 1.0 / 479001600 - z * (1.0 / 87178291200),
               s = 1.0 / 6227020800 - z * (1.0 / 1307674368000);
        c = 1.0 / 40320 + z * (-1.0 / 3628800 + z * c);
        s = 1.0 / 362880 + z * (-1.0 / 39916800 + z * s);
        both[0][i] = 1 + z * (-0.5 + z * (1.0 / 24 + z * (-1.0 / 720 + z * c)));
        both[1][i] = x + x * z * (-1.0 / 6 + z * (1.0 / 120 + z * (-1.0 / 5040 + z * s)));
    }
    for (uint32_t i = 0; i < TURN_MAX; i++) {
        const int32_t m = turns[i];
        cosines[i] = both[m & 1][i] * (1 - ((m + 1) & 2));
        sines[i] = both[~m & 1][i] * (1 - (m & 2));
    }
}

typedef struct turned { /* pairs of a head */
    double cosine[TURN_MAX], sine[TURN_MAX];
} turned;

typedef struct turning { /* of positions that follow each other; angles are exact */
    double rate[TURN_MAX];
    turned first, step[TURN_STEPS]; /* by position * rate; by 1, 2 .. times rate */
    uint32_t n_step, at;            /* steps that are known; the position, after the first */
} turning;

static void turn_by(const turning *t, double by, turned *to) {
    double angles[TURN_MAX];
    for (uint32_t k = 0; k < TURN_MAX; k++) angles[k] = by * t->rate[k];
    turn(angles, to->cosine, to->sine);
}

/* As it is, rounded to f32. */
static void turn_alone(const turning *t, double position, float cosines[TURN_MAX],
                       float sines[TURN_MAX]) {
    double angles[TURN_MAX];
    turned there;
    for (uint32_t k = 0; k < TURN_MAX; k++) angles[k] = (double)(float)(position * t->rate[k]);
    turn(angles, there.cosine, there.sine);
    for (uint32_t k = 0; k < TURN_MAX; k++) {
        cosines[k] = (float)there.cosine[k];
        sines[k] = (float)there.sine[k];
    }
}

/* next: the position follows the last one. What an angle loses when it is rounded is so little that
 * a few terms make up for it. Beside a multiple of a right angle the sums have lost digits. */
static void turn_to(turning *t, double position, bool next, float cosines[TURN_MAX],
                    float sines[TURN_MAX]) {
    turned there;
    int32_t lost = 0;
    if (!next || t->at == TURN_STEPS) {
        turn_by(t, position, &t->first);
        t->at = 0;
        there = t->first;
    } else {
        if (t->at == t->n_step) turn_by(t, ++t->n_step, &t->step[t->at]);
        const turned *first = &t->first, *step = &t->step[t->at++];
        for (uint32_t k = 0; k < TURN_MAX; k++) {
            there.cosine[k] = first->cosine[k] * step->cosine[k] - first->sine[k] * step->sine[k];
            there.sine[k] = first->sine[k] * step->cosine[k] + first->cosine[k] * step->sine[k];
        }
    }
    for (uint32_t k = 0; k < TURN_MAX; k++) {
        const double x = position * t->rate[k], d = (double)(float)x - x, z = d * d,
                     c = 1 - z * (0.5 - z * (1.0 / 24)), s = d * (1 - z * (1.0 / 6));
        cosines[k] = (float)(there.cosine[k] * c - there.sine[k] * s);
        sines[k] = (float)(there.sine[k] * c + there.cosine[k] * s);
    }
    for (uint32_t k = 0; k < TURN_MAX; k++) lost |= fabsf(cosines[k]) < 1e-7f;
    for (uint32_t k = 0; k < TURN_MAX; k++) lost |= fabsf(sines[k]) < 1e-7f;
    if (lost) turn_alone(t, position, cosines, sines);
}

/* TURN_MAX pairs of a head, or the last ones: out [n, stride], sines `half` behind cosines. */
static void pairs_angles(const float *inverse, uint32_t some, const int32_t *positions, uint32_t n,
                         float *out, uint32_t half) {
    turning t = {.n_step = 0, .at = TURN_STEPS};
    float cosines[TURN_MAX], sines[TURN_MAX];
    double fastest = 0;
    for (uint32_t k = 0; k < some; k++) {
        t.rate[k] = (double)inverse[k];
        fastest = !(t.rate[k] <= fastest) ? t.rate[k] : fastest;
    }
    for (uint32_t i = 0; i < n; i++, out += 2 * half) {
        const double position = positions[i], most = position * fastest;
        const bool turns = most >= 1e-9 && most < TURN_ANGLE;
        if (turns && (BUILD_IS_MODULE || !(fastest * TURN_STEPS < TURN_ANGLE))) {
            turn_alone(&t, position, cosines, sines);
        } else if (turns) {
            turn_to(&t, position, i && positions[i] == positions[i - 1] + 1, cosines, sines);
        } else {
            t.at = TURN_STEPS;
            for (uint32_t k = 0; k < TURN_MAX; k++) sines[k] = (float)(position * t.rate[k]);
            /* pairs that do not rotate, three quarters of a global head */
            for (uint32_t k = 0; k < TURN_MAX; k++) cosines[k] = 1;
            for (uint32_t k = 0; k < some && !(most < 1e-9); k++) { /* a strange file's */
                const double angle = (double)sines[k];
                cosines[k] = (float)cos(angle), sines[k] = (float)sin(angle);
            }
        }
        memcpy(out, cosines, some * sizeof *out);
        memcpy(out + half, sines, some * sizeof *out);
    }
}

void gemma4_angles(const gemma4_model *m, bool global, const int32_t *positions, uint32_t n,
                   float *out) {
    const uint32_t half = (global ? m->config.head_dim : m->config.head_dim_swa) / 2;
    for (uint32_t from = 0; from < half; from += TURN_MAX)
        pairs_angles(m->rope_inverse[global] + from,
                     half - from < TURN_MAX ? half - from : TURN_MAX, positions, n, out + from,
                     half);
}
