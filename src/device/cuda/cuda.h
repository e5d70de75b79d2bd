/* cuda.h - what the files of the CUDA backend share, and HIP, whose interface mirrors CUDA's call
 * by call: one implementation over a table of entry points.
 *
 * library.c opens a driver and its compiler and fills the tables; cuda.c has CUDA's names and facts
 * and opens and closes devices of both; memory.c buffers, staging and readback; program.c
 * compiling; submit.c command lists and waiting; graph.c replays runs of dispatches as graphs.
 * src/device/hip/ holds HIP's names and facts. The one idea: one stream, in order; what is dropped
 * while the device may still use it waits in a list until the stream has passed it, so that no drop
 * blocks.
 */
#ifndef DEVICE_CUDA_CUDA_H
#define DEVICE_CUDA_CUDA_H

#include "device/device.h"
#include "device/driver/compile.h"
#include "device/driver/readback.h"
#include "device/driver/stage.h"

#include <stdatomic.h>

/* ---- entry points ---------------------------------------------------------------------------- */

typedef struct cuda_stream_ *cuda_stream;
typedef struct cuda_event_ *cuda_event;
typedef struct cuda_module_ *cuda_module;
typedef struct cuda_function_ *cuda_function;
typedef struct cuda_graph_ *cuda_graph;
typedef struct cuda_node_ *cuda_node;
typedef struct cuda_exec_ *cuda_exec;
typedef uint64_t cuda_address;

/* Field, name in CUDA, name in HIP, parameters. All give an int, 0 for success, and the two
 * interfaces have the same numbers for what matters here. A name may have an older one behind '|'
 * and "" where the interface has no such call; '?' before it: not needed. */
