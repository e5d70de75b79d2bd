/* lower_form.h - what may be said about a lowering from outside: precision, and other forms of products than those that would
 * be chosen: for benchmarks (bench/plan_bench.c) by name, and those that tuning found (engine/tune.c) by class. */
#ifndef GRAPH_LOWER_FORM_H
#define GRAPH_LOWER_FORM_H

#include <stdbool.h>
#include <stdint.h>

typedef enum lower_apart { LOWER_APART_CHOSEN, LOWER_APART_YES, LOWER_APART_NO } lower_apart;

/* Of the products whose first weight's name holds `weight`. A number that is 0 stays as chosen (lower_matvec.h says what they
 * are); a form that the device cannot run is BERYL_UNSUPPORTED. */
typedef struct lower_form {
    const char *weight;
    uint32_t wg, lanes, rows, depth, groups, n_x;
    lower_apart apart; /* are norms and sums before the product a dispatch of their own? */
    bool tuned;        /* where it does not fit, what would be chosen does */
} lower_form;

/* What tuning found, for a class of products: those of decode plans whose weights have one role, type and shape. */
typedef struct lower_tuned { uint64_t key; lower_form form; } lower_tuned; /* key: lower_tuned_key */

typedef struct lower_settings {
    bool exact; /* f32 activations; else int8 activations where the device has dot products */
    const lower_form *forms; /* borrowed; the first that fits a name holds */
    uint32_t n_form;
} lower_settings;

#endif
