/* checkpoint.h - where a training stands, as a file to go on from.
 *
 * Owns the form of the file: a safetensors file whose tensors are values and moments, whose
 * metadata is the progress and what a training must have in common with it, its settings, and whose
 * last tensor is a hash of all that. Refuses by name: another setting, other tensors, damage,
 * numbers that cannot be. The one idea: a setting is a name and a text, and texts are compared,
 * never understood. */
#ifndef TRAIN_CHECKPOINT_H
#define TRAIN_CHECKPOINT_H

#include "format/safetensors.h"

enum { TRAIN_SETTING_MAX = 32 };

typedef struct train_progress {
    uint32_t step;       /* done */
    uint32_t valid_step; /* of the last measurement */
    uint32_t best_step;  /* of the best one */
    uint32_t n_worse;    /* measurements since that one */
    double best_loss;    /* NAN: nothing was measured */
} train_progress;

typedef struct train_checkpoint {
    const char *path; /* for messages */
    base_view settings[TRAIN_SETTING_MAX][2];
    uint32_t n_setting;
    uint32_t steps;             /* of the training: the most that can be done */
    format_safetensor *tensors; // [n] F32 or I16, in the order of the file
    size_t n;
    train_progress progress;
} train_checkpoint;

/* What the file begins with. Then come the bytes of the tensors, in order, and the 8 bytes of the
 * hash. `failed` of `out` tells of memory. */
void train_checkpoint_head(const train_checkpoint *checkpoint, base_text *out);
/* The hash of that; base_hash goes on from it over the bytes of each tensor. */
uint64_t train_checkpoint_hash(const train_checkpoint *checkpoint);

/* A file for the training that `checkpoint` describes: fills its progress and its tensors' data,
 * which lie in `file`. BAD_FILE: broken; BAD_INPUT: of another training. */
beryl_status train_checkpoint_read(base_arena *arena, const void *file, size_t size,
                                   train_checkpoint *checkpoint, beryl_error *error);

#endif
