/* rivals.h - what users would pick for a product of matrices: cuBLAS and OpenBLAS, opened at run
 * time by a benchmark alone.
 *
 * Each function gives the seconds of one y[m, n] = x[m, k] * w[n, k]^T, the best of a few, or 0
 * and why in one line. */
#ifndef BENCH_RIVALS_H
#define BENCH_RIVALS_H

#include "base/thread.h"
#include "ir/ir.h"

#include <dlfcn.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { RIVAL_ROUNDS = 6, RIVAL_TURNS = 10 };

static inline void *rival_open(const char *const *names, const char *variable) {
    const char *own = getenv(variable);
    void *library = own ? dlopen(own, RTLD_NOW | RTLD_GLOBAL) : NULL;
    for (; !library && *names; names++) library = dlopen(*names, RTLD_NOW | RTLD_GLOBAL);
    return library;
}

/* A function of a library: POSIX promises that the bits fit. */
static inline bool rival_find(void *library, const char *name, void *function) {
    void *address = dlsym(library, name);
    memcpy(function, &address, sizeof address);
    return address != NULL;
}

typedef struct rival_cuda {
    int (*init)(unsigned), (*device)(int *, int), (*retain)(void **, int), (*enter)(void *),
        (*take)(uint64_t *, size_t);
    int (*give)(uint64_t), (*fill)(uint64_t, unsigned short, size_t),
        (*upload)(uint64_t, const void *, size_t);
    int (*event)(void **, unsigned), (*record)(void *, void *), (*wait)(void *),
        (*elapsed)(float *, void *, void *), (*release)(int);
    int (*create)(void **), (*destroy)(void *), (*mode)(void *, int);
    int (*sgemm)(void *, int, int, int, int, int, const float *, const void *, int, const void *,
                 int, const float *, void *, int);
    int (*gemm)(void *, int, int, int, int, int, const void *, const void *, int, int, const void *,
                int, int, const void *, void *, int, int, int, int);
} rival_cuda;

static inline bool rival_cuda_open(rival_cuda *c, char *why, size_t size) {
    static const char *const drivers[] = {"libcuda.so.1", NULL};
    static const char *const libraries[] = {"libcublas.so.13",
                                            "libcublas.so.12",
                                            "libcublas.so.11",
                                            "libcublas.so",
                                            "/usr/local/cuda/lib64/libcublas.so",
                                            NULL};
    void *driver = rival_open(drivers, "BERYL_CUDA"),
         *library = driver ? rival_open(libraries, "BERYL_CUBLAS") : NULL;
    if (!library) {
        snprintf(why, size, "%s is not there", driver ? "libcublas.so" : "libcuda.so.1");
        return false;
    }
    const bool all = rival_find(driver, "cuInit", &c->init) &&
                     rival_find(driver, "cuDeviceGet", &c->device) &&
                     rival_find(driver, "cuDevicePrimaryCtxRetain", &c->retain) &&
                     rival_find(driver, "cuCtxSetCurrent", &c->enter) &&
                     rival_find(driver, "cuMemAlloc_v2", &c->take) &&
                     rival_find(driver, "cuMemFree_v2", &c->give) &&
                     rival_find(driver, "cuMemcpyHtoD_v2", &c->upload) &&
                     rival_find(driver, "cuMemsetD16_v2", &c->fill) &&
                     rival_find(driver, "cuEventCreate", &c->event) &&
                     rival_find(driver, "cuEventRecord", &c->record) &&
                     rival_find(driver, "cuEventSynchronize", &c->wait) &&
                     rival_find(driver, "cuEventElapsedTime", &c->elapsed) &&
                     rival_find(driver, "cuDevicePrimaryCtxRelease_v2", &c->release) &&
                     rival_find(library, "cublasCreate_v2", &c->create) &&
                     rival_find(library, "cublasDestroy_v2", &c->destroy) &&
                     rival_find(library, "cublasSetMathMode", &c->mode) &&
                     rival_find(library, "cublasSgemm_v2", &c->sgemm) &&
                     rival_find(library, "cublasGemmEx", &c->gemm);
    if (!all) snprintf(why, size, "its functions are not all there");
    return all;
}

/* x, w: of the type (the same bytes for both will do), sums in f32, the result in f32: as the
 * kernel. */
