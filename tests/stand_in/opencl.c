/* opencl.c - the system's OpenCL, whose calls fail where a test says so (stand_in.h), and with
 * subgroups, which PoCL 3.1 has not. Every function that Beryl takes of a loader is here and
 * calls that of the loader which this library is linked with.
 *
 * Releasing never fails. "ended" is no call: how commands ended, by the status of their event.
 *
 * STAND_IN_OPENCL (environment) says whose subgroups, none without it: "amd", wavefronts of 64
 * and the shuffles of Khronos, or "intel", a kernel asks for 8 or 32 lanes and has Intel's
 * shuffles. A program of generated text gets, ahead of it, these shuffles by way of workgroup
 * memory, with barriers around: right wherever the whole workgroup comes to them, as the kernel
 * IR has it. */
#define _GNU_SOURCE /* RTLD_NEXT */
#include "calls.h"

#include "device/opencl/opencl.h"

#include <dlfcn.h>
#include <stdbool.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

#define API __attribute__((visibility("default")))

enum { INVALID_VALUE = -30 };

static const char shuffles[] =
    "#ifdef BERYL_TEST_FUNCTIONS\n" /* tests/device_texts.c */
    "size_t __attribute__((overloadable, const)) get_local_id(uint);\n"
    "size_t __attribute__((overloadable, const)) get_local_size(uint);\n"
    "void __attribute__((overloadable, convergent)) barrier(cl_mem_fence_flags);\n#endif\n"
    "static uint stand_in_lane(void) {\n"
    "return get_local_id(0) + get_local_size(0) * (get_local_id(1) + get_local_size(1) * "
    "get_local_id(2)); }\n"
    "#define STAND_IN_SHUFFLE(T) static T __attribute__((overloadable)) stand_in_shuffle(T v, uint "
    "to, __local ulong *cells) {\\\n"
    "    __local T *all = (__local T *)cells; all[stand_in_lane()] = v; "
    "barrier(CLK_LOCAL_MEM_FENCE);\\\n"
    "    const T got = all[stand_in_lane() / STAND_IN_LANES * STAND_IN_LANES + to]; "
    "barrier(CLK_LOCAL_MEM_FENCE);\\\n"
    "    return got; }\n"
    "STAND_IN_SHUFFLE(int) STAND_IN_SHUFFLE(uint) STAND_IN_SHUFFLE(long) STAND_IN_SHUFFLE(ulong) "
    "STAND_IN_SHUFFLE(float) "
    "STAND_IN_SHUFFLE(double)\n"
    "#define STAND_IN_TO(v, to) stand_in_shuffle(v, to, stand_in_cells)\n"
    "#define STAND_IN_XOR(v, n) stand_in_shuffle(v, stand_in_lane() % STAND_IN_LANES ^ (n), "
    "stand_in_cells)\n";
static const char cells[] = "__local ulong stand_in_cells[1024];\n";

static const struct vendor {
    const char *name, *extensions, *words; /* words: ahead of a program */
} vendors[] = {
    {"amd", " cl_khr_subgroups cl_khr_subgroup_shuffle",
     "#define cl_khr_subgroups 1\n#define cl_khr_subgroup_shuffle 1\n#define STAND_IN_LANES 64\n"
     "#define sub_group_shuffle STAND_IN_TO\n#define sub_group_shuffle_xor STAND_IN_XOR\n"},
    {"intel", " cl_intel_subgroups cl_intel_required_subgroup_size",
     "#define cl_intel_subgroups 1\n#define cl_intel_required_subgroup_size 1\n#define "
     "STAND_IN_LANES 32\n"
     "#define intel_sub_group_shuffle STAND_IN_TO\n#define intel_sub_group_shuffle_xor "
     "STAND_IN_XOR\n"},
};

static const struct vendor *vendor_now(void) {
    const char *name = getenv("STAND_IN_OPENCL");
    for (size_t i = 0; name && i < sizeof vendors / sizeof *vendors; i++)
        if (!strcmp(vendors[i].name, name)) return &vendors[i];
    return NULL;
}

static int32_t answer(const void *value, size_t size, size_t room, void *to, size_t *out) {
    if (to && room < size) return INVALID_VALUE;
    if (to) memcpy(to, value, size);
    if (out) *out = size;
    return 0;
}

/* ---- what is the loader's, and what is told otherwise ---------------------------------------- */

/* POSIX has dlsym give functions as void *, which ISO C only converts through memory. */
#define X(result, name, parameters)                   \
    typedef result name##_function parameters;        \
    static name##_function *real_##name(void) {       \
        void *address = dlsym(RTLD_NEXT, "cl" #name); \
        name##_function *function;                    \
        memcpy(&function, &address, sizeof function); \
        return function;                              \
    }
OPENCL_FUNCTIONS(X)
#undef X

static int32_t told_GetDeviceInfo(opencl_id id, uint32_t what, size_t room, void *to,
                                  size_t *size) {
    const struct vendor *v = vendor_now();
    const bool amd = v == &vendors[0];
    static const uint32_t wavefront = 64;
    static const size_t sizes[] = {8, 32};
    if (v && what == OPENCL_WAVEFRONT_AMD && amd)
        return answer(&wavefront, sizeof wavefront, room, to, size);
    if (v && what == OPENCL_SUBGROUP_SIZES_INTEL && !amd)
        return answer(sizes, sizeof sizes, room, to, size);
    if (!v || what != OPENCL_EXTENSIONS) return real_GetDeviceInfo()(id, what, room, to, size);
    char words[8192];
    const int32_t code = real_GetDeviceInfo()(id, what, sizeof words - 256, words, NULL);
    if (code) return code;
    strcat(words, v->extensions);
    return answer(words, strlen(words) + 1, room, to, size);
}

