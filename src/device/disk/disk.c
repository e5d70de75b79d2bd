/* disk.c - read-only memory behind ranges of files, which other devices copy from.
 *
 * A buffer is a source and a range of it (device_buffer_map); nothing is read before it is fetched,
 * and nothing of it is kept. Refuses everything else by name: programs, uploads, copies and fills
 * on the device itself. The one idea: there is no thread. A submit only notes what is wanted; poll
 * reads a piece of it and wait reads on, so sources that answer later (pending) work as well.
 */
#include "device/device.h"
#include "device/driver/readback.h"
#include "base/error.h"
#include "base/file.h"
#include "base/thread.h"

#include <stdio.h>
#include <string.h>

enum { PIECE = 4 << 20 /* bytes read by one poll */ };

typedef struct disk_buffer {
    device_buffer_item head;
    beryl_source source; /* a copy of the caller's; what it refers to is borrowed */
    uint64_t offset, size;
    char label[48];
} disk_buffer;

/* One fetch: bytes [from, from + size) of a source, then zeros up to `room`. */
typedef struct disk_read {
    beryl_source source;
    uint64_t from, size, room, done;
    unsigned char *to; /* borrowed from the readback; NULL: the end of its submit */
    device_ticket ticket;
    int readback; /* index; -1: none */
    char label[48];
} disk_read;

typedef struct disk {
    device head;
    driver_readbacks readbacks;
    beryl_error errors[DEVICE_READBACK_MAX]; /* what went wrong in the submit of each */
    base_vec(disk_read) reads;
    size_t next; /* of reads */
    device_ticket done;
} disk;

typedef struct disk_driver {
    base_heap *heap;      /* borrowed */
    const beryl_log *log; /* borrowed */
} disk_driver;

static void *start(base_heap *heap, const beryl_log *log, beryl_error *error) {
    disk_driver *driver = base_heap_take(heap, sizeof *driver);
    if (driver) *driver = (disk_driver){heap, log};
    else base_fail(error, BERYL_NO_MEMORY, "out of memory");
    return driver;
}

static void stop(void *user) {
    disk_driver *driver = user;
    base_heap_give(driver->heap, driver, sizeof *driver);
}

static uint32_t count(void *user) {
    (void)user;
    return 1;
}

static void describe(void *user, uint32_t index, device_caps *caps, const char **why_not) {
    (void)user, (void)index;
    *why_not = NULL;
    *caps = (device_caps){
        .name = "files",
        .driver = "memory to read and to copy from",
        .kind = DEVICE_HOST,
        .buffer_max = INT64_MAX & ~INT64_C(3),
        .align_binding = 4,
    };
}

static beryl_status open_disk(void *user, const device_caps *caps, const device_mask *mask,
                              device **out, beryl_error *error) {
    (void)mask;
    const disk_driver *driver = user;
    disk *d = base_heap_take(driver->heap, sizeof *d);
    if (!d) return base_fail(error, BERYL_NO_MEMORY, "out of memory for a device");
    d->head.backend = &device_disk;
    d->head.heap = driver->heap;
    d->head.log = driver->log;
    d->head.caps = *caps;
    d->readbacks = (driver_readbacks){.device = &d->head};
    *out = &d->head;
    return BERYL_OK;
}

static void close_disk(device *head) {
    disk *d = (disk *)head;
    base_heap *heap = head->heap;
    driver_readbacks_fini(&d->readbacks);
    base_vec_fini(heap, &d->reads);
    base_heap_give(heap, d, sizeof *d);
}

static beryl_status refuse(const char *what, beryl_error *error) {
    return base_fail(error, BERYL_UNSUPPORTED, "%s: disk is read only; %s", what,
                     "map ranges of files, fetch them or copy them to another device");
}

/* ---- buffers --------------------------------------------------------------------------------- */

