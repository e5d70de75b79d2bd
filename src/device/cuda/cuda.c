/* cuda.c - CUDA's names and facts; looking for devices, opening and closing them, and codes made
 * into statuses, for CUDA and HIP alike.
 *
 * Each open CUDA device has a context of its own, so that one that was lost (a kernel that left its
 * buffers poisons its context for good) can be closed and opened again. Refuses devices without a
 * run-time compiler: they are listed with the reason.
 */
#include "device/cuda/cuda.h"
#include "base/error.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* ---- errors ---------------------------------------------------------------------------------- */

beryl_status cuda_lost(const cuda *d, beryl_error *error) {
    if (!atomic_load(&d->lost)) return BERYL_OK;
    return base_fail(error, BERYL_DEVICE_LOST, "the device %s was lost; it has to be opened again",
                     d->head.caps.name);
}

/* Codes after which a context takes nothing any more. */
static bool is_loss(int code) {
    switch (code) {
    case 4:   /* the driver shuts down */
    case 46:  /* device unavailable */
    case 201: /* no such context */
    case 214: /* uncorrectable ECC error */
    case 220: /* NVLink error */
    case 226: /* contained error */
    case 700: /* illegal address */
    case 702: /* a kernel ran too long */
    case 709: /* the context was destroyed */
    case 710: /* an assertion in a kernel */
    case 714:
    case 715:
    case 716:
    case 717:
    case 718: /* a kernel did what it must not */
    case 719: /* a kernel failed */
    case 721:
    case 999: return true;
    default: return false;
    }
}

beryl_status cuda_check(cuda *d, int code, const char *what, beryl_error *error) {
    if (!code) return BERYL_OK;
    const char *text = NULL;
    if (d->f.error_text) d->f.error_text(code, &text);
    if (!text) text = "error";
    if (code == CUDA_NO_MEMORY)
        return base_fail(error, BERYL_NO_DEVICE_MEMORY, "%s: out of device memory", what);
    if (is_loss(code)) {
        atomic_store(&d->lost, true);
        return base_fail(error, BERYL_DEVICE_LOST, "%s: %s was lost: %s (%d)", what,
                         d->head.caps.name, text, code);
    }
    return base_fail(error, BERYL_DEVICE, "%s: %s says: %s (%d)", what, d->flavour->title, text,
                     code);
}

void cuda_use(const cuda *d) {
    if (d->f.device_set) d->f.device_set(d->id);
    else d->f.context_set(d->context);
}

/* What a thread has as its own: a context, or a device's number. */
static void *own_of(const cuda *d) {
    void *context = NULL;
    int id = 0;
    if (!d->f.device_get) return d->f.context_get(&context) ? NULL : context;
    return d->f.device_get(&id) ? NULL : (void *)(intptr_t)id;
}

void *cuda_enter(device *head) {
    void *own = own_of((cuda *)head);
    cuda_use((cuda *)head);
    return own;
}

void cuda_leave(device *head, void *own) {
    const cuda *d = (cuda *)head;
    if (d->f.device_set) d->f.device_set((int)(intptr_t)own);
    else d->f.context_set(own);
}

/* ---- what there is --------------------------------------------------------------------------- */

int cuda_fact(const cuda_driver *driver, int id, cuda_attribute what) {
    int value = 0;
    if (!driver->flavour->attributes[what]) return 0;
    if (driver->f.attribute(&value, driver->flavour->attributes[what], id)) value = 0;
    return value > 0 ? value : 0;
}

