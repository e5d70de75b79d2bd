/* rig.c - see rig.h. */
#define _GNU_SOURCE /* setenv */
#include "rig.h"

#include "base/file.h"
#include "base/thread.h"

#include <stdio.h>
#include <dirent.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#ifndef BERYL_TEST_STAND_IN
#define BERYL_TEST_STAND_IN "build/tests/stand_in.so"
#endif
#ifndef BERYL_TEST_STAND_IN_OPENCL
#define BERYL_TEST_STAND_IN_OPENCL "build/tests/stand_in_opencl.so"
#endif

bool rig_open(test *t, rig *r, const char *choice) {
    *r = (rig){0};
    base_heap_init(&r->heap, NULL);
    beryl_status status = device_open(&r->heap, NULL, choice, &r->d, &r->error);
    if (status == BERYL_NO_DEVICE) test_skip(t, "%s", r->error.message);
    else if (status) test_fail(t, __FILE__, __LINE__, "device_open: %s", r->error.message);
    return !status;
}

void rig_close(test *t, rig *r) {
    device_close(r->d);
    CHECK_INT(t, r->heap.bytes, 0);
}

static const char *stand_in_variable(const char *backend) {
    return !strcmp(backend, "cuda") ? "BERYL_CUDA" : !strcmp(backend, "hip") ? "BERYL_HIP" : NULL;
}

bool rig_stand_in(const char *backend) {
    const char *variable = stand_in_variable(backend);
    if (!variable || getenv(variable) || !base_file_exists(BERYL_TEST_STAND_IN)) return false;
    base_heap heap;
    base_heap_init(&heap, NULL);
    device *d = NULL;
    bool real = !device_open(&heap, NULL, backend, &d, NULL);
    device_close(d);
    if (!real) setenv(variable, BERYL_TEST_STAND_IN, 1);
    return !real;
}

void rig_stand_in_end(const char *backend) {
    const char *variable = stand_in_variable(backend);
    unsetenv(variable ? variable : "BERYL_OPENCL");
    unsetenv("STAND_IN_OPENCL");
}

bool rig_opencl_subgroups(const char *vendor) {
    if (getenv("BERYL_OPENCL") || !base_file_exists(BERYL_TEST_STAND_IN_OPENCL)) return false;
    base_heap heap;
    base_heap_init(&heap, NULL);
    device *d = NULL;
    const bool lacks =
        !device_open(&heap, NULL, "opencl", &d, NULL) && !device_caps_of(d)->subgroups;
    device_close(d);
    if (lacks)
        setenv("BERYL_OPENCL", BERYL_TEST_STAND_IN_OPENCL, 1), setenv("STAND_IN_OPENCL", vendor, 1);
    return lacks;
}

device_buffer rig_buffer(test *t, rig *r, uint64_t size, const void *data) {
    device_buffer buffer;
    if (device_buffer_make(r->d, size, "test", &buffer, &r->error))
        test_fail(t, __FILE__, __LINE__, "buffer: %s", r->error.message);
    if (data && device_write(r->d, buffer, 0, data, size, &r->error))
        test_fail(t, __FILE__, __LINE__, "write: %s", r->error.message);
    return buffer;
}

beryl_status rig_compiled(rig *r, device_program program) {
    beryl_status status;
    while ((status = device_program_status(r->d, program, &r->error)) == BERYL_PENDING)
        base_sleep(5e-4);
    return status;
}

beryl_status rig_exec_compiled(graph_exec *exec, beryl_error *error) {
    beryl_status status;
    while ((status = graph_exec_ready(exec, error)) == BERYL_PENDING) base_sleep(2e-4);
    return status;
}

beryl_status rig_submit(rig *r, const device_command *commands, size_t n, const void *params,
                        size_t param_bytes, device_ticket *ticket) {
    return device_submit(r->d, &(device_submit_desc){commands, n, params, param_bytes}, ticket,
                         &r->error);
}

beryl_status rig_take(rig *r, device_ticket ticket, uint32_t n, void *to, size_t size) {
    const void *data;
    size_t have;
    beryl_status status = device_wait(r->d, ticket, &r->error);
    if (!status) status = device_fetched(r->d, ticket, n, &data, &have, &r->error);
    if (!status) memcpy(to, data, have < size ? have : size);
    device_fetch_drop(r->d, ticket);
    return status;
}

