/* cuda_like.h - what CUDA C and HIP C share. */
#ifndef CODEGEN_CUDA_LIKE_H
#define CODEGEN_CUDA_LIKE_H

#include "codegen/write.h"

extern const char codegen_cuda_types[];
void codegen_cuda_kernel(codegen *g);
/* CUDA alone: registers of all fragments; one fragment op, false: not this one. */
void codegen_cuda_fragments(codegen *g);
bool codegen_cuda_fragment(codegen *g, ir_id id);
bool codegen_cuda_multiplies(const ir_kernel *k); /* has it a fragment_multiply? */
void codegen_cuda_wait(codegen *g, ir_id id);     /* a fragment_wait */

#endif
