/* library.c - finds the OpenCL loader and fills the table of functions.
 *
 * $BERYL_OPENCL (a file: that one or none), else the system's loader, which knows the drivers that
 * are installed. Never closed again: drivers have threads of their own.
 */
#include "device/opencl/opencl.h"
#include "base/error.h"
#include "base/file.h"

#include <dlfcn.h>
#include <string.h>

beryl_status opencl_library_open(opencl_functions *f, beryl_error *error) {
    static const char *const names[] = {
#ifdef __APPLE__
        "/System/Library/Frameworks/OpenCL.framework/OpenCL"
#else
        "libOpenCL.so.1", "libOpenCL.so"
#endif
    };
    const char *named = base_environment("BERYL_OPENCL");
    void *library = named ? dlopen(named, RTLD_NOW | RTLD_LOCAL) : NULL;
    if (named && !library) {
        const char *why = dlerror();
        return base_fail(error, BERYL_NO_DEVICE, "BERYL_OPENCL does not open: %s",
                         why ? why : named);
    }
    for (size_t i = 0; !library && i < sizeof names / sizeof names[0]; i++)
        library = dlopen(names[i], RTLD_NOW | RTLD_LOCAL);
    if (!library)
        return base_fail(error, BERYL_NO_DEVICE, "no OpenCL loader (libOpenCL.so.1) is installed");
    const char *missing = NULL;
    /* POSIX has dlsym give functions as void *, which ISO C only converts through memory. */
#define X(result, name, parameters)                     \
    do {                                                \
        void *address = dlsym(library, "cl" #name);     \
        if (!address && !missing) missing = "cl" #name; \
        memcpy(&f->name, &address, sizeof address);     \
    } while (0);
    OPENCL_FUNCTIONS(X)
#undef X
    if (missing)
        return base_fail(error, BERYL_NO_DEVICE,
                         "the OpenCL loader has no %s; version 1.2 is needed", missing);
    return BERYL_OK;
}
