/* webgpu.h - what the files of the WebGPU backend share: the table of functions and the device's
 * struct.
 *
 * library.c opens wgpu-native and fills the table; facts.c asks the driver what WebGPU does not
 * tell; webgpu.c owns adapters, opening, closing and errors; buffer.c buffers, staging and
 * readback; program.c compiling and bindings; submit.c command lists and waiting.
 *
 * The one rule behind all of it: a panic inside wgpu-native ends the process, so nothing is called
 * that may panic. Functions that are known to are not in the table below, and a queue is handed
 * only what was found free of errors.
 */
#ifndef DEVICE_WEBGPU_WEBGPU_H
#define DEVICE_WEBGPU_WEBGPU_H

#include "device/device.h"
#include "base/thread.h"

#include "device/webgpu/wgpu.h"

#include <pthread.h>
#include <stdatomic.h>

/* ---- functions ------------------------------------------------------------------------------- */

/* Of webgpu.h. */
#define WEBGPU_FUNCTIONS(X)                 \
    X(CreateInstance)                       \
    X(InstanceRelease)                      \
    X(InstanceProcessEvents)                \
    X(AdapterGetInfo)                       \
    X(AdapterInfoFreeMembers)               \
    X(AdapterGetLimits)                     \
    X(AdapterHasFeature)                    \
    X(AdapterRequestDevice)                 \
    X(AdapterRelease)                       \
    X(DeviceGetQueue)                       \
    X(DeviceRelease)                        \
    X(DeviceCreateBuffer)                   \
    X(DeviceCreateBindGroup)                \
    X(DeviceCreateBindGroupLayout)          \
    X(DeviceCreatePipelineLayout)           \
    X(DeviceCreateComputePipeline)          \
    X(DeviceCreateShaderModule)             \
    X(DeviceCreateCommandEncoder)           \
    X(DeviceCreateQuerySet)                 \
    X(BufferDestroy)                        \
    X(BufferRelease)                        \
    X(BufferMapAsync)                       \
    X(BufferUnmap)                          \
    X(BufferGetMappedRange)                 \
    X(BufferGetConstMappedRange)            \
    X(BindGroupRelease)                     \
    X(BindGroupLayoutRelease)               \
    X(PipelineLayoutRelease)                \
    X(ComputePipelineRelease)               \
    X(ShaderModuleRelease)                  \
    X(QuerySetRelease)                      \
    X(CommandEncoderBeginComputePass)       \
    X(CommandEncoderCopyBufferToBuffer)     \
    X(CommandEncoderClearBuffer)            \
    X(CommandEncoderResolveQuerySet)        \
    X(CommandEncoderFinish)                 \
    X(CommandEncoderRelease)                \
    X(CommandBufferRelease)                 \
    X(ComputePassEncoderSetPipeline)        \
    X(ComputePassEncoderSetBindGroup)       \
    X(ComputePassEncoderDispatchWorkgroups) \
    X(ComputePassEncoderEnd)                \
    X(ComputePassEncoderRelease)            \
    X(QueueWriteBuffer)                     \
    X(QueueOnSubmittedWorkDone)             \
    X(QueueRelease)

/* Of wgpu-native alone. */
#define WEBGPU_NATIVE_FUNCTIONS(X)     \
    X(GetVersion)                      \
    X(InstanceEnumerateAdapters)       \
    X(QueueSubmitForIndex)             \
    X(QueueGetTimestampPeriod)         \
    X(DevicePoll)                      \
    X(DeviceCreateShaderModuleTrusted) \
    X(ComputePassEncoderWriteTimestamp)

typedef struct webgpu_functions {
#define X(name) WGPUProc##name name;
    WEBGPU_FUNCTIONS(X)
    WEBGPU_NATIVE_FUNCTIONS(X)
#undef X
} webgpu_functions;

/* ---- things ---------------------------------------------------------------------------------- */

enum {
    WEBGPU_WORKER_MAX = 16,
    WEBGPU_STAGE_BYTES = 16 << 20,
    WEBGPU_STAGE_COUNT = 3,
    WEBGPU_STAGE_COPIES = 64, /* commits between two flushes */
    WEBGPU_PARAM_SLOTS = 4,
    WEBGPU_HELD_MAX = 16,
    WEBGPU_TICKETS = 256 /* submission indices remembered */
};

/* The first error since `count` was set to 0, on one thread. wgpu reports on the thread whose call
 * failed, within it. */
typedef struct webgpu_fault {
    uint32_t count;
    WGPUErrorType type;
    char text[2048];
} webgpu_fault;

typedef struct webgpu_buffer {
    device_buffer_item head;
    WGPUBuffer handle;
} webgpu_buffer;

typedef enum webgpu_job_state {
    WEBGPU_WAITING,
    WEBGPU_COMPILING,
    WEBGPU_READY,
    WEBGPU_FAILED
} webgpu_job_state;

