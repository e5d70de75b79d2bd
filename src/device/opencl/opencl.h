/* opencl.h - what the files of the OpenCL backend share: what it uses of OpenCL 1.2, declared here,
 * and the device's struct.
 *
 * library.c opens the loader and fills the table; opencl.c owns platforms, devices, opening,
 * closing and errors; memory.c buffers, staging and programs' bindings; submit.c programs, command
 * lists and waiting. The one idea: one queue in order, so that order is never a matter of events;
 * events only tell how far it is.
 */
#ifndef DEVICE_OPENCL_OPENCL_H
#define DEVICE_OPENCL_OPENCL_H

#include "device/device.h"
#include "device/driver/compile.h"
#include "device/driver/readback.h"
#include "device/driver/stage.h"

/* ---- OpenCL (Khronos OpenCL API 1.2) --------------------------------------------------------- */

typedef struct opencl_platform_ *opencl_platform;
typedef struct opencl_id_ *opencl_id;
typedef struct opencl_context_ *opencl_context;
typedef struct opencl_queue_ *opencl_queue;
typedef struct opencl_memory_ *opencl_memory;
typedef struct opencl_code_ *opencl_code;
typedef struct opencl_kernel_ *opencl_kernel;
typedef struct opencl_event_ *opencl_event;

enum {
    OPENCL_PLATFORM_VERSION = 0x0901,
    OPENCL_PLATFORM_NAME = 0x0902,
    OPENCL_TYPE = 0x1000,
    OPENCL_VENDOR_ID = 0x1001,
    OPENCL_COMPUTE_UNITS = 0x1002,
    OPENCL_GROUP_SIZE = 0x1004,
    OPENCL_ITEM_SIZES = 0x1005,
    OPENCL_ADDRESS_BITS = 0x100d,
    OPENCL_ALLOC_MAX = 0x1010,
    OPENCL_PARAMETER_SIZE = 0x1017,
    OPENCL_SINGLE_CONFIG = 0x101b,
    OPENCL_MEMORY_SIZE = 0x101f,
    OPENCL_CONSTANT_SIZE = 0x1020,
    OPENCL_LOCAL_SIZE = 0x1023,
    OPENCL_LITTLE_ENDIAN = 0x1026,
    OPENCL_AVAILABLE = 0x1027,
    OPENCL_HAS_COMPILER = 0x1028,
    OPENCL_NAME = 0x102b,
    OPENCL_DRIVER_VERSION = 0x102d,
    OPENCL_VERSION = 0x102f,
    OPENCL_EXTENSIONS = 0x1030,
    OPENCL_UNIFIED_MEMORY = 0x1035,
    OPENCL_WAVEFRONT_AMD = 0x4043,
    OPENCL_SUBGROUP_SIZES_INTEL = 0x4108,

    OPENCL_TYPE_CPU = 2,
    OPENCL_TYPE_CUSTOM = 16,
    OPENCL_DIVIDE_EXACT = 128,
    OPENCL_BUILD_LOG = 0x1183,
    OPENCL_KERNEL_GROUP_SIZE = 0x11b0,
    OPENCL_EVENT_STATUS = 0x11d3,
    OPENCL_PROFILE_END = 0x1283,
    OPENCL_READ_WRITE = 1,
    OPENCL_READ_ONLY = 4,
    OPENCL_QUEUE_PROFILING = 2,

    OPENCL_NO_BUFFER_MEMORY = -4,
    OPENCL_NO_RESOURCES = -5,
    OPENCL_NO_HOST_MEMORY = -6,
    OPENCL_TOO_LARGE = -61,
};

