/* device_texts.c - programs on their way to the device, wherever in the library they come from.
 *
 * WGSL: where BERYL_TEST_WGSL names a folder, every text is written there for
 * tools/tint-check.mjs, with the `enable` lines that Tint wants. For llvmpipe, loops of a known
 * length get a bound that only the dispatch knows: else Mesa unrolls them, each access with its
 * bounds checks, and LLVM takes up to thirty times as long. `make test-all` leaves them as they
 * are.
 *
 * OpenCL C: for PoCL, which reads clang's header of all functions twice for each program (18,000
 * lines, a quarter of what compiling takes), each generated text has the few ahead of it that they
 * call. One that is missing is an error of that text. `make test-all` leaves this too as it is.
 *
 * C of the host: the compiler optimises one text in four, drawn by what it says, which are the
 * options that the library gives; the others take half the time and say the same. `make test-all`
 * has all of them optimised, and BERYL_TEST_OPTIMISED too: where they run longer than they compile.
 *
 * The linker puts __wrap_ in the place of the real function (-Wl,--wrap=device_program_make, on
 * Linux). */
#define _POSIX_C_SOURCE 200809L
#include "device/device.h"

#include <ctype.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define WRAPPED(name) __wrap_##name
#define REAL(name) __real_##name

beryl_status REAL(device_program_make)(device *d, const device_program_desc *desc,
                                       device_program *out, beryl_error *error)
    __attribute__((weak));
beryl_status WRAPPED(device_program_make)(device *d, const device_program_desc *desc,
                                          device_program *out, beryl_error *error);

static void keep(const device_program_desc *desc, const char *folder) {
    char path[1024];
    const uint64_t hash =
        base_hash(desc->source, desc->source_size, desc->uses_f16 + 2u * desc->uses_subgroups);
    snprintf(path, sizeof path, "%s/%016llx.wgsl", folder, (unsigned long long)hash);
    FILE *file = fopen(path, "wbx");
    if (!file) return; /* there already, or no such folder */
    if (desc->uses_f16) fputs("enable f16;\n", file);
    if (desc->uses_subgroups) fputs("enable subgroups;\n", file);
    fwrite(desc->source, 1, desc->source_size, file);
    fclose(file);
}

/* "8u": where it ends, or NULL. */
static const char *after_number(const char *at) {
    const char *end = at;
    while (isdigit((unsigned char)*end)) end++;
    return end > at && *end == 'u' ? end + 1 : NULL;
}

/* "for (var i = 0u; i < 8u;": where its bound ends, or NULL. */
static const char *bound_end(const char *loop) {
    static const char begin[] = "for (var ", is[] = " = ", below[] = " < ";
    const char *name = loop + sizeof begin - 1;
    const size_t n = strcspn(name, " ;\n");
    const char *at = name + n;
    if (strncmp(at, is, sizeof is - 1)) return NULL;
    at = after_number(at + sizeof is - 1);
    if (!at || strncmp(at, "; ", 2) || strncmp(at + 2, name, n)) return NULL;
    at += 2 + n;
    if (strncmp(at, below, sizeof below - 1)) return NULL;
    at = after_number(at + sizeof below - 1);
    return at && *at == ';' ? at : NULL;
}

/* The text with such bounds, to be freed; NULL: it has no loop to change. No grid is so long that
 * the highest bit of a group's number is set. */
static char *rolled(const char *text) {
    static const char zero[] = " + (group.x >> 31u)";
    const char *from = strstr(text, "\nfn main(");
    const char *group = strstr(text, "@builtin(workgroup_id) group: vec3<u32>");
    size_t n = 0;
    for (const char *at = from; at && (at = strstr(at, "for (var ")); at++) n += !!bound_end(at);
    if (!group || !n) return NULL;
    char *out = malloc(strlen(text) + n * (sizeof zero - 1) + 1), *to = out;
    if (!out) abort();
    const char *copied = text;
    for (const char *at = from; (at = strstr(at, "for (var ")); at++) {
        const char *end = bound_end(at);
        if (!end) continue;
        memcpy(to, copied, (size_t)(end - copied));
        to += end - copied;
        memcpy(to, zero, sizeof zero - 1);
        to += sizeof zero - 1;
        copied = end;
    }
    strcpy(to, copied);
    return out;
}

/* ---- OpenCL C -------------------------------------------------------------------------------- */

/* PoCL alone hears this, and leaves its header out. Before any thread asks for the environment. */
static void __attribute__((constructor)) leave_header_out(void) {
    if (!getenv("BERYL_TEST_ALL"))
        setenv("POCL_EXTRA_BUILD_FLAGS", "-D_OPENCL_H_ -DBERYL_TEST_FUNCTIONS", 0);
}

