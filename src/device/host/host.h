/* host.h - what the files of the host backend share: this machine's processor as a device.
 *
 * host.c owns facts, opening and closing, buffers, stages and results; compile.c the compiler and
 * programs; work.c where compilers work and how code is loaded; run.c lists of commands, writes,
 * and the threads that run them.
 *
 * Two kinds of numbers: a ticket counts submits, as everywhere; a serial counts the lists that the
 * threads run: the submits and, between them, uploads that grew too large to wait for one.
 */
#ifndef DEVICE_HOST_HOST_H
#define DEVICE_HOST_HOST_H

#include "device/device.h"
#include "device/driver/compile.h"
#include "device/driver/readback.h"
#include "base/thread.h"

#include <stdatomic.h>
#include <sys/types.h>

enum {
    HOST_THREAD_MAX = 256,
    HOST_STAGE_BYTES = 16 << 20,
    HOST_PLACE_MAX = 4,                       /* folders that compilers may work in */
    HOST_COMPILE_MAX = DRIVER_WORKER_MAX + 1, /* where no thread is to be had, the owner compiles */
    HOST_ALIGN = 64
};

typedef void (*host_entry)(void *const *buffers, const uint32_t *params, const uint32_t groups[3],
                           uint32_t first, uint32_t count, void *scratch);

/* ---- compiling */

typedef struct host_compiler {
    char path[512];
    uint64_t identity; /* of the compiler, its options and this processor */
} host_compiler;

/* A folder of this device alone, which nobody else can read or write, in one of the places where
 * there may be room: $TMPDIR, /tmp, /var/tmp, memory. */
typedef struct host_work {
    bool open;
    int folder; /* locked while it is in use */
    char path[512];
} host_work;

/* What a compile ends in: a loaded library and its function. */
typedef struct host_code {
    void *handle; /* of dlopen, owned */
    host_entry fn;
    uint32_t scratch; /* bytes of one thread */
} host_code;

typedef struct host_program {
    device_program_item head;
    driver_job *job; /* owned; NULL once `code` is set */
    host_code code;
    double group_ns; /* how long a workgroup took lately; 0: not known */
} host_program;

/* ---- running */

typedef struct host_buffer {
    device_buffer_item head;
    unsigned char *data; // [room], pages of its own; owned
    size_t room;
    uint64_t last; /* serial of the last list that touches it */
    bool waiting;  /* the list being made has writes to it */
} host_buffer;

/* Something dropped while a list may still use it: given back once that list is done. */
typedef struct host_grave {
    uint64_t serial;
    void *memory, *handle; /* pages, or of dlopen */
    size_t room;
} host_grave;

typedef enum host_kind { HOST_RUN, HOST_COPY, HOST_FILL, HOST_STAMP } host_kind;

/* A command is `total` tasks, workgroups or pieces of bytes; threads take `piece` at a time. */
typedef struct host_command {
    host_kind kind;
    uint32_t total, piece;
    _Atomic uint32_t next;
    _Atomic uint64_t spent; /* nanoseconds of all threads; of a dispatch */
    union {
        struct {
            host_entry fn;
            device_program program;
            size_t pointer, param; /* into the list's pointers and params */
            uint32_t groups[3];
            /* bytes of one thread; bindings that are watched (bounds.h) */
            uint32_t scratch, n_bound;
        } run;
        struct {
            const unsigned char *from;
            unsigned char *to;
            uint64_t size;
        } copy; /* fill: from is not used */
        uint64_t *stamp;
    };
} host_command;

/* Commands [first, end) touch nothing in common that one of them writes: they run side by side. */
typedef struct host_wave {
    size_t first, end;
    _Atomic uint64_t left; /* tasks that are not done */
} host_wave;

typedef struct host_list {
    struct host_list *next; /* in the queue, or of the free ones */
    uint64_t serial;
    device_ticket ticket; /* 0: an upload between submits */
    uint32_t users;       /* threads inside; guarded by the device's lock */
    bool done;            /* the same */
    base_vec(host_command) commands;
    base_vec(host_wave) waves;
    base_vec(void *) pointers;
    base_vec(uint32_t) params;
    base_vec(struct host_write {
        host_buffer *to;
        uint64_t offset;
        size_t at, size;
    }) writes;
    base_vec(unsigned char) bytes; /* what is to be written */
    unsigned char *scratch;        /* borrowed: [n_thread, scratch_stride] */
    size_t scratch_stride;
} host_list;