#define CUDA_FUNCTIONS(X)                                                                          \
    X(init, "cuInit", "hipInit", (unsigned flags))                                                 \
    X(driver_version, "cuDriverGetVersion", "hipDriverGetVersion", (int *version))                 \
    X(count, "cuDeviceGetCount", "hipGetDeviceCount", (int *n))                                    \
    X(device, "cuDeviceGet", "hipDeviceGet", (int *id, int ordinal))                               \
    X(name, "cuDeviceGetName", "hipDeviceGetName", (char *to, int room, int id))                   \
    X(total, "cuDeviceTotalMem_v2", "hipDeviceTotalMem", (size_t * bytes, int id))                 \
    X(attribute, "cuDeviceGetAttribute", "hipDeviceGetAttribute", (int *value, int what, int id))  \
    X(error_text, "cuGetErrorString", "?hipDrvGetErrorString", (int code, const char **text))      \
    X(context_make, "cuCtxCreate_v2", "", (void **context, unsigned flags, int id))                \
    X(context_drop, "cuCtxDestroy_v2", "", (void *context))                                        \
    X(context_set, "cuCtxSetCurrent", "", (void *context))                                         \
    X(context_get, "cuCtxGetCurrent", "", (void **context))                                        \
    X(device_set, "", "hipSetDevice", (int id))                                                    \
    X(device_get, "", "hipGetDevice", (int *id))                                                   \
    X(properties, "", "hipGetDevicePropertiesR0600|hipGetDeviceProperties", (void *to, int id))    \
    X(memory_take, "cuMemAlloc_v2", "hipMalloc", (cuda_address * at, size_t size))                 \
    X(memory_give, "cuMemFree_v2", "hipFree", (cuda_address at))                                   \
    X(host_take, "cuMemHostAlloc", "hipHostMalloc", (void **at, size_t size, unsigned flags))      \
    X(host_give, "cuMemFreeHost", "hipHostFree", (void *at))                                       \
    X(to_device, "cuMemcpyHtoDAsync_v2", "hipMemcpyHtoDAsync",                                     \
      (cuda_address to, const void *from, size_t size, cuda_stream stream))                        \
    X(to_host, "cuMemcpyDtoHAsync_v2", "hipMemcpyDtoHAsync",                                       \
      (void *to, cuda_address from, size_t size, cuda_stream stream))                              \
    X(copy, "cuMemcpyDtoDAsync_v2", "hipMemcpyDtoDAsync",                                          \
      (cuda_address to, cuda_address from, size_t size, cuda_stream stream))                       \
    X(fill, "cuMemsetD32Async", "hipMemsetD32Async",                                               \
      (cuda_address to, unsigned value, size_t words, cuda_stream stream))                         \
    X(stream_make, "cuStreamCreate", "hipStreamCreateWithFlags",                                   \
      (cuda_stream * stream, unsigned flags))                                                      \
    X(stream_drop, "cuStreamDestroy_v2", "hipStreamDestroy", (cuda_stream stream))                 \
    X(stream_wait, "cuStreamSynchronize", "hipStreamSynchronize", (cuda_stream stream))            \
    X(event_make, "cuEventCreate", "hipEventCreateWithFlags",                                      \
      (cuda_event * event, unsigned flags))                                                        \
    X(event_drop, "cuEventDestroy_v2", "hipEventDestroy", (cuda_event event))                      \
    X(event_record, "cuEventRecord", "hipEventRecord", (cuda_event event, cuda_stream stream))     \
    X(event_query, "cuEventQuery", "hipEventQuery", (cuda_event event))                            \
    X(event_wait, "cuEventSynchronize", "hipEventSynchronize", (cuda_event event))                 \
    X(event_elapsed, "cuEventElapsedTime_v2|cuEventElapsedTime", "hipEventElapsedTime",            \
      (float *milliseconds, cuda_event from, cuda_event to))                                       \
    X(module_load, "cuModuleLoadData", "hipModuleLoadData",                                        \
      (cuda_module * module, const void *image))                                                   \
    X(module_drop, "cuModuleUnload", "hipModuleUnload", (cuda_module module))                      \
    X(module_function, "cuModuleGetFunction", "hipModuleGetFunction",                              \
      (cuda_function * function, cuda_module module, const char *name))                            \
    X(function_attribute, "cuFuncGetAttribute", "hipFuncGetAttribute",                             \
      (int *value, int what, cuda_function function))                                              \
    X(function_allow, "?cuFuncSetAttribute", "?hipFuncSetAttribute",                               \
      (cuda_function function, int what, int value))                                               \
    X(launch, "cuLaunchKernel", "hipModuleLaunchKernel",                                           \
      (cuda_function function, unsigned groups_x, unsigned groups_y, unsigned groups_z,            \
       unsigned size_x, unsigned size_y, unsigned size_z, unsigned bytes, cuda_stream stream,      \
       void **arguments, void **extra))                                                            \
    X(graph_make, "?cuGraphCreate", "?hipGraphCreate", (cuda_graph * graph, unsigned flags))       \
    X(graph_drop, "?cuGraphDestroy", "?hipGraphDestroy", (cuda_graph graph))                       \
    X(graph_add, "?cuGraphAddKernelNode", "?hipGraphAddKernelNode",                                \
      (cuda_node * node, cuda_graph graph, const cuda_node *before, size_t n,                      \
       const void *parameters))                                                                    \
    X(graph_edge, "?cuGraphAddDependencies_v2", "?",                                               \
      (cuda_graph graph, const cuda_node *from, const cuda_node *to, const void *edges, size_t n)) \
    X(exec_make, "?cuGraphInstantiateWithFlags", "?hipGraphInstantiateWithFlags",                  \
      (cuda_exec * exec, cuda_graph graph, unsigned long long flags))                              \
    X(exec_set, "?cuGraphExecKernelNodeSetParams", "?hipGraphExecKernelNodeSetParams",             \
      (cuda_exec exec, cuda_node node, const void *parameters))                                    \
    X(exec_launch, "?cuGraphLaunch", "?hipGraphLaunch", (cuda_exec exec, cuda_stream stream))      \
    X(exec_drop, "?cuGraphExecDestroy", "?hipGraphExecDestroy", (cuda_exec exec))

typedef struct cuda_text_ *cuda_text; /* of the compiler */

