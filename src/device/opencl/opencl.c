/* opencl.c - platforms and their devices, opening and closing one, and codes made into statuses.
 *
 * Owns the list of devices of all platforms. Refuses devices that are not there, have no compiler,
 * are not little-endian or have no 64-bit addresses: they are listed with the reason. A device that
 * loses its context (a kernel that crashed, a driver that was reset) is lost for good.
 */
#include "device/opencl/opencl.h"
#include "base/error.h"

#include <stdio.h>
#include <string.h>

/* What a kernel's registers leave of the device's workgroup is known only once it is compiled
 * (on an H200 256 of 1,024 for a product): what every kernel is sure to get. */
enum { GROUP_MAX = 256 };

typedef struct found {
    opencl_id id;
    device_caps caps;
    const char *why_not;
    bool divide_exact;
    uint32_t window;
} found;

typedef struct driver_state {
    base_heap *heap;      /* borrowed */
    const beryl_log *log; /* borrowed */
    opencl_functions f;
    base_vec(found) devices; /* the better kinds first */
} driver_state;

/* ---- errors ---------------------------------------------------------------------------------- */

static const char *name_of(int32_t code) {
    switch (code) {
    case -1: return "no device found";
    case -2: return "device not available";
    case -3: return "no compiler";
    case -4: return "no memory for a buffer";
    case -5: return "out of resources";
    case -6: return "out of host memory";
    case -11: return "the build failed";
    case -30: return "invalid value";
    case -36: return "invalid queue";
    case -38: return "invalid buffer";
    case -45: return "invalid program";
    case -46: return "no such kernel";
    case -51: return "wrong size of an argument";
    case -52: return "arguments are missing";
    case -54: return "wrong size of a workgroup";
    case -61: return "too large a buffer";
    case -9999: return "an access outside a buffer";
    default: return "error";
    }
}

beryl_status opencl_lost(const opencl *d, beryl_error *error) {
    if (!d->lost) return BERYL_OK;
    return base_fail(error, BERYL_DEVICE_LOST, "the device %s was lost; it has to be opened again",
                     d->head.caps.name);
}

beryl_status opencl_check(opencl *d, int32_t code, const char *what, beryl_error *error) {
    if (!code) return BERYL_OK;
    if (code == OPENCL_NO_BUFFER_MEMORY || code == OPENCL_TOO_LARGE)
        return base_fail(error, BERYL_NO_DEVICE_MEMORY, "%s: out of device memory", what);
    if (code == OPENCL_NO_HOST_MEMORY)
        return base_fail(error, BERYL_NO_MEMORY, "%s: out of memory in the driver", what);
    /* not available; queue or context gone; NVIDIA's word for a kernel that crashed */
    if (code == -2 || code == -34 || code == -36 || code == -9999 || code == OPENCL_NO_RESOURCES) {
        d->lost = true;
        return base_fail(error, BERYL_DEVICE_LOST, "%s: %s was lost: %s (%d)", what,
                         d->head.caps.name, name_of(code), code);
    }
    return base_fail(error, BERYL_DEVICE, "%s: OpenCL says %s (%d)", what, name_of(code), code);
}

/* ---- what there is --------------------------------------------------------------------------- */

static uint64_t number_of(const driver_state *s, opencl_id id, uint32_t what) {
    unsigned char bytes[8] = {0};
    size_t size = 0;
    if (s->f.GetDeviceInfo(id, what, sizeof bytes, bytes, &size) || size > 8) return 0;
    uint64_t wide;
    uint32_t narrow;
    memcpy(&wide, bytes, 8);
    memcpy(&narrow, bytes, 4);
    return size == 4 ? narrow : wide;
}

/* Cut to the room, with runs of spaces as one. */
static void text_of(const driver_state *s, opencl_id id, uint32_t what, char *to, size_t room) {
    char text[512] = "";
    size_t size = 0, n = 0;
    if (s->f.GetDeviceInfo(id, what, 0, NULL, &size)) size = 0;
    if (!size || size > sizeof text || s->f.GetDeviceInfo(id, what, size, text, NULL)) text[0] = 0;
    text[sizeof text - 1] = 0;
    for (const char *at = text; *at && n + 1 < room; at++)
        if (*at != ' ' || (n && to[n - 1] != ' ')) to[n++] = *at;
    while (n && to[n - 1] == ' ') n--;
    to[n] = 0;
}