static void caps_of(const cuda_driver *driver, int id, device_caps *caps) {
    size_t total = 0;
    if (driver->f.name(caps->name, sizeof caps->name, id)) caps->name[0] = 0;
    caps->name[sizeof caps->name - 1] = 0;
    if (driver->f.total(&total, id)) total = 0;
    caps->kind = cuda_fact(driver, id, CUDA_INTEGRATED) ? DEVICE_INTEGRATED : DEVICE_DISCRETE;
    caps->f16 = caps->f64 = caps->subgroups = caps->dot_i8 = caps->timestamps = true;
    caps->subgroup_size = (uint32_t)cuda_fact(driver, id, CUDA_WARP);
    caps->workgroup_bytes = (uint32_t)cuda_fact(driver, id, CUDA_SHARED_BYTES);
    if (driver->f.function_allow &&
        (uint32_t)cuda_fact(driver, id, CUDA_SHARED_BYTES_MAX) > caps->workgroup_bytes)
        caps->workgroup_bytes = (uint32_t)cuda_fact(driver, id, CUDA_SHARED_BYTES_MAX);
    caps->workgroup_invocations = (uint32_t)cuda_fact(driver, id, CUDA_GROUP_SIZE);
    for (int i = 0; i < 3; i++)
        caps->workgroup_size[i] =
            (uint32_t)cuda_fact(driver, id, (cuda_attribute)(CUDA_SIZE_X + i));
    caps->groups_max = 65535;
    caps->storage_max = DEVICE_BINDING_MAX;
    caps->memory = total;
    caps->buffer_max = total & ~(size_t)3;
    /* words of a binding are counted with 32 bits */
    const uint64_t most = (UINT64_C(16) << 30) - 4;
    caps->binding_max = caps->buffer_max < most ? caps->buffer_max : most;
    caps->align_binding = 16; /* what the widest loads need */
    caps->compute_units = (uint32_t)cuda_fact(driver, id, CUDA_UNITS);
}

static beryl_status look(cuda_driver *driver, beryl_error *error) {
    int code = driver->f.init(0), n = 0;
    if (!code) code = driver->f.count(&n);
    if (!code && n <= 0) code = 100;
    if (code) {
        const char *text = NULL;
        if (driver->f.error_text) driver->f.error_text(code, &text);
        bool none = code == 100 || code == 101; /* no device; not a device */
        return base_fail(error, BERYL_NO_DEVICE,
                         none ? "%s is installed, but finds no device (%s, %d)"
                              : "%s does not start: %s (%d)",
                         driver->flavour->driver_title, text ? text : "error", code);
    }
    for (int i = 0; i < n && i < 64; i++) {
        cuda_found *one = base_vec_add(driver->heap, &driver->devices);
        if (!one)
            return base_fail(error, BERYL_NO_MEMORY, "out of memory while looking for devices");
        if (driver->f.device(&one->id, i)) {
            driver->devices.count--;
            continue;
        }
        caps_of(driver, one->id, &one->caps);
        one->why_not = driver->flavour->facts(driver, one->id, &one->caps, one->chip);
    }
    return BERYL_OK;
}

void cuda_stop(void *user) {
    cuda_driver *driver = user;
    base_vec_fini(driver->heap, &driver->devices);
    base_heap_give(driver->heap, driver, sizeof *driver);
}

void *cuda_start(const cuda_flavour *flavour, base_heap *heap, const beryl_log *log,
                 beryl_error *error) {
    cuda_driver *driver = base_heap_take(heap, sizeof *driver);
    if (!driver) {
        base_fail(error, BERYL_NO_MEMORY, "out of memory");
        return NULL;
    }
    driver->heap = heap;
    driver->log = log;
    driver->flavour = flavour;
    if (!cuda_library_open(driver, error) && !look(driver, error)) return driver;
    cuda_stop(driver);
    return NULL;
}

uint32_t cuda_count(void *user) {
    return (uint32_t)((cuda_driver *)user)->devices.count;
}

void cuda_describe(void *user, uint32_t index, device_caps *caps, const char **why_not) {
    const cuda_driver *driver = user;
    *caps = driver->devices.data[index].caps;
    *why_not = driver->has_compiler ? driver->devices.data[index].why_not : driver->no_compiler;
}

/* ---- opening and closing --------------------------------------------------------------------- */