#define CUDA_COMPILER_FUNCTIONS(X)                                                          \
    X(version, "nvrtcVersion", "hiprtcVersion", (int *major, int *minor))                   \
    X(make, "nvrtcCreateProgram", "hiprtcCreateProgram",                                    \
      (cuda_text * text, const char *source, const char *name, int n, const char **headers, \
       const char **names))                                                                 \
    X(drop, "nvrtcDestroyProgram", "hiprtcDestroyProgram", (cuda_text * text))              \
    X(compile, "nvrtcCompileProgram", "hiprtcCompileProgram",                               \
      (cuda_text text, int n, const char **options))                                        \
    X(log_size, "nvrtcGetProgramLogSize", "hiprtcGetProgramLogSize",                        \
      (cuda_text text, size_t * size))                                                      \
    X(log, "nvrtcGetProgramLog", "hiprtcGetProgramLog", (cuda_text text, char *to))         \
    X(code_size, "nvrtcGetCUBINSize", "hiprtcGetCodeSize", (cuda_text text, size_t * size)) \
    X(code, "nvrtcGetCUBIN", "hiprtcGetCode", (cuda_text text, char *to))                   \
    X(ptx_size, "nvrtcGetPTXSize", "", (cuda_text text, size_t * size))                     \
    X(ptx, "nvrtcGetPTX", "", (cuda_text text, char *to))                                   \
    X(n_chip, "?nvrtcGetNumSupportedArchs", "", (int *n))                                   \
    X(chips, "?nvrtcGetSupportedArchs", "", (int *chips))

typedef struct cuda_functions {
#define X(field, cuda_name, hip_name, parameters) int(*field) parameters;
    CUDA_FUNCTIONS(X)
#undef X
} cuda_functions;

typedef struct cuda_compiler_functions {
#define X(field, cuda_name, hip_name, parameters) int(*field) parameters;
    CUDA_COMPILER_FUNCTIONS(X)
#undef X
} cuda_compiler_functions;

enum {
    CUDA_NO_MEMORY = 2,
    CUDA_NOT_READY = 600,
    CUDA_HOST_PORTABLE = 1,
    CUDA_STREAM_NON_BLOCKING = 1,
    CUDA_EVENT_BLOCKING = 1,
    CUDA_EVENT_NO_TIMING = 2,
    CUDA_FUNCTION_GROUP_SIZE = 0,
    CUDA_FUNCTION_LAUNCH_BYTES = 8
};

typedef enum cuda_attribute {
    CUDA_GROUP_SIZE,
    CUDA_SIZE_X,
    CUDA_SIZE_Y,
    CUDA_SIZE_Z,
    CUDA_SHARED_BYTES,     /* without asking; */
    CUDA_SHARED_BYTES_MAX, /* if the launch asks for them */
    CUDA_WARP,
    CUDA_UNITS,
    CUDA_INTEGRATED,
    CUDA_MAJOR,
    CUDA_MINOR,
    CUDA_ATTRIBUTE_COUNT
} cuda_attribute;

/* ---- one of the two interfaces --------------------------------------------------------------- */

enum { CUDA_OPTION_MAX = 8 };

typedef struct cuda_driver cuda_driver;

/* A kernel as a graph's node has it. */
typedef struct cuda_launch {
    cuda_function function;
    uint32_t groups[3], size[3], bytes;
    void **arguments;
} cuda_launch;

typedef struct cuda_flavour {
    const device_backend *backend;
    const char *title;                               /* "CUDA" */
    const char *driver_variable, *compiler_variable; /* environment: a file to open instead */
    const char *driver_title, *compiler_title;       /* for messages */
    const char *const *driver_files;                 /* NULL at the end */
    const char *const *compiler_files;               /* the same */
    const char *const *compiler_folders;             /* looked into where the loader has none */
    const char *const *function_names;               /* as CUDA_FUNCTIONS */
    const char *const *compiler_names;               /* as CUDA_COMPILER_FUNCTIONS */
    const int *attributes;                           // [CUDA_ATTRIBUTE_COUNT]
    /* Fills caps and chip (what the compiler calls it) of device `id`; why it is of no use, or
     * NULL. */
    const char *(*facts)(const cuda_driver *driver, int id, device_caps *caps, char chip[64]);
    /* What the compiler is asked for; texts lie in `room` or are constant. */
    uint32_t (*options)(const cuda_driver *driver, const char *chip, char room[512],
                        const char *options[CUDA_OPTION_MAX], bool *ptx);
    /* The interface's own struct for a graph's node; at most 128 bytes. */
    void (*node)(const cuda_launch *launch, void *to);
} cuda_flavour;

typedef struct cuda_found {
    int id;
    device_caps caps;
    char chip[64];
    const char *why_not; /* constant, or NULL */
} cuda_found;

struct cuda_driver {
    base_heap *heap;      /* borrowed */
    const beryl_log *log; /* borrowed */
    const cuda_flavour *flavour;
    cuda_functions f;
    cuda_compiler_functions c;
    bool has_compiler;
    char no_compiler[200]; /* why not */
    int version, compiler_major, compiler_minor;
    base_vec(cuda_found) devices;
};

