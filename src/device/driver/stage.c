/* stage.c - pieces of a few host blocks in turn. A block is marked when the next one is begun, and
 * used again once the device has passed its mark. */
#include "device/driver/stage.h"
#include "base/error.h"

#include <string.h>

enum { PIECE_ALIGN = 256 };

static beryl_status room(driver_stages *ring, size_t size, bool wait, beryl_error *error) {
    if (ring->items[ring->at].used + size > DRIVER_STAGE_BYTES) {
        beryl_status status =
            ring->items[ring->at].marked ? BERYL_OK : ring->mark(ring->device, ring->at, error);
        if (status) return status;
        ring->items[ring->at].marked = true;
        uint32_t next = (ring->at + 1) % DRIVER_STAGE_COUNT;
        if (ring->items[next].marked) {
            status = ring->passed(ring->device, next, wait, error);
            if (status) return status;
        }
        ring->items[next].marked = false;
        ring->items[next].used = 0;
        ring->at = next;
    }
    if (ring->items[ring->at].memory) return BERYL_OK;
    beryl_error why = {0};
    ring->items[ring->at].memory = ring->take(ring->device, DRIVER_STAGE_BYTES, &why);
    if (ring->items[ring->at].memory) return BERYL_OK;
    if (error) *error = why;
    return why.code;
}

beryl_status driver_stage_take(driver_stages *ring, size_t size, void **memory,
                               beryl_error *error) {
    beryl_status status = room(ring, size, false, error);
    if (!status) *memory = ring->items[ring->at].memory + ring->items[ring->at].used;
    return status;
}

beryl_status driver_stage_commit(driver_stages *ring, device_buffer_item *to, uint64_t offset,
                                 size_t size, beryl_error *error) {
    if (!size) return BERYL_OK;
    size_t at = ring->items[ring->at].used;
    beryl_status status =
        ring->copy(ring->device, to, offset, ring->items[ring->at].memory + at, size, error);
    if (status) return status;
    ring->items[ring->at].used = (at + size + PIECE_ALIGN - 1) & ~(size_t)(PIECE_ALIGN - 1);
    ring->items[ring->at].marked = false; /* an earlier mark lies before this copy */
    return BERYL_OK;
}

beryl_status driver_stage_write(driver_stages *ring, device_buffer_item *to, uint64_t offset,
                                const void *data, size_t size, beryl_error *error) {
    beryl_status status = BERYL_OK;
    for (size_t at = 0; at < size && !status;) {
        size_t piece = size - at < DRIVER_STAGE_BYTES ? size - at : DRIVER_STAGE_BYTES;
        status = room(ring, piece, true, error);
        if (status) break;
        memcpy(ring->items[ring->at].memory + ring->items[ring->at].used, (const char *)data + at,
               piece);
        status = driver_stage_commit(ring, to, offset + at, piece, error);
        at += piece;
    }
    return status;
}

void driver_stages_fini(driver_stages *ring) {
    for (uint32_t i = 0; i < DRIVER_STAGE_COUNT; i++)
        if (ring->items[i].memory)
            ring->give(ring->device, ring->items[i].memory, DRIVER_STAGE_BYTES);
    memset(ring->items, 0, sizeof ring->items);
}
