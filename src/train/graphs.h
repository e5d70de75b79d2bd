/* graphs.h - the graphs of a training: a pass over packed rows, forward and back, and the step that
 * follows.
 *
 * Builds graphs and runs nothing. The base model is frozen; what is trained are the matrices A and
 * B of an adapter, F32 states of the model's store, each with a state for its gradient and two for
 * its moments, or one that has both in 8 bits. A pass adds its gradients to those that are there,
 * so a step may have any number of passes. Letters: n tokens of a pass, t of which predict targets,
 * N targets of a whole step. */
#ifndef TRAIN_GRAPHS_H
#define TRAIN_GRAPHS_H

#include "gemma4/gemma4.h"

/* Refused by name: experts, whose matrices are three-dimensional. */
typedef struct train_matrix {
    format_lora_target target;
    uint32_t layer; /* of targets of the model: 0 */
    bool is_b;
    uint32_t dim[2]; /* A [rank, in], of the embedding [in, rank]; B [out, rank] */
    uint32_t rank, in, out;
    float factor;             /* alpha / rank */
    uint32_t value, gradient; /* states of the store */
    uint32_t moments[2];      /* mean, square; coded: I16, none */
    bool coded;               /* as graph_adam_coded has them */
} train_matrix;

typedef struct train_adapter {
    gemma4_lora graph;      /* pairs [L + 1, LORA_COUNT] */
    train_matrix *matrices; // [n], A and B of a pair after another
    uint32_t n;
} train_adapter;

typedef struct train_pass {
    gemma4_text text; /* its losses are read for each target */
    graph_value
        more; /* BOOL [1]: the gradients are added to those so far; false: they replace them */
    graph_value share; /* F32 [1]: 1 / N */
} train_pass;

typedef struct train_pass_desc {
    const gemma4_model *model;
    const graph_store *store;
    base_heap *heap;
    const train_adapter *adapter;
    uint32_t n_token, n_output; /* bounds of n and t */
    bool forward;               /* losses alone, no gradients, nothing is dropped */
    float dropout;              /* as in gemma4_text_options */
    bool halves;                /* as graph.halves */
    gemma4_media media;         /* as in gemma4_text_options */
} train_pass_desc;
/* pass->text.g is closed by the caller, also on failure where it is not NULL. */
beryl_status train_pass_build(const train_pass_desc *desc, train_pass *pass, beryl_error *error);

/* Clipping and AdamW (decoupled weight decay, bias-corrected moments). */
typedef struct train_optimiser {
    float clip; /* largest norm of all gradients together; 0: any */
    float beta1, beta2, eps, weight_decay;
} train_optimiser;

typedef struct train_update {
    graph *g;
    graph_value numbers; /* F32 [3], from train_update_numbers */
    graph_value key;     /* U32 [2], another one in each step; 0: no moments are coded */
    graph_value norm;    /* F32 []: of all gradients, before clipping */
} train_update;
/* As train_pass_build. */
beryl_status train_update_build(const graph_store *store, base_heap *heap,
                                const train_adapter *adapter, const train_optimiser *how,
                                train_update *update, beryl_error *error);
/* Of step `step`, from 0, with this learning rate. */
void train_update_numbers(const train_optimiser *how, uint32_t step, double rate, float numbers[3]);

#endif
