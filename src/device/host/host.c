/* host.c - this machine's processor as a device: facts, opening and closing, buffers, results.
 *
 * Owns the memory behind buffers (pages of their own: zero, aligned, and outside the heap, as a
 * device's memory is). Refuses to open where no C compiler is found, since kernels are C text
 * that is compiled here. What is dropped while a list may still use it goes into a grave and is
 * given back by the first later call that finds the list done: nothing waits.
 */
#define _GNU_SOURCE /* MAP_ANONYMOUS, sched_getaffinity */
#include "device/host/bounds.h"
#include "base/error.h"
#include "base/file.h"

#include <dlfcn.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/utsname.h>
#include <unistd.h>
#ifdef __linux__
#include <sched.h>
#endif
#if defined __linux__ && defined __x86_64__
#include <cpuid.h>
#include <sys/syscall.h>
#endif

typedef struct host_driver {
    base_heap *heap;      /* borrowed */
    const beryl_log *log; /* borrowed */
    host_compiler compiler;
} host_driver;

/* ---- pages and graves ------------------------------------------------------------------------ */

void *host_pages_take(size_t *room) {
    const long page = sysconf(_SC_PAGESIZE);
    const size_t unit = page > 0 ? (size_t)page : 4096;
    if (*room > PTRDIFF_MAX - unit) return NULL;
    *room = (*room + unit - 1) / unit * unit;
    void *pages = mmap(NULL, *room, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    if (pages == MAP_FAILED) return NULL;
#ifdef MADV_HUGEPAGE
    if (*room >= 4 << 20) madvise(pages, *room, MADV_HUGEPAGE); /* weights are read whole */
#endif
    return pages;
}

void host_pages_give(void *pages, size_t room) {
    if (pages) munmap(pages, room);
}

static void bury(host_grave *grave) {
    host_pages_give(grave->memory, grave->room);
    if (grave->handle) dlclose(grave->handle);
}

void host_graves_clear(host *d) {
    const uint64_t done = atomic_load(&d->done_serial);
    size_t n = 0;
    for (size_t i = 0; i < d->graves.count; i++) {
        if (d->graves.data[i].serial <= done) bury(&d->graves.data[i]);
        else d->graves.data[n++] = d->graves.data[i];
    }
    d->graves.count = n;
}

bool host_graves_reserve(host *d) {
    host_graves_clear(d);
    return base_vec_reserve(d->head.heap, &d->graves,
                            (size_t)d->head.buffers.alive + d->head.programs.alive + 2);
}

void host_grave_add(host *d, host_grave grave) {
    host_graves_clear(d);
    if (grave.serial <= atomic_load(&d->done_serial)) bury(&grave);
    else d->graves.data[d->graves.count++] = grave; /* there is room: see host_graves_reserve */
}

/* ---- facts ----------------------------------------------------------------------------------- */

/* The rest of the first line that begins with `name`, behind its colon. */
static bool find_line(const char *text, const char *name, char *to, size_t room) {
    for (const char *line = text; line && *line;) {
        const char *end = strchr(line, '\n');
        const size_t size = end ? (size_t)(end - line) : strlen(line);
        const char *colon = memchr(line, ':', size);
        if (!strncmp(line, name, strlen(name)) && colon) {
            colon++;
            while (colon < line + size && *colon == ' ') colon++;
            snprintf(to, room, "%.*s", (int)(line + size - colon), colon);
            return true;
        }
        line = end ? end + 1 : NULL;
    }
    return false;
}

/* The beginning of a system file as text. */
static void read_some(const char *path, char *to, size_t room) {
    FILE *file = fopen(path, "re");
    const size_t n = file ? fread(to, 1, room - 1, file) : 0;
    if (file) fclose(file);
    to[n] = 0;
}

/* What BERYL_THREADS says; 0: nothing. BAD_INPUT: something else than a number of threads. */
static beryl_status threads_asked(long *n, beryl_error *error) {
    const char *named = base_environment("BERYL_THREADS");
    char *end = NULL;
    *n = named ? strtol(named, &end, 10) : 0;
    if (!named || (*n > 0 && !*end)) return BERYL_OK;
    *n = 0;
    return base_fail(error, BERYL_BAD_INPUT,
                     "BERYL_THREADS is \"%.40s\": a number from 1 to %d is wanted", named,
                     HOST_THREAD_MAX);
}

static uint32_t thread_count(void) {
    long n;
    threads_asked(&n, NULL); /* open_device refuses */
#ifdef __linux__
    cpu_set_t set;
    if (n <= 0 && !sched_getaffinity(0, sizeof set, &set)) n = CPU_COUNT(&set);
#endif
    if (n <= 0) n = sysconf(_SC_NPROCESSORS_ONLN);
    return n <= 0 ? 1 : n > HOST_THREAD_MAX ? HOST_THREAD_MAX : (uint32_t)n;
}

static uint64_t memory_size(bool available) {
    char text[2048], line[64];
    const long pages = sysconf(_SC_PHYS_PAGES), page = sysconf(_SC_PAGESIZE);
    const uint64_t all = pages > 0 && page > 0 ? (uint64_t)pages * (uint64_t)page : 0;
    read_some("/proc/meminfo", text, sizeof text);
    if (available && find_line(text, "MemAvailable", line, sizeof line))
        return strtoull(line, NULL, 10) * 1024; /* it is in kB */
    return all ? all : UINT64_C(4) << 30;
}

/* Tiles of BF16: a process asks once for their registers, for all of its threads. */
static bool tiles_take(void) {
#if defined __linux__ && defined __x86_64__
    enum { FEATURES = 7, BF16 = 1 << 22, TILES = 1 << 24, ASK = 0x1023, REGISTERS = 18 };
    unsigned a, b, c, d;
    return __get_cpuid_count(FEATURES, 0, &a, &b, &c, &d) && d & BF16 && d & TILES &&
           !syscall(SYS_arch_prctl, ASK, REGISTERS);
#else
    return false;
#endif
}

static void *start(base_heap *heap, const beryl_log *log, beryl_error *error) {
    host_driver *driver = base_heap_take(heap, sizeof *driver);
    if (!driver) {
        base_fail(error, BERYL_NO_MEMORY, "out of memory");
        return NULL;
    }
    driver->heap = heap;
    driver->log = log;
    if (host_compiler_find(&driver->compiler, error) == BERYL_OK) return driver;
    base_heap_give(heap, driver, sizeof *driver);
    return NULL;
}

static void stop(void *user) {
    host_driver *driver = user;
    base_heap_give(driver->heap, driver, sizeof *driver);
}

static uint32_t count(void *user) {
    (void)user;
    return 1;
}

static void describe(void *user, uint32_t index, device_caps *caps, const char **why_not) {
    const host_driver *driver = user;
    char text[4096];
    struct utsname system = {0};
    (void)index;
    *why_not = NULL;
    *caps = (device_caps){
        .kind = DEVICE_HOST,
        .f16 = true, /* every type of the IR: what the compiler lacks, generated text does */
        .f64 = true,
        .dot_words = 16, /* where no instruction does, the text's own lines */
        .timestamps = true,
        .workgroup_bytes = 256 << 10,
        .workgroup_invocations = 1024,
        .workgroup_size = {1024, 1024, 1024},
        .groups_max = (UINT32_C(1) << 31) - 1,
        .storage_max = DEVICE_BINDING_MAX,
        .align_binding = HOST_ALIGN,
        .compute_units = thread_count(),
        .compiler = driver->compiler.identity,
        .memory = memory_size(true),
    };
    caps->binding_max = caps->buffer_max = memory_size(false) & ~UINT64_C(3);
    uname(&system);
    read_some("/proc/cpuinfo", text, sizeof text);
    if (!find_line(text, "model name", caps->name, sizeof caps->name))
        snprintf(caps->name, sizeof caps->name, "%.100s processor", system.machine);
    snprintf(caps->driver, sizeof caps->driver, "%.100s, %u thread%s", driver->compiler.path,
             caps->compute_units, caps->compute_units == 1 ? "" : "s");
}

/* ---- buffers --------------------------------------------------------------------------------- */

static beryl_status buffer_make(device *head, device_buffer_item *item, const char *label,
                                beryl_error *error) {
    host *d = (host *)head;
    host_buffer *buffer = (host_buffer *)item;
    if (!host_graves_reserve(d))
        return base_fail(error, BERYL_NO_MEMORY, "out of memory for buffer %s", label);
    if (item->size > PTRDIFF_MAX - HOST_GUARD_BYTES)
        return base_fail(error, BERYL_NO_DEVICE_MEMORY, "%s: no buffer of %llu bytes", label,
                         (unsigned long long)item->size);
    buffer->room = (size_t)item->size + HOST_GUARD_BYTES;
    buffer->data = host_pages_take(&buffer->room);
    return buffer->data ? BERYL_OK
                        : base_fail(error, BERYL_NO_DEVICE_MEMORY, "%s: no buffer of %llu bytes",
                                    label, (unsigned long long)item->size);
}

static void buffer_drop(device *head, device_buffer_item *item) {
    host *d = (host *)head;
    host_buffer *buffer = (host_buffer *)item;
    if (buffer->waiting) { /* what nobody can read any more need not be written */
        size_t n = 0;
        for (size_t i = 0; i < d->making->writes.count; i++)
            if (d->making->writes.data[i].to != buffer)
                d->making->writes.data[n++] = d->making->writes.data[i];
        d->making->writes.count = n;
    }
    host_grave_add(d, (host_grave){buffer->last, buffer->data, NULL, buffer->room});
}

static void *memory(device *head, device_buffer_item *item) {
    const host_buffer *buffer = (const host_buffer *)item;
    const bool idle = !buffer->waiting && buffer->last <= atomic_load(&((host *)head)->done_serial);
    return idle ? buffer->data : NULL;
}

static uint64_t handle(const device_buffer_item *item) {
    return (uint64_t)(uintptr_t)((const host_buffer *)item)->data;
}

static size_t stage_max(const device *head) {
    (void)head;
    return HOST_STAGE_BYTES;
}

static beryl_status stage(device *head, size_t size, void **memory, beryl_error *error) {
    (void)size;
    host *d = (host *)head;
    size_t room = HOST_STAGE_BYTES;
    if (!d->stage) d->stage = host_pages_take(&room);
    if (!d->stage) return base_fail(error, BERYL_NO_MEMORY, "out of memory for staging");
    *memory = d->stage;
    return BERYL_OK;
}

static beryl_status stage_commit(device *head, device_buffer_item *item, uint64_t offset,
                                 size_t size, beryl_error *error) {
    return size ? host_write(head, item, offset, ((host *)head)->stage, size, error) : BERYL_OK;
}

static beryl_status bindings_make(device *head, device_bindings_item *item, beryl_error *error) {
    (void)head, (void)item, (void)error; /* addresses are looked up by each submit */
    return BERYL_OK;
}

static void bindings_drop(device *head, device_bindings_item *item) {
    (void)head, (void)item;
}

/* ---- results --------------------------------------------------------------------------------- */

static beryl_status fetched(device *head, device_ticket ticket, uint32_t n, const void **data,
                            size_t *size, beryl_error *error) {
    host *d = (host *)head;
    return driver_readback_fetched(&d->readbacks, ticket, atomic_load(&d->done), n, data, size,
                                   error);
}

static void fetch_drop(device *head, device_ticket ticket) {
    driver_readback_drop(&((host *)head)->readbacks, ticket);
}

static beryl_status stamps(device *head, device_ticket ticket, uint64_t *ns, uint32_t *n_stamp,
                           beryl_error *error) {
    host *d = (host *)head;
    const uint32_t capacity = *n_stamp;
    const driver_readback *r;
    *n_stamp = 0;
    const beryl_status status =
        driver_readback_done(&d->readbacks, ticket, atomic_load(&d->done), &r, error);
    if (status) return status;
    const uint64_t *clock = d->stamps[r - d->readbacks.items].data;
    for (uint32_t i = 0; i < r->n_stamp && i < capacity; i++)
        ns[(*n_stamp)++] = clock[i] - clock[0];
    return BERYL_OK;
}

/* ---- opening and closing --------------------------------------------------------------------- */

static void drain(device *head) {
    host *d = (host *)head;
    host_compilers_stop(d);
    host_threads_stop(d);
}

static void close_device(device *head) {
    host *d = (host *)head;
    base_heap *heap = head->heap;
    host_graves_clear(d); /* no thread runs: all of them */
    base_vec_fini(heap, &d->graves);
    host_lists_fini(d);
    host_pages_give(d->scratch, d->scratch_room);
    for (int i = 0; i < DEVICE_READBACK_MAX; i++) base_vec_fini(heap, &d->stamps[i]);
    driver_readbacks_fini(&d->readbacks);
    driver_compiler_fini(&d->compiler);
    host_pages_give(d->stage, HOST_STAGE_BYTES);
    host_works_close(d);
    if (d->compile_lock) base_lock_close(d->compile_lock);
    if (d->wave_lock) base_lock_close(d->wave_lock);
    if (d->lock) base_lock_close(d->lock);
    base_heap_give(heap, d, sizeof *d);
}

static beryl_status open_device(void *user, const device_caps *caps, const device_mask *mask,
                                device **out, beryl_error *error) {
    const host_driver *driver = user;
    long asked;
    if (threads_asked(&asked, error)) return BERYL_BAD_INPUT;
    if (asked > HOST_THREAD_MAX)
        base_log(driver->log, BERYL_LOG_WARNING, "BERYL_THREADS is %ld: %d are taken", asked,
                 HOST_THREAD_MAX);
    host *d = base_heap_take(driver->heap, sizeof *d);
    if (!d) return base_fail(error, BERYL_NO_MEMORY, "out of memory for a device");
    d->head.backend = &device_host;
    d->head.heap = driver->heap;
    d->head.log = driver->log;
    d->head.caps = *caps;
    d->head.caps.tiles = !mask->no_dot && tiles_take();
    d->cc = driver->compiler;
    d->readbacks = (driver_readbacks){.device = &d->head};
    d->compiler = (driver_compiler){.heap = driver->heap,
                                    .log = driver->log,
                                    .user = d,
                                    .compile = host_compile,
                                    .discard = host_discard,
                                    .n_max = thread_count(), /* they wait for processes */
                                    .cache_folder = "host",
                                    .backend = "host"};
    d->compile_lock = base_lock_open(driver->heap);
    d->wave_lock = base_lock_open(driver->heap);
    d->lock = base_lock_open(driver->heap);
    beryl_status status = BERYL_OK;
    if (!driver_compiler_init(&d->compiler) || !d->compile_lock || !d->wave_lock || !d->lock)
        status = base_fail(error, BERYL_NO_MEMORY, "out of memory for a device");
    if (!status) status = host_threads_start(d, error);
    if (!status) *out = &d->head;
    else close_device(&d->head);
    return status;
}

const device_backend device_host = {
    .name = "host",
    .languages = DEVICE_LANGUAGE_BIT(DEVICE_C),
    .buffer_bytes = sizeof(host_buffer),
    .program_bytes = sizeof(host_program),
    .bindings_bytes = sizeof(device_bindings_item),
    .start = start,
    .stop = stop,
    .count = count,
    .describe = describe,
    .open = open_device,
    .drain = drain,
    .close = close_device,
    .buffer_make = buffer_make,
    .buffer_drop = buffer_drop,
    .write = host_write,
    .memory = memory,
    .handle = handle,
    .stage_max = stage_max,
    .stage = stage,
    .stage_commit = stage_commit,
    .program_make = host_program_make,
    .program_status = host_program_status,
    .program_drop = host_program_drop,
    .bindings_make = bindings_make,
    .bindings_drop = bindings_drop,
    .submit = host_submit,
    .poll = host_poll,
    .wait = host_wait,
    .fetched = fetched,
    .fetch_drop = fetch_drop,
    .stamps = stamps,
};
