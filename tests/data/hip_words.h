// hip_words.h - what generated texts use of HIP's headers, by clang's builtins: so that clang alone compiles them for AMD's GPUs.
// Functions of math.h are clang's own header's (__clang_hip_runtime_wrapper.h).
struct hip_three {
    unsigned x, y, z;
};
#define threadIdx (hip_three{__builtin_amdgcn_workitem_id_x(), __builtin_amdgcn_workitem_id_y(), __builtin_amdgcn_workitem_id_z()})
#define blockIdx (hip_three{__builtin_amdgcn_workgroup_id_x(), __builtin_amdgcn_workgroup_id_y(), __builtin_amdgcn_workgroup_id_z()})
#define blockDim (hip_three{__builtin_amdgcn_workgroup_size_x(), __builtin_amdgcn_workgroup_size_y(), __builtin_amdgcn_workgroup_size_z()})
#define gridDim (hip_three{__builtin_amdgcn_grid_size_x() / blockDim.x, __builtin_amdgcn_grid_size_y() / blockDim.y, __builtin_amdgcn_grid_size_z() / blockDim.z})
#define __forceinline__ inline __attribute__((always_inline))
#define __noinline__ __attribute__((noinline))
#define __launch_bounds__(lanes, ...) __attribute__((amdgpu_flat_work_group_size(1, lanes)))

#define HIP_WORD static __device__ __forceinline__
HIP_WORD void __syncthreads() {
    __builtin_amdgcn_fence(__ATOMIC_RELEASE, "workgroup");
    __builtin_amdgcn_s_barrier();
    __builtin_amdgcn_fence(__ATOMIC_ACQUIRE, "workgroup");
}
HIP_WORD void __threadfence() {
    __builtin_amdgcn_fence(__ATOMIC_SEQ_CST, "agent");
}
HIP_WORD unsigned hip_lane() {
    return __builtin_amdgcn_mbcnt_hi(~0u, __builtin_amdgcn_mbcnt_lo(~0u, 0));
}
template <class T> HIP_WORD T __shfl(T value, int lane) {
    static_assert(sizeof(T) % 4 == 0, "whole words");
    int words[sizeof(T) / 4];
    __builtin_memcpy(words, &value, sizeof value);
    for (unsigned i = 0; i < sizeof(T) / 4; i++) words[i] = __builtin_amdgcn_ds_bpermute(lane << 2, words[i]);
    __builtin_memcpy(&value, words, sizeof value);
    return value;
}
template <class T> HIP_WORD T __shfl(T value, int lane, int width) {
    return __shfl(value, (int)((hip_lane() & ~(unsigned)(width - 1)) + (unsigned)(lane & (width - 1))));
}
template <class T> HIP_WORD T __shfl_xor(T value, int mask) {
    return __shfl(value, (int)(hip_lane() ^ (unsigned)mask));
}

#define HIP_ATOMIC(name, T, builtin) \
    HIP_WORD T name(T *at, T value) { return builtin(at, value, __ATOMIC_RELAXED); }
#define HIP_ATOMICS(T)                          \
    HIP_ATOMIC(atomicAdd, T, __atomic_fetch_add) \
    HIP_ATOMIC(atomicMin, T, __atomic_fetch_min) \
    HIP_ATOMIC(atomicMax, T, __atomic_fetch_max)
HIP_ATOMICS(int)
HIP_ATOMICS(unsigned)