/* Result, name, parameters; cl_int is int32_t, cl_bool uint32_t, bit sets are uint64_t. */
#define OPENCL_FUNCTIONS(X)                                                                       \
    X(int32_t, GetPlatformIDs, (uint32_t room, opencl_platform * list, uint32_t * n))             \
    X(int32_t, GetPlatformInfo,                                                                   \
      (opencl_platform platform, uint32_t what, size_t room, void *to, size_t *size))             \
    X(int32_t, GetDeviceIDs,                                                                      \
      (opencl_platform platform, uint64_t type, uint32_t room, opencl_id * list, uint32_t * n))   \
    X(int32_t, GetDeviceInfo, (opencl_id id, uint32_t what, size_t room, void *to, size_t *size)) \
    X(opencl_context, CreateContext,                                                              \
      (const intptr_t *properties, uint32_t n, const opencl_id *ids, void (*told)(void),          \
       void *user, int32_t *error))                                                               \
    X(int32_t, ReleaseContext, (opencl_context context))                                          \
    X(opencl_queue, CreateCommandQueue,                                                           \
      (opencl_context context, opencl_id id, uint64_t properties, int32_t * error))               \
    X(int32_t, ReleaseCommandQueue, (opencl_queue queue))                                         \
    X(opencl_memory, CreateBuffer,                                                                \
      (opencl_context context, uint64_t flags, size_t size, void *host, int32_t *error))          \
    X(int32_t, ReleaseMemObject, (opencl_memory memory))                                          \
    X(opencl_code, CreateProgramWithSource,                                                       \
      (opencl_context context, uint32_t n, const char **texts, const size_t *sizes,               \
       int32_t *error))                                                                           \
    X(int32_t, BuildProgram,                                                                      \
      (opencl_code code, uint32_t n, const opencl_id *ids, const char *options,                   \
       void (*told)(void), void *user))                                                           \
    X(int32_t, GetProgramBuildInfo,                                                               \
      (opencl_code code, opencl_id id, uint32_t what, size_t room, void *to, size_t *size))       \
    X(int32_t, ReleaseProgram, (opencl_code code))                                                \
    X(opencl_kernel, CreateKernel, (opencl_code code, const char *name, int32_t *error))          \
    X(int32_t, GetKernelWorkGroupInfo,                                                            \
      (opencl_kernel kernel, opencl_id id, uint32_t what, size_t room, void *to, size_t *size))   \
    X(int32_t, SetKernelArg,                                                                      \
      (opencl_kernel kernel, uint32_t index, size_t size, const void *value))                     \
    X(int32_t, ReleaseKernel, (opencl_kernel kernel))                                             \
    X(int32_t, EnqueueNDRangeKernel,                                                              \
      (opencl_queue queue, opencl_kernel kernel, uint32_t dimensions, const size_t *offset,       \
       const size_t *global, const size_t *local, uint32_t n, const opencl_event *before,         \
       opencl_event *event))                                                                      \
    X(int32_t, EnqueueWriteBuffer,                                                                \
      (opencl_queue queue, opencl_memory to, uint32_t blocking, size_t offset, size_t size,       \
       const void *from, uint32_t n, const opencl_event *before, opencl_event *event))            \
    X(int32_t, EnqueueReadBuffer,                                                                 \
      (opencl_queue queue, opencl_memory from, uint32_t blocking, size_t offset, size_t size,     \
       void *to, uint32_t n, const opencl_event *before, opencl_event *event))                    \
    X(int32_t, EnqueueCopyBuffer,                                                                 \
      (opencl_queue queue, opencl_memory from, opencl_memory to, size_t from_offset,              \
       size_t to_offset, size_t size, uint32_t n, const opencl_event *before,                     \
       opencl_event *event))                                                                      \
    X(int32_t, EnqueueFillBuffer,                                                                 \
      (opencl_queue queue, opencl_memory to, const void *pattern, size_t pattern_size,            \
       size_t offset, size_t size, uint32_t n, const opencl_event *before, opencl_event *event))  \
    X(int32_t, EnqueueMarkerWithWaitList,                                                         \
      (opencl_queue queue, uint32_t n, const opencl_event *before, opencl_event *event))          \
    X(int32_t, Flush, (opencl_queue queue))                                                       \
    X(int32_t, Finish, (opencl_queue queue))                                                      \
    X(int32_t, WaitForEvents, (uint32_t n, const opencl_event *events))                           \
    X(int32_t, GetEventInfo,                                                                      \
      (opencl_event event, uint32_t what, size_t room, void *to, size_t *size))                   \
    X(int32_t, GetEventProfilingInfo,                                                             \
      (opencl_event event, uint32_t what, size_t room, void *to, size_t *size))                   \
    X(int32_t, ReleaseEvent, (opencl_event event))

typedef struct opencl_functions {
#define X(result, name, parameters) result(*name) parameters;
    OPENCL_FUNCTIONS(X)
#undef X
} opencl_functions;

/* ---- things ---------------------------------------------------------------------------------- */

enum {
    OPENCL_TICKETS = 64,     /* submits in flight */
    OPENCL_WINDOW = 64 << 10 /* bytes of parameters that one constant buffer holds at most */
};

typedef struct opencl_buffer {
    device_buffer_item head;
    opencl_memory handle;
} opencl_buffer;

