/* device.h - the one border between compiler and hardware.
 *
 * A device holds buffers, compiles programs from text and executes command lists; it knows nothing
 * of models, graphs or quantisation. Commands are plain data: natively they are walked in C, in the
 * browser the whole list crosses the border at once. Nothing here blocks but device_wait (native
 * only). A device belongs to one thread at a time (its own compile worker aside).
 *
 * One kernel, from text to result (tests/device_test.c has it whole, as run_kernel):
 *
 *     device *d; // "webgpu", "software", "dummy", or NULL for the best
 *     device_open(&heap, NULL, "webgpu", &d, &error);
 *     device_buffer x, y; device_program program; device_bindings bindings; device_ticket ticket;
 *     device_buffer_make(d, n * 4, "x", &x, &error); // y likewise
 *     device_write(d, x, 0, numbers, n * 4, &error);
 *     device_program_desc desc = {.source = text, .source_size = strlen(text), .n_binding = 2,
 *                                 .access = {DEVICE_READ, DEVICE_READ_WRITE},
 *                                 .param_bytes = sizeof params, .workgroup = {64, 1, 1}};
 *     device_program_make(d, &desc, &program, &error);
 *     while ((s = device_program_status(d, program, &error)) == BERYL_PENDING) base_sleep(1e-3);
 *     device_binding ranges[] = {{.buffer = x}, {.buffer = y}};
 *     device_bindings_make(d, program, ranges, 2, &bindings, &error);
 *     device_command list[] = {
 *         {.kind = DEVICE_DISPATCH, .dispatch = {program, bindings, {(n + 63) / 64, 1, 1}, 0}},
 *         {.kind = DEVICE_FETCH, .fetch = {y, 0, n * 4}}};
 *     device_submit(d, &(device_submit_desc){list, 2, &params, sizeof params}, &ticket, &error);
 *     device_wait(d, ticket, &error);
 *     device_fetched(d, ticket, 0, &data, &size, &error); // then device_fetch_drop(d, ticket)
 *     device_close(d);                                    // gives back whatever was not dropped
 *
 * What a kernel may count on: buffers start as zeros; workgroup memory does not (natively it holds
 * anything); in WGSL reads outside a binding are harmless unless the program is `trusted`, in every
 * other language a kernel must not leave its bindings. `enable` lines are the device's business
 * (uses_f16).
 *
 * How a kernel is entered, by language (b0 ...: the bindings in order, where each begins; params:
 * its param_bytes, words of 4 bytes):
 *     WGSL       @group(0) @binding(i) storage arrays, @group(1) @binding(0) var<uniform> params
 *     CUDA, HIP  extern "C" __global__ void ENTRY(const void *b0, void *b1, ..., params_t params)
 *     OpenCL     __kernel void ENTRY(__global const void *b0, ..., __constant const uint *params,
 *                uint params_at): all parameters of the submit, and the word where its own begin
 *     C          void ENTRY(void *const *buffers, const uint32_t *params, const uint32_t groups[3],
 *                uint32_t first, uint32_t count, void *scratch): runs the workgroups first ...
 *                first + count - 1, counted with x fastest; several calls run at once, each with a
 *                scratch of its own, 64-byte aligned, of uint32_t ENTRY_scratch_bytes(void) bytes
 * Without parameters CUDA and HIP have no such argument; OpenCL and C keep theirs, unread.
 *
 * BERYL_CAPS (environment, words split by commas) switches off what a device has: no-f16,
 * no-subgroups, no-dot, no-timestamps, checked (no program is compiled as trusted), hard (a
 * software device passes for hardware, so that its kernels can be tested), few-buffers (10
 * storage buffers a kernel), min (the smallest WebGPU device: no f16, subgroups or dot products,
 * 256 invocations, 16 KiB of workgroup memory, 8 storage buffers, bindings of 128 MiB). Another
 * word is BAD_INPUT.
 *
 * Errors: calls that make things give a status at once where they can. Errors that a device reports
 * later (bad shader, lost, out of memory) come from the program's status, submit, poll or wait;
 * after BERYL_DEVICE_LOST every call but close gives that status. No call aborts the process.
 */
#ifndef DEVICE_DEVICE_H
#define DEVICE_DEVICE_H

#include "base/memory.h"

typedef struct device device;

