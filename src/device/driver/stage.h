/* stage.h - a staging ring: host memory that uploads are filled into, and copied from in order. */
#ifndef DEVICE_DRIVER_STAGE_H
#define DEVICE_DRIVER_STAGE_H

#include "device/device.h"

enum { DRIVER_STAGE_BYTES = 8 << 20, DRIVER_STAGE_COUNT = 4 };

typedef struct driver_stages {
    device *device; /* borrowed */
    /* Memory of the backend (pinned or plain); NULL and an error. */
    void *(*take)(device *d, size_t size, beryl_error *error);
    void (*give)(device *d, void *memory, size_t size);
    /* Queues a copy out of the ring. */
    beryl_status (*copy)(device *d, device_buffer_item *to, uint64_t offset, const void *from,
                         size_t size, beryl_error *error);
    /* Queues a mark behind all that was queued; one mark a stage. */
    beryl_status (*mark)(device *d, uint32_t stage, beryl_error *error);
    /* OK: the stage's mark was passed. PENDING: not yet, and not `wait`. */
    beryl_status (*passed)(device *d, uint32_t stage, bool wait, beryl_error *error);
    struct {
        unsigned char *memory; // [DRIVER_STAGE_BYTES], NULL until used
        size_t used;
        bool marked; /* full once; its copies may still run */
    } items[DRIVER_STAGE_COUNT];
    uint32_t at; /* the one being filled */
} driver_stages;

/* PENDING: the ring is full. */
beryl_status driver_stage_take(driver_stages *ring, size_t size, void **memory, beryl_error *error);
/* What was taken last, as filled. */
beryl_status driver_stage_commit(driver_stages *ring, device_buffer_item *to, uint64_t offset,
                                 size_t size, beryl_error *error);
/* Through the ring, so that the caller's memory is free at once; waits where the ring is full. */
beryl_status driver_stage_write(driver_stages *ring, device_buffer_item *to, uint64_t offset,
                                const void *data, size_t size, beryl_error *error);
void driver_stages_fini(driver_stages *ring); /* the device is idle */

#endif
