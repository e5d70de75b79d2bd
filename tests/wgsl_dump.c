/* wgsl_dump.c - what the tests compile, as files for tools/tint-check.mjs: where BERYL_TEST_WGSL
 * names a folder, every WGSL text that any part of the library hands to a device is written
 * there, with the `enable` lines that Tint wants.
 *
 * The linker puts __wrap_ in the place of the real function (-Wl,--wrap=device_program_make, on
 * Linux). */
#include "device/device.h"

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

beryl_status WRAPPED(device_program_make)(device *d, const device_program_desc *desc,
                                          device_program *out, beryl_error *error) {
    const char *folder = getenv("BERYL_TEST_WGSL");
    const beryl_status status = REAL(device_program_make)(d, desc, out, error);
    /* Of the generator's texts alone: those of the device's own tests may be wrong on purpose. */
    static const char mark[] = "@group(1) @binding(0) var<uniform> params: Params;";
    if (!folder || !folder[0] || status != BERYL_OK || desc->language != DEVICE_WGSL ||
        !strstr(desc->source, mark))
        return status;
    char path[1024];
    const uint64_t hash =
        base_hash(desc->source, desc->source_size, desc->uses_f16 + 2u * desc->uses_subgroups);
    snprintf(path, sizeof path, "%s/%016llx.wgsl", folder, (unsigned long long)hash);
    FILE *file = fopen(path, "wbx");
    if (!file) return status; /* there already, or no such folder */
    if (desc->uses_f16) fputs("enable f16;\n", file);
    if (desc->uses_subgroups) fputs("enable subgroups;\n", file);
    fwrite(desc->source, 1, desc->source_size, file);
    fclose(file);
    return status;
}