typedef struct opencl_program {
    device_program_item head;
    driver_job *job; /* owned; NULL once its result was taken */
    opencl_code code;
    opencl_kernel kernel; /* owned; NULL until a status call or a submit found the job ready */
    uint64_t bound;       /* number of the bindings whose arguments are set; 0: none */
} opencl_program;

typedef struct opencl_bindings {
    device_bindings_item head;
    uint64_t number; /* of all that were made: never the same twice */
} opencl_bindings;

/* Parameters of one submit: on the host until the device has them, and in windows on the device. */
typedef struct opencl_params {
    device_ticket until;
    unsigned char *host; // [n_window * OPENCL_WINDOW], owned
    size_t host_bytes;
    base_vec(opencl_memory) windows; /* of d->window bytes each */
} opencl_params;

typedef struct opencl {
    device head;
    opencl_functions f;
    opencl_id id;
    opencl_context context;
    opencl_queue queue;
    bool lost;
    char options[64]; /* of the compiler */
    uint32_t window;  /* bytes */
    driver_compiler compiler;
    driver_readbacks readbacks;
    uint64_t n_bindings; /* made so far */

    driver_stages stages;
    opencl_event marks[DRIVER_STAGE_COUNT];
    opencl_params params[OPENCL_TICKETS]; /* the first that is free is taken */
    opencl_event tickets[OPENCL_TICKETS]; /* of ticket t at t % OPENCL_TICKETS; NULL: known done */
    device_ticket done, issued;
} opencl;

/* ---- library.c */
beryl_status opencl_library_open(opencl_functions *f, beryl_error *error);

/* ---- opencl.c */
beryl_status opencl_lost(const opencl *d, beryl_error *error); /* OK: not lost */
/* A code of OpenCL as a status; `what` begins the message. 0 is OK. */
beryl_status opencl_check(opencl *d, int32_t code, const char *what, beryl_error *error);

/* ---- memory.c */
beryl_status opencl_buffer_make(device *head, device_buffer_item *item, const char *label,
                                beryl_error *error);
void opencl_buffer_drop(device *head, device_buffer_item *item);
uint64_t opencl_handle(const device_buffer_item *item); /* its cl_mem */
beryl_status opencl_write(device *head, device_buffer_item *item, uint64_t offset, const void *data,
                          size_t size, beryl_error *error);
beryl_status opencl_stage_copy(device *head, device_buffer_item *item, uint64_t offset,
                               const void *from, size_t size, beryl_error *error);
beryl_status opencl_stage_mark(device *head, uint32_t stage, beryl_error *error);
beryl_status opencl_stage_passed(device *head, uint32_t stage, bool wait, beryl_error *error);
size_t opencl_stage_max(const device *head);
beryl_status opencl_stage_take(device *head, size_t size, void **memory, beryl_error *error);
beryl_status opencl_stage_commit(device *head, device_buffer_item *item, uint64_t offset,
                                 size_t size, beryl_error *error);
beryl_status opencl_bindings_make(device *head, device_bindings_item *item, beryl_error *error);
void opencl_bindings_drop(device *head, device_bindings_item *item);
/* The parameters of the submit `ticket` on their way into the windows of a free slot. */
beryl_status opencl_params_write(opencl *d, const device_submit_desc *desc, device_ticket ticket,
                                 opencl_params **out, beryl_error *error);
void *opencl_host_take(device *head, size_t size, beryl_error *error);
void opencl_host_give(device *head, void *memory, size_t size);
void opencl_memory_fini(opencl *d);

/* ---- submit.c */
bool opencl_compile(void *user, driver_job *job);
void opencl_discard(void *user, driver_job *job);
beryl_status opencl_program_make(device *head, device_program_item *item,
                                 const device_program_desc *desc, beryl_error *error);
beryl_status opencl_program_status(device *head, device_program_item *item, beryl_error *error);
void opencl_program_drop(device *head, device_program_item *item);
beryl_status opencl_submit(device *head, const device_submit_desc *desc, device_ticket ticket,
                           beryl_error *error);
beryl_status opencl_poll(device *head, device_ticket *done, beryl_error *error);
beryl_status opencl_wait(device *head, device_ticket ticket, beryl_error *error);
beryl_status opencl_fetched(device *head, device_ticket ticket, uint32_t n, const void **data,
                            size_t *size, beryl_error *error);
void opencl_fetch_drop(device *head, device_ticket ticket);
beryl_status opencl_stamps(device *head, device_ticket ticket, uint64_t *ns, uint32_t *n_stamp,
                           beryl_error *error);
void opencl_drain(device *head);

#endif