void cuda_close(device *head) {
    cuda *d = (cuda *)head;
    driver_compiler_fini(&d->compiler);
    void *own = own_of(d);
    if (d->context || d->f.device_set) {
        cuda_use(d);
        cuda_graphs_forget(d, NULL);
        cuda_memory_fini(d);
        for (int i = 0; i < CUDA_TICKETS; i++)
            if (d->tickets[i]) d->f.event_drop(d->tickets[i]);
        if (d->stream) d->f.stream_drop(d->stream);
    }
    if (d->context) d->f.context_drop(d->context);
    cuda_leave(head, own == d->context && !d->f.device_set ? NULL : own);
    base_heap_give(head->heap, d, sizeof *d);
}

beryl_status cuda_open(void *user, const device_caps *caps, const device_mask *mask, device **out,
                       beryl_error *error) {
    (void)mask;
    const cuda_driver *driver = user;
    const cuda_found *one = &driver->devices.data[caps->index];
    cuda *d = base_heap_take(driver->heap, sizeof *d);
    if (!d) return base_fail(error, BERYL_NO_MEMORY, "out of memory for a device");
    d->head.backend = driver->flavour->backend;
    d->head.heap = driver->heap;
    d->head.log = driver->log;
    d->head.caps = *caps;
    d->flavour = driver->flavour;
    d->f = driver->f;
    d->c = driver->c;
    d->id = one->id;
    d->versions[0] = driver->version;
    d->versions[1] = driver->compiler_major;
    d->versions[2] = driver->compiler_minor;
    memcpy(d->chip, one->chip, sizeof d->chip);
    d->n_option = driver->flavour->options(driver, d->chip, d->options_room, d->options, &d->ptx);
    d->no_graphs = !d->f.graph_make || !d->f.graph_drop || !d->f.graph_add || !d->f.exec_make ||
                   !d->f.exec_set || !d->f.exec_launch || !d->f.exec_drop;
    d->early = d->f.graph_edge && !d->ptx && atoi(d->chip) >= 90;
    cuda_memory_init(d);
    d->compiler = (driver_compiler){.heap = driver->heap,
                                    .log = driver->log,
                                    .user = d,
                                    .compile = cuda_compile,
                                    .discard = cuda_discard,
                                    .cache_folder = "programs",
                                    .backend = d->head.backend->name};
    beryl_status status = BERYL_OK;
    void *own = own_of(d);
    if (!driver_compiler_init(&d->compiler))
        status = base_fail(error, BERYL_NO_MEMORY, "out of memory for a device");
    if (!status && d->f.context_make) {
        status = cuda_check(d, d->f.context_make(&d->context, 0, d->id), "opening", error);
        if (status) d->context = NULL;
    }
    if (!status) {
        cuda_use(d);
        int code = d->f.stream_make(&d->stream, CUDA_STREAM_NON_BLOCKING);
        status = cuda_check(d, code, "opening", error);
    }
    if (status == BERYL_DEVICE_LOST && error) error->code = BERYL_NO_DEVICE;
    if (status == BERYL_DEVICE_LOST) status = BERYL_NO_DEVICE;
    cuda_leave(&d->head, own);
    if (status) cuda_close(&d->head);
    else *out = &d->head;
    return status;
}

/* ---- CUDA ------------------------------------------------------------------------------------ */

static const char *const function_names[] = {
#define X(field, cuda_name, hip_name, parameters) cuda_name,
    CUDA_FUNCTIONS(X)
#undef X
};
static const char *const compiler_names[] = {
#define X(field, cuda_name, hip_name, parameters) cuda_name,
    CUDA_COMPILER_FUNCTIONS(X)
#undef X
};
static const char *const driver_files[] = {"libcuda.so.1", "libcuda.so", NULL};
static const char *const compiler_files[] = {"libnvrtc.so.13", "libnvrtc.so.12", "libnvrtc.so",
                                             "libnvrtc.so.11.2", NULL};
static const char *const compiler_folders[] = {
    "/usr/local/cuda/lib64", "/usr/local/cuda-13/lib64", "/usr/local/cuda-12/lib64",
    "/opt/cuda/lib64",       "/usr/lib/cuda/lib64",      NULL};