/* ---- things ---------------------------------------------------------------------------------- */

enum { CUDA_TICKETS = 64, CUDA_GRAPHS = 8, CUDA_GRAPH_MIN = 8 };

typedef struct cuda_buffer {
    device_buffer_item head;
    cuda_address at;
} cuda_buffer;

typedef struct cuda_program {
    device_program_item head;
    bool waits;      /* its text itself waits for earlier dispatches: it may begin while they run */
    driver_job *job; /* owned; NULL once its result was taken */
    cuda_module module;
    cuda_function function; /* NULL until a status call or a submit found the job ready */
    uint32_t launch_bytes;
} cuda_program;

typedef struct cuda_bindings {
    device_bindings_item head;
    cuda_address at[DEVICE_BINDING_MAX];
} cuda_bindings;

/* Dropped, but maybe used by what is on its way. */
typedef struct cuda_garbage {
    device_ticket until;
    cuda_address memory; /* or 0 */
    cuda_module module;  /* or NULL */
} cuda_garbage;

/* A dispatch as its node in a graph was last told. */
typedef struct cuda_step {
    const cuda_program *program; /* borrowed; a dropped one takes its graphs along */
    cuda_node node;
    uint32_t groups[3];
    cuda_address at[DEVICE_BINDING_MAX];
    uint32_t params[DEVICE_PARAM_MAX / 4];
} cuda_step;

typedef struct cuda_replay {
    uint64_t shape;   /* hash of the run's programs; 0: free */
    uint64_t used;    /* when, counted in runs */
    uint32_t seen;    /* times that this shape came by */
    cuda_exec exec;   /* NULL until it came by often enough */
    cuda_graph graph; /* what it was made of */
    cuda_step *steps; // [n_step], owned
    uint32_t n_step;
} cuda_replay;

typedef struct cuda {
    device head;
    const cuda_flavour *flavour;
    cuda_functions f;
    cuda_compiler_functions c;
    int id;
    void *context; /* CUDA's own; HIP has one a device and process */
    cuda_stream stream;
    _Atomic bool lost;
    char chip[64], options_room[512];
    const char *options[CUDA_OPTION_MAX];
    uint32_t n_option;
    bool ptx; /* the compiler does not know the chip: the driver translates */
    int versions[3];

    driver_compiler compiler;
    driver_readbacks readbacks;
    driver_stages stages;
    cuda_event marks[DRIVER_STAGE_COUNT];
    base_vec(cuda_garbage) garbage;
    bool loose; /* fills or uploads are on their way that no ticket stands behind yet */

    cuda_event tickets[CUDA_TICKETS]; /* of ticket t at t % CUDA_TICKETS; made when first needed */
    device_ticket done, issued;

    cuda_replay replays[CUDA_GRAPHS];
    uint64_t n_run;
    bool early;     /* dispatches of a graph may begin before the one before has ended */
    bool no_graphs; /* the driver has none, or one failed: plain launches from then on */
} cuda;

/* ---- library.c */
/* Functions of the driver; NULL where it is not there. The compiler is looked for too. */
beryl_status cuda_library_open(cuda_driver *driver, beryl_error *error);
/* The compiler alone, not newer than driver->version: driver->c, or why there is none.
 * named_driver: that an environment variable names, which may hold it; or NULL. */
void cuda_compiler_find(cuda_driver *driver, void *named_driver);

/* ---- cuda.c: both interfaces' */
extern const cuda_flavour cuda_nvidia;
void *cuda_start(const cuda_flavour *flavour, base_heap *heap, const beryl_log *log,
                 beryl_error *error);
void cuda_stop(void *user);
uint32_t cuda_count(void *user);
void cuda_describe(void *user, uint32_t index, device_caps *caps, const char **why_not);
beryl_status cuda_open(void *user, const device_caps *caps, const device_mask *mask, device **out,
                       beryl_error *error);
void cuda_close(device *head);
int cuda_fact(const cuda_driver *driver, int id, cuda_attribute what);
beryl_status cuda_lost(const cuda *d, beryl_error *error); /* OK: not lost */
/* Makes the device the one of this thread: a worker's; else between enter and leave. */
void cuda_use(const cuda *d);
void *cuda_enter(device *head);
void cuda_leave(device *head, void *own);
/* A code as a status; `what` begins the message. 0 is OK. Any thread. */
beryl_status cuda_check(cuda *d, int code, const char *what, beryl_error *error);

