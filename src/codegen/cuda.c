/* cuda.c - CUDA C, for NVRTC (no header is included). Matrix fragments are inline PTX. */
#include "codegen/write.h"
#include "codegen/cuda_like.h"

const char codegen_cuda_types[] =
    "typedef signed char i8;\n"
    "typedef short i16;\n"
    "typedef int i32;\n"
    "typedef long long i64;\n"
    "typedef unsigned char u8;\n"
    "typedef unsigned short u16;\n"
    "typedef unsigned int u32;\n"
    "typedef unsigned long long u64;\n"
    "typedef float f32;\n"
    "typedef double f64;\n"
    "typedef struct __attribute__((aligned(8))) u32x2 {\n    u32 x, y;\n} u32x2;\n"
    "typedef struct __attribute__((aligned(16))) u32x4 {\n    u32 x, y, z, w;\n} u32x4;\n"
    "#define FN static __device__ __forceinline__\n"
    "#define pick(f, t, c) ((c) ? (t) : (f))\n"
    "#if defined(__FLT16_MANT_DIG__) && !defined(__CUDA_ARCH__)\n#define HAS_HALF 1\n#endif\n"
    "#ifdef __clang__\n#pragma clang fp contract(off)\n#endif\n"
    "#ifndef LAUNCH_BYTES\n"
    "#define LAUNCH_BYTES(n) extern __shared__ __attribute__((aligned(1024))) u8 launch_bytes[]\n"
    "#endif\n";

/* Workgroup memory that a text may declare itself. */
enum { SHARED_MAX = 48 << 10 };

/* Workgroups that should find room on one unit together: where sums fill the registers of a
 * lane, the compiler is to stop at half of them (2 * 256 lanes of 128 registers are all there
 * are), so that one group computes while another one waits. */
static uint32_t resident(const ir_kernel *k) {
    enum { FEW = 36, MANY = 80, LANES = 256 };
    uint32_t words = 0;
    for (uint32_t n = 0; n < k->n_register; n++)
        words += k->registers[n].count * ((ir_type_bytes(k->registers[n].type) + 3) / 4);
    return k->n_fragment || words < FEW || words > MANY || ir_lanes(k) > LANES
               ? 1
               : 2 * LANES / ir_lanes(k);
}

/* A graph of dispatches may launch this one while the one before runs: nothing is read or
 * written until that has ended. The next one may come when the last results are about to be stored:
 * sooner, its workgroups would settle where there is room while this one still loads. Kernels for
 * matrix units leave no room, and let it come at once. What has no such graph ignores both. */
#define FROM_90(lines) "#if defined(__CUDA_ARCH__) && __CUDA_ARCH__ >= 900\n" lines "#endif\n"
#define WAIT "    asm volatile(\"griddepcontrol.wait;\" ::: \"memory\");\n"
#define LAUNCH "    asm volatile(\"griddepcontrol.launch_dependents;\" ::: \"memory\");\n"

void codegen_cuda_kernel(codegen *g) {
    const ir_kernel *k = g->k;
    if (k->n_param) {
        base_text_print(&g->head, "typedef struct params_t {\n");
        for (uint32_t n = 0; n < k->n_param; n++)
            base_text_print(&g->head, "    %s p%u;\n", ir_type_name(k->params[n].type), n);
        base_text_print(&g->head, "} params_t;\n");
    }
    base_text_print(
        &g->head,
        "#ifdef __cplusplus\nextern \"C\"\n#endif\n__global__ void __launch_bounds__(%u, %u) %s(",
        (unsigned)ir_lanes(k), (unsigned)resident(k), g->entry);
    for (uint32_t n = 0; n < k->n_buffer; n++)
        base_text_print(&g->head, "%s%svoid *a%u", n ? ", " : "",
                        k->buffers[n].access == IR_READ ? "const " : "", n);
    if (k->n_param) base_text_print(&g->head, "%sconst params_t params", k->n_buffer ? ", " : "");
    base_text_print(&g->head, ") {\n");
    const bool waits = g->language->language == DEVICE_CUDA_C, late = !k->n_fragment;
    if (waits) base_text_print(&g->head, "%s", late ? FROM_90(WAIT) : FROM_90(WAIT LAUNCH));
    codegen_params(g, "params.p%u", false);
    codegen_c_body(g, &(codegen_c_words){.local = "const u32 local_%c = threadIdx.%c;",
                                         .group = "const u32 group_%c = blockIdx.%c;",
                                         .groups = "const u32 groups_%c = gridDim.%c;",
                                         .global = "",
                                         .constant_end = "__restrict__ ",
                                         .shared = "__shared__ __attribute__((aligned(16)))",
                                         .shared_max = SHARED_MAX,
                                         .before_last = waits && late ? FROM_90(LAUNCH) : NULL});
}

static bool fragment(codegen *g, ir_id id) {
    const ir_instruction *i = &g->k->code[id];
    if (i->op == IR_COPY_COMMIT) {
        codegen_line(g, "copy_commit();");
        return true;
    }
    if (i->op == IR_COPY_WAIT) {
        codegen_line(g, "copy_wait(%u);", (unsigned)i->imm);
        if (codegen_cuda_multiplies(g->k)) codegen_line(g, "multiply_fence();");
        return true;
    }
    if (i->op == IR_FRAGMENT_WAIT) {
        codegen_cuda_wait(g, id);
        return true;
    }
    if (i->op != IR_COPY_ASYNC) return codegen_cuda_fragment(g, id);
    const ir_array_decl *a = &g->k->workgroups[i->array];
    const uint32_t bytes = (uint32_t)(i->imm >> 16);
    if (a->swizzle_bits && (ir_type_bytes(a->type) << a->swizzle_base) < bytes) return false;
    codegen_line(g, "copy_async(&w%u[%s], &b%u[%s], %uu, %s);", (unsigned)i->array,
                 codegen_swizzled(g, a, codegen_index_of(g, i, 0)), (unsigned)(i->imm & 0xffff),
                 codegen_index_of(g, i, 1), (unsigned)bytes,
                 i->n_in == 3 ? codegen_operand(g, i, 2, 0) : "true");
    return true;
}

const codegen_language_info codegen_cuda = {
    .name = "CUDA C",
    .language = DEVICE_CUDA_C,
    .wide_index = true,
    .types = codegen_cuda_types,
    .barrier = "__syncthreads();",
    .unroll = "#pragma unroll %u",
    .shuffle = "__shfl_xor_sync(0xffffffffu, $0, $1)",
    .broadcast = "__shfl_sync(0xffffffffu, $0, $1, $2)",
    .place = codegen_c_place,
    .load = codegen_c_load,
    .store = codegen_c_store,
    .atomic = codegen_c_atomic,
    .fragments = codegen_cuda_fragments,
    .fragment = fragment,
    .kernel = codegen_cuda_kernel,
};
