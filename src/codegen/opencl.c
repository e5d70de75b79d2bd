/* opencl.c - OpenCL C 1.2; subgroups by cl_khr_subgroups and cl_khr_subgroup_shuffle or by
 * cl_intel_subgroups, of the size that the device is said to have; f64 by cl_khr_fp64. */
#include "codegen/c_vector.h"

static const char types[] =
    "typedef char i8;\n"
    "typedef short i16;\n"
    "typedef int i32;\n"
    "typedef long i64;\n"
    "typedef uchar u8;\n"
    "typedef ushort u16;\n"
    "typedef uint u32;\n"
    "typedef ulong u64;\n"
    "typedef float f32;\n"
    "typedef uint2 u32x2;\n"
    "typedef uint4 u32x4;\n"
    "#ifdef cl_khr_fp64\n#pragma OPENCL EXTENSION cl_khr_fp64 : enable\ntypedef double "
    "f64;\n#endif\n"
    "enum { axis_x, axis_y, axis_z };\n"
    "#ifdef cl_khr_subgroups\n#pragma OPENCL EXTENSION cl_khr_subgroups : enable\n#endif\n"
    "#ifdef cl_khr_subgroup_shuffle\n#pragma OPENCL EXTENSION cl_khr_subgroup_shuffle : enable\n"
    "#elif defined(cl_intel_subgroups)\n#pragma OPENCL EXTENSION cl_intel_subgroups : enable\n"
    "#define sub_group_shuffle intel_sub_group_shuffle\n"
    "#define sub_group_shuffle_xor intel_sub_group_shuffle_xor\n#endif\n"
    "#ifdef cl_intel_required_subgroup_size\n"
    "#pragma OPENCL EXTENSION cl_intel_required_subgroup_size : enable\n"
    "#define lanes(n) __attribute__((intel_reqd_sub_group_size(n)))\n"
    "#else\n#define lanes(n)\n#endif\n"
    "#define FN static\n"
    "#define ALIGNED __attribute__((aligned(64)))\n"
    "#define pick(f, t, c) ((c) ? (t) : (f))\n"
    "#pragma OPENCL FP_CONTRACT OFF\n";

static void kernel(codegen *g) {
    const ir_kernel *k = g->k;
    base_text_print(&g->head, "__kernel __attribute__((reqd_work_group_size(%u, %u, %u))) ",
                    (unsigned)k->workgroup[0], (unsigned)k->workgroup[1],
                    (unsigned)k->workgroup[2]);
    if (k->subgroup_size > 1) /* the device's subgroups, of which the kernel's may be parts */
        base_text_print(&g->head, "lanes(%u) ",
                        (unsigned)(g->caps ? g->caps->subgroup_size : k->subgroup_size));
    base_text_print(&g->head, "void %s(", g->entry);
    for (uint32_t n = 0; n < k->n_buffer; n++)
        base_text_print(&g->head, "__global %schar *buffer%u, ulong begin%u, ",
                        k->buffers[n].access == IR_READ ? "const " : "", n, n);
    base_text_print(&g->head, "__constant uint *params, uint params_at) {\n");
    for (uint32_t n = 0; n < k->n_buffer; n++)
        base_text_print(&g->head, "    __global %svoid *a%u = buffer%u + begin%u;\n",
                        k->buffers[n].access == IR_READ ? "const " : "", n, n, n);
    codegen_params(g, "params[params_at + %uu]", true);
    codegen_c_vectors(g);
    codegen_c_body(
        g, &(codegen_c_words){.local = "const u32 local_%c = (u32)get_local_id(axis_%c);",
                              .group = "const u32 group_%c = (u32)get_group_id(axis_%c);",
                              .groups = "const u32 groups_%c = (u32)get_num_groups(axis_%c);",
                              .global = "__global ",
                              .constant_end = "restrict ",
                              .shared = "__local"});
}

const codegen_language_info codegen_opencl = {
    .name = "OpenCL C",
    .language = DEVICE_OPENCL_C,
    .types = types,
    .barrier = "barrier(CLK_LOCAL_MEM_FENCE);",
    .unroll = "#pragma unroll %u",
    .shuffle = "sub_group_shuffle_xor($0, $1)",
    .broadcast = "sub_group_shuffle($0, (lane & $3u) | $1u)",
    .place = codegen_c_place,
    .load = codegen_c_load,
    .store = codegen_c_store,
    .atomic = codegen_c_atomic,
    .kernel = kernel,
};