static beryl_status buffer_make(device *head, device_buffer_item *item, const char *label,
                                beryl_error *error) {
    (void)head, (void)item;
    return refuse(label, error);
}

static beryl_status buffer_map(device *head, device_buffer_item *item, const beryl_source *source,
                               uint64_t offset, uint64_t size, const char *label,
                               beryl_error *error) {
    (void)head, (void)error;
    disk_buffer *buffer = (disk_buffer *)item;
    buffer->source = *source;
    buffer->offset = offset;
    buffer->size = size;
    snprintf(buffer->label, sizeof buffer->label, "%s", label);
    return BERYL_OK;
}

static void buffer_drop(device *head, device_buffer_item *item) {
    (void)head, (void)item; /* fetches under way have their own copy of the range */
}

static beryl_status write_bytes(device *head, device_buffer_item *item, uint64_t offset,
                                const void *data, size_t size, beryl_error *error) {
    (void)head, (void)offset, (void)data, (void)size;
    return refuse(((disk_buffer *)item)->label, error);
}

static size_t stage_max(const device *head) {
    (void)head;
    return 0;
}

static beryl_status stage(device *head, size_t size, void **memory, beryl_error *error) {
    (void)head, (void)size, (void)memory;
    return refuse("stage", error);
}

static beryl_status stage_commit(device *head, device_buffer_item *item, uint64_t offset,
                                 size_t size, beryl_error *error) {
    (void)head, (void)item, (void)offset, (void)size;
    return refuse("commit", error);
}

/* ---- programs: device.c lets none through, since there is no language -------------------------
 */

static beryl_status program_make(device *head, device_program_item *program,
                                 const device_program_desc *desc, beryl_error *error) {
    (void)head, (void)desc;
    return refuse(program->label, error);
}

static beryl_status program_status(device *head, device_program_item *program, beryl_error *error) {
    (void)head;
    return refuse(program->label, error);
}

static void program_drop(device *head, device_program_item *program) {
    (void)head, (void)program;
}

static beryl_status bindings_make(device *head, device_bindings_item *bindings,
                                  beryl_error *error) {
    (void)head, (void)bindings;
    return refuse("bindings", error);
}

static void bindings_drop(device *head, device_bindings_item *bindings) {
    (void)head, (void)bindings;
}

/* ---- work ------------------------------------------------------------------------------------ */

static uint64_t least(uint64_t a, uint64_t b) {
    return a < b ? a : b;
}

static void add_read(disk *d, const disk_buffer *buffer, const device_command *c,
                     const driver_readback *r, size_t n, device_ticket ticket) {
    disk_read *read = &d->reads.data[d->reads.count++];
    const uint64_t offset = c->fetch.offset, inside = buffer->size - least(offset, buffer->size);
    *read = (disk_read){.source = buffer->source,
                        .from = buffer->offset + offset,
                        .size = least(c->fetch.size, inside),
                        .room = c->fetch.size,
                        .to = r->memory + r->fetches.data[n].at,
                        .ticket = ticket,
                        .readback = (int)(r - d->readbacks.items)};
    memcpy(read->label, buffer->label, sizeof read->label);
}

static beryl_status submit(device *head, const device_submit_desc *desc, device_ticket ticket,
                           beryl_error *error) {
    disk *d = (disk *)head;
    driver_readback *r = NULL;
    for (size_t i = 0; i < desc->n_command; i++) {
        const device_command *c = &desc->commands[i];
        const device_buffer buffer = c->kind == DEVICE_COPY ? c->copy.to : c->fill.buffer;
        const disk_buffer *item = c->kind == DEVICE_COPY || c->kind == DEVICE_FILL
                                      ? device_pool_at(&head->buffers, buffer.id)
                                      : NULL;
        if (item) return refuse(item->label, error);
    }
    if (d->next == d->reads.count) d->next = d->reads.count = 0;
    if (!base_vec_reserve(head->heap, &d->reads, desc->n_command + 1))
        return base_fail(error, BERYL_NO_MEMORY, "out of memory for a submit");
    beryl_status status = driver_readback_take(&d->readbacks, desc, d->done, false, &r, error);
    if (status) return status;
    for (size_t i = 0, n = 0; i < desc->n_command; i++) {
        const device_command *c = &desc->commands[i];
        if (c->kind == DEVICE_FETCH)
            add_read(d, device_pool_at(&head->buffers, c->fetch.buffer.id), c, r, n++, ticket);
    }
    d->reads.data[d->reads.count++] = (disk_read){.ticket = ticket, .readback = -1};
    if (r) {
        d->errors[r - d->readbacks.items] = (beryl_error){0};
        driver_readback_begin(&d->readbacks, r, ticket);
    }
    return BERYL_OK;
}

