/* kernels.h - the registry of hand-written WGSL: from a file, options and parts to a final text
 * with its reflection.
 *
 * A kernel file is valid WGSL (naga and Tint) once the device has put `enable` lines before it.
 * It has
 *   - a head comment: what it computes, shapes, the one idea;
 *   - an option block: `const NAME: u32 = 4u;` / `alias NAME = f32;` lines between `//! options`
 *     and `//! end`, whose right-hand sides the registry replaces;
 *   - `struct Params { a: u32, b: f32, ... }` (32-bit scalars alone) and
 *     `@group(1) @binding(0) var<uniform> params: Params;`
 *   - storage: `@group(0) @binding(N) var<storage, read|read_write> name: array<...>;`, one a line;
 *   - parts: a region between `//! part NAME` and `//! end` is the plain default, replaced as a
 *     whole by the text of a part file. A part file may declare storage of its own (any
 *     @binding(N): the registry renumbers all bindings of the final text in order) and further
 *     parameters as lines `//! param name: u32` (appended to Params in order). A part may be put in
 *     several times under different prefixes: every identifier that begins with `PART_` is renamed
 *     to the prefix given (readers of several weight segments). A part may hold parts and options
 *     of its own;
 *   - `//! include NAME`: the text of another file in this place, under the same prefix; one
 *     without PART_ names comes once.
 * Nothing else varies: two algorithms are two files. The final text is the cache key. C code binds
 * storage and sets parameters by name, so numbers are never written twice.
 */
#ifndef KERNELS_KERNELS_H
#define KERNELS_KERNELS_H

#include "base/memory.h"
#include "device/device.h"

enum {
    KERNELS_OPTION_MAX = 24,
    KERNELS_PART_MAX = 16,
    KERNELS_PARAM_MAX = 64,
    KERNELS_NAME_MAX = 40
};

/* value: text put after `=`, e.g. "64u", "f16" */
typedef struct kernels_option {
    const char *name;
    const char *value;
} kernels_option;
/* prefix NULL: as it stands */
typedef struct kernels_part {
    const char *name;
    const char *file;
    const char *prefix;
} kernels_part;

typedef struct kernels_request {
    const char *file;                           /* "matvec" */
    kernels_option options[KERNELS_OPTION_MAX]; /* ends at name NULL */
    /* ends at name NULL; several with one name are put in one after another */
    kernels_part parts[KERNELS_PART_MAX];
} kernels_request;

typedef struct kernels_binding {
    char name[KERNELS_NAME_MAX];
    device_access access;
} kernels_binding;
/* at byte 4 * index */
typedef struct kernels_param {
    char name[KERNELS_NAME_MAX];
    bool is_float;
} kernels_param;

typedef struct kernels_text {
    char *text; /* owned by the arena given */
    size_t size;
    uint64_t hash;
    uint32_t n_binding, n_param, workgroup[3], launch_bytes; /* as device_program_desc has them */
    kernels_binding bindings[DEVICE_BINDING_MAX];
    kernels_param params[KERNELS_PARAM_MAX];
    bool uses_f16, uses_subgroups, uses_dot;
} kernels_text;

/* BERYL_NOT_FOUND: no such file, option or part (named); MISUSE: too many bindings or
 * parameters. */
beryl_status kernels_build(base_arena *arena, const kernels_request *request, kernels_text *out,
                           beryl_error *error);
int kernels_binding_find(const kernels_text *k, const char *name); /* -1: none */
int kernels_param_find(const kernels_text *k, const char *name);

#endif
