/* schedule.h - the learning rate of each step, and the order of rows. */
#ifndef TRAIN_SCHEDULE_H
#define TRAIN_SCHEDULE_H

#include "base/memory.h"

/* id, name, what follows warm-up, p from 0 to 1 over the steps that are left */
#define TRAIN_SCHEDULE_LIST(X)                 \
    X(COSINE, "cosine", "(1 + cos(pi p)) / 2") \
    X(CONSTANT, "constant", "1")               \
    X(LINEAR, "linear", "1 - p")               \
    X(RESTARTS, "restarts", "cosine, `cycles` times")

typedef enum train_schedule_kind {
#define X(id, name, what) TRAIN_##id,
    TRAIN_SCHEDULE_LIST(X)
#undef X
        TRAIN_SCHEDULE_COUNT
} train_schedule_kind;

typedef struct train_schedule {
    double rate;     /* the highest */
    uint32_t warmup; /* steps k < warmup have rate * k / warmup */
    uint32_t steps;  /* of the training, warm-up among them; at and after that p is 1 */
    train_schedule_kind kind;
    uint32_t cycles; /* of restarts; 0: 1 */
} train_schedule;

const char *train_schedule_name(train_schedule_kind kind);
bool train_schedule_find(const char *name, train_schedule_kind *kind); /* false: no such kind */
double train_rate(const train_schedule *schedule, uint32_t step);      /* step from 0 */

/* A permutation of 0 to n - 1 that hangs on seed, epoch and n alone; the same on every machine. */
void train_order_shuffle(uint64_t seed, uint32_t epoch, uint32_t n, uint32_t *order); // [n]
/* JSON [[row, ...], ...]: for each epoch every row once. out: [n_epoch, n] in the arena. BAD_INPUT:
 * another shape, fewer than n_epoch epochs, a row that is missing, there twice or not in the
 * data. */
beryl_status train_order_read(base_arena *arena, const char *json, size_t size, uint32_t n,
                              uint32_t n_epoch, uint32_t **out, beryl_error *error);
/* How many of n rows, the last ones, are kept for validation: `part` of them (0 to 1), rounded; if
 * part is above 0, one at least, and one at least is left for training. */
uint32_t train_split(uint32_t n, double part);

#endif