/* Reads up to `bytes`; false: all is read, or a source is not ready. */
static bool read_on(disk *d, uint64_t bytes) {
    while (bytes && d->next < d->reads.count) {
        disk_read *read = &d->reads.data[d->next];
        if (!read->to) {
            d->done = read->ticket;
            d->next++;
            continue;
        }
        const uint64_t n = least(bytes, read->size - read->done);
        const beryl_status status =
            n ? read->source.read(read->source.user, read->from + read->done, read->to + read->done,
                                  (size_t)n)
              : BERYL_OK;
        if (status == BERYL_PENDING) return false;
        if (status) {
            base_source_fail(&read->source, read->label, status, read->from + read->done,
                             &d->errors[read->readback]);
            read->done = read->size; /* the rest of the submit is read all the same */
        }
        read->done += status ? 0 : n;
        bytes -= n;
        if (read->done < read->size) continue;
        memset(read->to + read->size, 0, (size_t)(read->room - read->size));
        d->next++;
    }
    return d->next < d->reads.count;
}

static beryl_status poll(device *head, device_ticket *done, beryl_error *error) {
    disk *d = (disk *)head;
    (void)error;
    read_on(d, PIECE);
    *done = d->done;
    return BERYL_OK;
}

/* What went wrong while the fetches of a ticket were read. */
static beryl_status failure_of(disk *d, device_ticket ticket, beryl_error *error) {
    const driver_readback *r = driver_readback_find(&d->readbacks, ticket);
    const beryl_error *why = r ? &d->errors[r - d->readbacks.items] : NULL;
    if (!why || !why->code) return BERYL_OK;
    if (error) *error = *why;
    return why->code;
}

static beryl_status wait(device *head, device_ticket ticket, beryl_error *error) {
    disk *d = (disk *)head;
    while (d->done < ticket)
        if (!read_on(d, PIECE) && d->done < ticket) base_sleep(1e-3);
    return failure_of(d, ticket, error);
}

static beryl_status fetched(device *head, device_ticket ticket, uint32_t n, const void **data,
                            size_t *size, beryl_error *error) {
    disk *d = (disk *)head;
    beryl_status status =
        driver_readback_fetched(&d->readbacks, ticket, d->done, n, data, size, error);
    return status ? status : failure_of(d, ticket, error);
}

static void fetch_drop(device *head, device_ticket ticket) {
    driver_readback_drop(&((disk *)head)->readbacks, ticket);
}

static beryl_status stamps(device *head, device_ticket ticket, uint64_t *ns, uint32_t *n_stamp,
                           beryl_error *error) {
    (void)head, (void)ticket, (void)ns, (void)n_stamp;
    return refuse("timestamps", error);
}

const device_backend device_disk = {
    .name = "disk",
    .buffer_bytes = sizeof(disk_buffer),
    .program_bytes = sizeof(device_program_item),
    .bindings_bytes = sizeof(device_bindings_item),
    .start = start,
    .stop = stop,
    .count = count,
    .describe = describe,
    .open = open_disk,
    .close = close_disk,
    .buffer_make = buffer_make,
    .buffer_map = buffer_map,
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
