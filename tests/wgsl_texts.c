/* wgsl_texts.c - WGSL on its way to the device, wherever in the library it comes from.
 *
 * Where BERYL_TEST_WGSL names a folder, every text is written there for tools/tint-check.mjs, with
 * the `enable` lines that Tint wants. For llvmpipe, loops of a known length get a bound that only
 * the dispatch knows: else Mesa unrolls them, each access with its bounds checks, and LLVM takes
 * up to thirty times as long. `make test-all` leaves them as they are.
 *
 * The linker puts __wrap_ in the place of the real function (-Wl,--wrap=device_program_make, on
 * Linux). */
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

beryl_status WRAPPED(device_program_make)(device *d, const device_program_desc *desc,
                                          device_program *out, beryl_error *error) {
    /* Of the generator's texts alone: those of the device's own tests may be wrong on purpose. */
    static const char mark[] = "@group(1) @binding(0) var<uniform> params: Params;";
    const bool ours = desc->language == DEVICE_WGSL && desc->source && strstr(desc->source, mark);
    const char *folder = getenv("BERYL_TEST_WGSL");
    device_program_desc given = *desc;
    char *text = NULL;
    if (ours && !getenv("BERYL_TEST_ALL") && strstr(device_caps_of(d)->name, "llvmpipe"))
        text = rolled(desc->source);
    if (text) given.source = text, given.source_size = strlen(text);
    const beryl_status status = REAL(device_program_make)(d, &given, out, error);
    free(text);
    if (ours && status == BERYL_OK && folder && folder[0]) keep(desc, folder);
    return status;
}
