/* hip.c - HIP's names and facts. All else is the CUDA backend's (device/cuda/cuda.h): the two
 * interfaces mirror each other.
 *
 * What differs: HIP has one context a device and process, made current by the device's number; its
 * attributes have numbers of their own; its graph nodes another struct; its compiler wants the
 * chip's name (gfx90a), which only the large struct of properties tells, whose layout changes from
 * version to version: the name is looked for by its form.
 */
#include "device/cuda/cuda.h"

#include <stdio.h>
#include <string.h>

static const char *const function_names[] = {
#define X(field, cuda_name, hip_name, parameters) hip_name,
    CUDA_FUNCTIONS(X)
#undef X
};
static const char *const compiler_names[] = {
#define X(field, cuda_name, hip_name, parameters) hip_name,
    CUDA_COMPILER_FUNCTIONS(X)
#undef X
};
static const char *const driver_files[] = {"libamdhip64.so.7", "libamdhip64.so.6",
                                           "libamdhip64.so.5", "libamdhip64.so", NULL};
static const char *const compiler_files[] = {"libhiprtc.so.7", "libhiprtc.so.6",   "libhiprtc.so.5",
                                             "libhiprtc.so",   "libamdhip64.so.5", NULL};
static const char *const compiler_folders[] = {"/opt/rocm/lib", NULL};
static const int attributes[CUDA_ATTRIBUTE_COUNT] = {
    [CUDA_GROUP_SIZE] = 56,   [CUDA_SIZE_X] = 26, [CUDA_SIZE_Y] = 27, [CUDA_SIZE_Z] = 28,
    [CUDA_SHARED_BYTES] = 74, [CUDA_WARP] = 87,   [CUDA_UNITS] = 63,  [CUDA_INTEGRATED] = 16,
    [CUDA_MAJOR] = 23,        [CUDA_MINOR] = 61};

/* "gfx" and at least three digits of a chip, with its features behind (":sramecc+:xnack-"). */
static void find_chip(const char *bytes, size_t size, char chip[64]) {
    for (size_t i = 0; i + 6 < size; i++) {
        if (memcmp(bytes + i, "gfx", 3)) continue;
        size_t n = 3;
        while (i + n < size && n < 63 && strchr("0123456789abcdef:+-xnacksrme", bytes[i + n]) &&
               bytes[i + n])
            n++;
        if (n < 6 || bytes[i + n]) continue;
        memcpy(chip, bytes + i, n);
        chip[n] = 0;
        return;
    }
}

static bool begins(const char *text, const char *with) {
    return !strncmp(text, with, strlen(with));
}

static const char *facts(const cuda_driver *driver, int id, device_caps *caps, char chip[64]) {
    /* larger than the struct of any version */
    union {
        uint64_t align;
        char bytes[16384];
    } room = {0};
    chip[0] = 0;
    if (!driver->f.properties(&room, id)) find_chip(room.bytes, sizeof room.bytes, chip);
    caps->vendor = 0x1002;
    if (!caps->name[0]) snprintf(caps->name, sizeof caps->name, "AMD %.40s", chip);
    caps->dot_i8 = !begins(chip, "gfx8") && !begins(chip, "gfx900") && !begins(chip, "gfx902") &&
                   !begins(chip, "gfx1010");
    snprintf(caps->driver, sizeof caps->driver, "HIP %d.%d, hiprtc %d.%d, %.40s",
             driver->version / 10000000, driver->version / 100000 % 100, driver->compiler_major,
             driver->compiler_minor, chip[0] ? chip : "chip not known");
    /* the numbers of attributes changed once */
    return caps->subgroup_size == 32 || caps->subgroup_size == 64 ? NULL
                                                                  : "HIP 5.0 or later is needed";
}

static uint32_t options(const cuda_driver *driver, const char *chip, char room[512],
                        const char *list[CUDA_OPTION_MAX], bool *ptx) {
    (void)driver;
    *ptx = false;
    uint32_t n = 0;
    list[n++] = "-std=c++17";
    list[n++] = "-O3";
    list[n++] = "-ffp-contract=off"; /* the text says where it wants them */
    if (!chip[0]) return n;          /* then the compiler takes the current device's */
    snprintf(room, 512, "--offload-arch=%s", chip);
    list[n++] = room;
    return n;
}

typedef struct node_parameters {
    unsigned size[3];
    void **extra;
    cuda_function function;
    unsigned groups[3];
    void **arguments;
    unsigned bytes;
} node_parameters;

static void node(const cuda_launch *launch, void *to) {
    node_parameters p = {
        .function = launch->function, .arguments = launch->arguments, .bytes = launch->bytes};
    for (int i = 0; i < 3; i++) p.groups[i] = launch->groups[i], p.size[i] = launch->size[i];
    memcpy(to, &p, sizeof p);
}

static const cuda_flavour flavour = {
    .backend = &device_hip,
    .title = "HIP",
    .driver_variable = "BERYL_HIP",
    .compiler_variable = "BERYL_HIPRTC",
    .driver_title = "AMD's HIP (libamdhip64.so)",
    .compiler_title = "hiprtc (libhiprtc.so)",
    .driver_files = driver_files,
    .compiler_files = compiler_files,
    .compiler_folders = compiler_folders,
    .function_names = function_names,
    .compiler_names = compiler_names,
    .attributes = attributes,
    .facts = facts,
    .options = options,
    .node = node,
};

static void *start(base_heap *heap, const beryl_log *log, beryl_error *error) {
    return cuda_start(&flavour, heap, log, error);
}

const device_backend device_hip = CUDA_BACKEND("hip", DEVICE_HIP_C);
