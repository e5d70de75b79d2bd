/* work.c - where compilers work, and how what they made becomes code of this process.
 *
 * Compilers work in a folder that this device makes for itself and that nobody else can read or
 * write; they are told of it by descriptor, so that it cannot be swapped, and their own temporary
 * files lie there too. It goes, with all that is left in it, when the device is closed; what a
 * process that was killed has left, the next one removes: a folder that is in use is locked.
 *
 * Code is loaded from a sealed file in memory, so that nothing can change it after it was checked;
 * where the system has none, from a file that only this user and root reach.
 */
#define _GNU_SOURCE /* mkdtemp, memfd_create */
#include "device/host/host.h"
#include "base/error.h"
#include "base/file.h"
#include "device/driver/folder.h"

#include <dlfcn.h>
#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/file.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

#define FOLDER_NAME "beryl-host-"
enum { ROOM_WANTED = 1 << 20, TRIES = 50, UNIQUE = 6 /* letters that mkdtemp adds */ };

/* ---- folders --------------------------------------------------------------------------------- */

static void remove_entry(void *user, int folder, const char *name) {
    (void)user;
    if (unlinkat(folder, name, 0)) unlinkat(folder, name, AT_REMOVEDIR);
}

static bool is_own_folder(int folder) {
    struct stat about;
    return !fstat(folder, &about) && about.st_uid == geteuid() && (about.st_mode & 07777) == 0700 &&
           about.st_nlink > 0;
}

/* Folders of processes that died: nobody holds their lock. */
static void remove_dead(void *user, int top, const char *name) {
    (void)user;
    if (strncmp(name, FOLDER_NAME, sizeof FOLDER_NAME - 1) != 0 ||
        strlen(name) != sizeof FOLDER_NAME - 1 + UNIQUE)
        return;
    const int folder = driver_openat(top, name, O_RDONLY | O_DIRECTORY | O_NOFOLLOW, 0);
    if (folder < 0) return;
    if (is_own_folder(folder) && !flock(folder, LOCK_EX | LOCK_NB)) {
        driver_folder_each(folder, remove_entry, NULL);
        unlinkat(top, name, AT_REMOVEDIR);
    }
    close(folder);
}

static int make_folder(const char *top, host_work *work) {
    const int all = driver_openat(AT_FDCWD, top, O_RDONLY | O_DIRECTORY, 0);
    if (all >= 0) driver_folder_each(all, remove_dead, NULL);
    if (all >= 0) close(all);
    /* somebody may take it for a dead one's before it is locked */
    for (int i = 0; i < TRIES; i++) {
        const int n = snprintf(work->path, sizeof work->path, "%s/" FOLDER_NAME "XXXXXX", top);
        if (n < 0 || (size_t)n >= sizeof work->path) return ENAMETOOLONG;
        if (!mkdtemp(work->path)) return errno;
        work->folder = driver_openat(AT_FDCWD, work->path, O_RDONLY | O_DIRECTORY | O_NOFOLLOW, 0);
        const bool ours = work->folder >= 0 && (!flock(work->folder, LOCK_EX | LOCK_NB) ||
                                                (errno != EWOULDBLOCK && errno != EINTR));
        if (ours && is_own_folder(work->folder)) return 0;
        if (work->folder >= 0) close(work->folder);
        rmdir(work->path); /* it is empty, whosever it is by now */
    }
    return EBUSY;
}

int host_work_room(const host_work *work) {
    static const char zeros[64 << 10];
    const int file = driver_openat(work->folder, "room", O_WRONLY | O_CREAT | O_EXCL, 0600);
    if (file < 0) return errno == EEXIST ? 0 : errno; /* another worker looks */
    int cause = 0;
    for (int i = 0; i < ROOM_WANTED / (int)sizeof zeros && !cause; i++)
        cause = driver_file_write(file, zeros, sizeof zeros);
    close(file);
    unlinkat(work->folder, "room", 0);
    return cause;
}

static void close_work(host_work *work) {
    for (int i = 0; i < TRIES; i++) { /* parts of a killed compiler may be a moment behind */
        driver_folder_each(work->folder, remove_entry, NULL);
        if (!rmdir(work->path) || (errno != ENOTEMPTY && errno != EEXIST)) break;
        base_sleep(0.01);
    }
    close(work->folder);
    work->open = false;
}

static int open_work(const char *top, host_work *work) {
    int cause = make_folder(top, work);
    work->open = !cause;
    if (work->open) cause = host_work_room(work);
    if (work->open && cause) close_work(work);
    return cause;
}

static const char *place_name(uint32_t place) {
    static const char *const tops[HOST_PLACE_MAX] = {NULL, "/tmp", "/var/tmp", "/dev/shm"};
    const char *named = base_environment("TMPDIR");
    return place ? tops[place] : named && *named == '/' ? named : NULL;
}

