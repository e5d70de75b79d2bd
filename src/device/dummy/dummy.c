/* dummy.c - a device that computes nothing: command lists are checked, counted and kept.
 *
 * Owns no memory for buffers, so that plans of models of any size run through it; device.c has
 * checked each command before it comes here, as for any device. Fetches give zeros, tickets are
 * done at once, stamps are a microsecond apart. Its capabilities are those of an H200 through
 * WebGPU. Results live as briefly as on a real device (four later submits with fetches), so that a
 * caller who keeps them too long is found here. For tests it can be slow.
 */
#include "device/dummy/dummy.h"
#include "base/error.h"
#include "base/thread.h"

#include <string.h>

enum { STAGE_BYTES = 1 << 20, N_READBACK = 5 };

typedef struct readback {
    device_ticket ticket; /* 0: free */
    uint32_t n_stamp;
    base_vec(size_t) fetches; /* sizes */
} readback;

typedef struct zeros { /* handed out for fetches; earlier ones stay, since they may be borrowed */
    struct zeros *before;
    size_t size; /* bytes after the head */
} zeros;

typedef struct duration {          /* of a submit to a slow device */
    double seconds, end, dispatch; /* end: by base_time */
} duration;

typedef struct dummy {
    device head;
    double per_dispatch, per_group; // seconds; both 0: nothing takes time
    device_ticket before;           // the last ticket before it became slow
    base_vec(duration) durations;   // of the tickets from then on
    void *stage;                    // [STAGE_BYTES], NULL until used
    zeros *zeros;                   // the largest first
    readback readbacks[N_READBACK];
    uint32_t next;                     // of readbacks
    base_vec(device_command) commands; // of the last submit
} dummy;

typedef struct dummy_driver {
    base_heap *heap;      /* borrowed */
    const beryl_log *log; /* borrowed */
} dummy_driver;

static void *start(base_heap *heap, const beryl_log *log, beryl_error *error) {
    dummy_driver *driver = base_heap_take(heap, sizeof *driver);
    if (!driver) {
        base_fail(error, BERYL_NO_MEMORY, "out of memory");
        return NULL;
    }
    driver->heap = heap;
    driver->log = log;
    return driver;
}

static void stop(void *user) {
    dummy_driver *driver = user;
    base_heap_give(driver->heap, driver, sizeof *driver);
}

static uint32_t count(void *user) {
    (void)user;
    return 1;
}

static void describe(void *user, uint32_t index, device_caps *caps, const char **why_not) {
    (void)user;
    (void)index;
    *why_not = NULL;
    *caps = (device_caps){
        .name = "dummy",
        .driver = "computes nothing",
        .kind = DEVICE_DISCRETE,
        .f16 = true,
        .subgroups = true,
        .dot_i8 = true,
        .timestamps = true,
        .subgroup_size = 32,
        .workgroup_bytes = 48 << 10,
        .workgroup_invocations = 1024,
        .workgroup_size = {1024, 1024, 64},
        .groups_max = 65535,
        .storage_max = DEVICE_BINDING_MAX,
        .binding_max = (UINT64_C(2) << 30) - 4,
        .buffer_max = UINT64_C(4292870144),
        .align_binding = 32,
        .compute_units = 132,
        .memory = UINT64_C(141) << 30,
    };
}

static beryl_status open_dummy(void *user, const device_caps *caps, const device_mask *mask,
                               device **out, beryl_error *error) {
    (void)mask;
    dummy_driver *driver = user;
    dummy *d = base_heap_take(driver->heap, sizeof *d);
    if (!d) return base_fail(error, BERYL_NO_MEMORY, "out of memory for the dummy device");
    d->head.backend = &device_dummy;
    d->head.heap = driver->heap;
    d->head.log = driver->log;
    d->head.caps = *caps;
    *out = &d->head;
    return BERYL_OK;
}

static void close_dummy(device *head) {
    dummy *d = (dummy *)head;
    base_heap *heap = head->heap;
    for (zeros *block = d->zeros, *before; block; block = before) {
        before = block->before;
        base_heap_give(heap, block, sizeof *block + block->size);
    }
    for (int i = 0; i < N_READBACK; i++) base_vec_fini(heap, &d->readbacks[i].fetches);
    base_vec_fini(heap, &d->commands);
    base_vec_fini(heap, &d->durations);
    base_heap_give(heap, d->stage, d->stage ? STAGE_BYTES : 0);
    base_heap_give(heap, d, sizeof *d);
}

static beryl_status buffer_make(device *head, device_buffer_item *buffer, const char *label,
                                beryl_error *error) {
    (void)head, (void)buffer, (void)label, (void)error;
    return BERYL_OK;
}