/* One compile. Apart from the program, since a worker may hold it longer than the program lives. */
typedef struct webgpu_job {
    struct webgpu_job *next; /* in the queue */
    webgpu_job_state state;  /* guarded by the device's lock */
    bool orphan;             /* the program is gone: whoever ends the compile frees it */
    bool trusted;
    char *source; // [source_size], owned; with the enable line
    size_t source_size, enable_size;
    char *entry; // [entry_size], owned
    size_t entry_size;
    char label[48];
    WGPUPipelineLayout layout;    /* borrowed from the device */
    WGPUComputePipeline pipeline; /* owned; set when ready */
    beryl_error error;            /* set when failed */
    char *told; // [told_size], what the compiler said, for the log; owned, NULL once logged
    size_t told_size;
} webgpu_job;

typedef struct webgpu_program {
    device_program_item head;
    webgpu_job *job; /* owned unless made an orphan */
    WGPUComputePipeline
        pipeline; /* owned; NULL until a status call or a submit found the job ready */
} webgpu_program;

typedef struct webgpu_bindings {
    device_bindings_item head;
    WGPUBindGroup group;
} webgpu_bindings;

/* Layouts by what they hold: few, kept until the device is closed. */
typedef struct webgpu_layout {
    uint32_t n_binding, written;
    WGPUBindGroupLayout group;
    WGPUPipelineLayout pipeline[2]; /* without and with parameters */
} webgpu_layout;

typedef enum webgpu_map_state {
    WEBGPU_UNMAPPED,
    WEBGPU_MAPPING,
    WEBGPU_MAPPED,
    WEBGPU_MAP_FAILED
} webgpu_map_state;

/* A staging buffer: mapped, filled piece by piece, unmapped and copied from when full or before a
 * submit. */
typedef struct webgpu_stage {
    WGPUBuffer handle;
    webgpu_map_state state;
    unsigned char *memory; /* while mapped */
    size_t used;
} webgpu_stage;

typedef struct webgpu_stage_copy {
    webgpu_buffer *to; /* borrowed; a dropped buffer's copies are flushed first */
    uint64_t offset;
    size_t from, size;
} webgpu_stage_copy;

/* Where one submit's fetches and stamps end up on the host. */
typedef struct webgpu_readback {
    WGPUBuffer handle;
    uint64_t capacity;
    webgpu_map_state state;
    device_ticket ticket;        /* 0: free */
    uint64_t number;             /* of the submit among those with readback */
    const unsigned char *memory; /* while mapped */
    base_vec(struct webgpu_span { uint64_t at, size; }) fetches;
    uint32_t n_stamp;
    uint64_t stamps_at, bytes;
} webgpu_readback;

typedef struct webgpu_worker {
    struct webgpu *device; /* borrowed */
    base_thread *thread;   /* owned */
    pthread_t self;
    bool running; /* self is set; guarded by the lock */
    webgpu_fault fault;
} webgpu_worker;

typedef struct webgpu {
    device head;
    webgpu_functions f;
    WGPUDevice device;
    WGPUQueue queue;
    device_mask mask;
    _Atomic bool lost;
    base_lock *lock;    /* guards jobs, workers' `running`, and who an error belongs to */
    webgpu_fault fault; /* of the owner's thread */

    webgpu_worker workers[WEBGPU_WORKER_MAX];
    uint32_t n_worker;
    webgpu_job *first, *last; /* jobs that wait */
    uint32_t n_dropped;       /* programs, ever */
    bool closing;

    base_vec(webgpu_layout) layouts;
    WGPUBindGroupLayout param_layout;
    WGPUBuffer params; // [WEBGPU_PARAM_SLOTS, param_capacity] bytes
    WGPUBindGroup param_group;
    unsigned char *param_copy; // what params holds, of each slot the first param_sizes[slot]
    size_t param_sizes[WEBGPU_PARAM_SLOTS];
    uint64_t param_capacity;
    uint32_t param_slot, param_next; /* of the last submit; the one to be written next */

    webgpu_stage stages[WEBGPU_STAGE_COUNT];
    uint32_t stage;  /* the one being filled */
    size_t stage_at; /* of the piece that waits for its commit */
    webgpu_stage_copy copies[WEBGPU_STAGE_COPIES];
    uint32_t n_copy;
    uint64_t written; /* bytes of QueueWriteBuffer since the last submit */

    webgpu_readback readbacks[DEVICE_READBACK_MAX];
    uint64_t n_readback; /* submits with readback so far */
    WGPUQuerySet queries;
    WGPUBuffer query_bytes;
    uint32_t query_capacity;
    bool stamps_in_pass;
    double stamp_ns;

    device_ticket done, issued;
    device_ticket sent[2]; /* the last ones of the last two submits of the queue */
    WGPUCommandBuffer held[WEBGPU_HELD_MAX]; /* of the last tickets: not yet with the queue */
    uint32_t n_held;
    WGPUSubmissionIndex indices[WEBGPU_TICKETS]; /* of ticket t at t % WEBGPU_TICKETS */
} webgpu;

