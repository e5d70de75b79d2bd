/* train.h - the inside of a training, shared by train.c (data, passes, steps, tasks),
 * train_adapter.c (what is trained: matrices, their first values, files of them), train_media.c
 * (pictures and sound of the data), train_out.c
 * (what is trained on its way out: to sinks, to sessions) and train_checkpoint.c (a training to a
 * file and on from it). */
#ifndef ENGINE_TRAIN_H
#define ENGINE_TRAIN_H

#include "beryl_train.h"
#include "engine/media.h"
#include "train/checkpoint.h"
#include "train/data.h"
#include "train/graphs.h"
#include "train/schedule.h"

enum { TRAIN_RANK_MAX = 1024, TRAIN_TOKEN_MAX = 1 << 20 };

typedef struct train_run { /* a pass's graph, compiled */
    train_pass pass;
    graph_exec *exec;
} train_run;

struct beryl_train {
    beryl_engine *engine;
    base_arena arena;            /* lives as long as the training */
    beryl_train_options options; /* resolved; texts are of no use after opening */
    train_data data, valid;
    media_list media; /* of the data, in the order of spans */
    size_t n_encoded; /* of them */
    uint32_t *order;  // [epochs, rows]
    train_schedule schedule;
    train_optimiser how;
    bool coded;            /* moments in 8 bits */
    train_adapter adapter; /* in the arena */
    store_mark mark;       /* its states */
    bool extended;
    uint32_t unsettled;  /* how often the device is still to be asked whether there was room */
    beryl_adapter *live; /* for sessions; NULL: none (train_out.c) */
    uint32_t n_token, n_output;       /* bounds of a pass */
    graph_recompute_choice recompute; /* of layers, */
    uint32_t segments;                /* the first ones; 0: all */
    train_run learn, judge;           /* judge: losses alone, of data to validate with */
    train_update update;
    graph_exec *update_exec;
    beryl_task *task;     /* the running one, NULL: none */
    device_ticket ticket; /* of the last submit */
    beryl_train_report report;
};

/* Which matrices there are and their shapes, from options or from the adapter `init`; adds their
 * states to the store and makes them. */
beryl_status train_adapter_make(beryl_train *train, beryl_error *error);
/* The matrix's values, its half of a part: A first. */
void train_part_set(format_lora_part *part, const train_matrix *matrix, const float *values);
/* An adapter for sessions, before the training's own states are in the store. */
beryl_status train_live_make(beryl_train *train, beryl_error *error);
/* One of a matrix's states as a whole, as the store has it; sleeps. */
beryl_status train_state_get(beryl_train *train, uint32_t state, void *out, beryl_error *error);
beryl_status train_state_put(beryl_train *train, uint32_t state, const void *from,
                             beryl_error *error);
/* Where the checkpoint stood: values, moments, progress. */
beryl_status train_resume(beryl_train *train, const char *path, beryl_error *error);

/* ---- pictures and sound of the data (train_media.c) */

typedef struct train_media_data { /* `user` of train_media_open */
    beryl_train *train;
    const char *data; /* path of the data, which paths in it are beside; NULL: none */
} train_media_data;
/* As train_media.open. A part of a conversation has a file's "path", or what attach.c reads. */
beryl_status train_media_open(void *user, const train_medium *what, uint32_t *number,
                              uint32_t *n_soft, beryl_error *error);
/* The towers' weights get their memory, before the training takes what it finds. */
beryl_status train_media_place(beryl_train *train, beryl_error *error);
/* As a task's step: OK: all are encoded, and the towers have left. */
beryl_status train_media_encode(beryl_train *train, beryl_task *task, media_encoding *c);
/* Of a row that is in a pass from `base` on: soft tokens, and what those of a picture see. */
void train_media_put(const beryl_train *train, const gemma4_text *text, graph_exec *exec,
                     const train_row *row, uint32_t base);
uint64_t train_media_digest(const beryl_train *train, const train_row *row, uint64_t hash);

#endif
