/* train.h - what the files of `beryl train` share: train.c (steps, files), train_show.c (what is
 * told of them: figures, curve, sample answers, JSON). */
#ifndef CLI_TRAIN_H
#define CLI_TRAIN_H

#include "cli.h"

#include "beryl_train.h"

typedef struct training {
    cli *c;
    base_arena arena;
    beryl_train *train;
    /* paths in the arena, of --out; NULL: none */
    const char *adapter, *best, *best_folder, *checkpoint;
    uint32_t save_every, valid_every, patience; /* 0: never */
    float betas[2];                             /* 0: default */
    FILE *log;                                  /* NULL: none */
    json_out json;
    base_vec(float) losses; /* of each step that was taken */
    uint32_t first;         /* steps that were done before */
    uint64_t tokens;
    double started, seconds;
    beryl_train_report report; /* once the training is closed */
    /* The sample: a prompt's tokens, or a question that becomes a chat; neither: none. */
    const char *question;
    int32_t *prompt; // [n_prompt] in the arena
    uint32_t n_prompt;
    base_vec(beryl_media *) media; /* in the prompt */
    const char *before, *after;    /* answers, in the arena */
} training;

void train_tell(training *t); /* rows, steps, memory; nothing with --json */
/* Rows of text with the losses, on a terminal alone. */
void train_curve(training *t);
/* Chooses the prompt and answers it; does nothing where none is wanted. */
int train_sample_begin(training *t, beryl_engine *engine);
/* Answers it again, with the adapter that was saved; the training is closed. */
int train_sample_end(training *t, beryl_engine *engine);
int train_end(training *t); /* the last line, or the object of --json */

#endif