/* Generational ids: 0 is none; a stale one is refused with MISUSE (never undefined behaviour). */
typedef struct device_buffer {
    uint32_t id;
} device_buffer;
typedef struct device_program {
    uint32_t id;
} device_program;
typedef struct device_bindings {
    uint32_t id;
} device_bindings;
typedef uint64_t device_ticket; /* of a submit, rising; 0: none */

enum {
    DEVICE_BINDING_MAX = 16,  /* storage buffers of a program; caps.storage_max may be less */
    DEVICE_PARAM_MAX = 256,   /* bytes of parameters of one dispatch */
    DEVICE_PARAM_ALIGN = 256, /* distance of two dispatches' parameters in the arena */
    DEVICE_READBACK_MAX = 6,  /* submits whose fetches and stamps may be pending or borrowed */
    DEVICE_STAMP_MAX = 4096,  /* STAMPs of one submit */
};

typedef enum device_kind {
    DEVICE_DISCRETE,
    DEVICE_INTEGRATED,
    DEVICE_SOFTWARE,
    DEVICE_HOST
} device_kind;

typedef enum device_language {
    DEVICE_WGSL,
    DEVICE_CUDA_C,
    DEVICE_HIP_C,
    DEVICE_OPENCL_C,
    DEVICE_C,
    DEVICE_IR /* the printed kernel IR, for what interprets it */
} device_language;
enum { DEVICE_LANGUAGE_COUNT = DEVICE_IR + 1 };
#define DEVICE_LANGUAGE_BIT(language) (UINT32_C(1) << (language))

/* Products of matrices that a device's units take: the factors' and the sums' types, and how
 * large: c[m, n] += a[m, k] b[k, n]. Types are named as in ir/ir.h. */
#define DEVICE_FRAGMENT_LIST(X) \
    X(F16, F32, 16, 8, 16)      \
    X(BF16, F32, 16, 8, 16)     \
    X(F16, F16, 16, 8, 16)      \
    X(I8, I32, 16, 8, 32)       \
    X(U8, I32, 16, 8, 32)
typedef enum device_fragment {
#define X(factors, sums, m, n, k) DEVICE_FRAGMENT_##factors##_##sums,
    DEVICE_FRAGMENT_LIST(X)
#undef X
        DEVICE_FRAGMENT_COUNT
} device_fragment;
#define DEVICE_FRAGMENT_BIT(fragment) (UINT32_C(1) << (fragment))
#define DEVICE_FRAGMENT_ALL (DEVICE_FRAGMENT_BIT(DEVICE_FRAGMENT_COUNT) - 1)

typedef struct device_caps { /* read from the device, or measured on it */
    char backend[16], name[128], driver[128];
    uint64_t compiler; /* a hash of what `driver` does not say of what compiles; 0: it says all */
    uint32_t index, vendor;
    device_kind kind;
    uint32_t languages; /* the backend's, set by device.c; 0: it runs no programs */
    bool f16, f64, subgroups, dot_i8, timestamps;
    bool in_order; /* what is written and what runs keep the order of submission, uploads too */
    /* processors: words whose bytes a vector multiplies at once, unsigned by signed. 0: none */
    uint32_t dot_words;
    bool tiles;          /* processors: fragments of BF16, 16 by 16 by 32 (tile/contract_tiles.c) */
    bool permutes_bytes; /* any four of eight bytes in one instruction */
    /* DEVICE_FRAGMENT_BIT of each product that its matrix units take; 0: it has none */
    uint32_t fragments;
    bool multiplies_memory; /* fragment_multiply, of F16 and BF16 (ir/ir_ops.h) */
    /* Terms of a sum of F32 from which the same on BF16 limbs is faster than F32 products are
     * (tile/contract_copy.c); 0: never. Needs multiplies_memory */
    uint32_t limbs_from;
    /* measured once, at open; a driver may choose another for another program. 0: none */
    uint32_t subgroup_size;
    uint32_t workgroup_bytes; /* workgroup memory */
    uint32_t workgroup_invocations, workgroup_size[3];
    uint32_t groups_max;  /* in one dimension */
    uint32_t storage_max; /* storage buffers a program */
    uint64_t binding_max, buffer_max;
    uint32_t align_binding; /* of a storage binding's offset */
    uint32_t loop_max;      /* iterations a thread may run, 0: no limit */
    uint32_t compute_units; /* 0: not known */
    uint64_t memory;        /* bytes that a process may expect on it; 0: not known */
} device_caps;