/* Of generated texts, those whose kernel asks for subgroups: the cells go to the beginning of
 * its body. */
static opencl_code told_CreateProgramWithSource(opencl_context context, uint32_t n,
                                                const char **texts, const size_t *sizes,
                                                int32_t *error) {
    char *text = vendor_now() && n == 1 && sizes ? strndup(texts[0], sizes[0]) : NULL;
    const char *kernel = text ? strstr(text, "__kernel ") : NULL,
               *lanes = kernel ? strstr(kernel, " lanes(") : NULL;
    const char *body = lanes ? strstr(lanes, " {\n") : NULL;
    opencl_code program;
    if (body) {
        body += 3;
        const char *parts[] = {vendor_now()->words, shuffles, text, cells, body};
        const size_t of[] = {strlen(parts[0]), strlen(parts[1]), (size_t)(body - text),
                             strlen(cells), strlen(body)};
        program = real_CreateProgramWithSource()(context, 5, parts, of, error);
    } else {
        program = real_CreateProgramWithSource()(context, n, texts, sizes, error);
    }
    free(text);
    return program;
}

static int32_t told_GetEventInfo(opencl_event event, uint32_t what, size_t room, void *to,
                                 size_t *size) {
    const int32_t state = what == OPENCL_EVENT_STATUS ? stand_in_fails("ended") : 0;
    return state ? answer(&state, sizeof state, room, to, size)
                 : real_GetEventInfo()(event, what, room, to, size);
}

/* ---- every function -------------------------------------------------------------------------- */

#define CALL_GetPlatformIDs real_GetPlatformIDs()(room, list, n)
#define CALL_GetPlatformInfo real_GetPlatformInfo()(platform, what, room, to, size)
#define CALL_GetDeviceIDs real_GetDeviceIDs()(platform, type, room, list, n)
#define CALL_GetDeviceInfo told_GetDeviceInfo(id, what, room, to, size)
#define CALL_CreateContext real_CreateContext()(properties, n, ids, told, user, error)
#define CALL_ReleaseContext real_ReleaseContext()(context)
#define CALL_CreateCommandQueue real_CreateCommandQueue()(context, id, properties, error)
#define CALL_ReleaseCommandQueue real_ReleaseCommandQueue()(queue)
#define CALL_CreateBuffer real_CreateBuffer()(context, flags, size, host, error)
#define CALL_ReleaseMemObject real_ReleaseMemObject()(memory)
#define CALL_CreateProgramWithSource told_CreateProgramWithSource(context, n, texts, sizes, error)
#define CALL_BuildProgram real_BuildProgram()(code, n, ids, options, told, user)
#define CALL_GetProgramBuildInfo real_GetProgramBuildInfo()(code, id, what, room, to, size)
#define CALL_ReleaseProgram real_ReleaseProgram()(code)
#define CALL_CreateKernel real_CreateKernel()(code, name, error)
#define CALL_GetKernelWorkGroupInfo real_GetKernelWorkGroupInfo()(kernel, id, what, room, to, size)
#define CALL_SetKernelArg real_SetKernelArg()(kernel, index, size, value)
#define CALL_ReleaseKernel real_ReleaseKernel()(kernel)
#define CALL_EnqueueNDRangeKernel \
    real_EnqueueNDRangeKernel()(queue, kernel, dimensions, offset, global, local, n, before, event)
#define CALL_EnqueueWriteBuffer \
    real_EnqueueWriteBuffer()(queue, to, blocking, offset, size, from, n, before, event)
#define CALL_EnqueueReadBuffer \
    real_EnqueueReadBuffer()(queue, from, blocking, offset, size, to, n, before, event)
#define CALL_EnqueueCopyBuffer \
    real_EnqueueCopyBuffer()(queue, from, to, from_offset, to_offset, size, n, before, event)
#define CALL_EnqueueFillBuffer \
    real_EnqueueFillBuffer()(queue, to, pattern, pattern_size, offset, size, n, before, event)
#define CALL_EnqueueMarkerWithWaitList real_EnqueueMarkerWithWaitList()(queue, n, before, event)
#define CALL_Flush real_Flush()(queue)
#define CALL_Finish real_Finish()(queue)
#define CALL_WaitForEvents real_WaitForEvents()(n, events)
#define CALL_GetEventInfo told_GetEventInfo(event, what, room, to, size)
#define CALL_GetEventProfilingInfo real_GetEventProfilingInfo()(event, what, room, to, size)
#define CALL_ReleaseEvent real_ReleaseEvent()(event)

#define FAIL_int32_t(code) return code
#define FAIL_THING(code) return *error = code, NULL
#define FAIL_opencl_context FAIL_THING
#define FAIL_opencl_queue FAIL_THING
#define FAIL_opencl_memory FAIL_THING
#define FAIL_opencl_code FAIL_THING
#define FAIL_opencl_kernel FAIL_THING

static bool begins(const char *name, const char *with) {
    return !strncmp(name, with, strlen(with));
}

/* What a call that gave 0, or something else, makes or drops. */
static int made_by(const char *name, bool zero) {
    if (begins(name, "Release")) return zero ? -1 : 0;
    return begins(name, "EnqueueMarker") ? zero : begins(name, "Create") ? !zero : 0;
}

#define X(result, name, parameters)                                                        \
    API result cl##name parameters {                                                       \
        const int failed = begins(#name, "Release") ? 0 : stand_in_enter_call("cl" #name); \
        if (failed) FAIL_##result(failed);                                                 \
        const result got = CALL_##name;                                                    \
        stand_in_count(made_by(#name, !got));                                              \
        return got;                                                                        \
    }
OPENCL_FUNCTIONS(X)
#undef X
