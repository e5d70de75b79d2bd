/* hip_compile.h - texts in HIP C go through a compiler for AMD's GPUs, with none there: hipcc,
 * or clang with what stands for HIP's headers (tests/data/hip_words.h). All texts are one
 * source, for a compiler takes longer to start than to compile. */
#ifndef TESTS_HIP_COMPILE_H
#define TESTS_HIP_COMPILE_H

#include "test.h"

#include "device/device.h"

#include <stdio.h>

typedef struct hip_texts {
    FILE *file;
    char path[512];
    const char *architecture;
    char compiler[40]; /* "": hipcc */
    unsigned n;
} hip_texts;

/* architecture: as compilers call it, gfx90a. False: the case was skipped, since nothing here
 * compiles for it, or failed. */
bool hip_texts_open(test *t, hip_texts *h, const char *architecture);
void hip_texts_add(test *t, hip_texts *h, const char *text);
void hip_texts_compile(test *t, hip_texts *h); /* and closes */
/* What a command says is the failure's text. */
void hip_run_compiler(test *t, const char *line);

#endif