static inline double rival_cublas(ir_type type, uint32_t m, uint32_t n, uint32_t k, const void *x,
                                  const void *w, char *why, size_t size) {
    enum {
        TRANSPOSED = 1,
        PLAIN = 0,
        PEDANTIC = 2,
        R_32F = 0,
        R_16F = 2,
        R_16BF = 14,
        COMPUTE_32F = 68,
        ANY = -1
    };
    rival_cuda c;
    void *context = NULL, *handle = NULL, *begin = NULL, *end = NULL, *previous = NULL;
    uint64_t memory[3] = {0};
    const float one = 1, zero = 0;
    double best = 0;
    int gpu = 0, code;
    if (!rival_cuda_open(&c, why, size)) return 0;
    const size_t bytes = ir_type_bytes(type),
                 sizes[] = {(size_t)m * k * bytes, (size_t)n * k * bytes, (size_t)m * n * 4};
    code = c.init(0);
    if (!code) code = c.device(&gpu, 0);
    if (!code) code = c.retain(&context, gpu);
    if (!code) code = c.enter(context);
    for (int i = 0; i < 3 && !code; i++) code = c.take(&memory[i], sizes[i]);
    if (!code) code = c.upload(memory[0], x, sizes[0]);
    if (!code) code = c.upload(memory[1], w, sizes[1]);
    if (!code) code = c.event(&begin, 0);
    if (!code) code = c.event(&end, 0);
    if (!code) code = c.create(&handle);
    if (!code && type == IR_F32) code = c.mode(handle, PEDANTIC); /* no TF32 */
    const int kind = type == IR_F32 ? R_32F : type == IR_F16 ? R_16F : R_16BF;
    for (int round = 0; round < RIVAL_ROUNDS && !code; round++) {
        float ms = 0;
        code = c.record(begin, NULL);
        /* Columns first there: y^T[n, m] = w * x^T. */
        for (int turn = 0; turn < RIVAL_TURNS && !code; turn++)
            code = type == IR_F32
                       ? c.sgemm(handle, TRANSPOSED, PLAIN, (int)n, (int)m, (int)k, &one,
                                 (void *)(uintptr_t)memory[1], (int)k, (void *)(uintptr_t)memory[0],
                                 (int)k, &zero, (void *)(uintptr_t)memory[2], (int)n)
                       : c.gemm(handle, TRANSPOSED, PLAIN, (int)n, (int)m, (int)k, &one,
                                (void *)(uintptr_t)memory[1], kind, (int)k,
                                (void *)(uintptr_t)memory[0], kind, (int)k, &zero,
                                (void *)(uintptr_t)memory[2], R_32F, (int)n, COMPUTE_32F, ANY);
        if (!code) code = c.record(end, NULL);
        if (!code) code = c.wait(end);
        if (!code) code = c.elapsed(&ms, begin, end);
        if (!code && round && (best == 0 || ms * 1e-3 / RIVAL_TURNS < best))
            best = (double)ms * 1e-3 / RIVAL_TURNS;
    }
    if (handle) c.destroy(handle);
    for (int i = 0; i < 3; i++)
        if (memory[i]) c.give(memory[i]);
    if (context) c.enter(previous), c.release(gpu);
    if (code) snprintf(why, size, "error %d", code);
    return code ? 0 : best;
}

static inline double rival_openblas(uint32_t m, uint32_t n, uint32_t k, const float *x,
                                    const float *w, char *why, size_t size) {
    enum { ROWS = 101, PLAIN = 111, TRANSPOSED = 112 };
    static const char *const libraries[] = {"libopenblas.so.0", "libopenblas.so", NULL};
    void (*sgemm)(int, int, int, int, int, int, float, const float *, int, const float *, int,
                  float, float *, int);
    void *library = rival_open(libraries, "BERYL_OPENBLAS");
    float *y = malloc((size_t)m * n * sizeof *y);
    double best = 0;
    if (!y || !library || !rival_find(library, "cblas_sgemm", &sgemm)) {
        snprintf(why, size, "libopenblas.so.0 is not there");
        free(y);
        return 0;
    }
    for (int round = 0; round < 4 * RIVAL_ROUNDS; round++) {
        const double begin = base_time();
        sgemm(ROWS, PLAIN, TRANSPOSED, (int)m, (int)n, (int)k, 1, x, (int)k, w, (int)k, 0, y,
              (int)n);
        const double seconds = base_time() - begin;
        if (best == 0 || seconds < best) best = seconds;
    }
    free(y);
    return best;
}

#endif