device_command rig_dispatch(device_program program, device_bindings bindings, uint32_t groups,
                            uint32_t param_offset) {
    device_command c = {.kind = DEVICE_DISPATCH};
    c.dispatch.program = program;
    c.dispatch.bindings = bindings;
    c.dispatch.groups[0] = groups;
    c.dispatch.groups[1] = c.dispatch.groups[2] = 1;
    c.dispatch.param_offset = param_offset;
    return c;
}

device_command rig_copy(device_buffer from, uint64_t from_offset, device_buffer to,
                        uint64_t to_offset, uint64_t size) {
    device_command c = {.kind = DEVICE_COPY};
    c.copy.from = from, c.copy.from_offset = from_offset;
    c.copy.to = to, c.copy.to_offset = to_offset, c.copy.size = size;
    return c;
}

device_command rig_range(device_command_kind kind, device_buffer buffer, uint64_t offset,
                         uint64_t size) {
    device_command c = {.kind = kind};
    if (kind == DEVICE_FILL) c.fill.buffer = buffer, c.fill.offset = offset, c.fill.size = size;
    else c.fetch.buffer = buffer, c.fetch.offset = offset, c.fetch.size = size;
    return c;
}

void *rig_failing_resize(void *user, void *memory, size_t old_size, size_t new_size) {
    rig_failing *f = user;
    (void)old_size;
    if (!new_size) return free(memory), NULL;
    if (!__atomic_load_n(&f->left, __ATOMIC_RELAXED)) return NULL;
    __atomic_fetch_sub(&f->left, 1, __ATOMIC_RELAXED);
    return realloc(memory, new_size);
}

/* ---- kernels --------------------------------------------------------------------------------- */

/* C runs workgroups whole: lanes are a loop, and workgroup memory is the scratch of a thread. */
static void host_text(char *text, size_t size, const char *entry, uint32_t n_binding,
                      const char *body) {
    char list[DEVICE_BINDING_MAX * 60] = "";
    size_t at = 0;
    for (uint32_t i = 0; i < n_binding; i++)
        at += (size_t)snprintf(list + at, sizeof list - at,
                               "unsigned int *b%u = buffers[%u]; (void)b%u;\n", i, i, i);
    snprintf(
        text, size,
        "#include <stdint.h>\n"
        "#define EACH_LANE for (uint32_t LANE = 0; LANE < 64; LANE++)\n"
        "#define AT (GROUP_X * 64u + LANE)\n#define SHARED(type, name, n) type *name = scratch\n"
        "#define BARRIER\n#define U32 unsigned int\n#define CELLS SHARED(unsigned int, cells, "
        "64)\n#define ADD(p, v) __atomic_fetch_add(p, v, __ATOMIC_RELAXED)\n"
        "uint32_t %s_scratch_bytes(void) { return 256; }\n"
        "void %s(void *const *buffers, const uint32_t *params, const uint32_t groups[3],\n"
        "uint32_t first, uint32_t count, void *scratch) {\n%s"
        "for (uint32_t g = first; g < first + count; g++) {\n"
        "uint32_t GROUP_X = g %% groups[0], GROUP_Y = g / groups[0] %% groups[1];\n"
        "uint32_t GROUP_Z = g / groups[0] / groups[1]; (void)GROUP_Y; (void)GROUP_Z;\n"
        "%s\n}}\n",
        entry, entry, list, body);
}

/* WGSL has no macros: words are put in place here. Where there is ADD, what is written is
 * atomic. */
