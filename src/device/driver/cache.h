/* cache.h - compiled programs on disk, by a hash of all that they come from. */
#ifndef DEVICE_DRIVER_CACHE_H
#define DEVICE_DRIVER_CACHE_H

#include "base/memory.h"

typedef struct driver_cache_key {
    uint64_t hash[2];
} driver_cache_key;

/* A folder of Beryl's for one kind of device. Once open, any thread may use it. */
typedef struct driver_cache {
    char path[600];
    const char *backend; /* names the files ("cuda"); borrowed */
    int folder, lock;    /* -1: none to be had */
    bool asked, kept;    /* the fields are set; programs are kept */
} driver_cache;

/* Adds text that the compiled program depends on (its source, options, driver, chip). Begin with
 * all zeros. */
void driver_cache_key_add(driver_cache_key *key, const void *data, size_t size);
/* Opens $XDG_CACHE_HOME/beryl/NAME (default ~/.cache), making it where it is missing, and removes
 * what nobody has used for two months. A folder that others could change is not used at all, one
 * that cannot be written is read: `warning` says why. */
void driver_cache_open(driver_cache *cache, const char *name, const char *backend,
                       beryl_error *warning);
void driver_cache_close(driver_cache *cache); /* fine on a zeroed one */
/* The program's bytes and a NUL, base_heap_give with *size + 1. NOT_FOUND, BAD_FILE (unsafe or
 * damaged), IO, NO_MEMORY. */
beryl_status driver_cache_find(const driver_cache *cache, base_heap *heap,
                               const driver_cache_key *key, void **data, size_t *size,
                               beryl_error *error);
/* Keeps a copy. An error, the same for all programs of a folder, is for the log. */
beryl_status driver_cache_keep(const driver_cache *cache, const driver_cache_key *key,
                               const void *data, size_t size, beryl_error *error);
/* First come, of all processes: OK: this one makes the program, until it releases the claim or
 * ends. PENDING: another does. UNSUPPORTED: there are no claims here. */
beryl_status driver_cache_claim(const driver_cache *cache, const driver_cache_key *key);
void driver_cache_release(const driver_cache *cache, const driver_cache_key *key);

#endif
