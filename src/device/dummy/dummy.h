/* dummy.h - what tests may ask of the dummy device beyond device.h. */
#ifndef DEVICE_DUMMY_DUMMY_H
#define DEVICE_DUMMY_DUMMY_H

#include "device/device.h"

/* The commands of the last submit, borrowed until the next one. NULL and 0 for any other device. */
const device_command *device_dummy_commands(const device *d, size_t *n_command);

#endif
