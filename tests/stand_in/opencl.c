/* opencl.c - the system's OpenCL with subgroups, which PoCL 3.1 has not: two calls of the loader that this library is linked
 * with, all others are the loader's own.
 *
 * STAND_IN_OPENCL (environment) says whose subgroups: "amd", wavefronts of 64 and the shuffles of Khronos, or "intel", a kernel
 * asks for 8 or 32 lanes and has Intel's shuffles. A program of generated text gets, ahead of it, these shuffles by way of
 * workgroup memory, with barriers around: right wherever the whole workgroup comes to them, as the kernel IR has it. */
#define _GNU_SOURCE /* RTLD_NEXT */
#include <dlfcn.h>
#include <stdbool.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

#define API __attribute__((visibility("default")))

enum { EXTENSIONS = 0x1030, WAVEFRONT_AMD = 0x4043, SUBGROUP_SIZES_INTEL = 0x4108, INVALID_VALUE = -30 };

static const char shuffles[] =
    "static uint stand_in_lane(void) {\n"
    "return get_local_id(0) + get_local_size(0) * (get_local_id(1) + get_local_size(1) * get_local_id(2)); }\n"
    "#define STAND_IN_SHUFFLE(T) static T __attribute__((overloadable)) stand_in_shuffle(T v, uint to, __local ulong *cells) {\\\n"
    "    __local T *all = (__local T *)cells; all[stand_in_lane()] = v; barrier(CLK_LOCAL_MEM_FENCE);\\\n"
    "    const T got = all[stand_in_lane() / STAND_IN_LANES * STAND_IN_LANES + to]; barrier(CLK_LOCAL_MEM_FENCE);\\\n"
    "    return got; }\n"
    "STAND_IN_SHUFFLE(int) STAND_IN_SHUFFLE(uint) STAND_IN_SHUFFLE(long) STAND_IN_SHUFFLE(ulong) STAND_IN_SHUFFLE(float) "
    "STAND_IN_SHUFFLE(double)\n"
    "#define STAND_IN_TO(v, to) stand_in_shuffle(v, to, stand_in_cells)\n"
    "#define STAND_IN_XOR(v, n) stand_in_shuffle(v, stand_in_lane() % STAND_IN_LANES ^ (n), stand_in_cells)\n";
static const char cells[] = "__local ulong stand_in_cells[1024];\n";

static const struct vendor {
    const char *name, *extensions, *words; /* words: ahead of a program */
} vendors[] = {
    {"amd", " cl_khr_subgroups cl_khr_subgroup_shuffle",
     "#define cl_khr_subgroups 1\n#define cl_khr_subgroup_shuffle 1\n#define STAND_IN_LANES 64\n"
     "#define sub_group_shuffle STAND_IN_TO\n#define sub_group_shuffle_xor STAND_IN_XOR\n"},
    {"intel", " cl_intel_subgroups cl_intel_required_subgroup_size",
     "#define cl_intel_subgroups 1\n#define cl_intel_required_subgroup_size 1\n#define STAND_IN_LANES 32\n"
     "#define intel_sub_group_shuffle STAND_IN_TO\n#define intel_sub_group_shuffle_xor STAND_IN_XOR\n"},
};

static const struct vendor *vendor_now(void) {
    const char *name = getenv("STAND_IN_OPENCL");
    for (size_t i = 0; name && i < sizeof vendors / sizeof *vendors; i++)
        if (!strcmp(vendors[i].name, name)) return &vendors[i];
    return &vendors[0];
}

static int32_t answer(const void *value, size_t size, size_t room, void *to, size_t *out) {
    if (to && room < size) return INVALID_VALUE;
    if (to) memcpy(to, value, size);
    if (out) *out = size;
    return 0;
}

typedef int32_t device_info(void *id, uint32_t what, size_t room, void *to, size_t *size);
typedef void *make_program(void *context, uint32_t n, const char **texts, const size_t *sizes, int32_t *error);

API int32_t clGetDeviceInfo(void *id, uint32_t what, size_t room, void *to, size_t *size) {
    device_info *real;
    void *address = dlsym(RTLD_NEXT, "clGetDeviceInfo");
    memcpy(&real, &address, sizeof real);
    const struct vendor *v = vendor_now();
    const bool amd = v == &vendors[0];
    static const uint32_t wavefront = 64;
    static const size_t sizes[] = {8, 32};
    if (what == WAVEFRONT_AMD && amd) return answer(&wavefront, sizeof wavefront, room, to, size);
    if (what == SUBGROUP_SIZES_INTEL && !amd) return answer(sizes, sizeof sizes, room, to, size);
    if (what != EXTENSIONS) return real(id, what, room, to, size);
    char words[8192];
    const int32_t code = real(id, what, sizeof words - 256, words, NULL);
    if (code) return code;
    strcat(words, v->extensions);
    return answer(words, strlen(words) + 1, room, to, size);
}

API void *clCreateProgramWithSource(void *context, uint32_t n, const char **texts, const size_t *sizes, int32_t *error) {
    make_program *real;
    void *address = dlsym(RTLD_NEXT, "clCreateProgramWithSource");
    memcpy(&real, &address, sizeof real);
    /* Of generated texts, those whose kernel asks for subgroups: the cells go to the beginning of its body. */
    char *text = n == 1 && sizes ? strndup(texts[0], sizes[0]) : NULL;
    const char *kernel = text ? strstr(text, "__kernel ") : NULL, *lanes = kernel ? strstr(kernel, " lanes(") : NULL;
    const char *body = lanes ? strstr(lanes, " {\n") : NULL;
    void *program;
    if (body) {
        body += 3;
        const char *parts[] = {vendor_now()->words, shuffles, text, cells, body};
        const size_t of[] = {strlen(parts[0]), strlen(parts[1]), (size_t)(body - text), strlen(cells), strlen(body)};
        program = real(context, 5, parts, of, error);
    } else {
        program = real(context, n, texts, sizes, error);
    }
    free(text);
    return program;
}