/* With the lock: this place is of no use. */
static void leave_place(host *d, int cause) {
    beryl_error why;
    d->place_error = cause;
    base_fail(&why, BERYL_IO, "kernels cannot be compiled in %.200s, another folder is taken: %s",
              place_name(d->place), strerror(cause));
    driver_compiler_warn(&d->compiler, &why);
    d->place++;
}

host_work *host_work_get(host *d, beryl_error *error) {
    host_work *work = NULL;
    base_lock_enter(d->compile_lock);
    while (!work && d->place < HOST_PLACE_MAX) {
        const char *top = place_name(d->place);
        const int cause = top && !d->works[d->place].open ? open_work(top, &d->works[d->place]) : 0;
        if (!top) d->place++;
        else if (cause) leave_place(d, cause);
        else work = &d->works[d->place];
    }
    if (!work)
        base_fail(error, BERYL_IO,
                  "no kernel can be compiled, for want of a folder: %s (TMPDIR names another)",
                  strerror(d->place_error));
    base_lock_leave(d->compile_lock);
    return work;
}

void host_work_leave(host *d, const host_work *work, int cause) {
    base_lock_enter(d->compile_lock);
    if (d->place < HOST_PLACE_MAX && work == &d->works[d->place]) leave_place(d, cause);
    base_lock_leave(d->compile_lock);
}

void host_works_close(host *d) {
    for (int i = 0; i < HOST_PLACE_MAX; i++)
        if (d->works[i].open) close_work(&d->works[i]);
}

/* ---- code ------------------------------------------------------------------------------------ */

static void *fail_load(beryl_error *error, const char *what, const char *why) {
    base_fail(error, BERYL_DEVICE, "%s: %.300s", what, why);
    return NULL;
}

static void *fail_dlopen(beryl_error *error, const char *what) {
    const char *why = dlerror();
    return fail_load(error, what, why ? why : "cannot be loaded");
}

#ifdef MFD_ALLOW_SEALING

/* A file without a name that nobody can change any more, or -1. */
static int sealed_file(const void *code, size_t size) {
    int file = -1;
#ifdef MFD_EXEC
    file = memfd_create("beryl-kernel", MFD_CLOEXEC | MFD_ALLOW_SEALING | MFD_EXEC);
#endif
    if (file < 0) file = memfd_create("beryl-kernel", MFD_CLOEXEC | MFD_ALLOW_SEALING);
    if (file < 0) return -1;
    if (!driver_file_write(file, code, size) &&
        !fcntl(file, F_ADD_SEALS, F_SEAL_SHRINK | F_SEAL_GROW | F_SEAL_WRITE | F_SEAL_SEAL))
        return file;
    close(file);
    return -1;
}

/* The loader knows libraries by their path, and takes one that it has for another that comes under
 * the same: descriptors come again, so the path spells the key, a "//" or "/." a bit. */
static void *load_sealed(const driver_cache_key *key, const void *code, size_t size) {
    char path[200];
    const int file = sealed_file(code, size);
    if (file < 0) return NULL;
    int n = snprintf(path, sizeof path, "/proc/self/fd");
    for (int i = 0; i < 64; i++) {
        path[n++] = '/';
        path[n++] = key->hash[0] >> i & 1 ? '/' : '.';
    }
    snprintf(path + n, sizeof path - (size_t)n, "/%d", file);
    void *handle = dlopen(path, RTLD_NOW | RTLD_LOCAL);
    close(file);
    return handle;
}

#else

static void *load_sealed(const driver_cache_key *key, const void *code, size_t size) {
    (void)key, (void)code, (void)size;
    return NULL;
}

#endif

void *host_library_from_folder(host *d, const char *label, const void *code, size_t size,
                               beryl_error *error) {
    char name[40], path[600];
    struct stat here, there;
    const host_work *work = host_work_get(d, error);
    const int folder = work ? driver_folder_open(work->path, false, error) : -1;
    if (folder < 0) return NULL;
    base_lock_enter(d->compile_lock);
    snprintf(name, sizeof name, "%llu.so", (unsigned long long)++d->n_file);
    base_lock_leave(d->compile_lock);
    snprintf(path, sizeof path, "%s/%s", work->path, name);
    const bool same = !fstat(folder, &here) && !fstat(work->folder, &there) &&
                      here.st_ino == there.st_ino && here.st_dev == there.st_dev;
    close(folder);
    if (!same) return fail_load(error, label, "the folder for its code was swapped");
    const int cause = driver_file_make(work->folder, name, &code, &size, 1);
    if (cause) return fail_load(error, label, strerror(cause));
    void *handle = dlopen(path, RTLD_NOW | RTLD_LOCAL);
    if (!handle) fail_dlopen(error, label);
    unlinkat(work->folder, name, 0); /* a library stays in memory */
    return handle;
}

void *host_library_open(host *d, const char *label, const driver_cache_key *key, const void *code,
                        size_t size, beryl_error *error) {
    void *handle = load_sealed(key, code, size);
    return handle ? handle : host_library_from_folder(d, label, code, size, error);
}