static bool word_in(const char *words, const char *word) {
    size_t size = strlen(word);
    for (const char *at = words; (at = strstr(at, word)); at += size)
        if ((at == words || at[-1] == ' ') && (!at[size] || at[size] == ' ')) return true;
    return false;
}

static uint32_t least(uint64_t a, uint32_t b) {
    return a < b ? (uint32_t)a : b;
}

/* Lanes of a subgroup, 0: none that can be used. A size that holds for every kernel is AMD's; on
 * others a kernel may ask for one of a list, as generated text does. */
static uint32_t subgroup_size_of(const driver_state *s, opencl_id id, const char *words) {
    const bool shuffles = word_in(words, "cl_khr_subgroup_shuffle");
    if (shuffles && word_in(words, "cl_khr_subgroups")) {
        const uint32_t size = (uint32_t)number_of(s, id, OPENCL_WAVEFRONT_AMD);
        if (size) return size;
    }
    size_t sizes[16] = {0}, bytes = 0;
    if (!word_in(words, "cl_intel_required_subgroup_size") ||
        !(shuffles || word_in(words, "cl_intel_subgroups")) ||
        s->f.GetDeviceInfo(id, OPENCL_SUBGROUP_SIZES_INTEL, sizeof sizes, sizes, &bytes))
        return 0;
    static const uint32_t likes[] = {16, 32, 8, 64}; /* of 32 lanes each has half the registers */
    for (size_t k = 0; k < sizeof likes / sizeof *likes; k++)
        for (size_t i = 0; i < sizeof sizes / sizeof *sizes && i < bytes / sizeof *sizes; i++)
            if (sizes[i] == likes[k]) return likes[k];
    return 0;
}

