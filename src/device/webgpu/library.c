/* library.c - finds wgpu-native and fills the table of functions.
 *
 * Looked for, in this order: $BERYL_WGPU (a file); beside the program and beside this library, in
 * the places where `make` and `make install` put it; BERYL_LIBDIR; where that is not defined (a
 * hand-made build), third_party/wgpu of the folder one is in. Never closed again: it has threads of
 * its own that outlive a device.
 *
 * Vulkan drivers are kept in memory too: the loader would unload them with each instance, and a
 * process cannot load NVIDIA's again for ever (after some 30 times no adapter was found any more).
 */
#define _GNU_SOURCE /* dladdr, setenv */
#include "device/webgpu/webgpu.h"
#include "base/error.h"
#include "base/file.h"

#include <dlfcn.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#ifdef __linux__
#include <link.h>
#include <unistd.h>
#endif

#ifdef __APPLE__
#define LIBRARY "libwgpu_native.dylib"
#else
#define LIBRARY "libwgpu_native.so"
#endif

typedef struct search {
    void *handle;
    bool found; /* a file was there, but did not open */
    char why[300];
} search;

static void try_file(search *s, const char *path) {
    char real[4096];
    if (s->handle || !base_file_exists(path)) return;
    if (realpath(path, real)) path = real; /* people are shown it where it does not open */
    s->handle = dlopen(path, RTLD_NOW | RTLD_LOCAL);
    if (s->handle || s->found) return;
    const char *why = dlerror();
    s->found = true;
    snprintf(s->why, sizeof s->why, "%.299s", why ? why : path);
}

/* folder: of a program or a library, [size] bytes, without the last slash. */
static void try_beside(search *s, const char *folder, size_t size) {
    static const char *const places[] = {"/../lib/beryl/", "/beryl/", "/"};
    for (size_t i = 0; i < sizeof places / sizeof places[0]; i++) {
        char path[1200];
        if (size + 64 > sizeof path) return;
        snprintf(path, sizeof path, "%.*s%s%s", (int)size, folder, places[i], LIBRARY);
        try_file(s, path);
    }
}

static void try_beside_file(search *s, const char *file) {
    const char *slash = strrchr(file, '/');
    if (slash) try_beside(s, file, (size_t)(slash - file));
}

static void *find_library(search *s) {
    const char *named = base_environment("BERYL_WGPU");
    if (named) {
        /* named by the user: that one or none */
        s->handle = dlopen(named, RTLD_NOW | RTLD_LOCAL);
        const char *why = s->handle ? NULL : dlerror();
        if (why) s->found = true, snprintf(s->why, sizeof s->why, "%s", why);
        return s->handle;
    }
    Dl_info info;
    static const char anchor = 0; /* an address of this library, or of the program */
    if (dladdr(&anchor, &info) && info.dli_fname) try_beside_file(s, info.dli_fname);
#ifdef __linux__
    char self[1024];
    ssize_t size = readlink("/proc/self/exe", self, sizeof self - 1);
    if (size > 0) {
        self[size] = 0;
        try_beside_file(s, self);
    }
#endif
#ifdef BERYL_LIBDIR
    try_file(s, BERYL_LIBDIR "/" LIBRARY);
#endif
#ifndef BERYL_LIBDIR
    try_file(s, "third_party/wgpu/" LIBRARY);
#endif
    return s->handle;
}

beryl_status webgpu_library_open(webgpu_functions *f, beryl_error *error) {
    search s = {0};
    void *library = find_library(&s);
    if (!library && s.found)
        return base_fail(error, BERYL_NO_DEVICE, "wgpu-native does not open: %s", s.why);
    if (!library)
        return base_fail(error, BERYL_NO_DEVICE,
                         "%s is not there (tools/setup wgpu fetches it, BERYL_WGPU names one)",
                         LIBRARY);
    const char *missing = NULL;
    /* POSIX has dlsym give functions as void *, which ISO C only converts through memory. */
#define X(name)                                           \
    do {                                                  \
        void *address = dlsym(library, "wgpu" #name);     \
        if (!address && !missing) missing = "wgpu" #name; \
        memcpy(&f->name, &address, sizeof address);       \
    } while (0);
    WEBGPU_FUNCTIONS(X)
    WEBGPU_NATIVE_FUNCTIONS(X)
#undef X
    if (missing)
        return base_fail(error, BERYL_NO_DEVICE,
                         "the wgpu-native that was found has no %s; version 29 is needed", missing);
    uint32_t version = f->GetVersion() >> 24;
    if (version != 29)
        return base_fail(error, BERYL_NO_DEVICE,
                         "the wgpu-native that was found is version %u; 29 is needed", version);
    return BERYL_OK;
}

#ifdef __linux__

/* wgpu-native's Vulkan instances can always show windows, so Mesa's layer that orders adapters asks
 * the desktop for its own one, and where there is none libwayland prints that to stderr, at each
 * enumeration. Neither can be told not to; the layer's own variable, read while an instance is
 * made, is the one way around it. It is set for that moment, by one thread at a time, and only
 * where there is no desktop to ask. */
WGPUInstance webgpu_instance_make(const webgpu_functions *f, const WGPUInstanceDescriptor *desc) {
    static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;
    static const char name[] = "NODEVICE_SELECT";
    const char *desktop = base_environment("XDG_RUNTIME_DIR");
    if (desktop && *desktop == '/') return f->CreateInstance(desc);
    pthread_mutex_lock(&lock);
    bool set = !getenv(name) && !setenv(name, "1", 0);
    WGPUInstance instance = f->CreateInstance(desc);
    if (set) unsetenv(name);
    pthread_mutex_unlock(&lock);
    return instance;
}

enum { DRIVER_MAX = 32 };

typedef struct drivers {
    uint32_t n;
    char paths[DRIVER_MAX][256];
} drivers;

static int note_driver(struct dl_phdr_info *info, size_t size, void *user) {
    (void)size;
    drivers *found = user;
    const char *path = info->dlpi_name, *name = path ? strrchr(path, '/') : NULL;
    bool driver =
        name && (strstr(name, "nvidia") || strstr(name, "vulkan") || strstr(name, "amdvlk"));
    if (!driver || found->n == DRIVER_MAX || strlen(path) >= sizeof found->paths[0]) return 0;
    memcpy(found->paths[found->n++], path, strlen(path) + 1);
    return 0;
}

void webgpu_drivers_keep(void) {
    drivers found = {0};
    dl_iterate_phdr(note_driver,
                    &found); /* holds a lock of the loader: nothing may be opened inside */
    for (uint32_t i = 0; i < found.n; i++) {
        void *handle = dlopen(found.paths[i], RTLD_LAZY | RTLD_NOLOAD | RTLD_NODELETE);
        if (handle) dlclose(handle);
    }
}

const char *webgpu_drivers_missing(void) {
    void *loader = dlopen("libvulkan.so.1", RTLD_LAZY | RTLD_LOCAL);
    if (!loader) return "the Vulkan loader (libvulkan.so.1) is not installed";
    dlclose(loader);
    return "no Vulkan driver found a device";
}

#else

WGPUInstance webgpu_instance_make(const webgpu_functions *f, const WGPUInstanceDescriptor *desc) {
    return f->CreateInstance(desc);
}

void webgpu_drivers_keep(void) {}

const char *webgpu_drivers_missing(void) {
    return "no adapter found";
}

#endif