static void wgsl_text(char *text, size_t size, const char *entry, uint32_t n_binding,
                      uint32_t n_param, const char *body) {
    static const struct {
        const char *word, *means;
    } words[] = {{"AT", "(group.x * 64u + lane)"},
                 {"LANE", "lane"},
                 {"GROUP_X", "group.x"},
                 {"GROUP_Y", "group.y"},
                 {"GROUP_Z", "group.z"},
                 {"BARRIER", "workgroupBarrier()"},
                 {"EACH_LANE", ""},
                 {"CELLS", ""},
                 {"U32", "var"},
                 {"ADD", "atomicAdd"}};
    const char *last = strstr(body, "ADD(") ? "atomic<u32>" : "u32";
    size_t at = 0;
    for (uint32_t i = 0; i < n_binding; i++)
        at += (size_t)snprintf(
            text + at, size - at, "@group(0) @binding(%u) var<storage, %s> b%u: array<%s>;\n", i,
            i + 1 < n_binding ? "read" : "read_write", i, i + 1 < n_binding ? "u32" : last);
    if (n_param)
        at += (size_t)snprintf(
            text + at, size - at,
            "@group(1) @binding(0) var<uniform> all_params: array<vec4<u32>, %u>;\n",
            (n_param + 3) / 4);
    at += (size_t)snprintf(
        text + at, size - at,
        "var<workgroup> cells: array<u32, 64>;\n@compute @workgroup_size(64) fn %s(\n"
        "@builtin(workgroup_id) group: vec3<u32>, @builtin(local_invocation_index) lane: u32) {\n",
        entry);
    for (uint32_t i = 0; i < n_param; i++)
        at += (size_t)snprintf(text + at, size - at, "%sall_params[%u].%c%s",
                               i ? ", " : "let params = array(", i / 4, "xyzw"[i % 4],
                               i + 1 < n_param ? "" : ");\n");
    while (*body) {
        size_t n = strspn(body, "ABCDEFGHIJKLMNOPQRSTUVWXYZ_0123456789abcdefghijklmnopqrstuvwxyz"),
               k = 0;
        const size_t n_word = sizeof words / sizeof *words;
        while (k < n_word && (strlen(words[k].word) != n || memcmp(words[k].word, body, n))) k++;
        if (k < n_word) at += (size_t)snprintf(text + at, size - at, "%s", words[k].means);
        else at += (size_t)snprintf(text + at, size - at, "%.*s", n ? (int)n : 1, body);
        body += n ? n : 1;
    }
    snprintf(text + at, size - at, "\n}\n");
}

const char *rig_text(device_language language, const char *entry, uint32_t n_binding,
                     uint32_t n_param, const char *body) {
    static char text[4096];
    char list[DEVICE_BINDING_MAX * 40] = "", begins[DEVICE_BINDING_MAX * 64] = "";
    size_t at = 0;
    const bool opencl = language == DEVICE_OPENCL_C;
    if (language == DEVICE_WGSL)
        return wgsl_text(text, sizeof text, entry, n_binding, n_param, body), text;
    if (language == DEVICE_C) return host_text(text, sizeof text, entry, n_binding, body), text;
    for (uint32_t i = 0; i < n_binding; i++)
        at +=
            (size_t)snprintf(list + at, sizeof list - at,
                             opencl ? "%s__global char *a%u, ulong begin%u" : "%sunsigned int *b%u",
                             i ? ", " : "", i, i);
    at = 0;
    for (uint32_t i = 0; opencl && i < n_binding; i++)
        at += (size_t)snprintf(begins + at, sizeof begins - at,
                               "__global uint *b%u = (__global uint *)(a%u + begin%u);\n", i, i, i);
    if (opencl)
        snprintf(
            text, sizeof text,
            "#ifdef BERYL_TEST_FUNCTIONS\n" /* tests/device_texts.c */
            "#define VALUE __attribute__((overloadable, const))\n"
            "size_t VALUE get_global_id(uint);\nsize_t VALUE get_local_id(uint);\n"
            "size_t VALUE get_group_id(uint);\n"
            "void __attribute__((overloadable, convergent)) barrier(cl_mem_fence_flags);\n"
            "uint __attribute__((overloadable)) atomic_add(volatile __global uint *, uint);\n"
            "uint __attribute__((overloadable)) atomic_add(volatile __local uint *, uint);\n"
            "#endif\n"
            "#define AT ((uint)get_global_id(0))\n#define LANE ((uint)get_local_id(0))\n"
            "#define GROUP_X ((uint)get_group_id(0))\n#define GROUP_Y ((uint)get_group_id(1))\n"
            "#define GROUP_Z ((uint)get_group_id(2))\n#define SHARED(type, name, n) __local type "
            "name[n]\n"
            "#define EACH_LANE\n#define U32 uint\n#define CELLS SHARED(uint, cells, 64)\n"
            "#define BARRIER barrier(CLK_LOCAL_MEM_FENCE | CLK_GLOBAL_MEM_FENCE)\n"
            "#define ADD(p, v) atomic_add(p, v)\n"
            "__kernel void %s(%s, __constant const uint *all_params, uint params_at) {\n"
            "__constant const uint *params = all_params + params_at; (void)params;\n"
            "%s%s\n}\n",
            entry, list, begins, body);
    else
        snprintf(
            text, sizeof text,
            "#define AT (blockIdx.x * blockDim.x + threadIdx.x)\n#define LANE threadIdx.x\n"
            "#define GROUP_X blockIdx.x\n#define GROUP_Y blockIdx.y\n"
            "#define GROUP_Z blockIdx.z\n#define SHARED(type, name, n) __shared__ type name[n]\n"
            "#define EACH_LANE\n#define U32 unsigned int\n#define CELLS SHARED(unsigned int, "
            "cells, 64)\n"
            "#define BARRIER __syncthreads()\n#define ADD(p, v) atomicAdd(p, v)\n"
            "struct params_t { unsigned int word[%u]; };\n"
            "extern \"C\" __global__ void %s(%s%s) {\n"
            "%s\n%s\n}\n",
            n_param ? n_param : 1, entry, list, n_param ? ", const params_t params_" : "",
            n_param ? "const unsigned int *params = params_.word;" : "", body);
    return text;
}

