/* dummy.h - what tests may ask of the dummy device beyond device.h. */
#ifndef DEVICE_DUMMY_DUMMY_H
#define DEVICE_DUMMY_DUMMY_H

#include "device/device.h"

/* The commands of the last submit, borrowed until the next one. NULL and 0 for any other device. */
const device_command *device_dummy_commands(const device *d, size_t *n_command);

/* From now on the device takes its time: so many seconds for each dispatch and for each workgroup,
 * one submit after the other. Tickets are done when that has passed. */
void device_dummy_slow(device *d, double per_dispatch, double per_group);
/* What the submits since then took together, the longest of them from the n-th on, and the longest
 * dispatch. */
typedef struct device_dummy_times {
    double all, longest, dispatch;
    uint32_t submits;
} device_dummy_times;
device_dummy_times device_dummy_times_from(const device *d, uint32_t n);

#endif