typedef enum device_access { DEVICE_READ, DEVICE_READ_WRITE } device_access;

typedef struct device_program_desc {
    device_language language;
    const char
        *source; /* borrowed for the call; WGSL without `enable` lines: the device adds them */
    size_t source_size;
    const char *entry;  /* NULL: "main" */
    const char *label;  /* for messages; copied */
    uint32_t n_binding; /* at least 1. Storage buffers: @group(0) @binding(0 .. n_binding - 1) */
    device_access access[DEVICE_BINDING_MAX];
    uint32_t param_bytes; /* uniform @group(1) @binding(0); 0: none. At most DEVICE_PARAM_MAX */
    uint32_t workgroup[3];
    uint32_t launch_bytes; /* CUDA, HIP: workgroup memory that the text leaves to the launch */
    bool uses_f16, uses_subgroups; /* which `enable` lines are needed */
    bool trusted;                  /* tested and in range: may be compiled without bounds checks */
} device_program_desc;

typedef struct device_binding {
    device_buffer buffer;
    uint64_t offset, size;
} device_binding; /* size 0: to the end */

typedef enum device_command_kind {
    DEVICE_DISPATCH, /* ordered after every earlier command that touches the same buffers */
    DEVICE_COPY,     /* buffer to buffer; offsets and size multiples of 4 */
    DEVICE_FILL,     /* zeros */
    DEVICE_FETCH,    /* buffer to host, read with device_fetched once the ticket is done */
    DEVICE_STAMP     /* a timestamp, in the order of the list */
} device_command_kind;

typedef struct device_command {
    device_command_kind kind;
    union {
        struct {
            device_program program;
            device_bindings bindings;
            uint32_t groups[3], param_offset;
        } dispatch; /* offset in the submit's params */
        struct {
            device_buffer from, to;
            uint64_t from_offset, to_offset, size;
        } copy;
        struct {
            device_buffer buffer;
            uint64_t offset, size;
        } fill;
        struct {
            device_buffer buffer;
            uint64_t offset, size;
        } fetch;
    };
} device_command;

typedef struct device_submit_desc {
    const device_command *commands; /* borrowed for the call */
    size_t n_command;
    const void *params; /* all dispatches' parameters, written once; borrowed for the call */
    size_t param_bytes; /* a multiple of 4 */
} device_submit_desc;

typedef struct device_stats {
    uint64_t buffer_bytes, buffer_bytes_peak, submits, dispatches;
    uint64_t objects;                     /* everything ever made */
    uint32_t buffers, programs, bindings; /* alive */
} device_stats;

/* ---- choosing -------------------------------------------------------------------------------- */

/* Every device of every backend compiled in, in the order in which a choice looks at them: GPUs
 * that take WGSL, other GPUs, software that takes
 * WGSL, the processor, other software, what runs no programs; within these backend by backend
 * (DEVICE_BACKENDS), each from its best. `why_not` set: there but not usable, or a backend that
 * could not start (one row for it, without a name). */
void device_list(base_heap *heap, const beryl_log *log,
                 void (*each)(void *user, const device_caps *caps, const char *why_not),
                 void *user);
/* choice: NULL or "" the first of the list that runs programs; a backend's name; "software";
 * "gpu" (no processor), "cpu" (the processor, else what imitates a device on it);
 * "[backend:](index | part of a name)", or one of these words behind the colon. An index is
 * caps.index, which counts a backend's devices from its best. "reference" is not a device: the
 * caller handles it. "dummy" is opened by its name only and never listed; a device without a
 * language ("disk") is opened by its backend's name only. NO_DEVICE names what there is. */
beryl_status device_open(base_heap *heap, const beryl_log *log, const char *choice, device **out,
                         beryl_error *error);
void device_close(device *d); /* gives everything back; NULL is fine */
const device_caps *device_caps_of(const device *d);
/* It computes on this machine's processor (software, host): its threads are also the caller's. */
bool device_is_processor(const device_caps *caps);
/* Of those, one whose kernels a C compiler translates (host, OpenCL): one lane does vectors,
 * which are written as such. */