static void buffer_drop(device *head, device_buffer_item *buffer) {
    (void)head, (void)buffer;
}

static beryl_status write_bytes(device *head, device_buffer_item *buffer, uint64_t offset,
                                const void *data, size_t size, beryl_error *error) {
    (void)head, (void)buffer, (void)offset, (void)data, (void)size, (void)error;
    return BERYL_OK;
}

static size_t stage_max(const device *head) {
    (void)head;
    return STAGE_BYTES;
}

static beryl_status stage(device *head, size_t size, void **memory, beryl_error *error) {
    (void)size;
    dummy *d = (dummy *)head;
    if (!d->stage) d->stage = base_heap_take(head->heap, STAGE_BYTES);
    if (!d->stage) return base_fail(error, BERYL_NO_MEMORY, "out of memory for staging");
    *memory = d->stage;
    return BERYL_OK;
}

static beryl_status stage_commit(device *head, device_buffer_item *buffer, uint64_t offset,
                                 size_t size, beryl_error *error) {
    (void)head, (void)buffer, (void)offset, (void)size, (void)error;
    return BERYL_OK;
}

static beryl_status program_make(device *head, device_program_item *program,
                                 const device_program_desc *desc, beryl_error *error) {
    (void)head, (void)program, (void)desc, (void)error;
    return BERYL_OK;
}

static beryl_status program_status(device *head, device_program_item *program, beryl_error *error) {
    (void)head, (void)program, (void)error;
    return BERYL_OK;
}

static void program_drop(device *head, device_program_item *program) {
    (void)head, (void)program;
}

static beryl_status bindings_make(device *head, device_bindings_item *bindings,
                                  beryl_error *error) {
    (void)head, (void)bindings, (void)error;
    return BERYL_OK;
}

static void bindings_drop(device *head, device_bindings_item *bindings) {
    (void)head, (void)bindings;
}

static bool is_slow(const dummy *d) {
    return d->per_dispatch > 0 || d->per_group > 0;
}

static bool take_time(dummy *d, const device_submit_desc *desc) {
    const double now = base_time();
    const size_t n = d->durations.count;
    const double free = n ? d->durations.data[n - 1].end : 0;
    duration *time = base_vec_add(d->head.heap, &d->durations);
    if (!time) return false;
    *time = (duration){0};
    for (size_t i = 0; i < desc->n_command; i++) {
        const uint32_t *groups = desc->commands[i].dispatch.groups;
        if (desc->commands[i].kind != DEVICE_DISPATCH) continue;
        const double one = d->per_dispatch + d->per_group * groups[0] * groups[1] * groups[2];
        time->seconds += one;
        if (one > time->dispatch) time->dispatch = one;
    }
    time->end = (free > now ? free : now) + time->seconds;
    return true;
}

static beryl_status submit(device *head, const device_submit_desc *desc, device_ticket ticket,
                           beryl_error *error) {
    dummy *d = (dummy *)head;
    size_t n_fetch = 0, n_stamp = 0, largest = 0;
    for (size_t i = 0; i < desc->n_command; i++) {
        const device_command *c = &desc->commands[i];
        n_stamp += c->kind == DEVICE_STAMP;
        if (c->kind != DEVICE_FETCH) continue;
        n_fetch++;
        if (c->fetch.size > SIZE_MAX / 4) goto no_memory;
        if (c->fetch.size > largest) largest = (size_t)c->fetch.size;
    }
    d->commands.count = 0;
    if (!base_vec_reserve(head->heap, &d->commands, desc->n_command)) goto no_memory;
    if (desc->n_command)
        memcpy(d->commands.data, desc->commands, desc->n_command * sizeof *desc->commands);
    d->commands.count = desc->n_command;
    if (is_slow(d) && !take_time(d, desc)) goto no_memory;
    if (!n_fetch && !n_stamp) return BERYL_OK;
    if (largest && (!d->zeros || d->zeros->size < largest)) {
        size_t size = d->zeros && d->zeros->size > largest / 2 ? d->zeros->size * 2 : largest;
        zeros *block = base_heap_take(head->heap, sizeof *block + size);
        if (!block) goto no_memory;
        *block = (zeros){d->zeros, size};
        d->zeros = block;
    }
    readback *r = &d->readbacks[d->next % N_READBACK];
    r->ticket = 0;
    r->fetches.count = 0;
    if (!base_vec_reserve(head->heap, &r->fetches, n_fetch)) goto no_memory;
    for (size_t i = 0; i < desc->n_command; i++)
        if (desc->commands[i].kind == DEVICE_FETCH)
            r->fetches.data[r->fetches.count++] = (size_t)desc->commands[i].fetch.size;
    r->ticket = ticket;
    r->n_stamp = (uint32_t)n_stamp;
    d->next++;
    return BERYL_OK;
no_memory:
    return base_fail(error, BERYL_NO_MEMORY, "out of memory for a submit");
}

