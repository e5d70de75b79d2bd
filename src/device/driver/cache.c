/* cache.c - Beryl's folders of compiled programs, and who compiles one.
 *
 * A compiled program is code that this process or its device runs, so it is taken only from a file
 * that nobody but this user and root can change (folder.h), read once, and used as it was read. A
 * seal behind the file's end holds its size, a hash of its bytes and its key: what was cut, changed
 * or renamed is passed over. A file is written beside and renamed.
 *
 * Claims are locks on one byte each, by the key, of a file that stays empty. The system takes them
 * back when their process ends, however it ends.
 */
#define _GNU_SOURCE /* F_OFD_SETLK */
#define _FILE_OFFSET_BITS 64
#include "device/driver/cache.h"
#include "base/error.h"
#include "base/file.h"
#include "device/driver/folder.h"

#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <string.h>
#include <sys/stat.h>
#include <time.h>
#include <unistd.h>

enum {
    PROGRAM_MAX = 64 << 20,
    NAME_ROOM = 80,
    OLD_PROGRAM = 60 * 86400, /* seconds */
    OLD_PART = 86400
};

#define PART_END ".part" /* of a file that is being written */

typedef struct seal {
    char magic[8];
    driver_cache_key key;
    uint64_t size, hash;
} seal;

static const char magic[8] = "brlprg2";

void driver_cache_key_add(driver_cache_key *key, const void *data, size_t size) {
    key->hash[0] = base_hash(data, size, key->hash[0] + 0x243f6a8885a308d3);
    key->hash[1] = base_hash(data, size, key->hash[1] + size + 0x13198a2e03707344);
}

static seal seal_of(const void *data, size_t size, const driver_cache_key *key) {
    seal s = {.key = *key, .size = size, .hash = base_hash(data, size, 1)};
    memcpy(s.magic, magic, sizeof magic);
    return s;
}

static void name_of(const driver_cache *c, const driver_cache_key *key, char name[NAME_ROOM]) {
    snprintf(name, NAME_ROOM, "%.15s-%016llx%016llx.bin", c->backend,
             (unsigned long long)key->hash[0], (unsigned long long)key->hash[1]);
}

static beryl_status fail(beryl_error *error, const char *what, const char *why) {
    return base_fail(error, BERYL_IO,
                     "compiled kernels are not kept, each start makes them anew: %.200s%s%.200s",
                     what, *what && *why ? ": " : "", why);
}

/* ---- the folder ------------------------------------------------------------------------------ */

/* Programs are touched when they are loaded; a part is of a process that died. */
static void remove_old(void *user, int folder, const char *name) {
    const time_t *now = user;
    struct stat about;
    const size_t size = strlen(name), end = sizeof PART_END - 1;
    const bool part = size > end && !strcmp(name + size - end, PART_END);
    if (!fstatat(folder, name, &about, AT_SYMLINK_NOFOLLOW) &&
        about.st_mtime < *now - (part ? OLD_PART : OLD_PROGRAM))
        unlinkat(folder, name, 0);
}

static int open_lock(int folder) {
    struct stat about;
    const int lock =
        driver_openat(folder, "lock", O_RDWR | O_CREAT | O_NOFOLLOW | O_NONBLOCK, 0600);
    if (lock < 0 || (!fstat(lock, &about) && S_ISREG(about.st_mode))) return lock;
    close(lock);
    return -1;
}

void driver_cache_open(driver_cache *c, const char *name, const char *backend,
                       beryl_error *warning) {
    const char *cache = base_environment("XDG_CACHE_HOME"), *home = base_environment("HOME");
    beryl_error why = {0};
    int n = 0;
    *c = (driver_cache){.backend = backend, .folder = -1, .lock = -1, .asked = true};
    if (cache && *cache == '/') n = snprintf(c->path, sizeof c->path, "%s/beryl", cache);
    else if (home && *home == '/') n = snprintf(c->path, sizeof c->path, "%s/.cache/beryl", home);
    if (n <= 0 || (size_t)n + strlen(name) + 2 > sizeof c->path) {
        fail(warning,
             n > 0 ? "its folder has too long a path" : "neither $XDG_CACHE_HOME nor $HOME is set",
             "");
        return;
    }
    const int own = driver_folder_open(c->path, true, &why);
    snprintf(c->path + n, sizeof c->path - (size_t)n, "/%s", name);
    if (own >= 0) {
        c->lock = open_lock(own);
        c->folder = driver_folder_open(c->path, true, &why);
        close(own);
    }
    if (c->folder < 0) {
        fail(warning, why.message, "");
        return;
    }
    time_t now = time(NULL);
    c->kept = !faccessat(c->folder, ".", W_OK, AT_EACCESS);
    if (c->kept) driver_folder_each(c->folder, remove_old, &now);
    else fail(warning, c->path, strerror(errno));
}

