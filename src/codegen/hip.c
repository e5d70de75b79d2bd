/* hip.c - HIP C, for hiprtc, hipcc or clang (with hip_runtime.h included before the text where the
 * compiler does not do it): CUDA's text with other words for what moves between lanes. */
#include "codegen/cuda_like.h"

const codegen_language_info codegen_hip = {
    .name = "HIP C",
    .language = DEVICE_HIP_C,
    .wide_index = true,
    .types = codegen_cuda_types,
    .barrier = "__syncthreads();",
    .unroll = "#pragma unroll %u",
    .shuffle = "__shfl_xor($0, $1)",
    .broadcast = "__shfl($0, $1, $2)",
    .place = codegen_c_place,
    .load = codegen_c_load,
    .store = codegen_c_store,
    .atomic = codegen_c_atomic,
    .kernel = codegen_cuda_kernel,
};