static beryl_status poll(device *head, device_ticket *done, beryl_error *error) {
    (void)error;
    const dummy *d = (const dummy *)head;
    const double now = base_time();
    size_t n = d->durations.count;
    while (n && d->durations.data[n - 1].end > now) n--;
    *done = is_slow(d) ? d->before + n : head->last;
    return BERYL_OK;
}

static beryl_status wait(device *head, device_ticket ticket, beryl_error *error) {
    (void)error;
    const dummy *d = (const dummy *)head;
    const double now = base_time();
    if (!is_slow(d) || ticket <= d->before) return BERYL_OK;
    const double end = d->durations.data[ticket - d->before - 1].end;
    if (end > now) base_sleep(end - now);
    return BERYL_OK;
}

static readback *find_readback(dummy *d, device_ticket ticket) {
    for (int i = 0; i < N_READBACK; i++)
        if (d->readbacks[i].ticket == ticket) return &d->readbacks[i];
    return NULL;
}

static beryl_status fetched(device *head, device_ticket ticket, uint32_t n, const void **data,
                            size_t *size, beryl_error *error) {
    dummy *d = (dummy *)head;
    const readback *r = find_readback(d, ticket);
    if (!r || n >= r->fetches.count)
        return base_fail(error, BERYL_MISUSE, "fetch %u of ticket %llu is not there (dropped?)", n,
                         (unsigned long long)ticket);
    *data = d->zeros + 1;
    *size = r->fetches.data[n];
    return BERYL_OK;
}

static void fetch_drop(device *head, device_ticket ticket) {
    readback *r = find_readback((dummy *)head, ticket);
    if (r) r->ticket = 0;
}

static beryl_status stamps(device *head, device_ticket ticket, uint64_t *ns, uint32_t *n_stamp,
                           beryl_error *error) {
    const readback *r = find_readback((dummy *)head, ticket);
    uint32_t capacity = *n_stamp;
    *n_stamp = 0;
    if (!r)
        return base_fail(error, BERYL_MISUSE, "the stamps of ticket %llu are not there (dropped?)",
                         (unsigned long long)ticket);
    for (uint32_t i = 0; i < r->n_stamp && i < capacity; i++)
        ns[i] = 1000 * (uint64_t)i, (*n_stamp)++;
    return BERYL_OK;
}

const device_command *device_dummy_commands(const device *d, size_t *n_command) {
    *n_command = 0;
    if (d->backend != &device_dummy) return NULL;
    const dummy *self = (const dummy *)d;
    *n_command = self->commands.count;
    return self->commands.data;
}

void device_dummy_slow(device *d, double per_dispatch, double per_group) {
    dummy *self = (dummy *)d;
    if (d->backend != &device_dummy) return;
    self->per_dispatch = per_dispatch;
    self->per_group = per_group;
    self->before = d->last;
    self->durations.count = 0;
}

device_dummy_times device_dummy_times_from(const device *d, uint32_t n) {
    device_dummy_times times = {0};
    if (d->backend != &device_dummy) return times;
    const dummy *self = (const dummy *)d;
    times.submits = (uint32_t)self->durations.count;
    for (uint32_t i = 0; i < times.submits; i++) {
        const duration *one = &self->durations.data[i];
        times.all += one->seconds;
        if (i >= n && one->seconds > times.longest) times.longest = one->seconds;
        if (one->dispatch > times.dispatch) times.dispatch = one->dispatch;
    }
    return times;
}

const device_backend device_dummy = {
    .name = "dummy",
    .languages = DEVICE_LANGUAGE_BIT(DEVICE_WGSL),
    .hidden = true,
    .buffer_bytes = sizeof(device_buffer_item),
    .program_bytes = sizeof(device_program_item),
    .bindings_bytes = sizeof(device_bindings_item),
    .start = start,
    .stop = stop,
    .count = count,
    .describe = describe,
    .open = open_dummy,
    .close = close_dummy,
    .buffer_make = buffer_make,
    .buffer_drop = buffer_drop,
    .write = write_bytes,
    .stage_max = stage_max,
    .stage = stage,
    .stage_commit = stage_commit,
    .program_make = program_make,
    .program_status = program_status,
    .program_drop = program_drop,
    .bindings_make = bindings_make,
    .bindings_drop = bindings_drop,
    .submit = submit,
    .poll = poll,
    .wait = wait,
    .fetched = fetched,
    .fetch_drop = fetch_drop,
    .stamps = stamps,
};