/* ---- memory.c */
uint64_t cuda_handle(const device_buffer_item *item); /* its address */
beryl_status cuda_buffer_make(device *head, device_buffer_item *item, const char *label,
                              beryl_error *error);
void cuda_buffer_drop(device *head, device_buffer_item *item);
beryl_status cuda_write(device *head, device_buffer_item *item, uint64_t offset, const void *data,
                        size_t size, beryl_error *error);
size_t cuda_stage_max(const device *head);
beryl_status cuda_stage_take(device *head, size_t size, void **memory, beryl_error *error);
beryl_status cuda_stage_commit(device *head, device_buffer_item *item, uint64_t offset, size_t size,
                               beryl_error *error);
beryl_status cuda_bindings_make(device *head, device_bindings_item *item, beryl_error *error);
void cuda_bindings_drop(device *head, device_bindings_item *item);
void cuda_memory_init(cuda *d);
void cuda_memory_fini(cuda *d);
/* Gives back what nothing uses any more; all: the device is idle. */
void cuda_garbage_collect(cuda *d, bool all);
void cuda_garbage_add(cuda *d, cuda_address memory, cuda_module module);

/* ---- program.c */
bool cuda_compile(void *user, driver_job *job);
void cuda_discard(void *user, driver_job *job);
beryl_status cuda_program_make(device *head, device_program_item *item,
                               const device_program_desc *desc, beryl_error *error);
beryl_status cuda_program_status(device *head, device_program_item *item, beryl_error *error);
void cuda_program_drop(device *head, device_program_item *item);

/* ---- submit.c */
beryl_status cuda_submit(device *head, const device_submit_desc *desc, device_ticket ticket,
                         beryl_error *error);
beryl_status cuda_poll(device *head, device_ticket *done, beryl_error *error);
beryl_status cuda_wait(device *head, device_ticket ticket, beryl_error *error);
beryl_status cuda_fetched(device *head, device_ticket ticket, uint32_t n, const void **data,
                          size_t *size, beryl_error *error);
void cuda_fetch_drop(device *head, device_ticket ticket);
beryl_status cuda_stamps(device *head, device_ticket ticket, uint64_t *ns, uint32_t *n_stamp,
                         beryl_error *error);
void cuda_drain(device *head);
/* One plain launch. */
int cuda_dispatch(cuda *d, const device_command *c, const void *params);

/* ---- graph.c */
/* Runs `n` dispatches as a graph where this shape of run has come by before. False: they are to be
 * launched one by one. */
bool cuda_graph_run(cuda *d, const device_command *commands, size_t n, const void *params,
                    int *code);
void cuda_graphs_forget(cuda *d, const cuda_program *program); /* NULL: all */

/* The backend of a flavour: `start`, of the file's own, is all that differs. */
#define CUDA_BACKEND(title, language)                                                            \
    {                                                                                            \
        .name = title, .languages = DEVICE_LANGUAGE_BIT(language),                               \
        .buffer_bytes = sizeof(cuda_buffer), .program_bytes = sizeof(cuda_program),              \
        .bindings_bytes = sizeof(cuda_bindings), .start = start, .stop = cuda_stop,              \
        .count = cuda_count, .describe = cuda_describe, .open = cuda_open, .close = cuda_close,  \
        .enter = cuda_enter, .leave = cuda_leave, .drain = cuda_drain,                           \
        .buffer_make = cuda_buffer_make, .buffer_drop = cuda_buffer_drop, .handle = cuda_handle, \
        .write = cuda_write, .stage_max = cuda_stage_max, .stage = cuda_stage_take,              \
        .stage_commit = cuda_stage_commit, .program_make = cuda_program_make,                    \
        .program_status = cuda_program_status, .program_drop = cuda_program_drop,                \
        .bindings_make = cuda_bindings_make, .bindings_drop = cuda_bindings_drop,                \
        .submit = cuda_submit, .poll = cuda_poll, .wait = cuda_wait, .fetched = cuda_fetched,    \
        .fetch_drop = cuda_fetch_drop, .stamps = cuda_stamps,                                    \
    }

#endif
