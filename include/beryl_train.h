/* beryl_train.h - training of low-rank adapters beside an engine's weights. In a browser (the full
 * module) data comes from memory and files go to sinks: paths are for native builds.
 *
 * Owns the public face of training: data, steps, measurements, files. After an engine is loaded:
 *
 *     beryl_train *train; beryl_task *task;
 *     beryl_train_options how = {.size = sizeof how, .data = "chats.jsonl", .epochs = 3};
 *     beryl_train_open(engine, &how, &train, NULL);
 *     for (beryl_train_report r = beryl_train_report_of(train); r.step < r.steps; r.step++) {
 *         beryl_train_step(train, &task, NULL);
 *         while (beryl_wait(task, NULL) == BERYL_EVENT) {}
 *         beryl_task_close(task);
 *     }
 *     beryl_train_save(train, "adapter", NULL, NULL);              // as PEFT has it
 *     beryl_train_close(train);
 *
 * Data is read whole before the first step, and not trusted: a line that cannot be used is refused
 * with its number. Pictures and clips that it names (files beside it) or holds are encoded once, in
 * the first task, and stay in host memory as soft tokens. In a browser it has none.
 */
#ifndef BERYL_TRAIN_H
#define BERYL_TRAIN_H

#include "beryl.h"

#ifdef __cplusplus
extern "C" {
#endif

/* Adapters are trained beside the engine's weights, of any type, which stay as they are. */
typedef struct beryl_train beryl_train;

typedef struct beryl_train_options {
    size_t size;
    const char *data;  /* chats, questions and answers, text or tokens: `beryl help train` */
    const char *valid; /* the same, which is not learned from; NULL: none */
    const char *init;  /* an adapter to go on from, whose ranks and factors are kept; NULL: none */
    uint32_t rank;     /* 0: 16 */
    float alpha;       /* 0: twice the rank */
    /* names, separated by commas: q, k, v, o, gate, up, down, also as files name them; and
     * embed_tokens, lm_head; NULL: the first seven */
    const char *targets;
    const char *layers;   /* "0-3,7": those that get adapters, from 0; NULL: all */
    uint32_t epochs;      /* how often each row is seen; 0: 1 */
    uint32_t batch;       /* rows of a pass; 0: 1 */
    uint32_t accumulate;  /* passes of a step; 0: 1 */
    uint32_t context;     /* longer rows are refused; 0: as many tokens as the model can see */
    double rate;          /* the highest learning rate; 0: 2e-4 */
    uint32_t warmup;      /* steps in which the rate rises */
    const char *schedule; /* "cosine", "constant", "linear", "restarts"; NULL: cosine */
    uint32_t cycles;      /* of restarts; 0: 1 */
    float beta1, beta2, eps, weight_decay; /* 0: 0.9, 0.999, 1e-8, none */
    float dropout;     /* the chance that a number of A's input is dropped; 0: none is */
    float clip;        /* the largest norm of the gradient; 0: 1; below 0: any */
    uint64_t seed;     /* of a new adapter and of the order of rows */
    const char *order; /* a JSON file: for each epoch the numbers of the rows; NULL: shuffled */
    /* layers, in the backward pass: "always", "never", the first so many, like "12"; NULL, "auto":
     * as many as memory asks for */
    const char *recompute;
    /* a checkpoint to go on from: with the other options as they were, what follows is what would
     * have followed, bit for bit on the same device; NULL: begins anew */
    const char *resume;
    /* or what lies in those files, in memory, borrowed for the call; size 0: the file, if any */
    const char *data_text, *valid_text, *order_text;
    size_t data_size, valid_size, order_size;
    const beryl_adapter *from; /* in place of `init`: an open adapter, which stays as it is */
    bool live;                 /* sessions can have what is trained: beryl_train_adapter */
    /* of AdamW: "f32"; "q8", 8 bits each, where gradients are clipped; NULL: f32 */
    const char *moments;
    bool timed; /* dispatches of steps are, for beryl_train_trace: they take longer */
    /* pictures and sound by the names that the data has for their files, in whose place they are
     * taken; borrowed for the call. Whether a picture is resized already, the data says */
    const char *const *media_names;
    const beryl_media_desc *media;
    size_t n_media;
} beryl_train_options;

typedef struct beryl_train_report {
    uint32_t step, steps; /* done, of how many in all */
    uint32_t rows, valid_rows;
    uint64_t tokens, targets;              /* of the data, once */
    uint64_t parameters;                   /* that are trained */
    uint64_t bytes;                        /* device memory of the training, beside the model's */
    uint32_t recomputes;                   /* so many layers, in the backward pass */
    uint64_t kept_bytes, recomputed_bytes; /* what a pass makes on its way: none are; all */
    /* of the last step; grad_norm before clipping */
    double loss, grad_norm, rate, seconds;
    uint32_t step_tokens, step_targets;
    double valid_loss;   /* of options.valid, as last measured, a mean over targets; NAN: not yet */
    uint32_t valid_step; /* steps that were done then */
    double best_loss;    /* the lowest of what was measured; NAN: nothing was */
    uint32_t best_step;
    uint32_t n_worse; /* measurements since that were no better */
} beryl_train_report;

/* Reads the data, lays out adapter, gradients and moments beside the model. While it is open no
 * adapter can be opened or closed on the engine. BAD_INPUT: a line that cannot be used, with its
 * number, or a checkpoint of another training. UNSUPPORTED: experts as targets, video, `timed` on a
 * device without timestamps. Options are copied.
 * In a browser's module PENDING: runs are under way, call again. */
BERYL_API beryl_status beryl_train_open(beryl_engine *engine, const beryl_train_options *options,
                                        beryl_train **train, beryl_error *error);
/* The next step: a task that ends with OK. Cancelled or failed it has not been: the adapter is as
 * before, and the step can be taken again. One task at a time. BAD_INPUT: the loss is no number
 * any more. */
BERYL_API beryl_status beryl_train_step(beryl_train *train, beryl_task **task, beryl_error *error);
/* The loss on options.valid, as a task. MISUSE: there is none. */
BERYL_API beryl_status beryl_train_measure(beryl_train *train, beryl_task **task,
                                           beryl_error *error);
BERYL_API beryl_train_report beryl_train_report_of(const beryl_train *train);
/* Row i of the data: its tokens, and which of them are learned, 1 or 0. Borrowed until the training
 * is closed. */
BERYL_API beryl_status beryl_train_row(const beryl_train *train, uint32_t i, const int32_t **tokens,
                                       const uint8_t **mask, uint32_t *n, beryl_error *error);
/* Picture or clip i of row `row`, and which of its tokens is the first of that. To be closed
 * (beryl_media_close). NOT_FOUND: the row has no more. */
BERYL_API beryl_status beryl_train_row_media(const beryl_train *train, uint32_t row, uint32_t i,
                                             uint32_t *begin, beryl_media **media,
                                             beryl_error *error);
/* form "peft" (NULL): path is a folder; "gguf", "rullama": a file. What has its name is whole. */
BERYL_API beryl_status beryl_train_save(beryl_train *train, const char *path, const char *form,
                                        beryl_error *error);
/* Gradients of the last step before clipping: a safetensors file whose tensors have the names and
 * shapes of an adapter's in PEFT's form. */
BERYL_API beryl_status beryl_train_save_gradients(beryl_train *train, const char *path,
                                                  beryl_error *error);
/* Where the training stands, to a file that `resume` goes on from: it gets its name only once it
 * is whole. */
BERYL_API beryl_status beryl_train_checkpoint(beryl_train *train, const char *path,
                                              beryl_error *error);
/* A task: the adapter as it is then, to a sink that takes everything at once; of form "peft" the
 * tensors to `file` and adapter_config.json to `config`, which is else NULL. Both are owned. */
BERYL_API beryl_status beryl_train_save_to(beryl_train *train, const char *form,
                                           const beryl_sink *file, const beryl_sink *config,
                                           beryl_task **task, beryl_error *error);
/* The dispatches of a step's last pass and of its update as trace events, in one call of `write`
 * (beryl_engine_trace). Of more than 2,000 each pass times some, in turns. MISUSE: the training is
 * not `timed`. */
BERYL_API beryl_status beryl_train_trace(const beryl_train *train,
                                         void (*write)(void *user, const char *text, size_t size),
                                         void *user, beryl_error *error);
/* For beryl_session_adapters: adds nothing before the first beryl_train_show. The training's; may
 * go on in sessions after it. NULL: the training is not `live`. */
BERYL_API beryl_adapter *beryl_train_adapter(const beryl_train *train);
/* A task: sessions that have the adapter go on with it as it is now, and read their prompts anew.
 * MISUSE where one of them has a task. */
BERYL_API beryl_status beryl_train_show(beryl_train *train, beryl_task **task, beryl_error *error);
BERYL_API void beryl_train_close(beryl_train *train); /* after its task, before its engine */

#ifdef __cplusplus
}
#endif
#endif
