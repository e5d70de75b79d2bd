/* cache.c - one file a program in $XDG_CACHE_HOME/beryl/programs (default ~/.cache).
 *
 * A file is a head {magic, key, size, hash of the bytes} and the bytes. It is written beside and
 * renamed, so that two processes may keep the same program; a damaged, short or foreign file counts
 * as not there and is written again. The one idea: a file that is believed has the whole key and
 * the hash of its own bytes inside, so its name proves nothing.
 */
#include "device/driver/cache.h"
#include "base/error.h"
#include "base/file.h"

#include <stdio.h>
#include <string.h>

enum { PROGRAM_MAX = 64 << 20, PATH_MAX_BYTES = 1024 };

typedef struct head {
    char magic[8];
    driver_cache_key key;
    uint64_t size, hash;
} head;

static const char magic[8] = "brlprg1";

void driver_cache_key_add(driver_cache_key *key, const void *data, size_t size) {
    key->hash[0] = base_hash(data, size, key->hash[0] + 0x243f6a8885a308d3);
    key->hash[1] = base_hash(data, size, key->hash[1] + size + 0x13198a2e03707344);
}

static bool folder_path(char *path) {
    const char *cache = base_environment("XDG_CACHE_HOME"), *home = base_environment("HOME");
    int n = cache && *cache == '/' ? snprintf(path, PATH_MAX_BYTES, "%s/beryl/programs", cache)
            : home && *home == '/'
                ? snprintf(path, PATH_MAX_BYTES, "%s/.cache/beryl/programs", home)
                : 0;
    return n > 0 && n < PATH_MAX_BYTES;
}

static bool file_path(char *path, const char *folder, const char *backend,
                      const driver_cache_key *key) {
    int n = snprintf(path, PATH_MAX_BYTES + 64, "%s/%.15s-%016llx%016llx.bin", folder, backend,
                     (unsigned long long)key->hash[0], (unsigned long long)key->hash[1]);
    return n > 0 && n < PATH_MAX_BYTES + 64;
}

bool driver_cache_find(base_heap *heap, const char *backend, const driver_cache_key *key,
                       void **data, size_t *size) {
    char folder[PATH_MAX_BYTES], path[PATH_MAX_BYTES + 64];
    *data = NULL;
    if (!folder_path(folder) || !file_path(path, folder, backend, key)) return false;
    if (!base_file_exists(path)) return false;
    char *file;
    size_t n;
    if (base_file_read(heap, path, PROGRAM_MAX, &file, &n, NULL)) return false;
    head h = {0};
    if (n >= sizeof h) memcpy(&h, file, sizeof h);
    bool good = n > sizeof h && !memcmp(h.magic, magic, sizeof magic) &&
                !memcmp(&h.key, key, sizeof *key) && h.size == n - sizeof h &&
                h.hash == base_hash(file + sizeof h, n - sizeof h, 1);
    if (good) {
        *size = n - sizeof h;
        *data = base_heap_take(heap, *size + 1);
        if (*data) memcpy(*data, file + sizeof h, *size);
    }
    base_heap_give(heap, file, n + 1);
    return *data != NULL;
}

beryl_status driver_cache_fail(beryl_error *error, const char *folder) {
    const char *why = *folder ? "cannot be written" : "neither $XDG_CACHE_HOME nor $HOME is set";
    return base_fail(error, BERYL_IO, "compiled kernels are not kept, each start makes them anew: %s%s%s",
                     folder, *folder ? " " : "", why);
}

beryl_status driver_cache_keep(base_heap *heap, const char *backend, const driver_cache_key *key,
                               const void *data, size_t size, beryl_error *error) {
    char folder[PATH_MAX_BYTES], path[PATH_MAX_BYTES + 64];
    if (!size || size > PROGRAM_MAX - sizeof(head)) return BERYL_OK;
    if (!folder_path(folder) || !file_path(path, folder, backend, key))
        return driver_cache_fail(error, "");
    if (base_folder_make(folder, NULL)) return driver_cache_fail(error, folder);
    char *file = base_heap_take(heap, sizeof(head) + size);
    if (!file) return BERYL_OK;
    head h = {.key = *key, .size = size, .hash = base_hash(data, size, 1)};
    memcpy(h.magic, magic, sizeof magic);
    memcpy(file, &h, sizeof h);
    memcpy(file + sizeof h, data, size);
    const beryl_status status = base_file_write(path, file, sizeof h + size, NULL);
    base_heap_give(heap, file, sizeof h + size);
    return status ? driver_cache_fail(error, folder) : BERYL_OK;
}
