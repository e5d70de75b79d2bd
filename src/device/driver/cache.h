/* cache.h - compiled programs on disk, by a hash of all that they come from. */
#ifndef DEVICE_DRIVER_CACHE_H
#define DEVICE_DRIVER_CACHE_H

#include "base/memory.h"

typedef struct driver_cache_key {
    uint64_t hash[2];
} driver_cache_key;

/* Adds text that the compiled program depends on (its source, options, driver, chip). Begin with
 * all zeros. */
void driver_cache_key_add(driver_cache_key *key, const void *data, size_t size);
/* The program's bytes, base_heap_give with *size + 1; false: not there, damaged, or no memory.
 * `backend` names the file ("cuda"). Any thread. */
bool driver_cache_find(base_heap *heap, const char *backend, const driver_cache_key *key,
                       void **data, size_t *size);
/* Keeps a copy. An error, the same for all programs of a folder, is for the log. Any thread. */
beryl_status driver_cache_keep(base_heap *heap, const char *backend, const driver_cache_key *key,
                               const void *data, size_t size, beryl_error *error);
/* That error. folder: "" where none is named. */
beryl_status driver_cache_fail(beryl_error *error, const char *folder);

#endif
