/* compile.h - programs compiled on worker threads, for every backend whose driver takes text.
 *
 * A job is one text on its way to a backend's own result. It outlives its program when that is
 * dropped in the middle of a compile: nothing waits for a compiler but closing the device. What a
 * backend adds is one function that compiles (on any thread) and one that gives a result back.
 */
#ifndef DEVICE_DRIVER_COMPILE_H
#define DEVICE_DRIVER_COMPILE_H

#include "device/device.h"
#include "base/thread.h"
#include "device/driver/cache.h"

enum { DRIVER_WORKER_MAX = 16, DRIVER_WARNING_MAX = 8 };

typedef enum driver_job_state {
    DRIVER_WAITING,
    DRIVER_COMPILING,
    DRIVER_READY,
    DRIVER_FAILED
} driver_job_state;

typedef struct driver_job {
    struct driver_job *next; /* in the queue */
    driver_job_state state;  /* guarded by the compiler's lock */
    bool orphan;             /* the program is gone: whoever ends the compile frees it */
    char *source;            // [source_size + 1], NUL-terminated; owned
    size_t source_size;
    char *entry; // [entry_size + 1], NUL-terminated; owned
    size_t entry_size;
    char label[48];
    uint32_t n_binding, param_bytes, workgroup[3], launch_bytes;
    bool no_cache;     /* as the device was when the job was made */
    void *result[2];   /* the backend's; set when ready */
    beryl_error error; /* set when failed */
    char *told;        // [told_size], all that the compiler said, for the log; owned
    size_t told_size;
} driver_job;

typedef struct driver_worker {
    struct driver_compiler *compiler; /* borrowed */
    base_thread *thread;              /* owned */
} driver_worker;

/* What a thread makes through the cache, until it is kept. */
typedef struct driver_making {
    driver_cache_key key;
    bool used;
} driver_making;

typedef struct driver_compiler {
    base_heap *heap;      /* borrowed */
    const beryl_log *log; /* borrowed; called on the owner's thread alone */
    void *user;
    /* On any thread. False: job->error is set (driver_compile_fail). */
    bool (*compile)(void *user, driver_job *job);
    void (*discard)(void *user, driver_job *job); /* gives job->result back, if any */
    uint32_t n_max;                               /* workers; 0: processors less one */
    const char *cache_folder, *backend;           /* of driver_compile_kept; borrowed */
    /* owned; guards jobs, the queue and what follows */
    base_lock *lock;
    driver_worker workers[DRIVER_WORKER_MAX];
    uint32_t n_worker;
    driver_job *first, *last;                    /* jobs that wait */
    driver_making making[DRIVER_WORKER_MAX + 1]; /* of the workers and the owner */
    driver_cache cache;                          /* opened by the first job that has one */
    bool impatient;                              /* other processes are no longer waited for */
    beryl_error warnings[DRIVER_WARNING_MAX];    /* of workers */
    uint32_t n_warning, n_told;                  /* those there are, and those in the log */
    bool closing;
} driver_compiler;

/* The fields down to `backend` are the caller's. False: no memory. */
bool driver_compiler_init(driver_compiler *compiler);
void driver_compiler_stop(driver_compiler *compiler); /* waits for the workers; none starts again */
void driver_compiler_fini(driver_compiler *compiler); /* stops; fine on a zeroed one */

/* Copies the text and starts. The entry's name is "main" where the description has none. */
beryl_status driver_job_make(driver_compiler *compiler, const device_program_item *item,
                             const device_program_desc *desc, bool no_cache, driver_job **out,
                             beryl_error *error);
/* PENDING, OK (take job->result, then drop the job) or the error. */
beryl_status driver_job_status(driver_compiler *compiler, driver_job *job, beryl_error *error);
void driver_job_drop(driver_compiler *compiler, driver_job *job); /* NULL is fine */

/* On any thread: for the log, once; driver_job_status of a job that is done writes it. */
void driver_compiler_warn(driver_compiler *compiler, const beryl_error *why);

/* How a backend comes to a program, on any thread. */
typedef struct driver_maker {
    /* Compiles: [*size] bytes and a NUL of the heap. False: job->error is set. */
    bool (*make)(void *user, driver_job *job, void **code, size_t *size);
    /* Sets job->result. */
    bool (*load)(void *user, driver_job *job, const driver_cache_key *key, const void *code,
                 size_t size, beryl_error *error);
} driver_maker;

/* A job through the cache: loads what is kept there under `key`, else makes, loads and keeps it. Of
 * several processes and threads that want the same, one makes it and the others wait, a minute at
 * most. False: job->error is set. */
bool driver_compile_kept(driver_compiler *compiler, driver_job *job, const driver_cache_key *key,
                         const driver_maker *maker);

/* Makes job->error out of what a compiler said: its first error in one line, "LABEL:LINE: ...",
 * with the place in the text as `at`. Knows gcc's and clang's form and NVIDIA's. Always false. */
bool driver_compile_fail(const driver_compiler *compiler, driver_job *job, const char *told,
                         size_t told_size);

#endif