static const char functions[] =
    "#ifdef BERYL_TEST_FUNCTIONS\n"
    "#define TEST_CHANGE __attribute__((overloadable))\n"
    "#define TEST_VALUE __attribute__((overloadable, const))\n"
    "#define TEST_PLACE(f) size_t TEST_VALUE f(uint);\n"
    "TEST_PLACE(get_global_id) TEST_PLACE(get_local_id) TEST_PLACE(get_local_size)\n"
    "TEST_PLACE(get_group_id) TEST_PLACE(get_num_groups)\n"
    "void __attribute__((overloadable, convergent)) barrier(cl_mem_fence_flags);\n"
    "float __attribute__((overloadable, pure)) vload_half(size_t, const __private half *);\n"
    "void TEST_CHANGE vstore_half_rte(float, size_t, __private half *);\n"
    "#define TEST_ATOMIC(f, T, space) T TEST_CHANGE f(volatile space T *, T);\n"
    "#define TEST_ATOMICS(f) TEST_ATOMIC(f, int, __global) TEST_ATOMIC(f, int, __local) "
    "TEST_ATOMIC(f, uint, __global) TEST_ATOMIC(f, uint, __local)\n"
    "TEST_ATOMICS(atomic_add) TEST_ATOMICS(atomic_min) TEST_ATOMICS(atomic_max)\n"
    "#define TEST_1(T, f) T TEST_VALUE f(T);\n"
    "#define TEST_2(T, f) T TEST_VALUE f(T, T);\n"
    "#define TEST_3(T, f) T TEST_VALUE f(T, T, T);\n"
    "#define TEST_OF(T) TEST_1(T, acos) TEST_1(T, asin) TEST_1(T, atan) TEST_2(T, atan2) "
    "TEST_1(T, ceil) TEST_1(T, cos) TEST_1(T, cosh) TEST_1(T, erf) TEST_1(T, exp) TEST_1(T, exp2) "
    "TEST_1(T, fabs) TEST_1(T, floor) TEST_3(T, fma) TEST_2(T, fmax) TEST_2(T, fmin) "
    "TEST_2(T, fmod) TEST_1(T, log) TEST_1(T, log2) TEST_2(T, pow) TEST_1(T, rint) TEST_1(T, sin) "
    "TEST_1(T, sinh) TEST_1(T, sqrt) TEST_1(T, tan) TEST_1(T, tanh) TEST_1(T, trunc)\n"
    "TEST_OF(float) TEST_OF(float4) TEST_OF(float8) TEST_OF(float16)\n"
    "#ifdef cl_khr_fp64\n#pragma OPENCL EXTENSION cl_khr_fp64 : enable\n"
    "TEST_OF(double) TEST_OF(double4) TEST_OF(double8) TEST_OF(double16)\n"
    "#endif\n#endif\n#line 1\n";

/* ---- C --------------------------------------------------------------------------------------- */

static const char unoptimised[] = "#pragma GCC optimize 0\n#line 1\n";

static bool is_drawn(const device_program_desc *desc) {
    return base_hash(desc->source, desc->source_size, 0) % 4 == 0;
}

/* ---- any ------------------------------------------------------------------------------------- */

/* The text behind `words`, to be freed. */
static char *with_ahead(const device_program_desc *desc, const char *words) {
    const size_t n = strlen(words);
    char *out = malloc(n + desc->source_size + 1);
    if (!out) abort();
    memcpy(out, words, n);
    memcpy(out + n, desc->source, desc->source_size);
    out[n + desc->source_size] = 0;
    return out;
}

beryl_status WRAPPED(device_program_make)(device *d, const device_program_desc *desc,
                                          device_program *out, beryl_error *error) {
    /* Of the generator's texts alone: those of the device's own tests may be wrong on purpose. */
    static const char mark[] = "@group(1) @binding(0) var<uniform> params: Params;";
    const bool ours = desc->language == DEVICE_WGSL && desc->source && strstr(desc->source, mark);
    const bool opencl = desc->language == DEVICE_OPENCL_C && desc->source &&
                        strstr(desc->source, "#pragma OPENCL FP_CONTRACT OFF");
    const bool c = desc->language == DEVICE_C && desc->source &&
                   strstr(desc->source, "#define FN static inline");
    const bool all = getenv("BERYL_TEST_ALL") != NULL;
    const char *folder = getenv("BERYL_TEST_WGSL");
    device_program_desc given = *desc;
    char *text = NULL;
    if (ours && !all && strstr(device_caps_of(d)->name, "llvmpipe")) text = rolled(desc->source);
    if (opencl && !all) text = with_ahead(desc, functions);
    if (c && !all && !getenv("BERYL_TEST_OPTIMISED") && !is_drawn(desc))
        text = with_ahead(desc, unoptimised);
    if (text) given.source = text, given.source_size = strlen(text);
    const beryl_status status = REAL(device_program_make)(d, &given, out, error);
    free(text);
    if (ours && status == BERYL_OK && folder && folder[0]) keep(desc, folder);
    return status;
}