typedef struct host_worker {
    struct host *device; /* borrowed */
    base_thread *thread; /* owned */
    uint32_t index;
    uint32_t wave_spin, list_spin; /* how often to look before sleeping, as it paid lately */
} host_worker;

typedef struct host {
    device head;
    host_compiler cc;
    driver_compiler compiler;

    base_lock *compile_lock;      /* guards what follows, up to the next lock */
    pid_t pids[HOST_COMPILE_MAX]; /* of the compilers that run; 0: free */
    bool no_compile;              /* closing */
    uint64_t n_file;              /* compiles so far, for names */
    host_work works[HOST_PLACE_MAX];
    uint32_t place;  /* of `works`, the one that has room; HOST_PLACE_MAX: none has */
    int place_error; /* errno of the last one that had not */

    base_lock *lock; /* guards the queue and what says so above; sleepers: workers, the owner */
    host_worker workers[HOST_THREAD_MAX];
    uint32_t n_thread, n_idle;
    host_list *first, *last; /* the queue: the first is being run */
    host_list *free_lists;
    bool closing;
    _Atomic uint64_t sent, done_serial; /* the last list in the queue, and the last that is done */
    _Atomic device_ticket done;
    base_lock *wave_lock; /* of threads that wait for a wave's last tasks */
    _Atomic uint32_t n_wave_sleeper;

    /* of the owner's thread */
    uint64_t serial;   /* given out last */
    host_list *making; /* with the writes that wait for the next submit; NULL: none */
    base_vec(struct host_range {
        uintptr_t begin, end;
        bool written;
    }) ranges; /* of a wave */
    base_vec(host_grave) graves;
    unsigned char *scratch; // [n_thread, scratch_stride] in pages of its own
    size_t scratch_room, scratch_stride;
    unsigned char *stage; // [HOST_STAGE_BYTES] in pages of its own, NULL until used
    driver_readbacks readbacks;
    base_vec(uint64_t) stamps[DEVICE_READBACK_MAX]; /* nanoseconds of the clock, of each */
    struct { /* the most that a list had: all lists have room for it */
        size_t commands, pointers, params, writes, bytes;
    } most;
} host;

/* ---- host.c */
void *host_pages_take(size_t *room); /* zeros; room: rounded up. NULL: no memory */
void host_pages_give(void *pages, size_t room);
/* Gives back what the done lists have left. */
void host_graves_clear(host *d);
/* Room in the graves for everything that is alive, so that dropping needs no memory. */
bool host_graves_reserve(host *d);
void host_grave_add(host *d, host_grave grave);
/* ---- work.c, on any thread */
/* Where the next compiler is to work; NULL: nowhere. */
host_work *host_work_get(host *d, beryl_error *error);
/* 0, or the errno of writing a megabyte there. */
int host_work_room(const host_work *work);
void host_work_leave(host *d, const host_work *work, int cause); /* no longer there: errno */
void host_works_close(host *d);                                  /* with all that is in them */
/* A compiled library's bytes as code: a handle of dlopen, or NULL. */
void *host_library_open(host *d, const char *label, const driver_cache_key *key, const void *code,
                        size_t size, beryl_error *error);
/* The same where the system has no sealed files in memory. */
void *host_library_from_folder(host *d, const char *label, const void *code, size_t size,
                               beryl_error *error);

/* ---- compile.c */
beryl_status host_compiler_find(host_compiler *compiler, beryl_error *error);
bool host_compile(void *user, driver_job *job); /* job->result[0]: a host_code */
void host_discard(void *user, driver_job *job);
void host_compilers_stop(host *d); /* ends those that run; none starts again */
beryl_status host_program_make(device *head, device_program_item *item,
                               const device_program_desc *desc, beryl_error *error);
beryl_status host_program_status(device *head, device_program_item *item, beryl_error *error);
void host_program_drop(device *head, device_program_item *item);

/* ---- run.c */
beryl_status host_threads_start(host *d, beryl_error *error);
void host_threads_stop(host *d); /* when all lists are done */
void host_lists_fini(host *d);
/* Bytes into a buffer, in order before the next submit. */
beryl_status host_write(device *head, device_buffer_item *item, uint64_t offset, const void *data,
                        size_t size, beryl_error *error);
beryl_status host_submit(device *head, const device_submit_desc *desc, device_ticket ticket,
                         beryl_error *error);
beryl_status host_poll(device *head, device_ticket *done, beryl_error *error);
beryl_status host_wait(device *head, device_ticket ticket, beryl_error *error);

#endif