bool device_is_compiled(const device_caps *caps);
/* And the others (WebGPU in software): lanes of a workgroup become vectors. */
bool device_makes_vectors(const device_caps *caps);
/* From now on the device passes for one without these: programs that fail are done without. */
void device_forgo(device *d, bool f16, bool subgroups, bool dot);
void device_stats_of(const device *d, device_stats *stats);
/* From now on nothing is read from or kept in Beryl's cache folder (engine option no_cache). */
void device_cache_forgo(device *d);
/* "WGSL", "CUDA C" and so on. */
const char *device_language_name(device_language language);
/* "webgpu, cuda, ...": the listed backends that compile one of these languages, in order. */
void device_backend_names(uint32_t languages, char *to, size_t size);

/* ---- things ---------------------------------------------------------------------------------- */

beryl_status device_buffer_make(device *d, uint64_t size, const char *label, device_buffer *out,
                                beryl_error *error);
/* A buffer behind a range of a source, which is read when it is used: "disk" alone, UNSUPPORTED
 * elsewhere. The source is borrowed until the buffer is dropped and all submits with it are done.
 * Where size is not a multiple of 4, zeros fill the last word. Such a buffer can be fetched from
 * and copied to other devices, nothing else. */
beryl_status device_buffer_map(device *d, const beryl_source *source, uint64_t offset,
                               uint64_t size, const char *label, device_buffer *out,
                               beryl_error *error);
void device_buffer_drop(device *d, device_buffer buffer);
/* Is there memory for the buffers made so far? A browser tells later than they are made: PENDING
 * until it has, then OK or NO_DEVICE_MEMORY; those buffers are then to be dropped. */
beryl_status device_settle(device *d, beryl_error *error);
/* Copies now, in order before the next submit. offset and size multiples of 4. For small, frequent
 * data. */
beryl_status device_write(device *d, device_buffer buffer, uint64_t offset, const void *data,
                          size_t size, beryl_error *error);
/* The buffer's own memory, to be filled in place before the next submit, by any thread. NULL: it is
 * out of the processor's reach, or work under way may touch it. */
void *device_buffer_memory(device *d, device_buffer buffer);
/* The backend's own handle of a buffer, for those who share the device with it; 0: it has none. */
uint64_t device_buffer_handle(device *d, device_buffer buffer);
/* Upload without a copy of its own: memory of the staging ring to fill, size <= device_stage_max.
 * PENDING: the ring is full; poll and try again. Then commit (size as filled, a multiple of 4; 0
 * gives it up), in order before the next submit. No write and no submit between the two; another
 * stage replaces the one that waits. */
size_t device_stage_max(const device *d);
beryl_status device_stage(device *d, size_t size, void **memory, beryl_error *error);
beryl_status device_stage_commit(device *d, device_buffer buffer, uint64_t offset, size_t size,
                                 beryl_error *error);

/* Compiles, possibly on a worker: the id is there at once, errors come from device_program_status
 * (the compiler's text, with line). */
beryl_status device_program_make(device *d, const device_program_desc *desc, device_program *out,
                                 beryl_error *error);
/* PENDING: compiling. */
beryl_status device_program_status(device *d, device_program program, beryl_error *error);
void device_program_drop(device *d, device_program program);
/* The buffers of a dispatch, made once and kept: n == the program's n_binding. Refused: a buffer
 * bound for reading and for writing, unaligned or too large ranges. */
beryl_status device_bindings_make(device *d, device_program program, const device_binding *bindings,
                                  uint32_t n, device_bindings *out, beryl_error *error);
void device_bindings_drop(device *d, device_bindings bindings);

/* ---- work ------------------------------------------------------------------------------------ */

/* Makes nothing and allocates nothing once the same shape of list has run before. Refused as a
 * whole (nothing runs) on misuse. PENDING: a program of the list is still compiling, or the
 * readbacks of DEVICE_READBACK_MAX submits are not done or not dropped: poll and try again. A
 * program that failed to compile gives its error. */
beryl_status device_submit(device *d, const device_submit_desc *desc, device_ticket *ticket,
                           beryl_error *error);