void driver_cache_close(driver_cache *c) {
    if (!c->asked) return;
    if (c->folder >= 0) close(c->folder);
    if (c->lock >= 0) close(c->lock);
    *c = (driver_cache){0};
}

/* ---- files ----------------------------------------------------------------------------------- */

beryl_status driver_cache_find(const driver_cache *c, base_heap *heap, const driver_cache_key *key,
                               void **data, size_t *size, beryl_error *error) {
    char name[NAME_ROOM];
    uint64_t all = 0;
    seal s;
    *data = NULL;
    if (c->folder < 0) return BERYL_NOT_FOUND;
    name_of(c, key, name);
    beryl_error why = {0};
    const int file = driver_file_open(c->folder, name, &all, &why);
    if (file < 0)
        return base_fail(why.code == BERYL_NOT_FOUND ? NULL : error, why.code, "%.200s/%s", c->path,
                         why.message);
    beryl_status status = BERYL_OK;
    *size = all > sizeof s && all <= PROGRAM_MAX ? (size_t)(all - sizeof s) : 0;
    if (*size && !(*data = base_heap_take(heap, *size + 1)))
        status = base_fail(error, BERYL_NO_MEMORY, "out of memory for a program of the cache");
    bool good = *data && driver_file_read(file, *data, 0, *size) &&
                driver_file_read(file, &s, *size, sizeof s);
    if (good) {
        const seal want = seal_of(*data, *size, key);
        good = !memcmp(&s, &want, sizeof s);
    }
    if (good) futimens(file, NULL); /* it is in use */
    close(file);
    if (good || status) return status;
    base_heap_give(heap, *data, *data ? *size + 1 : 0);
    *data = NULL;
    return base_fail(error, BERYL_BAD_FILE, "%.200s/%s is not used: it is damaged", c->path, name);
}

beryl_status driver_cache_keep(const driver_cache *c, const driver_cache_key *key, const void *data,
                               size_t size, beryl_error *error) {
    char name[NAME_ROOM], part[NAME_ROOM + 64];
    if (!c->kept || !size || size > PROGRAM_MAX - sizeof(seal)) return BERYL_OK;
    const seal s = seal_of(data, size, key);
    name_of(c, key, name);
    snprintf(part, sizeof part, "%s-%ld-%p" PART_END, name, (long)getpid(), (const void *)&s);
    unlinkat(c->folder, part, 0); /* of a process that died, long ago */
    int cause = driver_file_make(c->folder, part, (const void *const[]){data, &s},
                                 (const size_t[]){size, sizeof s}, 2);
    if (cause) return fail(error, c->path, strerror(cause));
    if (!renameat(c->folder, part, c->folder, name)) return BERYL_OK;
    cause = errno;
    unlinkat(c->folder, part, 0);
    return fail(error, c->path, strerror(cause));
}

/* ---- claims ---------------------------------------------------------------------------------- */

#ifdef F_OFD_SETLK

static bool set_lock(const driver_cache *c, const driver_cache_key *key, short type) {
    struct flock range = {.l_type = type,
                          .l_whence = SEEK_SET,
                          .l_start = (off_t)(key->hash[0] >> 2), /* far from the largest offset */
                          .l_len = 1};
    return !fcntl(c->lock, F_OFD_SETLK, &range);
}

beryl_status driver_cache_claim(const driver_cache *c, const driver_cache_key *key) {
    if (c->lock < 0 || !c->kept) return BERYL_UNSUPPORTED;
    if (set_lock(c, key, F_WRLCK)) return BERYL_OK;
    return errno == EAGAIN || errno == EACCES ? BERYL_PENDING : BERYL_UNSUPPORTED;
}

void driver_cache_release(const driver_cache *c, const driver_cache_key *key) {
    set_lock(c, key, F_UNLCK);
}

#else /* the locks of processes would not keep two devices of one process apart */

beryl_status driver_cache_claim(const driver_cache *c, const driver_cache_key *key) {
    (void)c, (void)key;
    return BERYL_UNSUPPORTED;
}

void driver_cache_release(const driver_cache *c, const driver_cache_key *key) {
    (void)c, (void)key;
}

#endif