static const int attributes[CUDA_ATTRIBUTE_COUNT] = {
    [CUDA_GROUP_SIZE] = 1,   [CUDA_SIZE_X] = 2, [CUDA_SIZE_Y] = 3,           [CUDA_SIZE_Z] = 4,
    [CUDA_SHARED_BYTES] = 8, [CUDA_WARP] = 10,  [CUDA_UNITS] = 16,           [CUDA_INTEGRATED] = 18,
    [CUDA_MAJOR] = 75,       [CUDA_MINOR] = 76, [CUDA_SHARED_BYTES_MAX] = 97};

/* The newest chip that the compiler knows and that is not newer than `want`; `want` itself from one
 * too old to tell; 0: none. */
static int known_chip(const cuda_driver *driver, int want) {
    int best = 0, n = 0, chips[64];
    if (!driver->c.n_chip || !driver->c.chips || driver->c.n_chip(&n) || n <= 0 || n > 64 ||
        driver->c.chips(chips))
        return want;
    for (int i = 0; i < n; i++)
        if (chips[i] <= want && chips[i] > best) best = chips[i];
    return best;
}

static const char *facts(const cuda_driver *driver, int id, device_caps *caps, char chip[64]) {
    int number = 10 * cuda_fact(driver, id, CUDA_MAJOR) + cuda_fact(driver, id, CUDA_MINOR);
    snprintf(chip, 64, "%d", number);
    caps->vendor = 0x10de;
    caps->f16 = number >= 53;
    caps->dot_i8 = number >= 61;
    caps->permutes_bytes = true;
    caps->fragments = number >= 80 ? DEVICE_FRAGMENT_ALL : 0;
    caps->multiplies_memory =
        number == 90 && driver->compiler_major >= 12 && known_chip(driver, number) == number;
    caps->limbs_from = caps->multiplies_memory ? 512 : 0;
    snprintf(caps->driver, sizeof caps->driver, "CUDA %d.%d, NVRTC %d.%d, sm_%d",
             driver->version / 1000, driver->version % 1000 / 10, driver->compiler_major,
             driver->compiler_minor, number);
    return !driver->has_compiler || known_chip(driver, number)
               ? NULL
               : "its compiler knows newer chips alone: an older NVRTC is needed";
}

/* Machine code for this very chip, or, from a compiler that does not know it yet, PTX for the
 * newest one that it knows, which the driver translates. */
static uint32_t options(const cuda_driver *driver, const char *chip, char room[512],
                        const char *list[CUDA_OPTION_MAX], bool *ptx) {
    int want = atoi(chip), best = known_chip(driver, want);
    *ptx = best != want;
    /* The instructions of chip 90 alone, not of its successors, have a name of their own. */
    const bool own = best == 90 && !*ptx && driver->compiler_major >= 12;
    snprintf(room, 512, "--gpu-architecture=%s_%d%s", *ptx ? "compute" : "sm", best,
             own ? "a" : "");
    list[0] = room;
    list[1] = "--std=c++17";
    list[2] = "--fmad=false"; /* the text says where it wants them */
    return 3;
}

typedef struct node_parameters {
    cuda_function function;
    unsigned groups[3], size[3], bytes;
    void **arguments, **extra;
} node_parameters;

static void node(const cuda_launch *launch, void *to) {
    node_parameters p = {
        .function = launch->function, .bytes = launch->bytes, .arguments = launch->arguments};
    for (int i = 0; i < 3; i++) p.groups[i] = launch->groups[i], p.size[i] = launch->size[i];
    memcpy(to, &p, sizeof p);
}

const cuda_flavour cuda_nvidia = {
    .backend = &device_cuda,
    .title = "CUDA",
    .driver_variable = "BERYL_CUDA",
    .compiler_variable = "BERYL_NVRTC",
    .driver_title = "NVIDIA's driver (libcuda.so.1)",
    .compiler_title = "NVRTC (libnvrtc.so)",
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
    return cuda_start(&cuda_nvidia, heap, log, error);
}

const device_backend device_cuda = CUDA_BACKEND("cuda", DEVICE_CUDA_C);