static beryl_status look(driver_state *s, opencl_id id, beryl_error *error) {
    found one = {.id = id};
    device_caps *caps = &one.caps;
    char version[64], driver[64];
    text_of(s, id, OPENCL_NAME, caps->name, sizeof caps->name);
    text_of(s, id, OPENCL_VERSION, version, sizeof version);
    text_of(s, id, OPENCL_DRIVER_VERSION, driver, sizeof driver);
    snprintf(caps->driver, sizeof caps->driver, "%s, driver %.40s", version, driver);
    size_t size = 0;
    if (s->f.GetDeviceInfo(id, OPENCL_EXTENSIONS, 0, NULL, &size)) size = 0;
    char *words = base_heap_take(s->heap, size + 1);
    if (!words) return base_fail(error, BERYL_NO_MEMORY, "out of memory while looking for devices");
    if (size) s->f.GetDeviceInfo(id, OPENCL_EXTENSIONS, size, words, NULL);
    uint64_t type = number_of(s, id, OPENCL_TYPE);
    caps->kind = type & OPENCL_TYPE_CPU                         ? DEVICE_SOFTWARE
                 : number_of(s, id, OPENCL_UNIFIED_MEMORY) != 0 ? DEVICE_INTEGRATED
                                                                : DEVICE_DISCRETE;
    caps->vendor = (uint32_t)number_of(s, id, OPENCL_VENDOR_ID);
    caps->f16 = word_in(words, "cl_khr_fp16");
    caps->f64 = word_in(words, "cl_khr_fp64");
    caps->subgroup_size = subgroup_size_of(s, id, words);
    caps->subgroups = caps->subgroup_size > 0;
    caps->dot_i8 = word_in(words, "cl_khr_integer_dot_product");
    caps->timestamps = true;
    caps->workgroup_bytes = least(number_of(s, id, OPENCL_LOCAL_SIZE), 1 << 30);
    caps->workgroup_invocations = least(number_of(s, id, OPENCL_GROUP_SIZE), GROUP_MAX);
    size_t items[8] = {0}, n_bytes = 0;
    if (s->f.GetDeviceInfo(id, OPENCL_ITEM_SIZES, sizeof items, items, &n_bytes)) items[0] = 0;
    for (int i = 0; i < 3; i++) caps->workgroup_size[i] = least(items[i], 1024);
    caps->groups_max = 65535;
    uint64_t arguments = number_of(s, id, OPENCL_PARAMETER_SIZE) / 8; /* two are the parameters' */
    caps->storage_max = arguments < 4 ? 0 : least(arguments / 2 - 1, DEVICE_BINDING_MAX);
    caps->buffer_max = caps->binding_max = number_of(s, id, OPENCL_ALLOC_MAX) & ~UINT64_C(3);
    caps->align_binding = 16; /* of the widest load */
    caps->compute_units = (uint32_t)number_of(s, id, OPENCL_COMPUTE_UNITS);
    caps->memory = number_of(s, id, OPENCL_MEMORY_SIZE);
    one.divide_exact = (number_of(s, id, OPENCL_SINGLE_CONFIG) & OPENCL_DIVIDE_EXACT) != 0;
    one.window = least(number_of(s, id, OPENCL_CONSTANT_SIZE), OPENCL_WINDOW) &
                 ~(uint32_t)(DEVICE_PARAM_ALIGN - 1);
    one.why_not = !number_of(s, id, OPENCL_AVAILABLE)           ? "the driver says: not available"
                  : !number_of(s, id, OPENCL_HAS_COMPILER)      ? "its driver has no compiler"
                  : !number_of(s, id, OPENCL_LITTLE_ENDIAN)     ? "it is not little-endian"
                  : number_of(s, id, OPENCL_ADDRESS_BITS) != 64 ? "it has no 64-bit addresses"
                  : !strncmp(version, "OpenCL 1.0", 10) || !strncmp(version, "OpenCL 1.1", 10)
                      ? "OpenCL 1.2 is needed"
                  : caps->storage_max < 8 || !one.window ? "too few arguments for a kernel"
                                                         : NULL;
    base_heap_give(s->heap, words, size + 1);
    if (!base_vec_add(s->heap, &s->devices))
        return base_fail(error, BERYL_NO_MEMORY, "out of memory while looking for devices");
    size_t at = s->devices.count - 1; /* the better kinds first, otherwise as found */
    for (; at > 0 && s->devices.data[at - 1].caps.kind > caps->kind; at--)
        s->devices.data[at] = s->devices.data[at - 1];
    s->devices.data[at] = one;
    return BERYL_OK;
}

static void stop(void *user) {
    driver_state *s = user;
    base_vec_fini(s->heap, &s->devices);
    base_heap_give(s->heap, s, sizeof *s);
}

static beryl_status look_everywhere(driver_state *s, beryl_error *error) {
    opencl_platform platforms[16];
    uint32_t n_platform = 0;
    if (s->f.GetPlatformIDs(16, platforms, &n_platform)) n_platform = 0;
    if (n_platform > 16) n_platform = 16;
    for (uint32_t p = 0; p < n_platform; p++) {
        opencl_id ids[32];
        uint32_t n = 0;
        if (s->f.GetDeviceIDs(platforms[p], 0xffffffff, 32, ids, &n)) n = 0;
        if (n > 32) n = 32;
        for (uint32_t i = 0; i < n; i++) {
            if (number_of(s, ids[i], OPENCL_TYPE) & OPENCL_TYPE_CUSTOM) continue;
            beryl_status status = look(s, ids[i], error);
            if (status) return status;
        }
    }
    if (s->devices.count) return BERYL_OK;
    return base_fail(error, BERYL_NO_DEVICE,
                     n_platform ? "the OpenCL drivers know no device"
                                : "an OpenCL loader is there, but no driver");
}

static void *start(base_heap *heap, const beryl_log *log, beryl_error *error) {
    driver_state *s = base_heap_take(heap, sizeof *s);
    if (!s) {
        base_fail(error, BERYL_NO_MEMORY, "out of memory");
        return NULL;
    }
    s->heap = heap;
    s->log = log;
    if (!opencl_library_open(&s->f, error) && !look_everywhere(s, error)) return s;
    stop(s);
    return NULL;
}

static uint32_t count(void *user) {
    return (uint32_t)((driver_state *)user)->devices.count;
}