rig_process rig_process_now(void) {
    rig_process p = {0};
    unsigned long pages = 0;
    FILE *file = fopen("/proc/self/statm", "r");
    if (file && fscanf(file, "%*u %lu", &pages) == 1)
        p.bytes = (uint64_t)pages * (uint64_t)sysconf(_SC_PAGESIZE);
    if (file) fclose(file);
    file = fopen("/proc/self/maps", "r");
    for (int c; file && (c = getc(file)) != EOF;) p.maps += c == '\n';
    if (file) fclose(file);
    DIR *folder = opendir("/proc/self/fd");
    while (folder && readdir(folder)) p.files++;
    if (folder) closedir(folder);
    return p;
}

/* of each program at most: allocators keep some, wgpu-native 1 KB */
enum { THOUSAND = 1000, HUNDREDS = 300, WARM = 200, BYTES_KEPT = 12 << 10 };
#if defined(__SANITIZE_ADDRESS__) || defined(__SANITIZE_THREAD__)
/* What was freed is kept from use, and shadows of memory count as the process's own. Leaks are
 * found by AddressSanitizer and by the build without either. */
static const bool counts_bytes = false;
#else
static const bool counts_bytes = true;
#endif

void rig_thousand(test *t, rig *r, device_program_desc (*describe)(void *user, uint32_t i),
                  void *user) {
    device_program stale = {0};
    rig_process before = {0};
    /* some compilers take seconds for a hundred */
    const uint32_t n = getenv("BERYL_TEST_ALL") ? THOUSAND : HUNDREDS;
    for (uint32_t i = 0; i < n && !test_failed(t); i++) {
        const device_program_desc desc = describe(user, i);
        device_program program;
        CHECK_INT(t, device_program_make(r->d, &desc, &program, &r->error), BERYL_OK);
        /* else it is dropped while it waits */
        if (i % 4) CHECK_INT(t, rig_compiled(r, program), BERYL_OK);
        if (i == 0) stale = program;
        device_program_drop(r->d, program);
        if (i == WARM - 1) before = rig_process_now();
    }
    const rig_process after = rig_process_now();
    CHECK_INT(t, device_program_status(r->d, stale, &r->error), BERYL_MISUSE);
    device_stats stats;
    device_stats_of(r->d, &stats);
    CHECK_INT(t, stats.programs, 0);
    if (getenv("BERYL_TEST_ROUNDS"))
        printf("  %s: %lld KB, %d files, %d mappings more after %d programs\n",
               device_caps_of(r->d)->backend, (long long)(after.bytes - before.bytes) / 1024,
               (int)(after.files - before.files), (int)(after.maps - before.maps), (int)(n - WARM));
    if (after.files > before.files)
        test_fail(t, __FILE__, __LINE__, "%u files are open, and %u were", after.files,
                  before.files);
    /* Compilers inside the process keep arenas and code of their own for their threads. */
    if (after.maps > before.maps + 64)
        test_fail(t, __FILE__, __LINE__, "%u mappings, and %u were", after.maps, before.maps);
    if (counts_bytes && after.bytes > before.bytes + BYTES_KEPT * (n - WARM))
        test_fail(t, __FILE__, __LINE__, "%llu KB, and %llu were",
                  (unsigned long long)after.bytes >> 10, (unsigned long long)before.bytes >> 10);
}
