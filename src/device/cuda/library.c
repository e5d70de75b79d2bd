/* library.c - finds a driver and the compiler beside it, and fills the tables of entry points.
 *
 * The driver is where the system's loader finds it, or the file that an environment variable names
 * (that one or none). The compiler likewise; where the variable is not set, the named driver itself
 * is asked first, since one file may hold both (the tests' does), then the loader, then the usual
 * folders of the vendor's toolkit. Neither is ever closed: both have threads of their own.
 */
#include "device/cuda/cuda.h"
#include "base/error.h"
#include "base/file.h"

#include <dlfcn.h>
#include <stdio.h>
#include <string.h>

/* names: one a slot, of `n` slots that are functions' addresses at `to`. The missing one, or
 * NULL. */
static const char *fill(void *library, const char *const *names, size_t n, void *to) {
    const char *missing = NULL;
    for (size_t i = 0; i < n; i++) {
        const char *name = names[i];
        bool optional = *name == '?';
        void *address = NULL;
        for (name += optional; *name && !address;) {
            char one[64];
            size_t size = strcspn(name, "|");
            snprintf(one, sizeof one, "%.*s", (int)size, name);
            address = dlsym(library, one);
            name += size + (name[size] == '|');
        }
        if (!address && !optional && names[i][0] && !missing) missing = names[i];
        /* POSIX has dlsym give functions as void *, which ISO C only converts through memory. */
        memcpy((char *)to + i * sizeof address, &address, sizeof address);
    }
    return missing;
}

static bool fill_driver(cuda_driver *driver, void *library, const char **missing) {
    *missing = fill(library, driver->flavour->function_names,
                    sizeof driver->f / sizeof driver->f.init, &driver->f);
    return !*missing;
}

/* Whether this compiler will do; if not, why. */
static bool take_compiler(cuda_driver *driver, void *library) {
    const char *missing = fill(library, driver->flavour->compiler_names,
                               sizeof driver->c / sizeof driver->c.version, &driver->c);
    char *why = driver->no_compiler;
    const size_t room = sizeof driver->no_compiler;
    if (missing)
        snprintf(why, room, "its compiler is too old: %s has no %s",
                 driver->flavour->compiler_title, missing);
    else if (driver->c.version(&driver->compiler_major, &driver->compiler_minor))
        snprintf(why, room, "its compiler, %s, does not start", driver->flavour->compiler_title);
    else if (driver->compiler_major > driver->version / 1000)
        snprintf(why, room, "its compiler is %d.%d, newer than the driver's %d.%d",
                 driver->compiler_major, driver->compiler_minor, driver->version / 1000,
                 driver->version % 1000 / 10);
    else driver->has_compiler = true;
    return driver->has_compiler;
}

static bool try_compiler(cuda_driver *driver, const char *path) {
    void *library = dlopen(path, RTLD_NOW | RTLD_LOCAL);
    return library && take_compiler(driver, library);
}

void cuda_compiler_find(cuda_driver *driver, void *named_driver) {
    static const char *const roots[] = {"CUDA_HOME", "CUDA_PATH", "ROCM_PATH"};
    const cuda_flavour *flavour = driver->flavour;
    const char *named = base_environment(flavour->compiler_variable);
    if (named) {
        void *library = dlopen(named, RTLD_NOW | RTLD_LOCAL);
        const char *why = library ? NULL : dlerror();
        if (library) take_compiler(driver, library);
        else
            snprintf(driver->no_compiler, sizeof driver->no_compiler, "%s does not open: %s",
                     flavour->compiler_variable, why ? why : named);
        return;
    }
    if (named_driver && take_compiler(driver, named_driver)) return;
    snprintf(driver->no_compiler, sizeof driver->no_compiler,
             "its compiler, %s, was not found; %s can name it", flavour->compiler_title,
             flavour->compiler_variable);
    for (const char *const *file = flavour->compiler_files; *file; file++)
        if (try_compiler(driver, *file)) return;
    for (const char *const *file = flavour->compiler_files; *file; file++) {
        char path[1100];
        for (size_t i = 0; i < sizeof roots / sizeof roots[0]; i++) {
            const char *root = base_environment(roots[i]);
            if (!root || strlen(root) > 900) continue;
            snprintf(path, sizeof path, "%s/lib64/%s", root, *file);
            if (try_compiler(driver, path)) return;
            snprintf(path, sizeof path, "%s/lib/%s", root, *file);
            if (try_compiler(driver, path)) return;
        }
        for (const char *const *in = flavour->compiler_folders; *in; in++) {
            snprintf(path, sizeof path, "%s/%s", *in, *file);
            if (try_compiler(driver, path)) return;
        }
    }
}

beryl_status cuda_library_open(cuda_driver *driver, beryl_error *error) {
    const cuda_flavour *flavour = driver->flavour;
    const char *named = base_environment(flavour->driver_variable), *missing = NULL;
    void *library = named ? dlopen(named, RTLD_NOW | RTLD_LOCAL) : NULL;
    if (named && !library) {
        const char *why = dlerror();
        return base_fail(error, BERYL_NO_DEVICE, "%s does not open: %s", flavour->driver_variable,
                         why ? why : named);
    }
    for (const char *const *file = flavour->driver_files; *file && !library; file++)
        library = dlopen(*file, RTLD_NOW | RTLD_LOCAL);
    if (!library)
        return base_fail(error, BERYL_NO_DEVICE, "%s is not installed", flavour->driver_title);
    if (!fill_driver(driver, library, &missing))
        return base_fail(error, BERYL_NO_DEVICE, "%s is too old: it has no %s",
                         flavour->driver_title, missing);
    if (driver->f.driver_version(&driver->version)) driver->version = 0;
    cuda_compiler_find(driver, named ? library : NULL);
    return BERYL_OK;
}
