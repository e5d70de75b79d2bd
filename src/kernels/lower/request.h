/* request.h - building a kernel request: options that are numbers, parts. For kernels/lower/
 * alone. */
#ifndef KERNELS_LOWER_REQUEST_H
#define KERNELS_LOWER_REQUEST_H

#include "kernels/kernels.h"

#include <assert.h>
#include <stdio.h>

/* Valid until the step is begun; may not be copied (the request points into it). */
typedef struct lower_request {
    kernels_request kernel;
    char numbers[KERNELS_OPTION_MAX][12];
    uint32_t n_option, n_part;
} lower_request;

static inline void lower_request_option(lower_request *r, const char *name, const char *value) {
    assert(r->n_option + 1 < KERNELS_OPTION_MAX);
    r->kernel.options[r->n_option++] = (kernels_option){name, value};
}

static inline void lower_request_number(lower_request *r, const char *name, uint32_t value) {
    char *text = r->numbers[r->n_option];
    snprintf(text, sizeof r->numbers[0], "%uu", value);
    lower_request_option(r, name, text);
}

static inline void lower_request_flag(lower_request *r, const char *name, bool value) {
    lower_request_option(r, name, value ? "true" : "false");
}

static inline void lower_request_part(lower_request *r, const char *name, const char *file) {
    assert(r->n_part + 1 < KERNELS_PART_MAX);
    r->kernel.parts[r->n_part++] = (kernels_part){name, file, NULL};
}

#endif
