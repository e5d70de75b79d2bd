/* codegen.h - kernel IR to source text: WGSL, CUDA C, HIP C, OpenCL C, C.
 *
 * Owns how a kernel is written in each language, and the entry point's form, which the devices call
 * (below). Refuses, as BERYL_UNSUPPORTED naming op, type and language, what a language cannot do;
 * it never writes a text that means something else than the interpreter does. The idea: one walker
 * over the instructions with a table of expressions for all languages; what is different between
 * languages is one file each.
 *
 * Entry points. b0, b1 ..: the buffers in binding order; params: 4-byte words in the order of
 * declaration. WGSL: @group(0) @binding(i) storage buffers, @group(1) @binding(0) the params as
 * a uniform. CUDA, HIP: extern "C" __global__ void ENTRY(const void *b0,
 * void *b1, .., params_t params); params_t is a struct of param_bytes bytes, by value; none where a
 * kernel has no params. OpenCL: __kernel void ENTRY(__global const void *b0, .., __constant uint
 * *params, uint params_at): the submit's whole parameter arena and where in it, in words, the
 * dispatch's params lie. Always both. C: void ENTRY(void *const *buffers, const uint32_t
 * *params, const uint32_t groups[3], uint32_t first, uint32_t count, void *scratch): runs the
 * groups first .. first + count - 1, counted along x, then y, then z. scratch: uint32_t
 * ENTRY_scratch_bytes(void) bytes, aligned to 64, one for each thread; what is in it does not
 * matter. IR: the printed form
 *
 * Flags that the texts count on. CUDA: --fmad=false. HIP and C: -ffp-contract=off. C: -O1
 * -ftree-vectorize -fpeel-loops -march=native -fno-math-errno -fno-trapping-math. None: fast math.
 *
 * Threads: no state. */
#ifndef CODEGEN_CODEGEN_H
#define CODEGEN_CODEGEN_H

#include "device/device.h"
#include "ir/ir.h"

/* k (verified) as text in *desc: language, source, entry, label, bindings, params, workgroup,
 * launch_bytes, uses_f16, uses_subgroups; the rest zero. Everything that desc points to lies in
 * the arena, but for label, which is k's name. caps: of the device that will compile it; NULL:
 * one with everything that the language has. UNSUPPORTED: the language or the device cannot do
 * it. */
beryl_status codegen_make(base_arena *arena, const ir_kernel *k, device_language language,
                          const device_caps *caps, device_program_desc *desc, beryl_error *error);

#endif
