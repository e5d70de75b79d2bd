/* c_vector.h - wide vectors in plain C and OpenCL C. */
#ifndef CODEGEN_C_VECTOR_H
#define CODEGEN_C_VECTOR_H

#include "codegen/write.h"

/* from now on: the kernel's workgroup is one lane, of a processor */
void codegen_c_vectors(codegen *g);
/* Whether the value (of a store: what it stores) is an array: then these write the instruction. */
bool codegen_c_wide(const codegen *g, const ir_instruction *i);
void codegen_c_wide_op(codegen *g,
                       ir_id id); /* a pure op whose lanes have nothing to do with each other */
void codegen_c_wide_load(codegen *g, ir_id id, const char *index);
void codegen_c_wide_store(codegen *g, const ir_instruction *i, const char *index);
void codegen_c_wide_bitcast(codegen *g, ir_id id);
bool codegen_c_wide_lanes(codegen *g, ir_id id);

#endif