/* ---- library.c */
beryl_status webgpu_library_open(webgpu_functions *f, beryl_error *error);
WGPUInstance webgpu_instance_make(const webgpu_functions *f, const WGPUInstanceDescriptor *desc);
/* While an instance is alive: its drivers are never unloaded. */
void webgpu_drivers_keep(void);
const char *webgpu_drivers_missing(void); /* why there is no adapter, as text */

/* ---- facts.c */
typedef struct webgpu_adapter {
    WGPUAdapter handle;
    device_caps caps;
} webgpu_adapter;
/* Fills caps.memory and caps.compute_units where they can be found. */
void webgpu_facts(webgpu_adapter *adapters, uint32_t n);

/* ---- webgpu.c */
WGPUStringView webgpu_text(const char *text);
/* Between the two, errors of this thread are collected; `end` turns the first into a status and a
 * message that begins with `what`. Lost devices give DEVICE_LOST. */
void webgpu_begin(webgpu *d);
beryl_status webgpu_end(webgpu *d, const char *what, beryl_error *error);
beryl_status webgpu_lost(const webgpu *d, beryl_error *error); /* OK: not lost */
/* One line of what the library said; source: gives the place as the error's `at`. */
beryl_status webgpu_fault_fail(const webgpu_fault *fault, const char *what, const char *source,
                               size_t source_size, size_t enable_size, beryl_error *error);

/* ---- buffer.c */
/* An object of the backend's own, counted. NULL and an error. */
WGPUBuffer webgpu_buffer_own(webgpu *d, uint64_t size, WGPUBufferUsage usage, const char *label,
                             beryl_error *error);
void webgpu_buffer_own_drop(webgpu *d, WGPUBuffer handle, uint64_t size);
beryl_status webgpu_buffer_make(device *head, device_buffer_item *item, const char *label,
                                beryl_error *error);
void webgpu_buffer_drop(device *head, device_buffer_item *item);
uint64_t webgpu_handle(const device_buffer_item *item); /* its WGPUBuffer */
beryl_status webgpu_write(device *head, device_buffer_item *item, uint64_t offset, const void *data,
                          size_t size, beryl_error *error);
size_t webgpu_stage_max(const device *head);
beryl_status webgpu_stage_take(device *head, size_t size, void **memory, beryl_error *error);
beryl_status webgpu_stage_commit(device *head, device_buffer_item *item, uint64_t offset,
                                 size_t size, beryl_error *error);
beryl_status webgpu_stage_flush(webgpu *d,
                                beryl_error *error); /* submits the committed copies, if any */
/* A readback for `bytes` with room for n_fetch spans. PENDING: none is free. */
beryl_status webgpu_readback_take(webgpu *d, uint64_t bytes, size_t n_fetch, webgpu_readback **out,
                                  beryl_error *error);
void webgpu_readback_map(webgpu *d, webgpu_readback *r);
void webgpu_readback_free(webgpu *d, webgpu_readback *r);
beryl_status webgpu_fetched(device *head, device_ticket ticket, uint32_t n, const void **data,
                            size_t *size, beryl_error *error);
void webgpu_fetch_drop(device *head, device_ticket ticket);
beryl_status webgpu_stamps(device *head, device_ticket ticket, uint64_t *ns, uint32_t *n_stamp,
                           beryl_error *error);
void webgpu_buffers_fini(webgpu *d);

/* ---- program.c */
beryl_status webgpu_program_make(device *head, device_program_item *item,
                                 const device_program_desc *desc, beryl_error *error);
beryl_status webgpu_program_status(device *head, device_program_item *item, beryl_error *error);
void webgpu_program_drop(device *head, device_program_item *item);
beryl_status webgpu_bindings_make(device *head, device_bindings_item *item, beryl_error *error);
void webgpu_bindings_drop(device *head, device_bindings_item *item);
void webgpu_workers_stop(webgpu *d);
void webgpu_programs_fini(webgpu *d);

/* ---- submit.c */
beryl_status webgpu_submit(device *head, const device_submit_desc *desc, device_ticket ticket,
                           beryl_error *error);
beryl_status webgpu_poll(device *head, device_ticket *done, beryl_error *error);
beryl_status webgpu_wait(device *head, device_ticket ticket, beryl_error *error);
/* A list for the queue, if nothing went wrong since webgpu_begin. The encoder is given back
 * whatever happens. */
beryl_status webgpu_finish(webgpu *d, WGPUCommandEncoder encoder, const char *what,
                           WGPUCommandBuffer *out, beryl_error *error);
/* The queue gets the lists that are held; results of the last one, if any, are mapped behind it. */
void webgpu_hand_over(webgpu *d, webgpu_readback *last);
void webgpu_drain(device *head);
void webgpu_params_drop(webgpu *d);

#endif