/* The last ticket that is done; drives callbacks. */
beryl_status device_poll(device *d, device_ticket *done, beryl_error *error);
/* Native only; PENDING in the browser. */
beryl_status device_wait(device *d, device_ticket ticket, beryl_error *error);
/* The bytes of the n-th FETCH of a done submit, borrowed until device_fetch_drop or 4 later submits
 * with fetches or stamps. PENDING: not done. */
beryl_status device_fetched(device *d, device_ticket ticket, uint32_t n, const void **data,
                            size_t *size, beryl_error *error);
void device_fetch_drop(device *d, device_ticket ticket);
/* Nanoseconds of the STAMPs of a done submit, from its first; lives as long as its fetches.
 * n_stamp: in capacity, out count. UNSUPPORTED where caps.timestamps is false (STAMPs are then
 * passed over). */
beryl_status device_stamps(device *d, device_ticket ticket, uint64_t *ns, uint32_t *n_stamp,
                           beryl_error *error);

/* ---- between devices ------------------------------------------------------------------------- */

typedef struct device_transfer { /* the caller's storage; all fields are device_transfer's own */
    device *from, *to;
    device_buffer source, target;
    uint64_t source_offset, target_offset, size;
    uint64_t asked, moved, piece; /* bytes */
    device_ticket tickets[2];     /* of pieces that are fetched */
    uint32_t n_asked;
} device_transfer;

/* [source_offset, + size) of a buffer of `from` into a buffer of `to`, which may be any two devices
 * (or one), piece by piece: begin, then step while it says PENDING. Nothing blocks. What is moved
 * is in order before the next submit to `to`; what is read is what earlier submits to `from` left,
 * or a later one where there was one between two steps. Offsets and size are multiples of 4. */
beryl_status device_transfer_begin(device_transfer *x, device *from, device_buffer source,
                                   uint64_t source_offset, device *to, device_buffer target,
                                   uint64_t target_offset, uint64_t size, beryl_error *error);
/* OK: all was moved. An error ends it. */
beryl_status device_transfer_step(device_transfer *x, beryl_error *error);
void device_transfer_drop(device_transfer *x); /* in the middle; fine on one that has ended */

/* ---- for backends ------------------------------------------------------------------------------
 *
 * device.c owns the ids and checks every argument and command against the items below before a
 * backend is called: ids, ranges, alignment, aliasing, limits, lifetimes. So a backend never sees a
 * stale id or a range outside a buffer. A backend's own item structs begin with these; device.c
 * takes and gives their memory. */

typedef struct device_buffer_item {
    uint64_t size;
} device_buffer_item;

typedef struct device_program_item {
    uint32_t n_binding, param_bytes;
    uint32_t written; /* bit i is set where binding i is DEVICE_READ_WRITE */
    uint32_t workgroup[3];
    char label[48];
} device_program_item;

typedef struct device_bindings_item {
    /* as of the program that they were made for; others with the same may use them */
    uint32_t n_binding, written;
    bool broken; /* one of the buffers was dropped */
    struct {
        device_buffer_item *buffer;
        uint64_t offset, size;
    } ranges[DEVICE_BINDING_MAX]; /* borrowed; NULL once dropped */
} device_bindings_item;

/* Ids are an index and a generation; a slot whose generations are used up is never used again. */
typedef struct device_pool {
    struct device_pool_slot {
        void *item;
        uint32_t generation, next;
    } * slots;                             // [capacity], owned
    uint32_t count, capacity, free, alive; /* free: first of the list of free slots + 1 */
} device_pool;

typedef struct device_mask { /* what BERYL_CAPS switches off */
    bool no_f16, no_subgroups, no_dot, no_timestamps, checked, few_buffers, min, hard;
} device_mask;

