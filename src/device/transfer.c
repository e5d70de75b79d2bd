/* transfer.c - bytes from a buffer of one device into a buffer of another.
 *
 * Pieces are fetched from the one and staged on the other, two on their way at a time, so that both
 * sides work; a step moves at most one and never waits. Knows nothing of what the devices are.
 */
#include "device/device.h"
#include "base/error.h"
#include "base/file.h"

#include <string.h>

static const uint64_t PIECE_MAX = 4 << 20;

static beryl_status check_range(const device *d, device_buffer buffer, uint64_t offset,
                                uint64_t size, const char *what, beryl_error *error) {
    const device_buffer_item *item = device_pool_at(&d->buffers, buffer.id);
    if (item && !((offset | size) & 3) && base_range_inside(offset, size, item->size))
        return BERYL_OK;
    return base_fail(error, BERYL_MISUSE, "a transfer %s [%llu, +%llu) of %s", what,
                     (unsigned long long)offset, (unsigned long long)size,
                     item ? "a smaller buffer, or not in words" : "no such buffer");
}

beryl_status device_transfer_begin(device_transfer *x, device *from, device_buffer source,
                                   uint64_t source_offset, device *to, device_buffer target,
                                   uint64_t target_offset, uint64_t size, beryl_error *error) {
    *x = (device_transfer){0};
    if (!device_stage_max(to))
        return base_fail(error, BERYL_UNSUPPORTED, "%s takes no bytes", to->caps.name);
    beryl_status status = check_range(from, source, source_offset, size, "from", error);
    if (!status) status = check_range(to, target, target_offset, size, "to", error);
    if (status) return status;
    *x = (device_transfer){.from = from,
                           .to = to,
                           .source = source,
                           .target = target,
                           .source_offset = source_offset,
                           .target_offset = target_offset,
                           .size = size};
    x->piece = device_stage_max(to) & ~UINT64_C(3);
    if (x->piece > PIECE_MAX) x->piece = PIECE_MAX;
    return BERYL_OK;
}

/* Asks for pieces while there is room for them. */
static beryl_status ask(device_transfer *x, beryl_error *error) {
    while (x->n_asked < 2 && x->asked < x->size) {
        const uint64_t left = x->size - x->asked, n = left < x->piece ? left : x->piece;
        device_command fetch = {.kind = DEVICE_FETCH};
        fetch.fetch.buffer = x->source;
        fetch.fetch.offset = x->source_offset + x->asked;
        fetch.fetch.size = n;
        beryl_status status =
            device_submit(x->from, &(device_submit_desc){.commands = &fetch, .n_command = 1},
                          &x->tickets[x->n_asked], error);
        if (status) return status;
        x->asked += n;
        x->n_asked++;
    }
    return BERYL_OK;
}

/* The first piece that was asked for goes to the other side. */
static beryl_status move_piece(device_transfer *x, beryl_error *error) {
    const void *data;
    size_t size;
    void *memory;
    device_ticket done;
    beryl_status status = device_poll(x->from, &done, error);
    if (!status) status = device_fetched(x->from, x->tickets[0], 0, &data, &size, error);
    if (status) return status;
    status = device_stage(x->to, size, &memory, error);
    if (status == BERYL_PENDING) {
        const beryl_status polled = device_poll(x->to, &done, error);
        return polled ? polled : status;
    }
    if (status) return status;
    memcpy(memory, data, size);
    status = device_stage_commit(x->to, x->target, x->target_offset + x->moved, size, error);
    x->to->staged = 0; /* also where the target was dropped meanwhile */
    device_fetch_drop(x->from, x->tickets[0]);
    x->tickets[0] = x->tickets[1];
    x->n_asked--;
    x->moved += size;
    return status;
}

beryl_status device_transfer_step(device_transfer *x, beryl_error *error) {
    if (x->moved == x->size) return BERYL_OK;
    beryl_status status = ask(x, error);
    if (status == BERYL_PENDING && x->n_asked) status = BERYL_OK;
    if (status == BERYL_PENDING) { /* somebody else holds all results: their turn */
        device_ticket done;
        const beryl_status polled = device_poll(x->from, &done, error);
        return polled ? polled : status;
    }
    if (!status) status = move_piece(x, error);
    if (!status) status = ask(x, error);
    if (status && status != BERYL_PENDING) {
        device_transfer_drop(x);
        return status;
    }
    return x->moved == x->size ? BERYL_OK : BERYL_PENDING;
}

void device_transfer_drop(device_transfer *x) {
    while (x->n_asked) device_fetch_drop(x->from, x->tickets[--x->n_asked]);
    *x = (device_transfer){0};
}
