/* cache.c - Beryl's folder of compiled kernels, and what may be loaded from it.
 *
 * A compiled kernel is code that this process runs, so it is loaded only where it cannot be another
 * user's: the folder and the file belong to this user, nobody else may write them, and neither is a
 * link. A seal behind the file's end (which loaders do not read) holds its size, a hash of its
 * bytes and its key: what was cut, changed or renamed is passed over, since loading half a library
 * kills the process. Beryl's folder is found as everywhere: $XDG_CACHE_HOME/beryl, else
 * ~/.cache/beryl.
 */
#define _GNU_SOURCE /* mkdtemp */
#include "device/host/host.h"
#include "base/error.h"
#include "base/file.h"
#include "device/driver/cache.h"

#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <time.h>
#include <unistd.h>

enum {
    FILE_MOST = 64 << 20,
    OLD_COMPILED = 60 * 86400, /* seconds */
    OLD_OTHER = 86400
};

typedef struct seal {
    char magic[8], key[32];
    uint64_t size, hash;
} seal;

static const char magic[8] = {'b', 'e', 'r', 'y', 'l', 's', 'o', '1'};

static bool is_ours(const struct stat *about) {
    return about->st_uid == geteuid() && !(about->st_mode & (S_IWGRP | S_IWOTH));
}

/* ---- what nobody uses any more */

typedef struct old_files {
    char path[1024];
    size_t size; /* of the folder's own part */
    time_t now;
} old_files;

/* Compiled kernels are touched when they are loaded; all else is of processes that died. */
static void remove_old(void *user, const char *name, bool is_folder) {
    old_files *o = user;
    struct stat about;
    const size_t size = strlen(name);
    const bool compiled = size > 3 && !strcmp(name + size - 3, ".so");
    if (is_folder || o->size + size + 2 > sizeof o->path) return;
    memcpy(o->path + o->size, name, size + 1);
    if (lstat(o->path, &about)) return;
    if (about.st_mtime < o->now - (compiled ? OLD_COMPILED : OLD_OTHER)) unlink(o->path);
}

static void clean_folder(base_heap *heap, const char *path) {
    old_files o = {.now = time(NULL)};
    const int n = snprintf(o.path, sizeof o.path, "%s/", path);
    o.size = n > 0 ? (size_t)n : 0;
    if (o.size && o.size < sizeof o.path) base_folder_list(heap, path, remove_old, &o, NULL);
}

void host_cache_folder(base_heap *heap, char *path, size_t size, beryl_error *warning) {
    const char *cache = base_environment("XDG_CACHE_HOME"), *home = base_environment("HOME");
    int n = 0;
    if (cache && *cache == '/') n = snprintf(path, size, "%s/beryl", cache);
    else if (home && *home == '/') n = snprintf(path, size, "%s/.cache/beryl", home);
    const bool named = n > 0 && (size_t)n + 8 < size;
    struct stat about;
    if (!named) path[0] = 0;
    bool made = named && !base_folder_make(path, NULL);
    if (made) memcpy(path + n, "/host", 6);
    made = made && (!mkdir(path, 0700) || errno == EEXIST) && !lstat(path, &about);
    const bool safe = made && S_ISDIR(about.st_mode) && is_ours(&about);
    if (safe && !access(path, W_OK)) clean_folder(heap, path);
    else if (!made || safe) driver_cache_fail(warning, path);
    else
        base_fail(warning, BERYL_BAD_FILE,
                  "%s is not used: it has to be a folder that nobody else can write", path);
    if (!safe) path[0] = 0;
}

bool host_private_folder(char *path, size_t size, beryl_error *error) {
    const char *top = base_environment("TMPDIR");
    const int n = snprintf(path, size, "%s/beryl-host-XXXXXX", top && *top == '/' ? top : "/tmp");
    if (n > 0 && (size_t)n < size && mkdtemp(path)) return true;
    base_fail(error, BERYL_IO, "no folder for compiled kernels can be made in %s",
              top && *top == '/' ? top : "/tmp");
    path[0] = 0;
    return false;
}

void host_private_folder_remove(const char *path) {
    rmdir(path); /* its files went with their compiles */
}

static seal seal_of(const char *data, size_t size, const char *key) {
    seal s;
    memset(&s, 0, sizeof s);
    memcpy(s.magic, magic, sizeof magic);
    memcpy(s.key, key, sizeof s.key);
    s.size = size;
    s.hash = base_hash(data, size, 0);
    return s;
}

beryl_status host_cache_check(base_heap *heap, const char *path, const char *key,
                              beryl_error *error) {
    struct stat about;
    if (lstat(path, &about)) return BERYL_NOT_FOUND;
    if (!S_ISREG(about.st_mode) || !is_ours(&about))
        return base_fail(error, BERYL_BAD_FILE,
                         "%s is not used: it has to be a file that nobody else can write", path);
    char *data = NULL;
    size_t size = 0;
    seal s;
    beryl_status status = base_file_read(heap, path, FILE_MOST, &data, &size, error);
    if (status) return status == BERYL_NO_MEMORY ? status : BERYL_BAD_FILE;
    bool good = size > sizeof s;
    if (good) {
        const seal want = seal_of(data, size - sizeof s, key);
        memcpy(&s, data + size - sizeof s, sizeof s);
        good = !memcmp(&s, &want, sizeof s);
    }
    base_heap_give(heap, data, size + 1);
    if (good) utimensat(AT_FDCWD, path, NULL, 0); /* it is in use */
    return good ? BERYL_OK
                : base_fail(error, BERYL_BAD_FILE, "%s is not used: it is damaged", path);
}

beryl_status host_cache_seal(base_heap *heap, const char *path, const char *key,
                             beryl_error *error) {
    char *data = NULL;
    size_t size = 0;
    beryl_status status = base_file_read(heap, path, FILE_MOST, &data, &size, error);
    if (status) return status;
    const seal s = seal_of(data, size, key);
    base_heap_give(heap, data, size + 1);
    const int fd = open(path, O_WRONLY | O_APPEND | O_CLOEXEC | O_NOFOLLOW);
    const bool kept =
        fd >= 0 && write(fd, &s, sizeof s) == (ssize_t)sizeof s && !fchmod(fd, S_IRUSR | S_IWUSR);
    if (fd >= 0) close(fd);
    return kept ? BERYL_OK : base_fail(error, BERYL_IO, "%s cannot be written", path);
}