typedef struct device_backend { /* one const table a backend */
    const char *name;
    uint32_t languages; /* DEVICE_LANGUAGE_BIT of each that its devices compile */
    bool hidden;        /* opened by name only */
    size_t buffer_bytes, program_bytes, bindings_bytes; /* sizes of its items */
    /* A look at what there is, before anything is opened: NULL and an error where the backend
     * cannot start. */
    void *(*start)(base_heap *heap, const beryl_log *log, beryl_error *error);
    void (*stop)(void *driver); /* devices opened from it live on */
    uint32_t (*count)(void *driver);
    /* Numbered from the best. */
    void (*describe)(void *driver, uint32_t index, device_caps *caps, const char **why_not);
    /* caps: as described, with the backend's name, the number and the languages; the device's
     * begin so. */
    beryl_status (*open)(void *driver, const device_caps *caps, const device_mask *mask,
                         device **out, beryl_error *error);
    /* Around calls that reach a driver with a current device in each thread: enter makes d that
     * device and gives the thread's own, leave sets that again. NULL: there is none. Opening and
     * closing see to it themselves. */
    void *(*enter)(device *d);
    void (*leave)(device *d, void *own);
    /* Closing: first drain (may be NULL) waits until the device and its workers are idle, then all
     * items are dropped, then close frees d. */
    void (*drain)(device *d);
    void (*close)(device *d);
    beryl_status (*buffer_make)(device *d, device_buffer_item *buffer, const char *label,
                                beryl_error *error);
    /* buffer->size is known; the range lies inside the source. NULL: it cannot. */
    beryl_status (*buffer_map)(device *d, device_buffer_item *buffer, const beryl_source *source,
                               uint64_t offset, uint64_t size, const char *label,
                               beryl_error *error);
    void (*buffer_drop)(device *d, device_buffer_item *buffer);
    /* NULL: buffers fail when they are made */
    beryl_status (*settle)(device *d, beryl_error *error);
    beryl_status (*write)(device *d, device_buffer_item *buffer, uint64_t offset, const void *data,
                          size_t size, beryl_error *error);
    void *(*memory)(device *d, device_buffer_item *buffer); /* NULL: there is none in reach */
    uint64_t (*handle)(const device_buffer_item *buffer);   /* NULL: there is none */
    size_t (*stage_max)(const device *d);
    beryl_status (*stage)(device *d, size_t size, void **memory, beryl_error *error);
    beryl_status (*stage_commit)(device *d, device_buffer_item *buffer, uint64_t offset,
                                 size_t size, beryl_error *error);
    beryl_status (*program_make)(device *d, device_program_item *program,
                                 const device_program_desc *desc, beryl_error *error);
    beryl_status (*program_status)(device *d, device_program_item *program, beryl_error *error);
    void (*program_drop)(device *d, device_program_item *program);
    beryl_status (*bindings_make)(device *d, device_bindings_item *bindings, beryl_error *error);
    void (*bindings_drop)(device *d, device_bindings_item *bindings);
    beryl_status (*submit)(device *d, const device_submit_desc *desc, device_ticket ticket,
                           beryl_error *error);
    beryl_status (*poll)(device *d, device_ticket *done, beryl_error *error);
    beryl_status (*wait)(device *d, device_ticket ticket, beryl_error *error);
    beryl_status (*fetched)(device *d, device_ticket ticket, uint32_t n, const void **data,
                            size_t *size, beryl_error *error);
    void (*fetch_drop)(device *d, device_ticket ticket);
    beryl_status (*stamps)(device *d, device_ticket ticket, uint64_t *ns, uint32_t *n_stamp,
                           beryl_error *error);
} device_backend;

struct device { /* head of every backend's own struct */
    const device_backend *backend;
    device_caps caps;
    /* submits, dispatches, buffers, programs and bindings are counted by device.c; a backend
     * adds   its own objects, and their bytes */
    device_stats stats;
    base_heap *heap;      /* borrowed */
    const beryl_log *log; /* borrowed */
    device_pool buffers, programs, bindings;
    device_ticket last; /* given out last */
    size_t staged;      /* bytes of the stage that waits for its commit */
    bool no_cache;      /* compiled programs are neither looked for nor kept in the cache folder */
};

/* Every backend of this build, in order of preference: X(name) is the table device_name, in
 * src/device/name/. */
#ifdef __wasm__
#define DEVICE_BACKENDS(X) X(web)
#else
#define DEVICE_BACKENDS(X) \
    X(cuda)                \
    X(webgpu)              \
    X(hip)                 \
    X(opencl)              \
    X(host)                \
    X(disk)                \
    X(dummy)
#endif

#define X(name) extern const device_backend device_##name;
DEVICE_BACKENDS(X)
#undef X

/* NULL: stale or none. */
void *device_pool_at(const device_pool *pool, uint32_t id);
/* Adds to what the device holds (delta may be negative) and keeps the peak. */
void device_stats_bytes(device *d, int64_t delta);

#endif