static void describe(void *user, uint32_t index, device_caps *caps, const char **why_not) {
    const found *one = &((const driver_state *)user)->devices.data[index];
    *caps = one->caps;
    *why_not = one->why_not;
}

/* ---- opening and closing --------------------------------------------------------------------- */

static void close_device(device *head) {
    opencl *d = (opencl *)head;
    driver_compiler_fini(&d->compiler);
    opencl_memory_fini(d);
    if (d->queue) d->f.ReleaseCommandQueue(d->queue);
    if (d->context) d->f.ReleaseContext(d->context);
    base_heap_give(head->heap, d, sizeof *d);
}

static beryl_status open_device(void *user, const device_caps *caps, const device_mask *mask,
                                device **out, beryl_error *error) {
    (void)mask;
    const driver_state *s = user;
    const found *one = &s->devices.data[caps->index];
    opencl *d = base_heap_take(s->heap, sizeof *d);
    if (!d) return base_fail(error, BERYL_NO_MEMORY, "out of memory for a device");
    d->head.backend = &device_opencl;
    d->head.heap = s->heap;
    d->head.log = s->log;
    d->head.caps = *caps;
    d->f = s->f;
    d->id = one->id;
    d->window = one->window;
    snprintf(d->options, sizeof d->options, "%s",
             one->divide_exact ? "-cl-fp32-correctly-rounded-divide-sqrt" : "");
    d->readbacks =
        (driver_readbacks){.device = &d->head, .take = opencl_host_take, .give = opencl_host_give};
    d->stages = (driver_stages){.device = &d->head,
                                .take = opencl_host_take,
                                .give = opencl_host_give,
                                .copy = opencl_stage_copy,
                                .mark = opencl_stage_mark,
                                .passed = opencl_stage_passed};
    d->compiler = (driver_compiler){.heap = s->heap,
                                    .log = s->log,
                                    .user = d,
                                    .compile = opencl_compile,
                                    .discard = opencl_discard};
    int32_t code = 0;
    beryl_status status = BERYL_OK;
    if (!driver_compiler_init(&d->compiler))
        status = base_fail(error, BERYL_NO_MEMORY, "out of memory for a device");
    if (!status) {
        d->context = s->f.CreateContext(NULL, 1, &d->id, NULL, NULL, &code);
        status = opencl_check(d, d->context ? 0 : code ? code : -2, "opening", error);
    }
    if (!status) {
        d->queue = s->f.CreateCommandQueue(d->context, d->id, OPENCL_QUEUE_PROFILING, &code);
        status = opencl_check(d, d->queue ? 0 : code ? code : -36, "opening", error);
    }
    if (status == BERYL_DEVICE_LOST && error) error->code = BERYL_NO_DEVICE;
    if (status == BERYL_DEVICE_LOST) status = BERYL_NO_DEVICE;
    if (status) close_device(&d->head);
    else *out = &d->head;
    return status;
}

const device_backend device_opencl = {
    .name = "opencl",
    .languages = DEVICE_LANGUAGE_BIT(DEVICE_OPENCL_C),
    .buffer_bytes = sizeof(opencl_buffer),
    .program_bytes = sizeof(opencl_program),
    .bindings_bytes = sizeof(opencl_bindings),
    .start = start,
    .stop = stop,
    .count = count,
    .describe = describe,
    .open = open_device,
    .close = close_device,
    .drain = opencl_drain,
    .buffer_make = opencl_buffer_make,
    .buffer_drop = opencl_buffer_drop,
    .handle = opencl_handle,
    .write = opencl_write,
    .stage_max = opencl_stage_max,
    .stage = opencl_stage_take,
    .stage_commit = opencl_stage_commit,
    .program_make = opencl_program_make,
    .program_status = opencl_program_status,
    .program_drop = opencl_program_drop,
    .bindings_make = opencl_bindings_make,
    .bindings_drop = opencl_bindings_drop,
    .submit = opencl_submit,
    .poll = opencl_poll,
    .wait = opencl_wait,
    .fetched = opencl_fetched,
    .fetch_drop = opencl_fetch_drop,
    .stamps = opencl_stamps,
};
