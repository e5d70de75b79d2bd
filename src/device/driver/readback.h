/* readback.h - where a submit's fetches and stamps end up on the host: a ring of a few blocks of
 * the backend's memory (pinned or plain), each kept until it is dropped or its turn comes again. */
#ifndef DEVICE_DRIVER_READBACK_H
#define DEVICE_DRIVER_READBACK_H

#include "device/device.h"

typedef struct driver_span {
    uint64_t at, size;
} driver_span;

typedef struct driver_readback {
    device_ticket ticket; /* 0: free, unless `until` lies ahead */
    device_ticket until;  /* the device writes here up to this ticket */
    uint64_t number;      /* of the submit among those with results */
    unsigned char *memory;
    uint64_t capacity;
    base_vec(driver_span) fetches;
    uint32_t n_stamp;
    void **stamps; // [stamp_capacity], the backend's events; owned
    uint32_t stamp_capacity;
} driver_readback;

typedef struct driver_readbacks {
    device *device; /* borrowed */
    /* Memory of the backend; NULL and an error. Bytes are counted in the device's statistics. Both
     * NULL: of the device's heap. */
    void *(*take)(device *d, size_t size, beryl_error *error);
    void (*give)(device *d, void *memory, size_t size);
    driver_readback items[DEVICE_READBACK_MAX];
    uint64_t n; /* submits with results so far */
} driver_readbacks;

/* A readback with the places of this list's fetches, or NULL with OK where it has neither fetches
 * nor stamps. done: the last ticket that ended. PENDING: none is free. stamps: whether the device
 * has them. Nothing is taken before driver_readback_begin. */
beryl_status driver_readback_take(driver_readbacks *all, const device_submit_desc *desc,
                                  device_ticket done, bool stamps, driver_readback **out,
                                  beryl_error *error);
void driver_readback_begin(driver_readbacks *all, driver_readback *r, device_ticket ticket);
driver_readback *driver_readback_find(driver_readbacks *all, device_ticket ticket); /* or NULL */
/* What a ticket left behind. PENDING: not done. MISUSE: nothing, or it was dropped. */
beryl_status driver_readback_done(driver_readbacks *all, device_ticket ticket, device_ticket done,
                                  const driver_readback **out, beryl_error *error);
/* The n-th fetch. PENDING: not done. */
beryl_status driver_readback_fetched(driver_readbacks *all, device_ticket ticket,
                                     device_ticket done, uint32_t n, const void **data,
                                     size_t *size, beryl_error *error);
void driver_readback_drop(driver_readbacks *all, device_ticket ticket);
void driver_readbacks_fini(driver_readbacks *all); /* the device is idle; stamps were given back */

#endif
